"""Stores: keys and values that all processes of a job see.

`_Table` is what a store does with its keys, written once. A `HashStore` is a table, the server of a `TCPStore` has one, and a
`FileStore` is a log of changes that each process replays into its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from . import _wire
from ._errors import DistNetworkError, DistStoreError, QueueEmptyError
from ._pack import pack, unpack

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

_DEFAULT = timedelta(seconds=300)
_LONGEST_REQUEST = 1 << 30
_INIT = "init/"


class _Table:
    """Keys, values and queues of one store; not thread-safe by itself."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = {}

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def add(self, key: str, amount: int) -> int:
        before = self.values.get(key, b"0")
        try:
            total = int(before) + amount
        except ValueError:
            raise DistStoreError(f"Store.add: key {key!r} holds {before[:40]!r}, which is no number") from None
        self.values[key] = b"%d" % total
        return total

    def append(self, key: str, value: bytes) -> None:
        self.values[key] = self.values.get(key, b"") + value

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        now = self.values.get(key)
        if now is None and expected:
            return expected
        if now is None or now == expected:
            self.values[key] = now = desired
        return now

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None

    def has(self, keys: list[str]) -> bool:
        return all(key in self.values or self.queues.get(key) for key in keys)

    def multi_set(self, keys: list[str], values: list[bytes]) -> None:
        self.values.update(zip(keys, values, strict=True))

    def queue_push(self, key: str, value: bytes) -> None:
        self.queues.setdefault(key, deque()).append(value)

    def queue_pop(self, key: str) -> bytes | None:
        queue = self.queues.get(key)
        return queue.popleft() if queue else None

    def queue_len(self, key: str) -> int:
        return len(self.queues.get(key, ()))

    def num_keys(self) -> int:
        return len(self.values)

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self.values if key.startswith(prefix)]


_CHANGES = frozenset({"set", "add", "append", "compare_set", "delete_key", "multi_set", "queue_push", "queue_pop"})


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise TypeError(f"Store.{name}: a value must be str or bytes, got {type(value).__name__}")


def _key(name: str, key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"Store.{name}: key must be a str, got {type(key).__name__}")
    return key


def _seconds(name: str, timeout: Any) -> float:
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Store.{name}: timeout must be a datetime.timedelta, got {type(timeout).__name__}")
    return timeout.total_seconds()


