"""Convolutions by single taps: products of each image, whatever the number of images and threads."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels.cpu import conv
from flambeau_kernels.cpu.conv import single_taps
from flambeau_kernels.cpu.products.matmul import has_microkernels
from flambeau_kernels.engine import get_num_threads, set_num_threads


@pytest.fixture(autouse=True)
def as_before():
    threads = get_num_threads()
    yield
    set_num_threads(threads)


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def convolved(x, w, bias, transposed):
    ones, zeros = (1,) * (x.ndim - 2), (0,) * (x.ndim - 2)
    if transposed:
        return conv.convolve_input(x, np.ascontiguousarray(w.swapaxes(0, 1)), x.shape[2:], ones, zeros, ones, 1, bias)
    return conv.convolve(x, w, ones, zeros, ones, 1, bias)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("channels", "outputs", "spatial"), [
    (128, 24, (513,)), (400, 37, (23, 29)), (130, 25, (8, 9, 10)), (16, 90, (14, 14)), (16, 80, (14, 14)), (15, 100, (14, 14)),
    (128, 23, (23, 29)), (128, 24, (13, 15)), (400, 37, (7, 9)), (400, 37, (8, 8))])  # fmt: skip
def test_single_taps_are_what_float64_says(channels, outputs, spatial, dtype, transposed):
    shapes = (3, channels, *spatial), (outputs, channels, *(1,) * len(spatial)), (outputs,)
    x, w, bias = (drawn(*shape, dtype=dtype) for shape in shapes)
    matrix, flat = w.reshape(outputs, channels).astype(np.float64), x.reshape(3, channels, -1).astype(np.float64)
    product, size = matrix @ flat, abs(matrix) @ abs(flat)
    pays = single_taps.pays(x, w.swapaxes(0, 1) if transposed else w, x.shape[2:], (1,) * len(spatial), (0,) * len(spatial), 1, transposed)
    is_large = channels >= 16 and outputs >= 24 and np.prod(spatial) >= 64 and channels * outputs * np.prod(spatial) > 1 << 18
    assert pays == (has_microkernels() and is_large)
    for added in (None, bias):
        got = convolved(x, w, added, transposed)
        want = product if added is None else product + bias[:, None]

        assert got.shape == (3, outputs, *spatial)
        assert got.dtype == dtype
        assert got.flags.c_contiguous
        bound = np.finfo(dtype).eps * 0.5 * channels * (size + 1)
        assert (abs(got.reshape(3, outputs, -1) - want) <= bound).all()


@pytest.mark.parametrize(("channels", "outputs", "spatial"), [(300, 40, (25, 31)), (16, 90, (14, 14)), (17, 24, (26, 25))])
@pytest.mark.parametrize("transposed", [False, True])
def test_an_image_has_the_same_bits_with_any_others_and_on_any_number_of_threads(channels, outputs, spatial, transposed):
    x, w, bias = drawn(5, channels, *spatial), drawn(outputs, channels, 1, 1), drawn(outputs)
    together, one_by_one = set(), set()
    for threads in (1, 2, 3):
        set_num_threads(threads)
        together.add(convolved(x, w, bias, transposed).tobytes())
        one_by_one.add(np.concatenate([convolved(x[i:i + 1], w, bias, transposed) for i in range(5)]).tobytes())

    assert len(together) == len(one_by_one) == 1
    if has_microkernels():                            # BLAS sums rows differently at the end of a matrix
        assert together == one_by_one


def test_what_is_not_finite_stays_at_its_position():
    x, w = drawn(1, 128, 24, 24), drawn(32, 128, 1, 1)
    x[0, 5, 3, 4], x[0, 9, 7, 8] = np.nan, np.inf

    made = convolved(x, w, None, False)

    assert np.isnan(made[0, :, 3, 4]).all()
    assert np.isinf(made[0, :, 7, 8]).all()
    assert np.isfinite(made).sum() == made.size - 64
