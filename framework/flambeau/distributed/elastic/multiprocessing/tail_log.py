"""Files that are still written, copied line by line to where a user looks."""

from __future__ import annotations

import os
import threading
from typing import TextIO

__all__ = ["TailLog", "tail_logfile"]


def tail_logfile(header: str, file: str, dst: TextIO, finished: threading.Event, interval_sec: float) -> None:
    """Copy the lines of a file as they come, to its end once it is finished.

    Args:
        header: put before each line.
        file: its path; it may not be there yet.
        dst: where lines go.
        finished: set when nothing more will be written.
        interval_sec: seconds between two looks at the file.
    """
    while not os.path.exists(file):
        if finished.wait(interval_sec) and not os.path.exists(file):
            return
    with open(file, encoding="utf-8", errors="replace", newline="\n") as source:
        rest = ""
        while True:
            # Asked before reading: what was written until then is read below.
            last = finished.is_set()
            for piece in source:
                rest += piece
                if rest.endswith("\n"):
                    dst.write(header + rest)
                    rest = ""
            dst.flush()
            if last:
                break
            finished.wait(interval_sec)
        if rest:
            dst.write(f"{header}{rest}\n")
            dst.flush()


class TailLog:
    """Copies the files of several workers, in a thread for each.

    Args:
        name: what the workers are called.
        log_files: a path for each local rank.
        dst: where lines go.
        log_line_prefixes: what to put before the lines of each; ``[name rank]:`` without spaces if None.
        interval_sec: seconds between two looks at a file.
    """

    def __init__(
        self,
        name: str,
        log_files: dict[int, str],
        dst: TextIO,
        log_line_prefixes: dict[int, str] | None = None,
        interval_sec: float = 0.1,
    ) -> None:
        prefixes = log_line_prefixes or {}
        self._finished = threading.Event()
        self._threads = [
            threading.Thread(
                target=tail_logfile,
                args=(prefixes.get(rank, f"[{name}{rank}]:"), file, dst, self._finished, interval_sec),
                daemon=True,
                name=f"tail-{name}{rank}",
            )
            for rank, file in log_files.items()
        ]
        self._stopped = False

    def start(self) -> TailLog:
        """Begin to copy."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Copy what has been written until now, and no more."""
        self._finished.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._stopped = True

    def stopped(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopped
