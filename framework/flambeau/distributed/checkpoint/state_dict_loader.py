"""Loading into a state dict that several ranks hold."""

from __future__ import annotations

import os
from typing import Any

from ..._warn import warn_once
from ._ranks import Ranks
from .default_planner import DefaultLoadPlanner
from .filesystem import FileSystemReader
from .metadata import STATE_DICT_TYPE
from .planner import LoadPlan, LoadPlanner
from .stateful import Stateful
from .storage import StorageReader

__all__ = ["load", "load_state_dict"]


def load(
    state_dict: STATE_DICT_TYPE, *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None, planner: LoadPlanner | None = None, process_group: Any = None,
    no_dist: bool = False,
) -> None:  # fmt: skip
    """Load a checkpoint into `state_dict`, whose tensors are filled in place and whose other values are replaced.

    It may have been saved by another number of ranks, in other pieces: each rank reads what overlaps with its own. Of a checkpoint that
    was saved with ``use_collectives=False`` each rank reads what the rank of its number saved.

    Args:
        state_dict: as for `save`, with tensors of the shapes that were saved; objects with `load_state_dict` are given theirs.
        checkpoint_id: what `storage_reader` takes for a place; a folder by default.
        storage_reader: reads; a `FileSystemReader` by default.
        planner: decides what is read; a `DefaultLoadPlanner` by default.
        process_group: the ranks that load; all by default.
        no_dist: load alone.
    Raises: CheckpointException, on all ranks, if one failed, as for a missing name or another shape; RuntimeError without
        `checkpoint_id` and `storage_reader`.
    """
    reader = storage_reader
    if reader is None:
        if not checkpoint_id:
            raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
        if not FileSystemReader.validate_checkpoint_id(checkpoint_id):
            raise RuntimeError(f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id}. Please specify it.")
        reader = FileSystemReader(checkpoint_id)
    reader.reset(checkpoint_id)
    ranks = Ranks(process_group, no_dist)
    if not ranks.together and not no_dist:
        warn_once("checkpoint.load: there is no process group: this process alone loads")
    # All ranks visit the same names, whatever order their dicts are in.
    names = sorted({name for each in ranks.each("plan", lambda: sorted(state_dict)) for name in each})
    found = {}
    for name in names:
        if name in state_dict:
            value = state_dict[name]
            found[name] = value.state_dict() if isinstance(value, Stateful) else value
    _load(found, reader, ranks, planner)
    for name in names:
        if name in state_dict:
            if isinstance(state_dict[name], Stateful):
                state_dict[name].load_state_dict(found[name])
            else:
                state_dict[name] = found[name]


def load_state_dict(
    state_dict: STATE_DICT_TYPE, storage_reader: StorageReader, process_group: Any = None, coordinator_rank: int = 0,
    no_dist: bool = False, planner: LoadPlanner | None = None,
) -> None:  # fmt: skip
    """As `load`, which has taken its place.

    Args:
        coordinator_rank: the rank, in the group, that plans for all.
    """
    warn_once("'load_state_dict' is deprecated and will be removed in future versions. Please use 'load' instead.", FutureWarning)
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _load_state_dict(
    state_dict: STATE_DICT_TYPE, storage_reader: StorageReader, process_group: Any = None, coordinator_rank: int = 0,
    no_dist: bool = False, planner: LoadPlanner | None = None,
) -> None:  # fmt: skip
    """As `load_state_dict`, from a reader that has been told where it reads; a private name of PyTorch that programs use."""
    _load(state_dict, storage_reader, Ranks(process_group, no_dist, coordinator_rank), planner)


def _load(state_dict: STATE_DICT_TYPE, reader: StorageReader, ranks: Ranks, planner: LoadPlanner | None) -> None:
    plans = planner or DefaultLoadPlanner()

    def local() -> LoadPlan:
        metadata = reader._metadata_for(ranks.rank)
        plans.set_up_planner(state_dict, metadata, ranks.coordinates)
        reader.set_up_storage_reader(metadata, ranks.coordinates)
        return reader.prepare_local_plan(plans.create_local_plan())

    all_plans = ranks.each("plan", local)
    central = ranks.one("plan", lambda: reader.prepare_global_plan(plans.create_global_plan(all_plans)))
    ranks.each("read", lambda: reader.read_data(plans.finish_plan(central[ranks.at]), plans).wait())
