"""3 x 3 convolutions with fewer products: at step 1 2.25 times, F(2 x 2, 3 x 3), at step 2 1.44 times.

Source: Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks". A tile of 2 x 2 results comes from 4 x 4
elements d and the kernel g as ``A' [(G g G') * (B' d B)] A``. The transforms only add, and halve weights, so
errors stay within a few times those of the plain sum; larger tiles save more and lose digits. For each of the 16 places of a
tile the products over channels are a matrix product; a chunk makes those of some tiles and output channels, a block
of input channels at a time, between transforms whose lanes are neighbouring tiles. In three dimensions the slices
that a result sees are as many more channels.

At step 2 elements of even number meet the first and the last tap, by F(2, 2) in 3 products for two results, and those of odd number
the middle tap, in 2: a tile comes from 5 x 5 elements and has 25 places. The last two along an axis have the same weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import (
    broadcast,
    int64,
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
from flambeau_kernels.engine.machine_code import llvm

from ..register_tiles import tile
from ..shapes.order import place_of_row
from . import planes as laying
from .product import multiply
from .walk import Axis, Ints

# Input channels of a block by the step, and output channels, rounded up to whole tiles.
CHANNELS, MOST = {1: 32, 2: 64}, 128
# Bytes of planes laid out at a time: so few blocks that their ends, where threads wait for each other, do not count.
BLOCK_BYTES = 8 << 20
# Channels on either side, and tiles, from which on fewer products pay for the transforms at step 2.
LEAST_AT_TWO, LEAST_TILES_AT_TWO = 64, 384
(INPUTS, OUTPUTS, OUTPUT_BLOCKS, TILES, ACROSS, TILE_ROWS, SLICES, GROUP, IMAGE, SLICE, ROW, HALF, WEIGHT_TILES,
 OUT_IMAGE, OUT_CHANNEL, OUT_SLICE, OUT_ROW, HEIGHT, WIDTH, BLOCKS) = range(20)  # fmt: skip


@kernel(in_vectors=True)
def transform_weights(chunk, weight, made, places, channels, outputs, inputs, output, group, tiles, *, ROWS, STEP):
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
                store(to, (4 * i + j) * step + c * ROWS, corner(g, half, i, j) if STEP == 1 else corner_at_two(g, i, j))


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


def column_at_two(g, I, J):
    """Element (I, J) of ``G g`` at step 2, whose rows are the first tap, the first and the last, the last and the middle one."""
    return g[J] + g[6 + J] if I == 1 else g[(0, 0, 6, 3)[I] + J]


def corner_at_two(g, I, J):
    """Element (I, J) of ``G g G'`` at step 2."""
    return column_at_two(g, I, 0) + column_at_two(g, I, 2) if J == 1 else column_at_two(g, I, (0, 0, 2, 1)[J])


def transform_tiles_at_two(planes, half, row, to, step, left, LANES):
    """``B' d B`` of neighbouring tiles at step 2: element (i, j) to ``to[(5 * i + j) * step]``."""
    KIND = widened(to)
    EVEN, ODD = tuple(range(0, 2 * LANES, 2)), tuple(range(1, 2 * LANES, 2))
    t = local(KIND, 25 * LANES)
    for i in rolled(range(5)):
        even, odd, rows = planes + i * row, planes + (half + i * row), t + 5 * LANES * i
        a, b = load(even, 0, LANES, 2 * left), load(even, LANES, LANES, 2 * left - LANES)
        d2 = shuffle(a, b, ODD)
        store(rows, 0, shuffle(a, b, EVEN) - d2)
        store(rows, LANES, d2)
        a, b = load(even, 2, LANES, 2 * left - 1), load(even, LANES + 2, LANES, 2 * left - 1 - LANES)
        store(rows, 2 * LANES, d2 - shuffle(a, b, EVEN))
        a, b = load(odd, 0, LANES, 2 * left), load(odd, LANES, LANES, 2 * left - LANES)
        store(rows, 3 * LANES, shuffle(a, b, EVEN))
        store(rows, 4 * LANES, shuffle(a, b, ODD))
    for j in rolled(range(5)):
        here, places = t + LANES * j, to + j * step
        d2 = load(here, 10 * LANES, LANES)
        store(places, 0, load(here, 0, LANES) - d2)
        store(places, 5 * step, d2)
        store(places, 10 * step, d2 - load(here, 20 * LANES, LANES))
        store(places, 15 * step, load(here, 5 * LANES, LANES))
        store(places, 20 * step, load(here, 15 * LANES, LANES))


