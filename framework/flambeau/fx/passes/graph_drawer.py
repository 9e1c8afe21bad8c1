"""Pictures of graphs: as SVG and PNG, and as text in the language of Graphviz."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from .._names import qualified_name
from ..graph_module import GraphModule
from ..node import Node, map_arg
from . import _drawing
from .shape_prop import TensorMetadata

__all__ = ["FxGraphDrawer"]

_COLORS = {"placeholder": "AliceBlue", "call_module": "LemonChiffon1", "get_param": "Yellow2", "get_module": "LightGrey",
           "output": "PowderBlue"}  # fmt: skip
_MORE_COLORS = (
    "CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1", "LightSkyBlue",
    "MistyRose1", "MistyRose2", "PaleTurquoise2", "PeachPuff1", "Salmon", "Thistle1", "Thistle3", "Wheat1",
)  # fmt: skip


class DotGraph:
    """A graph as text in Graphviz's language, and as a picture.

    SVG is drawn by this package, and PNG with Pillow's help; other formats by Graphviz's program ``dot``, which must be installed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._boxes: dict[str, _drawing.Box] = {}
        self._edges: list[tuple[str, str]] = []

    def add_node(self, name: str, label: str, **style: str) -> None:
        """Draw a box."""
        self.lines.append(f"{_quoted(name)} [{_style(label=label, **style)}];")
        self._boxes[name] = _drawing.Box(label.removesuffix("\\l").split("\\l"), style.get("fillcolor", "white"))

    def add_edge(self, source: str, target: str, **style: str) -> None:
        """Draw an arrow."""
        self.lines.append(f"{_quoted(source)} -> {_quoted(target)}{f' [{_style(**style)}]' if style else ''};")
        for name in (source, target):
            self._boxes.setdefault(name, _drawing.Box([name], "white"))
        self._edges.append((source, target))

    def to_string(self) -> str:
        """The text."""
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"digraph {_quoted(self.name)} {{\n    rankdir=TB;\n{body}\n}}\n"

    def write_raw(self, path: str | Path) -> None:
        """Write the text to a file."""
        Path(path).write_text(self.to_string(), encoding="utf-8")

    def create(self, format: str = "svg") -> bytes:
        """The picture as the bytes of an image file.

        Raises: RuntimeError for PNG without Pillow, and for other formats than these two if Graphviz is not installed or fails.
        """
        if format == "svg":
            return _drawing.as_svg(self.name, self._boxes, self._edges).encode()
        if format == "png":
            return _drawing.as_png(self._boxes, self._edges)
        try:
            done = subprocess.run(["dot", f"-T{format}"], input=self.to_string().encode(), capture_output=True, check=False)
        except FileNotFoundError:
            raise RuntimeError(
                f"a picture in the format {format!r} needs Graphviz's program 'dot', which is not installed; the formats svg and png do "
                "not, and write_raw() writes the text"
            ) from None
        if done.returncode:
            raise RuntimeError(f"dot -T{format} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def write(self, path: str | Path, format: str = "raw") -> None:
        """Write the picture, or the text for ``raw``, to a file."""
        if format in ("raw", "dot"):
            self.write_raw(path)
        else:
            Path(path).write_bytes(self.create(format))

    def write_svg(self, path: str | Path) -> None:
        """Write an SVG file."""
        self.write(path, "svg")

    def write_png(self, path: str | Path) -> None:
        """Write a PNG file."""
        self.write(path, "png")

    def create_svg(self) -> bytes:
        """The bytes of an SVG file."""
        return self.create("svg")

    def create_png(self) -> bytes:
        """The bytes of a PNG file."""
        return self.create("png")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\\\\l", "\\l")
    return f'"{escaped}"'


def _style(**style: str) -> str:
    return ", ".join(f"{key}={_quoted(value)}" for key, value in style.items())


class FxGraphDrawer:
    """Draws a GraphModule, and those inside it.

    Args:
        graph_module, name: what is drawn, and what the picture is called.
        ignore_getattr: leave attributes out.
        ignore_parameters_and_buffers: do not list parameters and buffers of modules.
        skip_node_names_in_args: say ``*`` for nodes among arguments.
        parse_stack_trace: say which line of the program a node comes from.
        dot_graph_shape: of boxes; ``record`` by default.
        normalize_args: say arguments by the names of parameters.

    >>> gm = fb.fx.symbolic_trace(lambda x: fb.relu(x))
    >>> text = fb.fx.passes.graph_drawer.FxGraphDrawer(gm, "small").get_dot_graph().to_string()
    >>> '"x" -> "relu";' in text
    True
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self.ignore_getattr, self.ignore_parameters_and_buffers = ignore_getattr, ignore_parameters_and_buffers
        self.skip_node_names_in_args, self.parse_stack_trace = skip_node_names_in_args, parse_stack_trace
        self.dot_graph_shape, self.normalize_args = dot_graph_shape or "box", normalize_args
        self._dot_graphs = {name: self._drawn(graph_module, name)}
        for path, module in graph_module.named_modules():
            if path and isinstance(module, GraphModule):
                self._dot_graphs[f"{name}_{path}"] = self._drawn(module, f"{name}_{path}")

    def get_dot_graph(self, submod_name: str | None = None) -> DotGraph:
        """The picture of the whole, or of the submodule at a path."""
        return self._dot_graphs[self._name if submod_name is None else f"{self._name}_{submod_name}"]

    def get_main_dot_graph(self) -> DotGraph:
        """The picture of the whole."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> DotGraph:
        """The picture of the submodule at a path."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, DotGraph]:
        """All pictures by name."""
        return self._dot_graphs

    def _drawn(self, gm: GraphModule, name: str) -> DotGraph:
        dot = DotGraph(name)
        for node in gm.graph.nodes:
            if self.ignore_getattr and node.op == "get_attr":
                continue
            color = self._color(gm, node)
            dot.add_node(node.name, self._label(gm, node), shape=self.dot_graph_shape, fillcolor=color, style="filled,rounded",
                         fontcolor="#000000")  # fmt: skip
        for node in gm.graph.nodes:
            if self.ignore_getattr and node.op == "get_attr":
                continue
            for user in node.users:
                dot.add_edge(node.name, user.name)
        return dot

    def _color(self, gm: GraphModule, node: Node) -> str:
        if node.op == "get_attr":
            from ...tensor import Tensor
            from ..graph_module import _find

            return _COLORS["get_param" if isinstance(_find(gm, node.target), Tensor) else "get_module"]
        if node.op in _COLORS:
            return _COLORS[node.op]
        # One color for each function, the same in every run.
        target = self._target(node)
        return _MORE_COLORS[sum(target.encode()) % len(_MORE_COLORS)]

    def _target(self, node: Node) -> str:
        return node.target if isinstance(node.target, str) else qualified_name(node.target)

    def _label(self, gm: GraphModule, node: Node) -> str:
        lines = [f"name=%{node.name}", f"op_code={node.op}"]
        if node.op == "call_module":
            module = gm.get_submodule(node.target)
            lines.append(f"target={node.target}: {type(module).__module__.replace('flambeau', 'torch', 1)}.{type(module).__name__}")
            constants = getattr(module, "__constants__", None) or ()
            lines += [f"{c}: {getattr(module, c)}" for c in constants if getattr(module, c, None) is not None]
            if not self.ignore_parameters_and_buffers:
                lines += [f"{n}: {_described(p)}" for n, p in (*module.named_parameters(), *module.named_buffers())]
        else:
            lines.append(f"target={self._target(node)}")
            args, kwargs = node.args, node.kwargs
            bound = node.normalized_arguments(gm, normalize_to_only_use_kwargs=True) if self.normalize_args else None
            if bound is not None:
                args, kwargs = bound.args, bound.kwargs
            if args and node.op not in ("placeholder", "output"):
                lines.append(f"args={self._shown(args)}")
            if kwargs:
                lines.append(f"kwargs={self._shown(kwargs)}")
        lines.append(f"num_users={len(node.users)}")
        meta = node.meta.get("tensor_meta")
        if isinstance(meta, TensorMetadata):
            lines.append(f"dtype={meta.dtype}, shape={tuple(meta.shape)}, requires_grad={meta.requires_grad}, stride={meta.stride}")
        if self.parse_stack_trace and node.stack_trace:
            lines.append(node.stack_trace.strip().splitlines()[-2 if "\n" in node.stack_trace else -1].strip())
        return "".join(f"{line}\\l" for line in lines)

    def _shown(self, value: Any) -> str:
        if self.skip_node_names_in_args:
            value = map_arg(value, lambda n: _Star())
        text = str(value)
        return text if len(text) < 200 else f"{text[:197]}..."


class _Star:
    def __repr__(self) -> str:
        return "*"


def _described(tensor: Any) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
