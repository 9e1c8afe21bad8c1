"""Padding, compiled: rows of the result are copied from rows of the source, with their ends from a table of places.

Elements are moved as unsigned integers of their size, whatever their dtype. A chunk fills some planes; or some rows of images whose
channels lie last, where places are those of all channels together.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import broadcast, kernel, lanes, load, rolled, store, widened

from ..conv import is_half
from .move import contiguous
from .order import place_of_row
from .pad import Pairs, pad_indices

_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
# Elements below which numpy's copies are as fast, and elements of a chunk.
SMALLEST, CHUNK = 1 << 11, 1 << 15
PLANES, PER_CHUNK, DEPTH, HEIGHT, WIDTH, FROM, TO, MIDDLE, SOURCE_DEPTH, SOURCE_HEIGHT, SOURCE_WIDTH, CHANNELS = range(12)


def end_of_row(row, out, places, start, stop, value):
    for i in rolled(range(start, stop)):
        place = places[i]
        if place >= 0:
            out[i] = row[place]
        else:
            out[i] = value


@kernel
def pad_rows(chunk, source, out, fill, places_z, places_y, places_x, geometry):
    LANES = lanes(widened(out))
    width, start, stop = geometry[WIDTH], geometry[FROM], geometry[TO]
    value = fill[0]
    first = chunk * geometry[PER_CHUNK]
    to = out + first * geometry[DEPTH] * geometry[HEIGHT] * width
    for plane in range(first, min(first + geometry[PER_CHUNK], geometry[0])):
        for i in range(geometry[DEPTH]):
            z = places_z[i]
            for j in range(geometry[HEIGHT]):
                y = places_y[j]
                if (z >= 0) & (y >= 0):
                    at = ((plane * geometry[SOURCE_DEPTH] + z) * geometry[SOURCE_HEIGHT] + y) * geometry[SOURCE_WIDTH]
                    row = source + at
                    end_of_row(row, to, places_x, 0, start, value)
                    inner, line = row + geometry[MIDDLE], to + start
                    for k in range(0, stop - start, LANES):
                        left = stop - start - k
                        if left >= LANES:
                            store(line, k, load(inner, k, LANES))
                        else:
                            store(line, k, load(inner, k, LANES, left), left)
                    end_of_row(row, to, places_x, stop, width, value)
                else:
                    for k in range(0, width, LANES):
                        store(to, k, broadcast(value, LANES), width - k)
                to += width


def copy_run(to, source, count, LANES):
    for k in range(0, count, LANES):
        left = count - k
        if left >= LANES:
            store(to, k, load(source, k, LANES))
        else:
            store(to, k, load(source, k, LANES, left), left)


def filled(to, value, count, LANES):
    for k in range(0, count, LANES):
        store(to, k, broadcast(value, LANES), count - k)


@kernel
def pad_channels(chunk, source, out, fill, places_z, places_y, places_x, geometry):
    """`pad_rows` of images whose channels lie last."""
    LANES = lanes(widened(out))
    width, start, stop, channels = geometry[WIDTH], geometry[FROM], geometry[TO], geometry[CHANNELS]
    value, middle = fill[0], stop - start
    first = chunk * geometry[PER_CHUNK]
    rows = geometry[PLANES] * geometry[DEPTH] * geometry[HEIGHT]
    to = out + first * width * channels
    for r in rolled(range(first, min(first + geometry[PER_CHUNK], rows))):
        image, i, j = place_of_row(r, geometry[DEPTH], geometry[HEIGHT])
        z, y = places_z[i], places_y[j]
        if (z >= 0) & (y >= 0):
            row = source + ((image * geometry[SOURCE_DEPTH] + z) * geometry[SOURCE_HEIGHT] + y) * geometry[SOURCE_WIDTH] * channels
            copy_run(to + start * channels, row + geometry[MIDDLE] * channels, middle * channels, LANES)
            for k in rolled(range(width - middle)):
                at = k if k < start else k + middle
                if places_x[at] >= 0:
                    copy_run(to + at * channels, row + places_x[at] * channels, channels, LANES)
                else:
                    filled(to + at * channels, value, channels, LANES)
        else:
            filled(to, value, width * channels, LANES)
        to += width * channels


def fold_end(row, to, places, start, stop):
    """Adds elements to their places; those of one place in a row are added up before."""
    total = row[0] - row[0]
    for i in rolled(range(start, stop)):
        total = row[i] if i == start or places[i] != places[i - 1] else total + row[i]
        if i + 1 == stop or places[i + 1] != places[i]:
            to[places[i]] = to[places[i]] + total


@kernel
def fold_rows(chunk, grad, out, places_y, places_x, geometry):
    """The transpose of `pad_rows` of planes, where no place is that of a constant: planes of `out` are made whole, row after row."""
    LANES = lanes(widened(out))
    width, start, stop = geometry[WIDTH], geometry[FROM], geometry[TO]
    area = geometry[SOURCE_HEIGHT] * geometry[SOURCE_WIDTH]
    first = chunk * geometry[PER_CHUNK]
    row = grad + first * geometry[HEIGHT] * width
    for plane in range(first, min(first + geometry[PER_CHUNK], geometry[0])):
        base = out + plane * area
        for k in range(0, area, LANES):
            store(base, k, broadcast(widened(out)(0), LANES), area - k)
        for j in range(geometry[HEIGHT]):
            to = base + places_y[j] * geometry[SOURCE_WIDTH]
            fold_end(row, to, places_x, 0, start)
            inner, line = to + geometry[MIDDLE], row + start
            for k in range(0, stop - start, LANES):
                left = stop - start - k
                store(inner, k, load(inner, k, LANES, left) + load(line, k, LANES, left), left)
            fold_end(row, to, places_x, stop, width)
            row += width


def fold_ends(row, to, places, start, stop, channels, LANES):
    """`fold_end` of all channels."""
    for c in rolled(range(0, channels, LANES)):
        left = channels - c
        total = load(row, c, LANES, left)
        for i in rolled(range(start, stop)):
            here = load(row + i * channels, c, LANES, left)
            if (i == start) | (places[i] != places[max(i - 1, 0)]):
                total = here
            else:
                total = total + here
            if (i + 1 == stop) | (places[i] != places[min(i + 1, stop - 1)]):
                at = to + places[i] * channels
                store(at, c, load(at, c, LANES, left) + total, left)


@kernel
def fold_channels(chunk, grad, sums, out, places_y, places_x, geometry, *, ROUNDS):
    """`fold_rows` of images whose channels lie last; a chunk is an image. Halves are added up in `sums`, and rounded to `out` if ROUNDS."""
    LANES = lanes(widened(sums))
    width, start, stop, channels = geometry[WIDTH], geometry[FROM], geometry[TO], geometry[CHANNELS]
    line = geometry[SOURCE_WIDTH] * channels
    size = geometry[SOURCE_HEIGHT] * line
    base, row = sums + chunk * size, grad + chunk * geometry[HEIGHT] * width * channels
    filled(base, widened(sums)(0), size, LANES)
    for j in rolled(range(geometry[HEIGHT])):
        to = base + places_y[j] * line
        fold_ends(row, to, places_x, 0, start, channels, LANES)
        inner, given, count = to + geometry[MIDDLE] * channels, row + start * channels, (stop - start) * channels
        for k in range(0, count, LANES):
            left = count - k
            store(inner, k, load(inner, k, LANES, left) + load(given, k, LANES, left), left)
        fold_ends(row, to, places_x, stop, width, channels, LANES)
        row += width * channels
    if ROUNDS:
        copy_run(out + chunk * size, base, size, LANES)


def folded_channels(grad: Any, sizes: tuple[int, ...], pairs: Pairs, mode: str) -> Any:
    """`folded` of ``(N, C, H, W)`` whose channels lie last in memory, in the same order."""
    _, _, places, geometry = _plan(len(grad), sizes, pairs, mode)
    shape, dtype = (len(grad), *sizes, grad.shape[1]), grad.dtype
    rounds = is_half(dtype)
    sums = np.empty(shape, np.float32 if rounds else dtype)
    out = np.empty(shape, dtype) if rounds else sums
    form = fold_channels.form((dtype, sums.dtype, dtype, *[np.dtype(np.int64)] * 3), {"ROUNDS": rounds})
    form(len(grad), False, grad, sums, out, *places[1:], np.append(geometry, grad.shape[1]))
    return out.transpose(0, 3, 1, 2)


def planned_channels(x: Any, pairs: Pairs, mode: str, value: Any) -> Any:
    """``run(x)``: `pad_images` of arrays of the shape, strides and dtype of `x`; None where nothing would be made."""
    found = _planned_channels(x.shape, x.dtype, pairs, mode)
    if found is None:
        return None
    form, chunks, places, geometry, made = found
    fill, order, dtype = np.array([value]).astype(x.dtype), (0, x.ndim - 1, *range(1, x.ndim - 1)), x.dtype

    def run(x: Any) -> Any:
        out = np.empty(made, dtype)
        form(chunks, False, x, out, fill, *places, geometry)
        return out.transpose(order)

    return run


@engines.kept(256)
def _planned_channels(shape: tuple[int, ...], dtype: np.dtype, pairs: Pairs, mode: str) -> Any:
    """The form of the kernel, chunks, places along three axes, geometry, and the shape of what is made, channels last."""
    images, channels, *spatial = shape
    padded, chunks, places, geometry = _plan(images, tuple(spatial), ((0, 0),) * (len(spatial) - len(pairs)) + pairs, mode)
    if not chunks:
        return None
    bits, rows = _UNSIGNED[dtype.itemsize], images * prod(padded[:-1])
    geometry = np.append(geometry, channels)
    per_chunk = geometry[PER_CHUNK] = max(1, CHUNK // (padded[-1] * channels))
    form = pad_channels.form((bits, bits, bits, *[np.dtype(np.int64)] * 4), {})
    return form, -(-rows // per_chunk), places, geometry, (images, *padded, channels)


def folded(grad: Any, sizes: tuple[int, ...], pairs: Pairs, mode: str) -> Any:
    """The gradient of what `pairs` and a `mode` other than 'constant' pad along two axes at most, of that of the padded elements."""
    lead = grad.shape[: grad.ndim - len(pairs)]
    _, chunks, places, geometry = _plan(prod(lead), sizes, pairs, mode)
    out = np.empty((*lead, *sizes), grad.dtype)
    _fold_form(grad.dtype)(chunks, False, contiguous(grad), out, *places[1:], geometry)
    return out


@engines.kept(8)
def _fold_form(dtype: np.dtype) -> Any:
    return fold_rows.form((dtype, dtype, *[np.dtype(np.int64)] * 3), {})


def padded(x: Any, pairs: Pairs, mode: str, value: Any) -> Any:
    """`x` padded around its last axes, three at most; `mode` is one of `pad_indices`, `value` that of 'constant'."""
    lead = x.shape[:x.ndim - len(pairs)]
    shape, chunks, places, geometry = _plan(prod(lead), x.shape[x.ndim - len(pairs):], pairs, mode)
    out = np.empty((*lead, *shape), x.dtype)
    if not out.size:
        return out
    unsigned = _UNSIGNED[x.itemsize]
    fill = np.array([value]).astype(x.dtype).view(unsigned)
    pad_rows.run(chunks, contiguous(x).view(unsigned), out.view(unsigned), fill, *places, geometry)
    return out


def planned(x: Any, pairs: Pairs, mode: str, value: Any) -> Any:
    """``run(x)``, as `padded`, for contiguous arrays of the shape and dtype of `x`; None where nothing would be made."""
    lead, dtype, bits = x.shape[:x.ndim - len(pairs)], x.dtype, _UNSIGNED[x.itemsize]
    shape, chunks, places, geometry = _plan(prod(lead), x.shape[x.ndim - len(pairs):], pairs, mode)
    if not chunks:
        return None
    fill = np.array([value]).astype(dtype)
    # Which looks at nothing of an array but where it lies.
    padded_shape, form = (*lead, *shape), pad_rows.form((bits, bits, bits, *[np.dtype(np.int64)] * 4), {})

    def run(x: Any) -> Any:
        out = np.empty(padded_shape, dtype)
        form(chunks, False, x, out, fill, *places, geometry)
        return out

    return run


@lru_cache(maxsize=256)
def _plan(planes: int, spatial: tuple[int, ...], pairs: Pairs, mode: str) -> tuple[Any, int, list[np.ndarray], np.ndarray]:
    """Extents of a padded plane, chunks, places along each of three axes, and the geometry."""
    n = len(pairs)
    by_axis = [np.zeros(1, np.int64)] * (3 - n) + [
        np.ascontiguousarray(pad_indices(size, a, b, mode), np.int64) for size, (a, b) in zip(spatial, pairs, strict=True)
    ]
    depth, height, width = (len(p) for p in by_axis)
    shape = tuple(len(p) for p in by_axis[3 - n:])
    if not planes * depth * height * width:
        return shape, 0, by_axis, np.zeros(0, np.int64)
    last = by_axis[2]
    # The longest stretch of places that follow each other, which is copied whole.
    breaks = np.flatnonzero((np.diff(last) != 1) | (last[:-1] < 0)) + 1
    edges = [0, *breaks.tolist(), width]
    start, stop = max(pairwise(edges), key=lambda e: e[1] - e[0])
    if last[start] < 0:
        stop = start
    per_chunk = max(1, CHUNK // (depth * height * width))
    sources = (1,) * (3 - n) + spatial
    geometry = np.array([planes, per_chunk, depth, height, width, start, stop, last[start], *sources])
    return shape, -(-planes // per_chunk), by_axis, geometry


def takes(x: Any, axes: int) -> bool:
    return type(x) is np.ndarray and x.size >= SMALLEST and x.itemsize in _UNSIGNED and 1 <= axes <= 3
