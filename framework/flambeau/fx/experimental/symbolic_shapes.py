"""Symbolic shapes: sizes that stand for any value, what is asked of them, and where those that values decide come from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..._subclasses.fake_tensor import FakeTensor
from ..._symbolic import SymBool, SymFloat, SymInt
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ...utils._pytree import SequenceKey
from ...utils._sympy import sympy
from ...utils._sympy.value_ranges import ValueRanges, int_oo
from ..interpreter import Interpreter
from ..node import Node
from ._dim_constraints import (
    Constraint,
    ConstraintViolationError,
    DimConstraint,
    DimDynamic,
    EqualityConstraint,
    RelaxedUnspecConstraint,
    StatefulSymbolicContext,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
    SubclassSymbolicContext,
    SymbolicContext,
)
from ._dim_solver import DimConstraints
from ._shape_env import (
    GuardOnDataDependentSymNode,
    RuntimeAssert,
    ShapeEnv,
    ShapeEnvSettings,
    ShapeGuard,
    SLoc,
)
from .sym_node import SymNode, SymTypes

__all__ = [
    "CallMethodKey", "Constraint", "ConstraintViolationError", "ConvertIntKey", "DimConstraint", "DimConstraints", "DimDynamic",
    "DivideByKey", "EqualityConstraint", "GuardOnDataDependentSymNode", "InnerTensorKey", "PendingUnbackedSymbolNotFound",
    "PropagateUnbackedSymInts", "RelaxedUnspecConstraint", "RuntimeAssert", "SLoc", "ShapeEnv", "ShapeEnvSettings", "ShapeGuard",
    "StatefulSymbolicContext", "StatelessSymbolicContext", "StrictMinMaxConstraint", "SubclassSymbolicContext", "SymNode", "SymTypes",
    "SymbolicContext", "bind_symbols", "canonicalize_bool_expr", "check_consistent", "compute_unbacked_bindings", "constrain_range",
    "constrain_unify", "definitely_false", "definitely_true", "eval_guards", "expect_true", "free_symbols", "free_unbacked_symbols",
    "fx_placeholder_targets", "fx_placeholder_vals", "guard_bool", "guard_float", "guard_int", "guard_or_false", "guard_or_true",
    "guard_scalar", "guard_size_oblivious", "has_free_symbols", "has_free_unbacked_symbols", "has_static_value",
    "has_symbolic_sizes_strides", "hint_int", "is_accessor_node",
    "is_concrete_bool", "is_concrete_float", "is_concrete_int", "is_symbolic", "lru_cache",
    "rebind_unbacked", "resolve_unbacked_bindings", "statically_known_false", "statically_known_true", "sym_and", "sym_eq", "sym_or",
]  # fmt: skip

_SYMBOLIC = (SymInt, SymFloat, SymBool)


class PendingUnbackedSymbolNotFound(AssertionError):
    """An operation has made a symbol that nothing of its result shows."""


# -- what is asked ---------------------------------------------------------------------------------------------------------


def is_symbolic(val: Any) -> bool:
    """Whether `val` is a symbolic number."""
    return isinstance(val, _SYMBOLIC)


def hint_int(a: Any, fallback: int | None = None) -> int:
    """What `a`, a SymInt or an int, is for the inputs at hand, without a guard.

    Args:
        fallback: the answer for a number that values of tensors decide.
    Raises: GuardOnDataDependentSymNode for such a number if there is no fallback.
    """
    return a.node.require_hint(fallback) if isinstance(a, SymInt) else _of_type(a, int)


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise AssertionError(f"a {kind.__name__} or a symbolic one is wanted, got {value!r} of type {type(value).__name__}")
    return value


def is_concrete_int(a: Any) -> bool:
    """Whether `a`, an int or a SymInt, is known to be one number."""
    return True if isinstance(a, int) else a.node.expr.is_number


def is_concrete_float(a: Any) -> bool:
    """Whether `a`, a float or a SymFloat, is known to be one number."""
    return True if isinstance(a, float) else a.node.expr.is_number


def is_concrete_bool(a: Any) -> bool:
    """Whether `a`, a bool or a SymBool, is known."""
    return True if isinstance(a, bool) else a.node.maybe_as_bool() is not None


def has_static_value(a: Any) -> bool:
    """Whether the value of `a` follows from what is known."""
    if not isinstance(a, _SYMBOLIC):
        return True
    return is_concrete_bool(a) if isinstance(a, SymBool) else a.node.shape_env.bound_sympy(a.node.expr).is_singleton()


def _expressions(val: Any) -> list[Any]:
    if isinstance(val, _SYMBOLIC):
        return [val.node.expr]
    if isinstance(val, Tensor):
        return [x.node.expr for x in (*val.shape, *val.stride(), val.storage_offset()) if isinstance(x, _SYMBOLIC)]
    if isinstance(val, (tuple, list)):
        return [e for x in val for e in _expressions(x)]
    return [val] if isinstance(val, sympy.Basic) else []


def free_symbols(val: Any) -> set[Any]:
    """The symbols in numbers, tensors, expressions and sequences of them."""
    return {s for e in _expressions(val) for s in e.free_symbols}


def free_unbacked_symbols(x: Any) -> set[Any]:
    """As `free_symbols`, of those that values of tensors decide."""
    return {s for s in free_symbols(x) if s.name.startswith(("u", "zuf"))}


def has_free_symbols(val: Any) -> bool:
    """Whether there is a symbol in `val`, a number, tensor, expression or sequence of them."""
    return bool(free_symbols(val))


def has_free_unbacked_symbols(x: Any) -> bool:
    """Whether there is a symbol in `x` that values of tensors decide."""
    return bool(free_unbacked_symbols(x))


def has_symbolic_sizes_strides(elem: Tensor) -> bool:
    """Whether a size, a stride or the offset of a tensor is symbolic."""
    return bool(_expressions(elem))


def statically_known_true(x: Any) -> bool:
    """Whether `x`, a bool or SymBool, is known to hold; no guard is added."""
    return x.node.maybe_as_bool() is True if isinstance(x, SymBool) else bool(_of_type(x, bool))


def statically_known_false(x: Any) -> bool:
    """Whether `x`, a bool or SymBool, is known not to hold; no guard is added."""
    return x.node.maybe_as_bool() is False if isinstance(x, SymBool) else not _of_type(x, bool)


def definitely_true(a: Any) -> bool:
    """Whether `a` is sure to hold: a guard where inputs tell, and False where values of tensors decide."""
    return _truth_where_known(a, False)


def definitely_false(a: Any) -> bool:
    """Whether `a` is sure not to hold: a guard where inputs tell, and False where values of tensors decide."""
    return not _truth_where_known(a, True)


def guard_or_false(a: Any) -> bool:
    """`a` with a guard; False where values of tensors decide."""
    return _truth_where_known(a, False)


def guard_or_true(a: Any) -> bool:
    """`a` with a guard; True where values of tensors decide."""
    return _truth_where_known(a, True)


def _truth_where_known(a: Any, otherwise: bool) -> bool:
    if not isinstance(a, SymBool):
        return bool(_of_type(a, bool))
    return bool(a.node.shape_env.evaluate_expr(a.node._expr, fallback_value=otherwise))


def guard_size_oblivious(expr: Any) -> bool:
    """`expr`, a bool or SymBool, with a guard; sizes that values of tensors decide count as larger than 1."""
    return expr.node.guard_size_oblivious("", 0) if isinstance(expr, SymBool) else _of_type(expr, bool)


def guard_bool(a: Any) -> bool:
    """`a`, a bool or SymBool, as a bool, with a guard."""
    return a.node.guard_bool("", 0) if isinstance(a, SymBool) else _of_type(a, bool)


def guard_int(a: Any) -> int:
    """`a`, an int or SymInt, as an int, with a guard."""
    return a.node.guard_int("", 0) if isinstance(a, SymInt) else _of_type(a, int)


def guard_float(a: Any) -> float:
    """`a`, a float or SymFloat, as a float, with a guard."""
    return a.node.guard_float("", 0) if isinstance(a, SymFloat) else _of_type(a, float)


def guard_scalar(a: Any) -> Any:
    """A number of any kind as a plain one, with a guard."""
    kinds: dict[type, Callable[[Any], Any]] = {SymInt: guard_int, SymFloat: guard_float, SymBool: guard_bool}
    if type(a) in kinds:
        return kinds[type(a)](a)
    if not isinstance(a, (bool, int, float)):
        raise AssertionError(f"unrecognized scalar {a}: a bool, an int, a float or a symbolic one is wanted")
    return a


def expect_true(a: Any, skip: int = 0) -> bool:
    """Claim that `a` holds: a guard, or, where values of tensors decide, what the graph asserts.

    Args:
        skip: accepted; the line of the program is found without it.
    Returns: whether it holds, as far as is known.
    """
    return a.node.expect_true("", 0) if isinstance(a, SymBool) else _of_type(a, bool)


def sym_and(x: Any, *others: Any) -> Any:
    """Whether all hold, without a guard."""
    for other in others:
        x = x & other
    return x


def sym_or(x: Any, *others: Any) -> Any:
    """Whether one holds, without a guard."""
    for other in others:
        x = x | other
    return x


def sym_eq(x: Any, y: Any) -> Any:
    """``x == y`` without a guard, of numbers or of sequences of them, nested or not.

    Raises: AssertionError for things of different kinds.
    """
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and (not x or sym_and(*[sym_eq(a, b) for a, b in zip(x, y, strict=True)]))
    if isinstance(x, (int, SymInt, SymBool, bool)) and isinstance(y, (int, SymInt, SymBool, bool)):
        return x == y
    raise AssertionError(f"unexpected sym_eq between {type(x)} {type(y)}")


def constrain_range(a: Any, *, min: int | None, max: int | None = None) -> None:
    """Say that `a` lies between `min` and `max`, both included, without a guard. None is no bound.

    Raises: ValueError if the plain number `a` does not; ValueRangeError if it is known that it does not.
    """
    low, high = -int_oo if min is None else min, int_oo if max is None else max
    if high < low:
        raise ValueError(f"Maximum value to constrain_as_size can't be less than the specified min value, received min={min} and max={max}")
    if isinstance(a, int):
        if not low <= a <= high:
            raise ValueError(f"Invalid value {a} for range [{low}:{high}]")
        return
    if not isinstance(a, SymInt):
        raise AssertionError(f"Constraining SymFloat/SymBool is nyi: an int or SymInt is wanted, got {type(a).__name__}")
    a.node.shape_env.facts._restrict(a.node.expr, ValueRanges(low, high))


def constrain_unify(a: Any, b: Any) -> None:
    """Say that two numbers are equal, without a guard. Raises: AssertionError for plain numbers that are not."""
    if not isinstance(a, SymInt) and not isinstance(b, SymInt):
        if a != b:
            raise AssertionError(f"constrain_unify: {a} is not {b}")
        return
    env = (a if isinstance(a, SymInt) else b).node.shape_env
    env._learn(sympy.Eq(*[x.node.expr if isinstance(x, SymInt) else sympy.Integer(x) for x in (a, b)]))


def canonicalize_bool_expr(expr: Any) -> Any:
    """A proposition as ``<`` or ``<=`` of sums without negative terms and common factors, so that equal ones look alike."""
    if isinstance(expr, (sympy.And, sympy.Or, sympy.Not)):
        return expr.func(*[canonicalize_bool_expr(a) for a in expr.args], evaluate=False)
    if not isinstance(expr, sympy.core.relational.Relational):
        return expr
    greater = isinstance(expr, (sympy.Gt, sympy.Ge))
    kind = {sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le}.get(type(expr), type(expr))
    low, high = (expr.rhs, expr.lhs) if greater else (expr.lhs, expr.rhs)
    terms = sympy.Add.make_args(sympy.expand(high - low))
    factors = [t.as_coeff_Mul()[0] for t in terms]
    common = sympy.gcd_list(factors) if all(f.is_Integer for f in factors) else 1
    positive = [t / common for t, f in zip(terms, factors, strict=True) if f > 0]
    negative = [-t / common for t, f in zip(terms, factors, strict=True) if f <= 0]
    low, high = sympy.Add(*negative), sympy.Add(*positive)
    if kind in (sympy.Eq, sympy.Ne) and high.is_number:
        low, high = high, low
    if kind in (sympy.Eq, sympy.Ne) and low.is_number:
        low, high = high, low
    return kind(low, high, evaluate=False)


def lru_cache(maxsize: int | None) -> Callable[[Callable[..., Any]], Any]:
    """As `functools.lru_cache`, of functions of expressions."""
    return functools.lru_cache(maxsize)


def check_consistent(new: Any, old: Any) -> None:
    """Raise RuntimeError unless two tensors have the same sizes, or two numbers are the same; symbolic ones get guards."""
    from ... import _native_functions

    if isinstance(new, Tensor):
        if not isinstance(old, Tensor):
            raise AssertionError(f"check_consistent: a tensor stands beside a {type(old).__name__}")
        _native_functions._check(old.dim() == new.dim(), lambda: f"{old.shape} != {new.shape} (old != new)")
        for i, j in zip(old.shape, new.shape, strict=True):
            _native_functions._check(i == j, lambda: f"{old.shape} != {new.shape} (old != new)")
    elif isinstance(new, (int, float, SymInt, SymFloat)) and not isinstance(new, bool):
        if isinstance(old, bool) or not isinstance(old, (int, float, SymInt, SymFloat)):
            raise AssertionError(f"check_consistent: a number stands beside a {type(old).__name__}")
        _native_functions._check(old == new, lambda: f"{old} != {new} (old != new)")


# -- what values decide ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConvertIntKey:
    """A step of a path: a bool as an int."""

    def __str__(self) -> str:
        return ".cast_symbool_to_symint_guardless()"

    def get(self, b: Any) -> Any:
        """1 where `b` holds, else 0."""
        return b.node.choose(1, 0) if isinstance(b, SymBool) else int(b)


@dataclass(frozen=True)
class CallMethodKey:
    """A step of a path: the result of the method `name`."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}()"

    def get(self, o: Any) -> Any:
        """What the method of `o` gives."""
        return getattr(o, self.name)()


