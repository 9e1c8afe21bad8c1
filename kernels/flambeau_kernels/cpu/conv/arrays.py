"""Convolution on numpy arrays, as matrix products over gathered windows.

Layouts: input ``(N, C, *spatial)``, weight ``(O, C / groups, *kernel)``, output ``(N, O, *positions)``.
Three maps, each linear in both of its arrays and each a derivative of the other two: `convolve` (input,
weight -> output), `convolve_input` (output, weight -> input; the transposed convolution) and
`convolve_weight` (input, output -> weight).

Windows are gathered ("im2col") a few images at a time, so that they are still in cache when BLAS reads them.
Along the first spatial axis a window at step 1 is a shifted slice of the same matrix, so that axis is not
gathered but summed over.
"""

from __future__ import annotations

import functools
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from flambeau_kernels.cpu.reductions.reduce import total

__all__ = [
    "channel_sum", "convolve", "convolve_input", "convolve_weight", "cropped", "fold_windows",
    "gather_windows", "is_half", "output_size", "widened",
]  # fmt: skip

Ints = tuple[int, ...]

# Bytes of gathered windows in flight: about half of a second-level cache that two cores share.
BLOCK_BYTES = 1 << 20
# Matrix products shorter than this along the summed dimension leave BLAS waiting for memory.
LEAST_DEPTH = 48
# Outputs with fewer positions than this are too narrow a matrix each; images are laid side by side instead.
LEAST_WIDTH = 256


def output_size(size: int, kernel: int, stride: int, low: int, high: int, dilation: int) -> int:
    """Number of window positions along an axis padded by `low` and `high`."""
    return (size + low + high - dilation * (kernel - 1) - 1) // stride + 1


@functools.lru_cache(maxsize=512)
def output_sizes(spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    return tuple(
        output_size(n, k, s, p, p, d)
        for n, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True)
    )


def is_half(dtype: np.dtype) -> bool:
    """Whether it is float16 or bfloat16. (Asking a dtype for its name takes microseconds.)"""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype sums are computed in: float32 for halves."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def widened(*arrays: Any) -> Any:
    """Half arrays as float32, others as they are."""
    return tuple(a.astype(_wide(a.dtype), copy=False) for a in arrays)


def padded(x: Any, low: Ints, high: Ints) -> Any:
    """`x` with zeros around its last axes; negative amounts cut."""
    if not any(low) and not any(high):
        return x
    lead = x.ndim - len(low)
    shape = x.shape[:lead] + tuple(n + a + b for n, a, b in zip(x.shape[lead:], low, high, strict=True))
    out = np.zeros(shape, x.dtype)
    inner, source = [slice(None)] * lead, [slice(None)] * lead
    for n, a, b in zip(x.shape[lead:], low, high, strict=True):
        start, stop = max(-a, 0), n - max(-b, 0)
        source.append(slice(start, stop))
        inner.append(slice(max(a, 0), max(a, 0) + max(stop - start, 0)))
    out[tuple(inner)] = x[tuple(source)]
    return out


def cropped(x: Any, spatial: Ints) -> Any:
    """`x` with its last axes cut to `spatial` from the start."""
    lead = x.ndim - len(spatial)
    return x if x.shape[lead:] == tuple(spatial) else x[(..., *(slice(0, n) for n in spatial))]


def channel_sum(grad: Any) -> Any:
    """The sum of ``(N, C, *)`` over everything but channels: what a bias receives."""
    return total(grad, (0, *range(2, grad.ndim)))


def window_view(x: Any, kernel: Ints, stride: Ints, dilation: Ints, positions: Ints) -> Any:
    """Windows of the padded ``(N, C, *spatial)`` as a view ``(N, C, *kernel, *positions)``."""
    steps = x.strides[2:]
    return as_strided(
        x,
        x.shape[:2] + kernel + positions,
        x.strides[:2]
        + tuple(d * t for d, t in zip(dilation, steps, strict=True))
        + tuple(s * t for s, t in zip(stride, steps, strict=True)),
        writeable=False,
    )


