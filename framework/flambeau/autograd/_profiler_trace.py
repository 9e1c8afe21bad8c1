"""A profile as a trace in Chrome's format, which chrome://tracing, Perfetto and TensorBoard show."""

from __future__ import annotations

import gzip
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

from ._recorder import BACKWARD, USER, Call, Recorder, name_of


def write(profile: Any, path: str, metadata: dict[str, Any]) -> None:
    """Write what `profile` recorded to the file `path`, gzipped if it ends in ``.gz``; `metadata` goes to the top level."""
    made = trace(profile, path, metadata)
    with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
        json.dump(made, file)


def trace(profile: Any, path: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """The trace: calls, arrows from forward to backward, memory, and names of processes and threads. Times are microseconds."""
    recorder = profile._recorder
    # Readings of the clock count from an arbitrary moment; what is added makes them times of day.
    offset = time.time_ns() - time.perf_counter_ns()
    flags = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
    return {
        "schemaVersion": 1,
        "deviceProperties": [],
        **{flag: 1 for flag in flags if getattr(profile, flag)},
        "trace_id": profile.trace_id,
        "host_name": platform.node(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        **metadata,
        "traceEvents": [] if recorder is None else list(_entries(recorder, offset)),
        "traceName": os.fspath(path),
    }


def _entries(recorder: Recorder, offset: int) -> Iterator[dict[str, Any]]:
    pid, tid = recorder.pid, recorder.thread

    def at(moment: int) -> float:
        return (moment + offset) / 1000

    began = at(recorder.began)
    program = os.path.basename(sys.executable or "python")
    yield from (
        {"ph": "M", "name": "process_name", "ts": began, "pid": pid, "tid": 0, "args": {"name": program}},
        {"ph": "M", "name": "process_labels", "ts": began, "pid": pid, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "process_sort_index", "ts": began, "pid": pid, "tid": 0, "args": {"sort_index": pid}},
        {"ph": "M", "name": "thread_name", "ts": began, "pid": pid, "tid": tid, "args": {"name": f"thread {tid} (python)"}},
        {"ph": "M", "name": "thread_sort_index", "ts": began, "pid": pid, "tid": tid, "args": {"sort_index": tid}},
    )
    calls = sorted(recorder.calls, key=lambda call: (call.began, -call.ended))
    for number, call in enumerate(calls):
        yield {
            "ph": "X", "cat": _category(call), "name": name_of(call), "pid": pid, "tid": tid, "ts": at(call.began),
            "dur": (call.ended - call.began) / 1000, "args": _arguments(number, call),
        }  # fmt: skip
    yield from _arrows(recorder, pid, tid, at)
    total = 0
    for block in sorted(recorder.blocks, key=lambda b: b.at):
        total += block.size
        yield {
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": tid, "ts": at(block.at),
            "args": {"Total Allocated": total, "Bytes": block.size, "Addr": block.key, "Device Id": -1, "Device Type": 0},
        }  # fmt: skip
    yield {
        "ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": began,
        "dur": (max(recorder.ended, recorder.began) - recorder.began) / 1000, "args": {"Op count": len(calls)},
    }  # fmt: skip


def _category(call: Call) -> str:
    if call.scope != USER:
        return "cpu_op"
    return "python_function" if str(call.what).startswith("nn.Module: ") else "user_annotation"


def _arguments(number: int, call: Call) -> dict[str, Any]:
    made: dict[str, Any] = {"External id": number + 1, "Ev Idx": number}
    if call.sequence >= 0:
        made |= {"Sequence number": call.sequence, "Fwd thread id": int(call.scope == BACKWARD)}
    details = call.details
    if details is not None and details.given:
        heads = "Input Dims", "Input Strides", "Input type", "Concrete Inputs"
        made |= zip(heads, zip(*details.descriptions(), strict=True), strict=True)
    if details is not None and details.stack:
        made["Call stack"] = ";".join(reversed(details.stack))
    if details is not None and details.modules:
        made["Module Hierarchy"] = ".".join(details.modules)
    return made


def _arrows(recorder: Recorder, pid: int, tid: int, at: Any) -> Iterator[dict[str, Any]]:
    """An arrow from each op to the backward of it. Calls that end first are the innermost, so the first of a number made the node."""
    forward: dict[int, Call] = {}
    for call in recorder.calls:
        if call.sequence >= 0 and call.scope != BACKWARD and not isinstance(call.what, str):
            forward.setdefault(call.sequence, call)
    common = {"pid": pid, "tid": tid, "cat": "fwdbwd", "name": "fwdbwd"}
    for call in recorder.calls:
        if call.scope == BACKWARD and call.sequence in forward:
            yield {"ph": "s", "id": call.sequence, "ts": at(forward[call.sequence].began), **common}
            yield {"ph": "f", "id": call.sequence, "ts": at(call.began), "bp": "e", **common}
