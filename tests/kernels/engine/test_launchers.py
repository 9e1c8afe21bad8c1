"""Native launchers: numpy's results where they act, None where they do not, and no reference lost."""
from __future__ import annotations

import os
import re
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau  # noqa: F401  # says which class objects are of
from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.products import matmul
from flambeau_kernels.cpu.random import sample, uniform_draws
from flambeau_kernels.cpu.random import stream as random_stream
from flambeau_kernels.engine.builtins import launchers, picks, pyabi
from flambeau_kernels.engine.machine_code import llvm

if not launchers.available()[0]:
    pytest.skip(launchers.available()[1], allow_module_level=True)

CALL = launchers.load()
DTYPES = (np.float32, np.float64)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
VALUES = st.floats(-100, 100, width=32) | st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9)


@pytest.fixture(autouse=True)
def quiet_numpy():
    with np.errstate(all="ignore"):
        yield


def check_equal(found, expected):
    if isinstance(expected, tuple):
        assert type(found) is tuple
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
        return
    assert (type(found), found.dtype, found.flags.c_contiguous) == (np.ndarray, expected.dtype, True)
    np.testing.assert_array_equal(found, expected)


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_every_launcher_has_a_name_that_calls_reach_it_by():
    assert set(CALL) == set(hot_calls._BY_NUMPY)


# --- results ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_has_numpys_bits_at_every_size(dtype):
    values = random(4096, dtype=dtype) * np.exp(8 * random(4096, dtype=dtype, seed=1))
    for size in (*range(1100), 1337, 2047, 2048, 2056, 3001, 4095, 4096):
        x = values[:size]
        check_equal(CALL["sum"](x), np.asarray(np.add.reduce(x)))


@pytest.mark.parametrize("shape", [(), (1, 1), (4, 4), (3, 5, 7), (128, 9), (9, 128), (2, 1, 600)])
def test_sum_of_any_shape_adds_in_memory_order(shape):
    x = random(*shape) if shape else np.array(0.3, np.float32)

    check_equal(CALL["sum"](x), np.asarray(np.add.reduce(x, axis=None)))


def test_sum_of_negative_zeros_is_zero_and_large_arrays_are_refused():
    assert not np.signbit(CALL["sum"](np.full(3, -0.0, np.float32)))
    assert CALL["sum"](np.ones(4097, np.float32)) is None


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@settings(max_examples=150, deadline=None, derandomize=True)
@given(dtype=st.sampled_from(DTYPES), sizes=st.tuples(st.integers(2, 40), st.integers(1, 40), st.integers(2, 40)),
       name=st.sampled_from(["matmul", "matmul_nt", "matmul_tn"]),
       by_columns=st.tuples(st.booleans(), st.booleans()))
def test_matrix_products_read_either_memory_order(dtype, sizes, name, by_columns):
    m, k, n = sizes
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1)
    a = a.T.copy() if name == "matmul_tn" else a
    b = b.T.copy() if name == "matmul_nt" else b
    a, b = (np.asfortranarray(x) if f else x for x, f in zip((a, b), by_columns, strict=True))

    expected = (a.T if name == "matmul_tn" else a) @ (b.T if name == "matmul_nt" else b)
    check_equal(CALL[name](a, b), expected)


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@pytest.mark.parametrize("sizes", [(2, 1, 2), (4, 4, 4), (3, 7, 5), (2, 512, 2), (32, 1, 64), (45, 1, 45), (8, 16, 16)])
def test_products_of_bfloat16_are_sums_in_float32_rounded_once(sizes):
    m, k, n = sizes
    a, b = random(m, k, dtype=BFLOAT16), random(k, n, dtype=BFLOAT16, seed=1)
    a[0, 0], b[-1, -1] = np.nan, -np.inf

    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(BFLOAT16)
    made = CALL["matmul"](a, b)
    assert made.dtype is BFLOAT16
    check_equal(made.astype(np.float32), expected.astype(np.float32))
    assert made.tobytes() == matmul.product_by_numpy(a, b).tobytes()


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
def test_what_products_of_bfloat16_refuse():
    a = random(4, 4, dtype=BFLOAT16)
    for m, k, n in ((1, 4, 4), (4, 4, 1), (0, 4, 4), (4, 0, 4), (16, 16, 9), (2, 4, 300)):
        assert CALL["matmul"](random(m, k, dtype=BFLOAT16), random(k, n, dtype=BFLOAT16)) is None
    for other in (a[:3], a[0], a.astype(np.float16), a.astype(np.float32), a.T, a[:, ::-1], None):
        assert CALL["matmul"](a, other) is None
    assert CALL["matmul_tn"](a, a.copy()) is None
    w, bias = a.copy(), a[0].copy()
    for other in (a[:, :3].copy(), bias, a.astype(np.float16), a.astype(np.float32), a.T, None):
        assert CALL["matmul_nt"](a, other) is CALL["linear"](a, other, bias) is None
    for other in (a, bias[:3], bias.astype(np.float32), a[:, 0], None):
        assert CALL["linear"](a, w, other) is None
    assert CALL["linear"](a[None], w, bias) is CALL["linear"](a[:1], w, bias) is None


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@pytest.mark.parametrize("sizes", [(2, 1, 2), (4, 4, 4), (3, 7, 5), (2, 512, 2), (32, 1, 64), (8, 16, 16)])
def test_rows_of_bfloat16_through_weights_are_rounded_once(sizes):
    m, k, n = sizes
    x, w, bias = random(m, k, dtype=BFLOAT16), random(n, k, dtype=BFLOAT16, seed=1), random(n, dtype=BFLOAT16, seed=2)
    x[0, 0], w[-1, -1], bias[0] = np.nan, np.inf, -0.0

    assert CALL["matmul_nt"](x, w).tobytes() == matmul.matmul(x, w.T).tobytes()
    made = CALL["linear"](x, w, bias)
    assert (made.dtype, made.shape) == (BFLOAT16, (m, n))
    assert made.tobytes() == matmul.matmul(x, w.T, bias=bias).tobytes()
    expected = (x.astype(np.float32) @ w.T.astype(np.float32) + bias.astype(np.float32)).astype(BFLOAT16)
    check_equal(made.astype(np.float32), expected.astype(np.float32))


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 2, 2, 2), (2, 4, 4, 4), (7, 3, 5, 8), (16, 7, 9, 8), (3, 2, 100, 2)])
def test_products_of_batches_have_numpys_bits(dtype, sizes):
    count, m, k, n = sizes
    a, b = random(count, m, k, dtype=dtype), random(count, k, n, dtype=dtype, seed=1)

    check_equal(CALL["bmm"](a, b), np.matmul(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_products_of_two_vectors_have_numpys_bits(dtype):
    a, b = random(5, dtype=dtype), np.array([0.0, -0.0, np.inf, np.nan, 1e-30, 3.0], dtype)

    check_equal(CALL["outer"](a, b), a[:, None] * b)
    check_equal(CALL["outer"](a[:0], b), a[:0, None] * b)
    for other in (b[::-1], b[None], b[0], b.astype(np.float16), random(820, dtype=dtype), None, 2.0):
        assert CALL["outer"](a, other) is None


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
def test_what_products_of_batches_refuse():
    a = random(2, 4, 4)
    for m, k, n in ((1, 4, 4), (4, 1, 4), (4, 4, 1), (0, 4, 4), (4, 0, 4), (8, 8, 8)):
        assert CALL["bmm"](random(2, m, k), random(2, k, n)) is None
    for other in (a, a[:1], a[0], random(2, 3, 4), a.astype(np.float64), a[:, :, ::-1], random(3, 4, 4), random(2, 4, 4, 1), None):
        assert CALL["bmm"](a, other) is None


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 4, 4), (4, 4, 1), (1, 5, 1), (1, 64, 64), (64, 64, 1), (1, 1000, 3), (1, 8192, 1), (300, 2, 1)])
@pytest.mark.parametrize("by_columns", [(False, False), (False, True), (True, False), (True, True)])
def test_products_of_a_row_or_a_column_have_numpys_bits(dtype, sizes, by_columns):
    m, k, n = sizes
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1)
    given = [np.asfortranarray(x) if f else x for x, f in zip((a, b), by_columns, strict=True)]

    check_equal(CALL["matmul"](*given), given[0].dot(given[1]))
    check_equal(CALL["matmul_nt"](a, b.T.copy()), a.dot(b.T.copy().T))
    check_equal(CALL["matmul_tn"](a.T.copy(), b), a.T.copy().T.dot(b))
    bias = random(n, dtype=dtype, seed=2)
    check_equal(CALL["linear"](a, b.T.copy(), bias), a.dot(b.T.copy().T) + bias)


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 1, 4), (4, 1, 1), (1, 8193, 1), (1, 100, 100), (0, 4, 4), (4, 0, 4)])
def test_products_that_numpy_computes_by_another_routine_are_refused(sizes):
    m, k, n = sizes
    a = random(4, 4)

    assert CALL["matmul"](random(m, k), random(k, n)) is None
    assert CALL["matmul_nt"](a, a) is None
    assert CALL["matmul"](a, a.T) is None


