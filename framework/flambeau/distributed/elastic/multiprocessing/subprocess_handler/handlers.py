"""Which kind of handler starts a program."""

from __future__ import annotations

from typing import Any

from .subprocess_handler import SubprocessHandler

__all__ = ["get_subprocess_handler"]


def get_subprocess_handler(
    entrypoint: str, args: tuple[Any, ...], env: dict[str, str], stdout: str, stderr: str, local_rank_id: int
) -> SubprocessHandler:
    """Start a program.

    Args:
        entrypoint, args, env, stdout, stderr, local_rank_id: as for `SubprocessHandler`.
    """
    return SubprocessHandler(entrypoint, args, env, stdout, stderr, local_rank_id)
