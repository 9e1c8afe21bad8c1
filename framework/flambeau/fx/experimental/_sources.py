"""Where symbols come from: inputs of a program, and properties of them; how expressions of them are written."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from enum import Enum

__all__ = ["FUNCTIONS", "ConstantSource", "LocalSource", "Source", "TensorProperty", "TensorPropertySource"]


@dataclass(frozen=True)
class Source:
    """Where a value comes from."""

    def name(self) -> str:
        """The expression of Python that gives the value."""
        raise NotImplementedError(f"{type(self).__name__}.name: a source says here what gives its value")


@dataclass(frozen=True)
class ConstantSource(Source):
    """A value of the name `source_name`."""

    source_name: str

    def name(self) -> str:
        """Its name."""
        return self.source_name


@dataclass(frozen=True)
class LocalSource(Source):
    """A local variable."""

    local_name: str
    is_input: bool = False

    def name(self) -> str:
        """How guards reach it."""
        return f"L[{self.local_name!r}]"


class TensorProperty(Enum):
    """A property of tensors."""

    SIZE = 0
    STRIDE = 1
    STORAGE_OFFSET = 2

    def method_name(self) -> str:
        """The method of Tensor that gives it."""
        return self.name.lower()


@dataclass(frozen=True)
class TensorPropertySource(Source):
    """A property of the tensor `base`; of its dimension `idx` where it has one for each."""

    base: Source
    prop: TensorProperty
    idx: int | None = None

    def name(self) -> str:
        """The call that gives it."""
        at = "" if self.idx is None else f"[{self.idx}]"
        return f"{self.base.name()}.{self.prop.method_name()}(){at}"


# The functions in expressions of sizes that are written as Python.
FUNCTIONS = {
    "FloorDiv": lambda a, b: a // b, "Mod": lambda a, b: a % b, "IntTrueDiv": lambda a, b: a / b, "LShift": operator.lshift,
    "RShift": operator.rshift, "PowByNatural": operator.pow, "Bitwise": lambda a, b, which: (a & b, a | b, a ^ b)[which],
    "Max": max, "Min": min, "max": max, "min": min,
    "abs": abs, "int": int, "round": round, "floor": math.floor, "ceil": math.ceil, "sqrt": math.sqrt,
    "Eq": lambda a, b: a == b, "Ne": lambda a, b: a != b,
}  # fmt: skip