@pytest.mark.skipif(not pyabi.has_blas(), reason="numpy's BLAS cannot be called directly")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4), (2, 1, 3, 4)])
def test_linear_keeps_leading_dimensions(dtype, shape):
    x, w, b = random(*shape, dtype=dtype), random(5, 4, dtype=dtype, seed=1), random(5, dtype=dtype, seed=2)

    for weight in (w, np.asfortranarray(w)):
        found = CALL["linear"](x, weight, b)

        check_equal(found, (x.reshape(-1, 4) @ w.T + b).reshape(*shape[:-1], 5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", [(1,), (5,), (4, 4), (3, 1), (2, 3, 4), (2, 3, 1, 5)])
def test_joining_puts_arrays_one_after_another(dtype, count, shape):
    arrays = [(random(*shape, seed=k) * 100).astype(dtype) for k in range(count)]
    kept = [a.copy() for a in arrays]
    for d in range(-len(shape), len(shape)):
        check_equal(CALL["cat"](arrays, d), np.concatenate(arrays, d))
        uneven = [*arrays[:-1], np.ascontiguousarray(np.repeat(arrays[-1], 3, d))]
        check_equal(CALL["cat"](uneven, d), np.concatenate(uneven, d))
    for d in range(-len(shape) - 1, len(shape) + 1):
        check_equal(CALL["stack"](arrays, d), np.stack(arrays, d))
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_numbers_are_stacked_but_not_joined():
    numbers = [np.array(k, np.float64) for k in (1, 2)]

    check_equal(CALL["stack"](numbers, 0), np.array([1.0, 2.0]))
    assert CALL["stack"](numbers, 1) is CALL["cat"](numbers, 0) is None


def test_joins_numpy_must_do():
    a, most = random(3, 4), np.zeros(2**14, np.float32)
    for name in ("cat", "stack"):
        call = CALL[name]
        unfit = [[], [a] * 9, (a, a), a, [a, a.astype(np.float64)], [a, a[:, :, None]], [a, a.T],
                 [a[:0], a[:0]], [a, None], [a.view(Subclass), a], [a, a.view(Subclass)], [a.astype(np.int32)] * 2,
                 [np.array([a, None], object)] * 2, [most, most[:1]], [np.zeros((300, 2), np.float32)] * 2]
        for arrays in unfit:
            assert call(arrays, 1) is None, arrays
        assert call([a, a[:2].copy()], 1) is None
        for dim in (3, -4, True, 0.0, None, 2**63, -2**63, 2**63 - 1, np.int64(0)):
            assert call([a, a], dim) is None
        assert call([a, a]) is call(a, a) is call([a, a], 0, 0) is None
    assert CALL["cat"]([a, random(4)], 0) is CALL["cat"]([a, a], 2) is CALL["cat"]([most, most], 0) is None
    assert CALL["cat"]([most], 0) is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.complex128, object, ">f4"])
