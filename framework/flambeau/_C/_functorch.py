"""What programs ask of the compiled half of PyTorch's function transforms, where it has a meaning here."""

from __future__ import annotations

import sys
from typing import Any

from ..func.batching import BatchedTensor
from ..tensor import Tensor

__all__ = ["_add_batch_dim", "_remove_batch_dim", "get_unwrapped", "is_batchedtensor", "is_legacy_batchedtensor", "maybe_get_bdim"]

# The module: in `func` its name is that of the function.
_vmap = sys.modules["flambeau.func.vmap"]
_add_batch_dim, _remove_batch_dim = _vmap._add_batch_dim, _vmap._remove_batch_dim


def is_batchedtensor(tensor: Any) -> bool:
    """Whether `tensor` is seen one example at a time, inside of `vmap`."""
    return isinstance(tensor, BatchedTensor)


def is_legacy_batchedtensor(tensor: Any) -> bool:
    """Whether `tensor` is of PyTorch's `vmap` before 2.0: none is."""
    return False


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The tensor of all examples that `tensor` is one of, where it is seen so; `tensor` itself otherwise."""
    return tensor._value if isinstance(tensor, BatchedTensor) else tensor


def maybe_get_bdim(tensor: Tensor) -> int:
    """The dimension of `get_unwrapped` that numbers the examples; -1 where there are none."""
    return tensor._bdim if isinstance(tensor, BatchedTensor) else -1
