"""The table of translators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["TRANSLATORS", "translates"]

Translator = Callable[..., Any]
F = TypeVar("F", bound=Translator)

TRANSLATORS: dict[str, Translator] = {}


def translates(*operators: str) -> Callable[[F], F]:
    """The function below translates `operators`, such as ``aten.add.Tensor``.

    It is called with the graph to write to and the operator's arguments: Values for Tensors and open sizes, numbers and other constants
    as they are. It returns a Value, or a tuple for an operator with several results. ``g.out`` is what the operator gives in the
    program, a fake Tensor or several; a result of another dtype than that is cast. Where it returns NotImplemented, the operator is taken
    apart.
    """

    def register(fn: F) -> F:
        for name in operators:
            assert name not in TRANSLATORS, name
            TRANSLATORS[name] = fn
        return fn

    return register
