"""Where the patterns of a backend are in a traced model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ....fx import GraphModule, Node
from ..backend_config import BackendPatternConfig

__all__ = ["Match", "find_matches", "layers_of", "module_of"]


@dataclass
class Match:
    """Operations of a model that a backend computes as one.

    Args:
        nodes: in the order in which they run; the first has the weight.
        config: what the backend does with them.
    """

    nodes: list[Node]
    config: BackendPatternConfig


def module_of(model: GraphModule, node: Node) -> Any:
    """The module that `node` calls, or None."""
    return model.get_submodule(node.target) if node.op == "call_module" else None  # type: ignore[arg-type]


def layers_of(pattern: Any) -> tuple[Any, ...]:
    """The parts of a pattern, of one too."""
    return pattern if isinstance(pattern, tuple) else (pattern,)


def _is_kind(model: GraphModule, node: Node, kind: Any) -> bool:
    if node.op == "call_module":
        return type(module_of(model, node)) is kind
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] == kind
    if node.op == "call_method":
        return node.target == kind
    return node.op == "call_function" and node.target is kind


def _ending_at(model: GraphModule, node: Node, pattern: Any) -> list[Node] | None:
    """The nodes of `pattern` whose last is `node`: each but the last has one user, the next."""
    found: list[Node] = []
    for kind in reversed(layers_of(pattern)):
        if not _is_kind(model, node, kind) or (found and len(node.users) != 1):
            return None
        found.insert(0, node)
        if len(found) < len(layers_of(pattern)):
            before = node.args[0] if node.args else None
            if not isinstance(before, Node):
                return None
            node = before
    return found


def find_matches(model: GraphModule, patterns: Iterable[BackendPatternConfig]) -> list[Match]:
    """The matches of `patterns`, in the order of the graph; each node is in one at most, and of several the longest counts."""
    by_length = sorted(patterns, key=lambda config: -len(layers_of(config.pattern)))
    taken: set[Node] = set()
    found: list[Match] = []
    for node in reversed(list(model.graph.nodes)):
        if node in taken:
            continue
        for config in by_length:
            nodes = _ending_at(model, node, config.pattern)
            if nodes is not None and not taken.intersection(nodes):
                taken.update(nodes)
                found.append(Match(nodes, config))
                break
    return found[::-1]
