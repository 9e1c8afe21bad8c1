"""Exported programs as files: a graph as data, and its values. Reading one runs no code that the file brings along."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import operator
import os
import zipfile
from collections import OrderedDict
from typing import Any

import flambeau as fb

from .. import _ops, serialization
from ..fx import Graph
from ..nn import Module
from ..utils import _pytree as pytree
from ._unlifted import Guard, Relation
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)

_VERSION = 2
# Functions of Python that graphs call on sizes.
_OF_NUMBERS = {
    fn.__name__: fn
    for fn in (
        operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.pow, operator.neg,
        operator.pos, operator.abs, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_,
        operator.or_, operator.xor, operator.invert, operator.getitem, operator.not_,
    )
}  # fmt: skip
_KINDS: dict[str, type] = {
    "dtype": fb.dtype, "device": fb.device, "layout": type(fb.strided), "memory_format": type(fb.contiguous_format)
}


def save(
    ep: ExportedProgram, f: Any, *, extra_files: dict[str, Any] | None = None, opset_version: Any = None, pickle_protocol: int = 2
) -> None:
    """Write the program `ep` to `f`, a path or file, as a zip archive of JSON and of Tensors.

    Args:
        extra_files: texts by name to keep beside it.
        opset_version, pickle_protocol: accepted: operators are named with their overloads, and nothing is pickled but Tensors as data.
    Raises: TypeError for what is no ExportedProgram; NotImplementedError for what a graph calls that has no name.
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    signature = ep.graph_signature
    program = {
        "version": _VERSION,
        "nodes": [_node_as_data(node) for node in ep.graph.nodes],
        "inputs": [[s.kind.name, _argument_as_data(s.arg), s.target, s.persistent] for s in signature.input_specs],
        "outputs": [[s.kind.name, _argument_as_data(s.arg), s.target] for s in signature.output_specs],
        "in_spec": pytree.treespec_dumps(ep.call_spec.in_spec), "out_spec": pytree.treespec_dumps(ep.call_spec.out_spec),
        "forward_arg_names": ep.module_call_graph[0].signature.forward_arg_names,  # type: ignore[union-attr]  # the whole has one
        "modules": [_entry_as_data(entry) for entry in ep.module_call_graph],
        "guards": [_guard_as_data(guard) for guard in ep._guards if isinstance(guard, Guard)],
        "relations": [dataclasses.astuple(relation) for relation in ep._guards if isinstance(relation, Relation)],
    }  # fmt: skip
    values = io.BytesIO()
    serialization.save(
        {"state": dict(ep.state_dict), "constants": dict(ep.constants), "left_out": dict(ep._buffers_left_out),
         "example": pytree.tree_leaves(ep.example_inputs)}, values,
    )  # fmt: skip
    target = f if hasattr(f, "write") else os.fspath(f)
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("program.json", json.dumps(program))
        archive.writestr("values.pt", values.getvalue())
        for name, content in (extra_files or {}).items():
            archive.writestr(f"extra_files/{name}", content if isinstance(content, bytes) else str(content).encode())


def load(f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: Any = None) -> ExportedProgram:
    """The program that `save` wrote to `f`, a path or file.

    Args:
        extra_files: a dict whose keys are names of texts beside it; their contents become its values.
        expected_opset_version: accepted.
    Raises: RuntimeError for a file that is no such archive, or calls what no graph calls.
    """
    try:
        with zipfile.ZipFile(f if hasattr(f, "read") else os.fspath(f)) as archive:
            program = json.loads(archive.read("program.json"))
            values = serialization.load(io.BytesIO(archive.read("values.pt")), weights_only=True)
            for name in extra_files or {}:
                extra_files[name] = archive.read(f"extra_files/{name}").decode()  # type: ignore[index]  # the loop is over it
        if program["version"] != _VERSION:
            raise RuntimeError(f"export.load: the file has version {program['version']!r} of the format, {_VERSION} is read")
        return _restored(program, values)
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise RuntimeError(f"export.load: the file is no exported program: {type(error).__name__}: {error}") from error


# -- writing ---------------------------------------------------------------------------------------------------------------


