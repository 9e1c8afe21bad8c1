"""Normalization on numpy arrays: mean 0 and variance 1 along rows or per channel, then scale and shift.

Rows are worked on a block at a time, so that the passes of one block find it in cache. Sums along a row are products with
a vector of ones, which BLAS does faster than a reduction. Half arrays are computed on in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Moments", "find_moments", "normalize", "normalize_backward", "row_backward", "row_normalize"]

# Bytes of one operand per block; three or four operands then fit a second-level cache.
BLOCK_BYTES = 1 << 18


class Moments:
    """What a normalization found out about its input: mean, biased variance and 1 / sqrt(variance + eps), per row or channel."""

    __slots__ = ("mean", "variance", "inverse")

    def __init__(self) -> None:
        self.mean: Any = None
        self.variance: Any = None
        self.inverse: Any = None


def wide(a: Any) -> Any:
    """`a` in the dtype that sums are computed in: float32 for halves."""
    return a.astype(np.float32) if a.dtype.name in ("float16", "bfloat16") else a


def _blocks(count: int, bytes_each: int) -> Any:
    step = max(1, BLOCK_BYTES // max(bytes_each, 1))
    return (slice(i, min(i + step, count)) for i in range(0, count, step))


def _means(rows: Any) -> Any:
    """Mean of each row, ``(n, d) -> (n, 1)``."""
    d = rows.shape[1]
    return (rows @ np.full(d, 1 / d, rows.dtype))[:, None] if d else np.full((len(rows), 1), np.nan, rows.dtype)


def _over(total: Any, n: int) -> Any:
    return total / n if n else total * np.nan


def row_normalize(rows: Any, weight: Any, bias: Any, eps: float, moments: Moments, centred: bool = True) -> Any:
    """Normalize each row of ``(n, d)``; `weight` and `bias` are ``(d,)`` or None. Fills `moments` with ``(n, 1)``.

    Without `centred` the mean stays and rows are divided by their root mean square.
    """
    n, d = rows.shape
    kind = np.dtype(np.float32) if rows.dtype.name in ("float16", "bfloat16") else rows.dtype
    out = np.empty(rows.shape, rows.dtype)
    mean, variance, inverse = np.zeros((n, 1), kind), np.empty((n, 1), kind), np.empty((n, 1), kind)
    weight, bias = (None if p is None else p.astype(kind, copy=False) for p in (weight, bias))
    for part in _blocks(n, d * kind.itemsize):
        x = wide(rows[part])
        target = out[part] if out.dtype == kind else np.empty(x.shape, kind)
        if centred:
            mean[part] = _means(x)
            x = np.subtract(x, mean[part], out=target)
        variance[part] = _over(np.vecdot(x, x)[:, None].real, d)
        inverse[part] = 1 / np.sqrt(variance[part] + kind.type(eps))
        np.multiply(x, inverse[part], out=target)
        if weight is not None:
            target *= weight
        if bias is not None:
            target += bias
        if target.dtype != out.dtype:
            out[part] = target
    moments.mean, moments.variance, moments.inverse = mean, variance, inverse
    return out


def row_backward(
    grad: Any, rows: Any, weight: Any, moments: Moments, wants: tuple[bool, bool, bool], centred: bool = True
) -> tuple[Any, Any, Any]:
    """Gradients of `row_normalize` for rows, weight and bias, those that `wants` names."""
    n, d = rows.shape
    mean, inverse = moments.mean, moments.inverse
    kind = inverse.dtype
    to_rows = np.empty(rows.shape, rows.dtype) if wants[0] else None
    to_weight, to_bias = (np.zeros(d, kind) if want else None for want in wants[1:])
    factor = None if weight is None else weight.astype(kind, copy=False)
    for part in _blocks(n, d * kind.itemsize):
        g, x = wide(grad[part]), wide(rows[part])
        unit = np.subtract(x, mean[part]) if centred else x * inverse[part]
        if centred:
            unit *= inverse[part]
        if to_bias is not None:
            to_bias += np.ones(len(g), kind) @ g
        if to_weight is not None:
            to_weight += np.ones(len(g), kind) @ (g * unit)
        if to_rows is not None:
            scaled = g if factor is None else g * factor
            along = _over(np.vecdot(unit, scaled)[:, None], d)
            unit *= along
            unit = np.subtract(scaled, unit, out=unit)
            if centred:
                unit -= _means(scaled)
            np.multiply(unit, inverse[part], out=to_rows[part] if to_rows.dtype == kind else unit)
            if to_rows.dtype != kind:
                to_rows[part] = unit
    return to_rows, to_weight, to_bias


# -- per channel, or per group of channels ---------------------------------------------------------------------------------
#
# Input is (N, C, L). Statistics are shared by the images of a batch, shape (1, C), or belong to the groups of one image,
# shape (N, G) with G dividing C; either way the result is x * scale + shift with one scale and shift per image and channel.


def _image_blocks(x: Any) -> Any:
    return _blocks(x.shape[0], x.shape[1] * x.shape[2] * max(x.itemsize, 4))


def _sums(x: Any) -> Any:
    """``(n, C, L) -> (n, C)``."""
    return x[:, :, 0] if x.shape[2] == 1 else x @ np.ones(x.shape[2], x.dtype)


def _dots(x: Any, y: Any) -> Any:
    """``(n, C, L), (n, C, L) -> (n, C)``."""
    return (x * y)[:, :, 0] if x.shape[2] == 1 else np.vecdot(x, y)


def _shared(per_channel: Any, groups: int | None) -> Any:
    """Sums ``(N, C)`` added up over what shares statistics: ``(1, C)``, or ``(N, groups)``."""
    if groups is None:
        return np.add.reduce(per_channel, axis=0, keepdims=True)
    return np.add.reduce(per_channel.reshape(len(per_channel), groups, per_channel.shape[1] // groups), axis=2)


def _spread(statistic: Any, channels: int) -> Any:
    """A statistic ``(1, C)`` or ``(N, G)`` for each channel: ``(1, C)`` or ``(N, C)``."""
    return statistic if statistic.shape[1] == channels else np.repeat(statistic, channels // statistic.shape[1], axis=1)


def _taken(per_image: Any, part: slice) -> Any:
    """The images `part` of an ``(N, C)`` or ``(1, C)`` array, with a last axis."""
    return (per_image if len(per_image) == 1 else per_image[part])[:, :, None]


def find_moments(x: Any, groups: int | None, eps: float, moments: Moments) -> None:
    """Mean and variance in two passes, over each channel of all images (`groups` None) or each group of each image."""
    n, c, width = x.shape
    count = n * width if groups is None else c // groups * width
    kind = np.dtype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x.dtype
    per_channel = np.zeros((n, c), kind)
    for part in _image_blocks(x):
        per_channel[part] = _sums(wide(x[part]))
    mean = _over(_shared(per_channel, groups), count)
    spread = _spread(mean, c)
    for part in _image_blocks(x):
        centred = wide(x[part]) - _taken(spread, part)
        per_channel[part] = _dots(centred, centred)
    moments.mean, moments.variance = mean, _over(_shared(per_channel, groups), count)
    moments.inverse = 1 / np.sqrt(moments.variance + kind.type(eps))


def _parameter(p: Any, kind: np.dtype) -> Any:
    return p.astype(kind, copy=False)[None, :]


def normalize(x: Any, mean: Any, inverse: Any, weight: Any, bias: Any) -> Any:
    """``(x - mean) * inverse * weight + bias``; weight and bias are ``(C,)`` or None."""
    kind, c = inverse.dtype, x.shape[1]
    scale = _spread(inverse, c)
    scale = scale if weight is None else scale * _parameter(weight, kind)
    shift = -_spread(mean, c) * scale
    shift = shift if bias is None else shift + _parameter(bias, kind)
    out = np.empty(x.shape, x.dtype)
    for part in _image_blocks(x):
        if out.dtype == kind:
            np.multiply(x[part], _taken(scale, part), out=out[part])
            out[part] += _taken(shift, part)
        else:
            out[part] = x[part].astype(kind) * _taken(scale, part) + _taken(shift, part)
    return out


def normalize_backward(
    grad: Any, x: Any, mean: Any, inverse: Any, weight: Any, groups: int | None, wants: tuple[bool, bool, bool],
    constant: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of `normalize` for input, weight and bias, those that `wants` names.

    Args:
        constant: whether mean and inverse are given numbers, and not statistics of `x`.
    """
    kind, (n, c, width) = inverse.dtype, x.shape
    centre = _spread(mean.astype(kind, copy=False), c)
    total, along = np.zeros((n, c), kind), np.zeros((n, c), kind)
    if wants[1] or wants[2] or not constant:
        for part in _image_blocks(x):
            g = wide(grad[part])
            total[part] = _sums(g)
            along[part] = _dots(g, wide(x[part]) - _taken(centre, part))
    spread = _spread(inverse, c)
    to_weight = np.add.reduce(along * spread, axis=0) if wants[1] else None
    to_bias = np.add.reduce(total, axis=0) if wants[2] else None
    if not wants[0]:
        return None, to_weight, to_bias
    factor = _parameter(np.ones(c, kind) if weight is None else weight, kind)
    scale = np.broadcast_to(spread * factor, (len(spread), c))
    if constant:
        return _combined(grad, x, scale, None, None), to_weight, to_bias
    count = n * width if groups is None else c // groups * width
    # d = inverse * (w g - mean(w g) - (x - mean) * inverse**2 * mean(w g (x - mean)))
    slope = _spread(-(inverse**3) * _over(_shared(along * factor, groups), count), c)
    offset = _spread(-inverse * _over(_shared(total * factor, groups), count), c) - slope * centre
    return _combined(grad, x, scale, slope, offset), to_weight, to_bias


def _combined(grad: Any, x: Any, scale: Any, slope: Any, offset: Any) -> Any:
    """``grad * scale + x * slope + offset``."""
    out = np.empty(x.shape, x.dtype)
    for part in _image_blocks(x):
        if slope is None:
            out[part] = wide(grad[part]) * _taken(scale, part)
            continue
        made = np.multiply(wide(x[part]), _taken(slope, part), out=out[part] if out.dtype == scale.dtype else None)
        made += _taken(offset, part)
        made += wide(grad[part]) * _taken(scale, part)
        if made.dtype != out.dtype:
            out[part] = made
    return out
