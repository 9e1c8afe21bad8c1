"""Not here: Apple's Metal."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Raises: RuntimeError: there is no Metal to ask."""
    raise RuntimeError("backends.mps.is_macos_or_newer: there is no mps device here")


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Raises: RuntimeError: there is no Metal to ask."""
    raise RuntimeError("backends.mps.is_macos13_or_newer: there is no mps device here")


def get_name() -> str:
    """Raises: RuntimeError: there is no Metal to ask."""
    raise RuntimeError("backends.mps.get_name: there is no mps device here")


def get_core_count() -> int:
    """Raises: RuntimeError: there is no Metal to ask."""
    raise RuntimeError("backends.mps.get_core_count: there is no mps device here")


def is_built() -> bool:
    """False."""
    return False
