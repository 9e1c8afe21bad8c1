"""Sorting, selecting and counting elements of arrays. nan counts as larger than every number.

Of equal elements the first comes first, in descending order too. Compiled kernels (`radix`, `topk`) do the work
where the dtype has a sort key; numpy does it for the rest, for little and where nothing is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...quiet import ignore_fp_flags, restore_fp_flags
from ..reductions.softmax import widen
from ..shapes.move import contiguous
from ..tier import compiles

__all__ = [
    "argsort", "bisect", "count_bins", "count_values", "distinct", "extent", "first_of_runs", "kth", "median", "mode",
    "order_rows", "places_in_bins", "runs", "sort", "topk",
]  # fmt: skip


COMPILED_FROM = 64                                   # elements; numpy sorts fewer sooner than a kernel is found
RUNS_COMPILED_FROM = 8192
_KEYED = "?bBhHilIfdeE"                              # kinds of elements with a sort key; E is bfloat16
_MOST = (1 << 31) - 1


def _runs_compiled(a: np.ndarray, dim: int) -> bool:
    return a.size >= COMPILED_FROM and a.shape[dim] <= _MOST and a.dtype.char in _KEYED and compiles()


def _rows(a: np.ndarray, dim: int) -> np.ndarray:
    """The lines along `dim` as rows of a matrix in C order."""
    lines = a if dim in (-1, a.ndim - 1) else np.moveaxis(a, dim, -1)
    return contiguous(lines).reshape(-1, a.shape[dim])


def _back(made: np.ndarray, a: np.ndarray, dim: int) -> np.ndarray:
    """Rows put back as lines along `dim` of an array like `a`."""
    if dim in (-1, a.ndim - 1):
        return made.reshape(*a.shape[:-1], made.shape[1])
    dim %= a.ndim
    shape = (*a.shape[:dim], *a.shape[dim + 1 :], made.shape[1])
    return contiguous(np.moveaxis(made.reshape(shape), -1, dim))


def at_places(a: np.ndarray, places: np.ndarray, dim: int) -> np.ndarray:
    """The elements of each line along `dim` at `places`, which are not negative: ``np.take_along_axis``, sooner for few elements."""
    if a.ndim == 1:
        return a[places]
    if dim % a.ndim == a.ndim - 1 and a.size and a.flags.c_contiguous:
        starts = np.arange(0, a.size, a.shape[-1]).reshape(*a.shape[:-1], 1)
        return a.reshape(-1)[places + starts]
    return np.take_along_axis(a, places, dim)


def argsort(a: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The stable order of the elements along `dim`."""
    if a.ndim and _runs_compiled(a, dim):
        return sort(a, dim, descending)[1]
    x = widen(a)
    if not descending or a.shape[dim] < 2:            # of one element, reversing would leave a negative stride alone
        return np.argsort(x, dim, kind="stable")
    # Reversed before and after, so that equal elements keep their order.
    order = np.argsort(np.flip(x, dim), dim, kind="stable")
    return np.flip(np.subtract(a.shape[dim] - 1, order, out=order), dim)


