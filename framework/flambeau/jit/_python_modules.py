"""Scripted modules of Python's: a module with the same parameters and buffers, whose methods are compiled."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
import types
from typing import Any

from .._jit_internal import FunctionModifiers, get_torchscript_modifier
from ..nn.modules.module import Module
from ._compile import ScriptError, Source, compiled
from ._emit import Place
from ._ir import Function, Parameter
from ._modules import RecursiveScriptModule, ScriptModule, TopLevelTracedModule
from ._python import _METHODS, PythonResolver, module_type
from ._types import TENSOR

__all__ = ["define", "scripted"]


def scripted(module: Module, memo: dict[int, Any] | None = None) -> RecursiveScriptModule:
    """The module with compiled methods; parameters and buffers are those of `module`, and so are values of attributes.

    Raises: ScriptError if a method that is called cannot be a script.
    """
    if isinstance(module, RecursiveScriptModule):
        return module
    kind = module_type(module)
    made = _made_like(module, kind, {})
    _compile_entries(module, kind)
    return made


def _type_of_part(part: Module, kind: Any) -> Any:
    """The type of a part; its own where the module says that it is any part with certain methods."""
    return module_type(part) if kind.is_interface else kind


def _made_like(module: Module, kind: Any, memo: dict[int, Any]) -> RecursiveScriptModule:
    if id(module) in memo:
        return memo[id(module)]
    if isinstance(module, (RecursiveScriptModule, TopLevelTracedModule)):
        made = memo[id(module)] = module._as_script()
        return made
    made = memo[id(module)] = RecursiveScriptModule(kind)
    own = made.__dict__
    own["training"] = module.training
    own["_parameters"].update(module._parameters)
    own["_buffers"].update(module._buffers)
    own["_non_persistent_buffers_set"].update(module._non_persistent_buffers_set)
    for name, part in module._modules.items():
        own["_modules"][name] = None if part is None else _made_like(part, _type_of_part(part, kind.attributes[name]), memo)
    for name in kind.attributes:
        if name not in own and name not in own["_parameters"] and name not in own["_buffers"] and name not in own["_modules"]:
            own[name] = getattr(module, name)
    for register, hooks in ((made.register_forward_pre_hook, kind.pre_hooks), (made.register_forward_hook, kind.hooks)):
        for hook in hooks:
            register(_called_by_name(hook))
    _copy_python_methods(module, kind)
    return made


def _called_by_name(hook: str) -> Any:
    """A hook that calls the compiled one, a method of the module's type."""
    return lambda module, *args: getattr(module, hook)(*args)


def _copy_python_methods(module: Module, kind: Any) -> None:
    """Methods that are left to Python, for those that call them from there."""
    left = {
        name: fn
        for c in reversed(type(module).__mro__) if c.__module__ not in (Module.__module__,)
        for name, fn in vars(c).items()
        if isinstance(fn, types.FunctionType)
        and get_torchscript_modifier(fn)
        in (FunctionModifiers.IGNORE, FunctionModifiers.UNUSED, FunctionModifiers._DROP, FunctionModifiers.COPY_TO_SCRIPT_WRAPPER)
    }  # fmt: skip
    if left:
        object.__setattr__(kind, "left_to_python", left)


def _compile_entries(module: Module, kind: Any) -> None:
    """Compile `forward` and the methods that are marked to be exported, here and in the parts."""
    names = ["forward"] if _has_forward(module) else []
    for name in dir(type(module)):
        found = inspect.getattr_static(type(module), name, None)
        marked = isinstance(module, ScriptModule) and getattr(found, "_is_script_method", False)
        if marked or get_torchscript_modifier(found) == FunctionModifiers.EXPORT:
            names.append(name)
    for name in dict.fromkeys(names):
        if name not in kind.methods:
            _METHODS.method(kind, name)
    _compile_hooks(kind)
    for name, part in module._modules.items():
        if part is not None:
            _compile_exports(part, _type_of_part(part, kind.attributes[name]))


def _compile_hooks(kind: Any) -> None:
    for name in (*kind.pre_hooks, *kind.hooks):
        _METHODS.method(kind, name)


def _compile_exports(module: Module, kind: Any) -> None:
    from ..nn.modules import container

    if isinstance(module, (RecursiveScriptModule, TopLevelTracedModule)):
        return
    if _has_forward(module) and type(module) not in (container.ModuleList, container.ModuleDict):
        with contextlib.suppress(NotImplementedError):  # nobody that is compiled calls it: it is compiled when somebody does
            _METHODS.method(kind, "forward")
    _compile_hooks(kind)
    for name in dir(type(module)):
        if get_torchscript_modifier(inspect.getattr_static(type(module), name, None)) == FunctionModifiers.EXPORT:
            _METHODS.method(kind, name)
    for name, part in module._modules.items():
        if part is not None:
            _compile_exports(part, _type_of_part(part, kind.attributes[name]))


def _has_forward(module: Module) -> bool:
    found = inspect.getattr_static(type(module), "forward", None)
    return found is not None and found is not inspect.getattr_static(Module, "forward", None)


def define(module: RecursiveScriptModule, text: str) -> None:
    """Compile the functions of the text as methods of the module's type."""
    kind: Any = module._script_type
    short = textwrap.dedent(text)
    for tree in ast.parse(short).body:
        source = Source(short, "<string>", 1)
        if not isinstance(tree, ast.FunctionDef):
            raise ScriptError(f"define() takes functions:\n{Place(source, tree).marked()}")
        frame = inspect.currentframe()
        scope = frame.f_back.f_back.f_globals if frame is not None and frame.f_back is not None and frame.f_back.f_back is not None else {}
        resolver = PythonResolver({"torch": __import__("flambeau"), **scope})
        function = Function(f"{kind.name}.{tree.name}", [], None)
        from ._compile import Emitter

        emit = Emitter(function, resolver, source)
        for at, a in enumerate(tree.args.args):
            t = kind if at == 0 else TENSOR if a.annotation is None else resolver.annotation(emit, a.annotation)
            function.parameters.append(Parameter(a.arg, t))
        function.owner = kind
        if tree.returns is not None:
            function.result = resolver.annotation(emit, tree.returns)
        kind.methods[tree.name] = function
        compiled(function, resolver, source, tree.body)


