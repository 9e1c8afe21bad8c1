"""Convolution and pooling over windows: views of the padded input, matrix products, and sums put back one offset at a time."""

from __future__ import annotations

from itertools import product as places
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.pool import Window, window_counts
from flambeau_kernels.cuda import launch, reduce, scatter
from flambeau_kernels.formula import Formula

from ...tensor import Tensor, wrap
from .. import arrays
from ..arrays import contiguous
from .matrices import product
from .moves import pad_constant

_INT64 = np.dtype(np.int64)


def _windows(x: Any, kernel: Any, stride: Any, dilation: Any, counts: Any) -> Any:
    """The view ``(*lead, *kernel, *counts)`` of windows over the last dimensions of `x`, which holds them all."""
    n = len(kernel)
    lead, steps = x.shape[: x.ndim - n], x.strides[x.ndim - n :]
    within = (s * d for s, d in zip(steps, dilation, strict=True))
    between = (s * t for s, t in zip(steps, stride, strict=True))
    strides = (*x.strides[: x.ndim - n], *within, *between)
    return arrays.restride(x, (*lead, *kernel, *counts), strides, 0)


def _padded(x: Any, padding: Any, extents: Any, value: Any = 0) -> Any:
    """`x` with `padding` before its last dimensions, and behind up to `extents`."""
    sizes = x.shape[x.ndim - len(padding) :]
    pairs = tuple((p, max(0, e - n - p)) for n, p, e in zip(sizes, padding, extents, strict=True))
    return contiguous(x) if all(pair == (0, 0) for pair in pairs) else pad_constant(x, pairs, value)


def _extents(kernel: Any, stride: Any, dilation: Any, counts: Any) -> tuple[int, ...]:
    return tuple((c - 1) * s + (k - 1) * d + 1 for k, s, d, c in zip(kernel, stride, dilation, counts, strict=True))


def _columns(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, counts: Any) -> Any:
    """``(N, C, *kernel, *counts)``, row-major."""
    framed = _padded(x, padding, _extents(kernel, stride, dilation, counts))
    return contiguous(_windows(framed, kernel, stride, dilation, counts))


