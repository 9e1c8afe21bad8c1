"""`explain`: into which graphs a function is recorded, and why each of them ends."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ..autograd import tape
from ..compiler._backends import Backend
from ..compiler._functions import Function

__all__ = ["ExplainOutput", "GraphCompileReason", "explain"]


@dataclasses.dataclass
class GraphCompileReason:
    """Why a graph ended, and at which frame of the program, as `traceback` has them; `graph_break` is false at the end of the function."""

    reason: str
    user_stack: list[Any]
    graph_break: bool = True


@dataclasses.dataclass
class ExplainOutput:
    """What `explain` found: graphs, their operations, and why they end."""

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}"]
        lines.append("Break Reasons:")
        for at, one in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {at}:", f"    Reason: {one.reason}"]
            lines += ["    User Stack:", *[f"      {frame}: {frame.line}" for frame in one.user_stack]] if one.user_stack else []
        for at, ops in enumerate(self.ops_per_graph or (), 1):
            lines.append(f"Ops of graph {at}: {', '.join([getattr(op, '__name__', str(op)) for op in ops])}")
        if self.compile_times:
            lines.append(f"Compile Times: {self.compile_times}")
        return "\n".join(lines)


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Run `f` once and say into which graphs it is recorded: ``explain(f)(*args)`` returns an `ExplainOutput`."""

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        graphs: list[Any] = []

        def backend(graph: Any, example_inputs: Any) -> Any:
            graphs.append(graph)
            return graph.forward

        original = getattr(f, "_torchdynamo_orig_callable", f)
        function = Function(original, Backend("explain", backend))
        began = time.perf_counter()
        function(args, kwargs)
        taken = time.perf_counter() - began
        ops = [[node.target for node in graph.graph.nodes if node.op.startswith("call_")] for graph in graphs]
        # The last graph ends with the function.
        ended = [program.ended for program in function.ran]
        breaks = [
            GraphCompileReason(why, [tape.frame_summary(place)] if place else [])
            for why, (_, place) in zip(function.breaks, ended, strict=True) if why != "the end of the function"
        ]  # fmt: skip
        return ExplainOutput(graphs, len(graphs), max(len(graphs) - 1, 0), breaks, sum(map(len, ops)), ops, [], f"{taken:.4f} s")

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner
