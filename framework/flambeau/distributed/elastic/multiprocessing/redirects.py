"""What a process prints, put into a file, with what its libraries and children print."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["redirect", "redirect_stderr", "redirect_stdout"]


@contextlib.contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """A context in which a stream of this process goes to a file.

    Args:
        std: "stdout" or "stderr".
        to_file: the file's path.
    Raises: ValueError for another stream.
    """
    if std not in ("stdout", "stderr"):
        raise ValueError(f"redirect: std must be 'stdout' or 'stderr', got {std!r}")
    stream: Any = getattr(sys, std)
    number = 1 if std == "stdout" else 2
    stream.flush()
    before = os.dup(number)
    try:
        with open(to_file, "ab") as file:
            os.dup2(file.fileno(), number)
        yield
    finally:
        stream.flush()
        os.dup2(before, number)
        os.close(before)


redirect_stdout = functools.partial(redirect, "stdout")
redirect_stderr = functools.partial(redirect, "stderr")
