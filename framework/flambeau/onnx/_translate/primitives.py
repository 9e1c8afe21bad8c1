"""Operators of this framework's own, which recorded programs have where PyTorch's operators compute in another way."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value
from ..errors import OnnxExporterError
from . import elementwise, products, reductions
from ._table import TRANSLATORS, translates
from .layers import average_pool, col2im, max_pool, one_hot
from .shapes import flip, input_size, padded, transpose

__all__: list[str] = []

translates("prims.true_divide.default")(elementwise.div)
translates("prims.raise_to.default")(elementwise.clamp_min)
translates("prims.det_of.default")(products.det)
translates("prims.one_hot.default")(one_hot)
translates("prims.fold_columns.default")(col2im)


@translates("prims.std.default")
def std(
    g: Graph, input: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None
) -> Value:
    return reductions.std(g, input, dim, correction=correction, unbiased=unbiased, keepdim=keepdim)


@translates("prims.var.default")
def var(
    g: Graph, input: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False, correction: Any = None
) -> Value:
    return reductions.var(g, input, dim, correction=correction, unbiased=unbiased, keepdim=keepdim)


@translates("prims.length_along.default")
def length_along(g: Graph, input: Value, p: float, dim: int, shared: bool) -> Value:
    return reductions.norm(g, input, p, dim, True)


@translates("prims.norm_over.default")
def norm_over(g: Graph, input: Value, order: float, dims: Any, keepdim: bool) -> Value:
    return reductions.norm(g, input, order, list(dims), keepdim)


@translates("prims.cross_along.default", "aten.linalg_cross.default")
def cross_along(g: Graph, input: Value, other: Value, dim: int = -1) -> Value:
    def turned(x: Value, by: list[int]) -> Value:
        return g.op("Gather", x, np.array(by, dtype=np.int64), axis=dim)

    first = g.op("Mul", turned(input, [1, 2, 0]), turned(other, [2, 0, 1]))
    return g.op("Sub", first, g.op("Mul", turned(input, [2, 0, 1]), turned(other, [1, 2, 0])))


def _flat_pairs(pairs: Any) -> list[Any]:
    """``(before, after)`` from the first padded dimension on, as `padded` takes them: from the last."""
    return [n for pair in reversed(pairs) for n in pair]


@translates("prims.pad_mode.default")
def pad_mode(g: Graph, input: Value, pairs: Any, mode: str) -> Value:
    return padded(g, input, _flat_pairs(pairs), mode)


@translates("prims.pad_constant.default")
def pad_constant(g: Graph, input: Value, pairs: Any, value: Any) -> Value:
    return padded(g, input, _flat_pairs(pairs), "constant", value)


def _windows(windows: Any) -> dict[str, Any]:
    """What pooling takes, from the windows along each dimension."""
    ceil = any(w.count > (w.size + 2 * w.padding - w.dilation * (w.kernel - 1) - 1) // w.stride + 1 for w in windows)
    return {
        "kernel_size": [w.kernel for w in windows], "stride": [w.stride for w in windows], "padding": [w.padding for w in windows],
        "ceil_mode": ceil,
    }  # fmt: skip


@translates("prims.window_mean.default")
def window_mean(g: Graph, input: Value, windows: Any, include_padding: bool, divisor: Any) -> Value:
    return average_pool(len(windows))(g, input, **_windows(windows), count_include_pad=include_padding, divisor_override=divisor)


@translates("prims.window_max_with_indices.default")
def window_max(g: Graph, input: Value, windows: Any) -> tuple[Value, Value]:
    return max_pool(len(windows), True)(g, input, **_windows(windows), dilation=[w.dilation for w in windows])


def _adaptive(spatial: int) -> Any:
    pool = TRANSLATORS[f"aten.adaptive_max_pool{spatial}d.default"]

    def translate(g: Graph, input: Value, output_size: Any, return_indices: bool = False) -> Any:
        made = pool(g, input, output_size)
        return made if return_indices else made[0]

    return translate


for _n in (1, 2, 3):
    translates(f"prims.adaptive_max_pool{_n}d.default")(_adaptive(_n))


@translates("prims.places_in_sorted.default")
def places_in_sorted(
    g: Graph, sequence: Value, values: Value, out_int32: bool, right: bool, sorter: Value | None = None
) -> Value:
    if sequence.ndim != 1 or sorter is not None:
        raise OnnxExporterError("searchsorted of several rows, or with a sorter, is not built")
    # As many as lie before: each value beside each boundary.
    dtype = fb.promote_types(sequence.dtype, values.dtype)
    beside = g.unsqueeze(g.cast(values, dtype), values.ndim)
    before = g.op("LessOrEqual" if right else "Less", g.cast(sequence, dtype), beside, dtype=fb.bool)
    return g.reduce("ReduceSum", g.cast(before, fb.int64), [-1])


@translates("aten.searchsorted.Tensor")
def searchsorted(
    g: Graph, sorted_sequence: Value, self: Value, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Value | None = None
) -> Value:  # fmt: skip
    return places_in_sorted(g, sorted_sequence, self, out_int32, right or side == "right", sorter)


@translates("aten.bucketize.Tensor")
def bucketize(g: Graph, input: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return places_in_sorted(g, boundaries, input, out_int32, right)


@translates("aten.isin.Tensor_Tensor")
def isin(g: Graph, elements: Value, test_elements: Value, *, assume_unique: bool = False, invert: bool = False) -> Value:
    dtype = fb.promote_types(elements.dtype, test_elements.dtype)
    beside = g.cast(g.unsqueeze(elements, elements.ndim), dtype)
    equal = g.op("Equal", beside, g.cast(g.reshape(test_elements, [-1]), dtype), dtype=fb.bool)
    found = g.cast(g.reduce("ReduceMax", g.cast(equal, fb.int32), [-1]), fb.bool)
    return g.op("Not", found) if invert else found


@translates("aten.pairwise_distance.default")
def pairwise_distance(g: Graph, x1: Value, x2: Value, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Value:
    apart = g.op("Add", g.op("Sub", x1, x2), g.const(eps, g.out.dtype))
    return reductions.norm(g, apart, p, -1, keepdim)


@translates("aten.nansum.default", "aten.nansum.dim_IntList")
def nansum(g: Graph, input: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = g.op("Where", g.op("IsNaN", input, dtype=fb.bool), g.const(0.0, input.dtype), input, dtype=input.dtype)
    return reductions.total(g, x, dim, keepdim)


@translates("aten.median.dim", "aten.kthvalue.default")
def median_along(g: Graph, input: Value, *others: Any, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    if g.doc.startswith("aten.kthvalue"):
        k, *others = others  # type: ignore[assignment]
        at = k - 1
        dim = others[0] if others else dim
    else:
        dim = others[0] if others else dim
        at = (input_size(input, dim) - 1) // 2
    keepdim = others[1] if len(others) > 1 else keepdim
    ordered, places = reductions.topk(g, input, input_size(input, dim), dim, False)
    made = tuple(g.op("Gather", x, np.array([at], dtype=np.int64), axis=dim) for x in (ordered, places))
    first, second = made if keepdim else (g.op("Squeeze", x, [dim]) for x in made)
    return first, second


@translates("aten.diag_embed.default")
def diag_embed(g: Graph, input: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    size = input_size(input, -1)
    whole = size + abs(offset)
    place = np.zeros((size, whole, whole), dtype=np.float64)
    rows = np.arange(size) + max(-offset, 0)
    place[np.arange(size), rows, rows + offset] = 1
    on = g.const(fb.tensor(place.sum(0) > 0))
    lead = input.ndim - 1
    # The value of each row, or column, in all of its places; then only those of the diagonal stay.
    lines = padded(g, input, [max(-offset, 0), max(offset, 0)], "constant")
    made = g.op("Where", on, g.op("Unsqueeze", lines, [lead + 1]), g.const(0, input.dtype), dtype=input.dtype)
    a, b = dim1 % (lead + 2), dim2 % (lead + 2)
    rest = iter(range(lead))
    return g.transpose(made, [lead if d == a else lead + 1 if d == b else next(rest) for d in range(lead + 2)])


@translates("aten.rot90.default")
def rot90(g: Graph, input: Value, k: int = 1, dims: Any = (0, 1)) -> Value:
    turns, (a, b) = k % 4, dims
    if turns == 0:
        return g.op("Identity", input)
    if turns == 2:
        return flip(g, input, [a, b])
    turned = flip(g, input, [b if turns == 1 else a])
    return transpose(g, Value(turned.name, turned.dtype, input.shape), a, b)