def _argument_as_data(arg: Any) -> Any:
    return ["constant", arg.name, _as_data(arg.value)] if isinstance(arg, ConstantArgument) else [type(arg).__name__, arg.name]


def _guard_as_data(guard: Guard) -> Any:
    sizes = None if guard.shape is None else list(guard.shape)
    return [guard.at, guard.name, _as_data(guard.value), sizes, _as_data(guard.dtype), sorted(guard.open_sizes.items()), guard.hinted]


def _guard_from_data(data: Any) -> Guard:
    at, name, value, sizes, kind, open_sizes, *rest = data
    given = {int(d): (int(low), int(high)) for d, (low, high) in open_sizes}
    shape = None if sizes is None else tuple(sizes)
    return Guard(int(at), str(name), _from_data(value, {}), shape, _from_data(kind, {}), given, [int(d) for d in rest[0]] if rest else [])


def _entry_as_data(entry: ModuleCallEntry) -> list[Any]:
    kept = entry.signature
    if not entry.fqn or kept is None:                 # that of the whole is kept apart
        return [entry.fqn, None]
    specs = [pytree.treespec_dumps(spec) for spec in (kept.in_spec, kept.out_spec)]
    return [entry.fqn, [*([_argument_as_data(a) for a in x] for x in (kept.inputs, kept.outputs)), *specs, kept.forward_arg_names]]


def _entry_from_data(data: Any) -> ModuleCallEntry:
    fqn, kept = data
    if kept is None:
        return ModuleCallEntry(str(fqn))
    inputs, outputs = ([_argument_from_data(a) for a in x] for x in kept[:2])
    in_spec, out_spec = map(pytree.treespec_loads, kept[2:4])
    return ModuleCallEntry(str(fqn), ModuleCallSignature(inputs, outputs, in_spec, out_spec, kept[4]))


def _node_as_data(node: Any) -> dict[str, Any]:
    target = _target_as_data(node.target) if node.op == "call_function" else node.target
    calls = [[key, *call] for key, call in node.meta.get("nn_module_stack", {}).items()]
    made = {"op": node.op, "name": node.name, "target": target, "args": _as_data(node.args), "kwargs": _as_data(dict(node.kwargs))}
    return made | {"calls": calls, "trace": node.stack_trace}


def _target_as_data(target: Any) -> list[str]:
    if isinstance(target, _ops.OpOverload):
        return ["operator", str(target)]
    name = getattr(target, "__name__", "")
    if _OF_NUMBERS.get(name) is target:
        return ["number", name]
    if name.startswith("sym_") and getattr(fb, name, None) is target or _is_public(target, name):
        return ["function", name]
    raise NotImplementedError(f"export.save: the graph calls {target!r}, which has no name for a file; run_decompositions() first")


def _is_public(target: Any, name: str) -> bool:
    """Whether `target` is a public function that makes tensors, or runs an operation of ours."""
    from ..ops import _index

    makes = _index.PLAIN.get(name, "").startswith(("creation.", "sampling."))
    return getattr(fb, name, None) is target and (hasattr(target, "flambeau_op") or makes)


def _as_data(x: Any) -> Any:
    """An argument as JSON: a word that says what it is, and its value."""
    if hasattr(x, "graph") and hasattr(x, "users"):
        return ["node", x.name]
    if x is None or isinstance(x, (bool, int, str)):
        return ["value", x]
    if isinstance(x, float):
        return ["float", x.hex() if math.isfinite(x) else str(x)]
    if isinstance(x, complex):
        return ["complex", x.real.hex(), x.imag.hex()]
    for word, kind in _KINDS.items():
        if isinstance(x, kind):
            return [word, str(x)]
    if isinstance(x, slice):
        return ["slice", [_as_data(part) for part in (x.start, x.stop, x.step)]]
    if isinstance(x, dict):
        return ["dict", [[key, _as_data(value)] for key, value in x.items()]]
    if isinstance(x, (list, tuple)):
        return ["list" if isinstance(x, list) else "tuple", [_as_data(part) for part in x]]
    raise NotImplementedError(f"export.save: an argument {x!r} of {type(x).__name__} cannot be kept")


# -- reading ---------------------------------------------------------------------------------------------------------------


