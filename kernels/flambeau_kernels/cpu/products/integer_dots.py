"""Inner products of vectors of integers: in vectors and on all threads, wrapping around as integers do, so in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.language import independent, kernel, widened

__all__ = ["dot"]

PIECE = 1 << 15                                       # elements of a chunk


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of ``a * b``, 0-d, of two vectors of one dtype, an integer's."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    chunks = -(-a.size // PIECE)
    sums = np.empty(chunks, a.dtype)
    sum_of_products.run(chunks, a, b, sums, a.size)
    return sums.reshape(()) if chunks == 1 else np.asarray(sums.sum(dtype=a.dtype))


@kernel
def sum_of_products(chunk: Any, a: Any, b: Any, sums: Any, n: Any) -> Any:
    total = widened(a)(0)
    for i in independent(range(chunk * PIECE, min(n, chunk * PIECE + PIECE))):
        total += a[i] * b[i]
    sums[chunk] = total
