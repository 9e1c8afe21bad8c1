"""Layers on quantized tensors: sums of products of integers, brought to the scale of the result.

Sums are computed in float32 or float64, whichever holds all of them exactly, so they are those of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Tensor, wrap
from .arrays import INTEGERS, QuantizedArray, Quantizer, is_quantized, quantize

__all__ = ["computed", "contracted", "need_quantized", "quantized_as", "summed"]

# Up to here float32 has all integers, and a product of two bytes is at most this.
_EXACT = 1 << 24
_LARGEST_PRODUCT = 255 * 255


def need_quantized(operator: str, **operands: Any) -> None:
    """Raise NotImplementedError, as PyTorch does, for an operand that is no quantized tensor."""
    for name, x in operands.items():
        if not is_quantized(x):
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise NotImplementedError(
                f"Could not run 'quantized::{operator}' with arguments from the 'CPU' backend: {name} is {kind}, not quantized. Use a "
                "torch.ao.quantization.QuantStub, or quantize_per_tensor, before it"
            )


def contracted(
    operator: str, input: Tensor, weight: Tensor, bias: Tensor | None, scale: float, zero_point: int,
    sums: Callable[[Tensor, Tensor], Tensor], terms: int, channel: int, out_channels: int = 0, dtype: Any = dtypes.quint8,
    relu: bool = False,
) -> Tensor:  # fmt: skip
    """A layer whose results are sums of products of `input` and `weight`, quantized with `scale` and `zero_point`.

    Args:
        operator: the layer's name, for messages.
        sums: of the integers less their zero points, both dense: the sums.
        terms: how many products a sum has.
        channel: the dimension of the results that has a bias and, if `weight` has one for each channel, a scale for each index.
        out_channels: which dimension of `weight` has the channels.
        relu: nothing below 0.
    """
    need_quantized(operator, input=input, weight=weight)
    axis = weight._array.quantizer.axis
    if axis is not None and axis != out_channels:
        raise RuntimeError(f"quantized::{operator}: the weight must have its scales along dimension {out_channels}, not {axis}")
    total, factor, shape = _sums(input, weight, sums, terms, channel)
    if bias is not None:
        total = total + bias.detach()._array.astype(np.float32).reshape(shape) / factor
    return _stored(total * (factor / np.float32(scale)), scale, zero_point, dtype, relu)


def summed(input: Tensor, weight: Tensor, sums: Callable[[Tensor, Tensor], Tensor], terms: int, channel: int) -> Tensor:
    """The numbers of sums of products of `input` and `weight`, both quantized, in float32; see `contracted` for the arguments."""
    total, factor, _ = _sums(input, weight, sums, terms, channel)
    return wrap(np.asarray(total * factor))


def _sums(input: Tensor, weight: Tensor, sums: Any, terms: int, channel: int) -> tuple[Any, Any, list[int]]:
    """Sums of products of integers, in float32, the factor for each channel that makes numbers of them, and the shape of a channel's."""
    x: Any = input._array
    w: Any = weight._array
    kind = np.float32 if terms * _LARGEST_PRODUCT < _EXACT else np.float64
    total = sums(_centred(x, kind), _centred(w, kind))._array.astype(np.float32, copy=False)
    shape = [1] * total.ndim
    shape[channel] = -1
    factor = np.asarray(np.float32(x.quantizer.scale) * np.asarray(w.quantizer.scale, np.float32))
    return total, factor if w.quantizer.axis is None else factor.reshape(shape), shape


def _centred(array: Any, kind: Any) -> Tensor:
    """The integers less their zero points."""
    integers = array.integers._array.astype(kind)
    q = array.quantizer
    zero = q.zero_point if q.axis is None else q.along(integers.ndim)[1]
    return wrap(integers - np.asarray(zero, kind))


def _stored(steps: Any, scale: float, zero_point: int, dtype: Any, relu: bool) -> Tensor:
    """Numbers of steps from 0, as a quantized tensor."""
    plain = INTEGERS[dtype]
    limits = np.iinfo(plain.numpy)
    low = max(limits.min, zero_point) if relu else limits.min
    integers = np.clip(np.rint(steps) + zero_point, low, limits.max)
    return wrap(QuantizedArray(wrap(np.asarray(integers.astype(plain.numpy))), dtype, Quantizer(float(scale), int(zero_point))))


def quantized_as(numbers: Tensor, scale: float, zero_point: int, dtype: Any) -> Tensor:
    """The dense `numbers` quantized with one scale."""
    return quantize(numbers.detach(), dtype, Quantizer(float(scale), int(zero_point)))


def computed(
    operator: str, function: Callable[..., Tensor], operands: Sequence[Tensor], scale: float | None = None, zero_point: int | None = None
) -> Tensor:
    """What `function` makes of the numbers of quantized `operands`, quantized as the first of them or with what is given."""
    need_quantized(operator, **{f"operand {i}": x for i, x in enumerate(operands)})
    first: Any = operands[0]._array
    made = function(*(x._array.numbers() for x in operands))
    if scale is None and zero_point is None:
        return quantize(made, first.type, first.quantizer)
    own = first.quantizer
    return quantized_as(made, own.scale if scale is None else scale, own.zero_point if zero_point is None else zero_point, first.type)
