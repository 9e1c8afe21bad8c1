"""Which operands may share memory with what is written, as PyTorch has it: an ``out``, or the target of an in-place form.

Memory is compared as PyTorch compares it: arrays without gaps by the bytes they span; an array with gaps between its
elements is taken to be apart from every other. Where they may overlap, operands are read before anything is written.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from ..._arrays import MetaArray, address, contiguous_strides, is_dense
from ...tensor import Tensor


def refuse_shared(op: Any, out: Tensor, shape: tuple[int, ...], args: Any) -> None:
    """Raise RuntimeError if `out`, once it has `shape`, shares memory with an operand of `op` that may not share it."""
    rules = op.overlap
    for name, a in zip(op.params, args, strict=False):
        rule = rules.get(name)
        if rule is not None:
            several = isinstance(a, (list, tuple))
            for x in a if several else (a,):
                # What holds nothing is passed over by `cat`, if its result holds nothing either.
                if isinstance(x, Tensor) and not (several and not x._array.size and out._array.shape == shape):
                    refuse(op, name, x, out, shape, rule)


def refuse_partly_shared(op: Any, out: Tensor, args: Any) -> None:
    """Raise RuntimeError if `out`, as it is, overlaps an operand of `op` without being it."""
    for i, a in enumerate(args):
        if isinstance(a, Tensor):
            refuse(op, op.params[i], a, out, out._array.shape, "exactly")


def refuse(op: Any, name: str, operand: Tensor, out: Tensor, shape: tuple[int, ...], rule: str) -> None:
    """Raise RuntimeError where the memory of `operand` and of `out`, resized to `shape`, meets against `rule`."""
    a, b = operand._array, out._array
    if type(a) is not type(b) or type(a) is MetaArray or not a.size and operand is not out:
        return                                        # of two devices, without memory, or without elements
    if b.shape == shape:
        if not a.size and rule == "never":
            raise_shared(op, name, operand, out)       # the very same tensor, whatever it holds
        if not np.may_share_memory(a, b) or operand is not out and not (is_dense(a) and is_dense(b)):
            return
        strides = b.strides
    else:
        low, high = address(b), address(b) + math.prod(shape) * b.itemsize
        related = operand._storage is out._storage or np.may_share_memory(a, b)
        if not related or not is_dense(a) or operand is not out and (address(a) >= high or address(a) + a.nbytes <= low):
            return
        strides = contiguous_strides(shape, b.itemsize)
    alike = a.shape == shape and all(s == t for s, t, n in zip(a.strides, strides, shape, strict=True) if n != 1)
    if rule == "exactly" and alike and a.dtype == b.dtype and address(a) == address(b):
        return
    raise_shared(op, name, operand, out)


def raise_shared(op: Any, name: str, operand: Tensor, out: Tensor) -> NoReturn:
    raise RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please "
        f"clone() the tensor before performing the operation.\n{op.public_name}(): '{name}' has shape {list(operand.shape)}, what is "
        f"written {list(out.shape)}"
    )
