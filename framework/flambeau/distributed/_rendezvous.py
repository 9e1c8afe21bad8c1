"""How the processes of a job find each other: by an address, a file or the environment."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from ._groups import default_pg_timeout
from ._stores import FileStore, PrefixStore, Store, TCPStore

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
