"""Cholesky and LU factors of one large matrix by blocks of `DEPTH` rows, and the solutions that LU leaves beside them.

A block is factored by one chunk. The rows right of it are then solved with its triangle, a strip of columns each, which is also laid down
as the product reads it; and what is left of the matrix loses that product, a tile at a time. Strips and tiles are cut by the size of the
matrix alone, and each element is taken from in the order of the blocks, so results do not depend on the threads. Real dtypes.

Source: Golub and Van Loan 2013, "Matrix Computations", sections 3.4.8 and 4.2.9 (right-looking block forms).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...engine.language import (
    broadcast,
    int32,
    kernel,
    lanes,
    load,
    local,
    multiply_add,
    outlined,
    rolled,
    store,
    unroll,
    vector,
    widened,
)
from ...engine.machine_code import llvm
from ...engines import kept
from ...vocabulary import sqrt, where
from ..shapes.move import in_rows
from ..tier import compiles

__all__ = ["cholesky", "lu", "takes"]

DEPTH = 64                                            # rows of a block
NARROW = 8                                            # columns of a block that are eliminated before the others are
VECTORS = 3                                           # vectors of a strip, whose columns are side by side in them
SPAN = 8                                              # tiles of a chunk


def takes(a: np.ndarray) -> bool:
    """Whether there are kernels for the matrix `a`."""
    return type(a) is np.ndarray and a.dtype.char in "fd" and compiles()


def _sizes(dtype: np.dtype) -> tuple[int, int]:
    """Columns of a strip, and rows whose sums of a tile are in registers together."""
    machine = llvm.machine()
    strip = VECTORS * machine.register_bits // (8 * dtype.itemsize)
    return strip, math.gcd(strip, 8 if machine.registers >= 32 else 4)


@functools.lru_cache(64)
def _constants(dtype: np.dtype) -> dict[str, int]:
    return {"ROWS": _sizes(dtype)[1]}


def cholesky(a: np.ndarray, upper: bool) -> np.ndarray | None:
    """The factor of a positive-definite matrix, by columns if it is the lower one; None for others.

    The other triangle of `a` is not looked at.
    """
    # By rows it is the upper factor; the lower one by columns is that of the transpose.
    work = _copied(a if upper else a.T)
    n, dtype = len(work), work.dtype
    strip, _ = _sizes(dtype)
    block, solve, take = _form(cholesky_block, dtype, 3, 3), _form(cholesky_strips, dtype, 3, 4), _form(cholesky_tiles, dtype, 2, 6)
    packed, inverse, info = np.empty(DEPTH * (n + strip), dtype), np.empty(DEPTH, dtype), np.zeros(1, np.int32)
    for first in range(0, n, DEPTH):
        last = min(first + DEPTH, n)
        block(1, False, work, inverse, info, n, first, last - first)
        if info[0]:
            return None
        if last < n:
            strips = -(-(n - last) // strip)
            spans = -(-strips // SPAN)
            solve(strips, True, work, inverse, packed, n, first, strip, n - last)
            take(strips * spans, True, work, packed, n, last, strip, n - last, strips, spans)
    return work if upper else work.T


def lu(a: np.ndarray, beside: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, int]:
    """Packed factors by rows, rows exchanged (from 0), and the first zero on the diagonal of U, from 1, or 0.

    With right sides `beside` the factors of ``[a, beside]``, in whose last columns they are solved with L.
    """
    work = _copied(a) if beside is None else np.concatenate([a, beside], 1)
    (m, n), dtype = work.shape, work.dtype
    k = min(m, a.shape[1])
    strip, rows = _sizes(dtype)
    block, solve, take = _form(lu_block, dtype, 4, 5), _form(lu_strips, dtype, 4, 6), _form(lu_tiles, dtype, 3, 8)
    line = 64 // dtype.itemsize
    padded = (m + rows + 2 * line - 1) // line * line
    padded += 0 if padded // line % 2 else line       # odd, so that the columns of a block do not meet in few sets of a cache
    panel, packed = np.zeros(DEPTH * padded, dtype), np.empty(DEPTH * (n + strip), dtype)
    pivots, info = np.empty(k, np.int32), np.zeros(1, np.int32)
    for first in range(0, k, DEPTH):
        last = min(first + DEPTH, k)
        block(1, False, work, panel, pivots, info, m, n, first, last - first, padded)
        before, after = -(-first // strip), -(-(n - last) // strip)
        if before + after:
            solve(before + after, True, work, panel, packed, pivots, n, first, last, strip, padded, before)
        if last < min(m, n):
            down, across = -(-(m - last) // strip), -(-after // SPAN)
            take(down * across, True, work, panel, packed, m, n, last, last - first, strip, padded, after, across)
    return work, pivots, int(info[0])


def _copied(a: np.ndarray) -> np.ndarray:
    return a.copy() if a.flags.c_contiguous else in_rows(a)


@kept()
def _form(kernel: Any, dtype: np.dtype, arrays: int, numbers: int) -> Any:
    """`kernel` as it is called, with so many arrays and numbers."""
    integers = {cholesky_block: 1, lu_block: 2, lu_strips: 1}.get(kernel, 0)
    types = (dtype,) * (arrays - integers) + (np.dtype(np.int32),) * integers + (int,) * numbers
    return kernel.form(types, {} if kernel in (cholesky_block, lu_block) else _constants(dtype))


# -- strips and tiles ----------------------------------------------------------------------------------------------------------


def solved_strip(to, step, factors, factor_step, inverse, packed, width, columns, rows, ROWS, VECTORS, FULL, UNIT, KIND):
    """A strip of `rows` rows of `to` solved with the transposed triangle `factors`, also to `packed`, `rows` of which lie `width` apart."""
    N = lanes(KIND)
    sums, known = local(vector(KIND, N), ROWS * VECTORS), local(vector(KIND, N), VECTORS)
    for k in rolled(range(0, rows, ROWS)):
        for R in unroll(range(ROWS)):
            for V in unroll(range(VECTORS)):
                if FULL:
                    sums[R * VECTORS + V] = load(to, (k + R) * step + V * N, N)
                else:
                    sums[R * VECTORS + V] = load(to, min(k + R, rows - 1) * step + V * N, N, columns - V * N)
        for p in rolled(range(k)):
            for V in unroll(range(VECTORS)):
                known[V] = load(packed, p * width + V * N, N)
            line = factors + p * factor_step + k
            for R in unroll(range(ROWS)):
                taken = broadcast(-line[R], N)
                for V in unroll(range(VECTORS)):
                    sums[R * VECTORS + V] = multiply_add(taken, known[V], sums[R * VECTORS + V])
        for R in unroll(range(ROWS)):
            if FULL or k + R < rows:
                for P in unroll(range(R)):
                    taken = broadcast(-factors[(k + P) * factor_step + k + R], N)
                    for V in unroll(range(VECTORS)):
                        sums[R * VECTORS + V] = multiply_add(taken, sums[P * VECTORS + V], sums[R * VECTORS + V])
                if not UNIT:
                    for V in unroll(range(VECTORS)):
                        sums[R * VECTORS + V] = sums[R * VECTORS + V] * broadcast(inverse[k + R], N)
                for V in unroll(range(VECTORS)):
                    store(packed, (k + R) * width + V * N, sums[R * VECTORS + V])
                    if FULL:
                        store(to, (k + R) * step + V * N, sums[R * VECTORS + V])
                    else:
                        store(to, (k + R) * step + V * N, sums[R * VECTORS + V], columns - V * N)


def less_product(to, step, left, left_step, right, width, rows, columns, depth, ROWS, VECTORS, FULL, KIND):
    """``to[i, j] -= sum over k of left[k, i] * right[k, j]``, for `rows` rows of a tile."""
    N = lanes(KIND)
    sums, other = local(vector(KIND, N), ROWS * VECTORS), local(vector(KIND, N), VECTORS)
    for i in rolled(range(0, rows, ROWS)):
        for R in unroll(range(ROWS)):
            for V in unroll(range(VECTORS)):
                sums[R * VECTORS + V] = broadcast(KIND(0), N)
        for k in rolled(range(depth)):
            for V in unroll(range(VECTORS)):
                other[V] = load(right, k * width + V * N, N)
            line = left + k * left_step + i
            for R in unroll(range(ROWS)):
                taken = broadcast(line[R], N)
                for V in unroll(range(VECTORS)):
                    sums[R * VECTORS + V] = multiply_add(taken, other[V], sums[R * VECTORS + V])
        for R in unroll(range(ROWS)):
            if FULL or i + R < rows:
                for V in unroll(range(VECTORS)):
                    at = (i + R) * step + V * N
                    if FULL:
                        store(to, at, load(to, at, N) - sums[R * VECTORS + V])
                    else:
                        store(to, at, load(to, at, N, columns - V * N) - sums[R * VECTORS + V], columns - V * N)


# -- Cholesky ------------------------------------------------------------------------------------------------------------------


@kernel(in_vectors=True)
def cholesky_block(chunk, work, inverse, info, n, first, rows):
    """The upper factor of a block of `work`, in place, with zeros below, and what its diagonal divides by."""
    KIND = widened(work)
    N = lanes(KIND)
    PADDED = DEPTH + N
    block = local(KIND, (DEPTH + 1) * (DEPTH + N))
    source = work + first * n + first
    for i in rolled(range(rows)):
        for j in rolled(range(0, DEPTH, N)):
            store(block, i * PADDED + j, load(source, i * n + j, N, rows - j))
        store(block, i * PADDED + DEPTH, broadcast(KIND(0), N))
    for k in rolled(range(rows)):
        line = block + k * PADDED
        square = line[k]
        if info[0] == 0 and not (square > KIND(0) and square < KIND(math.inf)):
            info[0] = int32(k + 1)
        root = sqrt(square)
        factor = KIND(1) / root
        inverse[k] = factor
        for j in rolled(range(k + 1, rows, N)):
            store(line, j, load(line, j, N) * broadcast(factor, N))
        line[k] = root
        for i in rolled(range(k + 1, rows)):
            taken, to = broadcast(-line[i], N), block + i * PADDED
            for j in rolled(range(i, rows, N)):
                store(to, j, multiply_add(taken, load(line, j, N), load(to, j, N)))
    for i in rolled(range(rows)):
        for j in rolled(range(i)):
            block[i * PADDED + j] = KIND(0)
        for j in rolled(range(0, DEPTH, N)):
            store(source, i * n + j, load(block, i * PADDED + j, N), rows - j)
        for j in rolled(range(0, first, N)):
            store(work + (first + i) * n, j, broadcast(KIND(0), N))


@kernel(in_vectors=True)
def cholesky_strips(chunk, work, inverse, packed, n, first, strip, right, *, ROWS):
    KIND = widened(work)
    column = chunk * strip
    columns = min(strip, right - column)
    factors, kept = work + first * n + first, packed + column * DEPTH
    to = factors + DEPTH + column
    if columns == strip:
        outlined(solved_strip)(to, n, factors, n, inverse, kept, strip, columns, DEPTH, ROWS, VECTORS, True, False, KIND)
    else:
        for j in rolled(range(0, columns, lanes(KIND))):
            outlined(solved_strip)(to + j, n, factors, n, inverse, kept + j, strip, columns - j, DEPTH, ROWS, 1, False, False, KIND)


@kernel(in_vectors=True)
def cholesky_tiles(chunk, work, packed, n, last, strip, right, strips, spans, *, ROWS):
    KIND = widened(work)
    down = chunk // spans
    begin = down + (chunk - down * spans) * SPAN
    row = down * strip
    rows = min(strip, right - row)
    for across in rolled(range(begin, min(begin + SPAN, strips))):
        column = across * strip
        columns = min(strip, right - column)
        to = work + (last + row) * n + last + column
        left, other = packed + row * DEPTH, packed + column * DEPTH
        if columns == strip:
            outlined(less_product)(to, n, left, strip, other, strip, rows, columns, DEPTH, ROWS, VECTORS, True, KIND)
        else:
            for j in rolled(range(0, columns, lanes(KIND))):
                outlined(less_product)(to + j, n, left, strip, other + j, strip, rows, columns - j, DEPTH, ROWS, 1, False, KIND)


# -- LU ------------------------------------------------------------------------------------------------------------------------


def less_columns(panel, padded, start, begin, end, rows, NARROW, TOGETHER, KIND):
    """From columns of a block, `TOGETHER` at once, what the `NARROW` ones from `start` on, which are done, take from them."""
    N = lanes(KIND)
    sums, factors = local(vector(KIND, N), TOGETHER), local(vector(KIND, N), TOGETHER * NARROW)
    for c in rolled(range(begin, end, TOGETHER)):
        to = panel + c * padded
        for T in unroll(range(TOGETHER)):
            column = to + T * padded + start
            for q in rolled(range(NARROW)):
                value = column[q]
                for p in rolled(range(q)):
                    value = value - panel[(start + p) * padded + start + q] * column[p]
                column[q] = value
            for Q in unroll(range(NARROW)):
                factors[T * NARROW + Q] = broadcast(-column[Q], N)
        for i in rolled(range(start + NARROW, rows, N)):
            for T in unroll(range(TOGETHER)):
                sums[T] = load(to, T * padded + i, N)
            for Q in unroll(range(NARROW)):
                line = load(panel, (start + Q) * padded + i, N)
                for T in unroll(range(TOGETHER)):
                    sums[T] = multiply_add(factors[T * NARROW + Q], line, sums[T])
            for T in unroll(range(TOGETHER)):
                store(to, T * padded + i, sums[T])


@kernel(in_vectors=True)
def lu_block(chunk, work, panel, pivots, info, m, n, first, depth, padded):
    """The factors of a block of columns, which are rows of `panel` meanwhile."""
    KIND = widened(work)
    N = lanes(KIND)
    rows = m - first
    source = work + first * n + first
    largest, place = local(KIND, N), local(KIND, N)
    for i in rolled(range(rows)):
        line = source + i * n
        for k in rolled(range(depth)):
            panel[k * padded + i] = line[k]
    for k in rolled(range(depth)):
        store(panel, k * padded + rows, broadcast(KIND(0), N))
    for start in rolled(range(0, depth, NARROW)):
        stop = min(start + NARROW, depth)
        for k in rolled(range(start, stop)):
            column = panel + k * padded
            best, found = broadcast(KIND(-1), N), broadcast(KIND(0), N)
            for i in rolled(range(k, rows, N)):
                here = abs(load(column, i, N))
                larger = here > best
                found = where(larger, broadcast(KIND(i), N), found)
                best = where(larger, here, best)
            store(largest, 0, best)
            store(place, 0, found)
            top, at = KIND(-0.5), k
            for lane in rolled(range(N)):
                row = int(place[lane]) + lane
                # Behind the last row lie zeros.
                if row < rows and (largest[lane] > top or (largest[lane] == top and row < at)):
                    top = largest[lane]
                    at = row
            pivots[first + k] = int32(first + at)
            if at != k:
                for c in rolled(range(depth)):
                    kept = panel[c * padded + k]
                    panel[c * padded + k] = panel[c * padded + at]
                    panel[c * padded + at] = kept
            pivot = column[k]
            if pivot == KIND(0):
                if info[0] == 0:
                    info[0] = int32(first + k + 1)
            else:
                for i in rolled(range(k + 1, rows, N)):
                    store(column, i, load(column, i, N) / broadcast(pivot, N))
                for c in rolled(range(k + 1, stop)):
                    to = panel + c * padded
                    taken = broadcast(-to[k], N)
                    for i in rolled(range(k + 1, rows, N)):
                        store(to, i, multiply_add(taken, load(column, i, N), load(to, i, N)))
        tail = stop + (depth - stop) // 4 * 4
        if stop < depth:
            outlined(less_columns)(panel, padded, start, stop, tail, rows, NARROW, 4, KIND)
            outlined(less_columns)(panel, padded, start, tail, depth, rows, NARROW, 1, KIND)
    for i in rolled(range(rows)):
        line = source + i * n
        for k in rolled(range(depth)):
            line[k] = panel[k * padded + i]


@kernel(in_vectors=True)
def lu_strips(chunk, work, panel, packed, pivots, n, first, last, strip, padded, before, *, ROWS):
    """Rows exchanged in a strip of columns, which right of the block is solved with its triangle."""
    KIND = widened(work)
    N = lanes(KIND)
    column = chunk * strip if chunk < before else last + (chunk - before) * strip
    columns = min(strip, (first if chunk < before else n) - column)
    strip_of = work + column
    for k in rolled(range(first, last)):
        at = int(pivots[k])
        if at != k:
            mine, other = strip_of + k * n, strip_of + at * n
            for j in rolled(range(0, columns, N)):
                kept = load(mine, j, N, columns - j)
                store(mine, j, load(other, j, N, columns - j), columns - j)
                store(other, j, kept, columns - j)
    if chunk >= before:
        rows = last - first
        to, kept_at = strip_of + first * n, packed + (chunk - before) * strip * DEPTH
        if columns == strip and rows == DEPTH:
            outlined(solved_strip)(to, n, panel, padded, panel, kept_at, strip, columns, rows, ROWS, VECTORS, True, True, KIND)
        else:
            for j in rolled(range(0, columns, N)):
                outlined(solved_strip)(to + j, n, panel, padded, panel, kept_at + j, strip, columns - j, rows, ROWS, 1, False, True, KIND)


@kernel(in_vectors=True)
def lu_tiles(chunk, work, panel, packed, m, n, last, depth, strip, padded, strips, spans, *, ROWS):
    KIND = widened(work)
    down = chunk // spans
    begin = (chunk - down * spans) * SPAN
    row = down * strip
    rows = min(strip, m - last - row)
    left = panel + depth + row
    for across in rolled(range(begin, min(begin + SPAN, strips))):
        column = across * strip
        columns = min(strip, n - last - column)
        to = work + (last + row) * n + last + column
        other = packed + column * DEPTH
        if columns == strip and rows == strip:
            outlined(less_product)(to, n, left, padded, other, strip, rows, columns, depth, ROWS, VECTORS, True, KIND)
        else:
            for j in rolled(range(0, columns, lanes(KIND))):
                outlined(less_product)(to + j, n, left, padded, other + j, strip, rows, columns - j, depth, ROWS, 1, False, KIND)
