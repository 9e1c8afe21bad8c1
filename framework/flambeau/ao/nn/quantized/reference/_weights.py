"""Weights of reference layers, quantized by what a layer has been told about them."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .....ops._quantized.layers import quantized_as
from .....tensor import Tensor

__all__ = ["PER_CHANNEL", "dequantized", "quantized_weight"]

PER_CHANNEL = (fb.per_channel_affine, fb.per_channel_affine_float_qparams)


def quantized_weight(weight: Tensor, qscheme: Any, dtype: Any, scale: Any, zero_point: Any, axis: int) -> Tensor:
    """`weight` quantized; in float16 where that is the dtype."""
    dense = weight.detach()
    if dtype is fb.float16:
        return dense.to(fb.float16)
    if qscheme not in (*PER_CHANNEL, fb.per_channel_symmetric):
        return quantized_as(dense, float(scale), int(zero_point), dtype)
    zero = zero_point if qscheme is fb.per_channel_affine_float_qparams else zero_point.to(fb.int64)
    return fb.quantize_per_channel(dense, scale.to(fb.float), zero, axis, dtype)


def dequantized(quantized: Tensor) -> Tensor:
    """The numbers of a quantized weight, or one in float16, in float32."""
    return quantized.dequantize() if quantized.is_quantized else quantized.to(fb.float)
