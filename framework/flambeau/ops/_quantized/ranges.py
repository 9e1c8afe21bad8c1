"""The scale and the zero point of integers that are to stand for the numbers of a range."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["fitting"]

# Where the range is one number, and the smallest scale, below which its reciprocal would be beyond half precision.
_OF_NOTHING = 0.1
_SMALLEST = float(np.float32(6.1e-5))


def fitting(low: Any, high: Any, quant_min: int, quant_max: int, symmetric: bool = False) -> tuple[Any, Any]:
    """Scales (float64) and zero points (int64) of ranges from `low` to `high`, arrays of the same shape.

    A range is widened to include 0, which an integer stands for. Of the zero points that fit its two ends, that with the smaller
    rounding error is taken. With `symmetric`, ranges on both sides of 0 get the zero point in the middle of the integers.
    """
    low = np.minimum(np.asarray(low, np.float32), 0).astype(np.float64)
    high = np.maximum(np.asarray(high, np.float32), 0).astype(np.float64)
    steps = quant_max - quant_min
    around = (low < 0) & (high > 0) & symmetric
    most, least = steps // 2, -(steps // 2 + 1)
    reach = np.maximum(low / least, high / most)
    low, high = np.where(around, reach * least, low), np.where(around, reach * most, high)
    plain = (high - low) / steps
    scale = np.where(plain.astype(np.float32) == 0, _OF_NOTHING, plain)
    small = (scale < _SMALLEST) & (plain.astype(np.float32) != 0)
    wider = np.where(small, _SMALLEST / np.where(small, scale, 1), 1)
    low, high, scale = low * wider, high * wider, np.where(small, _SMALLEST, scale)
    from_low, from_high = quant_min - low / scale, quant_max - high / scale
    low_error, high_error = abs(quant_min) + np.abs(low / scale), abs(quant_max) + np.abs(high / scale)
    zero = np.where(low_error < high_error, from_low, from_high)
    zero = np.where(around, (quant_min + quant_max) / 2, zero)
    return scale, np.clip(np.rint(zero), quant_min, quant_max).astype(np.int64)
