"""Compiled convolutions against the plain sums of `conv/arrays.py` in float64, at every kind of shape."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels
from flambeau_kernels import engines
from flambeau_kernels.cpu import conv, tier
from flambeau_kernels.cpu.conv import arrays, depthwise_rows, direct, weight, winograd, winograd_products
from flambeau_kernels.cpu.products.matmul import has_microkernels
from flambeau_kernels.cpu.shapes.order import is_last
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

# Input, weight, stride, padding, dilation, groups.
CASES = {
    "3x3": ((2, 3, 9, 11), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided groups": ((2, 4, 9, 12), (6, 2, 3, 2), (2, 2), (1, 0), (1, 1), 2),
    "dilated": ((1, 8, 30, 60), (70, 8, 3, 3), (1, 1), (2, 1), (2, 1), 1),
    "1-d": ((2, 3, 50), (4, 3, 5), (3,), (2,), (2,), 1),
    "3-d": ((2, 4, 5, 6, 7), (8, 4, 3, 3, 3), (2, 1, 2), (1, 1, 1), (1, 1, 1), 1),
    "1x1": ((3, 6, 7, 7), (9, 6, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "1x1 strided": ((3, 6, 8, 7), (9, 6, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    "padding only": ((1, 3, 4, 4), (2, 3, 1, 1), (3, 3), (2, 2), (1, 1), 1),
    "deep": ((2, 300, 5, 5), (3, 300, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "stride beyond kernel": ((2, 3, 17, 16), (4, 3, 2, 3), (4, 5), (1, 0), (1, 1), 1),
    "depthwise": ((2, 4, 19, 23), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise multiple": ((2, 4, 19, 23), (8, 1, 5, 3), (2, 2), (2, 1), (1, 1), 4),
    "depthwise dilated": ((2, 4, 19, 103), (4, 1, 3, 3), (1, 1), (2, 2), (2, 2), 4),
    "depthwise 1-d": ((2, 4, 203), (4, 1, 4), (3,), (1,), (1,), 4),
    "depthwise large": ((1, 2, 300, 70), (2, 1, 9, 9), (1, 1), (4, 4), (1, 1), 2),
    "depthwise columns": ((2, 3, 21, 50), (3, 1, 3, 3), (1, 1), (0, 1), (1, 1), 3),
    "depthwise columns 5x5": ((1, 3, 12, 70), (6, 1, 5, 5), (1, 1), (2, 2), (1, 1), 3),
    "depthwise stride 2": ((2, 3, 21, 75), (3, 1, 3, 3), (2, 2), (1, 1), (1, 1), 3),
    "depthwise stride 2 5x5": ((2, 3, 14, 14), (3, 1, 5, 5), (2, 2), (2, 2), (1, 1), 3),
    "depthwise stride 2 4x4": ((2, 3, 9, 40), (3, 1, 4, 4), (2, 2), (3, 0), (1, 1), 3),
    "depthwise two strides": ((2, 3, 11, 37), (3, 1, 3, 4), (1, 2), (2, 1), (1, 1), 3),
    "depthwise other strides": ((2, 3, 11, 37), (3, 1, 3, 4), (2, 1), (2, 1), (1, 1), 3),
    "depthwise narrow": ((3, 5, 7, 7), (5, 1, 7, 7), (1, 1), (3, 3), (1, 1), 5),
    "depthwise of many channels narrow": ((5, 32, 7, 7), (32, 1, 7, 7), (1, 1), (3, 3), (1, 1), 32),
    "depthwise of many channels 3x3": ((2, 48, 5, 8), (48, 1, 3, 3), (1, 1), (1, 1), (1, 1), 48),
    "depthwise of many channels unpadded": ((1, 16, 9, 8), (16, 1, 5, 4), (1, 1), (0, 0), (1, 1), 16),
    "depthwise of many channels padded more": ((3, 16, 7, 6), (16, 1, 3, 5), (1, 1), (4, 5), (1, 1), 16),
    "depthwise far apart": ((2, 3, 19, 37), (3, 1, 3, 3), (1, 1), (2, 3), (3, 3), 3),
    "depthwise bands": ((1, 2, 301, 71), (2, 1, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "depthwise bands at stride 2": ((1, 2, 501, 81), (2, 1, 3, 3), (2, 2), (1, 1), (1, 1), 2),
    "depthwise padded beyond": ((2, 3, 5, 20), (3, 1, 2, 2), (1, 2), (2, 3), (1, 1), 3),
    "depthwise 1-d stride 2": ((2, 3, 61), (3, 1, 4), (2,), (1,), (1,), 3),
    "one position at stride 2": ((2, 4, 1, 1), (6, 4, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    "tiles": ((2, 16, 12, 13), (20, 16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "tiles of groups": ((2, 48, 19, 23), (40, 24, 3, 3), (1, 1), (0, 1), (1, 1), 2),
    "tiles 3-d": ((2, 17, 4, 9, 10), (18, 17, 3, 3, 3), (1, 1, 1), (1, 1, 0), (1, 1, 1), 1),
    "tiles of groups 3-d": ((1, 32, 3, 8, 9), (48, 16, 2, 3, 3), (1, 1, 1), (0, 2, 1), (1, 1, 1), 2),
    "tiles at stride 2": ((3, 16, 13, 16), (20, 16, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    "tiles at stride 2 unpadded": ((3, 17, 13, 16), (16, 17, 3, 3), (2, 2), (0, 0), (1, 1), 1),
    "tiles at stride 2 padded by 2": ((3, 16, 13, 10), (20, 16, 3, 3), (2, 2), (2, 2), (1, 1), 1),
    "tiles of four taps": ((3, 17, 13, 16), (20, 17, 4, 4), (2, 2), (1, 1), (1, 1), 1),
    "tiles of four taps padded by 2": ((2, 16, 14, 11), (20, 16, 4, 4), (2, 2), (2, 2), (1, 1), 1),
    "tiles of four taps padded by 3": ((3, 16, 11, 16), (20, 16, 4, 4), (2, 2), (3, 3), (1, 1), 1),
    "tiles of four taps unpadded": ((3, 16, 15, 16), (20, 16, 4, 4), (2, 2), (0, 0), (1, 1), 1),
    "large tiles": ((1, 16, 30, 31), (20, 16, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "tiles of many": ((1, 80, 17, 33), (140, 80, 3, 3), (1, 1), (2, 2), (1, 1), 1),
}  # fmt: skip
# Largest difference over the largest result, in units of the dtype's epsilon. Sums of 700 to 2700 terms are among the cases.
BOUND = {"float32": 24, "float64": 24, "float16": 1, "bfloat16": 1}


def operands(case: str, dtype: Any) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    x_shape, w_shape, *settings = CASES[case]
    rng = np.random.default_rng(len(case))
    x, w, b = (rng.normal(size=s).astype(dtype) for s in (x_shape, w_shape, w_shape[:1]))
    return x, w, b, tuple(settings)


def assert_close(made: Any, wanted: Any, dtype: Any) -> None:
    assert made.dtype == dtype
    assert made.shape == wanted.shape
    error = np.abs(made.astype(float) - wanted).max() / np.abs(wanted).max()
    assert error <= BOUND[np.dtype(dtype).name] * float(ml_dtypes.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_the_three_maps(case, dtype):
    x, w, b, settings = operands(case, dtype)
    exact_x, exact_w, exact_b = (a.astype(float) for a in (x, w, b))
    exact = arrays.convolve(exact_x, exact_w, *settings, exact_b)
    y = np.random.default_rng(7).normal(size=exact.shape).astype(dtype)
    spatial, kernel = x.shape[2:], w.shape[2:]

    assert_close(conv.convolve(x, w, *settings, b), exact, dtype)
    assert_close(conv.convolve_input(y, w, spatial, *settings),
                 arrays.convolve_input(y.astype(float), exact_w, spatial, *settings), dtype)  # fmt: skip
    assert_close(conv.convolve_weight(x, y, kernel, *settings),
                 arrays.convolve_weight(exact_x, y.astype(float), kernel, *settings), dtype)  # fmt: skip


def three_maps(case: str, dtype: Any = np.float32) -> list[Any]:
    x, w, b, settings = operands(case, dtype)
    y = conv.convolve(x, w, *settings, b)
    return [y, conv.convolve_input(y, w, x.shape[2:], *settings), conv.convolve_weight(x, y, w.shape[2:], *settings)]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", ["dilated", "depthwise large", "depthwise columns", "depthwise bands", "depthwise bands at stride 2",
                                  "tiles", "tiles at stride 2", "tiles 3-d", "tiles of many", "3-d"])  # fmt: skip
def test_the_same_bits_on_any_number_of_threads(case, dtype):
    before = pool.get_num_threads()
    try:
        made = []
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            made.append(three_maps(case, dtype))
    finally:
        pool.set_num_threads(before)

    for other in made[1:]:
        for a, b in zip(made[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("case", ["3x3", "depthwise", "depthwise stride 2", "tiles", "tiles at stride 2", "1-d"])
def test_any_strides(case):
    x, w, b, settings = operands(case, np.float32)
    wanted = conv.convolve(x, w, *settings, b)
    order = (0, *range(2, x.ndim), 1)
    last = np.ascontiguousarray(x.transpose(order)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    sparse = np.repeat(x, 2, -1)[..., ::2]
    turned = np.ascontiguousarray(w.T).T

    np.testing.assert_array_equal(conv.convolve(last, w, *settings, b), wanted)
    np.testing.assert_array_equal(conv.convolve(sparse, turned, *settings, b[::-1].copy()[::-1]), wanted)
    np.testing.assert_array_equal(conv.convolve_weight(last, wanted, w.shape[2:], *settings),
                                  conv.convolve_weight(x, wanted, w.shape[2:], *settings))  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("settings", [((1, 1), (1, 1), (1, 1)), ((2, 1), (2, 3), (1, 2)), ((1, 1), (4, 0), (1, 1))])
def test_single_channels_that_are_last_give_the_same_bits_and_stay_last(settings, dtype):
    rng = np.random.default_rng(5)
    x, w, b = (rng.normal(size=s).astype(dtype) for s in ((2, 32, 9, 15), (32, 1, 3, 4), (32,)))
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    wanted = conv.convolve(x, w, *settings, 32, b)

    made = conv.convolve(last, w, *settings, 32, b)

    assert_close(wanted, arrays.convolve(*(a.astype(float) for a in (x, w)), *settings, 32, b.astype(float)), dtype)
    np.testing.assert_array_equal(made, wanted)
    if flambeau_kernels.backend() == "llvm":                  # which goes along the channels; numpy's way lays them out anew
        assert is_last(made)


# Extents, input and output channels, kernel, stride, dilation.
SEPARATE = {
    "single taps": ((14, 15), 40, 36, (1, 1), (1, 1), (1, 1)),
    "single taps strided": ((33, 46), 33, 30, (1, 1), (2, 3), (1, 1)),
    "single taps strided and dilated": ((33, 36), 40, 33, (1, 1), (2, 2), (3, 2)),
    "side by side": ((32, 34), 28, 29, (2, 2), (2, 2), (1, 1)),
    "side by side with a rest": ((31, 47), 27, 30, (2, 3), (2, 3), (1, 1)),
    "volumes": ((9, 9, 19), 25, 30, (2, 1, 3), (2, 1, 3), (1, 1, 1)),
    "volumes of single taps": ((5, 6, 7), 33, 40, (1, 1, 1), (1, 1, 1), (1, 1, 1)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", SEPARATE)
def test_separate_windows_of_images_whose_channels_are_last_are_rows_of_products(case, dtype):
    extents, channels, outputs, kernel, stride, dilation = SEPARATE[case]
    rng, n = np.random.default_rng(len(case)), len(extents)
    padding = (0,) * n
    shapes = (3, channels, *extents), (outputs, channels, *kernel), (outputs,), (channels,)
    x, w, b, c = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    exact_x, exact_w, exact_b, exact_c = (a.astype(float) for a in (x, w, b, c))
    exact = arrays.convolve(exact_x, exact_w, stride, padding, dilation, 1, exact_b)
    y = rng.normal(size=exact.shape).astype(dtype)
    exact_y = y.astype(float)

    def last(a):
        return np.ascontiguousarray(a.transpose(0, *range(2, n + 2), 1)).transpose(0, n + 1, *range(1, n + 1))

    before, results = pool.get_num_threads(), []
    try:
        for threads in (1, 3):
            pool.set_num_threads(threads)
            results.append([
                conv.convolve(last(x), w, stride, padding, dilation, 1, b),
                conv.convolve_input(last(y), w, extents, stride, padding, dilation, 1, c),
                conv.convolve_weight(last(x), last(y), kernel, stride, padding, dilation, 1),
            ])  # fmt: skip
    finally:
        pool.set_num_threads(before)
    for one, several in zip(*results, strict=True):
        np.testing.assert_array_equal(one, several)
    made, back, weights = results[0]
    if flambeau_kernels.backend() == "llvm" and has_microkernels():  # without them they are taken apart, and laid out in rows
        assert is_last(made)
        assert is_last(back)
        # An image's results depend on no other.
        np.testing.assert_array_equal(conv.convolve(last(x)[1:2], w, stride, padding, dilation, 1, b), made[1:2])
        np.testing.assert_array_equal(conv.convolve_input(last(y)[1:2], w, extents, stride, padding, dilation, 1, c), back[1:2])
    assert_close(made, exact, dtype)
    assert_close(back, arrays.convolve_input(exact_y, exact_w, extents, stride, padding, dilation, 1, exact_c), dtype)
    assert_close(weights, arrays.convolve_weight(exact_x, exact_y, kernel, stride, padding, dilation, 1), dtype)


@pytest.mark.parametrize("extent", [(1, 1), (3, 4), (6, 30)], ids=str)
@pytest.mark.parametrize("kernel", [(1, 3), (3, 3), (5, 2), (7, 7), (2, 9)], ids=str)
@pytest.mark.parametrize("settings", [((1, 1), (0, 0), (1, 1)), ((1, 1), (3, 4), (1, 1)), ((2, 3), (6, 1), (1, 2))], ids=str)
def test_single_channels_that_are_last_reach_every_edge(settings, kernel, extent):
    stride, padding, dilation = settings
    numbers = np.random.default_rng(3)
    x, w = numbers.standard_normal((2, 21, *extent)).astype("f"), numbers.standard_normal((21, 1, *kernel)).astype("f")
    reach = [e + 2 * p - d * (k - 1) for e, p, d, k in zip(extent, padding, dilation, kernel, strict=True)]
    if min(reach) < 1:
        pytest.skip("no position")
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    made = conv.convolve(last, w, stride, padding, dilation, 21)
    np.testing.assert_allclose(made, conv.arrays.convolve(x, w, stride, padding, dilation, 21), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["strided groups", "tiles", "tiles at stride 2", "tiles 3-d", "large tiles", "depthwise"])
def test_blocks_of_images_do_not_change_results(case, monkeypatch):
    wanted = three_maps(case)

    monkeypatch.setattr(direct, "BLOCK_BYTES", 1)
    monkeypatch.setattr(winograd_products, "BLOCK_BYTES", 1)
    conv.forget()
    made = three_maps(case)
    conv.forget()

    for a, b in zip(made, wanted, strict=True):
        assert_close(a, b.astype(float), np.float32)


def test_what_is_kept_for_many_shapes_is_bounded(monkeypatch):
    conv.forget()
    monkeypatch.setattr(conv, "_MOST_BYTES", 40_000)
    w = np.ones((16, 16, 3, 3), np.float32)
    for size in range(20, 40):
        x = np.ones((1, 16, size, size), np.float32)
        assert conv.convolve(x, w, (2, 2), (1, 1), (1, 1), 1)[0, 0, 1, 1] == 144

        assert len(conv._chosen) <= 6
    conv.forget()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("case", ["3x3", "strided groups", "depthwise", "depthwise columns", "depthwise stride 2", "1-d", "tiles",
                                  "tiles at stride 2"])  # fmt: skip
def test_what_is_not_finite_reaches_exactly_its_windows(case, value, dtype):
    x, w, b, settings = operands(case, dtype)
    x[1, 1, ..., 5] = value

    with np.errstate(invalid="ignore"):
        made, wanted = conv.convolve(x, w, *settings, b), arrays.convolve(x, w, *settings, b)

    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("case", ["tiles", "tiles at stride 2", "tiles 3-d", "depthwise columns", "depthwise stride 2"])
def test_what_is_not_finite_reaches_exactly_its_taps(case, value):
    x, w, _, settings = operands(case, np.float32)
    y = arrays.convolve(x, w, *settings)
    y[0, 1] = 0
    y[0, 1, ..., 2, 2] = value
    x[0, :, ..., 3, 3] = 0

    with np.errstate(invalid="ignore"):
        made, wanted = (f(x, y, w.shape[2:], *settings) for f in (conv.convolve_weight, arrays.convolve_weight))

    assert not np.isfinite(wanted).all()
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))


@pytest.mark.parametrize(("size", "kernel", "stride"), [(14, 3, 1), (40, 3, 1), (14, 4, 2), (40, 3, 2)])
def test_tiles_are_as_accurate_as_plain_sums(size, kernel, stride):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 128, size, size)).astype(np.float32)
    w = rng.normal(size=(128, 128, kernel, kernel)).astype(np.float32)
    settings = (stride, stride), (1, 1), (1, 1), 1
    exact = arrays.convolve(x.astype(float), w.astype(float), *settings)

    small = winograd_products.pays(x, exact.shape[2:], 128, (kernel, kernel), *settings, False)
    assert small or winograd.pays(4, 128, 128, exact.shape[2:], (3, 3), (stride, stride), (1, 1), False)
    by_tiles = np.abs(conv.convolve(x, w, *settings) - exact).max()
    plainly = np.abs(arrays.convolve(x, w, *settings) - exact).max()

    assert by_tiles < 3 * plainly


AT_TWO = [((3, 64, 41, 57), 64, 1, 1, True), ((7, 130, 30, 33), 70, 0, 1, False), ((4, 128, 35, 40), 136, 2, 2, True)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("shape", "outputs", "padding", "groups", "biased"), AT_TWO)
def test_three_by_three_at_stride_2_by_tiles_is_exact_of_small_integers(shape, outputs, padding, groups, biased, dtype):
    rng = np.random.default_rng(5)
    x = rng.integers(-2, 3, shape).astype(dtype)
    w = (rng.integers(-1, 2, (outputs, shape[1] // groups, 3, 3)) * (rng.random((outputs, 1, 3, 3)) < 0.5)).astype(dtype)
    bias = rng.integers(-4, 5, outputs).astype(dtype) if biased else None
    settings = (2, 2), (padding, padding), (1, 1), groups
    wanted = arrays.convolve(x.astype(float), w.astype(float), *settings, None if bias is None else bias.astype(float))

    assert winograd.pays(len(x), shape[1] // groups, outputs // groups, wanted.shape[2:], (3, 3), *settings[:1], (1, 1), False)
    np.testing.assert_array_equal(conv.convolve(x, w, *settings, bias).astype(float), wanted)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_only_the_results_at_stride_2_that_see_it(value):
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(4, 64, 40, 40)).astype(np.float32), rng.normal(size=(64, 64, 3, 3)).astype(np.float32)
    x[1, 3, 7, 8] = value
    settings = (2, 2), (1, 1), (1, 1), 1

    with np.errstate(invalid="ignore"):
        made, wanted = conv.convolve(x, w, *settings), arrays.convolve(x, w, *settings)

    assert 0 < (~np.isfinite(wanted)).sum() == 2 * 64
    np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wanted))


def test_inputs_by_tiles_at_stride_2_are_as_accurate_as_plain_sums():
    rng = np.random.default_rng(3)
    y, w = rng.normal(size=(4, 32, 14, 14)).astype(np.float32), rng.normal(size=(32, 64, 3, 3)).astype(np.float32)
    settings = (28, 28), (2, 2), (1, 1), (1, 1), 1
    exact = arrays.convolve_input(y.astype(float), w.astype(float), *settings)

    assert winograd_products.pays(y, (28, 28), 64, (3, 3), (2, 2), (1, 1), (1, 1), 1, True)
    by_tiles = np.abs(conv.convolve_input(y, w, *settings) - exact).max()
    plainly = np.abs(arrays.convolve_input(y, w, *settings) - exact).max()

    assert by_tiles < 3 * plainly


def test_three_by_three_at_stride_2_goes_by_no_tiles_in_memory_as_moving_elements_costs_more():
    """It had 0.84 to 0.94 of PyTorch's speed by these tiles, with AVX-512; those of `winograd` stay in the cache."""
    for n, c, size in ((8, 64, 56), (8, 256, 14), (4, 32, 112)):
        x = np.empty((n, c, size, size), np.float32)
        assert not winograd_products.pays(x, (size // 2,) * 2, 2 * c, (3, 3), (2, 2), (1, 1), (1, 1), 1, False)


def test_four_by_four_at_stride_2_goes_by_tiles_in_memory_where_channels_are_many():
    """32 channels to 64 took 1.2 times as long by tiles as directly."""
    few, many = np.empty((8, 32, 56, 56), np.float32), np.empty((8, 128, 28, 28), np.float32)
    assert not winograd_products.pays(few, (28, 28), 64, (4, 4), (2, 2), (1, 1), (1, 1), 1, False)
    assert winograd_products.pays(many, (14, 14), 256, (4, 4), (2, 2), (1, 1), (1, 1), 1, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "bfloat16"])
@pytest.mark.parametrize("width", [3, 7, 8, 15, 16, 17, 31, 33, 40])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_rows_of_all_lengths_are_laid_out_with_zeros_around(stride, width, dtype):
    """The last vector of a row overlaps the one before it."""
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(width)
    x, w = (rng.integers(-4, 5, s).astype(kind) for s in ((2, 3, 5, width), (4, 3, 5, 5)))
    settings = (stride, stride), (2, 2), (1, 1), 1
    by = direct.Direct(x, w, arrays.output_sizes(x.shape[2:], (5, 5), *settings[:3]), *settings[:3], 1, False)

    np.testing.assert_array_equal(by(x, w, None).astype(float), arrays.convolve(x.astype(float), w.astype(float), *settings).astype(kind))


def test_gradients_of_weights_by_tiles_are_as_accurate_as_plain_sums():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(4, 32, 14, 14)).astype(np.float32), rng.normal(size=(4, 24, 14, 14)).astype(np.float32)
    settings = (3, 3), (1, 1), (1, 1), (1, 1), 1
    exact = arrays.convolve_weight(x.astype(float), y.astype(float), *settings)

    assert winograd_products.pays_for_weight(x, (14, 14), 24, (3, 3), (1, 1), (1, 1), 1)
    by_tiles = np.abs(conv.convolve_weight(x, y, *settings) - exact).max()
    plainly = np.abs(arrays.convolve_weight(x, y, *settings) - exact).max()

    assert by_tiles < 3 * plainly


