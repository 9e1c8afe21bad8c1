"""Eigenvalues and singular values of many small matrices against numpy's in float64."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels import engine
from flambeau_kernels.cpu.linear_algebra import jacobi

pytestmark = pytest.mark.skipif(not jacobi.compiles(), reason="nothing is compiled")
DTYPES = "fd"


def matrices(dtype, m, n, count=37):
    a = np.random.default_rng(10 * m + n).standard_normal((count, m, n)).astype(dtype)
    a[4] *= 1e-25 if dtype == "f" else 1e-200
    a[7] *= 1e25 if dtype == "f" else 1e200
    return a


def layouts(a):
    return a, np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_are_orthogonal_and_turned_by_their_values_alone(dtype, n):
    a = matrices(dtype, n, n)
    a = a + a.swapaxes(-1, -2)
    a[1], a[2], a[3] = np.eye(n), 0, np.diag(np.arange(n)[::-1])
    expected, eps = np.linalg.eigvalsh(a.astype("d")), np.finfo(dtype).eps
    size = np.maximum(np.abs(expected).max(-1), 1e-300)
    for upper in (False, True):
        half = np.triu(a) if upper else np.tril(a)
        for x in layouts(half):
            values, vectors = jacobi.eigh(x, upper, True)

            assert (np.abs(values - expected).max(-1) / size).max() < 30 * eps
            assert np.abs(vectors.swapaxes(-1, -2) @ vectors - np.eye(n)).max() < 60 * eps
            back = vectors @ (values[..., None] * vectors.swapaxes(-1, -2))
            assert (np.abs(back - a).max((-1, -2)) / size).max() < 60 * eps
            alone = jacobi.eigh(x, upper, False)
            assert alone is None if dtype == "d" and n > jacobi.MOST_BY_ROTATION else (alone == values).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (8, 8), (16, 16), (5, 3), (3, 5), (32, 16), (1, 9)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_vectors_multiply_back(dtype, shape):
    a = matrices(dtype, *shape)
    k, eps = min(shape), np.finfo(dtype).eps
    expected = np.linalg.svd(a.astype("d"), compute_uv=False)
    for x in layouts(a):
        u, values, vh = jacobi.svd(x, True)

        assert u.shape == (37, shape[0], k)
        assert vh.shape == (37, k, shape[1])
        assert (np.abs(values - expected).max(-1) / expected[:, 0]).max() < 30 * eps
        assert np.abs(u.swapaxes(-1, -2) @ u - np.eye(k)).max() < 60 * eps
        assert np.abs(vh @ vh.swapaxes(-1, -2) - np.eye(k)).max() < 60 * eps
        assert (np.abs((u * values[:, None]) @ vh - a).max((-1, -2)) / expected[:, 0]).max() < 60 * eps
        np.testing.assert_array_equal(jacobi.svd(x, False), values)


def test_small_singular_values_are_as_good_as_large_ones_of_scaled_columns():
    a = matrices("f", 4, 4) * np.array([1, 1e-3, 1e-6, 1e-9], np.float32)
    expected = np.linalg.svd(a.astype("d"), compute_uv=False)

    np.testing.assert_allclose(jacobi.svd(a, False), expected, rtol=1e-4)


def test_directions_of_a_singular_value_of_zero_are_left_to_lapack():
    a = matrices("f", 3, 3)
    a[6] = 0

    assert jacobi.svd(a, True) is None
    assert not jacobi.svd(a, False)[6].any()


def test_a_matrix_has_the_same_bits_among_any_others_and_at_every_thread_count():
    a = matrices("f", 4, 4, count=3000)
    a[::3, 1] *= 1e-3
    alone = np.repeat(a[2001:2002], 8, 0)
    threads = engine.get_num_threads()
    try:
        made = []
        for count in (1, 2, 3):
            engine.set_num_threads(count)
            made.append([*jacobi.svd(a, True), *jacobi.eigh(a, False, True)])
    finally:
        engine.set_num_threads(threads)
    for one in made[1:]:
        for x, y in zip(one, made[0], strict=True):
            np.testing.assert_array_equal(x, y)
    for x, y in zip(made[0], [*jacobi.svd(alone, True), *jacobi.eigh(alone, False, True)], strict=True):
        np.testing.assert_array_equal(x[2001], y[0])
