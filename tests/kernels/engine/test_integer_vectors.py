"""The kernel language: vectors of integers, and dot products of bfloat16, bytes and int16, whose bits are those of every processor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flambeau_kernels.engine.language import (
    broadcast,
    dot_bfloat16,
    dot_int8,
    dot_int16,
    float32,
    int32,
    kernel,
    lane_sum,
    load,
    lower,
    store,
    vector,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.vocabulary import abs, maximum, minimum, where

pytestmark = pytest.mark.skipif(llvm.available() is not None, reason="nothing can be compiled here")


@kernel
def arithmetic(chunk, x, y, out, total, N):
    a, b = load(x, 0, 8), load(y, 0, 8)
    store(out, 0, a + b)
    store(out, 8, a - b)
    store(out, 16, a * b)
    store(out, 24, a & b)
    store(out, 32, a | b)
    store(out, 40, a ^ b)
    store(out, 48, a << 3)
    store(out, 56, a >> 2)
    store(out, 64, minimum(a, b))
    store(out, 72, maximum(a, b))
    store(out, 80, where(a < b, a, b))
    store(out, 88, -a)
    store(out, 96, abs(a))
    total[0] = lane_sum(a)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_vectors_of_integers_have_numpys_operators(dtype):
    info = np.iinfo(dtype)
    draw = np.random.default_rng(0)
    x, y = draw.integers(info.min, info.max, (2, 8), dtype, endpoint=True)
    x[:3], y[:3] = (info.min, info.max, 1), (info.max, info.min, 0)
    out, total = np.empty(13 * 8, dtype), np.empty(1, dtype)

    arithmetic.run(1, x, y, out, total, 0)

    least, most = np.minimum(x, y), np.maximum(x, y)
    with np.errstate(all="ignore"):
        wanted = [x + y, x - y, x * y, x & y, x | y, x ^ y, x << 3, x >> 2, least, most, least, 0 - x, np.abs(x)]
        np.testing.assert_array_equal(out.reshape(-1, 8), wanted)
        assert total[0] == x.sum(dtype=dtype)


@kernel
def conversions(chunk, bytes_, words, floats, out):
    wide = vector(int32, 8)(load(bytes_, 0, 8))
    store(words, 0, wide)
    store(floats, 0, vector(float32, 8)(load(bytes_, 0, 8)))
    store(out, 0, vector(widened(out), 8)(wide - broadcast(int32(1), 8)))


@pytest.mark.parametrize(("dtype", "narrow"), [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int16")])
def test_vectors_of_integers_are_converted_by_their_sign(dtype, narrow):
    x = np.array([0, 1, 127, 128, 255, 254, 7, 200], np.uint8).view(dtype)
    words, floats, out = np.empty(8, np.int32), np.empty(8, np.float32), np.empty(8, narrow)

    conversions.run(1, x, words, floats, out)

    np.testing.assert_array_equal(words, x.astype(np.int32))
    np.testing.assert_array_equal(floats, x.astype(np.float32))
    np.testing.assert_array_equal(out, (x.astype(np.int32) - 1).astype(narrow))


@kernel
def dots(chunk, a, b, c, out, *, LANES):
    store(out, 0, dot_bfloat16(load(a, 0, LANES), load(b, 0, LANES), load(c, 0, LANES)))


@kernel
def byte_dots(chunk, a, b, c, out, *, LANES):
    store(out, 0, dot_int8(load(a, 0, LANES), load(b, 0, LANES), load(c, 0, LANES)))


@kernel
def word_dots(chunk, a, b, c, out, *, LANES):
    store(out, 0, dot_int16(load(a, 0, LANES), load(b, 0, LANES), load(c, 0, LANES)))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_dot_products_of_bfloat16_add_the_second_of_each_pair_first(lanes):
    draw = np.random.default_rng(lanes)
    for scale in (1.0, 1e-15, 1e15):
        a, b = (scale * draw.standard_normal((2, 2 * lanes))).astype(ml_dtypes.bfloat16)
        c, out = (scale**2 * draw.standard_normal(lanes)).astype(np.float32), np.empty(lanes, np.float32)

        dots.run(1, a.view(np.int32), b.view(np.int32), c, out, LANES=lanes)

        products = a.astype(np.float64) * b.astype(np.float64)
        once = (c + products[1::2]).astype(np.float32)
        np.testing.assert_array_equal(out, (once + products[::2]).astype(np.float32))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_dot_products_of_bytes_are_exact_and_wrap_around(lanes):
    draw = np.random.default_rng(lanes)
    a, b = draw.integers(0, 256, 4 * lanes).astype(np.uint8), draw.integers(-128, 128, 4 * lanes).astype(np.int8)
    a[:4], b[:4] = 255, -128
    c, out = draw.integers(-(2**31), 2**31, lanes).astype(np.int32), np.empty(lanes, np.int32)
    c[0] = -(2**31)

    byte_dots.run(1, a.view(np.int32), b.view(np.int32), c, out, LANES=lanes)

    products = (a.astype(np.int64) * b.astype(np.int64)).reshape(lanes, 4).sum(1)
    np.testing.assert_array_equal(out, (c + products).astype(np.int32))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_dot_products_of_int16_are_exact_and_wrap_around(lanes):
    draw = np.random.default_rng(lanes)
    a, b = draw.integers(-(2**15), 2**15, (2, 2 * lanes)).astype(np.int16)
    a[:2] = b[:2] = -(2**15)
    c, out = draw.integers(-(2**31), 2**31, lanes).astype(np.int32), np.empty(lanes, np.int32)
    c[0] = -(2**31)

    word_dots.run(1, a.view(np.int32), b.view(np.int32), c, out, LANES=lanes)

    products = (a.astype(np.int64) * b.astype(np.int64)).reshape(lanes, 2).sum(1)
    np.testing.assert_array_equal(out, (c + products).astype(np.int32))


@pytest.mark.parametrize(("made", "total", "feature", "instruction"), [
    (dots, "float32", "+avx512bf16", "vdpbf16ps"), (byte_dots, "int32", "+avx512vnni", "vpdpbusd"),
    (word_dots, "int32", "+avx512bw", "vpmaddwd"),
])  # fmt: skip
def test_dot_products_are_the_processors_own_where_it_has_them(made, total, feature, instruction):
    machine = llvm.machine()
    if feature not in machine.features.split(","):
        pytest.skip(f"this processor has no {instruction}")
    types = {"a": "int32", "b": "int32", "c": total, "out": total}

    text = lower.module_text(made.function, made.name, types, {"LANES": 16}, False, machine.scales, machine.register_bits)

    assert machine.emit_assembly(text).count(instruction) == 1


def test_dot_products_of_other_vectors_are_refused():
    x, c = np.zeros(16, np.float32), np.zeros(16, np.float32)
    with pytest.raises(TypeError, match="dot_bfloat16 takes two vectors of int32 and one of float32 of as many lanes"):
        dots.run(1, x, x, c, c, LANES=16)


@kernel
def divided(chunk, x):
    store(x, 0, load(x, 0, 4) / load(x, 4, 4))


def test_vectors_of_integers_are_not_divided():
    with pytest.raises(TypeError, match="those of floats also /"):
        divided.run(1, np.ones(8, np.int64))
