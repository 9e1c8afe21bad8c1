"""The base of all distributions: shapes, validation of parameters and samples, and expansion over batches."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A probability distribution, or a batch of them.

    Args:
        batch_shape: the shape over which parameters differ.
        event_shape: the shape of one sample.
        validate_args: whether parameters and the arguments of `log_prob`, `cdf` and `icdf` are checked; by default unless
            Python runs with ``-O``.
    Raises: ValueError for a parameter that violates its constraint in `arg_constraints`.

    A subclass stores its parameters as attributes, tensors or distributions. `_event_dims_of` names them and tells how many of
    the last dimensions of their shapes, or of their batch shapes, belong to one event: `expand` widens the others.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__
    _event_dims_of: ClassVar[dict[str, int]] = {}

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments.

        Raises: ValueError if `value` is not a bool.
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: value must be True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = Size(), event_shape: Any = Size(), validate_args: bool | None = None) -> None:  # noqa: B008 - an empty Size never changes
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            arg_constraints = {}
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                f"distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in vars(self) and isinstance(getattr(type(self), name, None), lazy_property):
                continue  # follows from another parameter, which is checked
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with its parameters expanded, as views, to `batch_shape`.

        Args:
            _instance: an object to fill, for subclasses with an `expand` of their own.
        Raises: NotImplementedError for a subclass that has its own `__init__` and no `expand`.
        """
        # The class that says what its attributes are is the one whose `__init__` made them.
        declared = next(cls for cls in type(self).__mro__ if "_event_dims_of" in vars(cls))
        new = self._get_checked_instance(declared, _instance)
        batch_shape = Size(batch_shape)
        for name, value in vars(self).items():
            if name in self._event_dims_of and isinstance(value, Tensor):
                vars(new)[name] = value.expand((*batch_shape, *value.shape[value.dim() - self._event_dims_of[name] :]))
            elif name in self._event_dims_of:
                # A distribution; what counts as an event here may be a part of its batch.
                own = value.batch_shape
                vars(new)[name] = value.expand((*batch_shape, *own[len(own) - self._event_dims_of[name] :]))
            elif name not in vars(new):
                vars(new)[name] = value
        new._batch_shape, new._event_shape = batch_shape, self._event_shape
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also define "
                f"a custom .expand() method."
            )
        return self.__new__(type(self))

    @property
    def batch_shape(self) -> Size:
        """The shape over which parameters differ."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample."""
        return self._event_shape

    if TYPE_CHECKING:
        # Subclasses have class attributes or properties of these names.
        arg_constraints: Any
        support: Any
    else:

        @property
        def arg_constraints(self) -> dict[str, constraints.Constraint]:
            """The region of each parameter, by name."""
            raise NotImplementedError(f"{type(self).__name__}.arg_constraints")

        @property
        def support(self) -> Any:
            """The region of the samples."""
            raise NotImplementedError(f"{type(self).__name__}.support")

    @property
    def mean(self) -> Tensor:
        """The mean, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError(f"{type(self).__name__}.mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError(f"{type(self).__name__}.variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        """Samples of shape ``sample_shape + batch_shape + event_shape``, without a gradient."""
        with fb.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        """Samples of shape ``sample_shape + batch_shape + event_shape`` that the parameters' gradients flow through."""
        raise NotImplementedError(f"{type(self).__name__}.rsample: its samples have no gradient; call sample()")

    def sample_n(self, n: int) -> Tensor:
        """`n` samples. Deprecated: call ``sample((n,))``."""
        warnings.warn("sample_n will be deprecated. Use .sample((n,)) instead", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The natural logarithm of the density, or of the probability, at `value`, of shape ``sample_shape + batch_shape``."""
        raise NotImplementedError(f"{type(self).__name__}.log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a sample at or below `value`."""
        raise NotImplementedError(f"{type(self).__name__}.cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The point that a sample is at or below with probability `value`."""
        raise NotImplementedError(f"{type(self).__name__}.icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every value that a sample may have, along a new first dimension.

        Args:
            expand: whether the result has the batch's shape behind the first dimension, or ones.
        """
        raise NotImplementedError(f"{type(self).__name__}.enumerate_support")

    def entropy(self) -> Tensor:
        """The entropy in nats, of shape `batch_shape`."""
        raise NotImplementedError(f"{type(self).__name__}.entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return fb.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = Size()) -> Size:  # noqa: B008 - an empty Size never changes
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        """Check the argument of `log_prob`, `cdf` or `icdf`.

        Raises: ValueError for what is no tensor, a shape that does not fit, or values outside the support.
        """
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        event_start = value.dim() - len(self._event_shape)
        if value.shape[max(event_start, 0) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for ours, theirs in zip(reversed(value.shape), reversed(expected), strict=False):
            if 1 not in (ours, theirs) and ours != theirs:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.size()} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution "
                f"with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in vars(self)]
        values = ", ".join(f"{name}: {_shown(vars(self)[name])}" for name in names)
        return f"{type(self).__name__}({values})"


def _shown(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return format(value) if value.numel() == 1 else value.size()
