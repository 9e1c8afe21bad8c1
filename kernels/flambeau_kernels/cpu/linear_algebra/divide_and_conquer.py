"""Eigenvalues and eigenvectors of symmetric tridiagonal matrices, divided into halves down to single numbers.

A matrix is two halves and a correction of rank one, ``rho v v'``. In the basis of the halves' eigenvectors it is diagonal but for such a
correction; its eigenvalues are the zeros of a sum of fractions, one between each pair of neighbouring poles, and a lane of a vector each.
Poles that the correction hardly moves, or that are equal but for rounding, drop out first. Eigenvectors follow from corrections for which
the zeros found are exact, so they are orthogonal however close the zeros are. Their products with the halves' are most of the work.

Small parts are a chunk each; above them a step (zeros, corrections, vectors, products) is cut over all parts of a level. Cuts depend on the
size alone, so results do not depend on the threads. Real dtypes.

Source: Cuppen 1981, "A divide and conquer method for the symmetric tridiagonal eigenproblem", Numer. Math. 36; Gu and Eisenstat 1995,
"A divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem", SIAM J. Matrix Anal. Appl. 16(1); Li 1993, "Solving secular
equations stably and efficiently", LAPACK working note 89, for the iteration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine.language import (
    broadcast,
    float32,
    int64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    multiply_add,
    outlined,
    rolled,
    run,
    store,
    unroll,
    vector,
    widened,
)
from ...engines import kept
from ...vocabulary import abs, copysign, sqrt, where

__all__ = ["eigh", "svd"]

LEAF = 64                                             # rows of a part that is one chunk
ROOTS = 64                                            # zeros, corrections or vectors of a chunk
ROWS = 32                                             # rows of a chunk of products
STEPS = 60                                            # of an iteration; some five are needed

# Lines of numbers, one after the other: values, the divided matrix, and what a part is worked on with.
VALUES, DIAGONAL, BESIDE, POLES, WEIGHTS, SQUARES, NEAR, AWAY, EXACT, GONE, COUNTED = range(11)
LINES = 11
# Lines of marks: the order of values, where the vector of a pole lies, vectors taken, which half a vector belongs to, counts of parts.
ORDER, PLACE, TAKEN, SIDE, COUNTS = range(5)
MARKS = 8                                             # the counts take four


def eigh(d: np.ndarray, e: np.ndarray, vectors: bool) -> Any:
    """Ascending eigenvalues of the matrix with `d` on and `e` beside the diagonal, of n >= 2 rows, and eigenvectors by columns."""
    n, dtype = len(d), d.dtype
    made = _divided(d, e, vectors, False)
    if made is None:
        return (np.zeros(n, dtype), np.eye(n, dtype=dtype)) if vectors else np.zeros(n, dtype)
    values, order, matrices = made
    return (values, matrices[0, :, :n].take(order, 0).T) if vectors else values


def svd(d: np.ndarray, e: np.ndarray, vectors: bool) -> Any:
    """Descending singular values of the matrix with `d` on and `e` above the diagonal, of n rows, and left and right vectors by rows."""
    n, dtype = len(d), d.dtype
    # Differences of squares, and their squares, leave the range of float32.
    made = _divided(d.astype(np.float64, copy=False), e.astype(np.float64, copy=False), vectors, True)
    if made is None:
        return (np.zeros(n, dtype), np.eye(n, dtype=dtype), np.eye(n, dtype=dtype)) if vectors else np.zeros(n, dtype)
    values, order, matrices = made
    values, order = values[::-1].astype(dtype), order[::-1]
    return (values, *(m[:, :n].take(order, 0).astype(dtype, copy=False) for m in (matrices[3], matrices[0]))) if vectors else values


def _divided(d: np.ndarray, e: np.ndarray, vectors: bool, square: bool) -> Any:
    """Ascending values, their places, and the matrices among whose rows are the vectors; None for zeros alone."""
    n, dtype = len(d), d.dtype
    most = max(float(np.abs(d).max()), float(np.abs(e).max(initial=0.0)))
    if not most:
        return None
    power = math.frexp(most)[1]
    # Singular values have one column more, without a number.
    plan = _planned(n + square, dtype, vectors, square)
    space, marks = np.zeros(plan.numbers, dtype), np.empty(plan.marks, np.int64)
    lines = space[plan.lines :].reshape(LINES, plan.long)
    np.ldexp(d, -power, out=lines[DIAGONAL, :n])
    np.ldexp(e, -power, out=lines[BESIDE, : n - 1])
    lines[COUNTED, : plan.lanes] = plan.counted
    plan.run(space, marks)
    order = marks[:n]
    matrices = space[: plan.lines].reshape(-1, n + square, plan.step) if vectors else None
    return np.ldexp(lines[VALUES].take(order), power), order, matrices


class _Plan:
    """How matrices of one size are divided, and where in memory things lie."""

    def __init__(self, n: int, dtype: np.dtype, vectors: bool, square: bool) -> None:
        from .reflectors import _lanes

        N = _lanes(dtype)
        parts = 1
        while n > parts * LEAF:
            parts *= 2
        self.lanes, self.counted = N, np.arange(N)
        self.step = -(-n // N) * N + 3 * N
        self.long = n + 4 * N * (parts + 1)
        matrices = 1 if not vectors else 6 if square else 3
        pairs = 0 if vectors else 4 * self.long
        self.lines = matrices * n * self.step + pairs
        self.numbers, self.marks = self.lines + LINES * self.long, MARKS * self.long
        self._n, self._parts = n, parts
        self._forms, self._small, self._steps = _forms(dtype, vectors, square)

    def run(self, space: np.ndarray, marks: np.ndarray) -> None:
        n, parts, numbers = self._n, self._parts, (self._n, self.step, self.long)
        prepare, *others, multiply = self._forms
        self._small(parts, True, space, marks, self._steps, *numbers, parts)
        while parts > 1:
            parts //= 2
            largest = -(-n // parts)
            cuts, rows = -(-largest // ROOTS), -(-largest // ROWS)
            where = *numbers, 0, n, parts, 0, 4 * self.lanes
            prepare(parts, True, space, marks, *where, 1)
            for one in others:
                one(parts * cuts, True, space, marks, *where, cuts)
            multiply(parts * rows, True, space, marks, *where, rows)


@kept(256)
def _planned(n: int, dtype: np.dtype, vectors: bool, square: bool) -> _Plan:
    return _Plan(n, dtype, vectors, square)


@kept()
def _forms(dtype: np.dtype, vectors: bool, square: bool) -> Any:
    integer, constants = np.dtype(np.int64), {"VECTORS": vectors, "SQUARE": square}
    types = (dtype, integer) + (int,) * 9
    stages = [(stage_of_parts, constants | {"STAGE": stage}) for stage in (solved, weighed, turned)]
    steps = [(prepared_parts, constants), *stages, (multiplied_parts, constants)]
    small = leaf_parts.form((dtype, integer, integer) + (int,) * 4, constants)
    return [k.form(types, given) for k, given in steps], small, np.array([k.address(types, given) for k, given in steps], np.int64)


# -- one part ----------------------------------------------------------------------------------------------------------------
#
# The part of the rows `low` to `high`, halved at `middle`. Its lines begin at ``low + shift``, so that vectors may reach beyond their end.


def lines_of(space, n, step, long, VECTORS, SQUARE):
    return space + ((6 if SQUARE else 3) * n * step if VECTORS else n * step + 4 * long)


def distance(pole, origin, tau, SQUARE):
    """From ``origin + tau`` to a pole, or from its square to the square of the pole."""
    made = (pole - origin) - tau
    if SQUARE:
        made = made * ((pole + origin) + tau)
    return made


def turned_pair(a, i, j, width, c, s, KIND):
    """Two rows of vectors turned."""
    N = lanes(KIND)
    cosine, sine = broadcast(c, N), broadcast(s, N)
    for k in rolled(range(0, width, N)):
        x, y = load(a, i + k, N, width - k), load(a, j + k, N, width - k)
        store(a, i + k, cosine * x + sine * y, width - k)
        store(a, j + k, cosine * y - sine * x, width - k)


def moved(source, target, width, KIND):
    N = lanes(KIND)
    for k in rolled(range(0, width, N)):
        store(target, k, load(source, k, N, width - k), width - k)


def prepared(space, marks, n, step, long, low, middle, high, shift, VECTORS, SQUARE, KIND):
    """Poles and corrections in ascending order, without those that drop out, and the halves' vectors in the order of their halves."""
    lines = lines_of(space, n, step, long, VECTORS, SQUARE)
    size, half, at = high - low, middle - low, low + shift
    width = size if VECTORS else 2
    row = step if VECTORS else 2
    a = space + low * step + low if VECTORS else space + n * step + 2 * low
    b = a + n * step if VECTORS else a + 2 * long
    values, poles, weights = lines + VALUES * long + low, lines + POLES * long + at, lines + WEIGHTS * long + at
    squares, gone, z = lines + SQUARES * long + at, lines + GONE * long + at, lines + EXACT * long + at
    order, place, taken = marks + ORDER * long + low, marks + PLACE * long + at, marks + TAKEN * long + at
    side, counts = marks + SIDE * long + at, marks + COUNTS * long + 4 * low
    # Of singular values an empty row is left at the end, for the vector that belongs to none.
    many = size - 1 if SQUARE else size
    u = a + 3 * n * step
    v = u + n * step
    alpha, beside = lines[DIAGONAL * long + middle - 1], lines[BESIDE * long + middle - 1]
    rho, limit, length, cosine, sine = corrected(a, row, alpha, beside, values, z, side, size, half, VECTORS, SQUARE, KIND)
    count = 0
    if SQUARE:
        EPS = epsilon(KIND)
        outlined(turned_pair)(a, (half - 1) * row, (size - 1) * row, width, cosine, sine, KIND)
        limit = max(limit, KIND(EPS / 16))
        z[half - 1] = max(length, limit)
        side[half - 1] = 1
        taken[0] = half - 1
        count = 1
    count, left = deflated(a, u, row, width, values, order, z, side, taken, many, half, rho, limit, count, VECTORS, SQUARE, KIND)
    ones, both = poles_written(values, z, side, taken, poles, weights, squares, rho, count, SQUARE, KIND)
    sorted_by_half(a, b, u, v, row, width, many, values, side, taken, place, gone, count, left, ones, both, VECTORS, SQUARE, KIND)
    counts[0] = count
    counts[1] = ones
    counts[2] = both


def epsilon(KIND):
    return 2.0**-24 if KIND is float32 else 2.0**-53


def corrected(a, row, alpha, beside, values, z, side, size, half, VECTORS, SQUARE, KIND):
    """Writes the correction of rank one in the basis of the halves' vectors, and which half each of these belongs to.

    Returns: its factor, and what is as good as 0 beside it; for singular values also the length of the part that belongs to no value, and
    how the two vectors of that are turned.
    """
    EPS = epsilon(KIND)
    many = size - 1 if SQUARE else size
    most, largest, length = KIND(0), KIND(0), KIND(0)
    cosine, sine = KIND(1), KIND(0)
    if SQUARE:
        # The row between the halves, in the basis of their vectors. Of the two that belong to no value one takes part.
        x = alpha * (a[(half - 1) * row + half - 1] if VECTORS else a[(half - 1) * row + 1])
        y = beside * (a[(size - 1) * row + half] if VECTORS else a[(size - 1) * row])
        # Squares of small numbers vanish.
        longest = max(abs(x), abs(y))
        if longest > KIND(0):
            cosine, sine = x / longest, y / longest
            length = sqrt(cosine * cosine + sine * sine)
            cosine, sine, length = cosine / length, sine / length, length * longest
        rho, share, other = KIND(1), alpha, beside
        largest = max(abs(alpha), abs(beside))
        values[half - 1] = KIND(0)
    else:
        rho = KIND(2) * abs(beside)
        # Of both halves together the correction has length 1.
        share = KIND(math.sqrt(0.5))
        other = where(beside < KIND(0), -share, share)
    for i in rolled(range(many)):
        if VECTORS:
            z[i] = share * a[i * row + half - 1] if i < half else other * a[i * row + half]
        else:
            z[i] = share * a[i * 2 + 1] if i < half else other * a[i * 2]
        side[i] = 0 if i < half else 2
        most = max(most, abs(z[i]))
        largest = max(largest, abs(values[i]))
    if not VECTORS:
        for i in rolled(range(size)):
            if i < half:
                a[i * 2 + 1] = KIND(0)
            else:
                a[i * 2] = KIND(0)
    return rho, KIND(8 * EPS) * (largest if SQUARE else max(most, largest)), length, cosine, sine


