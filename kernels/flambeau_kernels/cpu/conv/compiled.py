"""The compiled convolutions: one entry for each of the three maps, and the table of algorithms by shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import depthwise, few, planes, product, weight, winograd
from .arrays import is_half
from .walk import Ints, Walk, walk

# Bytes of planes laid out at a time: so much of a cache that several cores share.
BLOCK_BYTES = 3 << 20


def takes(x: Any, w: Any) -> bool:
    """Whether the kernels here compute this, by dtypes and ranks."""
    floating = x.dtype.kind == "f" or is_half(x.dtype)
    return type(x) is np.ndarray and floating and x.ndim <= 5 and x.size > 0 and w.size > 0


def correlation(x: Any, w: Any, bias: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int,
                transposed: bool) -> Any:  # fmt: skip
    """`convolve` or, `transposed`, `convolve_input`: from ``(N, C, *)`` to channels of `w` and extents `made`."""
    if groups == x.shape[1] and w.shape[1] == 1 and groups > 1:
        made_directly = _single_channels(x, w, bias, made, stride, padding, dilation, transposed)
        if made_directly is not None:
            return made_directly
    n, c = x.shape[:2]
    kernel = w.shape[2:]
    if few.pays(n, w.shape, x.shape[2:] if transposed else made, groups, x.dtype):
        return (few.convolve_input if transposed else few.convolve)(x, w, bias, made, stride, padding, dilation)
    if winograd.pays(c // groups, (w.shape[1] if transposed else w.shape[0] // groups), made, kernel, stride, dilation):
        by_tiles = _by_tiles(x, w, bias, made, padding, groups, transposed)
        if by_tiles is not None:
            return by_tiles
    w = np.ascontiguousarray(w)
    outputs = w.shape[1] if transposed else w.shape[0] // groups
    taps = prod(kernel)
    output, channel = (taps, w.shape[1] * taps) if transposed else (w.shape[1] * taps, taps)
    tables = walk(transposed, x.shape[2:], made, kernel, stride, padding, dilation, c // groups, channel)
    kind = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    out = np.empty((n, groups * outputs, *made), x.dtype)
    ready = product.padded_bias(bias, groups, outputs, kind)
    group = (c // groups) * w.shape[1] * taps if transposed else outputs * w.shape[1] * taps
    packed = [product.packed_weights(w, step, groups, outputs, group, output, kind) for step in tables.passes]
    for first, last, source in _planes(x, tables, kind, c * tables.plane):
        part = out if last - first == n else out[first:last]
        for number, weights in enumerate(packed):
            _pass(source, weights, ready, part, tables, number, c, groups, outputs)
    return out


def _by_tiles(x: Any, w: Any, bias: Any, made: Ints, padding: Ints, groups: int, transposed: bool) -> Any:
    """3 x 3 at step 1: the transposed map is a convolution with the weight turned round. None where some results are not
    finite: they would reach whole tiles."""
    n, c = x.shape[:2]
    outputs = w.shape[1] if transposed else w.shape[0] // groups
    kind = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    plan = winograd.plan(x.shape[2:], made, padding, w.shape[2:], c // groups, outputs, groups, transposed)
    transformed = plan.weights(np.ascontiguousarray(w), kind)
    constants = np.zeros(groups * outputs, kind) if bias is None else np.ascontiguousarray(bias, kind)
    out = np.empty((n, groups * outputs, *made), x.dtype)
    step = max(1, BLOCK_BYTES // (c * plan.plane * kind.itemsize))
    for i in range(0, n, step):
        if not plan.run(x[i:i + step], transformed, constants, out[i:i + step]):
            return None
    return out


def _single_channels(x: Any, w: Any, bias: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints,
                     transposed: bool) -> Any:  # fmt: skip
    """By the direct kernel, where a band of rows fits the cache; transposed only at stride 1, else None."""
    if transposed:
        if any(s != 1 for s in stride) or w.shape[0] != x.shape[1]:
            return None
        w = np.flip(w, tuple(range(2, w.ndim)))
        padding = tuple(d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding, strict=True))
    if not depthwise.rows_of_band(w, made, stride, dilation):
        return None
    return depthwise.convolve(x, w, bias, made, stride, padding, dilation)


def _planes(x: Any, tables: Walk, kind: np.dtype, per_image: int) -> Any:
    """Blocks of images with their planes: ``(first, one past the last, planes)``."""
    n = x.shape[0]
    in_place = tables.in_place and x.dtype == kind and x.flags.c_contiguous
    step = n if in_place else max(1, BLOCK_BYTES // (per_image * kind.itemsize))
    for i in range(0, n, step):
        some = x if step >= n else x[i:i + step]
        planes_of = some if in_place else planes.planes_of(some, tables.axes, tables.plane, kind, tables.prepared)
        yield i, i + len(some), planes_of


def _source_layout(tables: Walk, counts: Ints, c: int, groups: int, out: tuple[int, int, Ints]) -> product.Layout:
    extents = [a.extent for a in tables.axes]
    steps = tuple(prod(extents[i + 1:]) for i in range(len(extents)))
    return product.Layout(counts, c * tables.plane, c // groups * tables.plane, steps, *out)


def _pass(source: Any, weights: Any, bias: Any, out: Any, tables: Walk, number: int, c: int, groups: int, outputs: int) -> None:
    one = tables.passes[number]
    key = number, out.shape, groups, source.dtype
    prepared = tables.prepared.get(key)
    if prepared is None:
        image, channel, *steps = (s // out.itemsize for s in out.strides)
        out_steps = tuple(s * k for s, k in zip(steps, one.steps, strict=True))
        layout = _source_layout(tables, one.counts, c, groups, (image, channel, out_steps))
        prepared = tables.prepared[key] = product.prepare(one, layout, len(out), groups, outputs, source.dtype)
    if any(one.first):
        out = out[(slice(None), slice(None), *(slice(f, None) for f in one.first))]
    product.run(source, weights, bias, out, one, prepared)


def correlation_weight(x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """`convolve_weight`."""
    c, o = x.shape[1], y.shape[1]
    if few.pays(len(x), (o, c, *kernel), y.shape[2:], groups, x.dtype):
        return few.convolve_weight(x, y, kernel, stride, padding, dilation)
    counts = y.shape[2:]
    tables = walk(False, x.shape[2:], counts, kernel, stride, padding, dilation, c // groups, prod(kernel))
    kind = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    plain = walk(False, counts, counts, (1,) * len(counts), (1,) * len(counts), (0,) * len(counts), (1,) * len(counts), 1, 1)
    sums = weight.Sums(groups, o // groups, tables.passes[0], kind)
    steps = tuple(prod(counts[i + 1:]) for i in range(len(counts)))
    # Joined where windows of successive rows lie behind each other; the gradient always is.
    at = _source_layout(tables, counts, c, groups, (0, 0, steps))
    by = product.Layout(counts, o * prod(counts), o // groups * prod(counts), steps, 0, 0, steps)
    for first, last, source in _planes(x, tables, kind, c * tables.plane):
        (_, _, gradient), = _planes(y[first:last], plain, kind, 1)
        sums.add(source, gradient, at, by, last - first)
    return sums.total().reshape(o, c // groups, *kernel).astype(x.dtype, copy=False)
