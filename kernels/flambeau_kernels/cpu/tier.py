"""Which tier the kernels of this folder run on."""

from __future__ import annotations

import functools

from flambeau_kernels import engines, memory

__all__ = ["compiles", "works"]


def compiles() -> bool:
    """Whether kernels written in the kernel language can run: on an engine that compiles, where llvmlite works."""
    return engines.chosen().compiles and works()


@functools.cache
def works() -> bool:
    """Whether LLVM can be used in this process, on which engine ever; large arrays that are freed are kept from then on."""
    try:
        from ..engine.machine_code import llvm
    except ImportError:
        return False
    if llvm.available() is not None:
        return False
    # Results are large where compiled kernels pay, and fresh pages would cost more than filling them.
    memory.keep_freed()
    return True
