"""`Variable`, the name tensors with history had before 0.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._warn import warn
from ..tensor import Tensor
from .engine import queue_callback

__all__ = ["Variable"]


class _Engine:
    """What runs backward, for those who want to be called when it ends."""

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Call ``callback()`` when the backward that runs on this thread has ended. Raises: RuntimeError outside of backward."""
        queue_callback(callback)


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

    _execution_engine = _Engine()
