"""Elementwise kernels from C++ text: what it computes, on the CPU and on the simulated device, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb

make, make_several = fb.cuda.jiterator._create_jit_fn, fb.cuda.jiterator._create_multi_output_jit_fn

BRANCHES = """
// The slope of the first, by half.
template <typename T> T halved(T a) { return a > T(0) ? a : a * static_cast<T>(0.5f); }

template <typename T> T f(T x, T y) { /* three
    ways */
    T s = halved(x) + std::max(x, y);
    if (s > 1) { s *= 2; } else if (s < -1) return -1; else { T q = s; s = q - 1; }
    return std::pow(s, (T)2) / 3;
}
"""


def branches(x: float, y: float) -> float:
    s = (x if x > 0 else x / 2) + max(x, y)
    if s > 1:
        s *= 2
    elif s < -1:
        return -1.0
    else:
        s -= 1
    return s**2 / 3


def test_branches_helpers_and_comments_mean_what_they_do_in_cpp(xp: Any) -> None:
    x, y = np.random.default_rng(0).normal(0, 2, (2, 200))
    made = make(BRANCHES)(fb.tensor(x, device="cuda"), fb.tensor(y, device="cuda"))

    assert made.device.type == "cuda"
    np.testing.assert_allclose(made.cpu().numpy(), list(map(branches, x, y)), rtol=1e-12)


def test_defaults_are_given_by_keyword_and_operands_broadcast() -> None:
    weighted = make("template <typename T> T my_kernel(T x, T y, T alpha) { return -x + alpha * y; }", alpha=1.0)
    x, y = fb.tensor([[1.0], [2.0]]), fb.tensor([3.0, 4.0, 5.0])

    assert weighted(x, y).tolist() == [[2, 3, 4], [1, 2, 3]]
    assert weighted(x, y, alpha=10.0).tolist() == [[29, 39, 49], [28, 38, 48]]


def test_derivatives_follow_from_the_text() -> None:
    x = fb.tensor([0.3, -1.2, 2.0], dtype=fb.float64, requires_grad=True)
    cube = make("template <typename T> T cube(T x) { const T a = x * x; return x < 0 ? -a * x : a * x; }")

    assert fb.autograd.gradcheck(cube, x)
    assert fb.autograd.gradgradcheck(cube, x)


def test_results_are_stored_in_references() -> None:
    both = make_several("template <typename T> void both(T a, T b, T& sum, T& rest) { sum = a + b; rest = a; rest -= b; }", 2)

    assert [t.tolist() for t in both(fb.tensor([1.0, 5.0]), fb.tensor([2.0, 3.0]))] == [[3, 8], [-1, 2]]


def test_whole_numbers_are_divided_as_cpp_divides_them() -> None:
    divided = make("template <typename T> T d(T a, T b) { return 10 * (a / b) + a % b + 1 / 2; }")
    a, b = fb.tensor([7, -7, 7, -7]), fb.tensor([2, 2, -2, -2])

    assert divided(a, b).tolist() == [31, -31, -29, 29]
    assert divided(a.double(), b.double()).tolist() == [36, -36, -34, 34]
    cut = make("template <typename T> T c(T x) { int n = x; return x - n + (int)(x * 2); }")
    assert cut(fb.tensor([1.75, -1.75])).tolist() == [3.75, -3.75]


@pytest.mark.parametrize("text", [
    "nonsense", "T f(T x) { return x; }", "template <typename T> T f(T x) { return y; }", "template <typename T> T f(T x) { return (x; }",
    "template <typename T> T f(T x) { x + 1; }", "template <typename T> T f(T x) { if (x > 0) { return x; } }", "",
    "template <typename T> T f(T x) { __import__('os'); return x; }", "template <typename T> T f(T x) { return x",
])  # fmt: skip
def test_text_that_is_no_such_template_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(Exception, match="Couldn't parse code, please check correctness"):
        make(text)


def test_what_formulas_do_not_have_is_named() -> None:
    with pytest.raises(NotImplementedError, match="'for' is not built"):
        make("template <typename T> T f(T x) { for (int i = 0; i < 3; ++i) { x += 1; } return x; }")
    with pytest.raises(NotImplementedError, match="the function 'tgamma' is not built"):
        make("template <typename T> T f(T x) { return tgamma(x); }")


def test_calls_that_do_not_fit_the_template_are_refused() -> None:
    f = make("template <typename T> T f(T x, T w) { return w * x; }", w=2.0)
    with pytest.raises(TypeError, match="takes 1 tensors but 2 were given"):
        f(fb.ones(2), fb.ones(2))
    with pytest.raises(KeyError, match="v is not declared"):
        f(fb.ones(2), v=1.0)
    with pytest.raises(TypeError, match="'v' is none of the last parameters of f"):
        make("template <typename T> T f(T x, T w) { return w * x; }", v=2.0)
