"""Functions of square matrices (determinants, powers, the exponential) and products of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.linear_algebra import matrices_by_lanes

from ... import devices, dtypes
from ...tensor import Tensor, wrap_dim
from .._batching import leading
from .._results import return_type
from .._spec import FUNCTION, METHOD, NEVER, OPS, OUT, ROWS, composite, describe, not_kept, primitive
from . import _lapack, _routines
from ._lapack import check_floating, check_square, raise_not_square
from ._matrices import adjoint, diagonal_matrix, identity_like, matmul
from ._matrices import diagonal as diagonal_of
from .solve import inverse_of
from .spectral import svd_of

BOTH = FUNCTION | OUT
SignLogDet = return_type("linalg_slogdet", ("sign", "logabsdet"))
OldSignLogDet = return_type("slogdet", ("sign", "logabsdet"))


# -- determinants ------------------------------------------------------------------------------------------------------------


@primitive(surface=0, memory=(ROWS,), samples="of linalg.det", public_name="linalg.det", batch_rule=leading)
def det_of(A):
    """The determinants of square matrices."""


det_of.shown_as("LinalgDetBackward0", LU=not_kept, pivots=not_kept)


det_of.in_pieces("...__->...")


det_of.kernel(_lapack.det)


@det_of.shape
def _det_shape(A):
    return A.shape[:-2], A.dtype


@det_of.vjp
def _det_vjp(grad, A):
    return (_spread(grad) * cofactors_of(A)[0],)


def _spread(x: Tensor) -> Tensor:
    return x.unsqueeze(-1).unsqueeze(-1)


@primitive(surface=0, memory=(ROWS, ROWS), samples="sq(3); sq(2, 3)", public_name="linalg.det", batch_rule=leading)
def cofactors_of(A):
    """The conjugates of the cofactors of square matrices, and which of these are singular for the working precision."""


cofactors_of.in_pieces("...__->...__,...")


cofactors_of.kernel(_lapack.cofactors)


@cofactors_of.shape
def _cofactors_shape(A):
    return [(A.shape, A.dtype), (A.shape[:-2], dtypes.bool)]


@cofactors_of.vjp
def _cofactors_vjp(grad, A, out0, out1):
    where, singular, back = OPS["where"].function, _spread(out1), adjoint(grad[0])
    det = where(singular, 1, adjoint(_spread(det_of(A))))
    along = _spread(diagonal_of(matmul(back, out0)).sum(-1)) * out0
    return (where(singular, second_cofactors(A, back, out1), (along - matmul(matmul(out0, back), out0)) / det),)


@composite(surface=0, samples="sq(3), x(3, 3), b(); sq(2, 3), x(2, 3, 3), b(2, some=True)")
def second_cofactors(A, back, singular):
    """The gradient of the cofactors of singular matrices, where ``back^H`` arrives; zeros for the others.

    It follows from the products of all singular values but two, so it is exact for matrices of any rank.
    """
    from ..reductions.reduce import _products_of_others

    where, singular = OPS["where"].function, _spread(singular)
    # Regular matrices may have singular values that are alike, between which derivatives of vectors are not finite.
    U, S, Vh = svd_of(where(singular, A, _distinct_values(A)), False)
    identity = identity_like(S.unsqueeze(-1) * S.unsqueeze(-2))
    others = _products_of_others(where(identity != 0, identity, S.unsqueeze(-2)), (S.ndim,)) * (1 - identity)
    turned = matmul(matmul(Vh, back), U)
    made = diagonal_matrix(matmul(others.to(A.dtype), diagonal_of(turned).unsqueeze(-1)).squeeze(-1)) - others * turned
    return where(singular, matmul(matmul(U, made), Vh) * adjoint(_spread(det_of(U) * det_of(Vh))), 0)


second_cofactors.plan(lambda A, back, singular: None if singular.any() else np.zeros_like(A), beside=("back", "singular"))


def _distinct_values(A: Tensor) -> Tensor:
    """A diagonal matrix with singular values that differ, whose product neither overflows nor vanishes."""
    n = A.shape[-1]
    return diagonal_matrix(A.detach().new_ones(n).cumsum(0) * (0.2 / max(n, 1)) + 0.9)


@composite(surface=BOTH, namespace="linalg", operator="linalg_det", samples="sq(3); sq(2, 3)", exact_out=True)
def det(A):
    """The determinant of each square matrix: ``(*, n, n) -> (*)``; see `linalg.slogdet` where it overflows."""
    check_square("linalg.det", A)
    return det_of(A)


det.in_pieces("...__->...")


def _old_det(input):
    """The determinant of each square matrix."""
    check_square("linalg.det", input)
    return det_of(input)


_old_det.__name__ = "det"
composite(surface=FUNCTION | METHOD, samples="sq(3); sq(2, 3)")(_old_det).in_pieces("...__->...")


@primitive(surface=0, memory=(ROWS, ROWS), samples="of linalg.slogdet", public_name="linalg.slogdet", batch_rule=leading)
def slogdet_of(A):
    """Sign (or phase) and logarithm of the magnitude of the determinants."""


slogdet_of.shown_as("LinalgSlogdetBackward0", sign="out0", LU=not_kept, pivots=not_kept)


slogdet_of.in_pieces("...__->...,...")


slogdet_of.kernel(_lapack.slogdet)


@slogdet_of.shape
def _slogdet_shape(A):
    return [(A.shape[:-2], A.dtype), (A.shape[:-2], A.dtype.to_real())]


@slogdet_of.vjp
def _slogdet_vjp(grad, A, out0):
    scale = grad[1]
    if out0.is_complex():
        # The phase turns with the imaginary part of the change of the logarithm.
        scale = scale - (grad[0].conj() * out0).imag * 1j
    # Of singular matrices the gradient is nan, as the inverse is.
    return (_spread(scale) * adjoint(inverse_of(A)[0]),)


@composite(surface=BOTH, namespace="linalg", operator="linalg_slogdet", samples="sq(3); sq(2, 3)", exact_out=True)
def slogdet(A):
    """``sign, logabsdet``: the determinant is ``sign * exp(logabsdet)``; 0 and -inf for singular matrices.

    ``(*, n, n) -> (*), (*)``; of complex matrices `sign` is a phase and `logabsdet` real.
    """
    check_square("linalg.slogdet", A)
    return SignLogDet(slogdet_of(A))


def _old_slogdet(input):
    """``sign, logabsdet``: the determinant is ``sign * exp(logabsdet)``; 0 and -inf for singular matrices."""
    check_square("linalg.slogdet", input)
    return OldSignLogDet(slogdet_of(input))


_old_slogdet.__name__ = "slogdet"
composite(surface=FUNCTION | METHOD | OUT, samples="sq(3)", exact_out=True)(_old_slogdet)


@composite(surface=FUNCTION | METHOD, samples="spd(3); spd(2, 3)")
def logdet(input):
    """The natural logarithm of the determinant, ``(*, n, n) -> (*)``: nan for a negative one, -inf for 0."""
    check_square("logdet", input)
    sign, logabs = slogdet_of(input)
    if sign.is_complex():
        return sign.log() + logabs
    return OPS["where"].function(sign == -1, float("nan"), logabs)


def _logdet_now(a: Any) -> Any:
    if a.dtype.kind == "c":
        return None
    sign, made = _lapack.slogdet(a)
    np.putmask(made, sign == -1, np.nan)
    return made


logdet.plan(_lapack.on_matrices(_logdet_now, square=True, order=ROWS))


# -- powers and the exponential ------------------------------------------------------------------------------------------------


def _matrix_power(input: Any, n: Any) -> Tensor:
    if isinstance(n, Tensor) and n.ndim == 0 and not n.dtype.is_floating_point:
        n = n.__index__()
    if isinstance(n, np.integer):
        n = int(n)
    if isinstance(n, (Tensor, float, bool)) or not isinstance(n, int):
        raise TypeError(f"linalg_matrix_power(): argument 'n' must be int, not {type(n).__name__}")
    if not isinstance(input, Tensor):
        raise TypeError(f"linalg_matrix_power(): argument 'input' must be Tensor, not {type(input).__name__}")
    if input._array.ndim < 2 or input._array.shape[-1] != input._array.shape[-2]:
        raise_not_square("linalg.matrix_power", input)
    if n == -1:
        return OPS["linalg.inv"].function(input)
    if n < 0:
        input, n = OPS["linalg.inv"].function(input), -n
    if n == 0:
        return OPS["piecewise_constant"].function(identity_like(input), input)
    if n == 1:
        return input.clone(memory_format=devices.contiguous_format)
    made = None
    while True:
        if n & 1:
            made = input if made is None else matmul(made, input)
        n >>= 1
        if not n:
            return made  # pyright: ignore[reportReturnType]  # the arguments rule the other types out
        input = matmul(input, input)


def _new_matrix_power(input, n: int):
    """Each square matrix to the integer power `n`; of its inverse for negative `n`."""
    return _matrix_power(input, n)


def _old_matrix_power(input, n: int):
    """Each square matrix to the integer power `n`; of its inverse for negative `n`."""
    return _matrix_power(input, n)


_new_matrix_power.__name__ = _old_matrix_power.__name__ = "matrix_power"
_POWERS = "sq(3), 3; sq(2, 3), -1; sq(3), 0"
composite(surface=BOTH, namespace="linalg", samples=_POWERS, exact_out=True)(_new_matrix_power)
composite(surface=FUNCTION | METHOD | OUT, samples=_POWERS)(_old_matrix_power)


def _check_exp(input):
    check_floating("linalg.matrix_exp", input, half=True)
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise_not_square("linalg.matrix_exp", input)


@primitive(
    surface=FUNCTION | METHOD, aliases=("linalg.matrix_exp",), operator="linalg_matrix_exp(input)", check=_check_exp,
    samples="sq(3); sq(2, 3)", batch_rule=leading,
)
def matrix_exp(input):
    """The exponential of each square matrix, ``1 + A + A @ A / 2 + ...``: ``(*, n, n) -> (*, n, n)``.

    Source: Al-Mohy and Higham 2009, "A New Scaling and Squaring Algorithm for the Matrix Exponential", SIAM
        J. Matrix Anal. 31.
    """


matrix_exp.shown_as("LinalgMatrixExpBackward0")


matrix_exp.in_pieces("...__->...__")


@matrix_exp.kernel
def _matrix_exp(a):
    if not a.size:
        return a.copy()
    wide = a.astype(np.float32) if a.dtype.itemsize == 2 else a
    many = matrices_by_lanes.exponentials(wide) if matrices_by_lanes.takes(wide, matrices_by_lanes.MOST_EXP) else None
    if many is not None:
        return many.astype(a.dtype, copy=False)
    if a.shape[-1] == 1 or _lapack.all_finite(wide):
        return np.asarray(_routines.of_scipy("expm")(wide)).astype(a.dtype, copy=False)
    bad = ~np.isfinite(wide).all((-2, -1))             # every element depends on all, and scipy would tell zeros apart
    made = np.asarray(_routines.of_scipy("expm")(np.where(bad[..., None, None], wide.dtype.type(0), wide))).astype(a.dtype, copy=False)
    made[bad] = _lapack.nan_of(made.dtype)
    return made


@matrix_exp.shape
def _matrix_exp_shape(input):
    return input.shape, input.dtype


@matrix_exp.vjp
def _matrix_exp_vjp(grad, input):
    return (_exp_derivative(adjoint(input), grad),)


@matrix_exp.jvp
def _matrix_exp_jvp(args, tangents, out):
    return _exp_derivative(args[0], tangents[0])


def _exp_derivative(a, direction):
    """The derivative of exp at `a` in `direction`: the corner of ``exp([[a, direction], [0, a]])``."""
    n, cat = a.shape[-1], OPS["cat"].function
    block = cat([cat([a, direction], -1), cat([a * 0, a], -1)], -2)
    return matrix_exp(block)[..., :n, n:]


# -- products ------------------------------------------------------------------------------------------------------------------


def _cheapest(sizes: list[int]) -> list[list[int]]:
    """For each stretch of a chain of matrices, where to split its product so that it takes the fewest multiplications."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            options = [cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i][j] = min(options)
            split[i][j] = i + options.index(cost[i][j])
    return split


