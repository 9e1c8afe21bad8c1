"""Negative log likelihood on arrays: picking, weighing and adding up the entries that targets name."""

from __future__ import annotations

import functools
import math
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ... import engines, has_one_answer, launch, specialise
from ...formula import Formula
from ...quiet import ignore_fp_flags, restore_fp_flags
from ...takeover import FORMULA, Waiting, of_elements
from ..reductions.reduce import total
from ..reductions.softmax import compiled_module, narrow, widen

__all__ = [
    "DIFFERENCE", "ERROR", "all_count", "all_equal", "compiled_rows", "picked_by_kernel", "likelihood_rows", "nll", "nll_grad",
    "picked_weights", "places_in_images", "row_starts", "scaled_difference", "squared_error_sum",
]  # fmt: skip


@functools.cache
def compiled_rows() -> Any:
    """The compiled cross entropy of rows, or None."""
    return compiled_module("losses.cross_entropy_rows")


def likelihood_rows(x: np.ndarray) -> Any:
    """The compiled cross entropy, where it takes rows of scores `x`, or None."""
    if not x.size or x.ndim != 2 or not engines.chosen().compiles or not x.flags.c_contiguous:
        return None
    return compiled_rows()


def picked_by_kernel(x: Any, target: Any, weight: Any, ignored: int, reduction: str, recorded: bool) -> Any:
    """`nll` of float elements by a compiled loop, `cross_entropy_rows.picked`; None where that has no answer."""
    if not engines.chosen().compiles:
        return None
    rows = compiled_rows()
    return None if rows is None else rows.picked(x, target, weight, ignored, reduction, recorded)


DIFFERENCE = Formula(lambda a, b, scale: (a - b) * scale, "scaled_difference")
ERROR = Formula(lambda a, b: a - b, "error")
# From here on numpy's array of differences falls out of the cache.
SUMS_COMPILED_FROM = 16384