@dataclass(frozen=True)
class InnerTensorKey:
    """A step of a path: the attribute `inner_name` of a wrapper subclass."""

    inner_name: str

    def __str__(self) -> str:
        return f".{self.inner_name}"

    def get(self, o: Any) -> Any:
        """The attribute of `o`."""
        return getattr(o, self.inner_name)


@dataclass(frozen=True)
class DivideByKey:
    """A step of a path: the number divided by `divisor`."""

    divisor: Any

    def __str__(self) -> str:
        return f".__floordiv__({self.divisor})"

    def get(self, o: int) -> int:
        """The quotient."""
        return o // self.divisor


def compute_unbacked_bindings(
    shape_env: ShapeEnv | None, example_value: Any, old_example_value: Any = None, peek: bool = False
) -> dict[Any, tuple[Any, ...]] | None:
    """Where in `example_value`, the result of an operation, the symbols are that it made: a path for each.

    Args:
        shape_env: whose pending symbols they are; they are pending no more afterwards.
        old_example_value: an earlier result of the operation, whose symbols are taken over where they stand in the same places.
        peek: leave the symbols pending.
    Returns: None if nothing is pending.
    Raises: PendingUnbackedSymbolNotFound if a pending symbol is nowhere.
    """
    if shape_env is None or not shape_env.pending_fresh_unbacked_symbols:
        return None
    pending = set(shape_env.pending_fresh_unbacked_symbols)
    if not peek:
        shape_env.pending_fresh_unbacked_symbols.clear()
    found: dict[Any, tuple[Any, ...]] = {}
    for path, leaf in pytree.tree_leaves_with_path(example_value):
        for tail, number in _numbers_of(leaf):
            expr = number.node._expr
            symbols = expr.free_symbols & (pending - found.keys())
            if len(symbols) != 1:
                continue
            symbol = next(iter(symbols))
            if isinstance(number, SymBool) and expr == sympy.Eq(symbol, 1):
                found[symbol] = (*path, *tail, ConvertIntKey())
            elif expr == symbol:
                found[symbol] = (*path, *tail)
            elif expr.is_Mul and (expr / symbol).is_Integer:
                found[symbol] = (*path, *tail, DivideByKey(int(expr / symbol)))
    if pending - found.keys():
        raise PendingUnbackedSymbolNotFound(
            f"Pending unbacked symbols {pending - found.keys()} not in returned outputs {example_value}: an operation has to return what "
            "shows them"
        )
    if old_example_value is not None:
        for symbol, path in found.items():
            old = pytree.key_get(old_example_value, path)
            if isinstance(old, SymInt) and old.node._expr != symbol:
                shape_env._learn(sympy.Eq(symbol, old.node._expr))
    return found


