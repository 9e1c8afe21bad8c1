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
    ((1,), (0,)), ((4,), (0,)), ((7,), (0,)), ((3, 16), (1,)), ((5, 20), (1,)), ((17, 105), (1,)), ((2, 60), (1,)), ((1, 900), (1,)),
    ((3, 1024), (1,)), ((3, 126), (1,)), ((2, 128), (1,)), ((100000,), (0,)), ((20, 36), (0,)), ((20, 36), (0, 1)), ((2, 12, 40), (1, 2)),
    ((2, 8, 5, 3), (1, 3)), ((64, 64), (-2, -1)), ((8, 35), (0,)),
    # with primes above 7
    ((11,), (0,)), ((3, 61), (1,)), ((19, 26), (1,)), ((2, 13 * 64), (1,)), ((59 * 61,), (0,)), ((17, 22), (0, 1)), ((46, 5), (0,)),
    ((3, 11 * 13 * 17), (1,)), ((67,), (0,)), ((3, 2 * 113), (1,)), ((127, 2), (0,)),
    # with primes that are convolved
    ((2, 503), (1,)), ((1009,), (0,)), ((70, 2 * 1009), (1,)), ((300, 1009), (1,)), ((3, 10007, 1), (1,)),
]  # fmt: skip
COMPLEX, FROM_REAL, TO_REAL = fourier.COMPLEX, fourier.FROM_REAL, fourier.TO_REAL


def lines(shape, dtype):
    rng = np.random.default_rng(5)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def error(made, expected):
    return np.linalg.norm(made - expected) / np.linalg.norm(expected)


def transform(x, dims, scale=1.0, inverse=False):
    return fourier.planned(COMPLEX, x.shape, x.dtype.char.lower(), dims, scale, inverse)(x)


def real_transform(x, scale=1.0):
    return fourier.planned(FROM_REAL, x.shape, x.dtype.char, (x.ndim - 1,), scale, False)(x)


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_transform_agrees_with_scipy(shape, dims, dtype):
    x = lines(shape, dtype)
    forward, back = transform(x, dims, 0.5), transform(x, dims, 1.0, True)

    assert forward.dtype == x.dtype
    assert error(forward, 0.5 * scipy.fft.fftn(x.astype("D"), axes=dims)) < TOLERANCE[dtype]
    assert error(back, scipy.fft.ifftn(x.astype("D"), axes=dims, norm="forward")) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("shape", [(2,), (8,), (3, 14), (19, 30), (2, 3, 40), (5, 250), (2, 4096), (2, 420), (100000,), (1,),
                                   (4, 3), (3, 5), (7, 7), (3, 9), (5, 11), (2, 13), (3, 15),
                                   (2, 3, 143), (2, 26), (1, 3 * 59)], ids=str)  # fmt: skip
