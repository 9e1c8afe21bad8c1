"""What the random kernels share: fused multiply-add, and the C library's functions on arrays.

Drawing the same numbers as PyTorch means rounding where PyTorch rounds: its CPU code fuses `a * b + c`, and
in float64 it calls the C library, whose last bit differs now and then from numpy's vectorised functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["fma", "libm"]

SPLITTER = 134217729.0                               # 2**27 + 1 cuts a float64 into two halves of 26 bits
CHUNK = 8192                                         # numbers worked on at a time: temporaries stay in cache


def fma(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """``a * b + c`` rounded once, in the dtype of 1-D `a`: float32 or float64; `b`, `c` are rounded to it."""
    if a.dtype == np.float32:
        b32, c32 = np.float32(b), np.float32(c)
        # The product of two float32 is exact in float64.
        return a * b32 if c32 == 0 else (a.astype(np.float64) * float(b32) + float(c32)).astype(np.float32)
    if c == 0 or b == 0 or not math.isfinite(b) or not math.isfinite(c):
        return a * b + c
    # Scaled so that the larger of the two is near 1, neither the product's error term under- nor overflows.
    exponent = max(math.frexp(b)[1], math.frexp(c)[1])
    b, c = math.ldexp(b, -exponent), math.ldexp(c, -exponent)
    result = np.empty_like(a)
    for start in range(0, a.size, CHUNK):
        part = slice(start, start + CHUNK)
        result[part] = fma64(a[part], b, c)
    return np.ldexp(result, exponent, out=result)


def fma64(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """``a * b + c`` in float64, rounded once.

    Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums", IEEE Trans. Comput. 57(4).
    """
    product, product_error = exact_product(a, b)
    total, total_error = exact_sum(product, c)
    low, low_error = exact_sum(product_error, total_error)
    return total + rounded_to_odd(low, low_error)


def exact_product(a: np.ndarray, b: float) -> tuple[np.ndarray, np.ndarray]:
    """`a * b` as a rounded product and its error (Dekker 1971)."""
    product = a * b
    a_high, b_high = SPLITTER * a, SPLITTER * b
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def exact_sum(a: np.ndarray, b: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """`a + b` as a rounded sum and its error (Knuth, TAOCP volume 2, section 4.2.2)."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def rounded_to_odd(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """`value`, or its neighbour towards `error` if it is inexact and even: a sum with it rounds only once."""
    bits = value.view(np.int64)
    outward = (error > 0) == (value > 0)
    moved = bits + np.where(outward, 1, -1)
    return np.where((error != 0) & (bits & 1 == 0), moved, bits).view(np.float64)


def libm(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    """`function` of the `math` module on each of a 1-D float64 array, to the C library's last bit."""
    return np.fromiter(map(function, values.tolist()), dtype=np.float64, count=values.size)
