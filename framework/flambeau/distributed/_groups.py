"""The groups that this process is in: their backends, ranks and sizes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import flambeau as fb

from .. import _state
from ._engine import ProcessGroup
from ._reduce import RedOpType, ReduceOp, premul_sum
from ._stores import Store

default_pg_timeout = timedelta(minutes=30)
_make_nccl_premul_sum = premul_sum


class reduce_op:
    """The old name of `ReduceOp`."""

    SUM = ReduceOp.SUM
    PRODUCT = ReduceOp.PRODUCT
    MIN = ReduceOp.MIN
    MAX = ReduceOp.MAX


@dataclass
class _DistributedBackendOptions:
    """What an engine's function is told of the group that it is to make.

    Args:
        store: a store with keys of this group alone.
        group_rank: this process's rank in the group.
        group_size: how many ranks it has.
        timeout: how long calls wait for other ranks.
        group_id: the group's name.
        global_ranks_in_group: the members, ranks of the job; none for the group of all.
    """

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str
    global_ranks_in_group: list[int]


class Backend(str):
    """The name of an engine, in small letters.

    Args:
        name: "gloo", "fake", or one that `register_backend` was told; "cpu:gloo" names it for a device.
    Raises: ValueError for a name that is no string.
    """

    UNDEFINED: ClassVar[str] = "undefined"
    GLOO: ClassVar[str] = "gloo"
    NCCL: ClassVar[str] = "nccl"
    UCC: ClassVar[str] = "ucc"
    MPI: ClassVar[str] = "mpi"
    XCCL: ClassVar[str] = "xccl"
    FAKE: ClassVar[str] = "fake"
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": "gloo", "cuda": "nccl"}
    backend_list: ClassVar[list[str]] = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake"]
    _makers: ClassVar[dict[str, tuple[Callable[..., ProcessGroup], bool]]] = {}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend: name must be a string, got {type(name).__name__}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Callable[..., ProcessGroup], extended_api: bool = False, devices: Any = None) -> None:
        """Let `init_process_group` make groups of another engine.

        Args:
            name: the engine's name.
            func: called with ``(store, rank, world_size, timeout)``; returns a `ProcessGroup`.
            extended_api: whether `func` is called with a `_DistributedBackendOptions` and the `pg_options` of the group instead.
            devices: kinds of devices it works on; taken for compatibility.
        Raises: RuntimeError for a name that is taken.
        """
        if name.lower() in cls._makers or name.lower() in ("gloo", "fake"):
            raise RuntimeError(f"Backend.register_backend: {name} is registered already")
        cls._makers[name.lower()] = (func, extended_api)
        setattr(cls, name.upper(), name.lower())
        if name.lower() not in cls.backend_list:
            cls.backend_list.append(name.lower())


def _made_by_program(engine: str, options: _DistributedBackendOptions, pg_options: Any) -> ProcessGroup:
    """The group of an engine that `Backend.register_backend` was told."""
    make, extended = Backend._makers[engine]
    if extended:
        return make(options, pg_options)
    return make(options.store, options.group_rank, options.group_size, options.timeout)


class _World:
    """What this process knows of its job."""

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.store: Store | None = None
        self.mesh: Any = None
        self.prefixed: Any = None  # the store, with keys of this start of the job alone
        self.groups: dict[ProcessGroup, tuple[list[int], str]] = {}
        self.count = 0
        self.local: dict[tuple[int, ...], int] = {}  # how many groups were made by their members alone
        self.close: list[Callable[[], None]] = []


_world = _World()


class _GroupMember:
    NON_GROUP_MEMBER = -100

    @property
    def WORLD(self) -> ProcessGroup | None:
        """The group of all ranks, or None."""
        return _world.default


class _Group(_GroupMember):
    pass


group = _Group()
GroupMember = _GroupMember()


def _get_default_group() -> ProcessGroup:
    """The group of all ranks. Raises: ValueError before `init_process_group`."""
    if _world.default is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default


# Queries


def is_available() -> bool:
    """Whether there is `flambeau.distributed`: True."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` has been called, and `destroy_process_group` not since."""
    return _world.default is not None


def is_gloo_available() -> bool:
    """Whether there is the engine gloo: True."""
    return True


def is_mpi_available() -> bool:
    """Whether there is the engine mpi: the package `mpi4py`."""
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None


def is_nccl_available() -> bool:
    """Whether there is the engine nccl: a CUDA device, and cupy with NCCL."""
    from ._nccl import why_not

    return why_not() == ""


