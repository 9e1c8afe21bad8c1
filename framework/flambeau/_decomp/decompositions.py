"""Decompositions of operators, written with smaller ones: each gives what the operator's formula says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _ops
from ..tensor import Tensor
from .table import decomposition_table, register_decomposition

_aten = _ops.ops.aten


def _decomposes(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register for the operators `names`, each ``name.overload`` or ``name``, which means ``name.default``."""
    ops = []
    for name in names:
        packet, _, overload = name.partition(".")
        ops.append(getattr(getattr(_aten, packet), overload or "default"))
    return register_decomposition(ops, decomposition_table)


# -- products ------------------------------------------------------------------------------------------------------------


@_decomposes("addmm")
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, mat1.mm(mat2), beta, alpha)


@_decomposes("addmv")
def addmv(self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, mat.mv(vec), beta, alpha)


@_decomposes("baddbmm")
def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, batch1.bmm(batch2), beta, alpha)


@_decomposes("addbmm")
def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, batch1.bmm(batch2).sum(0), beta, alpha)


@_decomposes("addr")
def addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, vec1.unsqueeze(1) * vec2, beta, alpha)


def _scaled_sum(term: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (term if beta == 1 else term * beta)


@_decomposes("mv")
def mv(self: Any, vec: Any) -> Any:
    return (self * vec).sum(1)


@_decomposes("dot")
def dot(self: Any, tensor: Any) -> Any:
    return (self * tensor).sum(0)


@_decomposes("addcmul")
def addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return self + (tensor1 * tensor2 if value == 1 else tensor1 * value * tensor2)


@_decomposes("addcdiv")
def addcdiv(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    return self + (tensor1 / tensor2 if value == 1 else value * (tensor1 / tensor2))


@_decomposes("lerp.Scalar", "lerp.Tensor")
def lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


@_decomposes("rsub.Tensor", "rsub.Scalar")
def rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    taken = self if alpha == 1 else self * alpha
    # A number less a tensor is this operator again; the sum has the same bits.
    return other - taken if isinstance(other, Tensor) else -taken + other


# -- functions of elements -----------------------------------------------------------------------------------------------


@_decomposes("relu")
def relu(self: Any) -> Any:
    return self.clamp(min=0)


@_decomposes("leaky_relu")
def leaky_relu(self: Any, negative_slope: Any = 0.01) -> Any:
    return _where(self > 0, self, self * negative_slope)


@_decomposes("hardtanh")
def hardtanh(self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    return self.clamp(min_val, max_val)


@_decomposes("hardsigmoid")
def hardsigmoid(self: Any) -> Any:
    return (self + 3).clamp(0, 6) / 6


@_decomposes("hardswish")
def hardswish(self: Any) -> Any:
    return self * (self + 3).clamp(0, 6) / 6


@_decomposes("elu")
def elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return _where(self > 0, self * scale, (self * input_scale).expm1() * (alpha * scale))


@_decomposes("silu")
def silu(self: Any) -> Any:
    return self * self.sigmoid()


@_decomposes("mish")
def mish(self: Any) -> Any:
    return self * softplus(self).tanh()


@_decomposes("softplus")
def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = self * beta
    return _where(scaled > threshold, self, scaled.exp().log1p() / beta)


@_decomposes("gelu")
def gelu(self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * self * (1 + (math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)).tanh())
    return self * 0.5 * (1 + (self * math.sqrt(0.5)).erf())


@_decomposes("threshold")
def threshold(self: Any, threshold: Any, value: Any) -> Any:
    return _where(self <= threshold, value, self)


@_decomposes("softshrink")
def softshrink(self: Any, lambd: Any = 0.5) -> Any:
    return _where(self.abs() > lambd, self - self.sign() * lambd, self * 0)


@_decomposes("hardshrink")
def hardshrink(self: Any, lambd: Any = 0.5) -> Any:
    return _where(self.abs() <= lambd, 0.0, self)


@_decomposes("log_sigmoid_forward")
def log_sigmoid_forward(self: Any) -> Any:
    small = (-self.abs()).exp()
    return self.clamp(max=0) - small.log1p(), small


@_decomposes("logit")
def logit(self: Any, eps: Any = None) -> Any:
    if eps is not None:
        self = self.clamp(eps, 1 - eps)
    return (self / (1 - self)).log()


@_decomposes("sinc")
def sinc(self: Any) -> Any:
    x = self * math.pi
    return _where(x == 0, 1, x.sin() / _where(x == 0, 1, x))


@_decomposes("deg2rad")
def deg2rad(self: Any) -> Any:
    return self * (math.pi / 180)


@_decomposes("rad2deg")
def rad2deg(self: Any) -> Any:
    return self * (180 / math.pi)


@_decomposes("frac")
def frac(self: Any) -> Any:
    return self - self.trunc()


@_decomposes("heaviside")
def heaviside(self: Any, values: Any) -> Any:
    return _where(self == 0, values, (self > 0).to(self.dtype))


@_decomposes("logaddexp")
def logaddexp(self: Any, other: Any) -> Any:
    larger = _aten.maximum.default(self, other)
    difference = _where(self == other, 0.0, self - other)
    return larger + (-difference.abs()).exp().log1p()


@_decomposes("xlogy.Tensor")
def xlogy(self: Any, other: Any) -> Any:
    made = _where(self == 0, 0.0, self * other.log())
    return _where(other.isnan(), math.nan, made)


@_decomposes("nan_to_num")
def nan_to_num(self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    import flambeau

    limits = flambeau.finfo(self.dtype)
    made = _where(self.isnan(), 0.0 if nan is None else nan, self)
    made = _where(self == math.inf, limits.max if posinf is None else posinf, made)
    return _where(self == -math.inf, limits.min if neginf is None else neginf, made)


# -- losses --------------------------------------------------------------------------------------------------------------


@_decomposes("mse_loss")
def mse_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    difference = self - target
    return _reduced(difference * difference, reduction)


@_decomposes("l1_loss")
def l1_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    return _reduced((self - target).abs(), reduction)


@_decomposes("smooth_l1_loss")
def smooth_l1_loss(self: Any, target: Any, reduction: Any = 1, beta: float = 1.0) -> Any:
    difference = (self - target).abs()
    return _reduced(_where(difference < beta, 0.5 * difference * difference / beta, difference - 0.5 * beta), reduction)


@_decomposes("huber_loss")
def huber_loss(self: Any, target: Any, reduction: Any = 1, delta: float = 1.0) -> Any:
    difference = (self - target).abs()
    return _reduced(_where(difference <= delta, 0.5 * difference * difference, delta * (difference - 0.5 * delta)), reduction)


@_decomposes("soft_margin_loss")
def soft_margin_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    return _reduced((-self * target).exp().log1p(), reduction)


def _reduced(loss: Any, reduction: Any) -> Any:
    reduction = {"none": 0, "mean": 1, "sum": 2}.get(reduction, reduction)
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


# -- along dimensions ----------------------------------------------------------------------------------------------------


@_decomposes("_softmax")
def _softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    parts = (self - self.amax(dim, True)).exp()
    return parts / parts.sum(dim, keepdim=True)


@_decomposes("_log_softmax")
def _log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    shifted = self - self.amax(dim, True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@_decomposes("_softmax_backward_data")
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = grad_output * output
    return product - output * product.sum(dim, keepdim=True)


@_decomposes("_log_softmax_backward_data")
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return grad_output - output.exp() * grad_output.sum(dim, keepdim=True)


@_decomposes("native_layer_norm")
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


@_decomposes("sigmoid_backward")
def sigmoid_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (output * (1 - output))


@_decomposes("tanh_backward")
def tanh_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (1 - output * output)


@_decomposes("threshold_backward")
def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return _where(self <= threshold, 0.0, grad_output)


@_decomposes("silu_backward")
def silu_backward(grad_output: Any, self: Any) -> Any:
    gate = self.sigmoid()
    return grad_output * gate * (1 + self * (1 - gate))


# -- what is moved and filled --------------------------------------------------------------------------------------------


@_decomposes("gelu_backward")
def gelu_backward(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)
        tanh = inner.tanh()
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * self * self)
        return grad_output * (0.5 * (1 + tanh) + 0.5 * self * (1 - tanh * tanh) * slope)
    density = (self * self * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return grad_output * (0.5 * (1 + (self * math.sqrt(0.5)).erf()) + self * density)


@_decomposes("hardtanh_backward")
def hardtanh_backward(grad_output: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    return _where((self <= min_val) | (self >= max_val), 0.0, grad_output)


@_decomposes("leaky_relu_backward")
def leaky_relu_backward(grad_output: Any, self: Any, negative_slope: Any, self_is_result: bool) -> Any:
    return _where(self > 0, grad_output, grad_output * negative_slope)


@_decomposes("elu_backward")
def elu_backward(grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any) -> Any:
    x = self_or_result
    below = (x + alpha * scale) * input_scale if is_result else (x * input_scale).exp() * (input_scale * alpha * scale)
    return _where(x <= 0, grad_output * below, grad_output * scale)


@_decomposes("softplus_backward")
def softplus_backward(grad_output: Any, self: Any, beta: Any, threshold: Any) -> Any:
    return _where(self * beta > threshold, grad_output, grad_output * (self * beta).sigmoid())


@_decomposes("hardsigmoid_backward")
def hardsigmoid_backward(grad_output: Any, self: Any) -> Any:
    return _where((self > -3) & (self < 3), grad_output * 0.1666666716337204, 0.0)  # 1/6 in float32, as PyTorch has it


@_decomposes("hardswish_backward")
def hardswish_backward(grad_output: Any, self: Any) -> Any:
    return _where(self <= -3, 0.0, _where(self < 3, grad_output * (self / 3 + 0.5), grad_output))


@_decomposes("logit_backward")
def logit_backward(grad_output: Any, self: Any, eps: Any = None) -> Any:
    low = 0.0 if eps is None else eps
    outside = (self < low) | (self > 1 - low)
    return _where(outside, 0.0 if eps is not None else math.nan, grad_output / (self * (1 - self)))


@_decomposes("log_sigmoid_backward")
def log_sigmoid_backward(grad_output: Any, self: Any, buffer: Any) -> Any:
    return grad_output * (-self).sigmoid()


@_decomposes("native_dropout_backward")
def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    return grad_output * (mask.to(grad_output.dtype) * scale)


@_decomposes("mse_loss_backward")
def mse_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    norm = 2.0 / self.numel() if reduction == 1 else 2.0
    return norm * (self - target) * grad_output


@_decomposes("smooth_l1_loss_backward")
def smooth_l1_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, beta: float) -> Any:
    return _of_distance(grad_output, self - target, reduction, beta, beta)


@_decomposes("huber_loss_backward")
def huber_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, delta: float) -> Any:
    return _of_distance(grad_output, self - target, reduction, delta, 1.0)


def _of_distance(grad: Any, x: Any, reduction: int, bound: float, divisor: float) -> Any:
    """The gradient of what is quadratic up to `bound` and linear beyond: ``x / divisor``, no more than ``bound / divisor``."""
    norm = 1.0 / x.numel() if reduction == 1 else 1.0
    return norm * grad * _where(x.abs() < bound, x / divisor, x.sign() * (bound / divisor))


@_decomposes("glu")
def glu(self: Any, dim: int = -1) -> Any:
    half = self.shape[dim] // 2
    return self.narrow(dim, 0, half) * self.narrow(dim, half, half).sigmoid()


@_decomposes("glu_backward")
def glu_backward(grad_output: Any, self: Any, dim: int) -> Any:
    half = self.shape[dim] // 2
    first, gate = self.narrow(dim, 0, half), self.narrow(dim, half, half).sigmoid()
    return _aten.cat.default([gate * grad_output, (1 - gate) * gate * first * grad_output], dim)


@_decomposes("select_backward")
def select_backward(grad_output: Any, input_sizes: Any, dim: int, index: int) -> Any:
    return grad_output.new_zeros(input_sizes).select_scatter(grad_output, dim, index)


@_decomposes("slice_backward")
def slice_backward(grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    return grad_output.new_zeros(input_sizes).slice_scatter(grad_output, dim, start, end, step)


@_decomposes("logaddexp2")
def logaddexp2(self: Any, other: Any) -> Any:
    largest, smallest = self.maximum(other), self.minimum(other)
    sum_ = largest + (1 + (smallest - largest).exp2()).log2()
    return _where((self == other) & self.isinf(), self, sum_)


@_decomposes("pixel_shuffle")
def pixel_shuffle(self: Any, upscale_factor: int) -> Any:
    r = upscale_factor
    *batch, channels, h, w = self.shape
    n = len(batch)
    parts = self.reshape([*batch, channels // (r * r), r, r, h, w])
    return parts.permute([*range(n), n, n + 3, n + 1, n + 4, n + 2]).reshape([*batch, channels // (r * r), h * r, w * r])


@_decomposes("pixel_unshuffle")
def pixel_unshuffle(self: Any, downscale_factor: int) -> Any:
    r = downscale_factor
    *batch, channels, h, w = self.shape
    n = len(batch)
    parts = self.reshape([*batch, channels, h // r, r, w // r, r])
    return parts.permute([*range(n), n, n + 2, n + 4, n + 1, n + 3]).reshape([*batch, channels * r * r, h // r, w // r])


@_decomposes("t")
def t(self: Any) -> Any:
    return self.transpose(0, 1) if self.dim() == 2 else self.alias() if hasattr(self, "alias") else self.view(self.shape)


@_decomposes("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return _where(mask, value, self)


@_decomposes("stack")
def stack(tensors: Any, dim: int = 0) -> Any:
    dim %= tensors[0].dim() + 1
    return _aten.cat.default([x.unsqueeze(dim) for x in tensors], dim)


@_decomposes("unbind.int")
def unbind(self: Any, dim: int = 0) -> Any:
    return [self.select(dim, i) for i in range(self.shape[dim])]


@_decomposes("trace")
def trace(self: Any) -> Any:
    return self.diagonal().sum()


def _where(condition: Any, a: Any, b: Any) -> Any:
    import flambeau

    return flambeau.where(condition, a, b)
