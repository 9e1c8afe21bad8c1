"""A program of launches as one native call: a table of the builtins it calls, walked by native code.

A `LaunchTable` is made while the program runs once: each `call` of a builtin is done on the arrays at hand, and noted with the numbers of
the registers that its operands and its result are in. `finish` makes a builtin of it, which takes other arrays of the same looks and
gives what the program gives. An entry of the table has the address of the builtin's function and of its `self`, the registers of its
arguments, where the result goes, and the registers that end there; so memory is given back, and used again, as soon as its last reader
has run. The builtins check their operands themselves, and each array has memory of its own, which makes a table as safe as its calls.

The table answers None, having changed nothing, for inputs of other looks, and where one of its builtins does. The caller then goes on
without it.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels import engines, hot_calls
from flambeau_kernels.engine.builtins import fastcall, pyabi
from flambeau_kernels.engine.builtins.fastcall import at, of_table
from flambeau_kernels.engine.calls.direct import builtin
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.formula import Formula

# Slots of a table. Offsets, in slots, lead to the looks of inputs, constants, entries and the registers of results.
(TABLE, REGISTERS, INPUTS, CONSTANTS, ENTRIES, RESULTS, CONSTANTS_AT, ENTRIES_AT, RESULTS_AT, VECTORCALL, LOOKS_AT) = range(11)
# Slots of an entry. Behind them come `ARGUMENTS` numbers, and then the registers that end with the entry.
(KIND, TO, FUNCTION, SELF, COUNT, ENDS, ARGUMENTS) = range(7)
# What an entry does: calls a builtin, whose None is a refusal; calls one for its effect on an operand; calls any callable; makes an array,
# a view of one, or takes an item out of a tuple; refuses an array of other looks.
CALL, RUN, CALL_ANY, NEW, VIEW, ITEM, CHECK = range(7)
MOST_ARGUMENTS = 32
_FASTCALL = 0x80
_BEHAVED = pyabi.ALIGNED | pyabi.WRITEABLE
ndarray = np.ndarray


class Unknown(LookupError):
    """An array that comes from nowhere in the table."""


class LaunchTable:
    """What a program has called so far, on the arrays of one run.

    Args:
        inputs: the arrays that other runs give in their place.

    Raises: Unknown where an array is two of the inputs: they need not be one in other runs.

    Attributes:
        native: how many entries call native code, and `others`, by name, those that call Python.
    """

    def __init__(self, inputs: Sequence[ndarray]) -> None:
        self.inputs = list(inputs)
        self._held: list[Any] = list(inputs)          # what registers stand for; numbers of registers go by their identities
        self._numbers = {id(a): k for k, a in enumerate(inputs)}
        if len(self._numbers) < len(inputs):
            raise Unknown("an input that is given twice")
        self._constants: list[Any] = []
        self._entries: list[list[Any]] = []           # kind, result, function, self, arguments: registers or numbers
        self._reads: list[list[int]] = []             # the registers that each entry reads
        self._callables: list[Any] = []
        self._fresh: set[int] = set()                 # of arrays that have memory of their own, by identity
        self.native = 0
        self.others: list[str] = []

    # -- what a program does

    def call(self, fn: Any, *args: Any) -> Any:
        """The result of a builtin, an array or several; None if it refuses, which is not noted.

        Raises: Unknown where an operand is an array that is neither an input nor made by this table.
        """
        where = _place_of(fn)
        given = [self._register(a) for a in args]
        if where is None:
            return None
        made = fn(*args)
        if made is not None:
            self.native += 1
            if made.__class__ is ndarray and made.flags.owndata and id(made) not in self._numbers:
                self._fresh.add(id(made))
            self._note(CALL, made, where, given, given, fn)
        return made

    def formula(self, formula: Formula, *operands: Any) -> Any:
        """The result of a formula of arrays of one floating dtype and numbers; None where no builtin computes it."""
        made = self.call(builtin(formula, "direct"), *operands)
        if made is not None:
            return made
        arrays = [a for a in operands if a.__class__ is ndarray]
        dtype = arrays[0].dtype
        if any(a.dtype is not dtype for a in arrays) or dtype.kind != "f" or not flambeau_kernels.has_one_answer(formula, dtype):
            return None                               # others were specialised by the first call that computed them
        out = np.empty(np.broadcast_shapes(*[a.shape for a in arrays]), dtype)
        flambeau_kernels.specialise(formula, operands, out, dtype)
        return self.call(builtin(formula, "direct"), *operands)

    def run(self, fn: Any, *args: Any) -> bool:
        """Call a builtin that writes to one of its operands, an array that this table made. Returns: whether it is one."""
        where = _place_of(fn)
        given = [self._register(a) for a in args]
        if where is None:
            return False
        fn(*args)
        self.native += 1
        self._note(RUN, None, where, given, given, fn)
        return True

    def call_any(self, fn: Any, title: str, *args: Any) -> Any:
        """The result of any callable without effects, an array or several, which runs as Python.

        Raises: Unknown for another result.
        """
        given = [self._register(a) for a in args]
        made = fn(*args)
        if made.__class__ is not ndarray and made.__class__ is not tuple:
            raise Unknown("a result that is no array")
        self.others.append(title)
        self._note(CALL_ANY, made, (id(fn), 0), given, given, fn)
        self._check(made)
        return made

    def new(self, shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
        """A new array in row-major order."""
        made = np.empty(shape, dtype)
        self._fresh.add(id(made))
        self._note(NEW, made, (id(made.dtype), made.ndim), list(shape), [], made.dtype)
        return made

    def view(self, of: ndarray, made: ndarray) -> ndarray:
        """`made`, a view of the array `of`."""
        if made is of:
            return of
        base = self._register(of)
        begin = made.__array_interface__["data"][0] - of.__array_interface__["data"][0]
        self._note(VIEW, made, (id(made.dtype), made.ndim), [base, begin, *made.shape, *made.strides], [base], made.dtype)
        return made

    def item(self, of: tuple[Any, ...], index: int) -> Any:
        """One of several results."""
        base = self._register(of)
        if of[index].__class__ is not ndarray:
            raise Unknown("a result that is no array")
        self._note(ITEM, of[index], (0, 0), [base, index], [base], None)
        self._check(of[index])
        return of[index]

    def constant(self, value: Any) -> Any:
        """`value`, an array that is the same one in all runs."""
        self._constant(value)
        return value

    def is_fresh(self, value: Any) -> bool:
        """Whether the array is a new one in every run, which builtins may write over when nothing reads it any more."""
        return id(value) in self._fresh

    # -- notes

    def _register(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is not None:
            return number
        if isinstance(value, ndarray):
            raise Unknown("an array that the table does not make")
        return self._constant(value)

    def _constant(self, value: Any) -> int:
        number = self._numbers[id(value)] = len(self._held)
        self._held.append(value)
        self._constants.append((number, value))
        return number

    def _check(self, made: Any) -> None:
        """Have other runs refuse what is laid out otherwise: entries that follow rely on it."""
        if made.__class__ is ndarray:
            number = self._numbers[id(made)]
            words = [number, id(made.dtype), made.ndim, *made.shape, *made.strides]
            self._entries.append([CHECK, -1, (0, 0), words])
            self._reads.append([number])
            self._callables.append(made.dtype)

    def _note(self, kind: int, made: Any, where: tuple[int, int], arguments: list[int], reads: list[int], held: Any) -> None:
        if len(arguments) > MOST_ARGUMENTS and kind in (CALL, RUN, CALL_ANY):
            raise Unknown("more arguments than an entry has room for")
        to = -1
        if kind != RUN:
            to = len(self._held)
            if id(made) not in self._numbers:         # a builtin may give an operand back
                self._numbers[id(made)] = to
            self._held.append(made)
        self._entries.append([kind, to, where, arguments])
        self._reads.append(reads)
        self._callables.append(held)

    # -- the builtin

    def finish(self, results: Sequence[Any]) -> Callable[..., Any]:
        """``f(*inputs)``: a tuple of what `results` are in other runs, or None. This ends the table, which lets go of its arrays."""
        wanted = [self._numbers[id(r)] for r in results]
        # A register may stand for the same object as an earlier one; all that are read afterwards go by the earlier one's number.
        last: dict[int, int] = {}
        for k, (entry, reads) in enumerate(zip(self._entries, self._reads, strict=True)):
            for register in [*reads, *([entry[1]] if entry[1] >= 0 else [])]:
                last[register] = k
        fixed = {number for number, _ in self._constants} | set(range(len(self.inputs)))
        ends: list[list[int]] = [[] for _ in self._entries]
        for register, k in last.items():
            if register not in fixed and register not in wanted:
                ends[k].append(register)
        words: list[int] = [0] * LOOKS_AT
        for a in self.inputs:
            words += [id(a.dtype), a.ndim, *a.shape, *a.strides]
        words[CONSTANTS_AT] = len(words)
        for number, value in self._constants:
            words += [number, id(value)]
        words[ENTRIES_AT] = len(words)
        for (kind, to, (function, owner), arguments), ending in zip(self._entries, ends, strict=True):
            words += [kind, to, function, owner, len(arguments), len(ending), *arguments, *ending]
        words[RESULTS_AT] = len(words)
        words += wanted
        words[TABLE] = pyabi.table().ctypes.data
        words[VECTORCALL] = pyabi.address_of(ctypes.pythonapi.PyObject_Vectorcall)
        words[REGISTERS], words[INPUTS], words[CONSTANTS] = len(self._held), len(self.inputs), len(self._constants)
        words[ENTRIES], words[RESULTS] = len(self._entries), len(wanted)
        held = (np.array(words, np.int64), [value for _, value in self._constants], [*self._callables], [a.dtype for a in self.inputs])
        self.inputs, self._held = [], []
        for noted in (self._numbers, self._fresh, self._constants, self._entries, self._reads, self._callables):
            noted.clear()
        return pyabi.new_builtins({"walk": _code()["walk"]}, _Table(held))["walk"]


class _Table(np.ndarray):
    """The words of a table, which hold what they point to."""

    held: Any

    def __new__(cls, held: tuple[Any, ...]) -> _Table:
        made = held[0].view(cls)
        made.held = held
        return made


def _place_of(fn: Any) -> tuple[int, int] | None:
    """The addresses of a builtin's function and of its `self`; None for what is no such builtin."""
    if fn.__class__ is not BuiltinFunctionType:
        return None
    function, owner, flags = _readers()
    return (function(fn), owner(fn) or 0) if flags(fn) == _FASTCALL else None


