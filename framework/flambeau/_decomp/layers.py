"""Decompositions of layers: pools, norms, attention, losses and resampling, as PyTorch's core operators."""

from __future__ import annotations

import math
from typing import Any

from .. import _ops, broadcast_tensors, dtypes
from .gradients import nll_loss_forward
from .making import arange, places
from .table import decomposes

_aten: Any = _ops.ops.aten


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


# -- pools: those along one dimension are of images of one row -----------------------------------------------------------


@decomposes("max_pool1d")
def max_pool1d(self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
    k, s, p, d = _list(kernel_size), _list(stride), _list(padding), _list(dilation)
    rows = self.unsqueeze(-2)
    made, _ = _aten.max_pool2d_with_indices.default(rows, [1, *k], [1, *(s or k)], [0, *p], [1, *d], ceil_mode)
    return made.squeeze(-2)


@decomposes("max_pool2d")
def max_pool2d(self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
    return _aten.max_pool2d_with_indices.default(self, kernel_size, stride, padding, dilation, ceil_mode)[0]


@decomposes("max_pool3d")
def max_pool3d(self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
    return _aten.max_pool3d_with_indices.default(self, kernel_size, stride, padding, dilation, ceil_mode)[0]


@decomposes("avg_pool1d")
def avg_pool1d(
    self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
) -> Any:
    k, s, p = _list(kernel_size), _list(stride), _list(padding)
    made = _aten.avg_pool2d.default(self.unsqueeze(-2), [1, *k], [1, *(s or k)], [0, *p], ceil_mode, count_include_pad)
    return made.squeeze(-2)


@decomposes("adaptive_avg_pool1d")
def adaptive_avg_pool1d(self: Any, output_size: Any) -> Any:
    return adaptive_avg_pool2d(self.unsqueeze(-2), [1, *_list(output_size)]).squeeze(-2)


@decomposes("adaptive_avg_pool2d")
def adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    if all(n == 1 for n in output_size):
        return _aten.mean.dim(self, [-1, -2], True)
    return _aten._adaptive_avg_pool2d.default(self, _sizes(self, output_size))


@decomposes("adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: Any, output_size: Any) -> Any:
    if all(n == 1 for n in output_size):
        return _aten.mean.dim(self, [-1, -2, -3], True)
    return _aten._adaptive_avg_pool3d.default(self, _sizes(self, output_size))


def _sizes(x: Any, asked: Any) -> list[Any]:
    """Sizes of the last dimensions; None is the one that `x` has."""
    return [x.shape[d - len(asked)] if n is None else n for d, n in enumerate(asked)]


# -- norms ---------------------------------------------------------------------------------------------------------------


@decomposes("layer_norm")
def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:
    return _aten.native_layer_norm.default(input, normalized_shape, weight, bias, eps)[0]


@decomposes("dropout")
def dropout(input: Any, p: float, train: bool) -> Any:
    return _aten.native_dropout.default(input, p, train)[0] if train and p else _aten.clone.default(input)


@decomposes("embedding_bag", "embedding_bag.padding_idx")
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    given = scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset
    return _aten._embedding_bag.default(weight, indices, offsets, *given, padding)


@decomposes("group_norm")
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    n, channels = input.shape[:2]
    elements = math.prod(input.shape[2:])
    return _aten.native_group_norm.default(input, weight, bias, n, channels, elements, num_groups, eps)[0]


@decomposes("instance_norm")
def instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if running_mean is not None or not use_input_stats:
        return NotImplemented
    return group_norm(input, input.shape[1], weight, bias, eps)


@decomposes("rms_norm")
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    dims = list(range(input.ndim - len(normalized_shape), input.ndim))
    x = input.to(dtypes.float32) if input.dtype.itemsize == 2 else input
    eps = dtypes.finfo(x.dtype).eps if eps is None else eps
    made = x * _aten.rsqrt.default(_aten.mean.dim(_aten.pow.Tensor_Scalar(x, 2), dims, True) + eps)
    return (made if weight is None else made * weight).to(input.dtype)


# -- attention and losses ------------------------------------------------------------------------------------------------


@decomposes("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p:
        return NotImplemented
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query.matmul(key.mT) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    hidden = _aten.scalar_tensor.default(-math.inf, dtype=scores.dtype)
    if is_causal:
        seen = places(key.shape[-2], key) <= places(query.shape[-2], key).unsqueeze(1)
        scores = _aten.where.self(seen, scores, hidden)
    if attn_mask is None:
        return scores.softmax(-1).matmul(value)
    scores = _aten.where.self(attn_mask, scores, hidden) if attn_mask.dtype is dtypes.bool else scores + attn_mask
    return _aten._safe_softmax.default(scores, -1).matmul(value)


@decomposes("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return nll_loss_forward(self, target, weight, reduction, ignore_index)[0]


@decomposes("cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    x1, x2 = broadcast_tensors(x1, x2)
    lengths = [_aten.linalg_vector_norm.default(x, 2, [dim], True).clamp(min=eps) for x in (x1, x2)]
    return _aten.sum.dim_IntList((x1 / lengths[0]) * (x2 / lengths[1]), [dim])


@decomposes("pairwise_distance")
def pairwise_distance(x1: Any, x2: Any, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return _aten.linalg_vector_norm.default(x1 - x2 + eps, p, [-1], keepdim)


@decomposes("logsumexp")
def logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    dims = _list(dim)
    x = self if self.dtype.is_floating_point or self.dtype.is_complex else self.to(dtypes.get_default_dtype())
    if x.dtype.is_complex or x.numel() == 0:
        return NotImplemented
    largest = _aten.amax.default(x, dims, True)
    shift = _aten.where.self(_aten.isinf.default(largest), _aten.scalar_tensor.default(0, dtype=x.dtype), largest)
    made = _aten.log.default(_aten.sum.dim_IntList(_aten.exp.default(x - shift), dims, True)) + shift
    return made if keepdim else made.squeeze(tuple(dims)) if dims else made.view([])


# -- of elements ---------------------------------------------------------------------------------------------------------


@decomposes("isfinite")
def isfinite(self: Any) -> Any:
    if not self.dtype.is_floating_point:
        return NotImplemented if self.dtype.is_complex else _aten.full_like.default(self, True, dtype=dtypes.bool)
    return _aten.logical_not.default(_aten.logical_or.default(_aten.isnan.default(self), _aten.isinf.default(self)))


@decomposes("special_ndtr")
def special_ndtr(self: Any) -> Any:
    return (_aten.erf.default(self * math.sqrt(0.5)) + 1) * 0.5


@decomposes("special_log_ndtr")
def special_log_ndtr(self: Any) -> Any:
    t = self * math.sqrt(0.5)
    small = _aten.log.default(_aten.special_erfcx.default(-t) * 0.5) - t * t
    return _aten.where.self(self < -1, small, _aten.log1p.default(_aten.erfc.default(t) * -0.5))


@decomposes("floor_divide", "floor_divide.Scalar")
def floor_divide(self: Any, other: Any) -> Any:
    return _aten.div.Tensor_mode(self, other, rounding_mode="floor")


@decomposes("clamp_min.Tensor")
def clamp_min(self: Any, min: Any) -> Any:
    return _aten.maximum.default(self, min)


@decomposes("clamp_max.Tensor")
def clamp_max(self: Any, max: Any) -> Any:
    return _aten.minimum.default(self, max)


@decomposes("clamp_max")
def clamp_max_by_number(self: Any, max: Any) -> Any:
    return _aten.clamp.default(self, None, max)


@decomposes("where.Scalar", "where.ScalarSelf", "where.ScalarOther")
def where(condition: Any, self: Any, other: Any) -> Any:
    from .. import result_type

    # Promotion is that of numbers, which tensors made of them no longer are.
    dtype = result_type(self, other)
    return _aten.where.self(condition, *(x if hasattr(x, "ndim") else _aten.scalar_tensor.default(x, dtype=dtype) for x in (self, other)))


# -- resampling ----------------------------------------------------------------------------------------------------------


def _nearest(n: int, exact: bool) -> Any:
    """Resampling of the last `n` dimensions by the nearest element."""

    def resampled(self: Any, output_size: Any, *scales: Any) -> Any:
        for at in range(n):
            dim, size = self.ndim - n + at, output_size[at]
            scale = scales[at] if at < len(scales) else None
            step = self.shape[dim] / size if scale is None else 1 / scale
            place = arange(size, dtype=dtypes.float32, device=self.device)
            place = ((place + 0.5 if exact else place) * step).to(dtypes.int64).clamp(max=self.shape[dim] - 1)
            self = _aten.index_select.default(self, dim, place)
        return self

    return resampled


for _rank in (1, 2, 3):
    decomposes(f"upsample_nearest{_rank}d")(_nearest(_rank, False))
    decomposes(f"_upsample_nearest_exact{_rank}d")(_nearest(_rank, True))


@decomposes("upsample_linear1d")
def upsample_linear1d(self: Any, output_size: Any, align_corners: bool, scales: Any = None) -> Any:
    n, (size,) = self.shape[-1], output_size
    place = arange(size, dtype=self.dtype, device=self.device)
    if align_corners:
        place = place * ((n - 1) / (size - 1) if size > 1 else 0.0)
    else:
        place = ((place + 0.5) * (n / size if scales is None else 1 / scales) - 0.5).clamp(min=0)
    left = place.to(dtypes.int64).clamp(max=n - 1)
    weight = (place - left).clamp(0, 1)
    first, second = (_aten.index_select.default(self, self.ndim - 1, at) for at in (left, (left + 1).clamp(max=n - 1)))
    return first * (1 - weight) + second * weight
