"""Windows of signals: formulas of the place ``k`` and the span, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi
from typing import Any

import numpy as np

from ...loading import scipy_module

__all__ = ["bartlett", "cosines", "exponential", "gaussian", "half_sine", "kaiser", "window"]

Values = Callable[[Any, int], Any]
_BLOCK = 1 << 16                                      # values computed at once, so that long windows take the memory of their results


def window(values: Values, n: int, span: int, dtype: np.dtype) -> np.ndarray:
    """The `n` values ``values(k, span)`` as `dtype`; a window of length 1 is 1."""
    made = np.ones(n, dtype)
    if n > 1:
        for at in range(0, n, _BLOCK):
            end = min(at + _BLOCK, n)
            made[at:end] = values(np.arange(at, end, dtype=np.float64), span)
    return made


def cosines(a: Sequence[float]) -> Values:
    """``a[0] - a[1] cos(2 pi k / span) + a[2] cos(4 pi k / span) - ...``"""
    return lambda k, span: sum((-1) ** i * c * np.cos(2 * pi * i * k / span) for i, c in enumerate(a))


def kaiser(beta: float) -> Values:
    """Kaiser's window, by Bessel's function of order 0."""

    def values(k: Any, span: int) -> Any:
        i0 = scipy_module("special").i0
        return i0(beta * np.sqrt(np.maximum(0.0, 1 - (2 * k / span - 1) ** 2))) / i0(beta)

    return values


def bartlett(k: Any, span: int) -> Any:
    """A triangle, 0 at both ends."""
    return 1 - np.abs(2 * k / span - 1)


def half_sine(k: Any, span: int) -> Any:
    """Half a period of a sine, sampled at half integers."""
    return np.sin(pi * (k + 0.5) / (span + 1))


def gaussian(std: float) -> Values:
    """Of standard deviation `std`, in samples, about the middle."""
    return lambda k, span: np.exp(-0.5 * ((k - span / 2) / std) ** 2)


def exponential(center: float | None, tau: float) -> Values:
    """``exp(-|k - center| / tau)``; `center` is the middle if None."""
    return lambda k, span: np.exp(-np.abs(k - (span / 2 if center is None else center)) / tau)
