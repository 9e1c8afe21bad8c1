"""The `sym_*` functions on plain numbers; numbers that stand for any value come with program capture."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from . import _missing


class _Unknown:
    """A number that stands for any value. Raises: NotImplementedError when made."""

    def __init__(self, node: Any = None) -> None:
        raise _missing.not_built(type(self).__name__, "sizes are plain ints, which is what isinstance tells")


class SymInt(_Unknown):
    """An int that stands for any value: every size here is a plain int, so nothing is of this class."""

    def as_integer_ratio(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("SymInt", "sizes are plain ints")


class SymFloat(_Unknown):
    """A float that stands for any value: nothing is of this class."""

    def as_integer_ratio(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("SymFloat", "numbers are plain floats")

    conjugate = hex = is_integer = as_integer_ratio


class SymBool(_Unknown):
    """A bool that stands for either value: nothing is of this class."""


def sym_int(a: Any) -> int:
    """`a` as an int, towards zero."""
    return math.trunc(a)


def sym_float(a: Any) -> float:
    """`a` as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """The negation of `a`."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers; a float if either is one."""
    larger = max(a, b)
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers; a float if either is one."""
    smaller = min(a, b)
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b` holds, else `f`, which must be of the same type. Raises: TypeError otherwise."""
    if not isinstance(b, bool) or type(t) is not type(f):
        raise TypeError(f"sym_ite takes a bool and two values of one type, got {b!r}, {t!r} and {f!r}")
    return t if b else f


def sym_sum(args: Any) -> Any:
    """The sum of several numbers."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)
