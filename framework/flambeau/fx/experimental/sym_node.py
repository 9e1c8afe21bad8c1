"""The node of a symbolic number: its expression, and the environment that knows what holds of the symbols in it."""

from __future__ import annotations

import math
from typing import Any

from ..._symbolic import SymBool, SymFloat, SymInt
from ...utils._sympy import sympy
from ...utils._sympy.functions import (
    Bitwise,
    FloorDiv,
    IntTrueDiv,
    LShift,
    Mod,
    PowByNatural,
    RoundToInt,
    RShift,
    TruncToInt,
)

__all__ = ["SymNode", "SymTypes", "py_sym_types"]

SymTypes = py_sym_types = (SymInt, SymFloat, SymBool)

_RELATIONS = {"eq": sympy.Eq, "ne": sympy.Ne, "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge}
_ROUNDED = {"trunc": TruncToInt, "round": RoundToInt, "floor": sympy.floor, "ceil": sympy.ceiling}
_BITS = {"bitwise_and": 0, "bitwise_or": 1, "bitwise_xor": 2}


class SymNode:
    """What a SymInt, SymFloat or SymBool is.

    Args:
        expr: an expression of sympy's.
        shape_env: the environment of its symbols.
        pytype: `int`, `float` or `bool`.
        hint: the value for the inputs at hand; worked out where it is None.
        constant, fx_node: accepted; nothing reads them here.
    """

    def __init__(
        self, expr: Any, shape_env: Any, pytype: type, hint: Any = None, constant: Any = None, fx_node: Any = None,
    ) -> None:  # fmt: skip
        self._expr, self.shape_env, self.pytype = expr, shape_env, pytype
        self.constant, self.fx_node = constant, fx_node
        self._hint = hint

    @property
    def expr(self) -> Any:
        """The expression, with what is known by now of the symbols."""
        return self.shape_env.replace(self._expr)

    @property
    def hint(self) -> Any:
        """The value for the inputs at hand; None where it depends on values of tensors."""
        return self._hint if self._hint is not None else self.shape_env.hint_of(self._expr, self.pytype)

    def has_hint(self) -> bool:
        """Whether there is a `hint`."""
        return self.hint is not None

    def require_hint(self, fallback: Any = None) -> Any:
        """`hint`, or `fallback`. Raises: GuardOnDataDependentSymNode where there is neither."""
        if self.hint is None and fallback is None:
            raise self.shape_env.data_dependent(self._expr)
        return fallback if self.hint is None else self.hint

    def maybe_as_int(self) -> int | None:
        """The number, if the expression is one."""
        expr = self.expr
        return int(expr) if expr.is_number and self.pytype is int else None

    def maybe_as_float(self) -> float | None:
        """The number, if the expression is one."""
        expr = self.expr
        return float(expr) if expr.is_number and self.pytype is float else None

    def maybe_as_bool(self) -> bool | None:
        """The value, if it follows from what is known."""
        return self.shape_env.static_truth(self.expr)

    def is_int(self) -> bool:
        """Whether it is the node of a SymInt."""
        return self.pytype is int

    def is_float(self) -> bool:
        """Whether it is the node of a SymFloat."""
        return self.pytype is float

    def is_bool(self) -> bool:
        """Whether it is the node of a SymBool."""
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        """False: sizes of jagged tensors are numbers here."""
        return False

    def is_constant(self) -> bool:
        """False: constants are plain numbers."""
        return False

    def is_symbolic(self) -> bool:
        """True."""
        return True

    def str(self) -> str:
        """The expression as text."""
        return f"{self.expr}"

    __str__ = str

    def __repr__(self) -> Any:
        return f"SymNode({self._expr}, hint={self.hint}, pytype={self.pytype.__name__})"

    # -- what asks for the value

    def guard_int(self, file: Any, line: Any) -> int:
        """The number for the inputs at hand, which the environment takes for the number from here on."""
        return int(self.shape_env.evaluate_expr(self._expr))

    def guard_float(self, file: Any, line: Any) -> float:
        """The number for the inputs at hand, which the environment takes for the number from here on."""
        return float(self.shape_env.evaluate_expr(self._expr))

    def guard_bool(self, file: Any, line: Any) -> bool:
        """The truth for the inputs at hand, which the environment takes for the truth from here on."""
        return bool(self.shape_env.evaluate_expr(self._expr))

    def expect_true(self, file: Any, line: Any) -> bool:
        """True, which is a guard, or, of values of tensors, what the graph asserts."""
        return self.shape_env.guard_or_defer_runtime_assert(self._expr, f"{file}:{line}")

    def guard_size_oblivious(self, file: Any, line: Any) -> bool:
        """`guard_bool`, in which sizes that depend on values of tensors count as larger than 1."""
        return bool(self.shape_env.evaluate_expr(self._expr, size_oblivious=True))

    int_, bool_ = (lambda self: self.guard_int("", 0)), (lambda self: self.guard_bool("", 0))

    # -- arithmetic

    def wrap(self, expr: Any, pytype: type) -> Any:
        """The number of `expr`: a plain one where it is known without a guard."""
        if pytype is bool:
            truth = self.shape_env.static_truth(self.shape_env.replace(expr))
            return SymBool(SymNode(expr, self.shape_env, bool)) if truth is None else truth
        if expr.is_number:
            return pytype(expr)
        return (SymInt if pytype is int else SymFloat)(SymNode(expr, self.shape_env, pytype))

    def reflected(self, name: str, other: Any) -> Any:
        """``other <name> self``, of a plain `other`."""
        return SymNode(sympy.sympify(other), self.shape_env, type(other)).binary(name, _wrapped(self))

    def binary(self, name: str, other: Any) -> Any:
        """``self <name> other``, of a number, symbolic or plain."""
        a, kind = self.expr, self.pytype
        if isinstance(other, py_sym_types):
            if other.node.shape_env is not self.shape_env:
                raise RuntimeError(f"{name}: {self.str()} and {other} are of two environments; make both by one ShapeEnv")
            b, other_kind = other.node.expr, other.node.pytype
        else:
            if isinstance(other, float) and not math.isfinite(other) and name in _RELATIONS:
                return self._beside_infinity(name, other)
            b, other_kind = sympy.sympify(other), type(other)
        if name in ("and_", "or_"):
            return self.wrap((sympy.And if name == "and_" else sympy.Or)(a, b), bool)
        if kind is bool and other_kind is bool and name in ("eq", "ne"):
            same = sympy.Equivalent(a, b)
            return self.wrap(same if name == "eq" else sympy.Not(same), bool)
        a, b = _number(a, kind), _number(b, other_kind)
        are_integers = float not in (kind, other_kind)
        if name in _RELATIONS:
            return self.wrap(_RELATIONS[name](a, b), bool)
        return self.wrap(*self._of_numbers(name, a, b, are_integers, int if are_integers else float))

    def _of_numbers(self, name: str, a: Any, b: Any, are_integers: bool, kind: type) -> tuple[Any, type]:
        if name in ("floordiv", "mod", "truediv") and b.is_number and b == 0:
            raise ZeroDivisionError(f"{name}: division of {a} by zero")
        if name in ("add", "sub"):
            return (a + b if name == "add" else a - b), kind
        if name == "mul":
            return sympy.expand(a * b), kind
        if name == "truediv":
            return (IntTrueDiv(a, b) if are_integers else a / b), float
        if name == "floordiv":
            return (FloorDiv(a, b) if are_integers else sympy.floor(a / b)), kind
        if name == "mod":
            return (Mod(a, b) if are_integers else a - b * sympy.floor(a / b)), kind
        if name in ("sym_max", "sym_min"):
            return self.shape_env.extreme(name[4:], a, b), kind
        if name == "pow":
            if are_integers and not b.is_number and self.shape_env.bound_sympy(b).lower >= 0:
                return PowByNatural(a, b), int
            exponent = int(self.shape_env.evaluate_expr(b)) if are_integers else b  # a negative one makes a float of an int
            return sympy.expand(a**exponent), kind if not are_integers or exponent >= 0 else float
        if name in _BITS:
            return Bitwise(a, b, sympy.Integer(_BITS[name])), int
        return (LShift if name == "lshift" else RShift)(a, b), int

    def _beside_infinity(self, name: str, other: float) -> bool:
        """How a number, which is finite, compares with infinity or nan."""
        return {"eq": False, "ne": True, "lt": other > 0, "le": other > 0, "gt": other < 0, "ge": other < 0}[name]

    def unary(self, name: str) -> Any:
        """``<name>(self)``."""
        a, kind = self.expr, self.pytype
        if name == "sym_not":
            return self.wrap(sympy.Not(a), bool)
        if name == "sym_float":
            return self.wrap(a, float)
        if name in _ROUNDED:
            return self.wrap(a if kind is int else _ROUNDED[name](a), int)
        if name == "is_integer":
            return True if a.is_integer else self.wrap(sympy.Eq(a, sympy.floor(a)), bool)
        if name == "sqrt":
            return self.wrap(sympy.sqrt(a), float)
        if name == "neg":
            return self.wrap(-a, kind)
        return self.wrap(a if self.shape_env.bound_sympy(a).lower >= 0 else sympy.Abs(a), kind)

    def choose(self, t: Any, f: Any) -> Any:
        """`t` if this bool holds, else `f`."""
        pair = [x.node.expr if isinstance(x, py_sym_types) else sympy.sympify(x) for x in (t, f)]
        kind = t.node.pytype if isinstance(t, py_sym_types) else type(t)
        return self.wrap(sympy.Piecewise((pair[0], self.expr), (pair[1], True)), kind)


def _wrapped(node: SymNode) -> Any:
    return {int: SymInt, float: SymFloat, bool: SymBool}[node.pytype](node)


def _number(expr: Any, kind: type) -> Any:
    """`expr` where numbers are wanted: a bool counts as 0 or 1."""
    if kind is not bool:
        return expr
    if expr in (sympy.true, sympy.false) or expr.is_number:
        return sympy.Integer(int(bool(expr)))
    return sympy.Piecewise((1, expr), (0, True))
