"""Pooling of images whose channels lie last in memory: vectors along channels, and results in the same order of memory.

A window is the product of the elements that it has along each of three axes. Sums go over the columns of a window, and then along the
row of their sums, as in `rows.py`, so that a layout does not change results. Gradients of means are gathered: an element adds up
the shares that the windows around it give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    int32,
    int64,
    kernel,
    lanes,
    load,
    local,
    rolled,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.vocabulary import maximum, where

from ..conv.depthwise_rows import lane_count
from ..shapes.order import is_last, place_of_row
from ..tier import compiles
from . import DrawnRanges, Window, counts_along

CHUNK = 1 << 15                                       # elements
CHUNKS = 8  # that gradients are put in place by, at least, where there are channels for them
FEW = 8  # columns that are added up in their own kind
COLUMNS = 4  # of longer windows of float64, that are added up before their sums are
TOGETHER = 4  # vectors of channels whose windows are walked together
# Slots of the geometry: channels; rows of results, of a chunk; counts along three axes, sizes, and steps from one element of a
# window to the next.
CHANNELS, ROWS, PER_CHUNK, DEPTH, HEIGHT, WIDTH, SIZE_Z, SIZE_Y, SIZE_X, STEP_Z, STEP_Y, STEP_X = range(12)


def is_of_channels(x: Any, n: int) -> bool:
    """Whether ``(N, C, *spatial)``, of `n` spatial dimensions, has its channels last in memory, and they fill a vector."""
    if x.__class__ is not np.ndarray or x.ndim != n + 2 or not x.size or not compiles():
        return False
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    return floating and x.shape[1] >= lane_count(_kind(x.dtype)) and prod(x.shape[2:]) < 1 << 31 and is_last(x)


def pays(x: Any, axes: Sequence[Any]) -> bool:
    """Whether the kernels here pool `x`, over the windows or ranges along `axes`."""
    return is_of_channels(x, len(axes)) and axes[0].__class__ is not DrawnRanges and _have_elements(tuple(axes))


@engines.kept(256)
def _have_elements(axes: tuple[Any, ...]) -> bool:
    """Whether there are windows along every axis, and all have elements inside it."""
    return all(axis.count and bool((_taps(axis)[0] @ (-1, 1) > 0).all()) for axis in axes)


def _kind(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def column_sums(base, x, low_z, past_z, low_y, past_y, geometry, COUNT, KIND):
    """The sums of column `x` of a window, of COUNT vectors of channels."""
    N = lanes(KIND)
    channels = geometry[CHANNELS]
    made = local(vector(KIND, N), COUNT)
    for B in unroll(range(COUNT)):
        made[B] = broadcast(KIND(0), N)
    for z in rolled(range(low_z, past_z, geometry[STEP_Z])):
        for y in rolled(range(low_y, past_y, geometry[STEP_Y])):
            line = base + ((z * geometry[SIZE_Y] + y) * geometry[SIZE_X] + x) * channels
            for B in unroll(range(COUNT)):
                made[B] = made[B] + load(line, B * N, N)
    return made


def window_sums(base, to, over, low_z, past_z, low_y, past_y, low_x, past_x, geometry, COUNT, KIND, LONG):
    """The sums of a window over `over`, of COUNT vectors of channels."""
    N = lanes(KIND)
    by = geometry[STEP_X]
    if LONG:
        # Columns of float32 are added up in float64, those of float64 a few at a time.
        SOME = 1 if KIND.bits == 32 else COLUMNS
        total = local(vector(float64, N), COUNT)
        for B in unroll(range(COUNT)):
            total[B] = broadcast(float64(0), N)
        for begin in rolled(range(low_x, past_x, SOME * by)):
            some = local(vector(KIND, N), COUNT)
            for B in unroll(range(COUNT)):
                some[B] = broadcast(KIND(0), N)
            for x in rolled(range(begin, min(begin + SOME * by, past_x), by)):
                column = column_sums(base, x, low_z, past_z, low_y, past_y, geometry, COUNT, KIND)
                for B in unroll(range(COUNT)):
                    some[B] = some[B] + column[B]
            for B in unroll(range(COUNT)):
                total[B] = total[B] + vector(float64, N)(some[B])
        for B in unroll(range(COUNT)):
            store(to, B * N, vector(KIND, N)(total[B] / broadcast(float64(over), N)))
    else:
        acc = local(vector(KIND, N), COUNT)
        for B in unroll(range(COUNT)):
            acc[B] = broadcast(KIND(0), N)
        for x in rolled(range(low_x, past_x, by)):
            column = column_sums(base, x, low_z, past_z, low_y, past_y, geometry, COUNT, KIND)
            for B in unroll(range(COUNT)):
                acc[B] = acc[B] + column[B]
        for B in unroll(range(COUNT)):
            store(to, B * N, acc[B] / broadcast(over, N))


@kernel(in_vectors=True)
def channel_means(chunk, source, out, taps_z, taps_y, taps_x, over_z, over_y, over_x, geometry, *, LONG):
    """Sums over the product of the `over`s. `taps`: the first element of each window of an axis, and where its elements end."""
    KIND = widened(over_x)
    N = lanes(KIND)
    channels, width = geometry[CHANNELS], geometry[WIDTH]
    begin = chunk * geometry[PER_CHUNK]
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        image, k, h = place_of_row(row, geometry[DEPTH], geometry[HEIGHT])
        base = source + image * geometry[SIZE_Z] * geometry[SIZE_Y] * geometry[SIZE_X] * channels
        low_z, past_z, low_y, past_y = taps_z[2 * k], taps_z[2 * k + 1], taps_y[2 * h], taps_y[2 * h + 1]
        for j in rolled(range(width)):
            to = out + (row * width + j) * channels
            low_x, past_x = taps_x[2 * j], taps_x[2 * j + 1]
            over = over_z[k] * over_y[h] * over_x[j]
            c = 0
            while c + TOGETHER * N <= channels:
                window_sums(base + c, to + c, over, low_z, past_z, low_y, past_y, low_x, past_x, geometry, TOGETHER, KIND, LONG)
                c += TOGETHER * N
            while c < channels:
                # The last vector lies at the end, over channels that are made twice.
                at = min(c, channels - N)
                window_sums(base + at, to + at, over, low_z, past_z, low_y, past_y, low_x, past_x, geometry, 1, KIND, LONG)
                c += N


def window_maxima(base, to, places, low_z, past_z, low_y, past_y, low_x, past_x, geometry, COUNT, KIND, PLACES):
    """The largest elements of a window, of COUNT vectors of channels, and if PLACES the first place of each; of several nan the last."""
    N = lanes(KIND)
    channels = geometry[CHANNELS]
    best, numbers = local(vector(KIND, N), COUNT), local(vector(int32, N), COUNT)
    beginning = (low_z * geometry[SIZE_Y] + low_y) * geometry[SIZE_X] + low_x
    for B in unroll(range(COUNT)):
        best[B] = broadcast(KIND(-float("inf")), N)
        numbers[B] = broadcast(int32(beginning), N)
    for z in rolled(range(low_z, past_z, geometry[STEP_Z])):
        for y in rolled(range(low_y, past_y, geometry[STEP_Y])):
            line = (z * geometry[SIZE_Y] + y) * geometry[SIZE_X]
            for x in rolled(range(low_x, past_x, geometry[STEP_X])):
                at = base + (line + x) * channels
                for B in unroll(range(COUNT)):
                    v = load(at, B * N, N)
                    if PLACES:
                        wins = (v > best[B]) | (v != v)
                        best[B] = where(wins, v, best[B])
                        numbers[B] = where(wins, broadcast(int32(line + x), N), numbers[B])
                    else:
                        best[B] = maximum(best[B], v)
    for B in unroll(range(COUNT)):
        store(to, B * N, best[B])
        if PLACES:
            store(places, B * N, vector(int64, N)(numbers[B]))


@kernel(in_vectors=True)
def channel_maxima(chunk, source, out, places, taps_z, taps_y, taps_x, sample, geometry, *, PLACES):
    """Maxima, and if PLACES where they are in their plane. For `taps` see `channel_means`."""
    KIND = widened(sample)
    N = lanes(KIND)
    channels, width = geometry[CHANNELS], geometry[WIDTH]
    begin = chunk * geometry[PER_CHUNK]
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        image, k, h = place_of_row(row, geometry[DEPTH], geometry[HEIGHT])
        base = source + image * geometry[SIZE_Z] * geometry[SIZE_Y] * geometry[SIZE_X] * channels
        low_z, past_z, low_y, past_y = taps_z[2 * k], taps_z[2 * k + 1], taps_y[2 * h], taps_y[2 * h + 1]
        for j in rolled(range(width)):
            first = (row * width + j) * channels
            low_x, past_x = taps_x[2 * j], taps_x[2 * j + 1]
            c = 0
            while c + TOGETHER * N <= channels:
                to, at = out + (first + c), places + (first + c if PLACES else 0)
                window_maxima(base + c, to, at, low_z, past_z, low_y, past_y, low_x, past_x, geometry, TOGETHER, KIND, PLACES)
                c += TOGETHER * N
            while c < channels:
                d = min(c, channels - N)
                to, at = out + (first + d), places + (first + d if PLACES else 0)
                window_maxima(base + d, to, at, low_z, past_z, low_y, past_y, low_x, past_x, geometry, 1, KIND, PLACES)
                c += N


def gathered(image, to, starts_z, which_z, starts_y, which_y, starts_x, which_x, over_z, over_y, over_x, z, y, x, geometry, COUNT, KIND):
    """The shares that one element gets of the windows around it, of COUNT vectors of channels."""
    N = lanes(KIND)
    channels = geometry[CHANNELS]
    total, row = local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT)
    for B in unroll(range(COUNT)):
        total[B] = broadcast(KIND(0), N)
    for a in rolled(range(starts_z[z], starts_z[z + 1])):
        for b in rolled(range(starts_y[y], starts_y[y + 1])):
            k, h = which_z[a], which_y[b]
            over = over_z[k] * over_y[h]
            for B in unroll(range(COUNT)):
                row[B] = broadcast(KIND(0), N)
            for c in rolled(range(starts_x[x], starts_x[x + 1])):
                j = which_x[c]
                line = image + ((k * geometry[HEIGHT] + h) * geometry[WIDTH] + j) * channels
                for B in unroll(range(COUNT)):
                    row[B] = row[B] + load(line, B * N, N) / broadcast(over * over_x[j], N)
            for B in unroll(range(COUNT)):
                total[B] = total[B] + row[B]
    for B in unroll(range(COUNT)):
        store(to, B * N, total[B])


@kernel(in_vectors=True)
def spread_channels(chunk, grad, out, starts_z, which_z, starts_y, which_y, starts_x, which_x, over_z, over_y, over_x, geometry):
    """The transpose of `channel_means`. `which`: the windows that each element of an axis is in, those of one from where `starts` says."""
    KIND = widened(over_x)
    N = lanes(KIND)
    channels, width = geometry[CHANNELS], geometry[SIZE_X]
    begin = chunk * geometry[PER_CHUNK]
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        number, z, y = place_of_row(row, geometry[SIZE_Z], geometry[SIZE_Y])
        image = grad + number * geometry[DEPTH] * geometry[HEIGHT] * geometry[WIDTH] * channels
        for x in rolled(range(width)):
            to = out + (row * width + x) * channels
            c = 0
            while c + TOGETHER * N <= channels:
                gathered(image + c, to + c, starts_z, which_z, starts_y, which_y, starts_x, which_x, over_z, over_y, over_x,
                         z, y, x, geometry, TOGETHER, KIND)  # fmt: skip
                c += TOGETHER * N
            while c < channels:
                at = min(c, channels - N)
                gathered(image + at, to + at, starts_z, which_z, starts_y, which_y, starts_x, which_x, over_z, over_y, over_x,
                         z, y, x, geometry, 1, KIND)  # fmt: skip
                c += N


@kernel
def put_channels(chunk, values, places, sums, out, channels, count, size, blocks, per_block, *, ROUNDS):
    """Zeros with `values` added at `places` of their planes, in their order, of a block of channels of an image.

    Places outside are nobody's. Halves are added up in `sums`, from which they are rounded to `out` if ROUNDS.
    """
    KIND = widened(sums)
    LANES = lanes(KIND)
    image = chunk // blocks
    low = (chunk - image * blocks) * per_block
    n = min(per_block, channels - low)
    to = sums + (image * size * channels + low)
    line, at = values + (image * count * channels + low), places + (image * count * channels + low)
    for i in range(size):
        for c in range(0, n, LANES):
            store(to + i * channels, c, broadcast(KIND(0), LANES), n - c)
    for i in range(count):
        for c in range(n):
            place = at[i * channels + c]
            if (place >= 0) & (place < size):
                cell = place * channels + c
                to[cell] = to[cell] + line[i * channels + c]
    if ROUNDS:
        rounded = out + (image * size * channels + low)
        for i in range(size):
            for c in range(n):
                rounded[i * channels + c] = to[i * channels + c]


def _taps(axis: Any) -> tuple[np.ndarray, int]:
    """The first element of each window inside its axis and where its elements end, ``(count, 2)``, and the step between them."""
    if not isinstance(axis, Window):
        return axis.ends()[0], 1
    low, step = np.asarray(axis.starts(), np.int64), axis.dilation
    last = np.minimum(np.arange(axis.count) * axis.stride - axis.padding + (axis.kernel - 1) * step, axis.size - 1)
    return np.stack([low, last + 1], 1), step


class _Axes:
    """Windows or ranges along each axis as the kernels take them, for images of a `shape`, and how their rows are cut."""

    def __init__(self, shape: tuple[int, ...], axes: tuple[Any, ...], sizes: tuple[int, ...], spreads: bool) -> None:
        taps = [(np.array([[0, 1]], np.int64), 1)] * (3 - len(axes)) + [_taps(axis) for axis in axes]
        self.taps = [np.ascontiguousarray(each) for each, _ in taps]
        counts, sizes = [len(each) for each in self.taps], (1,) * (3 - len(axes)) + sizes
        longest = [int(-(-(each[:, 1] - each[:, 0]) // step).max()) for each, step in taps]
        images, channels = shape[:2]
        along = sizes if spreads else counts          # what there are rows of
        rows = images * along[0] * along[1]
        per_chunk = max(1, CHUNK // (counts[2] * channels * prod(longest)))
        self.chunks, self.is_long = -(-rows // per_chunk), longest[2] > FEW
        self.geometry = np.array([channels, rows, per_chunk, *counts, *sizes, *(step for _, step in taps)])

    def windows_of_elements(self, axis: int, backwards: bool) -> tuple[np.ndarray, np.ndarray]:
        """The windows that each element of an axis is in, and where those of each begin."""
        size, step, taps = int(self.geometry[SIZE_Z + axis]), int(self.geometry[STEP_Z + axis]), self.taps[axis]
        pairs = [(at, j) for j, (low, past) in enumerate(taps.tolist()) for at in range(low, past, step)]
        pairs.sort(key=lambda pair: (pair[0], -pair[1] if backwards else pair[1]))
        elements = np.array([at for at, _ in pairs], np.int64)
        return np.searchsorted(elements, np.arange(size + 1)), np.array([j for _, j in pairs], np.int64)


def _empty(shape: tuple[int, ...], sizes: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Memory for results ``(N, *sizes, C)`` of images of a `shape`."""
    return np.empty((shape[0], *sizes, shape[1]), dtype)


