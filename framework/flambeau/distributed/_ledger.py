"""The last calls of this process: which collective, of what, from which line, and how it ended."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Entry", "call_site", "ledger", "listeners", "note"]

LENGTH = 1000
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Entry:
    """One call: `group`, `seq`, `op`, `what` (dtypes, shapes, roots), `site` (file and line), `state`, `seconds`."""

    __slots__ = ("began", "group", "op", "seconds", "seq", "site", "state", "what")

    def __init__(self, group: str, seq: int, op: str, what: str, site: str) -> None:
        self.group, self.seq, self.op, self.what, self.site = group, seq, op, what, site
        self.state = "started"
        self.began = time.monotonic()
        self.seconds: float | None = None

    def end(self, state: str) -> None:
        self.state = state
        self.seconds = time.monotonic() - self.began

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("group", "seq", "op", "what", "site", "state", "seconds")}


_entries: deque[Entry] = deque(maxlen=LENGTH)
listeners: list[Callable[[Entry], None]] = []         # told of each call when it begins


def note(group: str, seq: int, op: str, what: str, site: str) -> Entry:
    entry = Entry(group, seq, op, what, site)
    _entries.append(entry)
    for listener in listeners:
        listener(entry)
    return entry


def ledger(last: int = LENGTH) -> list[dict[str, Any]]:
    """The last calls of collectives and point-to-point operations in this process, oldest first.

    Each is a dict: `group`, `seq` (its number in that group), `op`, `what` (dtypes, shapes, ranks), `site` (the line of the
    program), `state` ("started", "completed" or "failed") and `seconds`.

    Args:
        last: how many; 1000 are kept.
    """
    entries = list(_entries)
    return [entry.as_dict() for entry in itertools.islice(entries, max(0, len(entries) - last), None)]


def call_site() -> str:
    """File and line of the program that called into this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
