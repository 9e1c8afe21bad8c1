"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution, moved by `loc` and stretched by `scale`.

    Args:
        df: degrees of freedom, > 0.
        loc: median and mode.
        scale: > 0, in the unit of `loc`.
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _event_dims_of = {"df": 0, "loc": 0, "scale": 0, "_chi2": 0}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """`loc`; nan up to 1 degree of freedom."""
        return self.loc.masked_fill(self.df <= 1, fb.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """inf up to 2 degrees of freedom, nan up to 1."""
        df = self.df.masked_fill(self.df <= 2, 3.0)
        made = (self.scale.pow(2) * df / (df - 2)).masked_fill(self.df <= 2, fb.inf)
        return made.masked_fill(self.df <= 1, fb.nan)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        normal = fb.normal(fb.zeros(shape, dtype=self.df.dtype, device=self.df.device), 1.0)
        squares = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (normal * fb.rsqrt(squares / self.df))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        half = 0.5 * self.df
        log_norm = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + fb.lgamma(half) - fb.lgamma(half + 0.5)
        return -(half + 0.5) * fb.log1p(y**2.0 / self.df) - log_norm

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = fb.lgamma(half) + math.lgamma(0.5) - fb.lgamma(half + 0.5)
        spread = (half + 0.5) * (fb.digamma(half + 0.5) - fb.digamma(half))
        return self.scale.log() + spread + 0.5 * self.df.log() + log_beta
