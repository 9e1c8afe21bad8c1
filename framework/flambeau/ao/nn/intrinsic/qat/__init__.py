"""Joined layers for quantization aware training: the weight is rounded as it will be once the normalization is folded into it."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .....nn import functional as F
from .....nn import modules as float_modules
from .....nn.utils import fuse_conv_bn_weights, fuse_linear_bn_weights
from .....tensor import Tensor
from ... import intrinsic, qat
from ...qat import _Trained, need_qconfig
from .. import _FusedModule

__all__ = [
    "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d",
    "LinearBn1d", "LinearReLU", "freeze_bn_stats", "update_bn_stats",
]  # fmt: skip


class _WithBatchNorm:
    """What layers with a normalization share: `bn`, whose statistics can be frozen."""

    bn: Any
    training: bool
    freeze_bn: bool

    def _freeze(self: Any, frozen: bool) -> None:
        if self.training and frozen:
            self.freeze_bn_stats()
        elif self.training:
            self.update_bn_stats()
        else:
            self.freeze_bn_stats()

    def reset_running_stats(self) -> None:
        """Forget the statistics."""
        self.bn.reset_running_stats()

    def update_bn_stats(self: Any) -> Any:
        """Normalize by each batch and follow its statistics."""
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self: Any) -> Any:
        """Normalize by the statistics as they are."""
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self: Any, mode: bool = True) -> Any:
        """Switch training on or off; frozen statistics stay so."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self

    def _normalized(self: Any, raw: Any, shape: list[int]) -> Tensor:
        """``bn`` of the layer's result: the rounded weight is that with the normalization folded in, undone before `bn` itself."""
        factor = self.bn.weight / fb.sqrt(self.bn.running_var + self.bn.eps)
        along = [1] * self.weight.ndim
        along[0] = -1
        rounded = self.weight_fake_quant(self.weight * factor.reshape(along))
        result = raw(rounded) / factor.reshape(shape)
        if self.bias is not None:
            result = result + self.bias.reshape(shape)
        return self.bn(result)


