"""Distances between all rows of two arrays, and of all pairs of rows of one, and their gradients.

Vectors lie along the rows of one array, which is transposed for that: so rows may be of any length, and the terms of a sum come in one
order for each result, on every processor. `BLOCK` of them are added up in their own kind, and the sums of blocks in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import broadcast, float64, kernel, load, local, rolled, store, unroll, vector, widened
from flambeau_kernels.vocabulary import abs, maximum, sqrt, where

from ..shapes.move import in_rows
from ..sums import lanes_of, wide
from ..tier import compiles

__all__ = ["ORDERS", "gradients", "gradients_of_pairs", "has_gradients", "planned", "planned_pairs"]

ORDERS = (1.0, 2.0, inf)
BLOCK = 4                                             # terms that are added up in their own kind
ACROSS = 4                                            # vectors of distances, and columns of gradients, that are computed together
WORK = 1 << 16                                        # terms of a chunk


def lengths(row, columns, to, width, d, rest, COUNT, ORDER):
    """The distances of `row` from COUNT vectors of rows, the columns of `columns`, `width` to a line; of the last one of `rest`."""
    KIND = widened(to)
    N = lanes_of(KIND)
    totals, sums = local(vector(float64, N), COUNT), local(vector(KIND, N), COUNT)
    for V in unroll(range(COUNT)):
        totals[V], sums[V] = broadcast(0.0, N), broadcast(KIND(0), N)
    for begin in rolled(range(0, d, BLOCK)):
        if ORDER != 3 and begin > 0:
            for V in unroll(range(COUNT)):
                totals[V] = totals[V] + wide(sums[V], KIND)
                sums[V] = broadcast(KIND(0), N)
        for k in rolled(range(begin, min(begin + BLOCK, d))):
            a, line = broadcast(row[k], N), columns + k * width
            for V in unroll(range(COUNT)):
                off = a - (load(line, V * N, N) if COUNT > 1 else load(line, 0, N, rest))
                sums[V] = maximum(sums[V], abs(off)) if ORDER == 3 else sums[V] + (off * off if ORDER == 2 else abs(off))
    for V in unroll(range(COUNT)):
        if ORDER == 3:
            made = sums[V]
        else:
            total = totals[V] + wide(sums[V], KIND)
            made = vector(KIND, N)(sqrt(total) if ORDER == 2 else total)
        if COUNT > 1:
            store(to, V * N, made)
        else:
            store(to, 0, made, rest)


@kernel(in_vectors=True)
def lengths_between_rows(chunk, x, columns, out, m, n, d, parts, each, *, ORDER):
    """``out[b, i, j]`` of row i of `x`, ``(b, m, d)``, and column j of `columns`, ``(b, d, n)``."""
    N = lanes_of(widened(out))
    batch = chunk // parts
    first = (chunk - batch * parts) * each
    last = min(first + each, m)
    rows, lines, to = x + batch * m * d, columns + batch * d * n, out + batch * m * n
    j = 0
    while j + ACROSS * N <= n:
        for i in rolled(range(first, last)):
            lengths(rows + i * d, lines + j, to + (i * n + j), n, d, N, ACROSS, ORDER)
        j += ACROSS * N
    while j < n:
        for i in rolled(range(first, last)):
            lengths(rows + i * d, lines + j, to + (i * n + j), n, d, min(n - j, N), 1, ORDER)
        j += N


@kernel(in_vectors=True)
def lengths_between_pairs(chunk, x, columns, out, bounds, n, d, *, ORDER):
    """The distances of rows from `bounds[chunk]` on from those after them in an example, which are columns of `columns`, ``(b, d, n)``."""
    N = lanes_of(widened(out))
    for row in rolled(range(bounds[chunk], bounds[chunk + 1])):
        batch = row // n
        i = row - batch * n
        lines = columns + batch * d * n
        to = out + (batch * (n * (n - 1) // 2) + i * n - i * (i + 1) // 2 - i - 1)
        j = i + 1
        while j + ACROSS * N <= n:
            lengths(x + row * d, lines + j, to + j, n, d, N, ACROSS, ORDER)
            j += ACROSS * N
        while j < n:
            lengths(x + row * d, lines + j, to + j, n, d, min(n - j, N), 1, ORDER)
            j += N


def slopes(columns, other, weights, far, to, m, n, d, rest, COUNT, ORDER):
    """COUNT lines of the gradients of a vector of rows, of the last one of `rest`, pulled by all rows of `other`."""
    KIND = widened(to)
    N = lanes_of(KIND)
    totals, sums, mine = local(vector(float64, N), COUNT), local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT)
    for K in unroll(range(COUNT)):
        totals[K], sums[K], mine[K] = broadcast(0.0, N), broadcast(KIND(0), N), load(columns, K * m, N, rest)
    none = broadcast(KIND(0), N)
    for begin in rolled(range(0, n, BLOCK)):
        for j in rolled(range(begin, min(begin + BLOCK, n))):
            weight = load(weights, j * m, N, rest)
            for K in unroll(range(COUNT)):
                off = mine[K] - broadcast(other[j * d + K], N)
                if ORDER == 2:
                    sums[K] = sums[K] + off * weight
                else:
                    pull = where(off > none, weight, where(off < none, none - weight, none))
                    if ORDER == 3:
                        pull = where(abs(off) == load(far, j * m, N, rest), pull, none)
                    sums[K] = sums[K] + pull
        for K in unroll(range(COUNT)):
            totals[K] = totals[K] + wide(sums[K], KIND)
            sums[K] = broadcast(KIND(0), N)
    for K in unroll(range(COUNT)):
        store(to, K * m, vector(KIND, N)(totals[K]), rest)


@kernel(in_vectors=True)
def slopes_of_rows(chunk, columns, other, weights, far, out, batch, m, n, d, each, *, ORDER):
    """The gradients ``(b, d, m)`` of the rows that are columns of `columns`, by the distances from the rows of `other`, ``(b, n, d)``.

    Args:
        weights: ``(b, n, m)``, gradients of the distances, and of Euclidean ones over these.
        far: the distances, ``(b, n, m)``, which are read where they are largest differences.
    """
    N = lanes_of(widened(out))
    vectors, groups = (m + N - 1) // N, (d + ACROSS - 1) // ACROSS
    for unit in rolled(range(chunk * each, min(chunk * each + each, batch * vectors * groups))):
        b = unit // (vectors * groups)
        left = unit - b * vectors * groups
        i, k = left // groups * N, left % groups * ACROSS
        rest, at = min(m - i, N), b * n * m + i
        line, to = columns + ((b * d + k) * m + i), out + ((b * d + k) * m + i)
        row = other + (b * n * d + k)
        if k + ACROSS <= d:
            slopes(line, row, weights + at, far + at, to, m, n, d, rest, ACROSS, ORDER)
        else:
            for c in rolled(range(d - k)):
                slopes(line + c * m, row + c, weights + at, far + at, to + c * m, m, n, d, rest, 1, ORDER)


@kernel
def square_of_pairs(chunk, pairs, out, n):
    """The symmetric matrix of what there is of each pair of rows, zeros on its diagonal."""
    KIND = widened(out)
    of, to = pairs + chunk * (n * (n - 1) // 2), out + chunk * n * n
    at = 0
    for i in rolled(range(n)):
        to[i * n + i] = KIND(0)
        for j in rolled(range(i + 1, n)):
            to[i * n + j] = of[at]
            to[j * n + i] = of[at]
            at += 1


def _code(order: float) -> int:
    """The constant of kernels for an order."""
    return 3 if order == inf else int(order)


def planned(first: tuple[int, ...], second: tuple[int, ...], dtype: np.dtype, order: float) -> Callable[..., Any] | None:
    """``run(x, y)`` for contiguous ``(*, m, d)`` and ``(*, n, d)``: their rows' distances ``(*, m, n)``; None where no kernel is for that.

    Args:
        order: of the distances, one of `ORDERS`.
    """
    (*lead, m, d), n = first, second[-2]
    batch = prod(lead)
    if dtype.char not in "fd" or order not in ORDERS or not (batch and m and n and d) or not compiles():
        return None
    each = min(m, max(1, WORK // (n * d)))
    parts = -(-m // each)
    form = lengths_between_rows.form((dtype, dtype, dtype, *(int,) * 5), {"ORDER": _code(order)})
    shape = (*lead, m, n)

    def run(x: Any, y: Any) -> Any:
        out = np.empty(shape, dtype)
        form(batch * parts, False, x, in_rows(y.swapaxes(-1, -2)), out, m, n, d, parts, each)
        return out

    return run


def planned_pairs(shape: tuple[int, ...], dtype: np.dtype, order: float) -> Callable[..., Any] | None:
    """``run(x)`` for contiguous ``(*, n, d)``: the distances of all pairs of rows; None where no kernel is for that."""
    *lead, n, d = shape
    batch, pairs = prod(lead), n * (n - 1) // 2
    if dtype.char not in "fd" or order not in ORDERS or not (batch and pairs and d) or not compiles():
        return None
    # Chunks end where enough pairs have come together, wherever that is among the rows.
    done = np.cumsum(np.tile(np.arange(n - 1, -1, -1), batch))
    chunks = max(1, min(batch * pairs * d // WORK, len(done)))
    bounds = np.concatenate(([0], np.searchsorted(done, done[-1] * np.arange(1, chunks) // chunks), [len(done)]))
    form = lengths_between_pairs.form((dtype, dtype, dtype, bounds.dtype, int, int), {"ORDER": _code(order)})
    made = (*lead, pairs)

    def run(x: Any) -> Any:
        out = np.empty(made, dtype)
        form(chunks, False, x, in_rows(x.swapaxes(-1, -2)), out, bounds, n, d)
        return out

    return run


def has_gradients(first: tuple[int, ...], second: tuple[int, ...], dtype: np.dtype, order: float) -> bool:
    """Whether `gradients` are of rows of these shapes."""
    return dtype.char in "fd" and order in ORDERS and bool(prod(first) and prod(second)) and compiles()


def gradients(grad: Any, out: Any, x: Any, y: Any, order: float, wanted: tuple[bool, bool]) -> tuple[Any, Any]:
    """The gradients of rows ``(*, m, d)`` and ``(*, n, d)`` by their distances `out`, ``(*, m, n)``, of those that are `wanted`.

    All are float32 or float64, of one dtype; `order` is one of `ORDERS`. Rows that coincide have no gradient, and each of several
    largest differences has all of it.
    """
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    weights = _weights(grad, out, order)
    first = second = None
    if wanted[0]:
        first = _pulled(x, y, _turned(weights), _turned(out) if order == inf else None, order)
    if wanted[1]:
        second = _pulled(y, x, np.ascontiguousarray(weights), np.ascontiguousarray(out) if order == inf else None, order)
    return first, second


def gradients_of_pairs(grad: Any, out: Any, x: Any, order: float) -> Any:
    """The gradients of rows ``(*, n, d)`` by the distances `out` of their pairs, ``(*, n (n - 1) / 2)``; as `gradients`."""
    x = np.ascontiguousarray(x)
    return _pulled(x, x, _square(_weights(grad, out, order), x), _square(out, x) if order == inf else None, order)


def _square(pairs: Any, x: Any) -> Any:
    *lead, n, _ = x.shape
    made = np.empty((*lead, n, n), x.dtype)
    square_of_pairs.run(prod(lead), np.ascontiguousarray(pairs), made, n)
    return made


def _weights(grad: Any, out: Any, order: float) -> Any:
    """What a difference is multiplied by, or its sign."""
    if order != 2:
        return grad
    made = np.zeros(out.shape, out.dtype)
    return np.divide(grad, out, out=made, where=out != 0)


def _turned(a: Any) -> Any:
    return in_rows(np.swapaxes(a, -1, -2))


def _pulled(x: Any, y: Any, weights: Any, far: Any, order: float) -> Any:
    """The gradients of the rows of `x`, by the distances ``(*, n, m)`` from those of `y`."""
    *lead, m, d = x.shape
    batch, n, dtype = prod(lead), y.shape[-2], x.dtype
    made = np.empty((*lead, d, m), dtype)
    N = lanes_of(_Bits(dtype))
    units = batch * -(-m // N) * -(-d // ACROSS)
    each = max(1, WORK // (n * N * ACROSS))
    form = _pulling(dtype, _code(order))
    form(-(-units // each), False, _turned(x), y, weights, weights if far is None else far, made, batch, m, n, d, each)
    return _turned(made)


class _Bits:
    """A dtype as `lanes_of` asks of it."""

    def __init__(self, dtype: np.dtype) -> None:
        self.bits = 8 * dtype.itemsize


@engines.kept()
def _pulling(dtype: np.dtype, order: int) -> Any:
    return slopes_of_rows.form((*(dtype,) * 5, *(int,) * 5), {"ORDER": order})
