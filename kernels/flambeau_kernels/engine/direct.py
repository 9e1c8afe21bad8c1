"""Formulas on contiguous arrays of one shape, called without a plan for each shape: ``formula.direct(*operands)``.

Looking up a plan and allocating the result in Python takes as long as adding fifty thousand numbers. So a formula that
has run on some dtypes gets two builtins, which check their operands, cut the work and run the loop in native code:
`direct` returns a new array, `direct_` stores the result in its first operand. Both answer None, before having written
anything, for operands they were not taught: other dtypes, strides or shapes, few elements. The caller then goes its
general way. Work is cut, and the tier chosen, as `plan` and `elementwise` do it for such operands.
"""
from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels.engine import elementwise, fastcall, journal, llvm, native, plan, pyabi
from flambeau_kernels.engine.lasting import lasting
from flambeau_kernels.formula import Formula, refuse
from flambeau_kernels.scalar.symbols import Unsupported

MOST_ARGUMENTS = 4
MOST_ENTRIES, MOST_KEYS = 16, 256                     # combinations of dtypes a formula answers for, and may ask about
_EXACT = 1 << 53                                      # integers up to here are doubles

# Slots of the head, the builtins' `self`; the entries follow.
(COUNT, TABLE, POOL, PARALLEL, SAVE, RESTORE, RING, ENTRIES) = range(8)
# Slots of an entry; what each argument must be, then strides as `loops` wants them.
(ARGUMENTS, OUT, KERNEL, LEAST, SHARED_FROM, GRAIN, RELEASE_FROM, KINDS) = range(8)
STRIDES = KINDS + MOST_ARGUMENTS
ENTRY = STRIDES + 2 * (MOST_ARGUMENTS + 1)
_FLOAT, _INTEGER = 1, 2                               # kinds that are not the address of a dtype


class _Taught:
    """A formula's builtins' head and entries, by what they are for."""

    __slots__ = ("entries", "head")

    def __init__(self) -> None:
        self.head = np.zeros(ENTRIES + MOST_ENTRIES * ENTRY, np.int64)
        self.entries: dict[tuple[Any, ...], np.ndarray | None] = {}  # views of the head; None: numpy's
        slots = dict(native.process_addresses())
        self.head[TABLE] = pyabi.table().ctypes.data
        for slot, name in ((POOL, native.POOL), (PARALLEL, native.PARALLEL), (SAVE, native.SAVE),
                           (RESTORE, native.RESTORE), (RING, native.RING)):
            self.head[slot] = slots[name]


_taught: weakref.WeakKeyDictionary[Formula, _Taught] = weakref.WeakKeyDictionary()


def teach(formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype) -> None:
    """Let ``formula.direct`` answer for operands of the dtypes of `inputs`, with results as `out` is.

    `compute` and the dtype of `out` must follow from the formula and the dtypes. Operands that it never answers for are
    passed over.
    """
    if not _suits(inputs, out):
        return
    key = tuple(a.dtype if a.__class__ is np.ndarray else a.__class__ for a in inputs)
    known = _taught.get(formula)
    if known is not None and key in known.entries:
        return
    if pyabi.problem() is not None or llvm.available() is not None:
        return
    if known is None:
        known = _taught[formula] = _Taught()
    count = int(known.head[COUNT])
    if count < MOST_ENTRIES and len(known.entries) < MOST_KEYS:
        entry = known.head[ENTRIES + count * ENTRY:][:ENTRY]
        made = _fill(entry, formula, inputs, out, compute)
        known.entries[key] = entry if made else None
        if made:
            known.head[COUNT] = count + 1
            if not count:
                formula.direct, formula.direct_ = _builtins(known.head)


def _suits(inputs: tuple[Any, ...], out: np.ndarray) -> bool:
    if len(inputs) > MOST_ARGUMENTS or not out.ndim or out.__class__ is not np.ndarray or not out.flags.c_contiguous:
        return False
    arrays = [a for a in inputs if a.__class__ is np.ndarray]
    if not arrays or any(a.shape != out.shape or not a.flags.c_contiguous or not a.dtype.isnative for a in arrays):
        return False
    return all(a.__class__ in (np.ndarray, float, int) for a in inputs)


