"""What quantized modules share: their scale and zero point, and how their weights are quantized."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import Module
from ....tensor import Tensor

__all__ = ["ScaledModule", "WeightedQuantizedModule", "output_scale", "quantize_weight"]


def quantize_weight(weight: Tensor, observer: Any) -> Tensor:
    """`weight` quantized as `observer`, which has seen it, says.

    Raises: ValueError for a scheme that weights do not have.
    """
    scale, zero = observer.calculate_qparams()
    numbers = weight.detach().float()
    if observer.qscheme in (fb.per_tensor_affine, fb.per_tensor_symmetric):
        return fb.quantize_per_tensor(numbers, float(scale), int(zero), fb.qint8)
    if observer.qscheme is fb.per_channel_affine_float_qparams:
        kind = observer.dtype
        return fb.quantize_per_channel(numbers, scale.to(fb.float), zero.to(fb.float), observer.ch_axis, kind)
    if observer.qscheme in (fb.per_channel_symmetric, fb.per_channel_affine):
        return fb.quantize_per_channel(numbers, scale.to(fb.double), zero.to(fb.int64), observer.ch_axis, fb.qint8)
    raise ValueError(f"Unexpected qscheme {observer.qscheme} of a weight")


def observed_weight(mod: Any, weight: Tensor) -> Any:
    """The observer of the weight of `mod`, having seen it: that of its fake quantization, or a new one of its qconfig."""
    observer = getattr(mod, "weight_fake_quant", None)
    if observer is None:
        observer = mod.qconfig.weight()
        observer(weight)
    elif hasattr(observer, "activation_post_process"):
        observer(weight)
    return observer


def output_scale(observer: Any) -> tuple[float, int]:
    """The scale and zero point of what `observer` saw, as Python numbers."""
    scale, zero = observer.calculate_qparams()
    return float(scale), int(zero)


class ScaledModule(Module):
    """A module whose results have a scale and a zero point, Python numbers that `state_dict` keeps as tensors."""

    scale: float
    zero_point: int

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = fb.tensor(self.scale)
        destination[prefix + "zero_point"] = fb.tensor(self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, name, kind(state_dict[prefix + name]))
            elif strict:
                missing_keys.append(prefix + name)
        own = {prefix + name for name in (*self._own_keys(), "scale", "zero_point")}
        rest = {name: value for name, value in state_dict.items() if name not in own}
        super()._load_from_state_dict(rest, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs)

    def _own_keys(self) -> tuple[str, ...]:
        """Entries of `state_dict` that the class reads itself."""
        return ()


class WeightedQuantizedModule(ScaledModule):
    """A `ScaledModule` with a quantized weight."""

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        """The quantized weight and the dense bias."""
        raise NotImplementedError(f"{type(self).__name__} has no weight")

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Give the module a quantized weight and a dense bias, or None."""
        raise NotImplementedError(f"{type(self).__name__} has no weight")

    def weight(self) -> Tensor:
        """The quantized weight."""
        return self._weight_bias()[0]

    def bias(self) -> Tensor | None:
        """The dense bias, or None."""
        return self._weight_bias()[1]
