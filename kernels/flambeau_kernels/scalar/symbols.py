"""Symbolic numbers: running a formula on them writes its LLVM IR.

A `Block` collects straight-line code; a `Symbol` is one value in it. Operators follow numpy's rules for
dtypes (NEP 50: Python numbers adopt the dtype of the other side), so that a formula means the same here as in
the numpy tier. The same instruction on the same operands is written once.
"""
from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np


class Unsupported(Exception):
    """The compiled tier has no code for this; the message says for what. The numpy tier runs instead."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A machine type: `family` is b (truth value), i (signed), u (unsigned) or f (floating)."""

    name: str                                         # numpy's name
    llvm: str
    bits: int
    family: str


BOOL = Kind("bool", "i1", 1, "b")
INT = {n: Kind(f"int{n}", f"i{n}", n, "i") for n in (8, 16, 32, 64)}
UINT = {n: Kind(f"uint{n}", f"i{n}", n, "u") for n in (8, 16, 32, 64)}
F32 = Kind("float32", "float", 32, "f")
F64 = Kind("float64", "double", 64, "f")
I32, I64 = INT[32], INT[64]
KINDS = {kind.name: kind for kind in (BOOL, *INT.values(), *UINT.values(), F32, F64)}

_COMPARE = {                                          # operator: (floating, signed, unsigned)
    "==": ("oeq", "eq", "eq"), "!=": ("une", "ne", "ne"), "<": ("olt", "slt", "ult"),
    "<=": ("ole", "sle", "ule"), ">": ("ogt", "sgt", "ugt"), ">=": ("oge", "sge", "uge"),
}


class Block:
    """Straight-line code in the making.

Attributes: `lines` of IR; `needs`, declarations of the intrinsics used; `cost`, a rough count of vector
instructions for 32-bit elements; `compute`, the kind that constants fall back on; `scales`, whether the
machine multiplies by powers of two in one instruction (AVX-512); `register_bits`, of its widest vectors; `in_lanes`, how many
numbers side by side functions exist for that the code calls, 0 where that is left to LLVM; `rare`, truth values of arguments that the
code is not good for unless it is `careful` (see `common.unless`).
    """

    def __init__(self, compute: Kind, scales: bool = False, careful: bool = False, register_bits: int | None = None):
        self.compute = compute
        self.scales = scales
        self.careful = careful
        self.register_bits = register_bits or (512 if scales else 256)
        self.in_lanes = 0
        self.rare: list[Symbol] = []
        self.lines: list[str] = []
        self.needs: set[str] = set()
        self.cost = 0
        self._written: dict[tuple[str, Kind], Symbol] = {}

    def emit(self, kind: Kind, text: str, cost: int = 1) -> Symbol:
        """The value of instruction `text`, which has type `kind`."""
        symbol = self._written.get((text, kind))
        if symbol is None:
            symbol = self._written[text, kind] = Symbol(self, f"%v{len(self._written)}", kind)
            self.lines.append(f"  {symbol.name} = {text}")
            self.cost += cost * (2 if kind.bits == 64 else 1)
        return symbol

    def call(self, intrinsic: str, kind: Kind, *args: Symbol, extra: str = "", cost: int = 1) -> Symbol:
        """Call an overloaded LLVM intrinsic, as ``llvm.fma``, whose result is of `kind`."""
        suffix = ("f" if args[0].kind.family == "f" else "i") + str(args[0].kind.bits)
        if len(args) == 2 and args[1].kind.family == "i" and args[0].kind.family == "f":
            suffix += f".i{args[1].kind.bits}"
        types = [a.kind.llvm for a in args] + (["i1"] if extra else [])
        self.needs.add(f"declare {kind.llvm} @{intrinsic}.{suffix}({', '.join(types)})")
        values = ", ".join(f"{a.kind.llvm} {a.name}" for a in args)
        return self.emit(kind, f"call {kind.llvm} @{intrinsic}.{suffix}({values}{extra})", cost)

    def constant(self, value: complex, kind: Kind) -> Symbol:
        """A number of `kind`. Raises Unsupported if an integer kind cannot hold it."""
        if isinstance(value, complex):
            raise Unsupported("complex constants")
        return Symbol(self, literal(value, kind), kind)


def literal(value: float, kind: Kind) -> str:
    """`value` as LLVM writes a constant of `kind`."""
    if value == 0 and kind.family == "f" and math.copysign(1.0, value) < 0:
        return "-0.0"                                 # equal to 0.0, whose text the cache would give
    return _literal(value, kind)


