"""LAPACK over batches of matrices, on arrays: kernels for many small ones, numpy's own loops, scipy's routines otherwise."""

from __future__ import annotations

import cmath
import functools
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.gemm.blas import one_thread, single_threaded
from flambeau_kernels.cpu.linear_algebra import (
    condensed,
    divide_and_conquer,
    factor_blocks,
    jacobi,
    matrices_by_lanes,
    matrices_by_rows,
    reflectors,
    triangular_systems,
)
from flambeau_kernels.cpu.products.matmul import matmul
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ... import dtypes
from ..._arrays import MetaArray, ndarray
from ...tensor import Tensor
from .._spec import check_room, describe, placed
from ._routines import blas_routine, routine


class LinAlgError(RuntimeError):
    """A matrix for which the result does not exist: singular, not positive-definite, or not converging."""

    __module__ = "flambeau.linalg"


# -- checks of arguments ---------------------------------------------------------------------------------------------------


_DTYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def check_floating(name: str, *operands: Any, half: bool = False) -> None:
    """Raise TypeError or RuntimeError unless all are Tensors of one dtype LAPACK works in."""
    first = operands[0]
    for x in operands:
        # By the dtype: a compiled function knows it of what it has not computed yet.
        if isinstance(x, Tensor) and x.dtype in _DTYPES and x.dtype is first.dtype:
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: argument must be Tensor, not {type(x).__name__}")
        d = x.dtype
        if d.category < dtypes.FLOATING:
            raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {dtypes.scalar_type(d)}")
        if not half and d not in _DTYPES:
            raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {dtypes.scalar_type(d)}; convert with .to(torch.float32)")
        if d is not first.dtype:
            raise RuntimeError(f"{name}: Expected all operands to have the same dtype, got {first.dtype.name} and {d.name}")


def check_matrix(name: str, x: Tensor, label: str = "A") -> None:
    """Raise TypeError or RuntimeError unless `x` is a batch of matrices of a dtype LAPACK works in."""
    check_floating(name, x)
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {label} must have at least 2 dimensions.\n{describe(**{label: x})}")


def check_square(name: str, x: Tensor, label: str = "A") -> None:
    check_matrix(name, x, label)
    if x.shape[-1] != x.shape[-2]:
        raise_not_square(name, x, label)


def raise_not_square(name: str, x: Tensor, label: str = "A") -> None:
    """Raise the RuntimeError for matrices that are not square, or no matrices at all."""
    if x.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {label} must have at least 2 dimensions.\n{describe(**{label: x})}")
    raise RuntimeError(
        f"{name}: {label} must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices\n"
        f"{describe(**{label: x})}"
    )


def raise_singular(name: str, info: Any, what: str, error: type[RuntimeError] = LinAlgError) -> None:
    """Raise `error` for the first matrix whose `info` is not zero; `what` has a place for that number. Arrays without values pass."""
    if info.__class__ is MetaArray:
        return
    if not np.ndim(info) and not info:
        return
    flat = np.asarray(info).reshape(-1)
    bad = np.flatnonzero(flat)
    if bad.size:
        where = "" if flat.size == 1 else f" (Batch element {bad[0]}):"
        raise error(f"{name}:{where} {what.format(abs(int(flat[bad[0]])))}")


def check_singular(name: str, info: Any, what: str, error: type[RuntimeError] = LinAlgError) -> None:
    """`raise_singular` of a Tensor `info`, at whose values it looks."""
    raise_singular(name, info._array, what, error)


# -- batches ---------------------------------------------------------------------------------------------------------------


def each(a: Any, *more: Any) -> Any:
    """The matrices of a batch, one by one, with the matching matrices of `more`."""
    shape = a.shape[:-2]
    if not shape:
        return iter(((a, *more),))
    check_room("linalg", shape, 8)                     # matrices without elements may be any number
    rows = [x.reshape(prod(shape), *x.shape[len(shape) :]) for x in (a, *more)]
    return zip(*rows, strict=True)


def stacked(parts: list[Any], batch: Any, shape: Any, dtype: Any) -> Any:
    """Results of `each` as one array; `shape` and `dtype` are of one result, for when there are none."""
    if not parts:
        return np.zeros((*batch, *shape), dtype)
    if not prod(shape):
        return np.zeros((*batch, *shape), dtype)
    if not batch:
        return np.asarray(parts[0], dtype, order="C").reshape(shape)
    return np.stack(parts).reshape((*batch, *shape)).astype(dtype, copy=False)


# -- numpy's loops -----------------------------------------------------------------------------------------------------------


def _loop(name: str) -> Any:
    """numpy's loop over matrices behind a function of `numpy.linalg`, without the 5 to 10 us of that; None if there is none."""
    return getattr(getattr(np.linalg, "_umath_linalg", None), name, None)


