"""Resampling of images whose channels lie last in memory: vectors along channels, and results in the same order of memory.

A result is the weighted sum of columns, each of them one of elements, in the order of `resample_rows.py`, so that a layout does not
change results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    independent,
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
from ..shapes.order import is_last, place_of_row
from ..tier import compiles
from .resample_rows import Table, whole_axis

CHUNK = 1 << 14                                       # results
MOST_TAPS = 4                                         # along both axes of an image, for which there is a text of their own
TOGETHER = 4  # vectors of channels that are made together
(CHANNELS, ROWS, PER_CHUNK, DEPTH, HEIGHT, WIDTH, SOURCE_DEPTH, SOURCE_HEIGHT, SOURCE_WIDTH, TAPS_Z, TAPS_Y, TAPS_X) = range(12)


def pays(x: Any, n: int, copies: bool) -> bool:
    """Whether ``(N, C, *spatial)``, of `n` spatial dimensions, has its channels last in memory, enough for a vector unless it `copies`."""
    if x.__class__ is not np.ndarray or x.ndim != n + 2 or not x.size or not compiles():
        return False
    if copies:
        return x.itemsize <= 8 and is_last(x)
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    return floating and x.shape[1] >= lane_count(x.dtype) and is_last(x)


def add_to_column(column, line, w, a, b, COUNT, N):
    """Add ``line * w`` to COUNT vectors, which are empty at the first tap along both axes."""
    for B in unroll(range(COUNT)):
        # Not added to zero, which would make -0 into 0.
        if (a == 0) & (b == 0):
            column[B] = load(line, B * N, N) * w
        else:
            column[B] = fma(load(line, B * N, N), w, column[B])


def add_column(made, column, x, t, image, at_z, at_y, weights_z, weights_y, used_z, used_y, weight, geometry, COUNT, KIND, TAPS):
    """Add column `x` of the image, which is tap `t` along its axis, to COUNT vectors."""
    N = lanes(KIND)
    for B in unroll(range(COUNT)):
        column[B] = broadcast(KIND(0), N)
    if TAPS > 0:
        for b in unroll(range(TAPS)):
            line = image + (at_y[b] * geometry[SOURCE_WIDTH] + x) * geometry[CHANNELS]
            add_to_column(column, line, broadcast(weights_y[b], N), 0, b, COUNT, N)
    else:
        for a in rolled(range(used_z)):
            for b in rolled(range(used_y)):
                line = image + ((at_z[a] * geometry[SOURCE_HEIGHT] + at_y[b]) * geometry[SOURCE_WIDTH] + x) * geometry[CHANNELS]
                add_to_column(column, line, broadcast(weights_z[a] * weights_y[b], N), a, b, COUNT, N)
    w = broadcast(weight, N)
    for B in unroll(range(COUNT)):
        if t == 0:
            made[B] = column[B] * w
        else:
            made[B] = fma(column[B], w, made[B])


def resampled(image, to, at_z, at_y, at_x, weights_z, weights_y, weights_x, used_z, used_y, used_x, geometry, COUNT, KIND, TAPS):
    """COUNT vectors of channels of one result, whose places and weights along each axis are those from here on."""
    N = lanes(KIND)
    made, column = local(vector(KIND, N), COUNT), local(vector(KIND, N), COUNT)
    for B in unroll(range(COUNT)):
        made[B] = broadcast(KIND(0), N)
    if TAPS > 0:
        for t in unroll(range(TAPS)):
            add_column(made, column, at_x[t], t, image, at_z, at_y, weights_z, weights_y, used_z, used_y, weights_x[t], geometry, COUNT,
                       KIND, TAPS)  # fmt: skip
    else:
        for t in rolled(range(used_x)):
            add_column(made, column, at_x[t], t, image, at_z, at_y, weights_z, weights_y, used_z, used_y, weights_x[t], geometry, COUNT,
                       KIND, TAPS)  # fmt: skip
    for B in unroll(range(COUNT)):
        store(to, B * N, made[B])


@kernel(in_vectors=True)
def resample_channels(chunk, source, out, places_z, weights_z, used_z, places_y, weights_y, used_y, places_x, weights_x, used_x,
                      geometry, *, TAPS):  # fmt: skip
    KIND = widened(weights_x)
    N = lanes(KIND)
    channels, width = geometry[CHANNELS], geometry[WIDTH]
    begin = chunk * geometry[PER_CHUNK]
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        number, z, y = place_of_row(row, geometry[DEPTH], geometry[HEIGHT])
        image = source + number * geometry[SOURCE_DEPTH] * geometry[SOURCE_HEIGHT] * geometry[SOURCE_WIDTH] * channels
        at_z, of_z = places_z + z * geometry[TAPS_Z], weights_z + z * geometry[TAPS_Z]
        at_y, of_y = places_y + y * geometry[TAPS_Y], weights_y + y * geometry[TAPS_Y]
        for x in rolled(range(width)):
            at_x, of_x = places_x + x * geometry[TAPS_X], weights_x + x * geometry[TAPS_X]
            to = out + (row * width + x) * channels
            c = 0
            while c + TOGETHER * N <= channels:
                resampled(image + c, to + c, at_z, at_y, at_x, of_z, of_y, of_x, used_z[z], used_y[y], used_x[x], geometry, TOGETHER,
                          KIND, TAPS)  # fmt: skip
                c += TOGETHER * N
            while c < channels:
                # The last vector lies at the end, over channels that are made twice.
                d = min(c, channels - N)
                resampled(image + d, to + d, at_z, at_y, at_x, of_z, of_y, of_x, used_z[z], used_y[y], used_x[x], geometry, 1, KIND, TAPS)
                c += N


@kernel
def copy_channels(chunk, source, out, places_z, places_y, places_x, geometry):
    """Results that are one element each."""
    channels, width = geometry[CHANNELS], geometry[WIDTH]
    begin = chunk * geometry[PER_CHUNK]
    for row in rolled(range(begin, min(begin + geometry[PER_CHUNK], geometry[ROWS]))):
        number, at_z, y = place_of_row(row, geometry[DEPTH], geometry[HEIGHT])
        z = number * geometry[SOURCE_DEPTH] + places_z[at_z]
        line = source + (z * geometry[SOURCE_HEIGHT] + places_y[y]) * geometry[SOURCE_WIDTH] * channels
        for x in rolled(range(width)):
            at, to = line + places_x[x] * channels, out + (row * width + x) * channels
            for c in independent(range(channels)):
                to[c] = at[c]


def planned(shape: tuple[int, ...], dtype: np.dtype, tables: list[Table], copies: bool) -> Any:
    """``run(x)``: one table for each spatial axis of ``(N, C, *spatial)``, whose channels lie last in memory, as those of the result do.

    Args:
        copies: whether every result is one element, whatever its dtype.
    """
    kind = tables[-1].weights.dtype
    axes = [whole_axis(kind)] * (3 - len(tables)) + tables
    counts, (z, y, x) = [table.count for table in tables], axes
    rows = shape[0] * z.count * y.count
    per_chunk = max(1, CHUNK // (x.count * shape[1]))
    chunks = -(-rows // per_chunk)
    geometry = np.array([shape[1], rows, per_chunk, *(t.count for t in axes), *(t.size for t in axes), *(t.taps for t in axes)])
    constant = (z.rows, z.row_weights, z.used, y.rows, y.row_weights, y.used, x.rows, x.row_weights, x.used, geometry)
    if copies:
        bits = np.dtype(f"i{dtype.itemsize}")
        places = (z.rows, y.rows, x.rows, geometry)
        copy = copy_channels.form((bits, bits, *(c.dtype for c in places)), {})

        def run_copies(a: Any) -> np.ndarray:
            out = np.empty((shape[0], *counts, shape[1]), dtype)
            copy(chunks, False, a.view(bits), out.view(bits), *places)
            return out.transpose(0, out.ndim - 1, *range(1, out.ndim - 1))

        return run_copies
    # Of two axes, along which there are as many places of every result.
    regular = len(tables) == 2 and x.taps == y.taps <= MOST_TAPS and all((table.used == table.taps).all() for table in tables)
    form = resample_channels.form((dtype, dtype, *(c.dtype for c in constant)), {"TAPS": x.taps if regular else 0})

    def run(a: Any) -> np.ndarray:
        out = np.empty((shape[0], *counts, shape[1]), dtype)
        form(chunks, False, a, out, *constant)
        return out.transpose(0, out.ndim - 1, *range(1, out.ndim - 1))

    return run
