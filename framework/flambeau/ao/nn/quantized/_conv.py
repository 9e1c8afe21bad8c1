"""Convolutions whose weight, and whose inputs and results, are quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....nn import functional as F
from ....nn import modules as float_modules
from ....nn.modules.utils import _pair, _single, _triple
from ....nn.utils import fuse_conv_bn_weights
from ....ops._quantized.layers import contracted
from ....tensor import Tensor
from ... import nn as rooms
from ._base import WeightedQuantizedModule, observed_weight, output_scale, quantize_weight
from .functional import conv_sums, products_in_sum

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvNd(WeightedQuantizedModule):
    """The base of quantized convolutions; see `nn.ConvTranspose2d` for the arguments."""

    operator = ""
    function: Callable[..., Tensor]
    _tuple: Any
    float_class: Any
    transposed = False
    _relu = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None, *,
        output_padding: Any = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode not in ("zeros", "reflect") or padding_mode == "reflect" and self.transposed:
            raise NotImplementedError(f"'padding_mode' {padding_mode} is not supported by quantized convolution")
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"in_channels {in_channels} and out_channels {out_channels} must be divisible by groups {groups}")
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        many = type(self)._tuple
        self.kernel_size, self.stride, self.dilation = many(kernel_size), many(stride), many(dilation)
        self.padding = padding if isinstance(padding, str) else many(padding)
        self.output_padding = many(output_padding)
        shape = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        weight = fb.quantize_per_tensor(fb.zeros(*shape, *self.kernel_size), 1.0, 0, fb.qint8)
        self.set_weight_bias(weight, fb.zeros(out_channels) if bias else None)
        self.scale, self.zero_point = 1.0, 0

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        self.__dict__["_kept"] = (w, b)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return self.__dict__["_kept"]

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        ]
        plain = (0,) * len(self.kernel_size)
        for name, default in (("padding", plain), ("dilation", (1,) * len(plain)), ("output_padding", plain), ("groups", 1)):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        if self.bias() is None:
            parts.append("bias=False")
        return ", ".join(parts)

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result, with the module's scale and zero point."""
        self._check_input(input)
        weight, bias = self._weight_bias()
        return contracted(
            self.operator, input, weight, bias, float(self.scale), int(self.zero_point), self._sums(), self._terms(),
            -1 - len(self.kernel_size), relu=self._relu,
        )  # fmt: skip

    def _check_input(self, input: Tensor) -> None:
        spatial = len(self.kernel_size)
        if input.ndim != spatial + 2:
            sizes = "L" if spatial == 1 else ", ".join("DHW"[-spatial:])
            raise ValueError(f"Input shape must be `(N, C, {sizes})`! Got {tuple(input.shape)}")

    def _sums(self) -> Callable[[Tensor, Tensor], Tensor]:
        options: dict[str, Any] = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        if self.transposed:
            options["output_padding"] = self.output_padding
        return conv_sums(type(self).function, len(self.kernel_size), options, self.padding, self.padding_mode)

    def _terms(self) -> int:
        return products_in_sum(self._weight_bias()[0], self.transposed)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        weight, bias = self._weight_bias()
        destination[prefix + "weight"], destination[prefix + "bias"] = weight, bias
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _own_keys(self) -> tuple[str, ...]:
        return "weight", "bias"

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        found = [prefix + name for name in self._own_keys() if prefix + name in state_dict]
        missing_keys.extend(prefix + name for name in self._own_keys() if prefix + name not in state_dict)
        if len(found) == 2:
            self.set_weight_bias(*(state_dict[name] for name in found))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    @classmethod
    def _of(cls, conv: Any, weight: Tensor, bias: Tensor | None, observer: Any, results: Any) -> Any:
        if observer.dtype is not fb.qint8:
            raise AssertionError(f"Weight observer must have a dtype of qint8, got {observer.dtype}")
        made = cls._like(conv)
        made.set_weight_bias(quantize_weight(weight, observer), bias)
        if results is not None and not isinstance(results, float_modules.Identity):
            made.scale, made.zero_point = output_scale(results)
        return made

    @classmethod
    def _like(cls, conv: Any) -> Any:
        return cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups,
            conv.bias is not None, conv.padding_mode,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized convolution of an observed one.

        Args:
            mod: a convolution of `torch.nn`, alone or with what `ao.nn.intrinsic` joins, with `qconfig` and
                `activation_post_process`; or one of `ao.nn.qat`.
            use_precomputed_fake_quant: take the weight's scale as the fake quantization has it, without looking at the weight again.
        Raises: AssertionError for another module, or one that is not observed.
        """
        results = getattr(mod, "activation_post_process", None)
        conv = mod[0] if isinstance(mod, rooms.intrinsic._FusedModule) and not hasattr(mod, "weight_fake_quant") else mod
        if not isinstance(conv, cls.float_class):
            raise AssertionError(f"nnq.{cls.__name__}.from_float only works for {cls.float_class.__name__}, got {type(mod).__name__}")
        config = getattr(mod, "qconfig", getattr(conv, "qconfig", None))
        if config is None:
            raise AssertionError(f"nnq.{cls.__name__}.from_float: Input float module must have qconfig defined.")
        conv.qconfig = config
        weight, bias = conv.weight, conv.bias
        if hasattr(conv, "bn"):                       # of quantization aware training
            bn = conv.bn
            weight, bias = fuse_conv_bn_weights(weight, bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
        observer = conv.weight_fake_quant if use_precomputed_fake_quant else observed_weight(conv, weight)
        return cls._of(conv, weight, bias, observer, results)

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: float, output_zero_point: int) -> Any:
        """The quantized convolution of a reference one, which has `get_quantized_weight`, with the scale of its results."""
        made = cls._like(ref_qconv)
        made.set_weight_bias(ref_qconv.get_quantized_weight(), ref_qconv.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made


class Conv1d(_ConvNd):
    """A convolution of quint8, ``(N, C, L)``, by sums of products of integers; see `nn.Conv1d`.

    >>> layer = fb.ao.nn.quantized.Conv1d(16, 33, 3, stride=2)
    >>> layer(fb.quantize_per_tensor(fb.randn(2, 16, 10), 1.0, 0, fb.quint8)).shape
    torch.Size([2, 33, 4])
    """

    operator = "conv1d"
    function = staticmethod(F.conv1d)
    _tuple = staticmethod(_single)
    float_class = float_modules.Conv1d


class Conv2d(_ConvNd):
    """A convolution of quint8, ``(N, C, H, W)``; see `Conv1d`."""

    operator = "conv2d"
    function = staticmethod(F.conv2d)
    _tuple = staticmethod(_pair)
    float_class = float_modules.Conv2d


class Conv3d(_ConvNd):
    """A convolution of quint8, ``(N, C, D, H, W)``; see `Conv1d`."""

    operator = "conv3d"
    function = staticmethod(F.conv3d)
    _tuple = staticmethod(_triple)
    float_class = float_modules.Conv3d


class _ConvTransposeNd(_ConvNd):
    """The base of transposed ones."""

    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, output_padding=output_padding
        )

    @classmethod
    def _like(cls, conv: Any) -> Any:
        return cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.output_padding, conv.groups,
            conv.bias is not None, conv.dilation, conv.padding_mode,
        )  # fmt: skip


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution of quint8; see `nn.ConvTranspose1d`. The weight has one scale."""

    operator = "conv_transpose1d"
    function = staticmethod(F.conv_transpose1d)
    _tuple = staticmethod(_single)
    float_class = float_modules.ConvTranspose1d


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution of quint8; see `nn.ConvTranspose2d`. The weight has one scale."""

    operator = "conv_transpose2d"
    function = staticmethod(F.conv_transpose2d)
    _tuple = staticmethod(_pair)
    float_class = float_modules.ConvTranspose2d


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution of quint8; see `nn.ConvTranspose3d`. The weight has one scale."""

    operator = "conv_transpose3d"
    function = staticmethod(F.conv_transpose3d)
    _tuple = staticmethod(_triple)
    float_class = float_modules.ConvTranspose3d
