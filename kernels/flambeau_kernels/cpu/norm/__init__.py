"""Normalization on numpy arrays: mean 0 and variance 1 along rows or per channel, then scale and shift.

Sums along rows are inner products, with ones where nothing else multiplies: BLAS takes those faster than
numpy reduces, and never starts threads for them. Those of long rows are cut into pieces, which are added in
float64. What is left is elementwise and goes to `launch`. Work goes block by block, so that the passes of one
block find it in cache. Half arrays are computed on in float32 and rounded once. That is the numpy tier; arrays
of some size go to compiled loops (`rows.py`, `planes.py`).
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

import numpy as np

from ... import engines, launch
from ...formula import Formula
from ..conv import is_half
from ..shapes.move import contiguous
from ..tier import compiles

__all__ = [
    "Moments", "channel_backward", "channel_normalize", "channel_normalize_given", "channels_tracked", "images_tracked",
    "planned_channels", "planned_given", "planned_moves", "planned_rows", "row_backward", "row_normalize",
]  # fmt: skip

# Bytes of one operand per block: a quarter of a second-level cache for numpy's passes, more for compiled
# loops, of which there are fewer and which divide a block among threads.
NUMPY_BLOCK_BYTES = 1 << 18
COMPILED_BLOCK_BYTES = 1 << 21
# Mean squares minus squared means keep their digits while the mean is no larger than this many deviations.
SAFE_RATIO = 2.0


# From this many elements on arrays are worth a kernel that must be compiled or loaded first.
COMPILED_FROM = 128


def _compiled(x: Any) -> bool:
    """Whether `x` goes to the compiled loops."""
    return x.size >= COMPILED_FROM and compiles()


def _fits_numpy(size: int, dtype: np.dtype) -> bool:
    """Whether arrays of `size` elements are done in a few calls of numpy."""
    return 0 < size < COMPILED_FROM and dtype.char in "fd"


class Moments:
    """What a normalization found out about its input: mean, biased variance and 1 / sqrt(variance + eps), per row, channel or group;
    and the running mean and variance ``(C,)`` that were moved towards those."""

    __slots__ = ("mean", "variance", "inverse", "running")

    def __init__(self, mean: Any, variance: Any, inverse: Any, running: Any = (None, None)) -> None:
        self.mean, self.variance, self.inverse, self.running = mean, variance, inverse, running


def wide(a: Any) -> Any:
    """`a` in the dtype that sums are computed in: float32 for halves."""
    return a.astype(np.float32) if is_half(a.dtype) else a


def _kind(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if is_half(dtype) else dtype


def _blocks(count: int, bytes_each: int) -> Any:
    step = max(1, (COMPILED_BLOCK_BYTES if engines.chosen().compiles else NUMPY_BLOCK_BYTES) // max(bytes_each, 1))
    return (slice(i, min(i + step, count)) for i in range(0, count, step))


def _mean_of_sum(total: Any, n: int) -> Any:
    """The mean of `n` numbers of which the sum is `total`; nan of none."""
    return total / n if n else total * np.nan


def _unsafe(mean: Any, variance: Any) -> bool:
    """Whether a variance found as a difference of squares has lost digits somewhere."""
    return bool((np.abs(mean) > SAFE_RATIO * np.sqrt(np.maximum(variance, 0))).any())


# Elements whose products BLAS adds up in their own dtype.
PIECE = 1024


def _dot(x: Any, y: Any) -> Any:
    """Inner products along the last axis; of long ones in float64, by pieces."""
    length = x.shape[-1]
    if length <= PIECE:
        return np.vecdot(x, y)
    in_pieces = length // PIECE * PIECE
    pieces = np.vecdot(*(a[..., :in_pieces].reshape(*a.shape[:-1], -1, PIECE) for a in (x, y)))
    total = np.add.reduce(pieces, axis=-1, dtype=np.float64)
    return total if in_pieces == length else total + np.vecdot(x[..., in_pieces:], y[..., in_pieces:])


def _line_sum(x: Any) -> Any:
    return _dot(x, np.ones(x.shape[-1], x.dtype))


_SCALED = Formula(lambda x, mean, inverse: (x - mean) * inverse, "normalize")
_WEIGHTED = Formula(lambda x, mean, inverse, weight: (x - mean) * inverse * weight, "normalize_weight")
_SHIFTED = Formula(lambda x, mean, inverse, bias: (x - mean) * inverse + bias, "normalize_bias")
_AFFINE = Formula(lambda x, mean, inverse, weight, bias: (x - mean) * inverse * weight + bias, "normalize_affine")
_GRAD_OF_UNIT = Formula(lambda grad, x, mean, inverse: grad * ((x - mean) * inverse), "normalize_grad_unit")
_GRAD = Formula(
    lambda grad, x, mean, inverse, weight, level, slope: (
        (grad * weight - level - (x - mean) * inverse * slope) * inverse
    ),
    "normalize_grad",
)


# -- rows ----------------------------------------------------------------------------------------------------


def _find_row_moments(rows: Any, eps: float, centred: bool) -> Moments:
    n, d = rows.shape
    kind = _kind(rows.dtype)
    means, variances = np.zeros((n, 1), kind), np.empty((n, 1), kind)
    for part in _blocks(n, d * kind.itemsize):
        x = wide(rows[part])
        variance = _mean_of_sum(_dot(x, x)[:, None], d)
        if centred:
            mean = _mean_of_sum(_line_sum(x)[:, None], d)
            means[part] = mean
            variance = variance - mean * mean
            if _unsafe(mean, variance):
                x = x - means[part]
                variance = _mean_of_sum(_dot(x, x)[:, None], d)
        variances[part] = variance
    return Moments(means, variances, 1 / np.sqrt(variances + kind.type(eps)))


def row_normalize(rows: Any, weight: Any, bias: Any, eps: float, centred: bool = True) -> tuple[Any, Moments]:
    """Each row of ``(n, d)`` normalized, and the moments ``(n, 1)``; `weight` and `bias` are ``(d,)`` or None.

    Without `centred` the mean stays and rows are divided by their root mean square.
    """
    if _compiled(rows):
        from . import rows as norm_rows

        out, *found = norm_rows.normalize(rows, weight, bias, eps, centred)
        return out, Moments(*found)
    if _fits_numpy(rows.size, rows.dtype):
        from . import as_numpy

        out, *found = as_numpy.normalize(rows, weight, bias, eps, centred)
        return out, Moments(*found)
    found = _find_row_moments(rows, eps, centred)
    kind = found.inverse.dtype
    formula = (
        (_SCALED if bias is None else _SHIFTED)
        if weight is None
        else (_WEIGHTED if bias is None else _AFFINE)
    )
    parameters = [p for p in (weight, bias) if p is not None]
    out = np.empty(rows.shape, rows.dtype)
    for part in _blocks(len(rows), rows.shape[1] * kind.itemsize):
        launch(formula, (rows[part], found.mean[part], found.inverse[part], *parameters), (out[part],), kind)
    return out, found


def planned_rows(n: int, d: int, dtype: np.dtype, shape: tuple[int, ...], eps: float, centred: bool, weighted: bool, biased: bool) -> Any:
    """``run(x, weight, bias)`` for contiguous arrays of one dtype: what `row_normalize` makes of ``(n, d)`` rows, in `shape`, and
    mean, variance and 1 / deviation; or None."""
    if _fits_numpy(n * d, dtype):
        from . import as_numpy

        return as_numpy.planned(n, d, dtype, shape, eps, centred, weighted, biased)
    if n * d < COMPILED_FROM or not compiles() or dtype.kind not in "fV":
        return None
    from . import rows as norm_rows

    return norm_rows.planned(n, d, dtype, shape, eps, centred, weighted, biased)


def row_backward(
    grad: Any, rows: Any, weight: Any, moments: Moments, wants: tuple[bool, bool, bool], centred: bool = True
) -> tuple[Any, Any, Any]:
    """Gradients of `row_normalize` for rows, weight and bias, those that `wants` names."""
    n, d = rows.shape
    mean, inverse = moments.mean, moments.inverse
    if _fits_numpy(rows.size, rows.dtype) and _alike(rows, grad, inverse, weight):
        from . import as_numpy

        run = as_numpy.planned_backward(n, d, rows.dtype, weight is not None, wants, centred)
        if not (grad.flags.c_contiguous and rows.flags.c_contiguous and (weight is None or weight.flags.c_contiguous)):
            grad, rows = contiguous(grad), contiguous(rows)
            weight = None if weight is None else contiguous(weight)
        return run(grad, rows, weight, mean, inverse)
    if _compiled(rows):
        from . import rows as norm_rows

        return norm_rows.backward(grad, rows, weight, mean, inverse, wants, centred)
    kind = inverse.dtype
    to_rows = np.empty(rows.shape, rows.dtype) if wants[0] else None
    to_weight, to_bias = (np.zeros(d) if want else None for want in wants[1:])
    factor = np.ones(d, kind) if weight is None else weight.astype(kind, copy=False)
    for part in _blocks(n, d * kind.itemsize):
        g, x, m, i = grad[part], rows[part], mean[part], inverse[part]
        along = np.empty(x.shape, kind)
        launch(_GRAD_OF_UNIT, (g, x, m, i), (along,), kind)
        if to_weight is not None:
            to_weight += np.add.reduce(along, axis=0, dtype=np.float64)
        if to_bias is not None:
            to_bias += np.add.reduce(wide(g), axis=0, dtype=np.float64)
        if to_rows is not None:
            level = _mean_of_sum(_dot(wide(g), factor)[:, None], d).astype(kind) if centred else kind.type(0)
            slope = _mean_of_sum(_dot(along, factor)[:, None], d).astype(kind)
            launch(_GRAD, (g, x, m, i, factor, level, slope), (to_rows[part],), kind)
    to_weight, to_bias = (None if total is None else total.astype(kind, copy=False) for total in (to_weight, to_bias))
    return to_rows, to_weight, to_bias


# -- per channel, or per group of channels -------------------------------------------------------------------
#
# Input is (N, C, L). Statistics are shared by the images of a batch, shape (1, C), or belong to the groups
# of one image, shape (N, G) with G dividing C; either way the result is x * scale + shift with one scale and
# shift per image and channel.

_SCALE = Formula(lambda x, scale: x * scale, "scale_channels")
_COMBINE = Formula(lambda grad, x, scale, slope, offset: grad * scale + (x * slope + offset), "combine_channels")


def _image_blocks(x: Any) -> Any:
    return _blocks(x.shape[0], x.shape[1] * x.shape[2] * max(x.itemsize, 4))


def _sums(x: Any) -> Any:
    """``(n, C, L) -> (n, C)``."""
    return x[:, :, 0] if x.shape[2] == 1 else _line_sum(x)


def _dots(x: Any, y: Any) -> Any:
    """``(n, C, L), (n, C, L) -> (n, C)``."""
    return (x * y)[:, :, 0] if x.shape[2] == 1 else _dot(x, y)


def _shared(per_channel: Any, groups: int | None) -> Any:
    """Sums ``(N, C)`` added up over what shares statistics: ``(1, C)``, or ``(N, groups)``."""
    if groups is None:
        return np.add.reduce(per_channel, axis=0, keepdims=True)
    return np.add.reduce(per_channel.reshape(len(per_channel), groups, per_channel.shape[1] // groups), axis=2)


def _spread(statistic: Any, channels: int) -> Any:
    """A statistic ``(1, C)`` or ``(N, G)`` for each channel: ``(1, C)`` or ``(N, C)``."""
    return (
        statistic
        if statistic.shape[1] == channels
        else np.repeat(statistic, channels // statistic.shape[1], axis=1)
    )


def _taken(per_image: Any, part: slice) -> Any:
    """The images `part` of an ``(N, C)`` or ``(1, C)`` array, with a last axis."""
    return (per_image if len(per_image) == 1 else per_image[part])[:, :, None]


def _as_images(a: Any) -> Any:
    """``(N, C, *)`` as ``(N, C, L)``."""
    return a.reshape(a.shape[0], a.shape[1], prod(a.shape[2:]))


def _as_columns(a: Any) -> Any:
    """``(N, C, *)`` as contiguous ``(M, C)``."""
    moved = a if a.ndim == 2 else np.moveaxis(a, 1, -1)
    return contiguous(moved).reshape(a.size // a.shape[1], a.shape[1])


def _from_columns(columns: Any, shape: tuple[int, ...]) -> Any:
    return columns if len(shape) == 2 else np.moveaxis(columns.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


def _channels_innermost(x: Any) -> bool:
    """Whether the channels of ``(N, C, *)`` lie side by side, as in a matrix or the channels_last memory format."""
    if x.ndim == 2 or x.size == x.shape[0] * x.shape[1]:
        return True
    return not x.flags.c_contiguous and np.moveaxis(x, 1, -1).flags.c_contiguous


def _ordered_as(x: Any, images: Any) -> Any:
    """``images (N, C, L)`` in the shape of `x`, and channels innermost if they are in `x`."""
    made = images.reshape(x.shape)
    if x.ndim == 2 or not _channels_innermost(x):
        return made
    return np.moveaxis(contiguous(np.moveaxis(made, 1, -1)), -1, 1)


def channel_normalize(x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> tuple[Any, Moments]:
    """``(N, C, *)`` normalized by the statistics of each channel, or with `groups` of each group of each image, and its moments
    ``(1, C)`` or ``(N, groups)``. Batch norm keeps the order of dimensions in memory.
    """
    if _fits_numpy(x.size, x.dtype) and x.flags.c_contiguous and _alike(x, weight, bias):
        out, *found = _channels_as_numpy(x, groups, weight, bias, eps)
        return out, Moments(*found)
    if not _compiled(x):
        images = _as_images(x)
        moments = find_moments(images, groups, eps)
        made = normalize(images, moments.mean, moments.inverse, weight, bias)
        return _ordered_as(x, made) if groups is None else made.reshape(x.shape), moments
    from . import groups_channels_last, planes

    if groups is None and _channels_innermost(x):
        columns = _as_columns(x)
        mean, variance = planes.column_moments(columns)
        inverse = 1 / np.sqrt(variance + variance.dtype.type(eps))
        made = _normalize_columns(columns, mean, inverse, weight, bias)
        return _from_columns(made, x.shape), Moments(mean, variance, inverse)
    if groups is not None and groups_channels_last.pays(x):
        out, *found = groups_channels_last.normalize(x, weight, bias, groups, eps)
        return out, Moments(*found)
    out, *found = planes.normalize(_as_images(x), weight, bias, groups, eps)
    return out.reshape(x.shape), Moments(*found)


def channels_tracked(normalized: tuple[Any, Moments], x: Any, running: tuple[Any, Any], momentum: float) -> tuple[Any, Moments]:
    """``(out, mean, inverse, running mean, running variance)``, all but the first ``(C,)``, and the moments, of `x` that was `normalized`
    by those of channels: to what, and the moments."""
    out, moments = normalized
    moved = _tracked(moments.mean[0], moments.variance[0], running, momentum, x.size // max(x.shape[1], 1))
    # Copies: the rule of the gradient reads the moments.
    return (out, moments.mean[0].copy(), moments.inverse[0].copy(), *moved), _beside(moments, running)


def images_tracked(normalized: tuple[Any, Moments], x: Any, running: tuple[Any, Any], momentum: float) -> tuple[Any, Moments]:
    """``(out, running mean, running variance)``, and the moments, of `x` that was `normalized` by those of each channel of each image."""
    out, moments = normalized
    # The mean of no images is nan, as in PyTorch.
    mean, variance = (found.mean(0) if len(x) else found.sum(0) + math.nan for found in (moments.mean, moments.variance))
    return (out, *_tracked(mean, variance, running, momentum, prod(x.shape[2:]))), _beside(moments, running)


def _beside(moments: Moments, running: tuple[Any, Any]) -> Moments:
    return Moments(moments.mean, moments.variance, moments.inverse, running)


def _tracked(mean: Any, variance: Any, running: tuple[Any, Any], momentum: float, count: int) -> tuple[Any, ...]:
    """Running statistics ``(C,)`` moved towards those found of `count` numbers each, the variance towards its unbiased estimate; those
    that are None come out empty. Arrays of any device."""
    if not count:
        return tuple(mean[:0] if r is None else r.copy() for r in running)
    unbiased = variance * (count / (count - 1) if count > 1 else math.nan)
    return _moved(running[0], mean, momentum), _moved(running[1], unbiased, momentum)


def _moved(running: Any, found: Any, momentum: float) -> Any:
    if running is None:
        return found[:0]
    wide = running.astype(found.dtype, copy=False)
    return (wide + momentum * (found - wide)).astype(running.dtype)


def _alike(x: Any, *others: Any) -> bool:
    return all(p is None or p.dtype == x.dtype for p in others)


def _channels_as_numpy(x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    from . import as_numpy

    return as_numpy.channels(x, weight, bias, eps) if groups is None else as_numpy.groups(x, groups, weight, bias, eps)


def planned_channels(x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> Any:
    """``run(x, weight, bias)``, as `channel_normalize` for contiguous arrays like these: the result and its moments; or None."""
    if not _alike(x, weight, bias):
        return None
    if _fits_numpy(x.size, x.dtype):
        from . import as_numpy

        return as_numpy.planned_channels(x.shape, groups, x.dtype, eps, weight is not None, bias is not None)
    if not _compiled(x):
        return None
    from . import planes

    if groups is None and _channels_innermost(x):
        return planes.planned_columns(x, weight is not None, bias is not None, eps) if x.ndim == 2 and x.dtype.char in "fd" else None
    kinds = tuple(None if p is None else p.dtype for p in (weight, bias))
    return planes.planned((*x.shape[:2], prod(x.shape[2:])), x.dtype, x.shape, kinds, groups, eps)


def planned_given(x: Any, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> Any:
    """``run(x, mean, variance, weight, bias)``: ``(N, C, *)`` normalized by given statistics ``(C,)``, for contiguous arrays like
    these; or None."""
    if not _alike(x, mean, variance, weight, bias) or x.dtype.char not in "fd":
        return None
    if x.ndim == 2 and _compiled(x):
        from . import planes

        return planes.planned_columns_given(x, weight is not None, bias is not None, eps)
    if not x.size or _channels_innermost(x) and (x.ndim > 2 or _compiled(x)):
        return None
    if _compiled(x):
        from . import planes

        return planes.planned_given((*x.shape[:2], prod(x.shape[2:])), x.dtype, x.shape, weight is not None, bias is not None, eps)
    from . import as_numpy

    return lambda x, mean, variance, weight, bias: as_numpy.by_given(x, mean, variance, weight, bias, eps)


def planned_moves(channels: int, kind: np.dtype, momentum: float, count: int, mean: bool, variance: bool) -> Any:
    """``run(running mean, running variance, mean, variance)``; see `as_numpy.planned_moves`."""
    from . import as_numpy

    return as_numpy.planned_moves(channels, kind, momentum, count, mean, variance)


def channel_normalize_given(x: Any, mean: Any, inverse: Any, weight: Any, bias: Any) -> Any:
    """Normalize ``(N, C, *)`` by given statistics ``(1, C)``, keeping the order of dimensions in memory."""
    if x.size and _channels_innermost(x):
        return _from_columns(_normalize_columns(_as_columns(x), mean, inverse, weight, bias), x.shape)
    return normalize(_as_images(x), mean, inverse, weight, bias).reshape(x.shape)


_CENTRED = Formula(lambda x, mean, scale, shift: (x - mean) * scale + shift, "scale_shift_centred")


def _normalize_columns(columns: Any, mean: Any, inverse: Any, weight: Any, bias: Any) -> Any:
    kind = inverse.dtype
    mean = mean.astype(kind, copy=False)
    scale = inverse if weight is None else inverse * _parameter(weight, kind)
    shift = np.full(inverse.shape, -0.0, kind) if bias is None else _parameter(bias, kind)
    if _compiled(columns):
        from . import planes

        return planes.normalize_columns(columns, mean, scale, shift)
    out = np.empty(columns.shape, columns.dtype)
    launch(_CENTRED, (columns, mean, scale, shift), (out,), kind)
    return out


def channel_backward(
    grad: Any, x: Any, mean: Any, inverse: Any, weight: Any, groups: int | None, wants: tuple[bool, bool, bool],
    constant: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of the functions above for input, weight and bias, those that `wants` names.

    Args:
        constant: whether mean and inverse are given numbers, and not statistics of `x`.
    """
    if groups is None and not x.size:                  # sums of nothing, whatever the moments of nothing are
        none = np.zeros(x.shape[1], inverse.dtype)
        return np.zeros_like(x) if wants[0] else None, none if wants[1] else None, none.copy() if wants[2] else None
    if _compiled(x) and groups is None and _channels_innermost(x):
        return _columns_backward(grad, x, mean, inverse, weight, wants, constant)
    if constant or not _compiled(x):
        made = normalize_backward(_as_images(grad), _as_images(x), mean, inverse, weight, groups, wants, constant)
        return None if made[0] is None else _ordered_as(x, made[0]), made[1], made[2]
    from . import groups_channels_last, planes

    if groups is not None and groups_channels_last.pays(x) and groups_channels_last.pays(grad):
        out, totals, alongs = groups_channels_last.backward(grad, x, weight, mean, inverse, groups, wants[0])
    else:
        out, totals, alongs = planes.backward(_as_images(grad), _as_images(x), weight, mean, inverse, groups, wants[0])
    return (
        None if out is None else out.reshape(x.shape),
        np.add.reduce(alongs * _spread(inverse, x.shape[1]), axis=0).astype(inverse.dtype) if wants[1] else None,
        np.add.reduce(totals, axis=0).astype(inverse.dtype) if wants[2] else None,
    )


