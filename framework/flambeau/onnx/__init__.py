"""`torch.onnx`: models in ONNX's format."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from .. import _missing
from .._on_demand import names_on_demand
from ..nn import Module
from ._program import ONNXProgram
from ._scalar_types import JitScalarType
from .errors import OnnxExporterError

__all__ = [
    "JitScalarType", "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TensorProtoDataType", "TrainingMode", "export",
    "is_in_onnx_export", "register_custom_op_symbolic", "select_model_mode_for_export", "unregister_custom_op_symbolic",
]  # fmt: skip

producer_name = "flambeau"
DEFAULT_OPSET = 18


class TrainingMode(IntEnum):
    """The mode a model is exported in."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(IntEnum):
    """How operators are written that ONNX lacks."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class TensorProtoDataType(IntEnum):
    """The numbers of dtypes in ONNX files. Source: ONNX, `TensorProto.DataType`."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20


def is_in_onnx_export() -> bool:
    """Whether this code runs because a model is being exported."""
    from ._export import is_exporting

    return is_exporting()


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: dict[str, Any] | None = None, export_params: bool = True,
    verbose: bool | None = None, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
    opset_version: int | None = None, dynamo: bool = False, external_data: bool = True, dynamic_shapes: Any = None,
    custom_translation_table: dict[Any, Any] | None = None, report: bool = False, optimize: bool = True, verify: bool = False,
    profile: bool = False, dump_exported_program: bool = False, artifacts_dir: Any = ".", fallback: bool = False,
    training: TrainingMode = TrainingMode.EVAL, operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True, custom_opsets: Mapping[str, int] | None = None, export_modules_as_functions: Any = False,
    autograd_inlining: bool = True, dynamic_axes: Any = None, keep_initializers_as_inputs: bool = False,
) -> ONNXProgram | None:  # fmt: skip
    """Write a model in ONNX's format: the operators that `model` runs on example inputs, translated.

    Args:
        model: a Module, a function, a script or trace, or an `ExportedProgram`.
        args, kwargs: example inputs. A dict at the end of `args` with names of parameters counts as `kwargs`.
        f: a path, or a file that is open for writing bytes.
        export_params: whether the values of parameters and buffers are written; without them they are inputs.
        verbose: whether to print the model.
        input_names, output_names: of the model's inputs and outputs in order; names of the program's by default.
        opset_version: of ONNX's operators, from 17 to 23; 18 by default.
        dynamo: False: the module is exported in the mode that `training` says, `f` must be given, and None is returned. True: it is
            exported as it is, and the program is returned. Both record it by `flambeau.export`.
        external_data: with ``dynamo=True``, whether weights of at least a kilobyte are written to a second file, ``<f>.data``.
        dynamic_shapes: which sizes are open, as `flambeau.export.export` takes it; texts are open sizes with names as well.
        dynamic_axes: the same by names of inputs and outputs: ``{"x": {0: "batch"}}`` or ``{"x": [0]}``.
        custom_translation_table: by operator, a function that takes the graph and the operator's arguments and returns what
            ``graph.op("Kind", *values, attribute_i=1)`` gave; functions of onnxscript are taken as well.
        report: whether to write a page about the export to `artifacts_dir`; `profile` adds where the time went.
        optimize: whether to compute equal values once and to leave out copies.
        verify: whether to run the model on the example inputs, and to warn where its outputs differ.
        dump_exported_program: whether to write the exported program to `artifacts_dir`.
        custom_opsets: versions of domains that translations use; 1 by default.
        keep_initializers_as_inputs: whether weights are inputs too.
        export_modules_as_functions: must be False.
        fallback, operator_export_type, do_constant_folding, autograd_inlining: accepted; there is one way to export.
    Returns: the program, with ``dynamo=True``.
    Raises: UnsupportedOperatorError (``onnx.errors``), an OnnxExporterError, for an operator that has no translation, with where it is;
        OnnxExporterError for names that do not fit; ImportError without the package onnx; FileNotFoundError for a folder that is not
        there, before anything is done. No file is left half-written.
    """
    from . import _export, _program

    if export_modules_as_functions:
        raise _missing.not_built("onnx.export(export_modules_as_functions=True)", "leave it as it is by default")
    if f is None and not dynamo:
        raise ValueError("onnx.export: f must be given, unless with dynamo=True, which returns the program")
    _program.check_destination(f)

    def convert() -> ONNXProgram:
        return _export.convert(
            model, args, kwargs, input_names=input_names, output_names=output_names,
            opset=DEFAULT_OPSET if opset_version is None else opset_version, dynamic_shapes=dynamic_shapes, dynamic_axes=dynamic_axes,
            custom=custom_translation_table, symbolics=_symbolics, optimize=optimize, with_weights=export_params,
            weights_as_inputs=keep_initializers_as_inputs, custom_opsets=dict(custom_opsets or {}),
        )  # fmt: skip

    by_mode = isinstance(model, Module) and not dynamo
    with select_model_mode_for_export(model, training) if by_mode else contextlib.nullcontext():
        program, times = _export.timed(convert) if profile else (convert(), None)
        differences = _export.verified(program) if verify else None
    if verbose:
        print(program)
    if f is not None:
        program.save(f, external_data=external_data and dynamo and not hasattr(f, "write"))
    if report:
        _export.write_report(artifacts_dir, program, differences, times)
    if dump_exported_program:
        _export.write_program(artifacts_dir, program)
    return program if dynamo else None


_symbolics: dict[tuple[str, int], Callable[..., Any]] = {}


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Keep `symbolic_fn` as the translation of the operator `symbolic_name`, ``namespace::name``, from `opset_version` on.

    Raises: OnnxExporterError for a name without a namespace.
    """
    namespace, colons, name = symbolic_name.partition("::")
    if not colons or not namespace.isidentifier() or not name.replace(".", "_").isidentifier():
        raise OnnxExporterError(
            f"onnx.register_custom_op_symbolic: symbolic_name must be written namespace::name, got {symbolic_name!r}"
        )
    _symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget the translation of `symbolic_name` from `opset_version` on; nothing if there is none."""
    _symbolics.pop((symbolic_name, opset_version), None)


@contextlib.contextmanager
def select_model_mode_for_export(model: Any, mode: TrainingMode) -> Iterator[Any]:
    """A context with `model` in the mode it is exported in; afterwards it has the mode it had.

    Raises: TypeError for another `mode`.
    """
    if not isinstance(mode, TrainingMode):
        raise TypeError(f"onnx.select_model_mode_for_export: mode must be a TrainingMode, got {type(mode).__name__}")
    before = [(part, part.training) for part in model.modules()]
    if mode is not TrainingMode.PRESERVE:
        model.train(mode is TrainingMode.TRAINING)
    try:
        yield model
    finally:
        for part, training in before:
            part.training = training


__getattr__, __dir__ = names_on_demand(__name__, modules=("utils", "verification"))
