"""Many matrices of a few rows, as many at once as a vector has lanes: factors, solutions, determinants, exponentials.

A group of matrices is transposed on the way in, so that a vector holds the same element of each; from there on, the text
of an algorithm for one matrix computes all of them. What depends on values (which row is the pivot) is chosen lane by lane, so
a matrix has the same result among any others. Real and complex dtypes, up to `MOST` rows, of complex factors and solutions up to
`MOST_COMPLEX`, which for real ones `matrices_by_rows.py` has; batches with a matrix that has no
result, or one that is not finite, are left to LAPACK.

Sources: Golub and Van Loan 2013, "Matrix Computations", sections 3.4 (LU with exchanges), 4.2 (Cholesky) and 9.3 (exponential);
Bader, Blanes and Casas 2019, "Computing the Matrix Exponential with an Optimized Taylor Polynomial Approximation", Mathematics 7(12).
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
    unroll,
    vector,
    widened,
)
from ...engines import kept
from ...vocabulary import abs, fma, sqrt, where
from ..squares import squares_in, squares_out
from ..tier import compiles

__all__ = ["MOST", "MOST_EXP", "cholesky", "determinants", "diagonals_of_factors", "eliminates", "exponentials", "lu", "solve",
           "takes"]  # fmt: skip

MOST_EXP = 16                                         # rows of matrices that are raised
MOST = 8                                              # rows
MOST_COMPLEX = 24                                     # rows of complex matrices that are factored by elimination
FROM = 8                                              # matrices from which a call of a kernel pays
WORK = 1 << 14                                        # multiplications of a chunk, about
MOST_ROOM, MOST_COMPLEX_ROOM = 8 * 24, 24 * 32        # elements of a matrix beside its right-hand sides
LU, SOLVE, INVERSE, DET, DIAGONALS = range(5)


def takes(a: Any, most: int = MOST) -> bool:
    """Whether there are kernels for the batch `a` of square matrices."""
    return (
        a.ndim > 2 and 0 < a.shape[-1] <= most and a.shape[-2] == a.shape[-1] and a.dtype.char in "fdFD" and math.prod(a.shape[:-2]) >= FROM
        and type(a) is np.ndarray and compiles()
    )  # fmt: skip


def eliminates(a: Any) -> bool:
    """Whether there are kernels of LU, determinants and solutions for the batch `a` of square matrices."""
    return takes(a, MOST_COMPLEX if a.dtype.kind == "c" else MOST)


def laid_out(a: np.ndarray) -> tuple[np.ndarray, int, int, int]:
    """`a` with one dimension of matrices whose elements lie together, and the strides of matrices, rows and columns in elements."""
    flat = a.reshape(-1, *a.shape[-2:])
    m, n = flat.shape[1:]
    steps = [s // a.itemsize for s in flat.strides]
    if steps[0] >= m * n and steps[1:] in ([n, 1], [1, m]):
        return flat, steps[0], steps[1], steps[2]
    return np.ascontiguousarray(flat), m * n, n, 1


def _by_columns(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Room for matrices whose columns lie one after the other, as LAPACK leaves them."""
    return np.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2)


