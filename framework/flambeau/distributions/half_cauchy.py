"""The half-Cauchy distribution."""

from __future__ import annotations

import flambeau as fb
from flambeau import Tensor

from ._one_sided import OneSided
from .cauchy import Cauchy

__all__ = ["HalfCauchy"]


class HalfCauchy(OneSided):
    """The absolute value of a Cauchy variable of median 0; it has no mean.

    Args:
        scale: of the Cauchy variable, > 0.
    """

    of = Cauchy

    @property
    def mean(self) -> Tensor:
        """inf."""
        return fb.full(self._extended_shape(), fb.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Tensor:
        """inf."""
        return self.base_dist.variance

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return super().log_prob(fb.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device))
