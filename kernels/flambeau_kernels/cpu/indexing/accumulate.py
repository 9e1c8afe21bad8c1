"""Storing and adding up elements by index, in compiled loops.

Elements that meet in one place come one after the other in the row-major order of the index: chunks divide the
places, never the elements of one place, so results have the same bits on any number of threads. Where there is
one long line of elements and fewer places than that, sums are taken in `PARTS` parts instead, and these added in order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    independent,
    int32,
    int64,
    kernel,
    lanes,
    load,
    local,
    prefetch,
    rolled,
    store,
    uint64,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engines import kept
from flambeau_kernels.vocabulary import maximum, minimum, where

from ..sorting.keys import BITS_OF
from .index import PIECE, collapsed, from_end, shared_out

__all__ = ["add_rows", "average", "largest_of_bags", "scatter", "scatter_slices", "scatter_unsplit", "sum_bags", "sum_weighted_bags"]

WORK = 1 << 14                                       # elements per chunk
ACROSS = 64                                          # neighbours of a chunk at least, for whole cache lines of the index
TOGETHER = 4                                         # rows of which one element each is stored together
PARTS = 4                                            # of the elements of one long line
LONG = 1 << 17
AHEAD = 16                                           # rows of a bag that are asked for early


def scatter(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str) -> bool:
    """Combine `values` into `made` at `index` along `dim`, in place; returns False where the layout is not one of ours.

    Args:
        made: strided, of at least the size of `index` outside of `dim`.
        index: in C order, checked, not empty; those below zero count from the end.
        values: of the shape of `index`, in C order and of the dtype of `made`.
        how: 'put', 'sum', 'prod', 'amax' or 'amin'.
    """
    shape, n = index.shape, made.shape[dim]
    corner = made[tuple(slice(None) if d == dim else slice(0, m) for d, m in enumerate(shape))]
    outer = collapsed(corner.shape[:dim], corner.strides[:dim])
    inner = collapsed(corner.shape[dim + 1 :], corner.strides[dim + 1 :])
    if outer is None or inner is None:
        return False
    if how == "put":
        bits = BITS_OF[made.dtype.itemsize]
        corner, values = corner.view(bits), values.view(bits)
    size, m = made.dtype.itemsize, shape[dim]
    if how == "sum" and outer[0] * inner[0] == 1 and m >= LONG and m >= 4 * n:
        _sum_in_parts(corner, index, values, n, m, corner.strides[dim] // size)
        return True
    each = max(1, WORK // (m * inner[0]))            # outer positions per chunk
    across = inner[0] if each > 1 else max(min(inner[0], ACROSS), WORK // m)
    blocks = -(-inner[0] // across)
    scatter_blocks.run(-(-outer[0] // each) * blocks, corner, index, values, n, outer[0], m, inner[0], outer[1] // size,
                       corner.strides[dim] // size, inner[1] // size, each, across, blocks, HOW=how, WRAP=True,
                       release=index.size > WORK)  # fmt: skip
    return True


def scatter_unsplit(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str) -> None:
    """`scatter` into an array in C order, of an index of its size but along `dim`, and none of whose places is below zero."""
    shape, n = index.shape, made.shape[dim]
    m, inner, outer = shape[dim], math.prod(shape[dim + 1 :]), math.prod(shape[:dim])
    if how == "sum" and outer * inner == 1 and m >= LONG and m >= 4 * n:
        _sum_in_parts(made, index, values, n, m, 1)
        return
    each, across = shared_out(outer, m * inner), inner
    if outer == 1 and inner >= 2 * ACROSS:
        across = shared_out(inner, m, max(PIECE, ACROSS * m))
    blocks = -(-inner // across)
    _scattering(made.dtype, index.dtype, how)(-(-outer // each) * blocks, index.size > WORK, made, index, values, n, outer, m, inner,
                                              n * inner, inner, 1, each, across, blocks)  # fmt: skip


@kept()
def _scattering(dtype: np.dtype, index: np.dtype, how: str) -> Any:
    kind = BITS_OF[dtype.itemsize] if how == "put" else dtype
    return scatter_blocks.form((kind, index, kind, *[int] * 10), {"HOW": how, "WRAP": False})


@kernel
def scatter_blocks(chunk: Any, target: Any, index: Any, values: Any, n: Any, outer: Any, m: Any, inner: Any, outer_step: Any,
                   step: Any, inner_step: Any, each: Any, across: Any, blocks: Any, *, HOW: str, WRAP: bool) -> Any:  # fmt: skip
    group = chunk // blocks
    start = (chunk - group * blocks) * across
    width = min(inner, start + across) - start
    for o in range(group * each, min(outer, group * each + each)):
        to = target + (o * outer_step + start * inner_step)
        if inner == 1:
            places, added = index + o * m, values + o * m
            for j in rolled(range(m)):                # in vectors, stores to places apart are slow
                place = counted(places[j], n, WRAP) * step
                to[place] = combined(to[place], added[j], HOW)
        else:
            for j in range(m):
                at = (o * m + j) * inner + start
                for i in rolled(range(width)):
                    place = counted(index[at + i], n, WRAP) * step + i * inner_step
                    to[place] = combined(to[place], values[at + i], HOW)


def scatter_slices(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str) -> None:
    """Combine slices into those of `made` at the vector `index` along `dim`, one after the other; all in C order.

    Args:
        index: checked, not empty; places below zero count from the end.
        values: of the dtype of `made` and its shape but along `dim`; or one element, which all these slices are made of.
        how: as for `scatter`.
    """
    shape, n, m = made.shape, made.shape[dim], len(index)
    inner, outer = math.prod(shape[dim + 1 :]), math.prod(shape[:dim])
    each, across = shared_out(outer, m * inner), inner
    if outer == 1 and inner >= 2 * ACROSS:
        across = shared_out(inner, m, max(PIECE, ACROSS * m))
    blocks = -(-inner // across)
    _scattering_slices(made.dtype, index.dtype, how, values.size == 1)(
        -(-outer // each) * blocks, outer * m * inner > WORK, made, index, values, n, outer, m, inner, each, across, blocks
    )


@kept()
def _scattering_slices(dtype: np.dtype, index: np.dtype, how: str, one: bool) -> Any:
    kind = BITS_OF[dtype.itemsize] if how == "put" else dtype
    return scatter_some_slices.form((kind, index, kind, *[int] * 7), {"HOW": how, "ONE": one})


@kernel
def scatter_some_slices(chunk: Any, target: Any, index: Any, values: Any, n: Any, outer: Any, m: Any, inner: Any, each: Any, across: Any,
                        blocks: Any, *, HOW: str, ONE: bool) -> Any:  # fmt: skip
    group = chunk // blocks
    start = (chunk - group * blocks) * across
    width = min(inner, start + across) - start
    o, last = group * each, min(outer, group * each + each)
    if inner == 1:
        while o + TOGETHER <= last:                   # several rows, for which a place is read once
            for j in rolled(range(m)):
                place = int64(from_end(index[j], n))
                for r in unroll(range(TOGETHER)):
                    to = target + ((o + r) * n + place)
                    to[0] = combined(to[0], values[0 if ONE else (o + r) * m + j], HOW)
            o += TOGETHER
        while o < last:
            for j in rolled(range(m)):
                place = o * n + int64(from_end(index[j], n))
                target[place] = combined(target[place], values[0 if ONE else o * m + j], HOW)
            o += 1
    else:
        while o < last:
            for j in range(m):
                to = target + ((o * n + int64(from_end(index[j], n))) * inner + start)
                added = values + (0 if ONE else (o * m + j) * inner + start)
                for i in independent(range(width)):
                    to[i] = combined(to[i], added[0 if ONE else i], HOW)
            o += 1


def counted(place: Any, n: Any, WRAP: Any) -> Any:
    if WRAP:
        made = from_end(place, n)
    else:
        made = int64(place)
    return made


def combined(a: Any, b: Any, HOW: Any) -> Any:
    if HOW == "put":
        made = b
    elif HOW == "sum":
        made = a + b
    elif HOW == "prod":
        made = a * b
    elif HOW == "amax":
        made = maximum(a, b)
    else:
        made = minimum(a, b)
    return made


def _sum_in_parts(target: np.ndarray, index: np.ndarray, values: np.ndarray, n: int, m: int, step: int) -> None:
    sums = np.empty(PARTS * n, target.dtype)
    sum_part.run(PARTS, index, values, sums, n, m, -(-m // PARTS))
    add_parts.run(-(-n // WORK), target, sums, n, step)


@kernel
def sum_part(chunk: Any, index: Any, values: Any, sums: Any, n: Any, m: Any, each: Any) -> Any:
    mine, kind = sums + chunk * n, widened(sums)
    for i in range(n):
        mine[i] = kind(0)
    for j in range(chunk * each, min(m, chunk * each + each)):
        place = from_end(index[j], n)
        mine[place] = mine[place] + values[j]


@kernel
def add_parts(chunk: Any, target: Any, sums: Any, n: Any, step: Any) -> Any:
    for i in independent(range(chunk * WORK, min(n, chunk * WORK + WORK))):
        total = target[i * step]
        for part in unroll(range(PARTS)):
            total += sums[part * n + i]
        target[i * step] = total


def average(made: np.ndarray, count: np.ndarray, more: int) -> None:
    """Divide the sums `made`, floating, by `count` and `more`, or by nothing where that is none; both in C order."""
    divide.run(-(-made.size // WORK), made, count, made.size, more)


@kernel
def divide(chunk: Any, made: Any, count: Any, n: Any, more: Any) -> Any:
    kind = widened(made)
    for i in independent(range(chunk * WORK, min(n, chunk * WORK + WORK))):
        made[i] = made[i] / kind(max(count[i] + more, 1))


def add_rows(made: np.ndarray, index: np.ndarray, values: np.ndarray, fresh: bool) -> None:
    """Add row i of `values` to row ``index[i]`` of `made`, or of zeros if `fresh`; all in C order, indices checked.

    Every chunk owns some rows of `made` and looks through the whole index for them.
    """
    rows, width = made.shape
    # Looking at an index costs about as much as adding an element.
    chunks = max(1, min(8 if fresh else 4, rows, (rows if fresh else len(index)) * width // (2 * WORK)))
    each = -(-rows // chunks)
    own_rows.run(-(-rows // each), made, index, values, rows, width, len(index), each, FRESH=fresh,
                 release=made.size > WORK)  # fmt: skip


@kernel
def own_rows(chunk: Any, made: Any, index: Any, values: Any, rows: Any, width: Any, count: Any, each: Any, *,
             FRESH: bool = False) -> Any:  # fmt: skip
    first, last, kind = chunk * each, min(rows, chunk * each + each), widened(made)
    if FRESH:
        for i in range(first * width, last * width):
            made[i] = kind(0)
    for k in range(count):
        row = int64(index[k])
        if uint64(row - first) < uint64(last - first):  # one comparison tells both ends
            to, added = made + row * width, values + k * width
            for c in independent(range(width)):
                to[c] = to[c] + kind(added[c])


def sum_bags(table: np.ndarray, index: np.ndarray, starts: np.ndarray, made: np.ndarray) -> bool:
    """Row i of `made` becomes the sum of the rows of `table` that ``index[starts[i] : starts[i + 1]]`` name; all in C order.

    Returns False where a place is out of range (those below zero are), after which `made` means nothing.
    """
    count, width = made.shape
    each, wrong = max(1, WORK * count // max(1, len(index) * width)), np.zeros(1, np.int64)
    sum_some_bags.run(-(-count // each), table, index, starts, made, wrong, count, width, len(table), each)
    return not wrong[0]


@kernel
def sum_some_bags(chunk: Any, table: Any, index: Any, starts: Any, made: Any, wrong: Any, count: Any, width: Any, n: Any,
                  each: Any) -> Any:  # fmt: skip
    kind = widened(made)
    COUNT = lanes(kind)
    sums, last, worst = local(vector(kind, COUNT), 4), starts[count], uint64(0)
    for bag in range(chunk * each, min(count, chunk * each + each)):
        to, first, end = made + bag * width, starts[bag], starts[bag + 1]
        for k in range(first, end):
            worst = max(worst, uint64(int64(index[k])))
        c = 0
        for V in unroll((4, 2, 1)):                     # vectors of columns whose sums stay in registers
            while c + V * COUNT <= width:
                for v in unroll(range(V)):
                    sums[v] = broadcast(kind(0), COUNT)
                for k in range(first, end):
                    ahead = table + (int64(index[min(k + AHEAD, last - 1)]) * width + c)
                    row = table + (inside(index[k], n) * width + c)
                    for v in unroll(range(V)):
                        prefetch(ahead + v * COUNT)
                        sums[v] = sums[v] + load(row, v * COUNT, COUNT)
                for v in unroll(range(V)):
                    store(to, c + v * COUNT, sums[v])
                c += V * COUNT
        for rest in range(c, width):
            total = kind(0)
            for k in range(first, end):
                total += table[inside(index[k], n) * width + rest]
            to[rest] = total
    if worst >= uint64(n):
        wrong[0] = 1


def sum_weighted_bags(table: np.ndarray, index: np.ndarray, weights: np.ndarray, starts: np.ndarray, made: np.ndarray) -> None:
    """As `sum_bags`, each row times its weight, one for each element of `index`, which is known to be in range; all of one dtype."""
    count, width = made.shape
    each = max(1, WORK * count // max(1, len(index) * width))
    weigh_some_bags.run(-(-count // each), table, index, weights, starts, made, count, width, each)


@kernel
def weigh_some_bags(chunk: Any, table: Any, index: Any, weights: Any, starts: Any, made: Any, count: Any, width: Any,
                    each: Any) -> Any:  # fmt: skip
    kind = widened(made)
    COUNT = lanes(kind)
    sums, last = local(vector(kind, COUNT), 4), starts[count]
    for bag in range(chunk * each, min(count, chunk * each + each)):
        to, first, end = made + bag * width, starts[bag], starts[bag + 1]
        c = 0
        for V in unroll((4, 1)):                     # vectors of columns whose sums stay in registers
            while c + V * COUNT <= width:
                for v in unroll(range(V)):
                    sums[v] = broadcast(kind(0), COUNT)
                for k in range(first, end):
                    ahead = table + (int64(index[min(k + AHEAD, last - 1)]) * width + c)
                    row, weight = table + (int64(index[k]) * width + c), broadcast(kind(weights[k]), COUNT)
                    for v in unroll(range(V)):
                        prefetch(ahead + v * COUNT)
                        sums[v] = sums[v] + weight * load(row, v * COUNT, COUNT)
                for v in unroll(range(V)):
                    store(to, c + v * COUNT, sums[v])
                c += V * COUNT
        for rest in range(c, width):
            total = kind(0)
            for k in range(first, end):
                total += kind(weights[k]) * table[int64(index[k]) * width + rest]
            to[rest] = total


def largest_of_bags(table: np.ndarray, index: np.ndarray, starts: np.ndarray, made: np.ndarray) -> None:
    """Row i of `made` becomes the rows of `table`, of those that ``index[starts[i] : starts[i + 1]]`` name, whose elements are largest.

    That is the first of several, nan before numbers, and -1 for an empty bag; all in C order, and `index` known to be in range.
    """
    count, width = made.shape
    each = max(1, WORK * count // max(1, len(index) * width))
    find_in_some_bags.run(-(-count // each), table, index, starts, made, count, width, each)


@kernel
def find_in_some_bags(chunk: Any, table: Any, index: Any, starts: Any, made: Any, count: Any, width: Any, each: Any) -> Any:
    kind = widened(table)
    COUNT = lanes(kind)
    last = starts[count]
    for bag in range(chunk * each, min(count, chunk * each + each)):
        first, end = starts[bag], starts[bag + 1]
        for c in range(0, width, COUNT):
            best, at = broadcast(kind(0), COUNT), broadcast(int32(-1), COUNT)
            for k in range(first, end):
                prefetch(table + (int64(index[min(k + AHEAD, last - 1)]) * width + c))
                row = int64(index[k])
                v = load(table + row * width, c, COUNT, width - c)
                wins = (v > best) | ((v != v) & (best == best)) | (at < 0)
                best, at = where(wins, v, best), where(wins, broadcast(int32(row), COUNT), at)
            store(made + bag * width, c, vector(int64, COUNT)(at), width - c)


def inside(place: Any, n: Any) -> Any:
    """`place`, or one that can be read where it is out of range."""
    return int64(min(uint64(int64(place)), uint64(n - 1)))