@functools.lru_cache(4096)
def _literal(value: float, kind: Kind) -> str:
    if kind.family == "f":
        rounded = float(np.float32(value)) if kind is F32 else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if kind is BOOL:
        return "true" if value else "false"
    number = int(value)
    low = -(1 << (kind.bits - 1)) if kind.family == "i" else 0
    if number != value or not low <= number < low + (1 << kind.bits):
        raise Unsupported(f"the number {value} in {kind.name}")
    return str(number)


@functools.cache
def promote(a: Kind, b: Kind) -> Kind:
    """numpy's dtype for an operation on `a` and `b`."""
    name = np.result_type(a.name, b.name).name
    if name not in KINDS:
        raise Unsupported(f"{a.name} with {b.name}, which numpy computes in {name}")
    return KINDS[name]


def weak(number: Any, other: Kind) -> Kind:
    """The kind a Python number adopts beside a value of kind `other`."""
    if isinstance(number, (bool, np.bool_)):
        return other
    if isinstance(number, int):
        return I64 if other is BOOL else other
    if isinstance(number, float):
        return other if other.family == "f" else F64
    raise Unsupported(f"a {type(number).__name__} in a formula")


class Symbol:
    """One value of a block. Operators are numpy's, with numpy's results for division by zero and wide shifts.
    """

    __slots__ = ("block", "kind", "name")
    __hash__ = object.__hash__

    def __init__(self, block: Block, name: str, kind: Kind):
        self.block, self.name, self.kind = block, name, kind

    def __repr__(self) -> str:
        return f"<{self.kind.name} {self.name}>"

    def __bool__(self) -> bool:
        raise Unsupported("a formula that branches on a value (use where)")

    # What elementary functions are written with: see also the functions below.
    def const(self, value: float) -> Symbol:
        """`value` as a number of this symbol's kind."""
        return self.block.constant(value, self.kind)

    def to(self, kind: Kind) -> Symbol:
        return convert(self, kind)

    def bits(self) -> Symbol:
        """A float's bit pattern as a signed integer of its width."""
        kind = INT[self.kind.bits]
        return self.block.emit(kind, f"bitcast {self.kind.llvm} {self.name} to {kind.llvm}", 0)

    def float_of_bits(self) -> Symbol:
        """The float whose bit pattern this integer is."""
        kind = F32 if self.kind.bits == 32 else F64
        return self.block.emit(kind, f"bitcast {self.kind.llvm} {self.name} to {kind.llvm}", 0)

    # Arithmetic
    def __add__(self, other): return _arithmetic("add", "or", self, other)
    def __radd__(self, other): return _arithmetic("add", "or", other, self)
    def __sub__(self, other): return _arithmetic("sub", None, self, other)
    def __rsub__(self, other): return _arithmetic("sub", None, other, self)
    def __mul__(self, other): return _arithmetic("mul", "and", self, other)
    def __rmul__(self, other): return _arithmetic("mul", "and", other, self)
    def __truediv__(self, other): return _divide(self, other)
    def __rtruediv__(self, other): return _divide(other, self)
    def __floordiv__(self, other): return floor_divide(self, other)
    def __rfloordiv__(self, other): return floor_divide(other, self)
    def __mod__(self, other): return remainder(self, other)
    def __rmod__(self, other): return remainder(other, self)
    def __pow__(self, other): return _power(self, other)
    def __rpow__(self, other): return _power(other, self)
    def __pos__(self): return self

    def __neg__(self):
        kind = self.kind
        if kind is BOOL:
            raise Unsupported("minus on truth values")
        operation = "fneg {} {}" if kind.family == "f" else "sub {} 0, {}"
        return self.block.emit(kind, operation.format(kind.llvm, self.name))

    def __abs__(self):
        if self.kind.family == "f":
            return self.block.call("llvm.fabs", self.kind, self)
        if self.kind.family == "i":
            return self.block.call("llvm.abs", self.kind, self, extra=", i1 false")
        return self

    # Bits and truth values
    def __and__(self, other): return _bitwise("and", self, other)
    def __rand__(self, other): return _bitwise("and", other, self)
    def __or__(self, other): return _bitwise("or", self, other)
    def __ror__(self, other): return _bitwise("or", other, self)
    def __xor__(self, other): return _bitwise("xor", self, other)
    def __rxor__(self, other): return _bitwise("xor", other, self)
    def __lshift__(self, other): return _shift("shl", self, other)
    def __rlshift__(self, other): return _shift("shl", other, self)
    def __rshift__(self, other): return _shift("shr", self, other)
    def __rrshift__(self, other): return _shift("shr", other, self)

    def __invert__(self):
        return _bitwise("xor", self, self.block.constant(True if self.kind is BOOL else ones(self.kind),
                                                         self.kind))

    # Comparisons
    def __eq__(self, other): return _compare("==", self, other)
    def __ne__(self, other): return _compare("!=", self, other)
    def __lt__(self, other): return _compare("<", self, other)
    def __le__(self, other): return _compare("<=", self, other)
    def __gt__(self, other): return _compare(">", self, other)
    def __ge__(self, other): return _compare(">=", self, other)


