"""The worker, a process or a thread: fetches what it is told to until its requests end."""

from __future__ import annotations

import os
import queue
import random
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb

__all__ = [
    "NO_ANSWER",
    "Exhausted",
    "Failure",
    "LocalFailure",
    "Request",
    "Responder",
    "Resumption",
    "Snapshot",
    "SnapshotWanted",
    "WorkerInfo",
    "WorkerSettings",
    "get_worker_info",
    "work",
]

# How often, in seconds, an idle worker looks whether its parent is still there.
_PARENT_CHECK_INTERVAL = 5.0


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows of itself: `id` in ``range(num_workers)``, its `seed`, and its copy of the `dataset`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Here(threading.local):
    """What the worker that runs in this thread knows of itself."""

    info: WorkerInfo | None = None


_worker_info: WorkerInfo | None = None
here = _Here()


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers below 2**32 that seed numpy's generator of a worker: different for every worker of every loader."""
    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in np.random.SeedSequence(words).generate_state(4)]


def get_worker_info() -> WorkerInfo | None:
    """In a DataLoader worker, process or thread, the worker's `WorkerInfo`; None elsewhere."""
    return here.info or _worker_info


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is started with."""

    id: int
    num_workers: int
    base_seed: int
    dataset: Any
    make_fetcher: Callable[[Any], Any]
    init_fn: Callable[[int], Any] | None
    # How many answers may be on their way, which is how far back snapshots are asked for.
    ahead: int = 0
    # Shared memory for the stacks of a process that hangs or crashes; None where there is none.
    stacks: Any = None


class Request(NamedTuple):
    """Wanted: the batch at `place` of pass `epoch`, made of `keys`; `seed` is what stages of pipes draw from in that pass."""

    epoch: int
    place: int
    keys: Any
    seed: int | None = None


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


class LocalFailure(Failure):
    """An exception of a worker in this process: its traceback goes with it."""

    def __init__(self, error: BaseException, where: str) -> None:
        super().__init__(error, where)
        self.error = error

    def reraise(self) -> None:
        """Raise the same type of exception, from the one that happened."""
        try:
            super().reraise()
        except Exception as error:
            raise error from self.error


class Exhausted:
    """The answer of a worker whose stream has ended."""


class Snapshot(NamedTuple):
    """Where a worker stood after some answer of a pass.

    `random` has the states of its generators (None for a thread, which has none of its own); `dataset` is what `state_dict()` of a
    stream says, None where it has none; `ended` says whether the stream had ended.
    """

    random: dict[str, Any] | None
    dataset: Any
    ended: bool


class SnapshotWanted(NamedTuple):
    """In place of keys: wanted are the snapshots of the beginning of this pass and after so many answers."""

    answered: int


class Resumption(NamedTuple):
    """In place of keys: go on where a worker stood that had answered `answered` requests of this pass, each for `size` samples.

    `size` is None without batching.
    """

    start: Snapshot
    at: Snapshot
    answered: int
    size: int | None


NO_ANSWER = object()


def work(settings: WorkerSettings, connection: Any, to_close: list[Any]) -> None:
    """Answer each `Request` on `connection` with a batch, a `Failure` or `Exhausted`, until it closes.

    Args:
        to_close: connections inherited from the parent that belong to other workers.
    """
    for inherited in to_close:
        inherited.close()
    # Ctrl-C reaches the whole process group; the main process decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_stacks(settings.stacks)
    responder = Responder(settings, _prepare(settings))
    try:
        for request in Inbox(connection):
            answer = responder.respond(request)
            if answer is not NO_ANSWER:
                _answer(settings, connection, request, answer)
    except (BrokenPipeError, ConnectionResetError):
        # The main process has gone, or shut this worker down in the middle of an answer.
        return


def _leave_stacks(stacks: Any) -> None:
    """Write the stacks of all threads to `stacks` on a crash, and when the main process asks by SIGUSR1."""
    if stacks is None:
        return
    import faulthandler

    from flambeau import _shared_memory

    block: Any = _shared_memory.block_of(stacks._bytes)
    faulthandler.enable(file=block.descriptor)
    faulthandler.register(signal.SIGUSR1, file=block.descriptor)


class Responder:
    """Finds the answers to requests, and remembers where the worker stood after the last ones.

    Args:
        failure: what went wrong before the first request; it is the answer to all of them.
        failure_type: how exceptions are passed on.
        tracks_random: whether the global generators belong to this worker.
    """

    def __init__(
        self, settings: WorkerSettings, failure: Failure | None, failure_type: type[Failure] = Failure, tracks_random: bool = True,
    ) -> None:
        self._settings, self._failure, self._failure_type = settings, failure, failure_type
        self._tracks_random = tracks_random
        self._epoch = -1
        self._fetcher: Any = None
        self._answered = 0
        self._snapshots: deque[tuple[int, Snapshot]] = deque(maxlen=settings.ahead + 1)

    def respond(self, request: Request) -> Any:
        """The answer to `request`; NO_ANSWER where none is waited for."""
        if request.epoch != self._epoch:
            self._begin(request.epoch, request.seed)
        keys = request.keys
        if isinstance(keys, SnapshotWanted):
            return self._start, next((found for count, found in self._snapshots if count == keys.answered), self._start)
        if isinstance(keys, Resumption):
            self._resume(keys)
            return NO_ANSWER
        answer = self._fetch(keys)
        self._answered += 1
        self._snapshots.append((self._answered, self._snapshot()))
        return answer

    def _begin(self, epoch: int, seed: int | None) -> None:
        self._epoch, self._answered, self._seed = epoch, 0, seed
        # Before the stream is opened, which may draw.
        self._fetcher = None
        self._start = self._snapshot()
        self._snapshots.clear()
        self._open()

    def _open(self) -> None:
        """A fetcher over the dataset from its start, or the failure of making one."""
        settings = self._settings
        try:
            if self._seed is not None:
                seed_stages(settings.dataset, self._seed)
            self._fetcher = self._failure or settings.make_fetcher(settings.dataset)
        except Exception as error:
            self._fetcher = self._failure_type(error, f"iter(dataset) of DataLoader worker {settings.id}")

    def _fetch(self, keys: Any) -> Any:
        from flambeau.utils.data._utils.fetch import IterableFetcher

        where = f"DataLoader worker {self._settings.id}"
        if isinstance(self._fetcher, Failure):
            return self._fetcher
        try:
            return self._fetcher.fetch(keys)
        except StopIteration as end:
            return Exhausted() if isinstance(self._fetcher, IterableFetcher) else self._failure_type(end, where)
        except Exception as error:
            return self._failure_type(error, where)

    def _snapshot(self) -> Snapshot:
        from flambeau.utils.data._utils import random_states

        return Snapshot(
            random_states.snapshot() if self._tracks_random else None,
            stream_state(self._settings.dataset),
            getattr(self._fetcher, "ended", False),
        )

    def _resume(self, resumption: Resumption) -> None:
        from flambeau.utils.data._utils import random_states

        start, at, answered, size = resumption
        if start.random is not None and self._tracks_random:
            random_states.restore(start.random)
        try:
            if is_stream(self._settings.dataset):
                self._read_again(at, answered, size)
        except Exception as error:
            self._fetcher = self._failure_type(error, f"load_state_dict of DataLoader worker {self._settings.id}")
        if at.random is not None and self._tracks_random:
            random_states.restore(at.random)
        self._start, self._answered = start, answered
        self._snapshots.append((answered, at))

    def _read_again(self, at: Snapshot, answered: int, size: int | None) -> None:
        """Bring the stream to where it stood: by its own state, or by reading what had been read."""
        if at.dataset is not None:
            self._settings.dataset.load_state_dict(at.dataset)
            self._open()
            if not isinstance(self._fetcher, Failure):
                self._fetcher.ended = at.ended
            return
        self._open()
        for _ in range(answered):
            self._fetch(None if size is None else [None] * size)


def seed_stages(dataset: Any, seed: int) -> None:
    """Let the stages of a pipe draw from `seed`, the same in all workers."""
    from flambeau.utils.data.graph_settings import apply_random_seed

    apply_random_seed(dataset, fb.Generator().manual_seed(seed))


def take_part(settings: WorkerSettings) -> None:
    """Let the stages of a pipe that divide it read the part of this worker."""
    from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

    if isinstance(settings.dataset, (IterDataPipe, MapDataPipe)):
        from flambeau.utils.data.graph_settings import apply_sharding

        apply_sharding(settings.dataset, settings.num_workers, settings.id)


def is_stream(dataset: Any) -> bool:
    """Whether `dataset` is read as a stream."""
    from flambeau.utils.data.dataset import IterableDataset

    return isinstance(dataset, IterableDataset)


def stream_state(dataset: Any) -> Any:
    """What a stream says of its place, if it can say and go on from there; else None."""
    if is_stream(dataset) and hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict"):
        return dataset.state_dict()
    return None


def _prepare(settings: WorkerSettings) -> Failure | None:
    """Seed the generators of this process and run the user's `worker_init_fn`."""
    global _worker_info
    seed = settings.base_seed + settings.id
    random.seed(seed)
    fb.manual_seed(seed)
    np.random.seed(np.random.SeedSequence([settings.id, settings.base_seed]).generate_state(4))
    _use_one_thread()
    _worker_info = WorkerInfo(settings.id, settings.num_workers, seed, settings.dataset)
    try:
        take_part(settings)
        if settings.init_fn is not None:
            settings.init_fn(settings.id)
    except Exception as error:
        return Failure(error, f"worker_init_fn of DataLoader worker {settings.id}")
    return None


def _use_one_thread() -> None:
    """The workers are the parallelism; threads below them would only compete."""
    set_num_threads = getattr(fb, "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(1)


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
