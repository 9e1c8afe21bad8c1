"""The half-normal distribution."""

from __future__ import annotations

import math

from flambeau import Tensor

from ._one_sided import OneSided
from .normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(OneSided):
    """The absolute value of a normal variable of mean 0.

    Args:
        scale: standard deviation of the normal variable, > 0.
    """

    of = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)
