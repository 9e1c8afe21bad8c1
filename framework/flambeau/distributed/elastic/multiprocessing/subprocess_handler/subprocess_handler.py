"""One worker that is a program of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["SubprocessHandler"]


_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def _ends_with_this_process() -> Callable[[], None] | None:
    """What a new process runs first, so that the system ends it when this one is killed. Linux alone has that."""
    if sys.platform != "linux":
        return None
    import ctypes

    # Found before the fork: the new process must do nothing that takes a lock.
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def run() -> None:
        prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(1)

    return run


class SubprocessHandler:
    """Starts a program, in a session of its own, so that what it starts is ended with it. It ends too when this process is killed.

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
                [entrypoint, *map(str, args)],
                env={**os.environ, **env},
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_ends_with_this_process(),  # it makes one system call and takes no lock
            )
        self.local_rank_id = local_rank_id

    def close(self, death_sig: signal.Signals | None = None) -> None:
        """Send `death_sig`, SIGTERM if None, to the program and to what it started."""
        # The number of a program that has ended may belong to another one by now.
        if self.proc.poll() is None:
            os.killpg(self.proc.pid, signal.SIGTERM if death_sig is None else death_sig)
