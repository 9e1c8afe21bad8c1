"""Convolutions by single taps at step 1: of each image a product of the weight ``(O, C)`` and its positions ``(C, P)``.

Positions are read where they lie, and results written where they belong; `cpu/products/matmul.py` does the rest. The transposed map is
such a product of the weight turned round. `weight.products` is the gradient of the weight.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..products.matmul import MOST_PRODUCTS, has_microkernels, matmul

Ints = tuple[int, ...]
# Channels that are summed over, channels that are made, and positions of an image, from which products take less time than `product.py`.
LEAST_SUMMED, LEAST_MADE, LEAST_POSITIONS = 16, 24, 64


def pays(x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, groups: int, transposed: bool) -> bool:
    """Whether windows are positions, and products of them large enough.

    By the sizes of one image: its results must depend on no other, and a product that is not small has the same bits alone and in a batch.
    """
    outputs, positions = w.shape[1] if transposed else w.shape[0], prod(made)
    return (
        groups == 1 and set(w.shape[2:]) == set(stride) == {1} and not any(padding) and made == x.shape[2:] and x.flags.c_contiguous
        and x.dtype == w.dtype and x.dtype.char in "fd" and x.shape[1] >= LEAST_SUMMED and outputs >= LEAST_MADE
        and positions >= LEAST_POSITIONS and x.shape[1] * outputs * positions > MOST_PRODUCTS and has_microkernels()
    )  # fmt: skip


def convolve(x: Any, w: Any, bias: Any, transposed: bool) -> Any:
    """``(N, C, *)`` to ``(N, O, *)`` by a weight ``(O, C, 1, ...)``, or, `transposed`, ``(C, O, 1, ...)``."""
    matrix = w.reshape(w.shape[:2]).T if transposed else w.reshape(w.shape[:2])
    n, c = x.shape[:2]
    out = np.empty((n, len(matrix), *x.shape[2:]), x.dtype)
    matmul(matrix, x.reshape(n, c, -1), out.reshape(n, len(matrix), -1), bias=None if bias is None else bias.reshape(-1, 1))
    return out
