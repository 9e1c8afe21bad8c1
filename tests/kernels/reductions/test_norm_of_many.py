"""Many arrays handled as one: their common norm and scaling them, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.reductions import norm_of_many
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(not tier.compiles(), reason="nothing can be compiled here")

RNG = np.random.default_rng(0)
SIZES = [1, 0, 7, 1023, 1024, 1025, 65_536, 65_537, 3, 200_001]


def arrays(dtype="float32"):
    return [RNG.normal(size=n).astype(dtype) for n in SIZES]


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-7), ("float64", 1e-15)])
def test_the_norm_is_that_of_all_elements(dtype, bound):
    held = arrays(dtype)
    expected = np.linalg.norm(np.concatenate(held).astype(np.float64))

    made = norm_of_many.pieces(held).norm()

    assert made.shape == ()
    assert made.dtype == dtype
    np.testing.assert_allclose(made, expected, rtol=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scaling_has_the_bits_of_a_product(dtype):
    held = [*arrays(dtype), np.asfortranarray(RNG.normal(size=(30, 40)).astype(dtype))]
    expected = [a * a.dtype.type(0.3) for a in held]

    norm_of_many.pieces(held).scale(0.3)

    for a, e in zip(held, expected, strict=True):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
def test_what_is_not_finite_or_overflows_shows_in_the_norm(value):
    held = arrays()
    held[3][5] = value

    made = norm_of_many.pieces(held).norm()

    np.testing.assert_array_equal(made, np.float32(np.nan if np.isnan(value) else np.inf))


def test_the_number_of_threads_does_not_change_the_norm():
    held, before, made = arrays(), pool.get_num_threads(), set()

    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            made.add(norm_of_many.pieces(held).norm().tobytes())
    finally:
        pool.set_num_threads(before)

    assert len(made) == 1


def test_shared_memory_and_gaps_are_refused():
    a = np.zeros((40, 40), np.float32)

    assert norm_of_many.pieces([a, a]) is None
    assert norm_of_many.pieces([a[:20], a[19:]]) is None
    assert norm_of_many.pieces([a[:, ::2]]) is None
    assert norm_of_many.pieces([a[20:], a[:20]]) is not None
