"""Triangular systems with few right sides: ``X`` with ``triangle(A) @ X == B``, of one matrix or of many.

A is read once, as it lies in memory. `BLOCK` unknowns are found at a time, for `SIDES` right sides at once. Where rows of A are
contiguous, what the known ones contribute to a block are dot products of its rows with each column of X; where columns are, the columns
of a block that was found are taken from all that is left. The order of operations depends on the size and on that alone. A zero
on the diagonal gives what the division gives. A chunk is some whole systems.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.language import (
    broadcast,
    int64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    multiply_add,
    rolled,
    store,
    unroll,
    vector,
    widened,
)
from ...engine.machine_code import llvm
from ...engines import kept
from ..tier import compiles
from .matrices_by_rows import of_matrices, takes

__all__ = ["planned", "solution"]

MOST_ROWS, SIDES = 2048, 4
MOST_SIDES = 16                                       # of one system
WORK = 1 << 15                                        # multiplications of a chunk, about


def place_of(number, count, BLOCK, UPPER):
    """The first unknown of the block that is found after `number` others."""
    if UPPER:
        made = (count - 1 - number) * BLOCK
    else:
        made = number * BLOCK
    return made


def found(x, padded, a, i, n, row, column, totals, BLOCK, SIDES, UPPER, UNIT, KIND):
    """The unknowns of a block from what is left of their right sides, one after the other."""
    for STEP in unroll(range(BLOCK)):
        R = BLOCK - 1 - STEP if UPPER else STEP
        if i + R < n:
            line = a + (i + R) * row
            for S in unroll(range(SIDES)):
                value = x[S * padded + i + R] - totals[R * SIDES + S]
                for BEFORE in unroll(range(STEP)):
                    T = BLOCK - 1 - BEFORE if UPPER else BEFORE
                    if i + T < n:
                        value = value - line[(i + T) * column] * x[S * padded + i + T]
                x[S * padded + i + R] = value if UNIT else value / line[(i + R) * column]


def solved_by_rows(x, padded, a, n, row, BLOCK, SIDES, UPPER, UNIT, KIND):
    N = lanes(KIND)
    count = (n + BLOCK - 1) // BLOCK
    sums, known = local(vector(KIND, N), BLOCK * SIDES), local(vector(KIND, N), SIDES)
    totals, at = local(KIND, BLOCK * SIDES), local(int64, BLOCK)
    for number in rolled(range(count)):
        i = place_of(number, count, BLOCK, UPPER)
        here = min(BLOCK, n - i)
        start, stop = (i + here, n) if UPPER else (0, i)
        for R in unroll(range(BLOCK)):
            at[R] = min(i + R, n - 1) * row            # of rows beyond the last one nothing is used
        for T in unroll(range(BLOCK * SIDES)):
            sums[T] = broadcast(KIND(0), N)
        j = start
        while j + N <= stop:
            for S in unroll(range(SIDES)):
                known[S] = load(x, S * padded + j, N)
            for R in unroll(range(BLOCK)):
                line = load(a, at[R] + j, N)
                for S in unroll(range(SIDES)):
                    sums[R * SIDES + S] = multiply_add(line, known[S], sums[R * SIDES + S])
            j += N
        if j < stop:
            for S in unroll(range(SIDES)):
                known[S] = load(x, S * padded + j, N, stop - j)
            for R in unroll(range(BLOCK)):
                line = load(a, at[R] + j, N, stop - j)
                for S in unroll(range(SIDES)):
                    sums[R * SIDES + S] = multiply_add(line, known[S], sums[R * SIDES + S])
        for T in unroll(range(BLOCK * SIDES)):
            totals[T] = lane_sum(sums[T])
        found(x, padded, a, i, n, row, 1, totals, BLOCK, SIDES, UPPER, UNIT, KIND)


def solved_by_columns(x, padded, a, n, column, BLOCK, SIDES, UPPER, UNIT, KIND):
    N = lanes(KIND)
    count = (n + BLOCK - 1) // BLOCK
    sums, factors = local(vector(KIND, N), SIDES), local(vector(KIND, N), BLOCK * SIDES)
    totals = local(KIND, BLOCK * SIDES)
    for T in unroll(range(BLOCK * SIDES)):
        totals[T] = KIND(0)
    for number in rolled(range(count)):
        i = place_of(number, count, BLOCK, UPPER)
        here = min(BLOCK, n - i)
        found(x, padded, a, i, n, 1, column, totals, BLOCK, SIDES, UPPER, UNIT, KIND)
        start, stop = (0, i) if UPPER else (i + here, n)
        first = a + i * column
        if here == BLOCK:
            for T in unroll(range(BLOCK)):
                for S in unroll(range(SIDES)):
                    factors[T * SIDES + S] = broadcast(-x[S * padded + i + T], N)
            for j in rolled(range(start, stop, N)):
                for S in unroll(range(SIDES)):
                    sums[S] = load(x, S * padded + j, N, stop - j)
                for T in unroll(range(BLOCK)):
                    line = load(first, T * column + j, N, stop - j)
                    for S in unroll(range(SIDES)):
                        sums[S] = multiply_add(factors[T * SIDES + S], line, sums[S])
                for S in unroll(range(SIDES)):
                    store(x, S * padded + j, sums[S], stop - j)
        else:
            for t in rolled(range(here)):
                for S in unroll(range(SIDES)):
                    factors[S] = broadcast(-x[S * padded + i + t], N)
                for j in rolled(range(start, stop, N)):
                    line = load(first, t * column + j, N, stop - j)
                    for S in unroll(range(SIDES)):
                        so_far = load(x, S * padded + j, N, stop - j)
                        store(x, S * padded + j, multiply_add(factors[S], line, so_far), stop - j)


@kernel(in_vectors=True)
def triangular_sides(
    chunk, a, b, out, systems, per, groups, n, columns, matrix_step, line_step, other_step, other_row, other_column, *,
    SIDES, BLOCK, BY_ROWS, UPPER, UNIT,
):  # fmt: skip
    KIND = widened(out)
    N = lanes(KIND)
    padded = (n + N - 1) // N * N
    x = local(KIND, MOST_ROWS * SIDES)
    for system in rolled(range(chunk * per, min(systems, chunk * per + per))):
        matrix = system // groups
        first = (system - matrix * groups) * SIDES
        here = min(SIDES, columns - first)
        given = b + (matrix * other_step + first * other_column)
        for s in rolled(range(SIDES)):
            if s < here:
                if other_row == 1:
                    for j in rolled(range(0, n, N)):
                        store(x, s * padded + j, load(given, s * other_column + j, N, n - j))
                else:
                    for j in rolled(range(n)):
                        x[s * padded + j] = given[s * other_column + j * other_row]
            else:
                for j in rolled(range(0, n, N)):
                    store(x, s * padded + j, broadcast(KIND(0), N))
        if BY_ROWS:
            solved_by_rows(x, padded, a + matrix * matrix_step, n, line_step, BLOCK, SIDES, UPPER, UNIT, KIND)
        else:
            solved_by_columns(x, padded, a + matrix * matrix_step, n, line_step, BLOCK, SIDES, UPPER, UNIT, KIND)
        to = out + (matrix * columns + first) * n
        for s in rolled(range(here)):
            for j in rolled(range(0, n, N)):
                store(to, s * n + j, load(x, s * padded + j, N), n - j)


# -- calls -------------------------------------------------------------------------------------------------------------------


def solution(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> Any:
    """``X`` with ``triangle(a) @ X == b``, by columns, of matrices whose batches are alike; None for those that are left to others."""
    if b.dtype is not a.dtype or b.shape[-1] > MOST_SIDES or b.shape[:-1] != a.shape[:-1]:
        return None
    if a.ndim == 2:
        run = planned(a.shape, a.strides, b.shape, b.strides, a.dtype, upper, unit)
        return None if run is None else run(a, b)
    if b.shape[-1] > SIDES and takes(a):              # whose vectors are right sides side by side
        return None
    flat, right = of_matrices(a)[0], of_matrices(b)[0]
    run = planned(flat.shape, flat.strides, right.shape, right.strides, a.dtype, upper, unit)
    return None if run is None else run(flat, right).reshape(*b.shape[:-2], b.shape[-1], b.shape[-2]).swapaxes(-1, -2)


@kept(1024)
def planned(
    shape: tuple[int, ...], strides: tuple[int, ...], other: tuple[int, ...], other_strides: tuple[int, ...], dtype: np.dtype,
    upper: bool, unit: bool,
) -> Any:  # fmt: skip
    """``run(a, b)`` for arrays of these shapes and strides, or None: the solution of one system, of many their transposes."""
    n, columns, size = shape[-1], other[-1], dtype.itemsize
    if dtype.char not in "fd" or not 0 < n <= MOST_ROWS or not 0 < columns <= MOST_SIDES or other[-2] != n or not compiles():
        return None
    if any(s % size for s in (*strides, *other_strides)) or min(*strides, *other_strides) < 0 or size not in strides[-2:]:
        return None
    by_rows = strides[-1] == size
    alone = len(shape) == 2
    sides = min(columns, SIDES)
    groups, count = -(-columns // sides), 1 if alone else shape[0]
    per = max(1, WORK // (n * n // 2 * sides + 256 * n))
    constants = {"SIDES": sides, "BLOCK": _block(sides), "BY_ROWS": by_rows, "UPPER": upper, "UNIT": unit}
    form = triangular_sides.form((dtype,) * 3 + (int,) * 10, constants)
    steps = [s // size for s in (*strides, *other_strides)]
    step, right_step = (0, 0) if alone else (steps[0], steps[3])
    numbers = (count * groups, per, groups, n, columns, step, strides[-2 if by_rows else -1] // size, right_step, *steps[-2:])
    chunks, made = -(-count * groups // per), (columns, n) if alone else (count, columns, n)

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out = np.empty(made, dtype)
        form(chunks, False, a, b, out, *numbers)
        return out.T if alone else out

    return run


def _block(sides: int) -> int:
    """Unknowns of a block, whose sums for so many right sides leave registers for a row and the unknowns it meets."""
    return max(2, 8 // sides) if llvm.machine().registers < 32 else 8 if sides < 3 else 4

