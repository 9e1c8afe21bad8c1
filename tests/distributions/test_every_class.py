"""Every class by a closed form or scipy, its derivatives by differences, and every registered divergence by samples.

`CASES` has each distribution of the package once; a test asks that none is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats as st
from scipy.special import betaln, digamma, expit, gammaln, i0, i1, logit

import flambeau as fb
from flambeau import distributions as D
from flambeau.distributions import kl
from flambeau.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from flambeau.distributions.relaxed_categorical import ExpRelaxedCategorical

pytestmark = pytest.mark.filterwarnings("ignore:Singular sample")


class Case(NamedTuple):
    """A distribution and what is known of it; arrays are float64."""

    make: Callable[..., Any]
    params: tuple[Any, ...]  # given to `make` as tensors
    points: Any  # values to compare at
    log_density: Callable[[Any], Any]
    moments: tuple[Any, Any] | None = None  # mean and variance
    entropy: Any = None
    cdf: Callable[[Any], Any] | None = None
    is_discrete: bool = False


def continuous(make: Any, params: Any, points: Any, known: Any) -> Case:
    return Case(make, params, points, known.logpdf, known.stats(), known.entropy(), known.cdf)


def counted(make: Any, params: Any, points: Any, known: Any, entropy: Any = None) -> Case:
    return Case(make, params, points, known.logpmf, known.stats(), entropy, is_discrete=True)


# -- closed forms --------------------------------------------------------------------------------------------------------

A, B, P, TEMPERATURE = 2.5, 1.7, 0.3, 0.7
CHANCES = np.array([0.2, 0.5, 0.3])
MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
ROOT = np.linalg.cholesky(MATRIX)
FACTOR, DIAGONAL, PLACE = np.array([[1.0], [0.5]]), np.array([1.0, 2.0]), np.array([0.3, -0.4])
UNIT, POSITIVE = np.array([0.1, 0.4, 0.85]), np.array([0.2, 0.9, 2.0, 3.1])
SIMPLEX = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
HOT = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
MIXED = np.array([[-2.0, 1.0], [0.5, 1.0]])  # places and scales of two normal distributions


def kumaraswamy(x: Any) -> Any:
    return math.log(A * B) + (A - 1) * np.log(x) + (B - 1) * np.log1p(-(x**A))


def kumaraswamy_moment(n: int) -> float:
    return B * math.exp(betaln(1 + n / A, B))


CONSTANT = 2 * math.atanh(1 - 2 * P) / (1 - 2 * P)
BERNOULLI_MEAN = P / (2 * P - 1) + 1 / (2 * math.atanh(1 - 2 * P))


def relaxed_bernoulli(x: Any) -> Any:
    odds = P / (1 - P)
    below = odds * x**-TEMPERATURE + (1 - x) ** -TEMPERATURE
    return np.log(TEMPERATURE * odds) - (TEMPERATURE + 1) * np.log(x * (1 - x)) - 2 * np.log(below)


def relaxed_one_hot(x: Any) -> Any:
    n = x.shape[-1]
    below = (CHANCES * x**-TEMPERATURE).sum(-1)
    return gammaln(n) + (n - 1) * math.log(TEMPERATURE) - n * np.log(below) + np.log(CHANCES * x ** (-TEMPERATURE - 1)).sum(-1)


def lkj(factor: Any, concentration: float = 1.5) -> Any:
    """Rows of the factor are independent: row k's first k numbers lie in a ball, with a power of one minus their square."""
    n, total = factor.shape[-1], 0.0
    for k in range(1, n):
        power = (n - k - 1 + 2 * concentration - 2) / 2
        volume = k / 2 * math.log(math.pi) + gammaln(power + 1) - gammaln(power + 1 + k / 2)
        total = total + power * np.log(factor[..., k, k] ** 2) - volume
    return total


def logistic_normal(y: Any) -> Any:
    """The stick of length 1 is broken at `z` of what is left; logits of `z` are normal."""
    left = 1 - np.concatenate([np.zeros_like(y[..., :1]), np.cumsum(y[..., :-2], -1)], -1)
    z, n = y[..., :-1] / left, y.shape[-1] - 1
    x = logit(z) + np.log(n - np.arange(n))
    return st.norm(PLACE, [1.0, 2.0]).logpdf(x).sum(-1) - np.log(z * (1 - z) * left).sum(-1)


