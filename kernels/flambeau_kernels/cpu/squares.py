"""Squares of vectors transposed in registers: from arrays that lie one after the other to vectors with one number of each, and back.

Functions of the kernel language (`engine/language/`), inlined into the kernels that call them.
"""

from __future__ import annotations

from flambeau_kernels.engine.language import (
    broadcast,
    float32,
    lanes,
    load,
    local,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)

__all__ = ["squares_in", "squares_out", "transpose"]

_LANES = (2, 4, 8, 16)
# Steps of a transposition. Pairs of lanes: two neighbours with two of another vector, within each 128 bits.
INTERLEAVED = {n: [tuple(4 * (k // 4) + h + k // 2 % 2 + k % 2 * n for k in range(n)) for h in (0, 2)] for n in _LANES}
PAIRS = {n: [tuple(4 * (k // 4) + h + k % 2 + k // 2 % 2 * n for k in range(n)) for h in (0, 2)] for n in _LANES}
# Exchanges of pieces of d lanes: d, both results, and the first of the vectors that lie d apart.
EXCHANGES = {
    n: [
        (d, tuple(k - (k & d) + (n if k & d else 0) for k in range(n)), tuple(k + n if k & d else k + d for k in range(n)),
         tuple(b for b in range(n) if not b & d))
        for d in (1, 2, 4, 8) if d < n
    ]
    for n in _LANES
}  # fmt: skip
WIDE_EXCHANGES = {n: EXCHANGES[n][2:] for n in _LANES}


def transpose(v, KIND):
    """The square matrix whose rows are the vectors `v`, as many as they have lanes, in place."""
    N = lanes(KIND)
    if KIND is float32:
        # Both steps within 128 bits by instructions that take no table of lanes.
        for B in unroll(range(0, N, 4)):
            a, b = shuffle(v[B], v[B + 1], INTERLEAVED[N][0]), shuffle(v[B], v[B + 1], INTERLEAVED[N][1])
            c, d = shuffle(v[B + 2], v[B + 3], INTERLEAVED[N][0]), shuffle(v[B + 2], v[B + 3], INTERLEAVED[N][1])
            v[B] = shuffle(a, c, PAIRS[N][0])
            v[B + 1] = shuffle(a, c, PAIRS[N][1])
            v[B + 2] = shuffle(b, d, PAIRS[N][0])
            v[B + 3] = shuffle(b, d, PAIRS[N][1])
    for STEP in unroll(WIDE_EXCHANGES[N] if KIND is float32 else EXCHANGES[N]):
        for B in unroll(STEP[3]):
            a, b = v[B], v[B + STEP[0]]
            v[B] = shuffle(a, b, STEP[1])
            v[B + STEP[0]] = shuffle(a, b, STEP[2])


def squares_in(x, step, to, first, count, length, swap, plane, *, PLANES):
    """`count` arrays of `length` numbers, `step` apart, from the one of number `first` on, as rows of one number of each.

    Args:
        PLANES: 2 for complex numbers, whose imaginary parts go to a plane `plane` numbers behind the real ones, before them if `swap`.
    """
    KIND = widened(x)
    N = lanes(KIND)
    real, imaginary = to + swap * plane, to + (1 - swap) * plane
    for j in rolled(range(0, length, N)):
        v = local(vector(KIND, N), N)
        for L in unroll(range(N)):
            # Lanes without an array hold the last one once more.
            line = x + (first + min(L, count - 1)) * step
            v[L] = load(line, j, N, length - j)
        transpose(v, KIND)
        for L in unroll(range(N)):
            if PLANES == 2:
                store(imaginary if L % 2 else real, (j + L) // 2 * N, v[L])
            else:
                store(to, (j + L) * N, v[L])


def squares_out(out, a, first, count, length, swap, plane, factor, *, PLANES):
    """The way back, to arrays that lie `length` apart, times `factor`."""
    KIND = widened(out)
    N = lanes(KIND)
    real, imaginary = a + swap * plane, a + (1 - swap) * plane
    times = broadcast(factor, N)
    for j in rolled(range(0, length, N)):
        v = local(vector(KIND, N), N)
        for L in unroll(range(N)):
            if PLANES == 2:
                v[L] = load(imaginary if L % 2 else real, (j + L) // 2 * N, N) * times
            else:
                v[L] = load(a, (j + L) * N, N) * times
        transpose(v, KIND)
        for L in unroll(range(N)):
            if count > L:
                store(out + (first + L) * length, j, v[L], length - j)
