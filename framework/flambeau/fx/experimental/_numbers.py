"""Symbolic numbers as nodes of a graph: those of sizes, and of what is computed from them."""

from __future__ import annotations

import math
import operator
from typing import Any

from ..._native_functions import sym_float, sym_int, sym_ite, sym_max, sym_min, sym_not, sym_sqrt
from ..._symbolic import SymBool, SymFloat, SymInt
from ..node import Node

__all__ = ["Numbers", "has_symbols", "holds_symbols"]

_SYMBOLIC = (SymInt, SymFloat, SymBool)


def has_symbols(array: Any) -> bool:
    """Whether a size, stride or the offset of an array of the meta device is symbolic."""
    return any(n.__class__ is SymInt for n in (*array.shape, *array.strides, array.offset))


def holds_symbols(x: Any, depth: int = 3) -> bool:
    """Whether an object that is no tensor has a symbolic number in it: in its attributes, items, or what a function closes over."""
    if isinstance(x, _SYMBOLIC):
        return True
    if x is None or isinstance(x, (int, float, complex, str, type)) or not depth:
        return False
    if isinstance(x, (tuple, list, set, frozenset)):
        parts: list[Any] = list(x)
    elif isinstance(x, dict):
        parts = list(x.values())
    else:
        closed = [c.cell_contents for c in getattr(x, "__closure__", None) or ()]
        slots = [getattr(x, s, None) for cls in type(x).__mro__ for s in getattr(cls, "__slots__", ())]
        parts = [*closed, *slots, *getattr(x, "__dict__", {}).values()]
    return any(holds_symbols(p, depth - 1) for p in parts)


