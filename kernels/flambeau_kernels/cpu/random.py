"""Random numbers on the CPU: the generators, and every distribution PyTorch draws from."""

from __future__ import annotations

from .random_continuous import cauchy, exponential, geometric, refill_exponential
from .random_normal import log_normal, normal
from .random_philox import PhiloxStream, philox4x32
from .random_rejection import binomial, dirichlet, poisson, standard_gamma
from .random_sample import multinomial, randperm
from .random_stream import DEFAULT_SEED, STATE_BYTES, MT19937Stream
from .random_uniform import (
    bernoulli,
    coins,
    integers,
    randint,
    random_bits,
    refill,
    refill_between,
    refill_coins,
    refill_integers,
    uniform,
    uniforms,
)

__all__ = [
    "DEFAULT_SEED",
    "MT19937Stream",
    "PhiloxStream",
    "STATE_BYTES",
    "bernoulli",
    "binomial",
    "cauchy",
    "coins",
    "dirichlet",
    "exponential",
    "geometric",
    "integers",
    "log_normal",
    "multinomial",
    "normal",
    "philox4x32",
    "poisson",
    "randint",
    "random_bits",
    "randperm",
    "refill",
    "refill_between",
    "refill_coins",
    "refill_exponential",
    "refill_integers",
    "standard_gamma",
    "uniform",
    "uniforms",
]
