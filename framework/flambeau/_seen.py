"""Methods of Tensor that are no ops, as modes see them: subclasses wrap them for themselves (`_subclass.py`)."""

from __future__ import annotations

import functools
from typing import Any

from . import _state

__all__ = ["seen_by_modes"]

_local = _state.local
IN_FORCE = _state.IN_FORCE
_state.share(globals(), "IN_FORCE")                   # keeps it as it is there


def seen_by_modes(fn: Any) -> Any:
    """The method `fn`, which asks the modes of the thread first."""

    @functools.wraps(fn)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if IN_FORCE and _local.calls.modes:
            from .ops._dispatch import dispatch_torch_function, overriding_classes

            return dispatch_torch_function(method, overriding_classes((self, *args)), (self, *args), kwargs)
        return fn(self, *args, **kwargs)

    return method
