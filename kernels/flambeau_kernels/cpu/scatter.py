"""Picking and putting elements of arrays by index.

Repeated places are handled in the row-major order of the index, one after the other, so the same call gives the same bits
every time. Half types are added and multiplied in float32 and rounded once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .softmax import widen

__all__ = ["add_at", "gather", "identity_of", "places", "put", "put_along", "reduce_at", "reduce_along", "take_rows"]

_ATS = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
_CACHED = 4096


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
    if index.size < _CACHED or not a.flags.c_contiguous:
        return np.ascontiguousarray(a[along(index, dim)])
    return a.reshape(-1).take(places(a.shape, index, dim)).reshape(index.shape)


def take_rows(a: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    """The slices of `a` at the one-dimensional `index` along `dim`."""
    return a.take(index, dim)


def put(a: np.ndarray, key: Any, values: Any) -> np.ndarray:
    """A copy of `a` with `values` stored at `key`; of repeated places the last stays."""
    made = np.array(a, order="C")
    made[key] = values
    return made


def put_along(a: np.ndarray, dim: int, index: np.ndarray, values: Any) -> np.ndarray:
    """A copy of `a` where the elements `gather` reads at `index` are replaced by `values`."""
    made = np.array(a, order="C")
    target = made.reshape(1) if made.ndim == 0 else made
    if index.ndim == 0:
        index = index.reshape(1)
    if isinstance(values, np.ndarray) and values.ndim:
        values = values[tuple(slice(0, n) for n in index.shape)]
    target[along(index, dim)] = values
    return made


def add_at(flat: np.ndarray, at: np.ndarray, values: Any) -> None:
    """``flat[at] += values`` for one-dimensional arrays, counting repeated places."""
    if flat.dtype.isbuiltin == 1 and flat.dtype.char != "e":
        np.add.at(flat, at, values)
    else:
        wide = widen(flat)
        np.add.at(wide, at, widen(np.asarray(values)))
        flat[...] = wide.astype(flat.dtype)


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
    """A copy of `a` whose elements at the flat positions `at` are combined with `values`.

    Args:
        reduce: 'sum', 'prod', 'mean', 'amax' or 'amin'.
        include_self: whether the value in `a` takes part where something is put.
    """
    flat = np.array(widen(a), order="C").reshape(-1)
    values = widen(values)
    if not include_self:
        flat[at] = identity_of(reduce, flat.dtype)
    _ATS[reduce].at(flat, at, values)
    if reduce == "mean":
        count = np.zeros(flat.shape, np.int64)
        np.add.at(count, at, 1)
        hit = count > 0
        total = count[hit] + include_self
        flat[hit] = flat[hit] // total if flat.dtype.kind in "iu" else flat[hit] / total
    return flat.astype(a.dtype, copy=False).reshape(a.shape)


def reduce_along(a: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, reduce: str, include_self: bool) -> np.ndarray:
    """`reduce_at` at the elements `gather` along `dim` reads at `index`."""
    if index.ndim == 0:
        index = index.reshape(1)
    if values.ndim:
        values = values[tuple(slice(0, n) for n in index.shape)]
    at = places(a.shape or (1,), index, dim)
    return reduce_at(a, at, np.broadcast_to(values, index.shape).reshape(-1), reduce, include_self)
