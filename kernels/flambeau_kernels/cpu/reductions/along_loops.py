"""The kernels of `along`: each sees a small array as ``(outer, n, inner)`` and works along the `n`, with numpy's bits.

Sums are added in numpy's order: neighbours (inner 1) by halves down to leaves of 128, in which eight partial sums take turns;
elements that lie apart one after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.calls.along import LENGTH, NONE, REDUCED, SAME, Task
from flambeau_kernels.engine.language import (
    bool8,
    brief,
    float32,
    float64,
    independent,
    int32,
    int64,
    kernel,
    local,
    rolled,
    unroll,
    widened,
)
from flambeau_kernels.scalar.symbols import KINDS, Kind
from flambeau_kernels.vocabulary import abs, ceil, exp, floor, log, log1p, maximum, minimum, sqrt, where

from ..sorting.keys import has_keys, is_wide, key_at
from ..sorting.ranks import MOST_COUNTED, ROOM, keys_of, median_rank, order_of, place_at
from ._tops import extreme_of
from .along import MOST
from .reduce import PARTS
from .reduce_loops import finished, identity_of, joined, term_of
from .softmax_loops import softmax_row

__all__ = ["TASKS"]

_INT64 = np.dtype(np.int64)
LEAF, LANES, DEPTH = 128, 8, 8
INF = float("inf")
_FLOATS, _HALVES = ("float32", "float64"), ("float16", "bfloat16")


def _kind(dtype: np.dtype) -> Kind:
    """What elements of `dtype` are computed in."""
    return float32 if dtype.name in _HALVES else KINDS[dtype.name]


def _known(dtype: np.dtype) -> bool:
    """Whether kernels have elements of `dtype`."""
    return dtype.name in KINDS or dtype.name in _HALVES


# -- sums in numpy's order -----------------------------------------------------------------------------------------------


def one_after_another(p, size, start):
    total = start
    for i in range(size):
        total = total + p[i]
    return total


def leaf_sum(p, size, KIND):
    """Up to 128 elements: eight partial sums, added in pairs, and the elements left over."""
    if size < LANES:
        total = one_after_another(p, size, KIND(-0.0))
    else:
        sums = local(KIND, LANES)
        for j in unroll(range(LANES)):
            sums[j] = p[j]
        i = LANES
        while i + LANES <= size:
            for j in unroll(range(LANES)):
                sums[j] = sums[j] + p[i + j]
            i += LANES
        total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
        total = one_after_another(p + i, size - i, total)
    return total


def sum_of(p, n, KIND):
    """The sum of `n` neighbours: halves, of whole eights, until they are leaves."""
    length, rest, left = local(int64, DEPTH), local(int64, DEPTH), local(KIND, DEPTH)
    length[0] = n
    depth, at = 0, 0
    total = KIND(0)
    going = True
    while going:
        while length[depth] > LEAF:
            half = (length[depth] >> 4) << 3
            rest[depth] = length[depth] - half
            depth += 1
            length[depth] = half
        total = leaf_sum(p + at, length[depth], KIND)
        at += length[depth]
        # A left half waits for the right one; a right half completes the whole.
        while depth > 0 and rest[depth - 1] == 0:
            depth -= 1
            total = left[depth] + total
        going = depth > 0
        if going:
            left[depth - 1] = total
            length[depth] = rest[depth - 1]
            rest[depth - 1] = 0
    return KIND(0) + total


def product_of(p, n, KIND):
    """The product of `n` neighbours: as `reduce.products_of_lines`."""
    total = KIND(1)
    i = 0
    if n >= PARTS:
        parts = local(KIND, PARTS)
        for j in unroll(range(PARTS)):
            parts[j] = p[j]
        i = PARTS
        while i + PARTS <= n:
            for j in unroll(range(PARTS)):
                parts[j] = parts[j] * p[i + j]
            i += PARTS
        for H in unroll((8, 4, 2, 1)):
            for j in unroll(range(H)):
                parts[j] = parts[j] * parts[H + j]
        total = parts[0]
    if i < n:
        rest = p[i]
        for j in range(i + 1, n):
            rest = rest * p[j]
        total = total * rest
    return total


def line_sum(p, n, COMBINE, KIND, START):
    """The elements of a line that lie side by side, combined as numpy does."""
    if COMBINE == "add" and KIND.family == "f":
        total = sum_of(p, n, KIND)
    elif COMBINE == "max" or COMBINE == "min":
        total = extreme_of(p, n, KIND, START, COMBINE == "max", False)
    elif COMBINE == "mul" and KIND.family == "f":
        total = product_of(p, n, KIND)
    else:
        total = KIND(START)
        for j in range(n):
            total = joined(total, p[j], COMBINE)
    return total


# -- one value per line --------------------------------------------------------------------------------------------------


def rounded(total, n, FINISH, KIND):
    """A finished total. A quotient or root of a float32 that is rounded to float64 first is the same after all."""
    if FINISH is None:
        made = finished(total, n, FINISH, KIND)
    else:
        made = finished(float64(total), n, FINISH, KIND)
    return made


@kernel
def fold(chunk, x, out, second, outer, n, inner, k, *, COMBINE, TERM, FINISH, KIND, START):
    terms = local(KIND, MOST)
    for o in range(outer):
        p = x + o * n * inner
        if inner == 1:
            for j in independent(range(n)):
                terms[j] = term_of(p[j], TERM, KIND)
            out[o] = rounded(line_sum(terms, n, COMBINE, KIND, START), n, FINISH, widened(out))
        else:
            for i in independent(range(inner)):
                terms[i] = KIND(START)
            for j in range(n):
                for i in independent(range(inner)):
                    terms[i] = joined(terms[i], term_of(p[j * inner + i], TERM, KIND), COMBINE)
            for i in independent(range(inner)):
                out[o * inner + i] = rounded(terms[i], n, FINISH, widened(out))


def _fold(dtype: np.dtype, how: Any, rule: Any) -> Task | None:
    """The reduction `how`, where ``rule(dtype)`` tells the dtypes that it accumulates in and that it returns, or None."""
    kinds = rule(dtype)
    if kinds is None or not all(map(_known, (dtype, *kinds))):
        return None
    accumulate, result = kinds
    if how.combine in ("and", "or"):
        kind: Kind = bool8
    else:
        kind = _kind(result if result.kind in "iu" else accumulate)
        if kind is bool8 and how.combine in ("add", "mul"):
            return None
    constants = {"COMBINE": how.combine, "TERM": how.term, "FINISH": how.finish, "KIND": kind, "START": identity_of(how.combine, kind)}
    return Task(fold, constants, ((result, REDUCED),))


@kernel
def spread(chunk, x, out, second, outer, n, inner, k, *, LESS, ROOT, MEAN):
    """The mean squared deviation from the mean, with `LESS` off the count; its root; and beside it the mean."""
    kind = widened(x)
    terms, means = local(kind, MOST), local(kind, MOST)
    free = max(n - LESS, 0)
    for o in range(outer):
        p = x + o * n * inner
        if inner == 1:
            for j in independent(range(n)):
                terms[j] = p[j]
            mean = kind(sum_of(terms, n, kind) / kind(n))
            for j in independent(range(n)):
                off = p[j] - mean
                terms[j] = off * off
            made = kind(sum_of(terms, n, kind) / kind(free))
            if ROOT:
                made = sqrt(made)
            out[o] = made
            if MEAN:
                second[o] = mean
        else:
            for i in independent(range(inner)):
                means[i] = kind(0)
                terms[i] = kind(0)
            for j in range(n):
                for i in independent(range(inner)):
                    means[i] = means[i] + p[j * inner + i]
            for i in independent(range(inner)):
                means[i] = means[i] / kind(n)
            for j in range(n):
                for i in independent(range(inner)):
                    off = p[j * inner + i] - means[i]
                    terms[i] = terms[i] + off * off
            for i in independent(range(inner)):
                made = terms[i] / kind(free)
                if ROOT:
                    made = sqrt(made)
                out[o * inner + i] = made
                if MEAN:
                    second[o * inner + i] = means[i]


def _spread(dtype: np.dtype, less: int, root: bool, mean: bool) -> Task | None:
    if dtype.name not in _FLOATS:
        return None
    results = ((dtype, REDUCED),) * (2 if mean else 1)
    return Task(spread, {"LESS": less, "ROOT": root, "MEAN": mean}, results)


@kernel
def bounds(chunk, x, out, second, outer, n, inner, k, *, KIND):
    """The smallest and the largest element."""
    for o in range(outer):
        for i in range(inner):
            p = x + (o * n * inner + i)
            low, high = KIND(p[0]), KIND(p[0])
            for j in range(1, n):
                low, high = minimum(low, KIND(p[j * inner])), maximum(high, KIND(p[j * inner]))
            out[o * inner + i] = low
            second[o * inner + i] = high


def _bounds(dtype: np.dtype) -> Task | None:
    return Task(bounds, {"KIND": _kind(dtype)}, ((dtype, REDUCED), (dtype, REDUCED))) if _known(dtype) else None


@kernel
def trace(chunk, x, out, second, outer, n, inner, k, *, KIND):
    """The sum of the main diagonal of an ``(n, inner)`` matrix."""
    terms = local(KIND, MOST)
    size = min(n, inner)
    for j in range(size):
        terms[j] = KIND(x[j * inner + j])
    out[0] = line_sum(terms, size, "add", KIND, 0)


def _trace(dtype: np.dtype) -> Task | None:
    if not _known(dtype) or dtype.name == "bool":
        return None
    result = _INT64 if dtype.kind in "iu" else dtype
    return Task(trace, {"KIND": _kind(result)}, ((result, NONE),))


# -- places --------------------------------------------------------------------------------------------------------------


def best_place(p, n, step, LARGEST):
    """Where the extreme is: the first of equals, the first nan if there is one."""
    at = 0
    best = int32(p[0]) if widened(p) is bool8 else p[0]
    for j in range(1, n):
        value = int32(p[j * step]) if widened(p) is bool8 else p[j * step]
        beats = value > best if LARGEST else value < best
        if beats or value != value and best == best:
            best = value
            at = j
    return at


def best_neighbour(p, n, KIND, START, LARGEST):
    """`best_place` of elements side by side: the extreme by the vector unit first, then where it is."""
    best = extreme_of(p, n, KIND, START, LARGEST, False)
    at = 0
    if best == best:
        while at < n - 1 and p[at] != best:
            at += 1
    else:
        while at < n - 1 and p[at] == p[at]:
            at += 1
    return at


def best_of_columns(p, n, inner, out, second, LARGEST, VALUES, KIND):
    """`best_place` in each of `inner` columns, which are looked at side by side."""
    tops, places = local(KIND, MOST), local(int32, MOST)
    for i in independent(range(inner)):
        tops[i] = p[i]
        places[i] = int32(0)
    for j in range(1, n):
        row = p + j * inner
        for i in independent(range(inner)):
            value, top = row[i], tops[i]
            beats = value > top if LARGEST else value < top
            beats = beats | ((value != value) & (top == top))
            tops[i] = where(beats, value, top)
            places[i] = where(beats, int32(j), places[i])
    for i in independent(range(inner)):
        second[i] = int64(places[i])
        if VALUES:
            out[i] = tops[i]


@kernel
def extremes(chunk, x, out, second, outer, n, inner, k, *, LARGEST, VALUES, KIND, START):
    for o in range(outer):
        if KIND is not None and inner >= 8:
            best_of_columns(x + o * n * inner, n, inner, out + o * inner, second + o * inner, LARGEST, VALUES, KIND)
        else:
            for i in range(inner):
                p = x + (o * n * inner + i)
                at = 0
                if KIND is not None and inner == 1 and n >= 16:
                    at = best_neighbour(p, n, KIND, START, LARGEST)
                else:
                    at = best_place(p, n, inner, LARGEST)
                if VALUES:
                    out[o * inner + i] = p[at * inner]
                second[o * inner + i] = at


def _extremes(dtype: np.dtype, largest: bool, values: bool) -> Task | None:
    if not _known(dtype):
        return None
    results = ((dtype, REDUCED), (_INT64, REDUCED)) if values else ((_INT64, REDUCED),)
    kind = None if dtype.name == "bool" or dtype.name in _HALVES else KINDS[dtype.name]
    start = None if kind is None else identity_of("max" if largest else "min", kind)
    return Task(extremes, {"LARGEST": largest, "VALUES": values, "KIND": kind, "START": start}, results)


# -- order ---------------------------------------------------------------------------------------------------------------


def insert(p, step, n, k, places, keys, flip):
    """The places of the first `k` of `n` elements in order, equal ones in the order they have, and their keys."""
    filled = 0
    for j in range(n):
        key = key_at(p, j * step) ^ flip
        if filled < k or key < keys[filled - 1]:
            at = filled
            if filled == k:
                at = k - 1
            else:
                filled += 1
            while at > 0 and keys[at - 1] > key:
                keys[at] = keys[at - 1]
                places[at] = places[at - 1]
                at -= 1
            keys[at] = key
            places[at] = j


def in_order(p, step, n, places, keys, ranks, flip, KEY):
    """The places of all of `n` elements in order, equal ones in the order they have."""
    keys_of(p, step, n, keys, flip)
    order_of(keys, n, ranks, places, KEY)


@kernel
def ordered(chunk, x, out, second, outer, n, inner, k, *, KEY, FLIP, ALL, VALUES):
    """The first `k` elements in order (all of them if `ALL`) and where they are."""
    keys, ranks, places = local(KEY, MOST_COUNTED), local(int32, MOST_COUNTED), local(int64, MOST_COUNTED)
    wanted = n if ALL else k
    for o in range(outer):
        for i in range(inner):
            p = x + (o * n * inner + i)
            if wanted > MOST_INSERTED:
                in_order(p, inner, n, places, keys, ranks, KEY(FLIP), KEY)
            else:
                insert(p, inner, n, wanted, places, keys, KEY(FLIP))
            to = o * wanted * inner + i
            for j in rolled(range(wanted)):
                if VALUES:
                    out[to] = p[places[j] * inner]
                second[to] = places[j]
                to += inner


MOST_INSERTED = 6  # elements found sooner by insertion


def _key(dtype: np.dtype) -> Any:
    return int64 if is_wide(dtype) else int32


def _ordered(dtype: np.dtype, descending: bool, all_ranks: bool, values: bool) -> Task | None:
    if not has_keys(dtype):
        return None
    mode = SAME if all_ranks else LENGTH
    results = ((dtype, mode), (_INT64, mode)) if values else ((_INT64, mode),)
    constants = {"KEY": _key(dtype), "FLIP": -1 if descending else 0, "ALL": all_ranks, "VALUES": values}
    return Task(ordered, constants, results)


@kernel
def ranked(chunk, x, out, second, outer, n, inner, k, *, KEY, WHICH, FLOATING):
    """The `k`-th smallest element, the lower median (of what is not nan), and where it is."""
    keys, at = local(KEY, MOST + ROOM), local(int32, 2 * MOST)
    for o in range(outer):
        for i in range(inner):
            p = x + (o * n * inner + i)
            keys_of(p, inner, n, keys, KEY(0))
            rank = k - 1
            if WHICH != "kth":
                rank = median_rank(keys, n, KEY, WHICH, FLOATING)
            place = place_at(keys, at, n, rank, KEY)
            out[o * inner + i] = p[place * inner]
            second[o * inner + i] = place


@kernel
def modes(chunk, x, out, second, outer, n, inner, k, *, KEY):
    """The most frequent element, the smallest of several, and the last place it has."""
    keys, ranks, places = local(KEY, MOST_COUNTED), local(int32, MOST_COUNTED), local(int64, MOST_COUNTED)
    for o in range(outer):
        for i in range(inner):
            p = x + (o * n * inner + i)
            in_order(p, inner, n, places, keys, ranks, KEY(0), KEY)
            at = places[longest_run(p, inner, places, n)]
            out[o * inner + i] = p[at * inner]
            second[o * inner + i] = at


def longest_run(p, step, places, n):
    """Where the first of the longest runs of equal elements in order ends."""
    end, best, run = 0, 1, 1
    for j in range(1, n):
        run = where(p[places[j] * step] == p[places[j - 1] * step], run + 1, 1)
        end = where(run > best, j, end)
        best = max(best, run)
    return end


def _ranked(dtype: np.dtype, which: str) -> Task | None:
    if not has_keys(dtype) or dtype.name == "bool":
        return None
    results = ((dtype, REDUCED), (_INT64, REDUCED))
    if which == "mode":
        return Task(modes, {"KEY": _key(dtype)}, results)
    return Task(ranked, {"KEY": _key(dtype), "WHICH": which, "FLOATING": dtype.kind not in "iu"}, results)


# -- beside another array ------------------------------------------------------------------------------------------------


@kernel
def places_in_sorted(chunk, x, out, second, outer, n, inner, other, count, *, RIGHT):
    """How many of the sorted `other` come before each element, by halving."""
    for i in range(outer * n * inner):
        value = x[i]
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            beyond = other[middle] > value if RIGHT else other[middle] >= value
            if beyond:
                high = middle
            else:
                low = middle + 1
        out[i] = low


@kernel
def members(chunk, x, out, second, outer, n, inner, other, count, *, INVERT):
    """Whether each element is one of `other`."""
    for i in range(outer * n * inner):
        value, found = x[i], False
        for j in range(count):
            found = found | (other[j] == value)
        if INVERT:
            found = not found
        out[i] = found


@kernel
def quantiles(chunk, x, out, second, outer, n, inner, other, count, *, KEY, SKIP):
    """What stands at the share ``other[0]`` of each line in order, or of its numbers if `SKIP`, between neighbours in proportion."""
    kind = widened(x)
    keys, ranks, places = local(KEY, MOST_COUNTED), local(int32, MOST_COUNTED), local(int64, MOST_COUNTED)
    for o in range(outer):
        for i in range(inner):
            p = x + (o * n * inner + i)
            in_order(p, inner, n, places, keys, ranks, KEY(0), KEY)
            numbers = n
            while numbers > 0 and p[places[max(numbers - 1, 0)] * inner] != p[places[max(numbers - 1, 0)] * inner]:
                numbers -= 1
            place = other[0] * kind(max(numbers - 1, 0))
            if not SKIP:
                place = where(numbers < n, kind(n - 1), other[0] * kind(n - 1))
            below = floor(place)
            low, high = p[places[int64(below)] * inner], p[places[int64(ceil(place))] * inner]
            weight, step = place - below, high - low
            out[o * inner + i] = where(weight < kind(0.5), low + weight * step, high - step * (kind(1) - weight))


def _quantiles(dtype: np.dtype, skip: bool) -> Task | None:
    return Task(quantiles, {"KEY": _key(dtype), "SKIP": skip}, ((dtype, REDUCED),)) if dtype.name in _FLOATS else None


def _beside(of: Any, name: str, result: str) -> Any:
    def task(dtype: np.dtype, option: bool) -> Task | None:
        return Task(of, {name: option}, ((np.dtype(result), SAME),)) if _known(dtype) and dtype.name != "bool" else None

    return task


# -- running totals ------------------------------------------------------------------------------------------------------


@kernel
def running(chunk, x, out, second, outer, n, inner, k, *, COMBINE, KIND):
    for o in range(outer):
        p, q = x + o * n * inner, out + o * n * inner
        for i in range(inner):
            q[i] = KIND(p[i]) + KIND(0) if COMBINE == "add" else KIND(p[i])  # sums begin with 0, which makes 0 of -0
        for at in range(inner, n * inner):
            q[at] = joined(KIND(q[at - inner]), KIND(p[at]), COMBINE)


def _running(dtype: np.dtype, combine: str) -> Task | None:
    if dtype.name not in KINDS or dtype.name == "uint64":
        return None
    result = _INT64 if dtype.kind in "iub" else dtype
    return Task(running, {"COMBINE": combine, "KIND": KINDS[result.name]}, ((result, SAME),))


@kernel
def running_extremes(chunk, x, out, second, outer, n, inner, k, *, LARGEST):
    """The extreme up to each element, and where it is: of equals the last, and nan beats every number."""
    for o in range(outer):
        for i in range(inner):
            first = o * n * inner + i
            at = 0
            for j in range(n):
                value, best = x[first + j * inner], x[first + at * inner]
                beats = value >= best if LARGEST else value <= best
                if beats or value != value:
                    at = j
                out[first + j * inner] = x[first + at * inner]
                second[first + j * inner] = at


def _running_extremes(dtype: np.dtype, largest: bool) -> Task | None:
    if not _known(dtype) or dtype.name == "bool":
        return None
    return Task(running_extremes, {"LARGEST": largest}, ((dtype, SAME), (_INT64, SAME)))


@kernel
def running_logs(chunk, x, out, second, outer, n, inner, k):
    """The logarithm of the sum of the exponentials of the elements up to each."""
    for o in range(outer):
        p, q = x + o * n * inner, out + o * n * inner
        for i in range(inner):
            q[i] = p[i] + 0                           # the logarithm of 1 is 0, not -0
        for j in range(1, n):
            for i in independent(range(inner)):
                a, b = q[(j - 1) * inner + i], p[j * inner + i]
                made = maximum(a, b) + log1p(exp(-abs(a - b)))
                q[j * inner + i] = where(a == b, a + LN2, made)  # as infinities are


LN2 = 0.6931471805599453


def _running_logs(dtype: np.dtype) -> Task | None:
    return Task(running_logs, {}, ((dtype, SAME),)) if dtype.name in _FLOATS else None


@kernel
def differences(chunk, x, out, second, outer, n, inner, k):
    """The differences of neighbours, of which there are `k`; of truth values, whether they differ."""
    for o in range(outer):
        p, q = x + o * n * inner, out + o * k * inner
        for i in independent(range(k * inner)):
            if widened(x) is bool8:
                q[i] = p[i + inner] ^ p[i]
            else:
                q[i] = p[i + inner] - p[i]


def _differences(dtype: np.dtype) -> Task | None:
    return Task(differences, {}, ((dtype, LENGTH),)) if _known(dtype) else None


# -- exponentials and their sums --------------------------------------------------------------------------------------------------


@kernel(in_vectors=True)                              # the same code by fewer passes
def row_shares(chunk, x, out, second, outer, n, inner, k, *, LOG):
    """`shares` of contiguous lines: the exponentials of all of them fill whole vectors together."""
    kind = widened(x)
    parts = local(kind, MOST)                         # in which halves are not rounded yet
    if LOG:
        for o in rolled(range(outer)):
            softmax_row(x + o * n, out + o * n, n, kind, True, False)  # as large ones, and as the cross entropy of rows
    else:
        for o in rolled(range(outer)):
            p, part = x + o * n, parts + o * n
            top = extreme_of(p, n, kind, -INF, True, False)
            for j in brief(range(n)):
                part[j] = p[j] - top
        for j in independent(range(outer * n)):
            parts[j] = exp(parts[j])
        for o in rolled(range(outer)):
            q, part = out + o * n, parts + o * n
            total = sum_of(part, n, kind)
            for j in brief(range(n)):
                q[j] = part[j] / total


@kernel(in_vectors=True)
def shares(chunk, x, out, second, outer, n, inner, k, *, LOG):
    """The exponentials of the elements over their sum along a line, or the logarithms of that."""
    kind = widened(x)
    tops, totals, parts = local(kind, MOST), local(kind, MOST), local(kind, MOST)
    for o in rolled(range(outer)):
        p, q = x + o * n * inner, out + o * n * inner
        for i in independent(range(inner)):
            tops[i] = kind(-INF)
            totals[i] = kind(0)
        for j in rolled(range(n)):
            for i in independent(range(inner)):
                tops[i] = maximum(tops[i], p[j * inner + i])
        for j in rolled(range(n)):
            for i in independent(range(inner)):
                part = exp(p[j * inner + i] - tops[i])
                totals[i] = totals[i] + part
                if not LOG:
                    parts[j * inner + i] = part
        if LOG:
            for i in independent(range(inner)):
                totals[i] = log(totals[i])
        for j in rolled(range(n)):
            for i in independent(range(inner)):
                if LOG:
                    q[j * inner + i] = (p[j * inner + i] - tops[i]) - totals[i]
                else:
                    q[j * inner + i] = parts[j * inner + i] / totals[i]


def _shares(dtype: np.dtype, logarithms: bool) -> Task | None:
    if dtype.name not in _FLOATS + _HALVES:
        return None
    return Task(shares, {"LOG": logarithms}, ((dtype, SAME),), row_shares)


@kernel
def log_sums(chunk, x, out, second, outer, n, inner, k):
    """The logarithm of the sum of the exponentials along each line, measured from the largest unless that is infinite."""
    kind = widened(x)
    terms = local(kind, MOST)
    for o in range(outer):
        for i in range(inner):
            p = x + (o * n * inner + i)
            top = p[0]
            for j in range(1, n):
                top = maximum(top, p[j * inner])
            top = where(abs(top) == kind(INF), kind(0), top)
            for j in independent(range(n)):
                terms[j] = exp(p[j * inner] - top)
            out[o * inner + i] = log(sum_of(terms, n, kind)) + top


def _log_sums(dtype: np.dtype) -> Task | None:
    return Task(log_sums, {}, ((dtype, REDUCED),)) if dtype.name in _FLOATS else None


TASKS: dict[str, Any] = {
    "fold": _fold, "spread": _spread, "extremes": _extremes, "bounds": _bounds, "trace": _trace, "ordered": _ordered,
    "ranked": _ranked, "running": _running, "running_extremes": _running_extremes, "running_logs": _running_logs,
    "places_in_sorted": _beside(places_in_sorted, "RIGHT", "int64"), "members": _beside(members, "INVERT", "bool"),
    "quantiles": _quantiles, "differences": _differences, "shares": _shares, "log_sums": _log_sums,
}  # fmt: skip
