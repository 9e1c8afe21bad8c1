"""`onnx.export`."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flambeau as fb

from ..export import ExportedProgram
from ..export.dynamic_shapes import Dim, ShapesCollection, _DimHint, _DimHintType, bound_inputs, sizes_of_inputs
from ..nn import Module
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._convert import Conversion
from ._graph import Graph, imported_onnx
from ._program import ONNXProgram

__all__ = ["convert", "exporting", "is_exporting"]

_OPSETS = range(17, 24)
_exporting: contextvars.ContextVar[bool] = contextvars.ContextVar("exporting", default=False)


def is_exporting() -> bool:
    """Whether this code runs because a model is being exported."""
    return _exporting.get()


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """A context in which `is_exporting` is True."""
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)


class _Called(Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = fn  # type: ignore[method-assign]


class _Labeled(_DimHint):
    """An open size with a name that the program does not know."""

    def __init__(self, label: str, kind: _DimHintType) -> None:
        super().__init__(kind)
        self.label = label


def convert(
    model: Any, args: Any, kwargs: dict[str, Any] | None, *, input_names: Any, output_names: Any, opset: int, dynamic_shapes: Any,
    dynamic_axes: Any, custom: dict[Any, Any] | None, symbolics: dict[tuple[str, int], Callable[..., Any]], optimize: bool,
    with_weights: bool, weights_as_inputs: bool, custom_opsets: dict[str, int] | None,
) -> ONNXProgram:  # fmt: skip
    """The model of a program, as `onnx.export` documents it."""
    imported_onnx()
    if opset not in _OPSETS:
        raise ValueError(f"onnx.export: opset_version must be from {_OPSETS[0]} to {_OPSETS[-1]}, got {opset}")
    program, labels, out_labels = _program_of(model, args, dict(kwargs or {}), input_names, output_names, dynamic_shapes, dynamic_axes)
    made = Conversion(program, opset, input_names, output_names, labels, _translators(custom, symbolics, opset), with_weights)
    made.graph.domains.update(custom_opsets or {})
    proto = made.model(optimize, weights_as_inputs)
    for x in proto.graph.output:
        for d, label in out_labels.get(x.name, {}).items():
            sizes = x.type.tensor_type.shape.dim
            if -len(sizes) <= d < len(sizes) and not sizes[d].HasField("dim_value"):
                sizes[d].dim_param = label
    return ONNXProgram(proto, program, made.fed)


def _program_of(
    model: Any, args: Any, kwargs: dict[str, Any], input_names: Any, output_names: Any, dynamic_shapes: Any, dynamic_axes: Any
) -> tuple[Any, dict[tuple[int, int], str], dict[str, dict[int, str]]]:
    """The exported program, names of open sizes of its inputs, and those of its outputs that the caller has given."""
    if isinstance(model, ExportedProgram):
        return model, {}, _out_labels(dynamic_axes, output_names)
    if isinstance(args, Tensor):
        args = (args,)
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"onnx.export: args must be a tuple of example inputs, got {type(args).__name__}")
    args = tuple(args)
    if args and isinstance(args[-1], dict) and not kwargs and all(isinstance(key, str) for key in args[-1]) and _names(model, args[-1]):
        args, kwargs = args[:-1], args[-1]
    if not isinstance(model, Module):
        if not callable(model):
            raise TypeError(f"onnx.export: model must be a Module, a function or an ExportedProgram, got {type(model).__name__}")
        model = _Called(model)
    # Each input is a Tensor of its own here, for sizes are told apart by which Tensor they are of.
    seen: set[int] = set()

    def once(x: Any) -> Any:
        if isinstance(x, Tensor) and id(x) in seen:
            return x.detach().clone()
        seen.add(id(x))
        return x

    args, kwargs = pytree.tree_map(once, (args, kwargs))
    larger = _with_two_for_one(model, args, kwargs, input_names, dynamic_axes) if dynamic_shapes is None and dynamic_axes else None
    if larger is not None:
        larger_args, larger_kwargs = larger
        try:
            return _recorded(model, larger_args, larger_kwargs, input_names, output_names, dynamic_shapes, dynamic_axes)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            warnings.warn(
                f"onnx.export: dynamic_axes names sizes that are 1 in the example; the program takes no other there ({error}), so they are "
                "fixed. Give an example with other sizes to see where it asks for 1",
                stacklevel=4,
            )
    return _recorded(model, args, kwargs, input_names, output_names, dynamic_shapes, dynamic_axes)


def _with_two_for_one(model: Any, args: Any, kwargs: Any, input_names: Any, dynamic_axes: Any) -> Any:
    """The example with 2 for the sizes of 1 that are to stay open, as recordings take 1 for a number; None if there are none.

    Open sizes of one name become 2 in all tensors.
    """
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    by_name = _inputs_by_name(input_names, bound_inputs(model.forward, args, kwargs), tensors)
    axes = {id(by_name[name]): _axes(name, given) for name, given in dynamic_axes.items() if name in by_name}
    ones = {label for x in tensors for d, label in axes.get(id(x), {}).items() if x.shape[d] == 1}
    if not ones:
        return None

    def doubled(x: Any) -> Any:
        for d, label in axes.get(id(x), {}).items():
            if label in ones:
                x = fb.cat([x.detach(), x.detach()], d).narrow(d, 0, 2)
        return x

    return pytree.tree_map(lambda x: doubled(x) if isinstance(x, Tensor) else x, (args, kwargs))


def _recorded(
    model: Module, args: Any, kwargs: Any, input_names: Any, output_names: Any, dynamic_shapes: Any, dynamic_axes: Any
) -> tuple[Any, dict[tuple[int, int], str], dict[str, dict[int, str]]]:
    """As `_program_of`, of a Module and arguments that are Tensors of their own."""
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    named = bound_inputs(model.forward, args, kwargs)
    out_labels: dict[str, dict[int, str]] = {}
    if dynamic_axes and dynamic_shapes is None:
        shapes: Any = _of_axes(dynamic_axes, input_names, named, tensors)
        out_labels = _out_labels(dynamic_axes, output_names)
    else:
        shapes = _labeled(dynamic_shapes)
    places = {id(x): i for i, x in enumerate(tensors)}
    labels = {}
    for key, dims in sizes_of_inputs(named, shapes).items():
        for d, what in dims.items():
            if isinstance(what, _Labeled):
                labels[places[key], d] = what.label
            elif isinstance(what, Dim):
                labels[places[key], d] = what.__name__
    with exporting():
        program = fb.export.export(model, args, kwargs, dynamic_shapes=shapes)
    return program, labels, out_labels


def _names(model: Any, given: dict[str, Any]) -> bool:
    """Whether the keys of `given` are parameters of `model`: then it is not a dict among the inputs."""
    import inspect

    parameters = inspect.signature(model.forward if isinstance(model, Module) else model).parameters
    return set(given) <= set(parameters)


def _labeled(shapes: Any) -> Any:
    """`dynamic_shapes` with open sizes in place of texts, which are their names."""
    if isinstance(shapes, str):
        return _Labeled(shapes, _DimHintType.DYNAMIC)
    if isinstance(shapes, dict):
        return {key: _labeled(value) for key, value in shapes.items()}
    if type(shapes) in (list, tuple):
        return type(shapes)(_labeled(value) for value in shapes)
    return shapes


def _axes(name: str, given: Any) -> dict[int, str]:
    if isinstance(given, dict):
        return dict(given)
    return {d: f"{name}_dynamic_axes_{i + 1}" for i, d in enumerate(given)}


def _inputs_by_name(input_names: Any, named: dict[str, Any], tensors: list[Tensor]) -> dict[str, Tensor]:
    """The Tensors among the inputs, by the parameters of the program and by `input_names`."""
    by_name = {name: x for name, x in named.items() if isinstance(x, Tensor)}
    return by_name | dict(zip(input_names or (), tensors, strict=False))


def _of_axes(dynamic_axes: Any, input_names: Any, named: dict[str, Any], tensors: list[Tensor]) -> Any:
    """`dynamic_axes`, by names of inputs, as sizes of the Tensors themselves."""
    by_name = _inputs_by_name(input_names, named, tensors)
    shapes = ShapesCollection()
    for name, axes in dynamic_axes.items():
        if name in by_name:
            shapes[by_name[name]] = {d: _Labeled(label, _DimHintType.AUTO) for d, label in _axes(name, axes).items()}
    return shapes


def _out_labels(dynamic_axes: Any, output_names: Any) -> dict[str, dict[int, str]]:
    return {name: _axes(name, axes) for name, axes in (dynamic_axes or {}).items() if name in (output_names or ())}


# -- translations that programs give -----------------------------------------------------------------------------------------


def _translators(custom: Any, symbolics: dict[tuple[str, int], Callable[..., Any]], opset: int) -> dict[str, Callable[..., Any]]:
    """By operator: translations that programs have registered or given; those of the latest version not above `opset` count."""
    made: dict[str, Callable[..., Any]] = {}
    for (name, _), fn in sorted((pair for pair in symbolics.items() if pair[0][1] <= opset), key=lambda pair: pair[0][1]):
        made[name.replace("::", ".")] = fn
    for target, fn in (custom or {}).items():
        name = str(getattr(target, "_opoverload", target))
        fn = fn[-1] if isinstance(fn, (list, tuple)) else fn
        if not callable(fn):
            raise TypeError(f"onnx.export: the translation of {name} must be a function, got {type(fn).__name__}")
        made[name] = _as_function_of_model(fn) if hasattr(fn, "to_function_proto") else fn
    return made


def _as_function_of_model(fn: Any) -> Callable[..., Any]:
    """A function of onnxscript as a translation: the model has it as a function, which is called."""

    def translate(g: Graph, *args: Any, **attributes: Any) -> Any:
        proto = fn.to_function_proto()
        if all((f.domain, f.name) != (proto.domain, proto.name) for f in g.functions):
            g.functions.append(proto)
            for used in proto.opset_import:
                g.domains.setdefault(used.domain, used.version) if used.domain else None
        return g.op(f"{proto.domain}::{proto.name}", *args, outputs=len(proto.output), **attributes)

    return translate


# -- what is written beside the model ------------------------------------------------------------------------------------------


def verified(program: ONNXProgram) -> list[Any]:
    """The differences between the model and the program on its example inputs; a warning says where they are large."""
    from .verification import verify_onnx_program

    found = verify_onnx_program(program)
    for each in found:
        if not each.max_abs_diff <= 1e-3 and not each.max_rel_diff <= 1e-2 and sum(each.abs_diff_hist[0].tolist()):
            warnings.warn(f"onnx.export: output {each.name!r} differs by up to {each.max_abs_diff:g}", UserWarning, stacklevel=3)
    return found


def write_report(folder: Any, program: ONNXProgram, differences: list[Any] | None, profile: str | None) -> Path:
    """A page about an export: operators, inputs and outputs, differences, times. Returns: its path."""
    graph = program.model_proto.graph
    counts: dict[str, int] = {}
    for node in graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    text = io.StringIO()
    text.write(f"# Exported model\n\n{len(graph.node)} nodes, {len(graph.initializer)} weights.\n")
    text.write("\n## Operators\n\n| operator | nodes |\n|---|---|\n")
    for name, count in sorted(counts.items()):
        text.write(f"| {name} | {count} |\n")
    if differences is not None:
        text.write("\n## Differences\n\n| output | largest | largest beside the value |\n|---|---|---|\n")
        for each in differences:
            text.write(f"| {each.name} | {each.max_abs_diff:g} | {each.max_rel_diff:g} |\n")
    text.write(f"\n## Program\n\n```text\n{program.exported_program}\n```\n")
    if profile:
        text.write(f"\n## Time\n\n```text\n{profile}\n```\n")
    path = Path(folder) / f"onnx_export_{_stamp()}.md"
    path.write_text(text.getvalue())
    return path


def write_program(folder: Any, program: ONNXProgram) -> Path:
    """The exported program in a file. Returns: its path."""
    path = Path(folder) / f"onnx_export_{_stamp()}.pt2"
    fb.export.save(program.exported_program, path)
    return path


def _stamp() -> str:
    return datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")


def timed(run: Callable[[], Any]) -> tuple[Any, str]:
    """What `run` returns, and where the time went."""
    import cProfile
    import pstats

    profile = cProfile.Profile()
    result = profile.runcall(run)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(30)
    return result, text.getvalue()

