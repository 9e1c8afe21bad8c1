"""The loops of `reduce`: how they are written, planned and cut.

There are two, by where the reduced dimension lies (see `_folds`):

rows     a block of 1024 neighbours is combined with the vector unit, floats as `sums.py` says or, with terms that are no words of
         vectors, in float32 in any order; blocks in float64 in order of their index. Runs longer than a chunk are cut into
         pieces, whose results a second kernel combines.
columns  eight rows at a time of a strip of columns are combined as a tree in float32, eight such in float32 too, and these
         in float64. Narrow matrices are read as if several rows were one; many rows are cut into pieces as runs are.

How work is cut is a function of shape and strides, so every number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.engine.language import (
    bool8,
    brief,
    broadcast,
    flags,
    float32,
    float64,
    independent,
    int32,
    int64,
    kernel,
    lane_sum,
    load,
    local,
    outlined,
    rolled,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.scalar.symbols import KINDS, Kind
from flambeau_kernels.vocabulary import maximum, minimum, where

from ..lanes import foresees
from ..sums import lanes_of, sum_of, sums_of_two
from ._folds import STRIP, Fold, dense, fold
from ._tops import extreme_of
from ._walk import row_at, strip_at
from .complex_loops import totals
from .reduce import Reduction, count_of, magnitude, square

__all__ = ["identity_of", "plan"]

# Elements of a chunk: about 20 microseconds of a sum of float32.
GRAIN = 131072
BLOCK = 1024  # elements combined before the total is
PAIRS = 64  # blocks from the first half of a piece that are added up beside those of its second half
EIGHTS = 8  # groups of eight rows combined before totals are
TILE = 256  # columns whose costly terms are kept on the stack, eight rows of them
IN_VECTORS_FROM = 64  # elements of a row; shorter ones are faster in loops that LLVM repeats
ON_VECTORS = (None, magnitude, square)  # terms that are words of vectors as well

Run = Callable[[np.ndarray], np.ndarray]


def plan(a: np.ndarray, how: Reduction, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype) -> Run | None:
    """What reduces arrays with the layout of `a`, or None where numpy does."""
    if a.dtype.kind == "c":
        return _of_complex(a, how, axes, keepdim) if how.term is None and a.dtype == accumulate == result else None
    kinds = _kinds(how, a.dtype, accumulate, result)
    found = None if kinds is None else fold(a, axes, keepdim, GRAIN)
    if kinds is None or found is None:
        return None
    constants = {"COMBINE": how.combine, "TERM": how.term, "BLOCK_KIND": kinds[0], "TOTAL_KIND": kinds[1],
                 "START": identity_of(how.combine, kinds[0]), "SIZES": _sizes(how)}  # fmt: skip
    make = _in_one if found.cut.pieces == 1 else _rows_in_pieces if found.cut.loop == "rows" else _columns_in_pieces
    return found.contiguous(make(how, found, a.dtype, result, constants))


def _of_complex(a: np.ndarray, how: Reduction, axes: tuple[int, ...], keepdim: bool) -> Run | None:
    """Sums and products of complex numbers over the last dimensions, and sums over others."""
    count, dtype = count_of(a.shape, axes), a.dtype
    if not axes or how.combine not in ("add", "mul"):
        return None
    if a.flags.c_contiguous and sorted(axes) == list(range(a.ndim - len(axes), a.ndim)):
        run = totals(a.size // count, count, dtype, how.combine)
        shape = tuple(1 if d in axes else n for d, n in enumerate(a.shape) if keepdim or d not in axes)
    elif how.combine == "add":
        run, shape = _sums_of_parts(a, axes, keepdim), None
    else:
        return None
    if run is None:
        return None

    def finished(a: np.ndarray) -> np.ndarray:
        total = run(a)
        if shape is not None:
            total = total.reshape(shape)
        if how.finish is None:
            return total
        with np.errstate(all="ignore"):
            return np.asarray(how.finished(total, count))

    return finished


def _sums_of_parts(a: np.ndarray, axes: tuple[int, ...], keepdim: bool) -> Run | None:
    """Real and imaginary parts are columns beside each other."""
    dtype, part = a.dtype, np.dtype(f"f{a.itemsize // 2}")
    add = plan(a[..., None].view(part), _PARTS, axes, keepdim, part, part)
    return None if add is None else lambda a: np.asarray(add(a[..., None].view(part)), order="C").view(dtype)[..., 0]


_PARTS = Reduction("parts", "add")


def _sizes(how: Reduction) -> bool | None:
    """Whether extremes are of magnitudes, where `_tops` finds them; None for other reductions."""
    if how.combine not in ("max", "min") or how.term not in (None, magnitude):
        return None
    return how.term is magnitude


def _in_one(how: Reduction, found: Fold, dtype: np.dtype, result: np.dtype, constants: dict[str, Any]) -> Run:
    chunks, numbers = found.cut.chunks, (*found.cut.numbers, found.count)
    make = _columns_for if found.cut.loop == "columns" else _rows_for
    form = make(how, found, dtype, result, {**constants, "FINISH": how.finish})
    shape, empty, order = found.shape, np.empty, found.order

    def run(a: np.ndarray) -> np.ndarray:
        out = empty(shape, result) if order is None else np.empty_like(order, result)
        form(chunks, True, a, out, *numbers)
        return out

    return run


def _rows_in_pieces(how: Reduction, found: Fold, dtype: np.dtype, result: np.dtype, constants: dict[str, Any]) -> Run:
    """Totals of pieces by the kernel, and of these by a second one.

    After a pass over memory no Python is left in a cache, and each line of it costs a multiple of its usual price.
    """
    chunks, numbers, parts_shape = found.cut.chunks, (*found.cut.numbers, found.count), found.cut.parts
    total = np.dtype(constants["TOTAL_KIND"].name)
    form = _rows_for(how, found, dtype, total, {**constants, "FINISH": None})
    join = pieces_of_rows.form((total, result, int, int, int), {"COMBINE": how.combine, "FINISH": how.finish})
    shape, count, empty, order = found.shape, found.count, np.empty, found.order

    def run(a: np.ndarray) -> np.ndarray:
        parts = empty(parts_shape, total)
        form(chunks, True, a, parts, *numbers)
        out = empty(shape, result) if order is None else np.empty_like(order, result)
        join(1, False, parts, out, *parts_shape, count)
        return out

    return run


def _rows_for(how: Reduction, found: Fold, dtype: np.dtype, result: np.dtype, constants: dict[str, Any]) -> Any:
    """The kernel of rows, compiled for blocks that are combined in vectors, or for others and short ones."""
    items, _, pieces, _, _, k1, _, _, r0, r1, _ = found.cut.numbers
    kind, length = constants["BLOCK_KIND"], r1
    read = float32 if dtype.name in ("float16", "bfloat16") else KINDS[dtype.name]
    loop, in_pairs = plain_rows, False
    if length >= IN_VECTORS_FROM and kind is read and kind.family == "f":
        sums = constants["COMBINE"] == "add" and constants["TERM"] in ON_VECTORS
        extremes = constants["SIZES"] is not None and dtype.itemsize > 2  # of halves they would lose 3 %
        if sums or extremes:
            loop = vector_rows
        in_pairs = sums and dtype.name != "bfloat16"      # whose neighbours are added first
    # Rows of one block at equal distances are little work each, so nothing else is looked at.
    short = pieces == 1 and r0 == 1 and r1 <= BLOCK and items <= k1
    form = {**constants, "SHORT": short, "BFLOAT16": dtype.name == "bfloat16", "FAR": pieces > 1, "IN_PAIRS": in_pairs}
    return loop.form((dtype, result, *[int] * (len(found.cut.numbers) + 1)), form)


def _columns_for(how: Reduction, found: Fold, dtype: np.dtype, result: np.dtype, constants: dict[str, Any]) -> Any:
    """The kernel of columns; in float64 costly terms are made by one copy of their formula, which is faster there too, else by four."""
    kind, total = constants["BLOCK_KIND"], constants["TOTAL_KIND"]
    types = (dtype, result, *[int] * (len(found.cut.numbers) + 1))
    read = float32 if dtype.name in ("float16", "bfloat16") else KINDS[dtype.name]
    if how.combine == "add" and how.term in ON_VECTORS and constants["FINISH"] is None and kind is read and kind.family == "f":
        return vector_columns.form(types, {"TERM": how.term, "BLOCK_KIND": kind, "TOTAL_KIND": total})
    wide = kind is float64
    costly = {"COSTLY": how.costly and wide, "FOURS": how.costly and not wide}
    if dtype.name == "float16" and how.combine in ("max", "min"):
        constants = {**constants, "COMBINE": f"{how.combine} of float16"}
    return columns.form(types, {**constants, **costly})


def _columns_in_pieces(how: Reduction, found: Fold, dtype: np.dtype, result: np.dtype, constants: dict[str, Any]) -> Run:
    """Totals of pieces by the kernel, and of these by numpy."""
    chunks, numbers = found.cut.chunks, (*found.cut.numbers, found.count)
    total = np.dtype(constants["TOTAL_KIND"].name)
    form = _columns_for(how, found, dtype, total, {**constants, "FINISH": None})

    def run(a: np.ndarray) -> np.ndarray:
        parts = np.empty(found.cut.parts, total)
        form(chunks, True, a, parts, *numbers)
        with np.errstate(all="ignore"):
            made = kernels.cast(how.finished(how.ufunc.reduce(parts, axis=1), found.count), result)
        out = found.empty(result)
        dense(out)[...] = made.reshape(-1)
        return out

    return run


def _kinds(how: Reduction, dtype: np.dtype, accumulate: np.dtype, result: np.dtype) -> tuple[Kind, Kind] | None:
    """What a block and what the total is computed in, or None for numpy's."""
    for d in (dtype, accumulate, result):
        if d.name not in KINDS and d.name not in ("float16", "bfloat16"):
            return None
    if how.combine in ("and", "or"):
        return bool8, bool8
    counts = how.combine == "add" and result.kind == "i" and accumulate != result
    if counts:
        return int32, int64
    floating = accumulate.kind not in "iub"
    if not floating and dtype.kind not in "iub":
        return None  # numbers are cut to integers one by one
    if how.combine == "add":
        if floating:
            return (float64, float64) if accumulate.itemsize == 8 else (float32, float64)
        if accumulate.name == "int64" and dtype.itemsize <= 2:
            return int32, int64
    elif how.combine == "mul" and floating:
        return float64, float64
    own = float32 if floating and accumulate.itemsize < 8 else KINDS[accumulate.name]
    return None if own is bool8 and how.combine in ("add", "mul") else (own, own)


