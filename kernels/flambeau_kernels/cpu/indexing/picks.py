"""Slices and elements picked by an index that is checked on the way.

Reading the whole index for its range first would double the work on it. So some places are looked at, in vectors, just before
they are used; if one is out of range they are not, this is remembered, and nothing comes of the whole call: None, and the
caller looks for what to complain about. Elements travel as unsigned integers of their size, slices in the widest unit that
divides them.

What is picked lies anywhere, so the processor cannot guess which memory is needed next; it is told: of slices two ahead the
whole slice, of elements of a row the next row, where so many are picked that most of its cache lines are wanted anyway, and of that
a few lines at a time, for no more can be on their way at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    independent,
    int64,
    kernel,
    load,
    local,
    outlined,
    prefetch,
    rolled,
    store,
    uint64,
    unroll,
    widened,
)
from flambeau_kernels.engines import kept
from flambeau_kernels.vocabulary import where

from ..sorting.keys import BITS_OF
from .index import shared_out

__all__ = ["gather_rows", "take"]

LINE = 64                                            # bytes of a cache line
AHEAD = 2                                            # slices
PART = 64                                            # places of a row with which a share of the next row is asked for
BLOCK = 1 << 10                                      # places looked at before they are used
TOGETHER = 4                                         # rows of which one element each is picked together
GROUP = 4                                            # vectors of a register's half that are copied together


def take(a: np.ndarray, dim: int, index: np.ndarray, negative: bool = False) -> np.ndarray | None:
    """The slices of `a` at the vector `index` along `dim`, both in C order and not empty; None if a place is out of range.

    Args:
        negative: whether places below zero count from the end.
    """
    shape, count, n = a.shape, len(index), a.shape[dim]
    made = np.empty((*shape[:dim], count, *shape[dim + 1 :]), a.dtype)
    rows = math.prod(shape[:dim]) * count
    size = made.nbytes // rows
    unit = 8 if size % 8 == 0 else next(u for u in (4, 2, 1) if size % u == 0)
    width = size // unit
    each, wrong = shared_out(rows, width), np.zeros(1, np.int64)
    _taking(unit, index.dtype)(-(-rows // each), False, a, index, made, wrong, count, n, rows, width, each, n if negative else 0)
    return None if wrong[0] else made


@kept()
def _taking(unit: int, index: np.dtype) -> Any:
    """`take_slices` as it is called, which looks at nothing of an array but where it lies."""
    bits = np.dtype(BITS_OF[unit])
    return take_slices.form((bits, index, bits, np.dtype(np.int64), *[int] * 6), {})


@kernel
def take_slices(chunk: Any, source: Any, index: Any, target: Any, wrong: Any, count: Any, n: Any, rows: Any, width: Any,
                each: Any, wrap: Any) -> Any:  # fmt: skip
    LANES = 32 // (widened(source).bits // 8)
    row, last = chunk * each, min(rows, chunk * each + each)
    worst = uint64(0)
    while row < last:                                # the slices of one outer position at a time
        outer = row // count
        stop = min(last, (outer + 1) * count)
        base, places, to = source + outer * n * width, index + (row - outer * count), target + row * width
        if width == 1 and row == outer * count and row + TOGETHER * count <= last:
            worst = max(worst, pick_some(base, places, to, count, n, wrap, TOGETHER, count))
            stop = row + TOGETHER * count
        elif width == 1:
            worst = max(worst, pick_some(base, places, to, stop - row, n, wrap, 1, count))
        else:
            for k in range(stop - row):
                place = from_end(places[k], wrap)
                worst = max(worst, place)
                copy_slice(to + k * width, base + within(place, n) * width,
                           base + within(from_end(places[min(k + AHEAD, stop - row - 1)], wrap), n) * width, width, LANES)
        row = stop
    if worst >= uint64(n):
        wrong[0] = 1


def copy_slice(to, slice_of, later, width, LANES):
    """Copy `width` elements, and ask for those of the slice that comes `later`."""
    c = 0
    while c + GROUP * LANES <= width:
        for g in unroll(range(GROUP)):
            if g % 2 == 0:
                prefetch(later + (c + g * LANES))
            store(to, c + g * LANES, load(slice_of, c + g * LANES, LANES))
        c += GROUP * LANES
    if c < width:
        prefetch(later + c)
        for rest in independent(range(c, width)):
            to[rest] = slice_of[rest]


def pick_some(base, places, to, count, n, wrap, ROWS, step):
    """Pick `count` elements of each of some rows of `n`, which come `step` apart; the largest place, as `from_end` has it, is returned."""
    worst, largest = uint64(0), local(uint64, 1)
    for start in rolled(range(0, count, BLOCK)):
        some, into, size = places + start, to + start, min(count - start, BLOCK)
        outlined(largest_place)(some, size, 0, largest)
        if largest[0] < uint64(n):
            for k in rolled(range(size)):            # loads apart are no quicker in vectors
                place = int64(some[k])
                for r in unroll(range(ROWS)):
                    into[r * step + k] = base[r * n + place]
        else:
            outlined(largest_place)(some, size, wrap, largest)
            if largest[0] < uint64(n):
                for k in rolled(range(size)):
                    place = int64(from_end(some[k], wrap))
                    for r in unroll(range(ROWS)):
                        into[r * step + k] = base[r * n + place]
        worst = max(worst, largest[0])
    return worst


def largest_place(places, size, wrap, largest):
    """``largest[0]`` becomes the largest place, as `from_end` has it: one loop in vectors, which all that pick share."""
    last = uint64(0)
    for k in range(size):
        last = max(last, from_end(places[k], wrap))
    largest[0] = last


def from_end(place: Any, wrap: Any) -> Any:
    """A place, below zero `wrap` further on, as a number that is large if it is still below zero."""
    i = int64(place)
    return uint64(where(i < 0, i + wrap, i))


def within(place: Any, n: Any) -> Any:
    return int64(min(place, uint64(n - 1)))


def gather_rows(a: np.ndarray, index: np.ndarray, negative: bool = False) -> np.ndarray | None:
    """The elements of each row of `a` at the places in that of `index`, both in C order and not empty; else as `take`.

    Elements are of at most eight bytes; `index` has the shape of `a` except in the last dimension.
    """
    length, n, size = index.shape[-1], a.shape[-1], a.itemsize
    made, wrong = np.empty(index.shape, a.dtype), np.zeros(1, np.int64)
    rows = index.size // length
    each = shared_out(rows, length)
    # Reading ahead pays where it brings few lines that nothing is picked from, and the row is not gone when its turn comes.
    ahead = n if n * size <= length * LINE and n * size <= 1 << 17 else 0
    _gathering(size, index.dtype)(-(-rows // each), False, a, index, made, wrong, rows, length, n, each, n if negative else 0, ahead,
                                  LINE // size)  # fmt: skip
    return None if wrong[0] else made


@kept()
def _gathering(size: int, index: np.dtype) -> Any:
    bits = np.dtype(BITS_OF[size])
    return gather_in_rows.form((bits, index, bits, np.dtype(np.int64), *[int] * 7), {})


@kernel
def gather_in_rows(chunk: Any, source: Any, index: Any, target: Any, wrong: Any, rows: Any, length: Any, n: Any, each: Any,
                   wrap: Any, ahead: Any, line: Any) -> Any:  # fmt: skip
    worst = uint64(0)
    part = PART if ahead != 0 else length
    lines = (ahead * part // length + line - 1) // line * line  # elements of the lines asked for with each part of a row
    for row in range(chunk * each, min(rows, chunk * each + each)):
        base, places, to = source + row * n, index + row * length, target + row * length
        asked = 0 if row + 1 < rows else ahead
        for at in range(0, length, part):
            until = min(ahead, asked + lines)
            for c in rolled(range(asked, until, line)):
                prefetch(base + (n + c))
            asked = max(asked, until)
            worst = max(worst, pick_some(base, places + at, to + at, min(part, length - at), n, wrap, 1, 0))
    if worst >= uint64(n):
        wrong[0] = 1
