"""A compiled graph that can be written to a file: `standalone_compile`, and `CompiledArtifact`, which it gives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..fx.graph_module import GraphModule
from ..tensor import Tensor

__all__ = ["CompiledArtifact", "standalone_compile"]

_SHAPES = ("from_example_inputs", "from_tracing_context", "from_graph")
_GRAPH = "graph.pt2"                                  # the file in the folder of the format "unpacked"


class CompiledArtifact:
    """A compiled graph: a function of its inputs that gives a list of its results.

    A file of it has the graph and its tensors as data, see `export.save`, and no code: loading it executes nothing. Kernels are compiled
    where the graph runs, or found in the cache.
    """

    def __init__(self, graph: GraphModule, example_inputs: Sequence[Any], options: dict[str, Any] | None) -> None:
        from .compile_fx import compile_fx

        self._graph, self._looks = graph, tuple(map(_look, example_inputs))
        self._compiled = compile_fx(graph, example_inputs, config_patches=options)

    def __call__(self, *args: Any) -> Any:
        """The results for inputs like the examples."""
        return self._compiled(*args)

    @property
    def is_saveable(self) -> bool:
        """Whether `save` can be asked for: yes."""
        return True

    def save(self, *, path: str, format: str = "binary") -> None:
        """Write the graph to `path`: a file for the format "binary", a folder for "unpacked".

        Raises: AssertionError for another format; NotImplementedError for a graph that calls what has no name in a file.
        """
        from .. import export

        file = _place(path, format)
        if format == "unpacked":
            os.makedirs(path, exist_ok=True)
        export.save(export.export(self._graph, tuple(map(_like, self._looks))), file)

    @classmethod
    def load(cls, *, path: str, format: str = "binary") -> CompiledArtifact:
        """What `save` has written.

        Raises: AssertionError for another format; RuntimeError for a file that holds no graph.
        """
        from .. import export

        program = export.load(_place(path, format))
        inputs = list(program.example_inputs[0]) if program.example_inputs else []
        return cls(program.module(check_guards=False), inputs, None)


def standalone_compile(
    gm: GraphModule, example_inputs: Sequence[Any], *, dynamic_shapes: str = "from_graph", options: dict[str, Any] | None = None,
    aot: bool = False, donate_graph_module: bool = False, fake_mode: Any = None,
) -> CompiledArtifact:  # fmt: skip
    """A graph compiled, apart from any function, so that it can be saved and loaded elsewhere.

    Args:
        gm: a graph of tensors.
        example_inputs: values of its inputs, real or fake.
        dynamic_shapes: "from_graph", "from_example_inputs" or "from_tracing_context": kernels do not depend on sizes, so they are one.
        options: settings of `config` by name.
        aot, donate_graph_module, fake_mode: taken for PyTorch's sake.
    Raises: ValueError for other `dynamic_shapes`; AttributeError for a name that is no setting.

    >>> graph = fb.fx.symbolic_trace(lambda x: (x * 2,))
    >>> fb._inductor.standalone_compile(graph, [fb.ones(2)])(fb.ones(2))
    [tensor([2., 2.])]
    """
    if dynamic_shapes not in _SHAPES:
        raise ValueError(f"standalone_compile: dynamic_shapes must be one of {', '.join(_SHAPES)}, got {dynamic_shapes!r}")
    return CompiledArtifact(gm, example_inputs, options)


def _place(path: str, format: str) -> str:
    if format not in ("binary", "unpacked"):
        raise AssertionError(f"CompiledArtifact: format must be 'binary' or 'unpacked', got {format!r}")
    return path if format == "binary" else os.path.join(path, _GRAPH)


def _look(x: Any) -> Any:
    """Shape, strides, dtype, device and whether it requires grad, of a tensor; other inputs are themselves."""
    return (tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad) if isinstance(x, Tensor) else x


def _like(look: Any) -> Any:
    if not isinstance(look, tuple):
        return look
    from ..ops.creation.create import empty_strided

    shape, stride, dtype, device, requires_grad = look
    return empty_strided(shape, stride, dtype=dtype, device=device).zero_().requires_grad_(requires_grad)
