"""Discrete Fourier transforms of lengths 4 * 2^a * 3^b * 5^c, compiled.

Values of several lines lie in planes, real parts before imaginary ones. A pass takes sequences apart into `radix` shorter ones
and leaves its results in order (Stockham's form), so that vectors are consecutive elements in every pass but the first.
Only sums of elements along a line enter a value: it does not depend on threads, vectors or neighbours.

Source: Van Loan 1992, "Computational Frameworks for the Fast Fourier Transform", section 1.7.
"""

from __future__ import annotations

import functools
import math
from math import cos, pi, prod, sin
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    apart,
    broadcast,
    float32,
    float64,
    independent,
    kernel,
    lanes,
    load,
    rolled,
    store,
)

from .move import in_rows
from .tier import compiles

__all__ = ["real_transform", "takes", "takes_real", "transform"]

COLUMNS = 16                                          # lines side by side that are transformed together
PIECE = 1 << 14                                       # elements of a chunk, about 50 microseconds
MOST_CHUNKS = 64                                      # each has memory of its own
C1, C2, S1, S2, S3 = cos(2 * pi / 5), cos(4 * pi / 5), sin(2 * pi / 5), sin(4 * pi / 5), sin(pi / 3)


def get(p, i, V):
    return p[i] if V == 1 else load(p, i, V)


def put(p, i, size, re, im, V):
    if V == 1:
        p[i] = re
        p[i + size] = im
    else:
        store(p, i, re)
        store(p, i + size, im)


def number(x, V):
    return x if V == 1 else broadcast(x, V)


def turned(re, im, c, s):
    """``(re + i im) (c + i s)``."""
    return re * c - im * s, re * s + im * c


def two(a, to, at, put_at, size, m, s, w, p, V):
    c, d = number(w[p], V), number(w[m + p], V)
    ar, ai = get(a, at, V), get(a, at + size, V)
    br, bi = get(a, at + s * m, V), get(a, at + s * m + size, V)
    put(to, put_at, size, ar + br, ai + bi, V)
    re, im = turned(ar - br, ai - bi, c, d)
    put(to, put_at + s, size, re, im, V)


def three(a, to, at, put_at, size, m, s, w, p, V, KIND):
    step = s * m
    ar, ai = get(a, at, V), get(a, at + size, V)
    br, bi = get(a, at + step, V), get(a, at + step + size, V)
    cr, ci = get(a, at + 2 * step, V), get(a, at + 2 * step + size, V)
    half, root = number(KIND(0.5), V), number(KIND(S3), V)
    tr, ti = br + cr, bi + ci
    put(to, put_at, size, ar + tr, ai + ti, V)
    mr, mi = ar - half * tr, ai - half * ti
    nr, ni = root * (br - cr), root * (bi - ci)
    re, im = turned(mr + ni, mi - nr, number(w[p], V), number(w[2 * m + p], V))
    put(to, put_at + s, size, re, im, V)
    re2, im2 = turned(mr - ni, mi + nr, number(w[m + p], V), number(w[3 * m + p], V))
    put(to, put_at + 2 * s, size, re2, im2, V)


def four(a, to, at, put_at, size, m, s, w, p, V):
    step = s * m
    ar, ai = get(a, at, V), get(a, at + size, V)
    br, bi = get(a, at + step, V), get(a, at + step + size, V)
    cr, ci = get(a, at + 2 * step, V), get(a, at + 2 * step + size, V)
    dr, di = get(a, at + 3 * step, V), get(a, at + 3 * step + size, V)
    er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
    gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
    put(to, put_at, size, er + gr, ei + gi, V)
    re, im = turned(fr + hi, fi - hr, number(w[p], V), number(w[3 * m + p], V))
    put(to, put_at + s, size, re, im, V)
    re2, im2 = turned(er - gr, ei - gi, number(w[m + p], V), number(w[4 * m + p], V))
    put(to, put_at + 2 * s, size, re2, im2, V)
    re3, im3 = turned(fr - hi, fi + hr, number(w[2 * m + p], V), number(w[5 * m + p], V))
    put(to, put_at + 3 * s, size, re3, im3, V)


