"""Factors and solutions of many small matrices: Cholesky, LU with exchanges of rows, triangular and square systems.

A chunk is some whole matrices. Each is copied to memory of the call, its rows padded to whole vectors, and worked on there row by row:
what is left of the matrix loses a multiple of a row at each step, so all vectors are contiguous and independent of each other. The
order of operations depends on the size alone. Real dtypes, up to `MOST` rows; batches with a matrix that has no result, or one that
is not finite, are left to LAPACK.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine.language import broadcast, int32, kernel, lanes, load, local, rolled, store, widened
from ...engines import kept
from ...vocabulary import fma, sqrt
from ..tier import compiles

__all__ = ["MOST", "cholesky", "cholesky_of_one", "lu", "of_matrices", "solve", "takes", "triangular"]

MOST = 64                                             # rows
FROM = 8                                              # matrices from which a call of a kernel pays
WORK = 1 << 15                                        # multiplications of a chunk, about


def takes(a: Any) -> bool:
    """Whether there are kernels for the batch `a` of square matrices."""
    return (
        a.ndim > 2 and 0 < a.shape[-1] <= MOST and a.shape[-2] == a.shape[-1] and a.dtype.char in "fd" and math.prod(a.shape[:-2]) >= FROM
        and type(a) is np.ndarray and compiles()
    )  # fmt: skip


def of_matrices(a: np.ndarray) -> Any:
    """`a` with one dimension of matrices, and its strides in elements, none of which is negative."""
    flat = a.reshape(-1, *a.shape[-2:])
    strides = [step // a.itemsize for step in flat.strides]
    if any(step % a.itemsize for step in flat.strides) or min(strides) < 0:
        flat = np.ascontiguousarray(flat)
        strides = [step // a.itemsize for step in flat.strides]
    return flat, *strides


def _chunks(count: int, n: int, width: int) -> tuple[int, int]:
    """How many chunks, and of how many matrices each."""
    per = max(1, WORK // (n * n * (n + width) + 64 * n))
    return -(-count // per), per


def cholesky(a: np.ndarray, upper: bool) -> Any:
    """The factors of `a`; None if a matrix is not positive-definite, or a factor not finite."""
    flat, *strides = of_matrices(a)
    count, n, _ = flat.shape
    made, info = np.empty(a.shape, a.dtype), np.empty(count, np.int32)
    chunks, per = _chunks(count, n, 0)
    _form(cholesky_rows, a.dtype, 3, ("UPPER", bool(upper)))(chunks, True, flat, made, info, count, per, n, *strides)
    return None if info.any() else made


def cholesky_of_one(a: np.ndarray, upper: bool) -> Any:
    """`cholesky` of one matrix of up to `MOST` rows, by columns; None too if it does not lie in memory as a kernel reads it."""
    run = _plan_of_one_matrix(a.shape, a.strides, a.dtype, bool(upper))
    return None if run is None else run(a)


@kept(256)
def _plan_of_one_matrix(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, upper: bool) -> Any:
    """The Cholesky factor of one matrix with these strides, in bytes; None where no kernel is for it."""
    n, size = shape[0], dtype.itemsize
    if min(strides) < 0 or strides[0] % size or strides[1] % size or not compiles():
        return None
    # The factor by columns is that of the transpose, of which the other triangle is read.
    form = _form(cholesky_rows, dtype, 3, ("UPPER", not upper))
    numbers = (1, 1, n, 0, strides[1] // size, strides[0] // size)

    def run(a: np.ndarray) -> Any:
        made, info = np.empty((n, n), dtype), np.empty(1, np.int32)
        form(1, False, a, made, info, *numbers)
        return None if info[0] else made.T

    return run


def lu(a: np.ndarray) -> Any:
    """Packed factors, exchanges of rows (from 1) and the first zero pivot, from 1, or 0: as LAPACK's getrf.

    None if a factor is not finite.
    """
    flat, *strides = of_matrices(a)
    count, n, _ = flat.shape
    batch = a.shape[:-2]
    made, pivots, info = np.empty(a.shape, a.dtype), np.empty((*batch, n), np.int32), np.empty(batch, np.int32)
    chunks, per = _chunks(count, n, 0)
    _form(lu_rows, a.dtype, 4)(chunks, True, flat, made, pivots, info, count, per, n, *strides)
    return None if (info < 0).any() else (made, pivots, info)


def solve(a: np.ndarray, b: np.ndarray | None) -> Any:
    """``X`` with ``a @ X == b``, the inverses for None; None if a matrix is singular."""
    flat, *strides = of_matrices(a)
    count, n, _ = flat.shape
    other, *other_strides = (flat, 0, 0, 0) if b is None else of_matrices(b)
    width = n if b is None else b.shape[-1]
    made, info = np.empty(a.shape if b is None else b.shape, a.dtype), np.empty(count, np.int32)
    chunks, per = _chunks(count, n, 3 * width)
    run = _form(solve_rows, a.dtype, 4, ("INVERSE", b is None))
    run(chunks, True, flat, other, made, info, count, per, n, *strides, width, *other_strides)
    return None if info.any() else made


def triangular(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> Any:
    """``X`` with ``triangle(a) @ X == b``; None if a diagonal holds a zero."""
    flat, *strides = of_matrices(a)
    count, n, _ = flat.shape
    other, *other_strides = of_matrices(b)
    made, info = np.empty(b.shape, a.dtype), np.empty(count, np.int32)
    chunks, per = _chunks(count, n, b.shape[-1])
    run = _form(triangular_rows, a.dtype, 4, ("UPPER", bool(upper)), ("UNIT", bool(unit)))
    run(chunks, True, flat, other, made, info, count, per, n, *strides, b.shape[-1], *other_strides)
    return None if info.any() else made


@kept()
def _form(kernel: Any, dtype: np.dtype, arrays: int, *constants: tuple[str, bool]) -> Any:
    """`kernel` as it is called: with `arrays` arrays, the last of which hold int32, and numbers."""
    numbers = kernel.function.__code__.co_argcount - 1 - arrays
    integers = 2 if kernel is lu_rows else 1
    types = (dtype,) * (arrays - integers) + (np.dtype(np.int32),) * integers + (int,) * numbers
    return kernel.form(types, dict(constants))


# -- kernels -----------------------------------------------------------------------------------------------------------------


def copied_in(work, padded, a, rows, columns, row_step, column_step, KIND):
    """Rows of `a` to `work`, whose rows lie `padded` apart."""
    N = lanes(KIND)
    if column_step == 1:
        tail = columns // N * N
        for i in rolled(range(rows)):
            to, source = work + i * padded, a + i * row_step
            for j in rolled(range(0, tail, N)):
                store(to, j, load(source, j, N))
            if tail < columns:
                store(to, tail, load(source, tail, N, columns - tail))
    else:
        for i in rolled(range(rows)):
            to, source = work + i * padded, a + i * row_step
            for j in rolled(range(columns)):
                to[j] = source[j * column_step]
            for j in rolled(range(columns, padded)):
                to[j] = KIND(0)


def copied_out(to, work, padded, rows, columns, row_step, KIND):
    N = lanes(KIND)
    tail = columns // N * N
    for i in rolled(range(rows)):
        target, source = to + i * row_step, work + i * padded
        for j in rolled(range(0, tail, N)):
            store(target, j, load(source, j, N))
        if tail < columns:
            store(target, tail, load(source, tail, N), columns - tail)


def take_from_rows(work, padded, line, factors, step, first, last, start, end, KIND):
    """From rows `first` to `last` of `work` the multiple of `line` that `factors` has for each, in whole vectors of columns."""
    N = lanes(KIND)
    for j in rolled(range(start // N * N, end, N)):
        taken = load(line, j, N)
        for i in rolled(range(first, last)):
            to = work + i * padded
            store(to, j, fma(broadcast(-factors[i * step], N), taken, load(to, j, N)))


@kernel(in_vectors=True)
def cholesky_rows(chunk, a, out, info, count, per, n, matrix_step, row_step, column_step, *, UPPER):
    KIND = widened(out)
    N = lanes(KIND)
    padded = (n + N - 1) // N * N
    work, column = local(KIND, 64 * 64), local(KIND, 64)
    for matrix in rolled(range(chunk * per, min(count, chunk * per + per))):
        copied_in(work, padded, a + matrix * matrix_step, n, n, row_step, column_step, KIND)
        wrong = int32(0)
        for k in rolled(range(n)):
            line = work + k * padded
            square = line[k]
            if wrong == 0 and not square > KIND(0):
                wrong = int32(k + 1)
            root = sqrt(square)
            factor = KIND(1) / root
            if UPPER:
                for j in rolled(range(k // N * N, padded, N)):
                    store(line, j, load(line, j, N) * broadcast(factor, N))
                line[k] = root
                # Below the diagonal of later rows lies what nobody reads.
                take_from_rows(work, padded, line, line, 1, k + 1, n, k + 1, padded, KIND)
            else:
                line[k] = root
                start = (k + 1) // N * N
                # Columns up to k have their result, from which zeros are taken.
                for j in rolled(range(start, k + 1)):
                    column[j] = KIND(0)
                for i in rolled(range(k + 1, n)):
                    made = work[i * padded + k] * factor
                    work[i * padded + k] = made
                    column[i] = made
                    if not abs(made) < KIND(math.inf):
                        wrong = int32(k + 1)
                for i in rolled(range(k + 1, n)):
                    to = work + i * padded
                    taken = broadcast(-column[i], N)
                    for j in rolled(range(start, i + 1, N)):
                        store(to, j, fma(taken, load(column, j, N), load(to, j, N)))
        info[matrix] = wrong
        target = out + matrix * n * n
        for i in rolled(range(n)):
            row, line = target + i * n, work + i * padded
            for j in rolled(range(n)):
                row[j] = line[j] if (j >= i if UPPER else j <= i) else KIND(0)


def factored(work, padded, pivots, n, KIND):
    """LU of the matrix in `work`, in place, with the rows exchanged, from 0, in `pivots`.

    Gives the first zero pivot, from 1, or 0; or -1 where a factor is not finite, and the others are not to be used.
    """
    N = lanes(KIND)
    taken, factors = local(KIND, 64), local(KIND, 64)
    wrong = int32(0)
    for k in rolled(range(n)):
        line = work + k * padded
        best, place = abs(line[k]), k
        for i in rolled(range(k + 1, n)):
            here = abs(work[i * padded + k])
            if here > best:
                best = here
                place = i
        pivots[k] = int32(place)
        if place != k:
            other = work + place * padded
            for j in rolled(range(0, padded, N)):
                mine = load(line, j, N)
                store(line, j, load(other, j, N))
                store(other, j, mine)
        pivot = line[k]
        # Columns up to k have their result, from which zeros are taken.
        start = (k + 1) // N * N
        for j in rolled(range(start, padded, N)):
            store(taken, j, load(line, j, N))
        for j in rolled(range(start, k + 1)):
            taken[j] = KIND(0)
        if pivot == KIND(0):
            if wrong == 0:
                wrong = int32(k + 1)
        else:
            for i in rolled(range(k + 1, n)):
                factor = work[i * padded + k] / pivot
                work[i * padded + k] = factor
                factors[i] = -factor
                if not abs(factor) < KIND(math.inf):
                    wrong = int32(-1)
            for i in rolled(range(k + 1, n)):
                to = work + i * padded
                times = broadcast(factors[i], N)
                for j in rolled(range(start, padded, N)):
                    store(to, j, fma(times, load(taken, j, N), load(to, j, N)))
    return wrong


@kernel(in_vectors=True)
def lu_rows(chunk, a, out, pivots, info, count, per, n, matrix_step, row_step, column_step):
    KIND = widened(out)
    N = lanes(KIND)
    padded = (n + N - 1) // N * N
    work = local(KIND, 64 * 64)
    for matrix in rolled(range(chunk * per, min(count, chunk * per + per))):
        copied_in(work, padded, a + matrix * matrix_step, n, n, row_step, column_step, KIND)
        exchanged = pivots + matrix * n
        info[matrix] = factored(work, padded, exchanged, n, KIND)
        for k in rolled(range(n)):
            exchanged[k] = exchanged[k] + int32(1)
        copied_out(out + matrix * n * n, work, padded, n, n, n, KIND)


def solved_below(work, padded, x, x_padded, n, UNIT, KIND):
    """``triangle @ x`` undone for the lower triangle of `work`, in place."""
    N = lanes(KIND)
    for j in rolled(range(0, x_padded, N)):
        for k in rolled(range(n)):
            known = load(x, k * x_padded + j, N)
            if not UNIT:
                known = known / broadcast(work[k * padded + k], N)
                store(x, k * x_padded + j, known)
            for i in rolled(range(k + 1, n)):
                to = x + i * x_padded
                store(to, j, fma(broadcast(-work[i * padded + k], N), known, load(to, j, N)))


def solved_above(work, padded, x, x_padded, n, UNIT, KIND):
    """The same for the upper triangle."""
    N = lanes(KIND)
    for j in rolled(range(0, x_padded, N)):
        for back in rolled(range(n)):
            k = n - 1 - back
            known = load(x, k * x_padded + j, N)
            if not UNIT:
                known = known / broadcast(work[k * padded + k], N)
                store(x, k * x_padded + j, known)
            for i in rolled(range(k)):
                to = x + i * x_padded
                store(to, j, fma(broadcast(-work[i * padded + k], N), known, load(to, j, N)))


@kernel(in_vectors=True)
def triangular_rows(
    chunk, a, b, out, info, count, per, n, matrix_step, row_step, column_step, width, other_step, other_row, other_column, *, UPPER, UNIT,
):  # fmt: skip
    KIND = widened(out)
    N = lanes(KIND)
    padded = (n + N - 1) // N * N
    work, x = local(KIND, 64 * 64), local(KIND, 64 * 64)
    for matrix in rolled(range(chunk * per, min(count, chunk * per + per))):
        copied_in(work, padded, a + matrix * matrix_step, n, n, row_step, column_step, KIND)
        wrong = int32(0)
        if not UNIT:
            for k in rolled(range(n)):
                if work[k * padded + k] == KIND(0):
                    wrong = int32(1)
        info[matrix] = wrong
        for first in rolled(range(0, width, 64)):
            columns = min(64, width - first)
            x_padded = (columns + N - 1) // N * N
            copied_in(x, x_padded, b + matrix * other_step + first * other_column, n, columns, other_row, other_column, KIND)
            if UPPER:
                solved_above(work, padded, x, x_padded, n, UNIT, KIND)
            else:
                solved_below(work, padded, x, x_padded, n, UNIT, KIND)
            copied_out(out + matrix * n * width + first, x, x_padded, n, columns, width, KIND)


@kernel(in_vectors=True)
def solve_rows(
    chunk, a, b, out, info, count, per, n, matrix_step, row_step, column_step, width, other_step, other_row, other_column, *, INVERSE,
):  # fmt: skip
    KIND = widened(out)
    N = lanes(KIND)
    padded = (n + N - 1) // N * N
    work, x, pivots = local(KIND, 64 * 64), local(KIND, 64 * 64), local(int32, 64)
    for matrix in rolled(range(chunk * per, min(count, chunk * per + per))):
        copied_in(work, padded, a + matrix * matrix_step, n, n, row_step, column_step, KIND)
        info[matrix] = factored(work, padded, pivots, n, KIND)
        for first in rolled(range(0, width, 64)):
            columns = min(64, width - first)
            x_padded = (columns + N - 1) // N * N
            if INVERSE:
                for i in rolled(range(n)):
                    for j in rolled(range(0, x_padded, N)):
                        store(x, i * x_padded + j, broadcast(KIND(0), N))
                    x[i * x_padded + i] = KIND(1)
            else:
                copied_in(x, x_padded, b + matrix * other_step + first * other_column, n, columns, other_row, other_column, KIND)
            for k in rolled(range(n)):
                place = int(pivots[k])
                if place != k:
                    mine, other = x + k * x_padded, x + place * x_padded
                    for j in rolled(range(0, x_padded, N)):
                        kept = load(mine, j, N)
                        store(mine, j, load(other, j, N))
                        store(other, j, kept)
            solved_below(work, padded, x, x_padded, n, True, KIND)
            solved_above(work, padded, x, x_padded, n, False, KIND)
            copied_out(out + matrix * n * width + first, x, x_padded, n, columns, width, KIND)