@functools.cache
def _readers() -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]]:
    kinds = (("PyCFunction_GetFunction", ctypes.c_void_p), ("PyCFunction_GetSelf", ctypes.c_void_p), ("PyCFunction_GetFlags", ctypes.c_int))
    function, owner, flags = (ctypes.PYFUNCTYPE(kind, ctypes.py_object)(
        pyabi.address_of(getattr(ctypes.pythonapi, name))) for name, kind in kinds)
    return function, owner, flags


def available() -> bool:
    """Whether native code can walk tables here: the llvm engine computes, and it can read this interpreter's objects."""
    return engines.chosen().name == "llvm" and pyabi.problem() is None and llvm.available() is None


def state() -> tuple[Any, int]:
    """What tables depend on beside their inputs: one of another state is not to be run."""
    return engines.chosen(), hot_calls.generation


@functools.cache
def _code() -> dict[str, int]:
    return llvm.compile_symbols(_text(), ("walk",), llvm.PLAIN)


def _text() -> str:
    return "\n".join(["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)", fastcall._none(), fastcall._new_array(), _LOOKS, _DROP, _STEP,
                      _WALK, '!0 = distinct !{!0, !{!"llvm.loop.vectorize.enable", i1 false}, !{!"llvm.loop.unroll.disable"}}', ""])


