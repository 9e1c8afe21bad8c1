"""Workers that are programs of their own."""

from __future__ import annotations

from .handlers import get_subprocess_handler
from .subprocess_handler import SubprocessHandler

__all__ = ["SubprocessHandler", "get_subprocess_handler"]
