"""New arrays of one number, of numbers counted up, and of numbers evenly spaced; large ones on all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels

from ...formula import Formula
from ...takeover import FORMULA, Waiting, of_elements
from ..shapes.move import repays
from ..tier import compiles

__all__ = ["counted", "fill_unset", "filled", "spaced"]

FILLED_FROM, COUNTED_FROM = 1 << 12, 1 << 12         # elements from which kernels answer sooner than numpy
COMPILED_FROM = 1 << 14                               # elements of an array that repays the compiler, if it is not there yet
_FILLED = Formula(lambda old, value: value, "fill")
_waiting_fills = Waiting(FORMULA)                       # in float32 or float64
_BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.int16), 4: np.dtype(np.int32)}


def filled(shape: tuple[int, ...], dtype: np.dtype, value: Any) -> np.ndarray:
    """An array of `value`, a scalar of `dtype`."""
    made = np.empty(shape, dtype)
    refill(made, value)
    return made


def fill_unset(array: np.ndarray) -> np.ndarray:
    """`array`, written with what nobody takes for a result: nan, True or the largest integer."""
    kind = array.dtype.kind
    array.fill(True if kind == "b" else np.iinfo(array.dtype).max if kind in "iu" else array.dtype.type(np.nan))
    return array


def refill(a: np.ndarray, value: Any) -> None:
    """Store `value`, a scalar of its dtype or a number, everywhere in `a`."""
    if a.size < FILLED_FROM:
        of_floats = value.__class__ is float and a.dtype.char in "fd"
        if of_floats and _FILLED.direct_(a, value) is not None:
            return
        a.fill(value)
        if of_floats and _waiting_fills.paid_for(of_elements(a.size)) and compiles():
            flambeau_kernels.specialise(_FILLED, (a, value), a, a.dtype)
    elif not _filled_at_once(a, value):
        a.fill(value)


def refilled(a: np.ndarray, value: float) -> bool:
    """Whether one native call stored `value` everywhere in `a`, of float32 or float64, and writeable; which it is for many of them."""
    return _FILLED.direct_(a, value) is not None


def _filled_at_once(a: np.ndarray, value: Any) -> bool:
    """`refill` by a kernel. False: not taken, nothing was written."""
    dtype = a.dtype
    if dtype.kind == "f" and dtype.itemsize > 2:
        number: Any = float(value)
    elif dtype.kind in "iu":
        number = int(value)
    elif dtype.itemsize in _BITS:
        bits = _BITS[dtype.itemsize]
        number, a = int(np.array([value], dtype).view(bits)[0]), a.view(bits)
    else:
        return False
    if _FILLED.direct_(a, number) is None:
        if not repays(a.size, COMPILED_FROM):
            return False
        if not flambeau_kernels.calls_repay():
            flambeau_kernels.launch(_FILLED, (a, number), (a,), a.dtype)
            return True
        flambeau_kernels.specialise(_FILLED, (a, number), a, a.dtype)
        return _FILLED.direct_(a, number) is not None
    return True


def counted(count: int, start: Any, step: Any, dtype: np.dtype) -> np.ndarray:
    """``start, start + step, ...``: in int64 for an integer `dtype`, else in float64, rounded to it."""
    if count >= COUNTED_FROM and dtype.char in "bBhHilfd" and compiles():
        from .fill_loops import count_up

        made = np.empty(count, dtype)
        count_up(made, start, step)
        return made
    values = np.arange(count, dtype=np.int64 if dtype.kind in "iu" else np.float64)
    return flambeau_kernels.cast(values * step + start, dtype)


def spaced(count: int, start: float, end: float, dtype: np.dtype) -> np.ndarray | None:
    """`count` numbers from `start` to `end`, each counted from the nearer end in `dtype`; None where that is not compiled."""
    if count < COUNTED_FROM or dtype.char not in "fd" or not compiles():
        return None
    from .fill_loops import space

    made = np.empty(count, dtype)
    space(made, start, end)
    return made
