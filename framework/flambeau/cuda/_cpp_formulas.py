"""Formulas from the C++ text that elementwise kernels of PyTorch's jiterator are written in.

A translation unit is one or more function templates of one type, ``template <typename T> T name(T x, T y, ...)``; the last is the
kernel, which may call the others. What formulas can say is translated: declarations, assignments, ``if`` and ``return``, the
operators of C++ and its functions of numbers. Branches become choices (`where`), so both sides of them are computed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

__all__ = ["Kernel", "Unreadable", "kernel_of", "source_of"]


class Unreadable(Exception):
    """Text that is no such template."""


@dataclass
class Kernel:
    """One function template.

    Attributes:
        inputs, outputs: names of parameters; outputs are those taken by reference.
        body: tokens between the braces.
    """

    name: str
    inputs: list[str]
    outputs: list[str]
    body: list[str]
    helpers: dict[str, Kernel] = field(default_factory=dict)


_TEMPLATE = re.compile(
    r"\s*template\s*<\s*typename\s+(\w+)\s*>\s*(?:(?:static|inline|__device__|__host__|constexpr)\s+)*(\w+)\s+(\w+)\s*\(([^)]*)\)\s*\{"
)
_PARAMETER = re.compile(r"(?:const\s+)?(\w+)\s*(&?)\s*(\w+)")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*|(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*"
    r"|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,(){}\[\].])"
)
# What functions of C++ are called in formulas.
_FUNCTIONS = {
    "abs": "abs", "fabs": "abs", "max": "_larger", "min": "_smaller", "round": "_rounded_away", "rint": "nearbyint",
    **{name: name for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "erfc", "erfinv", "exp",
        "exp2", "expm1", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "isfinite", "isinf", "isnan", "lgamma", "log", "log10", "log1p",
        "log2", "nearbyint", "pow", "rsqrt", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    )},
}  # fmt: skip
_CONSTANTS = {"true": "True", "false": "False", "M_PI": repr(math.pi), "M_E": repr(math.e), "INFINITY": "_infinity", "NAN": "_nan"}
_INTEGERS = {"int", "int32_t", "int64_t", "long"}         # what is converted to these is cut off
_TYPES = {"auto", "bool", "double", "float", *_INTEGERS}
# Binary operators from the loosest: C++'s, and how formulas write them.
_LEVELS: list[dict[str, str]] = [
    {"||": "logical_or({}, {})"}, {"&&": "logical_and({}, {})"}, {"|": "({} | {})"}, {"^": "({} ^ {})"}, {"&": "({} & {})"},
    {"==": "({} == {})", "!=": "({} != {})"}, {"<": "({} < {})", ">": "({} > {})", "<=": "({} <= {})", ">=": "({} >= {})"},
    {"<<": "({} << {})", ">>": "({} >> {})"}, {"+": "({} + {})", "-": "({} - {})"},
    {"*": "({} * {})", "/": "_over({}, {})", "%": "fmod({}, {})"},
]  # fmt: skip


def kernel_of(text: str) -> Kernel:
    """The last function template of `text`, with the others as its helpers. Raises: Unreadable."""
    rest = _COMMENTS.sub(" ", text)
    found: list[Kernel] = []
    while rest.strip():
        head = _TEMPLATE.match(rest)
        if head is None:
            raise Unreadable
        _, _, name, listed = head.groups()
        inputs: list[str] = []
        outputs: list[str] = []
        for each in filter(str.strip, listed.split(",")):
            parameter = _PARAMETER.fullmatch(each.strip())
            if parameter is None:
                raise Unreadable
            (outputs if parameter[2] else inputs).append(parameter[3])
        body, rest = _braced(rest[head.end() :])
        found.append(Kernel(name, inputs, outputs, _tokens(body), {k.name: k for k in found}))
    if not found:
        raise Unreadable
    return found[-1]


def _braced(text: str) -> tuple[str, str]:
    """What stands before the brace that closes one before `text`, and what comes after it."""
    depth = 1
    for at, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if not depth:
            return text[:at], text[at + 1 :]
    raise Unreadable


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise Unreadable
        found.append(token[1])
        at = token.end()
    return found


def source_of(kernel: Kernel, name: str, defaults: dict[str, Any], output: str | None = None) -> str:
    """Python's text of a formula called `name` for what `kernel` returns, or stores in its parameter `output`.

    Args:
        defaults: of the last inputs, which become keyword-only.
    Raises: NotImplementedError, naming it, for what formulas do not have; Unreadable.
    """
    lines: list[str] = []
    given = [i for i in kernel.inputs if i not in defaults]
    options = [f"{_python_name(i)}={defaults[i]!r}" for i in kernel.inputs if i in defaults]
    parameters = ", ".join([*map(_python_name, given), *(["*", *options] if options else [])])
    value = _Translator(kernel, list(kernel.body), lines).run({i: _python_name(i) for i in kernel.inputs}, output)
    return "\n".join([f"def {name}({parameters}):", *(f"    {line}" for line in lines), f"    return {value}", ""])


def _python_name(name: str) -> str:
    return f"c_{name}"                                # apart from Python's words, and from those of formulas


def _converted(kind: str, value: str) -> str:
    """`value` as one of the C++ type `kind`, the kernel's own type among them."""
    return f"trunc({value})" if kind in _INTEGERS else f"(({value}) != 0)" if kind == "bool" else f"({value})"


class _Translator:
    """Some statements of a kernel, and the lines of Python that stand for what was read so far."""

    def __init__(self, kernel: Kernel, tokens: list[str], lines: list[str], depth: int = 0) -> None:
        self.kernel, self.tokens, self.at = kernel, tokens, 0
        self.lines, self.depth = lines, depth

    def run(self, values: dict[str, str], output: str | None = None) -> str:
        """The name of what is returned, or of what `output` holds in the end."""
        returned = self.statements(values)
        value = returned if output is None else values.get(output)
        if value is None:
            raise Unreadable
        return value

    def named(self, expression: str) -> str:
        """A name for the value of `expression`."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name

    # -- statements

    def statements(self, values: dict[str, str]) -> str | None:
        """Run all of them; the name of what they return, or None."""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token == ";":
                self.at += 1
            elif token == "{":
                self.tokens[self.at :] = [*self.statement(), *self.tokens[self.at :]]
            elif token == "return":
                self.at += 1
                if self.peek() == ";":
                    raise NotImplementedError("cuda.jiterator: a return without a value is not built; leave it out")
                value = self.named(self.expression(values))
                self.take(";")
                return value
            elif token == "if":
                condition, then, otherwise = self.branches(values)
                if "return" in then or "return" in otherwise:
                    rest = self.tokens[self.at :]
                    one = self.of([*then, *rest]).statements(dict(values))
                    two = self.of([*otherwise, *rest]).statements(dict(values))
                    if one is None or two is None:
                        raise Unreadable
                    return self.named(f"where({condition}, {one}, {two})")
                sides = dict(values), dict(values)
                for side, tokens in zip(sides, (then, otherwise), strict=True):
                    self.of(tokens).statements(side)
                for name in values.keys() | {o for o in self.kernel.outputs if o in sides[0] and o in sides[1]}:
                    if sides[0][name] != sides[1][name]:
                        values[name] = self.named(f"where({condition}, {sides[0][name]}, {sides[1][name]})")
                    else:
                        values[name] = sides[0][name]
            elif token in ("for", "while", "do", "switch"):
                raise NotImplementedError(
                    f"cuda.jiterator: {token!r} is not built, a formula has no loops; write the kernel with flambeau.kernels.loop"
                )
            else:
                self.assignment(values)
        return None

    def of(self, tokens: list[str]) -> _Translator:
        return _Translator(self.kernel, tokens, self.lines, self.depth)

    def branches(self, values: dict[str, str]) -> tuple[str, list[str], list[str]]:
        """The condition of an ``if``, and the statements on both sides."""
        self.take("if", "(")
        condition = self.named(self.expression(values))
        self.take(")")
        then = self.statement()
        otherwise: list[str] = []
        if self.peek() == "else":
            self.at += 1
            otherwise = self.statement()
        return condition, then, otherwise

    def statement(self) -> list[str]:
        """The tokens of the next statement, which is passed over; of braces what is inside."""
        start = self.at
        if self.peek() == "{":
            depth = 0
            for at in range(start, len(self.tokens)):
                depth += {"{": 1, "}": -1}.get(self.tokens[at], 0)
                if not depth:
                    self.at = at + 1
                    return self.tokens[start + 1 : at]
            raise Unreadable
        if self.peek() == "if":
            self.at += 1
            self.parentheses()
            self.statement()
            if self.peek() == "else":
                self.at += 1
                self.statement()
        else:
            self.at = self.tokens.index(";", start) + 1
        return self.tokens[start : self.at]

    def parentheses(self) -> None:
        """Pass over what is in parentheses."""
        depth = 0
        for at in range(self.at, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[at], 0)
            if not depth:
                self.at = at + 1
                return
        raise Unreadable

    def assignment(self, values: dict[str, str]) -> None:
        declares, kind = False, ""
        while self.tokens[self.at] == "const" or self.is_type(self.tokens[self.at]) and self.tokens[self.at + 1] not in ("(", "="):
            declares, kind = True, self.tokens[self.at]
            self.at += 1
        while True:
            name, sign = self.tokens[self.at], self.tokens[self.at + 1]
            if not name.isidentifier() or not (declares or name in values or name in self.kernel.outputs):
                raise Unreadable
            self.at += 2
            if sign == "=":
                values[name] = self.named(_converted(kind, self.expression(values)))
            elif len(sign) == 2 and sign[1] == "=" and name in values and sign[0] in "+-*/%&|^":
                text = next(level[sign[0]] for level in _LEVELS if sign[0] in level)
                values[name] = self.named(text.format(values[name], self.expression(values)))
            else:
                raise Unreadable
            if declares and self.tokens[self.at] == ",":
                self.at += 1
                continue
            self.take(";")
            return

    # -- expressions

    def expression(self, values: dict[str, str]) -> str:
        condition = self.binary(values, 0)
        if self.peek() != "?":
            return condition
        self.take("?")
        one = self.expression(values)
        self.take(":")
        return f"where({condition}, {one}, {self.expression(values)})"

    def binary(self, values: dict[str, str], level: int) -> str:
        if level == len(_LEVELS):
            return self.unary(values)
        found = self.binary(values, level + 1)
        while (sign := self.peek()) in _LEVELS[level]:
            self.at += 1
            other = self.binary(values, level + 1)
            if sign == "/" and found.isdigit() and other.isdigit():
                found = str(int(found) // int(other))     # whole numbers of the text, whatever the kernel's type is
            else:
                found = _LEVELS[level][sign].format(found, other)
        return found

    def unary(self, values: dict[str, str]) -> str:
        token = self.peek()
        if token in ("-", "+", "!", "~"):
            self.at += 1
            text = {"-": "(-{})", "+": "{}", "!": "logical_not({})", "~": "bit_not({})"}[token]
            return text.format(self.unary(values))
        if token == "(" and self.tokens[self.at + 2 : self.at + 3] == [")"] and self.is_type(self.tokens[self.at + 1]):
            kind = self.tokens[self.at + 1]
            self.at += 3
            return _converted(kind, self.unary(values))
        return self.primary(values)

    def primary(self, values: dict[str, str]) -> str:
        token = self.peek()
        self.at += 1
        if token == "(":
            found = self.expression(values)
            self.take(")")
            return found
        if token[:1].isdigit() or token[:1] == "." and len(token) > 1:
            if token[:2] in ("0x", "0X"):
                return str(int(token, 16))
            bare = token.rstrip("fFuUlL")
            return repr(float(bare)) if re.search(r"[.eE]", bare) else str(int(bare))
        name = token.removeprefix("::").removeprefix("std::")
        if name == "static_cast":
            self.take("<")
            kind = self.peek()
            self.at += 1
            self.take(">")
            return _converted(kind, self.arguments(values)[0])
        if self.peek() == "(":
            return self.call(name, self.arguments(values))
        if name in values:
            return values[name]
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        raise Unreadable

    def call(self, name: str, given: list[str]) -> str:
        if self.is_type(name):
            return _converted(name, given[0])
        helper = self.kernel.helpers.get(name)
        if helper is not None:
            if helper.outputs or len(given) != len(helper.inputs) or self.depth > 20:
                raise Unreadable
            values = dict(zip(helper.inputs, map(self.named, given), strict=True))
            return _Translator(helper, list(helper.body), self.lines, self.depth + 1).run(values)
        if name not in _FUNCTIONS:
            raise NotImplementedError(
                f"cuda.jiterator: the function {name!r} is not built; there are {', '.join(sorted(_FUNCTIONS))}, and those of the text"
            )
        return f"{_FUNCTIONS[name]}({', '.join(given)})"

    def arguments(self, values: dict[str, str]) -> list[str]:
        self.take("(")
        found: list[str] = []
        while self.peek() != ")":
            found.append(self.expression(values))
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return found

    # -- tokens

    def is_type(self, token: str) -> bool:
        return token in _TYPES or token == "T" or bool(re.fullmatch(r"[A-Z]\w*_t|scalar_t", token))

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> None:
        for token in expected:
            if self.peek() != token:
                self.fail()
            self.at += 1

    def fail(self) -> NoReturn:
        raise Unreadable
