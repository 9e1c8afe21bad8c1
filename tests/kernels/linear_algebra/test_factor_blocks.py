"""Cholesky and LU factors of one large matrix by blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import flambeau as fb
from flambeau_kernels import engines
from flambeau_kernels.cpu.linear_algebra import factor_blocks

pytestmark = pytest.mark.skipif(not engines.chosen().compiles, reason="kernels are compiled")

DTYPES = [np.float32, np.float64]
SIZES = [65, 96, 128, 193, 300]                       # one more than a block, whole blocks, and parts of strips


def numbers(*shape, dtype: Any = np.float32):
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def definite(n, dtype):
    a = numbers(n, n, dtype=dtype)
    return a @ a.T / n + np.eye(n, dtype=dtype)


def exchanged(a, pivots):
    """The rows of `a` in the order that the exchanges leave them in."""
    order = np.arange(len(a))
    for i, other in enumerate(pivots):
        order[[i, other]] = order[[other, i]]
    return a[order]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_cholesky_reads_one_triangle_and_leaves_zeros_in_the_other(n, upper, dtype):
    a = definite(n, dtype)
    lower = np.tri(n, dtype=bool)

    made = factor_blocks.cholesky(np.where(lower.T if upper else lower, a, dtype(np.nan)), upper)

    expected = scipy.linalg.cholesky(a.astype(np.float64), lower=not upper)
    assert made is not None
    assert made.dtype == dtype
    assert made.flags.c_contiguous == upper
    np.testing.assert_allclose(made, expected, rtol=0, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 63, 64, 129])
def test_a_matrix_that_is_not_positive_definite_has_no_factor(place, bad):
    a = definite(130, np.float32)
    a[place, place] = bad

    assert factor_blocks.cholesky(a, False) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(m, n) for m in (65, 130, 193) for n in (65, 130, 193)], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_lu_has_the_pivots_of_lapack(shape, order, dtype):
    a = np.asarray(numbers(*shape, dtype=dtype), order=order)
    kept = a.copy()

    packed, pivots, info = factor_blocks.lu(a)

    (getrf,) = scipy.linalg.lapack.get_lapack_funcs(("getrf",), (a,))
    _, rows, _ = getrf(a)
    assert info == 0
    assert (pivots == rows).all()
    k = min(shape)
    product = (np.tril(packed, -1)[:, :k] + np.eye(shape[0], k)) @ np.triu(packed)[:k]
    np.testing.assert_allclose(product, exchanged(kept, pivots), rtol=0, atol=100 * np.finfo(dtype).eps)
    assert (a == kept).all()


@pytest.mark.parametrize("columns", [1, 16, 70])
def test_right_sides_are_solved_with_the_lower_factor(columns):
    a, b = numbers(130, 130, dtype=np.float64), numbers(130, columns, dtype=np.float64)

    made, pivots, _ = factor_blocks.lu(a, b)

    below = np.tril(made[:, :130], -1) + np.eye(130)
    np.testing.assert_allclose(below @ made[:, 130:], exchanged(b, pivots), rtol=0, atol=1e-12)


@pytest.mark.parametrize("zeros", [(0,), (63, 64), (129,)], ids=str)
def test_a_column_of_zeros_is_told_by_the_first_of_them(zeros):
    a = numbers(130, 130)
    a[:, zeros] = 0

    packed, pivots, info = factor_blocks.lu(a)

    assert info == zeros[0] + 1
    assert packed[zeros[0], zeros[0]] == 0
    assert ((pivots >= np.arange(130)) & (pivots < 130)).all()


@pytest.mark.parametrize("column", [0, 70, 129])
def test_rows_that_are_exchanged_exist_whatever_a_column_holds(column):
    a = numbers(130, 130)
    a[:, column] = np.nan

    pivots = factor_blocks.lu(a)[1]

    assert ((pivots >= np.arange(130)) & (pivots < 130)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_have_the_same_bits_on_any_number_of_threads(dtype):
    a, threads = definite(300, dtype), fb.get_num_threads()
    made = []
    try:
        for count in (1, 2, 3):
            fb.set_num_threads(count)
            made.append(factor_blocks.cholesky(a, False).tobytes() + factor_blocks.lu(a)[0].tobytes())
    finally:
        fb.set_num_threads(threads)

    assert made[0] == made[1] == made[2]
