"""Observers in an annotated graph: one for each value that is quantized, shared where the annotations say so."""

from __future__ import annotations

from typing import Any

from ....fx import GraphModule, Node
from ..fake_quantize import FixedQParamsFakeQuantize
from ..observer import FixedQParamsObserver, ObserverBase
from ..quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    SharedQuantizationSpec,
)
from ..utils import is_per_channel

__all__ = ["DerivedObserver", "prepare"]

EdgeOrNode = Any
_KEY = "quantization_annotation"


class DerivedObserver(ObserverBase):
    """Gives the scale and the zero point that a function makes of those of other observers."""

    def __init__(self, spec: DerivedQuantizationSpec, sources: list[Any]) -> None:
        super().__init__(dtype=spec.dtype, is_dynamic=spec.is_dynamic)
        self.derive_qparams_fn = spec.derive_qparams_fn
        self.quant_min, self.quant_max, self.qscheme, self.ch_axis = spec.quant_min, spec.quant_max, spec.qscheme, spec.ch_axis
        vars(self)["sources"] = sources            # which are the model's already

    def forward(self, x: Any) -> Any:
        """`x` as it is."""
        return x

    def calculate_qparams(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What the function gives."""
        return self.derive_qparams_fn(self.sources)


def _specs(model: GraphModule) -> dict[EdgeOrNode, Any]:
    """How each edge and each node is quantized, in the order of the graph."""
    found: dict[EdgeOrNode, Any] = {}
    for node in model.graph.nodes:
        annotation: QuantizationAnnotation | None = node.meta.get(_KEY)
        if annotation is None:
            continue
        for operand, spec in annotation.input_qspec_map.items():
            if spec is not None:
                if operand not in node.all_input_nodes:
                    raise ValueError(f"quantization: {operand} is annotated as an operand of {node}, which does not read it")
                found[operand, node] = spec
        if annotation.output_qspec is not None:
            found[node] = annotation.output_qspec
    return found


class _Groups:
    """Edges and nodes that have one observer."""

    def __init__(self, specs: dict[EdgeOrNode, Any]) -> None:
        self.specs = specs
        self.parent = {key: key for key in specs}
        for key, spec in specs.items():
            if isinstance(spec, SharedQuantizationSpec):
                self.join(key, spec.edge_or_node)
        for key in specs:
            if isinstance(key, tuple):
                self._share_implicitly(*key)

    def root(self, key: EdgeOrNode) -> EdgeOrNode:
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def join(self, key: EdgeOrNode, other: EdgeOrNode) -> None:
        """Let `key` have the observer of `other`."""
        if other not in self.parent:
            raise ValueError(f"quantization: {key} shares the scale of {other}, which is not annotated")
        key, other = self.root(key), self.root(other)
        if key != other:
            self.parent[key] = other

    def spec(self, key: EdgeOrNode) -> Any:
        """What is said of the group itself."""
        found = self.specs[self.root(key)]
        if isinstance(found, SharedQuantizationSpec):
            raise ValueError(f"quantization: {key} and others share each other's scale, and none of them has one")
        return found

    def _share_implicitly(self, operand: Node, reader: Node) -> None:
        """An operand that is the result of a node, or that others read, has one observer where it is quantized in one way."""
        if not reader.meta[_KEY].allow_implicit_sharing:
            return
        own = self.spec((operand, reader))
        if operand in self.specs and self.spec(operand) == own:
            self.join((operand, reader), operand)
            return
        for user in operand.users:
            other = operand, user
            if user is reader or other not in self.specs or not user.meta[_KEY].allow_implicit_sharing:
                continue
            if self.spec(other) == own:
                self.join((operand, reader), other)
                return


def observer_of(spec: Any, of: Any, is_qat: bool) -> Any:
    """The observer of a value. Raises: NotImplementedError for another kind of spec.

    Args:
        of: gives the observer of another edge or node.
        is_qat: whether known scales round values, as fake quantizations do.
    """
    if isinstance(spec, DerivedQuantizationSpec):
        return DerivedObserver(spec, [of(key) for key in spec.derived_from])
    names = ("dtype", "quant_min", "quant_max", "qscheme", "ch_axis", "is_dynamic")
    given = {name: value for name in names if (value := getattr(spec, name, None)) is not None}
    if isinstance(spec, FixedQParamsQuantizationSpec):
        fixed = FixedQParamsObserver.with_args(scale=spec.scale, zero_point=spec.zero_point, **given)
        return FixedQParamsFakeQuantize(fixed) if is_qat else fixed()
    if not isinstance(spec, QuantizationSpec):
        raise NotImplementedError(f"quantization: a {type(spec).__name__} is no spec that there are observers for")
    if not is_per_channel(spec.qscheme):
        given.pop("ch_axis", None)
    make: Any = spec.observer_or_fake_quant_ctr
    return make.with_args(**given)() if hasattr(make, "with_args") else make(**given)


def prepare(model: GraphModule, quantizer: Any, is_qat: bool) -> None:
    """Put an observer after each value of `model` that is quantized, or with `is_qat` a fake quantization."""
    specs = _specs(model)
    groups = _Groups(specs)
    observers: dict[EdgeOrNode, Any] = {}             # by the root of the group

    def observer(key: EdgeOrNode) -> Any:
        root = groups.root(key)
        if root not in observers:
            observers[root] = observer_of(groups.spec(key), observer, is_qat)
        return observers[root]

    by_place = {key: observer(key) for key in specs}
    quantizer.prepare_obs_or_fq_callback(model, by_place)
    calls = _Calls(model)
    for node in list(model.graph.nodes):
        annotation = node.meta.get(_KEY)
        if annotation is None:
            continue
        for operand in list(node.all_input_nodes):
            if (operand, node) in by_place:
                wanted = by_place[operand, node]
                observed = calls.of(operand, wanted)
                if observed is not operand:
                    node.replace_input_with(operand, observed)
        if node in by_place:
            calls.put_after(node, by_place[node])
    model.graph.lint()
    model.recompile()


class _Calls:
    """The calls of observers in a graph."""

    def __init__(self, model: GraphModule) -> None:
        self.model = model
        self.names: dict[int, str] = {}               # by observer
        self.values: dict[Node, Node] = {}            # of a call of an observer: what it observes
        self.readers: dict[Node, dict[int, Node]] = {}  # of a value: the calls that observe it, by observer

    def of(self, operand: Node, wanted: Any) -> Node:
        """What is read in the place of `operand` where `wanted` has observed it."""
        plain = self.values.get(operand, operand)
        found = self.readers.get(plain, {}).get(id(wanted))
        return self._call(operand, plain, wanted) if found is None else found

    def put_after(self, node: Node, wanted: Any) -> None:
        """Let all that read the result of `node` read it observed."""
        readers = list(node.users)
        call = self._call(node, node, wanted)
        for reader in readers:
            reader.replace_input_with(node, call)

    def _call(self, operand: Node, plain: Node, wanted: Any) -> Node:
        name = self.names.get(id(wanted))
        if name is None:
            count = 0
            while hasattr(self.model, f"activation_post_process_{count}"):
                count += 1
            name = self.names[id(wanted)] = f"activation_post_process_{count}"
            setattr(self.model, name, wanted)
        with self.model.graph.inserting_after(operand):
            call = self.model.graph.call_module(name, (operand,))
        if "val" in operand.meta:
            call.meta["val"] = operand.meta["val"]
        self.values[call] = plain
        self.readers.setdefault(plain, {})[id(wanted)] = call
        return call
