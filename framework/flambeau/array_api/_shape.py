"""Manipulation functions of the array API standard."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from ._types import together

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat", "reshape", "roll",
    "squeeze", "stack", "tile", "unstack",
]  # fmt: skip


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Views of the tensors in the shape that they broadcast to."""
    return list(fb.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """A view of `x` in `shape`."""
    return fb.broadcast_to(x, tuple(shape))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Tensors one behind the other along `axis`, or all their elements where it is None, in the dtype that holds all."""
    same = together("concat", *arrays)
    return fb.cat([one.reshape(-1) for one in same]) if axis is None else fb.cat(list(same), axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension `axis`, in the dtype that holds all."""
    return fb.stack(list(together("stack", *arrays)), axis)


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """A view of `x` with a dimension of size 1 at `axis`."""
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """`x` with its elements in reverse along `axis`, or along all dimensions."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return fb.flip(x, tuple(axes))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """A view of `x` with the dimensions `source` at `destination`."""
    return fb.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """A view of `x` with its dimensions in the order `axes`."""
    return fb.permute(x, tuple(axes))


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element, or slice along `axis`, as many times as `repeats` says, which is a number or one for each."""
    if isinstance(repeats, Tensor):
        repeats = repeats.to(fb.int64)
    return fb.repeat_interleave(x, repeats, dim=axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """`x` in another shape of as many elements; one size may be -1.

    Args:
        copy: True for memory of its own, False for a view or ValueError, None for a view where there can be one.
    """
    if copy:
        return x.clone(memory_format=fb.contiguous_format).reshape(tuple(shape))
    if copy is None:
        return x.reshape(tuple(shape))
    try:
        return x.view(tuple(shape))
    except RuntimeError as error:
        memory = f"{tuple(x.shape)} with strides {x.stride()}"
        raise ValueError(f"reshape: {memory} has no view of shape {tuple(shape)}, and copy=False") from error


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """`x` with elements moved on by `shift` along `axis`, or in C order; what leaves the end comes in at the start."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return fb.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """A view of `x` without the dimensions `axis`. Raises: ValueError where one has another size than 1."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if not -x.ndim <= one < x.ndim:
            raise IndexError(f"squeeze: axis {one} is out of range for a tensor of {x.ndim} dimensions")
        if x.shape[one] != 1:
            raise ValueError(f"squeeze: dimension {one} of shape {tuple(x.shape)} is not of size 1")
    return x.squeeze(axes)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """`x` repeated as a whole along each dimension."""
    return fb.tile(x, tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices of `x` along `axis`."""
    return tuple(x.unbind(axis))
