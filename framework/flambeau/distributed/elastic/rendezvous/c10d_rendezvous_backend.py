"""The state of a rendezvous as one key of a store."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from typing import Any

from ..._errors import DistNetworkError, DistStoreError
from ..._stores import FileStore, Store, TCPStore
from .api import RendezvousConnectionError, RendezvousParameters
from .dynamic_rendezvous import RendezvousBackend
from .utils import is_this_machine, parse_rendezvous_endpoint

__all__ = ["C10dRendezvousBackend", "create_backend"]

_PORT = 29400


class C10dRendezvousBackend(RendezvousBackend):
    """Keeps the state of a rendezvous in a store, under one key, and changes it by compare-and-set.

    Args:
        store: a store that all machines see.
        run_id: the name of the job.
    Raises: ValueError for an empty name.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueError("C10dRendezvousBackend: the run id must be a non-empty string.")
        self._store, self._key = store, f"rendezvous/{run_id}/state"

    @property
    def name(self) -> str:
        """``c10d``."""
        return "c10d"

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state and its token, which is the state itself; None before the first one.

        Raises: RendezvousConnectionError without the store.
        """
        try:
            # The key is never deleted, so `get` does not wait. A compare-and-set would do it in one request, but a file logs those.
            value = self._store.get(self._key) if self._store.check([self._key]) else None
        except (DistNetworkError, DistStoreError) as error:
            raise _unreachable(error) from error
        return None if value is None else (value, value)

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """Store `state` if nobody changed it since `token` was read.

        Args:
            state: the new state.
            token: of `get_state`; None for the first state.
        Returns: the state that holds then, its token, and whether it is `state`.
        Raises: RendezvousConnectionError without the store.
        """
        try:
            found = self._store.compare_set(self._key, b"" if token is None else token, state)
        except (DistNetworkError, DistStoreError) as error:
            raise _unreachable(error) from error
        return found, found, found == state


def _unreachable(error: Exception) -> RendezvousConnectionError:
    return RendezvousConnectionError(f"the store of the rendezvous cannot be reached: {error}")


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """The backend of `params`, and its store.

    Options are ``store_type`` ("tcp" or "file"), ``is_host`` (whether this machine serves the store; if it is absent, the first process
    on the endpoint's machine does) and ``read_timeout`` (seconds to wait for the store, 60 if absent).

    Args:
        params: as for `get_rendezvous_handler`; the endpoint is ``host:port``, or the path of a file.
    Raises: ValueError for an unknown store type; RendezvousConnectionError without a store at the endpoint.
    """
    kind = str(params.get("store_type", "tcp")).strip().lower()
    if kind not in ("tcp", "file"):
        raise ValueError(f"c10d rendezvous: store_type must be tcp or file, got {kind!r}")
    seconds = params.get_as_int("read_timeout", 60)
    assert seconds is not None
    if seconds <= 0:
        raise ValueError(f"c10d rendezvous: read_timeout must be a positive number of seconds, got {seconds}")
    store = _file_store(params) if kind == "file" else _tcp_store(params, timedelta(seconds=seconds))
    return C10dRendezvousBackend(store.clone(), params.run_id), store


def _file_store(params: RendezvousParameters) -> Store:
    path = params.endpoint
    if not path:
        descriptor, path = tempfile.mkstemp(prefix="flambeau_rendezvous_")
        os.close(descriptor)
    try:
        return FileStore(path)
    except OSError as error:
        raise RendezvousConnectionError(f"c10d rendezvous: the file {path} cannot be a store: {error}") from error


def _tcp_store(params: RendezvousParameters, timeout: timedelta) -> Store:
    host, port = parse_rendezvous_endpoint(params.endpoint, _PORT)
    given = params.get_as_bool("is_host")
    serve = is_this_machine(host) if given is None else given
    try:
        if serve:
            try:
                return TCPStore(host, port, None, True, timeout, False)
            except DistNetworkError:
                # Another launcher of this machine was first and serves the store.
                if given or port == 0:
                    raise
        return TCPStore(host, port, None, False, timeout, False)
    except DistNetworkError as error:
        raise RendezvousConnectionError(f"c10d rendezvous of job {params.run_id!r} at {host}:{port}: {error}") from error
