"""The symbolic reading of the vocabulary: a formula run on expressions leaves a graph of what it computes.

`trace` makes the graph, `function_of` writes a straight-line function of it again, in readable text. Between the two a
program may look at the formula, as `flambeau.kernels` does to derive it.
"""

from __future__ import annotations

import itertools
import linecache
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import vocabulary
from .formula import Formula

__all__ = ["Expression", "Graph", "NotAFormula", "function_of", "read", "rounds_often", "trace"]

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|", "xor": "^",
    "lshift": "<<", "rshift": ">>",
}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_UNARY = {"neg": "-", "invert": "~"}
OPERATORS = frozenset((*_BINARY.values(), *_COMPARISONS.values()))
TRUTHS = frozenset((
    *_COMPARISONS.values(), "isnan", "isinf", "isfinite", "logical_not", "logical_and", "logical_or", "logical_xor", "signbit",
))  # fmt: skip


class NotAFormula(TypeError):
    """What a function does cannot be a formula; the message says what, and what to write instead."""


class Graph:
    """The expressions of one formula; equal ones are one object."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: dict[Any, Expression] = {}

    def parameter(self, name: str) -> Expression:
        """The expression of the parameter `name`."""
        found = self.made.get(name)
        if found is None:
            found = self.made[name] = Expression(self, "", (name,))
        return found

    def node(self, word: str, operands: tuple[Any, ...]) -> Expression:
        """The expression of `word` over `operands`, expressions or numbers."""
        operands = tuple(_number(x) if not isinstance(x, Expression) else x for x in operands)
        # 1, 1.0 and True are equal to Python, and so are zeros of both signs.
        key = (word, *(x if isinstance(x, Expression) else (type(x), repr(x)) for x in operands))
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = Expression(self, word, operands)
        return found


def _number(x: Any) -> Any:
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, (bool, int, float, complex)):
        return x
    raise NotAFormula(f"a formula has numbers, its parameters and words of the vocabulary; this is a {type(x).__name__}: {x!r}")


class Expression:
    """A parameter (`word` is "" and its only operand the name), or an operator or word over operands."""

    __slots__ = ("graph", "operands", "word")
    __array_ufunc__ = None                            # numpy's numbers leave operators to us
    __hash__ = object.__hash__

    def __init__(self, graph: Graph, word: str, operands: tuple[Any, ...]) -> None:
        self.graph, self.word, self.operands = graph, word, operands

    def __repr__(self) -> str:
        return f"<expression {self.word or self.operands[0]}>"

    def __bool__(self) -> bool:
        raise NotAFormula(
            "a formula has no `if`, `and`, `or`, `not`, `min` or `max` on values: choose by where(condition, a, b), combine conditions "
            "by & and |, and use minimum and maximum"
        )

    def __iter__(self) -> Iterator[Any]:
        raise NotAFormula("a formula is about one element: it has no loops over a parameter and no indices")

    def __float__(self) -> float:
        raise NotAFormula(
            "a formula cannot call functions of math, or int() and float(), on its values: write exp(x) for math.exp(x), "
            f"with the words of flambeau.kernels.words: {', '.join(vocabulary.WORDS)}"
        )

    __int__ = __index__ = __complex__ = __float__

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return self.graph.node("abs", (self,))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):                     # somebody asks what kind of object this is
            raise AttributeError(name)
        raise NotAFormula(f"a formula is about one number, which has no attribute {name!r}; write words such as exp(x) for x.exp()")


def _operator(sign: str) -> Callable[[Expression, Any], Expression]:
    return lambda a, b: a.graph.node(sign, (a, b))


def _reflected(sign: str) -> Callable[[Expression, Any], Expression]:
    return lambda a, b: a.graph.node(sign, (b, a))


for _name, _sign in _BINARY.items():
    setattr(Expression, f"__{_name}__", _operator(_sign))
    setattr(Expression, f"__r{_name}__", _reflected(_sign))
for _name, _sign in _COMPARISONS.items():
    setattr(Expression, f"__{_name}__", _operator(_sign))
for _name in _UNARY:
    setattr(Expression, f"__{_name}__", lambda a, name=_name: a.graph.node(name, (a,)))


def _word(name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if name == "where" and not isinstance(args[0], Expression):
            return args[1] if args[0] else args[2]
        if name == "pow" and not isinstance(args[1], Expression) and args[1] == 1:
            return args[0]
        for a in args:
            if isinstance(a, Expression):
                return a.graph.node(name, args)
        from .reference import WORDS_READ

        with np.errstate(all="ignore"):
            return np.asarray(WORDS_READ[name](*(np.asarray(_number(a)) for a in args))).item()

    return call


_WORDS: dict[str, Any] = {name: _word(name) for name in (*vocabulary.WORDS, *vocabulary.HOST_WORDS)}


def read(formula: Formula) -> Callable[..., Any]:
    """`formula` as a function of expressions and numbers."""
    return formula.bind(_WORDS)


def trace(formula: Formula) -> tuple[Graph, tuple[Any, ...]]:
    """The graph of `formula`, and what it returns, several results as several.

    Raises: NotAFormula where it is no straight-line function over the vocabulary.
    """
    graph = Graph()
    try:
        made = read(formula)(*(graph.parameter(name) for name in formula.parameters))
    except NotAFormula as error:
        raise NotAFormula(f"{formula.name}: {error}") from None
    except TypeError as error:                        # a function that takes other things than numbers, such as numpy's
        raise NotAFormula(
            f"{formula.name}: {error}; a formula may call the words of flambeau.kernels.words and functions made of them"
        ) from error
    results = made if isinstance(made, tuple) else (made,)
    for result in results:
        if not isinstance(result, (Expression, bool, int, float, np.generic)):
            raise NotAFormula(f"{formula.name}: a formula returns a number for each element, not {type(result).__name__}")
    return graph, results


def below(results: tuple[Any, ...]) -> list[Expression]:
    """The expressions that `results` are made of, operands before what is made of them."""
    order: list[Expression] = []
    seen: set[Expression] = set()
    waiting = [(x, False) for x in reversed(results) if isinstance(x, Expression)]
    while waiting:
        x, ready = waiting.pop()
        if ready:
            order.append(x)
        elif x not in seen:
            seen.add(x)
            waiting.append((x, True))
            waiting += [(o, False) for o in reversed(x.operands) if isinstance(o, Expression)]
    return order


_NEVER_ROUND = TRUTHS | {
    "", "neg", "abs", "sign", "copysign", "where", "minimum", "maximum", "fmin", "fmax", "real", "imag", "conj", "floor", "ceil", "trunc",
    "nearbyint",
}  # fmt: skip


def rounds_often(formula: Formula) -> bool:
    """Whether the result of `formula` may be another when it is rounded after every word instead of once."""
    try:
        _, results = trace(formula)
    except NotAFormula:                               # such as one of integers: nothing is known of it
        return True
    return sum(x.word not in _NEVER_ROUND for x in below(results)) > 1


_serial = itertools.count()


def function_of(name: str, result: Any, parameters: tuple[str, ...]) -> Callable[..., Any]:
    """A straight-line function over those of `parameters` that `result` needs, in their order.

    Its text is in `linecache`, so that tracebacks and debuggers show it.
    """
    nodes = below((result,))
    needed = {x.operands[0] for x in nodes if not x.word}
    names: dict[Expression, str] = {}
    lines = []
    for x in nodes:
        if not x.word:
            names[x] = x.operands[0]
        else:
            names[x] = f"_{len(names)}"
            lines.append(f"    {names[x]} = {_text(x, names)}\n")
    given = ", ".join(p for p in parameters if p in needed)
    text = f"def {name}({given}):\n{''.join(lines)}    return {_operand(result, names)}\n"
    file = f"<flambeau formula {name} {next(_serial)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"_inf": math.inf, "_nan": math.nan, "__name__": __name__}
    scope.update({word: getattr(vocabulary, word) for word in vocabulary.__all__})
    exec(compile(text, file, "exec"), scope)          # our own text, from the graph
    return scope[name]


def _text(x: Expression, names: dict[Expression, str]) -> str:
    given = [_operand(o, names) for o in x.operands]
    if x.word in OPERATORS:
        return f"{given[0]} {x.word} {given[1]}"
    return f"{_UNARY[x.word]}{given[0]}" if x.word in _UNARY else f"{x.word}({', '.join(given)})"


def _operand(x: Any, names: dict[Expression, str]) -> str:
    if isinstance(x, Expression):
        return names[x]
    if isinstance(x, float) and not math.isfinite(x):
        return "_nan" if math.isnan(x) else "_inf" if x > 0 else "(-_inf)"
    return f"({x!r})" if isinstance(x, complex) or x < 0 or math.copysign(1, x) < 0 else repr(x)
