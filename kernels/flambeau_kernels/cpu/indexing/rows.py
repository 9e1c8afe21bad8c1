"""Rows of a table by index, and adding rows up by index: what embeddings read and their gradients write.

Rows with one index are added in the order they come, by compiled kernels (`accumulate`) where there is enough to do.
"""

from __future__ import annotations

import numpy as np

from ... import hot_calls
from ..reductions.softmax import narrow, widen
from ..tier import compiles
from . import scatter

__all__ = ["add_bags", "add_rows", "check_indices", "largest_of_bags", "take_rows"]

COMPILED_FROM = 1024                                 # elements
MOST_BY_NUMPY = 32                                             # rows that numpy has taken before a kernel is called
_SUMMED = "ildf"


def check_indices(indices: np.ndarray, count: int) -> None:
    """Raise IndexError unless every index lies in ``[0, count)``."""
    if indices.size and not scatter.in_range(indices, 0, count):
        wrong = indices[(indices < 0) | (indices >= count)].flat[0]
        raise IndexError(f"embedding: index out of range in self: index {wrong} into a table of {count} rows")


def take_rows(table: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """``table[indices]``: ``(rows, width), (*) -> (*, width)``."""
    made = hot_calls.pick_slices(table, 0, indices)
    if made is not None:
        return made
    if indices.size <= MOST_BY_NUMPY and indices.dtype.char == "l" and not scatter.has_negative(indices):
        try:
            return table.take(indices, 0)
        except IndexError:
            pass                                     # the checks below raise an error that names the op
    if table.size and indices.size:
        made = scatter.take_rows(table, 0, indices.reshape(-1), False)
        if made is not None:
            return made.reshape(indices.shape + table.shape[1:])
    check_indices(indices, table.shape[0])
    return np.take(table, indices, axis=0)


def add_rows(values: np.ndarray, indices: np.ndarray, rows: int, means: bool = False) -> np.ndarray:
    """A table whose row i is the sum (or with `means` the mean) of the `values` whose index is i, zeros without any.

    Values with one index are added in the order they come, whatever the machine: ``(n, width), (n) -> (rows, width)``.
    """
    if rows and indices.size and rows * (values.size // len(values)) >= COMPILED_FROM and compiles():
        wide = np.ascontiguousarray(widen(values))
        if wide.dtype.char in _SUMMED:
            return narrow(_add_rows_compiled(wide, np.ascontiguousarray(indices), rows, means), values.dtype)
    wide = widen(values)
    made = np.zeros((rows, *values.shape[1:]), wide.dtype)
    if indices.size and hot_calls.add_slices(made, 0, indices, wide) is None:
        np.add.at(made, indices, wide)
    if means:
        _divide_by_counts(made, indices)
    return narrow(made, values.dtype)


def _divide_by_counts(sums: np.ndarray, indices: np.ndarray) -> None:
    counts = np.bincount(indices, minlength=len(sums))
    several = np.flatnonzero(counts > 1)
    sums[several] /= counts[several].reshape([-1] + [1] * (sums.ndim - 1)).astype(sums.dtype)


def _add_rows_compiled(values: np.ndarray, indices: np.ndarray, rows: int, means: bool) -> np.ndarray:
    from .accumulate import add_rows

    made = np.empty((rows, *values.shape[1:]), values.dtype)
    add_rows(made.reshape(rows, -1), indices, values, True)
    if means:
        _divide_by_counts(made, indices)
    return made


def add_bags(table: np.ndarray, indices: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sums of the rows that ``indices[starts[i] : starts[i + 1]]`` name, ``(V, D), (n), (B + 1) -> (B, D)``."""
    count = len(starts) - 1
    if table.dtype.char in "feE" and table.shape[1] * len(indices) >= COMPILED_FROM and len(table) and compiles():
        from .accumulate import sum_bags

        made = np.empty((count, table.shape[1]), np.float32)
        if sum_bags(np.ascontiguousarray(table), np.ascontiguousarray(indices), starts, made):
            return narrow(made, table.dtype)
    check_indices(indices, table.shape[0])
    return add_rows(np.take(table, indices, axis=0), np.repeat(np.arange(count), np.diff(starts)), count)


def weighted_bags(table: np.ndarray, indices: np.ndarray, weights: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
    """As `add_bags`, each row times its weight, ``(V, D), (n), (n), (B + 1) -> (B, D)``; indices are in range.

    None where no kernel is made: for few elements, other dtypes than float32 and float64, or without a compiler.
    """
    if table.dtype.char not in "fd" or weights.dtype != table.dtype or table.shape[1] * len(indices) < COMPILED_FROM or not compiles():
        return None
    from .accumulate import sum_weighted_bags

    made = np.empty((len(starts) - 1, table.shape[1]), table.dtype)
    table, indices, weights, starts = (np.ascontiguousarray(a) for a in (table, indices, weights, starts))
    sum_weighted_bags(table, indices, weights, starts, made)
    return made


def largest_of_bags(table: np.ndarray, indices: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """For each bag ``indices[starts[i] : starts[i + 1]]`` and column the row whose element is largest, -1 for an empty bag.

    Of equal ones it is the first, and nan comes before numbers: ``(V, D), (n), (B + 1) -> (B, D)``, int64; indices are in range.
    """
    made = np.full((len(starts) - 1, table.shape[1]), -1, np.int64)
    if not indices.size:
        return made
    if table.dtype.char in "fdeE" and table.shape[1] * len(indices) >= COMPILED_FROM and len(table) < 1 << 31 and compiles():
        from .accumulate import largest_of_bags

        largest_of_bags(np.ascontiguousarray(table), np.ascontiguousarray(indices), starts, made)
        return made
    wide = widen(table)
    for i in np.flatnonzero(np.diff(starts)):
        named = indices[starts[i] : starts[i + 1]]
        made[i] = named[np.argmax(wide[named], axis=0)]
    return made
