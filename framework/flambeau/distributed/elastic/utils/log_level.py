"""How much agents write to the log."""

from __future__ import annotations

__all__ = ["get_log_level"]


def get_log_level() -> str:
    """``'WARNING'``, where the variable LOGLEVEL says nothing else to `get_logger`."""
    return "WARNING"
