"""Graphs of scripts as text that scripts can be compiled from: what `code` shows, and archives hold."""

from __future__ import annotations

import enum
import itertools
import keyword
import math
from types import SimpleNamespace
from typing import Any

import flambeau as fb

from .._schema import Type
from ._builtins import code_of as number_of
from ._ir import Block, Function, Node, Parameter, Value
from ._types import NONE, ClassType, EnumType, NamedTupleType, text_of, type_of_value

__all__ = ["Constants", "class_text", "code_of", "function_text"]

_FOREVER = 9223372036854775807


class Constants:
    """The tensors of a group of texts, which call them ``CONSTANTS.c0`` and so on. `used` has the classes and functions they name."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.used: dict[str, Any] = {}

    def of(self, tensor: Any) -> str:
        """The name of a tensor."""
        for at, known in enumerate(self.tensors):
            if known is tensor:
                return f"CONSTANTS.c{at}"
        self.tensors.append(tensor)
        return f"CONSTANTS.c{len(self.tensors) - 1}"

    def note(self, kind: Type) -> Type:
        """Note the classes in a type. Returns: the type."""
        if isinstance(kind, (ClassType, NamedTupleType, EnumType)):
            self.used.setdefault(kind.name, kind)
        for inner in kind.inner:
            self.note(inner)
        return kind


def code_of(function: Function) -> tuple[str, Any]:
    """The text of a function, without its owner's name, and an object with its tensors as ``c0`` and so on."""
    constants = Constants()
    text = function_text(function, constants)
    return text, SimpleNamespace(**{f"c{i}": t for i, t in enumerate(constants.tensors)})


def function_text(function: Function, constants: Constants, indent: str = "", with_owner: bool = False) -> str:
    """The text of a function. In a class, the first parameter has the class for its type."""
    return _Printer(function, constants, indent, with_owner).text()


def literal(value: Any, constants: Constants) -> str:
    """A constant as scripts are written."""
    value = number_of(value)
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, enum.Enum):
        from ._python import class_type

        kind = class_type(type(value))
        assert kind is not None
        return f"{text_of(constants.note(kind))}.{value.name}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        text = f"{value:.17g}"
        return text if any(c in text for c in ".en") else f"{text}."
    if isinstance(value, complex):
        return f"complex({literal(value.real, constants)}, {literal(value.imag, constants)})"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'
    if isinstance(value, fb.device):
        return f'torch.device("{value}")'
    if isinstance(value, fb.Tensor):
        return constants.of(value)
    if isinstance(value, tuple):
        return f"({', '.join(literal(v, constants) for v in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(literal(v, constants) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k, constants)}: {literal(v, constants)}' for k, v in value.items())}}}"
    raise NotImplementedError(f"jit: a constant of type {type(value).__name__} cannot be written")


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_OWN_NAMES = frozenset((*keyword.kwlist, "torch", "ops", "inf", "nan", "CONSTANTS", "annotate", "self", "range", "print", "getattr"))


