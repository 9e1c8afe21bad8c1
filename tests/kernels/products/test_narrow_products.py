"""Products of bytes and int16 by dot products of neighbours: exact in int32, whatever the strides and the number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau_kernels.cpu.products import narrow_products
from flambeau_kernels.cpu.products.matmul import matmul
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")

SHAPES = [(1, 1, 1), (130, 256, 70), (8, 4, 32), (33, 70, 41), (1, 1000, 300), (129, 257, 513), (300, 5, 40), (17, 4096, 33)]


def drawn(m, k, n, dtype):
    """Matrices with the extremes among their bytes."""
    draw = np.random.default_rng(m + k + n)
    a, b = draw.integers(-128, 128, (m, k)).astype(np.int8).view(dtype), draw.integers(-128, 128, (k, n)).astype(np.int8)
    a.view(np.int8)[0], b[:, 0] = -128, -128
    return a, b


@pytest.fixture(params=["dots of four", "dots of two"])
def instruction(request, monkeypatch):
    if request.param == "dots of two":
        monkeypatch.setattr(narrow_products, "_has_dots_of_bytes", lambda: False)
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products_of_bytes_are_exact(shape, dtype, instruction):
    a, b = drawn(*shape, dtype)
    wanted = a.astype(np.int64) @ b.astype(np.int64)

    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b)):
            made = narrow_products.product(left, right)
            assert made.dtype == np.int32
            np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_int16_are_exact_and_wrap_around(shape):
    m, k, n = shape
    draw = np.random.default_rng(m)
    a, b = draw.integers(-(2**15), 2**15, (m, k)).astype(np.int16), draw.integers(-(2**15), 2**15, (k, n)).astype(np.int16)
    a[0], b[:, 0] = -(2**15), -(2**15)
    wanted = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)

    for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        np.testing.assert_array_equal(narrow_products.product(left, right), wanted)
        np.testing.assert_array_equal(matmul(left, right), wanted.astype(np.int16))


def test_products_of_bytes_do_not_depend_on_the_number_of_threads():
    a, b = drawn(130, 100, 600, np.int8)
    before, made = pool.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            pool.set_num_threads(threads)
            made.append(narrow_products.product(a, b).tobytes())
    finally:
        pool.set_num_threads(before)

    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_matmul_of_bytes_wraps_around(dtype):
    a, b = (x.view(dtype) for x in drawn(70, 90, 50, np.int8))

    np.testing.assert_array_equal(matmul(a, b), (a.astype(np.int64) @ b.astype(np.int64)).astype(dtype))
