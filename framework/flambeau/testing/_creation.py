"""Random tensors of every dtype for tests."""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as fb
from flambeau import Tensor

__all__ = ["make_tensor"]

_UNSIGNED = (fb.uint8, fb.uint16, fb.uint32, fb.uint64)
_SIGNED = (fb.int8, fb.int16, fb.int32, fb.int64)


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of uniform random values in ``[low, high)``.

    Args:
        shape: sizes, or one sequence of them.
        low, high: kept within what `dtype` holds. By default 0 and 2 for bool, 0 and 10 for unsigned integers, -9 and 10 for
            signed ones, -9 and 9 for floating and complex dtypes, real and imaginary parts alike.
        noncontiguous: every second element of a tensor with a last dimension twice as long, if there are two elements.
        exclude_zero: zeros become 1, in floating dtypes the smallest normal number.
        memory_format: of the result; not together with `noncontiguous`.
    Raises: ValueError for bounds that hold nothing or are nan, gradients of integers, or both kinds of memory order;
        TypeError for a dtype that is none of these.

    >>> fb.testing.make_tensor((2, 3), dtype=fb.int64, device="cpu").shape
    torch.Size([2, 3])
    """
    sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    wide = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
            f"but got noncontiguous={noncontiguous} and memory_format={memory_format}"
        )
    if requires_grad and not wide:
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}"
        )
    least, limit = _bounds(dtype, low, high)
    doubled = noncontiguous and math.prod(sizes) > 1
    if doubled:
        sizes[-1] *= 2
    if dtype.is_complex:
        made = fb.empty(sizes, dtype=dtype, device=device)
        fb.view_as_real(made).uniform_(least, limit)
    elif dtype.is_floating_point:
        made = fb.empty(sizes, dtype=dtype, device=device)
        # The whole range of a dtype is wider than its largest number.
        is_too_wide = limit - least > fb.finfo(dtype).max
        made = made.uniform_(least / 2, limit / 2).mul_(2) if is_too_wide else made.uniform_(least, limit)
    else:
        made = fb.randint(int(least), int(limit), sizes, dtype=dtype, device=device)
    if doubled:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        tiny = fb.finfo(dtype).tiny if wide else 1
        made[made == 0] = complex(tiny, tiny) if dtype.is_complex else tiny
    return made.requires_grad_(requires_grad) if wide else made


def _bounds(dtype: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """`low` and `high`, by default those of the dtype, within what it holds."""
    if dtype is fb.bool:
        usual, least, largest = (0, 2), 0, 2
    elif dtype in _UNSIGNED or dtype in _SIGNED:
        usual = (0, 10) if dtype in _UNSIGNED else (-9, 10)
        least, largest = fb.iinfo(dtype).min, fb.iinfo(dtype).max + 1  # the upper bound is excluded
    elif dtype.is_floating_point or dtype.is_complex:
        usual, least, largest = (-9, 9), fb.finfo(dtype).min, fb.finfo(dtype).max
    else:
        raise TypeError(
            f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor(). "
            "To request support, file an issue."
        )
    low, high = usual[0] if low is None else low, usual[1] if high is None else high
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    if low == high and (dtype.is_floating_point or dtype.is_complex):
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 and "
            "will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if low >= largest or high <= least and low != high:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports [{least}, {largest})"
        )
    return max(low, least), min(high, largest)