def ones(kind: Kind) -> int:
    """The integer of `kind` with every bit set."""
    return -1 if kind.family == "i" else (1 << kind.bits) - 1


def pair(a: Any, b: Any) -> tuple[Symbol, Symbol]:
    """Both operands as symbols of their common kind; at least one is a symbol already."""
    if not isinstance(a, Symbol):
        a = _number_beside(a, b)
    elif not isinstance(b, Symbol):
        b = _number_beside(b, a)
    if a.kind is b.kind:
        return a, b
    kind = promote(a.kind, b.kind)
    return convert(a, kind), convert(b, kind)


def _number_beside(number: Any, symbol: Symbol) -> Symbol:
    if isinstance(number, np.generic):
        if number.dtype.name not in KINDS:
            raise Unsupported(f"a {number.dtype.name} number in a formula")
        return symbol.block.constant(number.item(), KINDS[number.dtype.name])
    return symbol.block.constant(number, weak(number, symbol.kind))


def convert(x: Symbol, kind: Kind) -> Symbol:
    """`x` as `kind`, as a C cast does; a float outside the integer's range gives the lowest integer, as x86 does."""
    if x.kind is kind:
        return x
    if kind is BOOL:
        return x != 0
    emit = x.block.emit
    old, new = x.kind, kind

    def plain(operation: str) -> Symbol:
        return emit(new, f"{operation} {old.llvm} {x.name} to {new.llvm}")

    if old.family == "f" and new.family == "f":
        return plain("fpext" if new.bits > old.bits else "fptrunc")
    if old.family == "f":
        return _float_to_integer(x, kind)
    if new.family == "f":
        return plain("sitofp" if old.family == "i" else "uitofp")
    if old.bits == new.bits:
        return Symbol(x.block, x.name, new)           # the same bits read the other way
    if old.bits > new.bits:
        return plain("trunc")
    return plain("sext" if old.family == "i" else "zext")


def _float_to_integer(x: Symbol, kind: Kind) -> Symbol:
    if kind.family == "u" and kind.bits == 64:
        # Above the signed range the conversion is done on what is left after taking 2**63 away.
        high = x >= float(1 << 63)
        signed = _float_to_integer(select(high, x - float(1 << 63), x), I64)
        return convert(select(high, signed ^ signed.const(-(1 << 63)), signed), kind)
    wide = INT[64 if kind.bits == 64 or kind is UINT[32] else 32]
    limit = float(1 << (wide.bits - 1))
    fits = (x >= -limit) & (x < limit)
    raw = x.block.emit(wide, f"fptosi {x.kind.llvm} {x.name} to {wide.llvm}")
    return convert(select(fits, raw, raw.const(-(1 << (wide.bits - 1)))), kind)


def to_integer(x: Symbol, kind: Kind) -> Symbol:
    """`x` cut to an integer, for values known to fit (anything else is undefined)."""
    return x.block.emit(kind, f"fptosi {x.kind.llvm} {x.name} to {kind.llvm}")


def select(condition: Symbol, a: Any, b: Any) -> Symbol:
    """`a` where `condition` (a truth value) holds, else `b`."""
    if isinstance(a, Symbol) or isinstance(b, Symbol):
        a, b = pair(a, b)
    else:
        kind = promote_numbers(a, b, condition.block.compute)
        a, b = condition.block.constant(a, kind), condition.block.constant(b, kind)
    text = f"select i1 {condition.name}, {a.kind.llvm} {a.name}, {a.kind.llvm} {b.name}"
    return condition.block.emit(a.kind, text)


def promote_numbers(a: Any, b: Any, compute: Kind) -> Kind:
    """Kind of a choice between two Python numbers: truth values stay so, others adopt the formula's kind."""
    if isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_)):
        return BOOL
    kind = weak(a if isinstance(a, float) else b, compute)
    return kind if kind is not BOOL else I64


