"""The names of ``functorch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import jit
from .._decomp import get_decompositions
from .._dynamo import debug_utils
from .._ops import ops
from ..fx.graph_module import GraphModule
from ..nn import Module
from . import config
from .aot_autograd import (
    aot_function,
    aot_module,
    aot_module_simplified,
    get_aot_compilation_context,
    get_aot_graph_name,
    get_graph_being_compiled,
    make_boxed_compiler,
    make_boxed_func,
)
from .fx_minifier import minifier
from .partitioners import default_partition, draw_graph, min_cut_rematerialization_partition

__all__ = [
    "aot_function", "aot_module", "aot_module_simplified", "compiled_function", "compiled_module", "config",
    "debug_compile", "default_decompositions", "default_partition", "draw_graph", "draw_graph_compile", "get_aot_compilation_context",
    "get_aot_graph_name", "get_decompositions", "get_graph_being_compiled", "make_boxed_compiler", "make_boxed_func",
    "memory_efficient_fusion", "min_cut_rematerialization_partition", "minifier", "nop", "print_compile", "ts_compile",
]  # fmt: skip

compiled_function, compiled_module = aot_function, aot_module

# What compilers take apart that know arithmetic of elements only, as far as there are decompositions.
default_decompositions = get_decompositions(
    [
        ops.aten.masked_fill.Scalar,
        ops.aten.masked_fill.Tensor,
        *(
            getattr(ops.aten, name)
            for name in (
                "elu", "elu_backward", "gelu_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward",
                "hardtanh", "hardtanh_backward", "leaky_relu", "leaky_relu_backward", "sigmoid_backward", "silu_backward",
                "tanh_backward", "threshold_backward",
            )
        ),
    ]
)  # fmt: skip


def nop(fx_g: GraphModule, _: Any) -> GraphModule:
    """The compiler that gives the graph itself."""
    return fx_g


def print_compile(fx_g: GraphModule, _: Any) -> GraphModule:
    """The compiler that prints the graph's code, and gives the graph."""
    print(fx_g.code)
    return fx_g


def ts_compile(fx_g: GraphModule, inps: Any) -> Any:
    """The compiler that gives `torch.jit.script` of the graph.

    Args:
        inps: example inputs; not looked at.
    """
    return jit.script(fx_g)


def debug_compile(fx_g: GraphModule, inps: Any) -> Any:
    """As `ts_compile`, after printing a script that runs the graph by itself, on random numbers of the looks of `inps`."""
    print(debug_utils.repro_script(fx_g, list(inps)))
    return ts_compile(fx_g, inps)


def draw_graph_compile(name: str) -> Callable[[GraphModule, list[Any]], GraphModule]:
    """A compiler that draws the graph into the file ``<name>.svg``, and gives it."""

    def draw(fx_g: GraphModule, _: list[Any]) -> GraphModule:
        draw_graph(fx_g, name)
        return fx_g

    return draw


def memory_efficient_fusion(fn: Callable[..., Any] | Module, **kwargs: Any) -> Any:
    """`fn`, a function or module, that keeps little for its derivative: what is cheap is computed again.

    Args:
        kwargs: arguments of `aot_function`; the compilers are `ts_compile`, the cut is that of least weight and `default_decompositions`
            are taken apart unless given.
    """
    settings: dict[str, Any] = {
        "fw_compiler": ts_compile, "bw_compiler": ts_compile, "partition_fn": min_cut_rematerialization_partition,
        "decompositions": default_decompositions, **kwargs,
    }  # fmt: skip
    return aot_module(fn, **settings) if isinstance(fn, Module) else aot_function(fn, **settings)
