"""The source of a convolution laid out as padded planes: widened, with zeros around, one plane for each phase.

For every image and channel: ``[phase of each axis][element of each axis]``, so that all taps of a window are at a
fixed distance from its position. Arrays of up to three axes; a chunk lays out some channels of some images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    kernel,
    lanes,
    load,
    outlined,
    rolled,
    shuffle,
    store,
    widened,
)

from .walk import Axis

# Elements one chunk writes.
CHUNK = 1 << 15
# Slots of the geometry: planes and channels, planes in a chunk, strides of the source by image and channel; then for
# each of three axes: size, low, stride, extent, number of phases, stride of the source; then their phases.
PLANES, CHANNELS, PER_CHUNK, IMAGE, CHANNEL, AXES, WIDE, PHASES = 0, 1, 2, 3, 4, 5, 6, 5 + 3 * 6
MOST_PHASES = 64


def fill_row(to, start, stop, KIND, LANES):
    whole = start + (stop - start) // LANES * LANES
    for i in rolled(range(start, whole, LANES)):
        store(to, i, broadcast(KIND(0), LANES))
    for i in rolled(range(whole, stop)):
        to[i] = KIND(0)


def copy_row(source, to, count, distance, KIND, LANES, STEP):
    """``to[i] = source[i * distance]``; STEP is the distance where it is 1 or 2, else 0."""
    if STEP == 0:
        for i in rolled(range(count)):
            to[i] = source[i * distance]
    elif count >= LANES:
        for i in rolled(range(0, count - LANES, LANES)):
            copy_vector(source, to, i, LANES, STEP)
        # The last vector begins within the one before it: stores of parts take several times as long.
        copy_vector(source, to, count - LANES, LANES, STEP)
    elif STEP == 1:
        store(to, 0, load(source, 0, LANES, count), count)
    else:
        left = 2 * count - 1
        a, b = load(source, 0, LANES, left), load(source, LANES, LANES, left - LANES)
        store(to, 0, shuffle(a, b, tuple(range(0, 2 * LANES, 2))), count)


def copy_vector(source, to, i, LANES, STEP):
    if STEP == 1:
        store(to, i, load(source, i, LANES))
    else:
        # Nothing beyond the last element that is taken is read.
        a, b = load(source, 2 * i, LANES), load(source, 2 * i + LANES - 1, LANES)
        store(to, i, shuffle(a, b, tuple(range(0, LANES, 2)) + tuple(range(LANES + 1, 2 * LANES, 2))))


def first_inside(low, phase, stride):
    """The first element of a plane that is not before the source."""
    return (low - phase + stride - 1) // stride if low > phase else 0


def past_inside(size, low, phase, stride, extent):
    """The first element of a plane after the source."""
    last = size - 1 + low - phase
    return min(last // stride + 1, extent) if last >= 0 else 0


@kernel(in_vectors=True)
def lay_out(chunk, source, planes, geometry, *, STEP):
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
                                copy_row(row, to + start, stop - start, x[2] * x[5], KIND, LANES, STEP)
                                outlined(fill_row)(to, stop, x[3], KIND, LANES)
                            else:
                                outlined(fill_row)(to, 0, x[3], KIND, LANES)
                            to += x[3]


def planes_of(x: Any, axes: tuple[Axis, ...], plane: int, kind: np.dtype, prepared: dict[Any, Any]) -> np.ndarray:
    """The planes ``(images, channels, plane)`` of `x`, ``(images, channels, *axes)``, as `kind`.

    Args:
        prepared: keeps what was made for these axes.
    """
    made = np.empty((*x.shape[:2], plane), kind)
    key = x.shape, x.strides, x.itemsize
    found = prepared.get(key)
    if found is None:
        found = prepared[key] = prepare(x, axes, plane)
    chunks, geometry, step = found
    lay_out.run(chunks, x, made, geometry, STEP=step)
    return made


def prepare(x: Any, axes: tuple[Axis, ...], plane: int) -> tuple[int, np.ndarray, int]:
    """Chunks, geometry and STEP of `lay_out` for arrays like `x`."""
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
    distance = axes[-1].stride * x.strides[-1] // size
    return -(-images * channels // per_chunk), geometry, distance if distance in (1, 2) else 0
