"""Resampling of numpy arrays along single axes: each output element is a weighted sum of a few input elements.

An `AxisMap` says which and how much. Interpolation of an image is one map per axis; they are linear, and the
transpose of each is the way gradients go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels import engines

from ..conv import is_half
from ..shapes.move import contiguous
from ..tier import compiles

__all__ = ["AxisMap", "antialias_map", "apply_maps", "cubic_map", "linear_map", "maps_of_channels", "nearest_map", "planned_maps"]

# Up to this many entries a map of several taps is a matrix, and applying it a matrix product.
DENSE_LIMIT = 1 << 18
# Bytes of output worked on at a time.
BLOCK_BYTES = 1 << 20


class AxisMap:
    """``out[j] = sum over t of weights[t, j] * x[indices[t, j]]``; weights None stand for ones with a single tap.

    Args:
        size, count: elements of x, and of out.
        taps: ``taps() -> (indices, weights)``, asked when a kernel first runs; shapes are known without.
    """

    def __init__(self, size: int, count: int, taps: Callable[[], tuple[Any, Any]]) -> None:
        self.size = size
        self.count = count
        self._taps = taps
        self._tables: dict[Any, Any] = {}

    @functools.cached_property
    def _found(self) -> tuple[Any, Any]:
        return self._taps()

    @property
    def indices(self) -> Any:
        return self._found[0]

    @property
    def weights(self) -> Any:
        return self._found[1]

    def table(self, transposed: bool, kind: np.dtype) -> Any:
        """For the compiled kernel."""
        key = transposed, kind
        if key not in self._tables:
            from .resample_rows import table

            self._tables[key] = table(self.indices, self.weights, self.size, transposed, kind)
        return self._tables[key]

    def matrix(self, dtype: np.dtype) -> Any:
        """As a matrix ``(count, size)``."""
        made = np.zeros((self.count, self.size), dtype)
        rows = np.broadcast_to(np.arange(self.count), self.indices.shape)
        np.add.at(made, (rows, self.indices), 1 if self.weights is None else self.weights)
        return made

    def apply(self, x: Any, axis: int) -> Any:
        """Along `axis` of `x`."""
        if self.weights is None:
            return np.take(x, self.indices[0], axis)
        if axis == x.ndim - 1 and self.count * self.size <= DENSE_LIMIT:
            return x @ self.matrix(x.dtype).T
        weights = self.weights.astype(x.dtype)[(slice(None), slice(None), *(None,) * (x.ndim - axis - 1))]
        total = np.take(x, self.indices[0], axis) * weights[0]
        for t in range(1, len(self.indices)):
            total += np.take(x, self.indices[t], axis) * weights[t]
        return total

    def transpose(self, grad: Any, axis: int) -> Any:
        """The transpose along `axis`, which has `count` elements."""
        if axis == grad.ndim - 1 and self.count * self.size <= DENSE_LIMIT:
            return grad @ self.matrix(grad.dtype)
        total = np.zeros((self.size, *grad.shape[:axis], *grad.shape[axis + 1 :]), grad.dtype)
        moved = np.moveaxis(grad, axis, 0)
        for t, indices in enumerate(self.indices):
            part = (
                moved
                if self.weights is None
                else moved * self.weights[t].astype(grad.dtype).reshape(-1, *(1,) * (grad.ndim - 1))
            )
            _add_rows(total, indices, part)
        return np.moveaxis(total, 0, axis)


def _add_rows(total: Any, indices: Any, part: Any) -> None:
    """``total[indices[j]] += part[j]``; in ascending order of `indices`, equal ones next to each other."""
    if not len(indices):
        return
    if (np.diff(indices) < 0).any():
        np.add.at(total, indices, part)
        return
    starts = np.flatnonzero(np.diff(indices, prepend=indices[0] - 1))
    total[indices[starts]] += np.add.reduceat(part, starts, axis=0)


def apply_maps(x: Any, maps: tuple[AxisMap, ...], transposed: bool) -> Any:
    """One map for each of the last axes of ``(planes, *spatial)``; halves are computed on in float32, uint8 in fixed point."""
    kind = x.dtype
    out_sizes = tuple(m.size if transposed else m.count for m in maps)
    if not len(x):                                    # tables of no use may be long
        return np.empty((0, *out_sizes), kind)
    only_copies = _only_copies(maps, transposed)
    if kind == np.uint8 and not only_copies:
        return _in_fixed_point(x, maps)
    wide = np.dtype(np.float32) if is_half(kind) else kind
    run = planned_maps(x, maps, transposed, (len(x), *out_sizes))
    if run is not None:
        return run(contiguous(x))
    out = np.empty((len(x), *out_sizes), kind)
    per_plane = max(1, int(np.prod(out_sizes)) * wide.itemsize)
    step = max(1, BLOCK_BYTES // per_plane)
    # Shrinking axes first leaves less to do for the others.
    order = sorted(range(1, x.ndim), key=lambda axis: (out_sizes[axis - 1] / max(x.shape[axis], 1), -axis))
    for start in range(0, len(x), step):
        made = x[start : start + step] if only_copies else x[start : start + step].astype(wide, copy=False)
        for axis in order:
            made = maps[axis - 1].transpose(made, axis) if transposed else maps[axis - 1].apply(made, axis)
        out[start : start + step] = made
    return out


def maps_of_channels(x: Any, maps: tuple[AxisMap, ...], transposed: bool) -> Any:
    """As `apply_maps` of ``(N, C, *spatial)`` whose channels lie last in memory, and then those of the result do; None for other arrays."""
    from . import resample_channels_last

    if not x.size:                                    # the maps may be longer than memory is
        return None
    copies = _only_copies(maps, transposed)
    if not resample_channels_last.pays(x, len(maps), copies) or 0 in (m.size if transposed else m.count for m in maps):
        return None
    return _planned_of_channels(x.shape, x.dtype, tuple(maps), transposed, copies)(x)


@engines.kept(64)
def _planned_of_channels(shape: tuple[int, ...], dtype: np.dtype, maps: tuple[AxisMap, ...], transposed: bool, copies: bool) -> Any:
    from . import resample_channels_last

    wide = np.dtype(np.float32) if is_half(dtype) else dtype
    return resample_channels_last.planned(shape, dtype, [m.table(transposed, wide) for m in maps], copies)


def _only_copies(maps: tuple[AxisMap, ...], transposed: bool) -> bool:
    """Whether every result is one element."""
    return not transposed and all(m.weights is None for m in maps)


def planned_maps(x: Any, maps: tuple[AxisMap, ...], transposed: bool, shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `apply_maps` with results of `shape`, for contiguous arrays of as many elements; None where none is compiled."""
    if not x.size or not compiles():
        return None
    from . import resample_rows

    if not resample_rows.takes(x, shape[-len(maps) :]):
        return None
    return _planned(len(x), x.dtype, tuple(maps), transposed, shape)


