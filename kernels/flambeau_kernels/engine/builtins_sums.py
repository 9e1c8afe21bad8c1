"""Builtins that add elements up: all of them, or over every dimension but the last."""
from __future__ import annotations

from flambeau_kernels.engine import pyabi
from flambeau_kernels.engine.fastcall import REALS, Code, Module, Part, Real, entry

BLOCK = 1024                                          # elements added in the array's own precision
STRIP = 512                                           # columns whose float64 sums are kept on the stack


def total(module: Module, name: str, mean: bool = False) -> None:
    """Add a builtin that sums all elements (of an empty array: 0), or averages them (nan), to a 0-d array."""
    parts = []
    for real in REALS:
        module.functions.append(_block_sum(real, name))
        parts.append(_total_part(name, real, mean))
    module.functions += [*parts, entry(name, 1)]


def _block_sum(real: Real, name: str) -> str:
    """The sum of elements [lo, hi) in any order: that is what makes vectors of them."""
    llvm = real.llvm
    code = Code(f"internal {llvm} @{name}.block.{real.name}(ptr %p, i64 %lo, i64 %hi)")
    code.branch(code.let("icmp slt i64 %lo, %hi"), "body", "done")
    code.label("body")
    code.do("%i = phi i64 [%lo, %entry], [%next, %body]", f"%s = phi {llvm} [0.0, %entry], [%sum, %body]")
    code.do(f"%sum = fadd reassoc {llvm} %s, {code.element('%p', '%i', llvm)}",
            "%next = add nuw nsw i64 %i, 1", "%more = icmp slt i64 %next, %hi",
            "br i1 %more, label %body, label %done")
    code.label("done")
    code.do(f"%result = phi {llvm} [0.0, %entry], [%sum, %body]", f"ret {llvm} %result")
    return code.text()


def _total_part(name: str, real: Real, mean: bool) -> str:
    code = Part(name, real)
    first = code.argument(0)
    code.require_array(first)
    count = code.count(first)
    data = code.data(first)
    made = code.new_array(0, "null")
    start = code.fresh("start")
    code.do(f"br label %{start}")
    code.label(start)
    code.do("br label %head")
    code.label("head")
    # Across blocks in float64: 64 partial sums of 1024 would else cost float32 another six bits.
    code.do(f"%lo = phi i64 [0, %{start}], [%hi, %step]", f"%acc = phi double [0.0, %{start}], [%sum, %step]")
    code.branch(code.let(f"icmp slt i64 %lo, {count}"), "step", "done")
    code.label("step")
    code.do(f"%ahead = add i64 %lo, {BLOCK}", f"%inside = icmp slt i64 %ahead, {count}",
            f"%hi = select i1 %inside, i64 %ahead, i64 {count}")
    part = code.let(f"call {real.llvm} @{name}.block.{real.name}(ptr {data}, i64 %lo, i64 %hi)")
    code.do(f"%sum = fadd double %acc, {code.as_double(part, real)}", "br label %head, !llvm.loop !0")
    code.label("done")
    result = code.let(f"fdiv double %acc, {code.let(f'sitofp i64 {count} to double')}") if mean else "%acc"
    code.do(f"store {real.llvm} {code.from_double(result, real)}, ptr {code.data(made)}", f"ret ptr {made}")
    return code.text()


def column_sum(module: Module, name: str) -> None:
    """Add a builtin that sums over all dimensions but the last: the gradient of a bias."""
    module.functions += [_column_sum_part(module, name, real) for real in REALS]
    module.functions.append(entry(name, 1))


def _column_sum_part(module: Module, name: str, real: Real) -> str:
    code = Part(name, real)
    code.do(f"%acc = alloca [{STRIP} x double], align 64")
    first = code.argument(0)
    code.require_array(first)
    ndim = code.field(first, pyabi.NDIM, "i32")
    code.require(code.let(f"icmp sge i32 {ndim}, 1"))
    count = code.count(first)
    last = code.let(f"sub i64 {code.let(f'sext i32 {ndim} to i64')}, 1")
    columns_at = code.let(f"getelementptr i64, ptr {code.field(first, pyabi.SHAPE, 'ptr')}, i64 {last}")
    columns = code.let(f"load i64, ptr {columns_at}")
    code.require(code.let(f"icmp sgt i64 {count}, 0"))
    code.require(code.let(f"icmp sle i64 {columns}, {STRIP}"))
    made = code.new_array(1, columns_at)
    rows = code.let(f"sdiv i64 {count}, {columns}")
    add, finish = f"{name}.rows.{real.name}", f"{name}.round.{real.name}"
    module.functions += [_add_rows(add, real), _round_sums(finish, real)]
    code.do(f"call void @{add}(ptr {code.data(first)}, ptr %acc, i64 {rows}, i64 {columns})",
            f"call void @{finish}(ptr %acc, ptr {code.data(made)}, i64 {columns})", f"ret ptr {made}")
    return code.text()


def _add_rows(symbol: str, real: Real) -> str:
    """Every row into the float64 sums `acc`."""
    code = Code(f"internal void @{symbol}(ptr noalias %p, ptr noalias %acc, i64 %rows, i64 %columns)")
    size = code.let("mul i64 %columns, 8")
    code.do(f"call void @llvm.memset.p0.i64(ptr %acc, i8 0, i64 {size}, i1 false)", "br label %row")
    code.label("row")
    code.do("%r = phi i64 [0, %entry], [%r.next, %row.end]", "%base = mul i64 %r, %columns",
            "br label %column")
    code.label("column")
    code.do("%c = phi i64 [0, %row], [%c.next, %column]", "%at = add i64 %base, %c")
    value = code.as_double(code.element("%p", "%at", real.llvm), real)
    place = code.let("getelementptr double, ptr %acc, i64 %c")
    code.do(f"%old = load double, ptr {place}", f"%sum = fadd double %old, {value}",
            f"store double %sum, ptr {place}", "%c.next = add nuw nsw i64 %c, 1",
            "%c.more = icmp slt i64 %c.next, %columns", "br i1 %c.more, label %column, label %row.end")
    code.label("row.end")
    code.do("%r.next = add nuw nsw i64 %r, 1", "%r.more = icmp slt i64 %r.next, %rows",
            "br i1 %r.more, label %row, label %done")
    code.label("done")
    code.do("ret void")
    return code.text()


def _round_sums(symbol: str, real: Real) -> str:
    """The float64 sums, each rounded once, to the result."""
    code = Code(f"internal void @{symbol}(ptr noalias %acc, ptr noalias %out, i64 %columns)")
    code.do("br label %body")
    code.label("body")
    code.do("%c = phi i64 [0, %entry], [%next, %body]")
    value = code.from_double(code.element("%acc", "%c", "double"), real)
    place = code.let(f"getelementptr {real.llvm}, ptr %out, i64 %c")
    code.do(f"store {real.llvm} {value}, ptr {place}", "%next = add nuw nsw i64 %c, 1",
            "%more = icmp slt i64 %next, %columns", "br i1 %more, label %body, label %done")
    code.label("done")
    code.do("ret void")
    return code.text()
