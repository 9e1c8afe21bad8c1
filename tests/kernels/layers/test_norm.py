"""Compiled normalization against its formula in float64."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels import takeover
from flambeau_kernels.cpu import norm
from flambeau_kernels.cpu.norm import as_numpy, planes, rows
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

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

    out, mean, variance, inverse = rows.normalize(x, weight, bias, EPS, centred)
    to_x, to_weight, to_bias = rows.backward(g, x, weight, mean, inverse, (True, True, True), centred)

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

    out = rows.normalize(x, None, None, EPS, True)[0]

    close(out, standardized(wide(x), 1)[2], np.float32, 200)  # the mean itself has been rounded


@pytest.mark.parametrize("shape", [(20, 30), (5000, 8)])
def test_only_what_is_wanted(shape):
    x, g = drawn(shape, np.float32), drawn(shape, np.float32, 1)
    _, mean, _, inverse = rows.normalize(x, None, None, EPS, True)
    everything = rows.backward(g, x, None, mean, inverse, (True, True, True), True)

    for wants in ((True, False, False), (False, True, False), (False, False, True)):
        made = rows.backward(g, x, None, mean, inverse, wants, True)
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


@pytest.mark.parametrize("d", [340, 343, 512, 777, 1024, 1025])
@pytest.mark.parametrize("centred", [True, False])
def test_a_row_has_the_same_bits_beside_others(d, centred):
    x, weight, bias = drawn((50, d), np.float32), drawn(d, np.float32, 2), drawn(d, np.float32, 3)
    together = rows.normalize(x, weight, bias, EPS, centred)
    for r in (0, 1, 31, 32, 49):
        for made, alone in zip(together, rows.normalize(x[r : r + 1], weight, bias, EPS, centred), strict=True):
            np.testing.assert_array_equal(made[r : r + 1], alone)


def test_row_results_do_not_depend_on_the_number_of_threads():
    x, g, weight = drawn((3000, 70), np.float32), drawn((3000, 70), np.float32, 1), drawn(70, np.float32, 2)

    def compute():
        out, mean, variance, inverse = rows.normalize(x, weight, None, EPS, True)
        return out, mean, variance, *rows.backward(g, x, weight, mean, inverse, (True, True, True), True)

    assert threads_agree(compute)


def test_row_tiers_agree(monkeypatch):
    x, g, weight = drawn((30, 70), np.float32), drawn((30, 70), np.float32, 1), drawn(70, np.float32, 2)
    found = []
    for taken in (True, False):
        monkeypatch.setattr(norm, "_compiled", lambda a, taken=taken: taken)
        out, moments = norm.row_normalize(x, weight, None, EPS)
        found.append((out, moments.mean, moments.variance, *norm.row_backward(g, x, weight, moments, (True, True, True))))

    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def of_channels(x, groups, weight, bias, g):
    """Output, and gradients for input, weight and bias, in float64."""
    x, weight, bias, g = (wide(a) for a in (x, weight, bias, g))
    n, c, *rest = x.shape
    across = (1, c, *[1] * len(rest))
    if groups is None:
        axes, view = (0, *range(2, x.ndim)), x.shape
    else:
        axes, view = (2, 3), (n, groups, c // groups, -1)
    unit = standardized(x.reshape(view), axes)[2].reshape(x.shape)
    to_x = gradient((g * weight.reshape(across)).reshape(view), x.reshape(view), axes).reshape(x.shape)
    over = (0, *range(2, x.ndim))
    return unit * weight.reshape(across) + bias.reshape(across), to_x, (g * unit).sum(over), g.sum(over)


CHANNELS = [((3, 4, 7, 5), None), ((3, 4, 7, 5), 2), ((2, 6, 100), 6), ((2, 6, 5000), 3), ((2, 3, 40, 41), None), ((50, 33), None),
            ((2000, 20), None), ((70, 8, 1), None), ((4, 16, 3), 4)]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "groups"), CHANNELS)
def test_channels_and_groups(shape, groups, dtype):
    x, g = drawn(shape, dtype), drawn(shape, dtype, 1, 0)
    weight, bias = drawn(shape[1], dtype, 2), drawn(shape[1], dtype, 3)

    out, moments = norm.channel_normalize(x, groups, weight, bias, EPS)
    made = norm.channel_backward(g, x, moments.mean, moments.inverse, weight, groups, (True, True, True))

    kind = np.float64 if dtype == np.float64 else np.float32
    expected = of_channels(x, groups, weight, bias, g)
    for a, e, d, loss in zip((out, *made), expected, (dtype, dtype, kind, kind), (6, 16, 60, 60), strict=True):
        close(a, e, d, loss)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_channels_last_stays_so(constant, taken, monkeypatch):
    monkeypatch.setattr(norm, "_compiled", lambda a: taken)
    plain, g = drawn((2, 5, 6, 7), np.float32), drawn((2, 5, 6, 7), np.float32, 1)
    weight, bias = drawn(5, np.float32, 2), drawn(5, np.float32, 3)
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(plain, 1, -1)), -1, 1)
    given = drawn((1, 5), np.float32, 4), np.abs(drawn((1, 5), np.float32, 5))
    found = []
    for x in (plain, last):
        if constant:
            (mean, inverse), out = given, norm.channel_normalize_given(x, *given, weight, bias)
        else:
            out, moments = norm.channel_normalize(x, None, weight, bias, EPS)
            mean, inverse = moments.mean, moments.inverse
        made = norm.channel_backward(g, x, mean, inverse, weight, None, (True, True, True), constant)
        assert out.strides == made[0].strides == x.strides
        found.append((out, *made))

    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2, 3, 37, 41), (8, 512, 2, 2), (3, 5, 1999), (4, 16, 3, 8, 8), (1, 2, 4096), (2, 3, 4, 5)])
def test_channels_by_given_statistics_are_the_formula(shape, dtype, weighted, biased):
    x, mean, variance = drawn(shape, dtype), drawn(shape[1], dtype, 1), np.abs(drawn(shape[1], dtype, 2))
    weight, bias = drawn(shape[1], dtype, 3) if weighted else None, drawn(shape[1], dtype, 4) if biased else None

    run = norm.planned_given(x, mean, variance, weight, bias, EPS)
    if run is None and not compiles():
        pytest.skip("without compiled kernels large arrays are left to channel_normalize_given")
    found = run(x, mean, variance, weight, bias)

    scale = 1 / np.sqrt(variance + dtype(EPS)) * (weight if weighted else 1)
    across = (-1, *(1,) * (len(shape) - 2))
    expected = (x - mean.reshape(across)) * scale.reshape(across).astype(dtype)
    np.testing.assert_array_equal(found, expected + bias.reshape(across) if biased else expected)
    np.testing.assert_array_equal(found, norm.channel_normalize_given(x, *given_of(mean, variance), weight, bias))
    assert threads_agree(lambda: run(x, mean, variance, weight, bias))


def given_of(mean, variance):
    """Means and 1 / deviations of channels as `channel_normalize_given` takes them."""
    return mean[None], (1 / np.sqrt(variance + variance.dtype.type(EPS)))[None]


def test_a_large_mean_costs_no_digits_in_channels():
    x = drawn((4, 3, 900), np.float32, mean=1000)
    for a in (x, x[:, :, 0]):
        _, moments = norm.channel_normalize(np.ascontiguousarray(np.repeat(a, 20, 0)), None, None, None, EPS)

        close(moments.variance[0], wide(a).var((0, *range(2, a.ndim))), np.float32, 20)


@pytest.mark.parametrize(("shape", "groups"), [((5, 16, 3000), None), ((5, 16, 3000), 4), ((9000, 20), None)])
def test_channel_results_do_not_depend_on_the_number_of_threads(shape, groups):
    x, g, weight = drawn(shape, np.float32), drawn(shape, np.float32, 1), drawn(shape[1], np.float32, 2)

    def compute():
        out, moments = norm.channel_normalize(x, groups, weight, None, EPS)
        return out, moments.mean, *norm.channel_backward(g, x, moments.mean, moments.inverse, weight, groups, (True, True, True))

    assert threads_agree(compute)


def test_column_moments_are_those_of_the_whole():
    x = drawn((5000, 37), np.float32, mean=3)

    mean, variance = planes.column_moments(x)

    close(mean[0], wide(x).mean(0), np.float32)
    close(variance[0], wide(x).var(0), np.float32)


@pytest.mark.skipif(not compiles(), reason="the backend compiles nothing")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("centred", [True, False])
def test_few_rows_have_the_bits_of_numpy(dtype, centred, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    for n, d, affine in itertools.product((1, 2, 5), (1, 3, 7, 8, 9, 16, 23, 127), (False, True)):
        parameters = (drawn(d, dtype, 1), drawn(d, dtype, 2)) if affine else (None, None)
        run = as_numpy.planned(n, d, np.dtype(dtype), (n, d), EPS, centred, affine, affine)
        for seed in range(6):  # the third call and those after it run the kernel
            x = drawn((n, d), dtype, seed)
            expected = as_numpy.normalize(x, *parameters, EPS, centred)
            assert [m.tobytes() for m in run(x, *parameters)] == [e.tobytes() for e in expected]
        (kernel,) = [c.cell_contents for c, name in zip(run.__closure__, run.__code__.co_freevars, strict=True) if name == "native"]
        assert kernel is not None


@pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [None, 1, 2])
@pytest.mark.parametrize("shape", [(2, 4, 8), (3, 6), (2, 2, 4, 4), (1, 4, 5, 5), (5, 2, 3), (2, 8, 1), (3, 2, 63), (4, 2, 2, 3, 4)],
                         ids=str)  # fmt: skip
def test_few_channels_have_the_bits_of_numpy(dtype, groups, shape, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    for weighted, biased in itertools.product((False, True), repeat=2):
        weight, bias = drawn(shape[1], dtype, 1) if weighted else None, drawn(shape[1], dtype, 2) if biased else None
        run = as_numpy.planned_channels(shape, groups, np.dtype(dtype), EPS, weighted, biased)
        for seed in range(5):                         # the third call and those after it run the kernel
            x = drawn(shape, dtype, seed)
            expected = as_numpy.channels(x, weight, bias, EPS) if groups is None else as_numpy.groups(x, groups, weight, bias, EPS)
            assert [m.tobytes() for m in run(x, weight, bias)] == [e.tobytes() for e in expected]
        (kernel,) = [c.cell_contents for c, name in zip(run.__closure__, run.__code__.co_freevars, strict=True) if name == "native"]
        assert kernel is not None


@pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("wants", [(True, False, False), (True, True, True), (False, True, False), (False, True, True)])
def test_gradients_of_few_rows_have_the_bits_of_numpy(dtype, centred, wants, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    as_numpy.planned_backward.cache_clear()
    for (n, d), weighted in itertools.product(((1, 5), (4, 4), (7, 13), (63, 2), (1, 127)), (False, True)):
        run = as_numpy.planned_backward(n, d, np.dtype(dtype), weighted, wants, centred)
        for seed in range(4):
            grad, x = drawn((n, d), dtype, seed), drawn((n, d), dtype, seed + 10)
            weight = drawn(d, dtype, seed + 20) if weighted else None
            mean = x.mean(1, keepdims=True) * centred
            inverse = 1 / x.std(1, keepdims=True)
            made = run(grad, x, weight, mean, inverse)
            expected = as_numpy.backward(grad, x, weight, mean, inverse, wants, centred)
            assert [m is None or m.tobytes() for m in made] == [e is None or e.tobytes() for e in expected]
        (kernel,) = [c.cell_contents for c, name in zip(run.__closure__, run.__code__.co_freevars, strict=True) if name == "native"]
        assert kernel is not None
