"""Images looked up at points by cubic polynomials of sixteen neighbours, compiled."""

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
    BLOCK,
    cleared,
    element,
    in_elements,
    inside,
    present,
    side_by_side,
    to_planes,
)

# Numbers of a list of a block of points: four columns around each, and from `ROWS` on four rows. Places are in elements, those of rows
# `width` apart; `shown` is 1 where there is an element.
LISTS, ROWS = 8 * BLOCK, 4 * BLOCK


def cubic_weight(t, I, KIND):
    """Weight of neighbour `I` of four at distance t + 1, t, 1 - t, 2 - t, by Keys' kernel with a = -0.75."""
    x = (t + KIND(1), t, KIND(1) - t, KIND(2) - t)[I]
    if I == 1 or I == 2:
        made = (KIND(1.25) * x - KIND(2.25)) * x * x + KIND(1)
    else:
        made = ((KIND(-0.75) * x + KIND(3.75)) * x - KIND(6)) * x + KIND(3)
    return made


def cubic_slope(t, I, KIND):
    """The derivative of `cubic_weight` by `t`."""
    x = (t + KIND(1), t, KIND(1) - t, KIND(2) - t)[I]
    if I == 1 or I == 2:
        made = (KIND(3.75) * x - KIND(4.5)) * x
    else:
        made = (KIND(-2.25) * x + KIND(7.5)) * x - KIND(6)
    return made if I < 2 else -made


@kernel(aliased=True)
def find_neighbours(chunk, grid, places, weights, slopes, shown, count, height, width, *, PADDING, ALIGN, SLOPES):
    """The four columns and rows around each of `count` points: see `LISTS`.

    One copy of the code finds a neighbour, whichever it is, for all kernels that look up. Without SLOPES, `slopes` is left alone.
    """
    KIND = widened(grid)
    lows = local(KIND, 2 * BLOCK)
    for k in brief(range(count)):
        x, y = in_elements(grid[2 * k], width, KIND, ALIGN), in_elements(grid[2 * k + 1], height, KIND, ALIGN)
        left, upper = floor(x), floor(y)
        lows[k], lows[BLOCK + k] = left, upper
        for I in unroll(range(4)):
            weights[I * BLOCK + k], weights[ROWS + I * BLOCK + k] = cubic_weight(x - left, I, KIND), cubic_weight(y - upper, I, KIND)
            if SLOPES:
                slopes[I * BLOCK + k], slopes[ROWS + I * BLOCK + k] = cubic_slope(x - left, I, KIND), cubic_slope(y - upper, I, KIND)
    for i in rolled(range(4)):
        columns, rows = places + i * BLOCK, places + (ROWS + i * BLOCK)
        column_shown, row_shown = shown + i * BLOCK, shown + (ROWS + i * BLOCK)
        for k in brief(range(count)):
            column = nearbyint(inside(lows[k] + KIND(i - 1), width, KIND, PADDING, ALIGN))
            row = nearbyint(inside(lows[BLOCK + k] + KIND(i - 1), height, KIND, PADDING, ALIGN))
            columns[k], rows[k] = element(column, width, KIND), element(row, height, KIND) * int32(width)
            column_shown[k] = where(present(column, width, KIND), int32(1), int32(0))
            row_shown[k] = where(present(row, height, KIND), int32(1), int32(0))


def found(finding, grid, places, weights, slopes, shown, count, height, width):
    """Run `find_neighbours`, whose address is `finding`."""
    given = local(int64, 8)
    given[0], given[1], given[2], given[3] = int64(grid), int64(places), int64(weights), int64(slopes)
    given[4], given[5], given[6], given[7] = int64(shown), count, height, width
    run(finding, 0, given)


def finder(stored: np.dtype, kind: np.dtype, slopes: bool, constants: dict[str, Any]) -> int:
    """Where the code is that finds the neighbours of points that lie in memory as `stored`, and computes as `kind`."""
    types = (stored, _INT32, kind, kind, _INT32, int, int, int)
    return find_neighbours.address(types, {**constants, "SLOPES": slopes})


_INT32 = np.dtype(np.int32)


def at_column(b, columns, there, row_at, row_there, k, J, KIND):
    """The element in column `J` of four, of the row at `row_at`: zero where there is none."""
    return where((there[J * BLOCK + k] & row_there) != int32(0), b[row_at + columns[J * BLOCK + k]], KIND(0))