_INV, _SOLVE, _DET, _SLOGDET, _EIG, _EIGVALS = map(_loop, ("inv", "solve", "det", "slogdet", "eig", "eigvals"))
_CHOLESKY = {False: _loop("cholesky_lo"), True: _loop("cholesky_up")}
_EIGH = {("L", True): _loop("eigh_lo"), ("U", True): _loop("eigh_up"), ("L", False): _loop("eigvalsh_lo"),
         ("U", False): _loop("eigvalsh_up")}  # fmt: skip
_SVD = {(True, True): _loop("svd_f"), (False, True): _loop("svd_s"), (False, False): _loop("svd"), (True, False): _loop("svd")}
_QR = tuple(map(_loop, ("qr_r_raw", "qr_reduced", "qr_complete")))


DOTS_THREADED_FROM = 8192  # elements; threads of BLAS wait for each other, for milliseconds where others work too
THREADED_FROM = 16  # rows from which LAPACK may take threads of its own, on which its results would depend


def _square_sum(a: Any) -> Any:
    """The sum of squares of all elements, which is nan if one of them is, and not finite unless all are."""
    flat = a.reshape(-1)
    if one_thread is None or flat.size < DOTS_THREADED_FROM:
        return flat.dot(flat)
    with one_thread:
        return flat.dot(flat)


def all_finite(a: Any) -> bool:
    """Whether no element is infinite or nan."""
    token = ignore_fp_flags()                                    # squares may overflow, and then the elements themselves are looked at
    try:
        return cmath.isfinite(_square_sum(a)) or bool(np.isfinite(a).all())
    finally:
        restore_fp_flags(token)


def _tried(loop: Any, *args: Any) -> Any:
    """What a loop makes of its arguments, or None where it failed: numpy tells of failures by nan."""
    if loop is None or not args[0].size or args[0].dtype.char not in "fdFD":
        return None
    token = ignore_fp_flags()
    try:
        if one_thread is None or args[0].shape[-1] < THREADED_FROM:
            made = loop(*args)
        else:
            with one_thread:
                made = loop(*args)
        first = made[0] if made.__class__ is tuple else made  # a failure fills all of them
        s = first if first.__class__ is not np.ndarray else _square_sum(first)
        if s != s:
            return None
    finally:
        restore_fp_flags(token)
    return made


def _is_small(a: Any) -> bool:
    """Whether `a` is one matrix on which LAPACK's loops take less time than what is around them."""
    return a.ndim == 2 and 0 < a.shape[0] < THREADED_FROM and 0 < a.shape[1] < THREADED_FROM and a.dtype.char in "fdFD"


def _of_one(loop: Any, a: Any, *room: Any) -> Any:
    """What a loop makes of one matrix that `_is_small`; None where squares of elements are not finite, or the loop fails."""
    if loop is None:
        return None
    token = ignore_fp_flags()
    try:
        flat = a.reshape(-1)
        s = flat.dot(flat)
        if s - s != 0:
            return None
        made = loop(a, *room)
    finally:
        restore_fp_flags(token)
    first = (made[0] if made.__class__ is tuple else made).item(0)
    return made if first == first else None


def _lu_of_many(a: Any) -> Any:
    """``(LU, pivots, info)`` of many small matrices; None for others, and where a factor is not finite."""
    return matrices_by_lanes.lu(a) if matrices_by_lanes.eliminates(a) else matrices_by_rows.lu(a) if matrices_by_rows.takes(a) else None


def _solve_many(a: Any, b: Any) -> Any:
    """The solutions of many small systems, the inverses for None; None for others, and where a matrix is singular."""
    made = matrices_by_lanes.solve(a, b) if matrices_by_lanes.eliminates(a) else None
    return matrices_by_rows.solve(a, b) if made is None and matrices_by_rows.takes(a) else made


def _diagonals_of_factors(a: Any) -> Any:
    """The diagonals of the factors of many small matrices or of a large one; None for others.

    And -1 for each whose rows were exchanged an odd number of times, 1 for the rest.
    """
    made, first = (factor_blocks.lu(a), 0) if _in_blocks(a, LU_FROM) else (_lu_of_many(a), 1)
    if made is None:
        return None
    exchanged = (made[1] != np.arange(first, a.shape[-1] + first, dtype=np.int32)).sum(-1, dtype=np.int32)
    return made[0].diagonal(axis1=-2, axis2=-1), np.where(exchanged & 1, a.dtype.type(-1), a.dtype.type(1))


def det(a: Any) -> Any:
    made = matrices_by_lanes.determinants(a) if matrices_by_lanes.eliminates(a) else None
    if made is not None:
        return made
    factors = _diagonals_of_factors(a)
    if factors is not None:
        diagonal, sign = factors
        return np.multiply.reduce(diagonal, -1) * sign
    made = _tried(_DET, a)
    return np.asarray(np.linalg.det(a) if made is None else made, a.dtype)


