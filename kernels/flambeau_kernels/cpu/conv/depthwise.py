"""Convolutions of single channels, whatever their kernels, paddings and dilations: what `depthwise_rows.py` does not take.

There is nothing to multiply matrices of, and an element read once is used once for each tap. A chunk brings a band of rows of
one plane into the first cache, padded and dealt out by the stride along x, and computes vectors of results from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lanes,
    load,
    local,
    multiply_add,
    store,
    widened,
)

from .channels_last import lane_count
from .planes import copy_row, fill_row, taken
from .walk import Ints, forward_axis

# Elements of the band of rows.
BAND = 1 << 13
# Slots of the geometry: channels, results for each channel, strides of image, channel and row; height, width, row
# stride of the source; extents of a row of the band; strides and extents of the output.
(CHANNELS, MULTIPLE, IMAGE, CHANNEL, ROW, COLUMN, HEIGHT, WIDTH, LOW_Y, LOW_X, DILATION, PHASES, EXTENT,
 OUT_IMAGE, OUT_CHANNEL, OUT_ROW, OUT_HEIGHT, OUT_WIDTH, BAND_ROWS, BANDS, TAP_ROWS, TAPS, TABLE) = range(23)  # fmt: skip


def fill_band(band, plane, first, rows, geometry, KIND, LANES, STRIDE_X, STEP, TAKEN):
    """Rows ``first, first + 1, ...`` of the padded plane: ``[row][phase][element]``."""
    extent, width = geometry[EXTENT], geometry[WIDTH]
    for i in range(rows):
        y = first + i - geometry[LOW_Y]
        for p in range(geometry[PHASES]):
            to = band + (i * geometry[PHASES] + p) * extent
            phase = geometry[TABLE + p]
            low = geometry[LOW_X]
            start = min((low - phase + STRIDE_X - 1) // STRIDE_X, extent) if low > phase else 0
            last = width - 1 + low - phase
            stop = min(last // STRIDE_X + 1, extent) if last >= 0 else 0
            if (y >= 0) & (y < geometry[HEIGHT]) & (start < stop):
                fill_row(to, 0, start, KIND, LANES)
                row = plane + (y * geometry[ROW] + (start * STRIDE_X + phase - low) * geometry[COLUMN])
                copy_row(row, to + start, stop - start, STRIDE_X * geometry[COLUMN], KIND, LANES, STEP, TAKEN)
                fill_row(to, stop, extent, KIND, LANES)
            else:
                fill_row(to, 0, extent, KIND, LANES)


def write(out, at, v, left, lane_sums, LANES, WIDE):
    if WIDE:
        store(out, at, v, left)
    else:
        store(lane_sums, 0, v)
        for i in range(min(LANES, left)):
            out[at + i] = lane_sums[i]


def results(band, weight, bias, out, row, left, shifts, geometry, spill, LANES, WIDE):
    """One vector of results; `row` is the length of a row of the band."""
    acc = broadcast(bias, LANES)
    for r in range(geometry[TAP_ROWS]):
        line = band + r * geometry[DILATION] * row
        for s in range(geometry[TAPS]):
            acc = multiply_add(load(line, shifts[s], LANES), broadcast(weight[r * geometry[TAPS] + s], LANES), acc)
    write(out, 0, acc, left, spill, LANES, WIDE)


@kernel
def depthwise(chunk, x, weight, bias, out, geometry, shifts, stride_y, *, STRIDE_X, STEP, TAKEN, WIDE):
    KIND = widened(weight)
    LANES = lanes(KIND)
    band = local(KIND, BAND + LANES)
    spill = local(KIND, LANES)
    plane = chunk // geometry[BANDS]
    first = (chunk - plane * geometry[BANDS]) * geometry[BAND_ROWS]
    rows = min(geometry[BAND_ROWS], geometry[OUT_HEIGHT] - first)
    image = plane // geometry[CHANNELS]
    channel = plane - image * geometry[CHANNELS]
    row = geometry[PHASES] * geometry[EXTENT]
    needed = (rows - 1) * stride_y + (geometry[TAP_ROWS] - 1) * geometry[DILATION] + 1
    source = x + (image * geometry[IMAGE] + channel * geometry[CHANNEL])
    fill_band(band, source, first * stride_y, needed, geometry, KIND, LANES, STRIDE_X, STEP, TAKEN)
    taps = geometry[TAP_ROWS] * geometry[TAPS]
    for m in range(geometry[MULTIPLE]):
        o = channel * geometry[MULTIPLE] + m
        w = weight + o * taps
        constant = bias[o]
        to = out + (image * geometry[OUT_IMAGE] + o * geometry[OUT_CHANNEL] + first * geometry[OUT_ROW])
        for y in range(rows):
            for i in range(0, geometry[OUT_WIDTH], LANES):
                results(band + (y * stride_y * row + i), w, constant, to + (y * geometry[OUT_ROW] + i), row,
                        geometry[OUT_WIDTH] - i, shifts, geometry, spill, LANES, WIDE)  # fmt: skip


def rows_of_band(w: Any, made: Ints, stride: Ints, dilation: Ints) -> int:
    """Rows of results whose source fits a band; 0 where not one does, or there are more than two axes."""
    if len(made) > 2:
        return 0
    taps, row = _kernel(w), _row(w, made, stride, dilation)
    height, dilated = (stride[0], dilation[0]) if len(made) == 2 else (1, 1)
    return max(0, (BAND // row - (taps[0] - 1) * dilated - 1) // height + 1)


def _kernel(w: Any) -> Ints:
    return (1, *w.shape[2:])[-2:]


def _row(w: Any, made: Ints, stride: Ints, dilation: Ints) -> int:
    axis = forward_axis(0, made[-1], w.shape[-1], stride[-1], 0, dilation[-1])
    return len(axis.phases) * axis.extent


def convolve(x: Any, w: Any, bias: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """The convolution of ``(N, C, H, W)`` or ``(N, C, W)`` with ``(C * multiple, 1, *kernel)``; padding may be negative."""
    kind = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    n, c = x.shape[:2]
    out = np.empty((n, w.shape[0], *made), x.dtype)
    size = x.itemsize
    line = len(made) == 1
    column = x.strides[-1] // size
    axis = forward_axis(x.shape[-1], made[-1], w.shape[-1], stride[-1], padding[-1], dilation[-1])
    taps_y, taps_x = _kernel(w)
    stride_y, dilation_y = (1, 1) if line else (stride[0], dilation[0])
    rows = min(rows_of_band(w, made, stride, dilation), 1 if line else made[0])
    height = 1 if line else made[0]
    bands = -(-height // rows)
    geometry = np.array([
        c, w.shape[0] // c, x.strides[0] // size, x.strides[1] // size, 0 if line else x.strides[2] // size, column,
        1 if line else x.shape[2], x.shape[-1], 0 if line else padding[0], padding[-1], dilation_y, len(axis.phases), axis.extent,
        out.strides[0] // size, out.strides[1] // size, 0 if line else out.strides[2] // size, height, made[-1],
        rows, bands, taps_y, taps_x, *axis.phases,
    ])  # fmt: skip
    shifts = np.array([tap.phase * axis.extent + tap.shift for tap in axis.lines[0].taps])
    distance = stride[-1] * column
    step = distance if distance in (1, 2) else 0
    constants = np.zeros(w.shape[0], kind) if bias is None else np.ascontiguousarray(bias, kind)
    depthwise.run(n * c * bands, x, np.ascontiguousarray(w, kind), constants, out, geometry, shifts, stride_y,
                  STRIDE_X=stride[-1], STEP=step, TAKEN=taken(step, lane_count(kind)), WIDE=out.dtype == kind)  # fmt: skip
    return out
