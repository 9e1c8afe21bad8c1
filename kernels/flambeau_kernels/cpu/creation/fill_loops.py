"""The loops of `fill`, in chunks of a fixed number of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import float32, float64, independent, kernel, widened
from flambeau_kernels.vocabulary import fma, where

PIECE = 1 << 16


def count_up(made: np.ndarray, start: Any, step: Any) -> None:
    """Fill a vector with ``start + i * step``."""
    number = int if made.dtype.kind in "iu" else float
    count.run(-(-made.size // PIECE), made, number(start), number(step), made.size)


@kernel
def count(chunk: Any, out: Any, start: Any, step: Any, n: Any) -> Any:
    kind = widened(out)
    for i in independent(range(chunk * PIECE, min(n, chunk * PIECE + PIECE))):
        out[i] = kind(start + (i if kind.family != "f" else float64(i)) * step)


def space(made: np.ndarray, start: float, end: float) -> None:
    """Fill a vector, of at least two numbers, from `start` to `end`."""
    work = made.dtype.type
    step = (work(end) - work(start)) / work(made.size - 1)
    line.run(-(-made.size // PIECE), made, float(work(start)), float(work(end)), float(step), made.size)


@kernel
def line(chunk: Any, out: Any, start: Any, end: Any, step: Any, n: Any) -> Any:
    kind = widened(out)
    first, last, width = kind(start), kind(end), kind(step)
    for i in independent(range(chunk * PIECE, min(n, chunk * PIECE + PIECE))):
        at = kind(i)
        # Fused, as in PyTorch.
        out[i] = where(at < kind(n // 2), fma(at, width, first), fma(kind(n - 1) - at, -width, last))


@kernel
def spaced(chunk: Any, out: Any, start: Any, end: Any, steps: Any, *, SINGLE: bool = False) -> Any:
    """Numbers evenly spaced from `start` to `end`, each measured from the end that is nearer; `SINGLE`: in steps of float32."""
    kind, half = widened(out), steps // 2
    first = float64(float32(start)) if SINGLE else start
    last = float64(float32(end)) if SINGLE else end
    far = float64(float32(last - first)) if SINGLE else last - first
    each = far / float64(steps - 1)
    step = float64(float32(each)) if SINGLE else each
    for i in range(half):
        out[i] = kind(first + step * float64(i))
    for i in range(half, steps):
        out[i] = kind(last - step * float64(steps - 1 - i))
