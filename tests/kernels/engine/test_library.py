"""Functions that compiled loops call in scipy: the ufunc's bits, at any size and number of threads."""
from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels import engine
from flambeau_kernels.scalar import library
from flambeau_kernels.scalar.symbols import F64, Block, Symbol, Unsupported


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [12, 40000])
@pytest.mark.parametrize(("name", "theirs"), [("igamma", "gammainc"), ("igammac", "gammaincc")])
def test_the_bits_are_the_ufuncs(name, theirs, size, dtype):
    rng = np.random.default_rng(0)
    a = np.exp(rng.uniform(-5, 6, size)).astype(dtype)
    x = (a * np.exp(rng.normal(0, 0.5, size))).astype(dtype)
    a[:4], x[4:8] = (0, 1e30, -1, 300), (0, np.inf, -1, np.nan)
    wanted, before = getattr(scipy.special, theirs)(a, x), fb.get_num_threads()
    try:
        for threads in (1, 2, 4):
            fb.set_num_threads(threads)
            for _ in range(30 if size < 100 else 1):  # a kernel takes over small calls after some
                made = getattr(fb, name)(fb.from_numpy(a), fb.from_numpy(x)).numpy()
                np.testing.assert_array_equal(made, wanted)
    finally:
        fb.set_num_threads(before)


@pytest.mark.skipif(not kernels.engines.chosen().compiles or engine.available() is not None, reason="nothing is compiled")
def test_large_calls_are_compiled():
    assert "compiled tier" in fb.kernels.explain("igamma", fb.ones(5000), fb.ones(5000))


def test_what_scipy_does_not_offer_is_left_to_the_numpy_tier():
    block = Block(F64)
    with pytest.raises(Unsupported, match="does not offer"):
        library.call("no_such_function", 1, Symbol(block, "%x0", F64))
    with pytest.raises(Unsupported, match="does not offer"):
        library.call("gammainc", 1, Symbol(block, "%x0", F64))      # of two arguments
