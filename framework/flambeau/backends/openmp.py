"""Not here: OpenMP; kernels have a thread pool of their own."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
