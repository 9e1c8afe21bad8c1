"""Timers of the processes of a machine, over a named pipe: a process needs to know its path only."""

from __future__ import annotations

import json
import logging
import os
import select
import signal as signals
import threading
import time
from collections.abc import Callable

from .api import TimerClient, TimerRequest
from .debug_info_logging import log_debug_info_for_expired_timers

__all__ = ["FileTimerClient", "FileTimerRequest", "FileTimerServer"]

_log = logging.getLogger(__name__)
# POSIX promises that writes to a pipe of at most so many bytes are not mixed with those of others.
_ATOMIC = select.PIPE_BUF


class FileTimerRequest(TimerRequest):
    """A request that goes through the pipe as one line of JSON.

    Args:
        worker_pid: the process.
        scope_id: what it is doing.
        expiration_time: when to end it, in seconds since 1970; a negative number forgets the timer.
        signal: what ends it; 0 only forgets.
    """

    __slots__ = ["signal", "version"]

    def __init__(self, worker_pid: int, scope_id: str, expiration_time: float, signal: int = 0) -> None:
        super().__init__(worker_pid, scope_id, expiration_time)
        self.version, self.signal = 1, int(signal)

    @property
    def worker_pid(self) -> int:
        """The process."""
        return self.worker_id

    def _key(self) -> tuple[int, str, float, int]:
        return self.worker_pid, self.scope_id, self.expiration_time, self.signal

    def to_json(self) -> str:
        """The request as JSON."""
        return json.dumps(
            {
                "version": self.version, "pid": self.worker_pid, "scope_id": self.scope_id,
                "expiration_time": self.expiration_time, "signal": self.signal,
            }
        )

    @staticmethod
    def _of_json(line: bytes) -> FileTimerRequest:
        found = json.loads(line)
        return FileTimerRequest(int(found["pid"]), str(found["scope_id"]), float(found["expiration_time"]), int(found["signal"]))


