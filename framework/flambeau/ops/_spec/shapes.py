"""What ops say of their operands: shapes that broadcast, devices that agree, and the text of errors."""

from __future__ import annotations

from math import prod
from operator import index as as_index
from typing import Any

import numpy as np

from flambeau_kernels.cpu.reductions.along import SEVERAL, Along
from flambeau_kernels.cpu.reductions.reduce import Reduction

from ..._arrays import HeldArray, NoValues, ndarray
from ..._kinds import KindArray
from ..._symbolic import SymFloat, SymInt
from ...tensor import Tensor, device_of

_ALWAYS_THERE = 1 << 28                                      # bytes that are had for the asking


def check_room(op: str, shape: Any, itemsize: int, meta: bool = False) -> None:
    """Raise RuntimeError unless memory holds an array of `shape`: for what loops over sizes before it allocates.

    Of a `meta` tensor the number of bytes has to be one, no more.
    """
    needed = prod(shape) * itemsize
    if needed.__class__ is SymInt or needed <= _ALWAYS_THERE:
        return
    if needed >= 1 << 63:
        shown = ", ".join("2**63 or more" if n >= 1 << 63 else str(n) for n in shape)
        raise RuntimeError(f"{op}: Storage size calculation overflowed with sizes=[{shown}]: no array can be that large")
    if meta:
        return
    try:
        np.empty(needed, np.uint8)                    # pages that nobody touches cost nothing
    except MemoryError:
        raise RuntimeError(
            f"{op}: can't allocate memory: you tried to allocate {needed} bytes, for sizes={list(shape)}"
        ) from None


def need_int(op: str, name: str, value: Any) -> int:
    """`value`, which has to be an integer of 64 bits: a number of Python's or numpy's, or a Tensor of one.

    Raises: TypeError for what is no integer, ValueError for a larger one.
    """
    if value.__class__ is not int and value.__class__ is not SymInt:
        value = _as_int(op, name, value)
    if value.__class__ is int and not -LARGEST - 1 <= value <= LARGEST:
        raise ValueError(f"{op}(): argument '{name}' must be below 2**63: Overflow when unpacking long long, got {value}")
    return value


LARGEST = (1 << 63) - 1                              # integer of 64 bits


def _as_int(op: str, name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool) and not (isinstance(value, Tensor) and value._array.dtype.kind == "b"):
            return as_index(value)
    except TypeError:
        pass                                          # the checks below raise an error that names the op
    raise TypeError(f"{op}(): argument '{name}' must be int, not {type(value).__name__}")


def int_list(value: Any) -> list[Any]:
    """What the list or tuple `value` lists: itself alone if it is an integer, of Python or numpy or in a Tensor. Raises: TypeError."""
    if isinstance(value, (list, tuple)):
        return list(value)
    try:
        if not isinstance(value, bool):
            return [as_index(value)]
    except TypeError:
        pass                                          # said below, of both
    raise TypeError(f"dimensions and sizes must be int or tuple of ints, not {type(value).__name__}")


def need_sizes(op: str, name: str, value: Any) -> tuple[int, ...]:
    """`value`, which has to be a tuple or list of integers of 64 bits, as a tuple. Raises: TypeError, ValueError."""
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{op}(): argument '{name}' must be tuple of ints, not {type(value).__name__}")
    return tuple([need_int(op, name, n) for n in value])


def need_number(op: str, name: str, value: Any) -> Any:
    """`value`, which has to be a real number, or a Tensor of one. Raises: TypeError."""
    if value.__class__ is float or isinstance(value, (int, float, np.number, np.bool_)) and not isinstance(value, np.complexfloating):
        return value
    if isinstance(value, Tensor) and value.ndim == 0:
        return value.item()
    if isinstance(value, (SymInt, SymFloat)):
        return value
    raise TypeError(f"{op}(): argument '{name}' must be float, not {type(value).__name__}")


def is_beyond(value: Any) -> bool:
    """Whether `value` is an int of more than 64 bits, as PyTorch has no number."""
    return value.__class__ is int and not -LARGEST - 1 <= value <= 2 * LARGEST + 1


def refuse_beyond(op: Any, args: Any) -> None:
    """Raise OverflowError if one of the arguments of `op` is an int of more than 64 bits."""
    for name, value in zip(op.params, args, strict=False):
        if is_beyond(value):
            raise OverflowError(f"{op.public_name}(): argument '{name}' has more than 64 bits: int too big to convert")


def need_bools(op: str, **flags: Any) -> None:
    """Raise TypeError unless each of the `flags` is True or False, of Python or numpy."""
    for name, value in flags.items():
        if value is not True and value is not False and not isinstance(value, np.bool_):
            raise TypeError(f"{op}(): argument '{name}' must be bool, not {type(value).__name__}")


def describe(**tensors: Any) -> str:
    """Shape, dtype and device of each operand, a line each, for error messages."""
    lines = []
    for name, t in tensors.items():
        if isinstance(t, Tensor):
            lines.append(f"  {name:<8}{tuple(t.shape)!s:<16} {t.dtype.name:<10} {t.device}")
        elif isinstance(t, (list, tuple)):
            lines += [describe(**{f"{name}[{i}]": x}) for i, x in enumerate(t) if isinstance(x, Tensor)]
        else:
            lines.append(f"  {name:<8}{t!r}")
    return "\n".join(lines)


