"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb
from flambeau import Size, Tensor
from flambeau.nn.functional import binary_cross_entropy_with_logits

from . import constraints
from ._chances import BinaryChances, given_chances
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryChances, ExponentialFamily):
    """Numbers in [0, 1] with density proportional to ``probs**x * (1 - probs)**(1 - x)``.

    Args:
        probs: in (0, 1); or
        logits: its log-odds.
        lims: between these values of `probs` the normalizer, which is 0 / 0 at 1/2, is computed by its Taylor series.
    Raises: ValueError unless exactly one of `probs` and `logits` is given.

    Source: Loaiza-Ganem and Cunningham 2019, "The continuous Bernoulli: fixing a pervasive error in variational
    autoencoders".
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _event_dims_of = {"probs": 0, "logits": 0}

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._given_name = given_chances(probs, logits)
        (given,) = broadcast_all(probs if logits is None else logits)
        if logits is None:
            if validate_args is not None and not self.arg_constraints["probs"].check(given).all():
                raise ValueError("The parameter probs has invalid values")
            given = clamp_probs(given)
        setattr(self, self._given_name, given)
        self._lims = lims
        super().__init__(given.size(), validate_args=validate_args)

    def _far(self) -> Tensor:
        """Where `probs` is far enough from 1/2 for the closed forms."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe_probs(self) -> Tensor:
        """`probs`, with a harmless value where the series is used."""
        return fb.where(self._far(), self.probs, self._lims[0])

    def _log_norm(self) -> Tensor:
        """log C, the logarithm of the density's factor: ``C = 2 artanh(1 - 2 p) / (1 - 2 p)``, 2 at p = 1/2."""
        p = self._safe_probs()
        below, above = p.clamp(max=0.5), p.clamp(min=0.5)
        gap = fb.log(fb.abs(fb.log1p(-p) - fb.log(p)))
        closed = gap - fb.where(p <= 0.5, fb.log1p(-2.0 * below), fb.log(2.0 * above - 1.0))
        x = (self.probs - 0.5).pow(2)
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return fb.where(self._far(), closed, series)

    @property
    def mean(self) -> Tensor:
        p = self._safe_probs()
        closed = p / (2.0 * p - 1.0) + 1.0 / (fb.log1p(-p) - fb.log(p))
        x = self.probs - 0.5
        return fb.where(self._far(), closed, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def stddev(self) -> Tensor:
        return fb.sqrt(self.variance)

    @property
    def variance(self) -> Tensor:
        p = self._safe_probs()
        closed = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (fb.log1p(-p) - fb.log(p)).pow(2)
        x = (self.probs - 0.5).pow(2)
        return fb.where(self._far(), closed, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        with fb.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008 - an empty Size never changes
        return self.icdf(fb.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p = self._safe_probs()
        closed = (fb.pow(p, value) * fb.pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = fb.where(self._far(), closed, value)  # near 1/2 the density is flat
        return fb.where(value <= 0.0, fb.zeros_like(value), fb.where(value >= 1.0, fb.ones_like(value), inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._safe_probs()
        closed = (fb.log1p(-p + value * (2.0 * p - 1.0)) - fb.log1p(-p)) / (fb.log(p) - fb.log1p(-p))
        return fb.where(self._far(), closed, value)

    def entropy(self) -> Tensor:
        log_q, log_p = fb.log1p(-self.probs), fb.log(self.probs)
        return self.mean * (log_q - log_p) - self._log_norm() - log_q

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        """log((exp(x) - 1) / x), 0 at x = 0."""
        far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = fb.where(far, x, (self._lims[0] - 0.5) * fb.ones_like(x))
        closed = fb.log(fb.abs(fb.special.expm1(safe))) - fb.log(fb.abs(safe))
        return fb.where(far, closed, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
