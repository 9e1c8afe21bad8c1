"""Images looked up at points, compiled: bilinear and nearest, each step rounded as the general way's numpy rounds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import int64, kernel, widened
from flambeau_kernels.vocabulary import floor, nearbyint

from .twins import late

__all__ = ["planned"]

CHUNK = 4096  # looked-up elements, at least
ZEROS, BORDER = 0, 1


def in_elements(x, size, KIND, ALIGN):
    """From -1 .. 1 to elements."""
    n = KIND(size)
    return (x + KIND(1)) * ((n - KIND(1)) / KIND(2)) if ALIGN else ((x + KIND(1)) * n - KIND(1)) / KIND(2)


def inside(x, size, KIND, PADDING):
    """Where padding looks."""
    made = x
    if PADDING == BORDER:
        last = KIND(size - 1)
        made = made if made == made else KIND(0)
        made = KIND(0) if made <= KIND(0) else (last if made >= last else made)
    return made


def present(x, size, KIND):
    """Whether there is an element, which nan says no to."""
    return x >= KIND(0) and x <= KIND(size - 1)


def place(y, x, height, width, KIND):
    """Which element of a plane, the first where there is none."""
    row = int64(y if present(y, height, KIND) else KIND(0))
    column = int64(x if present(x, width, KIND) else KIND(0))
    return row * width + column


@kernel
def look_up(chunk, x, grid, out, points, per, channels, height, width, in_image, *, NEAREST, PADDING, ALIGN):
    KIND = widened(out)
    size = height * width
    for point in range(chunk * per, min(points, chunk * per + per)):
        image = point // in_image
        to = out + (image * channels * in_image + point % in_image)
        a = x + image * channels * size
        right = inside(in_elements(grid[2 * point], width, KIND, ALIGN), width, KIND, PADDING)
        down = inside(in_elements(grid[2 * point + 1], height, KIND, ALIGN), height, KIND, PADDING)
        if NEAREST:
            right, down = nearbyint(right), nearbyint(down)
            there = present(right, width, KIND) and present(down, height, KIND)
            at = place(down, right, height, width, KIND)
            for c in range(channels):
                to[c * in_image] = a[c * size + at] if there else KIND(0)
        else:
            left, top = floor(right), floor(down)
            u, v = right - left, down - top
            after, below = left + KIND(1), top + KIND(1)
            is_left, is_right = present(left, width, KIND), present(after, width, KIND)
            is_top, is_below = present(top, height, KIND), present(below, height, KIND)
            at00, at01 = place(top, left, height, width, KIND), place(top, after, height, width, KIND)
            at10, at11 = place(below, left, height, width, KIND), place(below, after, height, width, KIND)
            w00, w01 = (KIND(1) - v) * (KIND(1) - u), (KIND(1) - v) * u
            w10, w11 = v * (KIND(1) - u), v * u
            for c in range(channels):
                b = a + c * size
                p00 = b[at00] if is_top and is_left else KIND(0)
                p01 = b[at01] if is_top and is_right else KIND(0)
                p10 = b[at10] if is_below and is_left else KIND(0)
                p11 = b[at11] if is_below and is_right else KIND(0)
                to[c * in_image] = ((p00 * w00 + p01 * w01) + p10 * w10) + p11 * w11


def planned(
    shape: tuple[int, ...], grid: tuple[int, ...], dtype: np.dtype, nearest: bool, padding: int, align: bool
) -> Callable[[Any, Any], Any]:
    """``run(x, grid)`` for contiguous images ``(N, C, H, W)`` and points ``(N, H', W', 2)`` of `dtype`; None in early calls.

    Args:
        padding: ZEROS or BORDER.
    """
    images, channels, height, width = shape
    in_image = grid[1] * grid[2]
    points, result = images * in_image, (images, channels, *grid[1:3])
    per = max(1, CHUNK // channels)
    constants = {"NEAREST": nearest, "PADDING": padding, "ALIGN": align}
    numbers = (points, per, channels, height, width, in_image)
    chunks = -(-points // per)

    def around(form: Any) -> Any:
        def run(x: Any, grid: Any) -> Any:
            out = np.empty(result, dtype)
            form(chunks, False, x, grid, out, *numbers)
            return out

        return run

    # The general way takes as long with 5000 elements as it does for its calls of numpy.
    return late(look_up, (dtype, dtype, dtype, *(int,) * 6), constants, around, 1 + points * channels / 5000)
