"""Compiled loops of the random kernels: words of mt19937, and what becomes of words.

Words come one block of 624 after the other, since each block is made from the one before; within a block steps that
lie 227 apart depend on each other, so twisting and tempering are done in vectors. Turning words into numbers is cut into
chunks for all threads and may happen in place: a float32 takes the room of its word, a float64 that of its two.

Rounding is that of the numpy versions beside them, which is PyTorch's.
Source: as `stream`, `boxmuller`.
"""

from __future__ import annotations

import math
from typing import Any

from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    float32,
    float64,
    independent,
    int32,
    int64,
    kernel,
    lanes,
    load,
    local,
    prefetch,
    rolled,
    store,
    uint32,
    uint64,
    unroll,
    widened,
)
from flambeau_kernels.vocabulary import fma, log1p, sqrt, where

from .boxmuller import COSINE, EIGHTH, LN2, LOGARITHM, OCTANTS, SINE
from .stream import BLOCK, MOST_AT_ONCE, PIECE

TWO_PI = 2 * math.pi
TOGETHER = 32  # blocks of 16 normal numbers
AT_ONCE = 4  # rows of weights
VECTOR = 16  # words, of which a block is a multiple
OLD = 227 // VECTOR * VECTOR  # words of a block that are made by vectors from old ones alone


# -- words -----------------------------------------------------------------------------------------------------------------


@kernel
def draw(chunk: Any, state: Any, out: Any, position: Any, count: Any) -> Any:
    next_words(state, out, position, count)


def next_words(state: Any, out: Any, position: Any, count: Any) -> Any:
    """The next `count` words of `state`: the block in use, and room for another; `position` words of it are gone."""
    at, done = position, 0
    while done < count:
        if at == BLOCK:
            twist(state)
            at = 0
        taken = min(count - done, BLOCK - at)
        source, to = state + at, out + done
        whole = taken // VECTOR * VECTOR
        for i in rolled(range(0, whole, VECTOR)):
            store(to, i, tempered(load(source, i, VECTOR)))
        for i in rolled(range(whole, taken)):
            to[i] = tempered(source[i])
        done += taken
        at += taken


def twist(state: Any) -> Any:
    """The next block in the place of the one in use. A word is made from three, of which the last is new from place 227 on.

    The first new words are also stored behind the block, where vectors read that begin at its end.
    """
    for i in rolled(range(0, OLD, VECTOR)):
        store(state, i, load(state, i + 397, VECTOR) ^ mixed(load(state, i, VECTOR), load(state, i + 1, VECTOR)))
    store(state, BLOCK, load(state, 0, VECTOR))
    store(state, OLD, load(state, OLD + 397, VECTOR) ^ mixed(load(state, OLD, VECTOR), load(state, OLD + 1, VECTOR)))
    for i in rolled(range(OLD + VECTOR, BLOCK, VECTOR)):
        store(state, i, load(state, i - 227, VECTOR) ^ mixed(load(state, i, VECTOR), load(state, i + 1, VECTOR)))


def mixed(upper: Any, lower: Any) -> Any:
    joined = (upper & 0x80000000) | (lower & 0x7FFFFFFF)
    return (joined >> 1) ^ ((broadcast(uint32(0), VECTOR) - (lower & 1)) & 0x9908B0DF)


def tempered(word: Any) -> Any:
    a = word ^ (word >> 11)
    b = a ^ ((a << 7) & 0x9D2C5680)
    c = b ^ ((b << 15) & 0xEFC60000)
    return c ^ (c >> 18)


# -- uniform numbers ---------------------------------------------------------------------------------------------------------


def unit32(words: Any, i: Any) -> Any:
    """Kernel code: float32 in [0, 1) from the low 24 bits of a word."""
    return float32(int32(words[i] & 0xFFFFFF)) * 2.0**-24


def unit64(words: Any, i: Any) -> Any:
    """Kernel code: float64 in [0, 1) from the low 53 bits of two words."""
    return float64(int64(((uint64(words[2 * i]) << 32) | uint64(words[2 * i + 1])) & 0x1FFFFFFFFFFFFF)) * 2.0**-53


@kernel(aliased=True)
def uniform(chunk: Any, words: Any, out: Any, n: Any, low: Any, width: Any, high: Any, *, PLAIN: bool = False) -> Any:
    """Numbers in ``[low, high)``; float64 takes two words each. `PLAIN`: in [0, 1), as they are."""
    make_uniform(words, out, chunk * PIECE, min(n, chunk * PIECE + PIECE), low, width, high, PLAIN)


