"""What a checkpoint says about itself: which tensors and values it holds, in which pieces, and where each piece lies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import flambeau as fb

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
    "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """One piece of a tensor.

    Attributes:
        offsets: where the piece begins in the whole tensor, an index of each dimension.
        sizes: its shape.
    """

    offsets: fb.Size
    sizes: fb.Size


class _MEM_FORMAT_ENCODING(Enum):  # the name that checkpoints hold
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_ENCODED = {
    fb.contiguous_format: _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT,
    fb.channels_last: _MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST,
    fb.preserve_format: _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT,
}


@dataclass
class TensorProperties:
    """What is needed to make a tensor, but for its shape."""

    dtype: fb.dtype = field(default_factory=fb.get_default_dtype)
    layout: fb.layout = fb.strided
    requires_grad: bool = False
    memory_format: fb.memory_format = fb.contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        if self.memory_format not in _ENCODED:
            raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}: checkpoints know {', '.join(map(str, _ENCODED))}")
        return self.dtype, self.layout, self.requires_grad, _ENCODED[self.memory_format], self.pin_memory

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory = state
        self.memory_format = next(known for known, code in _ENCODED.items() if code is encoded)

    @staticmethod
    def create_from_tensor(tensor: fb.Tensor) -> TensorProperties:
        """The properties of `tensor`."""
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad, fb.contiguous_format, tensor.is_pinned())


@dataclass
class TensorStorageMetadata:
    """A tensor of a checkpoint: how to make it, its shape, and the pieces it was saved in."""

    properties: TensorProperties
    size: fb.Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """A value of a checkpoint that is no tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, Any]


@dataclass
class StorageMeta:
    """What the storage says about one save."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """All that a checkpoint says about itself.

    Attributes:
        state_dict_metadata: by name, what was saved.
        planner_data: what the planner that saved wants to know when loading; by default the path of each name in nested dicts.
        storage_data: by `MetadataIndex`, where a piece lies.
        storage_meta: the save it comes from.
        version: of the format.
    """

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """The name of one piece: the value's, and where the piece begins in it. `index` is only a hint at its place in the list."""

    fqn: str
    offset: fb.Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "offset", None if offset is None else fb.Size(offset))


def without_hint(index: MetadataIndex) -> MetadataIndex:
    """`index` without its hint."""
    return replace(index, index=None) if index.index is not None else index
