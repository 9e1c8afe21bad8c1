"""The loops of `moments.logsumexp`: sums of exponentials, each block's taken relative to its largest element.

rows     blocks of 1024 neighbours: the largest, then the exponentials by the vector unit; blocks merge in order.
columns  eight rows at a time of a strip of columns, with a running largest element per column.

The largest element is not taken off where it is infinite: infinities stay in the sum, where they need no rescuing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau_kernels.cpu.lanes import foresees
from flambeau_kernels.engine.language import (
    brief,
    flags,
    float32,
    float64,
    int64,
    kernel,
    local,
    prefetch,
    rolled,
    run,
    widened,
)
from flambeau_kernels.vocabulary import abs, exp, log, maximum, where

from . import softmax
from ._folds import STRIP, dense, fold
from ._tops import extreme_of
from ._walk import row_at, strip_at

__all__ = ["plan"]

GRAIN = 16384
BLOCK = 1024
LINE = 512  # bits of a line of memory
INF = float("inf")


def plan(a: np.ndarray, axes: tuple[int, ...], keepdim: bool) -> Callable[[np.ndarray], np.ndarray] | None:
    """What computes log-sum-exps of arrays like `a`, or None where numpy does."""
    if a.dtype.name not in ("float32", "float64", "float16", "bfloat16"):
        return None
    found = fold(a, axes, keepdim, GRAIN)
    if found is None:
        return None
    cut, result = found.cut, a.dtype
    kind = float64 if a.dtype.name == "float64" else float32
    wide = np.dtype(kind.name)
    unsplit = cut.pieces == 1
    numbers, types = cut.numbers, (a.dtype, a.dtype if unsplit else wide)
    if cut.loop == "rows":
        _, _, pieces, _, _, _, _, _, r0, r1, _ = numbers
        form = rows.form((*types, *[int] * len(numbers)), {"KIND": kind, "ONE": pieces == 1 and r0 == 1 and r1 <= BLOCK})
    else:
        numbers = (fold_eights.address((a.dtype, wide, wide, int, int, int), {}), *numbers)
        form = columns.form((*types, *[int] * len(numbers)), {"KIND": kind})

    def folded(a: np.ndarray) -> np.ndarray:
        out = found.empty(result)
        if unsplit:
            form(cut.chunks, True, a, out, *numbers)
            return out
        parts = np.empty(cut.parts, wide)
        form(cut.chunks, True, a, parts, *numbers)
        with np.errstate(all="ignore"):
            dense(out)[...] = softmax.logsumexp(parts, (1,), False).reshape(-1)
        return out

    return found.contiguous(folded)


def finite(x):
    """`x`, and 0 for infinities."""
    return where(abs(x) == INF, 0, x)


@kernel
def rows(chunk, x, out, items, per_chunk, pieces, runs, per_run, k1, outer, step, r0, r1, run, *, KIND, ONE):
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, from0, to0, from1, to1 = row_at(x, item, pieces, runs, per_run, k1, outer, step, r0, r1)
        base, total = KIND(0), float64(0)
        for k in range(from0, to0):
            at = from1
            while at < to1:
                q = p + (k * run + at)
                size = min(BLOCK, to1 - at)
                top = extreme_of(q, size, KIND, -INF, True, False)
                shift = finite(top)
                # What lies behind the block is on its way while exponentials are computed.
                if not foresees(KIND):
                    for i in rolled(range(0, size, LINE // KIND.bits)):
                        prefetch(q + (size + i))
                some = KIND(0)
                with flags("reassoc"):
                    for i in range(size):
                        some += exp(KIND(q[i]) - shift)
                # Of two sums the one with the smaller base is scaled to the other; empty and infinite ones stay.
                if ONE or total == 0.0:
                    base = shift
                    total = float64(some)
                elif some != 0.0:
                    less = exp(-abs(shift - base))
                    if shift > base:
                        if total < INF:
                            total = total * float64(less)
                        total += float64(some)
                        base = shift
                    else:
                        if some < INF:
                            some = some * less
                        total += float64(some)
                at += BLOCK
        out[item] = widened(out)(KIND(log(KIND(total))) + base)
        item += 1


@kernel
def fold_eights(chunk, x, bases, totals, width, row, rows):
    """Fold `rows` rows, in eights, into the bases and totals of columns. It is compiled once for all that `columns` is compiled for."""
    KIND = widened(totals)
    p = x
    for _ in range(rows // 8):
        for c in brief(range(width)):
            q = p + c
            a, b, d, e = KIND(q[0]), KIND(q[row]), KIND(q[2 * row]), KIND(q[3 * row])
            f, g, h, i = KIND(q[4 * row]), KIND(q[5 * row]), KIND(q[6 * row]), KIND(q[7 * row])
            base = bases[c]
            top = maximum(maximum(maximum(a, b), maximum(d, e)), maximum(maximum(f, g), maximum(h, i)))
            top = maximum(base, top)
            shift = finite(top)
            some = ((exp(a - shift) + exp(b - shift)) + (exp(d - shift) + exp(e - shift))) + (
                (exp(f - shift) + exp(g - shift)) + (exp(h - shift) + exp(i - shift)))
            totals[c] = totals[c] * exp(where(base == -INF, base, finite(base)) - shift) + some
            bases[c] = top
        p = p + 8 * row


@kernel
def columns(chunk, x, out, folding, items, per_chunk, strips, width, pieces, height, together, rows, across, block, row, *, KIND):
    """`folding` is where the code of `fold_eights` is."""
    bases = local(KIND, STRIP)
    totals = local(KIND, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, _, left, narrow, to = strip_at(x, item, strips, width, pieces, height, rows, across, block, row)
        for c in brief(range(narrow)):
            bases[c] = KIND(-INF)
            totals[c] = KIND(0)
        if left >= 8:
            given = local(int64, 6)
            given[0], given[1], given[2], given[3], given[4], given[5] = int64(p), int64(bases), int64(totals), narrow, row, left
            run(folding, 0, given)
            p = p + left // 8 * 8 * row
        for _ in range(left % 8):
            for c in brief(range(narrow)):
                value = KIND(p[c])
                base = bases[c]
                top = maximum(base, value)
                shift = finite(top)
                totals[c] = totals[c] * exp(where(base == -INF, base, finite(base)) - shift) + exp(value - shift)
                bases[c] = top
            p = p + row
        for c in brief(range(narrow)):
            out[to + c] = widened(out)(log(totals[c]) + finite(bases[c]))
        item += 1
