"""From a prepared model to one that computes with integers: first what it means, in float32, then what there are kernels for.

The first step puts `quantize` and `dequantize` in the place of each observer, and reference layers in the place of layers: that model
is what `convert_to_reference_fx` gives. The second step takes an operation between `dequantize` and `quantize` as one with quantized
operands, where there is one. Both mean the same, so what has no such operation stays right.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import flambeau as fb

from .... import _missing
from ....fx import GraphModule, Node
from ....fx.node import map_arg
from ....nn import Module
from ...nn import intrinsic
from ...nn.quantized import reference
from ..backend_config import DTypeConfig
from ..observer import _is_activation_post_process
from ..utils import is_per_channel
from ._lower import lower_function, lower_module, result_is_quantized
from ._patterns import module_of
from ._prepare import Facts, Quantized
from .custom_config import ConvertCustomConfig

__all__ = ["convert"]

_STEPS = (fb.quantize_per_tensor, fb.quantize_per_channel, fb.quantize_per_tensor_dynamic)


def convert(model: GraphModule, custom: ConvertCustomConfig, is_reference: bool) -> GraphModule:
    """The converted model; see `quantize_fx.convert_fx`. `model` itself is changed."""
    facts: Facts = model.meta["quantization"]
    nodes = {node.name: node for node in model.graph.nodes}
    quantized_classes = {old: new for mapping in custom.observed_to_quantized_mapping.values() for old, new in mapping.items()}
    for name in facts.standalone:
        _set_module(model, name, convert(model.get_submodule(name), ConvertCustomConfig(), is_reference))  # type: ignore[arg-type]
    results = {entry.names[0]: _observer_after(model, nodes[entry.names[-1]]) for entry in facts.quantized}
    weights = [entry for entry in facts.quantized if not entry.is_custom]
    for entry in weights:
        _put_reference(model, nodes[entry.names[0]], entry)
    inputs = [node for i, node in enumerate(model.graph.find_nodes(op="placeholder")) if i in facts.input_indexes]
    for node in inputs:
        _dequantized(model, node)
    steps = _Steps(model)
    for node in list(model.graph.nodes):
        if _is_activation_post_process(module_of(model, node)):
            steps.put(node)
    for entry in facts.quantized:
        node = nodes[entry.names[0]]
        if entry.is_custom:
            _put_custom(model, node, quantized_classes, results[entry.names[0]])
        elif not is_reference or entry.dtypes.is_dynamic and _is_recurrent(model, node):
            _lower(model, [nodes[name] for name in entry.names], entry)
    _keep_quantized(model, facts.output_indexes)
    model.graph.eliminate_dead_code()
    for module in model.modules():
        module.__dict__.pop("qconfig", None)
    model.delete_all_unused_submodules()
    model.graph.lint()
    model.recompile()
    model.meta.pop("quantization")
    return model


def _set_module(model: GraphModule, name: str, module: Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def _call(model: GraphModule, node: Node, module: Module) -> None:
    """Let `node` call `module`: in the place of the one it calls, or beside it where other nodes call that too."""
    name = str(node.target)
    if sum(other.op == "call_module" and other.target == name for other in model.graph.nodes) > 1:
        taken = {name for name, _ in model.named_modules()}
        name = next(full for i in itertools.count(1) if (full := f"{name}_{i}") not in taken)
        node.target = name
    _set_module(model, name, module)


def _observer_after(model: GraphModule, node: Node) -> Any:
    return next((found for user in node.users if _is_activation_post_process(found := module_of(model, user))), None)


def _is_recurrent(model: GraphModule, node: Node) -> bool:
    return isinstance(module_of(model, node), (fb.nn.RNNBase, fb.nn.RNNCellBase))


# -- the first step: what it means --------------------------------------------------------------------------------------------


class _Steps:
    """Puts `quantize` and `dequantize` in the place of observers."""

    def __init__(self, model: GraphModule) -> None:
        self.model = model
        self._numbers: Counter[str] = Counter()

    def put(self, node: Node) -> None:
        """The two steps in the place of the call `node` of an observer; nothing where it quantizes to no integers."""
        graph, observer = self.model.graph, module_of(self.model, node)
        source: Any = node.args[0]
        with graph.inserting_before(node):
            if observer.dtype is fb.float16:
                half = graph.call_method("to", (source, fb.float16))
                made = graph.call_method("to", (half, fb.float))
            elif observer.dtype not in (fb.quint8, fb.qint8, fb.qint32):
                made = source
            else:
                made = graph.call_method("dequantize", (self._quantized(node, observer, source),))
        node.replace_all_uses_with(made)
        graph.erase_node(node)

    def _quantized(self, node: Node, observer: Any, source: Node) -> Node:
        graph = self.model.graph
        if getattr(observer, "is_dynamic", False):
            reduced = bool(getattr(observer, "reduce_range", False))
            return graph.call_function(fb.quantize_per_tensor_dynamic, (source, observer.dtype, reduced))
        scale, zero_point = observer.calculate_qparams()
        prefix = self._prefix(node, source)
        channels = is_per_channel(observer.qscheme)
        if not channels:
            scale, zero_point = fb.tensor(float(scale)), fb.tensor(int(zero_point))
        else:
            scale, zero_point = scale.to(fb.float), zero_point.to(fb.int64)
        qparams = [self._attribute(f"{prefix}{name}", value) for name, value in (("_scale", scale), ("_zero_point", zero_point))]
        if channels:
            return graph.call_function(fb.quantize_per_channel, (source, *qparams, int(observer.ch_axis), observer.dtype))
        return graph.call_function(fb.quantize_per_tensor, (source, *qparams, observer.dtype))

    def _prefix(self, node: Node, source: Node) -> str:
        """The module whose result is quantized names the scale, or that whose operand it is."""
        if source.op == "call_module":
            return str(source.target).replace(".", "_")
        if source.op == "placeholder":
            user = next(iter(node.users), None)
            place = str(user.target).replace(".", "_") if user is not None and user.op == "call_module" else ""
            return f"{place}_input"
        return ""

    def _attribute(self, name: str, value: Any) -> Node:
        full = f"{name}_{self._numbers[name]}"
        self._numbers[name] += 1
        self.model.register_buffer(full, value.detach())
        return self.model.graph.get_attr(full)


def _dequantized(model: GraphModule, node: Node) -> None:
    """The numbers of a quantized argument for all that take it."""
    users = list(node.users)
    with model.graph.inserting_after(node):
        made = model.graph.call_method("dequantize", (node,))
    for user in users:
        user.replace_input_with(node, made)


def _weight_qparams(observer: Any) -> dict[str, Any]:
    found = {"dtype": observer.dtype, "qscheme": getattr(observer, "qscheme", None), "axis": getattr(observer, "ch_axis", 0)}
    if observer.dtype is not fb.float16:
        found["scale"], found["zero_point"] = observer.calculate_qparams()
    return found


def _put_reference(model: GraphModule, node: Node, entry: Quantized) -> None:
    """A reference layer in the place of the layer that `node` calls, if it has a weight that is quantized."""
    module, config = module_of(model, node), entry.config
    if module is None or config.reference_quantized_module is None:
        return
    observer = getattr(module, "weight_fake_quant", None)
    if hasattr(module, "weight_fake_quant"):
        module = module.to_float()
    joined = isinstance(module, intrinsic._FusedModule)
    layer: Any = module[0] if joined else module  # type: ignore[index]
    if isinstance(layer, reference.ReferenceQuantizedModule):                # called a second time
        return
    if observer is None:
        observer = entry.qconfig.weight()
        observer(layer.weight)
    elif hasattr(observer, "activation_post_process"):
        observer(layer.weight)
    made = getattr(reference, type(layer).__name__).from_float(layer, _weight_qparams(observer))
    if joined:
        module[0] = made  # type: ignore[index]
        made = module
    made.qconfig = entry.qconfig
    _set_module(model, str(node.target), made)


# -- modules that a program brings --------------------------------------------------------------------------------------------


def _put_custom(model: GraphModule, node: Node, classes: dict[type, type], observer: Any) -> None:
    """The quantized module of a program: it takes and gives quantized tensors."""
    module = module_of(model, node)
    kind = classes.get(type(module))
    if kind is None:
        return
    module.activation_post_process = observer
    _set_module(model, str(node.target), kind.from_observed(module))
    _take_quantized(node)
    _give_quantized(model, node)


def _take_quantized(node: Node) -> None:
    """Operands of `node` as they are before `dequantize`."""

    def before(operand: Node) -> Node:
        return operand.args[0] if operand.op == "call_method" and operand.target == "dequantize" else operand  # type: ignore[return-value]

    node.args, node.kwargs = map_arg(node.args, before), map_arg(node.kwargs, before)


def _step_after(node: Node) -> Node | None:
    return next((user for user in node.users if user.op == "call_function" and user.target in _STEPS), None)


def _give_quantized(model: GraphModule, node: Node) -> None:
    """What follows takes the quantized result of `node` in the place of one that is quantized after it."""
    step = _step_after(node)
    if step is not None:
        step.replace_all_uses_with(node)
        model.graph.erase_node(step)


# -- the second step: what there are kernels for --------------------------------------------------------------------------------


def _lower(model: GraphModule, nodes: list[Node], entry: Quantized) -> None:
    first, last = nodes[0], nodes[-1]
    module = module_of(model, first)
    if entry.dtypes.is_dynamic or entry.dtypes.input_dtype is fb.float:
        made = lower_module(module, None, entry.dtypes)
        if made is not None:
            _call(model, first, made)
            _take_numbers(first)
        return
    step = _step_after(last)
    operands = _operands(first, module is not None, entry.dtypes, entry.config._input_type_to_index)
    if step is None or not operands or not all(x.op == "call_method" and x.target == "dequantize" for x in operands):
        return
    scale = tuple(getattr(model, str(x.target)) for x in step.args[1:3])  # type: ignore[union-attr]
    if module is not None and len(nodes) == 1:
        made = lower_module(module, (float(scale[0]), int(scale[1])), entry.dtypes)
        if made is None and not result_is_quantized(type(module), first):
            return
        if made is not None:
            _call(model, first, made)
        _take_quantized(first)
        _give_quantized(model, first)
        return
    if module is not None:
        return
    if len(nodes) == 1 and result_is_quantized(first.target, first):
        _take_quantized(first)
        _give_quantized(model, first)
        return
    made_node = lower_function(model, nodes, step)
    if made_node is not None:
        step.replace_all_uses_with(made_node)
        model.graph.erase_node(step)
        for node in reversed(nodes):
            model.graph.erase_node(node)


def _operands(node: Node, is_module: bool, dtypes: DTypeConfig, places: dict[str, int]) -> list[Node]:
    """The operands of `node` that are activations or a quantized weight."""
    left = {places.get("bias"), "bias"} if places else set()
    values = [(0, node.args[0])] if is_module else [*enumerate(node.args), *node.kwargs.items()]
    found = [x for at, value in values if at not in left for x in (value if isinstance(value, (list, tuple)) else (value,))]
    return [x for x in found if isinstance(x, Node)]


def _take_numbers(node: Node) -> None:
    """Operands of `node` as they are before they are quantized: the layer quantizes them itself."""

    def before(operand: Node) -> Node:
        step: Any = operand.args[0] if operand.op == "call_method" and operand.target in ("dequantize", "to") else None
        is_step = isinstance(step, Node) and (step.target in _STEPS or step.target == "to")
        return step.args[0] if is_step else operand

    node.args, node.kwargs = map_arg(node.args, before), map_arg(node.kwargs, before)


def _keep_quantized(model: GraphModule, indexes: list[int]) -> None:
    """Results at these places stay quantized."""
    if not indexes:
        return
    output = model.graph.output_node()
    results = output.args[0]
    if any(i >= (len(results) if isinstance(results, (list, tuple)) else 1) for i in indexes):
        raise _missing.not_built("PrepareCustomConfig.set_output_quantized_indexes", "name places of the results that the model has")

    def before(value: Any) -> Any:
        return value.args[0] if isinstance(value, Node) and value.op == "call_method" and value.target == "dequantize" else value

    if isinstance(results, (list, tuple)):
        output.args = (type(results)(before(x) if i in indexes else x for i, x in enumerate(results)),)
    else:
        output.args = (before(results),)