def cofactors(a: Any) -> tuple[Any, Any]:
    """The conjugates of the cofactors of each matrix, and whether it is singular for the working precision.

    Of regular matrices they are the determinant times the adjoint of the inverse, of singular ones they follow from the products of all
    singular values but one. Nothing tells which a matrix with an infinity or a nan is: its cofactors are what its inverse makes them.
    """
    n = a.shape[-1]
    singular = np.zeros(a.shape[:-2], np.bool_)
    if not a.size:
        return np.empty_like(a), singular
    token = ignore_fp_flags()
    try:
        back = inverse(a)[0]
        made = np.ascontiguousarray(back.conj().swapaxes(-1, -2) * det(a).conj()[..., None, None])
        least = np.finfo(a.dtype).eps * n
        # The quotient of the largest singular value and the smallest is not above this, so most matrices need no singular values.
        quotient = _norm_bound(a) * _norm_bound(back)
        doubtful = ~(quotient * least < 1) & np.isfinite(a).all((-2, -1))
        if doubtful.any():
            u, s, vh = svd("linalg.det", a[doubtful], False, True)
            singular[doubtful] = is_singular = s[..., -1] <= s[..., 0] * least
            u, s, vh = u[is_singular], s[is_singular], vh[is_singular]
            others = np.where(np.eye(n, dtype=np.bool_), 1, s[..., None, :]).prod(-1)
            phase = (det(u) * det(vh)).conj()
            made[singular] = (u * others[..., None, :]) @ vh * phase[..., None, None]
    finally:
        restore_fp_flags(token)
    return made, singular


def _norm_bound(a: Any) -> Any:
    """A bound of the largest singular value of each matrix."""
    size = np.abs(a)
    return np.sqrt(size.sum(-1).max(-1)) * np.sqrt(size.sum(-2).max(-1))


def slogdet(a: Any) -> tuple[Any, Any]:
    """Sign and logarithm of the magnitude of determinants; of real ones that are nan, the sign is 0."""
    sign, log = _slogdet(a)
    unknown = np.isnan(log)
    if a.dtype.kind == "f" and unknown.any():
        sign = np.asarray(np.where(unknown, 0, sign), a.dtype)
    return sign, log


def _slogdet(a: Any) -> tuple[Any, Any]:
    made = matrices_by_lanes.diagonals_of_factors(a) if matrices_by_lanes.takes(a) and a.dtype.kind == "f" else None
    if made is not None:
        token = ignore_fp_flags()
        try:
            return made[0], np.add.reduce(np.log(made[1]), -1)
        finally:
            restore_fp_flags(token)
    factors = _diagonals_of_factors(a)
    if factors is not None:
        token = ignore_fp_flags()
        try:
            diagonal, sign = factors
            return np.multiply.reduce(np.sign(diagonal), -1) * sign, np.add.reduce(np.log(np.abs(diagonal)), -1)
        finally:
            restore_fp_flags(token)
    sign, log = _tried(_SLOGDET, a) or np.linalg.slogdet(a)
    return np.asarray(sign, a.dtype), np.asarray(log, a.real.dtype)


def qr(a: Any, mode: Any) -> tuple[Any, Any]:
    """Q and R, for the modes 'reduced' and 'complete'; for the mode 'r' Q is empty."""
    if reflectors.takes(a):
        return reflectors.qr(a, mode)
    if min(a.shape[-2:]) >= LARGE and a.size and a.dtype.char in "fdFD":
        return _qr_large(a, mode)
    if mode == "r":
        with single_threaded():
            return np.zeros(0, a.dtype), np.linalg.qr(a, mode="r")
    raw, reduced, complete = _QR
    if a.ndim != 2 or None in _QR or not a.size or a.dtype.char not in "fdFD":
        with single_threaded():
            q, r = np.linalg.qr(a, mode=mode)
        return q, r
    m, n = a.shape
    token = ignore_fp_flags()
    try:
        # Below `LARGE`, so on one thread.
        packed = a.astype(_DOUBLE[a.dtype.char])       # the only precision that these loops have
        tau = raw(packed)
        if mode == "complete" and m > n:
            q, k = complete(packed, tau), m
        else:
            k = min(m, n)
            q = reduced(packed, tau)
    finally:
        restore_fp_flags(token)
    r = packed[:k]
    np.putmask(r, _below(k, n), 0)
    return q.astype(a.dtype, copy=False), r.astype(a.dtype, copy=False)


