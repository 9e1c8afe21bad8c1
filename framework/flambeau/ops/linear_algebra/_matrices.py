"""What rules for matrices are written with: adjoints, triangles, diagonals, as differentiable Tensor expressions."""

from __future__ import annotations

import numpy as np

from ... import _state
from ..._arrays import HeldArray
from ...tensor import Tensor, wrap
from .. import _dispatch
from .._spec import OPS


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    return x.mH if x.is_complex() else x.mT


def by_columns(x: Tensor) -> Tensor:
    """`x` with its matrices column by column in memory, as LAPACK leaves them."""
    return x.mT.contiguous().mT if x.ndim > 1 else x


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return OPS["matmul"].function(a, b)


def triangle(x: Tensor, upper: bool, strict: bool = False) -> Tensor:
    """The upper or lower triangle, without the diagonal if `strict`."""
    return OPS["triu"].function(x, int(strict)) if upper else OPS["tril"].function(x, -int(strict))


def identity_like(x: Tensor) -> Tensor:
    """Identity matrices of the shape and dtype of `x`."""
    if _dispatch.is_seen(x) or x._lacks_values:       # a graph of it has to give the numbers
        return x.detach().new_ones(x.shape).tril().triu()
    return wrap(np.broadcast_to(np.eye(x.shape[-2], x.shape[-1], dtype=x._array.dtype), x.shape).copy())


def diagonal(x: Tensor) -> Tensor:
    return OPS["diagonal"].function(x, 0, -2, -1)


def diagonal_matrix(x: Tensor) -> Tensor:
    return OPS["diag_embed"].function(x)


def absent(grad: Tensor) -> bool:
    """Whether `grad` is the constant zero that stands for an output nobody used; False where its values are not known."""
    if grad._node is not None or grad._lacks_values:
        return False
    return not bool((grad != 0).any() if grad._array.__class__ is HeldArray else grad._array.any())


def needs_vectors(x: Tensor) -> bool:
    """Whether a derivative of `x` will be asked for, so that vectors, which it takes, are best computed along with the values."""
    return x._node is not None and _state.grad_enabled()
