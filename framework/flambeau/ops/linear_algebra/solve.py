"""Linear equations: inverses, solutions, least squares."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.gemm.blas import single_threaded
from flambeau_kernels.cpu.linear_algebra import matrices_by_rows, reflectors, triangular_systems
from flambeau_kernels.cpu.shapes import move

from ... import dtypes
from ..._arrays import contiguous_strides
from ...tensor import Tensor
from .._batching import leading, leading_of_two
from .._results import return_type
from .._spec import (
    COLUMNS,
    EXACTLY,
    FUNCTION,
    METHOD,
    NUMPY_NAMES,
    OPS,
    OUT,
    ROWS,
    Operand,
    composite,
    describe,
    host_only,
    need_bools,
    need_number,
    not_kept,
    placed,
    primitive,
)
from .._spec.plans import Plan
from ..shapes.expand import broadcast_shapes
from . import _lapack, _routines
from ._lapack import LinAlgError, check_floating, check_matrix, check_singular, check_square, raise_singular
from ._matrices import adjoint, by_columns, matmul, triangle

BOTH = FUNCTION | OUT
InverseInfo = return_type("linalg_inv_ex", ("inverse", "info"))
SolveInfo = return_type("linalg_solve_ex", ("result", "info"))
LeastSquares = return_type("linalg_lstsq", ("solution", "residuals", "rank", "singular_values"))
TriangularSolution = return_type("triangular_solve", ("solution", "cloned_coefficient"))
SINGULAR = "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular."


# -- inverse ---------------------------------------------------------------------------------------------------------------


@primitive(
    surface=0, operator="linalg_inv_ex(A)", memory=(COLUMNS, ROWS), samples="of linalg.inv", public_name="linalg.inv", batch_rule=leading,
)
def inverse_of(A):
    """The inverses of square matrices, and for each the first zero pivot, or 0."""


inverse_of.shown_as("LinalgInvExBackward0", inverse="out0")


inverse_of.in_pieces("...__->...__,...")


inverse_of.kernel(_lapack.inverse)


@inverse_of.shape
def _inverse_shape(A):
    return [(A.shape, A.dtype), (A.shape[:-2], dtypes.int32)]


@inverse_of.vjp
def _inverse_vjp(grad, out0):
    back = adjoint(out0)
    return (-matmul(matmul(back, grad[0]), back),)


@composite(surface=BOTH, namespace="linalg", autocast=("float32", None), samples="sq(3); sq(2, 3)")
def inv_ex(A, *, check_errors=False):
    """``(inverse, info)``: `info`, int32, is the first zero pivot, from 1, of a singular matrix and 0 of the others.

    Args:
        check_errors: raise as `linalg.inv` does; otherwise look at `info`, the inverse of a singular matrix
            is no use.
    """
    check_square("linalg.inv", A)
    made = inverse_of(A)
    if check_errors:
        check_singular("linalg.inv_ex", made[1], SINGULAR)
    return InverseInfo(made)


def _inverse(A: Any) -> Tensor:
    check_square("linalg.inv", A)
    made, info = inverse_of(A)
    check_singular("linalg.inv", info, SINGULAR)
    return made


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_inv", autocast=("float32", None), samples="sq(3); sq(2, 3)", exact_out=True,
    batch_rule=leading,
)
def inv(A):
    """The inverse of each square matrix: ``(*, n, n) -> (*, n, n)``. Raises: LinAlgError for a singular one.

    To multiply with an inverse, `linalg.solve` is faster and more exact.
    """
    return _inverse(A)


inv.in_pieces("...__->...__")


inv.plan(_lapack.on_matrices(_lapack.inverse_now, square=True, order=COLUMNS))


@composite(surface=FUNCTION | METHOD | OUT, autocast=("float32", None), samples="sq(3); sq(2, 3)", exact_out=True)
def inverse(input):
    """The inverse of each square matrix. Raises: LinAlgError for a singular one."""
    return _inverse(input)


inverse.in_pieces("...__->...__")


inverse.plan(_lapack.on_matrices(_lapack.inverse_now, square=True, order=COLUMNS))


# -- square systems --------------------------------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("A", "B"), memory=(COLUMNS, ROWS), samples="of linalg.solve", public_name="linalg.solve", batch_rule=leading_of_two,
)
def solution_of(A, B):
    """``X`` with ``A @ X == B``, batches alike, and for each matrix the first zero pivot, or 0."""


solution_of.shown_as("LinalgSolveExBackward0", result="out0", left=lambda saved: True, LU=not_kept, pivots=not_kept)


solution_of.in_pieces("...__,..._k->..._k,...")


solution_of.kernel(_lapack.solve)


@solution_of.shape
def _solution_shape(A, B):
    return [(B.shape, B.dtype), (A.shape[:-2], dtypes.int32)]


@solution_of.vjp
def _solution_vjp(grad, A, out0, needs_A):
    back = solution_of(adjoint(A), grad[0])[0]
    return -matmul(back, adjoint(out0)) if needs_A else None, back


def is_vector(A: Tensor, B: Tensor) -> bool:
    """Whether `B` is a batch of vectors rather than of matrices, for equations with the matrices `A`."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])


