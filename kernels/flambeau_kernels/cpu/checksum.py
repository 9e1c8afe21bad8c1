"""CRC-32, the checksum of zip archives, at the speed of memory.

Long data is folded: 64 bytes at a time are multiplied, as polynomials over two elements, by the power of x that carries them 64 bytes
on, and added to what is there. What is left are 16 bytes of the same remainder, whose checksum zlib computes. Source: V. Gopal and others,
Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel, 2009; constants for the bit-reversed polynomial 0x04C11DB7.
"""
from __future__ import annotations

import ctypes
import functools
import zlib
from typing import Any

import numpy as np

from flambeau_kernels.engine import llvm

__all__ = ["crc32"]

_LONG = 1 << 16                                       # bytes from which on a call of native code pays
_BLOCK = 64
# x to the powers 4*128+32, 4*128-32, 128+32 and 128-32, reversed, modulo the polynomial.
_BY_64, _BY_16 = (0x154442BD4, 0x1C6E41596), (0x1751997D0, 0x0CCAA009E)


def crc32(data: Any) -> int:
    """The CRC-32 of the contiguous bytes `data`, as `zlib.crc32` gives it. Other threads run meanwhile."""
    view = memoryview(data).cast("B")
    # A program that only reads files is not made to load a compiler; the checksum is the same.
    fold = _fold() if len(view) >= _LONG and llvm.in_use() else None
    if fold is None:
        return zlib.crc32(view)
    whole = len(view) // _BLOCK * _BLOCK
    rest = np.empty(16, np.uint8)
    fold(np.frombuffer(view, np.uint8).ctypes.data, whole, rest.ctypes.data)
    # All ones stand for a register of zeros, from which the folded bytes go on.
    return zlib.crc32(view[whole:], zlib.crc32(rest.data, 0xFFFFFFFF))


@functools.cache
def _fold() -> Any:
    """The native ``void fold(bytes, length, 16 bytes for the result)``; None where the processor cannot multiply so."""
    if llvm.available() is not None or "+pclmul" not in llvm.machine().features.split(","):
        return None
    address = llvm.compile_ir(_text(), "crc32_fold", llvm.WRITTEN)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(address)


def _text() -> str:
    def carried(name: str, value: str, by: str, added: str) -> list[str]:
        """Lines for `name`: `value` carried on by `by`, and `added` to it."""
        return [
            f"%{name}.l = call <2 x i64> @llvm.x86.pclmulqdq(<2 x i64> {value}, <2 x i64> {by}, i8 0)",
            f"%{name}.h = call <2 x i64> @llvm.x86.pclmulqdq(<2 x i64> {value}, <2 x i64> {by}, i8 17)",
            f"%{name}.s = xor <2 x i64> %{name}.l, %{name}.h",
            f"%{name} = xor <2 x i64> %{name}.s, {added}",
        ]

    by_64, by_16 = (f"<i64 {low}, i64 {high}>" for low, high in (_BY_64, _BY_16))
    first, step, last = [], [], []
    for k in range(4):
        first += [f"%p{k} = getelementptr i8, ptr %data, i64 {16 * k}", f"%v{k} = load <2 x i64>, ptr %p{k}, align 1"]
        step += [f"%q{k} = getelementptr i8, ptr %at, i64 {16 * k}", f"%w{k} = load <2 x i64>, ptr %q{k}, align 1"]
        step += carried(f"n{k}", f"%x{k}", by_64, f"%w{k}")
    now = "%x0"
    for k in range(1, 4):
        last += carried(f"r{k}", now, by_16, f"%x{k}")
        now = f"%r{k}"
    # The register begins with ones.
    starts = ["%s0", "%v1", "%v2", "%v3"]
    phis = [f"%x{k} = phi <2 x i64> [{starts[k]}, %entry], [%n{k}, %step]" for k in range(4)]
    body = [
        "entry:", *first, "%s0 = xor <2 x i64> %v0, <i64 4294967295, i64 0>", "br label %head",
        "head:", f"%i = phi i64 [{_BLOCK}, %entry], [%next, %step]", *phis,
        "%more = icmp slt i64 %i, %length", "br i1 %more, label %step, label %end",
        "step:", "%at = getelementptr i8, ptr %data, i64 %i", *step, f"%next = add i64 %i, {_BLOCK}", "br label %head",
        "end:", *last, f"store <2 x i64> {now}, ptr %out, align 1", "ret void",
    ]  # fmt: skip
    lines = "\n".join(line if line.endswith(":") else f"  {line}" for line in body)
    return (
        "declare <2 x i64> @llvm.x86.pclmulqdq(<2 x i64>, <2 x i64>, i8)\n"
        f"define void @crc32_fold(ptr %data, i64 %length, ptr %out) {{\n{lines}\n}}\n"
    )
