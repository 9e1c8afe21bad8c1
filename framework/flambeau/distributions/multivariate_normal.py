"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .utils import lazy_property

__all__ = ["MultivariateNormal"]


class MultivariateNormal(Distribution):
    """Normal vectors; everything is computed from the Cholesky factor of the covariance.

    Args:
        loc: mean, ``(*, K)``.
        covariance_matrix: ``(*, K, K)``, positive definite; or
        precision_matrix: its inverse; or
        scale_tril: its lower-triangular Cholesky factor.
    Raises: ValueError unless exactly one of the three is given, or for too few dimensions.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _event_dims_of = {"loc": 1, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = given_matrix(covariance_matrix=covariance_matrix, scale_tril=scale_tril, precision_matrix=precision_matrix)
        batch_shape = fb.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        # One factor for all entries of a batch that share it, under the name that subclasses elsewhere know from PyTorch.
        self._unbroadcasted_scale_tril = cholesky_of(name, matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower-triangular Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return fb.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        noise = fb.normal(fb.zeros(shape, dtype=self.loc.dtype, device=self.loc.device), 1.0)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det

    def entropy(self) -> Tensor:
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        made = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det
        return made.expand(self._batch_shape)


def given_matrix(**matrices: Tensor | None) -> tuple[str, Tensor]:
    """The one matrix that was given, and its name.

    Raises: ValueError unless exactly one was, of at least two dimensions.
    """
    given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
    if len(given) != 1:
        raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    ((name, matrix),) = given
    if matrix.dim() < 2:
        raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
    return name, matrix


def cholesky_of(name: str, matrix: Tensor) -> Tensor:
    """The Cholesky factor of the covariance, from the matrix that was given."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return fb.linalg.cholesky(matrix)
    return factor_of_inverse(matrix)


def factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower-triangular L with ``L @ L.mT`` the inverse of `precision`.

    With rows and columns reversed, the Cholesky factor is upper triangular: its inverse is the transpose that is wanted.
    """
    upper = fb.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    eye = fb.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return fb.linalg.solve_triangular(upper, eye, upper=False)


def mahalanobis(factor: Tensor, difference: Tensor) -> Tensor:
    """The squared length of ``inverse(factor) @ apart``: ``(*, K, K), (sample + *, K) -> (sample + *)``.

    One triangular system for each matrix, however many vectors go with it.
    """
    batch = fb.broadcast_shapes(factor.shape[:-2], difference.shape[:-1])
    n, own = difference.shape[-1], len(factor.shape) - 2
    difference = difference.expand((*batch, n))
    # Vectors that share a matrix become columns of one right-hand side.
    outer = [d for d in range(len(batch)) if d < len(batch) - own or factor.shape[d - len(batch) - 2] == 1]
    inner = [d for d in range(len(batch)) if d not in outer]
    columns = difference.permute((*inner, len(batch), *outer)).reshape((*(batch[d] for d in inner), n, -1))
    matrices = factor.reshape((*(batch[d] for d in inner), n, n))
    squares = fb.linalg.solve_triangular(matrices, columns, upper=False).pow(2).sum(-2)
    squares = squares.reshape((*(batch[d] for d in inner), *(batch[d] for d in outer)))
    order = inner + outer
    return squares.permute([order.index(d) for d in range(len(batch))])


# Names under which packages import these from PyTorch.
_batch_mahalanobis, _precision_to_scale_tril = mahalanobis, factor_of_inverse


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of matrices with vectors: ``(*, n, m), (*, m) -> (*, n)``."""
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)