def identity_of(combine: str, kind: Kind) -> Any:
    """What changes nothing when it is combined."""
    if combine in ("add", "or"):
        return 0
    if combine in ("mul", "and"):
        return 1
    if kind.family == "f":
        return -np.inf if combine == "max" else np.inf
    if kind is bool8:
        return combine == "min"
    lowest = -(1 << (kind.bits - 1)) if kind.family == "i" else 0
    return lowest if combine == "max" else lowest + (1 << kind.bits) - 1


# -- loops ---------------------------------------------------------------------------------------------------------------


def joined(a, b, COMBINE):
    if COMBINE == "add":
        both = a + b
    elif COMBINE == "mul":
        both = a * b
    elif COMBINE == "max":
        both = maximum(a, b)
    elif COMBINE == "min":
        both = minimum(a, b)
    elif COMBINE == "max of float16":
        # What is read twice LLVM widens; else it would compare halves, which processors do one by one.
        both = where(a == a, maximum(a, b), a)
    elif COMBINE == "min of float16":
        both = where(a == a, minimum(a, b), a)
    elif COMBINE == "and":
        both = a & b
    else:
        both = a | b
    return both


def term_of(value, TERM, KIND):
    """An element as the loop combines it."""
    if TERM is None:
        term = KIND(value)
    else:
        term = KIND(TERM(value))
    return term


