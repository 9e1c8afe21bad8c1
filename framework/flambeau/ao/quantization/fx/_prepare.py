"""Observers into a traced model: before and after what a backend computes with quantized tensors."""

from __future__ import annotations

import copy
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from ....fx.node import map_arg
from ....nn import Module, Sequential
from ..backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    ObservationType,
    constraints_met,
)
from ..observer import ReuseInputObserver
from ..qconfig_mapping import QConfigMapping
from ._patterns import Match, find_matches, module_of
from ._tracing import fuse, keep_attributes, traced
from .custom_config import PrepareCustomConfig

__all__ = ["Facts", "Quantized", "prepare"]

_QUANTIZED = (fb.quint8, fb.qint8, fb.qint32, fb.quint4x2)


@dataclass
class Quantized:
    """What `convert` has to know of one match.

    Args:
        names: of its nodes.
        config: what the backend does with it.
        dtypes: those of its dtypes that the QConfig fits.
        qconfig: its QConfig.
        is_custom: whether it is a module that a program observes itself.
    """

    names: list[str]
    config: BackendPatternConfig
    dtypes: DTypeConfig
    qconfig: Any
    is_custom: bool = False


@dataclass
class Facts:
    """What `convert` has to know of a prepared model."""

    quantized: list[Quantized] = field(default_factory=list)
    standalone: list[str] = field(default_factory=list)
    input_indexes: list[int] = field(default_factory=list)
    output_indexes: list[int] = field(default_factory=list)
    is_qat: bool = False


# -- which QConfig a node gets ------------------------------------------------------------------------------------------------


class _QConfigs:
    """The QConfig of each node: what says more about one counts before what says less; see `QConfigMapping`."""

    def __init__(self, model: GraphModule, mapping: QConfigMapping, places: dict[str, str]) -> None:
        self._model, self._mapping, self._places = model, mapping, places
        self._seen: Counter[tuple[str, Any]] = Counter()

    def of(self, node: Node) -> Any:
        """The QConfig of `node`, asked for in the order of the graph."""
        module = module_of(self._model, node)
        kind: Any = node.target if module is None else type(module)
        kinds = [kind]
        if isinstance(module, Sequential) and len(module):                  # joined layers are as their first
            kinds.append(type(module[0]))
        place = self._places.get(node.name, "")
        path = place if module is None else str(node.target)
        number = self._seen[place, kinds[-1]]
        self._seen[place, kinds[-1]] += 1
        by_order = self._mapping.module_name_object_type_order_qconfigs
        for one in kinds:
            if (place, one, number) in by_order:
                return by_order[place, one, number]
        name = path
        while name:
            if name in self._mapping.module_name_qconfigs:
                return self._mapping.module_name_qconfigs[name]
            name = name.rpartition(".")[0]
        for pattern, qconfig in self._mapping.module_name_regex_qconfigs.items():
            if re.match(pattern, path):
                return qconfig
        for one in kinds:
            if one in self._mapping.object_type_qconfigs:
                return self._mapping.object_type_qconfigs[one]
        return self._mapping.global_qconfig

    def give_parts(self, module: Module, path: str, qconfig: Any) -> None:
        """Give each part of `module`, which is at `path` and has `qconfig`, its own where the mapping has one, or else that."""
        for name, part in module.named_children():
            place = f"{path}.{name}"
            own = self._mapping.object_type_qconfigs.get(type(part), qconfig)
            own = next((q for pattern, q in self._mapping.module_name_regex_qconfigs.items() if re.match(pattern, place)), own)
            part.qconfig = self._mapping.module_name_qconfigs.get(place, own)
            self.give_parts(part, place, part.qconfig)


def _fitting(config: BackendPatternConfig, qconfig: Any) -> DTypeConfig | None:
    """The first of the pattern's dtypes that `qconfig` asks for; None if there is none."""
    if qconfig is None:
        return None
    activation, weight = qconfig.activation(), qconfig.weight()
    if isinstance(activation, ReuseInputObserver):
        shares = config.observation_type is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
        return config.dtype_configs[0] if shares and config.dtype_configs else None
    weighted = config.root_module is not None or "weight" in config._input_type_to_index
    for dtypes in config.dtype_configs:
        wanted = dtypes.input_dtype_with_constraints
        asked = getattr(activation, "dtype", None)
        is_dynamic = bool(getattr(activation, "is_dynamic", False))
        if bool(dtypes.is_dynamic) is not is_dynamic or wanted.dtype not in (None, asked) or not constraints_met(wanted, activation):
            continue
        if not is_dynamic and dtypes.output_dtype not in (None, asked):
            continue
        wanted_weight = dtypes.weight_dtype if weighted else None
        if wanted_weight not in (None, fb.float, getattr(weight, "dtype", None)):
            continue
        return dtypes
    return None


# -- what is no tensor --------------------------------------------------------------------------------------------------------


