"""Softmax, its logarithm and log-sum-exp over dimensions of an array, with their gradients.

The largest element is taken off first, so that exp cannot overflow; half types are computed in float32. Floating arrays
of some size go to compiled loops (`softmax_loops.py`); the rest is numpy's.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import flambeau_kernels as kernels

from ... import engines
from ..shapes.move import contiguous
from ..tier import works
from .along import SEVERAL, Along
from .reduce import summed_in

__all__ = [
    "log_shares", "log_softmax", "log_softmax_grad", "logsumexp", "narrow",
    "shares", "log_sums", "softmax", "softmax_grad", "widen",
]  # fmt: skip

# Any, because numpy's stubs know no positional `keepdims` of `reduce`.
_exp = np.exp
_largest: Any = np.maximum.reduce
_COMPLEX64, _FLOAT32 = np.dtype(np.complex64), np.dtype(np.float32)
# The kernels of few elements in C order.
shares, log_shares = Along("shares", False, at_once=True), Along("shares", True, at_once=True)
log_sums = Along("log_sums", dims=SEVERAL, at_once=True)
# From this many elements on arrays are worth a kernel that must be compiled or loaded first.
COMPILED_FROM = 128


@functools.cache
def compiled_module(name: str) -> Any:
    """The module `name` of `flambeau_kernels.cpu`, which holds compiled loops; None where nothing can be compiled."""
    from importlib import import_module

    return import_module("flambeau_kernels.cpu." + name) if works() else None


def _compiled(a: np.ndarray, least: int = COMPILED_FROM) -> Any:
    """The compiled loops, where they take `a`, of at least so many elements."""
    if a.size < least or not engines.chosen().compiles or (a.dtype.char not in "fde" and a.dtype.name != "bfloat16"):
        return None
    return compiled_module("reductions.softmax_loops")


def _compiled_along(a: np.ndarray) -> Any:
    """The compiled loops for what `shares` and `log_shares` have not answered: also few elements, on engines without these."""
    return _compiled(a, COMPILED_FROM if engines.chosen().launches else 1)


def widen(a: np.ndarray) -> np.ndarray:
    """`a` in a dtype numpy computes well in: halves as float32, complex halves as complex64, others as they are."""
    if a.dtype.isbuiltin == 1 and a.dtype.char != "e":
        return a
    return _converted(a, _COMPLEX64 if a.dtype.name == "complex32" else _FLOAT32)


def narrow(made: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`made` as an array of `dtype`."""
    return made if made.dtype is dtype else _converted(np.asarray(made), dtype)


def _converted(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`a` as `dtype`: of many halves by a kernel, for numpy converts them one at a time."""
    if a.size < kernels.STORE_COMPILED_FROM or not a.flags.c_contiguous:
        return a.astype(dtype, copy=False)
    made = np.empty(a.shape, dtype)
    kernels.store(made, a)
    return made


def _total(x: np.ndarray, dims: Any) -> np.ndarray:
    """The sum over `dims`, which stay as dimensions of one."""
    add: Any = np.add.reduce  # numpy's stubs know no positional `keepdims`
    return add(x, dims, summed_in(x), None, True).astype(x.dtype, copy=False)


def softmax(a: np.ndarray, dim: int) -> np.ndarray:
    """``exp(a)`` over its sum along `dim`."""
    if a.size == 0 or a.ndim == 0:
        return np.asarray(np.exp(a - a))             # an only element is 1, or nan where it is not finite
    made = shares(contiguous(a), dim)
    if made is not None:
        return made
    loops = _compiled_along(a)
    if loops is not None:
        return loops.along(a, dim, False)
    x = widen(np.asarray(a, order="C"))
    made = x - _largest(x, dim, None, None, True)
    _exp(made, made)
    made /= _total(made, dim)
    return narrow(made, a.dtype)


def softmax_grad(grad: np.ndarray, out: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `softmax` at the input whose result is `out`."""
    loops = _compiled(out)
    if loops is not None:
        return loops.along_grad(grad, out, dim, False)
    p = widen(np.asarray(out, order="C"))
    made = widen(np.asarray(grad, order="C")) * p
    made -= p * (_total(made, dim) if made.ndim and made.size else made)
    return narrow(np.asarray(made), out.dtype)


def log_softmax(a: np.ndarray, dim: int) -> np.ndarray:
    """``a - log(sum(exp(a)))`` along `dim`."""
    if a.size == 0 or a.ndim == 0:
        return np.asarray(a - a)
    made = log_shares(contiguous(a), dim)
    if made is not None:
        return made
    loops = _compiled_along(a)
    if loops is not None:
        return loops.along(a, dim, True)
    x = widen(np.asarray(a, order="C"))
    made = x - _largest(x, dim, None, None, True)
    made -= np.log(_total(_exp(made), dim))
    return narrow(made, a.dtype)


def log_softmax_grad(grad: np.ndarray, out: np.ndarray, dim: int) -> np.ndarray:
    """The gradient of `log_softmax` at the input whose result is `out`."""
    loops = _compiled(out, 1) if out.ndim else None       # few elements too, as the gradient of the cross entropy of rows
    if loops is not None:
        return loops.along_grad(grad, out, dim, True)
    g = widen(np.asarray(grad, order="C"))
    made = np.asarray(_exp(widen(np.asarray(out, order="C"))))
    made *= _total(g, dim) if g.ndim and g.size else g
    return narrow(np.asarray(np.subtract(g, made, out=made)), out.dtype)


def logsumexp(a: np.ndarray, dims: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """``log(sum(exp(a)))`` over `dims`; of no elements -inf."""
    x = widen(a)
    real = np.real(x) if x.dtype.kind == "c" else x
    top = _largest(real, dims, None, None, True, initial=-np.inf)
    # Infinities stay in the sum, where they need no rescuing; taking them off would make nan.
    top = np.where(np.isinf(top), 0, top)
    made = np.log(_total(_exp(x - top), dims)) + top
    return narrow(np.asarray(made if keepdims else made.reshape([n for d, n in enumerate(a.shape) if d not in dims]), order="C"), a.dtype)
