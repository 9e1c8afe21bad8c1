"""The functions of `_dynamo` under the name of the module that PyTorch keeps them in."""

from __future__ import annotations

from . import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disable_nested_graph_breaks,
    disallow_in_graph,
    dont_skip_tracing,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nonstrict_trace,
    patch_dynamo_config,
    run,
    set_stance,
    skip_frame,
    substitute_in_graph,
)

__all__ = [
    "allow_in_graph", "assume_constant_result", "disable", "disable_nested_graph_breaks", "disallow_in_graph", "dont_skip_tracing",
    "error_on_graph_break", "forbid_in_graph", "graph_break", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
    "maybe_mark_dynamic", "nonstrict_trace", "patch_dynamo_config", "run", "set_stance", "skip_frame", "substitute_in_graph",
]  # fmt: skip
