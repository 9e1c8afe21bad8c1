"""CRC-32, the checksum of zip archives, at the speed of memory.

Long data is folded: 64, 128 or 256 bytes at a time are multiplied, as polynomials over two elements, by the power of x that carries them as
many bytes on, and added to what is there. What is left are 16 bytes of the same remainder, whose checksum zlib computes. Checksums of
pieces are joined by the same arithmetic on single numbers. Source: V. Gopal and others, Fast CRC Computation for Generic Polynomials
Using PCLMULQDQ Instruction, Intel, 2009; constants for the bit-reversed polynomial 0x04C11DB7.
"""
from __future__ import annotations

import ctypes
import functools
import zlib
from typing import Any

import numpy as np

from flambeau_kernels.cpu import tier
from flambeau_kernels.engine.machine_code import llvm

__all__ = ["crc32", "joined"]

_LONG = 1 << 16                                       # bytes from which on a call of native code pays
_BLOCK = 256
_POLYNOMIAL = 0xEDB88320                              # 0x04C11DB7 with its bits reversed


def crc32(data: Any, value: int = 0) -> int:
    """The CRC-32 of the contiguous bytes `data` after others whose checksum is `value`, as `zlib.crc32` gives it.

    Other threads run meanwhile.
    """
    view = memoryview(data).cast("B")
    # A program that reads a few files is not made to load a compiler; the checksum is the same.
    fold = _fold() if len(view) >= _LONG and _pays(len(view)) else None
    if fold is None:
        return zlib.crc32(view, value)
    folded = len(view) // _BLOCK * _BLOCK
    rest = np.empty(16, np.uint8)
    fold(np.frombuffer(view, np.uint8).ctypes.data, folded, value ^ 0xFFFFFFFF, rest.ctypes.data)
    # All ones stand for a register of zeros, from which the folded bytes go on.
    return zlib.crc32(view[folded:], zlib.crc32(rest.data, 0xFFFFFFFF))


def _pays(size: int) -> bool:
    """Whether native code is worth looking for: a compiler is in use, or would have been, for all that was summed up so far."""
    global _bytes_so_far
    _bytes_so_far += size
    return llvm.in_use() or _bytes_so_far >= _MANY


_bytes_so_far = 0
_MANY = 256 << 20                                     # bytes that zlib takes as long for as a compiler takes to load


def joined(first: int, second: int, length: int) -> int:
    """The CRC-32 of some bytes whose checksum is `first` and, after them, `length` bytes whose checksum is `second`."""
    return _times(_power(8 * length), first) ^ second


@functools.lru_cache(64)
def _power(exponent: int) -> int:
    """x to `exponent`, modulo the polynomial."""
    made, square = 1 << 31, 1 << 30                       # 1 and x: the highest bit is the coefficient of 1
    while exponent:
        if exponent & 1:
            made = _times(made, square)
        square, exponent = _times(square, square), exponent >> 1
    return made


def _times(a: int, b: int) -> int:
    """The product of two polynomials over two elements, modulo the one of CRC-32."""
    made = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            made ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return made


@functools.cache
def _fold() -> Any:
    """The native ``void fold(bytes, length, register, 16 bytes for the result)``; None where the processor cannot multiply so.

    The length is a multiple of `_BLOCK`, and not zero.
    """
    if not tier.works():
        return None
    lanes = _lanes()
    if lanes is None:
        return None
    address = llvm.compile_ir(_text(lanes), "crc32_fold", llvm.WRITTEN)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)


def _lanes() -> int | None:
    """How many times 16 bytes one instruction of the processor at hand multiplies so; None where it cannot.

    Compilers do not use these instructions of their own accord, so no processor that FLAMBEAU_CPU names has them by its name.
    Sums are the same with and without, so they are used wherever they are there, in registers as wide as the named processor's.
    """
    target = llvm.machine()
    if not target.host_features.get("pclmul"):
        return None
    return target.register_bits // 128 if target.host_features.get("vpclmulqdq") else 1


