"""Finding places in a graph that do what a pattern does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...node import Node, nodes_in

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A place that matches: which node stands for which node of the pattern."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            self.anchors, self.nodes_map.copy(), self.placeholder_nodes.copy(), self.returning_nodes.copy(),
            self.name_node_map.copy(),
        )  # fmt: skip


class SubgraphMatcher:
    """Finds the places of a graph that match `pattern`, by what uses what; names do not count.

    Args:
        match_output: the pattern's output must be the graph's.
        match_placeholder: inputs of the pattern stand for inputs of the graph only.
        remove_overlapping_matches: of matches that share nodes, keep the first.
        ignore_literals: numbers and strings of the pattern stand for any.
    Raises: ValueError for a pattern that is empty or computes what it does not return.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users:
                if node.op == "placeholder":
                    raise ValueError(f"SubgraphMatcher cannot be initialized with a pattern that does not use its input {node}")
                raise ValueError(f"SubgraphMatcher cannot be initialized with a pattern with dead code: {node} has no users")
        output = pattern.output_node()
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        self.pattern_returning_nodes = output.all_input_nodes
        # Where matching begins: at the output, or at the values that only the output uses.
        if match_output:
            self.pattern_anchors = [output]
        else:
            self.pattern_anchors = [n for n in output.all_input_nodes if len(n.users) == 1]

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places of `graph` that match, in order."""
        candidates = {anchor: self._candidates(anchor, graph) for anchor in self.pattern_anchors}
        found = []
        for start in self._starts(candidates, InternalMatch(anchors=self.pattern_anchors)):
            start.placeholder_nodes = [start.nodes_map.get(p) for p in self.pattern_placeholder_nodes]
            start.returning_nodes = [start.nodes_map[r] for r in self.pattern_returning_nodes]
            start.nodes_map.update({p: v for p, v in start.nodes_map.items() if isinstance(v, Node)})
            if self._is_contained(start.nodes_map):
                found.append(start)
        if not self.remove_overlapping_matches:
            return found
        taken: set[Node] = set()
        disjoint = []
        for match in found:
            nodes = {n for p, n in match.nodes_map.items() if p.op not in ("placeholder", "output")}
            if not taken & nodes:
                taken |= nodes
                disjoint.append(match)
        return disjoint

    def _candidates(self, anchor: Node, graph: Graph) -> list[Node]:
        return [node for node in graph.nodes if self._nodes_are_equal(anchor, node)]

    def _starts(self, candidates: dict[Node, list[Node]], match: InternalMatch) -> Iterator[InternalMatch]:
        """All matches, one anchor after the other."""
        if not candidates:
            yield match
            return
        (anchor, nodes), *rest = candidates.items()
        for node in nodes:
            further = copy.copy(match)
            if self._match_nodes(anchor, node, further):
                yield from self._starts(dict(rest), further)

    def _nodes_are_equal(self, pattern: Node, node: Node) -> bool:
        if not self.match_placeholder and pattern.op == "placeholder":
            return True
        if pattern.op != node.op:
            return False
        if pattern.op in ("placeholder", "output"):
            return True
        if pattern.op == "get_attr":
            return self._match_attributes(pattern, node)
        if pattern.op == "call_module" and pattern.graph.owning_module is not None and node.graph.owning_module is not None:
            mine = _module(pattern.graph.owning_module, pattern.target)
            return type(mine) is type(_module(node.graph.owning_module, node.target))
        return pattern.target == node.target

    def _match_attributes(self, pattern: Node, node: Node) -> bool:
        mine, theirs = (_module(n.graph.owning_module, n.target) for n in (pattern, node))
        return type(mine) is type(theirs) if mine is not None and theirs is not None else pattern.target == node.target

    def _is_contained(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether nobody outside uses what is computed inside, but for what the pattern returns."""
        inside = {node: p for p, node in nodes_map.items() if isinstance(node, Node) and p.op != "placeholder"}
        for node, p in inside.items():
            if p in self.pattern_returning_nodes:
                continue
            if any(user not in inside for user in node.users):
                return False
        return True

    def _match_literals(self, pattern: Any, value: Any, match: InternalMatch) -> bool:
        if isinstance(pattern, Node):  # an input stands for a number too
            if pattern.op != "placeholder":
                return False
            if pattern in match.nodes_map:
                return match.nodes_map[pattern] == value
            match.nodes_map[pattern] = value
            return True
        if isinstance(value, Node):
            return False
        return self.ignore_literals or type(pattern) is type(value) and pattern == value or pattern == value

    def _match_nodes(self, pattern: Node, node: Node, match: InternalMatch) -> bool:
        if pattern in match.nodes_map:
            return match.nodes_map[pattern] is node
        if node in [v for v in match.nodes_map.values() if isinstance(v, Node)]:     # what a pattern tells apart are several nodes
            return False
        if not self._nodes_are_equal(pattern, node):
            return False
        before = copy.copy(match)
        match.nodes_map[pattern] = node
        match.name_node_map[pattern.name] = node
        if pattern.op == "placeholder" or self._match_arguments(pattern, node, match):
            return True
        match.nodes_map, match.name_node_map = before.nodes_map, before.name_node_map
        return False

    def _match_arguments(self, pattern: Node, node: Node, match: InternalMatch) -> bool:
        args, kwargs = pattern.args, pattern.kwargs
        given, given_by_name = node.args, node.kwargs
        if len(args) != len(given) or args and list(kwargs) != list(given_by_name):
            mine, theirs = _bound(pattern), _bound(node)
            if mine is None or theirs is None:
                return False
            (args, kwargs), (given, given_by_name) = mine, theirs
        if set(kwargs) != set(given_by_name):
            return False
        return self._match_values(list(args), list(given), match) and all(
            self._match_values(kwargs[key], given_by_name[key], match) for key in kwargs
        )

    def _match_values(self, pattern: Any, value: Any, match: InternalMatch) -> bool:
        if isinstance(pattern, Node) and isinstance(value, Node):
            return self._match_nodes(pattern, value, match)
        if isinstance(pattern, (list, tuple)) and isinstance(value, (list, tuple)):
            return len(pattern) == len(value) and all(
                self._match_values(p, v, match) for p, v in zip(pattern, value, strict=True)
            )
        if isinstance(pattern, dict) and isinstance(value, dict):
            return set(pattern) == set(value) and all(self._match_values(pattern[k], value[k], match) for k in pattern)
        if isinstance(pattern, slice) and isinstance(value, slice) and (nodes_in([pattern]) or nodes_in([value])):
            parts = [(s.start, s.stop, s.step) for s in (pattern, value)]
            return self._match_values(parts[0], parts[1], match)
        return self._match_literals(pattern, value, match)


def _module(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def _bound(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call of a function, all by name and defaults filled in, or None if they cannot be told."""
    if node.op != "call_function":
        return None
    try:
        found = node.normalized_arguments(node.graph.owning_module, normalize_to_only_use_kwargs=True)
    except (RuntimeError, TypeError):
        return None
    return None if found is None else ((), dict(found.kwargs))