def _columns_backward(
    grad: Any, x: Any, mean: Any, inverse: Any, weight: Any, wants: tuple[bool, bool, bool], constant: bool
) -> tuple[Any, Any, Any]:
    from . import planes

    kind = inverse.dtype
    mean = mean.astype(kind, copy=False)
    g, columns = _as_columns(grad), _as_columns(x)
    scale = inverse if weight is None else inverse * _parameter(weight, kind)
    total: Any = None
    along: Any = None
    if wants[1] or wants[2] or not constant:
        total, along = planes.column_sums(g, columns, mean)
    made = None
    if wants[0]:
        if constant:
            made = np.empty(columns.shape, columns.dtype)
            launch(_SCALE, (g, scale), (made,), kind)
        else:
            slope, level = (inverse * inverse * along) / len(columns), total / len(columns)
            made = planes.normalize_columns_grad(g, columns, mean, scale, slope, level)
        made = _from_columns(made, x.shape)
    return made, (along * inverse)[0] if wants[1] else None, total[0] if wants[2] else None


def find_moments(x: Any, groups: int | None, eps: float) -> Moments:
    """Moments over each channel of all images (`groups` None) or each group of each image."""
    n, c, width = x.shape
    count = n * width if groups is None else c // groups * width
    kind = _kind(x.dtype)
    sums, squares = np.zeros((n, c)), np.zeros((n, c))
    for part in _image_blocks(x):
        block = wide(x[part])
        sums[part], squares[part] = _sums(block), _dots(block, block)
    found = _mean_of_sum(_shared(sums, groups), count)
    variance = _mean_of_sum(_shared(squares, groups), count) - found**2
    mean = found.astype(kind, copy=False)
    if _unsafe(found, variance):
        spread = _spread(mean, c)
        for part in _image_blocks(x):
            centred = wide(x[part]) - _taken(spread, part)
            squares[part] = _dots(centred, centred)
        variance = _mean_of_sum(_shared(squares, groups), count)
    variance = variance.astype(kind, copy=False)
    return Moments(mean, variance, 1 / np.sqrt(variance + kind.type(eps)))


