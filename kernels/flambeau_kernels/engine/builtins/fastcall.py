"""Builtins written as LLVM IR: the checks, allocations and references between Python's arguments and a loop.

Every builtin is a C function ``ptr f(ptr self, ptr *args, i64 nargs)`` called with the interpreter lock held.
It looks at its first argument, goes on in the part made for float32 or float64, and answers None for anything
it was not made for, before having written anything. `self` carries the addresses of `pyabi.table`.

This module has what all builtins share; the `builtins_*` modules write the families.
"""
from __future__ import annotations

import dataclasses

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.scalar.symbols import F32, F64, Kind

# Larger arrays repay the compiled tier with its threads, and should not be worked on while holding the lock.
MOST_ELEMENTS = 65536
# Multiplications in one product of matrices, and of one with a vector: up to this many OpenBLAS works on one thread.
MOST_PRODUCTS, MOST_THIN_PRODUCTS = hot_calls.MOST_PRODUCTS, hot_calls.MOST_THIN_PRODUCTS
C_ORDER = pyabi.C_CONTIGUOUS | pyabi.ALIGNED


@dataclasses.dataclass(frozen=True)
class Real:
    """A dtype builtins are made for; `letter` begins the names of its BLAS routines."""

    kind: Kind
    letter: str

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def llvm(self) -> str:
        return self.kind.llvm

    @property
    def size(self) -> int:
        return self.kind.bits // 8


REALS = (Real(F32, "s"), Real(F64, "d"))


@dataclasses.dataclass(frozen=True)
class Half:
    """A dtype that some builtins store, and compute in `wide`."""

    name: str
    wide: Real


BFLOAT16 = Half("bfloat16", REALS[0])


class Code:
    """An LLVM function in the making. Values get fresh names; an unmet requirement is answered None."""

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

    def return_null_if_null(self, pointer: str, *undo: str | None) -> None:
        """Pass on the Python error behind a failed allocation, after giving the references `undo` back."""
        failed, onward = self.fresh("failed"), self.fresh("ok")
        self.branch(self.let(f"icmp eq ptr {pointer}, null"), failed, onward)
        self.label(failed)
        for reference in undo:
            if reference is not None:
                self.do(f"call void {self.slot('decref')}(ptr {reference})")
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
        """Element `index` of the C array at `pointer`."""
        at = self.let(f"getelementptr {llvm_type}, ptr {pointer}, i64 {index}")
        return self.let(f"load {llvm_type}, ptr {at}")

    def text(self) -> str:
        lines = list(self._lines)
        if self._refuses:
            lines += ["refuse:", "  %none = call ptr @none(ptr %table)", "  ret ptr %none"]
        return "\n".join([*lines, "}", ""])


class Module:
    """Functions of one LLVM module, with the declarations and loop marks they share."""

    def __init__(self, scales: bool = False):
        self.scales = scales
        helpers = (_none, _fits, _same_shape, _count, _number, _no_overlap, _new_array)
        self.functions = [write() for write in helpers]
        self.needs: set[str] = set()
        # Number 0 is for loops of a few rounds, which only get longer by being made into vectors.
        self._marks = [f"!0 = distinct !{{!0, {_NO_VECTORS}, {_NO_UNROLL}}}"]

    def mark(self, *properties: str) -> str:
        """A new metadata number with the given content."""
        self._marks.append(f"!{len(self._marks)} = distinct !{{{', '.join(properties)}}}")
        return f"!{len(self._marks) - 1}"

    def text(self) -> str:
        return "\n".join([*sorted(self.needs), *self.functions, *self._marks]) + "\n"


_NO_VECTORS = '!{!"llvm.loop.vectorize.enable", i1 false}'
_NO_UNROLL = '!{!"llvm.loop.unroll.disable"}'


# --- helpers every builtin calls ----------------------------------------------------------------------------

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
    has_all = code.let(f"icmp eq i32 {has}, %flags")
    code.do(f"ret i1 {code.let(f'and i1 {same}, {has_all}')}")
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
    """Read a Python float, or an int of up to 64 bits. Truth values and subclasses are refused."""
    code = Code("internal i1 @number(ptr %table, ptr %item, ptr %into)")
    overflow = code.let("alloca i32")
    kind = code.field("%item", pyabi.TYPE, "ptr")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('float')}"), "float", "other")
    code.label("float")
    code.do(f"store double {code.field('%item', pyabi.FLOAT_VALUE, 'double')}, ptr %into", "ret i1 true")
    code.label("other")
    code.branch(code.let(f"icmp eq ptr {kind}, {code.slot('int')}"), "int", "no")
    code.label("int")
    value = code.let(f"call i64 {code.slot('int_value')}(ptr %item, ptr {overflow})")
    fits = code.let(f"icmp eq i32 {code.let(f'load i32, ptr {overflow}')}, 0")
    code.do(f"store double {code.let(f'sitofp i64 {value} to double')}, ptr %into", f"ret i1 {fits}")
    code.label("no")
    code.do("ret i1 false")
    return code.text()


