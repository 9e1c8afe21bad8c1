"""How kernels written in vectors add up floats: in one order for every length and every processor.

Eight vectors of 64 bytes are added in pairs, and their sums in float64. Processors with shorter registers take several for
such a vector, so that the order, and with it the result to the last bit, is the same on each. A float32 is rounded three times
at sizes up to eight elements, whatever the length: sums of 10**7 elements are as good as those of 10. Squares are added in pairs
rounded once (`fma`), which is less to do and no less exact.

Loops that do more than add take `BLOCK` elements into a vector of their kind (`lanes_of`), and that into one of float64. Variances
are those of blocks of as many, merged.

These are functions of the kernel language (`engine/language/`); they are inlined into the kernels that call them.
"""

from __future__ import annotations

from flambeau_kernels.cpu.lanes import foresees
from flambeau_kernels.cpu.reductions.reduce import square
from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    float32,
    float64,
    int32,
    lane_sum,
    lanes,
    load,
    prefetch,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.vocabulary import fma, where

__all__ = [
    "BLOCK", "ROWS", "add_row", "block_mean", "block_squares", "clear_row", "eight", "four_lanes", "lanes_of", "last_sum", "merged",
    "moments_of", "square", "sum_of", "wide", "zeros",
]  # fmt: skip

BLOCK = 1024  # elements added up in vectors of their own kind
ROWS = 64  # rows added up in their own kind


def lanes_of(KIND):
    """Elements of 64 bytes."""
    return 512 // KIND.bits


def zeros(KIND):
    return broadcast(KIND(0), lanes_of(KIND))


def wide(v, KIND):
    """A vector of 64 bytes of `KIND` in float64."""
    return vector(float64, lanes_of(KIND))(v)


def centred(v, level, CENTRED):
    return v - level if CENTRED else v


def term_of(v, level, TERM, CENTRED):
    v = centred(v, level, CENTRED)
    return v if TERM is None else TERM(v)


def pair(v, w, level, TERM, CENTRED):
    """The sum of the terms of two vectors; of squares the second is added before it is rounded."""
    if TERM is square:
        v, w = centred(v, level, CENTRED), centred(w, level, CENTRED)
        both = fma(w, w, v * v)
    else:
        both = term_of(v, level, TERM, CENTRED) + term_of(w, level, TERM, CENTRED)
    return both


def eight(p, i, level, TERM, CENTRED, N, BFLOAT16, W=None):
    """The sum of the terms of eight vectors: of each and the fourth after it, so that memory is read in its order; those in pairs.

    W: how many of the `N` lanes are meant, all by default; `level` has as many.
    """
    if BFLOAT16:
        a, b = halves_pair(p, i, level, TERM, CENTRED, N), halves_pair(p, i + 2 * N, level, TERM, CENTRED, N)
        c, d = halves_pair(p, i + 4 * N, level, TERM, CENTRED, N), halves_pair(p, i + 6 * N, level, TERM, CENTRED, N)
    else:
        W = N if W is None else W
        a, b, c, d = load(p, i, W), load(p, i + N, W), load(p, i + 2 * N, W), load(p, i + 3 * N, W)
        a, b = pair(a, load(p, i + 4 * N, W), level, TERM, CENTRED), pair(b, load(p, i + 5 * N, W), level, TERM, CENTRED)
        c, d = pair(c, load(p, i + 6 * N, W), level, TERM, CENTRED), pair(d, load(p, i + 7 * N, W), level, TERM, CENTRED)
    return (a + b) + (c + d)


def halves_pair(p, i, level, TERM, CENTRED, N):
    """The sum of the terms of two vectors of bfloat16, of neighbours."""
    # Two neighbours are the halves of an integer, so that widening them takes one instruction each and no shuffle.
    both, FLOATS = load(bitcast(p + i, int32), 0, N), vector(float32, N)
    return pair(bitcast(both << 16, FLOATS), bitcast(both & -65536, FLOATS), level, TERM, CENTRED)


def sum_of(p, n, centre, TERM, CENTRED, KIND, BFLOAT16=False, ask=None, FAR=False):
    """The sum in float64 of ``TERM(p[i] - centre)``, or of ``p[i] - centre`` if TERM is None.

    Args:
        TERM: of a vector; 0 for 0.
        CENTRED: whether `centre`, a number of KIND, is taken off.
        BFLOAT16: whether elements are of that dtype, and then which neighbours are added first.
        ask: where the `n` elements lie that are asked for meanwhile, if it is not None.
        FAR: whether elements come from memory rather than a cache. Loads of 64 bytes are asked for faster than memory sends them, and take
            a twentieth more time than those of 32; the sum is the same.
    """
    N = lanes_of(KIND)
    level = broadcast(centre, N)
    made = 0.0
    i = 0
    if FAR and foresees(KIND) and not BFLOAT16:
        H = N // 2
        here, low, high = broadcast(centre, H), broadcast(0.0, H), broadcast(0.0, H)
        while i + 8 * N <= n:
            low = low + vector(float64, H)(eight(p, i, here, TERM, CENTRED, N, False, H))
            high = high + vector(float64, H)(eight(p, i + H, here, TERM, CENTRED, N, False, H))
            i += 8 * N
        made = lane_sum(low + high)
    elif n >= 8 * N:
        total = broadcast(0.0, N)
        while i + 8 * N <= n:
            if ask is not None:
                for K in unroll(range(8)):
                    prefetch(ask + (i + K * N))
            total = total + wide(eight(p, i, level, TERM, CENTRED, N, BFLOAT16), KIND)
            i += 8 * N
        made = lane_sum(total)
    if i < n:
        made = made + last_sum(p, i, n, centre, TERM, CENTRED, KIND)
    return made


