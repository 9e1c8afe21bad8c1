"""A mixture of distributions of one family."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """One of K components is drawn by `mixture_distribution`, then a sample of it.

    Args:
        mixture_distribution: a `Categorical` over the K components, of batch shape ``(*)``.
        component_distribution: a distribution of batch shape ``(*, K)``.
    Raises: ValueError if they are of other kinds or shapes.
    """

    arg_constraints = {}
    has_rsample = False
    _event_dims_of = {}

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None) -> None:
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        mixture_batch, batch = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for ours, theirs in zip(reversed(mixture_batch), reversed(batch), strict=False):
            if ours != 1 and theirs != 1 and ours != theirs:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture_batch}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        km, kc = mixture_distribution.param_shape[-1], component_distribution.batch_shape[-1]
        if km is not None and kc is not None and km != kc:
            raise ValueError(f"`mixture_distribution component` ({km}) does not equal `component_distribution.batch_shape[-1]` ({kc})")
        self._num_component = km
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component's number."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, along the last dimension of the batch."""
        return self._component_distribution

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(dim=-1 - len(self._event_shape))

    @property
    def variance(self) -> Tensor:
        """The mean of the variances plus the variance of the means."""
        dim, weights = -1 - len(self._event_shape), self._weights()
        within = (weights * self._component_distribution.variance).sum(dim)
        difference = self._component_distribution.mean - self.mean.unsqueeze(dim)
        return within + (weights * difference.pow(2.0)).sum(dim)

    def _weights(self) -> Tensor:
        """The components' probabilities, with ones for the event's dimensions behind."""
        probs = self._mixture_distribution.probs
        return probs.reshape(probs.shape + (1,) * len(self._event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        value = value.unsqueeze(-1 - len(self._event_shape))
        return (self._component_distribution.cdf(value) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_components = self._component_distribution.log_prob(value.unsqueeze(-1 - len(self._event_shape)))
        log_weights = fb.log_softmax(self._mixture_distribution.logits, dim=-1)
        return fb.logsumexp(log_components + log_weights, dim=-1)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        with fb.no_grad():
            dim = len(sample_shape) + len(self._batch_shape)
            chosen = self._mixture_distribution.sample(sample_shape)  # sample_shape + batch_shape
            samples = self._component_distribution.sample(sample_shape)
            index = chosen.reshape(chosen.shape + (1,) * (1 + len(self._event_shape)))
            index = index.expand((*samples.shape[:dim], 1, *self._event_shape))
            return samples.gather(dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
