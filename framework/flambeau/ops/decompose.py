"""Factorizations of matrices: Cholesky, LU, LDL, QR, eigenvalues, singular values.

Derivatives follow the adjoint rules collected by Giles 2008, "An extended collection of matrix derivative results", and by
Boeddeker et al. 2017, arXiv:1701.00392, for complex matrices. They are Tensor expressions, so they differentiate again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _state, dtypes
from ..tensor import Tensor, wrap
from . import _lapack
from ._derive import return_type
from ._lapack import check_floating, check_matrix, check_square, raise_singular
from ._spec import FUNCTION, METHOD, OPS, OUT, composite, primitive
from .solve import adjoint, identity_like, lined_up, matmul, solve_triangle, triangle

BOTH = FUNCTION | OUT
CholeskyInfo = return_type("linalg_cholesky_ex", ("L", "info"))
Eig = return_type("linalg_eig", ("eigenvalues", "eigenvectors"))
Eigh = return_type("linalg_eigh", ("eigenvalues", "eigenvectors"))
Svd = return_type("linalg_svd", ("U", "S", "Vh"))
OldSvd = return_type("svd", ("U", "S", "V"))
Qr = return_type("linalg_qr", ("Q", "R"))
OldQr = return_type("qr", ("Q", "R"))
Geqrf = return_type("geqrf", ("a", "tau"))
Lu = return_type("linalg_lu", ("P", "L", "U"))
LuUnpacked = return_type("lu_unpack", ("P", "L", "U"))
LuFactor = return_type("linalg_lu_factor", ("LU", "pivots"))
LuFactorInfo = return_type("linalg_lu_factor_ex", ("LU", "pivots", "info"))
Ldl = return_type("linalg_ldl_factor", ("LD", "pivots"))
LdlInfo = return_type("linalg_ldl_factor_ex", ("LD", "pivots", "info"))


def absent(grad: Tensor) -> bool:
    """Whether `grad` is the constant zero that stands for an output nobody used."""
    return grad._n is None and not grad._a.any()


def diagonal(x: Tensor) -> Tensor:
    return OPS["diagonal"].function(x, 0, -2, -1)


def diagonal_matrix(x: Tensor) -> Tensor:
    return OPS["diag_embed"].function(x)


def _real_dtype(A: Tensor) -> Any:
    return A.dtype.to_real()


# -- Cholesky --------------------------------------------------------------------------------------------------------------

NOT_POSITIVE = "The factorization could not be completed because the input is not positive-definite (the leading minor of order {} is not positive-definite)."


@primitive(surface=0)
def cholesky_of(A, upper):
    """The Cholesky factors, and for each the order of the first leading minor that is not positive, or 0."""


cholesky_of.node_class.title = "LinalgCholeskyExBackward0"
cholesky_of.kernel(_lapack.cholesky)


@cholesky_of.shape
def _cholesky_shape(A, upper):
    return [(A.shape, A.dtype), (A.shape[:-2], dtypes.int32)]


@cholesky_of.vjp
def _cholesky_vjp(grad, out0, upper):
    L, g = (adjoint(out0), adjoint(grad[0])) if upper else (out0, grad[0])
    phi = triangle(matmul(adjoint(L), g), False)
    phi = phi - diagonal_matrix(diagonal(phi)) * 0.5
    # L^-H phi L^-1, then its Hermitian part: only a triangle of the input counts.
    inner = solve_triangle(adjoint(L), solve_triangle(L, phi, False, left=False), True)
    return ((inner + adjoint(inner)) * 0.5,)


@composite(surface=BOTH, namespace="linalg")
def cholesky_ex(input, *, upper=False, check_errors=False):
    """The Cholesky factor and, instead of an error, ``info``: the order of the first minor that is not positive."""
    check_square("linalg.cholesky", input)
    made = cholesky_of(input, bool(upper))
    if check_errors and not input.is_meta:
        raise_singular("linalg.cholesky_ex", made[1]._a, NOT_POSITIVE)
    return CholeskyInfo(made)


def _cholesky(name: str, input: Any, upper: bool) -> Tensor:
    check_square(name, input)
    made, info = cholesky_of(input, bool(upper))
    if not input.is_meta:
        raise_singular(name, info._a, NOT_POSITIVE)
    return made


@composite(surface=BOTH, namespace="linalg")
def cholesky(input, *, upper=False):
    """The lower triangular ``L`` with ``input == L @ L.mH``, or its adjoint if `upper`.

    Raises: LinAlgError unless `input`, of which one triangle is read, is positive-definite.
    """
    return _cholesky("linalg.cholesky", input, upper)


def _old_cholesky(input, upper=False):
    """The lower triangular ``L`` with ``input == L @ L.mH``, or its adjoint if `upper`. Raises: LinAlgError."""
    if isinstance(input, Tensor) and input.ndim >= 2 and not input.numel():
        return input.clone()
    return _cholesky("cholesky", input, upper)


_old_cholesky.__name__ = "cholesky"
composite(surface=FUNCTION | METHOD | OUT)(_old_cholesky)


# -- eigenvalues of Hermitian matrices -----------------------------------------------------------------------------------------


@primitive(surface=0)
def eigh_of(A, uplo):
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices."""


