"""Leaves of nested containers by a structure that is known: what generated code calls for its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils import _pytree as pytree

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

# How containers of a class are taken apart by a spec, beside what `utils._pytree` knows of them.
SUPPORTED_NODES: dict[type, Callable[[Any, Any], list[Any]]] = {}


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: Callable[[Any, Any], list[Any]], flatten_fn_exact_match_spec: Callable[[Any, Any], bool] | None = None
) -> None:
    """Say how `tree_flatten_spec` gets the children of a container of the class `cls`.

    Args:
        flatten_fn_spec: ``fn(container, spec)`` gives the children in the order of `spec`.
        flatten_fn_exact_match_spec: not read: structures are compared as wholes.
    """
    SUPPORTED_NODES[cls] = flatten_fn_spec


def tree_flatten_spec(pytree_: Any, spec: Any, exact_structural_match: bool = False) -> list[Any]:
    """The leaves of `pytree_` where `spec` has leaves.

    Args:
        exact_structural_match: containers must have exactly the types and keys of `spec`.
    Raises: ValueError if the structures differ.
    """
    leaves, found = pytree.tree_flatten(pytree_)
    if found == spec:
        return leaves
    if exact_structural_match:
        raise ValueError(f"tree_flatten_spec: expected the structure {spec}, got {found}")
    return _flatten_up_to(pytree_, spec)


def _flatten_up_to(tree: Any, spec: Any) -> list[Any]:
    if spec.is_leaf():
        return [tree]
    node = pytree.SUPPORTED_NODES.get(spec.type)
    if node is None:
        raise RuntimeError(f"{spec.type} does not have a flatten function registered")
    if spec.type in SUPPORTED_NODES:
        children: Any = list(SUPPORTED_NODES[spec.type](tree, spec))
    elif issubclass(spec.type, dict):
        if not isinstance(tree, dict) or set(tree) != set(spec.context):
            raise ValueError(f"tree_flatten_spec: expected a dict with the keys {list(spec.context)}, got {tree!r}")
        children = [tree[key] for key in spec.context]
    else:
        children = list(node.flatten_fn(tree)[0]) if isinstance(tree, spec.type) else list(tree)
    if len(children) != spec.num_children:
        raise ValueError(f"tree_flatten_spec: expected {spec.num_children} parts for {spec}, got {len(children)}")
    return [leaf for child, below in zip(children, spec.children(), strict=True) for leaf in _flatten_up_to(child, below)]
