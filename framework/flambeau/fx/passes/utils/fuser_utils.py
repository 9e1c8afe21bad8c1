"""Putting nodes of a graph into a submodule that is called in their place."""

from __future__ import annotations

import operator
from typing import Any

from ...graph import Graph
from ...graph_module import GraphModule
from ...node import Node
from ..tools_common import stable_topological_sort
from .common import lift_subgraph_as_module

__all__ = ["erase_nodes", "fuse_as_graphmodule", "fuse_by_partitions", "insert_subgm", "topo_sort", "validate_partition"]


def topo_sort(nodes: list[Node]) -> list[Node]:
    """`nodes` in an order in which each comes after those it uses. Raises: AssertionError if there is none."""
    inside = set(nodes)
    waiting = {n: sum(i in inside for i in n.all_input_nodes) for n in nodes}
    ready = [n for n in nodes if not waiting[n]]
    done: list[Node] = []
    while ready:
        node = ready.pop(0)
        done.append(node)
        for user in node.users:
            if user in inside:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
    if len(done) != len(nodes):
        raise AssertionError("topological sorted nodes doesn't have same length as input nodes")
    return done


def validate_partition(partition: list[Node]) -> bool:
    """Whether no path leads out of `partition` and back into it."""
    inside = set(partition)
    reached = [user for node in partition for user in node.users if user not in inside]
    seen: set[Node] = set()
    while reached:
        node = reached.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            reached.extend(node.users)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A GraphModule that does what `nodes` of `gm` do, which stays as it is.

    Args:
        module_name: how the new module introduces itself.
        partition_lookup_table: nodes that count as inside; `nodes` by default.
        always_return_tuple: give a tuple of a single result too.
    Returns: the module, the nodes whose values it takes, and those whose values it gives.
    Raises: AssertionError if the nodes are not of this graph, or a path leads out of them and back.
    """
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(f"{node} doesn't belong to passed in graph module {gm._get_name()}")
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = set(nodes) if partition_lookup_table is None else set(partition_lookup_table)
    graph = Graph()
    copies: dict[Node, Node] = {}
    inputs: dict[Node, Node] = {}

    def taken(node: Node) -> Node:
        if node.op == "get_attr" and node not in copies:
            copies[node] = graph.node_copy(node, lambda n: n)
        if node in copies:
            return copies[node]
        if node not in inputs:
            inputs[node] = graph.placeholder(node.name, type_expr=node.type)
            inputs[node].meta = node.meta.copy()
        return inputs[node]

    ordered = sorted(nodes)
    for node in ordered:
        for used in node.all_input_nodes:
            if used not in inside:
                taken(used)
    for node in ordered:
        copies[node] = graph.node_copy(node, taken)
    outputs = [node for node in ordered if any(user not in inside for user in node.users)]
    results = tuple(copies[node] for node in outputs)
    graph.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    # Inputs stand before everything else.
    for made in reversed(list(inputs.values())):
        next(iter(graph.nodes)).prepend(made)
    graph.lint()
    module, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return module, tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call `sub_gm`, as a submodule of `gm`, where `orig_outputs` were computed, and use its results.

    Args:
        orig_inputs, orig_outputs: what `fuse_as_graphmodule` gave.
        insertion_point: the call goes behind it; behind the last output by default.
    """
    name = sub_gm._get_name()
    gm.add_submodule(name, sub_gm)
    point = insertion_point if insertion_point is not None else max(orig_outputs)
    as_tuple = isinstance(sub_gm.graph.output_node().args[0], tuple)
    with gm.graph.inserting_after(point):
        call = gm.graph.call_module(name, orig_inputs)
    if not as_tuple:
        orig_outputs[0].replace_all_uses_with(call)
        call.meta = orig_outputs[0].meta.copy()
    else:
        after = call
        for i, output in enumerate(orig_outputs):
            with gm.graph.inserting_after(after):
                after = gm.graph.call_function(operator.getitem, (call, i))
            after.meta = output.meta.copy()
            output.replace_all_uses_with(after)
        call.meta["val"] = tuple(output.meta.get("val") for output in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Erase `nodes`, those that use others first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule, partitions: list[Any], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Put the nodes of each partition, a list or dict of nodes, into a submodule ``fused_0``, ``fused_1`` ...

    Args:
        gm: is changed.
        prefix: of the names of submodules.
        always_return_tuple: they return a tuple of a single result too.
    """
    for i, partition in enumerate(partitions):
        nodes = sorted(partition)
        module, inputs, outputs = fuse_as_graphmodule(gm, nodes, f"{prefix}{i}", always_return_tuple=always_return_tuple)
        insert_subgm(gm, module, inputs, outputs, nodes[-1])
        erase_nodes(gm, nodes)
        stable_topological_sort(gm)
    gm.graph.lint()
    gm.recompile()
    return gm
