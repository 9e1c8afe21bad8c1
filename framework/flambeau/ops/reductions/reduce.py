"""Reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels.cpu.reductions import extremes, moments
from flambeau_kernels.cpu.reductions.along import ALL, SEVERAL, Along
from flambeau_kernels.cpu.reductions.reduce import count_of
from flambeau_kernels.cpu.reductions.softmax import narrow, widen
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags
from flambeau_kernels.vocabulary import isnan, where

from ... import dtypes
from ..._warn import warn
from ...tensor import Tensor, wrap_dim
from .. import _dispatch
from .._batching import along
from .._results import return_type
from .._spec import (
    EXACTLY,
    FOREACH,
    FUNCTION,
    LIKE,
    METHOD,
    OPS,
    OUT,
    aligned,
    bool_dtype,
    check_nonempty,
    composite,
    floating_dtype,
    need_number,
    primitive,
    reduced_shape,
    reduction,
    refuse_other_dtype_out,
    spread_dims,
    with_dims,
    wrap_dims,
)  # fmt: skip
from .._spec.memory import in_memory_order
from .._spec.names import reduces
from .._spec.plans import Plan
from ..indexing._picked import need_tensor, values_and_indices


@reduction(
    identity=0, combine="add", partial=lambda: 1, autocast=(None, "float32"),
    samples="x(2, 3); x(2, 3), 1; x(2, 3, 4), (0, 2), True; x(2, 3), dtype=fb.float64",
    dtype_of_out=True,
    names=reduces,
)
def sum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum over `dim` (an int, several, or all by default). Integers and bools add up in int64; halves in float32.

    Args:
        dtype: `input` is converted to it first, which also is the dtype of the result.

    >>> fb.tensor([[True, True], [False, True]]).sum(dim=1)
    tensor([2, 1])
    """


sum.shown_of("SumBackward1", "input", "dim")


def _nan_as_zero(x):
    return where(isnan(x), 0, x)


@reduction(
    identity=0, map=_nan_as_zero, combine="add", partial=lambda input: where(isnan(input), 0, 1),
    samples="x(2, 3); x(2, 3), 1",
)
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """The sum over `dim` with nan counted as zero. An empty sum is 0."""


@nansum.vjp_on_arrays
def _nansum_vjp_on_arrays(grad, out, input, count):
    return grad * ~np.isnan(input)


def _average(total, n):
    return total / n if n else total * np.nan


@reduction(dtype=floating_dtype, identity=0, combine="add", finish=_average,
           vjp=lambda grad, shape, dims, keepdim: spread_dims(grad, shape, dims, keepdim) / count_of(shape, dims),
           samples="x(2, 3); x(2, 3), 1; x(2, 3, 4), (0, 2), True", quantized="as_operand", names=reduces)  # fmt: skip
def mean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean over `dim`; nan when there is nothing.

    Args:
        dtype: floating or complex; `input` is converted to it first.
    Raises: RuntimeError for integers unless `dtype` is given.
    """


mean.shown_as(self_sym_numel=lambda saved: math.prod(saved["input_shape"]))
mean.shown_of("MeanBackward1", "input", "dim")


@mean.vjp_on_arrays
def _mean_vjp_on_arrays(grad, out, input, count):
    if grad.dtype.itemsize > 2:
        return grad / count
    # A half type may not have the number `count`: float16 ends at 65504.
    return (grad.astype(np.float32) / count).astype(grad.dtype)


@composite(surface=FUNCTION | METHOD | OUT, samples="x(2, 3); x(2, 3), 1", elements="reduced")
def nanmean(input, dim: int | Sequence[int] | None = None, keepdim=False, *, dtype=None):
    """The mean over `dim` of the elements that are not nan."""
    if not input.dtype.category >= dtypes.FLOATING:
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype}")
    count = (input == input).sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


def _prod_vjp(grad, out, input, shape, dims, keepdim):
    """Each element's gradient is the product of the others: by division, or, beside zeros, by products from both sides."""
    is_seen = _dispatch.is_seen(input) or input._lacks_values
    whole = (input != 0).all()
    divided = spread_dims(grad * out.conj(), shape, dims, keepdim) / input.conj() if is_seen or whole else None
    if divided is not None and not is_seen:
        return divided
    beside = spread_dims(grad, shape, dims, keepdim) * _products_of_others(input, dims).conj()
    return beside if divided is None else divided.where(whole, beside)


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
    from ..shapes.join import cat

    return cat(parts, -1)


