"""Passes of the program's own over graphs, which settings name: what is compiled with them is compiled as graphs of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..fx.graph import Graph
from ..fx.graph_module import GraphModule

__all__ = ["Passes", "passes_of"]


class Passes(NamedTuple):
    """By the setting that names them, functions of a graph, each called in its turn."""

    pre_grad_custom_pass: Sequence[Callable[[Graph], None]]
    joint_custom_pre_pass: Sequence[Callable[[Graph], None]]
    joint_custom_post_pass: Sequence[Callable[[Graph], None]]
    post_grad_custom_pre_pass: Sequence[Callable[[Graph], None]]
    post_grad_custom_post_pass: Sequence[Callable[[Graph], None]]

    def compile(self, graph: GraphModule, example_inputs: Sequence[Any], inner_compile: Callable[..., Any], decompositions: Any) -> Any:
        """A function of the inputs of `graph` that computes what the passes have made of it, by what `inner_compile` makes of that."""
        from .._functorch.aot_autograd import aot_module_simplified
        from .._functorch.partitioners import default_partition

        def joint(gm: GraphModule) -> None:
            _run((*self.joint_custom_pre_pass, *self.joint_custom_post_pass), gm)

        def part(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
            _run((*self.post_grad_custom_pre_pass, *self.post_grad_custom_post_pass), gm)
            return inner_compile(gm, example_inputs)

        def inference(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
            joint(gm)
            return part(gm, example_inputs)

        def cut(gm: GraphModule, example_inputs: Any, **settings: Any) -> Any:
            joint(gm)
            return default_partition(gm, example_inputs, **settings)

        _run(self.pre_grad_custom_pass, graph)
        return aot_module_simplified(
            graph, example_inputs, part, partition_fn=cut, decompositions=decompositions, inference_compiler=inference
        )  # fmt: skip


def passes_of(options: dict[str, Any] | None) -> Passes | None:
    """The passes that `options`, or else the settings, name; None for none."""
    from . import config

    found = [(options or {}).get(name, getattr(config, name)) for name in Passes._fields]
    passes = Passes(*[() if one is None else tuple(one) if isinstance(one, (list, tuple)) else (one,) for one in found])
    return passes if any(passes) else None


def _run(passes: Sequence[Callable[[Graph], None]], gm: GraphModule) -> None:
    for one in passes:
        one(gm.graph)
    if passes:
        gm.graph.lint()
        gm.recompile()
