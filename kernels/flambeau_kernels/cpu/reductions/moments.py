"""Variance, log-sum-exp and norms over dimensions: reductions that are more than one pass of numpy's."""

from __future__ import annotations

from functools import cache, lru_cache
from math import inf
from typing import Any

import numpy as np

from flambeau_kernels.vocabulary import abs, sqrt

from ..shapes.move import contiguous
from . import softmax
from .along import MOST, SEVERAL, Along
from .reduce import Plans, Reduction, count_of, magnitude, reduce, square, summed_in

__all__ = ["frequent", "logsumexp", "norm", "planned_norm", "planned_variance", "usual", "variance"]

_variances, _sums_of_exps = Plans("variance_loops"), Plans("logsumexp_loops")


def variance(a: np.ndarray, dims: tuple[int, ...], correction: float, keepdim: bool) -> np.ndarray:
    """The mean of ``|a - mean|**2`` over `dims`, with ``count - correction`` for the count; the dtype of real values of `a`."""
    run = _variances.find(a, dims, keepdim)
    if run is not None:
        return np.asarray(run(a, float(correction)), order="C")
    x = softmax.widen(a)
    n = count_of(a.shape, dims)
    with np.errstate(all="ignore"):
        mean = np.add.reduce(x, axis=dims, dtype=summed_in(x), keepdims=True) / (n or np.nan)
        off = x - mean
        squares = off.real**2 + off.imag**2 if off.dtype.kind == "c" else off * off
        total = np.add.reduce(squares, axis=dims, keepdims=keepdim)
        made = np.asarray(total / np.maximum(n - correction, 0))
        return made.astype(_real(a.dtype), "C")


def planned_variance(a: np.ndarray, dims: tuple[int, ...], correction: float, keepdim: bool) -> Any:
    """``run(a)``, which computes `variance` of arrays like `a` by a kernel, or None."""
    run = _variances.find(a, dims, keepdim) if _is_dense_and_real(a) else None
    return None if run is None else lambda a: np.asarray(run(a, float(correction)), order="C")


def _is_dense_and_real(a: np.ndarray) -> bool:
    return a.flags.c_contiguous and a.dtype.name in ("float32", "float64", "float16", "bfloat16")


def _real(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of complex numbers; real ones' own."""
    if dtype.name == "complex32":
        return np.dtype(np.float16)
    return np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype


def logsumexp(a: np.ndarray, dims: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """``log(sum(exp(a)))`` over `dims`; of no elements -inf."""
    run = _sums_of_exps.find(a, dims, keepdim)
    if run is not None:
        return run(a)
    made = softmax.log_sums(contiguous(a), dims, keepdim)
    if made is not None:
        return made
    with np.errstate(all="ignore"):
        return softmax.logsumexp(a, dims, keepdim)


# -- norms ---------------------------------------------------------------------------------------------------------------


def _not_zero(x):
    return x != 0


def _root(total, n):
    return sqrt(total)


def _power(order):
    def power(x):
        return abs(x) ** order

    return power


def _inverse_power(order):
    inverse = 1 / order

    def root(total, n):
        return total**inverse

    return root


@cache
def usual() -> dict[float, Reduction]:
    """The reductions of the orders that need no powers."""
    return {
        0.0: Reduction("norm_0", "add", _not_zero),
        1.0: Reduction("norm_1", "add", magnitude),
        2.0: Reduction("norm_2", "add", square, _root),
        inf: Reduction("norm_inf", "max", magnitude),
        -inf: Reduction("norm_least", "min", magnitude),
    }


# Orders that are frequent enough for a kernel of small arrays, which has other bits than numpy's powers.
frequent = {order: Along("fold", Reduction(f"norm_{order:g}", "add", _power(order), _inverse_power(order)),
                         lambda dtype: (dtype, dtype) if dtype.kind in "fV" else None, dims=SEVERAL, at_once=True)
            for order in (3.0, 4.0)}  # fmt: skip


@lru_cache(32)
def _general(order: float) -> Reduction:
    return Reduction(f"norm_{order:g}", "add", _power(order), _inverse_power(order), costly=True)


def planned_norm(a: np.ndarray, order: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    """``run(a)``, which computes `norm` of arrays like `a` by a kernel, or None."""
    how = usual().get(order) if _is_dense_and_real(a) else None
    run = None if how is None else how.plans.find(a, how, dims, keepdim, a.dtype, a.dtype)
    return None if run is None else lambda a: np.asarray(run(a), order="C")


def norm(a: np.ndarray, order: float, dims: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """``sum(|a|**order)**(1/order)`` over `dims`; the number of non-zeros for 0, the extremes of ``|a|`` for inf and -inf."""
    if a.dtype.kind in "cW":  # complex32, as ml_dtypes has it, is of kind W
        return norm(np.abs(softmax.widen(a)), order, dims, keepdim).astype(_real(a.dtype), copy=False)
    if not a.size and order in (inf, -inf):
        pick: Any = np.maximum if order > 0 else np.minimum
        return np.asarray(pick.reduce(a, dims, None, None, keepdim, initial=0 if order > 0 else inf))
    if order in frequent and 0 < a.size <= MOST:
        made = frequent[order](contiguous(a), dims, keepdim)
        if made is not None:
            return made
    how = usual().get(order) or _general(order)
    return reduce(how, a, dims, keepdim, a.dtype, a.dtype)
