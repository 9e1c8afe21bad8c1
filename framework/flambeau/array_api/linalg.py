"""Linear algebra of the array API standard: its main functions and the extension `linalg`."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Tensor

from ._reduce import sum_dtype
from ._types import together

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangular factor of positive definite matrices, or with `upper` its conjugate transpose."""
    return fb.linalg.cholesky(x, upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Products of vectors of three elements along `axis`, counted from the end, at right angles to both."""
    # PyTorch broadcasts tensors of as many dimensions alone, the standard all.
    return fb.linalg.cross(*fb.broadcast_tensors(*together("cross", x1, x2)), dim=axis)


def det(x: Tensor, /) -> Tensor:
    """Determinants."""
    return fb.linalg.det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices, `offset` above the main one."""
    return fb.diagonal(x, offset, -2, -1)


def eigh(x: Tensor, /) -> Any:
    """`eigenvalues` in order and `eigenvectors` of Hermitian matrices, whose lower half is read."""
    return fb.linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of Hermitian matrices in order."""
    return fb.linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """Inverse matrices."""
    return fb.linalg.inv(x)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Matrix products over the last two dimensions; a vector is a row on the left and a column on the right."""
    return fb.matmul(*together("matmul", x1, x2))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices: "fro", "nuc", 1, 2, inf and their negatives; None is "fro"."""
    return fb.linalg.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Square matrices multiplied with themselves `n` times; of the inverse where it is negative."""
    return fb.linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above `rtol` times the largest; by default the longer side times the dtype's eps."""
    return fb.linalg.matrix_rank(x, rtol=rtol)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A view with the last two dimensions exchanged. Raises: ValueError for fewer."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: needs two dimensions, got shape {tuple(x.shape)}")
    return x.mT


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of all pairs of elements of two vectors."""
    return fb.outer(*together("outer", x1, x2))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses; singular values up to `rtol` times the largest count as zero."""
    return fb.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """`Q` with orthonormal columns and `R` upper triangular, whose product is `x`; with "complete" `Q` is square."""
    return fb.linalg.qr(x, mode)


def slogdet(x: Tensor, /) -> Any:
    """`sign` of the determinants and `logabsdet`, the natural logarithm of their magnitude."""
    return fb.linalg.slogdet(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """What `x1` has to be multiplied with to give `x2`, a vector where it has one dimension and matrices else."""
    first, second = together("solve", x1, x2)
    if second.ndim == 1:
        return fb.linalg.solve(first, second[:, None])[..., 0]
    # PyTorch takes batches of vectors too, where there is a dimension less than in the matrices: the standard does not.
    lacking = first.ndim - second.ndim
    return fb.linalg.solve(first, second[(None,) * lacking] if lacking > 0 else second)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """`U`, `S` in falling order, and `Vh`, whose product is `x`; with `full_matrices` the first and the last are square."""
    return fb.linalg.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values in falling order."""
    return fb.linalg.svdvals(x)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over the last `axes` dimensions of `x1` and the first of `x2`, or over those named by two sequences."""
    return fb.tensordot(*together("tensordot", x1, x2), dims=axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of the diagonals of matrices; integers give int64 or uint64, unless `dtype` says otherwise."""
    return fb.sum(diagonal(x, offset=offset), -1, dtype=sum_dtype(x, dtype))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of products along `axis`, counted from the end; the first is conjugated."""
    first, second = fb.broadcast_tensors(*together("vecdot", x1, x2))
    if first.dtype.is_floating_point or first.dtype.is_complex:
        return fb.linalg.vecdot(first, second, dim=axis)
    return fb.sum(first * second, axis, dtype=first.dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Norms of order `ord` of what lies along `axis`, or of all elements."""
    if axis == ():
        return fb.linalg.vector_norm(x[..., None], ord, -1)
    return fb.linalg.vector_norm(x, ord, axis, keepdims)
