"""Connectionist temporal classification, compiled: one sample after the other, positions in the first-level cache.

Probabilities of positions that no alignment reaches are -inf, as in `ctc`, whose definitions these are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import brief, independent, int64, kernel, local, rolled, run, widened
from flambeau_kernels.vocabulary import exp, log, maximum, where

from ...engines import kept
from ..norm.as_numpy import row_total
from .ctc import MOST_SAMPLES

__all__ = ["gradient", "losses"]

INF = float("inf")
PADS = 2  # places beside the positions of a time, with probability 0, so that all positions are computed by one loop
WORK = 1 << 14  # positions at all times of a chunk, about 200 microseconds
NONE, SUM, MEAN = range(3)


def sum_of_three(a, b, c, KIND):
    """The logarithm of the sum of what three logarithms stand for."""
    top = maximum(maximum(a, b), c)
    base = KIND(0) if top == KIND(-INF) else top
    return log(exp(a - base) + exp(b - base) + exp(c - base)) + base


def mark_skips(skips, labels, count, KIND):
    """0 at the positions that may follow the one but one before, those of a label unlike the last one; -inf elsewhere."""
    for s in brief(range(2 * count + 1 + PADS)):
        skips[s] = KIND(-INF)
    for k in rolled(range(1, count)):
        if labels[k] != labels[k - 1]:
            skips[2 * k + 1] = KIND(0)


def look_up(to, row, labels, count, blank):
    """The numbers in `row` of the labels at all positions."""
    to[0] = row[blank]
    for k in rolled(range(count)):
        to[2 * k + 1] = row[labels[k]]
        to[2 * k + 2] = row[blank]


# Positions are read from memory first, so that the loops over them that compute are loops of vectors on every processor. Both directions
# take the same step in time, which is compiled once; `at` may be `to`.
@kernel(aliased=True)
def one_step(chunk, to, at, one, two, three, may, used):
    """The probabilities of `used` positions at a time, of what may come beside them; the third only where `may` is 0."""
    KIND = widened(to)
    for s in independent(range(used)):
        third = where(may[s] == KIND(0), three[s], KIND(-INF))
        to[s] = at[s] + sum_of_three(one[s], two[s], third, KIND)


@kernel
def shares_of_time(chunk, share, here, now, at, loss, used):
    """What the alignments through each position are of all."""
    KIND = widened(share)
    for s in independent(range(used)):
        joint = here[s] + now[s]
        share[s] = where(joint > KIND(-INF), exp(joint - at[s] + loss[0]), KIND(0))


def stepped(step, to, at, one, two, three, may, used):
    """Run `one_step`, whose address is `step`."""
    given = local(int64, 7)
    given[0], given[1], given[2], given[3] = int64(to), int64(at), int64(one), int64(two)
    given[4], given[5], given[6] = int64(three), int64(may), used
    run(step, 0, given)


@kernel
def forward(
    chunk, logs, targets, inputs, lengths, alpha, skips, loss, wrong, out, steps_at, samples, per, steps, classes, width, blank, how, zero,
):  # fmt: skip
    KIND = widened(loss)
    places = 2 * width + 1 + PADS
    for sample in rolled(range(chunk * per, min(samples, chunk * per + per))):
        n, count = inputs[sample], lengths[sample]
        right = (n >= 0) & (n <= steps) & (count >= 0) & (count <= width)
        labels = targets + sample * width
        if right:
            for s in rolled(range(count)):
                if (labels[s] < 0) | (labels[s] >= classes):
                    right = 0 > 1
        wrong[sample] = 0 if right else 1
        made = KIND(INF)
        if right:
            if n == 0:
                made = KIND(0) if count == 0 else KIND(INF)
            used = 2 * count + 1
            may = skips + sample * places
            mark_skips(may, labels, count, KIND)
            for t in rolled(range(n)):
                row = logs + (t * samples + sample) * classes
                pads = alpha + (sample * steps + t) * places
                pads[0], pads[1] = KIND(-INF), KIND(-INF)
                now = pads + PADS
                look_up(now, row, labels, count, blank)
                if t == 0:
                    for s in brief(range(2, used)):
                        now[s] = KIND(-INF)
                else:
                    before = now - places
                    stepped(steps_at[0], now, now, before, before - 1, before - 2, may, used)
            if n > 0:
                last = alpha + ((sample * steps + (n - 1)) * places + PADS)
                beside = last[2 * count - 1] if count > 0 else KIND(-INF)
                made = KIND(0) - sum_of_three(last[2 * count], beside, KIND(-INF), KIND)
        loss[sample] = made
    if how != NONE:
        terms = local(KIND, MOST_SAMPLES)
        for i in rolled(range(samples)):
            share = KIND(0) if (zero != 0) & (loss[i] == KIND(INF)) else loss[i]
            terms[i] = share / KIND(max(lengths[i], 1)) if how == MEAN else share
        total = row_total(terms, samples, KIND(0), KIND, False)
        out[0] = total / KIND(samples) if how == MEAN else total


@kernel
def backward(
    chunk, grad, logs, targets, inputs, lengths, alpha, loss, room, out, steps_at, samples, per, steps, classes, width, blank, zero,
):  # fmt: skip
    KIND = widened(loss)
    places = 2 * width + 1 + PADS
    for sample in rolled(range(chunk * per, min(samples, chunk * per + per))):
        n, count, g = inputs[sample], lengths[sample], grad[sample]
        labels, used, may = targets + sample * width, 2 * count + 1, room + (5 * sample + 4) * places
        impossible = loss[sample] == KIND(INF)
        if (impossible & (zero != 0)) == False:  # noqa: E712
            mark_skips(may, labels, count, KIND)
            for k in rolled(range(n)):
                t = n - 1 - k
                row, to = logs + (t * samples + sample) * classes, out + (t * samples + sample) * classes
                here = alpha + ((sample * steps + t) * places + PADS)
                mine = room + 5 * sample * places
                now, after, at, share = mine + t % 2 * places, mine + (t + 1) % 2 * places, mine + 2 * places, mine + 3 * places
                look_up(at, row, labels, count, blank)
                if k == 0:
                    for s in brief(range(used)):
                        now[s] = at[s] if s + 2 >= used else KIND(-INF)
                else:
                    stepped(steps_at[0], now, at, after, after + 1, after + 2, may + 2, used)
                now[used], now[used + 1] = KIND(-INF), KIND(-INF)
                given = local(int64, 6)
                given[0], given[1], given[2] = int64(share), int64(here), int64(now)
                given[3], given[4], given[5] = int64(at), int64(loss + sample), used
                run(steps_at[1], 0, given)
                to[blank] = to[blank] + share[0]
                for j in rolled(range(count)):
                    to[labels[j]] = to[labels[j]] + share[2 * j + 1]
                    to[blank] = to[blank] + share[2 * j + 2]
                for c in brief(range(classes)):
                    to[c] = KIND(float("nan")) * g if impossible else (exp(row[c]) - to[c]) * g


def _chunks(samples: int, work: int) -> tuple[int, int]:
    """How many chunks there are, and samples in each."""
    per = max(1, WORK // max(work, 1))
    return -(-samples // per), per


@kept()
def _steps(real: np.dtype) -> np.ndarray:
    """Where the code of `one_step` and of `shares_of_time` is."""
    return np.array([one_step.address((real,) * 6 + (int,), {}), shares_of_time.address((real,) * 5 + (int,), {})], np.int64)


def losses(
    logs: np.ndarray, targets: np.ndarray, inputs: np.ndarray, lengths: np.ndarray, blank: int, how: int = NONE, zero: bool = False
) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray]:
    """The loss of each of several samples, their sum or mean, whether lengths or labels are wrong, and the alphas.

    Args:
        logs: log probabilities ``(T, N, C)``.
        targets: labels ``(N, S)``, int64.
        inputs, lengths: ``(N)``, int64, of the input and of the targets.
        how: 0 for the losses alone, 1 for their sum, 2 for the mean of losses over target lengths; of up to `MOST_SAMPLES`.
        zero: whether infinite losses count as 0 there.
    All arrays are C-contiguous.
    """
    (steps, samples, classes), width = logs.shape, targets.shape[1]
    alpha = np.empty((samples, steps, 2 * width + 1 + PADS), logs.dtype)
    skips = np.empty((samples, 2 * width + 1 + PADS), logs.dtype)
    if not how:
        alpha.fill(-np.inf)
    loss, wrong, out = np.empty(samples, logs.dtype), np.empty(samples, np.int64), np.empty((), logs.dtype)
    chunks, per = (1, samples) if how else _chunks(samples, steps * (2 * width + 1))
    numbers = samples, per, steps, classes, width, blank
    forward.run(chunks, logs, targets, inputs, lengths, alpha, skips, loss, wrong, out, _steps(logs.dtype), *numbers, how, int(zero))
    return loss, out, wrong, alpha


def gradient(
    grad: np.ndarray, logs: np.ndarray, targets: np.ndarray, inputs: np.ndarray, lengths: np.ndarray, blank: int, alpha: np.ndarray,
    loss: np.ndarray, zero: bool,
) -> np.ndarray:  # fmt: skip
    """The gradient at `logs` for `grad` of the losses, what `losses` found of right arguments being given."""
    (steps, samples, classes), width = logs.shape, targets.shape[1]
    out, room = np.zeros(logs.shape, logs.dtype), np.empty((samples, 5, 2 * width + 1 + PADS), logs.dtype)
    chunks, per = _chunks(samples, steps * (2 * width + 1 + classes))
    numbers = samples, per, steps, classes, width, blank
    backward.run(chunks, grad, logs, targets, inputs, lengths, alpha, loss, room, out, _steps(logs.dtype), *numbers, int(zero))
    return out