def _fill(entry: np.ndarray, formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype) -> bool:
    arrays = [np.asarray(a) for a in inputs]
    access = "".join("c" if a.ndim else "s" for a in arrays) + "c"
    strides = [a.itemsize if a.ndim else 0 for a in (*arrays, out)]
    where = plan.Layout(((out.size, tuple(strides)),), access)
    try:
        kernel = elementwise._kernel(formula, where, arrays, [out], compute)
        address = llvm.compile_ir(kernel.text, kernel.symbol)
    except (Unsupported, RuntimeError):               # which the general way says
        return False
    stored = {a.dtype for a in (*arrays, out) if a.ndim}
    least = max(elementwise.pays_from(formula, kernel.cost, compute, stored), flambeau_kernels.smallest_compiled(formula))
    ns = plan.nanoseconds(kernel.cost, sum(a.itemsize for a in (*arrays, out)))
    entry[ARGUMENTS], entry[OUT], entry[KERNEL], entry[LEAST] = len(inputs), id(out.dtype), address, least
    entry[SHARED_FROM], entry[GRAIN] = plan.shared_from(ns), plan.chunk_elements(ns)
    entry[RELEASE_FROM] = int(plan.RELEASE_NS / ns)
    kinds = {float: _FLOAT, int: _INTEGER}
    entry[KINDS:KINDS + len(inputs)] = [kinds.get(a.__class__) or id(a.dtype) for a in inputs]
    entry[STRIDES:STRIDES + 2 * len(strides):2] = strides
    names = ", ".join(a.dtype.name for a in (*arrays, out))
    journal.name(entry, lambda: f"loop {formula.name} computing in {compute.name}: {names}, contiguous")
    _dtypes.update((id(a.dtype), a.dtype) for a in (*arrays, out))
    return True


_dtypes: dict[int, np.dtype] = {}                     # whose addresses are in entries, which hold no references


def forget() -> None:
    """Let every formula answer None again; for another choice of backend."""
    for formula, known in list(_taught.items()):
        formula.direct = formula.direct_ = refuse
        known.head[COUNT] = 0
    _taught.clear()


flambeau_kernels.plans_kept_elsewhere.append(forget)


def _builtins(head: np.ndarray) -> tuple[Any, Any]:
    methods = _methods()
    new, size = native.new_builtin(), ctypes.sizeof(native.MethodDef)
    return new(ctypes.addressof(methods), head, None), new(ctypes.addressof(methods) + size, head, None)


@functools.cache
def _methods() -> Any:
    code = llvm.compile_symbols(_text(), ("flambeau_direct", "flambeau_direct_"), llvm.PLAIN)
    fastcall = 0x80
    return lasting((native.MethodDef * 2)(
        (b"direct", code["flambeau_direct"], fastcall, None), (b"direct_", code["flambeau_direct_"], fastcall, None)))


def _at(name: str, base: str, slot: int, kind: str = "i64") -> str:
    return f"  %{name}.at = getelementptr i64, ptr {base}, i64 {slot}\n  %{name} = load {kind}, ptr %{name}.at\n"


def _of_table(name: str) -> str:
    return f"  %{name}.at = getelementptr ptr, ptr %table, i64 {pyabi.slot(name)}\n  %{name} = load ptr, ptr %{name}.at\n"


def _field(name: str, item: str, offset: int, kind: str) -> str:
    return f"  %{name}.at = getelementptr i8, ptr {item}, i64 {offset}\n  %{name} = load {kind}, ptr %{name}.at\n"


def _text() -> str:
    helpers = [fastcall._none(), fastcall._fits(), fastcall._same_shape(), fastcall._count(), fastcall._apart(),
               fastcall._new_array()]
    mark = '!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}\n'
    return "\n".join([*helpers, _RUN, _builtin("flambeau_direct", False), _builtin("flambeau_direct_", True), mark])


