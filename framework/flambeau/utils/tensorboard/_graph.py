"""A model as a graph of its modules: which ran, on what, and where their results went."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ._proto import proto

__all__ = ["graph_of"]

AttrValue = proto("compat.proto.attr_value_pb2").AttrValue
RunMetadata = proto("compat.proto.config_pb2").RunMetadata
GraphDef = proto("compat.proto.graph_pb2").GraphDef
NodeDef = proto("compat.proto.node_def_pb2").NodeDef
DeviceStepStats = proto("compat.proto.step_stats_pb2").DeviceStepStats
StepStats = proto("compat.proto.step_stats_pb2").StepStats
TensorShapeProto = proto("compat.proto.tensor_shape_pb2").TensorShapeProto
VersionDef = proto("compat.proto.versions_pb2").VersionDef


def graph_of(model: Any, inputs: Any) -> tuple[Any, Any]:
    """The graph of one call ``model(*inputs)``: a node for each call of a module that has no modules inside.

    Args:
        inputs: a tensor, or a tuple of arguments.
    """
    arguments = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    recorder = _Recorder(type(model).__name__)
    for number, value in enumerate(arguments):
        recorder.source(f"input/input.{number}", value)
    hooks = []
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            hooks.append(module.register_forward_hook(recorder.hook(name)))
    was_training = model.training
    try:
        with fb.no_grad():
            result = model(*arguments)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    recorder.sink("output/output.1", result)
    stats = RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))
    return GraphDef(node=recorder.nodes, versions=VersionDef(producer=22)), stats


class _Recorder:
    """Collects nodes; edges follow tensors, by identity."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.nodes: list[Any] = []
        self.made_by: dict[int, str] = {}
        self.kept: list[Any] = []  # so that no identity is used twice
        self.calls: dict[str, int] = {}

    def hook(self, name: str) -> Any:
        def record(module: Any, arguments: Any, result: Any) -> None:
            scope = "/".join([self.root, *(f"{part}" for part in name.split("."))]) if name else self.root
            count = self.calls[scope] = self.calls.get(scope, 0) + 1
            node = scope if count == 1 else f"{scope}.{count}"
            self._add(node, type(module).__name__, arguments, result, module.extra_repr())

        return record

    def source(self, name: str, value: Any) -> None:
        self._add(name, "IO Node", (), value)

    def sink(self, name: str, value: Any) -> None:
        self._add(name, "IO Node", value, None)

    def _add(self, name: str, kind: str, arguments: Any, result: Any, settings: str = "") -> None:
        sources = [self.made_by[id(t)] for t in _tensors(arguments) if id(t) in self.made_by]
        node = NodeDef(name=name, op=kind, input=list(dict.fromkeys(sources)))
        if settings:
            node.attr["attr"].CopyFrom(AttrValue(s=settings.encode()))
        shapes = []
        for tensor in _tensors(result):
            self.made_by[id(tensor)] = name
            self.kept.append(tensor)
            shapes.append(TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in tensor.shape]))
        if shapes:
            node.attr["_output_shapes"].CopyFrom(AttrValue(list=AttrValue.ListValue(shape=shapes)))
        self.nodes.append(node)


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, fb.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for part in value for t in _tensors(part)] if isinstance(value, (list, tuple)) else []
