"""The loops of `moments.variance`: means and sums of squared deviations of blocks, merged in order in float64.

A block is read twice while it is in the nearest cache: for its mean, and for the deviations from it. Two sets of `n` and
`m` values merge exactly: with ``d`` the difference of the means, the sum of squares grows by ``d**2 * n * m / (n + m)``
(Chan, Golub, LeVeque 1979, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances").

rows     blocks of 1024 neighbours, whose order of sums is written down in `sums.py`; of rows that are too short for vectors in any
         order.
columns  blocks of eight rows of a strip of columns. Narrow matrices are read as if several rows were one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau_kernels.engine.language import flags, float32, float64, independent, kernel, local, widened
from flambeau_kernels.vocabulary import sqrt, where

from .. import sums
from ._folds import STRIP, Cut, dense, fold
from ._walk import row_at, strip_at

__all__ = ["GRAIN", "IN_VECTORS_FROM", "plan", "spread_of_row"]

GRAIN = 65536
BLOCK = 1024
IN_VECTORS_FROM = 64  # elements of a row


def plan(a: np.ndarray, axes: tuple[int, ...], keepdim: bool) -> Callable[[np.ndarray, float], np.ndarray] | None:
    """What computes variances of arrays like `a` with a correction, or None where numpy does."""
    if a.dtype.name not in ("float32", "float64", "float16", "bfloat16"):
        return None
    found = fold(a, axes, keepdim, GRAIN)
    if found is None:
        return None
    cut, count, double = found.cut, found.count, np.dtype(np.float64)
    unsplit = cut.pieces == 1
    to = a.dtype if unsplit else double
    constants = {"KIND": float64 if a.dtype == double else float32, "UNSPLIT": unsplit}
    loop = _LOOPS[cut.loop]
    if cut.loop == "rows" and cut.numbers[9] >= IN_VECTORS_FROM:
        loop = vector_rows
        # Long rows are read ahead by the processor, which is only disturbed.
        constants["ASK"] = unsplit and cut.numbers[9] <= sums.BLOCK
        constants["ONE_RUN"] = cut.numbers[8] == 1    # of rows whose elements are all neighbours
    form = loop.form((a.dtype, to, double, float, *[int] * len(cut.numbers)), constants)
    nothing = np.empty(0)
    result = a.dtype

    def run(a: np.ndarray, correction: float) -> np.ndarray:
        free = max(count - correction, 0.0)
        out = found.empty(result)
        if unsplit:
            form(cut.chunks, True, a, out, nothing, free, *cut.numbers)
            return out
        squares, means = np.empty(cut.parts), np.empty(cut.parts)
        form(cut.chunks, True, a, squares, means, free, *cut.numbers)
        with np.errstate(all="ignore"):
            dense(out)[...] = (merged(squares, means, lengths) / np.float64(free)).reshape(-1)
        return out

    lengths = _lengths(cut, count)
    return found.contiguous(run)


def _lengths(cut: Cut, count: int) -> np.ndarray:
    """How many elements each piece has."""
    if cut.loop == "rows":
        _, _, pieces, runs, per_run, _, _, _, r0, r1, _ = cut.numbers
        full, size = (runs * r1, r0 * r1) if r0 > 1 else (per_run, r1)
    else:
        pieces, full, size = cut.pieces, cut.numbers[5], count
    return np.minimum(full, size - full * np.arange(pieces, dtype=np.float64))


def merged(squares: np.ndarray, means: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The sum of squared deviations of all pieces, which lie along dimension 1."""
    n = lengths if means.ndim == 2 else lengths[:, None]
    deviation = means - (means * n).sum(1, keepdims=True) / lengths.sum()
    return (squares + deviation * deviation * n).sum(1)


@kernel
def rows(chunk, x, out, means, free, items, per_chunk, pieces, runs, per_run, k1, outer, step, r0, r1, run, *, KIND, UNSPLIT):
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, from0, to0, from1, to1 = row_at(x, item, pieces, runs, per_run, k1, outer, step, r0, r1)
        mean, total, count = 0.0, 0.0, 0.0
        for k in range(from0, to0):
            at = from1
            while at < to1:
                q = p + (k * run + at)
                size = min(BLOCK, to1 - at)
                many = float64(size)
                some = KIND(0)
                with flags("reassoc"):
                    for i in range(size):
                        some += KIND(q[i])
                center = KIND(float64(some) / many)
                rest, squares = KIND(0), KIND(0)
                with flags("reassoc", "contract"):
                    for i in range(size):
                        off = KIND(q[i]) - center
                        rest += off
                        squares += off * off
                # The centre was rounded; `rest` tells by how much it misses the mean.
                deviation = float64(center) + float64(rest) / many - mean
                share = many / (count + many)
                mean += deviation * share
                total += float64(squares) - float64(rest) * float64(rest) / many + deviation * deviation * share * count
                count += many
                at += BLOCK
        if UNSPLIT:
            out[item] = widened(out)(total / free)
        else:
            out[item] = total
            means[item] = mean
        item += 1