def deflated(a, u, row, width, values, order, z, side, taken, many, half, rho, limit, count, VECTORS, SQUARE, KIND):
    """Writes which poles stay, from the front of `taken`, and which drop out, from its end. Returns how many of either there are."""
    left, waiting, first, second = 0, -1, 0, half
    in_first, in_all = half - 1 if SQUARE else half, many
    for _ in rolled(range(many - count)):
        # The next pole of either half.
        i = order[min(first, max(in_first - 1, 0))]
        j = order[min(second, max(in_all - 1, half))] + half
        from_first = (second >= in_all) | ((first < in_first) & (values[i] <= values[j]))
        now = i if from_first else j
        first += 1 if from_first else 0
        second += 0 if from_first else 1
        if rho * abs(z[now]) <= limit:
            left += 1
            taken[many - left] = now
        elif SQUARE and values[now] <= limit:
            # A pole in the place of the first one is turned out of the row between the halves.
            length = sqrt(z[half - 1] * z[half - 1] + z[now] * z[now])
            outlined(turned_pair)(a, (half - 1) * row, now * row, width, z[half - 1] / length, z[now] / length, KIND)
            z[half - 1] = length
            values[now] = KIND(0)
            left += 1
            taken[many - left] = now
        else:
            if waiting >= 0:
                length = sqrt(z[waiting] * z[waiting] + z[now] * z[now])
                c, s = z[now] / length, -(z[waiting] / length)
                apart_by = values[now] - values[waiting]
                if abs(apart_by * c * s) <= limit:
                    # Two poles in one place: one of them is turned out of the correction.
                    z[now] = length
                    if side[now] != side[waiting]:
                        side[now] = 1
                    outlined(turned_pair)(a, waiting * row, now * row, width, c, s, KIND)
                    if SQUARE and VECTORS:
                        outlined(turned_pair)(u, waiting * row, now * row, many, c, s, KIND)
                    x, y = values[waiting], values[now]
                    values[waiting] = x * c * c + y * s * s
                    values[now] = x * s * s + y * c * c
                    left += 1
                    taken[many - left] = waiting
                else:
                    taken[count] = waiting
                    count += 1
            waiting = now
    if waiting >= 0:
        taken[count] = waiting
        count += 1
    return count, left


