"""A Bernoulli distribution relaxed to numbers between 0 and 1."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau import Size, Tensor

from . import constraints
from ._chances import BinaryChances, given_chances
from .distribution import Distribution
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(BinaryChances, Distribution):
    """The log-odds of a `RelaxedBernoulli` sample: ``(logits + logistic noise) / temperature``.

    Args:
        temperature: > 0; the lower, the closer samples come to 0 and 1.
        probs: probability of 1; or
        logits: its log-odds.
    Raises: ValueError unless exactly one of the two is given.

    Source: Maddison et al. 2017, "The Concrete Distribution"; Jang et al. 2017, "Categorical Reparameterization with
    Gumbel-Softmax".
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    _event_dims_of = {"probs": 0, "logits": 0}

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        self._given_name = given_chances(probs, logits)
        (given,) = broadcast_all(probs if logits is None else logits)
        setattr(self, self._given_name, given)
        super().__init__(given.size(), validate_args=validate_args)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(fb.rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value.mul(self.temperature)
        return self.temperature.log() + difference - 2 * difference.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1) near a Bernoulli variable, with a gradient; see `LogitRelaxedBernoulli` for the arguments."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _event_dims_of = {}

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The lower, the closer samples come to 0 and 1."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds of 1."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probability of 1."""
        return self.base_dist.probs
