"""Reductions, running sums, softmax, and what sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from .._graph import Graph, Value
from ._table import translates

__all__: list[str] = []

Dims = Any  # an int, a list, or None for all dimensions


def _dims(dim: Dims) -> list[int] | None:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return None
    return list(dim) if isinstance(dim, (list, tuple)) else [dim]


def _count(g: Graph, x: Value, dims: list[int] | None, dtype: Any) -> Value:
    """How many elements are reduced to one, in `dtype`."""
    where = range(x.ndim) if dims is None else dims
    product = 1
    opened: Value | None = None
    for d in where:
        n = g.size(x, d) if x.ndim else 1
        if isinstance(n, int):
            product *= n
        else:
            opened = n if opened is None else g.op("Mul", opened, n)
    if opened is None:
        return g.const(product, dtype)
    return g.cast(g.op("Mul", opened, g.const(product, fb.int64)), dtype)


@translates("aten.sum.default", "aten.sum.dim_IntList")
def total(g: Graph, input: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return g.reduce("ReduceSum", g.cast(input, g.out.dtype), _dims(dim), keepdim)


@translates("aten.mean.default", "aten.mean.dim")
def mean(g: Graph, input: Value, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return g.reduce("ReduceMean", g.cast(input, g.out.dtype), _dims(dim), keepdim)


@translates("aten.prod.default")
def prod(g: Graph, input: Value, *, dtype: Any = None) -> Value:
    return g.reduce("ReduceProd", g.cast(input, g.out.dtype), None)


@translates("aten.prod.dim_int")
def prod_dim(g: Graph, input: Value, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return g.reduce("ReduceProd", g.cast(input, g.out.dtype), [dim], keepdim)


def _extreme(kind: str) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, dim: Dims = (), keepdim: bool = False) -> Value:
        x = g.cast(input, fb.int32) if input.dtype is fb.bool else input
        return g.reduce(kind, x, _dims(dim), keepdim)

    return translate


_amax, _amin = _extreme("ReduceMax"), _extreme("ReduceMin")
translates("aten.amax.default")(_amax)
translates("aten.amin.default")(_amin)


@translates("aten.max.default")
def max_all(g: Graph, input: Value) -> Value:
    return _amax(g, input)


@translates("aten.min.default")
def min_all(g: Graph, input: Value) -> Value:
    return _amin(g, input)


@translates("aten.aminmax.default")
def aminmax(g: Graph, input: Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    return _amin(g, input, dim, keepdim), _amax(g, input, dim, keepdim)


def _place(kind: str) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        x = g.cast(input, fb.int32) if input.dtype is fb.bool else input
        if dim is None or not input.ndim:
            made = g.op(kind, g.reshape(x, [-1]), dtype=fb.int64, axis=0, keepdims=0)
            return g.reshape(made, [1] * input.ndim) if keepdim else made
        return g.op(kind, x, dtype=fb.int64, axis=dim, keepdims=int(keepdim))

    return translate


_argmax, _argmin = _place("ArgMax"), _place("ArgMin")
translates("aten.argmax.default")(_argmax)
translates("aten.argmin.default")(_argmin)


@translates("aten.max.dim")
def max_dim(g: Graph, input: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _amax(g, input, dim, keepdim), _argmax(g, input, dim, keepdim)


@translates("aten.min.dim")
def min_dim(g: Graph, input: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _amin(g, input, dim, keepdim), _argmin(g, input, dim, keepdim)


@translates("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_true(g: Graph, input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    true = g.cast(g.cast(input, fb.bool), fb.int32)
    return g.cast(g.reduce("ReduceMin", true, _dims(dim), keepdim), fb.bool)


@translates("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_true(g: Graph, input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    true = g.cast(g.cast(input, fb.bool), fb.int32)
    return g.cast(g.reduce("ReduceMax", true, _dims(dim), keepdim), fb.bool)


@translates("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(g: Graph, input: Value, dim: Dims = None) -> Value:
    return g.reduce("ReduceSum", g.cast(g.cast(input, fb.bool), fb.int64), _dims(dim))


def spread(g: Graph, x: Value, dims: list[int] | None, correction: float, keepdim: bool) -> tuple[Value, Value]:
    """Variance and mean over `dims`."""
    middle = g.reduce("ReduceMean", x, dims, True)
    apart = g.op("Sub", x, middle)
    squares = g.reduce("ReduceSum", g.op("Mul", apart, apart), dims, keepdim)
    # A correction beyond the count counts as the count: then the variance is infinite or nan, as in PyTorch.
    left = g.op("Max", g.op("Sub", _count(g, x, dims, x.dtype), g.const(float(correction), x.dtype)), g.const(0.0, x.dtype))
    return g.op("Div", squares, left), g.reduce("ReduceMean", x, dims, keepdim)


@translates("aten.var.correction", "aten.var.dim", "aten.var.default")
def var(
    g: Graph, input: Value, dim: Dims = None, *others: Any, correction: Any = None, unbiased: Any = None, keepdim: bool = False
) -> Value:
    return spread(g, input, *_settings(dim, others, correction, unbiased, keepdim))[0]


@translates("aten.std.correction", "aten.std.dim", "aten.std.default")
def std(
    g: Graph, input: Value, dim: Dims = None, *others: Any, correction: Any = None, unbiased: Any = None, keepdim: bool = False
) -> Value:
    return g.op("Sqrt", spread(g, input, *_settings(dim, others, correction, unbiased, keepdim))[0])


@translates("aten.var_mean.correction", "aten.var_mean.dim", "aten.var_mean.default")
def var_mean(
    g: Graph, input: Value, dim: Dims = None, *others: Any, correction: Any = None, unbiased: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:  # fmt: skip
    return spread(g, input, *_settings(dim, others, correction, unbiased, keepdim))


@translates("aten.std_mean.correction", "aten.std_mean.dim", "aten.std_mean.default")
def std_mean(
    g: Graph, input: Value, dim: Dims = None, *others: Any, correction: Any = None, unbiased: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:  # fmt: skip
    variance, middle = spread(g, input, *_settings(dim, others, correction, unbiased, keepdim))
    return g.op("Sqrt", variance), middle


def _settings(dim: Dims, others: tuple[Any, ...], correction: Any, unbiased: Any, keepdim: bool) -> tuple[Any, float, bool]:
    """Dimensions, correction and keepdim from the forms of `var`: ``(unbiased)``, ``(dim, unbiased, keepdim)`` and by keyword."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if others:
        unbiased = others[0]
        keepdim = others[1] if len(others) > 1 else keepdim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return _dims(dim), correction, keepdim


