"""How operations with sparse operands are answered: by the kernel that the operation has for them, or by a rule for all like it."""

from __future__ import annotations

from typing import Any

from ... import _state
from ..._kinds import no_kernel
from ...tensor import Tensor, bump
from .._spec.writing import check_recorded, check_writable
from . import rules
from .arrays import SparseArray, is_sparse, titled
from .layouts import NAMES

__all__ = ["answer", "store"]


def answer(op: Any, args: tuple[Any, ...], target: Any = None, inplace: bool = False) -> Any:
    """See `KindArray.answer`."""
    if inplace:
        check_writable(op, target)
        stores = op.by_kind.get("sparse_")
        if stores is not None:
            return stores(*args)
    kernel = op.by_kind.get("sparse") or rules.kernel_for(op)
    if kernel is None and inplace and op.kind == "composite":
        kernel = op.run                               # of what its parts give
    if kernel is None:
        raise no_kernel(refusal(op, args))
    result = kernel(*args)
    if isinstance(result, Tensor):
        titled(result, op.node_class.title)
    if target is None:
        return result
    if inplace and op.kind == "elementwise" and target.shape != result.shape:
        raise RuntimeError(
            f"{op.public_name}_: output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
        )
    if not inplace:
        check_recorded(target)
    return store(op.public_name, target, result)


def refusal(op: Any, args: tuple[Any, ...]) -> str:
    """What is said where `op` has no kernel for its operands."""
    found = {NAMES[x._array.layout]: x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,)) if is_sparse(x)}
    shown = ", ".join(f"{x._array.layout} {tuple(x.shape)}" for x in found.values())
    return f"{op.public_name}: not built for sparse tensors (got {shown}); use to_dense() first, or compute with values()"


def store(name: str, target: Tensor, result: Tensor) -> Tensor:
    """Let `target` be what `result` is, in its own dtype. Raises: RuntimeError if one is sparse and the other is not."""
    to, made = target._array, result._array
    if isinstance(to, SparseArray) and isinstance(made, SparseArray):
        if to.layout is not made.layout:
            from .layouts import like

            result = like(result, target)
        if result.dtype is not target.dtype:
            result = result.to(target.dtype)
        target._array = result._array
        bump(target)
        if _state.grad_enabled():
            target._node = result._node
        return target
    if isinstance(to, SparseArray) or isinstance(made, SparseArray):
        kinds = " and ".join(str(x.layout) for x in (target, result))
        raise RuntimeError(f"{name}_: a result cannot be stored in a tensor of another layout: {kinds}; use the out-of-place form")
    return target.copy_(result)  # pyright: ignore[reportAttributeAccessIssue]  # made on first use
