"""The first elements of a vector, for processors that have no masks for their size: functions, compiled once for all places of a module.

LLVM writes a masked vector out as a condition for each lane, wherever it stands: those were four fifths of the code of some kernels.
"""

from __future__ import annotations

__all__ = ["loading", "storing"]

PAGE = 4096  # bytes; what lies in a page with something that may be read may be read
BITS = {"half": 16, "float": 32, "double": 64}


def loading(kind: str, lanes: int) -> tuple[str, str]:
    """Name and text of what loads the first so many of `lanes` elements of an LLVM type, beside zeros.

    Whole vectors are read where they lie in one page; else what is put together in memory and read at once, for which loads wait.
    """
    bits = BITS.get(kind) or int(kind[1:])
    name, vector, integers = f"@first_{lanes}_{kind}", f"<{lanes} x {kind}>", f"<{lanes} x i{bits}>"
    numbers = ", ".join(f"i{bits} {k}" for k in range(lanes))
    return name, "\n".join([
        f"define internal {vector} {name}(ptr %from, i64 %n) noinline nounwind willreturn memory(argmem: read) {{",
        "start:", f"  %to = alloca {vector}, align 64", *_count(lanes), "  %address = ptrtoint ptr %from to i64",
        f"  %place = and i64 %address, {PAGE - 1}", f"  %inside = icmp ule i64 %place, {PAGE - bits // 8 * lanes}",
        "  br i1 %inside, label %whole, label %parts", "whole:", f"  %all = load {integers}, ptr %from, align 1",
        f"  %few = trunc i64 %count to i{bits}" if bits < 64 else "  %few = add i64 %count, 0",
        f"  %one = insertelement {integers} poison, i{bits} %few, i32 0",
        f"  %each = shufflevector {integers} %one, {integers} poison, <{lanes} x i32> zeroinitializer",
        f"  %are = icmp sgt {integers} %each, <{numbers}>", f"  %mask = sext <{lanes} x i1> %are to {integers}",
        f"  %masked = and {integers} %all, %mask", f"  %bits = bitcast {integers} %masked to {vector}", f"  ret {vector} %bits",
        "parts:", f"  store {vector} zeroinitializer, ptr %to, align 64",
        *_pieces(kind, lanes), f"  %made = load {vector}, ptr %to, align 64", f"  ret {vector} %made", "}"])  # fmt: skip


def storing(kind: str, lanes: int) -> tuple[str, str]:
    """Name and text of what stores the first so many elements of a vector."""
    name, vector = f"@store_first_{lanes}_{kind}", f"<{lanes} x {kind}>"
    return name, "\n".join([
        f"define internal void {name}(ptr %to, i64 %n, {vector} %v) noinline nounwind willreturn memory(argmem: write) {{",
        "start:", f"  %from = alloca {vector}, align 64", f"  store {vector} %v, ptr %from, align 64", *_count(lanes),
        *_pieces(kind, lanes), "  ret void", "}"])  # fmt: skip


def _count(lanes: int) -> list[str]:
    """How many elements there are: none if ``%n`` is negative, and all if it is more."""
    return [f"  %most = call i64 @llvm.smin.i64(i64 %n, i64 {lanes})", "  %count = call i64 @llvm.smax.i64(i64 %most, i64 0)"]


def _pieces(kind: str, lanes: int) -> list[str]:
    """Copy ``%count`` elements: all, or half of them, then of what is left half again, and so on to one."""
    lines = []
    size = lanes
    while size:
        piece = kind if size == 1 else f"<{size} x {kind}>"
        lines += [
            f"  %and{size} = and i64 %count, {size}", f"  %has{size} = icmp ne i64 %and{size}, 0",
            f"  br i1 %has{size}, label %piece{size}, label %behind{size}", f"piece{size}:",
            f"  %at{size} = and i64 %count, {-2 * size}",   # behind larger ones
            f"  %source{size} = getelementptr {kind}, ptr %from, i64 %at{size}",
            f"  %target{size} = getelementptr {kind}, ptr %to, i64 %at{size}",
            f"  %x{size} = load {piece}, ptr %source{size}, align 1", f"  store {piece} %x{size}, ptr %target{size}, align 1",
            f"  br label %behind{size}", f"behind{size}:",
        ]  # fmt: skip
        size //= 2
    return lines
