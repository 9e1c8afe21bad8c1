"""Counts of K classes in some number of trials."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each of K classes is drawn in `total_count` trials.

    Args:
        total_count: number of trials, the same for the whole batch.
        probs, logits: ``(*, K)``, see `Categorical`.
    Raises: NotImplementedError unless `total_count` is an int.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _event_dims_of = {"_categorical": 0, "_binomial": 1}

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The probabilities of the classes."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of `probs` and of `logits`."""
        return self._categorical.param_shape

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        sample_shape = Size(sample_shape)
        drawn = self._categorical.sample(Size((self.total_count,)) + sample_shape)
        drawn = drawn.permute((*range(1, drawn.dim()), 0))  # the trials last
        counts = drawn.new_zeros(self._extended_shape(sample_shape)).scatter_add_(-1, drawn, fb.ones_like(drawn))
        return counts.type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        # A class of probability 0 that was not drawn adds nothing.
        logits = logits.masked_fill((value == 0) & (logits == -fb.inf), 0)
        log_ways = fb.lgamma(value.sum(-1) + 1) - fb.lgamma(value + 1).sum(-1)
        return log_ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = fb.tensor(self.total_count)
        counts = self._binomial.enumerate_support(expand=False)[1:]
        weights = fb.exp(self._binomial.log_prob(counts))
        return n * self._categorical.entropy() - fb.lgamma(n + 1) + (weights * fb.lgamma(counts + 1)).sum([0, -1])
