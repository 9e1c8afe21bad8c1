"""The binomial distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from ._chances import BinaryChances, given_chances
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Binomial"]


class Binomial(BinaryChances, Distribution):
    """How many of `total_count` trials succeed.

    Args:
        total_count: number of trials, a whole number >= 0, of a shape that broadcasts with
        probs: probability of success, in [0, 1]; or
        logits: its log-odds.
    Raises: ValueError unless exactly one of the two is given.
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _event_dims_of = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given_name = given_chances(probs, logits)
        self.total_count, given = broadcast_all(total_count, probs if logits is None else logits)
        self.total_count = self.total_count.type_as(given)
        setattr(self, self._given_name, given)
        super().__init__(given.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        with fb.no_grad():
            return fb.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        log_ways = fb.lgamma(n + 1) - fb.lgamma(value + 1) - fb.lgamma(n - value + 1)
        # value * log p + (n - value) * log(1 - p), with log(1 - p) = -softplus(logits) written so that it never overflows.
        at_least_0 = 0.5 * (self.logits + self.logits.abs())  # with half the slope at 0, where the two sides meet
        softplus = at_least_0 + fb.log1p(fb.exp(-fb.abs(self.logits)))
        return value * self.logits + log_ways - n * softplus

    def entropy(self) -> Tensor:
        """The entropy in nats, by a sum over the support.

        Raises: NotImplementedError unless all entries of the batch have the same number of trials.
        """
        n = self._same_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False)) if n else fb.zeros((1, *self._batch_shape))
        return -(fb.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._same_count("enumerate_support")
        values = fb.arange(1 + n, dtype=self._given.dtype, device=self._given.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    def _same_count(self, asked: str) -> int:
        n = int(self.total_count.max())
        if self.total_count.min() != n:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{asked}`.")
        return n
