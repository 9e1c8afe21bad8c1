"""The product of many rows of a few elements and a vector: a sum for each row, of neighbouring rows side by side.

Elsewhere a register holds neighbours of one row, most of which a short row does not have. An element is the sum of ``a[i, 0] * x[0]``,
``a[i, 1] * x[1]`` and so on, one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.language import independent, kernel, unroll, widened
from ...vocabulary import fma

__all__ = ["product"]

ROWS = 1 << 14                                        # of a chunk


def product(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Put ``a @ x`` into the vector `out`, for a matrix whose rows are contiguous and a contiguous vector of the dtype of the sums."""
    rows, length = a.shape
    step, across = a.strides[0] // a.itemsize, out.strides[0] // out.itemsize
    sums_of_rows.run(-(-rows // ROWS), a, x, out, rows, step, across, LENGTH=length, DENSE=step == length and across == 1)


@kernel
def sums_of_rows(chunk: Any, a: Any, x: Any, out: Any, rows: Any, step: Any, across: Any, *, LENGTH: int, DENSE: bool) -> Any:
    KIND = widened(x)
    first, last = chunk * ROWS, min(rows, chunk * ROWS + ROWS)
    for i in independent(range(first, last)):
        row = a + (i * LENGTH if DENSE else i * step)
        total = KIND(0)
        for k in unroll(range(LENGTH)):
            total = fma(KIND(row[k]), x[k], total) if KIND.family == "f" else total + KIND(row[k]) * x[k]
        out[i if DENSE else i * across] = total
