"""The arguments of a call as the program wrote them, which those are given who answer it by `__torch_function__`.

Entry points have bound them to parameters by then. Which of them were given by name stands in the code of the caller; it is
looked up here, where somebody overrides functions, and nowhere else.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
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
    if op.handed_on is not None:
        return op.handed_on(*args), {}
    if func is op.function and not (op.numpy_names or op.named_too) and not func.__qualname__.startswith("Tensor."):
        return _as_python_functions_do(op, args)
    frame = _frame_of(func)
    if frame is None or (caller := frame.f_back) is None:
        return None
    for read, given, spread, named, rest in _ways_to_read(func, op, caller.f_code, caller.f_lasti):
        values = args if read is None else read(frame.f_locals)
        for at, default in rest:
            if values[at] is not default:
                break
        else:
            if spread is None:
                return values[:given], {name: values[at] for name, at in named}
            more = values[spread[0]]
            if len(more) == spread[1]:
                return (*values[:given], *more), {name: values[at] for name, at in named}
    return None


def as_written(fn: Any, given: dict[str, Any], caller: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call of `fn` by the frame `caller`, which bound its parameters to `given`.

    Where they cannot be told, what must be given is by position, and all that is no default by name.
    """
    code = fn.__code__
    count, defaults = code.co_argcount, defaults_of(fn)
    parameters = code.co_varnames[: count + code.co_kwonlyargcount]
    behind = [*code.co_varnames[len(parameters) :]]
    more = given[behind.pop(0)] if code.co_flags & inspect.CO_VARARGS else ()
    named = given[behind[0]] if code.co_flags & inspect.CO_VARKEYWORDS else {}
    call = _call_at(caller.f_code, caller.f_lasti)
    if call is not None:
        by_position, names = call
        received = {*parameters[: min(by_position, count)], *names}
        if (
            by_position == min(by_position, count) + len(more)
            and set(names) <= {*parameters[min(by_position, count) :], *named} and named.keys() <= set(names)
            and all(n in received or n in defaults and given[n] is defaults[n] for n in parameters)
        ):  # fmt: skip
            values = given | named
            return (*(given[n] for n in parameters[: min(by_position, count)]), *more), {n: values[n] for n in names}
    first = count if more else next((i for i, n in enumerate(parameters[:count]) if n in defaults), count)
    by_name = {n: given[n] for n in parameters[first:] if n not in defaults or given[n] is not defaults[n]}
    return (*(given[n] for n in parameters[:first]), *more), by_name | named


def defaults_of(fn: Any) -> dict[str, Any]:
    code, given = fn.__code__, fn.__defaults__ or ()
    return dict(zip(code.co_varnames[code.co_argcount - len(given) : code.co_argcount], given, strict=True)) | (fn.__kwdefaults__ or {})


def _as_python_functions_do(op: Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What PyTorch's functions in Python hand on: by position what must be given, all else by name."""
    positional: list[Any] = []
    by_name = {}
    for name, value in zip(op.params, args, strict=True):
        if name == op.variadic:
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


@functools.lru_cache(maxsize=4096)
def _ways_to_read(func: Any, op: Op, caller: CodeType, offset: int) -> list[Any]:
    """How the arguments of a frame of `func` may have been given by the call at `offset` of `caller`.

    Each way has: what reads the values from the frame's locals, or None where the arguments of `op` are the values; how many of
    them were given by position; place and number of those behind, or None; names and places of those given by name; places and
    defaults of the others, without which the call was written in another way.
    """
    call = _call_at(caller, offset)
    if call is None:
        return []
    count, named = call
    # Methods do not count what they are called on.
    ways = [_matching_call(func, op, count, named), _matching_call(func, op, count + 1, named)]
    return [way for way in ways if way is not None]


def _matching_call(func: Any, op: Op, count: int, named: tuple[str, ...]) -> Any:
    from ._parameters import other_names

    code = func.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = parameters[: min(count, code.co_argcount)]
    behind = code.co_varnames[len(parameters)] if code.co_flags & inspect.CO_VARARGS else None
    if len(given) != count and behind is None:
        return None
    if not set(named) <= set(parameters) or set(named) & set(given):
        return None
    defaults = defaults_of(func)
    received = {*given, *named}
    renamed = other_names(op)
    others = [n for n in parameters if n not in received and n != op.variadic and not received & set(renamed.get(n, ()))]
    if not defaults.keys() >= set(others):
        return None
    read = None
    if behind is None and op.params[: len(given)] == given and received <= set(op.params):
        # Entry points hand on their parameters as they are, and those that the op has not are other names of these.
        names = op.params
        others = [n for n in others if n in names]
    else:
        names = (*parameters, behind) if behind is not None else parameters
        read = operator.itemgetter(*names) if len(names) > 1 else lambda values, name=names[0]: (values[name],)
    at = {name: i for i, name in enumerate(names)}
    spread = None if behind is None else (at[behind], count - len(given))
    return read, len(given), spread, [(n, at[n]) for n in named], [(at[n], defaults[n]) for n in others]