@composite(surface=BOTH, namespace="linalg", samples="(x(2, 3), x(3, 4), x(4, 2)); (x(3), x(3, 2))", exact_out=True)
def multi_dot(tensors):
    """The product of two or more matrices in the cheapest order; the first and the last may be vectors.

    Raises: RuntimeError for fewer than two, for other ranks, or for sizes that do not meet.

    >>> fb.linalg.multi_dot([fb.ones(2, 9), fb.ones(9, 9), fb.ones(9)])
    tensor([81., 81.])
    """
    tensors = list(tensors)
    count = len(tensors)
    if count < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {count}")
    for i, x in enumerate(tensors):
        allowed = (1, 2) if i in (0, count - 1) else (2,)
        if x.ndim not in allowed:
            raise RuntimeError(f"multi_dot(): tensor {i} must be {' or '.join(f'{d}D' for d in allowed)} but got {x.ndim}D")
        if x.dtype is not tensors[0].dtype:
            raise RuntimeError(f"multi_dot(): all tensors must have the same dtype, got {tensors[0].dtype} and {x.dtype}")
    head, tail = tensors[0].ndim == 1, tensors[-1].ndim == 1
    if head:
        tensors[0] = tensors[0].unsqueeze(0)
    if tail:
        tensors[-1] = tensors[-1].unsqueeze(-1)
    for i in range(count - 1):
        if tensors[i].shape[1] != tensors[i + 1].shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(tensors[i].shape)} "
                f"and {list(tensors[i + 1].shape)} cannot be multiplied"
            )
    split = _cheapest([tensors[0].shape[0], *(x.shape[1] for x in tensors)])

    def product(i: int, j: int) -> Tensor:
        return tensors[i] if i == j else matmul(product(i, split[i][j]), product(split[i][j] + 1, j))

    made = product(0, count - 1)
    made = made.squeeze(0) if head else made
    return made.squeeze(-1) if tail else made


