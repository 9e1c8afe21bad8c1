"""Convolutions of images whose channels lie last in memory by windows that have no element in common: products of matrices.

Weights of single taps read the images, and write results, where they lie. Windows that lie side by side, as wide as the steps between
them, and positions at other steps than 1 are copied.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..products.matmul import MOST_PRODUCTS, has_microkernels, matmul
from ..shapes.move import contiguous
from ..shapes.order import is_last
from .single_taps import LEAST_MADE, LEAST_SUMMED
from .weight import LEAST_CHANNELS
from .weight import LEAST_POSITIONS as LEAST_OF_WEIGHT

Ints = tuple[int, ...]
LEAST_POSITIONS = 4                                   # of an image
# Gradients of weights are added up a part of the positions at a time, which rounds less.
PART = 256


def pays(x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, transposed: bool) -> bool:
    """Whether this is such a convolution of `x`, or, `transposed`, back to extents `made`, and products of one image are large enough.

    By the sizes of one image: its results must depend on no other, and the bits of a product that is not small depend on no other rows.
    """
    kernel = w.shape[2:]
    if groups != 1 or any(padding) or not is_last(x) or prod(kernel) > 1 and (tuple(kernel) != tuple(stride) or set(dilation) != {1}):
        return False
    taps, positions = prod(kernel), prod(x.shape[2:] if transposed else made)
    summed, results = (x.shape[1], w.shape[1] * taps) if transposed else (x.shape[1] * taps, len(w))
    large = summed * results * positions > MOST_PRODUCTS and has_microkernels()
    return large and summed >= LEAST_SUMMED and results >= LEAST_MADE and positions >= LEAST_POSITIONS


def pays_for_weight(x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints, groups: int) -> bool:
    """The same of the gradient of a weight of single taps, at step 1: `y` is the gradient of the results."""
    single = groups == 1 and prod(kernel) == prod(stride) == 1 and not any(padding) and is_last(x) and is_last(y)
    fits = single and x.dtype == y.dtype and x.dtype.char in "fd"
    return fits and min(x.shape[1], y.shape[1]) >= LEAST_CHANNELS and prod(y.shape[2:]) >= LEAST_OF_WEIGHT


def _last(x: Any) -> Any:
    """``(N, C, *spatial)`` as ``(N, *spatial, C)``."""
    return x.transpose(0, *range(2, x.ndim), 1)


def _first(made: Any) -> Any:
    """``(N, *spatial, C)`` as ``(N, C, *spatial)``."""
    return made.transpose(0, made.ndim - 1, *range(1, made.ndim - 1))


def _windows(x: Any, made: Ints, kernel: Ints, stride: Ints) -> np.ndarray:
    """The window of each of ``N * made`` positions of ``(N, C, *spatial)``, ``(N * made, taps * C)``."""
    a, n = _last(x), len(made)
    if prod(kernel) == 1:
        some = a[(slice(None), *(slice(None, None, s) for s in stride))]
        return contiguous(some).reshape(-1, x.shape[1])
    whole = a[(slice(None), *(slice(m * k) for m, k in zip(made, kernel, strict=True)))]
    split = whole.reshape(len(x), *(size for pair in zip(made, kernel, strict=True) for size in pair), x.shape[1])
    positions_first = (0, *range(1, 2 * n, 2), *range(2, 2 * n + 1, 2), 2 * n + 1)
    return contiguous(split.transpose(positions_first)).reshape(len(x) * prod(made), -1)


def _flat(w: Any) -> np.ndarray:
    """A weight ``(O, C, *kernel)`` as ``(O, taps * C)``."""
    return contiguous(_last(w)).reshape(len(w), -1)


def convolve(x: Any, w: Any, bias: Any, made: Ints, stride: Ints) -> np.ndarray:
    """``(N, C, *spatial)`` with ``(O, C, *kernel)`` to ``(N, O, *made)``, channels last in memory."""
    out = np.empty((len(x), *made, len(w)), x.dtype)
    matmul(_windows(x, made, w.shape[2:], stride), _flat(w).T, out.reshape(-1, len(w)), bias=bias)
    return _first(out)


def convolve_input(y: Any, w: Any, bias: Any, spatial: Ints, stride: Ints) -> np.ndarray:
    """The transpose: ``(N, O, *positions)`` with ``(O, C, *kernel)`` to ``(N, C, *spatial)``, channels last in memory."""
    n, c, kernel, positions = len(spatial), w.shape[1], w.shape[2:], y.shape[2:]
    rows = contiguous(_last(y)).reshape(-1, len(w))
    out = np.empty((len(y), *spatial, c), y.dtype)
    if positions == tuple(spatial):                   # single taps at step 1
        matmul(rows, _flat(w), out.reshape(-1, c), bias=bias)
        return _first(out)
    every = None if bias is None else np.tile(bias, prod(kernel))
    made = matmul(rows, _flat(w), bias=every).reshape(len(y), *positions, *kernel, c)
    covered = tuple(m * k for m, k in zip(positions, kernel, strict=True))
    if covered != tuple(spatial):
        out[...] = 0 if bias is None else bias
    if prod(kernel) == 1:
        places = tuple(slice(0, (m - 1) * s + 1, s) for m, s in zip(positions, stride, strict=True))
        out[(slice(None), *places)] = made.reshape(len(y), *positions, c)
    else:
        beside = (0, *(axis for i in range(n) for axis in (1 + i, 1 + n + i)), 2 * n + 1)
        out[(slice(None), *map(slice, covered))] = made.transpose(beside).reshape(len(y), *covered, c)
    return _first(out)


def convolve_weight(x: Any, y: Any) -> np.ndarray:
    """Positions of ``(N, C, *spatial)`` against those of ``(N, O, *spatial)``: ``(O, C, 1, ...)``."""
    left, right = (contiguous(_last(a)).reshape(-1, a.shape[1]) for a in (y, x))
    made = np.empty((y.shape[1], x.shape[1]), x.dtype)
    for i in range(0, len(left), PART):
        matmul(left[i : i + PART].T, right[i : i + PART], made, accumulate=i > 0)
    return made.reshape(*made.shape, *(1,) * (x.ndim - 2))
