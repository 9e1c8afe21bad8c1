"""Compiled objects on disk: one file per kernel, safe against crashes, readers, concurrent writers and other users.

A file is a header (magic, length of the body, the key, SHA-256 of all the rest) and the object code. It is written
under a temporary name and renamed, so a reader sees a whole file or none. A file that fails its header, or whose
header names another key, is a miss and is written again.

Object code is executed, so it is only read where nobody but this user and root can have put it: from a regular file
that is theirs and that others may not write to, reached without following a link, in a folder of which the same holds
and all whose parents are theirs and closed to writers too. A parent like ``/tmp``, which all may write to but where
nobody can rename what is another's (the sticky bit), will do. Systems without owners and modes (Windows) keep
the folder below the user's own, which their access lists guard.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import struct
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

MAGIC = b"FLAMBEA2"
HEADER = struct.Struct("<8sQ32s32s")  # magic, bytes of the body, key, digest
_SIGNED = struct.Struct("<8sQ32s")  # what of the header the digest covers, beside the body

# A link under the name of an object is not followed, and a named pipe not waited for.
_READ = (os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
         | getattr(os, "O_BINARY", 0))
_CREATE = (os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
           | getattr(os, "O_BINARY", 0))
_HAS_OWNERS = hasattr(os, "geteuid")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

# Seconds after which a temporary file has been left behind by a process that was killed.
_ABANDONED = 3600


def default_folder() -> str | None:
    """The cache folder the user asked for by `FLAMBEAU_CACHE` (`off`: none), or the platform's usual place.
    """
    chosen = os.environ.get("FLAMBEAU_CACHE")
    if chosen is not None:
        return None if chosen.strip().lower() in ("", "off", "0") else os.path.expanduser(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    base = os.path.expanduser(base)
    return None if base.startswith("~") else os.path.join(base, "flambeau")


class ObjectCache:
    """Maps a key (hex digest) to object code in `folder`; without a usable folder it remembers nothing.

    Attributes:
        folder: where the objects are, without links; None when the cache is switched off.
        why_off: None while the folder is in use, else the reason, for `explain` and the warm-up command.
        why_unsafe: the same reason where it is that other users could plant objects, else None.
        why_not_written: why objects are only read, once writing has failed.
        used: keys of the objects that this process has read or written, in order.
    """

    def __init__(self, folder: str | None):
        self.folder = folder
        self.why_off: str | None = None
        self.why_unsafe: str | None = None
        self.why_not_written: str | None = None
        self.used: dict[str, None] = {}
        self._looked_for_abandoned = False
        if folder is None:
            self.why_off = "switched off by FLAMBEAU_CACHE"
            return
        try:
            self.folder = os.path.realpath(folder)
            self.why_unsafe = self.why_off = _make_safely(self.folder)
        except OSError as error:
            self.why_off = f"{folder} cannot be made: {error.strerror}"

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, or None when there is none, the file is damaged or another user could have written it.
        """
        if self.why_off is not None or self.folder is None:
            return None
        try:
            with _own_file(_path(self.folder, key)) as (file, size):
                body = None if file is None else _read_checked(file, key, size)
        except OSError:
            return None
        if body is not None:
            self.used[key] = None
        return body

    def put(self, key: str, body: bytes) -> None:
        """Store `body` under `key`; a folder that cannot be written is only read from then on."""
        if self.why_off is not None or self.folder is None or self.why_not_written is not None:
            return
        temporary = os.path.join(self.folder, f"tmp.{os.getpid()}.{secrets.token_hex(8)}")
        try:
            # Readable by others, so that root can fill the cache of a machine; writable by nobody else under any umask.
            with os.fdopen(os.open(temporary, _CREATE, 0o644), "wb") as file:
                file.write(pack(key, body))
            os.replace(temporary, _path(self.folder, key))
            self.used[key] = None
        except OSError as error:
            self.why_not_written = f"{self.folder} cannot be written: {error.strerror}"
            _remove_quietly(temporary)
        self._remove_abandoned()

    def bundled(self) -> tuple[bytes, list[str]]:
        """The files of the objects that this process has used, one after the other, and their keys."""
        found = [(key, body) for key in list(self.used) if (body := self.get(key)) is not None]
        return b"".join(pack(key, body) for key, body in found), [key for key, _ in found]

    def unbundle(self, raw: bytes) -> list[str] | None:
        """Store the objects of `bundled` that are not there yet.

        Returns: the keys of all; None for damaged bytes, of which nothing is stored.
        """
        found = _taken_apart(raw)
        if found is None:
            return None
        for key, body in found:
            if self.get(key) is None:
                self.put(key, body)
        return [key for key, _ in found]

    def _remove_abandoned(self) -> None:
        """Once in each process, remove what writers that were killed have left."""
        if self._looked_for_abandoned or self.folder is None:
            return
        self._looked_for_abandoned = True
        oldest = time.time() - _ABANDONED
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith("tmp.") and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    _remove_quietly(entry.path)


