"""Symbolic complex numbers: a real and an imaginary symbol, and the words that are simple on them.

Products and quotients are numpy's (the textbook product; Smith 1962, "Algorithm 116: Complex division", Comm.
ACM 5). The transcendental functions are in `complex_functions.py`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.scalar.symbols import (
    BOOL,
    F32,
    F64,
    Block,
    Kind,
    Symbol,
    Unsupported,
    convert,
    promote,
    select,
)

PARTS = {"complex64": F32, "complex128": F64}


class ComplexSymbol(Symbol):
    """A complex value of a block. A subclass, so that its operators are asked first beside a real symbol."""

    __slots__ = ("im", "re")
    __hash__ = object.__hash__

    def __init__(self, re: Symbol, im: Symbol):
        self.block, self.kind, self.re, self.im = re.block, re.kind, re, im

    def __repr__(self) -> str:
        return f"<complex {self.re!r} {self.im!r}>"

    def to(self, kind: Kind) -> Symbol:
        if kind is BOOL:
            return self != 0
        raise Unsupported(f"a complex number as {kind.name}")

    def __pos__(self): return self
    def __neg__(self): return ComplexSymbol(-self.re, -self.im)
    def __abs__(self): return _hypot(self.re, self.im)
    def __add__(self, other): return _sum(*both(self, other))
    def __radd__(self, other): return _sum(*both(other, self))
    def __sub__(self, other): return _difference(*both(self, other))
    def __rsub__(self, other): return _difference(*both(other, self))
    def __mul__(self, other): return _product(*both(self, other))
    def __rmul__(self, other): return _product(*both(other, self))
    def __truediv__(self, other): return _quotient(*both(self, other))
    def __rtruediv__(self, other): return _quotient(*both(other, self))
    def __pow__(self, other): return _power(self, other)
    def __rpow__(self, other): return _power(other, self)
    def __eq__(self, other): return _equal(*both(self, other))
    def __ne__(self, other): return ~_equal(*both(self, other))
    def __lt__(self, other): return _refuse("order")
    def __le__(self, other): return _refuse("order")
    def __gt__(self, other): return _refuse("order")
    def __ge__(self, other): return _refuse("order")
    def __floordiv__(self, other): return _refuse("floor division")
    def __rfloordiv__(self, other): return _refuse("floor division")
    def __mod__(self, other): return _refuse("remainder")
    def __rmod__(self, other): return _refuse("remainder")


def _refuse(what: str) -> Symbol:
    raise Unsupported(f"{what} of complex numbers")


def constant(block: Block, number: complex, kind: Kind) -> ComplexSymbol:
    """A Python number as a complex symbol with parts of `kind`."""
    number = complex(number)
    return ComplexSymbol(block.constant(number.real, kind), block.constant(number.imag, kind))


def as_complex(value: Symbol, kind: Kind) -> ComplexSymbol:
    """A real or complex symbol as a complex one with parts of `kind`."""
    if isinstance(value, ComplexSymbol):
        return ComplexSymbol(convert(value.re, kind), convert(value.im, kind))
    return ComplexSymbol(convert(value, kind), value.block.constant(0.0, kind))


def both(a: Any, b: Any) -> tuple[ComplexSymbol, ComplexSymbol]:
    """Both operands as complex symbols of numpy's common precision; at least one is complex."""
    symbol = a if isinstance(a, ComplexSymbol) else b
    kind = symbol.kind
    for other in (a, b):
        if isinstance(other, Symbol):
            kind = promote(kind, other.kind if other.kind.family == "f" else kind)
        elif isinstance(other, np.generic):
            kind = promote(kind, PARTS["complex128" if other.dtype.itemsize > 8 or other.dtype.char == "d"
                                       else "complex64"])
        elif not isinstance(other, (int, float, complex)):
            raise Unsupported(f"a {type(other).__name__} in a formula")
    first, second = (as_complex(x, kind) if isinstance(x, Symbol) else constant(symbol.block, x, kind)
                     for x in (a, b))
    return first, second


def _sum(a: ComplexSymbol, b: ComplexSymbol) -> ComplexSymbol:
    return ComplexSymbol(a.re + b.re, a.im + b.im)


def _difference(a: ComplexSymbol, b: ComplexSymbol) -> ComplexSymbol:
    return ComplexSymbol(a.re - b.re, a.im - b.im)


def _product(a: ComplexSymbol, b: ComplexSymbol) -> ComplexSymbol:
    return ComplexSymbol(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _quotient(a: ComplexSymbol, b: ComplexSymbol) -> ComplexSymbol:
    wide = abs(b.re) >= abs(b.im)
    large, small = select(wide, b.re, b.im), select(wide, b.im, b.re)
    ratio = small / large
    inverse = 1.0 / (large + small * ratio)
    re = select(wide, a.re + a.im * ratio, a.re * ratio + a.im) * inverse
    im = select(wide, a.im - a.re * ratio, a.im * ratio - a.re) * inverse
    zero = (b.re == 0) & (b.im == 0)
    size = abs(b.re)
    return ComplexSymbol(select(zero, a.re / size, re), select(zero, a.im / size, im))


def _equal(a: ComplexSymbol, b: ComplexSymbol) -> Symbol:
    return (a.re == b.re) & (a.im == b.im)


def _power(base: Any, exponent: Any) -> ComplexSymbol:
    if isinstance(exponent, (int, float)) and exponent in (1, 2):
        return base if exponent == 1 else _product(base, base)
    from flambeau_kernels.scalar.complex_functions import power

    return power(base, exponent)


def _hypot(x: Symbol, y: Symbol) -> Symbol:
    from flambeau_kernels.scalar import functions  # the table imports what this module is imported by

    return functions.table(x.kind)["hypot"](x, y)


def _angle(z: ComplexSymbol) -> Symbol:
    from flambeau_kernels.scalar import functions

    return functions.table(z.kind)["atan2"](z.im, z.re)


def _where(condition: Symbol, a: Any, b: Any) -> Symbol:
    if isinstance(condition, ComplexSymbol):
        condition = condition.to(BOOL)
    if not isinstance(a, ComplexSymbol) and not isinstance(b, ComplexSymbol):
        return select(condition, a, b)
    a, b = both(a, b)
    return ComplexSymbol(select(condition.to(BOOL), a.re, b.re), select(condition.to(BOOL), a.im, b.im))


def _nan(x: Symbol) -> Symbol:
    return x != x


def _infinite(x: Symbol) -> Symbol:
    return abs(x) == float("inf")


WORDS: dict[str, Callable[..., Any]] = {
    "abs": abs, "real": lambda z: z.re, "imag": lambda z: z.im, "conj": lambda z: ComplexSymbol(z.re, -z.im),
    "angle": _angle, "where": _where, "pow": lambda z, n: z**n,
    "isnan": lambda z: _nan(z.re) | _nan(z.im), "isinf": lambda z: _infinite(z.re) | _infinite(z.im),
    "isfinite": lambda z: ~(_nan(z.re) | _nan(z.im) | _infinite(z.re) | _infinite(z.im)),
    "fma": lambda x, y, z: x * y + z,
}  # fmt: skip
