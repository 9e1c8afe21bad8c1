"""Convolutions of single channels with small kernels, at steps 1 and 2: rows slide through registers.

A column of one vector of results walks down a plane. Each row of the source is read once for each tap along x, zeros taking
the place of what lies outside, and serves all rows of results that it belongs to while their sums are in registers; nothing is
copied or padded before. Columns go from the right to the left and rows downwards, so that a whole vector can be stored
where a row ends within it: what lies behind is the beginning of later rows, which is written later. Only at the end
of a band of rows are stores masked.

`depthwise_rows` makes results of sources, `spread` is its transpose at step 2 and `depthwise_rows_weight` the gradient of the weight.
All take planes cut into bands of rows, several bands to a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    multiply_add,
    prefetch,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm

from ..shapes.layout import planar
from .walk import Ints

# The most taps, whose code is written out; of the gradient of the weight, whose sums are all in registers.
MOST_TAPS, MOST_WEIGHT_TAPS = 49, 25
# The most taps for which columns inside a plane have code of their own, without masks: a tenth faster, half as much again to
# compile.
MOST_INSIDE = 9
# Rows that a kernel may reach beyond its first one.
MOST_ROWS = 12
# Results of a band of rows and of a chunk; and chunks that keep several threads busy to the end.
BAND, CHUNK, ENOUGH = 1 << 14, 1 << 14, 24
# Where a column of results lies: inside the plane, at its left or right edge, or over all of a narrow plane.
MIDDLE, LEFT, RIGHT, NARROW = range(4)
# Slots of the geometry: bands, bands of a chunk and of a plane, rows of a band; results for each channel, channels of results;
# strides of image, channel and row of the source, its extents, zeros above it, elements to what is read next; and the same of
# the results, or of their gradient.
(BANDS, PER_CHUNK, OF_PLANE, ROWS, MULTIPLE, OUTPUTS, IMAGE, CHANNEL, ROW, HEIGHT, WIDTH, ABOVE, AHEAD,
 OUT_IMAGE, OUT_CHANNEL, OUT_ROW, OUT_HEIGHT, OUT_WIDTH, OUT_AHEAD) = range(19)  # fmt: skip


def elements(line, i, OFFSET, count, EDGE, LANES):
    """``line[i + OFFSET]`` and what follows, zeros outside ``0 ... count - 1``."""
    zeros = broadcast(widened(line)(0), LANES)
    if EDGE == MIDDLE:
        v = load(line, i + OFFSET, LANES)
    elif EDGE in (LEFT, NARROW) and OFFSET < 0:
        v = shuffle(zeros, load(line, 0, LANES, count), tuple(range(LANES + OFFSET, 2 * LANES + OFFSET)))
    elif EDGE == NARROW and OFFSET >= LANES:
        v = zeros
    elif EDGE == NARROW:
        v = shuffle(load(line, 0, LANES, count), zeros, tuple(range(OFFSET, OFFSET + LANES)))
    else:
        v = load(line, i + OFFSET, LANES, count - (i + OFFSET))
    return v


def windows(v, line, i, width, reach, EDGE, TAPS, STEP, DILATION, PAD, LANES):
    """``v[s][j] = line[(i + j) * STEP + s * DILATION - PAD]``, zeros outside and from ``reach + s * DILATION`` on."""
    for s in unroll(range(0, TAPS, STEP)):
        count = min(width, reach + s * DILATION)
        a = elements(line, STEP * i, s * DILATION - PAD, count, EDGE, LANES)
        if STEP == 1:
            v[s] = a
        else:
            b = elements(line, STEP * i, s - PAD + LANES, count, EDGE, LANES)
            v[s] = shuffle(a, b, tuple(range(0, 2 * LANES, 2)))
            if s + 1 < TAPS:
                v[s + 1] = shuffle(a, b, tuple(range(1, 2 * LANES, 2)))


def finish(out, at, v, safe, left, LANES):
    """Store a vector whose first `left` lanes count; the whole of it where at most `safe` is behind it."""
    if at <= safe:
        store(out, at, v)
    else:
        store(out, at, v, left)


def column(x, w, constant, out, i, first, last, geometry, EDGE, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES):
    """Rows ``first ... last - 1`` of one vector of results."""
    KIND = widened(x)
    DEEP = (TAPS_Y - 1) * DILATION // STEP_Y + 1      # rows of results under way
    acc = local(vector(KIND, LANES), DEEP)
    v = local(vector(KIND, LANES), TAPS_X)
    height, width, step = geometry[HEIGHT], geometry[WIDTH], geometry[OUT_ROW]
    safe = last * step - LANES
    r = first * STEP_Y - geometry[ABOVE]
    for m in unroll(range(DEEP)):
        acc[m] = constant[0]
    for k in rolled(range(first, last + (DEEP - 1))):
        for q in unroll(range(STEP_Y)):
            line = x + r * geometry[ROW]
            if (r >= 0) & (r < height):
                windows(v, line, i, width, width, EDGE, TAPS_X, STEP_X, DILATION, PAD, LANES)
                if STEP_X == 1 and EDGE != NARROW:
                    prefetch(line + (i + geometry[AHEAD]))
            else:
                for s in unroll(range(TAPS_X)):
                    v[s] = broadcast(KIND(0), LANES)
            for s in unroll(range(TAPS_X)):
                for t in unroll(range(TAPS_Y)):
                    if t * DILATION % STEP_Y == q:
                        m = t * DILATION // STEP_Y
                        acc[m] = multiply_add(v[s], w[t * TAPS_X + s], acc[m])
            r += 1
        y = k - (DEEP - 1)
        if y >= first:
            at = y * step + i
            if STEP_X == 1 and EDGE != NARROW:
                prefetch(out + (at + geometry[OUT_AHEAD]))
            finish(out, at, acc[DEEP - 1], safe, step - i, LANES)
        for m in unroll(range(DEEP - 1, 0, -1)):
            acc[m] = acc[m - 1]
        acc[0] = constant[0]


def rows_of(band, geometry):
    """The plane that a band is of, its image and channel, its first row and the one past its last."""
    plane = band // geometry[OF_PLANE]
    first = (band - plane * geometry[OF_PLANE]) * geometry[ROWS]
    image = plane // geometry[OUTPUTS]
    return plane, image, plane - image * geometry[OUTPUTS], first, min(first + geometry[ROWS], geometry[OUT_HEIGHT])


@kernel(in_vectors=True)
def depthwise_rows(chunk, x, weight, bias, out, geometry, *, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, IS_NARROW):
    KIND = widened(weight)
    LANES = lanes(KIND)
    TAPS = TAPS_Y * TAPS_X
    REACH = (LANES + (TAPS_X - 1) * DILATION // STEP_X) * STEP_X - PAD     # from a column's first element to past the last one read
    w = local(vector(KIND, LANES), TAPS)
    constant = local(vector(KIND, LANES), 1)
    begin = chunk * geometry[PER_CHUNK]
    for band in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[BANDS]))):
        plane, image, o, first, last = rows_of(band, geometry)
        source = x + (image * geometry[IMAGE] + o // geometry[MULTIPLE] * geometry[CHANNEL])
        to = out + plane * geometry[OUT_CHANNEL]
        for t in unroll(range(TAPS)):
            w[t] = broadcast(weight[o * TAPS + t], LANES)
        constant[0] = broadcast(bias[o], LANES)
        if IS_NARROW:
            column(source, w, constant, to, 0, first, last, geometry, NARROW, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)
        else:
            i = (geometry[OUT_WIDTH] - 1) // LANES * LANES
            while i > 0:
                if TAPS <= MOST_INSIDE and i * STEP_X + REACH <= geometry[WIDTH]:
                    column(source, w, constant, to, i, first, last, geometry, MIDDLE, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)
                else:
                    column(source, w, constant, to, i, first, last, geometry, RIGHT, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)
                i -= LANES
            column(source, w, constant, to, 0, first, last, geometry, LEFT, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)


def parity_column(x, w, constant, out, i, first, last, geometry, EDGE, TAPS_Y, TAPS_X, STEP_Y, PAD_Y, PAD, LANES):
    """Rows ``first ... last - 1`` of two vectors of results, those at even and at odd places; `first` is a multiple of STEP_Y."""
    KIND = widened(x)
    LOW, HIGH = -((TAPS_X - 1 - PAD) // 2), (1 + PAD) // 2      # elements that these places see, from their own on
    ABOVE_Y, BELOW_Y = -((TAPS_Y - 1 - PAD_Y) // STEP_Y), (STEP_Y - 1 + PAD_Y) // STEP_Y
    acc = local(vector(KIND, LANES), 2 * STEP_Y)
    v = local(vector(KIND, LANES), HIGH - LOW + 1)
    height, width, made, step = geometry[HEIGHT], geometry[WIDTH], geometry[OUT_WIDTH], geometry[OUT_ROW]
    safe = last * step - LANES
    for k in rolled(range(first // STEP_Y, (last + (STEP_Y - 1)) // STEP_Y)):
        for m in unroll(range(2 * STEP_Y)):
            acc[m] = constant[0]
        for e in unroll(range(ABOVE_Y, BELOW_Y + 1)):
            r = k + e
            if (r >= 0) & (r < height):
                windows(v, x + r * geometry[ROW], i, width, width, EDGE, HIGH - LOW + 1, 1, 1, -LOW, LANES)
                for d in unroll(range(STEP_Y)):
                    for p in unroll(range(2)):
                        for s in unroll(range(TAPS_X)):
                            if 0 <= d + PAD_Y - e * STEP_Y < TAPS_Y and (p + PAD - s) % 2 == 0:
                                acc[2 * d + p] = multiply_add(v[(p + PAD - s) // 2 - LOW],
                                                     w[(d + PAD_Y - e * STEP_Y) * TAPS_X + s], acc[2 * d + p])  # fmt: skip
        for d in unroll(range(STEP_Y)):
            if k * STEP_Y + d < last:
                at = (k * STEP_Y + d) * step + 2 * i
                even, odd = acc[2 * d], acc[2 * d + 1]
                finish(out, at, shuffle(even, odd, PAIRS[LANES][0]), safe, made - 2 * i, LANES)
                finish(out, at + LANES, shuffle(even, odd, PAIRS[LANES][1]), safe, made - 2 * i - LANES, LANES)


# For each count of lanes, the two halves of two vectors whose elements take turns.
PAIRS = {n: tuple(tuple(k // 2 + k % 2 * n for k in range(h * n, (h + 1) * n)) for h in range(2)) for n in (2, 4, 8, 16)}


@kernel(in_vectors=True)
def spread(chunk, x, weight, bias, out, geometry, *, TAPS_Y, TAPS_X, STEP_Y, PAD_Y, PAD, IS_NARROW):
    KIND = widened(weight)
    LANES = lanes(KIND)
    TAPS = TAPS_Y * TAPS_X
    w = local(vector(KIND, LANES), TAPS)
    constant = local(vector(KIND, LANES), 1)
    begin = chunk * geometry[PER_CHUNK]
    for band in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[BANDS]))):
        plane, image, o, first, last = rows_of(band, geometry)
        source = x + (image * geometry[IMAGE] + o * geometry[CHANNEL])
        to = out + plane * geometry[OUT_CHANNEL]
        for t in unroll(range(TAPS)):
            w[t] = broadcast(weight[o * TAPS + t], LANES)
        constant[0] = broadcast(bias[o], LANES)
        if IS_NARROW:
            parity_column(source, w, constant, to, 0, first, last, geometry, NARROW, TAPS_Y, TAPS_X, STEP_Y, PAD_Y, PAD, LANES)
        else:
            i = (geometry[OUT_WIDTH] - 1) // (2 * LANES) * LANES
            while i > 0:
                if TAPS <= MOST_INSIDE and i + (1 + PAD) // 2 + LANES <= geometry[WIDTH]:
                    parity_column(source, w, constant, to, i, first, last, geometry, MIDDLE, TAPS_Y, TAPS_X, STEP_Y, PAD_Y, PAD, LANES)
                else:
                    parity_column(source, w, constant, to, i, first, last, geometry, RIGHT, TAPS_Y, TAPS_X, STEP_Y, PAD_Y, PAD, LANES)
                i -= LANES
            parity_column(source, w, constant, to, 0, first, last, geometry, LEFT, TAPS_Y, TAPS_X, STEP_Y, PAD_Y, PAD, LANES)


def weight_column(x, y, sums, i, first, last, geometry, EDGE, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES):
    """Add to ``sums[tap]`` what rows ``first ... last - 1`` of one vector of the gradient have to say."""
    KIND = widened(x)
    DEEP = (TAPS_Y - 1) * DILATION // STEP_Y + 1
    acc = local(vector(KIND, LANES), TAPS_Y * TAPS_X)
    v, g = local(vector(KIND, LANES), TAPS_X), local(vector(KIND, LANES), DEEP)
    height, width, made = geometry[HEIGHT], geometry[WIDTH], geometry[OUT_WIDTH]
    for t in unroll(range(TAPS_Y * TAPS_X)):
        acc[t] = broadcast(KIND(0), LANES)
    for m in unroll(range(DEEP)):
        g[m] = broadcast(KIND(0), LANES)
    r = first * STEP_Y - geometry[ABOVE]
    for k in rolled(range(first, last + (DEEP - 1))):
        if k < last:
            side = y + (k * geometry[OUT_ROW] + i)
            if EDGE == MIDDLE:
                g[0] = load(side, 0, LANES)
            else:
                g[0] = load(side, 0, LANES, made - i)
            if EDGE != NARROW:
                prefetch(side + geometry[OUT_AHEAD])
        for q in unroll(range(STEP_Y)):
            line = x + r * geometry[ROW]
            if (r >= 0) & (r < height):
                windows(v, line, i, width, STEP_X * made - PAD, EDGE, TAPS_X, STEP_X, DILATION, PAD, LANES)
                if EDGE != NARROW:
                    prefetch(line + (STEP_X * i + geometry[AHEAD]))
            else:
                for s in unroll(range(TAPS_X)):
                    v[s] = broadcast(KIND(0), LANES)
            # Where there is no row of the gradient nothing is added, not even zero times what may be infinite.
            for t in unroll(range(TAPS_Y)):
                if t * DILATION % STEP_Y == q:
                    m = t * DILATION // STEP_Y
                    if (k - m >= first) & (k - m < last):
                        for s in unroll(range(TAPS_X)):
                            acc[t * TAPS_X + s] = multiply_add(v[s], g[m], acc[t * TAPS_X + s])
            r += 1
        for m in unroll(range(DEEP - 1, 0, -1)):
            g[m] = g[m - 1]
    for t in unroll(range(TAPS_Y * TAPS_X)):
        store(sums, t * LANES, load(sums, t * LANES, LANES) + acc[t])


@kernel(in_vectors=True)
def depthwise_rows_weight(chunk, x, y, made, geometry, *, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, IS_NARROW):
    KIND = widened(made)
    LANES = lanes(KIND)
    TAPS = TAPS_Y * TAPS_X
    REACH = (LANES + (TAPS_X - 1) * DILATION // STEP_X) * STEP_X - PAD
    sums = local(KIND, TAPS * LANES)
    for t in unroll(range(TAPS)):
        store(sums, t * LANES, broadcast(KIND(0), LANES))
    part = chunk // geometry[OUTPUTS]
    o = chunk - part * geometry[OUTPUTS]
    begin = part * geometry[PER_CHUNK]
    for band in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[BANDS]))):
        image = band // geometry[OF_PLANE]
        first = (band - image * geometry[OF_PLANE]) * geometry[ROWS]
        last = min(first + geometry[ROWS], geometry[OUT_HEIGHT])
        source = x + (image * geometry[IMAGE] + o // geometry[MULTIPLE] * geometry[CHANNEL])
        side = y + (image * geometry[OUT_IMAGE] + o * geometry[OUT_CHANNEL])
        if IS_NARROW:
            weight_column(source, side, sums, 0, first, last, geometry, NARROW, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)
        else:
            i = (geometry[OUT_WIDTH] - 1) // LANES * LANES
            while i > 0:
                if TAPS <= MOST_INSIDE and (i * STEP_X + REACH <= geometry[WIDTH]) & (i + LANES <= geometry[OUT_WIDTH]):
                    weight_column(source, side, sums, i, first, last, geometry, MIDDLE, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD,
                                  LANES)  # fmt: skip
                else:
                    weight_column(source, side, sums, i, first, last, geometry, RIGHT, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)
                i -= LANES
            weight_column(source, side, sums, 0, first, last, geometry, LEFT, TAPS_Y, TAPS_X, STEP_Y, STEP_X, DILATION, PAD, LANES)
    for t in unroll(range(TAPS)):
        made[chunk * TAPS + t] = lane_sum(load(sums, t * LANES, LANES))


class Axis(NamedTuple):
    """One axis of a map: extents of the source and of the results, taps, step and zeros before."""

    size: int
    made: int
    taps: int
    step: int
    pad: int
    dilation: int


def axes_of(sizes: Ints, made: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> tuple[Axis, Axis]:
    """Both axes of source; of sequences, which are source of one row."""
    both = [Axis(*facts) for facts in zip(sizes, made, kernel_size, stride, padding, dilation, strict=True)]
    return (Axis(1, 1, 1, 1, 0, dilation[0]), both[0]) if len(both) == 1 else (both[0], both[1])


def pays(x: Any, made: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, transposed: bool = False,
         most: int = MOST_TAPS) -> bool:  # fmt: skip
    """Whether these kernels compute the map, by shapes."""
    if len(made) > 2 or not min(made):
        return False
    axes = axes_of(x.shape[2:], made, kernel_size, stride, padding, dilation)
    if len(set(dilation)) > 1 or any(a.step > 2 or (a.step > 1 or transposed) and a.dilation > 1 for a in axes):
        return False
    spans = [(a.taps - 1) * a.dilation for a in axes]
    fits = all(0 <= a.pad <= span for a, span in zip(axes, spans, strict=True)) and spans[0] <= MOST_ROWS
    return fits and axes[0].taps * axes[1].taps <= most and spans[1] < lane_count(x.dtype) and (axes[1].step == 2 or not transposed)


def pays_for_weight(x: Any, y: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> bool:
    """The same of the gradient of the weight."""
    return x.dtype == y.dtype and pays(x, y.shape[2:], kernel_size, stride, padding, dilation, most=MOST_WEIGHT_TAPS)


def lane_count(dtype: np.dtype) -> int:
    """Lanes of what `dtype` is computed in."""
    return llvm.machine().register_bits // (8 * max(4, dtype.itemsize))


def in_rows(a: Any) -> Any:
    """`a` with the elements of each row one behind the other."""
    return a if a.strides[-1] == a.itemsize else planar(a)


def _strides(a: Any) -> tuple[int, int, int]:
    """Elements from one image, channel and row to the next."""
    return a.strides[0] // a.itemsize, a.strides[1] // a.itemsize, a.strides[2] // a.itemsize if a.ndim == 4 else 0


def _geometry(x: Any, y_axis: Axis, x_axis: Axis, outputs: int, steps: tuple[int, int, int], transposed: bool,
              units: int) -> tuple[int, np.ndarray]:  # fmt: skip
    """Chunks and geometry.

    Args:
        steps: elements from one image, channel and row of the results, or of their gradient, to the next.
        units: source that a chunk can be cut from, and that are behind each other: all of them, or the images of a channel.
    """
    rows = min(y_axis.made, max(8, BAND // x_axis.made // 2 * 2))
    of_plane = -(-y_axis.made // rows)
    bands = units * of_plane
    image, channel, row = _strides(x)
    each = units > len(x) or outputs == 1
    here, there = (channel, steps[1]) if each else (image, steps[0])
    if of_plane > 1:
        here, there = (rows // y_axis.step if transposed else rows * y_axis.step) * row, rows * steps[2]
    per_chunk = max(1, CHUNK // (rows * x_axis.made))
    return -(-bands // per_chunk), np.array([
        bands, per_chunk, of_plane, rows, outputs // x.shape[1], outputs, image, channel, row, y_axis.size, x_axis.size,
        y_axis.pad, here, *steps, y_axis.made, x_axis.made, there,
    ])  # fmt: skip


_INT64 = np.dtype(np.int64)


class Correlation:
    """`convolve` or, `transposed`, `convolve_input` of arrays like `x` and `w`, to results of extents `made`."""

    def __init__(self, x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints,
                 transposed: bool = False) -> None:  # fmt: skip
        y_axis, x_axis = axes_of(x.shape[2:], made, w.shape[2:], stride, padding, dilation)
        x, outputs = in_rows(x), len(w)
        self.kind, self.dtype, self.shape = np.dtype(np.float32) if x.itemsize == 2 else x.dtype, x.dtype, (len(x), outputs, *made)
        plane = y_axis.made * x_axis.made
        steps = outputs * plane, plane, x_axis.made
        self.chunks, self.geometry = _geometry(x, y_axis, x_axis, outputs, steps, transposed, len(x) * outputs)
        self.constants = np.zeros(outputs, self.kind)
        width = lane_count(x.dtype)
        narrow = x_axis.size <= width and x_axis.made <= width * (x_axis.step if transposed else 1)
        sizes = {"TAPS_Y": y_axis.taps, "TAPS_X": x_axis.taps, "STEP_Y": y_axis.step}
        sizes |= {"PAD_Y": y_axis.pad} if transposed else {"STEP_X": x_axis.step, "DILATION": x_axis.dilation}
        self.run = (spread if transposed else depthwise_rows).form((x.dtype, self.kind, self.kind, x.dtype, _INT64),
                                                          {**sizes, "PAD": x_axis.pad, "IS_NARROW": narrow})  # fmt: skip

    def __call__(self, x: Any, w: Any, bias: Any) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        constants = self.constants if bias is None else np.ascontiguousarray(bias, self.kind)
        self.run(self.chunks, False, in_rows(x), np.ascontiguousarray(w, self.kind), constants, out, self.geometry)
        return out


class Gradient:
    """`convolve_weight` of arrays like `x` and `y`."""

    def __init__(self, x: Any, y: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> None:
        x, y = in_rows(x), in_rows(y)
        y_axis, x_axis = axes_of(x.shape[2:], y.shape[2:], kernel_size, stride, padding, dilation)
        self.kind, self.dtype, self.outputs = np.dtype(np.float32) if x.itemsize == 2 else x.dtype, x.dtype, y.shape[1]
        self.kernel_size = kernel_size
        _, self.geometry = _geometry(x, y_axis, x_axis, self.outputs, _strides(y), False, len(x))
        bands = int(self.geometry[BANDS])
        per_chunk = -(-bands // min(bands, -(-ENOUGH // self.outputs)))
        self.geometry[PER_CHUNK] = per_chunk
        self.parts = -(-bands // per_chunk)
        width = lane_count(x.dtype)
        narrow = x_axis.size <= width and x_axis.made <= width
        self.run = depthwise_rows_weight.form(
            (x.dtype, y.dtype, self.kind, _INT64),
            {"TAPS_Y": y_axis.taps, "TAPS_X": x_axis.taps, "STEP_Y": y_axis.step, "STEP_X": x_axis.step,
             "DILATION": x_axis.dilation, "PAD": x_axis.pad, "IS_NARROW": narrow},
        )  # fmt: skip

    def __call__(self, x: Any, y: Any) -> np.ndarray:
        made = np.empty((self.parts, self.outputs, 1, *self.kernel_size), self.kind)
        self.run(self.parts * self.outputs, False, in_rows(x), in_rows(y), made, self.geometry)
        total = made[0] if self.parts == 1 else np.add.reduce(made, axis=0)
        return total.astype(self.dtype, copy=False)
