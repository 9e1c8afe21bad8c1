"""What is known of symbols: ranges, equations and inequalities, and what follows from them.

An inequality is kept as a range of a *form*: a polynomial without constant term, whose coefficients have no common factor. What is
asked is brought to the same shape. A polynomial of numbers with lower bounds is itself bounded where its coefficients, counted from
those bounds, are all of one sign; that decides most of what shape rules ask.
"""

from __future__ import annotations

from typing import Any

from ...utils._sympy import sympy
from ...utils._sympy.functions import FloorDiv, Mod
from ...utils._sympy.value_ranges import ValueRanges, int_oo

__all__ = ["Facts"]

_HUGE = 1 << 62
_ALL = ValueRanges(-int_oo, int_oo)


class Facts:
    """Ranges of symbols and of forms, and forms that are not zero."""

    def __init__(self) -> None:
        self.ranges: dict[Any, ValueRanges] = {}      # of symbols
        self.forms: dict[Any, ValueRanges] = {}       # of forms that are no symbols
        self.nonzero: set[Any] = set()                # polynomials
        self.cache: dict[Any, Any] = {}
        self.size_like: set[Any] = set()              # sizes that values of tensors decide
        self.oblivious = False                        # whether these count as larger than 1

    def narrow(self, symbol: Any, to: ValueRanges) -> None:
        """Learn that `symbol` lies in `to`. Raises: ValueRangeError if it cannot."""
        self.ranges[symbol] = self.ranges.get(symbol, _ALL) & to
        self.cache.clear()

    # -- ranges of expressions

    def bounds(self, expr: Any) -> ValueRanges:
        """A range in which `expr` lies."""
        if expr.is_number:
            return ValueRanges(expr, expr)
        key = expr, self.oblivious
        found = self.cache.get(key)
        if found is None:
            found = self.cache[key] = self._bounds(expr)
        return found

    def _bounds(self, expr: Any) -> ValueRanges:
        if expr.is_Symbol:
            found = self.ranges.get(expr, _ALL)
            if self.oblivious and expr in self.size_like and found.upper >= 2:
                found = ValueRanges(max(found.lower, 2), found.upper)
            return found
        special = self._of_function(expr)
        if special is not None:
            return special
        constant, factor, form = split(expr)
        if form.is_Symbol and (factor != 1 or constant != 0):
            inner = self.bounds(form)
        else:
            inner = self._of_polynomial(form)
            if form in self.forms:
                inner = inner & self.forms[form]
        return _scaled(inner, factor, constant)

    def _of_function(self, expr: Any) -> ValueRanges | None:
        if isinstance(expr, FloorDiv):
            a, b = map(self.bounds, expr.args)
            if a.lower >= 0 and b.lower > 0:
                low = 0 if b.upper == int_oo else a.lower // b.upper if a.lower != int_oo else int_oo
                return ValueRanges(low, int_oo if a.upper == int_oo else a.upper // b.lower) & self.forms.get(expr, _ALL)
            return self.forms.get(expr, _ALL)
        if isinstance(expr, Mod):
            divisor = self.bounds(expr.args[1])
            if divisor.lower > 0:
                return ValueRanges(0, divisor.upper - 1) & self.forms.get(expr, _ALL)
            return self.forms.get(expr, _ALL)
        if isinstance(expr, (sympy.Max, sympy.Min)):
            parts = [self.bounds(a) for a in expr.args]
            pick = max if isinstance(expr, sympy.Max) else min
            return ValueRanges(pick(p.lower for p in parts), pick(p.upper for p in parts)) & self.forms.get(expr, _ALL)
        if isinstance(expr, sympy.Piecewise):
            parts = [self.bounds(value) for value, _ in expr.args]
            return ValueRanges(min(p.lower for p in parts), max(p.upper for p in parts))
        if not (expr.is_Add or expr.is_Mul or expr.is_Pow):
            return self.forms.get(expr, _ALL)
        return None

    def _of_polynomial(self, form: Any) -> ValueRanges:
        """The range of a polynomial, from the lower bounds of what it is made of."""
        names: dict[Any, Any] = {}
        form, parts = self._with_rests(form)
        functions = form.atoms(sympy.Function, sympy.Max, sympy.Min, sympy.Piecewise)
        for f in sorted(functions, key=sympy.count_ops, reverse=True):
            if form.has(f):
                names[f] = sympy.Dummy(integer=True)
                form = form.xreplace({f: names[f]})
        names.update({s: s for s in form.free_symbols if s not in names.values()})
        shift, limit = {}, {}
        for original, name in names.items():
            found = parts[original] if original in parts else self.bounds(original)
            if found.lower == -int_oo:
                if found.upper == int_oo:
                    return self._of_terms(form, names)
                step = sympy.Dummy(integer=True, nonnegative=True)
                shift[name] = found.upper - step
                limit[step] = int_oo
                continue
            step = sympy.Dummy(integer=True, nonnegative=True)
            shift[name] = found.lower + step
            limit[step] = found.upper - found.lower
        moved = sympy.expand(form.xreplace(shift))
        low = high = sympy.Integer(0)
        for term in sympy.Add.make_args(moved):
            factor, rest = term.as_coeff_Mul()
            top = sympy.Integer(1)
            for base, exponent in rest.as_powers_dict().items():
                if base in limit and exponent.is_Integer and exponent > 0:
                    top = sympy.Integer(0) if limit[base] == 0 or top == 0 else top * limit[base] ** exponent
                elif base != 1:
                    return _ALL
            if rest == 1:
                low, high = low + factor, high + factor
            elif factor > 0:
                high += factor * top
            else:
                low += factor * top
        return ValueRanges(low, high) if low.is_number and high.is_number else _ALL

    def _with_rests(self, form: Any) -> tuple[Any, dict[Any, ValueRanges]]:
        """`form` with ``n`` written as ``d * q + r`` where it has ``n // d`` of a number ``d``, and the ranges of quotients and rests."""
        parts: dict[Any, ValueRanges] = {}
        for f in form.atoms(FloorDiv):
            n, d = f.args
            if n.is_Symbol and d.is_Integer and d > 1 and form.has(n) and not any(g.has(n) for g in form.atoms(sympy.Function) if g != f):
                quotient, rest = sympy.Dummy(integer=True), sympy.Dummy(integer=True)
                parts[quotient], parts[rest] = self.bounds(f), ValueRanges(0, d - 1)
                form = sympy.expand(form.xreplace({f: quotient}).xreplace({n: d * quotient + rest}))
        return form, parts

    def _of_terms(self, form: Any, names: dict[Any, Any]) -> ValueRanges:
        """The range of a sum of which a part is not bounded at all; of a square, not below 0."""
        if form.is_Pow and form.exp.is_Integer and form.exp % 2 == 0:
            return ValueRanges(0, int_oo)
        return _ALL

    # -- truth

    def truth(self, expr: Any) -> bool | None:
        """Whether the proposition `expr` holds; None where nothing tells."""
        if expr in (sympy.true, True):
            return True
        if expr in (sympy.false, False):
            return False
        if isinstance(expr, sympy.Not):
            inner = self.truth(expr.args[0])
            return None if inner is None else not inner
        if isinstance(expr, (sympy.And, sympy.Or)):
            decisive = isinstance(expr, sympy.Or)
            parts = [self.truth(a) for a in expr.args]
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if not isinstance(expr, sympy.core.relational.Relational):
            return None
        if expr.rhs.is_Integer and abs(expr.rhs) >= _HUGE:
            above = bool(expr.rhs > 0)                # no size is as large
            return above if isinstance(expr, (sympy.Lt, sympy.Le, sympy.Ne)) else False if isinstance(expr, sympy.Eq) else not above
        difference = sympy.expand(expr.lhs - expr.rhs)
        found = self._difference(difference)
        if isinstance(expr, (sympy.Eq, sympy.Ne)):
            if found.lower == found.upper == 0:
                same = True
            elif found.lower > 0 or found.upper < 0 or _either_sign(difference) & self.nonzero:
                same = False
            else:
                return None
            return same == isinstance(expr, sympy.Eq)
        if isinstance(expr, (sympy.Lt, sympy.Ge)):
            return _decided(found.lower >= 0, found.upper < 0, isinstance(expr, sympy.Ge))
        return _decided(found.upper <= 0, found.lower > 0, isinstance(expr, sympy.Le))

    def _difference(self, difference: Any) -> ValueRanges:
        found = self.bounds(difference)
        if not difference.is_integer and not difference.is_number:
            return found
        # Excluding 0 moves a bound that is 0, for whole numbers.
        if found.lower == 0 and found.upper != 0 and _either_sign(difference) & self.nonzero:
            return ValueRanges(1, found.upper)
        if found.upper == 0 and found.lower != 0 and _either_sign(difference) & self.nonzero:
            return ValueRanges(found.lower, -1)
        return found

    # -- learning

    def learn(self, expr: Any) -> None:
        """Take the proposition `expr` for true."""
        if isinstance(expr, sympy.And):
            for part in expr.args:
                self.learn(part)
            return
        if isinstance(expr, sympy.Not):
            expr = expr.args[0]
            if isinstance(expr, sympy.Or):
                for part in expr.args:
                    self.learn(sympy.Not(part))
            elif isinstance(expr, sympy.core.relational.Relational):
                self.learn(expr.negated)
            return
        if isinstance(expr, sympy.logic.boolalg.BooleanFunction) or not isinstance(expr, sympy.core.relational.Relational):
            return
        difference = sympy.expand(expr.lhs - expr.rhs)
        self.cache.clear()
        if isinstance(expr, sympy.Ne):
            self.nonzero |= _either_sign(difference)
            found = self.bounds(difference)
            if found.lower == 0:
                self._restrict(difference, ValueRanges(1, int_oo))
            elif found.upper == 0:
                self._restrict(difference, ValueRanges(-int_oo, -1))
            return
        gap = 1 if difference.is_integer else 0
        allowed = {
            sympy.Eq: (0, 0), sympy.Ge: (0, int_oo), sympy.Gt: (gap, int_oo), sympy.Le: (-int_oo, 0), sympy.Lt: (-int_oo, -gap),
        }  # fmt: skip
        for kind, (low, high) in allowed.items():
            if isinstance(expr, kind):
                self._restrict(difference, ValueRanges(low, high))

    def _restrict(self, expr: Any, to: ValueRanges) -> None:
        """Learn that `expr` lies in `to`."""
        if expr.is_number:
            return
        constant, factor, form = split(expr)
        integral = bool(form.is_integer)
        shifted = ValueRanges(to.lower - constant, to.upper - constant)
        low, high = (shifted.lower / factor, shifted.upper / factor) if factor > 0 else (shifted.upper / factor, shifted.lower / factor)
        if integral:
            low = sympy.ceiling(low) if low.is_finite else low
            high = sympy.floor(high) if high.is_finite else high
        if form.is_Symbol:
            self.narrow(form, ValueRanges(low, high))
        else:
            self.forms[form] = self.forms.get(form, _ALL) & ValueRanges(low, high)
        self.cache.clear()


def split(expr: Any) -> tuple[Any, Any, Any]:
    """`expr` as ``constant + factor * form``."""
    constant, rest = sympy.expand(expr).as_coeff_Add()
    factor, form = rest.as_coeff_Mul() if not rest.is_Add else rest.primitive()
    first = sympy.Add.make_args(form)[0].as_coeff_Mul()[0] if form.is_Add else sympy.Integer(1)
    return (constant, -factor, sympy.expand(-form)) if first < 0 else (constant, factor, form)


def _scaled(inner: ValueRanges, factor: Any, constant: Any) -> ValueRanges:
    ends = (inner.lower * factor + constant, inner.upper * factor + constant)
    return ValueRanges(*(ends if factor > 0 else ends[::-1]))


def _either_sign(expr: Any) -> set[Any]:
    return {expr, sympy.expand(-expr)}


def _decided(yes: Any, no: Any, meaning: bool) -> bool | None:
    return meaning if yes else not meaning if no else None
