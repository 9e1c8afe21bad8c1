"""Factorizations of one large matrix by blocks: LAPACK's results, on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import flambeau as fb
from flambeau.ops.linear_algebra import _lapack

DTYPES = [np.float32, np.float64]


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def definite(n, dtype):
    a = numbers(n, n, dtype=dtype)
    return a @ a.T / n + np.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(130, 130), (100, 150), (150, 100)], ids=str)
def test_lu_has_the_pivots_of_lapack(shape, dtype):
    a = numbers(*shape, dtype=dtype)

    packed, pivots = fb.linalg.lu_factor(fb.from_numpy(a))
    P, L, U = (x.numpy() for x in fb.linalg.lu(fb.from_numpy(a)))

    (getrf,) = scipy.linalg.lapack.get_lapack_funcs(("getrf",), (a,))
    expected, rows, _ = getrf(a)
    assert (pivots.numpy() == rows + 1).all()
    np.testing.assert_allclose(packed.numpy(), expected, rtol=0, atol=2e3 * np.finfo(dtype).eps)
    np.testing.assert_allclose(P @ L @ U, a, rtol=0, atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_determinants_are_those_of_numpy(dtype):
    a = numbers(130, 130, dtype=dtype) / 8

    sign, log = fb.linalg.slogdet(fb.from_numpy(a))

    expected = np.linalg.slogdet(a.astype(np.float64))
    assert sign.item() == expected.sign
    np.testing.assert_allclose(log.item(), expected.logabsdet, rtol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(fb.linalg.det(fb.from_numpy(a)).item(), np.linalg.det(a.astype(np.float64)), rtol=2e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inverses_are_those_of_numpy(dtype):
    a = numbers(130, 130, dtype=dtype) + 20 * np.eye(130, dtype=dtype)

    made = fb.linalg.inv(fb.from_numpy(a)).numpy()

    np.testing.assert_allclose(made, np.linalg.inv(a.astype(np.float64)), rtol=0, atol=20 * np.finfo(dtype).eps)


def test_a_zero_on_the_diagonal_is_told_by_its_place():
    a = numbers(100, 100)
    a[:, 60] = 0

    assert fb.linalg.lu_factor_ex(fb.from_numpy(a)).info.item() == 61
    with pytest.raises(RuntimeError, match="61"):
        fb.linalg.lu_factor(fb.from_numpy(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_reads_one_triangle(upper, dtype):
    a = definite(130, dtype)
    lower = np.tri(130, dtype=bool)
    triangle = np.where(lower.T if upper else lower, a, dtype(7))

    made = fb.linalg.cholesky(fb.from_numpy(triangle), upper=upper).numpy()

    expected = scipy.linalg.cholesky(a.astype(np.float64), lower=not upper)
    np.testing.assert_allclose(made, expected, rtol=0, atol=100 * np.finfo(dtype).eps)


def test_the_minor_that_is_not_positive_is_told():
    a = definite(130, np.float64)
    a[99, 99] = -1

    assert fb.linalg.cholesky_ex(fb.from_numpy(a)).info.item() == 100


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [None, 1, 70])
def test_solve_agrees_with_scipy(columns, dtype):
    a = numbers(130, 130, dtype=dtype) + 20 * np.eye(130, dtype=dtype)
    b = numbers(*((130,) if columns is None else (130, columns)), dtype=dtype)

    made = fb.linalg.solve(fb.from_numpy(a), fb.from_numpy(b)).numpy()

    np.testing.assert_allclose(made, np.linalg.solve(a.astype(np.float64), b), rtol=0, atol=20 * np.finfo(dtype).eps)


def test_factors_have_the_same_bits_on_any_number_of_threads():
    a, threads = fb.from_numpy(definite(300, np.float32)), fb.get_num_threads()
    made = []
    try:
        for count in (1, 3):
            fb.set_num_threads(count)
            made.append(fb.linalg.cholesky(a).numpy().tobytes() + fb.linalg.lu_factor(a).LU.numpy().tobytes())
    finally:
        fb.set_num_threads(threads)

    assert made[0] == made[1]


@pytest.mark.parametrize("shape", [(4, 4), (3, 5, 5)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_vectors_of_small_matrices_are_written_where_they_are_to_lie(shape, dtype):
    a = numbers(*shape, dtype=dtype)
    a = a + a.swapaxes(-1, -2).conj()

    values, vectors = _lapack.eigh_now(a, "L", True)
    u, s, vh = _lapack.svd("svd", a, True, True)

    for made in (vectors, u, vh):
        assert made.swapaxes(-1, -2).flags.c_contiguous
    np.testing.assert_allclose(a @ vectors, vectors * values[..., None, :], rtol=0, atol=2e-5)
    np.testing.assert_allclose((u * s[..., None, :]) @ vh, a, rtol=0, atol=2e-5)
