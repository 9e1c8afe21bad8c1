"""Sorting, selecting and counting elements of arrays. nan counts as larger than every number.

Of equal elements the first comes first, in descending order too. Compiled kernels (`radix`, `topk`) do the work
where the dtype has a sort key; numpy does it for the rest, for little and where nothing is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .softmax import widen
from .tier import compiles

__all__ = ["argsort", "bisect", "kth", "mode", "order_rows", "runs", "sort", "topk"]


COMPILED_FROM = 64                                   # elements; numpy sorts fewer sooner than a kernel is found
_KEYED = "?bBhHilIfdeE"                              # kinds of elements with a sort key; E is bfloat16
_MOST = (1 << 31) - 1
_HEAP = 2048                                         # the largest k that a heap finds sooner than sorting everything


def _runs_compiled(a: np.ndarray, dim: int) -> bool:
    return a.size >= COMPILED_FROM and a.shape[dim] <= _MOST and a.dtype.char in _KEYED and compiles()


def _rows(a: np.ndarray, dim: int) -> np.ndarray:
    """The lines along `dim` as rows of a matrix in C order."""
    lines = a if dim in (-1, a.ndim - 1) else np.moveaxis(a, dim, -1)
    return np.ascontiguousarray(lines).reshape(-1, a.shape[dim])


def _back(made: np.ndarray, a: np.ndarray, dim: int) -> np.ndarray:
    """Rows put back as lines along `dim` of an array like `a`."""
    if dim in (-1, a.ndim - 1):
        return made.reshape(*a.shape[:-1], made.shape[1])
    dim %= a.ndim
    shape = (*a.shape[:dim], *a.shape[dim + 1 :], made.shape[1])
    return np.ascontiguousarray(np.moveaxis(made.reshape(shape), -1, dim))


def argsort(a: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The stable order of the elements along `dim`."""
    if a.ndim and _runs_compiled(a, dim):
        return sort(a, dim, descending)[1]
    x = widen(a)
    if not descending:
        return np.argsort(x, dim, kind="stable")
    # Reversed before and after, so that equal elements keep their order.
    order = np.argsort(np.flip(x, dim), dim, kind="stable")
    return np.flip(np.subtract(a.shape[dim] - 1, order, out=order), dim)


def sort(a: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    """The elements in order along `dim`, and where they came from."""
    if a.ndim == 0:
        return a.copy(), np.zeros((), np.int64)
    if _runs_compiled(a, dim):
        from .radix import sort_rows

        values, order = sort_rows(_rows(a, dim), descending)
        return _back(values, a, dim), _back(order, a, dim)
    order = np.ascontiguousarray(argsort(a, dim, descending))
    return np.take_along_axis(a, order, dim), order


def topk(a: np.ndarray, k: int, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The `k` largest (or smallest) elements along `dim` in order, and where they are."""
    if a.ndim == 0:
        return a.copy()[()] if k else a.copy(), np.zeros((), np.int64)
    if k > 0 and (k * 8 < a.shape[dim] or k == 1) and k <= _HEAP and _runs_compiled(a, dim):
        from .topk import topk as select

        values, places = select(_rows(a, dim), k, largest)
        return _back(values, a, dim), _back(places, a, dim)
    order = np.ascontiguousarray(argsort(a, dim, largest).take(np.arange(k), dim))
    return np.take_along_axis(a, order, dim), order


def kth(a: np.ndarray, k: Any, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The element of rank `k` (from 0; an int, or an array with one rank per line) along `dim`, and where it is."""
    if isinstance(k, int):
        at = np.argpartition(widen(a), k, dim).take([k], dim)
    else:
        order = np.argsort(widen(a), dim, kind="stable")
        ranks = np.broadcast_to(k, [1 if d == dim else n for d, n in enumerate(a.shape)])
        at = np.take_along_axis(order, ranks, dim)
    return np.take_along_axis(a, at, dim), at


def mode(a: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The most frequent element along `dim`, the smallest of several, and the last place it has; `dim` is kept as 1."""
    lines = np.moveaxis(a, dim, -1)
    n = lines.shape[-1]
    order = np.argsort(widen(lines), -1, kind="stable")
    values = np.take_along_axis(lines, order, -1)
    starts = np.ones(values.shape, np.bool_)
    starts[..., 1:] = values[..., 1:] != values[..., :-1]
    # How many equals end at each place; the first place with the most is the end of the best run.
    length = np.arange(n) - np.maximum.accumulate(np.where(starts, np.arange(n), 0), -1)
    best = length.argmax(-1)[..., None]
    at = np.take_along_axis(order, best, -1)
    return np.moveaxis(np.take_along_axis(lines, at, -1), -1, dim), np.moveaxis(at, -1, dim)


def order_rows(rows: np.ndarray) -> np.ndarray:
    """The stable order of the rows of a matrix, compared element by element from the first."""
    if rows.shape[1] == 0:
        return np.arange(rows.shape[0])
    return np.lexsort(tuple(widen(rows[:, k]) for k in range(rows.shape[1] - 1, -1, -1)))


def runs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each run of equal neighbouring rows starts, the run each row is in, and how long the runs are."""
    n = rows.shape[0]
    starts = np.ones(n, np.bool_)
    if n:
        starts[1:] = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim))) if rows.ndim > 1 else rows[1:] != rows[:-1]
    first = np.flatnonzero(starts)
    return first, np.cumsum(starts) - 1, np.diff(np.append(first, n))


def bisect(rows: np.ndarray, values: np.ndarray, right: bool) -> np.ndarray:
    """How many elements of each sorted row come before each value; with `right`, equal ones included.

    Args:
        rows: ``(*batch, n)``, or ``(n,)`` for values of any shape.
        values: ``(*batch, m)``.
    """
    n = rows.shape[-1]
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, n)
    for _ in range(n.bit_length()):
        middle = (low + high) >> 1
        at = np.minimum(middle, n - 1)
        found = rows[at] if rows.ndim == 1 else np.take_along_axis(rows, at, -1)
        after = ~(found > values if right else found >= values) & (low < high)
        low, high = np.where(after, middle + 1, low), np.where(after, high, np.where(low < high, middle, high))
    return low