def make_uniform(words: Any, out: Any, first: Any, last: Any, low: Any, width: Any, high: Any, PLAIN: Any) -> Any:
    kind = widened(out)
    for i in independent(range(first, last)):
        if kind is float64:
            out[i] = unit64(words, i) if PLAIN else fma(unit64(words, i), width, low)
        elif PLAIN:
            out[i] = unit32(words, i)
        else:
            # The product of two float32 is exact in float64.
            out[i] = float32(float64(unit32(words, i)) * width + low)
        if not PLAIN:                                # as it was rounded when it was stored
            out[i] = where(out[i] == kind(high), kind(low), out[i])


@kernel
def coins(chunk: Any, words: Any, out: Any, n: Any, chance: Any, one: Any) -> Any:
    """`one` where a 53-bit uniform number falls below `chance`, else 0."""
    toss(words, out, chunk * PIECE, min(n, chunk * PIECE + PIECE), chance, one)


def toss(words: Any, out: Any, first: Any, last: Any, chance: Any, one: Any) -> Any:
    kind = widened(out)
    # A multiple of 2**-53 is below the chance where that many are below as many as there are in it, rounded up: integers take less.
    exact = chance * 2.0**53
    limit = int64(exact)
    limit = where(float64(limit) < exact, limit + 1, limit)
    pairs = bitcast(words, uint64)
    for i in independent(range(first, last)):
        pair = pairs[i]                               # whose first word is the lower half
        out[i] = where(int64(((pair << 32) | (pair >> 32)) & 0x1FFFFFFFFFFFFF) < limit, kind(one), kind(0))


@kernel
def coins_each(chunk: Any, words: Any, chances: Any, out: Any, n: Any) -> Any:
    """`coins` with a chance each; unless it is float64, against a 24-bit float32 number."""
    toss_each(words, chances, out, chunk * PIECE, min(n, chunk * PIECE + PIECE))


def toss_each(words: Any, chances: Any, out: Any, first: Any, last: Any) -> Any:
    kind = widened(out)
    for i in independent(range(first, last)):
        if widened(chances) is float64:
            out[i] = kind(unit64(words, i) < chances[i])
        else:
            out[i] = kind(unit32(words, i) < chances[i])


@kernel
def integers(chunk: Any, words: Any, out: Any, n: Any, low: Any, count: Any, *, TWO: bool = False) -> Any:
    """`low` plus the remainder of a word (or of two) modulo `count`."""
    make_integers(words, out, chunk * PIECE, min(n, chunk * PIECE + PIECE), low, count, TWO)


def make_integers(words: Any, out: Any, first: Any, last: Any, low: Any, count: Any, TWO: Any) -> Any:
    divisor, inverse, kind = float64(count), 1.0 / float64(count), widened(out)
    for i in independent(range(first, last)):
        if TWO:
            word = (uint64(words[2 * i]) << 32) | uint64(words[2 * i + 1])
            out[i] = kind(int64(word % uint64(count)) + low)
        else:
            out[i] = kind(int64(rest(float64(words[i]), divisor, inverse)) + low)


def rest(a: Any, divisor: Any, inverse: Any) -> Any:
    """``a % divisor`` of whole numbers below 2**32 as float64: all products here are exact."""
    off = a - float64(int64(a * inverse)) * divisor
    up = where(off < 0.0, off + divisor, off)
    return where(up >= divisor, up - divisor, up)


@kernel
def steps_ahead(chunk: Any, words: Any, n: Any) -> Any:
    """Words become how far ahead of place i the element that moves there is found: modulo ``n - i``."""
    for i in independent(range(chunk * PIECE, min(n - 1, chunk * PIECE + PIECE))):
        left = float64(n - i)
        words[i] = uint32(rest(float64(words[i]), left, 1.0 / left))


@kernel
def swap_ahead(chunk: Any, order: Any, ahead: Any, n: Any) -> Any:
    """Exchange place i with the one ``ahead[i]`` further on, for each i in turn, in 0 ... n - 1."""
    for i in independent(range(n)):
        order[i] = int32(i)
    for i in range(n - 1):
        if i + 32 < n:
            prefetch(order + (i + 32 + int64(ahead[i + 32])))
        j = i + int64(ahead[i])
        kept = order[i]
        order[i] = order[j]
        order[j] = kept


