"""Sums and products of two arrays for those who compute below the operations: the tape, linear algebra, dropout.

They have the bits of numpy's functions, which answer until the formula has been specialised.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import launch, specialise
from .formula import Formula
from .takeover import BUILTINS, FORMULA, Waiting, of_elements

__all__ = ["PLUS", "TIMES", "Arithmetic"]


class Arithmetic:
    """One operation of two arrays of a dtype, or an array and a number."""

    __slots__ = ("_waiting", "formula", "ufunc")

    def __init__(self, fn: Any, ufunc: Any) -> None:
        self.formula = Formula(fn, ufunc.__name__, ufunc)
        self.ufunc = ufunc
        self._waiting = Waiting(FORMULA + BUILTINS)      # a program may have no other builtins

    def __call__(self, a: Any, b: Any) -> Any:
        """The result of two arrays as a new array, in the order of memory that numpy gives it."""
        are_contiguous = a.flags.c_contiguous and b.flags.c_contiguous    # of others numpy lays out the result in its own way
        made = self.formula.direct(a, b) if are_contiguous else None
        if made is None:
            made = np.asarray(self.ufunc(a, b))
            self._learn(a, b, made)
        return made

    def into(self, a: Any, b: Any) -> None:
        """Store the result in `a`."""
        if self.formula.direct_(a, b) is None:
            self.ufunc(a, b, out=a)
            self._learn(a, b, a)

    def fill(self, out: Any, a: Any, b: Any) -> None:
        """Store the result of two arrays in a third of their shape and dtype, which they share no memory with."""
        compute = _FLOAT32 if out.dtype in _HALVES else out.dtype
        if compute.kind == "f":
            launch(self.formula, (a, b), (out,), compute)
        else:
            self.ufunc(a, b, out=out)

    def _learn(self, a: Any, b: Any, made: Any) -> None:
        dtype = a.dtype
        is_half = dtype in _HALVES                        # computed in float32, by numpy too, which rounds numbers to halves first
        other = getattr(b, "dtype", None if is_half else dtype)
        alike = (is_half or dtype.kind == "f") and made.dtype == other == dtype
        if not alike:
            return
        kind = dtype, b.__class__, a.flags.c_contiguous, b.__class__ is np.ndarray and b.flags.c_contiguous
        if (may_compile := self._waiting.paid_for(of_elements(made.size), kind)) is not None:
            specialise(self.formula, (a, b), made, _FLOAT32 if is_half else dtype, may_compile)


_FLOAT32, _HALVES = np.dtype(np.float32), {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}


PLUS = Arithmetic(lambda a, b: a + b, np.add)
TIMES = Arithmetic(lambda a, b: a * b, np.multiply)
