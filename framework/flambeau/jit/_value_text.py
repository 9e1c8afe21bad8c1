"""Values as scripts print them, which is not Python's way: floats with 17 digits, texts without quotes, tensors by rows and columns."""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as fb

__all__ = ["format_percent", "text_of_value"]

_LINE = 80  # characters, after which columns of a matrix go to another group


def text_of_value(value: Any) -> str:
    """What `print`, `str` and `format` show of a value inside of a script."""
    kind = type(value)
    if kind is str:
        return value
    if kind is float:
        return _float(value)
    if kind is complex:
        imaginary = _float(value.imag)
        return f"{_float(value.real)}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
    if isinstance(value, fb.Tensor):
        return _tensor(value)
    if isinstance(value, list):
        return f"[{', '.join(map(text_of_value, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(text_of_value, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text_of_value(k)}: {text_of_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, enum.Enum):
        return f"Enum<{kind.__name__}.{value.name}>"
    return str(value)


def _float(x: float) -> str:
    if x == 0:
        return "0."
    text = f"{x:.17g}"
    return text + "." if text.lstrip("-").isdigit() else text


# -- tensors -------------------------------------------------------------------------------------------------------------

_OF_DTYPES = {
    fb.uint8: "Byte", fb.int8: "Char", fb.int16: "Short", fb.int32: "Int", fb.int64: "Long", fb.float16: "Half", fb.bfloat16: "BFloat16",
    fb.float32: "Float", fb.float64: "Double", fb.bool: "Bool", fb.complex64: "ComplexFloat", fb.complex128: "ComplexDouble",
}  # fmt: skip


def _tensor(x: Any) -> str:
    if x.layout != fb.strided or x.is_quantized or x.is_nested:
        return str(x)
    x = x.detach()
    short = _OF_DTYPES.get(x.dtype) or str(x.dtype).rpartition(".")[2].replace("uint", "UInt").replace("float8", "Float8")
    kind = f"[ {x.device.type.upper()}{short}Type{{{','.join(map(str, x.shape))}}} ]"
    if x.is_complex():
        x = x.real
    if x.dim() == 0:
        return f"{_number(float(x.item()) if x.is_floating_point() else int(x.item()))}\n{kind}"
    if x.numel() == 0:
        return kind
    numbers = x.to("cpu", fb.float64)
    if x.dim() == 1:
        scale, one = _column(numbers.tolist())
        head = "" if scale == 1 else f"{_number(scale)} *\n"
        return f"{head}{''.join([one(v) + chr(10) for v in numbers.tolist()])}{kind}"
    if x.dim() == 2:
        return f"{''.join(_matrix(numbers.tolist(), ''))}{kind}"
    parts = []
    for at, index in enumerate(_indices(x.shape[:-2])):
        head = f"({','.join([str(i + 1) for i in index])},.,.) = \n"
        parts.append(("\n" if at else "") + head + "".join(_matrix(numbers[tuple(index)].tolist(), " ")))
    return f"{''.join(parts)}{kind}"


def _indices(shape: Any) -> Iterator[list[int]]:
    """All indices, the first dimension fastest."""
    if not len(shape):
        yield []
        return
    for last in range(shape[-1]):
        for rest in _indices(shape[:-1]):
            yield [*rest, last]


def _matrix(rows: list[list[float]], indent: str) -> Iterator[str]:
    """The lines of a matrix, in groups of as many columns as a line has room for. The first line is indented less than the others."""
    scale, one = _column([v for row in rows for v in row])
    count = len(rows[0])
    fitting = max((_LINE - len(indent)) // (len(one(0.0)) + 1), 1)
    further = indent if scale == 1 else indent + " "
    for begin in range(0, count, fitting):
        end = min(begin + fitting, count)
        if fitting < count:
            yield f"{chr(10) if begin else ''}Columns {begin + 1} to {end}{indent}"
        if scale != 1:
            yield f"{_number(scale)} *\n{indent}"
        for at, row in enumerate(rows):
            yield f"{further if at else ''}{' '.join(map(one, row[begin:end]))}\n"


def _column(values: list[float]) -> tuple[float, Callable[[float], str]]:
    """What all the values are divided by, and what writes one of them in the common width."""
    finite = [abs(v) for v in values if math.isfinite(v)] or [0.0]
    least, most = _digits(min(finite)), _digits(max(finite))
    if all(v == math.ceil(v) for v in finite):
        return (1, _written(".4e", 11)) if most > 9 else (1, _written("g", most + 1))
    if most - least > 4:
        return 1, _written(".4e", 12 if abs(most) > 99 or abs(least) > 99 else 11)
    if most > 5 or most < 0:
        scale = 10.0 ** (most - 1)
        return scale, _written(".4f", 7, scale)
    return 1, _written(".4f", 7 if most == 0 else most + 6)


def _digits(x: float) -> int:
    return 1 if x == 0 else math.floor(math.log10(x)) + 1


def _written(spec: str, width: int, scale: float = 1) -> Callable[[float], str]:
    return lambda v: format(v / scale, spec).rjust(width)


def _number(x: float) -> str:
    text = repr(x)
    return text.removesuffix(".0")


# -- formats -------------------------------------------------------------------------------------------------------------


def format_percent(text: str, *values: Any) -> str:
    """``text % values`` in a script. Raises: RuntimeError for other conversions than %s, %d, %f, %c and %%, and another number of them."""
    parts, at, used = [], 0, 0
    while True:
        found = text.find("%", at)
        if found < 0:
            break
        parts.append(text[at:found])
        if found + 1 == len(text):
            raise RuntimeError("Incomplete format specifier")
        letter, at = text[found + 1], found + 2
        if letter == "%":
            parts.append("%")
            continue
        if used >= len(values):
            raise RuntimeError("Too few arguments for format string")
        parts.append(_converted(letter, values[used]))
        used += 1
    if used < len(values):
        raise RuntimeError("Too many arguments for format string")
    return "".join([*parts, text[at:]])


def _converted(letter: str, value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if letter in "dif" and letter:
        if not is_number:
            raise RuntimeError(f"%{letter} requires a number for formatting, but got {type(value).__name__}")
        if letter == "f":
            return f"{struct.unpack('f', struct.pack('f', value))[0]:f}"  # as the number of 32 bits that PyTorch makes of it
        return str(int(value))
    if letter == "c":
        return chr(value) if isinstance(value, int) else str(value)
    if letter == "s":
        return text_of_value(value)
    raise RuntimeError(f"The specifier %{letter} is not supported in TorchScript format strings")
