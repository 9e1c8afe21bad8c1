"""A lock between processes: a file that one of them has made."""

from __future__ import annotations

import os
import time
import warnings

__all__ = ["FileBaton"]


class FileBaton:
    """A file that says that somebody is at work.

    Args:
        lock_file_path: the file.
        wait_seconds: seconds between looks at it.
        warn_after_seconds: warn, once, after this many seconds of waiting; never by default.
    """

    def __init__(self, lock_file_path: str, wait_seconds: float = 0.1, warn_after_seconds: float | None = None) -> None:
        self.lock_file_path = lock_file_path
        self.wait_seconds = wait_seconds
        self.fd: int | None = None
        self.warn_after_seconds = warn_after_seconds

    def try_acquire(self) -> bool:
        """Make the file. Returns: whether there was none."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Wait until there is no such file. Warns: UserWarning after `warn_after_seconds`."""
        started, warned = time.monotonic(), False
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            waited = time.monotonic() - started
            if self.warn_after_seconds is not None and not warned and waited > self.warn_after_seconds:
                warnings.warn(
                    f'Waited on lock file "{self.lock_file_path}" for {self.warn_after_seconds} seconds.', stacklevel=2
                )
                warned = True

    def release(self) -> None:
        """Remove the file. Raises: OSError unless this baton has made it."""
        if self.fd is not None:
            os.close(self.fd)
        os.remove(self.lock_file_path)
