"""Ranges of numbers."""

from __future__ import annotations

from typing import Any

from . import sympy

__all__ = ["ValueRangeError", "ValueRanges", "int_oo"]

int_oo = sympy.oo


class ValueRangeError(RuntimeError):
    """A range without numbers in it."""


class ValueRanges:
    """The numbers from `lower` to `upper`, both included; ``sympy.oo`` where there is no bound.

    Raises: ValueRangeError if `lower` is above `upper`.
    """

    def __init__(self, lower: Any, upper: Any) -> None:
        self.lower, self.upper = sympy.sympify(lower), sympy.sympify(upper)
        if self.lower > self.upper:
            raise ValueRangeError(f"Invalid ranges [{self.lower}:{self.upper}]: nothing lies between them")

    @classmethod
    def unknown_int(cls) -> ValueRanges:
        """All integers."""
        return cls(-int_oo, int_oo)

    @classmethod
    def wrap(cls, value: Any) -> ValueRanges:
        """`value`, a range or a number."""
        return value if isinstance(value, ValueRanges) else cls(value, value)

    def is_singleton(self) -> bool:
        """Whether there is one number in it."""
        return self.lower == self.upper

    def issubset(self, other: ValueRanges) -> bool:
        """Whether all of it lies in `other`."""
        return bool(self.lower >= other.lower and self.upper <= other.upper)

    def __and__(self, other: ValueRanges) -> ValueRanges:
        return ValueRanges(max(self.lower, other.lower), min(self.upper, other.upper))

    def __or__(self, other: ValueRanges) -> ValueRanges:
        return ValueRanges(min(self.lower, other.lower), max(self.upper, other.upper))

    def __contains__(self, value: Any) -> bool:
        return bool(self.lower <= value <= self.upper)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueRanges) and (self.lower, self.upper) == (other.lower, other.upper)

    def __hash__(self) -> int:
        return hash((self.lower, self.upper))

    def __repr__(self) -> str:
        return f"VR[{_shown(self.lower)}, {_shown(self.upper)}]"


def _shown(bound: Any) -> str:
    return str(bound).replace("oo", "int_oo")
