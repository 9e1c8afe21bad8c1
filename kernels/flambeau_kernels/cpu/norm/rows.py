"""Compiled normalization of rows: layer_norm and rms_norm, forward and backward.

A chunk is some whole rows. A row is read in blocks, each again from a first-level cache: for its mean and for its variance (of
centred elements, so that a large mean costs no digits), while the memory of its result is asked for; then for the result. Backward, each
chunk also adds up its part of the gradients of weight and bias in rows of its own, which are added in the order of chunks; where
a chunk has more than `ROWS` rows, it adds those of as many up in a row of float64. The order of all sums is that of `sums.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.sums import (
    BLOCK,
    ROWS,
    add_row,
    block_mean,
    block_squares,
    clear_row,
    eight,
    lanes_of,
    last_sum,
    moments_of,
    square,
    sum_of,
    wide,
    zeros,
)
from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    rolled,
    store,
    unroll,
    widened,
)
from flambeau_kernels.vocabulary import fma, sqrt

from ..shapes.move import contiguous

__all__ = ["backward", "normalize", "normalize_row", "planned"]

# Elements of a chunk: about 20 microseconds.
CHUNK = 32768
# Short rows that are normalized together, at most.
TOGETHER = 16
# Chunks of a backward pass at most: each leaves a row for weight and one for bias.
CHUNKS_BACKWARD = 64


def normal_lanes(x, centre, factor, weight, bias, i, left, KIND, WEIGHT, BIAS):
    N = lanes(KIND)
    y = (x - centre) * factor
    y = y * load(weight, i, N, left) if WEIGHT else y
    return y + load(bias, i, N, left) if BIAS else y


def normalize_row(a, to, weight, bias, d, eps, KIND, CENTRED, WEIGHT, BIAS):
    """One row normalized to `to`. Returns: its mean, its variance and ``1 / sqrt(variance + eps)``."""
    middle, squares = moments_of(a, d, KIND, to) if CENTRED else (0.0, sum_of(a, d, KIND(0), square, False, KIND))
    centre, spread, factor = scale_of(middle, squares, d, eps, KIND)
    store_row(a, to, weight, bias, 0, d, centre, factor, KIND, WEIGHT, BIAS)
    return centre, spread, factor


def scale_of(middle, squares, d, eps, KIND):
    """The mean of a row, its variance and ``1 / sqrt(variance + eps)``, from its mean and sum of squares in float64."""
    spread = KIND(squares / float64(d))
    return KIND(middle), spread, KIND(1) / sqrt(spread + KIND(eps))


def store_row(a, to, weight, bias, first, d, centre, factor, KIND, WEIGHT, BIAS):
    """Elements `first` to `d` of a row, normalized; `first` is a multiple of a vector."""
    N = lanes(KIND)
    tail = d // N * N
    level, scale = broadcast(centre, N), broadcast(factor, N)
    for i in rolled(range(first, tail, N)):
        store(to, i, normal_lanes(load(a, i, N), level, scale, weight, bias, i, N, KIND, WEIGHT, BIAS))
    if tail < d:
        left = d - tail
        last = normal_lanes(load(a, tail, N, left), level, scale, weight, bias, tail, left, KIND, WEIGHT, BIAS)
        store(to, tail, last, left)


def store_row_and_sum(a, to, following, weight, bias, d, centre, factor, KIND, WEIGHT, BIAS):
    """`store_row`, and meanwhile the sum of the row `following`, in the order of `sum_of`: memory is read and written at once."""
    N, L = lanes(KIND), lanes_of(KIND)
    level, scale, total = broadcast(centre, N), broadcast(factor, N), broadcast(0.0, L)
    eights = d // (8 * L) * (8 * L)
    for i in rolled(range(0, eights, 8 * L)):
        total = total + wide(eight(following, i, zeros(KIND), None, False, L, False), KIND)
        for K in unroll(range(8 * L // N)):
            j = i + K * N
            store(to, j, normal_lanes(load(a, j, N), level, scale, weight, bias, j, N, KIND, WEIGHT, BIAS))
    store_row(a, to, weight, bias, eights, d, centre, factor, KIND, WEIGHT, BIAS)
    made = lane_sum(total)
    if eights < d:
        made = made + last_sum(following, eights, d, KIND(0), None, False, KIND)
    return made


@kernel(in_vectors=True)
def normalize_rows(chunk, x, weight, bias, out, mean, variance, inverse, rows, d, per, eps, *, CENTRED, WEIGHT, BIAS, LENGTH):
    KIND = widened(mean)
    first, last = chunk * per, min(rows, chunk * per + per)
    if LENGTH == "short":
        # Several rows take each step together, so that none waits for its own sums and root. What they have in common is the cache.
        middles, squares = local(float64, TOGETHER), local(float64, TOGETHER)
        several = min(TOGETHER, BLOCK // d)
        for row in rolled(range(first, last, several)):
            count = min(several, last - row)
            a, to = x + row * d, out + row * d
            for r in rolled(range(count)):
                middles[r] = block_mean(a + r * d, d, KIND(0), False, KIND) if CENTRED else 0.0
            for r in rolled(range(count)):
                here = a + r * d
                squares[r] = block_squares(here, d, middles[r], KIND) if CENTRED else sum_of(here, d, KIND(0), square, False, KIND)
            for r in rolled(range(count)):
                centre, spread, factor = scale_of(middles[r], squares[r], d, eps, KIND)
                store_row(a + r * d, to + r * d, weight, bias, 0, d, centre, factor, KIND, WEIGHT, BIAS)
                mean[row + r] = centre
                variance[row + r] = spread
                inverse[row + r] = factor
    elif LENGTH == "block":
        total = sum_of(x + first * d, d, KIND(0), None, False, KIND)
        for row in rolled(range(first, last)):
            a, to = x + row * d, out + row * d
            middle = total / float64(d)
            centre, spread, factor = scale_of(middle, block_squares(a, d, middle, KIND, to), d, eps, KIND)
            mean[row] = centre
            variance[row] = spread
            inverse[row] = factor
            following = a + min(1, last - 1 - row) * d
            total = store_row_and_sum(a, to, following, weight, bias, d, centre, factor, KIND, WEIGHT, BIAS)
    else:
        for row in rolled(range(first, last)):
            centre, spread, factor = normalize_row(x + row * d, out + row * d, weight, bias, d, eps, KIND, CENTRED, WEIGHT, BIAS)
            mean[row] = centre
            variance[row] = spread
            inverse[row] = factor


def length_of(d: int, centred: bool) -> str:
    """How rows of `d` elements are normalized: several 'short' ones together; each while the next is added up, if it is no longer than
    a 'block'; or one after the other, if they are 'long', or not centred and so read once less."""
    if (3 if centred else 2) * d <= BLOCK:
        return "short"
    return "block" if centred and d <= BLOCK else "long"


def add_slopes(g, x, centre, factor, weight, to_weight, to_bias, i, left, KIND, WEIGHT, OF_WEIGHT, OF_BIAS):
    """Add a vector to the gradients of weight and bias; it is weighted, and its normalized input."""
    N = lanes_of(KIND)
    unit = (x - centre) * factor
    if OF_WEIGHT:
        store(to_weight, i, fma(g, unit, load(to_weight, i, N, left)), left)
    if OF_BIAS:
        store(to_bias, i, g + load(to_bias, i, N, left), left)
    return g * load(weight, i, N, left) if WEIGHT else g, unit


def add_several(w_total, w_here, b_total, b_here, d, enough, OF_WEIGHT, OF_BIAS):
    if enough:
        if OF_WEIGHT:
            add_row(w_total, w_here, d)
        if OF_BIAS:
            add_row(b_total, b_here, d)


@kernel(in_vectors=True)
def normalize_rows_grad(chunk, grad, x, weight, mean, inverse, out, to_weight, to_bias, weight_sums, bias_sums, rows, d, per,
                        *, CENTRED, WEIGHT, INPUT, OF_WEIGHT, OF_BIAS, TOTALS):  # fmt: skip
    KIND = widened(mean)
    N = lanes_of(KIND)
    tail = d // N * N
    left = d - tail
    w_here, b_here, w_total, b_total = weight_sums + chunk * d, bias_sums + chunk * d, to_weight + chunk * d, to_bias + chunk * d
    if OF_WEIGHT:
        clear_row(w_here, d)
        if TOTALS:
            clear_row(w_total, d)
    if OF_BIAS:
        clear_row(b_here, d)
        if TOTALS:
            clear_row(b_total, d)
    first = chunk * per
    last = min(rows, first + per)
    for row in range(first, last):
        g, a, to = grad + row * d, x + row * d, out + row * d
        centre, factor = broadcast(mean[row], N), broadcast(inverse[row], N)
        level, slope = broadcast(0.0, N), broadcast(0.0, N)
        for at in rolled(range(0, tail, BLOCK)):
            level_here, slope_here = zeros(KIND), zeros(KIND)
            for i in rolled(range(at, min(tail, at + BLOCK), N)):
                here, unit = add_slopes(load(g, i, N), load(a, i, N), centre, factor, weight, w_here, b_here, i, N,
                                        KIND, WEIGHT, OF_WEIGHT, OF_BIAS)  # fmt: skip
                level_here = level_here + here
                slope_here = fma(here, unit, slope_here)
            level = level + wide(level_here, KIND)
            slope = slope + wide(slope_here, KIND)
        if tail < d:
            here, unit = add_slopes(load(g, tail, N, left), load(a, tail, N, left), centre, factor, weight,
                                    w_here, b_here, tail, left, KIND, WEIGHT, OF_WEIGHT, OF_BIAS)  # fmt: skip
            level = level + wide(here, KIND)
            slope = slope + wide(here * unit, KIND)
        if TOTALS:
            enough = (row - first) % ROWS == ROWS - 1 or row == last - 1
            add_several(w_total, w_here, b_total, b_here, d, enough, OF_WEIGHT, OF_BIAS)
        if INPUT:
            flat = broadcast(KIND(lane_sum(level) / float64(d)) if CENTRED else KIND(0), N)
            tilt = broadcast(KIND(lane_sum(slope) / float64(d)), N)
            for i in rolled(range(0, tail, N)):
                here = load(g, i, N) * load(weight, i, N) if WEIGHT else load(g, i, N)
                unit = (load(a, i, N) - centre) * factor
                store(to, i, ((here - flat) - unit * tilt) * factor)
            if tail < d:
                here = load(g, tail, N, left) * load(weight, tail, N, left) if WEIGHT else load(g, tail, N, left)
                unit = (load(a, tail, N, left) - centre) * factor
                store(to, tail, ((here - flat) - unit * tilt) * factor, left)


# -- from arrays -------------------------------------------------------------------------------------------------------------


def _kind(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def normalize(rows: np.ndarray, weight: Any, bias: Any, eps: float, centred: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``(n, d)`` rows normalized, and mean, variance and 1 / sqrt(variance + eps) of each, ``(n, 1)``."""
    rows = contiguous(rows)
    n, d = rows.shape
    out = np.empty((n, d), rows.dtype)
    mean, variance, inverse = np.empty((3, n, 1), _kind(rows.dtype))
    per = max(1, CHUNK // d)
    normalize_rows.run(
        -(-n // per), rows, mean if weight is None else contiguous(weight), mean if bias is None else contiguous(bias),
        out, mean, variance, inverse, n, d, per, float(eps),
        CENTRED=centred, WEIGHT=weight is not None, BIAS=bias is not None, LENGTH=length_of(d, centred),
    )  # fmt: skip
    return out, mean, variance, inverse


def planned(n: int, d: int, dtype: np.dtype, shape: Any, eps: float, centred: bool, weighted: bool, biased: bool) -> Any:
    """``run(x, weight, bias)``, as `normalize` with results of `shape`, for contiguous arrays of one dtype."""
    kind, per = _kind(dtype), max(1, CHUNK // d)
    chunks = -(-n // per)
    types = (dtype, dtype if weighted else kind, dtype if biased else kind, dtype, kind, kind, kind, int, int, int, float)
    form = normalize_rows.form(types, {"CENTRED": centred, "WEIGHT": weighted, "BIAS": biased, "LENGTH": length_of(d, centred)})

    def run(x: Any, weight: Any, bias: Any) -> Any:
        out = np.empty(shape, dtype)
        mean, variance, inverse = np.empty((n, 1), kind), np.empty((n, 1), kind), np.empty((n, 1), kind)
        weight, bias = mean if weight is None else weight, mean if bias is None else bias
        form(chunks, False, x, weight, bias, out, mean, variance, inverse, n, d, per, eps)
        return out, mean, variance, inverse

    return run


def backward(
    grad: np.ndarray, rows: np.ndarray, weight: Any, mean: np.ndarray, inverse: np.ndarray, wants: tuple[bool, bool, bool],
    centred: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients for rows, weight and bias, those that `wants` names."""
    grad, rows = contiguous(grad), contiguous(rows)
    n, d = rows.shape
    per = max(1, CHUNK // d, -(-n // CHUNKS_BACKWARD))
    chunks = -(-n // per)
    out = np.empty((n, d), rows.dtype) if wants[0] else rows
    totals = (wants[1] or wants[2]) and per > ROWS
    weight_sums, bias_sums = (np.empty((chunks, d), mean.dtype) if wanted else mean for wanted in wants[1:])
    to_weight, to_bias = weight_sums, bias_sums
    if totals:
        to_weight, to_bias = (np.empty((chunks, d)) if wanted else np.empty(0) for wanted in wants[1:])
    normalize_rows_grad.run(
        chunks, grad, rows, mean if weight is None else contiguous(weight), mean, inverse, out, to_weight, to_bias,
        weight_sums, bias_sums, n, d, per,
        CENTRED=centred, WEIGHT=weight is not None, INPUT=wants[0], OF_WEIGHT=wants[1], OF_BIAS=wants[2], TOTALS=totals,
    )  # fmt: skip
    return (
        out if wants[0] else None,
        np.add.reduce(to_weight, axis=0).astype(mean.dtype, copy=False) if wants[1] else None,
        np.add.reduce(to_bias, axis=0).astype(mean.dtype, copy=False) if wants[2] else None,
    )
