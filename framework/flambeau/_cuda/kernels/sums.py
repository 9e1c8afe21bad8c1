"""Reductions that are ops of their own, and cumulative ones."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from flambeau_kernels.cuda import reduce

from ...tensor import wrap, wrap_dim
from .. import arrays

_INT64 = np.dtype(np.int64)


def _extreme(largest: bool) -> Any:
    def kernel(a: Any, dim: int, keepdim: bool) -> Any:
        if not a.ndim:
            return wrap(a).clone()._array, arrays.filled((), _INT64, 0)
        axes = (wrap_dim(dim, a.ndim),)
        return tuple(reduce.fold(reduce.extreme_fold(largest, a.dtype), a, axes, keepdim, a.dtype, (a.dtype, _INT64)))

    return kernel


def _argument(largest: bool) -> Any:
    def kernel(a: Any, dim: Any, keepdim: bool) -> Any:
        if not a.ndim:
            return arrays.filled((), _INT64, 0)
        axes = tuple(range(a.ndim)) if dim is None else (wrap_dim(dim, a.ndim),)
        return reduce.fold(reduce.argument_fold(largest, a.dtype), a, axes, keepdim, a.dtype, (_INT64,))[0]

    return kernel


max_along, min_along = _extreme(True), _extreme(False)
argmax, argmin = _argument(True), _argument(False)


def variance(a: Any, dims: Any, correction: Any, keepdim: bool) -> Any:
    if a.dtype.kind == "c":
        x = wrap(a)
        real, imag = x.real.contiguous()._array, x.imag.contiguous()._array
        return variance(real, dims, correction, keepdim) + variance(imag, dims, correction, keepdim)
    if not a.size:
        return (wrap(a).sum(tuple(dims), keepdim) * float("nan"))._array
    return reduce.fold(reduce.variance_fold(a.dtype, correction), a, tuple(dims), keepdim, a.dtype, (a.dtype,))[0]


def deviation(a: Any, dims: Any, correction: Any, keepdim: bool) -> Any:
    return wrap(variance(a, dims, correction, keepdim)).sqrt()._array


def norm(a: Any, order: Any, dims: Any, keepdim: bool) -> Any:
    x = wrap(a)
    wide = x.float() if a.dtype.itemsize == 2 else x
    size, d = wide.abs(), tuple(dims)
    if order in (inf, -inf):
        made = size.amax(d, keepdim) if order > 0 else size.amin(d, keepdim)
    elif order == 0:
        made = (size != 0).sum(d, keepdim).to(size.dtype)
    elif order == 1:
        made = size.sum(d, keepdim)
    elif order == 2:
        made = (size * size).sum(d, keepdim).sqrt()
    else:
        made = (size**order).sum(d, keepdim) ** (1 / order)
    return made.to(x.dtype.to_real())._array


def length(a: Any, p: float, dim: int, shared: bool) -> Any:
    if not a.ndim or not a.size:
        return (wrap(a).abs() if not a.ndim else wrap(a).abs().sum(dim, True))._array
    return norm(a, inf if p == inf else p, (wrap_dim(dim, a.ndim),), True)


def lengths_between(a: Any, b: Any, p: float, compute_mode: Any) -> Any:
    from ...ops.linear_algebra.distance import distances_by_product

    x, y = wrap(a), wrap(b)
    if p == 2 and max(a.shape[-2], b.shape[-2]) > 25:
        return distances_by_product(x, y)._array
    return length((x.unsqueeze(-2) - y.unsqueeze(-3))._array, p, a.ndim, False)[..., 0]


def pair_lengths(a: Any, p: float) -> Any:
    from ...ops._spec import OPS

    x, n = wrap(a), a.shape[-2]
    first, second = OPS["triu_indices"].function(n, n, 1, device=x.device)
    return length((x.index_select(-2, first) - x.index_select(-2, second))._array, p, a.ndim - 1, False)[..., 0]


def logsumexp(a: Any, dims: Any, keepdim: bool) -> Any:
    x = wrap(a)
    wide = x.float() if x.dtype.is_floating_point and a.dtype.itemsize == 2 else x if x.dtype.is_floating_point else x.to(_default())
    d = tuple(dims)
    if not a.size:
        return wide.exp().sum(d, keepdim).log()._array
    top = wide.amax(d, True)
    top = top.masked_fill(top.abs() == inf, 0)
    made = (wide - top).exp().sum(d, True).log() + top
    if not keepdim:
        made = made.reshape([n for i, n in enumerate(made.shape) if i not in d])
    return (made.to(x.dtype) if x.dtype.is_floating_point else made)._array


def _default() -> Any:
    from ... import dtypes

    return dtypes.get_default_dtype()


def mean_squared_error(a: Any, b: Any) -> Any:
    difference = wrap(a) - wrap(b)
    return (difference * difference).mean()._array


# -- cumulative -------------------------------------------------------------------------------------------------------------


def _scan(name: str) -> Any:
    def kernel(a: Any, dim: int, dtype: Any) -> Any:
        from ... import dtypes
        from ...ops.reductions.scan import _dtype_of_total

        target = _dtype_of_total(dtypes.from_numpy_dtype(a.dtype), dtype)
        x = wrap(a).to(target)
        if not a.ndim or not a.size:
            return x.clone()._array
        wide = x.float() if target.itemsize == 2 and target.is_floating_point else x
        made = getattr(arrays.library(), name)(wide._array, axis=wrap_dim(dim, a.ndim))
        return wrap(made).to(target)._array

    return kernel


cumsum, cumprod = _scan("cumsum"), _scan("cumprod")


# -- order ------------------------------------------------------------------------------------------------------------------


def sort_pair(a: Any, dim: int, descending: bool) -> Any:
    x = wrap(a)
    if not a.ndim:
        return x.clone()._array, arrays.filled((), _INT64, 0)
    if a.dtype.kind not in "fiub" or a.dtype.itemsize == 1 and a.dtype.kind == "b":
        x = x.to(_small_int())
    d = wrap_dim(dim, a.ndim)
    # Descending and stable is ascending and stable from the back.
    given = x.flip([d]) if descending else x
    order = wrap(arrays.library().argsort(_sortable(given), axis=d, kind="stable")).to(_i64())
    if descending:
        order = (a.shape[d] - 1 - order).flip([d])
    return wrap(a).gather(d, order)._array, order._array


def _sortable(x: Any) -> Any:
    return x.float()._array if x.dtype.name == "bfloat16" else x._array


def _small_int() -> Any:
    from ... import dtypes

    return dtypes.uint8


def _i64() -> Any:
    from ... import dtypes

    return dtypes.int64


def topk_pair(a: Any, k: int, dim: int, largest: bool) -> Any:
    if not a.ndim:
        return sort_pair(a, 0, largest)
    values, places = sort_pair(a, dim, largest)
    d = wrap_dim(dim, a.ndim)
    return wrap(values).narrow(d, 0, k).contiguous()._array, wrap(places).narrow(d, 0, k).contiguous()._array


def sum_to(grad: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """`grad` added up over `axes`, in the shape `shape`."""
    from ...ops._spec import OPS

    return reduce.reduce(OPS["sum"].rule, grad, axes, True, grad.dtype, grad.dtype).reshape(shape)
