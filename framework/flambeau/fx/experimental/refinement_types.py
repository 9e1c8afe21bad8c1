"""What is known of types: equalities."""

from __future__ import annotations

__all__ = ["Equality"]


class Equality:
    """That two things are equal.

    Args:
        lhs, rhs: the two.
    """

    def __init__(self, lhs: object, rhs: object) -> None:
        self.lhs, self.rhs = lhs, rhs

    def __str__(self) -> str:
        return f"{self.lhs} = {self.rhs}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equality) and self.lhs == other.lhs and self.rhs == other.rhs

    __hash__ = None  # type: ignore[assignment]
