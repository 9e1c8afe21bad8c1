"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from ._chances import BinaryChances, given_chances
from .distribution import Distribution
from .gamma import Gamma
from .utils import broadcast_all, lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryChances, Distribution):
    """How many trials succeed before `total_count` have failed.

    Args:
        total_count: number of failures that ends the trials, >= 0; any real number is allowed.
        probs: probability of success, in [0, 1); or
        logits: its log-odds.
    Raises: ValueError unless exactly one of the two is given.
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _event_dims_of = {"total_count": 0, "probs": 0, "logits": 0, "_rates": 0}

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given_name = given_chances(probs, logits)
        self.total_count, given = broadcast_all(total_count, probs if logits is None else logits)
        self.total_count = self.total_count.type_as(given)
        setattr(self, self._given_name, given)
        super().__init__(given.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * fb.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / fb.sigmoid(-self.logits)

    @lazy_property
    def _rates(self) -> Gamma:
        # A Poisson variable whose rate is gamma distributed is negative binomial.
        return Gamma(concentration=self.total_count, rate=fb.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        with fb.no_grad():
            return fb.poisson(self._rates.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        kernel = n * fb.nn.functional.logsigmoid(-self.logits) + value * fb.nn.functional.logsigmoid(self.logits)
        log_norm = fb.lgamma(1.0 + value) + fb.lgamma(n) - fb.lgamma(n + value)
        # Without failures to wait for, 0 is certain.
        return kernel - log_norm.masked_fill(n + value == 0.0, 0.0)