@reduction(
    identity=1, combine="mul", vjp=_prod_vjp, autocast=("float32", None), samples="x(2, 3); x(2, 3), 1; x(2, 3), 0, True",
    dtype_of_out=True,
    names=reduces,
)
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """The product over `dim` (an int, several, or all by default); of nothing, 1. Integers multiply in int64.

    Args:
        dtype: `input` is converted to it first.
    """


prod.shown_of("ProdBackward1", "input", "dim", dim=lambda saved: saved["dim"][0])


@prod.vjp_on_arrays
def _prod_vjp_on_arrays(grad, out, input, count):
    return (grad * out.conj()) / input.conj() if input.all() else None


def _share(grad, out, input, shape, dims, keepdim):
    """Elements equal to the extreme share the gradient equally."""
    top = with_dims(out, shape, dims, keepdim)
    at = (top == input) | (isnan_tensor(top) & isnan_tensor(input))
    return with_dims(grad / at.sum(dims or None, keepdim), shape, dims, keepdim).where(at, 0)


def isnan_tensor(x: Tensor) -> Tensor:
    return x != x


def _ordered(op: Any, given: Any, dtype: Any) -> Any:
    if given.is_complex:
        raise NotImplementedError(f'"{op.public_name}" not implemented for {given}: complex values have no order')
    return given, given


@reduction(
    dtype=_ordered, combine="max", vjp=_share, samples="d(2, 3); d(2, 3), 1; d(2, 3, 4), (0, 2), True", exact_out=True,
    quantized="as_operand",
)
def amax(input, dim=(), keepdim=False):
    """The largest value over `dim`; nan wins. Tied values share the gradient equally.

    Unlike `max` it takes several dimensions and gives no indices. Raises: IndexError where there is nothing.
    """


@reduction(
    dtype=_ordered, combine="min", vjp=_share, samples="d(2, 3); d(2, 3), 1; d(2, 3, 4), (0, 2), True", exact_out=True,
    quantized="as_operand",
)
def amin(input, dim=(), keepdim=False):
    """The smallest value over `dim`; nan wins. Tied values share the gradient equally.

    Unlike `min` it takes several dimensions and gives no indices. Raises: IndexError where there is nothing.
    """


def _share_vjp_on_arrays(grad, out, input, count):
    at = np.asarray(input == out)
    if (out != out).any():
        at |= (input != input) & (out != out)
    axes = None if out.ndim == 0 else tuple(d for d, n in enumerate(out.shape) if n != input.shape[d])
    ties = np.add.reduce(at.view(np.int8), axes, np.int64, keepdims=True)
    shares = grad / ties.astype(grad.dtype)
    if not input.flags.c_contiguous:
        return np.where(at, shares, grad.dtype.type(0))  # in PyTorch's order of memory
    made = np.zeros(input.shape, grad.dtype)
    np.copyto(made, shares, where=at)
    return made


amax.vjp_on_arrays(_share_vjp_on_arrays)
amin.vjp_on_arrays(_share_vjp_on_arrays)

for _op, _name in ((amax, "Max"), (amin, "Min")):     # without `dim` at all they are asked by `max` and `min`
    _op.shown_as(f"{_name}Backward1")
    _op.shown_of(f"A{_name.lower()}Backward0", "input", "dim")


MinAndMax = return_type("aminmax", ("min", "max"))


@composite(surface=FUNCTION | METHOD | OUT, overlap=EXACTLY, samples="d(2, 3); d(2, 3), dim=1, keepdim=True")
def aminmax(input, *, dim=None, keepdim=False):
    """The smallest and largest value over `dim` (or all), as a named tuple ``(min, max)``."""
    need_tensor("aminmax", input)
    if dim is None and input.numel() == 0:
        raise RuntimeError(f"aminmax(): cannot compute aminmax over an input without elements, of shape {tuple(input.shape)}; give dim")
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"aminmax(): argument 'dim' must be int, not {type(dim).__name__}; amin and amax take several")
    if input.is_complex():
        raise NotImplementedError(f"aminmax: not implemented for {input.dtype}, which has no order")
    d = () if dim is None else dim
    pair = (amin(input, d, keepdim), amax(input, d, keepdim))
    return MinAndMax(pair)


