"""The connections between all processes of a job, what has arrived over them, and who is still there."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from . import _wire
from ._errors import DistBackendError, DistNetworkError
from ._pack import pack, unpack
from ._stores import Store

__all__ = ["Mesh", "Segment"]

# kind, group, number, length of the packed part
_HEADER = struct.Struct("<BQQI")
CALL, SECOND, ACK, MESSAGE, BYE = range(5)
Key = tuple[int, int, int, int]


class Segment:
    """Memory that the processes of this machine read where it is; the kernel frees it with the last of them.

    It has no name in any folder, so a process that is killed leaves none behind.
    """

    _serials = itertools.count()

    def __init__(self, size: int) -> None:
        self.size = size
        self.serial = next(self._serials)  # descriptors are used again, serial numbers are not
        self.descriptor = os.memfd_create("flambeau")
        os.ftruncate(self.descriptor, size)
        self.memory = mmap.mmap(self.descriptor, size)

    def close(self) -> None:
        with contextlib.suppress(BufferError):  # an array still looks into it; the memory goes with that array
            self.memory.close()
        os.close(self.descriptor)


def _open_segment(process: int, descriptor: int, size: int) -> mmap.mmap:
    opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
    try:
        return mmap.mmap(opened, size)
    finally:
        os.close(opened)


class Mesh:
    """One connection to every other rank, and a thread for each that takes in what comes.

    Args:
        store: where ranks leave their addresses.
        rank, size: which process this is, of how many.
        seconds: how long to wait for the others.
        host: the address to listen at.
    Raises: DistBackendError that names the ranks which do not come.
    """

    def __init__(self, store: Store | None, rank: int, size: int, seconds: float, host: str) -> None:
        self.rank, self.size = rank, size
        self._links: dict[int, _wire.Connection] = {}
        self._arrived: dict[Key, tuple[Any, memoryview]] = {}
        self._messages: dict[tuple[int, int, int], deque[tuple[Any, memoryview]]] = {}
        self._receivers: list[Callable[[], bool]] = []
        self.changed = threading.Condition()
        self.gone: dict[int, str] = {}
        self.left: set[int] = set()  # those of them that said so
        self.last_heard: dict[int, tuple[float, str]] = {}  # when, and what
        self.boards: list[Callable[[int], tuple[float, str] | None]] = []  # where calls that sent no message are found
        self.pids: dict[int, int] = {}
        self._segments: dict[tuple[int, int], mmap.mmap] = {}
        self._closing = False
        self.shares_memory: frozenset[int] = frozenset([rank])
        if size > 1:
            assert store is not None
            self._connect(store, seconds, host)

    # Coming together

    def _connect(self, store: Store, seconds: float, host: str) -> None:
        key = _wire.job_key()
        end = time.monotonic() + seconds
        listener = _wire.listen(host, 0)
        probe, token = _probe()
        port = listener.getsockname()[1]
        store.set(f"rank/{self.rank}", pack([host, port, os.getpid(), probe.descriptor if probe else -1, token]))
        accepting = threading.Thread(target=self._accept, args=(listener, key), daemon=True)
        accepting.start()
        try:
            about = {self.rank: [host, port, os.getpid(), -1, b""]}
            for peer in range(self.size):
                if peer != self.rank:
                    about[peer] = self._address(store, peer, end)
                    self.pids[peer] = about[peer][2]
                if peer < self.rank:
                    link = _wire.connect(about[peer][0], about[peer][1], key, max(0.1, end - time.monotonic()), f"rank {peer}")
                    link.send(pack(self.rank))
                    with self.changed:
                        self._links[peer] = link
            with self.changed:
                if not self.changed.wait_for(lambda: len(self._links) == self.size - 1, max(0.1, end - time.monotonic())):
                    missing = [peer for peer in range(self.size) if peer != self.rank and peer not in self._links]
                    raise DistBackendError(f"init_process_group: ranks {missing} did not connect to rank {self.rank} within {seconds:g} s")
            self._find_shared_memory(store, about, end)
        finally:
            listener.close()
            if probe is not None:
                probe.close()
        for peer in self._links:
            threading.Thread(target=self._take_in, args=(peer,), name=f"from rank {peer}", daemon=True).start()

    def _address(self, store: Store, peer: int, end: float) -> list[Any]:
        found = store._await(max(0.1, end - time.monotonic()), "get", f"rank/{peer}")
        if found is None:
            raise DistBackendError(
                f"init_process_group: rank {peer} of {self.size} did not come in time (rank {self.rank} waited for its address)"
            )
        return unpack(found)

    def _accept(self, listener: socket.socket, key: bytes) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except OSError:
                return  # closed: everybody is there
            threading.Thread(target=self._admit, args=(sock, key, f"{address[0]}:{address[1]}"), daemon=True).start()

    def _admit(self, sock: socket.socket, key: bytes, name: str) -> None:
        try:
            link = _wire.accept_proof(sock, key, name)
            peer = unpack(link.receive(64))
        except (DistNetworkError, ValueError):
            return  # a stranger
        with self.changed:
            if type(peer) is not int or not self.rank < peer < self.size or peer in self._links:
                link.close()
                return
            link.name = f"rank {peer}"
            self._links[peer] = link
            self.changed.notify_all()

    def _find_shared_memory(self, store: Store, about: dict[int, list[Any]], end: float) -> None:
        """Learn whose memory can be read here, by trying; memory is shared where both directions work."""
        readable = [
            peer
            for peer, (_, _, process, descriptor, token) in about.items()
            if descriptor >= 0 and _reads(process, descriptor, token)
        ]
        store.set(f"reads/{self.rank}", pack(readable))
        shared = {self.rank}
        for peer in self._links:
            theirs = store._await(max(0.1, end - time.monotonic()), "get", f"reads/{peer}")
            if theirs is None:
                raise DistBackendError(f"init_process_group: rank {peer} stopped while the processes came together")
            if peer in readable and self.rank in unpack(theirs):
                shared.add(peer)
        self.shares_memory = frozenset(shared)

    # Taking in

    def _take_in(self, peer: int) -> None:
        link = self._links[peer]
        try:
            while True:
                frame = link.receive()
                self._sort(peer, frame)
        except DistNetworkError as error:
            self._lost(peer, str(error))
        except (ValueError, TypeError, struct.error) as error:
            link.close()
            self._lost(peer, f"rank {peer} sent what is no message: {error}")

    def _sort(self, peer: int, frame: bytearray) -> None:
        kind, group, number, length = _HEADER.unpack_from(frame)
        body = memoryview(frame)[_HEADER.size :]
        meta, payload = unpack(body[:length]) if length else None, body[length:]
        with self.changed:
            if kind == BYE:
                self.left.add(peer)
                self.gone.setdefault(peer, f"rank {peer} has left: it called destroy_process_group")
            elif kind == MESSAGE:
                self._messages.setdefault((group, peer, number), deque()).append((meta, payload))
                self._receivers = [receiver for receiver in self._receivers if not receiver()]
            elif kind in (CALL, SECOND, ACK):
                self._arrived[kind, group, number, peer] = (meta, payload)
                if kind == CALL:
                    self.last_heard[peer] = time.monotonic(), f"{meta[0]} #{number} at {meta[2]}"
            else:
                raise ValueError(f"kind {kind}")
            self.changed.notify_all()

    def _lost(self, peer: int, reason: str) -> None:
        with self.changed:
            if not self._closing:
                self.gone.setdefault(peer, f"rank {peer} (process {self.pids.get(peer, 0)}) died or closed its connection: {reason}")
            self._receivers = [receiver for receiver in self._receivers if not receiver()]
            self.changed.notify_all()

    # Going out

    def send(self, peer: int, kind: int, group: int, number: int, meta: Any = None, *payload: Any) -> None:
        """A frame to `peer`; one to a peer that is gone is dropped, for whoever waits for it says so."""
        packed = b"" if meta is None else pack(meta)
        header = _HEADER.pack(kind, group, number, len(packed))
        if peer == self.rank:
            self._sort(peer, bytearray(b"".join([header, packed, *(bytes(part) for part in payload)])))
            return
        try:
            self._links[peer].send(header + packed, *payload)
        except DistNetworkError as error:
            self._lost(peer, str(error))

    def take(self, kind: int, group: int, number: int, peers: Iterable[int], end: float) -> dict[int, tuple[Any, memoryview]]:
        """What `peers` sent under this kind, group and number, for as many of them as sent it before `end`.

        It returns early when one that has not sent it is gone.
        """
        keys = {peer: (kind, group, number, peer) for peer in peers}

        def over() -> bool:
            missing = [peer for peer, key in keys.items() if key not in self._arrived]
            return not missing or any(peer in self.gone for peer in missing)

        with self.changed:
            self.changed.wait_for(over, max(0.0, end - time.monotonic()))
            return {peer: self._arrived.pop(key) for peer, key in keys.items() if key in self._arrived}

    def on_message(self, attempt: Callable[[], bool]) -> None:
        """Call `attempt` now and after each message, until it returns True."""
        with self.changed:
            if not attempt():
                self._receivers.append(attempt)

    def message(self, group: int, peers: Iterable[int], tag: int) -> tuple[int, Any, memoryview] | None:
        """The first message of one of `peers` with `tag`; the condition is held."""
        for peer in peers:
            queue = self._messages.get((group, peer, tag))
            if queue:
                return (peer, *queue.popleft())
        return None

    def memory_of(self, peer: int, serial: int, descriptor: int, size: int) -> mmap.mmap:
        """The segment of another process with this serial number; it is mapped once."""
        found = self._segments.get((peer, serial))
        if found is None:
            found = self._segments[peer, serial] = _open_segment(self.pids[peer], descriptor, size)
        return found

    def condition_of(self, peer: int) -> str:
        """What is known of a rank that does not answer."""
        if peer in self.gone:
            return self.gone[peer]
        heard = [self.last_heard.get(peer), *(board(peer) for board in self.boards)]
        last = max((one for one in heard if one is not None), default=(0.0, ""))[1]
        text = f"rank {peer} (process {self.pids.get(peer, 0)}) is connected"
        if peer in self.shares_memory and _is_stopped(self.pids.get(peer, 0)):
            text = f"rank {peer} (process {self.pids[peer]}) is stopped by a signal or a debugger"
        return f"{text}; its last call heard of is {last}" if last else f"{text}; no call of it was heard of yet"

    def close(self) -> None:
        """Tell the others, and end all connections."""
        for peer in list(self._links):
            self.send(peer, BYE, 0, 0)
        with self.changed:
            self._closing = True
        for link in self._links.values():
            link.close()
        for memory in self._segments.values():
            with contextlib.suppress(BufferError):  # an array still looks into it
                memory.close()


def _probe() -> tuple[Segment | None, bytes]:
    token = secrets.token_bytes(16)
    if not hasattr(os, "memfd_create") or os.environ.get("FLAMBEAU_SHARED_MEMORY") == "0":
        return None, token
    probe = Segment(len(token))
    probe.memory[:] = token
    return probe, token


def _reads(process: int, descriptor: int, token: bytes) -> bool:
    try:
        memory = _open_segment(process, descriptor, len(token))
    except (OSError, ValueError):
        return False  # another machine, container or user
    with memory:
        return memory[:] == token


def _is_stopped(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False
