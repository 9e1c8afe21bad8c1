"""`torch.onnx` as far as programs ask and register; exporting a model is not built and says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NoReturn

from .. import _missing
from .._on_demand import names_on_demand
from ._scalar_types import JitScalarType
from .errors import OnnxExporterError

__all__ = [
    "JitScalarType", "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TensorProtoDataType", "TrainingMode", "export",
    "is_in_onnx_export", "register_custom_op_symbolic", "select_model_mode_for_export", "unregister_custom_op_symbolic",
]  # fmt: skip

producer_name = "flambeau"
_ADVICE = "save the parameters by save(model.state_dict(), f), or export the model with PyTorch"


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
    """Whether this code runs because a model is being exported: never."""
    return False


def export(model: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError, before any file is made."""
    raise _missing.not_built("onnx.export", _ADVICE)


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


class ONNXProgram:
    """An exported model. Not built: raises NotImplementedError when made, as all of its methods do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _missing.not_built("onnx.ONNXProgram", _ADVICE)

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.save", _ADVICE)

    def optimize(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.optimize", _ADVICE)

    def apply_weights(self, state_dict: Any) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.apply_weights", _ADVICE)

    def initialize_inference_session(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.initialize_inference_session", _ADVICE)

    def compute_values(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.compute_values", _ADVICE)

    def release(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.release", _ADVICE)

    @property
    def model_proto(self) -> NoReturn:
        """Not built: raises NotImplementedError."""
        raise _missing.not_built("onnx.ONNXProgram.model_proto", _ADVICE)


__getattr__, __dir__ = names_on_demand(__name__, modules=("utils", "verification"))
