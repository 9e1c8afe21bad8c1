"""Compiled normalization against its formula in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu import norm, norm_rows
from flambeau_kernels.engine import llvm, pool

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
EPS = 1e-5


def drawn(shape, dtype, seed=0, mean=0.5):
    return (np.random.default_rng(seed).normal(size=shape) + mean).astype(dtype)


def wide(a):
    return a.astype(np.float64)


def standardized(x, axes, centred=True):
    mean = x.mean(axes, keepdims=True) if centred else np.zeros_like(x.mean(axes, keepdims=True))
    variance = ((x - mean) ** 2).mean(axes, keepdims=True)
    return mean, variance, (x - mean) / np.sqrt(variance + EPS)


def gradient(g, x, axes, centred=True):
    """Of the standardized input at the input."""
    _, variance, unit = standardized(x, axes, centred)
    level = g.mean(axes, keepdims=True) if centred else 0
    return (g - level - unit * (g * unit).mean(axes, keepdims=True)) / np.sqrt(variance + EPS)


def close(made, expected, dtype, loss=4.0):
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(wide(made), expected, rtol=loss * eps, atol=loss * eps * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 7), (3, 1000), (300, 16), (130, 33), (1, 1)])
@pytest.mark.parametrize("centred", [True, False])
def test_rows(shape, centred, dtype):
    x, g = drawn(shape, dtype), drawn(shape, dtype, 1, 0)
    weight, bias = drawn(shape[1], dtype, 2), drawn(shape[1], dtype, 3)

    out, mean, variance, inverse = norm_rows.normalize(x, weight, bias, EPS, centred)
    to_x, to_weight, to_bias = norm_rows.backward(g, x, weight, mean, inverse, (True, True, True), centred)

    m, v, unit = standardized(wide(x), 1, centred)
    kind = np.float64 if dtype == np.float64 else np.float32
    close(mean, m, kind)
    close(variance, v, kind)
    close(out, unit * wide(weight) + wide(bias), dtype)
    close(to_x, gradient(wide(g) * wide(weight), wide(x), 1, centred), dtype, 16)
    close(to_weight, (wide(g) * unit).sum(0), kind, 40)
    close(to_bias, wide(g).sum(0), kind, 40)


def test_a_large_mean_costs_no_digits():
    x = drawn((4, 500), np.float32, mean=1000)

    out = norm_rows.normalize(x, None, None, EPS, True)[0]

    close(out, standardized(wide(x), 1)[2], np.float32, 200)  # the mean itself has been rounded


def test_only_what_is_wanted():
    x, g = drawn((20, 30), np.float32), drawn((20, 30), np.float32, 1)
    _, mean, _, inverse = norm_rows.normalize(x, None, None, EPS, True)
    everything = norm_rows.backward(g, x, None, mean, inverse, (True, True, True), True)

    for wants in ((True, False, False), (False, True, False), (False, False, True)):
        made = norm_rows.backward(g, x, None, mean, inverse, wants, True)
        for one, want, full in zip(made, wants, everything, strict=True):
            assert (one is not None) == want
            assert one is None or np.array_equal(one, full)


def threads_agree(compute):
    before = pool.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            found.append([a.tobytes() for a in compute()])
    finally:
        pool.set_num_threads(before)
    return found[0] == found[1] == found[2]


def test_row_results_do_not_depend_on_the_number_of_threads():
    x, g, weight = drawn((3000, 70), np.float32), drawn((3000, 70), np.float32, 1), drawn(70, np.float32, 2)

    def compute():
        out, mean, variance, inverse = norm_rows.normalize(x, weight, None, EPS, True)
        return out, mean, variance, *norm_rows.backward(g, x, weight, mean, inverse, (True, True, True), True)

    assert threads_agree(compute)


def test_row_tiers_agree(monkeypatch):
    x, g, weight = drawn((30, 70), np.float32), drawn((30, 70), np.float32, 1), drawn(70, np.float32, 2)
    found = []
    for taken in (True, False):
        monkeypatch.setattr(norm, "_compiled", lambda a, taken=taken: taken)
        keep = norm.Moments()
        out = norm.row_normalize(x, weight, None, EPS, keep)
        found.append((out, keep.mean, keep.variance, *norm.row_backward(g, x, weight, keep, (True, True, True))))

    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)
