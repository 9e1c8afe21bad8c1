"""Scripts of Python's functions, classes and modules: what their names stand for, and the types that their attributes have."""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import math
import re
import textwrap
import types
import typing
import weakref
from typing import Any

import flambeau as fb

from .._jit_internal import FunctionModifiers, get_torchscript_modifier
from .._ops import OpOverload, OpOverloadPacket
from .._schema import Type
from ..autograd.tape import is_own_file
from ..nn.modules.module import Module
from ..nn.modules.rnn import RNNBase
from ._compile import Emitter, Resolver, ScriptError, Source, compiled
from ._emit import Place
from ._ir import Function, Parameter, Value
from ._modules import RecursiveScriptModule, TopLevelTracedModule
from ._names import Class, Compiled, Method, Namespace, Operator, Plain, PythonFunction, Several, Special, Thing
from ._operators import schemas_of
from ._specials import SPECIALS, GradMode, NoEffect, python_context, waited
from ._types import (
    BOOL,
    NONE,
    TENSOR,
    ClassType,
    EnumType,
    NamedTupleType,
    NoType,
    list_of,
    optional,
    text_of,
    type_of_annotation,
    type_of_value,
)
from .frontend import refuse_lacking, refuse_variable_arguments

__all__ = ["class_type", "function_of", "module_type", "qualified"]

_OWN = "flambeau"


def qualified(thing: Any, name: str | None = None) -> str:
    """The name that a function or class has in scripts: ``__torch__.package.name``."""
    home = getattr(thing, "__module__", None) or ""
    home = "" if home == "__main__" else home
    if home == _OWN or home.startswith(_OWN + "."):
        home = "torch" + home[len(_OWN) :]
    path = f"{home}.{name or thing.__qualname__}".lstrip(".").replace("<locals>", "").replace("<lambda>", "lambda_")
    return "__torch__." + re.sub(r"\.+", ".", path)


_names_taken: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def unique(name: str, owner: Any) -> str:
    """`name`, or with a number before its last part if another thing has it."""
    head, _, last = name.rpartition(".")
    at, found = 0, name
    while _names_taken.get(found, owner) is not owner:
        found = f"{head}.___torch_mangle_{at}.{last}"
        at += 1
    _names_taken[found] = owner
    return found


# -- functions -----------------------------------------------------------------------------------------------------------

_functions: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()


def function_of(fn: Any) -> Function:
    """The compiled function. Raises: ScriptError if it cannot be a script."""
    found = _functions.get(fn)
    if found is None:
        tree, source = _tree_of(fn)
        if not _is_own(fn):
            refuse_lacking(tree, source)
        found = _declared(fn, tree, source, qualified(fn), None)
        found.name = unique(found.name, found)
        _functions[fn] = found
        try:
            compiled(found, PythonResolver(_scope_of(fn)), source, tree.body)
        except BaseException:
            _functions.pop(fn, None)
            raise
    return found


def _tree_of(fn: Any) -> tuple[Any, Source]:
    """The syntax tree of a function's definition."""
    fn = inspect.unwrap(fn)
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise OSError(
            f"Can't get source for {fn!r}. TorchScript requires source access in order to carry out compilation, make sure original .py "
            "files are available."
        ) from error
    text = "".join(lines)
    short = textwrap.dedent(text)
    indent = len(lines[0]) - len(lines[0].lstrip())
    try:
        tree: Any = ast.parse(short).body[0]
    except SyntaxError as error:
        raise ScriptError(f"Expected a single top-level function: {error}") from error
    source = Source(short, inspect.getsourcefile(fn) or "<script>", first, indent)
    if not isinstance(tree, ast.FunctionDef):
        raise ScriptError(f"Expected a single top-level function:\n{Place(source, tree).marked()}")
    return tree, source


