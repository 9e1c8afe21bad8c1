"""Fetchers: from what a sampler gave to the collated batch, for both kinds of dataset."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from .collate import default_collate, stacks_tensors

__all__ = ["IterableFetcher", "MapFetcher"]


class MapFetcher:
    """Reads a dataset by key: a list of keys when batching, else one key."""

    def __init__(
        self, dataset: Any, batching: bool, collate_fn: Callable[[Any], Any], drop_last: bool,
    ) -> None:
        self.dataset = dataset
        self.batching = batching
        self.collate_fn = collate_fn
        # A dataset that holds its samples stacked need not take them apart for `default_collate` to stack them again.
        self._stacked = getattr(dataset, "_stacked", None) if batching and collate_fn is default_collate else None

    def fetch(self, keys: Any) -> Any:
        """The batch for `keys`."""
        if self._stacked is not None and stacks_tensors():
            batch = self._stacked(keys)
            if batch is not None:
                return batch
        return self.collate_fn(self._read(keys) if self.batching else self.dataset[keys])

    def _read(self, keys: Any) -> Any:
        # A dataset that reads many at once may return whatever its `collate_fn` takes: a tuple of whole columns, say.
        read_all = getattr(self.dataset, "__getitems__", None)
        return read_all(keys) if read_all else [self.dataset[key] for key in keys]


class IterableFetcher:
    """Reads a stream; of `keys` only the number matters."""

    def __init__(
        self, dataset: Any, batching: bool, collate_fn: Callable[[Any], Any], drop_last: bool,
    ) -> None:
        self.stream = iter(dataset)
        self.batching = batching
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.ended = False

    def fetch(self, keys: Any) -> Any:
        """The next batch, shorter if the stream ends inside it. Raises: StopIteration when nothing is left."""
        if not self.batching:
            return self.collate_fn(next(self.stream))
        if self.ended:
            raise StopIteration
        samples = list(islice(self.stream, len(keys)))
        self.ended = len(samples) < len(keys)
        if not samples or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(samples)


# PyTorch's names, which loaders of other packages derive theirs from.
_MapDatasetFetcher, _IterableDatasetFetcher = MapFetcher, IterableFetcher
