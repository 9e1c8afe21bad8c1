"""Stages that put samples together, and take them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import (
    DataChunk,
    IterDataPipe,
    functional_datapipe,
    warn_of_lambda,
)

__all__ = ["BatcherIterDataPipe", "GrouperIterDataPipe", "UnBatcherIterDataPipe"]


@functional_datapipe("batch")
class BatcherIterDataPipe(IterDataPipe[DataChunk[Any]]):
    """Chunks of `batch_size` samples; the last may be shorter, and is left out if `drop_last`. Raises: AssertionError for a size of 0."""

    def __init__(
        self, datapipe: IterDataPipe[Any], batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError(f"batch: batch_size must be larger than 0, got {batch_size}")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        samples = len(self.datapipe)  # type: ignore[arg-type]
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The samples of batches, `unbatch_level` levels down; -1 for all levels.

    Raises: ValueError, when read, for a level below -1; IndexError where there are not so many levels.
    """

    def __init__(self, datapipe: IterDataPipe[Any], unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        for batch in self.datapipe:
            yield from self._down(batch, self.unbatch_level)

    def _down(self, batch: Any, level: int) -> Iterator[Any]:
        if level < -1:
            raise ValueError(f"unbatch: unbatch_level must be -1 or more, got {level}")
        nested = isinstance(batch, (list, DataChunk))
        if level == 0 or (level == -1 and not nested):
            yield batch
        elif not nested:
            raise IndexError(f"unbatch: unbatch_level={self.unbatch_level} goes deeper than the batches do")
        else:
            for part in batch:
                yield from self._down(part, level if level == -1 else level - 1)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Chunks of samples with the same ``group_key_fn(sample)``.

    Args:
        keep_key: yield ``(key, chunk)``.
        buffer_size: how many samples may wait; beyond it the largest group that is not too small is yielded.
        group_size: the largest size of a group, yielded when it is reached; None for no limit.
        guaranteed_group_size: the smallest size that a full buffer may yield; group_size if None.
        drop_remaining: leave out groups that are too small instead of raising.
    Raises: AssertionError for sizes that do not fit together; RuntimeError, when read, if the buffer is full of groups too small.
    """

    def __init__(
        self,
        datapipe: IterDataPipe[Any],
        group_key_fn: Callable[[Any], Any],
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        warn_of_lambda(group_key_fn)
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.max_buffer_size, self.group_size, self.drop_remaining = buffer_size, group_size, drop_remaining
        self.guaranteed_group_size = None
        if group_size is not None and buffer_size is not None:
            if not 0 < group_size <= buffer_size:
                raise AssertionError(f"groupby: group_size must be in [1, buffer_size={buffer_size}], got {group_size}")
            self.guaranteed_group_size = group_size
        if guaranteed_group_size is not None:
            if group_size is None or not 0 < guaranteed_group_size <= group_size:
                raise AssertionError(f"groupby: guaranteed_group_size must be in [1, group_size={group_size}], got {guaranteed_group_size}")
            self.guaranteed_group_size = guaranteed_group_size

    def __iter__(self) -> Iterator[Any]:
        groups: dict[Any, list[Any]] = defaultdict(list)
        waiting = 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups[key].append(sample)
            waiting += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                waiting -= self.group_size
                yield self._made(key, groups.pop(key))
            if waiting == self.max_buffer_size:
                largest, group = self._largest(groups)
                waiting -= len(group)
                if group_is_full := self._is_full(group):
                    yield self._made(largest, group)
                assert group_is_full or self.drop_remaining
        for key in tuple(groups):
            yield self._made(key, groups.pop(key))

    def _largest(self, groups: dict[Any, list[Any]]) -> tuple[Any, list[Any]]:
        """Take the largest group out of a full buffer; the last of those that are equal."""
        key = None
        size = 0
        for candidate, group in groups.items():
            if len(group) > size:
                key, size = candidate, len(group)
        if not self._is_full(groups[key]) and not self.drop_remaining:
            raise RuntimeError(
                f"groupby: the buffer of {self.max_buffer_size} samples is full, and its largest group, of key {key!r}, has {size}, "
                f"fewer than guaranteed_group_size={self.guaranteed_group_size}; make the buffer larger or set drop_remaining=True"
            )
        return key, groups.pop(key)

    def _is_full(self, group: list[Any]) -> bool:
        return self.guaranteed_group_size is None or len(group) >= self.guaranteed_group_size

    def _made(self, key: Any, group: list[Any]) -> Any:
        chunk = DataChunk(group)
        return (key, chunk) if self.keep_key else chunk