def test_empty_arrays_and_other_dtypes_go_to_numpy():
    none, w = np.zeros((0, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)
    assert conv.convolve(none, w, (1, 1), (1, 1), (1, 1), 1).shape == (0, 3, 5, 5)
    x, w = np.arange(12).reshape(1, 1, 3, 4), np.ones((1, 1, 2, 2), np.int64)
    assert conv.convolve(x, w, (1, 1), (0, 0), (1, 1), 1)[0, 0].tolist() == [[10, 14, 18], [26, 30, 34]]


@pytest.mark.skipif(engines.chosen().name != "llvm", reason="no instructions of the processor")
def test_bfloat16_is_multiplied_in_pairs_by_the_processors_instruction_and_not_by_tiles_of_float32():
    x, w, _, settings = operands("tiles of many", ml_dtypes.bfloat16)
    stride, padding, dilation, groups = settings
    has = "+avx512bf16" in llvm.machine().features.split(",") and llvm.machine().register_bits == 512

    made = arrays.output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    run = conv.chosen(x, w, made, stride, padding, dilation, groups, False)

    assert (isinstance(run, direct.Direct) and run.source.pairs) == has


@pytest.mark.skipif(not tier.compiles(), reason="no compiler")
def test_depthwise_convolutions_of_planes_of_7_by_7_do_not_slide_along_rows_that_fill_half_a_vector(monkeypatch):
    x, w, b, settings = operands("depthwise of many channels narrow", np.float32)
    wanted = three_maps("depthwise of many channels narrow")
    conv.forget()
    monkeypatch.setattr(depthwise_rows, "Correlation", None)

    y = conv.convolve(x, w, *settings, b)

    np.testing.assert_array_equal(y, wanted[0])
    np.testing.assert_array_equal(conv.convolve_input(y, w, x.shape[2:], *settings), wanted[1])


@pytest.mark.skipif(not engines.chosen().multiplies, reason="BLAS multiplies")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positions", [(12, 11), (200,), (4, 6, 7)], ids=str)
def test_the_gradient_of_a_weight_of_single_taps_is_a_product_of_matrices(positions, dtype, monkeypatch):
    x, y = (np.random.default_rng(k).standard_normal((3, c, *positions)).astype(dtype) for k, c in enumerate((33, 40)))
    d = len(positions)
    settings = (1,) * d, (1,) * d, (0,) * d, (1,) * d
    conv.forget()
    monkeypatch.setattr(weight, "Gradient", None)

    made = conv.convolve_weight(x, y, *settings, 1)

    expected = np.einsum("nop,ncp->oc", y.reshape(3, 40, -1).astype(np.float64), x.reshape(3, 33, -1).astype(np.float64))
    assert made.shape == (40, 33, *settings[0])
    assert made.dtype == dtype
    np.testing.assert_allclose(made.reshape(40, 33), expected, rtol=0, atol=500 * np.finfo(dtype).eps)


def test_the_numpy_backend_compiles_nothing(monkeypatch):
    monkeypatch.setattr(engines, "_chosen", engines.ENGINES["numpy"])
    monkeypatch.setattr(conv, "correlation", lambda *args: pytest.fail("compiled"))
    x, w, b, settings = operands("3x3", np.float32)

    conv.convolve(x, w, *settings, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "padding", "dilation", "groups"),
    [
        ((2, 24, 9, 11), 40, (3, 3), (1, 1), (1, 1), (2, 2), 1), ((3, 8, 7, 30), 17, (3, 2), (2, 1), (1, 0), (1, 1), 1),
        ((1, 3, 20, 21), 9, (7, 7), (2, 2), (3, 3), (1, 1), 1), ((2, 36, 6, 5), 24, (3, 3), (1, 1), (1, 1), (1, 1), 3),
        ((2, 9, 4, 5, 6), 33, (2, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 1), 1), ((1, 16, 30, 70), 130, (5, 5), (3, 3), (2, 2), (1, 1), 1),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_channels_last_in_memory_change_where_results_lie_and_nothing_else(
    shape, outputs, kernel, stride, padding, dilation, groups, transposed, dtype
):
    rng = np.random.default_rng(0)
    weight = (shape[1], outputs // groups) if transposed else (outputs, shape[1] // groups)
    x, w, b = (rng.normal(size=s).astype(dtype) for s in (shape, (*weight, *kernel), (outputs,)))
    spatial = [(n - 1) * s + d * (k - 1) + 1 - 2 * p for n, s, d, k, p in zip(shape[2:], stride, dilation, kernel, padding, strict=True)]
    made = tuple(spatial) if transposed else arrays.output_sizes(shape[2:], kernel, stride, padding, dilation)
    by = direct.Direct(x, w, made, stride, padding, dilation, groups, transposed)
    expected = by(x, w, b)

    for left, right in itertools.product((x, last(x)), (w, last(w))):
        out = direct.Direct(left, right, made, stride, padding, dilation, groups, transposed)(left, right, b)

        assert is_last(out) == is_last(left)
        np.testing.assert_array_equal(np.ascontiguousarray(out).view(np.uint8), expected.view(np.uint8))


def last(x: np.ndarray) -> np.ndarray:
    """`x` with its channels last in memory."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


@pytest.mark.parametrize("formats", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_orders_of_memory_of_results_and_gradients(transposed, formats):
    rng = np.random.default_rng(0)
    function = fb.nn.functional.conv_transpose2d if transposed else fb.nn.functional.conv2d
    x, w = fb.tensor(rng.normal(size=(2, 16, 9, 8))), fb.tensor(rng.normal(size=(16, 16, 3, 3)))
    expected = function(x, w, None, 2, 1)
    grad = fb.tensor(rng.normal(size=expected.shape))
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    wanted = fb.autograd.grad(function(*leaves, None, 2, 1), leaves, grad)
    x, w, grad = (t.to(memory_format=fb.channels_last) if f else t for t, f in zip((x, w, grad), formats, strict=True))
    leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
    for _ in range(2):
        made = function(*leaves, None, 2, 1)
        plain = function(x, w, None, 2, 1)
        given = fb.autograd.grad(made, leaves, grad)

        for each in (made, plain):
            assert each.is_contiguous(memory_format=fb.channels_last if any(formats[:2]) else fb.contiguous_format)
            np.testing.assert_allclose(each.detach().numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)
        for got, right in zip(given, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("channels", [2, 3, 5, 6])
def test_elements_of_few_channels_are_taken_at_every_step(channels, dtype):
    rng = np.random.default_rng(0)
    for step, width in itertools.product((1, 2, 3, 4), (5, 18, 37, 150)):
        x, w = rng.normal(size=(2, channels, 4, width)).astype(dtype), rng.normal(size=(4, channels, 1, 3)).astype(dtype)
        settings = (1, step), (0, 1), (1, 1)
        made = arrays.output_sizes(x.shape[2:], (1, 3), *settings)

        plain, turned = (direct.Direct(a, w, made, *settings, 1, False)(a, w, None) for a in (x, last(x)))

        np.testing.assert_array_equal(np.ascontiguousarray(turned).view(np.uint8), plain.view(np.uint8))
