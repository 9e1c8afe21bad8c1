"""Which layers and functions with quantized operands take the place of which that compute with numbers."""

from __future__ import annotations

import operator
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from ....nn import functional as F
from ....nn import modules as nn
from ...nn import intrinsic
from ...nn import quantized as nnq
from ...nn.intrinsic import quantized as joined
from ...nn.intrinsic.quantized import dynamic as joined_dynamic
from ...nn.quantized import _operations as operations
from ...nn.quantized import dynamic, functional, reference
from ..backend_config import DTypeConfig
from ._patterns import module_of

__all__ = ["lower_function", "lower_module", "result_is_quantized"]

# Each has `from_reference(layer, scale, zero_point)`.
_LAYERS: dict[Any, Any] = {
    reference.Linear: nnq.Linear, reference.Conv1d: nnq.Conv1d, reference.Conv2d: nnq.Conv2d, reference.Conv3d: nnq.Conv3d,
    reference.ConvTranspose1d: nnq.ConvTranspose1d, reference.ConvTranspose2d: nnq.ConvTranspose2d,
    reference.ConvTranspose3d: nnq.ConvTranspose3d, nn.ELU: nnq.ELU, nn.LeakyReLU: nnq.LeakyReLU, nn.Hardswish: nnq.Hardswish,
    nn.PReLU: nnq.PReLU, nn.Dropout: nnq.Dropout, nn.BatchNorm2d: nnq.BatchNorm2d, nn.BatchNorm3d: nnq.BatchNorm3d,
    nn.LayerNorm: nnq.LayerNorm, nn.InstanceNorm1d: nnq.InstanceNorm1d, nn.InstanceNorm2d: nnq.InstanceNorm2d,
    nn.InstanceNorm3d: nnq.InstanceNorm3d,
}  # fmt: skip
_JOINED: dict[Any, Any] = {
    intrinsic.LinearReLU: joined.LinearReLU, intrinsic.ConvReLU1d: joined.ConvReLU1d, intrinsic.ConvReLU2d: joined.ConvReLU2d,
    intrinsic.ConvReLU3d: joined.ConvReLU3d, intrinsic.BNReLU2d: joined.BNReLU2d, intrinsic.BNReLU3d: joined.BNReLU3d,
}  # fmt: skip
_RECURRENT: dict[Any, Any] = {
    nn.LSTM: dynamic.LSTM, nn.GRU: dynamic.GRU, nn.LSTMCell: dynamic.LSTMCell, nn.GRUCell: dynamic.GRUCell, nn.RNNCell: dynamic.RNNCell,
}  # fmt: skip
_TABLES: dict[Any, Any] = {reference.Embedding: nnq.Embedding, reference.EmbeddingBag: nnq.EmbeddingBag}

# What takes quantized tensors as it is, and gives them the scale of the operand, or one that belongs to its range.
_AS_IT_IS: set[Any] = {
    nn.Hardtanh, nn.Identity, nn.MaxPool1d, nn.MaxPool2d, nn.ReLU, nn.Sigmoid, nn.Tanh, F.hardtanh, F.max_pool1d, F.max_pool2d, F.relu,
    F.relu6, fb.relu, fb.clamp, fb.flatten, fb.mean, fb.narrow, fb.transpose, fb.squeeze, fb.unsqueeze, fb.cat, fb.sigmoid, fb.tanh,
    "contiguous", "clamp", "detach", "mean", "permute", "repeat", "reshape", "relu", "relu_", "squeeze", "transpose", "unsqueeze", "view",
    "sigmoid", "tanh",
}  # fmt: skip

_OF_TWO: dict[Any, Any] = {
    operator.add: operations.add, fb.add: operations.add, operator.mul: operations.mul, fb.mul: operations.mul,
    fb.matmul: operations.matmul,
}  # fmt: skip
_WITH_NUMBER: dict[Any, Any] = {
    operator.add: operations.add_scalar, fb.add: operations.add_scalar, operator.mul: operations.mul_scalar, fb.mul: operations.mul_scalar
}  # fmt: skip
_ACTIVATIONS: dict[Any, tuple[Any, tuple[str, ...]]] = {
    F.elu: (functional.elu, ("alpha",)), F.hardswish: (functional.hardswish, ()),
    F.leaky_relu: (functional.leaky_relu, ("negative_slope",)),
}  # fmt: skip
_WEIGHTED: dict[Any, Any] = {
    F.linear: functional.linear, F.conv1d: functional.conv1d, F.conv2d: functional.conv2d, F.conv3d: functional.conv3d
}  # fmt: skip
_RELUS = (F.relu, fb.relu)


