"""Compiled sorting, selecting and counting against numpy: every dtype, ties, nan, signed zeros, threads, tiers."""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.sorting import radix, ranks, sort
from flambeau_kernels.engine.runtime import pool

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
    for name in (before if kernels.engines.chosen().compiles else "llvm", "numpy"):
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


# -- ranks ---------------------------------------------------------------------------------------------------------------


def lines_of(kind, n, dtype):
    """Lines on which a sample tells little: few values, long runs, all the same, the wanted one alone between two crowds."""
    rng = np.random.default_rng(n)
    a = {
        "spread": lambda: rng.permutation(n) - n // 2,
        "few": lambda: rng.integers(0, 3, n),
        "sorted": lambda: np.arange(n) // 2,
        "same": lambda: np.full(n, 7),
        "crowds": lambda: np.where(np.arange(n) < n // 2, 0, 100) + (np.arange(n) == n // 2) * -50,
        "far": lambda: rng.integers(-(2**62), 2**62, n),
    }[kind]()
    return a.astype(dtype)


@compiled
@pytest.mark.parametrize("kind", ["spread", "few", "sorted", "same", "crowds", "far"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_the_place_of_a_rank_is_found_where_a_sample_tells_little(dtype, kind):
    for n in (1, 15, ranks.MOST_COUNTED, ranks.MOST_COUNTED + 1, 1000, 5001):
        a = lines_of(kind, n, dtype)
        order = np.argsort(a, kind="stable")
        for rank in {0, n // 3, n // 2, n - 1}:
            assert ranks.place_of_rank(a[None], np.array([rank])) == order[rank], (n, rank)
            assert ranks.place_of_rank(a[None], np.array([rank]), True) == n - 1 - np.argsort(a[::-1], kind="stable")[::-1][rank], (n, rank)


@compiled
@pytest.mark.parametrize("skip_nan", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
def test_medians_along_any_dimension_are_those_of_numpy(dtype, dim, skip_nan):
    a = rows((5, 97, 40), dtype)
    if a.dtype.kind == "f":
        a[:, :, :7] = 3                              # lines without nan
        a[0, :, 9] = np.nan                          # and of nothing else
    values, places = sort.median(a, dim, skip_nan)
    with tier_of("numpy"):
        expected, _ = sort.median(a, dim, skip_nan)

    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.take_along_axis(a, places, dim), expected)


@compiled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_runs_begin_where_neighbours_differ(dtype):
    for n in (1, sort.RUNS_COMPILED_FROM - 1, sort.RUNS_COMPILED_FROM, 100_000):
        a = np.repeat(rows((1, n), dtype)[0], 2)[:n]
        starts = np.concatenate(([True], a[1:] != a[:-1]))

        np.testing.assert_array_equal(sort.first_of_runs(a, False), np.flatnonzero(starts))
        assert sort.first_of_runs(a, True).tobytes() == a[starts].tobytes()


@contextlib.contextmanager
def tier_of(backend):
    before = kernels.backend()
    kernels.set_backend(backend)
    try:
        yield
    finally:
        kernels.set_backend(before)


def test_counts_of_few_integers_are_numpys_before_and_after_a_kernel_is_loaded():
    numbers = np.random.default_rng(0)
    for k in range(1100):
        a = numbers.integers(0, numbers.integers(1, 4000), numbers.integers(1, 50))
        least = int(numbers.integers(0, 3000)) if k % 3 else 0

        np.testing.assert_array_equal(fb.bincount(fb.tensor(a), None, least).numpy(), np.bincount(a, None, least))
    for wrong in ([-1, 2], [2, -5]):
        with pytest.raises(RuntimeError, match="non-negative"):
            fb.bincount(fb.tensor(wrong))


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (3, 1), (0, 4), (3, 0)])
def test_elements_at_places_are_those_of_numpy(shape):
    a = np.random.RandomState(0).randn(*shape)
    for dim in range(-len(shape), len(shape)):
        order = np.argsort(a, dim)
        for x in (a, np.asfortranarray(a)):
            assert np.array_equal(sort.at_places(x, order, dim), np.take_along_axis(x, order, dim))