aminmax.result_shown_as("AminmaxBackward0")


_BOUNDS = Along("bounds", dims=ALL)


aminmax.plan(_BOUNDS, returns=MinAndMax)


refuse_other_dtype_out(aminmax)


def _is_not_zero(x):
    return x != 0


@reduction(
    dtype=bool_dtype, identity=1, map=_is_not_zero, combine="and",
    samples="b(2, 3); b(2, 3), 1; x(2, 3), (0, 1); x(2, 3), ()", none_by_empty=True,
    exact_out=True, truth_out=True,
    other_dtype="all only supports bool tensor for result, got: {}",
    names=reduces,
)
def all(input, dim=None, keepdim=False):
    """Whether every element over `dim` is non-zero, True where there is none: bool, but uint8 for uint8.

    An empty `dim` leaves every element for itself.
    """


@reduction(
    dtype=bool_dtype, identity=0, map=_is_not_zero, combine="or", samples="b(2, 3); b(2, 3), 1; x(2, 3), (0, 1); x(2, 3), ()",
    none_by_empty=True, exact_out=True, truth_out=True,
    other_dtype="any only supports bool tensor for result, got: {}",
    names=reduces,
)
def any(input, dim=None, keepdim=False):
    """Whether some element over `dim` is non-zero, False where there is none: bool, but uint8 for uint8.

    An empty `dim` leaves every element for itself.
    """


def _count_dtype(op: Any, given: Any, dtype: Any) -> Any:
    return given, dtypes.int64


@reduction(dtype=_count_dtype, identity=0, map=_is_not_zero, combine="add", samples="i(2, 2, 3); i(2, 2, 3), 1")
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


def _is_place_of(op, largest):
    """The rules of `op`, which says where the largest or the smallest values are."""
    op.in_pieces(along="dim")
    op.shape(_index_shape)

    @op.kernel
    def places(a, dim, keepdim):
        return extremes.argument(a, dim, keepdim, largest)

    op.plan(Along("extremes", largest, False, dims=ALL))
    op.not_differentiable = "an index is piecewise constant"


@primitive(
    surface=FUNCTION | METHOD | OUT, check=_check_index_reduction("argmax"), samples="d(2, 3); d(2, 3), 1, True", exact_out=True,
    batch_rule=along,
    cuda="sums.argmax",
    elements="reduced",
    deferrable=True,
)
def argmax(input, dim=None, keepdim=False):
    """The index of the largest value along `dim`, the first of several, int64; nan counts as largest.

    Without `dim`, of the flattened input. Raises: IndexError where there is nothing.
    """


_is_place_of(argmax, largest=True)


@primitive(
    surface=FUNCTION | METHOD | OUT, check=_check_index_reduction("argmin"), samples="d(2, 3); d(2, 3), 1", exact_out=True,
    batch_rule=along,
    cuda="sums.argmin",
    elements="reduced",
    deferrable=True,
)
def argmin(input, dim=None, keepdim=False):
    """The index of the smallest value along `dim`, the first of several, int64; nan counts as smallest.

    Without `dim`, of the flattened input. Raises: IndexError where there is nothing.
    """


_is_place_of(argmin, largest=False)


def _extreme(largest: bool) -> Any:
    return lambda a, dim, keepdim: extremes.extreme(a, dim, keepdim, largest)


def _extreme_shape(input, dim, keepdim):
    shape = reduced_shape(tuple(input.shape), wrap_dims("max", dim, input.ndim), keepdim)
    return [(shape, input.dtype), (shape, dtypes.int64)]


@primitive(
    surface=0, returns=("values", "indices"), check=_check_index_reduction("max"), samples="of max", public_name="max", batch_rule=along,
    cuda="sums.max_along",
    quantized="integers",
    deferrable=True,
)
def max_along(input, dim, keepdim):
    """The largest values along `dim` and their places."""


max_along.shown_as("MaxBackward0", indices="out1")


max_along.in_pieces(along="dim")


@primitive(
    surface=0, returns=("values", "indices"), check=_check_index_reduction("min"), samples="of min", public_name="min", batch_rule=along,
    cuda="sums.min_along",
    quantized="integers",
    deferrable=True,
)
def min_along(input, dim, keepdim):
    """The smallest values along `dim` and their places."""


min_along.shown_as("MinBackward0", indices="out1")


