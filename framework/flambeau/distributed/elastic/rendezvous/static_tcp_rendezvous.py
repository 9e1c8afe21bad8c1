"""A rendezvous of a fixed number of machines whose ranks are given."""

from __future__ import annotations

from datetime import timedelta

from ..._errors import DistNetworkError
from ..._stores import PrefixStore, TCPStore
from .api import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from .utils import parse_rendezvous_endpoint

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]


class StaticTCPRendezvous(RendezvousHandler):
    """Machines whose ranks are known share one TCP store, which the machine of rank 0 serves.

    Args:
        master_addr, master_port: where the store listens; port 0 lets rank 0 choose one.
        rank: of this machine.
        world_size: how many machines there are.
        run_id: the name of the job.
        timeout: seconds to wait for the store.
    """

    def __init__(self, master_addr: str, master_port: int, rank: int, world_size: int, run_id: str, timeout: int) -> None:
        self.master_addr, self.master_port = master_addr, master_port
        self.rank, self.world_size, self.run_id = rank, world_size, run_id
        self.timeout = timedelta(seconds=timeout)
        self._store: TCPStore | None = None
        self._round = 0

    def get_backend(self) -> str:
        """``static``."""
        return "static"

    @property
    def use_agent_store(self) -> bool:
        """True: the launcher outlives workers, so its store survives their restarts."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The given rank and number of machines, with a store of new keys at each call.

        Raises: RendezvousConnectionError when the store cannot be reached.
        """
        if self._store is None:
            try:
                self._store = TCPStore(self.master_addr, self.master_port, None, self.rank == 0, self.timeout, False)
            except DistNetworkError as error:
                raise RendezvousConnectionError(f"static rendezvous of job {self.run_id!r}: {error}") from error
        self._round += 1
        store = PrefixStore(f"{self.run_id}/{self._round}", self._store)
        return RendezvousInfo(store, self.rank, self.world_size, RendezvousStoreInfo(self.master_addr, self._store.port))

    def is_closed(self) -> bool:
        """False: ranks that are given stay."""
        return False

    def set_closed(self) -> None:
        """Nothing: ranks that are given stay."""

    def num_nodes_waiting(self) -> int:
        """0: no machine comes late."""
        return 0

    def get_run_id(self) -> str:
        """The name of the job."""
        return self.run_id

    def shutdown(self) -> bool:
        """Close the store."""
        if self._store is not None:
            self._store.close()
            self._store = None
        return True


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of `params`, whose option ``rank`` is the rank of this machine.

    Args:
        params: as for `get_rendezvous_handler`; the option ``timeout`` is in seconds, 600 if absent.
    Raises: ValueError without a rank, without a port, and for a number of machines that changes.
    """
    rank = params.get_as_int("rank")
    if rank is None:
        raise ValueError("static rendezvous: rank is absent in RendezvousParameters; give --node-rank to the command")
    host, port = parse_rendezvous_endpoint(params.endpoint, -1)
    if port == -1:
        raise ValueError(f"static rendezvous: port is absent in endpoint {params.endpoint!r}; give --master-port to the command")
    if params.min_nodes != params.max_nodes:
        raise ValueError(
            f"static rendezvous: a number of machines that changes ({params.min_nodes} to {params.max_nodes}) needs another backend; "
            "give --rdzv-backend c10d"
        )
    if not 0 <= rank < params.max_nodes:
        raise ValueError(f"static rendezvous: rank {rank} of {params.max_nodes} machines; give --node-rank from 0 on")
    timeout = params.get_as_int("timeout", 600)
    assert timeout is not None
    return StaticTCPRendezvous(host, port, rank, params.max_nodes, params.run_id, timeout)
