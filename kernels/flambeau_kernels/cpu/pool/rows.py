"""Pooling, compiled: a window is the product of its extents, so rows are combined first, then elements along the row.

A row of results combines the rows of its windows, vector by vector, into one row in the first cache, with what adds
nothing (0, or -inf) before and after it; then shifted vectors of that row, every STRIDE-th element of them. Maxima with their
places keep the place beside each value, as the number of the element in its plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.sums import sum_of
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
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.vocabulary import maximum, where

from ..shapes.move import contiguous
from ..shapes.order import place_of_row

# The longest rows with what is added around them, the widest window along a row, and elements of a chunk.
MOST, WIDEST, CHUNK = 4096, 32, 1 << 15
FEW = 8  # elements of a range that are added sooner one by one
# Rows of results, those of a chunk, then for each axis: size, kernel, stride, padding, dilation, count.
ROWS, PER_CHUNK, AXES, WIDE_AXIS = 0, 1, 2, 6
SIZE, EXTENT, STRIDE, PADDING, DILATION, COUNT = range(6)


def write(out, at, v, left, spill, LANES, WIDE):
    if WIDE:
        store(out, at, v, left)
    else:
        store(spill, 0, v)
        for i in range(min(LANES, left)):
            out[at + i] = spill[i]


def strided(row, at, STEP, stride, spill, LANES):
    """Elements ``at, at + stride, ...`` of a row; STEP is the stride where it is at most 4, else 0."""
    if STEP == 1:
        v = load(row, at, LANES)
    elif STEP == 2:
        v = shuffle(load(row, at, LANES), load(row, at + LANES, LANES), tuple(range(0, 2 * LANES, 2)))
    elif STEP == 3:
        FROM_TWO = (2 * LANES + 2) // 3
        v = shuffle(load(row, at, LANES), load(row, at + LANES, LANES), tuple(range(0, 2 * LANES, 3)) + (0,) * (LANES - FROM_TWO))
        v = shuffle(v, load(row, at + 2 * LANES, LANES), tuple(range(FROM_TWO)) + tuple(range(3 * FROM_TWO - LANES, 2 * LANES, 3)))
    elif STEP == 4:
        EVEN = tuple(range(0, 2 * LANES, 2))
        v = shuffle(
            shuffle(load(row, at, LANES), load(row, at + LANES, LANES), EVEN),
            shuffle(load(row, at + 2 * LANES, LANES), load(row, at + 3 * LANES, LANES), EVEN),
            EVEN,
        )
    else:
        for i in range(LANES):
            spill[i] = row[at + i * stride]
        v = load(spill, 0, LANES)
    return v


def first_tap(at, axis):
    """The first element of a window that begins at `at` that is inside the axis."""
    return (-at + axis[DILATION] - 1) // axis[DILATION] if at < 0 else 0


def past_tap(at, axis):
    """The first element of a window after the axis."""
    left = axis[SIZE] - 1 - at
    return min(left // axis[DILATION] + 1, axis[EXTENT]) if left >= 0 else 0


def cell_of(number, z_axis, y_axis, ALONG):
    """The plane of row `number` of the results, and which of its windows along the other two axes that is.

    ALONG is whether planes are single rows.
    """
    if ALONG:
        plane, k, h = number, 0, 0
    else:
        plane, k, h = place_of_row(number, z_axis[COUNT], y_axis[COUNT])
    return plane, k, h


def taps_of(number, axis, ALONG):
    """Where window `number` of an axis begins, and from which to which of its taps it is inside."""
    if ALONG:
        at, first, past = 0, 0, 1
    else:
        at = number * axis[STRIDE] - axis[PADDING]
        first, past = first_tap(at, axis), past_tap(at, axis)
    return at, first, past


def combined(a, b, MAXIMUM):
    if MAXIMUM:
        v = maximum(a, b)
    else:
        v = a + b
    return v


@kernel
def pool_rows(chunk, source, out, count_z, count_y, count_x, geometry, *, TAPS, STEP, ALONG, MAXIMUM, WIDE):
    """Maxima, or sums over the product of the counts."""
    KIND = widened(count_x)
    LANES = lanes(KIND)
    NOTHING = -float("inf") if MAXIMUM else 0.0
    row = local(KIND, MOST + 2 * LANES)
    spill = local(KIND, LANES)
    z_axis, y_axis, x_axis = geometry + AXES, geometry + (AXES + WIDE_AXIS), geometry + (AXES + 2 * WIDE_AXIS)
    width, padding, count = x_axis[SIZE], x_axis[PADDING], x_axis[COUNT]
    stride = x_axis[STRIDE]
    reach = (count - 1) * stride + (x_axis[EXTENT] - 1) * x_axis[DILATION] + 1
    for i in range(0, padding, LANES):
        store(row, i, broadcast(KIND(NOTHING), LANES))
    first = chunk * geometry[PER_CHUNK]
    for number in range(first, min(first + geometry[PER_CHUNK], geometry[0])):
        plane, k, h = cell_of(number, z_axis, y_axis, ALONG)
        z, z_first, z_past = taps_of(k, z_axis, ALONG)
        y, y_first, y_past = taps_of(h, y_axis, ALONG)
        base = source + plane * z_axis[SIZE] * y_axis[SIZE] * width
        for i in range(0, width, LANES):
            left = width - i
            v = broadcast(KIND(NOTHING), LANES)
            for a in range(z_first, z_past):
                at_z = (z + a * z_axis[DILATION]) * y_axis[SIZE]
                for b in range(y_first, y_past):
                    line = base + (at_z + y + b * y_axis[DILATION]) * width
                    if left >= LANES:
                        v = combined(v, load(line, i, LANES), MAXIMUM)
                    else:
                        v = combined(v, load(line, i, LANES, left), MAXIMUM)
            store(row, padding + i, v)
        # The last vector wrote beyond the row, and the padding begins there.
        for i in range(padding + width, reach + LANES, LANES):
            store(row, i, broadcast(KIND(NOTHING), LANES))
        to = out + number * count
        over = KIND(1)
        if not MAXIMUM:
            over = count_z[k] * count_y[h]
        for j in range(0, count, LANES):
            v = strided(row, j * stride, STEP, stride, spill, LANES)
            if TAPS > 0:
                for t in unroll(range(1, TAPS)):
                    v = combined(v, strided(row, j * stride + t * x_axis[DILATION], STEP, stride, spill, LANES), MAXIMUM)
            else:
                for t in range(1, x_axis[EXTENT]):
                    v = combined(v, strided(row, j * stride + t * x_axis[DILATION], STEP, stride, spill, LANES), MAXIMUM)
            if not MAXIMUM:
                v = v / (broadcast(over, LANES) * load(count_x, j, LANES, count - j))
            write(to, j, v, count - j, spill, LANES, WIDE)


def better_row(best, places, v, number, LANES):
    """The larger of two values with its place, of equal ones the first, of several nan the last."""
    wins = (v > best) | (v != v)
    return where(wins, v, best), where(wins, number, places)


@kernel
def max_rows(chunk, source, out, places, kind, geometry, *, STEP, ALONG, WIDE):
    """Maxima and their places."""
    KIND = widened(kind)
    LANES = lanes(KIND)
    row, numbers = local(KIND, MOST + 2 * LANES), local(int32, MOST + 2 * LANES)
    spill, spilled = local(KIND, LANES), local(int32, LANES)
    LOWEST = -float("inf")
    z_axis, y_axis, x_axis = geometry + AXES, geometry + (AXES + WIDE_AXIS), geometry + (AXES + 2 * WIDE_AXIS)
    width, padding, count = x_axis[SIZE], x_axis[PADDING], x_axis[COUNT]
    stride = x_axis[STRIDE]
    reach = (count - 1) * stride + (x_axis[EXTENT] - 1) * x_axis[DILATION] + 1
    for i in range(LANES):
        spilled[i] = int32(i)
    ramp = load(spilled, 0, LANES)
    for i in range(0, padding, LANES):
        store(row, i, broadcast(KIND(LOWEST), LANES))
        store(numbers, i, broadcast(int32(2147483647), LANES))
    first = chunk * geometry[PER_CHUNK]
    for number in range(first, min(first + geometry[PER_CHUNK], geometry[0])):
        plane, k, h = cell_of(number, z_axis, y_axis, ALONG)
        z, z_first, z_past = taps_of(k, z_axis, ALONG)
        y, y_first, y_past = taps_of(h, y_axis, ALONG)
        base = source + plane * z_axis[SIZE] * y_axis[SIZE] * width
        beginning = ((z + z_first * z_axis[DILATION]) * y_axis[SIZE] + y + y_first * y_axis[DILATION]) * width
        for i in range(0, width, LANES):
            left = width - i
            v = broadcast(KIND(LOWEST), LANES)
            p = broadcast(int32(beginning + i), LANES) + ramp
            for a in range(z_first, z_past):
                at_z = (z + a * z_axis[DILATION]) * y_axis[SIZE]
                for b in range(y_first, y_past):
                    at = (at_z + y + b * y_axis[DILATION]) * width
                    v, p = better_row(v, p, load(base + at, i, LANES, left), broadcast(int32(at + i), LANES) + ramp, LANES)
            store(row, padding + i, v)
            store(numbers, padding + i, p)
        for i in range(padding + width, reach + LANES, LANES):
            store(row, i, broadcast(KIND(LOWEST), LANES))
            store(numbers, i, broadcast(int32(2147483647), LANES))
        for j in range(0, count, LANES):
            v = strided(row, j * stride, STEP, stride, spill, LANES)
            p = strided(numbers, j * stride, STEP, stride, spilled, LANES)
            for t in range(1, x_axis[EXTENT]):
                at = j * stride + t * x_axis[DILATION]
                w, q = strided(row, at, STEP, stride, spill, LANES), strided(numbers, at, STEP, stride, spilled, LANES)
                wins = (w > v) | ((w == v) & (q < p)) | ((w != w) & ((v == v) | (q > p)))
                v, p = where(wins, w, v), where(wins, q, p)
            write(out + number * count, j, v, count - j, spill, LANES, WIDE)
            store(places + number * count, j, vector(int64, LANES)(p), count - j)


@kernel
def spread_rows(chunk, gradient, out, count_z, count_y, count_x, geometry):
    """The transpose of the means: planes of `out` are made whole, one window after the other."""
    KIND = widened(out)
    LANES = lanes(KIND)
    row = local(KIND, MOST + LANES)
    z_axis, y_axis, x_axis = geometry + AXES, geometry + (AXES + WIDE_AXIS), geometry + (AXES + 2 * WIDE_AXIS)
    width, padding, count = x_axis[SIZE], x_axis[PADDING], x_axis[COUNT]
    area = z_axis[SIZE] * y_axis[SIZE] * width
    first = chunk * geometry[PER_CHUNK]
    for plane in range(first, min(first + geometry[PER_CHUNK], geometry[0])):
        base = out + plane * area
        for i in range(0, area, LANES):
            store(base, i, broadcast(KIND(0), LANES), area - i)
        for k in range(z_axis[COUNT]):
            z = k * z_axis[STRIDE] - z_axis[PADDING]
            for h in range(y_axis[COUNT]):
                y = h * y_axis[STRIDE] - y_axis[PADDING]
                line = gradient + ((plane * z_axis[COUNT] + k) * y_axis[COUNT] + h) * count
                over = count_z[k] * count_y[h]
                for i in range(0, padding + width, LANES):
                    store(row, i, broadcast(KIND(0), LANES))
                for t in range(x_axis[EXTENT]):
                    at = t * x_axis[DILATION]
                    for j in range(count):
                        place = at + j * x_axis[STRIDE]
                        if place < padding + width:
                            row[place] = row[place] + line[j] / (over * count_x[j])
                for a in range(first_tap(z, z_axis), past_tap(z, z_axis)):
                    for b in range(first_tap(y, y_axis), past_tap(y, y_axis)):
                        to = base + ((z + a * z_axis[DILATION]) * y_axis[SIZE] + y + b * y_axis[DILATION]) * width
                        for i in range(0, width, LANES):
                            store(to, i, load(to, i, LANES, width - i) + load(row, padding + i, LANES), width - i)


@kernel
def add_at(chunk, values, places, out, planes, count, size, per_chunk):
    """Zeros with `values` added at `places` of their planes, in their order; places outside are nobody's."""
    KIND = widened(out)
    LANES = lanes(KIND)
    first = chunk * per_chunk
    for plane in range(first, min(first + per_chunk, planes)):
        to, line, at = out + plane * size, values + plane * count, places + plane * count
        for i in range(0, size, LANES):
            store(to, i, broadcast(KIND(0), LANES), size - i)
        for i in range(count):
            place = at[i]
            if (place >= 0) & (place < size):
                to[place] = to[place] + line[i]


