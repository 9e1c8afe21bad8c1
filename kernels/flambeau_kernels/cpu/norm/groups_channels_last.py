"""Group norm of images whose channels lie last in memory, forward and backward: vectors along channels, where the images lie.

A chunk is some positions of an image. Their sums for each channel are added up, eight positions in their own kind and these in float64,
and put together in the order of chunks. So the moments of a group are found in two passes, the second about its mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    kernel,
    lanes,
    load,
    local,
    rolled,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.vocabulary import fma

from ..conv.depthwise_rows import lane_count
from ..shapes.order import is_last
from ..tier import compiles

CHUNK = 32768                                         # elements
ROWS = 8  # positions that are added up in their own kind
TOGETHER = 4  # vectors of channels that are added up together
# What is added up of each element: itself, the square of how far it is from the centre, or the gradient and it times that distance.
SUMS, SQUARES, PRODUCTS = range(3)


def pays(x: Any) -> bool:
    """Whether ``(N, C, *spatial)`` has its channels last in memory, and they fill a vector."""
    if x.__class__ is not np.ndarray or not x.size or not compiles():
        return False
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    return floating and x.shape[1] >= lane_count(_kind(x.dtype)) and is_last(x)


def _kind(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def add_up(a, g, centre, sums, alongs, first, past, channels, COUNT, KIND, WHAT):
    """The sums of COUNT vectors of channels over positions `first` to `past`."""
    N = lanes(KIND)
    total, along = local(vector(float64, N), COUNT), local(vector(float64, N), COUNT)
    some, some_along, level = local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT)
    for B in unroll(range(COUNT)):
        total[B] = broadcast(float64(0), N)
        along[B] = broadcast(float64(0), N)
        level[B] = load(centre, B * N, N)
    for begin in rolled(range(first, past, ROWS)):
        for B in unroll(range(COUNT)):
            some[B] = broadcast(KIND(0), N)
            some_along[B] = broadcast(KIND(0), N)
        for i in rolled(range(begin, min(begin + ROWS, past))):
            for B in unroll(range(COUNT)):
                v = load(a, i * channels + B * N, N)
                if WHAT == SUMS:
                    some[B] = some[B] + v
                elif WHAT == SQUARES:
                    some[B] = fma(v - level[B], v - level[B], some[B])
                else:
                    w = load(g, i * channels + B * N, N)
                    some[B] = some[B] + w
                    some_along[B] = fma(w, v - level[B], some_along[B])
        for B in unroll(range(COUNT)):
            total[B] = total[B] + vector(float64, N)(some[B])
            along[B] = along[B] + vector(float64, N)(some_along[B])
    for B in unroll(range(COUNT)):
        store(sums, B * N, total[B])
        if WHAT == PRODUCTS:
            store(alongs, B * N, along[B])


@kernel(in_vectors=True)
def channel_sums(chunk, x, grad, centres, sums, alongs, channels, positions, per, blocks, *, WHAT):
    """For each chunk a row of sums; `centres` are ``(N, C)``. Operands that WHAT has no use for are others again."""
    KIND = widened(centres)
    N = lanes(KIND)
    image = chunk // blocks
    first = (chunk - image * blocks) * per
    past = min(first + per, positions)
    a, g, centre = x + image * positions * channels, grad + image * positions * channels, centres + image * channels
    to, along = sums + chunk * channels, alongs + chunk * channels
    c = 0
    while c + TOGETHER * N <= channels:
        add_up(a + c, g + c, centre + c, to + c, along + c, first, past, channels, TOGETHER, KIND, WHAT)
        c += TOGETHER * N
    while c < channels:
        # The last vector lies at the end, over channels that are added up twice.
        d = min(c, channels - N)
        add_up(a + d, g + d, centre + d, to + d, along + d, first, past, channels, 1, KIND, WHAT)
        c += N


@kernel(in_vectors=True)
def scale_channels(chunk, x, grad, centres, scales, shifts, tilts, out, channels, positions, per, blocks, *, GRAD):
    """``(x - centre) * scale + shift``, or with GRAD ``grad * scale + ((x - centre) * tilt + shift)``, of numbers ``(N, C)``."""
    KIND = widened(centres)
    N = lanes(KIND)
    image = chunk // blocks
    first = (chunk - image * blocks) * per
    at, numbers = image * positions * channels, image * channels
    for i in rolled(range(first, min(first + per, positions))):
        for v in rolled(range(0, channels, N)):
            c = min(v, channels - N)
            here = at + i * channels + c
            centre, scale, shift = load(centres, numbers + c, N), load(scales, numbers + c, N), load(shifts, numbers + c, N)
            away = load(x, here, N) - centre
            if GRAD:
                store(out, here, fma(load(grad, here, N), scale, fma(away, load(tilts, numbers + c, N), shift)))
            else:
                store(out, here, fma(away, scale, shift))


class _Cut:
    """How the positions of images like `x` are cut into chunks."""

    def __init__(self, x: Any) -> None:
        self.images, self.channels = x.shape[:2]
        self.positions = x.size // (self.images * self.channels)
        per = min(self.positions, max(ROWS, CHUNK // self.channels // ROWS * ROWS))
        self.blocks = -(-self.positions // per)
        self.chunks = self.images * self.blocks
        self.numbers = (self.channels, self.positions, per, self.blocks)

    def sums(self, x: Any, grad: Any, centres: np.ndarray, what: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums of channels of each image, ``(N, C)`` of float64, and those of products."""
        sums = np.empty((self.images, self.blocks, self.channels))
        alongs = np.empty(sums.shape if what == PRODUCTS else 1)
        channel_sums.run(self.chunks, x, grad, centres, sums, alongs, *self.numbers, WHAT=what)
        return np.add.reduce(sums, 1), np.add.reduce(alongs, 1) if what == PRODUCTS else alongs


