"""Kernels of Fourier transforms of many lines: short ones, long ones, and lines that lie across rows.

All work on planes of real and of imaginary parts, in memory of the chunk, where vectors are values of different transforms:

- `tiny_lines` takes one line of a few values, an odd number, after the other;
- `short_lines` takes as many lines as a vector has lanes, and transposes them on the way in and out;
- `long_lines` takes one line as a matrix of `n1` by `n2`, by rows: transforms its columns, turns the results, transposes
  them, and transforms columns again;
- `columns` takes lines that begin side by side in memory.

Transforms of 2m real numbers are transforms of m complex ones, their even values + i their odd ones, and a pass that takes both
apart (`KIND_OF` is 1), or puts them together (2).

Numbers of a plan, by place: see `plan_numbers`.
"""

from __future__ import annotations

from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    flags,
    float64,
    independent,
    kernel,
    lanes,
    load,
    local,
    outlined,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.vocabulary import fma

from ..squares import squares_in, squares_out, transpose
from .passes import EVENS, MIXED, ODDS, REVERSED, ROOTS, all_passes

__all__ = ["COMPLEX", "FROM_REAL", "ON_STACK", "TO_REAL", "columns", "long_lines", "short_lines", "tiny_lines", "unpacked"]

COMPLEX, FROM_REAL, TO_REAL = 0, 1, 2
ON_STACK = 1 << 13                                       # numbers of a chunk's planes that lie on the stack


# -- pairs of numbers ----------------------------------------------------------------------------------------------------------


def split_planes(x, at, real, imaginary, to, count, N):
    """`count` complex numbers, up to a vector, as a vector of each plane; zeros beyond."""
    if count >= N:
        a, b = load(x, at, N), load(x, at + N, N)
        store(real, to, shuffle(a, b, EVENS[N]))
        store(imaginary, to, shuffle(a, b, ODDS[N]))
    else:
        a, b = load(x, at, N, 2 * count), load(x, at + N, N, 2 * count - N)
        store(real, to, shuffle(a, b, EVENS[N]))
        store(imaginary, to, shuffle(a, b, ODDS[N]))


def together_out(out, at, re, im, count, N):
    """The first `count` of a vector of complex numbers."""
    a, b = shuffle(re, im, MIXED[N][0]), shuffle(re, im, MIXED[N][1])
    if count >= N:
        store(out, at, a)
        store(out, at + N, b)
    else:
        store(out, at, a, 2 * count)
        store(out, at + N, b, 2 * count - N)


def rows_in(x, step, real, imaginary, padded, rows, count):
    """`rows` rows of `count` complex numbers, `step` numbers apart, into planes with rows of `padded`."""
    N = lanes(widened(x))
    for i in rolled(range(rows)):
        for j in rolled(range(0, count, N)):
            split_planes(x, i * step + 2 * j, real, imaginary, i * padded + j, count - j, N)


def rows_out(out, step, real, imaginary, padded, rows, count, factor):
    """Rows of planes as `rows` rows of `count` complex numbers, times `factor`."""
    N = lanes(widened(out))
    times = broadcast(factor, N)
    for i in rolled(range(rows)):
        for j in rolled(range(0, count, N)):
            at = i * padded + j
            together_out(out, i * step + 2 * j, load(real, at, N) * times, load(imaginary, at, N) * times, count - j, N)


def halves(re, im, re2, im2, c, d):
    """A value of a real line's transform, from those of the half line at k and m - k, times 2, and the turn of k."""
    even, even_im, odd, odd_im = re + re2, im - im2, im + im2, re2 - re
    return even + (odd * c - odd_im * d), even_im + (odd * d + odd_im * c)


def wholes(re, im, re2, im2, c, d):
    """The inverse: a value of the half line's transform, times 2."""
    even, even_im, odd, odd_im = re + re2, im - im2, re - re2, im + im2
    turned, turned_im = odd * c + odd_im * d, odd_im * c - odd * d
    return even - turned_im, even_im + turned


