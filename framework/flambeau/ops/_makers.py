"""Functions of the package that are no ops: those that make tensors, and questions about them.

Modes, classes of operands and the profiler are asked by them only once somebody may want a say (`install_functions`): then other
functions stand in their place. These answer usual calls at once, as their declarations say by `usually`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _state
from . import _dispatch
from ._spec import strict
from ._written import as_written, defaults_of

Function = TypeVar("Function", bound=Callable[..., Any])
_local = _state.local
_installed = False
# Functions of the package that answer about a tensor, or check one.
QUESTIONS = (
    "_assert", "is_complex", "is_conj", "is_floating_point", "is_inference", "is_neg", "is_nonzero", "is_signed", "numel",
    "result_type",
)  # fmt: skip


def creation_functions() -> dict[str, Any]:
    """The public functions of the package that are no ops, by name."""
    from .. import _settings
    from .creation import create, fill, from_values, ranges, shared_memory
    from .sampling import random
    from .shapes import misc

    questions = {name: getattr(_settings, name) for name in QUESTIONS}
    modules = (create, from_values, shared_memory, fill, ranges, random, misc)
    return {**{name: fn for module in modules for name, fn in module.FUNCTIONS.items()}, **questions}


def install_functions() -> None:
    """Put functions that ask modes and classes first in the place of those that create tensors."""
    global _installed
    if _installed:
        return
    _installed = True
    import flambeau

    for name, fn in creation_functions().items():
        asking = _asking_function(fn, name not in QUESTIONS)
        for module in (flambeau, *_state.NAMESAKES):
            setattr(module, name, asking)


def refusing(fn: Function) -> Function:
    """A function that says, as ops do, what is wrong where `fn` falls over."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            from ._refusal import refusal_of_function

            found = refusal_of_function(fn, args, kwargs, error)
            if found is None:
                raise
            raise found from error

    return call  # type: ignore[return-value]


class Usual:
    """How a function that creates tensors answers usual calls, for which nobody is asked; see `usually`."""

    __slots__ = ("test", "answer", "names")

    def __init__(self, test: str, answer: str, names: dict[str, Any]) -> None:
        self.test = test                              # of the parameters: whether a call may be usual
        self.answer = answer                          # the result of one, or None for what is not; it takes nothing whose class has a say
        self.names = names                            # what these texts refer to beside the globals of the function


_usual: dict[Any, Usual] = {}


def usually(test: str, answer: str, **names: Any) -> Callable[[Function], Function]:
    """A decorator for functions that create tensors: the public function answers calls so while nobody is in force."""

    def note(fn: Function) -> Function:
        _usual[fn] = Usual(test, answer, names)
        return fn

    return note


def _asking_function(fn: Any, creates: bool) -> Any:
    """`fn`, asking first; one that `creates` is also shown to the profiler, if it looks on."""
    plain = _dispatch.SINGLE.issuperset

    @functools.wraps(fn)
    def asking(*args: Any, **kwargs: Any) -> Any:
        if not _state.INTERPRETED or not _state.IN_FORCE and not kwargs and plain(map(type, args)):
            try:
                return fn(*args, **kwargs)
            except (TypeError, AttributeError):
                # What is refused may be of a class that wants a say, which nobody has asked yet.
                if not _dispatch.overriding_classes((*args, *kwargs.values())):
                    raise
        if _local.calls.modes or not (plain(map(type, args)) and plain(map(type, kwargs.values()))):
            classes = _dispatch.overriding_classes((*args, *kwargs.values()))
            if classes or _local.calls.modes:
                # Handlers know the function by its public name, which now means this one.
                return _dispatch.dispatch_torch_function(public, classes, args, kwargs)
        observer = _state.observer() if creates else None
        return fn(*args, **kwargs) if observer is None else observer.observe_function(fn.__name__, fn, args, kwargs)

    declared = getattr(fn, "__wrapped__", fn)
    public = _answering(declared, asking, _usual[declared]) if declared in _usual else asking
    public.__module__, public.__qualname__ = "flambeau", fn.__name__  # where it is found from here on
    return public


def _answering(fn: Any, asking: Any, usual: Usual) -> Any:
    """A function of the parameters of `fn` that answers usual calls, and leaves others to `asking` as they are written."""
    from ._entry import compile_text

    def others(given: dict[str, Any]) -> Any:
        args, kwargs = as_written(public, given, sys._getframe(2))
        return asking(*args, **kwargs)

    def failed(given: dict[str, Any], error: Exception) -> Any:
        args, kwargs = as_written(public, given, sys._getframe(2))
        result = asking(*args, **kwargs)              # which says what is wrong, if something is
        if strict.STRICT:
            raise strict.BrokenPlan(f"{fn.__name__}: its usual answer raised {type(error).__name__}: {error}; `asking` has one") from error
        return result

    constants = {"others": others, "failed": failed, "_state": _state, **usual.names}
    text = (
        f"def make({', '.join(constants)}, defaults):\n"
        f"    def {fn.__name__}({_parameters_of(fn, defaults_of(fn))}):\n"
        f"        if not _state.IN_FORCE and {usual.test}:\n"
        "            try:\n"
        f"                made = {usual.answer}\n"
        "            except Exception as error:\n"
        "                return failed(locals(), error)\n"
        "            if made is not None:\n"
        "                return made\n"
        "        return others(locals())\n"
        f"    return {fn.__name__}\n"
    )
    made = compile_text(text, fn.__name__, {**constants, "defaults": defaults_of(fn)}, fn.__globals__)
    public = functools.wraps(fn)(made)
    return public


def _parameters_of(fn: Any, defaults: dict[str, Any]) -> str:
    """The text of the parameters of `fn`, whose defaults are in ``defaults``."""
    code = fn.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    texts = [f"{n}=defaults[{n!r}]" if n in defaults else n for n in code.co_varnames[: count + only]]
    behind = [*code.co_varnames[count + only :]]
    between = [f"*{behind.pop(0)}"] if code.co_flags & inspect.CO_VARARGS else ["*"] if only else []
    named = [f"**{behind[0]}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return ", ".join([*texts[:count], *between, *texts[count:], *named])
