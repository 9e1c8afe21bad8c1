"""What compilers of scripts share: the source, who finds names, and the nodes of a function with what branches leave of names."""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .._schema import Type
from ._ir import Block, Function, Node, Value
from ._names import Plain, Several, Thing
from ._operators import has_variables, match, named_results, schemas_of
from ._types import (
    COMPLEX,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    TENSOR,
    ClassType,
    EnumType,
    NamedTupleType,
    is_subtype,
    list_of,
    text_of,
    tuple_of,
    type_of_value,
    unified,
)  # fmt: skip

__all__ = ["Nodes", "Place", "Resolver", "ScriptError", "Source", "Undefined"]


class ScriptError(RuntimeError):
    """A program cannot be a script: the message says what, and where it stands."""


class Source:
    """The text that a syntax tree was read from.

    Args:
        text: its lines, as they were parsed.
        file, line: where the text begins.
        indent: how far it was indented there.
    """

    def __init__(self, text: str, file: str, line: int, indent: int = 0) -> None:
        self.lines, self.file, self.line, self.indent = text.splitlines(), file, line, indent

    def marked(self, begin: tuple[int, int], end: tuple[int, int]) -> str:
        """File and line, and the lines of a part of the text with two before and behind it, the part underlined.

        Args:
            begin, end: lines, counted from 1, and columns.
        """
        (first, column), (last, end_column) = begin, end
        text = [f'  File "{self.file}", line {self.line + first - 1}\n']
        for at in range(max(first - 2, 1), min(last + 2, len(self.lines)) + 1):
            line = self.lines[at - 1]
            text.append(f"{' ' * self.indent if line else ''}{line}\n")
            if first <= at <= last:
                left = column if at == first else len(line) - len(line.lstrip())
                right = end_column if at == last else len(line)
                text.append(f"{' ' * (self.indent + left)}{'~' * max(right - left, 1)}{' <--- HERE' if at == last else ''}\n")
        return "".join(text)


class Place:
    """A part of a source: a node of its tree. As text it is file, line and column."""

    __slots__ = ("source", "node")

    def __init__(self, source: Source, node: ast.AST) -> None:
        self.source, self.node = source, node

    def __str__(self) -> str:
        begin: Any = self.node
        source = self.source
        return f"{source.file}:{source.line + getattr(begin, 'lineno', 1) - 1}:{getattr(begin, 'col_offset', 0) + source.indent}"

    def __bool__(self) -> bool:
        return bool(self.source.file)

    def marked(self) -> str:
        """The lines of the part, underlined."""
        begin = getattr(self.node, "lineno", 1), getattr(self.node, "col_offset", 0)
        return self.source.marked(begin, _end_of(self.node))


def _end_of(node: Any) -> tuple[int, int]:
    """Where PyTorch lets an expression or statement end: a call with what is called, a list with its last element."""
    if isinstance(node, ast.Call):
        return _end_of(node.func)
    if isinstance(node, ast.List) and node.elts:
        return _end_of(node.elts[-1])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.lineno, node.col_offset + len(node.value) + 1
    if isinstance(node, ast.JoinedStr):
        return node.lineno, node.col_offset + 1
    if isinstance(node, (ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Attribute)):
        value = node.value
        if value is not None and not isinstance(node, ast.Attribute):
            return _end_of(value)
    body = getattr(node, "orelse", None) or getattr(node, "body", None)
    if isinstance(node, (ast.If, ast.For, ast.While, ast.With)) and body:
        return _end_of(body[-1])
    line = getattr(node, "lineno", 1)
    return getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or getattr(node, "col_offset", 0) + 1


