"""Decompositions of operators, written with smaller ones: each gives what the operator's formula says."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from .. import _ops, dtypes
from ..tensor import Tensor
from .table import decomposes

_aten = _ops.ops.aten


# -- products ------------------------------------------------------------------------------------------------------------


@decomposes("addmm")
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, mat1.mm(mat2), beta, alpha)


@decomposes("addmv")
def addmv(self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, mat.mv(vec), beta, alpha)


@decomposes("baddbmm")
def baddbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, batch1.bmm(batch2), beta, alpha)


@decomposes("addbmm")
def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, batch1.bmm(batch2).sum(0), beta, alpha)


@decomposes("addr")
def addr(self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled_sum(self, vec1.unsqueeze(1) * vec2, beta, alpha)


def _scaled_sum(term: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (term if beta == 1 else term * beta)


@decomposes("mv")
def mv(self: Any, vec: Any) -> Any:
    return (self * vec).sum(1)


@decomposes("dot")
def dot(self: Any, tensor: Any) -> Any:
    return (self * tensor).sum(0)


@decomposes("rsub.Tensor", "rsub.Scalar")
def rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    taken = self if alpha == 1 else self * alpha
    # A number less a tensor is this operator again; the sum has the same bits.
    return other - taken if isinstance(other, Tensor) else -taken + other


def _in_float32(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of halves computed in float32, and rounded once."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        halves = [x.dtype for x in args if isinstance(x, Tensor) and x.dtype in (dtypes.float16, dtypes.bfloat16)]
        if not halves:
            return f(*args, **kwargs)
        return f(*[x.to(dtypes.float32) if isinstance(x, Tensor) and x.dtype in halves else x for x in args], **kwargs).to(halves[0])

    return run


# -- functions of elements -----------------------------------------------------------------------------------------------


@decomposes("log_sigmoid_forward")
def log_sigmoid_forward(self: Any) -> Any:
    small = (-self.abs()).exp()
    return self.clamp(max=0) - small.log1p(), small


@decomposes("leaky_relu")
@_in_float32
def leaky_relu(self: Any, negative_slope: Any = 0.01) -> Any:
    return _where(self > 0, self, self * negative_slope)


@decomposes("hardtanh")
@_in_float32
def hardtanh(self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    return self.clamp(min_val, max_val)


@decomposes("hardsigmoid")
@_in_float32
def hardsigmoid(self: Any) -> Any:
    return (self + 3).clamp(0, 6) / 6


@decomposes("hardswish")
@_in_float32
def hardswish(self: Any) -> Any:
    return self * (self + 3).clamp(0, 6) / 6


@decomposes("elu")
@_in_float32
def elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return _where(self > 0, self * scale, (self * input_scale).expm1() * (alpha * scale))


@decomposes("silu")
@_in_float32
def silu(self: Any) -> Any:
    return self * self.sigmoid()


@decomposes("gelu")
@_in_float32
def gelu(self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * self * (1 + (math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)).tanh())
    return self * 0.5 * (1 + (self * math.sqrt(0.5)).erf())


# -- losses --------------------------------------------------------------------------------------------------------------


@decomposes("mse_loss")
def mse_loss(self: Any, target: Any, reduction: Any = 1) -> Any:
    difference = self - target
    return _reduced(difference * difference, reduction)


def _reduced(loss: Any, reduction: Any) -> Any:
    reduction = {"none": 0, "mean": 1, "sum": 2}.get(reduction, reduction)
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


# -- along dimensions ----------------------------------------------------------------------------------------------------


@decomposes("_softmax")
def _softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    parts = (self - self.amax(dim, True)).exp()
    return parts / parts.sum(dim, keepdim=True)


@decomposes("_log_softmax")
def _log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    shifted = self - self.amax(dim, True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@decomposes("_softmax_backward_data")
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = grad_output * output
    return product - output * product.sum(dim, keepdim=True)


@decomposes("_log_softmax_backward_data")
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return grad_output - output.exp() * grad_output.sum(dim, keepdim=True)


@decomposes("native_layer_norm")
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


@decomposes("sigmoid_backward")
@_in_float32
def sigmoid_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (output * (1 - output))


@decomposes("tanh_backward")
@_in_float32
def tanh_backward(grad_output: Any, output: Any) -> Any:
    return grad_output * (1 - output * output)


@decomposes("threshold_backward")
@_in_float32
def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return _where(self <= threshold, 0.0, grad_output)


@decomposes("silu_backward")
@_in_float32
def silu_backward(grad_output: Any, self: Any) -> Any:
    gate = self.sigmoid()
    return grad_output * gate * (1 + self * (1 - gate))


# -- what is moved and filled --------------------------------------------------------------------------------------------


@decomposes("gelu_backward")
@_in_float32
def gelu_backward(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (self + 0.044715 * self * self * self)
        tanh = inner.tanh()
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * self * self)
        return grad_output * (0.5 * (1 + tanh) + 0.5 * self * (1 - tanh * tanh) * slope)
    density = (self * self * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return grad_output * (0.5 * (1 + (self * math.sqrt(0.5)).erf()) + self * density)


@decomposes("hardtanh_backward")
@_in_float32
def hardtanh_backward(grad_output: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    return _where((self <= min_val) | (self >= max_val), 0.0, grad_output)


@decomposes("leaky_relu_backward")
@_in_float32
def leaky_relu_backward(grad_output: Any, self: Any, negative_slope: Any, self_is_result: bool) -> Any:
    return _where(self > 0, grad_output, grad_output * negative_slope)


@decomposes("elu_backward")
@_in_float32
def elu_backward(grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any) -> Any:
    x = self_or_result
    below = (x + alpha * scale) * input_scale if is_result else (x * input_scale).exp() * (input_scale * alpha * scale)
    return _where(x <= 0, grad_output * below, grad_output * scale)


@decomposes("softplus_backward")
@_in_float32
def softplus_backward(grad_output: Any, self: Any, beta: Any, threshold: Any) -> Any:
    return _where(self * beta > threshold, grad_output, grad_output * (self * beta).sigmoid())


@decomposes("hardsigmoid_backward")
@_in_float32
def hardsigmoid_backward(grad_output: Any, self: Any) -> Any:
    return _where((self > -3) & (self < 3), grad_output * 0.1666666716337204, 0.0)  # 1/6 in float32, as PyTorch has it


@decomposes("hardswish_backward")
@_in_float32
def hardswish_backward(grad_output: Any, self: Any) -> Any:
    return _where(self <= -3, 0.0, _where(self < 3, grad_output * (self / 3 + 0.5), grad_output))


@decomposes("logit_backward")
@_in_float32
def logit_backward(grad_output: Any, self: Any, eps: Any = None) -> Any:
    low = 0.0 if eps is None else eps
    outside = (self < low) | (self > 1 - low)
    return _where(outside, 0.0 if eps is not None else math.nan, grad_output / (self * (1 - self)))


@decomposes("log_sigmoid_backward")
@_in_float32
def log_sigmoid_backward(grad_output: Any, self: Any, buffer: Any) -> Any:
    return grad_output * (-self).sigmoid()


@decomposes("native_dropout_backward")
def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    return grad_output * (mask.to(grad_output.dtype) * scale)


@decomposes("mse_loss_backward")
@_in_float32
def mse_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    norm = 2.0 / self.numel() if reduction == 1 else 2.0
    return norm * (self - target) * grad_output


@decomposes("smooth_l1_loss_backward")
@_in_float32
def smooth_l1_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, beta: float) -> Any:
    return _of_distance(grad_output, self - target, reduction, beta, beta)


@decomposes("huber_loss_backward")
@_in_float32
def huber_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, delta: float) -> Any:
    return _of_distance(grad_output, self - target, reduction, delta, 1.0)


def _of_distance(grad: Any, x: Any, reduction: int, bound: float, divisor: float) -> Any:
    """The gradient of what is quadratic up to `bound` and linear beyond: ``x / divisor``, no more than ``bound / divisor``."""
    norm = 1.0 / x.numel() if reduction == 1 else 1.0
    return norm * grad * _where(x.abs() < bound, x / divisor, x.sign() * (bound / divisor))


@decomposes("glu_backward")
def glu_backward(grad_output: Any, self: Any, dim: int) -> Any:
    half = self.shape[dim] // 2
    first, gate = self.narrow(dim, 0, half), self.narrow(dim, half, half).sigmoid()
    return _aten.cat.default([gate * grad_output, (1 - gate) * gate * first * grad_output], dim)


@decomposes("select_backward")
def select_backward(grad_output: Any, input_sizes: Any, dim: int, index: int) -> Any:
    return grad_output.new_zeros(input_sizes).select_scatter(grad_output, dim, index)


@decomposes("slice_backward")
def slice_backward(grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    return grad_output.new_zeros(input_sizes).slice_scatter(grad_output, dim, start, end, step)


@decomposes("pixel_shuffle")
def pixel_shuffle(self: Any, upscale_factor: int) -> Any:
    r = upscale_factor
    *batch, channels, h, w = self.shape
    n = len(batch)
    parts = self.reshape([*batch, channels // (r * r), r, r, h, w])
    return parts.permute([*range(n), n, n + 3, n + 1, n + 4, n + 2]).reshape([*batch, channels // (r * r), h * r, w * r])


@decomposes("pixel_unshuffle")
def pixel_unshuffle(self: Any, downscale_factor: int) -> Any:
    r = downscale_factor
    *batch, channels, h, w = self.shape
    n = len(batch)
    parts = self.reshape([*batch, channels, h // r, r, w // r, r])
    return parts.permute([*range(n), n, n + 2, n + 4, n + 1, n + 3]).reshape([*batch, channels * r * r, h // r, w // r])


@decomposes("t")
def t(self: Any) -> Any:
    return self.transpose(0, 1) if self.dim() == 2 else self.alias() if hasattr(self, "alias") else self.view(self.shape)


@decomposes("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return _where(mask, value, self)


@decomposes("stack")
def stack(tensors: Any, dim: int = 0) -> Any:
    dim %= tensors[0].dim() + 1
    return _aten.cat.default([x.unsqueeze(dim) for x in tensors], dim)


@decomposes("unbind.int")
def unbind(self: Any, dim: int = 0) -> Any:
    return [self.select(dim, i) for i in range(self.shape[dim])]


@decomposes("trace")
def trace(self: Any) -> Any:
    return self.diagonal().sum()


def _where(condition: Any, a: Any, b: Any) -> Any:
    import flambeau

    return flambeau.where(condition, a, b)
