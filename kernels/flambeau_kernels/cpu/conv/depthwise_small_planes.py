"""Convolutions of single channels over small planes, whose rows leave most of a vector empty: vectors along channels.

The planes of as many channels as a vector has lanes are transposed in registers to ``[position][channel]``, computed as images
with their channels last are (`depthwise_channels_last.py`), a whole row of results at a time, and transposed back. Sums go over taps in
the same order, and only over those that are inside the plane.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import kernel, lanes, local, outlined, rolled, widened

from ..recurrent.steps import transpose_square
from .depthwise_channels_last import MOST_TAPS, full_row, is_narrow, room
from .depthwise_rows import lane_count
from .walk import Ints

# Positions of a plane, taps, images of a chunk.
MOST_POSITIONS, MOST_OF_KERNEL, IMAGES = 256, 49, 4


def to_lanes(source, count, to, KIND):
    """`count` numbers of each of as many rows as a vector has lanes: ``to[number][row]``; no fewer than lanes."""
    N = lanes(KIND)
    j = 0
    while j < count:
        at = min(j, count - N)                        # the last ones lie at the end, over some that are moved twice
        outlined(transpose_square)(source + at, count, to + at * N, N, KIND)
        j += N


def from_lanes(source, to, count, KIND):
    """The reverse."""
    N = lanes(KIND)
    j = 0
    while j < count:
        at = min(j, count - N)
        outlined(transpose_square)(source + at * N, N, to + at, count, KIND)
        j += N


@kernel(in_vectors=True)
def depthwise_small_planes(
    chunk, x, weight, bias, out, groups, images, channels, height, out_height, taps_y, pad_y, *, WIDTH, MADE, TAPS, PAD,
    ROOM,
):  # fmt: skip
    KIND = widened(bias)
    N = lanes(KIND)
    weights, source, made = local(KIND, MOST_OF_KERNEL * N), local(KIND, MOST_POSITIONS * N), local(KIND, MOST_POSITIONS * N)
    part = chunk // groups
    c = (chunk - part * groups) * N
    taps = taps_y * TAPS
    given = weight + c * taps
    if taps < N:
        for r in rolled(range(N)):
            for k in rolled(range(taps)):
                weights[k * N + r] = given[r * taps + k]
    else:
        to_lanes(given, taps, weights, KIND)
    for image in rolled(range(part * IMAGES, min(images, part * IMAGES + IMAGES))):
        to_lanes(x + (image * channels + c) * (height * WIDTH), height * WIDTH, source, KIND)
        for y in rolled(range(out_height)):
            first, last = max(pad_y - y, 0), min(height + pad_y - y, taps_y)
            full_row(source, weights, bias + c, made + y * (MADE * N), y - pad_y, first, last, N, WIDTH, MADE, TAPS, PAD, ROOM)
        from_lanes(made, out + (image * channels + c) * (out_height * MADE), out_height * MADE, KIND)


def pays(x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints) -> bool:
    """Whether this computes the map, by shapes: measured where a row fills less than a vector."""
    if x.ndim != 4 or len(w) != x.shape[1] or not x.flags.c_contiguous or max(*stride, *dilation) > 1 or min(padding) < 0:
        return False
    fits = w.shape[3] <= MOST_TAPS and prod(w.shape[2:]) <= MOST_OF_KERNEL and is_narrow(x.shape[3], made[1])
    count, positions = lane_count(x.dtype), (prod(x.shape[2:]), prod(made))
    return fits and x.shape[1] % count == 0 and count <= min(positions) and max(positions) <= MOST_POSITIONS


class Correlation:
    """`convolve` of arrays like `x` and `w` to results of extents `made`."""

    def __init__(self, x: Any, w: Any, made: Ints, padding: Ints) -> None:
        n, c, height, width = x.shape
        self.kind, self.dtype, self.shape = np.dtype(np.float32) if x.itemsize == 2 else x.dtype, x.dtype, (n, c, *made)
        groups = c // lane_count(x.dtype)
        self.chunks = groups * -(-n // IMAGES)
        self.numbers = groups, n, c, height, made[0], w.shape[2], padding[0]
        self.constants = np.zeros(c, self.kind)
        constants = {"WIDTH": width, "MADE": made[1], "TAPS": w.shape[3], "PAD": padding[1], "ROOM": room(made[1], w.shape[3])}
        self.run = depthwise_small_planes.form((x.dtype, self.kind, self.kind, x.dtype, *(int,) * 7), constants)

    def __call__(self, x: Any, w: Any, bias: Any) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        constants = self.constants if bias is None else np.ascontiguousarray(bias, self.kind)
        self.run(self.chunks, False, x, np.ascontiguousarray(w, self.kind), constants, out, *self.numbers)
        return out
