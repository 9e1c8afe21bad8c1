"""Leaves of nested containers by a structure that is known: what generated code calls for its arguments."""

from __future__ import annotations

from typing import Any

from ..utils import _pytree as pytree

__all__ = ["tree_flatten_spec"]


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
    if issubclass(spec.type, dict):
        if not isinstance(tree, dict) or set(tree) != set(spec.context):
            raise ValueError(f"tree_flatten_spec: expected a dict with the keys {list(spec.context)}, got {tree!r}")
        children: Any = [tree[key] for key in spec.context]
    else:
        children = list(node.flatten_fn(tree)[0]) if isinstance(tree, spec.type) else list(tree)
    if len(children) != spec.num_children:
        raise ValueError(f"tree_flatten_spec: expected {spec.num_children} parts for {spec}, got {len(children)}")
    return [leaf for child, below in zip(children, spec.children(), strict=True) for leaf in _flatten_up_to(child, below)]
