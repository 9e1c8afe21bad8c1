"""Places of elements that are to be picked: each repeated, and those of combinations."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["combined", "repeated"]


def repeated(count: int, times: Any, dtype: Any = np.int64) -> np.ndarray:
    """The places 0 to ``count - 1``, each as many `times`: a number for all of them, or an array that has one for each."""
    return np.repeat(np.arange(count, dtype=dtype), times)


def combined(n: int, r: int, with_replacement: bool) -> np.ndarray:
    """The places of the combinations of `r` of `n` elements, ``(count, r)`` in their order."""
    step = 0 if with_replacement else 1               # from one place to the least that may follow
    if n < 1 + (r - 1) * step:
        return np.zeros((0, r), np.int64)
    made = np.arange(n - (r - 1) * step)[:, None]
    for left in range(r - 2, -1, -1):
        first = made[:, -1] + step
        lengths = n - left * step - first             # none is 0: what cannot be completed was not begun
        rows = np.repeat(np.arange(len(made)), lengths)
        following = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths - first, lengths)
        made = np.concatenate((made[rows], following[:, None]), 1)
    return made
