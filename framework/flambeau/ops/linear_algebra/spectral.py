"""Eigenvalues and singular values, with their vectors.

Derivatives follow the adjoint rules collected by Giles 2008, "An extended collection of matrix derivative results", and by
Boeddeker et al. 2017, arXiv:1701.00392, for complex matrices. They are Tensor expressions, so they differentiate again.
"""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .._batching import leading
from .._results import return_type
from .._spec import (
    COLUMNS,
    FUNCTION,
    METHOD,
    OPS,
    OUT,
    ROWS,
    check_room,
    composite,
    host_only,
    need_int,
    primitive,
)
from . import _lapack
from ._lapack import check_floating, check_matrix, check_square
from ._matrices import absent, adjoint, diagonal, diagonal_matrix, identity_like, matmul, needs_vectors
from .decompose import qr_of
from .solve import solve_triangle

BOTH = FUNCTION | OUT
Eig = return_type("linalg_eig", ("eigenvalues", "eigenvectors"))
Eigh = return_type("linalg_eigh", ("eigenvalues", "eigenvectors"))
Svd = return_type("linalg_svd", ("U", "S", "Vh"))
OldSvd = return_type("svd", ("U", "S", "V"))


# -- eigenvalues of Hermitian matrices -----------------------------------------------------------------------------------------


@primitive(surface=0, memory=(ROWS, COLUMNS), samples="of linalg.eigh", public_name="linalg.eigh", batch_rule=leading)
def eigh_of(A, uplo):
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices."""


eigh_of.shown_as("LinalgEighBackward0", eigenvalues="out0", eigenvectors="out1")


eigh_of.in_pieces("...__->..._,...__")


@eigh_of.kernel
def _eigh(a, uplo):
    return _lapack.eigh("linalg.eigh", a, uplo, True)


@eigh_of.shape
def _eigh_shape(A, uplo):
    return [(A.shape[:-1], A.dtype.to_real()), (A.shape, A.dtype)]


@eigh_of.vjp
def _eigh_vjp(grad, out0, out1):
    gl, gv = grad
    V = out1
    if absent(gv):
        return (matmul(V * gl.unsqueeze(-2), adjoint(V)),)
    rotation = matmul(adjoint(V), gv)
    _check_phase("linalg_eigh_backward", "eigenvectors", diagonal(rotation), gv)
    inner = rotation / _gaps(out0) + diagonal_matrix(gl - diagonal(rotation).real if rotation.is_complex() else gl - diagonal(rotation))
    return (matmul(V, matmul(inner.to(V.dtype), adjoint(V))),)


def _gaps(values: Tensor) -> Tensor:
    """``values[j] - values[i]`` at (i, j), and 1 on the diagonal."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    return gaps + identity_like(gaps)


def _check_phase(name: str, what: str, along: Tensor, grad: Tensor) -> None:
    """Complex vectors are given up to a phase; a loss that depends on it has no derivative. Raises: RuntimeError."""
    if not along.is_complex() or along._lacks_values or not along.numel():
        return
    if along.detach().imag.abs().max() > 1e-2 + 1e-2 * grad.detach().abs().max():
        raise RuntimeError(
            f"{name}: The {what} in the complex case are specified up to multiplication by e^{{i phi}}. "
            "The specified loss function depends on this quantity, so it is ill-defined."
        )


def _check_uplo(name: str, A: Any, UPLO: str) -> str:
    check_square(name, A)
    uplo = str(UPLO).upper()
    if uplo not in ("L", "U"):
        raise RuntimeError(f"{name}: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return uplo


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_eigh", autocast=("float32", None), samples="sym(3); sym(2, 3), 'U'", exact_out=True,
)
def eigh(input, UPLO="L"):
    """Eigenvalues, ascending, and eigenvectors (columns) of Hermitian matrices: ``(*, n, n) -> (*, n), (*, n, n)``.

    The eigenvalues are real. Vectors are fixed up to a sign (or phase), so that their gradient means something only
    for a function that does not depend on it.

    Args:
        UPLO: 'L' or 'U', the triangle that is read; the other is not looked at.
    """
    return Eigh(eigh_of(input, _check_uplo("linalg.eigh", input, UPLO)))


eigh.in_pieces("...__->..._,...__")


eigh.plan(_lapack.on_matrices(lambda a, UPLO: _lapack.eigh_now(a, UPLO, True), square=True, order=(ROWS, COLUMNS)), returns=Eigh)


@primitive(surface=0, memory=(ROWS,), samples="of linalg.eigvalsh", public_name="linalg.eigvalsh", batch_rule=leading)
def eigvalsh_of(A, uplo):
    """Eigenvalues, ascending, of Hermitian matrices."""


eigvalsh_of.in_pieces("...__->..._")


@eigvalsh_of.kernel
def _eigvalsh(a, uplo):
    return _lapack.eigh("linalg.eigvalsh", a, uplo, False)


@eigvalsh_of.shape
def _eigvalsh_shape(A, uplo):
    return A.shape[:-1], A.dtype.to_real()


@eigvalsh_of.vjp
def _eigvalsh_vjp(grad, A, uplo):
    V = eigh_of(A, uplo)[1]
    return (matmul(V * grad.unsqueeze(-2), adjoint(V)),)


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_eigvalsh", autocast=("float32", None), reads_parts=True,
    samples="sym(3); sym(2, 3), 'U'",
    exact_out=True,
)
def eigvalsh(input, UPLO="L"):
    """Eigenvalues, ascending and real, of Hermitian matrices: ``(*, n, n) -> (*, n)``; see `linalg.eigh` for `UPLO`."""
    uplo = _check_uplo("linalg.eigvalsh", input, UPLO)
    return eigh_of(input, uplo)[0] if needs_vectors(input) else eigvalsh_of(input, uplo)


eigvalsh.in_pieces("...__->..._")


eigvalsh.plan(_lapack.on_matrices(lambda a, UPLO: _lapack.eigh_now(a, UPLO, False), square=True, order=ROWS))


# -- eigenvalues of any square matrix ------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(ROWS, COLUMNS), samples="of linalg.eig", public_name="linalg.eig", batch_rule=leading)
def eig_of(A):
    """Eigenvalues and eigenvectors of square matrices, complex."""


eig_of.in_pieces("...__->..._,...__")


eig_of.shown_as("LinalgEigBackward0", hides="A_dtype", eigenvalues="out0", eigenvectors="out1")


@eig_of.kernel
def _eig(a):
    return _lapack.eig("torch.linalg.eig", a, True)


@eig_of.shape
def _eig_shape(A):
    return [(A.shape[:-1], A.dtype.to_complex()), (A.shape, A.dtype.to_complex())]


@eig_of.vjp
def _eig_vjp(grad, out0, out1, A_dtype):
    gl, gv = grad
    V, Vh = out1, adjoint(out1)
    inner: Any = diagonal_matrix(gl)
    if not absent(gv):
        rotation = matmul(Vh, gv)
        _check_phase("linalg_eig_backward", "eigenvectors", diagonal(rotation), gv)
        # Eigenvectors have length 1: what would lengthen them is taken out.
        rotation = rotation - matmul(Vh, V * diagonal(rotation).real.unsqueeze(-2))
        rotation = rotation / _gaps(out0).conj()
        inner = rotation - diagonal_matrix(diagonal(rotation)) + inner
    made = OPS["linalg.solve"].function(Vh, matmul(inner, Vh))
    return (made if A_dtype.is_complex else made.real,)


@composite(surface=BOTH, namespace="linalg", autocast=("float32", None), samples="sq(3); sq(2, 3)")
def eig(input):
    """Eigenvalues and eigenvectors (columns, of length 1) of square matrices, always complex.

    ``(*, n, n) -> (*, n), (*, n, n)``, in no particular order. For symmetric matrices see `linalg.eigh`.
    """
    check_square("linalg.eig", input)
    return Eig(eig_of(input))


@primitive(surface=0, memory=(ROWS,), samples="of linalg.eigvals", public_name="linalg.eigvals", batch_rule=leading)
def eigvals_of(A):
    """Eigenvalues of square matrices, complex."""


eigvals_of.in_pieces("...__->..._")


