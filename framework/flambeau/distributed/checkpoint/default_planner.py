"""The planners that `save` and `load` use: nested dicts, what several ranks have is written once, pieces are read as they overlap."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from dataclasses import replace
from typing import Any, cast

import flambeau as fb

from ..._warn import warn_once
from . import resharding
from ._nested import flatten_state_dict, set_element
from .metadata import (
    STATE_DICT_TYPE,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
    without_hint,
)  # fmt: skip
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType

__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "create_default_global_load_plan", "create_default_global_save_plan",
    "create_default_local_load_plan", "create_default_local_save_plan",
]  # fmt: skip

_VERSION = "1.0.0"


class DefaultSavePlanner(SavePlanner):
    """Writes each part of nested dicts and lists under its name; what several ranks have, one of them writes.

    Args:
        flatten_state_dict: take nested dicts and lists apart.
        flatten_sharded_tensors: taken for compatibility; there are no sharded tensors inside sharded tensors here.
        dedup_replicated_tensors: deprecated and without effect.
        dedup_save_to_lowest_rank: let the lowest rank write what several have, rather than the one with the least to write.
        enable_plan_caching: plans are not kept: True says so once.
    """

    mappings: dict[str, tuple[Any, ...]]

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
                 dedup_replicated_tensors: bool | None = None, dedup_save_to_lowest_rank: bool = False,
                 enable_plan_caching: bool = False) -> None:  # fmt: skip
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self.mappings = {}
        if dedup_replicated_tensors is not None:
            warn_once("DefaultSavePlanner: dedup_replicated_tensors is deprecated and has no effect: ranks always share the work")
        if enable_plan_caching:
            warn_once("DefaultSavePlanner: enable_plan_caching has no effect: plans are made anew for each save")

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        self._nested = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = replace(plan, planner_data=self._paths_as_saved())
        self.plan = plan
        return plan

    def _paths_as_saved(self) -> dict[str, tuple[Any, ...]]:
        # A subclass may have made its own mappings, of names that it has changed.
        try:
            return {name: _as_saved(path, self._nested) for name, path in self.mappings.items()}
        except (KeyError, AttributeError):
            return dict(self.mappings)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        all_plans = _without_duplicates(all_plans, self.dedup_save_to_lowest_rank)
        plans, metadata = create_default_global_save_plan(all_plans)
        if self.flatten_state_dict:
            merged: dict[str, Any] = {}
            for plan in plans:
                merged.update(plan.planner_data or {})
            metadata = replace(metadata, planner_data=merged)
        if not self._separate:                            # else other ranks have the rest
            _check_complete(plans, metadata)
        self.global_plan, self.metadata = plans, metadata
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> fb.Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The value, or the piece of a tensor, that `index` names; for subclasses to change."""
        value = self.state_dict[index.fqn]
        return value if index.offset is None else resharding.piece_of(value, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:  # PyTorch's name
        """What is written of a value: the tensor itself, else the bytes that `fb.save` makes of it; for subclasses to change."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        out = io.BytesIO()
        fb.save(object, out)
        return out


def _as_saved(path: tuple[Any, ...], root: Any) -> tuple[Any, ...]:
    """A path as checkpoints hold it: numbers are places in lists, so keys of dicts are text."""
    found: list[Any] = []
    for key in path:
        found.append(key if isinstance(root, list) else str(key))
        root = root[key]
    return tuple(found)


class DefaultLoadPlanner(LoadPlanner):
    """Reads each part of nested dicts and lists from what was saved under its name.

    Args:
        flatten_state_dict: take nested dicts and lists apart.
        flatten_sharded_tensors: taken for compatibility.
        allow_partial_load: leave values alone that the checkpoint does not have, instead of raising.
    """

    original_state_dict: STATE_DICT_TYPE
    mappings: dict[str, tuple[Any, ...]]

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
        self.original_state_dict = {}
        self.mappings = {}

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("DefaultLoadPlanner: set_up_planner was given no metadata")
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        loaded = fb.load(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> fb.Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: fb.Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> fb.Tensor:
        """The piece of a tensor of the state dict that `index` names; for subclasses to change."""
        return resharding.piece_of(self.state_dict[index.fqn], index)

    def transform_tensor(self, read_item: ReadItem, tensor: fb.Tensor) -> fb.Tensor:
        """The part of `tensor` that `read_item` fills; for subclasses to change."""
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)


def narrowed(tensor: fb.Tensor, offsets: Any, lengths: Any) -> fb.Tensor:
    """The part of `tensor` that begins at `offsets` and has the shape `lengths`."""
    for dim, (begin, length) in enumerate(zip(offsets, lengths, strict=True)):
        if tensor.size(dim) != length:
            tensor = tensor.narrow(dim, begin, length)
    return tensor


# -- plans ---------------------------------------------------------------------------------------------------------------


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """What a rank could write of `state_dict`: all it has; who writes what several have is decided for all ranks together."""
    return SavePlan([item for name, value in state_dict.items() for item in resharding.write_items(name, value)])


def create_default_global_save_plan(all_plans: list[SavePlan], rewrite_index_hints: bool = True) -> tuple[list[SavePlan], Metadata]:
    """The plans of all ranks, whose pieces know their place now, and what the checkpoint holds then.

    Raises: RuntimeError if one name stands for a tensor and something else, or for tensors of different shapes.
    """
    about: dict[str, Any] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            name = item.index.fqn
            if item.type is WriteItemType.BYTE_IO:
                if not isinstance(about.setdefault(name, BytesStorageMetadata()), BytesStorageMetadata):
                    raise RuntimeError(f"checkpoint: {name} is a tensor on one rank and none on another")
                items.append(item)
                continue
            data = item.tensor_data
            if data is None:
                raise AssertionError(f"The item {name} to write is a tensor, and its plan does not say which piece of it")
            known = about.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(known, TensorStorageMetadata) or known.size != data.size:
                raise RuntimeError(f"checkpoint: {name} differs between ranks: {getattr(known, 'size', 'no tensor')} and {data.size}")
            hinted = replace(item, index=replace(item.index, index=len(known.chunks))) if rewrite_index_hints else item
            items.append(hinted)
            known.chunks.append(data.chunk)
        plans.append(replace(plan, items=items))
    return plans, Metadata(about, version=_VERSION)


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """What a rank reads to fill `state_dict`.

    Raises: RuntimeError for a name that the checkpoint does not have, if `strict`; ValueError for a tensor of another shape.
    """
    items: list[ReadItem] = []
    for name, value in state_dict.items():
        if name not in metadata.state_dict_metadata:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            continue
        about = metadata.state_dict_metadata[name]
        if isinstance(about, TensorStorageMetadata) and getattr(value, "size", None) is not None and about.size != value.size():
            raise ValueError(f"Size mismatch between saved {about.size} and current: {value.size()} for {name}")
        items += resharding.read_items(name, about, value)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """Each rank reads what it needs."""
    return all_plans


def _without_duplicates(plans: list[SavePlan], to_lowest_rank: bool) -> list[SavePlan]:
    """What several ranks could write stays with one: the one that has least to write so far, or the lowest."""
    ranks: dict[MetadataIndex, list[int]] = defaultdict(list)
    sizes: dict[MetadataIndex, int] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            ranks[item.index].append(rank)
            sizes[item.index] = item.tensor_storage_size() or 1
    load = [0] * len(plans)
    dropped: list[set[MetadataIndex]] = [set() for _ in plans]
    for index, having in ranks.items():
        chosen = min(having) if to_lowest_rank else min(having, key=lambda rank: load[rank])
        load[chosen] += sizes[index]
        for rank in having:
            if rank != chosen:
                dropped[rank].add(index)
    return [replace(p, items=[i for i in p.items if i.index not in away]) for p, away in zip(plans, dropped, strict=True)]


def _check_complete(plans: list[SavePlan], metadata: Metadata) -> None:
    """Refuse plans whose pieces lie outside their tensor, overlap, or leave some of it out. Raises: ValueError."""
    for name, about in metadata.state_dict_metadata.items():
        if isinstance(about, BytesStorageMetadata):
            continue
        about = cast(TensorStorageMetadata, about)
        chunk_of_all = ChunkStorageMetadata(fb.Size([0] * len(about.size)), about.size)
        covered = 0
        for at, chunk in enumerate(about.chunks):
            if any(o < 0 or o + n > m for o, n, m in zip(chunk.offsets, chunk.sizes, about.size, strict=True)):
                where = f"a piece of {name} at {tuple(chunk.offsets)} lies outside {tuple(about.size)}"
                raise ValueError(f"Failed to validate global plan: {where}")
            covered += math.prod(chunk.sizes)
            for other in about.chunks[at + 1 :]:
                if (common := resharding.overlap(chunk, other)) is not None and math.prod(common[2]):
                    where = f"two ranks write the same part of {name}, at {tuple(other.offsets)}"
                    raise ValueError(f"Failed to validate global plan: {where}")
        if covered != math.prod(chunk_of_all.sizes):
            found = f"the pieces of {name} are {covered} elements of {math.prod(chunk_of_all.sizes)}"
            raise ValueError(f"Failed to validate global plan: {found}")
    seen = {without_hint(item.index) for plan in plans for item in plan.items}
    if len(seen) != sum(len(plan.items) for plan in plans):
        raise ValueError("Failed to validate global plan: something is written twice")