def _plain_nodes(model: GraphModule) -> set[Node]:
    """Nodes whose values are sizes and what is computed of them."""
    found: set[Node] = set()
    for node in model.graph.nodes:
        asks = node.op == "call_method" and node.target in ("size", "dim", "numel", "stride")
        reads = node.op == "call_function" and node.target is getattr and node.args[1] in ("shape", "ndim", "dtype", "device")
        operands = node.all_input_nodes
        computes = node.op == "call_function" and bool(operands) and found.issuperset(operands)
        if asks or reads or computes:
            found.add(node)
    return found


# -- observers ----------------------------------------------------------------------------------------------------------------


class _Inserter:
    """Puts observers into a graph, and knows what each node of it is quantized to."""

    def __init__(self, model: GraphModule, plain: set[Node]) -> None:
        self.model, self.plain = model, plain
        self._count = 0
        self._kinds: dict[Node, tuple[Any, bool]] = {}                      # observers' dtype, and whether it is dynamic

    def given(self, node: Node, dtype: Any) -> None:
        """Remember that the values of `node` are quantized already."""
        self._kinds[node] = (dtype, False)

    def observe(self, node: Node, observer: Any, before: Node | None = None) -> Node:
        """A call of `observer` on `node`: right after it, or right before another."""
        name = f"activation_post_process_{self._count}"
        self._count += 1
        self.model.add_submodule(name, observer)
        graph = self.model.graph
        with graph.inserting_before(before) if before is not None else graph.inserting_after(node):
            made = graph.create_node("call_module", name, (node,), {}, name)
        self._kinds[made] = (observer.dtype, bool(getattr(observer, "is_dynamic", False)))
        return made

    def operand(self, node: Node, make: Any, before: Node) -> Node:
        """What takes the place of the operand `node`: itself where it is quantized so already, or a call of an observer."""
        made = make()
        if isinstance(made, ReuseInputObserver) or node in self.plain or not hasattr(made, "dtype"):
            return node
        kind = (made.dtype, bool(getattr(made, "is_dynamic", False)))
        if made.dtype is fb.float or self._kinds.get(node) == kind:
            return node
        for user in node.users:
            if self._kinds.get(user) == kind:
                return user
        source = node.args[0] if node in self._kinds and node.op == "call_module" else node
        return self.observe(source, made, before)

    def share(self, old: Any, new: Any) -> None:
        """Let `new` take the place of the observer `old` wherever that is called."""
        if old is None or old is new:
            return
        for name in [name for name, module in self.model.named_modules(remove_duplicate=False) if module is old]:
            self.model.add_submodule(name, new)

    def observer_of(self, node: Node) -> Any:
        """The observer that `node` calls; None if it calls none."""
        return module_of(self.model, node) if node in self._kinds else None


def _observe_operands(inserter: _Inserter, match: Match, dtypes: DTypeConfig, qconfig: Any) -> None:
    places = match.config._input_type_to_index
    bias_at, weight_at = places.get("bias"), places.get("weight")
    inside = set(match.nodes)
    for node in match.nodes:
        first = node is match.nodes[0]

        def role(at: int | str, first: bool = first) -> Any:
            if first and bias_at is not None and at in (bias_at, "bias"):
                return None
            if first and weight_at is not None and at in (weight_at, "weight"):
                return qconfig.weight if dtypes.weight_dtype is not fb.float else None
            return qconfig.activation

        def replaced(value: Any, at: int | str, node: Node = node, role: Any = role) -> Any:
            make = role(at)
            if make is None:
                return value
            return map_arg(value, lambda operand: operand if operand in inside else inserter.operand(operand, make, node))

        # Of a module's operands the first is observed: states and sizes that follow are no activations.
        operands = [replaced(value, i) if node.op != "call_module" or i == 0 else value for i, value in enumerate(node.args)]
        node.args = tuple(operands)
        node.kwargs = {name: replaced(value, name) for name, value in node.kwargs.items()}


def _observe_result(inserter: _Inserter, match: Match, dtypes: DTypeConfig, qconfig: Any) -> None:
    if dtypes.output_dtype not in _QUANTIZED or dtypes.is_dynamic:
        return
    first, last = match.nodes[0], match.nodes[-1]
    tensors = [x for x in first.all_input_nodes if x not in inserter.plain]
    given = sum(1 for a in first.args for x in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(x, Node) and x in tensors)
    kind = match.config._num_tensor_args_to_observation_type.get(given, match.config.observation_type)
    observer = None
    if kind is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT or isinstance(qconfig.activation(), ReuseInputObserver):
        observer = next((found for x in tensors if (found := inserter.observer_of(x)) is not None), None)
        if observer is None:                          # nothing to share: the operand is in float
            return
        for x in tensors:                             # several operands have one scale
            inserter.share(inserter.observer_of(x), observer)
    else:
        observer = qconfig.activation()
    users = list(last.users)
    made = inserter.observe(last, observer)
    for user in users:
        user.replace_input_with(last, made)


