"""Kernels with the bits of what numpy computes, which take its place once calls have shown that loading them repays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..quiet import quietly
from ..takeover import KERNEL, Waiting
from .tier import compiles

__all__ = ["late", "numpy_until_kernel"]

def numpy_until_kernel(
    by_numpy: Callable[..., Any], kernel: Any, types: tuple[Any, ...], constants: dict[str, Any], around: Any,
) -> Callable[..., Any]:
    """`by_numpy` at first, then ``around(form)`` of the form of `kernel` for `types` and `constants`.

    The form takes over only if the arrays it makes of the arguments of that call are those of numpy, to the last bit.
    """
    waiting, native = Waiting(KERNEL), None
    by_numpy = quietly(by_numpy)                      # kernels raise no warnings

    def run(*args: Any) -> Any:
        nonlocal native
        if native is not None:
            return native(*args)
        made = by_numpy(*args)
        compile = waiting.due()
        if compile is not None:
            candidate = _loaded(kernel, types, constants, around, compile)
            if candidate is not None and _same(candidate(*args), made):
                native = candidate
        return made

    return run


def late(kernel: Any, types: tuple[Any, ...], constants: dict[str, Any], around: Any, cost: float = 1) -> Callable[..., Any]:
    """``around(form)`` of the form of `kernel`, whose bits are those of the fallback, once calls of it repay; until then a call is None.

    Args:
        cost: of a call of the fallback, beside that of one with few elements.
    """
    waiting, native = Waiting(KERNEL), None

    def run(*args: Any) -> Any:
        nonlocal native
        if native is not None:
            return native(*args)
        compile = waiting.due(cost)
        if compile is None:
            return None
        native = _loaded(kernel, types, constants, around, compile)
        return native and native(*args)

    return run


def _loaded(kernel: Any, types: tuple[Any, ...], constants: dict[str, Any], around: Any, compile: bool) -> Any:
    if not compiles():
        return None
    from ..engine.launching import call

    if not compile:
        code = kernel.function.__code__
        names = [n for n in code.co_varnames[1 : code.co_argcount] if n not in constants]
        given = [getattr(t, "name", t) for t in types]
        if not call.is_cached(kernel, dict(zip(names, given, strict=True)), constants):
            return None
    return around(kernel.form(types, constants))


def _same(made: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    return all(
        m is None and e is None or m.dtype == e.dtype and m.shape == e.shape and m.tobytes() == e.tobytes()
        for m, e in zip(made, expected, strict=True)
    )
