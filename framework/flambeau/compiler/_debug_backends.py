"""Backends that go wrong wherever a graph has a `relu`, for trying out what is made of failures; and those that other packages have."""

from __future__ import annotations

import operator
from typing import Any

from .. import _missing
from ..fx import Node


class ReluCompileError(Exception):
    """What compiling a graph with `relu` raises here."""


def relu_compile_error(gm: Any, example_inputs: Any) -> Any:
    """Raises: ReluCompileError for a graph with `relu`."""
    if _relus(gm):
        raise ReluCompileError
    return gm.forward


def relu_runtime_error(gm: Any, example_inputs: Any) -> Any:
    """The graph; when it has a `relu` it raises AssertionError once it is called."""
    if not _relus(gm):
        return gm.forward

    def run(*inputs: Any) -> Any:
        raise AssertionError("ReluRuntimeError")

    return run


def relu_accuracy_error(gm: Any, example_inputs: Any) -> Any:
    """The graph with ``x + 1`` in the place of `relu`."""
    for node in _relus(gm):
        node.target, node.args, node.kwargs = operator.add, (node.args[0], 1), {}
    gm.recompile()
    return gm.forward


def of_another_package(package: str) -> Any:
    """A backend that package `package` would be. It raises NotImplementedError."""

    def backend(gm: Any, example_inputs: Any) -> Any:
        advice = "the backend 'inductor' compiles here, and packages offer theirs as entry points torch_dynamo_backends"
        raise _missing.not_built(f"compile: a backend by {package}", advice)

    return backend


def _relus(gm: Any) -> list[Node]:
    return [node for node in gm.graph.nodes if getattr(node.target, "__name__", node.target) == "relu"]
