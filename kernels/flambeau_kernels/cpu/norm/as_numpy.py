"""Normalization of rows with few elements in all, by a handful of numpy calls, and by a kernel with the same bits.

Elements are added in numpy's order: eight partial sums in turns, added in pairs, then the elements left over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import kernel, local, unroll, widened
from flambeau_kernels.engines import kept
from flambeau_kernels.quiet import quietly
from flambeau_kernels.vocabulary import sqrt

from ..taking_over import late, numpy_until_kernel

__all__ = ["backward", "by_given", "channels", "groups", "normalize", "planned", "planned_backward", "planned_channels", "planned_moves"]

LANES = 8
MOST = 128  # elements

_total: Any = np.add.reduce  # because numpy's stubs know no positional `keepdims`


def normalize(rows: np.ndarray, weight: Any, bias: Any, eps: Any, centred: bool) -> tuple[Any, Any, Any, Any]:
    """``(n, d)`` float rows normalized, and mean, variance and 1 / sqrt(variance + eps) of each, ``(n, 1)``."""
    n, d = rows.shape
    count = np.array(d, rows.dtype)
    if centred:
        mean = _total(rows, 1, None, None, True)
        mean /= count
        deviation = rows - mean
    else:
        mean, deviation = np.zeros((n, 1), rows.dtype), rows
    variance = _total(deviation * deviation, 1, None, None, True)
    variance /= count
    inverse = variance + rows.dtype.type(eps)
    np.sqrt(inverse, inverse)
    np.divide(1, inverse, inverse)
    out = deviation * inverse
    if weight is not None:
        out *= weight
    if bias is not None:
        out += bias
    return out, mean, variance, inverse


def backward(
    grad: np.ndarray, rows: np.ndarray, weight: Any, mean: Any, inverse: Any, wants: tuple[bool, bool, bool], centred: bool
) -> tuple[Any, Any, Any]:
    """Gradients of `normalize` for rows, weight and bias, those that `wants` names."""
    unit = rows - mean
    unit *= inverse
    to_rows, to_weight, to_bias = None, None, None
    if wants[1]:
        to_weight = _total(grad * unit, 0)
    if wants[2]:
        to_bias = _total(grad, 0)
    if wants[0]:
        count = np.array(rows.shape[1], rows.dtype)
        to_rows = grad.copy() if weight is None else grad * weight
        slope = _total(to_rows * unit, 1, None, None, True)
        slope /= count
        if centred:
            level = _total(to_rows, 1, None, None, True)
            level /= count
            to_rows -= level
        unit *= slope
        to_rows -= unit
        to_rows *= inverse
    return to_rows, to_weight, to_bias


@quietly
def groups(x: np.ndarray, count: int, weight: Any, bias: Any, eps: Any) -> tuple[Any, Any, Any, Any]:
    """``(N, C, *)`` with each of `count` groups of channels of each image normalized, and the moments ``(N, count)``."""
    rows = (len(x) * count, x.size // (len(x) * count))
    out, *moments = normalize(x.reshape(rows), None, None, eps, True)
    out = out.reshape(x.shape)
    _scale_channels(out, weight, bias)
    return out, *(m.reshape(len(x), count) for m in moments)


@quietly
def channels(x: np.ndarray, weight: Any, bias: Any, eps: Any) -> tuple[Any, Any, Any, Any]:
    """``(N, C, *)`` with each channel of all images normalized, and mean, variance and 1 / sqrt(variance + eps), ``(1, C)``."""
    c, axes = x.shape[1], (0, *range(2, x.ndim)) if x.ndim > 2 else 0
    count = np.array(x.size // c, x.dtype)
    mean = _total(x, axes, None, None, True)
    mean /= count
    out = x - mean
    variance = _total(out * out, axes, None, None, True)
    variance /= count
    inverse = variance + x.dtype.type(eps)
    np.sqrt(inverse, inverse)
    np.divide(1, inverse, inverse)
    out *= inverse
    _scale_channels(out, weight, bias)
    return out, mean.reshape(1, c), variance.reshape(1, c), inverse.reshape(1, c)


@quietly
def by_given(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, weight: Any, bias: Any, eps: Any) -> np.ndarray:
    """``(N, C, *)`` normalized by given statistics ``(C,)`` of the same dtype."""
    scale = variance + x.dtype.type(eps)
    np.sqrt(scale, scale)
    np.divide(1, scale, scale)
    if weight is not None:
        scale *= weight
    if x.ndim > 2:
        across = (-1, *(1,) * (x.ndim - 2))
        mean, scale, bias = mean.reshape(across), scale.reshape(across), None if bias is None else bias.reshape(across)
    out = x - mean
    out *= scale
    if bias is not None:
        out += bias
    return out


@kernel
def move_running_as_numpy(chunk, mean, variance, found_mean, found_variance, channels, step, unbias, *, MEAN, VARIANCE):
    KIND = widened(found_mean)
    for i in range(channels):
        if MEAN:
            mean[i] = mean[i] + (found_mean[i] - mean[i]) * KIND(step)
        if VARIANCE:
            variance[i] = variance[i] + (found_variance[i] * KIND(unbias) - variance[i]) * KIND(step)


def planned_moves(channels: int, kind: np.dtype, momentum: float, count: int, mean: bool, variance: bool) -> Any:
    """``run(running mean, running variance, mean, variance)`` moves running statistics towards those found of `count` numbers each.

    Args:
        mean, variance: whether these are there to be moved.
    """
    step, unbias = kind.type(momentum), kind.type(count / (count - 1))

    def around(form: Any) -> Any:
        def by_kernel(running_mean: Any, running_var: Any, mean: Any, variance: Any) -> bool:
            form(
                1, False, mean if running_mean is None else running_mean, mean if running_var is None else running_var, mean, variance,
                channels, step, unbias,
            )  # fmt: skip
            return True

        return by_kernel

    moved = late(move_running_as_numpy, (*(kind,) * 4, int, float, float), {"MEAN": mean, "VARIANCE": variance}, around)

    def run(running_mean: Any, running_var: Any, mean: Any, variance: Any) -> None:
        if moved(running_mean, running_var, mean, variance) is None:
            if running_mean is not None:
                _move(running_mean, mean.reshape(-1), step)
            if running_var is not None:
                _move(running_var, (variance * unbias).reshape(-1), step)

    return run


def _move(running: Any, found: Any, momentum: Any) -> None:
    difference = found - running
    difference *= momentum
    running += difference


def _scale_channels(out: np.ndarray, weight: Any, bias: Any) -> None:
    across = (-1, *(1,) * (out.ndim - 2))
    if weight is not None:
        out *= weight.reshape(across)
    if bias is not None:
        out += bias.reshape(across)


def row_total(x, n, centre, KIND, SQUARED):
    """The sum of ``x - centre``, or of its squares, in numpy's order."""
    sums = local(KIND, LANES)
    tail = n // LANES * LANES
    total = KIND(-0.0)
    if tail > 0:
        for j in unroll(range(LANES)):
            a = x[j] - centre
            sums[j] = a * a if SQUARED else x[j]
        for i in range(LANES, tail, LANES):
            for j in unroll(range(LANES)):
                b = x[i + j] - centre
                sums[j] = sums[j] + (b * b if SQUARED else x[i + j])
        total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
    for i in range(tail, n):
        c = x[i] - centre
        total = total + (c * c if SQUARED else x[i])
    return KIND(0) + total


