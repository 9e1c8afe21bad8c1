"""Tensor types of old for tensors in coordinates on a CUDA device: ``cuda.sparse.FloatTensor`` and the like."""

from __future__ import annotations

from typing import Any

from .._on_demand import names_on_demand
from ..ops.creation.convert import CudaSparseTensorMeta, typed_tensor, typed_tensors

__all__: list[str] = []


def _make(name: str) -> Any:
    found = typed_tensor(name, CudaSparseTensorMeta)
    if found is not None:
        globals()[name] = found
    return found


__getattr__, __dir__ = names_on_demand(__name__, make=_make, listed=typed_tensors)
