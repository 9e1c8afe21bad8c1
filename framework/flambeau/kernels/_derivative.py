"""Partial derivatives of a formula, by the rules that the ops of its words declare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.expression import TRUTHS, Expression, below, function_of, read, trace
from flambeau_kernels.formula import Formula

__all__ = ["partials_of"]

# The ops whose rules the operators follow.
_OPS = {"+": "add", "-": "sub", "*": "mul", "/": "true_divide", "**": "pow", "%": "remainder", "neg": "neg"}
# Words whose value does not change with that of an operand, or changes in steps.
_IN_STEPS = TRUTHS | {
    "//", "floor_divide", "sign", "nearbyint", "&", "|", "^", "invert", "<<", ">>", "bit_not", "gcd", "lcm", "frexp_exponent",
}  # fmt: skip
# Words whose rules are for complex numbers; of these a formula of real numbers makes no use.
_COMPLEX = frozenset(("real", "imag", "conj", "angle"))


def partials_of(formula: Formula, parameters: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """For each of `parameters` the derivative of `formula` with respect to it, a function of the parameters it reads.

    Values and derivatives go forward together, so a branch that `where` does not take leaves no nan in what it takes.
    Raises: NotImplementedError for a word that has no derivative.
    """
    _, (result,) = trace(formula)
    return {p: function_of(f"{formula.name}_by_{p}", _derivative(result, p), formula.parameters) for p in parameters}


def _derivative(result: Any, parameter: str) -> Any:
    """The derivative of `result` with respect to `parameter`: an expression, or the number that it is everywhere."""
    slopes: dict[Expression, Any] = {}
    for x in below((result,)):
        if not x.word:
            slopes[x] = 1 if x.operands[0] == parameter else 0
            continue
        inner = [slopes[o] if isinstance(o, Expression) else 0 for o in x.operands]
        slopes[x] = _slope(x, inner)
    return slopes.get(result, 0)


def _slope(x: Expression, inner: list[Any]) -> Any:
    """The derivative of `x`, whose operands have the derivatives `inner`."""
    if x.word in _IN_STEPS or all(_is_number(d, 0) for d in inner):
        return 0
    if x.word == "where":
        return x.graph.node("where", (x.operands[0], inner[1], inner[2]))
    if x.word == "fma":
        a, b, _ = x.operands
        return _sum(_sum(_product(inner[0], b), _product(inner[1], a)), inner[2])
    total: Any = 0
    for at, slope in enumerate(inner):
        if not _is_number(slope, 0):
            total = _sum(total, _product(slope, _partial(x, at)))
    return total


def _partial(x: Expression, at: int) -> Any:
    """The derivative of `x` with respect to its operand `at`, by the declaration of its op."""
    op = _op_of(x.word)
    if op is None or x.word in _COMPLEX or op.kind != "elementwise" or at >= len(op.positional):
        raise NotImplementedError(
            f"the derivative of {x.word!r} is not known; give those of the formula: @elementwise(partials={{'x': lambda x: ...}})"
        )
    name = op.positional[at]
    # Python does not divide by zero, numpy's numbers do.
    operands = [np.float64(o) if _is_number(o, 0) else o for o in x.operands]
    values = {**op.defaults, "out": x, **dict(zip(op.positional, operands, strict=False))}
    rule, given = (op.partials or {}).get(name), ()
    if rule is None:
        rule, given = op.vjps.get(name), (1,)
    if rule is None:
        if op.partials is None and not op.vjps:       # constant almost everywhere
            return 0
        raise NotImplementedError(f"the derivative of {op.public_name!r} with respect to its parameter {name!r} is not implemented")
    reads = rule.__code__.co_varnames[len(given) : rule.__code__.co_argcount]
    with np.errstate(all="ignore"):
        return read(Formula(rule))(*given, *(values[r] for r in reads))


def _op_of(word: str) -> Any:
    from ..ops import _derive, _words

    word = _OPS.get(word, word)
    key = _words.OTHER_NAMES.get(word, word)
    return _derive.find(key) or _derive.find(key.replace("special_", "special.", 1))


def _is_number(x: Any, number: int) -> bool:
    return not isinstance(x, Expression) and x == number


def _product(a: Any, b: Any) -> Any:
    if _is_number(a, 0) or _is_number(b, 0):
        return 0
    if _is_number(a, 1):
        return b
    return a if _is_number(b, 1) else a * b


def _sum(a: Any, b: Any) -> Any:
    if _is_number(a, 0):
        return b
    return a if _is_number(b, 0) else a + b
