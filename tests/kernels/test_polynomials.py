"""The compiled recurrences of orthogonal polynomials: the numpy tier's bits, for any degrees, layouts and threads."""
from __future__ import annotations

import numpy as np
import pytest

from flambeau.ops import special
from flambeau_kernels import engine
from flambeau_kernels.engine import pool

pytestmark = pytest.mark.skipif(engine.available() is not None, reason=f"no compiled tier: {engine.available()}")

FAMILIES = ("chebyshev_t", "shifted_chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he", "laguerre", "legendre")


def on_numpy(family, x, n, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(special.tier, "compiles", lambda: False)
        return family(x, n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FAMILIES)
def test_both_tiers_have_the_same_bits(name, dtype, monkeypatch):
    family, rng = getattr(special, name), np.random.default_rng(0)
    x = rng.uniform(-3, 3, (50, 101)).astype(dtype)
    x[0, :4] = np.nan, np.inf, -np.inf, 1.0
    for n in (rng.integers(-2, 20, x.shape).astype(dtype), np.asarray(5, dtype), np.asarray(12.7, dtype)):
        with np.errstate(all="ignore"):
            wanted = on_numpy(family, x, n, monkeypatch)
            made = family(x, n)
        np.testing.assert_array_equal(made, wanted)
        assert made.dtype == wanted.dtype


def test_any_layout_and_number_of_threads(monkeypatch):
    x = np.random.default_rng(1).uniform(-3, 3, (120, 200)).astype("float32")[::2].T
    n = np.arange(60, dtype="float32") % 9
    wanted = on_numpy(special.legendre, x, n, monkeypatch)
    before = pool.get_num_threads()
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            np.testing.assert_array_equal(special.legendre(x, n), wanted)
    finally:
        pool.set_num_threads(before)


def test_degrees_beyond_the_highest_stay_on_numpy():
    x = np.full(2000, 0.5)
    n = np.zeros(2000)
    n[7] = 5000
    assert np.isfinite(special.legendre(x, n)).all()
