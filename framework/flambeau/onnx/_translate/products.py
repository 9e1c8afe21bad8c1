"""Matrix products, and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates

__all__: list[str] = []


@translates("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default", "aten.vdot.default")
def matmul(g: Graph, input: Value, other: Value) -> Value:
    return g.op("MatMul", input, other)


@translates("aten.inner.default")
def inner(g: Graph, input: Value, other: Value) -> Value:
    if not input.ndim or not other.ndim:
        return g.op("Mul", input, other)
    if other.ndim == 1:
        return g.op("MatMul", input, other)
    rows = g.op("Reshape", other, g.op("Concat", [-1], g.op("Shape", other, dtype=fb.int64, start=-1), axis=0))
    made = g.op("MatMul", input, g.op("Transpose", rows, perm=[1, 0]))
    leads = [g.size(x, d) for x in (input, other) for d in range(x.ndim - 1)]
    return made if other.ndim == 2 else g.reshape(made, leads)


@translates("aten.linear.default")
def linear(g: Graph, input: Value, weight: Value, bias: Value | None = None) -> Value:
    if input.ndim == 2 and weight.ndim == 2:
        return g.op("Gemm", input, weight, bias, transB=1)
    made = g.op("MatMul", input, g.transpose(weight, [1, 0]) if weight.ndim == 2 else weight)
    return made if bias is None else g.op("Add", made, bias)


@translates("aten.addmm.default")
def addmm(g: Graph, input: Value, mat1: Value, mat2: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    if mat1.dtype.is_floating_point:
        return g.op("Gemm", mat1, mat2, input, alpha=float(alpha), beta=float(beta))
    return _plus_product(g, input, g.op("MatMul", mat1, mat2), beta, alpha)


@translates("aten.baddbmm.default", "aten.addmv.default")
def baddbmm(g: Graph, input: Value, batch1: Value, batch2: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus_product(g, input, g.op("MatMul", batch1, batch2), beta, alpha)


@translates("aten.addbmm.default")
def addbmm(g: Graph, input: Value, batch1: Value, batch2: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus_product(g, input, g.reduce("ReduceSum", g.op("MatMul", batch1, batch2), [0]), beta, alpha)


@translates("aten.addr.default")
def addr(g: Graph, input: Value, vec1: Value, vec2: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus_product(g, input, outer(g, vec1, vec2), beta, alpha)


def _plus_product(g: Graph, input: Value, product: Value, beta: Any, alpha: Any) -> Value:
    if alpha != 1:
        product = g.op("Mul", product, g.const(alpha, product.dtype))
    if beta == 0:
        return product
    return g.op("Add", input if beta == 1 else g.op("Mul", input, g.const(beta, input.dtype)), product)


@translates("aten.outer.default", "aten.ger.default")
def outer(g: Graph, input: Value, vec2: Value) -> Value:
    return g.op("Mul", g.unsqueeze(input, 1), g.unsqueeze(vec2, 0))


@translates("aten.einsum.default")
def einsum(g: Graph, equation: str, operands: list[Value], *, path: Any = None) -> Value:
    return g.op("Einsum", *operands, equation=equation)


@translates("aten.bilinear.default")
def bilinear(g: Graph, input1: Value, input2: Value, weight: Value, bias: Value | None = None) -> Value:
    made = g.op("Einsum", input1, weight, input2, equation="...i,kij,...j->...k")
    return made if bias is None else g.op("Add", made, bias)


@translates("aten.linalg_det.default", "aten.det.default")
def det(g: Graph, A: Value) -> Value:
    return g.op("Det", A)


@translates("aten.cosine_similarity.default")
def cosine_similarity(g: Graph, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    def scaled(x: Value) -> Value:
        length = g.op("Sqrt", g.reduce("ReduceSum", g.op("Mul", x, x), [dim], True))
        return g.op("Div", x, g.op("Max", length, g.const(eps, x.dtype)))

    return g.reduce("ReduceSum", g.op("Mul", scaled(x1), scaled(x2)), [dim])


@translates("aten.scaled_dot_product_attention.default")
def attention(
    g: Graph, query: Value, key: Value, value: Value, attn_mask: Value | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise OnnxExporterError("scaled_dot_product_attention with dropout is not built: export the model in eval mode")
    dtype, width = query.dtype, query.shape[-1] if query.shape is not None else None
    if not isinstance(width, int):
        raise OnnxExporterError("scaled_dot_product_attention needs a number of features that is not open")
    if enable_gqa:
        key, value = (_repeated_heads(g, x, query) for x in (key, value))
    scale = 1 / math.sqrt(width) if scale is None else scale
    order = [*range(key.ndim - 2), key.ndim - 1, key.ndim - 2]
    scores = g.op("Mul", g.op("MatMul", query, g.op("Transpose", key, perm=order)), g.const(float(scale), dtype))
    hidden = g.const(-math.inf, dtype)
    if is_causal:
        rows, columns = (g.op("Range", g.const(0, fb.int64), g.size_value(x, -2), g.const(1, fb.int64)) for x in (query, key))
        seen = g.op("GreaterOrEqual", g.unsqueeze(rows, 1), g.unsqueeze(columns, 0), dtype=fb.bool)
        scores = g.op("Where", seen, scores, hidden, dtype=dtype)
    if attn_mask is not None and attn_mask.dtype is fb.bool:
        scores = g.op("Where", attn_mask, scores, hidden, dtype=dtype)
    elif attn_mask is not None:
        scores = g.op("Add", scores, g.cast(attn_mask, dtype))
    weights = g.op("Softmax", scores, axis=-1)
    if attn_mask is not None:                         # a row that sees nothing is 0, not nan
        most = g.reduce("ReduceMax", scores, [-1], True)
        weights = g.op("Where", g.op("Equal", most, hidden, dtype=fb.bool), g.const(0.0, dtype), weights, dtype=dtype)
    return g.op("MatMul", weights, value)


def _repeated_heads(g: Graph, x: Value, query: Value) -> Value:
    assert x.shape is not None
    assert query.shape is not None
    heads, wanted = x.shape[-3], query.shape[-3]
    if not isinstance(heads, int) or not isinstance(wanted, int):
        raise OnnxExporterError("scaled_dot_product_attention(enable_gqa=True) needs numbers of heads that are not open")
    return g.op("Gather", x, np.repeat(np.arange(heads), wanted // heads).astype(np.int64), axis=-3, shape=x.shape)