class Store:
    """Keys with values of bytes, shared by the processes of a job; the base of all stores.

    A store of a program's own defines these methods too.
    """

    def __init__(self) -> None:
        self._timeout = _DEFAULT

    # What a kind of store defines: run a request of `_Table` where the table is, and wait until one gives something.

    def _ask(self, request: str, *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define what Store.{request} needs")

    def _await(self, seconds: float, request: str, *args: Any) -> Any:
        """The answer of a request once it is neither None nor False; None after `seconds`."""
        end = time.monotonic() + seconds
        pause = 0.001
        while True:
            answer = self._ask(request, *args)
            if answer is not None and answer is not False:
                return answer
            if time.monotonic() >= end:
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def _late(self, what: str, keys: Sequence[str], seconds: float) -> DistStoreError:
        missing = [key for key in keys if not self.check([key])]
        late = f"wait timeout after {seconds * 1000:.0f}ms, keys: {', '.join(keys)}"
        return DistStoreError(f"{late} ({what} on {self._where()}; not set: {', '.join(missing) or 'none now'})")

    def _where(self) -> str:
        return type(self).__name__

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait for keys."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long `get` and `wait` wait for keys.

        Args:
            timeout: a timedelta.
        """
        _seconds("set_timeout", timeout)
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Give `key` the value `value`."""
        self._ask("set", _key("set", key), _bytes("set", value))

    def get(self, key: str) -> bytes:
        """The value of `key`, once it is there.

        Raises: DistStoreError after the store's timeout.
        """
        seconds = self.timeout.total_seconds()
        found = self._await(seconds, "get", _key("get", key))
        if found is None:
            raise self._late("get", [key], seconds)
        return found

    def add(self, key: str, amount: int) -> int:
        """Count `key`, which starts at 0, up by `amount`, and return what it is then.

        Raises: DistStoreError if `key` holds no number.
        """
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise TypeError(f"Store.add: amount must be an int, got {type(amount).__name__}")
        return self._ask("add", _key("add", key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        """Put `value` behind what `key` holds."""
        self._ask("append", _key("append", key), _bytes("append", value))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set `key` to `desired_value` if it holds `expected_value`, or is absent and that is empty; return what holds then.

        An absent key with an `expected_value` stays absent, and that value is returned.
        """
        expected, desired = _bytes("compare_set", expected_value), _bytes("compare_set", desired_value)
        return self._ask("compare_set", _key("compare_set", key), expected, desired)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` are set now."""
        return self._ask("has", [_key("check", key) for key in keys])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all `keys` are set.

        Args:
            keys: a list of keys.
            timeout: how long, None for the store's own.
        Raises: DistStoreError when they do not come in time.
        """
        seconds = self.timeout.total_seconds() if timeout is None else _seconds("wait", timeout)
        wanted = [_key("wait", key) for key in keys]
        if self._await(seconds, "has", wanted) is None:
            raise self._late("wait", wanted, seconds)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of `keys`, once they are there."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Give each of `keys` its value, all at once.

        Raises: ValueError for numbers of keys and values that differ.
        """
        if len(keys) != len(values):
            raise ValueError(f"Store.multi_set: {len(keys)} keys and {len(values)} values")
        self._ask("multi_set", [_key("multi_set", key) for key in keys], [_bytes("multi_set", value) for value in values])

    def delete_key(self, key: str) -> bool:
        """Remove `key`; whether it was there."""
        return self._ask("delete_key", _key("delete_key", key))

    def num_keys(self) -> int:
        """How many keys are set, with those that a store sets itself."""
        return self._ask("num_keys")

    def list_keys(self) -> list[str]:
        """The keys that are set, in no promised order."""
        return self._ask("keys", "")

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put `value` at the end of the queue `key`."""
        self._ask("queue_push", _key("queue_push", key), _bytes("queue_push", value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of the queue `key`.

        Args:
            key: the queue's name.
            block: wait for a value up to the store's timeout, instead of refusing at once.
        Raises: QueueEmptyError without a value; DistStoreError after the timeout.
        """
        if not block:
            found = self._ask("queue_pop", _key("queue_pop", key))
            if found is None:
                raise QueueEmptyError(f"Store.queue_pop: the queue {key!r} is empty")
            return found
        seconds = self.timeout.total_seconds()
        found = self._await(seconds, "queue_pop", _key("queue_pop", key))
        if found is None:
            raise self._late("queue_pop", [key], seconds)
        return found

    def queue_len(self, key: str) -> int:
        """How many values the queue `key` holds."""
        return self._ask("queue_len", _key("queue_len", key))

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get` and `multi_set` are there."""
        return True

    def clone(self) -> Store:
        """The same store for another thread."""
        return self


class HashStore(Store):
    """A store inside one process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table = _Table()
        self._changed = threading.Condition()

    def _ask(self, request: str, *args: Any) -> Any:
        with self._changed:
            answer = getattr(self._table, request)(*args)
            if request in _CHANGES:
                self._changed.notify_all()
            return answer

    def _await(self, seconds: float, request: str, *args: Any) -> Any:
        answer = None

        def ready() -> bool:
            nonlocal answer
            answer = getattr(self._table, request)(*args)
            return answer is not None and answer is not False

        with self._changed:
            self._changed.wait_for(ready, seconds)
        return answer or (answer if answer == b"" else None)


class FileStore(Store):
    """A store in a file that all processes see, locked while it is read or written.

    Args:
        file_name: the file, made if it is not there; each job needs a new one.
        world_size: how many processes use it; the last of them to close it removes the file. -1 leaves it.
    Raises: DistStoreError for a file that is no store.
    """

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self._path = os.fspath(file_name)
        self._world_size = world_size
        self._table = _Table()
        self._read_to = 0
        self._lock = threading.Lock()
        self._file: Any = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
        if world_size > 0:
            self._ask("add", "/open", 1)

    @property
    def path(self) -> str:
        """The file's name."""
        return self._path

    def _where(self) -> str:
        return f"FileStore {self._path}"

    def _ask(self, request: str, *args: Any) -> Any:
        import fcntl

        with self._lock:
            if self._file is None:
                raise DistStoreError(f"FileStore {self._path} is closed")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._catch_up()
                if request in _CHANGES and (request != "queue_pop" or self._table.queue_len(args[0])):
                    answer = getattr(self._table, request)(*args)  # what is refused is not logged
                    record = pack([request, *args])
                    self._file.write(len(record).to_bytes(8, "little") + record)
                    self._read_to = self._file.tell()
                    return answer
                return getattr(self._table, request)(*args)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        """Replay what other processes logged; the lock is held."""
        self._file.seek(self._read_to)
        new = self._file.read()
        at = 0
        while at < len(new):
            size = int.from_bytes(new[at : at + 8], "little")
            record = new[at + 8 : at + 8 + size]
            try:
                request, *args = unpack(record)
                if len(record) != size or request not in _CHANGES:
                    raise ValueError("no request of a store")
                getattr(self._table, request)(*args)
            except (ValueError, TypeError) as error:
                raise DistStoreError(
                    f"FileStore: {self._path} holds something else than a store at byte {self._read_to + at}: {error}"
                ) from None
            at += 8 + size
        self._read_to += at

    def num_keys(self) -> int:
        """How many keys are set."""
        return self._ask("num_keys") - (self._world_size > 0)

    def close(self) -> None:
        """Use the store no more; the last of `world_size` processes removes the file."""
        if self._file is None:
            return
        if self._world_size > 0 and self._ask("add", "/open", -1) == 0 and os.path.exists(self._path):
            os.unlink(self._path)
        self._file.close()
        self._file = None

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()  # without removing it: nobody said that this process is done


class PrefixStore(Store):
    """Another store, with `prefix` and a slash before each key.

    Args:
        prefix: what keys begin with there.
        store: the store that has them.
    """

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self._prefix = prefix
        self._store = store

    def _where(self) -> str:
        return f"PrefixStore {self._prefix!r} of {self._store._where()}"

    @property
    def underlying_store(self) -> Store:
        """The store that has the keys."""
        return self._store

    @property
    def timeout(self) -> timedelta:
        """That of the store below."""
        return self._store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set it for the store below."""
        self._store.set_timeout(timeout)

    def _ask(self, request: str, *args: Any) -> Any:
        if request == "keys":
            start = f"{self._prefix}/"
            return [key.removeprefix(start) for key in self._store._ask("keys", start + args[0])]
        return self._store._ask(request, *self._prefixed(args))

    def _await(self, seconds: float, request: str, *args: Any) -> Any:
        return self._store._await(seconds, request, *self._prefixed(args))

    def _prefixed(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not args:
            return args
        first = args[0]
        return (
            [f"{self._prefix}/{key}" for key in first] if isinstance(first, list) else f"{self._prefix}/{first}",
            *args[1:],
        )

    def clone(self) -> PrefixStore:
        """The same keys over a connection of their own."""
        return PrefixStore(self._prefix, self._store.clone())


class _Server:
    """The process that has the table of a TCPStore: a thread for each client that proved the key."""

    def __init__(self, listening: socket.socket, key: bytes) -> None:
        self._key = key
        self._socket = listening
        self.port: int = self._socket.getsockname()[1]
        self._table = _Table()
        self._changed = threading.Condition()
        self._clients: set[_wire.Connection] = set()
        self._closed = False
        threading.Thread(target=self._accept, name="TCPStore", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(sock, f"store client {address[0]}:{address[1]}"), daemon=True).start()

    def _serve(self, sock: Any, name: str) -> None:
        try:
            client = _wire.accept_proof(sock, self._key, name)
        except DistNetworkError:
            return  # a stranger: it learns nothing, and nobody here waits for it
        with self._changed:
            self._clients.add(client)
            if self._closed:
                client.close()
        try:
            while True:
                request = client.receive(_LONGEST_REQUEST)
                client.send(self._answer(request))
        except DistNetworkError:
            pass  # the client ended
        finally:
            with self._changed:
                self._clients.discard(client)
            client.close()

    def _answer(self, request: bytearray) -> bytes:
        try:
            seconds, name, *args = unpack(request)
            if not isinstance(name, str) or name.startswith("_") or not hasattr(_Table, name):
                raise ValueError(f"no request of a store: {name!r}")
            return pack([True, self.run(seconds, name, args)])
        except (ValueError, TypeError, DistStoreError) as error:
            return pack([False, str(error)])

    def run(self, seconds: float | None, name: str, args: list[Any]) -> Any:
        answer = None

        def ready() -> bool:
            nonlocal answer
            answer = getattr(self._table, name)(*args)
            return self._closed or seconds is None or (answer is not None and answer is not False)

        with self._changed:
            if not ready():
                self._changed.wait_for(ready, seconds)
            if name in _CHANGES:
                self._changed.notify_all()
        return answer

    def close(self) -> None:
        with self._changed:
            self._closed = True
            clients = list(self._clients)
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # some systems refuse that for a listening socket; closing is enough there
            self._socket.shutdown(2)
        self._socket.close()
        for client in clients:
            client.close()


class TCPStore(Store):
    """A store that one process serves to the others over TCP, to those that prove the job key.

    Args:
        host_name: where the server listens, exactly; "localhost" and "127.0.0.1" reach this machine only.
        port: its port; 0 lets the server choose one, see `port`.
        world_size: how many processes will use the store, None for any number.
        is_master: whether this process is the server.
        timeout: how long to wait for the server, and for keys.
        wait_for_workers: whether the server waits until `world_size` processes are there.
        multi_tenant: share one server among stores of this process with the same address.
        master_listen_fd: a socket that is bound to `port` already, as a file descriptor, for the server to listen on, whose it is then.
        use_libuv: taken for compatibility; there is one implementation.
    Raises: DistNetworkError without a server at that address, or when the keys differ; DistStoreError for workers that do
        not come, and for a `master_listen_fd` that is bound to another port.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = _DEFAULT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        seconds = _seconds("TCPStore", timeout)
        if not isinstance(port, int) or not 0 <= port < 65536:
            raise ValueError(f"TCPStore: port must be in [0, 65535], got {port!r}")
        self._timeout = timeout
        self._host, self._key = host_name, _wire.job_key()
        self._server: _Server | None = None
        if is_master and master_listen_fd is not None:
            self._server = _Server(_wire.listen_on(master_listen_fd, port), self._key)
        elif is_master:
            self._server = self._serve_at(host_name, port, multi_tenant)
        if self._server is not None:
            port = self._server.port
        self._port = port
        self._lock = threading.Lock()
        self._connection, self._interrupted = self._connected(), False
        if wait_for_workers and world_size is not None:
            self._join(world_size, is_master, seconds)

    _shared: dict[tuple[str, int], _Server] = {}

    def _connected(self) -> _wire.Connection:
        seconds = self._timeout.total_seconds()
        return _wire.connect(self._host, self._port, self._key, seconds, f"the store of rank 0 ({self._host}:{self._port})")

    def _serve_at(self, host: str, port: int, shared: bool) -> _Server:
        if shared and (host, port) in self._shared:
            return self._shared[host, port]
        server = _Server(_wire.listen(host, port), self._key)
        if shared:
            self._shared[host, server.port] = server
        return server

    def _join(self, world_size: int, is_master: bool, seconds: float) -> None:
        count = self.add(_INIT, 1)
        if not is_master:
            return
        end = time.monotonic() + seconds
        while count < world_size:
            if time.monotonic() > end:
                raise DistStoreError(f"TCPStore: {count} of {world_size} workers joined {self._where()} within {seconds:g} s")
            time.sleep(0.005)
            count = int(self._ask("get", _INIT))

    def _where(self) -> str:
        return f"TCPStore {self._host}:{self._port}"

    def _ask(self, request: str, *args: Any) -> Any:
        return self._request(None, request, args)

    def _await(self, seconds: float, request: str, *args: Any) -> Any:
        answer = self._request(seconds, request, args)
        return None if answer is False else answer

    def _request(self, seconds: float | None, request: str, args: tuple[Any, ...]) -> Any:
        with self._lock:
            try:
                if self._interrupted:
                    self._connection = self._connected()
                    self._interrupted = False
                self._connection.send(pack([seconds, request, *args]))
                # A server that is stopped answers nothing: it gets the wait, and some seconds of grace.
                self._connection.sock.settimeout((seconds or 0.0) + max(5.0, self._timeout.total_seconds()))
                done, answer = unpack(self._connection.receive())
            except DistNetworkError as error:
                self._connection.close()
                raise DistNetworkError(
                    f"TCPStore.{request}: the store at {self._host}:{self._port} is gone: {error}"
                ) from error
            except BaseException:
                # A signal or Ctrl-C between a question and its answer: the next question would get this answer.
                self._interrupted = True
                self._connection.close()
                raise
        if not done:
            raise DistStoreError(answer)
        return answer

    @property
    def host(self) -> str:
        """The address of the server."""
        return self._host

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port

    @property
    def libuvBackend(self) -> bool:
        """True, for programs that ask; there is one implementation."""
        return True

    def clone(self) -> TCPStore:
        """A client of the same server with a connection of its own."""
        return TCPStore(self._host, self._port, None, False, self._timeout, False)

    def close(self) -> None:
        """End the connection, and the server if it is here."""
        self._connection.close()
        if self._server is not None:
            self._server.close()
            self._shared.pop((self._host, self._port), None)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self._connection.close()
        if getattr(self, "_server", None) is not None and self._server not in self._shared.values():
            self._server.close()

    def __repr__(self) -> str:
        return f"TCPStore({self._host}:{self._port}, {'server' if self._server else 'client'})"