eigh_of.node_class.title = "LinalgEighBackward0"


@eigh_of.kernel
def _eigh(a, uplo):
    return _lapack.eigh("linalg.eigh", a, uplo, True)


@eigh_of.shape
def _eigh_shape(A, uplo):
    return [(A.shape[:-1], _real_dtype(A)), (A.shape, A.dtype)]


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
    return gaps + wrap(np.eye(values.shape[-1], dtype=gaps._a.dtype))


def _check_phase(name: str, what: str, along: Tensor, grad: Tensor) -> None:
    """Complex vectors are given up to a phase; a loss that depends on it has no derivative. Raises: RuntimeError."""
    if not along.is_complex() or along.is_meta or not along.numel():
        return
    size, off = np.abs(grad._a).max(initial=0.0), np.abs(along._a.imag).max(initial=0.0)
    if off > 1e-2 + 1e-2 * size:
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


@composite(surface=BOTH, namespace="linalg")
def eigh(input, UPLO="L"):
    """Eigenvalues, ascending, and eigenvectors (columns) of Hermitian matrices, of which the triangle `UPLO` is read."""
    return Eigh(eigh_of(input, _check_uplo("linalg.eigh", input, UPLO)))


@primitive(surface=0)
def eigvalsh_of(A, uplo):
    """Eigenvalues, ascending, of Hermitian matrices."""


@eigvalsh_of.kernel
def _eigvalsh(a, uplo):
    return _lapack.eigh("linalg.eigvalsh", a, uplo, False)


@eigvalsh_of.shape
def _eigvalsh_shape(A, uplo):
    return A.shape[:-1], _real_dtype(A)


@composite(surface=BOTH, namespace="linalg")
def eigvalsh(input, UPLO="L"):
    """Eigenvalues, ascending, of Hermitian matrices, of which the triangle `UPLO` is read."""
    uplo = _check_uplo("linalg.eigvalsh", input, UPLO)
    return eigh_of(input, uplo)[0] if needs_vectors(input) else eigvalsh_of(input, uplo)


def needs_vectors(x: Tensor) -> bool:
    """Whether a derivative of `x` may be asked for, which takes more than the values of a factorization."""
    return _state.SLOW or x._n is not None and _state.grad_enabled()


# -- eigenvalues of any square matrix ------------------------------------------------------------------------------------------


@primitive(surface=0)
def eig_of(A):
    """Eigenvalues and eigenvectors of square matrices, complex."""


eig_of.node_class.title = "LinalgEigBackward0"


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


@composite(surface=BOTH, namespace="linalg")
def eig(input):
    """Eigenvalues and eigenvectors (columns, of length 1) of square matrices, always complex."""
    check_square("linalg.eig", input)
    return Eig(eig_of(input))


@primitive(surface=0)
def eigvals_of(A):
    """Eigenvalues of square matrices, complex."""


@eigvals_of.kernel
def _eigvals(a):
    return _lapack.eig("torch.linalg.eigvals", a, False)


@eigvals_of.shape
def _eigvals_shape(A):
    return A.shape[:-1], A.dtype.to_complex()


