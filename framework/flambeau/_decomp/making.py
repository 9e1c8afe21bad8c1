"""Decompositions of operators that make tensors, move elements or write at places: what they are in core operators."""

from __future__ import annotations

import math
from typing import Any

from .. import _ops, dtypes
from ..ops import _dispatch
from ..tensor import Tensor
from .table import decomposes

_aten: Any = _ops.ops.aten


def _options(given: dict[str, Any], like: Any = None) -> dict[str, Any]:
    """The options of a tensor to make: those of `like` where none are given."""
    options = {name: value for name, value in given.items() if value is not None and name != "memory_format"}
    if like is not None:
        options = {"dtype": like.dtype, "layout": like.layout, "device": like.device, **options}
    return options


# -- tensors of one number, and counting ones ----------------------------------------------------------------------------


def _filled(size: Any, value: Any, options: dict[str, Any]) -> Any:
    if "dtype" not in options:
        options["dtype"] = dtypes.get_default_dtype()
    return _aten.full.default(list(size), value, **options)


@decomposes("ones")
def ones(size: Any, **options: Any) -> Any:
    return _filled(size, 1, _options(options))


@decomposes("zeros")
def zeros(size: Any, **options: Any) -> Any:
    return _filled(size, 0, _options(options))


@decomposes("ones_like")
def ones_like(self: Any, **options: Any) -> Any:
    return _aten.full_like.default(self, 1, **options)


@decomposes("zeros_like")
def zeros_like(self: Any, **options: Any) -> Any:
    return _aten.full_like.default(self, 0, **options)


@decomposes("new_ones")
def new_ones(self: Any, size: Any, **options: Any) -> Any:
    return _filled(size, 1, _options(options, self))


@decomposes("new_zeros")
def new_zeros(self: Any, size: Any, **options: Any) -> Any:
    return _filled(size, 0, _options(options, self))


@decomposes("new_full")
def new_full(self: Any, size: Any, fill_value: Any, **options: Any) -> Any:
    return _filled(size, fill_value, _options(options, self))


@decomposes("fill.Scalar")
def fill(self: Any, value: Any) -> Any:
    return _aten.full_like.default(self, value)


@decomposes("fill.Tensor")
def fill_with(self: Any, value: Any) -> Any:
    return _aten.copy.default(self, value)


@decomposes("hann_window", "hann_window.periodic")
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Any:
    if window_length <= 1:
        return ones([window_length], **options)
    wanted = _options(options)
    dtype = wanted.pop("dtype", None) or dtypes.get_default_dtype()
    place = arange(window_length, dtype=dtypes.float64, **wanted) * (2 * math.pi / (window_length - (not periodic)))
    return (0.5 - 0.5 * _aten.cos.default(place)).to(dtype)


@decomposes("new_empty")
def new_empty(self: Any, size: Any, **options: Any) -> Any:
    return _aten.empty.memory_format(list(size), **_options(options, self))


@decomposes("arange", "arange.start")
def arange(*bounds: Any, **options: Any) -> Any:
    start, end = bounds if len(bounds) == 2 else (0, *bounds)
    # The function takes a step of 1 for none, so interpreters are asked for the operator that has one.
    made = _dispatch.made_there("arange", {"start": start, "end": end, "step": 1, "device": None, **options})
    return _aten.arange.start_step(start, end, 1, **options) if made is None else made


def places(n: Any, like: Any) -> Any:
    """The numbers up to `n`, where `like` is."""
    return arange(n, dtype=dtypes.int64, layout=like.layout, device=like.device)


@decomposes("eye", "eye.m")
def eye(n: Any, m: Any = None, **options: Any) -> Any:
    wanted = _options(options)
    dtype = wanted.pop("dtype", None) or dtypes.get_default_dtype()
    rows = arange(n, dtype=dtypes.int64, **wanted).unsqueeze(1)
    return (rows == arange(n if m is None else m, dtype=dtypes.int64, **wanted)).to(dtype)