def _put_back(columns: Any, spatial: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """``(*lead, *kernel, *counts)`` added up where windows of ``(*lead, *spatial)`` came from."""
    n = len(kernel)
    counts = columns.shape[columns.ndim - n :]
    lead = columns.shape[: columns.ndim - 2 * n]
    needed = _extents(kernel, stride, dilation, counts)
    extents = tuple(max(size + p, e) for size, p, e in zip(spatial, padding, needed, strict=True))
    framed = arrays.filled((*lead, *extents), columns.dtype, 0)
    every = (slice(None),) * len(lead)
    for at in places(*map(range, kernel)):
        there = tuple(slice(t * d, t * d + (c - 1) * s + 1, s) for t, d, c, s in zip(at, dilation, counts, stride, strict=True))
        target = framed[(*every, *there)]
        launch.launch(_ADD, (target, columns[(*every, *at)]), (target,), columns.dtype)
    return contiguous(framed[(*every, *(slice(p, p + size) for p, size in zip(padding, spatial, strict=True)))])


def _counts(spatial: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    from flambeau_kernels.cpu.conv import output_size

    return tuple(output_size(n, k, s, p, p, d) for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True))


# -- convolution -----------------------------------------------------------------------------------------------------------


def convolution(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: int) -> Any:
    n, kernel = x.shape[0], w.shape[2:]
    taps = prod(kernel)
    if transposed:
        from ...ops.layers.conv import transposed_size

        spatial = transposed_size(x.shape[2:], kernel, stride, padding, dilation, extra)
        of_input, of_output = x.shape[1] // groups, w.shape[1]
        weight = contiguous(contiguous(w).reshape(groups, of_input, of_output * taps).transpose(0, 2, 1))
        columns = product(weight, contiguous(x).reshape(n, groups, of_input, prod(x.shape[2:])))
        columns = columns.reshape(n, groups * of_output, *kernel, *x.shape[2:])
        made = _put_back(columns, spatial, kernel, stride, padding, dilation)
    else:
        counts = _counts(x.shape[2:], kernel, stride, padding, dilation)
        columns = _columns(x, kernel, stride, padding, dilation, counts).reshape(n, groups, w.shape[1] * taps, prod(counts))
        weight = contiguous(w).reshape(groups, w.shape[0] // groups, w.shape[1] * taps)
        made = product(weight, columns).reshape(n, w.shape[0], *counts)
    if b is not None:
        made = wrap(made).add_(wrap(b).reshape(-1, *(1,) * len(kernel)))._array
    return made


def convolution_weight(x: Any, y: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    n, outs, counts = x.shape[0], y.shape[1], y.shape[2:]
    each = x.shape[1] // groups * prod(kernel)
    columns = _columns(x, kernel, stride, padding, dilation, counts).reshape(n, groups, each, prod(counts))
    columns = contiguous(columns.transpose(1, 0, 3, 2)).reshape(groups, n * prod(counts), each)
    slopes = contiguous(contiguous(y).reshape(n, groups, outs // groups, prod(counts)).transpose(1, 2, 0, 3))
    made = product(slopes.reshape(groups, outs // groups, n * prod(counts)), columns)
    return made.reshape(outs, x.shape[1] // groups, *kernel)


def convolution_bias(grad: Any, x: Any, w: Any) -> Any:
    return wrap(grad).sum((0, *range(2, grad.ndim)))._array


def gather_columns(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    counts = _counts(x.shape[2:], kernel, stride, padding, dilation)
    return _columns(x, kernel, stride, padding, dilation, counts).reshape(x.shape[0], x.shape[1] * prod(kernel), prod(counts))


def fold_columns(x: Any, extents: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    counts = _counts(extents, kernel, stride, padding, dilation)
    columns = contiguous(x).reshape(x.shape[0], x.shape[1] // prod(kernel), *kernel, *counts)
    return _put_back(columns, tuple(extents), kernel, stride, padding, dilation)


# -- pooling ---------------------------------------------------------------------------------------------------------------


def _parts(windows: Any) -> tuple[Any, ...]:
    """Kernel, stride, padding, dilation and count of each dimension."""
    for w in windows:
        if not isinstance(w, Window):
            raise NotImplementedError("maxima over windows of unequal sizes: not built for device cuda yet")
    return tuple(zip(*((w.kernel, w.stride, w.padding, w.dilation, w.count) for w in windows), strict=True))


def _viewed(x: Any, windows: Any, fill: Any) -> Any:
    kernel, stride, padding, dilation, counts = _parts(windows)
    framed = _padded(x, padding, _extents(kernel, stride, dilation, counts), fill)
    return _windows(framed, kernel, stride, dilation, counts)


def _lowest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def max_with_indices(x: Any, windows: Any) -> Any:
    n = len(windows)
    lead = x.ndim - n
    seen = _viewed(x, windows, _lowest(x.dtype))
    axes = tuple(range(lead, lead + n))
    values, at = reduce.fold(reduce.extreme_fold(True, x.dtype), seen, axes, False, x.dtype, (x.dtype, _INT64))
    rest, size = wrap(at), 1
    place: Any = 0
    xp = arrays.library()
    for d in range(n - 1, -1, -1):
        w = windows[d]
        tap = rest % w.kernel
        rest = rest.div(w.kernel, rounding_mode="floor")
        starts = wrap(xp.arange(w.count)).reshape(-1, *(1,) * (n - 1 - d)) * w.stride - w.padding
        # Where nothing is larger than -inf the padding may have been meant; the nearest element is as large.
        place = (tap * w.dilation + starts).clamp(0, w.size - 1) * size + place
        size *= w.size
    return values, place._array


def window_max(x: Any, windows: Any, keep: Any) -> Any:
    if keep:
        return max_with_indices(x, windows)
    lead = x.ndim - len(windows)
    seen = _viewed(x, windows, _lowest(x.dtype))
    return wrap(seen).amax(tuple(range(lead, lead + len(windows))))._array, None


def _divisor(windows: Any, include_padding: bool, divisor: Any) -> Any:
    if divisor is not None:
        return divisor
    counts = window_counts(windows, include_padding)
    if counts.size and (counts == counts.flat[0]).all():
        return int(counts.flat[0])
    return wrap(arrays.from_host(counts.astype(np.float32)))


def window_mean(x: Any, windows: Any, include_padding: bool, divisor: Any) -> Any:
    lead = x.ndim - len(windows)
    total = _wide(wrap(_viewed(x, windows, 0))).sum(tuple(range(lead, lead + len(windows))))
    over = _divisor(windows, include_padding, divisor)
    if not total.is_floating_point():
        return total.div(over, rounding_mode="trunc").to(wrap(x).dtype)._array
    return (total / over).to(wrap(x).dtype)._array


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.is_floating_point and x.dtype.itemsize == 2 else x


def spread_mean(grad: Any, windows: Any, include_padding: bool, divisor: Any) -> Any:
    kernel, stride, padding, dilation, counts = _parts(windows)
    each = _wide(wrap(grad)) / _divisor(windows, include_padding, divisor)
    lead = tuple(grad.shape[: grad.ndim - len(windows)])
    taps = each.reshape(*lead, *(1,) * len(kernel), *counts).expand(*lead, *kernel, *counts)
    made = _put_back(taps._array, tuple(w.size for w in windows), kernel, stride, padding, dilation)
    return wrap(made).to(wrap(grad).dtype)._array


def _even(name: str, spatial: Any, sizes: Any) -> tuple[Window, ...]:
    if any(m == 0 or size % m for size, m in zip(spatial, sizes, strict=True)):
        uneven = f"from {tuple(spatial)} to {tuple(sizes)}, which are no divisors"
        raise NotImplementedError(f"{name}: {uneven}, is not built for device cuda yet")
    return tuple(Window(size, size // m, size // m, 0, 1, m) for size, m in zip(spatial, sizes, strict=True))


def adaptive_mean(x: Any, sizes: Any) -> Any:
    return window_mean(x, _even("adaptive_avg_pool", x.shape[x.ndim - len(sizes) :], sizes), True, None)


def adaptive_spread(grad: Any, sizes: Any) -> Any:
    return spread_mean(grad, _even("adaptive_avg_pool", sizes, grad.shape[grad.ndim - len(sizes) :]), True, None)


def put_plane(grad: Any, at: Any, x: Any, n: int) -> Any:
    planes, size, count = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :]), prod(grad.shape[grad.ndim - n :])
    made = arrays.filled((planes, size, 1), grad.dtype, 0)
    made = scatter.along(made, contiguous(at).reshape(planes, count, 1), contiguous(grad).reshape(planes, count, 1), "sum")
    return made.reshape(x.shape)


def take_plane(x: Any, at: Any, n: int) -> Any:
    planes, size = prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :])
    picked = wrap(contiguous(x).reshape(planes, size)).gather(1, wrap(contiguous(at).reshape(planes, -1)))
    return picked.reshape(at.shape)._array


def _add(x, y):
    return x + y


_ADD = Formula(_add, "add")
