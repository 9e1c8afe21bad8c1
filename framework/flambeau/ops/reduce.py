"""Reductions over dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import small
from flambeau_kernels.cpu import extremes, moments
from flambeau_kernels.vocabulary import isnan, sqrt, where

from .. import _state, dtypes
from ..tensor import Tensor, wrap, wrap_dim
from ._spec import (
    FUNCTION,
    METHOD,
    OUT,
    bool_dtype,
    check_nonempty,
    composite,
    floating_dtype,
    primitive,
    reduced_shape,
    reduction,
    refuse_other_dtype_out,
    spread_dims,
    wrap_dims,
)  # fmt: skip


@reduction(identity=0, combine="add", partial=lambda: 1, autocast="float32")
def sum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum over `dim` (an int, several, or all by default). Integers and bools add up in int64; halves in float32.

    Args:
        dtype: `input` is converted to it first, which also is the dtype of the result.

    >>> fb.tensor([[True, True], [False, True]]).sum(dim=1)
    tensor([2, 1])
    """


@sum.fast
def _sum_fast(input, dim, keepdim, dtype):
    """The whole of a small plain float tensor."""
    if dim is not None or dtype is not None or keepdim or input.__class__ is not Tensor:
        return None
    a = input._a
    o = small.sum(a)
    if o is None:
        o = small.numpy_sum(a)
        if o is None:
            return None
    made = wrap(o)
    node = input._n
    if node is not None and (_state.GRAD or _state.local.grad):
        made._n = sum.node_for(node, a)
    return made


def _nan_as_zero(x):
    return where(isnan(x), 0, x)


@reduction(identity=0, map=_nan_as_zero, combine="add", partial=lambda input: where(isnan(input), 0, 1))
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum over `dim` with nan counted as zero. An empty sum is 0."""


def _average(total, n):
    return total / n if n else total * np.nan


@reduction(dtype=floating_dtype, identity=0, combine="add", finish=_average,
           vjp=lambda grad, shape, dims, keepdim: spread_dims(grad, shape, dims, keepdim) / _count(shape, dims))  # fmt: skip
def mean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean over `dim`; nan when there is nothing.

    Args:
        dtype: floating or complex; `input` is converted to it first.
    Raises: RuntimeError for integers unless `dtype` is given.
    """


def _count(shape: Any, dims: Any) -> int:
    n = 1
    for d in dims:
        n *= shape[d]
    return n


@composite(surface=FUNCTION | METHOD | OUT)
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean over `dim` of the elements that are not nan."""
    if not input.dtype.category >= dtypes.FLOATING:
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype}")
    count = (input == input).sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


def _prod_vjp(grad, out, input, shape, dims, keepdim):
    """Each element's gradient is the product of the others: by division, or, beside zeros, by products from both sides."""
    if (input != 0).all():
        return spread_dims(grad * out.conj(), shape, dims, keepdim) / input.conj()
    others = _products_of_others(input, dims)
    return spread_dims(grad, shape, dims, keepdim) * others.conj()


def _products_of_others(input: Tensor, dims: Any) -> Tensor:
    kept = [d for d in range(input.ndim) if d not in dims]
    order = [*kept, *dims]
    flat = input.permute(order).reshape([input.shape[d] for d in kept] + [-1])
    one = flat.new_ones((*flat.shape[:-1], 1))
    left = _cat([one, flat.narrow(-1, 0, flat.shape[-1] - 1)]).cumprod(-1)
    right = _cat([one, flat.flip(-1).narrow(-1, 0, flat.shape[-1] - 1)]).cumprod(-1).flip(-1)
    back = [0] * input.ndim
    for at, d in enumerate(order):
        back[d] = at
    return (left * right).reshape([input.shape[d] for d in order]).permute(back)


def _cat(parts: Any) -> Tensor:
    from .join import cat

    return cat(parts, -1)


@reduction(identity=1, combine="mul", vjp=_prod_vjp)
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """The product over `dim` (an int, several, or all by default); of nothing, 1. Integers multiply in int64.

    Args:
        dtype: `input` is converted to it first.
    """


def _share(grad, out, input, shape, dims, keepdim):
    """Elements equal to the extreme share the gradient equally."""
    at = (input == spread_dims(out, shape, dims, keepdim)) | (isnan_tensor(input) & isnan_tensor(spread_dims(out, shape, dims, keepdim)))
    return at * spread_dims(grad / at.sum(dims or None, keepdim), shape, dims, keepdim)


def isnan_tensor(x: Tensor) -> Tensor:
    return x != x


def _ordered(op: Any, given: Any, dtype: Any) -> Any:
    if given.is_complex:
        raise NotImplementedError(f'"{op.said}" not implemented for {given}: complex values have no order')
    return given, given


@reduction(dtype=_ordered, combine="max", vjp=_share)
def amax(input, dim=(), keepdim=False):
    """The largest value over `dim`; nan wins. Tied values share the gradient equally.

    Unlike `max` it takes several dimensions and gives no indices. Raises: IndexError where there is nothing.
    """


