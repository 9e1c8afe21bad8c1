"""Programs as graphs: tracing Modules and functions, editing what was traced, and generating Python code of it."""

from __future__ import annotations

from .._on_demand import names_on_demand
from ._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .immutable_collections import immutable_dict, immutable_list
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy", "ProxyableClassMeta", "Tracer", "Transformer",
    "has_side_effect", "immutable_dict", "immutable_list", "map_arg", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip


__getattr__, __dir__ = names_on_demand(__name__, folder=__path__)
