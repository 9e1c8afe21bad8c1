"""Machines meet in etcd."""

from __future__ import annotations

from .api import RendezvousHandler, RendezvousInfo, RendezvousParameters

__all__ = ["EtcdRendezvousHandler", "create_rdzv_handler"]


class EtcdRendezvousHandler(RendezvousHandler):
    """The rendezvous of machines that come and go, with its state and its store in etcd.

    Args:
        rdzv_impl: the handler that does it: a `DynamicRendezvousHandler` over an `EtcdRendezvousBackend`; see `create_rdzv_handler`.
        local_addr: the address of this machine that the handler was given, if any.
    """

    def __init__(self, rdzv_impl: RendezvousHandler, local_addr: str | None = None) -> None:
        self._rdzv_impl, self._local_addr = rdzv_impl, local_addr

    def get_backend(self) -> str:
        """``etcd``."""
        return "etcd"

    @property
    def use_agent_store(self) -> bool:
        """Whether workers take the store of the rendezvous: no, they make one of their own."""
        return False

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the others; as `RendezvousHandler.next_rendezvous`."""
        return self._rdzv_impl.next_rendezvous()

    def is_closed(self) -> bool:
        """Whether the job has ended."""
        return self._rdzv_impl.is_closed()

    def set_closed(self) -> None:
        """Say that the job has ended."""
        self._rdzv_impl.set_closed()

    def num_nodes_waiting(self) -> int:
        """How many machines came late, and wait for the next round."""
        return self._rdzv_impl.num_nodes_waiting()

    def ranks_gone(self) -> set[int]:
        """The ranks of machines of this round that have left it or are dead."""
        return self._rdzv_impl.ranks_gone()

    def get_run_id(self) -> str:
        """The name of the job."""
        return self._rdzv_impl.get_run_id()

    def shutdown(self) -> bool:
        """End the job for this machine; whether that went well."""
        return self._rdzv_impl.shutdown()


def create_rdzv_handler(params: RendezvousParameters) -> EtcdRendezvousHandler:
    """The handler that `params` describe; options as for `create_backend` of `etcd_rendezvous_backend` and `create_handler`.

    Args:
        params: where the server is, and how many machines meet.
    Raises: ImportError without the package `etcd`; RendezvousConnectionError without a server.
    """
    from .dynamic_rendezvous import create_handler
    from .etcd_rendezvous_backend import create_backend

    backend, store = create_backend(params)
    return EtcdRendezvousHandler(create_handler(store, backend, params), params.local_addr)