@kernel
def normalize_as_numpy(chunk, x, weight, bias, out, mean, variance, inverse, rows, d, eps, *, CENTRED, WEIGHT, BIAS):
    KIND = widened(mean)
    for row in range(rows):
        a, to = x + row * d, out + row * d
        centre = row_total(a, d, KIND(0), KIND, False) / KIND(d) if CENTRED else KIND(0)
        spread = row_total(a, d, centre, KIND, True) / KIND(d)
        factor = KIND(1) / sqrt(spread + KIND(eps))
        mean[row] = centre
        variance[row] = spread
        inverse[row] = factor
        for i in range(d):
            y = (a[i] - centre) * factor if CENTRED else a[i] * factor
            y = y * weight[i] if WEIGHT else y
            to[i] = y + bias[i] if BIAS else y


def planned(n: int, d: int, dtype: np.dtype, shape: Any, eps: float, centred: bool, weighted: bool, biased: bool) -> Any:
    """``run(x, weight, bias)``, as `normalize` with results of `shape`, for contiguous arrays."""

    def by_numpy(x: Any, weight: Any, bias: Any) -> Any:
        weight, bias = (None if p is None else p.reshape(-1) for p in (weight, bias))
        out, *moments = normalize(x.reshape(n, d), weight, bias, eps, centred)
        return out.reshape(shape), *moments

    def around(form: Any) -> Any:
        def by_kernel(x: Any, weight: Any, bias: Any) -> Any:
            out = np.empty(shape, dtype)
            mean, variance, inverse = np.empty((n, 1), dtype), np.empty((n, 1), dtype), np.empty((n, 1), dtype)
            form(1, False, x, x if weight is None else weight, x if bias is None else bias, out, mean, variance, inverse, n, d, eps)
            return out, mean, variance, inverse

        return by_kernel

    constants = {"CENTRED": centred, "WEIGHT": weighted, "BIAS": biased}
    return numpy_until_kernel(by_numpy, normalize_as_numpy, (*(dtype,) * 7, int, int, float), constants, around)


