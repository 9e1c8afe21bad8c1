"""Passes over graphs of scripts: what nothing needs goes, calls are put in place, and attributes become constants."""

from __future__ import annotations

from typing import Any

from ._ir import Block, Function, Graph, Node, Value, copied
from ._types import ClassType, shown

__all__ = ["frozen", "inlined", "tidy"]

# Kinds that do nothing but make their results.
_PURE = frozenset((
    "prim::Constant", "prim::ListConstruct", "prim::TupleConstruct", "prim::DictConstruct", "prim::TupleUnpack", "prim::TupleIndex",
    "prim::GetAttr", "prim::unchecked_cast", "prim::Uninitialized", "prim::isinstance", "aten::format",
))  # fmt: skip
_ABOUT_VALUES = frozenset((
    "aten::__not__", "aten::__is__", "aten::__isnot__", "aten::len", "aten::size", "aten::dim", "aten::__or__", "prim::dtype",
    "prim::device", "aten::eq", "aten::ne", "aten::lt", "aten::gt", "aten::le", "aten::ge", "aten::is_grad_enabled",
))  # fmt: skip


def _is_pure(node: Node) -> bool:
    if node.kind() in _PURE or node.kind() in _ABOUT_VALUES:
        return True
    schema = node.schema
    if schema is not None and not node._blocks:
        from .._aten import random_names

        short = node.kind().partition("::")[2]
        return bool(schema.returns) and not schema.is_mutable and short not in random_names() and not short.endswith("_")
    return node.kind() in ("prim::If",) and all(_is_pure(n) for b in node._blocks for n in b._nodes)


def tidy(graph: Graph) -> None:
    """Take out nodes whose results nobody needs, and what branches give that nobody takes."""
    while _swept(graph, _needed(graph)):
        pass
    _pool_constants(graph)


def _pool_constants(graph: Graph) -> None:
    """Let equal constants be one, at the beginning of the graph."""
    first: dict[Any, Value] = {}
    nodes: list[Node] = []
    at: dict[Value, Value] = {}

    def visit(block: Block) -> None:
        kept = []
        for node in block._nodes:
            value = node.constant
            plain = value is None or isinstance(value, (bool, int, float, str))
            if node.kind() != "prim::Constant" or not plain or "_function" in node.attributes:
                kept.append(node)
            else:
                out = node._outputs[0]
                key = (type(value), repr(value), shown(out.type()))
                if key in first:
                    at[out] = first[key]
                else:
                    first[key] = out
                    nodes.append(node)
            for inner in node._blocks:
                visit(inner)
        block._nodes = kept

    visit(graph)
    graph._nodes = nodes + graph._nodes
    _replace(graph, at)


def _needed(graph: Graph) -> set[Value]:
    found: set[Value] = set(graph._outputs)

    def visit(block: Block) -> None:
        for node in block._nodes:
            found.update(node._inputs)
            for inner in node._blocks:
                found.update(inner._outputs)
                visit(inner)

    visit(graph)
    return found


def _swept(block: Block, needed: set[Value]) -> bool:
    changed = False
    for node in list(block._nodes):
        if not any(v in needed for v in node._outputs) and _is_pure(node):
            block._nodes.remove(node)
            changed = True
            continue
        if node.kind() == "prim::If":
            for at in reversed(range(len(node._outputs))):
                if node._outputs[at] not in needed:
                    del node._outputs[at]
                    for b in node._blocks:
                        del b._outputs[at]
                    changed = True
        for inner in node._blocks:
            changed |= _swept(inner, needed)
    return changed


# -- calls in place ------------------------------------------------------------------------------------------------------


def inlined(graph: Graph) -> Graph:
    """A graph without calls of compiled functions and methods: their nodes are in it."""
    made = Graph()
    at: dict[Value, Value] = {}
    for v in graph._inputs:
        at[v] = made.given(v._type, v._name)
    _inline_block(graph, made, at, ())
    made._outputs.extend([at.get(v, v) for v in graph._outputs])
    tidy(made)
    return made


