"""The compiler of scripts: from the syntax tree of a function to a graph of typed values that are assigned once.

`Emitter` writes the nodes of one function. What names stand for is in `_names.py`; a resolver finds them, in Python (`_python.py`) or in
an archive (`_text.py`). ``return``, ``break`` and ``continue`` in the middle of statements become values that say what has happened:
what follows them stands in the other branch, or in one of its own that asks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from .._schema import Type
from ._emit import Place, Resolver, ScriptError, Source, Undefined
from ._expressions import BINARY, IN_PLACE, Expressions, kind_of
from ._ir import Block, Function, Parameter, Value
from ._names import Namespace, Plain, Several, Thing
from ._specials import GradMode, NoEffect, PythonContext
from ._types import ANY, BOOL, FLOAT, INT, NONE, STR, TENSOR, is_subtype, normal, text_of

__all__ = ["Emitter", "Resolver", "ScriptError", "Source", "compiled"]

_FOREVER = 9223372036854775807


# -- ways out of blocks --------------------------------------------------------------------------------------------------

_OUT = (ast.Return, ast.Break, ast.Continue, ast.Raise)


def _exits(body: Sequence[ast.stmt], kinds: Any = _OUT) -> bool:
    """Whether the statements may leave their block. ``break`` and ``continue`` of loops among them do not."""
    for s in body:
        if isinstance(s, kinds):
            return True
        if isinstance(s, (ast.For, ast.While)):
            if ast.Return in kinds and _exits(s.body, (ast.Return,)):
                return True
        elif isinstance(s, ast.If):
            if _exits(s.body, kinds) or _exits(s.orelse, kinds):
                return True
        elif isinstance(s, ast.With) and _exits(s.body, kinds):
            return True
    return False


def _always_exits(body: Sequence[ast.stmt]) -> bool:
    """Whether the statements leave their block on every way."""
    for s in body:
        if isinstance(s, _OUT):
            return True
        if isinstance(s, ast.If) and s.orelse and _always_exits(s.body) and _always_exits(s.orelse):
            return True
        if isinstance(s, ast.With) and _always_exits(s.body):
            return True
        if isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and s.test.value is True and not _exits(s.body, (ast.Break,)):
            return True
    return False


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    """The names that the statements assign to, in their order."""
    found: dict[str, None] = {}
    for s in body:
        for node in ast.walk(s):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
            elif isinstance(node, (ast.ListComp, ast.DictComp)):
                for g in node.generators:
                    for n in ast.walk(g.target):
                        if isinstance(n, ast.Name):
                            found.pop(n.id, None)
    return list(found)


_FLAGS = ("$returned", "$broken", "$continued")


class Emitter(Expressions):
    """Writes the nodes of a function."""

    # -- functions

    def function_body(self, body: list[ast.stmt]) -> None:
        """Compile the statements of the function."""
        for p in self.function.parameters:
            kind = normal(p.type)                     # lists that one number may be given for are lists inside
            self.scope[p.name] = Plain(self.function.graph.given(kind, p.name))
            self.declared[p.name] = kind
        if _needs_flag(body):
            self.scope["$returned"] = Plain(self.constant(False))
        if not _always_exits(body):
            end = ast.Return(value=None)
            body = [*body, ast.copy_location(end, body[-1]) if body else end]
        self.statements(body)
        result = self.scope.get("$result")
        if result is None:                            # every way raises
            value = self.uninitialized(self.function.result) if self.function.result not in (None, NONE) else self.constant(None)
        else:
            value = result.value(self)
        if self.function.result is None:
            self.function.result = value.type()
        self.function.graph._outputs = [self.as_type(value, self.function.result, "the result")]

    def result_of(self, function: Function) -> Type:
        """The type of what a function returns."""
        if function.result is None:
            raise self.error(
                f"Function '{function.short_name}' is called while it is compiled: annotate its result, for a recursive call has no "
                "type yet"
            )
        return function.result

    def bound(self, function: Function, args: list[Thing], kwargs: dict[str, Thing]) -> list[Value]:
        """Values for the parameters of a function."""
        named = dict(kwargs)
        inputs = []
        if len(args) > len(function.parameters):
            raise self.error(f"Expected at most {len(function.parameters)} arguments but found {len(args)} positional arguments")
        for at, p in enumerate(function.parameters):
            if at < len(args):
                if p.name in named:
                    raise self.error(f"argument {p.name} specified twice")
                given = args[at].value(self)
            elif p.name in named:
                given = named.pop(p.name).value(self)
            elif p.default is not Parameter.NONE_GIVEN:
                given = self.constant(p.default, p.type)
            else:
                raise self.error(f"{function.short_name}() is missing value for argument '{p.name}'. Declaration: {function.schema_text()}")
            inputs.append(self._argument(given, p, function))
        if named:
            raise self.error(f"Unknown keyword argument '{next(iter(named))}' for '{function.short_name}'")
        return inputs

    def _argument(self, given: Value, p: Parameter, function: Function) -> Value:
        kind = given.type()
        inner = p.type.inner[0] if p.type.kind == "Optional" else p.type
        if inner.size is not None and inner.inner[0] == FLOAT and isinstance(given.fact, int):
            given, kind = self.constant(float(given.fact)), FLOAT
        if inner.size is not None and is_subtype(kind, inner.inner[0]):
            return self.list([given] * inner.size, inner.inner[0])
        if inner.kind == "List" and kind.kind == "Tuple" and all(is_subtype(t, inner.inner[0]) for t in kind.inner):
            return self.list(self.unpacked(given), inner.inner[0])
        return self.as_type(given, normal(p.type), f"argument '{p.name}' of {function.short_name}()")

    # -- statements

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Compile statements, and what follows a way out of them where it belongs."""
        for at, s in enumerate(body):
            self.at = s
            rest = body[at + 1 :]
            if isinstance(s, ast.If) and (_exits(s.body) or _exits(s.orelse)):
                first, second = _always_exits(s.body), _always_exits(s.orelse)
                if first or second:
                    joined = ast.If(s.test, [*s.body, *([] if first else rest)], [*s.orelse, *([] if second else rest)])
                    self._if(ast.copy_location(joined, s))
                    return
                self._if(s)
                self._unless_left(rest)
                return
            self._statement(s)
            if self.exited:
                return
            if isinstance(s, (ast.For, ast.While, ast.With)) and _exits([s]):
                self._unless_left(rest)
                return

    def _unless_left(self, rest: Sequence[ast.stmt]) -> None:
        """Compile `rest` for the ways on which nothing has left the block."""
        flags = [self.scope[f].value(self) for f in _FLAGS if f in self.scope]
        flags = [f for f in flags if f.fact is not False]
        if not rest or not flags:
            self.statements(rest)
            return
        left = flags[0]
        for f in flags[1:]:
            left = self.operator("aten::__or__", [left, f])
        self._branch(left, lambda: None, lambda: self.statements(rest))

    def _statement(self, s: ast.stmt) -> None:
        handler = getattr(self, f"_{type(s).__name__}", None)
        if handler is None:
            raise self.error(f"{kind_of(s)} aren't supported")
        handler(s)

    def _Pass(self, s: ast.Pass) -> None:
        pass

    def _Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.expression(s.value)

    def _Import(self, s: Any) -> None:
        """Names that are imported inside a function are looked up in the module."""
        import importlib

        for alias in s.names:
            module = importlib.import_module(alias.name)
            self.scope[(alias.asname or alias.name).partition(".")[0]] = Namespace(module)

    def _ImportFrom(self, s: ast.ImportFrom) -> None:
        import importlib

        module = importlib.import_module(s.module or "")
        for alias in s.names:
            self.scope[alias.asname or alias.name] = self.python(getattr(module, alias.name), alias.name, module)

    def _Return(self, s: ast.Return) -> None:
        wanted = self.function.result
        value = self.constant(None) if s.value is None else self.value(s.value, wanted)
        self.at = s
        if wanted is not None:
            value = self.as_type(value, wanted, "the result")
        self.scope["$result"] = Plain(value)
        if "$returned" in self.scope:
            self.scope["$returned"] = Plain(self.constant(True))
        self.exited = True

    def _Break(self, s: ast.Break) -> None:
        self.scope["$broken"] = Plain(self.constant(True))
        self.exited = True

    def _Continue(self, s: ast.Continue) -> None:
        self.scope["$continued"] = Plain(self.constant(True))
        self.exited = True

    def _Raise(self, s: ast.Raise) -> None:
        if s.exc is None:
            raise self.error("a raise without an exception is not supported")
        called = s.exc.func if isinstance(s.exc, ast.Call) else s.exc
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else "Exception"
        found = self.resolver.exception(name)
        message = self.constant("")
        if isinstance(s.exc, ast.Call) and s.exc.args:
            parts = [self.value(a) for a in s.exc.args]
            message = parts[0] if parts[0].type() == STR else self.operator("aten::str", [parts[0]])
        elif not isinstance(s.exc, ast.Call):
            found = None                              # the class alone: its name is not kept
        self.at = s
        self.raises(message, found or "builtins.RuntimeError")

    def _Assert(self, s: ast.Assert) -> None:
        test, yes, _ = self._condition(s.test)
        if test.fact is True:
            return
        before = dict(self.scope)

        def fail() -> None:
            text = self.constant("AssertionError: ")
            if s.msg is not None:
                given = self.value(s.msg)
                text = self.operator("aten::add", [text, given if given.type() == STR else self.operator("aten::str", [given])])
            self.at = s
            self.raises(text, "builtins.AssertionError")

        self._branch(test, lambda: None, fail)
        self.scope = before
        self._refine(yes)

    def _Delete(self, s: ast.Delete) -> None:
        for target in s.targets:
            if isinstance(target, ast.Name):
                self.scope.pop(target.id, None)
            elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
                self.operator("aten::Delete", [self.value(target.value), self.value(target.slice)])
            else:
                self.at = target
                if isinstance(target, ast.Subscript):
                    raise self.error("del statements only support deletion at a single index, slicing is not supported")
                raise self.error("del statements are only supported for deleting list and dict items and variables")

    def _Assign(self, s: ast.Assign) -> None:
        found = self.expression(s.value)
        for target in s.targets:
            self.assign(target, found)

    def _AnnAssign(self, s: ast.AnnAssign) -> None:
        kind = self.resolver.annotation(self, s.annotation)
        if s.value is None:
            if isinstance(s.target, ast.Name):
                self.declared[s.target.id] = kind
            return
        value = self.as_type(self.value(s.value, kind), kind, "an annotated variable")
        value = self._declared_as(value, kind)
        if isinstance(s.target, ast.Name):
            self.declared[s.target.id] = kind
        self.assign(s.target, Plain(value))

    def _declared_as(self, value: Value, kind: Type) -> Value:
        """The value under a wider type that it was declared of. None of an Optional stays one that may be another."""
        if value.type() == kind or kind.kind != "Optional" or value.type() != NONE:
            return value
        return self.node("prim::unchecked_cast", [value], [kind])[0]

    def _AugAssign(self, s: ast.AugAssign) -> None:
        name = BINARY.get(type(s.op))
        if name is None:
            raise self.error(f"{kind_of(s.op)} isn't supported")
        now = self.value(_loaded(s.target))
        by = self.value(s.value)
        self.at = s
        extends = now.type().kind == "List" and name == "aten::add"
        in_place = IN_PLACE.get(name) if now.type() == TENSOR else "aten::add_" if extends else None
        if in_place is not None:
            made = self.operator(in_place, [now, by])
            if isinstance(s.target, ast.Subscript):
                return                                # a view, whose elements were written
        else:
            made = self._binary(name, now, by)
        self.assign(s.target, Plain(made))

    def assign(self, target: ast.expr, found: Thing) -> None:
        """Let `target` be what was found."""
        self.at = target
        if isinstance(target, ast.Name):
            if isinstance(found, Plain):
                value = found.value(self)
                wanted = self.declared.get(target.id)
                if wanted is not None and self.block is self.function.graph and not is_subtype(value.type(), wanted):
                    del self.declared[target.id]      # outside of branches and loops a name may begin anew
                elif wanted is not None:
                    value = self._kept_in_loop(target.id, value, wanted)
                if not value._name and value.node is not None and value.node.kind() != "prim::Constant":
                    value._name = target.id
                found = Plain(value)
            self.scope[target.id] = found
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_parts(target.elts, found)
        elif isinstance(target, ast.Attribute):
            self.expression(target.value).set_attribute(self, target.attr, found.value(self))
        elif isinstance(target, ast.Subscript):
            self._assign_element(target, found.value(self))
        else:
            raise self.error(f"{kind_of(target)} cannot be assigned to")

    def _assign_parts(self, targets: list[ast.expr], found: Thing) -> None:
        parts = found.elements(self)
        starred = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if parts is None:
            value = found.value(self)
            if value.type().kind == "List" and not starred:
                made = self.node("prim::ListUnpack", [value], [value.type().inner[0]] * len(targets))
                parts = [Plain(v) for v in made]
            else:
                raise self.error(f"Provided {len(targets)} targets but a {found.what()} cannot be unpacked")
        if len(starred) == 1:
            at, behind = starred[0], len(targets) - starred[0] - 1
            middle = Several(parts[at : len(parts) - behind])
            parts = [*parts[:at], middle, *parts[len(parts) - behind :]]
            targets = [t.value if isinstance(t, ast.Starred) else t for t in targets]
        if len(parts) != len(targets):
            too = "many" if len(parts) > len(targets) else "few"
            raise self.error(f"too {too} values to unpack: need {len(targets)} but found {len(parts)}")
        for t, p in zip(targets, parts, strict=True):
            self.assign(t, p)

    def _assign_element(self, target: ast.Subscript, value: Value) -> None:
        of = self.value(target.value)
        if of.type() == TENSOR:
            views, indices = self._view_and_indices(of, target.slice)
            if indices is not None:
                given = value if value.type() == TENSOR else self._as_tensor_like(value, of)
                self.operator("aten::index_put_", [views, indices, given, self.constant(False)])
            elif value.type() == TENSOR:
                self.operator("aten::copy_", [views, value])
            else:
                self.operator("aten::fill_", [views, value])
            return
        if isinstance(target.slice, ast.Slice):
            raise self.error("Sliced expression not yet supported for subscripted assignment. File a bug if you want this")
        self.operator("aten::_set_item", [of, self.value(target.slice), value])

    def _as_tensor_like(self, value: Value, like: Value) -> Value:
        dtype = self.operator("prim::dtype", [like])
        device = self.operator("prim::device", [like])
        return self.operator("aten::tensor", [value], {"dtype": dtype, "device": device})

    # -- branches

    def _If(self, s: ast.If) -> None:
        self._if(s)

    def _if(self, s: ast.If) -> None:
        test, yes, no = self._condition(s.test)
        self.at = s
        if isinstance(test.fact, bool) and test.node is not None and not isinstance(s.test, ast.Constant):
            self._refine(yes if test.fact else no)
            self.statements(s.body if test.fact else s.orelse)
            return

        def then() -> None:
            self._refine(yes)
            self.statements(s.body)

        def otherwise() -> None:
            self._refine(no)
            self.statements(s.orelse)

        self._branch(test, then, otherwise)

    # -- loops

    def _While(self, s: ast.While) -> None:
        if s.orelse:
            raise self.error("else branches of loops aren't supported")

        def body(_: Value) -> None:
            self.statements(s.body)

        self._loop(s, self.constant(_FOREVER), s.test, body, s.body)

    def _For(self, s: ast.For) -> None:
        if s.orelse:
            raise self.error("else branches of loops aren't supported")
        over = self.expression(s.iter)
        self.at = s
        parts = over.elements(self)
        if parts is not None:
            if _exits(s.body, (ast.Break, ast.Continue)):
                raise self.error("'break' and 'continue' aren't supported in a loop over a tuple or over modules, which is unrolled")
            for at, part in enumerate(parts):
                self.assign(s.target, part)
                self.statements(s.body)
                if self.exited:
                    return
                if _exits(s.body, (ast.Return,)) and at + 1 < len(parts):
                    raise self.error("'return' isn't supported in a loop over a tuple or over modules, which is unrolled")
            return
        counted = self.counted(over)

        def body(index: Value) -> None:
            self.assign(s.target, counted.item(self, index))
            self.statements(s.body)

        self._loop(s, counted.length(self), None, body, [ast.Assign([s.target], s.iter), *s.body])

    def _loop(
        self, s: ast.stmt, count: Value, test: ast.expr | None, body: Callable[[Value], None], statements: Sequence[ast.stmt]
    ) -> None:
        has_break, has_return = _exits(s.body, (ast.Break,)), _exits(s.body, (ast.Return,))  # type: ignore[attr-defined]
        has_continue = _exits(s.body, (ast.Continue,))  # type: ignore[attr-defined]
        outer = {f: self.scope.pop(f) for f in ("$broken", "$continued") if f in self.scope}
        if has_break:
            self.scope["$broken"] = Plain(self.constant(False))
        if has_return and "$result" not in self.scope:
            self.scope["$result"] = Plain(self.uninitialized(self._kind_of_results(body)))
        names = [n for n in _assigned(statements) if isinstance(self.scope.get(n), (Plain, Several))]
        names += [f for f in ("$broken", "$returned", "$result") if f in self.scope and (f == "$broken" and has_break or has_return)]
        names = list(dict.fromkeys(names))
        begin = self._condition(test)[0] if test is not None else self.constant(True)
        self.at = s
        initial = []
        for name in names:
            value = self.scope[name].value(self)
            if name in self.declared and is_subtype(value.type(), self.declared[name]):
                value = self._wider(value, self.declared[name])
            initial.append(value)
        self.node("prim::Loop", [count, begin, *initial], [])
        node = self.block._nodes[-1]
        block = node.block()
        index = block.given(INT, "i" if test is None else "")
        with self.into(block):
            for name, value in zip(names, initial, strict=True):
                self.scope[name] = Plain(block.given(value.type(), "" if name.startswith("$") else name))
            if has_continue:
                self.scope["$continued"] = Plain(self.constant(False))
            if test is not None:
                self._refine(self._asked_again(test))
            body(index)
            self.exited = False
            go_on = self.constant(True)
            flags = [self.scope[f].value(self) for f, there in (("$broken", has_break), ("$returned", has_return)) if there]
            flags = [f for f in flags if f.fact is not False]
            if test is not None:
                go_on = self._unless(flags, lambda: self._condition(test)[0])
            elif flags:
                go_on = self._unless(flags, lambda: self.constant(True))
            block._outputs.append(go_on)
            for name, value in zip(names, initial, strict=True):
                now = self.scope[name].value(self)
                wanted = value.type()
                if not is_subtype(now.type(), wanted):
                    now = self._kept_in_loop(name, now, wanted)
                block._outputs.append(now)
        for name, value in zip(names, initial, strict=True):
            self.scope[name] = Plain(node.add(value.type(), "" if name.startswith("$") else name))
        for name in _assigned(statements):
            if name not in names and name not in self.scope:
                self.scope[name] = Undefined(
                    f"{name} is not defined where the loop does not run: give it a value before the loop", Place(self.source, s)
                )
        self.scope.pop("$broken", None)
        self.scope.pop("$continued", None)
        self.scope.update(outer)

    def _kept_in_loop(self, name: str, now: Value, wanted: Type) -> Value:
        try:
            return self.as_type(now, wanted, name)
        except ScriptError:
            raise self.error(
                f"Variable '{name}' previously had type {text_of(wanted)} but is now being assigned to a value of type "
                f"{text_of(now.type())}"
            ) from None

    def _asked_again(self, test: ast.expr) -> dict[str, Type]:
        """What holds inside the loop by its condition, without asking it: names that were refined when it was asked."""
        scratch = Block()
        with self.into(scratch):
            return self._condition(test)[1]

    def _wider(self, value: Value, kind: Type) -> Value:
        return value if value.type() == kind else self.node("prim::unchecked_cast", [value], [kind])[0]

    def _unless(self, flags: list[Value], otherwise: Callable[[], Value]) -> Value:
        """False where one of the flags is set; else what `otherwise` gives."""
        if not flags:
            return otherwise()
        left = flags[0]
        for f in flags[1:]:
            left = self.operator("aten::__or__", [left, f])
        self.node("prim::If", [left], [])
        node = self.block._nodes[-1]
        for side in (True, False):
            block = node.block()
            with self.into(block):
                block._outputs.append(self.constant(False) if side else otherwise())
        return node.add(BOOL)

    def _kind_of_results(self, body: Callable[[Value], None]) -> Type:
        """The type of what a loop returns: declared, or found by compiling the loop to where nobody sees it."""
        if self.function.result is not None:
            return self.function.result
        declared = dict(self.declared)
        with self.into(Block()):
            self.scope["$broken"] = self.scope["$continued"] = Plain(self.constant(False))
            body(Value(INT))
            found = self.scope.get("$result")
            kind = NONE if found is None else found.value(self).type()
        self.declared = declared
        return kind

    def _With(self, s: ast.With) -> None:
        if len(s.items) != 1:
            inner = ast.With(s.items[1:], s.body)
            s = ast.copy_location(ast.With(s.items[:1], [ast.copy_location(inner, s)]), s)
        item = s.items[0]
        found = self.expression(item.context_expr)
        if isinstance(found, GradMode):
            before = self.operator("aten::is_grad_enabled", [])
            self.operator("aten::set_grad_enabled", [self.constant(found.enabled)])
            self.statements(s.body)
            self.exited, exited = False, self.exited
            self.operator("aten::set_grad_enabled", [before])
            self.exited = exited
            return
        if isinstance(found, NoEffect):
            self.statements(s.body)
            return
        if isinstance(found, PythonContext):
            made = self.node("prim::Enter", found.inputs, [ANY], _class=found.cls, _names=found.names)[0]
            if item.optional_vars is not None:
                raise self.error("the context has no value in a script")
            self.statements(s.body)
            self.at = s
            self.node("prim::Exit", [made], [])
            return
        value = found.value(self)
        entered = self.attribute_of(value, "__enter__").call(self, [], {})
        if item.optional_vars is not None:
            self.assign(item.optional_vars, entered)
        self.statements(s.body)
        nothing: list[Thing] = [Plain(self.constant(None)) for _ in range(3)]
        self.attribute_of(value, "__exit__").call(self, nothing, {})


def _loaded(target: ast.expr) -> Any:
    """An assignment's target as what is read."""
    made = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(made, target)


def _needs_flag(body: Sequence[ast.stmt]) -> bool:
    """Whether a ``return`` stands where what follows cannot simply be moved to the other branch."""
    for s in body:
        if isinstance(s, (ast.For, ast.While, ast.With)):
            if _exits(s.body, (ast.Return,)):
                return True
        elif isinstance(s, ast.If):
            if _needs_flag(s.body) or _needs_flag(s.orelse):
                return True
            if _exits([s], (ast.Return,)) and not (_always_exits(s.body) or _always_exits(s.orelse)):
                return True
    return False


def compiled(function: Function, resolver: Resolver, source: Source, body: list[ast.stmt]) -> Function:
    """Compile the statements to the graph of the function, less what nothing needs. Returns: the function."""
    from ._passes import tidy

    Emitter(function, resolver, source).function_body(body)
    tidy(function.graph)
    return function
