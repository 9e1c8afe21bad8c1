"""The interfaces of storages: who writes and reads what planners decided."""

from __future__ import annotations

import abc
import os
from dataclasses import dataclass
from typing import Any, Union

from ...futures import Future
from .metadata import Metadata, MetadataIndex, StorageMeta
from .planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner

__all__ = ["StorageReader", "StorageWriter", "WriteResult"]

CheckpointId = Union[str, "os.PathLike[str]", None]  # evaluated


@dataclass(frozen=True)
class WriteResult:
    """What was written: which piece, its bytes, and where it lies, as the storage says it."""

    index: MetadataIndex
    size_in_bytes: int
    storage_data: Any


class StorageWriter(abc.ABC):
    """Writes a checkpoint. Its methods are called in the order in which they stand here."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        """A new save begins, into `checkpoint_id` if one is given."""

    @abc.abstractmethod
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """On every rank: whether it is the one that coordinates.

        Where ranks save apart, each coordinates, and is given ``rank`` and ``use_collectives=False``.
        """

    @abc.abstractmethod
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """On every rank: `plan` with what the storage wants to add."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator: the plans of all ranks with what the storage wants to add."""

    @abc.abstractmethod
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """On every rank: write the items of `plan`, whose data `planner` has."""

    @abc.abstractmethod
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator: write `metadata`, from which on the checkpoint is there."""

    def discard(self) -> None:  # noqa: B027  # most storages have nothing to remove
        """Remove what `write_data` of this save wrote here, for a rank could not write; nothing by default."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this storage can write to `checkpoint_id`."""

    def storage_meta(self) -> StorageMeta | None:
        """What this storage says about the save."""
        return None


class StorageReader(abc.ABC):
    """Reads a checkpoint. Its methods are called in the order in which they stand here."""

    @abc.abstractmethod
    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        """A new load begins, of `checkpoint_id` if one is given."""

    @abc.abstractmethod
    def read_metadata(self) -> Metadata:
        """What the checkpoint says about itself."""

    def _metadata_for(self, rank: int) -> Metadata:
        """What the checkpoint says to `rank`: to all the same, unless ranks have saved apart."""
        return self.read_metadata()

    @abc.abstractmethod
    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        """On every rank: what is read, and whether it is the one that coordinates."""

    @abc.abstractmethod
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """On every rank: `plan` with what the storage wants to add."""

    @abc.abstractmethod
    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator: the plans of all ranks with what the storage wants to add."""

    @abc.abstractmethod
    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """On every rank: read the items of `plan` to where `planner` wants them."""

    @classmethod
    @abc.abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this storage can read `checkpoint_id`."""
