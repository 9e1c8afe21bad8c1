"""Many matrices of a few rows, one in each lane of a vector, against numpy and scipy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import flambeau as fb
from flambeau_kernels import engine
from flambeau_kernels.cpu.linear_algebra import matrices_by_lanes

pytestmark = pytest.mark.skipif(not matrices_by_lanes.compiles(), reason="nothing is compiled")
DTYPES, SIZES = "fdFD", (1, 2, 3, 5, 8)
ELIMINATED = [(dtype, n) for dtype in DTYPES for n in SIZES] + [(dtype, n) for dtype in "FD" for n in (9, 16, 24)]


def matrices(dtype, n, count=21, columns=None):
    numbers = np.random.default_rng(n)
    shape = (count, n, columns or n)
    made = numbers.standard_normal(shape)
    return (made + 1j * numbers.standard_normal(shape) if dtype in "FD" else made).astype(dtype)


def turned(a):
    """The same matrices, by columns."""
    return np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)


def wide(a):
    return a.astype("D" if a.dtype.kind == "c" else "d")


def error(made, expected, a):
    """The largest error of a matrix, for its size and condition, in units of rounding."""
    size = np.maximum(np.abs(expected).max((-2, -1)), 1e-30) * np.linalg.cond(wide(a))
    return (np.abs(made - expected).max((-2, -1)) / size).max() / np.finfo(a.dtype).eps


@pytest.mark.parametrize("layout", [np.asarray, turned])
@pytest.mark.parametrize(("dtype", "n"), ELIMINATED)
def test_factors_with_exchanged_rows_are_lapacks(dtype, n, layout):
    a = matrices(dtype, n)
    packed, pivots, info = matrices_by_lanes.lu(layout(a))

    for x, made, places in zip(a, packed, pivots, strict=True):
        expected, exchanged, _ = scipy.linalg.lapack.get_lapack_funcs("getrf", (x,))(x)
        np.testing.assert_array_equal(places, exchanged + 1)
        np.testing.assert_allclose(made, expected, rtol=0, atol=200 * np.finfo(dtype).eps * max(1, np.abs(expected).max()))
    assert not info.any()


@pytest.mark.parametrize("layout", [np.asarray, turned])
@pytest.mark.parametrize(("dtype", "n"), ELIMINATED)
def test_solutions_inverses_and_determinants(dtype, n, layout):
    a, b = matrices(dtype, n), matrices(dtype, n, columns=3)

    assert error(matrices_by_lanes.solve(layout(a), layout(b)), np.linalg.solve(wide(a), wide(b)), a) < 20
    if n <= 16:                                       # as many right-hand sides there is room for
        assert error(matrices_by_lanes.solve(layout(a), None), np.linalg.inv(wide(a)), a) < 20
    assert error(matrices_by_lanes.determinants(layout(a))[:, None, None], np.linalg.det(wide(a))[:, None, None], a) < 20


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_factors_read_one_triangle(dtype, n, upper):
    a = matrices(dtype, n)
    a = a @ a.conj().swapaxes(-1, -2) + np.eye(n, dtype=dtype)
    expected = np.linalg.cholesky(wide(a))
    if upper:
        expected = expected.conj().swapaxes(-1, -2)
    for layout in (np.asarray, turned):
        half = np.triu(a) if upper else np.tril(a)
        other_half = np.where(half == 0, np.float32(9), 0).astype(dtype)

        assert error(matrices_by_lanes.cholesky(layout(half + other_half), upper), expected, a) < 20


def exponentials(a):
    """By the series, in long doubles."""
    scaled = a.astype("G" if a.dtype.kind == "c" else "g") / 256
    term = made = np.broadcast_to(np.eye(a.shape[-1]), a.shape).astype(scaled.dtype)
    for k in range(1, 30):
        term = np.einsum("bij,bjk->bik", term, scaled) / k
        made = made + term
    for _ in range(8):
        made = np.einsum("bij,bjk->bik", made, made)
    return made


@pytest.mark.parametrize("n", [1, 3, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_of_small_and_large_matrices(dtype, n):
    a = matrices(dtype, n) / n * 2.0 ** np.linspace(-6, 3, 21).reshape(-1, 1, 1)
    a = a.astype(dtype)
    expected = exponentials(a)
    made = matrices_by_lanes.exponentials(turned(a))

    assert (np.abs(made - expected).max((1, 2)) / np.abs(expected).max((1, 2))).max() < 200 * np.finfo(dtype).eps
    # Of a nilpotent matrix the series ends.
    step = np.zeros((9, n, n), dtype) + np.eye(n, k=1, dtype=dtype)
    series = [1 / np.prod(np.arange(1.0, k + 1)) for k in range(n)]
    np.testing.assert_allclose(matrices_by_lanes.exponentials(step)[4, 0], series, rtol=1e-5)


def test_determinants_have_signs_and_magnitudes():
    a = matrices("f", 5)
    a[4] = 0
    signs, sizes = matrices_by_lanes.diagonals_of_factors(a)
    expected, logs = np.linalg.slogdet(wide(a))

    np.testing.assert_array_equal(signs, expected)
    fine = np.arange(21) != 4
    np.testing.assert_allclose(np.log(sizes[fine]).sum(-1), logs[fine], atol=1e-5)
    assert not matrices_by_lanes.determinants(a)[4]


def test_matrices_without_a_result_are_left_to_lapack():
    a = matrices("f", 3)
    a[7] = 0
    b = matrices("f", 3)
    b[2, 1, 1] = np.nan

    assert matrices_by_lanes.solve(a, None) is None
    assert matrices_by_lanes.cholesky(a, False) is None
    assert matrices_by_lanes.lu(a)[2].tolist() == [int(k == 7) for k in range(21)]
    assert matrices_by_lanes.lu(b) is None
    assert matrices_by_lanes.determinants(b) is None
    assert matrices_by_lanes.exponentials(b) is None
    assert not matrices_by_lanes.takes(matrices("f", 9))


def results(a):
    return [matrices_by_lanes.exponentials(a), matrices_by_lanes.solve(a, None), matrices_by_lanes.determinants(a)]


def test_a_matrix_has_the_same_bits_among_any_others_and_at_every_thread_count():
    a = matrices("f", 4, count=3000)
    a[::3] *= 30
    alone = np.repeat(a[2001:2002], 8, 0)
    threads = engine.get_num_threads()
    try:
        made = []
        for count in (1, 2, 3):
            engine.set_num_threads(count)
            made.append(results(a))
    finally:
        engine.set_num_threads(threads)
    for one in made[1:]:
        for x, y in zip(one, made[0], strict=True):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(made[0], results(alone), strict=True):
        np.testing.assert_array_equal(x[2001], y[0])


def test_complex_matrices_of_more_rows_are_factored_and_solved_without_lapack(monkeypatch):
    a, b = (fb.from_numpy(matrices("F", 20, columns=columns)) for columns in (20, 4))
    with monkeypatch.context() as without:
        without.setattr(np.linalg, "solve", None)
        without.setattr(np.linalg, "det", None)
        made, determinants = fb.linalg.solve(a, b), fb.linalg.det(a)

    assert error(made.numpy(), np.linalg.solve(wide(a.numpy()), wide(b.numpy())), a.numpy()) < 20
    assert error(determinants.numpy()[:, None, None], np.linalg.det(wide(a.numpy()))[:, None, None], a.numpy()) < 20
    assert matrices_by_lanes.eliminates(a.numpy())
    assert not matrices_by_lanes.eliminates(matrices("F", 25))
    assert not matrices_by_lanes.eliminates(matrices("f", 9))
