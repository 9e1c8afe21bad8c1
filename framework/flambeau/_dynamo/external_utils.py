"""Functions that compiled programs of PyTorch call; here Python calls them as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..compiler import is_compiling, wrap_numpy

__all__ = ["is_compiling", "wrap_inline", "wrap_numpy"]


def wrap_inline(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `fn`, whose frame a compiler that reads bytecode would read."""

    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


def call_hook(hook: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the hook of a gradient gives, or the gradient where it gives None."""
    result = hook(*args)
    return args[0] if result is None else result


def get_nonrecursive_disable_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `fn`."""
    return wrap_inline(fn)
