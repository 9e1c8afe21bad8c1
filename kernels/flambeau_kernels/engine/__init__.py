"""The kernel engine: generated loops, compiled by LLVM, cached on disk, run over one thread pool.

Light to import: llvmlite is loaded by the first compiled launch. Start reading at `elementwise.py`;
    `loops.py`
writes the kernels, `plan.py` decides how they are walked, `native.py` and `pool.py` call them, and `llvm.py`
is the only module that talks to llvmlite.
"""
from __future__ import annotations

from flambeau_kernels.engine.elementwise import explain, launch
from flambeau_kernels.engine.llvm import Unavailable, available, compile_ir, compile_symbols
from flambeau_kernels.engine.pool import get_num_threads, set_num_threads

__all__ = ["Unavailable", "available", "compile_ir", "compile_symbols", "explain", "get_num_threads",
           "launch",
           "set_num_threads"]