def _qr_large(a: Any, mode: Any) -> tuple[Any, Any]:
    """`qr` by LAPACK's blocked routines, in the precision of `a`."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k, columns = (m, m) if mode == "complete" else (min(m, n), min(m, n))
    factor, orthogonal = routine("geqrf", a), routine("orgqr" if a.dtype.char in "fd" else "ungqr", a)
    qs, rs = [], []
    for (x,) in each(a):
        packed, tau, _, _ = factor(x, lwork=QR_BLOCK * n)
        r = np.array(packed[:k], order="C")
        np.putmask(r, _below(k, n), 0)
        rs.append(r)
        if mode == "r":
            continue
        if columns > n:
            reflectors = np.zeros((m, columns), a.dtype, order="F")
            reflectors[:, :n] = packed
        else:
            reflectors = packed[:, :columns]
        qs.append(np.ascontiguousarray(orthogonal(reflectors, tau, lwork=QR_BLOCK * columns, overwrite_a=1)[0]))
    q = np.zeros(0, a.dtype) if mode == "r" else stacked(qs, batch, (m, columns), a.dtype)
    return q, stacked(rs, batch, (k, n), a.dtype)


QR_BLOCK = 64  # columns of a block of reflectors that LAPACK's workspace has room for

_DOUBLE = {"f": np.float64, "d": np.float64, "F": np.complex128, "D": np.complex128}


@functools.lru_cache(64)
def _below(m: int, n: int) -> Any:
    """Where a matrix is below its diagonal."""
    return np.tri(m, n, -1, np.bool_)


LARGE = 96  # rows from which LAPACK's own routines are faster than numpy's loops, which copy each matrix twice and make Q in double


# -- factorizations ----------------------------------------------------------------------------------------------------------


def lu(a: Any) -> tuple[Any, Any, Any]:
    """``(LU, pivots, info)``: packed factors, rows exchanged (from 1), and the first zero on the diagonal of U, or 0."""
    many = _lu_of_many(a)
    if many is not None:
        return many
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    if not a.size:
        return np.empty_like(a), np.zeros((*batch, k), np.int32), _no_infos(a)
    count = prod(batch)
    packed, pivots, infos = np.empty((count, m, n), a.dtype), np.empty((count, k), np.int32), np.empty(count, np.int32)
    for i, x in enumerate(a.reshape(count, m, n)):
        packed[i], pivots[i], infos[i] = _getrf(x)
    pivots += 1
    return packed.reshape(a.shape), pivots.reshape(*batch, k), infos.reshape(batch)


def _getrf(a: Any) -> tuple[Any, Any, int]:
    """LAPACK's: packed factors, rows exchanged (from 0), and the first zero on the diagonal of U, or 0."""
    return factor_blocks.lu(a) if _in_blocks(a, LU_FROM) else routine("getrf", a)(a)


LU_FROM, CHOLESKY_FROM = 96, 65                       # rows and columns from which kernels take less time than LAPACK


def _in_blocks(a: Any, least: int) -> bool:
    """Whether kernels factor the matrix `a`, whose rows and columns have to be at least so many."""
    return a.ndim == 2 and min(a.shape) >= least and factor_blocks.takes(a)


def _no_infos(a: Any) -> Any:
    """What LAPACK says of the matrices `a` where nothing is wrong with any; of empty ones there may be any number."""
    check_room("linalg", a.shape[:-2], 4)
    return np.zeros(a.shape[:-2], np.int32)


def row_order(pivots: Any, rows: int) -> Any:
    """For each batch element the order that the row exchanges `pivots` put the rows in. Raises: RuntimeError outside the rows."""
    if pivots.size and min(rows, pivots.shape[-1]) and not (pivots.min() >= 1 and pivots.max() <= rows and pivots.shape[-1] <= rows):
        raise RuntimeError(
            f"pivots must be between 1 and LU.size(-2) = {rows} inclusive and no more than that, got {pivots.shape[-1]} from "
            f"{pivots.min()} to {pivots.max()}: did you pass the result of lu_factor?"
        )
    return exchanged(pivots, rows)


def exchanged(pivots: Any, rows: int) -> Any:
    """`row_order` of pivots that are known to be rows."""
    batch, k = pivots.shape[:-1], pivots.shape[-1]
    swaps = pivots.reshape(prod(batch), k)
    if len(swaps) <= 8:                               # numpy takes a microsecond for an exchange, however many matrices there are
        orders = []
        for others in swaps.tolist():
            numbers = list(range(rows))
            for i, other in enumerate(others):
                numbers[i], numbers[other - 1] = numbers[other - 1], numbers[i]
            orders.append(numbers)
        return np.array(orders, np.int64).reshape(*batch, rows)
    made = np.broadcast_to(np.arange(rows), (*batch, rows)).copy()
    flat = made.reshape(len(swaps), rows)
    each_one = np.arange(len(flat))
    for i in range(k):
        other = swaps[:, i] - 1
        mine = flat[:, i].copy()
        flat[:, i] = flat[each_one, other]
        flat[each_one, other] = mine
    return flat.reshape(made.shape)


def cholesky(a: Any, upper: bool) -> tuple[Any, Any]:
    """``(factor, info)``; info is the order of the first leading minor that is not positive, or 0."""
    made = cholesky_now(a, upper)
    if made is not None or not a.size:
        return np.empty_like(a) if made is None else made, _no_infos(a)
    factors, infos = [], []
    for (x,) in each(a):
        c, info = _cholesky_one(x, upper)
        factors.append(np.triu(c) if upper else np.tril(c))
        infos.append(info)
    return stacked(factors, a.shape[:-2], a.shape[-2:], a.dtype), stacked(infos, a.shape[:-2], (), np.int32)


