"""Builtins of arrays, called with the objects of the framework that hold them: what `hot_calls.of_class` says of their class.

`entering` makes a builtin around another one. It takes objects of that class, and of the one that stands in for it, brings them
down to their arrays, calls the builtin of arrays and holds its result, or each of several, in a new object. Objects of other
subclasses are refused, for these may want a say in what is computed. An object that keeps its array elsewhere has an empty
slot, and is refused too. The slot `node` of the new object is None, or True where an operand has a
node: the caller then records what was called.

`entering_in_place` makes one that stores in its first object, and makes no new one. It refuses what is to be recorded, operands with
a node and views of an object with one, and memory that is marked by the class of the first item of its record. The caller notes that
the memory was written.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import fastcall, pyabi
from flambeau_kernels.engine.builtins.fastcall import at, field
from flambeau_kernels.engine.launching import native
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime.never_freed import never_freed

# What the code around needs, in this order: offsets of slots, then objects and functions. `USABLE` is 0 where the framework
# makes objects itself, because it marks them.
_NAMES = ("array", "record", "node", "link", "grad", "class", "zero", "True", "new_object", "new_list", "is_subclass")
(ARRAY, RECORD, NODE, LINK, GRAD, CLASS, ZERO, TRUE, NEW_OBJECT, NEW_LIST, IS_SUBCLASS, STAND_IN, USABLE) = range(13)


@functools.cache
def _table() -> np.ndarray:
    hot_calls.objects_changed.append(adopt)
    return never_freed(np.zeros(USABLE + 1, np.uint64))


_adopted: tuple[Any, Any] = None, None                # what the table is of


def address() -> int:
    """Where the table is; it says that nothing is usable until the framework has named its class."""
    adopt()
    return _table().ctypes.data


def adopt() -> None:
    """Take over what `small` knows of the framework's objects now."""
    global _adopted
    table = _table()
    known = hot_calls.objects
    if known is None or hot_calls.marks_objects():
        table[USABLE] = 0
        return
    if _adopted != (known, hot_calls.stand_in):           # and not only the marking, which every region of inference mode switches
        of = dict(zip((*pyabi.SLOTS, *pyabi.OBJECT_SLOTS), pyabi.object_table(known), strict=True))
        table[: len(_NAMES)] = [of[name] for name in _NAMES]
        table[STAND_IN] = id(hot_calls.stand_in or known.cls)
        _adopted = known, hot_calls.stand_in
    table[USABLE] = 1


# The self of an entering builtin: this module's table, the builtin of arrays as a C function with its self, `pyabi.table`, and what
# it need not look at.
OBJECTS, INNER, INNER_SELF, TABLE, FREE = range(5)
MOST_ARGUMENTS = 4


def entering(builtin: Callable[..., Any]) -> Callable[..., Any]:
    """The builtin that takes objects where `builtin`, one of ours, takes arrays."""
    return _entering(builtin, False, RECORDED)


RECORDED, UNRECORDED, UNTRACKED = range(3)            # looks at nodes and marks; at marks alone; at neither


def entering_in_place(builtin: Callable[..., Any], free: int) -> Callable[..., Any]:
    """The same where `builtin` stores in its first operand; `free` is one of the three above."""
    return _entering(builtin, True, free)


def _entering(builtin: Callable[..., Any], in_place: bool, free: int) -> Callable[..., Any]:
    head = np.zeros(FREE + 1, np.int64).view(_Head)
    head[FREE] = free
    # CPython's PyCFunctionObject: after the two words of every object the address of its method definition, then its self.
    definition = native.MethodDef.from_address(ctypes.c_void_p.from_address(id(builtin) + 16).value or 0)
    inner_self = builtin.__self__  # type: ignore[attr-defined]  # builtins have it
    head[OBJECTS], head[INNER], head[INNER_SELF], head[TABLE] = (
        address(), definition.function, id(inner_self), pyabi.table().ctypes.data)
    made = native.new_builtin()(ctypes.addressof(_method(in_place)), head, None)
    head.inner = builtin
    return made


class _Head(np.ndarray):
    """The self of an entering builtin, which keeps the builtin of arrays for as long."""

    inner: Any = None


@functools.cache
def _method(in_place: bool) -> Any:
    name = "enter_" if in_place else "enter"
    code = llvm.compile_ir(text(in_place), f"flambeau_{name}", llvm.PLAIN)
    return never_freed(native.MethodDef(name.encode(), code, 0x80, None))


def text(in_place: bool) -> str:
    mark = '!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}\n'
    enter = _enter("flambeau_enter_" if in_place else "flambeau_enter", MOST_ARGUMENTS, in_place)
    return "\n".join([fastcall._none(), _DROP, *(() if in_place else (_wrap(),)), enter, mark])


# Gives back the references to the first `n` items at `items`.
_DROP = """
define internal void @drop(ptr %items, i64 %n, ptr %decref) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %at
  call void %decref(ptr %item)
  %next = add i64 %i, 1
  br label %head, !llvm.loop !0
done:
  ret void
}
"""


def _wrap() -> str:
    """The function that holds the array `made`, whose reference it takes over, in a new object; null where that fails."""
    return f"""
define internal ptr @wrap(ptr %objects, ptr %made, i1 %recorded, ptr %none, ptr %incref, ptr %decref) {{
entry:
{at("newlist", "%objects", NEW_LIST, "ptr")}{at("newobject", "%objects", NEW_OBJECT, "ptr")}{at("zero", "%objects", ZERO, "ptr")}
{at("class", "%objects", CLASS, "ptr")}{at("array.offset", "%objects", ARRAY)}{at("node.offset", "%objects", NODE)}
  %record = call ptr %newlist(i64 4)
  %no.record = icmp eq ptr %record, null
  br i1 %no.record, label %lost, label %fill
fill:
{field("items", "%record", pyabi.LIST_ITEMS, "ptr")}
{"".join(_store(f"record{k}", f"getelementptr ptr, ptr %items, i64 {k}", value) for k, value in enumerate(_NEW_RECORD))}
  %object.made = call ptr %newobject(ptr %class, i64 0)
  %no.object = icmp eq ptr %object.made, null
  br i1 %no.object, label %lost.record, label %slots
slots:
{at("record.offset", "%objects", RECORD)}{at("link.offset", "%objects", LINK)}{at("grad.offset", "%objects", GRAD)}
{at("true", "%objects", TRUE, "ptr")}
  %mark = select i1 %recorded, ptr %true, ptr %none
  %array.to = getelementptr i8, ptr %object.made, i64 %array.offset
  store ptr %made, ptr %array.to
  %record.to = getelementptr i8, ptr %object.made, i64 %record.offset
  store ptr %record, ptr %record.to
{_store("node", "getelementptr i8, ptr %object.made, i64 %node.offset", "%mark")}
{_store("link", "getelementptr i8, ptr %object.made, i64 %link.offset", "%none")}
{_store("grad", "getelementptr i8, ptr %object.made, i64 %grad.offset", "%none")}
  ret ptr %object.made
lost.record:
  call void %decref(ptr %record)
  br label %lost
lost:
  call void %decref(ptr %made)
  ret ptr null
}}
"""


_BARRED = "  %barred = and i1 %noded, %looks\n  %unfit = or i1 %empty, %barred"

