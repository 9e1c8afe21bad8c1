"""Moving elements by index, in compiled loops: picking, compressing by a mask, finding what is not zero.

Nothing is computed here, so elements travel as unsigned integers of their size (rows in the widest unit that
divides them) and their bits arrive unchanged. Work is cut into chunks of a fixed number of elements. Indices have
been checked by `within` before anything is read or written (`picks` checks on the way); those below zero count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import bitcast, independent, int64, kernel, repeated, rolled, uint8, uint64, unroll
from flambeau_kernels.engines import kept
from flambeau_kernels.vocabulary import where

from ..sorting.keys import BITS_OF

__all__ = [
    "collapsed", "compress", "expand", "expand_into", "extent", "fill_masked", "fill_masked_into", "gather", "nonzero", "pick_pairs",
    "number_pairs", "shared_out", "within",
]  # fmt: skip

PIECE = 1 << 15                                      # elements per chunk
BLOCK, ALL = 8, 0x0101010101010101                   # bytes of a mask that are looked at together, and those that all hold
_FIRST = np.zeros(1, np.int64)                       # elements before the only chunk
_INT64, _UINT8 = np.dtype(np.int64), np.dtype(np.uint8)


def shared_out(rows: int, width: int, piece: int = PIECE) -> int:
    """How many of `rows` of `width` elements a chunk has, of about `piece` elements; chunks are even in number, or but one."""
    chunks = -(-rows * width // piece)
    return -(-rows // (chunks + (chunks & 1))) if chunks > 1 else rows


def within(index: np.ndarray, low: int, high: int) -> bool:
    """Whether every element of `index`, in C order and not empty, lies in ``[low, high)``."""
    least, most = extent(index)
    return low <= least and most < high


def extent(a: np.ndarray) -> tuple[int, int]:
    """The least and the largest of the integers `a`, in C order and not empty."""
    each = shared_out(a.size, 1)
    chunks = -(-a.size // each)
    ends = np.empty(2 * chunks, np.int64)
    _extremes(a.dtype)(chunks, False, a, ends, a.size, each)
    if chunks == 1:
        return int(ends[0]), int(ends[1])
    return int(ends[::2].min()), int(ends[1::2].max())


@kept()
def _extremes(dtype: np.dtype) -> Any:
    return extremes.form((dtype, _INT64, int, int), {})


@kernel
def extremes(chunk: Any, index: Any, ends: Any, n: Any, each: Any) -> Any:
    start = chunk * each
    low, high = index[start], index[start]
    for i in range(start, min(n, start + each)):
        low = min(low, index[i])
        high = max(high, index[i])
    ends[2 * chunk] = int64(low)
    ends[2 * chunk + 1] = int64(high)


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
        for k in rolled(range(stop - at)):
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


def number_pairs(shape: tuple[int, int], rows: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
    """The flat positions of ``[rows, columns]`` in a matrix of `shape`, of int64 in C order; None if one is out of range."""
    made, wrong = np.empty(rows.shape, np.int64), np.zeros(1, np.int64)
    _numbering()(-(-rows.size // PIECE), False, rows, columns, made, wrong, rows.size, *shape)
    return None if wrong[0] else made


@kept()
def _numbering() -> Any:
    return places_of_pairs.form((_INT64, _INT64, _INT64, _INT64, int, int, int), {})


@kernel
def places_of_pairs(chunk: Any, rows: Any, columns: Any, target: Any, wrong: Any, count: Any, n: Any, m: Any) -> Any:
    worst = uint64(0)
    for i in range(chunk * PIECE, min(count, chunk * PIECE + PIECE)):
        row, column = from_end(rows[i], n), from_end(columns[i], m)
        worst = max(worst, uint64(uint64(row) >= uint64(n)), uint64(uint64(column) >= uint64(m)))
        target[i] = row * m + column
    if worst > uint64(0):
        wrong[0] = 1


# -- masks -----------------------------------------------------------------------------------------------------------------

# A mask that is a view of other bytes, or came from a file, may hold any byte; all but 0 are true.


def _counts(mask: np.ndarray) -> tuple[np.ndarray, int, int]:
    """How many hold in the chunks before each of a `mask` of bytes, in all, and how many elements a chunk has."""
    each = shared_out(mask.size, 1)
    chunks = -(-mask.size // each)
    if chunks == 1:
        count = int(np.count_nonzero(mask.view(np.bool_)))
        return np.array((0, count), np.int64), count, each
    found = np.zeros(chunks + 1, np.int64)
    count_true.run(chunks, mask, found, mask.size, each)
    np.cumsum(found, out=found)
    return found, int(found[-1]), each


@kernel
def count_true(chunk: Any, mask: Any, found: Any, n: Any, each: Any) -> Any:
    total = 0
    for start in range(chunk * each, min(n, chunk * each + each), 128):
        part = uint8(0)                              # no more than 128, so that sums fit the lanes
        for i in range(start, min(n, chunk * each + each, start + 128)):
            part += uint8(mask[i] != 0)
        total += int64(part)
    found[chunk + 1] = total


def nonzero(mask: np.ndarray) -> np.ndarray:
    """Where a bool array in C order, not empty and not 0-d, holds: ``(ndim, count)``."""
    flags = mask.reshape(-1).view(np.uint8)
    before, count, each = _counts(flags)
    made = np.empty((mask.ndim, count), np.int64)
    rows = made[-2] if mask.ndim > 1 else made[-1]
    _placing(mask.ndim > 1)(len(before) - 1, False, flags, before, rows, made[-1], mask.size, mask.shape[-1], each)
    for d in range(mask.ndim - 2, 0, -1):            # the rows so far are numbers of rows of the whole
        np.divmod(made[d], mask.shape[d], out=(made[d - 1], made[d]))
    return made


@kept()
def _placing(rows: bool) -> Any:
    return places.form((_UINT8, _INT64, _INT64, _INT64, *[int] * 3), {"ROWS": rows})


@kernel(aliased=True)
def places(chunk: Any, mask: Any, before: Any, rows: Any, columns: Any, n: Any, width: Any, each: Any, *, ROWS: bool) -> Any:
    i, last = chunk * each, min(n, chunk * each + each)
    at, end = before[chunk], before[chunk + 1]
    while i < last:
        row = i // width
        stop = min(last, (row + 1) * width)
        column = i - row * width
        for k in repeated(range(i, stop), 4):
            if at < end:                             # always, up to the last one: what is written past it is not ours
                if ROWS:
                    rows[at] = row
                columns[at] = column + (k - i)
                at += int64(mask[k] != 0)
        i = stop


def compress(a: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The elements of `a` where `mask`, bool, holds; both of one shape and in C order, elements of at most eight bytes."""
    flags, bits = mask.reshape(-1).view(np.uint8), BITS_OF[a.dtype.itemsize]
    before, count, each = _counts(flags)
    made = np.empty(count, a.dtype)
    _squeezing(bits)(len(before) - 1, False, a, flags, before, made, mask.size, each)
    return made


