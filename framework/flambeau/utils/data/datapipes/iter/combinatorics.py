"""Stages that decide which samples come when: shuffled, or by a sampler."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe
from flambeau.utils.data.sampler import Sampler, SequentialSampler, draw_seed

__all__ = ["SamplerIterDataPipe", "ShufflerIterDataPipe"]


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
