"""Samplers: in which order the keys of a dataset are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import flambeau as fb

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

_T_co = TypeVar("_T_co", covariant=True)

# Draws with replacement come in groups of this many, which decides how far the generator advances, as PyTorch's does.
_DRAWS_AT_ONCE = 32


def draw_seed(generator: Any = None) -> int:
    """A seed below 2**63 from `generator` (the default one if None)."""
    return int(fb.empty((), dtype=fb.int64).random_(generator=generator).item())


def _check_count(owner: str, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{owner}: {name} must be a positive int, got {name}={value!r}")


class Sampler(Generic[_T_co]):
    """An order of keys. Subclasses define `__iter__`, and `__len__` where the number of keys is known."""

    def __iter__(self) -> Iterator[_T_co]:
        raise NotImplementedError(f"{type(self).__name__}: subclasses of Sampler must define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ... up to the length of `data_source`."""

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A new random order each time, or with `replacement` independent draws.

    Args:
        num_samples: how many keys; the length of `data_source` if None. Without replacement, more than that
            gives several whole permutations and part of another.
        generator: where the order is drawn. If None, each pass draws one seed from the default generator.
    Raises: TypeError for a `replacement` that is no bool; ValueError for a `num_samples` that is not a positive int.
    """

    data_source: Sized
    replacement: bool

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement must be a bool, got {replacement!r}")
        _check_count("RandomSampler", "num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        # Asked anew each time, because the dataset may have grown.
        """How many keys a pass draws."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        generator = self.generator
        if generator is None:
            seed = draw_seed()
            generator = fb.Generator()
            generator.manual_seed(seed)
        extent = len(self.data_source)
        if self.replacement:
            yield from _draws(extent, self.num_samples, generator)
        else:
            yield from _permutations(extent, self.num_samples, generator)

    def __len__(self) -> int:
        return self.num_samples


def _permutations(extent: int, count: int, generator: Any) -> Iterator[int]:
    for _ in range(count // extent):
        yield from fb.randperm(extent, generator=generator).tolist()
    # Drawn even when nothing of it is used, so that the generator ends where PyTorch's does.
    yield from fb.randperm(extent, generator=generator).tolist()[: count % extent]


def _draws(extent: int, count: int, generator: Any) -> Iterator[int]:
    for at in range(0, count, _DRAWS_AT_ONCE):
        size = min(_DRAWS_AT_ONCE, count - at)
        yield from fb.randint(extent, (size,), dtype=fb.int64, generator=generator).tolist()


class SubsetRandomSampler(Sampler[int]):
    """The given `indices` in a new random order each time."""

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for at in fb.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[at]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Keys ``0 .. len(weights) - 1`` with probability in proportion to their weights.

    Args:
        weights: not negative, not all 0; they need not sum to 1.
        num_samples: how many keys each pass draws.
        replacement: whether a key may come twice in a pass.
    Raises: ValueError for a `num_samples` that is not a positive int, a `replacement` that is no bool, or
        weights that are not one-dimensional.
    """

    num_samples: int
    replacement: bool

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None,
    ) -> None:
        _check_count("WeightedRandomSampler", "num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"WeightedRandomSampler: replacement must be a bool, got {replacement!r}")
        as_doubles = fb.as_tensor(weights, dtype=fb.double)
        if as_doubles.dim() != 1:
            raise ValueError(f"WeightedRandomSampler: weights must be one-dimensional, got shape {tuple(as_doubles.shape)}")
        self.weights = as_doubles
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = fb.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` keys of another sampler.

    Args:
        drop_last: leave out the last list if it is shorter.
    Raises: ValueError for a `batch_size` that is not a positive int or a `drop_last` that is no bool.
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_count("BatchSampler", "batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last must be a bool, got {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        keys = iter(self.sampler)
        while batch := list(islice(keys, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        keys = len(self.sampler)  # type: ignore[arg-type]
        return keys // self.batch_size if self.drop_last else -(-keys // self.batch_size)
