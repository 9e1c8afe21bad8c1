"""One of K classes, as a vector with a 1 at the class."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(Distribution):
    """Vectors of K zeros with a 1 at the class that was drawn; see `Categorical` for the arguments."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _event_dims_of = {"_categorical": 0}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
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

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return fb.nn.functional.one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self._categorical._given)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        classes = self._categorical.sample(Size(sample_shape))
        return fb.nn.functional.one_hot(classes, self._event_shape[0]).to(self._categorical._given)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        given = self._categorical._given
        values = fb.eye(n, dtype=given.dtype, device=given.device)
        values = values.view((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose samples hand their gradient to the probabilities as if they were these.

    Source: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons ...".
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        samples = self.sample(sample_shape)
        probs = self.probs  # the same object in both terms: their values cancel to the bit
        return samples + (probs - probs.detach())
