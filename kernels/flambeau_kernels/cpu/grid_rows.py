"""Images looked up at points, compiled: each step rounded as the general way's numpy rounds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import int64, kernel, local, unroll, widened
from flambeau_kernels.vocabulary import floor, nearbyint

from .twins import late

__all__ = ["planned"]

CHUNK = 4096  # looked-up elements, at least
ZEROS, BORDER = 0, 1
BILINEAR, NEAREST, BICUBIC = 0, 1, 2


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


def cubic_weight(t, I, KIND):
    """Weight of neighbour `I` of four at distance t + 1, t, 1 - t, 2 - t, by Keys' kernel with a = -0.75."""
    x = (t + KIND(1), t, KIND(1) - t, KIND(2) - t)[I]
    if I == 1 or I == 2:
        made = (KIND(1.25) * x - KIND(2.25)) * x * x + KIND(1)
    else:
        made = ((KIND(-0.75) * x + KIND(3.75)) * x - KIND(6)) * x + KIND(3)
    return made


@kernel
def look_up(chunk, x, grid, out, points, per, channels, height, width, in_image, *, MODE, PADDING, ALIGN):
    KIND = widened(out)
    size = height * width
    across, along = local(KIND, 4), local(KIND, 4)
    for point in range(chunk * per, min(points, chunk * per + per)):
        image = point // in_image
        to = out + (image * channels * in_image + point % in_image)
        a = x + image * channels * size
        right, down = in_elements(grid[2 * point], width, KIND, ALIGN), in_elements(grid[2 * point + 1], height, KIND, ALIGN)
        if MODE != BICUBIC:
            right, down = inside(right, width, KIND, PADDING), inside(down, height, KIND, PADDING)
        if MODE == BICUBIC:
            left, top = floor(right), floor(down)
            u, v = right - left, down - top
            for I in unroll(range(4)):
                across[I] = cubic_weight(u, I, KIND)
                along[I] = cubic_weight(v, I, KIND)
            for i in range(4):
                row = nearbyint(inside(top + KIND(i - 1), height, KIND, PADDING))
                for j in range(4):
                    column = nearbyint(inside(left + KIND(j - 1), width, KIND, PADDING))
                    there = present(row, height, KIND) and present(column, width, KIND)
                    at = place(row, column, height, width, KIND)
                    weight = along[i] * across[j]
                    for c in range(channels):
                        value = a[c * size + at] if there else KIND(0)
                        term = value * weight
                        to[c * in_image] = term if i + j == 0 else to[c * in_image] + term
        elif MODE == NEAREST:
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
    shape: tuple[int, ...], grid: tuple[int, ...], dtype: np.dtype, mode: int, padding: int, align: bool
) -> Callable[[Any, Any], Any]:
    """``run(x, grid)`` for contiguous images ``(N, C, H, W)`` and points ``(N, H', W', 2)`` of `dtype`; None in early calls.

    Args:
        mode: BILINEAR, NEAREST or BICUBIC.
        padding: ZEROS or BORDER.
    """
    images, channels, height, width = shape
    in_image = grid[1] * grid[2]
    points, result = images * in_image, (images, channels, *grid[1:3])
    per = max(1, CHUNK // channels)
    constants = {"MODE": mode, "PADDING": padding, "ALIGN": align}
    numbers = (points, per, channels, height, width, in_image)
    chunks = -(-points // per)

    def around(form: Any) -> Any:
        def run(x: Any, grid: Any) -> Any:
            out = np.empty(result, dtype)
            form(chunks, False, x, grid, out, *numbers)
            return out

        return run

    # The general way takes as long with 5000 elements as it does for its calls of numpy.
    taps = 16 if mode == BICUBIC else 1
    return late(look_up, (dtype, dtype, dtype, *(int,) * 6), constants, around, taps * (1 + points * channels / 5000))
