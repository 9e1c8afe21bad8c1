"""Parameter lists of public functions, as text: what a declaration says, and the names that numpy has for the same parameters.

PyTorch's native functions take `axis` for `dim`, `keepdims` for `keepdim`, `x2` for `other` and `x`, `a` or `x1` for `input`.
To call a Python function takes longer if it has parameters after a ``*`` or ``**names``, so all parameters may be given by
position here, and `_` stands for the first one too many. What was not given is ``...`` where None has a meaning.
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np

from .._symbolic import SymBool, SymInt
from ..dtypes import BOOL, INTEGER
from ..tensor import Tensor
from ._spec import FUNCTION, INPLACE, METHOD, NUMPY_NAMES, OUT, Op


def other_names(op: Op, form: int = FUNCTION) -> dict[str, tuple[str, ...]]:
    """Parameter -> the names that numpy or an overload has for it, for those that `op` takes by these names too.

    Args:
        form: FUNCTION, or METHOD for what is a method alone: its first argument has no name.
    """
    if not (op.numpy_names or op.named_too) or not op.surface & (FUNCTION | METHOD | INPLACE):
        return {}
    named = op.params if op.surface & form & FUNCTION else op.params[1:]
    names = {**(NUMPY_NAMES if op.numpy_names else {}), **op.named_too}
    return {name: names[name] for name in named if name in names}


def signature(op: Op, out: bool, form: int = FUNCTION) -> tuple[str, dict[str, Any]]:
    """Parameter list of the public function, or of a method, and the default values it refers to."""
    constants: dict[str, Any] = {}
    renamed = other_names(op, form)
    parts: list[str] = []
    for name in op.positional:
        if name != op.variadic:
            parts.append(_parameter(op, name, constants, name in renamed or any("=" in p for p in parts)))
        elif renamed:
            return ", ".join([*parts, f"*{name}_", "**named"]), constants
        else:
            parts += [f"*{name}_", f"{name}=None"]
    keyword_only = [_parameter(op, name, constants, bool(renamed)) for name in op.keyword_only]
    if out:
        keyword_only.append("out=None")
    keyword_only += [f"{other}={_not_given(op, name)}" for name, others in renamed.items() for other in others]
    if keyword_only and not op.variadic:
        parts.append("_=..." if renamed else "*older_" if op.older else "*")
    return ", ".join(parts + keyword_only), constants


def declared_signature(op: Op, out: bool) -> inspect.Signature:
    """What `inspect.signature` shows of the public function: the parameters as declared."""
    kinds = inspect.Parameter
    found = []
    for name in op.positional:
        if name == op.variadic:
            found.append(kinds(f"{name}_", kinds.VAR_POSITIONAL))
        kind = kinds.KEYWORD_ONLY if op.variadic and found and found[-1].kind >= kinds.VAR_POSITIONAL else kinds.POSITIONAL_OR_KEYWORD
        found.append(kinds(name, kind, default=None if name == op.variadic else op.defaults.get(name, kinds.empty)))
    found += [kinds(name, kinds.KEYWORD_ONLY, default=op.defaults.get(name, kinds.empty)) for name in op.keyword_only]
    if out:
        found.append(kinds("out", kinds.KEYWORD_ONLY, default=None))
    return inspect.Signature(found)


def _parameter(op: Op, name: str, constants: dict[str, Any], may_be_missing: bool) -> str:
    if name not in op.defaults:
        return f"{name}=..." if may_be_missing else name
    value = op.defaults[name]
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and np.isfinite(value)):
        return f"{name}={value!r}"
    constants[f"d_{name}"] = value
    return f"{name}=d_{name}"


def _not_given(op: Op, name: str) -> str:
    # To test for None takes half as long. None may be given where it is the default, or where missing and None are both refused.
    return "None" if op.defaults.get(name) is None or name == "keepdim" else "..."


def read_names(op: Op, form: int = FUNCTION) -> list[str]:
    """Lines that make one sequence of the spread parameter and read what was given by numpy's names."""
    renamed = other_names(op, form)
    if op.variadic:
        name, first = op.variadic, op.positional[0]
        several = f"{name}_[0] if len({name}_) == 1 and not isinstance({name}_[0], ONE_NUMBER) else {name}_"
        if not renamed:
            return [f"if {name} is None:", f"    {name} = {several}"]
        return [f"{name} = {several}", "if named:", f"    {first}, {name} = spread_by_name(OP, {first}, {name}, named)"]
    if not renamed:
        return []
    marks = {other: _not_given(op, name) for name, others in renamed.items() for other in others}
    given = [f"{other} is not {mark}" for other, mark in marks.items()]
    names, others = ", ".join(renamed), ", ".join(marks)
    return [
        f"if {' or '.join(given)} or _ is not ...:",
        f"    {names}, = renamed(OP, {form}, ({names},), ({others},), _)",
    ]


def read_older(op: Op, form: int, out: bool = False, in_place: bool = False) -> list[str]:
    """Lines that go on with arguments in an order of old, which are more than there are parameters to be given by position."""
    if not op.older:
        return []
    more, test = ("_", "_ is not ...") if other_names(op, form) else ("*older_", "older_")
    options = ", ".join(f"{n!r}: {n}" for n in (*op.keyword_only, *(("out",) if out else ())))
    given = ", ".join((*op.positional, more))
    return [f"if {test}:", f"    return older_signature(OP, ({given}), {{{options}}}, {in_place})"]