def _cholesky_one(x: Any, upper: Any) -> tuple[Any, int]:
    """`cholesky` of one matrix. LAPACK goes by columns: a matrix is to it its transpose, and has the other triangle."""
    if _in_blocks(x, CHOLESKY_FROM):
        c = factor_blocks.cholesky(x, bool(upper))
        if c is not None:
            return c, 0
    c, info = routine("potrf", x)(x.T, lower=bool(upper), clean=1)
    if not info and not cmath.isfinite(c.trace()):       # LAPACK goes on after a nan, which is not positive
        wrong = np.isnan(c.diagonal())
        info = int(wrong.argmax()) + 1 if wrong.any() else 0
    return c.T, info


def _are_many(a: Any, b: Any) -> bool:
    """Whether there are kernels for equations of the batches `a` and `b`."""
    return (
        (matrices_by_rows.takes(a) or matrices_by_lanes.eliminates(a)) and type(b) is ndarray and b.dtype is a.dtype and b.ndim == a.ndim
        and b.shape[:-1] == a.shape[:-1] and b.size > 0
    )  # fmt: skip


def _solve_some(a: Any, b: Any) -> Any:
    """``X`` with ``a @ X == b``: of a large matrix by blocks, of others by numpy's loop; None where that fails or is not finite."""
    if _in_blocks(a, LU_FROM) and b.size:
        made, _, info = factor_blocks.lu(a, b)
        if not info:
            n = len(a)
            made = _solved_above(made[:, :n], made[:, n:])
            if all_finite(made):
                return made
    return _tried(_SOLVE, a, b)


def _solved_above(u: Any, b: Any) -> Any:
    """``X`` with ``U @ X == b`` for the upper triangle of a large matrix, by blocks of rows; writes over `b`."""
    made = triangular_systems.solution(u, b, True, False)
    if made is not None:
        return made
    made = np.empty(b.shape, b.dtype)
    for last in range(len(u), 0, -ROWS):
        first = max(last - ROWS, 0)
        made[first:last] = solve_one(u[first:last, first:last], b[first:last], True, False)
        if first:
            matmul(u[:first, first:last], np.negative(made[first:last]), b[:first], accumulate=True)
    return made


ROWS = 128                                            # of a block of a triangle that BLAS solves with


def solve(a: Any, b: Any) -> tuple[Any, Any]:
    """``(X, info)`` with ``a @ X == b``; info is the first zero pivot, or 0."""
    if not a.size:
        return np.zeros_like(b), _no_infos(a)
    made = _solve_many(a, b) if _are_many(a, b) else None
    if made is None:
        made = _solve_some(a, b) if a.dtype is b.dtype and b.ndim == a.ndim else None
    if made is not None:
        return made, np.zeros(a.shape[:-2], np.int32)
    with single_threaded():
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
    if not a.size:
        return np.empty_like(a), _no_infos(a)
    made = inverse_now(a)
    if made is not None:
        return made, np.zeros(a.shape[:-2], np.int32)
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """``X`` with ``triangle(a) @ X == b``; zeros on the diagonal give infinities."""
    if not b.size:
        return np.zeros_like(b)
    made = triangular_systems.solution(a, b, bool(upper), bool(unit))
    if made is not None:
        return made
    if a.ndim == 2 and b.ndim == 2:
        return solve_one(a, b, upper, unit)
    many = matrices_by_rows.triangular(a, b, upper, unit) if matrices_by_rows.takes(a) and _are_many(a, b) else None
    if many is not None:
        return many
    parts = [solve_one(x, y, upper, unit) for x, y in each(a, b)]
    return stacked(parts, b.shape[:-2], b.shape[-2:], b.dtype)


def solve_one(a: Any, b: Any, upper: Any, unit: Any) -> Any:
    """``X`` with ``triangle(a) @ X == b`` for one matrix, column by column.

    For what `triangular_systems` does not take. BLAS takes rows for columns, so no operand is copied but `b`. LAPACK's trtrs starts threads
    for the smallest matrices.
    """
    as_is = a.flags.f_contiguous
    matrix, lower, transposed = (a, not upper, 0) if as_is else (a.T, bool(upper), 1)
    if b.shape[1] <= MOST_COLUMNS and len(a) >= COLUMNS_FROM:
        solve_column = blas_routine("trsv", a.dtype.char)
        made = np.empty(b.shape, b.dtype, order="F")
        for j in range(b.shape[1]):
            made[:, j] = solve_column(matrix, b[:, j], lower=lower, trans=transposed, diag=bool(unit))
        return made
    return blas_routine("trsm", a.dtype.char)(1.0, matrix, b, lower=lower, trans_a=transposed, diag=bool(unit))


MOST_COLUMNS, COLUMNS_FROM = 2, 128  # so few right sides of so many rows take less time one by one


