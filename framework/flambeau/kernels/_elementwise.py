"""`elementwise`: a scalar function of a program as an op."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from flambeau_kernels.expression import OPERATORS, TRUTHS, Expression, NotAFormula, below, trace
from flambeau_kernels.formula import Formula

from ..ops import _entry
from ..ops._promote import common, floating, refuse, to_bool
from ..ops._spec import FUNCTION, OUT, ElementwiseOp
from ._derivative import partials_of

__all__ = ["elementwise"]

# Of whole numbers these make whole numbers, or truth values.
_KEEPS_INTEGERS = frozenset((
    "", "+", "-", "*", "//", "%", "**", "&", "|", "^", "<<", ">>", "neg", "invert", "abs", "where", "minimum", "maximum", "fmin", "fmax",
    "sign", "floor", "ceil", "trunc", "nearbyint", "remainder", "floor_divide", "fmod", "bit_not", "gcd", "lcm", "pow", "fma", "conj",
)) | TRUTHS  # fmt: skip
# Functions with a complex derivative, and what may stand beside them.
_HOLOMORPHIC = OPERATORS - {"<", "<=", ">", ">=", "//", "%", "&", "|", "^", "<<", ">>"} | {
    "", "neg", "where", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sigmoid", "pow", "fma",
}  # fmt: skip


class UserElementwise(ElementwiseOp):
    """An elementwise op that a program has made."""

    public = False

    @classmethod
    def of(cls, function: Any, autocast: str | None, rule: Any, partials: Any, others: dict[str, str]) -> UserElementwise:
        """The op of `function`, whose parameters are called `others`."""
        given = {others.get(name, name): _renamed(partial, others) for name, partial in partials.items()}
        formula = _renamed(function, others)
        op = cls(formula, FUNCTION | OUT, "kernels", (), autocast, rule, given or None, None, None, None, True, None, None)
        op.numpy_names = False
        return op


def _names_beside_an_entry(function: Any, rule: Any) -> dict[str, str]:
    """Other names for parameters of `function` that the text of an op's entry point uses itself."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    probe = UserElementwise.of(function, None, rule, {names[0]: function}, {name: f"{name}__" for name in names})
    text = "\n".join((_entry._function_text(probe, probe.name, FUNCTION)[0], *probe.record_text()))
    used = set(re.findall(r"[^\W\d]\w*", text))
    return {name: f"{name}_" for name in names if name in used}


def _renamed(function: Any, others: Any) -> Any:
    """`function` with parameters called `others`, where it has them."""
    code = function.__code__
    count = code.co_argcount
    names = [others.get(name, name) for name in code.co_varnames[: count + code.co_kwonlyargcount]]
    if tuple(names) == code.co_varnames[: len(names)]:
        return function
    stars = ["*"] if code.co_kwonlyargcount else []
    given = [*names[:count], *(f"{old}={new}" for old, new in zip(code.co_varnames[count:], names[count:], strict=False))]
    scope: dict[str, Any] = {"_function": function, "__name__": function.__module__}
    name = function.__name__ if function.__name__.isidentifier() else "partial"
    parameters = (*names[:count], *stars, *names[count:])
    head = f"def {name}({', '.join(parameters)}):"
    exec(f"{head}\n    return _function({', '.join(given)})\n", scope)  # text of our own
    made = scope[name]
    made.__defaults__, made.__doc__ = function.__defaults__, function.__doc__
    made.__kwdefaults__ = {others.get(k, k): v for k, v in (function.__kwdefaults__ or {}).items()}
    return made


def _with_parameters(code: Any, params: tuple[str, ...], names: dict[str, str]) -> Any:
    """The code of an entry point whose parameters `params` are called `names`; locals of these names are called otherwise."""
    wanted = [names.get(p, p) if p in params else p for p in code.co_varnames]
    taken = {names[p] for p in params if p in names}
    return code.replace(co_varnames=tuple(
        f"_{name}" if name in taken and old not in names else name for old, name in zip(code.co_varnames, wanted, strict=True)
    ))


def _shown_parameters(function: Any) -> list[inspect.Parameter]:
    return [*inspect.signature(function).parameters.values(), inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)]