def _in_order(made: np.ndarray) -> np.ndarray:
    """``(N, *sizes, C)`` as ``(N, C, *sizes)``."""
    return made.transpose(0, made.ndim - 1, *range(1, made.ndim - 1))


def _divisors_by_dimension(axes: tuple[Any, ...], include_padding: bool, divisor: Any, kind: np.dtype) -> list[np.ndarray]:
    return [np.ones(1, kind)] * (3 - len(axes)) + [np.asarray(each, kind) for each in counts_along(axes, include_padding, divisor)]


def means(x: Any, axes: tuple[Any, ...], include_padding: bool, divisor: Any) -> np.ndarray:
    """The sum of each window of ``(N, C, *spatial)`` over `divisor`, or over the number of its elements."""
    return _planned_means(x.shape, x.dtype, axes, include_padding, divisor)(x)


@engines.kept(256)
def _planned_means(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[Any, ...], include_padding: bool, divisor: Any) -> Any:
    cut = _Axes(shape, axes, shape[2:], False)
    tables = [*cut.taps, *_divisors_by_dimension(axes, include_padding, divisor, _kind(dtype)), cut.geometry]
    counts = [axis.count for axis in axes]
    form = channel_means.form((dtype, dtype, *(table.dtype for table in tables)), {"LONG": cut.is_long})

    def run(x: Any) -> np.ndarray:
        out = _empty(shape, counts, dtype)
        form(cut.chunks, False, x, out, *tables)
        return _in_order(out)

    return run


