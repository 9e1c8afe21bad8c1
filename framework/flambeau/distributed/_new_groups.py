"""Groups of some of the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ._engine import ProcessGroup
from ._groups import (
    Backend,
    _default,
    _DistributedBackendOptions,
    _GroupMember,
    _made_by_program,
    _world,
    get_global_rank,
    get_rank,
    get_world_size,
)
from ._joining import _engine_name, _on_mesh
from ._stores import PrefixStore


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of some ranks; all ranks of the job call this, in one order, with the same ranks.

    Args:
        ranks: the members, ranks of the job; None for all.
        timeout: how long calls wait; that of the job if None.
        backend: the engine; that of the job if None.
        pg_options: as for `init_process_group`.
        device_id: taken for compatibility.
        use_local_synchronization: only the members call.
        group_desc: what the group is for.
    Returns: the group, or `GroupMember.NON_GROUP_MEMBER` on ranks outside of it.
    Raises: ValueError for ranks that are not in the job, or that come twice; RuntimeError for more ranks than the job has.
    """
    default = _default()
    size = default.size()
    members = list(range(size)) if ranks is None else sorted(ranks)
    if len(members) > size:
        raise RuntimeError(
            f"the new group's world size should be less or equal to the world size set by init_process_group: {members} of {size}"
        )
    if len(set(members)) != len(members):
        raise ValueError(f"new_group: a rank comes twice in {members}")
    for member in members:
        if not 0 <= member < size:
            raise ValueError(f"The new group's rank should be within the world_size set by init_process_group: {member} of {size}")
    engine = str(default.name()) if backend is None else _engine_name(backend)
    name = f"ranks {','.join(map(str, members))}"
    if use_local_synchronization:
        # The others do not count it. Members make groups of the same ranks in one order.
        turn = _world.local[tuple(members)] = _world.local.get(tuple(members), 0) + 1
        name += f" (their own, {turn})"
    else:
        _world.count += 1
        name += f" ({_world.count})"
    rank = default.rank()
    if rank not in members:
        if not use_local_synchronization:
            _all_made(default, name)
        return _GroupMember.NON_GROUP_MEMBER
    made = _subgroup(engine, default, members, rank, name, timeout or default.timeout, pg_options)
    made.group_desc = group_desc or ""
    _world.groups[made] = (members, engine)
    if use_local_synchronization:
        made.barrier(None, False)
    else:
        _all_made(default, name)
    return made


def _all_made(default: ProcessGroup, name: str) -> None:
    """Wait until all ranks have made a group of this name: ranks that make different ones are told so."""
    default.barrier(None, False, f"new_group of {name}")


def _subgroup(
    engine: str, default: ProcessGroup, members: list[int], rank: int, name: str, timeout: timedelta, pg_options: Any
) -> ProcessGroup:
    if engine == "fake":
        from ._fake import FakeGroup

        return FakeGroup(members.index(rank), len(members), name, timeout, members)
    if engine in Backend._makers:
        assert _world.store is not None
        store = PrefixStore(name, _world.store)
        options = _DistributedBackendOptions(store, members.index(rank), len(members), timeout, name, members)
        return _made_by_program(engine, options, pg_options)
    if _world.mesh is None:
        raise NotImplementedError(
            f"new_group: a group of gloo in a job of {default.name()} is not built yet; init_process_group('gloo') makes both"
        )
    by_mpi = ("mpi", "ucc")
    if (engine in by_mpi) != (default.name() in by_mpi):
        raise NotImplementedError(f"new_group: a group of {engine} in a job of {default.name()} is not built yet")
    return _on_mesh(engine, members, name, timeout)


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of `group_size` ranks each, in order; this process's, and all.

    Args:
        group_size: ranks in each; it divides their number. None takes the number of devices, which the CPU has one of.
        group: not built; must be None.
        timeout, backend, pg_options, group_desc: as for `new_group`.
    Raises: ValueError for sizes that do not divide.
    """
    if group_size is None:
        raise ValueError("Default group size only takes effect when CUDA is available. Please specify group_size.")
    size = get_world_size()
    if not 0 < group_size <= size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    lists = [list(range(at, at + group_size)) for at in range(0, size, group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """A group for each list of ranks; this process's, and all.

    Args:
        ranks_per_subgroup_list: lists without a common rank.
        timeout, backend, pg_options, group_desc: as for `new_group`.
    Raises: ValueError for a rank in two lists, or for no list.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    flat = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    for rank, times in Counter(flat).items():
        if times > 1:
            raise ValueError(f"Rank {rank} has appeared in both subgroups: new_subgroups_by_enumeration needs lists without a common rank")
    groups = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    mine = next((found for found in groups if found != _GroupMember.NON_GROUP_MEMBER), None)
    return mine, groups


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> Any:
    """Divide a group into several; this process's, or None.

    Args:
        parent_pg: the group, None for that of all ranks.
        split_ranks: lists of ranks of the group; one with this process is the new group.
        timeout, pg_options, group_desc: as for `new_group`.
    Raises: ValueError without lists, or for a rank in two of them.
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = _default() if parent_pg is None else parent_pg
    lists = [[get_global_rank(parent, rank) for rank in ranks] for ranks in split_ranks]
    flat = [rank for ranks in lists for rank in ranks]
    if len(set(flat)) != len(flat):
        raise ValueError(f"split_group: a rank comes twice in {split_ranks}")
    mine = next((ranks for ranks in lists if get_rank() in ranks), None)
    return None if mine is None else new_group(mine, timeout, None, pg_options, True, group_desc)
