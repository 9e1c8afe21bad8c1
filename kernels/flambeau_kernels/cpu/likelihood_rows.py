"""Compiled cross entropy of rows of scores with one class each: log_softmax and its picked entries in one pass.

Forward a row is read twice from a first-level cache, for its maximum and for the sum of exp, and left behind shifted by
its maximum; backward these scores become the gradient in one pass more. Nothing else of the size of the scores exists.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.cpu.lanes import exp_lanes
from flambeau_kernels.cpu.softmax_loops import row_top
from flambeau_kernels.cpu.sums import BLOCK, lanes_of, wide, zeros
from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    kernel,
    lane_sum,
    lanes,
    load,
    rolled,
    store,
    widened,
)
from flambeau_kernels.vocabulary import fma, log

__all__ = ["HOW", "backward", "forward", "picked"]

# Elements of a chunk: about 20 microseconds.
CHUNK = 32768
# What becomes of the losses.
NONE, SUM, MEAN = range(3)
HOW = {"none": NONE, "sum": SUM, "mean": MEAN}


@kernel(in_vectors=True)
def likelihood_rows(chunk, x, target, weight, shifted, losses, inverse, chosen, out, sums, rows, n, per, ignored, how, weights, smoothing,
                    *, WEIGHT, SMOOTH, STORED):  # fmt: skip
    KIND = widened(losses)
    N = lanes_of(KIND)
    whole = n // N * N
    spread = KIND(smoothing) / KIND(n)
    lost, counted, wrong = 0.0, 0.0, 0.0
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, to = x + row * n, shifted + row * n
        top = row_top(a, n, KIND)
        total, level = broadcast(0.0, N), broadcast(0.0, N)
        for at in rolled(range(0, whole, BLOCK)):
            some, some_level = zeros(KIND), zeros(KIND)
            for i in rolled(range(at, min(whole, at + BLOCK), N)):
                s = load(a, i, N) - top
                some = some + exp_lanes(s, KIND, N)
                if STORED:
                    store(to, i, s)
                if SMOOTH:
                    some_level = fma(s, load(weight, i, N), some_level) if WEIGHT else some_level + s
            total, level = total + wide(some, KIND), level + wide(some_level, KIND)
        if whole < n:
            s = load(a, whole, N, n - whole, -math.inf) - top
            total = total + wide(exp_lanes(s, KIND, N), KIND)
            if STORED:
                store(to, whole, s, n - whole)
            if SMOOTH:
                s = load(a, whole, N, n - whole, top) - top
                level = level + wide(s * load(weight, whole, N, n - whole) if WEIGHT else s, KIND)
        sum_of_exp = KIND(lane_sum(total))
        t = target[row]
        loss = KIND(0)
        counts = (t >= 0) & (t < n) & (t != ignored)
        if counts:
            counted = counted + (float64(weight[t]) if WEIGHT else 1.0)
            logarithm = log(sum_of_exp)
            loss = logarithm - (a[t] - top)
            if WEIGHT:
                loss = loss * weight[t]
            if SMOOTH:
                loss = loss * KIND(1 - smoothing) + spread * (KIND(weights) * logarithm - KIND(lane_sum(level)))
        wrong = wrong if counts | (t == ignored) else 1.0
        lost = lost + float64(loss)
        if how == NONE:
            losses[row] = loss
        if STORED:
            inverse[row] = KIND(1) / sum_of_exp
            chosen[row] = t if counts else -1
    conclude(out, sums + 3 * chunk, lost, counted, wrong, how if rows <= per else NONE)


def conclude(out, sums, lost, counted, wrong, how):
    """Leave what the next one needs, and the result where all losses have been added up."""
    KIND = widened(out)
    sums[0] = lost
    sums[1] = counted
    sums[2] = wrong
    if how == SUM:
        out[0] = KIND(lost)
    if how == MEAN:
        out[0] = KIND(lost / counted)


@kernel
def picked_rows(chunk, x, target, weight, losses, chosen, weights, out, sums, rows, n, step, ignored, how, *, WEIGHT, STORED):
    KIND = widened(out)
    lost, counted, wrong = 0.0, 0.0, 0.0
    for row in rolled(range(rows)):
        t = target[row]
        loss, factor, at = KIND(0), KIND(0), 0
        counts = (t >= 0) & (t < n) & (t != ignored)
        if counts:
            at = t
            factor = weight[t] if WEIGHT else KIND(1)
            loss = KIND(0) - x[row // step * (n * step) + t * step + row % step] * factor
        wrong = wrong if counts | (t == ignored) else 1.0
        lost, counted = lost + float64(loss), counted + float64(factor)
        if how == NONE:
            losses[row] = loss
        if STORED:
            chosen[row] = at
            weights[row] = factor
    conclude(out, sums, lost, counted, wrong, how)


def slope_lanes(s, weight, i, left, factor, shift, KIND, WEIGHT, SMOOTH):
    e = exp_lanes(s, KIND) * factor
    return (e - load(weight, i, lanes(KIND), left) * shift if WEIGHT else e - shift) if SMOOTH else e


@kernel(in_vectors=True)
def likelihood_rows_grad(chunk, shifted, target, weight, inverse, scales, out, rows, n, per, scale_step, weights, smoothing,
                         *, WEIGHT, SMOOTH):  # fmt: skip
    KIND = widened(inverse)
    N = lanes(KIND)
    whole = n // N * N
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, to = shifted + row * n, out + row * n
        t = target[row]
        if t < 0:
            for i in rolled(range(n)):
                to[i] = KIND(0)
            continue
        scale = scales[row * scale_step]
        picked = scale * KIND(1 - smoothing)
        if WEIGHT:
            picked = picked * weight[t]
        shift = scale * (KIND(smoothing) / KIND(n))
        factor = (picked + shift * KIND(weights) if SMOOTH else picked) * inverse[row]
        for i in rolled(range(0, whole, N)):
            store(to, i, slope_lanes(load(a, i, N), weight, i, N, factor, shift, KIND, WEIGHT, SMOOTH))
        if whole < n:
            left = n - whole
            last = slope_lanes(load(a, whole, N, left), weight, whole, left, factor, shift, KIND, WEIGHT, SMOOTH)
            store(to, whole, last, left)
        to[t] = to[t] - picked


# -- from arrays -------------------------------------------------------------------------------------------------------------


_forms: dict[tuple[Any, ...], Any] = {}  # what `Kernel.run` would find by all of its arguments
_INT, _WIDE = np.dtype(np.int64), np.dtype(np.float64)


def _form(key: tuple[Any, ...]) -> Any:
    dtype, weighted, smooth, stored = key
    kinds = (dtype, _INT, dtype, dtype, dtype, dtype, _INT, dtype, _WIDE, *(int,) * 5, float, float)
    made = _forms[key] = likelihood_rows.form(kinds, {"WEIGHT": weighted, "SMOOTH": smooth, "STORED": stored})
    return made


def forward(
    x: np.ndarray, target: np.ndarray, weight: Any, smoothing: float, ignored: int, how: int, stored: bool
) -> tuple[Any, Any, Any, Any, float]:
    """The losses of rows of scores ``(rows, n)``, their sum or their mean; None where a class does not exist.

    Then, if `stored`, the scores less their maxima, 1 over the sums of exp, and the classes, -1 where a row does not count; at last
    the weights that count, in all.

    Args:
        target: classes, int64; a row whose class is `ignored` does not count, and its loss is 0.
        weight: of the classes, or None.
        smoothing: how much of each row's probability is spread over all classes.
        how: of `HOW`; the mean is over the weights that count, nan if none does.
    All arrays are C-contiguous.
    """
    (rows, n), dtype = x.shape, x.dtype
    per = max(1, CHUNK // n)
    chunks = 1 if rows <= per else -(-rows // per)
    out, sums = np.empty((rows,) if how == NONE else (), dtype), np.empty((chunks, 3))
    shifted, inverse, chosen = (np.empty(x.shape, dtype), np.empty(rows, dtype), np.empty(rows, _INT)) if stored else (None, None, None)
    key = (dtype, weight is not None, smoothing != 0, stored)
    (_forms.get(key) or _form(key))(
        chunks, False, x, target, x if weight is None else weight, x if shifted is None else shifted, out,
        x if inverse is None else inverse, target if chosen is None else chosen, out, sums, rows, n, per, ignored, how,
        float(weight.sum()) if smoothing and weight is not None else float(n), smoothing,
    )  # fmt: skip
    if chunks == 1:
        counted, wrong = sums.item(1), sums.item(2)
    else:
        lost, counted, wrong = sums.sum(0).tolist()
        if how != NONE:
            out[()] = lost if how == SUM else lost / counted if counted else math.nan
    return None if wrong else out, shifted, inverse, chosen, counted


FEW, FEW_TARGETS = 1 << 15, 1 << 13  # elements and targets, which one thread goes through
_picked_forms: dict[tuple[Any, ...], Any] = {}


def picked(
    x: np.ndarray, target: np.ndarray, weight: Any, ignored: int, reduction: str, stored: bool
) -> tuple[np.ndarray, tuple[Any, Any, float] | None] | None:
    """``-weight[target] * x[target]`` along dimension 1 of few float elements; all of them, their sum or their mean.

    Then, if `stored`, the classes, 0 where a target does not count, their weights, 0 there, and what the result is divided by.
    None for arrays that are not contiguous or do not go together, and where a class does not exist.

    Args:
        x: log probabilities ``(N, C, *)``, or ``(C)`` with one target.
        target: classes ``(N, *)``, int64, of which `ignored` does not count.
    """
    dtype, shape, several = x.dtype, x.shape, target.shape
    form = _picked_forms.get((dtype, target.dtype, weight is None, stored)) or _picked_form(dtype, target.dtype, weight is None, stored)
    size, rows, ndim = x.size, target.size, len(shape)
    if form is None or not ndim or not 0 < size <= FEW or not 0 < rows <= FEW_TARGETS:
        return None
    if several != (shape[:1] if ndim == 2 else () if ndim == 1 else shape[:1] + shape[2:]):
        return None
    if not x.flags.c_contiguous or not target.flags.c_contiguous or x.__class__ is not np.ndarray:
        return None
    classes = shape[0] if ndim == 1 else shape[1]
    if weight is None:
        w = x
    else:
        w = weight
        if w.dtype != dtype or w.shape != (classes,) or not w.flags.c_contiguous:
            return None
    how = HOW[reduction]
    out, sums = np.empty(() if how else several, dtype), np.empty(3)
    step = 1 if ndim < 3 else rows // shape[0]
    if not stored:
        form(1, False, x, target, w, out, target, x, out, sums, rows, classes, step, ignored, how)
        return None if sums.item(2) else (out, None)
    chosen, weights = np.empty(several, _INT), np.empty(several, dtype)
    form(1, False, x, target, w, out, chosen, weights, out, sums, rows, classes, step, ignored, how)
    return None if sums.item(2) else (out, (chosen, weights, sums.item(1) if how == MEAN else 1))


def _picked_form(dtype: np.dtype, of_target: np.dtype, plain: bool, stored: bool) -> Any:
    if dtype.char not in "fd" or of_target != _INT:
        return None
    kinds = (dtype, _INT, dtype, dtype, _INT, dtype, dtype, _WIDE, *(int,) * 5)
    made = _picked_forms[dtype, of_target, plain, stored] = picked_rows.form(kinds, {"WEIGHT": not plain, "STORED": stored})
    return made


def backward(
    shifted: np.ndarray, target: np.ndarray, weight: Any, smoothing: float, inverse: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """The gradient at the scores; `scales` is that at the losses, one for each row or a single one."""
    rows, n = shifted.shape
    out = np.empty(shifted.shape, shifted.dtype)
    per = max(1, CHUNK // n)
    likelihood_rows_grad.run(
        -(-rows // per), shifted, target, inverse if weight is None else weight, inverse, scales, out, rows, n, per,
        0 if scales.size == 1 else 1, float(n if weight is None else weight.sum()), smoothing,
        WEIGHT=weight is not None, SMOOTH=smoothing != 0,
    )  # fmt: skip
    return out
