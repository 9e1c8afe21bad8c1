"""Rows in reversed order, a vector at a time."""

from __future__ import annotations

import numpy as np

from ...engine.language import independent, kernel
from ...engines import kept
from ..sorting.keys import BITS_OF
from ..tier import compiles

__all__ = ["reversed_rows"]

FROM = 1 << 11                                        # elements; fewer are soon copied by numpy
PIECE = 1 << 15                                       # elements of a chunk


@kernel
def reverse_rows(chunk, a, out, rows, n, per):
    for row in range(chunk * per, min(rows, chunk * per + per)):
        source, to = a + row * n, out + row * n
        for i in independent(range(n)):
            to[i] = source[n - 1 - i]


def reversed_rows(a: np.ndarray) -> np.ndarray | None:
    """A copy of `a`, in C order, with its last dimension reversed; None where there is no such kernel."""
    bits = BITS_OF.get(a.dtype.itemsize)
    if a.size < FROM or bits is None or not compiles():
        return None
    n = a.shape[-1]
    rows, per = a.size // n, max(1, PIECE // n)
    made = np.empty(a.shape, a.dtype)
    _reversing(bits)(-(-rows // per), False, a, made, rows, n, per)
    return made


@kept()
def _reversing(bits: np.dtype):
    return reverse_rows.form((bits, bits, int, int, int), {})
