"""Which tier the kernels of this folder run on, and when a compiled one with the same bits takes the place of numpy."""

from __future__ import annotations

import functools
import sys

from flambeau_kernels import engines, memory

__all__ = ["compiles", "due"]

# Calls after which a cached kernel is loaded in half a millisecond if LLVM's library is there, that library is loaded as well in 35,
# and a missing kernel is compiled in some 30.
LOAD_AFTER, LIBRARY_AFTER, COMPILE_AFTER = 32, 300, 1000


def due(before: float, spent: float) -> bool | None:
    """Whether a kernel is to take over from numpy, whose calls have cost so much `before` this one and with it, counted in usual calls.

    Returns: None for not yet, False if the cache has it, True if it may be compiled as well. Bits are the same on both sides.
    """
    if before < COMPILE_AFTER <= spent:
        return True
    if before < LIBRARY_AFTER <= spent:
        return False
    return False if before < LOAD_AFTER <= spent and "llvmlite.binding" in sys.modules else None


def compiles() -> bool:
    """Whether kernels written in the kernel language can run: on an engine that compiles, where llvmlite works."""
    return engines.chosen().compiles and _works()


@functools.cache
def _works() -> bool:
    try:
        from ..engine import llvm
    except ImportError:
        return False
    if llvm.available() is not None:
        return False
    # Results are large where compiled kernels pay, and fresh pages would cost more than filling them.
    memory.keep_freed()
    return True