def test_a_view_has_the_memory_the_flags_and_the_owner_that_reshape_gives(dtype):
    owner = np.arange(24).astype(dtype)
    frozen = owner[:]
    frozen.flags.writeable = False
    whole = owner.reshape(4, 6)
    whole.flags.writeable = True
    for a in (owner, whole, owner[12:].reshape(3, 4), frozen, np.asfortranarray(owner), owner[:1].reshape(())):
        for sizes in ((a.size,), (1, a.size), (-1,), (-1, 1, 1), (2, -1), (a.size // 2, 2), (a.size, 1, 1), (-1, a.size)):
            try:
                expected = a.reshape(sizes)
            except ValueError:
                assert CALL["view"](a, sizes) is None
                continue
            found = CALL["view"](a, sizes)
            assert (found.dtype, found.shape, found.strides) == (a.dtype, expected.shape, expected.strides)
            assert found.base is expected.base
            assert found.flags.num == expected.flags.num
            assert found.ctypes.data == a.ctypes.data
            np.testing.assert_array_equal(found, expected)


def test_views_numpy_must_make():
    a = random(3, 4)
    sizes = [(), (5,), (-1, -1), (-2, 6), (-12,), (0, 12), (-1, 5), (True, 12), (12.0,), (2**63,), (2**32, 2**32), (-2**63,),
             (2**62, 2), [12], 12, None, (np.int64(12),), (1,) * 65, ((3, 4),)]
    for shape in sizes:
        assert CALL["view"](a, shape) is None, shape
    for other in (a.T, a[:, ::2], a[:0], a.view(Subclass), None, 1, [a]):
        assert CALL["view"](other, (12,)) is None


def as_numpy_has_it(a, shape, strides, skip=0):
    flat = a.ravel()[skip // a.itemsize:] if skip else a
    return np.lib.stride_tricks.as_strided(flat, shape, strides)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.complex128, object, ">f4"])
def test_expanded_and_unsqueezed_arrays_have_the_strides_of_pytorch(dtype):
    whole = np.arange(24).astype(dtype).reshape(4, 6)
    frozen = whole.copy()
    frozen.flags.writeable = False
    for a in (whole, frozen, whole.T, whole[::2, 1:], whole[:0], whole[0, 0, ...], whole[:1], whole[:, :1]):
        for dim in range(-a.ndim - 1, a.ndim + 1):
            at = dim % (a.ndim + 1)
            step = a.shape[at] * a.strides[at] if at < a.ndim else a.itemsize
            made = CALL["unsqueeze"](a, dim)
            assert (made.shape, made.strides) == ((*a.shape[:at], 1, *a.shape[at:]), (*a.strides[:at], step, *a.strides[at:]))
            assert (made.dtype, made.flags.writeable, made.base) == (a.dtype, a.flags.writeable, a if a.base is None else a.base)
            np.testing.assert_array_equal(made, np.expand_dims(a, at))
        for sizes in ((3, *a.shape), (-1,) * a.ndim, (2, 0, *a.shape), tuple(5 if n == 1 else n for n in a.shape)):
            made = CALL["expand"](a, sizes)
            expected = np.broadcast_to(a, [n if k == -1 else k for k, n in zip(sizes[::-1], a.shape[::-1], strict=False)][::-1]
                                       if len(sizes) == a.ndim else sizes)
            assert (made.shape, made.flags.writeable, made.base) == (expected.shape, a.flags.writeable, a if a.base is None else a.base)
            np.testing.assert_array_equal(made, expected)


def test_a_restrided_array_is_what_as_strided_makes():
    a = random(4, 6)
    for shape, strides, skip in (((2, 3), (24, 8), 0), ((), (), 20), ((3,), (0,), 4), ((0, 2), (4, 4), 8), ((4, 2, 5), (24, 4, 4), 0)):
        made, expected = CALL["restrided"](a, shape, strides, skip), as_numpy_has_it(a, shape, strides, skip)
        assert (made.shape, made.strides, made.base is a) == (shape, strides, True)
        assert made.flags.num & 0x503 == expected.flags.num & 0x503
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.complex128, ">f4"])
def test_steps_and_addresses_are_those_of_the_array(dtype):
    whole = np.arange(24).astype(dtype).reshape(4, 6)
    for a in (whole, whole.T, whole[1:, ::2], whole[2, 3, ...], np.broadcast_to(whole, (2, 4, 6))):
        assert CALL["steps"](a) == tuple(s // a.itemsize for s in a.strides)
        assert CALL["address"](a) == a.ctypes.data == hot_calls.numpy_address(a)
    assert CALL["steps"](whole[:0]) is CALL["steps"]([1]) is CALL["address"](whole.view(Subclass)) is None


def test_what_expand_unsqueeze_and_restrided_refuse():
    a = random(3, 4)
    for sizes in ((4,), (2, 4), (3, 5), (-1, 3, 4), (-2, 4), (3, -2), (3.0, 4), (True, 4), [3, 4], None, (2**63, 3, 4), (1,) * 63 + (3, 4)):
        assert CALL["expand"](a, sizes) is None, sizes
    for dim in (3, -4, 1.0, True, None, 2**63, "0", np.int64(0)):
        assert CALL["unsqueeze"](a, dim) is None, dim
    assert CALL["unsqueeze"](np.empty((1,) * 64), 0) is None
    for wrong in (((2,), (4, 4), 0), ([2], (4,), 0), ((2,), [4], 0), ((2,), (4,), 0.0), ((2.0,), (4,), 0), ((1,) * 65, (4,) * 65, 0)):
        assert CALL["restrided"](a, *wrong) is None, wrong
    for other in (a.view(Subclass), [a], None):
        assert CALL["expand"](other, (3, 4)) is CALL["unsqueeze"](other, 0) is CALL["restrided"](other, (1,), (4,), 0) is None


# --- elements at places ---------------------------------------------------------------------------------------

def assert_same(made, expected):
    assert type(made) is np.ndarray
    assert (made.dtype, made.shape, made.flags.carray) == (expected.dtype, expected.shape, True)
    assert made.tobytes() == expected.tobytes()


MOVED = [np.float32, np.float64, np.int64, np.float16, ml_dtypes.bfloat16, np.int32, np.int16, np.int8, np.uint8, np.bool_]


def add_at(a, key, values):
    """numpy's additions, those of halves in float32."""
    if a.dtype.itemsize > 2:
        np.add.at(a, key, values)
        return
    wide = a.astype(np.float32)
    np.add.at(wide, key, values.astype(np.float32))
    a[...] = wide


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize(("shape", "dim", "length"), [((5,), 0, 7), ((4, 3), 0, 6), ((4, 3), 1, 2), ((2, 5, 3), 1, 9), ((2, 3, 4), -1, 1),
                                                      ((1500,), 0, 3001), ((65, 37), 0, 130), ((65, 37), 1, 19), ((3, 40, 21), 1, 77)])
def test_elements_are_picked_stored_and_added_along_a_dimension_as_by_numpy(dtype, shape, dim, length):
    rng = np.random.default_rng(3)
    a = (rng.normal(size=shape) * 100).astype(dtype)
    wanted = [*shape]
    wanted[dim] = length
    index = rng.integers(0, shape[dim], wanted)
    values = (rng.normal(size=wanted) * 100).astype(dtype)
    places = [*np.indices(wanted)]
    places[dim] = index
    key = tuple(places)
    stored, added = a.copy(), a.copy()
    stored[key] = values
    adds = a.dtype.kind in "fV" or dtype is np.int64
    other = a.copy()

    assert_same(CALL["pick_along"](a, dim, index), a[key])
    assert CALL["put_along"](other, dim, index, values) is other
    assert_same(other, stored)
    other[...] = a
    if adds:
        add_at(added, key, values)
        assert CALL["add_along"](other, dim, index, values) is other
    else:
        assert CALL["add_along"](other, dim, index, values) is None
    assert_same(other, added)

    vector = rng.integers(0, shape[dim], length)
    rows = (*[slice(None)] * (dim % len(shape)), vector)
    other[...] = stored[...] = added[...] = a
    stored[rows] = values
    assert CALL["put_slices"](other, dim, vector, values) is other
    assert_same(other, stored)
    other[...] = a
    if adds:
        add_at(added, rows, values)
        assert CALL["add_slices"](other, dim, vector, values) is other
    else:
        assert CALL["add_slices"](other, dim, vector, values) is None
    assert_same(other, added)
    assert_same(CALL["pick_slices"](a, dim, vector), a[rows])
    table = rng.integers(0, shape[dim], (2, 3))
    assert_same(CALL["pick_slices"](a, dim, table), np.take(a, table, dim))
    assert_same(CALL["pick_slices"](a, dim, table[1, 1, ...]), np.asarray(np.take(a, table[1, 1], dim)))


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (1, 1, 1), ()])
def test_pairs_of_a_matrix_may_count_from_the_end(dtype, shape):
    rng = np.random.default_rng(4)
    a = (rng.normal(size=(4, 6)) * 100).astype(dtype)
    rows, columns = np.asarray(rng.integers(-4, 4, shape)), np.asarray(rng.integers(-6, 6, shape))

    assert_same(CALL["pick_pairs"](a, rows, columns), np.asarray(a[rows, columns]))


