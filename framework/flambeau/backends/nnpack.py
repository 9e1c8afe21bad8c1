"""Not here: NNPACK."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