class FileTimerClient(TimerClient):
    """Sets the timers of this process.

    Args:
        file_path: the pipe of a `FileTimerServer`.
        signal: what ends this process when a timer runs out.
    """

    def __init__(self, file_path: str, signal: signals.Signals = signals.SIGKILL) -> None:
        super().__init__()
        self._file_path, self.signal = file_path, signal

    def _send_request(self, request: FileTimerRequest) -> None:
        data = request.to_json().encode() + b"\n"
        if len(data) > _ATOMIC:
            raise ValueError(
                f"FileTimerClient: a scope of {len(request.scope_id)} letters is too long; a request has {_ATOMIC} bytes at most"
            )
        try:
            # Without a reader this fails, where a blocking open would wait for one.
            pipe = os.open(self._file_path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            raise BrokenPipeError(
                f"Could not send the FileTimerRequest because FileTimerServer is not available: {self._file_path}: {error}"
            ) from error
        try:
            os.write(pipe, data)
        finally:
            os.close(pipe)

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """End this process at `expiration_time`, in seconds since 1970, unless `scope_id` is released by then.

        Raises: BrokenPipeError if no server reads the pipe.
        """
        self._send_request(FileTimerRequest(os.getpid(), scope_id, expiration_time, self.signal))

    def release(self, scope_id: str) -> None:
        """Forget the timer of `scope_id`.

        Raises: BrokenPipeError if no server reads the pipe.
        """
        self._send_request(FileTimerRequest(os.getpid(), scope_id, -1, 0))


class FileTimerServer:
    """Ends processes of this machine whose timers have run out.

    Args:
        file_path: where to make the pipe, for this user only; what is there is removed.
        run_id: the job, for messages.
        max_interval: seconds between two looks at the timers, at most.
        daemon: whether its thread ends with the program.
        log_event: called with the name of an event and its request, or None.
    """

    def __init__(
        self,
        file_path: str,
        run_id: str,
        max_interval: float = 10,
        daemon: bool = True,
        log_event: Callable[[str, FileTimerRequest | None], None] | None = None,
    ) -> None:
        self._file_path, self._run_id, self._max_interval, self._daemon = file_path, run_id, max_interval, daemon
        self._log_event = log_event or (lambda name, request: None)
        self._timers: dict[tuple[int, str], FileTimerRequest] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._pipe: int | None = None
        self._rest = b""
        self._last_progress = int(time.time())

    def _open(self) -> int:
        if self._pipe is None:
            if os.path.lexists(self._file_path):
                os.remove(self._file_path)
            os.mkfifo(self._file_path, 0o600)
            # Open for writing too: a pipe whose last writer has left would always be at its end.
            self._pipe = os.open(self._file_path, os.O_RDWR | os.O_NONBLOCK)
        return self._pipe

    def start(self) -> None:
        """Make the pipe and begin to watch."""
        self._open()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._watchdog_loop, daemon=self._daemon, name="flambeau-timers")
        self._thread.start()
        self._log_event("watchdog started", None)

    def stop(self) -> None:
        """Watch no longer, and remove the pipe."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if os.path.lexists(self._file_path):
            os.remove(self._file_path)
        self._log_event("watchdog stopped", None)

    def run_once(self) -> None:
        """Take the requests that are there, end what has run out, and remove the pipe, without a thread."""
        pipe = self._open()
        try:
            self._run_watchdog(pipe, 0.0)
        finally:
            self.stop()

    def _watchdog_loop(self) -> None:
        assert self._pipe is not None
        while not self._stopping.is_set():
            try:
                # Short waits, so that `stop` is heard.
                self._run_watchdog(self._pipe, min(self._max_interval, 0.2))
            except Exception:
                _log.exception("timer: a look at the timers failed")
                self._stopping.wait(min(self._max_interval, 1.0))

    def _run_watchdog(self, pipe: int, seconds: float) -> None:
        self.register_timers(self._get_requests(pipe, seconds))
        now = time.time()
        expired = self.get_expired_timers(now)
        if expired:
            log_debug_info_for_expired_timers(
                self._run_id, {pid: [request.scope_id for request in timers] for pid, timers in expired.items()}
            )
        reaped = set()
        for pid, timers in expired.items():
            self._log_event("timer expired", timers[0])
            if self._reap_worker(pid, timers[0].signal):
                self._log_event("kill worker process", timers[0])
                reaped.add(pid)
        self.clear_timers(reaped)
        self._last_progress = int(now)

    def _get_requests(self, pipe: int, seconds: float) -> list[FileTimerRequest]:
        if not select.select([pipe], [], [], seconds)[0]:
            return []
        requests = []
        *lines, self._rest = (self._rest + os.read(pipe, 1 << 16)).split(b"\n")
        for line in lines:
            try:
                requests.append(FileTimerRequest._of_json(line))
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("timer: a line that is no request is left out: %r (%s)", line[:200], error)
        return requests

    def register_timers(self, timer_requests: list[FileTimerRequest]) -> None:
        """Set and forget timers, in the order of `timer_requests`."""
        for request in timer_requests:
            key = request.worker_pid, request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
                self._log_event("clear timer", request)
            else:
                self._timers[key] = request
                self._log_event("set timer", request)

    def clear_timers(self, worker_pids: set[int]) -> None:
        """Forget all timers of the processes `worker_pids`."""
        for key in [key for key in self._timers if key[0] in worker_pids]:
            del self._timers[key]

    def get_expired_timers(self, deadline: float) -> dict[int, list[FileTimerRequest]]:
        """The timers of `deadline`, in seconds since 1970, or earlier, by process."""
        expired: dict[int, list[FileTimerRequest]] = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                expired.setdefault(request.worker_pid, []).append(request)
        return expired

    def get_last_progress_time(self) -> int:
        """When it last looked at the timers, in seconds since 1970; now, if it has none to look at."""
        return self._last_progress if self._timers else int(time.time())

    def _reap_worker(self, worker_pid: int, signal: int) -> bool:
        try:
            os.kill(worker_pid, signal)
        except ProcessLookupError:
            _log.info("timer: process %s has ended already", worker_pid)
        except OSError:
            _log.exception("timer: process %s could not be ended", worker_pid)
            return False
        return True
