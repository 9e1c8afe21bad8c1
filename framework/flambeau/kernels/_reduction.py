"""`reduction`: a scalar function of a program as the term of a reduction over dimensions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flambeau_kernels.cpu.reductions.reduce import count_of
from flambeau_kernels.expression import NotAFormula, trace
from flambeau_kernels.formula import Formula

from .. import dtypes
from ..dtypes import COMPLEX, FLOATING
from ..ops._spec import FUNCTION, OPS, OUT, spread_dims
from ..ops._spec.derivatives import tensor_words
from ..ops._spec.reduction import ReductionOp, bool_dtype, same_dtype, sum_dtype
from ..tensor import Tensor
from ._derivative import partials_of
from ._elementwise import _checked_parameters, _is_holomorphic, _is_integral, _is_truth, elementwise

__all__ = ["reduction"]

_IDENTITY = {"add": 0, "mul": 1, "max": None, "min": None, "and": 1, "or": 0}
_RULE = {"add": sum_dtype, "mul": sum_dtype, "max": same_dtype, "min": same_dtype, "and": bool_dtype, "or": bool_dtype}
# Ops with the same combination, whose derivative it has.
_LIKE = {"mul": "prod", "max": "amax", "min": "amin"}
_OWN = ("dim", "keepdim", "dtype", "out", "_reduce", "_term")


class UserReduction(ReductionOp):
    """A reduction that a program has made."""

    public = False


def reduction(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    combine: str = "add",
    finish: Callable[..., Any] | None = None,
    autocast: str | None = None,
) -> Any:
    """Make a function of single numbers the term of a reduction: ``finish(combine of fn(element), count)`` over dimensions.

    The function it returns takes tensors like `fn`, then ``dim=None`` (an int, several, or all), ``keepdim=False`` and, by keyword,
    ``dtype=`` and ``out=``, as `sum` does. With one operand terms are never stored, with several an elementwise kernel makes
    them first. Its derivatives are derived from the formulas; integers and bools add up in int64.

    Args:
        fn: a straight-line function of elements, as for `elementwise`; a decorator where it is left out.
        combine: "add", "mul", "max", "min", "and" or "or". Over no elements these give 0, 1, True and False; extremes raise.
        finish: ``finish(total)`` or ``finish(total, count)``, a formula of what was combined and how many elements were.
        autocast: as for `elementwise`.
    Returns: the function of tensors.
    Raises: TypeError for what is no formula; ValueError for another `combine`; NotImplementedError where a derivative is not known.

    >>> from flambeau.kernels.words import sqrt
    >>> @fb.kernels.reduction(finish=lambda total, count: sqrt(total / count))
    ... def root_mean_square(x):
    ...     return x * x
    >>> x = fb.tensor([[3.0, 4.0], [6.0, 8.0]], requires_grad=True)
    >>> root_mean_square(x, 1).tolist()
    [3.535533905029297, 7.071067810058594]
    >>> fb.autograd.grad(root_mean_square(x), x)[0][0]
    tensor([0.1342, 0.1789])
    """
    if combine not in _IDENTITY:
        raise ValueError(f"kernels.reduction: combine is one of {', '.join(_IDENTITY)}, got {combine!r}")

    def make(function: Callable[..., Any]) -> Any:
        names = _checked_parameters("kernels.reduction", function)
        if len(names) != function.__code__.co_argcount + function.__code__.co_kwonlyargcount:
            raise TypeError(f"kernels.reduction: {function.__name__} has keyword-only parameters; give it operands alone")
        for name in names:
            if name in _OWN:
                raise TypeError(f"kernels.reduction: {function.__name__} has a parameter {name!r}, as reductions do; call it otherwise")
        if len(names) == 1:
            op = _op_of(Formula(function), combine, finish, autocast)
            return _function(function, names, op, None)
        op = _op_of(Formula(_the_term, function.__name__), combine, finish, autocast)
        return _function(function, names, op, elementwise(function, autocast=autocast))

    return make if fn is None else make(fn)


def _the_term(x):
    return x


def _op_of(term: Formula, combine: str, finish: Any, autocast: str | None) -> UserReduction:
    """The op that reduces terms of one tensor."""
    last = None if finish is None else Formula(_of_total_and_count(finish), f"{term.name}_finish")
    formulas = [f for f in (term, last) if f is not None]
    traced = [trace(f)[1] for f in formulas]
    for f, results in zip(formulas, traced, strict=True):
        if len(results) != 1:
            raise NotAFormula(f"{f.name}: a reduction has one result, this formula {len(results)}")
    partials = None
    if combine not in ("and", "or") and not any(_is_truth(r[0]) for r in traced):
        partials = [partials_of(f, f.parameters[:1])[f.parameters[0]] for f in formulas]
    vjp = None if partials is None else _vjp(term, combine, last, *partials)

    def declared(input, dim=None, keepdim=False, *, dtype=None): ...

    declared.__name__ = term.name
    integral = all(_is_integral(r) for r in traced)
    holomorphic = combine in ("add", "mul") and all(map(_is_holomorphic, traced))
    given = None if term.fn is _the_term else term
    op = UserReduction(
        declared, FUNCTION | OUT, "kernels", (), autocast, _rule(combine, integral, holomorphic), _IDENTITY[combine], given, combine, last,
        None, vjp,
    )  # fmt: skip
    op.numpy_names = False
    return op


def _of_total_and_count(finish: Any) -> Any:
    """`finish` as a function of the total and the count."""
    names = _checked_parameters("kernels.reduction: finish", finish, by_lambda=True)
    if len(names) == 2:
        return finish
    if len(names) != 1:
        raise TypeError(f"kernels.reduction: finish is a function of the total, or of total and count; its parameters are {names}")
    return lambda total, count: finish(total)


def _rule(combine: str, integral: bool, holomorphic: bool) -> Any:
    """The dtype rule: as that of `sum`, `amax` or `all`, but integers become floating where the formulas make fractions of them."""

    def rule(op: Any, given: Any, dtype: Any) -> tuple[Any, Any]:
        if dtype is None and not integral and given.category < FLOATING:
            dtype = dtypes.get_default_dtype()
        accumulate, result = (dtype, dtype) if dtype is not None else _RULE[combine](op, given, None)
        if accumulate.category == COMPLEX and not holomorphic:
            raise NotImplementedError(f'"{op.public_name}" not implemented for {accumulate}: its formula has no complex derivative')
        return accumulate, result

    return rule


def _vjp(term: Formula, combine: str, finish: Formula | None, of_term: Any, of_finish: Any = None) -> Any:
    """The gradient as an expression of Tensors, so that it is differentiable itself."""
    slope_of_term, slope_of_finish = Formula(of_term), None if of_finish is None else Formula(of_finish)

    def vjp(grad: Tensor, input: Tensor, shape: Any, dims: Any, keepdim: bool) -> Tensor:
        words = tensor_words()
        terms = total = None
        if combine != "add" or finish is not None:
            terms = term.bind(words)(input)
            total = OPS[_LIKE.get(combine, "sum")].function(terms, dims, keepdim) if dims else terms
        if slope_of_finish is not None and finish is not None:
            given = {finish.parameters[0]: total, finish.parameters[1]: count_of(shape, dims)}
            grad = grad * _conj(slope_of_finish.bind(words)(*(given[name] for name in slope_of_finish.parameters)))
        if combine == "add" or not dims:
            made = spread_dims(grad, shape, dims, keepdim)
        else:
            made = OPS[_LIKE[combine]].custom_vjp(grad, total, terms, shape, dims, keepdim)
        return made * _conj(slope_of_term.bind(words)(*(input for _ in slope_of_term.parameters)))

    return vjp


def _conj(x: Any) -> Any:
    return x.conj() if isinstance(x, Tensor) and x.is_complex() else x


def _function(function: Any, names: tuple[str, ...], op: UserReduction, term: Any) -> Any:
    """The public function, with the operands of `function` by their names."""
    given = names[0] if term is None else f"_term({', '.join(names)})"
    text = f"def {op.name}({', '.join(names)}, dim=None, keepdim=False, *, dtype=None, out=None):\n"
    text += f"    return _reduce({given}, dim, keepdim, dtype=dtype, out=out)\n"
    scope: dict[str, Any] = {"_reduce": op.function, "_term": term, "__name__": function.__module__}
    exec(text, scope)                                 # text of our own
    made = scope[op.name]
    made.__doc__, made.flambeau_op = function.__doc__, op
    own = list(inspect.signature(made).parameters.values())[len(names) :]
    operands = [p.replace(default=p.empty) for p in inspect.signature(function).parameters.values()]
    made.__signature__ = inspect.Signature([*operands, *own])
    return made
