"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Laplace"]


class Laplace(Distribution):
    """Two exponential distributions back to back.

    Args:
        loc: mean.
        scale: mean distance from `loc`, > 0.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _event_dims_of = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        # Both ends are left out: the logarithm below is finite.
        low = fb.finfo(self.loc.dtype).eps - 1
        u = self.loc.new_empty(self._extended_shape(sample_shape)).uniform_(low, 1)
        return self.loc - self.scale * u.sign() * fb.log1p(-u.abs())

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -fb.log(2 * self.scale) - fb.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * fb.expm1(-distance.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        side = value - 0.5
        return self.loc - self.scale * side.sign() * fb.log1p(-2 * side.abs())

    def entropy(self) -> Tensor:
        return 1 + fb.log(2 * self.scale)