# -- normal numbers ----------------------------------------------------------------------------------------------------------


@kernel(aliased=True)
def normal_blocks(chunk: Any, words: Any, out: Any, blocks: Any, mean: Any, std: Any, *, SCALED: bool = False) -> Any:
    first, last = chunk * (PIECE // 16), min(blocks, (chunk + 1) * (PIECE // 16))
    if widened(out) is float64 or lanes(float32) <= 8:
        make_blocks(words, out, first, last, mean, std, SCALED)
    else:
        make_many_blocks(words, out, first, last, mean, std, SCALED)


@kernel(aliased=True)
def draw_normals(chunk: Any, state: Any, out: Any, position: Any, count: Any, mean: Any, std: Any, *, SCALED: bool = False) -> Any:
    """`draw` and `normal_blocks` at once, and once more for the last 16 numbers, where the others are no multiple of 16."""
    words = bitcast(out, uint32)
    first, size, at = 0, count, position
    while size > 0:
        next_words(state, words + first, at, size)
        make_blocks(words + first, out + first, 0, size // 16, mean, std, SCALED)
        at = (at + size - 1) % BLOCK + 1
        first = count - 16
        if size % 16 > 0:
            size = 16
        else:
            size = 0


def make_blocks(words: Any, out: Any, first: Any, last: Any, mean: Any, std: Any, SCALED: Any) -> Any:
    """16 uniform numbers become 16 normal ones: the first 8 give radii, the last 8 angles."""
    for block in range(first, last):
        to = out + block * 16
        for j in independent(range(8)):
            if widened(out) is float64:
                at = words + block * 32
                radius = math.sqrt(math.log(1.0 - unit64(at, j)) * -2.0)
                angle = unit64(at, j + 8) * TWO_PI
                cosine, sine = math.cos(angle), math.sin(angle)
            else:
                at = words + block * 16
                radius = sqrt(logarithm(1.0 - unit32(at, j)) * -2.0)
                sine, cosine = sine_and_cosine(unit32(at, j + 8) * TWO_PI)
            to[j] = scaled(radius * cosine, mean, std, widened(out), SCALED)
            to[j + 8] = scaled(radius * sine, mean, std, widened(out), SCALED)


def make_many_blocks(words: Any, out: Any, first: Any, last: Any, mean: Any, std: Any, SCALED: Any) -> Any:
    """`make_blocks` of float32, of which `TOGETHER` are put side by side first, where vectors are longer than half a block."""
    radii, angles = local(float32, 8 * TOGETHER), local(float32, 8 * TOGETHER)
    for start in range(first, last, TOGETHER):
        some = min(TOGETHER, last - start)
        for block in rolled(range(some)):
            at, side = words + (start + block) * 16, block * 8
            for j in independent(range(8)):
                radii[side + j] = 1.0 - unit32(at, j)
                angles[side + j] = unit32(at, j + 8) * TWO_PI
        for j in independent(range(8 * TOGETHER)):    # also where a last block has left numbers from before
            radius = sqrt(logarithm(radii[j]) * -2.0)
            sine, cosine = sine_and_cosine(angles[j])
            radii[j] = scaled(radius * cosine, mean, std, float32, SCALED)
            angles[j] = scaled(radius * sine, mean, std, float32, SCALED)
        for block in rolled(range(some)):
            to, side = out + (start + block) * 16, block * 8
            for j in independent(range(8)):
                to[j] = radii[side + j]
                to[j + 8] = angles[side + j]


def scaled(x: Any, mean: Any, std: Any, KIND: Any, SCALED: Any) -> Any:
    """``x * std + mean``, rounded once."""
    if SCALED and KIND is float64:
        made = fma(x, std, mean)
    elif SCALED:
        made = float32(float64(x) * std + mean)
    else:
        made = x
    return made


@kernel
def normal_pairs(chunk: Any, words: Any, out: Any, pairs: Any) -> Any:
    """Each two uniform numbers, an angle and a radius, as two normal ones in float64."""
    for i in range(chunk * PIECE, min(pairs, chunk * PIECE + PIECE)):
        radius = math.sqrt(math.log1p(-unit64(words, 2 * i + 1)) * -2.0)
        angle = unit64(words, 2 * i) * TWO_PI
        out[2 * i] = radius * math.cos(angle)
        out[2 * i + 1] = radius * math.sin(angle)


@kernel
def exponential(chunk: Any, words: Any, out: Any, n: Any, scale: Any) -> Any:
    """`scale` times the logarithm of one less a uniform number; the C library's where the last bit shows."""
    make_exponential(words, out, chunk * PIECE, min(n, chunk * PIECE + PIECE), scale)


def make_exponential(words: Any, out: Any, first: Any, last: Any, scale: Any) -> Any:
    if widened(out) is float64:
        for i in range(first, last):
            out[i] = math.log1p(-unit64(words, i)) * scale
    else:
        for i in independent(range(first, last)):
            out[i] = float32(log1p(-unit64(words, i)) * scale)


def logarithm(x: Any) -> Any:
    """Kernel code: `boxmuller.log32`."""
    offset = bitcast(x, int32) - 0x3F3504F3
    exponent = float32(offset >> 23)
    m = bitcast((offset & 0x7FFFFF) + 0x3F3504F3, float32) - 1.0
    square = m * m
    y = fma(m, LOGARITHM[0], LOGARITHM[1])
    for k in unroll(range(2, len(LOGARITHM))):
        y = fma(y, m, LOGARITHM[k])
    y = fma(y * m, square, exponent * LN2[1])
    y = m + fma(square, -0.5, y)
    return fma(exponent, LN2[0], y)


def sine_and_cosine(x: Any) -> Any:
    """Kernel code: `boxmuller.sin_cos32`."""
    octant = (int32(x * OCTANTS) + 1) & 14
    turns = float32(octant)
    part = fma(turns, EIGHTH[0], x)
    for k in unroll(range(1, len(EIGHTH))):
        part = fma(turns, EIGHTH[k], part)
    square = part * part
    c = fma(square, COSINE[0], COSINE[1])
    c = fma(c, square, COSINE[2]) * square
    c = fma(c, square, square * -0.5) + 1.0
    s = fma(square, SINE[0], SINE[1])
    s = fma(s, square, SINE[2]) * square
    s = fma(s, part, part)
    swapped = (octant & 2) != 0
    sine, cosine = where(swapped, c, s), where(swapped, s, c)
    return (where((octant & 4) != 0, -sine, sine), where(((octant + 2) & 4) != 0, -cosine, cosine))


# -- a few numbers at once ---------------------------------------------------------------------------------------------------
#
# Each of these draws the words it needs and makes `n` numbers of them, MOST_AT_ONCE at most: what few numbers cost is calls.


@kernel
def draw_uniforms(chunk: Any, state: Any, out: Any, position: Any, n: Any, low: Any, width: Any, high: Any, *, PLAIN: bool = False) -> Any:
    words = local(uint32, 2 * MOST_AT_ONCE)
    next_words(state, words, position, n * (2 if widened(out) is float64 else 1))
    make_uniform(words, out, 0, n, low, width, high, PLAIN)


@kernel
def draw_integers(chunk: Any, state: Any, out: Any, position: Any, n: Any, low: Any, count: Any, *, TWO: bool = False) -> Any:
    words = local(uint32, 2 * MOST_AT_ONCE)
    next_words(state, words, position, n * (2 if TWO else 1))
    make_integers(words, out, 0, n, low, count, TWO)


@kernel
def draw_coins(chunk: Any, state: Any, out: Any, position: Any, n: Any, chance: Any) -> Any:
    words = local(uint32, 2 * MOST_AT_ONCE)
    next_words(state, words, position, 2 * n)
    toss(words, out, 0, n, chance, 1)


@kernel
def draw_coins_each(chunk: Any, state: Any, out: Any, position: Any, n: Any, chances: Any, wrong: Any) -> Any:
    """Nothing is drawn where a chance lies outside [0, 1], which `wrong` then says."""
    fine = True
    for i in range(n):
        fine = fine & (chances[i] >= 0) & (chances[i] <= 1)
    if fine:
        words = local(uint32, 2 * MOST_AT_ONCE)
        next_words(state, words, position, n * (2 if widened(chances) is float64 else 1))
        toss_each(words, chances, out, 0, n)
    else:
        wrong[0] = 1


@kernel
def draw_exponentials(chunk: Any, state: Any, out: Any, position: Any, n: Any, scale: Any) -> Any:
    words = local(uint32, 2 * MOST_AT_ONCE)
    next_words(state, words, position, 2 * n)
    make_exponential(words, out, 0, n, scale)


@kernel
def draw_pairs(chunk: Any, state: Any, out: Any, position: Any, n: Any, start: Any, mean: Any, std: Any, spare: Any, *,
              SCALED: bool = False) -> Any:  # fmt: skip
    """`normal_pairs`, moved and scaled, after `start` numbers that wait in `spare`, where an odd one is left."""
    words = local(uint32, 2 * MOST_AT_ONCE + 4)
    pairs = (n - start + 1) // 2
    next_words(state, words, position, 4 * pairs)
    if start > 0:
        out[0] = moved(spare[0], mean, std, widened(out), SCALED)
    for i in range(pairs):
        radius = math.sqrt(math.log1p(-unit64(words, 2 * i + 1)) * -2.0)
        angle = unit64(words, 2 * i) * TWO_PI
        at = start + 2 * i
        out[at] = moved(radius * math.cos(angle), mean, std, widened(out), SCALED)
        second = radius * math.sin(angle)
        if at + 1 < n:
            out[at + 1] = moved(second, mean, std, widened(out), SCALED)
        else:
            spare[0] = second


def moved(x: Any, mean: Any, std: Any, KIND: Any, SCALED: Any) -> Any:
    """``x * std + mean`` in float64, rounded once more."""
    return KIND(fma(x, std, mean) if SCALED else x)


@kernel
def draw_places(chunk: Any, state: Any, out: Any, position: Any, n: Any) -> Any:
    """`steps_ahead` and `swap_ahead`."""
    words = local(uint32, 2 * MOST_AT_ONCE)
    next_words(state, words, position, n - 1)
    for i in range(n):
        out[i] = int64(i)
    for i in range(n - 1):
        left = float64(n - i)
        j = i + int64(rest(float64(words[i]), left, 1.0 / left))
        kept = out[i]
        out[i] = out[j]
        out[j] = kept


# -- draws from weights ------------------------------------------------------------------------------------------------------


@kernel
def weigh(chunk: Any, weights: Any, words: Any, sums: Any, out: Any, wrong: Any, rows: Any, n: Any, samples: Any) -> Any:
    """Indices of `AT_ONCE` rows of weights: where uniform numbers fall among the running sums divided by the whole."""
    first, last = chunk * AT_ONCE, min(rows, chunk * AT_ONCE + AT_ONCE)
    start, kind = weights + first * n, widened(sums)
    unfit = int32(0)
    for i in range((last - first) * n):
        unfit = unfit | int32((start[i] < 0) | (start[i] == float("inf")) | (start[i] != start[i]))
    totals = local(kind, AT_ONCE)
    if last - first == AT_ONCE:
        # Each sum waits for the one before; those of other rows do not.
        a, b, c, d = start, start + n, start + 2 * n, start + 3 * n
        total_a, total_b, total_c, total_d = kind(0), kind(0), kind(0), kind(0)
        to = sums + first * n
        for i in rolled(range(n)):
            total_a, total_b, total_c, total_d = total_a + kind(a[i]), total_b + kind(b[i]), total_c + kind(c[i]), total_d + kind(d[i])
            to[i], to[n + i], to[2 * n + i], to[3 * n + i] = total_a, total_b, total_c, total_d
        totals[0], totals[1], totals[2], totals[3] = total_a, total_b, total_c, total_d
    else:
        for r in rolled(range(first, last)):
            row, running, total = weights + r * n, sums + r * n, kind(0)
            for i in rolled(range(n)):
                total += kind(row[i])
                running[i] = total
            totals[r - first] = total
    for r in rolled(range(first, last)):
        total = totals[r - first]
        if not (unfit == 0 and total > 0):
            wrong[0] = 1
        find_shares(sums + r * n, words, out, r * samples, samples, n, total)


def find_shares(running: Any, words: Any, out: Any, at: Any, samples: Any, n: Any, total: Any) -> Any:
    """For each of the uniform numbers from `at` on the first place whose share of `total` is no less."""
    for k in range(samples):
        wanted = unit64(words, at + k)
        low, high = 0, n
        while low < high:
            middle = (low + high) >> 1
            if float64(running[middle] / total) < wanted:
                low = middle + 1
            else:
                high = middle
        out[at + k] = low
