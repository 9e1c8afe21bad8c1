"""Running sums, products, extremes and log-sum-exps along a dimension of an array.

Half types are accumulated in float32; every element is rounded once.
"""

from __future__ import annotations

import numpy as np

import flambeau_kernels as kernels

from ..shapes.move import contiguous
from .along import Along
from .reduce import Plans
from .softmax import widen

__all__ = ["cumextreme", "cumprod", "cumsum", "logcumsumexp", "logs", "reverse_cumsum"]


_plans = Plans("scan_loops")
# Of up to 4096 elements in C order.
logs = Along("running_logs", at_once=True)


def _accumulated(what: str, ufunc: np.ufunc, a: np.ndarray, dim: int, dtype: np.dtype, backwards: bool = False) -> np.ndarray:
    if a.ndim == 0:
        return np.array(kernels.cast(a, dtype))
    dim %= a.ndim
    run = _plans.find(a, what, dim, dtype, backwards)
    if run is not None:
        return run(a)
    x = widen(kernels.cast(a, dtype))
    backwards = backwards and x.shape[dim] > 1        # of one element, reversing would leave a negative stride alone
    if backwards:
        x = np.flip(x, dim)
    with np.errstate(all="ignore"):
        made = ufunc.accumulate(x, dim, dtype=x.dtype)
        if what == "add" and made.dtype.kind in "fc":
            made += 0                                 # sums begin with 0, so that -0 becomes 0, which numpy begins with the first element
        return contiguous(np.flip(made, dim) if backwards else made).astype(dtype, copy=False)


def cumsum(a: np.ndarray, dim: int, dtype: np.dtype | None = None) -> np.ndarray:
    """The sums of the elements up to each place, in `dtype` (by default that of `a`), to which elements are converted first."""
    return _accumulated("add", np.add, a, dim, dtype or a.dtype)


def cumprod(a: np.ndarray, dim: int, dtype: np.dtype | None = None) -> np.ndarray:
    """The products of the elements up to each place, as `cumsum`."""
    return _accumulated("mul", np.multiply, a, dim, dtype or a.dtype)


def reverse_cumsum(a: np.ndarray, dim: int) -> np.ndarray:
    """The sums of the elements from each place on."""
    return _accumulated("add", np.add, a, dim, a.dtype, backwards=True)


def cumextreme(a: np.ndarray, dim: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The largest (or smallest) element up to each place and where it is, the last of equals; nan stays once met."""
    if a.ndim == 0:
        return a.copy(), np.zeros((), np.int64)
    dim %= a.ndim
    run = _plans.find(a, "max" if largest else "min", dim, a.dtype, False)
    if run is not None:
        return run(a)
    x = widen(a)
    if x.dtype.kind == "b":
        x = x.view(np.uint8)
    found = (np.maximum if largest else np.minimum).accumulate(x, dim)
    renewed = x == found
    if x.dtype.kind == "f":
        renewed |= np.isnan(x)
    shape = [1] * a.ndim
    shape[dim] = a.shape[dim]
    # A place takes over where it equals what has been reached; in between the last such place stands.
    at = np.where(renewed, np.arange(a.shape[dim]).reshape(shape), 0)
    values = found.view(np.bool_) if a.dtype.kind == "b" else found.astype(a.dtype, copy=False)
    return values, np.maximum.accumulate(at, dim)


def logcumsumexp(a: np.ndarray, dim: int) -> np.ndarray:
    """``log(cumsum(exp(a)))`` without overflow."""
    if a.ndim == 0:
        return a.copy()
    dim %= a.ndim
    run = _plans.find(a, "log", dim, a.dtype, False)
    if run is not None:
        return run(a)
    made = logs(contiguous(a), dim)
    if made is not None:
        return made
    x = widen(a)
    if x.dtype.kind != "c":
        made = np.logaddexp.accumulate(x, dim, dtype=x.dtype)
        made += 0                                     # the logarithm of 1 is 0, where numpy begins with the first element, perhaps -0
        return made.astype(a.dtype, copy=False)
    made = np.empty_like(x)
    rows, terms = np.moveaxis(made, dim, 0), np.moveaxis(x, dim, 0)
    for i in range(len(terms)):
        rows[i] = terms[0] if i == 0 else _add_logs(rows[i - 1], terms[i])
    made += 0
    return made.astype(a.dtype, copy=False)


def _add_logs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``log(exp(a) + exp(b))`` of complex values, measured from the one of larger modulus."""
    first = a.real >= b.real  # pyright: ignore[reportAttributeAccessIssue]  # numpy arrays have it
    top, low = np.where(first, a, b), np.where(first, b, a)
    moved = top + np.log1p(np.exp(low - top))
    # exp(-inf) adds nothing, also where -inf - -inf would be nan.
    return np.where(np.isneginf(low.real), top, moved)  # pyright: ignore[reportAttributeAccessIssue]  # numpy arrays have it