def refuse_missing(op: Op, form: int = FUNCTION) -> list[str]:
    """Lines that raise when an argument is missing that the list of parameters lets a call leave out."""
    first = next((i for i, name in enumerate(op.params) if name in other_names(op, form)), len(op.params))
    required = [name for name in op.params[first:] if name not in op.defaults and name != op.variadic]
    if not required:
        return []
    return [f"if {' or '.join(f'{name} is ...' for name in required)}:", f"    missing(OP, ({', '.join(op.params)},))"]


def renamed(op: Op, form: int, values: tuple[Any, ...], others: tuple[Any, ...], too_many: Any) -> tuple[Any, ...]:
    """The values of the parameters in `other_names`, each given by its own name or by one of the others.

    Args:
        values, others: what was given by own names, and by the others, in order.
        too_many: what was given by position after the last parameter that may be; ``...`` for nothing.
    Raises: TypeError if a parameter is given twice, or more are given by position than there are.
    """
    if too_many is not ...:
        count, by_name = len(op.positional), [*op.keyword_only, *(["out"] if op.surface & OUT else [])]
        rest = f"; {', '.join(by_name)} must be given by name" if by_name else ""
        listed = ", ".join(op.positional)
        raise TypeError(f"{op.public_name}() takes {count} positional argument{'s' * (count != 1)} ({listed}) but more were given{rest}")
    found, left = [], iter(others)
    for (name, aliases), value in zip(other_names(op, form).items(), values, strict=True):
        mark = None if _not_given(op, name) == "None" else ...
        given = {alias: v for alias, v in zip(aliases, left, strict=False) if v is not mark}
        found.append(_only_one(op.public_name, name, value, op.defaults.get(name, ...), given))
    return tuple(found)


def spread_by_name(op: Op, first: Any, several: Any, named: dict[str, Any]) -> tuple[Any, Any]:
    """The two arguments of `op`, whose second may be given as several, when some are given by name.

    Raises: TypeError if one is given twice or `op` has no parameter of a name.
    """
    input_name, spread = op.params
    aliases = other_names(op)[input_name]
    unknown = [name for name in named if name != spread and name not in aliases]
    if unknown:
        raise TypeError(f"{op.public_name}() got an unexpected keyword argument '{unknown[0]}'")
    first = _only_one(op.public_name, input_name, first, ..., {name: named[name] for name in aliases if name in named})
    return first, _only_one(op.public_name, spread, several, (), {name: named[name] for name in (spread,) if name in named})


def input_of(name: str, input: Any, named: dict[str, Any], too_many: Any = ...) -> Any:
    """The first argument of the function `name`, which is no op: `input`, or ``x``, ``a`` or ``x1`` among `named`.

    Args:
        named: what was given by names; None is nothing.
        too_many: what was given by position after `input`; ``...`` for nothing.
    Raises: TypeError if it is given twice or not at all, or there is another name.
    """
    if too_many is not ...:
        raise TypeError(f"{name}() takes 1 positional argument (input) but more were given; all others must be given by name")
    unknown = [n for n in named if n not in NUMPY_NAMES["input"]]
    if unknown:
        raise TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'")
    named = {n: value for n, value in named.items() if value is not None}
    if not named and input is ...:
        raise TypeError(f"{name}() missing 1 required positional argument: 'input'")
    return _only_one(name, "input", input, ..., named)


def _only_one(function: str, name: str, value: Any, default: Any, given: dict[str, Any]) -> Any:
    """What was given for the parameter `name`: `value` by its own name, unless that is `default`, or one of `given` by others."""
    if given and (len(given) > 1 or value is not default):
        raise TypeError(f"{function}() got multiple values for argument '{name}': it was given as {' and '.join([name, *given][-2:])}")
    return next(iter(given.values()), value)


def missing(op: Op, args: tuple[Any, ...]) -> None:
    """Raise TypeError if one of `args` is ``...``, which is to say was not given; first, if one before it is of a wrong type."""
    for value in args:
        if value is ...:
            break
    else:
        return
    from ._refusal import refuse_types

    refuse_types(op, list(itertools.takewhile(lambda value: value is not ..., args)))
    names = [repr(name) for name, value in zip(op.params, args, strict=True) if value is ...]
    plural = "s" * (len(names) != 1)
    raise TypeError(f"{op.public_name}() missing {len(names)} required positional argument{plural}: {', '.join(names)}")


def has_bools(value: Any) -> bool:
    """Whether `value` stands for a list of integers that has bools for some, in which the first is none; or is a tensor of one bool."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dtype.category == BOOL
    return isinstance(value, (list, tuple)) and len(value) > 1 and is_integer(value[0]) and any(isinstance(x, bool) for x in value)


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer, symbolic ones too, an object that stands for one (`__index__`), or a tensor of one."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and value.dtype.category == INTEGER
    return isinstance(value, (int, np.integer, SymInt)) and not isinstance(value, bool) or stands_for_integer(value)


def stands_for_integer(value: Any) -> bool:
    """Whether `value` is no number, tensor or array, but an object with an ``__index__``."""
    known = isinstance(value, (int, np.generic, SymInt, SymBool))
    return not known and hasattr(type(value), "__index__") and not hasattr(value, "shape")
