"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """K numbers that add up to 1: the stick-breaking transform of K - 1 normal variables.

    Args:
        loc, scale: ``(*, K - 1)``, means and standard deviations of the normal variables.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    _event_dims_of = {}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """Means of the normal variables."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the normal variables."""
        return self.base_dist.base_dist.scale