def test_what_picking_and_storing_refuse():
    a, k = random(3, 4), np.zeros((3, 4), np.int64)
    v = random(3, 4, seed=1)
    kept = a.copy()
    frozen = a.copy()
    frozen.flags.writeable = False
    wrong = [np.full((3, 4), 3), np.full((3, 4), -1), k.astype(np.int32), k.T.copy(), k[0], k[:, :0], np.zeros((2, 3, 4), np.int64), None]
    for index in (*wrong, np.full((3, 4), 2**62), np.zeros((3, 8), np.int64)[:, ::2]):
        assert CALL["pick_along"](a, 0, index) is CALL["put_along"](a, 0, index, v) is CALL["add_along"](a, 0, index, v) is None, index
    for dim in (2, -3, True, 0.0, None, 2**63):
        assert CALL["pick_along"](a, dim, k) is CALL["put_along"](a, dim, k, v) is CALL["add_slices"](a, dim, k[:, 0], v) is None, dim
    for values in (v.astype(np.float64), v[:2], v.T, v.view(Subclass), None, a, a[::-1]):
        assert CALL["put_along"](a, 0, k, values) is CALL["add_along"](a, 0, k, values) is None
        assert CALL["put_slices"](a, 0, k[:, 0].copy(), values) is CALL["add_slices"](a, 0, k[:, 0].copy(), values) is None
    for target in (frozen, a.astype(np.float16), a.T, np.asfortranarray(a), a.view(Subclass), [a]):
        assert CALL["put_along"](target, 0, k, v) is CALL["add_along"](target, 0, k, v) is None
    for index in (np.array([0, 1, 3]), np.array([0, 1, -1]), np.array([0, 1]), k, np.zeros((), np.int64)):
        assert CALL["put_slices"](a, 0, index, v) is CALL["add_slices"](a, 0, index, v) is None
    places = np.arange(12).reshape(3, 4) % 3            # which may not be written to while they are read
    assert CALL["put_along"](places, 0, places, k) is CALL["add_along"](places, 0, k, v) is None
    line = k[0]
    short = line.astype(np.int32)
    for rows, columns in ((line, line + 4), (line - 4, line), (line, line[:2]), (short, line), (line, None), (k[:0], k[:0])):
        assert CALL["pick_pairs"](a, rows, columns) is None
    for other in (a[0], a[None], a.T, a.astype(np.complex64)):
        assert CALL["pick_pairs"](other, line, line) is None
    many = picks.MOST + 1
    assert CALL["pick_along"](np.zeros(many), 0, np.zeros(many, np.int64)) is None
    assert CALL["pick_slices"](np.zeros((3, many)), 0, np.zeros(1, np.int64)) is CALL["pick_slices"](v, 1, np.zeros(many, np.int64)) is None
    for index in (line + 3, line - 1, short, np.full(4, 2**62), line[:0], line[::2], None):
        assert CALL["pick_slices"](a, 0, index) is None
    for other in (a.T, a.astype(np.complex64), a[:0], np.zeros((), np.float32), [a]):
        assert CALL["pick_slices"](other, 0, line) is None
    assert np.array_equal(a, kept)


# --- objects around arrays ------------------------------------------------------------------------------------

@pytest.fixture
def of_objects():
    if hot_calls.objects is None:
        pytest.skip("nobody said which class objects are of")
    return hot_calls.objects.cls, *(CALL[name] for name in launchers._MADE)


def test_an_object_over_an_array_has_a_record_of_its_own(of_objects):
    cls, over, _, _, sizes_of, _ = of_objects
    a = random(2, 3)
    made = over(a)

    assert type(made) is cls
    assert made._array is a
    assert made._storage == [0, 0, None, None]
    assert made._node is made._view_of is None
    assert over(None) is over([a]) is over(a.view(Subclass)) is over() is None
    assert (type(sizes_of(made)), sizes_of(made)) == (hot_calls.objects.sizes, (2, 3))
    assert sizes_of(over(np.array(1.0))) == ()


def test_a_view_of_an_object_is_linked_and_listed(of_objects):
    _, over, view_of, _, _, _ = of_objects
    base = over(random(2, 3))
    views = [view_of(base, random(3), "op", (k,), True) for k in range(hot_calls.MOST_VIEWS)]

    assert [v() for v in base._storage[3]] == views
    assert all(v._view_of == (base, "op", (k,), None) and v._storage is base._storage and v._node is None for k, v in enumerate(views))
    assert view_of(base, random(3), "op", (), True) is None            # the list is full: somebody has to look through it
    further = view_of(views[0], random(3), "then", (), False)
    assert further._view_of == (base, "then", (), views[0]._view_of)
    assert view_of(random(3), random(3), "op", (), True) is None
    del views[1:]
    assert [v() for v in base._storage[3]] == [views[0]] + [None] * (hot_calls.MOST_VIEWS - 1)


