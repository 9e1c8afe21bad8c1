"""Copies of permuted arrays into contiguous ones.

One dimension is dense in the input, another one (the last) in the output; a copy that walks either of them alone
touches a new cache line of the other array for each element. So both are walked together, in squares of `SIDE`
elements that fit the innermost cache: every line is used up before it leaves. The remaining dimensions, and bands
of the input's dense dimension, are the chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.language import kernel
from .tier import compiles

__all__ = ["copy"]

SIDE = 16
BAND = 64                                             # of the input's dense dimension, for one chunk
FROM = 16_384                                         # elements; below, numpy is done before a plan is made
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@kernel
def squares(chunk, x, out, outer, dims, rows, columns, x_step, out_step, bands):
    """``out[i, j] = x[j, i]`` for a band of rows i, dense in x; columns j are dense in out."""
    rest = chunk // bands
    start = (chunk % bands) * BAND
    stop = min(start + BAND, rows)
    d = dims - 1
    while d >= 0:                                     # (length, stride in x, stride in out) of each outer dimension
        length = outer[3 * d]
        at = rest % length
        rest = rest // length
        x = x + at * outer[3 * d + 1]
        out = out + at * outer[3 * d + 2]
        d -= 1
    for j0 in range(0, columns, SIDE):
        j1 = min(j0 + SIDE, columns)
        for i0 in range(start, stop, SIDE):
            for i in range(i0, min(i0 + SIDE, stop)):
                to, source = out + i * out_step, x + i
                for j in range(j0, j1):
                    to[j] = source[j * x_step]


def copy(out: np.ndarray, a: np.ndarray) -> bool:
    """Write `a` to the contiguous `out` of its shape and dtype. False: not taken, nothing was written."""
    if out.size < FROM or a.itemsize not in _INTEGERS or not out.flags.c_contiguous or not compiles():
        return False
    plan = _plan(a.shape, a.strides, out.strides, a.itemsize)
    if plan is None:
        return False
    chunks, outer, *numbers = plan
    whole = _INTEGERS[a.itemsize]
    squares.run(chunks, a.view(whole), out.view(whole), outer, *numbers)
    return True


def _plan(shape: Any, strides: Any, out_strides: Any, item: int) -> Any:
    """Chunks, the table of outer dimensions, and the numbers of `squares`; None where it has no advantage."""
    dims = [[n, s // item, o // item] for n, s, o in zip(shape, strides, out_strides, strict=True) if n > 1]
    if len(dims) < 2 or any(s % item or s < 0 for s in strides):
        return None
    merged = [dims[0]]
    for n, s, o in dims[1:]:                          # neighbours that are one dimension in both arrays
        before = merged[-1]
        if before[1] == n * s and before[2] == n * o:
            merged[-1] = [before[0] * n, s, o]
        else:
            merged.append([n, s, o])
    dense = next((d for d in merged if d[1] == 1), None)
    last = merged[-1]
    if dense is None or dense is last or dense[0] < 4 or last[0] < 4:
        return None
    outer = [d for d in merged if d is not dense and d is not last]
    bands = -(-dense[0] // BAND)
    chunks = bands
    for n, _, _ in outer:
        chunks *= n
    table = np.array([*outer, [1, 0, 0]], np.int64)
    return chunks, table, len(outer), dense[0], last[0], last[1], dense[2], bands
