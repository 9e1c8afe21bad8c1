"""Permutations and draws from weights with an `MT19937Stream`, the ones PyTorch's CPU makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tier import compiles
from .continuous import exponential
from .stream import AtOnce, MT19937Stream, bits, chunks, loops

__all__ = ["multinomial", "randperm"]

COMPILED_FROM = 32
# Floating types count to one past the integers they all hold exactly.
LARGEST_COUNT = {
    "float16": (1 << 11) + 1, "bfloat16": (1 << 8) + 1, "float32": (1 << 24) + 1, "float64": (1 << 53) + 1,
}


_PLACES = AtOnce("draw_places")
_INTEGERS, _NO_NUMBERS = np.empty(0, np.int64), bits()
_COUNTS: dict[np.dtype, int] = {}


def randperm(stream: MT19937Stream, n: int, dtype: np.dtype | type = np.int64) -> np.ndarray:
    """The integers 0 ... n - 1 in random order, as `dtype`; one word of the stream for each but the last.

    Raises: RuntimeError if `n` is negative or too large for `dtype` to count to.
    """
    dtype = np.dtype(dtype)
    most = _COUNTS.get(dtype)
    if most is None:
        if dtype.kind in "cb":
            raise NotImplementedError(f'"randperm" not implemented for {dtype.name}; give an integer or floating dtype')
        most = _COUNTS[dtype] = LARGEST_COUNT.get(dtype.name) or int(np.iinfo(dtype).max)
    if not 0 <= n <= most:
        raise RuntimeError(f"randperm: n must lie in [0, {most}] for dtype {dtype.name}, got n={n}")
    if dtype == np.int64 and n > 0:
        table = _PLACES.tables.get(dtype)
        if table is not None and n > 1:
            made = stream.made(table, (n,), _INTEGERS, _NO_NUMBERS, 1, 1)
            if made is not None:
                return made
        order = np.empty(n, dtype)
        form = _PLACES.form(order)
        if form is not None:
            stream.at_once(form, order, n - 1)
            return order
    # How far ahead of place i the element that moves there is found: Knuth, TAOCP 3.4.2, algorithm P.
    words = stream.random32(max(n - 1, 0))
    if COMPILED_FROM <= n < 1 << 31 and compiles():
        places = np.empty(n, np.int32)
        loops().steps_ahead.run(chunks(n), words, n)
        loops().swap_ahead.run(1, places, words, n, release=True)
        return places.astype(dtype)
    ahead = words % np.arange(n, 1, -1, dtype=np.int64)
    order = list(range(n))
    swap_ahead(order, ahead.tolist())
    return np.array(order, dtype=np.int64).astype(dtype, copy=False)


def swap_ahead(order: Any, ahead: Any) -> None:
    """Exchange place i with the one `ahead[i]` further on, for each i in turn."""
    for i in range(len(ahead)):
        j = i + ahead[i]
        order[i], order[j] = order[j], order[i]


def multinomial(stream: MT19937Stream, weights: np.ndarray, num_samples: int, replacement: bool = False) -> np.ndarray:
    """Indices drawn in proportion to `weights`: (n,) -> (k,) or (rows, n) -> (rows, k), int64.

    Without replacement the indices are those of the largest weights divided by exponential numbers; so is a
    single draw. With replacement each index is where a uniform number falls among the running sums.
    Raises: RuntimeError unless `weights` are floating, finite, not negative and of positive sum, 1-D or 2-D,
        and `num_samples` is positive and, without replacement, at most n.
    """
    if replacement and num_samples > 1 and weights.dtype.kind == "f" and weights.ndim in (1, 2) and weights.size and compiles():
        made = _multinomial_compiled(stream, weights, num_samples)
        if made is not None:
            return made
    check_weights(weights, num_samples, replacement)
    if not weights.size:  # no rows
        return np.empty((*weights.shape[:-1], num_samples), np.int64)
    if not replacement or num_samples == 1:
        # PyTorch's exponential numbers lie in memory as the weights do, and are drawn in that order.
        by_column = weights.flags.f_contiguous and not weights.flags.c_contiguous
        chances = weights / exponential(stream, np.empty(weights.shape, weights.dtype, "F" if by_column else "C"))
        return best(chances, num_samples)
    rows = np.atleast_2d(weights)
    unit = stream.uniform64(len(rows) * num_samples).reshape(len(rows), num_samples)
    indices = np.stack([np.searchsorted(running_shares(row), u) for row, u in zip(rows, unit, strict=True)])
    return indices.reshape(*weights.shape[:-1], num_samples).astype(np.int64, copy=False)


def _multinomial_compiled(stream: MT19937Stream, weights: np.ndarray, num_samples: int) -> np.ndarray | None:
    """Draws with replacement; None, with nothing drawn, for weights that are no distribution."""
    rows, n = weights.reshape(-1, weights.shape[-1]).shape
    made = np.empty((*weights.shape[:-1], num_samples), np.int64)
    sums = np.empty(weights.size, np.float64 if weights.dtype == np.float64 else np.float32)
    wrong = np.zeros(1, np.int64)
    with stream.rewound():
        words = stream.random32(2 * made.size)
    loops().weigh.run(-(-rows // loops().AT_ONCE), np.ascontiguousarray(weights), words, sums, made, wrong, rows, n, num_samples,
                      release=weights.size > 1 << 14)  # fmt: skip
    if wrong[0]:
        return None
    stream.skip(2 * made.size)
    return made


def check_weights(weights: np.ndarray, num_samples: int, replacement: bool) -> None:
    if weights.dtype.kind != "f" and weights.dtype.name != "bfloat16":
        raise RuntimeError(f"multinomial: input must be floating, got {weights.dtype.name}")
    if weights.ndim not in (1, 2):
        raise RuntimeError(f"multinomial: prob_dist must be 1 or 2 dim, got shape {weights.shape}")
    if num_samples <= 0:
        raise RuntimeError(f"multinomial: cannot sample n_sample <= 0 samples, got num_samples={num_samples}")
    if not replacement and num_samples > weights.shape[-1]:
        raise RuntimeError(
            f"multinomial: cannot sample n_sample > prob_dist.size(-1) samples without replacement: {num_samples} of {weights.shape[-1]}"
        )
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        raise RuntimeError(f"multinomial: probability tensor contains either `inf`, `nan` or element < 0: {weights[bad].flat[0]}")
    if not (weights.astype(np.float64).sum(axis=-1) > 0).all():
        raise RuntimeError("multinomial: invalid multinomial distribution (sum of probabilities <= 0)")


def best(chances: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest along the last dim, the earlier first among equals."""
    if count == 1:
        return np.argmax(chances, axis=-1, keepdims=True)
    wide = chances if chances.dtype == np.float64 else chances.astype(np.float32)
    return np.ascontiguousarray(np.argsort(-wide, axis=-1, kind="stable")[..., :count])


def running_shares(weights: np.ndarray) -> np.ndarray:
    """Running sums divided by the whole, float32 unless `weights` are float64; the last is exactly 1."""
    accumulate = np.float64 if weights.dtype == np.float64 else np.float32
    sums = np.cumsum(weights.astype(accumulate), dtype=accumulate)
    return (sums / sums[-1]).astype(np.float64)
