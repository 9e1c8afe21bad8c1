"""Picking and putting elements of arrays by index.

Repeated places are handled in the row-major order of the index, one after the other (very long lines in four parts), so the
same call gives the same bits every time. Half types are added and multiplied in float32 and rounded once.

Larger work runs compiled, by `index` and `accumulate`; numpy does the rest.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from ... import hot_calls
from ...takeover import KERNEL, Waiting
from ..reductions.softmax import narrow, widen
from ..tier import compiles

__all__ = [
    "add_at", "add_at_pairs", "combine_along", "combine_by_numpy", "combine_slices", "combined_along", "combined_by_numpy",
    "combined_slices", "corner", "dim_of_slices", "key_along", "key_of_slices", "fill_masked", "fill_masked_into", "gather", "gather_rows",
    "has_negative", "identity_of", "in_range", "masked", "nonzero", "pick", "places", "put", "put_along", "put_along_into",
    "put_masked", "put_masked_into", "reduce_at", "reduce_along", "reduce_rows", "repeated_vector", "sum_along_into",
    "sum_rows_into", "summed_along", "take_rows",
]  # fmt: skip

_UFUNCS = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
_INT64, _BOOL, _ALL = np.dtype(np.int64), np.dtype(np.bool_), slice(None)
_NATIVE = frozenset("bBhHiIlLqQfdFD")                # dtypes that ufuncs add up in, one element after the other
_LITTLE = sys.byteorder == "little"
_CACHED = 4096
COMPILED_TO = 1 << 15                                # elements of a row of an index that chunks have whole
COMPILED_FROM = 1024                                 # elements; numpy's index machinery answers sooner for fewer
MOST_BY_NUMPY = 2048  # elements, up to which that and no checks before are sooner than a kernel after checks
_SUMMED = "bBhHilfd"                                 # kinds of elements the compiled sums and extremes are for
_COMBINED = _SUMMED + "eE"                           # and those for which values are combined in float32


def _pays(count: int) -> bool:
    return count >= COMPILED_FROM and compiles()


_few_halves, _few_pairs = Waiting(KERNEL), Waiting(KERNEL)


def _combines(dtype: np.dtype, count: int) -> bool:
    """Whether a kernel combines `count` elements of `dtype`; numpy's functions are slow with halves, of which it takes few as well."""
    if dtype.char in _SUMMED:
        return _pays(count)
    if not _is_half(dtype):
        return False
    return (count >= COMPILED_FROM or bool(_few_halves.paid_for(4))) and compiles()


def _is_half(dtype: np.dtype) -> bool:
    return dtype.itemsize == 2 and dtype.kind in "fV"


def in_range(index: np.ndarray, low: int, high: int) -> bool:
    """Whether all of `index` (integers, not empty) lies in ``[low, high)``."""
    if index.flags.c_contiguous and index.dtype.char in "il" and _pays(index.size):
        from .index import within

        return within(index, low, high)
    return bool(index.min() >= low and index.max() < high)


def has_negative(index: np.ndarray) -> bool:
    """Whether a plan has to leave the int64 `index` to the checks: some element is negative, or it has none."""
    if index.size <= COMPILED_FROM and _LITTLE:
        # The sign of each element is in its last byte; to look at these is quicker than a reduction.
        return not (index.size and index.tobytes()[7::8].isascii())
    return not index.size or np.minimum.reduce(index, None) < 0


def _grid(shape: tuple[int, ...], dim: int) -> tuple[Any, ...]:
    """For each dimension the positions along it, shaped to broadcast to `shape`; None at `dim`."""
    n = len(shape)
    return tuple(
        None if d == dim else np.arange(size).reshape((1,) * d + (size,) + (1,) * (n - d - 1)) for d, size in enumerate(shape)
    )


_cached_grid = lru_cache(maxsize=512)(_grid)


def along(index: np.ndarray, dim: int) -> tuple[Any, ...]:
    """The numpy index of the elements that ``gather`` along `dim` reads."""
    shape = index.shape
    grid = _cached_grid(shape, dim) if index.size < _CACHED else _grid(shape, dim)
    return (*grid[:dim], index, *grid[dim + 1 :])