def sort(a: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    """The elements in order along `dim`, and where they came from."""
    if a.ndim == 0:
        return a.copy(), np.zeros((), np.int64)
    if _runs_compiled(a, dim):
        from .radix import sort_rows

        values, order = sort_rows(_rows(a, dim), descending)
        return _back(values, a, dim), _back(order, a, dim)
    order = contiguous(argsort(a, dim, descending))
    return at_places(a, order, dim), order


def topk(a: np.ndarray, k: int, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The `k` largest (or smallest) elements along `dim` in order, and where they are."""
    if a.ndim == 0:
        return a.copy()[()] if k else a.copy(), np.zeros((), np.int64)
    if k > 0 and (k * 4 < a.shape[dim] or k == 1) and _runs_compiled(a, dim):
        from .topk import topk as select

        values, places = select(_rows(a, dim), k, largest)
        return _back(values, a, dim), _back(places, a, dim)
    order = contiguous(argsort(a, dim, largest).take(np.arange(k), dim))
    return at_places(a, order, dim), order


def kth(a: np.ndarray, k: Any, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The element of rank `k` (from 0; an int, or an array with one rank per line) along `dim`, and where it is; `dim` is kept as 1.

    Of equal elements it is the one that the stable order has there.
    """
    if _runs_compiled(a, dim):
        from .ranks import ranked_lines

        ranks = np.empty([1 if d == dim % a.ndim else n for d, n in enumerate(a.shape)], np.int64)
        ranks[...] = k
        return ranked_lines(contiguous(a), dim % a.ndim, "ranks", ranks)
    return _at_rank(a, k, dim)


def _at_rank(a: np.ndarray, k: Any, dim: int) -> tuple[np.ndarray, np.ndarray]:
    ranks = np.broadcast_to(k, [1 if d == dim % a.ndim else n for d, n in enumerate(a.shape)])
    at = at_places(np.argsort(widen(a), dim, kind="stable"), ranks, dim)
    return at_places(a, at, dim), at


def median(a: np.ndarray, dim: int, skip_nan: bool) -> tuple[np.ndarray, np.ndarray]:
    """The lower median along `dim`, and where it is; `dim` is kept as 1. nan if there is one, unless it is skipped."""
    if _runs_compiled(a, dim):
        from .ranks import ranked_lines

        return ranked_lines(contiguous(a), dim % a.ndim, "nanmedian" if skip_nan else "median")
    n = a.shape[dim]
    rank: Any = (n - 1) // 2
    missing = np.isnan(a).sum(dim, keepdims=True) if a.dtype.kind not in "iub" else None
    if missing is not None and missing.any():
        # nan sorts last: skipped, it shortens the line; met, the first of it is the median.
        rank = np.where(missing == n, 0, (n - missing - 1) // 2) if skip_nan else np.where(missing > 0, n - missing, rank)
    return _at_rank(a, rank, dim)


def mode(a: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The most frequent element along `dim`, the smallest of several, and the last place it has; `dim` is kept as 1."""
    lines = np.moveaxis(a, dim, -1)
    n = lines.shape[-1]
    values, order = sort(lines, -1, False)
    starts = np.ones(values.shape, np.bool_)
    starts[..., 1:] = values[..., 1:] != values[..., :-1]
    # How many equals end at each place; the first place with the most is the end of the best run.
    length = np.arange(n) - np.maximum.accumulate(np.where(starts, np.arange(n), 0), -1)
    best = length.argmax(-1)[..., None]
    at = np.take_along_axis(order, best, -1)
    dim %= a.ndim
    shape = (*a.shape[:dim], 1, *a.shape[dim + 1 :])
    return np.take_along_axis(lines, at, -1).reshape(shape), at.reshape(shape)


def order_rows(rows: np.ndarray) -> np.ndarray:
    """The stable order of the rows of a matrix, compared element by element from the first.

    A few columns tell most rows apart: others are looked at as long as there are rows that agree so far.
    """
    n, columns = rows.shape
    order, rank = np.arange(n), np.zeros(n, np.int64)
    first, count = 0, 4
    while first < columns:
        part = widen(rows[:, first : first + count])
        order = np.lexsort((*part.T[::-1], rank))
        after, before = part[order[1:]], part[order[:-1]]
        ranks = rank[order]
        differ = (ranks[1:] != ranks[:-1]) | ~((after == before) | (after != after) & (before != before)).all(1)
        if differ.all():
            break
        rank[order[1:]] = np.cumsum(differ)
        rank[order[:1]] = 0
        first, count = first + count, 2 * count
    return order


def runs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each run of equal neighbouring rows starts, the run each row is in, and how long the runs are."""
    n = rows.shape[0]
    if rows.ndim == 1 and n >= RUNS_COMPILED_FROM and rows.dtype.char in _KEYED and rows.flags.c_contiguous and compiles():
        from .counting import first_of_runs

        first = first_of_runs(rows, False)
        run = np.zeros(n, np.int64)
        run[first[1:]] = 1
        return first, np.cumsum(run, out=run), np.diff(first, append=n)
    starts = np.ones(n, np.bool_)
    if n:
        starts[1:] = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim))) if rows.ndim > 1 else rows[1:] != rows[:-1]
    first = np.flatnonzero(starts)
    return first, np.cumsum(starts) - 1, np.diff(np.append(first, n))


def first_of_runs(a: np.ndarray, values: bool) -> np.ndarray:
    """Where runs of equal neighbours begin in a vector, not empty, or the `values` there."""
    if a.size >= RUNS_COMPILED_FROM and a.dtype.char in _KEYED and a.flags.c_contiguous and compiles():
        from .counting import first_of_runs as compiled

        return compiled(a, values)
    starts = np.empty(a.size, np.bool_)
    starts[0] = True
    np.not_equal(a[1:], a[:-1], starts[1:])
    return a[starts] if values else starts.nonzero()[0]


def distinct(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct elements of a vector in order, the place of each element among them, and how often each occurs."""
    if flat.dtype.char in "bBhHil" and flat.size >= COMPILED_FROM and compiles():
        from ..indexing.index import extent

        flat = contiguous(flat)
        low, high = extent(flat)
        if high - low < 2 * flat.size:
            from .counting import ranks_of

            counts = count_values(flat, low, high - low + 1)
            held = np.flatnonzero(counts)
            rank = np.empty(len(counts), np.int64)
            rank[held] = np.arange(len(held))
            return (held + low).astype(flat.dtype), ranks_of(flat, low, rank), counts[held]
    values, order = sort(flat, 0, False)
    first, run, counts = runs(values)
    inverse = np.empty(len(order), np.int64)
    inverse[order] = run
    return values[first], inverse, counts


def extent(a: np.ndarray) -> tuple[int, int]:
    """The least and the largest of integers in C order, of which there are some."""
    if a.size >= COMPILED_FROM and compiles():
        from ..indexing.index import extent as compiled

        return compiled(a)
    return int(a.min()), int(a.max())


def count_values(a: np.ndarray, low: int, count: int) -> np.ndarray:
    """How often each of ``low ... low + count - 1`` occurs in the integers `a`, all of which are among these; int64."""
    if a.size >= COMPILED_FROM and count <= a.size and a.dtype.char in "bBhHil" and compiles():
        from .counting import tally

        return tally(contiguous(a), low, count)
    places = a.astype(np.int64, copy=False)  # differences of narrow integers may not fit
    return np.bincount((places - low if low else places).reshape(-1), minlength=count)


def count_bins(a: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many elements of `a` lie in each of the equal bins between `edges`: bins hold their left edge, the last one both."""
    bins = len(edges) - 1
    if a.size >= COMPILED_FROM and a.dtype.char in "feEd" and compiles() and _has_width(edges[0], edges[-1], bins):
        from .counting import histogram

        return histogram(contiguous(a), edges)
    return np.bincount(places_in_bins(widen(a).reshape(-1), edges.__getitem__, bins), minlength=bins)


def count_in_grid(points: np.ndarray, edges: list[np.ndarray], equal: bool = False) -> np.ndarray:
    """How many of the `points` ``(n, D)`` lie in each cell of the grid of `edges`, of which there are `equal` bins in each dimension.

    Bins hold their left edge, the last one both; nan and what lies outside are not counted. Returns: int64, a dimension for each of points.
    """
    shape = [len(e) - 1 for e in edges]
    if points.size >= COMPILED_FROM and compiles() and min(shape) > 0:
        from .counting import in_grid

        divisible = (*(equal and bool(_has_width(e[0], e[-1], n)) for e, n in zip(edges, shape, strict=True)),)
        return in_grid(contiguous(points), edges, divisible).reshape(shape)
    flat = np.zeros(points.shape[0], np.int64)
    inside = np.ones(points.shape[0], np.bool_)
    for d, e in enumerate(edges):
        at = bin_of(points[:, d], e, equal)
        inside &= at >= 0
        flat = flat * shape[d] + at
    return np.bincount(flat[inside], minlength=math.prod(shape)).reshape(shape)


def bin_of(x: np.ndarray, edges: np.ndarray, equal: bool = False) -> np.ndarray:
    """The bin of each element, -1 outside all; bins hold their left edge, the last one both. Those of `equal` bins are estimated."""
    inside = (x >= edges[0]) & (x <= edges[-1])
    if equal:
        at = np.full(x.shape, -1)
        at[inside] = places_in_bins(x, edges.__getitem__, len(edges) - 1)
        return at
    at = bisect(edges, x, True) - 1
    at[x == edges[-1]] = len(edges) - 2
    at[~inside] = -1
    return at


def places_in_bins(x: np.ndarray, edges: Callable[[np.ndarray], np.ndarray], bins: int) -> np.ndarray:
    """The bins of those elements of the vector `x` that lie in one of the equal `bins`; ``edges(i)`` are the edges numbered `i`."""
    first, last = edges(np.array([0, bins]))
    x = x[(x >= first) & (x <= last)]
    if not _has_width(first, last, bins):
        return np.full(x.shape, bins // 2) if first == last else _places_by_search(x, edges, bins)
    # Estimated by division, then put right by the edges.
    at = np.minimum(((x - first) * (bins / (last - first))).astype(np.int64), bins - 1)
    at -= x < edges(at)
    at += (x >= edges(np.minimum(at + 1, bins))) & (at < bins - 1)
    return at


def _has_width(first: Any, last: Any, bins: int) -> bool:
    """Whether a place can be estimated by division: the range is neither empty in its dtype nor as narrow as subnormal numbers."""
    token = ignore_fp_flags()
    try:
        return math.isfinite(bins / (last - first))
    finally:
        restore_fp_flags(token)


def _places_by_search(x: np.ndarray, edges: Callable[[np.ndarray], np.ndarray], bins: int) -> np.ndarray:
    """The last of the `bins` whose left edge is not above each element of `x`."""
    low, high = np.zeros(x.shape, np.int64), np.full(x.shape, bins)
    for _ in range(bins.bit_length()):
        middle = (low + high) // 2
        reached = x >= edges(middle)
        low, high = np.where(reached, middle, low), np.where(reached, high, middle)
    return np.minimum(low, bins - 1)


def bisect(rows: np.ndarray, values: np.ndarray, right: bool) -> np.ndarray:
    """How many elements of each sorted row come before each value; with `right`, equal ones included.

    Args:
        rows: ``(*batch, n)``, or ``(n,)`` for values of any shape.
        values: ``(*batch, m)``.
    """
    n = rows.shape[-1]
    pays = values.size >= COMPILED_FROM or rows.ndim > 1 and values.size  # numpy has a search in one row only
    if pays and values.ndim and n and rows.dtype is values.dtype and rows.dtype.char in _KEYED and compiles():
        from .counting import bisect as compiled

        found = np.empty(values.shape, np.int64)
        lines = contiguous(values).reshape(-1, values.shape[-1])
        compiled(contiguous(rows).reshape(-1, n), lines, right, found)
        return found
    rows, values = widen(rows), widen(values)
    # numpy's search puts nan last; where the sequence holds nan the comparisons decide, as in any bisection.
    if rows.ndim == 1 and (rows.dtype.kind != "f" or n and not np.isnan(rows).any()):
        return np.asarray(np.searchsorted(rows, values, "right" if right else "left"), np.int64)
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, n)
    for _ in range(n.bit_length()):
        middle = (low + high) >> 1
        at = np.minimum(middle, n - 1)
        found = rows[at] if rows.ndim == 1 else np.take_along_axis(rows, at, -1)
        after = ~(found > values if right else found >= values) & (low < high)
        low, high = np.where(after, middle + 1, low), np.where(after, high, np.where(low < high, middle, high))
    return low