def finished(total, count, FINISH, KIND):
    if FINISH is None:
        made = KIND(total)
    else:
        made = KIND(FINISH(total, count))
    return made


def block_of(p, size, COMBINE, TERM, KIND, START, SIZES, BFLOAT16=False, FAR=False):
    """``p[0], ..., p[size - 1]`` combined in any order."""
    if SIZES is not None:
        some = extreme_of(p, size, KIND, START, COMBINE == "max", SIZES)
    elif COMBINE == "add" and KIND.family == "f" and widened(p) is KIND and TERM in ON_VECTORS:
        some = sum_of(p, size, KIND(0), TERM, False, KIND, BFLOAT16, None, FAR)
    elif COMBINE == "add" and KIND is int64 and widened(p) is KIND and TERM is None:
        some = sum_of_integers(p, size)
    else:
        some = KIND(START)
        with flags("reassoc", "contract"):
            for i in range(size):
                some = joined(some, term_of(p[i], TERM, KIND), COMBINE)
    return some


def sum_of_integers(p, n):
    """The sum of int64 by vectors of 32 bytes, also where registers have 64: longer ones are asked for faster than memory sends them, and
    take a sixth more time.
    """
    N = 4
    sums = local(vector(int64, N), 4)
    for R in unroll(range(4)):
        sums[R] = broadcast(int64(0), N)
    i = 0
    while i + 4 * N <= n:
        for R in unroll(range(4)):
            sums[R] = sums[R] + load(p, i + R * N, N)
        i += 4 * N
    while i + N <= n:
        sums[0] = sums[0] + load(p, i, N)
        i += N
    made = lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]))
    for k in brief(range(i, n)):
        made += p[k]
    return made


def rows(chunk, x, out, items, per_chunk, pieces, runs, per_run, k1, outer, step, r0, r1, run, count, *,
         COMBINE, TERM, FINISH, BLOCK_KIND, TOTAL_KIND, START, SIZES, SHORT, BFLOAT16, FAR, IN_PAIRS):  # fmt: skip
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        if SHORT:
            total = TOTAL_KIND(block_of(x + item * step, r1, COMBINE, TERM, BLOCK_KIND, START, SIZES, BFLOAT16))
        else:
            p, from0, to0, from1, to1 = row_at(x, item, pieces, runs, per_run, k1, outer, step, r0, r1)
            total = TOTAL_KIND(START)
            for k in range(from0, to0):
                at = from1
                if FAR and IN_PAIRS and not foresees(BLOCK_KIND):
                    at, total = add_pairs(p + k * run, at, to1, total, TERM, BLOCK_KIND, TOTAL_KIND)
                while at < to1:
                    q = p + (k * run + at)
                    size = min(BLOCK, to1 - at)
                    some = block_of(q, size, COMBINE, TERM, BLOCK_KIND, START, SIZES, BFLOAT16, FAR)
                    total = joined(total, TOTAL_KIND(some), COMBINE)
                    at += BLOCK
        out[item] = finished(total, count, FINISH, widened(out))
        item += 1


