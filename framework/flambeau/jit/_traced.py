"""Traces as scripts: the operations that were recorded as a graph of typed values, which is printed, saved and called by scripts."""

from __future__ import annotations

import ast
import inspect
import math
import operator
from typing import Any

from .._ops import OpOverload
from .._schema import Type
from ._compile import Emitter, Resolver, Source
from ._ir import Function, Parameter, Value
from ._modules import RecursiveScriptModule, ScriptFunction, _tracing
from ._names import Compiled, Plain, Thing
from ._python import unique
from ._trace import as_many
from ._types import BOOL, INT, NONE, STR, TENSOR, ClassType, dict_of, list_of, tuple_of

__all__ = ["function_of_trace", "script_of_trace"]

_NUMBERS: dict[Any, str] = {
    operator.add: "aten::add", operator.sub: "aten::sub", operator.mul: "aten::mul", operator.floordiv: "aten::floordiv",
    operator.mod: "aten::remainder", operator.pow: "aten::pow", operator.truediv: "aten::div", operator.neg: "aten::neg",
    operator.eq: "aten::eq", operator.ne: "aten::ne", operator.lt: "aten::lt", operator.le: "aten::le", operator.gt: "aten::gt",
    operator.ge: "aten::ge", math.floor: "aten::floor", math.ceil: "aten::ceil", math.sqrt: "aten::sqrt", min: "prim::min",
    max: "prim::max", abs: "prim::abs", int: "aten::Int", float: "aten::Float",
}  # fmt: skip


class _Nothing(Resolver):
    """A trace has no names to find."""

    def name(self, emit: Emitter, name: str) -> None:
        return None

    def method(self, of: ClassType, name: str) -> None:
        return None


def function_of_trace(program: Any, func: Any, name: str, owner: ClassType | None) -> Function:
    """The recorded program as a function of scripts; in a module, its first parameter is the module of the type `owner`."""
    function = Function(name, [], None)
    function.owner = owner
    emit = Emitter(function, _Nothing(), Source("", "<trace>", 1))
    emit.at = ast.Pass(lineno=1, col_offset=0)
    me = None
    if owner is not None:
        function.parameters.append(Parameter("self", owner))
        me = function.graph.given(owner, "self")
    leaves = _parameters(function, emit, program, func)
    made: dict[Any, Any] = {}
    known: dict[str, Value] = {}                      # attributes that have been read: a trace assigns to none
    for node in program.module.graph.nodes:
        if node.op == "placeholder":
            made[node] = leaves.pop(0)
        elif node.op == "get_attr":
            made[node] = _attribute(emit, me, node.target, program, known)
        elif node.op == "call_function":
            made[node] = _called(emit, node, made)
        elif node.op == "output":
            results = [made[n] if n in made else _valued(emit, n, made) for n in _listed(node.args[0])]
            result = _structured(emit, program.made, [_one(emit, r) for r in results])
            function.result = result.type()
            function.graph._outputs.append(result)
    from ._passes import tidy

    tidy(function.graph)
    return function


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _one(emit: Emitter, value: Any) -> Value:
    return emit.tuple(value) if isinstance(value, list) else value


# -- arguments and results -----------------------------------------------------------------------------------------------


def _parameters(function: Function, emit: Emitter, program: Any, func: Any) -> list[Value]:
    """Parameters of the types that the example's arguments had. Returns: the tensors in them, one by one."""
    args_spec, kwargs_spec = program.given.children_specs if hasattr(program.given, "children_specs") else program.given.children()
    names = _names(func, args_spec.num_children)
    leaves: list[Value] = []
    for name, spec in zip(names, _children(args_spec), strict=True):
        _parameter(function, emit, name, spec, leaves)
    for name, spec in zip(kwargs_spec.context or (), _children(kwargs_spec), strict=True):
        _parameter(function, emit, str(name), spec, leaves)
    return leaves


def _children(spec: Any) -> list[Any]:
    return list(spec.children_specs if hasattr(spec, "children_specs") else spec.children())


def _names(func: Any, count: int) -> list[str]:
    from ..nn.modules.module import Module

    try:
        known = list(inspect.signature(func.forward if isinstance(func, Module) else func).parameters)
    except (TypeError, ValueError):
        known = []
    known = [n for n in known if n not in ("args", "kwargs")]
    return [known[i] if i < len(known) else f"argument_{i}" for i in range(count)]


def _kind(spec: Any) -> Type:
    if spec.is_leaf():
        return TENSOR
    inner = [_kind(s) for s in _children(spec)]
    if spec.type is dict:
        return dict_of(STR, inner[0] if inner else TENSOR)
    if spec.type is list:
        return list_of(inner[0] if inner else TENSOR)
    return tuple_of(*inner)


def _parameter(function: Function, emit: Emitter, name: str, spec: Any, leaves: list[Value]) -> None:
    kind = _kind(spec)
    function.parameters.append(Parameter(name, kind))
    _take_apart(emit, function.graph.given(kind, name), spec, leaves)


def _take_apart(emit: Emitter, value: Value, spec: Any, leaves: list[Value]) -> None:
    kind = value.type()
    if kind.kind == "Tuple":
        for part, inner in zip(emit.unpacked(value), _children(spec), strict=True):
            _take_apart(emit, part, inner, leaves)
    elif kind.kind == "List":
        parts = emit.node("prim::ListUnpack", [value], [kind.inner[0]] * len(_children(spec)))
        for part, inner in zip(parts, _children(spec), strict=True):
            _take_apart(emit, part, inner, leaves)
    elif kind.kind == "Dict":
        for key, inner in zip(spec.context, _children(spec), strict=True):
            _take_apart(emit, emit.operator("aten::__getitem__", [value, emit.constant(key)]), inner, leaves)
    else:
        leaves.append(value)


