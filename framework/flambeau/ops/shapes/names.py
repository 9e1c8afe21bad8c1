"""Names of dimensions: reading and giving them, and tensors that are aligned by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _names
from ..._names import Names
from ...tensor import Tensor
from .._spec import OPS


def set_names(tensor: Tensor, names: Names) -> Tensor:
    """`tensor` itself, whose dimensions are called `names` from here on; see `_named.set_names`."""
    from .. import _named  # which changes functions of the package, as every subclass that wants a say does

    return _named.set_names(tensor, names)


def renamed(tensor: Tensor, names: Names) -> Tensor:
    """A view of `tensor` whose dimensions are called `names`; see `_named.renamed`."""
    from .. import _named

    return _named.renamed(tensor, names)


def _names_of(self: Tensor) -> Names:
    """What each dimension is called, None for one without a name; assigning renames the tensor itself."""
    return _names.of(self) or (None,) * self._array.ndim


def _set_names_of(self: Tensor, names: Any) -> None:
    set_names(self, (None,) * self._array.ndim if names is None else _names.checked(names, self._array.ndim))


def has_names(self: Tensor) -> bool:
    """Whether a dimension has a name."""
    return _names.of(self) is not None


def rename(self: Tensor, *names: Any, **rename_map: Any) -> Tensor:
    """A view whose dimensions have other names.

    Args:
        names: one for each dimension, or None for one without; ``...`` stands for those that stay, and None alone drops all.
        rename_map: the new names by the old ones.
    Raises: RuntimeError for a name that is not there, is none, or would be there twice.

    >>> imgs = fb.zeros(2, 3, 5, 7, names=("N", "C", "H", "W"))
    >>> imgs.rename(N="batch", C="channels").names
    ('batch', 'channels', 'H', 'W')
    """
    return renamed(self, _names.renamed(self.names, names, rename_map, "rename"))


def rename_(self: Tensor, *names: Any, **rename_map: Any) -> Tensor:
    """`rename` of the tensor itself, which is returned."""
    return set_names(self, _names.renamed(self.names, names, rename_map, "rename_"))


def refine_names(self: Tensor, *names: Any) -> Tensor:
    """A view whose dimensions without names have those in `names`; those with names keep them.

    Args:
        names: one for each dimension; ``...`` stands for those that stay.
    Raises: RuntimeError where a name would change.

    >>> fb.zeros(2, 3, 5, 7, 11).refine_names("A", ..., "B", "C").names
    ('A', None, None, 'B', 'C')
    """
    own = self.names
    return renamed(self, _names.refined(own, _names.filled(_spread(names), own, "refine_names")))


def align_to(self: Tensor, *names: Any) -> Tensor:
    """A view with dimensions in the order of `names`, of size 1 for names that the tensor does not have.

    Args:
        names: all of the tensor's, and others; ``...`` stands for those of the tensor that are not mentioned.
    Raises: RuntimeError where a dimension has no name, or its name is not mentioned.

    >>> fb.zeros(2, 3, 5, names=("A", "B", "C")).align_to("C", ...).shape
    torch.Size([5, 2, 3])
    """
    return _aligned(self, _spread(names), "align_to")


def align_as(self: Tensor, other: Tensor) -> Tensor:
    """A view with dimensions in the order that they have in `other`, of size 1 for names that the tensor does not have.

    Raises: RuntimeError where a dimension has no name, or its name is not in `other`.

    >>> fb.zeros(3, names=("C",)).align_as(fb.zeros(2, 3, 5, names=("N", "C", "H"))).shape
    torch.Size([1, 3, 1])
    """
    if not isinstance(other, Tensor):
        raise TypeError(f"align_as(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
    return _aligned(self, other.names, "align_as")


def _spread(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """`names`, which may have been given as one sequence."""
    return tuple(names[0]) if len(names) == 1 and isinstance(names[0], (tuple, list)) else names


def _aligned(self: Tensor, names: Any, function: str) -> Tensor:
    own = self.names
    order = _names.aligned(own, names, function)
    made = OPS["permute"].function(renamed(self, (None,) * len(own)), [at for at in order.values() if at is not None])
    for place, at in enumerate(order.values()):
        if at is None:
            made = made.unsqueeze(place)
    return set_names(made, tuple(order))


_METHODS: tuple[Callable[..., Any], ...] = (has_names, rename, rename_, refine_names, align_to, align_as)
for _fn in _METHODS:
    _fn.__qualname__ = f"Tensor.{_fn.__name__}"
    setattr(Tensor, _fn.__name__, _names.names_by("by_itself")(_fn))
Tensor.names = property(_names_of, _set_names_of)  # type: ignore[assignment, misc]
