"""The arguments of a call as the program wrote them, which those are given who answer it by `__torch_function__`.

Entry points have bound them to parameters by then. Which of them were given by name stands in the code of the caller; it is
looked up here, where somebody overrides functions, and nowhere else.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from types import CodeType, FrameType
from typing import Any

from ._spec import Op

_FRAMES = 8  # between here and the entry point


def written(func: Any, op: Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Positional and keyword arguments of the call of `func` that runs; None if they cannot be told.

    Args:
        args: every parameter of `op`, in order.
    """
    if not op.numpy_names and not func.__qualname__.startswith("Tensor.") and func is op.function:
        return _as_python_functions_do(op, args)
    frame = _frame_of(func)
    if frame is None or frame.f_back is None:
        return None
    call = _call_at(frame.f_back.f_code, frame.f_back.f_lasti)
    if call is None:
        return None
    count, names = call
    # Methods do not count what they are called on.
    return _bound(frame, func, op, count, names) or _bound(frame, func, op, count + 1, names)


def _as_python_functions_do(op: Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What PyTorch's functions in Python hand on: by position what must be given, all else by name."""
    positional: list[Any] = []
    by_name = {}
    for name, value in zip(op.params, args, strict=True):
        if name == op.spread:
            positional.extend(value)
        elif name in op.defaults:
            by_name[name] = value
        else:
            positional.append(value)
    return tuple(positional), by_name


def _frame_of(func: Any) -> FrameType | None:
    code = getattr(func, "__code__", None)
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame is None or frame.f_code is code:
            return frame
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def _call_at(code: CodeType, offset: int) -> tuple[int, tuple[str, ...]] | None:
    """How many arguments the call at `offset` gives by position, and the names of the others; None if it unpacks some."""
    # The offset may be that of the data behind the instruction.
    before = [i for i in dis.get_instructions(code) if i.offset <= offset and i.opname not in ("PRECALL", "CACHE")]
    instruction, previous = (before[-1], before[-2]) if len(before) > 1 else (None, None)
    if instruction is None or previous is None:
        return None
    if instruction.opname == "CALL":  # of Python 3.11 and 3.12 with the names before it
        names = code.co_consts[previous.arg or 0] if previous.opname == "KW_NAMES" else ()
    elif instruction.opname == "CALL_KW" and isinstance(previous.argval, tuple):
        names = previous.argval
    else:
        return None
    return (instruction.arg or 0) - len(names), names


def _bound(frame: FrameType, func: Any, op: Op, count: int, names: tuple[str, ...]) -> Any:
    """The arguments by the parameters of `func`, whose frame has their values; None if it was called in another way."""
    code, values = frame.f_code, frame.f_locals
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = parameters[: min(count, code.co_argcount)]
    more: tuple[Any, ...] = ()
    if code.co_flags & inspect.CO_VARARGS:
        more = values[code.co_varnames[len(parameters)]]
    if len(given) + len(more) != count or not set(names) <= set(parameters) or set(names) & set(given):
        return None
    if not _rest_is_default(func, op, parameters, {*given, *names}, values):
        return None
    return (*(values[n] for n in given), *more), {n: values[n] for n in names}


def _rest_is_default(func: Any, op: Op, parameters: tuple[str, ...], given: set[str], values: Any) -> bool:
    from ._parameters import _NUMPY_NAMES

    positional = func.__defaults__ or ()
    defaults = dict(zip(parameters[func.__code__.co_argcount - len(positional) :], positional, strict=False))
    defaults.update(func.__kwdefaults__ or {})
    for name in parameters:
        if name in given or name == op.spread or given & set(_NUMPY_NAMES.get(name, ())):
            continue
        if name not in defaults or values[name] is not defaults[name]:
            return False
    return True