@decomposes("linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(start: Any, end: Any, steps: int, **options: Any) -> Any:
    wanted = _options(options)
    dtype = wanted.pop("dtype", None) or dtypes.get_default_dtype()
    if steps <= 1 or not dtype.is_floating_point:
        return NotImplemented if steps > 1 or isinstance(start, Tensor) else _filled([steps], start, wanted | {"dtype": dtype})
    computed = dtypes.float32 if dtype.itemsize == 2 else dtype
    place = arange(steps, dtype=computed, **wanted)
    step = (end - start) / (steps - 1)
    # Each half is counted from its end, so both ends are exact.
    made = _aten.where.self(place < steps // 2, place * step + start, end - (steps - 1 - place) * step)
    return made.to(dtype)


@decomposes("logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> Any:
    wanted = _options(options)
    dtype = wanted.pop("dtype", None) or dtypes.get_default_dtype()
    if not dtype.is_floating_point or base < 0:
        return NotImplemented
    return _aten.pow.Scalar(base, _aten.linspace.default(start, end, steps, dtype=dtypes.float64, **wanted)).to(dtype)


@decomposes("norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype")
def norm(self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _aten.linalg_vector_norm.default(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


@decomposes("empty_like")
def empty_like(self: Any, **options: Any) -> Any:
    return _aten.empty.memory_format(list(self.shape), **_options(options, self))


@decomposes("tril")
def tril(self: Any, diagonal: Any = 0) -> Any:
    return _aten.where.self(_columns_less_rows(self) <= diagonal, self, _aten.scalar_tensor.default(0, dtype=self.dtype))


@decomposes("triu")
def triu(self: Any, diagonal: Any = 0) -> Any:
    return _aten.where.self(_columns_less_rows(self) >= diagonal, self, _aten.scalar_tensor.default(0, dtype=self.dtype))


def _columns_less_rows(matrix: Any) -> Any:
    return places(matrix.shape[-1], matrix) - places(matrix.shape[-2], matrix).unsqueeze(1)


@decomposes("diag_embed")
def diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    ndim = self.ndim + 1
    at = {dim1 % ndim, dim2 % ndim}
    n = self.shape[-1] + abs(offset)
    # The elements as rows; those of a diagonal below are as far from the start.
    line = _aten.constant_pad_nd.default(self, [max(-offset, 0), max(offset, 0)], 0)
    rows, columns = places(n, self).unsqueeze(1), places(n, self)
    made = _aten.where.self(columns - rows == offset, line.unsqueeze(-1), _aten.scalar_tensor.default(0, dtype=self.dtype))
    rest = iter(range(ndim - 2))
    order = [ndim - 2 if d == dim1 % ndim else ndim - 1 if d == dim2 % ndim else next(rest) for d in range(ndim)]
    return made if order == list(range(ndim)) or len(at) < 2 else made.permute(order)


# -- the same elements elsewhere -----------------------------------------------------------------------------------------


@decomposes("_unsafe_view")
def _unsafe_view(self: Any, size: Any) -> Any:
    return self.view(size)


@decomposes("_reshape_alias")
def _reshape_alias(self: Any, size: Any, stride: Any) -> Any:
    return self.view(size)


@decomposes("unsafe_split_with_sizes")
def unsafe_split_with_sizes(self: Any, split_sizes: Any, dim: int = 0) -> Any:
    return _aten.split_with_sizes.default(self, split_sizes, dim)


@decomposes("split.Tensor", "unsafe_split.Tensor")
def split(self: Any, split_size: Any, dim: int = 0) -> Any:
    n = self.shape[dim]
    if n == 0 or split_size == 0:
        return NotImplemented
    whole, rest = divmod(n, split_size)
    return _aten.split_with_sizes.default(self, [split_size] * whole + ([rest] if rest else []), dim)


@decomposes("roll")
def roll(self: Any, shifts: Any, dims: Any = ()) -> Any:
    shifts = shifts if isinstance(shifts, (list, tuple)) else [shifts]
    dims = dims if isinstance(dims, (list, tuple)) else [dims]
    if not dims:
        return roll(self.reshape([-1]), shifts, [0]).view(self.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        n = self.shape[dim]
        if n:
            turned = n - shift % n
            self = _aten.cat.default([self.narrow(dim, turned, n - turned), self.narrow(dim, 0, turned)], dim)
    return self.clone() if not any(shifts) else self


@decomposes("take")
def take(self: Any, index: Any) -> Any:
    return _aten.index.Tensor(self.reshape([-1]), [index])


@decomposes("select_scatter")
def select_scatter(self: Any, src: Any, dim: int, index: Any) -> Any:
    dim %= self.ndim
    here = places(self.shape[dim], self).view([-1] + [1] * (self.ndim - dim - 1)) == index % self.shape[dim]
    return _aten.where.self(here, src.unsqueeze(dim).expand(self.shape), self)


# -- at places -----------------------------------------------------------------------------------------------------------


@decomposes("_unsafe_index.Tensor")
def _unsafe_index(self: Any, indices: Any) -> Any:
    return _aten.index.Tensor(self, indices)


@decomposes("_unsafe_index_put")
def _unsafe_index_put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return _aten.index_put.default(self, indices, values, accumulate)


@decomposes("_unsafe_masked_index")
def _unsafe_masked_index(self: Any, mask: Any, indices: Any, fill: Any) -> Any:
    found = _aten.index.Tensor(self, _within(self, indices))
    return _aten.where.self(mask, found, _aten.scalar_tensor.default(fill, dtype=self.dtype))


@decomposes("_unsafe_masked_index_put_accumulate")
def _unsafe_masked_index_put_accumulate(self: Any, mask: Any, indices: Any, values: Any) -> Any:
    added = _aten.where.self(mask, values, _aten.scalar_tensor.default(0, dtype=values.dtype))
    return _aten.index_put.default(self, _within(self, indices), added, True)


def _within(self: Any, indices: Any) -> list[Any]:
    """`indices` with those that are outside `self` moved to its edges."""
    return [None if i is None else i.clamp(0, self.shape[d] - 1) for d, i in enumerate(indices)]


@decomposes("index_add")
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return _put(self, dim, index, source if alpha == 1 else source * alpha, True)


@decomposes("index_copy")
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    return _put(self, dim, index, source, False)


@decomposes("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    value = value.to(self.dtype) if isinstance(value, Tensor) else _aten.scalar_tensor.default(value, dtype=self.dtype)
    return _put(self, dim, index, value, False)


def _put(self: Any, dim: int, index: Any, values: Any, accumulate: bool) -> Any:
    if self.ndim == 0:
        return _put(self.view([1]), 0, index, values.view([-1]), accumulate).view([])
    return _aten.index_put.default(self, [None] * (dim % self.ndim) + [index], values, accumulate)


# -- along dimensions ----------------------------------------------------------------------------------------------------


@decomposes("all.dims")
def all_(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    dims = list(range(self.ndim)) if dim is None else list(dim)
    return _aten.logical_not.default(_aten.any.dims(_aten.logical_not.default(self), dims, keepdim))


@decomposes("count_nonzero.dim_IntList")
def count_nonzero(self: Any, dim: Any) -> Any:
    return _aten.sum.dim_IntList(_aten.ne.Scalar(self, 0), list(dim))


@decomposes("sum")
def sum_(self: Any, *, dtype: Any = None) -> Any:
    return _aten.sum.dim_IntList(self, [], dtype=dtype)


@decomposes("nansum")
def nansum(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    numbers = self if not self.dtype.is_floating_point else _aten.where.self(
        _aten.isnan.default(self), _aten.scalar_tensor.default(0, dtype=self.dtype), self
    )
    return _aten.sum.dim_IntList(numbers, dim, keepdim, dtype=dtype)


@decomposes("var", "var.dim")
def var(self: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return _aten.var.correction(self, dim, correction=int(unbiased), keepdim=keepdim)


@decomposes("aminmax")
def aminmax(self: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    dims = [] if dim is None else [dim]
    return _aten.amin.default(self, dims, keepdim), _aten.amax.default(self, dims, keepdim)


@decomposes("linalg_cross")
def linalg_cross(self: Any, other: Any, *, dim: int = -1) -> Any:
    # Each component is made of the two after it.
    return roll(self, -1, dim) * roll(other, -2, dim) - roll(self, -2, dim) * roll(other, -1, dim)


@decomposes("_safe_softmax")
def _safe_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    made = self.softmax(dim, dtype=dtype)
    nothing = _aten.logical_not.default(_aten.any.dim(self != -float("inf"), dim, True))
    return _aten.where.self(nothing, _aten.scalar_tensor.default(0, dtype=made.dtype), made)


@decomposes("_weight_norm_interface")
def _weight_norm_interface(v: Any, g: Any, dim: int = 0) -> Any:
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    norm = _aten.sqrt.default(_aten.sum.dim_IntList(v * v, others, True))
    return v * (g / norm), norm


@decomposes("_euclidean_dist")
def _euclidean_dist(x1: Any, x2: Any) -> Any:
    # The squares of differences as one product: -2ab + aa + bb.
    a, b = _aten.sum.dim_IntList(x1 * x1, [-1], True), _aten.sum.dim_IntList(x2 * x2, [-1], True)
    left = _aten.cat.default([x1 * -2, a, _aten.full_like.default(a, 1)], -1)
    right = _aten.cat.default([x2, _aten.full_like.default(b, 1), b], -1)
    return left.matmul(right.mT).clamp(min=0).sqrt()
