"""Frozen modules: graphs without calls, whose parameters and attributes are constants."""

from __future__ import annotations

from typing import Any

from ._ir import Function
from ._modules import RecursiveScriptModule, ScriptModule
from ._passes import frozen
from ._types import BOOL, ClassType

__all__ = ["frozen_module", "is_frozen"]


def is_frozen(module: Any) -> bool:
    """Whether `frozen_module` made it."""
    return isinstance(module, RecursiveScriptModule) and getattr(module._script_type, "is_frozen", False)


def frozen_module(module: Any, kept: tuple[str, ...]) -> RecursiveScriptModule:
    """What `jit.freeze` returns; `kept` has the names of attributes and methods that stay."""
    if not isinstance(module, ScriptModule):
        raise RuntimeError(
            f"Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'; got "
            f"{type(module).__name__}"
        )
    if module.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing."
        )
    script = module._as_script()
    of: ClassType = script._script_type
    kind = ClassType(of.name, is_module=True)
    object.__setattr__(kind, "is_frozen", True)
    kind.attributes["training"] = BOOL
    made = RecursiveScriptModule(kind)
    made.__dict__["training"] = False
    for name in kept:
        if name in of.attributes:
            kind.attributes[name] = of.attributes[name]
            _keep(script, made, of, kind, name)
        elif of.methods.get(name) is None and (of.compiler is None or of.compiler.method(of, name) is None):
            raise RuntimeError(f"freeze: the module has no attribute or method {name!r} to preserve")
    for name in ["forward", *[n for n in kept if n in of.methods and n != "forward"]]:
        method = of.methods.get(name)
        if method is not None:
            function = Function(method.name, list(method.parameters), method.result, frozen(method.graph, script, frozenset(kept)))
            function.parameters[0] = type(function.parameters[0])("self", kind)
            function.graph._inputs[0].setType(kind)
            function.owner = kind
            kind.methods[name] = function
    _keep_what_is_read(script, made, of, kind)
    return made


def _keep(script: Any, made: Any, of: ClassType, kind: ClassType, name: str) -> None:
    for place in ("_parameters", "_buffers", "_modules"):
        if name in script.__dict__[place]:
            made.__dict__[place][name] = script.__dict__[place][name]
            break
    else:
        made.__dict__[name] = getattr(script, name)
    for listed in ("parameters", "buffers"):
        if name in getattr(of, listed):
            getattr(kind, listed).append(name)


def _keep_what_is_read(script: Any, made: Any, of: ClassType, kind: ClassType) -> None:
    """Keep attributes that the graphs still read: those that they assign to, and modules on the way to them."""
    for function in kind.methods.values():
        for node in function.graph.all_nodes():
            name = node.attributes.get("name")
            is_own = node.kind() in ("prim::GetAttr", "prim::SetAttr") and node._inputs[0] is function.graph._inputs[0]
            if is_own and name in of.attributes and name not in kind.attributes:
                kind.attributes[name] = of.attributes[name]
                _keep(script, made, of, kind, name)
