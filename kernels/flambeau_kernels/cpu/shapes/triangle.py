"""The lower or upper triangle of matrices, zeros elsewhere.

A row of the result is a copy and a run of zeros; chunks are ranges of rows of all matrices of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.language import kernel, widened
from ...engines import kept
from ..sorting.keys import BITS_OF
from ..taking_over import late
from ..tier import compiles

__all__ = ["places", "triangle_of", "tril", "triu"]

FROM = 1 << 11                                        # elements; below, numpy's mask and choice cost less
MOST_KEPT, MOST_MASKS = 1 << 11, 256                   # elements of matrices whose mask is kept, and how many are
PIECE = 1 << 16                                       # elements of a chunk
MANY_PLACES = 1 << 14                                 # from which a kernel is had at once


def tril(a: np.ndarray, diagonal: int = 0) -> np.ndarray:
    """`a` on and below the given diagonal of the last two dimensions."""
    return _triangle(a, diagonal) if _takes(a) else np.ascontiguousarray(np.tril(a, diagonal))


def triu(a: np.ndarray, diagonal: int = 0) -> np.ndarray:
    """`a` on and above the given diagonal of the last two dimensions."""
    return _triangle(a, diagonal, upper=True) if _takes(a) else np.ascontiguousarray(np.triu(a, diagonal))


def triangle_of(a: np.ndarray, diagonal: int, upper: bool) -> np.ndarray | None:
    """The triangle of a few elements, by a kept mask of those that become zero, or of many; None where there is no such kernel."""
    if a.ndim < 2 or diagonal.__class__ is not int:
        return None
    if a.size > MOST_KEPT:
        return _triangle(a, diagonal, upper) if _takes(a) else None
    height, width = a.shape[-2:]
    mask = _masks.get((height, width, diagonal, upper))
    if mask is None:
        ones = np.ones((height, width), bool)
        mask = ~(np.triu(ones, diagonal) if upper else np.tril(ones, diagonal))
        if len(_masks) >= MOST_MASKS:
            _masks.clear()
        _masks[height, width, diagonal, upper] = mask
    made = a.copy()
    if a.ndim == 2:
        np.putmask(made, mask, False)
    else:
        np.copyto(made, False, where=mask)
    return made


_masks: dict[Any, np.ndarray] = {}


def _takes(a: Any) -> bool:
    return type(a) is np.ndarray and a.size >= FROM and a.flags.c_contiguous and a.itemsize in BITS_OF and compiles()


def _triangle(a: np.ndarray, diagonal: int, upper: bool = False) -> np.ndarray:
    made = np.empty(a.shape, a.dtype)
    height, width = a.shape[-2:]
    rows = a.size // width
    each = max(1, PIECE // width)
    diagonal = max(-height, min(width, diagonal))
    _rows(a.itemsize, upper)(-(-rows // each), False, a, made, rows, height, width, each, diagonal)
    return made


@kept()
def _rows(itemsize: int, upper: bool) -> Any:
    """`triangle_rows` as it is called, which looks at nothing of an array but where it lies."""
    bits = BITS_OF[itemsize]
    return triangle_rows.form((bits, bits, int, int, int, int, int), {"UPPER": upper})


@kernel
def triangle_rows(chunk: Any, x: Any, out: Any, rows: Any, height: Any, width: Any, each: Any, diagonal: Any, *, UPPER: Any) -> Any:
    for row in range(chunk * each, min(rows, chunk * each + each)):
        source, to = x + row * width, out + row * width
        # Columns below `edge` are on one side of the diagonal, the others on the other one.
        edge = row % height + diagonal
        if not UPPER:
            edge += 1
        edge = max(0, min(edge, width))
        for j in range(edge):
            to[j] = 0 if UPPER else source[j]
        for j in range(edge, width):
            to[j] = source[j] if UPPER else 0


def places(lower: bool, height: int, width: int, diagonal: int, count: int, dtype: np.dtype) -> np.ndarray:
    """The rows and columns ``(2, count)`` of what lies on and below the given diagonal of a matrix, or on and above it."""
    if not count:
        return np.empty((2, 0), dtype)
    # Of rows without such an element nothing is made.
    first, last = (min(height, max(0, -diagonal)), height) if lower else (0, max(0, min(height, width - diagonal)))
    diagonal = max(-height, min(width, diagonal))
    if compiles():
        by_kernel = _places(dtype, not lower) if count >= MANY_PLACES else _few_places(dtype, not lower)
        made = by_kernel(count, first, last, width, diagonal)
        if made is not None:
            return made
    rows = np.arange(first, last)
    begin = np.zeros_like(rows) if lower else np.maximum(rows + diagonal, 0)
    end = np.minimum(rows + diagonal + 1, width) if lower else width
    lengths = end - begin
    before = np.cumsum(lengths) - lengths
    made = np.empty((2, count), dtype)
    made[0] = np.repeat(rows, lengths)
    made[1] = np.arange(lengths.sum()) - np.repeat(before - begin, lengths)
    return made


def _around_places(dtype: np.dtype) -> Any:
    def around(form: Any) -> Any:
        def run(count: int, *numbers: int) -> np.ndarray:
            made = np.empty((2, count), dtype)
            form(1, False, made, count, *numbers)
            return made

        return run

    return around


@kept()
def _places(dtype: np.dtype, upper: bool) -> Any:
    return _around_places(dtype)(place_rows.form((dtype, int, int, int, int, int), {"UPPER": upper}))


@kept()
def _few_places(dtype: np.dtype, upper: bool) -> Any:
    return late(place_rows, (dtype, int, int, int, int, int), {"UPPER": upper}, _around_places(dtype), 8)


@kernel
def place_rows(chunk: Any, out: Any, count: Any, start: Any, stop: Any, width: Any, diagonal: Any, *, UPPER: Any) -> Any:
    KIND = widened(out)
    at = 0
    for row in range(start, stop):
        edge = row + diagonal
        if not UPPER:
            edge += 1
        edge = max(0, min(edge, width))
        first, last = edge if UPPER else 0, width if UPPER else edge
        rows, columns = out + at, out + (count + at)
        for j in range(last - first):
            rows[j] = KIND(row)
        for j in range(last - first):
            columns[j] = KIND(first + j)
        at += last - first
