"""Points between elements of images and volumes, for kernels: each step rounded as the numpy of the fallback rounds it.

Halves are computed in float32, each step of which `ROUND` rounds to the half; for other dtypes it is `unrounded`.
"""

from __future__ import annotations

from flambeau_kernels.engine.language import broadcast, int32, rolled, store
from flambeau_kernels.vocabulary import floor, where

BLOCK = 64  # points whose neighbours are found before channels are gone through
ZEROS, BORDER, REFLECTION = 0, 1, 2
BILINEAR, NEAREST, BICUBIC = 0, 1, 2


def unrounded(x):
    return x


def element(x, size, KIND):
    """Which element of a line a whole-numbered coordinate is, the first where there is none."""
    return int32(where(present(x, size, KIND), x, KIND(0)))


def in_elements(x, size, KIND, ALIGN, ROUND=unrounded):
    """From -1 .. 1 to elements."""
    n, off = KIND(size), ROUND(x + KIND(1))
    return ROUND(off * ((n - KIND(1)) / KIND(2))) if ALIGN else ROUND(ROUND(ROUND(off * n) - KIND(1)) / KIND(2))


def folded(x, size, KIND, ALIGN, ROUND=unrounded):
    """How often the mirrors at both ends fold `x`, and what is left of it behind the last of them."""
    low = KIND(0) if ALIGN else KIND(-0.5)
    span = KIND(size - 1) if ALIGN else KIND(size)
    off = abs(ROUND(x - low))
    times = floor(ROUND(off / span))
    return times, ROUND(off - ROUND(times * span))


def is_odd(times, KIND):
    """Whether a whole number is odd, which infinity is not."""
    return times - floor(times / KIND(2)) * KIND(2) == KIND(1)


def inside(x, size, KIND, PADDING, ALIGN, ROUND=unrounded):
    """Where padding looks."""
    made = x
    if PADDING == REFLECTION:
        times, rest = folded(x, size, KIND, ALIGN, ROUND)
        span = KIND(size - 1) if ALIGN else KIND(size)
        made = ROUND((ROUND(span - rest) if is_odd(times, KIND) else rest) + (KIND(0) if ALIGN else KIND(-0.5)))
    if PADDING != ZEROS:
        last = KIND(size - 1)
        made = made if made == made else KIND(0)
        made = KIND(0) if made <= KIND(0) else (ROUND(last) if made >= last else made)
    return made


def present(x, size, KIND):
    """Whether there is an element, which nan says no to."""
    return (x >= KIND(0)) & (x <= KIND(size - 1))


def derivative(x, size, KIND, PADDING, ALIGN):
    """Of `inside` by a coordinate of the grid, which is `x` in elements."""
    made = KIND(size - 1 if ALIGN else size) / KIND(2)
    if PADDING == REFLECTION:
        times, _ = folded(x, size, KIND, ALIGN)
        made = -made if is_odd(times, KIND) != (x < (KIND(0) if ALIGN else KIND(-0.5))) else made
    if PADDING != ZEROS:
        at = inside(x, size, KIND, PADDING, ALIGN)
        made = made if (at > KIND(0)) & (at < KIND(size - 1)) else KIND(0)
    return made


def cleared(sums, given, size, SIDE, KIND):
    for i in rolled(range(size)):
        store(sums, i * SIDE, broadcast(KIND(0), SIDE))
    for i in rolled(range(BLOCK * SIDE)):
        given[i] = KIND(0)


def side_by_side(given, g, step, many, count, SIDE):
    """The gradients of `count` channels of `many` points, which are `step` apart, of each point together."""
    for c in rolled(range(count)):
        row = g + c * step
        for k in rolled(range(many)):
            given[k * SIDE + c] = row[k]


def to_planes(a, sums, size, count, SIDE):
    """Sums of `count` channels, which are together for each element, as planes."""
    for first in rolled(range(0, size, BLOCK)):
        many = min(BLOCK, size - first)
        for c in rolled(range(count)):
            row, column = a + (c * size + first), sums + (first * SIDE + c)
            for i in rolled(range(many)):
                row[i] = column[i * SIDE]


def all_shown(shown, count, EVERY):
    """Whether all points of a block see all elements around them, whose bits are EVERY."""
    every = int32(EVERY)
    for k in range(count):
        every = every & shown[k]
    return every == int32(EVERY)


def seen(b, at, shown, k, I, KIND):
    """Neighbour `I` of a point: zero where there is none."""
    return where((shown[k] & int32(1 << I)) != int32(0), b[at[I * BLOCK + k]], KIND(0))
