"""The kinds of numbers as graphs of scripts and ONNX files name them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .. import dtypes
from .errors import OnnxExporterError

__all__ = ["JitScalarType"]

# name of the kind, name in operators, dtype, number in ONNX (0: none)
_ROWS = (
    ("UINT8", "Byte", "uint8_t", "uint8", 2), ("INT8", "Char", "int8_t", "int8", 3), ("INT16", "Short", "int16_t", "int16", 5),
    ("INT", "Int", "int", "int32", 6), ("INT64", "Long", "int64_t", "int64", 7), ("HALF", "Half", "half", "float16", 10),
    ("FLOAT", "Float", "float", "float32", 1), ("DOUBLE", "Double", "double", "float64", 11),
    ("COMPLEX32", "ComplexHalf", "complex32", "complex32", 0), ("COMPLEX64", "ComplexFloat", "complex64", "complex64", 14),
    ("COMPLEX128", "ComplexDouble", "complex128", "complex128", 15), ("BOOL", "Bool", "bool", "bool", 9),
    ("BFLOAT16", "BFloat16", "bfloat16", "bfloat16", 16), ("FLOAT8E5M2", "Float8E5M2", "float8_e5m2", "float8_e5m2", 19),
    ("FLOAT8E4M3FN", "Float8E4M3FN", "float8_e4m3fn", "float8_e4m3fn", 17),
    ("FLOAT8E5M2FNUZ", "Float8E5M2FNUZ", "float8_e5m2fnuz", "float8_e5m2fnuz", 20),
    ("FLOAT8E4M3FNUZ", "Float8E4M3FNUZ", "float8_e4m3fnuz", "float8_e4m3fnuz", 18), ("UNDEFINED", "Undefined", "undefined", None, 0),
)  # fmt: skip


class JitScalarType(IntEnum):
    """Kinds of numbers, with conversions between dtypes, names of scripts and numbers of ONNX."""

    UINT8 = 0
    INT8 = 1
    INT16 = 2
    INT = 3
    INT64 = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX32 = 8
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    BFLOAT16 = 15
    FLOAT8E5M2 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E5M2FNUZ = 18
    FLOAT8E4M3FNUZ = 19
    UNDEFINED = 21

    @classmethod
    def from_dtype(cls, dtype: Any) -> JitScalarType:
        """The kind of a dtype; UNDEFINED for None. Raises: OnnxExporterError for a dtype that has none."""
        if dtype is None:
            return cls.UNDEFINED
        for name, *_, ours, _number in _ROWS:
            if ours is not None and getattr(dtypes, ours) is dtype:
                return cls[name]
        raise OnnxExporterError(f"JitScalarType.from_dtype: {dtype!r} has no kind")

    @classmethod
    def from_onnx_type(cls, onnx_type: int | None) -> JitScalarType:
        """The kind of a number of ONNX's data types. Raises: OnnxExporterError for an unknown one."""
        for name, *_, number in _ROWS:
            if number and number == onnx_type:
                return cls[name]
        raise OnnxExporterError(f"JitScalarType.from_onnx_type: unknown data type {onnx_type!r}")

    @classmethod
    def from_value(cls, value: Any, default: Any = None) -> JitScalarType:
        """The kind of the elements of a tensor; `default` for anything else. Raises: OnnxExporterError without a default."""
        if hasattr(value, "dtype"):
            return cls.from_dtype(value.dtype)
        if default is not None:
            return default
        raise OnnxExporterError(f"JitScalarType.from_value: {value!r} is no tensor")

    def _row(self) -> Any:
        return next(row for row in _ROWS if row[0] == self.name)

    def scalar_name(self) -> str:
        """The name in graphs of scripts, such as "Float"."""
        return self._row()[1]

    def torch_name(self) -> str:
        """The name in operators, such as "int64_t"."""
        return self._row()[2]

    def dtype(self) -> Any:
        """The dtype. Raises: OnnxExporterError for UNDEFINED."""
        if self is JitScalarType.UNDEFINED:
            raise OnnxExporterError("JitScalarType.dtype: UNDEFINED has no dtype")
        return getattr(dtypes, self._row()[3])

    def onnx_type(self) -> int:
        """The number of ONNX's data types; 0 where there is none."""
        return self._row()[4]

    def onnx_compatible(self) -> bool:
        """Whether ONNX has this kind."""
        return self._row()[4] != 0