min_along.in_pieces(along="dim")


for _op, _name, _largest in ((max_along, "max", True), (min_along, "min", False)):
    _op.kernel(_extreme(_largest))
    _op.shape(_extreme_shape)
    values_and_indices(_op)
    _op.plan(Along("extremes", _largest, True), wraps="dim")
    _op.name = _name
    _op.node_class.title = f"{_name.title()}Backward0"


def _over_all(name: str, reduce: Any, along: Any, pairwise: str, doc: str, lists: int) -> Any:
    def extreme(input, dim=None, keepdim=False, *, other=None):
        need_tensor(name, input)
        if isinstance(dim, Tensor) or other is not None:
            return OPS[pairwise](input, dim if other is None else other)
        if dim is None:
            if input.numel() == 0:
                raise RuntimeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                    f"'dim' argument."
                )
            if input.is_complex():
                raise NotImplementedError(f'"{name}" not implemented for {input.dtype}: complex values have no order')
            return reduce(input, None)                # nodes show which dimensions are asked for
        return along.function(input, dim, keepdim)

    extreme.__name__, extreme.__doc__ = name, doc
    op = composite(
        surface=FUNCTION | METHOD | OUT | lists, overlap=EXACTLY, samples="d(2, 3); d(2, 3), 1; d(2, 3), 0, True; d(2, 3), other=x(3)",
        exact_out=True, elements="reduced",
    )(extreme)

    @op.forwards
    def _of_one(input, dim, keepdim, other):
        if dim is None and other is None:
            return reduce.answer(input, None, False)
        return along.answer(input, dim, keepdim) if dim.__class__ is int and other is None else None

    return op


_EXTREME = """The {} value; along `dim`, ``(values, indices)``; of two tensors, `{}`. nan wins.

    Over all of `input`, tied values share the gradient; along `dim`, the first of them is meant.
    Args:
        dim: one dimension, or None for all. For several see `{}`.
        other: a Tensor, by name or in the place of `dim`, compared element by element.
    Raises: RuntimeError, IndexError where there is nothing.
    """
max = _over_all("max", amax, max_along, "maximum", _EXTREME.format("largest", "maximum", "amax"), FOREACH)
min = _over_all("min", amin, min_along, "minimum", _EXTREME.format("smallest", "minimum", "amin"), 0)


# -- spread --------------------------------------------------------------------------------------------------------------


def _correction(unbiased: Any, correction: Any) -> float:
    if isinstance(correction, Tensor) and not correction.ndim and correction.is_complex():
        correction = correction.item()
    if isinstance(correction, complex):
        if correction.imag:
            raise RuntimeError(f"value cannot be converted to type double without overflow: correction is {correction}")
        correction = correction.real
    if correction is not None:
        return need_number("var", "correction", correction)
    return 1 if unbiased else 0


def _check_var(input, dims, correction, keepdim):
    if not input.dtype.category >= dtypes.FLOATING:
        raise RuntimeError(f"std and var only support floating point and complex dtypes, got {input.dtype}")


@primitive(
    surface=0, check=_check_var, operator="var(input, dims, correction=correction, keepdim=keepdim)",
    samples="of var",
    public_name="var",
    batch_rule=along,
    cuda="sums.variance",
)
def variance(input, dims, correction, keepdim):
    """The variance over `dims` with ``count - correction`` in the denominator."""


variance.shown_as("VarBackward0", dim="dims")


variance.in_pieces(along="dims")


@variance.kernel
def _variance(a, dims, correction, keepdim):
    return moments.variance(a, dims, correction, keepdim)


@variance.shape
def _variance_shape(input, dims, correction, keepdim):
    return reduced_shape(tuple(input.shape), dims, keepdim), input.dtype.to_real()


# By what is taken off the count, and whether the root is taken and the mean is returned beside.
_SPREADS = {
    (less, root, mean): Along("spread", less, root, mean, dims=SEVERAL)
    for less in (0, 1) for root in (False, True) for mean in (False, True)
}  # fmt: skip


