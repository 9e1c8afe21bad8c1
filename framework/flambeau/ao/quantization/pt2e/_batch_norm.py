"""Batch norms after convolutions: folded into their weights, at once for evaluation, and after training for quantized training."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from ....nn import Parameter
from ....nn.utils.fusion import fuse_conv_bn_weights

__all__ = ["fold", "fold_trained", "train_as_folded"]

_aten: Any = fb.ops.aten
_CONVOLUTIONS = frozenset((
    _aten.conv1d.default, _aten.conv1d.padding, _aten.conv2d.default, _aten.conv2d.padding, _aten.conv3d.default, _aten.conv3d.padding,
))  # fmt: skip
_TRANSPOSED = frozenset((_aten.conv_transpose1d.default, _aten.conv_transpose2d.input))
_GROUPS = 6  # the place of `groups` among the arguments of transposed ones


def _value(model: GraphModule, node: Any) -> Any:
    """The tensor that a node reads of the model; None for no node."""
    return None if node is None else functools.reduce(getattr, str(node.target).split("."), model)


def _pairs(model: GraphModule, training: bool) -> list[tuple[Any, Any]]:
    """Convolutions that a batch norm alone reads, which are trained together or evaluated, with weights that nothing else reads."""
    reads = Counter(str(node.target) for node in model.graph.find_nodes(op="get_attr") for _ in node.users)
    found = []
    for norm in model.graph.nodes:
        if norm.target is not _aten.batch_norm.default or norm.args[5] is not training or norm.args[3] is None:
            continue
        layer = norm.args[0]
        if layer.target not in _CONVOLUTIONS | _TRANSPOSED or len(layer.users) != 1:
            continue
        if layer.target in _TRANSPOSED and len(layer.args) > _GROUPS and layer.args[_GROUPS] != 1:
            continue                                  # whose weights have no dimension of all output channels
        state = [a for a in layer.args[1:3] if isinstance(a, Node)]
        # Of one image without a batch the norm takes rows for channels.
        batched = layer.meta["val"].ndim == _value(model, state[0]).ndim if state[0].op == "get_attr" else False
        if batched and all(a.op == "get_attr" and reads[str(a.target)] == 1 for a in state):
            found.append((layer, norm))
    return found


def _set(model: GraphModule, path: str, value: Any) -> None:
    *parents, name = path.split(".")
    home = model.get_submodule(".".join(parents))
    if isinstance(home._parameters.get(name), Parameter):
        home._parameters[name] = Parameter(value.detach(), requires_grad=home._parameters[name].requires_grad)
    else:
        setattr(home, name, value.detach())


def _folded(model: GraphModule, layer: Any, norm: Any, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Weight and bias of a convolution that also normalizes; `weight` and `bias` are what reads its own."""
    _, gain, shift, mean, variance, _, _, eps, *_ = norm.args
    own, added, mean, variance, gain, shift = (_value(model, node) for node in (weight, bias, mean, variance, gain, shift))
    return fuse_conv_bn_weights(own, added, mean, variance, eps, gain, shift, transpose=layer.target in _TRANSPOSED)


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
        weight = layer.args[1]
        made, added = _folded(model, layer, norm, weight, layer.args[2] if len(layer.args) > 2 else None)
        _set(model, str(weight.target), made)
        _with_bias(model, layer, weight, added)
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
        if layer.target in _TRANSPOSED:
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
        annotation = layer.meta.get("quantization_annotation")
        if annotation is not None:
            annotation.input_qspec_map = {
                scaled if k is weight else k: spec for k, spec in annotation.input_qspec_map.items() if k is not bias
            }
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
        made, added = _folded(model, layer, norm, weight, bias)
        _set(model, str(weight.target), made)
        _scaled_weight(layer).replace_all_uses_with(weight)
        layer.args = (*layer.args[:2], bias, *layer.args[3:])
        _with_bias(model, layer, weight, added)
        norm.replace_all_uses_with(layer)
        model.graph.erase_node(norm)
    _tidy(model)


def _scaled_weight(layer: Node) -> Node:
    """The product that the layer's weight is, before what quantizes it."""
    node: Any = layer.args[1]
    while node.target is not _aten.mul.Tensor:
        node = node.args[0]
    return node
