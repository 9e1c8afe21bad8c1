"""What a function makes of all parts of a tensor up to each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils import _pytree as pytree
from ._trees import are_tensors, at, check_carried, have_one_size, lack_values, recorded, repeated, stacked

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """``x0``, ``combine_fn(x0, x1)``, ``combine_fn(combine_fn(x0, x1), x2)`` ... along `dim` of `xs`.

    Args:
        combine_fn: of two parts; it must not matter how calls of it are nested. Calls are made from the left, one after the other.
            `make_fx` records it once, for any size.
        xs: a tensor, or tensors nested in containers, of the same size along `dim`.
        dim: along which they are combined.
        reverse: begin at the end.
        combine_mode: ``generic`` or ``pointwise``; the latter PyTorch offers on GPUs alone, and here too.
    Raises: ValueError for another mode, ``pointwise`` on the CPU, and `xs` that are no tensors or of several sizes; IndexError for
        a `dim` that is not there.

    >>> from flambeau._higher_order_ops import associative_scan
    >>> associative_scan(lambda a, b: a * b, fb.tensor([1.0, 2.0, 3.0]), 0, combine_mode="generic")
    tensor([1., 2., 6.])
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves = pytree.tree_leaves(xs)
    if not leaves or not are_tensors(leaves):
        raise ValueError("Expected at least 1 xs leaf, all of them tensors")
    if combine_mode == "pointwise" and any(x.device.type == "cpu" for x in leaves):
        raise ValueError("For combine_mode='pointwise', all input tensors need to be on CUDA or XPU; use combine_mode='generic'")
    ndim = leaves[0].ndim
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    dim %= ndim
    if not have_one_size(leaves, dim):
        raise ValueError(f"associative_scan: xs must have the same size along dim {dim}, got {[tuple(x.shape) for x in leaves]}")
    if leaves[0].shape[dim] == 0:
        return xs
    found = recorded(associative_scan_op, (combine_fn,), lambda: (at(xs, dim, 0), at(xs, dim, 0)), (leaves, dim, reverse))
    if found is not NotImplemented:
        return pytree.tree_unflatten(list(found[0]), pytree.tree_structure(xs))
    order = range(leaves[0].shape[dim])
    results: list[Any] = []
    for i in reversed(order) if reverse else order:
        part = at(xs, dim, i)
        if results:
            made = combine_fn(results[-1], part)
            check_carried("associative_scan", part, made)
            part = made
        results.append(part)
    made = stacked(results[::-1] if reverse else results, dim)
    return pytree.tree_unflatten(pytree.tree_leaves(made), pytree.tree_structure(xs))


def associative_scan_op(graph: Any, xs: list[Any], dim: int, reverse: bool, additional: tuple[Any, ...]) -> list[Any]:
    """`associative_scan` of a graph, as recordings show it: `additional` are tensors that the function closes over."""

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        return list(graph(*a, *b, *additional))

    made = recorded(associative_scan_op, (combine,), lambda: (at(list(xs), dim, 0), at(list(xs), dim, 0)), (list(xs), dim, reverse))
    if made is not NotImplemented:
        return list(made[0])
    if lack_values([*xs, *additional]):
        part = at(list(xs), dim, 0)
        made = combine(part, part)
        check_carried("associative_scan", part, made)
        return repeated(made, dim, xs[0].shape[dim])
    return associative_scan(combine, list(xs), dim, reverse, "generic")
