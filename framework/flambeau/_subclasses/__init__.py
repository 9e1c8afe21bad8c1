"""Tensors that stand for others: they have shapes, dtypes and devices, and no values."""

from __future__ import annotations

from .fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

__all__ = [
    "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
    "UnsupportedFakeTensorException",
]  # fmt: skip