def _scope_of(fn: Any) -> dict[str, Any]:
    """What the names in a function stand for in Python."""
    fn = inspect.unwrap(fn)
    scope = dict(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:                            # not assigned yet
            continue
    return scope


def _declared(fn: Any, tree: Any, source: Source, name: str, me: Type | None) -> Function:
    """A function with parameters, and the type of its result if that is annotated; nothing is compiled yet."""
    fn = inspect.unwrap(fn)
    resolver = PythonResolver(_scope_of(fn))
    function = Function(name, [], None)
    emit = Emitter(function, resolver, source)
    emit.at = tree
    arguments = tree.args
    if not _is_own(fn):
        refuse_variable_arguments(tree, source)
    elif arguments.vararg is not None or arguments.kwarg is not None:
        raise emit.error("a variable number of arguments")
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    by_position = [a.arg for a in listed[: len(listed) - len(arguments.kwonlyargs)]]
    defaults = dict(zip(by_position[::-1], (fn.__defaults__ or ())[::-1], strict=False)) | (fn.__kwdefaults__ or {})
    comment = _type_comment(source, tree)
    given: list[Type | None] = [None] * len(listed)
    if comment is not None:
        kinds, function.result = _types_in(comment, resolver, emit)
        without_me = listed[1:] if me is not None else listed
        if len(kinds) == len(without_me):
            given[len(listed) - len(kinds) :] = kinds
    for at, a in enumerate(listed):
        kind = given[at]
        if at == 0 and me is not None:
            kind = me
        elif a.annotation is not None:
            kind = resolver.annotation(emit, a.annotation)
        function.parameters.append(Parameter(a.arg, kind or TENSOR, defaults.get(a.arg, Parameter.NONE_GIVEN)))
    for p in function.parameters:
        if isinstance(p.default, (list, dict, set)) and not _is_own(fn):
            raise emit.error(
                "Mutable default parameters are not supported because Python binds them to the function and they persist across function "
                "calls.\n As a workaround, make the default None and instantiate the default parameter within the body of the function. "
                f"Found {type(p.default)} on parameter {p.name}"
            )
    if tree.returns is not None:
        function.result = resolver.annotation(emit, tree.returns)
    return function


_COMMENT = re.compile(r"#\s*type:\s*(\(.*\)\s*->.*)$")


def _type_comment(source: Source, tree: Any) -> str | None:
    """The comment that annotates a function in the old way."""
    first = tree.body[0].lineno if tree.body else tree.lineno
    for line in source.lines[tree.lineno - 1 : max(first, tree.lineno + 1)]:
        found = _COMMENT.search(line)
        if found:
            return found[1]
    return None


def _types_in(comment: str, resolver: PythonResolver, emit: Emitter) -> tuple[list[Type | None], Type]:
    head, _, result = comment.rpartition("->")
    tree: Any = ast.parse(head.strip(), mode="eval").body
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return [resolver.annotation(emit, p) for p in parts], resolver.annotation(emit, ast.parse(result.strip(), mode="eval").body)


# -- classes -------------------------------------------------------------------------------------------------------------

_classes: weakref.WeakKeyDictionary[type, Type] = weakref.WeakKeyDictionary()


def class_type(cls: type) -> Type | None:
    """The type of a class's instances; None for classes that scripts cannot have."""
    found = _classes.get(cls)
    if found is not None:
        return found
    made: Type
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = typing.get_type_hints(cls)
        fields: Any = cls._fields  # pyright: ignore[reportAttributeAccessIssue]  # asked for above
        made = NamedTupleType(qualified(cls), fields, [type_of_annotation(hints.get(n, fb.Tensor), class_type) for n in fields], cls)
    elif issubclass(cls, enum.Enum):
        made = EnumType(qualified(cls), cls)
    elif issubclass(cls, (Module, fb.Tensor, BaseException)) or cls.__module__ in ("builtins", "typing") or not _has_source(cls):
        if not getattr(cls, "__torch_script_interface__", False):
            return None
        made = _interface(cls)
    elif getattr(cls, "__torch_script_interface__", False):
        made = _interface(cls)
    else:
        return _script_class(cls)
    _classes[cls] = made
    return made


def _has_source(cls: type) -> bool:
    return isinstance(cls.__dict__.get("__init__"), types.FunctionType) and cls.__module__.partition(".")[0] not in (_OWN, "numpy")


def _interface(cls: type) -> ClassType:
    made = ClassType(qualified(cls), issubclass(cls, Module))
    object.__setattr__(made, "is_interface", True)
    object.__setattr__(made, "python_class", cls)
    _classes[cls] = made
    for name, fn in vars(cls).items():
        if isinstance(fn, types.FunctionType):
            tree, source = _tree_of(fn)
            function = _declared(fn, tree, source, f"{made.name}.{name}", made)
            function.owner, function.result = made, function.result or NONE
            made.methods[name] = function
    return made


def _script_class(cls: type) -> ClassType:
    """The type of a class whose methods are compiled; `__init__` says which attributes there are."""
    made = ClassType(unique(qualified(cls), cls))
    object.__setattr__(made, "python_class", cls)
    object.__setattr__(made, "compiler", _METHODS)
    _classes[cls] = made
    try:
        _METHODS.method(made, "__init__")
    except BaseException:
        _classes.pop(cls, None)
        raise
    return made


# -- modules -------------------------------------------------------------------------------------------------------------

_of_modules: dict[Any, ClassType] = {}
_PLAIN_STATE = frozenset((*Module().__dict__, "_attribute_types"))


_KEPT = frozenset(("_reversed_padding_repeated_twice",))  # private attributes of our modules that forms of methods read


def _annotations(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for c in reversed(cls.__mro__):
        if issubclass(c, Module) and c is not Module:
            scope = vars(__import__("sys").modules.get(c.__module__, typing))
            for name, given in inspect.get_annotations(c).items():
                found[name] = _evaluated(given, scope)
    return found


def _evaluated(given: Any, scope: Any) -> Any:
    if isinstance(given, str):
        try:
            return eval(given, dict(scope))  # an annotation of the program
        # It may name what is imported for checkers of types alone; the value's own type serves then.
        except (NameError, AttributeError, TypeError, SyntaxError):
            return None
    return given


def module_type(module: Module) -> ClassType:
    """The type of a module: its class, with the types of its attributes. Modules that are alike share it."""
    if isinstance(module, (RecursiveScriptModule, TopLevelTracedModule)):
        return module._as_script()._script_type
    cls = type(module)
    annotations = _annotations(cls) | module.__dict__.get("_attribute_types", {})
    is_own = cls.__module__.startswith(_OWN + ".")
    constants = set(getattr(cls, "__constants__", ())) | {n for n, a in annotations.items() if _is_final(a)}
    attributes: dict[str, Type] = {}
    values: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, p in module._parameters.items():
        attributes[name] = NONE if p is None else TENSOR
    for name, b in module._buffers.items():
        attributes[name] = NONE if b is None else TENSOR
    for name, given in annotations.items():
        if name in attributes and typing.get_origin(given) in (typing.Union, types.UnionType) and name in module._buffers:
            attributes[name] = type_of_annotation(given, class_type)
    attributes["training"] = BOOL
    for name, value in module.__dict__.items():
        if name in _PLAIN_STATE or name.startswith("__") or is_own and name.startswith("_") and name not in _KEPT:
            continue
        try:
            if name in constants or is_own:
                type_of_value(value, class_type)
                values[name] = value
                continue
            given = annotations.get(name)
            attributes[name] = type_of_value(value, class_type) if given is None else type_of_annotation(given, class_type)
        except NoType:
            others[name] = value
    if isinstance(module, RNNBase):
        attributes["_flat_weights"] = list_of(TENSOR)
    for name, part in module._modules.items():
        given = annotations.get(name)
        is_interface = isinstance(given, type) and getattr(given, "__torch_script_interface__", False)
        found = class_type(given) if is_interface else None
        attributes[name] = found if found is not None else NONE if part is None else module_type(part)
    before, behind = _hooks_of(module)
    for name in annotations:
        if name in constants and name not in values and hasattr(cls, name):
            values[name] = getattr(cls, name)
    shared = tuple(sorted((n, id(o) if callable(o) else repr(type(o))) for n, o in others.items()))
    key = (cls, tuple(attributes.items()), repr(values), shared, tuple(module._parameters), tuple(module._buffers), _own_methods(module),
           tuple([id(h) for h in (*before.values(), *behind.values())]))  # fmt: skip
    made = _of_modules.get(key)
    if made is None:
        made = _of_modules[key] = ClassType("", is_module=True)
        of = object.__setattr__
        of(made, "name", unique(qualified(cls), made))
        of(made, "kind", made.name)
        of(made, "attributes", attributes)
        of(made, "constants", values)
        of(made, "others", others)
        of(made, "parameters", [n for n, p in module._parameters.items() if p is not None])
        of(made, "buffers", list(module._buffers))
        of(made, "python_class", cls)
        of(made, "pre_hooks", list(before))
        of(made, "hooks", list(behind))
        of(made, "functions_of_hooks", before | behind)
        of(made, "compiler", _METHODS)
    return made


def _hooks_of(module: Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hooks of a module before and behind its `forward`, by names that they have as methods of its type."""
    taken: set[str] = set()

    def named(hooks: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for hook in hooks:
            stem = name = getattr(hook, "__name__", type(hook).__name__).replace("<lambda>", "lambda_")
            while name in taken or name in module.__dict__ or hasattr(type(module), name):
                name = f"{stem}_{len(taken) + 1}"
                taken.add(f"{stem}_")
            taken.add(name)
            found[name] = hook
        return found

    # Tables that are not there yet are left so: a module that has them looks for hooks in every call.
    return named(module._hooks("_forward_pre_hooks").values()), named(module._hooks("_forward_hooks").values())


def _own_methods(module: Module) -> tuple[int, ...]:
    """Functions that the module has itself, and not by its class."""
    own = [(n, v) for n, v in module.__dict__.items() if n not in _PLAIN_STATE]
    return tuple([id(v) for _, v in own if isinstance(v, (types.FunctionType, types.MethodType))])


def _is_final(annotation: Any) -> bool:
    return annotation is typing.Final or typing.get_origin(annotation) is typing.Final


class _Methods:
    """Compiles methods when they are first asked for."""

    def method(self, of: ClassType, name: str) -> Function | None:
        """The method of the class, or None."""
        found = of.methods.get(name)
        if found is not None or of.python_class is None:
            return found
        from ._layers import form_of

        fn = form_of(of.python_class, name)
        if fn is None:
            fn = of.__dict__.get("others", {}).get(name)
            fn = fn if isinstance(fn, types.MethodType) else inspect.getattr_static(of.python_class, name, None)
        if fn is None and name.startswith("__set_"):
            found_property = inspect.getattr_static(of.python_class, name.removeprefix("__set_"), None)
            fn = found_property.fset if isinstance(found_property, property) else None
        if name in of.pre_hooks or name in of.hooks:
            return self._hook(of, name)
        if isinstance(fn, (property, staticmethod, classmethod)):
            return None
        fn = getattr(fn, "__func__", fn)
        if not isinstance(fn, types.FunctionType):
            return None
        return self.compiled(of, name, fn)

    def _hook(self, of: ClassType, name: str) -> Function:
        """A hook of a module as a method. Raises: RuntimeError for one whose arguments or result are not annotated."""
        fn, what = of.__dict__["functions_of_hooks"][name], "Pre-hook" if name in of.pre_hooks else "Hook"
        of_module = f"{what} '{name}' on module '{of.python_class.__name__}'"
        more = (
            f"\nThis error occurred while scripting the forward {what.lower()} '{name}' on module {of.python_class.__name__}. If you did "
            f"not want to script this {what.lower()} remove it from the original NN module before scripting."
        )
        if not isinstance(fn, types.FunctionType):
            raise RuntimeError(f"{of_module} is no function: {type(fn).__name__}.{more}")
        hints = inspect.signature(fn)
        tree, source = _tree_of(fn)
        declared = _declared(fn, tree, source, f"{of.name}.{name}", of)
        given = declared.parameters[1].type if len(declared.parameters) > 1 else NONE
        if given.kind != "Tuple":
            raise RuntimeError(
                f"{of_module} expected the input argument to be typed as a Tuple but found type: '{text_of(given)}' instead.{more}"
            )
        if name in of.pre_hooks and hints.return_annotation is inspect.Signature.empty and declared.result is None:
            raise RuntimeError(f"{of_module} is missing a return annotation. Return annotations are required, please add one.{more}")
        return self.compiled(of, name, fn)

    def compiled(self, of: ClassType, name: str, fn: Any) -> Function:
        """The function `fn` as the method `name` of the class."""
        modifier = get_torchscript_modifier(fn)
        tree, source = _tree_of(fn)
        try:
            function = _declared(fn, tree, source, f"{of.name}.{name}", of)
        except ScriptError as error:
            if _is_own(fn):
                raise NotImplementedError(f"jit.script: {of.python_class.__name__}.{name} is not built for scripts: {error}") from error
            raise
        function.owner = of
        if modifier in (FunctionModifiers.IGNORE, FunctionModifiers.UNUSED, FunctionModifiers._DROP):
            function.python = fn if modifier == FunctionModifiers.IGNORE else "unused"
            function.result = function.result or TENSOR
            return function
        of.methods[name] = function
        try:
            if not _is_own(fn):
                refuse_lacking(tree, source)
            compiled(function, PythonResolver(_scope_of(fn), _class_with(of.python_class, fn)), source, tree.body)
        except BaseException as error:
            of.methods.pop(name, None)
            if isinstance(error, ScriptError) and _is_own(fn):
                raise NotImplementedError(f"jit.script: {of.python_class.__name__}.{name} is not built for scripts: {error}") from error
            raise
        return function


def _is_own(fn: Any) -> bool:
    """Whether the source of a function is ours: what scripts lack of it then is not the program's mistake."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return code is not None and is_own_file(code.co_filename)


_METHODS = _Methods()


def _class_with(cls: type, fn: Any) -> type:
    """The class in the order of inheritance that defines the method."""
    for c in cls.__mro__:
        if any(inspect.unwrap(getattr(m, "__func__", m)) is inspect.unwrap(fn) for m in vars(c).values() if callable(m)):
            return c
    return cls


# -- names ---------------------------------------------------------------------------------------------------------------


class PythonResolver(Resolver):
    """Finds names among the globals and the closure of a function.

    Args:
        scope: what they stand for.
        cls: the class whose method is compiled, for ``super()``.
    """

    def __init__(self, scope: dict[str, Any], cls: type | None = None) -> None:
        self.scope, self.cls = scope, cls
        self.is_own = str(scope.get("__name__", "")).partition(".")[0] == _OWN

    def name(self, emit: Emitter, name: str) -> Thing | None:
        if name not in self.scope:
            builtin = getattr(builtins, name, None)
            if isinstance(builtin, types.BuiltinFunctionType) and name not in SPECIALS:
                raise emit.error(f"Python builtin {builtin!r} is currently not supported in Torchscript")
            return None
        return self.python(emit, self.scope[name], name, None)

    def annotation(self, emit: Emitter, node: ast.expr) -> Type:
        text = ast.unparse(node)
        repeated = _REPEATED.search(text)
        if repeated is not None:                      # a list that one number may be given for
            inner = self.annotation(emit, ast.parse(repeated[2], mode="eval").body)
            made = Type("List", (inner,), int(repeated[1]))
            return optional(made) if text.endswith("| None") or text.startswith(("Optional[", "typing.Optional[")) else made
        scope = self.scope if "Tensor" in self.scope else {**self.scope, "Tensor": fb.Tensor}
        for name in ("Optional", "List", "Dict", "Tuple", "Union", "Any"):
            if name not in scope:
                scope = {**scope, name: getattr(typing, name)}
        try:
            given = eval(text, scope)  # an annotation of the program
            while isinstance(given, str):
                given = eval(given, scope)
            return type_of_annotation(given, class_type)
        except (NameError, AttributeError, NoType, SyntaxError) as error:
            emit.at = node
            bare = _BARE.search(str(error)) if isinstance(error, NoType) else None
            if bare is not None:
                name = bare[1].title()
                example = {"Dict": "Dict[str, int]", "Tuple": "Tuple[int]"}.get(name, "List[int]")
                raise ScriptError(
                    f"Attempted to use {name} without a contained type. Please add a contained type, e.g. {example}"
                ) from error
            why = "" if str(error).startswith(f"Unknown type name '{text.rpartition('.')[2]}'") else f" ({error})"
            raise emit.error(f"Unknown type name '{text}'{why}") from error

    def exception(self, name: str) -> str:
        found = self.scope.get(name)
        return f"{found.__module__}.{found.__qualname__}" if isinstance(found, type) else super().exception(name)

    def method(self, of: ClassType, name: str) -> Function | None:
        return None if of.compiler is None else of.compiler.method(of, name)

    def attribute(self, emit: Emitter, value: Value, kind: ClassType, name: str) -> Thing | None:
        """What a module's attribute is that has no type: a function, a property, or a constant of the class."""
        others = kind.__dict__.get("others", {})
        if name in others:
            found = others[name]
            if isinstance(found, types.MethodType):
                return None
            if not callable(found) and not isinstance(found, (tuple, list)) or isinstance(found, list) and not found:
                raise emit.error(
                    f"Module '{kind.name.rpartition('.')[2]}' has no attribute '{name}' (This attribute exists on the Python module, but "
                    f"we failed to convert Python type: '{type(found).__name__}' to a TorchScript type. {_why_no_type(found)} Its type was "
                    "inferred; try adding a type annotation for the attribute.)"
                )
            return self.python(emit, found, name, kind)
        found = inspect.getattr_static(kind.python_class, name, None) if kind.python_class is not None else None
        if isinstance(found, property) and found.fget is not None:
            method = kind.methods.get(f"__get_{name}") or _METHODS.compiled(kind, f"__get_{name}", found.fget)
            return Method(value, method).call(emit, [], {})
        if isinstance(found, staticmethod):
            return self.python(emit, found.__func__, name, kind)
        if found is not None and not isinstance(found, types.FunctionType):
            try:
                return Plain(emit.constant(found))
            except NoType:
                return None
        return None

    def super(self, emit: Emitter, value: Value) -> Thing:
        """``super()`` in a method."""
        kind = value.type()
        assert isinstance(kind, ClassType)
        return _Super(value, kind, self.cls or kind.python_class)  # type: ignore[arg-type]

    def python(self, emit: Emitter, found: Any, name: str, home: Any) -> Thing:
        if isinstance(found, types.ModuleType):
            return Namespace(found)
        if isinstance(found, OpOverloadPacket):
            return Operator(found._qualified_op_name)
        if isinstance(found, OpOverload):
            return Operator(found._schema.name, overload=found._overloadname or "default")
        special = _known().get(id(found))
        if special is not None:
            return special
        if isinstance(found, (fb.dtype, fb.layout, fb.memory_format, fb.device)) or found is None:
            if home is None and not self.is_own and not isinstance(found, fb.device | None):
                raise emit.error(_no_value(found))
            return Plain(emit.constant(found))
        if isinstance(found, (bool, int, float, str, complex)):
            if home is None and not self.is_own and not isinstance(found, enum.Enum):
                raise emit.error(_no_value(found))
            if isinstance(found, enum.Enum):
                return Plain(emit.constant(found, class_type(type(found))))
            return Plain(emit.constant(found))
        if isinstance(found, enum.Enum):
            return Plain(emit.constant(found, class_type(type(found))))
        if isinstance(found, (tuple, list)) and home is not None:
            return Several([self.python(emit, f, name, home) for f in found])
        compiled_function = getattr(found, "_script_function", None)
        if compiled_function is not None:
            return Compiled(compiled_function)
        if isinstance(found, type):
            return self._class(emit, found, name)
        if isinstance(found, Module):
            raise emit.error(f"module '{name}' has to be an attribute of the module that is compiled, not a global")
        if callable(found):
            return self._function(emit, found, name, home)
        raise emit.error(_no_value(found))

    def _class(self, emit: Emitter, cls: type, name: str) -> Thing:
        if issubclass(cls, BaseException):
            return Special(cls.__name__, lambda e, a, k: a[0] if a else Plain(e.constant("")))
        try:
            kind = class_type(cls)
        except NoType as error:
            raise emit.error(str(error)) from None
        if kind is None and issubclass(cls, Module):
            return _ModuleClass(cls)
        if kind is None:
            raise emit.error(f"class '{cls.__name__}' cannot be used in a script")
        return Class(kind)

    def _function(self, emit: Emitter, fn: Any, name: str, home: Any) -> Thing:
        from ._functions import ByType, Choice, form_of

        modifier = get_torchscript_modifier(fn)
        if modifier in (FunctionModifiers.IGNORE, FunctionModifiers.UNUSED, FunctionModifiers._DROP):
            tree, source = _tree_of(fn)
            function = _declared(fn, tree, source, qualified(fn), None)
            function.python, function.result = fn, function.result or TENSOR
            return PythonFunction(function, modifier != FunctionModifiers.IGNORE)
        form = form_of(fn)
        if isinstance(form, Choice):
            return _choice(form, name)
        if isinstance(form, ByType):
            return _by_type(form, name)
        if form is not None:
            return Compiled(function_of(form))
        home_of = getattr(fn, "__module__", None) or ""
        if home_of.partition(".")[0] == _OWN and home_of != "flambeau.jit._layers" or hasattr(fn, "flambeau_op"):
            short = getattr(fn, "__name__", name)
            operator = next((n for n in (f"aten::{short}", f"aten::{name}", *_of_home(fn, short)) if schemas_of(n)), None)
            if operator is not None:
                return Operator(operator)
            raise NotImplementedError(f"jit.script: {getattr(fn, '__module__', 'torch')}.{short} is not built for scripts")
        if fn.__module__ == "math":
            operator = f"aten::{'mathremainder' if name == 'remainder' else name}"
            if not any(all(str(a.type) in _NUMBERS for a in schema.arguments) for schema in schemas_of(operator)):
                raise emit.error(f"Python builtin {fn!r} is currently not supported in Torchscript")
            return Operator(operator)
        if not isinstance(inspect.unwrap(fn), types.FunctionType):
            raise emit.error(f"Python builtin {fn!r} is currently not supported in Torchscript")
        return Compiled(function_of(fn))


def _why_no_type(found: Any) -> str:
    if isinstance(found, (list, dict)) and not found:
        return "List inputs must have elements." if isinstance(found, list) else "Dictionary inputs must have entries."
    try:
        type_of_value(found, class_type)
    except NoType as error:
        return f"{error}."
    return ""


def _no_value(found: Any) -> str:
    return (
        f"python value of type '{type(found).__name__}' cannot be used as a value. Perhaps it is a closed over global variable? If so, "
        "please consider passing it in as an argument or use a local variable instead."
    )


_BARE = re.compile(r"(list|dict|tuple|List|Dict|Tuple)(?:'>)? needs the types")
_NUMBERS = frozenset(("int", "float", "Scalar", "number"))
_REPEATED = re.compile(r"BroadcastingList(\d)\[([^\[\]]+(?:\[\w+\])?)\]")


def _choice(form: Any, name: str) -> Thing:
    """A function with several forms: the arguments that choose are looked for in each call."""
    from ._functions import Choice

    def apply(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        found = form
        while isinstance(found, Choice):
            given = args[found.at] if len(args) > found.at else kwargs.get(found.argument)
            fact = False if given is None else given.value(emit).fact
            if not isinstance(fact, bool):
                raise emit.error(f"{found.argument} has to be known while the script is compiled: a constant of the module, or a literal")
            found = found.if_true if fact else found.if_false
        return Compiled(function_of(found)).call(emit, args, kwargs)

    return Special(name, apply)


def _by_type(form: Any, name: str) -> Thing:
    """A function with a form for each type of an argument."""

    def apply(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        given = args[form.at] if len(args) > form.at else kwargs.get(form.argument)
        first, *_ = form.forms.values()
        found = first if given is None else form.forms.get(given.value(emit).type().kind)
        if found is None:
            wanted = " or ".join(form.forms)
            raise emit.error(f"{name}: {form.argument} has to be {wanted}, got {text_of(given.value(emit).type())}")
        return Compiled(function_of(found)).call(emit, args, kwargs)

    return Special(name, apply)


def _of_home(fn: Any, short: str) -> list[str]:
    """Names of operators by the module of a function: ``linalg.norm`` is ``linalg_norm``."""
    op = getattr(fn, "flambeau_op", None)
    found = []
    if op is not None:
        from .._aten import name_of

        name = name_of(op)
        if name is not None:
            found.append(f"aten::{name}")
        found.append(f"aten::{op.qualified.replace('.', '_')}")
    last = (getattr(fn, "__module__", "") or "").rpartition(".")[2]
    return [*found, f"aten::{last}_{short}"]


class _ModuleClass(Thing):
    """A class of modules, whose static methods scripts call by its name."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def what(self) -> str:
        return f"class '{self.cls.__name__}'"

    def attribute(self, emit: Emitter, name: str) -> Thing:
        found = inspect.getattr_static(self.cls, name, None)
        if not isinstance(found, staticmethod):
            raise emit.error(f"class '{self.cls.__name__}' cannot be used in a script, but for its static methods")
        return emit.python(found.__func__, name, self.cls)

    def call(self, emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        raise emit.error(f"class '{self.cls.__name__}' cannot be used in a script: modules are made before")


class _Super(Thing):
    def __init__(self, of: Value, kind: ClassType, cls: type) -> None:
        self.of, self.kind, self.cls = of, kind, cls

    def what(self) -> str:
        return "super()"

    def attribute(self, emit: Emitter, name: str) -> Thing:
        order = self.kind.python_class.__mro__  # type: ignore[union-attr]
        from ._layers import form_of

        for c in order[order.index(self.cls) + 1 :]:
            if name in vars(c):
                called = f"__super_{c.__name__}_{name}"
                fn = form_of(c, name) or vars(c)[name]
                function = self.kind.methods.get(called) or _METHODS.compiled(self.kind, called, fn)
                return Method(self.of, function)
        raise emit.error(f"'super' object has no attribute '{name}'")


_KNOWN: dict[int, Thing] = {}


def _known() -> dict[int, Thing]:
    """Functions of ours and of Python that the compiler knows itself, by identity."""
    if not _KNOWN:
        from . import annotate, fork, is_tracing, wait
        from . import isinstance as jit_isinstance
        def put(fn: Any, name: str, apply: Any) -> None:
            _KNOWN[id(fn)] = Special(name, apply)

        for name, special in SPECIALS.items():
            _KNOWN[id(getattr(builtins, name))] = special
        put(annotate, "annotate", None)
        put(typing.cast, "annotate", None)
        put(fork, "fork", None)
        put(fb.jit._fork, "fork", None)
        put(wait, "wait", waited)
        put(fb.jit._wait, "wait", waited)
        put(jit_isinstance, "isinstance", None)
        for fn, value in ((fb.jit.is_scripting, True), (fb._jit_internal.is_scripting, True), (is_tracing, False),
                          (fb.overrides.has_torch_function, False)):  # fmt: skip
            put(fn, getattr(fn, "__name__", ""), lambda e, a, k, v=value: Plain(e.constant(v)))
        put(fb.no_grad, "no_grad", lambda e, a, k: GradMode(False))
        put(fb.enable_grad, "enable_grad", lambda e, a, k: GradMode(True))
        put(fb.set_grad_enabled, "set_grad_enabled", lambda e, a, k: Plain(e.operator("aten::set_grad_enabled", [x.value(e) for x in a])))
        put(fb.jit.strict_fusion, "strict_fusion", lambda e, a, k: NoEffect())
        put(fb.autograd.profiler.record_function, "record_function",
            python_context(fb.autograd.profiler.record_function, ("name", "args")))
        for cast, names in ((fb.autocast, ("device_type", "dtype", "enabled", "cache_enabled")),
                            (fb.cpu.amp.autocast, ("enabled", "dtype", "cache_enabled")),
                            (fb.cuda.amp.autocast, ("enabled", "dtype", "cache_enabled"))):  # fmt: skip
            put(cast, "autocast", python_context(cast, names))
        put(fb._assert, "_assert", _assert)
        put(fb.jit._unwrap_optional, "_unwrap_optional", _unwrap)
        put(fb.device, "device", lambda e, a, k: Plain(e.operator("aten::device", [x.value(e) for x in a])))
        put(fb.tensor, "tensor", _tensor)
        put(__import__("warnings").warn, "warn", lambda e, a, k: Plain(e.operator("aten::warn", [a[0].value(e), e.constant(2)])))
        put(fb.einsum, "einsum", _einsum)
        put(math.log, "log", lambda e, a, k: Plain(e.operator("aten::log", [x.value(e) for x in a])))
    return _KNOWN


def _assert(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    test = emit._truth(args[0].value(emit))
    emit._branch(test, lambda: None, lambda: emit.raises(args[1].value(emit), "builtins.AssertionError"))
    emit.exited = False
    return Plain(emit.constant(None))


def _unwrap(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    value = args[0].value(emit)
    kind = value.type()
    if kind.kind != "Optional":
        return Plain(value)
    return Plain(emit.operator("aten::_unwrap_optional", [value]))


def _tensor(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
    data = args[0] if args else kwargs.pop("data")
    parts = data.elements(emit)
    value = data.value(emit)
    if parts is not None and value.type().kind == "Tuple":
        value = emit.list([p.value(emit) for p in parts], parts[0].value(emit).type())
    return Plain(emit.operator("aten::tensor", [value], {k: v.value(emit) for k, v in kwargs.items()}))


def _einsum(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    values = [a.value(emit) for a in args]
    operands = values[1:]
    listed = operands[0] if len(operands) == 1 and operands[0].type().kind == "List" else emit.list(operands, TENSOR)
    return Plain(emit.operator("aten::einsum", [values[0], listed]))


