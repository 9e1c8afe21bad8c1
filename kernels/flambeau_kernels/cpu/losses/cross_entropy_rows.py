"""Compiled cross entropy of rows of scores with one class each: log_softmax and its picked entries in one pass.

Forward a row is read twice from a first-level cache, for its maximum and for the sum of exp, and left behind shifted by
its maximum; backward these scores become the gradient in one pass more. Nothing else of the size of the scores exists.

Rounds as the operations do that this stands for, log_softmax and nll_loss, forward and backward: a program that takes them apart gets
the same bits. (Smoothed ones do so to the last bits only, so that recorders of graphs have one node for them.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.cpu.lanes import exp_lanes, row_after
from flambeau_kernels.cpu.reductions.along import MOST
from flambeau_kernels.cpu.reductions.along_loops import sum_of
from flambeau_kernels.cpu.reductions.reduce import total
from flambeau_kernels.cpu.reductions.softmax_loops import row_top
from flambeau_kernels.cpu.sums import BLOCK, lanes_of, wide, zeros
from flambeau_kernels.engine.language import (
    broadcast,
    float64,
    kernel,
    lane_sum,
    lanes,
    load,
    prefetch,
    rolled,
    store,
    widened,
)
from flambeau_kernels.vocabulary import fma, log

__all__ = ["HOW", "backward", "forward", "picked"]

# Elements of a chunk: about 20 microseconds.
CHUNK = 32768
# Targets between the one that is looked up and the one whose score is asked for.
AHEAD = 32
# What becomes of the losses.
NONE, SUM, MEAN = range(3)
HOW = {"none": NONE, "sum": SUM, "mean": MEAN}


@kernel(in_vectors=True)
def likelihood_rows(chunk, x, target, weight, shifted, losses, logarithms, chosen, factors, out, sums, rows, n, per, ignored, how, weights,
                    smoothing, *, WEIGHT, SMOOTH, STORED):  # fmt: skip
    KIND = widened(losses)
    N = lanes_of(KIND)
    tail, far = n // N * N, row_after(n, KIND)
    spread = KIND(smoothing) / KIND(n)
    lost, counted, wrong = 0.0, 0.0, 0.0
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, to = x + row * n, shifted + row * n
        top = row_top(a, n, KIND)
        total, level = broadcast(0.0, N), broadcast(0.0, N)
        for at in rolled(range(0, tail, BLOCK)):
            some, some_level = zeros(KIND), zeros(KIND)
            for i in rolled(range(at, min(tail, at + BLOCK), N)):
                prefetch(a + (far + i))
                s = load(a, i, N) - top
                some = some + exp_lanes(s, KIND, N)
                if STORED:
                    store(to, i, s)
                if SMOOTH:
                    some_level = fma(s, load(weight, i, N), some_level) if WEIGHT else some_level + s
            total, level = total + wide(some, KIND), level + wide(some_level, KIND)
        if tail < n:
            s = load(a, tail, N, n - tail, -math.inf) - top
            total = total + wide(exp_lanes(s, KIND, N), KIND)
            if STORED:
                store(to, tail, s, n - tail)
            if SMOOTH:
                s = load(a, tail, N, n - tail, top) - top
                level = level + wide(s * load(weight, tail, N, n - tail) if WEIGHT else s, KIND)
        logarithm = log(KIND(lane_sum(total)))
        t = target[row]
        loss, factor = KIND(0), KIND(0)
        counts = (t >= 0) & (t < n) & (t != ignored)
        if counts:
            counted = counted + 1.0
            factor = weight[t] if WEIGHT else KIND(1)
            loss = logarithm - (a[t] - top)
            if WEIGHT:
                loss = loss * factor
            if SMOOTH:
                loss = loss * KIND(1 - smoothing) + spread * (KIND(weights) * logarithm - KIND(lane_sum(level)))
        wrong = wrong if counts | (t == ignored) else 1.0
        lost = lost + float64(loss)
        if how == NONE:
            losses[row] = loss
        if WEIGHT:
            factors[row] = factor
        if STORED:
            logarithms[row] = logarithm
            chosen[row] = t if counts else -1
    if WEIGHT and rows <= min(per, MOST):
        counted = float64(sum_of(factors, rows, KIND))
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
def picked_rows(chunk, x, target, weight, losses, chosen, weights, out, sums, rows, n, per, together, step, ignored, how,
                *, WEIGHT, STORED):  # fmt: skip
    """Losses are added up as `likelihood_rows` adds them, `per` rows and then these sums, of which a chunk has several."""
    KIND = widened(out)
    parts = (rows + per - 1) // per
    soon = 0  # the first row whose successor is not asked for: all of them, unless the scores of a target are neighbours
    if step == 1:
        soon = rows - AHEAD
    alone = parts <= together
    all_lost, all_counted, all_wrong = 0.0, 0.0, 0.0
    for part in range(chunk * together, min(parts, chunk * together + together)):
        lost, counted, wrong = 0.0, 0.0, 0.0
        first = part * per
        image, pixel = first // step * (n * step), first % step  # carried on, for a division takes as long as all else of a row
        for row in rolled(range(first, min(rows, first + per))):
            t = target[row]
            if row < soon:
                prefetch(x + ((row + AHEAD) * n + target[row + AHEAD]))
            loss, factor, at = KIND(0), KIND(0), 0
            counts = (t >= 0) & (t < n) & (t != ignored)
            if counts:
                at = t
                factor = weight[t] if WEIGHT else KIND(1)
                loss = KIND(0) - x[image + t * step + pixel] * factor
            wrong = wrong if counts | (t == ignored) else 1.0
            lost, counted = lost + float64(loss), counted + (1.0 if counts else 0.0)
            if how == NONE:
                losses[row] = loss
            if STORED:
                chosen[row] = at
            if STORED or WEIGHT:
                weights[row] = factor
            pixel += 1
            if pixel == step:
                image, pixel = image + n * step, 0
        if alone:
            all_lost, all_counted, all_wrong = all_lost + lost, all_counted + counted, all_wrong + wrong
        else:
            conclude(out, sums + 3 * part, lost, counted, wrong, NONE)
    if alone:
        if WEIGHT and rows <= MOST:
            all_counted = float64(sum_of(weights, rows, KIND))
        conclude(out, sums, all_lost, all_counted, all_wrong, how)


def slope_lanes(s, weight, i, left, logarithm, factor, shift, KIND, WEIGHT, SMOOTH):
    e = exp_lanes(s - logarithm, KIND) * factor
    return (e - load(weight, i, lanes(KIND), left) * shift if WEIGHT else e - shift) if SMOOTH else KIND(0) - e


@kernel(in_vectors=True)
def likelihood_rows_grad(chunk, shifted, target, weight, logarithms, scales, out, rows, n, per, scale_step, weights, smoothing, divisor,
                         *, WEIGHT, SMOOTH):  # fmt: skip
    KIND = widened(logarithms)
    N = lanes(KIND)
    tail = n // N * N
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, to = shifted + row * n, out + row * n
        t = target[row]
        if t < 0:
            for i in rolled(range(n)):
                to[i] = KIND(0)
            continue
        scale, logarithm = scales[row * scale_step], logarithms[row]
        picked = scale * ((weight[t] if WEIGHT else KIND(1)) / KIND(divisor))
        if SMOOTH:
            picked = picked * KIND(1 - smoothing)
        shift = scale / KIND(divisor) * (KIND(smoothing) / KIND(n))
        factor = picked + shift * KIND(weights) if SMOOTH else KIND(0) - picked
        for i in rolled(range(0, tail, N)):
            store(to, i, slope_lanes(load(a, i, N), weight, i, N, logarithm, factor, shift, KIND, WEIGHT, SMOOTH))
        if tail < n:
            left = n - tail
            last = slope_lanes(load(a, tail, N, left), weight, tail, left, logarithm, factor, shift, KIND, WEIGHT, SMOOTH)
            store(to, tail, last, left)
        to[t] = to[t] - picked


# -- from arrays -------------------------------------------------------------------------------------------------------------


_forms = engines.kept_in({})  # what `Kernel.run` would find by all of its arguments
_INT, _WIDE = np.dtype(np.int64), np.dtype(np.float64)


def _form(key: tuple[Any, ...]) -> Any:
    dtype, weighted, smooth, stored = key
    kinds = (dtype, _INT, dtype, dtype, dtype, dtype, _INT, dtype, dtype, _WIDE, *(int,) * 5, float, float)
    made = _forms[key] = likelihood_rows.form(kinds, {"WEIGHT": weighted, "SMOOTH": smooth, "STORED": stored})
    return made


def forward(
    x: np.ndarray, target: np.ndarray, weight: Any, smoothing: float, ignored: int, how: int, stored: bool
) -> tuple[Any, Any, Any, Any, float]:
    """The losses of rows of scores ``(rows, n)``, their sum or their mean; None where a class does not exist.

    Then, if `stored`, the scores less their maxima, the logarithms of the sums of exp, and the classes, -1 where a row does not count; at
    last the weights that count, in all.

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
    shifted, logarithms, chosen = (np.empty(x.shape, dtype), np.empty(rows, dtype), np.empty(rows, _INT)) if stored else (None, None, None)
    factors = None if weight is None else np.empty(rows, dtype)
    key = (dtype, weight is not None, smoothing != 0, stored)
    (_forms.get(key) or _form(key))(
        chunks, False, x, target, x if weight is None else weight, x if shifted is None else shifted, out,
        x if logarithms is None else logarithms, target if chosen is None else chosen, out if factors is None else factors, out, sums,
        rows, n, per, ignored, how, float(weight.sum()) if smoothing and weight is not None else float(n), smoothing,
    )  # fmt: skip
    counted, wrong = _concluded(out, sums, how, factors)
    return None if wrong else out, shifted, logarithms, chosen, counted