@translates("aten.logsumexp.default")
def logsumexp(g: Graph, input: Value, dim: Dims, keepdim: bool = False) -> Value:
    x = g.cast(input, g.out.dtype)
    if not x.ndim:
        return x
    dims = _dims(dim)
    most = g.reduce("ReduceMax", x, dims, True)
    total = g.op("Log", g.reduce("ReduceSum", g.op("Exp", g.op("Sub", x, most)), dims, True))
    made = g.op("Add", total, most)
    if keepdim:
        return made
    return g.op("Squeeze", made, sorted(d % x.ndim for d in (dims or range(x.ndim))))


@translates("aten.norm.ScalarOpt_dim", "aten.norm.Scalar", "aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim_dtype",
            "aten.norm.ScalarOpt_dtype")  # fmt: skip
def norm(g: Graph, input: Value, p: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _norm(g, g.cast(input, g.out.dtype), p, _dims(dim), keepdim)


@translates("aten._cdist_forward.default")
def distances(g: Graph, x1: Value, x2: Value, p: float, compute_mode: Any = None) -> Value:
    return _norm(g, g.op("Sub", g.op("Unsqueeze", x1, [-2]), g.op("Unsqueeze", x2, [-3])), p, [-1], False)


def _norm(g: Graph, x: Value, p: Any, dims: Any, keepdim: bool) -> Value:
    if p is None or p == 2:
        return g.op("Sqrt", g.reduce("ReduceSum", g.op("Mul", x, x), dims, keepdim))
    size = g.op("Abs", x)
    if p == 1:
        return g.reduce("ReduceSum", size, dims, keepdim)
    if p in (float("inf"), float("-inf")):
        return g.reduce("ReduceMax" if p > 0 else "ReduceMin", size, dims, keepdim)
    if p == 0:
        return g.reduce("ReduceSum", g.cast(g.cast(x, fb.bool), x.dtype), dims, keepdim)
    total = g.reduce("ReduceSum", g.op("Pow", size, g.const(float(p), x.dtype)), dims, keepdim)
    return g.op("Pow", total, g.const(1 / p, x.dtype))


@translates("aten.cumsum.default")
def cumsum(g: Graph, input: Value, dim: int, *, dtype: Any = None) -> Value:
    x = g.cast(input, g.out.dtype)
    return g.op("CumSum", x, g.const(dim, fb.int64)) if x.ndim else x


# -- softmax ---------------------------------------------------------------------------------------------------------------


def _normalized(kind: str) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, dim: int, dtype: Any = None) -> Value:
        x = g.cast(input, g.out.dtype)
        if not x.ndim:
            return g.op("Squeeze", g.op(kind, g.reshape(x, [1]), axis=0), [0])
        return g.op(kind, x, axis=dim)

    return translate


softmax = _normalized("Softmax")
translates("aten.softmax.int", "aten._softmax.default", "aten.special_softmax.int")(softmax)
translates("aten.log_softmax.int", "aten._log_softmax.default", "aten.special_log_softmax.int")(_normalized("LogSoftmax"))


@translates("aten._safe_softmax.default")
def safe_softmax(g: Graph, input: Value, dim: int, dtype: Any = None) -> Value:
    made = softmax(g, input, dim, dtype)
    none = g.op("IsNaN", made, dtype=fb.bool)
    return g.op("Where", none, g.const(0.0, made.dtype), made, dtype=made.dtype)


# -- order -----------------------------------------------------------------------------------------------------------------


@translates("aten.topk.default")
def topk(g: Graph, input: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return g.op("TopK", input, g.sizes([k]), dtype=(input.dtype, fb.int64), outputs=2, axis=dim, largest=int(largest), sorted=1)


@translates("aten.sort.default", "aten.sort.stable")
def sort(g: Graph, input: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    if isinstance(input.shape, tuple) and not input.shape:
        return g.op("Identity", input), g.const(0, fb.int64)
    return topk(g, input, g.size(input, dim), dim, descending)


@translates("aten.argsort.default", "aten.argsort.stable")
def argsort(g: Graph, input: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Value:
    return sort(g, input, dim, descending)[1]