def poles_written(values, z, side, taken, poles, weights, squares, rho, count, SQUARE, KIND):
    """Writes the poles that stay and their corrections. Returns how many vectors are of the first half alone, and of both."""
    N = lanes(KIND)
    ones, both = 0, 0
    total = KIND(0)
    for k in rolled(range(count)):
        i = taken[k]
        poles[k] = values[i]
        weights[k] = z[i]
        squares[k] = rho * z[i] * z[i]
        total += squares[k]
        ones += 1 if side[i] == 0 else 0
        both += 1 if side[i] == 1 else 0
    # How far beyond the last pole a zero can be, which may be less than the last digit of the pole.
    end = poles[max(count - 1, 0)]
    room = total
    if SQUARE:
        room = total / (end + sqrt(end * end + total))
    squares[count] = room
    end = end + room + room
    for k in rolled(range(count, count + 2 * N)):
        poles[k] = end
    return ones, both


def sorted_by_half(a, b, u, v, row, width, many, values, side, taken, place, gone, count, left, ones, both, VECTORS, SQUARE, KIND):
    """Moves vectors of the first half before those of both and of the second, and behind these what dropped out."""
    one, two, three = 0, ones, ones + both
    for k in rolled(range(count)):
        i = taken[k]
        to = one if side[i] == 0 else two if side[i] == 1 else three
        one += 1 if side[i] == 0 else 0
        two += 1 if side[i] == 1 else 0
        three += 1 if side[i] == 2 else 0
        place[k] = to
        outlined(moved)(a + i * row, b + to * row, width, KIND)
        if SQUARE and VECTORS:
            outlined(moved)(u + i * row, v + to * row, many, KIND)
    for k in rolled(range(left)):
        i = taken[many - 1 - k]
        gone[k] = values[i]
        outlined(moved)(a + i * row, b + (count + k) * row, width, KIND)
        if SQUARE and VECTORS:
            outlined(moved)(u + i * row, v + (count + k) * row, many, KIND)


