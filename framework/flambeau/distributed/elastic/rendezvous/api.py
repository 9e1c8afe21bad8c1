"""What a rendezvous is: machines of a job meet, and each learns its rank, how many they are, and a store that all see."""

from __future__ import annotations

import abc
import dataclasses
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from ..._stores import Store

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]


class RendezvousError(Exception):
    """Something went wrong while machines met; the base of all errors of a rendezvous."""


class RendezvousClosedError(RendezvousError):
    """The job has ended, so nobody meets any more."""


class RendezvousTimeoutError(RendezvousError):
    """Too few machines came in time."""


class RendezvousConnectionError(RendezvousError):
    """The store in which machines meet cannot be reached."""


class RendezvousStateError(RendezvousError):
    """What the store holds is not the state of a rendezvous."""


class RendezvousGracefulExitError(RendezvousError):
    """The job ended while this machine waited to take part; it leaves, and nothing failed."""


@dataclasses.dataclass
class RendezvousStoreInfo:
    """Where the workers of a job make their store.

    Args:
        master_addr: host of the worker with rank 0.
        master_port: port there.
    """

    master_addr: str
    master_port: int

    @staticmethod
    def build(rank: int, store: Store, local_addr: str | None, server_port: int | None = None) -> RendezvousStoreInfo:
        """The address that the machine of rank 0 tells the others through `store`.

        Args:
            rank: of this machine.
            store: a store that all machines see, with keys of this round alone.
            local_addr: address of this machine; its full name if None.
            server_port: the port, on rank 0; one that is free if None.
        """
        if rank == 0:
            store.set("MASTER_ADDR", local_addr or socket.getfqdn())
            store.set("MASTER_PORT", str(_free_port() if server_port is None else server_port))
        return RendezvousStoreInfo(store.get("MASTER_ADDR").decode(), int(store.get("MASTER_PORT")))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


class RendezvousInfo:
    """What a machine learns when all have met.

    Args:
        store: a store that the machines of this round share.
        rank: of this machine.
        world_size: how many machines there are.
        bootstrap_store_info: where workers make their store.
    """

    def __init__(self, store: Store, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo) -> None:
        self._store, self._rank, self._world_size = store, rank, world_size
        self._bootstrap_store_info = bootstrap_store_info

    @property
    def store(self) -> Store:
        """A store that the machines of this round share."""
        return self._store

    @property
    def rank(self) -> int:
        """The rank of this machine."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many machines have met."""
        return self._world_size

    @property
    def bootstrap_store_info(self) -> RendezvousStoreInfo | None:
        """Where workers make their store."""
        return self._bootstrap_store_info


class RendezvousHandler(abc.ABC):
    """One machine's side of a rendezvous; a program's own kind defines these methods."""

    @abc.abstractmethod
    def get_backend(self) -> str:
        """The name under which its kind is registered."""

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the store of the agents, instead of one that the worker with rank 0 serves."""
        return False

    @abc.abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until enough machines have come.

        Raises: RendezvousClosedError when the job has ended; RendezvousConnectionError without the store; RendezvousStateError for a
            broken state; RendezvousTimeoutError when too few come in time.
        """

    @abc.abstractmethod
    def is_closed(self) -> bool:
        """Whether the job has ended, so that nobody meets any more; it may take some time to be seen everywhere."""

    @abc.abstractmethod
    def set_closed(self) -> None:
        """End the job: nobody meets any more."""

    @abc.abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many machines came too late for this round and could take part in the next; agents look at this from time to time."""

    def ranks_gone(self) -> set[int]:
        """The ranks of machines of this round that have left it or are dead, as far as it is known; none by default."""
        return set()

    @abc.abstractmethod
    def get_run_id(self) -> str:
        """The name of the job."""

    @abc.abstractmethod
    def shutdown(self) -> bool:
        """End the job and let go of what this machine holds.

        Returns: whether that went well.
        """


class RendezvousParameters:
    """What makes a handler.

    Args:
        backend: the kind of rendezvous.
        endpoint: where machines meet, mostly ``host:port``.
        run_id: the name of the job.
        min_nodes, max_nodes: how many machines may take part.
        local_addr: address of this machine.
        kwargs: options of the kind.
    Raises: ValueError for an empty backend and for numbers that do not fit.
    """

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("RendezvousParameters: the rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"RendezvousParameters: the minimum number of nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"RendezvousParameters: the maximum number of nodes ({max_nodes}) must be greater than or equal to the "
                f"minimum ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes, self.local_addr = min_nodes, max_nodes, local_addr
        self.config = kwargs

    def get(self, key: str, default: Any = None) -> Any:
        """The option `key`, or `default` if it was not given."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """The option `key` as a truth value: 1, true, t, yes or y, and 0, false, f, no or n.

        Raises: ValueError for anything else.
        """
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower() if isinstance(value, str | int) else ""
        if text in ("1", "true", "t", "yes", "y"):
            return True
        if text in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value: {value!r}")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """The option `key` as an integer.

        Raises: ValueError for anything else.
        """
        value = self.get(key, default)
        if value is None:
            return value
        try:
            return int(value)
        except (ValueError, TypeError):
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value: {value!r}"
            ) from None


RendezvousHandlerCreator: TypeAlias = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Kinds of rendezvous by name."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Name a kind of rendezvous.

        Args:
            backend: its name.
            creator: makes a handler of `RendezvousParameters`.
        Raises: ValueError for an empty name, and for one that another creator has.
        """
        if not backend:
            raise ValueError("RendezvousHandlerRegistry.register: the backend name must be a non-empty string.")
        before = self._registry.get(backend)
        if before is not None and before is not creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already registered with '{before}'."
            )
        self._registry[backend] = creator

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """The handler that `params` describe.

        Raises: ValueError for a kind that is not registered; RuntimeError if the creator makes a handler of another kind.
        """
        creator = self._registry.get(params.backend)
        if creator is None:
            known = ", ".join(sorted(self._registry)) or "none"
            raise ValueError(f"The rendezvous backend '{params.backend}' is not registered; registered are: {known}")
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend '{params.backend}'.")
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