@kernel(in_vectors=True)
def mean_planes(chunk, source, out, planes, size, per_chunk):
    """The mean of each plane."""
    KIND = widened(source)
    first = chunk * per_chunk
    for plane in range(first, min(first + per_chunk, planes)):
        line = source + plane * size
        out[plane] = KIND(sum_of(line, size, KIND(0), None, False, KIND) / float64(size))


def sum_of_range(line, n, KIND):
    """The sum of `n` elements in float64; a few are added one after the other."""
    if n <= FEW:
        total = KIND(0)
        for c in rolled(range(n)):
            total += line[c]
        made = float64(total)
    else:
        made = sum_of(line, n, KIND(0), None, False, KIND)
    return made


@kernel(in_vectors=True)
def mean_ranges(chunk, source, out, ranges_z, ranges_y, ranges_x, cells, geometry, *, ALONG):
    """The mean over each cell of a grid of ranges ``(low, high)`` along three axes; ALONG, along the last one alone."""
    KIND = widened(cells)
    LANES = lanes(KIND)
    row = local(KIND, MOST + LANES)
    depth, height, width = geometry[0], geometry[1], geometry[2]
    size_y, size_x, per_chunk = geometry[3], geometry[4], geometry[7]
    first = chunk * per_chunk
    for plane in range(first, min(first + per_chunk, geometry[5])):
        base = source + plane * geometry[6]
        to = out + plane * depth * height * width
        for i in range(depth):
            for j in range(height):
                z_first, z_past, y_first, y_past = ranges_z[2 * i], ranges_z[2 * i + 1], ranges_y[2 * j], ranges_y[2 * j + 1]
                if not ALONG:
                    for c in range(0, size_x, LANES):
                        v = broadcast(KIND(0), LANES)
                        for a in range(z_first, z_past):
                            for b in range(y_first, y_past):
                                v = v + load(base + (a * size_y + b) * size_x, c, LANES, size_x - c)
                        store(row, c, v)
                rows = (z_past - z_first) * (y_past - y_first)
                for k in range(width):
                    low, high = ranges_x[2 * k], ranges_x[2 * k + 1]
                    if ALONG:
                        total = sum_of_range(base + low, high - low, KIND)
                    else:
                        total = sum_of_range(row + low, high - low, KIND)
                    to[(i * height + j) * width + k] = KIND(total / float64(rows * (high - low)))


