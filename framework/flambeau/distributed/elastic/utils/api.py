"""Environment variables, ports, and words of a command line that stand for something else."""

from __future__ import annotations

import os
import socket
import string
from typing import Any

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]


def get_env_variable_or_raise(env_name: str) -> str:
    """The environment variable `env_name`.

    Raises: ValueError if it is not set.
    """
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value


def get_socket_with_port() -> socket.socket:
    """A socket that listens on this machine alone, at a port that was free; it holds the port until it is closed.

    Raises: RuntimeError without a free port.
    """
    found = socket.socket()
    try:
        found.bind(("localhost", 0))
        found.listen(1)
    except OSError as error:
        found.close()
        raise RuntimeError(f"get_socket_with_port: no free port: {error}") from error
    return found


class macros:  # PyTorch's name
    """Words of arguments that stand for something of each worker.

    Attributes: local_rank (its local rank).
    """

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[Any]:
        """`args` with ``${local_rank}`` replaced in those that are text.

        Args:
            args: arguments of a worker.
            local_rank: its local rank.
        """
        return [
            string.Template(argument).safe_substitute(local_rank=local_rank) if isinstance(argument, str) else argument
            for argument in args
        ]
