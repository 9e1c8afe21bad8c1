"""In which order the dimensions of an array lie in memory. Nothing here compiles: `import flambeau` loads it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = ["is_dense_last", "is_last", "is_ordered_last", "place_of_row"]


def is_last(x: Any) -> bool:
    """Whether ``(N, C, *)`` lies in memory as ``(N, *, C)``, densely, and not also in the order of its dimensions."""
    if not isinstance(x, np.ndarray) or x.flags.c_contiguous or x.ndim not in (4, 5) or x.shape[1] == 1:
        return False
    if x.shape[0] == 1 and x.strides[0] < x.nbytes:   # an image without a batch dimension was given one
        return False
    return x.transpose(0, *range(2, x.ndim), 1).flags.c_contiguous


def is_ordered_last(x: Any) -> bool:
    """As `is_last`, of a part of such an array too, between whose elements there are gaps: the order of strides decides.

    `x` may be anything that has a shape and strides, without memory.
    """
    if x.ndim not in (4, 5) or not x.size:
        return False
    if x.__class__ is np.ndarray:                     # sizes may be symbols elsewhere, which nothing is to be remembered of
        return _are_ordered_last(x.shape, x.strides, x.itemsize)
    return _find_ordered_last(x.shape, x.strides, x.itemsize)


def _find_ordered_last(shape: Any, strides: Any, itemsize: int) -> bool:
    if _is_dense(shape, strides, itemsize, range(len(shape) - 1, -1, -1)):
        return False
    reach = 0                                         # bytes that the dimensions so far take
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if strides[d] < max(reach, itemsize):
            return False
        reach = strides[d] * shape[d]
    return True


# A call asks this of every operand, some of them twice.
_are_ordered_last = functools.lru_cache(4096)(_find_ordered_last)


def is_dense_last(x: Any) -> bool:
    """Whether the channels of ``(N, C, *)`` lie last in memory without gaps, dimensions of size 1 having any strides."""
    if x.ndim not in (4, 5) or not x.size or _is_dense(x.shape, x.strides, x.itemsize, range(x.ndim - 1, -1, -1)):
        return False
    return _is_dense(x.shape, x.strides, x.itemsize, (1, *range(x.ndim - 1, 1, -1), 0))


def place_of_row(row, depth, height):
    """In the kernel language: the image that a row of ``(N, depth, height)`` is of, and its places along these two dimensions."""
    rest = row // height
    image = rest // depth
    return image, rest - image * depth, row - rest * height


def _is_dense(shape: Any, strides: Any, itemsize: int, order: Any) -> bool:
    """Whether elements follow each other, the dimensions taken in `order`, the fastest first."""
    step = itemsize
    for d in order:
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True
