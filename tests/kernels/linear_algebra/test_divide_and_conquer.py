"""Eigenvalues of tridiagonal and singular values of bidiagonal matrices, divided: residuals and orthogonality whatever the spectrum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau_kernels.cpu.linear_algebra import divide_and_conquer
from flambeau_kernels.cpu.tier import compiles

pytestmark = pytest.mark.skipif(not compiles(), reason="no compiler")

DTYPES = [np.float32, np.float64]


def tridiagonal(d, e):
    return np.diag(d.astype(np.float64)) + np.diag(e.astype(np.float64), 1) + np.diag(e.astype(np.float64), -1)


def check(d, e, bound=30):
    """Errors in units of rounding of the largest eigenvalue."""
    whole = tridiagonal(d, e)
    values, vectors = divide_and_conquer.eigh(d, e, True)
    alone = divide_and_conquer.eigh(d, e, False)

    eps, v = np.finfo(d.dtype).eps, vectors.astype(np.float64)
    norm = np.abs(whole).sum(1).max() or 1.0
    assert (values.dtype, vectors.dtype, alone.dtype) == (d.dtype,) * 3
    assert (np.diff(values) >= 0).all()
    assert (np.diff(alone) >= 0).all()
    assert np.abs(v.T @ v - np.eye(len(d))).max() <= bound * eps
    assert np.abs(whole @ v - v * values.astype(np.float64)).max() <= bound * eps * norm
    assert np.abs(alone.astype(np.float64) - np.linalg.eigvalsh(whole)).max() <= 2 * bound * eps * norm


def check_singular(d, e, bound=30):
    """The same of the matrix with `d` on and `e` above the diagonal."""
    whole = np.diag(d.astype(np.float64)) + np.diag(e.astype(np.float64), 1)
    values, u, v = divide_and_conquer.svd(d, e, True)
    alone = divide_and_conquer.svd(d, e, False)

    eps, (left, right) = np.finfo(d.dtype).eps, (x.astype(np.float64) for x in (u, v))
    wanted = np.linalg.svd(whole, compute_uv=False)
    norm = wanted[0] or 1.0
    assert {x.dtype for x in (values, u, v, alone)} == {d.dtype}
    assert (np.diff(values) <= 0).all()
    assert values[-1] >= 0
    for x in (left, right):
        assert np.abs(x @ x.T - np.eye(len(d))).max() <= bound * eps
    assert np.abs((left.T * values) @ right - whole).max() <= bound * eps * norm
    assert np.abs(values - wanted).max() <= bound * eps * norm
    assert np.abs(alone - wanted).max() <= bound * eps * norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 17, 33, 63, 64, 65, 129, 200, 300])
def test_singular_vectors_are_orthogonal_and_leave_no_residual(n, dtype):
    r = np.random.default_rng(n)

    check_singular(r.standard_normal(n).astype(dtype), r.standard_normal(n - 1).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 4, 7, 16, 17, 33, 63, 64, 65, 129, 200, 300])
def test_vectors_are_orthogonal_and_leave_no_residual(n, dtype):
    r = np.random.default_rng(n)

    check(r.standard_normal(n).astype(dtype), r.standard_normal(n - 1).astype(dtype))


def wilkinson(n):
    return np.abs(np.arange(n) - n // 2).astype(float), np.ones(n - 1)


def glued(n):
    """Copies of one matrix that hardly touch: each eigenvalue many times, but for rounding."""
    d, e = np.tile(wilkinson(21)[0], n // 21 + 1)[:n], np.ones(n - 1)
    e[20::21] = 1e-7
    return d, e


SPECTRA = {
    "one value": lambda n: (np.ones(n), np.zeros(n - 1)),
    "zeros": lambda n: (np.zeros(n), np.zeros(n - 1)),
    "second differences": lambda n: (np.full(n, 2.0), np.full(n - 1, -1.0)),
    "nothing on the diagonal": lambda n: (np.zeros(n), np.ones(n - 1)),
    "pairs that agree in most digits": wilkinson,
    "glued": glued,
    "graded": lambda n: (10.0 ** -(np.arange(n) * 30 / n), 10.0 ** -(np.arange(n - 1) * 30 / n + 0.5)),
    "graded upwards": lambda n: (10.0 ** (np.arange(n) * 20 / n - 20), 10.0 ** (np.arange(n - 1) * 20 / n - 20)),
    "nearly one value": lambda n: (np.ones(n) + np.arange(n) * 1e-16, np.full(n - 1, 1e-8)),
    "one beside zero": lambda n: (np.eye(n)[n // 2], np.eye(n)[0][: n - 1]),
    "a zero between halves": lambda n: (np.arange(n, 0.0, -1), np.where(np.arange(n - 1) == n // 2 - 1, 0.0, 1.0)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 64, 150])
@pytest.mark.parametrize("name", SPECTRA)
def test_spectra_in_which_values_meet(name, n, dtype):
    d, e = SPECTRA[name](n)

    check(d.astype(dtype), e.astype(dtype))
    check_singular(d.astype(dtype), e.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [-60, 60])
def test_powers_of_two_change_the_exponents_of_the_values_alone(power, dtype):
    r = np.random.default_rng(0)
    d, e = r.standard_normal(90).astype(dtype), r.standard_normal(89).astype(dtype)

    values, vectors = divide_and_conquer.eigh(d, e, True)
    others, same = divide_and_conquer.eigh(np.ldexp(d, power), np.ldexp(e, power), True)

    assert np.array_equal(others, np.ldexp(values, power))
    assert np.array_equal(same, vectors)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_is_on_and_beside_the_diagonal(data):
    n = data.draw(st.integers(2, 80))
    few = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-4, 1e-9, -1e-20, 3.0])
    dtype = data.draw(st.sampled_from(DTYPES))
    d, e = (np.array(data.draw(st.lists(few, min_size=k, max_size=k)), dtype) for k in (n, n - 1))

    check(d, e)
    check_singular(d, e)


@pytest.mark.parametrize("of", ["eigh", "svd"])
@pytest.mark.parametrize("vectors", [True, False])
def test_any_number_of_threads_gives_the_same_bits(vectors, of):
    r = np.random.default_rng(1)
    d, e = r.standard_normal(333).astype(np.float32), r.standard_normal(332).astype(np.float32)
    before, made = fb.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            fb.set_num_threads(threads)
            result = getattr(divide_and_conquer, of)(d, e, vectors)
            made.append([x.tobytes() for x in (result if vectors else (result,))])
    finally:
        fb.set_num_threads(before)

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvalues_alone_are_those_with_vectors(uplo, dtype):
    a = np.random.default_rng(2).standard_normal((3, 90, 90)).astype(dtype)
    a += a.swapaxes(-1, -2)
    kept = np.tril(a) if uplo == "L" else np.triu(a)

    alone = fb.linalg.eigvalsh(fb.from_numpy(kept), UPLO=uplo).numpy()

    wanted = np.linalg.eigvalsh(a.astype(np.float64))
    np.testing.assert_allclose(alone, wanted, rtol=0, atol=40 * np.finfo(dtype).eps * np.abs(wanted).max())
