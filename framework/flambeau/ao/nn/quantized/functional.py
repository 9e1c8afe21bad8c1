"""Functions on quantized tensors; each raises NotImplementedError, as PyTorch does, for a tensor that is not quantized."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....nn import functional as F
from ....ops._quantized.layers import computed, contracted, need_quantized
from ....tensor import Tensor

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "celu", "clamp", "conv1d", "conv2d", "conv3d", "elu",
    "hardsigmoid", "hardswish", "hardtanh", "interpolate", "leaky_relu", "linear", "max_pool1d", "max_pool2d", "threshold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, scale: float | None = None, zero_point: int | None = None) -> Tensor:
    """``input @ weight.T + bias``, computed with integers.

    Args:
        input: quantized, ``(*, in_features)``.
        weight: quantized in qint8, ``(out_features, in_features)``, with one scale or one for each output.
        bias: dense, ``(out_features,)``.
        scale, zero_point: of the result; those of `input` by default.

    >>> x = fb.quantize_per_tensor(fb.tensor([[1.0, 2.0]]), 0.1, 0, fb.quint8)
    >>> w = fb.quantize_per_tensor(fb.tensor([[0.5, -0.5]]), 0.01, 0, fb.qint8)
    >>> fb.ao.nn.quantized.functional.linear(x, w, None, 0.1, 20).dequantize()
    tensor([[-0.5000]])
    """
    need_quantized("linear", input=input)
    return _linear(
        input, weight, bias, input.q_scale() if scale is None else scale, input.q_zero_point() if zero_point is None else zero_point
    )


def _linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, scale: float, zero_point: int, relu: bool = False, dtype: Any = fb.quint8
) -> Tensor:
    kind = input.dtype if dtype is None else dtype
    return contracted("linear", input, weight, bias, float(scale), int(zero_point), F.linear, weight.shape[-1], -1, 0, kind, relu)


def conv_sums(
    function: Callable[..., Tensor], spatial: int, options: dict[str, Any], padding: Any = 0, padding_mode: str = "zeros"
) -> Callable[[Tensor, Tensor], Tensor]:
    """The function of integers and a weight's integers, both less their zero points, that gives the sums of a convolution.

    Padding is by numbers that are 0, integers less their zero point, so it is that of dense tensors.
    """
    reach = [padding] * spatial if isinstance(padding, int) else list(padding)

    def sums(x: Tensor, w: Tensor) -> Tensor:
        if padding_mode != "zeros":
            x = F.pad(x, [p for p in reversed(reach) for _ in range(2)], mode=padding_mode)
            return function(x, w, None, padding=0, **options)
        return function(x, w, None, padding=reach, **options)

    return sums


def products_in_sum(weight: Tensor, transposed: bool) -> int:
    """How many products a sum of a convolution with `weight` has."""
    return weight.numel() // weight.shape[1 if transposed else 0]


def _conv(
    operator: str, function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, scale: float, zero_point: int,
    options: dict[str, Any], padding: Any = 0, dtype: Any = fb.quint8,
) -> Tensor:  # fmt: skip
    """A convolution with integers."""
    spatial = weight.ndim - 2
    sums = conv_sums(function, spatial, options, padding)
    terms = products_in_sum(weight, False)
    return contracted(operator, input, weight, bias, float(scale), int(zero_point), sums, terms, -1 - spatial, 0, dtype)


def _check_conv(operator: str, dims: int, input: Tensor, weight: Tensor, padding_mode: str) -> None:
    need_quantized(operator, input=input, weight=weight)
    if padding_mode != "zeros":
        raise NotImplementedError(f"Only zero-padding is supported! Got padding_mode={padding_mode!r}")
    if input.dtype is not fb.quint8:
        raise NotImplementedError(f"Only torch.quint8 is supported for activation tensor! Got {input.dtype}")
    if weight.dtype is not fb.qint8:
        raise NotImplementedError(f"Only torch.qint8 is supported for weight tensor! Got {weight.dtype}")
    if input.ndim != dims + 2:
        raise ValueError(f"Input shape must be `(N, C, {', '.join('DHW'[-dims:]) if dims > 1 else 'L'})`! Got {tuple(input.shape)}")


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = fb.quint8,
) -> Tensor:  # fmt: skip
    """A convolution of quint8 with a weight in qint8; see `nn.functional.conv1d`.

    Args:
        padding_mode: "zeros", the only one there is.
        scale, zero_point: of the result.
    Raises: NotImplementedError for other dtypes or paddings; ValueError for a wrong number of dimensions.
    """
    _check_conv("conv1d", 1, input, weight, padding_mode)
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return _conv("conv1d", F.conv1d, input, weight, bias, scale, zero_point, options, padding, dtype=dtype)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = fb.quint8,
) -> Tensor:  # fmt: skip
    """A convolution over two dimensions; see `conv1d`."""
    _check_conv("conv2d", 2, input, weight, padding_mode)
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return _conv("conv2d", F.conv2d, input, weight, bias, scale, zero_point, options, padding, dtype=dtype)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = fb.quint8,
) -> Tensor:  # fmt: skip
    """A convolution over three dimensions; see `conv1d`."""
    _check_conv("conv3d", 3, input, weight, padding_mode)
    options = {"stride": stride, "dilation": dilation, "groups": groups}
    return _conv("conv3d", F.conv3d, input, weight, bias, scale, zero_point, options, padding, dtype=dtype)


# -- pools ------------------------------------------------------------------------------------------------------------------


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Means of windows, quantized as `input` is; see `nn.functional.avg_pool2d`."""
    return computed(
        "avg_pool2d", lambda x: F.avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), [input]
    )


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Means of windows over three dimensions; see `avg_pool2d`."""
    return computed(
        "avg_pool3d", lambda x: F.avg_pool3d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override), [input]
    )


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as `output_size` says, quantized as `input` is."""
    return computed("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, output_size), [input])


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows over three dimensions as `output_size` says, quantized as `input` is."""
    return computed("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, output_size), [input])


def _no_indices(operator: str, return_indices: bool) -> None:
    if return_indices:
        raise NotImplementedError(f"quantized {operator}: return_indices is not yet implemented")


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Largest numbers of windows, quantized as `input` is; see `nn.functional.max_pool1d`."""
    _no_indices("max_pool1d", return_indices)
    return computed("max_pool1d", lambda x: F.max_pool1d(x, kernel_size, stride, padding, dilation, ceil_mode), [input])


def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:  # fmt: skip
    """Largest numbers of windows over two dimensions; see `max_pool1d`."""
    _no_indices("max_pool2d", return_indices)
    return computed("max_pool2d", lambda x: F.max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode), [input])


