"""Scans: compiled kernels against numpy in float64, forwards and backwards, their rules for nan and ties, and equal bits."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.reductions import scan
from flambeau_kernels.engine.runtime import pool

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SINGLE, DOUBLE, WHOLE = (np.dtype(d) for d in (np.float32, np.float64, np.int64))
FLOATS = [SINGLE, DOUBLE, np.dtype(np.float16), BFLOAT16]
# One long row, pieces of it, few and many rows, columns wide and narrow, a dimension in the middle.
SHAPES = [(5000,), (300_000,), (3, 3001), (90, 61), (70, 3000), (3000, 3), (8, 50, 40)]

compiled = pytest.mark.skipif(not tier.compiles(), reason="nothing can be compiled here")


def values(shape, dtype):
    return (np.random.default_rng(0).normal(size=shape) * 3).astype(dtype)


def room(exact, magnitudes, dtype):
    """Half a unit of the result, and what adding in float64 (halves by numpy: in float32) loses."""
    lost = 1e-12 if tier.compiles() else 1e-3
    return float(ml_dtypes.finfo(dtype).eps) * np.abs(exact) + lost * magnitudes.max()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_up_to_each_place(shape, dtype):
    a = values(shape, dtype)
    for x in (a, np.ascontiguousarray(a.T).T):
        wide = x.astype(np.float64)
        for dim in range(x.ndim):
            exact = wide.cumsum(dim)
            bound = room(exact, np.abs(wide).sum(dim), dtype)
            backwards = np.flip(np.flip(wide, dim).cumsum(dim), dim)

            made, reverse = scan.cumsum(x, dim), scan.reverse_cumsum(x, dim)
            assert made.dtype == reverse.dtype == dtype
            assert (np.abs(made.astype(float) - exact) <= bound).all()
            assert (np.abs(reverse.astype(float) - backwards) <= room(backwards, np.abs(wide).sum(dim), dtype)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whole_numbers_are_exact_and_wrap(shape):
    a = np.random.default_rng(0).integers(-100, 100, shape)
    small = a.astype(np.int8)
    for dim in range(a.ndim):
        assert (scan.cumsum(small, dim, WHOLE) == a.cumsum(dim)).all()
        assert (scan.cumprod(a, dim) == a.cumprod(dim)).all()
        assert (scan.cumsum(a > 0, dim, WHOLE) == (a > 0).cumsum(dim)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_up_to_each_place(shape):
    a = (1 + values(shape, DOUBLE) / 1000).astype(np.float32)
    for dim in range(a.ndim):
        np.testing.assert_allclose(scan.cumprod(a, dim), a.astype(float).cumprod(dim), rtol=1e-7 if tier.compiles() else 1e-3)


@compiled  # numpy multiplies in float32, where this overflows before the zero
@pytest.mark.parametrize("rows", [1, 3, 6])
def test_a_product_stays_zero_beside_factors_that_overflow(rows):
    a = np.full((rows, 5000), 1e38, np.float32)
    a[:, 8] = 0

    made = scan.cumprod(a, 1)

    # 1e38**8 is a float64 still, so the products before the zero are infinite only when rounded to float32.
    assert (made[:, 1:8] == inf).all()
    assert (made[:, 8:] == 0).all()


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, BFLOAT16, WHOLE, np.dtype(np.uint8), np.dtype(np.bool_)], ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s != (300_000,)], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_last_of_equal_extremes_stands(shape, dtype, largest):
    a = values(shape, DOUBLE).round().astype(dtype)
    wide = a.astype(np.float64)
    for dim in range(a.ndim):
        found, at = scan.cumextreme(a, dim, largest)

        exact = (np.maximum if largest else np.minimum).accumulate(wide, dim)
        steps = np.arange(shape[dim]).reshape([-1 if d == dim else 1 for d in range(a.ndim)])
        assert (found.astype(float) == exact).all()
        assert found.dtype == dtype
        assert (at == np.maximum.accumulate(np.where(wide == exact, steps, 0), dim)).all()


@pytest.mark.parametrize("rows", [1, 5])
def test_nan_stays_once_met(rows):
    a = values((rows, 5000), SINGLE)
    a[:, [700, 2000]] = nan
    for x, dim in ((a, 1), (np.ascontiguousarray(a.T), 0)):
        found, at = (np.moveaxis(r, dim, 1) for r in scan.cumextreme(x, dim, True))

        assert not np.isnan(found[:, :700]).any()
        assert np.isnan(found[:, 700:]).all()
        assert (at[:, 700:2000] == 700).all()
        assert (at[:, 2000:] == 2000).all()
        assert np.isnan(np.moveaxis(scan.cumsum(x, dim), dim, 1)[:, 700:]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5000,), (90, 61), (3, 3001), (3000, 3), (8, 50, 40)], ids=str)
def test_logarithms_of_sums_of_exponentials(shape, dtype):
    a = values(shape, dtype)
    for dim in range(a.ndim):
        exact = np.logaddexp.accumulate(a.astype(np.float64), dim)
        tolerance: Any = {"rtol": float(ml_dtypes.finfo(dtype).eps) * 2, "atol": 1e-12 if dtype == DOUBLE else 1e-5}
        if not tier.compiles() and dtype == SINGLE:
            tolerance["atol"] = 1e-3  # thousands of sums, each rounded to float32
        np.testing.assert_allclose(scan.logcumsumexp(a, dim).astype(float), exact, **tolerance)


@pytest.mark.parametrize("n", [6, 6000])
def test_logarithms_of_sums_with_infinities(n):
    a = np.full(n, -inf, np.float32)
    a[2], a[3], a[5] = 1000, 1, inf

    made = scan.logcumsumexp(a, 0)

    assert made[:6].tolist() == [-inf, -inf, 1000, 1000, 1000, inf]
    assert (made[5:] == inf).all()


def test_nothing_and_single_numbers():
    assert scan.cumsum(np.empty((0, 3), np.float32), 0).shape == (0, 3)
    assert scan.cumsum(np.array(2.5, np.float32), 0).item() == 2.5
    assert scan.cumsum(np.array(2, np.int32), 0, WHOLE).dtype == WHOLE


@compiled
@pytest.mark.parametrize("shape", [(300_000,), (700, 900), (3, 100_000)], ids=str)
def test_any_number_of_threads_gives_the_same_bits(shape):
    a, before, found = values(shape, SINGLE), pool.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            made = [scan.cumsum(a, -1), scan.cumsum(a, 0), scan.reverse_cumsum(a, 0), scan.logcumsumexp(a, 0), *scan.cumextreme(a, 0, True)]
            found.append([x.tobytes() for x in made])
    finally:
        pool.set_num_threads(before)

    assert found[0] == found[1] == found[2]