def test_a_view_takes_the_place_of_one_that_is_gone(of_objects):
    _, over, view_of, _, _, _ = of_objects
    base = over(random(2, 3))
    kept = [view_of(base, random(3), "op", (k,), True) for k in range(hot_calls.MOST_VIEWS - 1)]
    newest = None
    for k in range(3 * hot_calls.MOST_VIEWS):
        newest = view_of(base, random(3), "op", (k,), True)            # while the one before is still there
        assert newest is not None
        assert {id(r()) for r in base._storage[3] if r() is not None} >= {id(v) for v in (*kept[:-1], newest)}
        kept = kept[:-1]
    assert len(base._storage[3]) == hot_calls.MOST_VIEWS


KEYS = [
    (1,), (-2,), (slice(None), 2), (slice(None, None, 2),), (None, 1, ..., None), (..., slice(-3, -1)), (0, 1, 2), (),
    (slice(1, None), None, slice(0, 2)), (1, -1, slice(None, None, 3)), (..., None), (slice(-9, 9), slice(1, 2)), (..., 0),
]  # fmt: skip
REFUSED_KEYS = [(2,), (0, 0, 0, 0), (..., ...), (slice(1, 1),), (slice(None, None, -1),), (slice(None, None, 0),), (True,), ([0],), [0],
                (slice(np.int64(0), 1),), (1 << 70,), (1.0,)]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_part_is_where_numpy_says(key):
    for a in (random(2, 3, 4), random(3, 4, 2).transpose(2, 0, 1), random(2, 6, 4)[:, ::2]):
        made, expected = CALL["part"](a, key), a[key if ... in key else (*key, ...)]
        assert (made.shape, made.ctypes.data, made.base is a or made.base is a.base) == (expected.shape, expected.ctypes.data, True)
        assert np.array_equal(made, expected)
        assert [s for s, n in zip(made.strides, made.shape, strict=True) if n > 1] == [
            s for s, n in zip(expected.strides, expected.shape, strict=True) if n > 1
        ]


@pytest.mark.parametrize("key", REFUSED_KEYS, ids=str)
def test_a_part_that_is_no_view_or_is_wrong_is_refused(key):
    assert CALL["part"](random(2, 3, 4), key) is None


def test_dimensions_change_places():
    a = random(2, 3, 4)
    for dims in ((0, 1), (-1, 0), (2, 2)):
        made, expected = CALL["transposed"](a, *dims), a.swapaxes(*dims)
        assert (made.shape, made.strides, made.ctypes.data) == (expected.shape, expected.strides, expected.ctypes.data)
    for order in ((2, 0, 1), (0, -1, 1)):
        made, expected = CALL["permuted"](a, order), a.transpose(order)
        assert (made.shape, made.strides) == (expected.shape, expected.strides)
    for dim, index in ((0, 1), (-1, -4), (1, 2)):
        assert np.array_equal(CALL["select"](a, dim, index), a.take(index, dim))
    assert CALL["transposed"](a, 0, 3) is CALL["transposed"](a, True, 0) is CALL["transposed"](np.array(1.0), 0, 0) is None
    assert CALL["permuted"](a, (0, 1)) is CALL["permuted"](a, (0, 0, 1)) is CALL["permuted"](a, (0, 1, 3)) is None
    assert CALL["select"](a, 0, 2) is CALL["select"](a, 3, 0) is None


def test_an_object_is_seen_in_another_way(of_objects):
    _, over, _, _, _, _ = of_objects
    base = over(random(2, 3))
    made = CALL["seen_transposed"](base, 0, 1, "op", True)
    further = CALL["seen_part"](made, (1,), "then", False)

    assert np.array_equal(made._array, base._array.T)
    assert (made._view_of[0] is base, made._view_of[1:]) == (True, ("op", (0, 1), None))
    assert (made._storage is base._storage, made._node) == (True, None)
    assert further._view_of == (base, "then", ((1,),), made._view_of)
    assert [id(v()) for v in base._storage[3]] == [id(made)]
    base._node = "node"
    assert CALL["seen_view"](base, (6,), "op", True)._node is True
    of_nobody = base._node = object.__new__(hot_calls.objects.unlisted[0])
    setattr(of_nobody, hot_calls.objects.unlisted[1], hot_calls.objects.unlisted[2])
    unlisted = CALL["seen_view"](base, (-1,), "op", True)
    assert unlisted is not None
    assert not any(v() is unlisted for v in base._storage[3])
    empty = over(random(2, 0))
    assert CALL["seen_transposed"](empty, 0, 1, "op", True) is CALL["seen_part"](base, (slice(1, 1),), "op", True) is None
    assert CALL["seen_transposed"](base._array, 0, 1, "op", True) is CALL["seen_transposed"](base, 0, 2, "op", True) is None


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.complex128, BFLOAT16], ids=str)
def test_a_result_is_stored_in_another_object(of_objects, dtype):
    _, over, _, _, _, store_in = of_objects
    a, other = (random(2, 3, seed=k).astype(dtype) for k in (0, 1))
    target = over(np.zeros_like(a))

    assert store_in(target, over(a), over(other), over(other[:1]), 2, 0.5, None) is True
    assert target._array.tobytes() == a.tobytes()
    assert store_in(target, over(other)) is True
    assert target._array.tobytes() == other.tobytes()
    assert store_in(target, over(a), over(other.T)) is True
    assert target._array.tobytes() == a.tobytes()


