"""Patterns of a graph that `XNNPACKQuantizer` annotates, and what it says of each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from .quantizer import SharedQuantizationSpec
from .utils import (
    OperatorConfig,
    OperatorPatternType,
    QuantizationConfig,
    annotate_operand,
    annotate_result,
    get_bias_qspec,
    get_input_act_qspec,
    get_output_act_qspec,
    get_weight_qspec,
    is_marked,
    mark,
)

__all__ = [
    "OP_TO_ANNOTATOR", "OperatorConfig", "OperatorPatternType", "QuantizationConfig", "get_bias_qspec", "get_input_act_qspec",
    "get_output_act_qspec", "get_weight_qspec", "propagate_annotation", "register_annotator",
]  # fmt: skip

_aten: Any = fb.ops.aten
Filter = Callable[[Node], bool] | None
Annotator = Callable[..., list[list[Node]] | None]

OP_TO_ANNOTATOR: dict[str, Annotator] = {}


def register_annotator(op: str) -> Callable[[Annotator], None]:
    """A decorator that makes a function the annotator of the pattern `op`.

    It gets the graph module, a `QuantizationConfig` and a filter of nodes, and returns the groups of nodes that it has annotated.
    """

    def register(annotator: Annotator) -> None:
        OP_TO_ANNOTATOR[op] = annotator

    return register


_LINEAR = frozenset((_aten.linear.default,))
_CONVOLUTIONS = frozenset((
    _aten.conv1d.default, _aten.conv1d.padding, _aten.conv2d.default, _aten.conv2d.padding, _aten.convolution.default,
))  # fmt: skip
_TRANSPOSED = frozenset((_aten.conv_transpose1d.default, _aten.conv_transpose2d.input))
_RELU = frozenset((_aten.relu.default, _aten.relu_.default))
_ADD, _MUL = (frozenset((getattr(_aten, name).Tensor, getattr(_aten, f"{name}_").Tensor)) for name in ("add", "mul"))
_BATCH_NORM = frozenset((_aten.batch_norm.default,))


def _calls(model: GraphModule, targets: frozenset[Any], wanted: Filter) -> list[Node]:
    """The calls of operators that the filter takes."""
    return [n for n in model.graph.nodes if n.op == "call_function" and n.target in targets and (wanted is None or wanted(n))]


def _alone_after(node: Node, targets: frozenset[Any]) -> Node | None:
    """The node that alone reads `node`, if it is a call of one of `targets`."""
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target in targets else None


# -- layers with weights -----------------------------------------------------------------------------------------------------


def _annotate_layers(
    model: GraphModule, config: QuantizationConfig | None, wanted: Filter, targets: frozenset[Any], after: tuple[frozenset[Any], ...],
) -> list[list[Node]]:  # fmt: skip
    """Annotate layers that operations of `after` follow, one after the other; the result of the last is quantized."""
    found = []
    for layer in _calls(model, targets, wanted):
        group = [layer]
        for others in after:
            follower = _alone_after(group[-1], others)
            if follower is None:
                break
            group.append(follower)
        if len(group) <= len(after) or is_marked(group):
            continue
        x, weight, *rest = layer.args
        if not isinstance(x, Node) or not isinstance(weight, Node):
            continue
        annotate_operand(layer, x, get_input_act_qspec(config))
        annotate_operand(layer, weight, get_weight_qspec(config))
        if rest and isinstance(rest[0], Node):
            annotate_operand(layer, rest[0], get_bias_qspec(config))
        annotate_result(group[-1], get_output_act_qspec(config))
        mark(group)
        found.append(group)
    return found


def _layers(name: str, targets: frozenset[Any], *after: frozenset[Any]) -> None:
    def annotate(model: GraphModule, config: QuantizationConfig | None, wanted: Filter = None) -> list[list[Node]]:
        return _annotate_layers(model, config, wanted, targets, after)

    register_annotator(name)(annotate)


_layers("linear", _LINEAR)
_layers("linear_relu", _LINEAR, _RELU)
for _kind, _targets in (("conv", _CONVOLUTIONS), ("conv_transpose", _TRANSPOSED)):
    _layers(_kind, _targets)
    _layers(f"{_kind}_relu", _targets, _RELU)
    _layers(f"{_kind}_bn", _targets, _BATCH_NORM)
    _layers(f"{_kind}_bn_relu", _targets, _BATCH_NORM, _RELU)


# -- sums and products -------------------------------------------------------------------------------------------------------


def _of_two(name: str, targets: frozenset[Any], *after: frozenset[Any]) -> None:
    def annotate(model: GraphModule, config: QuantizationConfig | None, wanted: Filter = None) -> list[list[Node]]:
        found = []
        for node in _calls(model, targets, wanted):
            group = [node]
            if after:
                follower = _alone_after(node, after[0])
                if follower is None:
                    continue
                group.append(follower)
            operands = [a for a in node.args[:2] if isinstance(a, Node) and _is_of_floats(model, a)]
            if is_marked(group) or not operands:
                continue
            for operand in operands:
                annotate_operand(node, operand, get_input_act_qspec(config))
            annotate_result(group[-1], get_output_act_qspec(config))
            mark(group)
            found.append(group)
        return found

    register_annotator(name)(annotate)


def _is_of_floats(model: GraphModule, node: Node) -> bool:
    """Whether the value is a tensor of floats of several elements: one alone is not worth a scale."""
    val = functools.reduce(getattr, str(node.target).split("."), model) if node.op == "get_attr" else node.meta.get("val")
    return val is None or val.dtype.is_floating_point and val.numel() > 1


_of_two("add", _ADD)
_of_two("add_relu", _ADD, _RELU)
_of_two("mul", _MUL)
_of_two("mul_relu", _MUL, _RELU)


# -- operations that keep a scale --------------------------------------------------------------------------------------------


@register_annotator("adaptive_avg_pool2d")
def _annotate_pool(model: GraphModule, config: QuantizationConfig | None, wanted: Filter = None) -> list[list[Node]]:
    found = []
    for node in _calls(model, frozenset((_aten.adaptive_avg_pool2d.default,)), wanted):
        x: Any = node.args[0]
        if is_marked([node]):
            continue
        annotation = x.meta.get("quantization_annotation")
        shares = annotation is not None and annotation._annotated and annotation.output_qspec is not None
        annotate_operand(node, x, SharedQuantizationSpec(x) if shares else get_input_act_qspec(config))
        annotate_result(node, SharedQuantizationSpec((x, node)))
        mark([node])
        found.append([node])
    return found


@register_annotator("cat")
def _annotate_cat(model: GraphModule, config: QuantizationConfig | None, wanted: Filter = None) -> list[list[Node]]:
    found = []
    for node in _calls(model, frozenset((_aten.cat.default,)), wanted):
        operands: Any = node.args[0]
        if is_marked([node]) or not operands:
            continue
        first = (operands[0], node)
        annotate_operand(node, operands[0], get_input_act_qspec(config))
        for operand in operands[1:]:
            if operand is not operands[0]:
                annotate_operand(node, operand, SharedQuantizationSpec(first))
        annotate_result(node, SharedQuantizationSpec(first))
        mark([node])
        found.append([node])
    return found


@register_annotator("gru_io_only")
def _annotate_gru(model: GraphModule, config: QuantizationConfig | None, wanted: Filter = None) -> list[list[Node]]:
    """Input, state and results of a GRU; within it nothing is quantized."""
    found = []
    for node in _calls(model, frozenset((_aten.gru.input,)), wanted):
        if is_marked([node]):
            continue
        for operand in node.args[:2]:
            if isinstance(operand, Node):
                annotate_operand(node, operand, get_input_act_qspec(config))
        mark([node])
        for result in node.users:
            annotate_result(result, get_output_act_qspec(config))
            mark([result])
        found.append([node, *node.users])
    return found


# Operations that move numbers: what they give has the scale of what they get.
_MOVES = frozenset((
    _aten.max_pool2d.default, _aten.mean.default, _aten.mean.dim, _aten.permute.default, _aten.squeeze.dim, _aten.squeeze.default,
    _aten.squeeze.dims, _aten.adaptive_avg_pool2d.default, _aten.view.default, _aten.reshape.default, _aten.flatten.using_ints,
    _aten.slice.Tensor, _aten.slice_copy.Tensor, _aten.transpose.int, _aten.t.default, _aten.unsqueeze.default, _aten.expand.default,
    _aten.contiguous.default, _aten.clone.default, _aten.dropout.default,
))  # fmt: skip


def propagate_annotation(model: GraphModule) -> None:
    """Let operations that move numbers share the scale of a quantized value that they read."""
    for node in model.graph.nodes:
        if node.op != "call_function" or node.target not in _MOVES or is_marked([node]):
            continue
        x = node.args[0]
        annotation = x.meta.get("quantization_annotation") if isinstance(x, Node) else None
        if annotation is None or annotation.output_qspec is None:
            continue
        annotate_operand(node, x, SharedQuantizationSpec(x))
        annotate_result(node, SharedQuantizationSpec(x))
        mark([node])
