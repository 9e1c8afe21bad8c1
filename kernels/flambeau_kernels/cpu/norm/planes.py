"""Compiled normalization per channel, or per group of channels: batch, instance and group norm, forward and backward.

Arrays ``(N, C, L)`` are planes of L elements. Planes that share statistics form a unit: those of one channel in all
images (batch norm), or of neighbouring channels of one image (group norm). A chunk is some whole units, which are read
for their moments and again, mostly from a second-level cache, for the result.

Arrays ``(M, C)`` with channels innermost are walked in blocks of rows, each of which leaves its moments in rows of its
own; `column_moments` and `column_sums` put these together in the order of blocks.

Moments are found block by block, centred on the mean of the block, and merged; the order of all sums is that of `sums.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.sums import BLOCK, ROWS, lanes_of, merged, moments_of, wide, zeros
from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    kernel,
    lane_sum,
    lanes,
    load,
    rolled,
    store,
    vector,
    widened,
)
from flambeau_kernels.scalar.symbols import KINDS
from flambeau_kernels.vocabulary import fma, maximum, sqrt

__all__ = ["backward", "column_moments", "column_sums", "normalize", "normalize_columns", "normalize_columns_grad"]

# Elements of a chunk: about 20 microseconds.
CHUNK = 32768


# -- planes ------------------------------------------------------------------------------------------------------------------


@kernel(in_vectors=True)
def normalize_planes(chunk, x, weight, bias, out, mean, variance, inverse, units, per, channels, in_unit, planes, plane_step,
                     width, next_channel, eps, *, WEIGHT, BIAS):  # fmt: skip
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
        for p in range(planes):
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


@kernel(in_vectors=True)
def column_block_moments(chunk, x, means, squares, rows, columns, per, *, KIND):
    N = lanes_of(KIND)
    first = chunk * per
    last = min(rows, first + per)
    mean, square = means + chunk * columns, squares + chunk * columns
    count = float64(last - first)
    for c in rolled(range(0, columns, N)):
        total = broadcast(0.0, N)
        for at in rolled(range(first, last, ROWS)):
            some = zeros(KIND)
            for r in rolled(range(at, min(last, at + ROWS))):
                some = some + load(x, r * columns + c, N, columns - c)
            total = total + wide(some, KIND)
        centre = total / count
        level = vector(KIND, N)(centre)
        spread = broadcast(0.0, N)
        for at in rolled(range(first, last, ROWS)):
            some = zeros(KIND)
            for r in rolled(range(at, min(last, at + ROWS))):
                s = load(x, r * columns + c, N, columns - c) - level
                some = fma(s, s, some)
            spread = spread + wide(some, KIND)
        # The centre was rounded, so that deviations miss those from the mean by `deviation`.
        deviation = centre - wide(level, KIND)
        store(mean, c, centre, columns - c)
        store(square, c, maximum(spread - deviation * deviation * count, 0.0), columns - c)


@kernel(in_vectors=True)
def column_block_sums(chunk, grad, x, mean, totals, alongs, rows, columns, per, *, KIND):
    N = lanes_of(KIND)
    first = chunk * per
    last = min(rows, first + per)
    for c in rolled(range(0, columns, N)):
        total, along = broadcast(0.0, N), broadcast(0.0, N)
        centre = load(mean, c, N, columns - c)
        for at in rolled(range(first, last, ROWS)):
            some, some_along = zeros(KIND), zeros(KIND)
            for r in rolled(range(at, min(last, at + ROWS))):
                g = load(grad, r * columns + c, N, columns - c)
                some = some + g
                some_along = fma(g, load(x, r * columns + c, N, columns - c) - centre, some_along)
            total, along = total + wide(some, KIND), along + wide(some_along, KIND)
        store(totals, chunk * columns + c, total, columns - c)
        store(alongs, chunk * columns + c, along, columns - c)


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


def _contiguous(a: np.ndarray) -> np.ndarray:
    return a if a.flags.c_contiguous else np.ascontiguousarray(a)


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
    return run(_contiguous(x), *(None if p is None else _contiguous(p) for p in (weight, bias)))


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
    form = normalize_planes.form(types, {"WEIGHT": kinds[0] is not None, "BIAS": kinds[1] is not None})
    numbers = (units, per, images[1], in_unit, planes, step, images[2], next_channel, float(eps))

    def run(x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any, Any]:
        out = np.empty(shape, dtype)
        mean, variance, inverse = np.empty(moments, kind), np.empty(moments, kind), np.empty(moments, kind)
        weight, bias = mean if weight is None else weight, mean if bias is None else bias
        form(chunks, False, x, weight, bias, out, mean, variance, inverse, *numbers)
        return out, mean, variance, inverse

    return run


def backward(
    grad: np.ndarray, x: np.ndarray, weight: Any, mean: np.ndarray, inverse: np.ndarray, groups: int | None, of_input: bool
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The gradient at the input, and for each plane the sums of the gradient and of it times ``x - mean``, ``(N, C)`` of float64."""
    grad, x = _contiguous(grad), _contiguous(x)
    units, per, in_unit, planes, step, next_channel = _units(x.shape, groups)
    totals, alongs = np.empty(x.shape[:2]), np.empty(x.shape[:2])
    out = np.empty(x.shape, x.dtype) if of_input else x
    normalize_planes_grad.run(
        -(-units // per), grad, x, mean if weight is None else _contiguous(weight), mean, inverse, out, totals, alongs, units,
        per, x.shape[1], in_unit, planes, step, step // x.shape[2], x.shape[2], next_channel,
        WEIGHT=weight is not None, INPUT=of_input,
    )  # fmt: skip
    return out if of_input else None, totals, alongs


def column_moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and biased variance of the columns of a contiguous ``(M, C)`` array, ``(1, C)``."""
    rows, columns = x.shape
    per = max(1, min(rows, CHUNK // columns))
    blocks = -(-rows // per)
    kind = _kind(x.dtype)
    means, squares = np.empty((2, blocks, columns))
    column_block_moments.run(blocks, x, means, squares, rows, columns, per, KIND=KINDS[kind.name])
    if blocks > 1:
        sizes = np.full((blocks, 1), float(per))
        sizes[-1] = rows - per * (blocks - 1)
        mean = np.add.reduce(means * (sizes / rows), axis=0, keepdims=True)
        deviation = means - mean
        means, squares = mean, np.add.reduce(squares + deviation * deviation * sizes, axis=0, keepdims=True)
    return means.astype(kind, copy=False), (squares / rows).astype(kind, copy=False)


def column_sums(grad: np.ndarray, x: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sums of `grad` and of ``grad * (x - mean)`` along the columns of contiguous ``(M, C)`` arrays, ``(1, C)``."""
    rows, columns = x.shape
    per = max(1, min(rows, CHUNK // columns))
    blocks = -(-rows // per)
    totals, alongs = np.empty((2, blocks, columns))
    column_block_sums.run(blocks, grad, x, _contiguous(mean), totals, alongs, rows, columns, per, KIND=KINDS[mean.dtype.name])
    total, along = (np.add.reduce(sums, axis=0, keepdims=True) for sums in (totals, alongs))
    return total.astype(mean.dtype, copy=False), along.astype(mean.dtype, copy=False)


def normalize_columns(x: np.ndarray, mean: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``(x - mean) * scale + shift`` for a contiguous ``(M, C)`` array and numbers ``(1, C)`` for its columns."""
    rows, columns = x.shape
    out = np.empty(x.shape, x.dtype)
    per = max(1, CHUNK // columns)
    numbers = (_contiguous(p) for p in (mean, scale, shift))
    normalize_column_rows.run(-(-rows // per), x, *numbers, out, rows, columns, per)
    return out


def normalize_columns_grad(
    grad: np.ndarray, x: np.ndarray, mean: np.ndarray, scale: np.ndarray, slope: np.ndarray, level: np.ndarray
) -> np.ndarray:
    """``(grad - level - (x - mean) * slope) * scale``, likewise."""
    rows, columns = x.shape
    out = np.empty(x.shape, x.dtype)
    per = max(1, CHUNK // columns)
    numbers = (_contiguous(p) for p in (mean, scale, slope, level))
    normalize_column_rows_grad.run(-(-rows // per), grad, x, *numbers, out, rows, columns, per)
    return out
