"""The stages of samples found by key."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flambeau.utils.data.datapipes.datapipe import (
    DataChunk,
    IterDataPipe,
    MapDataPipe,
    functional_datapipe,
    warn_of_lambda,
)
from flambeau.utils.data.sampler import draw_seed

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]


def default_fn(sample: Any) -> Any:
    """`sample` itself."""
    return sample


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """The samples of a sequence or mapping, of a copy of it unless `deepcopy` is False or it cannot be copied."""

    def __init__(self, sequence: Sequence[Any] | Mapping[Any, Any], deepcopy: bool = True) -> None:
        self.sequence = sequence
        if deepcopy:
            try:
                self.sequence = copy.deepcopy(sequence)
            except TypeError:
                warnings.warn("SequenceWrapper: the sequence cannot be copied; it is read itself", stacklevel=2)

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """``fn(sample)`` for each sample."""

    def __init__(self, datapipe: MapDataPipe[Any], fn: Callable[..., Any] = default_fn) -> None:
        warn_of_lambda(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]


class ShufflerIterDataPipe(IterDataPipe[Any]):
    """The samples in random order: a stream.

    Args:
        indices: the keys; the numbers below the length if None.
    """

    def __init__(self, datapipe: MapDataPipe[Any], *, indices: list[Any] | None = None) -> None:
        self.datapipe: Any = datapipe
        self.indices = list(range(len(self.datapipe))) if indices is None else indices
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()
        self._order: list[Any] = self.indices

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Shuffle or not."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Draw the next pass from `seed`."""
        self._seed = seed
        return self

    def reset(self) -> None:
        """Begin a new order: from the seed that was set, else from one of the default generator."""
        if self._enabled:
            self._rng.seed(draw_seed() if self._seed is None else self._seed)
            self._seed = None
            # From the end, as PyTorch takes them.
            self._order = self._rng.sample(self.indices, len(self.indices))[::-1]
        else:
            self._order = self.indices

    def __iter__(self) -> Iterator[Any]:
        for key in self._order:
            yield self.datapipe[key]

    def __len__(self) -> int:
        return len(self.datapipe)


# A stage of pipes with keys that is a stream itself.
MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)


def _check_pipes(name: str, datapipes: tuple[Any, ...]) -> None:
    if not datapipes:
        raise ValueError(f"{name}: at least one pipe is needed")
    for pipe in datapipes:
        if not isinstance(pipe, MapDataPipe):
            raise TypeError(f"{name}: all inputs must be MapDataPipes, got {type(pipe).__name__}")


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe[Any]):
    """The samples of several pipes, one pipe after another; keys count on from 0."""

    def __init__(self, *datapipes: MapDataPipe[Any]) -> None:
        _check_pipes("concat", datapipes)
        self.datapipes: Any = datapipes

    def __getitem__(self, index: int) -> Any:
        rest = index
        for pipe in self.datapipes:
            if rest < len(pipe):
                return pipe[rest]
            rest -= len(pipe)
        raise IndexError(f"concat: index {index} is out of range for {len(self)} samples")

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(MapDataPipe[tuple[Any, ...]]):
    """Tuples of the samples that several pipes have of a key. Raises: IndexError for a key that one of them does not have."""

    def __init__(self, *datapipes: MapDataPipe[Any]) -> None:
        _check_pipes("zip", datapipes)
        self.datapipes: Any = datapipes

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        samples = []
        for pipe in self.datapipes:
            try:
                samples.append(pipe[index])
            except IndexError:
                raise IndexError(f"zip: index {index} is out of range for {pipe}") from None
        return tuple(samples)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[DataChunk[Any]]):
    """Chunks of `batch_size` samples; the last may be shorter, and is left out if `drop_last`. Raises: AssertionError for a size of 0."""

    def __init__(
        self, datapipe: MapDataPipe[Any], batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError(f"batch: batch_size must be larger than 0, got {batch_size}")
        self.datapipe: Any = datapipe
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __getitem__(self, index: int) -> Any:
        # Keys below 0 are keys of the samples, as in PyTorch.
        first = index * self.batch_size
        if index >= len(self):
            raise IndexError(f"batch: index {index} is out of range for {len(self)} batches")
        last = min(first + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[at] for at in range(first, last)])

    def __len__(self) -> int:
        samples = len(self.datapipe)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


# The names that programs use; what the classes call themselves is in their pickles.
SequenceWrapper = SequenceWrapperMapDataPipe
Mapper = MapperMapDataPipe
Shuffler = ShufflerIterDataPipe
Concater = ConcaterMapDataPipe
Zipper = ZipperMapDataPipe
Batcher = BatcherMapDataPipe