def _arithmetic(operation: str, on_bools: str | None, a: Any, b: Any) -> Symbol:
    a, b = pair(a, b)
    kind = a.kind
    if kind is BOOL:
        if on_bools is None:
            raise Unsupported("minus on truth values")
        operation = on_bools
    prefix = "f" if kind.family == "f" else ""
    return a.block.emit(kind, f"{prefix}{operation} {kind.llvm} {a.name}, {b.name}")


def _divide(a: Any, b: Any) -> Symbol:
    a, b = pair(a, b)
    if a.kind.family != "f":
        a, b = convert(a, F64), convert(b, F64)
    return a.block.emit(a.kind, f"fdiv {a.kind.llvm} {a.name}, {b.name}", 4)


def fmod(a: Any, b: Any) -> Symbol:
    """Remainder with the sign of `a`; an integer modulo 0 is 0, as in numpy."""
    a, b = pair(a, b)
    kind = a.kind
    return _rest(a, b) if kind.family == "f" else _integer_division(a, b)[1]


# Quotients up to here are whole numbers in the dtype, and their products with the divisor are exact in a fused step.
_LARGEST_QUOTIENT = {32: 2.0**23, 64: 2.0**52}


def _rest(a: Symbol, b: Symbol) -> Symbol:
    """The remainder of floats, exactly: the rounded quotient is one off at most. Large quotients are the C library's."""
    block, kind = a.block, a.kind
    x, y = abs(a), abs(b)
    ratio = x / y
    rest = fma(-trunc(ratio), y, x)
    rest = select(rest < 0, rest + y, select(rest >= y, rest - y, rest))
    rest = copysign(select(x < y, x, rest), a)            # an infinite divisor too
    large = ratio > _LARGEST_QUOTIENT[kind.bits]
    if block.careful:
        return select(large, block.emit(kind, f"frem {kind.llvm} {a.name}, {b.name}", 40), rest)
    block.rare.append(large)
    return rest


