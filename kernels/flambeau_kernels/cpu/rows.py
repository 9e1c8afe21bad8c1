"""Rows of a table by index, and adding rows up by index: what embeddings read and their gradients write."""

from __future__ import annotations

import numpy as np

from .softmax import narrow, widen

__all__ = ["add_rows", "check_indices", "segment_argmax", "take_rows"]


def check_indices(indices: np.ndarray, count: int) -> None:
    """Raise IndexError unless every index lies in ``[0, count)``."""
    if indices.size and (indices.min() < 0 or indices.max() >= count):
        wrong = indices[(indices < 0) | (indices >= count)].flat[0]
        raise IndexError(f"embedding: index out of range in self: index {wrong} into a table of {count} rows")


def take_rows(table: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """``table[indices]``: ``(rows, width), (*) -> (*, width)``."""
    check_indices(indices, table.shape[0])
    return np.take(table, indices, axis=0)


def add_rows(values: np.ndarray, indices: np.ndarray, rows: int, means: bool = False) -> np.ndarray:
    """A table whose row i is the sum (or with `means` the mean) of the `values` whose index is i, zeros without any.

    Values with one index are added in the order they come, whatever the machine: ``(n, width), (n) -> (rows, width)``.
    """
    made = np.zeros((rows, *values.shape[1:]), values.dtype)
    if not indices.size:
        return made
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sums = np.add.reduceat(widen(values)[order], starts, axis=0)
    if means:
        counts = np.diff(np.append(starts, len(ordered)))
        sums = sums / counts.reshape([-1] + [1] * (sums.ndim - 1)).astype(sums.dtype)
    made[ordered[starts]] = narrow(sums, values.dtype)
    return made


def segment_argmax(values: np.ndarray, segments: np.ndarray, count: int) -> np.ndarray:
    """For each segment and column the row of the largest value, the first of several, and -1 for an empty segment.

    ``(n, width)``, rising segment numbers ``(n)`` -> ``(count, width)``.
    """
    made = np.full((count, values.shape[1]), -1, np.int64)
    wide = widen(values)
    starts = np.searchsorted(segments, np.arange(count + 1))
    for i in np.flatnonzero(np.diff(starts)):
        made[i] = starts[i] + np.argmax(wide[starts[i] : starts[i + 1]], axis=0)
    return made
