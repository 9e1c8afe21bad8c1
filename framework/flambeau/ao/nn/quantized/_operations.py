"""Operations on quantized tensors that converted models call, with the scale and zero point of the result as arguments."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import functional as F
from ....ops._quantized.arrays import QuantizedArray, Quantizer
from ....ops._quantized.layers import computed, need_quantized
from ....tensor import Tensor, wrap
from .functional import _conv, _linear

__all__ = [
    "add", "add_relu", "add_scalar", "add_scalar_relu", "conv1d", "conv2d", "conv3d", "leaky_relu", "linear", "matmul", "mul", "mul_relu",
    "mul_scalar", "mul_scalar_relu",
]  # fmt: skip


def add(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``x + y``."""
    return computed("add", fb.add, [x, y], float(scale), int(zero_point))


def add_relu(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``relu(x + y)``."""
    return computed("add_relu", lambda a, b: F.relu(a + b), [x, y], float(scale), int(zero_point))


def mul(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``x * y``."""
    return computed("mul", fb.mul, [x, y], float(scale), int(zero_point))


def mul_relu(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``relu(x * y)``."""
    return computed("mul_relu", lambda a, b: F.relu(a * b), [x, y], float(scale), int(zero_point))


def matmul(x: Tensor, y: Tensor, scale: Any, zero_point: Any) -> Tensor:
    """``x @ y``."""
    return computed("matmul", fb.matmul, [x, y], float(scale), int(zero_point))


def leaky_relu(x: Tensor, scale: Any, zero_point: Any, negative_slope: float = 0.01) -> Tensor:
    """`nn.functional.leaky_relu` of `x`."""
    return computed("leaky_relu", lambda t: F.leaky_relu(t, negative_slope), [x], float(scale), int(zero_point))


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


def add_scalar_relu(x: Tensor, y: float) -> Tensor:
    """``relu(x + y)`` with a number."""
    return F.relu(add_scalar(x, y))


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


def mul_scalar_relu(x: Tensor, y: float) -> Tensor:
    """``relu(x * y)`` with a number."""
    return F.relu(mul_scalar(x, y))


def linear(x: Tensor, weight: Tensor, scale: Any, zero_point: Any, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """``x @ weight.T + bias``, nothing below 0 with `relu`."""
    return _linear(x, weight, bias, float(scale), int(zero_point), relu)


def conv1d(
    x: Tensor, weight: Tensor, scale: Any, zero_point: Any, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, relu: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.conv1d`, nothing below 0 with `relu`."""
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return _conv("conv1d", F.conv1d, x, weight, bias, float(scale), int(zero_point), options, padding, relu=relu)


def conv2d(
    x: Tensor, weight: Tensor, scale: Any, zero_point: Any, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, relu: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.conv2d`, nothing below 0 with `relu`."""
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return _conv("conv2d", F.conv2d, x, weight, bias, float(scale), int(zero_point), options, padding, relu=relu)


def conv3d(
    x: Tensor, weight: Tensor, scale: Any, zero_point: Any, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, relu: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.conv3d`, nothing below 0 with `relu`."""
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return _conv("conv3d", F.conv3d, x, weight, bias, float(scale), int(zero_point), options, padding, relu=relu)
