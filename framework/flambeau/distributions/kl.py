"""Kullback-Leibler divergences, by pairs of distributions.

Pairs of one family have closed forms of their own. For the others ``KL(p || q) = -H(p) - E_p[log q(x)]``: the logarithm of a
density is a sum of a few statistics (x, x**2, log x, log(1 - x), exp(t x)), whose means under p are closed forms too. So each
distribution stands once, as a p (`_Means`) or as a q (`_CROSS`), not once a pair.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fb
from flambeau import Tensor

from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal, mahalanobis
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .transforms import sum_rightmost
from .uniform import Uniform
from .utils import euler_constant

__all__ = ["kl_divergence", "register_kl"]

_Formula = Callable[[Any, Any], Tensor]
_KL_REGISTRY: dict[tuple[type, type], _Formula] = {}
_FOUND: dict[tuple[type, type], _Formula] = {}  # what `_formula` found for two classes

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def register_kl(type_p: type, type_q: type) -> Callable[[_Formula], _Formula]:
    """A decorator: the function gives ``KL(p || q)`` for objects of these classes and of their subclasses.

    The classes need not derive from `Distribution`; packages register bases of their own.

    Raises: TypeError for anything but classes.
    """
    for given in (type_p, type_q):
        if not isinstance(given, type):
            raise TypeError(f"register_kl: expected type_p and type_q to be classes, but got {given!r}")

    def decorator(fun: _Formula) -> _Formula:
        _KL_REGISTRY[type_p, type_q] = fun
        _FOUND.clear()
        return fun

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """``KL(p || q)``, the mean under p of ``log p(x) - log q(x)``, in nats, of the shape of the batches.

    Raises: NotImplementedError if no formula is registered for the pair.

    >>> fb.distributions.kl_divergence(fb.distributions.Normal(1.0, 1.0), fb.distributions.Normal(0.0, 1.0))
    tensor(0.5000)
    """
    key = type(p), type(q)
    if key not in _FOUND:
        _FOUND[key] = _formula(*key)
    return _FOUND[key](p, q)


def _formula(type_p: type, type_q: type) -> _Formula:
    """The formula registered for the nearest base classes of both."""
    matches = [(P, Q) for P, Q in _KL_REGISTRY if issubclass(type_p, P) and issubclass(type_q, Q)]
    if not matches:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type_p.__name__} and q type {type_q.__name__}"
        )
    far_p, far_q = type_p.__mro__.index, type_q.__mro__.index
    nearest = min(matches, key=lambda pair: (far_p(pair[0]), far_q(pair[1])))
    other = min(matches, key=lambda pair: (far_q(pair[1]), far_p(pair[0])))
    if _KL_REGISTRY[nearest] is not _KL_REGISTRY[other]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({nearest[0].__name__}, {other[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[nearest]


# One family


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log normalizer (Nielsen and Nock 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman divergences"
        )
    with fb.enable_grad():
        ours = [param.detach().requires_grad_() for param in p._natural_params]
        normalizer = p._log_normalizer(*ours)
        slopes = fb.autograd.grad(normalizer.sum(), ours, create_graph=True)
    theirs = q._natural_params
    made = q._log_normalizer(*theirs) - normalizer
    for mine, other, slope in zip(ours, theirs, slopes, strict=True):
        made = made - sum_rightmost((other - mine) * slope, len(q.event_shape))
    return made


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    return _weighted(p.probs, q.probs) + _weighted(1 - p.probs, 1 - q.probs)


def _weighted(a: Tensor, b: Tensor) -> Tensor:
    """``a log(a / b)``: 0 where a is, inf where only b is."""
    made = fb.xlogy(a, a / b)
    made = fb.where((b == 0) & (a > 0), fb.inf, made)
    return fb.where(a == 0, 0.0, made)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    """inf where p has more trials.

    Raises: NotImplementedError where it has fewer: there is no closed form.
    """
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    made = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return fb.where(p.total_count > q.total_count, fb.inf, made)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    made = p.probs * (p.logits - q.logits)
    made = fb.where((q.probs == 0).expand_as(made), fb.inf, made)
    return fb.where((p.probs == 0).expand_as(made), 0.0, made).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    norms = q._log_normalizer(c, d) - p._log_normalizer(a, b)
    return norms + (a - c) * fb.digamma(a) + (b - d) * fb.digamma(b) + (c + d - a - b) * fb.digamma(a + b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    norms = q._log_normalizer(b) - p._log_normalizer(a)
    return norms + ((a - b) * (a.digamma() - a.sum(-1, True).digamma())).sum(-1)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    # Chyzak and Nielsen 2019, "A closed-form formula for the Kullback-Leibler divergence between Cauchy distributions"
    squares = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return squares.log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    norms = p._log_norm() + fb.log1p(-p.probs) - q._log_norm() - fb.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + norms


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    ratio = p.rate / q.rate
    return b * ratio.log() + fb.lgamma(b) - fb.lgamma(a) + (a - b) * fb.digamma(a) + a * (1 / ratio - 1)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - fb.log1p(-q.probs) / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, shift = p.scale / q.scale, (q.loc - p.loc) / q.scale
    spread = fb.exp(shift + (1 + ratio).lgamma())
    return spread - ratio.log() - shift + ratio * euler_constant - (1 + euler_constant)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio, difference = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + difference / q.scale + ratio * fb.exp(-difference / p.scale) - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio, shift = (p.scale / q.scale).pow(2), ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + shift - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    made = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return fb.where(p.scale < q.scale, fb.inf, made)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    made = ((q.high - q.low) / (p.high - p.low)).log()
    return fb.where((q.low > p.low) | (q.high < p.high), fb.inf, made)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL between Independents with different reinterpreted_batch_ndims "
            f"({p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}) is not implemented"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    """A bijective map changes nothing.

    Raises: NotImplementedError if the maps differ.
    """
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between TransformedDistributions with different transforms is not implemented")
    return kl_divergence(p.base_dist, q.base_dist)


# Multivariate normal


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    _check_same_event(p, q, "two Multivariate Normals")
    half_log_dets = _half_log_det(q._unbroadcasted_scale_tril) - _half_log_det(p._unbroadcasted_scale_tril)
    trace = _squares(fb.linalg.solve_triangular(q._unbroadcasted_scale_tril, p._unbroadcasted_scale_tril, upper=False))
    return half_log_dets + 0.5 * (trace + mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc) - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_and_low_rank(p: Any, q: Any) -> Tensor:
    _check_same_event(p, q, "a (Low Rank) Multivariate Normals")
    log_dets = q.log_determinant() - 2 * _half_log_det(p._unbroadcasted_scale_tril)
    return 0.5 * (log_dets + _trace(q, p._unbroadcasted_scale_tril) + q.woodbury_distance(q.loc - p.loc) - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Tensor:
    _check_same_event(p, q, "two Low Rank Multivariate Normals")
    log_dets = q.log_determinant() - p.log_determinant()
    trace = _trace(q, p._unbroadcasted_cov_factor) + _trace(q, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    return 0.5 * (log_dets + trace + q.woodbury_distance(q.loc - p.loc) - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_and_full(p: Any, q: Any) -> Tensor:
    _check_same_event(p, q, "a (Low Rank) Multivariate Normals")
    factor = q._unbroadcasted_scale_tril
    log_dets = 2 * _half_log_det(factor) - p.log_determinant()
    trace = _squares(fb.linalg.solve_triangular(factor, p._unbroadcasted_cov_factor, upper=False))
    trace = trace + _squares(fb.linalg.solve_triangular(factor, p._unbroadcasted_cov_diag.sqrt().diag_embed(), upper=False))
    return 0.5 * (log_dets + trace + mahalanobis(factor, q.loc - p.loc) - p.event_shape[0])


def _check_same_event(p: Any, q: Any, what: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between {what} with different event shapes cannot be computed")


def _half_log_det(factor: Tensor) -> Tensor:
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _squares(matrix: Tensor) -> Tensor:
    return matrix.pow(2).sum((-2, -1))


def _trace(q: Any, factor: Tensor) -> Tensor:
    """``trace(inverse(covariance of q) @ factor @ factor.mT)``, by the Woodbury identity."""
    weighted = q._unbroadcasted_cov_factor.mT / q._unbroadcasted_cov_diag.unsqueeze(-2)
    solved = fb.linalg.solve_triangular(q._capacitance_tril, weighted @ factor, upper=False)
    return (factor.pow(2) / q._unbroadcasted_cov_diag.unsqueeze(-1)).sum((-2, -1)) - _squares(solved)


# Different families: the mean of log q(x) under p


class _Means:
    """Means under `p` of the statistics that densities are made of, and the bounds of its support."""

    low: Any = -math.inf
    high: Any = math.inf

    def __init__(self, p: Any) -> None:
        self.p = p

    def square(self) -> Tensor:
        """E[x**2]."""
        return self.p.variance + self.p.mean.pow(2)

    def log(self) -> Tensor:
        """E[log x]."""
        raise NotImplementedError

    def log_rest(self) -> Tensor:
        """E[log(1 - x)]."""
        raise NotImplementedError

    def exp(self, t: Tensor) -> Tensor:
        """E[exp(t x)] for negative t."""
        raise NotImplementedError


class _OfBeta(_Means):
    low, high = 0.0, 1.0

    def log(self) -> Tensor:
        return self.p.concentration1.digamma() - (self.p.concentration1 + self.p.concentration0).digamma()

    def log_rest(self) -> Tensor:
        return self.p.concentration0.digamma() - (self.p.concentration1 + self.p.concentration0).digamma()


class _OfContinuousBernoulli(_Means):
    low, high = 0.0, 1.0


class _OfExponential(_Means):
    low = 0.0

    def log(self) -> Tensor:
        return -euler_constant - self.p.rate.log()

    def exp(self, t: Tensor) -> Tensor:
        return self.p.rate / (self.p.rate - t)


class _OfGamma(_Means):
    low = 0.0

    def log(self) -> Tensor:
        return self.p.concentration.digamma() - self.p.rate.log()

    def exp(self, t: Tensor) -> Tensor:
        return (1 - t / self.p.rate).pow(-self.p.concentration)


class _OfGumbel(_Means):
    def exp(self, t: Tensor) -> Tensor:
        return fb.exp(t * self.p.loc + (1 - t * self.p.scale).lgamma())


class _OfLaplace(_Means):
    pass


class _OfNormal(_Means):
    def exp(self, t: Tensor) -> Tensor:
        return fb.exp(t * self.p.loc + 0.5 * (t * self.p.scale).pow(2))


class _OfPareto(_Means):
    def __init__(self, p: Any) -> None:
        super().__init__(p)
        self.low = p.scale

    def log(self) -> Tensor:
        return self.p.scale.log() + self.p.alpha.reciprocal()


class _OfUniform(_Means):
    def __init__(self, p: Any) -> None:
        super().__init__(p)
        self.low, self.high = p.low, p.high

    def log(self) -> Tensor:
        return _mean_log(self.p.low, self.p.high)

    def log_rest(self) -> Tensor:
        return _mean_log(1 - self.p.high, 1 - self.p.low)

    def exp(self, t: Tensor) -> Tensor:
        return (fb.exp(t * self.p.high) - fb.exp(t * self.p.low)) / (t * (self.p.high - self.p.low))


def _mean_log(low: Tensor, high: Tensor) -> Tensor:
    """The mean of log x for x uniform between 0 <= `low` and `high`."""
    return (fb.xlogy(high, high) - fb.xlogy(low, low)) / (high - low) - 1


_MEANS: dict[type, type[_Means]] = {
    Beta: _OfBeta,
    ContinuousBernoulli: _OfContinuousBernoulli,
    Exponential: _OfExponential,
    Gamma: _OfGamma,
    Gumbel: _OfGumbel,
    Laplace: _OfLaplace,
    Normal: _OfNormal,
    Pareto: _OfPareto,
    Uniform: _OfUniform,
}


def _log_beta(q: Any, of: _Means) -> Tensor:
    a, b = q.concentration1, q.concentration0
    return (a - 1) * of.log() + (b - 1) * of.log_rest() - q._log_normalizer(a, b)


def _log_continuous_bernoulli(q: Any, of: _Means) -> Tensor:
    return of.p.mean * q.logits + fb.log1p(-q.probs) + q._log_norm()


def _log_exponential(q: Any, of: _Means) -> Tensor:
    return q.rate.log() - q.rate * of.p.mean


def _log_gamma(q: Any, of: _Means) -> Tensor:
    a = q.concentration
    return a * q.rate.log() - a.lgamma() + (a - 1) * of.log() - q.rate * of.p.mean


def _log_gumbel(q: Any, of: _Means) -> Tensor:
    falling = of.exp(-q.scale.reciprocal()) * fb.exp(q.loc / q.scale)
    return -(of.p.mean - q.loc) / q.scale - falling - q.scale.log()


def _log_normal(q: Any, of: _Means) -> Tensor:
    # The mean square distance from q's mean, as variance and distance of means: no cancellation.
    square = of.p.variance + (of.p.mean - q.loc).pow(2)
    return -square / (2 * q.scale.pow(2)) - q.scale.log() - _HALF_LOG_2PI


def _log_pareto(q: Any, of: _Means) -> Tensor:
    return q.alpha * q.scale.log() + q.alpha.log() - (q.alpha + 1) * of.log()


def _log_uniform(q: Any, of: _Means) -> Tensor:
    return -(q.high - q.low).log()


def _log_laplace(q: Any, of: _Means) -> Tensor:
    """For a normal p, whose mean distance from a point is that of a folded normal variable."""
    p = of.p
    difference = p.loc - q.loc
    spread = math.sqrt(2 / math.pi) * p.scale * fb.exp(-0.5 * (difference / p.scale).pow(2))
    return -(spread + difference * fb.erf(difference / (math.sqrt(2) * p.scale))) / q.scale - (2 * q.scale).log()


# The mean of log q, and where q's support begins and ends.
_CROSS: dict[type, tuple[Callable[[Any, _Means], Tensor], Callable[[Any], tuple[Any, Any]]]] = {
    Beta: (_log_beta, lambda q: (0.0, 1.0)),
    ContinuousBernoulli: (_log_continuous_bernoulli, lambda q: (0.0, 1.0)),
    Exponential: (_log_exponential, lambda q: (0.0, math.inf)),
    Gamma: (_log_gamma, lambda q: (0.0, math.inf)),
    Gumbel: (_log_gumbel, lambda q: (-math.inf, math.inf)),
    Laplace: (_log_laplace, lambda q: (-math.inf, math.inf)),
    Normal: (_log_normal, lambda q: (-math.inf, math.inf)),
    Pareto: (_log_pareto, lambda q: (q.scale, math.inf)),
    Uniform: (_log_uniform, lambda q: (q.low, q.high)),
}


def _cross(p: Any, q: Any, means: type[_Means], log_q: Any, bounds: Any) -> Tensor:
    of, (low, high) = means(p), bounds(q)
    like = p.mean + q.mean  # the shape, dtype and device of the answer; no value is used
    inside = (fb.as_tensor(of.low) >= fb.as_tensor(low)) & (fb.as_tensor(of.high) <= fb.as_tensor(high))
    if not inside.any():
        # The statistics of q's density have no mean outside its support.
        return fb.full_like(like, math.inf, requires_grad=False)
    return fb.where(inside, -p.entropy() - log_q(q, of), math.inf)


def _register_crosses() -> None:
    pairs = {
        Beta: (ContinuousBernoulli, Exponential, Gamma, Normal, Pareto, Uniform),
        ContinuousBernoulli: (Exponential, Normal, Pareto, Uniform),
        Exponential: (Beta, ContinuousBernoulli, Gamma, Gumbel, Normal, Pareto, Uniform),
        Gamma: (Beta, ContinuousBernoulli, Exponential, Gumbel, Normal, Pareto, Uniform),
        Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Normal, Pareto, Uniform),
        Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Normal, Pareto, Uniform),
        Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform),
        Pareto: (Beta, ContinuousBernoulli, Exponential, Gamma, Normal, Uniform),
        Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
    }
    for type_p, types_q in pairs.items():
        for type_q in types_q:
            _register_cross(type_p, type_q)


def _register_cross(type_p: type, type_q: type) -> None:
    means, (log_q, bounds) = _MEANS[type_p], _CROSS[type_q]

    @register_kl(type_p, type_q)
    def divergence(p: Any, q: Any) -> Tensor:
        return _cross(p, q, means, log_q, bounds)


_register_crosses()


@register_kl(Bernoulli, Poisson)
def _bernoulli_and_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _poisson_and_bounded(p: Any, q: Any) -> Tensor:
    return fb.full_like(p.rate + q.mean, math.inf, requires_grad=False)
