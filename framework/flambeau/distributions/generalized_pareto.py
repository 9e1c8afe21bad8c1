"""The generalized Pareto distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Numbers above `loc` whose chance to exceed x is ``(1 + c * (x - loc) / scale) ** (-1 / c)``, with ``c`` the concentration.

    Args:
        loc: the least value.
        scale: > 0.
        concentration: the shape parameter. 0 gives the exponential distribution; below 0 there is a largest value,
            ``loc - scale / concentration``; from 1 the mean is nan, from 1/2 the variance.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _event_dims_of = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `loc` to inf, or to the largest value."""
        c = self.concentration
        divisor = fb.where(c < 0, c, -fb.ones_like(c))
        return constraints.interval(self.loc, fb.where(c < 0, self.loc - self.scale / divisor, fb.full_like(self.loc, fb.inf)))

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        below = c < 1
        return fb.where(below, self.loc + self.scale / fb.where(below, 1 - c, fb.ones_like(c)), fb.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        below = c < 0.5
        divisor = fb.where(below, (1 - c) ** 2 * (1 - 2 * c), fb.ones_like(c))
        return fb.where(below, self.scale**2 / divisor, fb.nan)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        return self.icdf(fb.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the chance to exceed `value`."""
        if self._validate_args:
            self._validate_sample(value)
        z, c = (value - self.loc) / self.scale, self.concentration
        none = c == 0
        return -fb.where(none, z, fb.log1p(c * z) / fb.where(none, fb.ones_like(c), c))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z, c = (value - self.loc) / self.scale, self.concentration
        none = c == 0
        steps = fb.log1p(c * z)
        return -self.scale.log() - fb.where(none, z, steps / fb.where(none, fb.ones_like(c), c) + steps)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of the chance not to exceed `value`."""
        return fb.log(-fb.expm1(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return -fb.expm1(self.log_survival_function(value))

    def icdf(self, value: Tensor) -> Tensor:
        c = self.concentration
        none = c == 0
        steps = fb.log1p(-value)
        return self.loc + self.scale * fb.where(none, -steps, fb.expm1(-c * steps) / fb.where(none, fb.ones_like(c), c))

    def entropy(self) -> Tensor:
        return 1 + self.concentration + self.scale.log()
