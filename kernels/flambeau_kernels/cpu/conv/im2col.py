"""Convolutions with few output positions and many channels, as the last layers of an image network have them.

Their weights are most of the memory, and are read once, as they lie: windows are written out as the rows of a matrix
``(N * positions, C * taps)``, which is small, and `cpu/products/matmul.py` does the rest. All three maps are such products; the
gradient of the input is put back from windows in the order of positions and taps.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...engine.language import kernel, widened
from ..products.matmul import matmul
from ..shapes.move import contiguous

Ints = tuple[int, ...]
# At most so many positions of all images together, and at least so many weights.
POSITIONS, WEIGHTS = 256, 1 << 17


def pays(images: int, w_shape: Ints, positions: Ints, groups: int, dtype: np.dtype) -> bool:
    """Whether such products are the way to compute a convolution with these weights, by shape."""
    are_few = images * prod(positions) <= POSITIONS and prod(w_shape) >= WEIGHTS and prod(w_shape[2:]) > 1
    return are_few and groups == 1 and dtype.char in "fd"


def convolve(x: Any, w: Any, bias: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """``(N, C, *)`` to ``(N, O, *made)``."""
    rows = windows(x, made, w.shape[2:], stride, padding, dilation)
    # With a channel's results side by side the weights are read as they lie, and the few rows are packed instead.
    flat = np.empty((len(w), len(rows)), x.dtype).T                           # (N * positions, O)
    matmul(rows, contiguous(w).reshape(len(w), -1).T, flat)
    if bias is not None:
        flat += bias
    return _channels_first(flat, len(x), made)


def convolve_input(y: Any, w: Any, bias: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """``(N, O, *positions)`` back to ``(N, C, *spatial)``."""
    rows = matmul(_channels_last(y), contiguous(w).reshape(len(w), -1))       # (N * positions, C * taps)
    places = _places(spatial, y.shape[2:], w.shape[2:], stride, padding, dilation)
    made = np.zeros((len(y), w.shape[1], *spatial), y.dtype)
    positions, taps = places.shape
    put_back.run(len(y), rows, places, made, w.shape[1], prod(spatial), positions, taps)
    if bias is not None:
        made += bias.reshape(-1, *(1,) * len(spatial))
    return made


def convolve_weight(x: Any, y: Any, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """Windows of ``(N, C, *)`` against ``(N, O, *positions)``: ``(O, C, *kernel)``."""
    rows = windows(x, y.shape[2:], kernel_size, stride, padding, dilation)
    return matmul(_channels_last(y).T, rows).reshape(y.shape[1], x.shape[1], *kernel_size)


def windows(x: Any, made: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """The window of each position as a row: ``(N * positions, C * taps)``."""
    x = contiguous(x)
    places = _places(x.shape[2:], made, kernel_size, stride, padding, dilation)
    positions, taps = places.shape
    n, c = x.shape[:2]
    rows = np.empty((n * positions, c * taps), x.dtype)
    write_out.run(n * positions, x, places, rows, c, prod(x.shape[2:]), positions, taps)
    return rows


@lru_cache(maxsize=256)
def _places(spatial: Ints, made: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """Where in a plane each tap of each position lies, -1 in the padding: ``(positions, taps)``."""
    at = np.zeros((1, 1), np.int64)
    inside = np.ones((1, 1), bool)
    for length, count, size, s, p, d in zip(spatial, made, kernel_size, stride, padding, dilation, strict=True):
        along = np.arange(count)[:, None] * s + np.arange(size) * d - p                 # (positions, taps) of this axis
        ok = (along >= 0) & (along < length)
        at = (at[:, None, :, None] * length + along[None, :, None, :]).reshape(len(at) * count, -1)
        inside = (inside[:, None, :, None] & ok[None, :, None, :]).reshape(at.shape)
    return contiguous(np.where(inside, at, -1))


@kernel
def write_out(chunk: Any, x: Any, places: Any, rows: Any, channels: Any, plane: Any, positions: Any, taps: Any) -> Any:
    zero = widened(x)(0)
    source = x + (chunk // positions) * channels * plane
    at = places + (chunk % positions) * taps
    to = rows + chunk * channels * taps
    for _c in range(channels):
        for t in range(taps):
            place = at[t]
            to[t] = source[place] if place >= 0 else zero
        to = to + taps
        source = source + plane


@kernel
def put_back(chunk: Any, rows: Any, places: Any, made: Any, channels: Any, plane: Any, positions: Any, taps: Any) -> Any:
    for p in range(positions):
        source = rows + (chunk * positions + p) * channels * taps
        to = made + chunk * channels * plane
        for _c in range(channels):
            for t in range(taps):
                place = places[p * taps + t]
                if place >= 0:
                    to[place] += source[t]
            source = source + taps
            to = to + plane


def _channels_first(flat: Any, images: int, made: Ints) -> Any:
    return contiguous(flat.reshape(images, -1, flat.shape[1]).transpose(0, 2, 1)).reshape(images, -1, *made)


def _channels_last(y: Any) -> Any:
    """``(N, O, *positions)`` as ``(N * positions, O)``."""
    return contiguous(y.reshape(*y.shape[:2], -1).transpose(0, 2, 1)).reshape(-1, y.shape[1])