def sums_of_two(p, q, n, TERM, KIND):
    """`sum_of` for the `n` elements, whole groups of eight vectors, of each of two places far apart.

    Memory sends them faster than neighbours: it reads ahead within a page, and at the start of one page it still has the other to read.
    """
    N = lanes_of(KIND)
    H = N // 2
    here = broadcast(KIND(0), H)
    p_low, p_high, q_low, q_high = broadcast(0.0, H), broadcast(0.0, H), broadcast(0.0, H), broadcast(0.0, H)
    for i in rolled(range(0, n, 8 * N)):
        p_low = p_low + vector(float64, H)(eight(p, i, here, TERM, False, N, False, H))
        p_high = p_high + vector(float64, H)(eight(p, i + H, here, TERM, False, N, False, H))
        q_low = q_low + vector(float64, H)(eight(q, i, here, TERM, False, N, False, H))
        q_high = q_high + vector(float64, H)(eight(q, i + H, here, TERM, False, N, False, H))
    return lane_sum(p_low + p_high), lane_sum(q_low + q_high)


def last_sum(p, i, n, centre, TERM, CENTRED, KIND):
    """The part of `sum_of` that ``p[i], ..., p[n - 1]`` make, which are less than eight vectors."""
    N = lanes_of(KIND)
    level = broadcast(centre, N)
    some = zeros(KIND)
    while i + N <= n:
        some = some + term_of(load(p, i, N), level, TERM, CENTRED)
        i += N
    if i < n:
        some = some + term_of(load(p, i, N, n - i, centre if CENTRED else 0.0), level, TERM, CENTRED)
    return lane_sum(vector(float64, 4)(four_lanes(some, N)))


def four_lanes(v, N):
    """The sums of every fourth lane."""
    LOW, HIGH = tuple(range(N // 2)), tuple(range(N // 2, N))
    half = shuffle(v, v, LOW) + shuffle(v, v, HIGH)
    return four_lanes(half, N // 2) if N > 8 else half


def block_mean(p, n, level, LEVEL, KIND):
    """The mean of a block in float64; it is found by how far it is from `level` if LEVEL."""
    mean = sum_of(p, n, level, None, LEVEL, KIND) / float64(n)
    if LEVEL:
        mean = mean + float64(level)
    return mean


def block_squares(p, n, mean, KIND, ask=None):
    """The sum of squared deviations of a block from its mean, in float64; for `ask` see `sum_of`."""
    centre = KIND(mean)
    # The centre was rounded, so that deviations miss those from the mean by as much.
    deviation = mean - float64(centre)
    squares = sum_of(p, n, centre, square, True, KIND, False, ask) - float64(n) * deviation * deviation
    return where(squares < 0.0, 0.0, squares)


def moments_of(p, n, KIND, ask=None):
    """The mean of neighbours and the sum of squared deviations from it, in float64: those of blocks, merged.

    The `n` elements where `ask` points at, if it is not None, are asked for while blocks are squared, which takes no memory.

    Source: Chan, Golub and LeVeque 1983, "Algorithms for Computing the Sample Variance", Am. Stat. 37(3).
    """
    mean, squares, level = 0.0, 0.0, KIND(0)
    if n > BLOCK:
        # Means are merged by how far they are apart, so they are found by how far they are from that of some first elements.
        N = lanes_of(KIND)
        some = wide(eight(p, 0, zeros(KIND), None, False, N, False), KIND)
        level = KIND(lane_sum(broadcast(0.0, N) + some) / float64(8 * N))
    for at in rolled(range(0, n, BLOCK)):
        size, mean_here = min(BLOCK, n - at), 0.0
        if n > BLOCK:
            mean_here = block_mean(p + at, size, level, True, KIND)
        else:
            mean_here = block_mean(p, n, level, False, KIND)
        squares_here = block_squares(p + at, size, mean_here, KIND, None if ask is None else ask + at)
        if n > BLOCK:
            mean, squares = merged(float64(at), mean, squares, float64(size), mean_here, squares_here)
        else:
            mean, squares = mean_here, squares_here
    return mean, squares


def merged(count, mean, squares, n, mean_of, squares_of):
    """Mean and squares of `count` elements and of `n` others, together."""
    deviation = mean_of - mean
    share = n / (count + n)
    return mean + deviation * share, squares + (squares_of + deviation * deviation * count * share)


# Storing under a mask is slow on some processors, so it is left for the last vector.
def clear_row(to, n):
    KIND = widened(to)
    N = lanes(KIND)
    tail = n // N * N
    for i in rolled(range(0, tail, N)):
        store(to, i, broadcast(KIND(0), N))
    if tail < n:
        store(to, tail, broadcast(KIND(0), N), n - tail)


def add_row(total, sums, n):
    """Add `n` elements of `sums` to those of `total`, which are float64, and clear them."""
    KIND = widened(sums)
    N = lanes(KIND)
    tail = n // N * N
    for i in rolled(range(0, tail, N)):
        store(total, i, load(total, i, N) + vector(float64, N)(load(sums, i, N)))
    if tail < n:
        left = n - tail
        store(total, tail, load(total, tail, N, left) + vector(float64, N)(load(sums, tail, N, left)), left)
    clear_row(sums, n)
