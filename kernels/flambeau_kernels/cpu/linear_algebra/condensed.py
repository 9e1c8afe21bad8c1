"""Symmetric matrices made tridiagonal, and square ones bidiagonal, by reflectors.

What a step takes from the matrix is taken in the pass over it that the next step needs anyway, which adds its rows up; so a matrix is read
and written once a step (bidiagonal: and read once more). One chunk: results do not depend on the threads. Real dtypes.

Source: Golub and Van Loan 2013, "Matrix Computations", sections 8.3.1 and 5.4.8; Howell and others 2008, "Cache efficient
bidiagonalization using BLAS 2.5 operators", ACM Trans. Math. Softw. 34(3), for joining the passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.language import (
    broadcast,
    kernel,
    lane_sum,
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
from ...engines import kept
from .reflectors import _padded, made_reflector

__all__ = ["bidiagonal", "tridiagonal"]


def tridiagonal(a: np.ndarray, upper: bool) -> Any:
    """``d, e, lines, shares`` of a symmetric matrix, of which one triangle is read: diagonals, and reflectors, a row each."""
    n, size = len(a), a.itemsize
    a, row, column = _laid_out(a)
    padded = _padded(n, size)
    lines, made, work = np.zeros((n, padded), a.dtype), np.empty((3, n), a.dtype), np.zeros((n + 3) * padded, a.dtype)
    steps = (column, row) if upper else (row, column)
    _form(tridiagonal_rows, a.dtype, 4, 4)(1, True, a, lines, made, work, n, padded, *steps)
    return made[0], made[1, : n - 1], lines, made[2]


def bidiagonal(a: np.ndarray) -> Any:
    """``d, e, left, left_shares, right, right_shares`` of a square matrix: diagonals, and reflectors of columns and rows, a row each."""
    n, size = len(a), a.itemsize
    a, row, column = _laid_out(a)
    padded = _padded(n, size)
    lines, made, work = np.zeros((2, n, padded), a.dtype), np.zeros((4, n), a.dtype), np.zeros((n + 3) * padded, a.dtype)
    _form(bidiagonal_rows, a.dtype, 4, 4)(1, True, a, lines, made, work, n, padded, row, column)
    return made[0], made[1, : n - 1], lines[0], made[2], lines[1], made[3]


def _laid_out(a: np.ndarray) -> Any:
    """`a`, and its strides in numbers, none of which is negative."""
    if min(a.strides) < 0 or any(step % a.itemsize for step in a.strides):
        a = np.ascontiguousarray(a)
    return a, *(step // a.itemsize for step in a.strides)


@kept()
def _form(kernel: Any, dtype: np.dtype, arrays: int, numbers: int) -> Any:
    return kernel.form((dtype,) * arrays + (int,) * numbers, {})


# -- passes ------------------------------------------------------------------------------------------------------------------


def less_two(work, padded, first, last, start, end, p, q, r, s, t, sums, COUNT, KIND):
    """``work[i, j] -= p[i] q[j] + r[i] s[j]``, then ``sums[j]``, the sum of ``t[i] work[i, j]``; `COUNT` vectors at once."""
    N = lanes(KIND)
    for j in rolled(range(start, end, COUNT * N)):
        x, y, total = local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT)
        for V in unroll(range(COUNT)):
            x[V] = load(q, j + V * N, N)
            y[V] = load(s, j + V * N, N)
            total[V] = broadcast(KIND(0), N)
        for i in rolled(range(first, last)):
            row = work + i * padded + j
            a, b, c = broadcast(-p[i], N), broadcast(-r[i], N), broadcast(t[i], N)
            for V in unroll(range(COUNT)):
                z = multiply_add(b, y[V], multiply_add(a, x[V], load(row, V * N, N)))
                store(row, V * N, z)
                total[V] = multiply_add(c, z, total[V])
        for V in unroll(range(COUNT)):
            store(sums, j + V * N, total[V])


def all_less_two(work, padded, first, last, start, end, p, q, r, s, t, sums, KIND):
    N = lanes(KIND)
    # Three vectors for each of a block: half of 32 registers, or of 16.
    tail = start + (end - start) // ((4 if N * KIND.bits > 256 else 2) * N) * ((4 if N * KIND.bits > 256 else 2) * N)
    less_two(work, padded, first, last, start, tail, p, q, r, s, t, sums, 4 if N * KIND.bits > 256 else 2, KIND)
    less_two(work, padded, first, last, tail, end, p, q, r, s, t, sums, 1, KIND)


def dotted(work, padded, first, last, start, end, u, out, COUNT, KIND):
    """``out[i]``, the sum of ``work[i, j] u[j]``, for `COUNT` rows at once."""
    N = lanes(KIND)
    for i in rolled(range(first, last, COUNT)):
        total = local(vector(KIND, N), COUNT)
        for R in unroll(range(COUNT)):
            total[R] = broadcast(KIND(0), N)
        row = work + i * padded
        for j in rolled(range(start, end, N)):
            x = load(u, j, N)
            for R in unroll(range(COUNT)):
                total[R] = multiply_add(load(row + R * padded, j, N), x, total[R])
        for R in unroll(range(COUNT)):
            out[i + R] = lane_sum(total[R])


def all_dotted(work, padded, first, last, start, end, u, out, KIND):
    tail = first + (last - first) // 4 * 4
    dotted(work, padded, first, tail, start, end, u, out, 4, KIND)
    dotted(work, padded, tail, last, start, end, u, out, 1, KIND)


def product_of(x, y, start, end, KIND):
    """The sum of the products of two lines of whole vectors."""
    N = lanes(KIND)
    total = broadcast(KIND(0), N)
    for j in rolled(range(start, end, N)):
        total = multiply_add(load(x, j, N), load(y, j, N), total)
    return lane_sum(total)


# -- kernels -----------------------------------------------------------------------------------------------------------------


@kernel(in_vectors=True)
def tridiagonal_rows(chunk, a, lines, made, work, n, padded, row_step, column_step):
    KIND = widened(a)
    N = lanes(KIND)
    for i in rolled(range(n)):
        for j in rolled(range(i + 1)):
            x = a[i * row_step + j * column_step]
            work[i * padded + j] = x
            work[j * padded + i] = x
    w, sums = work + n * padded, work + (n + 1) * padded
    end = (n + N - 1) // N * N
    for k in rolled(range(n)):
        line, old = lines + k * padded, lines + max(k - 1, 0) * padded
        # Nothing is taken in the first step: `w` is zero.
        row = work + k * padded
        known, other = w[k], old[k]
        made[k] = row[k] - KIND(2) * (other * known)
        if k + 1 < n:
            for i in rolled(range(k + 1, n)):
                line[i] = (row[i] - other * w[i]) - known * old[i]
            value, share = made_reflector(line, k + 1, n, KIND)
            made[n + k] = value
            made[2 * n + k] = share
            start = (k + 1) // N * N
            # The first step has no reflector before it.
            before = lines + (n - 1) * padded if k == 0 else old
            outlined(all_less_two)(work, padded, k + 1, n, start, end, before, w, w, before, line, sums, KIND)
            for j in rolled(range(start, k + 1)):
                sums[j] = KIND(0)
            for j in rolled(range(start, end, N)):
                store(w, j, load(sums, j, N) * broadcast(share, N))
            half = broadcast(KIND(-0.5) * share * product_of(w, line, start, end, KIND), N)
            for j in rolled(range(start, end, N)):
                store(w, j, multiply_add(half, load(line, j, N), load(w, j, N)))


@kernel(in_vectors=True)
def bidiagonal_rows(chunk, a, lines, made, work, n, padded, row_step, column_step):
    KIND = widened(a)
    N = lanes(KIND)
    for i in rolled(range(n)):
        to, source = work + i * padded, a + i * row_step
        for j in rolled(range(n)):
            to[j] = source[j * column_step]
    y, x, sums = work + n * padded, work + (n + 1) * padded, work + (n + 2) * padded
    lefts, rights = lines, lines + n * padded
    end = (n + N - 1) // N * N
    for k in rolled(range(n)):
        left, right = lefts + k * padded, rights + k * padded
        # Of the last ones nothing is written yet in the first step.
        before = n - 1 if k == 0 else k - 1
        v, u = lefts + before * padded, rights + before * padded
        for i in rolled(range(k, n)):
            left[i] = (work[i * padded + k] - v[i] * y[k]) - x[i] * u[k]
        value, share = made_reflector(left, k, n, KIND)
        made[k] = value
        made[2 * n + k] = share
        if k + 1 < n:
            start = (k + 1) // N * N
            outlined(all_less_two)(work, padded, k, n, start, end, v, y, x, u, left, sums, KIND)
            for j in rolled(range(start, end, N)):
                store(y, j, load(sums, j, N) * broadcast(share, N))
            for j in rolled(range(start, k + 1)):
                y[j] = KIND(0)
            row = work + k * padded
            for j in rolled(range(k + 1, n)):
                right[j] = row[j] - y[j]
            value, share = made_reflector(right, k + 1, n, KIND)
            made[n + k] = value
            made[3 * n + k] = share
            taken = product_of(y, right, start, end, KIND)
            outlined(all_dotted)(work, padded, k + 1, n, start, end, right, x, KIND)
            for i in rolled(range(k + 1, n)):
                x[i] = share * (x[i] - left[i] * taken)
