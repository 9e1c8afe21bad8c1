"""Ranks of elements in lines: all of a short line, or the element of one rank in a long one.

In a short line the rank of an element is how many keys come before its own, counted in whole vectors: the square of the
length, but without a branch or a table. In a long one two keys of a small sample enclose the wanted rank; what lies outside is
dropped, in one pass that counts and one that keeps, until the rest is short. Should the sample mislead too often, the range
of keys is halved instead. What is left keeps its order, so among equal elements the rank names the place that a stable sort
would give.

Source: Floyd and Rivest 1975, "Expected Time Bounds for Selection", CACM 18(3).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    brief,
    broadcast,
    independent,
    int32,
    int64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    outlined,
    repeated,
    rolled,
    store,
    uint64,
    vector,
)
from flambeau_kernels.engines import kept
from flambeau_kernels.vocabulary import where

from .keys import BITS_OF, is_wide, key_at

__all__ = ["MOST_COUNTED", "ROOM", "best", "keys_of", "last_key", "median_rank", "order_of", "place_at", "place_of_rank", "ranked_lines"]

WORK = 1 << 14                                       # elements per chunk
MOST_COUNTED = 96                                             # elements of a line that are ranked by counting; in whole pairs of vectors
SAMPLE = 64
ROOM = 64                                            # keys behind a line for whole vectors
BESIDE = 8                                           # keys of a sample on each side of the wanted rank: twice their deviation
TRIES = 8                                            # samples before keys are halved


# -- in kernels ----------------------------------------------------------------------------------------------------------


def last_key(KEY):
    """The key that no other one comes after, which is that of nan."""
    return KEY((1 << (KEY.bits - 1)) - 1)


def keys_of(p, step, n, keys, flip):
    """The keys of a line, whose elements are `step` apart."""
    if step == 1:
        for j in independent(range(n)):
            keys[j] = key_at(p, j) ^ flip
    else:
        for j in rolled(range(n)):
            keys[j] = key_at(p, j * step) ^ flip


def rank_of_each(keys, n, ranks, KEY):
    """``ranks[j]``, int32, becomes how many of the up to `MOST_COUNTED` keys are less than key `j`. Both have room for `MOST_COUNTED`."""
    if KEY is int64:
        low, high = keys[0], keys[0]
        for j in brief(range(n)):
            low, high = min(low, keys[j]), max(high, keys[j])
        # Most integers lie close enough together for lanes of half the size.
        if uint64(high - low) < uint64(1 << 31):
            narrow = local(int32, MOST_COUNTED)
            for j in brief(range(n)):
                narrow[j] = int32(keys[j] - low)
            count_less(narrow, n, ranks, int32)
        else:
            count_less(keys, n, ranks, KEY)
    else:
        count_less(keys, n, ranks, KEY)


def count_less(keys, n, ranks, KEY):
    N = lanes(KEY)
    FULL = vector(int32, N)
    one, none = broadcast(KEY(1), N), broadcast(KEY(0), N)
    for first in range(0, n, 2 * N):                 # what lies behind the keys is ranked as well, and means nothing
        left, right = load(keys, first, N), load(keys, first + N, N)
        before, also = none, none
        for j in repeated(range(n), 4):
            other = broadcast(keys[j], N)
            before = before + where(other < left, one, none)
            also = also + where(other < right, one, none)
        store(ranks, first, FULL(before))
        store(ranks, first + N, FULL(also))


def order_of(keys, n, ranks, places, KEY):
    """The places of up to `MOST_COUNTED` keys in order, equal ones in the order they have; room as for `rank_of_each`."""
    outlined(rank_of_each)(keys, n, ranks, KEY)
    slots = local(int32, MOST_COUNTED)
    for j in range(n):
        slots[j] = int32(j)
    for j in rolled(range(n)):                       # equal keys have the rank of the first of them
        rank = int64(ranks[j])
        to = slots[rank]
        slots[rank] = to + int32(1)
        places[int64(to)] = j


def median_rank(keys, n, KEY, WHICH, FLOATING):
    """Where in order the lower median is: met, the first nan is the median; skipped ('nanmedian'), nans shorten the line."""
    rank = (n - 1) // 2
    if FLOATING:
        nan, missing = last_key(KEY), 0
        for j in brief(range(n)):
            missing += int64(keys[j] == nan)
        if missing > 0:
            numbers = n - missing
            rank = max(numbers - 1, 0) // 2 if WHICH == "nanmedian" else numbers
    return rank


def place_at(keys, at, n, rank, KEY):
    """The place of the element of this rank, from 0. `keys` have room behind the `n`, `at` is of 2 `n` int32; both are used up."""
    N = lanes(KEY)
    sample, ranks, order = local(KEY, SAMPLE), local(int32, MOST_COUNTED), local(int64, SAMPLE)
    one, none = broadcast(KEY(1), N), broadcast(KEY(0), N)
    chosen = at + n
    # All that are left have keys from `least` to `most`.
    left, tried, wanted = n, 0, rank
    least, most = KEY(-1) - last_key(KEY), last_key(KEY)
    while left > MOST_COUNTED and least < most:
        low, high = least, (least & most) + ((least ^ most) >> 1)
        if tried < TRIES:
            for j in rolled(range(SAMPLE)):
                sample[j] = keys[(j * left + left // 2) // SAMPLE]
            order_of(sample, SAMPLE, ranks, order, KEY)
            middle = wanted * SAMPLE // left
            # Every third time one key, which is gone from what is left, whatever the others are.
            beside = BESIDE if tried % 3 < 2 else 0
            if middle >= beside:
                low = sample[order[middle - beside]]
            high = most
            if middle + beside < SAMPLE:
                high = sample[order[middle + beside]]
        store(keys, left, broadcast(last_key(KEY), N))
        lows, highs = broadcast(low, N), broadcast(high, N)
        less, upto = none, none
        for j in repeated(range(0, left, N), 4):
            some = load(keys, j, N)
            less = less + where(some < lows, one, none)
            upto = upto + where(some <= highs, one, none)
        below, within = int64(lane_sum(less)), min(int64(lane_sum(upto)), left)  # as places, counts are int32
        if wanted < below:
            most = low - KEY(1)
        elif wanted < within:
            least = low
            most = high
            wanted -= below
        else:
            least = high + KEY(1)
            wanted -= within
        kept = 0
        for j in repeated(range(left), 4):
            chosen[kept] = int32(j)
            key = keys[j]
            kept += int64((key >= least) & (key <= most))
        for j in rolled(range(kept)):
            place = int64(chosen[j])
            keys[j] = keys[place]
            at[j] = chosen[j] if tried == 0 else at[place]
        left = kept
        tried += 1
    found = wanted
    if least < most:
        outlined(rank_of_each)(keys, left, ranks, KEY)
        top = int32(0)
        for j in brief(range(left)):
            top = max(top, ranks[j] if int64(ranks[j]) <= wanted else int32(0))
        found, ahead = 0, wanted - int64(top)
        while ranks[found] != top or ahead > 0:      # of equal keys so many come first
            if ranks[found] == top:
                ahead -= 1
            found += 1
    if tried > 0:
        found = int64(at[found])
    return found


# -- kernels -------------------------------------------------------------------------------------------------------------


def place_of_rank(a: np.ndarray, ranks: np.ndarray, descending: bool = False) -> np.ndarray:
    """``(rows, n)`` in C order, ``(rows)`` int64 from 0: where the stable order of each row has its element of that rank."""
    rows, n = a.shape
    return _found(a, rows, n, 1, "ranks", ranks, -1 if descending else 0)[1].reshape(rows)


def ranked_lines(a: np.ndarray, dim: int, which: str, ranks: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Of each line of `a` (C order, not empty) along `dim` one element and its place; `dim` is kept as 1.

    Args:
        which: 'median', 'nanmedian', or 'ranks': those of `ranks`, int64, from 0, one a line.
    """
    shape = a.shape
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    values, places = _found(a, outer, shape[dim], inner, which, np.zeros(1, np.int64) if ranks is None else ranks, 0)
    kept = (*shape[:dim], 1, *shape[dim + 1 :])
    return values.reshape(kept), places.reshape(kept)