@eigvals_of.kernel
def _eigvals(a):
    return _lapack.eig("torch.linalg.eigvals", a, False)


@eigvals_of.shape
def _eigvals_shape(A):
    return A.shape[:-1], A.dtype.to_complex()


@eigvals_of.vjp
def _eigvals_vjp(grad, A):
    Vh = adjoint(eig_of(A)[1])
    made = OPS["linalg.solve"].function(Vh, matmul(diagonal_matrix(grad), Vh))
    return (made if A.dtype.is_complex else made.real,)


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_eigvals", autocast=("float32", None), reads_parts=True,
    samples="sq(3); sq(2, 3)",
)
def eigvals(input):
    """Eigenvalues of square matrices, always complex, in no particular order."""
    check_square("linalg.eigvals", input)
    return eig_of(input)[0] if needs_vectors(input) else eigvals_of(input)


# -- singular values -------------------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(COLUMNS, ROWS, COLUMNS), samples="of linalg.svd", public_name="linalg.svd", batch_rule=leading)
def svd_of(A, full_matrices):
    """``U, S, Vh`` with ``A == U @ diag(S) @ Vh``."""


svd_of.shown_as(
    "LinalgSvdBackward0", U="out0", S="out1", Vh="out2", S_sym_argsize_minus_1=lambda saved: saved["out1"].shape[-1],
)  # fmt: skip


svd_of.in_pieces("...__->...__,..._,...__")


@svd_of.kernel
def _svd(a, full_matrices):
    u, s, vh = _lapack.svd("linalg.svd", a, full_matrices, True)
    return u, s, vh


@svd_of.shape
def _svd_shape(A, full_matrices):
    (*batch, m, n) = A.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return [((*batch, m, rows), A.dtype), ((*batch, k), A.dtype.to_real()), ((*batch, columns, n), A.dtype)]


@svd_of.vjp
def _svd_vjp(grad, out0, out1, out2):
    gu, gs, gvh = grad
    S, k = out1, out1.shape[-1]
    U, Vh = out0[..., :, :k], out2[..., :k, :]
    m, n = U.shape[-2], Vh.shape[-1]
    no_u, no_v = absent(gu), absent(gvh)
    if no_u and no_v:
        return (matmul(U * gs.unsqueeze(-2), Vh),)
    gu, gvh = gu[..., :, :k], gvh[..., :k, :]
    # What is left of U^H gU and V^H gV after rotations that change nothing: their skew-Hermitian parts.
    left = None if no_u else matmul(adjoint(U), gu)
    right = None if no_v else matmul(Vh, adjoint(gvh))
    both = [diagonal(x) for x in (left, right) if x is not None]
    _check_phase("svd_backward", "singular vectors", both[0] if len(both) == 1 else both[0] + both[1], gu)
    squares = S * S
    gaps = _gaps(squares)
    inner: Any = diagonal_matrix(gs).to(U.dtype)
    if left is not None:
        inner = inner + (left - adjoint(left)) / gaps * S.unsqueeze(-2)
    if right is not None:
        inner = inner + (right - adjoint(right)) / gaps * S.unsqueeze(-1)
    if U.is_complex() and left is not None:
        # Those skew parts have an imaginary diagonal, which the phases of both sides share: it belongs to either.
        inner = _phase_mended(inner, left, right, S)
    made = matmul(U, inner)
    tall = m > k and not no_u
    if tall:
        off = gu / S.unsqueeze(-2)
        made = made + off - matmul(U, matmul(adjoint(U), off))
    made = matmul(made, Vh)
    if n > k and not no_v:
        off = gvh / S.unsqueeze(-1)
        made = made + matmul(U, off - matmul(matmul(off, adjoint(Vh)), Vh))
    return (made,)


def _phase_mended(inner: Tensor, left: Tensor, right: Tensor | None, S: Tensor) -> Tensor:
    """`inner` with the diagonal that the gauge leaves: i times the imaginary part of U^H gU's, over S."""
    spurious = diagonal(left - adjoint(left)) * S
    if right is not None:
        spurious = spurious + diagonal(right - adjoint(right)) * S
    turn = (diagonal(left) - diagonal(left).conj()) / (2 * S)
    return inner + diagonal_matrix(turn - spurious)


