"""LU and LDL factorizations, and solutions from them.

Derivatives follow the adjoint rules collected by Giles 2008, "An extended collection of matrix derivative results", and by
Boeddeker et al. 2017, arXiv:1701.00392, for complex matrices. They are Tensor expressions, so they differentiate again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.shapes.triangle import triangle_of

from ... import dtypes
from ...tensor import Tensor
from .._batching import leading
from .._results import return_type
from .._spec import COLUMNS, FUNCTION, METHOD, OPS, OUT, ROWS, composite, primitive
from ..creation.ranges import arange
from . import _lapack
from ._lapack import check_floating, check_matrix, check_singular, check_square
from ._matrices import adjoint, by_columns, identity_like, matmul, triangle
from .solve import lined_up, solve_triangle

BOTH = FUNCTION | OUT
Lu = return_type("linalg_lu", ("P", "L", "U"))
LuUnpacked = return_type("lu_unpack", ("P", "L", "U"))
LuFactor = return_type("linalg_lu_factor", ("LU", "pivots"))
LuFactorInfo = return_type("linalg_lu_factor_ex", ("LU", "pivots", "info"))
Ldl = return_type("linalg_ldl_factor", ("LD", "pivots"))
LdlInfo = return_type("linalg_ldl_factor_ex", ("LD", "pivots", "info"))


# -- LU ------------------------------------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(COLUMNS, ROWS, ROWS), samples="of linalg.lu", public_name="linalg.lu_factor", batch_rule=leading)
def lu_of(A):
    """Packed LU factors, row exchanges (from 1) and the first zero pivot, or 0."""


lu_of.shown_as("LinalgLuFactorExBackward0", LU="out0", pivots="out1", pivot=lambda saved: True)


lu_of.in_pieces("...__->...__,..._,...")


lu_of.kernel(_lapack.lu)


@lu_of.shape
def _lu_shape(A):
    (*batch, m, n) = A.shape
    return [(A.shape, A.dtype), ((*batch, min(m, n)), dtypes.int32), (tuple(batch), dtypes.int32)]


@lu_of.vjp
def _lu_vjp(grad, out0, out1):
    g, packed = grad[0], out0
    m, n = packed.shape[-2:]
    k = min(m, n)
    L = triangle(packed[..., :, :k], False, strict=True) + identity_like(packed[..., :, :k])
    U = triangle(packed[..., :k, :], True)
    gL, gU = triangle(g[..., :, :k], False, strict=True), triangle(g[..., :k, :], True)
    L1, U1 = L[..., :k, :], U[..., :, :k]
    # Below the square part L2 = A2 U1^-1, right of it U2 = L1^-1 A2: their shares move to the square part.
    inner_l = matmul(adjoint(L1), gL[..., :k, :])
    inner_u = matmul(gU[..., :, :k], adjoint(U1))
    parts = []
    if m > k:
        below = solve_triangle(adjoint(U1), gL[..., k:, :], False, left=False)
        parts = [(-2, below)]
        inner_u = inner_u - matmul(adjoint(L[..., k:, :]), gL[..., k:, :])
    if n > k:
        right = solve_triangle(adjoint(L1), gU[..., :, k:], True, unitriangular=True)
        parts = [(-1, right)]
        inner_l = inner_l - matmul(gU[..., :, k:], adjoint(U[..., :, k:]))
    inner = triangle(inner_l, False, strict=True) + triangle(inner_u, True)
    made = solve_triangle(adjoint(U1), solve_triangle(adjoint(L1), inner, True, unitriangular=True), False, left=False)
    for dim, part in parts:
        made = OPS["cat"].function([made, part], dim)
    return (matmul(permutation(out1, m, made), made),)


@primitive(surface=0, tensors=("pivots",), samples="of linalg.lu", public_name="lu_unpack", batch_rule=leading)
def row_order(pivots, rows):
    """Which of `rows` rows is where after the swaps that `pivots` names, counted from 1: ``(*, k) -> (*, rows)``."""


row_order.not_differentiable = "its result is places"
row_order.in_pieces("..._->..._")


@row_order.kernel
def _row_order(pivots, rows):
    return _lapack.row_order(pivots, rows)


@row_order.shape
def _row_order_shape(pivots, rows):
    return (*pivots.shape[:-1], rows), dtypes.int64


def permutation(pivots: Tensor, rows: int, like: Tensor) -> Tensor:
    """The matrices ``P`` in ``A == P @ L @ U``, for row exchanges `pivots`."""
    order = row_order(pivots, rows)
    return (arange(rows, device=order.device).unsqueeze(-1) == order.unsqueeze(-2)).to(like.dtype)


_LU_NAMES = {"linalg.lu_factor": "torch.lu_factor"}     # as PyTorch has it


def _check_pivot(name: str, A: Any, pivot: bool) -> None:
    check_floating(name, A)
    if A.ndim < 2:
        raise RuntimeError(f"{_LU_NAMES.get(name, name)}: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")


@composite(surface=BOTH, namespace="linalg", samples="sq(3); sq(2, 3)")
def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """``(LU, pivots, info)``: `linalg.lu_factor` without its error.

    Args:
        A, pivot: as for `linalg.lu_factor`.
        check_errors: raise as `linalg.lu_factor` does.
    Returns: in `info`, int32, the first zero on the diagonal of U, from 1, or 0.
    """
    _check_pivot("linalg.lu_factor", A, pivot)
    made = lu_of(A)
    if check_errors:
        check_singular(
            "torch.linalg.lu_factor_ex", made[2], "U[{0},{0}] is zero and "
            "using it on lu_solve would result in a division by zero."
        )
    return LuFactorInfo(made)


lu_factor_ex.in_pieces("...__->...__,..._,...")


def _lu_factor(A: Any, pivot: bool) -> tuple[Tensor, Tensor]:
    _check_pivot("linalg.lu_factor", A, pivot)
    packed, pivots, info = lu_of(A)
    check_singular(
        "torch.linalg.lu_factor", info, "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. "
        "If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
        RuntimeError,
    )  # fmt: skip
    return packed, pivots


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_lu_factor", autocast=("float32", None), samples="sq(3); x(2, 4, 3)", exact_out=True,
)
def lu_factor(A, *, pivot=True):
    """``(LU, pivots)``: L below the diagonal and U above, packed, and with which row each row was exchanged, from 1.

    Args:
        A: ``(*, m, n)``.
        pivot: exchange rows, for stability; must be True on the CPU.
    Raises: RuntimeError for a zero on the diagonal of U, or on the CPU without `pivot`.
    """
    return LuFactor(_lu_factor(A, pivot))


lu_factor.in_pieces("...__->...__,..._")


lu_factor.plan(_lapack.on_matrices(lambda a, pivot: _lapack.lu_now(a) if pivot else None, order=(COLUMNS, ROWS)), returns=LuFactor)


@composite(surface=BOTH, namespace="linalg", reads_parts=True, samples="sq(3); x(3, 4)", exact_out=True)
def lu(A, *, pivot=True):
    """``P, L, U`` with ``A == P @ L @ U``: a permutation, lower triangular of unit diagonal, and upper triangular."""
    _check_pivot("linalg.lu", A, pivot)
    packed, pivots, _ = lu_of(A)
    return Lu(_unpacked(packed, pivots))


lu.in_pieces("...__->...__,...__,...__")


def _lu_now(a: Any, pivot: Any) -> Any:
    made = _lapack.lu_now(a) if pivot else None
    return None if made is None else _unpacked_now(*made)


def _unpacked_now(packed: Any, pivots: Any) -> tuple[Any, Any, Any]:
    m, n = packed.shape[-2:]
    k = min(m, n)
    p = _lapack.identity(m, packed.dtype.char).take(_lapack.exchanged(pivots, m), 0).swapaxes(-1, -2)
    return np.ascontiguousarray(p), _lapack.unit_below(packed[..., :k]), _lapack.above(packed[..., :k, :])


lu.plan(_lapack.on_matrices(_lu_now), returns=Lu)


def _unpacked(packed: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m, n = packed.shape[-2:]
    k = min(m, n)
    L = triangle(packed[..., :, :k], False, strict=True) + identity_like(packed[..., :, :k])
    return permutation(pivots, m, packed), L, triangle(packed[..., :k, :], True)


def _old_lu(A, pivot: bool = True, get_infos=False):
    """``(LU, pivots)`` as of `linalg.lu_factor`, of singular matrices too; with `get_infos` ``(LU, pivots, info)``.

    Arguments as for `linalg.lu_factor`; `info` as of `linalg.lu_factor_ex`.
    """
    _check_pivot("linalg.lu_factor", A, pivot)
    made = lu_of(A)
    return return_type("_lu_with_info", ("LU", "pivots", "info"))(made) if get_infos else (made[0], made[1])


_old_lu.__name__ = "lu"
composite(surface=FUNCTION | METHOD | OUT, samples="sq(3); sq(2, 3)")(_old_lu).deprecation = (
    "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in a future PyTorch "
    "release.\nLU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\n"
    "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)"
)


@composite(surface=FUNCTION | OUT, samples="*fb.linalg.lu_factor(sq(3)); *fb.linalg.lu_factor(sq(2, 3))")
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """``P, L, U`` of a packed factorization, as `linalg.lu` gives them.

    Args:
        LU_data, LU_pivots: as `linalg.lu_factor` returns them.
        unpack_data, unpack_pivots: whether L and U, and P, are wanted; what is not asked for is empty.
    """
    check_matrix("torch.lu_unpack", LU_data)
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype, got {LU_pivots.dtype}")
    if unpack_pivots:
        _check_pivots("torch.lu_unpack", "LU_pivots", LU_pivots, LU_data, (*LU_data.shape[:-2], min(LU_data.shape[-2:])))
    empty = LU_data.new_zeros((0,))
    P = permutation(LU_pivots, LU_data.shape[-2], LU_data) if unpack_pivots else empty
    if not unpack_data:
        return LuUnpacked((P, empty, empty))
    k = min(LU_data.shape[-2:])
    L = triangle(LU_data[..., :, :k], False, strict=True) + identity_like(LU_data[..., :, :k])
    return LuUnpacked((P, L, triangle(LU_data[..., :k, :], True)))


@lu_unpack.in_pieces
def _lu_unpack_pieces(asked):
    return "...__,..._->...__,...__,...__" if asked["unpack_data"] and asked["unpack_pivots"] else []


def _check_pivots(op: str, name: str, pivots: Tensor, LU: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(pivots.shape) == shape:
        return
    if pivots.ndim and pivots.shape[-1] != shape[-1]:
        raise RuntimeError(
            f"{op}: Number of pivots per batch should be same as the dimension of the matrix, got {name} of shape {tuple(pivots.shape)} "
            f"for matrices of shape {tuple(LU.shape)}"
        )
    raise RuntimeError(
        f"{op}: Expected LU.shape[:-1] and pivots.shape to be the same, but got {name} with shape {list(pivots.shape)} instead, for "
        f"matrices of shape {list(LU.shape)}"
    )


def _lu_solve(LU: Any, pivots: Any, B: Any, left: bool, transpose: bool) -> Tensor:
    check_square("linalg.lu_solve", LU, "LU")
    check_matrix("linalg.lu_solve", B, "B")
    check_floating("linalg.lu_solve", LU, B)
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}")
    _check_pivots("linalg.lu_solve", "pivots", pivots, LU, tuple(LU.shape[:-1]))
    if B.shape[-2 if left else -1] != LU.shape[-1]:
        raise RuntimeError(f"linalg.lu_solve: Incompatible shapes of LU {tuple(LU.shape)} and B {tuple(B.shape)}")
    if not left:
        return adjoint(_lu_solve(LU, pivots, adjoint(B), True, not transpose))
    P = permutation(pivots, LU.shape[-2], LU)
    if not transpose:
        return solve_triangle(LU, solve_triangle(LU, matmul(P.mT, B), False, unitriangular=True), True)
    inner = solve_triangle(adjoint(LU), B, False)
    return by_columns(matmul(P, solve_triangle(adjoint(LU), inner, True, unitriangular=True)))


def _linalg_lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """``X`` with ``A @ X == B``, or ``X @ A == B`` if not `left`, for `A` given factorized.

    Args:
        LU, pivots: as `linalg.lu_factor` returns them.
        adjoint: solve for ``A.mH`` in place of A.
    """
    return _lu_solve(LU, pivots, B, left, adjoint)


def _old_lu_solve(b, LU_data, LU_pivots):
    """``X`` with ``A @ X == b`` for `A` given factorized: `LU_data`, `LU_pivots` as `linalg.lu_factor` returns them."""
    return _lu_solve(LU_data, LU_pivots, b, True, False)


_linalg_lu_solve.__name__ = _old_lu_solve.__name__ = "lu_solve"
composite(
    surface=BOTH, namespace="linalg", autocast="own",
    reads_parts=True, samples="*fb.linalg.lu_factor(sq(3)), x(3, 2); *fb.linalg.lu_factor(sq(3)), x(2, 3), left=False, adjoint=True",
)(_linalg_lu_solve)
_declared = composite(
    surface=FUNCTION | METHOD | OUT, autocast=("float32", None),
    samples="x(3, 2), *fb.linalg.lu_factor(sq(3))", exact_out=True,
)(_old_lu_solve)
_declared.deprecation = (
    "torch.lu_solve is deprecated in favor of torch.linalg.lu_solve and will be removed in a future PyTorch release.\n"
    "Note that torch.linalg.lu_solve has its arguments reversed.\nX = torch.lu_solve(B, LU, pivots)\n"
    "should be replaced with\nX = torch.linalg.lu_solve(LU, pivots, B)"
)


# -- LDL -------------------------------------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(COLUMNS, ROWS, ROWS), samples="of linalg.ldl_factor", public_name="linalg.ldl_factor", batch_rule=leading)
def ldl_of(A, hermitian):
    """Packed LDL factors, pivots and the first zero block of D, or 0; of the lower triangle."""


ldl_of.in_pieces("...__->...__,..._,...")


@ldl_of.kernel
def _ldl(a, hermitian):
    batch, n = a.shape[:-2], a.shape[-1]
    packed, pivots, infos = [], [], []
    for (x,) in _lapack.each(a):
        ld, pivot, info = _ldl_of_one(x, hermitian) if n else (x, np.zeros(0), 0)
        packed.append(ld)
        pivots.append(pivot)
        infos.append(info)
    return tuple(
        _lapack.stacked(parts, batch, shape, d)
        for parts, shape, d in ((packed, (n, n), a.dtype), (pivots, (n,), np.int32), (infos, (), np.int32))
    )


def _ldl_of_one(a: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """The packed factors of one matrix, column by column, its pivots, and the first zero block or 0."""
    # Room for blocks of columns, without which LAPACK takes one after the other.
    factor = _lapack.routine("hetrf" if hermitian and a.dtype.kind == "c" else "sytrf", a)
    packed, pivots, info = factor(a, lower=1, lwork=_lapack.QR_BLOCK * len(a))
    # The transpose is row-major, with zeros to be below its diagonal.
    rows = packed.T
    kept = triangle_of(rows, 0, True)
    return (np.triu(rows) if kept is None else kept).T, pivots, info


@ldl_of.shape
def _ldl_shape(A, hermitian):
    return [(A.shape, A.dtype), (A.shape[:-1], dtypes.int32), (A.shape[:-2], dtypes.int32)]


@ldl_of.vjp
def _ldl_vjp(grad):
    raise NotImplementedError("the derivative for 'linalg_ldl_factor_ex' is not implemented")


@composite(surface=BOTH, namespace="linalg", samples="sym(3)")
def ldl_factor_ex(input, *, hermitian=False, check_errors=False):
    """``(LD, pivots, info)``: `linalg.ldl_factor` without its error.

    Args:
        hermitian: as for `linalg.ldl_factor`.
        check_errors: raise as `linalg.ldl_factor` does.
    Returns: in `info`, int32, the first zero block of D, from 1, or 0.
    """
    check_square("torch.linalg.ldl_factor_ex", input)
    made = ldl_of(input, bool(hermitian))
    if check_errors:
        check_singular("torch.linalg.ldl_factor_ex", made[2], "block {} of D is zero")
    return LdlInfo(made)


@composite(surface=BOTH, namespace="linalg", operator="linalg_ldl_factor", samples="sym(3); sym(2, 3)")
def ldl_factor(input, *, hermitian=False):
    """``(LD, pivots)``: the packed LDL factorization of symmetric (or, with `hermitian`, Hermitian) matrices.

    The lower triangle is read. Raises: RuntimeError if singular.
    """
    check_square("torch.linalg.ldl_factor", input)
    packed, pivots, info = ldl_of(input, bool(hermitian))
    check_singular("torch.linalg.ldl_factor", info, "block {} of D is zero; use ldl_factor_ex to go on nevertheless")
    return Ldl((packed, pivots))


ldl_factor.in_pieces("...__->...__,..._")


@ldl_factor.plan(dtypes="fd", returns=Ldl)
def _planned_ldl(a, hermitian):
    if a.ndim != 2 or not a.size or a.shape[0] != a.shape[1]:
        return None
    packed, pivots, info = _ldl_of_one(a, False)      # real matrices are Hermitian where they are symmetric
    return None if info else (packed, pivots)


@primitive(surface=0, tensors=("LD", "pivots", "B"), memory=(COLUMNS,), samples="of linalg.ldl_solve", public_name="linalg.ldl_solve")
def ldl_solution(LD, pivots, B, hermitian):
    """``X`` with ``A @ X == B`` for `A` given by its packed LDL factorization, batches alike."""


ldl_solution.in_pieces("...__,..._,..._k->..._k")


@ldl_solution.kernel
def _ldl_solution(ld, pivots, b, hermitian):
    if not b.size:
        return np.zeros_like(b)
    parts = []
    for x, p, y in _lapack.each(ld, pivots, b):
        parts.append(_ldl_solve_one(x, p, y, hermitian))
    return _lapack.stacked(parts, b.shape[:-2], b.shape[-2:], b.dtype)


def _ldl_solve_one(packed: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """Undo the exchanges and unit triangles column by column, as they were made, around the blocks of D."""
    n = len(pivots)
    turn = (lambda x: x.conj()) if hermitian else (lambda x: x)
    x = b.copy()
    at = 0
    blocks = []
    while at < n:
        size = 1 if pivots[at] > 0 or at + 1 == n else 2
        last = at + size
        row = abs(int(pivots[last - 1])) - 1
        x[[last - 1, row]] = x[[row, last - 1]]
        x[last:] -= packed[last:, at:last] @ x[at:last]
        d = packed[at:last, at:last].copy()
        if size == 2:
            d[0, 1] = turn(d[1, 0])
        if hermitian:
            np.fill_diagonal(d, np.diagonal(d).real)  # pyright: ignore[reportAttributeAccessIssue]  # numpy arrays have it
        blocks.append((at, last, row, d))
        at = last
    for at, last, _, d in reversed(blocks):
        x[at:last] = _solve_block(d, x[at:last])
    for at, last, row, _ in reversed(blocks):
        x[at:last] -= turn(packed[last:, at:last]).T @ x[last:]
        x[[last - 1, row]] = x[[row, last - 1]]
    return x


def _solve_block(d: Any, b: Any) -> Any:
    """``X`` with ``d @ X == b`` for a block of one row or two; infinite or nan where it is singular."""
    if len(d) == 1:
        return b / d
    inverse = np.array([[d[1, 1], -d[0, 1]], [-d[1, 0], d[0, 0]]]) / (d[0, 0] * d[1, 1] - d[0, 1] * d[1, 0])
    return inverse @ b


@ldl_solution.shape
def _ldl_solution_shape(LD, pivots, B, hermitian):
    return B.shape, B.dtype


@ldl_solution.vjp
def _ldl_solution_vjp(grad):
    raise NotImplementedError("the derivative for 'linalg_ldl_solve' is not implemented")


@composite(surface=BOTH, namespace="linalg", samples="*fb.linalg.ldl_factor(sym(3)), x(3, 2)")
def ldl_solve(LD, pivots, B, *, hermitian=False):
    """``X`` with ``A @ X == B`` for `A` as `linalg.ldl_factor` returns it: `LD`, `pivots`; the same `hermitian`."""
    name = "torch.linalg.ldl_solve"
    check_square(name, LD, "LD")
    check_matrix(name, B, "B")
    check_floating(name, LD, B)
    if pivots.dtype.category >= dtypes.FLOATING or pivots.dtype is dtypes.bool:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    if pivots.shape != LD.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but "
            f"got pivots with shape {tuple(pivots.shape)} instead"
        )
    rows = LD.shape[-1]
    if not pivots._lacks_values and bool(((pivots.abs() > rows) | (pivots == 0)).any()):
        raise RuntimeError(f"{name}: Pivots given must all satisfy 1 <= |pivot| <= LD.size(-2) = {rows}: did you pass those of ldl_factor?")
    if B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of LD {tuple(LD.shape)} and B {tuple(B.shape)}")
    LD, B = lined_up(LD, B)
    return ldl_solution(LD, pivots.expand(LD.shape[:-1]), B, bool(hermitian) and LD.is_complex())


ldl_solve.in_pieces("...__,..._,..._k->..._k")
