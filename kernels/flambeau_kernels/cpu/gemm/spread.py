"""Copies of matrices whose rows lie whole pages apart, with rows that do not.

Lines of memory a page apart share a few places of a cache, so a tile that reads 14 such rows side by side, or 384 one below the
other, finds hardly anything there again. Moving the rows apart by one more line costs one pass over the matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.cpu.gemm import driver
from flambeau_kernels.cpu.gemm.text import Function
from flambeau_kernels.engine.machine_code import llvm

LINE = 64                                             # bytes
CHUNK = 1 << 18                                       # bytes that a thread copies at a time
MOST = 1 << 26                                        # bytes of a matrix that is copied


def spread(x: Any) -> Callable[[Any], Any]:
    """What copies matrices like `x`, contiguous along one dimension, to rows that are a line more than full pages apart."""
    turned = x.strides[-1] != x.itemsize
    rows, columns = x.shape[::-1] if turned else x.shape
    width = columns * x.itemsize
    stride = -(-width // LINE) * LINE + LINE
    plan = driver.new_plan((rows, width, 1), (x.strides[1] if turned else x.strides[0], 0, 0, 0, stride, 1))
    driver.set_grid(plan, max(CHUNK // width, 1), width, 1)
    plan[driver.BLOCK], plan[driver.RELEASE] = _copy(), rows * width >= CHUNK
    start = driver.runner()

    def run(x: Any) -> Any:
        memory = np.empty(rows * stride + LINE, np.uint8)
        first = -memory.ctypes.data % LINE
        made = np.ndarray((rows, columns), x.dtype, memory, first, (stride, x.itemsize))
        start(plan, x, x, made, x, x)
        return made.T if turned else made

    return run


@functools.cache
def _copy() -> int:
    """Address of the block function of `driver.py` that copies `m` rows of `n` bytes from A to C."""
    f = Function("void @copy_rows(ptr %plan, ptr %a, ptr %b, ptr %c, ptr %bias, ptr %beside, i64 %m, i64 %n, ptr %scratch)")
    a_m, c_m = f.field("%plan", driver.A_M), f.field("%plan", driver.C_M)
    with f.loop(0, "%m") as i:
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {f.at('%c', f.mul(i, c_m))}, ptr {f.at('%a', f.mul(i, a_m))}, i64 %n, i1 false)")
    f.do("ret void")
    text = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n!0 = distinct !{!0}\n" + f.text()
    return llvm.compile_ir(text, "copy_rows", llvm.WRITTEN)
