"""Functions of programs that recorders treat as a whole, or leave out: `allow_in_graph`, `disallow_in_graph`, `forbid_in_graph`.

PyTorch's compiler reads code, so it need only remember a function. Here functions run: one that is marked stays the same object, and its
code is replaced by such as asks the recorders first. Operations are known by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from .. import _state
from .._interpreters import ask

_local = _state.local
DISALLOWED: set[Any] = set()  # operations that are in no graph


def _asking(*args: Any, **kwargs: Any) -> Any:
    handler: Any = "its handler"                      # which is put in the place of this constant
    return handler(args, kwargs)


class Marked:
    """How calls of a function are answered: by ``handle(original, args, kwargs)``, where `original` does what it did before."""

    def __init__(self, fn: FunctionType, handle: Callable[[Any, Any, Any], Any]) -> None:
        self.handle, self.fn = handle, fn
        code = self.code = fn.__code__
        self.original = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        self.original.__kwdefaults__ = fn.__kwdefaults__
        fn.__code__ = self._code(code)
        fn.__wrapped__ = self.original  # type: ignore[attr-defined]  # whose parameters it has
        _marked[fn] = self

    def _code(self, code: CodeType) -> CodeType:
        asking = _asking.__code__
        return asking.replace(
            co_consts=tuple([self if constant == "its handler" else constant for constant in asking.co_consts]),
            co_freevars=code.co_freevars, co_name=code.co_name, co_filename=code.co_filename, co_firstlineno=code.co_firstlineno,
        )  # fmt: skip

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.handle(self.original, args, kwargs)

    def remove(self) -> None:
        """Let the function be as it was."""
        self.fn.__code__ = self.code
        del self.fn.__wrapped__, _marked[self.fn]  # type: ignore[attr-defined]


_marked: dict[Any, Marked] = {}


def unmark(fn: Any) -> None:
    """Treat `fn` as other functions are."""
    DISALLOWED.discard(_operation(fn))
    if fn in _marked:
        _marked[fn].remove()


def allow(fn: Any) -> None:
    """Let graphs have calls of `fn` as one node. Of what is no Python function they have those already."""
    unmark(fn)
    if isinstance(fn, FunctionType) and _operation(fn) is None:
        Marked(fn, lambda original, args, kwargs: _recorded(fn, original, args, kwargs))


def disallow(fn: Any) -> None:
    """Let calls of `fn`, a Python function or an operation, end graphs and be in none."""
    unmark(fn)
    operation = _operation(fn)
    if operation is not None:
        DISALLOWED.add(operation)
    elif isinstance(fn, FunctionType):
        Marked(fn, lambda original, args, kwargs: _left_out(fn, original, args, kwargs))


def forbid(fn: Any) -> None:
    """Let calls of `fn` in compiled functions raise AssertionError."""
    unmark(fn)
    if isinstance(fn, FunctionType):
        Marked(fn, lambda original, args, kwargs: _refused(fn, original, args, kwargs))


def _operation(fn: Any) -> Any:
    return getattr(fn, "flambeau_op", None)


def _recorded(fn: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = ask("run_function", fn, args, kwargs)
    return original(*args, **kwargs) if result is NotImplemented else result


def _left_out(fn: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from ._functions import not_recorded

    if not _local.calls.compiling:
        return original(*args, **kwargs)
    with not_recorded(f"{fn.__qualname__} is not allowed in graphs"):
        return original(*args, **kwargs)


def _refused(fn: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    assert not _local.calls.compiling, f"compile: the program calls {fn.__qualname__}, which forbid_in_graph forbids in graphs"
    return original(*args, **kwargs)