# In place: the first operand is an object whose memory nobody else's history is about.
_TARGET = f"""
  %some = icmp sgt i64 %nargs, 0
  br i1 %some, label %target, label %refuse
target:
  %first = load ptr, ptr %given
{field("first.type", "%first", pyabi.TYPE, "ptr")}
  %first.class = icmp eq ptr %first.type, %class
  %first.standin = icmp eq ptr %first.type, %standin
  %first.object = or i1 %first.class, %first.standin
  br i1 %first.object, label %record, label %refuse
record:
{at("record.offset", "%objects", RECORD)}{at("int", "%table", pyabi.slot("int"), "ptr")}
  %record.at = getelementptr i8, ptr %first, i64 %record.offset
  %record.of = load ptr, ptr %record.at
  %no.record = icmp eq ptr %record.of, null
  br i1 %no.record, label %refuse, label %count
count:
{field("record.items", "%record.of", pyabi.LIST_ITEMS, "ptr")}
  %writes = load ptr, ptr %record.items
{field("writes.type", "%writes", pyabi.TYPE, "ptr")}
  %unmarked = icmp eq ptr %writes.type, %int
{at("free", "%head", FREE)}
  %untracked = icmp eq i64 %free, {UNTRACKED}
  %may.write = or i1 %unmarked, %untracked
  br i1 %may.write, label %nodes, label %refuse
nodes:
  %looks = icmp eq i64 %free, 0
  br i1 %looks, label %link, label %operand
link:
{at("link.offset", "%objects", LINK)}
  %link.at = getelementptr i8, ptr %first, i64 %link.offset
  %linked = load ptr, ptr %link.at
  %no.link = icmp eq ptr %linked, %none
  br i1 %no.link, label %operand, label %view
view:
  %link.empty = icmp eq ptr %linked, null
  br i1 %link.empty, label %refuse, label %base
base:
{at("link.tuple", "%table", pyabi.slot("tuple"), "ptr")}
{field("link.type", "%linked", pyabi.TYPE, "ptr")}
  %is.tuple = icmp eq ptr %link.type, %link.tuple
  br i1 %is.tuple, label %of, label %refuse
of:
{field("of.whom", "%linked", pyabi.TUPLE_ITEMS, "ptr")}
{field("of.type", "%of.whom", pyabi.TYPE, "ptr")}
  %of.class = icmp eq ptr %of.type, %class
  br i1 %of.class, label %history, label %refuse
history:
  %of.node.at = getelementptr i8, ptr %of.whom, i64 %node.offset
  %of.node = load ptr, ptr %of.node.at
  %of.bare = icmp eq ptr %of.node, %none
  br i1 %of.bare, label %operand, label %refuse
"""


def _enter(name: str, most: int, in_place: bool = False) -> str:
    before = ("nodes", "link", "history") if in_place else ("known",)  # the blocks that lead to that of operands
    return f"""
define ptr @{name}(ptr %self, ptr %given, i64 %nargs) {{
entry:
{field("head", "%self", pyabi.DATA, "ptr")}{at("table", "%head", TABLE, "ptr")}{at("objects", "%head", OBJECTS, "ptr")}
  %held = alloca ptr, i64 {most}
{at("usable", "%objects", USABLE)}
  %on = icmp ne i64 %usable, 0
  %few = icmp sle i64 %nargs, {most}
  %fits = {"or i1 false, %few" if in_place else "and i1 %on, %few"}      ; no new object is made in place
  br i1 %fits, label %known, label %refuse
known:
{at("class", "%objects", CLASS, "ptr")}{at("standin", "%objects", STAND_IN, "ptr")}
{at("array.offset", "%objects", ARRAY)}{at("node.offset", "%objects", NODE)}
{at("ndarray", "%table", pyabi.slot("ndarray"), "ptr")}{at("none", "%table", pyabi.slot("None"), "ptr")}
{at("incref", "%table", pyabi.slot("incref"), "ptr")}{at("decref", "%table", pyabi.slot("decref"), "ptr")}
{_TARGET if in_place else "  br label %operand"}
operand:
  %k = phi i64 {", ".join(f"[0, %{b}]" for b in before)}, [%knext, %taken]
  %recorded = phi i1 {", ".join(f"[false, %{b}]" for b in before)}, [%recorded.too, %taken]
  %more = icmp slt i64 %k, %nargs
  br i1 %more, label %look, label %ready
look:
  %item.at = getelementptr ptr, ptr %given, i64 %k
  %item = load ptr, ptr %item.at
  %slot = getelementptr ptr, ptr %held, i64 %k
{field("type", "%item", pyabi.TYPE, "ptr")}
  %is.class = icmp eq ptr %type, %class
  %is.standin = icmp eq ptr %type, %standin
  %is.object = or i1 %is.class, %is.standin
  br i1 %is.object, label %object, label %other
other:
  %is.array = icmp eq ptr %type, %ndarray                ; which the framework has its own words for
  br i1 %is.array, label %back, label %below
below:
{at("issubclass", "%objects", IS_SUBCLASS, "ptr")}
  %subclass = call i32 %issubclass(ptr %type, ptr %class)
  %is.below = icmp ne i32 %subclass, 0
  br i1 %is.below, label %back, label %hold
object:
  %array.at = getelementptr i8, ptr %item, i64 %array.offset
  %array = load ptr, ptr %array.at
  %node.at = getelementptr i8, ptr %item, i64 %node.offset
  %node = load ptr, ptr %node.at
  %no.node = icmp eq ptr %node, %none
  %empty.node = icmp eq ptr %node, null
  %bare = or i1 %no.node, %empty.node
  %noded = xor i1 %bare, true
  %empty = icmp eq ptr %array, null
{_BARRED if in_place else ""}
  br i1 {"%unfit" if in_place else "%empty"}, label %back, label %hold
hold:
  %held.item = phi ptr [%array, %object], [%item, %below]
  %noded.item = phi i1 [%noded, %object], [false, %below]
  %recorded.too = or i1 %recorded, %noded.item
  ; Another thread may give the object another array while the loop runs.
  call void %incref(ptr %held.item)
  store ptr %held.item, ptr %slot
  br label %taken
taken:
  %knext = add i64 %k, 1
  br label %operand, !llvm.loop !0
back:
  call void @drop(ptr %held, i64 %k, ptr %decref)
  br label %refuse
ready:
{at("inner", "%head", INNER, "ptr")}{at("inner.self", "%head", INNER_SELF, "ptr")}
  %made = call ptr %inner(ptr %inner.self, ptr %held, i64 %nargs)
  call void @drop(ptr %held, i64 %nargs, ptr %decref)
{"  ret ptr %made" if in_place else _hold()}
refuse:
  %nothing = call ptr @none(ptr %table)
  ret ptr %nothing
}}
"""


