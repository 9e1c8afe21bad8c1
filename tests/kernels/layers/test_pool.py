"""Compiled pooling, resampling and padding against the numpy kernels: values, places, ties, nan, halves, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau_kernels
from flambeau_kernels.cpu import pool
from flambeau_kernels.cpu.images import resample
from flambeau_kernels.cpu.pool import Window
from flambeau_kernels.cpu.shapes import pad
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.runtime import pool as threads

pytestmark = pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def by_numpy(compute: Callable[[], Any]) -> Any:
    before = flambeau_kernels._backend
    flambeau_kernels._backend = "numpy"
    try:
        return compute()
    finally:
        flambeau_kernels._backend = before


def windows(shape: tuple[int, ...], *settings: tuple[int, int, int, int]) -> tuple[Window, ...]:
    """From (kernel, stride, padding, dilation) of each axis."""
    return tuple(Window(n, k, s, p, d, (n + 2 * p - d * (k - 1) - 1) // s + 1)
                 for n, (k, s, p, d) in zip(shape[1:], settings, strict=True))  # fmt: skip


POOLS = {
    "3x3 stride 2": ((3, 9, 11), (3, 2, 1, 1), (2, 2, 0, 1)),
    "3x3": ((3, 30, 70), (3, 1, 1, 1), (3, 1, 1, 1)),
    "1-d dilated": ((2, 50), (5, 3, 2, 2)),
    "3-d": ((2, 6, 7, 21), (2, 1, 0, 1), (3, 2, 1, 2), (4, 2, 1, 1)),
    "one element": ((4, 1, 1), (1, 1, 0, 1), (1, 1, 0, 1)),
    "half padding": ((2, 20, 20), (20, 1, 10, 1), (20, 1, 10, 1)),
    "whole rows": ((3, 2000), (2000, 1, 0, 1)),
    "a few long ones": ((5, 100), (50, 50, 0, 1)),
    "long ones over padding": ((3, 60), (40, 30, 20, 1)),
    "one row": ((3, 1, 60), (1, 1, 0, 1), (60, 1, 0, 1)),
    "wide ones": ((3, 12, 30), (3, 2, 1, 1), (10, 5, 0, 1)),
    "whole planes": ((3, 7, 9), (7, 1, 0, 1), (9, 1, 0, 1)),
}


def plane(shape: tuple[int, ...], content: str, dtype: Any) -> Any:
    rng = np.random.default_rng(len(shape))
    x = rng.integers(0, 3, shape).astype(float) if content == "ties" else rng.normal(size=shape)
    if content == "nan":
        x[rng.random(shape) < 0.2] = np.nan
    if content == "-inf":
        x[rng.random(shape) < 0.7] = -np.inf
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("content", ["normal", "ties", "nan", "-inf"])
@pytest.mark.parametrize("case", POOLS)
def test_maxima_and_their_places(case, content, dtype):
    shape, *settings = POOLS[case]
    x, over = plane(shape, content, dtype), windows(shape, *settings)

    values, places = pool.max_at(x, over)
    wanted, wanted_places = by_numpy(lambda: pool.max_at(x, over))

    np.testing.assert_array_equal(places, wanted_places)
    np.testing.assert_array_equal(values.astype(float), wanted.astype(float))
    np.testing.assert_array_equal(pool.max_values(x, over).astype(float), wanted.astype(float))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("include_padding", "divisor"), [(True, None), (False, None), (True, 7)])
@pytest.mark.parametrize("case", POOLS)
def test_means_and_their_transpose(case, include_padding, divisor, dtype):
    shape, *settings = POOLS[case]
    x, over = plane(shape, "normal", dtype), windows(shape, *settings)
    counts = divisor or pool.window_counts(over, include_padding)
    exact = pool.window_sum(x.astype(float), over) / counts
    grad = plane(exact.shape, "normal", dtype)
    tolerance = 8 * float(ml_dtypes.finfo(dtype).eps)

    made = pool.window_means(x, over, include_padding, divisor, False)
    spread = pool.window_means(grad, over, include_padding, divisor, True)

    assert made.dtype == spread.dtype == dtype
    np.testing.assert_allclose(made.astype(float), exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(spread.astype(float), pool.window_spread(grad.astype(float) / counts, over),
                               rtol=tolerance, atol=4 * tolerance)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_planes_are_summed_and_filled(dtype):
    rng = np.random.default_rng(4)
    values, places = rng.normal(size=(3, 40)).astype(dtype), rng.integers(0, 6, (3, 40))
    tolerance = 40 * float(ml_dtypes.finfo(dtype).eps)

    put = pool.put_plane(values, places, 6, True)
    exact = np.zeros((3, 6))
    for i in range(3):
        np.add.at(exact[i], places[i], values[i].astype(float))

    np.testing.assert_allclose(put.astype(float), exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(pool.plane_means(values).astype(float), values.astype(float).mean(1), atol=tolerance)


MAPS = {
    "linear": lambda n, m: resample.linear_map(n, m, n / m, False, np.float32),
    "corners": lambda n, m: resample.linear_map(n, m, (n - 1) / max(m - 1, 1), True, np.float32),
    "cubic": lambda n, m: resample.cubic_map(n, m, n / m, False, np.float32),
    "nearest": lambda n, m: resample.nearest_map(n, m, n / m, False, np.float32),
    "antialias": lambda n, m: resample.antialias_map(n, m, n / m, False, np.float64),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(5, 10), (64, 128), (7, 20), (20, 7), (33, 66), (1, 4), (100, 50)], ids=str)
@pytest.mark.parametrize("name", MAPS)
def test_resampling_and_its_transpose(name, sizes, transposed, dtype):
    n, m = sizes
    axis = MAPS[name](n, m)
    have = m if transposed else n
    for rank in (1, 2, 3) if have < 30 else (1, 2):
        x = np.random.default_rng(rank).normal(size=(2, *(have,) * rank)).astype(dtype)
        maps = (axis,) * rank

        made = resample.apply_maps(x, maps, transposed)

        exact = by_numpy(lambda x=x, maps=maps: resample.apply_maps(x.astype(float), maps, transposed))
        terms = (have / exact.shape[-1]) ** rank  # that an element sums, about
        tolerance = 8 * float(np.finfo(dtype).eps) * max(1, np.abs(exact).max()) * max(1, terms)
        assert made.dtype == dtype
        np.testing.assert_allclose(made.astype(float), exact, rtol=0, atol=tolerance)


def test_nearest_copies_every_value():
    x = np.tile(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45], np.float32), (2, 6, 2))
    axis = resample.nearest_map(x.shape[2], 24, 0.5, False, np.float32)
    other = resample.nearest_map(x.shape[1], 12, 0.5, False, np.float32)

    made = resample.apply_maps(x, (other, axis), False)

    wanted = x.repeat(2, 1).repeat(2, 2)
    np.testing.assert_array_equal(made, wanted)
    np.testing.assert_array_equal(np.signbit(made), np.signbit(wanted))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i8", "?", "c8", "c16"])
@pytest.mark.parametrize("pairs", [((2, 3), (1, 4)), ((0, 0), (1, 0)), ((-2, 3), (1, -4)), ((1, 1), (0, 0), (5, -3))], ids=str)
def test_padding(pairs, dtype):
    x = (np.random.default_rng(0).normal(size=(4, 5, 20, 30)) * 3).astype(dtype)

    for mode in ("reflect", "replicate", "circular"):
        np.testing.assert_array_equal(pad.pad_mode(x, pairs, mode), by_numpy(lambda m=mode: pad.pad_mode(x, pairs, m)))
    np.testing.assert_array_equal(pad.pad_constant(x, pairs, 3), by_numpy(lambda: pad.pad_constant(x, pairs, 3)))


def test_padding_that_leaves_nothing_of_the_source():
    x = np.ones((4, 32, 40), np.float32)

    np.testing.assert_array_equal(pad.pad_constant(x, ((0, 0), (-40, 7)), 2), np.full((4, 32, 7), 2, np.float32))
    assert pad.pad_constant(x, ((0, 0), (-40, 0)), 2).shape == (4, 32, 0)


def test_the_same_bits_on_any_number_of_threads():
    shape, *settings = (40, 50, 60), (3, 2, 1, 1), (3, 2, 1, 1)
    x, over = plane(shape, "normal", np.float32), windows(shape, *settings)
    axis = resample.linear_map(60, 120, 0.5, False, np.float32)
    grad = plane((40, 25, 30), "normal", np.float32)

    def results() -> list[bytes]:
        made = [pool.window_means(x, over, True, None, False), *pool.max_at(x, over), pool.plane_means(x.reshape(40, -1)),
                pool.window_means(grad, over, True, None, True), resample.apply_maps(x, (axis,), False),
                resample.apply_maps(np.repeat(x, 2, -1), (axis,), True)]  # fmt: skip
        return [a.tobytes() for a in made]

    before = threads.get_num_threads()
    try:
        made = []
        for number in (1, 2, 4):
            threads.set_num_threads(number)
            made.append(results())
    finally:
        threads.set_num_threads(before)

    assert made[0] == made[1] == made[2]
