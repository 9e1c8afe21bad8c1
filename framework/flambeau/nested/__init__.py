"""Tensors of parts that differ in size along one dimension, packed without padding (layout `jagged`)."""

from __future__ import annotations

from ._construction import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)
from ._nested_tensor import NestedTensor

__all__ = ["NestedTensor", "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]