@reduction(dtype=_ordered, combine="min", vjp=_share)
def amin(input, dim=(), keepdim=False):
    """The smallest value over `dim`; nan wins. Tied values share the gradient equally.

    Unlike `min` it takes several dimensions and gives no indices. Raises: IndexError where there is nothing.
    """


@composite(surface=FUNCTION | METHOD | OUT)
def aminmax(input, *, dim=None, keepdim=False):
    """The smallest and largest value over `dim` (or all), as a named tuple ``(min, max)``."""
    from . import _derive

    if dim is None and input.numel() == 0:
        raise RuntimeError(f"aminmax(): cannot compute aminmax over an input without elements, of shape {tuple(input.shape)}; give dim")
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"aminmax(): argument 'dim' must be int, not {type(dim).__name__}; amin and amax take several")
    if input.is_complex():
        raise NotImplementedError(f"aminmax: not implemented for {input.dtype}, which has no order")
    d = () if dim is None else dim
    pair = (amin(input, d, keepdim), amax(input, d, keepdim))
    return _derive.return_type("aminmax", ("min", "max"))(pair)


refuse_other_dtype_out(aminmax)


def _is_not_zero(x):
    return x != 0


@reduction(dtype=bool_dtype, identity=1, map=_is_not_zero, combine="and")
def all(input, dim=None, keepdim=False):
    """Whether every element over `dim` is non-zero, True where there is none: bool, but uint8 for uint8."""


@reduction(dtype=bool_dtype, identity=0, map=_is_not_zero, combine="or")
def any(input, dim=None, keepdim=False):
    """Whether some element over `dim` is non-zero, False where there is none: bool, but uint8 for uint8."""


def _count_dtype(op: Any, given: Any, dtype: Any) -> Any:
    return given, dtypes.int64


@reduction(dtype=_count_dtype, identity=0, map=_is_not_zero, combine="add")
def count_nonzero(input, dim=None):
    """The number of non-zero elements over `dim`."""


# -- with indices --------------------------------------------------------------------------------------------------------


def _refuse_complex(name: str, input: Any) -> None:
    if input.is_complex():
        raise RuntimeError(f'"{name}" not implemented for {input.dtype}: complex values have no order')


def _check_index_reduction(name: str) -> Any:
    def check(input, dim, keepdim):
        _refuse_complex(name, input)
        if dim is None:
            if input.numel() == 0:
                raise IndexError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                    f"'dim' argument."
                )
        else:
            d = wrap_dim(dim, input.ndim)
            if input.ndim:
                check_nonempty(name, tuple(input.shape), (d,))

    return check


def _index_shape(input, dim, keepdim):
    axes = wrap_dims("argmax", dim, input.ndim)
    return reduced_shape(tuple(input.shape), axes, keepdim), dtypes.int64


@primitive(surface=FUNCTION | METHOD | OUT, check=_check_index_reduction("argmax"))
def argmax(input, dim=None, keepdim=False):
    """The index of the largest value along `dim`, the first of several, int64; nan counts as largest.

    Without `dim`, of the flattened input. Raises: IndexError where there is nothing.
    """


@argmax.kernel
def _argmax(a, dim, keepdim):
    return extremes.argument(a, dim, keepdim, largest=True)



argmax.shape(_index_shape)


@primitive(surface=FUNCTION | METHOD | OUT, check=_check_index_reduction("argmin"))
def argmin(input, dim=None, keepdim=False):
    """The index of the smallest value along `dim`, the first of several, int64; nan counts as smallest.

    Without `dim`, of the flattened input. Raises: IndexError where there is nothing.
    """


@argmin.kernel
def _argmin(a, dim, keepdim):
    return extremes.argument(a, dim, keepdim, largest=False)



argmin.shape(_index_shape)
argmax.not_differentiable = argmin.not_differentiable = "an index is piecewise constant"


def _extreme(largest: bool) -> Any:
    return lambda a, dim, keepdim: extremes.extreme(a, dim, keepdim, largest)


def _extreme_shape(input, dim, keepdim):
    shape = reduced_shape(tuple(input.shape), wrap_dims("max", dim, input.ndim), keepdim)
    return [(shape, input.dtype), (shape, dtypes.int64)]


def _extreme_vjp(grad, out1, input_shape, dim, keepdim):
    return (put_along(grad[0], out1, input_shape, dim, keepdim),)


def put_along(grad: Tensor, at: Tensor, shape: Any, dim: int, keepdim: bool) -> Tensor:
    """`grad` put at the indices `at` along `dim` of zeros of `shape`."""
    if not shape:
        return grad
    if not keepdim:
        grad, at = grad.unsqueeze(dim), at.unsqueeze(dim)
    return grad.new_zeros(shape).scatter(dim, at, grad)


@primitive(surface=0, returns=("values", "indices"), check=_check_index_reduction("max"))
def max_along(input, dim, keepdim):
    """The largest values along `dim` and their places."""


@primitive(surface=0, returns=("values", "indices"), check=_check_index_reduction("min"))
def min_along(input, dim, keepdim):
    """The smallest values along `dim` and their places."""


