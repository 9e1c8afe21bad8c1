"""Making modules without spending time on initial values."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["skip_init"]


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """An instance of `module_cls` whose parameters and buffers are uninitialised.

    Args:
        module_cls: a Module class that takes `device` and passes it to everything it makes.
        *args, **kwargs: its arguments; `device` is where the result lives.
    Raises: TypeError if `module_cls` is no class; RuntimeError if it is no Module class or takes no `device`.
    """
    from ..modules.module import Module

    if not issubclass(module_cls, Module):
        raise RuntimeError(f"skip_init expects a Module class, got {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(f"skip_init: {module_cls.__name__} takes no device argument")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