_RUN = f"""
declare i64 @llvm.smin.i64(i64, i64)

; Chunk number i of the work {{entry, pointers, elements, elements of a chunk, of which the first has less, chunks}}.
define internal void @chunk(i64 %i, ptr %work) {{
entry:
{_at("e", "%work", 0, "ptr")}{_at("pointers", "%work", 1, "ptr")}{_at("n", "%work", 2)}{_at("grain", "%work", 3)}
{_at("arguments", "%e", ARGUMENTS)}{_at("kernel", "%e", KERNEL, "ptr")}
  %strides = getelementptr i64, ptr %e, i64 {STRIDES}
  %here = alloca ptr, i64 {MOST_ARGUMENTS + 1}
{_at("less", "%work", 4)}{_at("chunks", "%work", 5)}
  %first = icmp eq i64 %i, 0
  %begin = mul i64 %i, %grain
  %early = sub i64 %begin, %less
  %from = select i1 %first, i64 0, i64 %early
  %i1 = add i64 %i, 1
  %last = icmp eq i64 %i1, %chunks
  %end = add i64 %early, %grain
  %to = select i1 %last, i64 %n, i64 %end
  %size = sub i64 %to, %from
  br label %operand
operand:
  %k = phi i64 [0, %entry], [%knext, %operand]
  %k2 = mul i64 %k, 2
  %stride.at = getelementptr i64, ptr %strides, i64 %k2
  %stride = load i64, ptr %stride.at
  %away = mul i64 %stride, %from
  %p.at = getelementptr ptr, ptr %pointers, i64 %k
  %p = load ptr, ptr %p.at
  %moved = getelementptr i8, ptr %p, i64 %away
  %h.at = getelementptr ptr, ptr %here, i64 %k
  store ptr %moved, ptr %h.at
  %knext = add i64 %k, 1
  %more = icmp sle i64 %knext, %arguments
  br i1 %more, label %operand, label %run, !llvm.loop !0
run:
  call void %kernel(ptr %here, i64 %size, i64 1, ptr %strides)
  ret void
}}

define internal void @run(ptr %head, ptr %e, ptr %pointers, i64 %n) {{
entry:
{_at("shared", "%e", SHARED_FROM)}{_at("usual", "%e", GRAIN)}{_at("release", "%e", RELEASE_FROM)}
{_at("jring", "%head", RING, "ptr")}
  ; An even number of pieces of one size, in whole cache lines: `plan.grains`.
  %fits = icmp sle i64 %n, %usual
  %few = icmp slt i64 %n, %shared
  %single = or i1 %fits, %few
  %u1 = add i64 %n, %usual
  %u2 = sub i64 %u1, 1
  %pieces = udiv i64 %u2, %usual
  %odd = and i64 %pieces, 1
  %even = add i64 %pieces, %odd
  %v1 = add i64 %n, %even
  %v2 = sub i64 %v1, 1
  %each = udiv i64 %v2, %even
  %w1 = add i64 %each, {plan.LINE - 1}
  %w2 = and i64 %w1, {-plan.LINE}
  %cut = call i64 @llvm.smin.i64(i64 %w2, i64 %n)
  %grain = select i1 %single, i64 %n, i64 %cut
  %x1 = add i64 %n, %grain
  %x2 = sub i64 %x1, 1
  %chunks = udiv i64 %x2, %grain
{journal.ir("j", "%e", "%chunks")}
  ; Stores that cross cache lines cost more than loads that do: later chunks begin where a line of the result does.
{_at("arguments", "%e", ARGUMENTS)}
  %o.at = getelementptr ptr, ptr %pointers, i64 %arguments
  %o = load ptr, ptr %o.at
  %o.place = ptrtoint ptr %o to i64
  %o.away = and i64 %o.place, {plan.LINE - 1}
  %o2 = mul i64 %arguments, 2
  %o.slot = add i64 %o2, {STRIDES}
  %o.item.at = getelementptr i64, ptr %e, i64 %o.slot
  %o.item = load i64, ptr %o.item.at
  %o.less = udiv i64 %o.away, %o.item
  %whole = icmp eq i64 %chunks, 1
  %less = select i1 %whole, i64 0, i64 %o.less
  %work = alloca i64, i64 6
  store ptr %e, ptr %work
  %w.less = getelementptr i64, ptr %work, i64 4
  store i64 %less, ptr %w.less
  %w.chunks = getelementptr i64, ptr %work, i64 5
  store i64 %chunks, ptr %w.chunks
  %w.pointers = getelementptr i64, ptr %work, i64 1
  store ptr %pointers, ptr %w.pointers
  %w.n = getelementptr i64, ptr %work, i64 2
  store i64 %n, ptr %w.n
  %w.grain = getelementptr i64, ptr %work, i64 3
  store i64 %grain, ptr %w.grain
{_at("pool", "%head", POOL, "ptr")}{_at("parallel", "%head", PARALLEL, "ptr")}
{_at("save", "%head", SAVE, "ptr")}{_at("restore", "%head", RESTORE, "ptr")}
  %long = icmp sgt i64 %n, %release
  br i1 %long, label %free, label %held
free:
  %state = call ptr %save()
  %ran = call i64 %parallel(ptr %pool, ptr @chunk, ptr %work, i64 %chunks)
  call void %restore(ptr %state)
  ret void
held:
  %alone = icmp eq i64 %chunks, 1
  br i1 %alone, label %one, label %several
one:
  call void @chunk(i64 0, ptr %work)
  ret void
several:
  %ran2 = call i64 %parallel(ptr %pool, ptr @chunk, ptr %work, i64 %chunks)
  ret void
}}
"""