def broadcast_shapes(op: Any, args: Any, names: Any = None) -> tuple[int, ...]:
    """The shape operands stretch to. Raises: RuntimeError naming every operand when they do not fit."""
    shapes = [a._array.shape for a in args if isinstance(a, Tensor)]
    first = shapes[0] if shapes else ()
    for shape in shapes:
        if shape != first:
            break
    else:
        return first
    result: list[int] = []
    for shape in shapes:
        if len(shape) > len(result):
            result[:0] = [1] * (len(shape) - len(result))
        for at in range(1, len(shape) + 1):
            n, have = shape[-at], result[-at]
            if n != have:
                if have == 1:
                    result[-at] = n
                elif n != 1:
                    raise_not_broadcastable(op, args, names, have, n, len(result) - at)
    return tuple(result)


def raise_not_broadcastable(op: Any, args: Any, names: Any, a: int, b: int, dim: int) -> None:
    given = dict(zip(names or op.params, args, strict=False))
    raise RuntimeError(
        f"{op.public_name}: The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}; "
        f"sizes must be equal or 1 there\n{describe(**given)}"
    )


def common_device(op: Any, args: Any) -> Any:
    """The one device of all operands; 0-d CPU tensors go anywhere. Raises: RuntimeError when they differ."""
    found = None
    for a in args:
        if isinstance(a, Tensor):
            place = device_of(a._array) if type(a._array) is not ndarray else None
            kind = "cpu" if place is None else str(place)
            if found is None or (found[1] and found[0] == "cpu"):
                found = (kind, a._array.ndim == 0)
            elif kind != found[0] and not (kind == "cpu" and a._array.ndim == 0):
                raise RuntimeError(
                    f"{op.public_name}: Expected all tensors to be on the same device, but found at least two devices, "
                    f"{found[0]} and {kind}\n{describe(**dict(zip(op.params, args, strict=False)))}"
                )
    return found[0] if found else "cpu"


def host_only(name: str, *tensors: Any) -> None:
    """Raise NotImplementedError if one of `tensors` is on a device that the op `name`, a composite over arrays, has no code for."""
    for t in tensors:
        if isinstance(t, Tensor) and t._array.__class__ is HeldArray:
            raise NoValues(f"{name}: reads elements of its operand, a {type(t).__name__}, which has none of its own")
        if isinstance(t, Tensor) and t.is_cuda:
            raise NotImplementedError(f"{name}: not built for device {t.device} yet. Compute it on the CPU and move the result: x.cpu()")


_SUM = Along("fold", Reduction("sum_to", "add"), lambda dtype: (dtype, dtype) if dtype.char in "fd" else None, dims=SEVERAL)


def sum_to(grad: Any, shape: tuple[int, ...]) -> Any:
    """Undo broadcasting: `grad` (array) added up over the dimensions that were stretched from `shape`, row-major as any sum."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    axes = tuple(range(extra))
    if grad.shape[extra:] != shape:
        axes += tuple(i + extra for i, n in enumerate(shape) if n == 1 and grad.shape[i + extra] != 1)
    if axes and grad.__class__ is not ndarray and not isinstance(grad, ndarray):
        from ..._cuda.kernels.sums import sum_to

        return sum_to(grad, shape, axes)
    if axes:
        if grad.size > 4096:                          # where numpy would add columns one after the other, in float32
            from flambeau_kernels.cpu.reductions.reduce import total

            return np.asarray(total(grad, axes, True), order="C").reshape(shape)
        if not grad.size:
            return np.zeros(shape, grad.dtype)
        made = _SUM(grad, axes, True) if grad.flags.c_contiguous else None  # with numpy's bits
        if made is not None:
            return made.reshape(shape)
        wide = np.float32 if grad.dtype.itemsize <= 2 else grad.dtype
        grad = np.add.reduce(grad, axis=axes, keepdims=True, dtype=wide).astype(grad.dtype, "C", copy=False)
    return grad.reshape(shape)


def sum_to_in(table: Any, grad: Any, shape: tuple[int, ...]) -> Any:
    """`sum_to` as an entry of a table of launches, see `Op.launches`."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    axes = (*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1 and grad.shape[i + extra] != 1))
    if 0 < grad.size <= 4096 and grad.flags.c_contiguous and axes:
        made = table.call(_SUM.call, grad, axes, True)
        if made is not None:
            return table.view(made, made.reshape(shape))
    return table.call_any(sum_to, "sum of a broadcast gradient", grad, shape)


def sum_tensor_to(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`sum_to` on Tensors, differentiable."""
    if grad._array.shape == shape:
        return grad
    extra = grad._array.ndim - len(shape)
    dims = [*range(extra), *(i + extra for i, n in enumerate(shape) if n == 1 and grad._array.shape[i + extra] != 1)]
    if dims:
        grad = grad.sum(dims, keepdim=True)
    return grad.reshape(shape)


def elsewhere(op: Any, args: tuple[Any, ...], target: Any = None, inplace: bool = False) -> Any:
    """The answer to `op` where an operand has no strided memory: by its class (a wrapper's), or by the kind of its array.

    Args:
        target, inplace: where the result is to be stored, and whether that is the first of `args`.
    Returns: NotImplemented if all operands, lists of them included, are strided.
    """
    for a in args if target is None or inplace else (*args, target):
        for x in a if isinstance(a, (list, tuple)) else (a,):
            if isinstance(x, Tensor):
                array = x._array
                if array.__class__ is HeldArray and x is a:
                    from .. import _dispatch

                    return _dispatch.interpret(op, args, target, inplace)
                if isinstance(array, KindArray):
                    return array.answer(op, args, target, inplace)
    return NotImplemented
