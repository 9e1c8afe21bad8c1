"""Sums and products of two arrays below the operations: they have numpy's bits, also once they have been specialised."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.arithmetic import PLUS, TIMES

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int64, np.complex64]


def operands(dtype):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).itemsize == 2:
        every = np.arange(1 << 16, dtype=np.uint16)
        return every.view(dtype).reshape(256, 256), rng.permutation(every).view(dtype).reshape(256, 256)
    return (rng.normal(size=(2, 256, 256)) * 1000).astype(dtype)


def same(a, b):
    return np.array_equal(a, b, equal_nan=np.dtype(a.dtype).kind in "fc") or np.array_equal(a.astype("f4"), b.astype("f4"), equal_nan=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("one", "ufunc"), [(PLUS, np.add), (TIMES, np.multiply)])
def test_bits_of_numpy(one, ufunc, dtype):
    a, b = operands(dtype)
    expected = ufunc(a, b)
    for _ in range(8):                                    # numpy answers first, a kernel later
        changed, filled = a.copy(), np.empty_like(a)

        one.into(changed, b)
        one.fill(filled.T, a.T, b.T)

        assert same(one(a, b), expected)
        assert same(changed, expected)
        assert same(filled, expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_half_times_a_number(dtype):
    a = np.linspace(1, 2, 5000).astype(dtype)
    for _ in range(8):
        made, expected = a.copy(), a.copy()

        TIMES.into(made, 0.1)

        np.multiply(a, 0.1, out=expected)
        np.testing.assert_array_equal(made, expected)
