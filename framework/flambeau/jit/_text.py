"""Scripts of text: functions and classes that are read from archives, and from `CompilationUnit`."""

from __future__ import annotations

import ast
import enum
import math
import textwrap
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .._schema import Type
from ._compile import Emitter, Resolver, ScriptError, Source, compiled
from ._ir import Function, Parameter, Value
from ._names import Class, Compiled, Namespace, Operator, Plain, Special, Thing
from ._types import (
    ANY,
    BOOL,
    COMPLEX,
    DEVICE,
    FLOAT,
    GENERATOR,
    INT,
    NONE,
    NUMBER,
    STORAGE,
    STR,
    STREAM,
    TENSOR,
    ClassType,
    EnumType,
    NamedTupleType,
    optional,
)  # fmt: skip

__all__ = ["Library", "functions_of"]

_TYPES = {
    "Tensor": TENSOR, "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "complex": COMPLEX, "number": NUMBER, "Scalar": NUMBER,
    "NoneType": NONE, "None": NONE, "Device": DEVICE, "Any": ANY, "Generator": GENERATOR, "Storage": STORAGE, "Stream": STREAM,
    "Layout": INT, "Dtype": INT, "AnyEnumType": Type("AnyEnumType"), "AnyListType": Type("AnyListType"),
}  # fmt: skip
_GENERIC = ("List", "Dict", "Tuple", "Future", "RRef", "Union")


