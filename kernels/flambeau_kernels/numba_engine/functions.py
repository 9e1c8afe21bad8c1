"""Texts of Python functions, compiled by numba and kept on disk beside the objects of the llvm engine."""

from __future__ import annotations

import functools
import glob
import hashlib
import linecache
import os
import re
import secrets
import threading
import warnings
from typing import Any

import numba
from numba import types
from numba.core import config

from flambeau_kernels.engine.launching import call
from flambeau_kernels.engine.machine_code import cache, llvm
from flambeau_kernels.engine.runtime.never_freed import never_freed

__all__ = ["LOOP", "TASK", "Function", "compiled"]

# void loop(pointers, n0, n1, strides), and void task(chunk, arguments): what plans and the pool call.
LOOP = types.void(types.voidptr, types.int64, types.int64, types.voidptr)
TASK = types.void(types.int64, types.voidptr)

_lock = threading.RLock()
_made: dict[str, int] = {}


class Function:
    """The text of a function, the intrinsics that it calls by name, and their instructions."""

    __slots__ = ("intrinsics", "lines", "name", "text")

    def __init__(self, name: str, text: str, intrinsics: dict[str, Any], lines: str) -> None:
        self.name, self.text, self.intrinsics, self.lines = name, text, intrinsics, lines

    def shown(self) -> str:
        """For a reader: the function, and the instructions of what it calls."""
        return f"# numba, {self.name}\n{self.text}\n{self.lines}"


def compiled(function: Function, signature: Any) -> int:
    """The address of `function`, which lives as long as the process; compiled, or read from the cache on disk."""
    facts = f"{signature}\n{function.text}\n{function.lines}\n{call._sources()}"
    digest = hashlib.sha256(facts.encode()).hexdigest()
    with _lock:
        if digest not in _made:
            _made[digest] = _compile(function, signature, digest)
        return _made[digest]


def _compile(function: Function, signature: Any, digest: str) -> int:
    path = _kept(function, digest)
    file = path or f"<numba {function.name} {digest[:16]}>"
    # What numba reads from its cache names a module to import, for the globals of functions that are not compiled throughout.
    scope = {"__name__": __name__, **function.intrinsics}
    exec(compile(function.text, file, "exec"), scope)
    linecache.cache[file] = (len(function.text), None, function.text.splitlines(True), file)
    made = numba.cfunc(signature, cache=path is not None, error_model="numpy")(scope[function.name])
    if path is not None and not made.cache_hits:
        contents = _contents(path)
        if contents:
            llvm.disk().put(_seal(digest), contents)
    llvm.counts["compiled"] += not made.cache_hits
    llvm.counts["loaded"] += 1
    never_freed(made)
    address = made.address
    assert address is not None                        # it is compiled
    return address


def _kept(function: Function, digest: str) -> str | None:
    """The file of the text, beside which numba keeps the object; None where there is no safe folder."""
    disk = llvm.disk()
    if disk.why_off is not None or disk.folder is None:
        return None
    if getattr(config, "CACHE_DIR", ""):              # numba would read and write there, unguarded
        return None
    folder = os.path.join(disk.folder, "numba")
    path = os.path.join(folder, f"{re.sub(r'[^0-9A-Za-z_]', '_', function.name)[:60]}_{digest[:32]}.py")
    try:
        for place in (folder, os.path.join(folder, "__pycache__")):
            unsafe = cache.make_own(place)
            if unsafe is not None:
                _tell_unsafe(unsafe)
                return None
        contents = _contents(path)
        if contents is None or contents != disk.get(_seal(digest)):
            for file in _objects(path):
                os.remove(file)
        if not os.path.lexists(path):                 # written again it would be younger than its object
            temporary = f"{path}.{secrets.token_hex(6)}"
            with open(temporary, "x") as file:
                file.write(function.text)
            os.replace(temporary, path)
    except OSError:                                   # a cache that can only be read, or not even that
        return None
    return path


@functools.cache
def _tell_unsafe(reason: str) -> None:
    warnings.warn(f"kernels compiled by numba are kept in memory only: {reason}", stacklevel=2)


def _seal(digest: str) -> str:
    """The key under which the cache of objects tells what numba has written: its own files are pickled, and have no digest."""
    return hashlib.sha256(f"numba|{digest}".encode()).hexdigest()


def _objects(path: str) -> list[str]:
    """The files that numba keeps for the text at `path`."""
    folder, name = os.path.split(path)
    return sorted(glob.glob(os.path.join(glob.escape(folder), "__pycache__", name[:-3] + ".*.nb[ic]")))


def _contents(path: str) -> bytes | None:
    """Digest of the files that numba keeps for the text at `path`; None where there are none, or another user could have written one."""
    made, files = hashlib.sha256(), _objects(path)
    for file in files:
        body = cache.read_own(file)
        if body is None:
            return None
        made.update(f"{os.path.basename(file)} {len(body)}\n".encode() + body)
    return made.digest() if files else None


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
