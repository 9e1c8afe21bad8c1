"""Builtins written as LLVM IR: the checks, allocations and references between Python's arguments and a loop.

Every builtin is a C function ``ptr f(ptr self, ptr *args, i64 nargs)`` called with the interpreter lock held. It looks
at its first argument, goes on in the part made for float32 or float64, and answers None for anything it was not made
for, before having written anything. See `pyabi.py` for the table of addresses that `self` carries.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from flambeau_kernels.engine import pyabi
from flambeau_kernels.scalar.symbols import F32, F64, Block, Kind, Symbol

# Larger arrays repay the compiled tier with its threads, and should not be worked on while holding the lock.
MOST_ELEMENTS = 65536
MOST_PRODUCTS = 1 << 21                               # multiplications in one matrix product, by the same reasoning
C_ORDER = pyabi.C_CONTIGUOUS | pyabi.ALIGNED


@dataclasses.dataclass(frozen=True)
class Real:
    """A dtype builtins are made for; `gemm` is the BLAS routine of its matrix product."""

    kind: Kind
    gemm: str

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def llvm(self) -> str:
        return self.kind.llvm

    @property
    def size(self) -> int:
        return self.kind.bits // 8


REALS = (Real(F32, "sgemm"), Real(F64, "dgemm"))


class Code:
    """An LLVM function in the making. Values get fresh names; `require` leaves by the exit that answers None."""

    def __init__(self, signature: str):
        self._lines = [f"define {signature} {{", "entry:"]
        self._names = 0
        self._refuses = False

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def let(self, instruction: str) -> str:
        name = self.fresh("%t")
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, *instructions: str) -> None:
        self._lines += [f"  {instruction}" for instruction in instructions]

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def require(self, condition: str) -> None:
        """Go on if `condition` (an i1) holds, else answer None."""
        onward = self.fresh("ok")
        self._refuses = True
        self.do(f"br i1 {condition}, label %{onward}, label %refuse")
        self.label(onward)

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def return_null_if_null(self, pointer: str, undo: str | None = None) -> None:
        """Pass on the Python error behind a failed allocation, after giving the reference `undo` back."""
        failed, onward = self.fresh("failed"), self.fresh("ok")
        self.branch(self.let(f"icmp eq ptr {pointer}, null"), failed, onward)
        self.label(failed)
        if undo:
            self.do(f"call void {self.slot('decref')}(ptr {undo})")
        self.do("ret ptr null")
        self.label(onward)

    def field(self, item: str, offset: int, llvm_type: str) -> str:
        """The field of that type `offset` bytes into the object `item`."""
        return self.let(f"load {llvm_type}, ptr {self.let(f'getelementptr i8, ptr {item}, i64 {offset}')}")

    def slot(self, name: str) -> str:
        """An address from the table."""
        at = self.let(f"getelementptr ptr, ptr %table, i64 {pyabi.slot(name)}")
        return self.let(f"load ptr, ptr {at}")

    def element(self, pointer: str, index: int | str, llvm_type: str) -> str:
        return self.let(f"load {llvm_type}, ptr {self.let(f'getelementptr {llvm_type}, ptr {pointer}, i64 {index}')}")

    def text(self) -> str:
        lines = list(self._lines)
        if self._refuses:
            lines += ["refuse:", "  %none = call ptr @none(ptr %table)", "  ret ptr %none"]
        return "\n".join([*lines, "}", ""])


class Module:
    """Functions of one LLVM module, with the declarations and loop marks they share."""

    def __init__(self):
        self.functions: list[str] = [_none(), _fits(), _same_shape(), _count(), _number(), _apart(), _new_array()]
        self.needs: set[str] = set()
        self._marks: list[str] = [f"!0 = distinct !{{!0, !{{!\"llvm.loop.vectorize.enable\", i1 false}}, {_NO_UNROLL}}}"]

    def mark(self, *properties: str) -> str:
        """A new metadata number with the given content."""
        self._marks.append(f"!{len(self._marks)} = distinct !{{{', '.join(properties)}}}")
        return f"!{len(self._marks) - 1}"

    def loop_mark(self, group: str) -> str:
        """Mark of a loop whose iterations do not depend on each other in their accesses of `group`.

        Holds in place too: an output is exactly an input or apart from it, and an iteration keeps its own order.
        """
        own = f"!{len(self._marks)}"
        return self.mark(own, f'!{{!"llvm.loop.parallel_accesses", {group}}}', '!{!"llvm.loop.interleave.count", i32 2}')

    def text(self) -> str:
        return "\n".join([*sorted(self.needs), *self.functions, *self._marks]) + "\n"


_NO_UNROLL = '!{!"llvm.loop.unroll.disable"}'


# --- helpers every builtin calls ----------------------------------------------------------------------------------

def _none() -> str:
    code = Code("internal ptr @none(ptr %table)")
    none = code.slot("None")
    code.do(f"call void {code.slot('incref')}(ptr {none})", f"ret ptr {none}")
    return code.text()


def _fits() -> str:
    """Whether an argument is exactly an ndarray, of this dtype object, with all these flags."""
    code = Code("internal i1 @fits(ptr %table, ptr %item, ptr %dtype, i32 %flags) alwaysinline")
    kind = code.field("%item", pyabi.TYPE, "ptr")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('ndarray')}"), "array", "other")
    code.label("array")
    same = code.let(f"icmp eq ptr {code.field('%item', pyabi.DTYPE, 'ptr')}, %dtype")
    has = code.let(f"and i32 {code.field('%item', pyabi.FLAGS, 'i32')}, %flags")
    code.do(f"ret i1 {code.let(f'and i1 {same}, ' + code.let(f'icmp eq i32 {has}, %flags'))}")
    code.label("other")
    code.do("ret i1 false")
    return code.text()


def _same_shape() -> str:
    code = Code("internal i1 @same_shape(ptr %a, ptr %b) alwaysinline")
    ndim = code.field("%a", pyabi.NDIM, "i32")
    shapes = [code.field(item, pyabi.SHAPE, "ptr") for item in ("%a", "%b")]
    code.branch(code.let(f"icmp eq i32 {ndim}, {code.field('%b', pyabi.NDIM, 'i32')}"), "head", "no")
    code.label("head")
    code.do("%i = phi i64 [0, %entry], [%next, %step]")
    more = code.let(f"icmp slt i64 %i, {code.let(f'sext i32 {ndim} to i64')}")
    code.branch(more, "compare", "yes")
    code.label("compare")
    lengths = [code.element(shape, "%i", "i64") for shape in shapes]
    code.branch(code.let(f"icmp eq i64 {lengths[0]}, {lengths[1]}"), "step", "no")
    code.label("step")
    code.do("%next = add nuw nsw i64 %i, 1", "br label %head, !llvm.loop !0")
    code.label("yes")
    code.do("ret i1 true")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _count() -> str:
    """The number of elements of an array."""
    code = Code("internal i64 @count(ptr %a) alwaysinline")
    ndim = code.let(f"sext i32 {code.field('%a', pyabi.NDIM, 'i32')} to i64")
    shape = code.field("%a", pyabi.SHAPE, "ptr")
    code.do("br label %head")
    code.label("head")
    code.do("%i = phi i64 [0, %entry], [%next, %step]", "%n = phi i64 [1, %entry], [%product, %step]")
    code.branch(code.let(f"icmp slt i64 %i, {ndim}"), "step", "done")
    code.label("step")
    code.do(f"%product = mul i64 %n, {code.element(shape, '%i', 'i64')}", "%next = add nuw nsw i64 %i, 1",
            "br label %head, !llvm.loop !0")
    code.label("done")
    code.do("ret i64 %n")
    return code.text()


def _number() -> str:
    """Read a Python float, or an int that fits 64 bits, into `into`. Truth values and subclasses are refused."""
    code = Code("internal i1 @number(ptr %table, ptr %item, ptr %into)")
    kind = code.field("%item", pyabi.TYPE, "ptr")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('float')}"), "float", "other")
    code.label("float")
    code.do(f"store double {code.field('%item', pyabi.FLOAT_VALUE, 'double')}, ptr %into", "ret i1 true")
    code.label("other")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('int')}"), "int", "no")
    code.label("int")
    overflow = code.let("alloca i32")
    value = code.let(f"call i64 {code.slot('int_value')}(ptr %item, ptr {overflow})")
    fits = code.let(f"icmp eq i32 {code.let(f'load i32, ptr {overflow}')}, 0")
    code.do(f"store double {code.let(f'sitofp i64 {value} to double')}, ptr %into", f"ret i1 {fits}")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _apart() -> str:
    """Whether `b` may be read while `a` is written: the same memory exactly, or none in common."""
    code = Code("internal i1 @apart(ptr %a, i64 %a.bytes, ptr %b, i64 %b.bytes) alwaysinline")
    starts = [code.let(f"ptrtoint ptr {code.field(item, pyabi.DATA, 'ptr')} to i64") for item in ("%a", "%b")]
    ends = [code.let(f"add i64 {start}, {name}.bytes") for start, name in zip(starts, ("%a", "%b"), strict=True)]
    same = code.let(f"and i1 {code.let(f'icmp eq i64 {starts[0]}, {starts[1]}')}, "
                    + code.let("icmp eq i64 %a.bytes, %b.bytes"))
    before = code.let(f"icmp ule i64 {ends[0]}, {starts[1]}")
    after = code.let(f"icmp ule i64 {ends[1]}, {starts[0]}")
    code.do(f"ret i1 {code.let(f'or i1 {same}, ' + code.let(f'or i1 {before}, {after}'))}")
    return code.text()


def _new_array() -> str:
    """A new C-contiguous array; null after a failed allocation."""
    code = Code("internal ptr @new_array(ptr %table, ptr %dtype, i32 %ndim, ptr %shape) alwaysinline")
    code.do(f"call void {code.slot('incref')}(ptr %dtype)")     # numpy takes this reference over
    made = code.let(f"call ptr {code.slot('new_array')}(ptr {code.slot('ndarray')}, ptr %dtype, i32 %ndim, "
                    "ptr %shape, ptr null, ptr null, i32 0, ptr null)")
    code.do(f"ret ptr {made}")
    return code.text()


# --- the entry of a builtin ---------------------------------------------------------------------------------------

def entry(name: str, arguments: int) -> str:
    """The exported function `fb_<name>`: number of arguments, then dtype of the first one."""
    code = Code(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    code.do(f"%table.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}", "%table = load ptr, ptr %table.at")
    code.require(code.let(f"icmp eq i64 %nargs, {arguments}"))
    first = code.let("load ptr, ptr %args")
    kind = code.field(first, pyabi.TYPE, "ptr")
    code.require(code.let(f"icmp eq ptr {kind}, {code.slot('ndarray')}"))
    dtype = code.field(first, pyabi.DTYPE, "ptr")
    for real in REALS:
        here, onward = code.fresh("is"), code.fresh("not")
        code.branch(code.let(f"icmp eq ptr {dtype}, {code.slot(real.name)}"), here, onward)
        code.label(here)
        result = code.let(f"call ptr @{name}.{real.name}(ptr %table, ptr %args)")
        code.do(f"ret ptr {result}")
        code.label(onward)
    code.require("false")
    code.do("unreachable")
    return code.text()


def _part(name: str, real: Real) -> Code:
    """The part of a builtin for one dtype; its first argument is known to be an ndarray of that dtype."""
    return Code(f"internal ptr @{name}.{real.name}(ptr %table, ptr %args)")


def _argument(code: Code, k: int) -> str:
    return code.element("%args", k, "ptr")


def _require_array(code: Code, item: str, real: Real, flags: int = C_ORDER) -> None:
    code.require(code.let(f"call i1 @fits(ptr %table, ptr {item}, ptr {code.slot(real.name)}, i32 {flags})"))


def _new(code: Code, real: Real, ndim: str | int, shape: str) -> str:
    return code.let(f"call ptr @new_array(ptr %table, ptr {code.slot(real.name)}, i32 {ndim}, ptr {shape})")


# --- elementwise builtins -----------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Elementwise:
    """A formula over arrays of one shape, in one loop.

    Args:
        operands: a letter for each argument: `a` an array of the first one's shape, `n` a Python number, `s` a number
            or 0-d array, `x` any of these. The first is always `a`.
        formula: from one `Symbol` per argument to one result, or to a tuple of results (returned as a tuple of arrays).
        in_place: write the result to the first argument, and return that.
    """

    operands: str
    formula: Callable[..., object]
    in_place: bool = False

    @property
    def arguments(self) -> int:
        return len(self.operands)


def elementwise(module: Module, name: str, op: Elementwise) -> None:
    """Add the builtin `name` to `module`. Raises Unsupported for a formula the compiled words cannot express."""
    parts = [_elementwise_part(module, name, op, real) for real in REALS]
    module.functions += [*parts, entry(name, op.arguments)]


def _elementwise_part(module: Module, name: str, op: Elementwise, real: Real) -> str:
    loop = _Loops(module, f"{name}.{real.name}", op, real)
    code = _part(name, real)
    first = _argument(code, 0)
    _require_array(code, first, real, C_ORDER | (pyabi.WRITEABLE if op.in_place else 0))
    count = code.let(f"call i64 @count(ptr {first})")
    code.require(code.let(f"icmp sle i64 {count}, {MOST_ELEMENTS}"))
    scalar = code.let("alloca double")
    open_operand = next((k for k, letter in enumerate(op.operands) if letter in "xs"), None)
    for k, letter in enumerate(op.operands[1:], start=1):
        if letter == "a":
            _require_alike(code, first, _argument(code, k), count, op, real)
    if open_operand is None:
        numbers = {k: _number_argument(code, k, scalar, real) for k, c in enumerate(op.operands) if c == "n"}
        _finish(code, loop, first, count, numbers)
    else:
        _array_or_number(code, loop, first, count, open_operand, scalar)
    return code.text()


def _array_or_number(code: Code, loop: _Loops, first: str, count: str, k: int, scalar: str) -> None:
    """The ways on for argument `k`, which may be an array of the same shape, a 0-d array or a number."""
    op, real = loop.op, loop.real
    item = _argument(code, k)
    is_array = code.let(f"icmp eq ptr {code.field(item, pyabi.TYPE, 'ptr')}, {code.slot('ndarray')}")
    code.branch(is_array, "array", "number")

    code.label("number")
    _finish(code, loop, first, count, {k: _number_argument(code, k, scalar, real)})

    code.label("array")
    _require_array(code, item, real)
    code.branch(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 0"), "single", "alike")
    code.label("single")
    if op.in_place:
        _require_apart(code, first, count, item, "1", real)
    value = code.let(f"load {real.llvm}, ptr {code.field(item, pyabi.DATA, 'ptr')}")
    _finish(code, loop, first, count, {k: value})
    code.label("alike")
    if op.operands[k] == "s":
        code.require("false")
        code.do("unreachable")
        return
    _require_alike(code, first, item, count, op, real)
    _finish(code, loop, first, count, {})


def _require_alike(code: Code, first: str, item: str, count: str, op: Elementwise, real: Real) -> None:
    """`item` is an array that the loop can read beside `first`."""
    _require_array(code, item, real)
    code.require(code.let(f"call i1 @same_shape(ptr {first}, ptr {item})"))
    if op.in_place:
        _require_apart(code, first, count, item, count, real)


def _require_apart(code: Code, first: str, count: str, item: str, item_count: str, real: Real) -> None:
    sizes = [code.let(f"mul i64 {n}, {real.size}") for n in (count, item_count)]
    code.require(code.let(f"call i1 @apart(ptr {first}, i64 {sizes[0]}, ptr {item}, i64 {sizes[1]})"))


def _number_argument(code: Code, k: int, scalar: str, real: Real) -> str:
    code.require(code.let(f"call i1 @number(ptr %table, ptr {_argument(code, k)}, ptr {scalar})"))
    value = code.let(f"load double, ptr {scalar}")
    return code.let(f"fptrunc double {value} to float") if real.kind is F32 else value


def _finish(code: Code, loop: _Loops, first: str, count: str, numbers: dict[int, str]) -> None:
    """Make the outputs, run the loop, return. Arguments not in `numbers` are arrays, checked already."""
    function = loop.function(frozenset(numbers))
    values = [f"{loop.real.llvm} {numbers[k]}" if k in numbers
              else f"ptr {code.field(_argument(code, k), pyabi.DATA, 'ptr')}" for k in range(loop.op.arguments)]
    if loop.op.in_place:
        code.do(f"call void @{function}({', '.join([*values, *values[:1], f'i64 {count}'])})",
                f"call void {code.slot('incref')}(ptr {first})", f"ret ptr {first}")
        return
    shape = (code.field(first, pyabi.NDIM, "i32"), code.field(first, pyabi.SHAPE, "ptr"))
    answer, outs = _outputs(code, loop, shape)
    data = [f"ptr {code.field(out, pyabi.DATA, 'ptr')}" for out in outs]
    code.do(f"call void @{function}({', '.join([*values, *data, f'i64 {count}'])})", f"ret ptr {answer}")


def _outputs(code: Code, loop: _Loops, shape: tuple[str, str]) -> tuple[str, list[str]]:
    """What to return, and the arrays in it: one new array, or a tuple of several."""
    if loop.results == 1:
        made = _new(code, loop.real, *shape)
        code.return_null_if_null(made)
        return made, [made]
    answer = code.let(f"call ptr {code.slot('new_tuple')}(i64 {loop.results})")
    code.return_null_if_null(answer)
    outs = []
    for k in range(loop.results):
        outs.append(_new(code, loop.real, *shape))
        code.return_null_if_null(outs[-1], undo=answer)
        # The tuple owns it from here on, so a later failure frees it with the tuple.
        code.do(f"call i32 {code.slot('set_item')}(ptr {answer}, i64 {k}, ptr {outs[-1]})")
    return answer, outs


class _Loops:
    """The loops of one builtin and dtype, one for each set of arguments that are numbers."""

    def __init__(self, module: Module, name: str, op: Elementwise, real: Real):
        self.module, self.name, self.op, self.real = module, name, op, real
        self.block = Block(real.kind)
        arguments = [Symbol(self.block, f"%x{k}", real.kind) for k in range(op.arguments)]
        results = op.formula(*arguments)
        results = results if isinstance(results, tuple) else (results,)
        self.values = [r if isinstance(r, Symbol) else self.block.constant(r, real.kind) for r in results]
        self.results = len(results)
        self._made: dict[frozenset[int], str] = {}
        module.needs |= self.block.needs

    def function(self, numbers: frozenset[int]) -> str:
        """Name of the loop in which the arguments in `numbers` are passed as values and the others as addresses."""
        if numbers not in self._made:
            name = f"{self.name}.{''.join('n' if k in numbers else 'a' for k in range(self.op.arguments))}"
            self.module.functions.append(self._text(name, numbers))
            self._made[numbers] = name
        return self._made[numbers]

    def _text(self, name: str, numbers: frozenset[int]) -> str:
        llvm = self.real.llvm
        parameters = [f"{llvm} %x{k}" if k in numbers else f"ptr %p{k}" for k in range(self.op.arguments)]
        parameters += [f"ptr %o{k}" for k in range(self.results)]
        group = self.module.mark()
        access = f"align {self.real.size}, !llvm.access.group {group}"
        code = Code(f"internal void @{name}({', '.join(parameters)}, i64 %n)")
        code.branch(code.let("icmp sgt i64 %n, 0"), "body", "done")
        code.label("body")
        code.do("%i = phi i64 [0, %entry], [%next, %body]")
        for k in range(self.op.arguments):
            if k not in numbers:
                at = code.let(f"getelementptr {llvm}, ptr %p{k}, i64 %i")
                code.do(f"%x{k} = load {llvm}, ptr {at}, {access}")
        code.do(*(line.strip() for line in self.block.lines))
        for k, value in enumerate(self.values):
            at = code.let(f"getelementptr {llvm}, ptr %o{k}, i64 %i")
            code.do(f"store {llvm} {value.name}, ptr {at}, {access}")
        code.do("%next = add nuw nsw i64 %i, 1", "%more = icmp slt i64 %next, %n",
                f"br i1 %more, label %body, label %done, !llvm.loop {self.module.loop_mark(group)}")
        code.label("done")
        code.do("ret void")
        return code.text()


# --- sums ---------------------------------------------------------------------------------------------------------

BLOCK = 1024                                          # elements added in the array's own precision, vectors wide


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
    code.do(f"%sum = fadd reassoc {llvm} %s, {code.element('%p', '%i', llvm)}", "%next = add nuw nsw i64 %i, 1",
            "%more = icmp slt i64 %next, %hi", "br i1 %more, label %body, label %done")
    code.label("done")
    code.do(f"%result = phi {llvm} [0.0, %entry], [%sum, %body]", f"ret {llvm} %result")
    return code.text()


def _total_part(name: str, real: Real, mean: bool) -> str:
    code = _part(name, real)
    first = _argument(code, 0)
    _require_array(code, first, real)
    count = code.let(f"call i64 @count(ptr {first})")
    code.require(code.let(f"icmp sle i64 {count}, {MOST_ELEMENTS}"))
    data = code.field(first, pyabi.DATA, "ptr")
    made = _new(code, real, 0, "null")
    code.return_null_if_null(made)
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
    code.do(f"%sum = fadd double %acc, {_as_double(code, part, real)}", "br label %head, !llvm.loop !0")
    code.label("done")
    result = code.let(f"fdiv double %acc, {code.let(f'sitofp i64 {count} to double')}") if mean else "%acc"
    value = code.let(f"fptrunc double {result} to float") if real.kind is F32 else result
    code.do(f"store {real.llvm} {value}, ptr {code.field(made, pyabi.DATA, 'ptr')}", f"ret ptr {made}")
    return code.text()


def _as_double(code: Code, value: str, real: Real) -> str:
    return code.let(f"fpext float {value} to double") if real.kind is F32 else value


def column_sum(module: Module, name: str) -> None:
    """Add a builtin that sums over all dimensions but the last: the gradient of a bias."""
    module.functions += [_column_sum_part(module, name, real) for real in REALS]
    module.functions.append(entry(name, 1))


STRIP = 512                                           # columns whose float64 sums are kept on the stack


def _column_sum_part(module: Module, name: str, real: Real) -> str:
    code = _part(name, real)
    code.do(f"%acc = alloca [{STRIP} x double], align 64")
    first = _argument(code, 0)
    _require_array(code, first, real)
    ndim = code.field(first, pyabi.NDIM, "i32")
    code.require(code.let(f"icmp sge i32 {ndim}, 1"))
    count = code.let(f"call i64 @count(ptr {first})")
    code.require(code.let(f"icmp sle i64 {count}, {MOST_ELEMENTS}"))
    last = code.let(f"sub i64 {code.let(f'sext i32 {ndim} to i64')}, 1")
    columns_at = code.let(f"getelementptr i64, ptr {code.field(first, pyabi.SHAPE, 'ptr')}, i64 {last}")
    columns = code.let(f"load i64, ptr {columns_at}")
    code.require(code.let(f"icmp sgt i64 {count}, 0"))
    code.require(code.let(f"icmp sle i64 {columns}, {STRIP}"))
    made = _new(code, real, 1, columns_at)
    code.return_null_if_null(made)
    rows = code.let(f"sdiv i64 {count}, {columns}")
    out = code.field(made, pyabi.DATA, "ptr")
    module.functions.append(_column_loops(name, real))
    code.do(f"call void @{name}.loops.{real.name}(ptr {code.field(first, pyabi.DATA, 'ptr')}, ptr %acc, ptr {out}, "
            f"i64 {rows}, i64 {columns})", f"ret ptr {made}")
    return code.text()


def _column_loops(name: str, real: Real) -> str:
    """Row by row into float64 sums, which are rounded once at the end."""
    llvm = real.llvm
    code = Code(f"internal void @{name}.loops.{real.name}(ptr noalias %p, ptr noalias %acc, ptr noalias %out, "
                "i64 %rows, i64 %columns)")
    bytes_used = code.let("mul i64 %columns, 8")
    code.do(f"call void @llvm.memset.p0.i64(ptr %acc, i8 0, i64 {bytes_used}, i1 false)", "br label %row")
    code.label("row")
    code.do("%r = phi i64 [0, %entry], [%r.next, %row.end]", "%base = mul i64 %r, %columns", "br label %column")
    code.label("column")
    code.do("%c = phi i64 [0, %row], [%c.next, %column]", "%at = add i64 %base, %c")
    value = _as_double(code, code.element("%p", "%at", llvm), real)
    place = code.let("getelementptr double, ptr %acc, i64 %c")
    code.do(f"%sum = fadd double {code.let(f'load double, ptr {place}')}, {value}", f"store double %sum, ptr {place}",
            "%c.next = add nuw nsw i64 %c, 1", "%c.more = icmp slt i64 %c.next, %columns",
            "br i1 %c.more, label %column, label %row.end")
    code.label("row.end")
    code.do("%r.next = add nuw nsw i64 %r, 1", "%r.more = icmp slt i64 %r.next, %rows",
            "br i1 %r.more, label %row, label %store")
    code.label("store")
    code.do("%k = phi i64 [0, %row.end], [%k.next, %store]")
    final = code.element("%acc", "%k", "double")
    final = code.let(f"fptrunc double {final} to float") if real.kind is F32 else final
    code.do(f"store {llvm} {final}, ptr {code.let(f'getelementptr {llvm}, ptr %out, i64 %k')}",
            "%k.next = add nuw nsw i64 %k, 1", "%k.more = icmp slt i64 %k.next, %columns",
            "br i1 %k.more, label %store, label %done")
    code.label("done")
    code.do("ret void")
    return code.text()


# --- matrix products ----------------------------------------------------------------------------------------------

ROW_MAJOR, AS_IS, TRANSPOSED = 101, 111, 112          # CBLAS's names for layouts


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A 2-D operand as BLAS takes it: (rows, columns) of the product's view, how it is stored, its leading length."""

    rows: str
    columns: str
    layout: str
    leading: str
    data: str