def pack(key: str, body: bytes) -> bytes:
    """Header and body of the cache file for `key`."""
    signed = _SIGNED.pack(MAGIC, len(body), bytes.fromhex(key))
    return signed + _digest(signed, body) + body


def unpack(key: str, raw: bytes) -> bytes | None:
    """The body of the cache file `raw`, or None if it is cut short, altered or of another key."""
    if len(raw) < HEADER.size:
        return None
    magic, length, named, digest = HEADER.unpack_from(raw)
    if magic != MAGIC or length != len(raw) - HEADER.size or named != bytes.fromhex(key):
        return None
    body = raw[HEADER.size:]
    return body if digest == _digest(raw[:_SIGNED.size], body) else None


def _taken_apart(raw: bytes) -> list[tuple[str, bytes]] | None:
    """Keys and bodies of cache files one after the other; None if one is cut short or altered."""
    found, at = [], 0
    while at < len(raw):
        if len(raw) - at < HEADER.size:
            return None
        _, length, named, _ = HEADER.unpack_from(raw, at)
        end = at + HEADER.size + length
        body = unpack(named.hex(), raw[at:end])
        if body is None:
            return None
        found.append((named.hex(), body))
        at = end
    return found


def _digest(signed: bytes, body: bytes) -> bytes:
    made = hashlib.sha256(signed)
    made.update(body)
    return made.digest()


@contextlib.contextmanager
def _own_file(path: str) -> Iterator[tuple[BinaryIO | None, int]]:
    """The open file at `path` and its size, or None where it is no regular file or another user could have written it."""
    with os.fdopen(os.open(path, _READ), "rb") as file:
        facts = os.fstat(file.fileno())
        own = stat.S_ISREG(facts.st_mode) and not _is_open_to_others(facts)
        yield file if own else None, facts.st_size


def read_own(path: str) -> bytes | None:
    """What the file at `path` holds; None where it cannot be read, is no regular file or another user could have written it."""
    try:
        with _own_file(path) as (file, _):
            return None if file is None else file.read()
    except OSError:
        return None


def make_own(folder: str) -> str | None:
    """Make `folder` inside one that is safe; returns why other users could plant files in it, None where they cannot.

    Raises: OSError where it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    facts = os.lstat(folder)
    return _why_unsafe(folder, facts, is_parent=False) if stat.S_ISDIR(facts.st_mode) else f"{folder} is no folder"


def _read_checked(file: BinaryIO, key: str, size: int) -> bytes | None:
    """The body of an open file of `size` bytes, which is only read if its header tells the same size and `key`."""
    header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    magic, length, named, _ = HEADER.unpack(header)
    if magic != MAGIC or length != size - HEADER.size or named != bytes.fromhex(key):
        return None
    return unpack(key, header + file.read(length))


def _make_safely(folder: str) -> str | None:
    """Make `folder`, a path without links, and what is missing above it; returns why other users could plant objects there.

    Nothing is made in a place that is not safe. Raises: OSError where the folder cannot be made.
    """
    drive, rest = os.path.splitdrive(folder)
    parts = [part for part in rest.split(os.sep) if part]
    path = drive + os.sep
    for depth in range(len(parts) + 1):
        if depth:
            path = os.path.join(path, parts[depth - 1])
            with contextlib.suppress(FileExistsError):
                if not os.path.lexists(path):
                    os.mkdir(path, 0o700)
        facts = os.lstat(path)
        if not stat.S_ISDIR(facts.st_mode):
            raise NotADirectoryError(20, f"{path} is no folder")
        reason = _why_unsafe(path, facts, is_parent=depth < len(parts))
        if reason is not None:
            return reason
    return None


def _why_unsafe(path: str, facts: os.stat_result, is_parent: bool) -> str | None:
    if not _is_open_to_others(facts):
        return None
    if facts.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user, and object code is executed"
    if is_parent and facts.st_mode & stat.S_ISVTX:
        return None  # what is in it can only be renamed by its owner, who is looked at next
    return f"{path} is writable by others, and object code is executed (chmod go-w {path})"


def _is_open_to_others(facts: os.stat_result) -> bool:
    """Whether a user other than this one and root may write to what has these `facts`."""
    return _HAS_OWNERS and (facts.st_uid not in (os.geteuid(), 0) or bool(facts.st_mode & _OTHERS_WRITE))


def _path(folder: str, key: str) -> str:
    return os.path.join(folder, key + ".o")


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)
