"""FLAMBEAU_STRICT=1: arrays that reach a formula have dtypes that are the very objects kernels are chosen by.

Kernels are found by the identity of dtypes. One that is equal to numpy's and another object, as unpickling and views of records may
make it, would be answered too, by a slower way. Nothing is checked, and this module not loaded, without the variable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["checked", "foreign_dtype"]


def foreign_dtype(*arrays: Any) -> np.dtype | None:
    """The first dtype of `arrays` that is not the object that numpy, or ml_dtypes, has for its type; numbers have none."""
    for a in arrays:
        if a.__class__ is np.ndarray and a.dtype is not np.dtype(a.dtype.type):
            return a.dtype
    return None


def checked(launch: Callable[..., None]) -> Callable[..., None]:
    """`launch`, which raises AssertionError for arrays whose dtype is another object than the kernels know."""

    @functools.wraps(launch)
    def checking(formula: Any, inputs: tuple[Any, ...], outs: tuple[Any, ...], compute: np.dtype) -> None:
        dtype = foreign_dtype(*inputs, *outs)
        if dtype is None and compute is not np.dtype(compute.type):
            dtype = compute
        if dtype is not None:
            raise AssertionError(f"{formula.name}: {dtype!r} is equal to a dtype of ours and another object, so no kernel is found by it")
        launch(formula, inputs, outs, compute)

    return checking
