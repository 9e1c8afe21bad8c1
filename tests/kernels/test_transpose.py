"""Copies of permuted arrays, and conversions between floating dtypes, by compiled loops."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels.cpu import transpose
from flambeau_kernels.cpu.tier import compiles

SHAPES = [(130, 190), (7, 70, 65), (3, 65, 5, 33), (2, 3, 17, 19, 21)]


@pytest.mark.skipif(not compiles(), reason="the numpy backend compiles nothing")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_permutation(shape, dtype):
    a = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8).astype(dtype)
    taken = 0
    for order in itertools.permutations(range(len(shape))):
        permuted = a.transpose(order)
        out = np.zeros(permuted.shape, dtype)
        if transpose.copy(out, permuted):
            taken += 1
            np.testing.assert_array_equal(out, permuted)
        else:
            assert not out.any()
    assert taken > 0


@pytest.mark.skipif(not compiles(), reason="the numpy backend compiles nothing")
def test_gaps_in_the_source():
    a = np.random.default_rng(0).normal(size=(150, 300)).astype(np.float32)[10:, ::1][:, 20:220]
    out = np.zeros((200, 140), np.float32)

    assert transpose.copy(out, a.T)
    np.testing.assert_array_equal(out, a.T)


def test_what_it_leaves_to_numpy():
    a = np.zeros((200, 200))
    assert not transpose.copy(np.zeros((200, 200)), a)                   # nothing is permuted
    assert not transpose.copy(np.zeros((200, 200)), a[:, ::-1].T)        # a negative stride
    assert not transpose.copy(np.zeros((10, 10)), a[:10, :10].T)         # too small
    assert not transpose.copy(np.zeros((200, 200)).T, a.T)               # not contiguous


FLOATS = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("new", FLOATS)
@pytest.mark.parametrize("old", FLOATS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_are_converted_as_small_ones_are(old, new, order):
    values = np.concatenate([np.random.default_rng(0).normal(size=8000) * 100, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-6, 65520.0, 3e38]])
    with np.errstate(all="ignore"):
        a = np.asarray(values.astype(old).reshape(-1, 8), order=order)
        wanted = kernels.cast(a, np.dtype(new))
        out = np.empty(a.shape, new)
        kernels.store(out, a)

    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(out), np.signbit(wanted))


@pytest.mark.parametrize("size", [3, 10_000])
def test_gradients_of_conversions(size):
    x = fb.randn(size, requires_grad=True)
    y = x.to(fb.bfloat16)

    assert y.grad_fn.name() == "ToCopyBackward0"
    y.sum().backward()
    assert x.grad.dtype is fb.float32
    assert (x.grad == 1).all()
