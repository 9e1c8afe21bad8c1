"""A function on each part of a tensor, with something carried from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils import _pytree as pytree
from ._trees import are_tensors, at, check_carried, have_one_size, lack_values, recorded, repeated, stacked

__all__ = ["scan"]


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """``carry, y = combine_fn(carry, x)`` for each `x` along `dim` of `xs`: the last carry, and the `y` stacked along `dim`.

    Args:
        combine_fn: gives the next carry, of the same structure, shapes and dtypes, and a result.
        init: the first carry: a tensor, or tensors nested in containers.
        xs: tensors, nested in containers or not, of the same size along `dim`.
        dim: along which they are taken apart, and results that have as many dimensions stacked; others are along their first.
        reverse: begin at the end; results keep the places of what they were made of.
    Raises: RuntimeError if `combine_fn` is no function, or gives another carry, for an `init` without tensors, and for `xs` that are no
        tensors, empty along `dim`, or of several sizes; IndexError for a `dim` that they do not have.

    >>> from flambeau._higher_order_ops import scan
    >>> scan(lambda c, x: (c + x, c * x), fb.tensor(0.0), fb.arange(4.0))
    (tensor(6.), tensor([0., 0., 2., 9.]))
    """
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    leaves = pytree.tree_leaves(xs)
    if not leaves:
        return init, []
    if not are_tensors(leaves) or not are_tensors(pytree.tree_leaves(init)):
        raise RuntimeError("All xs and init leaves must be a Tensor")
    if not pytree.tree_leaves(init):
        raise RuntimeError("scan() operator requires init leaves.")
    if leaves[0].ndim and not -leaves[0].ndim <= dim < leaves[0].ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-leaves[0].ndim}, {leaves[0].ndim - 1}], but got {dim})")
    if any(x.ndim == 0 or not -x.ndim <= dim < x.ndim or x.shape[dim] == 0 for x in leaves):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    if not have_one_size(leaves, dim):
        raise RuntimeError(f"All xs leaves must have the same size along dim {dim}, got {[x.shape for x in leaves]}")
    first, spec = pytree.tree_flatten(init)
    made = recorded(scan_op, (combine_fn,), lambda: (init, at(xs, dim, 0)), (first, leaves, dim, reverse))
    if made is not NotImplemented:
        carry, results = pytree.tree_unflatten(list(made[0]), made[1])
        carry = pytree.tree_unflatten(pytree.tree_leaves(carry), spec)
    else:
        carry, results = _in_turn(combine_fn, init, xs, leaves, dim, reverse)
    along = dim % leaves[0].ndim
    return carry, pytree.tree_map(lambda y: y.movedim(0, along) if 0 < along < y.ndim else y, results)


def _in_turn(combine_fn: Callable[[Any, Any], Any], init: Any, xs: Any, leaves: list[Any], dim: int, reverse: bool) -> tuple[Any, Any]:
    """`scan` of values that are there, with results stacked along a first dimension."""
    order = range(leaves[0].shape[dim])
    carry, results = init, []
    for i in reversed(order) if reverse else order:
        made = combine_fn(carry, at(xs, dim, i))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise RuntimeError(f"scan: combine_fn must return a pair of carry and result, but gave {type(made).__name__}")
        check_carried("scan", carry, made[0])
        carry = made[0]
        results.append(made[1])
    return carry, stacked(results[::-1] if reverse else results, 0)


def scan_op(graph: Any, init: list[Any], xs: list[Any], dim: int, reverse: bool, additional: tuple[Any, ...]) -> list[Any]:
    """`scan` of a graph, as recordings show it: `additional` are tensors that the function closes over. The carry, then the results."""

    def combine(carry: list[Any], x: list[Any]) -> tuple[Any, Any]:
        made = list(graph(*carry, *x, *additional))
        return made[: len(init)], made[len(init) :]

    made = recorded(scan_op, (combine,), lambda: (list(init), at(list(xs), dim, 0)), (list(init), list(xs), dim, reverse))
    if made is not NotImplemented:
        return list(made[0])
    if lack_values([*init, *xs, *additional]):
        carry, part = combine(list(init), at(list(xs), dim, 0))
        check_carried("scan", list(init), carry)
        return [*carry, *repeated(part, 0, xs[0].shape[dim])]
    carry, results = _in_turn(combine, list(init), list(xs), list(xs), dim, reverse)
    return [*carry, *results]
