"""The sampler that gives each process of a distributed run its own part of the dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import flambeau as fb
from flambeau.utils.data.dataset import Dataset
from flambeau.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th key, from `rank` on, of an order that all processes share.

    Args:
        dataset: whose length says how many keys there are.
        num_replicas, rank: how many processes there are and which this is; asked of the process group if None.
        shuffle: draw the order anew for each epoch, from ``seed + epoch``; call `set_epoch` before each epoch.
        drop_last: leave out the tail that cannot be divided evenly, instead of repeating keys from the start.
    Raises: ValueError for a rank outside the replicas; RuntimeError or ValueError without a process group to ask.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = int(_process_group().get_world_size())
        if rank is None:
            rank = int(_process_group().get_rank())
        if not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: rank must be in [0, {num_replicas - 1}], got {rank}")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        length = len(dataset)  # type: ignore[arg-type]
        self.num_samples = length // num_replicas if drop_last else math.ceil(length / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        return islice(self._shared_order(), self.rank, None, self.num_replicas)

    def _shared_order(self) -> Iterator[int]:
        """`total_size` keys, the same in every process."""
        length = len(self.dataset)  # type: ignore[arg-type]
        keys = list(range(length))
        if self.shuffle:
            generator = fb.Generator()
            generator.manual_seed(self.seed + self.epoch)
            keys = fb.randperm(length, generator=generator).tolist()
        return islice(cycle(keys), self.total_size)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass; without it every epoch repeats the same one."""
        self.epoch = epoch


def _process_group() -> Any:
    distributed: Any = getattr(fb, "distributed", None)
    if distributed is None or not distributed.is_available():
        raise RuntimeError(
            "DistributedSampler: without flambeau.distributed there is no process group to ask; "
            "pass num_replicas and rank"
        )
    return distributed
