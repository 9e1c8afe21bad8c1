"""Compiled normalization per channel, or per group of channels: batch, instance and group norm, forward and backward.

Arrays ``(N, C, L)`` are planes of L elements. Planes that share statistics form a unit: those of one channel in all
images (batch norm), or of neighbouring channels of one image (group norm). A chunk is some whole units, which are read
for their moments and again, mostly from a second-level cache, for the result.

Arrays ``(M, C)`` with channels innermost are walked in blocks of rows, each of which leaves its moments in rows of its
own; `column_moments` and `column_sums` put these together in the order of blocks.

Moments are found block by block, centred on the mean of the block, and merged; the order of all sums is that of `sums.py`. Sums over rows
are those of eight, added in pairs, and these in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.sums import BLOCK, lanes_of, merged, moments_of, wide, zeros
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
    vector,
    widened,
)
from flambeau_kernels.quiet import quietly
from flambeau_kernels.scalar.symbols import KINDS
from flambeau_kernels.vocabulary import fma, maximum, sqrt

from ..shapes.move import contiguous

__all__ = [
    "backward", "column_moments", "column_sums", "normalize", "normalize_columns", "normalize_columns_grad", "planned", "planned_columns",
    "planned_columns_given", "planned_given",
]  # fmt: skip

# Elements of a chunk: about 20 microseconds.
CHUNK = 32768


# -- planes ------------------------------------------------------------------------------------------------------------------


def store_channels(x, out, weight, bias, at, channel, left, middle, factor, KIND, WEIGHT, BIAS):
    """A vector of elements, or as many as are `left`, each of a channel of its own, normalized."""
    N = lanes(KIND)
    scale = broadcast(factor, N)
    scale = scale * load(weight, channel, N, left) if WEIGHT else scale
    shift = load(bias, channel, N, left) if BIAS else broadcast(KIND(0), N)
    store(out, at, fma(load(x, at, N, left) - middle, scale, shift), left)


@kernel(in_vectors=True)
def normalize_planes(chunk, x, weight, bias, out, mean, variance, inverse, units, per, channels, in_unit, planes, plane_step,
                     width, next_channel, eps, *, WEIGHT, BIAS, SINGLE):  # fmt: skip
    KIND = widened(mean)
    N = lanes(KIND)
    # Planes of a group lie side by side, so that their moments are those of one long plane.
    long_width = width * planes if next_channel == 1 else width
    for unit in range(chunk * per, min(units, chunk * per + per)):
        first = unit * in_unit * width
        count, centre, squares = 0.0, 0.0, 0.0
        for p in range(0, planes, planes if next_channel == 1 else 1):
            mean_here, squares_here = moments_of(x + (first + p * plane_step), long_width, KIND)
            centre, squares = merged(count, centre, squares, float64(long_width), mean_here, squares_here)
            count += float64(long_width)
        level = KIND(centre)
        spread = KIND(squares / count)
        factor = KIND(1) / sqrt(spread + KIND(eps))
        mean[unit] = level
        variance[unit] = spread
        inverse[unit] = factor
        middle = broadcast(level, N)
        if SINGLE:                                   # elements of neighbouring channels
            channel, tail = unit * in_unit % channels, planes // N * N
            for i in rolled(range(0, tail, N)):
                store_channels(x, out, weight, bias, first + i, channel + i, N, middle, factor, KIND, WEIGHT, BIAS)
            if tail < planes:
                store_channels(x, out, weight, bias, first + tail, channel + tail, planes - tail, middle, factor, KIND, WEIGHT, BIAS)
        for p in range(0 if SINGLE else planes):
            channel = unit * in_unit % channels + p * next_channel
            scale = broadcast(factor * weight[channel] if WEIGHT else factor, N)
            shift = broadcast(bias[channel] if BIAS else KIND(0), N)
            a, to = x + (first + p * plane_step), out + (first + p * plane_step)
            tail = width // N * N
            for i in rolled(range(0, tail, N)):
                store(to, i, fma(load(a, i, N) - middle, scale, shift))
            if tail < width:
                store(to, tail, fma(load(a, tail, N, width - tail) - middle, scale, shift), width - tail)


@kernel(in_vectors=True)
def normalize_planes_given(chunk, x, mean, variance, weight, bias, out, planes, per, channels, width, eps, *, WEIGHT, BIAS):
    KIND = widened(mean)
    N = lanes(KIND)
    tail = width // N * N
    for plane in range(chunk * per, min(planes, chunk * per + per)):
        channel = plane % channels
        factor = KIND(1) / sqrt(variance[channel] + KIND(eps))
        scale = broadcast(factor * weight[channel] if WEIGHT else factor, N)
        shift = broadcast(bias[channel] if BIAS else KIND(-0.0), N)
        middle = broadcast(mean[channel], N)
        a, to = x + plane * width, out + plane * width
        for i in rolled(range(0, tail, N)):
            store(to, i, (load(a, i, N) - middle) * scale + shift)
        if tail < width:
            store(to, tail, (load(a, tail, N, width - tail) - middle) * scale + shift, width - tail)


@kernel(in_vectors=True)
def normalize_planes_grad(chunk, grad, x, weight, mean, inverse, out, totals, alongs, units, per, channels, in_unit, planes,
                          plane_step, plane_index, width, next_channel, *, WEIGHT, INPUT):  # fmt: skip
    KIND = widened(mean)
    N = lanes_of(KIND)
    tail = width // N * N
    left = width - tail
    for unit in range(chunk * per, min(units, chunk * per + per)):
        first = unit * in_unit * width
        centre, factor = broadcast(mean[unit], N), inverse[unit]
        level, slope = 0.0, 0.0
        for p in range(planes):
            g, a = grad + (first + p * plane_step), x + (first + p * plane_step)
            total, along = broadcast(0.0, N), broadcast(0.0, N)
            for at in rolled(range(0, tail, BLOCK)):
                some, some_along = zeros(KIND), zeros(KIND)
                for i in rolled(range(at, min(tail, at + BLOCK), N)):
                    here = load(g, i, N)
                    some = some + here
                    some_along = fma(here, load(a, i, N) - centre, some_along)
                total, along = total + wide(some, KIND), along + wide(some_along, KIND)
            if tail < width:
                here = load(g, tail, N, left)
                total = total + wide(here, KIND)
                along = along + wide(here * (load(a, tail, N, left) - centre), KIND)
            total_here, along_here = lane_sum(total), lane_sum(along)
            totals[unit * in_unit + p * plane_index] = total_here
            alongs[unit * in_unit + p * plane_index] = along_here
            if WEIGHT:
                w = float64(weight[unit * in_unit % channels + p * next_channel])
                level += w * total_here
                slope += w * along_here
            else:
                level += total_here
                slope += along_here
        if INPUT:
            # d = inverse * (w g - mean(w g) - (x - mean) * inverse**2 * mean(w g (x - mean)))
            count = float64(planes * width)
            tilt = broadcast(-(factor * factor * factor) * KIND(slope / count), N)
            flat = broadcast(-factor * KIND(level / count), N)
            for p in range(planes):
                scale = broadcast(factor * weight[unit * in_unit % channels + p * next_channel] if WEIGHT else factor, N)
                at = first + p * plane_step
                g, a, to = grad + at, x + at, out + at
                for i in rolled(range(0, tail, N)):
                    store(to, i, fma(load(g, i, N), scale, fma(load(a, i, N) - centre, tilt, flat)))
                if tail < width:
                    rest = fma(load(a, tail, N, left) - centre, tilt, flat)
                    store(to, tail, fma(load(g, tail, N, left), scale, rest), left)


# -- columns -----------------------------------------------------------------------------------------------------------------


# Rows of an array of many that leave one row of sums, at least.
MANY_ROWS = 128
# Vectors of 64 bytes whose columns are added up together, so that memory is read by several lines.
WIDTH = 4


def row_of(p, row, columns, left, KIND, MASKED):
    """A vector of 64 bytes of a row, of which `left` elements are there if MASKED."""
    N = lanes_of(KIND)
    return load(p, row * columns, N, left) if MASKED else load(p, row * columns, N)


def sum_of_eight(v):
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))


def sum_of_products(p, q):
    """The sum of ``p[R] * q[R]`` of eight vectors each, in the order of `sum_of_eight`, where pairs are rounded once."""
    a, b = fma(p[4], q[4], p[0] * q[0]), fma(p[5], q[5], p[1] * q[1])
    c, d = fma(p[6], q[6], p[2] * q[2]), fma(p[7], q[7], p[3] * q[3])
    return (a + b) + (c + d)


def strip_moments(x, rows, columns, left, mean, square, KIND, W, MASKED):
    """The means of `W` vectors of columns and the sums of squared deviations from them, in float64."""
    N = lanes_of(KIND)
    count = float64(rows)
    totals, spreads, levels = local(vector(float64, N), W), local(vector(float64, N), W), local(vector(KIND, N), W)
    v, some = local(vector(KIND, N), 8), local(vector(KIND, N), W)
    eights = rows // 8 * 8
    for V in unroll(range(W)):
        totals[V], spreads[V] = broadcast(0.0, N), broadcast(0.0, N)
    for at in rolled(range(0, eights, 8)):
        for V in unroll(range(W)):
            for R in unroll(range(8)):
                v[R] = row_of(x + V * N, at + R, columns, left, KIND, MASKED)
            totals[V] = totals[V] + wide(sum_of_eight(v), KIND)
    for V in unroll(range(W)):
        some[V] = zeros(KIND)
    for r in rolled(range(eights, rows)):
        for V in unroll(range(W)):
            some[V] = some[V] + row_of(x + V * N, r, columns, left, KIND, MASKED)
    for V in unroll(range(W)):
        totals[V] = (totals[V] + wide(some[V], KIND)) / count
        levels[V], some[V] = vector(KIND, N)(totals[V]), zeros(KIND)
    for at in rolled(range(0, eights, 8)):
        for V in unroll(range(W)):
            for R in unroll(range(8)):
                v[R] = row_of(x + V * N, at + R, columns, left, KIND, MASKED) - levels[V]
            spreads[V] = spreads[V] + wide(sum_of_products(v, v), KIND)
    for r in rolled(range(eights, rows)):
        for V in unroll(range(W)):
            s = row_of(x + V * N, r, columns, left, KIND, MASKED) - levels[V]
            some[V] = fma(s, s, some[V])
    for V in unroll(range(W)):
        # The centre was rounded, so that deviations miss those from the mean by `deviation`.
        deviation = totals[V] - wide(levels[V], KIND)
        spread = maximum(spreads[V] + wide(some[V], KIND) - deviation * deviation * count, 0.0)
        put(mean, V * N, totals[V], left, MASKED)
        put(square, V * N, spread, left, MASKED)


def put(to, at, v, left, MASKED):
    if MASKED:
        store(to, at, v, left)
    else:
        store(to, at, v)


@kernel(in_vectors=True)
def column_block_moments(chunk, x, means, squares, rows, columns, per, *, KIND):
    first, strip = chunk * per, WIDTH * lanes_of(KIND)
    some, a, mean, square = min(per, rows - first), x + first * columns, means + chunk * columns, squares + chunk * columns
    tail = columns // strip * strip
    for c in rolled(range(0, tail, strip)):
        strip_moments(a + c, some, columns, strip, mean + c, square + c, KIND, WIDTH, False)
    for c in rolled(range(tail, columns, lanes_of(KIND))):
        strip_moments(a + c, some, columns, columns - c, mean + c, square + c, KIND, 1, True)


@kernel(in_vectors=True)
def join_column_moments(chunk, means, squares, mean, variance, rows, columns, per, blocks):
    """Moments of blocks of `per` rows, of which the last may be shorter, put together in order: the means and variances of columns."""
    KIND = widened(mean)
    N = lanes_of(float64)
    count = float64(rows)
    for c in rolled(range(0, columns, N)):
        total, spread = broadcast(0.0, N), broadcast(0.0, N)
        for k in rolled(range(blocks)):
            total = total + load(means, k * columns + c, N, columns - c) * (float64(min(per, rows - k * per)) / count)
        for k in rolled(range(blocks)):
            deviation = load(means, k * columns + c, N, columns - c) - total
            square = load(squares, k * columns + c, N, columns - c)
            spread = spread + (square + deviation * deviation * float64(min(per, rows - k * per)))
        store(mean, c, vector(KIND, N)(total), columns - c)
        store(variance, c, vector(KIND, N)(spread / count), columns - c)


def strip_sums(grad, x, rows, columns, left, mean, totals, alongs, KIND, W, MASKED):
    """Of `W` vectors of columns, the sums of `grad` and of ``grad * (x - mean)`` over rows, in float64."""
    N = lanes_of(KIND)
    total, along, centres = local(vector(float64, N), W), local(vector(float64, N), W), local(vector(KIND, N), W)
    g, v = local(vector(KIND, N), 8), local(vector(KIND, N), 8)
    some, some_along = local(vector(KIND, N), W), local(vector(KIND, N), W)
    eights = rows // 8 * 8
    for V in unroll(range(W)):
        total[V], along[V] = broadcast(0.0, N), broadcast(0.0, N)
        centres[V] = row_of(mean + V * N, 0, 0, left, KIND, MASKED)
    for at in rolled(range(0, eights, 8)):
        for V in unroll(range(W)):
            for R in unroll(range(8)):
                g[R] = row_of(grad + V * N, at + R, columns, left, KIND, MASKED)
                v[R] = row_of(x + V * N, at + R, columns, left, KIND, MASKED) - centres[V]
            total[V] = total[V] + wide(sum_of_eight(g), KIND)
            along[V] = along[V] + wide(sum_of_products(g, v), KIND)
    for V in unroll(range(W)):
        some[V], some_along[V] = zeros(KIND), zeros(KIND)
    for r in rolled(range(eights, rows)):
        for V in unroll(range(W)):
            here = row_of(grad + V * N, r, columns, left, KIND, MASKED)
            some[V] = some[V] + here
            some_along[V] = fma(here, row_of(x + V * N, r, columns, left, KIND, MASKED) - centres[V], some_along[V])
    for V in unroll(range(W)):
        put(totals, V * N, total[V] + wide(some[V], KIND), left, MASKED)
        put(alongs, V * N, along[V] + wide(some_along[V], KIND), left, MASKED)


@kernel(in_vectors=True)
def column_block_sums(chunk, grad, x, mean, totals, alongs, rows, columns, per, *, KIND):
    first, strip = chunk * per, WIDTH * lanes_of(KIND)
    some, total, along = min(per, rows - first), totals + chunk * columns, alongs + chunk * columns
    g, a = grad + first * columns, x + first * columns
    tail = columns // strip * strip
    for c in rolled(range(0, tail, strip)):
        strip_sums(g + c, a + c, some, columns, strip, mean + c, total + c, along + c, KIND, WIDTH, False)
    for c in rolled(range(tail, columns, lanes_of(KIND))):
        strip_sums(g + c, a + c, some, columns, columns - c, mean + c, total + c, along + c, KIND, 1, True)


@kernel(in_vectors=True)
def normalize_column_rows(chunk, x, mean, scale, shift, out, rows, columns, per):
    KIND = widened(mean)
    N = lanes(KIND)
    tail = columns // N * N
    left = columns - tail
    for r in rolled(range(chunk * per, min(rows, chunk * per + per))):
        a, to = x + r * columns, out + r * columns
        for c in rolled(range(0, tail, N)):
            store(to, c, fma(load(a, c, N) - load(mean, c, N), load(scale, c, N), load(shift, c, N)))
        if left > 0:
            s = load(a, tail, N, left) - load(mean, tail, N, left)
            store(to, tail, fma(s, load(scale, tail, N, left), load(shift, tail, N, left)), left)


def column_slope(g, x, mean, scale, slope, level, c, left, KIND):
    N = lanes(KIND)
    deviation = x - load(mean, c, N, left)
    return (g - load(level, c, N, left) - deviation * load(slope, c, N, left)) * load(scale, c, N, left)


@kernel(in_vectors=True)
def normalize_column_rows_grad(chunk, grad, x, mean, scale, slope, level, out, rows, columns, per):
    KIND = widened(mean)
    N = lanes(KIND)
    tail = columns // N * N
    left = columns - tail
    for r in rolled(range(chunk * per, min(rows, chunk * per + per))):
        g, a, to = grad + r * columns, x + r * columns, out + r * columns
        for c in rolled(range(0, tail, N)):
            store(to, c, column_slope(load(g, c, N), load(a, c, N), mean, scale, slope, level, c, N, KIND))
        if left > 0:
            here = column_slope(load(g, tail, N, left), load(a, tail, N, left), mean, scale, slope, level, tail, left, KIND)
            store(to, tail, here, left)


# -- from arrays -------------------------------------------------------------------------------------------------------------


def _kind(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def _units(shape: tuple[int, ...], groups: int | None) -> tuple[int, int, int, int, int, int]:
    """Units, and per chunk; planes from unit to unit, planes in one, elements from plane to plane, channels likewise."""
    n, c, width = shape
    units, in_unit, planes, step, next_channel = (c, 1, n, c * width, 0) if groups is None else (
        n * groups, c // groups, c // groups, width, 1)  # fmt: skip
    return units, max(1, CHUNK // (planes * width)), in_unit, planes, step, next_channel


def normalize(
    x: np.ndarray, weight: Any, bias: Any, groups: int | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``(N, C, L)`` normalized, and mean, variance and 1 / sqrt(variance + eps), ``(1, C)`` or ``(N, groups)``.

    Statistics are those of each channel of all images, or of each of `groups` of each image.
    """
    kinds = tuple(None if p is None else p.dtype for p in (weight, bias))
    run = planned(x.shape, x.dtype, x.shape, kinds, groups, eps)
    return run(contiguous(x), *(None if p is None else contiguous(p) for p in (weight, bias)))