def choices(x: Any) -> Any:
    return np.log(CHANCES)[x.astype(int)]


def mixture(x: Any) -> Any:
    return np.log((np.array([0.4, 0.6]) * st.norm(*MIXED).pdf(x[..., None])).sum(-1))


CHOICES_ENTROPY = -(CHANCES * np.log(CHANCES)).sum()
COUNT = np.array([0.0, 1.0, 4.0])
LKJ_POINTS = np.linalg.cholesky(np.array([[[1.0, 0.3, -0.2], [0.3, 1.0, 0.5], [-0.2, 0.5, 1.0]], np.eye(3)]))
PLANE = np.array([[0.5, -1.0], [2.0, 0.1]])
normal2 = st.multivariate_normal(PLACE, MATRIX)
low_rank = st.multivariate_normal(PLACE, FACTOR @ FACTOR.T + np.diag(DIAGONAL))

CASES: dict[str, Case] = {
    "Bernoulli": counted(D.Bernoulli, (P,), np.array([0.0, 1.0]), st.bernoulli(P), st.bernoulli(P).entropy()),
    "Beta": continuous(D.Beta, (A, B), UNIT, st.beta(A, B))._replace(cdf=None),
    "Binomial": counted(lambda p: D.Binomial(10, p), (P,), COUNT, st.binom(10, P), st.binom(10, P).entropy()),
    "Categorical": Case(D.Categorical, (CHANCES,), np.array([0.0, 2.0]), choices, None, CHOICES_ENTROPY, None, True),
    "Cauchy": continuous(D.Cauchy, (1.0, 2.0), POSITIVE, st.cauchy(1, 2))._replace(moments=None),
    "Chi2": continuous(D.Chi2, (3.0,), POSITIVE, st.chi2(3)),
    "ContinuousBernoulli": Case(
        D.ContinuousBernoulli, (P,), UNIT, lambda x: np.log(CONSTANT) + x * np.log(P) + (1 - x) * np.log(1 - P),
        (BERNOULLI_MEAN, P * (P - 1) / (1 - 2 * P) ** 2 + 1 / (2 * math.atanh(1 - 2 * P)) ** 2),
        -(math.log(CONSTANT) + BERNOULLI_MEAN * math.log(P) + (1 - BERNOULLI_MEAN) * math.log(1 - P)),
        lambda x: (P**x * (1 - P) ** (1 - x) + P - 1) / (2 * P - 1),
    ),
    "Dirichlet": Case(
        D.Dirichlet, ([0.5, 1.5, 3.0],), SIMPLEX, lambda x: st.dirichlet([0.5, 1.5, 3.0]).logpdf(x.T),
        (st.dirichlet([0.5, 1.5, 3.0]).mean(), st.dirichlet([0.5, 1.5, 3.0]).var()), st.dirichlet([0.5, 1.5, 3.0]).entropy(),
    ),
    "ExpRelaxedCategorical": Case(
        lambda t, p: ExpRelaxedCategorical(t, p), (TEMPERATURE, CHANCES), np.log(SIMPLEX),
        lambda y: relaxed_one_hot(np.exp(y)) + y.sum(-1),
    ),
    "Exponential": continuous(D.Exponential, (2.0,), POSITIVE, st.expon(scale=0.5)),
    "FisherSnedecor": continuous(D.FisherSnedecor, (3.0, 7.0), POSITIVE, st.f(3, 7))._replace(entropy=None, cdf=None),
    "Gamma": continuous(D.Gamma, (3.0, 2.0), POSITIVE, st.gamma(3, scale=0.5)),
    "GeneralizedPareto": continuous(D.GeneralizedPareto, (0.1, 2.0, 0.3), POSITIVE, st.genpareto(0.3, 0.1, 2.0)),
    "Geometric": counted(D.Geometric, (P,), COUNT, st.geom(P, loc=-1), st.geom(P).entropy()),
    "Gumbel": continuous(D.Gumbel, (1.0, 2.0), POSITIVE, st.gumbel_r(1, 2)),
    "HalfCauchy": continuous(D.HalfCauchy, (2.0,), POSITIVE, st.halfcauchy(scale=2)),
    "HalfNormal": continuous(D.HalfNormal, (2.0,), POSITIVE, st.halfnorm(scale=2)),
    "Independent": Case(
        lambda m, s: D.Independent(D.Normal(m, s), 1), (PLACE, [1.0, 2.0]), PLANE,
        lambda x: st.norm(PLACE, [1.0, 2.0]).logpdf(x).sum(-1), (PLACE, [1.0, 4.0]), st.norm([0.0, 0.0], [1.0, 2.0]).entropy().sum(),
    ),
    "InverseGamma": continuous(D.InverseGamma, (3.0, 2.0), POSITIVE, st.invgamma(3, scale=2)),
    "Kumaraswamy": Case(
        D.Kumaraswamy, (A, B), UNIT, kumaraswamy, (kumaraswamy_moment(1), kumaraswamy_moment(2) - kumaraswamy_moment(1) ** 2),
        (1 - 1 / B) + (1 - 1 / A) * (digamma(B + 1) + np.euler_gamma) - math.log(A * B), lambda x: 1 - (1 - x**A) ** B,
    ),
    "LKJCholesky": Case(lambda c: D.LKJCholesky(3, c), (1.5,), LKJ_POINTS, lkj),
    "Laplace": continuous(D.Laplace, (1.0, 2.0), POSITIVE, st.laplace(1, 2)),
    "LogNormal": continuous(D.LogNormal, (0.5, 0.8), POSITIVE, st.lognorm(0.8, scale=math.exp(0.5))),
    "LogisticNormal": Case(D.LogisticNormal, (PLACE, [1.0, 2.0]), SIMPLEX, logistic_normal),
    "LogitRelaxedBernoulli": Case(
        LogitRelaxedBernoulli, (TEMPERATURE, P), logit(UNIT), lambda y: relaxed_bernoulli(expit(y)) + np.log(expit(y) * expit(-y)),
    ),
    "LowRankMultivariateNormal": Case(
        D.LowRankMultivariateNormal, (PLACE, FACTOR, DIAGONAL), PLANE, low_rank.logpdf, (PLACE, np.diag(low_rank.cov)), low_rank.entropy()
    ),
    "MixtureSameFamily": Case(
        lambda m, s: D.MixtureSameFamily(D.Categorical(fb.tensor([0.4, 0.6], dtype=fb.float64)), D.Normal(m, s)), tuple(MIXED), POSITIVE,
        mixture, (-0.2, 0.4 * (0.25 + 1.8**2) + 0.6 * (1 + 1.2**2)), None,
        lambda x: (np.array([0.4, 0.6]) * st.norm(*MIXED).cdf(x[..., None])).sum(-1),
    ),
    "Multinomial": Case(
        lambda p: D.Multinomial(5, p), (CHANCES,), np.array([[1.0, 3.0, 1.0], [0.0, 0.0, 5.0]]), st.multinomial(5, CHANCES).logpmf,
        (5 * CHANCES, 5 * CHANCES * (1 - CHANCES)), st.multinomial(5, CHANCES).entropy(), None, True,
    ),
    "MultivariateNormal": Case(
        lambda m, a: D.MultivariateNormal(m, a @ a.mT), (PLACE, ROOT), PLANE, normal2.logpdf, (PLACE, np.diag(MATRIX)), normal2.entropy()
    ),
    "NegativeBinomial": counted(D.NegativeBinomial, (4.0, P), COUNT, st.nbinom(4, 1 - P)),
    "Normal": continuous(D.Normal, (1.0, 2.0), POSITIVE, st.norm(1, 2)),
    "OneHotCategorical": Case(
        D.OneHotCategorical, (CHANCES,), HOT, lambda x: np.log(x @ CHANCES), (CHANCES, CHANCES * (1 - CHANCES)), CHOICES_ENTROPY, None, True
    ),
    "OneHotCategoricalStraightThrough": Case(
        D.OneHotCategoricalStraightThrough, (CHANCES,), HOT, lambda x: np.log(x @ CHANCES), (CHANCES, CHANCES * (1 - CHANCES)),
        CHOICES_ENTROPY, None, True,
    ),
    "Pareto": continuous(D.Pareto, (0.15, 2.5), POSITIVE, st.pareto(2.5, scale=0.15)),
    "Poisson": counted(D.Poisson, (3.0,), COUNT, st.poisson(3)),
    "RelaxedBernoulli": Case(D.RelaxedBernoulli, (TEMPERATURE, P), UNIT, relaxed_bernoulli),
    "RelaxedOneHotCategorical": Case(D.RelaxedOneHotCategorical, (TEMPERATURE, CHANCES), SIMPLEX, relaxed_one_hot),
    "StudentT": continuous(D.StudentT, (3.0, 1.0, 2.0), POSITIVE, st.t(3, 1, 2))._replace(cdf=None),
    "TransformedDistribution": continuous(
        lambda m, s: D.TransformedDistribution(D.Normal(m, s), [D.ExpTransform()]), (0.5, 0.8), POSITIVE,
        st.lognorm(0.8, scale=math.exp(0.5)),
    )._replace(moments=None, entropy=None),
    "Uniform": continuous(D.Uniform, (0.05, 5.0), POSITIVE, st.uniform(0.05, 4.95)),
    "VonMises": Case(
        D.VonMises, (0.5, 2.0), POSITIVE, st.vonmises(2, loc=0.5).logpdf,
        # The variance is that of the circle: one minus the length of the mean direction.
        (0.5, 1 - float(i1(2.0) / i0(2.0))),
    ),
    "Weibull": continuous(D.Weibull, (2.0, 1.5), POSITIVE, st.weibull_min(1.5, scale=2)),
    "Wishart": Case(
        lambda df, a: D.Wishart(df, a @ a.mT), (4.0, ROOT), np.stack([[[3.0, 1.0], [1.0, 2.0]], MATRIX]),
        lambda x: np.array([st.wishart(4, MATRIX).logpdf(each) for each in x]), (4 * MATRIX, st.wishart(4, MATRIX).var()),
        st.wishart(4, MATRIX).entropy(),
    ),
}  # fmt: skip


