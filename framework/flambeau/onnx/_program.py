"""What `export` returns."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flambeau as fb

from .. import _missing
from ..serialization import _atomic_file
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._graph import array_of, imported_onnx, onnx_type

__all__ = ["ONNXProgram"]

_INLINE = 1024        # bytes: smaller weights stay in the model's own file
_LARGE = 1 << 30      # bytes: models of more are written with their weights beside them, as one file may not have 2 GiB
_ALIGNED = 4096       # where weights begin in their file, so that they can be mapped into memory


class ONNXProgram:
    """A model in ONNX's format, made by `onnx.export`, that can be saved and run.

    Args:
        model_proto: the model, of the package `onnx`.
        exported_program: the program it was made from, or None.
        fed: which leaves of the program's inputs the model's inputs are, in order.
    """

    def __init__(self, model_proto: Any, exported_program: Any = None, fed: Sequence[int] | None = None) -> None:
        self._model, self.exported_program = model_proto, exported_program
        self._fed = None if fed is None else list(fed)
        self._session: Any = None

    def __repr__(self) -> str:
        return f"ONNXProgram(\n    model=\n{imported_onnx().printer.to_text(self._model)}\n    exported_program={self.exported_program}\n)"

    @property
    def model_proto(self) -> Any:
        """The model, an `onnx.ModelProto`."""
        return self._model

    @property
    def model(self) -> Any:
        """Not built: raises NotImplementedError, since the package onnx-ir is not used. `model_proto` has the model."""
        raise _missing.not_built("onnx.ONNXProgram.model", "take model_proto")

    def optimize(self) -> None:
        """Compute equal values once, and leave out copies and what nothing reads. Results stay the same to the bit."""
        from ._tidy import read_by, tidied

        graph = self._model.graph
        nodes = tidied(list(graph.node), [x.name for x in graph.output], True)
        used = {name for node in nodes for name in read_by(node)} | {x.name for x in graph.output}
        weights = [w for w in graph.initializer if w.name in used]
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(weights)
        self.release()

    def apply_weights(self, state_dict: dict[str, Any]) -> None:
        """Give weights of the model the values of `state_dict`; names that the model has not are left out with a warning.

        Raises: ValueError for a value of another dtype or shape.
        """
        import warnings

        homes = {weight.name: weight for weight in self._model.graph.initializer}
        news = []
        for name, value in state_dict.items():
            if name not in homes:
                warnings.warn(f"Weight '{name}' not found in the model. Skipped applying.", category=UserWarning, stacklevel=2)
                continue
            home = homes[name]
            if tuple(home.dims) != tuple(value.shape) or home.data_type != onnx_type(value.dtype):
                raise ValueError(f"apply_weights: {name!r} has shape {tuple(home.dims)} and type {home.data_type} in the model, "
                                 f"given are {tuple(value.shape)} and {value.dtype}")  # fmt: skip
            news.append((home, value))
        for home, value in news:
            home.raw_data = array_of(value).tobytes()
        self.release()

    def rename_axes(self, names: dict[str, str]) -> None:
        """Call open dimensions of inputs and outputs by other names."""
        for x in (*self._model.graph.input, *self._model.graph.output):
            for dim in x.type.tensor_type.shape.dim:
                if dim.dim_param in names:
                    dim.dim_param = names[dim.dim_param]
        self.release()

    # -- files

    def save(
        self, destination: Any, *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:  # fmt: skip
        """Write the model to a file.

        Args:
            destination: a path, or a file that is open for writing bytes.
            include_initializers: whether the values of weights are written; without them they are inputs of the model.
            keep_initializers_as_inputs: whether weights are inputs as well, which have these values by default.
            external_data: whether weights of at least a kilobyte go to a second file, ``<destination>.data``; by default only if the
                model has more than a gigabyte.
        Raises: ValueError for weights that would go beside a file that is open; OSError where a file cannot be written: then files that
            were there are as they were.
        """
        onnx = imported_onnx()
        model = self._model
        graph = model.graph
        total = sum(len(weight.raw_data) for weight in graph.initializer)
        to_path = isinstance(destination, (str, os.PathLike))
        if external_data is None:
            external_data = to_path and total > _LARGE
        if external_data and not to_path:
            raise ValueError("ONNXProgram.save: weights in a file of their own need a path to put it beside, not a file that is open")
        if not include_initializers or keep_initializers_as_inputs or external_data:
            model = onnx.ModelProto()
            model.CopyFrom(_without_weights(self._model))
            have = {x.name for x in graph.input}
            if not include_initializers or keep_initializers_as_inputs:
                model.graph.input.extend(
                    onnx.helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in graph.initializer if w.name not in have
                )
        weights = list(graph.initializer) if include_initializers else []
        if not to_path:
            if model is not self._model:
                model.graph.initializer.extend(weights)
            destination.write(model.SerializeToString())
            return
        path = Path(destination)
        beside = [w for w in weights if external_data and len(w.raw_data) >= _INLINE]
        with contextlib.ExitStack() as files:
            if model is not self._model:
                data = files.enter_context(_atomic_file(str(path.with_name(path.name + ".data")))) if beside else None
                model.graph.initializer.extend(_placed(w, data, path.name + ".data") if w in beside else w for w in weights)
            files.enter_context(_atomic_file(str(path))).write(model.SerializeToString())

    # -- running

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make what runs the model: a session of onnxruntime where that is installed, else the reference evaluator of `onnx`.

        Args:
            initializer: takes the model as bytes, and returns an object with ``run(output_names, inputs_by_name)``.
        """
        self._session = (initializer or _session)(self._model.SerializeToString())

    def release(self) -> None:
        """Drop what `initialize_inference_session` made."""
        self._session = None

    def __call__(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """The outputs of the model for the inputs of the exported program, one after the other.

        Raises: ValueError for other numbers of inputs than the model has.
        """
        if self._session is None:
            self.initialize_inference_session()
        return _run(self._session, None, self._feeds(args, kwargs))

    def compute_values(self, value_names: Sequence[str], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> list[Tensor]:
        """Values inside the model, by name, for inputs of the exported program.

        Raises: ValueError for names that no value has.
        """
        onnx = imported_onnx()
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        known = {name for node in model.graph.node for name in node.output}
        known |= {x.name for x in (*model.graph.input, *model.graph.initializer)}
        unknown = [name for name in value_names if name not in known]
        if unknown:
            raise ValueError(f"ONNXProgram.compute_values: the model has no value {unknown[0]!r}")
        model = onnx.shape_inference.infer_shapes(model)
        kinds = {x.name: x for x in (*model.graph.value_info, *model.graph.output, *model.graph.input)}
        for name in value_names:
            if name not in kinds:
                raise ValueError(f"ONNXProgram.compute_values: the type of {name!r} is not known")
        del model.graph.output[:]
        model.graph.output.extend(copy.deepcopy(kinds[name]) for name in value_names)
        return _run(_session(model.SerializeToString()), list(value_names), self._feeds(args, kwargs or {}))

    def _feeds(self, args: Any, kwargs: Any) -> dict[str, Any]:
        weights = {weight.name for weight in self._model.graph.initializer}
        names = [x.name for x in self._model.graph.input if x.name not in weights]
        leaves = pytree.tree_leaves((args, kwargs))
        count = len(leaves)
        if self._fed is not None and count == len(self.exported_program.graph_signature.user_inputs):
            leaves = [leaves[i] for i in self._fed]   # without constants, which are no inputs of the model
        leaves = [x for x in leaves if isinstance(x, Tensor)]
        if len(leaves) != len(names):
            raise ValueError(f"ONNXProgram: the model has the inputs {names}, given are {count} values")
        # Complex numbers are pairs in a model.
        return {name: array_of(fb.view_as_real(x) if x.dtype.is_complex else x) for name, x in zip(names, leaves, strict=True)}


def _session(model: bytes) -> Any:
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]  # a package that programs may lack
    except ImportError:
        imported_onnx()
        from onnx.reference import ReferenceEvaluator  # pyright: ignore[reportMissingImports]

        return ReferenceEvaluator(model)
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def _run(session: Any, names: Any, feeds: dict[str, Any]) -> list[Tensor]:
    return [_tensor(x) for x in session.run(names, feeds)]


def _tensor(x: Any) -> Tensor:
    import numpy as np

    array = np.asarray(x)
    if hasattr(fb, name := str(array.dtype)) and array.dtype.kind == "V":
        return fb.from_numpy(array.view(f"u{array.itemsize}").view(np.int16 if array.itemsize == 2 else np.uint8)).view(getattr(fb, name))
    return fb.as_tensor(np.array(array))


def _without_weights(model: Any) -> Any:
    """A copy of `model` with no values of weights. They are never copied: they may have gigabytes."""
    weights = list(model.graph.initializer)
    del model.graph.initializer[:]
    try:
        bare = copy.deepcopy(model)
    finally:
        model.graph.initializer.extend(weights)
    return bare


def _placed(weight: Any, data: Any, name: str) -> Any:
    """`weight` as an entry that says where in the file `data` its value is, which is written there."""
    onnx = imported_onnx()
    start = -(-data.tell() // _ALIGNED) * _ALIGNED
    data.write(b"\0" * (start - data.tell()))
    data.write(weight.raw_data)
    made = onnx.TensorProto(name=weight.name, data_type=weight.data_type, dims=weight.dims)
    made.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", str(start)), ("length", str(len(weight.raw_data)))):
        made.external_data.add(key=key, value=value)
    return made


def check_destination(f: Any) -> None:
    """Raises: FileNotFoundError or IsADirectoryError for a path that no file can be written to; TypeError for neither path nor file."""
    if f is None or hasattr(f, "write"):
        return
    if not isinstance(f, (str, os.PathLike)):
        raise TypeError(f"onnx.export: f must be a path or a file that is open for writing, got {type(f).__name__}")
    path = Path(f)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"onnx.export: there is no folder {str(path.parent)!r} to write {path.name!r} to")
    if path.is_dir():
        raise IsADirectoryError(f"onnx.export: {str(path)!r} is a folder")