def remainder(a: Any, b: Any) -> Symbol:
    """Remainder with the sign of `b`, a float zero with that of `a`; an integer modulo 0 is 0."""
    a, b = pair(a, b)
    rest = fmod(a, b)
    if a.kind.family == "u":
        return rest
    return select((rest != 0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


def floor_divide(a: Any, b: Any) -> Symbol:
    """Quotient rounded down; an integer over 0 is 0, a float over 0 what true division gives, as in numpy."""
    a, b = pair(a, b)
    if a.kind.family != "f":
        quotient, rest = _integer_division(a, b)
        if a.kind.family == "u":
            return quotient
        return quotient - convert((rest != 0) & ((rest < 0) ^ (b < 0)), a.kind)
    rest = fmod(a, b)
    quotient = (a - rest) / b
    quotient = select((rest != 0) & ((rest < 0) ^ (b < 0)), quotient - 1.0, quotient)
    # (a - rest) / b is a whole number but for rounding, so the nearest one is meant.
    down = floor(quotient)
    near = select(quotient - down > 0.5, down + 1.0, down)
    near = select(quotient == 0, copysign(quotient.const(0.0), a / b), near)
    return select(b == 0, a / b, near)


def _integer_division(a: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
    """Quotient towards zero and remainder; where the processor would trap (0, overflow), 0 and wrap-around.
    """
    kind = a.kind
    if kind is BOOL:
        raise Unsupported("division of truth values")
    zero = b == 0
    safe = select(zero, 1, b)
    if kind.family == "i":
        overflow = (a == -(1 << (kind.bits - 1))) & (b == -1)
        safe = select(overflow, 1, safe)
    quotient = _quotient(a, safe)
    return select(zero, 0, quotient), select(zero, 0, a - quotient * safe)


# Up to here floats are whole numbers, and a rounded quotient of two of them, cut, is the integer quotient: what it lacks to the
# next integer is at least 1/b, which is more than rounding adds.
_ALL_INTEGERS = 2.0**52


def _quotient(a: Symbol, b: Symbol) -> Symbol:
    """a / b towards zero for b other than 0, by floats, of which vectors are divided; the integers beyond their range one by one."""
    block, kind = a.block, a.kind
    by_integers = f"{'s' if kind.family == 'i' else 'u'}div {kind.llvm} {a.name}, {b.name}"
    if block.careful:
        return block.emit(kind, by_integers, 20)
    real = F64 if kind.bits > 16 else F32
    x, y = convert(a, real), convert(b, real)
    if kind.bits == 64:
        block.rare.append((abs(x) > _ALL_INTEGERS) | (abs(y) > _ALL_INTEGERS))
    cut = "fptoui" if kind is UINT[32] else "fptosi"
    wide = kind if kind.bits >= 32 else INT[32]
    return convert(block.emit(wide, f"{cut} {real.llvm} {(x / y).name} to {wide.llvm}"), kind)


def _bitwise(operation: str, a: Any, b: Any) -> Symbol:
    a, b = pair(a, b)
    if a.kind.family == "f":
        raise Unsupported(f"bitwise {operation} of floats")
    return a.block.emit(a.kind, f"{operation} {a.kind.llvm} {a.name}, {b.name}")


def _shift(direction: str, a: Any, b: Any) -> Symbol:
    a, b = pair(a, b)
    kind = a.kind
    if kind.family not in "iu":
        raise Unsupported(f"shift of {kind.name}")
    if direction == "shr":
        direction = "ashr" if kind.family == "i" else "lshr"
    count = Symbol(b.block, b.name, UINT[kind.bits])
    within = count < kind.bits                        # a negative count is a large unsigned one
    shifted = a.block.emit(kind, f"{direction} {kind.llvm} {a.name}, {select(within, count, 0).name}")
    beyond = select(a < 0, a.const(-1), 0) if direction == "ashr" else 0
    return select(within, shifted, beyond)


def shift_left(x: Symbol, count: int) -> Symbol:
    """`x` shifted by a constant smaller than its width."""
    return x.block.emit(x.kind, f"shl {x.kind.llvm} {x.name}, {count}")


def shift_right(x: Symbol, count: int) -> Symbol:
    """`x` shifted by a constant smaller than its width, keeping the sign of a signed integer."""
    operation = "ashr" if x.kind.family == "i" else "lshr"
    return x.block.emit(x.kind, f"{operation} {x.kind.llvm} {x.name}, {count}")


def _compare(sign: str, a: Any, b: Any) -> Symbol:
    a, b = pair(a, b)
    floating, signed, unsigned = _COMPARE[sign]
    if a.kind.family == "f":
        return a.block.emit(BOOL, f"fcmp {floating} {a.kind.llvm} {a.name}, {b.name}")
    predicate = signed if a.kind.family == "i" else unsigned
    return a.block.emit(BOOL, f"icmp {predicate} {a.kind.llvm} {a.name}, {b.name}")


def _power(base: Any, exponent: Any) -> Symbol:
    from flambeau_kernels.scalar.words import power  # it uses symbols, so it cannot be imported first

    return power(base, exponent)


# One instruction each on floats.
def fma(x: Symbol, y: Any, z: Any) -> Symbol:
    """x * y + z, rounded once."""
    kind = x.kind
    y, z = _float_beside(x, y), _float_beside(x, z)
    x.block.needs.add(f"declare {kind.llvm} @llvm.fma.f{kind.bits}({kind.llvm}, {kind.llvm}, {kind.llvm})")
    values = ", ".join(f"{kind.llvm} {v.name}" for v in (x, y, z))
    return x.block.emit(kind, f"call {kind.llvm} @llvm.fma.f{kind.bits}({values})")


def _float_beside(x: Symbol, y: Any) -> Symbol:
    return y if isinstance(y, Symbol) else x.const(y)


def copysign(x: Symbol, y: Symbol) -> Symbol:
    return x.block.call("llvm.copysign", x.kind, x, y)


def sqrt(x: Symbol) -> Symbol:
    return x.block.call("llvm.sqrt", x.kind, x, cost=6)


def floor(x: Symbol) -> Symbol:
    return x.block.call("llvm.floor", x.kind, x)


def ceil(x: Symbol) -> Symbol:
    return x.block.call("llvm.ceil", x.kind, x)


def trunc(x: Symbol) -> Symbol:
    return x.block.call("llvm.trunc", x.kind, x)


def nearbyint(x: Symbol) -> Symbol:
    """The nearest integer, ties to even."""
    return x.block.call("llvm.nearbyint", x.kind, x)


def scale(x: Symbol, power: Symbol) -> Symbol:
    """x * 2**power, rounded once; `power` is a whole number as a float, |power| up to 2**11 (float32: 2**8).
    """
    if x.block.scales:
        return x.block.call("llvm.ldexp", x.kind, x, to_integer(power, I32))
    exponent = to_integer(power, INT[x.kind.bits])
    half = shift_right(exponent, 1)
    # Two factors, each in range; the first product is exact, so rounding happens once.
    return x * power_of_two(half) * power_of_two(exponent - half)


def power_of_two(exponent: Symbol) -> Symbol:
    """2**exponent for an integer in the range of normal floats of the same width."""
    bias, fraction = (127, 23) if exponent.kind.bits == 32 else (1023, 52)
    return shift_left(exponent + bias, fraction).float_of_bits()
