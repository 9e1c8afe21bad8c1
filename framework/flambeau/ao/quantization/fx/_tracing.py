"""Models as graphs whose calls of layers are single nodes, and joined layers in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....fx import GraphModule, Tracer
from ....nn import Module
from ....nn import modules as nn
from ...nn import intrinsic
from ..backend_config import BackendConfig
from ._patterns import find_matches, module_of

__all__ = ["fuse", "keep_attributes", "traced"]


class _QuantizationTracer(Tracer):
    """Leaves modules of `torch.nn`, joined ones, and those that a program names as they are; remembers where nodes come from."""

    def __init__(self, names: Iterable[str], classes: Iterable[type]) -> None:
        super().__init__()
        self._names, self._classes = set(names), tuple(classes)
        self.places: dict[str, str] = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """See `fx.Tracer.is_leaf_module`."""
        left = module_qualified_name in self._names or type(m) in self._classes or isinstance(m, intrinsic._FusedModule)
        return left or super().is_leaf_module(m, module_qualified_name)

    def create_node(self, *args: Any, **kwargs: Any) -> Any:
        """A node, with the path of the module whose code makes it."""
        node = super().create_node(*args, **kwargs)
        path = self.scope.module_path
        self.places[node.name] = path.rpartition(".")[0] if node.op == "call_module" else path
        return node


def traced(model: Module, names: Iterable[str] = (), classes: Iterable[type] = ()) -> tuple[GraphModule, dict[str, str]]:
    """The graph of `model`, and for each node's name the path of the module whose code has it.

    Args:
        names, classes: of modules that stay single nodes.
    Raises: TraceError for a model whose flow depends on values.
    """
    tracer = _QuantizationTracer(names, classes)
    graph = tracer.trace(model)
    made = GraphModule(tracer.root, graph)
    made.train(model.training)
    made.training = model.training
    return made, tracer.places


def keep_attributes(source: Module, target: Module, names: Iterable[str]) -> None:
    """Give `target` the attributes `names` of `source`. Raises: AttributeError for one that `source` does not have."""
    for name in names:
        setattr(target, name, getattr(source, name))


def fuse(model: GraphModule, backend: BackendConfig, is_qat: bool) -> None:
    """Join the layers of `model` that `backend` joins: the first node calls the joined layer, and the others go."""
    for match in find_matches(model, [config for config in backend.configs if config.fuser_method is not None]):
        first: Any = match.nodes[0]
        mode = module_of(model, first).training
        # A function that follows is a ReLU.
        joined = match.config.fuser_method(is_qat, *(module_of(model, node) or nn.ReLU().train(mode) for node in match.nodes))
        parent, _, last = first.target.rpartition(".")
        setattr(model.get_submodule(parent), last, joined)
        match.nodes[-1].replace_all_uses_with(first)
        for node in reversed(match.nodes[1:]):
            model.graph.erase_node(node)
            if node.op == "call_module" and not model.graph.find_nodes(op="call_module", target=node.target):
                model.delete_submodule(str(node.target))
    model.delete_all_unused_submodules()
    model.graph.lint()
    model.recompile()
