"""Stable sorting of rows by radix: each pass deals the elements into buckets by one digit of their keys.

A 32-bit key travels in one 64-bit word with the place it came from (high half key, low half place), a 64-bit
key beside its place. Digits go from the lowest to the highest, and digits that all keys share are skipped.
Rows are sorted independently, several to a chunk, and short ones by `ranks`. A long row is cut into chunks of fixed length that count
and deal together: buckets are laid out chunk after chunk, so the order is that of one pass over the whole row.

Source: Knuth, TAOCP volume 3, section 5.2.5, algorithm R, with counting as in section 5.2, algorithm D.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    int32,
    int64,
    kernel,
    local,
    outlined,
    repeated,
    rolled,
    uint32,
    uint64,
    unroll,
)

from .keys import is_wide, key_at, raw
from .ranks import MOST_COUNTED, keys_of, order_of

__all__ = ["MOST", "sort_rows"]

MOST = (1 << 31) - 1                                 # places are kept in 32 bits
LONG = 1 << 17                                       # from here on a row is worth several chunks
PIECE = 1 << 16                                      # elements of a long row per chunk
WORK = 1 << 13                                       # elements of short rows per chunk
WIDE_DIGITS_FROM = 1 << 11                           # 2048 buckets pay for themselves from here on, 256 before


def sort_rows(a: np.ndarray, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    """``(rows, n)`` in C order, ``0 < n <= MOST``: the elements of each row in order, and their places."""
    rows, n = a.shape
    values, places = np.empty(a.shape, a.dtype), np.empty(a.shape, np.int64)
    flip = -1 if descending else 0
    if n >= LONG and rows < 4:
        for row in range(rows):
            _sort_long(a[row], raw(a)[row], raw(values)[row], places[row], flip)
        return values, places
    each = max(1, WORK // n)
    chunks = -(-rows // each)
    wide = is_wide(a.dtype)
    if n <= MOST_COUNTED:
        sort_shortest.run(chunks, a, raw(a), raw(values), places, n, rows, each, flip, WIDE=wide)
        return values, places
    words = np.empty(chunks * 2 * n, np.uint64)
    origins = np.empty(chunks * 2 * n if wide else 0, np.uint32)
    sort_short.run(chunks, a, raw(a), raw(values), places, words, origins, n, rows, each, flip,
                   WIDE=wide, BITS=8 if n < WIDE_DIGITS_FROM else 11)  # fmt: skip
    return values, places


def _sort_long(a: np.ndarray, bits: np.ndarray, values: np.ndarray, places: np.ndarray, flip: int) -> None:
    n = a.shape[0]
    wide = is_wide(a.dtype)
    chunks = -(-n // PIECE)
    words, other = np.empty(n, np.uint64), np.empty(n, np.uint64)
    origins, other_origins = (np.empty(n, np.uint32), np.empty(n, np.uint32)) if wide else (places, places)
    counts, alone = np.empty(chunks << 11, np.uint32), np.empty(1, np.int64)
    long_keys.run(chunks, a, words, origins, n, flip, WIDE=wide)
    for shift in range(0, 64, 11) if wide else (32, 43, 54):
        long_counts.run(chunks, words, counts, n, shift)
        long_offsets.run(1, counts, alone, chunks, n, release=True)
        if not alone[0]:
            long_deal.run(chunks, words, origins, other, other_origins, counts, n, shift, WIDE=wide)
            words, other, origins, other_origins = other, words, other_origins, origins
    long_results.run(chunks, words, origins, bits, values, places, n, WIDE=wide)


def word_at(p: Any, i: Any, flip: Any, WIDE: Any) -> Any:
    """Kernel code: the key of ``p[i]`` as an unsigned word, with `i` in the low half where there is room."""
    if WIDE:
        word = uint64(key_at(p, i) ^ flip) ^ (1 << 63)
    else:
        word = ((uint64(uint32(key_at(p, i) ^ int32(flip)) ^ 0x80000000)) << 32) | uint64(i)
    return word


@kernel
def sort_short(chunk: Any, a: Any, bits: Any, values: Any, places: Any, words: Any, origins: Any, n: Any, rows: Any, each: Any,
               flip: Any, *, WIDE: bool = False, BITS: int = 8) -> Any:  # fmt: skip
    """Sort some rows one after the other."""
    counts = local(uint32, PASSES[WIDE, BITS] << BITS)
    for row in range(chunk * each, min(rows, chunk * each + each)):
        x = a + row * n
        source, target = words + chunk * 2 * n, words + (chunk * 2 + 1) * n
        source_origins, target_origins = origins + chunk * 2 * n, origins + (chunk * 2 + 1) * n
        count_digits(x, source, source_origins, counts, n, flip, WIDE, BITS)
        if WIDE:
            # Eight passes by the same code; of four or less each has its own, where shifts are constant.
            for d in rolled(range(PASSES[WIDE, BITS])):
                slots, shift = counts + (d << BITS), uint64(d * BITS)
                if int64(slots[int64(digit_of(source[0], shift, BITS))]) != n:
                    outlined(deal_row)(source, source_origins, target, target_origins, slots, n, shift, BITS, WIDE)
                    source, target = target, source
                    source_origins, target_origins = target_origins, source_origins
        else:
            for d in unroll(range(PASSES[WIDE, BITS])):
                slots, SHIFT = counts + (d << BITS), BITS * d + 32
                if int64(slots[int64(digit_of(source[0], SHIFT, BITS))]) != n:
                    deal_row(source, source_origins, target, target_origins, slots, n, SHIFT, BITS, WIDE)
                    source, target = target, source
        finish(source, source_origins, bits + row * n, values + row * n, places + row * n, 0, n, WIDE)


PASSES = {(False, 8): 4, (False, 11): 3, (True, 8): 8, (True, 11): 6}


@kernel
def sort_shortest(chunk: Any, a: Any, bits: Any, values: Any, places: Any, n: Any, rows: Any, each: Any, flip: Any, *,
                  WIDE: bool = False) -> Any:  # fmt: skip
    """Sort some rows of `MOST_COUNTED` elements or less; a kernel of its own, for each of the two takes as long to compile."""
    for row in range(chunk * each, min(rows, chunk * each + each)):
        at = row * n
        sort_by_ranks(a + at, bits + at, values + at, places + at, n, flip, int64 if WIDE else int32)


def sort_by_ranks(x: Any, bits: Any, values: Any, places: Any, n: Any, flip: Any, KEY: Any) -> Any:
    """A row so short that the ranks of its elements are counted."""
    keys, ranks = local(KEY, MOST_COUNTED), local(int32, MOST_COUNTED)
    keys_of(x, 1, n, keys, KEY(flip))
    order_of(keys, n, ranks, places, KEY)
    for i in rolled(range(n)):
        values[i] = bits[places[i]]


def count_digits(x: Any, words: Any, origins: Any, counts: Any, n: Any, flip: Any, WIDE: Any, BITS: Any) -> Any:
    """Make the words of a row, and count how often each digit occurs at each position."""
    for b in range(PASSES[WIDE, BITS] << BITS):
        counts[b] = uint32(0)
    for i in rolled(range(n)):
        word = word_at(x, i, flip, WIDE)
        words[i] = word
        if WIDE:
            origins[i] = uint32(i)
        for d in unroll(range(PASSES[WIDE, BITS])):
            at = (d << BITS) + int64(digit_of(word, BITS * d + (0 if WIDE else 32), BITS))
            counts[at] = counts[at] + uint32(1)


def deal(source: Any, source_origins: Any, target: Any, target_origins: Any, slots: Any, first: Any, last: Any, SHIFT: Any,
         BITS: Any, WIDE: Any) -> Any:  # fmt: skip
    """Put words ``first ... last - 1`` where `slots` say the next one with their digit goes."""
    for i in repeated(range(first, last), 4):
        word = source[i]
        digit = int64(digit_of(word, SHIFT, BITS))
        to = int64(slots[digit])
        slots[digit] = uint32(to + 1)
        target[to] = word
        if WIDE:
            target_origins[to] = source_origins[i]


def deal_row(source: Any, source_origins: Any, target: Any, target_origins: Any, slots: Any, n: Any, SHIFT: Any, BITS: Any,
             WIDE: Any) -> Any:  # fmt: skip
    """Deal a whole row by one digit; `slots` hold how often each of its values occurs."""
    total = uint32(0)
    for b in rolled(range(1 << BITS)):
        count = slots[b]
        slots[b] = total
        total += count
    deal(source, source_origins, target, target_origins, slots, 0, n, SHIFT, BITS, WIDE)


def digit_of(word: Any, SHIFT: Any, BITS: Any) -> Any:
    return word >> SHIFT & ((1 << BITS) - 1)


def finish(words: Any, origins: Any, bits: Any, values: Any, places: Any, first: Any, last: Any, WIDE: Any) -> Any:
    """Write places and elements in their final order."""
    for i in repeated(range(first, last), 4):
        if WIDE:
            place = int64(origins[i])
        else:
            place = int64(words[i] & 0xFFFFFFFF)
        places[i] = place
        values[i] = bits[place]


@kernel(aliased=True)
def long_keys(chunk: Any, a: Any, words: Any, origins: Any, n: Any, flip: Any, *, WIDE: bool = False) -> Any:
    """The words of one piece of a long row."""
    for i in range(chunk * PIECE, min(n, (chunk + 1) * PIECE)):
        words[i] = word_at(a, i, flip, WIDE)
        if WIDE:
            origins[i] = uint32(i)


@kernel
def long_counts(chunk: Any, words: Any, counts: Any, n: Any, shift: Any) -> Any:
    """How often each digit occurs in one piece."""
    mine = counts + (chunk << 11)
    by = uint64(shift)
    for b in range(1 << 11):
        mine[b] = uint32(0)
    for i in range(chunk * PIECE, min(n, (chunk + 1) * PIECE)):
        digit = int64(digit_of(words[i], by, 11))
        mine[digit] = mine[digit] + uint32(1)


@kernel
def long_offsets(chunk: Any, counts: Any, alone: Any, chunks: Any, n: Any) -> Any:
    """Counts become the place where each piece puts its first element with a digit; `alone`: there is but one digit."""
    total = uint32(0)
    alone[0] = 0
    for b in range(1 << 11):
        before = total
        for c in range(chunks):
            at = (c << 11) + b
            count = counts[at]
            counts[at] = total
            total += count
        if int64(total - before) == n:
            alone[0] = 1


@kernel(aliased=True)
def long_deal(chunk: Any, words: Any, origins: Any, target: Any, target_origins: Any, counts: Any, n: Any, shift: Any, *,
              WIDE: bool = False) -> Any:  # fmt: skip
    """Deal one piece."""
    first, last = chunk * PIECE, min(n, (chunk + 1) * PIECE)
    deal(words, origins, target, target_origins, counts + (chunk << 11), first, last, uint64(shift), 11, WIDE)


@kernel(aliased=True)
def long_results(chunk: Any, words: Any, origins: Any, bits: Any, values: Any, places: Any, n: Any, *, WIDE: bool = False) -> Any:
    """Write one piece of the result."""
    finish(words, origins, bits, values, places, chunk * PIECE, min(n, (chunk + 1) * PIECE), WIDE)
