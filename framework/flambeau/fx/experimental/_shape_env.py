"""`ShapeEnv`: the symbols of a recording, what they are for the inputs at hand, and what the recording took for granted of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau_kernels

from ..._symbolic import SymBool, SymFloat, SymInt, _Symbolic
from ...utils._sympy import sympy
from ...utils._sympy.value_ranges import ValueRanges, int_oo
from ._dim_constraints import (
    ConstraintViolationError,
    DimDynamic,
    StatefulSymbolicContext,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)
from ._facts import Facts
from ._sources import FUNCTIONS, ConstantSource, LocalSource, Source, TensorProperty, TensorPropertySource
from .sym_node import SymNode

__all__ = ["GuardOnDataDependentSymNode", "RuntimeAssert", "SLoc", "ShapeEnv", "ShapeEnvSettings", "ShapeGuard"]

# Symbols of sympy are Booleans, too.
_PROPOSITIONS = (sympy.logic.boolalg.BooleanFunction, sympy.logic.boolalg.BooleanAtom, sympy.core.relational.Relational)
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_OUR_FOLDERS = (_HERE + os.sep, os.path.dirname(flambeau_kernels.__file__) + os.sep)


class GuardOnDataDependentSymNode(RuntimeError):
    """A choice is to be made by a number that depends on values of tensors, which nobody knows yet. `cond` is what was asked."""

    def __init__(self, cond: Any, *args: Any) -> None:
        super().__init__(*args)
        self.cond = cond


class SLoc(NamedTuple):
    """Where a guard was added: the innermost line of ours, and of the program; whether the program itself asked, no function of ours."""

    framework_loc: str
    maybe_user_loc: str | None
    by_program: bool = False

    def __str__(self) -> str:
        return f"{self.maybe_user_loc or 'no line of the program'} ({self.framework_loc})"


class ShapeGuard(NamedTuple):
    """A proposition that a recording took for granted; `size_oblivious` where a shape rule of an operator asked."""

    expr: Any
    sloc: SLoc
    size_oblivious: bool = False


class RuntimeAssert(NamedTuple):
    """A proposition on numbers that depend on values of tensors, which the graph asserts."""

    expr: Any
    msg: str
    stack: SLoc


@dataclass(frozen=True)
class ShapeEnvSettings:
    """What a ShapeEnv was made with; see there.

    Args:
        allow_scalar_outputs, allow_dynamic_output_shape_ops, assume_static_by_default, specialize_zero_one, duck_shape: as there.
        prefer_deferred_runtime_asserts_over_guards, allow_complex_guards_as_runtime_asserts: noted; nothing reads them here.
    """

    allow_scalar_outputs: bool
    allow_dynamic_output_shape_ops: bool
    assume_static_by_default: bool
    specialize_zero_one: bool
    duck_shape: bool
    prefer_deferred_runtime_asserts_over_guards: bool
    allow_complex_guards_as_runtime_asserts: bool = False


class ShapeEnv:
    """The symbols that stand for sizes in a recording.

    Args:
        should_record_events, tracked_fakes: accepted; nothing is replayed here.
        allow_scalar_outputs: let `item()` of a fake tensor give a new number, without a hint.
        allow_dynamic_output_shape_ops: let operations whose shape depends on values, such as `nonzero`, give tensors of a new size.
        assume_static_by_default: sizes are numbers unless a symbolic context says otherwise.
        specialize_zero_one: sizes 0 and 1 are numbers, as broadcasting treats them apart.
        duck_shape: equal sizes are the same symbol.
        prefer_deferred_runtime_asserts_over_guards, co_fields, trace_asserts: accepted for PyTorch's sake.
        guards_are_facts: a guard is known to hold from then on; else the same may be asked again, and a size is a symbol still after
            the program has asked which number it is.

    What a shape rule or the program asks of a size, and does not follow from what is known, becomes a guard: `guards` lists them, and
    `evaluate_guards_for_args` says whether they hold for other inputs.
    """

    def __init__(
        self, *, should_record_events: bool | None = None, tracked_fakes: list[Any] | None = None, allow_scalar_outputs: bool = True,
        allow_dynamic_output_shape_ops: bool = True, assume_static_by_default: bool = False, specialize_zero_one: bool = True,
        duck_shape: bool | None = None, prefer_deferred_runtime_asserts_over_guards: bool = False, co_fields: Any = None,
        trace_asserts: bool = False, guards_are_facts: bool = True,
    ) -> None:  # fmt: skip
        self.settings = ShapeEnvSettings(
            allow_scalar_outputs, allow_dynamic_output_shape_ops, assume_static_by_default, specialize_zero_one,
            True if duck_shape is None else duck_shape, prefer_deferred_runtime_asserts_over_guards,
        )  # fmt: skip
        self.guards_are_facts = guards_are_facts
        self.tracked_fakes = tracked_fakes
        self.guards: list[ShapeGuard] = []
        self.deferred_runtime_asserts: dict[Any, list[RuntimeAssert]] = {}
        self.var_to_val: dict[Any, Any] = {}
        self.var_to_sources: dict[Any, list[Source]] = {}
        self.source_to_var: dict[str, Any] = {}
        self.val_to_var: dict[int, Any] = {}
        self.replacements: dict[Any, Any] = {}
        self.pending_fresh_unbacked_symbols: list[Any] = []
        self.frozen = self.runtime_asserts_frozen = False
        # Says what an expression is that values decide, which the graph then asserts; None for the error.
        self.decide: Callable[[Any], Any] | None = None
        self.facts = Facts()
        self._names: dict[str, int] = {}
        self._unnamed = itertools.count()
        self._replaced: dict[Any, Any] = {}
        self._suppressed = 0
        self._ignored_fresh = 0

    @property
    def allow_scalar_outputs(self) -> bool:
        """Whether `item()` gives a number without a hint."""
        return self.settings.allow_scalar_outputs

    @property
    def allow_dynamic_output_shape_ops(self) -> bool:
        """Whether shapes may depend on values."""
        return self.settings.allow_dynamic_output_shape_ops

    @property
    def assume_static_by_default(self) -> bool:
        """Whether sizes are numbers where nothing says otherwise."""
        return self.settings.assume_static_by_default

    @property
    def specialize_zero_one(self) -> bool:
        """Whether sizes 0 and 1 are numbers."""
        return self.settings.specialize_zero_one

    @property
    def duck_shape(self) -> bool:
        """Whether equal sizes are one symbol."""
        return self.settings.duck_shape

    @property
    def var_to_range(self) -> dict[Any, ValueRanges]:
        """The range of each symbol."""
        return dict(self.facts.ranges)

    # -- symbols

    def unnamed_source(self) -> Source:
        """A source of its own for a tensor that nobody has said a name of, so that no other tensor gets its symbols."""
        return ConstantSource(f"__fake_tensor_{next(self._unnamed)}")

    def _symbol(self, letter: str, **assumptions: Any) -> Any:
        number = self._names.get(letter, 0)
        self._names[letter] = number + 1
        return sympy.Symbol(f"{letter}{number}", **assumptions)

    def create_symbol(
        self, val: Any, source: Source, dynamic_dim: DimDynamic = DimDynamic.DUCK, constraint_dim: Any = None,
        positive: bool | None = True, do_not_specialize_zero_one: bool = False, symbolic_context: Any = None,
    ) -> Any:  # fmt: skip
        """The expression that stands for a size or another number of the inputs: a symbol, or a number where it is static.

        Args:
            val: the number at hand.
            source: where it comes from.
            dynamic_dim: whether it is the symbol of equal numbers, one of its own, or `val` itself.
            constraint_dim: a `StrictMinMaxConstraint` on it, or None.
            positive: whether it is a size; None for any int.
            do_not_specialize_zero_one: make a symbol for 0 and 1, too.
            symbolic_context: a `StatefulSymbolicContext` gives what it has for the source, and takes what is made.
        """
        known = self.source_to_var.get(source.name())
        if known is not None:
            return known
        if isinstance(symbolic_context, StatefulSymbolicContext):
            kept = symbolic_context.shape_env_to_source_to_symbol_cache.setdefault(id(self), {})
            if source.name() not in kept:
                stateless = StatelessSymbolicContext(symbolic_context.dynamic_sizes)
                kept[source.name()] = self.create_symbol(
                    val, source, dynamic_dim, constraint_dim, positive, do_not_specialize_zero_one, stateless
                )
            return kept[source.name()]
        val = int(val) if isinstance(val, SymInt) else val
        if dynamic_dim is DimDynamic.STATIC or (val in (0, 1) and self.specialize_zero_one and not do_not_specialize_zero_one):
            return sympy.Integer(val)
        if dynamic_dim is DimDynamic.SIZE_LIKE_UNBACKED:
            made = self.create_unbacked_symint().node._expr
            self.constrain_size(made)
            self.source_to_var[source.name()] = made
            self.var_to_sources[made] = [source]
            return made
        duck = dynamic_dim is DimDynamic.DUCK and self.duck_shape
        if duck and val in self.val_to_var and not (positive and self.facts.bounds(self.val_to_var[val]).lower < 0):
            made = self.val_to_var[val]
            self.var_to_sources[made].append(source)
        else:
            made = self._symbol("s", integer=True, **({"positive": True} if positive else {}))
            self.var_to_val[made] = sympy.Integer(val)
            self.var_to_sources[made] = [source]
            above_one = self.specialize_zero_one and not do_not_specialize_zero_one
            low = (2 if above_one else 0) if positive else -int_oo
            self.facts.narrow(made, ValueRanges(low, int_oo))
            if duck:
                self.val_to_var[val] = made
        if isinstance(constraint_dim, StrictMinMaxConstraint):
            if val not in constraint_dim.vr:
                raise ConstraintViolationError(f"{val} not in range [{constraint_dim.vr.lower}, {constraint_dim.vr.upper}]")
            self.facts.narrow(made, constraint_dim.vr)
        self.source_to_var[source.name()] = made
        return made

    def create_unspecified_symbol(
        self, val: Any, source: Source, dynamic_dim: DimDynamic = DimDynamic.DUCK, constraint_dim: Any = None,
        symbolic_context: Any = None,
    ) -> Any:  # fmt: skip
        """As `create_symbol`, for a number that is no size: it may be negative, 0 and 1 are as good as others."""
        if isinstance(val, float):
            if source.name() in self.source_to_var:
                return self.source_to_var[source.name()]
            made = self._symbol("zf", real=True)
            self.var_to_val[made] = sympy.Float(val)
            self.var_to_sources[made], self.source_to_var[source.name()] = [source], made
            return made
        return self.create_symbol(val, source, dynamic_dim, constraint_dim, None, True, symbolic_context)

    def create_unspecified_symint_and_symbol(self, value: int, source: Source, dynamic_dim: DimDynamic) -> Any:
        """A SymInt of `create_unspecified_symbol`."""
        return self.create_symintnode(self.create_unspecified_symbol(value, source, dynamic_dim), hint=value, source=source)

    def create_symintnode(self, sym: Any, *, hint: Any, source: Source | None = None) -> Any:
        """The SymInt of an expression; a plain int if it is a number."""
        return int(sym) if sympy.sympify(sym).is_number else SymInt(SymNode(sym, self, int))

    def create_symfloatnode(self, sym: Any, *, hint: Any, source: Source | None = None) -> Any:
        """The SymFloat of an expression; a plain float if it is a number."""
        return float(sym) if sympy.sympify(sym).is_number else SymFloat(SymNode(sym, self, float))

    def create_symboolnode(self, sym: Any) -> Any:
        """The SymBool of a proposition; a plain bool if it is decided."""
        return bool(sym) if sym in (sympy.true, sympy.false) else SymBool(SymNode(sym, self, bool))

    def create_unbacked_symint(self, source: Source | None = None) -> SymInt:
        """A SymInt of which nothing is known: a number that values of tensors decide."""
        return SymInt(SymNode(self._fresh(self._symbol("u", integer=True)), self, int))

    def create_unbacked_symfloat(self) -> SymFloat:
        """A SymFloat of which nothing is known."""
        return SymFloat(SymNode(self._fresh(self._symbol("zuf", real=True)), self, float))

    def create_unbacked_symbool(self) -> SymBool:
        """A SymBool of which nothing is known."""
        made = self._fresh(self._symbol("u", integer=True))
        self.facts.narrow(made, ValueRanges(0, 1))
        return SymBool(SymNode(sympy.Eq(made, 1), self, bool))

    def _fresh(self, symbol: Any) -> Any:
        if not self._ignored_fresh:
            self.pending_fresh_unbacked_symbols.append(symbol)
        return symbol

    @contextlib.contextmanager
    def ignore_fresh_unbacked_symbols(self) -> Iterator[None]:
        """A region whose new unbacked symbols need no place that they come from."""
        self._ignored_fresh += 1
        try:
            yield
        finally:
            self._ignored_fresh -= 1

    def is_unbacked_symint(self, symbol: Any) -> bool:
        """Whether values of tensors decide what `symbol` is."""
        return symbol.name.startswith(("u", "zuf"))

    def constrain_size(self, symbol: Any, low: int = 0, high: Any = int_oo) -> None:
        """Say that the unbacked `symbol` is a size: not negative, and where 0 and 1 make no difference taken for larger."""
        self.facts.size_like.add(symbol)
        self.facts.narrow(symbol, ValueRanges(low, high))

    def constrain_symbol_range(self, s: Any, compiler_min: int, compiler_max: int) -> None:
        """Say that `s` lies between two numbers, both included."""
        self.facts.narrow(s, ValueRanges(compiler_min, compiler_max))

    def add_var_to_val(self, expr: Any, val: int) -> None:
        """Say what the symbol `expr` is for the inputs at hand. Raises: AssertionError if that is known."""
        if expr in self.var_to_val:
            raise AssertionError(f"add_var_to_val: {expr} is {self.var_to_val[expr]} already")
        self.var_to_val[expr] = sympy.Integer(val)

    def create_symbolic_sizes_strides_storage_offset(
        self, ex: Any, source: Source, *, symbolic_context: Any = None
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        """Sizes, strides and the offset in memory, in elements, that stand for those of the tensor `ex`.

        Args:
            source: what guards call the tensor.
            symbolic_context: which dimensions are symbols; without one all are, or none, as `assume_static_by_default` says.

        Strides that follow from sizes are products of them.
        """
        sizes = tuple(ex.shape)
        context = symbolic_context
        if context is None:
            usual = DimDynamic.STATIC if self.assume_static_by_default else DimDynamic.DUCK
            context = StatelessSymbolicContext([usual] * len(sizes))
        constraints = context.constraint_sizes or [None] * len(sizes)
        made = [
            self.create_symintnode(
                self.create_symbol(n, TensorPropertySource(source, TensorProperty.SIZE, d), how, bound, symbolic_context=context), hint=n
            )
            for d, (n, how, bound) in enumerate(zip(sizes, context.dynamic_sizes, constraints, strict=True))
        ]
        strides = self._strides(ex, made, source)
        offset = self.create_symintnode(
            self.create_symbol(
                ex.storage_offset(), TensorPropertySource(source, TensorProperty.STORAGE_OFFSET), DimDynamic.DYNAMIC, None, None
            ) if ex.storage_offset() else sympy.Integer(0),
            hint=ex.storage_offset(),
        )  # fmt: skip
        return tuple(made), strides, offset

    def _strides(self, ex: Any, made: list[Any], source: Source) -> tuple[Any, ...]:
        """Strides of `ex`: 0, 1, products of sizes where one dimension steps over the whole of another, else symbols."""
        actual = tuple(ex.stride())
        found: list[Any] = [None] * len(actual)
        candidates: dict[int, Any] = {1: 1}
        for d in sorted(range(len(actual)), key=lambda d: (actual[d], -d)):
            if actual[d] in candidates:
                found[d] = candidates[actual[d]]
            elif actual[d] == 0:
                found[d] = 0
            else:
                place = TensorPropertySource(source, TensorProperty.STRIDE, d)
                found[d] = self.create_symintnode(self.create_symbol(actual[d], place, DimDynamic.DYNAMIC), hint=actual[d])
            if isinstance(made[d], SymInt) or made[d] not in (0, 1):
                candidates.setdefault(actual[d] * ex.shape[d], made[d] * found[d])
        return tuple(found)

    # -- expressions

    def replace(self, expr: Any) -> Any:
        """`expr` with what is known of its symbols by equations."""
        if not self.replacements:
            return expr
        found = self._replaced.get(expr)
        if found is None:
            found = expr
            while found.free_symbols & self.replacements.keys():
                found = found.xreplace(self.replacements)
            self._replaced[expr] = found
        return found

    def simplify(self, expr: Any, size_oblivious: bool = False) -> Any:
        """`expr` with what is known put in; a proposition that follows from it is true or false."""
        expr = self.replace(expr)
        if isinstance(expr, _PROPOSITIONS):
            with self._oblivious(size_oblivious):
                truth = self.facts.truth(expr)
            return expr if truth is None else sympy.true if truth else sympy.false
        return sympy.expand(expr)

    def bound_sympy(self, expr: Any, size_oblivious: bool = False) -> ValueRanges:
        """The range in which `expr` lies."""
        with self._oblivious(size_oblivious):
            return self.facts.bounds(self.replace(sympy.sympify(expr)))

    def extreme(self, which: str, a: Any, b: Any) -> Any:
        """The larger or smaller of two expressions: one of them where that is known."""
        found = self.facts.bounds(sympy.expand(a - b))
        if found.lower >= 0:
            return a if which == "max" else b
        if found.upper <= 0:
            return b if which == "max" else a
        return (sympy.Max if which == "max" else sympy.Min)(a, b)

    @contextlib.contextmanager
    def _oblivious(self, on: bool) -> Iterator[None]:
        before = self.facts.oblivious
        self.facts.oblivious = before or on
        try:
            yield
        finally:
            self.facts.oblivious = before

    def rules(self) -> Any:
        """A region in which shape rules run: unbacked sizes count as larger than 1, where rules tell those apart."""
        return self._oblivious(True)

    def hint_of(self, expr: Any, pytype: type) -> Any:
        """What `expr` is for the inputs at hand; None if it depends on values of tensors."""
        value = self._value(self.replace(expr))
        return None if value is None else pytype(value)

    def _value(self, expr: Any) -> Any:
        if not all(s in self.var_to_val for s in expr.free_symbols):
            return None
        return expr.xreplace(self.var_to_val)

    def size_hint(self, expr: Any, *, allow_none: bool = False) -> Any:
        """What `expr` is for the inputs at hand. Raises: GuardOnDataDependentSymNode where nothing tells, unless None is allowed."""
        value = self._value(self.replace(sympy.sympify(expr)))
        if value is None and not allow_none:
            raise self.data_dependent(expr)
        return value

    def has_hint(self, expr: Any) -> bool:
        """Whether the inputs at hand say what `expr` is."""
        return self._value(self.replace(expr)) is not None

    def static_truth(self, expr: Any) -> bool | None:
        """Whether the proposition `expr` holds, without a guard; None where what is known does not tell."""
        return self.facts.truth(expr)

    def data_dependent(self, expr: Any) -> GuardOnDataDependentSymNode:
        """The error of who asks what nobody knows."""
        expr = self.replace(expr)
        where = self._place()
        return GuardOnDataDependentSymNode(
            expr,
            f"Could not guard on data-dependent expression {expr}: it depends on values of tensors, which a recording has not. Asked in "
            f"{where}. Say what holds of it by torch._check before, or choose by torch.cond",
        )

    # -- guards

    def evaluate_expr(
        self, orig_expr: Any, hint: Any = None, fx_node: Any = None, size_oblivious: bool = False, fallback_value: bool | None = None,
        *, forcing_spec: bool = False,
    ) -> Any:  # fmt: skip
        """What `orig_expr` is for the inputs at hand: a number or truth of sympy's. It becomes a guard unless it follows from others.

        Args:
            hint: its value, where the caller knows it.
            size_oblivious: let sizes that depend on values count as larger than 1.
            fallback_value: the answer for a proposition that depends on values.
            fx_node, forcing_spec: accepted; nothing reads them here.
        Raises: GuardOnDataDependentSymNode if it depends on values of tensors, and no fallback is given.
        """
        expr = self.replace(sympy.sympify(orig_expr))
        proposition = isinstance(expr, _PROPOSITIONS)
        with self._oblivious(size_oblivious):
            if proposition:
                truth = self.facts.truth(expr)
                if truth is not None:
                    return sympy.true if truth else sympy.false
            else:
                if expr.is_number:
                    return expr
                if expr.is_integer:
                    found = self.facts.bounds(expr)
                    if found.lower == found.upper:
                        return found.lower
        value = self._value(expr) if hint is None else sympy.sympify(hint)
        if value is None:
            if fallback_value is not None:
                return sympy.sympify(fallback_value)
            return self._decided(expr, proposition)
        if not self._suppressed and not self.frozen:
            self._guard((expr if value else sympy.Not(expr)) if proposition else sympy.Eq(expr, value), size_oblivious)
        return value

    def _decided(self, expr: Any, proposition: bool) -> Any:
        """What `decide` says of `expr`, which is noted for the graph to assert. Raises: GuardOnDataDependentSymNode if nobody says."""
        value = None if self.decide is None else self.decide(expr)
        if value is None:
            raise self.data_dependent(expr)
        self.guard_or_defer_runtime_assert((expr if value else sympy.Not(expr)) if proposition else sympy.Eq(expr, value), "decided")
        return value

    def evaluate_sym_node(self, sym_node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        """`evaluate_expr` of a node's expression."""
        return self.evaluate_expr(sym_node._expr, None, None, size_oblivious, fallback_value)

    def evaluate_symexpr(self, code: str) -> Any:
        """The value, for the inputs at hand, of an expression of symbols given as text."""
        return eval(code, {"__builtins__": {}, **FUNCTIONS}, {str(s): _plain(v) for s, v in self.var_to_val.items()})  # as documented

    def deserialize_symexpr(self, code: str) -> Any:
        """The symbolic number of an expression given as text."""
        symbols = {str(s): SymInt(SymNode(s, self, int)) for s in (*self.var_to_val, *self.facts.ranges)}
        return eval(code, {"__builtins__": {}, **FUNCTIONS}, symbols)  # of names that are checked against the symbols

    def guard_or_defer_runtime_assert(self, orig_expr: Any, msg: str, fx_node: Any = None) -> bool:
        """`evaluate_expr` of what is claimed to hold; where it depends on values, it is noted for the graph to assert, and True.

        Raises: RuntimeError if it is known to be false.
        """
        expr = self.replace(orig_expr)
        truth = self.facts.truth(expr)
        if truth is not None:
            return truth
        if self._value(expr) is not None:
            return bool(self.evaluate_expr(expr))
        if not self.runtime_asserts_frozen:
            newest = max((s for s in expr.free_symbols if self.is_unbacked_symint(s)), key=lambda s: (len(s.name), s.name))
            self.deferred_runtime_asserts.setdefault(newest, []).append(RuntimeAssert(expr, msg, self._place()))
            self._learn(expr)
        return True

    def _guard(self, proposition: Any, size_oblivious: bool = False) -> None:
        if isinstance(proposition, sympy.Not) and isinstance(proposition.args[0], sympy.core.relational.Relational):
            proposition = proposition.args[0].negated
        self.guards.append(ShapeGuard(proposition, self._place(), size_oblivious or self.facts.oblivious))
        if self.guards_are_facts:
            self._learn(proposition)

    def _learn(self, proposition: Any) -> None:
        self.facts.learn(proposition)
        if isinstance(proposition, sympy.Eq):
            self._solve(proposition)

    def _solve(self, equation: Any) -> None:
        """Replace a symbol of `equation` where it is linear: the newest, one without a hint before others."""
        difference = sympy.expand(equation.lhs - equation.rhs)
        order = sorted(difference.free_symbols, key=lambda s: (self.is_unbacked_symint(s), len(s.name), s.name), reverse=True)
        for symbol in order:
            factor = difference.coeff(symbol, 1)
            rest = difference - factor * symbol
            if not factor.is_Integer or factor == 0 or rest.has(symbol):
                continue
            solution = sympy.expand(-rest / factor)
            if factor not in (1, -1) and not solution.is_number:
                continue
            known = self.facts.ranges.get(symbol)
            self.replacements[symbol] = solution
            self._replaced.clear()
            self.facts.cache.clear()
            if known is not None and not solution.is_number:
                self.facts._restrict(solution, known)
                if symbol in self.facts.size_like:
                    self.facts.size_like |= {s for s in solution.free_symbols if solution.is_Symbol}
            return

    def _place(self) -> SLoc:
        frame: Any = sys._getframe(1)
        ours = user = None
        by_program = False
        while frame is not None:
            path = frame.f_code.co_filename
            inside = path.startswith(_OUR_FOLDERS)
            if inside and ours is None and os.sep + "experimental" + os.sep not in path and not path.endswith("_symbolic.py"):
                ours = f"{os.path.relpath(path, _HERE)}:{frame.f_lineno}"
            if not inside and user is None and not path.startswith("<"):
                user = f"{path}:{frame.f_lineno}"
                by_program = ours is None
            if ours and user:
                break
            frame = frame.f_back
        return SLoc(ours or "", user, by_program)

    @contextlib.contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """A region that asks for numbers and leaves no guard."""
        self._suppressed += 1
        try:
            yield
        finally:
            self._suppressed -= 1

    def freeze(self) -> None:
        """From here on nothing is added to the guards."""
        self.frozen = True

    def freeze_runtime_asserts(self) -> None:
        """From here on nothing is added to what the graph asserts."""
        self.runtime_asserts_frozen = True

    def format_guards(self, verbose: bool = False) -> str:
        """The guards, a line each; `verbose` with the line of the program that each comes from."""
        return "\n".join(f" - {g.expr}{f' from {g.sloc}' if verbose else ''}" for g in self.guards)

    def get_nontrivial_guards(self) -> list[Any]:
        """The propositions of guards that are not implied by what is known of each symbol alone."""
        return [p for g in self.guards if (p := self._alone(g.expr)) is not sympy.true]

    def _alone(self, expr: Any) -> Any:
        replaced = self.replace(expr)
        return sympy.true if replaced in (sympy.true, True) else replaced

    def unsaid_guards(self) -> list[ShapeGuard]:
        """The guards that neither equations nor the range of a symbol say, in terms of the symbols that are left."""
        alone = Facts()
        alone.ranges = self.facts.ranges
        found = [guard._replace(expr=self.replace(guard.expr)) for guard in self.guards]
        return [guard for guard in found if isinstance(guard.expr, sympy.Basic) and alone.truth(guard.expr) is None]

    def get_pruned_guards(self, symints: Any) -> list[ShapeGuard]:
        """The guards on no other symbols than those of `symints`."""
        symbols = {s.node._expr for s in symints if isinstance(s, _Symbolic)}
        return [g for g in self.guards if g.expr.free_symbols <= symbols]

    def get_axioms(self, symbols: Any = None, compute_hint: bool = False) -> tuple[Any, ...]:
        """What is taken for true: guards, and what the graph asserts; of `symbols` alone if they are given."""
        found = [g.expr for g in self.guards] + [a.expr for each in self.deferred_runtime_asserts.values() for a in each]
        if symbols is not None:
            found = [e for e in found if e.free_symbols & set(symbols)]
        if compute_hint:
            found = [e.xreplace(self.var_to_val) for e in found]
        return tuple(dict.fromkeys(self.replace(e) for e in found))

    def get_implications(self, e: Any) -> tuple[tuple[Any, Any], ...]:
        """Propositions that are decided where `e` holds, each with its truth."""
        pairs = [(e, sympy.true), (sympy.Not(e), sympy.false)]
        if isinstance(e, sympy.Eq):
            pairs += [(sympy.Le(e.lhs, e.rhs), sympy.true), (sympy.Ge(e.lhs, e.rhs), sympy.true)]
        elif isinstance(e, (sympy.Lt, sympy.Gt)):
            weak = sympy.Le if isinstance(e, sympy.Lt) else sympy.Ge
            pairs += [(weak(e.lhs, e.rhs), sympy.true), (sympy.Eq(e.lhs, e.rhs), sympy.false), (sympy.Ne(e.lhs, e.rhs), sympy.true)]
        return tuple((p, t) for p, t in pairs if p not in (sympy.true, sympy.false))

    # -- guards as programs

    def produce_guards(self, *args: Any, **kwargs: Any) -> list[str]:
        """The conditions on inputs as expressions of Python; see `produce_guards_verbose`."""
        return self.produce_guards_verbose(*args, **kwargs)[0]

    def produce_guards_verbose(
        self, placeholders: Any, sources: Any, source_ref: Callable[[Source], str] = lambda n: n.name(), *, guards: Any = None,
        input_contexts: Any = None, equalities_inputs: Any = None, _simplified: bool = False, ignore_static: bool = True,
    ) -> tuple[list[str], list[str]]:  # fmt: skip
        """The conditions on inputs, as expressions of Python, and the same with the lines they come from.

        Args:
            placeholders: what stood for the inputs: fake tensors and SymInts.
            sources: where each input comes from.
            source_ref: how a source is written.
            guards: those to write, instead of all.
            input_contexts: the symbolic context of each input, whose constraints are looked at.
            equalities_inputs, _simplified: accepted.
            ignore_static: leave out sizes that are numbers for the whole recording.
        Raises: ConstraintViolationError if a guard says more than a constraint of an input allows.
        """
        self._check_contexts(placeholders, sources, input_contexts)
        names: dict[Any, str] = {}
        conditions: list[tuple[str, str]] = []
        for value, place, _ in self._parts(placeholders, sources):
            text = source_ref(place)
            expr = value.node._expr if isinstance(value, _Symbolic) else sympy.sympify(value)
            if expr.is_Symbol and expr not in names:
                names[expr] = text
            elif expr.is_number and not ignore_static:
                conditions.append((f"{text} == {expr}", "a size that is a number"))
        for value, place, _ in self._parts(placeholders, sources):
            text = source_ref(place)
            expr = value.node._expr if isinstance(value, _Symbolic) else sympy.sympify(value)
            if not expr.is_number and names.get(expr) != text and expr.free_symbols <= names.keys():
                conditions.append((f"{text} == {self.written(expr, names)}", "equal for the inputs at hand"))
        chosen = [g for g in (self.guards if guards is None else guards) if g.expr.free_symbols <= names.keys()]
        conditions += [(self.written(g.expr, names), str(g.sloc)) for g in chosen]
        for symbol, text in names.items():
            found = self.facts.ranges.get(symbol)
            low, high = (found.lower, found.upper) if found is not None else (-int_oo, int_oo)
            if self.replace(symbol).is_number:
                continue
            if low != -int_oo and (low > 0 or not symbol.is_positive):
                bound = f"{low} <= {text}" + (f" <= {high}" if high != int_oo else "")
                conditions.append((bound, "the range of a size"))
            elif high != int_oo:
                conditions.append((f"{text} <= {high}", "the range of a size"))
        texts = list(dict.fromkeys(text for text, _ in conditions))
        reasons = dict(reversed(conditions))
        return texts, [f"{text}  # {reasons[text]}" for text in texts]

    def _check_contexts(self, placeholders: Any, sources: Any, contexts: Any) -> None:
        for value, source, context in zip(placeholders, sources, contexts or [None] * len(placeholders), strict=True):
            bounds = getattr(context, "constraint_sizes", None) or ()
            for d, bound in enumerate(bounds):
                if bound is None:
                    continue
                size = value.shape[d]
                expr = self.replace(size.node._expr) if isinstance(size, _Symbolic) else sympy.sympify(size)
                what = f"{source.name()}.size()[{d}]"
                if expr.is_number:
                    raise ConstraintViolationError(
                        f"Constraints violated ({what})! It was marked as dynamic, but the recording specialised it to {expr}"
                    )
                if isinstance(bound, StrictMinMaxConstraint) and not bound.vr.issubset(self.facts.bounds(expr)):
                    raise ConstraintViolationError(
                        f"Constraints violated ({what})! Not all values in {bound.vr} satisfy the guards: {self.facts.bounds(expr)} is left"
                    )

    @staticmethod
    def _parts(placeholders: Any, sources: Any) -> Iterator[tuple[Any, Source, Any]]:
        """Each number of inputs, where it comes from, and how it is got from the input."""
        for value, source in zip(placeholders, sources, strict=True):
            if isinstance(value, (int, float, _Symbolic)):
                yield value, source, lambda x: x
            elif hasattr(value, "shape"):
                for d, n in enumerate(value.shape):
                    yield n, TensorPropertySource(source, TensorProperty.SIZE, d), lambda x, d=d: x.shape[d]
                for d, n in enumerate(value.stride()):
                    if isinstance(n, _Symbolic):
                        yield n, TensorPropertySource(source, TensorProperty.STRIDE, d), lambda x, d=d: x.stride(d)
                offset = value.storage_offset()
                yield offset, TensorPropertySource(source, TensorProperty.STORAGE_OFFSET), lambda x: x.storage_offset()

    @staticmethod
    def written(expr: Any, names: dict[Any, str]) -> str:
        """`expr` as Python, in terms of `names` for its symbols and the functions of `FUNCTIONS`."""
        from sympy.printing.pycode import PythonCodePrinter

        class Printer(PythonCodePrinter):
            def _print_Symbol(self, expr: Any) -> str:
                return names[expr]

            def _print_FloorDiv(self, expr: Any) -> str:
                return f"(({self._print(expr.args[0])}) // ({self._print(expr.args[1])}))"

            def _print_Mod(self, expr: Any) -> str:
                return f"(({self._print(expr.args[0])}) % ({self._print(expr.args[1])}))"

            def _print_Function(self, expr: Any) -> str:
                return f"{type(expr).__name__}({', '.join(map(self._print, expr.args))})"

            def _print_RoundToInt(self, expr: Any) -> str:
                return f"round({self._print(expr.args[0])})"

            def _print_TruncToInt(self, expr: Any) -> str:
                return f"int({self._print(expr.args[0])})"

            def _print_Relational(self, expr: Any) -> str:
                return f"{self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)}"

        return str(Printer({"fully_qualified_modules": False, "strict": False}).doprint(expr))

    def produce_guards_expression(self, placeholders: Any, *, guards: Any = None, ignore_static: bool = True) -> str | None:
        """All conditions on inputs in one expression of Python, for `evaluate_guards_expression`; None if there are none."""
        sources = [LocalSource(f"t{i}") for i in range(len(placeholders))]
        found = self.produce_guards(placeholders, sources, guards=guards, ignore_static=ignore_static)
        return " and ".join(found) or None

    def evaluate_guards_expression(self, code: str, args: Any) -> bool:
        """Whether the conditions `code`, of `produce_guards_expression`, hold for the inputs `args`."""
        words = {"__builtins__": {}, **FUNCTIONS, "L": {f"t{i}": x for i, x in enumerate(args)}}
        return bool(eval(code, words))  # what `produce_guards_expression` wrote

    def evaluate_guards_for_args(self, placeholders: Any, args: Any, *, ignore_static: bool = True) -> bool:
        """Whether the graph recorded for `placeholders`, fake tensors and SymInts, is right for the inputs `args`."""
        code = self.produce_guards_expression(placeholders, ignore_static=ignore_static)
        return code is None or self.evaluate_guards_expression(code, args)

    def bind_symbols(self, placeholders: Any, args: Any) -> dict[Any, int]:
        """What each symbol of `placeholders` is for the inputs `args`."""
        found: dict[Any, int] = {}
        sources = [ConstantSource(f"t{i}") for i in range(len(placeholders))]
        given = iter([(arg, kind) for arg, (value, source) in zip(args, zip(placeholders, sources, strict=True), strict=True)
                      for kind in self._parts([value], [source])])  # fmt: skip
        for arg, (value, _, read) in given:
            if isinstance(value, _Symbolic) and value.node._expr.is_Symbol:
                found.setdefault(value.node._expr, read(arg))
        return found

    # -- the whole

    def check_equal(self, other: ShapeEnv) -> None:
        """Raise AssertionError unless `other` has the same symbols, equations and guards."""
        for name in ("settings", "var_to_val", "replacements", "var_to_range"):
            if getattr(self, name) != getattr(other, name):
                raise AssertionError(f"ShapeEnv not equal: {name} is {getattr(self, name)} and {getattr(other, name)}")
        if [g.expr for g in self.guards] != [g.expr for g in other.guards]:
            raise AssertionError(f"ShapeEnv not equal: guards are\n{self.format_guards()}\nand\n{other.format_guards()}")

    def cleanup(self) -> None:
        """Let go of the tensors it was made with."""
        self.tracked_fakes = None


def _plain(value: Any) -> Any:
    return int(value) if value.is_Integer else float(value)