def test_a_result_is_stored_in_rows_of_another_object(of_objects):
    _, over, view_of, _, _, store_in = of_objects
    whole = np.zeros((4, 3))
    base = over(whole)
    rows = view_of(view_of(base, whole[1:], "op", (), False), whole[1:3], "op", (), False)

    assert store_in(rows, over(np.ones((2, 3))), over(random(3, 2).T)) is True
    assert whole.tolist() == [[0.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3]
    base._node = object()
    assert store_in(rows, over(np.zeros((2, 3)))) is None
    assert whole.sum() == 6


def test_what_may_not_be_stored_in_an_object_is_refused_and_nothing_is_written(of_objects):
    cls, over, view_of, _, _, store_in = of_objects
    whole, a = np.zeros((4, 3)), np.ones((2, 3))
    target, source = over(whole[:2]), over(a)
    recorded = over(whole)
    frozen, noded, linked = over(np.zeros((2, 3))), over(np.zeros((2, 3))), view_of(recorded, whole[:2], "op", (), False)
    recorded._node = object()
    frozen._array.flags.writeable = False
    noded._node = object()
    subclass = type("Other", (cls,), {})()

    for args in [
        (target, source, target), (target, source, over(whole[1:3])), (target, source, over(whole.T)), (target, source, "2"),
        (target, source, over(np.ones((4, 4))[::2, ::2])),
        (target, source, True), (target, source, [source]), (target, source, subclass), (target, over(a[:1])), (target, over(a.T)),
        (target, over(a.astype(np.float32))), (target, noded), (noded, source), (frozen, source), (linked, source),
        (over(whole[::2]), source),
        (target, a), (a, source), (target,), (), (over(np.zeros((200, 100))), over(np.ones((200, 100)))),
    ]:
        assert store_in(*args) is None, args
    assert not any(x.any() for x in (whole, noded._array, frozen._array))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("turned", [False, True])
def test_parts_of_an_object_along_a_dimension(of_objects, dim, turned):
    _, over, _, views_of, _, _ = of_objects
    a = random(3, 3, 3).T[::-1] if turned else random(3, 3, 3)
    base = over(a)

    ops, rest = ["x", "y", "z"], (dim,)
    each, cut = views_of(base, dim, None, ops, rest, True), views_of(base, dim, (1, 2), "op", [(1,), (2,)], False)
    for made, expected in zip((*each, *cut), (*np.moveaxis(a, dim, 0), *np.split(a, [1], dim)), strict=True):
        part = made._array
        np.testing.assert_array_equal(part, expected)
        assert (part.dtype, part.strides, part.ctypes.data) == (a.dtype, expected.strides, expected.ctypes.data)
        assert (part.flags.c_contiguous, part.flags.f_contiguous) == (expected.flags.c_contiguous, expected.flags.f_contiguous)
    assert [made._view_of for made in each] == [(base, op, rest, None) for op in ops]
    assert [made._view_of[1:3] for made in cut] == [("op", (1,)), ("op", (2,))]
    assert [ref() for ref in base._storage[3]] == list(each)
    assert all(made._storage is base._storage and made._node is None for made in (*each, *cut))


def test_parts_that_are_not_all_of_an_object_are_refused(of_objects):
    _, over, _, views_of, _, _ = of_objects
    base = over(random(2, 3))
    of_one = ((1, 1), (4, -1), (3, 0), [1, 2], (1, 2.0), (2**64,))
    for dim, sizes in ((2, None), (-3, None), (True, None), *((1, sizes) for sizes in of_one)):
        assert views_of(base, dim, sizes, "op", (), False) is None
    assert views_of(base, 0, None, ["one"], (), False) is None         # more parts than ops, or than other arguments
    assert views_of(base, 0, None, "op", [()], False) is None
    assert views_of(over(random(0, 3)), 1, None, "op", (), False) is None
    assert views_of(over(random(hot_calls.MOST_VIEWS + 1)), 0, None, "op", (), True) is None
    frozen = random(2, 3)
    frozen.flags.writeable = False
    assert not views_of(over(frozen), 0, None, "op", (), False)[1]._array.flags.writeable


def test_objects_are_freed(of_objects):
    _, over, view_of, views_of, sizes_of, store_in = of_objects
    a, op = random(2, 3), object()
    base = over(a)
    before = [sys.getrefcount(item) for item in (a, op, base, hot_calls.objects.sizes, hot_calls.objects.cls, 0, None, True)]
    for _ in range(20_000):
        view_of(base, a, op, (1,), True)
        view_of(view_of(base, a, op, (), False), a, op, (), False)
        sizes_of(over(a))
        store_in(over(a), over(a), 1, None)
        store_in(over(a), over(a), base)
        views_of(base, 0, None, [op, op], (), True)
        views_of(base, 1, (1, 2), op, [(), (1,)], False)
        views_of(base, 1, (1, 1), op, (), False)
        base._storage[3] = None
    after = [sys.getrefcount(item) for item in (a, op, base, hot_calls.objects.sizes, hot_calls.objects.cls, 0, None, True)]

    assert all(abs(m - n) < 50 for m, n in zip(after, before, strict=True)), (before, after)


def test_a_view_keeps_its_memory():
    made = CALL["view"](random(3, 4), (2, 6))
    others = [random(3, 4, seed=k) for k in range(50)]

    check_equal(made.copy(), random(3, 4).reshape(2, 6))
    assert len(others) == 50


@pytest.fixture
def stream(monkeypatch):
    made = random_stream.MT19937Stream(5)
    made.clone().fill_normals(np.empty(16, np.float32))  # the kernel's table is there from the first draw on
    monkeypatch.setattr(hot_calls, "normals", CALL["normals"])
    return made


def test_normals_are_those_the_stream_draws_and_counts(stream):
    other = stream.clone()
    for sizes in ((16,), (4, 4), (2, 8, 1), (4096,), (1, 1, 304), (304,), (16,), (624,), (608,), (16,), (2, 312), (5, 16)):
        expected = np.empty(sizes, np.float32)
        other.fill_normals(expected)

        check_equal(stream.normals(sizes), expected)
        np.testing.assert_array_equal(stream.get_state(), other.get_state())


def test_sizes_that_normals_are_not_drawn_for(stream):
    before = stream.get_state()
    sizes = [(), (0,), (15,), (4112,), (16, 257), (-4, -4), (True, 16), (16.0,), [16], 16, None, (2**63,), (2**32, 2**32),
             ((4, 4),), (1,) * 64 + (16,)]
    for unfit in sizes:
        assert stream.normals(unfit) is None, unfit
    np.testing.assert_array_equal(stream.get_state(), before)


def test_threads_that_draw_normals_get_each_number_once(stream):
    other, found, lengths = stream.clone(), [], (16, 640)

    def work():
        for k in range(500):
            made = stream.normals((16,)) if k % 5 else stream.words(np.empty(lengths[1], np.uint32))
            found.append(len(made))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.random32(sum(found))

    assert (found.count(16), found.count(640)) == (1600, 400)
    np.testing.assert_array_equal(stream.get_state(), other.get_state())


DRAWS = {
    "float32": (lambda s, sizes: uniform_draws.uniforms(s, sizes, np.empty(0, np.float32)),
                lambda s, sizes: uniform_draws.uniform(s, np.empty(sizes, np.float32))),
    "float64": (lambda s, sizes: uniform_draws.uniforms(s, sizes, np.empty(0, np.float64)),
                lambda s, sizes: uniform_draws.uniform(s, np.empty(sizes, np.float64))),
    "integers": (lambda s, sizes: uniform_draws.integers(s, sizes, -3, 60),
                 lambda s, sizes: uniform_draws.randint(s, np.empty(sizes, np.int64), -3, 60)),
}  # fmt: skip


@pytest.fixture
def draws(monkeypatch):
    for _, fill in DRAWS.values():
        fill(random_stream.MT19937Stream(5), (2,))       # a kernel's table is there from the first draw on
    sample.randperm(random_stream.MT19937Stream(5), 3)
    monkeypatch.setattr(hot_calls, "draws", CALL["draws"])


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_the_stream_draws_and_counts(name, draws):
    make, fill = DRAWS[name]
    stream, other = random_stream.MT19937Stream(5), random_stream.MT19937Stream(5)
    for sizes in ((1,), (4, 4), (2, 8, 1), (1024,), (1, 1, 304), (303,), (16,), (624,), (312,), (608,), (16,), (5, 7)):
        expected = fill(other, sizes)

        made = make(stream, sizes)

        assert made.dtype is expected.dtype
        assert made.shape == sizes
        assert made.tobytes() == expected.tobytes()
        np.testing.assert_array_equal(stream.get_state(), other.get_state())


@pytest.mark.parametrize("name", DRAWS)
def test_sizes_that_are_not_drawn_for(name, draws):
    stream = random_stream.MT19937Stream(5)
    before = stream.get_state()
    for unfit in ((), (0,), (1025,), (-4, -4), (True, 16), (16.0,), [16], 16, None, (2**63,), (2**32, 2**32), ((4, 4),), (1,) * 65):
        assert DRAWS[name][0](stream, unfit) is None, unfit
    np.testing.assert_array_equal(stream.get_state(), before)


def test_integers_of_wide_or_empty_ranges_are_not_drawn(draws):
    stream = random_stream.MT19937Stream(5)
    before = stream.get_state()
    for low, high in ((0, 1 << 28), (-(1 << 27), 1 << 27), (2, 2), (3, 2), (-(2**70), 0), (0, 2**63)):
        assert uniform_draws.integers(stream, (4,), low, high) is None, (low, high)
    np.testing.assert_array_equal(stream.get_state(), before)


def test_permutations_are_the_same_with_and_without_launchers(draws, monkeypatch):
    lengths = (1, 2, 3, 10, 1024, 625, 624, 1, 2, 1025)
    stream, other = random_stream.MT19937Stream(5), random_stream.MT19937Stream(5)
    made = [sample.randperm(stream, n) for n in lengths]
    monkeypatch.setattr(hot_calls, "draws", hot_calls.refuse)

    for n, order in zip(lengths, made, strict=True):
        np.testing.assert_array_equal(order, sample.randperm(other, n))
    np.testing.assert_array_equal(stream.get_state(), other.get_state())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4, 4), (3, 1, 5), (257,)])
