"""Factors and solutions of many small matrices: LAPACK's, to rounding, in whatever order the matrices lie."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu.linear_algebra import matrices_by_rows
from flambeau_kernels.cpu.tier import compiles

pytestmark = pytest.mark.skipif(not compiles(), reason="no compiler")

TOLERANCE = {np.float32: 1e-4, np.float64: 1e-12}
SIZES = [1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 63, 64]


def matrices(count, n, dtype, seed=0):
    """Matrices that are well conditioned, though not without exchanges of rows."""
    numbers = np.random.default_rng(seed)
    turned = np.linalg.qr(numbers.standard_normal((count, n, n)))[0]
    return (turned * numbers.uniform(1, 3, (count, 1, n))).astype(dtype)


def positive(count, n, dtype):
    a = matrices(count, n, np.float64)
    return (a @ a.swapaxes(-1, -2)).astype(dtype)


def close(made, expected, dtype, n):
    assert made.dtype == dtype
    np.testing.assert_allclose(made, expected, rtol=0, atol=TOLERANCE[dtype] * n * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n", SIZES)
def test_factors_are_lapacks(n, dtype):
    a, s = matrices(11, n, dtype), positive(11, n, dtype)
    lower = np.linalg.cholesky(s.astype(np.float64))

    close(matrices_by_rows.cholesky(s, False), lower, dtype, n)
    close(matrices_by_rows.cholesky(s, True), lower.swapaxes(-1, -2), dtype, n)
    packed, pivots, info = matrices_by_rows.lu(a)
    unit, above = np.tril(packed, -1) + np.eye(n, dtype=dtype), np.triu(packed)
    rows = a.copy()
    for matrix, exchanged in zip(rows, pivots, strict=True):
        for i, j in enumerate(exchanged):
            assert j > i
            matrix[[i, j - 1]] = matrix[[j - 1, i]]
    close(unit @ above, rows, dtype, n)
    assert np.abs(unit).max() <= 1
    assert not info.any()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("n", "width"), [(1, 1), (3, 2), (9, 17), (16, 64), (33, 65), (64, 130)])
def test_solutions_solve(n, width, dtype):
    a = matrices(9, n, dtype)
    b = np.random.default_rng(1).standard_normal((9, n, width)).astype(dtype)

    close(a @ matrices_by_rows.solve(a, b), b, dtype, n)
    close(matrices_by_rows.solve(a, None) @ a, np.broadcast_to(np.eye(n), a.shape), dtype, n)
    for upper in (False, True):
        for unit in (False, True):
            triangle = (np.triu if upper else np.tril)(a / n, 1 if upper else -1) + (1 if unit else 2) * np.eye(n, dtype=dtype)
            given = triangle + 7 * np.eye(n, dtype=dtype) if unit else triangle
            given = given + (np.tril if upper else np.triu)(np.full((n, n), np.nan, dtype), -1 if upper else 1)
            close(triangle.astype(dtype) @ matrices_by_rows.triangular(given.astype(dtype), b, upper, unit), b, dtype, n)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_matrices_may_lie_in_any_order(dtype):
    a, s = matrices(12, 13, dtype).reshape(3, 4, 13, 13), positive(12, 13, dtype)
    b = np.random.default_rng(1).standard_normal((3, 4, 13, 5)).astype(dtype)
    turned = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    spaced = np.repeat(np.repeat(a, 2, -1), 2, 0)[::2, :, :, ::2]
    columns = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)

    for other in (turned, spaced, a[::-1, :, ::-1][::-1, :, ::-1], np.asfortranarray(a)):
        assert np.array_equal(matrices_by_rows.solve(other, columns), matrices_by_rows.solve(a, b))
        assert np.array_equal(matrices_by_rows.lu(other)[0], matrices_by_rows.lu(a)[0])
        assert np.array_equal(matrices_by_rows.triangular(other, columns, True, False), matrices_by_rows.triangular(a, b, True, False))
    symmetric = np.tril(s) + np.triu(s, 1)
    assert np.array_equal(matrices_by_rows.cholesky(s.swapaxes(-1, -2), False), matrices_by_rows.cholesky(symmetric, False))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
@pytest.mark.parametrize("place", [(0, 0), (3, 3), (4, 1), (1, 4)])
def test_special_values_have_numpys_results(value, place):
    a = matrices(8, 5, np.float32)
    a[(5, *place)] = value
    s = positive(8, 5, np.float32)
    s[(5, *place)] = s[(5, *place[::-1])] = value
    with np.errstate(all="ignore"):
        inverses, determinants = np.linalg.inv(a), np.linalg.det(a)

    np.testing.assert_allclose(fb.linalg.inv(fb.from_numpy(a)).numpy(), inverses, atol=1e-4)
    np.testing.assert_allclose(fb.linalg.det(fb.from_numpy(a)).numpy(), determinants, rtol=1e-4)
    factor, info = fb.linalg.cholesky_ex(fb.from_numpy(s))
    fine = np.arange(8) != 5
    np.testing.assert_allclose(factor.numpy()[fine], np.linalg.cholesky(s[fine]), atol=1e-4)
    assert not info.numpy()[fine].any()
    assert info[5] == fb.linalg.cholesky_ex(fb.from_numpy(s[5])).info


def test_singular_matrices_are_named():
    a = fb.from_numpy(matrices(10, 4, np.float64))
    a[7, 2] = 0
    a[7, :, 2] = 0

    with pytest.raises(fb.linalg.LinAlgError, match="Batch element 7"):
        fb.linalg.inv(a)
    assert fb.linalg.lu_factor_ex(a).info.tolist() == [0] * 7 + [3] + [0] * 2
    assert fb.linalg.det(a)[7] == 0
    assert fb.linalg.slogdet(a)[1][7] == -np.inf


def test_determinants_follow_exchanges_of_rows():
    a = matrices(40, 6, np.float64) * np.random.default_rng(3).choice([-1.0, 1.0], (40, 6, 1))

    sign, log = fb.linalg.slogdet(fb.from_numpy(a))

    np.testing.assert_allclose(fb.linalg.det(fb.from_numpy(a)).numpy(), np.linalg.det(a), rtol=1e-12)
    np.testing.assert_allclose((sign * log.exp()).numpy(), np.linalg.det(a), rtol=1e-12)
    assert len(set(sign.tolist())) == 2


def test_any_number_of_threads_gives_the_same_bits():
    a = matrices(301, 19, np.float32)
    before = fb.get_num_threads()
    try:
        made = []
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            made.append((matrices_by_rows.solve(a, None), matrices_by_rows.lu(a)[0]))
    finally:
        fb.set_num_threads(before)

    assert all(np.array_equal(x, y) for one in made[1:] for x, y in zip(made[0], one, strict=True))
    assert np.array_equal(made[0][0][40:60], matrices_by_rows.solve(a[40:60], None))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n", SIZES)
def test_the_factor_of_one_matrix_lies_by_columns_and_reads_one_triangle(n, dtype, upper):
    s = positive(1, n, dtype)[0]
    half = np.triu(s) if upper else np.tril(s)
    expected = np.linalg.cholesky(s.astype(np.float64))
    for a in (half, np.asfortranarray(half), np.repeat(half, 2, 1)[:, ::2]):
        made = matrices_by_rows.cholesky_of_one(a, upper)

        close(made, expected.T if upper else expected, dtype, n)
        assert made.flags.f_contiguous
    assert matrices_by_rows.cholesky_of_one(-s, upper) is None
    assert matrices_by_rows.cholesky_of_one(s[::-1], upper) is None
