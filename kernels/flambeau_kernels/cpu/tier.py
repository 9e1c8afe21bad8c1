"""Which tier the kernels of this folder run on."""

from __future__ import annotations

import functools

import flambeau_kernels as kernels

__all__ = ["compiles"]


def compiles() -> bool:
    """Whether kernels written in the kernel language can run: the numba backend, where llvmlite works."""
    return kernels._backend == "numba" and _works()


@functools.cache
def _works() -> bool:
    try:
        from ..engine import llvm
    except ImportError:
        return False
    return llvm.available() is None
