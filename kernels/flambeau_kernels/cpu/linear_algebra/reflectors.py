"""QR factorizations by Householder's reflectors, of one matrix or many.

A reflector is applied to rows: it adds them up into a row of products, of which each loses its share. That pass over what is left of the
matrix also adds the rows up for the next reflector, whose column is brought up to date first, so each step reads and writes the matrix
once. Wide matrices are taken `BLOCK` columns at a time; the reflectors of a block, one matrix of the form ``1 - V T V'`` (Schreiber and
Van Loan, A Storage-Efficient WY Representation for Products of Householder Transformations, 1989), go to the rest by products of
matrices. A chunk is some whole matrices, so results do not depend on the threads. Real dtypes; signs are LAPACK's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine.language import (
    broadcast,
    float64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    outlined,
    rolled,
    store,
    widened,
)
from ...engines import kept
from ...vocabulary import fma, sqrt, where
from ..products.matmul import matmul
from ..sums import lanes_of, wide
from ..tier import compiles
from .matrices_by_rows import of_matrices

__all__ = ["qr", "takes", "turned_back"]

BLOCK = 32                                            # columns of a block
BLOCKED_FROM = 256                                    # of the smaller side of a matrix
WORK = 1 << 15                                        # multiplications of a chunk, about
MOST_CHUNKS = 64                                      # each has memory for one matrix


def takes(a: Any) -> bool:
    """Whether the batch `a` of matrices can be factored here."""
    return type(a) is np.ndarray and a.ndim > 1 and a.size > 0 and a.dtype.char in "fd" and compiles()


def qr(a: np.ndarray, mode: str) -> Any:
    """Q and R for the modes 'reduced' and 'complete', small ones by columns; for the mode 'r' Q is empty."""
    if min(a.shape[-2:]) < BLOCKED_FROM:
        return _planned(a.shape, a.strides, a.dtype, mode)(a)
    flat, *_ = of_matrices(a)
    count, m, n = flat.shape
    k = min(m, n)
    columns = 0 if mode == "r" else m if mode == "complete" else k
    q, r = np.empty((count, m, columns), a.dtype), np.empty((count, m if mode == "complete" else k, n), a.dtype)
    for i in range(count):
        _by_blocks(flat[i], q[i], r[i])
    batch = a.shape[:-2]
    empty = np.zeros(0, a.dtype)
    return empty if mode == "r" else q.reshape(*batch, m, columns), r.reshape(*batch, *r.shape[1:])


@kept(256)
def _planned(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, mode: str) -> Any:
    """``run(a)`` for small matrices: the same without what follows from the shape."""
    *batch, m, n = shape
    size, count, k = dtype.itemsize, math.prod(batch), min(m, n)
    columns, rows = 0 if mode == "r" else m if mode == "complete" else k, m if mode == "complete" else k
    per = max(1, WORK // (2 * m * n * k), -(-count // MOST_CHUNKS))
    chunks = -(-count // per)
    padded, long = _padded(n, size), _padded(m, size)
    square = _padded(max(1, columns), size)
    room = m * padded + k * long + m * square + 2 * max(padded, square) + 2 * long
    # One number after the other is moved as soon as any of few; the rows of large matrices are written as they are.
    by_columns = m * n <= 1 << 12
    form = _form(dtype, by_columns)
    release = count * m * n * k > WORK
    # One matrix, or some that lie one after the other at any distance; others are copied.
    plain = len(shape) <= 3 and all(s >= 0 and s % size == 0 for s in strides)
    steps = (0, 0, 0, *(s // size for s in strides))[-3:] if plain else (m * n, n, 1)
    numbers = (count, per, m, n, columns, rows, padded, long, square, room, *steps)
    q_shape, r_shape = ((*batch, columns, m), (*batch, n, rows)) if by_columns else ((*batch, m, columns), (*batch, rows, n))

    def run(a: np.ndarray) -> Any:
        q, r = np.empty(q_shape, dtype), np.empty(r_shape, dtype)
        form(chunks, release, a if plain else np.ascontiguousarray(a), q, r, np.empty(chunks * room, dtype), *numbers)
        if by_columns:
            q, r = q.swapaxes(-1, -2), r.swapaxes(-1, -2)
        return np.zeros(0, dtype) if mode == "r" else q, r

    return run


def _padded(n: int, itemsize: int) -> int:
    """Numbers from one row to the next: whole vectors of 64 bytes, an odd number of them, so that columns are spread over the cache."""
    vectors = -(-n * itemsize // 64)
    return (vectors | 1) * 64 // itemsize


@kept()
def _form(dtype: np.dtype, by_columns: bool) -> Any:
    return qr_rows.form((dtype,) * 4 + (int,) * 13, {"BY_COLUMNS": by_columns})


@kept()
def _panel_form(dtype: np.dtype) -> Any:
    return panel_rows.form((dtype,) * 5 + (int,) * 5, {})


@kept()
def _joined_form(dtype: np.dtype) -> Any:
    return joined_rows.form((dtype,) * 3 + (int,) * 2, {})


def _by_blocks(a: np.ndarray, q: np.ndarray, r: np.ndarray) -> None:
    """`_factor` of one large matrix."""
    m, n = a.shape
    k, padded = min(m, n), _padded(n, a.itemsize)
    work = np.empty((m, padded), a.dtype)
    left = work[:, :n]
    left[...] = a
    blocks = []
    for first in range(0, k, BLOCK):
        width = min(BLOCK, k - first)
        reflectors, joined = _panel(left[first:, first : first + width])
        blocks.append((first, reflectors, joined))
        rest = left[first:, first + width :]
        if rest.size:
            _apply(rest, reflectors, np.ascontiguousarray(joined.T))
    rows = r.shape[0]
    r[...] = left[:rows]
    for i in range(rows):
        r[i, : min(i, n)] = 0
    columns = q.shape[1]
    if not columns:
        return
    space = np.zeros((m, _padded(columns, a.itemsize)), a.dtype)
    made = space[:, :columns]
    np.fill_diagonal(made, 1)
    for first, reflectors, joined in reversed(blocks):
        _apply(made[first:, first:], reflectors, joined)
    q[...] = made


def _apply(rest: np.ndarray, reflectors: np.ndarray, joined: np.ndarray) -> None:
    """``rest -= V T V' rest``, with the columns of V in the rows of `reflectors`."""
    shares = matmul(joined, matmul(reflectors, rest))
    matmul(np.negative(reflectors).T, shares, rest, accumulate=True)


