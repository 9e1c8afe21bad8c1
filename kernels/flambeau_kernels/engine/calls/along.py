"""Kernels along dimensions of small arrays, called without a plan for each shape: ``call(array, dim, keepdim, k)``.

A reduction of sixteen numbers takes numpy a microsecond and a half, most of it spent on finding out what to do. The builtins
made here look at their arguments, allocate the results and run a kernel of the kernel language in a tenth of that. They
answer None, before having written anything, for whatever they were not made for, and the caller takes the fallback. In the
place of `k` there may be another array of the same dtype.

An array in C order is seen as ``(outer, n, inner)``, where `n` counts the dimensions meant, which must lie side by side
(others of size 1 may lie between). A kernel has the parameters ``(chunk, x, out, second, outer, n, inner, k)``, or
``(..., inner, other, count)``.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.engine.builtins import fastcall, pyabi
from flambeau_kernels.engine.builtins.fastcall import at, field, of_table
from flambeau_kernels.engine.language import Kernel
from flambeau_kernels.engine.launching import call, journal, native
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime.never_freed import never_freed

MOST_ENTRIES = 12                                     # dtypes a builtin answers for
MOST_DIMS = 32                                        # so that a mask of dimensions fits a word
# What a result has along the dimensions meant: nothing (or 1, with `keepdim`), what the array has, `k` elements; or it is 0-d.
REDUCED, SAME, LENGTH, NONE = range(4)
# What `dim` may be beside an int: nothing else, None for all dimensions, a list or tuple as well, an empty one of which means all
# dimensions, or none.
ONE, OR_ALL, OR_SEVERAL, OR_NONE = range(4)
# What comes after `keepdim`: nothing, a number from 1 to the length of a line, or an array.
NO_MORE, NUMBER, ARRAY = range(3)

# Slots of the head, the builtin's `self`; the entries follow. Slots of an entry.
(COUNT, TABLE, RING, TRUE, FALSE, MOST, MOST_ALONG, DIMS, TAKES, MOST_BESIDE, ENTRIES) = range(11)
(DTYPE, FIRST, SECOND, FIRST_MODE, SECOND_MODE, KERNEL, SIDE_BY_SIDE, ENTRY) = range(8)


class Task(NamedTuple):
    """A kernel for arrays of one dtype: its constants, and dtype and mode of its one or two results.

    Attributes:
        side_by_side: the kernel for lines whose elements lie side by side, if that is another one: two compile in half the time each.
    """

    kernel: Kernel
    constants: dict[str, Any]
    results: tuple[tuple[np.dtype, int], ...]
    side_by_side: Kernel | None = None


class Head:
    """The head of a builtin, to which tasks are added, and the builtin itself.

    Args:
        dims: what `dim` may be: `ONE`, `OR_ALL`, `OR_SEVERAL` or `OR_NONE`.
        most: elements of the largest array it answers for.
        most_along: elements of the longest line.
        takes: what comes last: `NO_MORE`, `NUMBER` or `ARRAY`.
        most_beside: elements of the largest array that comes last.
    """

    def __init__(self, dims: int, most: int, most_along: int, takes: int, most_beside: int) -> None:
        head = self.head = np.zeros(ENTRIES + MOST_ENTRIES * ENTRY, np.int64)
        head[TABLE] = pyabi.table().ctypes.data
        head[RING] = journal.address()
        head[TRUE], head[FALSE] = id(True), id(False)
        head[DIMS], head[MOST], head[MOST_ALONG], head[TAKES], head[MOST_BESIDE] = dims, most, most_along, takes, most_beside
        self.builtin: Callable[..., Any] = native.new_builtin()(ctypes.addressof(_method()), head, None)
        self._held: list[Any] = []                    # dtypes, whose addresses are in entries

    def add(self, name: str, dtype: np.dtype, task: Task) -> None:
        """Let the builtin answer for arrays of `dtype`, once the kernel is compiled or loaded. Raises: as `Kernel.form`."""
        count = int(self.head[COUNT])
        if count >= MOST_ENTRIES:
            return
        entry = self.head[ENTRIES + count * ENTRY:][:ENTRY]
        types = types_of(dtype, task, self.head[TAKES] == ARRAY)
        address = call.address(task.kernel, types, task.constants)
        beside = address if task.side_by_side is None else call.address(task.side_by_side, types, task.constants)
        (first, mode), *more = task.results
        second, second_mode = more[0] if more else (None, 0)
        entry[:] = id(dtype), id(first), 0 if second is None else id(second), mode, second_mode, address, beside
        self._held += [dtype, first, second]
        journal.name(entry, lambda: f"kernel {name} along dimensions of small arrays of {dtype.name}")
        self.head[COUNT] = count + 1


def types_of(dtype: np.dtype, task: Task, with_array: bool) -> dict[str, Any]:
    """The parameters of a task's kernel after `chunk`; without a second result it gets the first twice."""
    first, last = task.results[0][0].name, task.results[-1][0].name
    rest = {"other": dtype.name, "count": int} if with_array else {"k": int}
    return {"x": dtype.name, "out": first, "second": last, "outer": int, "n": int, "inner": int, **rest}


