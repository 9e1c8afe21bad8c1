"""Timers of the processes that one program started, over a queue of `multiprocessing`."""

from __future__ import annotations

import logging
import os
import queue
import signal
import time
from typing import Any

from .api import RequestQueue, TimerClient, TimerRequest, TimerServer

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]

_log = logging.getLogger(__name__)


class LocalTimerClient(TimerClient):
    """Sets the timers of this process.

    Args:
        mp_queue: the queue of the `LocalTimerServer`.
    """

    def __init__(self, mp_queue: Any) -> None:
        super().__init__()
        self._queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """End this process at `expiration_time`, in seconds since 1970, unless `scope_id` is released by then."""
        self._queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        """Forget the timer of `scope_id`."""
        self._queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """Requests out of a queue of `multiprocessing`.

    Args:
        mp_queue: the queue.
    """

    def __init__(self, mp_queue: Any) -> None:
        super().__init__()
        self._queue = mp_queue

    def size(self) -> int:
        """How many requests there are now."""
        return self._queue.qsize()

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests; waits `timeout` seconds at most for them."""
        requests: list[TimerRequest] = []
        end = time.monotonic() + timeout
        while len(requests) < size:
            try:
                requests.append(self._queue.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                break
        return requests


class LocalTimerServer(TimerServer):
    """Ends processes of this machine, by SIGKILL, whose timers have run out.

    Args:
        mp_queue: a queue of `multiprocessing`, which the processes have too.
        max_interval: seconds between two looks at the timers, at most.
        daemon: whether its thread ends with the program.
    """

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers: dict[tuple[Any, str], TimerRequest] = {}

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Set and forget timers, in the order of `timer_requests`."""
        for request in timer_requests:
            key = request.worker_id, request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_ids: set[int]) -> None:
        """Forget all timers of the processes `worker_ids`."""
        for key in [key for key in self._timers if key[0] in worker_ids]:
            del self._timers[key]

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """The timers of `deadline`, in seconds since 1970, or earlier, by process."""
        expired: dict[Any, list[TimerRequest]] = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                expired.setdefault(request.worker_id, []).append(request)
        return expired

    def _reap_worker(self, worker_id: int) -> bool:
        try:
            os.kill(worker_id, signal.SIGKILL)
        except ProcessLookupError:
            _log.info("timer: process %s has ended already", worker_id)
        return True
