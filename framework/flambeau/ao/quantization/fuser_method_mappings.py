"""How layers that follow each other are joined: one function for each sequence of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...nn import modules as nn
from ...nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval
from ..nn import intrinsic

__all__ = [
    "fuse_conv_bn", "fuse_conv_bn_relu", "fuse_convtranspose_bn", "fuse_linear_bn", "get_fuser_method", "get_fuser_method_new"
]  # fmt: skip


def _same_mode(*layers: Any) -> None:
    if any(layer.training is not layers[0].training for layer in layers):
        raise AssertionError("Conv and BN both must be in the same mode (train or eval).")


def _eval_only(is_qat: bool, *layers: Any) -> None:
    if not is_qat and any(layer.training for layer in layers):
        raise AssertionError("Fusion only for eval!")


_WITH_BN: dict[Any, Any] = {nn.Conv1d: intrinsic.ConvBn1d, nn.Conv2d: intrinsic.ConvBn2d, nn.Conv3d: intrinsic.ConvBn3d}
_WITH_BN_RELU: dict[Any, Any] = {
    nn.Conv1d: intrinsic.ConvBnReLU1d, nn.Conv2d: intrinsic.ConvBnReLU2d, nn.Conv3d: intrinsic.ConvBnReLU3d
}  # fmt: skip
_WITH_RELU: dict[Any, Any] = {nn.Conv1d: intrinsic.ConvReLU1d, nn.Conv2d: intrinsic.ConvReLU2d, nn.Conv3d: intrinsic.ConvReLU3d}


def _check_bn(is_qat: bool, layer: Any, bn: Any) -> None:
    _eval_only(is_qat, layer, bn)
    _same_mode(layer, bn)
    if is_qat:
        if bn.num_features != getattr(layer, "out_channels", getattr(layer, "out_features", None)):
            raise AssertionError("Output channel of Conv must match num_features of BatchNorm")
        if not bn.affine:
            raise AssertionError("Only support fusing BatchNorm with affine set to True")
        if not bn.track_running_stats:
            raise AssertionError("Only support fusing BatchNorm with tracking_running_stats set to True")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution and a normalization: the convolution with it folded in, or for training the two joined.

    Args:
        is_qat: for quantization aware training.
    Raises: AssertionError where one is in training mode, or does not fit; NotImplementedError for other layers.
    """
    _check_bn(is_qat, conv, bn)
    if not is_qat:
        return fuse_conv_bn_eval(conv, bn)
    if type(conv) not in _WITH_BN:
        raise NotImplementedError(f"Cannot fuse train modules: {(conv, bn)}")
    return _WITH_BN[type(conv)](conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """A convolution, a normalization and a ReLU; see `fuse_conv_bn`."""
    _check_bn(is_qat, conv, bn)
    _same_mode(conv, bn, relu)
    if type(conv) not in _WITH_BN_RELU:
        raise NotImplementedError(f"Cannot fuse {'train' if is_qat else 'eval'} modules: {(conv, bn, relu)}")
    return _WITH_BN_RELU[type(conv)](conv, bn, relu) if is_qat else _WITH_RELU[type(conv)](fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A linear layer and a normalization; see `fuse_conv_bn`."""
    _check_bn(is_qat, linear, bn)
    return intrinsic.LinearBn1d(linear, bn) if is_qat else fuse_linear_bn_eval(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """A transposed convolution and a normalization, folded. Raises: NotImplementedError for training; see `fuse_conv_bn`."""
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")  # PyTorch's
    _check_bn(is_qat, convt, bn)
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _joined(kind: Any) -> Callable[..., Any]:
    def join(is_qat: bool, first: Any, relu: Any) -> Any:
        return kind(first, relu)

    return join


_FUSERS: dict[tuple[Any, ...], Callable[..., Any]] = {
    (nn.Conv1d, nn.BatchNorm1d): fuse_conv_bn,
    (nn.Conv1d, nn.BatchNorm1d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv2d, nn.BatchNorm2d): fuse_conv_bn,
    (nn.Conv2d, nn.BatchNorm2d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv3d, nn.BatchNorm3d): fuse_conv_bn,
    (nn.Conv3d, nn.BatchNorm3d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv1d, nn.ReLU): _joined(intrinsic.ConvReLU1d),
    (nn.Conv2d, nn.ReLU): _joined(intrinsic.ConvReLU2d),
    (nn.Conv3d, nn.ReLU): _joined(intrinsic.ConvReLU3d),
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.Linear, nn.ReLU): _joined(intrinsic.LinearReLU),
    (nn.BatchNorm2d, nn.ReLU): _joined(intrinsic.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _joined(intrinsic.BNReLU3d),
    (nn.ConvTranspose1d, nn.BatchNorm1d): fuse_convtranspose_bn,
    (nn.ConvTranspose2d, nn.BatchNorm2d): fuse_convtranspose_bn,
    (nn.ConvTranspose3d, nn.BatchNorm3d): fuse_convtranspose_bn,
}


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: dict[Any, Any] | None = None) -> Callable[..., Any]:
    """The function ``fuse(is_qat, *layers)`` for layers of the classes `op_list`. Raises: AssertionError where there is none."""
    found = {**_FUSERS, **(additional_fuser_method_mapping or {})}.get(tuple(op_list))
    if found is None:
        raise AssertionError(f"did not find fuser method for: {tuple(op_list)} ")
    return found


def get_fuser_method_new(op_pattern: Any, fuser_method_mapping: dict[Any, Any]) -> Callable[..., Any]:
    """The function for a pattern of classes in `fuser_method_mapping`. Raises: AssertionError where there is none."""
    found = fuser_method_mapping.get(op_pattern)
    if found is None:
        raise AssertionError(f"did not find fuser method for: {op_pattern} ")
    return found
