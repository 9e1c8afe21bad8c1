"""Images with their channels last and zeros around them, as the transforms of `winograd_products.py` want them, and back.

Squares of LANES channels by LANES positions are transposed in registers: in log2(LANES) steps, neighbours at a distance of
1, 2, 4, ... exchange those of their lanes that lie on the other side of the diagonal.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    prefetch,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engine.machine_code import llvm

from .walk import Ints

# Elements of a chunk; and how many squares ahead memory is asked for, whose many streams no processor foresees.
CHUNK, AHEAD = 1 << 15, 2
# Slots of the geometry: positions of an image that lie in memory one behind the other, channels, vectors of them, positions of
# a chunk and chunks of an image, elements from one image to the next there and here, and from one channel to the next.
POSITIONS, CHANNELS, WIDE, BAND, BANDS, IMAGE, LAST_IMAGE, CHANNEL, BORDERS = range(9)


def transpose(v, STAGES, LANES):
    """LANES vectors, each made the column it was."""
    for D, LOW, HIGH in unroll(STAGES):
        for i in unroll(range(LANES)):
            if i // D % 2 == 0:
                a, b = v[i], v[i + D]
                v[i] = shuffle(a, b, LOW)
                v[i + D] = shuffle(a, b, HIGH)


@kernel(in_vectors=True)
def to_last(chunk, source, out, places, borders, geometry, *, STAGES):
    """``source[image][channel][p]`` to ``out[image][places[p]][channel]``, zeros to the places `borders` and the channels
    beyond the last."""
    KIND = widened(out)
    LANES = lanes(KIND)
    v = local(vector(KIND, LANES), LANES)
    image = chunk // geometry[BANDS]
    start = (chunk - image * geometry[BANDS]) * geometry[BAND]
    stop = min(start + geometry[BAND], geometry[POSITIONS])
    wide = geometry[WIDE] * LANES
    to = out + image * geometry[LAST_IMAGE]
    if start == 0:
        for k in range(geometry[BORDERS]):
            for c in range(0, wide, LANES):
                store(to, borders[k] * wide + c, broadcast(KIND(0), LANES))
    for p in range(start, stop, LANES):
        for c in range(0, wide, LANES):
            line = source + (image * geometry[IMAGE] + c * geometry[CHANNEL] + p)
            here = geometry[CHANNELS] - c
            for r in unroll(range(LANES)):
                v[r] = load(line, r * geometry[CHANNEL], LANES, (stop - p) if r < here else 0)
                prefetch(line + (r * geometry[CHANNEL] + AHEAD * LANES))
            transpose(v, STAGES, LANES)
            # Positions beyond the last have a place that nothing reads.
            for k in unroll(range(LANES)):
                store(to, places[p + k] * wide + c, v[k])


@kernel(in_vectors=True)
def from_last(chunk, source, out, places, bias, finite, geometry, *, STAGES):
    """``source[image][places[p]][channel]`` plus a bias to ``out[image][channel][p]``; whether all is finite."""
    KIND = widened(out)
    LANES = lanes(KIND)
    v = local(vector(KIND, LANES), LANES)
    bad = broadcast(KIND(0), LANES)
    image = chunk // geometry[BANDS]
    start = (chunk - image * geometry[BANDS]) * geometry[BAND]
    stop = min(start + geometry[BAND], geometry[POSITIONS])
    wide = geometry[WIDE] * LANES
    begin = source + image * geometry[LAST_IMAGE]
    for p in range(start, stop, LANES):
        for c in range(0, wide, LANES):
            for k in unroll(range(LANES)):
                v[k] = load(begin, places[p + k] * wide + c, LANES)
                bad = bad + (v[k] - v[k])
            transpose(v, STAGES, LANES)
            line = out + (image * geometry[IMAGE] + c * geometry[CHANNEL] + p)
            here = geometry[CHANNELS] - c
            for r in unroll(range(LANES)):
                if r < here:
                    prefetch(line + (r * geometry[CHANNEL] + AHEAD * LANES))
                    store(line, r * geometry[CHANNEL], v[r] + bias[c + r], stop - p)
    finite[chunk] = lane_sum(bad) == 0


@functools.cache
def stages(count: int) -> tuple[Any, ...]:
    """Distances, and lanes of the two results, of the steps that transpose `count` vectors of `count` lanes."""
    made, d = [], 1
    while d < count:
        low = tuple(k if k // d % 2 == 0 else count + k - d for k in range(count))
        high = tuple(k + d if k // d % 2 == 0 else count + k for k in range(count))
        made.append((d, low, high))
        d *= 2
    return tuple(made)


def lane_count(kind: np.dtype) -> int:
    return llvm.machine().register_bits // (8 * kind.itemsize)


class Frame:
    """Where the positions of ``(N, C, *spatial)`` lie in an array ``(N, rows, columns, ..., channels)`` of extents `framed`, which
    begins `low` places before them."""

    def __init__(self, shape: Ints, framed: Ints, low: Ints, kind: np.dtype) -> None:
        c, *spatial = shape[1:]
        self.kind, self.lanes = kind, lane_count(kind)
        self.wide = -(-c // self.lanes) * self.lanes
        every, positions = prod(framed), prod(spatial)
        inside = np.arange(every, dtype=np.int64).reshape(framed)
        ok = np.zeros(framed, bool)
        cut, window = [], []                          # of the positions, those inside, and where they lie
        for size, extent, before in zip(spatial, framed, low, strict=True):
            stop = min(size, extent - before)
            cut.append(slice(0, stop))
            window.append(slice(before, stop + before))
        ok[tuple(window)] = True
        places = np.full(spatial, every, np.int64)               # what no tile sees goes to a place after the last
        places[tuple(cut)] = inside[tuple(window)]
        # The place after the last takes what is beyond the last position.
        self.places = np.concatenate([places.reshape(-1), np.full(self.lanes, every)])
        self.places_back = np.concatenate([places.reshape(-1), np.full(self.lanes, places.reshape(-1)[-1])])
        self.borders = np.ascontiguousarray(inside[~ok])
        band = max(1, CHUNK // (self.wide * self.lanes)) * self.lanes
        bands = -(-positions // band)
        self.size = (every + 1) * self.wide
        self.per_image = bands
        self.geometry = np.array([positions, c, self.wide // self.lanes, band, bands, c * positions, self.size, positions,
                                  len(self.borders)])  # fmt: skip
        types = (kind, kind, *(np.dtype(np.int64),) * 3)
        self._to = to_last.form(types, {"STAGES": stages(self.lanes)})

    def laid_out(self, x: np.ndarray) -> np.ndarray:
        """``(N, places, channels)`` of a contiguous `x`."""
        out = np.empty((len(x), self.size), self.kind)
        self._to(len(x) * self.per_image, False, x, out, self.places, self.borders, self.geometry)
        return out

    def taken_back(self, source: np.ndarray, out: np.ndarray, bias: np.ndarray) -> bool:
        """The inverse, plus a bias for each channel and those that fill up a vector. Returns whether all is finite."""
        finite = np.empty(len(out) * self.per_image, np.bool_)
        from_last.run(len(finite), source, out, self.places_back, bias, finite, self.geometry, STAGES=stages(self.lanes))
        return bool(finite.all())