@kernel
def spread_ranges(chunk, grad, out, ranges_z, ranges_y, ranges_x, geometry, *, ALONG):
    """The transpose of `mean_ranges`: planes of `out` are made whole, one range after the other. ALONG: planes are single rows."""
    KIND = widened(out)
    LANES = lanes(KIND)
    row = local(KIND, 1 if ALONG else MOST + LANES)
    depth, height, width = geometry[0], geometry[1], geometry[2]
    size_y, size_x, planes, size, per_chunk = geometry[3], geometry[4], geometry[5], geometry[6], geometry[7]
    first = chunk * per_chunk
    for plane in range(first, min(first + per_chunk, planes)):
        base = out + plane * size
        for c in range(0, size, LANES):
            store(base, c, broadcast(KIND(0), LANES), size - c)
        for i in range(depth):
            for j in range(height):
                given = grad + ((plane * depth + i) * height + j) * width
                rows = (ranges_z[2 * i + 1] - ranges_z[2 * i]) * (ranges_y[2 * j + 1] - ranges_y[2 * j])
                to = base if ALONG else row
                if not ALONG:
                    for c in range(0, size_x, LANES):
                        store(row, c, broadcast(KIND(0), LANES))
                for k in range(width):
                    low, high = ranges_x[2 * k], ranges_x[2 * k + 1]
                    share = given[k] / KIND(rows * (high - low))
                    for c in rolled(range(low, high)):
                        to[c] = to[c] + share
                if not ALONG:
                    for a in range(ranges_z[2 * i], ranges_z[2 * i + 1]):
                        for b in range(ranges_y[2 * j], ranges_y[2 * j + 1]):
                            line = base + (a * size_y + b) * size_x
                            for c in range(0, size_x, LANES):
                                store(line, c, load(line, c, LANES, size_x - c) + load(row, c, LANES), size_x - c)


