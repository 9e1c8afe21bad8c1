"""The largest and smallest elements along a dimension and where they are: the first of equals; nan beats every number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sorting.sort import at_places
from .reduce import Plans
from .softmax import widen

__all__ = ["argument", "extreme"]

_plans = Plans("extreme_loops")
_ARGUMENT: dict[bool, Any] = {True: np.argmax, False: np.argmin}


def argument(a: np.ndarray, dim: int | None, keepdim: bool, largest: bool) -> np.ndarray:
    """The index along `dim`, or in the flattened array, of the largest (or smallest) element."""
    if dim is not None and a.ndim:
        dim %= a.ndim
    run = _plans.find(a, dim, keepdim, largest, False)
    if run is not None:
        return run(a)
    x = widen(a)
    if dim is None:
        found = np.asarray(_ARGUMENT[largest](x.reshape(-1)), np.int64)
        return found.reshape((1,) * a.ndim) if keepdim else found
    if a.ndim == 0:
        return np.zeros((), np.int64)
    found = _ARGUMENT[largest](x, axis=dim)
    return np.asarray(np.expand_dims(found, dim) if keepdim else found, np.int64)


def extreme(a: np.ndarray, dim: int, keepdim: bool, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The largest (or smallest) elements along `dim`, and their indices."""
    if a.ndim == 0:
        return a.copy(), np.zeros((), np.int64)
    dim %= a.ndim
    run = _plans.find(a, dim, keepdim, largest, True)
    if run is not None:
        return run(a)
    at = np.expand_dims(_ARGUMENT[largest](widen(a), axis=dim), dim)
    values = at_places(a, at, dim)
    if not keepdim:
        values, at = values.squeeze(dim), at.squeeze(dim)
    return np.ascontiguousarray(values).reshape(values.shape), np.ascontiguousarray(at).astype(np.int64).reshape(at.shape)
