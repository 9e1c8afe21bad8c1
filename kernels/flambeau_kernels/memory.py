"""Memory of arrays: freed blocks are kept for the next allocation, and counted.

`keep_freed` puts the caching allocator (`engine/runtime/allocator.py`) behind this thread's arrays. Where it cannot be used
(another system, the numpy backend, which compiles nothing) the C library is asked to keep freed memory instead,
without figures.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_MOST_MMAP_THRESHOLD = 32 << 20  # glibc's limit; larger arrays are mapped and unmapped one by one


def keep_freed() -> bool:
    """Keep what arrays of this thread free, for the next ones; cheap when it is done already. Returns whether it is done.

    `FLAMBEAU_KEEP_MEMORY` is the number of bytes to keep at most, 0 none; by default 512 MB.
    """
    from . import backend
    from .engine.runtime import allocator

    if backend() == "numpy" or allocator.record() is None:
        return _ask_libc()
    allocator.adopt_thread()
    return True


@functools.cache
def _libc() -> Any:
    """The C library, if it is glibc, whose interface this is."""
    if os.name != "posix":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


@functools.cache
def _ask_libc() -> bool:
    """Let the C library keep freed memory at the end of its heap. Settings made by its own variables are left alone."""
    from .engine.runtime import allocator

    kept = allocator.limit_from_environment()
    if kept <= 0 or {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"} & set(os.environ) or not _libc():
        return False
    # Setting either threshold stops glibc from adapting both.
    done = _libc().mallopt(_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD)
    return bool(done and _libc().mallopt(_TRIM_THRESHOLD, min(kept, 2**31 - 1)))


def release() -> None:
    """Give all memory that is kept back to the system now."""
    from . import backend
    from .engine.runtime import allocator

    if backend() != "numpy":
        allocator.trim()
    if _libc():
        _libc().malloc_trim(0)


def statistics() -> dict[str, int]:
    """Bytes and counts of the allocator, which are those of arrays of 64 kB and more.

    Raises: RuntimeError, saying why, where the caching allocator is not in use.
    """
    from .engine.runtime import allocator as a

    slots = _slots()
    names = {
        "allocated_bytes": a.ALLOCATED, "peak_allocated_bytes": a.PEAK, "reserved_bytes": a.RESERVED,
        "peak_reserved_bytes": a.PEAK_RESERVED, "cached_bytes": a.CACHED, "cache_limit_bytes": a.LIMIT,
        "allocations": a.MADE, "reused": a.REUSED, "frees": a.FREED,
    }  # fmt: skip
    return {name: slots[slot] for name, slot in names.items()}


def reset_peaks() -> None:
    """Let both peaks start again from what is in use now."""
    from .engine.runtime import allocator as a

    slots = _slots()
    slots[a.PEAK], slots[a.PEAK_RESERVED] = slots[a.ALLOCATED], slots[a.RESERVED]


def set_limit(size: int) -> None:
    """Keep at most `size` bytes of freed memory from now on; what is kept beyond that goes back to the system.

    Raises: TypeError if `size` is not an int; ValueError if it is negative.
    """
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"size must be an int, a number of bytes; got {type(size).__name__}")
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    from .engine.runtime import allocator as a

    slots = _slots()
    slots[a.LIMIT] = size
    if slots[a.CACHED] > size:
        a.trim()


def _slots() -> Any:
    from . import backend
    from .engine.runtime import allocator

    keep_freed()
    slots = allocator.record() if backend() != "numpy" else None
    if slots is None:
        compiles = "the numpy backend compiles nothing" if backend() == "numpy" else None
        reason = compiles or allocator.why_off() or "this numpy is unknown to it"
        raise RuntimeError(f"there are no memory statistics: the caching allocator is off, because {reason}")
    return slots