def _of_groups(sums: np.ndarray, groups: int) -> np.ndarray:
    """Sums of channels ``(N, C)`` as those of groups ``(N, groups)``."""
    return np.add.reduce(sums.reshape(len(sums), groups, -1), 2)


def _of_channels(numbers: np.ndarray, channels: int, kind: np.dtype) -> np.ndarray:
    """Numbers of groups ``(N, groups)`` for each of their channels, ``(N, C)``."""
    return np.repeat(numbers, channels // numbers.shape[1], 1).astype(kind, copy=False)


def normalize(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``(N, C, *spatial)`` normalized, channels last in memory, and mean, variance and 1 / sqrt(variance + eps), ``(N, groups)``."""
    cut, kind = _Cut(x), _kind(x.dtype)
    count = cut.positions * (cut.channels // groups)
    with np.errstate(all="ignore"):
        exact = _of_groups(cut.sums(x, x, np.zeros((cut.images, cut.channels), kind), SUMS)[0], groups) / count
        mean = exact.astype(kind)
        centres = _of_channels(mean, cut.channels, kind)
        squares = _of_groups(cut.sums(x, x, centres, SQUARES)[0], groups) / count
        # The centre was rounded, so that distances miss those from the mean by as much.
        variance = np.maximum(squares - np.square(exact - mean), 0).astype(kind)
        inverse = kind.type(1) / np.sqrt(variance + kind.type(eps))
        scales = _of_channels(inverse, cut.channels, kind)
        if weight is not None:
            scales = scales * weight.astype(kind, copy=False)
    shifts = np.zeros(scales.shape, kind)
    if bias is not None:
        shifts += bias.astype(kind, copy=False)
    out = np.empty_like(x)
    scale_channels.run(cut.chunks, x, x, centres, scales, shifts, shifts, out, *cut.numbers, GRAD=False)
    return out, mean, variance, inverse


def backward(
    grad: Any, x: Any, weight: Any, mean: np.ndarray, inverse: np.ndarray, groups: int, of_input: bool
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The gradient at the input, channels last in memory, and for each channel of each image the sums of the gradient and of it times
    ``x - mean``, ``(N, C)`` of float64. `grad` has its channels last too."""
    cut, kind = _Cut(x), mean.dtype
    count = cut.positions * (cut.channels // groups)
    centres = _of_channels(mean, cut.channels, kind)
    totals, alongs = cut.sums(x, grad, centres, PRODUCTS)
    if not of_input:
        return None, totals, alongs
    with np.errstate(all="ignore"):
        factor = 1.0 if weight is None else weight.astype(np.float64)
        level, slope = (_of_groups(sums * factor, groups) / count for sums in (totals, alongs))
        tilts = _of_channels(-(inverse * inverse * inverse) * slope.astype(kind), cut.channels, kind)
        shifts = _of_channels(-inverse * level.astype(kind), cut.channels, kind)
        scales = _of_channels(inverse, cut.channels, kind)
        if weight is not None:
            scales = scales * weight.astype(kind, copy=False)
    out = np.empty_like(x)
    scale_channels.run(cut.chunks, x, grad, centres, scales, shifts, tilts, out, *cut.numbers, GRAD=True)
    return out, totals, alongs