def fractions_added(poles, squares, start, stop, count, index, origin, tau, SQUARE, KIND):
    """The sums of the fractions with poles up to `index` and behind it, and their slopes; it is from `start` to `stop` in all lanes."""
    N = lanes(KIND)
    zero, one = broadcast(KIND(0), N), broadcast(KIND(1), N)
    psi, phi, psi_slope, phi_slope = zero, zero, zero, zero
    for j in rolled(range(start)):
        r = one / distance(broadcast(poles[j], N), origin, tau, SQUARE)
        t = broadcast(squares[j], N) * r
        psi = psi + t
        psi_slope = multiply_add(t, r, psi_slope)
    for j in rolled(range(start, stop)):
        r = one / distance(broadcast(poles[j], N), origin, tau, SQUARE)
        t = broadcast(squares[j], N) * r
        below = broadcast(KIND(j), N) <= index
        psi = psi + where(below, t, zero)
        phi = phi + where(below, zero, t)
        psi_slope = psi_slope + where(below, t * r, zero)
        phi_slope = phi_slope + where(below, zero, t * r)
    for j in rolled(range(stop, count)):
        r = one / distance(broadcast(poles[j], N), origin, tau, SQUARE)
        t = broadcast(squares[j], N) * r
        phi = phi + t
        phi_slope = multiply_add(t, r, phi_slope)
    return psi, phi, psi_slope, phi_slope


def better_zero(f, psi_slope, phi_slope, origin, tau, before, after, left, right, low_end, high_end, SQUARE, KIND):
    """The next guess at a zero, by its distance from `origin`, between the ends."""
    N = lanes(KIND)
    zero, two = broadcast(KIND(0), N), broadcast(KIND(2), N)
    # The zero of the sum of two fractions with the poles beside it that has the value and slopes found.
    p, q = before - tau, after - tau
    sigma = origin + tau
    if SQUARE:
        p, q = p * (left + sigma), q * (right + sigma)
    c = f - p * psi_slope - q * phi_slope
    pq = p * q
    along = (p + q) * f - pq * (psi_slope + phi_slope)
    constant = pq * f
    inside = along * along - broadcast(KIND(4), N) * constant * c
    root = sqrt(where(inside > zero, inside, zero))
    by_less = along <= zero
    change = where(by_less, along - root, two * constant) / where(by_less, two * c, along + root)
    if SQUARE:
        squared = sigma * sigma + change
        change = change / (sigma + sqrt(where(squared > zero, squared, zero)))
    new = tau + change
    # Where that leads outside, between the ends by their exponents: a zero may be close to its pole.
    between = sqrt(abs(low_end)) * sqrt(abs(high_end))
    between = where(low_end < zero, -between, between)
    between = where(between == zero, (low_end + high_end) * broadcast(KIND(2.0**-10), N), between)
    return where(new > low_end, where(new < high_end, new, between), between)


def solved(space, marks, n, step, long, low, high, shift, start, stop, VECTORS, SQUARE, KIND):
    """Zeros `start` to `stop`: each by its distance from the nearer pole beside it, and so from all poles."""
    N = lanes(KIND)
    lines = lines_of(space, n, step, long, VECTORS, SQUARE)
    at = low + shift
    poles, squares = lines + POLES * long + at, lines + SQUARES * long + at
    near, away, counted = lines + NEAR * long + at, lines + AWAY * long + at, lines + COUNTED * long
    place = marks + PLACE * long + at
    count = marks[COUNTS * long + 4 * low]
    apart_from = (space + 2 * n * step if VECTORS else space) + low * step + low
    zero, one = broadcast(KIND(0), N), broadcast(KIND(1), N)
    EPS = epsilon(KIND)
    for i in rolled(range(start, min(stop, count), N)):
        index = broadcast(KIND(i), N) + load(counted, 0, N)
        left, right = load(poles, i, N), load(poles, i + 1, N)
        gap = right - left
        middle = gap * broadcast(KIND(0.5), N)
        inner = index < broadcast(KIND(count - 1), N)
        middle = where(inner, middle, broadcast(squares[count], N))
        gap = where(inner, gap, middle + middle)
        origin, tau = left, middle
        low_end, high_end = zero, middle
        before, after = zero, gap
        active = where(index < broadcast(KIND(count), N), one, zero)
        steps = 0
        edge = min(i + N, count)
        while (lane_sum(active) > KIND(0)) & (steps < STEPS):
            psi, phi, psi_slope, phi_slope = fractions_added(poles, squares, i, edge, count, index, origin, tau, SQUARE, KIND)
            f = one + psi + phi
            if steps == 0:
                # The sum half-way says which pole is the nearer one. Of the last zero it is the one before.
                by_left = where(inner, f, one) >= zero
                origin = where(by_left, left, right)
                tau = where(by_left, middle, -middle)
                low_end = where(by_left, zero, -middle)
                high_end = where(by_left, middle * broadcast(KIND(1 + 16 * EPS), N), zero)
                before = where(by_left, zero, -gap)
                after = where(by_left, gap, zero)
            low_end = where(f < zero, tau, low_end)
            high_end = where(f > zero, tau, high_end)
            new = better_zero(f, psi_slope, phi_slope, origin, tau, before, after, left, right, low_end, high_end, SQUARE, KIND)
            done = abs(f) <= (one + phi - psi) * broadcast(KIND(2 * EPS), N)
            step_left = where(done, zero, abs(new - tau) - abs(new) * broadcast(KIND(2 * EPS), N))
            tau = where(active > zero, where(done, tau, new), tau)
            active = where(step_left > zero, active, zero)
            steps += 1
        room = count - i
        store(near, i, origin, room)
        store(away, i, tau, room)
        for j in rolled(range(count)):
            store(apart_from + place[j] * step, i, distance(broadcast(poles[j], N), origin, tau, SQUARE), room)


