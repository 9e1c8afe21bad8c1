"""Linear layers whose weight, and whose inputs and results, are quantized."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import Linear as FloatLinear
from ....nn import Module
from ....nn.utils import fuse_linear_bn_weights
from ....ops._quantized.layers import quantized_as
from ....tensor import Tensor
from ... import nn as rooms
from ._base import WeightedQuantizedModule, observed_weight, output_scale, quantize_weight
from .functional import _linear

__all__ = ["Linear", "LinearPackedParams"]


class LinearPackedParams(Module):
    """The quantized weight and the bias of a linear layer, one entry of `state_dict`.

    Args:
        dtype: `qint8`, or `float16` for weights that are kept in half precision.
    """

    _version = 3

    def __init__(self, dtype: Any = fb.qint8) -> None:
        super().__init__()
        if dtype not in (fb.qint8, fb.float16):
            raise RuntimeError(f"Unsupported dtype {dtype} of a linear layer's weight: use qint8 or float16")
        self.dtype = dtype
        empty = fb.zeros(1, 1)
        self.set_weight_bias(empty.half() if dtype is fb.float16 else quantized_as(empty, 1.0, 0, fb.qint8), None)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Keep these two."""
        self.__dict__["_packed_params"] = (weight, bias)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        """The two that are kept."""
        return self.__dict__["_packed_params"]

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        for name in ("dtype", "_packed_params"):
            if prefix + name not in state_dict:
                missing_keys.append(prefix + name)
        if prefix + "_packed_params" in state_dict:
            self.dtype = state_dict.get(prefix + "dtype", self.dtype)
            self.set_weight_bias(*state_dict[prefix + "_packed_params"])

    def __repr__(self) -> str:
        return repr(self._weight_bias())


class Linear(WeightedQuantizedModule):
    """``x @ weight.T + bias`` of a quantized `x`, by sums of products of integers.

    Args:
        in_features, out_features: sizes of the last dimension of input and result.
        bias_: whether there is a bias.
        dtype: of the weight, `qint8`.

    >>> layer = fb.ao.nn.quantized.Linear(20, 30)
    >>> layer(fb.quantize_per_tensor(fb.randn(128, 20), 1.0, 0, fb.quint8)).shape
    torch.Size([128, 30])
    """

    _version = 3
    _relu = False

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = fb.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(dtype)
        empty = fb.zeros(out_features, in_features)
        weight = quantized_as(empty, 1.0, 0, fb.qint8) if dtype is fb.qint8 else empty.half()
        self._packed_params.set_weight_bias(weight, fb.zeros(out_features) if bias_ else None)
        self.scale, self.zero_point = 1.0, 0

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, zero_point={self.zero_point}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def forward(self, x: Tensor) -> Tensor:
        """The quantized result, with the module's scale and zero point."""
        weight, bias = self._weight_bias()
        return _linear(x, weight, bias, self.scale, self.zero_point, self._relu)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return self._packed_params._weight_bias()

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        self._packed_params.set_weight_bias(w, b)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized layer of an observed one.

        Args:
            mod: a linear layer, or one with a ReLU, with `qconfig` and `activation_post_process`, or one of `ao.nn.qat`.
            use_precomputed_fake_quant: take the weight's scale as the fake quantization has it, without looking at the weight again.
        Raises: AssertionError for another module, or one that is not observed.
        """
        linear = mod[0] if isinstance(mod, rooms.intrinsic.LinearReLU) else mod
        if isinstance(mod, rooms.intrinsic.LinearReLU):
            linear.qconfig, linear.activation_post_process = mod.qconfig, mod.activation_post_process
        if not isinstance(linear, FloatLinear) or not hasattr(linear, "qconfig"):
            raise AssertionError(f"nnq.{cls.__name__}.from_float: needs an observed Linear with a qconfig, got {type(mod).__name__}")
        weight, bias = linear.weight, linear.bias
        if isinstance(mod, rooms.intrinsic.qat.LinearBn1d):
            bn = mod.bn
            weight, bias = fuse_linear_bn_weights(weight, bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
        if not hasattr(linear, "activation_post_process"):
            raise AssertionError(f"nnq.{cls.__name__}.from_float: Input mod must have an observer of its results, activation_post_process")
        observer = linear.weight_fake_quant if use_precomputed_fake_quant else observed_weight(linear, weight)
        made = cls(linear.in_features, linear.out_features, dtype=_kind(observer))
        made.set_weight_bias(quantize_weight(weight, observer), bias)
        made.scale, made.zero_point = output_scale(linear.activation_post_process)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any, output_scale: float, output_zero_point: int) -> Any:
        """The quantized layer of a reference one, which has `get_quantized_weight`, with the scale of its results."""
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made


def _kind(observer: Any) -> Any:
    if observer.dtype is not fb.qint8:
        raise AssertionError(f"Weight observer must have dtype torch.qint8, got {observer.dtype}")
    return fb.qint8

