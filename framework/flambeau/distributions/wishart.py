"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from numbers import Number
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import cholesky_of, given_matrix
from .utils import lazy_property

__all__ = ["Wishart"]


class Wishart(ExponentialFamily):
    """The sum of the outer products of `df` normal vectors of mean 0; `df` may be any real number above K - 1.

    Args:
        df: degrees of freedom, > K - 1.
        covariance_matrix: of the vectors, ``(*, K, K)``, positive definite; or
        precision_matrix: its inverse; or
        scale_tril: its lower-triangular Cholesky factor.
    Raises: ValueError unless exactly one of the three is given, or for too few degrees of freedom.

    Source: Smith and Hocking 1972, "Wishart variate generator" (Bartlett's decomposition).
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _event_dims_of = {"df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2, "_chi2": 1}

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = given_matrix(covariance_matrix=covariance_matrix, scale_tril=scale_tril, precision_matrix=precision_matrix)
        if isinstance(df, Number):
            df = fb.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch_shape = fb.broadcast_shapes(df.shape, matrix.shape[:-2])
        event_shape = matrix.shape[-2:]
        k = event_shape[-1]
        self.df = df.expand(batch_shape)
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        if self.df.le(k - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {k - 1}.")
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if self.df.lt(k).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.", stacklevel=2
            )
        self._unbroadcasted_scale_tril = cholesky_of(name, matrix)
        # The squares of Bartlett's diagonal: df, df - 1, ..., df - K + 1 degrees of freedom.
        self._chi2 = Chi2(self.df.unsqueeze(-1) - fb.arange(k, dtype=matrix.dtype, device=matrix.device))

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower-triangular Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix of the vectors."""
        return (self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return fb.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._batch_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """nan up to K + 1 degrees of freedom."""
        above = self.df - self.covariance_matrix.shape[-1] - 1
        return above.masked_fill(above <= 0, fb.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett(self, sample_shape: Any) -> Tensor:
        k = self._event_shape[-1]
        noise = self._chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        rows, columns = fb.tril_indices(k, k, offset=-1)
        shape = Size(sample_shape) + self._batch_shape + Size((k * (k - 1) // 2,))
        noise[..., rows, columns] = fb.randn(shape, dtype=noise.dtype, device=noise.device)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = Size(), max_try_correction: int | None = None) -> Tensor:  # noqa: B008 - an empty Size never changes
        """Samples; singular ones are drawn anew.

        Args:
            max_try_correction: how often, by default 3 times for K up to 10 and 10 times above.
        """
        if max_try_correction is None:
            max_try_correction = 3 if self._event_shape[-1] > 10 else 10  # small matrices are cheap to draw anew
        made = self._bartlett(sample_shape)
        singular = ~constraints.positive_definite.check(made)
        if not bool(singular.any()):
            return made
        warnings.warn("Singular sample detected.", stacklevel=2)
        for _ in range(max_try_correction):
            made = fb.where(singular[..., None, None], self._bartlett(sample_shape), made)
            singular = ~constraints.positive_definite.check(made)
            if not bool(singular.any()):
                break
        return made

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        df, k = self.df, self._event_shape[-1]
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        inner = fb.cholesky_solve(value, self._unbroadcasted_scale_tril).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return (
            -df * (k * math.log(2) / 2 + half_log_det)
            - fb.mvlgamma(df / 2, p=k)
            + (df - k - 1) / 2 * fb.linalg.slogdet(value).logabsdet
            - inner / 2
        )

    def entropy(self) -> Tensor:
        df, k = self.df, self._event_shape[-1]
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (
            (k + 1) * (k * math.log(2) / 2 + half_log_det)
            + fb.mvlgamma(df / 2, p=k)
            - (df - k - 1) / 2 * _mvdigamma(df / 2, k)
            + df * k / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        k = self._event_shape[-1]
        half_df = y + (k + 1) / 2
        return half_df * (-fb.linalg.slogdet(-2 * x).logabsdet + k * math.log(2)) + fb.mvlgamma(half_df, p=k)


def _mvdigamma(x: Tensor, k: int) -> Tensor:
    """The derivative of log multivariate gamma of order `k`."""
    return fb.digamma(x.unsqueeze(-1) - fb.arange(k, dtype=x.dtype, device=x.device) / 2).sum(-1)