@composite(surface=BOTH, namespace="linalg", operator="linalg_svd", autocast=("float32", None), samples="sq(3); x(2, 4, 3), False")
def svd(A, full_matrices=True, *, driver=None):
    """``U, S, Vh`` with ``A == U @ diag(S) @ Vh``, singular values descending.

    Args:
        full_matrices: for ``(*, m, n)`` and k the smaller size: U ``(*, m, m)`` and Vh ``(*, n, n)``, rather than
            ``(*, m, k)`` and ``(*, k, n)``.
        driver: a cuSOLVER method; for CUDA matrices only.
    Vectors are fixed up to a sign (or phase), so that their gradient means something only for a function that does
    not depend on it.

    >>> fb.linalg.svd(fb.tensor([[0.0, 2.0], [3.0, 0.0]])).S
    tensor([3., 2.])
    """
    check_matrix("linalg.svd", A)
    _check_driver("linalg.svd", driver)
    return Svd(svd_of(A, bool(full_matrices)))


svd.in_pieces("...__->...__,..._,...__")


def _svd_now(a: Any, full_matrices: Any, driver: Any) -> Any:
    return _lapack.svd("linalg.svd", a, bool(full_matrices), True) if driver is None else None


svd.plan(_lapack.on_matrices(_svd_now, order=(COLUMNS, ROWS, COLUMNS)), returns=Svd)


def _check_driver(name: str, driver: Any) -> None:
    if driver is not None:
        raise RuntimeError(f"{name}: keyword argument `driver=` is only supported on CUDA inputs, got driver={driver!r}")


@primitive(surface=0, memory=(ROWS,), samples="of linalg.svdvals", public_name="linalg.svdvals", batch_rule=leading)
def svdvals_of(A):
    """Singular values, descending."""


svdvals_of.in_pieces("...__->..._")


@svdvals_of.kernel
def _svdvals(a):
    return _lapack.svd("linalg.svd", a, False, False)


@svdvals_of.shape
def _svdvals_shape(A):
    return (*A.shape[:-2], min(A.shape[-2:])), A.dtype.to_real()


@svdvals_of.vjp
def _svdvals_vjp(grad, A):
    U, _, Vh = svd_of(A, False)
    return (matmul(U * grad.unsqueeze(-2), Vh),)


def singular_values(A: Tensor) -> Tensor:
    return svd_of(A, False)[1] if needs_vectors(A) else svdvals_of(A)


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_svdvals", autocast=("float32", None), reads_parts=True,
    samples="sq(3); x(2, 4, 3)", exact_out=True,
)
def svdvals(A, *, driver=None):
    """Singular values, descending: ``(*, m, n) -> (*, min(m, n))``.

    Args:
        driver: a cuSOLVER method; for CUDA matrices only.
    """
    check_matrix("linalg.svdvals", A)
    _check_driver("linalg.svdvals", driver)
    return singular_values(A)


svdvals.in_pieces("...__->..._")


svdvals.plan(
    _lapack.on_matrices(lambda a, driver: _lapack.svd("linalg.svd", a, False, False) if driver is None else None, order=ROWS)
)


def _old_svd(input, some=True, compute_uv=True):
    """``U, S, V`` with ``input == U @ diag(S) @ V.mH``; see `linalg.svd`, which returns ``V.mH``.

    Args:
        some: U and V are only as wide as S is long.
        compute_uv: False gives zeros for U and V.
    """
    check_matrix("linalg.svd", input)
    if not compute_uv:
        (*batch, m, n) = input.shape
        return OldSvd((input.new_zeros((*batch, m, m)), singular_values(input), input.new_zeros((*batch, n, n))))
    U, S, Vh = svd.function(input, not some)
    return OldSvd((U, S, adjoint(Vh)))


_old_svd.__name__ = "svd"
composite(surface=FUNCTION | METHOD | OUT, autocast=("float32", None), samples="sq(3); x(4, 3)", exact_out=True)(_old_svd).in_pieces(
    "...__->...__,..._,...__"
)


# -- low rank --------------------------------------------------------------------------------------------------------------------


