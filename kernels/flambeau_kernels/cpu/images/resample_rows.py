"""Resampling, compiled: each row of the result is a weighted sum of rows of the source, resampled along itself.

The sum of rows is vectors added in the first cache. Along the row, places and weights come from tables; where an axis is
doubled, even and odd results each see their places in order, so that vectors are loaded and interleaved instead.
"""

from __future__ import annotations

import functools
from math import prod
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
    shuffle,
    store,
    unroll,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.vocabulary import fma

from ..shapes.move import contiguous
from ..shapes.order import place_of_row

# The longest rows, and results of a chunk.
MOST, CHUNK = 4096, 1 << 14
(ROWS, PER_CHUNK, DEPTH, HEIGHT, WIDTH, SOURCE_DEPTH, SOURCE_HEIGHT, SOURCE_WIDTH, TAPS_Z, TAPS_Y, TAPS_X,
 FROM, TO, SHIFTS) = range(14)  # fmt: skip


class Table:
    """An `AxisMap` for the kernel: places ``(count, taps)`` of rows, how many of them count, and for the last axis places
    ``(taps, count)`` with those that do not count at `size`, where the kernel keeps a zero."""

    def __init__(self, size: int, places: np.ndarray, weights: np.ndarray, taps: np.ndarray, kind: np.dtype) -> None:
        self.size, (self.taps, self.count) = size, places.shape
        self.used = taps
        self.rows, self.row_weights = contiguous(places.T), np.ascontiguousarray(weights.T, kind)
        counts = np.arange(self.taps)[:, None] < taps
        self.places = np.where(counts, places, size).astype(np.int32)
        self.weights = np.where(counts, weights, 0).astype(kind)
        self.doubling = self._doubling()

    def _doubling(self) -> tuple[int, int, np.ndarray]:
        """From where to where results 2j and 2j + 1 see places j + shift, and these shifts; nowhere if the axis is not doubled."""
        half = self.count // 2
        if self.count % 2 or half < 4 or self.taps > 4:
            return 0, 0, np.zeros(8, np.int64)
        middle = half // 2
        pairs = self.places.reshape(self.taps, half, 2)
        shifts = pairs[:, middle] - middle
        regular = (pairs == np.arange(half)[None, :, None] + shifts[:, None]).all((0, 2)) & (pairs < self.size).all((0, 2))
        wrong = np.flatnonzero(~regular)
        start = int(wrong[wrong < middle].max(initial=-1)) + 1
        stop = int(wrong[wrong >= middle].min(initial=half))
        if stop - start < half - 8:
            return 0, 0, np.zeros(8, np.int64)
        return start, stop, shifts.T.reshape(-1).astype(np.int64)


def whole_axis(kind: np.dtype) -> Table:
    """The table of an axis that an image does not have."""
    return Table(1, np.zeros((1, 1), np.int64), np.ones((1, 1)), np.ones(1, np.int64), kind)


def table(indices: np.ndarray, weights: np.ndarray | None, size: int, transposed: bool, kind: np.dtype) -> Table:
    taps, count = indices.shape
    if weights is None:
        weights = np.ones(indices.shape, kind)
    if not transposed:
        return Table(size, indices, weights, np.full(count, taps), kind)
    # Row i of the transpose has the results that place i contributes to, in their order.
    results = np.tile(np.arange(count), taps)
    flat, values = indices.reshape(-1), weights.reshape(-1)
    keep = values != 0
    order = np.lexsort((results[keep], flat[keep]))
    flat, values, results = flat[keep][order], values[keep][order], results[keep][order]
    used = np.bincount(flat, minlength=size)
    longest = max(int(used.max(initial=0)), 1)
    at = np.arange(len(flat)) - np.repeat(np.cumsum(used) - used, used)
    places, scaled = np.zeros((longest, size), np.int64), np.zeros((longest, size), kind)
    places[at, flat], scaled[at, flat] = results, values
    return Table(count, places, scaled, used, kind)


def write(out, at, v, left, spill, LANES, WIDE):
    if WIDE:
        store(out, at, v, left)
    else:
        store(spill, 0, v)
        for i in range(min(LANES, left)):
            out[at + i] = spill[i]


def sum_rows(source, total, z, y, rows_z, weights_z, used_z, rows_y, weights_y, used_y, geometry, LANES):
    """The weighted sum of the rows that row (z, y) of the result comes from."""
    KIND = widened(total)
    width = geometry[SOURCE_WIDTH]
    for i in range(0, width, LANES):
        left = width - i
        v = broadcast(KIND(0), LANES)
        for a in range(used_z[z]):
            at_z = rows_z[z * geometry[TAPS_Z] + a] * geometry[SOURCE_HEIGHT]
            wz = weights_z[z * geometry[TAPS_Z] + a]
            for b in range(used_y[y]):
                row = source + (at_z + rows_y[y * geometry[TAPS_Y] + b]) * width
                w = broadcast(wz * weights_y[y * geometry[TAPS_Y] + b], LANES)
                term = load(row, i, LANES, left)
                # Not added to zero, which would make -0 into 0.
                if (a == 0) & (b == 0):
                    v = term * w
                else:
                    v = fma(term, w, v)
        store(total, i, v)
    total[width] = 0


def pick(total, places, weights, start, stop, taps, count, result, STEPS):
    """Results `start` to `stop` of a row, by the tables."""
    for j in STEPS(range(start, stop)):
        result[j] = total[places[j]] * weights[j]
    for t in range(1, taps):
        at, w = places + t * count, weights + t * count
        for j in STEPS(range(start, stop)):
            result[j] = fma(total[at[j]], w[j], result[j])


