"""Logarithms of products and sums against scipy, where overflow and zeros would spoil them."""

from __future__ import annotations

import numpy as np
from scipy import special

import flambeau as fb

INF, NAN = np.inf, np.nan
X = np.array([0.0, 0.0, 0.0, 1.0, 2.0, -1.0, NAN])
Y = np.array([0.0, 2.0, NAN, 0.0, 3.0, 2.0, 1.0])


def test_xlogy_and_xlog1py_are_zero_at_zero() -> None:
    np.testing.assert_allclose(fb.xlogy(fb.tensor(X), fb.tensor(Y)).numpy(), special.xlogy(X, Y))
    np.testing.assert_allclose(fb.special.xlog1py(fb.tensor(X), fb.tensor(Y)).numpy(), special.xlog1py(X, Y))
    np.testing.assert_allclose(fb.xlogy(2.0, fb.tensor(Y[3:5])).numpy(), special.xlogy(2.0, Y[3:5]))


def test_the_gradient_of_xlogy_at_zero_is_finite() -> None:
    x, y = fb.zeros(2, requires_grad=True), fb.tensor([0.0, 2.0])
    fb.xlogy(x, y).sum().backward()

    np.testing.assert_allclose(x.grad.numpy(), [0, np.log(2)], rtol=1e-6)


def test_entr_is_minus_infinity_below_zero() -> None:
    p = np.array([-1.0, 0.0, 0.5, 1.0, NAN])

    np.testing.assert_allclose(fb.special.entr(fb.tensor(p)).numpy(), special.entr(p))


def test_logit_inverts_sigmoid_and_may_be_kept_finite() -> None:
    p = np.array([0.0, 1e-3, 0.5, 0.9, 1.0, 1.5])

    np.testing.assert_allclose(fb.logit(fb.tensor(p)).numpy(), special.logit(p))
    np.testing.assert_allclose(fb.logit(fb.tensor(p), 0.1).numpy(), special.logit(np.clip(p, 0.1, 0.9)))


def test_logaddexp_neither_overflows_nor_loses_infinities() -> None:
    a, b = np.array([1e4, -INF, INF, -INF, 0.0]), np.array([1e4, -INF, INF, 3.0, 1.0])

    np.testing.assert_allclose(fb.logaddexp(fb.tensor(a), fb.tensor(b)).numpy(), np.logaddexp(a, b))
    np.testing.assert_allclose(fb.logaddexp2(fb.tensor(a), fb.tensor(b)).numpy(), np.logaddexp2(a, b))


def test_logaddexp_of_complex_values() -> None:
    a, b = np.array([1 + 2j, -3j]), np.array([0.5j, 2 + 0j])

    np.testing.assert_allclose(fb.logaddexp(fb.tensor(a), fb.tensor(b)).numpy(), np.log(np.exp(a) + np.exp(b)))
