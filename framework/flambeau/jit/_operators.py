"""The operators that scripts call, by name; and which overload takes given values."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable
from typing import Any

from .._aten import index as aten_index
from .._schema import Argument, FunctionSchema, Type, parse_schema
from ._ir import Value
from ._types import BOOL, COMPLEX, DEVICE, FLOAT, INT, NONE, NUMBER, STR, TENSOR, NamedResults, is_subtype, normal, text_of, unified

__all__ = ["Match", "has_variables", "is_builtin", "match", "named_results", "schemas_of"]

# Characters that `aten_index.json` may put before a schema; they are no part of its text.
_MARKS = "~#"


@functools.cache
def _script_index() -> dict[str, dict[str, str]]:
    with open(os.path.join(os.path.dirname(__file__), "script_index.json"), encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def schemas_of(name: str) -> tuple[FunctionSchema, ...]:
    """The overloads of ``aten::add`` and the like in the order in which they are tried; () for what is no operator."""
    namespace, _, operator = name.partition("::")
    listed = _script_index().get(name)
    there = aten_index().get(operator, {}) if namespace == "aten" else {}
    if listed is None:
        listed = dict.fromkeys(there, "")
    if namespace not in ("aten", "prim"):
        return _defined(namespace, operator)
    found = []
    for overload, text in listed.items():
        text = text or there[overload].lstrip(_MARKS)
        if text:
            schema = parse_schema(f"{name}{'' if overload == 'default' else f'.{overload}'}{text}")
            schema.in_aten = not listed[overload]  # type: ignore[attr-defined]  # whether `torch.ops.aten` has it
            found.append(schema)
    return tuple(found)


def _defined(namespace: str, operator: str) -> tuple[FunctionSchema, ...]:
    """The overloads of an operator that a program has defined."""
    import flambeau as fb

    packet = getattr(getattr(fb.ops, namespace), operator, None)
    return () if packet is None else tuple([getattr(packet, o)._schema for o in packet.overloads()])


def is_builtin(schema: FunctionSchema) -> bool:
    """Whether it is about numbers, texts, lists and dicts: a function of `_builtins` computes it."""
    return not getattr(schema, "in_aten", True)


# -- choosing ------------------------------------------------------------------------------------------------------------


class Match:
    """An overload that takes the values given, and its inputs: values, or functions that make them by an emitter."""

    def __init__(self, schema: FunctionSchema, inputs: list[Any], results: list[Type]) -> None:
        self.schema, self.inputs, self.results = schema, inputs, results


Making = Callable[[Any], Value]


def match(name: str, schemas: tuple[FunctionSchema, ...], args: list[Value], kwargs: dict[str, Value]) -> Match | str:
    """The first overload that takes the values, without conversion of tensors to numbers if there is one; or why there is none."""
    reasons: list[str] = []
    for allow in (False, True):
        reasons.clear()
        for schema in schemas:
            found = _matched(schema, args, kwargs, allow)
            if isinstance(found, Match):
                return found
            reasons.append(f"  {schema}:\n  {found}\n")
    if not schemas:
        return (
            f"Unknown builtin op: {name}.\nCould not find any similar ops to {name}. This op may not exist or may not be supported in "
            "TorchScript"
        )
    if len(reasons) == 1:
        return f"\n{reasons[0].replace(chr(10) + '  ', chr(10)).strip()}\n"
    listed = "\n".join([f"  \n{r}" for r in reasons]).replace(".\n\n", ".\n")
    return f"Arguments for call are not valid.\nThe following variants are available:\n{listed}\nThe original call is"


def _matched(schema: FunctionSchema, args: list[Value], kwargs: dict[str, Value], allow: bool) -> Match | str:
    bound: dict[str, Type] = {}
    inputs: list[Any] = []
    used = 0
    named = dict(kwargs)
    for at, argument in enumerate(schema.arguments):
        if not argument.kwarg_only and used < len(args):
            rest = args[used:]
            if len(rest) > 1 and _takes_rest(schema, at) and (len(rest) != 1) and _rest_too_many(schema, at, len(rest)):
                made = _fit_list(rest, argument.type, bound, allow)
                used = len(args)
            else:
                made = _fit(rest[0], argument.type, bound, allow)
                used += 1
                if made is None and _takes_rest(schema, at) and used == len(args):
                    made = _fit_list(rest, argument.type, bound, allow)
            if made is None:
                return _misfit(argument, bound, rest[0])
            if argument.name in named:
                return f"Argument '{argument.name}' specified twice in schema."
        elif argument.name in named or argument.name == "self" and "input" in named:
            value = named.pop(argument.name if argument.name in named else "input")
            made = _fit(value, argument.type, bound, allow)
            if made is None:
                return _misfit(argument, bound, value)
        elif argument.has_default_value():
            made = _constant(argument.default_value, argument.type)
        else:
            return f"Argument {argument.name} not provided."
        inputs.append(made)
    if used < len(args):
        return f"Expected at most {len(schema.positional)} arguments but found {len(args)} positional arguments."
    if named:
        return f"Keyword argument {next(iter(named))} unknown."
    return Match(schema, inputs, [_filled(r.type, bound) for r in schema.returns])


def named_results(schema: FunctionSchema, results: list[Type]) -> Type | None:
    """The type of the results as one tuple where they have names."""
    names = [r.name for r in schema.returns]
    return NamedResults([n or "" for n in names], results) if len(names) > 1 and all(names) else None


def _misfit(argument: Argument, bound: dict[str, Type], value: Value) -> str:
    wanted, found = text_of(_filled(argument.type, bound)), text_of(value.type())
    if has_variables(argument.type):
        what = {"List": wanted, "Dict": "a dict"}.get(argument.type.kind)
        if argument.type.kind != value.type().kind and what is not None:
            return f"Could not match type {found} to {wanted} in argument '{argument.name}': Cannot match {what} to {found}."
        bare = argument.type.kind
        if _is_variable(bare) and bare in bound:
            return (
                f"Could not match type {found} to {bare} in argument '{argument.name}': Type variable '{bare}' previously matched to type "
                f"{text_of(bound[bare])} is matched to type {found}."
            )
    return f"Expected a value of type '{wanted}' for argument '{argument.name}' but instead found type '{found}'."


def _takes_rest(schema: FunctionSchema, at: int) -> bool:
    """Whether the argument is a list that may be given as several arguments, as in ``x.view(2, 3)``."""
    kind = schema.arguments[at].type
    is_last = at + 1 == len(schema.arguments) or schema.arguments[at + 1].kwarg_only
    return is_last and kind.kind == "List" and not _is_variable(kind.inner[0].kind)


def _rest_too_many(schema: FunctionSchema, at: int, count: int) -> bool:
    return count > len(schema.positional) - at


def _constant(value: Any, kind: Type) -> Making:
    return lambda emit: emit.constant(value, normal(kind))


def _is_variable(kind: str) -> bool:
    return re.fullmatch(r"[a-z]|t[A-Z0-9]\w*", kind) is not None


def _filled(t: Type, bound: dict[str, Type]) -> Type:
    """The type with what its variables stand for."""
    if type(t) is not Type:
        return t
    if _is_variable(t.kind):
        return bound.get(t.kind, t)
    if t.inner:
        return Type(t.kind, tuple([_filled(x, bound) for x in t.inner]))
    return normal(t)


def _fit_list(values: list[Value], kind: Type, bound: dict[str, Type], allow: bool) -> Making | None:
    inner = kind.inner[0]
    made = [_fit(v, inner, bound, allow) for v in values]
    if any(m is None for m in made):
        return None
    return lambda emit: emit.list([emit.made(m) for m in made], _filled(inner, bound))


def _bind(t: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Let the variables of `t` stand for what they are in `given`; whether that can be."""
    if type(t) is not Type:
        return t == given
    if _is_variable(t.kind):
        if t.kind not in bound:
            bound[t.kind] = given
            return True
        joined = unified(bound[t.kind], given)
        if joined is None:
            return False
        bound[t.kind] = joined
        return True
    if t.kind == "Optional":
        if given == NONE:
            return True
        return _bind(t.inner[0], given.inner[0] if given.kind == "Optional" else given, bound)
    if t.inner:
        return t.kind == given.kind and len(t.inner) == len(given.inner) and all(
            _bind(x, y, bound) for x, y in zip(t.inner, given.inner, strict=True)
        )
    return is_subtype(given, normal(t))