@multi_dot.forwards
def _cheaper_order(tensors):
    """Three matrices: the cheaper of two orders."""
    try:
        first, second, third = tensors
        (m, k), (i, j), (l, n) = first._array.shape, second._array.shape, third._array.shape
        if k != i or j != l or not first._array.dtype is second._array.dtype is third._array.dtype:
            return None
    except (AttributeError, TypeError, ValueError):  # other tensors, or none
        return None
    if m * k * j + m * j * n < k * j * n + m * k * n:
        return matmul(matmul(first, second), third)
    return matmul(first, matmul(second, third))


@composite(
    surface=BOTH, namespace="linalg", autocast=("lower", None), samples="x(2, 3), x(2, 3); c(2, 3), c(3); x(3, 2), x(3, 2), dim=0",
    exact_out=True,
)
def vecdot(x, y, *, dim=-1):
    """The sums of ``conj(x) * y`` over `dim`, which the result lacks; `x` and `y` broadcast."""
    check_floating("linalg.vecdot", x, y, half=True)
    sizes = (x.shape[wrap_dim(dim, x.ndim)], y.shape[wrap_dim(dim, y.ndim)]) if x.ndim and y.ndim else (1, 1)
    if sizes[0] != sizes[1] and 1 not in sizes:
        raise RuntimeError(f"linalg.vecdot: sizes along dim {dim} differ\n{describe(x=x, y=y)}")
    product = (x.conj() if x.is_complex() else x) * y
    return product.sum(dim).contiguous()


