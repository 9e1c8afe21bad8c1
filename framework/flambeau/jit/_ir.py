"""The programs of scripts: values that are assigned once, nodes that make them, and blocks of nodes for branches and loops.

A node's kind is an operator of a schema (``aten::add``) or one of the compiler's own: ``prim::If`` with two blocks, ``prim::Loop`` with
one, whose inputs are the number of iterations, whether to begin, and what is carried, ``prim::GetAttr``, ``prim::CallMethod`` and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import flambeau as fb

from .._schema import FunctionSchema, Type
from ._types import NONE, shown
from ._value_text import text_of_value

__all__ = ["Block", "Function", "Graph", "Node", "Parameter", "Value"]


class Value:
    """What a node makes, a block is given, or a function takes."""

    __slots__ = ("_type", "_name", "node", "uses", "fact")

    def __init__(self, type: Type, name: str = "", node: Node | None = None) -> None:
        self._type, self._name, self.node = type, name, node
        self.uses: list[Node] = []
        self.fact: Any = None

    def type(self) -> Type:
        """Its type."""
        return self._type

    def debugName(self) -> str:
        """Its name in the text of the graph."""
        return self._name

    def setType(self, type: Type) -> Value:
        """Give it another type. Returns: itself."""
        self._type = type
        return self

    def __repr__(self) -> str:
        return f"{self._name or '?'} defined in ({self.node or 'a block'})"


class Node:
    """One operation. `schema` is that of an operator, `constant` the value of a ``prim::Constant``."""

    __slots__ = ("_kind", "_inputs", "_outputs", "attributes", "_blocks", "place", "schema")

    def __init__(self, kind: str, inputs: list[Value], place: Any = "") -> None:
        self._kind, self._inputs, self.place = kind, inputs, place
        self._outputs: list[Value] = []
        self.attributes: dict[str, Any] = {}
        self._blocks: list[Block] = []
        self.schema: FunctionSchema | None = None

    def kind(self) -> str:
        """``aten::add`` or ``prim::If``."""
        return self._kind

    def inputs(self) -> Iterator[Value]:
        """What it is given."""
        return iter(self._inputs)

    def outputs(self) -> Iterator[Value]:
        """What it makes."""
        return iter(self._outputs)

    def inputsSize(self) -> int:
        """How many values it is given."""
        return len(self._inputs)

    def outputsSize(self) -> int:
        """How many values it makes."""
        return len(self._outputs)

    def input(self) -> Value:
        """The only value that it is given."""
        (value,) = self._inputs
        return value

    def inputsAt(self, i: int) -> Value:
        """A value that it is given."""
        return self._inputs[i]

    def output(self) -> Value:
        """The only value that it makes."""
        (value,) = self._outputs
        return value

    def blocks(self) -> Iterator[Block]:
        """Its branches, or the body of a loop."""
        return iter(self._blocks)

    def hasAttribute(self, name: str) -> bool:
        """Whether it has the attribute."""
        return name in self.attributes

    def attributeNames(self) -> list[str]:
        """The names of its attributes."""
        return list(self.attributes)

    def s(self, name: str) -> Any:
        """An attribute, text or another."""
        return self.attributes[name]

    i = f = t = s

    def scopeName(self) -> str:
        """The part of the model that it stands for, which scripts do not keep."""
        return ""

    def sourceRange(self) -> str:
        """Where it stands in the program: file, line and column."""
        return str(self.place)

    def add(self, type: Type, name: str = "") -> Value:
        """One more value that it makes."""
        value = Value(type, name, self)
        self._outputs.append(value)
        return value

    def block(self) -> Block:
        """One more block."""
        made = Block()
        self._blocks.append(made)
        return made

    @property
    def constant(self) -> Any:
        """The value of a ``prim::Constant``."""
        return self.attributes.get("value")

    def __repr__(self) -> str:
        return "".join(_lines(self, "", {}))


class Block:
    """Nodes in their order; `_inputs` is what it is given, `_outputs` what it gives."""

    def __init__(self) -> None:
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._outputs: list[Value] = []

    def inputs(self) -> Iterator[Value]:
        """What it is given."""
        return iter(self._inputs)

    def outputs(self) -> Iterator[Value]:
        """What it gives."""
        return iter(self._outputs)

    def nodes(self) -> Iterator[Node]:
        """Its nodes, less those of blocks among them."""
        return iter(self._nodes)

    def given(self, type: Type, name: str = "") -> Value:
        """One more value that it is given."""
        value = Value(type, name)
        self._inputs.append(value)
        return value

    def all_nodes(self) -> Iterator[Node]:
        """Its nodes and those of blocks among them, in the order of the text."""
        for node in self._nodes:
            yield node
            for block in node._blocks:
                yield from block.all_nodes()


class Graph(Block):
    """The program of a function. Its text names values as the program does."""

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of `kind`, or None."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """All nodes of `kind`."""
        return [n for n in (self.all_nodes() if recurse else self._nodes) if n._kind == kind]

    def inputsSize(self) -> int:
        """How many values it is given."""
        return len(self._inputs)

    def copy(self) -> Graph:
        """Another graph with the same nodes."""
        made = Graph()
        at: dict[Value, Value] = {}
        copy_into(self, made, at, inputs=True)
        return made

    def __str__(self) -> str:
        names = _named(self)
        listed = [f"{names[v]} : {shown(v._type)}" for v in self._inputs]
        head = f"graph({(',' + chr(10) + '      ').join(listed)}):\n"
        body = "".join(line for node in self._nodes for line in _lines(node, "  ", names))
        return f"{head}{body}  return ({', '.join(names[v] for v in self._outputs)})\n"

    __repr__ = __str__


def copy_into(source: Block, target: Block, at: dict[Value, Value], inputs: bool) -> None:
    """Append copies of what `source` holds to `target`; `at` has the new value of each old one."""
    if inputs:
        for v in source._inputs:
            at[v] = target.given(v._type, v._name)
    for node in source._nodes:
        target._nodes.append(copied(node, at))
    if inputs:
        target._outputs.extend([at.get(v, v) for v in source._outputs])


def copied(node: Node, at: dict[Value, Value]) -> Node:
    """A copy of the node, of the values that `at` has for its own."""
    made = Node(node._kind, [at.get(v, v) for v in node._inputs], node.place)
    made.attributes, made.schema = dict(node.attributes), node.schema
    for block in node._blocks:
        copy_into(block, made.block(), at, inputs=True)
    for v in node._outputs:
        at[v] = made.add(v._type, v._name)
    return made


class Parameter:
    """A parameter of a function: its name, type and default."""

    NONE_GIVEN: Any = object()

    def __init__(self, name: str, type: Type, default: Any = NONE_GIVEN) -> None:
        self.name, self.type, self.default = name, type, default


class Function:
    """A compiled function or method.

    Args:
        name: its qualified name, ``__torch__.package.function``.
        parameters: with ``self`` first in a method.
        result: the type of what it returns.
    """

    def __init__(self, name: str, parameters: list[Parameter], result: Type | None, graph: Graph | None = None) -> None:
        self.name, self.parameters, self.result = name, parameters, result
        self.graph = graph if graph is not None else Graph()
        self.owner: Any = None                        # the class whose method it is
        self.python: Any = None                       # the Python function that it leaves the call to
        self.callable: Any = None                     # what runs it, made when it is first called
        self.first_tensor: int | None = None          # from which parameter on all are Tensors, -1 if none; found in a call

    @property
    def short_name(self) -> str:
        """The name less its qualification."""
        return self.name.rpartition(".")[2]

    def schema_text(self) -> str:
        """As PyTorch spells the signature: ``forward(Tensor x, int n=2) -> Tensor``."""
        def one(p: Parameter) -> str:
            default = text_of_value(p.default) if isinstance(p.default, float) else p.default
            return f"{shown(p.type)} {p.name}" + ("" if p.default is Parameter.NONE_GIVEN else f"={default}")

        result = self.result or NONE
        text = f"({shown(result)})" if result.kind == "Tuple" else shown(result)
        return f"{self.short_name}({', '.join(map(one, self.parameters))}) -> {text}"


# -- text ----------------------------------------------------------------------------------------------------------------


def _named(graph: Graph) -> dict[Value, str]:
    """A name for each value, that no other one has: the program's with a number, or a number."""
    used: set[str] = set()
    names: dict[Value, str] = {}
    numbers = itertools.count()

    def visit(block: Block) -> None:
        for v in block._inputs:
            give(v)
        for node in block._nodes:
            for v in node._outputs:
                give(v)
            for inner in node._blocks:
                visit(inner)

    def give(v: Value) -> None:
        stem = v._name
        if not stem or stem.isdigit():
            name = next(n for n in map(str, numbers) if n not in used)
        else:
            name = stem
            at = itertools.count(1)
            while name in used:
                name = f"{stem}.{next(at)}"
        used.add(name)
        names[v] = f"%{name}"

    visit(graph)
    return names


