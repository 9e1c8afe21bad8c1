"""What tools that split graphs have in common."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...tensor import Tensor
from .._names import qualified_name
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node

__all__ = [
    "FxNetAccFusionsFinder", "get_acc_ops_name", "get_node_target", "is_node_output_tensor", "legalize_graph",
    "stable_topological_sort",
]  # fmt: skip

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
Tensors = tuple[Tensor] | list[Tensor]
TensorOrTensors = Tensor | Tensors


def get_acc_ops_name(k: Any) -> str:
    """The name of a function, or of a module's class, in tables of supported operators."""
    if isinstance(k, str):
        return k
    module = getattr(k, "__module__", None)
    if module and "acc_ops" in module:
        return f"acc_ops.{k.__name__}"
    return f"{(module or '').replace('torch._ops', 'torch.ops')}.{k.__name__}"


def get_node_target(submodules: Mapping[str, Any], node: Node) -> str:
    """The name of what `node` calls: a function by its dotted name, a module by that of its class, a method by its own.

    Raises: AssertionError for nodes that call nothing.
    """
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(sorted(CALLABLE_NODE_OPS))}, but found {node.op}")
    if node.op == "call_module":
        module = submodules[node.target]
        module = getattr(module, "_base_class_origin", type(module))
        return f"{module.__module__.replace('flambeau.', 'torch.', 1)}.{module.__name__}"
    return qualified_name(node.target) if node.op == "call_function" else node.target


def is_node_output_tensor(node: Node) -> bool:
    """Whether the value of `node` is a tensor, as `ShapeProp` found."""
    found = node.meta.get("type")
    return found is not None and issubclass(found, Tensor)


@dataclass
class _FusionGroup:
    """Nodes that belong together: `top_node_idx` is the place of the first, `inputs` what they take from outside."""

    top_node_idx: int
    nodes: NodeSet
    inputs: NodeSet
    nodes_need_process: NodeSet = field(default_factory=set)

    def add_node(self, node: Node) -> None:
        """Take `node` in."""
        if node in self.nodes:
            return
        self.nodes_need_process.add(node)
        self.nodes.add(node)
        self.inputs.discard(node)
        self.inputs.update(n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes)


class FxNetAccFusionsFinder:
    """Finds groups of supported nodes that hand on something else than tensors: they may not be split.

    Calling it gives for each node of a group the group's nodes.

    Args:
        module: after `ShapeProp`.
        acc_nodes: the supported nodes.
    """

    FusionGroup = _FusionGroup

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.acc_nodes = module, acc_nodes
        self.nodes = list(module.graph.nodes)

    def recursive_add_node(self, fusion_group: _FusionGroup, inputs: NodeSet | NodeList, visited: NodeSet | None = None) -> bool:
        """Take in what lies between `inputs` and the group. Returns: whether one of `inputs` leads back to the group."""
        found = False
        for arg in inputs:
            if visited is not None:
                if arg in visited:
                    continue
                visited.add(arg)
            if arg.op not in CALLABLE_NODE_OPS or self.nodes.index(arg) < fusion_group.top_node_idx:
                continue
            if arg in fusion_group.nodes or self.recursive_add_node(fusion_group, arg.all_input_nodes, visited):
                fusion_group.add_node(arg)
                found = True
        return found

    def __call__(self) -> dict[Node, NodeSet]:
        result: dict[Node, NodeSet] = {}
        for i, node in enumerate(self.nodes):
            if node not in self.acc_nodes or node in result or "tensor_meta" in node.meta:
                continue
            group = _FusionGroup(i, {node}, set(node.all_input_nodes), {node})
            while group.nodes_need_process:
                current = group.nodes_need_process.pop()
                self.recursive_add_node(group, group.inputs, visited=set())
                if "tensor_meta" not in current.meta:
                    for user in current.users:
                        if user.op in CALLABLE_NODE_OPS and user not in group.nodes:
                            group.add_node(user)
                for arg in current.all_input_nodes:
                    if arg.op not in CALLABLE_NODE_OPS or "tensor_meta" in arg.meta or arg in group.nodes:
                        continue
                    group.add_node(arg)
                    group.top_node_idx = min(group.top_node_idx, self.nodes.index(arg))
                    self.recursive_add_node(group, group.inputs, visited=set())
            if not group.nodes <= self.acc_nodes:
                self.acc_nodes -= group.nodes
            else:
                for member in group.nodes:
                    result[member] = group.nodes
        return result


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Put the nodes of a graph in order, moving no more than needed. Returns: `gm`."""
    _reorder(gm.graph)
    return gm


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Put the nodes of a graph in order after edits that broke it. Returns: `gm`.

    Raises: RuntimeError if nodes depend on each other in a circle.
    """
    _reorder(gm.graph)
    return gm


def _reorder(graph: Graph) -> None:
    nodes = list(graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    waiting = {node: len(node.all_input_nodes) for node in nodes}
    ready = [place[node] for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    done: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        done.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, place[user])
    if len(done) < len(nodes):
        left = [node.name for node in nodes if waiting[node]]
        raise RuntimeError(f"Input graph has cycles, unable to add {left}")
    for node in done:
        # Each is put behind all others, in turn.
        graph._root.prepend(node)
