"""Padding on numpy arrays: constant, reflected, repeated at the edge and wrapped around, and the transposes."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels

from ..conv import is_half
from ..tier import compiles
from .move import contiguous
from .order import is_last

__all__ = [
    "fold_pad", "pad_constant", "pad_images", "pad_indices", "pad_mode", "planned_constant", "planned_images", "planned_mode",
]  # fmt: skip

MOST_FRAMED = 1 << 11                                 # elements, from which numpy's two copies take longer than one loop
Pairs = tuple[tuple[int, int], ...]


def pad_constant(x: Any, pairs: Pairs, value: Any) -> Any:
    """`x` with ``(before, after)`` elements of `value` around its last axes; negative amounts cut."""
    value = as_fill(x, value)
    if x.size and compiles():
        from . import pad_rows

        if pad_rows.takes(x, len(pairs)):
            return pad_rows.padded(x, pairs, "constant", value)
    lead = x.ndim - len(pairs)
    shape = x.shape[:lead] + tuple(n + a + b for n, (a, b) in zip(x.shape[lead:], pairs, strict=True))
    source, inner = [slice(None)] * lead, [slice(None)] * lead
    for n, (a, b) in zip(x.shape[lead:], pairs, strict=True):
        start, stop = max(-a, 0), n - max(-b, 0)
        source.append(slice(start, max(stop, start)))
        inner.append(slice(max(a, 0), max(a, 0) + max(stop - start, 0)))
    if all(a <= 0 and b <= 0 for a, b in pairs):
        return x[tuple(source)].copy()
    out = np.full(shape, value, x.dtype)
    out[tuple(inner)] = x[tuple(source)]
    return out


def pad_images(x: Any, pairs: Pairs, mode: str, value: Any = 0) -> Any:
    """`pad_constant` or `pad_mode` of ``(N, C, *)`` whose channels lie last in memory (`order.is_last`), as those of the result do."""
    run = planned_images(x, pairs, mode, value)
    if run is not None:
        return run(x)
    images = x.transpose(0, *range(2, x.ndim), 1)
    if mode == "constant":                            # along a row elements are neighbours with those of all channels
        channels, (before, after) = x.shape[1], pairs[-1]
        rows = images.reshape(*images.shape[:-2], -1)
        made = pad_constant(rows, (*pairs[:-1], (before * channels, after * channels)), value)
        made = made.reshape(len(x), *_padded(x.shape[2:], pairs), channels)
    else:
        made = pad_mode(images, (*pairs, (0, 0)), mode)
    return made.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def planned_images(x: Any, pairs: Pairs, mode: str, value: Any) -> Any:
    """``run(x)``, as `pad_images`, for arrays of the shape, strides and dtype of `x`; None for few elements."""
    if not compiles():
        return None
    from . import pad_rows

    return pad_rows.planned_channels(x, pairs, mode, as_fill(x, value)) if pad_rows.takes(x, x.ndim - 2) else None


def as_fill(x: Any, value: Any) -> Any:
    """`value` as `cast` converts it to the dtype of `x`: floats of few bits by way of float32."""
    if x.dtype.kind not in "fV" or isinstance(value, complex):
        return value
    return flambeau_kernels.cast(np.asarray(float(value)), x.dtype)[()]


def _padded(shape: tuple[int, ...], pairs: Pairs) -> tuple[int, ...]:
    lead = len(shape) - len(pairs)
    return (*shape[:lead], *(n + a + b for n, (a, b) in zip(shape[lead:], pairs, strict=True)))


def planned_constant(x: Any, pairs: Pairs, value: Any) -> Any:
    """``run(x)``, as `pad_constant`, for contiguous arrays of the shape and dtype of `x`."""
    if x.size >= MOST_FRAMED and compiles():
        from . import pad_rows

        return pad_rows.planned(x, pairs, "constant", as_fill(x, value)) if pad_rows.takes(x, len(pairs)) else None
    lead = x.ndim - len(pairs)
    value = as_fill(x, value)
    frame = pad_constant(np.full_like(x, value), pairs, value)
    outer = (slice(None),) * lead
    inner = (*outer, *(slice(max(a, 0), m - max(b, 0)) for m, (a, b) in zip(frame.shape[lead:], pairs, strict=True)))
    source = (*outer, *(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape[lead:], pairs, strict=True)))
    if min(x[source].shape) <= 0:
        return None
    if all(a <= 0 and b <= 0 for a, b in pairs):
        return lambda x: x[source].copy()

    def run(x: Any) -> Any:
        out = frame.copy()
        out[inner] = x[source]
        return out

    def run_padded(x: Any) -> Any:
        out = frame.copy()
        out[inner] = x
        return out

    return run_padded if all(a >= 0 and b >= 0 for a, b in pairs) else run


def planned_mode(x: Any, pairs: Pairs, mode: str) -> Any:
    """``run(x)``, as `pad_mode`, for contiguous arrays of the shape and dtype of `x`; None for few elements."""
    if x.size < MOST_FRAMED or not compiles():
        return None
    from . import pad_rows

    return pad_rows.planned(x, pairs, mode, 0) if pad_rows.takes(x, len(pairs)) else None


def pad_indices(size: int, before: int, after: int, mode: str) -> Any:
    """Where each element of a padded axis comes from; -1 for the constant."""
    at = np.arange(-before, size + after)
    if mode == "constant":
        return np.where((at < 0) | (at >= size), -1, at)
    if mode == "replicate":
        return np.clip(at, 0, size - 1)
    if mode == "circular":  # what a negative amount cuts off is not wrapped either
        low = max(-before, 0)
        return low + (at - low) % (size - low - max(-after, 0))
    at = np.abs(at)
    return np.where(at >= size, 2 * (size - 1) - at, at)


def pad_mode(x: Any, pairs: Pairs, mode: str) -> Any:
    """`x` padded around its last axes from its own elements: 'reflect', 'replicate' or 'circular'."""
    lead = x.ndim - len(pairs)
    if x.size and compiles():
        from . import pad_rows

        if pad_rows.takes(x, len(pairs)):
            return pad_rows.padded(x, pairs, mode, 0)
    if any(a < 0 or b < 0 for a, b in pairs):
        for axis, (a, b) in enumerate(pairs, lead):
            x = np.take(x, pad_indices(x.shape[axis], a, b, mode), axis)
        return x
    shape = x.shape[:lead] + tuple(n + a + b for n, (a, b) in zip(x.shape[lead:], pairs, strict=True))
    out = np.empty(shape, x.dtype)
    inside = [slice(None)] * lead + [slice(a, a + n) for n, (a, b) in zip(x.shape[lead:], pairs, strict=True)]
    out[tuple(inside)] = x
    # Axis by axis, so that corners are copied from borders already filled.
    for axis, (a, b) in enumerate(pairs, lead):
        size = x.shape[axis]
        sources = pad_indices(size, a, b, mode) + a
        for border, wanted in ((slice(0, a), sources[:a]), (slice(a + size, None), sources[a + size :])):
            inside[axis] = border
            place = tuple(inside)
            inside[axis] = wanted
            out[place] = out[tuple(inside)]
        inside[axis] = slice(None)
    return out


def fold_pad(grad: Any, sizes: tuple[int, ...], pairs: Pairs, mode: str) -> Any:
    """The transpose of `pad_mode`: each element of the border is added to the one it was copied from."""
    lead = grad.ndim - len(pairs)
    floating = is_half(grad.dtype) or grad.dtype.char in "fd"
    if floating and grad.size and len(pairs) == 2 == grad.ndim - 2 and is_last(grad) and compiles():
        from . import pad_rows

        return pad_rows.folded_channels(grad, tuple(sizes), pairs, mode)
    wide = grad.astype(np.float32) if is_half(grad.dtype) else grad
    left = len(pairs)                                 # axes, the last of which a kernel folds together
    if compiles() and wide.dtype.char in "fd" and wide.size:
        from . import pad_rows

        left = max(0, len(pairs) - 2)
        wide = pad_rows.folded(wide, tuple(sizes[left:]), pairs[left:], mode)
    for axis, (n, (a, b)) in enumerate(zip(sizes[:left], pairs[:left], strict=True), lead):
        wide = _fold_axis(wide, axis, n, a, b, pad_indices(n, a, b, mode))
    return contiguous(wide).astype(grad.dtype, copy=False)


def _fold_axis(grad: Any, axis: int, size: int, before: int, after: int, sources: Any) -> Any:
    if before == 0 and after == 0:
        return grad
    moved = np.moveaxis(grad, axis, 0)
    total = np.zeros((size, *moved.shape[1:]), grad.dtype)
    low = min(max(before, 0), len(sources))
    high = max(len(sources) - max(after, 0), low)
    if high > low:
        total[sources[low] : sources[low] + high - low] = moved[low:high]
    for at in (*range(low), *range(high, len(sources))):
        total[sources[at]] += moved[at]
    return np.moveaxis(total, 0, axis)
