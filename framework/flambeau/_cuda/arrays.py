"""Arrays of CUDA devices as the tensors need them: memory, copies, layouts, and formulas over them.

Nothing here computes on the host, and nothing moves there unless its name says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cuda import launch
from flambeau_kernels.formula import Formula

from .. import _arrays
from .._arrays import MetaArray, ndarray

__all__ = [
    "bits", "cast", "computed", "contiguous", "elementwise", "empty_like_layout", "filled", "from_host", "gradient", "is_on_device",
    "library", "over", "restride", "strided_empty", "memory_of",
]  # fmt: skip


def is_on_device(a: Any) -> bool:
    """Whether `a` is an array of a CUDA device."""
    return a.__class__ is not ndarray and not isinstance(a, (ndarray, MetaArray)) and hasattr(getattr(a, "data", None), "ptr")


def library() -> Any:
    """cupy, or what stands for it."""
    from .device import require

    return require("a CUDA tensor")


def bits(a: Any) -> Any:
    """`a` as integers of its element size where cupy's own kernels do not know its dtype: for moving elements about."""
    return a if a.dtype.isbuiltin == 1 else a.view(f"u{a.dtype.itemsize}")


def from_host(a: np.ndarray) -> Any:
    """A copy of `a` in the memory of the current device, laid out alike."""
    raw = a if a.dtype.isbuiltin == 1 else a.view(f"u{a.dtype.itemsize}")
    made = library().asarray(raw)
    return made if made.dtype == a.dtype else made.view(a.dtype)


def filled(shape: tuple[int, ...], dtype: np.dtype, value: Any) -> Any:
    """An array of the current device with `value` in every element; None leaves what was in memory."""
    made = library().ndarray(shape, dtype)
    if value is not None:
        launch.copy(made, np.asarray(value).astype(dtype))
    return made


def strided_empty(like: Any, shape: Any, dtype: np.dtype, order: Any) -> Any:
    """As `_arrays.strided_empty`, beside `like`."""
    base = like.__class__(tuple(shape[d] for d in order), dtype)
    inverse = [0] * len(order)
    for at, d in enumerate(order):
        inverse[d] = at
    return base.transpose(inverse) if len(order) > 1 else base


def empty_like_layout(shape: tuple[int, ...], dtype: np.dtype, arrays: list[Any]) -> Any:
    """As `_arrays.empty_like_layout`, beside `arrays`."""
    if len(shape) < 2 or all(a.ndim < 2 or a.shape == shape and a.flags.c_contiguous for a in arrays):
        return arrays[0].__class__(shape, dtype)
    return strided_empty(arrays[0], shape, dtype, _arrays.permutation(shape, arrays))


def restride(a: Any, shape: Any, strides: Any, skip: int) -> Any:
    """A view of the memory of `a` from `skip` bytes after its first element."""
    if 0 in shape:
        return a.__class__(tuple(shape), a.dtype)
    return a.__class__(tuple(shape), a.dtype, a.data + skip, tuple(strides))


def over(buffer: Any, dtype: np.dtype, shape: Any, strides: Any, offset: int) -> Any:
    """An array of `dtype` over `buffer`, an array of bytes, from byte `offset`."""
    if 0 in shape:
        return buffer.__class__(tuple(shape), dtype)
    return buffer.__class__(tuple(shape), dtype, buffer.data + offset, tuple(strides))


def memory_of(a: Any) -> Any:
    """All of the memory that `a` lies in, as bytes."""
    memory = a.data
    return a.__class__((memory.mem.size,), np.uint8, memory + (memory.mem.ptr - memory.ptr))


def cast(a: Any, dtype: np.dtype) -> Any:
    """`a` as `dtype`; itself if it is that already."""
    return launch.cast(a, dtype)


def _operand(x: Any) -> Any:
    if isinstance(x, ndarray) and x.ndim:
        raise RuntimeError(f"Expected all tensors to be on the same device, but one of shape {x.shape} is on the cpu")
    return x


def computed(formula: Formula, arrays: Any, compute: np.dtype, results: tuple[np.dtype, ...], shape: tuple[int, ...]) -> Any:
    """What `formula` makes of `arrays` (numbers and host arrays without dimensions among them): one array, or a tuple."""
    there = [a for a in arrays if is_on_device(a)]
    outs = tuple([empty_like_layout(shape, d, there) for d in results])
    launch.launch(formula, tuple([_operand(a) for a in arrays]), outs, compute)
    return outs[0] if len(outs) == 1 else outs


def elementwise(op: Any, arrays: Any, compute: np.dtype, result: np.dtype, shape: tuple[int, ...]) -> Any:
    """What the elementwise `op` makes of `arrays`. Raises: NotImplementedError naming it if there is no kernel."""
    count = len(op.positional)
    formula = op.formula
    if op.short is not None and all(a is d or a == d for a, d in zip(arrays[count:], op.keyword_defaults, strict=True)):
        formula, arrays = op.short, arrays[:count]
    try:
        return computed(formula, arrays, compute, (result,), shape)
    except NotImplementedError as error:
        raise NotImplementedError(f"{op.public_name}: not built for device cuda: {error}. Compute it on the CPU: x.cpu()") from error


def gradient(formula: Formula, arrays: Any, compute: np.dtype) -> Any:
    """What a gradient's `formula` makes of `arrays`, broadcast."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays if hasattr(a, "shape")))
    return computed(formula, arrays, compute, (compute,), shape)


def contiguous(a: Any) -> Any:
    """`a`, or a row-major copy."""
    if a.flags.c_contiguous:
        return a
    made = a.__class__(a.shape, a.dtype)
    launch.copy(made, a)
    return made


