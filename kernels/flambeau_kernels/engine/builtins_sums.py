"""Builtins that add elements up: all of them, or over every dimension but the last."""
from __future__ import annotations

from flambeau_kernels.engine import pyabi
from flambeau_kernels.engine.fastcall import REALS, Code, Module, Part, Real, entry

LEAF = 128                                            # elements numpy adds up without halving further
LANES = 8                                             # partial sums within a leaf
MOST_SUMMED = 4096                                    # larger arrays are the general path's
STRIP = 512                                           # columns whose float64 sums are kept on the stack


def total(module: Module, name: str, mean: bool = False) -> None:
    """Add a builtin that sums all elements (of an empty array: 0), or averages them (nan), to a 0-d array.

    Elements are added in numpy's order, so the result has its bits: halves, down to leaves of 128 elements, in
    which eight partial sums take turns.
    """
    for real in REALS:
        module.functions += [_few(real, name), _leaf(real, name), _pairwise(real, name)]
    module.functions += [*(_total_part(name, real, mean) for real in REALS), entry(name, 1)]


def _few(real: Real, name: str) -> str:
    """`%start` and the elements [lo, hi), one after another."""
    llvm = real.llvm
    code = Code(f"internal {llvm} @{name}.few.{real.name}(ptr %p, i64 %lo, i64 %hi, {llvm} %start)")
    code.branch(code.let("icmp slt i64 %lo, %hi"), "body", "done")
    code.label("body")
    code.do("%i = phi i64 [%lo, %entry], [%next, %body]", f"%s = phi {llvm} [%start, %entry], [%sum, %body]")
    code.do(f"%sum = fadd {llvm} %s, {code.element('%p', '%i', llvm)}", "%next = add nuw nsw i64 %i, 1",
            "%more = icmp slt i64 %next, %hi", "br i1 %more, label %body, label %done")
    code.label("done")
    code.do(f"%result = phi {llvm} [%start, %entry], [%sum, %body]", f"ret {llvm} %result")
    return code.text()


def _leaf(real: Real, name: str) -> str:
    """The sum of 8 to 128 elements: eight lanes, added in pairs, then the elements left over."""
    llvm, lanes = real.llvm, f"<{LANES} x {real.llvm}>"
    code = Code(f"internal {llvm} @{name}.leaf.{real.name}(ptr %p, i64 %n)")
    code.do(f"%whole = and i64 %n, {-LANES}", f"%first = load {lanes}, ptr %p, align {real.size}")
    code.branch(code.let(f"icmp sgt i64 %whole, {LANES}"), "body", "pairs")
    code.label("body")
    code.do(f"%i = phi i64 [{LANES}, %entry], [%next, %body]", f"%s = phi {lanes} [%first, %entry], [%sum, %body]",
            f"%at = getelementptr {llvm}, ptr %p, i64 %i", f"%x = load {lanes}, ptr %at, align {real.size}",
            f"%sum = fadd {lanes} %s, %x", f"%next = add nuw nsw i64 %i, {LANES}",
            "%more = icmp slt i64 %next, %whole", "br i1 %more, label %body, label %pairs")
    code.label("pairs")
    code.do(f"%r = phi {lanes} [%first, %entry], [%sum, %body]")
    sums = [code.let(f"extractelement {lanes} %r, i64 {k}") for k in range(LANES)]
    while len(sums) > 1:
        sums = [code.let(f"fadd {llvm} {a}, {b}") for a, b in zip(sums[::2], sums[1::2], strict=True)]
    result = code.let(f"call {llvm} @{name}.few.{real.name}(ptr %p, i64 %whole, i64 %n, {llvm} {sums[0]})")
    code.do(f"ret {llvm} {result}")
    return code.text()


def _pairwise(real: Real, name: str) -> str:
    llvm, own = real.llvm, f"@{name}.pairwise.{real.name}"
    code = Code(f"internal {llvm} {own}(ptr %p, i64 %n)")
    code.branch(code.let(f"icmp slt i64 %n, {LANES}"), "few", "more")
    code.label("few")
    code.do(f"%a = call {llvm} @{name}.few.{real.name}(ptr %p, i64 0, i64 %n, {llvm} -0.0)", f"ret {llvm} %a")
    code.label("more")
    code.branch(code.let(f"icmp sle i64 %n, {LEAF}"), "leaf", "halves")
    code.label("leaf")
    code.do(f"%b = call {llvm} @{name}.leaf.{real.name}(ptr %p, i64 %n)", f"ret {llvm} %b")
    code.label("halves")
    code.do("%middle = lshr i64 %n, 1", f"%half = and i64 %middle, {-LANES}",
            f"%q = getelementptr {llvm}, ptr %p, i64 %half", "%rest = sub i64 %n, %half",
            f"%c = call {llvm} {own}(ptr %p, i64 %half)", f"%d = call {llvm} {own}(ptr %q, i64 %rest)",
            f"%e = fadd {llvm} %c, %d", f"ret {llvm} %e")
    return code.text()


def _total_part(name: str, real: Real, mean: bool) -> str:
    llvm = real.llvm
    code = Part(name, real)
    first = code.argument(0)
    code.require_array(first)
    count = code.count(first)
    code.require(code.let(f"icmp sle i64 {count}, {MOST_SUMMED}"))
    data = code.data(first)
    made = code.new_array(0, "null")
    total = code.let(f"call {llvm} @{name}.pairwise.{real.name}(ptr {data}, i64 {count})")
    result = code.let(f"fadd {llvm} 0.0, {total}")    # numpy adds to zero: -0.0 becomes 0.0
    if mean:
        result = code.let(f"fdiv {llvm} {result}, {code.let(f'sitofp i64 {count} to {llvm}')}")
    code.do(f"store {llvm} {result}, ptr {code.data(made)}", f"ret ptr {made}")
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
