"""Box-Muller pairs in blocks: two uniform numbers become two normal ones, with PyTorch's roundings.

The same functions as kernel code are in `loops`.

Source: Box and Muller 1958, "A Note on the Generation of Random Normal Deviates", Ann. Math. Stat. 29(2).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import libm

__all__ = ["pairs32", "pairs64"]

TWO_PI = 2 * math.pi
# Coefficients of log32 and sin_cos32.
LOGARITHM = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)
LN2 = 0.693359375, -2.12194440e-4                    # in two parts, the greater one with trailing zeros
OCTANTS = 1.27323954473516                           # in a radian
EIGHTH = -0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8    # of a turn, negative, in three parts
COSINE = 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2
SINE = -1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1


def pairs64(radial: np.ndarray, angular: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers from uniform radii and angles, 1-D float64."""
    radius = np.sqrt(-2.0 * libm(math.log, 1.0 - radial))
    angle = TWO_PI * angular
    return radius * libm(math.cos, angle), radius * libm(math.sin, angle)


def pairs32(radial: np.ndarray, angular: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`pairs64` in float32, where PyTorch's logarithm, sine and cosine are its own."""
    radius = np.sqrt(np.float32(-2) * log32(np.float32(1) - radial))
    sine, cosine = sin_cos32(np.float32(TWO_PI) * angular)
    return radius * cosine, radius * sine


def fused(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of float32 arrays and numbers, rounded once."""
    # The product of two float32 is exact in float64.
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


def log32(x: np.ndarray) -> np.ndarray:
    """Natural logarithm of positive, normal float32, to PyTorch's last bit.

    Source: the single-precision polynomial of Moshier 1989, "Methods and Programs for Mathematical
    Functions". Which of its steps are fused was found by trial: this is the choice that agrees with PyTorch
    on all 2**24 arguments.
    """
    # x = mantissa * 2**exponent, mantissa in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) tells.
    offset = x.view(np.int32) - np.int32(0x3F3504F3)
    exponent = (offset >> np.int32(23)).astype(np.float32)
    m = ((offset & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3)).view(np.float32) - np.float32(1)
    square = m * m
    y = fused(m, np.float32(LOGARITHM[0]), np.float32(LOGARITHM[1]))
    for coefficient in LOGARITHM[2:]:
        y = fused(y, m, np.float32(coefficient))
    y = fused(y * m, square, exponent * np.float32(LN2[1]))
    y = m + fused(square, np.float32(-0.5), y)
    return fused(exponent, np.float32(LN2[0]), y)


def sin_cos32(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine of float32 in [0, 2 pi], to PyTorch's last bit.

    Source: as `log32`.
    """
    octant = ((x * np.float32(OCTANTS)).astype(np.int32) + np.int32(1)) & np.int32(14)
    turns = octant.astype(np.float32)
    for part in EIGHTH:                               # so that the remainder keeps its digits
        x = fused(turns, np.float32(part), x)
    square = x * x
    c = fused(square, np.float32(COSINE[0]), np.float32(COSINE[1]))
    c = fused(c, square, np.float32(COSINE[2])) * square
    c = fused(c, square, square * np.float32(-0.5)) + np.float32(1)
    s = fused(square, np.float32(SINE[0]), np.float32(SINE[1]))
    s = fused(s, square, np.float32(SINE[2])) * square
    s = fused(s, x, x)
    swapped = (octant & np.int32(2)) != 0
    sine, cosine = np.where(swapped, c, s), np.where(swapped, s, c)
    return (
        np.where((octant & np.int32(4)) != 0, -sine, sine),
        np.where(((octant + np.int32(2)) & np.int32(4)) != 0, -cosine, cosine),
    )
