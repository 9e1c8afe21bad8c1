"""From checkpoints to files of `flambeau.save`, and back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import flambeau as fb

from ...futures import Future
from .. import distributed_c10d as dist
from . import resharding
from ._nested import flatten_state_dict, set_element
from .default_planner import (
    DefaultLoadPlanner,
    create_default_global_save_plan,
    create_default_local_save_plan,
)
from .filesystem import FileSystemReader, FileSystemWriter, _fill
from .metadata import STATE_DICT_TYPE, BytesStorageMetadata, Metadata
from .planner import LoadItemType, LoadPlan, LoadPlanner
from .state_dict_loader import _load_state_dict
from .state_dict_saver import _save
from .storage import CheckpointId, StorageReader

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Loads what a checkpoint holds into an empty dict.

    Args:
        keys: the names to be loaded, or beginnings of the paths to them, joined by dots; None for all.
    """

    def __init__(self, keys: Iterable[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = None if keys is None else frozenset(keys)
        super().__init__(*args, **kwargs)

    def _wants(self, name: str, path: tuple[Any, ...]) -> bool:
        if self.keys is None or name in self.keys:
            return True
        return any(".".join(map(str, path[:length])) in self.keys for length in range(1, len(path) + 1))

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        if state_dict or metadata is None:
            raise AssertionError("dcp_to_torch_save: loads into an empty dict")
        paths = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
        wanted = {
            name: about for name, about in metadata.state_dict_metadata.items() if self._wants(name, paths.get(name, (name,)))
        }  # fmt: skip
        for name, about in wanted.items():
            made = None if isinstance(about, BytesStorageMetadata) else fb.empty(about.size, dtype=about.properties.dtype)
            set_element(state_dict, paths.get(name, (name,)), made)
        self.original_state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator
        self.mappings = {name: paths.get(name, (name,)) for name in wanted}
        self.state_dict = {name: _value_at(state_dict, path) for name, path in self.mappings.items()}


def _value_at(root: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        root = root[key]
    return root


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]) -> None:
    """Write the checkpoint in the folder `dcp_checkpoint_dir` as one file of `save`; keys of dicts are text in it.

    Raises: CheckpointException if the checkpoint cannot be read.
    """
    found: STATE_DICT_TYPE = {}
    _load_state_dict(found, FileSystemReader(dcp_checkpoint_dir), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    fb.save(found, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]) -> None:
    """Write what the file `torch_save_path` of `save` holds, a dict, as a checkpoint into the folder `dcp_checkpoint_dir`.

    Raises: what `load` raises; TypeError if the file holds no dict.
    """
    from ._ranks import Ranks

    found = fb.load(torch_save_path, map_location="cpu")
    if not isinstance(found, dict):
        raise TypeError(f"torch_save_to_dcp: {os.fspath(torch_save_path)} holds a {type(found).__name__}, and a checkpoint is a dict")
    _save(found, FileSystemWriter(dcp_checkpoint_dir), Ranks(no_dist=True), None)


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `save` on one rank, which sends the others what they need. Only tensors, with `DynamicMetaLoadPlanner`.

    Args:
        checkpoint_id: the file.
        coordinator_rank: the rank that reads.
    """

    def __init__(self, checkpoint_id: CheckpointId = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id = checkpoint_id
        self.coordinator_rank = coordinator_rank

    def read_metadata(self) -> Metadata:
        return Metadata({})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        together = dist.is_available() and dist.is_initialized()
        parts = {}
        if self.is_coordinator:
            if self.checkpoint_id is None:
                raise AssertionError("BroadcastingTorchSaveReader: no file was given: load(..., checkpoint_id=path)")
            parts = flatten_state_dict(fb.load(self.checkpoint_id, map_location="cpu"))[0]
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                name = item.storage_index.fqn
                raise RuntimeError(f"Non-tensor value identified at {name}. BroadcastingTorchSaveReader loads tensors alone")
            values = parts.get(item.storage_index.fqn)
            if together:
                box = [values]
                dist.broadcast_object_list(box, src=self.coordinator_rank)
                values = box[0]
            if values is None:
                raise RuntimeError(f"{self.checkpoint_id} holds no {item.storage_index.fqn}")
            _fill(planner, item, values)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        self.is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        if checkpoint_id:
            self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes what is to be read from the state dict itself, where a file says nothing about its contents."""

    def set_up_planner(self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        about: dict[str, Any] = {}
        for name, value in self.state_dict.items():
            if not isinstance(value, fb.Tensor):
                raise RuntimeError(f"Non-tensor value identified at {name}. DynamicMetaLoadPlanner loads tensors alone")
            plan = create_default_global_save_plan([create_default_local_save_plan({name: value}, is_coordinator)])[1]
            about[name] = plan.state_dict_metadata[name]
            # A piece of this rank is a part of the whole that the file holds.
            about[name].chunks = [resharding.ChunkStorageMetadata(fb.Size([0] * len(about[name].size)), about[name].size)]
        self.metadata = Metadata(about)