def better_of(best, places, v, numbers):
    """The larger of two values and its place, of equal ones the first in the plane, of several nan the last."""
    wins = (v > best) | ((v == best) & (numbers < places)) | ((v != v) & ((best == best) | (numbers > places)))
    return where(wins, v, best), where(wins, numbers, places)


@kernel
def max_ranges(chunk, source, out, places, ranges, kind, geometry):
    """The largest element of each window and its place: the product of one range of elements along each of three axes.

    `ranges` has the first element of each window of an axis and the one behind its last, axis after axis; for each of `drawn` planes.
    """
    KIND = widened(kind)
    LANES = lanes(KIND)
    LOWEST, NOWHERE = -float("inf"), 2147483647
    spill, spilled = local(KIND, LANES), local(int32, LANES)
    depth, height, width = geometry[0], geometry[1], geometry[2]
    size_y, size_x, size = geometry[3], geometry[4], geometry[5]
    planes, per_chunk, drawn = geometry[6], geometry[7], geometry[8]
    for i in range(LANES):
        spilled[i] = int32(i)
    ramp = load(spilled, 0, LANES)
    first = chunk * per_chunk
    for plane in range(first, min(first + per_chunk, planes)):
        base = source + plane * size
        z_ends = ranges + plane % drawn * 2 * (depth + height + width)
        y_ends = z_ends + 2 * depth
        x_ends = y_ends + 2 * height
        for i in range(depth):
            for j in range(height):
                cells = ((plane * depth + i) * height + j) * width
                for k in range(width):
                    low, past = x_ends[2 * k], x_ends[2 * k + 1]
                    best, number = KIND(LOWEST), int32(NOWHERE)
                    if past - low <= FEW:             # elements are compared sooner one by one
                        for a in range(z_ends[2 * i], z_ends[2 * i + 1]):
                            for b in range(y_ends[2 * j], y_ends[2 * j + 1]):
                                row = (a * size_y + b) * size_x
                                for c in rolled(range(low, past)):
                                    best, number = better_of(best, number, base[row + c], int32(row + c))
                    else:
                        v, p = broadcast(KIND(LOWEST), LANES), broadcast(int32(NOWHERE), LANES)
                        for a in range(z_ends[2 * i], z_ends[2 * i + 1]):
                            for b in range(y_ends[2 * j], y_ends[2 * j + 1]):
                                row = (a * size_y + b) * size_x
                                for c in range(low, past, LANES):
                                    at, left = row + c, past - c
                                    there = broadcast(int32(min(left, LANES)), LANES)
                                    w = where(ramp < there, load(base, at, LANES, left), broadcast(KIND(LOWEST), LANES))
                                    q = where(ramp < there, broadcast(int32(at), LANES) + ramp, broadcast(int32(NOWHERE), LANES))
                                    v, p = better_of(v, p, w, q)
                        store(spill, 0, v)
                        store(spilled, 0, p)
                        for t in unroll(range(LANES)):
                            best, number = better_of(best, number, spill[t], spilled[t])
                    out[cells + k] = best
                    places[cells + k] = int64(number)


