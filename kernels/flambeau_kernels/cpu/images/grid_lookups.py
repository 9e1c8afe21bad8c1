"""Images and volumes looked up at points, and gradients of that: which kernels run, and how their work is cut."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels.vocabulary import round_to_bfloat16, round_to_float16

from ...engines import kept
from ..shapes.move import contiguous
from ..taking_over import late
from ..tier import compiles
from . import grid_bicubic, grid_linear
from .grid_points import BICUBIC, BILINEAR, NEAREST, unrounded

__all__ = ["gradients", "has_gradients", "has_kernel", "looked_up", "planned"]

_FLOAT32 = np.dtype(np.float32)
_ROUNDS = {"float16": round_to_float16, "bfloat16": round_to_bfloat16}
CHUNK = 4096  # looked-up elements, at least
CALLS_WITHOUT = {BILINEAR: 100, NEAREST: 50, BICUBIC: 400}  # what the fallback costs, in calls on few elements


def has_kernel(dtype: np.dtype, mode: int) -> bool:
    """Whether images of `dtype` are looked up by a kernel."""
    return dtype.char in "fd" or mode != BICUBIC and dtype.name in _ROUNDS


def takes_channels_last(dtype: np.dtype, mode: int, size: int) -> bool:
    """Whether images whose channels lie last, of `size` elements each, are looked up as they lie."""
    return dtype.char in "fd" and mode != BICUBIC and size < 1 << 31


def has_gradients(dtype: np.dtype) -> bool:
    """Whether there are kernels for the gradients of images and points of `dtype`."""
    return dtype.char in "fd" and compiles()


def are_channels_last(x: np.ndarray) -> bool:
    """Whether images or volumes lie one after the other, and their channels last."""
    return not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous


def looked_up(x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align: bool) -> np.ndarray:
    """Images ``(N, C, H, W)`` at contiguous points ``(N, H', W', 2)`` of their dtype; or volumes, with a depth before H.

    Images are contiguous, or their channels lie last, see `takes_channels_last`.
    """
    chosen, constants = _forward(x.ndim, x.dtype, mode, are_channels_last(x))
    chunks, numbers = _cut(x.shape, grid.shape, mode)
    out = np.empty((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    chosen.run(chunks, x, grid, out, _finder(x.ndim, x.dtype, mode, padding, align), *numbers, release=True, **constants)
    return out


def _cut(shape: tuple[int, ...], grid: tuple[int, ...], mode: int) -> tuple[int, tuple[int, ...]]:
    """Chunks, points, points of a chunk, channels, the extents of an image or volume, and points of one."""
    points, per, each = prod(grid[:-1]), max(1, CHUNK // shape[1]), prod(grid[1:-1])
    extents = shape[2:] if mode == BICUBIC or len(shape) == 5 else (1, *shape[2:])
    return -(-points // per), (points, per, shape[1], *extents, each)


def _forward(ndim: int, dtype: np.dtype, mode: int, last: bool) -> tuple[Any, dict[str, Any]]:
    if mode == BICUBIC:
        return grid_bicubic.look_up, {}
    return grid_linear.look_up, {"DIMS": ndim - 2, "MODE": mode, "ROUND": _ROUNDS.get(dtype.name, unrounded), "LAST": last}


@kept()
def _finder(ndim: int, stored: np.dtype, mode: int, padding: int, align: bool, slopes: bool = False) -> int:
    """Where the code is that finds the neighbours of points."""
    constants: dict[str, Any] = {"PADDING": padding, "ALIGN": align}
    kind = stored if stored.char in "fd" else _FLOAT32
    if mode == BICUBIC:
        return grid_bicubic.finder(stored, kind, slopes, constants)
    return grid_linear.finder(stored, kind, mode, {**constants, "DIMS": ndim - 2, "ROUND": _ROUNDS.get(stored.name, unrounded)})


@kept()
def _slope_finder(ndim: int, kind: np.dtype, padding: int, align: bool) -> int:
    """Where the code is that finds the derivatives of where points look."""
    return grid_linear.slope_finder(kind, {"PADDING": padding, "ALIGN": align, "DIMS": ndim - 2})


def gradients(
    grad: np.ndarray, x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align: bool, of_image: bool, of_points: bool
) -> tuple[Any, Any]:
    """What ``looked_up(x, grid, ...)`` hands back of `grad` to the images and to the points; None for what is not asked for."""
    grad, x = contiguous(grad), contiguous(x)
    chunks, numbers = _cut(x.shape, grid.shape, mode)
    to_image = to_points = None
    if of_image:
        to_image = np.empty_like(x)
        channels = x.shape[1]
        side = 64 // x.itemsize if channels > 4 else 4
        groups = x.shape[0] * -(-channels // side)
        work = np.empty(groups * prod(x.shape[2:]) * side, x.dtype)
        given = (groups, grad, grid, to_image, work, _finder(x.ndim, x.dtype, mode, padding, align), *numbers[2:])
        if mode == BICUBIC:
            grid_bicubic.grad_image.run(*given, release=True, SIDE=side)
        else:
            grid_linear.grad_image.run(*given, release=True, DIMS=x.ndim - 2, MODE=mode, SIDE=side)
    if of_points:
        to_points = np.empty_like(grid)
        if mode == NEAREST:
            to_points[...] = 0
        elif mode == BICUBIC:
            finding = _finder(x.ndim, x.dtype, mode, padding, align, True)
            grid_bicubic.grad_points.run(chunks, grad, x, grid, to_points, finding, *numbers, release=True, ALIGN=align)
        else:
            finding = _finder(x.ndim, x.dtype, mode, padding, align), _slope_finder(x.ndim, x.dtype, padding, align)
            grid_linear.grad_points.run(chunks, grad, x, grid, to_points, *finding, *numbers, release=True, DIMS=x.ndim - 2)
    return to_image, to_points


def planned(
    shape: tuple[int, ...], grid: tuple[int, ...], dtype: np.dtype, mode: int, padding: int, align: bool, last: bool = False
) -> Callable[[Any, Any], Any]:
    """``run(x, grid)`` for contiguous images or volumes and points of `dtype`, as `looked_up` takes; None in early calls.

    Args:
        mode: BILINEAR, NEAREST or, of images, BICUBIC.
        padding: ZEROS, BORDER or REFLECTION.
        last: whether channels lie last, see `takes_channels_last`.
    """
    chosen, constants = _forward(len(shape), dtype, mode, last)
    chunks, numbers = _cut(shape, grid, mode)
    result = (*shape[:2], *grid[1:-1])
    wide = _FLOAT32 if dtype.name in _ROUNDS else dtype

    def around(form: Any) -> Any:
        finding = _finder(len(shape), dtype, mode, padding, align)

        def run(x: Any, grid: Any) -> Any:
            out = np.empty(result, dtype)
            if wide is not dtype:                     # halves would be gathered one by one
                x = flambeau_kernels.recast(x, wide)
            form(chunks, False, x, grid, out, finding, *numbers)
            return out

        return run

    # The fallback takes as long with 5000 elements as it does for its calls of numpy: a quarter to two milliseconds.
    types = (wide, dtype, dtype, int, *(int,) * len(numbers))
    return late(chosen, types, constants, around, CALLS_WITHOUT[mode] * (1 + prod(result) / 5000))
