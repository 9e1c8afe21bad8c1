"""Elements put at places of their planes, and taken from there, compiled: the way back from maxima, and its transpose.

Elements are moved as unsigned integers of their size, whatever their dtype. Planes lie one after the other, or those of an image beside
each other where its channels lie last in memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import broadcast, kernel, lanes, repeated, rolled, store, widened

from ..shapes.move import contiguous
from ..shapes.order import is_last
from ..tier import compiles

__all__ = ["are_last", "planned", "put", "take", "takes"]

CHUNK = 1 << 15                                       # elements of a chunk
CHANNELS = 64                                         # of an image whose channels lie last, that a chunk has
SMALLEST = 1 << 9                                     # elements below which numpy answers as soon
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


@kernel
def put_in_planes(chunk, values, places, out, outside, planes, count, size, per_chunk):
    """Zeros with `values` at `places` of their planes; of equal places the last wins. Whether some were outside goes to `outside`."""
    LANES = lanes(widened(out))
    first = chunk * per_chunk
    line, at, to = values + first * count, places + first * count, out + first * size
    missed = 0
    for _ in rolled(range(first, min(first + per_chunk, planes))):
        for i in range(0, size, LANES):
            store(to, i, broadcast(widened(out)(0), LANES), size - i)
        for i in repeated(range(count), 4):
            place = at[i]
            if (place >= 0) & (place < size):
                to[place] = line[i]
            else:
                missed = 1
        line, at, to = line + count, at + count, to + size
    outside[chunk] = missed


@kernel
def put_in_channels(chunk, values, places, out, outside, channels, count, size, blocks, per_block):
    """As `put_in_planes`, of a block of channels of an image whose channels lie last."""
    LANES = lanes(widened(out))
    image = chunk // blocks
    low = (chunk - image * blocks) * per_block
    n = min(per_block, channels - low)
    to = out + (image * size * channels + low)
    line, at = values + (image * count * channels + low), places + (image * count * channels + low)
    for i in rolled(range(size)):
        for c in range(0, n, LANES):
            store(to + i * channels, c, broadcast(widened(out)(0), LANES), n - c)
    missed = 0
    for i in rolled(range(count)):
        for c in repeated(range(n), 4):
            place = at[i * channels + c]
            if (place >= 0) & (place < size):
                to[place * channels + c] = line[i * channels + c]
            else:
                missed = 1
    outside[chunk] = missed


@kernel
def take_from_planes(chunk, x, places, out, planes, count, size, per_chunk):
    """Elements of planes at `places`, 0 for those outside."""
    first = chunk * per_chunk
    line, at, to = x + first * size, places + first * count, out + first * count
    for _ in rolled(range(first, min(first + per_chunk, planes))):
        for i in repeated(range(count), 4):
            place = at[i]
            if (place >= 0) & (place < size):
                to[i] = line[place]
            else:
                to[i] = widened(out)(0)
        line, at, to = line + size, at + count, to + count


@kernel
def take_from_channels(chunk, x, places, out, channels, count, size, per_chunk, counts):
    """As `take_from_planes`, in rows, of images whose channels lie last; a chunk is some places of one."""
    image = chunk // counts
    first = (chunk - image * counts) * per_chunk
    line = x + image * size * channels
    at, to = places + image * count * channels, out + image * count * channels
    for i in rolled(range(first, min(first + per_chunk, count))):
        for c in repeated(range(channels), 4):
            place = at[i * channels + c]
            if (place >= 0) & (place < size):
                to[c * count + i] = line[place * channels + c]
            else:
                to[c * count + i] = widened(out)(0)


def takes(x: Any, at: Any, n: int, size: int) -> bool:
    """Whether the kernels here answer for `x`, with places of planes of `size` elements, the last `n` dimensions."""
    is_array = x.__class__ is np.ndarray and at.__class__ is np.ndarray and x.ndim > n
    return is_array and x.itemsize in _UNSIGNED and at.size > 0 and size > 0 and max(x.size, at.size) >= SMALLEST and compiles()


def are_last(x: Any, at: Any, n: int) -> bool:
    """Whether both are ``(N, C, *)``, of `n` last dimensions, and have their channels last in memory."""
    return x.ndim == n + 2 and is_last(x) and is_last(at)


def planned(x: Any, at: Any, sizes: tuple[int, ...]) -> Any:
    """``run(x, at)``: zeros ``(*, *sizes)`` with `x` at places `at` of their planes, and whether all places were inside.

    For arrays of the shapes, strides and dtype of `x` and `at`, which `takes` has said yes to. Channels of the zeros lie last in memory
    where those of both do.
    """
    dtype, shape, n = x.dtype, x.shape, len(sizes)
    bits, size, count = _UNSIGNED[x.itemsize], prod(sizes), prod(shape[x.ndim - n:])
    lead = shape[: x.ndim - n]
    if are_last(x, at, n):
        images, channels = lead
        per_block = min(CHANNELS, channels)
        blocks = -(-channels // per_block)
        form = _form(put_in_channels, bits)
        order = (0, n + 1, *range(1, n + 1))

        def run_last(x: Any, at: Any) -> tuple[Any, bool]:
            out, outside = np.empty((images, *sizes, channels), dtype), np.empty(images * blocks, np.int64)
            form(images * blocks, False, x, at, out, outside, channels, count, size, blocks, per_block)
            return out.transpose(order), not outside.any()

        return run_last
    planes = prod(lead)
    per_chunk = max(1, CHUNK // (count + size))
    chunks, form = -(-planes // per_chunk), _form(put_in_planes, bits)

    def run(x: Any, at: Any) -> tuple[Any, bool]:
        out, outside = np.empty((*lead, *sizes), dtype), np.empty(chunks, np.int64)
        form(chunks, False, contiguous(x), contiguous(at), out, outside, planes, count, size, per_chunk)
        return out, not outside.any()

    return run


def put(x: Any, at: Any, sizes: tuple[int, ...]) -> Any:
    """Zeros ``(*, *sizes)`` with `x` at places `at` of their planes; places outside are left out."""
    return planned(x, at, sizes)(x, at)[0]


def take(x: Any, at: Any, n: int) -> Any:
    """Elements of the last `n` dimensions of `x` at places `at` of their planes, 0 for those outside, in C order."""
    bits, size, count = _UNSIGNED[x.itemsize], prod(x.shape[x.ndim - n:]), prod(at.shape[at.ndim - n:])
    out = np.empty(at.shape, x.dtype)
    if are_last(x, at, n):
        images, channels = x.shape[:2]
        per_chunk = max(1, CHUNK // channels)
        counts = -(-count // per_chunk)
        _form(take_from_channels, bits)(images * counts, False, x, at, out, channels, count, size, per_chunk, counts)
        return out
    planes = prod(at.shape[: at.ndim - n])
    per_chunk = max(1, CHUNK // (count + size))
    chunks = -(-planes // per_chunk)
    _form(take_from_planes, bits)(chunks, False, contiguous(x), contiguous(at), out, planes, count, size, per_chunk)
    return out


@engines.kept(32)
def _form(of: Any, bits: np.dtype) -> Any:
    """The form of a kernel for elements of these bits, which looks at nothing of an array but where it lies."""
    places = np.dtype(np.int64)
    kinds: dict[str, Any] = {"values": bits, "x": bits, "out": bits, "places": places, "outside": places}
    code = of.function.__code__
    return of.form(tuple(kinds.get(name, int) for name in code.co_varnames[1 : code.co_argcount]), {})
