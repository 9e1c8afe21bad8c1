"""Decompositions of operators that compute gradients: of losses, layers, and of elements that were moved."""

from __future__ import annotations

from typing import Any

from .. import _ops, dtypes
from .making import places
from .table import decomposes

_aten: Any = _ops.ops.aten


def _zero(like: Any) -> Any:
    return _aten.scalar_tensor.default(0, dtype=like.dtype)


# -- of losses -----------------------------------------------------------------------------------------------------------


@decomposes("binary_cross_entropy_backward")
def binary_cross_entropy_backward(grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    made = grad_output * (self - target) / (self * (1 - self)).clamp(min=1e-12)
    if weight is not None:
        made = made * weight
    return made / self.numel() if reduction == 1 else made


@decomposes("soft_margin_loss_backward")
def soft_margin_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    made = target * grad_output * (_aten.sigmoid.default(target * self) - 1)
    return made / self.numel() if reduction == 1 else made


@decomposes("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    classes = 0 if self.ndim == 1 else 1
    counted, place = _targets(target, ignore_index, classes)
    loss = -_aten.gather.default(self, classes, place).squeeze(classes)
    if weight is None:
        share = counted.to(self.dtype)
    else:
        share = _aten.where.self(counted, _aten.index.Tensor(weight, [place.squeeze(classes)]), _zero(weight))
        loss = loss * share
    loss = _aten.where.self(counted, loss, _zero(loss))
    if reduction == 0:
        return loss, _aten.full.default([], 0.0, dtype=self.dtype, layout=self.layout, device=self.device)
    total = _aten.sum.dim_IntList(share, [])
    loss = _aten.sum.dim_IntList(loss, [])
    return loss / total if reduction == 1 else loss, total


@decomposes("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Any:  # fmt: skip
    classes = 0 if self.ndim == 1 else 1
    counted, place = _targets(target, ignore_index, classes)
    if reduction == 1:
        grad_output = grad_output / total_weight
    share = -grad_output if weight is None else -grad_output * _aten.index.Tensor(weight, [place.squeeze(classes)])
    share = _aten.where.self(counted, share, _zero(share)).unsqueeze(classes)
    return _aten.scatter.src(_aten.full_like.default(self, 0), classes, place, share.expand(place.shape))


def _targets(target: Any, ignore_index: int, classes: int) -> tuple[Any, Any]:
    """Which targets count, and where along `classes` they point."""
    counted = target != ignore_index
    return counted, _aten.where.self(counted, target, _zero(target)).unsqueeze(classes)


# -- of layers -----------------------------------------------------------------------------------------------------------


@decomposes("native_layer_norm_backward")
def native_layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, output_mask: Any
) -> Any:  # fmt: skip
    first = input.ndim - len(normalized_shape)
    inner, outer = list(range(first, input.ndim)), list(range(first))
    normal = (input - mean) * rstd
    wanted = [None, None, None]
    if output_mask[0]:
        wanted[0] = _of_normalized(grad_out if weight is None else grad_out * weight, normal, rstd, inner)
    if output_mask[1] and weight is not None:
        wanted[1] = _summed(grad_out * normal, outer)
    if output_mask[2] and bias is not None:
        wanted[2] = _summed(grad_out, outer)
    return tuple(wanted)


@decomposes("_fused_rms_norm_backward")
def _fused_rms_norm_backward(grad_out: Any, input: Any, normalized_shape: Any, rstd: Any, weight: Any, output_mask: Any) -> Any:
    first = input.ndim - len(normalized_shape)
    inner, outer = list(range(first, input.ndim)), list(range(first))
    normal = input * rstd
    of_input = of_weight = None
    if output_mask[0]:
        grad = grad_out if weight is None else grad_out * weight
        of_input = rstd * (grad - normal * _aten.mean.dim(grad * normal, inner, True))
    if output_mask[1] and weight is not None:
        of_weight = _summed(grad_out * normal, outer)
    return of_input, of_weight


@decomposes("native_group_norm_backward")
def native_group_norm_backward(
    grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: Any, C: Any, HxW: Any, group: int, output_mask: Any
) -> Any:  # fmt: skip
    parts = [N, group, C // group, HxW]
    by_group = [N, group, 1, 1]
    grad, scale = grad_out.reshape(parts), rstd.view(by_group)
    normal = (input.reshape(parts) - mean.view(by_group)) * scale
    wanted = [None, None, None]
    if output_mask[0]:
        share = grad if weight is None else grad * weight.view([1, group, C // group, 1])
        wanted[0] = _of_normalized(share, normal, scale, [2, 3]).view(input.shape)
    if output_mask[1]:
        wanted[1] = _aten.sum.dim_IntList(grad * normal, [0, 3]).view([C])
    if output_mask[2]:
        wanted[2] = _aten.sum.dim_IntList(grad, [0, 3]).view([C])
    return tuple(wanted)


@decomposes("native_batch_norm_backward")
def native_batch_norm_backward(
    grad_out: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, save_mean: Any, save_invstd: Any, train: bool,
    eps: float, output_mask: Any,
) -> Any:  # fmt: skip
    others = [d for d in range(input.ndim) if d != 1]
    along = [1, -1] + [1] * (input.ndim - 2)
    mean, scale = (save_mean, save_invstd) if train else (running_mean, _aten.rsqrt.default(running_var + eps))
    mean, scale = mean.view(along), scale.view(along)
    normal = (input - mean) * scale
    wanted = [None, None, None]
    if output_mask[0]:
        share = grad_out if weight is None else grad_out * weight.view(along)
        wanted[0] = _of_normalized(share, normal, scale, others) if train else share * scale
    if output_mask[1]:
        wanted[1] = _aten.sum.dim_IntList(grad_out * normal, others)
    if output_mask[2]:
        wanted[2] = _aten.sum.dim_IntList(grad_out, others)
    return tuple(wanted)


def _of_normalized(grad: Any, normal: Any, scale: Any, dims: list[int]) -> Any:
    """The gradient by ``x`` of ``normal = (x - mean) * scale``, whose mean and scale are those of `x` along `dims`."""
    return scale * (grad - _aten.mean.dim(grad, dims, True) - normal * _aten.mean.dim(grad * normal, dims, True))


def _summed(x: Any, dims: list[int]) -> Any:
    return _aten.sum.dim_IntList(x, dims) if dims else x


@decomposes("_prelu_kernel_backward")
def _prelu_kernel_backward(grad_output: Any, self: Any, weight: Any) -> Any:
    positive = self > 0
    of_weight = _aten.where.self(positive, _zero(self), self * grad_output)
    return _aten.where.self(positive, grad_output, weight * grad_output), of_weight


@decomposes("mish_backward")
def mish_backward(grad_output: Any, self: Any) -> Any:
    bent = _aten.softplus.default(self).tanh()
    return grad_output * (bent + self * _aten.sigmoid.default(self) * (1 - bent * bent))


@decomposes("embedding_dense_backward")
def embedding_dense_backward(grad_output: Any, indices: Any, num_weights: Any, padding_idx: Any, scale_grad_by_freq: bool) -> Any:
    indices = indices.to(dtypes.int64)
    rows = _aten.full.default(
        [num_weights, grad_output.shape[-1]], 0, dtype=grad_output.dtype, layout=grad_output.layout, device=grad_output.device
    )
    if scale_grad_by_freq:
        counts = _aten.full.default([num_weights], 0, dtype=dtypes.int64, device=grad_output.device)
        counts = _aten.index_put.default(counts, [indices], _aten.full_like.default(indices, 1), True)
        grad_output = grad_output / _aten.index.Tensor(counts, [indices]).unsqueeze(-1)
    skipped = (indices == padding_idx).unsqueeze(-1)
    return _aten.index_put.default(rows, [indices], _aten.where.self(skipped, _zero(grad_output), grad_output), True)


# -- of elements that were moved -----------------------------------------------------------------------------------------


@decomposes("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def reflection_pad_backward(grad_output: Any, self: Any, padding: Any) -> Any:
    for at in range(len(padding) // 2):
        before, after = padding[2 * at : 2 * at + 2]
        dim = self.ndim - 1 - at
        n = self.shape[dim]
        made = _padded(grad_output, dim, -before, -after)
        if before > 0:                                # mirrored at the first element, which stands for itself
            made = made + _padded(grad_output.narrow(dim, 0, before).flip([dim]), dim, 1, n - 1 - before)
        if after > 0:
            made = made + _padded(grad_output.narrow(dim, before + n, after).flip([dim]), dim, n - 1 - after, 1)
        grad_output = made
    return grad_output


def _padded(x: Any, dim: int, before: Any, after: Any) -> Any:
    return _aten.constant_pad_nd.default(x, [0, 0] * (x.ndim - 1 - dim) + [before, after], 0.0)


@decomposes("diagonal_backward")
def diagonal_backward(grad_output: Any, input_sizes: Any, offset: int, dim1: int, dim2: int) -> Any:
    return grad_output.new_zeros(input_sizes).diagonal_scatter(grad_output, offset, dim1, dim2)


@decomposes("unfold_backward")
def unfold_backward(grad_in: Any, input_sizes: Any, dim: int, size: int, step: int) -> Any:
    if not input_sizes:
        return grad_in.squeeze(0)
    dim %= len(input_sizes)
    at = places(grad_in.shape[dim], grad_in).unsqueeze(1) * step + places(size, grad_in)
    windows = grad_in.movedim(-1, dim + 1)
    made = _aten.full.default(list(input_sizes), 0, dtype=grad_in.dtype, device=grad_in.device)
    return _aten.index_put.default(made, [None] * dim + [at], windows, True)


@decomposes("value_selecting_reduction_backward")
def value_selecting_reduction_backward(grad: Any, dim: int, indices: Any, sizes: Any, keepdim: bool) -> Any:
    if not keepdim and len(sizes) > 0:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(sizes).scatter(dim, indices, grad)