def five(a, to, at, put_at, size, m, s, w, p, V, KIND):
    step = s * m
    ar, ai = get(a, at, V), get(a, at + size, V)
    br, bi = get(a, at + step, V), get(a, at + step + size, V)
    cr, ci = get(a, at + 2 * step, V), get(a, at + 2 * step + size, V)
    dr, di = get(a, at + 3 * step, V), get(a, at + 3 * step + size, V)
    er, ei = get(a, at + 4 * step, V), get(a, at + 4 * step + size, V)
    c1, c2 = number(KIND(C1), V), number(KIND(C2), V)
    s1, s2 = number(KIND(S1), V), number(KIND(S2), V)
    tr, ti, ur, ui = br + er, bi + ei, cr + dr, ci + di
    vr, vi, xr, xi = br - er, bi - ei, cr - dr, ci - di
    put(to, put_at, size, ar + tr + ur, ai + ti + ui, V)
    mr, mi = ar + c1 * tr + c2 * ur, ai + c1 * ti + c2 * ui
    nr, ni = s1 * vr + s2 * xr, s1 * vi + s2 * xi
    re, im = turned(mr + ni, mi - nr, number(w[p], V), number(w[4 * m + p], V))
    put(to, put_at + s, size, re, im, V)
    re4, im4 = turned(mr - ni, mi + nr, number(w[3 * m + p], V), number(w[7 * m + p], V))
    put(to, put_at + 4 * s, size, re4, im4, V)
    kr, ki = ar + c2 * tr + c1 * ur, ai + c2 * ti + c1 * ui
    lr, li = s2 * vr - s1 * xr, s2 * vi - s1 * xi
    re2, im2 = turned(kr + li, ki - lr, number(w[m + p], V), number(w[5 * m + p], V))
    put(to, put_at + 2 * s, size, re2, im2, V)
    re3, im3 = turned(kr - li, ki + lr, number(w[2 * m + p], V), number(w[6 * m + p], V))
    put(to, put_at + 3 * s, size, re3, im3, V)


def one_pass(a, to, size, r, m, s, w, V, KIND):
    """A pass with vectors of `V` of the `s` sequences side by side."""
    for p in rolled(range(m)):
        for q in rolled(range(0, s, V)):
            at, put_at = q + s * p, q + s * r * p
            if r == 4:
                four(a, to, at, put_at, size, m, s, w, p, V)
            elif r == 5:
                five(a, to, at, put_at, size, m, s, w, p, V, KIND)
            elif r == 3:
                three(a, to, at, put_at, size, m, s, w, p, V, KIND)
            else:
                two(a, to, at, put_at, size, m, s, w, p, V)


