"""Passes of Fourier transforms over rows of whole vectors.

Values lie in planes, real parts and imaginary parts apart; a row holds values that belong to different transforms, so that
vectors are independent of each other. A pass takes sequences apart into `r` shorter ones and leaves its results in order
(Stockham's form): its `s` numbers side by side become ``s * r``.

A pass of one radix is a kernel, which those of lines call by its address: so it is compiled once, whatever radices it meets.

Source: Van Loan 1992, "Computational Frameworks for the Fast Fourier Transform", section 1.7.
"""

from __future__ import annotations

from math import cos, pi, sin

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    flags,
    float64,
    int64,
    kernel,
    lanes,
    load,
    local,
    rolled,
    run,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engines import kept

__all__ = ["EVENS", "LARGEST_PRIME", "MIXED", "ODDS", "REVERSED", "addresses", "all_passes"]

C1, C2, S1, S2, S3 = cos(2 * pi / 5), cos(4 * pi / 5), sin(2 * pi / 5), sin(4 * pi / 5), sin(pi / 3)
# Cosines and sines of ``k / r`` of a circle. That of a third is exact, so that halves are rounded as they should be.
ROOTS = {
    r: [(-0.5 if 3 * k in (r, 2 * r) else cos(2 * pi * k / r), sin(2 * pi * k / r)) for k in range(r)] for r in range(3, 16, 2)
}

LARGEST_PRIME = 127                                   # that is a radix; from 11 on all have one text