@vecdot.plan(tensors=("x", "y"), most_by_numpy=1023)
def _planned_dots(a, b, dim):
    return np.add.reduce(a * b, dim) if a.shape == b.shape and a.ndim > 1 else None


@composite(surface=BOTH, namespace="linalg", overlap=NEVER, samples="x(2, 3), x(2, 3); x(3, 2), x(3, 2), dim=0", exact_out=True)
def cross(input, other, *, dim=-1):
    """The vector products of the 3-vectors along `dim`."""
    return OPS["cross_along"].function(input, other, dim)


@cross.forwards
def _cross_from_the_end(input, other, dim):
    return OPS["cross_along"].answer(input, other, dim - input._array.ndim if dim.__class__ is int and dim >= 0 else dim)


@composite(namespace="linalg", samples="x(3, 4); x(2, 3, 4), offset=1")
def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """A view of the diagonals of the matrices in `dim1` and `dim2`, as the last dimension.

    Args:
        offset: how far above the main diagonal; negative below.
    """
    return OPS["diagonal"].function(A, offset, dim1, dim2)


@composite(namespace="linalg", samples="x(3); x(2, 3), N=4")
def vander(x, *, N=None):
    """The powers 0 to ``N - 1`` of each value, along a new last dimension: ``(*, n) -> (*, n, N)``; N is n by default.

    >>> fb.linalg.vander(fb.tensor([2, 3]), N=3)
    tensor([[1, 2, 4],
            [1, 3, 9]])
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"linalg.vander(): argument 'x' must be Tensor, not {type(x).__name__}")
    if N is not None and N <= 1 or N is None and (not x.ndim or x.shape[-1] <= 1):
        raise RuntimeError(f"linalg.vander: N must be greater than 1. Got {N if N is not None else tuple(x.shape)}")
    if x.dtype is dtypes.bool:
        x = x.to(dtypes.int64)
    N = x.shape[-1] if N is None else N
    x = x if x.ndim else x.unsqueeze(0)
    each = x.unsqueeze(-1)
    powers = each.expand(*x.shape, N - 1).cumprod(-1)  # multiplied up, so that 0 ** 0 and its slope come out exact
    return OPS["cat"].function([each.new_ones(each.shape, dtype=powers.dtype), powers], -1)
