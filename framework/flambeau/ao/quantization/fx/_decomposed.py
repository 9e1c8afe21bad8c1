"""The operators ``quantized_decomposed``: quantization written out in numbers, as programs for other backends have it.

A quantized value is a plain tensor of integers here; its scale, zero point and range are arguments. ``torch.ops.quantized_decomposed``
has them once this module is imported, which `quantize_pt2e` does.
"""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....library import Library

__all__: list[str] = []

_LIMITS: dict[Any, tuple[int, int]] = {
    fb.uint8: (0, 255), fb.int8: (-128, 127), fb.uint16: (0, 65535), fb.int16: (-32768, 32767), fb.int32: (-(1 << 31), (1 << 31) - 1),
}  # fmt: skip
_EPSILON = 1e-5  # the least scale of a token

quantized_decomposed_lib = Library("quantized_decomposed", "DEF")


def _operator(schema: str) -> Any:
    """Define the operator of `schema`; the function below computes it."""
    quantized_decomposed_lib.define(schema)

    def register(fn: Any) -> Any:
        quantized_decomposed_lib.impl(schema.partition("(")[0], fn, "CompositeExplicitAutograd")
        return fn

    return register


def _check_range(quant_min: int, quant_max: int, dtype: Any) -> None:
    if dtype not in _LIMITS:
        raise ValueError(f"quantized_decomposed: numbers are quantized to {', '.join(map(str, _LIMITS))}, got {dtype}")
    least, most = _LIMITS[dtype]
    if quant_min < least:
        raise AssertionError(f"quant_min out of bounds for dtype, quant_min_lower_bound: {least} quant_min: {quant_min}")
    if quant_max > most:
        raise AssertionError(f"quant_max out of bounds for dtype, quant_max_upper_bound: {most} quant_max: {quant_max}")


def _widened(input: Any) -> Any:
    """`input` as float32, which halves are quantized in. Raises: AssertionError for another dtype."""
    if input.dtype in (fb.float16, fb.bfloat16):
        return input.to(fb.float32)
    if input.dtype is not fb.float32:
        raise AssertionError(f"Expecting input to have dtype torch.float32, but got dtype: {input.dtype}")
    return input


def _quantized(input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any) -> Any:
    return fb.clamp(fb.round(input * (1.0 / scale)) + zero_point, quant_min, quant_max).to(dtype)


def _need_integers(input: Any, dtype: Any) -> None:
    if input.dtype is not dtype:
        raise AssertionError(f"Expecting input to have dtype: {dtype}, but got {input.dtype}")
    if dtype not in _LIMITS:
        raise ValueError(f"quantized_decomposed: no numbers are quantized to {dtype}")


def _need_one(**tensors: Any) -> None:
    for name, x in tensors.items():
        if x.numel() != 1:
            raise AssertionError(f"Expecting {name} tensor to be one element, but received : {x.numel()}")


# -- one scale ---------------------------------------------------------------------------------------------------------------


@_operator("quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor")
def quantize_per_tensor(input: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any) -> Any:
    """``clamp(round(input / scale) + zero_point, quant_min, quant_max)`` as `dtype`."""
    input = _widened(input)
    _check_range(quant_min, quant_max, dtype)
    return _quantized(input, scale, zero_point, quant_min, quant_max, dtype)


