"""The inverse gamma distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from . import constraints
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """The reciprocal of a gamma variable.

    Args:
        concentration: shape parameter alpha, > 0; up to 1 the mean is inf, up to 2 the variance.
        rate: 1 / scale of the gamma variable, > 0.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _event_dims_of = {}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """Shape parameter."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """1 / scale of the gamma variable."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        alpha = self.concentration
        made = self.rate / (alpha - 1)
        return fb.where(alpha > 1, made, fb.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        alpha = self.concentration
        made = self.rate.square() / ((alpha - 1).square() * (alpha - 2))
        return fb.where(alpha > 2, made, fb.inf)

    def entropy(self) -> Tensor:
        alpha = self.concentration
        return alpha + self.rate.log() + alpha.lgamma() - (1 + alpha) * alpha.digamma()
