"""Nested tensors along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _state
from ..tensor import Tensor
from ..utils import _pytree as pytree


def recorded(op: Any, functions: tuple[Any, ...], example: Callable[[], tuple[Any, ...]], operands: tuple[Any, ...]) -> Any:
    """What an interpreter makes of a repetition, see `Interpreter.run_repeated`; or NotImplemented."""
    for interpreter in reversed(_state.local.calls.interpreters):
        result = interpreter.run_repeated(op, functions, example, operands)
        if result is not NotImplemented:
            return result
    return NotImplemented


def are_tensors(leaves: list[Any]) -> bool:
    """Whether all leaves are tensors."""
    return all(isinstance(x, Tensor) for x in leaves)


def have_one_size(leaves: list[Any], dim: int) -> bool:
    """Whether all tensors have the same size along `dim`."""
    return all(x.shape[dim] == leaves[0].shape[dim] for x in leaves)


def lack_values(leaves: list[Any]) -> bool:
    """Whether tensors only tell shapes: one step of a repetition then tells those of its results, for any number of steps.

    Not while something records, which would take that step for the whole.
    """
    return any(x._lacks_values for x in leaves) and not any(one.records for one in _state.local.calls.interpreters)


def repeated(tree: Any, dim: int, times: Any) -> Any:
    """`tree` with each tensor `times` times along a new dimension `dim`."""

    def one(x: Tensor) -> Tensor:
        return x.unsqueeze(dim).expand(*x.shape[:dim], times, *x.shape[dim:]).clone()

    return pytree.tree_map(one, tree)


def at(tree: Any, dim: int, i: int) -> Any:
    """`tree` at the index `i` of the dimension `dim` of each tensor."""
    return pytree.tree_map(lambda x: x.select(dim, i), tree)


def stacked(trees: list[Any], dim: int) -> Any:
    """One tree of tensors, with the trees along a new dimension `dim`."""
    from ..ops._spec import OPS

    leaves = [pytree.tree_leaves(tree) for tree in trees]
    made = [OPS["stack"].function(list(column), dim) for column in zip(*leaves, strict=True)]
    return pytree.tree_unflatten(made, pytree.tree_structure(trees[0]))


def described(tree: Any) -> list[Any]:
    """Shapes and dtypes of the tensors of a tree."""
    return [(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else type(x) for x in pytree.tree_leaves(tree)]


def check_carried(name: str, before: Any, after: Any) -> None:
    """Raises: RuntimeError if what is carried on is not of the structure, shapes and dtypes of what was carried in."""
    if pytree.tree_structure(before) != pytree.tree_structure(after) or described(before) != described(after):
        raise RuntimeError(
            f"{name}: what is carried must keep its structure, shapes and dtypes; it was {described(before)}, and is {described(after)}"
        )
