"""Matrices by way of their tridiagonal and bidiagonal forms: `eigh`, `svd` and what stands on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau_kernels.cpu.linear_algebra import condensed
from flambeau_kernels.cpu.tier import compiles

pytestmark = pytest.mark.skipif(not compiles(), reason="no compiler")

DTYPES = [np.float32, np.float64]


def numbers(*shape: int, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def product(lines, shares, n):
    """The product of the reflectors in the rows of `lines`."""
    made = np.eye(n)
    for line, share in zip(lines[::-1, :n].astype(np.float64), shares[::-1].astype(np.float64), strict=True):
        made -= share * np.outer(line, line @ made)
    return made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [2, 3, 5, 16, 33, 64, 130])
def test_reflectors_make_a_symmetric_matrix_tridiagonal(n, upper, dtype):
    a = numbers(n, n, dtype=dtype)
    a += a.T

    d, e, lines, shares = condensed.tridiagonal(np.triu(a) if upper else np.tril(a), upper)

    q = product(lines[: n - 1], shares[: n - 1], n)
    made = q @ (np.diag(d.astype(np.float64)) + np.diag(e.astype(np.float64), 1) + np.diag(e.astype(np.float64), -1)) @ q.T
    assert np.abs(made - a).max() < 20 * np.finfo(dtype).eps * np.abs(a).max() * max(1, n / 32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 33, 64, 130])
def test_reflectors_make_a_matrix_bidiagonal(n, dtype):
    a = numbers(n, n, dtype=dtype)

    d, e, left, left_shares, right, right_shares = condensed.bidiagonal(a)

    q, p = product(left, left_shares, n), product(right[: n - 1], right_shares[: n - 1], n)
    made = q @ (np.diag(d.astype(np.float64)) + np.diag(e.astype(np.float64), 1)) @ p.T
    assert np.abs(made - a).max() < 20 * np.finfo(dtype).eps * np.abs(a).max() * max(1, n / 32)


def check(a, full_matrices):
    """`fb.linalg.svd` and `svdvals` of `a` against it and against numpy's in float64."""
    u, s, vh = (x.numpy() for x in fb.linalg.svd(fb.from_numpy(a), full_matrices=full_matrices))
    alone = fb.linalg.svdvals(fb.from_numpy(a)).numpy()

    m, n = a.shape[-2:]
    k, eps = min(m, n), np.finfo(a.dtype).eps
    wanted = np.linalg.svd(a.astype(np.float64), compute_uv=False)
    bound = 60 * eps * max(wanted.max(), np.finfo(a.dtype).tiny)
    assert (u.shape, vh.shape) == ((*a.shape[:-1], m if full_matrices else k), (*a.shape[:-2], n if full_matrices else k, n))
    for x in (u.swapaxes(-1, -2), vh):
        assert np.abs(x @ x.swapaxes(-1, -2) - np.eye(x.shape[-2])).max() < 60 * eps
    assert np.abs((u[..., :, :k] * s[..., None, :]) @ vh[..., :k, :] - a).max() <= bound
    assert np.abs(s - wanted).max() <= bound
    assert np.abs(alone - wanted).max() <= bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full_matrices", [False, True])
@pytest.mark.parametrize("shape", [(32, 32), (33, 40), (90, 41), (3, 50, 50), (2, 2, 40, 33), (70, 70), (200, 130), (300, 300)], ids=str)
def test_singular_values_and_vectors_of_any_shape(shape, full_matrices, dtype):
    check(numbers(*shape, dtype=dtype), full_matrices)


@settings(max_examples=25, deadline=None)
@given(st.integers(24, 90), st.integers(24, 90), st.integers(0, 30), st.sampled_from(DTYPES), st.booleans())
def test_matrices_of_low_rank(m, n, rank, dtype, full_matrices):
    check((numbers(m, rank) @ numbers(rank, n)).astype(dtype), full_matrices)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [np.eye, lambda n: np.ones((n, n)), np.tri, lambda n: np.diag(np.arange(n) % 3.0),
                                  lambda n: np.eye(n)[::-1], lambda n: 1 / (1 + np.add.outer(np.arange(n), np.arange(n))),
                                  lambda n: np.zeros((n, n))])  # fmt: skip