# Whether an input is as the words at `looks` say: dtype, number of dimensions, shape, strides.
_LOOKS = f"""
define internal i1 @looks(ptr %table, ptr %item, ptr %looks) {{
entry:
{fastcall.field("type", "%item", pyabi.TYPE, "ptr")}{at("ndarray", "%table", pyabi.slot("ndarray"), "ptr")}
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %array, label %no
array:
{at("dtype", "%looks", 0, "ptr")}{at("ndim", "%looks", 1)}
{fastcall.field("its.dtype", "%item", pyabi.DTYPE, "ptr")}{fastcall.field("its.ndim", "%item", pyabi.NDIM, "i32")}
{fastcall.field("shape", "%item", pyabi.SHAPE, "ptr")}{fastcall.field("strides", "%item", pyabi.STRIDES, "ptr")}
  %same.dtype = icmp eq ptr %dtype, %its.dtype
  %its.wide = sext i32 %its.ndim to i64
  %same.ndim = icmp eq i64 %ndim, %its.wide
  %alike = and i1 %same.dtype, %same.ndim
  %lengths = getelementptr i64, ptr %looks, i64 2
  %steps = getelementptr i64, ptr %lengths, i64 %ndim
  br i1 %alike, label %dim, label %no
dim:
  %d = phi i64 [0, %array], [%d.next, %next]
  %more = icmp slt i64 %d, %ndim
  br i1 %more, label %each, label %yes
each:
  %n.at = getelementptr i64, ptr %shape, i64 %d
  %n = load i64, ptr %n.at
  %m.at = getelementptr i64, ptr %lengths, i64 %d
  %m = load i64, ptr %m.at
  %s.at = getelementptr i64, ptr %strides, i64 %d
  %s = load i64, ptr %s.at
  %t.at = getelementptr i64, ptr %steps, i64 %d
  %t = load i64, ptr %t.at
  %same.n = icmp eq i64 %n, %m
  %same.s = icmp eq i64 %s, %t
  %both = and i1 %same.n, %same.s
  br i1 %both, label %next, label %no
next:
  %d.next = add i64 %d, 1
  br label %dim, !llvm.loop !0
yes:
  ret i1 true
no:
  ret i1 false
}}
"""

