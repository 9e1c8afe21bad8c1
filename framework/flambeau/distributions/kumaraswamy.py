"""The Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """Numbers in [0, 1], much like those of a beta distribution: ``(1 - u ** (1 / b)) ** (1 / a)`` of a uniform u.

    Args:
        concentration1: a, > 0.
        concentration0: b, > 0.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _event_dims_of = {"concentration1": 0, "concentration0": 0}

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(fb.full_like(self.concentration0, 0), fb.full_like(self.concentration0, 1), validate_args=validate_args)
        super().__init__(base, self._steps(), validate_args=validate_args)

    def _steps(self) -> list[Any]:
        return [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.transforms = new._steps()
        return new

    def _moment(self, n: int) -> Tensor:
        """The mean of x**n: ``b B(1 + n / a, b)``."""
        b, x = self.concentration0, 1 + n / self.concentration1
        return b * fb.exp(fb.lgamma(x) + fb.lgamma(b) - fb.lgamma(x + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """nan where the density has no largest value inside."""
        a, b = self.concentration1, self.concentration0
        inner = ((a - 1) / (a * b - 1)).log() / a
        return inner.exp().masked_fill((a < 1) | (b < 1), fb.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.pow(2)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = fb.digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - fb.log(a) - fb.log(b)
