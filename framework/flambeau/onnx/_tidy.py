"""Nodes of a graph without those that compute nothing that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["read_by", "tidied"]

_RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def read_by(node: Any) -> Iterator[str]:
    """The names of values that `node` reads, those among them that graphs in it read."""
    yield from node.input
    for inner in _nodes_in(node):
        yield from inner.input


def _nodes_in(node: Any) -> Iterator[Any]:
    """The nodes of the graphs in `node`, and of those in them."""
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield inner
            yield from _nodes_in(inner)


def tidied(nodes: list[Any], outputs: list[str], merge: bool) -> list[Any]:
    """The nodes that `outputs` need; with `merge`, without those that copy, and with equal ones computed once."""
    if merge:
        nodes = _merged(_named(nodes, outputs), set(outputs))
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            needed.update(read_by(node))
            kept.append(node)
    return kept[::-1]


def _named(nodes: list[Any], outputs: list[str]) -> list[Any]:
    """Nodes that compute a value which is then copied to an output give it that name themselves."""
    made = {name: node for node in nodes for name in node.output}
    renamed: dict[str, str] = {}
    gone = set()
    for node in nodes:
        if node.op_type != "Identity" or node.domain or node.output[0] not in outputs:
            continue
        source = node.input[0]
        if source in made and source not in outputs and source not in renamed:
            renamed[source] = node.output[0]
            gone.add(id(node))
    kept = [node for node in nodes if id(node) not in gone]
    for node in kept:
        _rename(node.output, renamed)
        _rename_read(node, renamed)
    return kept


def _rename(names: Any, renamed: dict[str, str]) -> None:
    for i, name in enumerate(names):
        if name in renamed:
            names[i] = renamed[name]


def _rename_read(node: Any, renamed: dict[str, str]) -> None:
    """Have `node` read values by their new names, in the graphs in it too: names are of one value each in the whole model."""
    for each in (node, *_nodes_in(node)):
        _rename(each.input, renamed)


def _merged(nodes: list[Any], outputs: set[str]) -> list[Any]:
    same: dict[str, str] = {}                         # by name: that of the value which is used instead
    seen: dict[Any, Any] = {}
    kept = []
    for node in nodes:
        _rename_read(node, same)
        gives_output = any(name in outputs for name in node.output)
        if node.op_type == "Identity" and not node.domain and not gives_output:
            same[node.output[0]] = node.input[0]
            continue
        attributes = tuple(sorted(a.SerializeToString(deterministic=True) for a in node.attribute))
        key = (node.domain, node.op_type, tuple(node.input), len(node.output), attributes)
        if key in seen and not gives_output and node.op_type not in _RANDOM:
            same.update(zip(node.output, seen[key].output, strict=True))
            continue
        seen.setdefault(key, node)
        kept.append(node)
    return kept
