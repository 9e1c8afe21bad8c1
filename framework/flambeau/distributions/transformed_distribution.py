"""The distribution of a map of a random variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform, sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of ``transforms[-1](... transforms[0](x))`` where x has `base_distribution`.

    Args:
        transforms: a `Transform` or a list of them.
    Raises: ValueError for other `transforms`, or a base of fewer dimensions than they need.

    >>> exp = fb.distributions.ExpTransform()
    >>> fb.distributions.TransformedDistribution(fb.distributions.Normal(0.0, 1.0), exp).log_prob(fb.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints = {}
    _event_dims_of = {}

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        if isinstance(transforms, Transform):
            self.transforms = [transforms]
        elif isinstance(transforms, list) and all(isinstance(t, Transform) for t in transforms):
            self.transforms = transforms
        else:
            raise ValueError(f"transforms must be a Transform or a list of Transforms\n  got {transforms!r}")
        composed = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event_dim = len(base_distribution.event_shape)
        needed = composed.domain.event_dim
        if len(base_shape) < needed:
            raise ValueError(f"base_distribution needs to have shape with size at least {needed}, but got {base_shape}.")
        shape = composed.forward_shape(base_shape)
        # Maps may widen the batch and join dimensions of it into one event: the base follows.
        base_shape = composed.inverse_shape(shape)
        batch_shape = base_shape[: len(base_shape) - base_event_dim]
        base = base_distribution if base_distribution.batch_shape == batch_shape else base_distribution.expand(batch_shape)
        joined = needed - base_event_dim
        self.base_dist: Any = Independent(base, joined) if joined > 0 else base
        event_dim = composed.codomain.event_dim + max(base_event_dim - needed, 0)
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape(Size(batch_shape) + self._event_shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    if TYPE_CHECKING:
        # Subclasses have class attributes or properties of these names.
        support: Any
        has_rsample: Any
    else:

        @constraints.dependent_property(is_discrete=False)
        def support(self) -> Any:
            if not self.transforms:
                return self.base_dist.support
            support = self.transforms[-1].codomain
            joined = len(self._event_shape) - support.event_dim
            return constraints.independent(support, joined) if joined > 0 else support

        @property
        def has_rsample(self) -> bool:
            return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        with fb.no_grad():
            x = self.base_dist.sample(sample_shape)
            for transform in self.transforms:
                x = transform(x)
            return x

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        x = self.base_dist.rsample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        event_dim, y, jacobian = len(self._event_shape), value, 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            jacobian = jacobian - sum_rightmost(term, event_dim - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return jacobian + sum_rightmost(base, event_dim - len(self.base_dist.event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:                       # an end of the support is outside of it, but has a probability
            self.base_dist._validate_sample(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        value = self.base_dist.icdf(self._rising(value))
        for transform in self.transforms:
            value = transform(value)
        return value

    def _rising(self, probability: Tensor) -> Tensor:
        """A probability of the base as one of the result: a map that falls exchanges below and above."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5
