"""Cholesky and QR factorizations, and Householder reflectors.

Derivatives follow the adjoint rules collected by Giles 2008, "An extended collection of matrix derivative results", and by
Boeddeker et al. 2017, arXiv:1701.00392, for complex matrices. They are Tensor expressions, so they differentiate again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.gemm.blas import single_threaded

from ... import dtypes
from ...tensor import Tensor
from .._batching import leading
from .._results import return_type
from .._spec import COLUMNS, FUNCTION, METHOD, OPS, OUT, ROWS, composite, describe, gradients_of, host_only, primitive
from . import _lapack
from ._lapack import check_floating, check_matrix, check_singular, check_square
from ._matrices import adjoint, by_columns, diagonal, diagonal_matrix, identity_like, matmul, triangle
from .solve import solve_triangle

BOTH = FUNCTION | OUT
CholeskyInfo = return_type("linalg_cholesky_ex", ("L", "info"))
Qr = return_type("linalg_qr", ("Q", "R"))
OldQr = return_type("qr", ("Q", "R"))
Geqrf = return_type("geqrf", ("a", "tau"))


# -- Cholesky --------------------------------------------------------------------------------------------------------------

NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {} is not positive-definite)."
)


@primitive(surface=0, memory=(COLUMNS, ROWS), samples="of linalg.cholesky", public_name="linalg.cholesky", batch_rule=leading)
def cholesky_of(A, upper):
    """The Cholesky factors, and for each the order of the first leading minor that is not positive, or 0."""


cholesky_of.shown_as("LinalgCholeskyExBackward0", L="out0")


cholesky_of.in_pieces("...__->...__,...")


cholesky_of.kernel(_lapack.cholesky)
cholesky_of.plan(_lapack.on_matrices(_lapack.cholesky, square=True, order=(COLUMNS, ROWS)), returns=tuple)


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


@composite(surface=BOTH, namespace="linalg", autocast=("float32", None), samples="spd(3); spd(2, 3), upper=True")
def cholesky_ex(input, *, upper=False, check_errors=False):
    """``(L, info)``: `linalg.cholesky` without its error.

    Args:
        upper: as for `linalg.cholesky`.
        check_errors: raise as `linalg.cholesky` does.
    Returns: in `info`, int32, the order of the first leading minor that is not positive, 0 where the factor is right.
    """
    check_square("linalg.cholesky", input)
    made = cholesky_of(input, bool(upper))
    if check_errors:
        check_singular("linalg.cholesky_ex", made[1], NOT_POSITIVE)
    return CholeskyInfo(made)


@cholesky_ex.forwards
def _factor_and_info(input, upper, check_errors):
    made = cholesky_of.answer(input, upper) if upper.__class__ is bool and check_errors is False else None
    return None if made is None else CholeskyInfo(made)


def _cholesky(name: str, input: Any, upper: bool) -> Tensor:
    check_square(name, input)
    made, info = cholesky_of(input, bool(upper))
    check_singular(name, info, NOT_POSITIVE)
    return made


@composite(
    surface=BOTH, namespace="linalg", operator="linalg_cholesky", autocast=("float32", None),
    samples="spd(3); spd(2, 3), upper=True",
    exact_out=True,
    batch_rule=leading, costly=True,
)
def cholesky(input, *, upper=False):
    """The lower triangular ``L`` with ``input == L @ L.mH``, or its adjoint if `upper`: ``(*, n, n) -> (*, n, n)``.

    Raises: LinAlgError unless `input`, of which one triangle is read, is positive-definite.

    >>> fb.linalg.cholesky(fb.tensor([[4.0, 2.0], [2.0, 10.0]]))
    tensor([[2., 0.],
            [1., 3.]])
    """
    return _cholesky("linalg.cholesky", input, upper)


cholesky.in_pieces("...__->...__")


cholesky.plan(_lapack.on_matrices(_lapack.cholesky_now, square=True, order=COLUMNS))


def _old_cholesky(input, upper=False):
    """The lower triangular ``L`` with ``input == L @ L.mH``, or its adjoint if `upper`. Raises: LinAlgError."""
    if isinstance(input, Tensor) and input.ndim >= 2 and not input.numel():
        return input.clone()
    return _cholesky("cholesky", input, upper)


_old_cholesky.__name__ = "cholesky"
_declared = composite(surface=FUNCTION | METHOD | OUT, autocast=("float32", None), samples="spd(3); spd(2, 3), True")(_old_cholesky)
_declared.plan(_lapack.on_matrices(_lapack.cholesky_now, square=True, order=COLUMNS))
_declared.deprecation = (
    "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future PyTorch release.\n"
    "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH"
)


# -- QR ----------------------------------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(COLUMNS, COLUMNS), samples="of linalg.qr", public_name="linalg.qr", batch_rule=leading, costly=True)
def qr_of(A, mode):
    """``Q, R`` with ``A == Q @ R``, Q unitary and R upper triangular; mode 'r' leaves Q empty."""


qr_of.shown_as("LinalgQrBackward0", hides="A_shape", Q="out0", R="out1")


qr_of.in_pieces("...__->...__,...__")


qr_of.kernel(_lapack.qr)


@qr_of.shape
def _qr_shape(A, mode):
    (*batch, m, n) = A.shape
    k = min(m, n) if mode != "complete" else m
    return [((0,) if mode == "r" else (*batch, m, k), A.dtype), ((*batch, k, n), A.dtype)]


@qr_of.vjp
def _qr_vjp(grad, out0, out1, A_shape, mode):
    m, n = A_shape[-2:]
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to require gradients through Q."
        )
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


@composite(
    surface=BOTH, namespace="linalg", autocast=("float32", None), samples="sq(3); x(4, 2); x(2, 4, 3), mode='reduced'", exact_out=True,
    costly=True,
)
def qr(A, mode="reduced"):
    """``Q, R`` with ``A == Q @ R``, the columns of Q orthonormal and R upper triangular.

    Args:
        mode: for ``(*, m, n)`` and k the smaller size: 'reduced' gives ``(*, m, k), (*, k, n)``, 'complete'
            ``(*, m, m), (*, m, n)``, and 'r' only the R of 'reduced', Q being empty.
    Raises: RuntimeError for another mode.
    """
    return Qr(_qr_checked(A, mode))


def _qr_now(a: Any, mode: Any) -> Any:
    return _lapack.qr(a, mode) if mode in ("reduced", "complete") else None


qr.plan(_lapack.on_matrices(_qr_now, order=(COLUMNS, COLUMNS)), returns=Qr)


def _old_qr(input, some=True):
    """``Q, R`` with ``input == Q @ R``; Q is square unless `some`."""
    return OldQr(qr.function(input, "reduced" if some else "complete"))


_old_qr.__name__ = "qr"
_declared = composite(
    surface=FUNCTION | METHOD | OUT, autocast=("float32", None), samples="sq(3); x(4, 2), True", exact_out=True,
)(_old_qr)
_declared.plan(
    _lapack.on_matrices(lambda a, some: _lapack.qr(a, "reduced" if some else "complete"), order=(COLUMNS, COLUMNS)), returns=OldQr
)
_declared.deprecation = (
    "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\n"
    "Q, R = torch.qr(A, some)\nshould be replaced with\nQ, R = torch.linalg.qr(A, 'reduced' if some else 'complete')"
)


# -- Householder reflectors ------------------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(COLUMNS, ROWS), samples="of geqrf", public_name="geqrf", batch_rule=leading)
def geqrf_of(A):
    """QR as LAPACK packs it: R above, reflectors below the diagonal, and their factors."""


geqrf_of.in_pieces("...__->...__,..._")


@geqrf_of.kernel
def _geqrf(a):
    with single_threaded():
        packed, tau = np.linalg.qr(a, mode="raw")
    return packed.swapaxes(-1, -2), tau


@geqrf_of.shape
def _geqrf_shape(A):
    return [(A.shape, A.dtype), ((*A.shape[:-2], min(A.shape[-2:])), A.dtype)]


@geqrf_of.vjp
def _geqrf_vjp(grad):
    raise NotImplementedError("the derivative for 'geqrf' is not implemented; use linalg.qr")


def _check_several_rows(name: str, input: Tensor) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.\n{describe(input=input)}")


@composite(surface=FUNCTION | METHOD | OUT, autocast=("float32", None), samples="sq(3); x(4, 2)")
def geqrf(input):
    """QR in LAPACK's packed form: R in the upper triangle, Householder vectors below it, and their factors `tau`."""
    check_floating("geqrf", input)
    _check_several_rows("torch.geqrf", input)
    return Geqrf(geqrf_of(input))