def gather_windows(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """All windows, copied: ``(N, C, *spatial)`` to ``(N, C, *kernel, *positions)``."""
    positions = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    return np.ascontiguousarray(window_view(padded(x, padding, padding), kernel, stride, dilation, positions))


@functools.lru_cache(maxsize=256)
def _places_of_windows(kernel: Ints, positions: Ints, stride: Ints, dilation: Ints) -> list[tuple[Any, Any]]:
    """Where the elements of each place in a window come from, in the order in which they are added, and which those are."""
    every = slice(None), slice(None)
    found = []
    for offset in product(*map(range, kernel)):
        places = tuple(
            slice(o * dl, o * dl + s * (n - 1) + 1, s)
            for o, dl, s, n in zip(offset, dilation, stride, positions, strict=True)
        )
        found.append(((*every, *places), (*every, *offset)))
    return found


def fold_windows(windows: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """Add windows ``(N, C, *kernel, *positions)`` up at the places of ``(N, C, *spatial)`` they were taken from."""
    d = len(spatial)
    kernel, positions = windows.shape[2 : 2 + d], windows.shape[2 + d :]
    total = np.zeros(
        windows.shape[:2] + tuple(n + 2 * p for n, p in zip(spatial, padding, strict=True)), windows.dtype
    )
    for places, window in _places_of_windows(kernel, positions, tuple(stride), tuple(dilation)):
        total[places] += windows[window]
    if any(padding):
        total = total[
            (slice(None), slice(None), *(slice(p, p + n) for p, n in zip(padding, spatial, strict=True)))
        ]
    return total


class _Plan:
    """How one convolution is cut into matrix products."""

    def __init__(
        self,
        x: Any,
        kernel: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
        positions: Ints | None = None,
    ) -> None:
        self.kernel, self.stride, self.padding, self.dilation, self.groups = (
            kernel,
            stride,
            padding,
            dilation,
            groups,
        )
        self.images, self.channels = x.shape[:2]
        self.positions = positions or output_sizes(x.shape[2:], kernel, stride, padding, dilation)
        self.width = prod(self.positions)
        inner = self.channels // groups * prod(kernel[1:])
        # Shifted slices of one matrix stand for the first kernel axis.
        self.shifts = (
            kernel[0] if len(kernel) > 1 and stride[0] == 1 and kernel[0] > 1 and inner >= LEAST_DEPTH else 1
        )
        self.depth = inner if self.shifts > 1 else self.channels // groups * prod(kernel)
        self.row = prod(self.positions[1:])
        self.rows = x.shape[2] + 2 * padding[0] if self.shifts > 1 else self.positions[0]
        bytes_each = max(1, self.depth * groups * self.rows * self.row * x.itemsize)
        self.block = max(1, min(self.images, BLOCK_BYTES // bytes_each))

    def blocks(self) -> Any:
        return ((n, min(n + self.block, self.images)) for n in range(0, self.images, self.block))

    def gather(self, x: Any) -> Any:
        """Windows of some images: ``(n, groups, depth, rows * row)``."""
        x = padded(x, self.padding, self.padding)
        if self.shifts > 1:
            view = window_view(
                x, (1, *self.kernel[1:]), self.stride, self.dilation, (self.rows, *self.positions[1:])
            )
        else:
            view = window_view(x, self.kernel, self.stride, self.dilation, self.positions)
        return view.reshape(len(x), self.groups, self.depth, self.rows * self.row)

    def shifted(self, windows: Any, i: int) -> Any:
        """The part of gathered `windows` at offset `i` of the first kernel axis: ``(n, groups, depth, width)``."""
        if self.shifts == 1:
            return windows
        start = i * self.dilation[0] * self.row
        return windows[..., start : start + self.width]

    def matrices(self, w: Any) -> list[Any]:
        """The weight as one matrix ``(groups, O / groups, depth)`` for each shift."""
        if self.shifts == 1:
            return [w.reshape(self.groups, w.shape[0] // self.groups, self.depth)]
        return [
            np.ascontiguousarray(w[:, :, i]).reshape(self.groups, w.shape[0] // self.groups, self.depth)
            for i in range(self.shifts)
        ]


def convolve(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, bias: Any = None
) -> Any:
    """Cross-correlate ``(N, C, *spatial)`` with ``(O, C / groups, *kernel)`` and add a bias ``(O,)``."""
    kind = x.dtype
    x, w = widened(x, w)
    kernel = w.shape[2:]
    if groups > 1 and w.shape[1] == 1:
        out = _convolve_depthwise(x, w, stride, padding, dilation)
    elif prod(kernel) == 1 and not any(padding):
        out = _convolve_pointwise(x[(..., *(slice(None, None, s) for s in stride))], w, groups)
    else:
        out = _convolve_windows(x, w, stride, padding, dilation, groups)
    if bias is not None:
        out += bias.reshape(-1, *(1,) * len(kernel)).astype(out.dtype, copy=False)
    return out.astype(kind, copy=False)


def _convolve_pointwise(x: Any, w: Any, groups: int) -> Any:
    n, c, spatial = x.shape[0], x.shape[1], x.shape[2:]
    rows = x.reshape(n, groups, c // groups, prod(spatial))
    matrix = w.reshape(groups, w.shape[0] // groups, c // groups)
    if groups == 1 and n > 1 and prod(spatial) < LEAST_WIDTH:
        return _side_by_side(matrix[0], rows[:, 0]).reshape(n, w.shape[0], *spatial)
    return np.matmul(matrix, rows).reshape(n, w.shape[0], *spatial)


def _side_by_side(matrix: Any, columns: Any) -> Any:
    """``matrix @ columns[n]`` for every n as one product: ``(O, K), (N, K, L) -> (N, O, L)``."""
    n, depth, width = columns.shape
    wide = columns.transpose(1, 0, 2).reshape(depth, n * width)
    return np.ascontiguousarray(np.matmul(matrix, wide).reshape(matrix.shape[0], n, width).transpose(1, 0, 2))


def _convolve_windows(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    plan = _Plan(x, w.shape[2:], stride, padding, dilation, groups)
    matrices = plan.matrices(w)
    out = np.empty((plan.images, groups, w.shape[0] // groups, plan.width), x.dtype)
    for start, stop in plan.blocks():
        windows = plan.gather(x[start:stop])
        target = out[start:stop]
        if groups == 1 and plan.shifts == 1 and stop - start > 1 and plan.width < LEAST_WIDTH:
            target[:, 0] = _side_by_side(matrices[0][0], windows[:, 0])
            continue
        np.matmul(matrices[0], plan.shifted(windows, 0), out=target)
        for i in range(1, plan.shifts):
            target += np.matmul(matrices[i], plan.shifted(windows, i))
    return out.reshape(plan.images, w.shape[0], *plan.positions)


def _flat_phases(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, positions: Ints) -> Any:
    """The padded input cut into stride phases whose windows are shifts along one flat axis.

    Returns ``flat`` of shape ``(*stride, N, C, size)``, the shape its flat axis stands for, and for each
    kernel offset its phase and shift.
    """
    # Every phase has room for the windows at all positions.
    extent = tuple(
        (dl * (k - 1)) // s + n for k, s, dl, n in zip(kernel, stride, dilation, positions, strict=True)
    )
    high = tuple(
        max(e * s - size - p, 0) for e, s, size, p in zip(extent, stride, x.shape[2:], padding, strict=True)
    )
    framed = padded(x, padding, high)
    framed = framed[(slice(None), slice(None), *(slice(0, e * s) for e, s in zip(extent, stride, strict=True)))]
    d = len(kernel)
    if any(s > 1 for s in stride):
        split = framed.reshape(*x.shape[:2], *(v for pair in zip(extent, stride, strict=True) for v in pair))
        phases = np.ascontiguousarray(
            split.transpose([3 + 2 * i for i in range(d)] + [0, 1] + [2 + 2 * i for i in range(d)])
        )
    else:
        phases = np.ascontiguousarray(framed).reshape(*(1,) * d, *framed.shape)
    flat = phases.reshape(*phases.shape[: d + 2], prod(extent))
    steps = [prod(extent[i + 1 :]) for i in range(d)]
    shifts = []
    for offset in product(*map(range, kernel)):
        at = [o * dl for o, dl in zip(offset, dilation, strict=True)]
        phase = tuple(a % s for a, s in zip(at, stride, strict=True))
        shifts.append((offset, phase, sum(a // s * t for a, s, t in zip(at, stride, steps, strict=True))))
    return flat, extent, shifts


def _span(extent: Ints, positions: Ints) -> int:
    """Flat length from the first to just past the last position."""
    span = 1
    for i, n in enumerate(positions):
        span += (n - 1) * prod(extent[i + 1 :])
    return span


def _convolve_depthwise(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    """One input channel per group: a sum of shifted multiples, no matrix product."""
    n, c = x.shape[:2]
    kernel, multiple = w.shape[2:], w.shape[0] // c
    positions = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    out = np.empty((n, c, multiple, *positions), x.dtype)
    if not out.size:
        return out.reshape(n, c * multiple, *positions)
    per_image = max(1, prod(x.shape[2:]) * c * x.itemsize)
    step_c = max(1, min(c, BLOCK_BYTES // 4 * c // per_image))
    coefficients = w.reshape(c, multiple, *kernel)
    for image, first in product(range(n), range(0, c, step_c)):
        last = min(first + step_c, c)
        flat, extent, shifts = _flat_phases(
            x[image : image + 1, first:last], kernel, stride, padding, dilation, positions
        )
        span = _span(extent, positions)
        sums = np.zeros((last - first, multiple, prod(extent)), x.dtype)
        live, term = sums[..., :span], np.empty((last - first, multiple, span), x.dtype)
        for at, (offset, phase, shift) in enumerate(shifts):
            factor = coefficients[(slice(first, last), slice(None), *offset)][..., None]
            source = flat[phase][0][:, None, shift : shift + span]
            if at == 0:
                np.multiply(source, factor, out=live)
            else:
                np.multiply(source, factor, out=term)
                live += term
        inner = tuple(slice(0, p) for p in positions)
        out[image, first:last] = sums.reshape(last - first, multiple, *extent)[
            (slice(None), slice(None), *inner)
        ]
    return out.reshape(n, c * multiple, *positions)


# -- the transposed map --------------------------------------------------------------------------------------


def convolve_input(
    y: Any, w: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, bias: Any = None
) -> Any:
    """What each output ``(N, O, *positions)`` contributes to an input of extent `spatial`: ``(N, C, *spatial)``."""
    kind = y.dtype
    y, w = widened(y, w)
    kernel = w.shape[2:]
    if prod(kernel) == 1 and not any(padding):
        out = _input_pointwise(y, w, spatial, stride, groups)
    elif all(s == 1 for s in stride):
        out = _input_of_flipped(y, w, spatial, padding, dilation, groups)
    elif all(d == 1 for d in dilation) and all(k % s == 0 for k, s in zip(kernel, stride, strict=True)):
        out = _input_by_phases(y, w, spatial, stride, padding, groups)
    else:
        out = _input_by_folding(y, w, spatial, stride, padding, dilation, groups)
    if bias is not None:
        out = out + bias.reshape(-1, *(1,) * len(kernel)).astype(out.dtype, copy=False)
    return np.ascontiguousarray(out).astype(kind, copy=False)


def _turned(w: Any, groups: int) -> Any:
    """The weight with its channel axes exchanged inside each group: ``(C, O / groups, *kernel)``."""
    o, c = w.shape[:2]
    split = w.reshape(groups, o // groups, c, *w.shape[2:])
    return split.swapaxes(1, 2).reshape(groups * c, o // groups, *w.shape[2:])


def _input_pointwise(y: Any, w: Any, spatial: Ints, stride: Ints, groups: int) -> Any:
    made = _convolve_pointwise(y, _turned(w, groups), groups)
    if made.shape[2:] == spatial:
        return made
    out = np.zeros(made.shape[:2] + spatial, y.dtype)
    out[(..., *(slice(0, s * (n - 1) + 1, s) for s, n in zip(stride, y.shape[2:], strict=True)))] = made
    return out


def _input_of_flipped(y: Any, w: Any, spatial: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """At stride 1 the transposed map is a convolution with the weight turned round."""
    kernel = w.shape[2:]
    flipped = np.ascontiguousarray(np.flip(_turned(w, groups), tuple(range(2, w.ndim))))
    reach = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    low = tuple(r - p for r, p in zip(reach, padding, strict=True))
    high = tuple(n + r - a - have for n, r, a, have in zip(spatial, reach, low, y.shape[2:], strict=True))
    ones, none = (1,) * len(kernel), (0,) * len(kernel)
    if low == high and min(low) >= 0:
        return convolve(y, flipped, ones, low, dilation, groups)
    return convolve(padded(y, low, high), flipped, ones, none, dilation, groups)


def _input_by_phases(y: Any, w: Any, spatial: Ints, stride: Ints, padding: Ints, groups: int) -> Any:
    """Input positions of equal remainder modulo the stride are a convolution at stride 1 each; all phases share windows."""
    kernel = w.shape[2:]
    d = len(kernel)
    taps = tuple(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    padded_taps = np.zeros(w.shape[:2] + tuple(t * s for t, s in zip(taps, stride, strict=True)), w.dtype)
    padded_taps[(..., *(slice(0, k) for k in kernel))] = w
    split = _turned(padded_taps, groups)  # (C, O / groups, *whole kernel)
    c, per_group = split.shape[:2]
    split = split.reshape(c, per_group, *(v for pair in zip(taps, stride, strict=True) for v in pair))
    order = [0] + [3 + 2 * i for i in range(d)] + [1] + [2 + 2 * i for i in range(d)]
    phases = split.transpose(order).reshape(c * prod(stride), per_group, *taps)
    flipped = np.ascontiguousarray(np.flip(phases, tuple(range(2, phases.ndim))))
    # Padded input positions 0 .. size + 2 * padding, in units of the stride.
    units = tuple(-(-(n + p) // s) for n, p, s in zip(spatial, padding, stride, strict=True))
    low = tuple(t - 1 for t in taps)
    high = tuple(u - n for u, n in zip(units, y.shape[2:], strict=True))
    ones, none = (1,) * d, (0,) * d
    made = _convolve_windows(padded(y, low, high), flipped, ones, none, ones, groups)
    made = made.reshape(y.shape[0], c, *stride, *units)
    order = [0, 1] + [axis for i in range(d) for axis in (2 + d + i, 2 + i)]
    framed_input = made.transpose(order).reshape(
        y.shape[0], c, *(u * s for u, s in zip(units, stride, strict=True))
    )
    return framed_input[(..., *(slice(p, p + n) for p, n in zip(padding, spatial, strict=True)))]


def _input_by_folding(
    y: Any, w: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    n, o, positions, kernel = y.shape[0], y.shape[1], y.shape[2:], w.shape[2:]
    matrix = w.reshape(groups, o // groups, -1).swapaxes(1, 2)
    c = w.shape[1] * groups
    used = output_sizes(spatial, kernel, stride, padding, dilation)
    positions = tuple(min(a, b) for a, b in zip(used, positions, strict=True))
    y = cropped(y, positions)  # without outputs whose windows lie outside `spatial`
    out = np.empty((n, c, *spatial), y.dtype)
    for image in range(n):
        windows = np.matmul(matrix, y[image].reshape(groups, o // groups, prod(positions)))
        out[image] = fold_windows(
            windows.reshape(1, c, *kernel, *positions), spatial, stride, padding, dilation
        )[0]
    return out


# -- the gradient of the weight ------------------------------------------------------------------------------


def convolve_weight(
    x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """Correlate windows of ``(N, C, *spatial)`` with ``(N, O, *positions)``: ``(O, C / groups, *kernel)``."""
    kind = x.dtype
    x, y = widened(x, y)
    o, per_group = y.shape[1], x.shape[1] // groups
    if prod(kernel) == 1 and not any(padding):
        cut = tuple(slice(0, s * (p - 1) + 1, s) for s, p in zip(stride, y.shape[2:], strict=True))
        rows = x[(..., *cut)].reshape(x.shape[0], groups, per_group, prod(y.shape[2:]))
        total = _outer_sum(y.reshape(y.shape[0], groups, o // groups, rows.shape[3]), rows)
    elif groups > 1 and per_group == 1:
        total = _weight_depthwise(x, y, kernel, stride, padding, dilation)
    else:
        total = _weight_by_windows(x, y, kernel, stride, padding, dilation, groups)
    return total.reshape(o, per_group, *kernel).astype(kind, copy=False)


def _outer_sum(y: Any, rows: Any) -> Any:
    """Sum over images of ``y[n] @ rows[n].T``: ``(n, G, O, L), (n, G, K, L) -> (G, O, K)``."""
    n, groups, o, width = y.shape
    if n == 0 or width == 0:
        return np.zeros((groups, o, rows.shape[2]), y.dtype)
    if n > 1 and (width < LEAST_WIDTH or groups > 1):
        left = y.transpose(1, 2, 0, 3).reshape(groups, o, n * width)
        right = rows.transpose(1, 2, 0, 3).reshape(groups, -1, n * width)
        return np.matmul(left, right.swapaxes(1, 2))
    total = np.matmul(y[0], rows[0].swapaxes(1, 2))
    for i in range(1, n):
        total += np.matmul(y[i], rows[i].swapaxes(1, 2))
    return total


def _weight_by_windows(
    x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    plan = _Plan(x, kernel, stride, padding, dilation, groups, y.shape[2:])
    o, per_group = y.shape[1], x.shape[1] // groups
    total = np.zeros((plan.shifts, groups, o // groups, plan.depth), x.dtype)
    for start, stop in plan.blocks():
        windows = plan.gather(x[start:stop])
        grads = y[start:stop].reshape(stop - start, groups, o // groups, plan.width)
        for i in range(plan.shifts):
            total[i] += _outer_sum(grads, plan.shifted(windows, i))
    if plan.shifts == 1:
        return total
    split = total.reshape(plan.shifts, o, per_group, prod(kernel[1:]))
    return np.ascontiguousarray(split.transpose(1, 2, 0, 3))


def _weight_depthwise(x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Any:
    n, c, positions = x.shape[0], x.shape[1], y.shape[2:]
    multiple = y.shape[1] // c
    total = np.zeros((c, multiple, *kernel), x.dtype)
    if not y.size:
        return total
    for image in range(n):
        flat, extent, shifts = _flat_phases(
            x[image : image + 1], kernel, stride, padding, dilation, positions
        )
        span = _span(extent, positions)
        spread = np.zeros((c, multiple, *extent), x.dtype)
        spread[(slice(None), slice(None), *(slice(0, p) for p in positions))] = y[image].reshape(
            c, multiple, *positions
        )
        rows = spread.reshape(c, multiple, -1)[..., :span]
        for offset, phase, shift in shifts:
            source = flat[phase][0][:, shift : shift + span, None]
            total[(slice(None), slice(None), *offset)] += np.matmul(rows, source)[..., 0]
    return total
