"""Kernels of operations for quantized operands: views of the integers, and functions computed of numbers and quantized again."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..._kinds import no_kernel
from ...tensor import Tensor, bump, wrap
from .. import _dispatch
from .._spec import OPS
from .._spec.writing import check_writable
from .arrays import QuantizedArray, Quantizer, is_quantized, quantize


def answer(op: Any, args: tuple[Any, ...], target: Any = None, inplace: bool = False) -> Any:
    """See `KindArray.answer`."""
    if inplace:
        check_writable(op, target)
        stores = op.by_kind.get("quantized_")
        if stores is not None:
            return stores(*args)
    kernel = op.by_kind.get("quantized") or _kernel_for(op)
    if kernel is None and op.kind == "view":
        kernel = _viewed(op)
    if kernel is None:
        operands = [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,)) if is_quantized(x)]
        given = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in operands)
        raise no_kernel(f"{op.public_name}: not built for quantized tensors (got {given}); use dequantize() first")
    result = kernel(*args)
    if inplace and op.kind == "view":
        target._array = result._array
        bump(target)
        return target
    return result if target is None else store(op.public_name, target, result)


def store(name: str, target: Tensor, result: Tensor) -> Tensor:
    """Store the numbers of `result` in `target`, which keeps how it is quantized."""
    if not is_quantized(target):
        raise RuntimeError(f"{name}_: a quantized result cannot be stored in a tensor of {target.dtype}; use dequantize()")
    array: Any = target._array
    numbers = _numbers(result).expand(target.shape)
    array.integers.copy_(wrap(array.quantizer.integers(numbers._array, array.integers.dtype)))
    bump(target)
    return target


def _numbers(x: Tensor) -> Tensor:
    return x._array.numbers() if is_quantized(x) else x


def _viewed(op: Any) -> Any:
    def view(input: Tensor, *rest: Any) -> Any:
        array: Any = input._array
        if array.quantizer.axis is not None:
            raise RuntimeError(
                f"{op.public_name}: Setting strides is possible only on uniformly quantized tensor; this one is {array.quantizer.scheme}"
            )
        made = _dispatch.interpret(op, (array.integers, *rest))
        return tuple(map(array.over, made)) if isinstance(made, tuple) else array.over(made)

    return view


@OPS["clone"].kernel_of("quantized")
def _clone(input, memory_format):
    return input._array.over(OPS["clone"].function(input._array.integers, memory_format=memory_format))


@OPS["Tensor.overwrite"].kernel_of("quantized_")
def _copy_(input, src):
    return store("copy", input, src)


@OPS["fill"].kernel_of("quantized_")
def _fill_(input, value):
    return store("fill", input, wrap(np.full((), value, np.float32)))


@OPS["contiguous"].kernel_of("quantized")
def _contiguous(self, memory_format):
    return self._array.over(self._array.integers.contiguous(memory_format=memory_format))


@OPS["reshape"].kernel_of("quantized")
def _reshape(input, shape):
    return input._array.over(input._array.integers.reshape(shape))


@OPS["cat"].kernel_of("quantized")
def _cat(tensors, dim=0):
    if not all(map(is_quantized, tensors)) or any(t._array.quantizer != tensors[0]._array.quantizer for t in tensors):
        raise RuntimeError("cat: all tensors must be quantized, with one scale and zero point")
    return tensors[0]._array.over(OPS["cat"].function([t._array.integers for t in tensors], dim))


@functools.cache
def _kernel_for(op: Any) -> Any:
    """The kernel that follows from the declaration of `op`; None if it says nothing of quantized tensors."""
    make = {"as_operand": _again, "numbers": _of_numbers, "integers": _ordered}.get(op.quantized)
    return None if make is None else make(op)


def _again(op: Any, quantizer: Quantizer | None = None) -> Any:
    """A kernel that computes of numbers and quantizes as the operand is, or by `quantizer`."""

    def compute(input, *rest):
        made = _dispatch.interpret(op, (_numbers(input), *map(_number, rest[: len(op.params) - 1])))
        q = quantizer if quantizer is None or input._array.type.name == "quint8" else None
        return quantize(made, input._array.type, q or input._array.quantizer)

    return compute


def _number(x: Any) -> Any:
    return _numbers(x) if isinstance(x, Tensor) else x


for _name in ("max_pool1d", "max_pool2d"):
    OPS[f"nn.functional.{_name}"].kernel_of("quantized")(
        lambda input, size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False, name=f"quantized_{_name}":
            OPS[name].function(input, size, () if stride is None else stride, padding, dilation, ceil_mode)
    )  # fmt: skip
# Their results have a range that is known.
OPS["sigmoid"].kernel_of("quantized")(_again(OPS["sigmoid"], Quantizer(1 / 256, 0)))
OPS["tanh"].kernel_of("quantized")(_again(OPS["tanh"], Quantizer(2 / 256, 128)))


def _of_numbers(op: Any) -> Any:
    return lambda *args: _dispatch.interpret(op, tuple(map(_number, args)))


@OPS["equal"].kernel_of("quantized")
def _equal(input, other):
    if not (is_quantized(input) and is_quantized(other)):
        return False
    a, b = input._array, other._array
    same = a.type is b.type and all(np.array_equal(x, y) for x, y in zip(a.quantizer, b.quantizer, strict=True))
    return same and bool(a.integers.equal(b.integers))


def _ordered(op: Any) -> Any:
    """Values in the order of their integers, and where they were."""

    def compute(input, *rest):
        array: Any = input._array
        values, at = _dispatch.interpret(op, (array.integers, *rest))
        return op.named((array.over(values), at)) if getattr(op, "returns", None) else (array.over(values), at)

    return compute


__all__ = ["QuantizedArray", "answer", "store"]
