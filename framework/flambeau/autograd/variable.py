"""`Variable`, the name tensors with history had before 0.4."""

from __future__ import annotations

from typing import Any

from .._warn import warn
from ..tensor import Tensor

__all__ = ["Variable"]


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        if volatile:
            warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")
        made = data.detach()
        return made.requires_grad_(True) if requires_grad else made


class Variable(metaclass=_VariableMeta):
    """``Variable(data, requires_grad=False)`` is a Tensor over the memory of `data`; every Tensor is a Variable.

    `volatile` is deprecated and without effect: use `no_grad`.
    """