@composite(surface=BOTH, namespace="linalg")
def eigvals(input):
    """Eigenvalues of square matrices, always complex, in no particular order."""
    check_square("linalg.eigvals", input)
    return eig_of(input)[0] if needs_vectors(input) else eigvals_of(input)


# -- singular values -------------------------------------------------------------------------------------------------------


@primitive(surface=0)
def svd_of(A, full_matrices):
    """``U, S, Vh`` with ``A == U @ diag(S) @ Vh``."""


svd_of.node_class.title = "LinalgSvdBackward0"


@svd_of.kernel
def _svd(a, full_matrices):
    u, s, vh = _lapack.svd("linalg.svd", a, full_matrices, True)
    return u, s, vh


@svd_of.shape
def _svd_shape(A, full_matrices):
    (*batch, m, n) = A.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    return [((*batch, m, rows), A.dtype), ((*batch, k), _real_dtype(A)), ((*batch, columns, n), A.dtype)]


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


@composite(surface=BOTH, namespace="linalg")
def svd(A, full_matrices=True, *, driver=None):
    """``U, S, Vh`` with ``A == U @ diag(S) @ Vh``, singular values descending.

    Args:
        full_matrices: U and Vh are square, not only as wide as S is long.
        driver: a cuSOLVER method; for CUDA matrices only.
    """
    check_matrix("linalg.svd", A)
    _check_driver("linalg.svd", driver)
    return Svd(svd_of(A, bool(full_matrices)))


def _check_driver(name: str, driver: Any) -> None:
    if driver is not None:
        raise RuntimeError(f"{name}: keyword argument `driver=` is only supported on CUDA inputs, got driver={driver!r}")


@primitive(surface=0)
def svdvals_of(A):
    """Singular values, descending."""


@svdvals_of.kernel
def _svdvals(a):
    return _lapack.svd("linalg.svd", a, False, False)


@svdvals_of.shape
def _svdvals_shape(A):
    return (*A.shape[:-2], min(A.shape[-2:])), _real_dtype(A)


def singular_values(A: Tensor) -> Tensor:
    return svd_of(A, False)[1] if needs_vectors(A) else svdvals_of(A)


@composite(surface=BOTH, namespace="linalg")
def svdvals(A, *, driver=None):
    """Singular values, descending."""
    check_matrix("linalg.svdvals", A)
    _check_driver("linalg.svdvals", driver)
    return singular_values(A)


def _old_svd(input, some=True, compute_uv=True):
    """``U, S, V`` with ``input == U @ diag(S) @ V.mH``; zeros for U and V unless `compute_uv`."""
    check_matrix("linalg.svd", input)
    if not compute_uv:
        (*batch, m, n) = input.shape
        return OldSvd((input.new_zeros((*batch, m, m)), singular_values(input), input.new_zeros((*batch, n, n))))
    U, S, Vh = svd_of(input, not some)
    return OldSvd((U, S, adjoint(Vh)))


_old_svd.__name__ = "svd"
composite(surface=FUNCTION | METHOD | OUT)(_old_svd)


# -- QR ----------------------------------------------------------------------------------------------------------------------


@primitive(surface=0)
def qr_of(A, mode):
    """``Q, R`` with ``A == Q @ R``, Q unitary and R upper triangular; mode 'r' leaves Q empty."""


qr_of.node_class.title = "LinalgQrBackward0"


@qr_of.kernel
def _qr(a, mode):
    if mode == "r":
        return np.zeros(0, a.dtype), np.linalg.qr(a, mode="r")
    q, r = np.linalg.qr(a, mode=mode)
    return q, r


@qr_of.shape
def _qr_shape(A, mode):
    (*batch, m, n) = A.shape
    k = min(m, n) if mode != "complete" else m
    return [((0,) if mode == "r" else (*batch, m, k), A.dtype), ((*batch, k, n), A.dtype)]


