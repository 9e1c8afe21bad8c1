"""Order along a dimension: sorting, ranks, medians, quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.reductions.along import ALL, MOST, Along
from flambeau_kernels.cpu.sorting import sort as kernel

from ... import dtypes
from ...tensor import Tensor, wrap_dim
from .. import _dispatch
from .._batching import along as along_dim
from .._spec import (
    EXACTLY,
    FUNCTION,
    LIKE,
    METHOD,
    NEVER,
    OUT,
    check_nonempty,
    composite,
    need_int,
    primitive,
    reduced_shape,
)
from .._spec.names import keep, reduces
from ..indexing._picked import need_tensor, values_and_indices

PAIR = ("values", "indices")
EVERY = FUNCTION | METHOD | OUT


def _ordered(name: str, input: Tensor, refusal: type[Exception] = RuntimeError) -> None:
    if input.is_complex():
        raise refusal(f"{name}: complex values have no order, so {input.dtype} is not supported; sort input.abs() or a part")


def _pair_shape(shape: Any, input: Tensor) -> Any:
    return [(tuple(shape), input.dtype), (tuple(shape), dtypes.int64)]


# -- sorting -----------------------------------------------------------------------------------------------------------------


def _check_sort(input, dim, descending):
    _ordered("sort", input)
    return input, wrap_dim(dim, input.ndim), descending


@primitive(
    surface=0, returns=PAIR, check=_check_sort, memory=LIKE, samples="of sort", public_name="sort", batch_rule=along_dim,
    cuda="sums.sort_pair",
    quantized="integers", costly=True,
    deferrable=True,
)
def sort_pair(input, dim, descending):
    """The elements in order along `dim`, equal ones in the order they had, and where they were."""


sort_pair.shown_as("SortBackward0", indices="out1")


sort_pair.in_pieces(along="dim")


sort_pair.name = "sort"
sort_pair.kernel(lambda a, dim, descending: kernel.sort(a, dim, descending))
sort_pair.shape(lambda input, dim, descending: _pair_shape(input.shape, input))
values_and_indices(sort_pair)

# Longer lines than these are sorted by the fallback.
MOST_SORTED = 96
_ORDERS = {down: Along("ordered", down, True, True, most_along=MOST_SORTED) for down in (False, True)}
_PLACES = {down: Along("ordered", down, True, False, most_along=MOST_SORTED) for down in (False, True)}
_FIRST = {down: Along("ordered", down, False, True, most_along=MOST_SORTED, takes_k=True) for down in (False, True)}


@sort_pair.plan(wraps="dim", native="LINES[descending].enter(input, dim)", names={"LINES": _ORDERS})
def _planned_order(a, dim, descending):
    return _ORDERS[descending](a, dim)


@composite(surface=EVERY, overlap=EXACTLY, samples="d(2, 3); d(2, 3), 0, True; d(5), stable=True", exact_out=True, costly=True)
def sort(input, dim=-1, descending=False, *, stable=False):
    """``(values, indices)``: the elements in ascending (or `descending`) order along `dim`, and where they were.

    Equal elements keep their order whether `stable` is set or not; nan counts as largest. A named tuple.
    Raises: RuntimeError for complex values.

    >>> values, indices = fb.sort(fb.tensor([3.0, 1.0, 2.0]))
    >>> values, indices
    (tensor([1., 2., 3.]), tensor([1, 2, 0]))
    """
    return sort_pair.function(input, dim, bool(descending))


@sort.forwards
def _sorted_pair(input, dim, descending, stable):
    return sort_pair.answer(input, dim, descending) if descending.__class__ is bool else None


@composite(surface=EVERY, samples="d(2, 3); d(2, 3), 0, True")
def argsort(input, dim=-1, descending=False, *, stable=False):
    """The indices that put `input` in order along `dim`: those of `sort`.

    Args:
        descending, stable: as for `sort`.
    """
    need_tensor("argsort", input)
    return sort_pair.function(input.detach(), dim, bool(descending))[1]


@argsort.plan(
    discrete=True, native="LINES[descending].enter(input, dim) if descending.__class__ is bool else None", names={"LINES": _PLACES}
)  # fmt: skip
def _planned_places(a, dim, descending, stable):
    return _PLACES[descending](a, dim) if descending.__class__ is bool else None


@composite(surface=EVERY, overlap=EXACTLY, samples="d(4, 2)", exact_out=True)
def msort(input):
    """`input` sorted along its first dimension."""
    return sort_pair.function(input, 0, False)[0]


def _check_topk(input, k, dim, largest):
    _ordered("topk", input)
    k = need_int("topk", "k", k)
    d = wrap_dim(dim, input.ndim)
    n = input.shape[d] if input.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError(f"topk(): selected index k out of range: k={k}, but dimension {d} has {n} elements")
    return input, k, d, largest


@primitive(
    surface=0, returns=PAIR, check=_check_topk, samples="of topk", public_name="topk", batch_rule=along_dim, cuda="sums.topk_pair",
    quantized="integers", costly=True,
    deferrable=True,
)
def topk_pair(input, k, dim, largest):
    """The `k` largest or smallest elements along `dim`, and where they are."""


topk_pair.shown_as("TopkBackward0", indices="out1")


topk_pair.in_pieces(along="dim")


topk_pair.name = "topk"
topk_pair.kernel(lambda a, k, dim, largest: kernel.topk(a, k, dim, largest))
values_and_indices(topk_pair)


@topk_pair.plan(wraps="dim", native="LINES[largest].enter(input, dim, False, k)", names={"LINES": _FIRST})
def _planned_topk(a, k, dim, largest):
    found = _FIRST[largest](a, dim, False, k)
    if found is None and a.dtype.char in "fdl" and k.__class__ is int and 0 < k <= a.shape[dim]:
        return kernel.topk(a, k, dim, largest)        # of longer lines
    return found


@topk_pair.shape
def _topk_shape(input, k, dim, largest):
    return _pair_shape((*input.shape[:dim], k, *input.shape[dim + 1 :]) if input.ndim else (), input)


@composite(surface=EVERY, overlap=EXACTLY, samples="d(2, 5), 2; d(2, 5), 3, 1, False", exact_out=True, costly=True, names=keep)
def topk(input, k: int, dim=-1, largest=True, sorted=True):
    """``(values, indices)``: the `k` largest (or smallest) elements along `dim`, the best first, and where they are.

    Args:
        largest: whether the largest rather than the smallest.
        sorted: accepted and without effect, they always come in order.
    Raises: RuntimeError for `k` outside the dimension.

    >>> fb.topk(fb.tensor([1, 3, 2]), k=2).values
    tensor([3, 2])
    """
    return topk_pair.function(input, k, dim, bool(largest))


@topk.forwards
def _best_pair(input, k, dim, largest, sorted):
    return topk_pair.answer(input, k, dim, largest) if largest.__class__ is bool else None


# -- ranks -------------------------------------------------------------------------------------------------------------------


def _check_kth(input, k, dim, keepdim):
    _ordered("kthvalue", input, NotImplementedError)
    k = need_int("kthvalue", "k", k)
    d = wrap_dim(dim, input.ndim)
    n = input.shape[d] if input.ndim else 1
    if input.ndim and not n:
        raise IndexError(f"kthvalue(): Expected reduction dim {d} to have non-zero size.")
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}: k={k}, but there are {n} elements")
    return input, k, d, keepdim


def _ranked(a: Any, rank: Any, dim: int, keepdim: bool) -> Any:
    if not a.ndim:
        return a.copy(), np.zeros((), np.int64)
    return _reduced_pair(*kernel.kth(a, rank, dim), dim, keepdim)


def _reduced_pair(values: Any, at: Any, dim: int, keepdim: bool) -> Any:
    return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))


def _reduced_shape(input: Tensor, dim: int, keepdim: bool) -> Any:
    return _pair_shape(reduced_shape(tuple(input.shape), (dim,) if input.ndim else (), keepdim), input)


@primitive(
    surface=EVERY, returns=PAIR, check=_check_kth, overlap=NEVER, samples="d(2, 5), 2; d(4, 2), 3, 0, True", exact_out=True,
    batch_rule=along_dim,
    names=reduces,
)
def kthvalue(input, k, dim=-1, keepdim=False):
    """``(values, indices)``: the `k`-th smallest element (from 1) along `dim`, and where it is.

    Raises: RuntimeError for `k` outside the dimension.
    """


kthvalue.shown_as("KthvalueBackward0", indices="out1")


kthvalue.in_pieces(along="dim")


kthvalue.kernel(lambda a, k, dim, keepdim: _ranked(a, k - 1, dim, keepdim))
kthvalue.shape(lambda input, k, dim, keepdim: _reduced_shape(input, dim, keepdim))
values_and_indices(kthvalue)
_KTH = Along("ranked", "kth", takes_k=True)


@kthvalue.plan(wraps="dim", native="LINES.enter(input, dim, keepdim, k)", names={"LINES": _KTH})
def _planned_kth(a, k, dim, keepdim):
    return _KTH(a, dim, keepdim, k)


def _check_median(name: str) -> Any:
    def check(input, dim, keepdim):
        if input.dtype is dtypes.bool or input.is_complex():
            raise NotImplementedError(f'"{name}" not implemented for {input.dtype}')
        d = wrap_dim(dim, input.ndim)
        if input.ndim:
            check_nonempty(name, tuple(input.shape), (d,))
        return input, d, keepdim

    return check


def _median_kernel(skip_nan: bool) -> Any:
    def median(a, dim, keepdim):
        if not a.ndim:
            return a.copy(), np.zeros((), np.int64)
        return _reduced_pair(*kernel.median(a, dim, skip_nan), dim, keepdim)

    return median


def _declare_median(name: str, skip_nan: bool, doc: str) -> Any:
    def along(input, dim, keepdim):
        pass

    along.__name__, along.__doc__ = f"{name}_along", doc
    pair = primitive(
        surface=0, returns=PAIR, check=_check_median(name), samples=f"of {name}", public_name=name, batch_rule=along_dim
    )(along)
    pair.name = name
    pair.shown_as(f"{name.title()}Backward1", indices="out1")
    pair.in_pieces(along="dim")
    pair.kernel(_median_kernel(skip_nan))
    pair.shape(lambda input, dim, keepdim: _reduced_shape(input, dim, keepdim))
    values_and_indices(pair)
    ranked = Along("ranked", name, dims=ALL)

    def over_all(input):
        pass

    over_all.__name__, over_all.__doc__ = f"{name}_whole", doc
    single = primitive(surface=0, samples=f"of {name}", public_name=name)(over_all)
    single.shown_as(f"{name.title()}Backward0")

    @single.kernel
    def _over_all(a):
        if not a.size:
            return np.full((), np.nan if a.dtype.kind not in "iu" else np.iinfo(a.dtype).min, a.dtype)
        return _median_kernel(skip_nan)(a.reshape(-1), 0, False)[0]

    single.shape(lambda input: ((), input.dtype))

    @single.vjp
    def _over_all_vjp(grad, out, input):
        at = (input == out) | ((input != input) & (out != out))
        # Elements equal to the median share its gradient.
        return ((grad / at.sum()).where(at, 0),)

    @single.batch
    def _over_all_batch(level, op, args):
        (x,) = args
        if not x.numel():
            return NotImplemented
        return level.wrap(pair.function(level.front(x).reshape(level.size, -1), 1, False)[0])

    def public(input, dim: int | None = None, keepdim=False):
        need_tensor(name, input)
        if dim is not None:
            return pair.function(input, dim, keepdim)
        if input.dtype is dtypes.bool or input.is_complex():
            raise NotImplementedError(f'"{name}" not implemented for {input.dtype}')
        return single.function(input)

    public.__name__, public.__doc__ = name, doc
    op = composite(
        surface=EVERY, samples="d(2, 3); d(2, 5), 1; d(4, 2), 0, True", exact_out=True, elements="reduced", names=reduces
    )(public)

    @single.vjp_on_arrays
    def _over_all_vjp_on_arrays(grad, out, input):
        at = (input == out) | ((input != input) & (out != out))
        return (np.where(at, grad / max(1, int(at.sum())), grad.dtype.type(0)),)

    pair.plan(ranked, wraps="dim")

    @single.plan(native="(LINES.enter(input, None, False) or NOTHING)[0]", names={"LINES": ranked, "NOTHING": (None,)})
    def _planned_rank(a):
        found = ranked(a, None, False)
        return None if found is None else found[0]

    @op.forwards
    def _by_dim(input, dim, keepdim):
        if dim is None:
            return single.answer(input)
        return pair.answer(input, dim, keepdim) if dim.__class__ is int else None

    return op


median = _declare_median(
    "median", False, "The lower median, an element; along `dim`, ``(values, indices)``. nan if any element is nan.")  # fmt: skip
nanmedian = _declare_median(
    "nanmedian", True, "The lower median of the elements that are not nan; along `dim`, ``(values, indices)``.")  # fmt: skip


def _check_mode(input, dim, keepdim):
    _ordered("mode", input, NotImplementedError)
    d = wrap_dim(dim, input.ndim)
    if input.ndim:
        check_nonempty("mode", tuple(input.shape), (d,))
    return input, d, keepdim


@primitive(
    surface=EVERY, returns=PAIR, check=_check_mode, overlap=NEVER, samples="d(2, 5); d(3, 4), 0, True", exact_out=True,
    batch_rule=along_dim,
    names=reduces,
)
def mode(input, dim=-1, keepdim=False):
    """``(values, indices)``: the most frequent element along `dim`, the smallest of several, and its last place."""


mode.shown_as("ModeBackward0", indices="out1")


mode.in_pieces(along="dim")


@mode.kernel
def _mode(a, dim, keepdim):
    if not a.ndim:
        return a.copy(), np.zeros((), np.int64)
    return _reduced_pair(*kernel.mode(a, dim), dim, keepdim)


mode.shape(lambda input, dim, keepdim: _reduced_shape(input, dim, keepdim))
values_and_indices(mode)
_MODES = Along("ranked", "mode", most_along=MOST_SORTED)


mode.plan(_MODES, wraps="dim")


# -- quantiles ---------------------------------------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(name: str, input: Tensor, q: Any, interpolation: str) -> None:
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype, got {input.dtype}")
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty, got shape {tuple(input.shape)}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")
    if isinstance(q, Tensor):
        if q.ndim > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, got shape {tuple(q.shape)}")
        if q.dtype is not input.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor, got {q.dtype} and {input.dtype}")
        if _dispatch.may_be_checked(q) and not bool(((q >= 0) & (q <= 1)).all()):
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    elif not 0 <= q <= 1:
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")


def _quantile(name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, skip_nan: bool) -> Tensor:
    _check_quantile(name, input, q, interpolation)
    d = 0 if dim is None else wrap_dim(dim, input.ndim)
    x = input.reshape(-1) if dim is None or not input.ndim else input.movedim(d, -1)
    values = sort_pair.function(x, -1, False)[0]                # (*rest, n)
    n = values.shape[-1]
    levels = q if isinstance(q, Tensor) else input.new_full((), q)
    if skip_nan:
        places = levels.reshape(-1) * ((values == values).sum(-1, True) - 1).clamp(min=0)
    else:
        last = values.narrow(-1, n - 1, 1)
        # nan sorts last, and one of them makes the quantile nan.
        places = (levels.reshape(-1) * (n - 1)).masked_fill(last != last, n - 1)
    over_all = dim is None or not input.ndim

    def placed(made: Tensor) -> Tensor:
        """``(*rest, quantiles)`` as the result has it: ``(quantiles, *rest)``, of a number `q` without the first."""
        if not keepdim:
            return made.movedim(-1, 0) if levels.ndim else made.squeeze(-1)
        if over_all:
            return made.reshape([-1] * levels.ndim + [1] * input.ndim)
        return made.movedim(-1, 0).unsqueeze(d + 1) if levels.ndim else made.movedim(-1, d)

    return _at_places(values, places, interpolation, placed)


def _at_places(values: Tensor, places: Tensor, interpolation: str, placed: Any) -> Tensor:
    if interpolation == "lower":
        places = places.floor()
    elif interpolation == "higher":
        places = places.ceil()
    elif interpolation == "nearest":
        places = places.round()
    below = places.detach().floor().long()
    low = values.gather(-1, below)
    if interpolation in ("lower", "higher", "nearest"):
        return placed(low)
    weight = places - below.to(places.dtype) if interpolation == "linear" else values.new_full((), 0.5).expand(places.shape)
    high = values.gather(-1, places.detach().ceil().long())
    return placed(low).lerp(placed(high), placed(weight))  # a new tensor, and no view of one


def _planned_quantile(along: Along) -> Any:
    """One quantile of lines of a small array."""

    def rule(a, q, dim, keepdim, interpolation):
        if interpolation != "linear" or q.__class__ is not float or not 0 <= q <= 1 or dim is None and a.size > MOST_SORTED:
            return None
        return along(a, dim, keepdim, np.array(q, a.dtype))

    return rule


@composite(
    surface=EVERY, autocast=("float32", None),
    samples="d(2, 5), 0.3; d(2, 5), fb.tensor([0.3, 0.7], dtype=real), 1, True; d(6), 0.5, interpolation='lower'",
    exact_out=True,
)
def quantile(input, q, dim: int | None = None, keepdim=False, *, interpolation="linear"):
    """The `q`-quantiles (numbers in [0, 1]) along `dim`, or of all elements; nan if any element is nan.

    Args:
        q: a number, or a vector, whose dimension then comes first in the result.
        interpolation: between neighbours: 'linear', 'lower', 'higher', 'midpoint' or 'nearest'.
    Raises: RuntimeError for `q` outside [0, 1], or of another dtype than `input`.

    >>> fb.quantile(fb.tensor([1.0, 2.0, 3.0, 4.0]), 0.5)
    tensor(2.5000)
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


quantile.plan(_planned_quantile(Along("quantiles", False, dims=ALL, most_along=MOST_SORTED, takes_array=True)), most=MOST)


@composite(
    surface=EVERY, autocast=("float32", None), samples="d(2, 5), 0.3; d(2, 5), fb.tensor([0.3, 0.7], dtype=real), 1, True", exact_out=True,
)
def nanquantile(input, q, dim: int | None = None, keepdim=False, *, interpolation="linear"):
    """`quantile` of the elements that are not nan; `q`, `dim` and `interpolation` as there."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


nanquantile.plan(_planned_quantile(Along("quantiles", True, dims=ALL, most_along=MOST_SORTED, takes_array=True)), most=MOST)
