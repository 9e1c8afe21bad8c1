"""Sizes of this processor's caches, as the operating system tells them.

They decide how much is packed at a time, and whether at all, never the order of a sum: the bits of results are the same with any.
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

__all__ = ["Caches", "caches"]

# Where nothing is told: the smallest first cache of current processors, and a usual second one.
FIRST, WAYS, SECOND = 32 << 10, 8, 1 << 20


class Caches(NamedTuple):
    """Bytes of the first cache for data, how many lines it holds that are a multiple of its ways' size apart, and of the second."""

    first: int
    ways: int
    second: int


@functools.cache
def caches() -> Caches:
    """Those of a core of this machine; usual ones for what the system does not tell."""
    return Caches(
        _reported("SC_LEVEL1_DCACHE_SIZE") or FIRST, _reported("SC_LEVEL1_DCACHE_ASSOC") or WAYS,
        _reported("SC_LEVEL2_CACHE_SIZE") or SECOND,
    )


def _reported(name: str) -> int:
    """The system's value of a name; 0 where it has none, or does not know."""
    if name not in getattr(os, "sysconf_names", {}):
        return 0
    try:
        return max(os.sysconf(name), 0)
    except OSError:
        return 0
