"""Several formulas as one: the text of a function that calls theirs one after the other."""

from __future__ import annotations

import functools
import re
from typing import Any

from flambeau_kernels import expression, vocabulary
from flambeau_kernels.engine.launching import loops
from flambeau_kernels.formula import Formula
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.scalar.words import READING

from ..dtypes import bfloat16, dtype, float16, float32, float64

FUSED_DTYPES = (float16, bfloat16, float32, float64)

# What rounds the results of operations whose dtype is not the one that they compute in.
_ROUNDS = {float16: vocabulary.round_to_float16, bfloat16: vocabulary.round_to_bfloat16}


class Text:
    """The text of a formula while it is written.

    Operands are named by whatever a program hands in for them: tuples of a kind and a key. `names` has their names. Of operations whose
    results are of a half type each result is rounded to it, as it is when it is stored.
    """

    def __init__(self, title: str, dtype: dtype) -> None:
        self.title = title
        self.names: dict[Any, str] = {}
        self.operands: list[Any] = []
        self.names_of_operands: set[str] = set()
        self._rounds = _ROUNDS.get(dtype)
        self._scope: dict[str, Any] = {} if self._rounds is None else {self._rounds.name: self._rounds}
        self._titles: dict[str, str] = {}             # what functions in the scope are called for people
        self._lines: list[str] = []
        self._count = 0

    def operand(self, operand: tuple[str, Any]) -> str:
        """The name of an operand."""
        kind, key = operand
        # Numbers are equal to others that they are not the same as.
        known: Any = (kind, key.__class__, repr(key.value)) if kind == "number" else operand
        if known not in self.names:
            name = self.names[known] = f"a{len(self.operands)}"
            self.operands.append(operand)
            self.names_of_operands.add(name)
        return self.names[known]

    def constant(self, value: Any, formula: Formula, at: int, refs: Any) -> str:
        """What stands for operand `at` of `formula`, a number; `refs` has ints, or None, for those that are none.

        It is part of the kernel, which is half as fast again when it is handed in, unless the formula computes with numbers alone:
        Python would do that in double precision.
        """
        if formula.exact and not folds(formula, tuple([r is not None and r.__class__ is not int for r in refs])):
            name = f"c{len(self._scope)}"
            self._scope[name] = value
            return name
        return self.operand(("number", Number(value)))

    def line(self, formula: Formula, arguments: list[str], rounds: bool = True) -> str:
        """The name of the result of `formula` of the operands and results `arguments`; `rounds`: it is a number, stored as one."""
        known = next((name for name, f in self._scope.items() if f is formula.fn), None)
        if known is None:
            known = f"f{len(self._scope)}"
            self._scope[known] = formula.fn
            self._titles[known] = formula.name
        return self._named(f"{known}({', '.join(arguments)})", rounds)

    def sum(self, a: str, b: str) -> str:
        """The name of the sum of two results."""
        return self._named(f"{a} + {b}")

    def number(self, truth: str) -> str:
        """The name of the number that a truth value is to formulas which read it from memory."""
        self._scope["where"] = vocabulary.where
        return self._named(f"where({truth}, 1.0, 0.0)", False)

    def _named(self, text: str, rounds: bool = True) -> str:
        name = f"t{self._count}"
        if self._rounds is not None and rounds:
            text = f"{self._rounds.name}({text})"
        self._count += 1
        self._lines.append(f"    {name} = {text}")
        return name

    def formula(self, results: tuple[str, ...]) -> Formula:
        """The formula that gives `results`, by the operands in `operands`."""
        given = ", ".join([f"a{i}" for i in range(len(self.operands))])
        text = "\n".join([f"def {self.title}({given}):", *self._lines, f"    return {', '.join(results)}"])
        exec(compile(text, "<flambeau fused>", "exec"), self._scope)  # the text is made of names of this class's own
        return Formula(self._scope[self.title], self.title, thorough=True)

    def shown(self, results: tuple[str, ...]) -> str:
        """The text for people: functions by their names, and constants by their values."""
        given = ", ".join([f"a{i}" for i in range(len(self.operands))])
        known = {name: repr(value) for name, value in self._scope.items()} | self._titles
        lines = [re.sub(r"\b[cf]\d+\b", lambda m: known[m[0]], line) for line in self._lines]
        return "\n".join([f"def {self.title}({given}):", *lines, f"    return {', '.join(results)}"])


class Number:
    """A number that is handed to a kernel."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@functools.lru_cache(4096)
def folds(formula: Formula, numbers: tuple[bool, ...]) -> bool:
    """Whether the formula computes something of those operands alone that are `numbers`."""
    try:
        _, results = expression.trace(formula)
    except expression.NotAFormula:                    # it calls what the words have no expression for
        return True
    known = {name for name, is_number in zip(formula.parameters, numbers, strict=True) if is_number}
    fixed: set[Any] = set()
    for e in expression.below(results):
        if e.word == "":
            if e.operands[0] in known:
                fixed.add(e)
        elif all(not isinstance(x, expression.Expression) or x in fixed for x in e.operands):
            if e.word != "*" or not any(x.__class__ is int and x == 1 for x in e.operands):
                return True
            fixed.add(e)                              # a number times 1 is that number
    return False


@functools.lru_cache(4096)
def widens(formula: Formula) -> bool:
    """Whether the formula of float32 computes in float64 on the way.

    LLVM then takes the conversions of a half type before and after it together, into one from float64 that processors do not have.
    """
    block = _code(formula, "float32")
    return block is None or any("double" in line for line in block.lines)


@functools.lru_cache(4096)
def looks_first(formula: Formula, dtype: str) -> bool:
    """Whether the loop of the formula in float32 or float64 looks through its arguments before it computes, for rare ones.

    It computes them twice, if they are not operands.
    """
    block = _code(formula, dtype)
    return block is not None and bool(block.rare)


def _code(formula: Formula, dtype: str) -> Any:
    """The code of the formula in `dtype`; None for one that is left to numpy."""
    given, out = (loops.Operand(dtype, "c"),) * len(formula.parameters), loops.Operand(dtype, "c")
    try:
        return loops.trace(formula.name, formula.bind(READING), given, (out,), dtype, False)[0]
    except (Unsupported, TypeError, AttributeError):
        return None


@functools.lru_cache(4096)
def is_real(formula: Formula) -> bool:
    """Whether the formula of real numbers computes with real numbers alone, as far as can be said."""
    try:
        _, results = expression.trace(formula)
    except expression.NotAFormula:
        return False
    return not any(isinstance(x, complex) for e in expression.below(results) for x in e.operands)
