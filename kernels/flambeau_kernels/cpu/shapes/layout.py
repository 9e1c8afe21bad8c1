"""Arrays whose channels come last in memory, as images often are, to and from the order of their dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import move
from .order import is_last, is_ordered_last

__all__ = ["alike", "ordered_as", "planar"]


def planar(x: Any) -> Any:
    """`x` in the order of its dimensions."""
    return move.contiguous(x)


def ordered_as(made: Any, source: Any) -> Any:
    """`made` with its channels last in memory if those of `source` are, else in the order of its dimensions."""
    return alike(made, source) if is_ordered_last(source) else planar(made)


def alike(made: Any, *sources: Any) -> Any:
    """`made` with its channels last in memory if those of one of `sources` are."""
    for x in sources:
        if is_ordered_last(x):
            break
    else:
        return made
    if made.ndim not in (4, 5) or is_last(made):
        return made
    last = np.empty((made.shape[0], *made.shape[2:], made.shape[1]), made.dtype)
    out = last.transpose(0, made.ndim - 1, *range(1, made.ndim - 1))
    if made.size < move.FROM or not move.into(out, made):
        out[...] = made
    return out
