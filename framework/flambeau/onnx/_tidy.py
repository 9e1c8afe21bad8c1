"""Nodes of a graph without those that compute nothing that is read."""

from __future__ import annotations

from typing import Any

__all__ = ["tidied"]

_RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def tidied(nodes: list[Any], outputs: list[str], merge: bool) -> list[Any]:
    """The nodes that `outputs` need; with `merge`, without those that copy, and with equal ones computed once."""
    if merge:
        nodes = _merged(_named(nodes, outputs), set(outputs))
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            needed.update(node.input)
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
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name in renamed:
                    names[i] = renamed[name]
    return kept


def _merged(nodes: list[Any], outputs: set[str]) -> list[Any]:
    same: dict[str, str] = {}                         # by name: that of the value which is used instead
    seen: dict[Any, Any] = {}
    kept = []
    for node in nodes:
        for i, name in enumerate(node.input):
            if name in same:
                node.input[i] = same[name]
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
