"""Combining elements of half types by index: in float32, and rounded once.

A chunk takes the places it stores to into float32, combines what comes to them in the order of the index, and rounds them when all has
come. Where the index names few of the places only these are taken. Each place belongs to one chunk, so the bits are those of one thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import independent, int32, int64, kernel, rolled
from flambeau_kernels.engines import kept

from .accumulate import ACROSS, LONG, WORK, combined
from .index import PIECE, from_end, shared_out

__all__ = ["combine_elements", "combine_slices"]

_FLOAT32, _INT32 = np.dtype(np.float32), np.dtype(np.int32)


def combine_elements(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str) -> bool:
    """Combine `values` into `made` at `index` along `dim`, in place; False, and nothing done, for what is added in parts elsewhere.

    Args:
        made: float16 or bfloat16, in C order.
        index: in C order, checked, not empty, of the shape of `made` but along `dim`; no place is below zero.
        values: of the shape of `index` and the dtype of `made`, in C order.
        how: 'sum', 'prod', 'amax' or 'amin'.
    """
    shape, n = index.shape, made.shape[dim]
    m, inner, outer = shape[dim], math.prod(shape[dim + 1 :]), math.prod(shape[:dim])
    if _comes_in_parts(how, outer * inner, m, n):
        return False
    each, across = _shares(outer, m, inner)
    blocks = -(-inner // across)
    wide = np.empty(made.size, np.float32)
    _elements(made.dtype, index.dtype, how)(-(-outer // each) * blocks, index.size > WORK, made, wide, index, values, n, outer, m, inner,
                                            each, across, blocks)  # fmt: skip
    return True


def combine_slices(made: np.ndarray, dim: int, index: np.ndarray, values: np.ndarray, how: str) -> bool:
    """Combine slices into those of `made` at the vector `index` along `dim`; False, and nothing done, for what is added in parts elsewhere.

    Args:
        made, how: as for `combine_elements`.
        index: in C order, checked, not empty; places below zero count from the end.
        values: of the dtype of `made` and its shape but along `dim`, or one element, which all these slices are made of; in C order.
    """
    shape, n, m = made.shape, made.shape[dim], len(index)
    inner, outer = math.prod(shape[dim + 1 :]), math.prod(shape[:dim])
    if _comes_in_parts(how, outer * inner, m, n):
        return False
    each, across = _shares(outer, m, inner)
    blocks = -(-inner // across)
    chunks = -(-outer // each) * blocks
    wide, owners = np.empty(chunks * m * across, np.float32), np.empty(chunks * n, np.int32)
    _slices(made.dtype, index.dtype, how, values.size == 1)(
        chunks, outer * m * inner > WORK, made, wide, owners, index, values, n, outer, m, inner, each, across, blocks
    )
    return True


def _comes_in_parts(how: str, lines: int, m: int, n: int) -> bool:
    """Whether `accumulate` adds up the parts of a line on their own, in another order."""
    return how == "sum" and lines == 1 and m >= LONG and m >= 4 * n


def _shares(outer: int, m: int, inner: int) -> tuple[int, int]:
    """How many lines a chunk has, and how many neighbours of each."""
    each, across = shared_out(outer, m * inner), inner
    if outer == 1 and inner >= 2 * ACROSS:
        across = shared_out(inner, m, max(PIECE, ACROSS * m))
    return each, across


@kept()
def _elements(dtype: np.dtype, index: np.dtype, how: str) -> Any:
    return combine_some_elements.form((dtype, _FLOAT32, index, dtype, *[int] * 7), {"HOW": how})


@kept()
def _slices(dtype: np.dtype, index: np.dtype, how: str, one: bool) -> Any:
    return combine_some_slices.form((dtype, _FLOAT32, _INT32, index, dtype, *[int] * 7), {"HOW": how, "ONE": one})


def move_places(given, to, places, n, m, lines, count, step, all, there, inner):
    """Move elements of a line to where they lie in other memory: those that `places` names where these are a minority, else all."""
    if 2 * m < n:
        for j in range(lines):
            for i in rolled(range(count)):
                place = int64(places[j * inner + i]) * inner + i * step
                to[place] = given[place]
    else:
        for j in range(all):
            for i in independent(range(there)):
                to[j * inner + i] = given[j * inner + i]


@kernel
def combine_some_elements(chunk: Any, target: Any, wide: Any, index: Any, values: Any, n: Any, outer: Any, m: Any, inner: Any, each: Any,
                          across: Any, blocks: Any, *, HOW: str) -> Any:  # fmt: skip
    group = chunk // blocks
    start = (chunk - group * blocks) * across
    width = min(inner, start + across) - start
    # The places of a line and what comes to them are one row each where its elements are neighbours.
    step, all, lines, count, there = 1, n, m, width, width
    if inner == 1:
        step, all, lines, count, there = 0, 1, 1, m, n
    for o in range(group * each, min(outer, group * each + each)):
        to, sums = target + (o * n * inner + start), wide + (o * n * inner + start)
        places, added = index + (o * m * inner + start), values + (o * m * inner + start)
        move_places(to, sums, places, n, m, lines, count, step, all, there, inner)
        for j in range(lines):
            for i in rolled(range(count)):
                place = int64(places[j * inner + i]) * inner + i * step
                sums[place] = combined(sums[place], added[j * inner + i], HOW)
        move_places(sums, to, places, n, m, lines, count, step, all, there, inner)


@kernel
def combine_some_slices(chunk: Any, target: Any, wide: Any, owners: Any, index: Any, values: Any, n: Any, outer: Any, m: Any, inner: Any,
                        each: Any, across: Any, blocks: Any, *, HOW: str, ONE: bool) -> Any:  # fmt: skip
    group = chunk // blocks
    start = (chunk - group * blocks) * across
    width = min(inner, start + across) - start
    # The sums of a place lie where the last slice that comes to it has its own.
    sums, owner = wide + chunk * m * across, owners + chunk * n
    for j in rolled(range(m)):
        owner[from_end(index[j], n)] = int32(j)
    for o in range(group * each, min(outer, group * each + each)):
        to, added = target + (o * n * inner + start), values + (0 if ONE else o * m * inner + start)
        if inner == 1:
            for j in rolled(range(m)):
                place = from_end(index[j], n)
                sums[int64(owner[place])] = to[place]
            for j in rolled(range(m)):
                mine = int64(owner[from_end(index[j], n)])
                sums[mine] = combined(sums[mine], added[0 if ONE else j], HOW)
            for j in rolled(range(m)):
                place = from_end(index[j], n)
                to[place] = sums[int64(owner[place])]
        else:
            for j in range(m):
                place = from_end(index[j], n)
                if int64(owner[place]) == j:
                    own, row = sums + j * across, to + place * inner
                    for i in independent(range(width)):
                        own[i] = row[i]
            for j in range(m):
                own, row = sums + int64(owner[from_end(index[j], n)]) * across, added + (0 if ONE else j * inner)
                for i in independent(range(width)):
                    own[i] = combined(own[i], row[0 if ONE else i], HOW)
            for j in range(m):
                place = from_end(index[j], n)
                if int64(owner[place]) == j:
                    own, row = sums + j * across, to + place * inner
                    for i in independent(range(width)):
                        row[i] = own[i]