def double(out, total, weights, shifts, start, stop, half, spill, TAPS, LOW, HIGH, LANES, WIDE):
    """Results 2j and 2j + 1 for j from `start` to `stop`; `weights` are ``[parity][tap][j]``."""
    for j in range(start, stop, LANES):
        left = 2 * (stop - j)
        even = load(total, j + shifts[0], LANES) * load(weights, j, LANES, stop - j)
        odd = load(total, j + shifts[TAPS], LANES) * load(weights, TAPS * half + j, LANES, stop - j)
        for t in unroll(range(1, TAPS)):
            even = fma(load(total, j + shifts[t], LANES), load(weights, t * half + j, LANES, stop - j), even)
            odd = fma(load(total, j + shifts[TAPS + t], LANES), load(weights, (TAPS + t) * half + j, LANES, stop - j), odd)
        write(out, 2 * j, shuffle(even, odd, LOW), left, spill, LANES, WIDE)
        write(out, 2 * j + LANES, shuffle(even, odd, HIGH), left - LANES, spill, LANES, WIDE)


@kernel
def resample_rows(chunk, source, out, rows_z, weights_z, used_z, rows_y, weights_y, used_y, places, weights, pairs,
                  geometry, *, TAPS, WIDE, LOW, HIGH):  # fmt: skip
    KIND = widened(weights)
    LANES = lanes(KIND)
    total = local(KIND, MOST + 4 * LANES)
    result = local(KIND, MOST + LANES)
    spill = local(KIND, LANES)
    width = geometry[WIDTH]
    first = chunk * geometry[PER_CHUNK]
    for i in range(LANES):                            # read, but not used, before the first place
        total[i] = 0
    sums = total + LANES
    for row in range(first, min(first + geometry[PER_CHUNK], geometry[0])):
        plane, z, y = place_of_row(row, geometry[DEPTH], geometry[HEIGHT])
        area = geometry[SOURCE_DEPTH] * geometry[SOURCE_HEIGHT] * geometry[SOURCE_WIDTH]
        sum_rows(source + plane * area, sums, z, y, rows_z, weights_z, used_z, rows_y, weights_y, used_y, geometry, LANES)
        to = out + row * width
        start, stop = 2 * geometry[FROM], 2 * geometry[TO]
        if TAPS > 0:
            double(to, sums, pairs, geometry + SHIFTS, geometry[FROM], geometry[TO], width // 2, spill, TAPS, LOW,
                   HIGH, LANES, WIDE)  # fmt: skip
        # Beside what is doubled there are a few results at either end.
        if TAPS > 0:
            first_pick, last_pick = 0, start
            for _side in rolled(range(2)):
                pick(sums, places, weights, first_pick, last_pick, geometry[TAPS_X], width, result, rolled)
                first_pick, last_pick = stop, width
            for j in rolled(range(start)):
                to[j] = result[j]
        else:
            pick(sums, places, weights, 0, width, geometry[TAPS_X], width, result, independent)
        for j in range(stop, width, LANES):
            write(to, j, load(result, j, LANES), width - j, spill, LANES, WIDE)


def takes(x: Any, sizes: tuple[int, ...]) -> bool:
    floating = x.dtype.kind == "f" or (x.dtype.kind == "V" and x.dtype.itemsize == 2)
    longest = max(x.shape[-1], sizes[-1])
    return type(x) is np.ndarray and floating and x.size > 0 and 1 <= len(sizes) <= 3 and longest <= MOST and prod(sizes) > 0


def planned(planes: int, dtype: np.dtype, tables: list[Table], shape: tuple[int, ...]) -> Any:
    """``run(x)``: one table for each of the last axes of ``(planes, *spatial)``.

    Results are of `shape`, for contiguous arrays of `dtype` and so many planes.
    """
    n = len(tables)
    kind = tables[-1].weights.dtype
    z, y, last = [whole_axis(kind)] * (3 - n) + tables
    start, stop, shifts = last.doubling
    half = last.count // 2
    doubles = stop > start
    if not doubles:
        start = stop = 0
    pairs = last.weights
    if doubles:
        pairs = contiguous(last.weights.reshape(last.taps, half, 2).transpose(2, 0, 1))
    rows = planes * z.count * y.count
    per_chunk = max(1, CHUNK // last.count)
    geometry = np.array([rows, per_chunk, z.count, y.count, last.count, z.size, y.size, last.size, z.taps, y.taps, last.taps,
                         start, stop, *shifts])  # fmt: skip
    constant = (z.rows, z.row_weights, z.used, y.rows, y.row_weights, y.used, last.places, last.weights, pairs, geometry)
    chunks = -(-rows // per_chunk)
    form = resample_rows.form((dtype, dtype, *(c.dtype for c in constant)), {
        "TAPS": last.taps if doubles else 0, "WIDE": dtype == kind, "LOW": interleaved(kind, 0), "HIGH": interleaved(kind, 1),
    })  # fmt: skip

    def run(a: Any) -> Any:
        out = np.empty(shape, dtype)
        form(chunks, False, a, out, *constant)
        return out

    return run


def apply(x: Any, tables: list[Table]) -> Any:
    """One table for each of the last axes of ``(planes, *spatial)``."""
    return planned(len(x), x.dtype, tables, (len(x), *(t.count for t in tables)))(contiguous(x))


@functools.cache
def interleaved(kind: np.dtype, half: int) -> tuple[int, ...]:
    """Lanes of two vectors by turns, of their lower or upper `half`."""
    lanes = llvm.machine().register_bits // (8 * kind.itemsize)
    first = half * lanes // 2
    return tuple(first + lane // 2 + lanes * (lane % 2) for lane in range(lanes))
