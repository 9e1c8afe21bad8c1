"""The instructions of a `scalar.symbols.Block` as lines of Python that `numba.cuda` compiles: `statement`.

Integers are signed between two instructions, and half types the int16 that they are stored in. A product is never contracted with the
addition after it (``fmul_rn``), so that a formula rounds on a device as it does on the host. numba's simulator runs the same
lines on numpy's numbers; it lacks `libdevice`, whose functions are here as numpy has them.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np

from flambeau_kernels.scalar.symbols import Unsupported

__all__ = ["NUMPY", "scope", "simulated", "statement", "value"]

# What numpy calls the values between two instructions.
NUMPY = {
    "i1": "bool_", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "half": "int16", "float": "float32",
    "double": "float64",
}  # fmt: skip

_CONVERSIONS = ("fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui", "trunc", "zext", "sext", "bitcast")
_CONVERSION = re.compile(rf"({'|'.join(_CONVERSIONS)}) (\w+) (\S+) to (\w+)$")
_COMPARISON = re.compile(r"([fi]cmp) (\w+) (\w+) (\S+), (\S+)$")
_CHOICE = re.compile(r"select i1 (\S+), (\w+) (\S+), \w+ (\S+)$")
_CALL = re.compile(r"call \w+ @llvm\.(\w+)\.[\w.]+\((.*)\)$")
_C_CALL = re.compile(r"call double @(\w+)\((.*)\) nobuiltin$")
_PLAIN = re.compile(r"(\w+) (?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|nsw|nuw|exact) )*(\w+) ([^,\s]+)(?:, (\S+))?$")
_PARAMETER = re.compile(r"\b[abcq]\b")


def value(text: str, llvm: str) -> str:
    """A value of an instruction's text as Python has it: a name, or a constant of the type `llvm`."""
    if text.startswith("%"):
        return text[1:].replace(".", "_")
    if llvm == "i1":
        return {"true": "True", "false": "False"}[text]
    if llvm in ("float", "double"):
        number = struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0] if text.startswith("0x") else float(text)
        decimal = repr(number) if math.isfinite(number) else "np.nan" if math.isnan(number) else "np.inf" if number > 0 else "-np.inf"
        return f"np.{NUMPY[llvm]}({decimal})"
    number, bits = int(text), int(llvm[1:])
    # A constant of an unsigned kind, as the signed number of the same bits.
    return f"np.{NUMPY[llvm]}({number - (1 << bits) if number >= 1 << (bits - 1) else number})"


def statement(line: str) -> list[str]:
    """An instruction, ``%v = fadd float %x, %y``, as Python: ``v = x + y``.

    Raises: Unsupported for what devices have no function of here.
    """
    made, _, text = line.strip().partition(" = ")
    to = made[1:].replace(".", "_")
    name, given = _read(text)
    found = _lines().get(name)
    if found is None:
        raise Unsupported(f"{name} on a device, by numba")
    meant = {**dict(zip("abc", given, strict=False)), "q": f"{to}_q"}
    *before, last = (_PARAMETER.sub(lambda found: meant[found[0]], one) for one in found)
    return [*before, f"{to} = {last}"]


def _read(text: str) -> tuple[str, list[str]]:
    """What the instruction `text` does, as `_lines` calls it, and to what."""
    if found := _CONVERSION.match(text):
        word, old, x, new = found.groups()
        return f"{word} {old} {new}", [value(x, old)]
    if found := _COMPARISON.match(text):
        word, how, kind, a, b = found.groups()
        return f"{word} {how} {kind}", [value(a, kind), value(b, kind)]
    if found := _CHOICE.match(text):
        condition, kind, a, b = found.groups()
        return "select", [value(a, kind), value(b, kind), value(condition, "i1")]
    if found := _CALL.match(text):
        word, arguments = found.groups()
        pairs = [a.split(" ") for a in arguments.split(", ")]
        if word == "abs":                             # the last argument says what is undefined
            pairs = pairs[:1]
        return f"{word} {pairs[0][0]}", [value(x, kind) for kind, x in pairs]
    if found := _C_CALL.match(text):
        return f"@{found[1]}", [value(a.split(" ")[1], "double") for a in found[2].split(", ")]
    if found := _PLAIN.match(text):
        word, kind, a, b = found.groups()
        return f"{word} {kind}", [value(x, kind) for x in (a, b) if x is not None]
    raise Unsupported(f"the instruction {text.split('(')[0][:60]!r} on a device, by numba")


def simulated() -> bool:
    """Whether numba's simulator stands for a device: NUMBA_ENABLE_CUDASIM, when numba was imported."""
    from numba import config

    return bool(getattr(config, "ENABLE_CUDASIM", 0))  # numba gives itself its settings when it is imported


