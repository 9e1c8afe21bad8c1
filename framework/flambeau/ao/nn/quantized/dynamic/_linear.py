"""Linear layers whose inputs are quantized when they run."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .....nn import functional as F
from .....ops._quantized.arrays import Quantizer, quantize
from .....ops._quantized.layers import summed
from .....ops._quantized.ranges import fitting
from .....tensor import Tensor
from .... import nn as rooms
from .._base import observed_weight, quantize_weight
from .._linear import Linear as StaticLinear

__all__ = ["Linear", "quantized_input", "weighted"]


def quantized_input(x: Tensor, reduce_range: bool = True) -> Tensor:
    """`x` in quint8, with a scale for the range of its numbers, and half of the integers where `reduce_range`."""
    low, high = (0.0, 0.0) if x.numel() == 0 else (t.item() for t in fb.aminmax(x.detach()))
    scale, zero = fitting(low, high, 0, 127 if reduce_range else 255)
    return quantize(x.detach().float(), fb.quint8, Quantizer(float(scale), int(zero)))


def weighted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.T + bias`` in float32: `x` quantized, by sums of products of integers; a weight in float16 as numbers."""
    if weight.dtype is fb.float16:
        return F.linear(x, weight.float(), bias)
    made = summed(quantized_input(x), weight, F.linear, weight.shape[-1], -1)
    return made if bias is None else made + bias.detach()


class Linear(StaticLinear):
    """``x @ weight.T + bias`` of a dense `x` that is quantized when the layer runs; the result is dense.

    Args:
        in_features, out_features: sizes of the last dimension of input and result.
        bias_: whether there is a bias.
        dtype: of the weight: `qint8`, or `float16`, whose numbers are computed with.

    >>> fb.ao.nn.quantized.dynamic.Linear(20, 30)(fb.randn(128, 20)).shape
    torch.Size([128, 30])
    """

    _version = 4

    def forward(self, x: Tensor) -> Tensor:
        """The dense result."""
        weight, bias = self._weight_bias()
        made = weighted(x, weight, bias)
        return F.relu(made) if self._relu else made

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        parts = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        return parts + (f", qscheme={self.weight().qscheme()}" if self._packed_params.dtype is fb.qint8 else "")

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one with a `qconfig`.

        Args:
            mod: a linear layer, or one with a ReLU.
        Raises: AssertionError for another module; RuntimeError for a weight that is neither qint8 nor float16.
        """
        linear = mod[0] if isinstance(mod, rooms.intrinsic.LinearReLU) else mod
        if not isinstance(linear, fb.nn.Linear):
            raise AssertionError(f"nn.quantized.dynamic.{cls.__name__}.from_float only works for Linear, got {type(mod).__name__}")
        config = getattr(mod, "qconfig", None)
        if config is None:
            raise AssertionError("Input float module must have qconfig defined")
        if config.weight is None:
            config = _default_config()
        linear.qconfig = config
        observer = observed_weight(linear, linear.weight) if config.weight().dtype is not fb.float16 else config.weight()
        made = cls(linear.in_features, linear.out_features, dtype=observer.dtype)
        if observer.dtype is fb.qint8:
            made.set_weight_bias(quantize_weight(linear.weight, observer), linear.bias)
        elif observer.dtype is fb.float16:
            made.set_weight_bias(linear.weight.detach().half(), linear.bias)
        else:
            raise RuntimeError(f"Unsupported dtype specified for dynamic quantized Linear: {observer.dtype}; use qint8 or float16")
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The layer of a reference one, which has `get_quantized_weight`."""
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features, dtype=ref_qlinear.weight_dtype)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        return made


def _default_config() -> Any:
    """The QConfig of dynamic quantization where none is given."""
    from ....quantization.qconfig import default_dynamic_qconfig

    return default_dynamic_qconfig
