"""A model split into stages by its graph: traced, cut at marks, and put together again as one module for each stage."""

from __future__ import annotations

import builtins
import inspect
import operator
import threading
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any

import flambeau as fb

from ... import fx, nn
from ...utils._pytree import tree_leaves
from ._utils import PipeInfo
from .stage import PipelineStage, build_stage

__all__ = ["Pipe", "SplitPoint", "annotate_split_points", "pipe_split", "pipeline"]

_local = threading.local()


class SplitPoint(Enum):
    """Where a split lies: before the call of a submodule, or after it."""

    BEGINNING = 1
    END = 2


def pipe_split() -> None:
    """Mark the boundary between two stages in the code of a model; when the model just runs it does nothing."""
    tracer = getattr(_local, "tracer", None)
    if tracer is not None:
        tracer.mark()


def annotate_split_points(mod: nn.Module, spec: dict[str, SplitPoint]) -> None:
    """Mark boundaries at submodules, for `pipeline`.

    Args:
        mod: the model.
        spec: names of submodules, and which side of their calls.
    Raises: AttributeError for a name that is none; TypeError for what is no `SplitPoint`.
    """
    for name, point in spec.items():
        found = mod.get_submodule(name)
        if not isinstance(point, SplitPoint):
            raise TypeError(f"annotate_split_points: {name!r} has {point!r}; give SplitPoint.BEGINNING or SplitPoint.END")
        found.__dict__["_pipe_split_point"] = point