class Resolver:
    """Finds what names and annotations stand for."""

    def name(self, emit: Nodes, name: str) -> Thing | None:
        """What the name stands for outside of the function; None if nobody knows it."""
        raise NotImplementedError

    def annotation(self, emit: Nodes, node: ast.expr) -> Type:
        """The type that an annotation stands for."""
        raise NotImplementedError

    def method(self, of: ClassType, name: str) -> Function | None:
        """The method of a class, compiled when it is first asked for."""
        raise NotImplementedError

    def python(self, emit: Nodes, found: Any, name: str, home: Any) -> Thing:
        """What a Python object, found in `home` under the name, stands for."""
        raise NotImplementedError

    def exception(self, name: str) -> str:
        """The qualified name of the class of exceptions that is called `name`."""
        return f"builtins.{name}" if hasattr(builtins, name) else name


class Undefined(Thing):
    """A name that has no value on one way to here, or one of another type: `why`, and the branch or loop where that is so."""

    def __init__(self, why: str, place: Place) -> None:
        self.why, self.place = why, place

    def _refuse(self, emit: Any) -> Any:
        raise ScriptError(f"\n\n{self.why}:\n{self.place.marked()}and was used here:\n{Place(emit.source, emit.at).marked()}")

    def value(self, emit: Any) -> Value:
        return self._refuse(emit)

    def attribute(self, emit: Any, name: str) -> Thing:
        return self._refuse(emit)

    def call(self, emit: Any, args: Any, kwargs: Any) -> Thing:
        return self._refuse(emit)

    def elements(self, emit: Any) -> Any:
        return self._refuse(emit)


RAISED = "raised"