def _panel(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factor some columns in place; V', with ones and zeros written out, and T of all their reflectors."""
    m, n = columns.shape
    padded, long = _padded(n, columns.itemsize), _padded(m, columns.itemsize)
    reflectors, shares, work = (np.empty(size, columns.dtype) for size in (n * long, n, m * padded + 2 * padded + long))
    step = columns.strides[0] // columns.itemsize
    _panel_form(columns.dtype)(1, True, columns, reflectors, shares, work, work, m, n, step, padded, long)
    made = reflectors.reshape(n, long)[:, :m]
    joined = np.zeros((n, n), columns.dtype)
    _joined_form(columns.dtype)(1, True, matmul(made, made.T), shares, joined, n, n)
    return made, joined


def turned_back(lines: np.ndarray, shares: np.ndarray, vectors: np.ndarray, first: int) -> np.ndarray:
    """The product of reflectors with each of the rows of `vectors`, rows again, on all threads.

    Args:
        lines: a reflector to a row, of any length from n on; reflector k begins at number ``k + first``.
        shares: as LAPACK's ``tau``.
        vectors: ``(n, n)``, in C order.
    """
    n, dtype = len(vectors), vectors.dtype
    strip = 4 * _lanes(dtype)
    chunks = -(-n // strip)
    out, work = np.empty((n, n), dtype), np.empty(chunks * (n + 2) * strip, dtype)
    _turned_form(dtype)(chunks, True, vectors, lines, shares, out, work, n, lines.strides[0] // dtype.itemsize, first)
    return out


@kept()
def _turned_form(dtype: np.dtype) -> Any:
    return turned_rows.form((dtype,) * 5 + (int,) * 3, {})


def _lanes(dtype: np.dtype) -> int:
    """Numbers of a register."""
    from ...engine.machine_code import llvm

    return llvm.machine().register_bits // (8 * dtype.itemsize)


# -- kernels -----------------------------------------------------------------------------------------------------------------


def reflected(work, step, line, first, last, start, end, products, following, line_after, KIND):
    """Rows `first` to `last` of `work` lose ``line[i] * products``, and are then added up by `line_after` into `following`."""
    N = lanes(KIND)
    tail = start + (end - start) // (4 * N) * (4 * N)
    for j in rolled(range(start, tail, 4 * N)):
        p0, p1, p2, p3 = load(products, j, N), load(products, j + N, N), load(products, j + 2 * N, N), load(products, j + 3 * N, N)
        s0, s1, s2, s3 = broadcast(KIND(0), N), broadcast(KIND(0), N), broadcast(KIND(0), N), broadcast(KIND(0), N)
        for i in rolled(range(first, last)):
            row = work + i * step
            taken, added = broadcast(-line[i], N), broadcast(line_after[i], N)
            x0 = fma(taken, p0, load(row, j, N))
            x1 = fma(taken, p1, load(row, j + N, N))
            x2 = fma(taken, p2, load(row, j + 2 * N, N))
            x3 = fma(taken, p3, load(row, j + 3 * N, N))
            store(row, j, x0)
            store(row, j + N, x1)
            store(row, j + 2 * N, x2)
            store(row, j + 3 * N, x3)
            s0 = fma(added, x0, s0)
            s1 = fma(added, x1, s1)
            s2 = fma(added, x2, s2)
            s3 = fma(added, x3, s3)
        store(following, j, s0)
        store(following, j + N, s1)
        store(following, j + 2 * N, s2)
        store(following, j + 3 * N, s3)
    for j in rolled(range(tail, end, N)):
        p = load(products, j, N)
        s = broadcast(KIND(0), N)
        for i in rolled(range(first, last)):
            row = work + i * step
            x = fma(broadcast(-line[i], N), p, load(row, j, N))
            store(row, j, x)
            s = fma(broadcast(line_after[i], N), x, s)
        store(following, j, s)


def square_sum(line, first, last, KIND):
    """The sum of the squares of ``line[first:last]`` in float64."""
    N = lanes_of(KIND)
    sums = broadcast(0.0, N)
    i = first
    while i + N <= last:
        x = wide(load(line, i, N), KIND)
        sums = fma(x, x, sums)
        i += N
    total = lane_sum(sums)
    while i < last:
        total = total + float64(line[i]) * float64(line[i])
        i += 1
    return total


def made_reflector(line, k, m, KIND):
    """The reflector that leaves of ``line[k:m]`` its first number: its vector in place, the number and the share it takes."""
    scale = KIND(1)
    if KIND is float64:
        largest = KIND(0)
        for i in rolled(range(k, m)):
            largest = where(abs(line[i]) > largest, abs(line[i]), largest)
        # Squares of these would overflow, or lose their digits. Powers of two take none.
        if largest > KIND(1e140) and largest < KIND(math.inf):
            scale = KIND(2.0**-520)
        if largest < KIND(1e-140) and largest > KIND(0):
            scale = KIND(2.0**520) if largest > KIND(1e-290) else KIND(2.0**1000)
        if scale != KIND(1):
            for i in rolled(range(k, m)):
                line[i] = line[i] * scale
    rest = square_sum(line, k + 1, m, KIND)
    head = float64(line[k])
    norm = sqrt(head * head + rest)
    end = where(head < 0.0, norm, -norm)
    none = rest == 0.0
    share = where(none, 0.0, (end - head) / end)
    divisor = where(none, 1.0, head - end)
    for i in rolled(range(k + 1, m)):
        line[i] = KIND(float64(line[i]) / divisor)
    value = where(none, head, end)
    if KIND is float64:
        value = value / scale
    line[k] = KIND(1)
    return KIND(value), KIND(share)


def make_reflector(line, k, m, made, KIND):
    """`made_reflector` with its two numbers in `made`, for kernels that compile it once."""
    made[0], made[1] = made_reflector(line, k, m, KIND)


def brought_up_to_date(work, padded, column, line, old, products, m, KIND):
    """Column `column` to `line`, less the share of the reflector in `old`."""
    known = products[column]
    for i in rolled(range(column, m)):
        line[i] = work[i * padded + column] - old[i] * known


def factored(work, padded, m, n, reflectors, long, shares, rows, none, KIND):
    """The reflectors of a matrix, a row each, and its R in the upper triangle of `work`."""
    N = lanes(KIND)
    most = min(m, n)
    products, following = rows, rows + padded
    for i in rolled(range(m)):
        none[i] = KIND(0)
        reflectors[i] = work[i * padded]
    made = local(KIND, 2)                             # the numbers of the next reflector
    outlined(make_reflector)(reflectors, 0, m, made, KIND)
    # Nothing is taken yet; the rows are only added up.
    for j in rolled(range(0, padded, N)):
        store(products, j, broadcast(KIND(0), N))
    outlined(reflected)(work, padded, none, 0, m, 0, padded, products, following, reflectors, KIND)
    for k in rolled(range(most)):
        line = reflectors + k * long
        value, share = made[0], made[1]
        shares[k] = share
        for j in rolled(range(k // N * N, padded, N)):
            store(products, j, load(following, j, N) * broadcast(share, N))
        top = work + k * padded
        for j in rolled(range(k // N * N, padded, N)):
            store(top, j, load(top, j, N) - load(products, j, N))
        top[k] = value
        if k + 1 < most:
            after = line + long
            for i in rolled(range(k + 1)):
                after[i] = KIND(0)
            brought_up_to_date(work, padded, k + 1, after, line, products, m, KIND)
            outlined(make_reflector)(after, k + 1, m, made, KIND)
            outlined(reflected)(work, padded, line, k + 1, m, (k + 1) // N * N, padded, products, following, after, KIND)
        else:
            outlined(reflected)(work, padded, line, k + 1, m, (k + 1) // N * N, padded, products, following, none, KIND)


@kernel(in_vectors=True)
def qr_rows(chunk, a, q, r, work, count, per, m, n, columns, r_rows, padded, long, square, room, matrix_step, row_step, column_step,
            *, BY_COLUMNS):  # fmt: skip
    KIND = widened(r)
    N = lanes(KIND)
    most = min(m, n)
    left = work + chunk * room
    reflectors = left + m * padded
    made = reflectors + most * long
    rows = made + m * square
    none = rows + 2 * max(padded, square)
    shares = none + long
    for matrix in rolled(range(chunk * per, min(count, chunk * per + per))):
        source = a + matrix * matrix_step
        for i in rolled(range(m)):
            to, line = left + i * padded, source + i * row_step
            if column_step == 1:
                for j in rolled(range(0, n // N * N, N)):
                    store(to, j, load(line, j, N))
                for j in rolled(range(n // N * N, n)):
                    to[j] = line[j]
            else:
                for j in rolled(range(n)):
                    to[j] = line[j * column_step]
            for j in rolled(range(n, padded)):
                to[j] = KIND(0)
        factored(left, padded, m, n, reflectors, long, shares, rows, none, KIND)
        target = r + matrix * r_rows * n
        for i in rolled(range(r_rows)):
            to, line = (target + i if BY_COLUMNS else target + i * n), left + i * padded
            step = r_rows if BY_COLUMNS else 1
            for j in rolled(range(min(i, n))):
                to[j * step] = KIND(0)
            for j in rolled(range(i, n)):
                to[j * step] = line[j]
        if columns > 0:
            spread_out(made, square, shares, reflectors, long, rows, m, most, columns, KIND)
            target = q + matrix * m * columns
            for i in rolled(range(m)):
                to, line = (target + i if BY_COLUMNS else target + i * columns), made + i * square
                if BY_COLUMNS:
                    for j in rolled(range(columns)):
                        to[j * m] = line[j]
                else:
                    for j in rolled(range(0, columns // N * N, N)):
                        store(to, j, load(line, j, N))
                    for j in rolled(range(columns // N * N, columns)):
                        to[j] = line[j]


def spread_out(made, square, shares, reflectors, long, rows, m, most, columns, KIND):
    """The product of the reflectors: the last one first, applied to the identity."""
    N = lanes(KIND)
    products, following = rows, rows + square
    for i in rolled(range(m)):
        to = made + i * square
        for j in rolled(range(0, square, N)):
            store(to, j, broadcast(KIND(0), N))
        if i < columns:
            to[i] = KIND(1)
    last = reflectors + (most - 1) * long
    # The rows of the identity added up for the last reflector.
    for j in rolled(range(square)):
        following[j] = KIND(0)
    for j in rolled(range(most - 1, min(m, columns))):
        following[j] = last[j]
    for back in rolled(range(most)):
        k = most - 1 - back
        line = reflectors + k * long
        start = k // N * N
        share = broadcast(shares[k], N)
        for j in rolled(range(start, square, N)):
            store(products, j, load(following, j, N) * share)
        before = max(k - 1, 0)
        other = reflectors + before * long
        outlined(reflected)(made, square, line, k, m, start, square, products, following, other, KIND)
        # The row above, which is the identity's.
        if before // N * N < start:
            for j in rolled(range(before // N * N, start)):
                following[j] = KIND(0)
        following[before] = KIND(1)


@kernel(in_vectors=True, aliased=True)
def panel_rows(chunk, columns, reflectors, shares, work, unused, m, n, step, padded, long):
    KIND = widened(columns)
    rows = work + m * padded
    none = rows + 2 * padded
    for i in rolled(range(m)):
        to, line = work + i * padded, columns + i * step
        for j in rolled(range(n)):
            to[j] = line[j]
        for j in rolled(range(n, padded)):
            to[j] = KIND(0)
    factored(work, padded, m, n, reflectors, long, shares, rows, none, KIND)
    for i in rolled(range(n)):
        to, line = columns + i * step, work + i * padded
        for j in rolled(range(i, n)):
            to[j] = line[j]


@kernel(in_vectors=True)
def joined_rows(chunk, products, shares, out, n, size):
    """T of the reflectors whose products with each other are given: upper triangular, `out` being zeros."""
    KIND = widened(out)
    for i in rolled(range(n)):
        share = shares[i]
        out[i * size + i] = share
        for j in rolled(range(i)):
            total = KIND(0)
            for k in rolled(range(j, i)):
                total = fma(out[j * size + k], products[k * size + i], total)
            out[j * size + i] = -share * total


@kernel(in_vectors=True)
def turned_rows(chunk, vectors, lines, shares, out, work, n, long, offset):
    """A strip of columns of the product of reflectors, a row of `lines` each, with the matrix whose columns are the rows of `vectors`."""
    KIND = widened(out)
    N = lanes(KIND)
    strip = 4 * N
    first = chunk * strip
    width = min(strip, n - first)
    rows = work + chunk * (n + 2) * strip
    products = rows + n * strip
    following = products + strip
    for j in rolled(range(strip)):
        if j < width:
            line = vectors + (first + j) * n
            for i in rolled(range(n)):
                rows[i * strip + j] = line[i]
        else:
            for i in rolled(range(n)):
                rows[i * strip + j] = KIND(0)
    # No reflector reaches the first rows.
    left, m = rows + offset * strip, n - offset
    for j in rolled(range(0, strip, N)):
        store(following, j, load(left + (m - 1) * strip, j, N))
    for back in rolled(range(m)):
        k = m - 1 - back
        share = broadcast(shares[k], N)
        for j in rolled(range(0, strip, N)):
            store(products, j, load(following, j, N) * share)
        before = max(k - 1, 0)
        outlined(reflected)(left, strip, lines + k * long + offset, k, m, 0, strip, products, following, lines + before * long + offset,
                            KIND)
        # The row above has not been among these.
        for j in rolled(range(0, strip, N)):
            store(following, j, load(following, j, N) + load(left + before * strip, j, N))
    for j in rolled(range(width)):
        to = out + (first + j) * n
        for i in rolled(range(n)):
            to[i] = rows[i * strip + j]
