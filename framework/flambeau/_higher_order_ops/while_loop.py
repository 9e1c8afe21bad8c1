"""Repetition while a value says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from ._trees import check_carried

__all__ = ["while_loop"]


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: tuple[Any, ...] | list[Any]) -> Any:
    """``carried = body_fn(*carried)`` as long as ``cond_fn(*carried)`` holds; returns what is carried in the end, as a tuple.

    Args:
        cond_fn: gives a bool or a tensor of one element.
        body_fn: gives what is carried on, of the same structure, shapes and dtypes.
        carried_inputs: a tuple or list of tensors and numbers, nested in containers or not.
    Raises: RuntimeError for functions that are none, inputs that are no tuple, a condition of several elements, and a body that
        carries on something else.

    >>> fb.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (fb.tensor(0), fb.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, but got {type(carried_inputs)}.")
    carried = tuple(carried_inputs)
    while _holds(cond_fn(*carried)):
        after = body_fn(*carried)
        after = tuple(after) if isinstance(after, (tuple, list)) else (after,)
        check_carried("while_loop", carried, after)
        carried = after
    return carried


def _holds(condition: Any) -> bool:
    if isinstance(condition, Tensor) and condition.numel() != 1 or not isinstance(condition, (bool, Tensor)):
        raise RuntimeError(f"while_loop: cond_fn must return a bool or a tensor of one element, but it gave {condition}")
    return bool(condition)
