"""Triangles of large matrices, against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.cpu.shapes import triangle


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(150, 200), (200, 150), (3, 90, 100), (2, 2, 4096)])
def test_every_diagonal(shape, dtype):
    a = np.random.default_rng(0).integers(1, 9, shape).astype(dtype)
    for diagonal in (-10_000, -151, -3, -1, 0, 1, 40, 199, 10_000):
        np.testing.assert_array_equal(triangle.tril(a, diagonal), np.tril(a, diagonal))
        np.testing.assert_array_equal(triangle.triu(a, diagonal), np.triu(a, diagonal))


def test_strided_matrices():
    a = np.random.default_rng(0).normal(size=(300, 400))

    np.testing.assert_array_equal(triangle.tril(a.T[::2], 3), np.tril(a.T[::2], 3))
