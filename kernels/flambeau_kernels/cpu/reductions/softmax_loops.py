"""Compiled loops of softmax and log_softmax, forward and backward.

Along the last dimension a chunk is some whole rows. A row is read three times while it lies in a first-level cache:
for its maximum, for the sum of exp, and for the result; that of one row is stored while the maximum of the next is looked
for. Along another dimension (arrays ``(outer, n, inner)``) a chunk is `COLUMNS` neighbouring columns, whose maxima and sums
are vectors; it walks down the n rows three times.

Sums are those of `sums.py`. A nan is skipped by the maximum but not by exp, so that it reaches the sum and with it all of its row.
"""

from __future__ import annotations

import math

import numpy as np

from flambeau_kernels.cpu.lanes import exp_lanes, lane_max
from flambeau_kernels.cpu.sums import BLOCK, ROWS, add_row, clear_row, lanes_of, wide, zeros
from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    outlined,
    prefetch,
    rolled,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.vocabulary import fma, log, where

from ..shapes.move import contiguous

__all__ = ["along", "along_grad", "row_exp_sum", "row_top", "softmax_row"]

COLUMNS = 256
# Elements of a chunk of rows: about 20 microseconds.
CHUNK = 32768
# Short rows that are done together, at most.
TOGETHER = 16


# -- one row -----------------------------------------------------------------------------------------------------------------


def row_top(x, n, KIND):
    """The largest of `n` elements; nan is skipped, and of nothing but nan it is -inf."""
    N = lanes(KIND)
    tops = no_tops(KIND)
    tail = n // (4 * N) * (4 * N)
    for i in rolled(range(0, tail, 4 * N)):
        for R in unroll(range(4)):
            s = load(x, i + R * N, N)
            tops[R] = where(s > tops[R], s, tops[R])
    return top_of(tops, x, tail, n, KIND)


def no_tops(KIND):
    """Four vectors of the largest of no elements."""
    tops = local(vector(KIND, lanes(KIND)), 4)
    for R in unroll(range(4)):
        tops[R] = broadcast(KIND(-math.inf), lanes(KIND))
    return tops


def top_of(tops, x, first, n, KIND):
    """The largest of the lanes of `tops`, and of the elements from `first` on."""
    N = lanes(KIND)
    for i in rolled(range(first, n, N)):
        s = load(x, i, N, n - i, -math.inf)
        tops[0] = where(s > tops[0], s, tops[0])
    for R in unroll(range(1, 4)):
        tops[0] = where(tops[R] > tops[0], tops[R], tops[0])
    return lane_max(tops[0], KIND)


def row_exp_sum(x, n, top, KIND, to, STORE, ASK=False):
    """The sum of ``exp(x - top)``, and the last of these terms, if they fill no vector of 64 bytes.

    Those of whole vectors go to `to` if STORE; else its memory is asked for if ASK. The last ones are given back: they are read next,
    and what is stored under a mask is slow to come back.
    """
    N = lanes_of(KIND)
    total, last = broadcast(0.0, N), zeros(KIND)
    tail = n // N * N
    for at in rolled(range(0, tail, BLOCK)):
        some = zeros(KIND)
        for i in rolled(range(at, min(tail, at + BLOCK), N)):
            e = exp_lanes(load(x, i, N) - top, KIND, N)
            if STORE:
                store(to, i, e)
            elif ASK:
                prefetch(to + i)
            some = some + e
        total = total + wide(some, KIND)
    if tail < n:
        # Differences of -inf are nan where the whole row is -inf, as they are in whole vectors.
        last = exp_lanes(load(x, tail, N, n - tail, -math.inf) - top, KIND, N)
        total = total + wide(last, KIND)
    return KIND(lane_sum(total)), last


def finish_lanes(x, top, factor, KIND, LOG, STORED):
    """A vector of the result: of what is stored, or of the input."""
    return (x - top) - factor if LOG else (x if STORED else exp_lanes(x - top, KIND)) * factor


def factor_of(total, KIND, LOG):
    return log(total) if LOG else KIND(1) / total


