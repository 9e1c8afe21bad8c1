"""Matrix products: cuBLAS's, by cupy. Halves that cupy does not multiply, and integers' kinds, are widened first."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cuda import launch

from ...ops.linear_algebra.grouped import by_group
from ...tensor import wrap
from .. import arrays

_MULTIPLIED = frozenset(map(np.dtype, (np.float16, np.float32, np.float64, np.complex64, np.complex128)))


def product(a: Any, b: Any) -> Any:
    """``a @ b``, bfloat16 in float32 and integers and truth values in their own arithmetic."""
    dtype = a.dtype
    if dtype in _MULTIPLIED:
        return arrays.library().matmul(a, b)
    if dtype.kind in "iu":
        return arrays.library().matmul(a, b).astype(dtype, copy=False)
    wide = np.dtype(np.float32)
    return launch.cast(arrays.library().matmul(launch.cast(a, wide), launch.cast(b, wide)), dtype)


def grouped(a: Any, b: Any, offs: Any) -> Any:
    return by_group(a, b, offs.tolist(), lambda shape, dtype: arrays.filled(shape, dtype, 0), product, launch.copy)


def dot(a: Any, b: Any) -> Any:
    return product(a.reshape(1, -1), b.reshape(-1, 1)).reshape(())


def linear(a: Any, w: Any, b: Any) -> Any:
    if w.ndim == 1:
        made = product(a, w)
        return made if b is None else (wrap(made) + wrap(b))._array
    rows = a if a.ndim == 2 else arrays.contiguous(a).reshape(-1, a.shape[-1])
    made = product(rows, w.T)
    if b is not None:
        made = (wrap(made).add_(wrap(b)))._array
    return made if a.ndim == 2 else made.reshape(*a.shape[:-1], w.shape[0])