class Nodes:
    """Writes the nodes of a function.

    Args:
        function: what is compiled; its parameters and the type of its result, where that is known, are set.
        resolver: finds names.
        source: where the tree was read from, for messages.
    """

    def __init__(self, function: Function, resolver: Resolver, source: Source) -> None:
        self.function, self.resolver, self.source = function, resolver, source
        self.block: Block = function.graph
        self.scope: dict[str, Thing] = {}
        self.declared: dict[str, Type] = {}
        self.exited: Any = False                      # whether the block is left here, and RAISED if it is by an error
        self.at: ast.AST = ast.Pass()

    # -- nodes

    def error(self, message: str) -> ScriptError:
        """The error for the part of the tree that is compiled now."""
        return ScriptError(f"\n{message}:\n{Place(self.source, self.at).marked()}")

    def node(self, kind: str, inputs: list[Value], results: list[Type], **attributes: Any) -> list[Value]:
        """Append a node. Returns: what it makes."""
        node = Node(kind, inputs, Place(self.source, self.at))
        node.attributes = attributes
        for t in results:
            node.add(t)
        self.block._nodes.append(node)
        return node._outputs

    def constant(self, value: Any, kind: Type | None = None) -> Value:
        """A constant: a number, text, None, device, Tensor, or a list or tuple of them."""
        from ._builtins import code_of

        value = code_of(value)
        if isinstance(value, (list, tuple)) and not isinstance(kind, NamedTupleType):
            inner = kind.inner[0] if kind is not None and kind.kind == "Optional" else kind
            if isinstance(value, list) or inner is not None and inner.kind == "List":
                element = inner.inner[0] if inner is not None and inner.kind == "List" else type_of_value(value).inner[0]
                return self.list([self.constant(v, element) for v in value], element)
            return self.tuple([self.constant(v) for v in value])
        if isinstance(value, dict):
            kind = type_of_value(value)
            flat = [self.constant(x) for pair in value.items() for x in pair]
            return self.node("prim::DictConstruct", flat, [kind])[0]
        wanted = kind.inner[0] if kind is not None and kind.kind == "Optional" else kind
        if wanted == FLOAT and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        own = wanted if isinstance(wanted, EnumType) else type_of_value(value)
        made = self.node("prim::Constant", [], [own], value=value)[0]
        made.fact = value
        return made

    def list(self, values: list[Value], element: Type) -> Value:
        """A list of the values."""
        return self.node("prim::ListConstruct", values, [list_of(element)])[0]

    def tuple(self, values: list[Value]) -> Value:
        """A tuple of the values."""
        return self.node("prim::TupleConstruct", values, [tuple_of(*[v.type() for v in values])])[0]

    def made(self, found: Any) -> Value:
        """What a choice of an overload gives for an argument."""
        return found if isinstance(found, Value) else found(self)

    def operator(self, name: str, args: list[Value], kwargs: dict[str, Value] | None = None, overload: str | None = None) -> Value:
        """Call the operator: the overload of the name, or the one that takes the values, also where a number stands for a tensor."""
        schemas = schemas_of(name)
        asked = tuple([s for s in schemas if (s.overload_name or "default") == overload])
        found = match(name, asked or schemas, args, kwargs or {})
        if asked and isinstance(found, str):
            found = match(name, schemas, args, kwargs or {})
        if isinstance(found, str):
            raise self.error(found)
        inputs = [self.made(i) for i in found.inputs]
        results = [_without_variables(r) for r in found.results]
        made = self.node(name, inputs, results)
        node = self.block._nodes[-1]
        node.schema = found.schema
        if not made:
            return self.constant(None)
        if len(made) == 1:
            return made[0]
        named = named_results(found.schema, results)
        return self.tuple(list(made)) if named is None else self.node("prim::TupleConstruct", list(made), [named])[0]

    def unpacked(self, value: Value) -> list[Value]:
        """The parts of a tuple."""
        node = value.node
        if node is not None and node.kind() == "prim::TupleConstruct":
            return list(node._inputs)
        return self.node("prim::TupleUnpack", [value], list(value.type().inner))

    def uninitialized(self, kind: Type) -> Value:
        """A value that nobody reads."""
        return self.node("prim::Uninitialized", [], [kind])[0]

    def raises(self, message: str | Value, kind: str = "builtins.RuntimeError") -> None:
        """Raise an error here."""
        text = message if isinstance(message, Value) else self.constant(message)
        self.node("prim::RaiseException", [text, self.constant(kind)], [])
        self.exited = RAISED

    def as_type(self, value: Value, wanted: Type, what: str) -> Value:
        """The value as one of the type. Raises: an error that names `what`."""
        given = value.type()
        if given == wanted or is_subtype(given, wanted):
            return value
        node = value.node
        is_literal = node is not None and node.kind() in ("prim::ListConstruct", "prim::DictConstruct") and given.kind == wanted.kind
        if node is not None and is_literal:
            fits = wanted.kind == "List" and all(is_subtype(v.type(), wanted.inner[0]) for v in node._inputs)
            if fits or not node._inputs:
                return value.setType(wanted)          # a literal is of what it is wanted for
        if wanted.kind == "Optional" and given.kind != "Optional":
            return self.as_type(value, wanted.inner[0], what)
        if given.kind == "Tuple" and wanted.kind == "Tuple" and len(given.inner) == len(wanted.inner):
            parts = [self.as_type(v, t, what) for v, t in zip(self.unpacked(value), wanted.inner, strict=True)]
            return self.node("prim::TupleConstruct", parts, [wanted])[0]
        if given == TENSOR and wanted in (INT, FLOAT, COMPLEX, NUMBER):
            name = {INT: "IntImplicit", FLOAT: "FloatImplicit", COMPLEX: "ComplexImplicit", NUMBER: "ScalarImplicit"}[wanted]
            return self.operator(f"aten::{name}", [value])
        if what == "the result":
            raise self.error(f"Return value was annotated as having type {text_of(wanted)} but is actually of type {text_of(given)}")
        if what == "attribute assignment":
            raise self.error(f"Wrong type for attribute assignment. Expected {text_of(wanted)} but got {text_of(given)}")
        raise self.error(f"Expected a value of type '{text_of(wanted)}' for {what} but instead found type '{text_of(given)}'")

    @contextlib.contextmanager
    def into(self, block: Block) -> Iterator[None]:
        """Write nodes to `block`, with names of its own."""
        before = self.block, self.scope, self.exited
        self.block, self.scope, self.exited = block, dict(self.scope), False
        try:
            yield
        finally:
            self.block, self.scope, self.exited = before

    # -- branches

    def _branch(self, test: Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Compile both, and let names be what they are after the one that runs."""
        before = dict(self.scope)
        self.node("prim::If", [test], [])
        node = self.block._nodes[-1]
        sides: list[tuple[Block, dict[str, Thing], Any]] = []
        for side in (then, otherwise):
            block = node.block()
            with self.into(block):
                side()
                sides.append((block, self.scope, self.exited))
        (_, first, first_exits), (_, second, second_exits) = sides
        for name in dict.fromkeys([*first, *second]):
            a, b = first.get(name), second.get(name)
            if a is b:
                if a is not None:
                    self.scope[name] = a
                continue
            found = self._merged(node, name, a, b, first_exits, second_exits)
            if found is not None:
                self.scope[name] = found
        for name in before:
            if name not in first and name not in second:
                self.scope.pop(name, None)
        self.exited = RAISED if first_exits is second_exits is RAISED else bool(first_exits and second_exits)

    def _place(self, node: Node) -> Place:
        return node.place if isinstance(node.place, Place) else Place(self.source, self.at)

    def _merged(self, node: Node, name: str, a: Thing | None, b: Thing | None, a_exits: Any, b_exits: Any) -> Thing | None:
        """What a name stands for after a branch, where it differs by side; undefined if a side lacks it."""
        blocks = node._blocks
        if a is None or b is None or isinstance(a, Undefined) or isinstance(b, Undefined):
            has, lacks_exits = (b, a_exits) if a is None or isinstance(a, Undefined) else (a, b_exits)
            if has is None or isinstance(has, Undefined):
                return has
            if not (lacks_exits or name.startswith("$")):
                return Undefined(f"{name} is not defined in the {'true' if has is b else 'false'} branch", self._place(node))
            if not isinstance(has, Plain):
                return has
        values: list[Value | None] = []
        for block, branch_value in zip(blocks, (a, b), strict=True):
            if branch_value is None or isinstance(branch_value, Undefined):
                values.append(None)
                continue
            if not isinstance(branch_value, (Plain, Several)):
                return Undefined(f"{name} is not the same thing in both branches", self._place(node))
            with self.into(block):
                values.append(branch_value.value(self))
        if None not in values and (a_exits is RAISED) != (b_exits is RAISED) and not name.startswith("$"):
            values[0 if a_exits is RAISED else 1] = None  # nothing reads it
        kinds = [v.type() for v in values if v is not None]
        kind = kinds[0] if len(kinds) == 1 else unified(kinds[0], kinds[1])
        declared = self.declared.get(name)
        if declared is not None and kind in (None, NONE) and all(is_subtype(k, declared) for k in kinds):
            kind = declared
        if kind is None:
            for i, exits in enumerate((a_exits, b_exits)):
                if exits and not name.startswith("$"):
                    values[i], kind = None, kinds[1 - i]
        if kind is None:
            if name == "$result":
                raise self.error(
                    f"Previous return statement returned a value of type {text_of(kinds[0])} but this return statement returns a value "
                    f"of type {text_of(kinds[1])}"
                )
            first, second = map(text_of, kinds)
            if name == "$chosen":
                raise self.error(f"if-expression's true branch has type {first} but false branch has type {second}")
            return Undefined(
                f"Type mismatch: {name} is set to type {first} in the true branch and type {second} in the false branch", self._place(node)
            )
        for i, v in enumerate(values):
            if v is None:
                with self.into(blocks[i]):
                    values[i] = self.uninitialized(kind)
        out = node.add(kind, "" if name.startswith("$") else name)
        for block, v in zip(blocks, values, strict=True):
            assert v is not None
            with self.into(block):
                block._outputs.append(self.as_type(v, kind, name))
        return Plain(out)


def _without_variables(t: Type) -> Type:
    """A result whose type nothing has told is of tensors."""
    if not has_variables(t):
        return t
    return Type(t.kind, tuple([_without_variables(x) for x in t.inner])) if t.inner else TENSOR