@functools.cache
def _method() -> Any:
    code = llvm.compile_symbols(_text(), ("flambeau_along",), llvm.PLAIN)
    fastcall_convention = 0x80
    return never_freed(native.MethodDef(b"along", code["flambeau_along"], fastcall_convention, None))


def _text() -> str:
    helpers = [fastcall._none(), fastcall._count(), fastcall._new_array()]
    mark = '!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}\n'
    return "\n".join([*helpers, _SHAPED, _ALONG, mark])


# A new array of `dtype` with the lengths `shape`, but along the dimensions in `mask` as `mode` says.
_SHAPED = f"""
define internal ptr @shaped(ptr %table, ptr %dtype, i64 %mode, i64 %keepdim, i64 %k, i64 %ndim, ptr %shape, i64 %mask) {{
entry:
  %made.shape = alloca i64, i64 {MOST_DIMS}
  %same = icmp eq i64 %mode, {SAME}
  %no.dims = icmp eq i64 %mode, {NONE}
  %of.k = icmp eq i64 %mode, {LENGTH}
  %reduced.length = select i1 %of.k, i64 %k, i64 1
  %kept = icmp ne i64 %keepdim, 0
  %stays = or i1 %of.k, %kept
  %at.once = or i1 %same, %no.dims
  br i1 %at.once, label %as.is, label %head
as.is:
  %its.dims = select i1 %same, i64 %ndim, i64 0
  %ndim.same = trunc i64 %its.dims to i32
  %made.same = call ptr @new_array(ptr %table, ptr %dtype, i32 %ndim.same, ptr %shape)
  ret ptr %made.same
head:
  %i = phi i64 [0, %entry], [%i.next, %step]
  %d = phi i64 [0, %entry], [%d.next, %step]
  %more = icmp slt i64 %i, %ndim
  br i1 %more, label %body, label %done
body:
  %bit = lshr i64 %mask, %i
  %bit1 = and i64 %bit, 1
  %meant = icmp ne i64 %bit1, 0
  %length.at = getelementptr i64, ptr %shape, i64 %i
  %length = load i64, ptr %length.at
  %here = select i1 %meant, i64 %reduced.length, i64 %length
  %to = getelementptr i64, ptr %made.shape, i64 %d
  store i64 %here, ptr %to
  %unmeant = xor i1 %meant, true
  %counts = or i1 %unmeant, %stays
  %one = zext i1 %counts to i64
  %d.next = add i64 %d, %one
  br label %step
step:
  %i.next = add i64 %i, 1
  br label %head, !llvm.loop !0
done:
  %dims = trunc i64 %d to i32
  %made = call ptr @new_array(ptr %table, ptr %dtype, i32 %dims, ptr %made.shape)
  ret ptr %made
}}

; The bit of the dimension that the object `item` names, or 0 if it names none.
define internal i64 @bit_of(ptr %table, ptr %item, i64 %ndim) {{
entry:
  %overflow = alloca i32
{of_table("int")}{of_table("int_value")}
{field("type", "%item", pyabi.TYPE, "ptr")}
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %whole, label %no
whole:
  %value = call i64 %int_value(ptr %item, ptr %overflow)
  %negative = icmp slt i64 %value, 0
  %from.end = add i64 %value, %ndim
  %at = select i1 %negative, i64 %from.end, i64 %value
  %within = icmp ult i64 %at, %ndim
  %beyond = load i32, ptr %overflow
  %exact = icmp eq i32 %beyond, 0
  %inside = and i1 %within, %exact
  br i1 %inside, label %yes, label %no
yes:
  %bit = shl i64 1, %at
  ret i64 %bit
no:
  ret i64 0
}}
"""

