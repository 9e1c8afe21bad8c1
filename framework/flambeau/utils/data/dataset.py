"""Datasets: what there is to read, by key (`Dataset`) or as a stream (`IterableDataset`)."""

from __future__ import annotations

import bisect
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar

import flambeau as fb

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Dataset(Generic[_T_co]):
    """Samples found by key. Subclasses define `__getitem__`, and `__len__` for the default samplers.

    A subclass may also define ``__getitems__(keys)``, which returns the samples of a whole batch at once.
    """

    def __getitem__(self, index: Any) -> _T_co:
        raise NotImplementedError(f"{type(self).__name__}: subclasses of Dataset must define __getitem__")

    def __add__(self, other: Dataset[_T_co]) -> ConcatDataset[_T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T_co], Iterable[_T_co]):
    """Samples that come as a stream. Subclasses define `__iter__`.

    With worker processes every worker reads a copy of the stream; `get_worker_info()` tells `__iter__` which
    part is its own.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[_T_co]:
        raise NotImplementedError

    # Two streams make a stream, where other datasets make a ConcatDataset.
    def __add__(self, other: Dataset[_T_co]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Sample ``i`` is the tuple of row ``i`` of every tensor.

    Args:
        tensors: with the same extent in dimension 0.
    Raises: AssertionError if the extents differ.
    """

    tensors: tuple[Any, ...]

    def __init__(self, *tensors: Any) -> None:
        lengths = [tensor.size(0) for tensor in tensors]
        if len(set(lengths)) > 1:
            raise AssertionError(f"TensorDataset: tensors must agree in dimension 0, got extents {lengths}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def _stacked(self, keys: Any) -> list[Any] | None:
        """What `default_collate` makes of the samples at `keys`, or None where that is not plain rows of plain tensors."""
        if type(self).__getitem__ is not TensorDataset.__getitem__ or not keys or any(type(key) is not int for key in keys):
            return None
        if any(type(t) is not fb.Tensor or t.requires_grad or not t.is_contiguous() for t in self.tensors):
            return None
        rows = fb.tensor(keys)
        return [tensor[rows] for tensor in self.tensors]

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset[Any]):
    """Sample ``i`` is the tuple (or, for keyword arguments, the dict) of sample ``i`` of every dataset.

    Raises: ValueError without datasets, with both positional and keyword ones, or if their lengths differ.
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if args and kwargs:
            raise ValueError("StackDataset: give datasets by position (samples are tuples) or by name (dicts), not both")
        if not args and not kwargs:
            raise ValueError("StackDataset: at least one dataset is needed")
        self.datasets = args or kwargs
        lengths = [len(dataset) for dataset in self._parts()]  # type: ignore[arg-type]
        if len(set(lengths)) > 1:
            raise ValueError(f"StackDataset: datasets must have the same length, got {lengths}")
        self._length = lengths[0]

    def _parts(self) -> Iterable[Dataset[Any]]:
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _stack(self, samples: Iterable[Any]) -> Any:
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, samples, strict=True))
        return tuple(samples)

    def __getitem__(self, index: Any) -> Any:
        return self._stack([dataset[index] for dataset in self._parts()])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        columns = [_samples(dataset, indices) for dataset in self._parts()]
        return [self._stack(row) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


def _samples(dataset: Any, indices: list[Any]) -> list[Any]:
    """The samples at `indices`, read at once where the dataset can."""
    read_all: Any = getattr(dataset, "__getitems__", None)
    if not callable(read_all):
        return [dataset[index] for index in indices]
    samples: Any = read_all(indices)
    if len(samples) != len(indices):
        raise ValueError(
            f"{type(dataset).__name__}.__getitems__ returned {len(samples)} samples for {len(indices)} "
            f"indices"
        )
    return samples


class ConcatDataset(Dataset[_T_co]):
    """The datasets one after another.

    Raises: AssertionError without datasets or for an IterableDataset (use `ChainDataset`).
    """

    datasets: list[Dataset[_T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Running totals of the lengths."""
        return list(accumulate(len(dataset) for dataset in sequence))

    def __init__(self, datasets: Iterable[Dataset[_T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: at least one dataset is needed")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset: an IterableDataset has no keys; put streams together with ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> _T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"ConcatDataset: index {idx} is outside a dataset of length {len(self)}")
            idx += len(self)
        part = bisect.bisect_right(self.cumulative_sizes, idx)
        if part == len(self.datasets):
            raise IndexError(f"ConcatDataset: index {idx} is outside a dataset of length {len(self)}")
        return self.datasets[part][idx - (self.cumulative_sizes[part - 1] if part else 0)]

    @property
    def cummulative_sizes(self) -> list[int]:
        """Deprecated spelling of `cumulative_sizes`."""
        import warnings

        warnings.warn("cummulative_sizes is now spelled cumulative_sizes", FutureWarning, stacklevel=2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """The streams of several IterableDatasets one after another.

    Raises: AssertionError, when read, for a dataset that is not an IterableDataset.
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        super().__init__()
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(f"ChainDataset: only IterableDatasets can be chained, got {type(dataset).__name__}")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._streams())

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._streams())


class Subset(Dataset[_T_co]):
    """The samples of `dataset` at `indices`, in that order."""

    dataset: Dataset[_T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[_T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[_T_co]:
        return _samples(self.dataset, [self.indices[i] for i in indices])

    def _stacked(self, keys: Any) -> list[Any] | None:
        """As `TensorDataset._stacked`, where `dataset` has it."""
        stacked = getattr(self.dataset, "_stacked", None)
        plain = type(self).__getitem__ is Subset.__getitem__ and type(self).__getitems__ is Subset.__getitems__
        return stacked([self.indices[key] for key in keys]) if stacked is not None and plain else None

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[_T], lengths: Sequence[int | float], generator: Any = None,
) -> list[Subset[_T]]:
    """Cut `dataset` at random into subsets that do not overlap.

    Args:
        lengths: the size of each subset; or fractions that sum to 1, of which each subset gets the floor and
            what is left over goes one sample each to the first subsets.
        generator: where the permutation is drawn; the default generator if None.
    Raises: ValueError if the lengths do not add up to ``len(dataset)``, or for a fraction outside [0, 1].
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _fractions_to_lengths(lengths, total)
    if sum(lengths) != total:
        raise ValueError(f"random_split: lengths {list(lengths)} sum to {sum(lengths)}, the dataset has {total} samples")
    indices = fb.randperm(total, generator=generator).tolist()
    ends = list(accumulate(lengths))  # type: ignore[arg-type]
    return [Subset(dataset, indices[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def _fractions_to_lengths(fractions: Sequence[float], total: int) -> list[int]:
    import warnings

    for at, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"random_split: fraction {fraction} at position {at} is not between 0 and 1")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for at in range(total - sum(lengths)):
        lengths[at % len(lengths)] += 1
    for at, length in enumerate(lengths):
        if length == 0:
            warnings.warn(f"random_split: subset {at} is empty", stacklevel=3)
    return lengths