def is_ucc_available() -> bool:
    """Whether there is the engine ucc: the package `mpi4py`, and an Open MPI that was built with UCC."""
    from ._ucc import why_not

    return why_not() == ""


def is_xccl_available() -> bool:
    """Whether there is the engine xccl: False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether there is the engine `backend`."""
    name = backend.lower()
    if name in ("mpi", "nccl", "ucc") and name not in Backend._makers:
        return {"mpi": is_mpi_available, "nccl": is_nccl_available, "ucc": is_ucc_available}[name]()
    return name in ("gloo", "fake") or name in Backend._makers or _of_entry_point(name)


def _of_entry_point(name: str) -> bool:
    """Whether an installed package offers the engine `name` by the entry point group ``flambeau.engines``; it is registered then."""
    from importlib.metadata import entry_points

    for found in entry_points(group="flambeau.engines", name=name):
        Backend.register_backend(name, found.load())
        return True
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher such as `flambeau.distributed.run` started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def supports_complex(reduceOp: Any) -> bool:
    """Whether `reduceOp` has a meaning for complex elements."""
    return reduceOp in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM)


def get_default_backend_for_device(device: Any) -> str:
    """The engine for tensors of `device`, a name or a `fb.device`."""
    kind = fb.device(device).type
    if kind not in Backend.default_device_backend_map:
        raise ValueError(
            f"get_default_backend_for_device: there is no engine for {kind}; tensors of the CPU have gloo, those of CUDA nccl"
        )
    return Backend.default_device_backend_map[kind]


def _default() -> ProcessGroup:
    if _world.default is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default


def _group(name: str, group: Any) -> ProcessGroup | None:
    """The group to call; None, with a warning, for a rank outside of it."""
    _state.settle()                                   # memory is about to be read and written by no operation
    found = _default() if group is None else group
    if found == _GroupMember.NON_GROUP_MEMBER:
        import warnings

        warnings.warn(f"Running {name} on global rank {get_rank()} which does not belong to the given group.", stacklevel=3)
        return None
    if not isinstance(found, ProcessGroup):
        raise TypeError(f"{name}: group must be a ProcessGroup, got {type(found).__name__}")
    return found


def _members(group: ProcessGroup) -> list[int]:
    if group not in _world.groups:
        raise ValueError(f"distributed: the group {group.group_name!r} is not registered (it was destroyed, or made by hand)")
    return _world.groups[group][0]


def get_rank(group: Any = None) -> int:
    """The rank of this process in `group`; -1 outside of it."""
    found = _default() if group is None else group
    return -1 if found == _GroupMember.NON_GROUP_MEMBER else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks `group` has; -1 for a process outside of it."""
    found = _default() if group is None else group
    return -1 if found == _GroupMember.NON_GROUP_MEMBER else found.size()


def get_backend(group: Any = None) -> Backend:
    """The name of the engine of `group`."""
    found = _default() if group is None else group
    if found == _GroupMember.NON_GROUP_MEMBER:
        raise ValueError("get_backend: Invalid process group specified: this rank is not in it")
    return Backend(found.name())


def get_backend_config(group: Any = None) -> str:
    """The engine of `group` for each kind of device, such as ``cpu:gloo``."""
    engine = get_backend(group)
    return "cpu:gloo,cuda:nccl" if engine == "nccl" else f"cpu:{engine}"


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks of the job that are in `group`, by their rank there."""
    return list(_members(_default() if group is None else group))


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank within `group` of `global_rank` of the job.

    Raises: ValueError for one outside of it.
    """
    members = _members(group)
    if global_rank not in members:
        raise ValueError(f"Global rank {global_rank} is not part of group {group.group_name!r} with ranks {members}")
    return members.index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank within the job of `group_rank` of `group`.

    Raises: ValueError for one outside of it.
    """
    members = _members(group)
    if not 0 <= group_rank < len(members):
        raise ValueError(f"Group rank {group_rank} is not part of group {group.group_name!r} with ranks {members}")
    return members[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank of this process on its machine, from ``LOCAL_RANK``.

    Args:
        fallback_rank: what to answer without it.
    Raises: RuntimeError without either.
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("get_node_local_rank: LOCAL_RANK is not in the environment; pass fallback_rank to assume one")


def get_pg_count() -> int:
    """How many groups there are in this process."""
    return len(_world.groups)
