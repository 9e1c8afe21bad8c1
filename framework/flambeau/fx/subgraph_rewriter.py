"""Replacing what a graph does in places by something else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..nn import Module
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _assign_attr, _find
from .node import Node
from .passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A place where a pattern was found."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A place where a pattern was found, and the nodes that were put there."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


Filter = Callable[[InternalMatch, Graph, Graph], bool]


def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule
) -> list[Match]:
    """Replace each place of `gm` that does what `pattern` does by what `replacement` does.

    Args:
        gm: is changed and recompiled.
        pattern, replacement: functions or GraphModules with the same parameters, which the pattern all uses. What is
            returned is matched by value: it need not be what `gm` returns.
    Returns: the places, in order; of those that overlap, only the first is replaced.

    >>> gm = fb.fx.symbolic_trace(lambda x, y: fb.cat([x, y]).sum())
    >>> matches = fb.fx.replace_pattern(gm, lambda a, b: fb.cat([a, b]), lambda a, b: fb.stack([a, b]))
    >>> print(gm.code.strip())
    def forward(self, x, y):
        stack = torch.stack([x, y]);  x = y = None
        sum_1 = stack.sum();  stack = None
        return sum_1
    """
    return [Match(anchor=r.anchor, nodes_map=r.nodes_map) for r in _replace_pattern(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """`replace_pattern`, where every filter agrees.

    Args:
        gm, pattern, replacement: as there; Graphs are taken too.
        match_filters: each is called with the match, the graph and the pattern's graph.
        ignore_literals: numbers and strings of the pattern stand for any.
        replacement_callback: gives the replacement of a match, if there is no `replacement`.
        node_name_match: only matches with this text in the name of a node.
    """
    return _replace_pattern(
        gm, pattern, replacement, match_filters, ignore_literals, replacement_callback, node_name_match
    )


def _graph_of(what: Any) -> Graph:
    if isinstance(what, GraphModule):
        return what.graph
    return what if isinstance(what, Graph) else symbolic_trace(what).graph


def _replace_pattern(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Any = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    graph, pattern_graph = gm.graph, _graph_of(pattern)
    matches = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals).match(graph)
    matches = [m for m in matches if all(f(m, graph, pattern_graph) for f in match_filters or ())]
    if node_name_match:
        matches = [m for m in matches if any(node_name_match in n.name for n in m.nodes_map.values() if isinstance(n, Node))]
    if replacement is None and replacement_callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
    common = None if replacement is None else _graph_of(replacement)
    changed: dict[Node, Node] = {}
    done = []
    for match in matches:
        new = common if common is not None else replacement_callback(match, graph, pattern_graph)
        done.append(_replace_one(graph, match, new, pattern_graph, changed))
    gm.recompile()
    modules = [what for what in (pattern, replacement) if isinstance(what, Module)]
    for what in modules:
        _take_attributes(gm, what)
    if modules:                                       # only both together have all that the graph names
        gm.graph.lint()
    return done


def _replace_one(
    graph: Graph, match: InternalMatch, new: Graph, pattern: Graph, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Put a copy of `new` in the place of `match`; `changed` says what has taken the place of nodes replaced before."""
    placeholders = [n for n in new.nodes if n.op == "placeholder"]
    if len(match.placeholder_nodes) != len(placeholders):
        raise AssertionError(
            f"the pattern has {len(match.placeholder_nodes)} inputs, but the replacement has {len(placeholders)}: they must agree"
        )
    for key, node in match.nodes_map.items():
        while isinstance(node, Node) and node in changed:
            node = match.nodes_map[key] = changed[node]
    val_map: dict[Node, Any] = {}
    for placeholder, given in zip(placeholders, match.placeholder_nodes, strict=True):
        while isinstance(given, Node) and given in changed:
            given = changed[given]
        val_map[placeholder] = given
    given_nodes = set(val_map)
    with graph.inserting_before(_insertion_point(match, val_map)):
        copied = graph.graph_copy(new, val_map)
    results = [copied] if isinstance(copied, Node) or not isinstance(copied, (list, tuple)) else list(copied)
    replacements = [v for k, v in val_map.items() if k not in given_nodes]
    if len(results) != len(match.returning_nodes):
        raise AssertionError(
            f"the pattern returns {len(match.returning_nodes)} values, but the replacement {len(results)}: they must agree"
        )
    for old, result in zip(match.returning_nodes, results, strict=True):
        old.replace_all_uses_with(result)
        changed[old] = result
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    return ReplacedPatterns(match.anchors[0], match.nodes_map, replacements)


def _insertion_point(match: InternalMatch, val_map: dict[Node, Any]) -> Node:
    """The node before which the replacement goes: the first that uses what is replaced, after all that it takes."""
    users = [user for node in match.returning_nodes for user in node.users if user not in match.nodes_map.values()]
    point = min(users) if users else max(match.returning_nodes).next
    inputs = [v for v in val_map.values() if isinstance(v, Node)]
    last = max(inputs) if inputs else None
    return last.next if last is not None and last >= point else point


def _take_attributes(gm: GraphModule, other: Module) -> None:
    """Give `gm` the modules and attributes that its graph names and it lacks, from `other`."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _find(gm, node.target) is not None:
            continue
        found = _find(other, node.target)
        if found is None:
            continue
        _assign_attr(copy.deepcopy(found) if isinstance(found, Module) else found, gm, node.target)