def test_whether_arrays_are_the_same(shape, dtype):
    a = random(*shape).astype(dtype) if shape else np.asarray(1.5, dtype)
    for k in {0, a.size // 2, a.size - 1} if a.size else ():
        for value in (np.nan, -np.inf, 7.0, 0.0):
            b = a.copy()
            b.reshape(-1)[k] = value
            assert CALL["same"](a, b) == 0
            assert CALL["same"](b, b.copy()) == CALL["same"](b, b) == int(value == value)
            c = b.copy()
            c.reshape(-1)[k] = -value
            assert CALL["same"](b, c) == int(value == -value)
    assert CALL["same"](a, a) == CALL["same"](a, a.copy()) == 1


def test_arrays_that_are_not_compared():
    a = random(4, 4)
    for b in (a.astype(np.float64), a[:2], a.reshape(2, 8), a.T, a.reshape(-1), 1.0, None, a.view(np.int32), a.view(Subclass)):
        assert CALL["same"](a, b) is CALL["same"](b, a) is None


# --- refusals -----------------------------------------------------------------------------------------------

class Subclass(np.ndarray):
    pass


GOOD = random(3, 4)
READ_ONLY = random(3, 4)
READ_ONLY.flags.writeable = False
ODD_BYTES = np.frombuffer(bytearray(1 + 48), np.uint8)[1:].view(np.float32).reshape(3, 4)
UNFIT = {
    "integers": np.ones((3, 4), np.int32),
    "half": np.ones((3, 4), np.float16),
    "another float": np.ones((3, 4), np.float64),
    "another shape": np.ones((4, 3), np.float32),
    "another number of dimensions": np.ones((3, 4, 1), np.float32),
    "a broadcast": np.ones(4, np.float32),
    "strides": np.ones((3, 8), np.float32)[:, ::2],
    "negative strides": GOOD[::-1],
    "columns first": np.asfortranarray(GOOD),
    "byte order": GOOD.astype(GOOD.dtype.newbyteorder()),
    "subclass": GOOD.view(Subclass),
    "unaligned": ODD_BYTES,
    "truth value": True,
    "numpy number": np.float32(2),
    "large int": 2**63,
    "complex": 1j,
    "text": "2",
    "nothing": None,
}


@pytest.mark.parametrize("kind", [k for k, v in UNFIT.items() if k not in (
    "another float", "another shape", "another number of dimensions", "a broadcast")])
def test_every_launcher_refuses_an_unfit_first_argument(kind):
    takes_columns = ("matmul", "matmul_nt", "matmul_tn") if kind == "columns first" else ()
    for name, call in CALL.items():
        if name not in takes_columns and name not in (*launchers._OF_OBJECTS, *launchers._OF_ANY_DTYPE):
            for others in ((), (GOOD,), (GOOD, GOOD), (1.0,), (GOOD, 1.0)):
                assert call(UNFIT[kind], *others) is None, name


@pytest.mark.parametrize("name", sorted(CALL))
def test_a_wrong_number_of_arguments_is_refused(name):
    assert CALL[name]() is None
    assert CALL[name](*[GOOD] * 4) is None


def test_arrays_that_repay_the_compiled_tier_are_left_to_it():
    assert CALL["sum"](np.ones(65537)) is None


@pytest.mark.parametrize(("a", "b"), [
    (random(3, 4), random(3, 4)), (random(4), random(4, 3)), (random(2, 3, 4), random(4, 3)),
    (np.array(1.0, np.float32), random(1, 1)), (random(0, 4), random(4, 3)), (random(3, 0), random(0, 4)),
    (random(3, 8)[:, ::2], random(4, 3)), (random(3, 4), random(4, 3, dtype=np.float64)), (random(3, 4), 2.0),
    (np.broadcast_to(np.float32(1), (3, 4)), random(4, 3)), (random(256, 256), random(256, 256)),
], ids=["lengths", "1-d", "3-d", "0-d", "no rows", "no products", "strides", "dtypes", "number", "expanded",
        "large"])
def test_products_numpy_must_do(a, b):
    assert CALL["matmul"](a, b) is None


def test_linear_refuses_what_does_not_fit_together():
    x, w, b = random(6, 4), random(5, 4), random(5)

    assert CALL["linear"](x, w, b[:4].copy()) is None
    assert CALL["linear"](x, w.T.copy(), b) is None
    assert CALL["linear"](x, w, random(1, 5)) is None
    assert CALL["linear"](np.asfortranarray(x), w, b) is None
    assert CALL["linear"](x, w, None) is None
    assert CALL["linear"](random(6, 0), random(5, 0), b) is None
    assert CALL["linear"](np.array(1.0, np.float32), w, b) is None


# --- references, threads, processes -------------------------------------------------------------------------

def test_no_reference_is_lost_or_leaked_in_a_hundred_thousand_calls(stream, draws):
    a, b, w = random(2, 3), random(2, 3, seed=1), random(4, 3)
    bias, zero, places = random(4), np.zeros((), np.float32), np.array([[0, 1, 1], [1, 0, 0]])
    calls = [(CALL["sum"], a), (CALL["sum"], a, b), (CALL["outer"], bias, bias), (CALL["outer"], bias, zero), (CALL["cat"], [a, b], 1),
             (CALL["cat"], [a, w], 1), (CALL["cat"], [a, w], 0), (CALL["stack"], [a, b], 0), (CALL["view"], a, (3, 2)),
             (CALL["view"], a, (3, -1)), (CALL["view"], a, (4, 2)), (CALL["expand"], a, (5, 2, 3)), (CALL["expand"], a, (2, 4)),
             (CALL["unsqueeze"], a, 1), (CALL["unsqueeze"], a, 3), (CALL["restrided"], a, (3,), (4,), 4),
             (CALL["steps"], a), (CALL["address"], a), (CALL["pick_along"], a, 0, places), (CALL["pick_along"], a, 0, places + 1),
             (CALL["put_along"], a, 0, places, b), (CALL["add_slices"], a, 0, places[0, :2].copy(), b),
             (CALL["pick_pairs"], a, places, places), (CALL["pick_slices"], a, 1, places), (CALL["pick_slices"], a, 0, places + 1),
             (CALL["normals"], random_stream._table, stream._state, 16, (4, 4)), (stream.normals, (4, 4)),
             (uniform_draws.uniforms, stream, (4, 4), a), (uniform_draws.integers, stream, (4, 4), 0, 5),
             (CALL["same"], a, a), (CALL["same"], a, b), (CALL["same"], a, w)]
    calls += [(CALL["matmul_nt"], a, w), (CALL["linear"], a, w, bias), (CALL["bmm"], a[None], a.T[None].copy())] if pyabi.has_blas() else []
    objects = [a, b, w, bias, zero, np.dtype(np.float32), np.ndarray, None, float, int]
    for call, *args in calls:
        before = [sys.getrefcount(item) for item in objects]
        for _ in range(100_000 // len(calls)):
            call(*args)
        after = [sys.getrefcount(item) for item in objects]

        # Python itself moves the count of None by a few.
        assert all(abs(m - n) < 50 for m, n in zip(after, before, strict=True)), call


def test_results_are_freed():
    import tracemalloc

    a = random(64, 64)
    tracemalloc.start()
    for _ in range(2000):
        CALL["stack"]([a, a], 0)
        CALL["cat"]([a, a], 1)
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert current < 1_000_000                           # 131 MB were allocated


def test_several_threads_at_once():
    failures = []

    def work(seed):
        a, b = random(17, 9, seed=seed), random(17, 9, seed=seed + 100)
        both, joined = np.stack((a, b)), np.concatenate((a, b))
        rounds = [(CALL["stack"]([a, b], 0), CALL["cat"]([a, b], 0)) for _ in range(2000)]
        if not all(np.array_equal(s, both) and np.array_equal(c, joined) for s, c in rounds):
            failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_child_goes_on_with_them():
    a = random(8, 8)
    child = os.fork()
    if child == 0:
        right = np.array_equal(CALL["stack"]([a, a], 0), np.stack((a, a))) and CALL["sum"](a) == CALL["sum"](a.copy())
        os._exit(0 if right else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


IMPORT = "from flambeau_kernels.engine.builtins import launchers as l; "


def test_the_environment_switches_them_off(fresh_python):
    program = IMPORT + "print(l.available(), l.load())"

    assert fresh_python("-c", program, FLAMBEAU_LAUNCHERS="0").strip() == (
        "(False, 'FLAMBEAU_LAUNCHERS=0 switches them off') {}")
    assert "(False, 'the numpy backend" in fresh_python("-c", program, FLAMBEAU_BACKEND="numpy")


def test_without_a_cached_object_compiling_can_be_declined(fresh_python, tmp_path):
    program = IMPORT + "print(len(l.load(compile=False)))"

    assert fresh_python("-c", program, FLAMBEAU_CACHE=str(tmp_path)).strip() == "0"


def test_a_new_process_loads_the_cached_object_without_writing_its_text(fresh_python):
    if llvm.disk().why_off:
        pytest.skip(llvm.disk().why_off)
    program = IMPORT + (
        "import sys; print(len(l.load(compile=False)), 'flambeau_kernels.engine.builtins.fastcall' in sys.modules)")

    assert fresh_python("-c", program).strip() == f"{len(launchers._names())} False"


# --- the interpreter's objects ------------------------------------------------------------------------------

OFFSETS = ("TYPE", "FLOAT_VALUE", "LENGTH", "LIST_ITEMS", "TUPLE_ITEMS", "DATA", "NDIM", "SHAPE", "STRIDES", "DTYPE", "FLAGS")


@pytest.mark.parametrize("field", OFFSETS)
def test_a_wrong_offset_is_noticed(field, monkeypatch):
    monkeypatch.setattr(pyabi, field, getattr(pyabi, field) + 8)

    assert re.search("laid out differently|elsewhere", pyabi._wrong_offset())


def test_a_launcher_that_computes_wrongly_fails_the_self_test():
    assert launchers._self_test(dict(CALL)) is None
    assert "wrong results" in launchers._self_test({**CALL, "stack": CALL["cat"]})


def test_a_launcher_that_leaks_fails_the_self_test():
    leak = []

    def total(*args):
        leak.append(args[0])
        return CALL["sum"](*args)

    assert "references" in launchers._self_test({**CALL, "sum": total})
