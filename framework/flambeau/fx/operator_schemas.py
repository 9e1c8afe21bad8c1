"""Arguments of calls in graphs, bound to parameters."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any, NamedTuple

from .._ops import OpOverload
from ..nn import Module

__all__ = [
    "ArgsKwargsPair", "check_for_mutable_operation", "create_type_hint", "get_signature_for_torch_op", "normalize_function",
    "normalize_module", "type_matches",
]  # fmt: skip


class ArgsKwargsPair(NamedTuple):
    """Arguments given in order, and those given by keyword."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of `op`, one for each way to call it; None if it is no function of the package.

    Args:
        return_schemas: give a pair of signatures and schemas; there are no schemas here, so the second is None.
    """
    declared = getattr(op, "flambeau_op", None)
    if isinstance(op, OpOverload):
        signatures: Any = [_signature_of_schema(op._schema)]
    else:
        signatures = None if declared is None else [_declared_signature(declared)]
    return (signatures, None) if return_schemas else signatures


def _declared_signature(op: Any) -> inspect.Signature:
    """The parameters that a declaration names, without those that stand for other libraries' names."""
    parameters = []
    for name in op.params:
        kind = inspect.Parameter.KEYWORD_ONLY if name in op.keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = op.defaults.get(name, inspect.Parameter.empty)
        parameters.append(inspect.Parameter(name, kind, default=default))
    return inspect.Signature(parameters)


def _signature_of_schema(schema: Any) -> inspect.Signature:
    """The arguments of an operator; its `self` is the parameter `input`, as public functions call it."""
    parameters = []
    for a in schema.arguments:
        kind = inspect.Parameter.KEYWORD_ONLY if a.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        name = "input" if a.name == "self" else f"{a.name}_" if keyword.iskeyword(a.name) else a.name
        parameters.append(inspect.Parameter(name, kind, default=a.default_value if a._has_default else inspect.Parameter.empty))
    return inspect.Signature(parameters)


def check_for_mutable_operation(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises: RuntimeError if `target` stores in one of its arguments."""
    op = getattr(target, "flambeau_op", None)
    if op is not None and (target.__name__ == f"{op.name}_" or kwargs.get("out") is not None):
        raise RuntimeError(
            f"Tried to trace mutable operation {target.__name__}. FX only supports functional code, so operations that mutate "
            "operands in-place (e.g. via `out` arguments) are not supported"
        )


def create_type_hint(x: object) -> object:
    """The type of lists and tuples of types: ``[int, int]`` gives ``list[int]``."""
    if isinstance(x, (list, tuple)):
        if not x:
            return list[Any] if isinstance(x, list) else tuple[Any, ...]
        base: Any = x[0]
        for other in x:
            if isinstance(base, type) and isinstance(other, type) and issubclass(base, other):
                base = other
            elif not (isinstance(base, type) and isinstance(other, type) and issubclass(other, base)):
                base = Any
                break
        return list[base] if isinstance(x, list) else tuple[base, ...]
    return x


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether an argument of `argument_type` may be given for a parameter annotated `signature_type`."""
    import typing

    if signature_type is inspect.Parameter.empty or signature_type is Any or signature_type == argument_type:
        return True
    origin = typing.get_origin(signature_type)
    if origin is typing.Union:
        return any(type_matches(part, argument_type) for part in typing.get_args(signature_type))
    if origin is list and typing.get_origin(argument_type) is list:
        return type_matches(typing.get_args(signature_type)[0], typing.get_args(argument_type)[0])
    if signature_type is float and argument_type is int:
        return True
    return isinstance(argument_type, type) and isinstance(signature_type, type) and issubclass(argument_type, signature_type)


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call bound to the parameters of the function `target`, defaults filled in.

    Args:
        args, kwargs: of the call.
        arg_types, kwarg_types: types of the arguments; no function here needs them, for each has one signature.
        normalize_to_only_use_kwargs: give all of them by keyword.
    Returns: None for functions that are none of the package, or that do not take these arguments.
    """
    signatures = get_signature_for_torch_op(target)
    if signatures is None:
        return None
    return _bind(signatures[0], args, kwargs or {}, normalize_to_only_use_kwargs)


def normalize_module(
    root: Module,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of the submodule `target` of `root` bound to the parameters of its `forward`.

    Args:
        args, kwargs: of the call.
        normalize_to_only_use_kwargs: give all of them by keyword.
    Returns: None for modules that are none of the package. Raises: RuntimeError if `root` has no such submodule.
    """
    try:
        module = root.get_submodule(target)
    except AttributeError:
        raise RuntimeError(f"Tried to normalize node with target {target} but root did not have that target!") from None
    if not type(module).__module__.startswith("flambeau.nn"):
        return None
    signature = inspect.signature(module.forward)
    return _bind(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def _bind(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], by_keyword: bool
) -> ArgsKwargsPair | None:
    varied = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(p.kind in varied for p in signature.parameters.values()):
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    if by_keyword:
        return ArgsKwargsPair((), dict(bound.arguments))
    first = {name: bound.arguments[name] for name in list(signature.parameters)[: len(args)]}
    rest = {name: value for name, value in bound.arguments.items() if name not in first}
    return ArgsKwargsPair(tuple(first.values()), rest)
