"""Finding places in a graph that do what a pattern does, whose nodes the pattern gives names to."""

from __future__ import annotations

import copy

from ....utils import _pytree as pytree
from ...graph import CodeGen, Graph
from ...graph_module import GraphModule
from ...node import Node
from .matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A `SubgraphMatcher` for a pattern whose last result is a dict of its nodes by name.

    Args:
        pattern_gm: the pattern as a GraphModule, such as `export` and `symbolic_trace` make.
        match_output, match_placeholder, remove_overlapping_matches, ignore_literals: as for `SubgraphMatcher`.
    Raises: RuntimeError if the last result is no dict of nodes.

    >>> def pattern(x):
    ...     y = fb.relu(x)
    ...     return y * 2, {"active": y}
    >>> from flambeau.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap
    >>> matcher = SubgraphMatcherWithNameNodeMap(fb.fx.symbolic_trace(pattern))
    >>> (match,) = matcher.match(fb.fx.symbolic_trace(lambda x: fb.relu(x.sin()) * 2).graph)
    >>> match.name_node_map
    {'active': relu}
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        pattern, self.name_node_map = _without_names(pattern_gm)
        super().__init__(pattern, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places of `graph` that match, in order; their `name_node_map` has its nodes by the pattern's names."""
        found = super().match(graph, node_name_match)
        for one in found:
            one.name_node_map = {name: one.nodes_map[node] for name, node in self.name_node_map.items()}
        return found


def _without_names(module: GraphModule) -> tuple[Graph, dict[str, Node]]:
    """The graph of a pattern without the dict of names among its results, and that dict."""
    module = copy.deepcopy(module)
    graph = module.graph
    output = graph.output_node()
    results = output.args[0]
    spec = getattr(module, "_out_spec", None)
    if spec is not None:
        results = pytree.tree_unflatten(list(results), spec)
    if not isinstance(results, (tuple, list)) or not results or not isinstance(results[-1], dict):
        raise RuntimeError("SubgraphMatcherWithNameNodeMap: the last result of the pattern must be a dict of its nodes by name")
    *rest, names = results
    graph.set_codegen(CodeGen())                      # results have another structure now
    output.args = (tuple(pytree.tree_leaves(rest)),)
    return graph, dict(names)
