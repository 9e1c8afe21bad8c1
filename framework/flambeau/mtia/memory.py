"""Memory of mtia devices, of which there are none."""

from __future__ import annotations

from typing import Any

__all__ = ["max_memory_allocated", "memory_allocated", "memory_stats", "reset_peak_memory_stats"]


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Nothing: an empty dict."""
    return {}


def max_memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


def memory_allocated(device: Any = None) -> int:
    """0 bytes."""
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: there is no memory of such a device."""