def _carrying(distance: int) -> tuple[int, int]:
    """What the two halves of 16 bytes are multiplied by to be carried on by `distance` bytes."""
    return _power(8 * distance + 32) << 1, _power(8 * distance - 32) << 1


def _text(lanes: int) -> str:
    """`fold` in registers of `lanes` times 16 bytes, four of which are carried on at a time."""
    kind, multiply = f"<{2 * lanes} x i64>", "@llvm.x86.pclmulqdq" + (f".{128 * lanes}" if lanes > 1 else "")
    size, step = 16 * lanes, 64 * lanes

    def carried(name: str, value: str, by: str, added: str, kind: str, multiply: str) -> list[str]:
        """Lines for `name`: `value` carried on by `by`, and `added` to it."""
        return [
            f"%{name}.l = call {kind} {multiply}({kind} {value}, {kind} {by}, i8 0)",
            f"%{name}.h = call {kind} {multiply}({kind} {value}, {kind} {by}, i8 17)",
            f"%{name}.s = xor {kind} %{name}.l, %{name}.h",
            f"%{name} = xor {kind} %{name}.s, {added}",
        ]

    by_step = f"<{', '.join(f'i64 {k}' for k in _carrying(step) * lanes)}>"
    by_16 = "<i64 {}, i64 {}>".format(*_carrying(16))
    first, body, last = [], [], []
    for k in range(4):
        first += [f"%p{k} = getelementptr i8, ptr %data, i64 {size * k}", f"%v{k} = load {kind}, ptr %p{k}, align 1"]
        body += [f"%q{k} = getelementptr i8, ptr %at, i64 {size * k}", f"%w{k} = load {kind}, ptr %q{k}, align 1"]
        body += carried(f"n{k}", f"%x{k}", by_step, f"%w{k}", kind, multiply)
    # The 16 bytes of each lane, first to last, carried on to the next and added.
    now = ""
    for k in range(4):
        for lane in range(lanes):
            name = f"e{k}.{lane}"
            last.append(f"%{name} = shufflevector {kind} %x{k}, {kind} poison, <2 x i32> <i32 {2 * lane}, i32 {2 * lane + 1}>")
            if now:
                last += carried(f"r{k}.{lane}", now, by_16, f"%{name}", "<2 x i64>", "@llvm.x86.pclmulqdq")
            now = f"%r{k}.{lane}" if now else f"%{name}"
    # The register is added to the first bytes, which is the same as to begin with it.
    starts = ["%s0", "%v1", "%v2", "%v3"]
    phis = [f"%x{k} = phi {kind} [{starts[k]}, %entry], [%n{k}, %step]" for k in range(4)]
    code = [
        "entry:", *first, f"%register = insertelement {kind} zeroinitializer, i64 %start, i64 0",
        f"%s0 = xor {kind} %v0, %register", "br label %head",
        "head:", f"%i = phi i64 [{step}, %entry], [%next, %step]", *phis,
        "%more = icmp slt i64 %i, %length", "br i1 %more, label %step, label %end",
        "step:", "%at = getelementptr i8, ptr %data, i64 %i", *body, f"%next = add i64 %i, {step}", "br label %head",
        "end:", *last, f"store <2 x i64> {now}, ptr %out, align 1", "ret void",
    ]  # fmt: skip
    lines = "\n".join(line if line.endswith(":") else f"  {line}" for line in code)
    kinds = {"<2 x i64>": "@llvm.x86.pclmulqdq", kind: multiply}
    declared = "".join(f"declare {one} {name}({one}, {one}, i8)\n" for one, name in kinds.items())
    features = f"{llvm.machine().features},+pclmul" + (",+vpclmulqdq" if lanes > 1 else "")
    return (f"{declared}define void @crc32_fold(ptr %data, i64 %length, i64 %start, ptr %out) "
            f'"target-features"="{features}" {{\n{lines}\n}}\n')