def _structured(emit: Emitter, spec: Any, leaves: list[Value]) -> Value:
    if spec.is_leaf():
        return leaves.pop(0)
    parts = [_structured(emit, s, leaves) for s in _children(spec)]
    if spec.type is list:
        return emit.list(parts, parts[0].type() if parts else TENSOR)
    if spec.type is dict:
        flat = [v for key, p in zip(spec.context, parts, strict=True) for v in (emit.constant(key), p)]
        return emit.node("prim::DictConstruct", flat, [dict_of(STR, parts[0].type() if parts else TENSOR)])[0]
    return emit.tuple(parts)


# -- operations ----------------------------------------------------------------------------------------------------------


def _attribute(emit: Emitter, me: Value | None, target: str, program: Any, known: dict[str, Value]) -> Value:
    if target in known:
        return known[target]
    if target in program.constants or me is None:
        known[target] = emit.constant(program.constants[target])
    else:
        path, _, name = target.rpartition(".")
        of = _attribute(emit, me, path, program, known) if path else me
        known[target] = emit.attribute_of(of, name).value(emit)
    return known[target]


def _valued(emit: Emitter, x: Any, made: dict[Any, Any]) -> Any:
    """An argument of a recorded call as a value."""
    from ..fx import Node

    if isinstance(x, Node):
        return _one(emit, made[x])
    if isinstance(x, (list, tuple)):
        parts = [_valued(emit, e, made) for e in x]
        kinds = {p.type() for p in parts}
        if not parts:
            return emit.list([], INT)
        if NONE in kinds and len(kinds) > 1:
            rest = next(k for k in kinds if k != NONE)
            return emit.list(parts, Type("Optional", (rest,)))
        return emit.list(parts, parts[0].type())
    return emit.constant(x)


def recorded(script: ScriptFunction, given: list[Any]) -> Any:
    """The result of the script, which the recorder of a trace keeps as a call: so its branches stay what they are."""
    from ..fx.experimental.proxy_tensor import recorder_in_force
    from ._run import callable_of

    run = callable_of(script._function)
    recorder = recorder_in_force()
    if recorder is None:
        return run(*given)
    nodes = recorder.argument(tuple(given))
    _tracing.in_script = True
    with recorder.quietly():
        result = run(*given)
    _tracing.in_script = False
    return recorder.record("call_function", script, tuple(nodes), {}, result)


def _called(emit: Emitter, node: Any, made: dict[Any, Any]) -> Any:
    target = node.target
    if isinstance(target, ScriptFunction):
        args: list[Thing] = [Plain(_valued(emit, a, made)) for a in node.args]
        found = Compiled(target._function).call(emit, args, {}).value(emit)
        return emit.unpacked(found) if found.type().kind == "Tuple" else found
    if target is as_many:
        value = made[node.args[0]]
        return emit.node("prim::ListUnpack", [value], [value.type().inner[0]] * node.args[1])
    if target is operator.getitem:
        of, at = made[node.args[0]], node.args[1]
        return of[at] if isinstance(of, list) else emit.operator("aten::__getitem__", [of, emit.constant(at)])
    values = [_valued(emit, a, made) for a in node.args]
    if target in _NUMBERS:
        return emit.operator(_NUMBERS[target], values)
    if target is math.trunc:
        return emit.operator("aten::Int", values)
    kwargs = {k: _valued(emit, v, made) for k, v in node.kwargs.items()}
    if not isinstance(target, OpOverload):
        raise NotImplementedError(f"jit.trace: {target} in the graph of a trace is not built; the trace itself runs it")
    name = target._schema.name.replace("aten::sym_", "aten::")
    found = emit.operator(name, values, kwargs)
    return emit.unpacked(found) if found.type().kind == "Tuple" else found


# -- modules -------------------------------------------------------------------------------------------------------------


def _kind_of(module: Any) -> ClassType:
    """The type of a traced module: its parameters, buffers and parts."""
    kind = ClassType(unique(f"__torch__.{module.original_name}", module), is_module=True)
    for name, p in module._parameters.items():
        if p is not None:
            kind.attributes[name] = TENSOR
            kind.parameters.append(name)  # type: ignore[attr-defined]
    for name, b in module._buffers.items():
        if b is not None:
            kind.attributes[name] = TENSOR
            kind.buffers.append(name)  # type: ignore[attr-defined]
    kind.attributes["training"] = BOOL
    for name, part in module._modules.items():
        if part is not None:
            kind.attributes[name] = _kind_of(part)
    return kind


def _module_like(module: Any, kind: ClassType) -> RecursiveScriptModule:
    made = RecursiveScriptModule(kind)
    made.__dict__["training"] = module.training
    made._parameters.update(module._parameters)
    made._buffers.update(module._buffers)
    for name, part in module._modules.items():
        made._modules[name] = None if part is None else _module_like(part, kind.attributes[name])  # type: ignore[arg-type]
    return made


def script_of_trace(module: Any) -> RecursiveScriptModule:
    """The traced module as a scripted one, with the same parameters and buffers."""
    made = module.__dict__.get("_script")
    if made is None:
        kind = _kind_of(module)
        for name, program in module._programs.items():
            kind.methods[name] = function_of_trace(program, program.of, f"{kind.name}.{name}", kind)
        made = module.__dict__["_script"] = _module_like(module, kind)
    made.__dict__["training"] = module.training
    return made


