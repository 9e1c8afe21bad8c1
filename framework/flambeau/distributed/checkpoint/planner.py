"""The interfaces of planners: who decides what a checkpoint holds, which rank writes it, and where what is read goes."""

from __future__ import annotations

import abc
import io
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import flambeau as fb

from .metadata import (
    STATE_DICT_TYPE,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)

__all__ = [
    "BytesIOWriteData", "LoadItemType", "LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner", "TensorWriteData",
    "WriteItem", "WriteItemType",
]  # fmt: skip


class WriteItemType(Enum):
    """What is written: a tensor, a piece of one, or bytes."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """What is read: a tensor or bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """How long bytes to write are."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """Which piece of which tensor is written: the piece, the properties and the shape of the whole."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: fb.Size


@dataclass(frozen=True)
class WriteItem:
    """One thing to write.

    Attributes:
        index: its name.
        type: a tensor, a piece of one, or bytes.
        bytes_io_data: about bytes, where their length is known.
        tensor_data: about a tensor.
    """

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """Bytes that the tensor takes in storage; None of what is no tensor."""
        if self.tensor_data is None:
            return None
        return math.prod(self.tensor_data.chunk.sizes) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """One thing to read: which part of a stored piece goes where in a piece of this rank.

    Attributes:
        type: a tensor or bytes.
        dest_index: the piece of this rank.
        dest_offsets: where in it the part goes, an index of each dimension.
        storage_index: the stored piece.
        storage_offsets: where in it the part begins.
        lengths: the shape of the part.
    """

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: fb.Size
    storage_index: MetadataIndex
    storage_offsets: fb.Size
    lengths: fb.Size


@dataclass(frozen=True)
class SavePlan:
    """What one rank writes.

    Attributes:
        items: what to write.
        storage_data: for the storage.
        planner_data: for the planner that made it.
        usable: False where an earlier plan is used again.
    """

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What one rank reads.

    Attributes:
        items: what to read.
        storage_data: for the storage.
        planner_data: for the planner that made it.
    """

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Decides what of a state dict is written, and by whom. Its methods are called in the order in which they stand here."""

    _separate = False                                     # whether ranks plan apart, so that none sees all pieces of a tensor

    @abc.abstractmethod
    def set_up_planner(self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        """On every rank: a save of `state_dict` begins; what is given is not given again."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """On every rank: what it could write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """On the coordinator: what each rank is to write, and what the checkpoint holds then."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """On every rank: the plan to carry out, from what the coordinator made of it."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> fb.Tensor | io.BytesIO:
        """The tensor or the bytes of one item; may be asked for often, and by several threads."""


class LoadPlanner:
    """Decides what is read for a state dict, and where it goes. Its methods are called in the order in which they stand here."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """On every rank: a load into `state_dict` begins."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """On every rank: what it needs."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator: what each rank reads."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """On every rank: the plan to carry out."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Store what `value` holds in the state dict."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Where the storage may put the bytes of `read_item`."""
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> fb.Tensor:
        """The tensor that the storage fills; one of the state dict, or one that `commit_tensor` takes from there."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: fb.Tensor) -> None:
        """`tensor`, which `resolve_tensor` gave, is filled."""
