"""Stages that decide which samples come when: shuffled, by a sampler, or one part for each worker."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from enum import IntEnum
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe
from flambeau.utils.data.sampler import Sampler, SequentialSampler, draw_seed

__all__ = ["SHARDING_PRIORITIES", "SamplerIterDataPipe", "ShardingFilterIterDataPipe", "ShufflerIterDataPipe"]


class SamplerIterDataPipe(IterDataPipe[Any]):
    """The samples that `sampler`, a class, chooses of a pipe with a length.

    Raises: AssertionError for a pipe without a length.
    """

    def __init__(
        self, datapipe: IterDataPipe[Any], sampler: type[Sampler[Any]] = SequentialSampler, sampler_args: tuple[Any, ...] | None = None,
        sampler_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(datapipe, Sized):
            raise AssertionError("Sampler: the pipe must have a length")
        self.datapipe = datapipe
        self.sampler_args, self.sampler_kwargs = sampler_args or (), {**(sampler_kwargs or {}), "data_source": datapipe}
        self.sampler = sampler(*self.sampler_args, **self.sampler_kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(IterDataPipe[Any]):
    """The samples in random order, as far as a buffer of `buffer_size` samples reaches.

    Args:
        unbatch_level: take batches apart first, so many levels.
    Raises: AssertionError for a buffer of 0.
    """

    def __init__(self, datapipe: IterDataPipe[Any], *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError(f"shuffle: buffer_size must be larger than 0, got {buffer_size}")
        self.datapipe: Any = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

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

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        waiting: list[Any] = []
        for sample in self.datapipe:
            if len(waiting) == self.buffer_size:
                at = self._rng.randint(0, len(waiting) - 1)
                chosen, waiting[at] = waiting[at], sample
                yield chosen
            else:
                waiting.append(sample)
        while waiting:
            yield waiting.pop(self._rng.randint(0, len(waiting) - 1))

    def __len__(self) -> int:
        return len(self.datapipe)


class SHARDING_PRIORITIES(IntEnum):  # PyTorch's name
    """Which of several shardings is done first."""

    DEFAULT = 1
    DISTRIBUTED = 2
    MULTIPROCESSING = 3


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(IterDataPipe[Any]):
    """Every n-th sample, for the n workers that `apply_sharding` was told of; all of them before that."""

    def __init__(self, source_datapipe: IterDataPipe[Any], sharding_group_filter: Any = None) -> None:
        self.source_datapipe, self.sharding_group_filter = source_datapipe, sharding_group_filter
        self.groups: dict[int, tuple[int, int]] = {}
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT) -> None:
        """Take part `instance_id` of `num_of_instances`; parts of several groups are parts of each other.

        Raises: ValueError for a part that there is not; RuntimeError for the default group beside others.
        """
        if instance_id >= num_of_instances:
            raise ValueError(f"apply_sharding: instance_id must be less than num_of_instances={num_of_instances}, got {instance_id}")
        default = SHARDING_PRIORITIES.DEFAULT
        if self.groups and (sharding_group == default) != (default in self.groups):
            raise RuntimeError("apply_sharding: the default sharding group cannot be mixed with others")
        self.groups[sharding_group] = num_of_instances, instance_id
        self.num_of_instances, self.instance_id = 1, 0
        for group in sorted(self.groups, reverse=True):
            if self.sharding_group_filter is None or group == self.sharding_group_filter:
                count, part = self.groups[group]
                self.instance_id += self.num_of_instances * part
                self.num_of_instances *= count

    def is_shardable(self) -> bool:
        """True."""
        return True

    def __iter__(self) -> Iterator[Any]:
        for at, sample in enumerate(self.source_datapipe):
            if at % self.num_of_instances == self.instance_id:
                yield sample

    def __len__(self) -> int:
        samples = len(self.source_datapipe)  # type: ignore[arg-type]
        return samples // self.num_of_instances + (self.instance_id < samples % self.num_of_instances)
