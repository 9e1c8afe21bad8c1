"""grad, vjp, jvp, jacobians and their nestings, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as fb
from flambeau import func


def close(found, expected, tolerance=1e-12):
    expected = expected.detach().numpy() if isinstance(expected, fb.Tensor) else np.asarray(expected)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def vector(*values):
    return fb.tensor(values, dtype=fb.float64)


def test_grad_of_grad_of_sine_is_minus_sine():
    close(func.grad(func.grad(fb.sin))(vector(1.0)[0]), -math.sin(1.0))


def test_grad_leaves_no_history_unless_something_outside_needs_it():
    x, w = vector(1.0, 2.0), vector(3.0, 4.0).requires_grad_()

    plain = func.grad(lambda v: (v * v).sum())(x)
    tied = func.grad(lambda v: (v * v * w).sum())(x)

    assert not plain.requires_grad
    assert tied.requires_grad
    close(fb.autograd.grad(tied.sum(), w)[0], 2 * x)


def test_grad_with_auxiliary_result_and_argnums():
    f = lambda a, b: ((a * b).sum(), a + b)  # noqa: E731
    (ga, gb), aux = func.grad(f, argnums=(0, 1), has_aux=True)(vector(1.0, 2.0), vector(3.0, 4.0))

    close(ga, [3, 4]), close(gb, [1, 2]), close(aux, [4, 6])
    assert not aux.requires_grad


@pytest.mark.parametrize("f", [lambda x: x, lambda x: 3.0])
def test_grad_wants_a_scalar(f):
    with pytest.raises(RuntimeError, match=r"return a (scalar )?tensor"):
        func.grad(f)(vector(1.0, 2.0))


def test_grad_of_a_position_that_is_not_there():
    with pytest.raises(RuntimeError, match="argnum=2"):
        func.grad(lambda x: x.sum(), argnums=2)(vector(1.0))


def test_no_grad_around_a_transform_does_not_switch_it_off():
    with fb.no_grad():
        close(func.grad(lambda v: (v**3).sum())(vector(2.0)), [12.0])


def test_vjp_of_several_results():
    x, y = vector(1.0, 2.0), vector(3.0, 5.0)
    (product, total), pull = func.vjp(lambda a, b: (a * b, a.sum()), x, y)

    ga, gb = pull((vector(1.0, 10.0), vector(7.0)[0]))

    close(product, [3, 10]), close(total, 3.0)
    close(ga, [3 + 7, 50 + 7]), close(gb, [1, 20])


def test_vjp_refuses_cotangents_of_another_structure():
    _, pull = func.vjp(lambda a: (a, a), vector(1.0))
    with pytest.raises(RuntimeError, match="structure of cotangents"):
        pull(vector(1.0))


def test_jvp_of_softmax_matches_its_formula():
    x, t = vector(0.1, 0.7, -0.3), vector(1.0, -2.0, 0.5)
    y, tangent = func.jvp(lambda a: fb.softmax(a, 0), (x,), (t,))

    p = np.exp(x.numpy()) / np.exp(x.numpy()).sum()
    close(y, p), close(tangent, p * (t.numpy() - (p * t.numpy()).sum()))


def test_jvp_of_an_independent_result_is_zero_or_an_error():
    f = lambda a: fb.ones(2)  # noqa: E731

    close(func.jvp(f, (vector(1.0),), (vector(1.0),))[1], [0, 0])
    with pytest.raises(RuntimeError, match="independent"):
        func.jvp(f, (vector(1.0),), (vector(1.0),), strict=True)


def test_linearize_runs_the_function_once():
    calls = []

    def f(a):
        calls.append(1)
        return (a**3).cumsum(0)

    y, push = func.linearize(f, vector(1.0, 2.0))

    close(push(vector(1.0, 0.0)), [3, 3]), close(push(vector(0.0, 1.0)), [0, 12]), close(y, [1, 9])
    assert len(calls) == 1


X = (0.5, 1.5, -1.0)
HESSIAN = np.array([[0.0, X[2], X[1]], [X[2], 0.0, X[0]], [X[1], X[0], 0.0]]) + np.diag([6 * x for x in X])


@pytest.mark.parametrize("outer", [func.jacfwd, func.jacrev])
@pytest.mark.parametrize("inner", [func.jacfwd, func.jacrev, func.grad])
def test_every_nesting_gives_the_hessian(outer, inner):
    f = lambda x: (x**3).sum() + x.prod()  # noqa: E731

    close(outer(inner(f))(vector(*X)), HESSIAN)


def test_hessian_of_each_example():
    f = lambda x: (x**3).sum() + x.prod()  # noqa: E731
    found = fb.vmap(func.hessian(f))(fb.stack([vector(*X), 2 * vector(*X)]))

    close(found[0], HESSIAN), close(found[1], 2 * HESSIAN)


def test_third_derivative():
    f = lambda x: x.exp() * x  # noqa: E731
    third = func.grad(func.jacfwd(func.jacrev(f)))(vector(0.3)[0])

    close(third, math.exp(0.3) * (0.3 + 3))


@pytest.mark.parametrize("jacobian", [func.jacfwd, func.jacrev])
def test_jacobian_by_argument_and_result(jacobian):
    f = lambda a, b: {"product": a * b, "sum": a.sum()}  # noqa: E731
    found = jacobian(f, argnums=(0, 1))(vector(1.0, 2.0), vector(3.0, 4.0))

    close(found["product"][0], [[3, 0], [0, 4]]), close(found["product"][1], [[1, 0], [0, 2]])
    close(found["sum"][0], [1, 1]), close(found["sum"][1], [0, 0])


def test_jacrev_in_chunks():
    x = vector(*X)
    close(func.jacrev(fb.exp, chunk_size=2)(x), np.diag(np.exp(X)))


def test_gradients_of_each_example_through_a_module():
    fb.manual_seed(0)
    module = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.Tanh(), fb.nn.Linear(4, 1)).double()
    parameters = dict(module.named_parameters())
    x = fb.randn(5, 3, dtype=fb.float64)
    loss = lambda p, row: func.functional_call(module, p, (row,)).pow(2).sum()  # noqa: E731

    found = fb.vmap(func.grad(loss), in_dims=(None, 0))(parameters, x)

    for i, row in enumerate(x):
        module.zero_grad()
        module(row).pow(2).sum().backward()
        for name, p in parameters.items():
            close(found[name][i], p.grad)


def test_gradients_of_each_example_through_a_convolution():
    fb.manual_seed(0)
    conv = fb.nn.Conv2d(2, 3, 3, padding=1).double()
    parameters = dict(conv.named_parameters())
    x = fb.randn(4, 2, 5, 5, dtype=fb.float64)
    loss = lambda p, image: func.functional_call(conv, p, (image[None],)).sin().sum()  # noqa: E731

    found = fb.vmap(func.grad(loss), in_dims=(None, 0))(parameters, x)

    for i in range(4):
        conv.zero_grad()
        conv(x[i : i + 1]).sin().sum().backward()
        close(found["weight"][i], conv.weight.grad, 1e-10), close(found["bias"][i], conv.bias.grad, 1e-10)


def test_an_ensemble_of_modules():
    fb.manual_seed(0)
    modules = [fb.nn.Linear(3, 2).double() for _ in range(4)]
    parameters, buffers = func.stack_module_state(modules)
    x = fb.randn(5, 3, dtype=fb.float64)

    found = fb.vmap(lambda p, b: func.functional_call(modules[0], (p, b), (x,)))(parameters, buffers)

    for one, module in zip(found, modules, strict=True):
        close(one, module(x))
    assert parameters["weight"].shape == (4, 2, 3)
    assert parameters["weight"].is_leaf
    assert parameters["weight"].requires_grad


def test_stack_module_state_refuses_what_does_not_fit():
    with pytest.raises(RuntimeError, match="at least one model"):
        func.stack_module_state([])
    with pytest.raises(RuntimeError, match="same class"):
        func.stack_module_state([fb.nn.Linear(1, 1), fb.nn.ReLU()])


class Cube(fb.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


def test_custom_functions_under_transforms():
    x = fb.arange(6, dtype=fb.float64).reshape(3, 2)

    close(fb.vmap(Cube.apply)(x), x**3)
    close(fb.vmap(func.grad(lambda row: Cube.apply(row).sum()))(x), 3 * x**2)
    close(func.grad(func.grad(Cube.apply))(vector(2.0)[0]), 12.0)


def test_custom_function_without_a_rule_cannot_be_mapped():
    class Plain(Cube):
        generate_vmap_rule = False

    with pytest.raises(RuntimeError, match="does not have vmap support"):
        fb.vmap(Plain.apply)(fb.ones(2))


def test_gradients_of_complex_results_are_refused() -> None:
    with pytest.raises(RuntimeError, match="real scalar outputs"):
        fb.func.grad(lambda x: x.sum() * 1j)(fb.ones(3))
    with pytest.raises(ValueError, match="chunk_size"):
        fb.vmap(fb.sin, chunk_size=-1)(fb.ones(3))


@pytest.mark.parametrize("x", [[0.3, -1.0, 2.0], [-900.0, 1.0, 2.0], [1.0, 900.0, -3.0]])
def test_forward_mode_of_logcumsumexp_is_the_share_of_each_element(x):
    x = fb.tensor(x, dtype=fb.float64)
    shares = fb.tril((x - x.logcumsumexp(0)[:, None]).exp())

    assert fb.allclose(fb.func.jacfwd(lambda a: a.logcumsumexp(0))(x), shares, rtol=1e-12)
    assert fb.allclose(fb.func.jacrev(lambda a: a.logcumsumexp(0))(x), shares, rtol=1e-12)


def test_the_hessian_of_a_square_of_logcumsumexp():
    x = fb.tensor([0.3, -1.0, 2.0], dtype=fb.float64)
    out = x.logcumsumexp(0)
    shares = fb.tril((x - out[:, None]).exp())
    # The Hessian of each out is diag(shares) - shares shares^T.
    expected = sum(2 * (s.outer(s) + o * (s.diag() - s.outer(s))) for o, s in zip(out, shares, strict=True))

    found = fb.func.hessian(lambda a: a.logcumsumexp(0).pow(2).sum())(x)

    assert fb.allclose(found, expected, rtol=1e-12)
    assert not found.requires_grad


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: x.clone().mul_(x).add_(x), lambda x: 2 * x + 1),
        (lambda x: x.clone().copy_(x.exp()) * x, lambda x: x.exp() * (1 + x)),
        (lambda x: x.clone().sin_() + x.cos(), lambda x: x.cos() - x.sin()),
    ],
)
def test_what_is_written_to_a_copy_does_not_reach_the_tangents_of_its_source(f, slope):
    x = fb.tensor([0.3, -1.0, 2.0], dtype=fb.float64)

    assert fb.allclose(fb.func.jacfwd(f)(x), slope(x).diag(), rtol=1e-12)
    assert fb.allclose(fb.func.jvp(f, (x,), (fb.ones_like(x),))[1], slope(x), rtol=1e-12)