def test_matrices_whose_values_meet_or_vanish(make, dtype):
    a = make(60).astype(dtype)
    symmetric = a + a.T

    check(a, True)
    values, vectors = (x.numpy() for x in fb.linalg.eigh(fb.from_numpy(symmetric)))

    eps, norm = np.finfo(dtype).eps, np.abs(symmetric).sum(1).max()
    assert np.abs(vectors.T @ vectors - np.eye(60)).max() < 60 * eps
    assert np.abs(symmetric @ vectors - vectors * values).max() <= 60 * eps * norm


@pytest.mark.parametrize("scale", [1e-35, 1e-25, 1e25, 1e35])
def test_numbers_whose_squares_leave_the_range(scale):
    check(numbers(40, 40, dtype=np.float32) * np.float32(scale), False)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
def test_doubles_whose_squares_leave_the_range(scale):
    check(numbers(40, 40) * scale, False)


def test_nan_and_infinity_are_answered_as_for_small_matrices():
    for n in (4, 40, 100):
        a = np.stack([numbers(n, n), numbers(n, n)])
        a[1, 1, 2] = np.inf
        for name in ("svdvals", "eigvalsh"):
            made = getattr(fb.linalg, name)(fb.from_numpy(a if name == "svdvals" else a + a.swapaxes(-1, -2))).numpy()
            assert np.isfinite(made[0]).all()
            assert np.isnan(made[1]).all()
        a[1, 1, 2] = np.nan
        with pytest.raises(fb.linalg.LinAlgError, match=r"Batch element 1.*non-finite"):
            fb.linalg.svd(fb.from_numpy(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_bits_in_every_order_of_memory_and_on_any_number_of_threads(dtype):
    a, threads, made = numbers(150, 150, dtype=dtype), fb.get_num_threads(), []
    spread = np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3]
    try:
        for count, x in ((1, a), (2, np.asfortranarray(a)), (3, spread), (5, a)):
            fb.set_num_threads(count)
            made.append([y.numpy().tobytes() for y in fb.linalg.svd(fb.from_numpy(x))])
    finally:
        fb.set_num_threads(threads)

    assert all(one == made[0] for one in made[1:])


def test_gradients_of_singular_values_and_of_a_function_of_vectors():
    a = fb.from_numpy(numbers(30, 30)).requires_grad_()

    u, s, vh = fb.linalg.svd(a)
    ((u * s.sqrt()) @ vh).trace().backward()
    grad = a.grad
    step = numbers(30, 30, dtype=np.float64)

    def value(x):
        u, s, vh = np.linalg.svd(x)
        return np.trace((u * np.sqrt(s)) @ vh)

    x = a.detach().numpy()
    near = (value(x + 1e-6 * step) - value(x - 1e-6 * step)) / 2e-6
    np.testing.assert_allclose((grad.numpy() * step).sum(), near, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-142, 1e-250, 1e-300, 1e-312, 1e-320])
def test_reflectors_of_numbers_that_are_hardly_any_are_orthogonal(scale):
    """Squares of what was scaled once vanished: vectors of all ones, whose rest falls below the smallest numbers, were off by 0.01."""
    a = np.zeros((70, 70))
    a[:2, :2] = [[2.0, 1.0], [1.0, 3.0]]
    a[2:, 2:] = np.random.default_rng(5).standard_normal((68, 68)) * scale
    check(a, True)
    symmetric = a + a.T

    values, vectors = (x.numpy() for x in fb.linalg.eigh(fb.from_numpy(symmetric)))

    assert np.abs(vectors.T @ vectors - np.eye(70)).max() < 1e-13
    assert np.abs(symmetric @ vectors - vectors * values).max() < 1e-13


@pytest.mark.parametrize("n", range(48, 132, 7))
def test_vectors_of_all_ones_are_orthogonal(n):
    check(np.ones((n, n)), True)
    _, vectors = fb.linalg.eigh(fb.ones(n, n, dtype=fb.float64))

    assert np.abs(vectors.numpy().T @ vectors.numpy() - np.eye(n)).max() < 1e-13
