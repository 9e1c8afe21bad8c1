"""Moving elements by index, in compiled loops: picking, compressing by a mask, finding what is not zero.

Nothing is computed here, so elements travel as unsigned integers of their size (rows in the widest unit that
divides them) and their bits arrive unchanged. Work is cut into chunks of a fixed number of elements. Indices have
been checked by `within` before anything is read or written (`picks` checks on the way); those below zero count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import independent, int64, kernel, repeated
from flambeau_kernels.vocabulary import where

from .keys import BITS_OF

__all__ = [
    "collapsed", "compress", "expand", "extent", "fill_masked", "fill_masked_into", "gather", "nonzero", "pick_pairs",
    "within",
]  # fmt: skip

PIECE = 1 << 15                                      # elements per chunk
SCANNED = 1 << 16                                    # bytes of a mask per chunk


def within(index: np.ndarray, low: int, high: int) -> bool:
    """Whether every element of `index`, in C order and not empty, lies in ``[low, high)``."""
    least, most = extent(index)
    return low <= least and most < high


def extent(a: np.ndarray) -> tuple[int, int]:
    """The least and the largest of the integers `a`, in C order and not empty."""
    chunks = -(-a.size // PIECE)
    ends = np.empty((2, chunks), np.int64)
    extremes.run(chunks, a, ends[0], ends[1], a.size)
    return int(ends[0].min()), int(ends[1].max())


@kernel
def extremes(chunk: Any, index: Any, lowest: Any, highest: Any, n: Any) -> Any:
    start = chunk * PIECE
    low, high = index[start], index[start]
    for i in range(start, min(n, start + PIECE)):
        low = min(low, index[i])
        high = max(high, index[i])
    lowest[chunk] = int64(low)
    highest[chunk] = int64(high)


# -- picking ---------------------------------------------------------------------------------------------------------------


def from_end(place: Any, n: Any) -> Any:
    i = int64(place)
    return where(i < 0, i + n, i)


def collapsed(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int] | None:
    """Dimensions as one: its size and stride, or None where they do not line up."""
    size, stride = 1, 0
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if size == 1:
            stride = s
        elif s != size * stride:
            return None
        size *= n
    return size, stride


def gather(a: np.ndarray, dim: int, index: np.ndarray) -> np.ndarray:
    """The elements of `a` at `index` along `dim`; `index` is in C order, nowhere larger than `a` elsewhere."""
    n, shape = a.shape[dim], index.shape
    corner = a[tuple(slice(None) if d == dim else slice(0, m) for d, m in enumerate(shape))]
    outer = collapsed(corner.shape[:dim], corner.strides[:dim])
    inner = collapsed(corner.shape[dim + 1 :], corner.strides[dim + 1 :])
    if outer is None or inner is None:
        return gather(np.ascontiguousarray(corner), dim, index)
    size = a.dtype.itemsize
    made = np.empty(shape, a.dtype)
    # Positions of the index in runs along which nothing but the place, and the inner dimension, changes.
    length, runs = (inner[0], shape[dim]) if inner[0] > 1 else (shape[dim], 1)
    gather_runs.run(-(-index.size // PIECE), corner.view(BITS_OF[size]), index, made.view(BITS_OF[size]), index.size, n, length, runs,
                    outer[1] // size, corner.strides[dim] // size, inner[1] // size)  # fmt: skip
    return made


@kernel
def gather_runs(chunk: Any, source: Any, index: Any, target: Any, count: Any, n: Any, length: Any, runs: Any, outer_step: Any,
                step: Any, inner_step: Any) -> Any:  # fmt: skip
    at, last = chunk * PIECE, min(count, chunk * PIECE + PIECE)
    while at < last:
        run = at // length
        along = at - run * length
        stop = min(last, at - along + length)
        base = source + (run // runs) * outer_step + along * inner_step
        places, to = index + at, target + at
        for k in independent(range(stop - at)):
            to[k] = base[from_end(places[k], n) * step + k * inner_step]
        at = stop


def pick_pairs(a: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """``a[rows, columns]`` of a matrix with elements of at most eight bytes, for vectors in C order."""
    made = np.empty(len(rows), a.dtype)
    size = a.dtype.itemsize
    pairs.run(-(-len(rows) // PIECE), a.view(BITS_OF[size]), rows, columns, made.view(BITS_OF[size]), len(rows), *a.shape,
              a.strides[0] // size, a.strides[1] // size)  # fmt: skip
    return made


@kernel
def pairs(chunk: Any, source: Any, rows: Any, columns: Any, target: Any, count: Any, n: Any, m: Any, row_step: Any,
          column_step: Any) -> Any:  # fmt: skip
    for i in independent(range(chunk * PIECE, min(count, chunk * PIECE + PIECE))):
        target[i] = source[from_end(rows[i], n) * row_step + from_end(columns[i], m) * column_step]


# -- masks -----------------------------------------------------------------------------------------------------------------


def _counts(mask: np.ndarray) -> tuple[np.ndarray, int]:
    """How many hold in the chunks before each of a `mask` of bytes, and in all."""
    chunks = -(-mask.size // SCANNED)
    found = np.empty(chunks + 1, np.int64)
    count_true.run(chunks, mask, found, mask.size)
    found[0] = 0
    np.cumsum(found, out=found)
    return found, int(found[-1])


@kernel
def count_true(chunk: Any, mask: Any, found: Any, n: Any) -> Any:
    total = 0
    for i in range(chunk * SCANNED, min(n, chunk * SCANNED + SCANNED)):
        total += int64(mask[i])
    found[chunk + 1] = total


def nonzero(mask: np.ndarray) -> np.ndarray:
    """Where a bool array in C order, not empty and not 0-d, holds: ``(ndim, count)``."""
    flags = mask.reshape(-1).view(np.uint8)
    before, count = _counts(flags)
    made = np.empty((mask.ndim, count), np.int64)
    rows = made[-2] if mask.ndim > 1 else made[-1]
    places.run(len(before) - 1, flags, before, rows, made[-1], mask.size, mask.shape[-1])
    for d in range(mask.ndim - 2, 0, -1):            # the rows so far are numbers of rows of the whole
        np.divmod(made[d], mask.shape[d], out=(made[d - 1], made[d]))
    return made


@kernel(aliased=True)
def places(chunk: Any, mask: Any, before: Any, rows: Any, columns: Any, n: Any, width: Any) -> Any:
    i, last = chunk * SCANNED, min(n, chunk * SCANNED + SCANNED)
    at, end = before[chunk], before[chunk + 1]
    while i < last:
        row = i // width
        stop = min(last, (row + 1) * width)
        column = i - row * width
        for k in repeated(range(i, stop), 4):
            if at < end:                             # always, up to the last one: what is written past it is not ours
                rows[at] = row
                columns[at] = column + (k - i)
                at += int64(mask[k])
        i = stop


def compress(a: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The elements of `a` where `mask`, bool, holds; both of one shape and in C order, elements of at most eight bytes."""
    flags, bits = mask.reshape(-1).view(np.uint8), BITS_OF[a.dtype.itemsize]
    before, count = _counts(flags)
    made = np.empty(count, a.dtype)
    squeeze.run(len(before) - 1, a.reshape(-1).view(bits), flags, before, made.view(bits), mask.size)
    return made


