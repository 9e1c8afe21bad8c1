"""`DimConstraints`: what a set of guards says of each size alone."""

from __future__ import annotations

from typing import Any

from ...utils._sympy import sympy
from ...utils._sympy.functions import FloorDiv, Mod
from ...utils._sympy.value_ranges import ValueRangeError, ValueRanges, int_oo
from ._dim_constraints import ConstraintViolationError
from ._facts import Facts

__all__ = ["DimConstraints"]


class DimConstraints:
    """Simplifies guards to a range, a number or a multiple for each size, and keeps those that tie sizes together.

    Args:
        symbol_to_source: where each symbol comes from.
        var_to_val: what each symbol is for the inputs at hand.
        marked_dynamic: symbols that were claimed not to be one number.
        source_name_to_debug_name: what sources are called in messages.
    """

    def __init__(
        self, symbol_to_source: dict[Any, list[Any]], var_to_val: Any, marked_dynamic: set[Any], source_name_to_debug_name: Any,
    ) -> None:  # fmt: skip
        self._sources, self._hints, self._marked, self._shown = symbol_to_source, var_to_val, marked_dynamic, source_name_to_debug_name
        self._guards: list[Any] = []
        self._equalities: list[tuple[Any, Any]] = []
        self._congruences: dict[Any, set[Any]] = {}
        self._numbers: dict[Any, Any] = {}
        self._results: list[str] = []

    def rewrite_with_congruences(self, s: Any, expr: Any) -> Any:
        """`expr` without quotients and rests of the symbol `s`: for the inputs at hand a rest is one number, which is noted."""

        def rest_of(base: Any, divisor: Any) -> Any:
            rest = sympy.Integer(int(base.xreplace(self._hints)) % int(divisor.xreplace(self._hints)))
            if Mod(base - rest, divisor) != 0:
                self._congruences.setdefault(s, set()).add(Mod(base - rest, divisor))
            return rest

        for part in sorted(expr.atoms(FloorDiv, Mod), key=sympy.count_ops):
            if part.has(s):
                base, divisor = part.args
                rest = rest_of(base, divisor)
                expr = expr.xreplace({part: rest if isinstance(part, Mod) else (base - rest) / divisor})
        return expr

    def add(self, expr: Any) -> bool:
        """Take the guard `expr`. Returns: whether it says nothing, as it always holds.

        Raises: ConstraintViolationError if it does not hold for the inputs at hand.
        """
        if expr == sympy.true:
            return True
        if expr.xreplace(self._hints) == sympy.false:
            raise ConstraintViolationError(f"DimConstraints: {expr} does not hold for the sizes at hand, {self._hints}")
        symbols = expr.free_symbols
        if len(symbols) == 1:
            symbol = next(iter(symbols))
            expr = self.rewrite_with_congruences(symbol, expr)
            if expr == sympy.true:
                return False
        self._guards.append(expr)
        return False

    def add_equality(self, source: Any, expr: Any) -> None:
        """Take that the size of `source` is `expr`."""
        self._equalities.append((source, expr))

    def solve(self) -> None:
        """Work out what the guards say of each size."""
        facts = Facts()
        for symbol in self._sources:
            facts.narrow(symbol, ValueRanges(0, int_oo))
        for guard in self._guards:
            facts.learn(guard)
        for symbol in self._sources:
            found = facts.bounds(symbol)
            if found.is_singleton():
                self._numbers[symbol] = found.lower
                continue
            for congruence in self._congruences.get(symbol, ()):
                self._results.append(f"Eq({self._written(congruence)}, 0)")
            low = "" if found.lower <= 0 else f"{found.lower} <= "
            high = "" if found.upper == int_oo else f" <= {found.upper}"
            if low or high:
                self._results.append(f"{low}{self._name(symbol)}{high}")
        self._results += [f"{source.name()} == {self._written(expr)}" for source, expr in self._equalities if not expr.is_number]
        for guard in self._guards:
            left = guard.xreplace(self._numbers)
            if left == sympy.false:
                raise ValueRangeError(f"DimConstraints: {guard} cannot hold beside the other guards")
            if len(left.free_symbols) > 1:
                self._results.append(self._written(left))

    def forced_specializations(self) -> dict[str, Any]:
        """Sizes that were claimed not to be one number, and the number that guards leave, by what messages call them."""
        shown = {s: self._shown.get(self._name(s), self._name(s)) for s in self._numbers}
        return {f"{shown[s]} = {self._name(s)}": n for s, n in self._numbers.items() if s in self._marked}

    def prettify_results(
        self, original_signature: Any, dynamic_shapes: Any, constraint_violation_error: Any, forced_specializations: dict[str, Any]
    ) -> str:
        """What `solve` found, for people.

        Args:
            original_signature, dynamic_shapes: of the program; named where sizes have to be changed.
            constraint_violation_error: the error that led here, or None.
            forced_specializations: of the method of this name.
        """
        lines = [f"The following dimensions are {n}, a number: {name}" for name, n in forced_specializations.items()]
        lines += [f"  {result}" for result in self._results]
        if constraint_violation_error is not None:
            asked = f" of {tuple(original_signature.parameters)}" if original_signature is not None else ""
            lines.insert(0, f"Suggested fixes for the sizes{asked} ({dynamic_shapes}):")
        return "\n".join(lines)

    def _name(self, symbol: Any) -> str:
        return self._sources[symbol][0].name()

    def _written(self, expr: Any) -> str:
        return str(expr.xreplace({s: sympy.Symbol(self._name(s)) for s in expr.free_symbols if s in self._sources}))
