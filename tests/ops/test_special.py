"""Special functions against scipy, closed forms and published values."""

from __future__ import annotations

from math import inf, isnan, nan, pi

import numpy as np
import pytest
import scipy.special as sc

import flambeau as fb
from comparing import peak_of

POINTS = np.array([0.1, 0.5, 1.0, 2.5, 4.0, 7.5])
PROBABILITIES = np.array([0.01, 0.2, 0.5, 0.8, 0.99])
OF_SCIPY = {
    "i0": sc.i0, "i0e": sc.i0e, "i1": sc.i1, "i1e": sc.i1e, "erfcx": sc.erfcx, "ndtr": sc.ndtr, "log_ndtr": sc.log_ndtr,
    "bessel_j0": sc.j0, "bessel_j1": sc.j1, "bessel_y0": sc.y0, "bessel_y1": sc.y1, "modified_bessel_i0": sc.i0,
    "modified_bessel_i1": sc.i1, "modified_bessel_k0": sc.k0, "modified_bessel_k1": sc.k1,
    "scaled_modified_bessel_k0": sc.k0e, "scaled_modified_bessel_k1": sc.k1e, "airy_ai": lambda x: sc.airy(x)[0],
    "spherical_bessel_j0": lambda x: np.sin(x) / x, "sinc": np.sinc, "digamma": sc.psi, "gammaln": sc.gammaln,
}  # fmt: skip
# Published closed forms of degree 3.
CUBICS = {
    "chebyshev_polynomial_t": lambda x: 4 * x**3 - 3 * x, "chebyshev_polynomial_u": lambda x: 8 * x**3 - 4 * x,
    "chebyshev_polynomial_v": lambda x: 8 * x**3 - 4 * x**2 - 4 * x + 1,
    "chebyshev_polynomial_w": lambda x: 8 * x**3 + 4 * x**2 - 4 * x - 1,
    "hermite_polynomial_h": lambda x: 8 * x**3 - 12 * x, "hermite_polynomial_he": lambda x: x**3 - 3 * x,
    "laguerre_polynomial_l": lambda x: (-(x**3) + 9 * x**2 - 18 * x + 6) / 6,
    "legendre_polynomial_p": lambda x: (5 * x**3 - 3 * x) / 2,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_SCIPY)
def test_agrees_with_scipy(name):
    made = getattr(fb.special, name)(fb.tensor(POINTS))

    np.testing.assert_allclose(made.numpy(), OF_SCIPY[name](POINTS), rtol=1e-12)


def test_ndtri_inverts_ndtr():
    made = fb.special.ndtr(fb.special.ndtri(fb.tensor(PROBABILITIES)))

    np.testing.assert_allclose(made.numpy(), PROBABILITIES, rtol=1e-12)