def finish_row(a, to, first, n, top, factor, last, KIND, LOG, STORED):
    """The result of a row from element `first` on, a multiple of a vector; `last` is what `row_exp_sum` gave back."""
    N = lanes_of(KIND) if STORED else lanes(KIND)
    source = to if STORED else a
    tail = n // N * N
    for i in rolled(range(first, tail, N)):
        store(to, i, finish_lanes(load(source, i, N), top, factor, KIND, LOG, STORED))
    if tail < n:
        rest = last if STORED else load(a, tail, N, n - tail)
        store(to, tail, finish_lanes(rest, top, factor, KIND, LOG, STORED), n - tail)


def finish_row_and_top(a, to, following, n, top, factor, last, KIND, LOG, STORED):
    """`finish_row`, and meanwhile `row_top` of the row `following`: memory is read and written at once."""
    N = lanes(KIND)
    tops = no_tops(KIND)
    source = to if STORED else a
    fours = n // (4 * N) * (4 * N)
    if STORED and lanes_of(KIND) > N:
        fours = n // (4 * lanes_of(KIND)) * (4 * lanes_of(KIND))
    for i in rolled(range(0, fours, 4 * N)):
        for R in unroll(range(4)):
            j = i + R * N
            s = load(following, j, N)
            tops[R] = where(s > tops[R], s, tops[R])
            store(to, j, finish_lanes(load(source, j, N), top, factor, KIND, LOG, STORED))
    finish_row(a, to, fours, n, top, factor, last, KIND, LOG, STORED)
    return top_of(tops, following, fours, n, KIND)


def softmax_row(a, to, n, KIND, LOG, STORED):
    """The result of one row, `to`, which is another than `a`."""
    top = row_top(a, n, KIND)
    total, last = row_exp_sum(a, n, top, KIND, to, STORED, LOG)
    finish_row(a, to, 0, n, top, factor_of(total, KIND, LOG), last, KIND, LOG, STORED)


