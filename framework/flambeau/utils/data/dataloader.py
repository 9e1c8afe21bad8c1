"""The loader: batches of a dataset, made in this process or by worker processes."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, Generic, TypeVar

import flambeau as fb
from flambeau.utils.data._utils.collate import default_collate, default_convert
from flambeau.utils.data._utils.fetch import IterableFetcher, MapFetcher
from flambeau.utils.data._utils.worker import get_worker_info
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Endless(Sampler[None]):
    """None for ever: a stream decides itself what comes next."""

    def __iter__(self) -> Iterator[None]:
        return repeat(None)


class DataLoader(Generic[_T_co]):
    """Iterates over `dataset` in batches, each pass in the order of a sampler.

    Args:
        dataset: map-style, or an IterableDataset.
        batch_size: samples per batch; None yields single samples.
        shuffle: a new random order each pass.
        sampler: the order of keys instead of `shuffle`. batch_sampler: lists of keys, instead of
            `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: processes that fetch; 0 fetches in this one.
        collate_fn: makes a batch of a list of samples (or, without batching, converts one sample).
        pin_memory: page-lock the batches for copies to a GPU; without a GPU nothing is done.
        pin_memory_device: the device to pin for, by name.
        drop_last: leave out the last batch if it is shorter.
        timeout: seconds to wait for a batch from a worker; 0 waits for ever.
        worker_init_fn: called in each worker with its id, after seeding.
        multiprocessing_context: how workers are started: 'fork', 'spawn', 'forkserver', or a context object.
        generator: draws the order, and the seed that each worker adds its id to.
        prefetch_factor: batches each worker prepares ahead; 2 if None.
        persistent_workers: keep the workers from one pass to the next.
        in_order: yield batches in the sampler's order; if False, as they become ready.
    Raises: ValueError for settings that exclude each other or are out of range.
    """

    _iterator: _WorkerIterator | None = None
    __initialized = False

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_worker_settings(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_order_settings(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        order: Any = self._default_sampler(shuffle, generator) if sampler is None else sampler
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(order, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = order
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._promised_length: int | None = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def _default_sampler(self, shuffle: bool | None, generator: Any) -> Any:
        if isinstance(self.dataset, IterableDataset):
            return _Endless()
        if shuffle:
            return RandomSampler(self.dataset, generator=generator)  # type: ignore[arg-type]
        return SequentialSampler(self.dataset)  # type: ignore[arg-type]

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of Python's `multiprocessing`, or None."""
        return self.__context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        self.__context = _as_context(context, self.num_workers)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__initialized and name in _FIXED:
            raise ValueError(f"DataLoader: {name} is fixed once the loader exists; make a new DataLoader")
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        if not self.num_workers:
            return _LocalIterator(self)
        if not self.persistent_workers:
            return _WorkerIterator(self)
        if self._iterator is None:
            self._iterator = _WorkerIterator(self)
        else:
            self._iterator.restart()
        return self._iterator

    def __len__(self) -> int:
        """Batches per pass. Raises: TypeError when the sampler or the stream has no length."""
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_sampler)
        length = self._promised_length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _fetcher_maker(self) -> Callable[[Any], Any]:
        """A picklable function from the dataset to a fetcher for one pass."""
        kind = IterableFetcher if isinstance(self.dataset, IterableDataset) else MapFetcher
        return partial(
            kind, batching=self._auto_collation, collate_fn=self.collate_fn, drop_last=self.drop_last,
        )

    def check_worker_number_rationality(self) -> None:
        """Warn when there are more workers than CPUs this process may use."""
        if not self.num_workers:
            return
        affinity = getattr(os, "sched_getaffinity", None)
        cpus = len(affinity(0)) if affinity else os.cpu_count()
        if cpus is not None and self.num_workers > cpus:
            import warnings

            warnings.warn(
                f"DataLoader: num_workers={self.num_workers}, but this process may use {cpus} CPUs; "
                f"loading is likely to be faster with at most {cpus} workers",
                stacklevel=3,
            )


# -- checking ------------------------------------------------------------------------------------------------


def _check_worker_settings(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool,
) -> None:
    if num_workers < 0:
        raise ValueError(
            f"DataLoader: num_workers must be 0 (no worker processes) or more, got {num_workers}"
        )
    if timeout < 0:
        raise ValueError(f"DataLoader: timeout must be 0 (wait for ever) or more seconds, got {timeout}")
    if prefetch_factor is not None and not num_workers:
        raise ValueError(
            f"DataLoader: prefetch_factor={prefetch_factor} needs worker processes; set num_workers > 0"
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"DataLoader: prefetch_factor must not be negative, got {prefetch_factor}")
    if persistent and not num_workers:
        raise ValueError("DataLoader: persistent_workers=True needs worker processes; set num_workers > 0")


def _check_order_settings(
    dataset: Any, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool,
) -> None:
    if isinstance(dataset, IterableDataset):
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"DataLoader: an IterableDataset decides its own order, but {name}={value} was given"
                )
    if sampler is not None and shuffle:
        raise ValueError("DataLoader: sampler and shuffle exclude each other; shuffle in the sampler")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if batch_size is None and drop_last:
        raise ValueError(
            "DataLoader: without batches (batch_size=None) there is no last batch; drop_last must be False"
        )


def _as_context(context: Any, num_workers: int) -> Any:
    if context is None:
        return None
    if num_workers == 0:
        raise ValueError(
            f"DataLoader: multiprocessing_context={context!r} is only used with worker processes, but "
            f"num_workers=0"
        )
    import multiprocessing
    from multiprocessing.context import BaseContext

    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(f"DataLoader: multiprocessing_context must be one of {methods}, got {context!r}")
        return multiprocessing.get_context(context)
    if not isinstance(context, BaseContext):
        raise TypeError(
            "DataLoader: multiprocessing_context must be the name of a start method or a multiprocessing "
            "context, "
            f"got {context!r}"
        )
    return context


# -- iterators -----------------------------------------------------------------------------------------------


class _Iterator:
    """What both iterators share: the pass over the sampler, pinning, and counting what a stream promised."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._index_sampler = loader._index_sampler
        self._pin = loader.pin_memory and _has_gpu()
        # Drawn for every iterator, also without workers, so that the generator advances the same either way.
        self._base_seed = draw_seed(loader.generator)
        self._begin()

    def _begin(self) -> None:
        self._keys = iter(self._index_sampler)
        self._yielded = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._next_batch()
        self._yielded += 1
        self._check_promise()
        return batch

    def _next_batch(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._index_sampler)

    def _pinned(self, batch: Any) -> Any:
        if not self._pin:
            return batch
        from flambeau.utils.data._utils.pin_memory import pin_memory

        return pin_memory(batch, self._loader.pin_memory_device)

    def _check_promise(self) -> None:
        """Warn when a stream yields more than the `len` that was asked of it."""
        promised = self._loader._promised_length
        if promised is None or self._yielded <= len(self._loader):
            return
        import warnings

        warnings.warn(
            f"DataLoader: len(dataset) of the IterableDataset is {promised}, which is {len(self._loader)} "
            f"batches, "
            f"but this is batch {self._yielded}. With worker processes each worker must yield only its own "
            f"part",
            stacklevel=3,
        )


def _has_gpu() -> bool:
    cuda = getattr(fb, "cuda", None)
    return cuda is not None and cuda.is_available()


class _LocalIterator(_Iterator):
    """Fetches in this process, one batch at a time."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._fetcher = loader._fetcher_maker()(loader.dataset)

    def _next_batch(self) -> Any:
        return self._pinned(self._fetcher.fetch(next(self._keys)))


class _WorkerIterator(_Iterator):
    """Hands out requests to worker processes in turn and puts their answers back in order.

    Every request has a `place` in the pass. At most ``prefetch_factor * num_workers`` are on their way.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        if not loader.prefetch_factor:
            raise ValueError(
                f"DataLoader: prefetch_factor must be at least 1 with worker processes, got "
                f"{loader.prefetch_factor}"
            )
        self._epoch = 0
        self._pool: Any = None
        super().__init__(loader)
        self._start_workers()
        self._prime()

    def _start_workers(self) -> None:
        from flambeau.utils.data._utils.pool import WorkerPool

        self._pool = WorkerPool(self._loader, self._base_seed)
        # Runs when the iterator is collected and at the end of the program.
        self._finalizer = weakref.finalize(self, self._pool.close)

    def restart(self) -> None:
        """Begin another pass with the same workers; what is still on its way from the last one is dropped."""
        self._epoch += 1
        self._begin()
        self._prime()

    def _begin(self) -> None:
        super()._begin()
        self._sent = 0  # place of the next request
        self._due = 0  # place of the next batch to yield
        self._owner: dict[int, int] = {}  # place -> worker, for requests on their way
        self._ready: dict[int, Any] = {}  # place -> answer, for answers that came early
        self._active = [True] * self._loader.num_workers
        self._turn = 0

    def _prime(self) -> None:
        for _ in range(self._loader.prefetch_factor * self._loader.num_workers):  # type: ignore[operator]
            self._request()

    def _request(self) -> None:
        """Ask the next active worker for the next keys, if there are any."""
        from flambeau.utils.data._utils.worker import Request

        worker = self._next_worker()
        if worker is None:
            return
        try:
            keys = next(self._keys)
        except StopIteration:
            return
        self._owner[self._sent] = worker
        self._pool.send(worker, Request(self._epoch, self._sent, keys))
        self._sent += 1

    def _next_worker(self) -> int | None:
        if not self._loader.in_order:
            return self._idlest_worker()
        count = len(self._active)
        for step in range(count):
            worker = (self._turn + step) % count
            if self._active[worker]:
                self._turn = worker + 1
                return worker
        return None

    def _idlest_worker(self) -> int | None:
        load = Counter(self._owner.values())
        active = (worker for worker, active in enumerate(self._active) if active)
        return min(active, key=load.__getitem__, default=None)

    def _next_batch(self) -> Any:
        from flambeau.utils.data._utils.worker import Exhausted, Failure

        while True:
            answer = self._next_answer()
            if isinstance(answer, Exhausted):
                self._request()
                continue
            self._request()
            if isinstance(answer, Failure):
                answer.reraise()
            return self._pinned(answer)

    def _next_answer(self) -> Any:
        """The answer that is due. Raises: StopIteration when no request is left; RuntimeError as
        `WorkerPool.receive`.
        """
        if not self._loader.in_order:
            return self._any_answer()
        while self._due not in self._ready:
            if self._due >= self._sent:
                self._finish()
                raise StopIteration
            self._take()
        self._due += 1
        return self._ready.pop(self._due - 1)

    def _any_answer(self) -> Any:
        while not self._ready:
            if not self._owner:
                self._finish()
                raise StopIteration
            self._take()
        return self._ready.pop(next(iter(self._ready)))

    def _take(self) -> None:
        """Receive one answer of this pass into `_ready`."""
        from flambeau.utils.data._utils.worker import Exhausted

        try:
            (epoch, place), load = self._pool.receive(self._loader.timeout, set(self._owner.values()))
        except BaseException:
            # A dead worker, a hanging one, or a Ctrl-C in the middle of a message: these workers cannot go
            # on.
            self._abandon()
            raise
        if epoch != self._epoch:
            return
        worker = self._owner.pop(place)
        answer = self._ready[place] = load()
        if isinstance(answer, Exhausted):
            self._active[worker] = False

    def _finish(self) -> None:
        if not self._loader.persistent_workers:
            self._finalizer()

    def _abandon(self) -> None:
        self._pool.close(patience=0.0)
        self._loader._iterator = None
        # What comes next from this iterator is its end.
        self._owner.clear()
        self._due = self._sent


# PyTorch's names of the iterators, which other packages derive from or test for.
_BaseDataLoaderIter, _SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter = _Iterator, _LocalIterator, _WorkerIterator