@kernel
def lines(chunk, x, out, work, table, factors, passes, groups, per, n, inner, columns, scale, swap, *, REAL):
    KIND = REAL
    N = lanes(KIND)
    blocks = (inner + columns - 1) // columns
    room = work + chunk * (4 * n * columns)
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group % blocks * columns
        width = min(columns, inner - first)
        start = (group // blocks * n * inner + first) * 2
        size = n * width
        # A block of whole rows is one long row.
        rows = 1 if width == inner else n
        long_width = size // rows
        real, imaginary = room + swap * size, room + (1 - swap) * size
        for i in rolled(range(rows)):
            row, to_real, to_imaginary = x + (start + i * inner * 2), real + i * width, imaginary + i * width
            for c in independent(range(long_width)):
                to_real[c] = row[2 * c]
                to_imaginary[c] = row[2 * c + 1]
        left, s, used = n, width, 0
        for t in rolled(range(passes)):
            r = factors[t]
            m = left // r
            a, to, w = room + t % 2 * (2 * size), room + (t + 1) % 2 * (2 * size), table + used
            if s == 1:
                for p in independent(range(m)):
                    four(a, to, p, 4 * p, size, m, 1, w, p, 1)
            elif N > 4 and s % N == 0:
                apart(one_pass)(a, to, size, r, m, s, w, N, KIND)
            else:
                apart(one_pass)(a, to, size, r, m, s, w, 4, KIND)
            used += 2 * (r - 1) * m
            left = m
            s = s * r
        done = passes % 2 * (2 * size)
        factor = KIND(scale)
        for i in rolled(range(rows)):
            row, of_real, of_imaginary = out + (start + i * inner * 2), real + (done + i * width), imaginary + (done + i * width)
            for c in independent(range(long_width)):
                row[2 * c] = of_real[c] * factor
                row[2 * c + 1] = of_imaginary[c] * factor


@kernel
def unpacked(chunk, z, out, table, rows, per, m, *, REAL):
    """Half the spectrum of real lines, from the transforms `z` of their even values + i their odd ones."""
    half = REAL(0.5)
    for row in rolled(range(chunk * per, min(rows, chunk * per + per))):
        a, to = z + row * (2 * m), out + row * (2 * m + 2)
        to[0] = a[0] + a[1]
        to[1] = REAL(0)
        to[2 * m] = a[0] - a[1]
        to[2 * m + 1] = REAL(0)
        for k in independent(range(1, m)):
            re, im, re2, im2 = a[2 * k], a[2 * k + 1], a[2 * (m - k)], a[2 * (m - k) + 1]
            # Transforms of the even values, and of the odd ones times -i.
            even, even_im, odd, odd_im = half * (re + re2), half * (im - im2), half * (im + im2), half * (re2 - re)
            c, s = table[k], table[m + k]
            to[2 * k] = even + (odd * c - odd_im * s)
            to[2 * k + 1] = even_im + (odd * s + odd_im * c)


@functools.lru_cache(256)
def _radices(n: int) -> tuple[int, ...]:
    """The radix of each pass, those of 4 first; none for a length that has another prime factor or is odd."""
    found, left = [], n
    for radix in (4, 2, 5, 3):
        while left % radix == 0:
            found.append(radix)
            left //= radix
    return tuple(found) if left == 1 and n % 4 == 0 else ()


@functools.lru_cache(64)
def _plan(n: int, char: str) -> tuple[np.ndarray, np.ndarray]:
    """The radices, and for each pass the cosines and then the sines that it turns its results by."""
    radices, rows, left = _radices(n), [], n
    for radix in radices:
        angles = np.outer(np.arange(1, radix), np.arange(left // radix)) * (-2 * pi / left)
        rows += [np.cos(angles).ravel(), np.sin(angles).ravel()]
        left //= radix
    return np.array(radices, np.int64), np.concatenate(rows).astype(char)


@functools.lru_cache(64)
def _turns(n: int, char: str) -> np.ndarray:
    """Cosines and sines of half a circle, clockwise, by which the odd values of a line of `n` are turned."""
    angles = np.arange(n // 2) * (-2 * pi / n)
    return np.concatenate([np.cos(angles), np.sin(angles)]).astype(char)


def takes(a: np.ndarray, dims: Any) -> bool:
    """Whether `transform` computes this."""
    if a.dtype.char not in "FD" or not a.size or not dims or not compiles() or type(a) is not np.ndarray:
        return False
    if len(dims) == 1 and dims[0] % a.ndim == a.ndim - 1 and a.shape[-1] > MOST[a.dtype.char]:
        return a.dtype.char == "F" and _sides(a.shape[-1]) is not None
    for d in dims:
        inner = prod(a.shape[d % a.ndim + 1 :])
        if not _radices(a.shape[d]) or not (inner == 1 or inner % 4 == 0 and a.dtype.char == "F") or a.shape[d] > MOST[a.dtype.char]:
            return False
    return True


def _long_lines(a: np.ndarray, scale: float, inverse: bool) -> np.ndarray:
    """The transforms of long lines, each taken as a matrix by rows: of its columns, turned, of its rows, and then by columns."""
    n = a.shape[-1]
    height, width = _sides(n) or (1, n)
    columns = transform(a.reshape(-1, height, width), (1,), 1.0, inverse)
    columns *= _turns_between(height, width, inverse)
    made = transform(columns, (2,), scale, inverse)
    return in_rows(made.swapaxes(1, 2)).reshape(a.shape)


@functools.lru_cache(128)
def _sides(n: int) -> tuple[int, int] | None:
    """Height and width of a matrix of `n` elements whose sides have transforms here, as nearly alike as can be; None for none."""
    if n > LONGEST or not _radices(n):
        return None
    near = [h for h in range(4, math.isqrt(n) + 1) if n % h == 0 and _radices(h) and _radices(n // h)]
    return (near[-1], n // near[-1]) if near and n // near[-1] <= MOST["F"] else None


@functools.lru_cache(2)
def _turns_between(height: int, width: int, inverse: bool) -> np.ndarray:
    """What the values of a long line are multiplied by between the transforms of columns and of rows."""
    n = height * width
    angles = (np.outer(np.arange(height), np.arange(width)) % n) * ((2 if inverse else -2) * pi / n)
    return np.exp(1j * angles).astype(np.complex64)


# Longer lines leave the second-level cache in every pass, so they are taken apart.
LONGEST = 1 << 22                                     # whose turns are kept: 32 MB
MOST = {"F": 1 << 18, "D": 1 << 16}
_KINDS = {"f": float32, "d": float64}


def transform(a: np.ndarray, dims: Any, scale: float, inverse: bool) -> np.ndarray:
    """The transform of complex `a` over `dims`, with exponent sign + if `inverse`, times `scale`."""
    a = np.ascontiguousarray(a)
    if a.dtype.char == "F" and len(dims) == 1 and a.shape[dims[0]] > MOST["F"]:
        return _long_lines(a, scale, inverse)
    for k, d in enumerate(reversed(dims)):
        n, inner = a.shape[d], prod(a.shape[d % a.ndim + 1 :])
        real = np.dtype(a.dtype.char.lower())
        columns = min(inner, COLUMNS)
        groups = a.size // (n * inner) * -(-inner // columns)
        per = max(1, PIECE // (n * columns), -(-groups // MOST_CHUNKS))
        chunks = -(-groups // per)
        factors, table = _plan(n, real.char)
        made = np.empty(a.shape, a.dtype)
        work = np.empty(chunks * 4 * n * columns, real)
        last = float(scale) if k == len(dims) - 1 else 1.0
        lines.run(chunks, a.view(real), made.view(real), work, table, factors, len(factors), groups, per, n, inner, columns, last,
                  int(inverse), REAL=_KINDS[real.char])  # fmt: skip
        a = made
    return a


def takes_real(a: np.ndarray, dims: Any) -> bool:
    """Whether `real_transform` computes this: lines of contiguous memory."""
    if a.dtype.char not in "fd" or len(dims) != 1 or dims[0] % a.ndim != a.ndim - 1 or not a.size or type(a) is not np.ndarray:
        return False
    n = a.shape[-1]
    if n % 2 or not _radices(n // 2) or not compiles():
        return False
    return n <= 2 * MOST[a.dtype.char.upper()] or a.dtype.char == "f" and _sides(n // 2) is not None


def real_transform(a: np.ndarray, scale: float) -> np.ndarray:
    """The first ``n // 2 + 1`` values of the transforms of real lines of n, the last dimension of `a`, times `scale`."""
    a = np.ascontiguousarray(a)
    n = a.shape[-1]
    m, kind = n // 2, np.dtype(a.dtype.char.upper())
    z = transform(a.view(kind), (a.ndim - 1,), scale, False)
    made = np.empty((*a.shape[:-1], m + 1), kind)
    rows = a.size // n
    per = max(1, PIECE // m)
    unpacked.run(-(-rows // per), z.view(a.dtype), made.view(a.dtype), _turns(n, a.dtype.char), rows, per, m, REAL=_KINDS[a.dtype.char])
    return made
