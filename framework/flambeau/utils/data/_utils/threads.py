"""Workers that are threads of this process: nothing is copied or sent, and the dataset is the one that all see.

They help where fetching waits (for files, for the network) or computes outside of Python's lock, as numpy and our kernels do.
"""

from __future__ import annotations

import gc
import queue
import sys
import threading
import time
import traceback
from typing import Any

from flambeau.utils.data._utils.worker import (
    NO_ANSWER,
    LocalFailure,
    Request,
    Responder,
    WorkerInfo,
    WorkerSettings,
    here,
)

__all__ = ["ThreadPool"]

# How long, in seconds, threads may take to end what they are at.
_PATIENCE = 5.0


class ThreadPool:
    """The worker threads of one iterator; see `WorkerPool`, whose methods it has."""

    def __init__(self, loader: Any, base_seed: int) -> None:
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._inboxes: list[_Inbox] = []
        self._threads: list[threading.Thread] = []
        for worker in range(loader.num_workers):
            inbox = _Inbox()
            settings = WorkerSettings(
                worker, loader.num_workers, base_seed, loader.dataset, loader._fetcher_maker(), loader.worker_init_fn,
                loader.prefetch_factor * loader.num_workers,
            )
            thread = threading.Thread(
                target=_work, args=(settings, inbox, self._answers), name=f"flambeau-dataloader-{worker}", daemon=True,
            )
            self._inboxes.append(inbox)
            self._threads.append(thread)
            thread.start()

    def send(self, worker: int, request: Request) -> None:
        """Give `worker` something to do."""
        self._inboxes[worker].put(request)

    def receive(self, timeout: float, workers: set[int]) -> Any:
        """The next message: ``(head, load)``, where ``load()`` is the answer.

        Raises: RuntimeError after `timeout` seconds (0 waits for ever), with the stacks of `workers`.
        """
        try:
            head, answer = self._answers.get(timeout=timeout or None)
        except queue.Empty:
            raise RuntimeError(
                f"DataLoader timed out: no batch came from its worker threads in {timeout} seconds; raise timeout, or look for what "
                f"blocks the dataset{self._where_they_hang(workers)}"
            ) from None
        return head, lambda: answer

    def _where_they_hang(self, workers: set[int]) -> str:
        frames, text = _current_frames(), ""
        for worker in sorted(workers):
            frame = frames.get(self._threads[worker].ident or 0)
            if frame is not None:
                text += f"\nDataLoader worker {worker} was here:\n{''.join(traceback.format_stack(frame))}"
        return text

    def drop(self) -> None:
        """Tell all threads to stop. Does not wait, so that the collector may call it wherever the program is."""
        for inbox in self._inboxes:
            inbox.stop()

    def close(self, patience: float = _PATIENCE) -> None:
        """`drop`, and wait `patience` seconds at most; a thread that hangs ends when what it waits for does."""
        self.drop()
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _current_frames() -> dict[int, Any]:
    """By the id of each thread, where it is."""
    # Python holds the lock of its list of threads meanwhile: no finalizer may run that starts or ends one.
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


class _Inbox:
    """The requests of a worker, without those of passes that were abandoned."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._newest_epoch, self._stopped = 0, False

    def put(self, request: Request) -> None:
        self._newest_epoch = request.epoch
        self._requests.put(request)

    def stop(self) -> None:
        self._stopped = True
        self._requests.put(None)

    def get(self) -> Request | None:
        """The next request; None after the last one."""
        while (request := self._requests.get()) is not None and not self._stopped:
            if request.epoch == self._newest_epoch:
                return request
        return None


def _cannot_share(dataset: Any) -> LocalFailure | None:
    from flambeau.utils.data.datapipes.datapipe import IterDataPipe

    if isinstance(dataset, IterDataPipe):
        error = NotImplementedError("pipes are read by one iterator at a time: threads cannot share one; use worker_type='process'")
        return LocalFailure(error, "DataLoader")
    return None


def _work(settings: WorkerSettings, inbox: _Inbox, answers: queue.SimpleQueue[Any]) -> None:
    here.info = WorkerInfo(settings.id, settings.num_workers, settings.base_seed + settings.id, settings.dataset)
    failure = _cannot_share(settings.dataset)
    if failure is None and settings.init_fn is not None:
        try:
            settings.init_fn(settings.id)
        except Exception as error:
            failure = LocalFailure(error, f"worker_init_fn of DataLoader worker {settings.id}")
    responder = Responder(settings, failure, LocalFailure, tracks_random=False)
    while (request := inbox.get()) is not None:
        answer = responder.respond(request)
        if answer is not NO_ANSWER:
            answers.put(((request.epoch, request.place), answer))
