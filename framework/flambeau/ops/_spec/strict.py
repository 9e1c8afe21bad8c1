"""FLAMBEAU_STRICT=1: a plan that fails on arguments which the fallback answers says so.

Plans leave bad arguments to the fallback, which finds the words for them, and so take an exception for "not for me".
A plan that is broken raises too, and would only be slow. With the variable set when flambeau is imported, the text around plans
is another: it asks the fallback at once, and raises `BrokenPlan` if that has an answer. Without it nothing is added.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from ..._kinds import NoStrides
from ...dtypes import dtype
from ...tensor import Tensor

__all__ = ["STRICT", "BrokenPlan", "NotPlain", "check_refused", "store_refused"]

STRICT = os.environ.get("FLAMBEAU_STRICT", "").strip() not in ("", "0")

_PLAIN = (int, float, complex, bool, str, type(None), dtype)


class NotPlain(TypeError):
    """An argument that plans are not told apart by: no number, text, dtype or None, nor a tuple or list of such."""


class BrokenPlan(AssertionError):
    """A plan raised where the fallback has an answer; the cause is what it raised."""


def check_refused(op: Any, operands: Collection[str], args: tuple[Any, ...], error: Exception) -> None:
    """Raise BrokenPlan if `error`, which the plan of `op` raised, is none of the refusals that are allowed.

    Those are: arguments of kinds that plans are not made for (a list or a number for a Tensor, a Tensor or numpy's
    number for a size), a warning that the program made an error, and whatever the fallback refuses as well.

    Args:
        operands: parameters whose arguments are Tensors.
    """
    if not _is_refusal(op, operands, args, error):
        try:
            op.run(*args)
        except Exception:  # the caller asks the fallback again, which raises this where it is explained
            return
        _raise_broken(op, error)


def store_refused(op: Any, operands: Collection[str], args: tuple[Any, ...], error: Exception, general: Any) -> Any:
    """What ``general(*args)`` returns, after the plan of the in-place form raised `error`; as `check_refused` otherwise."""
    result = general(*args)
    if not _is_refusal(op, operands, args, error):
        _raise_broken(op, error)
    return result


def _raise_broken(op: Any, error: Exception) -> None:
    raise BrokenPlan(
        f"{op.qualified}: its plan raised {type(error).__name__}: {error}; the fallback answers these arguments. "
        f"Mend the plan, or let it return None for them"
    ) from error


def _is_refusal(op: Any, operands: Collection[str], args: tuple[Any, ...], error: Exception) -> bool:
    usual = all(_is_usual(op, operands, name, value) for name, value in zip(op.params, args, strict=True))
    return not usual or isinstance(error, (Warning, NoStrides, NotPlain))


def _is_usual(op: Any, operands: Collection[str], name: str, value: Any) -> bool:
    if name in operands and name != getattr(op, "index_tensors", None):
        return isinstance(value, Tensor) or value is None and name in op.defaults
    if isinstance(value, (tuple, list)):
        return all(type(v) in _PLAIN or isinstance(v, Tensor) and name in operands for v in value)
    if isinstance(value, Tensor):  # of a composition whose plan gets it as it is
        return op.kind == "composite" and name in op.positional and name not in op.defaults
    return type(value) in _PLAIN
