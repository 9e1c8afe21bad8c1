"""Arrays one after another, copied on all threads.

The result is cut into pieces that each lie in one array: runs of at most `GRAIN` bytes, and as many of them to a chunk as
make up that number. Every piece is copied in vectors, its last elements one by one. Short runs are no pieces of their own: a chunk
copies those of some rows, one array after the other, the last bytes by a vector that overlaps the one before it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.language import independent, int64, kernel, load, pointer, store, uint8, uint64, unroll
from ...engines import kept
from ..addresses import dense_addresses_of
from ..indexing.index import shared_out
from ..reductions.norm_of_many import cut
from ..tier import compiles

__all__ = ["join"]

FROM, FROM_ROWS = 1 << 18, 1 << 13                    # bytes of a result that repay pieces, and rows of short runs
GRAIN = 1 << 18
SHORT = 1 << 11                                       # bytes of a run on average, below which they are copied by rows
SHORTEST = 16                                         # of any run; numpy is as quick with shorter ones


def join(arrays: Sequence[np.ndarray], shape: tuple[int, ...], runs: tuple[int, ...], outer: int = 1) -> np.ndarray | None:
    """An array of `shape` in which runs of the `arrays` lie one after another; None where that is better left to numpy.

    Args:
        arrays: of one dtype without Python objects.
        runs: bytes of each array that lie together in the result, `outer` times.
    """
    total = sum(runs) * outer
    short = len(runs) * outer * SHORT > total
    if total < (FROM_ROWS if short else FROM) or short and min(runs) < SHORTEST or not compiles():
        return None
    addresses = dense_addresses_of(arrays)
    if addresses is None:
        return None
    made = np.empty(shape, arrays[0].dtype)
    if short:
        lengths, places = _rows(runs)
        each = shared_out(outer, sum(runs), GRAIN)
        _copying_rows()(-(-outer // each), False, addresses, made, places, lengths, len(runs), outer, sum(runs), each)
        return made
    owners, skips, places, lengths, bounds = _plan(runs, outer)
    _copying()(len(bounds) - 1, False, addresses, owners, skips, made, places, lengths, bounds)
    return made


@functools.lru_cache(maxsize=64)
def _plan(runs: tuple[int, ...], outer: int) -> tuple[np.ndarray, ...]:
    """Of each piece the array, where it begins there and in the result, and its bytes; and the bounds of the chunks."""
    pieces, offsets, lengths, bounds = cut(runs * outer, GRAIN)
    row, owners = np.divmod(pieces, len(runs))
    skips = row * np.array(runs)[owners] + offsets
    return owners, skips, np.cumsum(lengths) - lengths, lengths, bounds


@functools.lru_cache(maxsize=64)
def _rows(runs: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the runs of a row, and where in it each begins."""
    lengths = np.array(runs)
    return lengths, np.cumsum(lengths) - lengths


@kept()
def _copying_rows() -> Any:
    integers = np.dtype(np.int64)
    return copy_rows.form((integers, np.dtype(np.uint8), integers, integers, int, int, int, int), {})


@kept()
def _copying() -> Any:
    """`copy_pieces` as it is called, which looks at nothing of an array but where it lies."""
    integers = np.dtype(np.int64)
    return copy_pieces.form((integers, integers, integers, np.dtype(np.uint8), integers, integers, integers), {})


@kernel
def copy_pieces(chunk: Any, addresses: Any, owners: Any, skips: Any, made: Any, places: Any, lengths: Any, bounds: Any) -> Any:
    for piece in range(bounds[chunk], bounds[chunk + 1]):
        at, to, n = addresses[owners[piece]] + skips[piece], int64(made + places[piece]), lengths[piece]
        p, q = pointer(at, uint64), pointer(to, uint64)
        i = 0
        while i + 32 <= n // 8:
            for u in unroll(range(4)):
                store(q, i + 8 * u, load(p, i + 8 * u, 8))
            i += 32
        p1, q1 = pointer(at, uint8), pointer(to, uint8)
        for k in independent(range(8 * i, n)):
            q1[k] = p1[k]


@kernel
def copy_rows(chunk: Any, addresses: Any, made: Any, places: Any, lengths: Any, count: Any, rows: Any, width: Any, each: Any) -> Any:
    """The runs of some rows of `made`, which are `width` bytes each; no run has fewer than `SHORTEST`."""
    first, last = chunk * each, min(rows, chunk * each + each)
    for k in range(count):
        n, to = lengths[k], made + places[k]
        source = pointer(addresses[k], uint8)
        if n >= 64:
            for row in range(first, last):
                p, q = source + row * n, to + row * width
                i = 0
                while i + 64 <= n:
                    store(q, i, load(p, i, 64))
                    i += 64
                if i < n:
                    store(q, n - 64, load(p, n - 64, 64))
        elif n >= 32:
            for row in range(first, last):
                p, q = source + row * n, to + row * width
                store(q, 0, load(p, 0, 32))
                store(q, n - 32, load(p, n - 32, 32))
        else:
            for row in range(first, last):
                p, q = source + row * n, to + row * width
                store(q, 0, load(p, 0, 16))
                store(q, n - 16, load(p, n - 16, 16))
