"""Norms of vectors and matrices, and what is told by singular values: condition numbers and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from flambeau_kernels.cpu.reductions import moments
from flambeau_kernels.cpu.reductions.along import SEVERAL, Along
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import dtypes
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor, wrap_dim
from .._batching import run
from .._spec import (
    FUNCTION,
    OPS,
    OUT,
    aligned,
    composite,
    describe,
    int_list,
    is_beyond,
    primitive,
    reduced_shape,
    spread_dims,
    with_dims,
    wrap_dims,
)
from .._spec.in_rows import InRows
from .._spec.plans import Plan
from ._lapack import check_floating, check_matrix, check_square
from .solve import inverse_of
from .spectral import eigvalsh_of, singular_values

BOTH = FUNCTION | OUT


# -- vectors ---------------------------------------------------------------------------------------------------------------


@primitive(
    surface=0, operator="linalg_vector_norm(input, order, dims, keepdim)", samples="of linalg.vector_norm", public_name="norm",
    cuda="sums.norm",
)
def norm_over(input, order, dims, keepdim):
    """The norm of real order over `dims`."""


norm_over.shown_as("LinalgVectorNormBackward0", ord="order", dim="dims")


norm_over.in_pieces(along="dims")


@norm_over.kernel
def _norm(a, order, dims, keepdim):
    return moments.norm(a, order, dims, keepdim)


@norm_over.shape
def _norm_shape(input, order, dims, keepdim):
    return reduced_shape(tuple(input.shape), dims, keepdim), input.dtype.to_real()


@norm_over.batch
def _norm_over_batch(level: Any, op: Any, args: Any) -> Any:
    x, order, dims, keepdim = args
    if x.ndim == 0:
        return NotImplemented
    axes = tuple(d + 1 for d in wrap_dims("norm", dims, x.ndim))
    return level.wrap(run(op, level.front(x), order, axes, keepdim))


def _computed_in_itself(dtype: np.dtype) -> Any:
    return None if dtype.kind in "iubc" else (dtype, dtype)


_NUMBERS = frozenset((int, float))
_NORMS = {order: Along("fold", how, _computed_in_itself, dims=SEVERAL) for order, how in moments.usual().items()} | moments.frequent


@norm_over.plan(dims="dims", native="LINES[order].enter(input, dims, keepdim) if order in LINES else None", names={"LINES": _NORMS})
def _planned_norms(a, order, dims, keepdim):
    along = _NORMS.get(order) if order.__class__ in _NUMBERS else None
    return None if along is None else along(a, dims, keepdim)


@norm_over.plan(by="strides", after=True)
def _planned_large_norms(input, order, dims, keepdim):
    if order.__class__ not in _NUMBERS:
        return None
    axes = wrap_dims("norm", dims, input._array.ndim)
    run = moments.planned_norm(input._array, order, axes, keepdim)
    return None if run is None else Plan(run, norm_over, lambda _, input: (input, order, axes, keepdim))


@norm_over.by_rows
def _norm_rows(input, order, dims, keepdim):
    from flambeau_kernels.cpu.row_programs import Total

    how = moments.usual().get(order)
    if how is None or not Total.takes(how, input.dtype.numpy):
        return None
    return InRows(wrap_dims("norm", dims, input._array.ndim), lambda name, to, moments: Total(how, name("input"), to))


@norm_over.vjp_on_arrays
def _norm_vjp_on_arrays(grad, input, out, order, dims, keepdim):
    if order not in (1, 2) or input.dtype is not FLOAT32 and input.dtype is not FLOAT64:
        return None
    grad = aligned(grad, input.shape, dims, keepdim)
    if order == 1:
        return (np.asarray(np.sign(input) * grad),)
    norm = aligned(out, input.shape, dims, keepdim)
    token = ignore_fp_flags()
    made = np.asarray(input * np.where(norm == 0, 0, grad / norm))
    restore_fp_flags(token)
    return (made,)


@norm_over.vjp
def _norm_vjp(grad, input, out, order, dims, keepdim):
    where = OPS["where"].function
    shape = tuple(input.shape)
    g, norm = with_dims(grad, shape, dims, keepdim), with_dims(out, shape, dims, keepdim)
    sign = input.sgn() if input.is_complex() else input.sign()
    if order == 0:
        return (input.new_zeros(input.shape),)
    if order == 1:
        return (sign * g,)
    if abs(order) == inf:
        # The magnitudes are compared with their own extreme: another way may have made the last bit of `out` different.
        size = input.abs()
        top = size.amax(dims, True) if order > 0 else size.amin(dims, True)
        reached = (size == top).to(g.dtype)
        count = spread_dims(reached.sum(dims, keepdim=keepdim), shape, dims, keepdim) if dims else reached
        return (sign * (g * reached / count),)
    zero = norm == 0
    safe = where(zero, 1.0, norm)
    # At 0 the subgradient is 0.
    if order == 2:
        return (where(zero, 0.0, g / safe) * input,)
    size = input.abs()
    if order < 2:
        at_zero = input == 0
        powers = where(at_zero, 0.0, where(at_zero, 1.0, size) ** (order - 1))
    else:
        powers = size ** (order - 1)
    return (sign * (powers * where(zero, 0.0, g / safe ** (order - 1))),)


def _check_norm_dtype(name: str, x: Tensor, dtype: Any) -> Tensor:
    """`x` in the dtype asked for. Raises: RuntimeError for a narrower one or one of another kind."""
    if dtype is None:
        return x
    dtype = dtypes.as_dtype(dtype, name)
    if dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name}: dtype should be floating point or complex. Got {dtype.name}")
    if dtype.is_complex is not x.dtype.is_complex:
        kind = "complex" if x.dtype.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {dtype.name}")
    if dtypes.promote_types(x.dtype, dtype) is not dtype:
        raise RuntimeError(
            f"{name}: the dtype of the input ({x.dtype.name}) should be convertible "
            f"without narrowing to the specified dtype ({dtype.name})"
        )
    return x.to(dtype)


def _order(name: str, value: Any) -> float:
    if isinstance(value, (complex, str, Tensor)) and not (isinstance(value, Tensor) and not value.is_complex()):
        raise RuntimeError(f"{name}: Expected a real number as order, got {value!r}")
    if is_beyond(value):
        raise OverflowError(f"{name}(): argument 'ord' has more than 64 bits: int too big to convert")
    return float(value)


def _is_plain_order(value: Any) -> bool:
    return value.__class__ is float or value.__class__ is int and not is_beyond(value)


@composite(
    surface=BOTH, namespace="linalg", samples="x(2, 3); x(2, 3), 1.0, 0, True; x(2, 3), float('inf'), (0, 1)", exact_out=True,
    named_too={"x": ("input", "a", "x1")},
)
def vector_norm(x, ord=2, dim: int | Sequence[int] | None = None, keepdim=False, *, dtype=None):
    """The norm of real order `ord` over `dim`, of all elements of `x` by default; the order 0 counts what is not zero.

    ``sum(|x| ** ord) ** (1 / ord)``; the largest and smallest magnitude for inf and -inf.
    Raises: RuntimeError for integers, and for an empty dimension where the order has no identity.
    """
    name = "linalg.vector_norm"
    check_floating(name, x, half=True)
    order = _order(name, ord)
    dims = wrap_dims(name, dim, x.ndim)
    if order < 0 or order == inf:
        _check_not_empty(name, x, dims, dim is None or not isinstance(dim, int) and not len(dim), order)
    return norm_over(_check_norm_dtype(name, x, dtype), order, dims, bool(keepdim))


@vector_norm.forwards
def _vector_norm_over(x, ord, dim, keepdim, dtype):
    return norm_over.answer(x, float(ord), dim, keepdim) if dtype is None and _is_plain_order(ord) else None


def _check_not_empty(name: str, x: Tensor, dims: Any, over_all: bool, order: float) -> None:
    if over_all and not x.numel():
        raise RuntimeError(f"{name} cannot compute the {order:g} norm on an empty tensor because the operation does not have an identity")
    for d in dims:
        if x.ndim and not x.shape[d]:
            raise RuntimeError(
                f"{name} cannot compute the {order:g} norm on the dimension {d} because this dimension is empty "
                "and the operation does not have an identity"
            )


# -- matrices --------------------------------------------------------------------------------------------------------------


def _matrix_dims(x: Tensor, dim: Any) -> tuple[int, int]:
    name = "linalg.matrix_norm"
    if isinstance(dim, int) or len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {dim}")
    first, second = (wrap_dim(d, x.ndim) for d in dim)
    if first == second:
        raise RuntimeError(f"{name}: dims must be different. Got {tuple(dim)}")
    return first, second


def _matrix_norm(x: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    name = "linalg.matrix_norm"
    check_floating(name, x, half=True)
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.\n{describe(A=x)}")
    rows, columns = _matrix_dims(x, dim)
    if not isinstance(order, str):
        _order(name, order)
    spectral = order == "nuc" or not isinstance(order, str) and abs(order) == 2
    if order != "fro" and not spectral and (isinstance(order, str) or abs(order) not in (1, inf)):
        raise RuntimeError(f"{name}: Order {order} not supported. There are 'fro', 'nuc', inf, -inf, 1, -1, 2 and -2")
    x = _check_norm_dtype(name, x, dtype)
    if order == "fro":
        return norm_over(x, 2.0, (rows, columns), bool(keepdim))
    if spectral:
        check_floating(name, x)
        moved = OPS["movedim"].function(x, (rows, columns), (-2, -1))
        made = _of_singular_values(singular_values(moved), order)
        if not keepdim:
            return made
        low, high = sorted((rows, columns))
        return made.unsqueeze(low).unsqueeze(high)
    return _largest_sum(x, order, rows, columns, bool(keepdim))  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out


def _of_singular_values(values: Tensor, order: Any) -> Tensor:
    if order == "nuc":
        return values.sum(-1)
    if not values.shape[-1]:
        if order == -2:
            raise RuntimeError("linalg.matrix_norm: the -2 norm of an empty matrix has no value, as the operation has no identity")
        return values.sum(-1)
    return values.amax(-1) if order == 2 else values.amin(-1)


def _largest_sum(x: Tensor, order: float, rows: int, columns: int, keepdim: bool) -> Tensor:
    """The largest (or for negative orders smallest) absolute sum over rows (order 1) or columns (order inf)."""
    along, across = (rows, columns) if abs(order) == 1 else (columns, rows)
    sums = norm_over(x, 1.0, (along,), True)
    if x.shape[across] == 0 and order > 0:
        made = sums.sum(across, keepdim=True)
    else:
        made = sums.amax(across, keepdim=True) if order > 0 else sums.amin(across, keepdim=True)
    if keepdim:
        return made
    return OPS["squeeze"].function(made, (rows, columns))


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_matrix_norm",
    reads_parts=True, samples="sq(3); sq(2, 3), 'nuc'; sq(3), 1; sq(3), -2",
    exact_out=True,
)
def matrix_norm(input, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """The norm `ord` of the matrices in the two dimensions `dim`.

    'fro' (root of the sum of squares), 'nuc' (sum of singular values), 2 (the largest of them), 1 and inf (absolute
    sums of columns and rows), or the smallest of these for -2, -1 and -inf.
    """
    return _matrix_norm(input, ord, dim, keepdim, dtype)


@matrix_norm.forwards
def _frobenius_over(input, ord, dim, keepdim, dtype):
    plain = dtype is None and ord == "fro" and dim.__class__ is tuple and len(dim) == 2
    return norm_over.answer(input, 2.0, dim, keepdim) if plain else None


@composite(surface=BOTH, namespace="linalg", samples="x(2, 3); sq(3), 'fro'; x(2, 3), 3.0, 1", exact_out=True)
def norm(input, ord=None, dim: int | Sequence[int] | None = None, keepdim=False, *, dtype=None):
    """A vector norm over one dimension, a matrix norm over two; without `ord` the 2-norm of all elements.

    Args:
        ord: as for `linalg.vector_norm` or `linalg.matrix_norm`, as `dim`, or without it the number of
            dimensions, says.
        dtype: `input` is converted to it first.

    >>> a = fb.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> fb.linalg.norm(a), fb.linalg.norm(a, ord=2)
    (tensor(5.), tensor(4.))
    """
    name = "linalg.norm"
    if dim is not None:
        dims = int_list(dim)
        if len(dims) not in (1, 2):
            raise RuntimeError(f"{name}: If dim is specified, it must be of length 1 or 2. Got {dims}")
    elif ord is not None and input.ndim not in (1, 2):
        raise RuntimeError(f"{name}: If dim is not specified but ord is, the input must be 1D or 2D. Got {input.ndim}D.")
    else:
        dims = [] if ord is None else list(range(input.ndim))
    if ord is not None and (isinstance(ord, str) or len(dims) == 2):
        return _matrix_norm(input, ord, dims if len(dims) == 2 else (dims[0] if dim is not None else (-2, -1)), keepdim, dtype)
    return vector_norm(input, 2 if ord is None else ord, dims or None, keepdim, dtype=dtype)


@norm.forwards
def _norm_over(input, ord, dim, keepdim, dtype):
    if dtype is not None or not (dim is None or dim.__class__ is int):
        return None
    if ord is None:
        return norm_over.answer(input, 2.0, dim, keepdim)
    return norm_over.answer(input, float(ord), dim, keepdim) if dim is not None and _is_plain_order(ord) else None


# -- condition and rank ----------------------------------------------------------------------------------------------------


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_cond", autocast=("float32", None), reads_parts=True,
    samples="sq(3); sq(3), 1",
)
def cond(input, p=None):
    """The condition number: the norm of order `p` of each matrix times that of its inverse: ``(*, n, n) -> (*)``.

    By default, and for 2 and -2, from singular values, also of matrices that are not square.
    """
    name = "linalg.cond"
    check_matrix(name, input)
    if p is None or p in (2, -2):
        values = singular_values(input)
        if not values.shape[-1]:
            return values.sum(-1)
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    if p not in ("fro", "nuc", 1, -1, inf, -inf):
        raise RuntimeError(f"{name} got an invalid norm type: {p}")
    check_square(f"{name}(ord={p})", input)
    if not input.numel():
        return _matrix_norm(input, "fro", (-2, -1), False, None)
    inverse, info = inverse_of(input)
    singular = not input._lacks_values and bool(info.any())
    if singular:
        inverse = OPS["where"].function((info == 0).unsqueeze(-1).unsqueeze(-1), inverse, inf)
    made = _matrix_norm(input, p, (-2, -1), False, None) * _matrix_norm(inverse, p, (-2, -1), False, None)
    if p == "nuc" or made._lacks_values:
        return made
    unknown = made.isnan()                             # of matrices with nan too, as of singular ones
    if singular:
        unknown = unknown | (info != 0)
    return OPS["where"].function(unknown, inf, made) if singular or bool(unknown.any()) else made


cond.in_pieces("...__->...")


@composite(surface=BOTH, namespace="linalg", operator="linalg_matrix_rank", autocast=("float32", None), samples="sq(3); sq(2, 3), atol=0.1")
def matrix_rank(input, tol=None, hermitian=False, *, atol=None, rtol=None):
    """How many singular values exceed ``max(atol, rtol * largest)``: ``(*, m, n) -> (*)``, int64.

    Args:
        tol, atol: absolute tolerance.
        rtol: relative tolerance; eps times the larger size by default.
        hermitian: the matrices are Hermitian; only their lower triangle is read.
    """
    name = "linalg.matrix_rank"
    check_matrix(name, input)
    if isinstance(tol, Tensor) and tol.is_complex():
        raise RuntimeError(f"{name}: tol tensor of complex type is not supported, got {tol.dtype.name}")
    for given in (atol, rtol):
        if isinstance(given, Tensor) and given.is_complex():
            raise RuntimeError(f"{name}: tol tensor of complex type is not supported, got {given.dtype.name}")
    if hermitian and input.numel():
        check_square(name, input)
    x = input.detach()
    values = eigvalsh_of(x, "L").abs() if hermitian and x.numel() else singular_values(x)
    if not values.shape[-1]:
        return values.sum(-1).to(dtypes.int64)
    if values._lacks_values:
        return (values > 0).sum(-1)
    absolute = atol if tol is None else tol           # as a Tensor it may be one for each matrix
    relative = 0.0 if tol is not None else rtol
    if relative is None:
        relative = dtypes.finfo(values.dtype).eps * max(input.shape[-2:])
        if isinstance(absolute, Tensor):
            relative = (~(absolute > 0)).to(values.dtype) * relative
        elif absolute is not None and absolute > 0:
            relative = 0.0
    limit = values.amax(-1) * relative
    if not isinstance(absolute, Tensor):
        absolute = values.new_full((), 0.0 if absolute is None else absolute)
    return (values > OPS["maximum"].function(limit, absolute).unsqueeze(-1)).sum(-1)
