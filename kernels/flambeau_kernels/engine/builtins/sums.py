"""The builtin that adds all elements up."""
from __future__ import annotations

from flambeau_kernels.engine.builtins.fastcall import REALS, Code, Module, Part, Real, entry

LEAF = 128                                            # elements numpy adds up without halving further
LANES = 8                                             # partial sums within a leaf
MOST_SUMMED = 4096                                    # larger arrays are the general path's


def total(module: Module, name: str) -> None:
    """Add a builtin that sums all elements, of an empty array to 0, as a 0-d array.

    Elements are added in numpy's order, so the result has its bits: halves, down to leaves of 128 elements, in
    which eight partial sums take turns.
    """
    for real in REALS:
        module.functions += [_sum_in_order(real, name), _leaf(real, name), _pairwise(real, name)]
    module.functions += [*(_total_part(name, real) for real in REALS), entry(name, 1)]


def _sum_in_order(real: Real, name: str) -> str:
    """`%start` and the elements [lo, hi), one after another."""
    llvm = real.llvm
    code = Code(f"internal {llvm} @{name}.in_order.{real.name}(ptr %p, i64 %lo, i64 %hi, {llvm} %start)")
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
    result = code.let(f"call {llvm} @{name}.in_order.{real.name}(ptr %p, i64 %whole, i64 %n, {llvm} {sums[0]})")
    code.do(f"ret {llvm} {result}")
    return code.text()


def _pairwise(real: Real, name: str) -> str:
    llvm, own = real.llvm, f"@{name}.pairwise.{real.name}"
    code = Code(f"internal {llvm} {own}(ptr %p, i64 %n)")
    code.branch(code.let(f"icmp slt i64 %n, {LANES}"), "few", "more")
    code.label("few")
    code.do(f"%a = call {llvm} @{name}.in_order.{real.name}(ptr %p, i64 0, i64 %n, {llvm} -0.0)", f"ret {llvm} %a")
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


def _total_part(name: str, real: Real) -> str:
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
    code.do(f"store {llvm} {result}, ptr {code.data(made)}", f"ret ptr {made}")
    return code.text()
