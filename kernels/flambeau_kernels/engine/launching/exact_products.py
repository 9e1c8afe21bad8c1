"""Sums with products by powers of two, rounded once where the bits are the same.

A product by a power of two is exact, unless it overflows or is subnormal. A constant of moderate size is added to it then: what
overflows is infinite with the sum or without it, and what is subnormal is too small to change the constant. So one instruction that
multiplies and adds gives the bits of two. Processors that do not have it multiply and add (``llvm.fmuladd``).
"""
from __future__ import annotations

import re

_FRACTION = (1 << 52) - 1                             # bits of a float64, as LLVM writes constants of both types
_BIAS = 1023
_MODERATE = 100                                       # constants lie between 2 to the power of minus this, and of this
_SIGN = 1 << 63

_LINE = re.compile(r"  (%\w+) = (fmul|fadd|fsub) (float|double) ([%\w]+), ([%\w]+)")
_CONSTANT = re.compile(r"0x([0-9A-F]{16})")
_NAMES = {"float": "f32", "double": "f64"}


def rounded_once(lines: list[str], needs: set[str]) -> list[str]:
    """The `lines` of straight-line code, with one instruction for each product by a power of two and the sum with a constant behind it.

    `needs` gets the declarations of what is called.
    """
    products: dict[str, tuple[str, int]] = {}         # by name: the operand, and the bits of the power of two
    made = []
    for line in lines:
        parts = _LINE.fullmatch(line)
        if parts is None:
            made.append(line)
            continue
        name, operation, kind, a, b = parts.groups()
        if operation == "fmul":
            value, factor = (b, _bits(a)) if _bits(a) is not None else (a, _bits(b))
            if factor is not None and value.startswith("%") and _is_power_of_two(factor, kind):
                products[name] = value, factor
            made.append(line)
            continue
        made.append(_sum(name, operation, kind, a, b, products, needs) or line)
    return made


def _sum(name: str, operation: str, kind: str, a: str, b: str, products: dict[str, tuple[str, int]], needs: set[str]) -> str | None:
    """The one instruction for a sum or difference of a product and a constant; None for any other."""
    flips_product = flips_constant = 0
    if a in products:
        (value, factor), constant = products[a], _bits(b)
        flips_constant = _SIGN if operation == "fsub" else 0
    elif b in products:
        (value, factor), constant = products[b], _bits(a)
        flips_product = _SIGN if operation == "fsub" else 0
    else:
        return None
    if constant is None or not -_MODERATE <= _exponent(constant) < _MODERATE:
        return None
    needs.add(f"declare {kind} @llvm.fmuladd.{_NAMES[kind]}({kind}, {kind}, {kind})")
    operands = f"{kind} {value}, {kind} {_text(factor ^ flips_product)}, {kind} {_text(constant ^ flips_constant)}"
    return f"  {name} = call {kind} @llvm.fmuladd.{_NAMES[kind]}({operands})"


def _bits(operand: str) -> int | None:
    found = _CONSTANT.fullmatch(operand)
    return int(found[1], 16) if found else None


def _text(bits: int) -> str:
    return f"0x{bits:016X}"


def _exponent(bits: int) -> int:
    """Of the power of two at or below the number's magnitude."""
    return (bits >> 52 & 0x7FF) - _BIAS


def _is_power_of_two(bits: int, kind: str) -> bool:
    """Whether the number is one, of either sign, and a normal number of the type."""
    return not bits & _FRACTION and (-126 if kind == "float" else -1022) <= _exponent(bits) < (128 if kind == "float" else 1024)