def tensors(values: Any) -> list[fb.Tensor]:
    return [fb.tensor(np.asarray(v), dtype=fb.float64) for v in values]


def classes(base: type = D.Distribution) -> set[str]:
    found = {base.__name__} if base.__module__.startswith("flambeau.") else set()
    return found.union(*(classes(sub) for sub in base.__subclasses__()))


def test_every_class_has_a_case() -> None:
    assert classes() - {"Distribution", "ExponentialFamily", "OneSided"} == set(CASES)


every = pytest.mark.parametrize("name", CASES)


@every
def test_densities_are_those_of_closed_forms(name: str) -> None:
    case = CASES[name]
    made, points = case.make(*tensors(case.params)), fb.tensor(case.points)

    np.testing.assert_allclose(made.log_prob(points).numpy(), case.log_density(case.points), rtol=1e-6, atol=1e-9)


@every
def test_moments_entropy_and_chances_are_those_of_closed_forms(name: str) -> None:
    case = CASES[name]
    made, points = case.make(*tensors(case.params)), fb.tensor(case.points)
    if case.moments is not None:
        for found, known in zip((made.mean, made.variance), case.moments, strict=True):
            np.testing.assert_allclose(found.numpy(), known, rtol=1e-6)
    if case.entropy is not None:
        np.testing.assert_allclose(made.entropy().numpy(), case.entropy, rtol=1e-6)
    if case.cdf is not None:
        below = case.cdf(case.points)
        np.testing.assert_allclose(made.cdf(points).numpy(), below, rtol=1e-6)
        if not isinstance(made, (D.Gamma, D.InverseGamma, D.MixtureSameFamily)):  # which have no inverse
            np.testing.assert_allclose(made.icdf(fb.tensor(below)).numpy(), case.points, rtol=1e-6)


