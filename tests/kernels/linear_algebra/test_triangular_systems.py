"""Triangular systems with few right sides against numpy's solutions in float64."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops.linear_algebra import _lapack
from flambeau_kernels import engines
from flambeau_kernels.cpu.linear_algebra import triangular_systems
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(not compiles(), reason="no compiler")
# Another engine compiles each of the kernels for as long as all of them together take here.
ROWS = (1, 3, 8, 17, 33, 100) if engines.chosen().name == "llvm" else (17,)
SIDES = (1, 3, 4, 7) if engines.chosen().name == "llvm" else (3,)


def systems(n, columns, upper, unit, dtype, batch=()):
    """Matrices whose other triangle, and diagonal if it is `unit`, hold nan; right sides; solutions."""
    numbers = np.random.default_rng(n * columns)
    a = numbers.standard_normal((*batch, n, n)) / n + 2 * np.eye(n)
    b = numbers.standard_normal((*batch, n, columns))
    triangle = np.triu(a) if upper else np.tril(a)
    unread = np.tri(n, n, -1, bool) if upper else ~np.tri(n, n, 0, bool)
    if unit:
        triangle[..., np.eye(n, dtype=bool)] = 1
        unread |= np.eye(n, dtype=bool)
    a[..., unread] = np.nan
    return a.astype(dtype), b.astype(dtype), np.linalg.solve(triangle, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("upper", [True, False])
def test_solutions_read_one_triangle_of_matrices_by_rows_and_by_columns(upper, unit, by_rows, dtype):
    for n in ROWS:
        for columns in SIDES:
            for batch in ((), (2, 3)):
                a, b, wanted = systems(n, columns, upper, unit, dtype, batch)
                a = a if by_rows else np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)

                made = triangular_systems.solution(a, b, upper, unit)

                assert made.dtype == dtype
                np.testing.assert_allclose(made, wanted, rtol=0, atol=np.abs(wanted).max() * 60 * np.finfo(dtype).eps)


def test_batches_and_right_sides_may_have_any_strides():
    a, b, wanted = systems(9, 4, False, False, np.float64, (6,))
    backwards = np.ascontiguousarray(a[::-1])[::-1]
    stretched = np.zeros((6, 9, 8))
    stretched[..., ::2] = b

    for x, y in ((backwards, b), (a, stretched[..., ::2]), (a, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2))):
        np.testing.assert_allclose(triangular_systems.solution(x, y, False, False), wanted, atol=1e-13)
    np.testing.assert_allclose(triangular_systems.solution(a, np.broadcast_to(b[0], b.shape), False, False)[0], wanted[0], atol=1e-13)


def test_the_same_bits_on_any_number_of_threads():
    a, b, _ = systems(64, 4, True, False, np.float32, (40,))
    before, made = pool.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            pool.set_num_threads(threads)
            made.append(triangular_systems.solution(a, b, True, False).tobytes())
    finally:
        pool.set_num_threads(before)

    assert made[0] == made[1] == made[2]


def test_many_small_matrices_with_more_right_sides_are_left_to_vectors_of_these():
    a, b, _ = systems(16, 5, True, False, np.float32, (40,))

    assert triangular_systems.solution(a, b, True, False) is None
    assert triangular_systems.solution(a, b[..., :4], True, False) is not None


def test_a_zero_on_the_diagonal_gives_infinity():
    a = np.array([[0.0, 0.0], [1.0, 2.0]])

    assert triangular_systems.solution(a, np.ones((2, 1)), False, False)[:, 0].tolist() == [np.inf, -np.inf]


def test_many_matrices_with_one_right_side_take_no_call_of_blas_each(monkeypatch):
    a, b, wanted = systems(70, 1, False, False, np.float32, (5,))
    monkeypatch.setattr(_lapack, "blas_routine", None)

    for x, y, z in ((a, b, wanted), (a[0], b[0], wanted[0])):
        made = fb.linalg.solve_triangular(fb.from_numpy(x), fb.from_numpy(y), upper=False)

        np.testing.assert_allclose(made.numpy(), z, atol=1e-5)


def test_numbers_for_truths_are_refused_after_truths_were_taken():
    a, b = fb.eye(3), fb.ones(3, 1)
    fb.linalg.solve_triangular(a, b, upper=True, left=True)

    with pytest.raises(TypeError, match="left"):
        fb.linalg.solve_triangular(a, b, upper=True, left=1)
