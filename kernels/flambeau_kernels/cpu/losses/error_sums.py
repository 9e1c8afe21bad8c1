"""Compiled sums over the differences of two arrays, in one pass and without an array of the differences.

A chunk sums its elements in the dtype of the arrays; chunks are added up in float64, in order.
"""

from __future__ import annotations

import numpy as np

from flambeau_kernels.engine.language import flags, kernel, widened

__all__ = ["squared"]

CHUNK = 32768


@kernel
def squared_chunk(chunk, a, b, sums, n):
    KIND = widened(a)
    first = chunk * CHUNK
    left, right = a + first, b + first
    total = KIND(0)
    with flags("reassoc", "contract"):
        for i in range(min(CHUNK, n - first)):
            d = left[i] - right[i]
            total += d * d
    sums[chunk] = total


def squared(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of ``(a - b) ** 2`` over two contiguous arrays of one size."""
    chunks = -(-a.size // CHUNK)
    sums = np.empty(chunks, a.dtype)
    squared_chunk.run(chunks, a, b, sums, a.size)
    return float(np.add.reduce(sums, dtype=np.float64))
