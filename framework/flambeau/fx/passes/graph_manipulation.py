"""Targets replaced, and sizes of what nodes compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...tensor import Tensor
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_aggregate
from .shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


class size_bytes(NamedTuple):
    """Bytes of a node's result, and of that with the parameters and buffers it needs."""

    output_size: int
    total_size: int


def replace_target_nodes_with(
    fx_module: GraphModule,
    old_op: str,
    old_target: Callable[..., Any] | str,
    new_op: str,
    new_target: Callable[..., Any] | str,
) -> None:
    """Make nodes of one kind and target those of another, in place.

    Args:
        fx_module: is changed.
        old_op, old_target: of the nodes that are replaced.
        new_op, new_target: what they become.
    """
    graph, env = Graph(), {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args = tuple(map_aggregate(a, lambda n: env.get(n, n) if isinstance(n, Node) else n) for a in node.args)
            kwargs = {k: map_aggregate(a, lambda n: env.get(n, n) if isinstance(n, Node) else n) for k, a in node.kwargs.items()}
            if new_op not in ("call_function", "call_method", "call_module"):
                raise AssertionError(f"replace_target_nodes_with: new_op must be a call, got {new_op!r}")
            env[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    fx_module.graph = graph


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Tensor] | None = None) -> None:
    """Note in ``node.size_bytes`` how large everything is; with `args`, the module is run on them first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)  # pyright: ignore[reportAttributeAccessIssue]  # a note of this pass


def get_tensor_meta(node: Node) -> TensorMetadata:
    """What `ShapeProp` found. Raises: RuntimeError if it found nothing."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.")
    return found


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """How large the result of `node` is, in bytes, alone and with the parameters and buffers of the module it calls."""
    own = _bytes(get_tensor_meta(node))
    held = 0
    if node.op == "call_module":
        module = fx_module.get_submodule(node.target)
        held = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    elif node.op == "get_attr":
        held = 0
    return size_bytes(own, own + held)


def _bytes(meta: Any) -> int:
    if isinstance(meta, TensorMetadata):
        return meta.shape.numel() * meta.dtype.itemsize
    return sum(_bytes(m) for m in meta if isinstance(m, (tuple, list)))