def test_transforms_from_and_to_real_numbers_agree_with_scipy(shape, dtype):
    x = lines(shape, dtype)
    made = real_transform(np.ascontiguousarray(x.real), 0.5)
    half = np.ascontiguousarray(x[..., : shape[-1] // 2 + 1])
    back = fourier.planned(TO_REAL, half.shape, dtype.lower(), (-1,), 0.5, True, shape[-1])(half)

    assert made.dtype == dtype
    assert error(made, 0.5 * scipy.fft.rfft(x.real.astype("d"))) < TOLERANCE[dtype]
    assert not made[..., [0] if shape[-1] % 2 else [0, -1]].imag.any()
    assert back.dtype == dtype.lower()
    assert error(back, 0.5 * scipy.fft.irfft(half.astype("D"), shape[-1], norm="forward")) < TOLERANCE[dtype]


@pytest.mark.parametrize("n", [3, 5, 7, 9, 11, 13, 15])
def test_short_lines_of_float32_are_rounded_once(n):
    x = lines((2000, n), "F")
    made, of_real = transform(x, (1,)), real_transform(np.ascontiguousarray(x.real))
    wanted, wanted_of_real = np.fft.fft(x.astype("D")), np.fft.rfft(x.real.astype("d"))

    # Where float64's own rounding decides, which is once in a hundred thousand numbers, either is right.
    for got, exact in ((made, wanted), (of_real, wanted_of_real)):
        differs = got.view("f") != exact.astype("F").view("f")
        assert differs[:, 2:].mean() < 1e-3
        assert error(got, exact) < 6e-8


@pytest.mark.parametrize("n", [3, 5, 7, 9, 11, 13, 15])
@pytest.mark.parametrize("dtype", ["F", "D"])
def test_short_real_lines_have_a_symmetric_spectrum(n, dtype):
    x = lines((50, n), dtype).real.astype(dtype)
    made = transform(x, (1,))

    np.testing.assert_array_equal(made[:, 1:].real, made[:, :0:-1].real)
    np.testing.assert_array_equal(made[:, 1:].imag, -made[:, :0:-1].imag)


@pytest.mark.parametrize("n", [3, 5, 7])
def test_short_columns_of_float32_are_rounded_once(n):
    x = lines((n, 40), "F")

    differs = transform(x, (0,)).view("f") != np.fft.fft(x.astype("D"), axis=0).astype("F").view("f")

    assert differs.mean() < 1e-2


def test_transforms_of_real_numbers_over_two_dimensions():
    x = lines((3, 20, 28), "F").real.copy()
    half = fourier.planned(FROM_REAL, x.shape, "f", (1, 2), 1.0, False)(x)
    back = fourier.planned(TO_REAL, half.shape, "f", (1, 2), 1 / 560, True, 28)(half)

    assert error(half, scipy.fft.rfft2(x.astype("d"))) < TOLERANCE["F"]
    assert error(back, x) < TOLERANCE["F"]


def test_lines_of_other_lengths_and_layouts_are_left_to_scipy():
    for shape, dims in [((131,), (0,)), ((262,), (0,)), ((0, 8), (1,)), ((8,), ()), ((1 << 23,), (0,))]:
        assert fourier.planned(COMPLEX, shape, "f", dims, 1.0, False) is None
    for shape, dims in [((131,), (0,)), ((8, 8), (0,)), ((1 << 24,), (0,))]:
        assert fourier.planned(FROM_REAL, shape, "f", dims, 1.0, False) is None
    assert fourier.planned(TO_REAL, (66,), "f", (0,), 1.0, True, 131) is None


def test_values_between_the_ends_alone_say_what_is_imaginary():
    half = np.array([1 + 5j, 2 - 1j, 3 + 7j], np.complex64)

    made = fourier.planned(TO_REAL, (3,), "f", (0,), 1.0, True, 4)(half)

    np.testing.assert_allclose(made, np.fft.irfft([1, 2 - 1j, 3], 4) * 4, rtol=1e-6)


@pytest.mark.parametrize("shape", [(67, 480), (67, 48), (67, 256), (67, 7), (20001, 9)], ids=str)
def test_a_line_has_the_same_bits_alone_among_others_and_at_every_thread_count(shape):
    x = lines(shape, "F")
    threads = engine.get_num_threads()
    made = []
    try:
        for count in (1, 2, 3):
            engine.set_num_threads(count)
            made.append((transform(x, (1,)), real_transform(np.ascontiguousarray(x.real))))
    finally:
        engine.set_num_threads(threads)
    for whole, half in made:
        np.testing.assert_array_equal(whole, made[0][0])
        np.testing.assert_array_equal(half, made[0][1])
    np.testing.assert_array_equal(made[0][0][66], transform(x[66], (0,)))


@pytest.mark.parametrize("n", [16, 256])
def test_nan_in_one_line_stays_there(n):
    x = lines((20, n), "F")
    x[3, 5] = np.nan
    made = transform(x, (1,))

    assert np.isnan(made[3]).all()
    assert np.isfinite(np.delete(made, 3, 0)).all()


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("shape", [(1 << 19,), (2, 3 << 17)], ids=str)
def test_long_lines_are_taken_as_matrices(shape, inverse):
    numbers = np.random.default_rng(0)
    a = (numbers.standard_normal(shape) + 1j * numbers.standard_normal(shape)).astype(np.complex64)
    expected = (np.fft.ifft if inverse else np.fft.fft)(a.astype(np.complex128)) * (a.shape[-1] if inverse else 1)

    made = transform(a, (a.ndim - 1,), 0.5, inverse)

    assert np.abs(made - 0.5 * expected).max() < 1e-6 * np.abs(expected).max()
    assert fourier.planned(COMPLEX, ((1 << 20) + 6,), "f", (0,), 1.0, False) is None


def test_long_lines_of_real_numbers():
    a = np.random.default_rng(0).standard_normal(5 << 18).astype(np.float32)
    expected = np.fft.rfft(a.astype(np.float64))

    assert np.abs(real_transform(a) - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("char", ["f", "d"])
@pytest.mark.parametrize("n", [128, 512, 1024])
def test_planes_of_columns_lie_in_different_places_of_the_first_cache(n, char):
    *_, plan = fourier._columns(COMPLEX, char, n, 1, n, 1.0, False)
    apart = int(plan[7]) * np.dtype(char).itemsize

    assert apart >= n * int(plan[6]) * np.dtype(char).itemsize
    assert 128 <= apart % 4096 <= 4096 - 128


def test_passes_are_compiled_once_for_all_lengths_and_kinds_of_lines(fresh_python):
    """Else each set of radices has kernels of its own, of which those of three or four took 120 to 150 ms."""
    program = """
import numpy as np
from flambeau_kernels.cpu import fourier
from flambeau_kernels.engine.machine_code import llvm
for n in (35, 70, 105, 280, 420, 1050, 64 * 105, 11 * 13, 2 * 127):
    fourier.planned(fourier.COMPLEX, (2, n), "f", (1,), 1.0, False)
    fourier.planned(fourier.COMPLEX, (n, 3), "f", (0,), 1.0, True)
print(sorted(c.name for c in llvm.compiled if "pass" in c.name or "line" in c.name or "columns" in c.name))
"""
    made = eval(fresh_python("-c", program, FLAMBEAU_CACHE="off", FLAMBEAU_BACKEND="llvm"))

    # Radices 2, 3, 4, 5, 7, 8 and one text for all larger ones.
    assert made == ["kernel_columns", "kernel_long_lines", *["kernel_one_pass"] * 7, "kernel_short_lines"]


@pytest.mark.parametrize("registers", [16, 32])
def test_passes_of_radix_eight_leave_whole_fours(registers):
    """Of 512 x 512 three of them took 12 % longer than four of radix four and one of eight, in 16 registers."""
    for twos in range(25):
        eights = fourier._eights(twos, registers)

        assert 0 <= eights <= (twos // 3 if registers == 32 else 1)
        assert (twos - 3 * eights) % 2 == (twos == 1)


def test_lines_that_are_convolved_have_the_same_bits_alone_and_with_any_number_of_threads():
    x = lines((150, 1013), "F")                       # of which some hundred are transformed together
    threads = engine.get_num_threads()
    try:
        made = []
        for count in (1, 2, 3):
            engine.set_num_threads(count)
            made.append(transform(x, (1,)))
    finally:
        engine.set_num_threads(threads)

    assert (made[0] == made[1]).all()
    assert (made[0] == made[2]).all()
    for row in (0, 149):
        assert (transform(x[row : row + 1], (1,))[0] == made[0][row]).all()


def test_a_line_that_is_not_finite_leaves_others_as_they_are():
    x = lines((5, 1009), "F")
    expected = transform(x, (1,))
    x[2, 3] = np.nan
    made = transform(x, (1,))

    assert np.isnan(made[2]).all()
    assert (made[[0, 1, 3, 4]] == expected[[0, 1, 3, 4]]).all()
