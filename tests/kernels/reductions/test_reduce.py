"""Reductions: compiled kernels against numpy in float64, their rules for nan, ties and infinities, and equal bits."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.reductions import extremes, moments, reduce_loops
from flambeau_kernels.cpu.reductions.reduce import NUMPY_UP_TO, Reduction, magnitude, reduce, square
from flambeau_kernels.cpu.sums import sum_of
from flambeau_kernels.engine.language import kernel, lower, widened
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.vocabulary import isnan, where

BFLOAT16, HALF = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
SINGLE, DOUBLE, WHOLE, TRUTH = (np.dtype(d) for d in (np.float32, np.float64, np.int64, np.bool_))
FLOATS = [SINGLE, DOUBLE, HALF, BFLOAT16]

compiled = pytest.mark.skipif(not tier.compiles(), reason="nothing can be compiled here")


def not_zero(x):
    return x != 0


def number_or_zero(x):
    return where(isnan(x), 0, x)


def average(total, n):
    return total / n


SUM, MEAN, PRODUCT = Reduction("sum", "add"), Reduction("mean", "add", finish=average), Reduction("prod", "mul")
LARGEST, SMALLEST = Reduction("amax", "max"), Reduction("amin", "min")
ALL, ANY, COUNT = Reduction("all", "and", not_zero), Reduction("any", "or", not_zero), Reduction("count", "add", not_zero)
NANSUM, SQUARES = Reduction("nansum", "add", number_or_zero), Reduction("squares", "add", square)

# Shape and dimensions: whole, rows short and long, columns wide, narrow and many, in between, several dimensions.
CASES = [((5000,), (0,)), ((300_000,), (0,)), ((70, 100), (1,)), ((3000, 8), (1,)), ((3, 140_000), (1,)), ((70, 100), (0,)),
         ((17, 3000), (0,)), ((3000, 1500), (0,)), ((100_003, 3), (0,)), ((8, 50, 40), (1,)), ((3, 2000, 50), (1,)),
         ((16, 5, 20, 20), (0, 2, 3)), ((12, 3, 30, 5), (0, 2)), ((4, 5, 6, 100), (1, 3)), ((100, 100), (0, 1))]  # fmt: skip


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.random(shape) < 0.01
    return (rng.normal(size=shape) * 3).astype(dtype)


def views(a):
    """`a` by rows, by columns, and with gaps between its rows."""
    gaps = np.concatenate([a, a], -1)[..., : a.shape[-1]]
    return a, np.ascontiguousarray(a.T).T, gaps


@compiled
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_sums_are_those_of_float64_rounded_once(shape, axes, dtype):
    for a in views(values(shape, dtype)):
        exact = a.astype(np.float64).sum(axes)
        size = np.abs(a.astype(np.float64)).sum(axes)
        eps = float(ml_dtypes.finfo(dtype).eps)
        # Half a unit of the result, and what float32 blocks (float64 ones) lose of the magnitudes added up.
        room = eps * np.abs(exact) + (2e-15 if dtype == DOUBLE else 4e-7) * size

        for keepdim in (False, True):
            made = reduce(SUM, a, axes, keepdim, dtype, dtype)
            assert made.dtype == dtype
            assert made.shape == a.sum(axes, keepdims=keepdim).shape
            assert (np.abs(made.astype(np.float64).reshape(exact.shape) - exact) <= room).all()


@compiled
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_exact_reductions_agree_with_numpy(shape, axes):
    whole, truth, single = values(shape, WHOLE), values(shape, TRUTH), values(shape, SINGLE)
    for k in range(3):
        w, t, x = views(whole)[k], views(truth)[k], views(single)[k]

        assert (reduce(SUM, w, axes, False, WHOLE, WHOLE) == w.sum(axes)).all()
        assert (reduce(SUM, t, axes, False, WHOLE, WHOLE) == t.sum(axes)).all()
        assert (reduce(COUNT, x, axes, False, SINGLE, WHOLE) == np.count_nonzero(x, axes)).all()
        assert (reduce(LARGEST, x, axes, False, SINGLE, SINGLE) == x.max(axes)).all()
        assert (reduce(SMALLEST, w, axes, False, WHOLE, WHOLE) == w.min(axes)).all()
        assert (reduce(ANY, t, axes, False, TRUTH, TRUTH) == t.any(axes)).all()
        assert (reduce(ALL, ~t, axes, False, TRUTH, TRUTH) == (~t).all(axes)).all()


@compiled
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_plan_for_plain_layouts_is_a_kernel(dtype):
    a = values((70, 100), dtype)
    reduce(SUM, a, (1,), False, dtype, dtype)

    assert SUM.plans.find(a, SUM, (1,), False, dtype, dtype) is not None


def test_few_elements_have_the_bits_of_numpy():
    a = values((NUMPY_UP_TO,), SINGLE)

    assert reduce(SUM, a, (0,), False, SINGLE, SINGLE) == np.add.reduce(a)


@pytest.mark.parametrize("size", [10, 10_000, 300_000])
def test_nan_wins_over_every_number_and_infinity(size):
    a = values((size,), SINGLE)
    a[3], a[-1], a[size // 2] = inf, -inf, nan

    assert np.isnan(reduce(LARGEST, a, (0,), False, SINGLE, SINGLE))
    assert np.isnan(reduce(SMALLEST, a, (0,), False, SINGLE, SINGLE))
    a[size // 2] = 0
    assert reduce(LARGEST, a, (0,), False, SINGLE, SINGLE) == inf
    assert reduce(SMALLEST, a, (0,), False, SINGLE, SINGLE) == -inf


def test_terms_are_applied_before_combining():
    a = values((90, 90), SINGLE)
    a[5, :7] = nan

    assert reduce(NANSUM, a, (1,), False, SINGLE, SINGLE)[5] == pytest.approx(np.nansum(a[5].astype(float)), rel=1e-6)
    b = np.nan_to_num(a)
    np.testing.assert_allclose(reduce(SQUARES, b, (0,), False, SINGLE, SINGLE), (b.astype(float) ** 2).sum(0), rtol=1e-6)
    np.testing.assert_allclose(reduce(MEAN, b, (0, 1), False, SINGLE, SINGLE), b.astype(float).mean(), rtol=1e-5)


@compiled
def test_products_do_not_overflow_on_the_way():
    a = np.ones(5000, np.float32)
    a[:4] = 1e30, 1e30, 1e-30, 1e-30

    assert reduce(PRODUCT, a, (0,), False, SINGLE, SINGLE) == pytest.approx(1, rel=1e-6)


def test_of_nothing_the_identity_is_left():
    assert reduce(SUM, np.empty((0, 3), np.float32), (0,), False, SINGLE, SINGLE).tolist() == [0, 0, 0]
    assert reduce(ALL, np.empty((0,), np.bool_), (0,), False, TRUTH, TRUTH).item() is True
    assert reduce(SUM, np.array(2.5, np.float32), (), False, SINGLE, SINGLE).item() == 2.5


def test_a_term_that_a_kernel_cannot_contain_is_refused():
    with pytest.raises(TypeError, match="lambda"):
        Reduction("bad", "add", lambda x: x)


# -- places --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, BFLOAT16, WHOLE, np.dtype(np.uint8), TRUTH], ids=str)
@pytest.mark.parametrize("shape", [(7000,), (200_000,), (90, 60), (3, 70_000), (40_000, 3), (9, 30, 40), (33, 700)], ids=str)
def test_the_first_of_equal_extremes_is_found(shape, dtype):
    a = values(shape, dtype).round() if dtype.kind not in "b" else values(shape, dtype)
    wide = a.astype(np.float64)
    for x, w in zip(views(a), views(wide), strict=True):
        assert extremes.argument(x, None, False, True).item() == w.argmax()
        for dim in (*range(a.ndim), -1):
            assert (extremes.argument(x, dim, False, False) == w.argmin(dim)).all()
            found, at = extremes.extreme(x, dim, True, True)
            assert (at == w.argmax(dim, keepdims=True)).all()
            assert found.dtype == dtype
            assert (found.astype(np.float64) == w.max(dim, keepdims=True)).all()


def test_the_first_nan_is_the_extreme():
    a = values((80, 90), SINGLE)
    a[4, [7, 30]] = nan
    a[6] = -inf

    found, at = extremes.extreme(a, 1, False, True)

    assert at[4] == 7
    assert np.isnan(found[4])
    assert (found[6], at[6]) == (-inf, 0)
    assert extremes.argument(a, 0, False, False)[30] == 4


# -- moments -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_variance_logsumexp_and_norms(shape, axes, dtype):
    eps = float(ml_dtypes.finfo(dtype).eps)
    for a in views(values(shape, dtype)):
        x = a.astype(np.float64)
        close: Any = {"rtol": 3 * max(eps, 2e-7) if dtype != DOUBLE else 1e-12}
        if not tier.compiles():
            close["rtol"] = max(close["rtol"], 5e-5 if dtype != DOUBLE else 0)  # numpy adds thousands of float32 up in turn

        np.testing.assert_allclose(moments.variance(a, axes, 1, False).astype(float), x.var(axes, ddof=1), **close)
        np.testing.assert_allclose(moments.logsumexp(a, axes, False).astype(float), np.logaddexp.reduce(
            np.moveaxis(x, axes, range(len(axes))).reshape(-1, *[n for d, n in enumerate(shape) if d not in axes]), 0), **close)
        for order in (0, 1, 2, 3.5, inf, -inf):
            if dtype == HALF and order in (0, 1, 3.5) and np.prod([shape[d] for d in axes]) > 2000:
                continue                                 # beyond the range of the dtype
            size = np.abs(x)
            exact = {0: (x != 0).sum(axes), inf: size.max(axes), -inf: size.min(axes)}.get(order)
            if exact is None:
                exact = (size**order).sum(axes) ** (1 / order)
            np.testing.assert_allclose(moments.norm(a, order, axes, False).astype(float), exact, **close)


@pytest.mark.parametrize("shape", [(6, 50), (60, 5000), (50_000, 2)], ids=str)
def test_variance_is_stable_far_from_zero(shape):
    a = (values(shape, DOUBLE) + 1e9).astype(np.float64)

    for axes in ((0,), (1,), (0, 1)):
        exact = (a - 1e9).var(axes)
        # A mean is rounded to 1e-7 here, a deviation is about 3; without a mean taken off, no digit would be right.
        np.testing.assert_allclose(moments.variance(a, axes, 0, False), exact, rtol=1e-7 if tier.compiles() else 1e-5)


@pytest.mark.parametrize("rows", [3, 5003])
def test_moments_of_infinities(rows):
    a = np.zeros((rows, 3), np.float32)
    a[:, 1] = -inf
    a[rows - 1, 2] = inf

    for x in (a, np.ascontiguousarray(a.T).T):
        assert moments.logsumexp(x, (0,), False).tolist() == [pytest.approx(np.log(rows)), -inf, inf]
        found = moments.variance(x, (0,), 1, False)
        assert found[0] == 0
        assert np.isnan(found[1:]).all()
    a[0, 2] = nan
    assert np.isnan(moments.logsumexp(a, (0,), False)[2])


@pytest.mark.parametrize(("dtype", "real"), [(np.complex64, SINGLE), (np.complex128, DOUBLE), (ml_dtypes.complex32, HALF)])
def test_spread_and_norm_of_complex_numbers_are_real(dtype, real):
    a = np.array([3 + 4j, 0, -3 - 4j]).astype(dtype)

    assert moments.norm(a, 1, (0,), False) == 10
    assert moments.norm(a, 1, (0,), False).dtype == moments.variance(a, (0,), 1, False).dtype == real
    assert moments.variance(a, (0,), 1, False) == 25


def test_logsumexp_does_not_overflow():
    a = values((80, 100), SINGLE)
    a[:, 5] += 1000

    np.testing.assert_allclose(moments.logsumexp(a, (1,), False), a[:, 5], rtol=1e-6)


# -- equal bits ----------------------------------------------------------------------------------------------------------


def everything(a):
    yield reduce(SUM, a, (0,), False, a.dtype, a.dtype)
    yield reduce(SUM, a, (1,), False, a.dtype, a.dtype)
    yield reduce(SUM, a, (0, 1), False, a.dtype, a.dtype)
    yield moments.norm(a, 2, (0, 1), False)
    yield from (moments.variance(a, d, 1, False) for d in ((0,), (1,), (0, 1)))
    yield from (moments.logsumexp(a, d, False) for d in ((0,), (1,), (0, 1)))
    yield extremes.argument(a, None, False, True)


@compiled
@pytest.mark.parametrize("shape", [(1200, 700), (3, 400_000), (400_000, 3)], ids=str)
def test_any_number_of_threads_gives_the_same_bits(shape):
    a, before, found = values(shape, SINGLE), pool.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            found.append([x.tobytes() for x in everything(a)])
    finally:
        pool.set_num_threads(before)

    assert found[0] == found[1] == found[2]


@compiled
def test_both_tiers_agree():
    a, before = values((300, 200), SINGLE), kernels.backend()
    fast = list(everything(a))
    try:
        kernels.set_backend("numpy")
        plain = list(everything(a))
    finally:
        kernels.set_backend(before)

    for x, y in zip(fast, plain, strict=True):
        np.testing.assert_allclose(x, y, rtol=3e-6, atol=2e-4)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100, 4096])
def test_small_products_have_the_same_bits_before_and_after_a_kernel_is_learned(n):
    x = fb.tensor(np.random.default_rng(n).uniform(0.9, 1.1, (4096 // n, n)).astype(np.float32))
    made = [fb.prod(x, 1) for _ in range(1100)]

    assert all(fb.equal(made[0], other) for other in made[1:])
    np.testing.assert_allclose(made[0].numpy(), np.prod(x.numpy().astype(np.float64), 1), rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128], ids=str)
@pytest.mark.parametrize("how", [SUM, MEAN], ids=lambda how: how.name)
@pytest.mark.parametrize("keepdim", [False, True])
def test_complex_numbers_are_added_in_parts_along_any_dimensions(how, dtype, keepdim):
    kind, rng = np.dtype(dtype), np.random.default_rng(0)
    for shape, axes in [((5000,), (0,)), ((300_000,), (0,)), ((70, 100), (0,)), ((70, 100), (1,)), ((70, 100), (0, 1)),
                        ((9, 80, 30), (1, 0)), ((9, 80, 30), (0, 2)), ((3, 40_000), (0,))]:  # fmt: skip
        a = rng.normal(size=(*shape, 2)).view(complex)[..., 0].astype(kind)
        a[(3 % shape[0],) + (0,) * (len(shape) - 1)] = complex(0, inf)

        made = reduce(how, a, axes, keepdim, kind, kind)

        wide = a.astype(complex)
        with np.errstate(all="ignore"):               # a complex number with an infinity, divided
            expected = (wide.mean if how is MEAN else wide.sum)(axes, keepdims=keepdim)
        assert made.dtype == kind
        assert made.flags.c_contiguous
        for part in ("real", "imag"):
            np.testing.assert_allclose(getattr(made, part), getattr(expected, part), rtol=1e-5, atol=1e-5 if how is MEAN else 1e-2)


@compiled
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("term", [None, square, magnitude])
def test_sums_over_rows_have_the_same_bits_in_vectors_and_in_the_loop_for_all_reductions(dtype, term, monkeypatch):
    result, how = SINGLE if dtype.itemsize < 4 else dtype, Reduction("sum", "add", term)
    for shape in ((3, 1000), (8, 17), (77, 64), (64, 100), (1000, 7), (131, 2), (600, 1033), (5, 30, 40), (70_000, 5)):
        a, axes = values(shape, dtype), (len(shape) - 2,)
        in_vectors = reduce_loops.plan(a, how, axes, False, result, dtype)
        with monkeypatch.context() as patch:
            patch.setattr(reduce_loops, "ON_VECTORS", ())
            plain = reduce_loops.plan(a, how, axes, False, result, dtype)
        assert in_vectors is not None
        assert in_vectors(a).tobytes() == plain(a).tobytes(), shape


@pytest.mark.parametrize("n", [1, 3, 4, 15, 16, 17, 64, 100, 1023, 1024, 1025, 4099])
def test_sums_of_integers_of_every_length_wrap_around_as_numpys(n):
    a = np.random.default_rng(n).integers(-(2**62), 2**62, (700, n))

    np.testing.assert_array_equal(fb.from_numpy(a).sum(-1).numpy(), a.sum(-1))
    assert fb.from_numpy(a).sum().item() == a.sum()


@pytest.mark.parametrize("n", [1000, 1025, 4096, 70_001])
def test_variances_keep_their_digits_beside_a_large_mean(n):
    a = (np.random.default_rng(n).normal(size=(50, n)) + 1000).astype(np.float32)

    np.testing.assert_allclose(fb.from_numpy(a).var(-1).numpy(), a.astype(np.float64).var(-1, ddof=1), rtol=3e-7)


@pytest.mark.parametrize("combine", ["amax", "amin"])
def test_extremes_of_columns_of_halves_are_those_of_float32(combine):
    x = np.random.default_rng(1).integers(0, 1 << 16, (300, 500), np.uint16).view(np.float16)
    x[:, ::2] = np.where(np.isnan(x[:, ::2]), 0, x[:, ::2])  # half of the columns without a nan

    made = getattr(fb, combine)(fb.tensor(x), 0).numpy()

    np.testing.assert_array_equal(made, getattr(fb, combine)(fb.tensor(x.astype("f")), 0).numpy().astype(np.float16))
    assert np.isnan(made).any()
    assert not np.isnan(made[::2]).any()


@kernel(in_vectors=True)
def summed(chunk, x, out, n, *, TERM, FAR):
    out[0] = sum_of(x, n, widened(x)(0), TERM, False, widened(x), False, None, FAR)


@compiled
@pytest.mark.parametrize("term", [None, magnitude, square])
@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, HALF], ids=str)
@pytest.mark.parametrize("n", [0, 5, 127, 128, 1000, 1024])
def test_sums_of_what_comes_from_memory_have_the_same_bits(dtype, term, n):
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    near, far = np.empty((2, 1))

    summed.run(1, x, near, n, TERM=term, FAR=False)
    summed.run(1, x, far, n, TERM=term, FAR=True)

    assert near == far


def test_sums_of_what_comes_from_memory_are_read_by_half_a_line():
    types = {"x": "float32", "out": "float64", "n": int}

    text = lower.module_text(summed.function, "f", types, {"TERM": None, "FAR": True}, False, True, 512)

    assert len(re.findall("= load <8 x float>.* align 1$", text, re.M)) == 16