class _Printer:
    def __init__(self, function: Function, constants: Constants, indent: str, with_owner: bool) -> None:
        self.function, self.constants, self.indent, self.with_owner = function, constants, indent, with_owner
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.lines: list[str] = []
        self.numbers = itertools.count()

    def text(self) -> str:
        function, graph = self.function, self.function.graph
        listed = []
        for at, (p, v) in enumerate(zip(function.parameters, graph._inputs, strict=True)):
            name = self.new(v, p.name)
            if at == 0 and function.owner is not None:
                self.names[v] = "self"
                listed.append(f"self: {function.owner.name}" if self.with_owner else "self")
                continue
            default = "" if p.default is Parameter.NONE_GIVEN else f"={literal(_as_type(p.default, p.type), self.constants)}"
            listed.append(f"{name}: {self.kind(v.type())}{default}")
        deeper = self.indent + "  "
        self.block(graph, deeper)
        result = self.of(graph._outputs[0]) if graph._outputs else "None"
        separator = f",\n{self.indent}    "
        head = f"{self.indent}def {function.short_name}({separator.join(listed)}) -> {self.kind(function.result or NONE)}:\n"
        return head + "".join(f"{line}\n" for line in self.lines) + f"{deeper}return {result}\n"

    # -- names

    def new(self, v: Value, stem: str = "") -> str:
        stem = stem or v._name
        stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem)
        if not stem or stem[0].isdigit() or stem in _OWN_NAMES and stem != "self":
            name = f"_{next(self.numbers)}" if not stem else f"_{stem}"
        else:
            name = stem
        base, at = name, 0
        while name in self.taken:
            name = f"{base}{at}"
            at += 1
        self.taken.add(name)
        self.names[v] = name
        return name

    def of(self, v: Value) -> str:
        return self.names[v]

    def kind(self, t: Type) -> str:
        return text_of(self.constants.note(t))

    def line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)

    def assigned(self, node: Node, indent: str, text: str) -> None:
        names = [self.new(v) for v in node._outputs]
        self.line(indent, f"{', '.join(names)}{', = ' if len(names) > 1 else ' = ' if names else ''}{text}")

    def block(self, block: Block, indent: str) -> None:
        for node in block._nodes:
            self.node(node, indent)

    # -- nodes

    def node(self, node: Node, indent: str) -> None:
        kind = node.kind()
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(self, node, indent)
            return
        namespace, _, name = kind.partition("::")
        head = f"torch.{name}" if namespace == "aten" and name not in keyword.kwlist else f"ops.{namespace}.{name}"
        self.assigned(node, indent, f"{head}({', '.join(self.arguments(node))})")

    def arguments(self, node: Node) -> list[str]:
        schema = node.schema
        if schema is None:
            return [self.of(v) for v in node._inputs]
        given = list(zip(schema.arguments, node._inputs, strict=True))
        while given and not given[-1][0].kwarg_only and _is_default(*given[-1]):
            given.pop()
        positional = [(a, v) for a, v in given if not a.kwarg_only]
        while positional and _is_default(*positional[-1]):
            positional.pop()
        by_name = [f"{a.name}={self.of(v)}" for a, v in given if a.kwarg_only and not _is_default(a, v)]
        return [self.of(v) for _, v in positional] + by_name

    def constant(self, node: Node, indent: str) -> None:
        out = node._outputs[0]
        if "_function" in node.attributes:
            self.names[out] = self.function_name(node.attributes["_function"])
            return
        self.names[out] = literal(node.constant, self.constants)

    def function_name(self, function: Function) -> str:
        self.constants.used.setdefault(function.name, function)
        return function.name

    def make_list(self, node: Node, indent: str) -> None:
        kind = node._outputs[0].type()
        text = f"[{', '.join(map(self.of, node._inputs))}]"
        if not node._inputs or any(v.type() != kind.inner[0] for v in node._inputs):
            text = f"annotate({self.kind(kind)}, {text})"
        self.shown(node, indent, text)

    def shown(self, node: Node, indent: str, text: str) -> None:
        """A value that is written where it is used, if nothing can change it."""
        parts = [v for v in node._inputs if v.node is None or v.node.kind() != "prim::Constant"]
        if not parts and node._outputs[0].type().kind == "Tuple":
            self.names[node._outputs[0]] = text
        else:
            self.assigned(node, indent, text)

    def make_tuple(self, node: Node, indent: str) -> None:
        kind = node._outputs[0].type()
        parts = ", ".join(map(self.of, node._inputs))
        if isinstance(kind, NamedTupleType):
            self.assigned(node, indent, f"{self.kind(kind)}({parts})")
        else:
            self.shown(node, indent, f"({parts}{',' if len(node._inputs) == 1 else ''})")

    def make_dict(self, node: Node, indent: str) -> None:
        at = node._inputs
        pairs = ", ".join(f"{self.of(k)}: {self.of(v)}" for k, v in zip(at[::2], at[1::2], strict=True))
        self.assigned(node, indent, f"annotate({self.kind(node._outputs[0].type())}, {{{pairs}}})")

    def unpack(self, node: Node, indent: str) -> None:
        if node._outputs:
            self.line(indent, f"{', '.join([self.new(v) for v in node._outputs])}, = {self.of(node._inputs[0])}")

    def element(self, node: Node, indent: str) -> None:
        self.assigned(node, indent, f"({self.of(node._inputs[0])})[{self.of(node._inputs[1])}]")

    def get(self, node: Node, indent: str) -> None:
        self.constants.note(node._inputs[0].type())
        name = node.attributes["name"]
        me = self.of(node._inputs[0])
        if name.isidentifier() and not keyword.iskeyword(name):
            self.assigned(node, indent, f"{me}.{name}")
        else:
            self.assigned(node, indent, f'getattr({me}, "{name}")')

    def put(self, node: Node, indent: str) -> None:
        self.line(indent, f"{self.of(node._inputs[0])}.{node.attributes['name']} = {self.of(node._inputs[1])}")

    def call_function(self, node: Node, indent: str) -> None:
        function = node.attributes["_function"]
        given = "".join(f"{self.of(v)}, " for v in node._inputs)
        self.assigned(node, indent, f"{self.function_name(function)}({given})")

    def call_method(self, node: Node, indent: str) -> None:
        me, *rest = node._inputs
        self.constants.note(me.type())
        given = "".join(f"{self.of(v)}, " for v in rest)
        self.assigned(node, indent, f"({self.of(me)}).{node.attributes['name']}({given})")

    def call_value(self, node: Node, indent: str) -> None:
        raise RuntimeError(
            f"Could not export Python function call '{node.attributes.get('name')}'. Remove calls to Python functions before export. "
            "Did you forget to add @script or @script_method annotation? If this is a nn.ModuleList, add it to __constants__"
        )

    def cast(self, node: Node, indent: str) -> None:
        self.assigned(node, indent, f"unchecked_cast({self.kind(node._outputs[0].type())}, {self.of(node._inputs[0])})")

    def nothing(self, node: Node, indent: str) -> None:
        self.assigned(node, indent, f"uninitialized({self.kind(node._outputs[0].type())})")

    def raises(self, node: Node, indent: str) -> None:
        self.line(indent, f"ops.prim.RaiseException({', '.join(map(self.of, node._inputs))})")

    def prints(self, node: Node, indent: str) -> None:
        self.line(indent, f"print({', '.join(map(self.of, node._inputs))})")

    def asks_type(self, node: Node, indent: str) -> None:
        kinds = node.attributes["_types"]
        text = self.kind(kinds[0]) if len(kinds) == 1 else f"({', '.join(map(self.kind, kinds))})"
        self.assigned(node, indent, f"isinstance({self.of(node._inputs[0])}, {text})")

    def formats(self, node: Node, indent: str) -> None:
        name = node.kind().partition("::")[2]
        self.assigned(node, indent, f"torch.{name}({', '.join(map(self.of, node._inputs))})")

    def makes_object(self, node: Node, indent: str) -> None:
        name = self.kind(node._outputs[0].type())
        self.assigned(node, indent, f"{name}.__new__({name})")

    def branch(self, node: Node, indent: str) -> None:
        names = [self.new(v) for v in node._outputs]
        for head, block in zip((f"if {self.of(node._inputs[0])}:", "else:"), node._blocks, strict=True):
            self.line(indent, head)
            at = len(self.lines)
            self.block(block, indent + "  ")
            self.give(names, [(v, o.type()) for v, o in zip(block._outputs, node._outputs, strict=True)], indent + "  ")
            if len(self.lines) == at:
                self.line(indent + "  ", "pass")

    def give(self, names: list[str], values: list[tuple[Value, Type]], indent: str) -> None:
        texts = []
        for v, kind in values:
            text = self.of(v)
            if kind != v.type() and kind.kind in ("Optional", "Union"):
                text = f"annotate({self.kind(kind)}, {text})"
            texts.append(text)
        if names:
            self.line(indent, f"{', '.join(names)} = {', '.join(texts)}")

    def loop(self, node: Node, indent: str) -> None:
        (block,) = node._blocks
        count, begin, *initial = node._inputs
        names = [self.new(v) for v in node._outputs]
        for v, name in zip(block._inputs[1:], names, strict=True):
            self.names[v] = name
        self.give(names, [(v, o.type()) for v, o in zip(initial, node._outputs, strict=True)], indent)
        go_on = block._outputs[0]
        always = all(v.node is not None and v.node.kind() == "prim::Constant" and v.node.constant is True for v in (begin, go_on))
        carried = [(v, o.type()) for v, o in zip(block._outputs[1:], node._outputs, strict=True)]
        index = self.new(block._inputs[0], block._inputs[0]._name or "i")
        inner = indent + "  "
        if always:
            self.line(indent, f"for {index} in range({self.of(count)}):")
            at = len(self.lines)
            self.block(block, inner)
            self.give(names, carried, inner)
            if len(self.lines) == at:
                self.line(inner, "pass")
            return
        test = self.new(Value(NONE))
        counts = not (count.node is not None and count.node.kind() == "prim::Constant" and count.node.constant == _FOREVER)
        if counts:
            self.line(indent, f"{index} = 0")
            self.line(indent, f"{test} = torch.__and__(torch.gt({self.of(count)}, 0), {self.of(begin)})")
        else:
            self.line(indent, f"{test} = {self.of(begin)}")
        self.line(indent, f"while {test}:")
        self.block(block, inner)
        if counts:
            self.line(inner, f"{index} = torch.add({index}, 1)")
            after = f"torch.__and__(torch.lt({index}, {self.of(count)}), {self.of(go_on)})"
        else:
            after = self.of(go_on)
        if names:
            self.line(inner, f"{', '.join([test, *names])} = {', '.join([after, *[self.of(v) for v, _ in carried]])}")
        else:
            self.line(inner, f"{test} = {after}")

    def forks(self, node: Node, indent: str) -> None:
        """What is forked is written where it begins: a future is its value then."""
        self.block(node._blocks[0], indent)
        self.names[node._outputs[0]] = self.of(node._blocks[0]._outputs[0])

    def lists_elements(self, node: Node, indent: str) -> None:
        self.assigned(node, indent, f"annotate({self.kind(node._outputs[0].type())}, {self.of(node._inputs[0])}.tolist())")

    def waits(self, node: Node, indent: str) -> None:
        self.names[node._outputs[0]] = self.of(node._inputs[0])


