"""Convolutions of single channels whose images have their channels last in memory: vectors along channels.

The results of some neighbouring positions, or of a whole row of a narrow image, are computed together, so that weights,
``[tap][channel]``, are read once for them.
Sums go over taps in the order of `depthwise_rows.py`, so that a layout does not change results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    kernel,
    lanes,
    load,
    local,
    multiply_add,
    rolled,
    store,
    unroll,
    vector,
    widened,
)

from ..register_tiles import registers
from ..shapes.order import is_last
from .depthwise_rows import lane_count
from .walk import Ints

CHUNK = 1 << 14                                       # elements
MOST_TAPS = 7                                         # along x, for which there is a text of their own
# Slots of the geometry: channels; rows of results of all images, of a chunk and of an image; and for both axes extent, that
# of the results, taps, step, zeros before and dilation.
(CHANNELS, ROWS, PER_CHUNK, OUT_HEIGHT, HEIGHT, TAPS_Y, STEP_Y, PAD_Y, DILATION_Y,
 WIDTH, OUT_WIDTH, TAPS_X, STEP_X, PAD_X, DILATION_X) = range(15)  # fmt: skip


def taps_of_rows(y, geometry):
    """The taps along y whose rows are inside the image: the first, and the one after the last."""
    top, by = geometry[PAD_Y] - y * geometry[STEP_Y], geometry[DILATION_Y]
    first = (max(top, 0) + by - 1) // by
    last = (max(geometry[HEIGHT] + top, 0) + by - 1) // by
    return first, min(last, geometry[TAPS_Y])


def together(image, weight, bias, out, y, x, first, last, geometry, COUNT, TAPS, FLAT):
    """A vector of channels of COUNT positions of a row, whose windows are inside the image along x; taps along y from `first` to `last`."""
    KIND = widened(bias)
    N = lanes(KIND)
    channels, step, dilation = geometry[CHANNELS], geometry[STEP_X] * geometry[CHANNELS], geometry[DILATION_X] * geometry[CHANNELS]
    start = (x * geometry[STEP_X] - geometry[PAD_X]) * channels
    acc = local(vector(KIND, N), COUNT)
    for B in unroll(range(COUNT)):
        acc[B] = load(bias, 0, N)
    for t in rolled(range(first, last)):
        r = y * geometry[STEP_Y] + t * geometry[DILATION_Y] - geometry[PAD_Y]
        line, w = image + (r * geometry[WIDTH] * channels + start), weight + t * geometry[TAPS_X] * channels
        if TAPS == 0:
            for s in rolled(range(geometry[TAPS_X])):
                times = load(w, s * channels, N)
                for B in unroll(range(COUNT)):
                    acc[B] = multiply_add(load(line, s * dilation + B * step, N), times, acc[B])
        elif FLAT:
            # Each element is read once, for all the windows that it is in.
            held = local(vector(KIND, N), TAPS)
            for S in unroll(range(TAPS)):
                held[S] = load(w, S * channels, N)
            for D in unroll(range(COUNT + TAPS - 1)):
                value = load(line, D * channels, N)
                for S in unroll(range(TAPS)):
                    if D - S >= 0 and D - S < COUNT:
                        acc[D - S] = multiply_add(value, held[S], acc[D - S])
        else:
            for S in unroll(range(TAPS)):
                times = load(w, S * channels, N)
                for B in unroll(range(COUNT)):
                    acc[B] = multiply_add(load(line, S * dilation + B * step, N), times, acc[B])
    for B in unroll(range(COUNT)):
        store(out, B * channels, acc[B])


def full_row(image, weight, bias, out, y, first, last, channels, WIDTH, MADE, TAPS, PAD, ROOM):
    """A vector of channels of all MADE results of a row, ROOM of them at a time, at step 1, of images WIDTH wide.

    Args:
        y: the row that the first tap along y reads; taps along y go from `first` to `last`.
    """
    for BEGIN in unroll(range(0, MADE, ROOM)):
        COUNT = min(ROOM, MADE - BEGIN)
        part_of_row(image, weight, bias, out + BEGIN * channels, y, first, last, channels, WIDTH, COUNT, TAPS, PAD - BEGIN)


def part_of_row(image, weight, bias, out, y, first, last, channels, WIDTH, COUNT, TAPS, PAD):
    """Each element is read once for all the results that it belongs to."""
    KIND = widened(bias)
    N = lanes(KIND)
    acc, held = local(vector(KIND, N), COUNT), local(vector(KIND, N), TAPS)
    for B in unroll(range(COUNT)):
        acc[B] = load(bias, 0, N)
    for t in rolled(range(first, last)):
        line, w = image + (y + t) * WIDTH * channels, weight + t * TAPS * channels
        for S in unroll(range(TAPS)):
            held[S] = load(w, S * channels, N)
        for D in unroll(range(max(0, -PAD), min(WIDTH, COUNT + TAPS - 1 - PAD))):
            value = load(line, D * channels, N)
            for S in unroll(range(TAPS)):
                if D + PAD - S >= 0 and D + PAD - S < COUNT:
                    acc[D + PAD - S] = multiply_add(value, held[S], acc[D + PAD - S])
    for B in unroll(range(COUNT)):
        store(out, B * channels, acc[B])


def at_the_edge(image, weight, bias, out, y, x, first, last, geometry):
    """All channels of one position, whose window may reach out of the image along x."""
    N = lanes(widened(bias))
    channels, by = geometry[CHANNELS], geometry[DILATION_X]
    left = geometry[PAD_X] - x * geometry[STEP_X]
    begin = (max(left, 0) + by - 1) // by
    end = min((max(geometry[WIDTH] + left, 0) + by - 1) // by, geometry[TAPS_X])
    c = 0
    for VECTORS in unroll((4, 1)):                    # sums that are independent of each other
        while c + VECTORS * N <= channels:
            edge_of(image + c, weight + c, bias + c, out + c, y, left, first, last, begin, end, geometry, VECTORS)
            c += VECTORS * N
    if c < channels:
        # The last vector lies at the end, over channels that are made twice.
        c = channels - N
        edge_of(image + c, weight + c, bias + c, out + c, y, left, first, last, begin, end, geometry, 1)


def edge_of(image, weight, bias, out, y, left, first, last, begin, end, geometry, VECTORS):
    """Some vectors of channels of `at_the_edge`, of the taps from `begin` to `end` of those rows."""
    KIND = widened(bias)
    N = lanes(KIND)
    channels, by = geometry[CHANNELS], geometry[DILATION_X]
    acc = local(vector(KIND, N), VECTORS)
    for V in unroll(range(VECTORS)):
        acc[V] = load(bias, V * N, N)
    for t in rolled(range(first, last)):
        r = y * geometry[STEP_Y] + t * geometry[DILATION_Y] - geometry[PAD_Y]
        line, w = image + r * geometry[WIDTH] * channels, weight + t * geometry[TAPS_X] * channels
        for s in rolled(range(begin, end)):
            for V in unroll(range(VECTORS)):
                acc[V] = multiply_add(load(line, (s * by - left) * channels + V * N, N), load(w, s * channels + V * N, N), acc[V])
    for V in unroll(range(VECTORS)):
        store(out, V * N, acc[V])


@kernel(in_vectors=True)
def depthwise_channels_last(chunk, x, weight, bias, out, geometry, *, TAPS, FLAT, ACROSS, ROW):
    N = lanes(widened(bias))
    channels, made = geometry[CHANNELS], geometry[OUT_WIDTH]
    begin = chunk * geometry[PER_CHUNK]
    # The positions whose windows are inside the image along x.
    reach = (geometry[TAPS_X] - 1) * geometry[DILATION_X]
    inside = min((max(geometry[PAD_X], 0) + geometry[STEP_X] - 1) // geometry[STEP_X], made)
    left = geometry[WIDTH] + geometry[PAD_X] - reach
    outside = inside
    if left > 0:
        outside = max(inside, min((left - 1) // geometry[STEP_X] + 1, made))
    if outside - inside < ACROSS:
        outside = inside
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        image = row // geometry[OUT_HEIGHT]
        y = row - image * geometry[OUT_HEIGHT]
        source, to = x + image * geometry[HEIGHT] * geometry[WIDTH] * channels, out + row * made * channels
        first, last = taps_of_rows(y, geometry)
        if ROW:
            IN_ROW, MADE, PAD, ROOM = ROW
            for v in rolled(range(0, channels, N)):
                c = min(v, channels - N)              # the last vector lies at the end, over channels that are made twice
                w, b = weight + c, bias + c
                full_row(source + c, w, b, to + c, y - geometry[PAD_Y], first, last, channels, IN_ROW, MADE, TAPS, PAD, ROOM)
        else:
            # All channels of some positions, then of the next: these lie one after the other, and not all in the same sets of the cache.
            for j in rolled(range(inside)):
                at_the_edge(source, weight, bias, to + j * channels, y, j, first, last, geometry)
            for j in rolled(range(inside, outside, ACROSS)):
                # The last ones together may be made twice, to the same bits.
                here = min(j, outside - ACROSS)
                for v in rolled(range(0, channels, N)):
                    c = min(v, channels - N)
                    w, b = weight + c, bias + c
                    together(source + c, w, b, to + (here * channels + c), y, here, first, last, geometry, ACROSS, TAPS, FLAT)
            for j in rolled(range(outside, made)):
                at_the_edge(source, weight, bias, to + j * channels, y, j, first, last, geometry)


def pays(x: Any, w: Any) -> bool:
    """Whether `x` is laid out like that and channels fill a vector."""
    return len(w) == x.shape[1] and x.ndim == 4 and x.shape[1] >= lane_count(x.dtype) and is_last(x)


def is_narrow(width: int, made: int) -> bool:
    """Whether rows are computed as a whole; where they fill a vector, there are as fast ways."""
    return max(width, made) < 16


def room(made: int, taps: int) -> int:
    """As many results of a row as there are registers for beside its taps and an element, or less, so that parts are about equal."""
    parts = -(-made // (registers()[1] - taps - 1))
    return -(-made // parts)


class Correlation:
    """`convolve` of arrays like `x` and `w` to results of extents `made`, whose channels are last too; padding may be negative."""

    def __init__(self, x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints) -> None:
        n, c = x.shape[:2]
        self.kind, self.dtype, self.shape = np.dtype(np.float32) if x.itemsize == 2 else x.dtype, x.dtype, (n, *made, c)
        per_chunk = max(1, CHUNK // (made[1] * c))
        self.chunks = -(-n * made[0] // per_chunk)
        axes = zip(x.shape[2:], made, w.shape[2:], stride, padding, dilation, strict=True)
        (height, out_height, *of_y), of_x = axes
        self.geometry = np.array([c, n * made[0], per_chunk, out_height, height, *of_y, *of_x])
        self.constants = np.zeros(c, self.kind)
        taps = w.shape[3] if w.shape[3] <= MOST_TAPS else 0
        flat = bool(taps) and stride[1] == dilation[1] == 1
        full = flat and max(*stride, *dilation) == 1 and is_narrow(x.shape[3], made[1])
        constants = {"TAPS": taps, "FLAT": flat, "ACROSS": 8 if lane_count(self.kind) > 8 else 6,
                     "ROW": (x.shape[3], made[1], padding[1], room(made[1], taps)) if full else ()}  # fmt: skip
        self.run = depthwise_channels_last.form((x.dtype, self.kind, self.kind, x.dtype, np.dtype(np.int64)), constants)

    def __call__(self, x: Any, w: Any, bias: Any) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        weights = np.ascontiguousarray(w.reshape(len(w), -1).T, self.kind)
        constants = self.constants if bias is None else np.ascontiguousarray(bias, self.kind)
        self.run(self.chunks, False, x, weights, constants, out, self.geometry)
        return out.transpose(0, 3, 1, 2)