def _numbers_of(leaf: Any) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(leaf, _SYMBOLIC):
        return [((), leaf)]
    if not isinstance(leaf, Tensor):
        return []
    found: list[tuple[tuple[Any, ...], Any]] = []
    for method, numbers in (("size", leaf.shape), ("stride", leaf.stride())):
        found += [((CallMethodKey(method), SequenceKey(i)), n) for i, n in enumerate(numbers)]
    found.append(((CallMethodKey("storage_offset"),), leaf.storage_offset()))
    return [(path, n) for path, n in found if isinstance(n, _SYMBOLIC)]


def resolve_unbacked_bindings(shape_env: ShapeEnv | None, bindings: Any) -> Any:
    """`bindings` by the symbols that have taken the place of those in it."""
    if bindings is None or shape_env is None:
        return bindings
    return {shape_env.replace(symbol): path for symbol, path in bindings.items()}


def rebind_unbacked(shape_env: ShapeEnv | None, n: Node, result: Any) -> None:
    """Say that the new symbols in `result`, of the node `n` that is run anew, are those that its first run made.

    Args:
        shape_env: of the symbols; without one there are none.
    """
    bindings = resolve_unbacked_bindings(shape_env, n.meta.get("unbacked_bindings"))
    if not bindings or shape_env is None:
        return
    for symbol, path in bindings.items():
        new = pytree.key_get(result, path)
        expr = new.node._expr if isinstance(new, SymInt) else sympy.Integer(int(new))
        if expr != symbol and symbol.is_Symbol:
            shape_env._learn(sympy.Eq(*((expr, symbol) if expr.is_Symbol else (symbol, expr))))


