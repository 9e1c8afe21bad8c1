"""Operators that take elements from given places, or put them there: bags of embeddings, pooling with places; and products along."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau as fb

from ...ops.layers.embedding import BAG_MODES
from .._control_flow import repeat
from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates
from .losses import _reduced
from .shapes import input_size

__all__: list[str] = []


# -- bags of embeddings ------------------------------------------------------------------------------------------------------


@translates("prims.embedding_bag.default")
def embedding_bag_with_norm(g: Graph, *args: Any, **kwargs: Any) -> Any:
    raise OnnxExporterError("embedding_bag with max_norm, which scales the table of embeddings itself, is not built")


@translates("aten.embedding_bag.default", "aten.embedding_bag.padding_idx")
def embedding_bag(
    g: Graph, weight: Value, input: Value, offsets: Value, scale_grad_by_freq: bool = False, number: int = 0, sparse: bool = False,
    per_sample_weights: Value | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Value, None, None, None]:  # fmt: skip
    made = _bags(g, weight, input, offsets, BAG_MODES[number], per_sample_weights, include_last_offset, padding_idx)
    return made, None, None, None                     # the others are for derivatives


def _bags(
    g: Graph, weight: Value, input: Value, offsets: Value, mode: str, per_sample_weights: Value | None, include_last_offset: bool,
    padding_idx: int | None,
) -> Value:  # fmt: skip
    dtype, indices = weight.dtype, g.cast(input, fb.int64)._replace(shape=input.shape)
    rows = g.op("Gather", weight, indices, axis=0)    # (batch, count, features), or (count, features) with offsets
    if per_sample_weights is not None:
        rows = g.op("Mul", rows, g.unsqueeze(per_sample_weights, input.ndim))
    neutral = g.const(-math.inf if mode == "max" else 0.0, dtype)
    counts = None                                     # which rows count
    if padding_idx is not None:
        counts = g.op("Not", g.op("Equal", indices, g.const(_from_start(g, weight, padding_idx), fb.int64), dtype=fb.bool))
        rows = g.op("Where", g.unsqueeze(counts, input.ndim), rows, neutral, dtype=dtype)
    made, many = _by_offsets(g, rows, indices, weight, offsets, mode, include_last_offset, counts)
    if mode == "sum":
        return made
    if mode == "mean":
        return g.op("Div", made, g.cast(g.op("Max", many, g.const(1, fb.int64)), dtype))
    return g.op("Where", g.op("Equal", many, g.const(0, fb.int64), dtype=fb.bool), g.const(0.0, dtype), made, dtype=dtype)


def _from_start(g: Graph, weight: Value, index: int) -> int:
    return index if index >= 0 else index + input_size(weight, 0)


def _by_offsets(
    g: Graph, rows: Value, indices: Value, weight: Value, offsets: Value, mode: str, has_last: bool, counts: Value | None
) -> tuple[Value, Value]:
    """Rows of bags that begin at `offsets`, brought together; and how many there are of each, ``(bags, 1)``."""
    if mode == "max" and g.opset < 18:
        raise OnnxExporterError("embedding_bag of the largest of bags at offsets needs opset_version 18")
    begin = g.cast(offsets, fb.int64)
    begin = g.op("Slice", begin, [0], [-1], [0]) if has_last else begin
    place = g.op("Range", g.const(0, fb.int64), g.op("Reshape", g.op("Shape", indices, dtype=fb.int64), g.sizes([])), g.const(1, fb.int64))
    # The bag of an index is the last that has begun: as many have as there are offsets up to it.
    begun = g.op("LessOrEqual", g.unsqueeze(begin, 0), g.unsqueeze(place, 1), dtype=fb.bool)
    bag = g.op("Sub", g.reduce("ReduceSum", g.cast(begun, fb.int64), [1], True), g.const(1, fb.int64))
    bags = g.op("Shape", begin, dtype=fb.int64)
    whole = g.op("Concat", bags, [input_size(weight, 1)], axis=0)
    zero = g.expand(g.const(-math.inf if mode == "max" else 0.0, rows.dtype), whole)
    at = g.op("Expand", bag, g.op("Shape", rows, dtype=fb.int64))
    made = g.op("ScatterElements", zero, at, rows, axis=0, reduction="max" if mode == "max" else "add")
    ones = g.op("Expand", g.const(1, fb.int64), g.op("Shape", bag, dtype=fb.int64)) if counts is None else g.cast(
        g.unsqueeze(counts, 1), fb.int64
    )
    none = g.expand(g.const(0, fb.int64), g.op("Concat", bags, [1], axis=0))
    return made, g.op("ScatterElements", none, bag, ones, axis=0, reduction="add")


# -- pooling with places -----------------------------------------------------------------------------------------------------


def _flat(g: Graph, x: Value, spatial: int) -> Value:
    """`x` with its last dimensions as one."""
    lead = x.ndim - spatial
    return g.reshape(x, [*(g.size(x, d) for d in range(lead)), -1])


def _unpooled(spatial: int) -> Any:
    def translate(
        g: Graph, input: Value, indices: Value, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Value:
        sizes = list(g.out.shape)[-spatial:]
        if not all(isinstance(n, int) for n in sizes):
            raise OnnxExporterError("max_unpool of open sizes is not built")
        leads = [g.size(input, d) for d in range(input.ndim - spatial)]
        whole = g.expand(g.const(0, input.dtype), g.sizes([*leads, math.prod(sizes)]))
        put = g.op("ScatterElements", whole, _flat(g, indices, spatial), _flat(g, input, spatial), axis=len(leads))
        return g.reshape(put, [*leads, *sizes])

    return translate


for _n in (1, 2, 3):
    translates(f"prims.max_unpool{_n}d.default")(_unpooled(_n))


@translates("prims.take_plane.default")
def take_plane(g: Graph, input: Value, indices: Value, n: int) -> Value:
    places = g.cast(indices, fb.int64)._replace(shape=indices.shape)
    taken = g.op("GatherElements", _flat(g, input, n), _flat(g, places, n), axis=input.ndim - n)
    return g.op("Reshape", taken, g.shape_of(indices))


def maxima_of_ranges(g: Graph, input: Value, ranges: list[list[tuple[int, int]]], with_places: bool) -> Any:
    """The largest element of each window, of ranges along each of the last dimensions; and its place in the plane, if `with_places`."""
    spatial = len(ranges)
    lead = input.ndim - spatial
    sizes = [input_size(input, lead + i) for i in range(spatial)]
    # Windows of one size: shorter ones have their last element several times.
    taken = [np.array([[min(a + j, b - 1) for j in range(max(d - c for c, d in along))] for a, b in along]) for along in ranges]
    x = input
    for i, places in enumerate(taken):
        x = g.op("Gather", x, places.astype(np.int64), axis=lead + 2 * i)
    order = [*range(lead), *(lead + 2 * i for i in range(spatial)), *(lead + 2 * i + 1 for i in range(spatial))]
    leads, counts = [g.size(input, d) for d in range(lead)], [len(places) for places in taken]
    windows = g.reshape(g.op("Transpose", x, perm=order), [*leads, *counts, -1])
    most = g.reduce("ReduceMax", windows, [lead + spatial])
    if not with_places:
        return most
    plane = np.arange(math.prod(sizes)).reshape(sizes)
    for i, places in enumerate(taken):
        plane = np.take(plane, places, axis=2 * i)
    plane = plane.transpose([d - lead for d in order[lead:]]).reshape(*counts, -1).astype(np.int64)
    first = g.op("ArgMax", windows, dtype=fb.int64, axis=lead + spatial, keepdims=1)
    spread = g.expand(g.array(plane), g.op("Shape", windows, dtype=fb.int64))
    return most, g.op("Squeeze", g.op("GatherElements", spread, first, axis=lead + spatial), [lead + spatial])


# -- products along, and losses ----------------------------------------------------------------------------------------------


@translates("aten.cumprod.default")
def cumprod(g: Graph, input: Value, dim: int, *, dtype: Any = None) -> Value:
    x = g.cast(input, g.out.dtype)._replace(shape=input.shape)
    if not x.ndim:
        return x
    dim %= x.ndim
    leads = [g.size(x, d) for d in range(x.ndim) if d != dim]
    one = g.expand(g.const(1, x.dtype), g.sizes(leads))._replace(shape=tuple(n if isinstance(n, int) else None for n in leads))

    def step(before: Value, part: Value) -> list[Value]:
        made = g.op("Mul", before, part)._replace(shape=part.shape)
        return [made, made]

    return repeat(g, step, [one], [x], dim, False, dim)[1]


@translates("prims.logit_entropy.default")
def logit_entropy(g: Graph, input: Value, target: Value) -> Value:
    dtype = g.out.dtype
    x, y = g.cast(input, dtype), g.cast(target, dtype)
    return g.op("Add", g.op("Mul", g.op("Sub", g.const(1.0, dtype), y), x), g.op("Softplus", g.op("Neg", x)))


@translates("aten.multi_margin_loss.default")
def multi_margin_loss(
    g: Graph, input: Value, target: Value, p: Any = 1, margin: Any = 1.0, weight: Value | None = None, reduction: int = 1
) -> Value:
    dtype, classes = input.dtype, input_size(input, -1)
    at = g.unsqueeze(g.cast(target, fb.int64), target.ndim)
    if input.ndim == 1:
        at = g.reshape(at, [1])
    own = g.op("GatherElements", input, at, axis=input.ndim - 1)
    short = g.op("Max", g.op("Add", g.op("Sub", g.const(float(margin), dtype), own), input), g.const(0.0, dtype))
    short = g.op("Mul", short, short) if p == 2 else short
    if weight is not None:
        short = g.op("Mul", short, g.op("Gather", weight, at, axis=0))
    is_own = g.op("Equal", at, g.array(np.arange(classes)), dtype=fb.bool)
    total = g.reduce("ReduceSum", g.op("Where", is_own, g.const(0.0, dtype), short, dtype=dtype), [-1])
    return _reduced(g, g.op("Div", total, g.const(float(classes), dtype)), reduction)
