"""Backends that count and keep what they are given, for programs that test their own compilation."""

from __future__ import annotations

from typing import Any

from .backends.registry import lookup_backend
from .utils import same

__all__ = ["AotEagerAndRecordGraphs", "CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs", "same"]


def _calls(gm: Any) -> int:
    return sum("call" in node.op for node in gm.graph.nodes)


class CompileCounter:
    """A backend that runs graphs as they are; `frame_count` graphs with `op_count` calls in all."""

    def __init__(self) -> None:
        self.frame_count = self.op_count = 0

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.frame_count += 1
        self.op_count += _calls(gm)
        return gm.forward

    def clear(self) -> None:
        """Begin to count anew."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend:
    """As `CompileCounter`, over the backend of a name; `graphs` has the graphs."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.clear()

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.frame_count += 1
        self.op_count += _calls(gm)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self) -> None:
        """Begin to count anew, and forget the graphs."""
        self.frame_count = self.op_count = 0
        self.graphs: list[Any] = []


class EagerAndRecordGraphs:
    """A backend that runs graphs as they are and keeps them in `graphs`."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs.append(gm)
        return gm.forward


class AotEagerAndRecordGraphs:
    """A backend that runs graphs as they are and keeps them, and those of operators that they are made of: `fw_graphs` and `bw_graphs`."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.fw_graphs: list[Any] = []
        self.bw_graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        from .backends.common import aot_autograd

        def keep(graphs: list[Any]) -> Any:
            return lambda graph, inputs: (graphs.append(graph), graph)[1]

        self.graphs.append(gm)
        return aot_autograd(fw_compiler=keep(self.fw_graphs), bw_compiler=keep(self.bw_graphs))(gm, example_inputs)
