"""The memory of tensors as kernels of programs are given it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _state
from .._arrays import MetaArray, ndarray
from ..tensor import Tensor

__all__ = ["lack_values", "memory_of"]


def lack_values(args: Any) -> bool:
    """Whether some of `args` is a tensor that has a shape and no memory, so that a kernel has nothing to do."""
    return any(isinstance(a, Tensor) and a._array.__class__ is MetaArray for a in args)


def memory_of(kernel: str, name: str, a: Tensor, devices: bool = False) -> Any:
    """The array of the tensor that is the argument `name` of `kernel`.

    Args:
        devices: whether the kernel takes arrays of CUDA devices too.
    Raises: RuntimeError for a tensor that requires grad while gradients are recorded, NotImplementedError for one without such memory.
    """
    if a._node is not None and _state.grad_enabled():
        raise RuntimeError(
            f"{kernel}: argument {name!r} requires grad, and a kernel records no derivative; give {name}.detach(), or make the "
            "function that calls the kernel an operator by library.custom_op or numba_op, with a derivative by register_autograd"
        )
    array = a._array
    if array.__class__ is ndarray or isinstance(array, np.ndarray) or devices and hasattr(array, "__cuda_array_interface__"):
        return array
    where = "the CPU or CUDA" if devices else "the CPU"
    raise NotImplementedError(f"{kernel}: argument {name!r} is a {type(a).__name__} on {a.device}; it runs on plain tensors of {where}")
