"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor
from flambeau.ops.sampling.gamma_draws import dirichlet_numbers

from . import constraints
from .exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """Vectors of numbers that are not negative and add up to 1.

    Args:
        concentration: ``(*, K)``, each > 0.
    Raises: ValueError if `concentration` has no dimension.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _event_dims_of = {"concentration": 1}

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return dirichlet_numbers.function(self.concentration.expand(self._extended_shape(Size(sample_shape))))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        alpha = self.concentration
        return fb.xlogy(alpha - 1.0, value).sum(-1) + fb.lgamma(alpha.sum(-1)) - fb.lgamma(alpha).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """The most probable point; where every concentration is below 1, and all vertices are, the first of them."""
        above = (self.concentration - 1).clamp(min=0.0)
        made = above / above.sum(-1, True)
        inverted = (self.concentration < 1).all(-1)
        vertex = fb.nn.functional.one_hot(fb.zeros_like(inverted, dtype=fb.long), self._event_shape[0]).to(made)
        return vertex.where(inverted.unsqueeze(-1), made)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        alpha, k = self.concentration, self.concentration.size(-1)
        total = alpha.sum(-1)
        log_beta = fb.lgamma(alpha).sum(-1) - fb.lgamma(total)
        return log_beta - (k - total) * fb.digamma(total) - ((alpha - 1.0) * fb.digamma(alpha)).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.lgamma().sum(-1) - fb.lgamma(x.sum(-1))