@engines.kept(64)
def _planned(planes: int, dtype: np.dtype, maps: tuple[AxisMap, ...], transposed: bool, shape: tuple[int, ...]) -> Any:
    from . import resample_rows

    wide = np.dtype(np.float32) if is_half(dtype) else dtype
    return resample_rows.planned(planes, dtype, [m.table(transposed, wide) for m in maps], shape)


def _in_fixed_point(x: Any, maps: tuple[AxisMap, ...]) -> Any:
    """Images of bytes: weights become 16-bit fractions, and each pass, the last axis first, rounds to a byte."""
    for axis in range(x.ndim - 1, 0, -1):
        indices, weights = maps[axis - 1].indices, maps[axis - 1].weights
        bits = _fraction_bits(float(np.abs(weights).max(initial=0)))
        scaled = weights.astype(np.float64) * (1 << bits)
        integers = np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int32)
        total = np.full((*x.shape[:axis], maps[axis - 1].count, *x.shape[axis + 1 :]), 1 << (bits - 1), np.int32)
        for at, w in zip(indices, integers, strict=True):
            total += np.take(x, at, axis).astype(np.int32) * w.reshape(-1, *(1,) * (x.ndim - axis - 1))
        x = np.clip(total >> bits, 0, 255).astype(np.uint8)
    return x


