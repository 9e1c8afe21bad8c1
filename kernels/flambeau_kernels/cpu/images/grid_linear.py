"""Images and volumes looked up at points, at the nearest element or linearly between those around the point, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import (
    brief,
    broadcast,
    independent,
    int32,
    int64,
    kernel,
    load,
    local,
    rolled,
    run,
    store,
    unroll,
    widened,
)
from flambeau_kernels.vocabulary import floor, nearbyint, where

from .grid_points import (
    BILINEAR,
    BLOCK,
    NEAREST,
    all_shown,
    cleared,
    derivative,
    element,
    in_elements,
    inside,
    present,
    seen,
    side_by_side,
    to_planes,
)

# The neighbours of a point have numbers, whose bits 1, 2 and 4 say which are one further along the row, the column and the depth. In `DIMS`
# dimensions there are ``1 << DIMS``; an image is a volume of depth 1 whose points have no third coordinate. What says which they are, by
# padding and by where the corners of an image are, is most of the code, and is compiled once for all kernels that look up.


def looked_at(point, depth, height, width, KIND, PADDING, ALIGN, DIMS, ROUND):
    """Where a point of a grid looks, in elements."""
    right = inside(in_elements(point[0], width, KIND, ALIGN, ROUND), width, KIND, PADDING, ALIGN, ROUND)
    down = inside(in_elements(point[1], height, KIND, ALIGN, ROUND), height, KIND, PADDING, ALIGN, ROUND)
    back = KIND(0)
    if DIMS == 3:
        back = inside(in_elements(point[2], depth, KIND, ALIGN, ROUND), depth, KIND, PADDING, ALIGN, ROUND)
    return right, down, back


def either(here, there, size, KIND, HERE, THERE):
    """Bits of the neighbours that are at `here` or at `there` along a dimension, where an element is there."""
    return where(present(here, size, KIND), int32(HERE), int32(0)) | where(present(there, size, KIND), int32(THERE), int32(0))


@kernel
def find_nearest(chunk, grid, at, shown, count, depth, height, width, *, PADDING, ALIGN, DIMS, ROUND):
    """The element nearest to each of `count` points, the first of a line where there is none, and 1 where it is there."""
    KIND = widened(grid)
    for k in independent(range(count)):
        right, down, back = looked_at(grid + DIMS * k, depth, height, width, KIND, PADDING, ALIGN, DIMS, ROUND)
        right, down, back = nearbyint(right), nearbyint(down), nearbyint(back)
        row = element(down, height, KIND)
        there = present(right, width, KIND) & present(down, height, KIND)
        if DIMS == 3:
            row = element(back, depth, KIND) * int32(height) + row
            there = there & present(back, depth, KIND)
        at[k] = row * int32(width) + element(right, width, KIND)
        shown[k] = where(there, int32(1), int32(0))


@kernel
def find_corners(chunk, grid, at, weights, parts, shown, count, depth, height, width, *, PADDING, ALIGN, DIMS, ROUND):
    """The elements around each of `count` points: their places and weights, the point's distances, bits of those there.

    The place is the first of a line where there is none.
    """
    KIND = widened(grid)
    for k in independent(range(count)):
        right, down, back = looked_at(grid + DIMS * k, depth, height, width, KIND, PADDING, ALIGN, DIMS, ROUND)
        left, top, front = floor(right), floor(down), floor(back)
        u, v, w = ROUND(right - left), ROUND(down - top), ROUND(back - front)
        after, below, behind = ROUND(left + KIND(1)), ROUND(top + KIND(1)), ROUND(front + KIND(1))
        u_less, v_less, w_less = ROUND(KIND(1) - u), ROUND(KIND(1) - v), ROUND(KIND(1) - w)
        parts[k], parts[BLOCK + k], parts[2 * BLOCK + k] = u, v, w
        columns = element(left, width, KIND), element(after, width, KIND)
        rows = element(top, height, KIND) * int32(width), element(below, height, KIND) * int32(width)
        planes = int32(0), int32(0)
        if DIMS == 3:
            size = int32(height) * int32(width)
            planes = element(front, depth, KIND) * size, element(behind, depth, KIND) * size
        for I in unroll(range(1 << DIMS)):
            at[I * BLOCK + k] = planes[I >> 2] + rows[I >> 1 & 1] + columns[I & 1]
            weight = v if I & 2 else v_less
            if DIMS == 3:
                weight = ROUND((w if I & 4 else w_less) * weight)
            weights[I * BLOCK + k] = ROUND(weight * (u if I & 1 else u_less))
        bits = either(left, after, width, KIND, 0x55, 0xAA) & either(top, below, height, KIND, 0x33, 0xCC)
        if DIMS == 3:
            bits = bits & either(front, behind, depth, KIND, 0x0F, 0xF0)
        shown[k] = bits


@kernel
def find_slopes(chunk, grid, slopes, count, depth, height, width, *, PADDING, ALIGN, DIMS):
    """The derivatives of where `count` points look by their coordinates."""
    KIND = widened(grid)
    for k in independent(range(count)):
        point = grid + DIMS * k
        slopes[k] = derivative(in_elements(point[0], width, KIND, ALIGN), width, KIND, PADDING, ALIGN)
        slopes[BLOCK + k] = derivative(in_elements(point[1], height, KIND, ALIGN), height, KIND, PADDING, ALIGN)
        if DIMS == 3:
            slopes[2 * BLOCK + k] = derivative(in_elements(point[2], depth, KIND, ALIGN), depth, KIND, PADDING, ALIGN)


def found(finding, grid, at, weights, parts, shown, count, depth, height, width, MODE):
    """Run `find_nearest` or `find_corners`, whose address is `finding`."""
    given = local(int64, 9)
    given[0], given[1] = int64(grid), int64(at)
    if MODE == NEAREST:
        given[2], given[3], given[4], given[5], given[6] = int64(shown), count, depth, height, width
    else:
        given[2], given[3], given[4] = int64(weights), int64(parts), int64(shown)
        given[5], given[6], given[7], given[8] = count, depth, height, width
    run(finding, 0, given)


def finder(stored: np.dtype, kind: np.dtype, mode: int, constants: dict[str, Any]) -> int:
    """Where the code is that finds the neighbours of points that lie in memory as `stored`, and computes as `kind`."""
    if mode == NEAREST:
        return find_nearest.address((stored, _INT32, _INT32, int, int, int, int), constants)
    return find_corners.address((stored, _INT32, kind, kind, _INT32, int, int, int, int), constants)


def slope_finder(kind: np.dtype, constants: dict[str, Any]) -> int:
    """Where the code of `find_slopes` is."""
    return find_slopes.address((kind, kind, int, int, int, int), constants)


_INT32 = np.dtype(np.int32)


def neighbour(b, at, shown, k, I, KIND, ALL):
    """Neighbour `I` of a point, which is there where `ALL` says so."""
    return b[at[I * BLOCK + k]] if ALL else seen(b, at, shown, k, I, KIND)


# Neighbours that may be outside are most of the code of volumes, which have no copy without them.
def mixed(a, to, at, weights, shown, count, channels, apart, in_image, KIND, NEAR, ALL, ROUND):
    """What the points of a block see of each channel."""
    for c in rolled(range(channels)):
        b, row = a + c * apart, to + c * in_image
        for k in independent(range(count)):
            total = ROUND(neighbour(b, at, shown, k, 0, KIND, ALL) * weights[k])
            for I in unroll(range(1, NEAR)):
                total = ROUND(total + ROUND(neighbour(b, at, shown, k, I, KIND, ALL) * weights[I * BLOCK + k]))
            row[k] = total


@kernel
def look_up(chunk, x, grid, out, finding, points, per, channels, depth, height, width, in_image, *, DIMS, MODE, ROUND, LAST):
    """Blocks of points of an image or a volume at a time, and these channel by channel; of halves in float32, as `x` is then.

    `LAST` says that channels lie last in `x`: then neighbours are `channels` elements apart, which are in the cache for the next channel.
    """
    KIND = widened(out)
    size = depth * height * width
    apart = 1 if LAST else size                       # of channels
    NEAR = 1 << DIMS
    at, weights, shown = local(int32, NEAR * BLOCK), local(KIND, NEAR * BLOCK), local(int32, BLOCK)
    parts = local(KIND, 3 * BLOCK)
    end = min(points, chunk * per + per)
    first = chunk * per
    while first < end:
        image = first // in_image
        count = min(min(BLOCK, end - first), (image + 1) * in_image - first)
        to = out + (image * channels * in_image + first % in_image)
        a = x + image * channels * size
        found(finding, grid + DIMS * first, at, weights, parts, shown, count, depth, height, width, MODE)
        if LAST:
            for I in unroll(range(1 if MODE == NEAREST else NEAR)):
                for k in brief(range(count)):
                    at[I * BLOCK + k] = at[I * BLOCK + k] * int32(channels)
        if MODE == NEAREST:
            for c in rolled(range(channels)):
                b, row = a + c * apart, to + c * in_image
                for k in independent(range(count)):
                    row[k] = seen(b, at, shown, k, 0, KIND)
        elif DIMS == 3:
            mixed(a, to, at, weights, shown, count, channels, apart, in_image, KIND, NEAR, False, ROUND)
        elif all_shown(shown, count, (1 << NEAR) - 1):
            mixed(a, to, at, weights, shown, count, channels, apart, in_image, KIND, NEAR, True, ROUND)
        else:
            mixed(a, to, at, weights, shown, count, channels, apart, in_image, KIND, NEAR, False, ROUND)
        first += count


@kernel
def grad_image(chunk, grad, grid, out, work, finding, channels, depth, height, width, in_image, *, DIMS, MODE, SIDE):
    """A chunk is `SIDE` channels of an image or a volume, side by side in `work`.

    Each point gives its gradient to what it saw, in their order.
    """
    KIND = widened(out)
    size = depth * height * width
    NEAR = 1 << DIMS
    at, weights, shown = local(int32, NEAR * BLOCK), local(KIND, NEAR * BLOCK), local(int32, BLOCK)
    parts, given = local(KIND, 3 * BLOCK), local(KIND, BLOCK * SIDE)
    groups = (channels + SIDE - 1) // SIDE
    image, begin = chunk // groups, chunk % groups * SIDE
    count = min(SIDE, channels - begin)
    a, g = out + (image * channels + begin) * size, grad + (image * channels + begin) * in_image
    sums = work + chunk * size * SIDE
    cleared(sums, given, size, SIDE, KIND)
    for first in rolled(range(0, in_image, BLOCK)):
        many = min(BLOCK, in_image - first)
        side_by_side(given, g + first, in_image, many, count, SIDE)
        found(finding, grid + DIMS * (image * in_image + first), at, weights, parts, shown, many, depth, height, width, MODE)
        if MODE == NEAREST:
            for k in brief(range(many)):
                weights[k] = KIND(1)
        for k in rolled(range(many)):
            here = load(given, k * SIDE, SIDE)
            for I in unroll(range(1 if MODE == NEAREST else NEAR)):
                if (shown[k] & int32(1 << I)) != int32(0):
                    to = int64(at[I * BLOCK + k]) * SIDE
                    store(sums, to, load(sums, to, SIDE) + here * broadcast(weights[I * BLOCK + k], SIDE))
    to_planes(a, sums, size, count, SIDE)


def between(here, there, part, KIND):
    """What lies `part` of the way from `here` to `there`."""
    return here * (KIND(1) - part) + there * part


def add_steps(a, g, at, parts, shown, to_right, to_down, to_back, count, channels, size, in_image, KIND, DIMS, ALL):
    """Add what the points of a block lose of each channel by a step along each dimension."""
    for c in rolled(range(channels)):
        b, row = a + c * size, g + c * in_image
        for k in independent(range(count)):
            u, v, w = parts[k], parts[BLOCK + k], parts[2 * BLOCK + k]
            p0, p1 = neighbour(b, at, shown, k, 0, KIND, ALL), neighbour(b, at, shown, k, 1, KIND, ALL)
            p2, p3 = neighbour(b, at, shown, k, 2, KIND, ALL), neighbour(b, at, shown, k, 3, KIND, ALL)
            front = between(p1 - p0, p3 - p2, v, KIND)
            if DIMS == 2:
                to_right[k] = to_right[k] + row[k] * front
                to_down[k] = to_down[k] + row[k] * between(p2 - p0, p3 - p1, u, KIND)
            else:
                p4, p5 = neighbour(b, at, shown, k, 4, KIND, ALL), neighbour(b, at, shown, k, 5, KIND, ALL)
                p6, p7 = neighbour(b, at, shown, k, 6, KIND, ALL), neighbour(b, at, shown, k, 7, KIND, ALL)
                to_right[k] = to_right[k] + row[k] * between(front, between(p5 - p4, p7 - p6, v, KIND), w, KIND)
                above, below = between(p0, p1, u, KIND), between(p2, p3, u, KIND)
                above_behind, below_behind = between(p4, p5, u, KIND), between(p6, p7, u, KIND)
                to_down[k] = to_down[k] + row[k] * between(below - above, below_behind - above_behind, w, KIND)
                to_back[k] = to_back[k] + row[k] * between(above_behind - above, below_behind - below, v, KIND)


@kernel
def grad_points(chunk, grad, x, grid, out, finding, sloping, points, per, channels, depth, height, width, in_image, *, DIMS):
    """A chunk is some points, of which each adds up what it loses of its channels by a step along each dimension."""
    KIND = widened(out)
    size = depth * height * width
    NEAR = 1 << DIMS
    at, weights, shown = local(int32, NEAR * BLOCK), local(KIND, NEAR * BLOCK), local(int32, BLOCK)
    parts = local(KIND, 3 * BLOCK)
    to_right, to_down, to_back = local(KIND, BLOCK), local(KIND, BLOCK), local(KIND, BLOCK)
    end = min(points, chunk * per + per)
    first = chunk * per
    while first < end:
        image = first // in_image
        count = min(min(BLOCK, end - first), (image + 1) * in_image - first)
        g = grad + (image * channels * in_image + first % in_image)
        a = x + image * channels * size
        found(finding, grid + DIMS * first, at, weights, parts, shown, count, depth, height, width, BILINEAR)
        for k in brief(range(count)):
            to_right[k], to_down[k], to_back[k] = KIND(0), KIND(0), KIND(0)
        if DIMS == 3:
            add_steps(a, g, at, parts, shown, to_right, to_down, to_back, count, channels, size, in_image, KIND, DIMS, False)
        elif all_shown(shown, count, (1 << NEAR) - 1):
            add_steps(a, g, at, parts, shown, to_right, to_down, to_back, count, channels, size, in_image, KIND, DIMS, True)
        else:
            add_steps(a, g, at, parts, shown, to_right, to_down, to_back, count, channels, size, in_image, KIND, DIMS, False)
        given = local(int64, 6)
        given[0], given[1], given[2] = int64(grid + DIMS * first), int64(weights), count
        given[3], given[4], given[5] = depth, height, width
        run(sloping, 0, given)                        # over the weights, which the steps do not read
        for k in rolled(range(count)):
            made = out + DIMS * (first + k)
            made[0], made[1] = to_right[k] * weights[k], to_down[k] * weights[BLOCK + k]
            if DIMS == 3:
                made[2] = to_back[k] * weights[2 * BLOCK + k]
        first += count
