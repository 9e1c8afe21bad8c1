"""Many arrays as if they were one vector: their common norm, and scaling them all.

A table says where the pieces of the arrays lie: runs of at most `GRAIN` elements, and for each chunk as many of them as
make up that number, so a thousand small arrays cost no more chunks than a large one. Squares of a block of 1024
neighbours are summed in the dtype of the arrays, blocks in float64 in order, and chunks in order of their index.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.language import float64, independent, kernel, pointer, widened
from ..addresses import addresses_of
from ..sums import sum_of
from .reduce import square
from .reduce_loops import BLOCK

__all__ = ["DTYPES", "Pieces", "cut", "pieces"]

GRAIN = 65_536                                        # elements of a chunk: about 10 microseconds from memory
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class Pieces:
    """The runs of memory that some arrays of one dtype consist of; good as long as the caller keeps those."""

    __slots__ = ("_bounds", "_lengths", "_places", "dtype")

    def __init__(self, addresses: np.ndarray, sizes: tuple[int, ...], dtype: np.dtype) -> None:
        owners, offsets, self._lengths, self._bounds = cut(sizes, GRAIN)
        self._places = addresses[owners] + offsets * dtype.itemsize
        self.dtype = dtype

    def norm(self) -> np.ndarray:
        """The Euclidean norm of all elements, in their dtype, 0-d."""
        chunks = len(self._bounds) - 1
        sums = np.empty(chunks)
        sum_squares.run(chunks, self._places, self._lengths, self._bounds, np.empty(1, self.dtype), sums)
        return np.array(np.sqrt(np.add.reduce(sums)), self.dtype)

    def scale(self, factor: float) -> None:
        """Multiply every element by `factor`."""
        chunks = len(self._bounds) - 1
        scale_all.run(chunks, self._places, self._lengths, self._bounds, chunks, np.array([factor], self.dtype))


def pieces(arrays: Sequence[np.ndarray]) -> Pieces | None:
    """The pieces of `arrays`, which are of one of `DTYPES`; None if some have gaps between their elements or share memory."""
    for a in arrays:
        if not a.flags.forc:
            return None
    sizes = tuple([a.size for a in arrays])
    starts = addresses_of(arrays)
    order = np.argsort(starts)
    ends = starts + np.array(sizes) * arrays[0].itemsize
    if (ends[order[:-1]] > starts[order[1:]]).any():
        return None
    return Pieces(starts, sizes, arrays[0].dtype)


@functools.lru_cache(maxsize=64)
def cut(sizes: tuple[int, ...], grain: int) -> tuple[np.ndarray, ...]:
    """Pieces of at most `grain` of arrays of `sizes`, and chunks of as many pieces as make up that number.

    Returns: for each piece its array, where it begins there and its length; and the bounds of the chunks among the pieces.
    """
    lengths_of_all = np.array(sizes)
    counts = -(-lengths_of_all // grain)
    owners = np.repeat(np.arange(len(sizes)), counts)
    offsets = (np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)) * grain
    lengths = np.minimum(lengths_of_all[owners] - offsets, grain)
    before = np.cumsum(lengths) - lengths
    firsts = np.flatnonzero(np.diff(before // grain, prepend=-1))
    return owners, offsets, lengths, np.append(firsts, len(owners))


@kernel
def sum_squares(chunk: Any, places: Any, lengths: Any, bounds: Any, like: Any, sums: Any) -> Any:
    KIND = widened(like)
    total = float64(0)
    for piece in range(bounds[chunk], bounds[chunk + 1]):
        p, left = pointer(places[piece], KIND), lengths[piece]
        while left > 0:
            size = min(left, BLOCK)
            total += sum_of(p, size, KIND(0), square, False, KIND)
            p = p + size
            left -= size
    sums[chunk] = total


@kernel
def scale_all(chunk: Any, places: Any, lengths: Any, bounds: Any, chunks: Any, factor: Any) -> Any:
    mine, by = chunks - 1 - chunk, factor[0]          # from the end: what the norm read last is still in the cache
    for piece in range(bounds[mine], bounds[mine + 1]):
        p = pointer(places[piece], widened(factor))
        for i in independent(range(lengths[piece])):
            p[i] = p[i] * by