def run_lanes(kernel: Any, a: np.ndarray, arrays: Any, numbers: Any, cost: int, **constants: Any) -> None:
    real = np.dtype(a.dtype.char.lower())
    from ...engine.machine_code import llvm

    group = llvm.machine().register_bits // (8 * real.itemsize)
    groups = -(-len(a) // group)
    per = max(1, WORK // cost)
    constants["COMPLEX"] = a.dtype.kind == "c"
    kinds = tuple(x.dtype if x.dtype == np.int32 else real for x in (a, *arrays))
    form = _form(kernel, kinds, len(numbers), tuple(constants.items()))
    form(-(-groups // per), groups > 8, a, *arrays, len(a), groups, per, *numbers)


@kept(512)
def _form(kernel: Any, kinds: Any, numbers: int, constants: Any) -> Any:
    return kernel.form((*kinds, *(int,) * (3 + numbers)), dict(constants))


def _eliminated(what: int, a: np.ndarray, b: Any, made: Any, second: Any) -> bool:
    """Run `eliminated`; whether all went well."""
    flat, step, row, column = laid_out(a)
    n = a.shape[-1]
    other, b_step, b_row, b_column = (flat, 0, 0, 0) if b is None else laid_out(b)
    width = n if what == INVERSE else 0 if b is None else b.shape[-1]
    info = np.empty(len(flat), np.int32)
    numbers = (n, width, step, row, column, b_step, b_row, b_column)
    run_lanes(eliminated, flat, (other, made, second, info), numbers, n * n * (n + width + 8), WHAT=what)
    return not (info < 0).any() if what in (LU, DET, DIAGONALS) else not info.any()


def lu(a: np.ndarray) -> Any:
    """Packed factors, exchanges of rows (from 1) and the first zero pivot, from 1, or 0: as LAPACK's getrf; None: not finite."""
    batch, n = a.shape[:-2], a.shape[-1]
    flat, step, row, column = laid_out(a)
    made, pivots, info = _by_columns(a.shape, a.dtype), np.empty((*batch, n), np.int32), np.empty(batch, np.int32)
    run_lanes(eliminated, flat, (flat, made, pivots, info), (n, 0, step, row, column, 0, 0, 0), n * n * (n + 8), WHAT=LU)
    return None if (info < 0).any() else (made, pivots, info)


def determinants(a: np.ndarray) -> Any:
    """The determinants; None if a factor is not finite."""
    made = np.empty(a.shape[:-2], a.dtype)
    return made if _eliminated(DET, a, None, made, made) else None


def diagonals_of_factors(a: np.ndarray) -> Any:
    """Signs of the determinants of real matrices, and the magnitudes that they are products of; None if a factor is not finite."""
    signs, sizes = np.empty(a.shape[:-2], a.dtype), np.empty(a.shape[:-1], a.dtype)
    return (signs, sizes) if _eliminated(DIAGONALS, a, None, signs, sizes) else None


def solve(a: np.ndarray, b: np.ndarray | None) -> Any:
    """``X`` with ``a @ X == b``, the inverses for None; None if a matrix is singular, or there are too many right-hand sides."""
    width = a.shape[-1] if b is None else b.shape[-1]
    if a.shape[-1] * (a.shape[-1] + width) > (MOST_COMPLEX_ROOM if a.dtype.kind == "c" else MOST_ROOM):
        return None
    made = _by_columns(a.shape if b is None else b.shape, a.dtype)
    return made if _eliminated(INVERSE if b is None else SOLVE, a, b, made, made) else None


def cholesky(a: np.ndarray, upper: bool) -> Any:
    """The factors of `a`; None if a matrix is not positive-definite, or a factor not finite."""
    flat, step, row, column = laid_out(a)
    n = a.shape[-1]
    made, info = _by_columns(a.shape, a.dtype), np.empty(len(flat), np.int32)
    run_lanes(rooted, flat, (made, info), (n, step, row, column), n * n * (n + 8), UPPER=bool(upper))
    return None if info.any() else made


def exponentials(a: np.ndarray) -> Any:
    """The exponentials of `a`; None if a matrix is not finite, or so large that it has to be halved too often."""
    flat, step, row, column = laid_out(a)
    n = a.shape[-1]
    made, info = np.empty(a.shape, a.dtype), np.empty(len(flat), np.int32)
    run_lanes(raised, flat, (made, info), (n, step, row, column), 16 * n * n * n)
    return None if info.any() else made


# -- elements ------------------------------------------------------------------------------------------------------------------

# An element is a vector at a place, and of complex matrices another `plane` numbers behind it.


def copied(a, to, at, put_at, plane, COMPLEX):
    N = lanes(widened(a))
    store(to, put_at * N, load(a, at * N, N))
    if COMPLEX:
        store(to, put_at * N + plane, load(a, at * N + plane, N))


def filled(to, at, x, plane, COMPLEX):
    N = lanes(widened(to))
    store(to, at * N, broadcast(x, N))
    if COMPLEX:
        store(to, at * N + plane, broadcast(widened(to)(0), N))


def taken_from(a, at, first, second, plane, COMPLEX, CONJUGATE):
    """The element `at` loses the product of two others, the second of which may be conjugated."""
    N = lanes(widened(a))
    x, y, z = load(a, first * N, N), load(a, second * N, N), load(a, at * N, N)
    if not COMPLEX:
        store(a, at * N, fma(-x, y, z))
    else:
        xi, yi, zi = load(a, first * N + plane, N), load(a, second * N + plane, N), load(a, at * N + plane, N)
        if CONJUGATE:
            yi = -yi
        store(a, at * N, fma(xi, yi, fma(-x, y, z)))
        store(a, at * N + plane, fma(-xi, y, fma(-x, yi, zi)))


def magnitude(a, at, plane, COMPLEX):
    """What pivots are chosen by: of complex numbers the sum of both parts' magnitudes, as LAPACK."""
    N = lanes(widened(a))
    size = abs(load(a, at * N, N))
    if COMPLEX:
        size += abs(load(a, at * N + plane, N))
    return size


def divided(a, at, by, plane, COMPLEX):
    """The element `at` is divided by the one at `by`."""
    N = lanes(widened(a))
    x, p = load(a, at * N, N), load(a, by * N, N)
    if not COMPLEX:
        store(a, at * N, x / p)
    else:
        # Smith's way: by the larger part first, so that nothing overflows.
        xi, q = load(a, at * N + plane, N), load(a, by * N + plane, N)
        flat = abs(p) >= abs(q)
        big, small = where(flat, p, q), where(flat, q, p)
        ratio = small / big
        below = fma(small, ratio, big)
        store(a, at * N, where(flat, fma(xi, ratio, x), fma(x, ratio, xi)) / below)
        store(a, at * N + plane, where(flat, fma(-x, ratio, xi), fma(xi, ratio, -x)) / below)


def arranged(a, to, rows, columns, row, column, put_row, put_column, plane, COMPLEX):
    """The elements of a matrix at other places."""
    for i in rolled(range(rows)):
        for j in rolled(range(columns)):
            copied(a, to, i * row + j * column, i * put_row + j * put_column, plane, COMPLEX)


# -- elimination -----------------------------------------------------------------------------------------------------------------


def exchanged(a, k, n, line, place, plane, COMPLEX):
    """Row `k` changes places with the one of number `place`, in each lane another."""
    N = lanes(widened(a))
    KIND = widened(a)
    for j in rolled(range(line)):
        mine = load(a, (k * line + j) * N, N)
        got = mine
        mine_im, got_im = mine, mine
        if COMPLEX:
            mine_im = load(a, (k * line + j) * N + plane, N)
            got_im = mine_im
        for i in rolled(range(k + 1, n)):
            at = (i * line + j) * N
            here = place == broadcast(KIND(i), N)
            x = load(a, at, N)
            got = where(here, x, got)
            store(a, at, where(here, mine, x))
            if COMPLEX:
                y = load(a, at + plane, N)
                got_im = where(here, y, got_im)
                store(a, at + plane, where(here, mine_im, y))
        store(a, (k * line + j) * N, got)
        if COMPLEX:
            store(a, (k * line + j) * N + plane, got_im)


def reduced(a, n, line, pivots, wrong, plane, COMPLEX):
    """LU of n rows of `line` elements, in place: rows exchanged, from 0, and the first zero pivot, from 1, or -1 where not finite."""
    KIND = widened(a)
    N = lanes(KIND)
    zero, infinite = broadcast(KIND(0), N), broadcast(KIND(math.inf), N)
    store(wrong, 0, zero)
    for k in rolled(range(n)):
        best, place = magnitude(a, k * line + k, plane, COMPLEX), broadcast(KIND(k), N)
        for i in rolled(range(k + 1, n)):
            here = magnitude(a, i * line + k, plane, COMPLEX)
            better = here > best
            best = where(better, here, best)
            place = where(better, broadcast(KIND(i), N), place)
        store(pivots, k * N, place)
        exchanged(a, k, n, line, place, plane, COMPLEX)
        singular = best == zero
        found = load(wrong, 0, N)
        found = where(found == zero, where(singular, broadcast(KIND(k + 1), N), zero), found)
        # A matrix of nan has no pivot either.
        found = where(best < infinite, found, broadcast(KIND(-1), N))
        for i in rolled(range(k + 1, n)):
            at = i * line + k
            divided(a, at, k * line + k, plane, COMPLEX)
            store(a, at * N, where(singular, zero, load(a, at * N, N)))
            if COMPLEX:
                store(a, at * N + plane, where(singular, zero, load(a, at * N + plane, N)))
            found = where(magnitude(a, at, plane, COMPLEX) < infinite, found, broadcast(KIND(-1), N))
            for j in rolled(range(k + 1, line)):
                taken_from(a, i * line + j, at, k * line + j, plane, COMPLEX, False)
        store(wrong, 0, found)


def solved(a, n, line, plane, COMPLEX):
    """The columns behind the first n, for which the upper triangle is undone."""
    for back in rolled(range(n)):
        k = n - 1 - back
        for j in rolled(range(n, line)):
            divided(a, k * line + j, k * line + k, plane, COMPLEX)
            for i in rolled(range(k)):
                taken_from(a, i * line + j, i * line + k, k * line + j, plane, COMPLEX, False)


def multiplied(a, n, line, pivots, to, plane, COMPLEX):
    """The product of the diagonal, with the sign of the exchanges."""
    KIND = widened(a)
    N = lanes(KIND)
    re, im = broadcast(KIND(1), N), broadcast(KIND(0), N)
    for k in rolled(range(n)):
        at = (k * line + k) * N
        x = load(a, at, N)
        odd = load(pivots, k * N, N) == broadcast(KIND(k), N)
        if COMPLEX:
            y = load(a, at + plane, N)
            re, im = fma(re, x, -(im * y)), fma(re, y, im * x)
            im = where(odd, im, -im)
        else:
            re = re * x
        re = where(odd, re, -re)
    store(to, 0, re)
    if COMPLEX:
        store(to, plane, im)


def split_signs(a, n, line, pivots, to, signs, first, many):
    """The magnitudes on the diagonal, and signs of determinants."""
    KIND = widened(a)
    N = lanes(KIND)
    zero, one = broadcast(KIND(0), N), broadcast(KIND(1), N)
    sign = one
    for k in rolled(range(n)):
        x = load(a, (k * line + k) * N, N)
        sign = where(load(pivots, k * N, N) == broadcast(KIND(k), N), sign, -sign)
        sign = where(x == zero, zero, where(x < zero, -sign, sign))
        store(to, k * N, abs(x))
    store(signs, first, sign, many)


@kernel(in_vectors=True)
def eliminated(
    chunk, a, b, out, second, info, count, groups, per, n, width, step, row, column, b_step, b_row, b_column, *, WHAT, COMPLEX,
):  # fmt: skip
    KIND = widened(a)
    N = lanes(KIND)
    PARTS = 2 if COMPLEX else 1
    ROOM = (MOST_COMPLEX_ROOM if COMPLEX else MOST_ROOM) + N
    plane = ROOM * N
    work = bitcast(local(vector(KIND, N), PARTS * ROOM), KIND)
    other = bitcast(local(vector(KIND, N), PARTS * ROOM), KIND)
    pivots, wrong = local(KIND, (MOST_COMPLEX if COMPLEX else MOST) * N), local(KIND, N)
    line = n + width
    one = KIND(1)
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group * N
        many = min(N, count - first)
        outlined(squares_in)(a, PARTS * step, other, first, many, PARTS * n * n, 0, plane, PLANES=PARTS)
        arranged(other, work, n, n, row, column, line, 1, plane, COMPLEX)
        if WHAT == SOLVE:
            outlined(squares_in)(b, PARTS * b_step, other, first, many, PARTS * n * width, 0, plane, PLANES=PARTS)
            arranged(other, work + n * N, n, width, b_row, b_column, line, 1, plane, COMPLEX)
        if WHAT == INVERSE:
            for i in rolled(range(n)):
                for j in rolled(range(n)):
                    filled(work, i * line + n + j, KIND(1) if i == j else KIND(0), plane, COMPLEX)
        outlined(reduced)(work, n, line, pivots, wrong, plane, COMPLEX)
        for k in rolled(range(many)):
            info[first + k] = int32(wrong[k])
        if WHAT == LU:
            arranged(work, other, n, n, line, 1, 1, n, plane, COMPLEX)
            outlined(squares_out)(out, other, first, many, PARTS * n * n, 0, plane, one, PLANES=PARTS)
            for k in rolled(range(many)):
                for i in rolled(range(n)):
                    second[(first + k) * n + i] = int32(pivots[i * N + k]) + int32(1)
        elif WHAT == DIAGONALS:
            split_signs(work, n, line, pivots, other, out, first, many)
            outlined(squares_out)(second, other, first, many, n, 0, plane, one, PLANES=1)
        elif WHAT == DET:
            multiplied(work, n, line, pivots, other, plane, COMPLEX)
            outlined(squares_out)(out, other, first, many, PARTS, 0, plane, one, PLANES=PARTS)
        else:
            outlined(solved)(work, n, line, plane, COMPLEX)
            arranged(work + n * N, other, n, width, line, 1, 1, n, plane, COMPLEX)
            outlined(squares_out)(out, other, first, many, PARTS * n * width, 0, plane, one, PLANES=PARTS)


# -- Cholesky ---------------------------------------------------------------------------------------------------------------------


def rooted_lanes(a, to, n, row, column, put_row, put_column, wrong, plane, COMPLEX):
    """The lower factor of the matrix whose lower triangle is in `a`, in place, and arranged in `to`."""
    KIND = widened(a)
    N = lanes(KIND)
    zero = broadcast(KIND(0), N)
    found = zero
    for j in rolled(range(n)):
        for i in rolled(range(j, n)):
            at = i * row + j * column
            for k in rolled(range(j)):
                taken_from(a, at, i * row + k * column, j * row + k * column, plane, COMPLEX, True)
        square = load(a, j * (row + column) * N, N)
        found = where(square > zero, found, where(found == zero, broadcast(KIND(j + 1), N), found))
        root = sqrt(square)
        factor = broadcast(KIND(1), N) / root
        found = where(root < broadcast(KIND(math.inf), N), found, broadcast(KIND(j + 1), N))
        for i in rolled(range(n)):
            at, put_at = i * row + j * column, i * put_row + j * put_column
            if i < j:
                filled(to, put_at, KIND(0), plane, COMPLEX)
            else:
                store(a, at * N, load(a, at * N, N) * factor)
                if COMPLEX:
                    store(a, at * N + plane, load(a, at * N + plane, N) * factor)
                if i == j:
                    store(a, at * N, root)
                    if COMPLEX:
                        store(a, at * N + plane, zero)
                copied(a, to, at, put_at, plane, COMPLEX)
    store(wrong, 0, found)


@kernel(in_vectors=True)
def rooted(chunk, a, out, info, count, groups, per, n, step, row, column, *, UPPER, COMPLEX):
    KIND = widened(a)
    N = lanes(KIND)
    PARTS = 2 if COMPLEX else 1
    plane = (MOST * MOST + N) * N
    work = bitcast(local(vector(KIND, N), PARTS * (MOST * MOST + N)), KIND)
    other = bitcast(local(vector(KIND, N), PARTS * (MOST * MOST + N)), KIND)
    wrong = local(KIND, N)
    one = KIND(1)
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group * N
        many = min(N, count - first)
        outlined(squares_in)(a, PARTS * step, work, first, many, PARTS * n * n, 0, plane, PLANES=PARTS)
        # The upper factor is the transpose of that of the transpose, of complex matrices too.
        if UPPER:
            outlined(rooted_lanes)(work, other, n, column, row, n, 1, wrong, plane, COMPLEX)
        else:
            outlined(rooted_lanes)(work, other, n, row, column, 1, n, wrong, plane, COMPLEX)
        for k in rolled(range(many)):
            info[first + k] = int32(wrong[k])
        outlined(squares_out)(out, other, first, many, PARTS * n * n, 0, plane, one, PLANES=PARTS)


# -- exponentials --------------------------------------------------------------------------------------------------------------------

HALVINGS = 40                                         # larger matrices overflow, or are left to scipy
COEFFICIENTS = [1 / math.factorial(k) for k in range(20)]


def product(a, b, to, n, chosen, plane, COMPLEX):
    """``to = a @ b`` in the lanes that are `chosen`, `b` in others."""
    KIND = widened(a)
    N = lanes(KIND)
    for i in rolled(range(n)):
        for j in rolled(range(n)):
            re, im = broadcast(KIND(0), N), broadcast(KIND(0), N)
            for k in rolled(range(n)):
                p, q = (i * n + k) * N, (k * n + j) * N
                x, y = load(a, p, N), load(b, q, N)
                re = fma(x, y, re)
                if COMPLEX:
                    xi, yi = load(a, p + plane, N), load(b, q + plane, N)
                    re = fma(-xi, yi, re)
                    im = fma(x, yi, fma(xi, y, im))
            at = (i * n + j) * N
            store(to, at, where(chosen, re, load(b, at, N)))
            if COMPLEX:
                store(to, at + plane, where(chosen, im, load(b, at + plane, N)))


def term_added(a, y, to, n, constant, factor, plane, COMPLEX):
    """``to = y + constant + factor * a``."""
    KIND = widened(a)
    N = lanes(KIND)
    times, one = broadcast(factor, N), broadcast(constant, N)
    for e in rolled(range(n * n)):
        made = fma(times, load(a, e * N, N), load(y, e * N, N))
        if e % (n + 1) == 0:
            made = made + one
        store(to, e * N, made)
        if COMPLEX:
            store(to, e * N + plane, fma(times, load(a, e * N + plane, N), load(y, e * N + plane, N)))


def powers(a, x, y, square, n, wrong, plane, COMPLEX):
    """The exponential of `a`, by the series of a matrix that was halved until that converges; made in `x`."""
    KIND = widened(a)
    N = lanes(KIND)
    # Sums of columns up to which the terms beyond the 19th are less than rounding: 3**20 / 20! and 1 / 20!.
    LIMIT = 3 if KIND is float32 else 1
    one, half, zero, limit = broadcast(KIND(1), N), broadcast(KIND(0.5), N), broadcast(KIND(0), N), broadcast(KIND(LIMIT), N)
    size = zero
    for j in rolled(range(n)):
        total = zero
        for i in rolled(range(n)):
            total += magnitude(a, i * n + j, plane, COMPLEX)
        size = where(total > size, total, where(total == total, size, total))
    scale, times, most = one, zero, size
    for _k in rolled(range(HALVINGS)):
        more = most > limit
        most = where(more, most * half, most)
        scale = where(more, scale * half, scale)
        times = where(more, times + one, times)
    store(wrong, 0, where(most <= limit, zero, one))
    for e in rolled(range(n * n)):
        store(a, e * N, load(a, e * N, N) * scale)
        filled(y, e, KIND(0), plane, COMPLEX)
        if COMPLEX:
            store(a, e * N + plane, load(a, e * N + plane, N) * scale)
    always = one == one
    outlined(product)(a, a, square, n, always, plane, COMPLEX)
    outlined(term_added)(a, y, x, n, KIND(COEFFICIENTS[18]), KIND(COEFFICIENTS[19]), plane, COMPLEX)
    for K in unroll(range(16, -1, -2)):
        outlined(product)(square, x, y, n, always, plane, COMPLEX)
        outlined(term_added)(a, y, x, n, KIND(COEFFICIENTS[K]), KIND(COEFFICIENTS[K + 1]), plane, COMPLEX)
    counts = local(KIND, N)
    store(counts, 0, times)
    longest = KIND(0)
    for k in rolled(range(N)):
        longest = max(longest, counts[k])
    done = KIND(0)
    while done < longest:
        # Lanes that are done keep what they have.
        outlined(product)(x, x, y, n, times > broadcast(done, N), plane, COMPLEX)
        for e in rolled(range(n * n)):
            copied(y, x, e, e, plane, COMPLEX)
        done = done + KIND(1)


@kernel(in_vectors=True)
def raised(chunk, a, out, info, count, groups, per, n, step, row, column, *, COMPLEX):
    KIND = widened(a)
    N = lanes(KIND)
    PARTS = 2 if COMPLEX else 1
    plane = (MOST_EXP * MOST_EXP + N) * N
    work = bitcast(local(vector(KIND, N), PARTS * (MOST_EXP * MOST_EXP + N)), KIND)
    x = bitcast(local(vector(KIND, N), PARTS * (MOST_EXP * MOST_EXP + N)), KIND)
    y = bitcast(local(vector(KIND, N), PARTS * (MOST_EXP * MOST_EXP + N)), KIND)
    square = bitcast(local(vector(KIND, N), PARTS * (MOST_EXP * MOST_EXP + N)), KIND)
    wrong = local(KIND, N)
    one = KIND(1)
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group * N
        many = min(N, count - first)
        outlined(squares_in)(a, PARTS * step, x, first, many, PARTS * n * n, 0, plane, PLANES=PARTS)
        arranged(x, work, n, n, row, column, n, 1, plane, COMPLEX)
        outlined(powers)(work, x, y, square, n, wrong, plane, COMPLEX)
        for k in rolled(range(many)):
            info[first + k] = int32(wrong[k])
        outlined(squares_out)(out, x, first, many, PARTS * n * n, 0, plane, one, PLANES=PARTS)