def spread(grad: Any, axes: tuple[Any, ...], sizes: tuple[int, ...], include_padding: bool, divisor: Any) -> np.ndarray:
    """The transpose of `means` of images of `sizes`."""
    return _planned_spread(grad.shape, grad.dtype, axes, sizes, include_padding, divisor)(grad)


@engines.kept(256)
def _planned_spread(
    shape: tuple[int, ...], dtype: np.dtype, axes: tuple[Any, ...], sizes: tuple[int, ...], include_padding: bool, divisor: Any
) -> Any:
    cut = _Axes(shape, axes, sizes, True)
    backwards = isinstance(axes[-1], Window)          # as `spread_rows` adds up the windows along a row
    tables = [table for axis in range(3) for table in cut.windows_of_elements(axis, backwards and axis == 2)]
    tables += [*_divisors_by_dimension(axes, include_padding, divisor, _kind(dtype)), cut.geometry]
    form = spread_channels.form((dtype, dtype, *(table.dtype for table in tables)), {})

    def run(grad: Any) -> np.ndarray:
        out = _empty(shape, sizes, dtype)
        form(cut.chunks, False, grad, out, *tables)
        return _in_order(out)

    return run


def maxima(x: Any, axes: tuple[Any, ...], places: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """The maximum of each window of ``(N, C, *spatial)``, and if `places` where it is in its plane."""
    return _planned_maxima(x.shape, x.dtype, axes, places)(x)


@engines.kept(256)
def _planned_maxima(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[Any, ...], places: bool) -> Any:
    cut = _Axes(shape, axes, shape[2:], False)
    tables = [*cut.taps, np.empty(1, _kind(dtype)), cut.geometry]
    counts, int64s, none = [axis.count for axis in axes], np.dtype(np.int64), np.empty(1, np.int64)
    form = channel_maxima.form((dtype, dtype, int64s, *(table.dtype for table in tables)), {"PLACES": places})

    def run(x: Any) -> tuple[np.ndarray, np.ndarray | None]:
        out, at = _empty(shape, counts, dtype), _empty(shape, counts, int64s) if places else none
        form(cut.chunks, False, x, out, at, *tables)
        return _in_order(out), _in_order(at) if places else None

    return run


def put(values: Any, places: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Zeros ``(N, C, *sizes)`` with `values` added at `places` of their planes; both have their channels last in memory."""
    images, channels = values.shape[:2]
    count, size, kind = prod(values.shape[2:]), prod(sizes), _kind(values.dtype)
    lane = lane_count(kind)
    # Images are cut along their channels where there are few: neighbouring channels lie beside each other.
    per_block = -(-channels // -(-CHUNKS // images) // lane) * lane
    blocks = -(-channels // per_block)
    sums = _empty(values.shape, sizes, kind)
    rounds = kind != values.dtype
    made = np.empty(sums.shape, values.dtype) if rounds else sums
    put_channels.run(images * blocks, values, places, sums, made, channels, count, size, blocks, per_block, ROUNDS=rounds)
    return _in_order(made)
