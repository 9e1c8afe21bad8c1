"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """Lifetimes: ``scale * e ** (1 / concentration)`` of an exponential variable e of rate 1.

    Args:
        scale: > 0, the lifetime that 1/e of all survive.
        concentration: shape parameter, > 0; below 1 failures become rarer with age.
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _event_dims_of = {"scale": 0, "concentration": 0, "concentration_reciprocal": 0}

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(fb.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._steps(), validate_args=validate_args)

    def _steps(self) -> list[Any]:
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.transforms = new._steps()
        return new

    @property
    def mean(self) -> Tensor:
        return self.scale * fb.exp(fb.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        r = self.concentration_reciprocal
        return self.scale.pow(2) * (fb.exp(fb.lgamma(1 + 2 * r)) - fb.exp(2 * fb.lgamma(1 + r)))

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + fb.log(self.scale * r) + 1
