"""A store in etcd, by the package `python-etcd` (the extra ``etcd``)."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from ..._errors import DistNetworkError
from ..._stores import _CHANGES, Store, _Table

__all__ = ["EtcdStore", "etcd"]


def etcd() -> Any:
    """The package `etcd`.

    Raises: ImportError that names the extra, if it is not there.
    """
    try:
        import etcd as found  # pyright: ignore[reportMissingImports]  # an extra
    except ImportError as error:
        raise ImportError('meeting in etcd needs the package python-etcd: pip install "flambeau[etcd]"') from error
    return found


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


class EtcdStore(Store):
    """Keys with values of bytes in a directory of an etcd server (its API of version 2).

    Calls of one key are atomic, `multi_set` sets one key after the other, and there are no queues.

    Args:
        etcd_client: an ``etcd.Client``.
        etcd_store_prefix: the directory; jobs need different ones.
        timeout: how long `get` and `wait` wait; 5 minutes if None.
    Raises: ImportError without the package; DistNetworkError if the server is gone.
    """

    def __init__(self, etcd_client: Any, etcd_store_prefix: str, timeout: timedelta | None = None) -> None:
        super().__init__()
        self._etcd, self.client = etcd(), etcd_client
        self.prefix = etcd_store_prefix if etcd_store_prefix.endswith("/") else f"{etcd_store_prefix}/"
        if timeout is not None:
            self.set_timeout(timeout)

    def _where(self) -> str:
        return f"the etcd store {self.prefix} at {self.client.base_uri}"

    def _ask(self, request: str, *args: Any) -> Any:
        if request.startswith("queue_"):
            raise NotImplementedError(f"EtcdStore.{request}: a store in etcd has no queues")
        try:
            if request in ("keys", "num_keys"):
                names = self._names()
                return len(names) if request == "num_keys" else [name for name in names if name.startswith(args[0])]
            names = args[0] if isinstance(args[0], list) else [args[0]]
            while True:
                answer, done = self._tried(request, names, args)
                if done:
                    return answer
        except (self._etcd.EtcdException, OSError) as error:
            raise DistNetworkError(f"{self._where()} cannot be reached: {error}") from error

    def _tried(self, request: str, names: list[str], args: tuple[Any, ...]) -> tuple[Any, bool]:
        """What the request gives for the values that are there, and whether nobody changed them meanwhile."""
        table, seen = _Table(), {}
        for name in names:
            try:
                node = self.client.read(self.prefix + _text(name.encode()))
            except self._etcd.EtcdKeyNotFound:
                seen[name] = None
            else:
                seen[name] = node.modifiedIndex
                table.values[name] = base64.urlsafe_b64decode(node.value)
        before = dict(table.values)
        answer = getattr(table, request)(*args)
        if request not in _CHANGES:
            return answer, True
        for name in names:
            after = table.values.get(name)
            if after == before.get(name) and request != "set":
                continue
            path, index = self.prefix + _text(name.encode()), seen[name]
            condition = {"prevExist": False} if index is None else {"prevIndex": index}
            try:
                if after is None:
                    self.client.delete(path, **condition)
                else:
                    self.client.write(path, _text(after), **({} if request in ("set", "multi_set") else condition))
            except (self._etcd.EtcdCompareFailed, self._etcd.EtcdAlreadyExist, self._etcd.EtcdKeyNotFound):
                return None, False
        return answer, True

    def _names(self) -> list[str]:
        try:
            found = self.client.read(self.prefix, recursive=True)
        except self._etcd.EtcdKeyNotFound:
            return []
        return [base64.urlsafe_b64decode(node.key.rpartition("/")[2]).decode() for node in found.leaves if not node.dir]