@composite(samples="x(6, 4), 2", random=True)
def svd_lowrank(A, q=6, niter=2, M=None):
    """``U, S, V`` of about the `q` largest singular values of `A`, by random projection and `niter` power iterations.

    Args:
        M: taken off `A` first, ``(1, n)`` or of the shape of `A`; or None.
    The default generator draws the projection.
    Source: Halko, Martinsson and Tropp 2009, "Finding structure with randomness", arXiv:0909.4061, algorithm
        5.1.
    """
    host_only("svd_lowrank", A)
    check_floating("svd_lowrank", A)
    # A history holds what each iteration makes; of 2**63 iterations it would eat all memory before anything said so.
    check_room("svd_lowrank", (max(0, need_int("svd_lowrank", "niter", niter)), 2, *A.shape[:-2], sum(A.shape[-2:])), 4)
    if M is not None:
        A = A - M.expand(A.shape)
    m, n = A.shape[-2:]
    wide = m < n
    X = adjoint(A) if wide else A
    Q = _range_of(X, q, niter)
    U, S, Vh = svd_of(matmul(adjoint(Q), X), False)
    U, V = matmul(Q, U), adjoint(Vh)
    return (V, S, U) if wide else (U, S, V)


def _range_of(A: Tensor, q: int, niter: int) -> Tensor:
    from ..sampling.random import FUNCTIONS

    start = FUNCTIONS["randn"](A.shape[-1], q, dtype=A.dtype, device=A.device)  # pyright: ignore[reportCallIssue]  # the arguments rule the other types out
    Q = qr_of(matmul(A, start), "reduced")[0]
    for _ in range(niter):
        Q = qr_of(matmul(adjoint(A), Q), "reduced")[0]
        Q = qr_of(matmul(A, Q), "reduced")[0]
    return Q


@composite(samples="x(6, 4), 2", random=True)
def pca_lowrank(A, q: int | None = None, center=True, niter=2):
    """Principal components, approximately: `svd_lowrank` of `A` with the mean of each column taken off if `center`.

    Args:
        q: how many components; 6, or fewer for a smaller `A`, by default.
        niter: power iterations, as for `svd_lowrank`.
    """
    check_matrix("pca_lowrank", A)
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"pca_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


@composite(samples="spd(9), 1", random=True)
def lobpcg(
    A, k: int | None = None, B=None, X=None, n: int | None = None, iK=None, niter: int | None = None, tol: float | None = None,
    largest: bool | None = None, method: str | None = None, tracker=None, ortho_iparams=None, ortho_fparams=None, ortho_bparams=None
):
    """The `k` largest (or smallest) eigenvalues of symmetric positive `A`, relative to `B`, and their vectors.

    All eigenvalues are computed and `k` are kept, which is at least as accurate as iterating.

    Args:
        k: how many; `n`, or as many as `X` has columns, or 1, by default. ``3 k`` is at most the size of `A`.
        X: a first guess, of which only the number of columns matters.
        largest: True by default.
        iK, niter, tol, method, ortho_iparams, ortho_fparams, ortho_bparams: steer an iteration, so they
            change nothing.
    Raises: NotImplementedError for a `tracker`, which would watch that iteration; ValueError for too large a `k`.
    """
    if tracker is not None:
        raise NotImplementedError("lobpcg(): tracker= is not built: there is no iteration to watch")
    check_square("lobpcg", A)
    k = n if k is None and n is not None else k
    k = (1 if X is None else X.shape[-1]) if k is None else k
    if A.shape[-1] < 3 * k:
        raise ValueError(f"lobpcg(): A has {A.shape[-1]} rows; they must be at least 3 times the {k} eigenpairs asked for")
    if B is not None:
        half = OPS["linalg.cholesky"].function(B)
        A = solve_triangle(half, adjoint(solve_triangle(half, A, False)), False)  # half^-1 A half^-H
    values, vectors = eigh_of(A, "L")
    take = slice(-k, None) if largest is None or largest else slice(0, k)
    values, vectors = values[..., take], vectors[..., :, take]
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values, vectors if B is None else solve_triangle(adjoint(half), vectors, True)  # pyright: ignore[reportPossiblyUnboundVariable]  # bound where it is read