def _reflectors(input: Tensor, tau: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The Householder vectors, as columns, and their factors."""
    k = tau.shape[-1]
    vectors = triangle(input[..., :, :k], False, strict=True) + identity_like(input[..., :, :k])
    return [(vectors[..., :, i : i + 1], tau[..., i].unsqueeze(-1).unsqueeze(-1)) for i in range(k)]


def _reflected(v: Tensor, t: Tensor, x: Tensor) -> Tensor:
    return x - matmul(t * v, matmul(adjoint(v), x))


def _householder(name: str, input: Any, tau: Any) -> Tensor:
    host_only(name, input)
    check_floating(name, input, tau)
    _check_several_rows(name, input)
    m, n = input.shape[-2:]
    if m < n:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], got {m} and {n}")
    if not tau.ndim or n < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], "
            f"got {n} and {tau.shape[-1] if tau.ndim else 'a 0-d tau'}"
        )
    if tuple(tau.shape[:-1]) != tuple(input.shape[:-2]):
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], "
            f"but got {tuple(tau.shape[:-1])} and {tuple(input.shape[:-2])}"
        )
    made = OPS["piecewise_constant"].function(identity_like(input), input)  # also without a reflector a function of `input`
    for v, t in reversed(_reflectors(input, tau)):
        made = _reflected(v, t, made)
    return by_columns(made)


@composite(surface=BOTH, namespace="linalg", autocast=("float32", None), reads_parts=True, samples="x(4, 2), u(2)")
def householder_product(input, tau):
    """The first columns of the product of the reflectors ``1 - tau v v^H`` whose vectors are columns of `input`.

    ``(*, m, n), (*, k) -> (*, m, n)``. With what `geqrf` returns it is the Q of `linalg.qr`.
    """
    return _householder("torch.linalg.householder_product", input, tau)


def _householder_now(a: Any, t: Any) -> Any:
    """One real matrix, by LAPACK's routine."""
    if a.ndim != 2 or t.ndim != 1 or t.dtype is not a.dtype or a.dtype.char not in "fd":
        return None
    if a.shape[0] < a.shape[1] or not 0 < t.size <= a.shape[1]:
        return None
    made, _, info = _lapack.routine("orgqr", a)(a, t)
    return made if info == 0 else None


_plan_of_reflectors = _lapack.on_matrices(_householder_now, order=COLUMNS)


householder_product.plan(_plan_of_reflectors, tensors=("input", "tau"))


@composite(
    surface=FUNCTION | METHOD | OUT, autocast=("float32", None),
    samples="x(4, 2), u(2)", named_too={"tau": ("input2",)},
)
def orgqr(input, tau):
    """The Q of what `geqrf` returns; see `linalg.householder_product`."""
    return householder_product.function(input, tau)


orgqr.plan(_plan_of_reflectors, tensors=("input", "tau"))


@composite(
    surface=FUNCTION | METHOD | OUT, autocast=("float32", None), named_too={"tau": ("input2",), "other": ("input3",)},
    samples="x(4, 2), u(2), x(4, 3); x(4, 2), u(2), x(3, 4), False, True",
)
def ormqr(input, tau, other, left=True, transpose=False):
    """``Q @ other``, or ``other @ Q`` if not `left`, with the square Q of the reflectors.

    Args:
        input, tau: the reflectors, as `geqrf` returns them.
        transpose: take the adjoint of Q.
    """
    host_only("ormqr", input)
    check_floating("torch.ormqr", input, tau, other)
    _check_several_rows("torch.ormqr", input)
    size = other.shape[-2 if left else -1] if other.ndim >= 2 else -1
    if size != input.shape[-2]:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to "
            f"input.shape[-2], got {size} and {input.shape[-2]}"
        )
    if not tau.ndim:
        raise IndexError("torch.ormqr: Dimension specified as -1 but tensor has no dimensions: tau has one number for each reflector")
    if tau.shape[-1] > size:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be greater than or "
            f"equal to tau.shape[-1], got {size} and {tau.shape[-1]}"
        )
    if tau.shape[-1] != min(size, input.shape[-1]):
        raise RuntimeError(
            f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{-2 if left else -1}], input.shape[-1]), "
            f"got {tau.shape[-1]}, {size} and {input.shape[-1]}"
        )
    if input.ndim - tau.ndim != 1 or input.ndim != other.ndim or input.shape[:-2] != other.shape[:-2]:
        raise RuntimeError(
            "torch.ormqr: batch dimensions of input, tau and other must agree, got shapes "
            f"{tuple(input.shape)}, {tuple(tau.shape)} and {tuple(other.shape)}"
        )
    return reflected_by(input, tau, other, bool(left), bool(transpose))


