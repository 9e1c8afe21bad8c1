"""Connectionist temporal classification: the likelihood of a label sequence summed over its alignments, and its gradient.

Labels are spread out with a blank before, between and after them, ``2 S + 1`` positions in all; `alpha` is the
log probability of having reached a position at a time, `beta` of going on from it to the end. Every step in time is one
array operation over samples and positions.

Source: Graves et al. 2006, "Connectionist Temporal Classification", ICML.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tier import compiles

__all__ = ["MOST_SAMPLES", "ctc", "ctc_grad", "losses_by_kernel"]

MOST_SAMPLES = 128  # that one kernel adds up, in numpy's order


def _spread(targets: np.ndarray, blank: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels with blanks between them ``(N, 2 S + 1)``, and which may be reached past the blank before them."""
    labels = np.full((targets.shape[0], 2 * targets.shape[1] + 1), blank, np.int64)
    labels[:, 1::2] = targets
    skips = np.zeros(labels.shape, bool)
    skips[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    return labels, skips


def _shifted(x: np.ndarray, by: int) -> np.ndarray:
    """`x` moved `by` positions up (down, if negative), -inf coming in."""
    made = np.full_like(x, -np.inf)
    if by > 0:
        made[:, by:] = x[:, :-by]
    else:
        made[:, :by] = x[:, -by:]
    return made


def _sum3(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.logaddexp(np.logaddexp(a, b), c)


def ctc(
    logs: np.ndarray, targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, blank: int
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """The negative log likelihood of each sample, and what `ctc_grad` needs.

    Args:
        logs: log probabilities ``(T, N, C)``.
        targets: labels ``(N, S)``; beyond a sample's length they do not count.
    """
    steps, batch, _ = logs.shape
    if compiles() and logs.size:
        from . import ctc_loops

        logs, targets = np.ascontiguousarray(logs), np.ascontiguousarray(targets)
        loss, _, _, alpha = ctc_loops.losses(logs, targets, input_lengths, target_lengths, blank)
        return loss, (alpha, targets, blank, loss)
    labels, skips = _spread(targets, blank)
    at = np.moveaxis(np.take_along_axis(logs, np.broadcast_to(labels, (steps, *labels.shape)), 2), 1, 0)  # (N, T, 2S+1)
    alpha = np.full(at.shape, -np.inf, logs.dtype)
    if steps:
        alpha[:, 0, :2] = at[:, 0, :2]
    for t in range(1, steps):
        before = alpha[:, t - 1]
        alpha[:, t] = at[:, t] + _sum3(before, _shifted(before, 1), np.where(skips, _shifted(before, 2), -np.inf))
    rows, last = np.arange(batch), 2 * target_lengths
    final = np.maximum(input_lengths - 1, 0)
    if steps:
        ends = alpha[rows, final, last], np.where(target_lengths > 0, alpha[rows, final, np.maximum(last - 1, 0)], -np.inf)
        loss = -np.logaddexp(*ends)
    else:
        loss = np.zeros(batch, logs.dtype)
    # Of no input only the empty sequence is likely.
    loss = np.where(input_lengths == 0, np.where(target_lengths == 0, 0, np.inf), loss).astype(logs.dtype)
    return loss, (alpha, at, labels, skips, loss)


def losses_by_kernel(
    logs: np.ndarray, targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, blank: int, how: int, zero: bool
) -> np.ndarray | None:
    """The losses of up to `MOST_SAMPLES` samples (`how` 0), their sum (1) or mean (2); None where an argument is wrong.

    Args:
        zero: make infinite losses 0.
    """
    if not compiles():
        return None
    from . import ctc_loops

    loss, out, wrong, _ = ctc_loops.losses(logs, targets, input_lengths, target_lengths, blank, how, zero)
    if wrong.any():
        return None
    if how:
        return out
    return np.where(loss == np.inf, 0, loss).astype(loss.dtype, copy=False) if zero else loss


def _betas(at: np.ndarray, skips: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """Log probability of going on to the end from each position at each time, that time's own included."""
    batch, steps, positions = at.shape
    beta = np.full(at.shape, -np.inf, at.dtype)
    place = np.arange(positions)
    last = 2 * target_lengths[:, None]
    ending = (place == last) | (place == last - 1)
    after = np.full((batch, positions), -np.inf, at.dtype)
    onward = np.zeros(skips.shape, bool)
    onward[:, :-2] = skips[:, 2:]
    for t in range(steps - 1, -1, -1):
        going = at[:, t] + _sum3(after, _shifted(after, -1), np.where(onward, _shifted(after, -2), -np.inf))
        first = (input_lengths - 1 == t)[:, None]
        beta[:, t] = after = np.where(first, np.where(ending, at[:, t], -np.inf), going)
    return beta


def ctc_grad(
    grad: np.ndarray, logs: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, kept: tuple[Any, ...],
    zero_infinity: bool,
) -> np.ndarray:  # fmt: skip
    """The gradient at the scores whose log-softmax `logs` is: probabilities less what the labels account for.

    Handed to log_softmax, whose gradient leaves it as it is, this is the gradient of its input.
    """
    if len(kept) == 4:
        from . import ctc_loops

        alpha, targets, blank, loss = kept
        given = np.ascontiguousarray(grad), np.ascontiguousarray(logs), targets, input_lengths, target_lengths
        return ctc_loops.gradient(*given, blank, alpha, loss, zero_infinity)
    alpha, at, labels, skips, loss = kept
    steps, batch, classes = logs.shape
    beta = _betas(at, skips, input_lengths, target_lengths)
    reached = (alpha > -np.inf) & (beta > -np.inf)
    share = np.where(reached, np.exp(alpha + beta - at + loss[:, None, None]), 0)  # (N, T, 2S+1)
    taken = np.zeros((batch, steps, classes), logs.dtype)
    np.add.at(taken, (np.arange(batch)[:, None, None], np.arange(steps)[:, None], labels[:, None, :]), share)
    made = np.exp(logs) - np.moveaxis(taken, 0, 1)
    impossible = np.isinf(loss)
    made = np.where(impossible[:, None], 0 if zero_infinity else np.nan, made) * grad[:, None]
    made = np.where((impossible & zero_infinity)[:, None], 0, made)
    inside = np.arange(steps)[:, None] < input_lengths
    return np.where(inside[:, :, None], made, 0).astype(logs.dtype)
