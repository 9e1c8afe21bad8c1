"""Subgraphs as modules, and whether graphs are equal."""

from __future__ import annotations

from typing import Any

from ....nn import Module
from ...graph import Graph
from ...graph_module import GraphModule
from .matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module that has the modules of the dict `d`."""

    def __init__(self, d: dict[str, Module]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A GraphModule of `subgraph`, with the modules and attributes that it names, from `gm`.

    Args:
        comp_name: what the new module will be called in its parent.
        class_name: how it introduces itself.
    Returns: the module, and for each name in it the name in `gm`.
    """
    taken: dict[str, Any] = {}
    names: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        found: Any = gm
        for part in node.target.split("."):
            found = getattr(found, part)
        taken[node.target] = found
        if node.op == "call_module":
            names[f"{comp_name}.{node.target}" if comp_name else node.target] = node.target
    return GraphModule(taken, subgraph, class_name), names


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs do the same by the same calls, whatever their values are called."""
    matches = SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right)
    return len(matches) > 0 and len(left.nodes) == len(right.nodes)