def _inline_block(source: Block, target: Block, at: dict[Value, Value], within: tuple[Function, ...]) -> None:
    for node in source._nodes:
        function: Function | None = node.attributes.get("_function")
        calls = node.kind() in ("prim::CallFunction", "prim::CallMethod") and function is not None
        if calls and function is not None and function.python is None and function not in within and not _is_open(node):
            inner = dict(zip(function.graph._inputs, [at.get(v, v) for v in node._inputs], strict=True))
            _inline_block(function.graph, target, inner, (*within, function))
            for old, new in zip(node._outputs, function.graph._outputs, strict=True):
                at[old] = inner.get(new, new)
            continue
        if not node._blocks:
            target._nodes.append(copied(node, at))
            continue
        made = Node(node._kind, [at.get(v, v) for v in node._inputs], node.place)
        made.attributes, made.schema = dict(node.attributes), node.schema
        target._nodes.append(made)
        for block in node._blocks:
            new_block = made.block()
            for v in block._inputs:
                at[v] = new_block.given(v._type, v._name)
            _inline_block(block, new_block, at, within)
            new_block._outputs.extend([at.get(v, v) for v in block._outputs])
        for v in node._outputs:
            at[v] = made.add(v._type, v._name)


def _is_open(node: Node) -> bool:
    """Whether the method that is called depends on the object, which an interface is the type of."""
    kind = node._inputs[0].type() if node.kind() == "prim::CallMethod" else None
    return isinstance(kind, ClassType) and kind.is_interface


# -- attributes as constants ---------------------------------------------------------------------------------------------


def frozen(graph: Graph, root: Any, kept: frozenset[str]) -> Graph:
    """The inlined graph with attributes of the module `root` as constants, less those that are `kept` or assigned to."""
    made = inlined(graph)
    me = made._inputs[0]
    written = {n.attributes["name"] for n in made.all_nodes() if n.kind() == "prim::SetAttr"}
    objects: dict[Value, Any] = {me: root}

    def visit(block: Block) -> None:
        for node in block._nodes:
            if node.kind() == "prim::GetAttr" and node._inputs[0] in objects:
                name = node.attributes["name"]
                found = getattr(objects[node._inputs[0]], name)
                out = node._outputs[0]
                if isinstance(out.type(), ClassType) and out.type().is_module:  # type: ignore[attr-defined]
                    objects[out] = found
                elif name not in written and name not in kept:
                    node._kind, node._inputs, node.attributes = "prim::Constant", [], {"value": _as_constant(found)}
                    out.fact = found if isinstance(found, (bool, int, float, str)) else None
            for inner in node._blocks:
                visit(inner)

    visit(made)
    _decide(made)
    tidy(made)
    return made


def _as_constant(value: Any) -> Any:
    from ..tensor import Tensor

    return value.detach() if isinstance(value, Tensor) else value


def _decide(block: Block) -> None:
    """Put the side in the place of a branch whose condition is a constant."""
    nodes: list[Node] = []
    at: dict[Value, Value] = {}

    def fact(v: Value) -> Any:
        node = v.node
        return node.constant if node is not None and node.kind() == "prim::Constant" else None

    for node in block._nodes:
        node._inputs = [at.get(v, v) for v in node._inputs]
        if node.kind() == "aten::__not__" and isinstance(fact(node._inputs[0]), bool):
            node._kind, node.attributes, node.schema = "prim::Constant", {"value": not fact(node._inputs[0])}, None
            node._inputs = []
        if node.kind() == "prim::If" and isinstance(fact(node._inputs[0]), bool):
            side = node._blocks[0 if fact(node._inputs[0]) else 1]
            _replace(side, at)
            _decide(side)
            nodes += side._nodes
            for old, new in zip(node._outputs, side._outputs, strict=True):
                at[old] = at.get(new, new)
            continue
        for inner in node._blocks:
            _replace(inner, at)
            _decide(inner)
        nodes.append(node)
    block._nodes = nodes
    block._outputs = [at.get(v, v) for v in block._outputs]


def _replace(block: Block, at: dict[Value, Value]) -> None:
    for node in block._nodes:
        node._inputs = [at.get(v, v) for v in node._inputs]
        for inner in node._blocks:
            _replace(inner, at)
    block._outputs = [at.get(v, v) for v in block._outputs]


