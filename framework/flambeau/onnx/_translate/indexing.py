"""Operators that read and write elements at places that Tensors say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates
from .shapes import slice as sliced

__all__: list[str] = []


@translates("aten.index_select.default")
def index_select(g: Graph, input: Value, dim: int, index: Value) -> Value:
    if not index.ndim:
        index = g.reshape(index, [1])
    if not input.ndim:
        return g.op("Identity", input)
    return g.op("Gather", input, index, axis=dim)


@translates("aten.gather.default")
def gather(g: Graph, input: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    return g.op("GatherElements", input, index, axis=dim)


@translates("aten.take_along_dim.default")
def take_along_dim(g: Graph, input: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        return g.op("GatherElements", g.reshape(input, [-1]), g.reshape(indices, [-1]), axis=0)
    return g.op("GatherElements", input, indices, axis=dim)


@translates("aten.take.default")
def take(g: Graph, input: Value, index: Value) -> Value:
    return g.op("Gather", g.reshape(input, [-1]), index, axis=0)


@translates("aten.scatter.src")
def scatter(g: Graph, input: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(g, input, dim, index, src, None)


@translates("aten.scatter.value")
def scatter_value(g: Graph, input: Value, dim: int, index: Value, value: Any) -> Value:
    return g.op("ScatterElements", input, index, g.expand(g.const(value, input.dtype), g.shape_of(index)), axis=dim)


@translates("aten.scatter_add.default")
def scatter_add(g: Graph, input: Value, dim: int, index: Value, src: Value) -> Value:
    return _scattered(g, input, dim, index, src, "add")


@translates("aten.scatter.reduce")
def scatter_reduced(g: Graph, input: Value, dim: int, index: Value, src: Value, *, reduce: str) -> Value:
    return _scattered(g, input, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@translates("aten.scatter_reduce.two")
def scatter_reduce(g: Graph, input: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True) -> Value:
    kinds = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in kinds or not include_self:
        raise OnnxExporterError(f"scatter_reduce(reduce={reduce!r}, include_self={include_self}) has no operator in ONNX")
    return _scattered(g, input, dim, index, src, kinds[reduce])


def _scattered(g: Graph, input: Value, dim: int, index: Value, src: Value, reduction: str | None) -> Value:
    # ONNX wants as many sources as places; PyTorch takes the first of more.
    if src.shape != index.shape and index.ndim:
        src = g.op("Slice", src, [0] * index.ndim, g.shape_of(index), list(range(index.ndim)))
    return g.op("ScatterElements", input, index, src, axis=dim, reduction=reduction)


def _along(g: Graph, index: Value, x: Value, dim: int) -> Value:
    """The vector `index` with the sizes of `x` in all dimensions but `dim`, where its elements lie."""
    dim %= x.ndim
    column = g.reshape(index, [-1, *[1] * (x.ndim - 1 - dim)])
    sizes = [1 if d == dim else g.size(x, d) for d in range(x.ndim)]
    return g.expand(column, g.sizes(sizes))


@translates("aten.index_add.default")
def index_add(g: Graph, input: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    source = source if alpha == 1 else g.op("Mul", source, g.const(alpha, source.dtype), shape=source.shape)
    return g.op("ScatterElements", input, _along(g, index, source, dim), source, axis=dim, reduction="add")


@translates("aten.index_copy.default")
def index_copy(g: Graph, input: Value, dim: int, index: Value, source: Value) -> Value:
    return g.op("ScatterElements", input, _along(g, index, source, dim), source, axis=dim)


@translates("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(g: Graph, input: Value, dim: int, index: Value, value: Any) -> Value:
    places = _along(g, index, input, dim)
    return g.op("ScatterElements", input, places, g.expand(g.like(value, input.dtype), g.op("Shape", places, dtype=fb.int64)), axis=dim)


# -- x[i, :, j] ------------------------------------------------------------------------------------------------------------


def _places(g: Graph, input: Value, indices: Sequence[Value | None]) -> tuple[list[int], Value, int]:
    """The dimensions that `indices` are of, their broadcast values in a last dimension, and how many dimensions these have before."""
    indices = _without_masks(g, indices)
    at = [d for d, index in enumerate(indices) if index is not None]
    given = [g.cast(index, fb.int64) for index in indices if index is not None]
    ndim = max(index.ndim for index in given)
    if len(given) == 1:
        return at, g.op("Unsqueeze", given[0], [ndim]), ndim
    whole = given[0]
    for index in given[1:]:
        whole = g.op("Add", whole, index)
    sizes = g.op("Shape", whole, dtype=fb.int64)
    parts = [g.op("Unsqueeze", g.expand(index, sizes), [ndim]) for index in given]
    return at, g.op("Concat", *parts, axis=ndim), ndim


def _without_masks(g: Graph, indices: Sequence[Value | None]) -> list[Value | None]:
    """`indices` with the places that a mask has in the stead of the mask: a vector for each of its dimensions."""
    found: list[Value | None] = []
    for index in indices:
        if index is None or index.dtype not in (fb.bool, fb.uint8):
            found.append(index)
            continue
        places = g.op("NonZero", g.cast(index, fb.bool), dtype=fb.int64)
        found += [g.op("Gather", places, np.array(d, dtype=np.int64), axis=0, shape=(None,)) for d in range(index.ndim)]
    return found


@translates("prims.getitem_op.default")
def getitem(g: Graph, input: Value, key: Any) -> Value:
    """``input[key]`` where the key has masks."""
    keys = list(key) if isinstance(key, (list, tuple)) and not isinstance(key, Value) else [key]
    known = sum(k.ndim if isinstance(k, Value) and k.dtype is fb.bool else k is not None and k is not ... for k in keys)
    if any(k is ... for k in keys):
        at = keys.index(...)
        keys[at : at + 1] = [slice(None)] * (input.ndim - known)
    if any(k is None or isinstance(k, (bool, int)) for k in keys):
        raise OnnxExporterError("an index by masks beside new dimensions or numbers is not built")
    indices: list[Value | None] = []
    for k in keys:
        if isinstance(k, slice) and k != slice(None):
            input = sliced(g, input, len(indices), k.start, k.stop, k.step or 1)._replace(shape=(None,) * input.ndim)
        indices += [None] if isinstance(k, slice) else _without_masks(g, [k])
    return index(g, input, indices)


def _order(at: list[int], ndim: int) -> list[int]:
    return [*at, *(d for d in range(ndim) if d not in at)]


@translates("aten.index.Tensor")
def index(g: Graph, input: Value, indices: Sequence[Value | None]) -> Value:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype is not fb.bool:
        at = next(d for d, i in enumerate(indices) if i is not None)
        return g.op("Gather", input, g.cast(given[0], fb.int64), axis=at)
    if len(given) == 1 and indices[0] is given[0]:
        return masked_rows(g, input, given[0])
    indices = _without_masks(g, indices)
    given = [i for i in indices if i is not None]
    if len(given) == 1:
        return g.op("Gather", input, g.cast(given[0], fb.int64), axis=indices.index(given[0]))
    at, places, ndim = _places(g, input, indices)
    made = g.op("GatherND", g.transpose(input, _order(at, input.ndim)), places)
    # Dimensions of the indices stand where these do if they are neighbours, else first.
    if at == list(range(at[0], at[-1] + 1)) and at[0] > 0:
        total, lead = ndim + input.ndim - len(at), at[0]
        made = g.op("Transpose", made, perm=[*range(ndim, ndim + lead), *range(ndim), *range(ndim + lead, total)])
    return made


def masked_rows(g: Graph, input: Value, mask: Value) -> Value:
    """The parts of `input` where `mask`, of its first dimensions, is True."""
    return g.op("GatherND", input, g.op("Transpose", g.op("NonZero", mask, dtype=fb.int64), perm=[1, 0]))


@translates("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(g: Graph, input: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    given = [i for i in indices if i is not None]
    if len(given) == 1 and given[0].dtype is fb.bool and not values.ndim and not accumulate:
        mask = given[0]
        lead = next(d for d, i in enumerate(indices) if i is not None)
        after = input.ndim - lead - mask.ndim
        mask = g.op("Unsqueeze", mask, list(range(mask.ndim, mask.ndim + after))) if after else mask
        return g.op("Where", mask, g.cast(values, input.dtype), input, dtype=input.dtype)
    indices = _without_masks(g, indices)
    at, places, ndim = _places(g, input, indices)
    order = _order(at, input.ndim)
    rest = [d for d in range(input.ndim) if d not in at]
    x = g.transpose(input, order)
    sizes = g.op("Shape", places, dtype=fb.int64, end=ndim)
    moved = at == list(range(at[0], at[-1] + 1)) and at[0] > 0
    tail = g.sizes([g.size(input, d) for d in rest]) if rest else None
    if moved:                                         # as `index` arranges its result
        lead = at[0]
        first, last = g.sizes([g.size(input, d) for d in rest[:lead]]), rest[lead:]
        whole = g.op("Concat", first, sizes, *([g.sizes([g.size(input, d) for d in last])] if last else []), axis=0)
        spread_values = g.expand(g.cast(values, input.dtype), whole)
        perm = [*range(lead, lead + ndim), *range(lead), *range(lead + ndim, ndim + len(rest))]
        spread_values = g.op("Transpose", spread_values, perm=perm)
    else:
        whole = sizes if tail is None else g.op("Concat", sizes, tail, axis=0)
        spread_values = g.expand(g.cast(values, input.dtype), whole)
    made = g.op("ScatterND", x, places, spread_values, reduction="add" if accumulate else None)
    back = [order.index(d) for d in range(input.ndim)]
    return made if back == list(range(input.ndim)) else g.op("Transpose", made, perm=back)


@translates("aten.masked_select.default")
def masked_select(g: Graph, input: Value, mask: Value) -> Value:
    sizes = g.op("Shape", g.op("Or", mask, g.op("Not", g.op("Equal", input, input, dtype=fb.bool))), dtype=fb.int64)
    return masked_rows(g, g.expand(input, sizes), g.expand(mask, sizes))


@translates("aten.nonzero.default", "aten.argwhere.default")
def nonzero(g: Graph, input: Value) -> Value:
    return g.op("Transpose", g.op("NonZero", g.cast(input, fb.bool), dtype=fb.int64), perm=[1, 0])


# -- writes to views -------------------------------------------------------------------------------------------------------


@translates("aten.select_scatter.default")
def select_scatter(g: Graph, input: Value, src: Value, dim: int, index: Any) -> Value:
    at = index if isinstance(index, Value) else g.const(index, fb.int64)
    rows = g.op("Reshape", at, [1, 1])
    return _written(g, input, dim, rows, lambda perm: g.unsqueeze(g.cast(src, input.dtype), 0))


@translates("aten.slice_scatter.default")
def slice_scatter(g: Graph, input: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    numbers = g.op("Range", g.const(0, fb.int64), g.size_value(input, dim), g.const(1, fb.int64), shape=(None,))
    rows = g.op("Unsqueeze", sliced(g, numbers, 0, start, end, step), [1])
    return _written(g, input, dim, rows, lambda perm: g.transpose(g.cast(src, input.dtype), perm))


def _written(g: Graph, input: Value, dim: int, rows: Value, source: Any) -> Value:
    """`input` with the rows along `dim` replaced by those that `source` gives for a permutation that has `dim` first."""
    dim %= input.ndim
    perm = [dim, *(d for d in range(input.ndim) if d != dim)]
    made = g.op("ScatterND", g.transpose(input, perm), rows, source(perm))
    back = [perm.index(d) for d in range(input.ndim)]
    return made if dim == 0 else g.op("Transpose", made, perm=back)
