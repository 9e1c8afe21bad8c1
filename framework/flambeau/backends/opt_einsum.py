"""Not here: opt_einsum; einsum orders its products itself."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def get_opt_einsum() -> None:
    """None: the library is not used."""


enabled = False
strategy: str | None = None
