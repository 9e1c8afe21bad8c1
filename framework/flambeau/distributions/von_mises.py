"""The von Mises distribution, the normal distribution's like on the circle."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles around `loc`, with density proportional to ``exp(concentration * cos(x - loc))``.

    Args:
        loc: mean direction, in radians.
        concentration: > 0; large values are close to a normal distribution of variance ``1 / concentration``.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _event_dims_of = {"loc": 0, "concentration": 0, "variance": 0, "_proposal": 0}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        # log(2 pi I0(k)), with I0 scaled by exp(-k) so that it does not overflow
        log_norm = math.log(2 * math.pi) + fb.special.i0e(k).log() + k
        return k * fb.cos(value - self.loc) - log_norm

    @lazy_property
    def _proposal(self) -> Tensor:
        """The parameter of the wrapped Cauchy distribution that samples are proposed from, in float64."""
        k = self.concentration.detach().double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        # For small k the quotient loses its digits; its series begins with 1/k + k.
        return fb.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        """Angles in [-pi, pi), by rejection from a wrapped Cauchy distribution, in float64.

        Source: Best and Fisher 1979, "Efficient simulation of the von Mises distribution", Applied Statistics 28.
        """
        with fb.no_grad():
            shape = self._extended_shape(sample_shape)
            loc, k = self.loc.double(), self.concentration.double().expand(shape)
            r = self._proposal.expand(shape)
            angles = fb.empty(shape, dtype=fb.float64, device=loc.device)
            done = fb.zeros(shape, dtype=fb.bool, device=loc.device)
            while not done.all():
                u1, u2, u3 = fb.rand((3, *shape), dtype=fb.float64, device=loc.device).unbind()
                z = fb.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                angles = fb.where(accepted, (u3 - 0.5).sign() * f.clamp(-1, 1).acos(), angles)
                done = done | accepted
            return ((angles + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The mean direction, in radians."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance, between 0 and 1: ``1 - I1(k) / I0(k)``."""
        return 1 - fb.special.i1e(self.concentration) / fb.special.i0e(self.concentration)