# -- resampling -------------------------------------------------------------------------------------------------------------


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`input` in another size, quantized as it is; see `nn.functional.interpolate`."""
    return computed("interpolate", lambda x: F.interpolate(x, size, scale_factor, mode, align_corners), [input])


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None) -> Tensor:
    """An older word for `interpolate`."""
    warnings.warn("nn.quantized.functional.upsample is deprecated. Use nn.quantized.functional.interpolate instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """An older word for ``interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)``."""
    warnings.warn("nn.quantized.functional.upsample_bilinear is deprecated. Use nn.quantized.functional.interpolate instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """An older word for ``interpolate(input, size, scale_factor, mode="nearest")``."""
    warnings.warn("nn.quantized.functional.upsample_nearest is deprecated. Use nn.quantized.functional.interpolate instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


# -- activations ------------------------------------------------------------------------------------------------------------


def hardswish(input: Tensor, scale: float, zero_point: int) -> Tensor:
    """`nn.functional.hardswish`, quantized with `scale` and `zero_point`."""
    return computed("hardswish", F.hardswish, [input], scale, zero_point)


def elu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Tensor:
    """`nn.functional.elu` with `alpha`, quantized with `scale` and `zero_point`."""
    return computed("elu", lambda x: F.elu(x, alpha), [input], scale, zero_point)


def celu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Tensor:
    """`nn.functional.celu` with `alpha`, quantized with `scale` and `zero_point`."""
    return computed("celu", lambda x: F.celu(x, alpha), [input], scale, zero_point)


def leaky_relu(
    input: Tensor, negative_slope: float = 0.01, inplace: bool = False, scale: float | None = None, zero_point: int | None = None
) -> Tensor:
    """`nn.functional.leaky_relu`, quantized with `scale` and `zero_point`, both given, or as `input` is.

    Args:
        negative_slope: the factor below 0.
        inplace: store in `input`, whose scale stays.
    """
    if scale is not None and zero_point is not None:
        if inplace:
            raise AssertionError("Cannot rescale with `inplace`: leave scale and zero_point out")
        return computed("leaky_relu", lambda x: F.leaky_relu(x, negative_slope), [input], scale, zero_point)
    made = computed("leaky_relu", lambda x: F.leaky_relu(x, negative_slope), [input])
    return input.copy_(made) if inplace else made


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Numbers kept between `min_val` and `max_val`, quantized as `input` is."""
    made = computed("hardtanh", lambda x: F.hardtanh(x, min_val, max_val), [input])
    return input.copy_(made) if inplace else made


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """`nn.functional.hardsigmoid`, quantized in steps of 1/256 from 0."""
    need_quantized("hardsigmoid", input=input)
    zero = {fb.quint8: 0, fb.qint8: -128}.get(input.dtype, 0)
    made = computed("hardsigmoid", F.hardsigmoid, [input], 1 / 256, zero)
    return input.copy_(made) if inplace else made


def clamp(input: Tensor, min_: float, max_: float) -> Tensor:
    """Numbers kept between `min_` and `max_`, quantized as `input` is."""
    return computed("clamp", lambda x: x.clamp(min_, max_), [input])


def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """`value` in place of numbers up to `threshold`, quantized as `input` is.

    Raises: ValueError for a threshold or a value of None.
    """
    need_quantized("threshold", input=input)
    for name, given in (("threshold", threshold), ("value", value)):
        if given is None:
            raise ValueError(f"Input to 'threshold' must be specified! Got {name}=None")
    return computed("threshold", lambda x: F.threshold(x, threshold, value), [input])
