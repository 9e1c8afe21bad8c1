"""Quantized tensors: integers that stand for numbers, by a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ..._subclass import overridable_function
from ...tensor import Tensor, wrap, wrap_dim
from .._makers import refusing
from .._parameters import input_of
from .._quantized.arrays import INTEGERS, QuantizedArray, Quantizer, is_quantized, parts_of, quantize
from .._quantized.ranges import fitting
from .._spec import FUNCTION, OPS, composite


def _check(name: str, input: Any, dtype: Any) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if dtype not in (*INTEGERS, dtypes.quint4x2, dtypes.quint2x4):
        raise RuntimeError(f"{name}: ScalarType {dtypes.scalar_type(dtype)} is not supported: use quint8, qint8 or qint32")
    if input.dtype is not dtypes.float32:
        raise RuntimeError(f"{name}: Quantize only works on Float Tensor, got {dtypes.scalar_type(input.dtype)}; use input.float()")


def _check_zero(name: str, zero: Any, dtype: Any) -> None:
    if dtype in INTEGERS:
        limits = np.iinfo(INTEGERS[dtype].numpy)
        for side, wrong in (("below lower", np.min(zero, initial=0) < limits.min), ("above upper", np.max(zero, initial=0) > limits.max)):
            if wrong:
                raise RuntimeError(f"{name}: zero_point {zero} is {side} bound of {dtype}, from {limits.min} to {limits.max}")


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """`input` as integers, each ``round(x / scale) + zero_point`` kept in the range of `dtype`; halves go to the even integer.

    Args:
        input: a float32 tensor, or a list of them, for which scales and zero points are tensors of one for each.
        scale: a number, or a tensor of one.
        zero_point: an integer, in the range of `dtype`.
        dtype: `quint8`, `qint8` or `qint32`.
    Raises: RuntimeError for another dtype of `input` or result.

    >>> q = fb.quantize_per_tensor(fb.tensor([-1.0, 0.0, 1.06]), 0.1, 10, fb.quint8)
    >>> q.int_repr(), q.dequantize()
    (tensor([ 0, 10, 21], dtype=torch.uint8), tensor([-1.0000,  0.0000,  1.1000]))
    """
    if isinstance(input, (list, tuple)):
        pairs = zip(scale.tolist(), zero_point.tolist(), strict=True)
        return tuple(quantize_per_tensor(x, s, z, dtype) for x, (s, z) in zip(input, pairs, strict=True))
    _check("quantize_per_tensor", input, dtype)
    zero = int(zero_point)
    _check_zero("quantize_per_tensor", zero, dtype)
    return quantize(input.detach(), dtype, Quantizer(float(scale), zero))


def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> Tensor:
    """`quantize_per_tensor` with the scale and zero point that fit the range of `input`, widened to include 0.

    Args:
        dtype: `quint8` or `qint8`.
        reduce_range: use half of the integers.
    Raises: RuntimeError for another dtype of `input` or result.

    >>> q = fb.quantize_per_tensor_dynamic(fb.tensor([-1.0, 0.3, 2.0]), fb.quint8, False)
    >>> q.q_zero_point(), q.int_repr()
    (85, tensor([  0, 110, 255], dtype=torch.uint8))
    """
    _check("quantize_per_tensor_dynamic", input, dtype)
    if dtype not in (dtypes.quint8, dtypes.qint8):
        raise RuntimeError(f"quantize_per_tensor_dynamic: dtype {dtypes.scalar_type(dtype)} not supported: use quint8 or qint8")
    limits = np.iinfo(INTEGERS[dtype].numpy)
    least, most = (limits.min // 2, limits.max // 2) if reduce_range else (limits.min, limits.max)
    low, high = (0.0, 0.0) if input.numel() == 0 else (x.item() for x in OPS["aminmax"].function(input.detach()))
    scale, zero = fitting(low, high, least, most)
    return quantize(input.detach(), dtype, Quantizer(float(scale), int(zero)))


def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any) -> Tensor:
    """`quantize_per_tensor` with a scale and a zero point for each index of dimension `axis`.

    Args:
        scales, zero_points: vectors of as many numbers as `input` has indices along `axis`. Zero points that are floating numbers may be
            between integers and beyond the range of `dtype`, which is quint8 then.
    Raises: RuntimeError for other dtypes or lengths.
    """
    _check("quantize_per_channel", input, dtype)
    axis = wrap_dim(axis, input.ndim)
    n = input.shape[axis]
    if tuple(scales.shape) != (n,) or tuple(zero_points.shape) != (n,):
        raise RuntimeError(
            f"quantize_per_channel: number of elements in scales ({scales.numel()}) and zero_points ({zero_points.numel()}) must be that "
            f"of channels, {n} along axis {axis}"
        )
    if zero_points.dtype.is_floating_point:
        zero = zero_points._array.astype(np.float32)
    else:
        zero = zero_points._array.astype(np.int64)
        _check_zero("quantize_per_channel", zero, dtype)
    return quantize(input.detach(), dtype, Quantizer(scales._array.astype(np.float64), zero, axis))


def _need(name: str, x: Tensor) -> QuantizedArray:
    if not is_quantized(x):
        raise NotImplementedError(f"{name}: needs a quantized tensor, got one of {x.dtype}; see quantize_per_tensor")
    return parts_of(x)


def _quantizer(name: str, x: Tensor, per_channel: bool) -> Quantizer:
    q = _need(name, x).quantizer
    if (q.axis is not None) is not per_channel:
        wanted = "per_channel_affine" if per_channel else "per_tensor_affine"
        raise RuntimeError(f"{name}: Expected the scheme torch.{wanted}, but the tensor's is {q.scheme}")
    return q


def dequantize(input: Any = ..., **named: Any) -> Any:
    """The numbers of a quantized tensor, in float32; those of each, for a list. A dense tensor gives float32 of itself."""
    if named or input is ...:
        input = input_of("dequantize", input, named)
    if isinstance(input, (list, tuple)):
        return tuple(map(dequantize, input))
    return input._array.numbers() if is_quantized(input) else input.to(dtypes.float32)


Tensor.dequantize = dequantize  # type: ignore[attr-defined]


def _method(fn: Any) -> Any:
    setattr(Tensor, fn.__name__, fn)
    return fn


@_method
def int_repr(self: Tensor) -> Tensor:
    """The integers of a quantized tensor, copied. Raises: NotImplementedError for a dense one."""
    return _need("int_repr", self).integers.clone()


@_method
def qscheme(self: Tensor) -> Any:
    """How it is quantized: `per_tensor_affine` or `per_channel_affine`. Raises: NotImplementedError for a dense tensor."""
    return _need("qscheme", self).quantizer.scheme


@_method
def q_scale(self: Tensor) -> float:
    """The scale. Raises: RuntimeError where there is one for each channel."""
    return _quantizer("q_scale", self, False).scale


@_method
def q_zero_point(self: Tensor) -> int:
    """The integer that stands for 0. Raises: RuntimeError where there is one for each channel."""
    return _quantizer("q_zero_point", self, False).zero_point


@_method
def q_per_channel_scales(self: Tensor) -> Tensor:
    """The scales of channels, in float64, or in float32 beside floating zero points. Raises: RuntimeError where there is one for all."""
    quantizer = _quantizer("q_per_channel_scales", self, True)
    zeros = quantizer.zero_point
    return wrap(quantizer.scale.astype(zeros.dtype if zeros.dtype.kind == "f" else np.float64))


@_method
def q_per_channel_zero_points(self: Tensor) -> Tensor:
    """The integers that stand for 0 in each channel. Raises: RuntimeError where there is one for all."""
    return wrap(_quantizer("q_per_channel_zero_points", self, True).zero_point.copy())


@_method
def q_per_channel_axis(self: Tensor) -> int:
    """The dimension of channels. Raises: RuntimeError where there is one scale for all."""
    axis = _quantizer("q_per_channel_axis", self, True).axis
    return int(axis or 0)


# -- operations of their own ------------------------------------------------------------------------------------------------


@composite(surface=FUNCTION, samples="fb.quantize_per_tensor(x(2, 6).float(), 0.1, 10, fb.quint8), [2]")
def quantized_max_pool1d(input, kernel_size: int | Sequence[int], stride=(), padding=0, dilation=1, ceil_mode=False):
    """`max_pool1d` of a quantized tensor ``(*, L)``, whose scale and zero point the result has; arguments are those of `max_pool1d`."""
    return _pooled("quantized_max_pool1d", "max_pool1d", input, kernel_size, stride, padding, dilation, ceil_mode)


@composite(surface=FUNCTION, samples="fb.quantize_per_tensor(x(1, 4, 4).float(), 0.1, 10, fb.quint8), [2, 2]")
def quantized_max_pool2d(input, kernel_size: int | Sequence[int], stride=(), padding=0, dilation=1, ceil_mode=False):
    """`max_pool2d` of a quantized tensor ``(*, H, W)``, whose scale and zero point the result has; arguments are those of `max_pool2d`."""
    return _pooled("quantized_max_pool2d", "max_pool2d", input, kernel_size, stride, padding, dilation, ceil_mode)


def _pooled(public_name: str, name: str, input: Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Tensor:
    array = _need(public_name, input)
    _quantizer(public_name, input, False)
    given = (size, stride, padding, dilation)
    size, stride, padding, dilation = (v[0] if isinstance(v, (list, tuple)) and len(v) == 1 else v for v in given)
    numbers = array.integers.to(dtypes.float64)       # which holds every integer
    pool = OPS[f"nn.functional.{name}"].function
    found = pool(numbers, size, stride or None, padding, dilation, ceil_mode)
    return array.over(found.to(array.integers.dtype))


@composite(
    surface=FUNCTION,
    samples="fb.quantize_per_tensor(x(2, 2, 3, 3).float(), 0.1, 10, fb.quint8), None, None, fb.zeros(2), fb.ones(2), 1e-5, 0.1, 3",
)
def quantized_batch_norm(input, weight=None, bias=None, mean=None, var=None, eps=1e-5, output_scale=1.0, output_zero_point=0):
    """`batch_norm` of a quantized tensor ``(N, C, *)`` by the given `mean` and `var`, quantized with another scale and zero point.

    Args:
        weight, bias: of the channels, ``(C)``; 1 and 0 by default.
        mean, var: of the channels, ``(C)``.
        eps: added to `var`.
        output_scale, output_zero_point: of the result.
    """
    array = _need("quantized_batch_norm", input)
    numbers = OPS["nn.functional.batch_norm"].function(array.numbers(), mean, var, weight, bias, False, 0.1, eps)
    return quantize(numbers, array.type, Quantizer(float(output_scale), int(output_zero_point)))


_ALONE = (quantize_per_tensor, quantize_per_tensor_dynamic, quantize_per_channel, dequantize)
FUNCTIONS = {fn.__name__: overridable_function(refusing(fn)) for fn in _ALONE}