@_operator(
    "quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_tensor_tensor(input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any) -> Any:
    """`quantize_per_tensor` with a scale and a zero point that a program has computed, tensors of one element."""
    _need_one(zero_point=zero_point, scale=scale)
    input = _widened(input)
    _check_range(quant_min, quant_max, dtype)
    return _quantized(input, scale.to(fb.float32), zero_point, quant_min, quant_max, dtype)


@_operator(
    "quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype) "
    "-> Tensor"
)
def quantize_per_tensor_tensor2(input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any) -> Any:
    """`quantize_per_tensor` with a range that is tensors of one element, too."""
    return quantize_per_tensor_tensor(input, scale, zero_point, int(quant_min), int(quant_max), dtype)


@_operator(
    "dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, "
    "ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor(
    input: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Any:  # fmt: skip
    """``(input - zero_point) * scale`` as `out_dtype`, float32 by default."""
    _need_integers(input, dtype)
    return (input.to(out_dtype or fb.float32) - zero_point) * scale


@_operator(
    "dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, "
    "ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor_tensor(
    input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Any:  # fmt: skip
    """`dequantize_per_tensor` with a scale and a zero point that are tensors of one element."""
    _need_one(zero_point=zero_point, scale=scale)
    _need_integers(input, dtype)
    wanted = out_dtype or fb.float32
    return (input.to(wanted) - zero_point) * scale.to(wanted)


@_operator(
    "dequantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, "
    "*, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor_tensor2(
    input: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any, *, out_dtype: Any = None
) -> Any:  # fmt: skip
    """`dequantize_per_tensor` with a range that is tensors of one element, too."""
    return dequantize_per_tensor_tensor(input, scale, zero_point, int(quant_min), int(quant_max), dtype, out_dtype=out_dtype)


# -- a scale for each channel ------------------------------------------------------------------------------------------------


def _along(values: Any, ndim: int, axis: int) -> Any:
    """A vector as a tensor of `ndim` dimensions that runs along `axis`. Raises: AssertionError where there is no such dimension."""
    if axis >= ndim:
        raise AssertionError(f"Expecting axis to be < {ndim}")
    return values.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


@_operator(
    "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype) "
    "-> Tensor"
)
def quantize_per_channel(input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any) -> Any:
    """`quantize_per_tensor` with a scale and a zero point for each place along `axis`."""
    input = _widened(input)
    _check_range(quant_min, quant_max, dtype)
    scale, zero_point = _along(scales.to(fb.float32), input.ndim, axis), _along(zero_points, input.ndim, axis)
    return _quantized(input, scale, zero_point, quant_min, quant_max, dtype)


@_operator(
    "dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, "
    "*, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_channel(
    input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any, *, out_dtype: Any = None
) -> Any:  # fmt: skip
    """`dequantize_per_tensor` with a scale and a zero point for each place along `axis`; without `zero_points` they are 0."""
    _need_integers(input, dtype)
    made = input if zero_points is None else input - _along(zero_points, input.ndim, axis)
    return (made * _along(scales, input.ndim, axis)).to(out_dtype or fb.float32)


@_operator(
    "fake_quant_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max) -> Tensor"
)
def fake_quant_per_channel(input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    """`fake_quantize_per_channel_affine` of float32."""
    input = _widened(input)
    return fb.fake_quantize_per_channel_affine(input, scales.to(fb.float32), zero_points.to(fb.int32), axis, quant_min, quant_max)


# -- scales of what comes ----------------------------------------------------------------------------------------------------


@_operator("choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_tensor(input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    """The scale, float64, and the zero point, int64, each ``(1)``, that take the range of `input` to quant_min ... quant_max."""
    input = _widened(input)
    _check_range(quant_min, quant_max, dtype)
    least, most = fb.aminmax(input)
    least, most = least.clamp(max=0), most.clamp(min=0)
    scale = ((most - least) / float(quant_max - quant_min)).clamp(min=eps)
    zero_point = (quant_min - fb.round(least / scale)).clamp(quant_min, quant_max)
    return scale.to(fb.float64).reshape(1), zero_point.to(fb.int64).reshape(1)


@_operator(
    "choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)"
)
def choose_qparams_symmetric_tensor(input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    """As `choose_qparams.tensor`, for a range with 0 in its middle."""
    input = _widened(input)
    _check_range(quant_min, quant_max, dtype)
    most = fb.amax(fb.abs(input))
    scale = (most / (float(quant_max - quant_min) / 2)).clamp(min=eps)
    middle = (quant_max + quant_min + 1) // 2 if dtype is fb.uint8 else 0
    return scale.to(fb.float64).reshape(1), fb.full((1,), middle, dtype=fb.int64)


@_operator("choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_per_token(input: Any, dtype: Any) -> Any:
    """A scale and a zero point of 0 for each row of the last dimension, ``(*, D) -> (*, 1), (*, 1)``, of the dtype of `input`."""
    most = input.abs().amax(dim=-1, keepdim=True)
    if most.dtype is fb.float16:                      # which has no smaller numbers
        most = most.float()
    if dtype is not fb.int8:
        raise Exception(f"unsupported dtype in choose_qparams_per_token: {dtype}")
    scale = most.clamp(min=_EPSILON).div(127)
    return scale, fb.zeros_like(scale)


def _per_token_asymmetric(input: Any, dtype: Any) -> Any:
    quant_min, quant_max = -128, 127
    least = fb.amin(input, dim=-1, keepdim=True).clamp(max=0)
    most = fb.amax(input, dim=-1, keepdim=True).clamp(min=0)
    eps = fb.finfo(fb.float32).eps
    scale = ((most - least) / float(quant_max - quant_min)).clamp(min=eps)
    low, high = least / scale, most / scale
    # The zero point is taken from the end that is met more exactly.
    zero_point = fb.where((quant_min + low) + (quant_max + high) > 0, quant_min - low, quant_max - high)
    zero_point = fb.round(zero_point.clamp(quant_min, quant_max))
    return scale.to(fb.float64), zero_point.to(fb.int64)


@_operator("choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def choose_qparams_per_token_asymmetric(input: Any, dtype: Any) -> Any:
    """A scale, float64, and a zero point, int64, for each row of the last dimension: ``(*, D) -> (*, 1), (*, 1)``."""
    return _per_token_asymmetric(input, dtype)


@_operator("_choose_qparams_per_token_asymmetric_impl(Tensor input, ScalarType dtype) -> (Tensor, Tensor)")
def _choose_qparams_per_token_asymmetric_impl(input: Any, dtype: Any) -> Any:
    """`choose_qparams_per_token_asymmetric`, under the name that it is taken apart to."""
    return _per_token_asymmetric(input, dtype)


@_operator(
    "quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype) -> Tensor"
)
def quantize_per_token(input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any) -> Any:
    """`quantize_per_tensor` with a scale and a zero point for each row of the last dimension."""
    _check_range(quant_min, quant_max, dtype)
    return input.mul(1.0 / scales).add(zero_points).round().clamp(quant_min, quant_max).to(dtype)


@_operator(
    "dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, "
    "ScalarType output_dtype) -> Tensor"
)
def dequantize_per_token(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, output_dtype: Any = fb.float32
) -> Any:  # fmt: skip
    """`dequantize_per_tensor` with a scale and a zero point for each row of the last dimension."""
    return ((input - zero_points) * scales).to(output_dtype)


# -- a scale for each group of a row -----------------------------------------------------------------------------------------


def _groups(input: Any, group_size: int, scales: Any) -> Any:
    if input.ndim != 2 or group_size < 1 or input.shape[1] % group_size:
        raise AssertionError(f"groups of {group_size} divide the rows of a matrix, got shape {tuple(input.shape)}")
    if scales.numel() * group_size != input.numel():
        raise AssertionError(f"a scale for each group of {group_size} of {tuple(input.shape)} is wanted, got {tuple(scales.shape)}")
    return input.reshape(-1, group_size)


@_operator(
    "quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, "
    "int group_size) -> Tensor"
)
def quantize_per_channel_group(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, group_size: int = 128
) -> Any:  # fmt: skip
    """A matrix with a scale and a zero point for each `group_size` elements of a row: ``(R, C), (R, C / group_size) -> (R, C)``."""
    rows = _groups(input, group_size if group_size > 1 else input.shape[-1], scales)
    made = rows.mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round().clamp(quant_min, quant_max)
    return made.to(dtype).reshape(input.shape)


@_operator(
    "dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points, int quant_min, int quant_max, ScalarType dtype, "
    "int group_size, ScalarType output_dtype) -> Tensor"
)
def dequantize_per_channel_group(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: Any, group_size: int = 128,
    output_dtype: Any = fb.float32,
) -> Any:  # fmt: skip
    """The numbers of `quantize_per_channel_group`."""
    rows = _groups(input, group_size if group_size > 1 else input.shape[-1], scales)
    made = rows if zero_points is None else rows - zero_points.reshape(-1, 1)
    return made.mul(scales.reshape(-1, 1)).reshape(input.shape).to(output_dtype)


@_operator("convert_element_type.no_fuse(Tensor input, ScalarType dtype) -> Tensor")
def convert_element_type(input: Any, dtype: Any) -> Any:
    """`input` as `dtype`; compilers leave it where it stands."""
    return input.to(dtype)