def planned(
    images: tuple[int, ...], dtype: np.dtype, shape: tuple[int, ...], kinds: tuple[Any, ...], groups: int | None, eps: float
) -> Any:
    """``run(x, weight, bias)``, as `normalize` with results of `shape`.

    Args:
        images: the shape ``(N, C, L)`` that the elements of the contiguous `x` have.
        kinds: dtypes of weight and bias, or None.
    """
    units, per, in_unit, planes, step, next_channel = _units(images, groups)
    moments, kind = (1, units) if groups is None else (images[0], groups), _kind(dtype)
    chunks = -(-units // per)
    types = (dtype, *(kind if k is None else k for k in kinds), dtype, kind, kind, kind, *(int,) * 8, float)
    single = images[2] == 1 and next_channel == 1
    form = normalize_planes.form(types, {"WEIGHT": kinds[0] is not None, "BIAS": kinds[1] is not None, "SINGLE": single})
    numbers = (units, per, images[1], in_unit, planes, step, images[2], next_channel, float(eps))

    def run(x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any, Any]:
        out = np.empty(shape, dtype)
        mean, variance, inverse = np.empty(moments, kind), np.empty(moments, kind), np.empty(moments, kind)
        weight, bias = mean if weight is None else weight, mean if bias is None else bias
        form(chunks, False, x, weight, bias, out, mean, variance, inverse, *numbers)
        return out, mean, variance, inverse

    return run


def planned_given(images: tuple[int, ...], kind: np.dtype, shape: tuple[int, ...], weighted: bool, biased: bool, eps: float) -> Any:
    """``run(x, mean, variance, weight, bias)``: contiguous arrays of one dtype, normalized by given statistics of channels.

    Args:
        images: the shape ``(N, C, L)`` that the elements of the contiguous `x` have.
    """
    planes, per = images[0] * images[1], max(1, CHUNK // images[2])
    chunks, numbers = -(-planes // per), (planes, per, images[1], images[2], float(eps))
    form = normalize_planes_given.form((*(kind,) * 6, *(int,) * 4, float), {"WEIGHT": weighted, "BIAS": biased})

    def run(x: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
        out = np.empty(shape, kind)
        form(chunks, False, x, mean, variance, mean if weight is None else weight, mean if bias is None else bias, out, *numbers)
        return out

    return run


def backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, mean: np.ndarray, inverse: np.ndarray, groups: int | None, of_input: bool
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The gradient at the input, and for each plane the sums of the gradient and of it times ``x - mean``, ``(N, C)`` of float64."""
    grad, x = contiguous(grad), contiguous(x)
    units, per, in_unit, planes, step, next_channel = _units(x.shape, groups)
    totals, alongs = np.empty(x.shape[:2]), np.empty(x.shape[:2])
    out = np.empty(x.shape, x.dtype) if of_input else x
    normalize_planes_grad.run(
        -(-units // per), grad, x, mean if weight is None else contiguous(weight), mean, inverse, out, totals, alongs, units,
        per, x.shape[1], in_unit, planes, step, step // x.shape[2], x.shape[2], next_channel,
        WEIGHT=weight is not None, INPUT=of_input,
    )  # fmt: skip
    return out if of_input else None, totals, alongs


def _rows_of_block(rows: int, columns: int) -> int:
    """Rows that leave one row of sums: those of a chunk or, as putting the sums together takes time too, more of many."""
    return max(1, min(rows, max(CHUNK // columns, min(MANY_ROWS, -(-rows // 8)))))


def column_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and biased variance of the columns of a contiguous ``(M, C)`` array, ``(1, C)``."""
    rows, columns = x.shape
    per = _rows_of_block(rows, columns)
    blocks = -(-rows // per)
    kind = _kind(x.dtype)
    means, squares = np.empty((blocks, columns)), np.empty((blocks, columns))
    column_block_moments.run(blocks, x, means, squares, rows, columns, per, KIND=KINDS[kind.name])
    mean, variance = np.empty((1, columns), kind), np.empty((1, columns), kind)
    join_column_moments.run(1, means, squares, mean, variance, rows, columns, per, blocks)
    return mean, variance


def column_sums(grad: np.ndarray, x: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums of `grad` and of ``grad * (x - mean)`` along the columns of contiguous ``(M, C)`` arrays, ``(1, C)``."""
    rows, columns = x.shape
    per = _rows_of_block(rows, columns)
    blocks = -(-rows // per)
    totals, alongs = np.empty((blocks, columns)), np.empty((blocks, columns))
    column_block_sums.run(blocks, grad, x, contiguous(mean), totals, alongs, rows, columns, per, KIND=KINDS[mean.dtype.name])
    total, along = (np.add.reduce(sums, axis=0, keepdims=True) for sums in (totals, alongs))
    return total.astype(mean.dtype, copy=False), along.astype(mean.dtype, copy=False)


def planned_columns_given(x: np.ndarray, weighted: bool, biased: bool, eps: float) -> Any:
    """``run(x, mean, variance, weight, bias)``: matrices like `x` of float32 or float64, normalized by given statistics of columns."""
    (rows, columns), kind = x.shape, x.dtype
    per, small, no_bias = max(1, CHUNK // columns), kind.type(eps), np.full(columns, -0.0, kind)
    form, chunks = normalize_column_rows.form((kind,) * 5 + (int,) * 3, {}), -(-rows // per)

    @quietly
    def run(x: Any, mean: Any, variance: Any, weight: Any, bias: Any) -> Any:
        scale = 1 / np.sqrt(variance + small)
        out = np.empty(x.shape, kind)
        form(chunks, False, x, mean, scale * weight if weighted else scale, bias if biased else no_bias, out, rows, columns, per)
        return out

    return run


def planned_columns(x: np.ndarray, weighted: bool, biased: bool, eps: float) -> Any:
    """``run(x, weight, bias)``: matrices like `x`, likewise, by the statistics that `column_moments` finds, and these."""
    (rows, columns), kind = x.shape, x.dtype
    per, small, no_bias = max(1, CHUNK // columns), kind.type(eps), np.full(columns, -0.0, kind)
    form, chunks = normalize_column_rows.form((kind,) * 5 + (int,) * 3, {}), -(-rows // per)

    @quietly
    def run(x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any, Any]:
        mean, variance = column_moments(x)
        inverse = 1 / np.sqrt(variance + small)
        out = np.empty(x.shape, kind)
        form(chunks, False, x, mean, inverse * weight if weighted else inverse, bias if biased else no_bias, out, rows, columns, per)
        return out, mean, variance, inverse

    return run


def normalize_columns(x: np.ndarray, mean: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``(x - mean) * scale + shift`` for a contiguous ``(M, C)`` array and numbers ``(1, C)`` for its columns."""
    rows, columns = x.shape
    out = np.empty(x.shape, x.dtype)
    per = max(1, CHUNK // columns)
    numbers = (contiguous(p) for p in (mean, scale, shift))
    normalize_column_rows.run(-(-rows // per), x, *numbers, out, rows, columns, per)
    return out


def normalize_columns_grad(
    grad: np.ndarray, x: np.ndarray, mean: np.ndarray, scale: np.ndarray, slope: np.ndarray, level: np.ndarray
) -> np.ndarray:
    """``(grad - level - (x - mean) * slope) * scale``, likewise."""
    rows, columns = x.shape
    out = np.empty(x.shape, x.dtype)
    per = max(1, CHUNK // columns)
    numbers = (contiguous(p) for p in (mean, scale, slope, level))
    normalize_column_rows_grad.run(-(-rows // per), grad, x, *numbers, out, rows, columns, per)
    return out
