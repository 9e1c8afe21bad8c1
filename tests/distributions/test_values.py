"""Distributions against scipy, closed forms, Monte Carlo and finite differences."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.stats as st

import flambeau as fb
from flambeau import distributions as D
from flambeau_kernels.cpu.random import implicit

DENSITIES = [
    (D.Normal(1.0, 2.0), st.norm(1, 2)),
    (D.Laplace(1.0, 2.0), st.laplace(1, 2)),
    (D.Cauchy(1.0, 2.0), st.cauchy(1, 2)),
    (D.Gumbel(1.0, 2.0), st.gumbel_r(1, 2)),
    (D.StudentT(3.0, 1.0, 2.0), st.t(3, 1, 2)),
    (D.Uniform(0.0, 5.0), st.uniform(0, 5)),
    (D.Exponential(2.0), st.expon(scale=0.5)),
    (D.Gamma(3.0, 2.0), st.gamma(3, scale=0.5)),
    (D.Chi2(3.0), st.chi2(3)),
    (D.InverseGamma(3.0, 2.0), st.invgamma(3, scale=2)),
    (D.FisherSnedecor(3.0, 7.0), st.f(3, 7)),
    (D.HalfNormal(2.0), st.halfnorm(scale=2)),
    (D.HalfCauchy(2.0), st.halfcauchy(scale=2)),
    (D.LogNormal(0.5, 0.8), st.lognorm(0.8, scale=np.exp(0.5))),
    (D.Weibull(2.0, 1.5), st.weibull_min(1.5, scale=2)),
    (D.Pareto(0.3, 2.5), st.pareto(2.5, scale=0.3)),
    (D.GeneralizedPareto(0.1, 2.0, 0.3), st.genpareto(0.3, 0.1, 2.0)),
    (D.GeneralizedPareto(0.1, 2.0, 0.0), st.genpareto(0.0, 0.1, 2.0)),
    (D.VonMises(0.5, 2.0), st.vonmises(2, loc=0.5)),
]


@pytest.mark.parametrize(("ours", "theirs"), DENSITIES, ids=lambda d: type(d).__name__)
def test_densities_are_scipys(ours, theirs):
    x = fb.tensor([0.4, 0.9, 2.0, 3.0])

    np.testing.assert_allclose(ours.log_prob(x).numpy(), theirs.logpdf(x.numpy()), rtol=1e-4, atol=1e-5)
    for method in ("cdf", "entropy"):
        try:
            got = getattr(ours, method)(*([x] if method == "cdf" else []))
        except NotImplementedError:
            continue
        want = theirs.cdf(x.numpy()) if method == "cdf" else theirs.entropy()
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


COUNTS = [
    (D.Poisson(3.0), st.poisson(3)),
    (D.Binomial(10, fb.tensor(0.3)), st.binom(10, 0.3)),
    (D.NegativeBinomial(4.0, fb.tensor(0.3)), st.nbinom(4, 0.7)),
    (D.Geometric(0.3), st.geom(0.3, loc=-1)),
    (D.Bernoulli(0.3), st.bernoulli(0.3)),
]


@pytest.mark.parametrize(("ours", "theirs"), COUNTS, ids=lambda d: type(d).__name__)
def test_probabilities_of_counts_are_scipys(ours, theirs):
    k = fb.tensor([0.0, 1.0])

    np.testing.assert_allclose(ours.log_prob(k).exp().numpy(), theirs.pmf(k.numpy()), rtol=1e-4)
    np.testing.assert_allclose([ours.mean.item(), ours.variance.item()], theirs.stats(), rtol=1e-4)


def test_vectors_and_matrices_are_scipys():
    matrix, point = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[3.0, 1.0], [1.0, 2.0]])
    wishart = D.Wishart(fb.tensor(4.0), fb.tensor(matrix, dtype=fb.float32))
    normal = D.MultivariateNormal(fb.zeros(2), fb.tensor(matrix, dtype=fb.float32))
    counts = D.Multinomial(5, fb.tensor([0.2, 0.8]))
    dirichlet = D.Dirichlet(fb.tensor([0.5, 1.5, 3.0]))

    assert wishart.log_prob(fb.tensor(point, dtype=fb.float32)).item() == pytest.approx(st.wishart(4, matrix).logpdf(point), rel=1e-5)
    assert wishart.entropy().item() == pytest.approx(st.wishart(4, matrix).entropy(), rel=1e-5)
    assert normal.log_prob(fb.ones(2)).item() == pytest.approx(st.multivariate_normal([0, 0], matrix).logpdf([1, 1]), rel=1e-5)
    assert counts.log_prob(fb.tensor([2.0, 3.0])).exp().item() == pytest.approx(st.multinomial(5, [0.2, 0.8]).pmf([2, 3]), rel=1e-5)
    assert counts.entropy().item() == pytest.approx(float(st.multinomial(5, [0.2, 0.8]).entropy()), rel=1e-4)
    assert dirichlet.entropy().item() == pytest.approx(st.dirichlet([0.5, 1.5, 3.0]).entropy(), rel=1e-4)


def test_low_rank_normals_are_full_ones():
    factor, diagonal = fb.randn(5, 2), fb.rand(5) + 0.5
    low = D.LowRankMultivariateNormal(fb.randn(3, 5), factor, diagonal)
    full = D.MultivariateNormal(low.loc, factor @ factor.mT + diagonal.diag())
    other = D.MultivariateNormal(fb.zeros(5), scale_tril=fb.eye(5) * 2)
    x = fb.randn(4, 3, 5)

    for name in ("covariance_matrix", "precision_matrix", "scale_tril", "variance"):
        assert fb.allclose(getattr(low, name), getattr(full, name), atol=1e-4), name
    assert fb.allclose(low.log_prob(x), full.log_prob(x), atol=1e-3)
    assert fb.allclose(low.entropy(), full.entropy(), atol=1e-4)
    assert fb.allclose(D.kl_divergence(low, other), D.kl_divergence(full, other), atol=1e-3)
    assert fb.allclose(D.kl_divergence(other, low), D.kl_divergence(other, full), atol=1e-3)
    assert D.kl_divergence(low, full).abs().max() < 1e-3


@pytest.mark.parametrize("alpha", [0.05, 0.7, 1.0, 4.0, 60.0, 3000.0])
def test_gamma_numbers_follow_their_shape_as_quantiles_do(alpha):
    from scipy.special import gammaincinv

    p = np.array([1e-3, 0.1, 0.5, 0.9, 0.999])
    step = 1e-5 * alpha
    wanted = (gammaincinv(alpha + step, p) - gammaincinv(alpha - step, p)) / (2 * step)

    np.testing.assert_allclose(implicit.gamma_slope(alpha, gammaincinv(alpha, p)), wanted, rtol=2e-4, atol=1e-12)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.5), (2.0, 3.0), (0.5, 40.0), (300.0, 2.0), (500.0, 700.0)])
def test_beta_numbers_follow_their_concentration_as_quantiles_do(a, b):
    from scipy.special import betaincinv

    p = np.array([1e-3, 0.1, 0.5, 0.9, 0.99])
    step = 1e-5 * a
    wanted = (betaincinv(a + step, b, p) - betaincinv(a - step, b, p)) / (2 * step)
    found = implicit.beta_slope(betaincinv(a, b, p), np.array(a), np.array(b))

    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (D.Gamma(3.0, 2.0), D.Normal(1.0, 2.0)),
        (D.Uniform(0.2, 0.9), D.Beta(2.0, 3.0)),
        (D.Normal(0.5, 2.0), D.Laplace(0.0, 1.0)),
        (D.Exponential(2.0), D.Gumbel(0.0, 1.0)),
        (D.Beta(2.0, 3.0), D.ContinuousBernoulli(0.2)),
        (D.Pareto(1.5, 4.0), D.Gamma(2.0, 1.0)),
        (D.Gumbel(0.0, 1.0), D.Normal(1.0, 2.0)),
    ],
    ids=lambda d: type(d).__name__,
)
def test_divergences_are_those_of_samples(p, q):
    fb.manual_seed(0)
    x = p.sample((200_000,))

    assert D.kl_divergence(p, q).item() == pytest.approx((p.log_prob(x) - q.log_prob(x)).mean().item(), rel=0.02, abs=0.005)


def test_mixtures():
    weights, parts = D.Categorical(fb.tensor([0.3, 0.7])), D.Normal(fb.tensor([-2.0, 1.0]), fb.tensor([0.5, 1.0]))
    mixture = D.MixtureSameFamily(weights, parts)
    x = mixture.sample((100_000,))

    assert mixture.mean.item() == pytest.approx(0.1, abs=1e-5)
    assert x.mean().item() == pytest.approx(0.1, abs=0.02)
    assert x.var().item() == pytest.approx(mixture.variance.item(), rel=0.02)
    assert mixture.cdf(fb.tensor(-2.0)).item() == pytest.approx(0.3 * 0.5 + 0.7 * st.norm.cdf(-3), abs=1e-5)
    assert mixture.expand((4,)).log_prob(fb.zeros(4)).shape == (4,)


def test_a_subclass_with_its_own_constructor_has_to_expand_itself():
    class Shifted(D.Normal):
        def __init__(self, loc):
            super().__init__(loc, 1.0)

    with pytest.raises(NotImplementedError, match="expand"):
        Shifted(fb.zeros(2)).expand((3, 2))


def test_a_subclass_fills_the_instance_it_hands_over():
    class Named(D.Normal):
        def __init__(self, loc, name):
            super().__init__(loc, 1.0)
            self.name = name

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Named, _instance)
            new.name = self.name + "!"
            return super().expand(batch_shape, _instance=new)

    grown = Named(fb.zeros(2), "a").expand((3, 2))

    assert (grown.name, grown.batch_shape, grown.loc.shape) == ("a!", (3, 2), (3, 2))


def test_probs_are_computed_once_and_keep_their_gradient():
    logits = fb.zeros(3, requires_grad=True)
    categorical = D.Categorical(logits=logits)
    with fb.no_grad():
        probs = categorical.probs

    assert categorical.probs is probs
    assert probs.requires_grad


def test_validation_can_be_switched_off():
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="value"):
        D.Distribution.set_default_validate_args(3)


def test_second_derivatives_of_gamma_samples_are_refused():
    alpha = fb.tensor(2.0, requires_grad=True)
    (slope,) = fb.autograd.grad(D.Gamma(alpha, 1.0).rsample(), alpha, create_graph=True)

    with pytest.raises(NotImplementedError, match="second derivatives"):
        slope.backward()


def test_a_wishart_samples_mean():
    fb.manual_seed(0)
    wishart = D.Wishart(fb.tensor(5.0), fb.tensor([[2.0, 0.5], [0.5, 1.0]]))
    x = wishart.sample((20_000,))

    assert fb.allclose(x.mean(0), wishart.mean, rtol=0.03)
    assert fb.allclose(x.var(0), wishart.variance, rtol=0.06)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_coins_of_chances_in_any_memory_order_are_pytorchs(oracle, shape):
    for lib, found in ((oracle, theirs := []), (fb, ours := [])):
        chances = lib.tensor(np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(shape))
        for p in (chances.T, chances[0].expand(4, -1), chances):
            lib.manual_seed(3)
            found.append(lib.bernoulli(p).tolist())
            found.append(lib.empty(p.shape[::-1]).T.bernoulli_(p).tolist())

    assert ours == theirs


def test_a_transformed_distribution_keeps_the_parameters_it_was_given():
    loc = fb.zeros(3, requires_grad=True)

    d = D.LogNormal(loc, fb.ones(3))

    assert d.base_dist.loc is loc
    assert copy.deepcopy(d).loc.tolist() == [0.0] * 3


def test_weights_by_column_get_the_exponential_numbers_of_their_order_of_memory():
    weights = fb.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 1.0, 5.0], [2.0, 9.0, 1.0]])

    fb.manual_seed(0)
    found = fb.multinomial(weights.t(), 2)

    fb.manual_seed(0)
    chances = weights / fb.empty(4, 3).exponential_()
    assert found.tolist() == chances.t().topk(2).indices.tolist()


def test_parameters_of_one_number_are_shown_as_they_are():
    assert repr(D.Normal(0.0, fb.tensor(2.0, requires_grad=True))) == "Normal(loc: 0.0, scale: 2.0)"
    assert repr(D.Normal(fb.tensor([0.5]), fb.ones(1))) == "Normal(loc: tensor([0.5000]), scale: tensor([1.]))"
    assert repr(D.Normal(fb.zeros(2), 1.0)) == "Normal(loc: torch.Size([2]), scale: torch.Size([2]))"
