"""Matrices with two zeros in each four, for the units of CUDA devices that skip them: not built."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing
from ..tensor import Tensor

__all__ = [
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "to_sparse_semi_structured",
]  # fmt: skip


def _refuse(name: str, original: Any) -> NoReturn:
    if isinstance(original, Tensor) and not original.is_cuda:
        raise RuntimeError(f"Error original_tensor.device= {original.device} is not supported! Only CUDA tensors are currently supported.")
    raise _missing.not_built(f"sparse.{name}", "compute with the dense tensor")


class SparseSemiStructuredTensor:
    """Not built: raises NotImplementedError when made, and RuntimeError of a tensor on the CPU, as in PyTorch."""

    _FORCE_CUTLASS = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__, None)

    @classmethod
    def from_dense(cls, original_tensor: Tensor) -> NoReturn:
        """Not built: raises NotImplementedError; RuntimeError for a tensor on the CPU."""
        _refuse(f"{cls.__name__}.from_dense", original_tensor)


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """Not built; see `SparseSemiStructuredTensor`."""


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """Not built; see `SparseSemiStructuredTensor`."""


def to_sparse_semi_structured(original_tensor: Tensor, transposed: bool = False) -> NoReturn:
    """Not built: raises NotImplementedError; RuntimeError for a tensor on the CPU, as in PyTorch."""
    _refuse("to_sparse_semi_structured", original_tensor)