def add_pairs(p, at, end, total, TERM, BLOCK_KIND, TOTAL_KIND):
    """Where blocks that have no other to go with begin, and `total` with the sums of those before, added in order of their index."""
    second = local(TOTAL_KIND, PAIRS)
    while at + 2 * BLOCK <= end:
        half = min((end - at) // (2 * BLOCK), PAIRS)
        for j in rolled(range(half)):
            q = p + (at + j * BLOCK)
            some, other = sums_of_two(q, q + half * BLOCK, BLOCK, TERM, BLOCK_KIND)
            total = total + TOTAL_KIND(some)
            second[j] = TOTAL_KIND(other)
        for j in rolled(range(half)):
            total = total + second[j]
        at += 2 * half * BLOCK
    return at, total


# Blocks that are combined in vectors need no more of LLVM, and compile in a third of the time.
plain_rows, vector_rows = kernel(rows, thorough=True), kernel(rows, in_vectors=True)


@kernel(in_vectors=True)
def pieces_of_rows(chunk, parts, out, results, pieces, count, *, COMBINE, FINISH):
    for r in rolled(range(results)):
        p = parts + r * pieces
        total = p[0]
        for k in rolled(range(1, pieces)):
            total = joined(total, p[k], COMBINE)
        out[r] = finished(total, count, FINISH, widened(out))


@kernel
def columns(chunk, x, out, items, per_chunk, strips, width, pieces, height, together, rows, across, block, row, count, *,
            COMBINE, TERM, FINISH, BLOCK_KIND, TOTAL_KIND, START, SIZES, COSTLY, FOURS):  # fmt: skip
    totals = local(TOTAL_KIND, STRIP)
    if BLOCK_KIND is TOTAL_KIND:
        sums = totals
    else:
        sums = local(BLOCK_KIND, STRIP)
    terms = sums
    if COSTLY:
        terms = local(BLOCK_KIND, 8 * TILE)
    if FOURS:
        terms = local(BLOCK_KIND, 2 * STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, _, some, narrow, to = strip_at(x, item, strips, width, pieces, height, rows, across, block, row)
        wide = narrow * together
        # Loops over what is on the stack go on to whole vectors, so there is nothing left over that would need code.
        full = (wide + 63) // 64 * 64
        for c in independent(range(full)):
            totals[c] = TOTAL_KIND(START)
            if BLOCK_KIND is not TOTAL_KIND:
                sums[c] = BLOCK_KIND(START)
        if COSTLY:
            fold_costly_rows(p, totals, sums, terms, some, narrow, together, row, full, COMBINE, TERM, BLOCK_KIND, TOTAL_KIND, START)
        else:
            fold_rows(p, totals, sums, terms, some, narrow, together, row, full, COMBINE, TERM, BLOCK_KIND, TOTAL_KIND, START, FOURS)
        if BLOCK_KIND is not TOTAL_KIND:
            outlined(move_to_totals)(totals, sums, full, BLOCK_KIND(START), COMBINE)
        for j in range(1, together):
            for c in brief(range(narrow)):
                totals[c] = joined(totals[c], totals[j * narrow + c], COMBINE)
        if FINISH is None:
            for c in independent(range(narrow)):
                out[to + c] = widened(out)(totals[c])
        else:
            for c in brief(range(narrow)):            # once for a column: roots are much code
                out[to + c] = finished(totals[c], count, FINISH, widened(out))
        item += 1


def fold_rows(p, totals, sums, terms, some, narrow, together, row, full, COMBINE, TERM, BLOCK_KIND, TOTAL_KIND, START, FOURS):
    """Fold `some` rows of `narrow` columns into `sums`: `together` of them are taken as one, and eight of those are folded first."""
    wide, far = narrow * together, row * together
    left = some // together
    eights = 0
    while left >= 8:
        if FOURS:
            for half in rolled(range(2)):
                q, made = p + half * 4 * far, terms + half * STRIP
                for c in independent(range(wide)):
                    made[c] = four_of(q + c, far, TERM, BLOCK_KIND, COMBINE)
            for c in independent(range(wide)):
                sums[c] = joined(sums[c], joined(terms[c], terms[STRIP + c], COMBINE), COMBINE)
        else:
            for c in independent(range(wide)):
                sums[c] = joined(sums[c], eight_of(p + c, far, TERM, BLOCK_KIND, COMBINE), COMBINE)
        p = p + 8 * far
        left -= 8
        eights += 1
        if BLOCK_KIND is not TOTAL_KIND and eights == EIGHTS:
            outlined(move_to_totals)(totals, sums, full, BLOCK_KIND(START), COMBINE)
            eights = 0
    while left >= 0:
        size = wide
        if left == 0:
            size = (some % together) * narrow
        for c in independent(range(size)):
            sums[c] = joined(sums[c], term_of(p[c], TERM, BLOCK_KIND), COMBINE)
        p = p + far
        left -= 1


def fold_costly_rows(p, totals, sums, terms, some, narrow, together, row, full, COMBINE, TERM, BLOCK_KIND, TOTAL_KIND, START):
    """As `fold_rows`, the same sums in the same order, of terms made by one copy of their formula."""
    wide, far = narrow * together, row * together
    left = some // together
    eights = 0
    while left >= 0:
        high, size = min(left, 8), wide
        if left == 0:
            high, size = 1, (some % together) * narrow
        for c0 in range(0, size, TILE):
            part = min(TILE, size - c0)
            padded = (part + 63) // 64 * 64
            for k in range(high):
                q, made = p + (k * far + c0), terms + k * TILE
                for c in brief(range(part)):
                    made[c] = BLOCK_KIND(q[c])
                for c in brief(range(padded), 4):
                    made[c] = term_of(made[c], TERM, BLOCK_KIND)
            if high == 8:
                for c in brief(range(padded)):
                    sums[c0 + c] = joined(sums[c0 + c], eight_of(terms + c, TILE, None, BLOCK_KIND, COMBINE), COMBINE)
            else:
                for k in range(high):
                    for c in brief(range(part)):
                        sums[c0 + c] = joined(sums[c0 + c], terms[k * TILE + c], COMBINE)
        p = p + high * far
        eights += high // 8
        left -= high
        if BLOCK_KIND is not TOTAL_KIND and eights == EIGHTS:
            outlined(move_to_totals)(totals, sums, full, BLOCK_KIND(START), COMBINE)
            eights = 0


def move_to_totals(totals, sums, full, start, COMBINE):
    for c in independent(range(full)):
        totals[c] = joined(totals[c], widened(totals)(sums[c]), COMBINE)
        sums[c] = start


@kernel(in_vectors=True)
def vector_columns(chunk, x, out, items, per_chunk, strips, width, pieces, height, together, rows, across, block, row, count, *,
                   TERM, BLOCK_KIND, TOTAL_KIND):  # fmt: skip
    """`columns` for sums of floats, in the same order; it compiles in half the time."""
    N = lanes_of(BLOCK_KIND)
    totals = local(TOTAL_KIND, STRIP)
    if BLOCK_KIND is TOTAL_KIND:
        sums = totals
    else:
        sums = local(BLOCK_KIND, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, _, some, narrow, to = strip_at(x, item, strips, width, pieces, height, rows, across, block, row)
        wide = narrow * together
        full = (wide + N - 1) // N * N
        for c in rolled(range(0, full, N)):
            store(totals, c, broadcast(TOTAL_KIND(0), N))
            if BLOCK_KIND is not TOTAL_KIND:
                store(sums, c, broadcast(BLOCK_KIND(0), N))
        left = some // together
        far = row * together
        eights = 0
        while left >= 8:
            tail = wide // N * N
            for c in rolled(range(0, tail, N)):
                store(sums, c, load(sums, c, N) + eight_lanes(p + c, far, N, N, TERM))
            if tail < wide:                           # lanes behind them stay 0
                store(sums, tail, load(sums, tail, N) + eight_lanes(p + tail, far, N, wide - tail, TERM))
            p = p + 8 * far
            left -= 8
            eights += 1
            if BLOCK_KIND is not TOTAL_KIND and eights == EIGHTS:
                add_to_totals(totals, sums, full, N, TOTAL_KIND)
                eights = 0
        add_rows(sums, p, left, far, wide, N, TERM)
        if together > 1:
            add_rows(sums, p + left * far, 1, far, (some % together) * narrow, N, TERM)
        if BLOCK_KIND is not TOTAL_KIND:
            add_to_totals(totals, sums, full, N, TOTAL_KIND)
        for j in rolled(range(1, together)):
            for c in rolled(range(0, narrow, N)):
                size = min(N, narrow - c)
                store(totals, c, load(totals, c, N, size) + load(totals, j * narrow + c, N, size), size)
        tail = narrow // N * N
        for c in rolled(range(0, tail, N)):
            store(out, to + c, vector(widened(out), N)(load(totals, c, N)))
        if tail < narrow:
            store(out, to + tail, vector(widened(out), N)(load(totals, tail, N)), narrow - tail)
        item += 1


def add_rows(sums, p, rows, far, size, N, TERM):
    """Add rows of `size`, `far` apart, to `sums`, the first one first."""
    for c in rolled(range(0, size, N)):
        some, left = load(sums, c, N), size - c
        if left >= N:
            for k in rolled(range(rows)):
                some = some + term_lanes(load(p, k * far + c, N), TERM)
        else:
            for k in rolled(range(rows)):
                some = some + term_lanes(load(p, k * far + c, N, left), TERM)
        store(sums, c, some)


def add_to_totals(totals, sums, full, N, TOTAL_KIND):
    """Add `sums` to `totals`, whole vectors, and clear them."""
    for c in rolled(range(0, full, N)):
        some = load(sums, c, N)
        store(totals, c, load(totals, c, N) + vector(TOTAL_KIND, N)(some))
        store(sums, c, broadcast(widened(sums)(0), N))


def term_lanes(v, TERM):
    return v if TERM is None else TERM(v)


def eight_lanes(q, far, N, size, TERM):
    """`eight_of` for the first `size` of N columns."""
    return four_lanes(q, far, N, size, TERM) + four_lanes(q + 4 * far, far, N, size, TERM)


def four_lanes(q, far, N, size, TERM):
    if size is N:
        a, b, c, d = load(q, 0, N), load(q, far, N), load(q, 2 * far, N), load(q, 3 * far, N)
    else:
        a, b, c, d = load(q, 0, N, size), load(q, far, N, size), load(q, 2 * far, N, size), load(q, 3 * far, N, size)
    return (term_lanes(a, TERM) + term_lanes(b, TERM)) + (term_lanes(c, TERM) + term_lanes(d, TERM))


def eight_of(q, far, TERM, KIND, COMBINE):
    """The terms of eight elements that lie `far` apart, combined in pairs."""
    return joined(four_of(q, far, TERM, KIND, COMBINE), four_of(q + 4 * far, far, TERM, KIND, COMBINE), COMBINE)


def four_of(q, far, TERM, KIND, COMBINE):
    a = joined(term_of(q[0], TERM, KIND), term_of(q[far], TERM, KIND), COMBINE)
    b = joined(term_of(q[2 * far], TERM, KIND), term_of(q[3 * far], TERM, KIND), COMBINE)
    return joined(a, b, COMBINE)
