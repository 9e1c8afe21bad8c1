"""Compiled sorting, selecting and counting against numpy: every dtype, ties, nan, signed zeros, threads, tiers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels.cpu import radix, ranks, sort, tier
from flambeau_kernels.engine import pool

compiled = pytest.mark.skipif(not tier.compiles(), reason="nothing can be compiled here")

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "bool"]
SHAPES = [(3, 1), (4, 41), (7, 300), (2, 17000), (1, 140_000)]


def rows(shape, dtype, seed=0):
    """Elements with ties and, where there are such, nan, infinities and zeros of both signs."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "iub":
        info = np.iinfo(dtype) if dtype.kind != "b" else None
        low, high = (info.min, info.max) if info else (0, 1)
        few = rng.integers(low, high, shape, dtype=np.int64, endpoint=True).astype(dtype)
        return np.where(rng.random(shape) < 0.3, dtype.type(1), few)
    a = (rng.normal(size=shape) * 50).astype(dtype)
    special = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0], dtype)
    return np.where(rng.random(shape) < 0.2, special[rng.integers(0, len(special), shape)], a)


def stable_order(a, descending):
    x = a.astype(np.float32) if a.dtype.name in ("float16", "bfloat16") else a
    if not descending:
        return np.argsort(x, -1, kind="stable")
    return np.flip(a.shape[-1] - 1 - np.argsort(np.flip(x, -1), -1, kind="stable"), -1)


def bits(a):
    return a.view(f"u{a.itemsize}")


@compiled
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_sorted_stably_with_nan_last_and_bits_unchanged(dtype, descending):
    for shape in SHAPES:
        a = rows(shape, dtype)
        order = stable_order(a, descending)

        values, places = radix.sort_rows(a, descending)

        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(bits(values), bits(np.take_along_axis(a, order, -1)))


@compiled
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_best_few_and_the_best_many_are_the_front_of_the_sorted_rows(dtype, largest):
    for shape in [(3, 70), (5, 1000), (2, 150_000)]:
        a = rows(shape, dtype)
        order = stable_order(a, largest)
        for k in (1, 7, 200):
            if k * 4 < shape[1]:
                values, places = sort.topk(a, k, -1, largest)

                np.testing.assert_array_equal(places, order[:, :k])
                np.testing.assert_array_equal(bits(values), bits(np.take_along_axis(a, order[:, :k], -1)))


@compiled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_place_of_a_rank_is_that_of_the_stable_order(dtype):
    for shape in [(3, 70), (5, 3000)]:
        a = rows(shape, dtype)
        wanted = np.random.default_rng(1).integers(0, shape[1], shape[0])

        found = ranks.place_of_rank(a, wanted)

        np.testing.assert_array_equal(found, stable_order(a, False)[np.arange(shape[0]), wanted])


def on_both_tiers(call):
    before, made = kernels.backend(), []
    for name in ("numba", "numpy"):
        kernels.set_backend(name)
        made.append(call())
    kernels.set_backend(before)
    return made


FLOATS = rows((40, 50), "float32")
WHOLE = np.random.default_rng(2).integers(-30, 200, 5000)


@pytest.mark.parametrize("call", [
    lambda: sort.sort(FLOATS, 0, False),
    lambda: sort.sort(FLOATS.T, 1, True),
    lambda: sort.sort(rows((2, 3, 200), "bfloat16").swapaxes(0, 1)[:, :, ::2], -2, True),
    lambda: sort.argsort(FLOATS, -1, True),
    lambda: sort.kth(FLOATS, 17, 0),
    lambda: sort.kth(FLOATS, np.arange(50).reshape(1, 50) % 40, 0),
    lambda: sort.mode(WHOLE.reshape(50, 100) % 7, -1),
    lambda: sort.distinct(WHOLE),
    lambda: sort.distinct(WHOLE.astype(np.int8)),
    lambda: sort.distinct(WHOLE * 10**12),
    lambda: sort.distinct(FLOATS.reshape(-1)),
    lambda: (sort.count_values(np.abs(WHOLE), 0, 300),),
    lambda: (sort.count_bins(FLOATS, np.linspace(-40, 60, 12).astype(np.float32)),),
    lambda: (sort.bisect(np.array([-3.0, 0.0, 0.0, 7.0], np.float32), FLOATS, True),),
    lambda: (sort.bisect(np.array([-3.0, np.nan, 0.0, 7.0], np.float32), FLOATS, False),),
    lambda: (sort.bisect(np.sort(rows((40, 9), "float64"), -1), rows((40, 50), "float64", 1), False),),
    lambda: (sort.bisect(np.arange(-20, 90, 3), WHOLE, False),),
], ids=lambda call: None)
def test_both_tiers_agree(call):
    ours, theirs = on_both_tiers(call)

    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(bits(np.ascontiguousarray(a)), bits(np.ascontiguousarray(b)))


def test_elements_without_a_key_are_sorted_by_numpy():
    a = np.random.default_rng(0).integers(0, 2**64, 500, dtype=np.uint64)

    values, places = sort.sort(a, 0, False)

    np.testing.assert_array_equal(values, np.sort(a))
    np.testing.assert_array_equal(a[places], values)


@compiled
def test_the_number_of_threads_changes_nothing():
    a, before, made = rows((1, 300_000), "float32"), pool.get_num_threads(), []
    for threads in (1, 2, 4):
        pool.set_num_threads(threads)
        made.append([x.tobytes() for x in (*radix.sort_rows(a, True), *sort.topk(a, 50, -1, True), *sort.topk(a, 500, -1, False))])
    pool.set_num_threads(before)

    assert made[0] == made[1] == made[2]
