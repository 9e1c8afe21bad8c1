"""Connections that prove a job key before anything else, and carry frames of a checked length.

The key proves that both ends belong to one job; frames after the proof are neither encrypted nor signed, so a network
that others can write to needs a tunnel.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import stat
import struct
import threading
import time
from typing import Any

from ._errors import DistNetworkError, DistStoreError

__all__ = ["Connection", "accept_proof", "connect", "job_key", "listen"]

MAGIC = b"flambeau-job-1\0\0"
LONGEST_FRAME = 1 << 34  # bytes; a larger tensor is sent in pieces by nobody we know
PROOF_SECONDS = 5.0
_LENGTH = struct.Struct("<Q")


def job_key() -> bytes:
    """The secret of this job: ``FLAMBEAU_JOB_KEY``, else the file ``FLAMBEAU_JOB_KEY_FILE``, else one file for this user.

    The user's file is ``flambeau/job.key`` under ``XDG_RUNTIME_DIR`` or the home folder's ``.cache``, and is made on
    first use. A file of the key must belong to this user, and nobody else may read it.

    Raises: DistNetworkError for a file that others can read.
    """
    given = os.environ.get("FLAMBEAU_JOB_KEY")
    if given:
        return given.encode()
    named = os.environ.get("FLAMBEAU_JOB_KEY_FILE")
    if named:
        return _key_of_file(named)
    home = os.environ.get("XDG_RUNTIME_DIR") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(home, "flambeau", "job.key")
    if not os.path.exists(path):
        _make_key(path)
    return _key_of_file(path)


def _make_key(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    # Written whole under another name first, so that processes that start together agree on one key.
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process of this user was first, and its key is the key
    finally:
        os.unlink(temporary)


def _key_of_file(path: str) -> bytes:
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if stat.S_IMODE(about.st_mode) & 0o077 or about.st_uid != os.getuid():
            raise DistNetworkError(
                f"distributed: the job key in {path} has mode {stat.S_IMODE(about.st_mode):04o} and owner {about.st_uid}; "
                f"it must belong to user {os.getuid()} and have mode 0600: chmod 600 {path}"
            )
        key = file.read().strip()
    if len(key) < 16:
        raise DistNetworkError(f"distributed: the job key in {path} has {len(key)} bytes; 16 are the least")
    return key


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at exactly this address.

    Raises: DistNetworkError if the address is taken or is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)
    except OSError as error:
        raise DistNetworkError(
            f"distributed: cannot listen at {host}:{port}: {error} (EADDRINUSE means that another program has the port)"
        ) from error
    return found


def listen_on(descriptor: int, port: int) -> socket.socket:
    """The socket `descriptor`, which is bound to `port`, listening.

    Raises: DistStoreError if it is bound to another port; DistNetworkError if it is no socket that can listen.
    """
    try:
        found = socket.socket(fileno=descriptor)
        bound = found.getsockname()[1]
        if bound == port:
            found.listen(1024)
    except (OSError, TypeError, IndexError) as error:
        raise DistNetworkError(f"distributed: cannot listen on the file descriptor {descriptor}: {error}") from error
    if bound != port:
        found.detach()                                    # whose it was
        raise DistStoreError(f"listen fd {descriptor} is bound to port {bound}, expected to be bound to port {port}")
    return found


class Connection:
    """A socket whose other end has proved the key: whole frames in, whole frames out."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self.sock = sock
        self.name = name
        self._sending = threading.Lock()
        sock.settimeout(None)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *parts: Any) -> None:
        """One frame made of `parts`, bytes or contiguous memory."""
        total = sum(memoryview(part).nbytes for part in parts)
        if total > LONGEST_FRAME:
            raise DistNetworkError(f"distributed: a frame of {total} bytes to {self.name}; {LONGEST_FRAME} are the most")
        with self._sending:
            try:
                if total < 65536:
                    self.sock.sendall(b"".join([_LENGTH.pack(total), *parts]))
                    return
                self.sock.sendall(_LENGTH.pack(total))
                for part in parts:
                    self.sock.sendall(memoryview(part).cast("B"))
            except OSError as error:
                raise DistNetworkError(f"distributed: the connection to {self.name} broke while sending: {error}") from error

    def receive(self, longest: int = LONGEST_FRAME) -> bytearray:
        """The next frame.

        Raises: DistNetworkError at the end of the connection, and for a length past `longest` bytes.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > longest:
            self.close()
            raise DistNetworkError(f"distributed: {self.name} announced a frame of {length} bytes; {longest} are the most")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytearray:
        return _exactly(self.sock, count, self.name)

    def close(self) -> None:
        """End the connection, also for a thread that waits in `receive`."""
        with contextlib.suppress(OSError):  # the other end has gone already
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def _exactly(sock: socket.socket, count: int, name: str) -> bytearray:
    # Grown as data comes: a length that nobody sends costs no memory.
    found = bytearray(min(count, 1 << 20))
    at = 0
    while at < count:
        if at == len(found):
            found.extend(bytes(min(count - at, max(len(found), 1 << 20))))
        try:
            got = sock.recv_into(memoryview(found)[at:])
        except OSError as error:
            raise DistNetworkError(f"distributed: the connection to {name} broke: {error}") from error
        if not got:
            raise DistNetworkError(f"distributed: {name} closed the connection (it ended, or refused the job key)")
        at += got
    del found[count:]
    return found


def _proof(key: bytes, role: bytes, *nonces: bytes | bytearray) -> bytes:
    return hmac.new(key, MAGIC + role + b"".join(nonces), hashlib.sha256).digest()


def accept_proof(sock: socket.socket, key: bytes, name: str) -> Connection:
    """Make the client behind an accepted socket prove `key`, and prove it in turn.

    Raises: DistNetworkError, with the socket closed, when it does not.
    """
    try:
        sock.settimeout(PROOF_SECONDS)
        nonce = secrets.token_bytes(32)
        sock.sendall(MAGIC + nonce)
        answer = _exactly(sock, 64, name)
        theirs, proof = bytes(answer[:32]), bytes(answer[32:])
        if not hmac.compare_digest(proof, _proof(key, b"client", nonce, theirs)):
            raise DistNetworkError(f"distributed: {name} does not know the job key")
        sock.sendall(_proof(key, b"server", theirs, nonce))
    except OSError as error:
        sock.close()
        raise DistNetworkError(f"distributed: {name} did not prove the job key: {error}") from error
    except DistNetworkError:
        sock.close()
        raise
    return Connection(sock, name)


def connect(host: str, port: int, key: bytes, seconds: float, name: str = "") -> Connection:
    """A proved connection to a listening process, tried again until it is there.

    Raises: DistNetworkError after `seconds`, or at once when the other end does not know the key.
    """
    name = name or f"{host}:{port}"
    end = time.monotonic() + seconds
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=max(0.05, end - time.monotonic()))
            break
        except OSError as error:
            if time.monotonic() >= end:
                raise DistNetworkError(
                    f"distributed: no connection to {name} at {host}:{port} within {seconds:g} s: {error}"
                ) from error
            time.sleep(0.01)
    try:
        # A server with many clients may be slow to answer, but not slower than the caller waits.
        sock.settimeout(max(PROOF_SECONDS, end - time.monotonic()))
        hello = _exactly(sock, len(MAGIC) + 32, name)
        if bytes(hello[: len(MAGIC)]) != MAGIC:
            raise DistNetworkError(f"distributed: {name} at {host}:{port} speaks another protocol; it is no process of this job")
        nonce, mine = bytes(hello[len(MAGIC) :]), secrets.token_bytes(32)
        sock.sendall(mine + _proof(key, b"client", nonce, mine))
        try:
            answer = bytes(_exactly(sock, 32, name))
        except DistNetworkError as error:
            raise DistNetworkError(
                f"distributed: {name} at {host}:{port} refused the job key of this process; give all processes one FLAMBEAU_JOB_KEY"
            ) from error
        if not hmac.compare_digest(answer, _proof(key, b"server", mine, nonce)):
            raise DistNetworkError(f"distributed: {name} at {host}:{port} does not know the job key")
    except OSError as error:
        sock.close()
        raise DistNetworkError(f"distributed: {name} at {host}:{port}: {error}") from error
    except DistNetworkError:
        sock.close()
        raise
    return Connection(sock, name)