def _plan_spread(op: Any, root: bool) -> None:
    lines = {less: _SPREADS[less, root, False] for less in (0, 1)}

    def rule(a, dims, correction, keepdim):
        along = lines.get(correction) if correction.__class__ is int else None
        return None if along is None else along(a, dims, keepdim)

    native = "LINES[correction].enter(input, dims, keepdim) if correction.__class__ is int and correction in LINES else None"
    def large(input, dims, correction, keepdim):
        if correction.__class__ is not int:
            return None
        axes = wrap_dims(op.public_name, dims, input._array.ndim)
        spread = moments.planned_variance(input._array, axes, correction, keepdim)
        if spread is None:
            return None
        run = (lambda a: np.asarray(np.sqrt(spread(a)))) if root else spread
        return Plan(run, op, lambda _, input: (input, axes, correction, keepdim))

    op.plan(rule, dims="dims", native=native, names={"LINES": lines})
    op.plan(large, by="strides", after=True)


_plan_spread(variance, False)


def _spread_in_rows(root: bool) -> Any:
    def rows_of(input, dims, correction, keepdim):
        from flambeau_kernels.cpu.row_programs import Spread, is_one_spread

        from .._spec.in_rows import InRows

        if input.dtype not in (dtypes.float32, dtypes.float64) or not is_one_spread(tuple(input.shape), dims, input.dtype.numpy):
            return None
        return InRows(dims, lambda name, to, moments: Spread(correction, root, name("input"), to))

    return rows_of


variance.by_rows(_spread_in_rows(False))


@variance.vjp_on_arrays
def _variance_vjp_on_arrays(grad, input, dims, correction, keepdim):
    n, x = count_of(input.shape, dims), widen(input)
    free = n - correction
    if not x.size or free <= 0:
        return None
    token = ignore_fp_flags()
    off = np.asarray(x - np.add.reduce(x, dims, keepdims=True) / n)
    spread = aligned(grad, input.shape, dims, keepdim) * (2 / free)
    off *= spread
    restore_fp_flags(token)
    return (in_memory_order(narrow(off, input.dtype), LIKE, (spread, input)),)


@variance.vjp
def _variance_vjp(grad, input, dims, correction, keepdim):
    shape = tuple(input.shape)
    n = count_of(shape, dims)
    free = n - correction
    scale = 2 / free if free > 0 else float("nan") if free == 0 else float("inf") * 0
    return (with_dims(grad, shape, dims, keepdim) * scale * (input - input.mean(dims or None, True)),)


def _parse_var(name: str, input: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> Any:
    need_tensor("var", input)
    if isinstance(dim, bool):
        if unbiased is not True or keepdim is not False:
            raise TypeError(f"{name}(): a bool after input is `unbiased` alone; give dim as well, got ({dim}, {unbiased}, {keepdim})")
        dim, unbiased = None, dim
    elif not isinstance(unbiased, bool):
        raise TypeError(f"{name}(): argument 'unbiased' must be bool, not {type(unbiased).__name__}")
    if correction is not None and not unbiased:
        raise TypeError(f"{name}(): give unbiased or correction, got unbiased={unbiased} and correction={correction}")
    dims, correction = wrap_dims("var", dim, input.ndim), _correction(unbiased, correction)
    if not input._lacks_values and (not input.numel() or count_of(input.shape, dims) <= correction):
        warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
            "divided by output numel)."
        )
    return dims, correction, keepdim


@composite(
    surface=FUNCTION | METHOD | OUT, samples="x(2, 3); x(2, 3), 1; x(2, 3), (0, 1), correction=0, keepdim=True", elements="reduced",
    names=reduces,
)
def var(input, dim: int | Sequence[int] | None = None, unbiased: bool = True, keepdim=False, *, correction=None):
    """The variance over `dim`, the sum of squared deviations over ``count - correction``.

    Args:
        unbiased: an older name for the correction: True is 1, False is 0.
        correction: 1 by default; nan (and a warning) where it leaves nothing to divide by.
    Raises: RuntimeError for integers.

    >>> x = fb.tensor([1.0, 2.0, 3.0, 4.0])
    >>> x.var(), x.var(correction=0)
    (tensor(1.6667), tensor(1.2500))
    """
    return variance.function(input, *_parse_var("var", input, dim, unbiased, keepdim, correction))


def _usual_correction(shape: Any, unbiased: Any, correction: Any) -> int | None:
    """What is taken off the count; None for what is unusual, or may leave nothing to divide by, which is warned of."""
    if correction is None:
        correction = int(unbiased) if unbiased.__class__ is bool else -1
    elif unbiased is not True or correction.__class__ is not int:
        return None
    return None if correction > 1 or not shape or 0 in shape or 1 in shape and correction else correction