for _op, _name, _largest in ((max_along, "max", True), (min_along, "min", False)):
    _op.kernel(_extreme(_largest))
    _op.shape(_extreme_shape)
    _op.vjp(_extreme_vjp)
    _op.name = _name
    _op.node_class.title = f"{_name.title()}Backward0"


def _whole(name: str, reduce: Any, along: Any, pairwise: str, doc: str) -> Any:
    def extreme(input, dim=None, keepdim=False, *, other=None):
        if isinstance(dim, Tensor) or other is not None:
            from ._spec import OPS

            return OPS[pairwise](input, dim if other is None else other)
        if dim is None:
            if input.numel() == 0:
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                    f"'dim' argument."
                )
            if input.is_complex():
                raise NotImplementedError(f'"{name}" not implemented for {input.dtype}: complex values have no order')
            return reduce(input, ())
        return along.function(input, dim, keepdim)

    extreme.__name__, extreme.__doc__ = name, doc
    return composite(surface=FUNCTION | METHOD | OUT)(extreme)


_EXTREME = """The {} value; along `dim`, ``(values, indices)``; of two tensors, `{}`. nan wins.

    Over all of `input`, tied values share the gradient; along `dim`, the first of them is meant.
    Args:
        dim: one dimension, or None for all. For several see `{}`.
        other: a Tensor, by name or in the place of `dim`, compared element by element.
    Raises: RuntimeError, IndexError where there is nothing.
    """
max = _whole("max", amax, max_along, "maximum", _EXTREME.format("largest", "maximum", "amax"))
min = _whole("min", amin, min_along, "minimum", _EXTREME.format("smallest", "minimum", "amin"))


# -- spread --------------------------------------------------------------------------------------------------------------


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return correction
    return 1 if unbiased is None or unbiased else 0


def _check_var(input, dims, correction, keepdim):
    if not input.dtype.category >= dtypes.FLOATING:
        raise RuntimeError(f"std and var only support floating point and complex dtypes, got {input.dtype}")


@primitive(surface=0, check=_check_var)
def variance(input, dims, correction, keepdim):
    """The variance over `dims` with ``count - correction`` in the denominator."""


variance.node_class.title = "VarBackward0"


@variance.kernel
def _variance(a, dims, correction, keepdim):
    return moments.variance(a, dims, correction, keepdim)


@variance.shape
def _variance_shape(input, dims, correction, keepdim):
    return reduced_shape(tuple(input.shape), dims, keepdim), input.dtype.to_real()


@variance.vjp
def _variance_vjp(grad, input, dims, correction, keepdim):
    shape = tuple(input.shape)
    n = _count(shape, dims)
    free = n - correction
    scale = 2 / free if free > 0 else float("nan") if free == 0 else float("inf") * 0
    return (spread_dims(grad, shape, dims, keepdim) * scale * (input - input.mean(dims or None, True)),)


def _parse_var(input: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    elif unbiased is not None and not isinstance(unbiased, bool):
        raise TypeError(f"var(): argument 'unbiased' must be bool, not {type(unbiased).__name__}")
    return wrap_dims("var", dim, input.ndim), _correction(unbiased, correction), keepdim


@composite(surface=FUNCTION | METHOD | OUT)
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The variance over `dim`, the sum of squared deviations over ``count - correction``.

    Args:
        unbiased: an older name for the correction: True is 1, False is 0.
        correction: 1 by default; nan (and a warning) where it leaves nothing to divide by.
    Raises: RuntimeError for integers.

    >>> x = fb.tensor([1.0, 2.0, 3.0, 4.0])
    >>> x.var(), x.var(correction=0)
    (tensor(1.6667), tensor(1.2500))
    """
    return variance.function(input, *_parse_var(input, dim, unbiased, keepdim, correction))


@composite(surface=FUNCTION | METHOD | OUT)
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The standard deviation over `dim`: the root of `var`.

    Args:
        unbiased, correction: as for `var`.
    """
    return _sqrt(variance.function(input, *_parse_var(input, dim, unbiased, keepdim, correction)))


def _sqrt(x: Tensor) -> Tensor:
    return root.function(x)


from ._spec import elementwise  # noqa: E402  # the one scalar formula among the reductions


@elementwise(
    surface=0,
    vjp={"input": lambda grad, out: where(out == 0, 0, grad / (2 * where(out == 0, 1, out)))},
    title="StdBackward0",
    ufunc=np.sqrt,
    samples=(0.1, 4.0),
)
def root(input):
    """The square root with derivative 0 at 0, as the deviation of constant values has."""
    return sqrt(input)


@composite(surface=FUNCTION)
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """``(var, mean)`` over `dim`.

    Args:
        unbiased, correction: as for `var`.
    """
    return var(input, dim, unbiased, keepdim, correction=correction), _mean_of(input, dim, keepdim)


@composite(surface=FUNCTION)
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """``(std, mean)`` over `dim`.

    Args:
        unbiased, correction: as for `var`.
    """
    return std(input, dim, unbiased, keepdim, correction=correction), _mean_of(input, dim, keepdim)


def _mean_of(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return input.mean(None if isinstance(dim, bool) else dim, keepdim)


