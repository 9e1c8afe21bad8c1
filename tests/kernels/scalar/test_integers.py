"""Integer functions: divisors, multiples, powers and quotients against Python's integers, in every dtype, size and layout."""
from __future__ import annotations

import math
import operator

import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels import engine

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
CALLS = 30                                            # of a small operation, after which a kernel has taken over


def often(function, *args, **keywords):
    """The last of many results, which a kernel made."""
    for _ in range(CALLS):
        function(*args, **keywords)
    return function(*args, **keywords)


def wrapped(numbers, dtype):
    bits = np.iinfo(dtype).bits
    return np.array([n % (1 << bits) for n in numbers], np.uint64).astype(dtype)


def operands(dtype, size, seed=0):
    """Numbers of all sizes, with the ends of the range, 0 and -1."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    made = []
    for _ in range(2):
        a = rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
        a >>= rng.integers(0, info.bits - 1, size).astype(dtype)
        made.append(a)
    a, b = made
    a[:4], b[:4] = (info.min, info.min, 0, info.max), (info.max, 1, 0, 0)
    return a, b


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gcd_and_lcm(dtype, size):
    a, b = operands(dtype, size)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    divisors, multiples = (often(function, fb.from_numpy(a), fb.from_numpy(b)) for function in (fb.gcd, fb.lcm))

    np.testing.assert_array_equal(divisors.numpy(), wrapped([math.gcd(x, y) for x, y in pairs], dtype))
    wanted = wrapped([math.lcm(x, y) for x, y in pairs], dtype)
    if np.iinfo(dtype).bits >= 32:
        wanted = abs(wanted)                          # as PyTorch has it where the multiple does not fit
    np.testing.assert_array_equal(multiples.numpy(), wanted)


def power(x, n, dtype):
    if n >= 0:
        return pow(x, n, 1 << np.iinfo(dtype).bits)
    return 1 if x == 1 else (1 if n % 2 == 0 else -1) if x == -1 else 0


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_wrap_around_and_negative_exponents_are_cut(dtype, size):
    a, _ = operands(dtype, size)
    a[4:7] = wrapped([1, -1, 2], dtype)
    n = np.random.default_rng(1).integers(max(np.iinfo(dtype).min, -3), 120, size).astype(dtype)
    for x, y in ((a, n), (3, n), (a, 0), (a, 1), (a, 2), (a, 3), (a, 4), (a, 11), (a, 100)):
        tensors = [fb.from_numpy(v) if isinstance(v, np.ndarray) else v for v in (x, y)]
        made = often(operator.pow, *tensors)
        pairs = zip(np.broadcast_to(x, size).tolist(), np.broadcast_to(y, size).tolist(), strict=True)
        np.testing.assert_array_equal(made.numpy(), wrapped([power(*pair, dtype) for pair in pairs], dtype))


@pytest.mark.parametrize("size", [7, 5000])
def test_negative_exponents_given_by_number_are_refused_however_often(size):
    x = fb.arange(size)
    for _ in range(CALLS):
        assert (x**2).tolist()[:3] == [0, 1, 4]
        with pytest.raises(RuntimeError, match="negative integer powers"):
            x**-1


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_and_remainders(dtype, size):
    a, b = operands(dtype, size)
    b[b == 0] = 5
    if np.iinfo(dtype).min:
        a[0], b[0] = np.iinfo(dtype).min, -1          # whose quotient does not fit
    x, y = fb.from_numpy(a), fb.from_numpy(b)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    cut = [abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in pairs]
    floor, rest, c_rest = (often(function, x, y) for function in (fb.floor_divide, fb.remainder, fb.fmod))
    quotient = often(fb.div, x, y, rounding_mode="trunc")
    np.testing.assert_array_equal(floor.numpy(), wrapped([p // q for p, q in pairs], dtype))
    np.testing.assert_array_equal(quotient.numpy(), wrapped(cut, dtype))
    np.testing.assert_array_equal(rest.numpy(), wrapped([p % q for p, q in pairs], dtype))
    np.testing.assert_array_equal(c_rest.numpy(), wrapped([p - q * k for (p, q), k in zip(pairs, cut, strict=True)], dtype))


@pytest.mark.parametrize("size", [7, 5000])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_a_zero_among_the_divisors_is_found_at_any_size(name, size):
    x, y = fb.arange(size), fb.ones(size, dtype=fb.int64)
    for _ in range(CALLS):
        getattr(fb, name)(x, y)
    y[-1] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        getattr(fb, name)(x, y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        fb.div(x, y, rounding_mode="trunc")


@pytest.mark.parametrize("name", ["gcd", "lcm", "pow"])
def test_strides_broadcasts_and_threads_change_nothing(name):
    a, b = (fb.from_numpy(v.reshape(60, 100)) for v in operands("int32", 6000))
    function = getattr(fb, name)
    whole, before = function(a, b), fb.get_num_threads()
    try:
        for threads in (1, 2, 4):
            fb.set_num_threads(threads)
            assert function(a, b).equal(whole)
            assert function(a.t(), b.t()).equal(whole.t())
            assert function(a[:, ::3], b[:, ::3]).equal(whole[:, ::3])
            assert function(a, b[0]).equal(function(a, b[0].expand(60, 100).contiguous()))
    finally:
        fb.set_num_threads(before)


@pytest.mark.skipif(not kernels.engines.chosen().compiles or engine.available() is not None, reason="nothing is compiled")
@pytest.mark.parametrize("name", ["gcd", "lcm", "pow", "floor_divide", "remainder", "bitwise_and", "bitwise_left_shift"])
@pytest.mark.parametrize("dtype", [fb.int8, fb.int32, fb.int64])
def test_large_calls_are_compiled(name, dtype):
    x = fb.ones(40000, dtype=dtype)

    assert "compiled tier" in fb.kernels.explain(name, x, x)