def elementwise(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    partials: Mapping[str, Callable[..., Any]] | None = None,
    dtype: str | None = None,
    autocast: str | None = None,
) -> Any:
    """Make a function of single numbers an op over tensors, compiled for the CPU and CUDA.

    The op broadcasts its operands, promotes their dtypes, takes ``out=``, works on meta tensors, in function transforms and under
    autocast, and has derivatives of every order, backward and forward. Any operand may be a number; one is a Tensor.

    Args:
        fn: a straight-line function over Python's operators and the words of `flambeau.kernels.words`, which chooses by
            ``where``; a decorator where it is left out. Parameters after ``*`` are numbers with a default, and take no part in dtypes.
        partials: the derivative with respect to each parameter, a formula of the parameters it reads by name, and of `out`, the
            result. By default they are derived from `fn`; ``{}`` makes an op whose result has no derivative.
        dtype: "common" computes in the dtype that operands promote to, "floating" too but integers in the default dtype, "bool"
            in the common one with a result of truth values. By default what the formula makes of integers decides.
        autocast: the class under autocast: "lower" (runs in the lower precision), "float32", "widest"; None follows operands.
    Returns: the function of tensors.
    Raises: TypeError for what is no formula; NotImplementedError if a word in it has no derivative and `partials` is not given.

    >>> from flambeau.kernels.words import abs, where
    >>> @fb.kernels.elementwise
    ... def huber(error, delta):
    ...     size = abs(error)
    ...     return where(size < delta, error * error / 2, delta * (size - delta / 2))
    >>> error = fb.tensor([0.5, -3.0], requires_grad=True)
    >>> huber(error, 1.0)
    tensor([0.1250, 2.5000], grad_fn=<HuberBackward0>)
    >>> fb.autograd.grad(huber(error, 1.0).sum(), error)
    (tensor([ 0.5000, -1.0000]),)
    """

    def make(function: Callable[..., Any]) -> Any:
        names = _checked_parameters("kernels.elementwise", function)
        formula = Formula(_all_positional(function), function.__name__)
        _, results = trace(formula)
        if len(results) != 1:
            raise NotAFormula(f"{formula.name}: an elementwise kernel has one result, this one {len(results)}; make an op of each")
        for name in partials or ():
            if name not in names:
                raise TypeError(f"kernels.elementwise: partials has {name!r}, which is no parameter of {formula.name}{names}")
        derived = partials_of(formula, names) if partials is None and not _is_truth(results[0]) else dict(partials or {})
        rule = _rule(formula, results, dtype, bool(derived))
        others = _names_beside_an_entry(function, rule)
        op = UserElementwise.of(function, autocast, rule, derived, others)
        made = op.function
        shown = {new: old for old, new in others.items()}
        made.__code__ = _with_parameters(made.__code__, op.params, shown)
        made.__kwdefaults__ = {shown.get(name, name): value for name, value in (made.__kwdefaults__ or {}).items()}
        made.__signature__ = inspect.signature(function).replace(parameters=_shown_parameters(function))
        made.__module__, made.__doc__ = function.__module__, function.__doc__
        return made

    return make if fn is None else make(fn)


def _checked_parameters(what: str, function: Any, by_lambda: bool = False) -> tuple[str, ...]:
    """The positional parameters of `function`, which is one that can be a formula. Raises: TypeError if it is not."""
    if not isinstance(function, FunctionType) or not (by_lambda or function.__name__.isidentifier()):
        raise TypeError(f"{what}: a kernel is a function defined by def, got {function!r}")
    signature = inspect.signature(function).parameters
    for name, p in signature.items():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"{what}: {function.__name__} takes *{name}; name its parameters one by one")
        if p.kind == p.KEYWORD_ONLY and not isinstance(p.default, (int, float)):
            raise TypeError(f"{what}: {function.__name__} has the keyword-only parameter {name!r}, which needs a number as its default")
        if name == "out":
            raise TypeError(f"{what}: {function.__name__} has a parameter 'out', which is where the result is stored; call it otherwise")
    names = tuple(name for name, p in signature.items() if p.kind != p.KEYWORD_ONLY)
    if not names:
        raise TypeError(f"{what}: {function.__name__} has no operands; give it a parameter")
    return names


def _all_positional(function: Any) -> FunctionType:
    """`function` with its keyword-only parameters after the others."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    code = code.replace(co_argcount=count, co_kwonlyargcount=0)
    return FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


def _is_truth(x: Any) -> bool:
    """Whether `x`, an expression or number, is a truth value whatever the operands are."""
    if not isinstance(x, Expression):
        return isinstance(x, bool)
    if x.word in ("&", "|", "^", "where"):
        return all(_is_truth(o) for o in x.operands[x.word == "where" :])
    return x.word in TRUTHS or x.word == "invert" and _is_truth(x.operands[0])


def _rule(formula: Formula, results: tuple[Any, ...], dtype: str | None, derived: bool) -> Any:
    """The dtype rule of `formula`."""
    if dtype is None:
        dtype = "bool" if _is_truth(results[0]) else "common" if _is_integral(results) else "floating"
    rules = {"common": common, "floating": floating, "bool": to_bool}
    if dtype not in rules:
        raise ValueError(f"kernels.elementwise: dtype is 'common', 'floating' or 'bool', got {dtype!r}")
    rule = rules[dtype]
    # The derivative of what is not holomorphic takes more than one number.
    return rule if not derived or _is_holomorphic(results) else refuse("complex")(rule)


def _is_integral(results: tuple[Any, ...]) -> bool:
    """Whether `results` of whole numbers are whole numbers."""
    nodes = below(results)
    numbers = [o for x in nodes for o in (*x.operands, *results)]
    return all(x.word in _KEEPS_INTEGERS for x in nodes) and not any(isinstance(o, float) and not o.is_integer() for o in numbers)


def _is_holomorphic(results: tuple[Any, ...]) -> bool:
    return all(x.word in _HOLOMORPHIC for x in below(results))
