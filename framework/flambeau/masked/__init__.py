"""Reductions and normalizations of the elements that a mask selects, and tensors that carry their mask.

Functions take `mask`, a bool Tensor that broadcasts to the input: True where an element counts.
"""

from __future__ import annotations

from ._ops import (
    _combine_input_and_mask,
    _input_mask,
    _output_mask,
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)
from .maskedtensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

__all__ = [
    "MaskedTensor", "_combine_input_and_mask", "_input_mask", "_output_mask", "amax", "amin", "argmax", "argmin", "as_masked_tensor",
    "cumprod", "cumsum", "is_masked_tensor", "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm",
    "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip
