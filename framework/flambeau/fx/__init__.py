"""Programs as graphs: tracing Modules and functions, editing what was traced, and generating Python code of it."""

from __future__ import annotations

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


def __getattr__(name: str) -> object:
    from importlib import import_module
    from importlib.util import find_spec

    if not name.startswith("__") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    from .. import _missing

    raise _missing.attribute_error(__name__, name, import_module(__name__))


def __dir__() -> list[str]:
    from pkgutil import iter_modules

    return sorted({*globals(), *(found.name for found in iter_modules(__path__) if not found.name.startswith("_"))})
