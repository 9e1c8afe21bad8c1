"""Compiled cross entropy of rows of scores with one class each: log_softmax and its picked entries in one pass.

Forward a row is read twice from a first-level cache, for its maximum and for the sum of exp, and left behind shifted by
its maximum; backward these scores become the gradient in one pass more. Nothing else of the size of the scores exists.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flambeau_kernels.cpu.lanes import exp_lanes, zero_lanes
from flambeau_kernels.cpu.softmax_loops import row_top
from flambeau_kernels.engine.language import kernel, lane_sum, lanes, load, rolled, store, widened
from flambeau_kernels.vocabulary import fma, log

__all__ = ["backward", "forward"]

# Elements of a chunk: about 20 microseconds.
CHUNK = 32768


@kernel(in_vectors=True)
def likelihood_rows(chunk, x, target, weight, shifted, losses, inverse, rows, n, per, weights, smoothing,
                    *, WEIGHT, SMOOTH, STORED):  # fmt: skip
    KIND = widened(losses)
    N = lanes(KIND)
    whole = n // N * N
    spread = KIND(smoothing) / KIND(n)
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, to = x + row * n, shifted + row * n
        top = row_top(a, n, KIND)
        total, level = zero_lanes(KIND), zero_lanes(KIND)
        for i in rolled(range(0, whole, N)):
            s = load(a, i, N) - top
            total = total + exp_lanes(s, KIND)
            if STORED:
                store(to, i, s)
            if SMOOTH:
                level = fma(s, load(weight, i, N), level) if WEIGHT else level + s
        if whole < n:
            s = load(a, whole, N, n - whole, -math.inf) - top
            total = total + exp_lanes(s, KIND)
            if STORED:
                store(to, whole, s, n - whole)
            if SMOOTH:
                s = load(a, whole, N, n - whole, top) - top
                level = fma(s, load(weight, whole, N, n - whole), level) if WEIGHT else level + s
        sum_of_exp = lane_sum(total)
        t = target[row]
        loss = KIND(0)
        if t >= 0:
            logarithm = log(sum_of_exp)
            loss = logarithm - (a[t] - top)
            if WEIGHT:
                loss = loss * weight[t]
            if SMOOTH:
                loss = loss * KIND(1 - smoothing) + spread * (KIND(weights) * logarithm - lane_sum(level))
        losses[row] = loss
        inverse[row] = KIND(1) / sum_of_exp


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


def _form(key: tuple[Any, ...]) -> Any:
    dtype, weighted, smooth, stored = key
    kinds = (dtype, np.dtype(np.int64), dtype, dtype, dtype, dtype, int, int, int, float, float)
    made = _forms[key] = likelihood_rows.form(kinds, {"WEIGHT": weighted, "SMOOTH": smooth, "STORED": stored})
    return made


def forward(
    x: np.ndarray, target: np.ndarray, weight: Any, smoothing: float, stored: bool
) -> tuple[np.ndarray, Any, np.ndarray]:
    """The loss of each row of scores ``(rows, n)``, the scores less their maxima if `stored`, and 1 over the sums of exp.

    Args:
        target: classes, int64; below 0 where a row does not count, and its loss is 0.
        weight: of the classes, or None.
        smoothing: how much of each row's probability is spread over all classes.
    All arrays are C-contiguous.
    """
    rows, n = x.shape
    losses, inverse = np.empty((2, rows), x.dtype)
    shifted = np.empty(x.shape, x.dtype) if stored else None
    per = max(1, CHUNK // n)
    key = (x.dtype, weight is not None, smoothing != 0, stored)
    (_forms.get(key) or _form(key))(
        -(-rows // per), False, x, target, losses if weight is None else weight, x if shifted is None else shifted, losses,
        inverse, rows, n, per, float(weight.sum() if smoothing and weight is not None else n), smoothing,
    )  # fmt: skip
    return losses, shifted, inverse


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
