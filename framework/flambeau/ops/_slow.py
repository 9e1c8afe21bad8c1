"""The slow path: everything unusual about a call, decided once and in order.

Entry points come here when `SLOW` is set: a mode is active, an operand's class overrides ``__torch_function__``, autocast
is on, or a function transform (forward mode, vmap, tracing) is running. Each concern is an interpreter that either answers
or passes on to the next; the last is the op's own general path.
"""

from __future__ import annotations

from typing import Any

from .. import _state
from ..tensor import Tensor, wrap
from ._spec import Op

# Interpreters, outermost first: ``fn(op, args, out) -> result or NotImplemented``. Transforms append themselves.
interpreters: list[Any] = []


def call(op: Op, args: tuple[Any, ...], out: Any = None) -> Any:
    """Run `op` with every interpreter given its say."""
    overriding = overriding_classes(args if out is None else (*args, out))
    if overriding or _state.local.modes:
        kwargs = {} if out is None else {"out": out}
        return dispatch_torch_function(op.function, overriding, op, args, kwargs)
    for interpret in interpreters:
        result = interpret(op, args, out)
        if result is not NotImplemented:
            return result
    return op.run(*args) if out is None else op.run_out(out, *args)


def call_inplace(op: Op, args: tuple[Any, ...]) -> Any:
    overriding = overriding_classes(args)
    if overriding or _state.local.modes:
        from . import _derive

        return dispatch_torch_function(_derive.make_inplace(op), overriding, op, args, {}, inplace=True)
    for interpret in interpreters:
        result = interpret(op, args, args[0])
        if result is not NotImplemented:
            return result
    return op.run_inplace(*args)


def detach(tensor: Tensor) -> Tensor:
    from ._spec import OPS

    return OPS["detach"].function(tensor)


# -- __torch_function__ --------------------------------------------------------------------------------------------------


def overriding_classes(args: Any) -> list[type]:
    """Classes of operands that want a say, subclasses before the classes they derive from."""
    if _state.local.torch_function_off:
        return []
    found: list[type] = []
    for a in args:
        for x in a if isinstance(a, (list, tuple)) else (a,):
            cls = type(x)
            if cls is Tensor or cls in found or not hasattr(cls, "__torch_function__"):
                continue
            if getattr(cls, "_plain_operand", False):
                continue
            at = next((i for i, c in enumerate(found) if issubclass(cls, c)), len(found))
            found.insert(at, cls)
    return found


def dispatch_torch_function(func: Any, classes: list[type], op: Op, args: Any, kwargs: Any, inplace: bool = False) -> Any:
    """Ask the active mode, then each overriding class, until one answers."""
    positional = args[: len(op.positional)]
    kwargs = {**dict(zip(op.keyword_only, args[len(op.positional) :], strict=True)), **kwargs}
    kwargs = {n: v for n, v in kwargs.items() if n not in op.defaults or v is not op.defaults[n]}
    if op.spread:
        positional = tuple(positional)
    types = tuple(classes)
    modes = _state.local.modes
    if modes:
        mode = modes.pop()
        try:
            return mode.__torch_function__(func, types, positional, kwargs)
        finally:
            modes.append(mode)
    for cls in classes:
        result = cls.__torch_function__(func, types, positional, kwargs)
        if result is not NotImplemented:
            return result
    names = ", ".join(c.__name__ for c in classes)
    raise TypeError(f"no implementation found for '{op.qualified}' on types that implement __torch_function__: [{names}]")


def default_torch_function(cls: type, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run `func` as if the operands were plain Tensors and hand out results as `cls`."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    _state.local.torch_function_off += 1
    try:
        result = func(*args, **kwargs)
    finally:
        _state.local.torch_function_off -= 1
    return _converted(result, cls)


def _converted(value: Any, cls: type) -> Any:
    if isinstance(value, Tensor) and type(value) is not cls:
        return value.as_subclass(cls)
    if isinstance(value, (tuple, list)):
        made = [_converted(v, cls) for v in value]
        return made if isinstance(value, list) else type(value)(made)
    return value


__all__ = ["call", "call_inplace", "interpreters", "wrap"]
