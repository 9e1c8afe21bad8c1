"""The ranks of one save or load: they take each step together, and fail together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import distributed_c10d as dist
from . import _records
from .api import CheckpointException, failure_of, packed, unpacked

__all__ = ["Ranks"]


class Ranks:
    """The ranks that save or load a checkpoint; alone without a process group.

    Args:
        group: as in `save`.
        no_dist: act as the only rank.
        coordinator: the rank, in the group, that plans for all.
        apart: each rank plans for itself, and fails by itself.
    """

    def __init__(self, group: Any = None, no_dist: bool = False, coordinator: int = 0, separate: bool = False) -> None:
        joined = not no_dist and dist.is_available() and dist.is_initialized()
        self.together, self.separate = joined and not separate, separate
        self.group = group
        self.rank = dist.get_rank(group) if joined else 0
        self.at = self.rank if self.together else 0    # where this rank's is among what `each` returns
        self.size = dist.get_world_size(group) if self.together else 1
        self.coordinator = coordinator if self.together else self.rank
        self.coordinates = self.rank == self.coordinator

    def each(self, name: str, step: Callable[[], Any]) -> list[Any]:
        """What `step` returns on each rank, by rank; on this one alone where ranks are apart.

        Raises: CheckpointException on all ranks if it failed on some.
        """
        mine = self._try(step)
        everyone: list[Any] = [mine]
        if self.together:
            everyone = [None] * self.size
            dist.all_gather_object(everyone, self._sent(mine), self.group)
            everyone = [self._received(found) for found in everyone]
        first = self.rank - self.at
        failures: dict[int, Any] = {first + at: found[1] for at, found in enumerate(everyone) if not found[0]}
        if failures:
            raise CheckpointException(name, failures)
        return [found[1] for found in everyone]

    def one(self, name: str, step: Callable[[], Any]) -> Any:
        """What `step` returns on the coordinator, on all ranks.

        Raises: CheckpointException on all ranks if it failed there.
        """
        found: tuple[bool, Any] = self._try(step) if self.coordinates else (True, None)
        if self.together:
            box: list[Any] = [self._sent(found) if self.coordinates else None]
            dist.broadcast_object_list(box, group=self.group, group_src=self.coordinator)
            found = self._received(box[0])
        if not found[0]:
            failure: Any = found[1]
            raise CheckpointException(name, {self.coordinator: failure})
        return found[1]

    def _try(self, step: Callable[[], Any]) -> tuple[bool, Any]:
        try:
            return True, step()
        except Exception as error:  # handed on to all ranks, and raised there
            return False, failure_of(error)

    def _sent(self, found: tuple[bool, Any]) -> Any:
        good, value = found
        if good:
            try:
                return True, _records.written(value)
            except Exception as error:  # what a planner hands on may be anything
                good, value = False, failure_of(error)
        return good, packed(value)

    def _received(self, found: Any) -> tuple[bool, Any]:
        good, value = found
        return (True, _records.read(value)) if good else (False, unpacked(value))