@primitive(
    surface=0, tensors=("input", "tau", "other"), memory=COLUMNS, samples="of ormqr", public_name="ormqr",
    operator="ormqr(input, tau, other, left, transpose)",
)
def reflected_by(input, tau, other, left, transpose):
    """`ormqr` of operands that go together."""


reflected_by.in_pieces("...__,..._,...__->...__")


reflected_by.shown_as("OrmqrBackward0")


@reflected_by.kernel
def _reflected_by(a, tau, other, left, transpose):
    made = np.empty_like(other, order="C")
    for i in np.ndindex(other.shape[:-2]):
        made[i] = _reflected_once(a[i], tau[i], other[i], left, transpose)
    return made


def _reflected_once(a: Any, tau: Any, other: Any, left: bool, transpose: bool) -> Any:
    """One matrix by LAPACK's routine."""
    if not (tau.size and other.size):
        return other
    is_complex = a.dtype.kind == "c"
    run = _lapack.routine("unmqr" if is_complex else "ormqr", a)
    room = 32 * other.shape[1 if left else 0]         # blocks of 32 columns, of which LAPACK wants room for one
    how = b"L" if left else b"R", b"N" if not transpose else b"C" if is_complex else b"T"
    return run(*how, a[:, : tau.size], tau, other, room)[0]


