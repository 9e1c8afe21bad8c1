"""The kernel engine: generated loops, compiled by LLVM, cached on disk, run over one thread pool.

Light to import: llvmlite is loaded by the first compiled launch. Start reading at `launching/elementwise.py`. `launching/loops.py` writes
the kernels, `launching/plan.py` decides how they are walked, `launching/native.py` and `runtime/pool.py` call them, and
`machine_code/llvm.py` is the only module that talks to llvmlite.
"""

from __future__ import annotations

from .launching.elementwise import explain, launch
from .machine_code.llvm import Unavailable, available, compile_ir, compile_symbols
from .runtime.pool import get_num_threads, set_num_threads

__all__ = ["Unavailable", "available", "compile_ir", "compile_symbols", "explain", "get_num_threads", "launch", "set_num_threads"]
