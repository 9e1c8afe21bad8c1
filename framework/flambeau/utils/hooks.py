"""Handles of hooks, and what keeps a hook out of pickles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.tape import RemovableHandle, warn_if_has_hooks
from ..nn.modules._hooks import BackwardGates as BackwardHook

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Mark `f` as a hook that need not be warned of when its tensor is saved without it. Returns: `f`."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f
