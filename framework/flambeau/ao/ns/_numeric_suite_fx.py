"""Compare a traced model with its quantized one: weights, results of operations, and operations on the inputs of the other.

Results are nested dictionaries: by layer, by "weight", "node_output" or "node_input", by the model's name, a list of records. A record has
`values`, a list of tensors, and says which node they belong to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fb

from ... import _missing
from ...fx import GraphModule, Node, Tracer
from ...fx.node import map_arg
from ...nn import Module
from ...tensor import Tensor
from ..quantization.fx._tracing import traced
from ..quantization.observer import _is_activation_post_process
from .fx._matching import Operation, matched, module_of, target_type
from .fx.utils import compute_sqnr

__all__ = [
    "NSTracer", "OutputComparisonLogger", "OutputLogger", "add_loggers", "add_shadow_loggers", "convert_n_shadows_model",
    "extend_logger_results_with_comparison", "extract_logger_info", "extract_results_n_shadows_model", "extract_shadow_logger_info",
    "extract_weights", "loggers_set_enabled", "loggers_set_save_activations", "prepare_n_shadows_model",
    "print_comparisons_n_shadows_model",
]  # fmt: skip

Results = dict[str, dict[str, dict[str, list[dict[str, Any]]]]]


class OutputLogger(Module):
    """Keeps the tensors that pass, in `stats`.

    Args:
        ref_node_name, ref_node_target_type: the operation, and what it calls.
        prev_node_name, prev_node_target_type: the node whose values are kept, and what it calls.
        model_name: the model's.
        ref_name: the layer's name in results.
        results_type: "node_output" or "node_input".
        index_within_arg, index_of_arg: which tensor of which argument, for inputs.
        fqn: the dotted name of the module, or "".
        qconfig_str: the QConfig in words, for shadows.
    """

    def __init__(
        self, ref_node_name: str, prev_node_name: str, model_name: str, ref_name: str, prev_node_target_type: str,
        ref_node_target_type: str, results_type: str, index_within_arg: int, index_of_arg: int, fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:  # fmt: skip
        super().__init__()
        self.ref_node_name, self.prev_node_name = ref_node_name, prev_node_name
        self.model_name, self.ref_name = model_name, ref_name
        self.prev_node_target_type, self.ref_node_target_type = prev_node_target_type, ref_node_target_type
        self.results_type = results_type
        self.index_within_arg, self.index_of_arg = index_within_arg, index_of_arg
        self.fqn, self.qconfig_str = fqn, qconfig_str
        self.stats: list[Any] = []
        self.enabled = self.save_activations = self.is_ns_logger = True

    def forward(self, x: Any) -> Any:
        """`x` itself, a copy of which is kept."""
        if self.enabled and self.save_activations:
            self.stats.append(_copied(x))
        return x

    def extra_repr(self) -> str:
        return f"ref_name={self.ref_name}, model_name={self.model_name}, ref_node_name={self.ref_node_name}"


class OutputComparisonLogger(OutputLogger):
    """Compares the tensors that pass with those of another operation, in `comparisons`, and keeps them; arguments are `OutputLogger`'s.

    The attribute `comparison_fn` compares, by default `compute_sqnr`; `comparison_fn_name` is its name in results.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.comparison_fn: Callable[[Any, Any], Any] = compute_sqnr
        self.comparison_fn_name = "sqnr"
        self.comparisons: list[Any] = []

    def forward(self, x: Any, x_ref: Any) -> Any:  # type: ignore[override]
        """`x` itself, compared with `x_ref`."""
        if self.enabled:
            if not isinstance(x, Tensor) or not isinstance(x_ref, Tensor):
                raise AssertionError(f"OutputComparisonLogger: compares tensors, got {type(x).__name__} and {type(x_ref).__name__}")
            self.comparisons.append(self.comparison_fn(x.detach(), x_ref.detach()))
            if self.save_activations:
                self.stats.append(_copied(x))
        return x