@kernel
def squeeze(chunk: Any, source: Any, mask: Any, before: Any, target: Any, n: Any) -> Any:
    at, end = before[chunk], before[chunk + 1]
    for i in repeated(range(chunk * SCANNED, min(n, chunk * SCANNED + SCANNED)), 8):
        if at < end:
            target[at] = source[i]
            at += int64(mask[i])


def expand(a: np.ndarray, mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`a` with the elements of `values`, in order and enough of them, where `mask` holds; all in C order, of at most eight bytes."""
    flags, bits = mask.reshape(-1).view(np.uint8), BITS_OF[a.dtype.itemsize]
    before, _ = _counts(flags)
    made = np.empty(a.shape, a.dtype)
    if len(values):
        spread.run(len(before) - 1, a.reshape(-1).view(bits), flags, before, values.view(bits), made.reshape(-1).view(bits), mask.size,
                   len(values) - 1)  # fmt: skip
    else:
        made[...] = a
    return made


@kernel
def spread(chunk: Any, source: Any, mask: Any, before: Any, values: Any, target: Any, n: Any, last: Any) -> Any:
    at = before[chunk]
    for i in range(chunk * SCANNED, min(n, chunk * SCANNED + SCANNED)):
        taken = mask[i] != 0
        target[i] = where(taken, values[min(at, last)], source[i])
        at += int64(taken)


def fill_masked(a: np.ndarray, mask: np.ndarray, value: Any) -> np.ndarray:
    """`a` with `value` where `mask` holds; both of one shape and in C order, elements of at most eight bytes."""
    bits = BITS_OF[a.dtype.itemsize]
    made = np.empty(a.shape, a.dtype)
    number = np.array([value], a.dtype).view(bits)
    choose.run(-(-a.size // PIECE), a.view(bits), mask, number, made.view(bits), a.size)
    return made


def fill_masked_into(a: np.ndarray, mask: np.ndarray, value: Any) -> None:
    """`fill_masked` in place."""
    bits = BITS_OF[a.dtype.itemsize]
    choose_into.run(-(-a.size // PIECE), a.view(bits), mask, np.array([value], a.dtype).view(bits), a.size)


@kernel
def choose(chunk: Any, source: Any, mask: Any, number: Any, target: Any, n: Any) -> Any:
    value = number[0]
    for i in independent(range(chunk * PIECE, min(n, chunk * PIECE + PIECE))):
        target[i] = where(mask[i], value, source[i])


@kernel
def choose_into(chunk: Any, target: Any, mask: Any, number: Any, n: Any) -> Any:
    value = number[0]
    for i in independent(range(chunk * PIECE, min(n, chunk * PIECE + PIECE))):
        target[i] = where(mask[i], value, target[i])
