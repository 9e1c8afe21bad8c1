"""Convolutions with few positions and many channels, against plain sums in float64."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels.cpu import conv
from flambeau_kernels.cpu.conv import arrays, im2col
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")
# Images, channels in and out, extent, kernel, stride, padding, dilation.
CASES = {
    "3x3": (3, 128, 130, (4, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
    "stride 2": (8, 130, 128, (4, 4), (3, 3), (2, 2), (1, 1), (1, 1)),
    "dilated": (2, 128, 128, (7, 6), (3, 3), (1, 2), (2, 1), (2, 1)),
    "1d": (4, 200, 300, (9,), (3,), (1,), (1,), (1,)),
    "3d": (1, 64, 96, (3, 4, 3), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "one position": (5, 128, 128, (3, 3), (3, 3), (1, 1), (0, 0), (1, 1)),
}


def made(case, dtype):
    n, c, o, spatial, kernel, *settings = CASES[case]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, c, *spatial)).astype(dtype)
    w = rng.normal(size=(o, c, *kernel)).astype(dtype)
    return x, w, rng.normal(size=o).astype(dtype), tuple(settings)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_all_three_maps(case, dtype):
    x, w, bias, (stride, padding, dilation) = made(case, dtype)
    positions = arrays.output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    assert im2col.pays(len(x), w.shape, positions, 1, x.dtype)
    wide_x, wide_w = x.astype(float), w.astype(float)
    tolerance = 60 * np.finfo(dtype).eps

    y = conv.convolve(x, w, stride, padding, dilation, 1, bias)
    exact = arrays.convolve(wide_x, wide_w, stride, padding, dilation, 1, bias.astype(float))
    np.testing.assert_allclose(y, exact, rtol=0, atol=tolerance * abs(exact).max())

    back = conv.convolve_input(y, w, x.shape[2:], stride, padding, dilation, 1)
    exact = arrays.convolve_input(y.astype(float), wide_w, x.shape[2:], stride, padding, dilation, 1)
    np.testing.assert_allclose(back, exact, rtol=0, atol=tolerance * abs(exact).max())

    weight = conv.convolve_weight(x, y, w.shape[2:], stride, padding, dilation, 1)
    exact = arrays.convolve_weight(wide_x, y.astype(float), w.shape[2:], stride, padding, dilation, 1)
    np.testing.assert_allclose(weight, exact, rtol=0, atol=tolerance * abs(exact).max())


def test_the_same_bits_on_any_number_of_threads():
    x, w, bias, settings = made("stride 2", np.float32)
    before = pool.get_num_threads()
    try:
        results = []
        for number in (1, 2, 4):
            pool.set_num_threads(number)
            y = conv.convolve(x, w, *settings, 1, bias)
            results.append((y.tobytes(), conv.convolve_input(y, w, x.shape[2:], *settings, 1).tobytes(),
                            conv.convolve_weight(x, y, w.shape[2:], *settings, 1).tobytes()))  # fmt: skip
    finally:
        pool.set_num_threads(before)

    assert results == results[:1] * 3


def test_strided_operands():
    x, w, bias, settings = made("3x3", np.float32)
    strided = np.asfortranarray(x), np.asfortranarray(w)

    np.testing.assert_array_equal(conv.convolve(*strided, *settings, 1, bias), conv.convolve(x, w, *settings, 1, bias))
