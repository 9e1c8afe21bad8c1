"""3 x 3 convolutions at step 1 by tiles, F(2 x 2, 3 x 3), whose products are whole matrix products: see `winograd.py`.

With the channels last, transforms run along channels, so they are as good for images of 4 x 4 as for large ones, and the
products over the 16 places of a tile are one batched `matmul`. The gradient of the weight has the same form, as F(3 x 3, 2 x 2):
a tile of 2 x 2 gradients e and the 4 x 4 elements d below it contribute ``G' [(B' d B) * (A e A')] G``, and the sum over tiles is the
matrix product. In three dimensions the elements of each slice of the kernel are a shift along the first axis.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    store,
    unroll,
    vector,
    widened,
)

from ..matmul import matmul
from .last import Frame
from .walk import Ints

# Elements a chunk transforms, and bytes of transformed arrays at a time.
CHUNK, BLOCK_BYTES = 1 << 14, 12 << 20
TILES, PER_CHUNK, ACROSS, DOWN, ROW, SLICE, IMAGE, SLICES, WIDE = range(9)


def begin_of(tile, geometry):
    """Elements before the first one of a tile."""
    row = tile // geometry[ACROSS]
    number = row // geometry[DOWN]
    image = number // geometry[SLICES]
    z = number - image * geometry[SLICES]
    y, x = row - number * geometry[DOWN], tile - row * geometry[ACROSS]
    return image * geometry[IMAGE] + z * geometry[SLICE] + 2 * y * geometry[ROW] + 2 * x * geometry[WIDE]


@kernel(in_vectors=True)
def transform_elements(chunk, source, made, geometry):
    """``B' d B`` of each tile: ``made[place][tile][channel]``."""
    KIND = widened(made)
    LANES = lanes(KIND)
    d, t = local(vector(KIND, LANES), 16), local(vector(KIND, LANES), 16)
    wide, row = geometry[WIDE], geometry[ROW]
    step = geometry[TILES] * wide
    first = chunk * geometry[PER_CHUNK]
    for tile in range(first, min(first + geometry[PER_CHUNK], geometry[TILES])):
        line, to = source + begin_of(tile, geometry), made + tile * wide
        for c in range(0, wide, LANES):
            for i in unroll(range(4)):
                for j in unroll(range(4)):
                    d[4 * i + j] = load(line, i * row + j * wide + c, LANES)
            for j in unroll(range(4)):
                t[j] = d[j] - d[8 + j]
                t[4 + j] = d[4 + j] + d[8 + j]
                t[8 + j] = d[8 + j] - d[4 + j]
                t[12 + j] = d[4 + j] - d[12 + j]
            for i in unroll(range(4)):
                store(to, 4 * i * step + c, t[4 * i] - t[4 * i + 2])
                store(to, (4 * i + 1) * step + c, t[4 * i + 1] + t[4 * i + 2])
                store(to, (4 * i + 2) * step + c, t[4 * i + 2] - t[4 * i + 1])
                store(to, (4 * i + 3) * step + c, t[4 * i + 1] - t[4 * i + 3])


@kernel(in_vectors=True)
def transform_gradients(chunk, source, made, geometry):
    """``A e A'`` of each tile: ``made[place][tile][channel]``."""
    KIND = widened(made)
    LANES = lanes(KIND)
    t = local(vector(KIND, LANES), 8)
    wide, row = geometry[WIDE], geometry[ROW]
    step = geometry[TILES] * wide
    first = chunk * geometry[PER_CHUNK]
    for tile in range(first, min(first + geometry[PER_CHUNK], geometry[TILES])):
        line, to = source + begin_of(tile, geometry), made + tile * wide
        for c in range(0, wide, LANES):
            for j in unroll(range(2)):
                upper, lower = load(line, j * wide + c, LANES), load(line, row + j * wide + c, LANES)
                t[j] = upper
                t[2 + j] = upper + lower
                t[4 + j] = upper - lower
                t[6 + j] = broadcast(KIND(0), LANES) - lower
            for i in unroll(range(4)):
                store(to, 4 * i * step + c, t[2 * i])
                store(to, (4 * i + 1) * step + c, t[2 * i] + t[2 * i + 1])
                store(to, (4 * i + 2) * step + c, t[2 * i] - t[2 * i + 1])
                store(to, (4 * i + 3) * step + c, broadcast(KIND(0), LANES) - t[2 * i + 1])


