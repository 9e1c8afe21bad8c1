"""Products of matrices of bytes by the processor's dot products of four (AVX512_VNNI, AVX_VNNI), exact in int32.

The instruction multiplies unsigned bytes with signed ones. So int8 on the left is moved up by 128, and each sum begins with what
that adds: 128 times the sum of the right side's column. Four bytes along the sum are a lane: the right side is packed into
panels two vectors wide, in which lanes of a column follow each other, and a tile of rows by two vectors stays in registers
while it walks along a panel. Sums wrap around as int32 do, so results are the same on every processor, in any order.
"""

from __future__ import annotations

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    dot_int8,
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

# Multiplications from which packing pays, rows of a chunk and panels of one.
LEAST, ROWS, PANELS = 1 << 15, 64, 8
TALL = 8                                              # rows of a register tile
ONES = 0x01010101


@kernel(in_vectors=True)
def pack_bytes(chunk, b, panels, starts, k, columns, row, quads, *, MOVED):
    """Panel `chunk` of the right side, and where the sums of its columns begin."""
    N = lanes(int32)
    begin = chunk * 2 * N
    to = panels + begin * quads
    for H in unroll((0, N)):
        first, here = begin + H, columns - (begin + H)
        total = broadcast(int32(0), N)
        for q in rolled(range(quads)):
            four = broadcast(int32(0), N)
            for I in unroll(range(4)):
                at = 4 * q + I
                if at < k:
                    four = four | (vector(int32, N)(load(b, at * row + first, N, here)) & 255) << (8 * I)
            store(to, q * 2 * N + H, four)
            total = dot_int8(broadcast(int32(ONES), N), four, total)
        store(starts, begin + H, total * -128 if MOVED else total * 0)


def tile(a, quads, panel, start, c, c_row, here, HEIGHT):
    """HEIGHT rows by two vectors, of which `here` columns exist."""
    N = lanes(int32)
    sums = local(vector(int32, N), 2 * HEIGHT)
    for R in unroll(range(HEIGHT)):
        for W in unroll(range(2)):
            sums[2 * R + W] = load(start, W * N, N)
    left, right = a, panel
    for _q in rolled(range(quads)):
        first, second = load(right, 0, N), load(right, N, N)
        for R in unroll(range(HEIGHT)):
            x = broadcast(left[R * quads], N)
            sums[2 * R] = dot_int8(x, first, sums[2 * R])
            sums[2 * R + 1] = dot_int8(x, second, sums[2 * R + 1])
        left += 1
        right += 2 * N
    for R in unroll(range(HEIGHT)):
        for W in unroll(range(2)):
            store(c, R * c_row + W * N, sums[2 * R + W], here - W * N)


@kernel(in_vectors=True)
def multiply_bytes(chunk, a, panels, starts, out, rows, columns, quads, groups):
    WIDE = 2 * lanes(int32)
    block = chunk // groups
    first = (chunk - block * groups) * (PANELS * WIDE)
    begin = block * ROWS
    stop = min(rows, begin + ROWS)
    for j in rolled(range(first, min(columns, first + PANELS * WIDE), WIDE)):
        i = begin
        for HEIGHT in unroll((TALL, 4, 2, 1)):
            while i + HEIGHT <= stop:
                outlined(tile)(a + i * quads, quads, panels + j * quads, starts + j, out + (i * columns + j), columns, columns - j, HEIGHT)
                i += HEIGHT


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` in int32: ``(m, k) @ (k, n) -> (m, n)`` of int8 or uint8 on the left and int8 on the right.

    `pays` says where this is faster than other products.
    """
    (m, k), n = a.shape, b.shape[1]
    quads, wide = -(-k // 4), 2 * llvm.machine().register_bits // 32
    moved = a.dtype == np.int8
    left = np.zeros((m, 4 * quads), np.uint8)
    np.bitwise_xor(a.view(np.uint8), 128 if moved else 0, out=left[:, :k])
    b = np.ascontiguousarray(b)
    count = -(-n // wide)
    panels, starts = np.empty(count * wide * quads, np.int32), np.empty(count * wide, np.int32)
    pack_bytes.run(count, b, panels, starts, k, n, n, quads, MOVED=moved)
    out = np.empty((m, n), np.int32)
    groups = -(-count // PANELS)
    multiply_bytes.run(-(-m // ROWS) * groups, left.view(np.int32), panels, starts, out, m, n, quads, groups, release=True)
    return out


def pays(m: int, n: int, k: int) -> bool:
    """Whether `product` is faster than others: from a size on, where the processor has the instruction."""
    return m * n * k >= LEAST and k > 0 and tier.compiles() and _has_dots()


def _has_dots() -> bool:
    features = llvm.machine().features.split(",")
    return "+avx512vnni" in features or "+avxvnni" in features
