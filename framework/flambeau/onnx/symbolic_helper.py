"""Decorators of functions that translate operators; the functions themselves run only in an export, which is not built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _missing

__all__ = ["parse_args", "quantized_args"]


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the translation takes constants of these kinds ("v": a value, "i": an int, "f", "s", "b", "t", "is", "none").

    Raises: ValueError for another kind.
    """
    known = {"v", "i", "f", "s", "b", "t", "is", "fs", "none"}
    unknown = [kind for kind in arg_descriptors if kind not in known]
    if unknown:
        raise ValueError(f"onnx.symbolic_helper.parse_args: unknown kind {unknown[0]!r}, known are {', '.join(sorted(known))}")

    def decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
        fn._arg_descriptors = arg_descriptors  # type: ignore[attr-defined]
        return fn

    return decorator


def quantized_args(*arg_q_descriptors: bool, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the translation takes quantized values in the places that are True."""
    return lambda fn: fn


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
