"""Joining a job, and leaving it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import flambeau as fb

from ._engine import ProcessGroup
from ._groups import (
    Backend,
    _default,
    _DistributedBackendOptions,
    _GroupMember,
    _made_by_program,
    _world,
    default_pg_timeout,
    is_backend_available,
    is_mpi_available,
)
from ._rendezvous import _address_here, rendezvous
from ._stores import HashStore, PrefixStore, Store


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the job; blocks until all its processes have.

    Args:
        backend: the engine, "gloo" if None; "nccl" for tensors of CUDA devices, which takes those of the CPU as gloo does; "mpi" and
            "ucc" join the processes that mpiexec started, and need nothing else.
        init_method: where the others are found: "env://" (the default), "tcp://host:port", "file:///path".
        timeout: how long calls wait for other ranks; 30 minutes if None.
        world_size, rank: how many processes there are, and which this is; needed with `store`.
        store: a store that all processes see, instead of `init_method`.
        group_name: taken for compatibility.
        pg_options: what an engine of `Backend.register_backend` with `extended_api` is given; taken for compatibility with others.
        device_id: the device of this process: the CPU, or one of CUDA with "nccl"; tensors say where they are, so it is only checked.
    Raises: ValueError if it has been called already, or for arguments that do not fit; NotImplementedError for engines
        that are not built; DistBackendError that names ranks which do not come; RuntimeError for an engine that lacks a
        device or a library, ImportError for one that lacks a package, both saying what to install.
    """
    if _world.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    engine = _engine_name(backend)
    if device_id is not None and fb.device(device_id).type not in ("cpu", "cuda" if engine == "nccl" else "cpu"):
        raise ValueError(f"init_process_group: the engine {engine} does not work on device_id {device_id}; nccl is for CUDA devices")
    timeout = default_pg_timeout if timeout is None else timeout
    if engine in ("mpi", "ucc") and engine not in Backend._makers:
        _join_mpi(engine, rank, world_size, timeout)
        return
    if store is None:
        if engine == "fake":
            raise ValueError("init_process_group: the engine fake needs store=FakeStore(), rank and world_size")
        store, rank, world_size = next(iter(rendezvous(init_method or "env://", rank, world_size, timeout)))
        _world.close.append(getattr(store, "close", getattr(getattr(store, "underlying_store", None), "close", lambda: None)))
    if world_size <= 0 or not 0 <= rank < world_size:
        raise ValueError(f"init_process_group: rank must be in [0, world_size), got rank {rank} and world_size {world_size}")
    try:
        made = _make(engine, store, rank, world_size, timeout, pg_options)
    except BaseException:
        _forget()
        raise
    _world.store = store
    _world.default = made
    _world.groups[made] = (list(range(world_size)), engine)


def _join_mpi(engine: str, rank: int, world_size: int, timeout: timedelta) -> None:
    """Join the processes that mpiexec started; MPI knows how many there are and which this is."""
    from ._mpi import MpiMesh

    mesh = MpiMesh()
    for name, given, real in (("rank", rank, mesh.rank), ("world_size", world_size, mesh.size)):
        if given not in (-1, real):
            mesh.close()
            raise ValueError(f"init_process_group: {name} is {given}, and mpiexec says {real}; leave it out")
    _world.mesh, _world.store = mesh, HashStore()
    _world.default = _on_mesh(engine, range(mesh.size), "default", timeout)
    _world.groups[_world.default] = (list(range(mesh.size)), engine)


def _engine_name(backend: Any) -> str:
    if backend is None:
        return "gloo"
    if str(backend).lower() == "mpi" and not is_mpi_available():
        raise ImportError('init_process_group: the engine mpi needs the package mpi4py: pip install "flambeau[mpi]"')
    name = Backend(backend)
    if ":" in name:
        engines = {device: engine for device, _, engine in (part.partition(":") for part in name.split(","))}
        # The engine of CUDA devices takes tensors of the CPU as gloo does.
        name = Backend(engines["cuda"] if engines.get("cuda") == "nccl" else engines.get("cpu", name))
    if name in ("nccl", "ucc") and name not in Backend._makers:
        from . import _nccl, _ucc

        (_nccl if name == "nccl" else _ucc).require()
    if is_backend_available(name):
        return str(name)
    if name in Backend.backend_list and name != "undefined":
        raise NotImplementedError(
            f"init_process_group: the engine {name} is not built yet; the engines are gloo, fake and those of Backend.register_backend"
        )
    raise ValueError(
        f"Invalid backend: '{backend}'; there are gloo, fake{''.join(', ' + known for known in Backend._makers)}"
    )


def _make(engine: str, store: Store, rank: int, size: int, timeout: timedelta, pg_options: Any) -> ProcessGroup:
    if engine == "fake":
        from ._fake import FakeGroup

        return FakeGroup(rank, size, "default", timeout)
    if engine in Backend._makers:
        options = _DistributedBackendOptions(PrefixStore("default", store), rank, size, timeout, "default", [])
        return _made_by_program(engine, options, pg_options)
    from ._mesh import Mesh

    # A job that ends and begins again on one store has new keys.
    prefixed = PrefixStore(f"gloo/{_generation(store, rank)}", store)
    _world.mesh = Mesh(prefixed, rank, size, timeout.total_seconds(), _address_here(store))
    _world.prefixed = prefixed
    return _on_mesh(engine, range(size), "default", timeout)


def _on_mesh(engine: str, members: Sequence[int], name: str, timeout: timedelta) -> ProcessGroup:
    """A group of `engine` on the connections of this job."""
    if engine == "nccl":
        from ._nccl import NcclGroup

        return NcclGroup(_world.mesh, members, name, timeout, PrefixStore(f"nccl/{name}", _world.prefixed))
    from ._gloo import GlooGroup
    from ._mpi import MpiGroup
    from ._ucc import UccGroup

    return {"mpi": MpiGroup, "ucc": UccGroup}.get(engine, GlooGroup)(_world.mesh, members, name, timeout)


def _generation(store: Store, rank: int) -> int:
    return store.add(f"gloo/generation/{rank}", 1)


def _forget() -> None:
    for close in _world.close:
        close()
    _world.__init__()


@contextlib.contextmanager
def _own_world() -> Iterator[None]:
    """Inside of it this process is in no job; afterwards it is again in that which it was in."""
    before = dict(_world.__dict__)
    _world.__init__()
    try:
        yield
    finally:
        _world.__dict__.update(before)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave `group`; None leaves all groups and the job.

    Raises: ValueError for a group that is not there, or without `init_process_group`.
    """
    if group == _GroupMember.NON_GROUP_MEMBER:
        return
    found = _default() if group is None else group
    if found not in _world.groups:
        raise ValueError("Invalid process group specified")
    if found is not _world.default:
        found.close()
        del _world.groups[found]
        return
    for member in list(_world.groups):
        member.close()
    if _world.mesh is not None:
        _world.mesh.close()
    _forget()
