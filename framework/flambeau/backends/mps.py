"""Not here: Apple's Metal."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Raises: RuntimeError: there is no Metal to ask."""
    raise RuntimeError("backends.mps.is_macos_or_newer: there is no mps device here")


def is_built() -> bool:
    """False."""
    return False
