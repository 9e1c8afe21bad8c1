"""The compiled recurrences of orthogonal polynomials: the numpy tier's bits, for any degrees, layouts and threads."""
from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels
from flambeau_kernels import engine
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import orthogonal

pytestmark = pytest.mark.skipif(engine.available() is not None, reason=f"no compiled tier: {engine.available()}")

FAMILIES = [("chebyshev", 1, 0), ("chebyshev", 2, -1), ("chebyshev", 2, 1), ("hermite", 2, 0), ("hermite_e", 1, 0),
            ("laguerre", -1, 1), ("legendre", 1, 0)]  # fmt: skip


def on_both(family, x, n):
    formula = Formula(lambda x, n: orthogonal(*family, x, n), "polynomial")
    made, wanted = np.empty(np.broadcast_shapes(x.shape, n.shape), x.dtype), np.empty(np.broadcast_shapes(x.shape, n.shape), x.dtype)
    assert engine.launch(formula, (x, n), (made,), x.dtype)
    with np.errstate(all="ignore"):
        flambeau_kernels.reference_launch(formula, (x, n), (wanted,), x.dtype)
    return made, wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_both_tiers_have_the_same_bits(family, dtype):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (50, 101)).astype(dtype)
    x[0, :4] = np.nan, np.inf, -np.inf, 1.0
    for n in (rng.integers(-2, 20, x.shape).astype(dtype), np.asarray(5, dtype), np.asarray(0, dtype)):
        np.testing.assert_array_equal(*on_both(family, x, n))


def test_any_layout_and_number_of_threads():
    x = np.random.default_rng(1).uniform(-3, 3, (120, 200)).astype("float32")[::2].T
    n = np.arange(60, dtype="float32") % 9
    before = pool.get_num_threads()
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            np.testing.assert_array_equal(*on_both(("legendre", 1, 0), x, n))
    finally:
        pool.set_num_threads(before)


def test_high_degrees_end_where_nothing_changes_any_more():
    x, n = fb.tensor([0.5, 3.0, float("nan")], dtype=fb.float64), fb.tensor([5000.0, 1e15, 1e15], dtype=fb.float64)

    made = fb.special.legendre_polynomial_p(x, n)

    assert made.isnan().tolist() == [False, True, True]


@pytest.mark.skipif(not flambeau_kernels.engines.chosen().compiles, reason="nothing is compiled")
@pytest.mark.parametrize("name", ["chebyshev_polynomial_t", "shifted_chebyshev_polynomial_w"])
def test_low_degrees_by_number_have_the_bits_of_degrees_by_element(name):
    x = fb.linspace(-1.5, 1.5, 3001, dtype=fb.float64)
    function = getattr(fb.special, name)
    for n in (0, 3, 6, 6.9, 7, 20):
        assert function(x, n).equal(function(x, fb.full_like(x, n)))
        assert function(x[:5], n).equal(function(x, n)[:5])
