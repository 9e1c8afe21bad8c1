"""The gradient of the weight: products of windows with the gradient of the output, summed over positions.

A chunk owns some output channels, some taps and a range of positions. It gathers both sides, taps and output channels as
rows of some hundred positions, into the second cache, and multiplies rows with rows: register tiles whose lanes are
positions, or of bfloat16 pairs of them, as they lie in memory, so that neither side is transposed. Lanes are added up
when the chunk is done, ranges of positions in their order.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    int32,
    int64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    outlined,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm

from ..products.matmul import matmul
from ..register_tiles import tile
from .direct import Source, source_layout, wide_kind
from .product import Layout, joined, row_start
from .walk import Ints, walk

# Rows gathered at a time: taps, output channels; and vectors of positions in a row.
TAPS_BLOCK, OUTPUTS_BLOCK, LENGTH = 96, 64, 24
# Chunks that keep several threads busy to the end, and the most bytes their separate sums may take.
ENOUGH, MOST_SUMS = 24, 8 << 20
(TAPS, OUTPUTS, TAP_BLOCKS, OUTPUT_BLOCKS, GROUPS, RANGE, POSITIONS, GROUP, OUT_GROUP, ADD,
 ROW, ROWS_Y, ROWS_IMAGE, SOURCE_IMAGE, SOURCE_Z, SOURCE_Y, GRADIENT) = range(17)  # fmt: skip
# The gradient has the same slots as the source from ROW on, from GRADIENT on.


def tile_shape(outputs: int) -> tuple[int, int]:
    """Output channels and taps of a register tile."""
    if outputs == 1:
        return 1, 12
    return tile("weights")


def gather_rows(rows, planes, places, count, position, length, geometry, LANES):
    """``rows[k][j]``: what place `k` reads at position `position + j`; zeros fill up the last vector of each row."""
    WIDTH = LENGTH * LANES
    full = (length + LANES - 1) // LANES * LANES
    if full > length:
        for k in range(count):
            store(rows, k * WIDTH + full - LANES, broadcast(widened(rows)(0), LANES))
    # Stretches of positions in one row: where they begin here and in the planes, and their length.
    here, there, lengths = local(int64, WIDTH), local(int64, WIDTH), local(int64, WIDTH)
    stretches = 0
    j = 0
    while j < length:
        row = (position + j) // geometry[ROW]
        x = position + j - row * geometry[ROW]
        n = min(geometry[ROW] - x, length - j)
        here[stretches] = j
        there[stretches] = row_start(row, geometry + ROW, geometry + SOURCE_IMAGE) + x
        lengths[stretches] = n
        stretches += 1
        j += n
    for k in range(count):
        to, line = rows + k * WIDTH, planes + places[k]
        for s in range(stretches):
            at, start, n = here[s], there[s], lengths[s]
            for i in range(0, n, LANES):
                store(to, at + i, load(line, start + i, LANES, n - i), n - i)


def multiply_rows(left, right, sums, vectors, fresh, ROWS, COLUMNS, PAIRS):
    """``sums[o][k] += left[o] * right[k]`` for a tile, lane by lane; ``=`` if `fresh`."""
    KIND, LANE = widened(sums), widened(left)
    LANES = lanes(KIND)
    WIDTH = LENGTH * LANES
    acc = local(vector(KIND, LANES), ROWS * COLUMNS)
    mine = local(vector(LANE, LANES), ROWS)
    if fresh:
        for t in unroll(range(ROWS * COLUMNS)):
            acc[t] = broadcast(KIND(0), LANES)
    else:
        for t in unroll(range(ROWS * COLUMNS)):
            acc[t] = load(sums, t * LANES, LANES)
    for j in range(0, vectors * LANES, LANES):
        for r in unroll(range(ROWS)):
            mine[r] = load(left, r * WIDTH + j, LANES)
        for c in unroll(range(COLUMNS)):
            v = load(right, c * WIDTH + j, LANES)
            for r in unroll(range(ROWS)):
                acc[r * COLUMNS + c] = joined(mine[r], v, acc[r * COLUMNS + c], PAIRS)
    for t in unroll(range(ROWS * COLUMNS)):
        store(sums, t * LANES, acc[t])


def add_lanes(sums, to, outputs, tap_count, taps, add, ROWS, COLUMNS, LANES):
    """The sums of all tiles of a chunk into ``to[o][k]``, or on top of it."""
    ACROSS = -(-TAPS_BLOCK // COLUMNS)
    for o in range(outputs):
        for k in range(tap_count):
            number = (o // ROWS * ACROSS + k // COLUMNS) * (ROWS * COLUMNS) + o % ROWS * COLUMNS + k % COLUMNS
            total = lane_sum(load(sums, number * LANES, LANES))
            if add:
                to[o * taps + k] = to[o * taps + k] + total
            else:
                to[o * taps + k] = total


@kernel(in_vectors=True)
def correlate_weight(chunk, planes, gradient, sums, places, outputs_at, geometry, *, ROWS, COLUMNS, PAIRS):
    KIND, ELEMENT = widened(sums), widened(planes)
    LANES = lanes(KIND)
    # Of pairs, a vector has twice as many elements as sums.
    IN_ROW = lanes(ELEMENT)
    WIDTH = LENGTH * IN_ROW
    right = local(ELEMENT, (TAPS_BLOCK + COLUMNS) * WIDTH)
    left = local(ELEMENT, (OUTPUTS_BLOCK + ROWS) * WIDTH)
    LANE = int32 if PAIRS else KIND
    ROW_OF_LANES = LENGTH * LANES
    left_lanes, right_lanes = bitcast(left, LANE), bitcast(right, LANE)
    ACROSS, DOWN = -(-TAPS_BLOCK // COLUMNS), -(-OUTPUTS_BLOCK // ROWS)
    tiles = local(KIND, ACROSS * DOWN * ROWS * COLUMNS * LANES)
    taps, outputs = geometry[TAPS], geometry[OUTPUTS]
    rest = chunk // geometry[TAP_BLOCKS]
    first_tap = (chunk - rest * geometry[TAP_BLOCKS]) * TAPS_BLOCK
    number = rest // geometry[OUTPUT_BLOCKS]
    first_output = (rest - number * geometry[OUTPUT_BLOCKS]) * OUTPUTS_BLOCK
    part = number // geometry[GROUPS]
    group = number - part * geometry[GROUPS]
    tap_count, output_count = min(TAPS_BLOCK, taps - first_tap), min(OUTPUTS_BLOCK, outputs - first_output)
    to = sums + ((number * outputs + first_output) * taps + first_tap)
    source = planes + group * geometry[GROUP]
    side = gradient + group * geometry[OUT_GROUP]
    position = part * geometry[RANGE]
    stop = min(position + geometry[RANGE], geometry[POSITIONS])
    fresh = position == position
    while position < stop:
        length = min(WIDTH, stop - position)
        outlined(gather_rows)(right, source, places + first_tap, tap_count, position, length, geometry, IN_ROW)
        outlined(gather_rows)(left, side, outputs_at + first_output, output_count, position, length,
                           geometry + (GRADIENT - ROW), IN_ROW)  # fmt: skip
        vectors = (length + IN_ROW - 1) // IN_ROW
        # A tile's taps stay in the first cache while the output channels pass.
        for k in range(0, tap_count, COLUMNS):
            for o in range(0, output_count, ROWS):
                tile_sums = tiles + (o // ROWS * ACROSS + k // COLUMNS) * (ROWS * COLUMNS * LANES)
                multiply_rows(left_lanes + o * ROW_OF_LANES, right_lanes + k * ROW_OF_LANES, tile_sums, vectors, fresh, ROWS, COLUMNS,
                              PAIRS)  # fmt: skip
        position += WIDTH
        fresh = position != position
    add_lanes(tiles, to, output_count, tap_count, taps, geometry[ADD] != 0, ROWS, COLUMNS, LANES)


class Gradient:
    """`convolve_weight` of arrays like `x` and `y`: what is decided once for their shapes and layouts, and the call."""

    def __init__(self, x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> None:
        c, o = x.shape[1], y.shape[1]
        counts = y.shape[2:]
        ones, nothing = (1,) * len(counts), (0,) * len(counts)
        source = Source(x, walk(False, x.shape[2:], counts, kernel, stride, padding, dilation, c // groups, prod(kernel)))
        step = source.step
        side = Source(y, walk(False, counts, counts, ones, ones, nothing, ones, 1, 1), step)
        self.sides = source, side
        self.kind, self.dtype, self.shape = wide_kind(x.dtype), x.dtype, (o, c // groups, *kernel)
        self.places = source.tables.passes[0].source
        # Joined where windows of successive rows lie behind each other; the gradient always is.
        steps = tuple(prod(counts[i + 1:]) for i in range(len(counts)))
        at = source_layout(source.tables, counts, c, groups, (0, 0, steps)).joined()
        by = Layout(counts, o * prod(counts), o // groups * prod(counts), steps, 0, 0, steps).joined()
        outputs, taps = o // groups, len(self.places)
        self.outputs_at = np.arange(outputs, dtype=np.int64) * prod(by.counts)
        tap_blocks, output_blocks = -(-taps // TAPS_BLOCK), -(-outputs // OUTPUTS_BLOCK)
        chunks = groups * tap_blocks * output_blocks
        width = LENGTH * (llvm.machine().register_bits // (8 * source.kind.itemsize))
        positions = step * prod(at.counts)
        ranges = min(-(-ENOUGH // chunks), -(-positions // width))
        ranges = max(1, min(ranges, MOST_SUMS // (groups * outputs * taps * self.kind.itemsize)))
        length = -(-positions // (ranges * width)) * width
        self.sums = -(-positions // length), groups, outputs, taps
        geometries = []
        for first, last in source.blocks:
            positions = (last - first) * prod(at.counts)
            geometries.append((-(-positions // length) * chunks, np.array([
                taps, outputs, tap_blocks, output_blocks, groups, length, positions, at.group, by.group, first > 0,
                at.counts[2], at.counts[1], at.counts[0] * at.counts[1], at.source_image, at.source_steps[0], at.source_steps[1],
                by.counts[2], by.counts[1], by.counts[0] * by.counts[1], by.source_image, by.source_steps[0], by.source_steps[1],
            ])))  # fmt: skip
        self.geometries = tuple(geometries)
        rows, columns = tile_shape(outputs)
        integers = np.dtype(np.int64)
        kinds = source.kind, side.kind, self.kind
        constants = {"ROWS": rows, "COLUMNS": columns, "PAIRS": source.pairs}
        self.correlate = correlate_weight.form(kinds + (integers,) * 3, constants)

    def __call__(self, x: Any, y: Any) -> Any:
        sums = np.empty(self.sums, self.kind)
        for number, (chunks, geometry) in enumerate(self.geometries):
            source, side = (s.planes(a, number) for s, a in zip(self.sides, (x, y), strict=True))
            self.correlate(chunks, False, source, side, sums, self.places, self.outputs_at, geometry)
        made = sums[0] if len(sums) == 1 else np.add.reduce(sums, axis=0)
        return made.reshape(self.shape).astype(self.dtype, copy=False)


# -- single taps -----------------------------------------------------------------------------------------------------------


def is_product(x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, groups: int) -> bool:
    """Whether windows are positions, so that the gradient is a product of matrices, and one that is large enough for `products`."""
    return (
        groups == 1 and set(kernel) == set(stride) == {1} and not any(padding) and x.dtype == y.dtype and x.dtype.char in "fd"
        and min(x.shape[1], y.shape[1]) >= LEAST_CHANNELS and prod(y.shape[2:]) >= LEAST_POSITIONS
        and x.flags.c_contiguous and y.flags.c_contiguous and engines.chosen().multiplies
    )  # fmt: skip


LEAST_CHANNELS, LEAST_POSITIONS = 32, 128


def products(x: Any, y: Any) -> Any:
    """The gradient of a weight of single taps: of each image a product, which is added to those before."""
    (n, c), o = x.shape[:2], y.shape[1]
    left, right, made = y.reshape(n, o, -1), x.reshape(n, c, -1), np.empty((o, c), x.dtype)
    for i in range(n):
        matmul(left[i], right[i].T, made, accumulate=i > 0)
    return made.reshape(o, c, *[1] * (x.ndim - 2))
