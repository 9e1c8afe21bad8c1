"""Numbers that stand for any value, `SymInt` and its kin, and the `sym_*` functions, which take them and plain numbers.

A symbolic number has a node, which holds an expression (`fx/experimental/sym_node.py`). Arithmetic gives symbolic numbers again, or
plain ones where the expression is one. Whoever needs the number itself, or a choice by it, adds a guard to the node's environment.
Nothing here needs sympy: nodes do.
"""

from __future__ import annotations

import math
import operator
import threading
from operator import index
from typing import Any


class _Symbolic:
    """What symbolic numbers have in common. `node` holds the expression."""

    __slots__ = ("node",)
    __array_ufunc__ = None                            # numbers of numpy leave operations with them to us

    def __init__(self, node: Any) -> None:
        if isinstance(node, (int, float)):
            raise AssertionError(f"{type(self).__name__}: a node is wanted, which ShapeEnv makes, got the plain number {node!r}")
        self.node = node

    def __repr__(self) -> str:
        return str(self.node.expr)

    __str__ = __repr__

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


def _binary(name: str, reflected: bool = False) -> Any:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, _NUMBERS):
            if not hasattr(other, "__array_interface__") or hasattr(other, "_array"):
                return NotImplemented
            # An array of numpy has numbers, so it takes a number, which is guarded.
            word, number = getattr(operator, _WORDS.get(name, name)), float(self) if isinstance(self, SymFloat) else int(self)
            return word(other, number) if reflected else word(number, other)
        if name.startswith(("bitwise", "lshift", "rshift")) and (isinstance(other, (float, SymFloat)) or isinstance(self, SymFloat)):
            return NotImplemented                     # floats have no bits to take together, or to shift
        return self.node.reflected(name, other) if reflected else self.node.binary(name, other)

    return method