# -- the whole ----------------------------------------------------------------------------------------------------------------


def prepare(
    model: Module, qconfig_mapping: QConfigMapping, is_qat: bool, example_inputs: tuple[Any, ...], custom: PrepareCustomConfig,
    backend: BackendConfig,
) -> GraphModule:  # fmt: skip
    """The traced model with observers; see `quantize_fx.prepare_fx`."""
    observed_classes = {old: new for mapping in custom.float_to_observed_mapping.values() for old, new in mapping.items()}
    alone = dict(custom.standalone_module_names)
    for name, module in model.named_modules():
        if type(module) in custom.standalone_module_classes:
            alone.setdefault(name, custom.standalone_module_classes[type(module)])
    skipped = [*custom.non_traceable_module_names, *alone]
    made, places = traced(model, skipped, [*custom.non_traceable_module_classes, *observed_classes])
    fuse(made, backend, is_qat)
    keep_attributes(model, made, custom.preserved_attributes)
    configs = _QConfigs(made, qconfig_mapping, places)
    qconfigs = {node: configs.of(node) for node in made.graph.nodes if node.op.startswith("call_")}
    facts = Facts(input_indexes=list(custom.input_quantized_indexes), output_indexes=list(custom.output_quantized_indexes), is_qat=is_qat)
    for name, entry in alone.items():
        _prepare_alone(made, name, entry, qconfig_mapping, is_qat, backend)
        facts.standalone.append(name)
    left = {*skipped, *(name for name, module in made.named_modules() if type(module) in custom.non_traceable_module_classes)}

    inserter = _Inserter(made, _plain_nodes(made))
    for i, node in enumerate(made.graph.find_nodes(op="placeholder")):
        if i in facts.input_indexes:
            inserter.given(node, fb.quint8)
    matches = _with_custom_modules(made, find_matches(made, backend.configs), observed_classes)
    for match in matches:
        first = match.nodes[0]
        qconfig = qconfigs[first]
        is_custom = type(module_of(made, first)) in observed_classes
        dtypes = match.config.dtype_configs[0] if is_custom and qconfig is not None else _fitting(match.config, qconfig)
        if first.target in left or dtypes is None or match.config.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
            continue
        if first in inserter.plain:
            continue
        if is_custom:                                 # what makes the observed one may ask the parts of the module for it
            configs.give_parts(module_of(made, first), str(first.target), qconfig)
        _swap(made, first, match.config, qconfig, is_qat, observed_classes if is_custom else {})
        _observe_operands(inserter, match, dtypes, qconfig)
        _observe_result(inserter, match, dtypes, qconfig)
        facts.quantized.append(Quantized([node.name for node in match.nodes], match.config, dtypes, qconfig, is_custom))
    made.graph.lint()
    made.recompile()
    made.meta["quantization"] = facts
    return made


def _with_custom_modules(model: GraphModule, matches: list[Match], classes: dict[type, type]) -> list[Match]:
    """`matches`, and one for each module that a program observes itself, in the order of the graph."""
    own = [
        Match([node], BackendPatternConfig(type(module_of(model, node))).set_dtype_configs([DTypeConfig(fb.quint8, fb.quint8)]))
        for node in model.graph.nodes if type(module_of(model, node)) in classes
    ]  # fmt: skip
    place = {node: i for i, node in enumerate(model.graph.nodes)}
    taken = {match.nodes[0] for match in own}
    return sorted([*own, *(match for match in matches if match.nodes[0] not in taken)], key=lambda match: place[match.nodes[-1]])


def _swap(
    model: GraphModule, node: Node, config: BackendPatternConfig, qconfig: Any, is_qat: bool, observed_classes: dict[type, type]
) -> None:
    """Give the module that `node` calls its QConfig, and for training put the one in its place that rounds its weight."""
    module = module_of(model, node)
    if module is None:
        return
    module.qconfig = qconfig
    kind = observed_classes.get(type(module)) or (config.qat_module if is_qat else None)
    if kind is None or type(module) is kind:          # the latter where it is called a second time
        return
    made = kind.from_float(module)
    made.qconfig = qconfig
    parent, _, last = str(node.target).rpartition(".")
    setattr(model.get_submodule(parent), last, made)


def _prepare_alone(model: GraphModule, name: str, entry: Any, mapping: QConfigMapping, is_qat: bool, backend: BackendConfig) -> None:
    custom = entry.prepare_custom_config or PrepareCustomConfig()
    if custom.input_quantized_indexes or custom.output_quantized_indexes:
        from .... import _missing

        raise _missing.not_built("PrepareCustomConfig.set_standalone_module_name", "standalone modules with quantized arguments or results")
    inner = copy.deepcopy(mapping if entry.qconfig_mapping is None else entry.qconfig_mapping)
    made = prepare(model.get_submodule(name), inner, is_qat, entry.example_inputs, custom, entry.backend_config or backend)
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, made)