_ALONG = f"""
define ptr @flambeau_along(ptr %self, ptr %args, i64 %nargs) {{
entry:
{field("head", "%self", pyabi.DATA, "ptr")}{at("table", "%head", TABLE, "ptr")}{at("count", "%head", COUNT)}
{of_table("ndarray")}{of_table("None")}{of_table("list")}{of_table("tuple")}{of_table("int")}{of_table("int_value")}
  %overflow = alloca i32
  %slots = alloca i64, i64 8
  %s7 = getelementptr i64, ptr %slots, i64 7
  %entries = getelementptr i64, ptr %head, i64 {ENTRIES}
  %less = sub i64 %nargs, 2
  %as.many = icmp ult i64 %less, 3
  br i1 %as.many, label %array, label %refuse
array:
  %a = load ptr, ptr %args
{field("a.type", "%a", pyabi.TYPE, "ptr")}
  %is.array = icmp eq ptr %a.type, %ndarray
  br i1 %is.array, label %laid, label %refuse
laid:
{field("flags", "%a", pyabi.FLAGS, "i32")}{field("dtype", "%a", pyabi.DTYPE, "i64")}{field("dims32", "%a", pyabi.NDIM, "i32")}
{field("shape", "%a", pyabi.SHAPE, "ptr")}
  %wanted = and i32 %flags, {fastcall.C_ORDER}
  %ordered = icmp eq i32 %wanted, {fastcall.C_ORDER}
  %ndim = sext i32 %dims32 to i64
  %few.dims = icmp sle i64 %ndim, {MOST_DIMS}
  %readable = and i1 %ordered, %few.dims
  br i1 %readable, label %try, label %refuse
try:
  %j = phi i64 [0, %laid], [%j.next, %other]
  %any = icmp slt i64 %j, %count
  br i1 %any, label %look, label %refuse
look:
  %j.away = mul i64 %j, {ENTRY}
  %e = getelementptr i64, ptr %entries, i64 %j.away
{at("e.dtype", "%e", DTYPE)}
  %mine = icmp eq i64 %e.dtype, %dtype
  br i1 %mine, label %found, label %other
other:
  %j.next = add i64 %j, 1
  br label %try, !llvm.loop !0
found:
{at("most", "%head", MOST)}{at("most.along", "%head", MOST_ALONG)}{at("dims", "%head", DIMS)}{at("takes", "%head", TAKES)}
  %size = call i64 @count(ptr %a)
  %size1 = sub i64 %size, 1
  %small = icmp ult i64 %size1, %most
  %all1 = shl i64 1, %ndim
  %all = sub i64 %all1, 1
  br i1 %small, label %named, label %refuse

; The dimensions meant, as bits of a mask.
named:
  %dim.at = getelementptr ptr, ptr %args, i64 1
  %dim = load ptr, ptr %dim.at
  %is.none = icmp eq ptr %dim, %None
  br i1 %is.none, label %none, label %some
none:
  %none.fine = icmp sge i64 %dims, {OR_ALL}
  br i1 %none.fine, label %marked, label %refuse
some:
  %single = call i64 @bit_of(ptr %table, ptr %dim, i64 %ndim)
  %is.single = icmp ne i64 %single, 0
  br i1 %is.single, label %marked, label %several
several:
  %several.fine = icmp sge i64 %dims, {OR_SEVERAL}
  br i1 %several.fine, label %kinds, label %refuse
kinds:
{field("dim.type", "%dim", pyabi.TYPE, "ptr")}
  %is.tuple = icmp eq ptr %dim.type, %tuple
  %is.list = icmp eq ptr %dim.type, %list
  %is.either = or i1 %is.tuple, %is.list
  br i1 %is.either, label %items, label %refuse
items:
{field("dim.count", "%dim", pyabi.LENGTH, "i64")}
  %in.tuple = getelementptr i8, ptr %dim, i64 {pyabi.TUPLE_ITEMS}
  br i1 %is.tuple, label %from.tuple, label %from.list
from.list:
{field("in.list", "%dim", pyabi.LIST_ITEMS, "ptr")}
  br label %from.tuple
from.tuple:
  %in = phi ptr [%in.tuple, %items], [%in.list, %from.list]
  %empty = icmp eq i64 %dim.count, 0
  br i1 %empty, label %nothing, label %item
nothing:
  %means.none = icmp sge i64 %dims, {OR_NONE}
  %of.nothing = select i1 %means.none, i64 0, i64 %all
  br label %marked
item:
  %m = phi i64 [0, %from.tuple], [%m.next, %new]
  %so.far = phi i64 [0, %from.tuple], [%together, %new]
  %one.at = getelementptr ptr, ptr %in, i64 %m
  %one = load ptr, ptr %one.at
  %bit = call i64 @bit_of(ptr %table, ptr %one, i64 %ndim)
  %again = and i64 %so.far, %bit
  %fresh = icmp eq i64 %again, 0
  %named.one = icmp ne i64 %bit, 0
  %good = and i1 %fresh, %named.one
  br i1 %good, label %new, label %refuse
new:
  %together = or i64 %so.far, %bit
  %m.next = add i64 %m, 1
  %m.more = icmp slt i64 %m.next, %dim.count
  br i1 %m.more, label %item, label %marked, !llvm.loop !0
marked:
  %mask = phi i64 [%all, %none], [%single, %some], [%of.nothing, %nothing], [%together, %new]
  %with.keepdim = icmp sgt i64 %nargs, 2
  br i1 %with.keepdim, label %keeping, label %options
keeping:
  %keepdim.at = getelementptr ptr, ptr %args, i64 2
  %keepdim.o = load i64, ptr %keepdim.at
{at("true", "%head", TRUE)}{at("false", "%head", FALSE)}
  %is.true = icmp eq i64 %keepdim.o, %true
  %is.false = icmp eq i64 %keepdim.o, %false
  %is.bool = or i1 %is.true, %is.false
  %kept = zext i1 %is.true to i64
  br i1 %is.bool, label %options, label %refuse
options:
  %keepdim = phi i64 [0, %marked], [%kept, %keeping]
  %with.k = icmp eq i64 %nargs, 4
  %wants.more = icmp ne i64 %takes, {NO_MORE}
  %agreed = icmp eq i1 %with.k, %wants.more
  br i1 %agreed, label %k.or.not, label %refuse
k.or.not:
  br i1 %with.k, label %k.look, label %measure
k.look:
  %k.at = getelementptr ptr, ptr %args, i64 3
  %k.o = load ptr, ptr %k.at
{field("k.type", "%k.o", pyabi.TYPE, "ptr")}
  %k.is.array = icmp eq i64 %takes, {ARRAY}
  br i1 %k.is.array, label %k.array, label %k.number
k.array:
  %k.nd = icmp eq ptr %k.type, %ndarray
  br i1 %k.nd, label %k.laid, label %refuse
k.laid:
{field("k.flags", "%k.o", pyabi.FLAGS, "i32")}{field("k.dtype", "%k.o", pyabi.DTYPE, "i64")}{field("k.data", "%k.o", pyabi.DATA, "i64")}
  %k.wanted = and i32 %k.flags, {fastcall.C_ORDER}
  %k.ordered = icmp eq i32 %k.wanted, {fastcall.C_ORDER}
  %k.alike = icmp eq i64 %k.dtype, %dtype
  %k.good = and i1 %k.ordered, %k.alike
  %k.count = call i64 @count(ptr %k.o)
{at("most.beside", "%head", MOST_BESIDE)}
  %k.few = icmp ule i64 %k.count, %most.beside
  %k.usable = and i1 %k.good, %k.few
  store i64 %k.count, ptr %s7
  br i1 %k.usable, label %measure, label %refuse
k.number:
  %k.int = icmp eq ptr %k.type, %int
  br i1 %k.int, label %k.read, label %refuse
k.read:
  %k.value = call i64 %int_value(ptr %k.o, ptr %overflow)
  %k.beyond = load i32, ptr %overflow
  %k.exact = icmp eq i32 %k.beyond, 0
  br i1 %k.exact, label %measure, label %refuse

; (outer, n, inner): kept dimensions before the reduced ones, these, and kept ones behind.
measure:
  %last = phi i64 [1, %k.or.not], [%k.value, %k.read], [%k.data, %k.laid]
  %is.number = icmp ne i64 %takes, {ARRAY}
  %k = select i1 %is.number, i64 %last, i64 1
  br label %head.dims
head.dims:
  %i = phi i64 [0, %measure], [%i.next, %measured]
  %outer = phi i64 [1, %measure], [%outer.next, %measured]
  %n = phi i64 [1, %measure], [%n.next, %measured]
  %inner = phi i64 [1, %measure], [%inner.next, %measured]
  %i.more = icmp slt i64 %i, %ndim
  br i1 %i.more, label %one.dim, label %checked
one.dim:
  %length.at = getelementptr i64, ptr %shape, i64 %i
  %length = load i64, ptr %length.at
  %i.bit = lshr i64 %mask, %i
  %i.bit1 = and i64 %i.bit, 1
  %meant = icmp ne i64 %i.bit1, 0
  %longer = icmp ne i64 %length, 1
  %behind = icmp ne i64 %inner, 1
  %apart = and i1 %meant, %behind
  %split = and i1 %apart, %longer
  br i1 %split, label %refuse, label %measured
measured:
  %none.yet = icmp eq i64 %n, 1
  %unmeant = xor i1 %meant, true
  %goes.outer = and i1 %unmeant, %none.yet
  %begun = xor i1 %none.yet, true
  %goes.inner = and i1 %unmeant, %begun
  %by.outer = select i1 %goes.outer, i64 %length, i64 1
  %by.n = select i1 %meant, i64 %length, i64 1
  %by.inner = select i1 %goes.inner, i64 %length, i64 1
  %outer.next = mul i64 %outer, %by.outer
  %n.next = mul i64 %n, %by.n
  %inner.next = mul i64 %inner, %by.inner
  %i.next = add i64 %i, 1
  br label %head.dims, !llvm.loop !0
checked:
  %short = icmp sle i64 %n, %most.along
  %k1 = sub i64 %k, 1
  %k.fits = icmp ult i64 %k1, %n
  %suits = and i1 %short, %k.fits
  br i1 %suits, label %make, label %refuse

make:
{at("first", "%e", FIRST, "ptr")}{at("second", "%e", SECOND, "ptr")}
{at("apart.kernel", "%e", KERNEL, "ptr")}{at("beside.kernel", "%e", SIDE_BY_SIDE, "ptr")}
  %side.by.side = icmp eq i64 %inner, 1
  %kernel = select i1 %side.by.side, ptr %beside.kernel, ptr %apart.kernel
{at("first.mode", "%e", FIRST_MODE)}{at("second.mode", "%e", SECOND_MODE)}
  %made = call ptr @shaped(ptr %table, ptr %first, i64 %first.mode, i64 %keepdim, i64 %k, i64 %ndim, ptr %shape, i64 %mask)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %two
two:
  %is.one = icmp eq ptr %second, null
  br i1 %is.one, label %run, label %make.second
make.second:
  %made2 = call ptr @shaped(ptr %table, ptr %second, i64 %second.mode, i64 %keepdim, i64 %k, i64 %ndim, ptr %shape, i64 %mask)
  %failed2 = icmp eq ptr %made2, null
  br i1 %failed2, label %undo, label %run
run:
  %other.result = phi ptr [%made, %two], [%made2, %make.second]
{field("a.data", "%a", pyabi.DATA, "ptr")}{field("made.data", "%made", pyabi.DATA, "ptr")}
{field("other.data", "%other.result", pyabi.DATA, "ptr")}
  store ptr %a.data, ptr %slots
  %s1 = getelementptr i64, ptr %slots, i64 1
  store ptr %made.data, ptr %s1
  %s2 = getelementptr i64, ptr %slots, i64 2
  store ptr %other.data, ptr %s2
  %s3 = getelementptr i64, ptr %slots, i64 3
  store i64 %outer, ptr %s3
  %s4 = getelementptr i64, ptr %slots, i64 4
  store i64 %n, ptr %s4
  %s5 = getelementptr i64, ptr %slots, i64 5
  store i64 %inner, ptr %s5
  %s6 = getelementptr i64, ptr %slots, i64 6
  store i64 %last, ptr %s6
{at("jring", "%head", RING, "ptr")}{journal.ir("j", "%e", "1")}
  call void %kernel(i64 0, ptr %slots)
  br i1 %is.one, label %single.result, label %pair
single.result:
  ret ptr %made
pair:
{of_table("new_tuple")}{of_table("set_item")}{of_table("decref")}
  %tuple.made = call ptr %new_tuple(i64 2)
  %no.tuple = icmp eq ptr %tuple.made, null
  br i1 %no.tuple, label %undo.both, label %fill
fill:
  %filled = call i32 %set_item(ptr %tuple.made, i64 0, ptr %made)
  %filled2 = call i32 %set_item(ptr %tuple.made, i64 1, ptr %other.result)
  ret ptr %tuple.made
undo.both:
  call void %decref(ptr %other.result)
  call void %decref(ptr %made)
  ret ptr null
undo:
  %decref.slot = getelementptr ptr, ptr %table, i64 {pyabi.slot("decref")}
  %give.back = load ptr, ptr %decref.slot
  call void %give.back(ptr %made)
  ret ptr null
error:
  ret ptr null
refuse:
  %no = call ptr @none(ptr %table)
  ret ptr %no
}}
"""
