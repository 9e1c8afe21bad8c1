"""A process beside this one that writes the data of checkpoints."""

from __future__ import annotations

import concurrent.futures
import weakref
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from ... import multiprocessing
from .. import distributed_c10d as dist
from .planner import SavePlan, SavePlanner, WriteItem
from .storage import StorageWriter, WriteResult

__all__ = ["background_group", "write_in_process"]

_executor: concurrent.futures.ProcessPoolExecutor | None = None
_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def background_group(group: Any) -> Any:
    """A group of the same ranks for calls beside those of the program, which come in another order on each rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return group
    given = dist._default() if group is None else group
    found = _groups.get(given)
    if found is None or found not in dist._world.groups:
        members = dist.get_process_group_ranks(given)
        found = dist.new_group(members, use_local_synchronization=True, group_desc="checkpoint.async_save")
        _groups[given] = found
    return found


def write_in_process(writer: StorageWriter, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
    """`writer.write_data` in the other process, which is started by the first call and kept.

    Tensors get there in shared memory. What the writer has come to know there is known to it here afterwards.

    Raises: what writing raises; RuntimeError if the process dies.
    """
    global _executor
    if _executor is None:
        _executor = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    data = [planner.resolve_data(item) for item in plan.items]
    try:
        results, state = _executor.submit(_write, writer, plan, data).result()
    except BrokenProcessPool as error:
        _executor = None  # the next save starts another one
        raise RuntimeError(f"checkpoint.async_save: the process that writes has died: {error}") from error
    vars(writer).update(state)
    return results


def _write(writer: StorageWriter, plan: SavePlan, data: list[Any]) -> tuple[list[WriteResult], dict[str, Any]]:
    try:
        results = writer.write_data(plan, _Resolved(plan, data)).wait()
    except BaseException:
        writer.discard()
        raise
    return results, dict(vars(writer))


class _Resolved(SavePlanner):
    """The data of a plan that another process has made."""

    def __init__(self, plan: SavePlan, data: list[Any]) -> None:
        self._data = {(item.index, item.type): value for item, value in zip(plan.items, data, strict=True)}

    def resolve_data(self, write_item: WriteItem) -> Any:
        return self._data[write_item.index, write_item.type]

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        raise AssertionError("the plan is made already")

    def create_local_plan(self) -> SavePlan:
        raise AssertionError("the plan is made already")

    def create_global_plan(self, all_plans: list[SavePlan]) -> Any:
        raise AssertionError("the plan is made already")

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        raise AssertionError("the plan is made already")