def has_variables(t: Type) -> bool:
    return type(t) is Type and (_is_variable(t.kind) or any(map(has_variables, t.inner)))


def _fit(value: Value, wanted: Type, bound: dict[str, Type], allow: bool) -> Any:
    """The value, or a function of an emitter that makes what the argument takes of it; None if it does not take it."""
    given = value.type()
    if has_variables(wanted):
        if wanted.kind == "List" and given.kind == "Tuple" and given.inner:
            element = wanted.inner[0]
            if all(_bind(element, t, bound) for t in given.inner):
                return lambda emit: emit.list(emit.unpacked(value), _filled(element, bound))
        return value if _bind(wanted, given, bound) else None
    if is_subtype(given, normal(wanted)):
        return value
    optional = wanted.kind == "Optional"
    inner = wanted.inner[0] if optional else wanted
    if inner.kind == "List":
        element = normal(inner.inner[0])
        if inner.size is not None and given in (INT, FLOAT, BOOL) and is_subtype(given, element):
            size = inner.size
            return lambda emit: emit.list([value] * size, element)
        if given.kind == "Tuple":
            parts = [_fit(Value(t), inner.inner[0], bound, allow) for t in given.inner]
            if all(p is not None for p in parts):
                of = inner.inner[0]
                return lambda emit: emit.list([emit.made(_fit(v, of, bound, allow)) for v in emit.unpacked(value)], element)
            return None
        made_by = value.node
        if given.kind == "List" and made_by is not None and made_by.kind() == "prim::ListConstruct" and value.fact is None:
            if made_by.inputsSize() == 0:             # nobody has said what an empty list is of
                return lambda emit: value.setType(Type("List", (element,)))
            fits = all(is_subtype(v.type(), element) for v in made_by.inputs())
            if fits and (allow or element.kind in ("Optional", "number")):
                return lambda emit: emit.list(list(made_by.inputs()), element)
        return None
    kind = normal(inner)
    if allow and kind == DEVICE and given == STR:
        return lambda emit: emit.operator("aten::device", [value])
    if allow and given == BOOL and kind in (INT, FLOAT, NUMBER):
        return lambda emit: _of_bool(emit, value, kind)
    if allow and given == TENSOR and kind in _IMPLICIT:
        return lambda emit: emit.operator(_IMPLICIT[kind], [value])
    return None


def _of_bool(emit: Any, value: Value, kind: Type) -> Value:
    """True or False as a number."""
    if isinstance(value.fact, bool):
        return emit.constant(float(value.fact) if kind == FLOAT else int(value.fact))
    return emit.operator("aten::Float" if kind == FLOAT else "aten::Int", [value])


_IMPLICIT = {INT: "aten::IntImplicit", FLOAT: "aten::FloatImplicit", COMPLEX: "aten::ComplexImplicit", NUMBER: "aten::ScalarImplicit"}