def lower_module(module: Any, scale: tuple[float, int] | None, dtypes: DTypeConfig) -> Any:
    """The quantized layer in the place of `module`, or None where there is none.

    Args:
        scale: of results; None for layers that quantize their operands themselves, or only have a quantized table.
    """
    kind = type(module)
    if scale is not None:
        if kind is reference.Linear and module.weight_dtype is not fb.qint8:
            return None
        if kind in _LAYERS:
            return _LAYERS[kind].from_reference(module, *scale)
        if kind in _JOINED:
            return _JOINED[kind].from_reference(module[0], *scale)
        return None
    if kind in _TABLES:
        return _TABLES[kind].from_reference(module)
    if kind is reference.Linear:
        return dynamic.Linear.from_reference(module)
    if kind is intrinsic.LinearReLU and isinstance(module[0], reference.Linear):
        return joined_dynamic.LinearReLU.from_reference(module[0])
    return _RECURRENT[kind].from_float(module) if kind in _RECURRENT else None


def result_is_quantized(kind: Any, node: Node) -> bool:
    """Whether a layer, function or method takes quantized tensors as it is."""
    return kind in _AS_IT_IS and not node.kwargs.get("return_indices") and not node.kwargs.get("inplace")


def lower_function(model: GraphModule, nodes: list[Node], step: Node) -> Node | None:
    """A call with quantized operands in the place of `nodes`, a function alone or with a ReLU after it; None where there is none.

    Args:
        step: what quantizes the result.
    """
    if len(nodes) > 2 or any(type(module_of(model, node)) is not nn.ReLU and node.target not in _RELUS for node in nodes[1:]):
        return None
    with model.graph.inserting_before(step):
        made = _lower_call(model, nodes[0], {"scale": step.args[1], "zero_point": step.args[2]})
        return made if made is None or len(nodes) == 1 else model.graph.call_function(F.relu, (made,))


def _lower_call(model: GraphModule, node: Node, scale: dict[str, Any]) -> Node | None:
    """The call with quantized operands, whose result has `scale`."""
    graph, kind = model.graph, node.target
    if kind in _WEIGHTED:
        return _lower_weighted(model, node, scale)
    if kind in _ACTIVATIONS:
        function, names = _ACTIVATIONS[kind]
        given = {name: node.kwargs[name] for name in names if name in node.kwargs}
        return graph.call_function(function, (_before(node.args[0]),), {**given, **scale})
    tensors = [x for x in node.args if isinstance(x, Node)]
    if len(node.args) != 2 or node.kwargs:
        return None
    if len(tensors) == 2 and kind in _OF_TWO:
        return graph.call_function(_OF_TWO[kind], tuple(map(_before, tensors)), scale)
    if len(tensors) == 1 and kind in _WITH_NUMBER:
        number = next(x for x in node.args if not isinstance(x, Node))
        return graph.call_function(_WITH_NUMBER[kind], (_before(tensors[0]), number))
    return None


def _before(node: Any) -> Any:
    """The quantized tensor whose numbers `node` gives."""
    return node.args[0]


def _lower_weighted(model: GraphModule, node: Node, scale: dict[str, Any]) -> Node | None:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    weight = _before(given["weight"])
    source, *qparams = weight.args
    if source.op != "get_attr" or isinstance(given.get("padding"), str):
        return None
    value: Any = model
    for part in str(source.target).split("."):
        value = getattr(value, part)
    packed = weight.target(value.detach(), *(getattr(model, str(x.target)) if isinstance(x, Node) else x for x in qparams))
    count = sum(1 for name, _ in model.named_buffers() if name.startswith("_packed_weight_"))
    model.register_buffer(f"_packed_weight_{count}", packed)
    operands = (_before(given.pop("input")), model.graph.get_attr(f"_packed_weight_{count}"))
    del given["weight"]
    return model.graph.call_function(_WEIGHTED[node.target], operands, {"bias": None, **given, **scale})