class _ConvBn(_WithBatchNorm):
    float_class: Any                                  # the layers of `intrinsic` that it is made from
    conv_class: Any
    bn_class: Any
    relu = False

    def __init__(
        self: Any, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: Any = None, padding_mode: str = "zeros", eps: float = 1e-05, momentum: float = 0.1,
        freeze_bn: bool = False, qconfig: Any = None,
    ) -> None:  # fmt: skip
        self.conv_class.__init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bool(bias), padding_mode)
        self.qconfig = need_qconfig(type(self).__name__, qconfig)
        self.freeze_bn = freeze_bn if self.training else True
        self.bn = self.bn_class(out_channels, eps, momentum, True, True)
        self.weight_fake_quant = qconfig.weight()
        self._freeze(freeze_bn)

    def forward(self: Any, input: Tensor) -> Tensor:
        """The normalized convolution, as the folded one with integers will be."""
        shape = [1] * (self.weight.ndim)
        shape[1] = -1
        made = self._normalized(lambda weight: self._conv_forward(input, weight, None), shape)
        return F.relu(made) if self.relu else made

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of joined ones of `intrinsic`, whose parameters it takes. Raises: AssertionError for others."""
        if type(mod) is not cls.float_class:
            raise AssertionError(f"qat.{cls.__name__}.from_float only works for {cls.float_class.__name__}, got {type(mod).__name__}")
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have a valid qconfig")
        conv, bn = mod[0], mod[1]
        made = cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups,
            conv.bias is not None, conv.padding_mode, bn.eps, bn.momentum, False, mod.qconfig,
        )  # fmt: skip
        made.weight, made.bias = conv.weight, conv.bias
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made.bn, name, getattr(bn, name))
        return made

    def to_float(self: Any) -> Any:
        """The convolution with the normalization folded in, and its ReLU."""
        conv = self.conv_class(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding, self.dilation, self.groups, True,
            self.padding_mode,
        )  # fmt: skip
        bn = self.bn
        conv.weight, conv.bias = fuse_conv_bn_weights(self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
        if not self.relu:
            return conv
        kinds = {1: intrinsic.ConvReLU1d, 2: intrinsic.ConvReLU2d, 3: intrinsic.ConvReLU3d}
        joined = kinds[len(self.kernel_size)](conv, float_modules.ReLU())
        joined.train(self.training)
        return joined


class ConvBn1d(_ConvBn, float_modules.Conv1d, _FusedModule):
    """A `Conv1d` and a `BatchNorm1d` with a fake quantization of the folded weight.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: of the convolution.
        eps, momentum: of the normalization.
        freeze_bn: do not follow the statistics of batches.
        qconfig: makes `weight_fake_quant`.
    Raises: AssertionError without a `qconfig`.
    """

    float_class = intrinsic.ConvBn1d
    conv_class, bn_class = float_modules.Conv1d, float_modules.BatchNorm1d


class ConvBnReLU1d(ConvBn1d):
    """`ConvBn1d` and a ReLU."""

    float_class = intrinsic.ConvBnReLU1d
    relu = True


class ConvBn2d(_ConvBn, float_modules.Conv2d, _FusedModule):
    """A `Conv2d` and a `BatchNorm2d` with a fake quantization of the folded weight; see `ConvBn1d`."""

    float_class = intrinsic.ConvBn2d
    conv_class, bn_class = float_modules.Conv2d, float_modules.BatchNorm2d


class ConvBnReLU2d(ConvBn2d):
    """`ConvBn2d` and a ReLU."""

    float_class = intrinsic.ConvBnReLU2d
    relu = True


class ConvBn3d(_ConvBn, float_modules.Conv3d, _FusedModule):
    """A `Conv3d` and a `BatchNorm3d` with a fake quantization of the folded weight; see `ConvBn1d`."""

    float_class = intrinsic.ConvBn3d
    conv_class, bn_class = float_modules.Conv3d, float_modules.BatchNorm3d


class ConvBnReLU3d(ConvBn3d):
    """`ConvBn3d` and a ReLU."""

    float_class = intrinsic.ConvBnReLU3d
    relu = True


class _Joined(_Trained):
    """A layer of `qat` and a ReLU; `joined_class` is what it is made from."""

    joined_class: Any

    @classmethod
    def _layer_of(cls, mod: Any) -> Any:
        return mod[0] if type(mod) is cls.joined_class else mod

    def forward(self: Any, input: Tensor) -> Tensor:
        """The result with the rounded weight, nothing below 0."""
        return F.relu(super().forward(input))  # type: ignore[misc]

    def to_float(self: Any) -> Any:
        """The layer of `torch.nn` and a ReLU."""
        return self.joined_class(super().to_float(), float_modules.ReLU())  # type: ignore[misc]


class ConvReLU1d(_Joined, qat.Conv1d, _FusedModule):
    """`ao.nn.qat.Conv1d` and a ReLU."""

    joined_class = intrinsic.ConvReLU1d


class ConvReLU2d(_Joined, qat.Conv2d, _FusedModule):
    """`ao.nn.qat.Conv2d` and a ReLU."""

    joined_class = intrinsic.ConvReLU2d


class ConvReLU3d(_Joined, qat.Conv3d, _FusedModule):
    """`ao.nn.qat.Conv3d` and a ReLU."""

    joined_class = intrinsic.ConvReLU3d


class LinearReLU(_Joined, qat.Linear, _FusedModule):
    """`ao.nn.qat.Linear` and a ReLU."""

    joined_class = intrinsic.LinearReLU


class LinearBn1d(_WithBatchNorm, float_modules.Linear, _FusedModule):
    """A `Linear` and a `BatchNorm1d` with a fake quantization of the folded weight; see `ConvBn1d`."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, eps: float = 1e-05, momentum: float = 0.1, freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:  # fmt: skip
        float_modules.Linear.__init__(self, in_features, out_features, bias)
        self.qconfig = need_qconfig("LinearBn1d", qconfig)
        self.freeze_bn = freeze_bn if self.training else True
        self.bn = float_modules.BatchNorm1d(out_features, eps, momentum, True, True)
        self.weight_fake_quant = qconfig.weight()
        self._freeze(freeze_bn)

    def forward(self, input: Tensor) -> Tensor:
        """The normalized linear map, as the folded one with integers will be."""
        return self._normalized(lambda weight: F.linear(input, weight), [-1])

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of joined ones of `intrinsic`, whose parameters it takes. Raises: AssertionError for others."""
        if type(mod) is not intrinsic.LinearBn1d:
            raise AssertionError(f"qat.LinearBn1d.from_float only works for LinearBn1d, got {type(mod).__name__}")
        if not getattr(mod, "qconfig", None):
            raise AssertionError("Input float module must have a valid qconfig")
        linear, bn = mod[0], mod[1]
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, bn.eps, bn.momentum, False, mod.qconfig)
        made.weight, made.bias = linear.weight, linear.bias
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(made.bn, name, getattr(bn, name))
        return made

    def to_float(self) -> Any:
        """The linear layer with the normalization folded in."""
        made = float_modules.Linear(self.in_features, self.out_features)
        bn = self.bn
        made.weight, made.bias = fuse_linear_bn_weights(self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
        return made


def update_bn_stats(mod: Any) -> None:
    """Let statistics follow batches where `mod` has a normalization: ``model.apply(update_bn_stats)``."""
    if isinstance(mod, _WithBatchNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod: Any) -> None:
    """Keep the statistics where `mod` has a normalization: ``model.apply(freeze_bn_stats)``."""
    if isinstance(mod, _WithBatchNorm):
        mod.freeze_bn_stats()
