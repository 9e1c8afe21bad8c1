"""Finding the parts of a graph that come from one module or function of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...._ops import OpOverload
from ...graph import Graph
from ...node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """Nodes that come from one call of `source`, in the order of the graph.

    `input_nodes` are what they use from outside but for attributes, `output_nodes` those of them that are used outside, `params` those that
    get attributes.
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """The parts of `graph` that come from `wanted_sources`, by source; sources that nothing comes from are left out.

    Args:
        graph: of a program, as `export` gives it, or one whose nodes say in their `meta` where they come from: by
            ``source_fn_stack``, ``torch_fn`` or ``nn_module_stack``.
        wanted_sources: classes of modules, and functions or, for exported programs, their names, such as ``"linear"``.
        filter_fn: keep parts for all of whose nodes it is true.

    >>> net = fb.nn.Sequential(fb.nn.Linear(2, 3), fb.nn.ReLU(), fb.nn.Linear(3, 1))
    >>> graph = fb.export.export(net, (fb.ones(4, 2),)).graph
    >>> get_source_partitions = fb.fx.passes.utils.source_matcher_utils.get_source_partitions
    >>> [part.output_nodes for part in get_source_partitions(graph, [fb.nn.Linear])[fb.nn.Linear]]
    [[linear], [linear_1]]
    """
    found: dict[Any, dict[Any, list[Node]]] = {}
    for node in graph.nodes:
        for source, call in _sources_of(node):
            wanted = next((one for one in wanted_sources if _is_source(one, source)), None)
            if wanted is not None:
                found.setdefault(wanted, {}).setdefault(call, []).append(node)
                break
    parts = {source: [_partition(nodes, source) for nodes in calls.values()] for source, calls in found.items()}
    if filter_fn is not None:
        parts = {source: [part for part in some if all(map(filter_fn, part.nodes))] for source, some in parts.items()}
    return parts


def _sources_of(node: Node) -> Iterator[tuple[Any, Any]]:
    """What a node may come from, and which call of it, the first that counts first."""
    stack = node.meta.get("source_fn_stack")
    if stack:
        call, source = stack[-1]
        yield source, call
        return
    named = node.meta.get("torch_fn")
    modules = node.meta.get("nn_module_stack")
    if named is not None:
        yield named[1].rpartition(".")[2], named[0]
    elif modules and isinstance(node.target, OpOverload):
        yield node.target._schema.name.rpartition("::")[2], node.name
    if modules:
        path, kind = list(modules.values())[-1]
        yield kind, path


def _is_source(wanted: Any, source: Any) -> bool:
    """Whether `source` is what was asked for; it may be the full name of a class."""
    if isinstance(source, str) and isinstance(wanted, type):
        return _here(source) == _here(f"{wanted.__module__}.{wanted.__qualname__}")
    return wanted is source or isinstance(wanted, str) and wanted == source


def _here(name: str) -> str:
    head, dot, rest = name.partition(".")
    return f"flambeau{dot}{rest}" if head == "torch" else name


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inside = set(nodes)
    inputs = dict.fromkeys([used for node in nodes for used in node.all_input_nodes if used not in inside and used.op != "get_attr"])
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return SourcePartition(nodes, source, list(inputs), outputs, [node for node in nodes if node.op == "get_attr"])


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether `subgraph2` uses something that `subgraph1` computes, with nothing in between."""
    second = set(subgraph2.nodes)
    return any(user in second for node in subgraph1.nodes for user in node.users)
