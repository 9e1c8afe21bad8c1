"""Volumes looked up at points, compiled."""

from __future__ import annotations

from flambeau_kernels.engine.language import (
    broadcast,
    independent,
    int32,
    int64,
    kernel,
    load,
    local,
    rolled,
    store,
    unroll,
    widened,
)
from flambeau_kernels.vocabulary import floor, nearbyint, where

from .grid_points import (
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

ALL = 255  # the bits of eight neighbours: neighbour I is one further along the row, the column and the depth for its bits 1, 2 and 4


def looked_at(point, depth, height, width, KIND, PADDING, ALIGN):
    """Where a point of a grid looks, in elements."""
    right = inside(in_elements(point[0], width, KIND, ALIGN), width, KIND, PADDING, ALIGN)
    down = inside(in_elements(point[1], height, KIND, ALIGN), height, KIND, PADDING, ALIGN)
    back = inside(in_elements(point[2], depth, KIND, ALIGN), depth, KIND, PADDING, ALIGN)
    return right, down, back


def nearest(point, k, at, shown, depth, height, width, KIND, PADDING, ALIGN):
    """The element nearest to a point, as number `k` of a block, and 1 where it is there."""
    right, down, back = looked_at(point, depth, height, width, KIND, PADDING, ALIGN)
    right, down, back = nearbyint(right), nearbyint(down), nearbyint(back)
    row = element(back, depth, KIND) * int32(height) + element(down, height, KIND)
    at[k] = row * int32(width) + element(right, width, KIND)
    there = present(right, width, KIND) & present(down, height, KIND) & present(back, depth, KIND)
    shown[k] = where(there, int32(1), int32(0))


def corners(point, k, at, parts, weights, shown, depth, height, width, KIND, PADDING, ALIGN):
    """The eight elements around a point, as number `k` of a block: their places and weights, bits of those there, the point's distances."""
    right, down, back = looked_at(point, depth, height, width, KIND, PADDING, ALIGN)
    left, top, front = floor(right), floor(down), floor(back)
    u, v, w = right - left, down - top, back - front
    parts[k], parts[BLOCK + k], parts[2 * BLOCK + k] = u, v, w
    bits = int32(ALL)
    for I in unroll(range(8)):
        x, y, z = left + KIND(I & 1), top + KIND(I >> 1 & 1), front + KIND(I >> 2)
        row = element(z, depth, KIND) * int32(height) + element(y, height, KIND)
        at[I * BLOCK + k] = row * int32(width) + element(x, width, KIND)
        across, along = u if I & 1 else KIND(1) - u, v if I & 2 else KIND(1) - v
        weights[I * BLOCK + k] = (w if I & 4 else KIND(1) - w) * along * across
        there = present(x, width, KIND) & present(y, height, KIND) & present(z, depth, KIND)
        bits = bits & where(there, int32(ALL), int32(ALL - (1 << I)))
    shown[k] = bits


@kernel
def look_up(chunk, x, grid, out, points, per, channels, depth, height, width, in_volume, *, MODE, PADDING, ALIGN):
    """Blocks of points of a volume at a time, and these channel by channel."""
    KIND = widened(out)
    size = depth * height * width
    at, weights, shown = local(int32, 8 * BLOCK), local(KIND, 8 * BLOCK), local(int32, BLOCK)
    parts = local(KIND, 3 * BLOCK)
    end = min(points, chunk * per + per)
    first = chunk * per
    while first < end:
        volume = first // in_volume
        count = min(min(BLOCK, end - first), (volume + 1) * in_volume - first)
        to = out + (volume * channels * in_volume + first % in_volume)
        a = x + volume * channels * size
        for k in independent(range(count)):
            point = grid + 3 * (first + k)
            if MODE == NEAREST:
                nearest(point, k, at, shown, depth, height, width, KIND, PADDING, ALIGN)
            else:
                corners(point, k, at, parts, weights, shown, depth, height, width, KIND, PADDING, ALIGN)
        if MODE == NEAREST:
            for c in rolled(range(channels)):
                b, row = a + c * size, to + c * in_volume
                for k in independent(range(count)):
                    row[k] = seen(b, at, shown, k, 0, KIND)
        elif all_shown(shown, count, ALL):
            for c in rolled(range(channels)):
                b, row = a + c * size, to + c * in_volume
                for k in independent(range(count)):
                    total = b[at[k]] * weights[k]
                    for I in unroll(range(1, 8)):
                        total = total + b[at[I * BLOCK + k]] * weights[I * BLOCK + k]
                    row[k] = total
        else:
            for c in rolled(range(channels)):
                b, row = a + c * size, to + c * in_volume
                for k in independent(range(count)):
                    total = seen(b, at, shown, k, 0, KIND) * weights[k]
                    for I in unroll(range(1, 8)):
                        total = total + seen(b, at, shown, k, I, KIND) * weights[I * BLOCK + k]
                    row[k] = total
        first += count


@kernel
def grad_volume(chunk, grad, grid, out, work, channels, depth, height, width, in_volume, *, MODE, PADDING, ALIGN, SIDE):
    """A chunk is `SIDE` channels of a volume, side by side in `work`: each point gives its gradient to what it saw, in their order."""
    KIND = widened(out)
    size = depth * height * width
    at, weights, shown = local(int32, 8 * BLOCK), local(KIND, 8 * BLOCK), local(int32, BLOCK)
    parts, given = local(KIND, 3 * BLOCK), local(KIND, BLOCK * SIDE)
    groups = (channels + SIDE - 1) // SIDE
    volume, begin = chunk // groups, chunk % groups * SIDE
    count = min(SIDE, channels - begin)
    a, g = out + (volume * channels + begin) * size, grad + (volume * channels + begin) * in_volume
    sums = work + chunk * size * SIDE
    cleared(sums, given, size, SIDE, KIND)
    for first in rolled(range(0, in_volume, BLOCK)):
        many = min(BLOCK, in_volume - first)
        side_by_side(given, g + first, in_volume, many, count, SIDE)
        for k in independent(range(many)):
            point = grid + 3 * (volume * in_volume + first + k)
            if MODE == NEAREST:
                nearest(point, k, at, shown, depth, height, width, KIND, PADDING, ALIGN)
                weights[k] = KIND(1)
            else:
                corners(point, k, at, parts, weights, shown, depth, height, width, KIND, PADDING, ALIGN)
        for k in rolled(range(many)):
            here = load(given, k * SIDE, SIDE)
            for I in unroll(range(1 if MODE == NEAREST else 8)):
                if (shown[k] & int32(1 << I)) != int32(0):
                    to = int64(at[I * BLOCK + k]) * SIDE
                    store(sums, to, load(sums, to, SIDE) + here * broadcast(weights[I * BLOCK + k], SIDE))
    to_planes(a, sums, size, count, SIDE)


def between(here, there, part, KIND):
    """What lies `part` of the way from `here` to `there`."""
    return here * (KIND(1) - part) + there * part


@kernel
def grad_points(chunk, grad, x, grid, out, points, per, channels, depth, height, width, in_volume, *, PADDING, ALIGN):
    """A chunk is some points, of which each adds up what it loses of its channels by a step along each dimension."""
    KIND = widened(out)
    size = depth * height * width
    at, weights, shown = local(int32, 8 * BLOCK), local(KIND, 8 * BLOCK), local(int32, BLOCK)
    parts = local(KIND, 3 * BLOCK)
    to_right, to_down, to_back = local(KIND, BLOCK), local(KIND, BLOCK), local(KIND, BLOCK)
    end = min(points, chunk * per + per)
    first = chunk * per
    while first < end:
        volume = first // in_volume
        count = min(min(BLOCK, end - first), (volume + 1) * in_volume - first)
        g = grad + (volume * channels * in_volume + first % in_volume)
        a = x + volume * channels * size
        for k in independent(range(count)):
            corners(grid + 3 * (first + k), k, at, parts, weights, shown, depth, height, width, KIND, PADDING, ALIGN)
            to_right[k], to_down[k], to_back[k] = KIND(0), KIND(0), KIND(0)
        for c in rolled(range(channels)):
            b, row = a + c * size, g + c * in_volume
            for k in independent(range(count)):
                u, v, w = parts[k], parts[BLOCK + k], parts[2 * BLOCK + k]
                p0, p1 = seen(b, at, shown, k, 0, KIND), seen(b, at, shown, k, 1, KIND)
                p2, p3 = seen(b, at, shown, k, 2, KIND), seen(b, at, shown, k, 3, KIND)
                p4, p5 = seen(b, at, shown, k, 4, KIND), seen(b, at, shown, k, 5, KIND)
                p6, p7 = seen(b, at, shown, k, 6, KIND), seen(b, at, shown, k, 7, KIND)
                front, behind = between(p1 - p0, p3 - p2, v, KIND), between(p5 - p4, p7 - p6, v, KIND)
                to_right[k] = to_right[k] + row[k] * between(front, behind, w, KIND)
                above, below = between(p0, p1, u, KIND), between(p2, p3, u, KIND)
                above_behind, below_behind = between(p4, p5, u, KIND), between(p6, p7, u, KIND)
                to_down[k] = to_down[k] + row[k] * between(below - above, below_behind - above_behind, w, KIND)
                to_back[k] = to_back[k] + row[k] * between(above_behind - above, below_behind - below, v, KIND)
        for k in rolled(range(count)):
            point, made = grid + 3 * (first + k), out + 3 * (first + k)
            made[0] = to_right[k] * derivative(in_elements(point[0], width, KIND, ALIGN), width, KIND, PADDING, ALIGN)
            made[1] = to_down[k] * derivative(in_elements(point[1], height, KIND, ALIGN), height, KIND, PADDING, ALIGN)
            made[2] = to_back[k] * derivative(in_elements(point[2], depth, KIND, ALIGN), depth, KIND, PADDING, ALIGN)
        first += count
