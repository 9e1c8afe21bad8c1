"""Matrix products whose sums have one order, for engines without the microkernels of `gemm/`.

An element is the sum of ``a[i, 0] * b[0, j]``, ``a[i, 1] * b[1, j]`` and so on, one after the other, so its bits depend on its own row,
its own column and their length alone: what `matmul.set_invariant` promises, and BLAS does not. A chunk is some rows of a matrix; a
register holds neighbouring columns of one row, and rows share what is loaded of `b`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine.language import (
    broadcast,
    kernel,
    lanes,
    load,
    local,
    multiply_add,
    rolled,
    store,
    unroll,
    vector,
    widened,
)

__all__ = ["product"]

WORK = 1 << 18                                        # multiplications of a chunk, about
TOGETHER = 4                                          # rows


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a @ b`` of arrays of float32 or float64 of two or more dimensions, neither of which is empty."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n, count = a.shape[-2:], b.shape[-1], math.prod(batch)
    made = np.empty((*batch, m, n), a.dtype)
    rows = min(m, max(TOGETHER, WORK // (k * n) // TOGETHER * TOGETHER))
    parts = -(-m // rows)
    ordered_rows.run(
        parts * count, np.ascontiguousarray(a), np.ascontiguousarray(b), made, _starts(a, batch), _starts(b, batch), parts, rows, m, n, k
    )
    return made


def _starts(x: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    """Where each of the matrices of a broadcast batch begins in `x`, which is contiguous then, in elements."""
    shape = x.shape[:-2]
    starts = np.arange(math.prod(shape), dtype=np.int64).reshape(shape) * (x.shape[-2] * x.shape[-1])
    return np.ascontiguousarray(np.broadcast_to(starts, batch))


@kernel(in_vectors=True)
def ordered_rows(
    chunk: Any, a: Any, b: Any, made: Any, starts_a: Any, starts_b: Any, parts: Any, rows: Any, m: Any, n: Any, k: Any
) -> Any:
    N = lanes(widened(made))
    which, first = chunk // parts, chunk % parts * rows
    last = min(first + rows, m)
    p, q, to = a + starts_a[which], b + starts_b[which], made + which * m * n
    fours = first + (last - first) // TOGETHER * TOGETHER
    for j in rolled(range(0, n, N)):
        width = min(n - j, N)
        for i in rolled(range(first, fours, TOGETHER)):
            some_rows(p + i * k, q + j, to + i * n + j, width, n, k, TOGETHER)
        for i in rolled(range(fours, last)):
            some_rows(p + i * k, q + j, to + i * n + j, width, n, k, 1)


def some_rows(p: Any, q: Any, to: Any, width: Any, n: Any, k: Any, ROWS: int) -> Any:
    """`ROWS` rows of the result, `width` columns of them."""
    KIND = widened(to)
    N = lanes(KIND)
    sums = local(vector(KIND, N), ROWS)
    for r in unroll(range(ROWS)):
        sums[r] = broadcast(KIND(0), N)
    for i in rolled(range(k)):
        others = load(q, i * n, N, width)
        for r in unroll(range(ROWS)):
            sums[r] = multiply_add(broadcast(p[r * k + i], N), others, sums[r])
    for r in unroll(range(ROWS)):
        store(to, r * n, sums[r], width)
