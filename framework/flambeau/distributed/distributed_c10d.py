"""Process groups, and the collective and point-to-point calls on them."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import flambeau as fb

from .. import _state
from ._engine import ProcessGroup, Work
from ._errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from ._ledger import ledger
from ._pack import allow_pickle, pack, unpack
from ._reduce import RedOpType, ReduceOp, premul_sum
from ._stores import FileStore, HashStore, PrefixStore, Store, TCPStore

__all__ = [
    "Backend", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "GroupMember",
    "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "QueueEmptyError", "ReduceOp", "Store", "TCPStore", "Work",
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "allow_pickle", "barrier", "batch_isend_irecv",
    "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather", "gather_object",
    "get_backend", "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank",
    "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
    "is_available", "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "isend", "ledger", "monitored_barrier",
    "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce", "reduce_op",
    "reduce_scatter", "reduce_scatter_tensor", "register_rendezvous_handler", "rendezvous", "scatter",
    "scatter_object_list", "send", "send_object_list", "split_group", "supports_complex",
]  # fmt: skip

default_pg_timeout = timedelta(minutes=30)
_make_nccl_premul_sum = premul_sum


class reduce_op:
    """The old name of `ReduceOp`."""

    SUM = ReduceOp.SUM
    PRODUCT = ReduceOp.PRODUCT
    MIN = ReduceOp.MIN
    MAX = ReduceOp.MAX


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
    def register_backend(
        cls, name: str, func: Callable[..., ProcessGroup], extended_api: bool = False, devices: Any = None
    ) -> None:
        """Let `init_process_group` make groups of another engine.

        Args:
            name: the engine's name.
            func: called with ``(store, rank, world_size, timeout)``; returns a `ProcessGroup`.
            extended_api: not built; must be False.
            devices: kinds of devices it works on; taken for compatibility.
        Raises: RuntimeError for a name that is taken.
        """
        if name.lower() in cls._makers or name.lower() in ("gloo", "fake"):
            raise RuntimeError(f"Backend.register_backend: {name} is registered already")
        if extended_api:
            raise NotImplementedError(
                "Backend.register_backend: extended_api is not built yet; take (store, rank, world_size, timeout)"
            )
        cls._makers[name.lower()] = (func, False)
        setattr(cls, name.upper(), name.lower())
        if name.lower() not in cls.backend_list:
            cls.backend_list.append(name.lower())


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
_lock = threading.Lock()


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
        raise ValueError(
            f"distributed: the group {group.group_name!r} is not registered (it was destroyed, or made by hand)"
        )
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


# Coming together


_handlers: dict[str, Callable[..., Iterator[tuple[Store, int, int]]]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[tuple[Store, int, int]]]) -> None:
    """Let `init_method` begin with another scheme.

    Args:
        scheme: what stands before "://".
        handler: called with the URL; yields ``(store, rank, world_size)``.
    Raises: RuntimeError for a scheme that is taken.
    """
    if scheme in _handlers or scheme in ("tcp", "file", "env"):
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: timedelta = default_pg_timeout, **kwargs: Any
) -> Iterator[tuple[Store, int, int]]:
    """Yield the store, rank and number of ranks that `url` leads to.

    Args:
        url: "env://", "tcp://host:port" or "file:///path", with ``rank`` and ``world_size`` as a query if they are not given.
        rank, world_size: which process this is, of how many; -1 leaves it to the URL or the environment.
        timeout: how long the store waits.
    Raises: ValueError or RuntimeError for what is missing.
    """
    from urllib.parse import parse_qs, urlparse

    if not isinstance(url, str):
        raise RuntimeError(f"`init_method` must be a string. {type(url)}: {url}")
    parts = urlparse(url)
    query = {name: int(values[-1]) for name, values in parse_qs(parts.query).items() if name in ("rank", "world_size")}
    rank = rank if rank != -1 else query.get("rank", -1)
    world_size = world_size if world_size != -1 else query.get("world_size", -1)
    if parts.scheme in _handlers:
        yield from _handlers[parts.scheme](url, **kwargs)
    elif parts.scheme == "env":
        yield _from_environment(rank, world_size, timeout)
    elif parts.scheme == "tcp":
        if not parts.port:
            raise ValueError(f"Error initializing torch.distributed using tcp:// rendezvous: port number missing in {url!r}")
        _need("tcp", rank=rank, world_size=world_size)
        yield TCPStore(parts.hostname or "127.0.0.1", parts.port, world_size, rank == 0, timeout), rank, world_size
    elif parts.scheme == "file":
        path = parts.path
        if not path:
            raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
        _need("file", rank=rank, world_size=world_size)
        store = FileStore(path, world_size)
        store.set_timeout(timeout)
        yield store, rank, world_size
    else:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")


def _need(scheme: str, **given: int) -> None:
    for name, value in given.items():
        if value == -1:
            raise ValueError(
                f"Error initializing torch.distributed using {scheme}:// rendezvous: {name.replace('_', ' ')} parameter missing"
            )


def _from_environment(rank: int, world_size: int, timeout: timedelta) -> tuple[Store, int, int]:
    def wanted(name: str) -> str:
        if name not in os.environ:
            raise ValueError(
                f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set"
            )
        return os.environ[name]

    rank = int(wanted("RANK")) if rank == -1 else rank
    world_size = int(wanted("WORLD_SIZE")) if world_size == -1 else world_size
    address, port = wanted("MASTER_ADDR"), int(wanted("MASTER_PORT"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher serves the store, and each start of the workers has keys of its own.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        prefix = os.environ.get("FLAMBEAU_STORE_PREFIX") or f"worker/attempt_{attempt}"
        return PrefixStore(prefix, TCPStore(address, port, None, False, timeout)), rank, world_size
    return TCPStore(address, port, world_size, rank == 0, timeout), rank, world_size


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
        group_name, pg_options: taken for compatibility.
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
        _world.close.append(
            getattr(store, "close", getattr(getattr(store, "underlying_store", None), "close", lambda: None))
        )
    if world_size <= 0 or not 0 <= rank < world_size:
        raise ValueError(f"init_process_group: rank must be in [0, world_size), got rank {rank} and world_size {world_size}")
    try:
        made = _make(engine, store, rank, world_size, timeout)
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


def _address_here(store: Store) -> str:
    """Where this process listens: what the environment says, by address or by the name of an interface, else loopback."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    given = os.environ.get("FLAMBEAU_BIND")
    return _address_of_interface(interface) if interface and given is None else given or "127.0.0.1"


