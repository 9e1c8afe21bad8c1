"""Distances between all rows of two small arrays, by a handful of numpy calls, and by a kernel with the same bits; and of one array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import broadcast, float64, kernel, lane_sum, load, local, vector, widened
from flambeau_kernels.vocabulary import abs, sqrt

from ..norm.as_numpy import MOST, row_total
from ..sums import BLOCK, four_lanes, lanes_of, wide, zeros
from ..taking_over import numpy_until_kernel
from ..tier import compiles

__all__ = ["planned", "planned_pairs"]

CHUNK = 1 << 16  # elements that a chunk of pairs takes differences of, at least


@kernel
def distances(chunk, x, y, out, batch, m, n, d, *, SQUARED):
    KIND = widened(out)
    terms = local(KIND, MOST)
    for b in range(batch):
        for i in range(m):
            for j in range(n):
                p, q = x + (b * m + i) * d, y + (b * n + j) * d
                for k in range(d):
                    off = p[k] - q[k]
                    terms[k] = off * off if SQUARED else abs(off)
                total = row_total(terms, d, KIND(0), KIND, False)
                out[(b * m + i) * n + j] = sqrt(total) if SQUARED else total


def planned(first: tuple[int, ...], second: tuple[int, ...], dtype: np.dtype, squared: bool) -> Callable[..., Any]:
    """``run(x, y)`` for contiguous ``(*, m, d)`` and ``(*, n, d)``: their rows' distances ``(*, m, n)``, of order 2 or 1."""

    def by_numpy(x: Any, y: Any) -> Any:
        off = x[..., :, None, :] - y[..., None, :, :]
        made = np.sqrt(np.add.reduce(off * off, -1)) if squared else np.add.reduce(np.abs(off), -1)
        return (made,)

    (*lead, m, d), n = first, second[-2]
    if not 0 < d <= MOST:
        return lambda x, y: by_numpy(x, y)[0]
    shape, batch = (*lead, m, n), int(np.prod(lead))

    def around(form: Any) -> Any:
        def by_kernel(x: Any, y: Any) -> Any:
            out = np.empty(shape, dtype)
            form(1, False, x, y, out, batch, m, n, d)
            return (out,)

        return by_kernel

    run = numpy_until_kernel(by_numpy, distances, (dtype, dtype, dtype, *(int,) * 4), {"SQUARED": squared}, around)
    return lambda x, y: run(x, y)[0]


def sum_of_terms(a, b, some, SQUARED):
    """`some` and the squares, or the sizes, of the differences of two vectors."""
    off = a - b
    return some + (off * off if SQUARED else abs(off))


def length_of(total, some, KIND, SQUARED):
    """What the sums of whole blocks and of the last one make."""
    made = lane_sum(total) + lane_sum(vector(float64, 4)(four_lanes(some, lanes_of(KIND))))
    return KIND(sqrt(made) if SQUARED else made)


@kernel(in_vectors=True)
def lengths_of_pairs(chunk, x, out, bounds, batch, n, d, *, SQUARED):
    """The distances of rows from `bounds[chunk]` on to those after them, which are taken four at a time.

    A block of elements is added up in vectors of their own kind, and blocks in float64: so the order is the same for each pair.
    """
    KIND = widened(x)
    N = lanes_of(KIND)
    for row in range(bounds[chunk], bounds[chunk + 1]):
        example = row // n
        i = row - example * n
        p = x + row * d
        to = out + example * (n * (n - 1) // 2) + (i * n - i * (i + 1) // 2 - i - 1)
        for j in range(i + 1, n, 4):
            left = n - j
            # Where fewer than four are left the last one is taken again.
            q0 = x + (example * n + j) * d
            q1 = q0 + d if left > 1 else q0
            q2 = q1 + d if left > 2 else q1
            q3 = q2 + d if left > 3 else q2
            t0, t1, t2, t3 = broadcast(0.0, N), broadcast(0.0, N), broadcast(0.0, N), broadcast(0.0, N)
            s0, s1, s2, s3 = zeros(KIND), zeros(KIND), zeros(KIND), zeros(KIND)
            for begin in range(0, d, BLOCK):
                if begin > 0:
                    t0, t1, t2, t3 = t0 + wide(s0, KIND), t1 + wide(s1, KIND), t2 + wide(s2, KIND), t3 + wide(s3, KIND)
                    s0, s1, s2, s3 = zeros(KIND), zeros(KIND), zeros(KIND), zeros(KIND)
                end = min(begin + BLOCK, d)
                k = begin
                while k + N <= end:
                    a = load(p, k, N)
                    s0, s1 = sum_of_terms(a, load(q0, k, N), s0, SQUARED), sum_of_terms(a, load(q1, k, N), s1, SQUARED)
                    s2, s3 = sum_of_terms(a, load(q2, k, N), s2, SQUARED), sum_of_terms(a, load(q3, k, N), s3, SQUARED)
                    k += N
                if k < end:
                    a, rest = load(p, k, N, end - k), end - k
                    s0, s1 = sum_of_terms(a, load(q0, k, N, rest), s0, SQUARED), sum_of_terms(a, load(q1, k, N, rest), s1, SQUARED)
                    s2, s3 = sum_of_terms(a, load(q2, k, N, rest), s2, SQUARED), sum_of_terms(a, load(q3, k, N, rest), s3, SQUARED)
            to[j] = length_of(t0, s0, KIND, SQUARED)
            if left > 1:
                to[j + 1] = length_of(t1, s1, KIND, SQUARED)
            if left > 2:
                to[j + 2] = length_of(t2, s2, KIND, SQUARED)
            if left > 3:
                to[j + 3] = length_of(t3, s3, KIND, SQUARED)


def planned_pairs(shape: tuple[int, ...], dtype: np.dtype, order: float) -> Callable[..., Any] | None:
    """``run(x)`` for contiguous ``(*, n, d)``: the distances of order 2 or 1 of all pairs of rows; None where the kernel does not do."""
    *lead, n, d = shape
    batch, pairs = int(np.prod(lead)), n * (n - 1) // 2
    if dtype.char not in "fd" or order not in (1, 2) or not (batch and pairs and d) or not compiles():
        return None
    made = (*lead, pairs)
    # Chunks end where enough pairs have come together, wherever that is among the rows.
    done = np.cumsum(np.tile(np.arange(n - 1, -1, -1), batch))
    chunks = max(1, min(batch * pairs * d // CHUNK, len(done)))
    bounds = np.concatenate(([0], np.searchsorted(done, done[-1] * np.arange(1, chunks) // chunks), [len(done)]))
    form = lengths_of_pairs.form((dtype, dtype, bounds.dtype, int, int, int), {"SQUARED": order == 2})

    def run(x: Any) -> Any:
        out = np.empty(made, dtype)
        form(chunks, False, x, out, bounds, batch, n, d)
        return out

    return run
