"""What packages ask of compilation."""

from __future__ import annotations

from typing import Any

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether `compile` makes kernels for tensors on devices of this kind: it does for the CPU, and runs eagerly elsewhere."""
    return device_type == "cpu"
