"""Not here: KleidiAI, a library for Arm processors."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
