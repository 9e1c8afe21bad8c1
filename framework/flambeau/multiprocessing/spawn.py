"""Several processes that run one function, watched together: the first failure ends them all and is raised."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

import flambeau as fb

__all__ = [
    "ENV_VAR_PARALLEL_START",
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

_log = logging.getLogger(__name__)

ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"
# Seconds that processes have to end by themselves after SIGTERM, before they are killed.
_PATIENCE = 30.0
# Room for the text of an error; only what is written of it takes memory.
_REPORT_BYTES = 1 << 20


class ProcessException(Exception):
    """One of several processes failed.

    Attributes: msg, error_index (its number), error_pid (its process id).
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """The function raised; the message has the traceback of that process."""


class ProcessExitedException(ProcessException):
    """A process ended without an exception: by a signal, or with an exit code other than 0.

    Attributes: exit_code (the number of a signal is negative), signal_name (None without one).
    """

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


class _Report:
    """Where a process leaves the traceback of what it raised: shared memory, which nobody has to clean up."""

    def __init__(self) -> None:
        self._text = fb.UntypedStorage._new_shared(_REPORT_BYTES)

    def write(self, text: str) -> None:
        # What comes last says what went wrong.
        data = text.encode()[-_REPORT_BYTES + 8 :]
        self._text._bytes[8 : 8 + len(data)] = memoryview(data)
        self._text._bytes[:8] = memoryview(len(data).to_bytes(8, "little"))

    def read(self) -> str:
        """What was written; empty if nothing was."""
        length = int.from_bytes(self._text._bytes[:8].tobytes(), "little")
        return self._text._bytes[8 : 8 + length].tobytes().decode(errors="replace")


def _wrap(fn: Callable[..., Any], i: int, args: Sequence[Any], report: _Report) -> None:
    """What each process runs."""
    _end_with_parent(os.getppid())
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        # Ctrl-C reaches the whole group; the parent says what there is to say.
        pass
    except Exception:
        report.write(traceback.format_exc())
        sys.exit(1)


def _end_with_parent(parent: int) -> None:
    """Ask the system for an interrupt when the process that started this one ends, even by SIGKILL. Linux alone has that."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)
    if os.getppid() != parent:
        raise KeyboardInterrupt


class ProcessContext:
    """The processes that `start_processes` started.

    Args:
        processes: them, in the order of their numbers.
        error_files: where each leaves the text of its error.
    """

    def __init__(self, processes: list[Any], error_files: list[Any]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one or more processes have ended. When one failed, the others are ended, and its error is raised.

        Args:
            timeout: seconds to wait at most; None for as long as it takes.
            grace_period: seconds that the others are given after a failure to end by themselves.
        Returns: True if all have ended, False if any are still running.
        Raises: ProcessRaisedException with the traceback of the first that raised; ProcessExitedException for one that was killed or
            left with a code other than 0.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)  # pyright: ignore[reportArgumentType]  # what was given
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        self._end_all(grace_period)
        raise self._error(failed)

    def _end_all(self, grace_period: float | None) -> None:
        """End what still runs: by itself in `grace_period` seconds, then by SIGTERM, then by SIGKILL."""
        if grace_period is not None:
            self._wait(grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Terminating process %s via signal SIGTERM", process.pid)
                process.terminate()
        self._wait(_PATIENCE if grace_period is None else max(_PATIENCE, grace_period))
        for process in self.processes:
            if process.is_alive():
                _log.warning("Terminating process %s via signal SIGKILL, for SIGTERM did not end it", process.pid)
                process.kill()
            process.join()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def _error(self, index: int) -> ProcessException:
        process = self.processes[index]
        report = self.error_files[index].read()
        if report:
            message = f"\n\n-- Process {index} terminated with the following error:\n{report}"
            return ProcessRaisedException(message, index, process.pid)
        code = process.exitcode
        if code >= 0:
            message = f"process {index} terminated with exit code {code}"
            return ProcessExitedException(message, index, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        return ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)


class SpawnContext(ProcessContext):
    """The processes that `spawn` started, under PyTorch's older name."""


def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(i, *args)`` in `nprocs` processes, `i` counting them from 0.

    Args:
        fn: a function of a module, for it is pickled, unless start_method is 'fork'.
        join: wait for all of them; else return the `ProcessContext` at once.
        daemon: end them when this program ends.
        start_method: 'spawn', 'fork' or 'forkserver'.
    Raises: what `ProcessContext.join` raises.
    """
    context: Any = multiprocessing.get_context(start_method)
    reports = [_Report() for _ in range(nprocs)]
    processes = [
        context.Process(target=_wrap, args=(fn, i, args, report), daemon=daemon) for i, report in enumerate(reports)
    ]
    try:
        _start(processes, start_method)
    except BaseException:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
        raise
    made = ProcessContext(processes, reports)
    if not join:
        return made
    while not made.join():
        pass
    return None


def _start(processes: list[Any], start_method: str) -> None:
    if start_method == "forkserver" and os.environ.get(ENV_VAR_PARALLEL_START, "0") == "1":
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=len(processes) or 1) as threads:
            list(threads.map(lambda process: process.start(), processes))
        return
    for process in processes:
        process.start()


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` by fresh interpreters: the start method is 'spawn', whatever is asked for, with a warning."""
    if start_method != "spawn":
        warnings.warn(
            f"spawn() starts processes by 'spawn' only, got start_method={start_method!r}; use multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