def _spread_by(op: Any) -> Any:
    """The variance or deviation that the op gives."""

    def fn(input, dim, unbiased, keepdim, correction):
        correction = None if dim.__class__ is bool else _usual_correction(input._array.shape, unbiased, correction)
        return None if correction is None else op.answer(input, dim, correction, keepdim)

    return fn


def _planned_spread_and_mean(root: bool) -> Any:
    def rule(a, dim, unbiased, keepdim, correction):
        less = None if dim.__class__ is bool else _usual_correction(a.shape, unbiased, correction)
        along = None if less is None else _SPREADS.get((less, root, True))
        return None if along is None else along(a, dim, keepdim)

    return rule


var.forwards(_spread_by(variance))


@primitive(
    surface=0, check=_check_var, operator="std(input, dims, correction=correction, keepdim=keepdim)",
    samples="of std",
    public_name="std",
    cuda="sums.deviation",
)
def deviation(input, dims, correction, keepdim):
    """The root of `variance`."""


deviation.shown_as("StdBackward0", dim="dims")


deviation.in_pieces(along="dims")


deviation.shape(_variance_shape)


@deviation.kernel
def _deviation(a, dims, correction, keepdim):
    return np.asarray(np.sqrt(moments.variance(a, dims, correction, keepdim)))


@deviation.vjp
def _deviation_vjp(grad, out, input, dims, correction, keepdim):
    # 0 at 0, where values are all the same.
    still = out == 0
    return _variance_vjp(where_tensor(still, 0.0, grad / (2 * where_tensor(still, 1.0, out))), input, dims, correction, keepdim)


@deviation.vjp_on_arrays
def _deviation_vjp_on_arrays(grad, out, input, dims, correction, keepdim):
    still = out == 0
    of_variance = np.where(still, 0, grad / (2 * np.where(still, 1, out))).astype(grad.dtype)
    return _variance_vjp_on_arrays(of_variance, input, dims, correction, keepdim)


def where_tensor(condition: Tensor, x: Any, y: Any) -> Tensor:
    return OPS["where"].function(condition, x, y)


_plan_spread(deviation, True)
deviation.by_rows(_spread_in_rows(True))


@composite(
    surface=FUNCTION | METHOD | OUT, samples="x(2, 3); x(2, 3), 1; x(2, 3), (0, 1), correction=0, keepdim=True", elements="reduced",
    names=reduces,
)
def std(input, dim: int | Sequence[int] | None = None, unbiased: bool = True, keepdim=False, *, correction=None):
    """The standard deviation over `dim`: the root of `var`.

    Args:
        unbiased, correction: as for `var`.
    """
    return deviation.function(input, *_parse_var("std", input, dim, unbiased, keepdim, correction))


std.forwards(_spread_by(deviation))


@composite(surface=FUNCTION, samples="x(2, 3); x(2, 3), 1", names=reduces)
def var_mean(input, dim: int | Sequence[int] | None = None, unbiased: bool = True, keepdim=False, *, correction=None):
    """``(var, mean)`` over `dim`.

    Args:
        unbiased, correction: as for `var`.
    """
    parsed = _parse_var("var_mean", input, dim, unbiased, keepdim, correction)
    mean = _mean_of(input, dim, keepdim)              # first, so that its gradient is added to the other
    return variance.function(input, *parsed), mean


var_mean.result_shown_as("VarMeanBackward0")


var_mean.plan(_planned_spread_and_mean(False))
var_mean.rounds_as_its_parts = True


@composite(surface=FUNCTION, samples="x(2, 3); x(2, 3), 1", names=reduces)
def std_mean(input, dim: int | Sequence[int] | None = None, unbiased: bool = True, keepdim=False, *, correction=None):
    """``(std, mean)`` over `dim`.

    Args:
        unbiased, correction: as for `var`.
    """
    parsed = _parse_var("std_mean", input, dim, unbiased, keepdim, correction)
    mean = _mean_of(input, dim, keepdim)              # first, so that its gradient is added to the other
    return deviation.function(input, *parsed), mean


std_mean.result_shown_as("StdMeanBackward0")


std_mean.plan(_planned_spread_and_mean(True))
std_mean.rounds_as_its_parts = True


def _mean_of(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return input.mean(None if isinstance(dim, bool) else dim, keepdim)


