"""Stages that give each worker its part of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["SHARDING_PRIORITIES", "ShardingFilterIterDataPipe"]


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
