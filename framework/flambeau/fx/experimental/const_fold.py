"""Computing once what of a graph follows from attributes alone: `split_const_subgraphs`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn import Module
from ...ops.creation.create import empty
from ...ops.creation.shared_memory import as_tensor
from .._symbolic_trace import symbolic_trace
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A GraphModule part of which, `const_subgraph_module`, is computed before the first call and kept as an attribute.

    Args:
        root, graph: of what is computed in every call.
        const_subgraph: the graph of what is computed once; None if there is nothing.
        fx_const_folded_attrs_name: the attribute that its results are kept in, a parameter or a list of them.
        device_for_folded_attrs: where that is before it is computed.
    """

    def __init__(
        self, root: Module, graph: Graph, const_subgraph: Graph | None = None, fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:  # fmt: skip
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute what is computed once. Raises: AssertionError if that has been done."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        assert not self.has_folding_been_run, "run_folding: what is computed once has been computed"
        self.has_folding_been_run = True
        found = self.const_subgraph_module()
        setattr(self, self.fx_const_folded_attrs_name, nn.ParameterList(map(_kept, found)) if isinstance(found, tuple) else _kept(found))


def _kept(value: Any) -> Any:
    """A result as a parameter, which requires grad if it does."""
    made = as_tensor(value)
    return nn.Parameter(made.detach(), requires_grad=made.requires_grad)


def get_unique_attr_name_in_module(mod_traced: Module, name: str) -> str:
    """`name`, with other characters and a number behind it where that is needed for a new attribute of `mod_traced`."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    if name[0].isdigit():
        name = f"_{name}"
    while hasattr(mod_traced, name):
        head, bar, number = name.rpartition("_")
        name = f"{head}_{int(number) + 1}" if bar and number.isdigit() else f"{name}_1"
    return name


def split_const_subgraphs(
    module: Module | GraphModule,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """`module` as a graph that computes what follows from its attributes alone once, before its first call, and keeps it.

    Args:
        module: a GraphModule, or a module that can be traced symbolically.
        skip_folding_node_fn: says which nodes are left in the graph.
        device_for_folded_attrs: where the attributes are before they are computed.

    What submodules draw at random from attributes alone, such as dropout in training, is drawn once too; leave it out by
    `skip_folding_node_fn`. Later changes of the attributes are not seen.

    >>> from flambeau.fx.experimental.const_fold import split_const_subgraphs
    >>> class Scaled(fb.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = fb.nn.Parameter(fb.zeros(2))
    ...     def forward(self, x):
    ...         return x * self.scale.exp()
    >>> folded = split_const_subgraphs(Scaled())
    >>> [node.name for node in folded.const_subgraph_module.graph.nodes], [node.name for node in folded.graph.nodes]
    (['scale', 'exp', 'output'], ['x', '_fx_const_folded_attrs', 'mul', 'output'])
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant: dict[Node, None] = {}
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or node.op != "get_attr" and not all(n in constant for n in node.all_input_nodes):
            continue
        if node.op != "get_attr" and (skip_folding_node_fn is not None and skip_folding_node_fn(node) or node.is_impure()):
            continue
        constant[node] = None
    folded = [n for n in constant if n.op != "get_attr" and any(user not in constant for user in n.users)]
    if not folded:
        return FoldedGraphModule(traced, traced.graph)
    name = get_unique_attr_name_in_module(traced, "_FX_CONST_FOLDED_ATTRS")
    once = _copied([n for n in traced.graph.nodes if n in constant], {}, Graph())
    by_name = {n.name: n for n in once.nodes}
    results = [by_name[n.name] for n in folded]
    once.output(tuple(results) if len(results) > 1 else results[0])
    once.eliminate_dead_code()

    graph, env = Graph(), {}
    for node in traced.graph.find_nodes(op="placeholder"):
        env[node] = graph.node_copy(node, env.__getitem__)
    kept = graph.create_node("get_attr", name, name="_fx_const_folded_attrs")
    if len(folded) == 1:
        env[folded[0]] = kept
    else:
        env.update({node: graph.call_function(operator.getitem, (kept, i)) for i, node in enumerate(folded)})
    own = [n for n in traced.graph.nodes if n not in env and (n not in constant or n.op == "get_attr")]
    _copied(own, env, graph)
    graph.eliminate_dead_code()
    root = _with_place(traced, name, len(folded), device_for_folded_attrs)
    return FoldedGraphModule(root, graph, once, name, device_for_folded_attrs)


def _copied(nodes: list[Node], env: dict[Node, Node], graph: Graph) -> Graph:
    """`graph` with copies of `nodes`, which `env` gets."""
    for node in nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
    return graph


def _with_place(traced: GraphModule, name: str, count: int, device: str) -> GraphModule:
    """A module of what `traced` has and of an attribute `name`, which has no elements yet."""
    root = GraphModule(traced, traced.graph)
    traced.graph.owning_module = traced
    place = [nn.Parameter(empty(0, device=device)) for _ in range(count)]
    setattr(root, name, place[0] if count == 1 else nn.ParameterList(place))
    return root