def matmul(module: Module, name: str, transposed: Sequence[bool]) -> None:
    """Add the builtin of a 2-D product; `transposed` says of each operand whether its transpose is meant.

    Operands may lie in memory row by row or column by column; a product without elements is refused.
    """
    module.functions += [_matmul_part(name, real, transposed) for real in REALS]
    module.functions.append(entry(name, 2))


def _matmul_part(name: str, real: Real, transposed: Sequence[bool]) -> str:
    code = _part(name, real)
    shape = code.let("alloca [2 x i64]")
    a, b = (_matrix(code, _argument(code, k), real, transposed[k]) for k in range(2))
    code.require(code.let(f"icmp eq i64 {a.columns}, {b.rows}"))
    _require_product_size(code, a.rows, b.columns, a.columns)
    code.do(f"store i64 {a.rows}, ptr {shape}")
    code.do(f"store i64 {b.columns}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 1')}")
    made = _new(code, real, 2, shape)
    code.return_null_if_null(made)
    _gemm(code, real, a, b, code.field(made, pyabi.DATA, "ptr"), add_to="0.0")
    code.do(f"ret ptr {made}")
    return code.text()


def _matrix(code: Code, item: str, real: Real, transposed: bool) -> Matrix:
    _require_array(code, item, real, pyabi.ALIGNED)
    code.require(code.let(f"icmp eq i32 {code.field(item, pyabi.NDIM, 'i32')}, 2"))
    flags = code.field(item, pyabi.FLAGS, "i32")
    dense = code.let(f"and i32 {flags}, {pyabi.C_CONTIGUOUS | pyabi.F_CONTIGUOUS}")
    code.require(code.let(f"icmp ne i32 {dense}, 0"))
    by_rows = code.let(f"icmp ne i32 {code.let(f'and i32 {flags}, {pyabi.C_CONTIGUOUS}')}, 0")
    shape = code.field(item, pyabi.SHAPE, "ptr")
    rows, columns = code.element(shape, 0, "i64"), code.element(shape, 1, "i64")
    leading = code.let(f"select i1 {by_rows}, i64 {columns}, i64 {rows}")
    data = code.field(item, pyabi.DATA, "ptr")
    straight, turned = (TRANSPOSED, AS_IS) if transposed else (AS_IS, TRANSPOSED)
    layout = code.let(f"select i1 {by_rows}, i32 {straight}, i32 {turned}")
    if transposed:
        rows, columns = columns, rows
    return Matrix(rows, columns, layout, leading, data)


