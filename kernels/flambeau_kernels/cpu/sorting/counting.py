"""Counting elements by value or by bin, and finding places in sorted rows, in compiled loops.

Counts are taken in `PARTS` parts of the elements, each with counters of its own, which are then added.
"""

from __future__ import annotations

import itertools
import math
from math import inf
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import float64, independent, int64, kernel, local, repeated, widened
from flambeau_kernels.engines import kept
from flambeau_kernels.vocabulary import where

from ..indexing.index import shared_out
from ..shapes.move import contiguous
from ..taking_over import late
from .keys import raw

__all__ = ["bisect", "counts_at_once", "first_of_runs", "histogram", "histogram_at_once", "in_grid", "ranks_of", "tally"]

PARTS = 4
SHARED = 1 << 14                                     # elements
TOGETHER = 16
PIECE = 1 << 13                                      # searches per chunk, which may take a hundred steps each


def tally(a: np.ndarray, low: int, count: int) -> np.ndarray:
    """How often each of ``low, low + 1, ... low + count - 1`` occurs in the integers `a` (C order, all of them among these)."""
    # Counters of a part are to be few beside its elements, which are to repay another thread.
    parts = max(1, min(PARTS, a.size // (4 * count), a.size // SHARED))
    counts = np.empty((parts, count), np.int64)
    _tallying(a.dtype)(parts, False, a, counts, a.size, -(-a.size // parts), low, count)
    return counts.sum(0) if parts > 1 else counts[0]


@kept()
def _tallying(dtype: np.dtype) -> Any:
    return tally_part.form((dtype, np.dtype(np.int64), *[int] * 4), {})


@kernel
def tally_part(chunk: Any, a: Any, counts: Any, n: Any, each: Any, low: Any, count: Any) -> Any:
    mine = counts + chunk * count
    for b in range(count):
        mine[b] = 0
    for i in repeated(range(chunk * each, min(n, chunk * each + each)), 4):
        at = int64(a[i]) - low
        mine[at] = mine[at] + 1


MOST_COUNTERS = 2048                                           # counters of `counts_at_once`


def _around(form: Any) -> Any:
    def run(a: np.ndarray, least: int) -> Any:
        counts, ends = np.empty(MOST_COUNTERS, np.int64), np.empty(2, np.int64)
        form(1, False, a, counts, ends, a.size, min(least, MOST_COUNTERS + 1))
        low, high = ends.tolist()
        return counts[: max(high + 1, least)].copy() if low >= 0 and max(high + 1, least) <= MOST_COUNTERS else None

    return run


@kernel
def tally_at_once(chunk: Any, a: Any, counts: Any, ends: Any, n: Any, least: Any) -> Any:
    low, high = a[0], a[0]
    for i in range(n):
        low = min(low, a[i])
        high = max(high, a[i])
    ends[0] = low
    ends[1] = high
    count = max(high + 1, least)
    if low >= 0 and high < MOST_COUNTERS and count <= MOST_COUNTERS:
        for b in range(count):
            counts[b] = 0
        for i in repeated(range(n), 4):
            counts[a[i]] = counts[a[i]] + 1


_INT = np.dtype(np.int64)
# ``counts_at_once(a, least)``: how often each of 0, 1, ... occurs in int64 in C order, up to the largest and for no fewer than
# `least`; None for negative numbers and for many counters, and until calls have shown that loading the kernel repays.
counts_at_once = late(tally_at_once, (_INT, _INT, _INT, int, int), {}, _around)


def first_of_runs(a: np.ndarray, values: bool) -> np.ndarray:
    """Where runs of equal neighbours begin in a vector in C order, not empty, or the `values` there; nan is equal to nothing."""
    each = shared_out(a.size, 1)
    chunks = -(-a.size // each)
    found, dtype = np.zeros(chunks + 1, np.int64), a.dtype if values else np.dtype(np.int64)
    if chunks > 1:
        count_starts.run(chunks, a, found, a.size, each)
        np.cumsum(found, out=found)
    else:
        found[1] = a.size                            # as many as there may be
    made = np.empty(int(found[-1]), dtype)
    find_starts.run(chunks, a, raw(a), found, raw(made), a.size, each, VALUES=values)
    return made if chunks > 1 else made[: int(found[1])].copy()


@kernel
def count_starts(chunk: Any, a: Any, found: Any, n: Any, each: Any) -> Any:
    first, total = chunk * each, 0
    if first == 0:
        total = 1
    for i in range(max(first, 1), min(n, first + each)):
        total += int64(a[i] != a[i - 1])
    found[chunk + 1] = total


@kernel(aliased=True)
def find_starts(chunk: Any, a: Any, bits: Any, found: Any, made: Any, n: Any, each: Any, *, VALUES: bool) -> Any:
    first, at, end = chunk * each, found[chunk], found[chunk + 1]
    kind = widened(made)
    if first == 0:
        made[0] = kind(0)
        if VALUES:
            made[0] = bits[0]
        at = 1
    for i in repeated(range(max(first, 1), min(n, first + each)), 4):
        if at < end:                                 # always, up to the last one: what is written past it is not ours
            if VALUES:
                made[at] = bits[i]
            else:
                made[at] = kind(i)
            at += int64(a[i] != a[i - 1])
    if each >= n:
        found[1] = at


def ranks_of(a: np.ndarray, low: int, rank: np.ndarray) -> np.ndarray:
    """``rank[a - low]`` for integers `a` in C order."""
    made = np.empty(a.shape, np.int64)
    look_up.run(-(-a.size // PIECE), a, rank, made, a.size, low)
    return made


@kernel
def look_up(chunk: Any, a: Any, rank: Any, made: Any, n: Any, low: Any) -> Any:
    for i in independent(range(chunk * PIECE, min(n, chunk * PIECE + PIECE))):
        made[i] = rank[int64(a[i]) - low]


def histogram(a: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many elements of the floating `a` (C order) lie in each of the equal bins between `edges`.

    Bins hold their left edge, the last one both; nan and what lies outside are not counted.
    """
    bins = len(edges) - 1
    parts = max(1, min(PARTS, a.size // SHARED))
    counts = np.empty((parts, bins), np.int64)
    scale = float(edges.dtype.type(bins) / (edges[-1] - edges[0]))
    histogram_part.run(parts, a, edges, counts, a.size, -(-a.size // parts), bins, scale)
    return counts.sum(0)


@kernel
def histogram_part(chunk: Any, a: Any, edges: Any, counts: Any, n: Any, each: Any, bins: Any, scale: Any) -> Any:
    mine, kind = counts + chunk * bins, widened(edges)
    for b in range(bins):
        mine[b] = 0
    first, last, factor = edges[0], edges[bins], kind(scale)
    for i in range(chunk * each, min(n, chunk * each + each)):
        x = a[i]
        if x >= first and x <= last:
            # Estimated by division, then put right by the edges.
            at = min(int64((x - first) * factor), bins - 1)
            if x < edges[at]:
                at -= 1
            if at < bins - 1 and x >= edges[at + 1]:
                at += 1
            mine[at] = mine[at] + 1


MOST_AT_ONCE = 1 << 14                                         # elements of `histogram_at_once`


def _around_histogram(form: Any) -> Any:
    def run(a: np.ndarray, bins: int, low: float, high: float) -> Any:
        edges, hist = np.empty(bins + 1, a.dtype), np.empty(bins, a.dtype)
        counts, ends = np.empty(bins, np.int64), np.empty(2)
        form(1, False, a, edges, hist, counts, ends, a.size, bins, low, high)
        return (hist, edges) if ends[0] < ends[1] else None

    return run


@kernel
def count_all_bins(chunk: Any, a: Any, edges: Any, hist: Any, counts: Any, ends: Any, n: Any, bins: Any, low: Any, high: Any) -> Any:
    """`ends` come out equal where a range is none that floating numbers can be divided by, and nothing is counted."""
    kind = widened(edges)
    first, last = kind(low), kind(high)
    unlike = 0                                       # nan, which are not equal to themselves
    if low == high:
        first, last = a[0], a[0]
        for i in range(n):
            first = where(a[i] < first, a[i], first)
            last = where(a[i] > last, a[i], last)
            unlike += int64(a[i] != a[i])
    ends[0] = 0.0
    ends[1] = 0.0
    factor = kind(bins) / (last - first)
    if first < last and factor > kind(0) and factor < kind(inf) and unlike == 0:
        ends[1] = 1.0
        # Evenly spaced from the nearer end, as `linspace` does: the step is rounded to the dtype, and so is each edge, once.
        step = float64((last - first) / kind(bins))
        for b in range(bins + 1):
            near = float64(first) + step * float64(b)
            far = float64(last) - step * float64(bins - b)
            edges[b] = kind(where(b < (bins + 1) // 2, near, far))
        for b in range(bins):
            counts[b] = 0
        for i in range(n):
            x = a[i]
            if x >= edges[0] and x <= edges[bins]:
                at = min(int64((x - edges[0]) * factor), bins - 1)
                if x < edges[at]:
                    at -= 1
                if at < bins - 1 and x >= edges[at + 1]:
                    at += 1
                counts[at] = counts[at] + 1
        for b in range(bins):
            hist[b] = kind(counts[b])


# By dtype, ``run(a, bins, low, high)``: how many elements of `a`, in C order and not empty, are in each of so many equal bins between
# `low` and `high`, or their extremes where these are equal, in the dtype of `a`, and the edges; None of ranges that are not usual, and
# until calls have shown that loading the kernel repays.
histogram_at_once = {
    dtype: late(count_all_bins, (dtype, dtype, dtype, _INT, np.dtype(np.float64), int, int, float, float), {}, _around_histogram)
    for dtype in map(np.dtype, "fd")
}


def in_grid(points: np.ndarray, edges: list[np.ndarray], equal: tuple[bool, ...]) -> np.ndarray:
    """How many of the `points` ``(n, D)`` (C order) lie in each cell of the grid of `edges`, the last dimension's side by side.

    Args:
        edges: of each dimension, ascending, of the dtype of `points`; at least two.
        equal: whether they are those of equal bins, of a range that floating numbers can be divided by.
    """
    sizes = [len(e) - 1 for e in edges]
    starts = np.array([0, *itertools.accumulate(map(len, edges))])
    scales = np.array([n / float(e[-1] - e[0]) if same else 0.0 for n, e, same in zip(sizes, edges, equal, strict=True)])
    cells = math.prod(sizes)
    # Counters of a part are to be few beside its points, which are to repay another thread.
    parts = max(1, min(PARTS, len(points) // (4 * cells), points.size // SHARED))
    counts = np.empty((parts, cells), np.int64)
    each = -(-len(points) // parts)
    joined = np.concatenate(edges) if len(edges) > 1 else contiguous(edges[0])
    _counting(points.dtype)(parts, False, points, joined, starts, scales, counts, len(points), each, len(edges), cells)
    return counts.sum(0) if parts > 1 else counts[0]


@kept()
def _counting(dtype: np.dtype) -> Any:
    return grid_part.form((dtype, dtype, np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.int64), *[int] * 4), {})


@kernel
def grid_part(chunk: Any, points: Any, edges: Any, starts: Any, scales: Any, counts: Any, n: Any, each: Any, dims: Any, cells: Any) -> Any:
    mine, kind = counts + chunk * cells, widened(edges)
    for c in range(cells):
        mine[c] = 0
    for i in range(chunk * each, min(n, chunk * each + each)):
        cell, inside = 0, 1
        for d in range(dims):
            x, e, bins = points[i * dims + d], edges + starts[d], starts[d + 1] - starts[d] - 1
            scale = scales[d]
            if x >= e[0] and x <= e[bins]:
                at = 0
                if scale > 0.0:
                    # Estimated by division, then put right by the edges.
                    at = min(int64((x - e[0]) * kind(scale)), bins - 1)
                    if x < e[at]:
                        at -= 1
                    if at < bins - 1 and x >= e[at + 1]:
                        at += 1
                else:
                    # The last edge before the last that is not above x: selecting beats branching.
                    left = bins
                    while left > 1:
                        half = left // 2
                        at += where(e[at + half] <= x, half, 0)
                        left -= half
                cell = cell * bins + at
            else:
                inside = 0
        if inside == 1:
            mine[cell] = mine[cell] + 1


def bisect(rows: np.ndarray, values: np.ndarray, right: bool, made: np.ndarray) -> None:
    """How many elements of each sorted row come before each value, with `right` equal ones included, into `made`.

    ``(batch, n), (batch, m) -> (batch, m)``, or one row ``(1, n)`` for all; all in C order, `rows` and `values` of one dtype.
    """
    n, m = rows.shape[-1], values.shape[-1]
    step = n if len(rows) > 1 else 0
    search.run(-(-values.size // PIECE), rows, values, made, values.size, n, m, step, TOGETHER, RIGHT=right)


@kernel
def search(chunk: Any, rows: Any, values: Any, made: Any, count: Any, n: Any, m: Any, step: Any, together: Any,
           *, RIGHT: bool = False) -> Any:  # fmt: skip
    kind = widened(made)
    # Several searches go down side by side: which way each goes is anyone's guess, so selecting beats branching.
    row, low, high = local(int64, TOGETHER), local(int64, TOGETHER), local(int64, TOGETHER)
    value = local(widened(values), TOGETHER)
    end = min(count, chunk * PIECE + PIECE)
    for first in range(chunk * PIECE, end, TOGETHER):
        for j in range(TOGETHER):
            i = min(first + j, end - 1)
            value[j] = values[i]
            low[j] = 0
            high[j] = n
            row[j] = 0
            if step > 0:
                row[j] = (i // m) * step
        # Halving exactly as one search alone would, since rows with nan in them are not sorted.
        left = n
        while left > 0:
            for j in independent(range(together)):         # not a constant: LLVM would unroll it into branches
                middle = (low[j] + high[j]) >> 1
                up = beyond(rows[row[j] + min(middle, n - 1)], value[j], RIGHT)
                going = low[j] < high[j]
                low[j] = where(going & ~up, middle + 1, low[j])
                high[j] = where(going & up, middle, high[j])
            left = left >> 1
        for j in range(min(TOGETHER, end - first)):
            made[first + j] = kind(low[j])


def beyond(x: Any, value: Any, RIGHT: Any) -> Any:
    return x > value if RIGHT else x >= value
