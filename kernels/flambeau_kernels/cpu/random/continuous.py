"""Exponential, geometric and Cauchy numbers from an `MT19937Stream`, the ones PyTorch's CPU draws.

Each is a function of one 53-bit uniform number, evaluated in float64 whatever the dtype of `out`; only a
float64 `out` can show the last bit, so only there is the C library asked for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..tier import compiles
from .arithmetic import fma, libm
from .stream import AtOnce, MT19937Stream, bits, check_dtype, chunks, fill, loops, memory

__all__ = ["cauchy", "exponential", "geometric", "refill_exponential"]


_EXPONENTIALS = AtOnce("draw_exponentials", float)


def exponential(stream: MT19937Stream, out: np.ndarray, lambd: float = 1.0) -> np.ndarray:
    """Fill floating `out` with exponential numbers of rate `lambd`.

    Raises: RuntimeError unless ``lambd > 0``.
    """
    check_dtype("exponential_", out.dtype, "f")
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    form = _EXPONENTIALS.form(out)
    if form is not None:
        stream.at_once(form, out, 2 * out.size, -1.0 / lambd)
        return out
    flat = memory(out) if compiles() else None
    if flat is not None:
        loops().exponential.run(chunks(len(flat)), stream.random32(2 * len(flat)), flat, len(flat), -1.0 / lambd)
        return out
    logs = applied(math.log1p, np.log1p, -stream.uniform64(out.size), out)
    return fill(out, logs * (-1.0 / lambd))


def refill_exponential(stream: MT19937Stream, out: np.ndarray) -> bool:
    """Whether one native call did what `exponential` of rate 1 does; nothing is drawn otherwise."""
    table = _EXPONENTIALS.tables.get(out.dtype)
    return table is not None and stream.redrawn(table, out, _OF_RATE_1, 2)


_OF_RATE_1 = bits(-1.0, 0.0, 0.0)


def geometric(stream: MT19937Stream, out: np.ndarray, p: float) -> np.ndarray:
    """Fill `out` with the number of trials up to the first success, each of probability `p`.

    Raises: RuntimeError unless ``0 < p < 1``.
    """
    check_dtype("geometric_", out.dtype, "fiu")
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    with np.errstate(divide="ignore"):
        logs = np.log(stream.uniform64(out.size))    # a uniform 0 asks for infinitely many trials
    trials = np.ceil(logs / math.log1p(-p))
    if out.dtype.kind in "iu":
        with np.errstate(invalid="ignore"):
            trials = trials.astype(np.int64)         # narrower integers wrap around
    return fill(out, trials)


def cauchy(stream: MT19937Stream, out: np.ndarray, median: float = 0.0, sigma: float = 1.0) -> np.ndarray:
    """Fill floating `out` with Cauchy numbers, `sigma` being the half width at half maximum.

    Raises: RuntimeError unless ``sigma > 0``.
    """
    check_dtype("cauchy_", out.dtype, "f")
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    tangents = applied(math.tan, np.tan, math.pi * (stream.uniform64(out.size) - 0.5), out)
    with np.errstate(over="ignore"):
        return fill(out, fma(tangents, sigma, median))


def applied(
    exactly: Callable[[float], float],
    quickly: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    out: np.ndarray,
) -> np.ndarray:
    """A function of `math`, or the like of it in numpy where the result is rounded further anyway."""
    return libm(exactly, x) if out.dtype == np.float64 else quickly(x)