_LANES = (2, 4, 8, 16)
# For vectors of each length: the even and the odd lanes of two, both results of mixing two, and one from behind.
EVENS = {n: tuple(range(0, 2 * n, 2)) for n in _LANES}
ODDS = {n: tuple(range(1, 2 * n, 2)) for n in _LANES}
MIXED = {n: [tuple(k // 2 + h * (n // 2) + k % 2 * n for k in range(n)) for h in (0, 1)] for n in _LANES}
REVERSED = {n: tuple(range(n - 1, -1, -1)) for n in _LANES}


# -- butterflies -------------------------------------------------------------------------------------------------------------


def four_of(ar, ai, br, bi, cr, ci, dr, di):
    """The transform of four values."""
    er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
    gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
    return er + gr, ei + gi, fr + hi, fi - hr, er - gr, ei - gi, fr - hi, fi + hr


def put(to, at, size, re, im):
    store(to, at, re)
    store(to, at + size, im)


def put_turned(to, at, size, re, im, w, of, count):
    """``(re + i im)`` times the number of the table `w` at `of`, whose sine lies `count` behind its cosine."""
    N = lanes(widened(to))
    c, d = broadcast(w[of], N), broadcast(w[of + count], N)
    put(to, at, size, re * c - im * d, re * d + im * c)


def taken(a, at, step, size, R):
    """Real and imaginary parts of `R` values."""
    KIND = widened(a)
    N = lanes(KIND)
    re, im = local(vector(KIND, N), R), local(vector(KIND, N), R)
    for K in unroll(range(R)):
        re[K] = load(a, at + K * step, N)
        im[K] = load(a, at + K * step + size, N)
    return re, im


def two(a, to, at, put_at, size, m, s, w, p, r):
    N = lanes(widened(a))
    ar, ai = load(a, at, N), load(a, at + size, N)
    br, bi = load(a, at + s * m, N), load(a, at + s * m + size, N)
    put(to, put_at, size, ar + br, ai + bi)
    put_turned(to, put_at + s, size, ar - br, ai - bi, w, p, m)


def three(a, to, at, put_at, size, m, s, w, p, r):
    KIND = widened(a)
    N = lanes(KIND)
    re, im = taken(a, at, s * m, size, 3)
    half, root = broadcast(KIND(0.5), N), broadcast(KIND(S3), N)
    tr, ti = re[1] + re[2], im[1] + im[2]
    put(to, put_at, size, re[0] + tr, im[0] + ti)
    mr, mi = re[0] - half * tr, im[0] - half * ti
    nr, ni = root * (re[1] - re[2]), root * (im[1] - im[2])
    put_turned(to, put_at + s, size, mr + ni, mi - nr, w, p, 2 * m)
    put_turned(to, put_at + 2 * s, size, mr - ni, mi + nr, w, m + p, 2 * m)


def four(a, to, at, put_at, size, m, s, w, p, r):
    re, im = taken(a, at, s * m, size, 4)
    x0, y0, x1, y1, x2, y2, x3, y3 = four_of(re[0], im[0], re[1], im[1], re[2], im[2], re[3], im[3])
    put(to, put_at, size, x0, y0)
    put_turned(to, put_at + s, size, x1, y1, w, p, 3 * m)
    put_turned(to, put_at + 2 * s, size, x2, y2, w, m + p, 3 * m)
    put_turned(to, put_at + 3 * s, size, x3, y3, w, 2 * m + p, 3 * m)


def five(a, to, at, put_at, size, m, s, w, p, r):
    KIND = widened(a)
    N = lanes(KIND)
    re, im = taken(a, at, s * m, size, 5)
    c1, c2 = broadcast(KIND(C1), N), broadcast(KIND(C2), N)
    s1, s2 = broadcast(KIND(S1), N), broadcast(KIND(S2), N)
    tr, ti, ur, ui = re[1] + re[4], im[1] + im[4], re[2] + re[3], im[2] + im[3]
    vr, vi, xr, xi = re[1] - re[4], im[1] - im[4], re[2] - re[3], im[2] - im[3]
    put(to, put_at, size, re[0] + tr + ur, im[0] + ti + ui)
    mr, mi = re[0] + c1 * tr + c2 * ur, im[0] + c1 * ti + c2 * ui
    nr, ni = s1 * vr + s2 * xr, s1 * vi + s2 * xi
    put_turned(to, put_at + s, size, mr + ni, mi - nr, w, p, 4 * m)
    put_turned(to, put_at + 4 * s, size, mr - ni, mi + nr, w, 3 * m + p, 4 * m)
    kr, ki = re[0] + c2 * tr + c1 * ur, im[0] + c2 * ti + c1 * ui
    lr, li = s2 * vr - s1 * xr, s2 * vi - s1 * xi
    put_turned(to, put_at + 2 * s, size, kr + li, ki - lr, w, m + p, 4 * m)
    put_turned(to, put_at + 3 * s, size, kr - li, ki + lr, w, 2 * m + p, 4 * m)


def seven(a, to, at, put_at, size, m, s, w, p, r):
    """By the symmetry of the sines and cosines: sums and differences of the values that mirror each other."""
    KIND = widened(a)
    N = lanes(KIND)
    re, im = taken(a, at, s * m, size, 7)
    for K in unroll(range(1, 4)):
        x, y = re[K], im[K]
        re[K] = x + re[7 - K]
        im[K] = y + im[7 - K]
        re[7 - K] = x - re[7 - K]
        im[7 - K] = y - im[7 - K]
    put(to, put_at, size, re[0] + re[1] + re[2] + re[3], im[0] + im[1] + im[2] + im[3])
    for K in unroll(range(1, 4)):
        mr, mi = re[0], im[0]
        nr, ni = broadcast(KIND(0), N), broadcast(KIND(0), N)
        for J in unroll(range(1, 4)):
            c, d = broadcast(KIND(ROOTS[7][J * K % 7][0]), N), broadcast(KIND(ROOTS[7][J * K % 7][1]), N)
            mr, mi = mr + c * re[J], mi + c * im[J]
            nr, ni = nr + d * re[7 - J], ni + d * im[7 - J]
        put_turned(to, put_at + K * s, size, mr + ni, mi - nr, w, (K - 1) * m + p, 6 * m)
        put_turned(to, put_at + (7 - K) * s, size, mr - ni, mi + nr, w, (6 - K) * m + p, 6 * m)


def eight(a, to, at, put_at, size, m, s, w, p, r):
    KIND = widened(a)
    re, im = taken(a, at, s * m, size, 8)
    half = broadcast(KIND(0.5**0.5), lanes(KIND))
    x0, y0, x1, y1, x2, y2, x3, y3 = four_of(re[0], im[0], re[2], im[2], re[4], im[4], re[6], im[6])
    u0, v0, u1, v1, u2, v2, u3, v3 = four_of(re[1], im[1], re[3], im[3], re[5], im[5], re[7], im[7])
    u1, v1 = (u1 + v1) * half, (v1 - u1) * half
    u3, v3 = (v3 - u3) * half, -((u3 + v3) * half)
    put(to, put_at, size, x0 + u0, y0 + v0)
    put_turned(to, put_at + s, size, x1 + u1, y1 + v1, w, p, 7 * m)
    put_turned(to, put_at + 2 * s, size, x2 + v2, y2 - u2, w, m + p, 7 * m)
    put_turned(to, put_at + 3 * s, size, x3 + u3, y3 + v3, w, 2 * m + p, 7 * m)
    put_turned(to, put_at + 4 * s, size, x0 - u0, y0 - v0, w, 3 * m + p, 7 * m)
    put_turned(to, put_at + 5 * s, size, x1 - u1, y1 - v1, w, 4 * m + p, 7 * m)
    put_turned(to, put_at + 6 * s, size, x2 - v2, y2 + u2, w, 5 * m + p, 7 * m)
    put_turned(to, put_at + 7 * s, size, x3 - u3, y3 - v3, w, 6 * m + p, 7 * m)


def prime(a, to, at, put_at, size, m, s, w, p, r):
    """As `seven`, for any odd `r`; the cosines and the sines of ``k / r`` of a circle lie behind the turns of the pass."""
    KIND = widened(a)
    N = lanes(KIND)
    re, im = local(vector(KIND, N), LARGEST_PRIME), local(vector(KIND, N), LARGEST_PRIME)
    roots, half = w + 2 * (r - 1) * m, (r - 1) // 2
    first_re, first_im = load(a, at, N), load(a, at + size, N)
    sum_re, sum_im = first_re, first_im
    for k in rolled(range(1, half + 1)):
        near, far = at + k * s * m, at + (r - k) * s * m
        x, y, u, v = load(a, near, N), load(a, near + size, N), load(a, far, N), load(a, far + size, N)
        re[k] = x + u
        im[k] = y + v
        re[r - k] = x - u
        im[r - k] = y - v
        sum_re, sum_im = sum_re + (x + u), sum_im + (y + v)
    put(to, put_at, size, sum_re, sum_im)
    for k in rolled(range(1, half + 1)):
        mr, mi = first_re, first_im
        nr, ni = broadcast(KIND(0), N), broadcast(KIND(0), N)
        place = 0
        for j in rolled(range(1, half + 1)):
            place = place + k
            place = place - r if place >= r else place
            c, d = broadcast(roots[place], N), broadcast(roots[place + r], N)
            mr, mi = mr + c * re[j], mi + c * im[j]
            nr, ni = nr + d * re[r - j], ni + d * im[r - j]
        put_turned(to, put_at + k * s, size, mr + ni, mi - nr, w, (k - 1) * m + p, (r - 1) * m)
        put_turned(to, put_at + (r - k) * s, size, mr - ni, mi + nr, w, (r - k - 1) * m + p, (r - 1) * m)


def alone(a, to, at, put_at, size, step, R):
    """The transform of a line of `R` float32 values, an odd prime, in float64: rounded once, what is equal comes out equal."""
    KIND = widened(a)
    N = lanes(KIND)
    WIDE, NARROW = vector(float64, N), vector(KIND, N)
    re, im = local(WIDE, R), local(WIDE, R)
    for K in unroll(range(R)):
        re[K] = WIDE(load(a, at + K * step, N))
        im[K] = WIDE(load(a, at + K * step + size, N))
    sum_re, sum_im = re[0], im[0]
    for K in unroll(range(1, R // 2 + 1)):
        x, y = re[K], im[K]
        re[K] = x + re[R - K]
        im[K] = y + im[R - K]
        re[R - K] = x - re[R - K]
        im[R - K] = y - im[R - K]
        sum_re, sum_im = sum_re + re[K], sum_im + im[K]
    put(to, put_at, size, NARROW(sum_re), NARROW(sum_im))
    for K in unroll(range(1, R // 2 + 1)):
        mr, mi = re[0], im[0]
        nr, ni = broadcast(float64(0), N), broadcast(float64(0), N)
        for J in unroll(range(1, R // 2 + 1)):
            c, d = broadcast(float64(ROOTS[R][J * K % R][0]), N), broadcast(float64(ROOTS[R][J * K % R][1]), N)
            mr, mi = mr + c * re[J], mi + c * im[J]
            nr, ni = nr + d * re[R - J], ni + d * im[R - J]
        put(to, put_at + K * step, size, NARROW(mr + ni), NARROW(mi - nr))
        put(to, put_at + (R - K) * step, size, NARROW(mr - ni), NARROW(mi + nr))


def three_alone(a, to, at, put_at, size, m, s, w, p, r):
    alone(a, to, at, put_at, size, s, 3)


def five_alone(a, to, at, put_at, size, m, s, w, p, r):
    alone(a, to, at, put_at, size, s, 5)


def seven_alone(a, to, at, put_at, size, m, s, w, p, r):
    alone(a, to, at, put_at, size, s, 7)


ALONE = {3: three_alone, 5: five_alone, 7: seven_alone}  # lines of one pass, of float32
BUTTERFLIES = {2: two, 3: three, 4: four, 5: five, 7: seven, 8: eight}


# -- passes --------------------------------------------------------------------------------------------------------------------


@kernel(in_vectors=True)
def one_pass(r, a, to, w, size, m, s, *, BUTTERFLY):
    """A pass of radix `r` from `a` to `to`, whose imaginary parts lie `size` behind the real ones.

    Of a transform ``r * m`` values are left.
    """
    with flags("contract"):
        for p in rolled(range(m)):
            for q in rolled(range(0, s, lanes(widened(a)))):
                BUTTERFLY(a, to, q + s * p, q + s * r * p, size, m, s, w, p, r)


def addresses(radices: tuple[int, ...], real: np.dtype) -> np.ndarray:
    """Where the code of each pass is, for `all_passes`."""
    by_itself = len(radices) == 1 and radices[0] in ALONE and real == np.float32
    return np.array([_address(r if r <= 8 else LARGEST_PRIME, real, by_itself) for r in radices], np.int64)


@kept()
def _address(radix: int, real: np.dtype, by_itself: bool) -> int:
    butterfly = ALONE[radix] if by_itself else BUTTERFLIES.get(radix, prime)
    return one_pass.address((real, real, real, int, int, int), {"BUTTERFLY": butterfly})


def all_passes(room, size, plane, s, radices, passes, first, end, w, n, odd):
    """The passes of transforms of `n` values, with `s` numbers side by side, by the radices from `first` to `end`.

    Args:
        room: two pairs of planes of `plane` numbers; values are in the second pair if `odd`, afterwards if ``odd + end - first`` is.
        passes: `addresses` of the radices.
        w: a table of the passes' turns.
    """
    left = n
    given = local(int64, 6)
    given[3] = size
    for t in rolled(range(first, end)):
        r = radices[t]
        m = left // r
        at = (odd + t - first) % 2 * (2 * plane)
        given[0] = int64(room + at)
        given[1] = int64(room + (2 * plane - at))
        given[2] = int64(w)
        given[4] = m
        given[5] = s
        run(passes[t], r, given)
        w += 2 * (r - 1) * m
        w += 2 * r if r > 8 else 0
        left = m
        s = s * r