def _concluded(out: np.ndarray, sums: np.ndarray, how: int, factors: Any) -> tuple[float, float]:
    """Leave the result where a kernel did not, from the sums of its chunks; what a mean is over, and whether a class does not exist."""
    one_sum = len(sums) == 1
    if one_sum and (factors is None or how != MEAN or factors.size <= MOST):
        return sums.item(1), sums.item(2)
    lost, counted, wrong = (sums if one_sum else sums.sum(0)).ravel().tolist()
    if factors is not None and how == MEAN:
        counted = total(factors, (0,)).item()         # as `weight[target].sum()` adds them up
    if how != NONE:
        out[()] = lost if how == SUM else lost / counted if counted else math.nan
    return counted, wrong


PICKED = 2048  # targets of a chunk: each waits for a line of memory
MOST_KEPT = 256
_ways_to_pick = engines.kept_in({})


def picked(
    x: np.ndarray, target: np.ndarray, weight: Any, ignored: int, reduction: str, stored: bool
) -> tuple[np.ndarray, tuple[Any, Any, float] | None] | None:
    """``-weight[target] * x[target]`` along dimension 1 of float elements; all of them, their sum or their mean.

    Then, if `stored`, the classes, 0 where a target does not count, their weights, 0 there, and what the result is divided by.
    None for arrays that are not contiguous or do not go together, and where a class does not exist.

    Args:
        x: log probabilities ``(N, C, *)``, or ``(C)`` with one target.
        target: classes ``(N, *)``, int64, of which `ignored` does not count.
    """
    plain = weight is None
    # To find numbers takes less time than to find dtypes.
    key = x.shape, target.shape, x.dtype.num, target.dtype.num, plain, stored, reduction
    way = _ways_to_pick.get(key)
    if way is None:
        way = _way_to_pick(key, x.dtype, target.dtype)
    if not way or x.__class__ is not np.ndarray or not x.flags.c_contiguous or not target.flags.c_contiguous:
        return None
    form, chunks, several_sums, shape, how, numbers = way
    if not plain and (weight.dtype != x.dtype or weight.shape != (numbers[1],) or not weight.flags.c_contiguous):
        return None
    out, sums = np.empty(shape, x.dtype), np.empty(several_sums)
    chosen = np.empty(target.shape, _INT) if stored else target
    weights = x if plain and not stored else np.empty(target.shape, x.dtype)
    form(chunks, chunks > 1, x, target, x if plain else weight, out, chosen, weights, out, sums, *numbers, ignored, how)
    if plain and chunks == 1:
        _, counted, wrong = sums.tolist()             # as `_concluded` has them, soonest
    else:
        counted, wrong = _concluded(out, sums.reshape(-1, 3), how, None if plain else weights.reshape(-1))
    if wrong:
        return None
    return out, (chosen, weights, counted if how == MEAN else 1) if stored else None