@reflected_by.shape
def _reflected_by_shape(input, tau, other, left, transpose):
    return other.shape, other.dtype


@reflected_by.vjp
def _reflected_by_vjp(grad, input, tau, other, left, transpose):
    def composed(a: Tensor, t: Tensor) -> Tensor:
        made = other if left else adjoint(other)
        # other @ Q is the adjoint of Q^H @ other^H.
        forward = transpose == left
        for v, factor in _reflectors(a, t) if forward else reversed(_reflectors(a, t)):
            made = _reflected(v, factor.conj() if forward else factor, made)
        return made if left else adjoint(made)

    return *gradients_of(composed, grad, (input, tau), (True, True)), reflected_by(input, tau, grad, left, not transpose)


def _reflected_now(a: Any, t: Any, other: Any, left: bool, transpose: bool) -> Any:
    """One real matrix."""
    if a.ndim != 2 or t.ndim != 1 or other.ndim != 2 or not a.dtype is t.dtype is other.dtype or a.dtype.char not in "fd":
        return None
    if not other.size or a.shape[0] != other.shape[0 if left else 1] or t.size != min(a.shape):
        return None
    return _reflected_once(a, t, other, left, transpose)


ormqr.plan(_lapack.on_matrices(_reflected_now, order=COLUMNS), tensors=("input", "tau", "other"))
