"""Batch norms after convolutions: folded into their weights, at once for evaluation, and after training for quantized training."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from ....nn import Parameter

__all__ = ["fold", "fold_trained", "train_as_folded"]

_aten: Any = fb.ops.aten
_CONVOLUTIONS = frozenset((
    _aten.conv1d.default, _aten.conv1d.padding, _aten.conv2d.default, _aten.conv2d.padding, _aten.conv3d.default, _aten.linear.default,
))  # fmt: skip
_TRANSPOSED = frozenset((_aten.conv_transpose1d.default, _aten.conv_transpose2d.input))


def _value(model: GraphModule, node: Any) -> Any:
    """The tensor that a node reads of the model; None for no node."""
    return None if node is None else functools.reduce(getattr, str(node.target).split("."), model)


def _pairs(model: GraphModule, training: bool) -> list[tuple[Any, Any]]:
    """Convolutions that a batch norm alone reads, which are trained together or evaluated."""
    found = []
    for norm in model.graph.nodes:
        if norm.target is not _aten.batch_norm.default or norm.args[5] is not training or norm.args[3] is None:
            continue
        layer = norm.args[0]
        if layer.target in _CONVOLUTIONS | _TRANSPOSED and len(layer.users) == 1 and layer.args[1].op == "get_attr":
            found.append((layer, norm))
    return found


def _along_outputs(layer: Node, factor: Any, weight: Any) -> Any:
    """A vector of one number for each output channel, along that dimension of the weight."""
    axis = 1 if layer.target in _TRANSPOSED else 0
    return factor.reshape([-1 if d == axis else 1 for d in range(weight.ndim)])


def _set(model: GraphModule, path: str, value: Any) -> None:
    *parents, name = path.split(".")
    home = model.get_submodule(".".join(parents))
    if isinstance(home._parameters.get(name), Parameter):
        home._parameters[name] = Parameter(value.detach(), requires_grad=home._parameters[name].requires_grad)
    else:
        setattr(home, name, value.detach())


def _factor(model: GraphModule, norm: Node) -> tuple[Any, Any]:
    """What a batch norm multiplies by, and adds."""
    _, weight, bias, mean, variance, _, _, eps, *_ = norm.args
    gain, shift, mean, variance = (_value(model, node) for node in (weight, bias, mean, variance))
    factor = (variance + eps).rsqrt() * (1 if gain is None else gain)
    return factor, (0 if shift is None else shift) - mean * factor


def _with_bias(model: GraphModule, layer: Node, weight: Node, bias: Any) -> None:
    """Let `layer`, whose weight is read by `weight`, add `bias` in the place of its own."""
    given = layer.args[2] if len(layer.args) > 2 else None
    if isinstance(given, Node):
        _set(model, str(given.target), bias)
        return
    path = f"{weight.target}_bias"
    *parents, name = path.split(".")
    model.get_submodule(".".join(parents)).register_parameter(name, Parameter(bias.detach()))
    with model.graph.inserting_before(layer):
        node = model.graph.get_attr(path)
    layer.args = (*layer.args[:2], node, *layer.args[3:])


def fold(model: GraphModule) -> None:
    """Fold batch norms that are evaluated into the weights before them."""
    for layer, norm in _pairs(model, training=False):
        weight = _value(model, layer.args[1])
        bias = _value(model, layer.args[2] if len(layer.args) > 2 else None)
        factor, shift = _factor(model, norm)
        _set(model, str(layer.args[1].target), weight * _along_outputs(layer, factor, weight))  # type: ignore[union-attr]
        _with_bias(model, layer, layer.args[1], shift if bias is None else bias * factor + shift)  # type: ignore[arg-type]
        norm.replace_all_uses_with(layer)
        model.graph.erase_node(norm)
    _tidy(model)


def _tidy(model: GraphModule) -> None:
    for node in list(model.graph.nodes):              # counters of batches that nobody reads any more
        if node.target is _aten.add_.Tensor and not node.users and str(getattr(node.args[0], "target", "")).endswith("num_batches_tracked"):
            model.graph.erase_node(node)
    model.graph.eliminate_dead_code()
    model.recompile()


def train_as_folded(model: GraphModule) -> list[dict[str, str]]:
    """Let convolutions before trained batch norms run with the weights that folding will give, so that these are what is quantized.

    What the batch norm gets is as before: the convolution's result is divided by the factor again.

    Returns: for each pair the names of the nodes that `fold_trained` asks for.
    """
    pairs = []
    for layer, norm in _pairs(model, training=True):
        if layer.target is _aten.linear.default or layer.target in _TRANSPOSED:
            continue
        graph = model.graph
        weight, bias = layer.args[1], layer.args[2] if len(layer.args) > 2 else None
        _, gain, _, _, variance, _, _, eps, *_ = norm.args
        ndim = _value(model, weight).ndim
        rows, channels = [-1, *[1] * (ndim - 1)], [1, -1, *[1] * (ndim - 2)]
        with graph.inserting_before(layer):
            factor = graph.call_function(_aten.rsqrt.default, (graph.call_function(_aten.add.Tensor, (variance, eps)),))
            if gain is not None:
                factor = graph.call_function(_aten.mul.Tensor, (factor, gain))
            along = graph.call_function(_aten.reshape.default, (factor, rows))
            scaled = graph.call_function(_aten.mul.Tensor, (weight, along))
        layer.args = (layer.args[0], scaled, None, *layer.args[3:])
        said = layer.meta.get("quantization_annotation")
        if said is not None:
            said.input_qspec_map = {scaled if k is weight else k: spec for k, spec in said.input_qspec_map.items() if k is not bias}
        with graph.inserting_before(norm):
            plain = graph.call_function(_aten.div.Tensor, (layer, graph.call_function(_aten.reshape.default, (factor, channels))))
            if bias is not None:
                plain = graph.call_function(_aten.add.Tensor, (plain, graph.call_function(_aten.reshape.default, (bias, channels))))
        norm.update_arg(0, plain)
        pairs.append({"layer": layer.name, "norm": norm.name, "weight": weight.name, "bias": "" if bias is None else bias.name})
    model.graph.lint()
    model.recompile()
    return pairs


def fold_trained(model: GraphModule, pairs: list[dict[str, str]]) -> None:
    """Fold the batch norms of `train_as_folded` for good: the quantized weight stays that of the folded layer."""
    nodes = {node.name: node for node in model.graph.nodes}
    for pair in pairs:
        layer, norm = nodes[pair["layer"]], nodes[pair["norm"]]
        weight, bias = nodes[pair["weight"]], nodes.get(pair["bias"])
        factor, shift = _factor(model, norm)
        plain = _value(model, weight)
        _set(model, str(weight.target), plain * factor.reshape([-1, *[1] * (plain.ndim - 1)]))
        scaled = _scaled_weight(layer)
        scaled.replace_all_uses_with(weight)
        own = _value(model, bias)
        layer.args = (*layer.args[:2], bias, *layer.args[3:])
        _with_bias(model, layer, weight, shift if own is None else own * factor + shift)
        norm.replace_all_uses_with(layer)
        model.graph.erase_node(norm)
    _tidy(model)


def _scaled_weight(layer: Node) -> Node:
    """The product that the layer's weight is, before what quantizes it."""
    node: Any = layer.args[1]
    while node.target is not _aten.mul.Tensor:
        node = node.args[0]
    return node