def literal(value: Any) -> str:
    """A constant as graphs spell it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, float):
        return f"{value:.17g}" if not value.is_integer() or abs(value) >= 1e15 else f"{value:.0f}."
    if isinstance(value, fb.Tensor):
        return "<Tensor>" if value.numel() > 5 else "{" + ", ".join(map(str, value.flatten().tolist())) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, fb.device):
        return f'"{value}"'
    return str(value)


def _lines(node: Node, indent: str, names: dict[Value, str]) -> Iterator[str]:
    def name(v: Value) -> str:
        return names.get(v, f"%{v._name or '?'}")

    made = ", ".join(f"{name(v)} : {shown(v._type)}" for v in node._outputs)
    facts = ", ".join(f"{k}={literal(v)}" for k, v in node.attributes.items() if not k.startswith("_") and v is not None)
    place = f" # {node.place}" if node.place else ""
    given = ", ".join(map(name, node._inputs))
    yield f"{indent}{made} = {node._kind}{f'[{facts}]' if facts else ''}({given}){place}\n"
    for at, block in enumerate(node._blocks):
        yield f"{indent}  block{at}({', '.join(f'{name(v)} : {shown(v._type)}' for v in block._inputs)}):\n"
        for inner in block._nodes:
            yield from _lines(inner, indent + "    ", names)
        yield f"{indent}    -> ({', '.join(map(name, block._outputs))})\n"