class _Tracer(fx.Tracer):
    """Records marks; modules that have marks inside are no leaves."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._points = {m: m.__dict__["_pipe_split_point"] for m in model.modules() if "_pipe_split_point" in m.__dict__}
        names = [name for name, module in model.named_modules() if module in self._points]
        self._opened = {name[:at] for name in names for at, letter in enumerate(name) if letter == "."}

    def mark(self) -> None:
        self.create_proxy("call_function", pipe_split, (), {})

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._opened and super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        point = self._points.get(m)
        if point is SplitPoint.BEGINNING:
            self.mark()
        result = super().call_module(m, forward, args, kwargs)
        if point is SplitPoint.END:
            self.mark()
        return result


def _traced(mod: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.GraphModule:
    """The graph of `mod`, whose inputs are the tensors given; other arguments are what they are here."""
    signature = inspect.signature(mod.forward)
    bound = signature.bind(*args, **kwargs)
    rest = {name for name, p in signature.parameters.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    if rest & set(bound.arguments):
        raise NotImplementedError(
            f"pipeline: arguments that {type(mod).__name__}.forward takes as {sorted(rest & set(bound.arguments))} are not built yet; "
            "give them names"
        )
    given = {name for name, value in bound.arguments.items() if any(isinstance(x, fb.Tensor) for x in tree_leaves(value))}
    bound.apply_defaults()
    fixed = {name: value for name, value in bound.arguments.items() if name not in given}
    tracer = _Tracer(mod)
    _local.tracer = tracer
    try:
        graph = tracer.trace(mod, fixed or None)
    finally:
        _local.tracer = None
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for name, node in zip((name for name in signature.parameters if name not in rest), inputs, strict=True):
        if name in fixed:
            _erase(graph, node)
    return fx.GraphModule(tracer.root, graph, type(mod).__name__)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Remove an argument with a fixed value, and the checks that it has it."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


# Cutting

_SHAPE_METHODS = {"size", "dim", "numel", "nelement", "ndimension", "element_size", "stride"}
_SHAPE_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "layout"}
_PLAIN = {
    operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.neg,
    builtins.int, builtins.len, builtins.min, builtins.max, builtins.float,
}  # fmt: skip


def _is_mark(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is pipe_split


def _about_shapes(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that are sizes and the like, and numbers computed of them; each stage computes its own."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        is_method = node.op == "call_method" and node.target in _SHAPE_METHODS
        is_attribute = node.op == "call_function" and node.target is builtins.getattr and node.args[1] in _SHAPE_ATTRIBUTES
        inputs = node.all_input_nodes
        is_number = node.op == "call_function" and node.target in _PLAIN and inputs and all(x in found for x in inputs)
        if is_method or is_attribute or is_number:
            found.add(node)
    return found


class _Cut:
    """A traced model as stages, each of which gets from the one before all that it and later ones need."""

    def __init__(self, traced: fx.GraphModule) -> None:
        self.traced = traced
        self.nodes = list(traced.graph.nodes)
        self.output = self.nodes[-1]
        self.shapes = _about_shapes(traced.graph)
        self.stage: dict[fx.Node, int] = {}
        current = 0
        for node in self.nodes[:-1]:
            if _is_mark(node):
                current += 1
            elif node.op not in ("placeholder", "get_attr") and node not in self.shapes:
                self.stage[node] = current
        self.count = current + 1
        self.inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.needed = [self._needed(at) for at in range(self.count)]
        for at in range(1, self.count):
            if not self.needed[at]:
                raise ValueError(f"pipeline: stage {at} takes nothing from stage {at - 1}; move or remove the split")

    def _sources(self, node: fx.Node) -> list[fx.Node]:
        """The values that `node` reads, through what each stage has of its own."""
        found: list[fx.Node] = []
        for x in node.all_input_nodes:
            if x in self.shapes:
                found += self._sources(x)
            elif x.op != "get_attr":
                found.append(x)
        return found

    def _needed(self, at: int) -> list[fx.Node]:
        """What stage `at` is given."""
        if at == 0:
            return self.inputs
        later = [node for node in self.stage if self.stage[node] >= at]
        used = {x for node in [*later, self.output] for x in self._sources(node)}
        return [node for node in self.nodes if node in used and self.stage.get(node, -1) < at]

    def module(self, at: int) -> fx.GraphModule:
        graph = fx.Graph()
        known: dict[fx.Node, fx.Node] = {}

        def copy(node: fx.Node) -> fx.Node:
            if node not in known:  # a parameter, or something about shapes
                known[node] = graph.node_copy(node, copy)
            return known[node]

        for node in self.needed[at]:
            known[node] = graph.placeholder(node.name)
        for node in self.nodes:
            if self.stage.get(node) == at:
                known[node] = graph.node_copy(node, copy)
        if at == self.count - 1:
            graph.output(fx.node.map_arg(self.output.args[0], copy))
        else:
            values = tuple(known[node] for node in self.needed[at + 1])
            graph.output(values[0] if len(values) == 1 else values)
        return fx.GraphModule(self.traced, graph)

    def split(self) -> fx.GraphModule:
        """The graph that calls the stages one after the other."""
        graph = fx.Graph()
        values = [graph.placeholder(node.name) for node in self.inputs]
        modules: dict[str, Any] = {}
        for at in range(self.count):
            name = f"submod_{at}"
            modules[name] = self.module(at)
            called = graph.call_module(name, tuple(values))
            values = [called]
            if at < self.count - 1 and len(self.needed[at + 1]) > 1:
                values = [graph.call_function(operator.getitem, (called, i)) for i in range(len(self.needed[at + 1]))]
        result = self.output.args[0]
        graph.output(values[0] if isinstance(result, tuple | list) else (values[0],))
        return fx.GraphModule(modules, graph)


def _warn_of_shared(modules: list[nn.Module]) -> None:
    owners: dict[int, tuple[str, list[int]]] = {}
    for at, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            owners.setdefault(id(parameter), (name, []))[1].append(at)
    for name, stages in owners.values():
        if len(stages) > 1:
            warnings.warn(
                f"pipeline: the parameter {name} is used by the stages {stages}; each has its own, and their gradients have to be "
                "added by the program",
                stacklevel=4,
            )


class Pipe(nn.Module):
    """A model split into stages; calling it runs them one after the other in this process.

    Args:
        split_gm: a GraphModule with the submodules ``submod_0``, ``submod_1``, ...
        num_stages: how many there are.
        has_loss_and_backward: whether the last one computes a loss.
        loss_spec: taken for compatibility.
    """

    def __init__(self, split_gm: fx.GraphModule, num_stages: int, has_loss_and_backward: bool, loss_spec: Any) -> None:
        super().__init__()
        self.split_gm = split_gm
        self.num_stages, self.has_loss_and_backward, self.loss_spec = num_stages, has_loss_and_backward, loss_spec

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model returns, as a tuple."""
        return self.split_gm(*args, **kwargs)

    def get_stage_module(self, stage_idx: int) -> nn.Module:
        """The part of the model that stage `stage_idx` runs; names of parameters are those of the whole.

        Raises: ValueError for a stage that is none.
        """
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}! There are {self.num_stages} stages")
        return getattr(self.split_gm, f"submod_{stage_idx}")

    @staticmethod
    def from_tracing(
        mod: nn.Module,
        example_args: tuple[Any, ...],
        example_kwargs: dict[str, Any] | None = None,
        split_policy: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
    ) -> Pipe:
        """Trace `mod` and cut it; see `pipeline`.

        Args:
            mod: the model, which may be marked.
            example_args, example_kwargs: arguments of one microbatch.
            split_policy: puts marks into the graph.
        """
        traced = _traced(mod, example_args, example_kwargs or {})
        if split_policy is not None:
            traced = split_policy(traced)
        split = _Cut(traced).split()
        count = sum(name.startswith("submod_") for name, _ in split.named_children())
        pipe = Pipe(split, count, False, None)
        # Leaves are the model's own modules, which keep their modes; what is new around them takes the model's.
        own = {id(module) for module in mod.modules()}
        for part in pipe.modules():
            if id(part) not in own:
                part.training = mod.training
        _warn_of_shared([pipe.get_stage_module(at) for at in range(count)])
        return pipe

    def print_readable(self) -> None:
        """Print the code of the stages."""
        self.split_gm.print_readable()

    def info(self) -> PipeInfo:
        """What `build_stage` needs to know of it."""
        return PipeInfo(self.split_gm.graph, self.num_stages, self.has_loss_and_backward)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """The stage that runs a part of this model on `device`, which it is moved to.

        Args:
            stage_index: which one.
            device: where it computes.
            group: the ranks of the pipeline; None for all.
        """
        return build_stage(self.get_stage_module(stage_index).to(device), stage_index, self.info(), device, group)

    def __str__(self) -> str:
        return str(self.split_gm)

    def __repr__(self) -> str:
        return repr(self.split_gm)