def _fraction_bits(largest: float) -> int:
    """The most bits after the point, up to 22, with which a weight still fits 16 bits."""
    for bits in range(22):
        if int(0.5 + largest * (1 << (bits + 1))) >= 1 << 15:
            return bits
    return 22


# -- the maps ------------------------------------------------------------------------------------------------


def _source(count: int, scale: Any, align_corners: bool, half: Any) -> Any:
    """Where output elements lie on the input axis."""
    at = np.arange(count).astype(half.dtype)
    return at * scale if align_corners else (at + half) * scale - half


def nearest_map(size: int, count: int, scale: float, exact: bool, kind: Any) -> AxisMap:
    """The element at ``floor(j * scale)``, or, `exact`, the one whose centre is nearest."""

    def taps() -> tuple[Any, Any]:
        at = np.arange(count).astype(kind)
        source = (at + kind(0.5)) * kind(scale) if exact else at * kind(scale)
        return np.clip(np.floor(source).astype(np.int64), 0, max(size - 1, 0))[None], None

    return AxisMap(size, count, taps)


def linear_map(size: int, count: int, scale: float, align_corners: bool, kind: Any) -> AxisMap:
    """The two neighbours, weighted by distance; outside the outermost centres the outermost element."""

    def taps() -> tuple[Any, Any]:
        source = np.maximum(_source(count, kind(scale), align_corners, kind(0.5)), 0)
        low = np.minimum(source.astype(np.int64), size - 1)
        high = np.minimum(low + 1, size - 1)
        part = np.clip(source - low.astype(kind), 0, 1)
        return np.stack([low, high]), np.stack([1 - part, part])

    return AxisMap(size, count, taps)


def _cubic(x: Any, a: float) -> Any:
    """Keys' kernel. Source: Keys 1981, "Cubic Convolution Interpolation for Digital Image Processing"."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def cubic_map(size: int, count: int, scale: float, align_corners: bool, kind: Any) -> AxisMap:
    """Four neighbours by Keys' kernel with a = -0.75; beyond the ends the end element counts again."""

    def taps() -> tuple[Any, Any]:
        source = _source(count, kind(scale), align_corners, kind(0.5))
        low = np.floor(source)
        part = source - low
        around = np.arange(-1, 3)[:, None]
        indices = np.clip(low.astype(np.int64) + around, 0, size - 1)
        return indices, _cubic(part - around.astype(kind), -0.75).astype(kind)

    return AxisMap(size, count, taps)


def antialias_map(size: int, count: int, scale: float, cubic: bool, kind: Any) -> AxisMap:
    """As linear or cubic (with a = -0.5), but when shrinking the kernel is as wide as what one output element covers."""
    return AxisMap(size, count, lambda: _antialias_taps(size, count, scale, cubic, kind))


def _antialias_taps(size: int, count: int, scale: float, cubic: bool, kind: Any) -> tuple[Any, Any]:
    reach = 2.0 if cubic else 1.0
    support = reach * scale if scale >= 1 else reach
    inverse = 1 / scale if scale >= 1 else 1.0
    rows = []
    for j in range(count):
        centre = scale * (j + 0.5)
        low = max(int(centre - support + 0.5), 0)
        high = min(int(centre + support + 0.5), size)
        x = (np.arange(low, high) - centre + 0.5) * inverse
        weights = _cubic(x, -0.5) if cubic else np.maximum(1 - np.abs(x), 0)
        total = weights.sum()
        rows.append((low, weights / total if total else weights))
    longest = max((len(w) for _, w in rows), default=1)
    indices, weights = np.zeros((longest, count), np.int64), np.zeros((longest, count), kind)
    for j, (low, w) in enumerate(rows):
        indices[:, j] = np.minimum(low + np.arange(longest), size - 1)
        weights[: len(w), j] = w
    return indices, weights
