"""Linear algebra by loops: solutions, inverses, determinants and factors of Cholesky, a row at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates

__all__: list[str] = []


def _size(A: Value) -> int:
    n = A.shape[-1] if A.shape is not None else None
    if not isinstance(n, int):
        raise OnnxExporterError("linear algebra on matrices of open sizes is not built")
    return n


def _repeated(g: Graph, count: int, first: list[Value], step: Callable[..., list[Value]]) -> list[Value]:
    """What `step` of a counter and of what it gave the last time gives in the end, `first` at first."""
    inputs = [(fb.int64, ()), (fb.bool, ()), *((x.dtype, x.shape) for x in first)]
    body, _ = g.within("loop_body", inputs, lambda at, goes_on, *values: [goes_on, *step(at, *values)])
    made = g.op("Loop", g.const(count, fb.int64), g.const(True), *first, outputs=len(first), dtype=tuple(x.dtype for x in first), body=body)
    made = [made] if isinstance(made, Value) else list(made)
    return [y._replace(shape=x.shape) for x, y in zip(first, made, strict=True)]


def _line(g: Graph, M: Value, at: Value, axis: int) -> Value:
    """The row or column `at` of matrices, as a matrix of one."""
    return g.op("Gather", M, g.op("Unsqueeze", at, [0]), axis=axis)


def _eliminated(g: Graph, A: Value, B: Value | None) -> tuple[Value, Value, Value]:
    """The solution of ``A X = B``, and the sign and logarithm of the determinant: Gauss and Jordan, with the largest pivot of a column.

    Where `B` is None, the solution is of no use.
    """
    n = _size(A)
    dtype, batch = A.dtype, tuple(A.shape or ())[:-2]
    rows = g.array(np.arange(n, dtype=np.int64).reshape(n, 1))
    whole = A if B is None else g.op("Concat", A, B, axis=-1)
    if B is not None:
        whole = whole._replace(shape=(*batch, n, None))
    scalars = g.op("Mul", g.reduce("ReduceSum", A, [-1, -2], True), g.const(0.0, dtype))._replace(shape=(*batch, 1, 1))
    one, zero = g.op("Add", scalars, g.const(1.0, dtype), shape=scalars.shape), scalars

    def step(i: Value, M: Value, sign: Value, log: Value) -> list[Value]:
        column = _line(g, M, i, -1)                   # (..., n, 1)
        below = g.op("GreaterOrEqual", rows, i, dtype=fb.bool)
        heights = g.op("Where", below, g.op("Abs", column), g.const(-1.0, dtype), dtype=dtype)
        chosen = g.op("ArgMax", heights, axis=-2, keepdims=1, dtype=fb.int64)  # (..., 1, 1)
        at_i, at_p = g.op("Equal", rows, i, dtype=fb.bool), g.op("Equal", rows, chosen, dtype=fb.bool)
        row_i = _line(g, M, i, -2)
        row_p = g.reduce("ReduceSum", g.op("Where", at_p, M, g.const(0.0, dtype), dtype=dtype), [-2], True)
        swapped = g.op("Where", at_i, row_p, g.op("Where", at_p, row_i, M, dtype=dtype), dtype=dtype)
        pivot = _line(g, row_p, i, -1)
        scaled = g.op("Div", row_p, pivot)
        factors = _line(g, swapped, i, -1)
        cleared = g.op("Sub", swapped, g.op("Mul", factors, scaled))
        moved = g.op("Equal", chosen, i, dtype=fb.bool)
        turn = g.op("Where", moved, g.const(1.0, dtype), g.const(-1.0, dtype), dtype=dtype)
        signs = g.op("Mul", sign, g.op("Mul", turn, g.op("Sign", pivot)))
        logs = g.op("Add", log, g.op("Log", g.op("Abs", pivot)))
        return [g.op("Where", at_i, scaled, cleared, dtype=dtype), signs, logs]

    whole, sign, log = _repeated(g, n, [whole, one, zero], step)
    X = g.op("Slice", whole, [n], [1 << 62], [-1])
    return X, *(g.op("Squeeze", x, [-2, -1], shape=batch) for x in (sign, log))


def _identity(g: Graph, A: Value) -> Value:
    """A unit matrix for each of the matrices `A`."""
    unit = g.const(fb.eye(_size(A), dtype=A.dtype))
    return unit if A.ndim == 2 else g.op("Expand", unit, g.shape_of(A), shape=A.shape)


@translates("aten.linalg_inv.default", "aten.inverse.default")
def inverse(g: Graph, A: Value) -> Value:
    return _eliminated(g, A, _identity(g, A))[0]


@translates("aten.linalg_inv_ex.default")
def inverse_with_info(g: Graph, A: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    made, sign, _ = _eliminated(g, A, _identity(g, A))
    return made, _no_error(g, sign)


def _no_error(g: Graph, like: Value) -> Value:
    return g.cast(g.op("Mul", like, g.const(0.0, like.dtype)), fb.int32)


@translates("aten.linalg_solve.default")
def solve(g: Graph, A: Value, B: Value, *, left: bool = True) -> Value:
    vectors = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == (A.shape or ())[:-1])
    if vectors:
        B = g.op("Unsqueeze", B, [-1])._replace(shape=(*(B.shape or ()), 1))
    X = _solution(g, A, B, left)
    return g.op("Squeeze", X, [-1]) if vectors else X


def _solution(g: Graph, A: Value, B: Value, left: bool = True) -> Value:
    """``A X = B``, or ``X A = B`` where not `left`."""
    if not left:
        return _turned(g, _solution(g, _turned(g, A), _turned(g, B)))
    batch = fb.broadcast_shapes((A.shape or ())[:-2], (B.shape or ())[:-2])
    A, B = (
        x if x.shape[:-2] == batch else g.op("Expand", x, [*batch, *x.shape[-2:]], shape=(*batch, *x.shape[-2:]))
        for x in (A, B) if x.shape is not None
    )  # fmt: skip
    return _eliminated(g, A, B)[0]._replace(shape=B.shape)


def _turned(g: Graph, x: Value) -> Value:
    return g.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


@translates("aten.linalg_slogdet.default", "prims.slogdet_of.default", "aten.slogdet.default")
def slogdet(g: Graph, A: Value) -> tuple[Value, Value]:
    _, sign, log = _eliminated(g, A, None)
    return sign, log


@translates("aten.logdet.default")
def logdet(g: Graph, A: Value) -> Value:
    sign, log = slogdet(g, A)
    negative = g.op("Less", sign, g.const(0.0, sign.dtype), dtype=fb.bool)
    return g.op("Where", negative, g.const(float("nan"), log.dtype), log, dtype=log.dtype)


# -- triangles -------------------------------------------------------------------------------------------------------------


@translates("aten.linalg_cholesky.default", "aten.cholesky.default")
def cholesky(g: Graph, A: Value, upper: bool = False) -> Value:
    n, dtype = _size(A), A.dtype
    rows = g.array(np.arange(n, dtype=np.int64).reshape(n, 1))
    columns = g.array(np.arange(n, dtype=np.int64))

    def step(j: Value, L: Value) -> list[Value]:
        # The part of column j that the columns before it do not explain, over the root of its diagonal element.
        row = _line(g, L, j, -2)._replace(shape=(*(A.shape or ())[:-2], 1, n))
        rest = g.op("Sub", _line(g, A, j, -1), g.op("MatMul", L, _turned(g, row)))
        root = g.op("Sqrt", _line(g, rest, j, -2))
        column = g.op("Where", g.op("GreaterOrEqual", rows, j, dtype=fb.bool), g.op("Div", rest, root), g.const(0.0, dtype), dtype=dtype)
        return [g.op("Where", g.op("Equal", columns, j, dtype=fb.bool), column, L, dtype=dtype)]

    made = _repeated(g, n, [g.op("Mul", A, g.const(0.0, dtype), shape=A.shape)], step)[0]
    return _turned(g, made) if upper else made


@translates("aten.linalg_cholesky_ex.default")
def cholesky_with_info(g: Graph, A: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    return cholesky(g, A, upper), _no_error(g, g.reduce("ReduceSum", A, [-1, -2]))


@translates("aten.linalg_solve_triangular.default")
def solve_triangular(
    g: Graph, A: Value, B: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    triangle = g.op("Trilu", A, upper=int(upper), shape=A.shape)
    if unitriangular:
        unit = g.const(fb.eye(_size(A), dtype=A.dtype))
        triangle = g.op("Where", g.cast(unit, fb.bool), unit, triangle, dtype=A.dtype, shape=A.shape)
    return _solution(g, triangle, B, left)


@translates("aten.cholesky_solve.default")
def cholesky_solve(g: Graph, B: Value, L: Value, upper: bool = False) -> Value:
    return _solution(g, _of_factor(g, L, upper), B)


@translates("prims.cholesky_solution.default")
def cholesky_solution(g: Graph, L: Value, B: Value, upper: bool) -> Value:
    return cholesky_solve(g, B, L, upper)


@translates("aten.cholesky_inverse.default")
def cholesky_inverse(g: Graph, L: Value, upper: bool = False) -> Value:
    return inverse(g, _of_factor(g, L, upper))


def _of_factor(g: Graph, L: Value, upper: bool) -> Value:
    """The matrix that has the factor `L`."""
    factor = g.op("Trilu", L, upper=int(upper), shape=L.shape)
    pair = (_turned(g, factor), factor) if upper else (factor, _turned(g, factor))
    return g.op("MatMul", *pair, shape=L.shape)


# -- norms -----------------------------------------------------------------------------------------------------------------


@translates("aten.linalg_matrix_norm.str_ord")
def matrix_norm(g: Graph, A: Value, ord: str = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Value:
    if ord != "fro":
        raise OnnxExporterError(f"matrix_norm(ord={ord!r}) has no operator in ONNX")
    return g.op("Sqrt", g.reduce("ReduceSum", g.op("Mul", A, A), list(dim), keepdim))
