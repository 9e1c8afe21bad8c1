"""From pieces of tensors as they were saved to pieces as they are wanted."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import LoadItemType, ReadItem, TensorWriteData, WriteItem, WriteItemType

__all__ = ["chunks_of", "overlap", "piece_of", "read_items", "write_items"]


def overlap(saved: ChunkStorageMetadata, wanted: ChunkStorageMetadata) -> tuple[list[int], list[int], list[int]] | None:
    """Where two pieces of one tensor overlap: offsets in the first, offsets in the second, and lengths; None if nowhere."""
    in_saved, in_wanted, lengths = [], [], []
    for a, n, b, m in zip(saved.offsets, saved.sizes, wanted.offsets, wanted.sizes, strict=True):
        begin, end = max(a, b), min(a + n, b + m)
        if end <= begin and (n or m):
            return None
        in_saved.append(begin - a)
        in_wanted.append(begin - b)
        lengths.append(max(end - begin, 0))
    return in_saved, in_wanted, lengths


def chunks_of(value: Any) -> list[ChunkStorageMetadata]:
    """The pieces of a tensor that this rank has: all of a plain one, those it names of one with ``__create_chunk_list__``.

    Raises: ValueError for what is no tensor.
    """
    if hasattr(value, "__create_chunk_list__"):
        return value.__create_chunk_list__()
    if isinstance(value, fb.Tensor):
        return [ChunkStorageMetadata(fb.Size([0] * value.dim()), value.size())]
    raise ValueError(f"Unsupported Type, expecting one of [Tensor, or a class with __create_chunk_list__], but got {type(value)}")


def piece_of(value: Any, index: MetadataIndex) -> fb.Tensor:
    """The tensor of one piece of `value`.

    Raises: ValueError if this rank does not have it.
    """
    if hasattr(value, "__get_tensor_shard__"):
        return value.__get_tensor_shard__(index)
    if isinstance(value, fb.Tensor):
        if index.offset is not None and any(index.offset):
            raise ValueError(f"FQN: '{index.fqn}' is not a piece of a tensor, can't find by offset: '{index.offset}'")
        return value
    raise ValueError(f"checkpoint: {index.fqn} is a {type(value).__name__}, not a tensor")


def write_items(fqn: str, value: Any) -> list[WriteItem]:
    """What this rank could write of `value`."""
    if hasattr(value, "__create_write_items__"):
        return value.__create_write_items__(fqn, value)
    if not isinstance(value, fb.Tensor):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]
    chunk = ChunkStorageMetadata(fb.Size([0] * value.dim()), value.size())
    about = TensorWriteData(chunk, TensorProperties.create_from_tensor(value), value.size())
    return [WriteItem(MetadataIndex(fqn, chunk.offsets), WriteItemType.TENSOR, tensor_data=about)]


def read_items(fqn: str, about: Any, value: Any) -> list[ReadItem]:
    """What has to be read to fill `value` from what was saved as `about`.

    Raises: ValueError if a tensor is wanted and something else was saved, or not all of what is wanted.
    """
    if isinstance(about, BytesStorageMetadata):
        none = fb.Size(())
        return [ReadItem(LoadItemType.BYTE_IO, MetadataIndex(fqn), fb.Size((0,)), MetadataIndex(fqn), fb.Size((0,)), none)]
    if not isinstance(about, TensorStorageMetadata):
        raise ValueError(f"Invalid checkpoint metadata for {fqn}: a {type(about).__name__}")
    try:
        wanted = chunks_of(value)
    except ValueError as error:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(about)}: the checkpoint holds a "
            f"tensor of shape {tuple(about.size)}, and the state dict a {type(value).__name__}"
        ) from error
    found = []
    for at, mine in enumerate(wanted):
        covered = 0
        for place, saved in enumerate(about.chunks):
            common = overlap(saved, mine)
            if common is None:
                continue
            in_saved, in_mine, lengths = map(fb.Size, common)
            covered += lengths.numel()
            found.append(
                ReadItem(
                    LoadItemType.TENSOR, MetadataIndex(fqn, mine.offsets, at), in_mine,
                    MetadataIndex(fqn, saved.offsets, place), in_saved, lengths,
                )
            )
        if covered < mine.sizes.numel():
            raise ValueError(
                f"{fqn}: the checkpoint has {covered} of the {mine.sizes.numel()} elements of this rank's piece at {tuple(mine.offsets)}; "
                "one that ranks saved with use_collectives=False is loaded in the pieces that it was saved in"
            )
    return found
