"""What compiled kernels of rows share: exp of whole vectors, and products of small matrices in registers.

These are functions of the kernel language (`engine/language/`); they are inlined into the kernels that call
them. A product keeps a tile of `TALL` rows by two vectors of the result in registers while it walks along the
dimension that is summed over: one number of the left matrix is broadcast against a row of the right one, so the
left matrix may lie in memory in any way and the right one needs contiguous rows.

Source: Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication", for tiles in registers.
"""

from __future__ import annotations

from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    float32,
    int32,
    int64,
    lanes,
    load,
    local,
    multiply_add,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.scalar.coefficients import COEFFICIENTS
from flambeau_kernels.scalar.exponential import LN2_32, LN2_64, LOG2_E
from flambeau_kernels.vocabulary import fma, where

__all__ = ["clear", "exp_lanes", "foresees", "lane_max", "multiply", "row_after", "zero_lanes"]

# Bits of a row, two of which lie in a second-level cache.
NEAR = 1 << 20

# The polynomial of exp, highest power first, in two parts.
EXP_32, EXP_64 = ((p[:-3:-1], p[-3::-1]) for p in (COEFFICIENTS["exp.float32"], COEFFICIENTS["exp.float64"]))
# Added to a number, these leave its nearest integer in the lowest bits of the sum.
ROUND_32, ROUND_64 = 1.5 * 2.0**23, 1.5 * 2.0**52
# For vectors of each length, which lanes to compare with which so that the largest ends up in all of them.
FOLDS = {n: [tuple(i ^ step for i in range(n)) for step in (1, 2, 4, 8) if step < n] for n in (2, 4, 8, 16)}


def zero_lanes(KIND):
    return broadcast(KIND(0), lanes(KIND))


def clear(to, count):
    """Zeros; `count` is whole vectors."""
    KIND = widened(to)
    for j in rolled(range(0, count, lanes(KIND))):
        store(to, j, zero_lanes(KIND))


def row_after(n, KIND):
    """How far behind a row of `n` the next one lies, which kernels ask for (`prefetch`) while they are busy with this one.

    0 for rows that would drive each other out of the cache: what is asked for then is there already.
    """
    far = 0
    if n <= NEAR // KIND.bits:
        far = n
    return far


def foresees(KIND):
    """Whether the processor reads ahead far enough by itself: those with registers of 64 bytes do, and asking takes them a tenth longer."""
    return lanes(KIND) * KIND.bits == 512


def lane_max(x, KIND):
    """The largest lane of a vector; lanes that are nan may be skipped."""
    for ORDER in unroll(FOLDS[lanes(KIND)]):
        y = shuffle(x, x, ORDER)
        x = where(y > x, y, x)
    place = local(KIND, lanes(KIND))
    store(place, 0, x)
    return place[0]


def exp_lanes(x, KIND, COUNT=None):
    """exp of a vector of numbers up to 80, to about 1 ulp; below the range of normal floats it is 0; nan stays nan.

    Args:
        COUNT: its lanes; by default as many as fit into a register.
    """
    N = lanes(KIND) if COUNT is None else COUNT
    SINGLE = KIND is float32
    LOW = -87.0 if SINGLE else -708.0
    ROUND, LN2 = (ROUND_32, LN2_32) if SINGLE else (ROUND_64, LN2_64)
    BITS, BIAS, STEP = (int32, 127, 1 << 23) if SINGLE else (int64, 1023, 1 << 52)
    HIGHEST, OTHERS = EXP_32 if SINGLE else EXP_64
    y = where(x < LOW, LOW, x)
    shifted = fma(y, LOG2_E, ROUND)
    k = shifted - ROUND
    r = fma(k, -LN2[1], fma(k, -LN2[0], y))
    p = fma(r, HIGHEST[0], HIGHEST[1])
    for C in unroll(OTHERS):
        p = fma(r, p, C)
    p = fma(r * r, p, r) + 1.0
    power = bitcast((bitcast(shifted, vector(BITS, N)) + BIAS) * STEP, vector(KIND, N))
    return where(x < LOW, 0.0, p * power)


def multiply(a, a_row, a_step, b, b_step, c, c_row, m, n, count, add, TALL):
    """``C[i, j] = sum over t of A[i, t] * B[t, j]`` for ``i < m``, ``j < n``; if `add`, it is added to C.

    Args:
        a, a_row, a_step: A, and elements from one row, and from one column, to the next.
        b, b_step, c, c_row: B and C, whose rows are contiguous, and elements from row to row.
        n: a multiple of two vectors.
        TALL: rows of C whose sums, two vectors each, stay in registers beside two vectors of B and a number (`register_tiles.py`).
    """
    KIND = widened(c)
    i = 0
    while i + TALL <= m:
        strip(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, n, count, add, KIND, TALL)
        i += TALL
    while i < m:
        strip(a + i * a_row, a_row, a_step, b, b_step, c + i * c_row, c_row, n, count, add, KIND, 1)
        i += 1


def strip(a, a_row, a_step, b, b_step, c, c_row, n, count, add, KIND, TALL):
    """`multiply` for TALL rows."""
    N = lanes(KIND)
    for j in rolled(range(0, n, 2 * N)):
        sums = local(vector(KIND, N), 2 * TALL)
        for R in unroll(range(2 * TALL)):
            sums[R] = zero_lanes(KIND)
        if add:
            for R in unroll(range(TALL)):
                for W in unroll(range(2)):
                    sums[2 * R + W] = load(c, R * c_row + j + W * N, N)
        left, right = a, b + j
        for _t in rolled(range(count)):
            first, second = load(right, 0, N), load(right, N, N)
            for R in unroll(range(TALL)):
                x = broadcast(left[R * a_row], N)
                sums[2 * R] = multiply_add(x, first, sums[2 * R])
                sums[2 * R + 1] = multiply_add(x, second, sums[2 * R + 1])
            left += a_step
            right += b_step
        for R in unroll(range(TALL)):
            for W in unroll(range(2)):
                store(c, R * c_row + j + W * N, sums[2 * R + W])
