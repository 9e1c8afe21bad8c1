"""Compiled Fourier transforms against scipy's in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from flambeau_kernels import engine
from flambeau_kernels.cpu import fourier

pytestmark = pytest.mark.skipif(not fourier.compiles(), reason="nothing is compiled")
# Rounding grows with the logarithm of the length: two units for up to 2^17 values.
TOLERANCE = {"F": 3e-7, "D": 1e-15}
SHAPES = [
    # shape, dims
    ((4,), (0,)), ((8,), (0,)), ((3, 16), (1,)), ((5, 20), (1,)), ((7, 12), (-1,)), ((2, 60), (1,)), ((1, 900), (1,)), ((3, 1024), (1,)),
    ((100000,), (0,)), ((20, 36), (0,)), ((20, 36), (0, 1)), ((2, 12, 40), (1, 2)), ((2, 8, 5, 4), (1, 3)), ((64, 64), (-2, -1)),
]  # fmt: skip


def lines(shape, dtype):
    rng = np.random.default_rng(5)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def error(made, expected):
    return np.linalg.norm(made - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_transform_agrees_with_scipy(shape, dims, dtype):
    x = lines(shape, dtype)
    assert fourier.takes(x, dims) or dtype == "D"
    forward, back = fourier.transform(x, dims, 0.5, False), fourier.transform(x, dims, 1.0, True)

    assert forward.dtype == x.dtype
    assert error(forward, 0.5 * scipy.fft.fftn(x.astype("D"), axes=dims)) < TOLERANCE[dtype]
    assert error(back, scipy.fft.ifftn(x.astype("D"), axes=dims, norm="forward")) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("shape", [(8,), (3, 16), (2, 3, 40), (5, 24), (2, 4096), (100000,)], ids=str)
def test_real_transform_agrees_with_scipy(shape, dtype):
    x = lines(shape, dtype).real
    assert fourier.takes_real(x, (-1,))
    made = fourier.real_transform(x, 0.5)

    assert made.dtype == dtype
    assert error(made, 0.5 * scipy.fft.rfft(x.astype("d"))) < TOLERANCE[dtype]
    assert not made[..., [0, -1]].imag.any()


def test_lines_of_other_lengths_and_layouts_are_left_to_scipy():
    for shape, dims in [((7,), (0,)), ((14,), (0,)), ((28,), (0,)), ((6,), (0,)), ((8, 3), (0,)), ((0, 8), (1,)), ((1 << 23,), (0,))]:
        assert not fourier.takes(np.zeros(shape, "F"), dims)
    for shape, dims in [((12,), (0,)), ((9,), (0,)), ((8, 8), (0,)), ((8, 8), (0, 1)), ((1 << 24,), (0,))]:
        assert not fourier.takes_real(np.zeros(shape, "f"), dims)


def test_a_line_has_the_same_bits_alone_among_others_and_at_every_thread_count():
    x = lines((67, 480), "F")
    threads = engine.get_num_threads()
    made = []
    try:
        for count in (1, 2, 3):
            engine.set_num_threads(count)
            made.append((fourier.transform(x, (1,), 1.0, False), fourier.real_transform(x.real, 1.0)))
    finally:
        engine.set_num_threads(threads)
    for whole, half in made:
        np.testing.assert_array_equal(whole, made[0][0])
        np.testing.assert_array_equal(half, made[0][1])
    np.testing.assert_array_equal(made[0][0][66], fourier.transform(x[66], (0,), 1.0, False))


def test_nan_in_one_line_stays_there():
    x = lines((20, 16), "F")
    x[3, 5] = np.nan
    made = fourier.transform(x, (1,), 1.0, False)

    assert np.isnan(made[3]).all()
    assert np.isfinite(np.delete(made, 3, 0)).all()


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("shape", [(1 << 19,), (2, 3 << 17)], ids=str)
def test_long_lines_are_taken_as_matrices(shape, inverse):
    numbers = np.random.default_rng(0)
    a = (numbers.standard_normal(shape) + 1j * numbers.standard_normal(shape)).astype(np.complex64)
    expected = (np.fft.ifft if inverse else np.fft.fft)(a.astype(np.complex128)) * (a.shape[-1] if inverse else 1)

    assert fourier.takes(a, (a.ndim - 1,))
    made = fourier.transform(a, (a.ndim - 1,), 0.5, inverse)

    assert np.abs(made - 0.5 * expected).max() < 1e-6 * np.abs(expected).max()
    assert not fourier.takes(np.empty((1 << 19) + 2, np.complex64), (0,))


def test_long_lines_of_real_numbers():
    a = np.random.default_rng(0).standard_normal(5 << 18).astype(np.float32)
    expected = np.fft.rfft(a.astype(np.float64))

    assert fourier.takes_real(a, (0,))
    assert np.abs(fourier.real_transform(a, 1.0) - expected).max() < 1e-6 * np.abs(expected).max()