def lined_up(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Both, expanded to one batch shape."""
    batch = tuple(broadcast_shapes(A.shape[:-2], B.shape[:-2]))
    return A.expand(*batch, *A.shape[-2:]), B.expand(*batch, *B.shape[-2:])


def _check_equation(name: str, A: Tensor, B: Tensor, left: bool, vector: bool) -> None:
    check_square(name, A)
    check_floating(name, A, B)
    if not B.ndim:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.\n{describe(A=A, B=B)}")
    rows = B.shape[-1] if vector or not left else B.shape[-2] if B.ndim > 1 else -1
    if vector and not left or rows != A.shape[-1]:
        n, m = (*B.shape, 1)[-2:] if vector else B.shape[-2:]
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({A.shape[-2]}x{A.shape[-1]} and {n}x{m})\n{describe(A=A, B=B)}"
        )


def _solve(name: str, A: Any, B: Any, left: bool) -> tuple[Tensor, Tensor]:
    check_square("linalg.solve", A)
    check_floating("linalg.solve", A, B)
    vector = is_vector(A, B)
    _check_equation("linalg.solve", A, B, left, vector)
    if vector:
        B = B.unsqueeze(-1)
    A, B = lined_up(A, B)
    if left:
        made, info = solution_of(A, B)
    else:
        made, info = solution_of(A.mT, B.mT)
        made = made.mT
    return by_columns(made.squeeze(-1)) if vector else made, info


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_solve_ex", reads_parts=True, samples="sq(3), x(3, 2); sq(3), x(3)", costly=True
)
def solve_ex(A, B, *, left=True, check_errors=False):
    """``(result, info)``: `linalg.solve` without its error.

    Args:
        A, B, left: as for `linalg.solve`.
        check_errors: raise as `linalg.solve` does.
    Returns: in `info`, int32, the first zero pivot of a singular matrix, from 1, or 0.
    """
    made = _solve("linalg.solve_ex", A, B, left)
    if check_errors:
        check_singular("torch.linalg.solve_ex", made[1], "The solver failed because the input matrix is singular. Pivot {} is zero.")
    return SolveInfo(made)


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_solve", autocast=("float32", None),
    reads_parts=True, samples="sq(3), x(3, 2); sq(2, 3), x(2, 3); sq(3), x(2, 3), left=False",
    exact_out=True,
    batch_rule=leading_of_two,
)
def solve(A, B, *, left=True):
    """``X`` with ``A @ X == B``, or ``X @ A == B`` if not `left`: ``(*, n, n), (*, n, k) -> (*, n, k)``.

    `B` may also be a vector ``(n)`` or a batch of them of one dimension less than `A`. Raises: LinAlgError
    for singular `A`.

    >>> fb.linalg.solve(fb.tensor([[2.0, 0.0], [1.0, 4.0]]), fb.tensor([2.0, 9.0]))
    tensor([1., 2.])
    """
    made, info = _solve("linalg.solve", A, B, left)
    check_singular("torch.linalg.solve", info, "The solver failed because the input matrix is singular. Pivot {} is zero.")
    return made


@solve.in_pieces
def _solve_pieces(asked):
    A, B = asked.operands
    if is_vector(A, B):
        return "...__,..._->..._"
    return "...__,..._k->..._k" if asked["left"] else "...__,...k_->...k_"


solve.plan(
    _lapack.on_matrices(lambda a, b, left: _lapack.solve_now(a, b) if left is True else None, square=True, order=COLUMNS),
    tensors=("A", "B"),
)


# -- triangular systems ----------------------------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("A", "B"), memory=(COLUMNS,), samples="of linalg.solve_triangular", public_name="linalg.solve_triangular",
    batch_rule=leading_of_two,
)
def triangular_solution(A, B, upper, unitriangular):
    """``X`` with ``A @ X == B``, where of `A` only a triangle is read; batches alike."""


triangular_solution.shown_as("LinalgSolveTriangularBackward0", self="A", left=lambda saved: True)


triangular_solution.in_pieces("...__,..._k->..._k")


triangular_solution.kernel(_lapack.solve_triangular)


@triangular_solution.shape
def _triangular_shape(A, B, upper, unitriangular):
    return B.shape, B.dtype


@triangular_solution.vjp
def _triangular_vjp(grad, A, out, upper, unitriangular, needs_A):
    back = triangular_solution(adjoint(A), grad, not upper, unitriangular)
    return triangle(-matmul(back, adjoint(out)), upper, unitriangular) if needs_A else None, back


def solve_triangle(A: Tensor, B: Tensor, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    A, B = lined_up(A, B)
    if left:
        return triangular_solution(A, B, upper, unitriangular)
    return by_columns(triangular_solution(A.mT, B.mT, not upper, unitriangular).mT)


@composite(
    surface=BOTH, namespace="linalg",
    reads_parts=True,
    samples="sq(3), x(3, 2), upper=True; sq(2, 3), x(2, 3, 2), upper=False, unitriangular=True; sq(3), x(2, 3), upper=False, left=False",
)
def solve_triangular(input, B, *, upper, left=True, unitriangular=False):
    """``X`` with ``input @ X == B``, or ``X @ input == B`` if not `left`, for triangular matrices.

    ``(*, n, n), (*, n, k) -> (*, n, k)``. A zero on the diagonal gives inf or nan, not an error.

    Args:
        upper: which triangle of `input` is read; the other may hold anything.
        unitriangular: take the diagonal to be ones.
    """
    check_square("linalg.solve_triangular", input)
    check_matrix("linalg.solve_triangular", B, "B")
    _check_equation("linalg.solve_triangular", input, B, left, False)
    need_bools("linalg_solve_triangular", upper=upper, left=left, unitriangular=unitriangular)
    return solve_triangle(input, B, upper, left, unitriangular)


def _are_systems(a: Any, b: Any) -> bool:
    """Whether `a` holds square matrices and `b` right sides for each, of at least one element."""
    return _lapack.is_plain(a, square=True) and a.ndim == b.ndim and b.shape[:-1] == a.shape[:-1] and b.dtype == a.dtype and b.size > 0


@solve_triangular.plan(by="strides", tensors=("input", "B"))
def _plan_of_triangular(input, B, upper, left, unitriangular):
    """One matrix, or many with a few right sides each, on the left."""
    a, b = input._array, B._array
    if not _are_systems(a, b) or left is not True or not upper.__class__ is unitriangular.__class__ is bool:
        return None
    if a.ndim > 2:
        return Plan(lambda a, b: triangular_systems.solution(a, b, upper, unitriangular))
    run = triangular_systems.planned(a.shape, a.strides, b.shape, b.strides, a.dtype, upper, unitriangular)
    return Plan(run or (lambda a, b: placed(_lapack.solve_one(a, b, upper, unitriangular), COLUMNS)))


@composite(
    surface=FUNCTION | METHOD | OUT, overlap=EXACTLY, autocast=("float32", None), named_too={"b": ("input", *NUMPY_NAMES["input"])},
    reads_parts=True, samples="x(3, 2), sq(3); x(3, 2), sq(3), False, True",
    exact_out=True,
)
def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """``(X, A)`` with ``A @ X == b``, or ``A.mT @ X == b`` if `transpose`, for triangular `A`.

    Arguments as for `linalg.solve_triangular`, which replaces it.
    """
    for label, x in (("b", b), ("A", A)):
        if x.ndim < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {label} to have at least 2 dimensions, but it has {x.ndim} dimensions instead"
            )
    _check_equation("triangular_solve", A, b, True, False)
    need_bools("triangular_solve", upper=upper, transpose=transpose, unitriangular=unitriangular)
    made = solve_triangle(A.mT if transpose else A, b, upper != transpose, True, unitriangular)
    return TriangularSolution((made, by_columns(A.clone())))


triangular_solve.deprecation = (
    "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular and will be removed in a future PyTorch release.\n"
    "torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one of the inputs.\n"
    "X = torch.triangular_solve(B, A).solution\nshould be replaced with\nX = torch.linalg.solve_triangular(A, B)."
)


@triangular_solve.plan(tensors=("b", "A"), returns=TriangularSolution)
def _plan_of_older_triangular(b, a, upper, transpose, unitriangular):
    """One matrix, as it is."""
    usual = transpose is False and upper.__class__ is unitriangular.__class__ is bool and a.ndim == 2 and _are_systems(a, b)
    return (placed(_lapack.solve_triangular(a, b, upper, unitriangular), COLUMNS), a.copy("F")) if usual else None


# -- systems with a known factor ------------------------------------------------------------------------------------------
# Values are read from a triangle of the factor L; derivatives are those of ``L @ L.mH``, which has all of L, as PyTorch's are.


@primitive(surface=0, tensors=("L", "B"), memory=(COLUMNS,), samples="of cholesky_solve")
def cholesky_solution(L, B, upper):
    """``X`` with ``L @ L.mH @ X == B``, or ``L.mH @ L @ X == B`` if `upper`; batches alike."""


cholesky_solution.in_pieces("...__,..._k->..._k")


cholesky_solution.shown_as("CholeskySolveBackward0", input2="L", self=Operand("B"))


@cholesky_solution.kernel
def _cholesky_solution(L, B, upper):
    made = _cholesky_solve_now(L, B, upper)            # as the plan, so that recorded systems have the bits of others
    if made is not None:
        return made
    turned = L.conj().swapaxes(-1, -2)
    first, second = (turned, L) if upper else (L, turned)
    return _lapack.solve_triangular(second, _lapack.solve_triangular(first, B, False, False), True, False)


@cholesky_solution.shape
def _cholesky_solution_shape(L, B, upper):
    return B.shape, B.dtype


@cholesky_solution.vjp
def _cholesky_solution_vjp(grad, L, out, upper, needs_L):
    back = cholesky_solution(L, grad, upper)
    return _of_factor(-matmul(back, adjoint(out)), L, upper) if needs_L else None, back


def _of_factor(grad: Tensor, L: Tensor, upper: Any) -> Tensor:
    """The gradient of a factor from that of the product, which is Hermitian."""
    symmetric = grad + adjoint(grad)
    return matmul(L, symmetric) if upper else matmul(symmetric, L)


@primitive(surface=0, memory=(COLUMNS,), samples="of cholesky_inverse")
def inverse_by_factor(L, upper):
    """The inverses of ``L @ L.mH``, or of ``L.mH @ L`` if `upper`."""


inverse_by_factor.in_pieces("...__->...__")


inverse_by_factor.shown_as("CholeskyInverseBackward0", self="L")


@inverse_by_factor.kernel
def _inverse_by_factor(L, upper):
    zero = L.diagonal(0, -2, -1) == 0
    raise_singular("cholesky_inverse", np.where(zero.any(-1), zero.argmax(-1) + 1 if zero.shape[-1] else 0, 0), SINGULAR)
    made = _lapack.solve_triangular(L, np.broadcast_to(np.eye(L.shape[-1], dtype=L.dtype), L.shape), upper, False)
    turned = made.conj().swapaxes(-1, -2)
    return np.matmul(made, turned) if upper else np.matmul(turned, made)


@inverse_by_factor.shape
def _inverse_by_factor_shape(L, upper):
    return L.shape, L.dtype


@inverse_by_factor.vjp
def _inverse_by_factor_vjp(grad, L, out, upper):
    return (_of_factor(-matmul(matmul(out, grad), out), L, upper),)


@composite(
    surface=FUNCTION | METHOD | OUT, autocast=("float32", None),
    named_too={"B": ("input", *NUMPY_NAMES["input"]), "L": ("input2",)},
    samples="x(3, 2), fb.linalg.cholesky(spd(3)); x(2, 3, 2), fb.linalg.cholesky(spd(2, 3), upper=True), True",
)
def cholesky_solve(B, L, upper=False):
    """``X`` with ``L @ L.mH @ X == B``, or ``L.mH @ L @ X == B`` if `upper`: ``(*, n, k), (*, n, n) -> (*, n, k)``."""
    check_square("cholesky_solve", L, "L")
    if B.ndim < 2:
        raise RuntimeError(f"cholesky_solve: b should have at least 2 dimensions, but has {B.ndim} dimensions instead")
    _check_equation("cholesky_solve", L, B, True, False)
    L, B = lined_up(L, B)
    return cholesky_solution(L, B, bool(upper))


def _cholesky_solve_now(L: Any, b: Any, upper: Any) -> Any:
    if L.ndim != 2 or b.ndim != 2 or b.dtype is not L.dtype or b.shape[0] != L.shape[0] or not b.size or not L.diagonal().all():
        return None
    # To LAPACK a matrix by rows is its transpose, which is the other factor of real ones: so nothing is copied.
    turned = L.dtype.kind == "f" and L.flags.c_contiguous
    made, info = _lapack.routine("potrs", L)(L.T if turned else L, b, bool(upper) if turned else not upper)
    return made if info == 0 else None


@cholesky_solve.plan(tensors=("B", "L"))
def _plan_of_cholesky(b, L, upper):
    """One matrix."""
    return _cholesky_solve(L, b, upper)


_cholesky_solve = _lapack.on_matrices(_cholesky_solve_now, square=True, order=COLUMNS)


@composite(
    surface=FUNCTION | METHOD | OUT, autocast=("float32", None), named_too={"L": ("input", *NUMPY_NAMES["input"])},
    reads_parts=True, samples="fb.linalg.cholesky(spd(3)); fb.linalg.cholesky(spd(3), upper=True), True",
)
def cholesky_inverse(L, upper=False):
    """The inverse of ``L @ L.mH``, or of ``L.mH @ L`` if `upper`. Raises: LinAlgError for a zero on the diagonal."""
    host_only("cholesky_inverse", L)
    check_square("cholesky_inverse", L, "L")
    return inverse_by_factor(L, bool(upper))


cholesky_inverse.in_pieces("...__->...__")


def _cholesky_inverse_now(a: Any, upper: Any) -> Any:
    if not a.diagonal(0, -2, -1).all():                   # of a zero the fallback says which matrix has it, and where
        return None
    made = _lapack.solve_one(a, _lapack.identity(a.shape[-1], a.dtype.char), upper, False) if a.ndim == 2 else None
    if made is None:
        return None
    with single_threaded():                               # numpy's product of a matrix with itself takes half the time of another
        return made.dot(made.conj().T) if upper else made.conj().T.dot(made)


cholesky_inverse.plan(_lapack.on_matrices(_cholesky_inverse_now, square=True, order=COLUMNS))


# -- systems whose unknown is a tensor ---------------------------------------------------------------------------------------


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_tensorinv", autocast=("float32", None), reads_parts=True,
    samples="sq(4).reshape(2, 2, 2, 2)",
)
def tensorinv(input, ind=2):
    """The inverse under `tensordot` with respect to the first `ind` dimensions.

    The product of their sizes is that of the others; the result has the others first.
    """
    check_floating("linalg.tensorinv", input)
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, last = input.shape[:ind], input.shape[ind:]
    if prod(first) != prod(last):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), "
            f"but got {prod(last)} != {prod(first)}\n{describe(input=input, ind=ind)}"
        )
    return _inverse(input.reshape(prod(first), prod(last))).reshape(*last, *first)


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_tensorsolve", autocast=("float32", None),
    reads_parts=True, samples="sq(4).reshape(2, 2, 4), x(2, 2)",
)
def tensorsolve(input, other, dims: Sequence[int] | None = None):
    """``X`` with ``tensordot(input, X, dims=X.ndim) == other``; `dims` of `input` are moved to the end first."""
    check_floating("linalg.tensorsolve", input, other)
    if dims is not None:
        dims = [dims] if isinstance(dims, int) else list(dims)
        input = OPS["movedim"].function(input, dims, list(range(input.ndim - len(dims), input.ndim)))
    rest = input.shape[other.ndim :]
    if input.numel() != prod(rest) ** 2 or prod(rest) != other.numel():
        first = prod(input.shape[: other.ndim])
        got = f"{prod(rest)} != {first}" if prod(rest) != first else f"{first} for other, which has {other.numel()} elements"
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {got}\n{describe(input=input, other=other)}"
        )
    return solve(input.reshape(other.numel(), prod(rest)), other.reshape(-1)).reshape(rest)


# -- pseudo-inverse and least squares ------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(ROWS,), samples="of linalg.pinv", public_name="linalg.pinv", batch_rule=leading)
def pseudo_inverse(A, atol, rtol, hermitian):
    """The Moore-Penrose inverses; singular values up to ``max(atol, rtol * largest)`` count as 0, as for `linalg.pinv` by default."""


pseudo_inverse.shown_as("LinalgPinvBackward0", self="A")


pseudo_inverse.in_pieces("...__->...__")


@pseudo_inverse.kernel
def _pseudo_inverse(a, atol, rtol, hermitian):
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    atol, rtol = _limits(a, atol, rtol)
    if hermitian:
        values, v = _lapack.eigh("linalg.pinv", a, "L", True)
        size, u, vh = np.abs(values), v, v.conj().swapaxes(-1, -2)
    else:
        u, values, vh = _lapack.svd("linalg.pinv", a, False, True)
        size = values
        if a.ndim == 2 and np.ndim(atol) == np.ndim(rtol) == 0 and values[-1] > max(atol, rtol * values[0]) and values[0] < np.inf:
            return _of_full_rank(u, values, vh)
    if not _lapack.all_finite(values):                # of a matrix with an infinity: its inverse is 0, as PyTorch's
        infinite = np.isnan(values).any(-1)
        values[infinite], size[infinite], u[infinite], vh[infinite] = 0, 0, 0, 0
    limit = np.maximum(atol, rtol * size.max(-1))[..., None]
    inverse = np.where(size > limit, 1 / np.where(size > limit, values, 1), 0).astype(size.dtype)
    return (vh.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2)


def _of_full_rank(u: Any, values: Any, vh: Any) -> Any:
    """The inverse of one matrix with these singular vectors and values, all of which count."""
    if u.dtype.kind == "c":
        u, vh = u.conj(), vh.conj()
    return (vh.T * (1 / values)) @ u.T


@pseudo_inverse.shape
def _pseudo_inverse_shape(A, atol, rtol, hermitian):
    return (*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype


@pseudo_inverse.vjp
def _pseudo_inverse_vjp(grad, A, out):
    p, ph, gh = out, adjoint(out), adjoint(grad)
    column = matmul(gh, p)  # (m, m)
    row = matmul(p, gh)  # (n, n)
    return (-matmul(ph, matmul(grad, ph)) + matmul(_outside_columns(A, p, column), ph) + matmul(ph, _outside_rows(A, p, row)),)


def _outside_columns(A: Tensor, p: Tensor, x: Tensor) -> Tensor:
    """``(1 - A @ p) @ x``."""
    return x - matmul(A, matmul(p, x))


def _outside_rows(A: Tensor, p: Tensor, x: Tensor) -> Tensor:
    """``x @ (1 - p @ A)``."""
    return x - matmul(matmul(x, p), A)


def _check_tolerances(name: str, **given: Any) -> None:
    for label, x in given.items():
        if x is not None and not isinstance(x, Tensor):
            need_number(name, label, x)
        elif x is not None and x.is_complex():
            raise RuntimeError(f"{name}: tol tensor of complex type is not supported, got {x.dtype.name}")


def _limits(a: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Absolute and relative tolerance for `a`; the relative one is eps times the larger size unless one is given."""
    if rtol is None:
        eps = float(np.finfo(a.dtype).eps) * max(a.shape[-2:])
        rtol = eps if atol is None else np.where(np.asarray(atol) > 0, 0.0, eps)
    return (0.0 if atol is None else atol), rtol


def _pinv(input: Any, rcond: Any, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    check_floating("linalg.pinv", input)
    if input.ndim < 2:
        raise RuntimeError(
            f"linalg.pinv({dtypes.scalar_type(input.dtype)}{{{list(input.shape)}}}): expected a tensor with 2 or more dimensions "
            "of float, double, cfloat or cdouble types"
        )
    if hermitian and input.numel():
        check_square("linalg.pinv", input)
    rtol = rtol if rcond is None else rcond
    _check_tolerances("linalg.pinv", atol=atol, rtol=rtol)
    batch = np.broadcast_shapes(*(x.shape for x in (atol, rtol) if isinstance(x, Tensor)))
    if batch:                                          # one inverse for each limit
        input = input.expand(*np.broadcast_shapes(batch, tuple(input.shape[:-2])), *input.shape[-2:])
    return pseudo_inverse(input, atol, rtol, bool(hermitian))


@composite(surface=BOTH, namespace="linalg", samples="sq(3); x(2, 4, 3); spd(3), hermitian=True")
def pinv(input, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The Moore-Penrose inverse: ``(*, m, n) -> (*, n, m)``, by singular values.

    Args:
        rcond, rtol: singular values up to this share of the largest count as 0; eps times the larger size by default.
        atol: singular values up to this count as 0.
        hermitian: the matrices are Hermitian; only their lower triangle is read.
    """
    return _pinv(input, rcond, atol, rtol, hermitian)


def _pinv_now(a: Any, rcond: Any, hermitian: Any, atol: Any, rtol: Any) -> Any:
    """The inverse of one matrix by numbers for tolerances, or None."""
    rtol = rtol if rcond is None else rcond
    if a.ndim != 2 or hermitian is not False or not {atol.__class__, rtol.__class__} <= {float, type(None)}:
        return None
    return _pseudo_inverse(a, atol, rtol, False)


pinv.plan(_lapack.on_matrices(_pinv_now, order=ROWS))


@composite(surface=FUNCTION | METHOD, autocast=("float32", None), samples="sq(3); x(4, 2)")
def pinverse(input, rcond=1e-15):
    """The Moore-Penrose inverse; singular values up to `rcond` times the largest count as 0."""
    return pinv.function(input, rcond=rcond)


pinverse.plan(_lapack.on_matrices(lambda a, rcond: _pinv_now(a, rcond, False, None, None), order=ROWS))


def _BESIDE_ROOM(shape: tuple[int, ...], step: int, operands: Any) -> tuple[int, ...]:
    """Column-major in memory with room for as many rows as the matrices have rows or columns: LAPACK writes where it read."""
    rows = max(operands[0].shape[-2:])
    found = contiguous_strides((*shape[:-2], shape[-1], rows), step)
    return (*found[:-2], found[-1], found[-2])


@primitive(surface=0, tensors=("A", "B"), samples="of linalg.lstsq", public_name="linalg.lstsq", batch_rule=leading_of_two)
def least_squares(A, B, rcond, driver):
    """The least-squares solutions, ranks and singular values of ``A @ X == B``, batches alike."""


least_squares.shown_as("LinalgLstsqBackward0", self="A", b="B", solution=not_kept)


least_squares.in_pieces("...__,...__->...__,...,..._")


@least_squares.kernel
def _least_squares(a, b, rcond, driver):
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    if driver == "gelsy":
        made = _by_reflectors(a, b, rcond)
        if made is not None:
            room = np.empty((*batch, b.shape[-1], m), a.dtype).swapaxes(-1, -2)[..., :n, :]
            room[...] = made
            return room, np.full(batch, n), np.zeros((*batch, 0), a.dtype)
    solutions, ranks, values = [], [], []
    for x, y in _lapack.each(a, b):
        if not x.size or not y.size:
            made = (np.zeros((n, y.shape[-1]), a.dtype), None, 0, np.zeros(min(m, n), a.real.dtype))
        else:
            made = _least_squares_of_one(x, y, rcond, driver)
        solutions.append(made[0])
        ranks.append(made[2])
        values.append(np.zeros(0) if made[3] is None else made[3])
    room = np.empty((*batch, b.shape[-1], max(m, n)), a.dtype).swapaxes(-1, -2)[..., :n, :]
    room[...] = _lapack.stacked(solutions, batch, (n, b.shape[-1]), a.dtype)
    return (
        room,
        _lapack.stacked(ranks, batch, (), np.int64),
        _lapack.stacked(values, batch, (0 if driver == "gelsy" else min(m, n),), a.real.dtype),
    )


@least_squares.shape
def _least_squares_shape(A, B, rcond, driver):
    batch, (m, n) = A.shape[:-2], A.shape[-2:]
    values = 0 if driver == "gelsy" else min(m, n)
    shape = (*batch, n, B.shape[-1])
    return [
        (shape, A.dtype, _BESIDE_ROOM(shape, A.dtype.itemsize, (A,))), (batch, dtypes.int64), ((*batch, values), A.dtype.to_real()),
    ]  # fmt: skip


def _least_squares_of_one(x: Any, y: Any, rcond: float, driver: str) -> Any:
    """What scipy's `lstsq` returns. LAPACK has no answer where something is not finite, and says so on the terminal."""
    if np.isnan(x).any() or np.isnan(y).any():
        raise LinAlgError("torch.linalg.lstsq: the input must not contain NaNs")
    if not np.isfinite(x).all():
        if driver != "gelsy":
            raise LinAlgError(
                "torch.linalg.lstsq: The least squares solution could not be computed because the input matrix does not have "
                "full rank: it holds an infinity"
            )
        return np.zeros((x.shape[1], y.shape[1]), x.dtype), None, 0, None
    finite = np.isfinite(y).all()
    if finite and driver == "gelsy" and x.shape[0] >= x.shape[1]:
        made, rank = _complete_orthogonal(x, y, rcond)
        return made[: x.shape[1]], None, rank, None
    made = _routines.of_scipy("lstsq")(
        x, y if finite else np.zeros_like(y), cond=rcond, lapack_driver="gelsd" if driver == "gels" else driver, check_finite=False
    )
    return made if finite else (np.full_like(made[0], np.nan), *made[1:])


def _by_reflectors(a: Any, b: Any, rcond: float) -> Any:
    """The solutions for many small matrices of full rank beyond doubt; None for others.

    Reflectors of a matrix and its right-hand sides together leave the triangle and what it is to be solved for.
    """
    m, n = a.shape[-2:]
    if not (0 < n <= min(m, matrices_by_rows.MOST) and b.size) or prod(a.shape[:-2]) < matrices_by_rows.FROM:
        return None
    if not reflectors.takes(a) or not _lapack.all_finite(a) or not _lapack.all_finite(b):
        return None
    _, r = reflectors.qr(np.concatenate([a, b], -1), "r")
    top, right = np.ascontiguousarray(r[..., :n, :n]), np.ascontiguousarray(r[..., :n, n:])
    inverse = _lapack.inverse_now(top)
    if inverse is None:
        return None
    condition = np.abs(top).sum(-2).max(-1) * np.abs(inverse).sum(-2).max(-1)
    # Of the norm of order 2 it is at most n times that.
    return _lapack.solve_triangular(top, right, True, False) if (2 * n * rcond * condition < 1).all() else None


def _complete_orthogonal(x: Any, y: Any, rcond: float) -> tuple[Any, int]:
    """Solutions, in the first rows of memory that lies by columns, and the rank, for no fewer equations than unknowns.

    Of many more equations for few unknowns reflectors leave those of a triangle, which has the solutions and singular values of all,
    as exactly: LAPACK exchanges columns of all rows one by one.
    """
    (m, n), width, char = x.shape, y.shape[1], x.dtype.char
    is_tall = x.size >= TALL_FROM and n <= NARROW and m >= 2 * (n + width) and 2 * width <= n + 2
    if is_tall:
        x, y = _triangle_of(x, y)
    room = _room_of_gelsy(len(x), n, width, char)
    _, made, _, rank, info = _lapack.routine("gelsy", x)(x, y, np.zeros((n, 1), np.int32), rcond, room)
    if info:
        raise LinAlgError(f"torch.linalg.lstsq: LAPACK's gelsy refused its argument {-info}")
    if is_tall:
        made, first_rows = np.empty((width, m), made.dtype).T, made
        made[:n] = first_rows
    return made, rank


TALL_FROM = 1 << 13  # numbers of a matrix
NARROW = 32  # unknowns; of more the triangle takes as long as the exchanges


def _triangle_of(x: Any, y: Any) -> tuple[Any, Any]:
    """``Q.mH @ x`` and ``Q.mH @ y`` for a Q that makes the first a triangle, without the rows in which that is 0."""
    (m, n), width = x.shape, y.shape[1]
    both = np.empty((n + width, m), x.dtype)
    for part, of in ((both[:n], x.T), (both[n:], y.T)):
        if not move.into(part, of):
            part[...] = of
    packed, *_ = _lapack.routine("geqrf", x)(both.T, lwork=_lapack.QR_BLOCK * (n + width), overwrite_a=1)
    r = np.triu(packed[: n + width])
    return r[:n, :n], r[:n, n:]


@functools.lru_cache(256)
def _room_of_gelsy(m: int, n: int, width: int, char: str) -> int:
    work, _ = _lapack.routine("gelsy_lwork", np.empty(0, char))(m, n, width, float(np.finfo(char).eps))
    return int(work.real)


@least_squares.vjp
def _least_squares_vjp(grad, A, B):
    inverse = _pinv(A, None, None, None, False)
    of_inverse = matmul(grad[0], adjoint(B))
    return lambda: _pseudo_inverse_vjp(of_inverse, A, inverse)[0], lambda: matmul(adjoint(inverse), grad[0])


DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@composite(
    surface=BOTH, namespace="linalg", autocast=("float32", None), samples="x(4, 2), x(4, 3); sq(3), x(3, 1)",
    reads_parts=lambda input, b, rcond, driver: driver not in (None, "gelsy"),  # of the others residuals have a gradient
)
def lstsq(input, b, rcond: float | None = None, *, driver=None):
    """``X`` that minimises ``|input @ X - b|``: ``(*, m, n), (*, m, k) -> (*, n, k)``.

    Args:
        rcond: singular values up to this share of the largest count as 0; eps times the larger size by default.
        driver: the LAPACK routine: 'gels' (full rank), 'gelsy' (default), 'gelsd' or 'gelss'.
    Returns: ``(solution, residuals, rank, singular_values)``, the last three empty where the driver does not
        find them.

    >>> times = fb.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> fb.linalg.lstsq(times, fb.tensor([[1.0], [3.0], [5.0]])).solution.round(decimals=4)
    tensor([[1.],
            [2.]])
    """
    name = "torch.linalg.lstsq"
    check_matrix(name, input)
    check_floating(name, input, b)
    driver = driver or "gelsy"
    if driver not in DRIVERS:
        raise RuntimeError(f"{name}: parameter `driver` should be one of {DRIVERS}, got {driver!r}")
    vector = is_vector(input, b) if b.ndim else False
    B = b.unsqueeze(-1) if vector else b
    if not b.ndim or B.ndim < 2 or input.shape[-2] != B.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-2)\n{describe(input=input, b=b)}")
    A, B = lined_up(input, B)
    limit = float(np.finfo(A._array.dtype).eps) * max(A.shape[-2:]) if rcond is None else float(rcond)
    solution, rank, values = least_squares(A, B, limit, driver)
    residuals = solution.reshape(-1)[:0]  # empty, but with the history of the solution
    residuals = residuals.real if residuals.is_complex() else residuals
    if driver != "gelsy" and A.shape[-2] > A.shape[-1] and bool((rank == A.shape[-1]).all()):
        off = matmul(A, solution) - B
        residuals = (off * off.conj()).real.sum(-2) if off.is_complex() else (off * off).sum(-2)
    if driver == "gels":
        rank = rank.new_zeros((0,))
    if driver in ("gels", "gelsy"):
        values = values.new_zeros((0,))
    return LeastSquares((solution.squeeze(-1) if vector else solution, residuals, rank, values.detach()))


@lstsq.plan(tensors=("input", "b"), returns=LeastSquares)
def _plan_of_lstsq(a, y, rcond, driver):
    """One system of finite numbers."""
    if driver is not None and driver != "gelsy":
        return None
    if not _lapack.is_plain(a) or a.ndim != 2 or y.dtype is not a.dtype or not y.size:
        return None
    (m, n), vector = a.shape, y.ndim == 1
    if m < n or y.ndim > 2 or y.shape[0] != m or not _lapack.all_finite(a) or not _lapack.all_finite(y):
        return None
    limit = float(np.finfo(a.dtype).eps) * m if rcond is None else float(rcond)
    real = a.dtype.char.lower()
    made, rank = _complete_orthogonal(a, y[:, None] if vector else y, limit)
    return made[:n, 0] if vector else made[:n], np.empty(0, real), np.array(rank), np.empty(0, real)

