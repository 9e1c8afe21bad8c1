"""The loader: batches of a dataset, made in this process or by worker processes."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice, repeat
from typing import Any, Generic, TypeVar

import flambeau as fb
from flambeau import _state
from flambeau.autograd._region import record_function
from flambeau.utils.data._utils import random_states
from flambeau.utils.data._utils.collate import default_collate, default_convert
from flambeau.utils.data._utils.fetch import IterableFetcher, MapFetcher
from flambeau.utils.data._utils.worker import (
    Exhausted,
    Failure,
    Request,
    Resumption,
    Snapshot,
    SnapshotWanted,
    get_worker_info,
    seed_stages,
    stream_state,
)
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")
_collate_fn_t = Callable[[list[_T]], Any]

_STATE_VERSION = 1
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _DatasetKind:
    """How a dataset is read: by key, or as a stream."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        """A fetcher over `dataset` for one pass."""
        fetcher: Any = MapFetcher if kind == _DatasetKind.Map else IterableFetcher
        return fetcher(dataset, auto_collation, collate_fn, drop_last)


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
        worker_type: 'process', or 'thread' for workers in this process, which share `dataset` and its
            generators; an addition to PyTorch's signature.
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
        worker_type: str = "process",
    ) -> None:
        _check_worker_type(worker_type, multiprocessing_context)
        _check_worker_settings(num_workers, timeout, prefetch_factor, persistent_workers)
        _check_order_settings(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last)
        if isinstance(dataset, IterDataPipe):
            from flambeau.utils.data.graph_settings import apply_shuffle_settings

            dataset = apply_shuffle_settings(dataset, shuffle=shuffle)
            shuffle = None
        self.dataset = dataset
        self.num_workers = num_workers
        self.worker_type = worker_type
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
        self._latest: Any = None  # a reference to the iterator of the last pass
        self._resumption: dict[str, Any] | None = None
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

    def __getstate__(self) -> dict[str, Any]:
        """All but the reference to the iterator of the last pass, which does not go where the copy goes."""
        return {**self.__dict__, "_latest": None}

    def __iter__(self) -> Iterator[Any]:
        made = self._make_iterator()
        self._latest = weakref.ref(made)
        return made

    def _make_iterator(self) -> Iterator[Any]:
        if not self.num_workers:
            return _LocalIterator(self)
        if not self.persistent_workers:
            return _WorkerIterator(self)
        if self._iterator is None or self._resumption is not None:
            self._iterator = _WorkerIterator(self)
        else:
            self._iterator.restart()
        return self._iterator

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands, after the batches that were yielded; an addition to PyTorch's interface.

        It has the order of the keys and where it was drawn from, and what the generators of worker processes
        have drawn, not the data. The pass must still be going on: without one, the next pass is described.
        Save the global generators (`get_rng_state`) beside it, as for everything else.
        """
        iterator = None if self._latest is None else self._latest()
        going_on = iterator is not None and not iterator._ended
        return {
            "version": _STATE_VERSION,
            "num_workers": self.num_workers,
            "worker_type": self.worker_type,
            "length": self._number_of_batches(),
            "generators": [generator.get_state() for generator in self._generators()],
            "pass": iterator.state() if going_on else self._resumption and self._resumption["pass"],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass go on where `state_dict()` of a loader with the same settings was called.

        Streams are read again up to there, unless they have `state_dict` and `load_state_dict` themselves.
        Raises: ValueError for a state of another version, or of a loader with other settings; nothing is
            changed then.
        """
        expected = {
            "version": _STATE_VERSION, "num_workers": self.num_workers, "worker_type": self.worker_type,
            "length": self._number_of_batches(),
        }  # fmt: skip
        for name, value in expected.items():
            if state_dict.get(name) != value:
                raise ValueError(f"DataLoader.load_state_dict: the state has {name}={state_dict.get(name)!r}, this loader {value!r}")
        generators = self._generators()
        if len(generators) != len(state_dict["generators"]):
            raise ValueError(
                f"DataLoader.load_state_dict: the state has {len(state_dict['generators'])} generators, this loader "
                f"{len(generators)}"
            )
        for generator, state in zip(generators, state_dict["generators"], strict=True):
            generator.set_state(state)
        self._resumption = state_dict if state_dict["pass"] is not None else None

    def _number_of_batches(self) -> int | None:
        try:
            return None if isinstance(self.dataset, IterableDataset) else len(self)
        except TypeError:
            return None

    def _generators(self) -> list[Any]:
        """The generators that the order is drawn from, beside the default one."""
        order = self.batch_sampler
        samplers = (self, self.sampler, order, getattr(order, "sampler", None))
        found = [getattr(sampler, "generator", None) for sampler in samplers]
        return list({id(generator): generator for generator in found if isinstance(generator, fb.Generator)}.values())

    def __len__(self) -> int:
        """Batches per pass. Raises: TypeError when the sampler or the stream has no length."""
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_sampler)
        length = self._promised_length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if isinstance(self.dataset, IterableDataset) else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _fetcher_maker(self) -> Callable[[Any], Any]:
        """A picklable function from the dataset to a fetcher for one pass."""
        kind: Any = MapFetcher if self._dataset_kind == _DatasetKind.Map else IterableFetcher
        return partial(
            kind, batching=self._auto_collation, collate_fn=self.collate_fn, drop_last=self.drop_last,
        )

    def check_worker_number_rationality(self) -> None:
        """Warn when there are more worker processes than CPUs this process may use."""
        if not self.num_workers or self.worker_type == "thread":
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
        raise ValueError(f"DataLoader: num_workers must be 0 (no worker processes) or more, got {num_workers}")
    if timeout < 0:
        raise ValueError(f"DataLoader: timeout must be 0 (wait for ever) or more seconds, got {timeout}")
    if prefetch_factor is not None and not num_workers:
        raise ValueError(f"DataLoader: prefetch_factor={prefetch_factor} needs worker processes; set num_workers > 0")
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"DataLoader: prefetch_factor must not be negative, got {prefetch_factor}")
    if persistent and not num_workers:
        raise ValueError("DataLoader: persistent_workers=True needs worker processes; set num_workers > 0")


def _check_worker_type(worker_type: str, context: Any) -> None:
    if worker_type not in ("process", "thread"):
        raise ValueError(f"DataLoader: worker_type must be 'process' or 'thread', got {worker_type!r}")
    if worker_type == "thread" and context is not None:
        raise ValueError(f"DataLoader: multiprocessing_context={context!r} is for worker_type='process'")


def _check_order_settings(
    dataset: Any, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool,
) -> None:
    if isinstance(dataset, IterDataPipe):
        shuffle = None
    if isinstance(dataset, IterableDataset):
        given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"DataLoader: an IterableDataset decides its own order, but {name}={value} was given")
    if sampler is not None and shuffle:
        raise ValueError("DataLoader: sampler and shuffle exclude each other; shuffle in the sampler")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("DataLoader: without batches (batch_size=None) there is no last batch; drop_last must be False")


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

    _title = "_BaseDataLoaderIter"  # the name that profiles show, which is PyTorch's

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._promised_length = loader._promised_length  # what was asked for before this pass; ``list(loader)`` asks in its course
        self._index_sampler = loader._index_sampler
        self._pin = loader.pin_memory and _has_gpu()
        if loader.pin_memory and not self._pin:
            import warnings

            warnings.warn(
                "DataLoader: pin_memory=True, but there is no GPU to copy to; batches stay in ordinary memory", stacklevel=4,
            )
        self._ended = False
        resumption, loader._resumption = loader._resumption, None
        self._resumption: dict[str, Any] | None = None if resumption is None else resumption["pass"]
        self._stage_seed: int | None = None
        if self._resumption:
            self._stage_seed = self._resumption["stage_seed"]
        else:
            self._draw_stage_seed()
        # Drawn for every iterator, also without workers, so that the generator advances the same either way.
        self._base_seed = self._resumption["base_seed"] if self._resumption else draw_seed(loader.generator)
        if loader.num_workers and isinstance(loader.dataset, IterDataPipe) and self._resumption is None:
            # PyTorch draws one more for the first pass of its workers, and uses it for nothing.
            draw_seed(loader.generator)
        self._begin()

    def _draw_stage_seed(self) -> None:
        """Draw the seed that the stages of a pipe share in this pass."""
        if isinstance(self._loader.dataset, IterDataPipe):
            self._stage_seed = draw_seed(self._loader.generator)

    def _begin(self) -> None:
        self._note_beginning()
        self._keys = iter(self._index_sampler)
        self._yielded = 0
        self._ended = False

    def _note_beginning(self) -> None:
        """Remember from where the order is drawn."""
        self._began = random_states.snapshot(), [generator.get_state() for generator in self._loader._generators()]

    def state(self) -> dict[str, Any]:
        """What `DataLoader.state_dict` says of this pass."""
        began, generators = self._began
        return {
            "base_seed": self._base_seed, "stage_seed": self._stage_seed, "yielded": self._yielded,
            "began": began, "generators_began": generators,
            **self._place(),
        }  # fmt: skip

    def _place(self) -> dict[str, Any]:
        raise NotImplementedError

    @contextmanager
    def _drawing_again(self) -> Iterator[dict[str, Any]]:
        """From the beginning of the pass that goes on; the global generators are then put where they are now."""
        state, self._resumption = self._resumption, None
        assert state is not None
        now = random_states.snapshot()
        generators = self._loader._generators()
        random_states.restore(state["began"])
        for generator, began in zip(generators, state["generators_began"], strict=True):
            generator.set_state(began)
        try:
            self._note_beginning()
            self._keys = iter(self._index_sampler)
            self._yielded = state["yielded"]
            yield state
        finally:
            random_states.restore(now)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            if _state.INTERPRETED:
                with record_function(f"enumerate(DataLoader)#{self._title}.__next__"):
                    batch = self._next_batch()
            else:
                batch = self._next_batch()
        except StopIteration:
            self._ended = True
            raise
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
        promised = self._promised_length
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

    _title = "_SingleProcessDataLoaderIter"

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._drawn = 0
        if self._resumption is not None:
            self._go_on()
        else:
            self._open()

    def _open(self) -> None:
        if self._stage_seed is not None:
            seed_stages(self._loader.dataset, self._stage_seed)
        self._fetcher = self._loader._fetcher_maker()(self._loader.dataset)

    def _go_on(self) -> None:
        loader = self._loader
        with self._drawing_again() as state:
            if state["dataset"] is not None:
                loader.dataset.load_state_dict(state["dataset"])  # type: ignore[attr-defined]
            self._open()
            read_again = state["dataset"] is None and isinstance(loader.dataset, IterableDataset)
            for _ in range(state["drawn"]):
                keys = next(self._keys)
                self._drawn += 1
                if read_again:
                    # What it raised then it raises again; the program has seen it.
                    with suppress(Exception):
                        self._fetcher.fetch(keys)
        if state["dataset"] is not None:
            self._fetcher.ended = state["ended"]

    def _place(self) -> dict[str, Any]:
        return {
            "drawn": self._drawn, "dataset": stream_state(self._loader.dataset), "ended": getattr(self._fetcher, "ended", False),
        }  # fmt: skip

    def _next_batch(self) -> Any:
        keys = next(self._keys)
        self._drawn += 1
        return self._pinned(self._fetcher.fetch(keys))


class _WorkerIterator(_Iterator):
    """Hands out requests to worker processes in turn and puts their answers back in order.

    Every request has a `place` in the pass. At most ``prefetch_factor * num_workers`` are on their way.
    """

    _title = "_MultiProcessingDataLoaderIter"

    def __init__(self, loader: DataLoader[Any]) -> None:
        if not loader.prefetch_factor:
            raise ValueError(
                f"DataLoader: prefetch_factor must be at least 1 with worker processes, got "
                f"{loader.prefetch_factor}"
            )
        self._epoch = 0
        super().__init__(loader)
        self._start_workers()
        if self._resumption is not None:
            self._go_on()
        else:
            self._prime()

    def _start_workers(self) -> None:
        if self._loader.worker_type == "thread":
            from flambeau.utils.data._utils.threads import ThreadPool as Pool
        else:
            from flambeau.utils.data._utils.pool import WorkerPool as Pool

        self._pool: Any = Pool(self._loader, self._base_seed)
        # Runs when the iterator is collected and at the end of the program.
        self._finalizer = weakref.finalize(self, self._pool.drop)

    def restart(self) -> None:
        """Begin another pass with the same workers; what is still on its way from the last one is dropped."""
        self._epoch += 1
        self._draw_stage_seed()
        self._begin()
        self._prime()

    def _begin(self) -> None:
        super()._begin()
        self._sent = 0  # place of the next request
        self._due = 0  # place of the next batch to yield
        self._owner: dict[int, int] = {}  # place -> worker, for requests on their way
        self._ready: dict[int, Any] = {}  # place -> worker and answer, for answers that came early
        self._active = [True] * self._loader.num_workers
        self._turn = 0
        self._consumed = [0] * self._loader.num_workers  # how many answers of each worker were used
        self._snapshots: dict[int, Any] = {}  # worker -> where it stood, when it was asked

    def _asking(self, place: int, keys: Any) -> Request:
        return Request(self._epoch, place, keys, self._stage_seed)

    def _place(self) -> dict[str, Any]:
        """Also waits for what was requested already; the batches are yielded later as ever."""
        workers = range(self._loader.num_workers)
        self._snapshots = {}
        for worker in workers:
            self._pool.send(worker, self._asking(-1 - worker, SnapshotWanted(self._consumed[worker])))
        while len(self._snapshots) < len(workers):
            self._take(set(workers) - self._snapshots.keys())
        pending = {**self._owner, **{place: worker for place, (worker, _) in self._ready.items()}}
        return {
            "drawn": self._sent, "pending": sorted(pending.items()), "consumed": list(self._consumed),
            "active": self._active_before(pending), "turn": self._turn,
            "workers": [tuple(map(tuple, self._snapshots[worker])) for worker in workers],
        }  # fmt: skip

    def _active_before(self, pending: dict[int, int]) -> list[bool]:
        """Which workers are active, not counting the ends that have been received and not used yet."""
        ends = {worker for worker, answer in self._ready.values() if isinstance(answer, Exhausted)}
        return [active or worker in ends for worker, active in enumerate(self._active)]

    def _go_on(self) -> None:
        """Bring the workers to where they stood, and request again what had not been yielded."""
        loader = self._loader
        size = loader.batch_size if loader._auto_collation else None
        with self._drawing_again() as state:
            pending = dict(state["pending"])
            keys = {place: keys for place, keys in enumerate(islice(self._keys, state["drawn"])) if place in pending}
        for worker, (start, at) in enumerate(state["workers"]):
            resumption = Resumption(Snapshot(*start), Snapshot(*at), state["consumed"][worker], size)
            self._pool.send(worker, self._asking(-1, resumption))
        self._consumed, self._active, self._turn = list(state["consumed"]), list(state["active"]), state["turn"]
        self._sent = state["drawn"]
        self._due = min(pending, default=self._sent)
        for place, worker in pending.items():
            self._owner[place] = worker
            self._pool.send(worker, self._asking(place, keys[place]))

    def _prime(self) -> None:
        for _ in range(self._loader.prefetch_factor * self._loader.num_workers):  # type: ignore[operator]
            self._request()

    def _request(self) -> None:
        """Ask the next active worker for the next keys, if there are any."""
        worker = self._next_worker()
        if worker is None:
            return
        try:
            keys = next(self._keys)
        except StopIteration:
            return
        self._owner[self._sent] = worker
        self._pool.send(worker, self._asking(self._sent, keys))
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
        while True:
            worker, answer = self._next_answer()
            self._consumed[worker] += 1
            if isinstance(answer, Exhausted):
                self._request()
                continue
            self._request()
            if isinstance(answer, Failure):
                answer.reraise()
            return self._pinned(answer)

    def _next_answer(self) -> Any:
        """Which worker answered, and the answer that is due. Raises: StopIteration when no request is left; RuntimeError as
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

    def _take(self, workers: set[int] | None = None) -> None:
        """Receive one answer of this pass into `_ready`, from the workers that owe one."""
        try:
            (epoch, place), load = self._pool.receive(self._loader.timeout, workers or set(self._owner.values()))
        except BaseException:
            # A dead worker, a hanging one, or a Ctrl-C in the middle of a message: these workers cannot go on.
            self._abandon()
            raise
        if epoch != self._epoch:
            return
        answer = load()
        if place < 0:
            self._snapshots[-1 - place] = answer
            return
        worker = self._owner.pop(place)
        self._ready[place] = worker, answer
        if isinstance(answer, Exhausted):
            self._active[worker] = False

    def _finish(self) -> None:
        if not self._loader.persistent_workers:
            self._pool.close()

    def _abandon(self) -> None:
        self._pool.close(patience=0.0)
        self._loader._iterator = None
        self._ended = True
        # What comes next from this iterator is its end.
        self._owner.clear()
        self._due = self._sent


# PyTorch's names of the iterators, which other packages derive from or test for.
_BaseDataLoaderIter, _SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter = _Iterator, _LocalIterator, _WorkerIterator
