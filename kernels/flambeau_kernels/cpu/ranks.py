"""The element of a given rank in each row, without sorting it.

Keys are looked at digit by digit from the top: counting tells which digit the wanted element has, and only the
elements with that digit stay, in the order they had. What is left in the end are equal elements, so among them the
rank names the place that a stable sort would give.

Source: Knuth, TAOCP volume 3, section 5.2.2, exercise 31 (radix exchange, descending into one side only).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import int64, kernel, local, uint32, uint64

from .keys import is_wide
from .radix import word_at

__all__ = ["best", "place_of_rank"]

WORK = 1 << 14                                       # elements per chunk
BITS = 11                                            # of a digit; rows too short for 2048 buckets use 256


def place_of_rank(a: np.ndarray, ranks: np.ndarray, descending: bool = False) -> np.ndarray:
    """``(rows, n)`` in C order, ``(rows)`` int64 from 0: where the stable order of each row has its element of that rank."""
    rows, n = a.shape
    each = max(1, WORK // n)
    chunks = -(-rows // each)
    wide = is_wide(a.dtype)
    words, origins = np.empty(chunks * n, np.uint64), np.empty(chunks * n if wide else 0, np.uint32)
    places = np.empty(rows, np.int64)
    bits, flip = BITS if n >= 2048 else 8, -1 if descending else 0
    find.run(chunks, a, ranks, places, words, origins, n, rows, each, bits, flip, WIDE=wide, release=a.size > WORK)
    return places


def best(a: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """``(rows, n)`` in C order: the places of the `k` first elements of the stable order of each row, rising."""
    rows, n = a.shape
    last = place_of_rank(a, np.full(rows, k - 1), largest)
    places = np.empty((rows, k), np.int64)
    each = max(1, WORK // n)
    collect.run(-(-rows // each), a, last, places, n, k, rows, each, -1 if largest else 0, WIDE=is_wide(a.dtype),
                release=a.size > WORK)  # fmt: skip
    return places


@kernel
def collect(chunk: Any, a: Any, last: Any, places: Any, n: Any, k: Any, rows: Any, each: Any, flip: Any, *, WIDE: bool = False) -> Any:
    """The places of what comes no later than the element at ``last[row]``."""
    for row in range(chunk * each, min(rows, chunk * each + each)):
        x, to, found = a + row * n, places + row * k, 0
        end = last[row]
        worst = word_at(x, end, flip, WIDE)
        for i in range(n):
            if found < k:                            # always, up to the last one
                word = word_at(x, i, flip, WIDE)
                to[found] = i
                if WIDE:                             # the places are not part of the words
                    found += int64((word < worst) | ((word == worst) & (i <= end)))
                else:
                    found += int64(word <= worst)


@kernel
def find(chunk: Any, a: Any, ranks: Any, places: Any, words: Any, origins: Any, n: Any, rows: Any, each: Any, bits: Any,
         flip: Any, *, WIDE: bool = False) -> Any:  # fmt: skip
    counts = local(uint32, 1 << BITS)
    mine, mine_origins = words + chunk * n, origins + chunk * n
    for row in range(chunk * each, min(rows, chunk * each + each)):
        for i in range(n):
            mine[i] = word_at(a + row * n, i, flip, WIDE)
            if WIDE:
                mine_origins[i] = uint32(i)
        rank, left, top = ranks[row], n, 64
        bottom = 0 if WIDE else 32
        while top > bottom and left > 1:
            shift = max(top - bits, bottom)
            width = top - shift
            for b in range(1 << width):
                counts[b] = uint32(0)
            for i in range(left):
                digit = int64(digit_at(mine, i, shift, width))
                counts[digit] = counts[digit] + uint32(1)
            chosen = 0
            while rank >= int64(counts[chosen]):
                rank -= int64(counts[chosen])
                chosen += 1
            kept = 0
            for i in range(left):
                if int64(digit_at(mine, i, shift, width)) == chosen:
                    mine[kept] = mine[i]
                    if WIDE:
                        mine_origins[kept] = mine_origins[i]
                    kept += 1
            left = kept
            top = shift
        if WIDE:
            places[row] = int64(mine_origins[rank])
        else:
            places[row] = int64(mine[rank] & 0xFFFFFFFF)


def digit_at(words: Any, i: Any, shift: Any, width: Any) -> Any:
    return words[i] >> uint64(shift) & ((uint64(1) << uint64(width)) - uint64(1))
