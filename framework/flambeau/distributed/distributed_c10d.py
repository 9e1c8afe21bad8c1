"""Process groups, and the collective and point-to-point calls on them."""

from __future__ import annotations

from . import _collectives, _groups, _joining, _new_groups, _objects, _point_to_point, _rendezvous
from ._collectives import _split as _split
from ._collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from ._collectives import breakpoint as breakpoint  # not among the public names, for it hides a builtin
from ._engine import ProcessGroup, Work
from ._errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from ._groups import (
    Backend,
    GroupMember,
    default_pg_timeout,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    reduce_op,
    supports_complex,
)
from ._groups import _default as _default
from ._groups import _get_default_group as _get_default_group
from ._groups import _make_nccl_premul_sum as _make_nccl_premul_sum
from ._groups import _World as _World
from ._groups import _world as _world
from ._groups import get_backend_config as get_backend_config
from ._joining import _own_world as _own_world
from ._joining import destroy_process_group, init_process_group
from ._ledger import ledger
from ._new_groups import new_group, new_subgroups, new_subgroups_by_enumeration, split_group
from ._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from ._pack import allow_pickle
from ._point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from ._point_to_point import _coalescing_manager as _coalescing_manager
from ._reduce import ReduceOp
from ._rendezvous import _address_here as _address_here
from ._rendezvous import register_rendezvous_handler, rendezvous
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

# PyTorch has all of these in one module, whose name programs and pickles see.
for _part in (_collectives, _groups, _joining, _new_groups, _objects, _point_to_point, _rendezvous):
    for _member in vars(_part).values():
        if getattr(_member, "__module__", None) == _part.__name__:
            _member.__module__ = __name__