@kernel
def normalize_channels_as_numpy(
    chunk, x, weight, bias, out, mean, variance, inverse, units, blocks, d, step, deviation, per, area, channels, eps, *, WEIGHT, BIAS
):
    """Each unit, of `blocks` pieces of `d` elements that begin `deviation`,
    normalized; `per` channels of `area` elements are in a piece."""
    KIND = widened(mean)
    for unit in range(units):
        a, to = x + unit * step, out + unit * step
        total = row_total(a, d, KIND(0), KIND, False)
        for block in range(1, blocks):
            total = total + row_total(a + block * deviation, d, KIND(0), KIND, False)
        centre = total / KIND(d * blocks)
        squares = row_total(a, d, centre, KIND, True)
        for block in range(1, blocks):
            squares = squares + row_total(a + block * deviation, d, centre, KIND, True)
        spread = squares / KIND(d * blocks)
        factor = KIND(1) / sqrt(spread + KIND(eps))
        mean[unit] = centre
        variance[unit] = spread
        inverse[unit] = factor
        for block in range(blocks):
            for i in range(d):
                y = (a[block * deviation + i] - centre) * factor
                at = (unit * per + i // area) % channels
                y = y * weight[at] if WEIGHT else y
                to[block * deviation + i] = y + bias[at] if BIAS else y


def planned_channels(shape: tuple[int, ...], count: int | None, dtype: np.dtype, eps: float, weighted: bool, biased: bool) -> Any:
    """``run(x, weight, bias)``, as `groups` of that `count`, or as `channels` where it is None, for contiguous arrays of that shape."""
    images, c, area = shape[0], shape[1], math.prod(shape[2:])
    if count is None:
        units, blocks, d, step, deviation, per, moments = c, images, area, area, c * area, 1, (1, c)
    else:
        per = c // count
        units, blocks, d, step, deviation, moments = images * count, 1, per * area, per * area, 0, (images, count)

    def by_numpy(x: Any, weight: Any, bias: Any) -> Any:
        return channels(x, weight, bias, eps) if count is None else groups(x, count, weight, bias, eps)

    # Longer pieces numpy divides, and the pieces of a single channel it takes for one.
    if d > MOST or blocks > 1 and units == 1:
        return by_numpy

    def around(form: Any) -> Any:
        def by_kernel(x: Any, weight: Any, bias: Any) -> Any:
            out, mean, variance, inverse = np.empty(shape, dtype), *(np.empty(moments, dtype) for _ in range(3))
            form(
                1, False, x, x if weight is None else weight, x if bias is None else bias, out, mean, variance, inverse,
                units, blocks, d, step, deviation, per, area, c, eps,
            )  # fmt: skip
            return out, mean, variance, inverse

        return by_kernel

    constants = {"WEIGHT": weighted, "BIAS": biased}
    return numpy_until_kernel(by_numpy, normalize_channels_as_numpy, (*(dtype,) * 7, *(int,) * 8, float), constants, around)


@kernel
def backward_as_numpy(chunk, grad, x, weight, mean, inverse, to_rows, to_weight, to_bias, rows, d, *,
                       CENTRED, WEIGHT, ROWS, WEIGHTS, BIASES):  # fmt: skip
    KIND = widened(mean)
    unit, product = local(KIND, MOST), local(KIND, MOST)
    for row in range(rows):
        g, a, to = grad + row * d, x + row * d, to_rows + row * d
        for i in range(d):
            unit[i] = (a[i] - mean[row]) * inverse[row]
        if WEIGHTS:
            for i in range(d):
                to_weight[i] = (KIND(0) if row == 0 else to_weight[i]) + g[i] * unit[i]
        if BIASES:
            for i in range(d):
                to_bias[i] = (KIND(0) if row == 0 else to_bias[i]) + g[i]
        if ROWS:
            for i in range(d):
                to[i] = g[i] * weight[i] if WEIGHT else g[i]
                product[i] = to[i] * unit[i]
            slope = row_total(product, d, KIND(0), KIND, False) / KIND(d)
            if CENTRED:
                level = row_total(to, d, KIND(0), KIND, False) / KIND(d)
                for i in range(d):
                    to[i] = to[i] - level
            for i in range(d):
                to[i] = (to[i] - unit[i] * slope) * inverse[row]


@kept(256)
def planned_backward(n: int, d: int, dtype: np.dtype, weighted: bool, wants: tuple[bool, bool, bool], centred: bool) -> Any:
    """``run(grad, rows, weight, mean, inverse)``, as `backward`, for contiguous arrays ``(n, d)``."""

    def by_numpy(grad: Any, rows: Any, weight: Any, mean: Any, inverse: Any) -> Any:
        return backward(grad, rows, weight, mean, inverse, wants, centred)

    if d == 1 and (wants[1] or wants[2]):  # columns that numpy adds up in pairs
        return by_numpy

    def around(form: Any) -> Any:
        def by_kernel(grad: Any, rows: Any, weight: Any, mean: Any, inverse: Any) -> Any:
            to_rows = np.empty((n, d), dtype) if wants[0] else None
            to_weight = np.empty(d, dtype) if wants[1] else None
            to_bias = np.empty(d, dtype) if wants[2] else None
            form(
                1, False, grad, rows, rows if weight is None else weight, mean, inverse, rows if to_rows is None else to_rows,
                rows if to_weight is None else to_weight, rows if to_bias is None else to_bias, n, d,
            )  # fmt: skip
            return to_rows, to_weight, to_bias

        return by_kernel

    constants = {"CENTRED": centred, "WEIGHT": weighted, "ROWS": wants[0], "WEIGHTS": wants[1], "BIASES": wants[2]}
    return numpy_until_kernel(by_numpy, backward_as_numpy, (*(dtype,) * 8, int, int), constants, around)

