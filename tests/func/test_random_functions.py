"""A short run of `random_functions.py`, which is the command for long ones, and what it has found."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb
from flambeau.func import grad, hessian, jacfwd, jacrev, jvp, vmap


@pytest.fixture(scope="module")
def random_functions() -> Any:
    spec = importlib.util.spec_from_file_location("random_functions", Path(__file__).with_name("random_functions.py"))
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["random_functions"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("seed", [0, 100_000])
def test_random_functions_are_transformed_as_pytorch_transforms_them(random_functions: Any, oracle: Any, seed: int) -> None:
    for at in range(seed, seed + 30):
        few = random.Random(at).sample(sorted(random_functions.TRANSFORMS), 8)
        assert not random_functions.found(fb, oracle, at, few)


def test_a_function_that_disagrees_is_found(random_functions: Any, oracle: Any) -> None:
    class Wrong:
        def __getattr__(self, name: str) -> Any:
            return fb.ones if name == "zeros" else fb.ones_like if name == "zeros_like" else getattr(fb, name)

    assert any(random_functions.found(Wrong(), oracle, at, ["jacrev"]) for at in range(20))


X = fb.tensor([[1.0, -2.0, 3.0], [-0.5, 2.0, 0.75]], dtype=fb.float64)
ONES = fb.ones_like(X)


def equal(found: fb.Tensor, expected: fb.Tensor) -> None:
    fb.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_what_an_inplace_operation_overwrites_is_kept_for_gradients_under_transforms():
    clamped = lambda x: x.clone().clamp_(0.0).sum()  # noqa: E731
    powered = lambda x: (x.clone().exp_() * 2).sum()  # noqa: E731

    equal(vmap(grad(clamped))(X), (X > 0).double())
    equal(jacfwd(grad(powered))(X[0]), (2 * X[0].exp()).diag())
    equal(jvp(grad(powered), (X,), (X,))[1], 2 * X.exp() * X)
    equal(grad(lambda x: jvp(powered, (x,), (ONES,))[1])(X), 2 * X.exp())


def test_as_strided_in_forward_mode_is_of_the_storage_around_a_view():
    tangent = X.flip(0) * 10

    equal(jvp(lambda x: x[:, 1].as_strided((2, 2), (1, 2), 1) * 2, (X,), (tangent,))[1], tangent.as_strided((2, 2), (1, 2), 1) * 2)
    jacobian = jacfwd(lambda x: x.as_strided((2, 2), (1, 2), 1) * 2)(X)
    equal(jacobian, jacrev(lambda x: x.as_strided((2, 2), (1, 2), 1) * 2)(X))
    part = fb.arange(10.0)[2:5]
    equal(jvp(lambda x: x.as_strided((3,), (1,), 0) * 2, (part,), (fb.ones(3),))[1], fb.tensor([0.0, 0.0, 2.0]))


def test_what_is_written_in_a_view_reaches_the_tangent_of_its_base():
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x.clone()
        y.as_strided((2, 2), (1, 2), 1).mul_(3)
        fb.view_as_complex(y.view(3, 2)).mul_(2)
        return y

    given = X.t().clone().t()                         # a tangent that does not lie in memory as `X` does
    factors = fb.tensor([[2.0, 6.0, 6.0], [6.0, 6.0, 2.0]], dtype=fb.float64)
    equal(jvp(f, (X,), (given,))[1], given * factors)


def test_views_follow_what_is_written_in_their_base_later():
    def f(x: fb.Tensor) -> fb.Tensor:
        y = fb.zeros_like(x)
        view = y.view(-1)
        y.copy_(x)
        return (view**3).sum()

    equal(jvp(f, (X,), (ONES,))[1], (3 * X**2).sum())
    equal(hessian(f)(X).reshape(6, 6), (6 * X).reshape(-1).diag())
    equal(vmap(jacfwd(f))(fb.stack([X, X * 2])), fb.stack([3 * X**2, 12 * X**2]))


@pytest.mark.parametrize("outer", [jacfwd, jacrev])
def test_second_derivatives_of_functions_that_look_at_values_and_fill_a_result(outer: Any):
    def f(x: fb.Tensor) -> fb.Tensor:
        out = fb.zeros(3, dtype=x.dtype)
        for i in range(3):
            out[i] = x[i] ** 3 if x[i] > 0 else x[i] * x.max().item()
        return out.sum() + x[x > 0].sum()

    equal(outer(grad(f))(X[0]), fb.tensor([6.0, 0.0, 18.0], dtype=fb.float64).diag())
    equal(hessian(f)(X[0]), fb.tensor([6.0, 0.0, 18.0], dtype=fb.float64).diag())


def test_a_function_of_examples_still_may_not_look_at_values():
    with pytest.raises(RuntimeError, match="data-dependent"):
        vmap(grad(lambda x: x.sum() if x.sum() > 0 else x.prod()))(X)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda x: fb.zeros(3, dtype=x.dtype).copy_(x))(X)


def test_as_strided_of_an_example_does_not_reach_others():
    with pytest.raises(RuntimeError, match="can access memory outside of `tensor`"):
        vmap(lambda x: x.as_strided((2,), (1,), 2))(X)
    equal(vmap(lambda x: x.as_strided((2,), (2,), 0))(X), X[:, ::2])


def test_rows_and_columns_by_separate_indices_of_an_example():
    i, j = fb.tensor([0, 1]), fb.tensor([2, 0])
    xs = fb.arange(24.0).view(2, 2, 2, 3)

    equal(vmap(lambda x: x[i, :, j])(xs), fb.stack([x[i, :, j] for x in xs]))
    def swapped(x: fb.Tensor) -> fb.Tensor:
        y = x.clone()
        y[:, [0, 2]] = y[:, [1, 1]] * 2
        return y.sin()

    equal(vmap(jacrev(swapped))(fb.stack([X, X * 2])), fb.stack([jacrev(swapped)(X), jacrev(swapped)(X * 2)]))


def test_an_inplace_transpose_of_what_has_no_tangent():
    def f(x: fb.Tensor) -> fb.Tensor:
        y = fb.zeros_like(x)
        return y.t_() + x.sum()

    assert jvp(f, (X,), (ONES,))[1].tolist() == [[6.0, 6.0]] * 3


def test_a_quotient_may_be_overwritten():
    x, y = X.clone().requires_grad_(), (X.abs() + 1).requires_grad_()
    quotient = x / y
    quotient.clamp_(-1.0, 1.0)
    quotient.sum().backward()

    equal(y.grad, -X / (X.abs() + 1) ** 2)