def svd(name: str, a: Any, full_matrices: bool, vectors: bool) -> Any:
    """Singular values, and with `vectors` ``(U, S, Vh)``; nan for matrices that hold an infinity.

    Raises: LinAlgError for a nan, and if the iteration does not converge.
    """
    if _is_small(a):
        made = _of_one(_SVD[full_matrices, vectors], a, *(_room_of_svd(a, full_matrices) if vectors else ()))
        if made is not None:
            return made
    a, infinite = _without_infinities(name, a)
    made = None
    if jacobi.takes(a) and not (vectors and full_matrices and a.shape[-1] != a.shape[-2]):
        made = jacobi.svd(a, vectors)
    if made is None and min(a.shape[-2:]) >= IN_STEPS_FROM[vectors] and reflectors.takes(a):
        made = _svd_of_some(a, full_matrices, vectors)
    if made is None:
        made = _tried(_SVD[full_matrices, vectors], a, *(_room_of_svd(a, full_matrices) if vectors else ()))
    if made is None:
        made = _converging(name, np.linalg.svd, a, full_matrices, vectors)
    return _nan_for(infinite, made)


def _room_of_svd(a: Any, full_matrices: bool) -> tuple[Any, Any, Any]:
    """Memory for singular vectors, by columns as they lie in the end, and for the values between."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    if not batch:
        return np.empty((left, m), a.dtype).T, np.empty(k, a.dtype.char.lower()), np.empty((n, right), a.dtype).T
    return (
        np.empty((*batch, left, m), a.dtype).swapaxes(-1, -2), np.empty((*batch, k), a.dtype.char.lower()),
        np.empty((*batch, n, right), a.dtype).swapaxes(-1, -2),
    )  # fmt: skip


def _svd_of_some(a: Any, full_matrices: bool, vectors: bool) -> Any:
    """`svd` of finite matrices in steps; None where LAPACK has to scale one first."""
    m, n = a.shape[-2:]
    if m < n:
        made = _svd_of_some(a.swapaxes(-1, -2), full_matrices, vectors)
        return made if made is None or not vectors else (made[2].swapaxes(-1, -2), made[1], made[0].swapaxes(-1, -2))
    made = [_svd_in_steps(one, full_matrices, vectors) for (one,) in each(a)]
    if any(one is None for one in made):
        return None
    if a.ndim == 2:
        return made[0]
    batch = a.shape[:-2]
    if not vectors:
        return np.stack(made).reshape(*batch, n)
    u, values, vh = (np.stack(parts) for parts in zip(*made, strict=True))
    return u.reshape(*batch, m, -1), values.reshape(*batch, n), vh.reshape(*batch, n, n)


def _svd_in_steps(a: Any, full_matrices: bool, vectors: bool) -> Any:
    """`svd` of one matrix with no fewer rows than columns by its bidiagonal form; None where its numbers leave the range for that."""
    m, n = a.shape
    q = None
    if m > n:
        q, a = qr(a, "r" if not vectors else "complete" if full_matrices else "reduced")
        a = a[:n]
    d, e, left, left_shares, right, right_shares = condensed.bidiagonal(a)
    if not _in_range(d, e):
        return None
    made = divide_and_conquer.svd(d, e, vectors)
    if not vectors:
        return made
    values, u, v = made
    u = reflectors.turned_back(left, left_shares, u, 0).T
    v = reflectors.turned_back(right, right_shares, v, 1)
    if q is None:
        return u, values, v
    first = matmul(np.ascontiguousarray(q[:, :n]), np.ascontiguousarray(u))
    return np.concatenate([first, q[:, n:]], 1) if full_matrices else first, values, v


def _without_infinities(name: str, a: Any, why: str = "contained non-finite values.") -> tuple[Any, Any]:
    """`a` with matrices of zeros for those that hold an infinity, and which these are; None for none.

    LAPACK's iterations go on and on with infinities, and nothing interrupts them. Raises: LinAlgError if one holds a nan, which says `why`.
    """
    if all_finite(a):
        return a, None
    raise_singular(name, np.isnan(a).any((-2, -1)), f"The algorithm failed to converge because the input matrix {why}")
    infinite = np.isinf(a).any((-2, -1))
    return np.where(infinite[..., None, None], a.dtype.type(0), a), infinite


def _nan_for(infinite: Any, made: Any) -> Any:
    """`made`, an array or a tuple of them, with nan, of complex numbers in both parts, for the matrices that held an infinity."""
    if infinite is not None:
        for x in made if isinstance(made, tuple) else (made,):
            x[infinite] = nan_of(x.dtype)
    return made


def nan_of(dtype: Any) -> Any:
    """nan, of complex numbers in both parts."""
    return complex(np.nan, np.nan) if dtype.kind == "c" else np.nan


def eigh(name: str, a: Any, uplo: str, vectors: bool) -> Any:
    """Eigenvalues of Hermitian matrices, and with `vectors` ``(L, V)``; nan for matrices that hold an infinity.

    Raises: LinAlgError for a nan, and without convergence.
    """
    if not a.shape[-1]:                               # any number of them; numpy would go through all
        values = np.zeros(a.shape[:-1], a.real.dtype)
        return (values, np.zeros_like(a)) if vectors else values
    if not all_finite(a):                             # of the other triangle nothing is read
        a = np.triu(a) if uplo == "U" else np.tril(a)
    if a.shape[-1] == 1:                              # its own eigenvalue, whatever it is
        values = a.real[..., 0].copy()
        return (values, np.ones_like(a)) if vectors else values
    # PyTorch's words, which programs look for.
    why = f"is ill-conditioned or has too many repeated eigenvalues (error code: {a.shape[-1] - 1}). It contains nan"
    a, infinite = _without_infinities(name, a, why)
    made = _eigh_of_some(a, uplo, vectors)
    if made is None:
        made = _converging(name, np.linalg.eigh if vectors else np.linalg.eigvalsh, a, uplo)
    return _nan_for(infinite, made)


def _eigh_of_some(a: Any, uplo: str, vectors: bool) -> Any:
    """`eigh` of finite matrices: many small ones in lanes, large ones in steps, others by numpy's loop; None if that fails."""
    if jacobi.takes(a):
        return jacobi.eigh(a, uplo == "U", vectors)
    if a.shape[-1] >= IN_STEPS_FROM[vectors] and reflectors.takes(a):
        made = [_eigh_in_steps(one, uplo == "U", vectors) for (one,) in each(a)]
        if all(one is not None for one in made):
            if a.ndim == 2:
                return made[0]
            if not vectors:
                return np.stack(made).reshape(a.shape[:-1])
            return np.stack([w for w, _ in made]).reshape(a.shape[:-1]), _columns_of([v for _, v in made], a.shape)
    if not vectors:
        return _tried(_EIGH[uplo, vectors], a)
    # Vectors lie by columns in the end, so numpy copies them there itself.
    return _tried(_EIGH[uplo, vectors], a, np.empty(a.shape[:-1], a.dtype.char.lower()), np.empty(a.shape, a.dtype).swapaxes(-1, -2))


