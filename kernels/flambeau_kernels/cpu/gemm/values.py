"""Vectors of stored elements to vectors of lanes and back, as LLVM IR."""

from __future__ import annotations

from flambeau_kernels.cpu.gemm.text import Function
from flambeau_kernels.cpu.gemm.tiles import Kind


def vector(count: int, kind: str) -> str:
    return f"<{count} x {kind}>" if count > 1 else kind


def splat(f: Function, kind: str, value: str, count: int) -> str:
    one = f.let(f"insertelement <{count} x {kind}> poison, {kind} {value}, i64 0")
    return f.let(f"shufflevector <{count} x {kind}> {one}, <{count} x {kind}> poison, <{count} x i32> zeroinitializer")


def widen(f: Function, kind: Kind, value: str, count: int) -> str:
    """`count` stored elements (a scalar for 1) converted to the type of the sums."""
    stored, wide = vector(count, kind.stored), vector(count, kind.sum)
    if kind.stored == kind.sum:
        return value
    if kind.dtype == "bfloat16":
        bits = vector(count, "i32")
        high = f.let(f"shl {bits} {f.let(f'zext {stored} {value} to {bits}')}, {constant(16, 'i32', count)}")
        return f.let(f"bitcast {bits} {high} to {wide}")
    how = "fpext" if kind.dtype == "float16" else "zext" if kind.dtype.startswith("u") else "sext"
    return f.let(f"{how} {stored} {value} to {wide}")


def narrow(f: Function, kind: Kind, value: str, count: int) -> str:
    """`count` sums converted to what is written; halves round to nearest even."""
    wide, written = vector(count, kind.sum), vector(count, kind.written)
    if kind.written == kind.sum:
        return value
    if kind.out == "float16":
        return f.let(f"fptrunc {wide} {value} to {written}")
    if kind.out != "bfloat16":
        return f.let(f"trunc {wide} {value} to {written}")
    bits = vector(count, "i32")
    word = f.let(f"bitcast {wide} {value} to {bits}")
    upper = f.let(f"lshr {bits} {word}, {constant(16, 'i32', count)}")
    odd = f.let(f"and {bits} {upper}, {constant(1, 'i32', count)}")
    half = f.let(f"add {bits} {odd}, {constant(0x7FFF, 'i32', count)}")
    rounded = f.let(f"lshr {bits} {f.let(f'add {bits} {word}, {half}')}, {constant(16, 'i32', count)}")
    # Rounding could carry a nan's payload away; the quiet nan keeps its sign.
    quiet = f.let(f"or {bits} {upper}, {constant(64, 'i32', count)}")
    nan = f.let(f"fcmp uno {wide} {value}, {value}")
    chosen = f.let(f"select {vector(count, 'i1')} {nan}, {bits} {quiet}, {bits} {rounded}")
    return f.let(f"trunc {bits} {chosen} to {written}")


def constant(value: int, kind: str, count: int) -> str:
    if count == 1:
        return str(value)
    return "<" + ", ".join(f"{kind} {value}" for _ in range(count)) + ">"


def mask(f: Function, count: str, lanes: int, first: int) -> str:
    """Which of the lanes ``first, first + 1, ...`` are below `count`, a number of lanes in an i64 that would fit an i32."""
    numbers = "<" + ", ".join(f"i32 {first + i}" for i in range(lanes)) + ">"
    return f.let(f"icmp slt <{lanes} x i32> {numbers}, {splat(f, 'i32', f.let(f'trunc i64 {count} to i32'), lanes)}")


def load_masked(f: Function, kind: str, lanes: int, pointer: str, which: str, align: int) -> str:
    """The lanes chosen by `which`, and zero in the others."""
    return f.let(f"call <{lanes} x {kind}> @llvm.masked.load.{suffix(kind, lanes)}.p0(ptr {pointer}, i32 {align}, "
                 f"<{lanes} x i1> {which}, <{lanes} x {kind}> zeroinitializer)")  # fmt: skip


def store_masked(f: Function, kind: str, lanes: int, value: str, pointer: str, which: str, align: int) -> None:
    f.do(f"call void @llvm.masked.store.{suffix(kind, lanes)}.p0(<{lanes} x {kind}> {value}, ptr {pointer}, i32 {align}, "
         f"<{lanes} x i1> {which})")  # fmt: skip


def suffix(kind: str, lanes: int) -> str:
    return f"v{lanes}" + {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)


def declarations(kind: Kind) -> str:
    lanes = kind.lanes
    lines = {
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
    }
    for element in {kind.stored, kind.sum, kind.written}:
        name = suffix(element, lanes)
        lines.add(f"declare <{lanes} x {element}> @llvm.masked.load.{name}.p0(ptr, i32, <{lanes} x i1>, <{lanes} x {element}>)")
        lines.add(f"declare void @llvm.masked.store.{name}.p0(<{lanes} x {element}>, ptr, i32, <{lanes} x i1>)")
    if kind.pairs:
        lines.add("declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)")
    elif kind.sum in ("float", "double"):
        name = f"<{lanes} x {kind.sum}>"
        lines.add(f"declare {name} @llvm.fma.{suffix(kind.sum, lanes)}({name}, {name}, {name})")
    return "\n".join(sorted(lines)) + "\n"