def results_at_two(products, step, upper, lower, LOW, HIGH, LANES):
    """`results` at step 2."""
    KIND = widened(products)
    t = local(vector(KIND, LANES), 10)
    for j in unroll(range(5)):
        both = load(products, (5 + j) * step, LANES)
        t[j] = load(products, j * step, LANES) + both + load(products, (15 + j) * step, LANES)
        t[5 + j] = both - load(products, (10 + j) * step, LANES) + load(products, (20 + j) * step, LANES)
    for i in unroll(range(2)):
        even, odd = t[5 * i] + t[5 * i + 1] + t[5 * i + 3], t[5 * i + 1] - t[5 * i + 2] + t[5 * i + 4]
        to = upper if i == 0 else lower
        store(to, 0, shuffle(even, odd, LOW))
        store(to, LANES, shuffle(even, odd, HIGH))


def transform_tiles(planes, half, row, to, step, left, LANES):
    """``B' d B`` of neighbouring tiles: element (i, j) to ``to[(4 * i + j) * step]``.

    Only `left` of the tiles are there; what is stored behind them is written over later, for stores under a mask are slow on some
    processors.
    """
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
        store(to, (4 * i) * step, t[4 * i] - t[4 * i + 2])
        store(to, (4 * i + 1) * step, t[4 * i + 1] + t[4 * i + 2])
        store(to, (4 * i + 2) * step, t[4 * i + 2] - t[4 * i + 1])
        store(to, (4 * i + 3) * step, t[4 * i + 1] - t[4 * i + 3])


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
    tail = count // LANES * LANES
    for i in range(0, tail, LANES):
        v = load(source, i, LANES) + bias
        bad = bad + (v - v)
        store(to, i, v)
    if tail < count:
        v = load(source, tail, LANES, count - tail) + bias
        bad = bad + (v - v)
        store(to, tail, v, count - tail)
    return bad


