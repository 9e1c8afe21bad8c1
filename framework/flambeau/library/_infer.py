"""Schemas from annotations of functions: `infer_schema`."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fb

__all__ = ["infer_schema"]

_NUMBER = frozenset((int, float, bool))


@functools.cache
def _plain_types() -> dict[Any, str]:
    """Annotations that stand for a type alone or in sequences, and those that stand for one alone."""
    return {fb.Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", fb.dtype: "ScalarType", fb.device: "Device"}


_IN_SEQUENCES = ("Tensor", "SymInt", "float", "bool", "Scalar", "Tensor?")
_RETURNED = ("Tensor", "SymInt", "float", "bool", "Scalar", "Tensor[]")
_SEQUENCES = (list, collections.abc.Sequence)


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str], op_name: str | None = None) -> str:
    """The schema that the annotations of a function say.

    Args:
        prototype_function: annotated with Tensor, int, float, bool, str, dtype, device, numbers, None or lists of them.
        mutates_args: names of the arguments that are written, or "unknown", which means all tensors.
        op_name: put before the schema.
    Raises: ValueError for annotations and defaults that no schema has.

    >>> def scaled(x: fb.Tensor, by: float = 2.0) -> fb.Tensor: ...
    >>> fb.library.infer_schema(scaled, mutates_args=(), op_name="scaled")
    'scaled(Tensor x, float by=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)

    def refuse(what: str) -> ValueError:
        return ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or the string 'unknown'. ")
    written = mutates_args if isinstance(mutates_args, str) else set(mutates_args)
    listed: list[str] = []
    starred = False
    for at, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise refuse("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            listed.append("*")
        if parameter.annotation is parameter.empty:
            raise refuse(f"Parameter {name} must have a type annotation.")
        kind = _argument_type(_resolved(parameter.annotation, prototype_function, name, refuse), name, refuse)
        if written == "unknown" and kind.startswith("Tensor") or written != "unknown" and name in written:
            if not kind.startswith("Tensor"):
                raise refuse(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            kind = f"Tensor(a{at}!){kind.removeprefix('Tensor')}"
        default = "" if parameter.default is parameter.empty else f"={_default(name, parameter.default, refuse)}"
        listed.append(f"{kind} {name}{default}")
    if not isinstance(written, str) and not written <= signature.parameters.keys():
        raise refuse(
            f"{written - signature.parameters.keys()} in mutates_args were not found in the custom op's signature. mutates_args should "
            "contain the names of all args that the custom op mutates, or just the string 'unknown' if you don't know."
        )
    if signature.return_annotation is signature.empty:
        raise refuse("No return type annotation was provided. Please add one.")
    returned = _return_type(_resolved(signature.return_annotation, prototype_function, "return", refuse), refuse)
    return f"{op_name or ''}({', '.join(listed)}) -> {returned}"


def _resolved(annotation: Any, fn: Any, name: str, refuse: Any) -> Any:
    """The type that an annotation means which is given as text."""
    if not isinstance(annotation, str):
        return annotation
    known = {
        "Tensor": fb.Tensor, "dtype": fb.dtype, "device": fb.device, "Optional": typing.Optional, "List": typing.List,  # noqa: UP006
        "Sequence": typing.Sequence, "Union": typing.Union, "Tuple": typing.Tuple, "types": fb.types,  # noqa: UP006
    }  # fmt: skip
    scope = getattr(inspect.unwrap(fn), "__globals__", {})
    try:
        return eval(annotation, {**known, **scope})  # the program's own annotation, as typing.get_type_hints evaluates it
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise refuse(f"Unsupported type annotation {annotation} of {name}. It is not a type. ({error})") from None


def _union(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or nothing."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return ()


def _schema_type(annotation: Any) -> str | None:
    """The name of the type in schemas; None if there is none."""
    plain = _plain_types()
    if isinstance(annotation, collections.abc.Hashable) and annotation in plain:
        return plain[annotation]
    members = _union(annotation)
    if members:
        rest = [m for m in members if m is not type(None)]
        if frozenset(rest) == _NUMBER:
            inner: str | None = "Scalar"
        else:
            inner = _schema_type(rest[0]) if len(rest) == 1 else None
        return inner if inner is None or len(rest) == len(members) else f"{inner}?"
    if typing.get_origin(annotation) in _SEQUENCES and typing.get_args(annotation):
        inner = _schema_type(typing.get_args(annotation)[0])
        return f"{inner}[]" if inner in _IN_SEQUENCES else None
    return None


def _argument_type(annotation: Any, name: str, refuse: Any) -> str:
    found = _schema_type(annotation)
    if found is not None:
        return found
    advice = ""
    if typing.get_origin(annotation) is tuple:
        advice = " We do not support Tuple inputs in schema. As a workaround, please try to use List instead."
    raise refuse(
        f"Parameter {name} has unsupported type {annotation}.{advice} The valid types are: Tensor, int, float, bool, str, dtype, device, "
        "Union[int, float, bool], Optional of them, List and Sequence of Tensor, Optional[Tensor], int, float, bool and numbers."
    )


def _return_type(annotation: Any, refuse: Any) -> str:
    if annotation is None or annotation is type(None):
        return "()"
    if typing.get_origin(annotation) is tuple or annotation is tuple:
        parts = typing.get_args(annotation)
        if ... in parts:
            raise _bad_return(annotation, refuse)
        return f"({', '.join(_one_return(p, refuse) for p in parts)})"
    return _one_return(annotation, refuse)


def _one_return(annotation: Any, refuse: Any) -> str:
    found = _schema_type(annotation)
    if found not in _RETURNED or typing.get_origin(annotation) is collections.abc.Sequence:
        raise _bad_return(annotation, refuse)
    return found


def _bad_return(annotation: Any, refuse: Any) -> ValueError:
    return refuse(
        f"Return has unsupported type {annotation}. The valid types are: Tensor, List[Tensor], int, float, bool, Union[int, float, bool], "
        "None and tuples of them."
    )


def _default(name: str, value: Any, refuse: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (str, fb.device)):
        return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, fb.dtype):
        return str(value).removeprefix("torch.")
    raise refuse(f"Parameter {name} has an unsupported default value type {type(value)}; leave the default out, or give a schema.")
