"""A choice by a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _state
from .._ops import higher_order
from .._symbolic import SymBool
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._trees import are_tensors

__all__ = ["cond"]


def cond(
    pred: bool | int | float | Tensor | SymBool,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """``true_fn(*operands)`` if `pred` holds, else ``false_fn(*operands)``. Only one of them runs.

    `make_fx` records both.

    Args:
        pred: a bool, a choice by sizes that are symbols, or a tensor of one element.
        true_fn, false_fn: of the same parameters; what they return should have the same structure, shapes and dtypes.
        operands: a tuple or list of tensors, nested in containers or not.
    Raises: RuntimeError for a `pred` of several elements, functions that are none, and operands that are no tensors.

    >>> fb.cond(fb.tensor(-1.0) > 0, lambda x: x + 1, lambda x: x - 1, (fb.ones(2),))
    tensor([0., 0.])
    """
    if isinstance(pred, Tensor):
        if pred.numel() != 1:
            raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    elif not isinstance(pred, (bool, int, float, SymBool)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not are_tensors(pytree.tree_leaves(operands)):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got "
            f"{operands}."
        )
    for interpreter in reversed(_state.local.calls.interpreters):
        result = interpreter.run_branches(pred, (true_fn, false_fn), operands)
        if result is not NotImplemented:
            return result
    return true_fn(*operands) if bool(pred) else false_fn(*operands)


cond_op = higher_order("cond")(cond)                  # as recordings show it