def _require_product_size(code: Code, rows: str, columns: str, inner: str) -> None:
    """Neither empty nor large; a length is bounded before it is multiplied, so nothing overflows."""
    for length in (rows, columns, inner):
        below = code.let(f"sub i64 {length}, 1")
        code.require(code.let(f"icmp ult i64 {below}, {MOST_ELEMENTS}"))
    products = code.let(f"mul i64 {code.let(f'mul i64 {rows}, {columns}')}, {inner}")
    code.require(code.let(f"icmp sle i64 {products}, {MOST_PRODUCTS}"))


def _gemm(code: Code, real: Real, a: Matrix, b: Matrix, out: str, add_to: str) -> None:
    """out = a @ b + add_to * out, on row-major `out`."""
    llvm = real.llvm
    code.do(f"call void {code.slot(real.gemm)}(i32 {ROW_MAJOR}, i32 {a.layout}, i32 {b.layout}, i64 {a.rows}, "
            f"i64 {b.columns}, i64 {a.columns}, {llvm} 1.0, ptr {a.data}, i64 {a.leading}, ptr {b.data}, "
            f"i64 {b.leading}, {llvm} {add_to}, ptr {out}, i64 {b.columns})")


def linear(module: Module, name: str) -> None:
    """Add the builtin ``(x, weight, bias) -> x @ weight.T + bias`` for x of one or more dimensions, C-contiguous."""
    for real in REALS:
        module.functions.append(_bias_rows(real, name))
        module.functions.append(_linear_part(name, real))
    module.functions.append(entry(name, 3))


