"""The worker process: seeds itself, then fetches what it is told to until the connection closes."""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb

__all__ = ["Exhausted", "Failure", "Request", "WorkerInfo", "WorkerSettings", "get_worker_info", "work"]

# How often, in seconds, an idle worker looks whether its parent is still there.
_PARENT_CHECK_INTERVAL = 5.0


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows of itself: `id` in ``range(num_workers)``, its `seed`, and its copy of the
    `dataset`.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a DataLoader worker process, the worker's `WorkerInfo`; None elsewhere."""
    return _info


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is started with."""

    id: int
    num_workers: int
    base_seed: int
    dataset: Any
    make_fetcher: Callable[[Any], Any]
    init_fn: Callable[[int], Any] | None


class Request(NamedTuple):
    """Wanted: the batch at `place` of pass `epoch`, made of `keys`."""

    epoch: int
    place: int
    keys: Any


class Failure:
    """An exception on its way to the main process: its type and its traceback as text."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.type = type(error)
        self.where = where
        self.text = "".join(traceback.format_exception(error))

    def as_runtime_error(self) -> Failure:
        """The same report as a RuntimeError."""
        self.text = f"{self.type.__name__}: {self.text}"
        self.type = RuntimeError
        return self

    def reraise(self) -> None:
        """Raise the same type of exception; RuntimeError if that type cannot be made from a message."""
        message = f"{self.type.__name__} in {self.where}. Its traceback there:\n{self.text}"
        if issubclass(self.type, KeyError):
            # str(KeyError(text)) shows the repr of text, in which the lines of the traceback run together.
            message = _Verbatim(message)
        try:
            error = self.type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


class _Verbatim(str):
    """Text whose repr is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Exhausted:
    """The answer of a worker whose stream has ended."""


def work(settings: WorkerSettings, connection: Any, to_close: list[Any]) -> None:
    """Answer each `Request` on `connection` with a batch, a `Failure` or `Exhausted`, until it closes.

    Args:
        to_close: connections inherited from the parent that belong to other workers.
    """
    for inherited in to_close:
        inherited.close()
    # Ctrl-C reaches the whole process group; the main process decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    failure = _prepare(settings)
    inbox = Inbox(connection)
    epoch, fetcher = -1, None
    try:
        for request in inbox:
            if request.epoch != epoch:
                epoch, fetcher = request.epoch, _start_pass(settings)
            source = failure or fetcher
            answer = source if isinstance(source, Failure) else _fetch(settings, source, request.keys)
            _answer(settings, connection, request, answer)
    except (BrokenPipeError, ConnectionResetError):
        # The main process has gone, or shut this worker down in the middle of an answer.
        return


def _prepare(settings: WorkerSettings) -> Failure | None:
    """Seed the generators of this process and run the user's `worker_init_fn`."""
    global _info
    seed = settings.base_seed + settings.id
    random.seed(seed)
    fb.manual_seed(seed)
    np.random.seed(np.random.SeedSequence([settings.id, settings.base_seed]).generate_state(4))
    _use_one_thread()
    _info = WorkerInfo(settings.id, settings.num_workers, seed, settings.dataset)
    if settings.init_fn is None:
        return None
    try:
        settings.init_fn(settings.id)
    except Exception as error:
        return Failure(error, f"worker_init_fn of DataLoader worker {settings.id}")
    return None


def _use_one_thread() -> None:
    """The workers are the parallelism; threads below them would only compete."""
    set_num_threads = getattr(fb, "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(1)


def _start_pass(settings: WorkerSettings) -> Any:
    """A fetcher over the dataset from its start, or the `Failure` of making one."""
    try:
        return settings.make_fetcher(settings.dataset)
    except Exception as error:
        return Failure(error, f"iter(dataset) of DataLoader worker {settings.id}")


def _fetch(settings: WorkerSettings, fetcher: Any, keys: Any) -> Any:
    from flambeau.utils.data._utils.fetch import IterableFetcher

    try:
        return fetcher.fetch(keys)
    except StopIteration as end:
        if isinstance(fetcher, IterableFetcher):
            return Exhausted()
        return Failure(end, f"DataLoader worker {settings.id}")
    except Exception as error:
        return Failure(error, f"DataLoader worker {settings.id}")


def _answer(settings: WorkerSettings, connection: Any, request: Request, answer: Any) -> None:
    from flambeau.utils.data._utils import transport

    head = (request.epoch, request.place)
    try:
        transport.send(connection, head, answer)
    except OSError:
        raise
    except Exception as error:
        if isinstance(answer, Failure):
            # Its type cannot be found by name from the main process.
            transport.send(connection, head, answer.as_runtime_error())
        else:
            where = f"DataLoader worker {settings.id}, sending its batch"
            transport.send(connection, head, Failure(error, where))


class Inbox:
    """The requests of a connection as they come, without those of passes that were abandoned.

    A thread always reads, so the main process never waits to send while this one waits to answer, and an
    order to stop is known at once.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._newest_epoch = 0
        self._stopped = False
        self._parent = os.getppid()
        threading.Thread(target=self._read, name="flambeau-dataloader-inbox", daemon=True).start()

    def __iter__(self) -> Iterator[Request]:
        while (request := self._requests.get()) is not None and not self._stopped:
            if request.epoch == self._newest_epoch:
                yield request

    def _read(self) -> None:
        try:
            while (request := self._receive()) is not None:
                self._newest_epoch = request.epoch
                self._requests.put(request)
        except (EOFError, OSError):
            pass
        self._stopped = True
        self._requests.put(None)

    def _receive(self) -> Request | None:
        while not self._connection.poll(_PARENT_CHECK_INTERVAL):
            # Without a parent there may be no end of file: another process can have inherited its end.
            if os.getppid() != self._parent:
                return None
        return self._connection.recv()
