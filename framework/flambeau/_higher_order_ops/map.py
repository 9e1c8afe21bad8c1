"""A function on each part of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils import _pytree as pytree
from ._trees import are_tensors, at, have_one_size, lack_values, recorded, repeated, stacked

__all__ = ["map"]


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """``f(x, *args)`` for each `x` along the first dimension of `xs`, stacked along a first dimension.

    Args:
        f: gives tensors, nested in containers or not, of the same shapes each time.
        xs: a tensor, or tensors nested in containers, of the same first size.
        args: further arguments, the same each time.
    Raises: RuntimeError for a first size of 0, or several; ValueError if `xs` are no tensors; IndexError for one of no dimensions.

    >>> from flambeau._higher_order_ops import map
    >>> map(lambda x, y: x.sum() + y, fb.arange(6.0).view(3, 2), fb.tensor(1.0))
    tensor([ 2.,  6., 10.])
    """
    leaves = pytree.tree_leaves(xs)
    if not leaves or not are_tensors(leaves):
        raise ValueError(f"map: xs must be tensors, nested in containers or not, but got {[type(x).__name__ for x in leaves]}")
    sizes = [x.shape[0] for x in leaves]
    if any(n == 0 for n in sizes):
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if not have_one_size(leaves, 0):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {[x.shape for x in leaves]}.")
    if are_tensors(pytree.tree_leaves(args)):
        made = recorded(map_op, (f,), lambda: (at(xs, 0, 0), *args), (leaves, pytree.tree_leaves(args)))
        if made is not NotImplemented:
            return pytree.tree_unflatten(list(made[0]), made[1])
    return stacked([f(at(xs, 0, i), *args) for i in range(sizes[0])], 0)


def map_op(graph: Any, xs: list[Any], args: list[Any], additional: tuple[Any, ...]) -> list[Any]:
    """`map` of a graph, as recordings show it: `additional` are tensors that the function closes over."""

    def mapped(x: list[Any], *args: Any) -> list[Any]:
        return list(graph(*x, *args, *additional))

    made = recorded(map_op, (mapped,), lambda: (at(list(xs), 0, 0), *args), (list(xs), list(args)))
    if made is not NotImplemented:
        return list(made[0])
    if lack_values([*xs, *args, *additional]):
        return repeated(list(graph(*at(list(xs), 0, 0), *args, *additional)), 0, xs[0].shape[0])
    return list(map(lambda x, *args: list(graph(*x, *args)), list(xs), *args, *additional))
