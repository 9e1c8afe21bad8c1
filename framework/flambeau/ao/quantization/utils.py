"""Facts about dtypes and schemes of quantization that several modules of this room ask for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import flambeau as fb

from ...tensor import Tensor

__all__ = ["SYMMETRIC", "check_min_max_valid", "is_per_channel", "is_per_tensor", "limits_of", "validate_qmin_qmax"]

SYMMETRIC = (fb.per_tensor_symmetric, fb.per_channel_symmetric)

# Dtypes of integers to quantize to, and the limits of those that numpy does not know as they are.
_LIMITS: dict[Any, tuple[int, int]] = {
    fb.quint4x2: (0, 15),
    fb.quint2x4: (0, 3),
    **{
        kind: (int(np.iinfo(like).min), int(np.iinfo(like).max))
        for kind, like in (
            (fb.quint8, np.uint8), (fb.qint8, np.int8), (fb.qint32, np.int32), (fb.uint8, np.uint8), (fb.int8, np.int8),
            (fb.int16, np.int16), (fb.uint16, np.uint16), (fb.int32, np.int32),
        )
    },
    fb.float8_e5m2: (int(fb.finfo(fb.float8_e5m2).min), int(fb.finfo(fb.float8_e5m2).max)),
    fb.float8_e4m3fn: (int(fb.finfo(fb.float8_e4m3fn).min), int(fb.finfo(fb.float8_e4m3fn).max)),
}  # fmt: skip


def limits_of(dtype: Any, quant_min: int | None = None, quant_max: int | None = None, reduce_range: bool = False) -> tuple[int, int]:
    """The smallest and the largest integer of `dtype`, or those given; half of them with `reduce_range`.

    Raises: AssertionError for a dtype that observers do not quantize to.
    """
    if dtype not in _LIMITS:
        raise AssertionError(f"Default Observer only works for {tuple(_LIMITS)} data type, got {dtype}")
    low, high = _LIMITS[dtype] if quant_min is None or quant_max is None else (quant_min, quant_max)
    return (low // 2, high // 2) if reduce_range else (low, high)


def validate_qmin_qmax(quant_min: Any, quant_max: Any) -> None:
    """Raise AssertionError unless ``quant_min <= 0 <= quant_max`` are two integers in order."""
    if not quant_min <= 0 <= quant_max:
        raise AssertionError(f"Used-specified quantization range must include 0. Got quant_min={quant_min}, quant_max={quant_max}")
    if quant_min >= quant_max:
        raise AssertionError(f"qmin must be less than qmax. Got quant_min={quant_min}, quant_max={quant_max}")


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether something was seen; False with a warning where nothing was.

    Raises: AssertionError where a smallest number is above the largest.
    """
    if min_val.numel() == 0 or max_val.numel() == 0 or bool(((min_val == float("inf")) & (max_val == float("-inf"))).any()):
        warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=4)
        return False
    if bool((min_val > max_val).any()):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def is_per_tensor(qscheme: Any) -> bool:
    """Whether all elements share a scale."""
    return qscheme in (fb.per_tensor_affine, fb.per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    """Whether each channel has its scale."""
    return qscheme in (fb.per_channel_affine, fb.per_channel_affine_float_qparams, fb.per_channel_symmetric)