def _no_overlap() -> str:
    """Whether `b` may be read while `a` is written: the same memory exactly, or none in common."""
    code = Code("internal i1 @apart(ptr %a, i64 %a.bytes, ptr %b, i64 %b.bytes) alwaysinline")
    a, b = (code.let(f"ptrtoint ptr {code.field(item, pyabi.DATA, 'ptr')} to i64") for item in ("%a", "%b"))
    same_start = code.let(f"icmp eq i64 {a}, {b}")
    same_size = code.let("icmp eq i64 %a.bytes, %b.bytes")
    same = code.let(f"and i1 {same_start}, {same_size}")
    before = code.let(f"icmp ule i64 {code.let(f'add i64 {a}, %a.bytes')}, {b}")
    after = code.let(f"icmp ule i64 {code.let(f'add i64 {b}, %b.bytes')}, {a}")
    beside = code.let(f"or i1 {before}, {after}")
    code.do(f"ret i1 {code.let(f'or i1 {same}, {beside}')}")
    return code.text()


def _new_array() -> str:
    """A new C-contiguous array; null after a failed allocation."""
    code = Code("internal ptr @new_array(ptr %table, ptr %dtype, i32 %ndim, ptr %shape) alwaysinline")
    code.do(f"call void {code.slot('incref')}(ptr %dtype)")     # numpy takes this reference over
    made = code.let(f"call ptr {code.slot('new_array')}(ptr {code.slot('ndarray')}, ptr %dtype, i32 %ndim, "
                    "ptr %shape, ptr null, ptr null, i32 0, ptr null)")
    code.do(f"ret ptr {made}")
    return code.text()


# --- the entry of a builtin ---------------------------------------------------------------------------------

def entry(name: str, arguments: int, kinds: tuple[Real | Half, ...] = REALS) -> str:
    """The exported function `fb_<name>`: number of arguments, then dtype of the first one."""
    code = Code(f"ptr @fb_{name}(ptr %self, ptr %args, i64 %nargs)")
    code.do(f"%table.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}", "%table = load ptr, ptr %table.at")
    code.require(code.let(f"icmp eq i64 %nargs, {arguments}"))
    first = code.let("load ptr, ptr %args")
    cls = code.field(first, pyabi.TYPE, "ptr")
    code.require(code.let(f"icmp eq ptr {cls}, {code.slot('ndarray')}"))
    dtype = code.field(first, pyabi.DTYPE, "ptr")
    for kind in kinds:
        here, onward = code.fresh("is"), code.fresh("not")
        code.branch(code.let(f"icmp eq ptr {dtype}, {code.slot(kind.name)}"), here, onward)
        code.label(here)
        result = code.let(f"call ptr @{name}.{kind.name}(ptr %table, ptr %args)")
        code.do(f"ret ptr {result}")
        code.label(onward)
    code.require("false")
    code.do("unreachable")
    return code.text()


class Part(Code):
    """The part of a builtin for one dtype. Its first argument is known to be an ndarray of that dtype."""

    def __init__(self, name: str, kind: Real | Half):
        super().__init__(f"internal ptr @{name}.{kind.name}(ptr %table, ptr %args)")
        self.kind = kind
        self.real = kind.wide if isinstance(kind, Half) else kind

    def argument(self, k: int) -> str:
        return self.element("%args", k, "ptr")

    def require_array(self, item: str, flags: int = C_ORDER) -> None:
        """`item` must be an ndarray of this part's dtype with these flags."""
        dtype = self.slot(self.kind.name)
        self.require(self.let(f"call i1 @fits(ptr %table, ptr {item}, ptr {dtype}, i32 {flags})"))

    def count(self, item: str) -> str:
        """The number of elements of an array, which must not be a large one."""
        count = self.let(f"call i64 @count(ptr {item})")
        self.require(self.let(f"icmp sle i64 {count}, {MOST_ELEMENTS}"))
        return count

    def data(self, item: str) -> str:
        return self.field(item, pyabi.DATA, "ptr")

    def new_array(self, ndim: str | int, shape: str, undo: str | None = None) -> str:
        """A new array of this dtype; `undo` as for `return_null_if_null`."""
        dtype = self.slot(self.kind.name)
        made = self.let(f"call ptr @new_array(ptr %table, ptr {dtype}, i32 {ndim}, ptr {shape})")
        self.return_null_if_null(made, undo)
        return made


def at(name: str, base: str, slot: int, kind: str = "i64") -> str:
    """Lines that load slot `slot` of `base` as ``%name``."""
    return f"  %{name}.at = getelementptr i64, ptr {base}, i64 {slot}\n  %{name} = load {kind}, ptr %{name}.at\n"


def of_table(name: str) -> str:
    """Lines that load a function of the table of C functions as ``%name``."""
    return f"  %{name}.at = getelementptr ptr, ptr %table, i64 {pyabi.slot(name)}\n  %{name} = load ptr, ptr %{name}.at\n"


def field(name: str, item: str, offset: int, kind: str) -> str:
    """Lines that load what lies `offset` bytes into the object `item` as ``%name``."""
    return f"  %{name}.at = getelementptr i8, ptr {item}, i64 {offset}\n  %{name} = load {kind}, ptr %{name}.at\n"