_WRITERS: dict[str, Any] = {
    "prim::Constant": _Printer.constant, "prim::TupleConstruct": _Printer.make_tuple, "prim::ListConstruct": _Printer.make_list,
    "prim::DictConstruct": _Printer.make_dict, "prim::TupleUnpack": _Printer.unpack, "prim::ListUnpack": _Printer.unpack,
    "prim::TupleIndex": _Printer.element, "prim::GetAttr": _Printer.get, "prim::SetAttr": _Printer.put,
    "prim::CallFunction": _Printer.call_function, "prim::CallMethod": _Printer.call_method, "prim::PythonOp": _Printer.call_value,
    "prim::unchecked_cast": _Printer.cast, "prim::Uninitialized": _Printer.nothing, "prim::RaiseException": _Printer.raises,
    "prim::Print": _Printer.prints, "prim::isinstance": _Printer.asks_type, "aten::format": _Printer.formats,
    "aten::percentFormat": _Printer.formats, "prim::CreateObject": _Printer.makes_object, "prim::If": _Printer.branch,
    "prim::Loop": _Printer.loop, "prim::fork": _Printer.forks, "aten::wait": _Printer.waits,
    "prim::tolist": _Printer.lists_elements, "aten::__getitem__": _Printer.element,
}  # fmt: skip


