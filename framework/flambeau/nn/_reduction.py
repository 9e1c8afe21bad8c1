"""Reductions of losses by number, as packages pass them on to operators."""

from __future__ import annotations

from .._warn import warn

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction: 0 for 'none', 1 for 'mean', 2 for 'sum'. Raises: ValueError for another."""
    if reduction == "elementwise_mean":
        warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.")
        return 1
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction; use one of {', '.join(_NUMBERS)}")
    return _NUMBERS[reduction]