def weighed(space, marks, n, step, long, low, high, shift, start, stop, VECTORS, SQUARE, KIND):
    """Corrections `start` to `stop` of the matrix whose eigenvalues the zeros are exactly."""
    N = lanes(KIND)
    lines = lines_of(space, n, step, long, VECTORS, SQUARE)
    at = low + shift
    poles, weights = lines + POLES * long + at, lines + WEIGHTS * long + at
    exact, counted = lines + EXACT * long + at, lines + COUNTED * long
    place = marks + PLACE * long + at
    count = marks[COUNTS * long + 4 * low]
    apart_from = (space + 2 * n * step if VECTORS else space) + low * step + low
    zero, one = broadcast(KIND(0), N), broadcast(KIND(1), N)
    room = local(KIND, N)
    for j in rolled(range(start, min(stop, count))):
        line = apart_from + place[j] * step
        product = one
        here, pole, last = broadcast(KIND(j), N), broadcast(poles[j], N), broadcast(KIND(count - 1), N)
        for i in rolled(range(0, count - 1, N)):
            index = broadcast(KIND(i), N) + load(counted, 0, N)
            other = where(index < here, load(poles, i, N), load(poles, i + 1, N))
            inner = index < last
            product = product * where(inner, load(line, i, N) / where(inner, distance(other, pole, zero, SQUARE), one), one)
        store(room, 0, product)
        total = line[count - 1]
        for k in rolled(range(N)):
            total = total * room[k]
        exact[j] = copysign(sqrt(abs(total)), weights[j])


def turned(space, marks, n, step, long, low, high, shift, start, stop, VECTORS, SQUARE, KIND):
    """Eigenvectors `start` to `stop` by the halves' vectors; without `VECTORS` their first and last numbers."""
    N = lanes(KIND)
    lines = lines_of(space, n, step, long, VECTORS, SQUARE)
    at = low + shift
    exact, poles = lines + EXACT * long + at, lines + POLES * long + at
    place = marks + PLACE * long + at
    count = marks[COUNTS * long + 4 * low]
    apart_from = (space + 2 * n * step if VECTORS else space) + low * step + low
    of_left = apart_from + 3 * n * step
    a = space + n * step + 2 * low
    b = a + 2 * long
    zero = broadcast(KIND(0), N)
    first, last = local(KIND, N), local(KIND, N)
    for i in rolled(range(start, min(stop, count), N)):
        room = count - i
        total, head, tail, other = zero, zero, zero, zero
        for j in rolled(range(count)):
            line = apart_from + place[j] * step
            x = broadcast(exact[j], N) / load(line, i, N)
            total = multiply_add(x, x, total)
            if VECTORS:
                store(line, i, x, room)
                if SQUARE:
                    y = broadcast(poles[j], N) * x
                    if j == 0:
                        y = broadcast(KIND(-1), N)
                    other = multiply_add(y, y, other)
                    store(of_left + place[j] * step, i, y, room)
            else:
                head = multiply_add(x, broadcast(b[2 * place[j]], N), head)
                tail = multiply_add(x, broadcast(b[2 * place[j] + 1], N), tail)
        length, other = broadcast(KIND(1), N) / sqrt(total), broadcast(KIND(1), N) / sqrt(other)
        if VECTORS:
            for j in rolled(range(count)):
                line = apart_from + j * step
                store(line, i, load(line, i, N) * length, room)
                if SQUARE:
                    line = of_left + j * step
                    store(line, i, load(line, i, N) * other, room)
        else:
            store(first, 0, head * length)
            store(last, 0, tail * length)
            for k in rolled(range(min(N, room))):
                a[2 * (i + k)] = first[k]
                a[2 * (i + k) + 1] = last[k]