def _from_data(data: Any, nodes: dict[str, Any]) -> Any:
    word, *values = data
    if word == "node":
        return nodes[values[0]]
    if word == "value":
        return values[0]
    if word == "float":
        return float.fromhex(values[0]) if "x" in values[0] else float(values[0])
    if word == "complex":
        return complex(*map(float.fromhex, values))
    if word == "device":
        return fb.device(values[0])
    if word in _KINDS:
        found = getattr(fb, values[0].removeprefix("torch."))
        if not isinstance(found, _KINDS[word]):
            raise ValueError(f"{values[0]} is no {word}")
        return found
    if word == "slice":
        return slice(*[_from_data(part, nodes) for part in values[0]])
    if word == "dict":
        return {key: _from_data(value, nodes) for key, value in values[0]}
    if word in ("list", "tuple"):
        made = [_from_data(part, nodes) for part in values[0]]
        return made if word == "list" else tuple(made)
    raise ValueError(f"{word!r} is no kind of argument")


def _target_from_data(data: Any) -> Any:
    word, name = data
    if word == "operator":
        namespace, packet, overload = name.split(".")
        found = getattr(getattr(getattr(_ops.ops, namespace), packet), overload)
        if isinstance(found, _ops.OpOverload):
            return found
    if word == "number":
        return _OF_NUMBERS[name]
    if word == "function":
        found = getattr(fb, name)
        if name.startswith("sym_") or _is_public(found, name):
            return found
    raise ValueError(f"{name!r} is nothing that graphs call")


def _argument_from_data(data: Any) -> Any:
    if data[0] == "constant":
        return ConstantArgument(data[1], _from_data(data[2], {}))
    return {"TensorArgument": TensorArgument, "SymIntArgument": SymIntArgument}[data[0]](data[1])


def _restored(program: Any, values: Any) -> ExportedProgram:
    from ..fx.experimental._recorded_calls import RECORDED_METHODS
    from ._trace import retraced

    graph, nodes = Graph(), {}
    for data in program["nodes"]:
        args, kwargs = _from_data(data["args"], nodes), _from_data(data["kwargs"], nodes)
        target = data["target"]
        if data["op"] == "call_function":
            target = _target_from_data(target)
        elif data["op"] == "call_method":
            if target not in RECORDED_METHODS:
                raise ValueError(f"{target!r} is no method that graphs call")
        elif data["op"] not in ("placeholder", "output"):
            raise ValueError(f"{data['op']!r} is no node of an exported graph")
        node = nodes[data["name"]] = graph.create_node(data["op"], target, args, kwargs, data["name"])
        node.name = data["name"]                      # the signature knows it by this one
        if data.get("trace"):
            node.stack_trace = str(data["trace"])
        if data["calls"]:
            node.meta["nn_module_stack"] = OrderedDict((str(key), (str(name), str(kind))) for key, name, kind in data["calls"])
    inputs = [InputSpec(InputKind[k], _argument_from_data(a), target, persistent) for k, a, target, persistent in program["inputs"]]
    outputs = [OutputSpec(OutputKind[k], _argument_from_data(a), target) for k, a, target in program["outputs"]]
    call = ModuleCallSignature(
        [], [], pytree.treespec_loads(program["in_spec"]), pytree.treespec_loads(program["out_spec"]), program["forward_arg_names"]
    )
    modules = [ModuleCallEntry("", call), *map(_entry_from_data, program["modules"][1:])]
    example = call.in_spec.unflatten(values["example"])
    made = ExportedProgram(
        Module(), graph, ExportGraphSignature(inputs, outputs), values["state"], {}, modules, example, values["constants"]
    )
    made._buffers_left_out = values["left_out"]
    relations = [Relation(text, [(at, d) for at, d in sizes], names) for text, sizes, names in program["relations"]]
    return retraced(made, [_guard_from_data(data) for data in program["guards"]], relations)


# -- classes among inputs --------------------------------------------------------------------------------------------------


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let instances of the dataclass `cls` be inputs and results of exported programs: structures of their fields.

    Args:
        serialized_type_name: what files call it; its own name by default.
    Raises: AssertionError for what is no dataclass.
    """
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    pytree.register_dataclass(cls, serialized_type_name=serialized_type_name)


__all__ = ["load", "register_dataclass", "save"]