def _way_to_pick(key: tuple[Any, ...], dtype: np.dtype, of_target: np.dtype) -> Any:
    """What `picked` needs to know of arrays, kept under `key`: ``()`` if it refuses them."""
    shape, several, _, _, plain, stored, reduction = key
    classes = shape[min(len(shape), 2) - 1] if shape else 0
    rows = math.prod(several)
    way: Any = ()
    if classes and rows and dtype.char in "fd" and of_target == _INT and several == shape[:1][: len(shape) - 1] + shape[2:]:
        kinds = (dtype, _INT, dtype, dtype, _INT, dtype, dtype, _WIDE, *(int,) * 7)
        form = picked_rows.form(kinds, {"WEIGHT": not plain, "STORED": stored})
        per = max(1, CHUNK // classes)
        together = max(1, PICKED // per)
        parts = -(-rows // per)
        chunks, how = -(-parts // together), HOW[reduction]
        step = rows // shape[0] if len(shape) > 2 else 1
        way = form, chunks, 3 if chunks == 1 else 3 * parts, () if how else several, how, (rows, classes, per, together, step)
    if len(_ways_to_pick) >= MOST_KEPT:
        _ways_to_pick.clear()
    _ways_to_pick[key] = way
    return way


def backward(
    shifted: np.ndarray, target: np.ndarray, weight: Any, smoothing: float, logarithms: np.ndarray, scales: np.ndarray, divisor: float
) -> np.ndarray:
    """The gradient at the scores; `scales` is that at the losses, one for each row or a single one, which are divided by `divisor`."""
    rows, n = shifted.shape
    out = np.empty(shifted.shape, shifted.dtype)
    per = max(1, CHUNK // n)
    likelihood_rows_grad.run(
        -(-rows // per), shifted, target, logarithms if weight is None else weight, logarithms, scales, out, rows, n, per,
        0 if scales.size == 1 else 1, float(n if weight is None else weight.sum()), smoothing, divisor,
        WEIGHT=weight is not None, SMOOTH=smoothing != 0,
    )  # fmt: skip
    return out
