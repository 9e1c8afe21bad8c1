"""One iterator over several epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["CyclingIterator"]


class CyclingIterator(Iterator[Any]):
    """What ``generator_fn(epoch)`` gives for the epochs up to `n`, one behind the other.

    Args:
        n: the number of the epoch that it ends before.
        generator_fn: makes the iterator of an epoch.
        start_epoch: the number of the first one.
    """

    def __init__(self, n: int, generator_fn: Callable[[int], Iterator[Any]], start_epoch: int = 0) -> None:
        self._n = n
        self._epoch = start_epoch
        self._generator_fn = generator_fn
        self._iter = generator_fn(start_epoch)

    def __iter__(self) -> CyclingIterator:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                return next(self._iter)
            except StopIteration:
                if self._epoch + 1 >= self._n:
                    raise
                self._epoch += 1
                self._iter = self._generator_fn(self._epoch)
