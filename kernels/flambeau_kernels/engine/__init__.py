"""The kernel engine: generated loops, compiled by LLVM, cached on disk.

Light to import: llvmlite is loaded by the first compiled launch, numba never. Start reading at `launch.py`;
`llvm.py` is the only module that talks to llvmlite.
"""
from __future__ import annotations

from flambeau_kernels.engine.llvm import Unavailable, available, compile_ir, compile_symbols

__all__ = ["Unavailable", "available", "compile_ir", "compile_symbols"]