def tile(s, b, a, step, count, rows, columns, ROWS_AT_ONCE, VECTORS_AT_ONCE, KIND):
    """Some rows and columns of a product: ``a[i, k] = sum of s[j, i] b[j, k]``."""
    N = lanes(KIND)
    total = local(vector(KIND, N), ROWS_AT_ONCE * VECTORS_AT_ONCE)
    for R in unroll(range(ROWS_AT_ONCE * VECTORS_AT_ONCE)):
        total[R] = broadcast(KIND(0), N)
    for j in rolled(range(count)):
        line, other = s + j * step, b + j * step
        y = local(vector(KIND, N), VECTORS_AT_ONCE)
        for V in unroll(range(VECTORS_AT_ONCE)):
            y[V] = load(other, V * N, N)
        for R in unroll(range(ROWS_AT_ONCE)):
            x = broadcast(line[R], N)
            for V in unroll(range(VECTORS_AT_ONCE)):
                total[R * VECTORS_AT_ONCE + V] = multiply_add(x, y[V], total[R * VECTORS_AT_ONCE + V])
    for R in unroll(range(ROWS_AT_ONCE)):
        if rows > R:
            for V in unroll(range(VECTORS_AT_ONCE)):
                if columns > V * N:
                    store(a + R * step, V * N, total[R * VECTORS_AT_ONCE + V], columns - V * N)


def multiplied_columns(s, b, a, step, count, start, stop, columns, KIND):
    """Rows `start` to `stop` of a product."""
    N = lanes(KIND)
    k = 0
    # Four rows of four vectors take half of 32 registers.
    while k + 2 * N < columns:
        for i in rolled(range(start, stop, 4)):
            tile(s + i, b + k, a + i * step + k, step, count, stop - i, columns - k, 4, 4 if N * KIND.bits > 256 else 2, KIND)
        k += (4 if N * KIND.bits > 256 else 2) * N
    while k < columns:
        for i in rolled(range(start, stop, 4)):
            tile(s + i, b + k, a + i * step + k, step, count, stop - i, columns - k, 4, 1, KIND)
        k += N


def multiplied(space, marks, n, step, low, middle, high, start, stop, long, SQUARE, KIND):
    """Rows `start` to `stop` of the vectors of the whole: each half has its own vectors and those that were turned with the other's."""
    size, half = high - low, middle - low
    many = size - 1 if SQUARE else size
    counts = marks + COUNTS * long + 4 * low
    count, ones, both = counts[0], counts[1], counts[2]
    for LEFT in unroll(range(2 if SQUARE else 1)):
        a = space + 3 * LEFT * n * step + low * step + low
        b, s = a + n * step, a + 2 * n * step
        width = size - LEFT
        if start < count:
            outlined(multiplied_columns)(s, b, a, step, ones + both, start, min(stop, count), half, KIND)
            if width > half:
                outlined(multiplied_columns)(s + ones * step, b + ones * step + half, a + half, step, count - ones, start, min(stop, count),
                                          width - half, KIND)  # fmt: skip
        for i in rolled(range(max(start, count), min(stop, many))):
            outlined(moved)(b + i * step, a + i * step, width, KIND)


def finished(space, marks, n, step, long, low, high, shift, VECTORS, SQUARE, KIND):
    """The values of a part and their order."""
    lines = lines_of(space, n, step, long, VECTORS, SQUARE)
    size, at = high - low - (1 if SQUARE else 0), low + shift
    values, gone = lines + VALUES * long + low, lines + GONE * long + at
    near, away = lines + NEAR * long + at, lines + AWAY * long + at
    order, taken = marks + ORDER * long + low, marks + TAKEN * long + at
    count = marks[COUNTS * long + 4 * low]
    for i in rolled(range(count)):
        values[i] = near[i] + away[i]
    # What dropped out is nearly in order.
    for k in rolled(range(size - count)):
        x = gone[k]
        values[count + k] = x
        to = k
        while (to > 0) & (gone[taken[max(to - 1, 0)]] > x):
            taken[to] = taken[to - 1]
            to -= 1
        taken[to] = k
    first, second = 0, 0
    for k in rolled(range(size)):
        i = min(first, max(count - 1, 0))
        j = count + taken[min(second, size - count - 1)] if size > count else 0
        from_first = (second >= size - count) | ((first < count) & (values[i] <= values[j]))
        order[k] = i if from_first else j
        first += 1 if from_first else 0
        second += 0 if from_first else 1
    if not VECTORS:
        a = space + n * step + 2 * low
        b = a + 2 * long
        for i in rolled(range(2 * count, 2 * size)):
            a[i] = b[i]


