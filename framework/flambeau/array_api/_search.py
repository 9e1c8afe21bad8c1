"""Sorting, searching, sets and indexing of the array API standard."""

from __future__ import annotations

from typing import NamedTuple

import flambeau as fb
from flambeau import Tensor

from ._types import together

__all__ = [
    "argsort", "nonzero", "searchsorted", "sort", "take", "take_along_axis", "unique_all", "unique_counts", "unique_inverse",
    "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """`x` in order along `axis`."""
    return fb.sort(x, dim=axis, descending=descending, stable=stable)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Positions that put `x` in order along `axis`; with `stable` equal elements keep theirs."""
    return fb.argsort(x, dim=axis, descending=descending, stable=stable)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Positions of the elements that are not zero: a tensor for each dimension. Raises: ValueError for a tensor of none."""
    if x.ndim == 0:
        raise ValueError("nonzero: a tensor of no dimension has no positions; use x != 0")
    return tuple(fb.nonzero(x, as_tuple=True))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where elements of `x2` belong in `x1`, which is in order or put so by `sorter`; before or, with "right", after equal ones."""
    first, second = together("searchsorted", x1, x2)
    return fb.searchsorted(first, second, side=side, sorter=sorter)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Elements, or slices along `axis`, at `indices`; negative ones count from the end.

    Raises: ValueError without `axis` for a tensor of several dimensions.
    """
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: axis is needed for a tensor of {x.ndim} dimensions")
        axis = 0
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"take: axis {axis} is out of range for a tensor of {x.ndim} dimensions")
    return x[(slice(None),) * (axis % x.ndim) + (indices,)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements at `indices` along `axis`, each line by its own; both broadcast in the other dimensions."""
    long = indices.to(fb.int64)
    return fb.take_along_dim(x, fb.where(long < 0, long + x.shape[axis], long), axis)


def _uniques(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distinct values, the first position of each, which one each element is, and how often they are; a nan is like no other."""
    flat = x.reshape(-1)
    count = flat.shape[0]
    positions = fb.arange(count, device=x.device)
    order = positions
    # Equal elements come to lie side by side, the first one first. Complex numbers are in order of their parts.
    for key in (flat.imag, flat.real) if flat.dtype.is_complex else (flat,):
        order = order[fb.argsort(key[order], stable=True)]
    lined = flat[order]
    is_first = fb.ones(count, dtype=fb.bool, device=x.device)
    if count:
        is_first[1:] = lined[1:] != lined[:-1]
    which = fb.cumsum(is_first, 0) - 1
    inverse = fb.empty_like(positions)
    inverse[order] = which
    starts = fb.nonzero(is_first)[:, 0]
    ends = fb.cat([starts[1:], fb.tensor([count], device=x.device)]) if count else starts
    return lined[starts], order[starts], inverse.reshape(x.shape), ends - starts


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values in order, the first position of each in C order, which one each element is, and how often they are."""
    return UniqueAll(*_uniques(x))


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values in order, and how often they are."""
    values, _, _, counts = _uniques(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values in order, and which one each element is."""
    values, _, inverse, _ = _uniques(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values in order; every nan is one."""
    return _uniques(x)[0]