def _builtin(name: str, in_place: bool) -> str:
    """The builtin that tries the entries in turn: those whose arguments these are, from their least size on."""
    flags = pyabi.C_CONTIGUOUS
    if in_place:
        finish = f"""
  %a0 = load ptr, ptr %args
  %a0.fits = call i1 @fits(ptr %table, ptr %a0, ptr %out, i32 {pyabi.C_CONTIGUOUS | pyabi.WRITEABLE})
  br i1 %a0.fits, label %overlaps, label %next
overlaps:

  %stride0.at = getelementptr i64, ptr %e, i64 {STRIDES}
  %stride0 = load i64, ptr %stride0.at
  %bytes0 = mul i64 %n, %stride0
  br label %other
other:
  %o = phi i64 [0, %overlaps], [%onext, %beside]
  %o.kind.at = getelementptr i64, ptr %kinds, i64 %o
  %o.kind = load i64, ptr %o.kind.at
  %o.array = icmp ugt i64 %o.kind, {_INTEGER}
  %o.item.at = getelementptr ptr, ptr %args, i64 %o
  %o.item = load ptr, ptr %o.item.at
  br i1 %o.array, label %compare, label %beside
compare:
  %o2 = mul i64 %o, 2
  %o.slot = add i64 %o2, {STRIDES}
  %o.stride.at = getelementptr i64, ptr %e, i64 %o.slot
  %o.stride = load i64, ptr %o.stride.at
  %o.bytes = mul i64 %n, %o.stride
  %o.apart = call i1 @apart(ptr %a0, i64 %bytes0, ptr %o.item, i64 %o.bytes)
  br i1 %o.apart, label %beside, label %refuse
beside:
  %onext = add i64 %o, 1
  %o.more = icmp slt i64 %onext, %nargs
  br i1 %o.more, label %other, label %go, !llvm.loop !0
go:
  %made = load ptr, ptr %args
{_of_table("incref")}
  call void %incref(ptr %made)
"""
    else:
        finish = f"""
{_field("ndim", "%whole", pyabi.NDIM, "i32")}{_field("shape", "%whole", pyabi.SHAPE, "ptr")}
  %made = call ptr @new_array(ptr %table, ptr %out, i32 %ndim, ptr %shape)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %go
error:
  ret ptr null
go:
"""
    return f"""
define ptr @{name}(ptr %self, ptr %args, i64 %nargs) {{
entry:
{_field("head", "%self", pyabi.DATA, "ptr")}{_at("table", "%head", TABLE, "ptr")}{_at("count", "%head", COUNT)}
{_of_table("ndarray")}{_of_table("float")}{_of_table("int")}{_of_table("int_value")}
  %entries = getelementptr i64, ptr %head, i64 {ENTRIES}
  %pointers = alloca ptr, i64 {MOST_ARGUMENTS + 1}
  %numbers = alloca i64, i64 {MOST_ARGUMENTS}
  %overflow = alloca i32
  br label %try
try:
  %j = phi i64 [0, %entry], [%jnext, %next]
  %any = icmp slt i64 %j, %count
  br i1 %any, label %look, label %refuse
look:
  %j.away = mul i64 %j, {ENTRY}
  %e = getelementptr i64, ptr %entries, i64 %j.away
{_at("arguments", "%e", ARGUMENTS)}{_at("out", "%e", OUT, "ptr")}{_at("least", "%e", LEAST)}
  %kinds = getelementptr i64, ptr %e, i64 {KINDS}
  %as.many = icmp eq i64 %arguments, %nargs
  br i1 %as.many, label %argument, label %next
argument:
  %k = phi i64 [0, %look], [%knext, %taken]
  %whole.before = phi ptr [null, %look], [%whole, %taken]
  %kind.at = getelementptr i64, ptr %kinds, i64 %k
  %kind = load i64, ptr %kind.at
  %item.at = getelementptr ptr, ptr %args, i64 %k
  %item = load ptr, ptr %item.at
  %slot = getelementptr ptr, ptr %pointers, i64 %k
  %number = getelementptr i64, ptr %numbers, i64 %k
{_field("type", "%item", pyabi.TYPE, "ptr")}
  switch i64 %kind, label %array [i64 {_FLOAT}, label %floating  i64 {_INTEGER}, label %integer]
floating:
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %float.value, label %next
float.value:
{_field("double", "%item", pyabi.FLOAT_VALUE, "double")}
  store double %double, ptr %number
  store ptr %number, ptr %slot
  br label %taken
integer:
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %int.value, label %next
int.value:
  %value = call i64 %int_value(ptr %item, ptr %overflow)
  %beyond = load i32, ptr %overflow
  %up = add i64 %value, {_EXACT}
  %within = icmp ule i64 %up, {2 * _EXACT}
  %exact = icmp eq i32 %beyond, 0
  %usable = and i1 %within, %exact
  store i64 %value, ptr %number
  store ptr %number, ptr %slot
  br i1 %usable, label %taken, label %refuse
array:
  %wanted = inttoptr i64 %kind to ptr
  %fits = call i1 @fits(ptr %table, ptr %item, ptr %wanted, i32 {flags})
  br i1 %fits, label %shaped, label %next
shaped:
{_field("data", "%item", pyabi.DATA, "ptr")}
  store ptr %data, ptr %slot
  %first = icmp eq ptr %whole.before, null
  br i1 %first, label %taken, label %again
again:
  %alike = call i1 @same_shape(ptr %whole.before, ptr %item)
  br i1 %alike, label %taken, label %refuse
taken:
  %whole = phi ptr [%whole.before, %float.value], [%whole.before, %int.value], [%item, %shaped], [%whole.before, %again]
  %knext = add i64 %k, 1
  %more = icmp slt i64 %knext, %nargs
  br i1 %more, label %argument, label %all, !llvm.loop !0
next:
  %jnext = add i64 %j, 1
  br label %try, !llvm.loop !0
all:
{_field("dims", "%whole", pyabi.NDIM, "i32")}
  %n = call i64 @count(ptr %whole)
  %enough = icmp sge i64 %n, %least
  %some = icmp sgt i32 %dims, 0
  %worth = and i1 %enough, %some
  br i1 %worth, label %finish, label %refuse
finish:
{finish}
  %last = getelementptr ptr, ptr %pointers, i64 %nargs
  %made.data.at = getelementptr i8, ptr %made, i64 {pyabi.DATA}
  %made.data = load ptr, ptr %made.data.at
  store ptr %made.data, ptr %last
  call void @run(ptr %head, ptr %e, ptr %pointers, i64 %n)
  ret ptr %made
refuse:
  %none = call ptr @none(ptr %table)
  ret ptr %none
}}
"""
