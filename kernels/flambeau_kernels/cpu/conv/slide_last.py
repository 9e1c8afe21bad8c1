"""Convolutions of single channels whose images have their channels last in memory: vectors along channels.

The results of ACROSS neighbouring positions are computed together, so that weights, ``[tap][channel]``, are read once for them.
Sums go over taps in the order of `slide.py`, so that a layout does not change results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
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
from flambeau_kernels.vocabulary import fma

from ..layout import is_last
from .slide import lane_count
from .walk import Ints

# Positions computed together, and elements of a chunk.
ACROSS, CHUNK = 4, 1 << 14
# Slots of the geometry: channels; rows of results of all images, of a chunk and of an image; and for both axes extent, that
# of the results, taps, step, zeros before and dilation.
(CHANNELS, ROWS, PER_CHUNK, OUT_HEIGHT, HEIGHT, TAPS_Y, STEP_Y, PAD_Y, DILATION_Y,
 WIDTH, OUT_WIDTH, TAPS_X, STEP_X, PAD_X, DILATION_X) = range(15)  # fmt: skip


def positions(image, weight, bias, out, y, x, c, geometry, COUNT, INSIDE, LANES):
    """One vector of channels of COUNT positions of a row, all of whose windows are INSIDE the image or not."""
    KIND = widened(image)
    acc = local(vector(KIND, LANES), COUNT)
    channels, width = geometry[CHANNELS], geometry[WIDTH]
    for b in unroll(range(COUNT)):
        acc[b] = load(bias, c, LANES)
    for t in rolled(range(geometry[TAPS_Y])):
        r = y * geometry[STEP_Y] + t * geometry[DILATION_Y] - geometry[PAD_Y]
        inside = (r >= 0) & (r < geometry[HEIGHT])
        line = image + (r * width * channels + c)
        for s in rolled(range(geometry[TAPS_X])):
            w = load(weight, (t * geometry[TAPS_X] + s) * channels + c, LANES)
            first = x * geometry[STEP_X] + s * geometry[DILATION_X] - geometry[PAD_X]
            for b in unroll(range(COUNT)):
                at = first + b * geometry[STEP_X]
                if INSIDE:
                    acc[b] = fma(load(line, at * channels, LANES), w, acc[b])
                else:
                    here = LANES if inside & (at >= 0) & (at < width) else 0
                    acc[b] = fma(load(line, at * channels, LANES, here), w, acc[b])
    for b in unroll(range(COUNT)):
        store(out, b * channels + c, acc[b])


@kernel(in_vectors=True)
def slide_last(chunk, x, weight, bias, out, geometry):
    LANES = lanes(widened(weight))
    channels, made = geometry[CHANNELS], geometry[OUT_WIDTH]
    begin = chunk * geometry[PER_CHUNK]
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        image = row // geometry[OUT_HEIGHT]
        y = row - image * geometry[OUT_HEIGHT]
        source = x + image * geometry[HEIGHT] * geometry[WIDTH] * channels
        top = y * geometry[STEP_Y] - geometry[PAD_Y]
        rows_inside = (top >= 0) & (top + (geometry[TAPS_Y] - 1) * geometry[DILATION_Y] < geometry[HEIGHT])
        reach = (ACROSS - 1) * geometry[STEP_X] + (geometry[TAPS_X] - 1) * geometry[DILATION_X]
        j = 0
        while j < made:
            to = out + (row * made + j) * channels
            left = j * geometry[STEP_X] - geometry[PAD_X]
            if (j + ACROSS <= made) & rows_inside & (left >= 0) & (left + reach < geometry[WIDTH]):
                for c in rolled(range(0, channels, LANES)):
                    positions(source, weight, bias, to, y, j, c, geometry, ACROSS, True, LANES)
                j += ACROSS
            else:
                for c in rolled(range(0, channels, LANES)):
                    positions(source, weight, bias, to, y, j, c, geometry, 1, False, LANES)
                j += 1


def pays(x: Any, w: Any) -> bool:
    """Whether `x` is laid out like that and channels fill vectors."""
    return len(w) == x.shape[1] and x.ndim == 4 and x.shape[1] % lane_count(x.dtype) == 0 and is_last(x)


class Sliding:
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
        self.run = slide_last.form((x.dtype, self.kind, self.kind, x.dtype, np.dtype(np.int64)), {})

    def __call__(self, x: Any, w: Any, bias: Any) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        weights = np.ascontiguousarray(w.reshape(len(w), -1).T, self.kind)
        constants = self.constants if bias is None else np.ascontiguousarray(bias, self.kind)
        self.run(self.chunks, False, x, weights, constants, out, self.geometry)
        return out.transpose(0, 3, 1, 2)
