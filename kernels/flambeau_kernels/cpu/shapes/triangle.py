"""The lower or upper triangle of matrices, zeros elsewhere.

A row of the result is a copy and a run of zeros; chunks are ranges of rows of all matrices of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.language import kernel
from ...engines import kept
from ..sorting.keys import BITS_OF
from ..tier import compiles

__all__ = ["shortly", "tril", "triu"]

FROM = 1 << 11                                        # elements; below, numpy's mask and choice cost less
MOST_KEPT, MOST_MASKS = 1 << 11, 256                   # elements of matrices whose mask is kept, and how many are
PIECE = 1 << 16                                       # elements of a chunk


def tril(a: np.ndarray, diagonal: int = 0) -> np.ndarray:
    """`a` on and below the given diagonal of the last two dimensions."""
    return _triangle(a, diagonal) if _takes(a) else np.ascontiguousarray(np.tril(a, diagonal))


def triu(a: np.ndarray, diagonal: int = 0) -> np.ndarray:
    """`a` on and above the given diagonal of the last two dimensions."""
    return _triangle(a, diagonal, upper=True) if _takes(a) else np.ascontiguousarray(np.triu(a, diagonal))


def shortly(a: np.ndarray, diagonal: int, upper: bool) -> np.ndarray | None:
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
