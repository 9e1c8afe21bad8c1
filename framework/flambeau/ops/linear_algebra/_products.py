"""Products of matrices and vectors on arrays: which of the ways there are answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.products import matmul as kernel

from ..._arrays import ndarray
from ...dtypes import FLOAT32, FLOAT64


def product(a: Any, b: Any) -> Any:
    """``a @ b`` on arrays, vectors included; halves accumulate in float32 and are rounded once."""
    if type(a) is not ndarray or type(b) is not ndarray or a.dtype.kind == "b":
        return _product_elsewhere(a, b)
    made = hot_calls.matmul(a, b)
    if made is None and a.ndim and b.ndim <= 2:
        made = kernel.product_by_numpy(a, b)
    if made is not None:
        return made
    if a.ndim == 1 and b.ndim == 1:
        return kernel.dot(a, b)
    if a.ndim == 1:
        return kernel.matmul(a[None], b)[..., 0, :]
    if b.ndim == 1:
        return kernel.matmul(a, b[:, None])[..., 0]
    return kernel.matmul(a, b)


def _product_elsewhere(a: Any, b: Any) -> Any:
    """`product` of truth values, and of arrays of other libraries."""
    if a.dtype.isbuiltin == 1 and (a.dtype.kind != "f" or a.dtype.itemsize > 2):
        return np.matmul(a, b)
    wide = np.complex64 if a.dtype.name == "complex32" else np.float32
    return np.matmul(a.astype(wide), b.astype(wide)).astype(a.dtype)


def large(a: Any, b: Any) -> Any:
    """``a @ b`` of matrices that the small functions refuse, for their size, strides or dtype; None for anything else."""
    if type(a) is not ndarray or type(b) is not ndarray:
        return None
    d = a.dtype
    if b.dtype is d and a.ndim == 2 and b.ndim == 2 and a.shape[1] == b.shape[0] and d.char in kernel.MULTIPLIED:
        return kernel.matmul(a, b)
    return None


def product_nt(a: Any, b: Any) -> Any:
    """``a @ b.mH`` of matrices."""
    made = hot_calls.matmul_nt(a, b)
    return product(a, transposed(b)) if made is None else made


def product_tn(a: Any, b: Any) -> Any:
    """``a.mH @ b`` of matrices."""
    made = hot_calls.matmul_tn(a, b)
    return product(transposed(a), b) if made is None else made


def product_in(table: Any, a: Any, b: Any) -> Any:
    """`product` of matrices as an entry of a table of launches, see `Op.launches`; None for others."""
    return _product_in_table(table, hot_calls.matmul, a, b, lambda: kernel.matmul_in(table, a, b))


def product_nt_in(table: Any, a: Any, b: Any) -> Any:
    """`product_nt` likewise."""
    return _product_in_table(table, hot_calls.matmul_nt, a, b, lambda: kernel.matmul_in(table, a, table.view(b, b.T)))


def product_tn_in(table: Any, a: Any, b: Any) -> Any:
    """`product_tn` likewise."""
    return _product_in_table(table, hot_calls.matmul_tn, a, b, lambda: kernel.matmul_in(table, table.view(a, a.T), b))


def _product_in_table(table: Any, small: Any, a: Any, b: Any, large: Any) -> Any:
    if a.ndim != 2 or b.ndim != 2 or a.dtype is not b.dtype or not (a.dtype is FLOAT32 or a.dtype is FLOAT64):
        return None
    made = table.call(small, a, b)
    # What numpy multiplies is no launch.
    return large() if made is None and min(*a.shape, *b.shape) > 1 else made


def transposed(a: Any) -> Any:
    return a.T.conj() if a.dtype.kind == "c" else a.swapaxes(-1, -2)


def transposed_batch(a: Any) -> Any:
    swapped = a.swapaxes(-1, -2)
    return swapped.conj() if a.dtype.kind == "c" else swapped
