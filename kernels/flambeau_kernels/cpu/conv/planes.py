"""The source of a convolution laid out as padded planes: widened, with zeros around, one plane for each phase.

For every image and channel: ``[phase of each axis][element of each axis]``, so that all taps of a window are at a
fixed distance from its position. Arrays of up to three axes; a chunk lays out some channels of some images.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lanes,
    load,
    local,
    outlined,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)

from .channels_last import lane_count, stages, transpose
from .walk import Axis

# Elements one chunk writes; channels and positions of the squares that are transposed where channels lie last.
CHUNK, SIDE = 1 << 15, 8
# Slots of the geometry: planes and channels, planes in a chunk, strides of the source by image and channel; then for
# each of three axes: size, low, stride, extent, number of phases, stride of the source; then their phases.
PLANES, CHANNELS, PER_CHUNK, IMAGE, CHANNEL, AXES, WIDE, PHASES = 0, 1, 2, 3, 4, 5, 6, 5 + 3 * 6
MOST_PHASES = 64
# Distances of elements, up to which vectors are made of whole ones: one pixel or two of three channels.
MOST_STEP = 6


def fill_row(to, start, stop, KIND, LANES):
    whole = start + (stop - start) // LANES * LANES
    for i in rolled(range(start, whole, LANES)):
        store(to, i, broadcast(KIND(0), LANES))
    for i in rolled(range(whole, stop)):
        to[i] = KIND(0)


def copy_row(source, to, count, distance, KIND, LANES, STEP, TAKEN):
    """``to[i] = source[i * distance]``; STEP is the distance where vectors are `TAKEN` at it, else 0."""
    if STEP == 0:
        copy_elements(source, to, count, distance)
    elif count >= LANES:
        for i in rolled(range(0, count - LANES, LANES)):
            copy_vector(source, to, i, LANES, STEP, TAKEN)
        # The last vector begins within the one before it: stores of parts take several times as long.
        copy_vector(source, to, count - LANES, LANES, STEP, TAKEN)
    elif STEP == 1:
        store(to, 0, load(source, 0, LANES, count), count)
    elif STEP == 2:
        left = 2 * count - 1
        a, b = load(source, 0, LANES, left), load(source, LANES, LANES, left - LANES)
        store(to, 0, shuffle(a, b, tuple(range(0, 2 * LANES, 2))), count)
    else:
        copy_elements(source, to, count, distance)


def copy_elements(source, to, count, distance):
    for i in rolled(range(count)):
        to[i] = source[i * distance]


def copy_vector(source, to, i, LANES, STEP, TAKEN):
    made = load(source, STEP * i, LANES)
    for FROM, PICKED in unroll(TAKEN):
        made = shuffle(made, load(source, STEP * i + FROM, LANES), PICKED)
    store(to, i, made)


@lru_cache(32)
def taken(step: int, lanes: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """How elements `step` apart come into one vector: where the second and each later vector of the source begins, and which lanes of
    what has been taken and of that vector are taken with it. Nothing beyond the last element is read."""
    made = []
    for v in range(1, step):
        begin = v * lanes if v < step - 1 else v * (lanes - 1)
        picked = []
        for k in range(lanes):
            place = step * k
            before = place if v == 1 else k           # the first vector is as it was read
            picked.append(before if place < v * lanes else lanes + min(place - begin, lanes - 1))
        made.append((begin, tuple(picked)))
    return tuple(made)


def first_inside(low, phase, stride):
    """The first element of a plane that is not before the source."""
    return (low - phase + stride - 1) // stride if low > phase else 0


def past_inside(size, low, phase, stride, extent):
    """The first element of a plane after the source."""
    last = size - 1 + low - phase
    return min(last // stride + 1, extent) if last >= 0 else 0


@kernel(in_vectors=True)
def lay_out(chunk, source, planes, geometry, *, STEP, TAKEN):
    KIND = widened(planes)
    LANES = lanes(KIND)
    first = chunk * geometry[PER_CHUNK]
    z, y, x = geometry + AXES, geometry + (AXES + WIDE), geometry + (AXES + 2 * WIDE)
    phases = geometry + PHASES
    to = planes + first * (z[3] * y[3] * x[3] * z[4] * y[4] * x[4])
    for number in rolled(range(first, min(first + geometry[PER_CHUNK], geometry[0]))):
        image = number // geometry[CHANNELS]
        plane = source + (image * geometry[IMAGE] + (number - image * geometry[CHANNELS]) * geometry[CHANNEL])
        for pz in rolled(range(z[4])):
            for py in rolled(range(y[4])):
                for px in rolled(range(x[4])):
                    phase = phases[2 * MOST_PHASES + px]
                    start = first_inside(x[1], phase, x[2])
                    stop = past_inside(x[0], x[1], phase, x[2], x[3])
                    at_x = (start * x[2] + phase - x[1]) * x[5]
                    for i in rolled(range(z[3])):
                        at_z = i * z[2] + phases[pz] - z[1]
                        for j in rolled(range(y[3])):
                            at_y = j * y[2] + phases[MOST_PHASES + py] - y[1]
                            inside = (at_z >= 0) & (at_z < z[0]) & (at_y >= 0) & (at_y < y[0]) & (start < stop)
                            if inside:
                                outlined(fill_row)(to, 0, start, KIND, LANES)
                                row = plane + (at_z * z[5] + at_y * y[5] + at_x)
                                copy_row(row, to + start, stop - start, x[2] * x[5], KIND, LANES, STEP, TAKEN)
                                outlined(fill_row)(to, stop, x[3], KIND, LANES)
                            else:
                                outlined(fill_row)(to, 0, x[3], KIND, LANES)
                            to += x[3]


def square(source, distance, to, plane, channels, positions, STAGES):
    """`SIDE` positions of a row, or as many as there are, of some channels, to a row of each plane."""
    v = local(vector(widened(to), SIDE), SIDE)
    if (channels >= SIDE) & (positions >= SIDE):
        for k in unroll(range(SIDE)):
            v[k] = load(source, k * distance, SIDE)
        transpose(v, STAGES, SIDE)
        for r in unroll(range(SIDE)):
            store(to, r * plane, v[r])
    else:
        for r in rolled(range(min(channels, SIDE))):
            for k in rolled(range(min(positions, SIDE))):
                to[r * plane + k] = source[k * distance + r]


@kernel(in_vectors=True)
def lay_out_last(chunk, source, planes, geometry, *, STAGES):
    """`lay_out` of an array whose channels lie last; a chunk is `SIDE` channels of an image."""
    KIND = widened(planes)
    LANES = lanes(KIND)
    z, y, x = geometry + AXES, geometry + (AXES + WIDE), geometry + (AXES + 2 * WIDE)
    phases = geometry + PHASES
    size = z[3] * y[3] * x[3] * z[4] * y[4] * x[4]
    groups = (geometry[CHANNELS] + SIDE - 1) // SIDE
    image = chunk // groups
    channel = (chunk - image * groups) * SIDE
    channels = min(SIDE, geometry[CHANNELS] - channel)
    plane = source + (image * geometry[IMAGE] + channel)
    to = planes + (image * geometry[CHANNELS] + channel) * size
    for pz in rolled(range(z[4])):
        for py in rolled(range(y[4])):
            for px in rolled(range(x[4])):
                phase = phases[2 * MOST_PHASES + px]
                start = first_inside(x[1], phase, x[2])
                stop = past_inside(x[0], x[1], phase, x[2], x[3])
                at_x, distance = (start * x[2] + phase - x[1]) * x[5], x[2] * x[5]
                for i in rolled(range(z[3])):
                    at_z = i * z[2] + phases[pz] - z[1]
                    for j in rolled(range(y[3])):
                        at_y = j * y[2] + phases[MOST_PHASES + py] - y[1]
                        inside = (at_z >= 0) & (at_z < z[0]) & (at_y >= 0) & (at_y < y[0]) & (start < stop)
                        begin, end = x[3], x[3]
                        if inside:
                            begin, end = start, stop
                            row = plane + (at_z * z[5] + at_y * y[5] + at_x)
                            for k in rolled(range(0, stop - start, SIDE)):
                                # The last square begins within the one before it, where there is one.
                                at = min(k, max(stop - start - SIDE, 0))
                                outlined(square)(row + at * distance, distance, to + start + at, size, channels, stop - start - at, STAGES)
                        for r in rolled(range(channels)):
                            outlined(fill_row)(to + r * size, 0, begin, KIND, LANES)
                            outlined(fill_row)(to + r * size, end, x[3], KIND, LANES)
                        to += x[3]


def planes_of(x: Any, axes: tuple[Axis, ...], plane: int, kind: np.dtype, prepared: dict[Any, Any]) -> np.ndarray:
    """The planes ``(images, channels, plane)`` of `x`, ``(images, channels, *axes)``, as `kind`.

    Args:
        prepared: keeps what was made for these axes.
    """
    made = np.empty((*x.shape[:2], plane), kind)
    key = x.shape, x.strides, x.dtype, kind
    found = prepared.get(key)
    if found is None:
        found = prepared[key] = prepare(x, axes, plane, kind)
    chunks, geometry, form = found
    form(chunks, False, x, made, geometry)
    return made


def prepare(x: Any, axes: tuple[Axis, ...], plane: int, kind: np.dtype) -> tuple[int, np.ndarray, Any]:
    """Chunks, geometry and the form of the kernel that lays arrays like `x` out as `kind`."""
    images, channels = x.shape[:2]
    size = x.itemsize
    geometry = np.zeros(PHASES + 3 * MOST_PHASES, np.int64)
    per_chunk = max(1, CHUNK // plane)
    geometry[:AXES] = images * channels, channels, per_chunk, x.strides[0] // size, x.strides[1] // size
    for a, axis, stride in zip((2, 1, 0), reversed(axes), reversed(x.strides[2:])):  # noqa: B905  # missing axes stay single
        geometry[AXES + a * WIDE : AXES + (a + 1) * WIDE] = (
            axis.size, axis.low, axis.stride, axis.extent, len(axis.phases), stride // size)  # fmt: skip
        geometry[PHASES + a * MOST_PHASES : PHASES + a * MOST_PHASES + len(axis.phases)] = axis.phases
    for a in range(3 - len(axes)):
        geometry[AXES + a * WIDE : AXES + (a + 1) * WIDE] = 1, 0, 1, 1, 1, 0
    types = x.dtype, kind, geometry.dtype
    if x.strides[1] == size and channels >= SIDE:
        return images * -(-channels // SIDE), geometry, lay_out_last.form(types, {"STAGES": stages(SIDE)})
    distance = axes[-1].stride * x.strides[-1] // size
    step = distance if 1 <= distance <= MOST_STEP else 0
    return -(-images * channels // per_chunk), geometry, lay_out.form(types, {"STEP": step, "TAKEN": taken(step, lane_count(kind))})
