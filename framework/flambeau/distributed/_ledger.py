"""The last calls of this process: which collective, of what, from which line, and how it ended."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Entry", "bytes_of", "call_site", "dump_of_failure", "flight_record", "ledger", "listeners", "note"]

# PyTorch's names for its flight recorder, the later one first.
_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def _length() -> int:
    """How many calls are kept: what the environment says, else 1000."""
    for name in _SIZES:
        given = os.environ.get(name)
        if given:
            if not given.isdecimal() or int(given) == 0:
                raise ValueError(f"distributed: {name} is a number of calls, 1 or more, got {given!r}")
            return int(given)
    return 1000


LENGTH = _length()
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Entry:
    """One call: `group`, its `size`, `seq`, `op`, `what` (dtypes, shapes, roots), `bytes`, `site` (file and line), `state`, `seconds`."""

    __slots__ = ("began", "bytes", "created", "group", "number", "op", "seconds", "seq", "site", "size", "state", "thread", "what")

    _numbers = itertools.count()

    def __init__(self, group: str, size: int, seq: int, op: str, what: str, count: int, site: str) -> None:
        self.group, self.size, self.seq, self.op, self.what, self.bytes, self.site = group, size, seq, op, what, count, site
        self.state = "started"
        self.number = next(self._numbers)
        self.created = time.time_ns()
        self.thread = threading.current_thread()
        self.began = time.monotonic()
        self.seconds: float | None = None

    def end(self, state: str) -> None:
        self.state = state
        self.seconds = time.monotonic() - self.began

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SHOWN}


_SHOWN = ("group", "seq", "op", "what", "bytes", "site", "state", "seconds")
_entries: deque[Entry] = deque(maxlen=LENGTH)
listeners: list[Callable[[Entry], None]] = []         # told of each call when it begins


def note(group: str, size: int, seq: int, op: str, what: str, count: int, site: str) -> Entry:
    entry = Entry(group, size, seq, op, what, count, site)
    _entries.append(entry)
    for listener in listeners:
        listener(entry)
    return entry


def ledger(last: int = LENGTH) -> list[dict[str, Any]]:
    """The last calls of collectives and point-to-point operations in this process, oldest first.

    Each is a dict: `group`, `seq` (its number in that group), `op`, `what` (dtypes, shapes, ranks), `bytes` (what a
    rank gets in all by a gather, and what it gives by any other call), `site` (the line of the
    program), `state` ("started", "completed" or "failed") and `seconds`.

    Args:
        last: how many; as many are kept as the variable TORCH_FR_BUFFER_SIZE says, else 1000.
    """
    entries = list(_entries)
    return [entry.as_dict() for entry in itertools.islice(entries, max(0, len(entries) - last), None)]


def flight_record(collectives: bool = True, frames: bool = True, only_active: bool = False) -> dict[str, Any]:
    """The ledger in the form of PyTorch's flight recorder, version 2.10.

    Of the frames there is the program's line. Sizes and dtypes are text in `what`, a name of our own: calls know them as that.
    """
    kept = list(_entries)
    status: dict[str, dict[str, int]] = {}
    names = {name: str(at) for at, name in enumerate(dict.fromkeys(entry.group for entry in kept))}
    for entry in kept:
        of_group = status.setdefault(
            names[entry.group], dict.fromkeys(("last_enqueued_collective", "last_started_collective", "last_completed_collective"), -1)
        )
        of_group["last_enqueued_collective"] = of_group["last_started_collective"] = entry.seq
        if entry.state == "completed":
            of_group["last_completed_collective"] = entry.seq
    found: dict[str, Any] = {"version": "2.10", "pg_config": {}, "comm_lib_version": "", "pg_status": status}
    for name, number in names.items():
        found["pg_config"][number] = {"name": number, "desc": name}
    if collectives:
        shown = [entry for entry in kept if entry.seconds is None or not only_active]
        found["entries"] = [_as_recorded(entry, names[entry.group], frames) for entry in shown]
    return found


def _as_recorded(entry: Entry, number: str, frames: bool) -> dict[str, Any]:
    direct = entry.seq == 0                            # messages from rank to rank have no number in their group
    made = {
        "record_id": entry.number, "pg_id": int(number), "process_group": (number, entry.group), "thread_name": entry.thread.name,
        "thread_id": str(entry.thread.ident), "collective_seq_id": entry.seq, "p2p_seq_id": 0, "op_id": entry.number,
        "profiling_name": entry.op, "time_created_ns": entry.created, "what": entry.what,
        "state": entry.state if entry.seconds is not None else "started", "time_discovered_started_ns": entry.created,
        "time_discovered_completed_ns": None if entry.seconds is None else entry.created + int(entry.seconds * 1e9),
        "retired": entry.seconds is not None, "is_p2p": direct,
    }  # fmt: skip
    if frames:
        file, _, line = entry.site.rpartition(":")
        made["frames"] = [{"name": entry.op, "filename": file or entry.site, "line": int(line) if line.isdecimal() else 0}]
    return made


def dump_of_failure(rank: int) -> None:
    """Write the ledger, as JSON, where the variable TORCH_FR_DUMP_TEMP_FILE says, with the rank at the end of the name."""
    for name in _FILES:
        prefix = os.environ.get(name)
        if prefix:
            try:
                with open(f"{prefix}{rank}", "w") as file:
                    json.dump({"rank": rank, "entries": ledger()}, file)
            except OSError as error:  # the failure itself is what the program has to hear of
                warnings.warn(f"distributed: the last calls were not written to {name}: {error}", stacklevel=2)
            return


def bytes_of(tensors: Iterable[Any]) -> int:
    """How many bytes the elements of `tensors` have."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def call_site() -> str:
    """File and line of the program that called into this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
