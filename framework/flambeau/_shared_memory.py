"""Memory that processes share: anonymous behind a descriptor, or a file of /dev/shm with a name.

A block is mapped once per process, however often it arrives there, so tensors of one storage stay tensors of one storage.
Anonymous memory is gone with the last process that has it open, however processes end. A file with a name counts who uses
it in its last bytes; what killed processes leave is removed by the resource tracker of Python's multiprocessing, the helper
process that outlives the program.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np

__all__ = ["STRATEGIES", "SharedBlock", "allocate", "attach_descriptor", "attach_file", "block_of", "set_strategy", "strategy"]

_FOLDER = "/dev/shm"
STRATEGIES = frozenset({"file_descriptor", "file_system"} if sys.platform == "linux" else ())
_strategy = "file_descriptor"

# By (device, inode) of anonymous memory or by the name of a file: the bytes of every block that is mapped here.
_mapped: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_COUNT_BYTES = 8


def strategy() -> str:
    """How new blocks are shared: "file_descriptor" or "file_system"."""
    return _strategy


def set_strategy(name: str) -> None:
    """Share blocks that are made from now on by `name`, one of `STRATEGIES`."""
    global _strategy
    _strategy = name
    if name == "file_system":
        from multiprocessing import resource_tracker

        # Started now, so that processes forked later have the same one.
        resource_tracker.ensure_running()


class SharedBlock:
    """`nbytes` bytes mapped from an open file. Arrays over them keep it alive.

    Args:
        descriptor: the file; taken over, and closed for a file with a name, which can be opened again.
        name: of the file, in /dev/shm; None for anonymous memory.
    """

    __slots__ = ("__weakref__", "_address", "_length", "descriptor", "name", "nbytes")

    def __init__(self, descriptor: int, nbytes: int, name: str | None = None) -> None:
        self._address = None
        self.descriptor: int | None = descriptor
        self.nbytes, self.name = nbytes, name
        self._length = max(nbytes, 1)
        self._address = _map(descriptor, self._length)
        if name is not None:
            os.close(descriptor)
            self.descriptor = None

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self._address, False), "version": 3}

    def __del__(self) -> None:
        if self._address is not None:
            _libc().munmap(self._address, self._length)
        if self.descriptor is not None:
            os.close(self.descriptor)

    def lend(self) -> str:
        """The name of the file, which stays until a receiver has attached it. For blocks with a name."""
        assert self.name is not None
        _count(self.name, 1)
        return self.name


def block_of(values: Any) -> SharedBlock | None:
    """The block that `values`, the uint8 array of a storage, is the memory of; None for memory of this process alone."""
    base = getattr(values, "base", None)
    return base if type(base) is SharedBlock else None


def allocate(nbytes: int) -> Any:
    """New shared memory of `nbytes` zeros, as a uint8 array. Raises: RuntimeError where there is no room."""
    if not STRATEGIES:
        raise NotImplementedError(f"sharing memory between processes is built for Linux only, not for {sys.platform}")
    return _allocate_file(nbytes) if _strategy == "file_system" else _allocate_anonymous(nbytes)


def attach_descriptor(descriptor: int, nbytes: int) -> Any:
    """The anonymous memory behind `descriptor`, which is taken over: the array that is mapped already, if there is one."""
    key = _identity(descriptor)
    known = _mapped.get(key)
    if known is not None:
        os.close(descriptor)
        return known
    return _remember(key, SharedBlock(descriptor, nbytes))


def attach_file(name: str, nbytes: int) -> Any:
    """The memory that was lent as `name`: the array that is mapped already, if there is one.

    Raises: FileNotFoundError where all processes that had it open have ended.
    """
    known = _mapped.get(name)
    if known is None:
        # The user that `lend` counted is this process from now on.
        return _remember(name, _with_user(SharedBlock(os.open(_path(name), os.O_RDWR | os.O_CLOEXEC), nbytes, name)))
    _count(name, -1)
    return known


def _remember(key: Any, block: SharedBlock) -> Any:
    values = np.asarray(block)
    _mapped[key] = values
    return values


def _allocate_anonymous(nbytes: int) -> Any:
    descriptor = os.memfd_create("flambeau", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, max(nbytes, 1))
    return _remember(_identity(descriptor), SharedBlock(descriptor, nbytes))


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


# -- files with a name ---------------------------------------------------------------------------------------------------


def _allocate_file(nbytes: int) -> Any:
    from multiprocessing import resource_tracker
    from secrets import token_hex

    name = f"flambeau-{os.getpid()}-{token_hex(8)}"
    descriptor = os.open(_path(name), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    resource_tracker.register("/" + name, "shared_memory")
    try:
        # Taken now: where there is no room, this fails, while writing would end the process.
        os.posix_fallocate(descriptor, 0, _count_offset(nbytes) + _COUNT_BYTES)
    except OSError as error:
        os.close(descriptor)
        _remove(name)
        raise RuntimeError(
            f"share_memory_: {_FOLDER} has no room for {nbytes} bytes ({error.strerror}); make it larger, or use "
            f"multiprocessing.set_sharing_strategy('file_descriptor'), which needs none there"
        ) from None
    _count(name, 1)
    return _remember(name, _with_user(SharedBlock(descriptor, nbytes, name)))


def _with_user(block: SharedBlock) -> SharedBlock:
    """`block`, with this process taken off its count at the latest when the process ends."""
    from multiprocessing import util

    # It runs in worker processes too, which leave without running atexit, and never in a forked child.
    util.Finalize(block, _count, (block.name, -1), exitpriority=0)
    return block


def _count(name: str, change: int) -> None:
    """Change the number of users of the file, and remove it after the last one."""
    import fcntl

    try:
        descriptor = os.open(_path(name), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # The resource tracker removes files when the program ends, perhaps before its last process.
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        at = os.fstat(descriptor).st_size - _COUNT_BYTES
        users = int.from_bytes(os.pread(descriptor, _COUNT_BYTES, at), sys.byteorder) + change
        os.pwrite(descriptor, users.to_bytes(_COUNT_BYTES, sys.byteorder), at)
        if users == 0:
            _remove(name)
    finally:
        os.close(descriptor)


def _remove(name: str) -> None:
    from multiprocessing import resource_tracker

    os.unlink(_path(name))
    resource_tracker.unregister("/" + name, "shared_memory")


def _count_offset(nbytes: int) -> int:
    return -(-nbytes // _COUNT_BYTES) * _COUNT_BYTES


def _path(name: str) -> str:
    return f"{_FOLDER}/{name}"


# -- mapping -------------------------------------------------------------------------------------------------------------

_library: Any = None


def _libc() -> Any:
    """The C library: Python's `mmap` would keep a second descriptor open for each block."""
    global _library
    if _library is None:
        _library = ctypes.CDLL(None, use_errno=True)
        _library.mmap.restype = ctypes.c_void_p
        _library.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        _library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return _library


def _map(descriptor: int, length: int) -> int:
    address = _libc().mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        os.close(descriptor)
        raise RuntimeError(f"share_memory_: mapping {length} bytes failed: {os.strerror(code)}")
    return address