def _as_type(value: Any, kind: Type) -> Any:
    inner = kind.inner[0] if kind.kind == "Optional" else kind
    if inner.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if inner.kind == "List" and isinstance(value, tuple):
        return list(value)
    if inner.kind == "List" and inner.size is not None and isinstance(value, (int, float)):
        return [value] * inner.size
    return value


def _is_default(argument: Any, v: Value) -> bool:
    if not argument.has_default_value():
        return False
    node, default = v.node, number_of(argument.default_value)
    if node is None:
        return False
    if node.kind() == "prim::Constant":
        return type(node.constant) is type(default) and not isinstance(default, fb.Tensor) and node.constant == default
    if node.kind() == "prim::ListConstruct" and isinstance(default, list):
        parts = [x.node.constant if x.node is not None and x.node.kind() == "prim::Constant" else None for x in node._inputs]
        return parts == default
    return False


# -- classes -------------------------------------------------------------------------------------------------------------


def class_text(kind: Any, constants: Constants) -> str:
    """The text of a class, with its compiled methods."""
    short = kind.name.rpartition(".")[2]
    if isinstance(kind, NamedTupleType):
        fields: Any = kind.fields  # type: ignore[attr-defined]
        lines = "".join(f"  {n} : {text_of(constants.note(t))}\n" for n, t in zip(fields, kind.inner, strict=True))
        return f"class {short}(NamedTuple):\n{lines}"
    if isinstance(kind, EnumType):
        members: Any = kind.python_class  # type: ignore[attr-defined]
        return f"class {short}(Enum):\n" + "".join(f"  {m.name} = {literal(m.value, constants)}\n" for m in members)
    if kind.is_interface:
        methods = ""
        for m in kind.methods.values():
            given = "".join(f", {p.name}: {text_of(p.type)}" for p in m.parameters[1:])
            methods += f"  def {m.short_name}(self{given}) -> {text_of(m.result or NONE)}:\n    pass\n"
        return f"class {short}({'ModuleInterface' if kind.is_module else 'Interface'}):\n{methods}"
    head = f"class {short}(Module):\n" if kind.is_module else f"class {short}:\n"
    lines = []
    if kind.is_module:
        for what in ("parameters", "buffers"):
            lines.append(f"  __{what}__ = [{''.join(f'{chr(34)}{n}{chr(34)}, ' for n in getattr(kind, what))}]\n")
    for name, t in kind.attributes.items():
        text = text_of(constants.note(t))
        if name.isidentifier() and not keyword.iskeyword(name):
            lines.append(f"  {name} : {text}\n")
        else:
            lines.append(f'  __annotations__["{name}"] = {text}\n')
    for name, value in kind.constants.items():
        if isinstance(value, (list, dict)):               # a constant that can change is none of PyTorch's
            value = tuple(value) if isinstance(value, list) else None
        lines.append(f"  {name} : Final[{text_of(type_of_value(number_of(value)))}] = {literal(value, constants)}\n")
    done: set[str] = set()
    while len(done) < len(kind.methods):
        for name, method in list(kind.methods.items()):
            if name not in done:
                done.add(name)
                lines.append(function_text(method, constants, "  ", with_owner=True))
    if not lines:
        lines.append("  pass\n")
    return head + "".join(lines)
