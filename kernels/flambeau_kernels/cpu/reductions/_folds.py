"""How an array is walked by a reduction: its dimensions ordered, merged and cut into chunks, by its strides alone.

Dimensions are sorted by stride, as they lie in memory, and neighbours that are both kept or both reduced are merged. What
remains is one of two patterns; anything else is copied to a contiguous array first, and overlapping memory left to numpy:

rows     the innermost dimension is reduced: up to two kept and two reduced dimensions, in any order outside of it
columns  the innermost dimension is kept: ``(outer, reduced, columns)``

A result is cut into pieces where there are too few results to share among threads. Pieces, and the chunks that several
results or pieces make together, depend on lengths and strides only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from ..shapes.move import contiguous
from .reduce import count_of

__all__ = ["STRIP", "Cut", "Fold", "dense", "fold"]

STRIP = 1024  # columns whose totals are kept on the stack
NARROW = 128  # columns below which several rows are read as one
MOST_PIECES = 128  # of a run
LEAST_ROWS = 64  # of a piece of columns

Dimension = tuple[int, int, bool]  # length, stride in elements, whether it is reduced


class Cut(NamedTuple):
    """The work of a reduction: which loop ('rows' or 'columns'), the numbers it wants, chunks, pieces of each result."""

    loop: str
    chunks: int
    pieces: int
    numbers: tuple[int, ...]
    parts: tuple[int, ...]  # shape of the partial results, pieces being dimension 1


class Fold(NamedTuple):
    """A reduction of arrays of one layout: its cut, the shape of the result and what tells its memory order, if not by rows."""

    cut: Cut
    shape: tuple[int, ...]
    order: np.ndarray | None
    count: int
    copied: tuple[int, ...] | None  # the order of dimensions in which the operand is copied first, if it is

    def contiguous(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`run`, on a contiguous copy where the fold is of one."""
        order = self.copied
        return run if order is None else lambda a, *rest: run(contiguous(a.transpose(order)), *rest)

    def empty(self, dtype: np.dtype) -> np.ndarray:
        return np.empty(self.shape, dtype) if self.order is None else np.empty_like(self.order, dtype)


def fold(a: np.ndarray, axes: tuple[int, ...], keepdim: bool, grain: int) -> Fold | None:
    """How to reduce `a`, which is not empty, over `axes`; None where that is left to numpy.

    Args:
        grain: elements that are worth a chunk.
    """
    if any(n != 1 and (s <= 0 or s % a.itemsize) for n, s in zip(a.shape, a.strides, strict=True)):
        return None
    strides = [s // a.itemsize for s in a.strides]
    cut = _cut(_merged(a.shape, strides, axes), grain)
    shape, order = _result(a.shape, strides, axes, keepdim)
    copied = None
    if cut is None:
        # By rows in the order of dimensions there is, or else with the reduced ones last.
        for copied in (tuple(range(a.ndim)), (*(d for d in range(a.ndim) if d not in axes), *axes)):
            order, cut = None, _cut(_merged(*_by_rows(a.shape, copied), {copied.index(d) for d in axes}), grain)
            if cut is not None:
                break
    return None if cut is None else Fold(cut, shape, order, count_of(a.shape, axes), copied)


def _by_rows(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
    """Shape and strides of a copy with its dimensions in `order`."""
    strides: list[int] = []
    step = 1
    for d in reversed(order):
        strides.insert(0, step)
        step *= shape[d]
    return tuple(shape[d] for d in order), strides


def dense(out: np.ndarray) -> np.ndarray:
    """`out`, whose memory has no gaps, as a vector in the order of its memory."""
    if out.flags.c_contiguous:
        return out.reshape(-1)
    return out.transpose(np.argsort([-s for s in out.strides], kind="stable")).reshape(-1)


def _merged(shape: tuple[int, ...], strides: list[int], axes: Collection[int]) -> list[Dimension]:
    dims = [(n, s, d in axes) for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if n != 1]
    dims.sort(key=lambda dim: -dim[1])
    merged: list[Dimension] = []
    for n, stride, reduced in dims:
        if merged and merged[-1][2] is reduced and merged[-1][1] == n * stride:
            merged[-1] = (merged[-1][0] * n, stride, reduced)
        else:
            merged.append((n, stride, reduced))
    return merged


def _cut(dims: list[Dimension], grain: int) -> Cut | None:
    if dims and dims[-1][1] != 1:
        return None
    if dims and not dims[-1][2]:
        return _columns(dims, grain)
    return _rows(dims, grain)


def _rows(dims: list[Dimension], grain: int) -> Cut | None:
    kept = [(n, s) for n, s, is_reduced in dims if not is_reduced]
    reduced = [(n, s) for n, s, is_reduced in dims if is_reduced]
    if len(kept) > 2 or len(reduced) > 2:
        return None
    (k0, outer), (k1, step) = [(1, 0)] * (2 - len(kept)) + kept
    (r0, run), (r1, _) = [(1, 0)] * (2 - len(reduced)) + reduced
    results, length = k0 * k1, r0 * r1
    runs, per_run, pieces = r0, r1, 1
    if length >= 2 * grain and results < 16:
        if r0 > 1:
            runs = max(1, grain // r1)
            pieces = -(-r0 // runs)
        else:
            per_run = max(grain, _rounded(-(-r1 // MOST_PIECES), 1024))
            pieces = -(-r1 // per_run)
    items = results * pieces
    per_chunk = max(1, grain * pieces // length)
    numbers = (items, per_chunk, pieces, runs, per_run, k1, outer, step, r0, r1, run)
    return Cut("rows", -(-items // per_chunk), pieces, numbers, (results, pieces))


def _columns(dims: list[Dimension], grain: int) -> Cut | None:
    pattern = [reduced for *_, reduced in dims]
    columns = dims[-1][0]
    outer = rows = 1
    block = row = 0
    if pattern not in ([False], [True, False], [False, True, False]):
        return None
    if len(dims) > 1:
        rows, row, _ = dims[-2]
    if len(dims) > 2:
        outer, block, _ = dims[-3]
    width = min(columns, STRIP)
    strips = -(-columns // width)
    together = max(1, NARROW // columns) if row == columns and rows > 16 else 1
    pieces, height = 1, rows
    if rows * columns >= 2 * grain and outer < 16:
        # Whole rows of a piece are neighbours in memory, so cutting rows is better than sharing strips.
        height = _rounded(max(LEAST_ROWS, grain // columns), 8 * together)
        pieces = -(-rows // height)
    items = outer * pieces * strips
    per_chunk = max(1, grain // (height * width))
    numbers = (items, per_chunk, strips, width, pieces, height, together, rows, columns, block, row)
    return Cut("columns", -(-items // per_chunk), pieces, numbers, (outer, pieces, columns))


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _result(shape: tuple[int, ...], strides: list[int], axes: tuple[int, ...], keepdim: bool) -> Any:
    """The shape of the result, and an array whose strides order its dimensions as the operand's do (None: by rows)."""
    kept = [(1, 0) if d in axes else (n, s) for d, (n, s) in enumerate(zip(shape, strides, strict=True)) if keepdim or d not in axes]
    real = [s for n, s in kept if n > 1]
    made = tuple(n for n, _ in kept)
    if real == sorted(real, reverse=True):
        return made, None
    order = np.argsort([-s if n > 1 else -(1 << 62) for n, s in kept], kind="stable")
    return made, np.empty([made[d] for d in order], np.bool_).transpose(np.argsort(order))
