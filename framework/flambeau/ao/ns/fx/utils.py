"""How far two tensors, or the tensors of two lists, are apart. Quantized tensors are compared as numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....nn import functional as F
from ....tensor import Tensor

__all__ = ["compute_cosine_similarity", "compute_normalized_l2_error", "compute_sqnr"]


def _of_pairs(measure: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """`measure` for tensors, dense or quantized, and for lists and tuples of them."""

    @functools.wraps(measure)
    def compare(x: Any, y: Any) -> Any:
        if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
            return [compare(a, b) for a, b in zip(x, y, strict=True)]
        pair: Any = (x, y)
        return measure(*(t.dequantize() if t.is_quantized else t for t in pair))

    return compare


@_of_pairs
def compute_sqnr(x: Tensor, y: Tensor) -> Tensor:
    """The ratio of `x` to its difference from `y`, in decibels: ``20 log10(norm(x) / norm(x - y))``."""
    return 20 * fb.log10(fb.norm(x) / fb.norm(x - y))


@_of_pairs
def compute_normalized_l2_error(x: Tensor, y: Tensor) -> Tensor:
    """The length of the difference of `x` and `y`, in lengths of `x`."""
    return fb.sqrt(((x - y) ** 2).sum() / (x**2).sum())


@_of_pairs
def compute_cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between `x` and `y` as vectors, a tensor of one number."""
    return F.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
