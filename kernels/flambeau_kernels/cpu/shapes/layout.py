"""Arrays whose channels come last in memory, as images often are, to and from the order of their dimensions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.language import kernel

from .order import is_last, is_ordered_last

__all__ = ["alike", "planar"]

# Rows and columns of a block of the transposition, and elements of a chunk.
ROWS, COLUMNS, CHUNK = 8, 16, 1 << 15


def planar(x: Any) -> Any:
    """`x` in the order of its dimensions."""
    if not is_last(x) or not _takes(x):
        return np.ascontiguousarray(x)
    out = np.empty(x.shape, x.dtype)
    _transpose(x, out, len(x), prod(x.shape[2:]), x.shape[1])
    return out


def alike(made: Any, *sources: Any) -> Any:
    """`made` with its channels last in memory if those of one of `sources` are."""
    for x in sources:
        if is_ordered_last(x):
            break
    else:
        return made
    if made.ndim not in (4, 5) or is_last(made):
        return made
    last = np.empty((made.shape[0], *made.shape[2:], made.shape[1]), made.dtype)
    out = last.transpose(0, made.ndim - 1, *range(1, made.ndim - 1))
    if made.flags.c_contiguous and _takes(made):
        _transpose(made, last, len(made), made.shape[1], prod(made.shape[2:]))
    else:
        out[...] = made
    return out


def _takes(x: Any) -> bool:
    return x.size > 0 and x.itemsize <= 8 and compiles()


@kernel
def transpose(chunk, source, out, rows, columns, batch, per_chunk):
    first = chunk * per_chunk
    for number in range(first, min(first + per_chunk, batch * ((columns + COLUMNS - 1) // COLUMNS))):
        one = number // ((columns + COLUMNS - 1) // COLUMNS)
        c0 = (number - one * ((columns + COLUMNS - 1) // COLUMNS)) * COLUMNS
        here = min(COLUMNS, columns - c0)
        for r0 in range(0, rows, ROWS):
            line, to = source + (one * rows * columns + r0 * columns + c0), out + (one * rows * columns + c0 * rows + r0)
            count = min(ROWS, rows - r0)
            for c in range(here):
                for r in range(count):
                    to[c * rows + r] = line[r * columns + c]


def _transpose(source: Any, out: Any, batch: int, rows: int, columns: int) -> None:
    """``(batch, rows, columns)`` in memory to ``(batch, columns, rows)``."""
    unsigned = np.dtype(f"u{source.itemsize}")
    per_chunk = max(1, CHUNK // (COLUMNS * rows))
    flat = np.lib.stride_tricks.as_strided(source, (source.size,), (source.itemsize,)).view(unsigned)
    transpose.run(-(-(batch * -(-columns // COLUMNS)) // per_chunk), flat, out.reshape(-1).view(unsigned), rows, columns, batch,
                  per_chunk)  # fmt: skip