def _address_of_interface(name: str) -> str:
    """The IPv4 address of the network interface `name`. Raises: ValueError if it has none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            found = fcntl.ioctl(asking.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError as error:
            known = ", ".join(interface for _, interface in socket.if_nameindex())
            raise ValueError(
                f"GLOO_SOCKET_IFNAME: the interface {name!r} has no IPv4 address ({error.strerror}); there are {known}"
            ) from None
    return socket.inet_ntoa(found[20:24])


def _make(engine: str, store: Store, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    if engine == "fake":
        from ._fake import FakeGroup

        return FakeGroup(rank, size, "default", timeout)
    if engine in Backend._makers:
        return Backend._makers[engine][0](PrefixStore("default", store), rank, size, timeout)
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


# Groups


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
        pg_options, device_id: taken for compatibility.
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
            raise ValueError(
                f"The new group's rank should be within the world_size set by init_process_group: {member} of {size}"
            )
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
    made = _subgroup(engine, default, members, rank, name, timeout or default.timeout)
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
    engine: str, default: ProcessGroup, members: list[int], rank: int, name: str, timeout: timedelta
) -> ProcessGroup:
    if engine == "fake":
        from ._fake import FakeGroup

        return FakeGroup(members.index(rank), len(members), name, timeout, members)
    if engine in Backend._makers:
        assert _world.store is not None
        return Backend._makers[engine][0](PrefixStore(name, _world.store), members.index(rank), len(members), timeout)
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
            raise ValueError(
                f"Rank {rank} has appeared in both subgroups: new_subgroups_by_enumeration needs lists without a common rank"
            )
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


# Collectives


def _tensor(name: str, argument: str, value: Any) -> Any:
    if not isinstance(value, fb.Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type torch.Tensor, but got {type(value)} instead ({name})."
        )
    return value


def _tensors(name: str, argument: str, values: Any) -> list[Any]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, fb.Tensor) for value in values):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type List[torch.Tensor] ({name}), got {type(values).__name__}."
        )
    return list(values)


def _peer(
    name: str, found: ProcessGroup, rank: int | None, group_rank: int | None, what: str, default: int | None = None
) -> int:
    """The rank within `found` that `rank` of the job or `group_rank` says."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"{name}: Can't specify both {what} and group_{what}")
    if group_rank is not None:
        if not 0 <= group_rank < found.size():
            raise ValueError(f"{name}: group_{what} {group_rank} is not in a group of {found.size()} ranks")
        return group_rank
    if rank is None:
        if default is None:
            raise ValueError(f"{name}: Must specify {what} or group_{what}")
        rank = default
    return get_group_rank(found, rank)


