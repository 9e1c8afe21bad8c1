"""Decompositions of operators, written with smaller ones: each gives what the operator's formula says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _ops
from .table import decomposition_table, register_decomposition

_aten = _ops.ops.aten


def _of(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register for the operators `names`, each ``name.overload`` or ``name``, which means ``name.default``."""
    ops = []
    for name in names:
        packet, _, overload = name.partition(".")
        ops.append(getattr(getattr(_aten, packet), overload or "default"))
    return register_decomposition(ops, decomposition_table)


# -- products ------------------------------------------------------------------------------------------------------------


@_of("addmm")
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, mat1.mm(mat2), beta, alpha)


@_of("addmv")
def addmv(self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, mat.mv(vec), beta, alpha)


@_of("baddbmm")
def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, batch1.bmm(batch2), beta, alpha)


@_of("addbmm")
def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, batch1.bmm(batch2).sum(0), beta, alpha)


@_of("addr")
def addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, vec1.unsqueeze(1) * vec2, beta, alpha)


def _scaled_sum(term: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (term if beta == 1 else term * beta)


@_of("mv")
def mv(self: Any, vec: Any) -> Any:
    return (self * vec).sum(1)


@_of("dot")
def dot(self: Any, tensor: Any) -> Any:
    return (self * tensor).sum(0)


@_of("addcmul")
def addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return self + (tensor1 * tensor2 if value == 1 else tensor1 * value * tensor2)


@_of("addcdiv")
def addcdiv(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return self + (tensor1 / tensor2 if value == 1 else value * (tensor1 / tensor2))


@_of("lerp.Scalar", "lerp.Tensor")
def lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


@_of("rsub.Tensor", "rsub.Scalar")
def rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    return other - (self if alpha == 1 else self * alpha)


# -- functions of elements -----------------------------------------------------------------------------------------------


@_of("relu")
def relu(self: Any) -> Any:
    return self.clamp(min=0)


@_of("leaky_relu")
def leaky_relu(self: Any, negative_slope: Any = 0.01) -> Any:
    return _where(self > 0, self, self * negative_slope)


@_of("hardtanh")
def hardtanh(self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    return self.clamp(min_val, max_val)


@_of("hardsigmoid")
def hardsigmoid(self: Any) -> Any:
    return (self + 3).clamp(0, 6) / 6


@_of("hardswish")
def hardswish(self: Any) -> Any:
    return self * (self + 3).clamp(0, 6) / 6


@_of("elu")
def elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return _where(self > 0, self * scale, (self * input_scale).expm1() * (alpha * scale))


@_of("silu")
def silu(self: Any) -> Any:
    return self * self.sigmoid()


@_of("mish")
def mish(self: Any) -> Any:
    return self * softplus(self).tanh()


@_of("softplus")
def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = self * beta
    return _where(scaled > threshold, self, scaled.exp().log1p() / beta)


@_of("gelu")
def gelu(self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * self * (1 + (math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)).tanh())
    return self * 0.5 * (1 + (self * math.sqrt(0.5)).erf())


@_of("threshold")
def threshold(self: Any, threshold: Any, value: Any) -> Any:
    return _where(self <= threshold, value, self)


@_of("softshrink")
def softshrink(self: Any, lambd: Any = 0.5) -> Any:
    return _where(self.abs() > lambd, self - self.sign() * lambd, self * 0)


@_of("hardshrink")
def hardshrink(self: Any, lambd: Any = 0.5) -> Any:
    return _where(self.abs() <= lambd, 0.0, self)


@_of("log_sigmoid_forward")
def log_sigmoid_forward(self: Any) -> Any:
    small = (-self.abs()).exp()
    return self.clamp(max=0) - small.log1p(), small


@_of("logit")
def logit(self: Any, eps: Any = None) -> Any:
    if eps is not None:
        self = self.clamp(eps, 1 - eps)
    return (self / (1 - self)).log()


@_of("sinc")
def sinc(self: Any) -> Any:
    x = self * math.pi
    return _where(x == 0, 1, x.sin() / _where(x == 0, 1, x))


@_of("deg2rad")
def deg2rad(self: Any) -> Any:
    return self * (math.pi / 180)


@_of("rad2deg")
def rad2deg(self: Any) -> Any:
    return self * (180 / math.pi)


@_of("frac")
def frac(self: Any) -> Any:
    return self - self.trunc()


@_of("heaviside")
def heaviside(self: Any, values: Any) -> Any:
    return _where(self == 0, values, (self > 0).to(self.dtype))


@_of("logaddexp")
def logaddexp(self: Any, other: Any) -> Any:
    larger = _aten.maximum.default(self, other)
    difference = _where(self == other, 0.0, self - other)
    return larger + (-difference.abs()).exp().log1p()


@_of("xlogy.Tensor")
def xlogy(self: Any, other: Any) -> Any:
    made = _where(self == 0, 0.0, self * other.log())
    return _where(other.isnan(), math.nan, made)


@_of("nan_to_num")
def nan_to_num(self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    import flambeau

    limits = flambeau.finfo(self.dtype)
    made = _where(self.isnan(), 0.0 if nan is None else nan, self)
    made = _where(self == math.inf, limits.max if posinf is None else posinf, made)
    return _where(self == -math.inf, limits.min if neginf is None else neginf, made)


# -- losses --------------------------------------------------------------------------------------------------------------


@_of("mse_loss")
def mse_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    difference = self - target
    return _reduced(difference * difference, reduction)


@_of("l1_loss")
def l1_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    return _reduced((self - target).abs(), reduction)


@_of("smooth_l1_loss")
def smooth_l1_loss(self: Any, target: Any, reduction: Any = 1, beta: float = 1.0) -> Any:
    difference = (self - target).abs()
    return _reduced(_where(difference < beta, 0.5 * difference * difference / beta, difference - 0.5 * beta), reduction)


@_of("huber_loss")
def huber_loss(self: Any, target: Any, reduction: Any = 1, delta: float = 1.0) -> Any:
    difference = (self - target).abs()
    return _reduced(_where(difference <= delta, 0.5 * difference * difference, delta * (difference - 0.5 * delta)), reduction)


@_of("soft_margin_loss")
def soft_margin_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    return _reduced((-self * target).exp().log1p(), reduction)


def _reduced(loss: Any, reduction: Any) -> Any:
    reduction = {"none": 0, "mean": 1, "sum": 2}.get(reduction, reduction)
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


# -- along dimensions ----------------------------------------------------------------------------------------------------


@_of("_softmax")
def _softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    parts = (self - self.amax(dim, True)).exp()
    return parts / parts.sum(dim, keepdim=True)


@_of("_log_softmax")
def _log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    shifted = self - self.amax(dim, True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@_of("_softmax_backward_data")
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = grad_output * output
    return product - output * product.sum(dim, keepdim=True)


@_of("_log_softmax_backward_data")
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return grad_output - output.exp() * grad_output.sum(dim, keepdim=True)


@_of("native_layer_norm")
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = input.mean(dims, keepdim=True)
    centered = input - mean
    rstd = ((centered * centered).mean(dims, keepdim=True) + eps).rsqrt()
    made = centered * rstd
    if weight is not None:
        made = made * weight
    return made if bias is None else made + bias, mean, rstd


# -- derivatives ---------------------------------------------------------------------------------------------------------


@_of("sigmoid_backward")
def sigmoid_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (output * (1 - output))


@_of("tanh_backward")
def tanh_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (1 - output * output)


@_of("threshold_backward")
def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return _where(self <= threshold, 0.0, grad_output)


@_of("silu_backward")
def silu_backward(grad_output: Any, self: Any) -> Any:
    gate = self.sigmoid()
    return grad_output * gate * (1 + self * (1 - gate))


# -- what is moved and filled --------------------------------------------------------------------------------------------


@_of("t")
def t(self: Any) -> Any:
    return self.transpose(0, 1) if self.dim() == 2 else self.alias() if hasattr(self, "alias") else self.view(self.shape)


@_of("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return _where(mask, value, self)


@_of("stack")
def stack(tensors: Any, dim: int = 0) -> Any:
    dim %= tensors[0].dim() + 1
    return _aten.cat.default([x.unsqueeze(dim) for x in tensors], dim)


@_of("unbind.int")
def unbind(self: Any, dim: int = 0) -> Any:
    return [self.select(dim, i) for i in range(self.shape[dim])]


@_of("trace")
def trace(self: Any) -> Any:
    return self.diagonal().sum()




def _where(condition: Any, a: Any, b: Any) -> Any:
    import flambeau

    return flambeau.where(condition, a, b)