def takes_windows(x: Any, windows: Sequence[Any]) -> bool:
    """Whether `max_ranges` pools `x`: by its dtype and rank."""
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    fits = x.size > 0 and 1 <= len(windows) <= 3 and prod(x.shape[1:]) < 1 << 31
    return type(x) is np.ndarray and floating and fits and all(w.count for w in windows)


def planned_ranges(x: Any, windows: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """``run(x)``: maxima and their places, with results of `shape`, for contiguous arrays of as many elements as the planes `x`."""
    kind, dtype, places_kind = _kind(x), x.dtype, np.dtype(np.int64)
    ends = [w.ends() for w in windows]                # (drawn, count, 2)
    drawn, sizes = len(ends[0]), (1,) * (3 - len(windows)) + x.shape[1:]
    whole = [np.broadcast_to(np.array([[[0, 1]]]), (drawn, 1, 2))] * (3 - len(windows))
    counts = [1] * len(whole) + [w.count for w in windows]
    ranges = np.concatenate([*whole, *ends], 1)
    per_chunk = max(1, CHUNK // (prod(counts) + prod(sizes)))
    geometry = np.array([*counts, *sizes[1:], prod(sizes), len(x), per_chunk, drawn])
    chunks, sample = -(-len(x) // per_chunk), np.empty(1, kind)
    form = max_ranges.form((dtype, dtype, places_kind, places_kind, kind, geometry.dtype), {})

    def run(a: Any) -> tuple[Any, Any]:
        out, places = np.empty(shape, dtype), np.empty(shape, places_kind)
        form(chunks, False, a, out, places, ranges, sample, geometry)
        return out, places

    return run


def max_of_ranges(x: Any, windows: Sequence[Any]) -> tuple[Any, Any]:
    """The maximum of each window of ``(planes, *spatial)``, and its place in the plane."""
    return planned_ranges(x, windows, (len(x), *(w.count for w in windows)))(contiguous(x))


def takes_ranges(x: Any, counts: tuple[int, ...]) -> bool:
    """Whether `mean_ranges` pools `x`: by dtype, rank and the length of rows."""
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    fits = len(counts) == 1 or x.shape[-1] <= MOST
    return type(x) is np.ndarray and floating and x.size > 0 and prod(counts) > 0 and 1 <= len(counts) <= 3 and fits


def _geometry_of_ranges(
    planes: int, sizes: tuple[int, ...], ranges: list[list[tuple[int, int]]]
) -> tuple[int, tuple[np.ndarray, ...], np.ndarray]:
    """Chunks, the ranges along each of three axes, and the geometry of kernels of means over ranges."""
    axes: list[list[tuple[int, int]]] = [[(0, 1)]] * (3 - len(ranges)) + ranges
    _, size_y, size_x = (1,) * (3 - len(ranges)) + sizes
    per_chunk = max(1, CHUNK // max(prod(sizes), prod(map(len, axes))))
    geometry = np.array([*map(len, axes), size_y, size_x, planes, prod(sizes), per_chunk])
    return -(-planes // per_chunk), tuple(np.array(axis, np.int64) for axis in axes), geometry


def planned_range_spread(planes: int, dtype: np.dtype, sizes: tuple[int, ...], ranges: list[list[tuple[int, int]]]) -> Any:
    """``run(grad)``: the transpose of means over ranges along each axis of planes of `sizes`, for contiguous gradients."""
    chunks, axes, geometry = _geometry_of_ranges(planes, sizes, ranges)
    form = spread_ranges.form((dtype, dtype, *(geometry.dtype,) * 4), {"ALONG": len(ranges) == 1})

    def run(grad: Any) -> Any:
        out = np.empty((planes, *sizes), dtype)
        form(chunks, False, grad, out, *axes, geometry)
        return out

    return run


def planned_range_means(x: Any, ranges: list[list[tuple[int, int]]], shape: tuple[int, ...]) -> Any:
    """``run(x)``: means over ranges along each axis, with results of `shape`, for contiguous arrays of as many elements."""
    kind, dtype = _kind(x), x.dtype
    chunks, (one, two, three), geometry = _geometry_of_ranges(len(x), x.shape[1:], ranges)
    sample = np.empty(1, kind)
    form = mean_ranges.form((dtype, dtype, *(geometry.dtype,) * 3, kind, geometry.dtype), {"ALONG": len(ranges) == 1})

    def run(a: Any) -> Any:
        out = np.empty(shape, dtype)
        form(chunks, False, a, out, one, two, three, sample, geometry)
        return out

    return run


def takes(x: Any, windows: tuple[Any, ...]) -> bool:
    """Whether the kernels here pool `x`: by dtype, rank and the length of rows."""
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    if not (type(x) is np.ndarray and floating and x.size and 1 <= len(windows) <= 3):
        return False
    w = windows[-1]
    longest = max(w.size + w.padding, (w.count + WIDEST) * w.stride + w.kernel * w.dilation + WIDEST) + WIDEST
    return longest <= MOST and prod(v.size for v in windows) < 1 << 31 and all(v.count for v in windows)


def _geometry(rows: int, per_chunk: int, windows: tuple[Any, ...]) -> np.ndarray:
    fill = [(1, 1, 1, 0, 1, 1)] * (3 - len(windows))
    axes = fill + [(w.size, w.kernel, w.stride, w.padding, w.dilation, w.count) for w in windows]
    return np.array([rows, per_chunk, *(v for axis in axes for v in axis)])


def _kind(x: Any) -> np.dtype:
    return np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype


def _constants(x: Any, windows: tuple[Any, ...]) -> dict[str, Any]:
    stride = windows[-1].stride
    along = all(w.size == w.kernel == w.count == 1 and not w.padding for w in windows[:-1])
    return {"STEP": stride if stride <= 4 else 0, "ALONG": along, "WIDE": x.dtype == _kind(x)}


def _rows(x: Any, windows: tuple[Any, ...]) -> tuple[int, int, np.ndarray]:
    """Chunks, and the geometry, of a kernel that makes rows of results."""
    rows = len(x) * prod(w.count for w in windows[:-1])
    row = prod(w.kernel for w in windows[:-1]) * windows[-1].size + windows[-1].kernel * windows[-1].count
    per_chunk = max(1, CHUNK // row)
    return -(-rows // per_chunk), per_chunk, _geometry(rows, per_chunk, windows)


def _planned(x: Any, windows: tuple[Any, ...], counts: list[np.ndarray], is_max: bool, shape: tuple[int, ...]) -> Any:
    """``run(x) -> out`` of the given shape, for contiguous arrays of as many elements as the planes `x`."""
    kind, dtype = _kind(x), x.dtype
    chunks, _, geometry = _rows(x, windows)
    extent = windows[-1].kernel
    constants = {"TAPS": extent if extent <= 3 else 0, **_constants(x, windows), "MAXIMUM": is_max}
    one, two, three = counts
    form = pool_rows.form((dtype, dtype, kind, kind, kind, geometry.dtype), constants)

    def run(a: Any) -> Any:
        out = np.empty(shape, dtype)
        form(chunks, False, a, out, one, two, three, geometry)
        return out

    return run


def _pool(x: Any, windows: tuple[Any, ...], counts: list[np.ndarray], is_max: bool) -> Any:
    shape = (len(x), *(w.count for w in windows))
    return _planned(x, windows, counts, is_max, shape)(contiguous(x))


def max_values(x: Any, windows: tuple[Any, ...]) -> Any:
    """The maximum of each window of ``(planes, *spatial)``."""
    return _pool(x, windows, [np.ones(1, _kind(x))] * 3, True)


def planned_maxima(x: Any, windows: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `max_values` with results of `shape`, for contiguous arrays of as many elements as the planes `x`."""
    return _planned(x, windows, [np.ones(1, _kind(x))] * 3, True, shape)


def _all_counts(counts: list[np.ndarray], kind: np.dtype) -> list[np.ndarray]:
    return [np.ones(1, kind)] * (3 - len(counts)) + [c.astype(kind) for c in counts]


def means(x: Any, windows: tuple[Any, ...], counts: list[np.ndarray]) -> Any:
    """The sum of each window over the product of `counts`, one array for each axis."""
    return _pool(x, windows, _all_counts(counts, _kind(x)), False)


def planned_means(x: Any, windows: tuple[Any, ...], counts: list[np.ndarray], shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `means` with results of `shape`, for contiguous arrays of as many elements as the planes `x`."""
    return _planned(x, windows, _all_counts(counts, _kind(x)), False, shape)


def planned_places(x: Any, windows: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `max_at` with results of `shape`, for contiguous arrays of as many elements as the planes `x`."""
    kind, dtype = _kind(x), x.dtype
    chunks, _, geometry = _rows(x, windows)
    places_kind, sample = np.dtype(np.int64), np.empty(1, kind)
    form = max_rows.form((dtype, dtype, places_kind, kind, geometry.dtype), _constants(x, windows))

    def run(a: Any) -> tuple[Any, Any]:
        out, places = np.empty(shape, dtype), np.empty(shape, places_kind)
        form(chunks, False, a, out, places, sample, geometry)
        return out, places

    return run


def max_at(x: Any, windows: tuple[Any, ...]) -> tuple[Any, Any]:
    """The maximum of each window, and its place in the plane."""
    return planned_places(x, windows, (len(x), *(w.count for w in windows)))(contiguous(x))


def planned_spread(planes: int, dtype: np.dtype, windows: tuple[Any, ...], counts: list[np.ndarray]) -> Any:
    """``run(gradient)``: the transpose of `means`, for contiguous gradients of so many planes."""
    kind = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    shape = (planes, *(w.size for w in windows))
    per_chunk = max(1, CHUNK // max(prod(shape[1:]), 1))
    chunks, geometry = -(-planes // per_chunk), _geometry(planes, per_chunk, windows)
    one, two, three = _all_counts(counts, kind)
    form = spread_rows.form((dtype, kind, kind, kind, kind, geometry.dtype), {})

    def run(gradient: Any) -> Any:
        out = np.empty(shape, kind)
        form(chunks, False, gradient, out, one, two, three, geometry)
        return out.astype(dtype, copy=False)

    return run


def put_plane(values: Any, places: Any, size: int) -> Any:
    """Zeros ``(planes, size)`` with `values` added at `places`, both ``(planes, n)``."""
    kind = _kind(values)
    planes, count = values.shape
    out = np.empty((planes, size), kind)
    per_chunk = max(1, CHUNK // (count + size))
    add_at.run(-(-planes // per_chunk), contiguous(values), contiguous(places), out, planes, count, size,
               per_chunk)  # fmt: skip
    return out.astype(values.dtype, copy=False)


def planned_plane_means(x: Any, shape: tuple[int, ...]) -> Any:
    """``run(x)``, as `plane_means` with results of `shape`, for contiguous arrays of as many elements."""
    dtype, (planes, size) = x.dtype, x.shape
    per_chunk = max(1, CHUNK // size)
    chunks = -(-planes // per_chunk)
    form = mean_planes.form((dtype, dtype, int, int, int), {})

    def run(a: Any) -> Any:
        out = np.empty(shape, dtype)
        form(chunks, False, a, out, planes, size, per_chunk)
        return out

    return run


def plane_means(x: Any) -> Any:
    """The mean of each row of ``(planes, size)``."""
    return planned_plane_means(x, (len(x),))(contiguous(x))
