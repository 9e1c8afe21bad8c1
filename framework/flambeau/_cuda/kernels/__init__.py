"""Kernels of primitive ops on CUDA arrays, which declarations name: ``cuda="moves.gather"``. `PrimitiveOp.cuda_kernel` asks for them.

Each takes the arrays and arguments that the op's kernel takes on the CPU. Those that have no kernel of their own are written
with the operations of tensors, which end in the formulas, reductions and matrix products that have one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ... import devices
from ..._arrays import is_c_contiguous, is_dense, permutation
from ...tensor import channels_last_order
from .. import arrays

__all__ = ["empty_arranged", "find"]


def find(op: Any) -> Callable[..., Any]:
    """The kernel that the declaration of `op` names. Raises: NotImplementedError naming the op if it names none."""
    if not op.cuda:
        raise NotImplementedError(f"{op.public_name}: not built for device cuda yet. Compute it on the CPU and move the result: x.cpu()")
    module, _, name = op.cuda.partition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def empty_arranged(a: Any, target: Any, format: Any) -> Any:
    """As `ops.convert.empty_arranged`, beside the device array `a`."""
    if format is None or format is devices.preserve_format:
        if a.ndim < 2 or is_c_contiguous(a):
            return a.__class__(a.shape, target)
        order = sorted(range(a.ndim), key=lambda d: -a.strides[d])
        return arrays.strided_empty(a, a.shape, target, order if is_dense(a) else permutation(a.shape, [a]))
    if format is devices.contiguous_format:
        return a.__class__(a.shape, target)
    order = channels_last_order(format, a.ndim)
    if order is None:
        raise RuntimeError(f"required rank {4 if format is devices.channels_last else 5} tensor to use {format.name} format")
    return arrays.strided_empty(a, a.shape, target, list(reversed(order)))
