"""Sort keys: integers in the order of the elements, nan above everything, and zeros equal whatever their sign.

What the kernels of `radix` and `topk` share. A key has 32 bits, or 64 for float64, int64 and uint32. Descending
orders complement the keys (``key ^ -1``), so that equal elements keep their order either way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import bitcast, float32, float64, int32, int64, uint32, widened
from flambeau_kernels.vocabulary import where

__all__ = ["BITS_OF", "has_keys", "is_wide", "key_at", "raw"]

_WIDE = ("float64", "int64", "uint32")
_KEYED = (*_WIDE, "bool", "uint8", "int8", "int16", "uint16", "int32", "float16", "bfloat16", "float32")
# Elements are moved as unsigned integers of their size: their bits arrive unchanged.
BITS_OF = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def has_keys(dtype: np.dtype) -> bool:
    """Whether elements of `dtype` have a key."""
    return dtype.name in _KEYED


def is_wide(dtype: np.dtype) -> bool:
    """Whether the keys of `dtype` have 64 bits."""
    return dtype.name in _WIDE


def raw(a: np.ndarray) -> np.ndarray:
    """The elements of `a` as unsigned integers."""
    return a.view(BITS_OF[a.dtype.itemsize])


def key_at(p: Any, i: Any) -> Any:
    """Kernel code: the key of ``p[i]``, int32 or int64."""
    x = p[i]
    if widened(p) is float32:
        # Adding zero turns -0.0 into 0.0. Negative floats order backwards, so all their bits but the sign flip.
        bits = bitcast(x + 0.0, int32)
        key = where(x != x, int32(0x7FFFFFFF), bits ^ ((bits >> 31) & 0x7FFFFFFF))
    elif widened(p) is float64:
        bits = bitcast(x + 0.0, int64)
        key = where(x != x, int64(0x7FFFFFFFFFFFFFFF), bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF))
    elif widened(p) is int64 or widened(p) is uint32:
        key = int64(x)
    else:
        key = int32(x)
    return key