@pytest.mark.parametrize("name", CUBICS)
def test_polynomials_of_degree_three(name):
    x = np.linspace(-2, 2, 9)
    made = getattr(fb.special, name)(fb.tensor(x), 3)

    np.testing.assert_allclose(made.numpy(), CUBICS[name](x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", "tuvw")
def test_shifted_chebyshev_is_chebyshev_of_the_shifted_argument(kind):
    x = fb.tensor(np.linspace(-0.5, 1.5, 7))
    n = fb.tensor([0, 1, 2, 5, 8, 9, 12])
    made = getattr(fb.special, f"shifted_chebyshev_polynomial_{kind}")(x, n)

    expected = getattr(fb.special, f"chebyshev_polynomial_{kind}")(2 * x - 1, n)
    np.testing.assert_allclose(made.numpy(), expected.numpy())


@pytest.mark.parametrize(("kind", "of_scipy"), [("t", sc.eval_chebyt), ("u", sc.eval_chebyu)])
def test_high_degrees_use_the_closed_form_inside_and_the_recurrence_outside(kind, of_scipy):
    x = np.array([-1.5, -1.0, -0.3, 0.9, 1.0, 1.2])
    made = getattr(fb.special, f"chebyshev_polynomial_{kind}")(fb.tensor(x), 40)

    np.testing.assert_allclose(made.numpy(), of_scipy(40, x), rtol=1e-9)


def test_degrees_are_truncated_and_negative_ones_give_zero():
    n = fb.tensor([2.9, -1.0, -0.5, float("nan"), inf])
    made = fb.special.legendre_polynomial_p(fb.full((5,), 0.5), n)

    assert made.tolist() == [-0.125, 0.0, 1.0, 0.0, 0.0]


def test_incomplete_gamma_of_parameter_one_is_the_exponential_distribution():
    x = fb.tensor(POINTS)
    one = fb.ones_like(x)

    np.testing.assert_allclose(fb.igamma(one, x).numpy(), 1 - np.exp(-POINTS), rtol=1e-12)
    np.testing.assert_allclose(fb.special.gammaincc(one, x).numpy(), np.exp(-POINTS), rtol=1e-12)


def test_zeta_of_two_is_a_sixth_of_pi_squared():
    assert fb.special.zeta(2.0, fb.tensor(1.0, dtype=fb.float64)).item() == pytest.approx(pi**2 / 6, rel=1e-14)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_polygamma_agrees_with_scipy_as_function_and_method(n):
    x = fb.tensor(POINTS)

    np.testing.assert_allclose(fb.polygamma(n, x).numpy(), sc.polygamma(n, POINTS), rtol=1e-12)
    np.testing.assert_allclose(x.polygamma(n).numpy(), sc.polygamma(n, POINTS), rtol=1e-12)


def test_polygamma_refuses_negative_orders():
    with pytest.raises(RuntimeError, match="n=-1"):
        fb.polygamma(-1, fb.ones(1))


def incomplete_gammas(count, dtype=np.float64):
    r = np.random.default_rng(0)
    a = np.exp(r.uniform(-5, 6, count)).astype(dtype)
    return a, (a * np.exp(r.normal(0, 0.5, count))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [12, 40_000])
def test_incomplete_gamma_functions_agree_with_scipy_on_any_number_of_threads(count, dtype):
    a, x = incomplete_gammas(count, dtype)
    before = fb.get_num_threads()
    for name, theirs in (("igamma", sc.gammainc), ("igammac", sc.gammaincc)):
        made = []
        for threads in (1, 2):
            fb.set_num_threads(threads)
            made.append(getattr(fb, name)(fb.from_numpy(a), fb.from_numpy(x)).numpy())
        fb.set_num_threads(before)

        np.testing.assert_array_equal(*made)
        np.testing.assert_allclose(made[0], theirs(a, x), rtol=2e-7 if dtype == np.float32 else 2e-12, atol=1e-300)


def test_an_element_of_an_incomplete_gamma_function_does_not_depend_on_its_neighbours():
    a, x = map(fb.from_numpy, incomplete_gammas(1003))
    order = fb.from_numpy(np.random.default_rng(1).permutation(1003))
    for f in (fb.igamma, fb.igammac):
        assert fb.equal(f(a, x)[order], f(a[order], x[order]))


def test_incomplete_gamma_functions_of_small_parameters_keep_what_is_left_of_the_upper_tail():
    a = fb.tensor([1e-10, 1e-10, 1e-6], dtype=fb.float64)
    x = fb.tensor([1.0, 0.01, 3.0], dtype=fb.float64)

    # E1(x) times the parameter, to first order.
    np.testing.assert_allclose(fb.igammac(a, x).numpy(), a.numpy() * sc.exp1(x.numpy()), rtol=3e-6)


def test_incomplete_gamma_functions_at_the_ends_of_their_range():
    a = fb.tensor([0.0, 0.0, 1.0, 1.0, inf, inf, -1.0, 1.0, nan, 5.0, 1e300])
    x = fb.tensor([1.0, 0.0, 0.0, inf, 1.0, inf, 1.0, -1.0, 1.0, 1e-300, 1e300])

    np.testing.assert_array_equal(fb.igamma(a, x).numpy(), np.float32([1, nan, 0, 1, 0, nan, nan, nan, nan, 0, nan]))
    np.testing.assert_array_equal(fb.igammac(a, x).numpy(), np.float32([0, nan, 1, 0, 1, nan, nan, nan, nan, 1, nan]))


def test_multigammaln_agrees_with_scipy():
    made = fb.special.multigammaln(fb.tensor([2.0, 3.5, 9.0], dtype=fb.float64), 3)

    np.testing.assert_allclose(made.numpy(), [sc.multigammaln(v, 3) for v in (2.0, 3.5, 9.0)], rtol=1e-12)


def test_lgamma_is_infinite_at_both_ends():
    assert fb.lgamma(fb.tensor([-inf, inf])).tolist() == [inf, inf]


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e", "erfcx", "ndtr", "log_ndtr", "sinc"])
def test_first_and_second_derivatives_are_slopes(name):
    x = fb.tensor([-1.5, 0.3, 2.0], dtype=fb.float64, requires_grad=True)
    fn, step = getattr(fb.special, name), 1e-5
    (first,) = fb.autograd.grad(fn(x).sum(), x, create_graph=True)
    (second,) = fb.autograd.grad(first.sum(), x)

    high, low = ((fb.autograd.grad(fn(y).sum(), y)[0], fn(y)) for y in ((x + d).detach().requires_grad_() for d in (step, -step)))
    np.testing.assert_allclose(first.detach().numpy(), ((high[1] - low[1]) / (2 * step)).detach().numpy(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(second.numpy(), ((high[0] - low[0]) / (2 * step)).numpy(), rtol=1e-7, atol=1e-9)


def test_slopes_at_zero_are_finite():
    x = fb.zeros(1, dtype=fb.float64, requires_grad=True)
    total = fb.special.i1(x) + fb.special.i1e(x) + fb.sinc(x)
    total.backward()

    assert x.grad.item() == 1.0


def test_derivative_with_respect_to_the_gamma_parameter_is_refused():
    a = fb.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="igamma"):
        fb.igamma(a, fb.ones(1)).backward()


def test_the_second_derivative_of_digamma_above_and_below_zero():
    x = fb.tensor([0.5, 2.0, -1.5, inf], dtype=fb.float64)
    wanted = [-16.8287966442343, -0.404113806319189, -0.236204051641727]    # by mpmath

    for made in (fb.polygamma(2, x), fb.polygamma(2, x.repeat(300))[:4]):     # on either tier
        np.testing.assert_allclose(made[:3].numpy(), wanted, rtol=1e-13)
        assert isnan(made[3].item())


def test_nan_to_num_of_complex_numbers_replaces_either_part():
    x = fb.tensor([complex(nan, 1), complex(-inf, nan), 2 - 3j]).repeat(2, 1).t()

    made = fb.nan_to_num(x, 5.0, neginf=-7.0)

    assert made[:, 1].tolist() == [5 + 1j, -7 + 5j, 2 - 3j]


def test_many_terms_of_the_multivariate_gamma_function_take_less_memory_than_their_number() -> None:
    p = 1 << 22
    with peak_of() as peak:
        value = fb.mvlgamma(fb.tensor([1e9], dtype=fb.float64), p)

    terms = np.arange(p)
    assert peak() < 8 * p
    assert value.item() == pytest.approx(sc.gammaln(1e9 - terms / 2).sum() + p * (p - 1) / 4 * np.log(np.pi), rel=1e-12)
