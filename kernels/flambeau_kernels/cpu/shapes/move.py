"""Copies of arrays of any strides: in one native call, in tiles where the dimensions are in another order (`engine/launching/pack.py`).

Elements are moved as they lie in memory: what has no loop of its own, or one that would round it, is looked at as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels

from ...formula import Formula
from ...takeover import FORMULA, Waiting, of_elements
from ..tier import compiles

__all__ = ["contiguous", "in_rows", "into", "like", "reshaped"]

MOST = 1 << 17                                        # elements that are moved without a plan
# Elements of a first copy, and of one in the same order; fewer never load the compiler.
FROM, PLAIN_FROM = 2048, 1 << 15
_AS_THEY_ARE = {np.dtype(t) for t in (np.float32, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64,
                                      np.complex64, np.complex128)}  # fmt: skip
_BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_STORED = Formula(lambda old, new: new, "move")
_COPIED = Formula(lambda x: x, "copy")


def into(out: np.ndarray, a: np.ndarray) -> bool:
    """Write `a`, which is stretched to the shape of `out`, to it; both are of one dtype. False: not taken, nothing was written."""
    if out.dtype not in _AS_THEY_ARE:
        bits = _BITS.get(out.itemsize)
        if bits is None or not out.ndim:
            return False
        out, a = out.view(bits), a.view(bits)
    if _STORED.direct_(out, a) is not None:
        return True
    plain = out.flags.c_contiguous and a.flags.c_contiguous
    if a.dtype != out.dtype or not repays(out.size, PLAIN_FROM if plain else FROM):
        return False
    if flambeau_kernels.calls_repay():
        flambeau_kernels.specialise(_STORED, (out, a), out, out.dtype)
        if _STORED.direct_(out, a) is not None:
            return True
    if out.size <= MOST or np.may_share_memory(out, a) or not out.flags.writeable:
        return False
    flambeau_kernels.launch(_COPIED, (a,), (out,), out.dtype)
    return True


def in_rows(a: np.ndarray) -> np.ndarray:
    """A copy of `a` in C order."""
    if not a.flags.c_contiguous:
        if a.size >= FROM and compiles():
            from . import permuted

            made = permuted.copied(a)
            if made is not None:
                return made
        made = np.empty(a.shape, a.dtype)
        if into(made, a):
            return made
    return _copied(a, "C")


def contiguous(a: np.ndarray) -> np.ndarray:
    """`a` itself where it lies in C order, else a copy of it that does."""
    if a.flags.c_contiguous:
        return a
    return in_rows(a) if a.size >= FROM else np.ascontiguousarray(a)


def reshaped(a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`a` with another shape: a view where its strides allow it, else a copy."""
    if a.flags.c_contiguous or a.size < FROM:
        return a.reshape(shape)
    try:
        return a.reshape(shape, copy=False)
    except ValueError:                                # only a copy can have it, or the shape does not fit
        return in_rows(a).reshape(shape)


def like(a: np.ndarray) -> np.ndarray:
    """A copy of `a`, with its dimensions in the order in which `a` has them."""
    return _copied(a, "K")


def repays(size: int, least: int) -> bool:
    """Whether a loop is to be loaded or compiled for `size` elements: for `least`, or for fewer of which there are many calls."""
    return (size >= least or bool(_smaller.paid_for(of_elements(size)))) and compiles()


_smaller = Waiting(FORMULA)


def _copied(a: np.ndarray, order: Any) -> np.ndarray:
    if a.ndim:
        bits = None if a.dtype in _AS_THEY_ARE else _BITS.get(a.itemsize)
        seen = a if bits is None else a.view(bits)
        made = _COPIED.direct(seen)
        known = bits is not None or a.dtype in _AS_THEY_ARE
        if made is None and known and repays(a.size, PLAIN_FROM if a.flags.c_contiguous else FROM):
            if flambeau_kernels.calls_repay():
                flambeau_kernels.specialise(_COPIED, (seen,), seen, seen.dtype)
                made = _COPIED.direct(seen)
            elif a.size > MOST:
                made = np.empty_like(seen, order=order, subok=False)
                flambeau_kernels.launch(_COPIED, (seen,), (made,), seen.dtype)
        if made is not None and (order == "K" or made.flags.c_contiguous):
            return made if bits is None else made.view(a.dtype)
    return a.copy(order)
