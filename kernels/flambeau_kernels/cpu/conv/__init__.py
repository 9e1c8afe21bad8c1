"""Convolutions of numpy arrays: three maps, each a derivative of the other two.

Layouts: input ``(N, C, *spatial)``, weight ``(O, C / groups, *kernel)``, output ``(N, O, *positions)``. `convolve`
makes outputs of inputs and weights, `convolve_input` inputs of outputs and weights (the transposed convolution) and
`convolve_weight` weights of inputs and outputs. Compiled kernels compute floats, by an algorithm that is chosen here by
shape, numpy the rest and everything where nothing can be compiled (`arrays.py`). What has kernels is imported when it is chosen, for
others import this package for its names alone.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...engines import plans_kept_elsewhere
from ..tier import compiles
from . import arrays
from .arrays import (
    Ints,
    channel_sum,
    cropped,
    fold_windows,
    gather_windows,
    is_half,
    output_size,
    widened,
)

__all__ = [
    "channel_sum", "convolve", "convolve_input", "convolve_weight", "cropped", "fold_windows",
    "gather_windows", "is_half", "output_size", "planned", "widened",
]  # fmt: skip


def convolve(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, bias: Any = None
) -> Any:
    """Cross-correlate ``(N, C, *spatial)`` with ``(O, C / groups, *kernel)`` and add a bias ``(O,)``."""
    if compiles() and takes(x, w):
        made = arrays.output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
        return correlation(x, w, bias, made, stride, padding, dilation, groups, False)
    return arrays.convolve(x, w, stride, padding, dilation, groups, bias)


def planned(
    x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, transposed: bool
) -> Any:
    """``run(x, w, bias)``, as `convolve` or, `transposed`, `convolve_input` with extents `made`, for contiguous arrays of these
    shapes and dtypes; or None. Only for few positions, because it holds tables of them."""
    if not compiles() or prod(x.shape[2:]) + prod(made) > MOST_PLANNED:
        return None
    return chosen(x, w, made, stride, padding, dilation, groups, transposed) if takes(x, w) else None


MOST_PLANNED = 1 << 11


def convolve_input(
    y: Any, w: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, bias: Any = None
) -> Any:
    """What each output ``(N, O, *positions)`` contributes to an input of extent `spatial`: ``(N, C, *spatial)``."""
    if compiles() and takes(y, w):
        return correlation(y, w, bias, tuple(spatial), stride, padding, dilation, groups, True)
    return arrays.convolve_input(y, w, spatial, stride, padding, dilation, groups, bias)


def convolve_weight(
    x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """Correlate windows of ``(N, C, *spatial)`` with ``(N, O, *positions)``: ``(O, C / groups, *kernel)``."""
    if compiles() and takes(x, y):
        return correlation_weight(x, y, tuple(kernel), stride, padding, dilation, groups)
    return arrays.convolve_weight(x, y, kernel, stride, padding, dilation, groups)


# -- which kernels compute a map -----------------------------------------------------------------------------------------------

# What was chosen for arrays of some shapes and layouts, so many of them and with so many bytes of tables.
_chosen: dict[Any, Any] = {}
_MOST_CHOSEN, _MOST_BYTES = 1024, 64 << 20
_bytes = 0


def takes(x: Any, w: Any) -> bool:
    """Whether compiled kernels compute this, by dtypes and ranks."""
    floating = x.dtype.kind == "f" or is_half(x.dtype)
    return type(x) is np.ndarray and floating and x.ndim <= 5 and x.size > 0 and w.size > 0


def correlation(x: Any, w: Any, bias: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int,
                transposed: bool) -> Any:  # fmt: skip
    """`convolve` or, `transposed`, `convolve_input`: from ``(N, C, *)`` to channels of `w` and extents `made`."""
    return chosen(x, w, made, stride, padding, dilation, groups, transposed)(x, w, bias)


def chosen(x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, transposed: bool) -> Any:
    """What computes `correlation` for arrays of these shapes, strides and dtypes: ``run(x, w, bias)``."""
    settings = made, stride, padding, dilation, groups, transposed
    key = x.shape, x.strides, x.dtype, w.shape, w.strides, w.dtype, settings
    run = _chosen.get(key)
    if run is None:
        run = _kept(key, _choose(x, w, *settings), x.shape[2:], made)
    return run


def forget() -> None:
    """Choose anew for every shape."""
    global _bytes
    _chosen.clear()
    _bytes = 0


plans_kept_elsewhere.append(forget)


def _kept(key: Any, run: Any, *extents: Ints) -> Any:
    """Keep `run`, which may have two tables with a place for each position of arrays of `extents`."""
    global _bytes
    size = 16 * sum(map(prod, extents))
    if len(_chosen) >= _MOST_CHOSEN or _bytes + size > _MOST_BYTES:
        forget()
    _bytes += size
    _chosen[key] = run
    return run


def _choose(x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, transposed: bool) -> Any:
    from . import im2col, separate_windows, single_positions, single_taps, winograd, winograd_products
    from .direct import Direct, in_pairs

    if single_positions.pays(x, w, made, padding, groups):
        return partial(single_positions.convolve, transposed=transposed)
    if separate_windows.pays(x, w, made, stride, padding, dilation, groups, transposed):
        product = separate_windows.convolve_input if transposed else separate_windows.convolve
        return lambda x, w, bias: product(x, w, bias, made, stride)
    if groups == x.shape[1] and w.shape[1] == 1 and groups > 1:
        single = _single_channels(x, w, made, stride, padding, dilation, transposed)
        if single is not None:
            return single
    if single_taps.pays(x, w, made, stride, padding, groups, transposed):
        return partial(single_taps.convolve, transposed=transposed)
    n, c = x.shape[:2]
    kernel = w.shape[2:]
    outputs = w.shape[1] if transposed else w.shape[0] // groups
    if winograd_products.pays(x, made, outputs, kernel, stride, padding, dilation, groups, transposed):
        by_tiles = winograd_products.Tiles(x, w, made, stride, padding, transposed)
        return _or_directly(by_tiles, lambda x, w: Direct(x, w, made, stride, padding, dilation, groups, transposed))
    if im2col.pays(n, w.shape, x.shape[2:] if transposed else made, groups, x.dtype):
        by = im2col.convolve_input if transposed else im2col.convolve
        return lambda x, w, bias: by(x, w, bias, made, stride, padding, dilation)
    # Pairs of bfloat16 are multiplied at twice the speed, which is as fast as half the products, and costs no transforms.
    if not in_pairs(x.dtype) and winograd.pays(n, c // groups, outputs, made, kernel, stride, dilation, transposed):
        by_tiles = _Tiles(x, w, made, padding, groups, transposed, stride[-1])
        return _or_directly(by_tiles, lambda x, w: Direct(x, w, made, stride, padding, dilation, groups, transposed))
    return Direct(x, w, made, stride, padding, dilation, groups, transposed)


def _or_directly(by_tiles: Any, make: Any) -> Any:
    """By tiles, but what is not finite would reach whole tiles, or all taps: then all is computed again."""

    def run(x: Any, w: Any, *bias: Any) -> Any:
        made = by_tiles(x, w, *bias)
        return make(x, w)(x, w, *bias) if made is None else made

    return run


class _Tiles:
    """3 x 3: the transposed map, at step 1 alone, is a convolution with the weight turned round. None where some results are not finite."""

    def __init__(self, x: Any, w: Any, made: Ints, padding: Ints, groups: int, transposed: bool, step: int) -> None:
        from .direct import wide_kind
        from .winograd import BLOCK_BYTES, plan

        c = x.shape[1]
        outputs = w.shape[1] if transposed else w.shape[0] // groups
        self.kind, self.dtype, self.shape = wide_kind(x.dtype), x.dtype, (len(x), groups * outputs, *made)
        self.plan = plan(x.shape[2:], made, padding, w.shape[2:], c // groups, outputs, groups, transposed, step)
        self.step = max(1, BLOCK_BYTES // (c * self.plan.plane * self.kind.itemsize))

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        transformed = self.plan.weights(np.ascontiguousarray(w), self.kind)
        constants = np.zeros(self.shape[1], self.kind) if bias is None else np.ascontiguousarray(bias, self.kind)
        out = np.empty(self.shape, self.dtype)
        for i in range(0, len(x), self.step):
            if not self.plan.run(x[i:i + self.step], transformed, constants, out[i:i + self.step]):
                return None
        return out


def _single_channels(x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, transposed: bool) -> Any:
    """By the kernels for single channels, else None: transposed at other steps than 1 and 2, rows too long for a band."""
    from . import depthwise, depthwise_channels_last, depthwise_rows, depthwise_small_planes

    if not transposed or all(s == 1 for s in stride):
        axes, before = tuple(range(2, w.ndim)), padding
        if transposed:
            before = tuple(d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding, strict=True))
        by: Any = None
        if depthwise_channels_last.pays(x, w):
            by = depthwise_channels_last.Correlation(x, w, made, stride, before, dilation)
        elif depthwise_small_planes.pays(x, w, made, stride, before, dilation):
            by = depthwise_small_planes.Correlation(x, w, made, before)
        elif depthwise_rows.pays(x, made, w.shape[2:], stride, before, dilation):
            by = depthwise_rows.Correlation(x, w, made, stride, before, dilation)
        elif depthwise.rows_of_band(w, made, stride, dilation):
            by = partial(depthwise.convolve, made=made, stride=stride, padding=before, dilation=dilation)
        return (lambda x, w, bias: by(x, np.flip(w, axes), bias)) if by is not None and transposed else by
    if depthwise_rows.pays(x, made, w.shape[2:], stride, padding, dilation, True):
        return depthwise_rows.Correlation(x, w, made, stride, padding, dilation, True)
    return None


def correlation_weight(x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """`convolve_weight`."""
    settings = kernel, stride, padding, dilation, groups
    key = x.shape, x.strides, x.dtype, y.shape, y.strides, y.dtype, settings
    run = _chosen.get(key)
    if run is None:
        run = _kept(key, _choose_weight(x, y, *settings), x.shape[2:], y.shape[2:])
    return run(x, y)


def _choose_weight(x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    from . import depthwise_rows, im2col, separate_windows, weight, winograd_products

    if separate_windows.pays_for_weight(x, y, kernel, stride, padding, groups):
        return separate_windows.convolve_weight
    settings = kernel, stride, padding, dilation
    if groups == x.shape[1] and groups > 1 and depthwise_rows.pays_for_weight(x, y, *settings):
        return depthwise_rows.Gradient(x, y, *settings)
    if winograd_products.pays_for_weight(x, y.shape[2:], y.shape[1], kernel, stride, dilation, groups):
        by_tiles = winograd_products.Gradient(x, y, kernel, stride, padding)
        return _or_directly(by_tiles, lambda x, y: weight.Gradient(x, y, *settings, groups))
    if im2col.pays(len(x), (y.shape[1], x.shape[1], *kernel), y.shape[2:], groups, x.dtype):
        return lambda x, y: im2col.convolve_weight(x, y, *settings)
    if weight.is_product(x, y, kernel, stride, padding, groups):
        return weight.products
    return weight.Gradient(x, y, *settings, groups)
