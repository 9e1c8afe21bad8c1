"""scipy's modules, imported where they are first needed.

Their BLAS takes memory for each of its threads while it is loaded, and ends the process, or interrupts it as Ctrl-C does, where the
address space is limited (`ulimit -v`) and has no room left for that. So there is a look first, and MemoryError instead.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

__all__ = ["scipy_module"]

_LIBRARIES = 256 << 20                                # bytes of address space for the shared objects
_THREAD = 64 << 20                                    # and for stack and buffers of each thread of BLAS


@functools.cache
def scipy_module(name: str) -> Any:
    """The module ``scipy.<name>``. Raises: MemoryError where a limit of the address space leaves no room to load it, ImportError."""
    _check_room(_LIBRARIES + _THREAD * (os.cpu_count() or 1))
    return importlib.import_module(f"scipy.{name}")


def _check_room(size: int) -> None:
    try:
        import resource
    except ImportError:  # not on this system, and no such limits either
        return
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import mmap

    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except OSError:
        raise MemoryError(f"Unable to load scipy's BLAS: the limit of the address space leaves less than {size >> 20} MiB") from None