@qr_of.vjp
def _qr_vjp(grad, out0, out1, A_shape, mode):
    m, n = A_shape[-2:]
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced') if you are going to require gradients through Q.")
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    Q, R, gq, gr = out0, out1, grad[0], grad[1]
    if m >= n:
        return (_qr_tall(Q, R, gq, gr),)
    # [A1 A2] = Q [R1 R2]: the square part decides Q, and R2 = Q^H A2.
    R1, R2 = R[..., :, :m], R[..., :, m:]
    g2 = gr[..., :, m:]
    gq = gq + matmul(matmul(Q, R2), adjoint(g2))
    return (OPS["cat"].function([_qr_tall(Q, R1, gq, gr[..., :, :m]), matmul(Q, g2)], -1),)


def _qr_tall(Q: Tensor, R: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    inner = triangle(matmul(gr, adjoint(R)) - matmul(adjoint(Q), gq), True)
    along = diagonal(inner)
    inner = inner + adjoint(inner) - diagonal_matrix(along.real.to(inner.dtype) if inner.is_complex() else along)
    return solve_triangle(adjoint(R), gq + matmul(Q, inner), False, left=False)


def _qr_checked(A: Any, mode: str) -> Any:
    check_matrix("linalg.qr", A)
    if mode not in ("reduced", "r", "complete"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    return qr_of(A, mode)


@composite(surface=BOTH, namespace="linalg")
def qr(A, mode="reduced"):
    """``Q, R`` with ``A == Q @ R``.

    Args:
        mode: 'reduced' gives Q as many columns as the smaller size, 'complete' makes it square, 'r' leaves it empty.
    """
    return Qr(_qr_checked(A, mode))


def _old_qr(input, some=True):
    """``Q, R`` with ``input == Q @ R``; Q is square unless `some`."""
    return OldQr(_qr_checked(input, "reduced" if some else "complete"))


_old_qr.__name__ = "qr"
composite(surface=FUNCTION | METHOD | OUT)(_old_qr)


# -- Householder reflectors ------------------------------------------------------------------------------------------------------


@primitive(surface=0)
def geqrf_of(A):
    """QR as LAPACK packs it: R above, reflectors below the diagonal, and their factors."""


@geqrf_of.kernel
def _geqrf(a):
    packed, tau = np.linalg.qr(a, mode="raw")
    return packed.swapaxes(-1, -2), tau


@geqrf_of.shape
def _geqrf_shape(A):
    return [(A.shape, A.dtype), ((*A.shape[:-2], min(A.shape[-2:])), A.dtype)]


@geqrf_of.vjp
def _geqrf_vjp(grad):
    raise NotImplementedError("the derivative for 'geqrf' is not implemented; use linalg.qr")


@composite(surface=FUNCTION | METHOD | OUT)
def geqrf(input):
    """QR in LAPACK's packed form: R in the upper triangle, Householder vectors below it, and their factors `tau`."""
    check_matrix("geqrf", input)
    return Geqrf(geqrf_of(input))


def _reflectors(input: Tensor, tau: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The Householder vectors, as columns, and their factors."""
    k = tau.shape[-1]
    vectors = triangle(input[..., :, :k], False, strict=True) + identity_like(input[..., :, :k])
    return [(vectors[..., :, i : i + 1], tau[..., i].unsqueeze(-1).unsqueeze(-1)) for i in range(k)]


def _reflected(v: Tensor, t: Tensor, x: Tensor) -> Tensor:
    return x - matmul(t * v, matmul(adjoint(v), x))


def _householder(name: str, input: Any, tau: Any) -> Tensor:
    check_matrix(name, input)
    check_floating(name, input, tau)
    m, n = input.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], got {m} and {n}")
    if not tau.ndim or n < tau.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], got {n} and {tau.shape[-1] if tau.ndim else 'a 0-d tau'}")
    if tuple(tau.shape[:-1]) != tuple(input.shape[:-2]):
        raise RuntimeError(f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {tuple(tau.shape[:-1])} and {tuple(input.shape[:-2])}")
    made = identity_like(input)
    for v, t in reversed(_reflectors(input, tau)):
        made = _reflected(v, t, made)
    return made


@composite(surface=BOTH, namespace="linalg")
def householder_product(input, tau):
    """The first columns of the product of the reflectors ``1 - tau v v^H`` whose vectors are columns of `input`."""
    return _householder("torch.linalg.householder_product", input, tau)


@composite(surface=FUNCTION | METHOD | OUT)
def orgqr(input, tau):
    """`linalg.householder_product`."""
    return _householder("torch.linalg.householder_product", input, tau)


@composite(surface=FUNCTION | METHOD | OUT)
def ormqr(input, tau, other, left=True, transpose=False):
    """``Q @ other``, or ``other @ Q`` if not `left`, with the square Q of the reflectors, or its adjoint if `transpose`."""
    check_matrix("torch.ormqr", input)
    check_floating("torch.ormqr", input, tau, other)
    size = other.shape[-2 if left else -1] if other.ndim >= 2 else -1
    if size != input.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2], got {size} and {input.shape[-2]}")
    if tau.shape[-1] > size:
        raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] must be greater than or equal to tau.shape[-1], got {size} and {tau.shape[-1]}")
    if input.ndim - tau.ndim != 1 or input.ndim != other.ndim or input.shape[:-2] != other.shape[:-2]:
        raise RuntimeError(f"torch.ormqr: batch dimensions of input, tau and other must agree, got shapes {tuple(input.shape)}, {tuple(tau.shape)} and {tuple(other.shape)}")
    made = other if left else adjoint(other)
    # other @ Q is the adjoint of Q^H @ other^H.
    forward = transpose == left
    for v, t in _reflectors(input, tau) if forward else reversed(_reflectors(input, tau)):
        made = _reflected(v, t.conj() if forward else t, made)
    return made if left else adjoint(made)


# -- LU ------------------------------------------------------------------------------------------------------------------------


@primitive(surface=0)
def lu_of(A):
    """Packed LU factors, row exchanges (from 1) and the first zero pivot, or 0."""


lu_of.node_class.title = "LinalgLuFactorExBackward0"
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


def permutation(pivots: Tensor, rows: int, like: Tensor) -> Tensor:
    """The matrices ``P`` in ``A == P @ L @ U``, for row exchanges `pivots`."""
    order = _lapack.row_order(pivots._a, rows)
    made = np.zeros((*order.shape, rows), like._a.dtype)
    np.put_along_axis(made, order[..., None, :], 1, -2)
    return wrap(made)


def _check_pivot(name: str, A: Any, pivot: bool) -> None:
    check_matrix(name, A)
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")


@composite(surface=BOTH, namespace="linalg")
def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """The packed LU factorization, its row exchanges, and ``info``: the first zero on the diagonal of U, or 0."""
    _check_pivot("linalg.lu_factor", A, pivot)
    made = lu_of(A)
    if check_errors and not A.is_meta:
        raise_singular("torch.linalg.lu_factor_ex", made[2]._a, "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero.")
    return LuFactorInfo(made)


def _lu_factor(A: Any, pivot: bool) -> tuple[Tensor, Tensor]:
    _check_pivot("linalg.lu_factor", A, pivot)
    packed, pivots, info = lu_of(A)
    if not A.is_meta and info._a.any():
        bad = int(info._a.reshape(-1)[np.flatnonzero(info._a)[0]])
        raise RuntimeError(
            f"torch.linalg.lu_factor: U[{bad},{bad}] is zero and using it on lu_solve would result in a division by zero. "
            "If you still want to perform the factorization, consider calling linalg.lu_factor_ex(A, pivot)"
        )
    return packed, pivots


@composite(surface=BOTH, namespace="linalg")
def lu_factor(A, *, pivot=True):
    """The packed LU factorization and its row exchanges. Raises: RuntimeError for a zero on the diagonal of U."""
    return LuFactor(_lu_factor(A, pivot))


@composite(surface=BOTH, namespace="linalg")
def lu(A, *, pivot=True):
    """``P, L, U`` with ``A == P @ L @ U``."""
    _check_pivot("linalg.lu", A, pivot)
    packed, pivots, _ = lu_of(A)
    return Lu(_unpacked(packed, pivots))


def _unpacked(packed: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m, n = packed.shape[-2:]
    k = min(m, n)
    L = triangle(packed[..., :, :k], False, strict=True) + identity_like(packed[..., :, :k])
    return permutation(pivots, m, packed), L, triangle(packed[..., :k, :], True)


def _old_lu(A, pivot=True, get_infos=False):
    """The packed LU factorization and its row exchanges, and with `get_infos` the first zero pivots instead of errors."""
    if get_infos:
        _check_pivot("linalg.lu_factor", A, pivot)
        return return_type("_lu_with_info", ("LU", "pivots", "info"))(lu_of(A))
    return tuple(_lu_factor(A, pivot))


_old_lu.__name__ = "lu"
composite(surface=FUNCTION | METHOD | OUT)(_old_lu)


@composite(surface=FUNCTION | OUT)
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """``P, L, U`` of a packed factorization; what is not asked for is empty."""
    check_matrix("torch.lu_unpack", LU_data)
    if unpack_pivots and LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype, got {LU_pivots.dtype}")
    empty = LU_data.new_zeros((0,))
    P = permutation(LU_pivots, LU_data.shape[-2], LU_data) if unpack_pivots else empty
    if not unpack_data:
        return LuUnpacked((P, empty, empty))
    k = min(LU_data.shape[-2:])
    L = triangle(LU_data[..., :, :k], False, strict=True) + identity_like(LU_data[..., :, :k])
    return LuUnpacked((P, L, triangle(LU_data[..., :k, :], True)))


def _lu_solve(LU: Any, pivots: Any, B: Any, left: bool, transpose: bool) -> Tensor:
    check_square("linalg.lu_solve", LU, "LU")
    check_matrix("linalg.lu_solve", B)
    check_floating("linalg.lu_solve", LU, B)
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}")
    if B.shape[-2 if left else -1] != LU.shape[-1]:
        raise RuntimeError(f"linalg.lu_solve: Incompatible shapes of LU {tuple(LU.shape)} and B {tuple(B.shape)}")
    if not left:
        return adjoint(_lu_solve(LU, pivots, adjoint(B), True, not transpose))
    P = permutation(pivots, LU.shape[-2], LU)
    if not transpose:
        return solve_triangle(LU, solve_triangle(LU, matmul(P.mT, B), False, unitriangular=True), True)
    inner = solve_triangle(adjoint(LU), B, False)
    return matmul(P, solve_triangle(adjoint(LU), inner, True, unitriangular=True))


def _linalg_lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """``X`` with ``A @ X == B``, or ``X @ A == B`` if not `left`, for `A` given factorized; `adjoint` solves for ``A.mH``."""
    return _lu_solve(LU, pivots, B, left, adjoint)


def _old_lu_solve(b, LU_data, LU_pivots):
    """``X`` with ``A @ X == b`` for `A` given factorized."""
    return _lu_solve(LU_data, LU_pivots, b, True, False)


for _fn, _where, _surface in ((_linalg_lu_solve, "linalg", BOTH), (_old_lu_solve, "", FUNCTION | METHOD | OUT)):
    _fn.__name__ = "lu_solve"
    composite(surface=_surface, namespace=_where)(_fn)


# -- LDL -------------------------------------------------------------------------------------------------------------------------


@primitive(surface=0)
def ldl_of(A, hermitian):
    """Packed LDL factors, pivots and the first zero block of D, or 0; of the lower triangle."""


@ldl_of.kernel
def _ldl(a, hermitian):
    batch, n = a.shape[:-2], a.shape[-1]
    rule = _lapack.routine("hetrf" if hermitian and a.dtype.kind == "c" else "sytrf", a) if a.size else None
    packed, pivots, infos = [], [], []
    for (x,) in _lapack.each(a):
        ld, pivot, info = rule(x, lower=1) if rule else (x, np.zeros(0), 0)
        packed.append(np.tril(ld))
        pivots.append(pivot)
        infos.append(info)
    return tuple(
        _lapack.stacked(parts, batch, shape, d)
        for parts, shape, d in ((packed, (n, n), a.dtype), (pivots, (n,), np.int32), (infos, (), np.int32))
    )


@ldl_of.shape
def _ldl_shape(A, hermitian):
    return [(A.shape, A.dtype), (A.shape[:-1], dtypes.int32), (A.shape[:-2], dtypes.int32)]


@ldl_of.vjp
def _ldl_vjp(grad):
    raise NotImplementedError("the derivative for 'linalg_ldl_factor_ex' is not implemented")


@composite(surface=BOTH, namespace="linalg")
def ldl_factor_ex(input, *, hermitian=False, check_errors=False):
    """The packed LDL factorization of symmetric (or Hermitian) matrices, its pivots, and ``info`` instead of errors."""
    check_square("torch.linalg.ldl_factor_ex", input)
    made = ldl_of(input, bool(hermitian))
    if check_errors and not input.is_meta:
        raise_singular("torch.linalg.ldl_factor_ex", made[2]._a, "block {} of D is zero")
    return LdlInfo(made)


@composite(surface=BOTH, namespace="linalg")
def ldl_factor(input, *, hermitian=False):
    """The packed LDL factorization of symmetric (or Hermitian) matrices and its pivots. Raises: RuntimeError if singular."""
    check_square("torch.linalg.ldl_factor", input)
    packed, pivots, info = ldl_of(input, bool(hermitian))
    if not input.is_meta:
        raise_singular("torch.linalg.ldl_factor", info._a, "block {} of D is zero; use ldl_factor_ex to go on nevertheless")
    return Ldl((packed, pivots))


@primitive(surface=0, tensors=("LD", "pivots", "B"))
def ldl_solution(LD, pivots, B, hermitian):
    """``X`` with ``A @ X == B`` for `A` given by its packed LDL factorization, batches alike."""


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
        size = 1 if pivots[at] > 0 else 2
        last = at + size
        row = abs(int(pivots[last - 1])) - 1
        x[[last - 1, row]] = x[[row, last - 1]]
        x[last:] -= packed[last:, at:last] @ x[at:last]
        d = packed[at:last, at:last].copy()
        if size == 2:
            d[0, 1] = turn(d[1, 0])
        if hermitian:
            np.fill_diagonal(d, np.diagonal(d).real)
        blocks.append((at, last, row, d))
        at = last
    for at, last, _, d in reversed(blocks):
        x[at:last] = np.linalg.solve(d, x[at:last])
    for at, last, row, _ in reversed(blocks):
        x[at:last] -= turn(packed[last:, at:last]).T @ x[last:]
        x[[last - 1, row]] = x[[row, last - 1]]
    return x


@ldl_solution.shape
def _ldl_solution_shape(LD, pivots, B, hermitian):
    return B.shape, B.dtype


@ldl_solution.vjp
def _ldl_solution_vjp(grad):
    raise NotImplementedError("the derivative for 'linalg_ldl_solve' is not implemented")


@composite(surface=BOTH, namespace="linalg")
def ldl_solve(LD, pivots, B, *, hermitian=False):
    """``X`` with ``A @ X == B`` for `A` given by `ldl_factor`."""
    name = "torch.linalg.ldl_solve"
    check_square(name, LD, "LD")
    check_matrix(name, B)
    check_floating(name, LD, B)
    if pivots.dtype.category >= dtypes.FLOATING or pivots.dtype is dtypes.bool:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    if pivots.shape != LD.shape[:-1]:
        raise RuntimeError(f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {tuple(pivots.shape)} instead")
    if B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of LD {tuple(LD.shape)} and B {tuple(B.shape)}")
    LD, B = lined_up(LD, B)
    return ldl_solution(LD, pivots.expand(LD.shape[:-1]), B, bool(hermitian) and LD.is_complex())


# -- low rank --------------------------------------------------------------------------------------------------------------------


@composite()
def svd_lowrank(A, q=6, niter=2, M=None):
    """``U, S, V`` of about the `q` largest singular values, by random projection and `niter` power iterations.

    Source: Halko, Martinsson and Tropp 2009, "Finding structure with randomness", arXiv:0909.4061, algorithm 5.1.
    """
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
    from .random import FUNCTIONS

    start = FUNCTIONS["randn"](A.shape[-1], q, dtype=A.dtype)
    Q = qr_of(matmul(A, start), "reduced")[0]
    for _ in range(niter):
        Q = qr_of(matmul(adjoint(A), Q), "reduced")[0]
        Q = qr_of(matmul(A, Q), "reduced")[0]
    return Q


@composite()
def pca_lowrank(A, q=None, center=True, niter=2):
    """Principal components, approximately: `svd_lowrank` of `A` with the mean of each column taken off if `center`."""
    check_matrix("pca_lowrank", A)
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"pca_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


