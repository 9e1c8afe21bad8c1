"""The compiler of expressions: conditions and what they show of types, operators, indices, attributes and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._schema import Type
from ._emit import Nodes, Undefined
from ._ir import Block, Function, Value
from ._names import Counted, Method, Operator, Plain, PythonFunction, Several, Special, Thing
from ._operators import schemas_of
from ._specials import METHODS, OF_CONTAINERS, OF_TREES, SPECIALS, Slice
from ._types import (
    ANY,
    BOOL,
    COMPLEX,
    DEVICE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    ClassType,
    EnumType,
    NamedResults,
    NamedTupleType,
    NoType,
    dict_of,
    is_subtype,
    optional,
    text_of,
    unified,
    union_of,
)  # fmt: skip

__all__ = ["BINARY", "IN_PLACE", "Expressions", "kind_of"]


class Expressions(Nodes):
    """Writes the nodes of expressions."""

    if TYPE_CHECKING:

        def assign(self, target: ast.expr, found: Thing) -> None:
            """Let `target` be what was found; statements have it."""

    # -- conditions

    def _condition(self, node: ast.expr) -> tuple[Value, dict[str, Type], dict[str, Type]]:
        """A condition, and the types that names have where it holds and where it does not."""
        self.at = node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test, yes, no = self._condition(node.operand)
            self.at = node
            if isinstance(test.fact, bool):
                return self._known(not test.fact), no, yes
            return self.operator("aten::__not__", [test]), no, yes
        if isinstance(node, ast.BoolOp):
            return self._both(node.values, isinstance(node.op, ast.And))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            found = self._is_none(node)
            if found is not None:
                return found
        if isinstance(node, ast.Call):
            found = self._isinstance(node)
            if found is not None:
                return found
        return self._truth(self.value(node)), {}, {}

    def _known(self, value: bool) -> Value:
        return self.constant(value)

    def _truth(self, value: Value) -> Value:
        kind = value.type()
        if kind == BOOL:
            return value
        if kind in (TENSOR, INT, FLOAT, NUMBER):
            return self.operator("aten::Bool", [value])
        if kind.kind in ("List", "Dict") or kind == STR:
            return self.operator("aten::gt", [self.operator("aten::len", [value]), self.constant(0)])
        raise self.error(f"Could not cast value of type {text_of(kind)} to bool")

    def _both(self, parts: list[ast.expr], is_and: bool) -> tuple[Value, dict[str, Type], dict[str, Type]]:
        test, yes, no = self._condition(parts[0])
        if len(parts) == 1:
            return test, yes, no
        if isinstance(test.fact, bool):
            if test.fact is not is_and:
                return test, yes, no
            before = dict(self.scope)
            self._refine(yes if is_and else no)
            rest, more_yes, more_no = self._both(parts[1:], is_and)
            self.scope = before
            return (rest, yes | more_yes, more_no) if is_and else (rest, more_yes, no | more_no)
        learned: list[dict[str, Type]] = [{}, {}]
        at = self.at
        self.node("prim::If", [test], [])
        node = self.block._nodes[-1]
        for side in (True, False):
            block = node.block()
            with self.into(block):
                if side is is_and:
                    self._refine(yes if is_and else no)
                    value, *learned = self._both(parts[1:], is_and)
                    self.at = at
                else:
                    value = self.constant(not is_and)
                block._outputs.append(value)
        out = node.add(BOOL)
        if is_and:
            return out, yes | learned[0], {}
        return out, {}, no | learned[1]

    def _is_none(self, node: ast.Compare) -> tuple[Value, dict[str, Type], dict[str, Type]] | None:
        left, right = node.left, node.comparators[0]
        if isinstance(left, ast.Constant) and left.value is None:
            left, right = right, left
        if not (isinstance(right, ast.Constant) and right.value is None):
            return None
        negated = isinstance(node.ops[0], ast.IsNot)
        thing = self.expression(left)
        self.at = node
        if not isinstance(thing, Plain):
            return self._known(negated), {}, {}
        value = thing.value(self)
        kind = value.type()
        if kind == NONE:
            return self._known(not negated), {}, {}
        if kind.kind != "Optional" and kind != ANY and not (kind.kind == "Union" and NONE in kind.inner):
            return self._known(negated), {}, {}
        test = self.operator("aten::__isnot__" if negated else "aten::__is__", [value, self.constant(None)])
        if kind == ANY or not isinstance(left, ast.Name):
            return test, {}, {}
        there = kind.inner[0] if kind.kind == "Optional" else Type("Union", tuple([t for t in kind.inner if t != NONE]))
        some, none = {left.id: there}, {left.id: NONE}
        return (test, some, none) if negated else (test, none, some)

    def _isinstance(self, node: ast.Call) -> tuple[Value, dict[str, Type], dict[str, Type]] | None:
        called = self.expression(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else None
        if not (isinstance(called, Special) and called.name == "isinstance") or len(node.args) != 2:
            return None
        value = self.value(node.args[0])
        given = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        wanted = [self._class_asked(g) for g in given]
        kind = value.type()
        self.at = node
        options = [kind.inner[0], NONE] if kind.kind == "Optional" else list(kind.inner) if kind.kind == "Union" else [kind]
        if kind == ANY:
            test = self.node("prim::isinstance", [value], [BOOL], _types=tuple([_any_of(w) for w in wanted]))[0]
            typed = [w for w in wanted if isinstance(w, Type)]
            yes = {node.args[0].id: typed[0]} if len(typed) == len(wanted) == 1 and isinstance(node.args[0], ast.Name) else {}
            return test, yes, {}
        holds = [any(_is_of(o, w) for w in wanted) for o in options]
        if all(holds) or not any(holds):
            return self._known(all(holds)), {}, {}
        there = [o for o, h in zip(options, holds, strict=True) if h]
        rest = [o for o, h in zip(options, holds, strict=True) if not h]
        test = self.node("prim::isinstance", [value], [BOOL], _types=tuple(there))[0]
        if not isinstance(node.args[0], ast.Name):
            return test, {}, {}
        name = node.args[0].id
        return test, {name: _joined(there)}, {name: _joined(rest)}

    def _class_asked(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in ("list", "tuple", "dict"):
            return node.id
        return self.resolver.annotation(self, node)

    def _refine(self, types: dict[str, Type]) -> None:
        """Let names be of the types that a condition has shown."""
        for name, kind in types.items():
            thing = self.scope.get(name)
            if isinstance(thing, Plain) and thing.value(self).type() != kind:
                value = thing.value(self)
                made = self.constant(None) if kind == NONE else self.node("prim::unchecked_cast", [value], [kind])[0]
                made._name = name if kind != NONE else ""
                self.scope[name] = Plain(made)

    # -- what loops go over

    def counted(self, over: Thing) -> Counted:
        """What a loop goes over, by the number of its elements and each at its index."""
        if isinstance(over, Counted):
            return over
        value = over.value(self)
        kind = value.type()
        if kind.kind == "List" or kind == STR:
            return Counted(
                lambda emit: emit.operator("aten::len", [value]), lambda emit, i: Plain(emit.operator("aten::__getitem__", [value, i]))
            )
        if kind.kind == "Dict":
            keys = self.operator("aten::keys", [value])
            return self.counted(Plain(keys))
        if kind == TENSOR:
            zero = self.constant(0)
            return Counted(
                lambda emit: emit.operator("aten::len", [value]), lambda emit, i: Plain(emit.operator("aten::select", [value, zero, i]))
            )
        if isinstance(kind, ClassType):
            length, item = self.attribute_of(value, "__len__"), self.attribute_of(value, "__getitem__")
            return Counted(lambda emit: length.call(emit, [], {}).value(emit), lambda emit, i: item.call(emit, [Plain(i)], {}))
        raise self.error(f"'{text_of(kind)}' object is not iterable")

    def list_of_all(self, counted: Counted) -> Value:
        """A list of what a loop would go over."""
        with self.into(Block()):
            kind = counted.item(self, Value(INT)).value(self).type()
        made = self.list([], kind)
        self._collect(counted, made, lambda thing: self.operator("aten::append", [made, thing.value(self)]))
        return made

    def _collect(self, counted: Counted, made: Value, each: Callable[[Thing], Any]) -> None:
        length = counted.length(self)
        self.node("prim::Loop", [length, self.constant(True)], [])
        block = self.block._nodes[-1].block()
        index = block.given(INT)
        with self.into(block):
            each(counted.item(self, index))
            block._outputs.append(self.constant(True))

    # -- expressions

    def value(self, node: ast.expr, hint: Type | None = None) -> Value:
        """An expression as a value; `hint` is the type it is wanted as, which an empty list is of then."""
        is_tolist = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "tolist"
        if hint is not None and is_tolist:            # of the type that it is wanted as: the tensor does not say how deep it is
            of = self.value(node.func.value)  # type: ignore[attr-defined]
            self.at = node
            if of.type() == TENSOR:
                return self.node("prim::tolist", [of], [hint])[0]
        found = self.expression(node, hint)
        self.at = node
        return found.value(self)

    def expression(self, node: ast.expr, hint: Type | None = None) -> Thing:
        """What an expression stands for."""
        self.at = node
        if isinstance(node, ast.IfExp):
            return self._IfExp(node, hint)
        if isinstance(node, (ast.List, ast.Dict, ast.ListComp, ast.DictComp)) and hint is not None:
            inner = hint.inner[0] if hint.kind == "Optional" else hint
            return getattr(self, f"_{type(node).__name__}")(node, inner)
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is None:
            raise self.error(f"{kind_of(node)} aren't supported")
        return handler(node)

    def _Name(self, node: ast.Name) -> Thing:
        found = self.scope.get(node.id)
        if found is None:
            found = self.resolver.name(self, node.id)
        if found is None:
            found = SPECIALS.get(node.id)
        if found is None:
            raise self.error(f"undefined value {node.id}")
        if isinstance(found, Undefined):
            found.value(self)
        return found

    def _Constant(self, node: ast.Constant) -> Thing:
        if node.value is Ellipsis:
            raise self.error("'...' has a meaning in indices alone")
        if isinstance(node.value, int) and node.value >= 0x8000000000000000:
            raise self.error("Integral constant out of range (must fit in a signed 64 bit integer)")
        return Plain(self.constant(node.value))

    def _Tuple(self, node: ast.Tuple) -> Thing:
        parts = self._all(node.elts)
        if all(isinstance(p, Plain) for p in parts):
            return Plain(self.tuple([p.value(self) for p in parts]))
        return Several(parts)

    def _all(self, nodes: Sequence[ast.expr]) -> list[Thing]:
        """What several expressions stand for; ``*x`` for all of `x`."""
        found: list[Thing] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                parts = self.expression(n.value).elements(self)
                if parts is None:
                    raise self.error("cannot unpack by * what has no known number of elements")
                found += parts
            else:
                found.append(self.expression(n))
        return found

    def _List(self, node: ast.List, hint: Type | None = None) -> Thing:
        inner = hint.inner[0] if hint is not None and hint.kind == "List" else None
        values = [self.value(e, inner) if not isinstance(e, ast.Starred) else e for e in node.elts]
        if any(isinstance(v, ast.Starred) for v in values):
            values = [t.value(self) for t in self._all(node.elts)]
        kind = inner
        if kind is None:
            kind = values[0].type() if values else TENSOR  # type: ignore[union-attr]
            for v in values[1:]:
                kind = unified(kind, v.type()) or union_of([kind, v.type()])  # type: ignore[union-attr]
        made = [self.as_type(v, kind, "an element of a list") for v in values]  # type: ignore[arg-type]
        return Plain(self.list(made, kind))

    def _Dict(self, node: ast.Dict, hint: Type | None = None) -> Thing:
        wanted = hint.inner if hint is not None and hint.kind == "Dict" else (None, None)
        flat: list[Value] = []
        for k, v in zip(node.keys, node.values, strict=True):
            if k is None:
                raise self.error("** in dicts isn't supported")
            flat += [self.value(k, wanted[0]), self.value(v, wanted[1])]
        key = wanted[0] or (flat[0].type() if flat else STR)
        held = wanted[1] or (flat[1].type() if flat else TENSOR)
        for v in flat[3::2]:
            held = unified(held, v.type()) or union_of([held, v.type()])
        made = [self.as_type(v, held if i % 2 else key, "an element of a dict") for i, v in enumerate(flat)]
        return Plain(self.node("prim::DictConstruct", made, [dict_of(key, held)])[0])

    def _ListComp(self, node: ast.ListComp, hint: Type | None = None) -> Thing:
        return self._comprehension(node, lambda: self.expression(node.elt), None)

    def _GeneratorExp(self, node: ast.GeneratorExp, hint: Type | None = None) -> Thing:
        return self._comprehension(node, lambda: self.expression(node.elt), None)

    def _DictComp(self, node: ast.DictComp, hint: Type | None = None) -> Thing:
        return self._comprehension(node, lambda: self.expression(node.key), lambda: self.expression(node.value))

    def _comprehension(self, node: Any, first: Callable[[], Thing], second: Callable[[], Thing] | None) -> Thing:
        if len(node.generators) != 1 or node.generators[0].ifs:
            raise self.error("comprehensions have one 'for' and no 'if' in scripts")
        generator = node.generators[0]
        over = self.expression(generator.iter)
        before = dict(self.scope)
        parts = over.elements(self)
        if parts is not None and second is None:
            made = []
            for p in parts:
                self.assign(generator.target, p)
                made.append(first().value(self))
            self.scope = before
            if not made:
                return Plain(self.list([], TENSOR))
            return Plain(self.list(made, made[0].type()))
        counted = self.counted(over)
        with self.into(Block()):
            self.assign(generator.target, counted.item(self, Value(INT)))
            kinds = [first().value(self).type(), *([] if second is None else [second().value(self).type()])]
        made_value = self.list([], kinds[0]) if second is None else self.node("prim::DictConstruct", [], [dict_of(*kinds)])[0]

        def each(thing: Thing) -> None:
            self.assign(generator.target, thing)
            if second is None:
                self.operator("aten::append", [made_value, first().value(self)])
            else:
                self.operator("aten::_set_item", [made_value, first().value(self), second().value(self)])

        self._collect(counted, made_value, each)
        self.scope = before
        return Plain(made_value)

    def _Attribute(self, node: ast.Attribute) -> Thing:
        of = self.expression(node.value)
        self.at = node
        return of.attribute(self, node.attr)

    def _Call(self, node: ast.Call) -> Thing:
        called = self.expression(node.func)
        if isinstance(called, Special) and called.name in OF_TREES:
            self.at = node
            return OF_TREES[called.name](self, node)
        args = self._all(node.args)
        kwargs: dict[str, Thing] = {}
        for k in node.keywords:
            if k.arg is None:
                raise self.error("keyword-arg expansion is not supported")
            kwargs[k.arg] = self.expression(k.value)
        self.at = node
        return called.call(self, args, kwargs)

    def _JoinedStr(self, node: ast.JoinedStr) -> Thing:
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                if part.conversion != -1 or part.format_spec is not None:
                    raise self.error("formats and conversions in f-strings aren't supported")
                text += "{}"
                values.append(self.value(part.value))
        self.at = node
        return Plain(self.format(text, values))

    def format(self, text: str | Value, values: list[Value]) -> Value:
        """The text with the values in the places of its braces."""
        first = text if isinstance(text, Value) else self.constant(text)
        return self.node("aten::format", [first, *values], [STR])[0]

    def _IfExp(self, node: ast.IfExp, hint: Type | None = None) -> Thing:
        test, yes, no = self._condition(node.test)
        self.at = node
        if isinstance(test.fact, bool):
            self._refine(yes if test.fact else no)
            return self.expression(node.body if test.fact else node.orelse, hint)
        made: dict[str, Thing] = {}

        def side(types: dict[str, Type], part: ast.expr) -> Callable[[], None]:
            def run() -> None:
                self._refine(types)
                self.scope = {"$chosen": Plain(self.value(part, hint))}

            return run

        before = dict(self.scope)
        self.scope = dict(before)
        self._branch(test, side(yes, node.body), side(no, node.orelse))
        made["chosen"] = self.scope["$chosen"]
        self.scope = before
        return made["chosen"]

    def _BoolOp(self, node: ast.BoolOp) -> Thing:
        return Plain(self._condition(node)[0])

    def _UnaryOp(self, node: ast.UnaryOp) -> Thing:
        if isinstance(node.op, ast.Not):
            return Plain(self._condition(node)[0])
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, (int, float)):
            return Plain(self.constant(-node.operand.value))
        value = self.value(node.operand)
        self.at = node
        if isinstance(node.op, ast.USub):
            return Plain(self.operator("aten::neg", [value]))
        if isinstance(node.op, ast.Invert):
            return Plain(self.operator("aten::bitwise_not", [value]))
        return Plain(value)

    def _BinOp(self, node: ast.BinOp) -> Thing:
        name = BINARY.get(type(node.op))
        if name is None:
            raise self.error(f"{kind_of(node.op)} isn't supported")
        left = self.expression(node.left)
        right = self.expression(node.right)
        self.at = node
        if isinstance(left, Several) or isinstance(right, Several):
            both = [left.elements(self), right.elements(self)]
            if name == "aten::add" and None not in both:
                return Several([*(both[0] or []), *(both[1] or [])])
        return Plain(self._binary(name, left.value(self), right.value(self)))

    def _binary(self, name: str, a: Value, b: Value) -> Value:
        if a.type() == STR and name == "aten::remainder":
            parts = self.unpacked(b) if b.type().kind == "Tuple" else [b]
            return self.node("aten::percentFormat", [a, *parts], [STR])[0]
        if a.type().kind == b.type().kind == "Tuple" and name == "aten::add":
            return self.tuple([*self.unpacked(a), *self.unpacked(b)])
        owner = a.type()
        if isinstance(owner, ClassType):
            method = self.method_of(owner, _DUNDER[name])
            if method is not None:
                return Method(a, method).call(self, [Plain(b)], {}).value(self)
        if name == "aten::floordiv" and TENSOR in (a.type(), b.type()):
            name = "aten::floor_divide"
        if a.type() != TENSOR and b.type() == TENSOR:  # as Python asks the tensor when the number does not know
            reverse = _REVERSED.get(name)
            if reverse is not None:
                return reverse(self, a, b)
        return self.operator(name, [a, b])

    def _Compare(self, node: ast.Compare) -> Thing:
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            found = self._is_none(node)
            if found is not None:
                return Plain(found[0])
        left = self.value(node.left)
        results: list[Value] = []
        for op, right in zip(node.ops, node.comparators, strict=True):
            by = self.value(right)
            self.at = node
            results.append(self._compared(op, left, by))
            left = by
        made = results[0]
        for r in results[1:]:
            made = self.operator("aten::__and__", [made, r])
        return Plain(made)

    def _compared(self, op: ast.cmpop, a: Value, b: Value) -> Value:
        if isinstance(op, (ast.In, ast.NotIn)):
            if b.type().kind == "Tuple":
                b = self.list(self.unpacked(b), b.type().inner[0])
            container = b.type()
            if isinstance(container, ClassType) and container.is_module and self.is_container(container) and isinstance(a.fact, str):
                found = self.constant(a.fact in self.parts_of(container))
            elif isinstance(container, ClassType) and self.method_of(container, "__contains__") is not None:
                found = self.attribute_of(b, "__contains__").call(self, [Plain(a)], {}).value(self)
            elif a.type() == b.type() == STR:
                at = self.operator("aten::find", [b, a, self.constant(0), self.operator("aten::len", [b])])
                found = self.operator("aten::ne", [at, self.constant(-1)])
            else:
                found = self.operator("aten::__contains__", [b, a])
            return found if isinstance(op, ast.In) else self.operator("aten::__not__", [found])
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self.operator("aten::__is__" if isinstance(op, ast.Is) else "aten::__isnot__", [a, b])
        name = _COMPARED[type(op)]
        if a.type().kind == b.type().kind == "Tuple" and len(a.type().inner) == len(b.type().inner):
            parts = [self.operator("aten::eq", [x, y]) for x, y in zip(self.unpacked(a), self.unpacked(b), strict=True)]
            made = parts[0] if parts else self.constant(True)
            for p in parts[1:]:
                made = self.operator("aten::__and__", [made, p])
            return made if name == "aten::eq" else self.operator("aten::__not__", [made])
        if NONE in (a.type(), b.type()) and name in ("aten::eq", "aten::ne"):
            return self.operator("aten::__is__" if name == "aten::eq" else "aten::__isnot__", [a, b])
        owner = a.type()
        if isinstance(owner, ClassType):
            method = self.method_of(owner, _DUNDER[name])
            if method is not None:
                return Method(a, method).call(self, [Plain(b)], {}).value(self)
        if a.type() != TENSOR and b.type() == TENSOR:
            a, b, name = b, a, _TURNED.get(name, name)
        return self.operator(name, [a, b])

    # -- indices

    def _Subscript(self, node: ast.Subscript) -> Thing:
        of = self.expression(node.value)
        self.at = node
        has_parts = not isinstance(of, Plain) or of.value(self).type().kind == "Tuple" or self._is_module(of)
        parts = of.elements(self) if has_parts else None
        if parts is not None:
            found = self._part(of, parts, node)
            if found is not None:
                return found
        value = of.value(self)
        kind = value.type()
        if kind == TENSOR:
            view, indices = self._view_and_indices(value, node.slice)
            return Plain(view if indices is None else self.operator("aten::index", [view, indices]))
        if isinstance(node.slice, ast.Slice):
            return Plain(self.operator("aten::slice", [value, *self._bounds(node.slice)]))
        if isinstance(kind, ClassType) and not kind.is_module:
            return self.attribute_of(value, "__getitem__").call(self, [self.expression(node.slice)], {})
        found = self.expression(node.slice)
        self.at = node
        if isinstance(found, Slice):
            return Plain(self.operator("aten::slice", [value, *self._bounds(found)]))
        return Plain(self.operator("aten::__getitem__", [value, found.value(self)]))

    def _bounds(self, s: ast.Slice | Slice) -> list[Value]:
        """Begin, end and step of a slice."""
        if isinstance(s, Slice):
            given = s.bounds
        else:
            given = [None if b is None else self.value(b) for b in (s.lower, s.upper, s.step)]
        known = [self.constant(None) if b is None or b.type() == NONE else b for b in given]
        return [*known[:2], self.constant(1) if known[2].type() == NONE else known[2]]

    def _is_module(self, thing: Plain) -> bool:
        kind = thing.value(self).type()
        return isinstance(kind, ClassType) and kind.is_module

    def _part(self, of: Thing, parts: list[Thing], node: ast.Subscript) -> Thing | None:
        """An element of a tuple or of a list of modules, at an index that is known."""
        s = node.slice
        if isinstance(s, ast.Slice):
            bounds = [None if b is None else self.value(b).fact for b in (s.lower, s.upper, s.step)]
            chosen = parts[slice(*bounds)]
            if all(isinstance(p, Plain) for p in chosen) and not (isinstance(of, Plain) and self._is_module(of)):
                return Plain(self.tuple([p.value(self) for p in chosen]))
            return Several(chosen)
        index = self.value(s)
        if isinstance(index.fact, str) and isinstance(of, Plain):
            return self.attribute_of(of.value(self), index.fact)
        if not isinstance(index.fact, int):
            kind = of.value(self).type() if isinstance(of, Plain) else NONE
            if kind.kind == "Tuple" and len(set(kind.inner)) == 1:
                return Plain(self.node("prim::TupleIndex", [of.value(self), index], [kind.inner[0]])[0])
            if isinstance(kind, ClassType) and kind.is_module:
                raise self.error(
                    "Unable to index into a module container with an index that is no constant: enumerate it, or annotate an interface"
                )
            raise self.error(
                f"Cannot index into a {text_of(of.value(self).type())} with a non-integer literal because we cannot resolve the output type"
            )
        if not -len(parts) <= index.fact < len(parts):
            raise self.error("Tuple index out of range")
        return parts[index.fact]

    def _view_and_indices(self, value: Value, index: ast.expr) -> tuple[Value, Value | None]:
        """The view of a tensor that an index takes, and the list of tensors that index it then, or None."""
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        # Graphs write the object's name.
        parts = [ast.copy_location(ast.Constant(...), p) if isinstance(p, ast.Name) and p.id == "Ellipsis" else p for p in parts]
        ellipses = [i for i, p in enumerate(parts) if isinstance(p, ast.Constant) and p.value is Ellipsis]
        dim, tensors = 0, []
        view, at = value, self.at
        known: list[Any] = []
        for p in parts:
            if isinstance(p, ast.Slice) or isinstance(p, ast.Constant) and p.value in (Ellipsis, None) and not isinstance(p.value, bool):
                known.append(p)
            else:
                found = self.expression(p)
                if isinstance(found, Slice):
                    known.append(found)
                    continue
                inside = found.elements(self) if len(parts) == 1 and not isinstance(p, ast.Tuple) else None
                known += [t.value(self) for t in inside] if inside is not None else [found.value(self)]
        self.at = at
        if ellipses and len(known) != len(parts):
            ellipses = [i for i, p in enumerate(known) if isinstance(p, ast.Constant) and p.value is Ellipsis]
        for i, p in enumerate(known):
            if ellipses and i == ellipses[0]:
                behind = sum(1 for q in known[i + 1 :] if not (isinstance(q, ast.Constant) and q.value is None or _is_none_value(q)))
                new = sum(1 for q in known[i + 1 :] if isinstance(q, ast.Constant) and q.value is None or _is_none_value(q))
                dim = -behind - new
                continue
            if isinstance(p, (ast.Slice, Slice)):
                is_whole = isinstance(p, ast.Slice) and p.lower is None and p.upper is None and p.step is None
                bounds = self._bounds(p)
                if not is_whole or len(known) == 1:
                    view = self.operator("aten::slice", [view, self.constant(dim), *bounds])
                dim += 1
            elif isinstance(p, ast.Constant) or _is_none_value(p):
                view = self.operator("aten::unsqueeze", [view, self.constant(dim)])
                dim += 1
            elif p.type() == INT:
                view = self.operator("aten::select", [view, self.constant(dim), p])
                dim += 1 if dim < 0 else 0
            else:
                if p.type().kind == "List" or p.type() == BOOL:
                    p = self.operator("aten::tensor", [p])
                tensors.append((dim, p))
                dim += 1
        if not tensors:
            return view, None
        if tensors[0][0] < 0:
            raise self.error("tensors behind '...' in an index aren't supported in scripts")
        last = tensors[-1][0]
        by_dim = dict(tensors)
        nothing = self.constant(None)
        listed = [by_dim.get(d, nothing) for d in range(last + 1)]
        return view, self.list(listed, optional(TENSOR))

    # -- attributes

    def python(self, found: Any, name: str, home: Any = None) -> Thing:
        """What a Python object stands for."""
        return self.resolver.python(self, found, name, home)

    def method_of(self, kind: Type, name: str) -> Function | None:
        """The method of a class, or None."""
        if not isinstance(kind, ClassType):
            return None
        return kind.methods.get(name) or self.resolver.method(kind, name)

    def is_container(self, kind: ClassType) -> bool:
        """Whether the modules of the class are gone through by loops."""
        return getattr(kind.python_class, "__name__", kind.name.rpartition(".")[2]) in ("ModuleList", "Sequential", "ModuleDict") or bool(
            getattr(kind, "is_container", False)
        )

    def parts_of(self, kind: ClassType) -> list[str]:
        """The names of the modules in a module, in their order."""
        return [n for n, t in kind.attributes.items() if isinstance(t, ClassType) and t.is_module]

    def attribute_of(self, value: Value, name: str) -> Thing:
        """The attribute of a value."""
        kind = value.type()
        if isinstance(kind, ClassType):
            return self._attribute_of_object(value, kind, name)
        if kind == TENSOR:
            return self._attribute_of_tensor(value, name)
        if isinstance(kind, NamedTupleType):
            if name in kind.fields:  # type: ignore[attr-defined]
                return Plain(self.unpacked(value)[kind.fields.index(name)])  # type: ignore[attr-defined]
            raise self.error(f"Unknown attribute to named tuple: {name}")
        if isinstance(kind, NamedResults) and name in kind.fields:
            return Plain(self.unpacked(value)[kind.fields.index(name)])
        if isinstance(kind, EnumType) and name in ("name", "value"):
            return Plain(self.node(f"prim::Enum{name.title()}", [value], [STR if name == "name" else kind.value])[0])  # type: ignore[attr-defined]
        if kind == DEVICE and name in ("type", "index"):
            return Plain(self.operator(f"prim::{name}", [value]))
        if kind in (NUMBER, COMPLEX, FLOAT, INT) and name in ("real", "imag"):
            return Plain(self.operator(f"aten::{name}", [value]))
        if kind.kind == "Optional":
            raise self.error(f"'{text_of(kind)}' object has no attribute or method '{name}'. Did you forget to check for None?")
        if kind.kind == "Future" and name == "wait":
            return Special("wait", lambda emit, args, kwargs: Plain(emit.node("aten::wait", [value], [kind.inner[0]])[0]))
        if kind == STR and name == "format":
            return Special("format", lambda emit, args, kwargs: Plain(emit.format(value, [a.value(emit) for a in args])))
        if schemas_of(f"aten::{name}"):
            return Operator(f"aten::{name}", value)
        raise self.error(f"'{text_of(kind)}' object has no attribute or method '{name}'.")

    def _attribute_of_tensor(self, value: Value, name: str) -> Thing:
        if name in _TENSOR_FACTS:
            return Plain(self.operator(_TENSOR_FACTS[name], [value]))
        if name in ("dtype", "device", "layout", "requires_grad", "data", "is_cuda", "is_cpu", "is_sparse", "is_quantized", "is_meta",
                    "itemsize", "nbytes", "is_nested", "is_mkldnn", "is_xpu", "is_mps", "name", "is_sparse_csr"):  # fmt: skip
            return Plain(self.operator(f"prim::{name}", [value]))
        if name == "new":
            raise self.error("Tensor.new isn't supported; use new_empty or new_tensor")
        if name == "type":
            return Special("type", lambda emit, args, kwargs: Operator("aten::to", value).call(emit, args, kwargs))
        if name in METHODS:
            return Special(name, lambda emit, args, kwargs: METHODS[name](emit, value, args, kwargs))
        if name in _DUNDERS:
            other = _DUNDERS[name]
            return Special(name, lambda emit, args, kwargs: Plain(emit._binary(other, value, args[0].value(emit))))
        if schemas_of(f"aten::{name}"):
            return Operator(f"aten::{name}", value)
        raise self.error(f"'Tensor' object has no attribute or method '{name}'.")

    def _attribute_of_object(self, value: Value, kind: ClassType, name: str) -> Thing:
        if name in kind.constants:
            return self._constant_of(kind.constants[name])
        if name in kind.attributes:
            made = self.node("prim::GetAttr", [value], [kind.attributes[name]], name=name)[0]
            made._name = name if name.isidentifier() else ""
            return Plain(made)
        if kind.is_module and name in OF_CONTAINERS and self.is_container(kind):
            return Special(name, lambda emit, args, kwargs: OF_CONTAINERS[name](emit, value, kind))
        found = self.method_of(kind, name)
        if found is not None:
            if found.python is not None:
                return PythonFunction(found, found.python == "unused", value)
            return Method(value, found)
        special = self.resolver.attribute(self, value, kind, name)  # type: ignore[attr-defined]
        if special is not None:
            return special
        if kind.is_module and name in ("children", "named_children"):
            return Special(name, lambda emit, args, kwargs: OF_CONTAINERS[name](emit, value, kind))
        raise self.error(f"Module '{kind.name.rpartition('.')[2]}' has no attribute '{name}' " if kind.is_module else
                         f"Tried to access nonexistent attribute or method '{name}' of type '{kind.name}'")  # fmt: skip

    def _constant_of(self, value: Any) -> Thing:
        """A constant of a module, whose value branches may ask for while they are compiled."""
        try:
            return Plain(self.constant(value))
        except NoType as error:
            raise self.error(str(error)) from None


def _is_none_value(x: Any) -> bool:
    return isinstance(x, Value) and x.type() == NONE


def _joined(kinds: list[Type]) -> Type:
    if len(kinds) == 1:
        return kinds[0]
    rest = [k for k in kinds if k != NONE]
    if len(rest) == 1:
        return optional(rest[0])
    return union_of(kinds)


def _any_of(wanted: Any) -> Type:
    """The type that a class of containers stands for, whatever is in them."""
    return Type(f"Any{wanted.title()}Type") if isinstance(wanted, str) else wanted


def _is_of(given: Type, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return given.kind == wanted.title()
    return is_subtype(given, wanted)


def kind_of(node: ast.AST) -> str:
    words = {"Yield": "yield statements", "Lambda": "lambdas", "Try": "try blocks", "Global": "global statements",
             "ClassDef": "class definitions", "FunctionDef": "function definitions", "Nonlocal": "nonlocal statements",
             "Set": "sets", "SetComp": "set comprehensions", "GeneratorExp": "generator expressions", "Await": "await expressions",
             "NamedExpr": "assignment expressions", "Starred": "starred expressions", "MatMult": "@"}  # fmt: skip
    return words.get(type(node).__name__, type(node).__name__)


BINARY: dict[type, str] = {
    ast.Add: "aten::add", ast.Sub: "aten::sub", ast.Mult: "aten::mul", ast.Div: "aten::div", ast.FloorDiv: "aten::floordiv",
    ast.Mod: "aten::remainder", ast.Pow: "aten::pow", ast.MatMult: "aten::matmul", ast.BitAnd: "aten::__and__", ast.BitOr: "aten::__or__",
    ast.BitXor: "aten::__xor__", ast.LShift: "aten::__lshift__", ast.RShift: "aten::__rshift__",
}  # fmt: skip
IN_PLACE = {
    "aten::add": "aten::add_", "aten::sub": "aten::sub_", "aten::mul": "aten::mul_", "aten::div": "aten::div_",
    "aten::floordiv": "aten::floor_divide_", "aten::remainder": "aten::remainder_", "aten::pow": "aten::pow_",
    "aten::__and__": "aten::__iand__", "aten::__or__": "aten::__ior__", "aten::__xor__": "aten::__ixor__",
    "aten::__lshift__": "aten::__ilshift__", "aten::__rshift__": "aten::__irshift__",
}  # fmt: skip
_COMPARED: dict[type, str] = {
    ast.Eq: "aten::eq", ast.NotEq: "aten::ne", ast.Lt: "aten::lt", ast.LtE: "aten::le", ast.Gt: "aten::gt", ast.GtE: "aten::ge",
}  # fmt: skip
_TURNED = {"aten::lt": "aten::gt", "aten::gt": "aten::lt", "aten::le": "aten::ge", "aten::ge": "aten::le"}
_DUNDER = {
    "aten::add": "__add__", "aten::sub": "__sub__", "aten::mul": "__mul__", "aten::div": "__truediv__", "aten::floordiv": "__floordiv__",
    "aten::remainder": "__mod__", "aten::pow": "__pow__", "aten::matmul": "__matmul__", "aten::__and__": "__and__",
    "aten::__or__": "__or__",
    "aten::__xor__": "__xor__", "aten::__lshift__": "__lshift__", "aten::__rshift__": "__rshift__", "aten::eq": "__eq__",
    "aten::ne": "__ne__", "aten::lt": "__lt__", "aten::le": "__le__", "aten::gt": "__gt__", "aten::ge": "__ge__",
}  # fmt: skip
_DUNDERS = {d: n for n, d in _DUNDER.items()}
_REVERSED: dict[str, Callable[[Expressions, Value, Value], Value]] = {
    "aten::add": lambda emit, a, b: emit.operator("aten::add", [b, a]),
    "aten::mul": lambda emit, a, b: emit.operator("aten::mul", [b, a]),
    "aten::sub": lambda emit, a, b: emit.operator("aten::rsub", [b, a]),
    "aten::div": lambda emit, a, b: emit.operator("aten::mul", [emit.operator("aten::reciprocal", [b]), a]),
    "aten::__and__": lambda emit, a, b: emit.operator("aten::__and__", [b, a]),
    "aten::__or__": lambda emit, a, b: emit.operator("aten::__or__", [b, a]),
    "aten::__xor__": lambda emit, a, b: emit.operator("aten::__xor__", [b, a]),
}
_TENSOR_FACTS = {
    "shape": "aten::size", "ndim": "aten::dim", "T": "aten::numpy_T", "mT": "aten::mT", "H": "aten::matrix_H", "mH": "aten::mH",
    "grad": "prim::grad", "real": "aten::real", "imag": "aten::imag", "is_leaf": "aten::is_leaf",
}  # fmt: skip