def _found(a: np.ndarray, outer: int, n: int, inner: int, which: str, ranks: np.ndarray, flip: int) -> tuple[np.ndarray, np.ndarray]:
    lines = outer * inner
    each = max(1, WORK // n)
    chunks = -(-lines // each)
    values, places = np.empty(lines, a.dtype), np.empty(lines, np.int64)
    keys, at = np.empty(chunks * (n + ROOM), np.int64 if is_wide(a.dtype) else np.int32), np.empty(chunks * 2 * n, np.int32)
    _finding(a.dtype, which)(chunks, a.size > WORK, a, a, values, ranks, places, keys, at, n, inner, lines, each, flip)
    return values, places


@kept()
def _finding(dtype: np.dtype, which: str) -> Any:
    bits, wide, i8 = BITS_OF[dtype.itemsize], is_wide(dtype), np.dtype(np.int64)
    types = (dtype, bits, bits, i8, i8, i8 if wide else np.dtype(np.int32), np.dtype(np.int32), *[int] * 5)
    return find.form(types, {"WHICH": which, "KEY": int64 if wide else int32, "FLOATING": dtype.kind not in "iub"})


@kernel(aliased=True)
def find(chunk: Any, a: Any, bits: Any, values: Any, ranks: Any, places: Any, keys: Any, at: Any, n: Any, inner: Any, lines: Any,
         each: Any, flip: Any, *, WHICH: str, KEY: Any, FLOATING: bool) -> Any:  # fmt: skip
    mine, mine_at = keys + chunk * (n + ROOM), at + chunk * 2 * n
    for line in range(chunk * each, min(lines, chunk * each + each)):
        start = (line // inner) * n * inner + line % inner
        keys_of(a + start, inner, n, mine, KEY(flip))
        rank = ranks[0]
        if WHICH == "ranks":
            rank = ranks[line]
        else:
            rank = median_rank(mine, n, KEY, WHICH, FLOATING)
        place = place_at(mine, mine_at, n, rank, KEY)
        places[line] = place
        values[line] = bits[start + place * inner]


def best(a: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """``(rows, n)`` in C order: the places of the `k` first elements of the stable order of each row, rising."""
    rows, n = a.shape
    last = place_of_rank(a, np.full(rows, k - 1), largest)
    places = np.empty((rows, k), np.int64)
    each = max(1, WORK // n)
    collect.run(-(-rows // each), a, last, places, n, k, rows, each, -1 if largest else 0, KEY=int64 if is_wide(a.dtype) else int32,
                release=a.size > WORK)  # fmt: skip
    return places


@kernel
def collect(chunk: Any, a: Any, last: Any, places: Any, n: Any, k: Any, rows: Any, each: Any, flip: Any, *, KEY: Any) -> Any:
    """The places of what comes no later than the element at ``last[row]``."""
    for row in range(chunk * each, min(rows, chunk * each + each)):
        x, to, found = a + row * n, places + row * k, 0
        end = last[row]
        worst = key_at(x, end) ^ KEY(flip)
        for i in range(n):
            if found < k:                            # always, up to the last one
                key = key_at(x, i) ^ KEY(flip)
                to[found] = i
                found += int64((key < worst) | ((key == worst) & (i <= end)))