class _Number(_Symbolic):
    """Arithmetic and comparisons of symbolic ints and floats."""

    __slots__ = ()
    __add__, __radd__ = _binary("add"), _binary("add", True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", True)
    __truediv__, __rtruediv__ = _binary("truediv"), _binary("truediv", True)
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _binary("floordiv", True)
    __mod__, __rmod__ = _binary("mod"), _binary("mod", True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", True)
    __eq__, __ne__ = _binary("eq"), _binary("ne")  # type: ignore[assignment]  # they give SymBools
    __lt__, __le__, __gt__, __ge__ = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge")

    def __hash__(self) -> int:
        # What is found by a size would be found by another one too, when the graph runs.
        raise TypeError(f"unhashable type: {type(self).__name__}; int() of it gives the number, and a guard")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.array(float(self) if isinstance(self, SymFloat) else int(self), dtype)

    def __neg__(self) -> Any:
        return self.node.unary("neg")

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.node.unary("abs")

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __trunc__(self) -> Any:
        return self.node.unary("trunc")

    def __floor__(self) -> Any:
        return self.node.unary("floor")

    def __ceil__(self) -> Any:
        return self.node.unary("ceil")


class SymInt(_Number):
    """An int that stands for any value, such as a size in `make_fx` with ``tracing_mode="symbolic"``.

    Arithmetic with it is recorded. What needs a plain int, or a choice by it, gets that of the inputs at hand and adds a guard.

    Args:
        node: what holds its expression; `ShapeEnv.create_symintnode` makes one.
    """

    __slots__ = ()

    def __index__(self) -> int:
        return self.node.guard_int("", 0)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.node.guard_int("", 0))

    def __round__(self, ndigits: int | None = None) -> Any:
        return self

    def __sym_int__(self) -> SymInt:
        return self

    def __sym_float__(self) -> Any:
        return self.node.unary("sym_float")

    def as_integer_ratio(self) -> tuple[SymInt, int]:
        """The number as an exact ratio: itself and 1."""
        return self, 1

    def conjugate(self) -> SymInt:
        """The number itself."""
        return self

    def is_integer(self) -> bool:
        """True."""
        return True

    def bit_length(self) -> int:
        """Bits of the number, which is guarded."""
        return int(self).bit_length()

    __and__, __rand__ = _binary("bitwise_and"), _binary("bitwise_and", True)
    __or__, __ror__ = _binary("bitwise_or"), _binary("bitwise_or", True)
    __xor__, __rxor__ = _binary("bitwise_xor"), _binary("bitwise_xor", True)
    __lshift__, __rlshift__ = _binary("lshift"), _binary("lshift", True)
    __rshift__, __rrshift__ = _binary("rshift"), _binary("rshift", True)


class SymFloat(_Number):
    """A float that stands for any value. `float()` of it, and choices by it, add guards.

    Args:
        node: what holds its expression; `ShapeEnv.create_symfloatnode` makes one.
    """

    __slots__ = ()

    def __float__(self) -> float:
        return self.node.guard_float("", 0)

    def __hash__(self) -> int:
        return hash(float(self))                      # a guard: what is found by it is found by this number alone

    __eq__, __ne__ = _binary("eq"), _binary("ne")  # type: ignore[assignment]  # a class with a hash of its own has these too

    def __int__(self) -> int:
        return int(self.node.unary("trunc"))

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(float(self), ndigits) if ndigits is not None else self.node.unary("round")

    def __sym_int__(self) -> Any:
        return self.node.unary("trunc")

    def __sym_float__(self) -> SymFloat:
        return self

    def is_integer(self) -> Any:
        """Whether the number is whole: a SymBool, or a bool where that is known."""
        return self.node.unary("is_integer")

    def as_integer_ratio(self) -> tuple[int, int]:
        """The number, which is guarded, as an exact ratio of ints."""
        return float(self).as_integer_ratio()

    def conjugate(self) -> SymFloat:
        """The number itself."""
        return self

    def hex(self) -> str:
        """The number, which is guarded, in hexadecimal."""
        return float(self).hex()


class SymBool(_Symbolic):
    """A bool that stands for either value. `bool()` of it, as in ``if``, adds a guard; ``&``, ``|`` and `sym_not` add none.

    Args:
        node: what holds its expression; `ShapeEnv.create_symboolnode` makes one.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return self.node.guard_bool("", 0)

    def __int__(self) -> int:
        return int(bool(self))

    __index__ = __int__

    __and__, __rand__ = _binary("and_"), _binary("and_", True)
    __or__, __ror__ = _binary("or_"), _binary("or_", True)
    __eq__, __ne__ = _binary("eq"), _binary("ne")  # type: ignore[assignment]  # they give SymBools
    # Numbers made of bools.
    __add__, __radd__ = _binary("add"), _binary("add", True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", True)

    def __invert__(self) -> Any:
        return self.node.unary("sym_not")

    def __hash__(self) -> int:
        return hash(bool(self))


_NUMBERS = (int, float, SymInt, SymFloat, SymBool)
_WORDS = {"bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor"}  # names of functions of `operator` that are others here
_SYMBOLIC = (SymInt, SymFloat, SymBool)


def as_size(n: Any) -> Any:
    """`n`, an int or a SymInt, or the int that it is to Python. Raises: TypeError if it is none, as a bool is to PyTorch."""
    if n.__class__ is int or n.__class__ is SymInt:
        return n
    if n.__class__ is bool:
        raise TypeError(f"a size must be int, not bool: {n}")
    return index(n)


def is_claimed_to_be_a_size(n: SymInt) -> bool:
    """Whether `n`, which values of tensors may decide, is at least 0: then the graph asserts it, and it counts as a size from now on."""
    claim = n >= 0
    holds = claim.node.expect_true("", 0) if isinstance(claim, SymBool) else bool(claim)
    n.node.shape_env.facts.size_like |= {s for s in (n.node.expr,) if s.is_Symbol}
    return holds


LAST = (1 << 63) - 1                                  # stands for the end in operators, whatever the size


def slice_bounds(key: slice, n: Any) -> tuple[Any, Any, int]:
    """``key.indices(n)`` for a positive step, of a size and bounds that may be symbolic; a stop before the start is the start."""
    start = 0 if key.start is None else as_size(key.start)
    stop = n if key.stop is None or key.stop.__class__ is int and key.stop >= LAST else as_size(key.stop)
    step = 1 if key.step is None else index(key.step)
    if not any(x.__class__ is SymInt for x in (start, stop, n)):
        return key.indices(n)
    start, stop = _within(start, n), n if stop is n else _within(stop, n)
    return start, start if stop < start else stop, step


def _within(at: Any, n: Any) -> Any:
    """`at`, counted from the end where it is negative, between 0 and `n`."""
    if at < 0:
        at = at + n
        return 0 if at < 0 else at
    return n if at > n else at


class _Fresh(threading.local):
    """Makes sizes that values decide, while an operation is answered for tensors without values; None raises instead."""

    size: Any = None


fresh = _Fresh()


def sym_int(a: Any) -> Any:
    """`a` as an int, towards zero."""
    if isinstance(a, SymBool):
        return int(a)
    return a.__sym_int__() if isinstance(a, _Number) else int(a)  # type: ignore[attr-defined]  # both classes have it


def sym_float(a: Any) -> Any:
    """`a` as a float."""
    return a.__sym_float__() if isinstance(a, _Number) else float(a)  # type: ignore[attr-defined]  # both classes have it


def sym_not(a: Any) -> Any:
    """The negation of `a`."""
    return ~a if isinstance(a, SymBool) else not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers; a float if either is one. Of symbolic ones without a choice between them."""
    if isinstance(a, _SYMBOLIC):
        return a.node.binary("sym_max", b)
    if isinstance(b, _SYMBOLIC):
        return b.node.binary("sym_max", a)
    larger = max(a, b)
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers; a float if either is one. Of symbolic ones without a choice between them."""
    if isinstance(a, _SYMBOLIC):
        return a.node.binary("sym_min", b)
    if isinstance(b, _SYMBOLIC):
        return b.node.binary("sym_min", a)
    smaller = min(a, b)
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b` holds, else `f`, which must be of the same type. Raises: AssertionError otherwise."""
    kinds = [_kind(x) for x in (b, t, f)]
    if kinds[0] is not bool or kinds[1] is not kinds[2]:
        raise AssertionError(f"sym_ite takes a bool and two values of one type, got {b!r}, {t!r} and {f!r}")
    return b.node.choose(t, f) if isinstance(b, SymBool) else t if b else f


def _kind(x: Any) -> type:
    return {SymInt: int, SymFloat: float, SymBool: bool}.get(type(x), type(x))


def sym_sum(args: Any) -> Any:
    """The sum of several numbers."""
    total: Any = 0
    for n in args:
        total = total + n
    return total


def sym_sqrt(a: Any) -> Any:
    """The square root of a number."""
    return a.node.unary("sqrt") if isinstance(a, _SYMBOLIC) else math.sqrt(a)


def sym_fresh_size(expr: Any) -> Any:
    """A new unbacked size in the environment of `expr`, a SymInt; a plain number has none and is given back."""
    return expr.node.shape_env.create_unbacked_symint() if isinstance(expr, SymInt) else expr
