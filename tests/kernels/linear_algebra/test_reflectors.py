"""QR factorizations of kernels are LAPACK's, with its signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu.linear_algebra import reflectors
from flambeau_kernels.cpu.tier import compiles

pytestmark = pytest.mark.skipif(not compiles(), reason="no compiler")

TOLERANCE = {np.float32: 2e-6, np.float64: 4e-15}


def numbers(*shape, dtype):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def check(a, mode="reduced"):
    """Against numpy's in float64."""
    q, r = reflectors.qr(a, mode)
    dtype, n = a.dtype.type, max(a.shape[-2:])
    expected: Any = np.linalg.qr(a.astype(np.float64), mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]  # a name
    if mode != "r":
        assert q.shape == expected[0].shape
        assert np.abs(q.swapaxes(-1, -2) @ q - np.eye(q.shape[-1])).max() < TOLERANCE[dtype] * 20
        np.testing.assert_allclose(q @ r, a, rtol=0, atol=TOLERANCE[dtype] * n * np.abs(a).max())
    r_expected = expected if mode == "r" else expected[1]
    assert (r.shape, r.dtype) == (r_expected.shape, a.dtype)
    assert (np.tril(r, -1) == 0).all()
    np.testing.assert_allclose(np.abs(np.diagonal(r, 0, -2, -1)), np.abs(np.diagonal(r_expected, 0, -2, -1)), rtol=0,
                               atol=TOLERANCE[dtype] * n**1.5 * np.abs(a).max())  # fmt: skip
    assert (np.sign(r[..., 0, 0]) == np.sign(r_expected[..., 0, 0])).all()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 1), (1, 3), (5, 3), (3, 5), (7, 4, 4), (2, 3, 17, 16), (40, 33), (9, 33, 40), (64, 64), (65, 129), (130, 65)],
    ids=str,
)
def test_factors_have_the_signs_of_lapack(shape, mode, dtype):
    check(numbers(*shape, dtype=dtype), mode)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(41, 40), (35, 70), (70, 33)], ids=str)
def test_blocks_of_columns_are_applied_together(shape, mode, dtype, monkeypatch):
    monkeypatch.setattr(reflectors, "BLOCKED_FROM", 33)
    monkeypatch.setattr(reflectors, "BLOCK", 8)

    check(numbers(*shape, dtype=dtype), mode)


def test_large_matrices():
    check(numbers(300, 257, dtype=np.float32))
    check(numbers(258, 300, dtype=np.float64), "complete")


@pytest.mark.parametrize("blocked", [False, True])
def test_columns_of_zeros_have_no_reflector(blocked, monkeypatch):
    if blocked:
        monkeypatch.setattr(reflectors, "BLOCKED_FROM", 1)
        monkeypatch.setattr(reflectors, "BLOCK", 2)
    a = numbers(6, 5, dtype=np.float64)
    a[:, 0] = a[:, 3] = 0
    a[4:, 2] = 0

    q, r = reflectors.qr(a, "reduced")

    np.testing.assert_allclose(q @ r, a, atol=1e-14)
    np.testing.assert_allclose(q.T @ q, np.eye(5), atol=1e-14)
    assert r[0, 0] == 0
    assert np.array_equal(reflectors.qr(np.zeros((4, 2)), "complete")[0], np.eye(4))


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e307])
def test_squares_neither_overflow_nor_vanish(scale):
    a = numbers(5, 4, dtype=np.float64) / 8

    _, r = reflectors.qr(a * scale, "reduced")

    np.testing.assert_allclose(r, reflectors.qr(a, "reduced")[1] * scale, rtol=1e-10 if scale > 1e-300 else 1, atol=1e-322)


def test_values_that_are_not_finite_stay_in_their_matrix():
    a = numbers(3, 6, 4, dtype=np.float32)
    a[0, 2, 1], a[2, 5, 0] = np.nan, np.inf

    q, r = reflectors.qr(a, "reduced")

    assert np.isnan(r[0]).any()
    assert np.isnan(q[2]).any()
    assert np.array_equal(r[1], reflectors.qr(a[1], "reduced")[1])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_matrices_may_lie_in_any_order(dtype):
    a = numbers(2, 3, 9, 7, dtype=dtype)
    q, r = reflectors.qr(a, "reduced")
    spaced = np.repeat(np.repeat(a, 2, -1), 2, 0)[::2, :, :, ::2]

    for other in (np.asfortranarray(a), spaced, a[..., ::-1][..., ::-1]):
        assert all(np.array_equal(x, y) for x, y in zip(reflectors.qr(other, "reduced"), (q, r), strict=True))


def test_any_number_of_threads_gives_the_same_bits():
    many, large = numbers(150, 20, 20, dtype=np.float32), numbers(300, 280, dtype=np.float32)
    before = fb.get_num_threads()
    try:
        made = []
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            made.append((*reflectors.qr(many, "reduced"), *reflectors.qr(large, "reduced")))
    finally:
        fb.set_num_threads(before)

    assert all(np.array_equal(x, y) for one in made[1:] for x, y in zip(made[0], one, strict=True))


def _symmetric(n, dtype, scale=1.0):
    a = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    return (a + a.T) * dtype(scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("n", [48, 65, 200])
def test_eigenvectors_of_large_matrices_are_those_of_one_triangle(n, uplo, dtype):
    a = _symmetric(n, dtype)
    triangle = np.tril(a) if uplo == "L" else np.triu(a)

    values, vectors = (x.numpy() for x in fb.linalg.eigh(fb.from_numpy(triangle), UPLO=uplo))

    eps = np.finfo(dtype).eps
    assert np.abs(a @ vectors - vectors * values).max() < 40 * eps * np.abs(values).max()
    assert np.abs(vectors.T @ vectors - np.eye(n)).max() < 40 * eps
    assert (np.diff(values) >= 0).all()
    assert vectors.T.flags.c_contiguous


@pytest.mark.parametrize("scale", [1e-30, 1e30, 0.0])
def test_eigenvalues_of_matrices_whose_squares_leave_the_range(scale):
    a = _symmetric(64, np.float32, scale)

    values, vectors = (x.numpy() for x in fb.linalg.eigh(fb.from_numpy(a)))

    wanted = np.linalg.eigvalsh(a.astype(np.float64))
    np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-6 * max(np.abs(wanted).max(), 1e-44))
    assert np.abs(vectors.T @ vectors - np.eye(64)).max() < 1e-5


def test_eigenvectors_have_the_same_bits_on_any_number_of_threads():
    a, threads = fb.from_numpy(_symmetric(200, np.float32)), fb.get_num_threads()
    try:
        made = []
        for count in (1, 3):
            fb.set_num_threads(count)
            made.append(fb.linalg.eigh(a).eigenvectors.numpy().tobytes())
    finally:
        fb.set_num_threads(threads)

    assert made[0] == made[1]
