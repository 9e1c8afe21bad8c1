"""Free ports of this machine."""

from __future__ import annotations

from .api import get_socket_with_port

__all__ = ["get_free_port", "get_socket_with_port"]


def get_free_port() -> int:
    """A port that was free a moment ago; another program may have taken it since."""
    with get_socket_with_port() as found:
        return found.getsockname()[1]
