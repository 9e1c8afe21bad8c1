"""Products of matrices of bytes, and of int16, by dot products of neighbours along the sum, exact in int32.

A lane of 32 bits holds four bytes where the processor has dot products of them (AVX512_VNNI, AVX_VNNI), else two int16, which every
x86-64 multiplies and adds in one instruction. The right side is packed into panels two vectors wide, in which the lanes of a column
follow each other, and a tile of rows by two vectors stays in registers while it walks along a panel.

The instruction for bytes multiplies unsigned ones with signed ones. So int8 on the left is moved up by 128, and each sum begins with what
that adds: 128 times the sum of the right side's column. Sums wrap around as int32 do, so results are the same on every processor, in any
order.
"""

from __future__ import annotations

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    dot_int8,
    dot_int16,
    int32,
    kernel,
    lanes,
    load,
    local,
    outlined,
    rolled,
    store,
    unroll,
    vector,
)
from flambeau_kernels.engine.machine_code import llvm

from .. import tier

__all__ = ["pays", "product"]

# Multiplications from which packing pays, for bytes and for pairs; rows of a chunk and panels of one.
LEAST, LEAST_OF_PAIRS, ROWS, PANELS = 1 << 15, 1 << 21, 64, 8
ONES = 0x01010101
BYTES, PAIRS = 4, 2                                   # elements of a lane


@kernel(in_vectors=True)
def pack_columns(chunk, b, panels, starts, k, columns, row, steps, *, SIZE, MOVED):
    """Panel `chunk` of the right side, `SIZE` elements to a lane, and where the sums of its columns begin."""
    N, BITS = lanes(int32), 32 // SIZE
    begin = chunk * 2 * N
    to = panels + begin * steps
    for H in unroll((0, N)):
        first, here = begin + H, columns - (begin + H)
        total = broadcast(int32(0), N)
        for q in rolled(range(steps)):
            lane = broadcast(int32(0), N)
            for I in unroll(range(SIZE)):
                at = SIZE * q + I
                if at < k:
                    lane = lane | (vector(int32, N)(load(b, at * row + first, N, here)) & ((1 << BITS) - 1)) << (BITS * I)
            store(to, q * 2 * N + H, lane)
            if MOVED:
                total = dot_int8(broadcast(int32(ONES), N), lane, total)
        store(starts, begin + H, total * -128)


def tile(a, steps, panel, start, c, c_row, here, HEIGHT, SIZE):
    """HEIGHT rows by two vectors, of which `here` columns exist."""
    N = lanes(int32)
    sums = local(vector(int32, N), 2 * HEIGHT)
    for R in unroll(range(HEIGHT)):
        for W in unroll(range(2)):
            sums[2 * R + W] = load(start, W * N, N)
    left, right = a, panel
    for _q in rolled(range(steps)):
        first, second = load(right, 0, N), load(right, N, N)
        for R in unroll(range(HEIGHT)):
            x = broadcast(left[R * steps], N)
            if SIZE == BYTES:
                sums[2 * R], sums[2 * R + 1] = dot_int8(x, first, sums[2 * R]), dot_int8(x, second, sums[2 * R + 1])
            else:
                sums[2 * R], sums[2 * R + 1] = dot_int16(x, first, sums[2 * R]), dot_int16(x, second, sums[2 * R + 1])
        left += 1
        right += 2 * N
    for R in unroll(range(HEIGHT)):
        for W in unroll(range(2)):
            store(c, R * c_row + W * N, sums[2 * R + W], here - W * N)


@kernel(in_vectors=True)
def multiply_lanes(chunk, a, panels, starts, out, rows, columns, steps, groups, *, SIZE, TALL):
    WIDE = 2 * lanes(int32)
    block = chunk // groups
    first = (chunk - block * groups) * (PANELS * WIDE)
    begin = block * ROWS
    stop = min(rows, begin + ROWS)
    for j in rolled(range(first, min(columns, first + PANELS * WIDE), WIDE)):
        i = begin
        for HEIGHT in unroll((TALL, 4, 2, 1)):
            while i + HEIGHT <= stop:
                outlined(tile)(a + i * steps, steps, panels + j * steps, starts + j, out + (i * columns + j), columns, columns - j,
                               HEIGHT, SIZE)  # fmt: skip
                i += HEIGHT


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` in int32: ``(m, k) @ (k, n) -> (m, n)`` of int8, uint8 or int16 on the left and int8 or int16 on the right.

    `pays` says where this is faster than other products.
    """
    (m, k), n = a.shape, b.shape[1]
    size = BYTES if a.itemsize == b.itemsize == 1 and _has_dots_of_bytes() else PAIRS
    machine = llvm.machine()
    steps, wide = -(-k // size), 2 * machine.register_bits // 32
    moved = size == BYTES and a.dtype == np.int8
    left = np.zeros((m, size * steps), np.uint8 if size == BYTES else np.int16)
    if size == BYTES:
        np.bitwise_xor(a.view(np.uint8), 128 if moved else 0, out=left[:, :k])
    else:
        left[:, :k] = a
    b = np.ascontiguousarray(b)
    count = -(-n // wide)
    panels, starts = np.empty(count * wide * steps, np.int32), np.empty(count * wide, np.int32)
    pack_columns.run(count, b, panels, starts, k, n, n, steps, SIZE=size, MOVED=moved)
    out = np.empty((m, n), np.int32)
    groups = -(-count // PANELS)
    # Two vectors of sums for each row, two of the right side and one of the left are in registers.
    multiply_lanes.run(-(-m // ROWS) * groups, left.view(np.int32), panels, starts, out, m, n, steps, groups,
                       SIZE=size, TALL=8 if machine.registers > 16 else 6, release=True)  # fmt: skip
    return out


def pays(m: int, n: int, k: int, itemsize: int) -> bool:
    """Whether `product` is faster than others, for elements of so many bytes: from a size on, where the processor has the instruction."""
    if not k or m * n * k < LEAST or not tier.compiles():
        return False
    return itemsize == 1 and _has_dots_of_bytes() or m * n * k >= LEAST_OF_PAIRS and llvm.machine().triple.startswith("x86_64")


def _has_dots_of_bytes() -> bool:
    features = llvm.machine().features.split(",")
    return "+avx512vnni" in features or "+avxvnni" in features
