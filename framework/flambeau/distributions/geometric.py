"""The geometric distribution, counted from 0."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor
from flambeau.nn.functional import binary_cross_entropy_with_logits

from . import constraints
from ._chances import BinaryChances, given_chances
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Geometric"]


class Geometric(BinaryChances, Distribution):
    """How many trials of success probability `probs` fail before the first succeeds: 0, 1, 2, ...

    Args:
        probs: probability of success, in (0, 1]; or
        logits: its log-odds.
    Raises: ValueError unless exactly one of the two is given, or for a probability of 0.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _event_dims_of = {"probs": 0, "logits": 0}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given_name = given_chances(probs, logits)
        (given,) = broadcast_all(probs if logits is None else logits)
        setattr(self, self._given_name, given)
        super().__init__(given.size(), validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) of distribution "
                f"{self!r} to be positive but found invalid values:\n{self.probs[self.probs <= 0]}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return fb.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        with fb.no_grad():
            # An u of 0 has no logarithm.
            u = self.probs.new_empty(shape).uniform_(fb.finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # With certain success 0 failures have logarithm 0, not 0 * -inf.
        failure = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-failure).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
