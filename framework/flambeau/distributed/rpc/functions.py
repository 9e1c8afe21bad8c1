"""What a function says of how it is run for another worker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["async_execution"]


def async_execution(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that returns a `Future`: the caller gets the future's value, and no thread waits for it here.

    Under `staticmethod` and `classmethod` it is the inner decorator.
    """

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    marked: Any = run
    marked._wrapped_async_rpc_function = fn  # the mark that a worker looks for
    return marked
