"""What a compiled function does that recorders do not see: they leave out code of the framework itself, as which a text here is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TEXT = """
def counting(f, calls):
    def counted(*args, **kwargs):
        calls.append(1)
        return f(*args, **kwargs)
    return counted

def reading(values):
    return lambda: values[0]
"""
_scope: dict[str, Any] = {}
exec(compile(_TEXT, "<flambeau unseen>", "exec"), _scope)


def counted(f: Any) -> tuple[Any, list[int]]:
    """`f`, and a list that has an entry for each of its calls."""
    calls: list[int] = []
    return _scope["counting"](f, calls), calls


def reader(values: list[Any]) -> Callable[[], Any]:
    """A function that gives the first of `values`."""
    return _scope["reading"](values)
