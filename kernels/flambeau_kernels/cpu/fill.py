"""New arrays of one number, of numbers counted up, and of numbers evenly spaced; large ones on all threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .tier import compiles

__all__ = ["counted", "fill_unset", "filled", "spaced"]

FILLED_FROM, COUNTED_FROM = 1 << 16, 1 << 12         # elements from which kernels answer sooner than numpy


def filled(shape: tuple[int, ...], dtype: np.dtype, value: Any) -> np.ndarray:
    """An array of `value`, a scalar of `dtype`."""
    if math.prod(shape) < FILLED_FROM or dtype.itemsize > 8 or not compiles():
        return np.full(shape, value, dtype)
    from .fill_loops import fill

    made = np.empty(shape, dtype)
    fill(made, value)
    return made


def fill_unset(array: np.ndarray) -> np.ndarray:
    """`array`, written with what nobody takes for a result: nan, True or the largest integer."""
    kind = array.dtype.kind
    array.fill(True if kind == "b" else np.iinfo(array.dtype).max if kind in "iu" else array.dtype.type(np.nan))
    return array


def refill(a: np.ndarray, value: Any) -> None:
    """Store `value`, a scalar of its dtype, everywhere in `a`."""
    if a.size >= FILLED_FROM and a.flags.c_contiguous and a.itemsize <= 8 and compiles():
        from .fill_loops import fill

        fill(a, value)
    else:
        a[...] = value


def counted(count: int, start: Any, step: Any, dtype: np.dtype) -> np.ndarray:
    """``start, start + step, ...``: in int64 for an integer `dtype`, else in float64, rounded to it."""
    if count >= COUNTED_FROM and dtype.char in "bBhHilfd" and compiles():
        from .fill_loops import count_up

        made = np.empty(count, dtype)
        count_up(made, start, step)
        return made
    values = np.arange(count, dtype=np.int64 if dtype.kind in "iu" else np.float64)
    return (values * step + start).astype(dtype)


def spaced(count: int, start: float, end: float, dtype: np.dtype) -> np.ndarray | None:
    """`count` numbers from `start` to `end`, each counted from the nearer end in `dtype`; None where that is not compiled."""
    if count < COUNTED_FROM or dtype.char not in "fd" or not compiles():
        return None
    from .fill_loops import space

    made = np.empty(count, dtype)
    space(made, start, end)
    return made
