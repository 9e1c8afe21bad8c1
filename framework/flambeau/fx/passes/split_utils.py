"""Splitting a GraphModule by tags that its nodes carry."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from ..graph import Graph
from ..graph_module import GraphModule, _find
from ..node import Node, map_arg

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: object, name: str) -> Any:
    """The attribute at the dotted path `name`; None where the path ends early."""
    for part in name.split("."):
        if not hasattr(obj, part):
            return None
        obj = getattr(obj, part)
    return obj


def setattr_recursive(obj: object, attr: str, value: object) -> None:
    """Put `value` at the dotted path `attr`."""
    *path, last = attr.split(".")
    for part in path:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclass
class Component:
    """One part in the making: `orig_inputs` and `orig_outputs` are nodes of the whole graph."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """A GraphModule that calls one submodule for each tag, in the order of `tags`.

    Args:
        gm: nodes that call something have a `tag`.
        return_fqn_mapping: give a pair, with a dict from names in `gm` to names in the new module.
        return_tuple: submodules return a tuple of a single result too.
        GraphModuleCls: the class of the new modules.
    Raises: AssertionError if a node uses what a later tag computes, or has no tag among `tags`.
    """
    parts = {tag: Component(Graph(), i, tag) for i, tag in enumerate(tags)}
    part_of: dict[Node, Component] = {}
    copies: dict[Node, Node] = {}
    names: dict[str, str] = {}
    used_from: dict[Node, list[Component]] = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        tag = getattr(node, "tag", None)
        if tag not in parts:
            raise AssertionError(f"split_by_tags: node {node} has tag {tag!r}, which is not in {tags}")
        _copy_into(parts[tag], node, part_of, copies, names, used_from)
    for node in gm.graph.nodes:
        if node.op == "output":
            for used in node.all_input_nodes:
                if used in part_of and used not in part_of[used].orig_outputs:
                    part_of[used].orig_outputs.append(used)
    main, env, attributes = Graph(), {}, {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            env[node] = main.node_copy(node, lambda n: n)
            if node.op == "get_attr":
                attributes[node.target] = _find(gm, node.target)
    for part in parts.values():
        if len(part.graph.nodes):
            _finish(part, gm, copies, main, env, attributes, return_tuple, GraphModuleCls)
    for node in gm.graph.nodes:
        if node.op == "output":
            main.output(map_arg(node.args[0], env.__getitem__), node.type)
    used = {n.target for n in main.nodes if n.op in ("get_attr", "call_module") and (n.users or n.op == "call_module")}
    for node in reversed(main.nodes):
        if node.op == "get_attr" and not node.users:
            main.erase_node(node)
    made = GraphModuleCls({k: v for k, v in attributes.items() if k in used}, main)
    return (made, names) if return_fqn_mapping else made


def _copy_into(part: Component, node: Node, part_of: Any, copies: Any, names: dict[str, str], used_from: Any) -> None:
    def own(used: Node) -> Node:
        if used.op == "get_attr":
            if used not in part.getattr_maps:
                part.getattr_maps[used] = part.graph.get_attr(used.target, used.type)
                names[used.target] = f"{part.name}.{used.target}"
            return part.getattr_maps[used]
        source = part_of.get(used)
        if source is part:
            return copies[used]
        if source is not None:
            if source.order > part.order:
                raise AssertionError(f"split_by_tags: node {node} of {part.name} uses {used} of {source.name}, which comes later")
            if used not in source.orig_outputs:
                source.orig_outputs.append(used)
        if used not in part.orig_inputs:
            part.orig_inputs.append(used)
            first = next(iter(n for n in part.graph.nodes if n.op != "placeholder"), None)
            with part.graph.inserting_before(first) if first is not None else part.graph.inserting_after():
                made = part.graph.placeholder(used.name, type_expr=used.type)
            made.meta = used.meta.copy()
            part.input_placeholders.append(made)
        return part.input_placeholders[part.orig_inputs.index(used)]

    copies[node] = part.graph.node_copy(node, own)
    copies[node].tag = node.tag  # type: ignore[attr-defined]
    part_of[node] = part
    if node.op == "call_module":
        names[node.target] = f"{part.name}.{node.target}"


def _finish(
    part: Component, gm: GraphModule, copies: Any, main: Graph, env: Any, attributes: Any, as_tuple: bool, cls: Any
) -> None:
    results = tuple(copies[n] for n in part.orig_outputs)
    single = len(results) == 1 and not as_tuple
    part.graph.output(results[0] if single else results)
    taken = {n.target: _find(gm, n.target) for n in part.graph.nodes if n.op in ("call_module", "get_attr")}
    part.gm = cls(taken, part.graph)
    attributes[part.name] = part.gm
    call = main.call_module(part.name, tuple(env[n] for n in part.orig_inputs))
    for i, output in enumerate(part.orig_outputs):
        env[output] = call if single else main.call_function(operator.getitem, (call, i))