# Give back the references of the `n` registers whose numbers are at `numbers`, or of the first ones where there are none.
_DROP = f"""
define internal void @drop(ptr %table, ptr %registers, ptr %numbers, i64 %n) {{
entry:
{of_table("decref")}
  %all = icmp eq ptr %numbers, null
  br label %head
head:
  %i = phi i64 [0, %entry], [%i.next, %next]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %each, label %done
each:
  br i1 %all, label %by.place, label %by.number
by.number:
  %number.at = getelementptr i64, ptr %numbers, i64 %i
  %number = load i64, ptr %number.at
  br label %found
by.place:
  br label %found
found:
  %k = phi i64 [%number, %by.number], [%i, %by.place]
  %place = getelementptr ptr, ptr %registers, i64 %k
  %item = load ptr, ptr %place
  %empty = icmp eq ptr %item, null
  br i1 %empty, label %next, label %held
held:
  store ptr null, ptr %place
  call void %decref(ptr %item)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %head, !llvm.loop !0
done:
  ret void
}}
"""

# Do one entry. Returns 0, or 1 where it was refused, or -1 after an error.
_STEP = f"""
define internal i64 @step(ptr %plan, ptr %table, ptr %registers, ptr %entry.at, ptr %given) {{
entry:
{at("kind", "%entry.at", KIND)}{at("to", "%entry.at", TO)}{at("function", "%entry.at", FUNCTION, "ptr")}
{at("owner", "%entry.at", SELF, "ptr")}{at("count", "%entry.at", COUNT)}{at("none", "%table", pyabi.slot("None"), "ptr")}
  %arguments = getelementptr i64, ptr %entry.at, i64 {ARGUMENTS}
  %place = getelementptr ptr, ptr %registers, i64 %to
  switch i64 %kind, label %collect [i64 {NEW}, label %new
                                    i64 {VIEW}, label %view
                                    i64 {ITEM}, label %item
                                    i64 {CHECK}, label %check]
check:
  %checked.number = load i64, ptr %arguments
  %checked.at = getelementptr ptr, ptr %registers, i64 %checked.number
  %checked = load ptr, ptr %checked.at
  %as.planned.at = getelementptr i64, ptr %arguments, i64 1
  %as.planned = call i1 @looks(ptr %table, ptr %checked, ptr %as.planned.at)
  br i1 %as.planned, label %checked.well, label %refuse
checked.well:
  ret i64 0
collect:
  br label %argument
argument:
  %k = phi i64 [0, %collect], [%k.next, %take]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %take, label %ready
take:
  %from.at = getelementptr i64, ptr %arguments, i64 %k
  %from = load i64, ptr %from.at
  %value.at = getelementptr ptr, ptr %registers, i64 %from
  %value = load ptr, ptr %value.at
  %given.at = getelementptr ptr, ptr %given, i64 %k
  store ptr %value, ptr %given.at
  %k.next = add i64 %k, 1
  br label %argument, !llvm.loop !0
ready:
  %any = icmp eq i64 %kind, {CALL_ANY}
  br i1 %any, label %call.any, label %call.one
call.one:
  %made.one = call ptr %function(ptr %owner, ptr %given, i64 %count)
  br label %called
call.any:
{at("vectorcall", "%plan", VECTORCALL, "ptr")}
  %made.any = call ptr %vectorcall(ptr %function, ptr %given, i64 %count, ptr null)
  br label %called
called:
  %made = phi ptr [%made.one, %call.one], [%made.any, %call.any]
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %look
look:
  %nothing = icmp eq ptr %made, %none
  %for.effect = icmp eq i64 %kind, {RUN}
  %not.held = or i1 %nothing, %for.effect
  br i1 %not.held, label %forget, label %hold
forget:
{of_table("decref")}
  call void %decref(ptr %made)
  %for.result = xor i1 %for.effect, true
  %refused = and i1 %nothing, %for.result
  %status = zext i1 %refused to i64
  ret i64 %status
hold:
  %held = phi ptr [%made, %look], [%fresh, %new], [%seen, %viewed], [%part, %item.held]
  store ptr %held, ptr %place
  ret i64 0
new:
  %new.dims = trunc i64 %count to i32
  %fresh = call ptr @new_array(ptr %table, ptr %function, i32 %new.dims, ptr %arguments)
  %no.fresh = icmp eq ptr %fresh, null
  br i1 %no.fresh, label %error, label %hold
view:
{at("base.number", "%arguments", 0)}{at("begin", "%arguments", 1)}
  %base.at = getelementptr ptr, ptr %registers, i64 %base.number
  %base = load ptr, ptr %base.at
{fastcall.field("data", "%base", pyabi.DATA, "ptr")}
  %first = getelementptr i8, ptr %data, i64 %begin
  %dims = ptrtoint ptr %owner to i64
  %dims.32 = trunc i64 %dims to i32
  %shape = getelementptr i64, ptr %arguments, i64 2
  %strides = getelementptr i64, ptr %shape, i64 %dims
{at("incref", "%table", pyabi.slot("incref"), "ptr")}{at("new.array", "%table", pyabi.slot("new_array"), "ptr")}
{at("ndarray", "%table", pyabi.slot("ndarray"), "ptr")}{at("set.base", "%table", pyabi.slot("set_base"), "ptr")}
  call void %incref(ptr %function)
  %seen = call ptr %new.array(ptr %ndarray, ptr %function, i32 %dims.32, ptr %shape, ptr %strides, ptr %first, i32 {_BEHAVED}, ptr null)
  %no.view = icmp eq ptr %seen, null
  br i1 %no.view, label %error, label %based
based:
  call void %incref(ptr %base)
  %unset = call i32 %set.base(ptr %seen, ptr %base)
  %was.unset = icmp ne i32 %unset, 0
  br i1 %was.unset, label %unbased, label %viewed
unbased:
{at("decref.view", "%table", pyabi.slot("decref"), "ptr")}
  call void %decref.view(ptr %seen)
  br label %error
viewed:
  br label %hold
item:
{at("of.number", "%arguments", 0)}{at("index", "%arguments", 1)}
  %of.at = getelementptr ptr, ptr %registers, i64 %of.number
  %of = load ptr, ptr %of.at
{at("tuple", "%table", pyabi.slot("tuple"), "ptr")}{fastcall.field("of.type", "%of", pyabi.TYPE, "ptr")}
  %is.tuple = icmp eq ptr %of.type, %tuple
  br i1 %is.tuple, label %long, label %refuse
long:
{fastcall.field("length", "%of", pyabi.LENGTH, "i64")}
  %has = icmp slt i64 %index, %length
  br i1 %has, label %taken, label %refuse
taken:
  %items = getelementptr i8, ptr %of, i64 {pyabi.TUPLE_ITEMS}
  %part.at = getelementptr ptr, ptr %items, i64 %index
  %part = load ptr, ptr %part.at
  %no.part = icmp eq ptr %part, %none
  br i1 %no.part, label %refuse, label %item.held
item.held:
{at("incref.item", "%table", pyabi.slot("incref"), "ptr")}
  call void %incref.item(ptr %part)
  br label %hold
refuse:
  ret i64 1
error:
  ret i64 -1
}}
"""

