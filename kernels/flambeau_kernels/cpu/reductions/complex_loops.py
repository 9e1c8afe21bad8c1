"""Sums, products and running totals of rows of complex numbers, in float64; sums begin in vectors of their own kind (`sums.py`).

A product waits for the one before, so several vectors of a row are multiplied side by side, and running totals of four rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau_kernels.engine.language import broadcast, float64, kernel, lanes, load, local, rolled, shuffle, store, unroll, vector, widened

from ..fourier.passes import EVENS, ODDS
from ..sums import eight, lanes_of, wide, zeros

__all__ = ["running", "totals"]

GRAIN = 16384  # elements of a chunk, and of a piece of a long row
VECTORS = 4  # multiplied side by side
ROWS = 4  # whose totals run along together
SHORTEST = 16  # elements of a row; of shorter ones numpy combines columns

Run = Callable[[np.ndarray], np.ndarray]


def totals(rows: int, n: int, dtype: np.dtype, what: str) -> Run | None:
    """What adds ('add') or multiplies ('mul') each of `rows` contiguous rows of `n`, giving a vector; None where numpy does."""
    if n < SHORTEST:
        return None
    pieces = 1
    if n >= 2 * GRAIN:
        pieces = -(-n // GRAIN)
    length = -(-n // pieces)
    items = rows * pieces
    per_chunk = max(1, GRAIN // length)
    part, numbers = np.dtype(f"f{dtype.itemsize // 2}"), (items, per_chunk, pieces, length, n)
    loop, ufunc = (row_sums, np.add) if what == "add" else (row_products, np.multiply)
    form = loop.form((part, np.dtype(np.float64), *[int] * len(numbers)), {})
    chunks = -(-items // per_chunk)

    def run(a: np.ndarray) -> np.ndarray:
        made = np.empty((rows, pieces), np.complex128)
        form(chunks, True, a.reshape(-1).view(part), made.view(np.float64), *numbers)
        with np.errstate(all="ignore"):
            return ufunc.reduce(made, 1).astype(dtype)

    return run


def running(rows: int, n: int, dtype: np.dtype, what: str, backwards: bool) -> Run:
    """What adds ('add') or multiplies ('mul') up to each place of `rows` contiguous rows of `n`, or from the last one on."""
    per_chunk = -(-max(1, GRAIN // n) // ROWS) * ROWS
    part, numbers = np.dtype(f"f{dtype.itemsize // 2}"), (rows, per_chunk, n)
    form = row_totals.form((part, part, *[int] * len(numbers)), {"WHAT": what, "STEP": -2 if backwards else 2})
    chunks = -(-rows // per_chunk)

    def run(a: np.ndarray) -> np.ndarray:
        made = np.empty(a.shape, dtype)
        form(chunks, True, a.reshape(-1).view(part), made.reshape(-1).view(part), *numbers)
        return made

    return run


# -- loops ---------------------------------------------------------------------------------------------------------------


def product_of(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


def parts_at(p, i, N):
    """Real and imaginary parts of the `N` complex numbers from `i` on, in float64."""
    WIDE = vector(float64, N)
    a, b = load(p, 2 * i, N), load(p, 2 * i + N, N)
    return WIDE(shuffle(a, b, EVENS[N])), WIDE(shuffle(a, b, ODDS[N]))


@kernel(in_vectors=True)
def row_products(chunk, x, out, items, per_chunk, pieces, length, n):
    N = lanes(float64)
    TOGETHER = VECTORS * N
    re, im = local(vector(float64, N), VECTORS), local(vector(float64, N), VECTORS)
    lanes_re, lanes_im = local(float64, TOGETHER), local(float64, TOGETHER)
    for item in rolled(range(chunk * per_chunk, min(items, chunk * per_chunk + per_chunk))):
        first = item % pieces * length
        size = min(length, n - first)
        p = x + 2 * (item // pieces * n + first)
        real, imaginary = float64(p[0]), float64(p[1])
        i = 1
        if size >= TOGETHER:
            for K in unroll(range(VECTORS)):
                re[K], im[K] = parts_at(p, K * N, N)
            i = TOGETHER
            while i + TOGETHER <= size:
                for K in unroll(range(VECTORS)):
                    br, bi = parts_at(p, i + K * N, N)
                    re[K], im[K] = product_of(re[K], im[K], br, bi)
                i += TOGETHER
            for K in unroll(range(VECTORS)):
                store(lanes_re, K * N, re[K])
                store(lanes_im, K * N, im[K])
            half = TOGETHER // 2
            while half > 0:
                for k in rolled(range(half)):
                    lanes_re[k], lanes_im[k] = product_of(lanes_re[k], lanes_im[k], lanes_re[k + half], lanes_im[k + half])
                half = half // 2
            real, imaginary = lanes_re[0], lanes_im[0]
        for k in rolled(range(i, size)):
            real, imaginary = product_of(real, imaginary, float64(p[2 * k]), float64(p[2 * k + 1]))
        out[2 * item], out[2 * item + 1] = real, imaginary


@kernel(in_vectors=True)
def row_sums(chunk, x, out, items, per_chunk, pieces, length, n):
    KIND = widened(x)
    N = lanes_of(KIND)
    lanes_of_total = local(float64, N)
    for item in rolled(range(chunk * per_chunk, min(items, chunk * per_chunk + per_chunk))):
        first = item % pieces * length
        size = 2 * min(length, n - first)
        p = x + 2 * (item // pieces * n + first)
        total = broadcast(0.0, N)
        i = 0
        while i + 8 * N <= size:
            total = total + wide(eight(p, i, 0, None, False, N, False), KIND)
            i += 8 * N
        some = zeros(KIND)
        while i + N <= size:
            some = some + load(p, i, N)
            i += N
        if i < size:
            some = some + load(p, i, N, size - i)
        store(lanes_of_total, 0, total + wide(some, KIND))
        half = N // 2
        while half > 1:                                   # real parts lie in the even lanes
            for k in rolled(range(half)):
                lanes_of_total[k] = lanes_of_total[k] + lanes_of_total[k + half]
            half = half // 2
        out[2 * item], out[2 * item + 1] = lanes_of_total[0], lanes_of_total[1]


def joined(ar, ai, br, bi, WHAT):
    return (ar + br, ai + bi) if WHAT == "add" else product_of(ar, ai, br, bi)


def begun(part, WHAT):
    """What a running total begins with: sums at 0, so that those of negative zeros are zero."""
    return part + 0.0 if WHAT == "add" else part


@kernel
def row_totals(chunk, x, out, rows, per_chunk, n, *, WHAT, STEP):
    KIND = widened(out)
    re, im = local(float64, ROWS), local(float64, ROWS)
    row = chunk * per_chunk
    last = min(rows, row + per_chunk)
    while row < last:
        p, to = x + 2 * row * n, out + 2 * row * n
        if STEP < 0:
            p, to = p + 2 * (n - 1), to + 2 * (n - 1)
        if row + ROWS <= last:
            for k in unroll(range(ROWS)):
                re[k], im[k] = begun(float64(p[2 * k * n]), WHAT), begun(float64(p[2 * k * n + 1]), WHAT)
                to[2 * k * n], to[2 * k * n + 1] = KIND(re[k]), KIND(im[k])
            for i in rolled(range(1, n)):
                for k in unroll(range(ROWS)):
                    at = 2 * k * n + i * STEP
                    re[k], im[k] = joined(re[k], im[k], float64(p[at]), float64(p[at + 1]), WHAT)
                    to[at], to[at + 1] = KIND(re[k]), KIND(im[k])
            row += ROWS
        else:
            real, imaginary = begun(float64(p[0]), WHAT), begun(float64(p[1]), WHAT)
            to[0], to[1] = KIND(real), KIND(imaginary)
            for i in rolled(range(1, n)):
                real, imaginary = joined(real, imaginary, float64(p[i * STEP]), float64(p[i * STEP + 1]), WHAT)
                to[i * STEP], to[i * STEP + 1] = KIND(real), KIND(imaginary)
            row += 1
