"""Pooling on numpy arrays: sums and maxima over windows of the last axes of ``(planes, *spatial)``.

A window is the product of its extents along each axis, so sums and maxima are taken one axis at a time, each
as a few shifted slices added or compared. Index arrays count positions of a plane in row-major order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels import engines

from ..conv import is_half
from ..reductions.reduce import Reduction, reduce
from ..shapes.move import contiguous
from ..tier import compiles

__all__ = [
    "DrawnRanges", "Ranges", "Window", "adaptive_mean", "adaptive_ranges", "adaptive_spread", "counts_along", "even_windows",
    "image_means", "max_at", "max_of_ranges", "max_values", "plane_means", "planned_adaptive_mean", "planned_maxima", "planned_means",
    "planned_ranges", "put_plane", "take_plane", "window_counts", "window_means", "window_spread", "window_sum",
]  # fmt: skip

# Bytes of input worked on at a time.
BLOCK_BYTES = 1 << 19
WIDE = 4                                              # elements along a row, up to which kernels of windows find their means
LONG = 8  # as many elements for each of the windows of a row, up to which kernels of windows find the largest ones


class Window(NamedTuple):
    """How windows move along one axis of `size`: element `t` of window `j` is at ``j * stride - padding + t * dilation``."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    count: int
    counted: tuple[int, int] | None = None              # kernel and padding to count by, where elements no window has inside are left out

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, padding: int, dilation: int, count: int) -> Window:
        """The window without the elements that lie in the padding, or beyond, wherever it stands: kernels walk through all others."""
        last = min(kernel, -(-(size + padding) // dilation))
        first = max(0, min(last - 1, (padding - (count - 1) * stride) // dilation))
        if last - first == kernel:
            return cls(size, kernel, stride, padding, dilation, count)
        return cls(size, last - first, stride, padding - first * dilation, dilation, count, (kernel, padding))

    def slices(self, t: int) -> tuple[slice, slice]:
        """Which windows have an element `t` inside the axis, and where those elements are."""
        shift = t * self.dilation - self.padding
        first = max(0, -(shift // self.stride)) if shift < 0 else 0
        last = min(self.count, (self.size - 1 - shift) // self.stride + 1)
        if last <= first:
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + shift
        return slice(first, last), slice(start, start + (last - first - 1) * self.stride + 1, self.stride)

    def starts(self) -> Any:
        """The first element of each window that is inside the axis."""
        at = np.arange(self.count) * self.stride - self.padding
        return np.where(at < 0, at + -(at // self.dilation) * self.dilation, at)

    def has_empty(self) -> bool:
        """Whether some window has no element inside the axis, which takes gaps that the axis fits into."""
        return self.dilation > 1 and self.padding > 0 and bool((self.starts() >= self.size).any())

    def ends(self) -> np.ndarray:
        """The first element of each window that is inside the axis and the one behind its last, ``(1, count, 2)``; without gaps."""
        at = np.arange(self.count, dtype=np.int64) * self.stride - self.padding
        return np.stack([np.maximum(at, 0), np.minimum(at + self.kernel, self.size)], 1)[None]

    def counts(self, include_padding: bool) -> Any:
        """Elements of each window, those in the padding counted or not; what lies beyond the padding never counts."""
        kernel, padding = self.counted or (self.kernel, self.padding)
        low = np.arange(self.count) * self.stride - padding
        high = np.minimum(low + kernel, self.size + padding)
        return high - low if include_padding else np.minimum(high, self.size) - np.maximum(low, 0)


def _wide(a: Any) -> Any:
    return a.astype(np.float32) if is_half(a.dtype) else a


def _blocks(x: Any) -> Any:
    step = max(1, BLOCK_BYTES // max(1, prod(x.shape[1:]) * x.itemsize))
    return (slice(i, min(i + step, len(x))) for i in range(0, len(x), step))


def _part_of_axis(ndim: int, axis: int, where: slice) -> Any:
    return (*(slice(None),) * axis, where, *(slice(None),) * (ndim - axis - 1))


def _along(x: Any, axis: int, window: Window, combine: Any, start: Any) -> Any:
    """Windows of one axis combined by a ufunc."""
    out = np.full((*x.shape[:axis], window.count, *x.shape[axis + 1 :]), start, x.dtype)
    for t in range(window.kernel):
        to, source = window.slices(t)
        part = out[_part_of_axis(x.ndim, axis, to)]
        combine(part, x[_part_of_axis(x.ndim, axis, source)], out=part)
    return out


def window_sum(x: Any, windows: tuple[Window, ...]) -> Any:
    """The sum of each window: ``(planes, *spatial) -> (planes, *counts)``."""
    out = np.empty((len(x), *(w.count for w in windows)), x.dtype)
    for part in _blocks(x):
        made = x[part]
        for axis, window in enumerate(windows, 1):
            made = _along(made, axis, window, np.add, 0)
        out[part] = made
    return out


def window_spread(grad: Any, windows: tuple[Window, ...]) -> Any:
    """The transpose of `window_sum`: each window's number added to all its elements."""
    out = np.empty((len(grad), *(w.size for w in windows)), grad.dtype)
    for part in _blocks(out):
        made = grad[part]
        for axis, window in reversed(list(enumerate(windows, 1))):
            spread = np.zeros((*made.shape[:axis], window.size, *made.shape[axis + 1 :]), grad.dtype)
            for t in range(window.kernel):
                source, to = window.slices(t)
                spread[_part_of_axis(made.ndim, axis, to)] += made[_part_of_axis(made.ndim, axis, source)]
            made = spread
        out[part] = made
    return out


def window_means(x: Any, windows: tuple[Window, ...], include_padding: bool, divisor: Any, transposed: bool) -> Any:
    """The sum of each window over `divisor`, or over the number of its elements, by the compiled kernel; None where it
    does not take `x`. `transposed`, the transpose of that."""
    if not transposed:
        run = planned_means(x, windows, include_padding, divisor, (len(x), *(w.count for w in windows)))
        return None if run is None else run(contiguous(x))
    ranges = _long_ranges(x, windows, include_padding, divisor)
    if _compiled(x, windows) is None and (ranges is None or x.dtype.char not in "fd"):
        return None
    return _planned_spread(len(x), x.dtype, windows, include_padding, divisor, ranges is not None)(contiguous(x))


@engines.kept(256)
def _planned_spread(
    planes: int, dtype: np.dtype, windows: tuple[Window, ...], include_padding: bool, divisor: Any, long: bool
) -> Any:
    from . import rows as pool_rows

    if long and dtype.char in "fd":
        return pool_rows.planned_range_spread(planes, dtype, tuple(w.size for w in windows), _ranges_of(windows))
    return pool_rows.planned_spread(planes, dtype, windows, counts_along(windows, include_padding, divisor))


def planned_means(x: Any, windows: tuple[Window, ...], include_padding: bool, divisor: Any, shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `window_means` with results of `shape`, for contiguous arrays of as many elements; or None."""
    ranges = _long_ranges(x, windows, include_padding, divisor)
    if ranges is not None:
        from . import rows as pool_rows

        if all(r == [(0, w.size)] for r, w in zip(ranges, windows, strict=True)):
            return pool_rows.planned_plane_means(x.reshape(len(x), -1), shape)
        return pool_rows.planned_range_means(x, ranges, shape)
    rows = _compiled(x, windows)
    return rows and rows.planned_means(x, windows, counts_along(windows, include_padding, divisor), shape)


def _long_ranges(x: Any, windows: tuple[Window, ...], include_padding: bool, divisor: Any) -> list[list[tuple[int, int]]] | None:
    """The ranges that `windows` over, or of the gradient, `x` are along each axis, where kernels of ranges find their means.

    Those of windows find many results beside each other, an element of each at a time, and keep a row on the stack.
    None for windows that are short, or have most elements in common, and for sums that are divided by other numbers.
    """
    if divisor is not None or type(x) is not np.ndarray or not x.size or not compiles():
        return None
    return _long_ranges_of(x.dtype, windows, include_padding) or None


@engines.kept(256)
def _long_ranges_of(dtype: np.dtype, windows: tuple[Window, ...], include_padding: bool) -> list[list[tuple[int, int]]]:
    """`_long_ranges` of planes or gradients of a `dtype`; an empty list for None."""
    from . import rows as pool_rows

    last = windows[-1]
    planes = np.empty((1, *(w.size for w in windows)), dtype)
    if last.kernel <= WIDE or not pool_rows.takes_ranges(planes, tuple(w.count for w in windows)):
        return []
    if any(w.dilation > 1 or w.kernel > 2 * w.stride for w in windows if w.count > 1):
        return []
    ranges = _ranges_of(windows)
    for w, along in zip(windows, ranges, strict=True):
        if any(high - low != n for (low, high), n in zip(along, w.counts(include_padding).tolist(), strict=True)):
            return []
    return ranges


def _ranges_of(windows: tuple[Window, ...]) -> list[list[tuple[int, int]]]:
    return [[(low, high) for low, high in w.ends()[0].tolist()] for w in windows]


def _compiled(x: Any, windows: tuple[Window, ...]) -> Any:
    """The compiled kernels, where they take `x`, or None."""
    if not compiles():
        return None
    from . import rows as pool_rows

    return pool_rows if pool_rows.takes(x, windows) else None


def counts_along(windows: Sequence[Any], include_padding: bool, divisor: Any) -> list[Any]:
    """What sums over windows, or over ranges, are divided by, along each axis."""
    if divisor is not None:
        return [np.ones(w.count) for w in windows[:-1]] + [np.full(windows[-1].count, float(divisor))]
    return [w.counts(include_padding) if isinstance(w, Window) else np.ptp(w.ends()[0], 1) for w in windows]


def plane_means(x: Any) -> Any:
    """The mean of each row of ``(planes, size)``; halves are summed in float32."""
    if x.size and compiles():
        from . import rows as pool_rows

        return pool_rows.plane_means(x)
    wide = _wide(x)
    return (wide @ np.full(wide.shape[1], 1 / wide.shape[1], wide.dtype)).astype(x.dtype, copy=False)


def image_means(x: Any) -> Any:
    """The mean of each plane of ``(N, C, *)``, ``(N, C)``: for channels that lie last in memory, where planes are columns."""
    return reduce(_MEAN, x, tuple(range(2, x.ndim)), False, np.dtype(np.float64), x.dtype)


def _average(total, count):
    return total / count


_MEAN = Reduction("image_means", "add", finish=_average)


def window_counts(windows: tuple[Window, ...], include_padding: bool) -> Any:
    """How many elements each window averages over, ``(*counts)``."""
    total: Any = np.ones((), np.int64)
    for window in windows:
        total = total[..., None] * window.counts(include_padding)
    return total


# -- maxima --------------------------------------------------------------------------------------------------


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind not in "iu" else np.iinfo(dtype).min


def max_values(x: Any, windows: tuple[Window, ...]) -> Any:
    """The maximum of each window; nan wins."""
    if _have_long_rows(x, windows):
        return max_of_ranges(x, windows)[0]
    rows = _compiled(x, windows)
    if rows is not None:
        return rows.max_values(x, windows)
    if is_half(x.dtype) and x.dtype.kind == "V":
        return max_values(_wide(x), windows).astype(x.dtype)
    out = np.empty((len(x), *(w.count for w in windows)), x.dtype)
    for part in _blocks(x):
        made = x[part]
        for axis, window in enumerate(windows, 1):
            made = _along(made, axis, window, np.maximum, _lowest(x.dtype))
        out[part] = made
    return out


def planned_maxima(x: Any, windows: tuple[Window, ...], shape: tuple[int, ...]) -> Any:
    """What does as `max_values`, and as `max_at`, with results of `shape`, for contiguous arrays of as many elements; or None."""
    if _have_long_rows(x, windows):
        run = planned_ranges(x, windows, shape)
        return (lambda a: run(a)[0]), run
    rows = None if any(w.has_empty() for w in windows) else _compiled(x, windows)
    return rows and (rows.planned_maxima(x, windows, shape), rows.planned_places(x, windows, shape))


def _have_long_rows(x: Any, windows: tuple[Window, ...]) -> bool:
    """Whether the kernel of ranges finds the largest elements: rows are too long for those of windows, or have few and long windows."""
    return compiles() and type(x) is np.ndarray and x.size > 0 and _ranges_find_largest(x.dtype, windows)


@engines.kept(256)
def _ranges_find_largest(dtype: np.dtype, windows: tuple[Window, ...]) -> bool:
    """`_have_long_rows` of planes of a `dtype`."""
    from . import rows as pool_rows

    planes = np.empty((1, *(w.size for w in windows)), dtype)
    if not pool_rows.takes_windows(planes, windows) or any(w.dilation > 1 or (w.ends()[..., 1] <= w.ends()[..., 0]).any() for w in windows):
        return False
    is_row = prod(w.kernel for w in windows[:-1]) == 1 and windows[-1].kernel > LONG * windows[-1].count
    return is_row or not pool_rows.takes(planes, windows)


def max_at(x: Any, windows: tuple[Window, ...]) -> tuple[Any, Any]:
    """The maximum of each window and its index in the plane: the first of equal ones; of several nan the
    last. A window without elements has -inf, and an index past its axis."""
    if _have_long_rows(x, windows):
        return max_of_ranges(x, windows)
    rows = None if any(w.has_empty() for w in windows) else _compiled(x, windows)
    if rows is not None:
        return rows.max_at(x, windows)
    if prod(w.kernel for w in windows) < 256:
        best = max_values(x, windows)
        at = _found(x, windows, best)
        if at is not None:
            return best, at
    wide = _wide(x)
    shape = (len(x), *(w.count for w in windows))
    best = np.full(shape, _lowest(wide.dtype), wide.dtype)
    first: Any = np.zeros((), np.int64)
    for window in windows:
        first = first[..., None] * window.size + window.starts()
    at = np.empty(shape, np.int64)
    at[...] = first
    for part in _blocks(wide):
        _scan(wide[part], windows, best[part], at[part])
    return best.astype(x.dtype, copy=False), at


def _found(x: Any, windows: tuple[Window, ...], best: Any) -> Any:
    """Indices of the elements equal to the maxima `best`; None where some are nan, which equal nothing.

    Offsets inside a window are numbered backwards in one byte, so that the first one is the largest.
    """
    offsets = list(product(*(range(w.kernel) for w in windows)))
    corner: Any = np.zeros((), np.int64)
    for w in windows:
        corner = corner[..., None] * w.size + (np.arange(w.count) * w.stride - w.padding)
    steps = [prod(w.size for w in windows[i + 1 :]) * w.dilation for i, w in enumerate(windows)]
    table = np.array([0, *(sum(o * s for o, s in zip(at, steps, strict=True)) for at in reversed(offsets))])
    out = np.empty(best.shape, np.int64)
    for part in _blocks(x):
        codes, source, target = np.zeros(best[part].shape, np.uint8), x[part], best[part]
        for number, offset in zip(range(len(offsets), 0, -1), offsets, strict=True):
            pairs = [w.slices(t) for w, t in zip(windows, offset, strict=True)]
            to = (slice(None), *(pair[0] for pair in pairs))
            equal = source[(slice(None), *(pair[1] for pair in pairs))] == target[to]
            code = equal.view(np.uint8)
            code *= np.uint8(number)
            np.maximum(codes[to], code, out=codes[to])
        if codes.size and not codes.min():
            return None
        np.add(table.take(codes), corner, out=out[part])
    return out


def _scan(x: Any, windows: tuple[Window, ...], best: Any, at: Any) -> None:
    """Walk every offset of the windows, keeping the best value so far and where it was."""
    with_nan = x.dtype.kind == "f" and bool(np.isnan(x).any())
    for offset in product(*(range(w.kernel) for w in windows)):
        pairs = [w.slices(t) for w, t in zip(windows, offset, strict=True)]
        to = (slice(None), *(a for a, _ in pairs))
        source = x[(slice(None), *(b for _, b in pairs))]
        better = source > best[to]
        if with_nan:
            better |= np.isnan(source)
        index: Any = np.zeros((), np.int64)
        for window, (_, b) in zip(windows, pairs, strict=True):
            index = index[..., None] * window.size + np.arange(window.size)[b]
        np.copyto(best[to], source, where=better)
        np.copyto(at[to], index, where=better)


class Ranges(NamedTuple):
    """The ``count`` ranges that divide an axis of `size`, in each of which an adaptive pool looks: range `j` is the elements from
    ``floor(j * size / count)`` up to ``ceil((j + 1) * size / count)``."""

    size: int
    count: int

    def ends(self) -> np.ndarray:
        """The first element of each and the one behind its last, ``(1, count, 2)``. Not to be written to."""
        return _ends_of(self)


@functools.lru_cache(1024)
def _ends_of(ranges: Ranges) -> np.ndarray:
    at = np.arange(ranges.count, dtype=np.int64)
    made = np.stack([at * ranges.size // max(ranges.count, 1), -(-(at + 1) * ranges.size // max(ranges.count, 1))], 1)[None]
    made.flags.writeable = False
    return made


class DrawnRanges(NamedTuple):
    """Ranges of `length` elements along an axis, whose starts ``(planes, count)`` were drawn for each plane."""

    starts: np.ndarray
    length: int

    @property
    def count(self) -> int:
        return self.starts.shape[1]

    def ends(self) -> np.ndarray:
        """The first element of each and the one behind its last, ``(planes, count, 2)``."""
        return np.stack([self.starts, self.starts + self.length], -1)


def planned_ranges(x: Any, windows: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `max_of_ranges` with results of `shape`, for contiguous arrays of as many elements as the planes `x`; or None."""
    if not compiles():
        return None
    from . import rows as pool_rows

    return pool_rows.planned_ranges(x, windows, shape) if pool_rows.takes_windows(x, windows) else None


def max_of_ranges(x: Any, windows: Sequence[Any]) -> tuple[Any, Any]:
    """As `max_at`, for windows that are the product of `Ranges`, or `DrawnRanges`, along each axis.

    Starts that were drawn for fewer planes than `x` has are those of its last ones, and of as many before them, and so on.
    """
    run = planned_ranges(x, windows, (len(x), *(w.count for w in windows)))
    if run is not None:
        return run(contiguous(x))
    ends = [w.ends() for w in windows]                # (drawn, count, 2)
    drawn = len(ends[0])
    if not len(x):
        shape = (0, *(w.count for w in windows))
        return np.empty(shape, x.dtype), np.empty(shape, np.int64)
    if drawn == 1:
        return _max_of_members(x, [_members(e[0]) for e in ends])
    pairs = [_max_of_members(x[plane::drawn], [_members(e[plane]) for e in ends]) for plane in range(drawn)]
    values, at = (np.stack(made, 1).reshape(len(x), *(w.count for w in windows)) for made in zip(*pairs, strict=True))
    return values, at


def _members(ends: np.ndarray) -> np.ndarray:
    """The elements of ranges ``(count, 2)``, ``(count, longest)``; short ones repeat their last."""
    longest = int((ends[:, 1] - ends[:, 0]).max(initial=1))
    return np.minimum(ends[:, :1] + np.arange(longest), ends[:, 1:] - 1)


def _max_of_members(x: Any, members: Sequence[np.ndarray]) -> tuple[Any, Any]:
    """The maximum of each window and its place: `members` lists the elements of each window along each axis."""
    n = len(members)
    key = tuple(
        m.reshape(*(1,) * (2 * a), *m.shape, *(1,) * (2 * (n - a - 1))) for a, m in enumerate(members)
    )
    sizes = x.shape[1:]
    order = [0, *(1 + 2 * a for a in range(n)), *(2 + 2 * a for a in range(n))]
    gathered = _wide(x)[(slice(None), *key)].transpose(order)
    depth = prod(m.shape[1] for m in members)
    rows = gathered.reshape(*gathered.shape[: n + 1], depth)
    at = rows.argmax(-1)
    nans = rows != rows
    if nans.any():
        at = np.where(nans.any(-1), depth - 1 - nans[..., ::-1].argmax(-1), at)
    flat: Any = np.zeros((1,) * (2 * n), np.int64)
    for size, part in zip(sizes, key, strict=True):
        flat = flat * size + part
    flat = flat.transpose([o - 1 for o in order[1:]]).reshape(*(m.shape[0] for m in members), depth)
    index = np.take_along_axis(np.broadcast_to(flat, rows.shape), at[..., None], -1)[..., 0]
    values = np.take_along_axis(rows, at[..., None], -1)[..., 0]
    return values.astype(x.dtype, copy=False), contiguous(index)


def put_plane(values: Any, at: Any, size: int, add: bool) -> Any:
    """Zeros ``(planes, size)`` with `values` at the indices `at`, both ``(planes, n)``; equal indices add
    up or overwrite. Indices outside the plane, as of windows without elements, are left out."""
    if add and values.size and (values.dtype.kind == "f" or is_half(values.dtype)) and compiles():
        from . import rows as pool_rows

        return pool_rows.put_plane(values, at, size)
    wide = _wide(values) if add else values
    out = np.zeros((len(values), size), wide.dtype)
    places, given = (at + (np.arange(len(at)) * size)[:, None]).reshape(-1), wide.reshape(-1)
    inside = ((at >= 0) & (at < size)).reshape(-1)
    if not inside.all():
        places, given = places[inside], given[inside]
    if add:
        np.add.at(out.reshape(-1), places, given)
    else:
        out.reshape(-1)[places] = given
    return out.astype(values.dtype, copy=False)


def take_plane(x: Any, at: Any) -> Any:
    """Elements `at` of each plane, 0 for those outside: ``(planes, size), (planes, n) -> (planes, n)``."""
    inside = (at >= 0) & (at < x.shape[1])
    if inside.all():
        return np.ascontiguousarray(np.take_along_axis(x, at, 1))
    return np.where(inside, np.take_along_axis(x, np.where(inside, at, 0), 1), x.dtype.type(0))


# -- adaptive ------------------------------------------------------------------------------------------------


def adaptive_ranges(size: int, count: int) -> list[tuple[int, int]]:
    """`count` ranges that cover an axis, as even as possible; neighbours share an element where they must."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def even_windows(extents: tuple[int, ...], counts: tuple[int, ...]) -> tuple[Window, ...] | None:
    """Windows that divide each axis into as many equal ranges, or None where they do not."""
    if not all(m and size % m == 0 for size, m in zip(extents, counts, strict=True)):
        return None
    return tuple(Window(size, size // m, size // m, 0, 1, m) for size, m in zip(extents, counts, strict=True))


def planned_adaptive_mean(x: Any, counts: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `plane_means` or `adaptive_mean` with results of `shape`, for contiguous arrays of as many elements; or None."""
    if not x.size or not compiles():
        return None
    from . import rows as pool_rows

    if prod(counts) == 1:
        return pool_rows.planned_plane_means(x.reshape(len(x), -1), shape)
    if not pool_rows.takes_ranges(x, counts):
        return None
    return pool_rows.planned_range_means(x, [adaptive_ranges(size, m) for size, m in zip(x.shape[1:], counts, strict=True)], shape)


def adaptive_mean(x: Any, counts: tuple[int, ...]) -> Any:
    """The mean over each of ``counts`` ranges along each axis."""
    run = planned_adaptive_mean(x, counts, (len(x), *counts))
    return _adaptive_mean(_wide(x), counts).astype(x.dtype, copy=False) if run is None else run(x)


def _adaptive_mean(x: Any, counts: tuple[int, ...]) -> Any:
    for axis, count in enumerate(counts, 1):
        size = x.shape[axis]
        if size == count:
            continue
        made = np.empty((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
        if count >= MANY_RANGES:
            _means_of_many(x, made, axis)
            x = made
            continue
        for i, (low, high) in enumerate(adaptive_ranges(size, count)):
            total = np.add.reduce(x[_part_of_axis(x.ndim, axis, slice(low, high))], axis=axis)
            made[_part_of_axis(x.ndim, axis, slice(i, i + 1))] = np.expand_dims(total / (high - low), axis)
        x = made
    return x


MANY_RANGES = 256  # along an axis, from which those of one length are found together


def _many_ranges(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Where `adaptive_ranges` begin, and how long they are."""
    at = np.arange(count)
    low = at * size // count
    return low, -(-(at + 1) * size // count) - low


def _means_of_many(x: Any, made: Any, axis: int) -> None:
    """The means of many ranges along `axis`, into `made`: of each length at once, added up as numpy adds up one range."""
    low, length = _many_ranges(x.shape[axis], made.shape[axis])
    for n in np.unique(length).tolist():
        of_length = np.flatnonzero(length == n)
        begin = low[of_length]
        if axis == x.ndim - 1:
            total = np.add.reduce(np.lib.stride_tricks.sliding_window_view(x, n, axis)[..., begin, :], -1)
        else:
            total = x.take(begin, axis)
            for i in range(1, n):
                total += x.take(begin + i, axis)
        np.moveaxis(made, axis, 0)[of_length] = np.moveaxis(total / n, axis, 0)


def adaptive_spread(grad: Any, sizes: tuple[int, ...]) -> Any:
    """The transpose of `adaptive_mean`."""
    if grad.dtype.char in "fd" and grad.size and compiles():
        run = _planned_adaptive_spread(len(grad), grad.dtype, tuple(sizes), grad.shape[1:])
        if run is not None:
            return run(contiguous(grad))
    for axis, size in enumerate(sizes, 1):
        count = grad.shape[axis]
        if size == count:
            continue
        made = np.zeros((*grad.shape[:axis], size, *grad.shape[axis + 1 :]), grad.dtype)
        if count >= MANY_RANGES:
            low, length = _many_ranges(size, count)
            source = np.repeat(np.arange(count), length)
            place = np.arange(len(source)) - np.repeat(np.cumsum(length) - length - low, length)
            parts = np.moveaxis(grad, axis, 0)
            shares = parts / length.astype(grad.dtype).reshape(-1, *[1] * (grad.ndim - 1))
            np.add.at(np.moveaxis(made, axis, 0), place, shares[source])
            grad = made
            continue
        for i, (low, high) in enumerate(adaptive_ranges(size, count)):
            made[_part_of_axis(grad.ndim, axis, slice(low, high))] += grad[_part_of_axis(grad.ndim, axis, slice(i, i + 1))] / (
                high - low
            )
        grad = made
    return grad


@engines.kept(256)
def _planned_adaptive_spread(planes: int, dtype: np.dtype, sizes: tuple[int, ...], counts: tuple[int, ...]) -> Any:
    """What does as `adaptive_spread`, compiled; None for planes that it does not take."""
    from . import rows as pool_rows

    if len(sizes) > 3 or len(sizes) > 1 and sizes[-1] > pool_rows.MOST:
        return None
    return pool_rows.planned_range_spread(planes, dtype, sizes, [adaptive_ranges(size, m) for size, m in zip(sizes, counts, strict=True)])
