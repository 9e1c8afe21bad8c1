"""Operations on quantized tensors that converted models call, with the scale and zero point of the result as arguments."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....ops._quantized.arrays import QuantizedArray, Quantizer
from ....ops._quantized.layers import computed, need_quantized
from ....tensor import Tensor, wrap

__all__ = ["add", "add_scalar", "matmul", "mul", "mul_scalar"]


def add(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``x + y``."""
    return computed("add", fb.add, [x, y], float(scale), int(zero_point))


def mul(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``x * y``."""
    return computed("mul", fb.mul, [x, y], float(scale), int(zero_point))


def matmul(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``x @ y``."""
    return computed("matmul", fb.matmul, [x, y], float(scale), int(zero_point))


def add_scalar(x: Tensor, y: float) -> Tensor:
    """``x + y`` with a number: the same integers, as far as a zero point for the sum is one of the dtype's."""
    need_quantized("add_scalar", x=x)
    array: Any = x._array
    q = array.quantizer
    limits = fb.iinfo(array.integers.dtype)
    moved = q.zero_point - round(y / q.scale)
    if limits.min <= moved <= limits.max:
        return wrap(QuantizedArray(array.integers.clone(), array.type, Quantizer(q.scale, moved)))
    # 0 at the end of the integers, and all numbers that there were.
    steps, zero = (limits.max - moved, limits.min) if moved < limits.min else (moved - limits.min, limits.max)
    return computed("add_scalar", lambda t: t + y, [x], q.scale * steps / (limits.max - limits.min), zero)


def mul_scalar(x: Tensor, y: float) -> Tensor:
    """``x * y`` with a number: the same integers, in the other direction for a negative one."""
    need_quantized("mul_scalar", x=x)
    array: Any = x._array
    q = array.quantizer
    limits = fb.iinfo(array.integers.dtype)
    if y == 0:
        return wrap(QuantizedArray(fb.zeros_like(array.integers), array.type, Quantizer(1.0, 0)))
    if y > 0:
        return wrap(QuantizedArray(array.integers.clone(), array.type, Quantizer(q.scale * y, q.zero_point)))
    turned = (limits.min + limits.max) - array.integers.to(fb.int32)
    zero = limits.min + limits.max - q.zero_point
    return wrap(QuantizedArray(turned.to(array.integers.dtype), array.type, Quantizer(q.scale * -y, zero)))


