"""Marks that decorators of `flambeau.jit` leave on functions, and the types that annotations for scripts use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, Final, List, Optional, Tuple, TypeVar, Union  # noqa: F401, UP035  # programs import these from here

from .futures import Future

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "BroadcastingList5",
    "BroadcastingList6", "Final", "FunctionModifiers", "Future", "boolean_dispatch", "export", "ignore", "is_scripting",
    "unused",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


class FunctionModifiers:
    """What a compiler of scripts shall do with a marked function."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from a exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "if this method is not scripted, copy the python method onto the scripted model"
    _DROP = "_drop (function is fully ignored, declaration can be unscriptable)"


def is_scripting() -> bool:
    """Whether this code runs inside a script: False here, in Python; a script compiles the call to True."""
    return False


def _mark(fn: Any, modifier: str) -> Any:
    target = fn.fget if isinstance(fn, property) else fn
    target._torchscript_modifier = modifier  # type: ignore[attr-defined]
    return fn


def export(fn: F) -> F:
    """Mark a method that scripts shall contain even if `forward` does not call it. Returns: `fn`."""
    return _mark(fn, FunctionModifiers.EXPORT)


def unused(fn: F) -> F:
    """Mark a function or property that scripts shall not contain. Returns: `fn`."""
    return _mark(fn, FunctionModifiers.UNUSED)


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function that scripts shall leave to Python: ``@ignore``, ``@ignore()`` or ``@ignore(drop=True)``.

    Raises: RuntimeError if `drop` is neither a bool nor the function.
    """
    if callable(drop):
        return _mark(drop, FunctionModifiers.IGNORE)
    if not isinstance(drop, bool):
        raise RuntimeError(f"jit.ignore: drop must be a bool or the function to mark, got {drop!r}")
    dropped = drop or kwargs.get("drop_on_export", False)
    return lambda fn: _mark(fn, FunctionModifiers.UNUSED if dropped else FunctionModifiers.IGNORE)


def _drop(fn: F) -> F:
    return _mark(fn, FunctionModifiers._DROP)


def _copy_to_script_wrapper(fn: F) -> F:
    return _mark(fn, FunctionModifiers.COPY_TO_SCRIPT_WRAPPER)


def get_torchscript_modifier(fn: Any) -> str:
    """The mark of `fn`, `FunctionModifiers.DEFAULT` if it has none."""
    return getattr(getattr(fn, "__func__", fn), "_torchscript_modifier", FunctionModifiers.DEFAULT)


def is_ignored_fn(fn: Any) -> bool:
    """Whether scripts shall leave out `fn`."""
    left_out = (FunctionModifiers.UNUSED, FunctionModifiers.IGNORE, FunctionModifiers._DROP)
    return get_torchscript_modifier(fn) in left_out


def _overload(func: F) -> F:
    """Declare one signature of a function for scripts; Python calls the definition that comes last. Returns: `func`."""
    return func


def _overload_method(func: F) -> F:
    """As `_overload`, for a method."""
    return func


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Any:
    """A function that calls `if_true` or `if_false`, as its argument `arg_name` (at `arg_index`) says."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        chosen = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if chosen else if_false)(*args, **kwargs)

    fn.__doc__ = if_false.__doc__ if if_true.__doc__ is None else if_true.__doc__
    fn.__name__, fn.__module__ = func_name, module_name
    return fn


class _BroadcastingList:
    """``BroadcastingList2[int]`` in an annotation: two of them, or one that counts for both."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __getitem__(self, item: Any) -> Any:
        return list[item]

    def __repr__(self) -> str:
        return f"BroadcastingList{self.length}"


BroadcastingList1, BroadcastingList2, BroadcastingList3 = map(_BroadcastingList, (1, 2, 3))
BroadcastingList4, BroadcastingList5, BroadcastingList6 = map(_BroadcastingList, (4, 5, 6))
