"""Absolute values of variables that are symmetric about 0."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Tensor

from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform


class OneSided(TransformedDistribution):
    """The absolute value of a variable of the class `of`, whose location is 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _event_dims_of = {}
    of: Any = None

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self.of(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """Scale of the variable on both sides."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return fb.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        both_sides = self.base_dist.log_prob(value) + math.log(2)
        return fb.where(value >= 0, both_sides, -fb.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
