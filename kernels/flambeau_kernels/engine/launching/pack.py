"""Operands that are not contiguous along the rows of a loop are first copied, a tile at a time, to where they are.

A transposed operand has each column of a row on another cache line, so a loop that walks its rows uses a few bytes of every
line it asks for, one element at a time. `pack` brings a tile into the innermost cache in squares of vectors; then one loop,
that for contiguous operands, runs on all of them. It is called by `native` before the loop, for each block of a plan whose
slot `PACK` has its address.
"""
from __future__ import annotations

import functools

from flambeau_kernels.engine.language import (
    independent,
    int64,
    kernel,
    load,
    outlined,
    pointer,
    rolled,
    shuffle,
    store,
    uint8,
    uint16,
    uint32,
    uint64,
    unroll,
)
from flambeau_kernels.engine.launching import call, native

# Bytes of an operand's tile, and columns of a tile of transposed operands: some cache lines of every row and column.
TILE_BYTES, SIDE = native.TILE_BYTES, 64
KINDS = {1: uint8, 2: uint16, 4: uint32, 8: uint64, 16: uint64}  # by the bytes of an element; of 16 in pairs


@functools.cache
def address(items: tuple[int, ...]) -> int:
    """Of ``void pack(i64, ptr)`` for elements of these numbers of bytes, which takes 40 ms to compile for each.

    Its second argument points to addresses: plan, operands, their strides, tiles, and (columns, rows).
    """
    names = ("plan", "operands", "strides", "tiles", "size")
    return call.address(pack, dict.fromkeys(names, "int64"), {"ITEMS": items})


@kernel(aliased=True)
def pack(_, plan, operands, strides, tiles, size, *, ITEMS):
    columns, rows = size[0], size[1]
    count = plan[native.OPERANDS]
    items = plan + native.DIMS + plan[native.OUTER] * (1 + count) + 2 * count
    dense = 1                                         # whether rows follow each other without gaps
    for k in rolled(range(count)):
        item = items[k]
        if item != 0:
            of, to = operands[k], int64(tiles) + k * TILE_BYTES
            along, down = strides[2 * k], strides[2 * k + 1]
            for ONE in unroll(ITEMS):
                if item == ONE:
                    by = outlined(collect_pairs if ONE == 16 else collect)
                    by(pointer(to, KINDS[ONE]), of, along, down, columns, rows, KIND=KINDS[ONE], SIZE=ONE)
            operands[k] = to
            strides[2 * k], strides[2 * k + 1] = item, item * columns
        if strides[2 * k + 1] != strides[2 * k] * columns:
            dense = 0
    if dense != 0:
        size[0], size[1] = columns * rows, 1


def collect(to, of, along, down, columns, rows, KIND, SIZE):
    """``to[i, j]`` is the element at ``of + i * down + j * along``, for all rows i and columns j."""
    LANES = min(16 // SIZE, 8)
    if along == 0:
        for i in rolled(range(rows)):
            value, row = pointer(of + i * down, KIND)[0], to + i * columns
            for j in independent(range(columns)):
                row[j] = value
    elif (down == SIZE) & (columns == 3):
        a, b, c = pointer(of, KIND), pointer(of + along, KIND), pointer(of + 2 * along, KIND)
        for i in independent(range(rows)):
            to[3 * i], to[3 * i + 1], to[3 * i + 2] = a[i], b[i], c[i]
    elif (down == SIZE) & (rows >= LANES):
        across, below = columns - columns % LANES, rows - rows % LANES
        for j in rolled(range(0, across, LANES)):
            first = of + j * along
            for i in rolled(range(0, below, LANES)):
                square(to + i * columns + j, columns, first + i * SIZE, along, KIND, LANES)
        for j in rolled(range(columns)):              # what is left of columns that have squares, and the others
            column = pointer(of + j * along, KIND)
            for i in rolled(range(below if j < across else 0, rows)):
                to[i * columns + j] = column[i]
    else:
        for i in rolled(range(rows)):
            row, first = to + i * columns, of + i * down
            if along == -SIZE:
                for j in independent(range(columns)):
                    row[j] = pointer(first, KIND)[-j]
            else:
                for j in rolled(range(columns)):
                    row[j] = pointer(first + j * along, KIND)[0]


def square(to, columns, of, along, KIND, LANES):
    """Transpose a square of vectors by shuffles: after as many rounds as two goes into the lanes, each row is a column."""
    rows = ()
    for u in unroll(range(LANES)):
        rows = rows + (load(pointer(of + u * along, KIND), 0, LANES),)  # noqa: RUF005  # the kernel language has no stars
    for _ in unroll(range(LANES.bit_length() - 1)):
        rows = interleaved(rows, LANES)
    for u in unroll(range(LANES)):
        store(to + u * columns, 0, rows[u])


def interleaved(rows, LANES):
    """The vectors of the first half with those of the second, lane by lane."""
    made = ()
    for u in unroll(range(LANES // 2)):
        a, b = rows[u], rows[u + LANES // 2]
        made = made + (shuffle(a, b, halves(LANES, 0)), shuffle(a, b, halves(LANES, 1)))  # noqa: RUF005
    return made


def halves(LANES, UPPER):
    lanes = ()
    for u in unroll(range(LANES // 2)):
        lanes = lanes + (u + UPPER * (LANES // 2), u + UPPER * (LANES // 2) + LANES)  # noqa: RUF005
    return lanes


def collect_pairs(to, of, along, down, columns, rows, KIND, SIZE):
    """`collect` of complex numbers of 16 bytes."""
    for i in rolled(range(rows)):
        for j in rolled(range(columns)):
            source, at = pointer(of + i * down + j * along, KIND), 2 * (i * columns + j)
            to[at], to[at + 1] = source[0], source[1]
