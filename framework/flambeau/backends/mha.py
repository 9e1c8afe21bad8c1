"""The fast path of attention layers: PyTorch's switch. Here there is one path, so it changes nothing."""

from __future__ import annotations

_enabled = True


def get_fastpath_enabled() -> bool:
    """What `set_fastpath_enabled` was told; True at first."""
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Allow or forbid a fast path; results and speed are the same."""
    global _enabled
    _enabled = bool(value)
