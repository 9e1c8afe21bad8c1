"""Saving a state dict that several ranks hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

from ..._warn import warn_once
from ._ranks import Ranks
from .api import CheckpointException
from .default_planner import DefaultSavePlanner
from .filesystem import FileSystemWriter
from .metadata import STATE_DICT_TYPE, Metadata
from .planner import SavePlan, SavePlanner
from .staging import AsyncStager, BlockingAsyncStager
from .stateful import Stateful
from .storage import StorageWriter, WriteResult

__all__ = ["AsyncCheckpointerType", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """What `async_save` saves in: a thread, or a process of its own."""

    THREAD = "thread"
    PROCESS = "process"


def save(
    state_dict: STATE_DICT_TYPE, *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None, planner: SavePlanner | None = None, process_group: Any = None,
    no_dist: bool = False, use_collectives: bool = True,
) -> Metadata:  # fmt: skip
    """Save `state_dict`, of which each rank of `process_group` holds all or parts; without process group, this process's.

    Args:
        state_dict: nested dicts and lists of tensors and plain values; objects with `state_dict` and `load_state_dict` are asked
            for theirs.
        checkpoint_id: what `storage_writer` takes for a place; a folder by default.
        storage_writer: writes; a `FileSystemWriter` by default.
        planner: decides who writes what; a `DefaultSavePlanner` by default.
        process_group: the ranks that save; all by default.
        no_dist: save alone.
        use_collectives: False lets each rank save what it has by itself, with metadata of its own: no rank waits for another. The ranks
            that load it have each what the rank of their number saved.
    Returns: what the checkpoint holds.
    Raises: CheckpointException, on all ranks, if one failed; what was saved there before is whole then. RuntimeError without
        `checkpoint_id` and `storage_writer`.
    """
    writer = _writer(storage_writer, checkpoint_id)
    ranks = Ranks(process_group, no_dist, separate=not use_collectives)
    if not ranks.together and not no_dist and use_collectives:
        warn_once("checkpoint.save: there is no process group: the state dict of this process alone is saved")
    return _save(_plain(state_dict), writer, ranks, planner)


def save_state_dict(
    state_dict: STATE_DICT_TYPE, storage_writer: StorageWriter, process_group: Any = None, coordinator_rank: int = 0,
    no_dist: bool = False, planner: SavePlanner | None = None,
) -> Metadata:  # fmt: skip
    """As `save`, which has taken its place.

    Args:
        coordinator_rank: the rank, in the group, that plans for all.
    """
    warn_once("'save_state_dict' is deprecated and will be removed in future versions. Please use 'save' instead.", FutureWarning)
    storage_writer.reset()
    return _save(state_dict, storage_writer, Ranks(process_group, no_dist, coordinator_rank), planner)


def async_save(
    state_dict: STATE_DICT_TYPE, *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None, planner: SavePlanner | None = None, process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD, async_stager: AsyncStager | None = None,
    no_dist: bool = False, use_collectives: bool = True,
) -> Future[Metadata]:  # fmt: skip
    """As `save`, in a thread of its own, of a copy that is made before this returns.

    The thread calls collectives in a group of its own, so the program's go on meanwhile.

    Args:
        async_checkpointer_type: PROCESS leaves the writing to a process beside this one, which is started by the first such save and
            imports the program's main module: a script keeps what it does below ``if __name__ == "__main__":``. The writer is
            pickled to get there.
        async_stager: makes the copy; the writer if it can, else a `BlockingAsyncStager`.
    Returns: a future of what `save` returns; its `result()` raises what `save` would.
    """
    from ._saver_process import background_group, write_in_process

    write = write_in_process if async_checkpointer_type is AsyncCheckpointerType.PROCESS else _write
    writer = _writer(storage_writer, checkpoint_id)
    stager: Any = async_stager or (writer if isinstance(writer, AsyncStager) else BlockingAsyncStager())
    staged = stager.stage(_plain(state_dict))
    alone = no_dist or not use_collectives
    ranks = Ranks(process_group if alone else background_group(process_group), no_dist, separate=not use_collectives)

    def run() -> Metadata:
        try:
            return _save(staged, writer, ranks, planner, write)
        except BaseException as error:
            from .api import CheckpointException

            # A future carries exceptions; this one is none, so that ranks stop together, which a thread does not.
            if isinstance(error, CheckpointException):
                raise RuntimeError(f"checkpoint.async_save failed: {error}") from error
            raise

    executor = ThreadPoolExecutor(1, "flambeau checkpoint")
    found = executor.submit(run)
    executor.shutdown(wait=False)
    if stager.should_synchronize_after_execute:
        stager.synchronize_staging()
    return found


def _plain(state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def _writer(given: StorageWriter | None, checkpoint_id: Any) -> StorageWriter:
    if given is None:
        if not checkpoint_id:
            raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
        if not FileSystemWriter.validate_checkpoint_id(checkpoint_id):
            raise RuntimeError(f"Cannot detect which StorageReader or StorageWriter to use for {checkpoint_id}. Please specify it.")
        given = FileSystemWriter(checkpoint_id)
    given.reset(checkpoint_id)
    return given


def _write(writer: StorageWriter, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
    return writer.write_data(plan, planner).wait()


def _save(
    state_dict: STATE_DICT_TYPE, writer: StorageWriter, ranks: Ranks, planner: SavePlanner | None,
    write: Callable[[StorageWriter, SavePlan, SavePlanner], list[WriteResult]] = _write,
) -> Metadata:  # fmt: skip
    plans = planner or DefaultSavePlanner()
    found: list[Metadata] = []

    def local() -> SavePlan:
        plans.set_up_planner(state_dict, writer.storage_meta(), ranks.coordinates)
        plans._separate = ranks.separate
        if ranks.separate:
            writer.set_up_storage_writer(ranks.coordinates, rank=ranks.rank, use_collectives=False)
        else:
            writer.set_up_storage_writer(ranks.coordinates)
        return writer.prepare_local_plan(plans.create_local_plan())

    all_plans = ranks.each("plan", local)

    def together() -> list[SavePlan]:
        central, metadata = plans.create_global_plan(all_plans)
        found.append(metadata)
        return writer.prepare_global_plan(central)

    central = ranks.one("plan", together)
    try:
        results = ranks.each("write", lambda: write(writer, plans.finish_plan(central[ranks.at]), plans))
    except CheckpointException:
        writer.discard()
        raise

    def finish() -> Metadata:
        writer.finish(found[0], results)
        return found[0]

    return ranks.one("write", finish)
