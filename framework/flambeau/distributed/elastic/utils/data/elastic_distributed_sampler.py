"""A rank's share of a dataset from a place on, for jobs that go on where others stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import flambeau as fb

from .....utils.data.distributed import DistributedSampler

__all__ = ["ElasticDistributedSampler"]


class ElasticDistributedSampler(DistributedSampler):
    """As `DistributedSampler`, of the samples from `start_index` on.

    Args:
        dataset, num_replicas, rank: as there.
        start_index: the first sample.
    Raises: ValueError for a `start_index` behind the end.
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0) -> None:
        super().__init__(dataset=dataset, num_replicas=num_replicas, rank=rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        generator = fb.Generator()
        generator.manual_seed(self.epoch)
        dataset: Any = self.dataset
        order = (fb.randperm(len(dataset) - self.start_index, generator=generator) + self.start_index).tolist()
        order += order[: self.total_size - len(order)]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
