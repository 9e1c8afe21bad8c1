"""Correlations at step 1 as matrix products whose right side is gathered in the cache.

The loops are those of a matrix product (Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix
Multiplication") over weights (output channels, taps) and windows (taps, positions). A panel of positions as wide as
a register tile is gathered from the planes for DEPTH taps at a time, straight vector copies, and multiplied with the
packed weights of up to MOST output channels while it lies in the first cache; the sums of a panel stay beside it until the
last taps, then they go to their places in the output. So no window exists twice in memory, whatever the kernel's extent,
stride or dilation, and halves are rounded once.

Where the processor multiplies pairs of bfloat16 (PAIRS), a lane holds the elements that two taps read, or their weights.
"""

from __future__ import annotations

from math import prod

import numpy as np

from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    dot_bfloat16,
    int16,
    int32,
    kernel,
    lanes,
    load,
    local,
    multiply_add,
    prefetch,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm

from ..register_tiles import tile
from .channels_last import transpose
from .walk import Ints, Pass

# Taps of a panel, and output channels of a block, rounded up to whole tiles.
DEPTH, MOST = 160, 128
SQUARE = 8                                            # channels and positions that are transposed, at most
LINE = 64                                             # bytes of a line of the cache
# Floating-point operations of a chunk: some 30 microseconds.
CHUNK = 3_000_000
# Slots of the geometry.
(TAPS, OUTPUTS, OUTPUT_BLOCKS, SPANS, SPAN, POSITIONS, GROUP, TILES, DEEP, ROW, ROWS_Y, ROWS_IMAGE,
 SOURCE_IMAGE, SOURCE_Z, SOURCE_Y, OUT_IMAGE, OUT_Z, OUT_Y, OUT_CHANNEL, OUT_X, WEIGHTS, OUT_FIRST) = range(22)  # fmt: skip
# Slots of the table of weights: output channels of a group, elements from the weights of one group and one output channel to
# the next, tiles of a group and of all; then for each pass its taps, and where its places and its packed weights begin.
PER_GROUP, WEIGHT_GROUP, WEIGHT_OUTPUT, GROUP_TILES, ALL_TILES, PASSES = range(6)


@kernel(in_vectors=True)
def pack_weights(chunk, weight, packed, places, table, *, ROWS, PAIRS):
    """Weights of one tile of one pass as ``[tap][row of the tile]``, zeros where there is none; with PAIRS two taps side by side."""
    number = chunk // table[ALL_TILES]
    tile_number = chunk - number * table[ALL_TILES]
    facts = table + (PASSES + 3 * number)
    taps = facts[0]
    group = tile_number // table[GROUP_TILES]
    first = (tile_number - group * table[GROUP_TILES]) * ROWS
    output, here = table[WEIGHT_OUTPUT], table[PER_GROUP] - first
    source = weight + (group * table[WEIGHT_GROUP] + first * output)
    at = places + facts[1]
    if PAIRS:
        pairs = (taps + 1) // 2
        to = packed + (facts[2] + tile_number * pairs * ROWS)
        for k in range(pairs):
            for r in unroll(range(ROWS)):
                both = int32(0)
                for SIDE in unroll(range(2)):
                    if (2 * k + SIDE < taps) & (r < here):
                        place = at[2 * k + SIDE]
                        if place >= 0:
                            both = both | int32(source[r * output + place]) << (16 * SIDE)
                to[k * ROWS + r] = both
    else:
        to = packed + (facts[2] + tile_number * taps * ROWS)
        pack_single(to, source, at, taps, output, here, ROWS)


def pack_single(to, source, at, taps, output, here, ROWS):
    for k in range(taps):
        place = at[k]
        for r in unroll(range(ROWS)):
            if (r < here) & (place >= 0):
                to[k * ROWS + r] = source[r * output + place]
            else:
                to[k * ROWS + r] = 0


