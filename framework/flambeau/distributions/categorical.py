"""One of K classes."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from ._chances import ClassChances, given_chances
from .distribution import Distribution

__all__ = ["Categorical"]


class Categorical(ClassChances, Distribution):
    """One of the classes 0 to K - 1.

    Args:
        probs: ``(*, K)``, weights that are not negative and not all 0, divided here by their sum; or
        logits: ``(*, K)``, their logarithms, up to a constant.
    Raises: ValueError unless exactly one of the two is given, with at least one dimension.

    >>> fb.distributions.Categorical(fb.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _event_dims_of = {"probs": 1, "logits": 1}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._given_name = given_chances(probs, logits)
        given = probs if logits is None else logits
        if given.dim() < 1:
            raise ValueError(f"`{self._given_name}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def _num_events(self) -> int:
        return self._given.shape[-1]

    @property
    def mean(self) -> Tensor:
        """nan: classes have no order."""
        return fb.full(self._extended_shape(), fb.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        """nan: classes have no order."""
        return fb.full(self._extended_shape(), fb.nan, dtype=self.probs.dtype, device=self.probs.device)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        sample_shape = Size(sample_shape)
        rows = self.probs.reshape(-1, self._num_events)
        drawn = fb.multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, logits = fb.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        # A probability of 0 adds nothing, although its logarithm is -inf.
        logits = self.logits.clamp(min=fb.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = fb.arange(self._num_events, dtype=fb.long, device=self._given.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
