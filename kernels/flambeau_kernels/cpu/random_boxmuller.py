"""Box-Muller pairs in blocks: two uniform numbers become two normal ones, with PyTorch's roundings.

The float32 functions are written once and read twice: over arrays by numpy, over scalars in a compiled loop.

Source: Box and Muller 1958, "A Note on the Generation of Random Normal Deviates", Ann. Math. Stat. 29(2).
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np

from .random_arithmetic import compiled, libm, runs_compiled

__all__ = ["pairs32", "pairs64"]

# Importing numba and compiling a loop takes a second, once; numpy needs 15 ms (float64: 35 ms) for this many
# numbers.
COMPILED_FROM = 1 << 18
TWO_PI = 2 * math.pi


def pairs64(radial: np.ndarray, angular: np.ndarray, work: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers from uniform radii and angles, 1-D float64: part of a task of `work` numbers."""
    if runs_compiled(pairs64_loop, work, COMPILED_FROM):
        return filled(pairs64_loop, radial, angular)
    radius = np.sqrt(-2.0 * libm(math.log, 1.0 - radial))
    angle = TWO_PI * angular
    return radius * libm(math.cos, angle), radius * libm(math.sin, angle)


def pairs64_loop(radial: np.ndarray, angular: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    for i in range(radial.size):
        radius = math.sqrt(-2.0 * math.log(1.0 - radial[i]))
        angle = TWO_PI * angular[i]
        first[i] = radius * math.cos(angle)
        second[i] = radius * math.sin(angle)


def pairs32(radial: np.ndarray, angular: np.ndarray, work: int) -> tuple[np.ndarray, np.ndarray]:
    """`pairs64` in float32, where PyTorch's logarithm, sine and cosine are its own."""
    if runs_compiled(pairs32_loop, work, COMPILED_FROM):
        return filled(pairs32_loop, radial, angular)
    radius = radius32(radial)
    sine, cosine = sin_cos32(np.float32(TWO_PI) * angular)
    return radius * cosine, radius * sine


def pairs32_loop(radial: np.ndarray, angular: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    for i in range(radial.size):
        radius = radius32(radial[i])
        sine, cosine = sin_cos32(np.float32(TWO_PI) * angular[i])
        first[i] = radius * cosine
        second[i] = radius * sine


def radius32(uniform: Any) -> Any:
    return np.sqrt(np.float32(-2) * log32(np.float32(1) - uniform))


def filled(loop: FunctionType, radial: np.ndarray, angular: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.empty_like(radial), np.empty_like(radial)
    compiled(loop)(radial, angular, first, second)
    return first, second


def fused(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of float32 values, rounded once."""
    # The product of two float32 is exact in float64.
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


def log32(x: Any) -> Any:
    """Natural logarithm of positive, normal float32, to PyTorch's last bit.

    Source: the single-precision polynomial of Moshier 1989, "Methods and Programs for Mathematical
    Functions". Which of its steps are fused was found by trial: this is the choice that agrees with PyTorch
    on all 2**24 arguments.
    """
    # x = mantissa * 2**exponent, mantissa in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) tells.
    offset = np.float32(x).view(np.int32) - np.int32(0x3F3504F3)
    exponent = np.float32(offset >> np.int32(23))
    m = np.int32((offset & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3)).view(np.float32) - np.float32(1)
    square = m * m
    y = fused(m, np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1))
    y = fused(y, m, np.float32(1.1676998740e-1))
    y = fused(y, m, np.float32(-1.2420140846e-1))
    y = fused(y, m, np.float32(1.4249322787e-1))
    y = fused(y, m, np.float32(-1.6668057665e-1))
    y = fused(y, m, np.float32(2.0000714765e-1))
    y = fused(y, m, np.float32(-2.4999993993e-1))
    y = fused(y, m, np.float32(3.3333331174e-1)) * m
    # ln 2 in two parts, the greater one with trailing zeros: 0.693359375 - 2.12194440e-4.
    y = fused(y, square, exponent * np.float32(-2.12194440e-4))
    y = m + fused(square, np.float32(-0.5), y)
    return fused(exponent, np.float32(0.693359375), y)


def sin_cos32(x: Any) -> tuple[Any, Any]:
    """Sine and cosine of float32 in [0, 2 pi], to PyTorch's last bit.

    Source: as `log32`.
    """
    octant = (np.int32(x * np.float32(1.27323954473516)) + np.int32(1)) & np.int32(14)
    turns = np.float32(octant)
    # pi/4 in three parts, so that the remainder keeps its digits.
    x = fused(turns, np.float32(-0.78515625), x)
    x = fused(turns, np.float32(-2.4187564849853515625e-4), x)
    x = fused(turns, np.float32(-3.77489497744594108e-8), x)
    square = x * x
    c = fused(square, np.float32(2.443315711809948e-5), np.float32(-1.388731625493765e-3))
    c = fused(c, square, np.float32(4.166664568298827e-2)) * square
    c = fused(c, square, square * np.float32(-0.5)) + np.float32(1)
    s = fused(square, np.float32(-1.9515295891e-4), np.float32(8.3321608736e-3))
    s = fused(s, square, np.float32(-1.6666654611e-1)) * square
    s = fused(s, x, x)
    swapped = (octant & np.int32(2)) != 0
    sine = select(swapped, c, s)
    cosine = select(swapped, s, c)
    return (
        select((octant & np.int32(4)) != 0, -sine, sine),
        select(((octant + np.int32(2)) & np.int32(4)) != 0, -cosine, cosine),
    )


def select(condition: Any, chosen: Any, other: Any) -> Any:
    return np.where(condition, chosen, other)


def select_scalar(condition: Any, chosen: Any, other: Any) -> Any:
    return chosen if condition else other


select.scalar = select_scalar  # type: ignore[attr-defined]  # numba's np.where makes an array of each scalar