def scope() -> dict[str, Any]:
    """What the text of a kernel refers to."""
    from numba import cuda

    if simulated():
        return {"np": np, "cuda": cuda, "libdevice": _stand_in()}
    from numba.cuda import libdevice

    return {"np": np, "cuda": cuda, "libdevice": libdevice}


@functools.cache
def _lines() -> dict[str, list[str]]:
    """The lines of each instruction, the last of which is its value: of `a`, `b` and `c`, with `q` for what it needs besides."""
    made = {"select": "a if c else b", "@lgamma": "libdevice.lgamma(a)", "@pow": "libdevice.pow(a, b)"}
    for name in ("cos", "exp", "log", "log1p", "sin", "tan"):
        made[f"@{name}"] = f"libdevice.{name}(a)"
    for kind, bits in (("float", 32), ("double", 64)):
        made.update({f"{name} {kind}": text for name, text in _of_floats(bits).items()})
    for bits in (8, 16, 32, 64):
        made.update({f"{name} i{bits}": text for name, text in _of_integers(bits).items()})
    made |= {
        "and i1": "a and b", "or i1": "a or b", "xor i1": "a != b", "icmp eq i1": "a == b", "icmp ne i1": "a != b",
        # Truth values in order: false before true, as numbers without a sign.
        "icmp ugt i1": "a and not b", "icmp uge i1": "a or not b", "icmp ult i1": "b and not a", "icmp ule i1": "b or not a",
    }  # fmt: skip
    made |= _conversions()
    # Python's quotients are rounded down, those of a processor towards zero.
    cut = ["q = a // b", "if q < 0 and q * b != a:", "    q += 1"]
    lines = {name: [text] for name, text in made.items()}
    for bits in (8, 16, 32, 64):
        lines[f"sdiv i{bits}"] = [*cut, f"np.int{bits}(q)"]
        lines[f"srem i{bits}"] = [*cut, f"np.int{bits}(a - q * b)"]
    return lines


