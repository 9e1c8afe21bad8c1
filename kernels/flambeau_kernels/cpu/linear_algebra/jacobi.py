"""Eigenvalues and singular values of many small real matrices, one in each lane of a vector, by Jacobi's rotations.

A rotation of two columns makes them (or two elements outside the diagonal) orthogonal; sweeps over all pairs go on until in no
lane anything is left to turn. A lane that is done is turned by no more, so a matrix has the same result among any others.
Batches with a matrix that does not converge, or whose vectors do not follow from its values, are left to LAPACK.

Source: Golub and Van Loan 2013, "Matrix Computations", sections 8.5 (Jacobi's method) and 8.6.3 (one-sided, for singular values).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine.language import (
    bitcast,
    broadcast,
    float32,
    int32,
    kernel,
    lanes,
    load,
    local,
    outlined,
    rolled,
    store,
    vector,
    widened,
)
from ...vocabulary import abs, sqrt, where
from ..squares import squares_in, squares_out
from ..tier import compiles
from .matrices_by_lanes import FROM, arranged, laid_out, run_lanes

__all__ = ["MOST", "eigh", "svd", "takes"]

MOST, TALL = 16, 32                                   # of the smaller side, and of the larger one
MOST_BY_ROTATION = 8                                               # rows up to which values alone in float64 take less time than LAPACK's
SWEEPS = 16                                           # some six are needed
ROOM = TALL * MOST


def takes(a: Any) -> bool:
    """Whether there are kernels for the batch `a` of matrices."""
    return (
        a.ndim > 2 and 0 < min(a.shape[-2:]) <= MOST and max(a.shape[-2:]) <= TALL and a.dtype.char in "fd"
        and math.prod(a.shape[:-2]) >= FROM and type(a) is np.ndarray and compiles()
    )  # fmt: skip


def eigh(a: np.ndarray, upper: bool, vectors: bool) -> Any:
    """Ascending eigenvalues of symmetric matrices, of which one triangle is read, and eigenvectors by columns; None: not converging."""
    n = a.shape[-1]
    if not vectors and a.dtype.char == "d" and n > MOST_BY_ROTATION:
        return None                                   # LAPACK needs a quarter of the work for values alone
    flat, step, row, column = laid_out(a)
    if upper:
        row, column = column, row
    values, turned = np.empty(a.shape[:-1], a.dtype), np.empty(a.shape if vectors else 0, a.dtype)
    info = np.empty(len(flat), np.int32)
    run_lanes(of_symmetric, flat, (values, turned, info), (n, step, row, column), 40 * n * n * n, VECTORS=vectors)
    if info.any():
        return None
    return (values, turned.swapaxes(-1, -2)) if vectors else values


def svd(a: np.ndarray, vectors: bool) -> Any:
    """Descending singular values, and U and the transpose of V, by columns and without more than belong to them; None: see above."""
    flat, step, row, column = laid_out(a)
    m, n = a.shape[-2:]
    wide = m < n
    if wide:
        m, n, row, column = n, m, column, row
    batch = a.shape[:-2]
    values, info = np.empty((*batch, n), a.dtype), np.empty(len(flat), np.int32)
    left, right = np.empty((*batch, n, m) if vectors else 0, a.dtype), np.empty((*batch, n, n) if vectors else 0, a.dtype)
    numbers = (m, n, step, row, column, *((n, 1, 1, n) if wide else (1, m, n, 1)))
    if wide and vectors:
        left = left.reshape(*batch, m, n)
    run_lanes(of_rectangular, flat, (values, left, right, info), numbers, 40 * n * n * m, VECTORS=vectors)
    if info.any():
        return None
    if not vectors:
        return values
    if wide:
        return right.swapaxes(-1, -2), values, left.swapaxes(-1, -2)
    return left.swapaxes(-1, -2), values, right.swapaxes(-1, -2)


# -- rotations -------------------------------------------------------------------------------------------------------------------


def angle(difference, product, chosen, KIND):
    """Tangent, cosine and sine of the rotation for half a difference over a product; none in lanes not `chosen`."""
    N = lanes(KIND)
    one, zero = broadcast(KIND(1), N), broadcast(KIND(0), N)
    ratio = difference / where(chosen, product + product, one)
    size = abs(ratio)
    # Beyond this the root of its square and 1 is itself.
    far = size > broadcast(KIND(1e8 if KIND is float32 else 1e16), N)
    near = where(far, zero, size)
    tangent = one / (size + where(far, size, sqrt(near * near + one)))
    tangent = where(chosen, where(ratio < zero, -tangent, tangent), zero)
    cosine = one / sqrt(tangent * tangent + one)
    return tangent, cosine, tangent * cosine


def rotated(a, first, second, step, count, c, s):
    """`count` pairs of elements, `step` apart, turned."""
    N = lanes(widened(a))
    for k in rolled(range(count)):
        p, q = (first + k * step) * N, (second + k * step) * N
        x, y = load(a, p, N), load(a, q, N)
        store(a, p, c * x - s * y)
        store(a, q, s * x + c * y)


def exchanged(a, first, second, step, count, chosen):
    """The same pairs change places in the lanes that are `chosen`."""
    N = lanes(widened(a))
    for k in rolled(range(count)):
        p, q = (first + k * step) * N, (second + k * step) * N
        x, y = load(a, p, N), load(a, q, N)
        store(a, p, where(chosen, y, x))
        store(a, q, where(chosen, x, y))


def identity(a, n, KIND):
    N = lanes(KIND)
    for i in rolled(range(n)):
        for j in rolled(range(n)):
            store(a, (i * n + j) * N, broadcast(KIND(1) if i == j else KIND(0), N))


def any_lane(x, room, KIND):
    """The largest number of a vector."""
    store(room, 0, x)
    most = room[0]
    for k in rolled(range(1, lanes(KIND))):
        most = max(most, room[k])
    return most


# -- symmetric matrices ------------------------------------------------------------------------------------------------------------


def left_over(a, n, KIND):
    """1 in lanes where an element outside the diagonal is more than rounding of the largest one."""
    N = lanes(KIND)
    most, off = broadcast(KIND(0), N), broadcast(KIND(0), N)
    for i in rolled(range(n)):
        for j in rolled(range(n)):
            size = abs(load(a, (i * n + j) * N, N))
            most = where(size > most, size, most)
            if i != j:
                off = where(size > off, size, off)
    bound = most * broadcast(KIND(2.0**-26 if KIND is float32 else 2.0**-55), N)
    return where(off > bound, broadcast(KIND(1), N), broadcast(KIND(0), N))


def swept(a, v, n, active, VECTORS, KIND):
    """A rotation for each pair, in the lanes that are `active`."""
    N = lanes(KIND)
    zero = broadcast(KIND(0), N)
    for p in rolled(range(n - 1)):
        for q in rolled(range(p + 1, n)):
            pp, qq, pq, qp = (p * n + p) * N, (q * n + q) * N, (p * n + q) * N, (q * n + p) * N
            x, y, product = load(a, pp, N), load(a, qq, N), load(a, pq, N)
            chosen = where(active > zero, abs(product), zero) > zero
            t, c, s = angle(y - x, product, chosen, KIND)
            store(a, pp, x - t * product)
            store(a, qq, y + t * product)
            store(a, pq, where(chosen, zero, product))
            store(a, qp, where(chosen, zero, product))
            for k in rolled(range(n)):
                if (k != p) & (k != q):
                    x, y = load(a, (k * n + p) * N, N), load(a, (k * n + q) * N, N)
                    x, y = c * x - s * y, s * x + c * y
                    store(a, (k * n + p) * N, x)
                    store(a, (p * n + k) * N, x)
                    store(a, (k * n + q) * N, y)
                    store(a, (q * n + k) * N, y)
            if VECTORS:
                rotated(v, p * n, q * n, 1, n, c, s)


@kernel(in_vectors=True)
def of_symmetric(chunk, a, values, vectors, info, count, groups, per, n, step, row, column, *, VECTORS, COMPLEX):
    KIND = widened(a)
    N = lanes(KIND)
    work = bitcast(local(vector(KIND, N), ROOM + N), KIND)
    v = bitcast(local(vector(KIND, N), ROOM + N), KIND)
    room = local(KIND, N)
    one = KIND(1)
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group * N
        many = min(N, count - first)
        outlined(squares_in)(a, step, v, first, many, n * n, 0, 0, PLANES=1)
        for i in rolled(range(n)):
            for j in rolled(range(i + 1)):
                x = load(v, (i * row + j * column) * N, N)
                store(work, (i * n + j) * N, x)
                store(work, (j * n + i) * N, x)
        if VECTORS:
            identity(v, n, KIND)
        active = left_over(work, n, KIND)
        sweep = 0
        while (any_lane(active, room, KIND) > KIND(0)) & (sweep < SWEEPS):
            swept(work, v, n, active, VECTORS, KIND)
            active = left_over(work, n, KIND)
            sweep += 1
        store(room, 0, active)
        for k in rolled(range(many)):
            info[first + k] = int32(room[k])
        for i in rolled(range(n)):
            store(work, i * N, load(work, (i * n + i) * N, N))
        for i in rolled(range(n)):
            for j in rolled(range(i + 1, n)):
                chosen = load(work, j * N, N) < load(work, i * N, N)
                exchanged(work, i, j, 1, 1, chosen)
                if VECTORS:
                    exchanged(v, i * n, j * n, 1, n, chosen)
        outlined(squares_out)(values, work, first, many, n, 0, 0, one, PLANES=1)
        if VECTORS:
            outlined(squares_out)(vectors, v, first, many, n * n, 0, 0, one, PLANES=1)


# -- rectangular matrices ------------------------------------------------------------------------------------------------------------


def made_orthogonal(b, v, m, n, VECTORS, KIND):
    """A rotation for each pair of columns that is not orthogonal yet; 1 in lanes where there was one."""
    N = lanes(KIND)
    zero, one = broadcast(KIND(0), N), broadcast(KIND(1), N)
    bound = broadcast(KIND(2.0**-21 if KIND is float32 else 2.0**-50), N)
    active = zero
    for p in rolled(range(n - 1)):
        for q in rolled(range(p + 1, n)):
            xx, yy, xy = zero, zero, zero
            for k in rolled(range(m)):
                x, y = load(b, (p * m + k) * N, N), load(b, (q * m + k) * N, N)
                xx = xx + x * x
                yy = yy + y * y
                xy = xy + x * y
            chosen = abs(xy) > bound * sqrt(xx) * sqrt(yy)
            active = where(chosen, one, active)
            _, c, s = angle(yy - xx, xy, chosen, KIND)
            rotated(b, p * m, q * m, 1, m, c, s)
            if VECTORS:
                rotated(v, p * n, q * n, 1, n, c, s)
    return active


@kernel(in_vectors=True)
def of_rectangular(
    chunk, a, values, left, right, info, count, groups, per, m, n, step, row, column, left_row, left_column, right_row, right_column,
    *, VECTORS, COMPLEX,
):  # fmt: skip
    KIND = widened(a)
    N = lanes(KIND)
    b = bitcast(local(vector(KIND, N), ROOM + N), KIND)
    v = bitcast(local(vector(KIND, N), ROOM + N), KIND)
    other = bitcast(local(vector(KIND, N), ROOM + N), KIND)
    sizes = bitcast(local(vector(KIND, N), MOST + N), KIND)
    room = local(KIND, N)
    one = KIND(1)
    zeros, ones = broadcast(KIND(0), N), broadcast(KIND(1), N)
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group * N
        many = min(N, count - first)
        outlined(squares_in)(a, step, other, first, many, m * n, 0, 0, PLANES=1)
        arranged(other, b, m, n, row, column, 1, m, 0, False)
        # By the largest element, so that squares neither overflow nor vanish.
        most = zeros
        for e in rolled(range(m * n)):
            size = abs(load(b, e * N, N))
            most = where(size > most, size, most)
        most = where(most > zeros, most, ones)
        for e in rolled(range(m * n)):
            store(b, e * N, load(b, e * N, N) / most)
        if VECTORS:
            identity(v, n, KIND)
        active = ones
        sweep = 0
        while (any_lane(active, room, KIND) > KIND(0)) & (sweep < SWEEPS):
            active = made_orthogonal(b, v, m, n, VECTORS, KIND)
            sweep += 1
        for i in rolled(range(n)):
            total = zeros
            for k in rolled(range(m)):
                x = load(b, (i * m + k) * N, N)
                total = total + x * x
            store(sizes, i * N, sqrt(total))
        for i in rolled(range(n)):
            for j in rolled(range(i + 1, n)):
                chosen = load(sizes, j * N, N) > load(sizes, i * N, N)
                exchanged(sizes, i, j, 1, 1, chosen)
                if VECTORS:
                    exchanged(b, i * m, j * m, 1, m, chosen)
                    exchanged(v, i * n, j * n, 1, n, chosen)
        if VECTORS:
            # Of a value of 0 there is no direction left.
            active = where(load(sizes, (n - 1) * N, N) > zeros, active, ones)
            for i in rolled(range(n)):
                for k in rolled(range(m)):
                    store(b, (i * m + k) * N, load(b, (i * m + k) * N, N) / load(sizes, i * N, N))
            arranged(b, other, m, n, 1, m, left_row, left_column, 0, False)
            outlined(squares_out)(left, other, first, many, m * n, 0, 0, one, PLANES=1)
            arranged(v, other, n, n, 1, n, right_row, right_column, 0, False)
            outlined(squares_out)(right, other, first, many, n * n, 0, 0, one, PLANES=1)
        store(room, 0, active)
        for k in rolled(range(many)):
            info[first + k] = int32(room[k])
        for i in rolled(range(n)):
            store(sizes, i * N, load(sizes, i * N, N) * most)
        outlined(squares_out)(values, sizes, first, many, n, 0, 0, one, PLANES=1)
