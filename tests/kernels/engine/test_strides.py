"""Elementwise loops over every second element and over transposed operands."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys

import ml_dtypes
import numpy as np
import pytest

import flambeau_kernels as kernels
from flambeau_kernels import engine
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import sin, special_airy_ai, special_zeta

pytestmark = pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint8", "int16", "int32", "int64", "bool", "complex64"]
SUM = Formula(lambda a, b: a + b)


def array(shape, dtype, seed=0):
    values = np.random.default_rng(seed).normal(size=shape) * 20
    return values.astype(dtype)


def launched(formula, *inputs, compute=None):
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    compute = np.dtype(compute or inputs[0].dtype)
    out = np.empty(shape, inputs[0].dtype)
    assert engine.launch(formula, inputs, (out,), compute)
    return out


def computing_in(dtype):
    return np.float32 if np.dtype(dtype).itemsize == 2 and np.dtype(dtype).kind in "fV" else np.dtype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [300, 1025, 70_001])
def test_every_second_element(dtype, n):
    wide = array(2 * n, dtype)
    for some in (wide[::2], wide[1::2]):
        other = array(n, dtype, 1)
        made = launched(Formula(lambda a, b: a + b), some, other, compute=computing_in(dtype))
        wanted = launched(SUM, np.ascontiguousarray(some), other, compute=computing_in(dtype))
        np.testing.assert_array_equal(made.view(np.uint8), wanted.view(np.uint8))


def test_every_second_element_of_rows_and_with_rare_arguments():
    wide = array((40, 600), "float32")
    wide[3, 4] = 1e30                                 # selects the slower loop
    some, formula = wide[:, ::2], Formula(lambda a: sin(a))
    np.testing.assert_array_equal(launched(formula, some), launched(formula, np.ascontiguousarray(some)))


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page by a call to the C library")
@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
def test_nothing_is_read_beyond_the_last_element(dtype):
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    item = np.dtype(dtype).itemsize
    whole = np.frombuffer(memory, dtype, page // item)
    whole[:] = np.arange(whole.size) % 100
    some = whole[1::2]                                # its last element is the last one that may be read
    np.testing.assert_array_equal(launched(SUM, some, some), some + some)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 64), (65, 130), (300, 7), (7, 300), (513, 1025), (3, 70, 90)])
def test_transposed_operands(dtype, shape):
    x = array(shape, dtype)
    y = array((*shape[:-2], shape[-1], shape[-2]), dtype, 1).swapaxes(-1, -2)
    formula = Formula(lambda a, b: a * b + b)
    for a, b in ((x, y), (y, x), (y, y)):
        made = launched(formula, a, b, compute=computing_in(dtype))
        wanted = launched(formula, np.ascontiguousarray(a), np.ascontiguousarray(b), compute=computing_in(dtype))
        np.testing.assert_array_equal(made.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("n", [64, 257, 700])
def test_transposed_in_place_and_among_scalars_and_rows(n):
    x, y, row = array((n, n), "float32"), array((n, n), "float32", 1), array((n,), "float32", 2)
    formula = Formula(lambda a, b, c, d: a * b + c * d)
    out = x.copy()
    wanted = (x * y.T).astype("float32") + (row * np.float32(1.5)).astype("float32")
    assert engine.launch(formula, (out, y.T, row, 1.5), (out,), np.dtype("float32"))
    np.testing.assert_array_equal(out, wanted)
    target = np.empty((n, n), "float32").T
    assert engine.launch(formula, (x, y.T, row, 1.5), (target,), np.dtype("float32"))
    np.testing.assert_array_equal(target, wanted)


def test_any_number_of_threads_gives_the_same():
    x, y = array((700, 900), "float32"), array((900, 700), "float32", 1)
    before = engine.get_num_threads()
    try:
        made = []
        for threads in (1, 2, 4):
            engine.set_num_threads(threads)
            made.append(launched(Formula(lambda a, b: a + b), x, y.T))
    finally:
        engine.set_num_threads(before)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


def test_the_numpy_tier_agrees():
    x, y = array((300, 400), "float32"), array((400, 300), "float32", 1)
    out = np.empty((300, 400), "float32")
    kernels.reference_launch(SUM, (x, y.T), (out,), np.dtype("float32"))
    np.testing.assert_array_equal(launched(SUM, x, y.T), out)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex128"])
@pytest.mark.parametrize("shape", [(130, 190), (7, 70, 65), (33, 40, 3), (3, 65, 5, 33), (500, 3, 2, 17), (3, 20_001)])
def test_operands_in_another_order_of_dimensions(shape, dtype):
    for order in itertools.permutations(range(len(shape))):
        some = array(shape, dtype).transpose(order)
        other = array(some.shape, dtype, 1)
        made = launched(SUM, some, other, compute=computing_in(dtype))
        wanted = launched(SUM, np.ascontiguousarray(some), other, compute=computing_in(dtype))
        np.testing.assert_array_equal(made.view(np.uint8), wanted.view(np.uint8))


LONG = {
    "complex powers": (Formula(lambda z: z**power), "complex64"), "float64 terms": (Formula(lambda q: special_zeta(q, q)), "float64"),
    "rare arguments": (Formula(lambda x: special_airy_ai(x)), "float32"),
}  # fmt: skip
power = 2.5 + 0.5j


@pytest.mark.parametrize("name", LONG)
def test_the_last_elements_of_long_formulas_have_the_bits_of_the_others(name):
    """They fill no vector, and are computed in one of their own."""
    formula, dtype = LONG[name]
    x = np.abs(array(40, dtype)).astype(dtype) + 1.5
    for rare in (False, True):
        if rare:
            x[[3, 38]] = 1e30
        alone = np.concatenate([launched(formula, x[k : k + 1]) for k in range(len(x))])
        for n in (2, 7, 16, 17, 33, 40):
            np.testing.assert_array_equal(launched(formula, x[:n]), alone[:n])
            np.testing.assert_array_equal(launched(formula, np.repeat(x, 3)[::3][:n]), alone[:n])
            out = np.zeros((n, 2), dtype)
            assert engine.launch(formula, (x[:n],), (out[:, 0],), np.dtype(dtype))
            np.testing.assert_array_equal(out, np.stack([alone[:n], np.zeros(n, dtype)], 1))
            here = x[:n].copy()
            assert engine.launch(formula, (here,), (here,), np.dtype(dtype))
            np.testing.assert_array_equal(here, alone[:n])