class PropagateUnbackedSymInts(Interpreter):
    """Runs a graph on fake tensors, with the symbols of its first run for numbers that values decide."""

    def run_node(self, n: Node) -> Any:
        """As `Interpreter.run_node`, followed by `rebind_unbacked`."""
        result = super().run_node(n)
        modes = [x.fake_mode for x in pytree.tree_leaves((result, list(self.env.values()))) if isinstance(x, FakeTensor)]
        rebind_unbacked(modes[0].shape_env if modes else None, n, result)
        return result


# -- graphs ----------------------------------------------------------------------------------------------------------------


def is_accessor_node(node: Node) -> bool:
    """Whether `node` asks a tensor for its size, stride or offset, or takes an item of what does."""
    import flambeau

    if node.op == "call_method":
        return isinstance(node.args[0], Node) and isinstance(node.args[0].meta.get("example_value", node.args[0].meta.get("val")), Tensor) \
            and node.target in ("size", "stride", "storage_offset", "item")  # fmt: skip
    packets = [getattr(flambeau.ops.aten, name) for name in ("sym_size", "sym_stride", "sym_storage_offset", "sym_numel")]
    return node.op == "call_function" and (node.target in packets or getattr(node.target, "overloadpacket", None) in packets)


def fx_placeholder_vals(gm: Any) -> list[Any]:
    """What stood for each input when a GraphModule was recorded."""
    return [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]


def fx_placeholder_targets(gm: Any) -> list[str]:
    """The names of the inputs of a GraphModule."""
    return [n.target for n in gm.graph.nodes if n.op == "placeholder"]


def eval_guards(gm: Any, *args: Tensor, ignore_static: bool = True) -> bool:
    """Whether the guards of a GraphModule, recorded with symbols, hold for the inputs `args`.

    Args:
        ignore_static: let sizes that are numbers for the whole recording be others.
    """
    return gm.shape_env.evaluate_guards_for_args(fx_placeholder_vals(gm), args, ignore_static=ignore_static)


def bind_symbols(gm: Any, *args: Tensor) -> dict[Any, int]:
    """What each symbol of a GraphModule is for the inputs `args`."""
    return gm.shape_env.bind_symbols(fx_placeholder_vals(gm), args)