@every
def test_derivatives_of_densities_are_differences(name: str) -> None:
    case = CASES[name]
    params, points = tensors(case.params), fb.tensor(case.points)
    D.Distribution.set_default_validate_args(False)  # a step aside leaves simplexes and symmetric matrices
    try:
        given = [p.requires_grad_() for p in params]
        assert fb.autograd.gradcheck(lambda *p: case.make(*p).log_prob(points), given)
        if not case.is_discrete and name != "Uniform":  # whose density has no slope
            at = points.requires_grad_()
            assert fb.autograd.gradcheck(lambda x: case.make(*tensors(case.params)).log_prob(x), [at])
    finally:
        D.Distribution.set_default_validate_args(True)


# -- divergences ---------------------------------------------------------------------------------------------------------

# Two of each class of the table, with tails that samples can tell.
PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "Bernoulli": (lambda: D.Bernoulli(t(0.3)), lambda: D.Bernoulli(t(0.6))),
    "Beta": (lambda: D.Beta(t(2.0), t(3.0)), lambda: D.Beta(t(1.5), t(1.2))),
    "Binomial": (lambda: D.Binomial(4, t(0.3)), lambda: D.Binomial(4, t(0.6))),
    "Categorical": (lambda: D.Categorical(t([0.2, 0.8])), lambda: D.Categorical(t([0.5, 0.5]))),
    "Cauchy": (lambda: D.Cauchy(t(0.0), t(1.0)), lambda: D.Cauchy(t(1.0), t(2.0))),
    "ContinuousBernoulli": (lambda: D.ContinuousBernoulli(t(0.3)), lambda: D.ContinuousBernoulli(t(0.7))),
    "Dirichlet": (lambda: D.Dirichlet(t([2.0, 3.0, 1.5])), lambda: D.Dirichlet(t([1.0, 2.0, 3.0]))),
    "Exponential": (lambda: D.Exponential(t(2.0)), lambda: D.Exponential(t(1.0))),
    "ExponentialFamily": (lambda: D.Chi2(t(3.0)), lambda: D.Chi2(t(5.0))),
    "Gamma": (lambda: D.Gamma(t(3.0), t(2.0)), lambda: D.Gamma(t(2.0), t(1.0))),
    "Geometric": (lambda: D.Geometric(t(0.4)), lambda: D.Geometric(t(0.6))),
    "Gumbel": (lambda: D.Gumbel(t(0.0), t(0.7)), lambda: D.Gumbel(t(0.5), t(1.5))),
    "HalfNormal": (lambda: D.HalfNormal(t(1.0)), lambda: D.HalfNormal(t(2.0))),
    "Independent": (lambda: D.Independent(D.Normal(t([0.0, 1.0]), t(1.0)), 1), lambda: D.Independent(D.Normal(t([1.0, 1.0]), t(2.0)), 1)),
    "Laplace": (lambda: D.Laplace(t(0.0), t(1.0)), lambda: D.Laplace(t(1.0), t(2.0))),
    "LowRankMultivariateNormal": (
        lambda: D.LowRankMultivariateNormal(t(PLACE), t(FACTOR), t(DIAGONAL)),
        lambda: D.LowRankMultivariateNormal(t(PLACE) * 0, t(FACTOR) * 2, t(DIAGONAL)),
    ),
    "MultivariateNormal": (lambda: D.MultivariateNormal(t(PLACE), t(MATRIX)), lambda: D.MultivariateNormal(t(PLACE) * 0, t(MATRIX) * 2)),
    "Normal": (lambda: D.Normal(t(0.5), t(0.5)), lambda: D.Normal(t(0.0), t(1.5))),
    "OneHotCategorical": (lambda: D.OneHotCategorical(t([0.2, 0.8])), lambda: D.OneHotCategorical(t([0.5, 0.5]))),
    "Pareto": (lambda: D.Pareto(t(1.5), t(6.0)), lambda: D.Pareto(t(1.0), t(4.0))),
    "Poisson": (lambda: D.Poisson(t(3.0)), lambda: D.Poisson(t(2.0))),
    "TransformedDistribution": (lambda: D.LogNormal(t(0.0), t(0.5)), lambda: D.LogNormal(t(0.5), t(1.0))),
    "Uniform": (lambda: D.Uniform(t(0.2), t(0.9)), lambda: D.Uniform(t(0.0), t(1.0))),
}


def t(values: Any) -> fb.Tensor:
    return fb.tensor(np.asarray(values), dtype=fb.float64)


TABLE = sorted({(p.__name__, q.__name__) for p, q in kl._KL_REGISTRY if p.__module__.startswith("flambeau.")})


@pytest.mark.parametrize(("first", "second"), TABLE, ids="-".join)
def test_each_registered_divergence_is_the_mean_over_samples(first: str, second: str) -> None:
    p, q = PAIRS[first][0](), PAIRS[second][1]()
    fb.manual_seed(0)
    x = p.sample((20_000,))
    found = D.kl_divergence(p, q).item()
    if not q.support.check(x).all():
        assert found == math.inf
        return
    differences = p.log_prob(x) - q.log_prob(x)
    error = differences.std().item() / math.sqrt(len(x))

    assert found == pytest.approx(differences.mean().item(), abs=5 * error + 1e-9)
    assert error < 0.05