def gather(panel, planes, places, depth, position, count, geometry, LANES, VECTORS, PAIRS):
    """The elements `depth` taps read for `count` positions: ``panel[tap][position]``, with PAIRS ``panel[pair of taps][position]``."""
    WIDTH, VECTOR = LANES * VECTORS, LANES * widened(panel).bits // 8
    if count < WIDTH:
        for i in range(0, (depth + 1) // 2 * WIDTH if PAIRS else depth * WIDTH, LANES):
            store(panel, i, broadcast(widened(panel)(0), LANES))
    j = 0
    while j < count:
        row = (position + j) // geometry[ROW]
        x = position + j - row * geometry[ROW]
        length = min(geometry[ROW] - x, count - j)
        source = planes + (row_start(row, geometry + ROW, geometry + SOURCE_IMAGE) + x)
        if length == WIDTH:
            for v in unroll(range(VECTORS)):
                gather_vector(panel + v * LANES, source + v * LANES, places, depth, WIDTH, LANES, PAIRS, v * VECTOR % LINE == 0)
        else:
            for i in range(0, length, LANES):
                left = length - i
                at = j + i
                if left >= LANES:
                    gather_vector(panel + at, source + i, places, depth, WIDTH, LANES, PAIRS, True)
                else:
                    gather_part(panel + at, source + i, places, depth, left, WIDTH, LANES, PAIRS)
        j += length


def gather_vector(panel, source, places, depth, WIDTH, LANES, PAIRS, ASKS):
    """A vector for each tap. Where a line begins, it ASKS for what the next panel reads: the processor cannot foresee so many planes."""
    if PAIRS:
        KIND = vector(int32, LANES)
        for k in range(depth // 2):
            first, second = load(source, places[2 * k], LANES), load(source, places[2 * k + 1], LANES)
            store(panel, k * WIDTH, KIND(first) | KIND(second) << 16)
        if depth % 2 == 1:
            store(panel, depth // 2 * WIDTH, KIND(load(source, places[depth - 1], LANES)))
    else:
        for k in range(depth):
            store(panel, k * WIDTH, load(source, places[k], LANES))
            if ASKS:
                prefetch(source + (places[k] + WIDTH))


def gather_part(panel, source, places, depth, left, WIDTH, LANES, PAIRS):
    """`left` elements, less than a vector."""
    if PAIRS:
        KIND = vector(int32, LANES)
        for k in range(depth // 2):
            first, second = load(source, places[2 * k], LANES, left), load(source, places[2 * k + 1], LANES, left)
            store(panel, k * WIDTH, KIND(first) | KIND(second) << 16, left)
        if depth % 2 == 1:
            store(panel, depth // 2 * WIDTH, KIND(load(source, places[depth - 1], LANES, left)), left)
    else:
        for k in range(depth):
            store(panel, k * WIDTH, load(source, places[k], LANES, left), left)


def joined(x, y, total, PAIRS):
    return dot_bfloat16(x, y, total) if PAIRS else multiply_add(x, y, total)


def row_start(row, rows, steps):
    """Elements before a row of positions.

    Args:
        rows: positions in a row, rows along y, rows of an image.
        steps: elements from one image, and from one row along z and y, to the next.
    """
    image = row // rows[2]
    inner = row - image * rows[2]
    z = inner // rows[1]
    return image * steps[0] + z * steps[1] + (inner - z * rows[1]) * steps[2]


def multiply(panel, weights, sums, depth, fresh, bias, HEIGHT, ROWS, LANES, VECTORS, PAIRS):
    """Add `depth` taps, or pairs of them, to a register tile of HEIGHT output channels."""
    KIND = widened(sums)
    WIDTH = LANES * VECTORS
    acc = local(vector(KIND, LANES), HEIGHT * VECTORS)
    if fresh:
        for r in unroll(range(HEIGHT)):
            for v in unroll(range(VECTORS)):
                acc[r * VECTORS + v] = broadcast(bias[r], LANES)
    else:
        for r in unroll(range(HEIGHT)):
            for v in unroll(range(VECTORS)):
                acc[r * VECTORS + v] = load(sums, r * WIDTH + v * LANES, LANES)
    right = local(vector(widened(panel), LANES), VECTORS)
    for k in range(depth):
        for v in unroll(range(VECTORS)):
            right[v] = load(panel, k * WIDTH + v * LANES, LANES)
        for r in unroll(range(HEIGHT)):
            left = broadcast(weights[k * ROWS + r], LANES)
            for v in unroll(range(VECTORS)):
                acc[r * VECTORS + v] = joined(left, right[v], acc[r * VECTORS + v], PAIRS)
    for r in unroll(range(HEIGHT)):
        for v in unroll(range(VECTORS)):
            store(sums, r * WIDTH + v * LANES, acc[r * VECTORS + v])


def deliver(out, sums, outputs, position, count, geometry, LANES, VECTORS, HALF):
    """The finished sums of some rows of a panel to their places."""
    WIDTH = LANES * VECTORS
    channel, step = geometry[OUT_CHANNEL], geometry[OUT_X]
    j = 0
    while j < count:
        row = (position + j) // geometry[ROW]
        x = position + j - row * geometry[ROW]
        length = min(geometry[ROW] - x, count - j)
        to = out + (row_start(row, geometry + ROW, geometry + OUT_IMAGE) + x * step)
        source = sums + j
        if step == 1:
            deliver_row(to, source, outputs, length, channel, WIDTH, LANES, HALF)
        elif HALF:
            # Rounded as vectors, then dealt.
            rounded = local(HALF, WIDTH)
            bits, places = bitcast(rounded, int16), bitcast(to, int16)
            for o in range(outputs):
                for v in unroll(range(VECTORS)):
                    store(rounded, v * LANES, load(source, o * WIDTH + v * LANES, LANES))
                for i in range(length):
                    places[o * channel + i * step] = bits[i]
        else:
            for o in range(outputs):
                for i in range(length):
                    to[o * channel + i * step] = source[o * WIDTH + i]
        j += length


def deliver_row(to, source, outputs, length, channel, WIDTH, LANES, HALF):
    if HALF:
        # A vector is half a cache line, so that the other half comes next.
        for o in range(outputs):
            for i in range(0, length, LANES):
                part = load(source, o * WIDTH + i, LANES)
                if length - i >= LANES:
                    store(to, o * channel + i, part)
                else:
                    store(to, o * channel + i, part, length - i)
    else:
        for i in range(0, length, LANES):
            left = length - i
            if left >= LANES:
                for o in range(outputs):
                    store(to, o * channel + i, load(source, o * WIDTH + i, LANES))
            else:
                for o in range(outputs):
                    store(to, o * channel + i, load(source, o * WIDTH + i, LANES, left), left)


def deliver_last(out, sums, outputs, position, count, geometry, WIDTH, STAGES, SIDE):
    """`deliver` of all rows, to results whose channels lie last: squares of channels by positions are transposed."""
    step = geometry[OUT_X]
    v = local(vector(widened(sums), SIDE), SIDE)
    j = 0
    while j < count:
        row = (position + j) // geometry[ROW]
        x = position + j - row * geometry[ROW]
        length = min(geometry[ROW] - x, count - j)
        to = out + (row_start(row, geometry + ROW, geometry + OUT_IMAGE) + x * step)
        for i in range(0, length, SIDE):
            for o in range(0, outputs, SIDE):
                for r in unroll(range(SIDE)):
                    v[r] = load(sums, (o + r) * WIDTH + j + i, SIDE)
                transpose(v, STAGES, SIDE)
                for k in unroll(range(SIDE)):
                    if k < length - i:
                        store(to, (i + k) * step + o, v[k], outputs - o)
        j += length


@kernel(in_vectors=True)
def correlate(chunk, planes, packed, bias, out, places, geometry, *, ROWS, VECTORS, HALF, PAIRS, SIDE, STAGES):
    """SIDE is that of the squares that are transposed in these STAGES where channels lie last in `out`, else 0."""
    KIND = widened(bias)
    LANES = lanes(KIND)
    WIDTH = LANES * VECTORS
    STEP = 2 if PAIRS else 1
    panel = local(widened(packed), DEPTH * WIDTH)
    BLOCK = -(-MOST // ROWS) * ROWS
    # Tiles of six leave four of 64 channels, or of 256, for which there is a tile too.
    MIDDLE = ROWS * 2 // 3 if ROWS % 4 else ROWS // 2
    # Squares begin in the last rows, and go beyond them.
    sums = local(KIND, (BLOCK + SIDE) * WIDTH + SIDE)
    taps, blocks = geometry[TAPS], geometry[OUTPUT_BLOCKS]
    rest = chunk // blocks
    first = (chunk - rest * blocks) * BLOCK
    group = rest // geometry[SPANS]
    span = rest - group * geometry[SPANS]
    outputs = min(BLOCK, geometry[OUTPUTS] - first)
    source = planes + group * geometry[GROUP]
    steps = (taps + STEP - 1) // STEP
    weights = packed + (geometry[WEIGHTS] + (group * geometry[TILES] * ROWS + first) * steps)
    constant = bias + (group * geometry[TILES] * ROWS + first)
    target = out + (geometry[OUT_FIRST] + (group * geometry[OUTPUTS] + first) * geometry[OUT_CHANNEL])
    position = span * geometry[SPAN]
    stop = min(position + geometry[SPAN], geometry[POSITIONS])
    while position < stop:
        count = min(WIDTH, stop - position)
        row = position // geometry[ROW]
        place = row_start(row, geometry + ROW, geometry + OUT_IMAGE) + (position - row * geometry[ROW]) * geometry[OUT_X]
        k = 0
        while k < taps:
            depth = min(geometry[DEEP], taps - k)
            gather(panel, source, places + k, depth, position, count, geometry, LANES, VECTORS, PAIRS)
            deep = (depth + STEP - 1) // STEP
            o = 0
            while o < outputs:
                left = outputs - o
                part = weights + (o * steps + k // STEP * ROWS)
                if SIDE == 0 and k + depth == taps:
                    # Stores that wait for memory would hold up the next tile, so lines of results are asked for before it is multiplied.
                    for r in unroll(range(ROWS)):
                        for j in unroll(range(0, WIDTH, LINE // (KIND.bits // 8))):
                            prefetch(target + ((o + r) * geometry[OUT_CHANNEL] + (place + j)))
                if left > MIDDLE:
                    multiply(panel, part, sums + o * WIDTH, deep, k == 0, constant + o, ROWS, ROWS, LANES, VECTORS, PAIRS)
                elif MIDDLE > ROWS // 2 and left > ROWS // 2:
                    multiply(panel, part, sums + o * WIDTH, deep, k == 0, constant + o, MIDDLE, ROWS, LANES, VECTORS, PAIRS)
                else:
                    multiply(panel, part, sums + o * WIDTH, deep, k == 0, constant + o, ROWS // 2, ROWS, LANES, VECTORS, PAIRS)
                if SIDE == 0 and k + depth == taps:
                    # Tile by tile: rows of results a page apart share few places of the first cache, which all of them at
                    # once overflow.
                    deliver(target + o * geometry[OUT_CHANNEL], sums + o * WIDTH, min(ROWS, left), position, count, geometry, LANES,
                            VECTORS, HALF)  # fmt: skip
                o += ROWS
            k += depth
        if SIDE:
            deliver_last(target, sums, outputs, position, count, geometry, WIDTH, STAGES, SIDE)
        position += WIDTH


class Layout:
    """Where the planes of an image and its results lie, in elements."""

    __slots__ = ("counts", "group", "out_channel", "out_image", "out_steps", "source_image", "source_steps")

    def __init__(self, counts: Ints, source_image: int, group: int, source_steps: Ints, out_image: int, out_channel: int,
                 out_steps: Ints) -> None:  # fmt: skip
        self.counts, self.source_image, self.group = counts, source_image, group
        self.source_steps, self.out_image, self.out_channel, self.out_steps = source_steps, out_image, out_channel, out_steps

    def joined(self) -> Layout:
        """With axes that follow each other without a gap on both sides taken as one."""
        counts, source, out = list(self.counts), list(self.source_steps), list(self.out_steps)
        a = len(counts) - 1
        while a > 0:
            if source[a - 1] == counts[a] * source[a] and out[a - 1] == counts[a] * out[a]:
                counts[a] *= counts[a - 1]
                del counts[a - 1], source[a - 1], out[a - 1]
            a -= 1
        fill = 3 - len(counts)
        return Layout((*(1,) * fill, *counts), self.source_image, self.group, (*(0,) * fill, *source), self.out_image,
                      self.out_channel, (*(0,) * fill, *out))  # fmt: skip


def prepare(step: Pass, layout: Layout, images: int, groups: int, outputs: int, kind: np.dtype, pairs: bool,
            weights: int, first: int) -> tuple[int, np.ndarray]:  # fmt: skip
    """Chunks and geometry of one pass over some images.

    Args:
        kind: of the sums.
        pairs: whether taps are multiplied in pairs.
        weights, first: elements before the pass's packed weights and before its first result.
    """
    rows, vectors = tile("convolutions")
    width = vectors * (llvm.machine().register_bits // (8 * kind.itemsize))
    at = layout.joined()
    taps, positions = len(step.source), images * prod(at.counts)
    blocks = -(-outputs // (-(-MOST // rows) * rows))
    panels = -(-positions // width)
    span = max(1, CHUNK // (2 * taps * width * min(outputs, MOST)))
    spans = -(-panels // span)
    return spans * blocks * groups, np.array([
        taps, outputs, blocks, spans, span * width, positions, layout.group, -(-outputs // rows), _even(taps, pairs),
        at.counts[2], at.counts[1], at.counts[0] * at.counts[1], at.source_image, at.source_steps[0], at.source_steps[1],
        at.out_image, at.out_steps[0], at.out_steps[1], at.out_channel, at.out_steps[2],
        weights, first,
    ])  # fmt: skip


def _even(taps: int, pairs: bool) -> int:
    """As many as a panel has room for or less, so that the last part is not much shorter than the others; whole pairs."""
    step = 2 if pairs else 1
    parts = -(-taps // (step * DEPTH))
    return -(-taps // (parts * step)) * step
