"""Repetition while a value says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._ops import higher_order
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._trees import are_tensors, check_carried, lack_values, recorded

__all__ = ["while_loop"]


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: tuple[Any, ...] | list[Any]) -> Any:
    """``carried = body_fn(*carried)`` as long as ``cond_fn(*carried)`` holds; returns what is carried in the end, as a tuple.

    `make_fx` records both functions.

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
    carried = given = tuple(carried_inputs)
    leaves, spec = pytree.tree_flatten(carried)
    if are_tensors(leaves) and leaves:
        made = recorded(while_loop_op, (cond_fn, body_fn), lambda: given, (tuple(leaves),))
        if made is not NotImplemented:
            return pytree.tree_unflatten(list(made[0]), spec)
    while _holds(cond_fn(*carried)):
        after = body_fn(*carried)
        after = tuple(after) if isinstance(after, (tuple, list)) else (after,)
        check_carried("while_loop", carried, after)
        carried = after
    return carried


@higher_order("while_loop")
def while_loop_op(cond_graph: Any, body_graph: Any, carried: tuple[Tensor, ...], additional: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """`while_loop` of graphs, as recordings show it: `additional` are tensors that the functions close over."""
    given = carried
    functions = (lambda *c: cond_graph(*c, *additional)[0], lambda *c: tuple(body_graph(*c, *additional)))
    made = recorded(while_loop_op, functions, lambda: given, (tuple(given),))
    if made is not NotImplemented:
        return tuple(made[0])
    if lack_values([*carried, *additional]):
        after = tuple(body_graph(*carried, *additional))
        check_carried("while_loop", carried, after)
        return after
    while _holds(cond_graph(*carried, *additional)[0]):
        after = tuple(body_graph(*carried, *additional))
        check_carried("while_loop", carried, after)
        carried = after
    return tuple([x.clone() if x is g else x for x, g in zip(carried, given, strict=True)])


def _holds(condition: Any) -> bool:
    if isinstance(condition, Tensor) and condition.numel() != 1 or not isinstance(condition, (bool, Tensor)):
        raise RuntimeError(f"while_loop: cond_fn must return a bool or a tensor of one element, but it gave {condition}")
    return bool(condition)