def _linear_part(name: str, real: Real) -> str:
    code = _part(name, real)
    shape = code.let(f"alloca [{pyabi.MOST_DIMS} x i64]")
    x, bias = _argument(code, 0), _argument(code, 2)
    _require_array(code, x, real)
    w = _matrix(code, _argument(code, 1), real, transposed=True)        # (features in, features out)
    _require_array(code, bias, real)
    code.require(code.let(f"icmp eq i32 {code.field(bias, pyabi.NDIM, 'i32')}, 1"))
    width = code.element(code.field(bias, pyabi.SHAPE, "ptr"), 0, "i64")
    code.require(code.let(f"icmp eq i64 {width}, {w.columns}"))
    ndim = code.field(x, pyabi.NDIM, "i32")
    code.require(code.let(f"icmp sge i32 {ndim}, 1"))
    last = code.let(f"sub i64 {code.let(f'sext i32 {ndim} to i64')}, 1")
    x_shape = code.field(x, pyabi.SHAPE, "ptr")
    code.require(code.let(f"icmp eq i64 {code.element(x_shape, last, 'i64')}, {w.rows}"))
    code.require(code.let(f"icmp sgt i64 {w.rows}, 0"))
    rows = code.let(f"sdiv i64 {code.let(f'call i64 @count(ptr {x})')}, {w.rows}")
    _require_product_size(code, rows, w.columns, w.rows)
    size = code.let(f"mul i64 {last}, 8")
    code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {shape}, ptr {x_shape}, i64 {size}, i1 false)",
            f"store i64 {w.columns}, ptr {code.let(f'getelementptr i64, ptr {shape}, i64 {last}')}")
    made = _new(code, real, ndim, shape)
    code.return_null_if_null(made)
    out = code.field(made, pyabi.DATA, "ptr")
    code.do(f"call void @{name}.bias.{real.name}(ptr {out}, ptr {code.field(bias, pyabi.DATA, 'ptr')}, i64 {rows}, "
            f"i64 {w.columns})")
    left = Matrix(rows, w.rows, str(AS_IS), w.rows, code.field(x, pyabi.DATA, "ptr"))
    _gemm(code, real, left, w, out, add_to="1.0")
    code.do(f"ret ptr {made}")
    return code.text()


def _bias_rows(real: Real, name: str) -> str:
    """The bias in every row of the output, for the product to be added to."""
    code = Code(f"internal void @{name}.bias.{real.name}(ptr %out, ptr %bias, i64 %rows, i64 %columns)")
    size = code.let(f"mul i64 %columns, {real.size}")
    code.do("br label %row")
    code.label("row")
    code.do("%r = phi i64 [0, %entry], [%next, %row]")
    place = code.let(f"getelementptr {real.llvm}, ptr %out, i64 {code.let('mul i64 %r, %columns')}")
    code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr %bias, i64 {size}, i1 false)",
            "%next = add nuw nsw i64 %r, 1", "%more = icmp slt i64 %next, %rows",
            "br i1 %more, label %row, label %done")
    code.label("done")
    code.do("ret void")
    return code.text()
