"""Compiled objects on disk: one file per kernel, safe against crashes, readers and concurrent writers.

A file is a 64-byte header (magic, body length, SHA-256 of the body) and the object code. It is written under
a temporary name and renamed, so a reader sees a whole file or none; a file that fails its header is ignored
and written again. Object code is executed, so a folder that other users may write to is not used.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import struct
import sys

MAGIC = b"FLAMBEAU"
HEADER = struct.Struct("<8sQ32s16x")                  # 64 bytes


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

    `why_off` is None while the folder is in use, else the reason, for `explain` and the warm-up command.
    """

    def __init__(self, folder: str | None):
        self.folder = folder
        self.why_off = "switched off by FLAMBEAU_CACHE" if folder is None else self._prepare(folder)

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, or None when there is none or the file is damaged."""
        if self.why_off is not None or self.folder is None:
            return None
        try:
            with open(_path(self.folder, key), "rb") as file:
                return unpack(file.read())
        except OSError:
            return None

    def put(self, key: str, body: bytes) -> None:
        """Store `body` under `key`; a folder that cannot be written switches the cache off."""
        if self.why_off is not None or self.folder is None:
            return
        temporary = os.path.join(self.folder, f"tmp.{os.getpid()}.{secrets.token_hex(8)}")
        try:
            with open(temporary, "wb") as file:
                file.write(pack(body))
            os.replace(temporary, _path(self.folder, key))
        except OSError as error:
            self.why_off = f"{self.folder} cannot be written: {error.strerror}"
            _remove_quietly(temporary)

    @staticmethod
    def _prepare(folder: str) -> str | None:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            facts = os.stat(folder)
        except OSError as error:
            return f"{folder} cannot be made: {error.strerror}"
        if hasattr(os, "getuid") and facts.st_uid != os.getuid():
            return f"{folder} belongs to another user, and object code is executed"
        if hasattr(os, "getuid") and facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{folder} is writable by others, and object code is executed (chmod go-w it)"
        return None


def pack(body: bytes) -> bytes:
    """Header and body of a cache file."""
    return HEADER.pack(MAGIC, len(body), hashlib.sha256(body).digest()) + body


def unpack(raw: bytes) -> bytes | None:
    """The body of a cache file, or None if it is cut short or altered."""
    if len(raw) < HEADER.size:
        return None
    magic, length, digest = HEADER.unpack_from(raw)
    body = raw[HEADER.size:]
    whole = magic == MAGIC and length == len(body) and digest == hashlib.sha256(body).digest()
    return body if whole else None


def _path(folder: str, key: str) -> str:
    return os.path.join(folder, key + ".o")


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)