# -- lines side by side ------------------------------------------------------------------------------------------------------------


@kernel(in_vectors=True)
def columns(chunk, x, out, work, table, radices, passes, plan):
    """Lines of n values, `inner` of which lie side by side."""
    KIND = widened(out)
    N = lanes(KIND)
    n, groups, per, swap, steps = plan[0], plan[1], plan[2], plan[3], plan[4]
    inner, width, plane = plan[5], plan[6], plan[7]
    blocks = (inner + width - 1) // width
    planes = local(vector(KIND, N), ON_STACK // N)
    room = work + chunk * (4 * plane)
    if 4 * plane <= ON_STACK:
        room = bitcast(planes, KIND)
    factor = table[0]
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group % blocks * width
        count = min(width, inner - first)
        start = (group // blocks * n * inner + first) * 2
        padded = (count + N - 1) // N * N
        outlined(rows_in)(x + start, 2 * inner, room + swap * plane, room + (1 - swap) * plane, padded, n, count)
        all_passes(room, plane, plane, padded, radices, passes, 0, steps, table + 1, n, 0)
        made = room + steps % 2 * (2 * plane)
        outlined(rows_out)(out + start, 2 * inner, made + swap * plane, made + (1 - swap) * plane, padded, n, count, factor)


# -- short lines --------------------------------------------------------------------------------------------------------------


def halved_rows(a, to, plane, m, turns):
    """Of lines that are lanes, half the spectrum of real lines."""
    N = lanes(widened(a))
    # The value at m is that at 0.
    store(a, m * N, load(a, 0, N))
    store(a, m * N + plane, load(a, plane, N))
    with flags("contract"):
        for k in rolled(range(m + 1)):
            at, back = k * N, (m - k) * N
            c, d = broadcast(turns[k], N), broadcast(turns[k + m + 1], N)
            re, im = halves(load(a, at, N), load(a, at + plane, N), load(a, back, N), load(a, back + plane, N), c, d)
            store(to, at, re)
            store(to, at + plane, im)


def unhalved_rows(a, to, real, imaginary, plane, m, turns):
    """The transforms of half lines, from half the spectra of real lines; planes lie at `real` and `imaginary` in `to`."""
    N = lanes(widened(a))
    # The values at both ends are real, whatever is given.
    store(a, plane, broadcast(widened(a)(0), N))
    store(a, m * N + plane, broadcast(widened(a)(0), N))
    with flags("contract"):
        for k in rolled(range(m)):
            at, back = k * N, (m - k) * N
            c, d = broadcast(turns[k], N), broadcast(turns[k + m + 1], N)
            re, im = wholes(load(a, at, N), load(a, at + plane, N), load(a, back, N), load(a, back + plane, N), c, d)
            store(to, at + real, re)
            store(to, at + imaginary, im)


@kernel(in_vectors=True)
def short_lines(chunk, x, out, work, table, radices, passes, plan, *, KIND_OF):
    """Lines of n complex values, as many together as a vector has lanes."""
    KIND = widened(out)
    N = lanes(KIND)
    n, groups, per, swap, steps = plan[0], plan[1], plan[2], plan[3], plan[4]
    lines, plane = plan[5], plan[6]
    planes = local(vector(KIND, N), ON_STACK // N)
    room = work + chunk * (4 * plane)
    if 4 * plane <= ON_STACK:
        room = bitcast(planes, KIND)
    factor = table[0]
    turns = table + plan[7]
    for group in rolled(range(chunk * per, min(groups, chunk * per + per))):
        first = group * N
        count = min(N, lines - first)
        if KIND_OF == TO_REAL:
            outlined(squares_in)(x, 2 * n + 2, room + 2 * plane, first, count, 2 * n + 2, 0, plane, PLANES=2)
            outlined(unhalved_rows)(room + 2 * plane, room, swap * plane, (1 - swap) * plane, plane, n, turns)
        else:
            outlined(squares_in)(x, 2 * n, room, first, count, 2 * n, swap, plane, PLANES=2)
        all_passes(room, plane, plane, N, radices, passes, 0, steps, table + 1, n, 0)
        made = room + steps % 2 * (2 * plane)
        if KIND_OF == FROM_REAL:
            other = room + (steps + 1) % 2 * (2 * plane)
            outlined(halved_rows)(made, other, plane, n, turns)
            outlined(squares_out)(out, other, first, count, 2 * n + 2, 0, plane, factor, PLANES=2)
        else:
            outlined(squares_out)(out, made, first, count, 2 * n, swap, plane, factor, PLANES=2)


@kernel
def tiny_lines(chunk, x, out, factor, per, lines, *, KIND_OF, R, INVERSE):
    """Lines of an odd number `R` of values, in float64: those of float32 are rounded once, so what is equal comes out equal.

    Half a spectrum of `KIND_OF` is along the last dimension; that of an odd number of values has no value at its end.
    """
    LAST = R // 2 + 1
    read = 2 * R if KIND_OF == COMPLEX else R if KIND_OF == FROM_REAL else 2 * LAST
    written = 2 * R if KIND_OF == COMPLEX else 2 * LAST if KIND_OF == FROM_REAL else R
    times = factor[0]
    first, end = chunk * per, min(lines, chunk * per + per)
    if KIND_OF == COMPLEX:
        paired = first + (end - first) // 2 * 2
        for line in rolled(range(first, paired, 2)):
            tiny_line(x + line * read, read, out + line * written, times, R, INVERSE, 4)
        first = paired
    for line in rolled(range(first, end)):
        if KIND_OF == COMPLEX:
            tiny_line(x + line * read, read, out + line * written, times, R, INVERSE, 2)
        elif KIND_OF == FROM_REAL:
            tiny_real_line(x + line * read, out + line * written, times, R, INVERSE)
        else:
            tiny_half_line(x + line * read, out + line * written, times, R)


def complex_in(x, at, step, N):
    """A complex number, or one of either of two lines, `step` numbers apart."""
    if N == 2:
        v = load(x, at, 2)
    else:
        v = shuffle(load(x, at, 2), load(x, at + step, 2), (0, 1, 2, 3))
    return vector(float64, N)(v)


def complex_out(out, at, step, v, N):
    narrow = vector(widened(out), N)(v)
    if N == 2:
        store(out, at, narrow)
    else:
        store(out, at, shuffle(narrow, narrow, (0, 1)))
        store(out, at + step, shuffle(narrow, narrow, (2, 3)))


def tiny_line(x, step, out, times, R, INVERSE, N):
    """A line, or two that are `step` numbers apart, in vectors of `N`."""
    v = local(vector(float64, N), R)
    for K in unroll(range(R)):
        v[K] = complex_in(x, 2 * K, step, N)
    total = v[0]
    for K in unroll(range(1, R // 2 + 1)):
        near, far = v[K], v[R - K]
        v[K] = near + far
        v[R - K] = near - far
        total = total + v[K]
    scale = broadcast(times, N)
    complex_out(out, 0, step, total * scale, N)
    for K in unroll(range(1, R // 2 + 1)):
        m, n = v[0], broadcast(float64(0), N)
        for J in unroll(range(1, R // 2 + 1)):
            m = fma(v[J], broadcast(float64(ROOTS[R][J * K % R][0]), N), m)
            n = fma(v[R - J], broadcast(float64(ROOTS[R][J * K % R][1]), N), n)
        turned = shuffle(n, -n, (1, 2) if N == 2 else (1, 4, 3, 6))  # -i n
        complex_out(out, 2 * (R - K if INVERSE else K), step, (m + turned) * scale, N)
        complex_out(out, 2 * (K if INVERSE else R - K), step, (m - turned) * scale, N)


def tiny_real_line(x, out, times, R, INVERSE):
    KIND = widened(out)
    v = local(float64, R)
    for K in unroll(range(R)):
        v[K] = float64(x[K])
    total = v[0]
    for K in unroll(range(1, R // 2 + 1)):
        near, far = v[K], v[R - K]
        v[K] = near + far
        v[R - K] = near - far
        total = total + v[K]
    out[0] = KIND(total * times)
    out[1] = KIND(0)
    for K in unroll(range(1, R // 2 + 1)):
        m, n = v[0], float64(0)
        for J in unroll(range(1, R // 2 + 1)):
            m = fma(v[J], float64(ROOTS[R][J * K % R][0]), m)
            n = fma(v[R - J], float64(ROOTS[R][J * K % R][1]), n)
        out[2 * K] = KIND(m * times)
        out[2 * K + 1] = KIND(n * times if INVERSE else -n * times)


def tiny_half_line(x, out, times, R):
    """The inverse of a half spectrum, whose first value is real, whatever is given."""
    KIND = widened(out)
    re, im = local(float64, R // 2 + 1), local(float64, R // 2 + 1)
    first = float64(x[0])
    total = first
    for K in unroll(range(1, R // 2 + 1)):
        re[K] = float64(x[2 * K]) * float64(2)
        im[K] = float64(x[2 * K + 1]) * float64(2)
        total = total + re[K]
    out[0] = KIND(total * times)
    for K in unroll(range(1, R // 2 + 1)):
        m, n = first, float64(0)
        for J in unroll(range(1, R // 2 + 1)):
            m = fma(re[J], float64(ROOTS[R][J * K % R][0]), m)
            n = fma(im[J], float64(ROOTS[R][J * K % R][1]), n)
        out[K] = KIND((m - n) * times)
        out[R - K] = KIND((m + n) * times)


# -- long lines ---------------------------------------------------------------------------------------------------------------


def turned_over(a, to, plane, r1, r2, w):
    """A matrix of r1 by r2 complex numbers, times those of `w`, transposed."""
    KIND = widened(a)
    N = lanes(KIND)
    turned = local(vector(KIND, N), 2 * N)
    with flags("contract"):
        for i in rolled(range(0, r1, N)):
            for j in rolled(range(0, r2, N)):
                for k in rolled(range(N)):
                    at = (i + k) * r2 + j
                    x, y, c, d = load(a, at, N), load(a, at + plane, N), load(w, at, N), load(w, at + r1 * r2, N)
                    turned[k] = x * c - y * d
                    turned[N + k] = x * d + y * c
                # One text for both planes halves the time of compilation.
                for which in rolled(range(2)):
                    v = local(vector(KIND, N), N)
                    for L in unroll(range(N)):
                        v[L] = turned[which * N + L]
                    transpose(v, KIND)
                    for L in unroll(range(N)):
                        store(to, (j + L) * r1 + i + which * plane, v[L])


def halved_line(a, plane, rows, count, padded, out, m, turns, factor):
    """Half the spectrum of a real line; the transform of its half lies in `rows` rows of `count` values, each followed by padding."""
    KIND = widened(a)
    N = lanes(KIND)
    # Rows move together; what a row writes beyond its end belongs to the next one.
    if padded != count:
        for i in rolled(range(1, rows)):
            for j in rolled(range(0, count, N)):
                store(a, i * count + j, load(a, i * padded + j, N))
                store(a, i * count + j + plane, load(a, i * padded + j + plane, N))
    a[m] = a[0]
    a[m + plane] = a[plane]
    times = broadcast(factor, N)
    with flags("contract"):
        for k in rolled(range(0, m, N)):
            at, back = k, m - k - N + 1
            re2, im2 = load(a, back, N), load(a, back + plane, N)
            re, im = halves(
                load(a, at, N), load(a, at + plane, N), shuffle(re2, re2, REVERSED[N]), shuffle(im2, im2, REVERSED[N]),
                load(turns, k, N), load(turns, k + m + 1, N),
            )  # fmt: skip
            together_out(out, 2 * k, re * times, im * times, m - k, N)
    out[1] = KIND(0)
    out[2 * m] = (a[0] - a[plane]) * (factor + factor)
    out[2 * m + 1] = KIND(0)


def unhalved_line(x, a, to, real, imaginary, plane, rows, count, padded, m, turns):
    """The transform of a half line in rows, from half the spectrum of a real line; `a` is room for that."""
    KIND = widened(a)
    N = lanes(KIND)
    rows_in(x, 0, a, a + plane, 0, 1, m + 1)
    a[plane] = KIND(0)
    a[m + plane] = KIND(0)
    with flags("contract"):
        for i in rolled(range(rows)):
            for j in rolled(range(0, count, N)):
                k = i * count + j
                back = m - k - N + 1
                re2, im2 = load(a, back, N), load(a, back + plane, N)
                re, im = wholes(
                    load(a, k, N), load(a, k + plane, N), shuffle(re2, re2, REVERSED[N]), shuffle(im2, im2, REVERSED[N]),
                    load(turns, k, N), load(turns, k + m + 1, N),
                )  # fmt: skip
                store(to, i * padded + j + real, re)
                store(to, i * padded + j + imaginary, im)


@kernel(in_vectors=True)
def long_lines(chunk, x, out, work, table, radices, passes, plan, *, KIND_OF):
    """Lines of n1 * n2 complex values, one after the other, each a matrix."""
    KIND = widened(out)
    N = lanes(KIND)
    n, groups, per, swap, steps = plan[0], plan[1], plan[2], plan[3], plan[4]
    n1, n2, before, plane = plan[5], plan[6], plan[7], plan[8]
    r1, r2 = (n1 + N - 1) // N * N, (n2 + N - 1) // N * N
    # Lines from behind read a little of what lies before them.
    planes = local(vector(KIND, N), ON_STACK // N)
    room = work + (chunk * (4 * plane + 2 * N) + N)
    if 4 * plane + 2 * N <= ON_STACK:
        room = bitcast(planes, KIND) + N
    factor = table[0]
    between, second, turns = table + plan[9], table + plan[10], table + plan[11]
    odd = (before + 1) % 2
    done = (steps + 1) % 2
    for line in rolled(range(chunk * per, min(groups, chunk * per + per))):
        if KIND_OF == TO_REAL:
            outlined(unhalved_line)(
                x + line * (2 * n + 2), room + 2 * plane, room, swap * plane, (1 - swap) * plane, plane, n1, n2, r2, n, turns
            )
        else:
            outlined(rows_in)(x + line * (2 * n), 2 * n2, room + swap * plane, room + (1 - swap) * plane, r2, n1, n2)
        all_passes(room, plane, plane, r2, radices, passes, 0, before, table + 1, n1, 0)
        outlined(turned_over)(room + (1 - odd) * (2 * plane), room + odd * (2 * plane), plane, r1, r2, between)
        all_passes(room, plane, plane, r1, radices, passes, before, steps, second, n2, odd)
        made = room + done * (2 * plane)
        if KIND_OF == FROM_REAL:
            outlined(halved_line)(made, plane, n2, n1, r1, out + line * (2 * n + 2), n, turns, factor)
        else:
            outlined(rows_out)(out + line * (2 * n), 2 * n1, made + swap * plane, made + (1 - swap) * plane, r1, n2, n1, factor)


@kernel
def unpacked(chunk, z, out, turns, rows, per, m, *, REAL):
    """Half the spectrum of real lines, from the transforms `z` of their even values + i their odd ones."""
    half = REAL(0.5)
    for row in rolled(range(chunk * per, min(rows, chunk * per + per))):
        a, to = z + row * (2 * m), out + row * (2 * m + 2)
        to[0] = a[0] + a[1]
        to[1] = REAL(0)
        to[2 * m] = a[0] - a[1]
        to[2 * m + 1] = REAL(0)
        for k in independent(range(1, m)):
            re, im = halves(a[2 * k], a[2 * k + 1], a[2 * (m - k)], a[2 * (m - k) + 1], turns[k], turns[m + 1 + k])
            to[2 * k] = half * re
            to[2 * k + 1] = half * im
