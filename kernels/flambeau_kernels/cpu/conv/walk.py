"""How windows walk over an array, as tables: where each tap of a kernel lies and where each result goes.

Both directions of a convolution are brought to one form, the *correlation at step 1*: for every position and
output channel, a sum over input channels and taps of weight times the element `shift` after the position. Strides are
removed by *phases*. Forwards the source is dealt out into one plane for each remainder modulo the stride, in which
the window moves by one. Backwards (the transposed map) the results of each remainder modulo the stride see only the
taps of that remainder; each such set of results is a *pass* of its own over the same planes.
"""

from __future__ import annotations

import functools
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

Ints = tuple[int, ...]


class Tap(NamedTuple):
    """Element `index` of the kernel along an axis: it reads plane `phase`, `shift` elements after the position."""

    index: int
    phase: int
    shift: int


class Line(NamedTuple):
    """The results of one pass along one axis: `count` of them, ``first, first + step, ...``."""

    count: int
    first: int
    step: int
    taps: tuple[Tap, ...]


class Axis(NamedTuple):
    """One axis of the source: `size` elements, dealt into `phases` by their place plus `low` modulo `stride`, each of
    `extent` elements, zeros where there is none."""

    size: int
    low: int
    stride: int
    phases: Ints
    extent: int
    lines: tuple[Line, ...]


def forward_axis(size: int, count: int, kernel: int, stride: int, padding: int, dilation: int) -> Axis:
    """Windows of a convolution along an axis of `size` that has `count` positions."""
    places = [t * dilation for t in range(kernel)]
    phases = tuple(sorted({p % stride for p in places}))
    taps = tuple(Tap(t, phases.index(p % stride), p // stride) for t, p in enumerate(places))
    extent = count + places[-1] // stride
    return Axis(size, padding, stride, phases, extent, (Line(count, 0, 1, taps),))


def transposed_axis(size: int, made: int, kernel: int, stride: int, padding: int, dilation: int) -> Axis:
    """The transpose along an axis that has `size` positions and makes `made` elements."""
    lines, low = [], 0
    for phase in range(stride):
        first = (phase - padding) % stride
        start, count = (first + padding - phase) // stride, -(-(made - first) // stride)
        shifts = [(t, start - t * dilation // stride) for t in range(kernel) if t * dilation % stride == phase]
        if count > 0:
            lines.append((count, first, shifts))
            low = max([low, *(-s for _, s in shifts)])
    done = tuple(Line(n, first, stride, tuple(Tap(t, 0, s + low) for t, s in shifts)) for n, first, shifts in lines)
    extent = max([1, *(line.count + tap.shift for line in done for tap in line.taps)])
    return Axis(size, low, 1, (0,), extent, done)


class Pass(NamedTuple):
    """One correlation at step 1 over all axes.

    Attributes:
        counts: results along each axis.
        first, steps: the place of the first result along each axis of the output, and the distance to the next.
        source: for each pair of input channel and tap, elements from a position to what it reads.
        weight: for each such pair, elements from the first weight of an output channel; -1 for a weight of zero.
    """

    counts: Ints
    first: Ints
    steps: Ints
    source: np.ndarray
    weight: np.ndarray


class Walk:
    """A whole map: its axes, elements of the planes of one channel, and its passes.

    Attributes: `in_place`, whether the planes are the source itself; `prepared`, tables for kernels that were made for
    arrays of some strides and are kept for the next call.
    """

    __slots__ = ("axes", "in_place", "passes", "plane", "prepared")

    def __init__(self, axes: tuple[Axis, ...], passes: tuple[Pass, ...]) -> None:
        self.axes, self.passes = axes, passes
        self.plane = plane_size(axes)
        self.in_place = all(a.stride == 1 and a.low == 0 and a.extent == a.size for a in axes)
        self.prepared: dict[Any, Any] = {}


def plane_size(axes: tuple[Axis, ...]) -> int:
    return prod(len(a.phases) * a.extent for a in axes)


@functools.lru_cache(maxsize=512)
def walk(
    transposed: bool, sizes: Ints, made: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
    channels: int, weight_channel: int,
) -> Walk:  # fmt: skip
    """The tables of a map from axes of `sizes` to axes of `made`.

    Args:
        channels: input channels of a group.
        weight_channel: elements from the weights of one input channel to the next.
    """
    make = transposed_axis if transposed else forward_axis
    axes = tuple(make(*facts) for facts in zip(sizes, made, kernel, stride, padding, dilation, strict=True))
    plane = plane_size(axes)
    passes = [_pass(axes, lines, plane, channels, weight_channel, kernel) for lines in product(*(a.lines for a in axes))]
    return Walk(axes, tuple(passes))


def _pass(axes: tuple[Axis, ...], lines: tuple[Line, ...], plane: int, channels: int, weight_channel: int,
          kernel: Ints) -> Pass:  # fmt: skip
    extents, phases = [a.extent for a in axes], [len(a.phases) for a in axes]
    steps = [prod(extents[i + 1 :]) for i in range(len(axes))]
    phase_steps = [prod(phases[i + 1 :]) * prod(extents) for i in range(len(axes))]
    kernel_steps = [prod(kernel[i + 1 :]) for i in range(len(axes))]
    taps = list(product(*(line.taps for line in lines)))
    source = [sum(t.phase * p + t.shift * s for t, p, s in zip(tap, phase_steps, steps, strict=True)) for tap in taps]
    weight = [sum(t.index * s for t, s in zip(tap, kernel_steps, strict=True)) for tap in taps]
    if not taps or not channels:                      # results that nothing reaches
        tables = np.zeros(1, np.int64), np.full(1, -1, np.int64)
    else:
        at = np.arange(channels, dtype=np.int64)[:, None]
        tables = (at * plane + np.array(source)).reshape(-1), (at * weight_channel + np.array(weight)).reshape(-1)
    return Pass(tuple(x.count for x in lines), tuple(x.first for x in lines), tuple(x.step for x in lines), *tables)
