"""Orthogonal polynomials of any degree by their three-term recurrence, in compiled loops.

Elements are taken `BLOCK` at a time: their values of two degrees stay in the innermost cache while the degree rises to the
largest one among them, and an element that has reached its own keeps what it has. Chunks are `PIECE` elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import float64, independent, kernel, local, widened
from flambeau_kernels.vocabulary import where

__all__ = ["HIGHEST", "evaluate"]

BLOCK, PIECE = 64, 1 << 12
HIGHEST = 1 << 12                                     # degrees up to which every element is taken to the largest one


def evaluate(x: np.ndarray, degree: np.ndarray, slope: int, shift: int, family: int) -> np.ndarray:
    """The polynomials of `family` and int64 `degree`, from ``slope * x + shift`` in degree 1; 0 for degrees below 0.

    Args:
        x, degree: of one shape, `x` float32 or float64; no degree above `HIGHEST`.
        family: 0 Chebyshev's, 1 and 2 the physicists' and the probabilists' Hermite's, 3 Laguerre's, 4 Legendre's.
    """
    made = np.empty(x.shape, x.dtype)
    x, degree = np.ascontiguousarray(x), np.ascontiguousarray(degree)
    recur.run(-(-x.size // PIECE), x, degree, made, x.size, slope, shift, FAMILY=family)
    return made


@kernel
def recur(chunk: Any, x: Any, degree: Any, made: Any, n: Any, slope: Any, shift: Any, FAMILY: Any) -> Any:
    KIND = widened(x)
    p, q, wide = local(KIND, BLOCK), local(KIND, BLOCK), local(float64, BLOCK)
    for start in range(chunk * PIECE, min(n, chunk * PIECE + PIECE), BLOCK):
        count = min(n - start, BLOCK)
        top = 0
        for j in range(count):
            top = max(top, degree[start + j])
        for j in independent(range(count)):
            value = x[start + j]
            wide[j] = float64(value)
            p[j] = where(degree[start + j] > 0, KIND(slope) * value + KIND(shift), where(degree[start + j] == 0, KIND(1.0), KIND(0.0)))
            q[j] = KIND(1.0)
        for k in range(1, top):
            order = float64(k)
            for j in independent(range(count)):
                old = p[j]
                # In float64 the leading product of float32 values is exact, so the step rounds as a fused one does.
                new = KIND(next_degree(order, wide[j], float64(old), q[j], KIND, FAMILY))
                more = k < degree[start + j]
                p[j] = where(more, new, old)
                q[j] = where(more, old, q[j])
        for j in independent(range(count)):
            made[start + j] = p[j]


def next_degree(k: Any, x: Any, p: Any, q: Any, KIND: Any, FAMILY: Any) -> Any:
    """The polynomial of degree k + 1 from those of degree k, `p`, and k - 1, `q`."""
    if FAMILY == 0:
        made = (x + x) * p - float64(q)
    elif FAMILY == 1:
        made = (x + x) * p - float64(KIND(2.0 * k) * q)
    elif FAMILY == 2:
        made = x * p - float64(KIND(k) * q)
    elif FAMILY == 3:
        made = ((2.0 * k + 1.0 - x) * p - float64(KIND(k) * q)) / (k + 1.0)
    else:
        made = ((2.0 * k + 1.0) * x * p - float64(KIND(k) * q)) / (k + 1.0)
    return made
