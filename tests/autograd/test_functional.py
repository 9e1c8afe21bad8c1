"""autograd.functional against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import functional as A


def vector(*values):
    return fb.tensor(values, dtype=fb.float64)


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-12)


X, Y = (0.5, 1.5, -1.0), (2.0, 1.0, 3.0)
ALL_ROWS = [{}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}]


@pytest.mark.parametrize("options", ALL_ROWS)
def test_jacobian_by_result_and_input(options):
    (ab_a, ab_b), (s_a, s_b) = A.jacobian(lambda a, b: (a * b, (a * a).sum()), (vector(*X), vector(*Y)), **options)

    close(ab_a, np.diag(Y)), close(ab_b, np.diag(X)), close(s_a, 2 * np.array(X)), close(s_b, np.zeros(3))


@pytest.mark.parametrize("options", ALL_ROWS)
def test_jacobian_of_one_input_is_a_tensor(options):
    close(A.jacobian(lambda a: a.exp(), vector(*X), **options), np.diag(np.exp(X)))


@pytest.mark.parametrize("options", [{}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}])
def test_hessian(options):
    expected = np.diag(6 * np.array(X)) + np.array([[0, X[2], X[1]], [X[2], 0, X[0]], [X[1], X[0], 0]])

    close(A.hessian(lambda a: (a**3).sum() + a.prod(), vector(*X), **options), expected)


def test_products_agree_with_matrices():
    f = lambda a: (a**3).sum() * a.prod()  # noqa: E731
    x, v = vector(*X), vector(1.0, -2.0, 0.5)
    h = A.hessian(f, x)

    close(A.vhp(f, x, v)[1], v.numpy() @ h.numpy()), close(A.hvp(f, x, v)[1], h.numpy() @ v.numpy())
    close(A.vjp(fb.exp, x, v)[1], v.numpy() * np.exp(X)), close(A.jvp(fb.exp, x, v)[1], v.numpy() * np.exp(X))


def test_results_can_be_differentiated():
    x = vector(*X).requires_grad_()
    jacobian = A.jacobian(lambda a: a**3, x, create_graph=True)

    close(fb.autograd.grad(jacobian.sum(), x)[0], 6 * np.array(X))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: A.jacobian(lambda a: fb.ones(2), vector(*X), strict=True), RuntimeError),
        (lambda: A.jacobian(lambda a: 3.0, vector(*X)), TypeError),
        (lambda: A.jacobian(lambda a: a, (vector(*X), 3.0)), TypeError),
        (lambda: A.jacobian(lambda a: a, vector(*X), strategy="forward-mode"), NotImplementedError),
        (lambda: A.jacobian(lambda a: a, vector(*X), strict=True, vectorize=True), RuntimeError),
        (lambda: A.vjp(lambda a: a, vector(*X)), RuntimeError),
        (lambda: A.vjp(lambda a: a, vector(*X), vector(1.0)), RuntimeError),
        (lambda: A.hessian(lambda a: a, vector(*X)), RuntimeError),
        (lambda: A.vhp(lambda a: a.sum(), vector(*X), vector(*Y), strict=True), RuntimeError),
    ],
)
def test_what_is_refused(call, error):
    with pytest.raises(error):
        call()