@kernel(in_vectors=True)
def vector_rows(chunk, x, out, means, free, items, per_chunk, pieces, runs, per_run, k1, outer, step, r0, r1, run, *, KIND, UNSPLIT,
                ASK, ONE_RUN):  # fmt: skip
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, from0, to0, from1, to1 = row_at(x, item, pieces, runs, per_run, k1, outer, step, r0, r1)
        if ONE_RUN:
            q = p + (from0 * run + from1)
            mean, total = sums.moments_of(q, to1 - from1, KIND, q + (to1 - from1) if ASK else None)
        else:
            mean, total, count = 0.0, 0.0, 0.0
            for k in range(from0, to0):               # one copy of the moments, which are most of the code
                q = p + (k * run + from1)
                mean_here, total_here = sums.moments_of(q, to1 - from1, KIND, q + (to1 - from1) if ASK else None)
                both_mean, both = sums.merged(count, mean, total, float64(to1 - from1), mean_here, total_here)
                mean, total = where(count > 0.0, both_mean, mean_here), where(count > 0.0, both, total_here)
                count += float64(to1 - from1)
        if UNSPLIT:
            out[item] = widened(out)(total / free)
        else:
            out[item] = total
            means[item] = mean
        item += 1


def spread_of_row(p, n, free, KIND, ROOT):
    """The variance of a row, or with ROOT its root, with `free` for the count: what `vector_rows` computes of a row in one piece."""
    _, total = sums.moments_of(p, n, KIND)
    made = KIND(total / free)
    return sqrt(made) if ROOT else made


@kernel
def columns(chunk, x, out, means, free, items, per_chunk, strips, width, pieces, height, together, rows, across, block, row, *,
            KIND, UNSPLIT):  # fmt: skip
    centers = local(float64, STRIP)
    totals = local(float64, STRIP)
    item = chunk * per_chunk
    last = min(items, item + per_chunk)
    while item < last:
        p, _, some, narrow, to = strip_at(x, item, strips, width, pieces, height, rows, across, block, row)
        wide = narrow * together
        for c in independent(range(wide)):
            centers[c] = 0.0
            totals[c] = 0.0
        far = row * together
        left = some // together
        count = 0.0
        while left >= 8:
            share = 8.0 / (count + 8.0)
            grows = share * count
            for c in independent(range(wide)):
                q = p + c
                a, b, d, e = KIND(q[0]), KIND(q[far]), KIND(q[2 * far]), KIND(q[3 * far])
                f, g, h, i = KIND(q[4 * far]), KIND(q[5 * far]), KIND(q[6 * far]), KIND(q[7 * far])
                mean = (((a + b) + (d + e)) + ((f + g) + (h + i))) * KIND(0.125)
                with flags("contract"):
                    a, b, d, e, f, g, h, i = a - mean, b - mean, d - mean, e - mean, f - mean, g - mean, h - mean, i - mean
                    squares = ((a * a + b * b) + (d * d + e * e)) + ((f * f + g * g) + (h * h + i * i))
                    deviation = float64(mean) - centers[c]
                    centers[c] = centers[c] + deviation * share
                    totals[c] = totals[c] + (float64(squares) + deviation * deviation * grows)
            p = p + 8 * far
            left -= 8
            count += 8.0
        while left >= 0:
            size = wide
            if left == 0:
                size = (some % together) * narrow
            share = 1.0 / (count + 1.0)
            grows = share * count
            for c in independent(range(size)):
                deviation = float64(KIND(p[c])) - centers[c]
                centers[c] = centers[c] + deviation * share
                totals[c] = totals[c] + deviation * deviation * grows
            p = p + far
            left -= 1
            if left >= 0:
                count += 1.0
        # What was read as one row were several; the last, partial one added an element to the first of them.
        extra = some % together
        have = count
        if extra > 0:
            have = count + 1.0
        for j in range(1, together):
            more = count
            if j < extra:
                more = count + 1.0
            share = more / (have + more)
            grows = share * have
            for c in independent(range(narrow)):
                deviation = centers[j * narrow + c] - centers[c]
                centers[c] = centers[c] + deviation * share
                totals[c] = totals[c] + (totals[j * narrow + c] + deviation * deviation * grows)
            have += more
        for c in independent(range(narrow)):
            # A mean that is no number makes the variance nan, also where single rows left an infinity.
            total = totals[c] + (centers[c] - centers[c])
            if UNSPLIT:
                out[to + c] = widened(out)(total / free)
            else:
                out[to + c] = total
                means[to + c] = centers[c]
        item += 1


_LOOPS = {"rows": rows, "columns": columns}
