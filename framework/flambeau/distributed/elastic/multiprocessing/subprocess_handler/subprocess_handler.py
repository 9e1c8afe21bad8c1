"""One worker that is a program of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Any

__all__ = ["SubprocessHandler"]


class SubprocessHandler:
    """Starts a program, in a session of its own, so that what it starts is ended with it.

    Attributes: proc (the ``subprocess.Popen``), local_rank_id.

    Args:
        entrypoint: the program.
        args: its arguments.
        env: put over the environment of this process.
        stdout, stderr: paths of files for what it prints; None or "" lets it print where this process does.
        local_rank_id: its local rank.
    """

    def __init__(
        self, entrypoint: str, args: tuple[Any, ...], env: dict[str, str], stdout: str | None, stderr: str | None, local_rank_id: int
    ) -> None:
        with contextlib.ExitStack() as files:
            out, err = (files.enter_context(open(path, "wb")) if path else None for path in (stdout, stderr))
            self.proc = subprocess.Popen(
                [entrypoint, *map(str, args)], env={**os.environ, **env}, stdout=out, stderr=err, start_new_session=True
            )
        self.local_rank_id = local_rank_id

    def close(self, death_sig: signal.Signals | None = None) -> None:
        """Send `death_sig`, SIGTERM if None, to the program and to what it started."""
        # The number of a program that has ended may belong to another one by now.
        if self.proc.poll() is None:
            os.killpg(self.proc.pid, signal.SIGTERM if death_sig is None else death_sig)