def key_along(shape: tuple[int, ...], dim: int, index: np.ndarray, most: int = MOST_BY_NUMPY) -> tuple[Any, ...] | None:
    """`along` of an int64 `index` for an array of `shape`, without further checks but that of numpy; None for others.

    None if there are more than `most` places, or none, a negative one, or more than the array has in another dimension.
    """
    own = index.shape
    if len(own) != len(shape) or index.dtype is not _INT64 or index.size > most or has_negative(index):
        return None
    if own != shape and any(n > m and d != dim for d, (n, m) in enumerate(zip(own, shape, strict=True))):
        return None
    if len(own) == 1:
        return (index,)
    grid = _cached_grid(own, dim)
    return (*grid[:dim], index, *grid[dim + 1 :])


def repeated_vector(index: np.ndarray, dim: int, shape: tuple[int, ...]) -> np.ndarray | None:
    """The int64 vector that `index`, as `expand` leaves it, repeats in all dimensions of `shape` but `dim`; None for others.

    What `gather` and `scatter` do by such an index is done by whole slices of an array of `shape`.
    """
    own = index.shape
    if len(own) < 2 or len(own) != len(shape) or index.dtype is not _INT64 or not index.size:
        return None
    for d, step in enumerate(index.strides):
        if d != dim and (own[d] != shape[d] or step and own[d] > 1):
            return None
    return np.ascontiguousarray(index[(0,) * dim + (_ALL,) + (0,) * (len(own) - 1 - dim)])


def key_of_slices(shape: tuple[int, ...], dim: int, index: np.ndarray, source: tuple[int, ...] | None = None) -> tuple[Any, ...] | None:
    """The key of the slices at the int64 vector `index` along `dim`, without further checks but that of numpy; None for others.

    None if there are many places, or none, or slices of the shape `source` do not fit them.
    """
    if index.ndim != 1 or index.dtype is not _INT64 or not 0 < index.size <= MOST_BY_NUMPY:
        return None
    if source is not None and source != (*shape[:dim], index.size, *shape[dim + 1 :]):
        return None
    return (*(_ALL,) * dim, index)