@kept()
def _squeezing(bits: np.dtype) -> Any:
    return squeeze.form((bits, _UINT8, _INT64, bits, int, int), {})


@kernel
def squeeze(chunk: Any, source: Any, mask: Any, before: Any, target: Any, n: Any, each: Any) -> Any:
    at, end = before[chunk], before[chunk + 1]
    for i in repeated(range(chunk * each, min(n, chunk * each + each)), 8):
        if at < end:
            target[at] = source[i]
            at += int64(mask[i] != 0)


def expand(a: np.ndarray, mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`a` with the elements of `values`, in order and enough of them, where `mask` holds; all in C order, of at most eight bytes."""
    flags, bits = mask.reshape(-1).view(np.uint8), BITS_OF[a.dtype.itemsize]
    before, _, each = _counts(flags)
    made = np.empty(a.shape, a.dtype)
    if len(values):
        _spreading(bits)(len(before) - 1, False, a, flags, before, values, made, mask.size, len(values) - 1, each)
    else:
        made[...] = a
    return made


def expand_into(a: np.ndarray, mask: np.ndarray, values: np.ndarray) -> bool:
    """`expand` in place, if there are enough values, of which there are some; those may not share memory with `a`."""
    bits, n = BITS_OF[a.dtype.itemsize], mask.size
    if n <= PIECE:
        before, count, each, chunks = _FIRST, np.count_nonzero(mask), n, 1
    else:
        before, count, each = _counts(mask.reshape(-1).view(np.uint8))
        chunks = len(before) - 1
    if count > values.size:
        return False
    _spreading_over(bits)(chunks, False, mask, before, values, a, n, values.size - 1, each)
    return True


@kept()
def _spreading(bits: np.dtype) -> Any:
    return spread.form((bits, _UINT8, _INT64, bits, bits, *[int] * 3), {})


@kernel(aliased=True)
def spread(chunk: Any, source: Any, mask: Any, before: Any, values: Any, target: Any, n: Any, last: Any, each: Any) -> Any:
    at = before[chunk]
    for i in repeated(range(chunk * each, min(n, chunk * each + each)), 4):
        taken = mask[i] != 0
        target[i] = where(taken, values[min(at, last)], source[i])
        at += int64(taken)


@kept()
def _spreading_over(bits: np.dtype) -> Any:
    return spread_over.form((_UINT8, _INT64, bits, bits, *[int] * 3), {})


@kernel
def spread_over(chunk: Any, mask: Any, before: Any, values: Any, target: Any, n: Any, last: Any, each: Any) -> Any:
    at, end = before[chunk], min(n, chunk * each + each)
    i = chunk * each
    while i < end:
        if i + BLOCK <= end:
            word = bitcast(mask + i, uint64)[0]
            if word == uint64(ALL):
                for k in unroll(range(BLOCK)):
                    target[i + k] = values[at + k]
                at += BLOCK
            elif word != uint64(0):                  # most of a sparse mask is passed over
                for k in unroll(range(BLOCK)):
                    taken = mask[i + k] != 0
                    target[i + k] = where(taken, values[min(at, last)], target[i + k])
                    at += int64(taken)
            i += BLOCK
        else:
            if mask[i] != 0:
                target[i] = values[at]
                at += 1
            i += 1


def fill_masked(a: np.ndarray, mask: np.ndarray, value: Any) -> np.ndarray:
    """`a` with `value`, a scalar of its dtype, where `mask` holds; both of one shape and in C order, elements of at most eight bytes."""
    made = np.empty(a.shape, a.dtype)
    each = shared_out(a.size, 1)
    _choosing(BITS_OF[a.dtype.itemsize])(-(-a.size // each), False, a, mask, np.array(value, a.dtype), made, a.size, each)
    return made


def fill_masked_into(a: np.ndarray, mask: np.ndarray, value: Any) -> None:
    """`fill_masked` in place."""
    each = shared_out(a.size, 1)
    _choosing(BITS_OF[a.dtype.itemsize])(-(-a.size // each), False, a, mask, np.array(value, a.dtype), a, a.size, each)


@kept()
def _choosing(bits: np.dtype) -> Any:
    return choose.form((bits, np.dtype(np.bool_), bits, bits, int, int), {})


@kernel(aliased=True)
def choose(chunk: Any, source: Any, mask: Any, number: Any, target: Any, n: Any, each: Any) -> Any:
    value = number[0]
    for i in independent(range(chunk * each, min(n, chunk * each + each))):
        target[i] = where(mask[i], value, source[i])
