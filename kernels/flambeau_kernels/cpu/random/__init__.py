"""Random numbers on the CPU: the generators, and every distribution PyTorch draws from."""

from __future__ import annotations

from .continuous import cauchy, exponential, geometric, refill_exponential
from .normal_draws import few_normals, log_normal, normal, refill_normals, refill_standard
from .philox import PhiloxStream, philox4x32
from .rejection import binomial, dirichlet, poisson, standard_gamma
from .sample import multinomial, randperm
from .stream import DEFAULT_SEED, STATE_BYTES, MT19937Stream
from .uniform_draws import (
    bernoulli,
    coins,
    integers,
    randint,
    random_bits,
    refill,
    refill_between,
    refill_bits,
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
    "few_normals",
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
    "refill_bits",
    "refill_coins",
    "refill_exponential",
    "refill_integers",
    "refill_normals",
    "refill_standard",
    "standard_gamma",
    "uniform",
    "uniforms",
]
