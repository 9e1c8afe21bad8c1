"""The loops of `scan`: running totals over arrays seen as ``(outer, n, inner)``, in C order.

rows     (inner 1) a chain has the latency of an operation per element, so four rows run along together. Where there are
         fewer, a block of 512 neighbours is cut into four segments, whose sums or extremes, made first by the vector unit,
         tell where each of four chains starts. Long rows of sums are cut into pieces in the same way.
columns  a strip of totals is kept, and all its columns advance by a row at a time.

Floats are totalled in float64; exponentials and logarithms are of float32, but for float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    flags,
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
from flambeau_kernels.vocabulary import exp, log, maximum, where

from ..shapes.move import contiguous
from ._folds import STRIP
from ._tops import extreme_of
from .complex_loops import running
from .logsumexp_loops import finite

__all__ = ["plan"]

GRAIN = 16384
COSTLY_GRAIN = 4096
LONG = 65536                                         # elements of a piece of a row
BLOCK = 512
SEGMENTS = 4
ROWS = 4                                             # that run along together
LOGS = 256                                           # elements whose exponentials are made together
INF = float("inf")
_HALVES = ("float16", "bfloat16")

Run = Callable[[np.ndarray], Any]


def plan(a: np.ndarray, what: str, dim: int, target: np.dtype, backwards: bool) -> Run | None:
    """What scans arrays like `a` along `dim`, or None where numpy does.

    Args:
        what: 'add', 'mul', 'max', 'min' or 'log' (log-sum-exp).
        target: dtype of the results.
        backwards: from the last element to the first.
    """
    if a.dtype.kind == "c":
        return _of_complex(a, what, dim, target, backwards)
    total = _total_kind(what, a.dtype, target)
    if total is None or max(a.shape) >= 1 << 31:
        return None
    outer, n, inner = _count(a.shape[:dim]), a.shape[dim], _count(a.shape[dim + 1 :])
    constants = {"WHAT": what, "TOTAL_KIND": total, "STEP": -1 if backwards else 1}
    grain = COSTLY_GRAIN if what == "log" else GRAIN
    make = _rows if inner == 1 else _columns
    return make(a, what, target, outer, n, inner, grain, constants)


def _of_complex(a: np.ndarray, what: str, dim: int, target: np.dtype, backwards: bool) -> Run | None:
    """Of complex numbers rows, and sums of columns, whose parts are columns beside each other."""
    if what not in ("add", "mul") or target != a.dtype or target.itemsize < 8 or max(a.shape) >= 1 << 30:
        return None
    outer, n, inner = _count(a.shape[:dim]), a.shape[dim], _count(a.shape[dim + 1 :])
    if inner == 1:
        run = running(outer, n, target, what, backwards)
        return lambda a: run(contiguous(a))
    if what == "mul":
        return None
    part = np.dtype(f"f{target.itemsize // 2}")
    constants = {"WHAT": what, "TOTAL_KIND": float64, "STEP": -1 if backwards else 1}
    columns = _columns(a[..., None].view(part), what, part, outer, n, 2 * inner, GRAIN, constants)
    return lambda a: columns(contiguous(a).view(part)).view(target)


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for length in shape:
        n *= length
    return n


def _total_kind(what: str, dtype: np.dtype, target: np.dtype) -> Kind | None:
    for d in (dtype, target):
        if d.name not in KINDS and d.name not in _HALVES:
            return None
    floating = target.kind not in "iub"
    if not floating and (dtype.kind not in "iub" or target.kind == "b" and what in ("add", "mul")):
        return None
    if what in ("add", "mul"):
        return float64 if floating else KINDS[target.name]
    return float32 if target.name in _HALVES else KINDS[target.name]


def _rows(a: np.ndarray, what: str, target: np.dtype, rows: int, n: int, inner: int, grain: int, constants: dict[str, Any]) -> Run:
    pieces, length = 1, n
    if what == "add" and rows < ROWS and n >= 2 * LONG:
        length = -(-max(LONG, n // 256) // BLOCK) * BLOCK
        pieces = -(-n // length)
    items = rows * pieces
    per_chunk = max(1, grain // length)
    if rows >= ROWS:
        per_chunk = -(-per_chunk // ROWS) * ROWS
    numbers = (items, per_chunk, pieces, length, n)
    chunks = -(-items // per_chunk)
    if what in ("max", "min"):
        loop = row_extremes if rows < ROWS else row_extremes_together
        return _with_places(loop, a.dtype, chunks, numbers, constants)
    total = np.dtype(constants["TOTAL_KIND"].name)
    if what == "log":
        form = row_logs.form((a.dtype, target, *[int] * len(numbers)), {"KIND": constants["TOTAL_KIND"]})
    else:
        # A product that overflows is no place to start a chain from, so its chains are always rows.
        loop = row_totals if what == "add" and rows < ROWS else row_chains
        form = loop.form((a.dtype, target, total, *[int] * len(numbers)), {**constants, "SUMS": False})
    if pieces == 1:
        nothing = () if what == "log" else (np.empty(0, total),)

        def run(a: np.ndarray) -> np.ndarray:
            x = contiguous(a)
            out = np.empty(x.shape, target)
            form(chunks, True, x, out, *nothing, *numbers)
            return out

        return run
    sums = row_totals.form((a.dtype, target, total, *[int] * len(numbers)), {**constants, "SUMS": True})

    def run_in_pieces(a: np.ndarray) -> np.ndarray:
        x = contiguous(a)
        out = np.empty(x.shape, target)
        starts = np.zeros((rows, pieces + 1), total)
        sums(chunks, True, x, out, starts, *numbers)
        with np.errstate(all="ignore"):
            np.add.accumulate(starts, 1, out=starts)
        form(chunks, True, x, out, starts, *numbers)
        return out

    return run_in_pieces


def _columns(a: np.ndarray, what: str, target: np.dtype, outer: int, n: int, inner: int, grain: int,
             constants: dict[str, Any]) -> Run:  # fmt: skip
    # Fewer columns than a strip has, where else there would be too few strips to share.
    width = min(inner, STRIP if outer * inner >= 16 * STRIP else 256)
    strips = -(-inner // width)
    per_chunk = max(1, grain // (n * width))
    numbers = (outer * strips, per_chunk, strips, width, n, inner)
    chunks = -(-outer * strips // per_chunk)
    if what in ("max", "min"):
        return _with_places(column_extremes, a.dtype, chunks, numbers, constants)
    loop, given = (column_logs, {"KIND": constants["TOTAL_KIND"]}) if what == "log" else (column_totals, constants)
    form = loop.form((a.dtype, target, *[int] * len(numbers)), given)

    def run(a: np.ndarray) -> np.ndarray:
        x = contiguous(a)
        out = np.empty(x.shape, target)
        form(chunks, True, x, out, *numbers)
        return out

    return run


def _with_places(loop: Any, dtype: np.dtype, chunks: int, numbers: tuple[int, ...], constants: dict[str, Any]) -> Run:
    index = np.dtype(np.int64)
    given = {"LARGEST": constants["WHAT"] == "max", "KIND": constants["TOTAL_KIND"]}
    form = loop.form((dtype, dtype, index, *[int] * len(numbers)), given)

    def run(a: np.ndarray) -> Any:
        x = contiguous(a)
        values, places = np.empty(x.shape, dtype), np.empty(x.shape, index)
        form(chunks, True, x, values, places, *numbers)
        return values, places

    return run


# -- loops ---------------------------------------------------------------------------------------------------------------


def joined(a, b, WHAT):
    if WHAT == "add":
        both = a + b
    else:
        both = a * b
    return both


@kernel
def row_chains(chunk, x, out, starts, items, per_chunk, pieces, length, n, *, WHAT, TOTAL_KIND, STEP, SUMS):
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    chains = local(TOTAL_KIND, ROWS)
    while item < last:
        p, to = x + item * n, out + item * n
        if STEP < 0:
            p, to = p + (n - 1), to + (n - 1)
        for k in unroll(range(ROWS)):
            chains[k] = TOTAL_KIND(0 if WHAT == "add" else 1)
        if item + ROWS <= last:
            for i in range(n):
                for k in unroll(range(ROWS)):
                    chains[k] = joined(chains[k], TOTAL_KIND(p[k * n + i * STEP]), WHAT)
                    to[k * n + i * STEP] = widened(out)(chains[k])
            item += ROWS
        else:
            for i in range(n):
                chains[0] = joined(chains[0], TOTAL_KIND(p[i * STEP]), WHAT)
                to[i * STEP] = widened(out)(chains[0])
            item += 1


@kernel
def row_totals(chunk, x, out, starts, items, per_chunk, pieces, length, n, *, WHAT, TOTAL_KIND, STEP, SUMS):
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    row, first = item, 0
    while item < last:
        row = item
        if pieces > 1:
            row = item // pieces
            first = (item % pieces) * length
        size = min(length, n - first)
        p, to = x + (row * n + first), out + (row * n + first)
        if STEP < 0:
            p, to = x + (row * n + (n - 1 - first)), out + (row * n + (n - 1 - first))
        if SUMS:
            starts[row * (pieces + 1) + item % pieces + 1] = sum_of(p, size, TOTAL_KIND, STEP)
        else:
            total = TOTAL_KIND(0)
            if pieces > 1:
                total = starts[row * (pieces + 1) + item % pieces]
            at = 0
            while at + SEGMENTS <= size:
                segment = min(BLOCK, size - at) // SEGMENTS
                q, r = p + at * STEP, to + at * STEP
                chains, begun = local(TOTAL_KIND, SEGMENTS), local(TOTAL_KIND, SEGMENTS)
                for k in rolled(range(SEGMENTS)):
                    begun[k] = total
                    total = total + sum_of(q + k * segment * STEP, segment, TOTAL_KIND, STEP)
                for k in unroll(range(SEGMENTS)):
                    chains[k] = begun[k]
                for i in range(segment):
                    for k in unroll(range(SEGMENTS)):
                        chains[k] = chains[k] + TOTAL_KIND(q[(k * segment + i) * STEP])
                        r[(k * segment + i) * STEP] = widened(out)(chains[k])
                at += segment * SEGMENTS
            while at < size:
                total = total + TOTAL_KIND(p[at * STEP])
                to[at * STEP] = widened(out)(total)
                at += 1
        item += 1


def sum_of(p, size, KIND, STEP):
    total = KIND(0)
    with flags("reassoc"):
        for i in range(size):
            total += KIND(p[i * STEP])
    return total


@kernel
def column_totals(chunk, x, out, items, per_chunk, strips, width, n, inner, *, WHAT, TOTAL_KIND, STEP):
    totals = local(TOTAL_KIND, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        first = (item // strips) * n * inner + (item % strips) * width
        if STEP < 0:
            first += (n - 1) * inner
        p, to = x + first, out + first
        size = min(width, inner - (item % strips) * width)
        for c in independent(range(size)):
            totals[c] = TOTAL_KIND(0 if WHAT == "add" else 1)
        for _ in range(n):
            for c in independent(range(size)):
                total = joined(totals[c], TOTAL_KIND(p[c]), WHAT)
                totals[c] = total
                to[c] = widened(out)(total)
            p = p + inner * STEP
            to = to + inner * STEP
        item += 1


def takes_over(value, top, LARGEST):
    """Whether `value`, which came later, is the extreme now; of equals the last one is, and nan stays once met."""
    if LARGEST:
        takes = (value >= top) | (value != value)
    else:
        takes = (value <= top) | (value != value)
    return takes


@kernel
def row_extremes(chunk, x, values, places, items, per_chunk, pieces, length, n, *, LARGEST, KIND):
    # Values run as chains, as sums do. A place is that of the last element equal to the value there.
    found = local(KIND, BLOCK)
    starts, chains = local(KIND, SEGMENTS), local(KIND, SEGMENTS)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, to, at = x + item * n, values + item * n, places + item * n
        top = KIND(p[0])
        place = 0
        first = 0
        while first < n:
            q = p + first
            size = min(BLOCK, n - first)
            segment = size // SEGMENTS
            odd = top != top
            for k in rolled(range(SEGMENTS)):
                starts[k] = top
                next_top = extreme_of(q + k * segment, segment, KIND, top, LARGEST, False)
                odd = odd | (next_top != next_top)
                top = further(next_top, top, LARGEST)
            i = segment * SEGMENTS
            if odd:
                top = starts[0]
                i = 0
            else:
                for k in unroll(range(SEGMENTS)):
                    chains[k] = starts[k]
                for j in range(segment):
                    for k in unroll(range(SEGMENTS)):
                        chains[k] = further(KIND(q[k * segment + j]), chains[k], LARGEST)
                        found[k * segment + j] = chains[k]
            while i < size:
                value = KIND(q[i])
                if takes_over(value, top, LARGEST):
                    top = value
                found[i] = top
                i += 1
            for j in range(size):
                value = KIND(q[j])
                place = where((value == found[j]) | (value != value), first + j, place)
                at[first + j] = place
                to[first + j] = found[j]
            first += BLOCK
        item += 1


@kernel
def row_extremes_together(chunk, x, values, places, items, per_chunk, pieces, length, n, *, LARGEST, KIND):
    # Without nans, which are looked for first, a comparison and two choices are all there is to an element.
    tops, rows = local(KIND, ROWS), local(int64, ROWS)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, to, at = x + item * n, values + item * n, places + item * n
        together = item + ROWS <= last
        if together:
            for k in rolled(range(ROWS)):
                extreme = extreme_of(p + k * n, n, KIND, KIND(p[k * n]), LARGEST, False)
                together = together & (extreme == extreme)
        if together:
            for k in unroll(range(ROWS)):
                tops[k] = KIND(p[k * n])
                rows[k] = 0
            for i in range(n):
                for k in unroll(range(ROWS)):
                    value = KIND(p[k * n + i])
                    tops[k] = further(value, tops[k], LARGEST)
                    rows[k] = where(value == tops[k], i, rows[k])
                    to[k * n + i] = tops[k]
                    at[k * n + i] = rows[k]
        else:
            for k in range(min(ROWS, last - item)):
                top = KIND(p[k * n])
                place = 0
                for i in range(n):
                    value = KIND(p[k * n + i])
                    takes = takes_over(value, top, LARGEST)
                    top = where(takes, value, top)
                    place = where(takes, i, place)
                    to[k * n + i] = top
                    at[k * n + i] = place
        item += ROWS


def further(value, top, LARGEST):
    """The extreme of two numbers, the first of equals."""
    if LARGEST:
        further = where(top > value, top, value)
    else:
        further = where(top < value, top, value)
    return further


@kernel
def column_extremes(chunk, x, values, places, items, per_chunk, strips, width, n, inner, *, LARGEST, KIND):
    tops = local(KIND, STRIP)
    rows = local(int32, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        first = (item // strips) * n * inner + (item % strips) * width
        p, to, at = x + first, values + first, places + first
        size = min(width, inner - (item % strips) * width)
        for c in independent(range(size)):
            tops[c] = KIND(p[c])
            rows[c] = int32(0)
        for i in range(n):
            for c in independent(range(size)):
                value = KIND(p[c])
                takes = takes_over(value, tops[c], LARGEST)
                top = where(takes, value, tops[c])
                place = where(takes, int32(i), rows[c])
                tops[c] = top
                rows[c] = place
                to[c] = top
                at[c] = int64(place)
            p, to, at = p + inner, to + inner, at + inner
        item += 1


@kernel
def row_logs(chunk, x, out, items, per_chunk, pieces, length, n, *, KIND):
    # Relative to the largest element so far the sum grows by one exponential, and shrinks by another where that changes.
    bases, terms, sums = local(KIND, LOGS + 1), local(KIND, LOGS), local(float64, LOGS)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, to = x + item * n, out + item * n
        top = KIND(-INF)
        total = float64(0)
        at = 0
        while at < n:
            size = min(LOGS, n - at)
            bases[0] = top
            for i in range(size):
                top = maximum(top, KIND(p[at + i]))
                bases[i + 1] = top
            for i in independent(range(size)):
                shift, before = finite(bases[i + 1]), bases[i]
                terms[i] = exp(KIND(p[at + i]) - shift)
                sums[i] = float64(exp(where(before == -INF, before, finite(before)) - shift))
            for i in range(size):
                total = total * sums[i] + float64(terms[i])
                sums[i] = total
            for i in independent(range(size)):
                to[at + i] = widened(out)(log(KIND(sums[i])) + finite(bases[i + 1]))
            at += size
        item += 1


@kernel
def column_logs(chunk, x, out, items, per_chunk, strips, width, n, inner, *, KIND):
    bases = local(KIND, STRIP)
    totals = local(float64, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        first = (item // strips) * n * inner + (item % strips) * width
        p, to = x + first, out + first
        size = min(width, inner - (item % strips) * width)
        for c in independent(range(size)):
            bases[c] = KIND(-INF)
            totals[c] = 0.0
        for _ in range(n):
            for c in independent(range(size)):
                value, base = KIND(p[c]), bases[c]
                top = maximum(base, value)
                shift = finite(top)
                shrinks = float64(exp(where(base == -INF, base, finite(base)) - shift))
                total = totals[c] * shrinks + float64(exp(value - shift))
                totals[c] = total
                bases[c] = top
                to[c] = widened(out)(log(KIND(total)) + shift)
            p, to = p + inner, to + inner
        item += 1
