"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .multivariate_normal import mahalanobis
from .utils import lazy_property

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors whose covariance is ``cov_factor @ cov_factor.mT + diag(cov_diag)``.

    Inverse and determinant are taken of R x R matrices, by the Woodbury identity and the matrix determinant lemma.

    Args:
        loc: mean, ``(*, K)``.
        cov_factor: ``(*, K, R)``.
        cov_diag: ``(*, K)``, each > 0.
    Raises: ValueError if the shapes do not fit.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _event_dims_of = {
        "loc": 1,
        "variance": 1,
        "cov_factor": 2,
        "cov_diag": 1,
        "scale_tril": 2,
        "covariance_matrix": 2,
        "precision_matrix": 2,
    }

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            batch_shape = fb.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch_shape, -1))
        self.cov_factor = cov_factor.expand((*batch_shape, -1, -1))
        self.cov_diag = cov_diag.expand((*batch_shape, -1))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        # As they were given: what entries of a batch share is computed once.
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag

    @lazy_property
    def _capacitance_tril(self) -> Tensor:
        """The Cholesky factor of ``I + W.mT @ inverse(D) @ W``, R x R."""
        weighted = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        inner = weighted @ self._unbroadcasted_cov_factor
        return fb.linalg.cholesky(inner + fb.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        made = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return made.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower-triangular Cholesky factor of the covariance."""
        # root(D) (I + A A.mT) root(D) with A = W / root(D): the inner matrix is the better conditioned one.
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = scaled @ scaled.mT
        inner = inner + fb.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
        return (root * fb.linalg.cholesky(inner)).expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        made = self._unbroadcasted_cov_factor @ self._unbroadcasted_cov_factor.mT + self._unbroadcasted_cov_diag.diag_embed()
        return made.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        weighted = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        solved = fb.linalg.solve_triangular(self._capacitance_tril, weighted, upper=False)
        made = self._unbroadcasted_cov_diag.reciprocal().diag_embed() - solved.mT @ solved
        return made.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        like: dict[str, Any] = {"dtype": self.loc.dtype, "device": self.loc.device}
        along_factor = fb.normal(fb.zeros((*shape[:-1], self.cov_factor.shape[-1]), **like), 1.0)
        along_diag = fb.normal(fb.zeros(shape, **like), 1.0)
        drawn = (self._unbroadcasted_cov_factor @ along_factor.unsqueeze(-1)).squeeze(-1)
        return self.loc + drawn + self._unbroadcasted_cov_diag.sqrt() * along_diag

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = self.woodbury_distance(value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self.log_determinant() + distance)

    def woodbury_distance(self, difference: Tensor) -> Tensor:
        """``apart.mT @ inverse(covariance) @ apart`` for each vector."""
        weighted = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        inner = (weighted @ difference.unsqueeze(-1)).squeeze(-1)
        return (difference.pow(2) / self._unbroadcasted_cov_diag).sum(-1) - mahalanobis(self._capacitance_tril, inner)

    def log_determinant(self) -> Tensor:
        """The natural logarithm of the covariance's determinant."""
        inner = 2 * self._capacitance_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return inner + self._unbroadcasted_cov_diag.log().sum(-1)

    def entropy(self) -> Tensor:
        made = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self.log_determinant())
        return made.expand(self._batch_shape)
