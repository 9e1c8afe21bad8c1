"""Timers that end a process which takes longer than it said it would."""

from __future__ import annotations

import abc
import contextlib
import inspect
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires"]

_log = logging.getLogger(__name__)


class TimerRequest:
    """What a process asks its timer server: to end it at some time, or to forget that.

    Args:
        worker_id: the process.
        scope_id: what it is doing; each has one timer for each of these.
        expiration_time: when to end it, in seconds since 1970; a negative number forgets the timer.
    """

    __slots__ = ["expiration_time", "scope_id", "worker_id"]

    def __init__(self, worker_id: Any, scope_id: str, expiration_time: float) -> None:
        self.worker_id, self.scope_id, self.expiration_time = worker_id, scope_id, expiration_time

    def _key(self) -> tuple[Any, ...]:
        return self.worker_id, self.scope_id, self.expiration_time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimerRequest) and type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._key()))})"


class TimerClient(abc.ABC):
    """How a process sets its timers; a program's own kind defines `acquire` and `release`."""

    @abc.abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set the timer of a scope.

        Args:
            scope_id: what the process is doing.
            expiration_time: when to end the process, in seconds since 1970.
        """

    @abc.abstractmethod
    def release(self, scope_id: str) -> None:
        """Forget the timer of a scope.

        Args:
            scope_id: what the process has done.
        """


class RequestQueue(abc.ABC):
    """Where a server finds requests."""

    @abc.abstractmethod
    def size(self) -> int:
        """How many requests there are now."""

    @abc.abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests; waits `timeout` seconds at most for them."""


class TimerServer(abc.ABC):
    """Keeps the timers of processes and ends those that have run out, in a thread of its own.

    Args:
        request_queue: where requests come from.
        max_interval: seconds between two looks at the timers, at most.
        daemon: whether the thread ends with the program.
    """

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        self._request_queue, self._max_interval, self._daemon = request_queue, max_interval, daemon
        self._watchdog_thread: threading.Thread | None = None
        self._stop_signaled = False

    @abc.abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set and forget timers.

        Args:
            timer_requests: what processes asked for, in this order.
        """

    @abc.abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forget all timers of some processes.

        Args:
            worker_ids: the processes.
        """

    @abc.abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """The timers that have run out, by process.

        Args:
            deadline: a time in seconds since 1970; those of that time or earlier have run out.
        """

    @abc.abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a process; whether it is gone."""

    def _reap_worker_no_throw(self, worker_id: Any) -> bool:
        try:
            return self._reap_worker(worker_id)
        except Exception:
            # The server serves other processes too, and looks at this one again.
            _log.exception("timer: process %s could not be ended", worker_id)
            return False

    def _run_watchdog(self) -> None:
        requests = self._request_queue.get(max(1, self._request_queue.size()), self._max_interval)
        self.register_timers(requests)
        reaped = set()
        for worker_id, expired in self.get_expired_timers(time.time()).items():
            _log.warning("timer: process %s took too long in %s; it is ended", worker_id, [r.scope_id for r in expired])
            if self._reap_worker_no_throw(worker_id):
                reaped.add(worker_id)
        self.clear_timers(reaped)

    def _watchdog_loop(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:
                _log.exception("timer: a look at the timers failed")
                time.sleep(min(self._max_interval, 1.0))

    def start(self) -> None:
        """Begin to watch."""
        self._stop_signaled = False
        self._watchdog_thread = threading.Thread(target=self._watchdog_loop, daemon=self._daemon, name="flambeau-timers")
        self._watchdog_thread.start()

    def stop(self) -> None:
        """Watch no longer; returns when the thread has ended, after `max_interval` seconds at most."""
        self._stop_signaled = True
        if self._watchdog_thread is not None:
            self._watchdog_thread.join(self._max_interval + 1.0)
            self._watchdog_thread = None


_client: TimerClient | None = None


def configure(timer_client: TimerClient) -> None:
    """Let `expires` use `timer_client` in this process."""
    global _client
    _client = timer_client


@contextlib.contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """A context that ends this process if it is not left in time.

    Args:
        after: seconds that the block may take.
        scope: what the timer is called; the caller's file and line if None.
        client: how to reach the timer server; the one of `configure` if None.
    Raises: RuntimeError if there is no client.
    """
    client = client or _client
    if client is None:
        raise RuntimeError("timer.expires: Configure timer client before using countdown timers: call timer.configure(client).")
    if scope is None:
        # Above this frame are contextlib's two.
        caller = inspect.stack(0)[2]
        scope = f"{caller.filename}#{caller.lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)
