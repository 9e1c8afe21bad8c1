"""Convolutions of images of a single position by single taps, as those behind a pooling of all of an image: rows against rows.

A result is a sum over channels in vectors, whose order depends on the number of channels alone, so an image's results depend on no other.
Back to the input, vectors lie along the channels of the input.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.engine.language import broadcast, kernel, lane_sum, load, local, multiply_add, rolled, store, unroll, vector, widened
from flambeau_kernels.engines import kept

from ..register_tiles import registers
from ..sums import lanes_of
from ..tier import compiles
from .arrays import is_half

Ints = tuple[int, ...]
LEAST_PRODUCTS = 1 << 13                              # of one image, for which other ways take longer
WORK = 1 << 17                                        # products of a chunk
TOGETHER = 4                                          # results of an image, or images, that are computed together


def pays(x: Any, w: Any, made: Ints, padding: Ints, groups: int) -> bool:
    """Whether ``(N, C, 1, ...)`` and ``(O, C, 1, ...)`` make ``(N, O, 1, ...)``, or the other way round, and there is enough to do."""
    single = groups == 1 and prod(x.shape[2:]) == prod(made) == prod(w.shape[2:]) == 1 and not any(padding)
    if not single or w.dtype != x.dtype or prod(w.shape) < LEAST_PRODUCTS or not compiles():
        return False
    return x.dtype.char in "fd" or is_half(x.dtype)


def convolve(x: Any, w: Any, bias: Any, transposed: bool) -> np.ndarray:
    """``(N, C, 1, ...)`` with ``(O, C, 1, ...)`` to ``(N, O, 1, ...)``, or, `transposed`, from O channels to C."""
    outputs, channels = w.shape[:2]
    rows, weights = (np.ascontiguousarray(a.reshape(a.shape[:2])) for a in (x, w))
    n, results = len(x), channels if transposed else outputs
    kind = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    constants = np.zeros(results, kind) if bias is None else np.ascontiguousarray(bias, kind)
    out = np.empty((n, results), x.dtype)
    per_result = n * (outputs if transposed else channels)
    each = max(1, WORK // (64 * per_result)) * 64     # results of a chunk, whole cache lines of them
    _form(x.dtype, kind, transposed)(-(-results // each), False, rows, weights, constants, out, n, channels, outputs, each)
    return out.reshape(n, results, *(1,) * (x.ndim - 2))


@kept()
def _form(dtype: np.dtype, kind: np.dtype, transposed: bool) -> Any:
    types = (dtype, dtype, kind, dtype, *(int,) * 4)
    # Two images have eight sums, of two registers each on processors with short ones.
    return sums_of_columns.form(types, {}) if transposed else sums_of_rows.form(types, {"IMAGES": 2 if registers()[1] > 16 else 1})


def dots(p, q, to, constants, channels, outputs, IMAGES, RESULTS):
    """The results of IMAGES rows at `p` with RESULTS rows of weights at `q`."""
    KIND = widened(constants)
    N = lanes_of(KIND)
    sums = local(vector(KIND, N), IMAGES * RESULTS)
    for u in unroll(range(IMAGES * RESULTS)):
        sums[u] = broadcast(KIND(0), N)
    c = 0
    while c + N <= channels:
        for r in unroll(range(RESULTS)):
            weight = load(q, r * channels + c, N)
            for i in unroll(range(IMAGES)):
                sums[i * RESULTS + r] = multiply_add(load(p, i * channels + c, N), weight, sums[i * RESULTS + r])
        c += N
    if c < channels:
        rest = channels - c
        for r in unroll(range(RESULTS)):
            weight = load(q, r * channels + c, N, rest)
            for i in unroll(range(IMAGES)):
                sums[i * RESULTS + r] = multiply_add(load(p, i * channels + c, N, rest), weight, sums[i * RESULTS + r])
    for i in unroll(range(IMAGES)):
        for r in unroll(range(RESULTS)):
            to[i * outputs + r] = lane_sum(sums[i * RESULTS + r]) + constants[r]


@kernel(in_vectors=True)
def sums_of_rows(chunk, x, weights, bias, out, n, channels, outputs, each, *, IMAGES):
    last = min(chunk * each + each, outputs)
    for o in rolled(range(chunk * each, last, TOGETHER)):
        q, b = weights + o * channels, bias + o
        if o + TOGETHER <= last:
            whole = n - n % IMAGES
            for i in rolled(range(0, whole, IMAGES)):
                dots(x + i * channels, q, out + (i * outputs + o), b, channels, outputs, IMAGES, TOGETHER)
            if whole < n:
                dots(x + whole * channels, q, out + (whole * outputs + o), b, channels, outputs, 1, TOGETHER)
        else:
            for i in rolled(range(n)):
                for r in rolled(range(last - o)):
                    dots(x + i * channels, q + r * channels, out + (i * outputs + o + r), b + r, channels, outputs, 1, 1)


def columns(p, q, to, constants, channels, outputs, rest, IMAGES):
    """A vector of results, the first `rest` of them, of IMAGES rows at `p`."""
    KIND = widened(constants)
    N = lanes_of(KIND)
    sums = local(vector(KIND, N), IMAGES)
    for i in unroll(range(IMAGES)):
        sums[i] = load(constants, 0, N, rest)
    for o in rolled(range(outputs)):
        weight = load(q, o * channels, N, rest)
        for i in unroll(range(IMAGES)):
            sums[i] = multiply_add(broadcast(KIND(p[i * outputs + o]), N), weight, sums[i])
    for i in unroll(range(IMAGES)):
        store(to, i * channels, sums[i], rest)


@kernel(in_vectors=True)
def sums_of_columns(chunk, y, weights, bias, out, n, channels, outputs, each):
    N = lanes_of(widened(bias))
    last = min(chunk * each + each, channels)
    for c in rolled(range(chunk * each, last, N)):
        rest = min(last - c, N)
        q, b = weights + c, bias + c
        whole = n - n % TOGETHER
        for i in rolled(range(0, whole, TOGETHER)):
            columns(y + i * outputs, q, out + (i * channels + c), b, channels, outputs, rest, TOGETHER)
        for i in rolled(range(whole, n)):
            columns(y + i * outputs, q, out + (i * channels + c), b, channels, outputs, rest, 1)
