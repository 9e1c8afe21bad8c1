"""The order of memory of results: a fact of an op's declaration, by which meta tensors and real ones have the same strides."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from flambeau_kernels.cpu.shapes.move import FROM, into
from flambeau_kernels.cpu.shapes.order import is_dense_last, is_ordered_last

from ..._arrays import contiguous_strides, extent, like_strides, ndarray, strides_in

__all__ = [
    "CHANNELS", "CHANNELS_OF_ALL", "CHANNELS_OF_DENSE", "CHANNELS_OF_IMAGES", "COLUMNS", "KEPT", "LIKE", "ROWS",
    "in_memory_order", "placed",
]  # fmt: skip


def ROWS(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """Row-major, whatever the operands are."""
    return contiguous_strides(shape, step)


def COLUMNS(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """Matrices column by column, as LAPACK leaves them, one after the other; vectors have nothing to turn."""
    if len(shape) < 2:
        return contiguous_strides(shape, step)
    return strides_in(shape, step, [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])


def LIKE(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """Dimensions in the order that those of the operands of this shape have, without gaps: as elementwise ops."""
    return like_strides(shape, step, operands)


def CHANNELS(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """Channels last where the operands' strides are in that order, with gaps or without; otherwise row-major."""
    if len(shape) in (4, 5) and any(is_ordered_last(a) for a in operands):
        return strides_in(shape, step, [0, *range(2, len(shape)), 1])
    return contiguous_strides(shape, step)


def CHANNELS_OF_IMAGES(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """As `CHANNELS` for images; volumes are row-major, whatever the operands are."""
    return CHANNELS(shape, step, operands) if len(shape) == 4 else contiguous_strides(shape, step)


def KEPT(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """The strides of the first operand, gaps included; without them where elements of that share memory."""
    strides = operands[0].strides
    shares = any([s == 0 and n > 1 for s, n in zip(strides, shape, strict=True)])  # noqa: C419  # a list is made in half the time
    return like_strides(shape, step, operands) if shares else tuple(strides)


def CHANNELS_OF_ALL(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """Channels last where the strides of every operand are in that order; otherwise row-major."""
    return CHANNELS(shape, step, operands[:1] if all(map(is_ordered_last, operands)) else ())


def CHANNELS_OF_DENSE(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """As `CHANNELS`, and also where memory is dense, whatever strides the dimensions of size 1 have."""
    if any(map(is_dense_last, operands)):
        return strides_in(shape, step, [0, *range(2, len(shape)), 1])
    return CHANNELS(shape, step, operands)


def in_memory_order(made: ndarray, order: Any, operands: Any) -> ndarray:
    """`made`, moved to other memory unless it has the strides that `order` says, which are row-major for operands that are."""
    if not made.flags.c_contiguous or not all(a.flags.c_contiguous for a in operands):
        return placed(made, order, operands)
    return made


def placed(made: ndarray, order: Any, operands: Any = ()) -> ndarray:
    """`made`, moved to other memory unless it has the strides that `order` says."""
    shape, strides = made.shape, made.strides
    fixed = not operands or order is ROWS or order is COLUMNS
    wanted = _without_operands(order, shape, made.itemsize) if fixed else order(shape, made.itemsize, operands)
    if strides == wanted or not made.size or all([n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True)]):  # noqa: C419
        return made                                   # the list is made in half the time of a generator
    size = extent(shape, wanted, made.itemsize)
    if size == made.nbytes:
        slowest_first, places = _permutations(wanted)
        out = np.empty([shape[d] for d in slowest_first], made.dtype).transpose(places)
    else:                                             # with gaps
        out = np.ndarray(shape, made.dtype, np.zeros(size // made.itemsize, made.dtype), 0, wanted)
    if made.size < FROM or not into(out, made):
        out[...] = made
    return out


@functools.lru_cache(1024)
def _without_operands(order: Any, shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    return order(shape, step, ())


@functools.lru_cache(1024)
def _permutations(strides: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The dimensions in the order of memory with these strides, the slowest first, and at which place of that each is."""
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    return order, sorted(range(len(strides)), key=order.__getitem__)