def _of_floats(bits: int) -> dict[str, str]:
    f, exact = ("f", "f") if bits == 32 else ("", "d")
    made = {
        "fadd": "a + b", "fsub": "a - b", "fmul": f"libdevice.{exact}mul_rn(a, b)", "fdiv": f"libdevice.{exact}div_rn(a, b)",
        "frem": f"libdevice.fmod{f}(a, b)", "copysign": f"libdevice.copysign{f}(a, b)", "fneg": "-a",
        "maxnum": f"libdevice.fmax{f}(a, b)", "minnum": f"libdevice.fmin{f}(a, b)",
        "maximum": f"a + b if a != a or b != b else libdevice.fmax{f}(a, b)",
        "minimum": f"a + b if a != a or b != b else libdevice.fmin{f}(a, b)",
        "sqrt": f"libdevice.{exact}sqrt_rn(a)", "fma": f"libdevice.fma{f}_rn(a, b, c)",
        "fcmp uno": "a != a or b != b", "fcmp ord": "a == a and b == b",
    }  # fmt: skip
    made |= {name: f"libdevice.{name}{f}(a)" for name in ("fabs", "floor", "ceil", "trunc", "nearbyint")}
    # Of huge numbers alone: for others nobody looks at the answer, see `scalar/trigonometric.py`.
    for name in ("sin", "cos", "tan"):
        made[name] = f"np.float{bits}(libdevice.{name}(np.float64(a))) if a > 16777216 or a < -16777216 else a"
    signs = {"eq": "==", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    for how, sign in signs.items():
        made[f"fcmp o{how}"] = f"a {sign} b"
    made |= {"fcmp one": "a < b or a > b", "fcmp une": "a != b", "fcmp ueq": "not (a < b or a > b)"}
    for how, inverse in (("gt", "<="), ("ge", "<"), ("lt", ">="), ("le", ">")):
        made[f"fcmp u{how}"] = f"not (a {inverse} b)"
    return made


def _of_integers(bits: int) -> dict[str, str]:
    s, u = f"np.int{bits}", f"np.uint{bits}"
    made = {name: f"{s}(a {sign} b)" for name, sign in (
        ("add", "+"), ("sub", "-"), ("mul", "*"), ("and", "&"), ("or", "|"), ("xor", "^"), ("shl", "<<"), ("ashr", ">>"))}  # fmt: skip
    made |= {
        "lshr": f"{s}({u}(a) >> {u}(b))", "udiv": f"{s}({u}(a) // {u}(b))", "urem": f"{s}({u}(a) % {u}(b))",
        "abs": f"{s}(-a) if a < 0 else a", "icmp eq": "a == b", "icmp ne": "a != b",
    }  # fmt: skip
    for how, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
        made |= {f"icmp s{how}": f"a {sign} b", f"icmp u{how}": f"{u}(a) {sign} {u}(b)"}
    return made


def _conversions() -> dict[str, str]:
    made = {
        "fpext float double": "np.float64(a)", "fptrunc double float": "np.float32(a)",
        "fpext half float": "libdevice.half2float(a)", "fptrunc float half": "libdevice.float2half_rn(a)",
        "bitcast float i32": "libdevice.float_as_int(a)", "bitcast i32 float": "libdevice.int_as_float(a)",
        "bitcast double i64": "libdevice.double_as_longlong(a)", "bitcast i64 double": "libdevice.longlong_as_double(a)",
        "bitcast i16 half": "a", "bitcast half i16": "a", **{f"bitcast {kind} {kind}": "a" for kind in NUMPY},
    }  # fmt: skip
    sizes = (8, 16, 32, 64)
    for real in ("float", "double"):
        to = f"np.{NUMPY[real]}"
        made[f"uitofp i1 {real}"] = f"{to}(a)"
        for n in sizes:
            made |= {
                f"sitofp i{n} {real}": f"{to}(a)", f"uitofp i{n} {real}": f"{to}(np.uint{n}(a))",
                f"fptosi {real} i{n}": f"np.int{n}(a)", f"fptoui {real} i{n}": f"np.int{n}(np.uint{n}(a))",
            }  # fmt: skip
    for n in sizes:
        made |= {f"zext i1 i{n}": f"np.int{n}(a)", f"trunc i{n} i1": "(a & 1) != 0"}
        for wide in (w for w in sizes if w > n):
            made |= {
                f"sext i{n} i{wide}": f"np.int{wide}(a)", f"zext i{n} i{wide}": f"np.int{wide}(np.uint{n}(a))",
                f"trunc i{wide} i{n}": f"np.int{n}(a)",
            }  # fmt: skip
    return made


# -- numpy's numbers in the place of a device's --------------------------------------------------------------------------


@functools.cache
def _stand_in() -> SimpleNamespace:
    """The functions of `libdevice` that lines call, of numpy's numbers."""
    made: dict[str, Any] = {}
    for f, exact, of in (("f", "f", np.float32), ("", "d", np.float64)):
        made |= {
            f"{exact}mul_rn": lambda a, b: a * b, f"{exact}div_rn": lambda a, b: a / b, f"fmod{f}": np.fmod,
            f"copysign{f}": np.copysign, f"fmax{f}": _larger, f"fmin{f}": lambda a, b: -_larger(-a, -b), f"{exact}sqrt_rn": np.sqrt,
            f"fma{f}_rn": functools.partial(_fma, of), f"fabs{f}": np.abs, f"floor{f}": np.floor, f"ceil{f}": np.ceil,
            f"trunc{f}": np.trunc, f"nearbyint{f}": np.rint,
        }  # fmt: skip
    made |= {name: getattr(np, name) for name in ("cos", "exp", "log", "log1p", "sin", "tan")}
    made |= {
        "lgamma": lambda a: np.float64(math.lgamma(a)), "pow": np.power,
        "half2float": lambda a: np.float32(a.view(np.float16)), "float2half_rn": lambda a: np.float16(a).view(np.int16),
        "float_as_int": lambda a: a.view(np.int32), "int_as_float": lambda a: a.view(np.float32),
        "double_as_longlong": lambda a: a.view(np.int64), "longlong_as_double": lambda a: a.view(np.float64),
    }  # fmt: skip
    return SimpleNamespace(**made)


def _larger(a: Any, b: Any) -> Any:
    if a == b:                                        # zeros of two signs
        return b if np.signbit(a) else a
    return np.fmax(a, b)


def _fma(of: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return of(a * b + c)
    from fractions import Fraction

    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return of(a * b + c) if exact == 0 else _rounded(of, exact)


def _rounded(of: Any, number: Any) -> Any:
    """A fraction as the nearest number of the type `of`, ties to even."""
    digits, lowest = (24, -149) if of is np.float32 else (53, -1074)
    size = abs(number)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if size < _power_of_two(power):
        power -= 1
    last = max(power - digits + 1, lowest)
    exact = round(size / _power_of_two(last))         # Python rounds fractions to even
    made = of(np.ldexp(np.float64(exact), last))      # exact, but for what is too large
    return -made if number < 0 else made


def _power_of_two(power: int) -> Any:
    from fractions import Fraction

    return Fraction(2**power) if power >= 0 else Fraction(1, 2**-power)
