"""The compiled reading of the vocabulary: every word a formula may use, on symbols."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from flambeau_kernels.scalar import complexes, halves, integers, recurrence
from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.complexes import ComplexSymbol
from flambeau_kernels.scalar.symbols import BOOL, Symbol, Unsupported, select
from flambeau_kernels.vocabulary import HOST_WORDS, WORDS


def where(condition: object, a: Any, b: Any) -> object:
    if not isinstance(condition, Symbol):
        return a if condition else b
    return select(condition.to(BOOL), a, b)


def absolute(x: Symbol) -> Symbol:
    return abs(x)


def sign(x: Symbol) -> Symbol:
    """-1, 0 or 1; 0 for nan, as PyTorch has it."""
    if x.kind.family in "bu":
        return (x != 0).to(x.kind)
    return (x > 0).to(x.kind) - (x < 0).to(x.kind)


def isnan(x: Symbol) -> Symbol:
    return x != x


def isinf(x: Symbol) -> Symbol:
    return abs(x) == float("inf") if x.kind.family == "f" else x != x


def isfinite(x: Symbol) -> Symbol:
    return abs(x) < float("inf") if x.kind.family == "f" else x == x


def signbit(x: Symbol) -> Symbol:
    return x.bits() < 0 if x.kind.family == "f" else x < 0


def logical_not(x: Symbol) -> Symbol:
    return ~x.to(BOOL)


def _logical(operation: Callable[[Symbol, Symbol], Symbol]) -> Callable[..., Symbol]:
    def word(a: Any, b: Any) -> Symbol:
        block = (a if isinstance(a, Symbol) else b).block
        return operation(*(v.to(BOOL) if isinstance(v, Symbol) else block.constant(bool(v), BOOL)
                           for v in (a, b)))

    return word


def _extreme(floating: str, integer: str, on_bools: str) -> Callable[..., Symbol]:
    def word(a: Any, b: Any) -> Symbol:
        a, b = sy.pair(a, b)
        if a.kind is BOOL:
            return a & b if on_bools == "and" else a | b
        name = floating if a.kind.family == "f" else ("llvm.s" if a.kind.family == "i"
                                                      else "llvm.u") + integer
        values = f"{a.kind.llvm} {a.name}, {a.kind.llvm} {b.name}"
        full = f"{name}.{'f' if a.kind.family == 'f' else 'i'}{a.kind.bits}"
        a.block.needs.add(f"declare {a.kind.llvm} @{full}({a.kind.llvm}, {a.kind.llvm})")
        return a.block.emit(a.kind, f"call {a.kind.llvm} @{full}({values})")

    return word


def copysign(a: Any, b: Any) -> Symbol:
    return sy.copysign(*_floats(*sy.pair(a, b)))


def fma(x: Any, y: Any, z: Any) -> Symbol:
    """x * y + z; rounded twice, as the numpy tier rounds it, so that the tiers agree to the bit."""
    return x * y + z


def rsqrt(x: Symbol) -> Symbol:
    return 1 / sy.sqrt(*_floats(x))


def _rounding(instruction: Callable[[Symbol], Symbol]) -> Callable[[Symbol], Symbol]:
    def word(x: Symbol) -> Symbol:
        if x.kind.family != "f":
            return x
        made = instruction(x)
        # The sign is there already. But of an element that nothing else reads LLVM would round the half, which processors do one by one.
        return sy.copysign(made, x) if halves.is_widened(x) else made

    return word


def power(base: Any, exponent: Any) -> Symbol:
    """base ** exponent; whole constant exponents up to 4, and halves, without the general function."""
    if isinstance(base, Symbol) and not isinstance(exponent, Symbol):
        short = _short_power(base, exponent)
        if short is not None:
            return short
    a, b = sy.pair(base, exponent)
    return _elementary("pow", a, b) if a.kind.family == "f" else integers.power(a, b)


def _short_power(x: Symbol, exponent: Any) -> Symbol | None:
    if isinstance(exponent, int) and 0 < exponent <= 4 and x.kind.family in "iuf":
        square = x * x
        return (x, square, square * x, square * square)[exponent - 1]
    if x.kind.family != "f" or exponent not in (-2, -1, 0, 0.5, 1, 2, 3, 4):
        return None
    if exponent == 0.5:
        return sy.sqrt(x)
    if exponent in (-1, -2):
        return 1 / (x if exponent == -1 else x * x)
    return _short_power(x, int(exponent)) if exponent else x.const(1.0)


def nextafter(a: Any, b: Any) -> Symbol:
    """The next float after `a` towards `b`."""
    x, y = _floats(*sy.pair(a, b))
    bits = x.bits()
    away = ~((x < y) ^ (x > 0))
    smallest = sy.copysign(bits.const(1).float_of_bits(), y)
    moved = (bits + select(away, bits.const(1), -1)).float_of_bits()
    moved = select(x == 0, smallest, moved)
    moved = select(x == y, y, moved)
    return select(isnan(x) | isnan(y), x + y, moved)


def real(x: Symbol) -> Symbol:
    return x


def imag(x: Symbol) -> Symbol:
    return x.const(0)


def angle(x: Symbol) -> Symbol:
    (x,) = _floats(x)
    return select(isnan(x), x, select(x < 0, 3.141592653589793, 0.0))


def polygamma(n: Any, x: Symbol) -> Symbol:
    """The derivatives of digamma of order 1 or more."""
    (x,) = _floats(x)
    if not isinstance(n, Symbol) and n in (1, 2):
        return _elementary("trigamma" if n == 1 else "tetragamma", x)
    return _elementary("polygamma", *sy.pair(n, x))


def _floats(*values: Symbol) -> tuple[Symbol, ...]:
    for value in values:
        if value.kind.family != "f":
            raise Unsupported(f"this function of {value.kind.name}")
    return values


def _elementary(name: str, *args: Symbol) -> Symbol:
    from flambeau_kernels.scalar import functions

    kind = _floats(*args)[0].kind
    found = functions.table(kind).get(name)
    if found is None:
        raise Unsupported(f"{name} of {kind.name}")
    return found(*args)


def _unary(name: str) -> Callable[[Symbol], Symbol]:
    return functools.partial(_elementary, name)


def _binary(name: str) -> Callable[[object, object], Symbol]:
    return lambda a, b: _elementary(name, *sy.pair(a, b))


def _refuse(name: str) -> Callable[..., Symbol]:
    def word(*args: object) -> Symbol:
        raise Unsupported(name)

    return word


def _complex_word(name: str) -> Callable[..., Any] | None:
    from flambeau_kernels.scalar import complex_functions

    return complex_functions.WORDS.get(name) or complexes.WORDS.get(name)


def _on_numbers(name: str, word: Callable[..., object]) -> Callable[..., object]:
    """`word`, but a call on Python numbers alone is computed now, by the numpy reading."""
    def either(*args: object) -> object:
        if any(isinstance(arg, ComplexSymbol) for arg in args) and not name.startswith("logical"):
            return (_complex_word(name) or _refuse(f"{name} of complex numbers"))(*args)
        if any(isinstance(arg, Symbol) for arg in args):
            return word(*args)
        from flambeau_kernels.reference import WORDS_READ

        return WORDS_READ[name](*args).item()

    return either


_PLAIN: dict[str, Callable[..., object]] = {
    "abs": absolute, "sqrt": lambda x: sy.sqrt(*_floats(x)), "rsqrt": rsqrt, "where": where,
    "sign": sign, "fma": fma, "isnan": isnan, "isinf": isinf, "isfinite": isfinite,
    "signbit": signbit, "copysign": copysign,
    "floor": _rounding(sy.floor), "ceil": _rounding(sy.ceil), "trunc": _rounding(sy.trunc),
    "nearbyint": _rounding(sy.nearbyint),
    "round_to_float16": lambda x: halves.rounded(x, "float16"), "round_to_bfloat16": lambda x: halves.rounded(x, "bfloat16"),
    "fmod": sy.fmod, "remainder": sy.remainder,
    "floor_divide": sy.floor_divide, "pow": power, "nextafter": nextafter, "hypot": _binary("hypot"),
    "minimum": _extreme("llvm.minimum", "min", "and"), "maximum": _extreme("llvm.maximum", "max", "or"),
    "fmin": _extreme("llvm.minnum", "min", "and"), "fmax": _extreme("llvm.maxnum", "max", "or"),
    "logical_not": logical_not, "logical_and": _logical(lambda a, b: a & b),
    "logical_or": _logical(lambda a, b: a | b), "logical_xor": _logical(lambda a, b: a ^ b),
    "real": real, "imag": imag, "conj": real, "angle": angle, "atan2": _binary("atan2"),
    "special_polygamma": polygamma,
    "gcd": lambda a, b: integers.gcd(*sy.pair(a, b)), "lcm": lambda a, b: integers.lcm(*sy.pair(a, b)),
    "orthogonal": recurrence.recurrence,
    "special_zeta": _binary("special_zeta"),
    "igamma": _binary("igamma"), "igammac": _binary("igammac"),
}  # fmt: skip

_ONLY_NUMPYS = frozenset(("ldexp", "frexp_mantissa",
                          "frexp_exponent", "bit_not"))
READING: dict[str, Callable[..., object]] = {
    **{name: _on_numbers(name, _PLAIN.get(name) or _unary(name)) for name in WORDS},
    **{name: _refuse(name) if name in _ONLY_NUMPYS else _on_numbers(name, _PLAIN.get(name) or _unary(name)) for name in HOST_WORDS},
}
READING["bit_not"] = lambda x: ~x


def _as_numpy(name: str, before: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The word `name` as two instructions and a comparison, as numpy's loops have it: of equal numbers the second.

    LLVM's own orders zeros by sign too, in twice the time. Reductions keep that one, which LLVM knows how to reorder.
    """
    usual = READING[name]

    def word(a: Any, b: Any) -> Any:
        if any(isinstance(x, ComplexSymbol) for x in (a, b)) or not any(isinstance(x, Symbol) for x in (a, b)):
            return usual(a, b)
        a, b = sy.pair(a, b)
        return select(a == a, select(before(a, b), a, b), a) if a.kind.family == "f" else usual(a, b)

    return word


OF_ELEMENTS = {**READING, "maximum": _as_numpy("maximum", operator.gt), "minimum": _as_numpy("minimum", operator.lt)}
