"""The loops of `extremes`.

rows     the largest element of a block of 1024 is found by the vector unit; only the first block that holds the largest of
         all is then searched for its place.
columns  the best values of a strip of columns and their rows are kept, four rows at a time.

What is largest of a long run, or of a piece of many rows, is found for each piece, and of these by numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import float32, independent, int32, int64, kernel, local, unroll
from flambeau_kernels.scalar.symbols import KINDS
from flambeau_kernels.vocabulary import where

from ..shapes.move import contiguous
from ._folds import STRIP, Fold, dense, fold
from ._tops import extreme_of
from ._walk import row_at, strip_at
from .reduce_loops import identity_of

__all__ = ["plan"]

GRAIN = 65536
BLOCK = 1024
FAR = 1 << 30  # an index beyond every block
_HALVES = ("float16", "bfloat16")
_MOST = (1 << 31) - 1


def plan(a: np.ndarray, dim: int | None, keepdim: bool, largest: bool, with_values: bool) -> Any:
    """What finds the extremes of arrays like `a` along `dim`, or None where numpy does."""
    if (a.dtype.name not in KINDS and a.dtype.name not in _HALVES) or max(a.shape) > _MOST:
        return None
    axes = tuple(range(a.ndim)) if dim is None else (dim,)
    flattens = len(axes) > 1 and not a.flags.c_contiguous    # an index counts elements by rows
    like = np.empty(a.shape, a.dtype) if flattens else a
    found = fold(like, axes, keepdim, GRAIN)
    if found is None:
        return None
    kind = float32 if a.dtype.name in _HALVES else KINDS[a.dtype.name]
    constants = {"LARGEST": largest, "KIND": kind, "START": identity_of("max" if largest else "min", kind)}
    make = _in_one if found.cut.pieces == 1 else _in_pieces
    run = make(found, a.dtype, with_values, constants)
    return (lambda a: run(contiguous(a))) if flattens else found.contiguous(run)


def _in_one(found: Fold, dtype: np.dtype, with_values: bool, constants: dict[str, Any]) -> Any:
    chunks, numbers = found.cut.chunks, found.cut.numbers
    index = np.dtype(np.int64)
    form = _LOOPS[found.cut.loop].form(
        (dtype, dtype if with_values else index, index, *[int] * len(numbers)), {**constants, "WITH_VALUES": with_values}
    )

    def run(a: np.ndarray) -> Any:
        indices = found.empty(index)
        values = found.empty(dtype) if with_values else indices
        form(chunks, True, a, values, indices, *numbers)
        return (values, indices) if with_values else indices

    return run


def _in_pieces(found: Fold, dtype: np.dtype, with_values: bool, constants: dict[str, Any]) -> Any:
    chunks, numbers = found.cut.chunks, found.cut.numbers
    index = np.dtype(np.int64)
    form = _LOOPS[found.cut.loop].form((dtype, dtype, index, *[int] * len(numbers)), {**constants, "WITH_VALUES": True})
    pick = np.argmax if constants["LARGEST"] else np.argmin

    def run(a: np.ndarray) -> Any:
        values, indices = np.empty(found.cut.parts, dtype), np.empty(found.cut.parts, index)
        form(chunks, True, a, values, indices, *numbers)
        wide = values if dtype.name not in _HALVES else values.astype(np.float32)
        best = np.expand_dims(pick(wide, axis=1), 1)
        made = []
        for parts in (values, indices) if with_values else (indices,):
            out = found.empty(parts.dtype)
            dense(out)[...] = np.take_along_axis(parts, best, 1).reshape(-1)
            made.append(out)
        return tuple(made) if with_values else made[0]

    return run


# -- loops ---------------------------------------------------------------------------------------------------------------


def better(a, b, LARGEST):
    """Whether `a` takes the place of `b`, which came before it."""
    if LARGEST:
        beats = (a > b) | ((a != a) & (b == b))
    else:
        beats = (a < b) | ((a != a) & (b == b))
    return beats


def place_of(best, p, size, KIND):
    """Where `best`, or a nan, is first."""
    place = int32(FAR)
    for i in range(size):
        value = KIND(p[i])
        place = min(place, where((value == best) | (value != value), int32(i), int32(FAR)))
    return place


@kernel
def rows(chunk, x, values, indices, items, per_chunk, pieces, runs, per_run, k1, outer, step, r0, r1, run, *,
         LARGEST, KIND, START, WITH_VALUES):  # fmt: skip
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, _, _, first, stop = row_at(x, item, pieces, runs, per_run, k1, outer, step, 1, r1)
        at, home = first, first
        best = KIND(START)
        while at < stop:
            top = extreme_of(p + at, min(BLOCK, stop - at), KIND, START, LARGEST, False)
            if better(top, best, LARGEST):
                best = top
                home = at
            at += BLOCK
        place = home + int64(place_of(best, p + home, min(BLOCK, stop - home), KIND))
        indices[item] = place
        if WITH_VALUES:
            values[item] = p[place]
        item += 1


@kernel
def columns(chunk, x, values, indices, items, per_chunk, strips, width, pieces, height, together, rows, across, block, row, *,
            LARGEST, KIND, START, WITH_VALUES):  # fmt: skip
    tops = local(KIND, STRIP)
    places = local(int32, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, first, some, narrow, to = strip_at(x, item, strips, width, pieces, height, rows, across, block, row)
        start = p
        wide = narrow * together
        for c in independent(range(wide)):
            tops[c] = KIND(START)
            places[c] = int32(0)
        full_steps = some // together
        far = row * together
        r = 0
        while r + 4 <= full_steps:
            for c in independent(range(wide)):
                top = tops[c]
                place = places[c]
                q = p + c
                for k in unroll(range(4)):
                    value = KIND(q[k * far])
                    beats = better(value, top, LARGEST)
                    top = where(beats, value, top)
                    place = where(beats, int32(r + k), place)
                tops[c] = top
                places[c] = place
            p = p + 4 * far
            r += 4
        while r <= full_steps:
            size = wide
            if r == full_steps:
                size = (some % together) * narrow
            for c in independent(range(size)):
                value = KIND(p[c])
                beats = better(value, tops[c], LARGEST)
                tops[c] = where(beats, value, tops[c])
                places[c] = where(beats, int32(r), places[c])
            p = p + far
            r += 1
        # What was read as one row were several: of equal values the one of the first row counts.
        for j in range(together):
            for c in independent(range(narrow)):
                place = places[j * narrow + c] * int32(together) + int32(j)
                if j == 0:
                    places[c] = place
                else:
                    value = tops[j * narrow + c]
                    top = tops[c]
                    beats = better(value, top, LARGEST)
                    ties = ((value == top) | ((value != value) & (top != top))) & (place < places[c])
                    tops[c] = where(beats | ties, value, top)
                    places[c] = where(beats | ties, place, places[c])
        for c in range(narrow):
            indices[to + c] = first + int64(places[c])
            if WITH_VALUES:
                values[to + c] = start[int64(places[c]) * row + c]
        item += 1


_LOOPS = {"rows": rows, "columns": columns}
