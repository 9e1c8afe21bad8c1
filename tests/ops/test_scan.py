"""Running totals and differences: values by hand, by numpy and by mpmath."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as fb

nan, inf = math.nan, math.inf


def t(*values):
    return fb.tensor(values)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: fb.cumsum(t(1, 2, 3), 0), [1, 3, 6]),
        (lambda: fb.cumsum(t(True, True), 0), [1, 2]),
        (lambda: fb.cumprod(t(2.0, 0.0, 3.0), 0), [2, 0, 0]),
        (lambda: fb.cummax(t(1.0, 3.0, 3.0, nan, 4.0), 0).values, [1, 3, 3, nan, nan]),
        (lambda: fb.cummax(t(1.0, 3.0, 3.0, nan, 4.0), 0).indices, [0, 1, 2, 3, 3]),
        (lambda: fb.cummin(t(3, 1, 1, 2), 0).indices, [0, 1, 2, 2]),
        (lambda: fb.logcumsumexp(t(1000.0, 1000.0, -inf), 0), [1000, 1000 + math.log(2), 1000 + math.log(2)]),
        (lambda: fb.logcumsumexp(t(-inf, -inf, 1.0), 0), [-inf, -inf, 1]),
        (lambda: fb.diff(t(1, 4, 9, 16), 2), [2, 2]),
        (lambda: fb.diff(t(True, False, False)), [True, False]),
        (lambda: fb.diff(t(1, 4), prepend=t(0), append=t(9)), [1, 3, 5]),
        (lambda: fb.trapezoid(t(1.0, 2.0, 4.0), t(0.0, 1.0, 3.0)), 7.5),
        (lambda: fb.cumulative_trapezoid(t(1.0, 2.0, 4.0), dx=2), [3, 9]),
        (lambda: fb.gradient(t(1.0, 4.0, 9.0, 16.0))[0], [3, 4, 6, 7]),
        (lambda: fb.gradient(t(0.0, 1.0, 9.0, 16.0), spacing=(t(0.0, 1.0, 3.0, 4.0),), edge_order=2)[0], [0, 2, 6, 8]),
    ],
)
def test_values(found, expected):
    np.testing.assert_allclose(found().numpy(), expected, rtol=1e-6)


def test_the_gradient_of_cumprod_is_right_beside_zeros():
    x = fb.tensor([2.0, 0.0, 3.0, 0.0, 5.0], dtype=fb.float64, requires_grad=True)

    x.cumprod(0).sum().backward()

    # d/dx0: 1; d/dx1: 2 + 2*3; the others are multiplied by a zero.
    assert x.grad.tolist() == [1, 8, 0, 0, 0]


def test_both_gradients_of_cumprod_beside_zeros_agree():
    x = fb.tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0], [1.0, 2.0, 3.0]], dtype=fb.float64, requires_grad=True)
    weights = fb.tensor([1.0, -2.0, 0.5], dtype=fb.float64)
    total = (x.cumprod(1) * weights).sum()

    (first,) = fb.autograd.grad(total, x, retain_graph=True)
    (recorded,) = fb.autograd.grad(total, x, create_graph=True)

    np.testing.assert_allclose(first.numpy(), recorded.detach().numpy())


def test_the_gradient_of_logcumsumexp_is_a_softmax_of_prefixes():
    x = fb.tensor([100.0, -100.0, 101.0], dtype=fb.float64, requires_grad=True)

    x.logcumsumexp(0)[-1].backward()

    e = np.exp(np.array([100.0, -100.0, 101.0]) - 101)
    np.testing.assert_allclose(x.grad.numpy(), e / e.sum(), rtol=1e-12)


def test_half_totals_are_rounded_once():
    assert fb.ones(4096, dtype=fb.float16).cumsum(0)[-1].item() == 4096


@pytest.mark.parametrize("dx", [1, 17, 2.0])
@pytest.mark.parametrize("y", [[100, 100], [20, 20, 20], [3]])
def test_trapezoids_of_small_integers_do_not_overflow(y: list[int], dx: float, oracle: Any) -> None:
    def areas(lib: Any) -> Any:
        t = lib.tensor(y, dtype=lib.int8)
        return lib.trapezoid(t, dx=dx).tolist(), lib.cumulative_trapezoid(t, dx=dx).tolist()

    assert areas(fb) == areas(oracle)


@pytest.mark.parametrize("fn", [fb.cumsum, fb.cumprod])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.int64, fb.int32], ids=str)
@pytest.mark.parametrize("own", [fb.float32, fb.float64, fb.int64, fb.int32, fb.bool], ids=str)
def test_a_dtype_converts_what_is_run_over(own, dtype, fn):
    x = fb.tensor([[1, 0, 2], [3, -1, 1]]).to(own)
    x = x.requires_grad_() if own.is_floating_point else x

    for _ in range(2):
        made = fn(x, 1, dtype=dtype)
        assert made.dtype is dtype
        assert fb.equal(made, fn(x.detach().to(dtype), 1).to(dtype))
        assert made.requires_grad is (own.is_floating_point and dtype.is_floating_point)
    out = fb.empty(2, 3, dtype=dtype)
    assert fb.equal(fn(x.detach(), 1, out=out), made)


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64, fb.complex64])
@pytest.mark.parametrize("n", [1, 3, 100, 5000])
def test_running_sums_of_negative_zeros_are_positive_zeros(dtype: fb.dtype, n: int) -> None:
    zeros = fb.full((2, n), -0.0, dtype=dtype)

    made = [zeros.cumsum(1), zeros.T.cumsum(0), zeros[:, :1].cumsum(1), zeros[:, :100].logcumsumexp(1)[:, :1], zeros[:, :1].logcumsumexp(1)]

    for each in made:
        assert not (fb.view_as_real(each) if dtype is fb.complex64 else each).signbit().any()


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("given", ["bool", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("wanted", ["int8", "int16", "int32", "int64", "uint8"])
def test_running_integers_wrap_around_in_the_dtype_asked_for_in_every_call(name, given, wanted, oracle):
    values = [[100, 99, 98], [97, -3, 96], [7, 120, -128]]
    asked = [getattr(fb, name)(fb.tensor(values, dtype=fb.int64).to(getattr(fb, given)), 0, dtype=getattr(fb, wanted)) for _ in range(9)]
    theirs = oracle.tensor(values, dtype=oracle.int64).to(getattr(oracle, given))

    expected = getattr(oracle, name)(theirs, 0, dtype=getattr(oracle, wanted))
    assert all(x.dtype is getattr(fb, wanted) and x.tolist() == expected.tolist() for x in asked)


def test_gradients_of_diff_are_the_same_however_often_it_ran():
    x = fb.randn(5, 7, generator=fb.Generator().manual_seed(6))
    found = set()
    for _ in range(40):
        leaf = x.clone().requires_grad_()
        y = leaf * 1
        (gradient,) = fb.autograd.grad(y.diff().sum() + (y * y).sum(), leaf)
        found.add(gradient.numpy().tobytes())

    assert len(found) == 1