def _parameter(p: Any, kind: np.dtype) -> Any:
    return p.astype(kind, copy=False)[None, :]


def normalize(x: Any, mean: Any, inverse: Any, weight: Any, bias: Any) -> Any:
    """``(x - mean) * inverse * weight + bias``; weight and bias are ``(C,)`` or None."""
    kind, c = inverse.dtype, x.shape[1]
    scale = _spread(inverse, c)
    scale = scale if weight is None else scale * _parameter(weight, kind)
    shift = np.full((1, c), -0.0, kind) if bias is None else _parameter(bias, kind)
    centre = _spread(mean.astype(kind, copy=False), c)
    out = np.empty(x.shape, x.dtype)
    for part in (slice(None),) if _compiled(x) else _image_blocks(x):
        launch(_CENTRED, (x[part], _taken(centre, part), _taken(scale, part), _taken(shift, part)), (out[part],), kind)
    return out


def normalize_backward(
    grad: Any, x: Any, mean: Any, inverse: Any, weight: Any, groups: int | None,
    wants: tuple[bool, bool, bool], constant: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of `normalize` for input, weight and bias, those that `wants` names.

    Args:
        constant: whether mean and inverse are given numbers, and not statistics of `x`.
    """
    kind, (n, c, width) = inverse.dtype, x.shape
    mean = mean.astype(kind, copy=False)
    centre, spread = _spread(mean, c), _spread(inverse, c)
    total, along = np.zeros((n, c)), np.zeros((n, c))
    if wants[1] or wants[2] or not constant:
        _sum_grads(grad, x, centre, _unsafe(mean * inverse, np.ones(1, kind)), total, along)
    to_weight = np.add.reduce(along * spread, axis=0).astype(kind, copy=False) if wants[1] else None
    to_bias = np.add.reduce(total, axis=0).astype(kind, copy=False) if wants[2] else None
    if not wants[0]:
        return None, to_weight, to_bias
    factor = _parameter(np.ones(c, kind) if weight is None else weight, kind)
    scale = np.broadcast_to(spread * factor, (len(spread), c))
    out = np.empty(x.shape, x.dtype)
    if constant:
        for part in _image_blocks(x):
            launch(_SCALE, (grad[part], _taken(scale, part)), (out[part],), kind)
        return out, to_weight, to_bias
    count = n * width if groups is None else c // groups * width
    # d = inverse * (w g - mean(w g) - (x - mean) * inverse**2 * mean(w g (x - mean)))
    slope = _spread(-(inverse**3) * _mean_of_sum(_shared(along * factor, groups), count), c)
    offset = _spread(-inverse * _mean_of_sum(_shared(total * factor, groups), count), c) - slope * centre
    for part in _image_blocks(x):
        numbers = (_taken(scale, part), _taken(slope, part), _taken(offset, part))
        launch(_COMBINE, (grad[part], x[part], *numbers), (out[part],), kind)
    return out, to_weight, to_bias


def _sum_grads(grad: Any, x: Any, centre: Any, far: bool, total: Any, along: Any) -> None:
    """Fill ``(N, C)`` arrays with the sums of ``grad`` and of ``grad * (x - centre)``.

    Where centres are `far` from zero they are subtracted first, otherwise after summing, which saves a pass.
    """
    for part in _image_blocks(x):
        g, values = wide(grad[part]), wide(x[part])
        total[part] = _sums(g)
        if far:
            along[part] = _dots(g, values - _taken(centre, part))
        else:
            along[part] = _dots(g, values) - _taken(centre, part)[:, :, 0] * total[part]
