"""Losses of rows of scores that are to differ by a margin, in one pass over them.

A chunk is some whole rows. The sum of a row is taken in the dtype of the scores, or in float32 of halves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import broadcast, flags, int64, kernel, lane_sum, lanes, load, rolled, store, widened
from flambeau_kernels.vocabulary import where

from ..shapes.move import contiguous

__all__ = ["of_labels", "of_targets"]

CHUNK = 16384                                        # scores


@kernel
def margins_of_targets(chunk, x, target, losses, rows, per, c, margin, *, SQUARED):
    KIND = widened(losses)
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, own = x + row * c, target[row]
        edge = KIND(margin) - a[own]
        total = KIND(0)
        # Without the target's own term. What is nan is not over.
        for part in range(2):
            first, last = where(part == 0, 0, own + 1), where(part == 0, own, c)
            with flags("reassoc"):
                for i in range(first, last):
                    over = edge + a[i]
                    over = where(over > KIND(0), over, KIND(0))
                    total += over * over if SQUARED else over
        losses[row] = total / KIND(c)


def of_targets(x: np.ndarray, target: np.ndarray, squared: bool, margin: float) -> np.ndarray:
    """The mean over classes of ``max(0, margin - x[target] + x)``, or of its `squared`, for rows ``(N, C)`` and classes ``(N,)``."""
    rows, c = x.shape
    per = max(1, CHUNK // c)
    losses = np.empty(rows, x.dtype)
    margins_of_targets.run(-(-rows // per), contiguous(x), contiguous(target), losses, rows, per, c, float(margin), SQUARED=squared)
    return losses


def added(over, other, KIND, N):
    """What is over 0, where the class is another; nan is not over."""
    nothing = broadcast(KIND(0), N)
    return where(over > nothing, where(other > nothing, over, nothing), nothing)


@kernel(in_vectors=True)
def margins_of_labels(chunk, x, labels, others, losses, odd, rows, per, c):
    KIND = widened(losses)
    N = lanes(KIND)
    tail = c // N * N
    other = others + chunk * c
    odd[chunk] = 0
    for row in range(chunk * per, min(rows, chunk * per + per)):
        a, label = x + row * c, labels + row * c
        for i in rolled(range(0, tail, N)):
            store(other, i, broadcast(KIND(1), N))
        if tail < c:
            store(other, tail, broadcast(KIND(1), N), c - tail)
        strange = 0
        for i in range(c):
            strange += int64(label[i] < -1) + int64(label[i] >= c)
        if strange > 0:
            odd[chunk] = 1
        else:
            count = 0
            while count < c and label[min(count, c - 1)] >= 0:
                other[label[count]] = KIND(0)
                count += 1
            total = broadcast(KIND(0), N)
            for k in rolled(range(count)):
                edge = broadcast(KIND(1) - a[label[k]], N)
                for i in rolled(range(0, tail, N)):
                    total = total + added(edge + load(a, i, N), load(other, i, N), KIND, N)
                if tail < c:                         # past the end none is another class
                    total = total + added(edge + load(a, tail, N, c - tail), load(other, tail, N, c - tail), KIND, N)
            losses[row] = lane_sum(total) / KIND(c)


def of_labels(x: np.ndarray, labels: np.ndarray) -> Any:
    """The sum over the classes y that a row lists, up to the first -1, and all others i of ``max(0, 1 - x[y] + x[i])``, over the classes.

    Args:
        x: scores ``(N, C)``.
        labels: int64 ``(N, C)``.
    Returns: ``(N,)``; None where labels are neither classes nor -1.
    """
    rows, c = x.shape
    per = max(1, CHUNK // (4 * c))
    chunks = -(-rows // per)
    losses, odd = np.empty(rows, x.dtype), np.empty(chunks, np.int64)
    others = np.empty((chunks, c), x.dtype)
    margins_of_labels.run(chunks, contiguous(x), contiguous(labels), others, losses, odd, rows, per, c)
    return None if odd.any() else losses