def _columns_of(parts: list[Any], shape: Any) -> Any:
    """Matrices that lie by columns, as one array of which each does."""
    return np.stack([v.T for v in parts]).reshape(shape).swapaxes(-1, -2)


# Rows, of the smaller side, from which kernels take less time than LAPACK, with vectors and without.
IN_STEPS_FROM = {True: 20, False: 32}
LAPACK_FROM = 768  # rows from which LAPACK, by blocks, makes a matrix tridiagonal in less time than a kernel by passes over it
# What the largest number of a tridiagonal or bidiagonal matrix is between, so that squares neither overflow nor vanish.
_IN_RANGE = {"f": (1e-12, 1e12), "d": (1e-120, 1e120)}


def _eigh_in_steps(a: Any, upper: bool, vectors: bool) -> Any:
    """`eigh` of one symmetric matrix by its tridiagonal form; None where numpy's loop has to scale it first."""
    n, char = len(a), a.dtype.char
    if n < LAPACK_FROM:
        d, e, lines, shares = condensed.tridiagonal(a, upper)
    else:
        factors, d, e, shares, _ = routine("sytrd", a)(a.T if upper else a, lower=1, lwork=_room_of_sytrd(n, char))
        lines = factors.T
        lines.reshape(-1)[1 :: n + 1] = 1             # a reflector begins with a one, where the other diagonal was
    if not _in_range(d, e):
        return None
    made = divide_and_conquer.eigh(d, e, vectors)
    return (made[0], reflectors.turned_back(lines, shares, np.ascontiguousarray(made[1].T), 1).T) if vectors else made


def _in_range(d: Any, e: Any) -> bool:
    """Whether the largest of some numbers is one whose square neither overflows nor vanishes."""
    low, high = _IN_RANGE[d.dtype.char]
    return bool(low < max(d.max(), -d.min(), e.max(initial=0), -e.min(initial=0)) < high)


@functools.cache
def _room_of_sytrd(n: int, char: str) -> int:
    return int(routine("sytrd_lwork", np.empty(0, char))(n, lower=1)[0])


_COMPLEX = {char: np.result_type(char, np.complex64) for char in "fdFD"}


def eig(name: str, a: Any, vectors: bool) -> Any:
    """Eigenvalues of square matrices, and with `vectors` ``(L, V)``, complex; nan for matrices that hold an infinity.

    Raises: LinAlgError for a nan, and without convergence; RuntimeError for an infinity where vectors are wanted.
    """
    wide = _COMPLEX[a.dtype.char]
    if _is_small(a):
        made = _of_one(_EIG if vectors else _EIGVALS, a)
        if made is not None:
            return tuple([x.astype(wide, copy=False) for x in made]) if vectors else made.astype(wide, copy=False)
    if not a.shape[-1]:
        values = np.zeros(a.shape[:-1], wide)
        return (values, np.zeros(a.shape, wide)) if vectors else values
    if vectors and not all_finite(a):
        raise RuntimeError(f"{name}: input tensor should not contain infs or NaNs.")
    a, infinite = _without_infinities(name, a)
    made = _tried(_EIG if vectors else _EIGVALS, a)
    if made is None:
        made = _converging(name, np.linalg.eig if vectors else np.linalg.eigvals, a)
    if vectors:
        return made[0].astype(wide, copy=False), made[1].astype(wide, copy=False)
    return _nan_for(infinite, made.astype(wide, copy=False))


