"""Fisher's and Snedecor's F distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variables, each divided by its degrees of freedom.

    Args:
        df1, df2: degrees of freedom of the numerator and of the denominator, > 0.
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _event_dims_of = {"df1": 0, "df2": 0, "_numerator": 0, "_denominator": 0}

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        # A chi-squared variable over its degrees of freedom has shape df / 2 and mean 1.
        self._numerator = Gamma(self.df1 * 0.5, self.df1, validate_args=validate_args)
        self._denominator = Gamma(self.df2 * 0.5, self.df2, validate_args=validate_args)
        super().__init__(self.df1.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """``df2 / (df2 - 2)``; nan up to 2 degrees of freedom."""
        df2 = self.df2.masked_fill(self.df2 <= 2, fb.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        """nan up to `df1` of 2, where the density is largest at 0."""
        made = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return made.masked_fill(self.df1 <= 2, fb.nan)

    @property
    def variance(self) -> Tensor:
        """nan up to `df2` of 4."""
        df2 = self.df2.masked_fill(self.df2 <= 4, fb.nan)
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        numerator = self._numerator.rsample(sample_shape)
        denominator = self._denominator.rsample(sample_shape)
        tiny = fb.finfo(denominator.dtype).tiny
        return (numerator / denominator.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2 = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        log_beta = half1.lgamma() + half2.lgamma() - (half1 + half2).lgamma()
        kernel = half1 * ratio.log() + (half1 - 1) * value.log() - (half1 + half2) * fb.log1p(ratio * value)
        return kernel - log_beta