@kernel(in_vectors=True)
def softmax_rows(chunk, x, out, rows, n, per, *, LOG, STORED, LENGTH):
    KIND = widened(x)
    first, last = chunk * per, min(rows, chunk * per + per)
    if LENGTH == "short":
        # Several rows take each step together, so that none waits for its own sum and logarithm.
        tops, totals, ends = local(KIND, TOGETHER), local(KIND, TOGETHER), local(vector(KIND, lanes_of(KIND)), TOGETHER)
        several = min(TOGETHER, BLOCK // n)
        for row in rolled(range(first, last, several)):
            count = min(several, last - row)
            a, to = x + row * n, out + row * n
            for r in rolled(range(count)):
                tops[r] = row_top(a + r * n, n, KIND)
            for r in rolled(range(count)):
                totals[r], ends[r] = row_exp_sum(a + r * n, n, tops[r], KIND, to + r * n, STORED)
            for r in rolled(range(count)):
                finish_row(a + r * n, to + r * n, 0, n, tops[r], factor_of(totals[r], KIND, LOG), ends[r], KIND, LOG, STORED)
    elif LENGTH == "middle":
        top = row_top(x + first * n, n, KIND)
        for row in rolled(range(first, last)):
            a, to = x + row * n, out + row * n
            total, end = row_exp_sum(a, n, top, KIND, to, STORED, LOG)
            following = a + min(1, last - 1 - row) * n
            top = finish_row_and_top(a, to, following, n, top, factor_of(total, KIND, LOG), end, KIND, LOG, STORED)
    else:
        for row in rolled(range(first, last)):
            softmax_row(x + row * n, out + row * n, n, KIND, LOG, STORED)


def length_of(n: int, logs: bool) -> str:
    """How rows of `n` elements are done: several 'short' ones together, longer ones where logarithms are waited for; those of
    'middle' length while the largest element of the next is looked for; 'long' ones, two of which fill a first-level cache, one by one."""
    if (3 if logs else 5) * n <= BLOCK:
        return "short"
    return "middle" if n <= 2 * BLOCK else "long"


def slope_lanes(g, p, total, KIND, LOG):
    """A vector of the gradient, from that of the result `p`."""
    return g - exp_lanes(p, KIND) * total if LOG else p * (g - total)


def slope_sum(g, p, n, KIND, LOG):
    """The sum of a row of the gradient, or of it times the result."""
    N = lanes_of(KIND)
    total = broadcast(0.0, N)
    tail = n // N * N
    for at in rolled(range(0, tail, BLOCK)):
        some = zeros(KIND)
        for i in rolled(range(at, min(tail, at + BLOCK), N)):
            here = load(g, i, N)
            some = some + here if LOG else fma(here, load(p, i, N), some)
        total = total + wide(some, KIND)
    if tail < n:
        here = load(g, tail, N, n - tail)
        total = total + wide(here if LOG else here * load(p, tail, N, n - tail), KIND)
    return KIND(lane_sum(total))


@kernel(in_vectors=True)
def softmax_rows_grad(chunk, grad, made, out, rows, n, per, *, LOG):
    KIND = widened(made)
    N = lanes(KIND)
    for row in range(chunk * per, min(rows, chunk * per + per)):
        g, p, to = grad + row * n, made + row * n, out + row * n
        total = slope_sum(g, p, n, KIND, LOG)
        tail = n // N * N
        for i in rolled(range(0, tail, N)):
            store(to, i, slope_lanes(load(g, i, N), load(p, i, N), total, KIND, LOG))
        if tail < n:
            left = n - tail
            store(to, tail, slope_lanes(load(g, tail, N, left), load(p, tail, N, left), total, KIND, LOG), left)


# -- columns -----------------------------------------------------------------------------------------------------------------


def fill(to, count, value):
    KIND = widened(to)
    for j in rolled(range(0, count, lanes(KIND))):
        store(to, j, broadcast(value, lanes(KIND)))


def raise_tops(tops, j, s):
    before = load(tops, j, lanes(widened(tops)))
    store(tops, j, where(s > before, s, before))


def add_exp(totals, tops, j, s, to, left, KIND, STORED):
    N = lanes(KIND)
    e = exp_lanes(s - load(tops, j, N), KIND)
    store(totals, j, load(totals, j, N) + e)
    if STORED:
        if left < N:
            store(to, j, e, left)
        else:
            store(to, j, e)


@kernel(in_vectors=True)
def softmax_columns(chunk, x, out, n, inner, across, units, per, *, LOG, STORED):
    KIND = widened(x)
    N = lanes(KIND)
    tops, totals, sums = local(KIND, COLUMNS), local(KIND, COLUMNS), local(float64, COLUMNS)
    for unit in range(chunk * per, min(units, chunk * per + per)):
        first = unit % across * COLUMNS
        count = min(COLUMNS, inner - first)
        tail = count // N * N
        a, to = x + (unit // across * n * inner + first), out + (unit // across * n * inner + first)
        outlined(fill)(tops, COLUMNS, KIND(-math.inf))
        outlined(fill)(totals, COLUMNS, KIND(0))
        for r in rolled(range(n)):
            for j in rolled(range(0, tail, N)):
                raise_tops(tops, j, load(a, r * inner + j, N))
            if tail < count:
                raise_tops(tops, tail, load(a, r * inner + tail, N, count - tail, -math.inf))
        clear_row(sums, COLUMNS)
        for at in rolled(range(0, n, ROWS)):
            for r in rolled(range(at, min(n, at + ROWS))):
                here, there = a + r * inner, to + r * inner
                for j in rolled(range(0, tail, N)):
                    add_exp(totals, tops, j, load(here, j, N), there, N, KIND, STORED)
                if tail < count:
                    add_exp(totals, tops, tail, load(here, tail, N, count - tail), there, count - tail, KIND, STORED)
            add_row(sums, totals, (count + N - 1) // N * N)
        for j in rolled(range(count)):
            totals[j] = log(KIND(sums[j])) if LOG else KIND(1) / KIND(sums[j])
        for r in rolled(range(n)):
            source, there = (to if STORED else a) + r * inner, to + r * inner
            for j in rolled(range(0, tail, N)):
                store(there, j, finish_lanes(load(source, j, N), load(tops, j, N), load(totals, j, N), KIND, LOG, STORED))
            if tail < count:
                left = count - tail
                s = load(source, tail, N, left)
                store(there, tail, finish_lanes(s, load(tops, tail, N), load(totals, tail, N), KIND, LOG, STORED), left)


@kernel(in_vectors=True)
def softmax_columns_grad(chunk, grad, made, out, n, inner, across, units, per, *, LOG):
    KIND = widened(made)
    N = lanes(KIND)
    totals, sums = local(KIND, COLUMNS), local(float64, COLUMNS)
    for unit in range(chunk * per, min(units, chunk * per + per)):
        first = unit % across * COLUMNS
        count = min(COLUMNS, inner - first)
        tail = count // N * N
        base = unit // across * n * inner + first
        outlined(fill)(totals, COLUMNS, KIND(0))
        clear_row(sums, COLUMNS)
        for at in rolled(range(0, n, ROWS)):
            for r in rolled(range(at, min(n, at + ROWS))):
                g, p = grad + (base + r * inner), made + (base + r * inner)
                for j in rolled(range(0, tail, N)):
                    here, before = load(g, j, N), load(totals, j, N)
                    store(totals, j, before + here if LOG else fma(here, load(p, j, N), before))
                if tail < count:
                    left = count - tail
                    here, before = load(g, tail, N, left), load(totals, tail, N)
                    store(totals, tail, before + here if LOG else fma(here, load(p, tail, N, left), before))
            add_row(sums, totals, (count + N - 1) // N * N)
        for j in rolled(range(count)):
            totals[j] = KIND(sums[j])
        for r in rolled(range(n)):
            g, p, to = grad + (base + r * inner), made + (base + r * inner), out + (base + r * inner)
            for j in rolled(range(0, tail, N)):
                store(to, j, slope_lanes(load(g, j, N), load(p, j, N), load(totals, j, N), KIND, LOG))
            if tail < count:
                left = count - tail
                here = slope_lanes(load(g, tail, N, left), load(p, tail, N, left), load(totals, tail, N), KIND, LOG)
                store(to, tail, here, left)


# -- from arrays -------------------------------------------------------------------------------------------------------------


def along(x: np.ndarray, dim: int, logs: bool) -> np.ndarray:
    """softmax, or with `logs` log_softmax, along `dim` of a floating array with elements."""
    if not x.flags.c_contiguous:
        x = contiguous(x)
    n, inner = x.shape[dim], math.prod(x.shape[dim + 1 :] if dim >= 0 else x.shape[x.ndim + dim + 1 :])
    out = np.empty(x.shape, x.dtype)
    stored = not logs and x.itemsize > 2
    if inner == 1:
        rows, per = x.size // n, max(1, CHUNK // n)
        softmax_rows.run(-(-rows // per), x, out, rows, n, per, LOG=logs, STORED=stored, LENGTH=length_of(n, logs))
    else:
        across = -(-inner // COLUMNS)
        units, per = x.size // (n * inner) * across, max(1, CHUNK // (n * min(inner, COLUMNS)))
        softmax_columns.run(-(-units // per), x, out, n, inner, across, units, per, LOG=logs, STORED=stored)
    return out


def along_grad(grad: np.ndarray, made: np.ndarray, dim: int, logs: bool) -> np.ndarray:
    """The gradient of `along`, whose result was `made`."""
    if not grad.flags.c_contiguous:
        grad = contiguous(grad)
    if not made.flags.c_contiguous:
        made = contiguous(made)
    n, inner = made.shape[dim], math.prod(made.shape[dim + 1 :] if dim >= 0 else made.shape[made.ndim + dim + 1 :])
    out = np.empty(made.shape, made.dtype)
    if inner == 1:
        rows, per = made.size // n, max(1, CHUNK // n)
        softmax_rows_grad.run(-(-rows // per), grad, made, out, rows, n, per, LOG=logs)
    else:
        across = -(-inner // COLUMNS)
        units, per = made.size // (n * inner) * across, max(1, CHUNK // (n * min(inner, COLUMNS)))
        softmax_columns_grad.run(-(-units // per), grad, made, out, n, inner, across, units, per, LOG=logs)
    return out