# -- kernels -----------------------------------------------------------------------------------------------------------------
#
# A step over parts: those that the rows from `first` on, `size` of them, are cut into. The chunks of all but the first step are `cuts` for
# each part. Lines of the first part are moved by `shift`, and by `each` more from part to part.


@kernel(in_vectors=True)
def leaf_parts(chunk, space, marks, steps, n, step, long, parts, *, VECTORS, SQUARE):
    """A part of up to `LEAF` rows from its numbers on; `steps` has the addresses of the kernels below."""
    KIND = widened(space)
    N = lanes(KIND)
    lines = lines_of(space, n, step, long, VECTORS, SQUARE)
    start, stop = chunk * n // parts, (chunk + 1) * n // parts
    size = stop - start
    d, e = lines + DIAGONAL * long, lines + BESIDE * long
    for i in rolled(range(start, stop)):
        x = KIND(0)
        if not SQUARE:
            x = d[i]
            if i > 0:
                x -= abs(e[i - 1])
            if i + 1 < n:
                x -= abs(e[i])
        lines[VALUES * long + i] = x
        marks[ORDER * long + i] = 0
        if VECTORS:
            space[i * step + i] = KIND(1)
            if SQUARE:
                space[3 * n * step + i * step + i] = KIND(1)
        else:
            space[n * step + 2 * i] = KIND(1)
            space[n * step + 2 * i + 1] = KIND(1)
    given = local(int64, 11)
    given[0] = int64(space)
    given[1] = int64(marks)
    given[2] = n
    given[3] = step
    given[4] = long
    given[5] = start
    given[6] = size
    given[8] = chunk * 4 * N
    given[9] = 0
    pieces = 1
    while pieces < size:
        pieces *= 2
    while pieces > 1:
        pieces = pieces // 2
        given[7] = pieces
        for p in rolled(range(pieces)):
            low, middle, high = ends(p, start, size, pieces)
            if (low < middle) & (middle < high):
                run(steps[0], p, given)
                given[10] = LEAF // ROOTS
                for k in rolled(range(1, 4)):
                    for cut in rolled(range(LEAF // ROOTS)):
                        run(steps[k], p * (LEAF // ROOTS) + cut, given)
                given[10] = LEAF // ROWS
                for cut in rolled(range(LEAF // ROWS)):
                    run(steps[4], p * (LEAF // ROWS) + cut, given)


def ends(part, first, size, parts):
    return first + part * size // parts, first + (2 * part + 1) * size // (2 * parts), first + (part + 1) * size // parts


@kernel(in_vectors=True)
def prepared_parts(part, space, marks, n, step, long, first, size, parts, shift, each, cuts, *, VECTORS, SQUARE):
    KIND = widened(space)
    low, middle, high = ends(part, first, size, parts)
    prepared(space, marks, n, step, long, low, middle, high, shift + part * each, VECTORS, SQUARE, KIND)


@kernel(in_vectors=True)
def stage_of_parts(chunk, space, marks, n, step, long, first, size, parts, shift, each, cuts, *, STAGE, VECTORS, SQUARE):
    """What the function `STAGE` does to some roots of a part: `solved`, `weighed` or `turned`."""
    KIND = widened(space)
    part, start = chunk // cuts, chunk % cuts * ROOTS
    low, _, high = ends(part, first, size, parts)
    STAGE(space, marks, n, step, long, low, high, shift + part * each, start, start + ROOTS, VECTORS, SQUARE, KIND)


@kernel(in_vectors=True)
def multiplied_parts(chunk, space, marks, n, step, long, first, size, parts, shift, each, cuts, *, VECTORS, SQUARE):
    KIND = widened(space)
    part, start = chunk // cuts, chunk % cuts * ROWS
    low, middle, high = ends(part, first, size, parts)
    if VECTORS:
        multiplied(space, marks, n, step, low, middle, high, start, start + ROWS, long, SQUARE, KIND)
    if start == 0:
        finished(space, marks, n, step, long, low, high, shift + part * each, VECTORS, SQUARE, KIND)
