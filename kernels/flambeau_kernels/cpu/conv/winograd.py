"""3 x 3 convolutions at step 1 with 2.25 times fewer products: F(2 x 2, 3 x 3).

Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks". A tile of 2 x 2 results comes from 4 x 4
elements d and the kernel g as ``A' [(G g G') * (B' d B)] A``. The transforms only add, and halve weights, so
errors stay within a few times those of the plain sum; larger tiles save more and lose digits. For each of the 16 places of a
tile the products over channels are a matrix product; a chunk makes those of some tiles and output channels, a block
of input channels at a time, between transforms whose lanes are neighbouring tiles. In three dimensions the slices
that a result sees are as many more channels.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from flambeau_kernels.engine import llvm
from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lane_sum,
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

from ..register_tiles import tile
from . import planes as laying
from .product import multiply
from .walk import Axis, Ints

# Input channels of a block, and output channels, rounded up to whole tiles.
CHANNELS, MOST = 32, 128
(INPUTS, OUTPUTS, OUTPUT_BLOCKS, TILES, ACROSS, TILE_ROWS, SLICES, GROUP, IMAGE, SLICE, ROW, HALF, WEIGHT_TILES,
 OUT_IMAGE, OUT_CHANNEL, OUT_SLICE, OUT_ROW, HEIGHT, WIDTH, BLOCKS) = range(20)  # fmt: skip


@kernel(in_vectors=True)
def transform_weights(chunk, weight, made, places, channels, outputs, inputs, output, group, tiles, *, ROWS):
    """``G g G'`` of a tile of output channels: ``[place of 16][input channel][row of the tile]``, zeros beyond the last."""
    KIND = widened(made)
    number = chunk // tiles
    first = (chunk - number * tiles) * ROWS
    step = tiles * inputs * ROWS
    to = made + (number * 16 * step + (chunk - number * tiles) * inputs * ROWS)
    here = min(ROWS, outputs - first)
    spill = local(KIND, 9 * ROWS)
    g = local(vector(KIND, ROWS), 9)
    for c in range(inputs):
        source = weight + (number * group + first * output + channels[c])
        for k in unroll(range(9)):
            for r in rolled(range(ROWS)):
                if r < here:
                    spill[k * ROWS + r] = source[r * output + places[k]]
                else:
                    spill[k * ROWS + r] = 0
        for k in unroll(range(9)):
            g[k] = load(spill, k * ROWS, ROWS)
        half = broadcast(KIND(0.5), ROWS)
        for i in unroll(range(4)):
            for j in unroll(range(4)):
                store(to, (4 * i + j) * step + c * ROWS, corner(g, half, i, j))


def column(g, half, I, J):
    """Element (I, J) of ``G g``."""
    if I == 0:
        v = g[J]
    elif I == 3:
        v = g[6 + J]
    else:
        sides = g[J] + g[6 + J]
        v = (sides + g[3 + J]) * half if I == 1 else (sides - g[3 + J]) * half
    return v


def corner(g, half, I, J):
    """Element (I, J) of ``G g G'``."""
    if J == 0:
        v = column(g, half, I, 0)
    elif J == 3:
        v = column(g, half, I, 2)
    else:
        sides = column(g, half, I, 0) + column(g, half, I, 2)
        middle = column(g, half, I, 1)
        v = (sides + middle) * half if J == 1 else (sides - middle) * half
    return v