@kernel(in_vectors=True)
def multiply_tiles(chunk, planes, weights, bias, nothing, out, finite, channels, geometry, *, ROWS, VECTORS, LOW, HIGH, STEP):
    KIND = widened(planes)
    LANES = lanes(KIND)
    COUNT = LANES * VECTORS
    SIDE = 3 + STEP        # elements of a tile along an axis, and places
    # An odd number of cache lines from one place to the next, or all would fall into the same set.
    BLOCK = -(-MOST // ROWS) * ROWS
    PANEL, PART = (CHANNELS[STEP] * VECTORS | 1) * LANES, (BLOCK * VECTORS | 1) * LANES
    panels = local(KIND, SIDE * SIDE * PANEL)
    sums = local(KIND, SIDE * SIDE * PART)
    upper, lower = local(KIND, 2 * COUNT + LANES), local(KIND, 2 * COUNT + LANES)
    inputs = geometry[INPUTS]
    rest = chunk // geometry[OUTPUT_BLOCKS]
    first_output = (chunk - rest * geometry[OUTPUT_BLOCKS]) * BLOCK
    group = rest // geometry[BLOCKS]
    first = (rest - group * geometry[BLOCKS]) * COUNT
    count = min(COUNT, geometry[TILES] - first)
    outputs = min(BLOCK, geometry[OUTPUTS] - first_output)
    source = planes + group * geometry[GROUP]
    step = geometry[WEIGHT_TILES] * inputs * ROWS
    transformed = weights + (group * 16 * step + first_output * inputs)
    # Parts of a row of tiles: their first tile, their number, and elements from the source to what the first one sees.
    begins, lengths, starts = local(int64, COUNT), local(int64, COUNT), local(int64, COUNT)
    parts = parts_of_rows(begins, lengths, starts, first, count, geometry, STEP)
    c = 0
    while c < inputs:
        depth = min(CHANNELS[STEP], inputs - c)
        for k in range(depth):
            for part_number in range(parts):
                elements = source + (channels[c + k] + starts[part_number])
                places = panels + (k * COUNT + begins[part_number])
                length = lengths[part_number]
                for i in range(0, length, LANES):
                    if STEP == 1:
                        transform_tiles(elements + i, geometry[HALF], geometry[ROW], places + i, PANEL, length - i, LANES)
                    else:
                        transform_tiles_at_two(elements + 2 * i, geometry[HALF], geometry[ROW], places + i, PANEL, length - i, LANES)
        for place in range(SIDE * SIDE):
            panel, part = panels + place * PANEL, sums + place * PART
            weight = min(place // SIDE, 3) * 4 + min(place % SIDE, 3)
            here = transformed + (weight * step + c * ROWS)
            o = 0
            while o < outputs:
                multiply(panel, here + o * inputs, part + o * COUNT, depth, c == 0, nothing, ROWS, ROWS, LANES, VECTORS, False)
                o += ROWS
        c += depth
    bad = broadcast(KIND(0), LANES)
    for o in range(outputs):
        for v in unroll(range(VECTORS)):
            made, above, below = sums + (o * COUNT + v * LANES), upper + 2 * v * LANES, lower + 2 * v * LANES
            if STEP == 1:
                results(made, PART, above, below, LOW, HIGH, LANES)
            else:
                results_at_two(made, PART, above, below, LOW, HIGH, LANES)
        channel = group * geometry[OUTPUTS] + first_output + o
        bad = bad + put_in_rows(upper, lower, out + channel * geometry[OUT_CHANNEL], first, count, bias[channel], geometry, KIND)
    finite[chunk] = lane_sum(bad) == 0


def parts_of_rows(begins, lengths, starts, first, count, geometry, STEP):
    """Divide `count` tiles from the first one on where rows of tiles end. Returns the number of parts."""
    across = geometry[ACROSS]
    parts, j = 0, 0
    while j < count:
        row = (first + j) // across
        x = first + j - row * across
        image, z, y = place_of_row(row, geometry[SLICES], geometry[TILE_ROWS])
        begins[parts] = j
        lengths[parts] = min(across - x, count - j)
        starts[parts] = image * geometry[IMAGE] + z * geometry[SLICE] + 2 * STEP * y * geometry[ROW] + STEP * x
        j += lengths[parts]
        parts += 1
    return parts


def put_in_rows(upper, lower, out, first, count, constant, geometry, KIND):
    """Store two rows of results of tiles, with a constant added. Returns zeros, but nan in some lanes where a result is not finite."""
    LANES = lanes(KIND)
    across = geometry[ACROSS]
    bad = broadcast(KIND(0), LANES)
    j = 0
    while j < count:
        row = (first + j) // across
        x = first + j - row * across
        length = min(across - x, count - j)
        image, z, tile_y = place_of_row(row, geometry[SLICES], geometry[TILE_ROWS])
        y = 2 * tile_y
        to = out + (image * geometry[OUT_IMAGE] + z * geometry[OUT_SLICE] + y * geometry[OUT_ROW] + 2 * x)
        wide = min(2 * length, geometry[WIDTH] - 2 * x)
        bad = bad + copy_results(upper + 2 * j, to, wide, constant, LANES)
        if y + 1 < geometry[HEIGHT]:
            bad = bad + copy_results(lower + 2 * j, to + geometry[OUT_ROW], wide, constant, LANES)
        j += length
    return bad


def pays(images: int, channels: int, outputs: int, made: Ints, kernel: Ints, stride: Ints, dilation: Ints, transposed: bool) -> bool:
    """Whether this algorithm takes a convolution, of so many channels of a group: measured."""
    if len(kernel) < 2 or kernel[-2:] != (3, 3) or max(dilation) > 1:
        return False
    if stride == (2, 2):
        tiles = images * -(-made[-2] // 2) * -(-made[-1] // 2)
        return not transposed and min(channels, outputs) >= LEAST_AT_TWO and tiles >= LEAST_TILES_AT_TWO
    return max(stride) == 1 and min(channels, outputs) >= 16 and made[-2] >= 4 and made[-1] >= 7


class Plan:
    """A convolution or, `transposed`, its transpose at step 1, which is one with the weight turned round."""

    def __init__(self, sizes: Ints, made: Ints, padding: Ints, kernel: Ints, channels: int, outputs: int, groups: int,
                 transposed: bool, step: int) -> None:  # fmt: skip
        self.step = step
        if transposed:
            padding = tuple(k - 1 - p for k, p in zip(kernel, padding, strict=True))
        self.down, self.across = -(-made[-2] // 2), -(-made[-1] // 2)
        y = Axis(sizes[-2], padding[-2], 1, (0,), 2 * step * self.down + 3 - step, ())
        x = Axis(sizes[-1], padding[-1], 2, (0, 1), step * self.across + 1, ())
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
                              self.output, self.group, tiles, ROWS=rows, STEP=self.step)  # fmt: skip
        return made

    def run(self, x: Any, transformed: np.ndarray, bias: np.ndarray, out: Any) -> bool:
        """Convolve some images into `out`. Returns whether all results are finite: what is not would reach its whole tile."""
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
                           ROWS=rows, VECTORS=vectors, LOW=low, HIGH=tuple(k + lane_count // 2 for k in low),
                           STEP=self.step)  # fmt: skip
        return bool(finite.all())


plan = engines.kept(256)(Plan)