def squared_error_sum(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of ``(a - b) ** 2``."""
    if a.size >= SUMS_COMPILED_FROM and engines.chosen().compiles and a.flags.c_contiguous and b.flags.c_contiguous:
        sums = compiled_module("losses.error_sums")
        if sums is not None:
            return sums.squared(a, b)
    difference = (a - b).reshape(-1)
    return np.dot(difference, difference)


_waiting = Waiting(FORMULA)


def _note(a: np.ndarray, b: np.ndarray, scale: np.ndarray, made: np.ndarray) -> None:
    """Teach the formula what often comes to numpy."""
    may_compile = _waiting.paid_for(2 * of_elements(a.size), a.dtype)
    if may_compile is None:
        return
    if made.dtype == a.dtype == b.dtype == scale.dtype and has_one_answer(DIFFERENCE, a.dtype):
        specialise(DIFFERENCE, (a, b, scale), made, a.dtype, may_compile)


def scaled_difference(a: np.ndarray, b: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """``(a - b) * scale`` for a single number `scale`."""
    if a.size < SUMS_COMPILED_FROM:
        made = DIFFERENCE.direct(a, b, scale)        # which rounds as numpy does, and is specialised by calls
        if made is None:
            made = np.asarray((a - b) * scale)
            _note(a, b, scale, made)
        return made
    out = np.empty(a.shape, a.dtype)
    launch(DIFFERENCE, (a, b, scale), (out,), a.dtype)
    return out


@lru_cache(maxsize=64)
def row_starts(rows: int, columns: int) -> np.ndarray:
    """Where each row begins in a C-contiguous ``(rows, columns)`` array."""
    return np.arange(rows, dtype=np.int64) * columns


def places_in_images(target: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Where in a C-contiguous ``(N, C, *)`` array the classes lie that `target`, ``(N, *)`` flattened, names."""
    starts, step = _image_starts(shape)
    return target * step + starts


@lru_cache(maxsize=64)
def _image_starts(shape: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Where the first class of each pixel lies, and elements from class to class."""
    step = prod(shape[2:])
    starts = np.arange(shape[0], dtype=np.int64)[:, None] * (shape[1] * step) + np.arange(step, dtype=np.int64)
    return starts.reshape(-1), step


MOST_LISTED = 20  # targets that Python compares sooner than numpy


def all_count(target: np.ndarray, classes: int, ignored: int) -> bool:
    """Whether every one of the int64 `target` is a class, and none is `ignored`."""
    if 0 < target.size <= MOST_LISTED:
        listed = target.ravel().tolist()
        return min(listed) >= 0 and max(listed) < classes and ignored not in listed
    if not target.size or np.maximum.reduce(target.view(np.uint64), None) >= classes:  # negative ones are all too large
        return False
    return not 0 <= ignored < classes or not (target == ignored).any()


@lru_cache(maxsize=64)
def all_equal(count: int, value: float, dtype: np.dtype) -> np.ndarray:
    """An array to multiply with."""
    return np.full(count, value, dtype)


def element_weights(target: np.ndarray, classes: int, weight: np.ndarray | None, ignored: int, dtype: Any) -> Any:
    """For each target: whether it counts, the class to look up (0 where it does not), and its weight.

    Raises: IndexError for a class outside ``[0, classes)`` that is not the ignored one.
    """
    counts = target != ignored
    chosen = np.where(counts, target, 0)
    wild = counts & ((chosen < 0) | (chosen >= classes))
    if wild.any():
        wrong = chosen[wild].flat[0]
        raise IndexError(
            f"nll_loss: Target {wrong} is out of bounds: there are {classes} classes, 0 to {classes - 1}, "
            f"and ignore_index={ignored}"
        )
    weights = counts.astype(dtype) if weight is None else np.where(counts, weight[chosen], 0).astype(dtype, copy=False)
    return counts, chosen, weights


def nll(x: np.ndarray, target: np.ndarray, weight: Any, ignored: int, reduction: str) -> tuple[Any, Any]:
    """``-weight[target] * x[target]`` along dimension 1, and what `nll_grad` needs.

    Args:
        x: log probabilities ``(N, C, *)``.
        target: classes ``(N, *)``.
        reduction: 'none', 'sum', or 'mean', which divides by the sum of the weights that count.
    """
    compiled = compiled_rows() if engines.chosen().compiles else None
    if compiled is not None:
        scores, classes = np.ascontiguousarray(x), np.ascontiguousarray(target)
        found = compiled.picked(scores, classes, None if weight is None else np.ascontiguousarray(weight), ignored, reduction, True)
        if found is not None:
            return found
    wide = widen(x)
    counts, chosen, weights = element_weights(target, x.shape[1], None if weight is None else widen(weight), ignored, wide.dtype)
    if x.shape[1]:
        picked = np.take_along_axis(wide, np.expand_dims(chosen, 1), 1).squeeze(1)
    else:
        picked = np.zeros(target.shape, wide.dtype)  # no classes, so every target is an ignored one
    made = np.where(counts, -picked * weights, 0).astype(wide.dtype, copy=False)
    divisor = total(weights, tuple(range(weights.ndim))).item() if reduction == "mean" else 1
    if reduction != "none":
        token = ignore_fp_flags()                                    # where no target counts, the divisor is zero
        made = total(made, tuple(range(made.ndim))) / divisor
        restore_fp_flags(token)
    return narrow(np.asarray(made, wide.dtype), x.dtype), (chosen, weights, divisor)


def picked_weights(shape: tuple[int, ...], dtype: Any, kept: Any) -> np.ndarray:
    """An array of `shape`: the weight over the total where a target points, zero elsewhere."""
    chosen, weights, total = kept
    made = np.zeros(shape, weights.dtype)
    if shape[1]:
        token = ignore_fp_flags()                                    # where no target counts, the total is zero
        shares = weights / total
        restore_fp_flags(token)
        np.put_along_axis(made, np.expand_dims(chosen, 1), np.expand_dims(shares, 1), 1)
    return narrow(made, dtype)


def nll_grad(grad: np.ndarray, shape: tuple[int, ...], kept: Any, target: np.ndarray, ignored: int) -> np.ndarray:
    """The gradient of `nll` at its input of `shape`, which is zero where `target` is `ignored`."""
    chosen, weights, total = kept
    token = ignore_fp_flags()                             # where no target counts, the total is zero
    values = 0.0 - widen(grad) * (weights / total)        # what is ignored gets 0, not -0
    if not total or grad.ndim or not math.isfinite(grad):
        values = np.where(target == ignored, values.dtype.type(0), values)
    restore_fp_flags(token)
    made = np.zeros(shape, grad.dtype)
    if len(shape) == 1:
        made[chosen.reshape(-1)] = values.reshape(-1)
    elif len(shape) == 2 and shape[1]:
        made.reshape(-1)[chosen + row_starts(*shape)] = values
    elif chosen.size and made.size < 1 << 15:
        made.reshape(-1)[places_in_images(chosen.reshape(-1), shape)] = values.reshape(-1)
    elif shape[1]:
        np.put_along_axis(made, np.expand_dims(chosen, 1), np.expand_dims(values, 1).astype(grad.dtype, copy=False), 1)
    return made
