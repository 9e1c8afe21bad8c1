"""Marks for Intel's profilers, whose library is not bound: `is_available` says so, and marks go nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]

_open: list[str] = []


def is_available() -> bool:
    """False: Intel's library is not bound."""
    return False


def mark(msg: str) -> None:
    """Mark this moment with `msg`."""


def range_push(msg: str) -> int:
    """Begin a range named `msg`. Returns: how many are open around it."""
    _open.append(msg)
    return len(_open) - 1


def range_pop() -> int:
    """End the range begun last. Returns: how many are open around it."""
    if _open:
        _open.pop()
    return len(_open)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # PyTorch's name
    """A context, or decorator, that is a range named ``msg.format(*args, **kwargs)``."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
