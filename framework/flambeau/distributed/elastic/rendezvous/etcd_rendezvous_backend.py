"""The state of a rendezvous as one key of etcd."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlparse

from .api import RendezvousConnectionError, RendezvousParameters
from .dynamic_rendezvous import RendezvousBackend
from .etcd_store import EtcdStore, etcd
from .utils import parse_rendezvous_endpoint

__all__ = ["EtcdRendezvousBackend", "create_backend"]

_PORT = 2379


class EtcdRendezvousBackend(RendezvousBackend):
    """Keeps the state of a rendezvous in etcd, and changes it if nobody else did.

    Args:
        client: an ``etcd.Client``.
        run_id: the name of the job.
        key_prefix: the directory of the state; ``/flambeau/elastic/rendezvous`` if None.
        ttl: seconds after which a state that nobody changes is gone; two hours if None.
    Raises: ValueError for an empty name; ImportError without the package.
    """

    def __init__(self, client: Any, run_id: str, key_prefix: str | None = None, ttl: int | None = 7200) -> None:
        if not run_id:
            raise ValueError("EtcdRendezvousBackend: the run id must be a non-empty string.")
        self._etcd, self._client, self._ttl = etcd(), client, 7200 if ttl is None else ttl
        self._key = f"{(key_prefix or '/flambeau/elastic/rendezvous').rstrip('/')}/{run_id}"

    @property
    def name(self) -> str:
        """``etcd-v2``."""
        return "etcd-v2"

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state and its token, a number of etcd; None before the first one.

        Raises: RendezvousConnectionError without the server.
        """
        try:
            found = self._client.read(self._key)
        except self._etcd.EtcdKeyNotFound:
            return None
        except (self._etcd.EtcdException, OSError) as error:
            raise _unreachable(error) from error
        return base64.b64decode(found.value), found.modifiedIndex

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """Store `state` if nobody changed it since `token` was read.

        Args:
            state: the new state.
            token: of `get_state`; None for the first state.
        Returns: the state that holds then, its token, and whether it is `state`; None if there is none.
        Raises: RendezvousConnectionError without the server.
        """
        if token is not None and (isinstance(token, bool) or not isinstance(token, int)):
            found = self.get_state()
            return None if found is None else (*found, False)
        condition = {"prevExist": False} if token is None else {"prevIndex": token}
        try:
            made = self._client.write(self._key, base64.b64encode(state).decode(), ttl=self._ttl, **condition)
        except (self._etcd.EtcdAlreadyExist, self._etcd.EtcdCompareFailed, self._etcd.EtcdKeyNotFound):
            found = self.get_state()
            return None if found is None else (*found, False)
        except (self._etcd.EtcdException, OSError) as error:
            raise _unreachable(error) from error
        return state, made.modifiedIndex, True


def _unreachable(error: Exception) -> RendezvousConnectionError:
    return RendezvousConnectionError(f"etcd cannot be reached: {error}")


def client_of(params: RendezvousParameters) -> Any:
    """An ``etcd.Client`` of the endpoint.

    Options are ``protocol`` ("http" or "https"), ``read_timeout`` (seconds, 60 if absent), and the files ``ssl_cert``, ``ssl_cert_key`` and
    ``ca_cert``.
    """
    found = etcd()
    endpoint = urlparse(params.endpoint).netloc if "://" in params.endpoint else params.endpoint
    host, port = parse_rendezvous_endpoint(endpoint, _PORT)
    protocol = str(params.get("protocol", urlparse(params.endpoint).scheme if "://" in params.endpoint else "http")).strip().lower()
    if protocol not in ("http", "https"):
        raise ValueError(f"etcd rendezvous: protocol must be http or https, got {protocol!r}")
    seconds = params.get_as_int("read_timeout", 60)
    assert seconds is not None
    if seconds <= 0:
        raise ValueError(f"etcd rendezvous: read_timeout must be a positive number of seconds, got {seconds}")
    certificate, key = params.get("ssl_cert"), params.get("ssl_cert_key")
    return found.Client(
        host=host, port=port, protocol=protocol, read_timeout=seconds, allow_reconnect=True,
        cert=(certificate, key) if certificate and key else certificate, ca_cert=params.get("ca_cert"),
    )  # fmt: skip


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, EtcdStore]:
    """The backend of `params`, and its store.

    Args:
        params: as for `get_rendezvous_handler`; the endpoint is ``host:port`` or a URL. Options are ``protocol``, ``read_timeout``,
            ``ssl_cert``, ``ssl_cert_key`` and ``ca_cert``.
    Raises: ImportError without the package `etcd`; RendezvousConnectionError without a server at the endpoint.
    """
    module = etcd()
    try:
        client = client_of(params)
        client.version  # noqa: B018  # asks the server
    except (module.EtcdException, OSError) as error:
        raise RendezvousConnectionError(f"etcd rendezvous of job {params.run_id!r} at {params.endpoint}: {error}") from error
    return EtcdRendezvousBackend(client, params.run_id), EtcdStore(client, f"/flambeau/elastic/store/{params.run_id}")