_NEW_RECORD = ("%zero", "%zero", "%none", "%none")    # of storage: how often it was written, when, its bytes, its views


def _hold() -> str:
    """Lines that return the result `made` in a new object, several in a tuple of them, and what is no result as it is."""
    return f"""
  %failed = icmp eq ptr %made, null
  %refused = icmp eq ptr %made, %none
  %as.is = or i1 %failed, %refused
  br i1 %as.is, label %pass, label %wrap
pass:
  ret ptr %made
wrap:
{at("tuple", "%table", pyabi.slot("tuple"), "ptr")}
{field("made.type", "%made", pyabi.TYPE, "ptr")}
  %several = icmp eq ptr %made.type, %tuple
  br i1 %several, label %each, label %single
single:
  %object.one = call ptr @wrap(ptr %objects, ptr %made, i1 %recorded, ptr %none, ptr %incref, ptr %decref)
  ret ptr %object.one
each:
{field("results", "%made", pyabi.LENGTH, "i64")}
{at("newtuple", "%table", pyabi.slot("new_tuple"), "ptr")}
  %all = call ptr %newtuple(i64 %results)
  %no.all = icmp eq ptr %all, null
  br i1 %no.all, label %lost, label %result
result:
  %i = phi i64 [0, %each], [%inext, %stored]
  %i.more = icmp slt i64 %i, %results
  br i1 %i.more, label %one, label %whole
one:
  %i.bytes = mul i64 %i, 8
  %i.place = add i64 %i.bytes, {pyabi.TUPLE_ITEMS}
  %from.at = getelementptr i8, ptr %made, i64 %i.place
  %from = load ptr, ptr %from.at
  call void %incref(ptr %from)
  %object.i = call ptr @wrap(ptr %objects, ptr %from, i1 %recorded, ptr %none, ptr %incref, ptr %decref)
  %no.object.i = icmp eq ptr %object.i, null
  br i1 %no.object.i, label %lost.all, label %stored
stored:
  %to.at = getelementptr i8, ptr %all, i64 %i.place
  store ptr %object.i, ptr %to.at
  %inext = add i64 %i, 1
  br label %result, !llvm.loop !0
whole:
  call void %decref(ptr %made)
  ret ptr %all
lost.all:
  call void %decref(ptr %all)
  br label %lost
lost:
  call void %decref(ptr %made)
  ret ptr null"""


def _store(name: str, place: str, value: str) -> str:
    """Lines that store a new reference to `value` at `place`."""
    return f"  %{name}.place = {place}\n  call void %incref(ptr {value})\n  store ptr {value}, ptr %{name}.place\n"