def transform_tiles(planes, half, row, to, step, left, LANES):
    """``B' d B`` of neighbouring tiles: element (i, j) to ``to[(4 * i + j) * step]``."""
    KIND = widened(to)
    d, t = local(vector(KIND, LANES), 16), local(vector(KIND, LANES), 16)
    for i in unroll(range(4)):
        line = planes + i * row
        for j in unroll(range(4)):
            d[4 * i + j] = load(line, (j % 2) * half + j // 2, LANES, left)
    for j in unroll(range(4)):
        t[j] = d[j] - d[8 + j]
        t[4 + j] = d[4 + j] + d[8 + j]
        t[8 + j] = d[8 + j] - d[4 + j]
        t[12 + j] = d[4 + j] - d[12 + j]
    for i in unroll(range(4)):
        store(to, (4 * i) * step, t[4 * i] - t[4 * i + 2], left)
        store(to, (4 * i + 1) * step, t[4 * i + 1] + t[4 * i + 2], left)
        store(to, (4 * i + 2) * step, t[4 * i + 2] - t[4 * i + 1], left)
        store(to, (4 * i + 3) * step, t[4 * i + 1] - t[4 * i + 3], left)


def results(products, step, upper, lower, LOW, HIGH, LANES):
    """``A' m A`` of one vector of tiles: rows of results, even and odd ones interleaved."""
    KIND = widened(products)
    t = local(vector(KIND, LANES), 8)
    for j in unroll(range(4)):
        a, b = load(products, (4 + j) * step, LANES), load(products, (8 + j) * step, LANES)
        t[j] = load(products, j * step, LANES) + a + b
        t[4 + j] = a - b - load(products, (12 + j) * step, LANES)
    for i in unroll(range(2)):
        even, odd = t[4 * i] + t[4 * i + 1] + t[4 * i + 2], t[4 * i + 1] - t[4 * i + 2] - t[4 * i + 3]
        to = upper if i == 0 else lower
        store(to, 0, shuffle(even, odd, LOW))
        store(to, LANES, shuffle(even, odd, HIGH))


def copy_results(source, to, count, bias, LANES):
    """Returns zeros, but nan in some lanes where a result is not finite."""
    bad = broadcast(widened(source)(0), LANES)
    for i in range(0, count, LANES):
        v = load(source, i, LANES, count - i) + bias
        bad = bad + (v - v)
        store(to, i, v, count - i)
    return bad


@kernel(in_vectors=True)
def multiply_tiles(chunk, planes, weights, bias, nothing, out, finite, channels, geometry, *, ROWS, VECTORS, LOW, HIGH):
    KIND = widened(planes)
    LANES = lanes(KIND)
    COUNT = LANES * VECTORS
    # An odd number of cache lines from one place to the next, or all 16 would fall into the same set.
    BLOCK = -(-MOST // ROWS) * ROWS
    PANEL, PART = (CHANNELS * VECTORS | 1) * LANES, (BLOCK * VECTORS | 1) * LANES
    panels = local(KIND, 16 * PANEL)
    sums = local(KIND, 16 * PART)
    upper, lower = local(KIND, 2 * COUNT + LANES), local(KIND, 2 * COUNT + LANES)
    inputs, across = geometry[INPUTS], geometry[ACROSS]
    rest = chunk // geometry[OUTPUT_BLOCKS]
    first_output = (chunk - rest * geometry[OUTPUT_BLOCKS]) * BLOCK
    group = rest // geometry[BLOCKS]
    first = (rest - group * geometry[BLOCKS]) * COUNT
    count = min(COUNT, geometry[TILES] - first)
    outputs = min(BLOCK, geometry[OUTPUTS] - first_output)
    source = planes + group * geometry[GROUP]
    step = geometry[WEIGHT_TILES] * inputs * ROWS
    transformed = weights + (group * 16 * step + first_output * inputs)
    c = 0
    while c < inputs:
        depth = min(CHANNELS, inputs - c)
        j = 0
        while j < count:
            row = (first + j) // across
            x = first + j - row * across
            length = min(across - x, count - j)
            slice_number = row // geometry[TILE_ROWS]
            y = row - slice_number * geometry[TILE_ROWS]
            image = slice_number // geometry[SLICES]
            z = slice_number - image * geometry[SLICES]
            begin = source + (image * geometry[IMAGE] + z * geometry[SLICE] + 2 * y * geometry[ROW] + x)
            for k in range(depth):
                for i in range(0, length, LANES):
                    transform_tiles(begin + (channels[c + k] + i), geometry[HALF], geometry[ROW],
                                    panels + (k * COUNT + j + i), PANEL, length - i, LANES)  # fmt: skip
            j += length
        for place in range(16):
            panel, part = panels + place * PANEL, sums + place * PART
            here = transformed + (place * step + c * ROWS)
            o = 0
            while o < outputs:
                multiply(panel, here + o * inputs, part + o * COUNT, depth, c == 0, nothing, ROWS, ROWS, LANES, VECTORS, False)
                o += ROWS
        c += depth
    bad = broadcast(KIND(0), LANES)
    for o in range(outputs):
        for v in unroll(range(VECTORS)):
            results(sums + (o * COUNT + v * LANES), PART, upper + 2 * v * LANES, lower + 2 * v * LANES, LOW, HIGH, LANES)
        channel = group * geometry[OUTPUTS] + first_output + o
        constant = bias[channel]
        j = 0
        while j < count:
            row = (first + j) // across
            x = first + j - row * across
            length = min(across - x, count - j)
            slice_number = row // geometry[TILE_ROWS]
            y = 2 * (row - slice_number * geometry[TILE_ROWS])
            image = slice_number // geometry[SLICES]
            z = slice_number - image * geometry[SLICES]
            to = out + (image * geometry[OUT_IMAGE] + z * geometry[OUT_SLICE] + channel * geometry[OUT_CHANNEL])
            to += y * geometry[OUT_ROW] + 2 * x
            elements = min(2 * length, geometry[WIDTH] - 2 * x)
            bad = bad + copy_results(upper + 2 * j, to, elements, constant, LANES)
            if y + 1 < geometry[HEIGHT]:
                bad = bad + copy_results(lower + 2 * j, to + geometry[OUT_ROW], elements, constant, LANES)
            j += length
    finite[chunk] = lane_sum(bad) == 0


def pays(channels: int, outputs: int, made: Ints, kernel: Ints, stride: Ints, dilation: Ints) -> bool:
    """Whether this algorithm takes a convolution, of so many channels of a group: measured."""
    return (
        len(kernel) >= 2 and kernel[-2:] == (3, 3) and max(stride) == 1 and max(dilation) == 1
        and channels >= 16 and outputs >= 16 and made[-2] >= 4 and made[-1] >= 7
    )  # fmt: skip


class Plan:
    """A convolution or, `transposed`, its transpose, which is one with the weight turned round."""

    def __init__(self, sizes: Ints, made: Ints, padding: Ints, kernel: Ints, channels: int, outputs: int, groups: int,
                 transposed: bool) -> None:  # fmt: skip
        if transposed:
            padding = tuple(k - 1 - p for k, p in zip(kernel, padding, strict=True))
        self.down, self.across = -(-made[-2] // 2), -(-made[-1] // 2)
        y = Axis(sizes[-2], padding[-2], 1, (0,), 2 * self.down + 2, ())
        x = Axis(sizes[-1], padding[-1], 2, (0, 1), self.across + 1, ())
        deep = kernel[0] if len(kernel) == 3 else 1
        self.slices = made[0] if len(kernel) == 3 else 1
        z = (Axis(sizes[0], padding[0], 1, (0,), self.slices + deep - 1, ()),) if len(kernel) == 3 else ()
        self.axes = (*z, y, x)
        self.prepared: dict[Any, Any] = {}
        self.row, self.slice = x.extent, y.extent * x.extent
        self.half = self.slice * (self.slices + deep - 1)
        self.plane = 2 * self.half
        self.groups, self.channels, self.outputs, self.inputs = groups, channels, outputs, channels * deep
        c, k = np.arange(channels)[:, None], np.arange(deep)[None]
        self.sources = (c * self.plane + k * self.slice).reshape(-1)
        taps = 9 * deep
        self.group = channels * outputs * taps
        self.output, channel = (taps, outputs * taps) if transposed else (channels * taps, taps)
        self.places = np.arange(9)[::-1].copy() if transposed else np.arange(9)
        self.weight_channels = (c * channel + 9 * (k[:, ::-1] if transposed else k)).reshape(-1)

    def weights(self, w: Any, kind: np.dtype) -> np.ndarray:
        """The transformed weights."""
        rows = tile("winograd")[0]
        tiles = -(-self.outputs // rows)
        made = np.empty(self.groups * 16 * tiles * self.inputs * rows, kind)
        transform_weights.run(self.groups * tiles, w, made, self.places, self.weight_channels, self.outputs, self.inputs,
                              self.output, self.group, tiles, ROWS=rows)  # fmt: skip
        return made

    def run(self, x: Any, transformed: np.ndarray, bias: np.ndarray, out: Any) -> bool:
        """Convolve some images into `out`. Returns whether all results are finite: what is not would reach its whole
        tile."""
        kind = transformed.dtype
        source = laying.planes_of(x, self.axes, self.plane, kind, self.prepared)
        rows, vectors = tile("winograd")
        lane_count = llvm.machine().register_bits // (8 * kind.itemsize)
        tiles, output_blocks = len(x) * self.slices * self.down * self.across, -(-self.outputs // (-(-MOST // rows) * rows))
        blocks = -(-tiles // (vectors * lane_count))
        image, channel, *steps = (s // out.itemsize for s in out.strides)
        geometry = np.array([
            self.inputs, self.outputs, output_blocks, tiles, self.across, self.down, self.slices, self.channels * self.plane,
            x.shape[1] * self.plane, self.slice, self.row, self.half, -(-self.outputs // rows), image, channel,
            steps[0] if len(steps) == 3 else 0, steps[-2], out.shape[-2], out.shape[-1], blocks,
        ])  # fmt: skip
        low = tuple(k // 2 + lane_count * (k % 2) for k in range(lane_count))
        finite = np.empty(self.groups * blocks * output_blocks, np.bool_)
        multiply_tiles.run(len(finite), source, transformed, bias, np.zeros(rows, kind), out, finite, self.sources, geometry,
                           ROWS=rows, VECTORS=vectors, LOW=low, HIGH=tuple(k + lane_count // 2 for k in low))  # fmt: skip
        return bool(finite.all())


plan = functools.lru_cache(maxsize=256)(Plan)
