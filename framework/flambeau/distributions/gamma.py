"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor
from flambeau.ops.sampling.gamma_draws import gamma_numbers

from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution; samples have the gradient of the implicit derivative of the distribution function.

    Args:
        concentration: shape parameter alpha, > 0.
        rate: 1 / scale, > 0.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _event_dims_of = {"concentration": 0, "rate": 0}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        made = gamma_numbers.function(self.concentration.expand(shape)) / self.rate.expand(shape)
        # The density may be infinite at 0: no sample is 0.
        return made.clamp(min=fb.finfo(made.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = fb.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        alpha, rate = self.concentration, self.rate
        return fb.xlogy(alpha, rate) + fb.xlogy(alpha - 1, value) - rate * value - fb.lgamma(alpha)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return fb.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        alpha = self.concentration
        return alpha - fb.log(self.rate) + fb.lgamma(alpha) + (1.0 - alpha) * fb.digamma(alpha)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return fb.lgamma(x + 1) + (x + 1) * fb.log(-y.reciprocal())