class Library(Resolver):
    """The functions and classes of an archive. They are compiled when they are first asked for.

    Args:
        read: the text of a file of code by its name, such as ``__torch__/torch/nn.py``; None if there is none.
        constants: the tensors of the archive, by number.
    """

    def __init__(self, read: Callable[[str], str | None], constants: list[Any]) -> None:
        self.read, self.constants = read, constants
        self.files: dict[str, tuple[dict[str, Any], Source]] = {}
        self.types: dict[str, Type] = {}
        self.functions: dict[str, Function] = {}
        self.trees: dict[str, dict[str, ast.FunctionDef]] = {}  # the methods of each class

    # -- what there is

    def definition(self, name: str) -> tuple[Any, Source] | None:
        """The tree of a class or function by its qualified name, ``__torch__.package.Name``."""
        home, _, short = name.rpartition(".")
        path = home.replace(".", "/") + ".py"
        if path not in self.files:
            text = self.read(path)
            trees: dict[str, Any] = {}
            source = Source(text or "", path, 1)
            if text is not None:
                for tree in ast.parse(text).body:
                    if isinstance(tree, (ast.ClassDef, ast.FunctionDef)):
                        trees[tree.name] = tree
            self.files[path] = trees, source
        trees, source = self.files[path]
        return (trees[short], source) if short in trees else None

    def type(self, name: str) -> Type:
        """The type of a class. Raises: RuntimeError if the archive has none of the name."""
        found = self.types.get(name)
        if found is None:
            there = self.definition(name)
            if there is None or not isinstance(there[0], ast.ClassDef):
                raise RuntimeError(f"jit.load: the archive names {name}, and has no such class")
            self._class(name, *there)
            found = self.types[name]
        return found

    def function(self, name: str) -> Function | None:
        """A function, compiled; None if there is none of the name."""
        found = self.functions.get(name)
        if found is None:
            there = self.definition(name)
            if there is None or not isinstance(there[0], ast.FunctionDef):
                return None
            found = self.functions[name] = self._declared(name, *there, None)
            compiled(found, self, there[1], there[0].body)
        return found

    def _declared(self, name: str, tree: Any, source: Source, owner: ClassType | None) -> Function:
        function = Function(name, [], None)
        function.owner = owner
        emit = Emitter(function, self, source)
        emit.at = tree
        listed = tree.args.args
        defaults = [Parameter.NONE_GIVEN] * (len(listed) - len(tree.args.defaults)) + tree.args.defaults
        for at, (a, default) in enumerate(zip(listed, defaults, strict=True)):
            kind = owner if at == 0 and owner is not None else TENSOR if a.annotation is None else self.annotation(emit, a.annotation)
            value = default if default is Parameter.NONE_GIVEN else self._value(default)
            function.parameters.append(Parameter(a.arg, kind, value))
        if tree.returns is not None:
            function.result = self.annotation(emit, tree.returns)
        return function

    def _value(self, tree: ast.expr) -> Any:
        """A default, or a constant of a class: a literal."""
        if isinstance(tree, ast.Name) and tree.id in ("inf", "nan"):
            return math.inf if tree.id == "inf" else math.nan
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return -self._value(tree.operand)
        if isinstance(tree, (ast.List, ast.Tuple)):
            parts = [self._value(e) for e in tree.elts]
            return parts if isinstance(tree, ast.List) else tuple(parts)
        if isinstance(tree, ast.Dict):
            return {self._value(k): self._value(v) for k, v in zip(tree.keys, tree.values, strict=True) if k is not None}
        if isinstance(tree, ast.Call):
            name = ast.unparse(tree.func)
            args = [self._value(a) for a in tree.args]
            if name == "torch.device":
                return fb.device(*args)
            if name == "annotate":
                return self._value(tree.args[1])
            if name == "complex":
                return complex(*args)
        if isinstance(tree, ast.Attribute):
            text = ast.unparse(tree)
            if text.startswith("CONSTANTS.c"):
                return self.constants[int(text.removeprefix("CONSTANTS.c"))]
            owner, _, member = text.rpartition(".")
            kind = self.type(owner)
            if isinstance(kind, EnumType):
                return kind.python_class[member]  # type: ignore[attr-defined]
        try:
            return ast.literal_eval(tree)
        except ValueError:
            raise RuntimeError(f"jit.load: {ast.unparse(tree)} is no constant") from None

    # -- classes

    def _class(self, name: str, tree: ast.ClassDef, source: Source) -> None:
        bases = [ast.unparse(b) for b in tree.bases]
        emit = Emitter(Function(name, [], None), self, source)
        emit.at = tree
        if bases == ["NamedTuple"]:
            fields = [(s.target.id, self.annotation(emit, s.annotation)) for s in tree.body if _is_field(s)]  # type: ignore[attr-defined]
            names = [n for n, _ in fields]
            made = namedtuple(tree.name, names)
            self.types[name] = NamedTupleType(name, names, [t for _, t in fields], made)
            return
        if bases == ["Enum"]:
            members = {s.targets[0].id: self._value(s.value) for s in tree.body if isinstance(s, ast.Assign)}  # type: ignore[attr-defined]
            self.types[name] = EnumType(name, enum.Enum(tree.name, members))  # type: ignore[arg-type]
            return
        kind = ClassType(name, is_module=bases in (["Module"], ["ModuleInterface"]))
        of = object.__setattr__
        of(kind, "is_interface", bases in (["Interface"], ["ModuleInterface"]))
        of(kind, "compiler", self)
        self.types[name] = kind
        if not kind.is_module and not kind.is_interface:
            of(kind, "python_class", type(tree.name, (), {"_script_type": kind}))
        methods: dict[str, ast.FunctionDef] = {}
        for s in tree.body:
            if isinstance(s, ast.FunctionDef):
                methods[s.name] = s
            elif isinstance(s, ast.AnnAssign):
                self._attribute(kind, emit, s)
            elif isinstance(s, ast.Assign):
                self._listed(kind, emit, s)
        self.trees[name] = methods
        if kind.is_interface:
            for method in methods.values():
                kind.methods[method.name] = self._declared(f"{name}.{method.name}", method, source, kind)

    def _attribute(self, kind: ClassType, emit: Emitter, s: ast.AnnAssign) -> None:
        assert isinstance(s.target, ast.Name)
        annotation = s.annotation
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Final":
            if s.value is not None:
                kind.constants[s.target.id] = self._value(s.value)
                return
            annotation = annotation.slice
        kind.attributes[s.target.id] = self.annotation(emit, annotation)

    def _listed(self, kind: ClassType, emit: Emitter, s: ast.Assign) -> None:
        target = s.targets[0]
        if isinstance(target, ast.Name) and target.id in ("__parameters__", "__buffers__"):
            object.__setattr__(kind, target.id.strip("_"), self._value(s.value))
        elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == "__annotations__":
            kind.attributes[ast.literal_eval(target.slice)] = self.annotation(emit, s.value)

    # -- what the compiler asks

    def method(self, of: ClassType, name: str) -> Function | None:
        found = of.methods.get(name)
        if found is not None:
            return found
        tree = self.trees.get(of.name, {}).get(name)
        if tree is None:
            return None
        there = self.definition(of.name)
        assert there is not None
        found = of.methods[name] = self._declared(f"{of.name}.{name}", tree, there[1], of)
        compiled(found, self, there[1], tree.body)
        return found

    def compile_all(self) -> None:
        """Compile every method of the classes that have been asked for."""
        done = 0
        while done < len(self.types):
            for name in list(self.types)[done:]:
                done += 1
                kind = self.types[name]
                if isinstance(kind, ClassType) and not kind.is_interface:
                    for method in self.trees.get(name, ()):
                        self.method(kind, method)

    def name(self, emit: Emitter, name: str) -> Thing | None:
        found = _NAMES.get(name)
        if found is not None:
            return found
        if name == "__torch__":
            return _Path(self, "__torch__")
        if name == "CONSTANTS":
            return _Constants(self.constants)
        if name in ("inf", "nan"):
            return Plain(emit.constant(math.inf if name == "inf" else math.nan))
        return None

    def annotation(self, emit: Emitter, node: ast.expr) -> Type:
        if isinstance(node, ast.Constant) and node.value is None:
            return NONE
        if isinstance(node, ast.Name) and node.id in _TYPES:
            return _TYPES[node.id]
        if isinstance(node, ast.Subscript):
            head = ast.unparse(node.value)
            parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
            inner = [self.annotation(emit, p) for p in parts]
            if head == "Optional":
                return optional(inner[0])
            if head in _GENERIC:
                return Type(head, tuple(inner))
        text = ast.unparse(node)
        if text.startswith("__torch__."):
            return self.type(text)
        raise emit.error(f"Unknown type name '{text}'")

    def python(self, emit: Emitter, found: Any, name: str, home: Any) -> Thing:
        raise emit.error("archives hold no Python")

    def attribute(self, emit: Emitter, value: Value, kind: ClassType, name: str) -> Thing | None:
        """Attributes that are neither typed nor methods: there are none."""
        return None


