"""Folding a batch normalization in evaluation mode into the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fb

from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

Tensor = fb.Tensor


def _scale_and_shift(
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    bn_weight: Tensor | None,
    bn_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The factor per output feature, and the fused bias."""
    factor = fb.rsqrt(var + eps)
    if bn_weight is not None:
        factor = bn_weight * factor
    shifted = (-mean if bias is None else bias - mean) * factor
    return factor, shifted if bn_bias is None else shifted + bn_bias


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that also normalizes.

    Args:
        conv_w: (out, in, *kernel), or with `transpose` (in, out, *kernel).
        conv_b: (out,) or None.
        bn_rm, bn_rv: running mean and variance, (out,).
        bn_eps: added to the variance.
        bn_w, bn_b: scale and shift, (out,) or None for 1 and 0.
    """
    factor, bias = _scale_and_shift(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    shape = (1, -1) if transpose else (-1, 1)
    weight = conv_w * factor.reshape(*shape, *[1] * (conv_w.dim() - 2))
    return (
        Parameter(weight.to(conv_w.dtype), conv_w.requires_grad),
        Parameter(
            bias.to(conv_w.dtype if conv_b is None else conv_b.dtype),
            conv_b is not None and conv_b.requires_grad,
        ),
    )


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A new convolution that does what `conv` and then `bn` do, both in evaluation mode.

    Args:
        transpose: whether `conv` is a transposed one.
    """
    _check_eval(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """Weight (out, in) and bias (out,) of a linear layer that also normalizes.

    Args:
        linear_w, linear_b: (out, in), and (out,) or None; the others as for `fuse_conv_bn_weights`.
    """
    factor, bias = _scale_and_shift(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return (
        Parameter((linear_w * factor.unsqueeze(-1)).to(linear_w.dtype), linear_w.requires_grad),
        Parameter(
            bias.to(linear_w.dtype if linear_b is None else linear_b.dtype),
            linear_b is not None and linear_b.requires_grad,
        ),
    )


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A new linear layer that does what `linear` and then `bn` do, both in evaluation mode."""
    _check_eval(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise AssertionError(f"fuse_linear_bn_eval: bn has {bn.num_features} features, linear has {linear.out_features}")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def _check_eval(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("fusion is for evaluation: call eval() on both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("fusion needs the running statistics of the batch normalization")
