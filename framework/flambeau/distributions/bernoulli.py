"""One trial: 1 with probability p, else 0."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor
from flambeau.nn.functional import binary_cross_entropy_with_logits

from . import constraints
from ._chances import BinaryChances, given_chances
from .exp_family import ExponentialFamily
from .utils import broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(BinaryChances, ExponentialFamily):
    """1 with probability `probs`, else 0.

    Args:
        probs: probability of 1, in [0, 1]; or
        logits: its log-odds.
    Raises: ValueError unless exactly one of the two is given.

    >>> fb.distributions.Bernoulli(fb.tensor([0.25])).log_prob(fb.tensor([1.0])).exp()
    tensor([0.2500])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0
    _event_dims_of = {"probs": 0, "logits": 0}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given_name = given_chances(probs, logits)
        (given,) = broadcast_all(probs if logits is None else logits)
        setattr(self, self._given_name, given)
        super().__init__(given.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """0 or 1, whichever is more probable; nan where both are as probable."""
        made = (self.probs >= 0.5).to(self.probs)
        made[self.probs == 0.5] = fb.nan
        return made

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        with fb.no_grad():
            return fb.bernoulli(self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = fb.arange(2, dtype=self._given.dtype, device=self._given.device)
        values = values.view((2,) + (1,) * len(self._batch_shape))
        return values.expand((2, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (fb.logit(self.probs),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return fb.nn.functional.softplus(x)