def _is_field(s: ast.stmt) -> bool:
    return isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)


class _Path(Thing):
    """A part of a qualified name."""

    def __init__(self, library: Library, name: str) -> None:
        self.library, self.name = library, name

    def what(self) -> str:
        return f"name {self.name}"

    def attribute(self, emit: Emitter, name: str) -> Thing:
        full = f"{self.name}.{name}"
        there = self.library.definition(full)
        if there is None:
            return _Path(self.library, full)
        if isinstance(there[0], ast.ClassDef):
            return _TextClass(self.library.type(full))
        function = self.library.function(full)
        assert function is not None
        return Compiled(function)


class _TextClass(Class):
    """A class, whose instances are made by ``__new__`` and ``__init__`` one after another."""

    def attribute(self, emit: Emitter, name: str) -> Thing:
        if name == "__new__":
            return Special("__new__", lambda e, args, kwargs: Plain(e.node("prim::CreateObject", [], [self.type])[0]))
        return super().attribute(emit, name)


class _Constants(Thing):
    def __init__(self, tensors: list[Any]) -> None:
        self.tensors = tensors

    def attribute(self, emit: Emitter, name: str) -> Thing:
        value = self.tensors[int(name.removeprefix("c"))]
        return Plain(emit.constant(value))


class _Operators(Thing):
    """``torch`` or ``ops.prim``: its names are operators."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def what(self) -> str:
        return f"namespace {self.namespace}"

    def attribute(self, emit: Emitter, name: str) -> Thing:
        special = _OPERATORS.get(f"{self.namespace}::{name}")
        return special if special is not None else Operator(f"{self.namespace}::{name}")


class _AllOperators(Thing):
    def attribute(self, emit: Emitter, name: str) -> Thing:
        return _Operators(name)


def _raise(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    values = [a.value(emit) for a in args]
    emit.node("prim::RaiseException", values if len(values) > 1 else [*values, emit.constant(None)], [])
    return Plain(emit.constant(None))


def _format(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    text, *values = [a.value(emit) for a in args]
    return Plain(emit.format(text, values))


def _percent(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    return Plain(emit.node("aten::percentFormat", [a.value(emit) for a in args], [STR])[0])


def _grad(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    raise emit.error("ops.prim.grad isn't supported")


_OPERATORS: dict[str, Thing] = {
    "prim::RaiseException": Special("RaiseException", _raise), "aten::format": Special("format", _format),
    "aten::percentFormat": Special("percentFormat", _percent), "prim::grad": Special("grad", _grad),
}  # fmt: skip
_NAMES: dict[str, Thing] = {
    "torch": _Operators("aten"), "ops": _AllOperators(), "annotate": Special("annotate", None), "fork": Special("fork", None),  # type: ignore[arg-type]
    "unchecked_cast": Special("unchecked_cast", None), "uninitialized": Special("uninitialized", None),  # type: ignore[arg-type]
}  # fmt: skip


# -- text of programs ----------------------------------------------------------------------------------------------------


class _OfText(Library):
    """Functions of one text, which call each other and ``torch``."""

    def __init__(self, trees: dict[str, ast.FunctionDef], source: Source, known: dict[str, Any]) -> None:
        super().__init__(lambda path: None, [])
        self.of_text, self.source, self.known = trees, source, known

    def definition(self, name: str) -> tuple[Any, Source] | None:
        short = name.rpartition(".")[2]
        return (self.of_text[short], self.source) if short in self.of_text else None

    def name(self, emit: Emitter, name: str) -> Thing | None:
        if name in self.of_text:
            function = self.function(f"__torch__.{name}")
            assert function is not None
            return Compiled(function)
        if name in self.known:
            return Compiled(self.known[name]._function)
        if name == "math":
            return Namespace(math)
        return super().name(emit, name)

    def python(self, emit: Emitter, found: Any, name: str, home: Any) -> Thing:
        if home is math:
            return Operator(f"aten::{name}") if callable(found) else Plain(emit.constant(found))
        return super().python(emit, found, name, home)


def functions_of(text: str, known: dict[str, Any]) -> dict[str, Function]:
    """The compiled functions of a text, by their names. Raises: ScriptError for text that cannot be a script."""
    short = textwrap.dedent(text)
    source = Source(short, "<string>", 1)
    try:
        trees = {t.name: t for t in ast.parse(short).body if isinstance(t, ast.FunctionDef)}
    except SyntaxError as error:
        raise ScriptError(f"{error.msg}, line {error.lineno}") from error
    library = _OfText(trees, source, known)
    found = {}
    for name in trees:
        function = library.function(f"__torch__.{name}")
        assert function is not None
        found[name] = function
    return found