class Numbers:
    """Makes nodes for symbolic numbers, each when it is first an argument.

    A symbol is the size of a tensor that has a node, or has a node itself. What is computed is a tree of nodes after its expression,
    and equal expressions are one node.
    """

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.nodes: dict[Any, Node] = {}              # by expression and whether it is a float
        self.sizes: dict[Any, tuple[Node, str, int | None]] = {}  # of symbols: a tensor's node, the operator and the dimension

    def know(self, number: Any, node: Node) -> None:
        """Learn that `node` gives `number`."""
        node.meta["val"] = number
        expr = number.node._expr
        if isinstance(number, SymBool):               # of a new symbol that is 0 or 1
            self.nodes[expr, bool] = node
            symbol = next(iter(expr.free_symbols))
            self.nodes.setdefault((symbol, int), node)
        else:
            self.nodes[expr, number.node.pytype] = node

    def sizes_of(self, tensor: Any, node: Node) -> None:
        """Learn which symbols are sizes, strides or the offset of `tensor`, which `node` gives."""
        a = tensor._array
        for operator_, numbers in (("sym_size", a.shape), ("sym_stride", tensor.stride())):
            for d, n in enumerate(numbers):
                if n.__class__ is SymInt and n.node._expr.is_Symbol:
                    self.sizes.setdefault(n.node._expr, (node, operator_, d))
        offset = tensor.storage_offset()
        if offset.__class__ is SymInt and offset.node._expr.is_Symbol:
            self.sizes.setdefault(offset.node._expr, (node, "sym_storage_offset", None))

    def forget_erased(self) -> None:
        """Forget nodes that are no longer in the graph."""
        there = set(self.tracer.graph.nodes)
        self.nodes = {k: n for k, n in self.nodes.items() if n in there}
        self.sizes = {k: found for k, found in self.sizes.items() if found[0] in there}

    def node_of(self, number: Any) -> Any:
        """The node of a symbolic number; a plain number if it is one by now. Raises: NotImplementedError for one of elsewhere."""
        env, kind = number.node.shape_env, number.node.pytype
        expr = number.node.expr
        found = self.nodes.get((number.node._expr, kind))
        if found is not None:
            return found
        if expr.is_number or not hasattr(expr, "free_symbols") or not expr.free_symbols:
            return kind(expr)
        return self.built(expr, env, kind)

    def built(self, expr: Any, env: Any, kind: Any = int) -> Any:
        """The node of an expression, or a number of Python."""
        if expr.is_number:
            return int(expr) if expr.is_Integer else float(expr)
        if expr in _truths():
            return bool(expr)
        found = self.nodes.get((expr, kind))
        if found is None:
            found = self.nodes[expr, kind] = self._make(expr, env, kind)
        return found

    def _call(self, target: Any, args: tuple[Any, ...], expr: Any, env: Any, kind: Any, name: str | None = None) -> Node:
        from .sym_node import SymNode

        node = self.tracer.create_node("call_function", target, args, {}, name)
        node.meta["val"] = {int: SymInt, float: SymFloat, bool: SymBool}[kind](SymNode(expr, env, kind))
        return node

    def _make(self, expr: Any, env: Any, kind: Any) -> Node:
        from ...utils._sympy import sympy

        if kind is float and expr.is_integer:
            return self._call(sym_float, (self.built(expr, env),), expr, env, float)
        if expr.is_Symbol:
            return self._size(expr, env, kind)
        if expr.is_Add or expr.is_Mul:
            word: Any = operator.add if expr.is_Add else operator.mul
            first, *rest = _ordered(expr)
            made = self.built(first, env, kind)
            done = first
            for part in rest:
                done = expr.func(done, part)
                if expr.is_Add and part.could_extract_minus_sign():
                    made = self._call(operator.sub, (made, self.built(-part, env, kind)), done, env, kind)
                else:
                    made = self._call(word, (made, self.built(part, env, kind)), done, env, kind)
            return made
        if expr.is_Pow and expr.exp == sympy.Rational(1, 2):
            return self._call(sym_sqrt, (self.built(expr.base, env),), expr, env, kind)
        if expr.is_Pow and expr.exp == -1:
            below = self.built(expr.base, env, int if expr.base.is_integer else float)
            return self._call(operator.truediv, (1, below), expr, env, kind)
        if isinstance(expr, sympy.Not):
            return self._call(sym_not, (self.built(expr.args[0], env, bool),), expr, env, bool)
        if isinstance(expr, (sympy.Max, sympy.Min)):
            return self._folded(sym_max if isinstance(expr, sympy.Max) else sym_min, expr, env, kind)
        if isinstance(expr, (sympy.And, sympy.Or)):
            return self._folded(operator.and_ if isinstance(expr, sympy.And) else operator.or_, expr, env, bool)
        if isinstance(expr, sympy.Piecewise):
            (value, condition), (other, _) = expr.args
            return self._call(sym_ite, (self.built(condition, env, bool), self.built(value, env, kind), self.built(other, env, kind)),
                              expr, env, kind)  # fmt: skip
        word = _words().get(type(expr))
        if word is None:
            raise NotImplementedError(f"make_fx: a node for the symbolic number {expr} is not built: {type(expr).__name__} of sizes")
        inner = float if isinstance(expr, sympy.core.relational.Relational) and not all(a.is_integer for a in expr.args) else None
        args = tuple([self.built(a, env, inner or (int if a.is_integer else float)) for a in expr.args])
        return self._call(word, args, expr, env, kind)

    def _folded(self, word: Any, expr: Any, env: Any, kind: Any) -> Node:
        first, *rest = expr.args
        made, done = self.built(first, env, kind), first
        for part in rest:
            done = expr.func(done, part)
            made = self._call(word, (made, self.built(part, env, kind)), done, env, kind)
        return made

    def _size(self, symbol: Any, env: Any, kind: Any) -> Node:
        import flambeau

        place = self.sizes.get(symbol)
        if place is None:
            raise NotImplementedError(
                f"make_fx: the number {symbol} is of no tensor that is recorded, so the graph cannot compute it; hand in that tensor"
            )
        node, name, d = place
        overload = getattr(flambeau.ops.aten, name)
        if d is None:
            return self._call(overload.default, (node,), symbol, env, int, name)
        return self._call(overload.int, (node, d), symbol, env, int, f"{name}_int")


def _ordered(expr: Any) -> list[Any]:
    """The parts of a sum or product as people write them: symbols first, numbers and what is taken away last."""
    return sorted(expr.args, key=lambda a: (a.is_number, expr.is_Add and a.could_extract_minus_sign(), str(a)))


def _truths() -> tuple[Any, ...]:
    from ...utils._sympy import sympy

    return sympy.true, sympy.false


def _words() -> dict[type, Any]:
    """Functions of Python for those of expressions."""
    from ...utils._sympy import sympy
    from ...utils._sympy.functions import FloorDiv, IntTrueDiv, LShift, Mod, PowByNatural, RoundToInt, RShift, TruncToInt

    return {
        FloorDiv: operator.floordiv, Mod: operator.mod, IntTrueDiv: operator.truediv, TruncToInt: sym_int, RoundToInt: round,
        LShift: operator.lshift, RShift: operator.rshift, sympy.floor: math.floor, sympy.ceiling: math.ceil,
        sympy.Abs: operator.abs, sympy.Pow: operator.pow, PowByNatural: operator.pow,
        sympy.Eq: operator.eq, sympy.Ne: operator.ne, sympy.Lt: operator.lt, sympy.Le: operator.le, sympy.Gt: operator.gt,
        sympy.Ge: operator.ge,
    }  # fmt: skip
