"""The region that a program is recorded in, under the name by which packages import it from PyTorch's insides."""

from __future__ import annotations

from typing import Any

__all__ = ["active_fake_mode"]


def active_fake_mode() -> Any:
    """The innermost `FakeTensorMode` in force on this thread, or None."""
    from ._subclasses.fake_tensor import FakeTensorMode
    from .ops._dispatch import _local

    return next((mode for mode in reversed(_local.calls.interpreters) if isinstance(mode, FakeTensorMode)), None)
