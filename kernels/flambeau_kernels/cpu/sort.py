"""Sorting, selecting and counting elements of arrays. nan counts as larger than every number."""

from __future__ import annotations

from typing import Any

import numpy as np

from .softmax import widen

__all__ = ["argsort", "bisect", "kth", "mode", "order_rows", "runs", "sort", "topk"]


def argsort(a: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The stable order of the elements along `dim`."""
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
    order = np.ascontiguousarray(argsort(a, dim, descending))
    return np.take_along_axis(a, order, dim), order


def topk(a: np.ndarray, k: int, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The `k` largest (or smallest) elements along `dim` in order, and where they are."""
    if a.ndim == 0:
        return a.copy()[()] if k else a.copy(), np.zeros((), np.int64)
    n = a.shape[dim]
    if k * 8 < n and not largest and a.size:
        return _smallest(a, k, dim)
    if k * 8 < n and a.size:
        return _largest(a, k, dim)
    order = np.ascontiguousarray(argsort(a, dim, largest).take(np.arange(k), dim))
    return np.take_along_axis(a, order, dim), order


def _smallest(a: np.ndarray, k: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    near = np.argpartition(widen(a), max(k - 1, 0), dim).take(np.arange(k), dim)
    return _ordered(a, np.sort(near, dim), dim, False)


def _largest(a: np.ndarray, k: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    n = a.shape[dim]
    near = np.argpartition(widen(a), n - max(k, 1), dim).take(np.arange(n - k, n), dim)
    return _ordered(a, np.sort(near, dim), dim, True)


def _ordered(a: np.ndarray, near: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    picked = np.take_along_axis(a, near, dim)
    order = argsort(picked, dim, descending)
    return np.take_along_axis(picked, order, dim), np.take_along_axis(near, order, dim)


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
