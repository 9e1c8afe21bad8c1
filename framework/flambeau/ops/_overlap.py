"""Which operands an ``out=`` may share memory with, as PyTorch has it.

Memory is compared as PyTorch compares it: arrays without gaps by the bytes they span; an array with gaps between its
elements is taken to be apart from every other. Results do not depend on it, for they are made before `out` is written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._arrays import MetaArray, address, contiguous_strides, is_dense
from ..tensor import Tensor

EXACTLY, NEVER = "exactly", "never"

# Op -> what may be said of its first operand and of the others; an op that is not here lets `out` be anything.
# Elementwise ops, which read each element once before they write it, let `out` be any operand exactly.
RULES: dict[str, tuple[str | None, str | None]] = {
    **dict.fromkeys(
        ("cat", "column_stack", "cross", "dstack", "hstack", "index_select", "kron", "kthvalue", "linalg.cross",
         "masked_select", "mode", "nonzero", "outer", "split_with_sizes_copy", "stack", "take", "take_along_dim", "unbind_copy", "vstack"),
        (NEVER, NEVER),
    ),
    "gather": (NEVER, EXACTLY),
    **dict.fromkeys(
        ("index_add", "index_copy", "index_reduce", "scatter", "scatter_add", "scatter_reduce"), (EXACTLY, NEVER),
    ),
    **dict.fromkeys(
        ("addr", "aminmax", "bernoulli", "clamp", "clamp_max", "clamp_min", "conj_physical", "cumprod", "cumsum", "diff", "div",
         "frexp", "heaviside", "ldexp", "lerp", "logaddexp", "logcumsumexp", "logit", "max", "min", "msort", "nan_to_num",
         "nn.functional.gelu", "nn.functional.normalize", "renorm", "round", "sort", "topk", "triangular_solve", "where"),
        (EXACTLY, EXACTLY),
    ),
    **dict.fromkeys(("addbmm", "addmm", "addmv", "baddbmm"), (EXACTLY, None)),
}  # fmt: skip


def refuse_shared(op: Any, out: Tensor, shape: tuple[int, ...], args: Any) -> None:
    """Raise RuntimeError if `out`, once it has `shape`, shares memory with an operand of `op` that may not share it."""
    rules = RULES.get(op.qualified)
    if rules is None:
        return
    for i, a in enumerate(args):
        rule = rules[min(i, 1)]
        if rule is not None:
            for x in a if isinstance(a, (list, tuple)) else (a,):
                if isinstance(x, Tensor):
                    refuse(op, op.params[i], x, out, shape, rule)


def refuse_partly_shared(op: Any, out: Tensor, args: Any) -> None:
    """Raise RuntimeError if `out`, as it is, overlaps an operand of `op` without being it."""
    for i, a in enumerate(args):
        if isinstance(a, Tensor):
            refuse(op, op.params[i], a, out, out._a.shape, EXACTLY)


def refuse(op: Any, name: str, operand: Tensor, out: Tensor, shape: tuple[int, ...], rule: str) -> None:
    """Raise RuntimeError where the memory of `operand` and of `out`, resized to `shape`, meets against `rule`."""
    a, b = operand._a, out._a
    if type(a) is MetaArray or type(b) is MetaArray or not a.size and operand is not out:
        return
    if b.shape == shape:
        if not np.may_share_memory(a, b) or not (is_dense(a) and is_dense(b)):
            return
        strides = b.strides
    else:
        low, high = address(b), address(b) + math.prod(shape) * b.itemsize
        related = operand._v is out._v or np.may_share_memory(a, b)
        if not related or not is_dense(a) or operand is not out and (address(a) >= high or address(a) + a.nbytes <= low):
            return
        strides = contiguous_strides(shape, b.itemsize)
    alike = a.shape == shape and all(s == t for s, t, n in zip(a.strides, strides, shape, strict=True) if n != 1)
    if rule == EXACTLY and alike and a.dtype == b.dtype and address(a) == address(b):
        return
    raise RuntimeError(
        f"{op.said}(): '{name}': unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
        f"memory location. Please clone() the tensor before performing the operation. {name} has shape {list(a.shape)}, out "
        f"{list(out.shape)}"
    )