def _copied(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.detach().clone()
    if isinstance(x, (list, tuple)):
        return tuple(map(_copied, x))
    return x


class NSTracer(Tracer):
    """Traces a model whose modules of these names and classes stay single nodes, and observers and loggers too.

    Args:
        skipped_module_names, skipped_module_classes: of modules that are not looked into.
    """

    def __init__(self, skipped_module_names: list[str], skipped_module_classes: list[Callable[..., Any]]) -> None:
        super().__init__()
        self.skipped_module_names, self.skipped_module_classes = skipped_module_names, skipped_module_classes

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """See `fx.Tracer.is_leaf_module`."""
        left = module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes
        return left or _is_activation_post_process(m) or hasattr(m, "is_ns_logger") or super().is_leaf_module(m, module_qualified_name)


def _graph_of(model: Any) -> GraphModule:
    """`model` as it is if it is traced, or traced."""
    if isinstance(model, GraphModule):
        return model
    made = GraphModule(model, NSTracer([], []).trace(model))
    made.training = model.training
    return made


def _no_maps(function: str, **maps: Any) -> None:
    for name, value in maps.items():
        if value is not None:
            raise _missing.not_built(f"ao.ns._numeric_suite_fx.{function}({name}=)", "operations are matched by their names; leave it out")


def _record(model: GraphModule, operation: Operation, kind: str, values: list[Any], prev: Node | None = None) -> dict[str, Any]:
    node, last = operation.node, operation.end if prev is None else prev
    return {
        "type": kind, "values": values, "prev_node_name": last.name, "prev_node_target_type": target_type(model, last),
        "ref_node_name": node.name, "ref_node_target_type": target_type(model, node), "index_within_arg": 0, "index_of_arg": 0,
        "fqn": _fqn(operation),
    }  # fmt: skip


# -- weights ------------------------------------------------------------------------------------------------------------------


def _weight_of(model: GraphModule, node: Node) -> Any:
    """The weight of an operation, or None."""
    module = module_of(model, node)
    if module is not None:
        for layer in (module, *module.children()):
            weight = getattr(layer, "weight", None)
            found = weight() if callable(weight) and not isinstance(weight, Tensor) else weight
            if isinstance(found, Tensor) and found.ndim > 1:
                return found.detach()
        return None
    operand: Any = node.kwargs.get("weight", node.args[1] if len(node.args) > 1 else None)
    while isinstance(operand, Node) and operand.op != "get_attr":
        operand = operand.args[0] if operand.args else None
    if not isinstance(operand, Node) or not any(word in target_type(model, node) for word in ("linear", "conv")):
        return None
    value: Any = model
    for part in str(operand.target).split("."):
        value = getattr(value, part)
    return value.detach()


def extract_weights(
    model_name_a: str, model_a: Module, model_name_b: str, model_b: Module,
    base_name_to_sets_of_related_ops: Any = None, unmatchable_types_map: Any = None, op_to_type_to_weight_extraction_fn: Any = None,
) -> Results:  # fmt: skip
    """The weights of layers of both models, side by side.

    Args:
        model_name_a, model_name_b: names in the results.
        model_a, model_b: traced models, or ones that can be traced.
        base_name_to_sets_of_related_ops, unmatchable_types_map, op_to_type_to_weight_extraction_fn: not built.
    """
    _no_maps(
        "extract_weights", base_name_to_sets_of_related_ops=base_name_to_sets_of_related_ops, unmatchable_types_map=unmatchable_types_map,
        op_to_type_to_weight_extraction_fn=op_to_type_to_weight_extraction_fn,
    )  # fmt: skip
    a, b = _graph_of(model_a), _graph_of(model_b)
    results: Results = {}
    for pair in matched(a, b):
        weights = _weight_of(a, pair.a.node), _weight_of(b, pair.b.node)
        if any(weight is None for weight in weights):
            continue
        results[pair.b.node.name] = {
            "weight": {
                model_name_a: [_record(a, pair.a, "weight", [weights[0]], pair.a.node)],
                model_name_b: [_record(b, pair.b, "weight", [weights[1]], pair.b.node)],
            }
        }
    return results


# -- results of operations ------------------------------------------------------------------------------------------------------


def _log(
    into: GraphModule, node: Node, model: GraphModule, operation: Operation, name: str, ref_name: str, kind: str, logger_cls: Any,
    fqn: str, index_of_arg: int = 0,
) -> Node:  # fmt: skip
    """A logger in `into` of the values of `node`, which are those of an operation of `model`; nothing takes from it yet."""
    taken = dict(into.named_children())
    place = next(full for i in range(len(taken) + 1) if (full := f"{node.name}_ns_logger_{i}") not in taken)
    logger = logger_cls(
        operation.node.name, node.name, name, ref_name, target_type(into, node), target_type(model, operation.node), kind, 0, index_of_arg,
        fqn,
    )  # fmt: skip
    return _place(into, place, logger, (node,), node)


def _log_within(
    model: GraphModule, node: Node, operation: Operation, name: str, ref_name: str, kind: str, logger_cls: Any, index_of_arg: int = 0,
    before: Node | None = None,
) -> None:  # fmt: skip
    """A logger of the values of `node` on the way to all that take them, or only to `before`."""
    users = list(node.users) if before is None else [before]
    made = _log(model, node, model, operation, name, ref_name, kind, logger_cls, _fqn(operation), index_of_arg)
    for user in users:
        user.replace_input_with(node, made)


def _place(model: GraphModule, name: str, module: Module, operands: tuple[Any, ...], after: Node) -> Node:
    """A call of `module`, which becomes the attribute `name` of `model`, right after a node."""
    model.add_submodule(name, module)
    with model.graph.inserting_after(after):
        return model.graph.create_node("call_module", name, operands, {}, name)


def _fqn(operation: Operation) -> str:
    """The dotted name of the module that an operation calls, or ""."""
    return str(operation.node.target) if operation.node.op == "call_module" else ""


def _observed(model: GraphModule, node: Node) -> Node:
    """The call of the observer of `node`, whose values it passes on, or `node`."""
    return next((user for user in node.users if _is_activation_post_process(module_of(model, user))), node)


def _is_constant(model: GraphModule, node: Node) -> bool:
    """Whether the values of `node` are a parameter or buffer, observed or quantized."""
    while node.op != "get_attr":
        step = node.target in (fb.quantize_per_tensor, fb.quantize_per_channel, "dequantize")
        if not step and not _is_activation_post_process(module_of(model, node)):
            return False
        node = node.args[0]  # type: ignore[assignment]
    return True


def _operands_of(model: GraphModule, node: Node) -> list[Node]:
    """The positional operands of `node` that are computed."""
    return [x for x in node.args if isinstance(x, Node) and not _is_constant(model, x)]


def add_loggers(
    name_a: str, model_a: Module, name_b: str, model_b: Module, logger_cls: Callable[..., Any], should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Any = None, unmatchable_types_map: Any = None,
) -> tuple[Module, Module]:  # fmt: skip
    """Both models with a logger after each operation that both have; run them, and `extract_logger_info`.

    Args:
        name_a, name_b: names in the results.
        model_a, model_b: traced models, which are changed, or ones that can be traced.
        logger_cls: `OutputLogger`, or a class like it.
        should_log_inputs: log operands too.
        base_name_to_sets_of_related_ops, unmatchable_types_map: not built.
    """
    _no_maps("add_loggers", base_name_to_sets_of_related_ops=base_name_to_sets_of_related_ops, unmatchable_types_map=unmatchable_types_map)
    a, b = _graph_of(model_a), _graph_of(model_b)
    for pair in matched(a, b):
        ref_name = pair.b.node.name
        for model, name, operation in ((a, name_a, pair.a), (b, name_b, pair.b)):
            if should_log_inputs:
                for i, operand in enumerate(_operands_of(model, operation.node)):
                    _log_within(model, operand, operation, name, ref_name, "node_input", logger_cls, i, operation.node)
            _log_within(model, _observed(model, operation.end), operation, name, ref_name, "node_output", logger_cls)
    for model in (a, b):
        model.graph.lint()
        model.recompile()
    return a, b


def _logged(model: Module, logger_cls: Any, results: Results) -> None:
    for logger in model.modules():
        if not isinstance(logger, (logger_cls, OutputLogger)):
            continue
        record = {
            "type": logger.results_type, "values": logger.stats, "ref_node_name": logger.ref_node_name,
            "ref_node_target_type": logger.ref_node_target_type, "prev_node_name": logger.prev_node_name,
            "prev_node_target_type": logger.prev_node_target_type, "index_within_arg": logger.index_within_arg,
            "index_of_arg": logger.index_of_arg, "fqn": logger.fqn, "qconfig_str": logger.qconfig_str,
            "comparisons": getattr(logger, "comparisons", []), "comparison_fn_name": getattr(logger, "comparison_fn_name", ""),
        }  # fmt: skip
        layer = results.setdefault(logger.ref_name, {}).setdefault(logger.results_type, {})
        layer.setdefault(logger.model_name, []).append(record)


def extract_logger_info(
    model_a: Module, model_b: Module, logger_cls: Callable[..., Any], model_name_to_use_for_layer_names: str
) -> Results:
    """What the loggers of both models have kept.

    Args:
        model_a, model_b: of `add_loggers`, having run.
        logger_cls: the class of loggers that was put in.
        model_name_to_use_for_layer_names: the model whose nodes name the layers in the results.
    """
    results: Results = {}
    for model in (model_a, model_b):
        _logged(model, logger_cls, results)
    return _renamed(results, model_name_to_use_for_layer_names)


def _renamed(results: Results, model_name: str) -> Results:
    """The results by the names that the nodes of one model have."""
    made: Results = {}
    for layer, kinds in results.items():
        records = [record for models in kinds.values() for record in models.get(model_name, ())]
        made[records[0]["ref_node_name"] if records else layer] = kinds
    return made


def extend_logger_results_with_comparison(
    results: Results, model_name_1: str, model_name_2: str, comparison_fn: Callable[[Tensor, Tensor], Tensor], comparison_name: str
) -> None:
    """Add to the records of `model_name_2` a list of what `comparison_fn` says of the values of both models.

    Args:
        results: of `extract_logger_info`, `extract_shadow_logger_info` or `extract_weights`; changed.
        model_name_1, model_name_2: names in the results.
        comparison_name: the key of the list.
    Raises: AssertionError for a layer that one of the models has no record of.
    """
    for layer, kinds in results.items():
        for models in kinds.values():
            for name in (model_name_1, model_name_2):
                if name not in models:
                    raise AssertionError(f"extend_logger_results_with_comparison: {name} has no values of {layer}; it has {list(models)}")
            for one, other in zip(models[model_name_1], models[model_name_2], strict=True):
                other[comparison_name] = [comparison_fn(x, y) for x, y in zip(one["values"], other["values"], strict=False)]


# -- shadows: operations of one model on the inputs of the other -----------------------------------------------------------------


def _dense(x: Any) -> Any:
    """The numbers of a quantized tensor; other values as they are."""
    return x.dequantize() if isinstance(x, Tensor) and x.is_quantized else x


class _Shadow(Module):
    """An operation of a float model, run on the operands of its quantized counterpart."""

    def __init__(self, parts: list[tuple[Any, int, tuple[Any, ...], dict[str, Any]]]) -> None:
        super().__init__()
        self.parts = parts
        for i, (part, _, _, _) in enumerate(parts):
            if isinstance(part, Module):
                self.add_module(str(i), part)

    def forward(self, *operands: Any) -> Any:
        """The result in float32."""
        made: Any = None
        for i, (part, count, rest, keywords) in enumerate(self.parts):
            given = tuple(map(_dense, operands[:count])) if i == 0 else (made,)
            if isinstance(part, str):
                made = getattr(given[0], part)(*given[1:], *rest, **keywords)
            else:
                made = part(*given, *rest, **keywords)
        return made


def _shadow_of(a: GraphModule, operation: Operation) -> _Shadow | None:
    """The operation of `a` as a module of its operands; None where operands are no plain positional tensors."""
    parts = []
    nodes = [operation.node] if operation.end is operation.node else [operation.node, operation.end]
    for node in nodes:
        given = list(node.args)
        count = next((i for i, x in enumerate(given) if not isinstance(x, Node) or _is_constant(a, x)), len(given))
        rest = map_arg(tuple(given[count:]), lambda x: _constant(a, x))
        keywords = map_arg(dict(node.kwargs), lambda x: _constant(a, x))
        if count == 0:
            return None
        module = module_of(a, node)
        parts.append((module if module is not None else node.target, count, rest, keywords))
    return _Shadow(parts)


def _constant(model: GraphModule, node: Node) -> Any:
    """The value of a parameter or buffer, past the observers and steps after it."""
    while node.op != "get_attr":
        node = node.args[0]  # type: ignore[assignment]
    value: Any = model
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def add_shadow_loggers(
    name_a: str, model_a: Module, name_b: str, model_b: Module, logger_cls: Callable[..., Any], should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: Any = None, node_type_to_io_type_map: Any = None, unmatchable_types_map: Any = None,
) -> Module:  # fmt: skip
    """`model_b` with each operation of `model_a` beside its own, on its own operands, and loggers after both.

    Run it, and `extract_shadow_logger_info`: differences are then those of one operation, not of all before it.

    Args:
        name_a, name_b, model_a, model_b, logger_cls, should_log_inputs: see `add_loggers`; `model_b` is changed.
        base_name_to_sets_of_related_ops, node_type_to_io_type_map, unmatchable_types_map: not built.
    """
    _no_maps(
        "add_shadow_loggers", base_name_to_sets_of_related_ops=base_name_to_sets_of_related_ops,
        node_type_to_io_type_map=node_type_to_io_type_map, unmatchable_types_map=unmatchable_types_map,
    )  # fmt: skip
    a, b = _graph_of(model_a), _graph_of(model_b)
    for number, pair in enumerate(matched(a, b)):
        shadow = _shadow_of(a, pair.a)
        count = 0 if shadow is None else shadow.parts[0][1]
        operands = _operands_of(b, pair.b.node)[:count]
        if shadow is None or len(operands) < count:
            continue
        fqn, ref_name = _fqn(pair.b), pair.b.node.name
        if should_log_inputs:
            for i, operand in enumerate(operands):
                for model, name, operation in ((a, name_a, pair.a), (b, name_b, pair.b)):
                    _log(b, operand, model, operation, name, ref_name, "node_input", logger_cls, fqn, i)
        made = _place(b, f"{ref_name}_shadow_{number}", shadow, tuple(operands), pair.b.end)
        _log(b, made, a, pair.a, name_a, ref_name, "node_output", logger_cls, fqn)
        _log(b, _observed(b, pair.b.end), b, pair.b, name_b, ref_name, "node_output", logger_cls, fqn)
    b.graph.lint()
    b.recompile()
    return b


def extract_shadow_logger_info(
    model_a_shadows_b: Module, logger_cls: Callable[..., Any], model_name_to_use_for_layer_names: str
) -> Results:
    """What the loggers of `model_a_shadows_b`, a model of `add_shadow_loggers`, have kept; see `extract_logger_info`."""
    results: Results = {}
    _logged(model_a_shadows_b, logger_cls, results)
    return _renamed(results, model_name_to_use_for_layer_names)


# -- many shadows: several QConfigs of each operation ------------------------------------------------------------------------------


def prepare_n_shadows_model(
    model: Module, example_inputs: Any, qconfig_multi_mapping: Any, backend_config: Any,
    custom_prepare_fn: Callable[..., Any] | None = None, custom_prepare_kwargs: dict[str, Any] | None = None, custom_tracer: Any = None,
) -> GraphModule:  # fmt: skip
    """`model` traced, with beside each of its layers copies that observe, one for each QConfig; calibrate it, convert it, run it.

    Args:
        model: in evaluation mode.
        example_inputs: a tuple of arguments.
        qconfig_multi_mapping: a list of `QConfigMapping`, or an object with `qconfig_mappings_list`; a layer gets a copy for each that
            gives it a QConfig.
        backend_config: what the backend computes.
        custom_prepare_fn: prepares copies in the place of `prepare_fx`, called as ``(module, mapping, example_inputs, **kwargs)``.
        custom_prepare_kwargs: more arguments for it.
        custom_tracer: traces the model in the place of the usual one.
    """
    from ..quantization.quantize_fx import prepare_fx

    mappings = getattr(qconfig_multi_mapping, "qconfig_mappings_list", qconfig_multi_mapping)
    if custom_tracer is not None:
        graph = GraphModule(model, custom_tracer.trace(model))
    else:
        graph, _ = traced(model)
    made: GraphModule = graph
    layers = [node for node in made.graph.nodes if node.op == "call_module"]
    for number, node in enumerate(layers):
        module = module_of(made, node)
        Operation(node, node, "")
        found = []
        for mapping in mappings:
            wrapper: Module = fb.nn.Sequential(copy.deepcopy(module))
            own = _for_one(mapping, str(node.target), type(module))
            prepare = custom_prepare_fn or prepare_fx
            prepared = prepare(wrapper, own, example_inputs, backend_config=backend_config, **(custom_prepare_kwargs or {}))
            if any(map(_is_activation_post_process, prepared.modules())):
                found.append((prepared, own.global_qconfig))
        if not found:
            continue
        fqn = str(node.target)
        before = made.graph
        logged = _place(made, f"shadow_{number}_0", _logger(OutputLogger, node, made, number, 0, fqn, ""), (node,), node)
        for k, (prepared, qconfig) in enumerate(found, 1):
            called = _place(made, f"shadow_wrapper_{number}_{k}", prepared, tuple(node.args), logged)
            logger = _logger(OutputComparisonLogger, node, made, number, k, fqn, str(qconfig))
            logged = _place(made, f"shadow_{number}_{k}", logger, (called, node), called)
        before.lint()
    made.recompile()
    return made


def _for_one(mapping: Any, path: str, kind: Any) -> Any:
    """A mapping that gives all operations of a copy the QConfig that `mapping` gives the layer."""
    from ..quantization.qconfig_mapping import QConfigMapping

    found = mapping.object_type_qconfigs.get(kind, mapping.global_qconfig)
    return QConfigMapping().set_global(mapping.module_name_qconfigs.get(path, found))


def _logger(kind: Any, node: Node, model: GraphModule, number: int, k: int, fqn: str, qconfig: str) -> Any:
    called = target_type(model, node)
    return kind(node.name, node.name, f"subgraph_{number}_{k}", f"subgraph_{number}", called, called, "node_output", 0, 0, fqn, qconfig)


def convert_n_shadows_model(
    model: GraphModule, custom_convert_fn: Callable[..., Any] | None = None, custom_convert_kwargs: dict[str, Any] | None = None
) -> GraphModule:
    """The model of `prepare_n_shadows_model` with its copies converted, by `convert_fx` or by `custom_convert_fn`.

    Args:
        custom_convert_kwargs: more arguments for `custom_convert_fn`.
    """
    from ..quantization.quantize_fx import convert_fx

    for name, child in list(model.named_children()):
        if name.startswith("shadow_wrapper_"):
            convert: Callable[..., Any] = custom_convert_fn or convert_fx
            setattr(model, name, convert(child, **(custom_convert_kwargs or {})))
    for logger in _loggers(model):
        logger.stats, logger.comparisons = [], []
    return model


def _loggers(model: Module) -> Iterable[Any]:
    return (module for module in model.modules() if hasattr(module, "is_ns_logger"))


def extract_results_n_shadows_model(model: Module) -> Results:
    """What the loggers of the model have kept, by layer, and by "subgraph_i_k" for the k-th copy; 0 is the layer itself."""
    results: Results = {}
    _logged(model, OutputLogger, results)
    return results


def loggers_set_enabled(model: Module, enabled: bool) -> None:
    """Let all loggers of `model` look at what passes, or not."""
    for logger in _loggers(model):
        logger.enabled = enabled


def loggers_set_save_activations(model: Module, save_activations: bool) -> None:
    """Let all loggers of `model` keep what passes, or not; comparisons are made all the same."""
    for logger in _loggers(model):
        logger.save_activations = save_activations


def print_comparisons_n_shadows_model(results: Results) -> None:
    """Print a line for each layer: its name, what it calls, and the mean of the comparisons of each of its copies."""
    rows = []
    for layer, kinds in results.items():
        models = kinds["node_output"]
        first = next(iter(models.values()))[0]
        compared = [record["comparisons"] for records in models.values() for record in records if record["comparison_fn_name"]]
        means = [f"{float(fb.stack([fb.as_tensor(c) for c in one]).mean()):.4f}" if one else "-" for one in compared]
        rows.append([layer, first["fqn"], first["ref_node_target_type"], *means])
    if not rows:
        print("no results")
        return
    width = max(map(len, rows))
    rows = [["subgraph", "fqn", "calls", *map(str, range(1, width - 2))], *([*row, *[""] * (width - len(row))] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip())