@kernel(in_vectors=True)
def finish_weights(chunk, sums, weight, finite, outputs, inputs, wide, taps, offset):
    """``G' m G`` for one output channel: 9 taps from `offset` on for each input channel, whose weights are `taps` long."""
    KIND = widened(weight)
    LANES = lanes(KIND)
    t, spill = local(vector(KIND, LANES), 12), local(KIND, 9 * LANES)
    bad = broadcast(KIND(0), LANES)
    step = outputs * wide
    for c in range(0, inputs, LANES):
        m = sums + (chunk * wide + c)
        for j in unroll(range(4)):
            even = (load(m, (4 + j) * step, LANES) + load(m, (8 + j) * step, LANES)) * KIND(0.5)
            t[j] = load(m, j * step, LANES) + even
            t[4 + j] = (load(m, (4 + j) * step, LANES) - load(m, (8 + j) * step, LANES)) * KIND(0.5)
            t[8 + j] = even + load(m, (12 + j) * step, LANES)
        for i in unroll(range(3)):
            even = (t[4 * i + 1] + t[4 * i + 2]) * KIND(0.5)
            g0, g1 = t[4 * i] + even, (t[4 * i + 1] - t[4 * i + 2]) * KIND(0.5)
            g2 = even + t[4 * i + 3]
            bad = bad + (g0 - g0) + (g1 - g1) + (g2 - g2)
            store(spill, 3 * i * LANES, g0)
            store(spill, (3 * i + 1) * LANES, g1)
            store(spill, (3 * i + 2) * LANES, g2)
        to = weight + ((chunk * inputs + c) * taps + offset)
        for r in range(min(LANES, inputs - c)):
            for k in unroll(range(9)):
                to[r * taps + k] = spill[k * LANES + r]
    finite[chunk] = lane_sum(bad) == 0


def grid(frame: Frame, tiles: Ints, extents: Ints) -> tuple[int, np.ndarray]:
    """Chunks and geometry of the transforms of ``(images, slices, down, across)`` tiles in a frame of `extents`."""
    slices, down, across = tiles[1:]
    per_chunk = max(1, CHUNK // (16 * frame.wide))
    count = prod(tiles)
    row = extents[-1] * frame.wide
    return -(-count // per_chunk), np.array([count, per_chunk, across, down, row, extents[-2] * row, frame.size, slices,
                                            frame.wide])  # fmt: skip


class Gradient:
    """`convolve_weight` of arrays like `x` and `y`, a group of 1, kernels ``(*, 3, 3)``."""

    def __init__(self, x: Any, y: Any, kernel: Ints, padding: Ints) -> None:
        n, c = x.shape[:2]
        made = y.shape[2:]
        self.kernel, self.dtype, self.shape = kernel, x.dtype, (y.shape[1], c, *kernel)
        deep = kernel[0] if len(kernel) == 3 else 1
        self.deep, self.slices = deep, (made[0] if len(kernel) == 3 else 1)
        down, across = -(-made[-2] // 2), -(-made[-1] // 2)
        planes = self.slices + deep - 1
        front = (planes,) if len(kernel) == 3 else ()
        sides = (*front, 2 * down + 2, 2 * across + 2), (*(self.slices,) * len(front), 2 * down, 2 * across)
        self.frames = (Frame(x.shape, sides[0], padding, x.dtype), Frame(y.shape, sides[1], (0,) * len(made), x.dtype))
        tile_bytes = 16 * sum(f.wide for f in self.frames) * x.dtype.itemsize
        step = min(n, max(1, BLOCK_BYTES // (tile_bytes * planes * down * across)))
        self.blocks = []
        for first in range(0, n, step):
            some = min(step, n - first)
            grids = [grid(frame, (some, count, down, across), extents) for frame, count, extents in
                     zip(self.frames, (planes, self.slices), sides, strict=True)]  # fmt: skip
            self.blocks.append((first, first + some, grids))
        self.area = down * across

    def __call__(self, x: Any, y: Any) -> Any:
        """None where not all of the result is finite."""
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        outputs, inputs = self.shape[:2]
        sums = np.empty((self.deep, 16, outputs, self.frames[0].wide), self.dtype)
        for first, last, grids in self.blocks:
            sides = []
            for a, frame, run, (chunks, geometry) in zip((x, y), self.frames, (transform_elements, transform_gradients), grids,
                                                         strict=True):  # fmt: skip
                made = np.empty((16, geometry[TILES], frame.wide), self.dtype)
                run.run(chunks, frame.laid_out(a[first:last]), made, geometry)
                sides.append(made)
            self._add(sides[0], sides[1][:, :, :outputs], sums, last - first, first > 0)
        weight = np.empty(self.shape, self.dtype)
        finite = np.empty(outputs, np.bool_)
        taps = prod(self.kernel)
        for k in range(self.deep):
            finish_weights.run(outputs, sums[k], weight, finite, outputs, inputs, self.frames[0].wide, taps, 9 * k)
            if not finite.all():
                return None
        return weight

    def _add(self, d: np.ndarray, e: np.ndarray, sums: np.ndarray, images: int, more: bool) -> None:
        e = e.transpose(0, 2, 1)
        if self.deep == 1:
            matmul(e, d, out=sums[0], accumulate=more)
            return
        planes = (self.slices + self.deep - 1) * self.area
        count = self.slices * self.area
        for k in range(self.deep):
            for i in range(images):
                start = i * planes + k * self.area
                matmul(e[:, :, i * count:(i + 1) * count], d[:, start:start + count], out=sums[k], accumulate=more or i > 0)


def pays_for_weight(x: Any, made: Ints, outputs: int, kernel: Ints, stride: Ints, dilation: Ints, groups: int) -> bool:
    """Whether `Gradient` takes a gradient of the weight: measured."""
    return (
        groups == 1 and x.dtype.char in "fd" and len(kernel) >= 2 and kernel[-2:] == (3, 3) and max(stride) == 1
        and max(dilation) == 1 and x.shape[1] >= 16 and outputs >= 16 and made[-2] >= 3 and made[-1] >= 3
    )  # fmt: skip
