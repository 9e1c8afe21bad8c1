"""LAPACK over batches of matrices, on arrays: numpy's own loops where it has them, scipy's routines otherwise."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ._spec import describe


class LinAlgError(RuntimeError):
    """A matrix for which the result does not exist: singular, not positive-definite, or not converging."""

    __module__ = "flambeau.linalg"


# -- checks of arguments ---------------------------------------------------------------------------------------------------


def check_floating(name: str, *operands: Any, half: bool = False) -> None:
    """Raise TypeError or RuntimeError unless all are Tensors of one dtype LAPACK works in."""
    first = operands[0]
    for x in operands:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: argument must be Tensor, not {type(x).__name__}")
        d = x.dtype
        if d.category < dtypes.FLOATING:
            raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {d.name}")
        if not half and d not in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128):
            raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {d.name}; convert with .to(torch.float32)")
        if d is not first.dtype:
            raise RuntimeError(f"{name}: Expected all operands to have the same dtype, got {first.dtype.name} and {d.name}")


def check_matrix(name: str, x: Tensor) -> None:
    check_floating(name, x)
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor must have at least 2 dimensions.\n{describe(input=x)}")


def check_square(name: str, x: Tensor, label: str = "A") -> None:
    check_matrix(name, x)
    if x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"{name}: {label} must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices\n"
            f"{describe(**{label: x})}"
        )


def raise_singular(name: str, info: Any, what: str) -> None:
    """Raise LinAlgError for the first matrix whose `info` is not zero; `what` has a place for that number."""
    flat = np.asarray(info).reshape(-1)
    bad = np.flatnonzero(flat)
    if bad.size:
        where = "" if flat.size == 1 else f" (Batch element {bad[0]})"
        raise LinAlgError(f"{name}:{where} {what.format(abs(int(flat[bad[0]])))}")


# -- batches ---------------------------------------------------------------------------------------------------------------


def each(a: Any, *more: Any) -> Any:
    """The matrices of a batch, one by one, with the matching matrices of `more`."""
    shape = a.shape[:-2]
    rows = [x.reshape(prod(shape), *x.shape[len(shape) :]) for x in (a, *more)]
    return zip(*rows, strict=True)


def stacked(parts: list[Any], batch: Any, shape: Any, dtype: Any) -> Any:
    """Results of `each` as one array; `shape` and `dtype` are of one result, for when there are none."""
    if not parts:
        return np.zeros((*batch, *shape), dtype)
    return np.stack(parts).reshape((*batch, *shape)).astype(dtype, copy=False)


def routine(name: str, a: Any) -> Any:
    """scipy's wrapper of the LAPACK routine `name` in the precision of `a`."""
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs((name,), (a,))[0]


# -- factorizations ----------------------------------------------------------------------------------------------------------


def lu(a: Any) -> tuple[Any, Any, Any]:
    """``(LU, pivots, info)``: packed factors, rows exchanged (from 1), and the first zero on the diagonal of U, or 0."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    packed, pivots, infos = [], [], []
    for (x,) in each(a):
        if k == 0:
            made = (x, np.zeros(0), 0)
        else:
            made = routine("getrf", a)(x)
        packed.append(made[0])
        pivots.append(made[1] + 1)
        infos.append(made[2])
    return (
        stacked(packed, batch, (m, n), a.dtype),
        stacked(pivots, batch, (k,), np.int32),
        stacked(infos, batch, (), np.int32),
    )


def row_order(pivots: Any, rows: int) -> Any:
    """For each batch element the order that the row exchanges `pivots` put the rows in."""
    batch, k = pivots.shape[:-1], pivots.shape[-1]
    made = np.broadcast_to(np.arange(rows), (*batch, rows)).copy()
    flat, swaps = made.reshape(prod(batch), rows), pivots.reshape(prod(batch), k)
    for order, exchanged in zip(flat, swaps, strict=True):
        for i, j in enumerate(exchanged):
            order[i], order[j - 1] = order[j - 1], order[i]
    return flat.reshape(made.shape)


def cholesky(a: Any, upper: bool) -> tuple[Any, Any]:
    """``(factor, info)``; info is the order of the first leading minor that is not positive, or 0."""
    try:
        return np.linalg.cholesky(a, upper=upper), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        factors, infos = [], []
        for (x,) in each(a):
            c, info = routine("potrf", a)(x, lower=not upper, clean=1)
            factors.append(np.triu(c) if upper else np.tril(c))
            infos.append(info)
        return stacked(factors, a.shape[:-2], a.shape[-2:], a.dtype), stacked(infos, a.shape[:-2], (), np.int32)


def solve(a: Any, b: Any) -> tuple[Any, Any]:
    """``(X, info)`` with ``a @ X == b``; info is the first zero pivot, or 0."""
    try:
        return np.linalg.solve(a, b), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        info = lu(a)[2]
        made = np.full(b.shape, np.nan, b.dtype)
        fine = info == 0
        made[fine] = np.linalg.solve(a[fine], b[fine])
        return made, info


def inverse(a: Any) -> tuple[Any, Any]:
    """``(inverse, info)``."""
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """``X`` with ``triangle(a) @ X == b``; zeros on the diagonal give infinities."""
    if not b.size:
        return np.zeros_like(b)
    parts = [_solve_one(x, y, upper, unit) for x, y in each(a, b)]
    return stacked(parts, b.shape[:-2], b.shape[-2:], b.dtype)


def _solve_one(x: Any, y: Any, upper: bool, unit: bool) -> Any:
    made, info = routine("trtrs", x)(x, y, lower=not upper, unitdiag=unit)
    if info == 0:
        return made
    from scipy.linalg import get_blas_funcs

    # A zero on the diagonal: BLAS divides by it, where LAPACK would stop.
    return get_blas_funcs(("trsm",), (x, y))[0](1.0, x, y, lower=not upper, diag=unit)


def svd(name: str, a: Any, full_matrices: bool, vectors: bool) -> Any:
    """Singular values, and with `vectors` ``(U, S, Vh)``. Raises: LinAlgError if the iteration does not converge."""
    if not np.isfinite(a).all():
        raise LinAlgError(f"{name}: The algorithm failed to converge because the input matrix contained non-finite values.")
    return _converging(name, np.linalg.svd, a, full_matrices, vectors)


def eigh(name: str, a: Any, uplo: str, vectors: bool) -> Any:
    """Eigenvalues of Hermitian matrices, and with `vectors` ``(L, V)``. Raises: LinAlgError without convergence."""
    if not np.isfinite(a).all():
        bad = np.full(a.shape[:-1], np.nan, a.real.dtype)
        return (bad, np.full_like(a, np.nan)) if vectors else bad
    return _converging(name, np.linalg.eigh if vectors else np.linalg.eigvalsh, a, uplo)


def eig(name: str, a: Any, vectors: bool) -> Any:
    """Eigenvalues of square matrices, and with `vectors` ``(L, V)``, complex. Raises: LinAlgError, RuntimeError for nan."""
    if not np.isfinite(a).all():
        raise RuntimeError(f"{name}: input tensor should not contain infs or NaNs.")
    wide = np.result_type(a.dtype, np.complex64)
    made = _converging(name, np.linalg.eig if vectors else np.linalg.eigvals, a)
    return (made[0].astype(wide), made[1].astype(wide)) if vectors else made.astype(wide)


def _converging(name: str, rule: Any, *args: Any) -> Any:
    try:
        return rule(*args)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{name}: The algorithm failed to converge: {error}") from None