_WALK = f"""
define ptr @walk(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %plan.at = getelementptr i8, ptr %self, i64 {pyabi.DATA}
  %plan = load ptr, ptr %plan.at
{at("table", "%plan", TABLE, "ptr")}{at("count", "%plan", REGISTERS)}{at("inputs", "%plan", INPUTS)}{at("constants", "%plan", CONSTANTS)}
{at("entries", "%plan", ENTRIES)}{at("results", "%plan", RESULTS)}
{at("constants.from", "%plan", CONSTANTS_AT)}{at("entries.from", "%plan", ENTRIES_AT)}{at("results.from", "%plan", RESULTS_AT)}
  %registers = alloca ptr, i64 %count
  %given = alloca ptr, i64 {MOST_ARGUMENTS}
  %fits = icmp eq i64 %nargs, %inputs
  br i1 %fits, label %begin, label %refuse
begin:
  %bytes = mul i64 %count, 8
  call void @llvm.memset.p0.i64(ptr %registers, i8 0, i64 %bytes, i1 false)
  %looks.first = getelementptr i64, ptr %plan, i64 {LOOKS_AT}
{at("incref", "%table", pyabi.slot("incref"), "ptr")}
  br label %input
input:
  %i = phi i64 [0, %begin], [%i.next, %alike]
  %looks = phi ptr [%looks.first, %begin], [%looks.next, %alike]
  %i.more = icmp slt i64 %i, %inputs
  br i1 %i.more, label %compare, label %known
compare:
  %in.at = getelementptr ptr, ptr %args, i64 %i
  %in = load ptr, ptr %in.at
  %as.planned = call i1 @looks(ptr %table, ptr %in, ptr %looks)
  br i1 %as.planned, label %alike, label %drop.all
alike:
  %in.to = getelementptr ptr, ptr %registers, i64 %i
  call void %incref(ptr %in)
  store ptr %in, ptr %in.to
{at("ndim", "%looks", 1)}
  %two = mul i64 %ndim, 2
  %words = add i64 %two, 2
  %looks.next = getelementptr i64, ptr %looks, i64 %words
  %i.next = add i64 %i, 1
  br label %input, !llvm.loop !0
known:
  %pairs = getelementptr i64, ptr %plan, i64 %constants.from
  br label %constant
constant:
  %c = phi i64 [0, %known], [%c.next, %constant.held]
  %c.more = icmp slt i64 %c, %constants
  br i1 %c.more, label %constant.held, label %start
constant.held:
  %c2 = mul i64 %c, 2
  %pair = getelementptr i64, ptr %pairs, i64 %c2
  %c.number = load i64, ptr %pair
  %c.value.at = getelementptr i64, ptr %pair, i64 1
  %c.value = load ptr, ptr %c.value.at
  call void %incref(ptr %c.value)
  %c.to = getelementptr ptr, ptr %registers, i64 %c.number
  store ptr %c.value, ptr %c.to
  %c.next = add i64 %c, 1
  br label %constant, !llvm.loop !0
start:
  %first = getelementptr i64, ptr %plan, i64 %entries.from
  br label %entry.head
entry.head:
  %e = phi i64 [0, %start], [%e.next, %dropped]
  %at = phi ptr [%first, %start], [%at.next, %dropped]
  %e.more = icmp slt i64 %e, %entries
  br i1 %e.more, label %do.it, label %finish
do.it:
  %status = call i64 @step(ptr %plan, ptr %table, ptr %registers, ptr %at, ptr %given)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %dropped, label %drop.all
dropped:
{at("arguments", "%at", COUNT)}{at("ends", "%at", ENDS)}
  %behind = add i64 %arguments, {ARGUMENTS}
  %ending = getelementptr i64, ptr %at, i64 %behind
  call void @drop(ptr %table, ptr %registers, ptr %ending, i64 %ends)
  %at.next = getelementptr i64, ptr %ending, i64 %ends
  %e.next = add i64 %e, 1
  br label %entry.head, !llvm.loop !0
finish:
{at("new.tuple", "%table", pyabi.slot("new_tuple"), "ptr")}
  %all = call ptr %new.tuple(i64 %results)
  %no.all = icmp eq ptr %all, null
  %numbers = getelementptr i64, ptr %plan, i64 %results.from
  br i1 %no.all, label %drop.all, label %result
result:
  %r = phi i64 [0, %finish], [%r.next, %given.back]
  %r.more = icmp slt i64 %r, %results
  br i1 %r.more, label %given.back, label %drop.all
given.back:
  %number.at = getelementptr i64, ptr %numbers, i64 %r
  %number = load i64, ptr %number.at
  %value.at = getelementptr ptr, ptr %registers, i64 %number
  %value = load ptr, ptr %value.at
  call void %incref(ptr %value)
  %item.bytes = mul i64 %r, 8
  %item.place = add i64 %item.bytes, {pyabi.TUPLE_ITEMS}
  %item.at = getelementptr i8, ptr %all, i64 %item.place
  store ptr %value, ptr %item.at
  %r.next = add i64 %r, 1
  br label %result, !llvm.loop !0
drop.all:
  %answer = phi ptr [null, %compare], [null, %do.it], [null, %finish], [%all, %result]
  %ended = phi i64 [1, %compare], [%status, %do.it], [-1, %finish], [0, %result]
  call void @drop(ptr %table, ptr %registers, ptr null, i64 %count)
  %was.refused = icmp eq i64 %ended, 1
  br i1 %was.refused, label %refuse, label %answered
answered:
  ret ptr %answer
refuse:
  %nothing = call ptr @none(ptr %table)
  ret ptr %nothing
}}
"""