def _out(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combine the `tensor` of all ranks, in place; all get the same bits.

    Args:
        tensor: same dtype and shape on all ranks.
        op: a `ReduceOp`.
        group: the ranks that take part; None for all.
        async_op: return a `Work` at once.
    Raises: DistBackendError, on all ranks, when ranks called different things; ValueError or RuntimeError for an `op` that
        the dtype does not have.
    """
    _tensor("all_reduce", "tensor", tensor)
    found = _group("all_reduce", group)
    return None if found is None else _out(found.all_reduce([tensor], op, async_op), async_op)


def all_reduce_coalesced(
    tensors: Sequence[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several `tensors` of one dtype in one call; see `all_reduce`."""
    tensors = _tensors("all_reduce_coalesced", "tensors", [tensors] if isinstance(tensors, fb.Tensor) else tensors)
    found = _group("all_reduce_coalesced", group)
    return None if found is None or not tensors else _out(found.all_reduce(tensors, op, async_op), async_op)


def broadcast(
    tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Give all ranks the `tensor` of one.

    Args:
        tensor: what is sent on that rank, and written on the others; same dtype and number of elements.
        src: that rank, in the job; `group_src` is it in the group.
        group, async_op: as for `all_reduce`.
        group_src: see `src`.
    """
    _tensor("broadcast", "tensor", tensor)
    found = _group("broadcast", group)
    if found is None:
        return None
    return _out(found.broadcast([tensor], _peer("broadcast", found, src, group_src, "src"), async_op), async_op)


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the `tensor` of all ranks on one of them; the others keep theirs.

    Args:
        tensor: same dtype and shape on all ranks.
        dst: the rank that gets the result, in the job; `group_dst` is it in the group.
        op, group, async_op: as for `all_reduce`.
        group_dst: see `dst`.
    """
    _tensor("reduce", "tensor", tensor)
    found = _group("reduce", group)
    if found is None:
        return None
    return _out(found.reduce(tensor, _peer("reduce", found, dst, group_dst, "dst"), op, async_op), async_op)


def all_gather(tensor_list: Sequence[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """Give all ranks the `tensor` of each.

    Args:
        tensor_list: written; one for each rank, with as many elements as that rank's tensor.
        tensor: of one dtype on all ranks; sizes may differ.
        group, async_op: as for `all_reduce`.
    """
    outputs = _tensors("all_gather", "tensor_list", tensor_list)
    _tensor("all_gather", "tensor", tensor)
    found = _group("all_gather", group)
    return None if found is None else _out(found.all_gather(outputs, tensor, async_op), async_op)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Any]], input_tensor_list: Sequence[Any], group: Any = None, async_op: bool = False
) -> Any:
    """`all_gather` of several tensors.

    Args:
        output_tensor_lists: for each rank, a list like `input_tensor_list`.
        input_tensor_list: the tensors of this rank.
        group, async_op: as for `all_reduce`.
    """
    inputs = _tensors("all_gather_coalesced", "input_tensor_list", input_tensor_list)
    found = _group("all_gather_coalesced", group)
    if found is None:
        return None
    works = [
        found.all_gather([outputs[at] for outputs in output_tensor_lists], tensor, async_op)
        for at, tensor in enumerate(inputs)
    ]
    return _Works(works) if async_op else None


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """Give all ranks the `input_tensor` of each, in one tensor.

    Args:
        output_tensor: written; the inputs concatenated or stacked along the first dimension.
        input_tensor: same shape on all ranks.
        group, async_op: as for `all_reduce`.
    Raises: ValueError for an output of another size.
    """
    name = "all_gather_into_tensor"
    _tensor(name, "output_tensor", output_tensor)
    _tensor(name, "input_tensor", input_tensor)
    found = _group(name, group)
    if found is None:
        return None
    _check_parts(name, "output_tensor", output_tensor, found.size(), input_tensor.numel())
    return _out(found.all_gather_into_tensor(output_tensor, input_tensor, async_op), async_op)


def _check_parts(name: str, argument: str, tensor: Any, count: int, numel: int) -> None:
    """Raise ValueError if `tensor` is not `count` parts of `numel` elements, one after the other."""
    if tensor.numel() != count * numel:
        raise ValueError(
            f"{name}: {argument} must hold {count} times {numel} elements, got shape {tuple(tensor.shape)} with {tensor.numel()}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: {argument} must be contiguous, got strides {tensor.stride()}")


def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Give one rank the `tensor` of each.

    Args:
        tensor: same dtype and shape on all ranks.
        gather_list: written on that rank, one tensor for each rank; None on the others.
        dst: that rank, in the job; 0 if None. `group_dst` is it in the group.
        group, async_op: as for `all_reduce`.
        group_dst: see `dst`.
    Raises: ValueError for a list where none belongs, or none where one does.
    """
    _tensor("gather", "tensor", tensor)
    found = _group("gather", group)
    if found is None:
        return None
    root = _peer("gather", found, dst, group_dst, "dst", 0)
    outputs = _root_list("gather", "gather_list", gather_list, found.rank() == root)
    return _out(found.gather(outputs, tensor, root, async_op), async_op)


def _root_list(name: str, argument: str, given: Any, here: bool) -> list[Any]:
    if here and not given:
        raise ValueError(
            f"Argument ``{argument}`` must be specified on {'destination' if name == 'gather' else 'source'} rank."
        )
    if not here and given:
        raise ValueError(
            f"Argument ``{argument}`` must NOT be specified on non-{'destination' if name == 'gather' else 'source'} ranks."
        )
    return _tensors(name, argument, given) if given else []


def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each rank its tensor of a list that one rank has.

    Args:
        tensor: written; same dtype and shape on all ranks.
        scatter_list: the list, on that rank; None on the others.
        src: that rank, in the job; 0 if None. `group_src` is it in the group.
        group, async_op: as for `all_reduce`.
        group_src: see `src`.
    Raises: ValueError for a list where none belongs, or none where one does.
    """
    _tensor("scatter", "tensor", tensor)
    found = _group("scatter", group)
    if found is None:
        return None
    root = _peer("scatter", found, src, group_src, "src", 0)
    inputs = _root_list("scatter", "scatter_list", scatter_list, found.rank() == root)
    return _out(found.scatter(tensor, inputs, root, async_op), async_op)


def reduce_scatter(
    output: Any, input_list: Sequence[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine lists of all ranks, and give each rank its item.

    Args:
        output: written.
        input_list: one tensor for each rank, of the size of that rank's output.
        op, group, async_op: as for `all_reduce`.
    """
    _tensor("reduce_scatter", "output", output)
    inputs = _tensors("reduce_scatter", "input_list", input_list)
    found = _group("reduce_scatter", group)
    return None if found is None else _out(found.reduce_scatter(output, inputs, op, async_op), async_op)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine tensors of all ranks, and give each rank its part.

    Args:
        output: written; same shape on all ranks.
        input: what all outputs make, concatenated or stacked along the first dimension.
        op, group, async_op: as for `all_reduce`.
    Raises: ValueError for an input of another size.
    """
    name = "reduce_scatter_tensor"
    _tensor(name, "output", output)
    _tensor(name, "input", input)
    found = _group(name, group)
    if found is None:
        return None
    input = input.contiguous()
    _check_parts(name, "input", input, found.size(), output.numel())
    return _out(found.reduce_scatter_tensor(output, input, op, async_op), async_op)


def all_to_all(
    output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Any = None, async_op: bool = False
) -> Work | None:
    """Give each rank one tensor of each rank's list.

    Args:
        output_tensor_list: written; one for each rank it comes from.
        input_tensor_list: one for each rank it goes to; sizes may differ.
        group, async_op: as for `all_reduce`.
    """
    outputs = _tensors("all_to_all", "output_tensor_list", output_tensor_list)
    inputs = _tensors("all_to_all", "input_tensor_list", input_tensor_list)
    found = _group("all_to_all", group)
    return None if found is None else _out(found.all_to_all(outputs, inputs, async_op), async_op)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Give each rank one part of each rank's `input`.

    Args:
        output: written; the parts that arrive, concatenated along the first dimension.
        input: the parts that go, concatenated along the first dimension.
        output_split_sizes, input_split_sizes: rows of each part; None or empty for equal parts.
        group, async_op: as for `all_reduce`.
    Raises: RuntimeError for sizes that do not add up.
    """
    _tensor("all_to_all_single", "output", output)
    _tensor("all_to_all_single", "input", input)
    found = _group("all_to_all_single", group)
    if found is None:
        return None
    outputs = _split("output", output, output_split_sizes, found.size())
    inputs = _split("input", input.contiguous(), input_split_sizes, found.size())
    return _out(found.all_to_all(outputs, inputs, async_op, "all_to_all_single"), async_op)


def _split(argument: str, tensor: Any, sizes: Any, count: int) -> list[Any]:
    rows = tensor.shape[0] if tensor.dim() else 0
    if not sizes:
        if rows % count:
            raise RuntimeError(
                f"all_to_all_single: the first dimension of {argument} ({rows}) does not divide equally across {count} ranks"
            )
        sizes = [rows // count] * count
    if len(sizes) != count:
        raise RuntimeError(f"all_to_all_single: {argument}_split_sizes has {len(sizes)} sizes for {count} ranks")
    if sum(sizes) != rows:
        raise RuntimeError(
            f"all_to_all_single: {argument}_split_sizes {list(sizes)} do not add up to the first dimension {rows}"
        )
    parts, at = [], 0
    for size in sizes:
        parts.append(tensor.detach()[at : at + size])
        at += size
    return parts


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all ranks of `group` have called it.

    Args:
        group, async_op: as for `all_reduce`.
        device_ids: taken for compatibility.
    """
    found = _group("barrier", group)
    return None if found is None else _out(found.barrier(None, async_op), async_op)


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier with a timeout of its own, which names the ranks that do not come.

    Args:
        group: as for `all_reduce`.
        timeout: how long to wait; that of the group if None.
        wait_all_ranks: taken for compatibility; all missing ranks are always named.
    Raises: DistBackendError, a RuntimeError.
    """
    found = _group("monitored_barrier", group)
    if found is None:
        return
    try:
        found.barrier(timeout, False, "monitored_barrier")
    except DistBackendError as error:
        raise DistBackendError(f"monitoredBarrier failed: {error}") from None


# Point to point


_breakpoints = 0


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: int = 3600) -> None:  # PyTorch's name
    """Stop rank `rank` in the debugger; the other ranks wait until it goes on. All ranks must call it.

    Args:
        rank: of the job.
        skip: how many calls do nothing first.
        timeout_s: seconds that the others wait.
    Raises: RuntimeError without a process group; DistStoreError if the others have waited for too long.
    """
    import pdb

    global _breakpoints
    default = _default()
    _breakpoints += 1
    if _breakpoints <= skip:
        return
    key = f"breakpoint/{_breakpoints}"
    assert _world.store is not None
    if default.rank() == rank:
        print(f"rank {rank} is in the debugger; type 'up' to get to the frame that called distributed.breakpoint(rank={rank})", flush=True)
        # Processes that a launcher has started have no terminal for their standard input, but may open it anew.
        anew = open("/dev/stdin", encoding="utf-8") if os.path.exists("/dev/stdin") else None  # noqa: SIM115  # the debugger reads on
        pdb.Pdb(stdin=anew, nosigint=True).set_trace()
        _world.store.set(key, "on")
    else:
        _world.store.wait([key], timedelta(seconds=timeout_s))


def isend(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """Send `tensor` to one rank; see `send`."""
    _tensor("isend", "tensor", tensor)
    found = _group("isend", group)
    return None if found is None else found.send(tensor, _peer("isend", found, dst, group_dst, "dst"), _tag("isend", tag))


def irecv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """Receive into `tensor` when it comes; see `recv`."""
    _tensor("irecv", "tensor", tensor)
    found = _group("irecv", group)
    if found is None:
        return None
    peer = None if src is None and group_src is None else _peer("irecv", found, src, group_src, "src")
    return found.recv(tensor, peer, _tag("irecv", tag))


def _tag(name: str, tag: Any) -> int:
    if isinstance(tag, bool) or not isinstance(tag, int) or tag < 0:
        raise ValueError(f"{name}: tag must be an int that is not negative, got {tag!r}")
    return tag


def send(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send `tensor` to one rank, which receives it by `recv`.

    Args:
        tensor: what is sent; it may be changed when this returns.
        dst: the rank, in the job; `group_dst` is it in the group.
        group: as for `all_reduce`.
        tag: a number that the receive names too.
        group_dst: see `dst`.
    Raises: ValueError for sending to oneself; DistBackendError if that rank is gone.
    """
    found = _group("send", group)
    if found is not None and _peer("send", found, dst, group_dst, "dst") == found.rank():
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current process."
        )
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive into `tensor` what a rank sends to this one, and return that rank; -1 outside of the group.

    Args:
        tensor: written; of the dtype and number of elements that are sent.
        src: the rank, in the job; None for any. `group_src` is it in the group.
        group: as for `all_reduce`.
        tag: the number that was sent along.
        group_src: see `src`.
    Raises: DistBackendError for another dtype or size, after the timeout, or if that rank is gone.
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One send or receive of `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: what is sent, or written.
        peer: the other rank, in the job; `group_peer` is it in the group.
        group, tag: as for `send`.
        group_peer: see `peer`.
    Raises: ValueError for another `op`.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        self.op, self.tensor, self.group, self.tag = op, _tensor("P2POp", "tensor", tensor), group, tag
        found = _default() if group is None else group
        self.group_peer = _peer("P2POp", found, peer, group_peer, "peer")
        self.peer = get_global_rank(found, self.group_peer)

    def __repr__(self) -> str:
        return (
            f"P2POp({self.op.__name__} pg={self.group}, peer={self.peer}, tag={self.tag}, shape={tuple(self.tensor.shape)})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Start sends and receives, and return their `Work`, in order.

    Args:
        p2p_op_list: of `P2POp`, all of one group.
    Raises: RuntimeError or ValueError for another list.
    """
    if not isinstance(p2p_op_list, list) or not p2p_op_list or not all(isinstance(item, P2POp) for item in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(item.group != p2p_op_list[0].group for item in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    return [
        item.op(item.tensor, group=item.group, tag=item.tag, **{_SIDE[item.op]: item.group_peer}) for item in p2p_op_list
    ]


_SIDE: dict[Any, str] = {isend: "group_dst", irecv: "group_src"}


class _Works(list[Any]):
    """Several `Work` that are waited for together."""

    def wait(self) -> bool:
        return all(work.wait() for work in self)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self)


@contextlib.contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
    """Calls inside of it run as they come; ``cm.wait()`` waits for those that were appended to it."""
    works = _Works()
    yield works
    if not async_ops:
        works.wait()


# Objects


def _to_tensor(value: Any) -> Any:
    data = bytearray(pack(value))
    return fb.frombuffer(data, dtype=fb.uint8)


def _of_tensor(tensor: Any) -> Any:
    return unpack(tensor._array.tobytes())


def _gathered(found: ProcessGroup, value: Any) -> list[Any]:
    """The bytes of each rank's `value`, as tensors."""
    mine = _to_tensor(value)
    sizes = [fb.zeros(1, dtype=fb.int64, device="cpu") for _ in range(found.size())]
    found.all_gather(sizes, fb.tensor([mine.numel()], device="cpu"), False)
    outputs = [fb.empty(int(size), dtype=fb.uint8, device="cpu") for size in sizes]
    found.all_gather(outputs, mine, False)
    return outputs


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Give all ranks the `obj` of each; it must be data, see `allow_pickle`.

    Args:
        object_list: written; one place for each rank.
        obj: numbers, text, lists, dicts, tensors and the like.
        group: as for `all_reduce`.
    Raises: TypeError for what is no data.
    """
    found = _group("all_gather_object", group)
    if found is None:
        return
    if len(object_list) != found.size():
        raise ValueError(f"all_gather_object: object_list has {len(object_list)} places for {found.size()} ranks")
    object_list[:] = [_of_tensor(tensor) for tensor in _gathered(found, obj)]


def gather_object(
    obj: Any, object_gather_list: Any = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    """Give one rank the `obj` of each; it must be data, see `allow_pickle`.

    Args:
        obj: as for `all_gather_object`.
        object_gather_list: written on that rank, one place for each; None on the others.
        dst: that rank, in the job; 0 if None. `group_dst` is it in the group.
        group: as for `all_reduce`.
        group_dst: see `dst`.
    """
    found = _group("gather_object", group)
    if found is None:
        return
    root = _peer("gather_object", found, dst, group_dst, "dst", 0)
    if found.rank() == root:
        if object_gather_list is None or len(object_gather_list) != found.size():
            raise ValueError(
                f"gather_object: object_gather_list must have {found.size()} places on rank {root} of the group"
            )
    elif object_gather_list is not None:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    tensors = _gathered(found, obj)
    if object_gather_list is not None:
        object_gather_list[:] = [_of_tensor(tensor) for tensor in tensors]


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Give all ranks the objects that one has; they must be data, see `allow_pickle`.

    Args:
        object_list: sent on that rank, written on the others; of one length.
        src: that rank, in the job; 0 if None. `group_src` is it in the group.
        group: as for `all_reduce`.
        device: taken for compatibility.
        group_src: see `src`.
    """
    found = _group("broadcast_object_list", group)
    if found is None:
        return
    root = _peer("broadcast_object_list", found, src, group_src, "src", 0)
    here = found.rank() == root
    data = _to_tensor(list(object_list)) if here else None
    about = fb.tensor([data.numel() if here else 0, len(object_list) if here else 0], device="cpu")
    found.broadcast([about], root, False)
    size, count = about.tolist()
    if count != len(object_list):
        raise ValueError(
            f"broadcast_object_list: rank {root} of the group sends {count} objects, and object_list has {len(object_list)} places"
        )
    tensor = data if here else fb.empty(size, dtype=fb.uint8, device="cpu")
    found.broadcast([tensor], root, False)
    if not here:
        object_list[:] = _of_tensor(tensor)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Any = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each rank its object of a list that one has; it must be data, see `allow_pickle`.

    Args:
        scatter_object_output_list: its first place is written.
        scatter_object_input_list: the list, on that rank.
        src: that rank, in the job; 0 if None. `group_src` is it in the group.
        group: as for `all_reduce`.
        group_src: see `src`.
    """
    found = _group("scatter_object_list", group)
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = _peer("scatter_object_list", found, src, group_src, "src", 0)
    here = found.rank() == root
    if here and (scatter_object_input_list is None or len(scatter_object_input_list) != found.size()):
        raise ValueError(
            f"scatter_object_list: scatter_object_input_list must have {found.size()} objects on rank {root} of the group"
        )
    parts = [_to_tensor(value) for value in scatter_object_input_list] if here else []
    sizes = fb.tensor([part.numel() for part in parts] if here else [0] * found.size(), device="cpu")
    found.broadcast([sizes], root, False)
    mine = fb.empty(int(sizes[found.rank()]), dtype=fb.uint8, device="cpu")
    empty = [fb.empty(0, dtype=fb.uint8, device="cpu")] * found.size()
    outputs = [mine if at == root else empty[at] for at in range(found.size())]
    found.all_to_all(outputs, parts or empty, False)
    scatter_object_output_list[0] = _of_tensor(mine)


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None
) -> None:
    """Send objects to one rank; they must be data, see `allow_pickle`.

    Args:
        object_list: the objects.
        dst: the rank, in the job; `group_dst` is it in the group.
        group: as for `all_reduce`.
        device: taken for compatibility.
        group_dst: see `dst`.
    """
    data = _to_tensor(list(object_list))
    send(fb.tensor([data.numel(), len(object_list)], device="cpu"), dst, group, 0, group_dst)
    send(data, dst, group, 0, group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> int:
    """Receive objects that a rank sends, and return that rank; -1 outside of the group.

    Args:
        object_list: written; as long as the list that is sent.
        src: the rank, in the job; None for any. `group_src` is it in the group.
        group: as for `all_reduce`.
        device: taken for compatibility.
        group_src: see `src`.
    """
    about = fb.zeros(2, dtype=fb.int64, device="cpu")
    source = recv(about, src, group, 0, group_src)
    if source == -1:
        return -1
    size, count = about.tolist()
    data = fb.empty(size, dtype=fb.uint8, device="cpu")
    recv(data, source, group)
    if count != len(object_list):
        raise ValueError(
            f"recv_object_list: rank {source} sent {count} objects, and object_list has {len(object_list)} places"
        )
    object_list[:] = _of_tensor(data)
    return source