def _converging(name: str, rule: Any, *args: Any) -> Any:
    try:
        with single_threaded():
            made = rule(*args)
        return tuple(made) if isinstance(made, tuple) else made
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{name}: The algorithm failed to converge: {error}") from None


# -- plans ------------------------------------------------------------------------------------------------------------------


def is_plain(a: Any, square: bool = False) -> bool:
    """Whether an array of the host holds matrices LAPACK works on, of at least one element."""
    return a.ndim >= 2 and bool(a.size) and a.dtype.char in "fdFD" and (not square or a.shape[-1] == a.shape[-2])


def on_matrices(compute: Any, square: bool = False, order: Any = None) -> Any:
    """The plan of an op of matrices that LAPACK works on, of at least one element: ``compute(array, *arguments)``.

    `compute` returns an array, a tuple of them, or None where the fallback is better. `order` is how the result lies in memory,
    one for each of several; None: as it is.
    """

    def rule(a: Any, *args: Any) -> Any:
        if not is_plain(a, square):
            return None
        try:
            made = compute(a, *args)
        except LinAlgError:  # which the fallback explains better
            return None
        if made is None or order is None:
            return made
        return (*map(placed, made, order),) if made.__class__ is tuple else placed(made, order)

    return rule


def inverse_now(a: Any) -> Any:
    """The inverses, or None if a matrix has none, or numpy has no loop for that."""
    many = _solve_many(a, None)
    if many is None and _in_blocks(a, LU_FROM):
        return _solve_some(a, identity(len(a), a.dtype.char))
    return _tried(_INV, a) if many is None else many


def cholesky_now(a: Any, upper: Any) -> Any:
    """The factors of positive-definite matrices; None if one is not, or numpy has no loop for that."""
    n = a.shape[-1]
    if matrices_by_lanes.takes(a):
        return matrices_by_lanes.cholesky(a, bool(upper))
    if matrices_by_rows.takes(a):
        return matrices_by_rows.cholesky(a, bool(upper))
    if n <= matrices_by_rows.MOST and a.ndim == 2 and a.dtype.char in "fd":
        made = matrices_by_rows.cholesky_of_one(a, upper)
        if made is not None:
            return made
    if not a.size or a.dtype.char not in "fdFD" or (n < LARGE and not (n >= CHOLESKY_FROM and factor_blocks.takes(a))):
        return _tried(_CHOLESKY[bool(upper)], a)
    made: Any = None if a.ndim == 2 else np.empty_like(a, order="C", subok=False)
    for i, (x,) in enumerate(each(a)):
        c, info = _cholesky_one(x, upper)
        if info:
            return None
        if made is None:
            return c
        made.reshape(-1, n, n)[i] = c
    return made


def solve_now(a: Any, b: Any) -> Any:
    """``X`` with ``a @ X == b``, matrices or a matrix and a vector; or None."""
    if b.dtype is not a.dtype:
        return None
    if b.ndim == 1 and a.ndim == 2:
        made = _solve_some(a, b[:, None])
        return None if made is None else made[:, 0]
    if _are_many(a, b):
        return _solve_many(a, b)
    return _solve_some(a, b) if b.ndim == a.ndim and b.shape[:-1] == a.shape[:-1] and b.size else None


def eigh_now(a: Any, uplo: Any, vectors: bool) -> Any:
    if _is_small(a) and uplo in ("L", "U"):
        if not vectors:
            return _of_one(_EIGH[uplo, vectors], a)
        return _of_one(_EIGH[uplo, vectors], a, np.empty(len(a), a.dtype.char.lower()), np.empty(a.shape, a.dtype).T)
    if not all_finite(a):
        return None
    return _eigh_of_some(a, uplo, vectors) if uplo in ("L", "U") else None


def lu_now(a: Any) -> Any:
    """``(LU, pivots)`` of matrices none of which is singular; or None."""
    if a.ndim != 2:
        packed, pivots, info = lu(a)
        return None if info.any() else (packed, pivots)
    packed, pivots, info = _getrf(a)
    return (packed, (pivots + 1).astype(np.int32, copy=False)) if info == 0 else None


@functools.lru_cache(64)
def identity(n: int, char: str) -> Any:
    """The identity matrix, which is nobody's to write in."""
    made = np.eye(n, dtype=char)
    made.flags.writeable = False
    return made


def above(a: Any) -> Any:
    """A copy of the matrices `a` with zeros below their diagonals."""
    made = a.copy()
    np.copyto(made, 0, where=_below(*a.shape[-2:]))
    return made


def unit_below(a: Any) -> Any:
    """A copy of the matrices `a`, of no more columns than rows, with ones on their diagonals and zeros above."""
    m, n = a.shape[-2:]
    made = a.copy()
    np.copyto(made, 0, where=_below(n, m).T)
    made.reshape(*a.shape[:-2], m * n)[..., : n * n : n + 1] = 1
    return made
