"""Sums, products and running totals of complex numbers, against numpy in twice the precision."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.reductions import scan
from flambeau_kernels.engine.runtime import pool

# One row that is cut into pieces, long and short rows, rows of a transposed matrix, a dimension in the middle.
SHAPES = [(70_001,), (3, 40_000), (50, 211), (900, 17), (1500, 3), (6, 40, 50)]
WIDER = {np.complex64: np.complex128, np.complex128: np.clongdouble}


def turns(shape, dtype):
    """Numbers whose products stay near 1."""
    rng = np.random.default_rng(0)
    return (np.exp(1j * rng.uniform(-3, 3, shape)) * rng.uniform(0.999, 1.001, shape)).astype(dtype)


def some_arrays(shape, dtype):
    a = turns(shape, dtype)
    return [a, np.ascontiguousarray(a.T).T] if a.ndim > 1 else [a]


@pytest.mark.parametrize("dtype", WIDER)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_and_products(shape, dtype):
    for a in some_arrays(shape, dtype):
        wide, eps = a.astype(WIDER[dtype]), np.finfo(dtype).eps
        for dim in [None, *range(a.ndim)]:
            n = a.size if dim is None else a.shape[dim]
            dims = {} if dim is None else {"dim": dim}

            total, mean, product = (getattr(fb, name)(fb.from_numpy(a), **dims).numpy() for name in ("sum", "mean", "prod"))

            room = 8 * eps * (np.sqrt(n) if tier.compiles() else n)
            np.testing.assert_allclose(total, wide.sum(dim), rtol=4 * eps, atol=room)
            np.testing.assert_allclose(mean, wide.mean(dim), rtol=4 * eps, atol=room / n)
            np.testing.assert_allclose(product, wide.prod(dim), rtol=4 * eps * np.sqrt(n))


@pytest.mark.parametrize("dtype", WIDER)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_totals(shape, dtype):
    for a in some_arrays(shape, dtype):
        wide, eps = a.astype(WIDER[dtype]), np.finfo(dtype).eps
        for dim in range(a.ndim):
            lost = np.finfo(np.complex128 if tier.compiles() else dtype).eps * np.sqrt(a.shape[dim])  # the compiled tier adds in float64
            room = {"rtol": 4 * (eps + lost), "atol": 4 * lost * np.abs(wide.cumsum(dim)).max()}
            backwards = np.flip(np.flip(wide, dim).cumsum(dim), dim)

            np.testing.assert_allclose(scan.cumsum(a, dim), wide.cumsum(dim), **room)
            np.testing.assert_allclose(scan.reverse_cumsum(a, dim), backwards, **room)
            np.testing.assert_allclose(scan.cumprod(a, dim), wide.cumprod(dim), rtol=4 * eps * np.sqrt(a.shape[dim]))


def test_bits_do_not_depend_on_threads():
    a = turns((5, 60_000), np.complex64)
    before = pool.get_num_threads()
    made = []
    try:
        for threads in (1, 2, 3):
            pool.set_num_threads(threads)
            x = fb.from_numpy(a)
            made.append([x.sum().numpy(), x.prod(1).numpy(), x.cumprod(1).numpy(), x.cumsum(1).numpy()])
    finally:
        pool.set_num_threads(before)
    for other in made[1:]:
        for one, another in zip(made[0], other, strict=True):
            np.testing.assert_array_equal(one, another)


def test_the_first_factors_are_not_multiplied_by_one():
    a = np.ones((300, 17), np.complex64)
    a[:, 0] = complex(np.inf, 1)                          # times 1 it has no imaginary part

    made = fb.from_numpy(a)[:, :1].contiguous().expand(300, 17).cumprod(1).numpy()[:, 0]

    np.testing.assert_array_equal(made, a[:, 0])