@kernel
def look_up(chunk, x, grid, out, finding, points, per, channels, height, width, in_image):
    """Blocks of points of an image at a time, these channel by channel, and four neighbours of a row after those of the row before."""
    KIND = widened(out)
    size = height * width
    columns, column_shown, across = local(int32, LISTS), local(int32, LISTS), local(KIND, LISTS)
    rows, row_shown, along = columns + ROWS, column_shown + ROWS, across + ROWS
    end = min(points, chunk * per + per)
    first = chunk * per
    while first < end:
        image = first // in_image
        count = min(min(BLOCK, end - first), (image + 1) * in_image - first)
        to = out + (image * channels * in_image + first % in_image)
        a = x + image * channels * size
        found(finding, grid + 2 * first, columns, across, across, column_shown, count, height, width)
        for c in rolled(range(channels)):
            b, made = a + c * size, to + c * in_image
            for i in rolled(range(4)):
                row, times, there = rows + i * BLOCK, along + i * BLOCK, row_shown + i * BLOCK
                begin = i == 0
                for k in independent(range(count)):
                    term = at_column(b, columns, column_shown, row[k], there[k], k, 0, KIND) * (times[k] * across[k])
                    total = where(begin, term, made[k] + term)
                    for J in unroll(range(1, 4)):
                        value = at_column(b, columns, column_shown, row[k], there[k], k, J, KIND)
                        total = total + value * (times[k] * across[J * BLOCK + k])
                    made[k] = total
        first += count


@kernel
def grad_image(chunk, grad, grid, out, work, finding, channels, height, width, in_image, *, SIDE):
    """A chunk is `SIDE` channels of an image, side by side in `work`: each point gives its gradient to what it saw, in their order."""
    KIND = widened(out)
    size = height * width
    columns, column_shown, across = local(int32, LISTS), local(int32, LISTS), local(KIND, LISTS)
    rows, row_shown, along = columns + ROWS, column_shown + ROWS, across + ROWS
    given = local(KIND, BLOCK * SIDE)
    groups = (channels + SIDE - 1) // SIDE
    image, begin = chunk // groups, chunk % groups * SIDE
    count = min(SIDE, channels - begin)
    a, g = out + (image * channels + begin) * size, grad + (image * channels + begin) * in_image
    sums = work + chunk * size * SIDE
    cleared(sums, given, size, SIDE, KIND)
    for first in rolled(range(0, in_image, BLOCK)):
        many = min(BLOCK, in_image - first)
        side_by_side(given, g + first, in_image, many, count, SIDE)
        places_of = grid + 2 * (image * in_image + first)
        found(finding, places_of, columns, across, across, column_shown, many, height, width)
        for k in rolled(range(many)):
            here = load(given, k * SIDE, SIDE)
            for i in rolled(range(4)):
                if row_shown[i * BLOCK + k] != int32(0):
                    for J in unroll(range(4)):
                        if column_shown[J * BLOCK + k] != int32(0):
                            to = int64(rows[i * BLOCK + k] + columns[J * BLOCK + k]) * SIDE
                            times = along[i * BLOCK + k] * across[J * BLOCK + k]
                            store(sums, to, load(sums, to, SIDE) + here * broadcast(times, SIDE))
    to_planes(a, sums, size, count, SIDE)


@kernel
def grad_points(chunk, grad, x, grid, out, finding, points, per, channels, height, width, in_image, *, ALIGN):
    """A chunk is some points, of which each adds up what it loses of its channels by a step to the right and one down.

    Padding moves neighbours, not the point, whose derivative is never zero for it.
    """
    KIND = widened(out)
    size = height * width
    columns, column_shown, across = local(int32, LISTS), local(int32, LISTS), local(KIND, LISTS)
    rows, row_shown, along = columns + ROWS, column_shown + ROWS, across + ROWS
    across_slopes = local(KIND, LISTS)
    along_slopes = across_slopes + ROWS
    to_right, to_down = local(KIND, BLOCK), local(KIND, BLOCK)
    scale_x, scale_y = KIND(width - 1 if ALIGN else width) / KIND(2), KIND(height - 1 if ALIGN else height) / KIND(2)
    end = min(points, chunk * per + per)
    first = chunk * per
    while first < end:
        image = first // in_image
        count = min(min(BLOCK, end - first), (image + 1) * in_image - first)
        g = grad + (image * channels * in_image + first % in_image)
        a = x + image * channels * size
        found(finding, grid + 2 * first, columns, across, across_slopes, column_shown, count, height, width)
        for k in brief(range(count)):
            to_right[k], to_down[k] = KIND(0), KIND(0)
        for c in rolled(range(channels)):
            b, given = a + c * size, g + c * in_image
            for i in rolled(range(4)):
                row, there = rows + i * BLOCK, row_shown + i * BLOCK
                times, slope = along + i * BLOCK, along_slopes + i * BLOCK
                for k in independent(range(count)):
                    plain, sloped = KIND(0), KIND(0)
                    for J in unroll(range(4)):
                        value = at_column(b, columns, column_shown, row[k], there[k], k, J, KIND)
                        plain = plain + value * across[J * BLOCK + k]
                        sloped = sloped + value * across_slopes[J * BLOCK + k]
                    to_right[k] = to_right[k] + given[k] * (times[k] * sloped)
                    to_down[k] = to_down[k] + given[k] * (slope[k] * plain)
        for k in rolled(range(count)):
            out[2 * (first + k)] = to_right[k] * scale_x
            out[2 * (first + k) + 1] = to_down[k] * scale_y
        first += count
