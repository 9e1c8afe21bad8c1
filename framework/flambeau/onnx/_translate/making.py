"""Operators that make Tensors: filled, counted, random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value, onnx_type
from ._table import translates

__all__: list[str] = []


def _filled(g: Graph, size: Any, value: Any, dtype: Any = None) -> Value:
    made = g.expand(g.like(value, g.out.dtype if dtype is None else dtype), g.sizes(size))
    return made._replace(shape=tuple(n if isinstance(n, int) else None for n in size))


def _of_size(value: Any) -> Callable[..., Value]:
    def translate(g: Graph, size: Any, **settings: Any) -> Value:
        return _filled(g, size, value)

    return translate


def _of_size_after(value: Any) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, size: Any, *others: Any, dtype: Any = None, **settings: Any) -> Value:
        return _filled(g, size, value, dtype or input.dtype)

    return translate


def _like(value: Any) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, **settings: Any) -> Value:
        return g.expand(g.const(value, g.out.dtype), g.shape_of(input))

    return translate


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    translates(f"aten.{_name}.default" if _name != "empty" else "aten.empty.memory_format")(_of_size(_value))
    translates(f"aten.{_name}_like.default")(_like(_value))
    translates(f"aten.new_{_name}.default")(_of_size_after(_value))
translates("aten.empty_strided.default", "aten.new_empty_strided.default")(lambda g, *a, **k: _filled(g, [*g.out.shape], 0))
translates("aten.zero.default")(_like(0))


@translates("aten.full.default")
def full(g: Graph, size: Any, fill_value: Any, **settings: Any) -> Value:
    return _filled(g, size, fill_value)


@translates("aten.full_like.default")
def full_like(g: Graph, input: Value, fill_value: Any, **settings: Any) -> Value:
    return g.expand(g.like(fill_value, g.out.dtype), g.shape_of(input))


@translates("aten.fill.Scalar", "aten.fill.Tensor")
def fill(g: Graph, input: Value, value: Any) -> Value:
    return full_like(g, input, value)


@translates("aten.new_full.default")
def new_full(g: Graph, input: Value, size: Any, fill_value: Any, dtype: Any = None, **settings: Any) -> Value:
    return _filled(g, size, fill_value, dtype or input.dtype)


@translates("aten.scalar_tensor.default")
def scalar_tensor(g: Graph, s: Any, **settings: Any) -> Value:
    return g.like(s, g.out.dtype)


@translates("aten.copy.default")
def copy(g: Graph, input: Value, src: Value, non_blocking: bool = False) -> Value:
    return g.expand(g.cast(src, input.dtype), g.shape_of(input))


@translates("aten.arange.default")
def arange(g: Graph, end: Any, **settings: Any) -> Value:
    return arange_from(g, 0, end, 1)


@translates("aten.arange.start", "aten.arange.start_step")
def arange_from(g: Graph, start: Any, end: Any, step: Any = 1, **settings: Any) -> Value:
    dtype = g.out.dtype
    if not any(isinstance(x, Value) for x in (start, end, step)):
        return g.const(fb.arange(start, end, step, dtype=dtype))
    integers = not any(isinstance(x, float) or (isinstance(x, Value) and x.dtype.is_floating_point) for x in (start, end, step))
    counted = fb.int64 if integers else dtype
    return g.cast(g.op("Range", *(g.like(x, counted) for x in (start, end, step))), dtype)


@translates("aten.linspace.default")
def linspace(g: Graph, start: Any, end: Any, steps: int, **settings: Any) -> Value:
    return g.const(fb.linspace(start, end, steps, dtype=g.out.dtype))


@translates("aten.eye.default", "aten.eye.m")
def eye(g: Graph, n: Any, m: Any = None, **settings: Any) -> Value:
    m = n if m is None else m
    if isinstance(n, int) and isinstance(m, int):
        return g.const(fb.eye(n, m, dtype=g.out.dtype))
    return g.op("EyeLike", _filled(g, [n, m], 0), dtype=g.out.dtype)


@translates("aten.tril_indices.default", "aten.triu_indices.default")
def triangle_indices(g: Graph, row: int, col: int, offset: int = 0, **settings: Any) -> Value:
    make = np.tril_indices if g.doc.startswith("aten.tril") else np.triu_indices
    return g.cast(g.array(np.stack(make(row, offset, col)).astype(np.int64)), g.out.dtype)


@translates("aten.rand.default", "aten.rand_like.default")
def rand(g: Graph, size: Any, **settings: Any) -> Value:
    return _random(g, "RandomUniformLike", size)


@translates("aten.randn.default", "aten.randn_like.default")
def randn(g: Graph, size: Any, **settings: Any) -> Value:
    return _random(g, "RandomNormalLike", size)


def _random(g: Graph, kind: str, size: Any) -> Value:
    of = size if isinstance(size, Value) else _filled(g, size, 0)
    return g.op(kind, of, dtype=g.out.dtype, dtype_i=onnx_type(g.out.dtype))


@translates("aten.bernoulli.default")
def bernoulli(g: Graph, input: Value, *, generator: Any = None) -> Value:
    return g.op("Bernoulli", input)