def corner(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The part of `values` that has `shape`; one without dimensions is a vector of one. Raises: ValueError if they are smaller."""
    if values.shape == shape:
        return values
    if not values.ndim and len(shape) == 1:
        values = values.reshape(1)
    made = values[tuple([slice(0, n) for n in shape])]
    if made.shape != shape:
        raise ValueError(f"values of shape {values.shape} have no corner of shape {shape}")
    return made


def combine_by_numpy(a: np.ndarray, key: tuple[Any, ...], values: Any, reduce: str) -> bool:
    """Combine `values`, one after the other, into the elements of `a` at `key`, if numpy has a loop for the dtype of both."""
    if a.dtype.char not in _NATIVE or values.dtype is not a.dtype or values.size > MOST_BY_NUMPY:
        return False
    _UFUNCS[reduce].at(a, key, values)
    return True


def combined_by_numpy(a: np.ndarray, key: tuple[Any, ...], values: Any, reduce: str, include_self: bool) -> np.ndarray | None:
    """A copy of `a` with `values` combined into its elements at `key`, as by `reduce_along`; None where `combine_by_numpy` refuses."""
    if values.size > MOST_BY_NUMPY or a.dtype.char not in _NATIVE or values.dtype is not a.dtype:
        return None
    made = a.copy()
    if not include_self:
        made[key] = identity_of(reduce, a.dtype)
    if not combine_by_numpy(made, key, values, reduce):
        return None
    if reduce == "mean":
        count = np.zeros(a.shape, np.int64)
        np.add.at(count, key, 1)
        _average(made, count, include_self)
    return made


def combine_along(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str) -> bool:
    """Combine `values` into the elements of `a` that `gather` along `dim` reads at `index`, if compiled kernels do it in one go.

    False, and nothing done, for other layouts and dtypes, and for an index out of range.

    Args:
        how: 'put', 'sum', 'prod', 'amax' or 'amin'.
    """
    own, shape = index.shape, a.shape
    if a.dtype is not values.dtype or own != values.shape or own[:dim] != shape[:dim] or own[dim + 1 :] != shape[dim + 1 :]:
        return False
    if not index.size or index.dtype.char not in "il" or (a.itemsize > 8 if how == "put" else a.dtype.char not in _COMBINED):
        return False
    if not (a.flags.carray and index.flags.c_contiguous and values.flags.c_contiguous):
        return False
    if np.may_share_memory(a, index) or np.may_share_memory(a, values):
        return False
    if not (_pays(index.size) if how == "put" else _combines(a.dtype, index.size)):
        return False
    from .index import within

    if not within(index, 0, shape[dim]):
        return False
    if how != "put" and _is_half(a.dtype):
        from .combine_halves import combine_elements

        return combine_elements(a, dim, index, values, how)
    from .accumulate import scatter_unsplit

    scatter_unsplit(a, dim, index, values, how)
    return True


def combine_slices(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str, negative: bool = False) -> bool:
    """Combine slices into those of `a` at the vector `index` along `dim`, if a compiled kernel does it; False, and nothing done, else.

    Args:
        values: as many slices as `index` has places, of the dtype of `a`; or one element, which all of them are made of.
        how: as for `combine_along`.
        negative: whether places below zero count from the end.
    """
    if index.ndim != 1 or index.dtype.char not in "il" or not a.ndim or a.dtype is not values.dtype:
        return False
    if not index.size or not a.size:
        return False
    if values.size != 1 and values.shape != (*a.shape[:dim], index.size, *a.shape[dim + 1 :]):
        return False
    if a.itemsize > 8 if how == "put" else a.dtype.char not in _COMBINED:
        return False
    if not a.flags.carray or np.may_share_memory(a, index) or np.may_share_memory(a, values):
        return False
    n = a.shape[dim]
    count = a.size // n * index.size
    if not (_pays(count) if how == "put" else _combines(a.dtype, count)):
        return False
    from .index import within

    index = np.ascontiguousarray(index)
    if not within(index, -n if negative else 0, n):
        return False
    if how != "put" and _is_half(a.dtype):
        from .combine_halves import combine_slices as combine_halves

        return combine_halves(a, dim, index, np.ascontiguousarray(values), how)
    from .accumulate import scatter_slices

    scatter_slices(a, dim, index, np.ascontiguousarray(values), how)
    return True


def combined_slices(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, reduce: str, include_self: bool) -> np.ndarray | None:
    """A copy of `a` with slices combined into it, as by `reduce_rows`; None where `combine_slices` refuses."""
    if a.dtype.char not in _COMBINED or not a.ndim or not _combines(a.dtype, values.size):
        return None
    if reduce == "mean" and _is_half(a.dtype):
        return None                                   # whose sums are divided before they are rounded
    made = np.array(a, order="C")
    if not include_self and not combine_slices(made, dim, index, np.full(1, identity_of(reduce, a.dtype), a.dtype), "put"):
        return None
    if not combine_slices(made, dim, index, values, "sum" if reduce == "mean" else reduce):
        return None
    if reduce == "mean":
        count = np.bincount(index, minlength=a.shape[dim]) + include_self
        total = np.maximum(count, 1).reshape((-1,) + (1,) * (a.ndim - 1 - dim))
        made = np.divide(made, total.astype(a.dtype), made) if a.dtype.kind == "f" else (made // total).astype(a.dtype)
    return made


def combined_along(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, reduce: str, include_self: bool) -> np.ndarray | None:
    """A copy of `a` with `values` combined into it, as by `reduce_along`; None where `combine_along` refuses."""
    if index.dtype is not _INT64 or index.ndim != a.ndim or not _combines(a.dtype, index.size):
        return None
    if reduce == "mean" and _is_half(a.dtype):
        return None                                   # whose sums are divided before they are rounded
    index, values = np.ascontiguousarray(index), np.ascontiguousarray(values)
    made = np.array(a, order="C")
    if not include_self and not combine_along(made, dim, index, np.full(index.shape, identity_of(reduce, a.dtype), a.dtype), "put"):
        return None
    if not combine_along(made, dim, index, values, "sum" if reduce == "mean" else reduce):
        return None
    if reduce == "mean":
        count = np.zeros(a.shape, np.int64)
        combine_along(count, dim, index, np.ones(index.shape, np.int64), "sum")
        _average(made, count, include_self)
    return made


def summed_along(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, mean: bool, include_self: bool) -> np.ndarray | None:
    """`combined_along` of sums and means by native launchers; None where they refuse."""
    made = a.copy()
    put, add, shape, vector = hot_calls.put_along, hot_calls.add_along, index.shape, repeated_vector(index, dim, a.shape)
    if vector is not None:
        put, add, index = hot_calls.put_slices, hot_calls.add_slices, vector
    if not include_self and put(made, dim, index, np.zeros(shape, a.dtype)) is None:
        return None
    if add(made, dim, index, values) is None:
        return None
    if mean:
        count = np.zeros(a.shape, np.int64)
        if add(count, dim, index, np.ones(shape, np.int64)) is None:
            return None
        _average(made, count, include_self)
    return made


def places(shape: tuple[int, ...], index: np.ndarray, dim: int) -> np.ndarray:
    """Positions in a flat row-major array of `shape` of the elements ``gather`` along `dim` reads, one-dimensional."""
    step = 1
    made: Any = 0
    for d in range(len(shape) - 1, -1, -1):
        if d == dim:
            made = made + (index if step == 1 else index * step)
        elif index.shape[d] > 1:
            made = made + (np.arange(index.shape[d]) * step).reshape((index.shape[d],) + (1,) * (len(shape) - d - 1))
        step *= shape[d]
    return np.broadcast_to(made, index.shape).reshape(-1)


def gather(a: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    """``out[i][j] = a[index[i][j]][j]`` for `dim` 0, and so on; `index` may be smaller than `a` elsewhere."""
    if a.ndim == 0:
        return np.broadcast_to(a, index.shape).copy()
    if index.ndim == 0:
        return a[index.reshape(1)].reshape(())
    if a.itemsize <= 8 and _pays(index.size):
        from .index import gather as compiled

        index = np.ascontiguousarray(index)
        made = gather_rows(a, index) if dim == a.ndim - 1 else None
        return compiled(a, dim, index) if made is None else made
    if index.size < _CACHED or not a.flags.c_contiguous:
        return np.ascontiguousarray(a[along(index, dim)])
    return a.reshape(-1).take(places(a.shape, index, dim)).reshape(index.shape)


def gather_rows(a: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    """`gather` along the last dimension, where it pays to look at `index` once: None elsewhere, and where it is out of range."""
    shape = index.shape
    if not (a.itemsize <= 8 and a.size and a.flags.c_contiguous and index.flags.c_contiguous and 0 < shape[-1] <= COMPILED_TO):
        return None
    if shape[:-1] != a.shape[:-1] or index.dtype.char not in "il" or not _pays(index.size):
        return None
    from .picks import gather_rows as compiled

    return compiled(a, index)


def take_rows(a: np.ndarray, dim: int, index: np.ndarray, negative: bool = True) -> np.ndarray | None:
    """The slices of `a` at the vector `index` along `dim`; None if an element of it is out of range.

    Args:
        negative: whether those below zero count from the end.
    """
    made = hot_calls.pick_slices(a, dim, index)
    if made is not None:
        return made
    n = a.shape[dim]
    if a.flags.c_contiguous and a.size and _pays(a.size // n * index.size):
        from .picks import take

        return take(a, dim, np.ascontiguousarray(index), negative)
    return a.take(index, dim) if not index.size or in_range(index, -n if negative else 0, n) else None


def pick(a: np.ndarray, key: Any) -> np.ndarray:
    """``a[key]`` in C order, for a tuple of index arrays, masks and slices. Raises: IndexError as numpy does."""
    first = key[0] if key else None
    made = _pick_one(a, key)
    if made is not None:
        return made
    if type(first) is np.ndarray and a.itemsize <= 8 and a.ndim and a.size >= COMPILED_FROM and compiles():
        if first.dtype.char == "?":
            if len(key) == 1 and first.shape == a.shape:
                return masked(a, first)
        elif len(key) == 1 and _is_plain(first) and a.flags.c_contiguous and a.size // a.shape[0] * first.size >= COMPILED_FROM:
            from .picks import take

            made = take(a, 0, first.reshape(-1), True)
            if made is not None:
                return made.reshape(first.shape + a.shape[1:])
        elif len(key) == 2 == a.ndim and _are_pairs(a, first, key[1]):
            from .index import pick_pairs

            return pick_pairs(a, first.reshape(-1), key[1].reshape(-1)).reshape(first.shape)
    at = dim_of_slices(key, a.ndim)
    if at is not None:
        made = take_rows(a, at, key[-1].reshape(-1))
        if made is not None:
            return made.reshape(a.shape[:at] + key[-1].shape + a.shape[at + 1 :])
    return np.ascontiguousarray(a[key])


def dim_of_slices(key: Any, ndim: int) -> int | None:
    """The dimension that a key of slices of all, or an Ellipsis, and behind them one index array takes slices along; None for others."""
    if len(key) < 2 or key[-1].__class__ is not np.ndarray or key[-1].dtype.char not in "il" or not key[-1].ndim:
        return None
    if len(key) == 2 and key[0] is Ellipsis:
        return ndim - 1 if ndim else None
    return len(key) - 1 if len(key) <= ndim and all(k.__class__ is slice and k == _ALL for k in key[:-1]) else None


def _pick_one(a: np.ndarray, key: Any) -> np.ndarray | None:
    """`pick` in few calls, by one index or mask along the first, second or last dimension, or two of a matrix; None for other keys."""
    if len(key) == 1:
        index, dim = key[0], 0
    elif len(key) == 2:
        if key[0].__class__ is np.ndarray:
            return hot_calls.pick_pairs(a, key[0], key[1])
        index, dim = key[1], -1 if key[0] is Ellipsis else 1
        if dim == 1 and key[0] != _ALL:
            return None
    else:
        return None
    if index.__class__ is not np.ndarray or a.ndim <= dim or not index.ndim:
        return None
    if index.dtype is _INT64:
        made = hot_calls.pick_slices(a, dim, index)
        if made is not None:
            return made
        return a.take(index, dim) if 0 < index.size * (a.size // (a.shape[dim] or 1)) < COMPILED_FROM else None
    if index.dtype is _BOOL and index.ndim == 1 < a.ndim and index.shape[0] == a.shape[dim] and a.size < COMPILED_FROM:
        return a.compress(index, dim)
    return None


def _are_pairs(a: np.ndarray, rows: np.ndarray, columns: Any) -> bool:
    same = type(columns) is np.ndarray and rows.shape == columns.shape and rows.size >= COMPILED_FROM
    return same and _picks(rows, a.shape[0]) and _picks(columns, a.shape[1])


def _picks(index: np.ndarray, n: int) -> bool:
    """Whether `index` is one for compiled kernels, and in range."""
    return _is_plain(index) and in_range(index, -n, n)


def _is_plain(index: np.ndarray) -> bool:
    return index.dtype.char == "l" and index.size > 0 and index.flags.c_contiguous


def masked(a: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The elements of `a` where `mask`, of its shape, holds, in row-major order."""
    if a.itemsize <= 8 and a.flags.c_contiguous and mask.flags.c_contiguous and _pays(a.size):
        from .index import compress

        return compress(a, mask)
    return a[mask]


def fill_masked(a: np.ndarray, mask: np.ndarray, value: Any) -> np.ndarray:
    """`a` with the scalar `value` where `mask`, of its shape, holds."""
    if a.itemsize <= 8 and a.flags.c_contiguous and mask.flags.c_contiguous and _pays(a.size):
        from .index import fill_masked as compiled

        return compiled(a, mask, value)
    made = np.array(a)
    np.copyto(made, value, where=mask)
    return made


def fill_masked_into(a: np.ndarray, mask: np.ndarray, value: Any) -> None:
    """`fill_masked` in place; `value` is a scalar of the dtype of `a`."""
    if a.itemsize <= 8 and a.flags.c_contiguous and mask.flags.c_contiguous and _pays(a.size):
        from .index import fill_masked_into as compiled

        compiled(a, mask, value)
    else:
        np.copyto(a, value, where=mask)


def put_masked(a: np.ndarray, mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`a` with elements of the vector `values`, in order, where `mask`, of its shape, holds; there are enough of them."""
    if a.itemsize <= 8 and _pays(a.size):
        from .index import expand

        return expand(np.ascontiguousarray(a), np.ascontiguousarray(mask), np.ascontiguousarray(values))
    made = np.array(a, order="C")
    made[mask] = values[: np.count_nonzero(mask)]
    return made


def put_masked_into(a: np.ndarray, mask: np.ndarray, values: np.ndarray) -> bool:
    """`put_masked` in place, if compiled kernels do it and there are enough values, of one dtype with `a` and some."""
    if a.itemsize > 8 or not (_pays(a.size) and a.flags.carray and mask.flags.c_contiguous and values.flags.c_contiguous):
        return False
    if np.may_share_memory(a, values) or np.may_share_memory(a, mask):
        return False
    from .index import expand_into

    return expand_into(a, mask, values)


def nonzero(a: np.ndarray) -> np.ndarray:
    """Where `a` is not zero, in row-major order: ``(ndim, count)``."""
    if a.ndim and _pays(a.size):
        from .index import nonzero as compiled

        return compiled(np.ascontiguousarray(a if a.dtype.char == "?" else a != 0))
    places = np.nonzero(a if a.dtype.isbuiltin == 1 else a != 0) if a.ndim else ()
    made = np.empty((len(places), len(places[0]) if places else int(bool(a != 0))), np.int64)
    for d, along in enumerate(places):
        made[d] = along
    return made


def put(a: np.ndarray, key: Any, values: Any) -> np.ndarray:
    """A copy of `a` with `values` stored at `key`; of repeated places the last stays."""
    made = np.array(a, order="C")
    made[key] = values
    return made


def put_along(a: np.ndarray, dim: int, index: np.ndarray, values: Any) -> np.ndarray:
    """A copy of `a` where the elements `gather` reads at `index` are replaced by `values`."""
    made = np.array(a, order="C")
    put_along_into(made, dim, index, values)
    return made


def put_along_into(made: np.ndarray, dim: int, index: np.ndarray, values: Any) -> None:
    """Replace the elements of `made` that `gather` reads at `index`, which is in range, by `values`."""
    target = made.reshape(1) if made.ndim == 0 else made
    if index.ndim == 0:
        index = index.reshape(1)
    if isinstance(values, np.ndarray) and values.ndim:
        values = values[tuple(slice(0, n) for n in index.shape)]
    if not _scattered(target, dim, index, values, "put"):
        target[along(index, dim)] = values


def sum_along_into(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray) -> bool:
    """Add `values` to the elements of `made` that `gather` reads at `index`, if that can be done in place."""
    if not made.ndim or made.ndim != index.ndim:
        return False
    if values.ndim:
        values = values[tuple(slice(0, n) for n in index.shape)]
    return _scattered(made, dim, index, values, "sum")


def _scattered(target: np.ndarray, dim: int, index: np.ndarray, values: Any, how: str) -> bool:
    """Whether a compiled kernel took the work, which is done then."""
    if not _pays(index.size) or target.itemsize > 8 or index.dtype.char not in "il":
        return False
    if how != "put" and target.dtype.char not in _SUMMED:
        return False
    from .accumulate import scatter

    # A number, or values that broadcast, take the full shape first.
    full = np.ascontiguousarray(np.broadcast_to(np.asarray(values, target.dtype), index.shape))
    return scatter(target, dim, np.ascontiguousarray(index), full, how)


def add_at_pairs(a: np.ndarray, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> bool:
    """Add `values` to the elements ``[rows, columns]`` of a matrix, places below zero counted from the end, if kernels do it."""
    if a.ndim != 2 or not rows.size or not (rows.shape == columns.shape == values.shape) or not a.flags.c_contiguous:
        return False
    if rows.dtype is not _INT64 or columns.dtype is not _INT64 or not (rows.flags.c_contiguous and columns.flags.c_contiguous):
        return False
    # Numpy's functions take ten times as long with halves.
    if not (rows.size >= COMPILED_FROM or _few_pairs.paid_for(10 if _is_half(a.dtype) else 1)) or not compiles():
        return False
    from .index import number_pairs

    at = number_pairs(a.shape, rows, columns)
    if at is None:
        return False
    flat, at, values = a.reshape(-1), at.reshape(-1), values.reshape(-1)
    return hot_calls.add_along(flat, 0, at, values) is not None or combine_along(flat, 0, at, values, "sum")


def add_at(flat: np.ndarray, at: np.ndarray, values: Any) -> None:
    """``flat[at] += values`` for one-dimensional arrays, counting repeated places."""
    if _scattered(flat, 0, at, values, "sum"):
        return
    if flat.dtype.isbuiltin == 1 and flat.dtype.char != "e":
        np.add.at(flat, at, values)
    else:
        wide = widen(flat)
        np.add.at(wide, at, widen(np.asarray(values)))
        flat[...] = narrow(wide, flat.dtype)


def identity_of(reduce: str, dtype: np.dtype) -> Any:
    """The value that changes nothing under `reduce`."""
    if reduce in ("sum", "mean"):
        return dtype.type(0)
    if reduce == "prod":
        return dtype.type(1)
    top = reduce == "amin"
    if dtype.kind == "f" or dtype.isbuiltin != 1:
        return dtype.type(np.inf if top else -np.inf)
    if dtype.kind == "b":
        return dtype.type(top)
    return np.iinfo(dtype).max if top else np.iinfo(dtype).min


def reduce_at(a: np.ndarray, at: np.ndarray, values: np.ndarray, reduce: str, include_self: bool) -> np.ndarray:
    """A copy of `a` whose elements at the flat positions `at` are combined with `values`; arguments as `reduce_along`."""
    return reduce_along(a.reshape(-1), 0, at, values, reduce, include_self).reshape(a.shape)


def reduce_along(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, reduce: str, include_self: bool) -> np.ndarray:
    """A copy of `a` whose elements that `gather` along `dim` reads at `index` are combined with `values`.

    Args:
        reduce: 'sum', 'prod', 'mean', 'amax' or 'amin'.
        include_self: whether the value in `a` takes part where something is put.
    """
    made = np.array(widen(a), order="C").reshape(a.shape or (1,))
    index = index.reshape(index.shape or (1,))
    values = widen(values)
    if values.ndim:
        values = values[tuple(slice(0, n) for n in index.shape)]
    if not include_self:
        made = put_along(made, dim, index, identity_of(reduce, made.dtype))
    _combine(made, dim, index, values, reduce)
    if reduce == "mean":
        count = np.zeros(made.shape, np.int64)
        _combine(count, dim, index, np.ones((), np.int64), "sum")
        _average(made, count, include_self)
    return narrow(made, a.dtype).reshape(a.shape)


def _average(made: np.ndarray, count: np.ndarray, include_self: bool) -> None:
    """Divide the sums `made` by how many there are of each, where there are any."""
    if made.dtype.char in "fd" and made.flags.c_contiguous and _pays(made.size):
        from .accumulate import average

        average(made, count, int(include_self))
        return
    total = np.maximum(count + include_self, 1)
    made[...] = made // total if made.dtype.kind in "iu" else made / total


def _combine(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, reduce: str) -> None:
    if _scattered(made, dim, index, values, "sum" if reduce == "mean" else reduce):
        return
    _UFUNCS[reduce].at(made.reshape(-1), places(made.shape, index, dim), np.broadcast_to(values, index.shape).reshape(-1))


def reduce_rows(a: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray, reduce: str, include_self: bool) -> np.ndarray:
    """A copy of `a` whose slices at the vector `index` along `dim` are combined with those of `source`."""
    if reduce == "sum" and include_self:
        made = np.array(widen(a), order="C")
        if sum_rows_into(made, dim, index, widen(source)):
            return narrow(made, a.dtype)
    made = combined_slices(a, dim, index.reshape(-1), source, reduce, include_self)
    if made is not None:
        return made
    at = np.broadcast_to(index.reshape((-1,) + (1,) * (max(a.ndim, 1) - 1 - dim)), source.shape or (1,))
    return reduce_along(a, dim, at, source, reduce, include_self)


def sum_rows_into(a: np.ndarray, dim: int, index: np.ndarray, source: np.ndarray) -> bool:
    """Add the slices of `source` to those of `a` at `index` along `dim`, if that can be done in place."""
    if a.size == a.shape[dim] if a.ndim else False:
        return combine_along(a.reshape(-1), 0, index.reshape(-1), source.reshape(-1), "sum")
    if dim:
        return combine_slices(a, dim, index.reshape(-1), source, "sum")
    if a.dtype.char not in _SUMMED or not a.flags.c_contiguous or not a.ndim or not _pays(source.size):
        return False
    from .accumulate import add_rows

    add_rows(a.reshape(a.shape[0], -1), np.ascontiguousarray(index.reshape(-1)), np.ascontiguousarray(source), False)
    return True
