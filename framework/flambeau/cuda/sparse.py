"""Tensor types of old for tensors in coordinates on a CUDA device: ``cuda.sparse.FloatTensor`` and the like."""

from __future__ import annotations

from typing import Any

from .. import _missing
from ..ops.creation.convert import CudaSparseTensorMeta, typed_tensor

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = typed_tensor(name, CudaSparseTensorMeta)
    if found is None:
        raise _missing.attribute_error(__name__, name)
    globals()[name] = found
    return found