def pipeline(
    module: nn.Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
) -> Pipe:
    """Split `module` into stages, at calls of `pipe_split` in its code and at the submodules that `split_spec` names.

    The model is traced symbolically, so its code may not decide by the values of tensors. Arguments that are no tensors are
    fixed to the values given here. What a later stage needs of an earlier one goes through those between.

    Args:
        module: the model; the stages have its own parameters, under their names.
        mb_args, mb_kwargs: arguments of one microbatch.
        split_spec: names of submodules, and which side of their calls.
        split_policy: called with the traced GraphModule instead; returns one whose graph calls `pipe_split`.
    Raises: ValueError for both; AttributeError for unknown submodules; TypeError for arguments that do not fit; TraceError for
        models that cannot be traced.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if split_spec is None:
        return Pipe.from_tracing(module, mb_args, mb_kwargs, split_policy)
    marked = {name: module.get_submodule(name) for name in split_spec}
    before = {name: part.__dict__.get("_pipe_split_point") for name, part in marked.items()}
    annotate_split_points(module, split_spec)
    try:
        return Pipe.from_tracing(module, mb_args, mb_kwargs)
    finally:
        for name, part in marked.items():
            part.__dict__.pop("_pipe_split_point")
            if before[name] is not None:
                part.__dict__["_pipe_split_point"] = before[name]
