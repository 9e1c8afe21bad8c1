"""A caching allocator for the large arrays of numpy, with exact figures of what is in use.

A step of a network allocates and frees the same large arrays over and over, and memory fresh from the system
costs a page fault every 4 kB: more than most elementwise operations on it. Blocks of 64 kB and more are
therefore kept when they are freed, in lists by size class (eight classes per power of two, so at most an eighth
of a block is lost), up to a limit and to the most that was ever in use. They lie in huge pages where the system offers them.
Smaller ones go to numpy's own allocator, which has a cache of its own.

numpy lets a thread choose its allocator (NEP 49, "Data allocation strategies in NumPy", 2021): four native
functions in a capsule. An array remembers the one that made it, so arrays may be freed anywhere, by any thread.
They are called with the GIL held, which is all the locking there is; without a GIL the allocator is off.
"""
from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from typing import Any

from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.builtins.pyabi import address_of
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import guard
from flambeau_kernels.engine.runtime.never_freed import never_freed

# Slots of the record, eight bytes each.
(ALLOCATED, PEAK, RESERVED, PEAK_RESERVED, CACHED, LIMIT, MADE, REUSED, FREED,
 CONTEXT, MALLOC, CALLOC, REALLOC, FREE, ADVISED) = range(15)
BINS = 16                                             # the first of the lists
LARGE_BITS = 16
LARGE = 1 << LARGE_BITS                               # bytes from which a block is ours
SPARE = 64 << 20                                      # may be kept however little was ever in use
CLASSES = (48 - LARGE_BITS) * 8
MOST = 1 << 47                                        # bytes of an array at most, as of user space
# From here on blocks ask for huge pages: a thousandth of the page faults.
HUGE_FROM = 4 << 20
# Still larger ones begin at a multiple of such a page; below, the space this may cost would blur the size classes.
HUGE, ALIGNED_FROM = 2 << 20, 32 << 20
# Smaller ones share such pages, which spare most searches for where a row of a matrix lies: once a process has taken this many bytes of new
# blocks, it asks for huge pages where the next ones will be, for so many bytes (`SHARED`) at a time.
SHARED_AFTER = 4 << 20
# That is a block which is advised and freed again. A larger one goes before it: freeing a block that it has mapped on its own lets the C
# library take all up to that size from its heap (M_MMAP_THRESHOLD in the manual of mallopt, 32 MB at most), where blocks lie side by side.
MAPPED, SHARED = 31 << 20, 30 << 20

_SET_HANDLER, _GET_HANDLER = 304, 305                 # in numpy's table of C functions
_NAME = b"mem_handler"                                # what numpy calls such capsules

_FUNCTIONS = ("malloc", "calloc", "realloc", "free")

_thread = threading.local()


class _Handler(ctypes.Structure):
    """numpy's PyDataMem_Handler."""

    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
                ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
                ("free", ctypes.c_void_p)]


def adopt_thread() -> None:
    """Let this thread's new arrays come from the allocator, if there is one; cheap from the second time on."""
    if getattr(_thread, "done", False):
        return
    _thread.done = True
    made = _guarding() if guard.wanted() else _capsule()
    if made is not None:
        _numpy_function(_SET_HANDLER, ctypes.py_object, ctypes.py_object)(made)


def record() -> Any:
    """The allocator's slots as a ctypes array, or None where it is off."""
    return _record() if _capsule() is not None else None


def why_off() -> str | None:
    """None while the allocator is in use, else the reason."""
    if guard.wanted():
        return "FLAMBEAU_GUARD_MEMORY puts another one in its place"
    if limit_from_environment() <= 0:
        return "FLAMBEAU_KEEP_MEMORY is 0"
    return why_none()


def why_none() -> str | None:
    """None where arrays can be given an allocator at all, else the reason there is none."""
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return "it is written for Linux and CPython"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this interpreter has no GIL"
    return llvm.available()


def limit_from_environment() -> int:
    """Bytes of freed memory to keep at most: FLAMBEAU_KEEP_MEMORY, or 512 MB."""
    text = os.environ.get("FLAMBEAU_KEEP_MEMORY", "").strip()
    if not text:
        return 512 << 20
    if not text.isdigit():
        raise ValueError(f"FLAMBEAU_KEEP_MEMORY: expected a number of bytes, got {text!r}")
    return int(text)


def trim() -> None:
    """Give every kept block back to the system."""
    if record() is not None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_code()["trim"])(ctypes.addressof(_record()))
        # The C library keeps what is freed in the middle of its heap, unless it is one that cannot be asked for it.
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if give_back is not None:
            give_back(0)


def block_size(size: int) -> int:
    """Bytes that an array of `size` bytes occupies: its size class, if it is large."""
    if size < LARGE:
        return size
    shift = size.bit_length() - 4
    return -(-size >> shift) << shift


@functools.cache
def _record() -> Any:
    slots = never_freed((ctypes.c_int64 * (BINS + CLASSES))())
    slots[LIMIT], slots[ADVISED] = limit_from_environment(), SHARED_AFTER
    usual = _usual_handler()
    slots[CONTEXT], slots[MALLOC], slots[CALLOC] = usual.context or 0, usual.malloc, usual.calloc
    slots[REALLOC], slots[FREE] = usual.realloc, usual.free
    return slots


@functools.cache
def _capsule() -> Any:
    """The capsule for numpy, made on first use; None where the allocator is off."""
    if why_off() is not None or _usual_handler() is None:
        return None
    return _made(_handler(), b"flambeau", ctypes.addressof(_record()), _code())


@functools.cache
def _guarding() -> Any:
    """The capsule of `guard`'s allocator, in the same way."""
    if why_none() is not None or _usual_handler() is None:
        return None
    symbols = tuple(f"flambeau_guarded_{n}" for n in _FUNCTIONS)
    code = llvm.compile_symbols(guard.TEXT, symbols)
    return _made(never_freed(_Handler()), b"flambeau_guard", None, {n: code[s] for n, s in zip(_FUNCTIONS, symbols, strict=True)})


def _made(handler: _Handler, name: bytes, context: int | None, code: dict[str, int]) -> Any:
    handler.name, handler.version, handler.context = name, 1, context
    for function in _FUNCTIONS:
        setattr(handler, function, code[function])
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address_of(ctypes.pythonapi.PyCapsule_New))(ctypes.addressof(handler), _NAME, None)


@functools.cache
def _handler() -> _Handler:
    return never_freed(_Handler())                        # numpy keeps its address


@functools.cache
def _usual_handler() -> Any:
    """numpy's own handler, or None if its interface is not the one known here."""
    try:
        capsule = _numpy_function(_GET_HANDLER, ctypes.py_object)()
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            address_of(ctypes.pythonapi.PyCapsule_GetPointer))(capsule, _NAME)
    except (AttributeError, IndexError, ValueError):
        return None
    found = _Handler.from_address(pointer)
    return found if found.version == 1 and found.name == b"default_allocator" else None


def _numpy_function(index: int, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)(pyabi.numpy_function(index))


@functools.cache
def _code() -> dict[str, int]:
    names = (*_FUNCTIONS, "trim")
    code = llvm.compile_symbols(_TEXT, tuple("flambeau_" + n for n in names), llvm.PLAIN)
    return {n: code["flambeau_" + n] for n in names}


def _load_number(name: str, slot: int) -> str:
    return f"  %{name}.at = getelementptr i64, ptr %r, i64 {slot}\n  %{name} = load i64, ptr %{name}.at\n"


def _load_pointer(name: str, slot: int) -> str:
    return f"  %{name}.p = getelementptr i64, ptr %r, i64 {slot}\n  %{name} = load ptr, ptr %{name}.p\n"


_TEXT = f"""
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i64 @malloc_usable_size(ptr)
declare i32 @madvise(ptr, i64, i32)

; Size class: shift, capacity and number of the list.
define internal i64 @shift(i64 %size) alwaysinline {{
  %zeros = call i64 @llvm.ctlz.i64(i64 %size, i1 true)
  %shift = sub i64 60, %zeros
  ret i64 %shift
}}
define internal i64 @capacity(i64 %size) alwaysinline {{
  %shift = call i64 @shift(i64 %size)
  %unit = shl i64 1, %shift
  %less = sub i64 %unit, 1
  %up = add i64 %size, %less
  %units = lshr i64 %up, %shift
  %whole = shl i64 %units, %shift
  ret i64 %whole
}}
define internal ptr @list(ptr %r, i64 %capacity) alwaysinline {{
  %shift = call i64 @shift(i64 %capacity)
  %octave = sub i64 %shift, {LARGE_BITS - 3}
  %first = mul i64 %octave, 8
  %units = lshr i64 %capacity, %shift
  %above = sub i64 %units, 8
  %bin = add i64 %first, %above
  %slot = add i64 %bin, {BINS}
  %at = getelementptr i64, ptr %r, i64 %slot
  ret ptr %at
}}

define internal void @count_up(ptr %r, i64 %capacity) {{
{_load_number("allocated", ALLOCATED)}{_load_number("peak", PEAK)}
  %now = add i64 %allocated, %capacity
  store i64 %now, ptr %allocated.at
  %most = call i64 @llvm.smax.i64(i64 %now, i64 %peak)
  store i64 %most, ptr %peak.at
{_load_number("made", MADE)}
  %made1 = add i64 %made, 1
  store i64 %made1, ptr %made.at
  ret void
}}

define internal void @advise_unused(i64 %size) noinline {{
entry:
  %p = call ptr @aligned_alloc(i64 4096, i64 %size)
  %none = icmp eq ptr %p, null
  br i1 %none, label %out, label %advise
advise:
  %a = call i32 @madvise(ptr %p, i64 %size, i32 14)
  call void @free(ptr %p)
  br label %out
out:
  ret void
}}

define internal ptr @fresh(ptr %r, i64 %capacity) {{
entry:
  %huge = icmp uge i64 %capacity, {HUGE_FROM}
  %aligned = icmp uge i64 %capacity, {ALIGNED_FROM}
  br i1 %aligned, label %get, label %shared
shared:
{_load_number("advised", ADVISED)}
  %left = sub i64 %advised, %capacity
  store i64 %left, ptr %advised.at
  %used = icmp slt i64 %left, 0
  br i1 %used, label %share, label %get
share:
  call void @advise_unused(i64 {MAPPED})
  call void @advise_unused(i64 {SHARED})
  store i64 {SHARED}, ptr %advised.at
  br label %get
get:
  %align = select i1 %aligned, i64 {HUGE}, i64 4096
  %p = call ptr @aligned_alloc(i64 %align, i64 %capacity)
  %none = icmp eq ptr %p, null
  br i1 %none, label %again, label %got
again:
  ; What is kept may be what is missing.
  call void @flambeau_trim(ptr %r)
  %p2 = call ptr @aligned_alloc(i64 %align, i64 %capacity)
  %none2 = icmp eq ptr %p2, null
  br i1 %none2, label %out, label %got
got:
  %q = phi ptr [%p, %get], [%p2, %again]
  br i1 %huge, label %advise, label %count
advise:
  %a = call i32 @madvise(ptr %q, i64 %capacity, i32 14)
  br label %count
count:
{_load_number("reserved", RESERVED)}{_load_number("peak", PEAK_RESERVED)}
  %now = add i64 %reserved, %capacity
  store i64 %now, ptr %reserved.at
  %most = call i64 @llvm.smax.i64(i64 %now, i64 %peak)
  store i64 %most, ptr %peak.at
  call void @count_up(ptr %r, i64 %capacity)
  ret ptr %q
out:
  ret ptr null
}}

define internal ptr @take(ptr %r, i64 %capacity) {{
entry:
  %list = call ptr @list(ptr %r, i64 %capacity)
  %head = load ptr, ptr %list
  %empty = icmp eq ptr %head, null
  br i1 %empty, label %none, label %some
some:
  %next = load ptr, ptr %head
  store ptr %next, ptr %list
{_load_number("cached", CACHED)}
  %left = sub i64 %cached, %capacity
  store i64 %left, ptr %cached.at
{_load_number("reused", REUSED)}
  %reused1 = add i64 %reused, 1
  store i64 %reused1, ptr %reused.at
  call void @count_up(ptr %r, i64 %capacity)
  ret ptr %head
none:
  ret ptr null
}}

define ptr @flambeau_malloc(ptr %r, i64 %size) {{
entry:
  %large = icmp uge i64 %size, {LARGE}
  br i1 %large, label %ours, label %usual
usual:
{_load_pointer("context", CONTEXT)}{_load_pointer("malloc", MALLOC)}
  %p = tail call ptr %malloc(ptr %context, i64 %size)
  ret ptr %p
ours:
  ; There are no lists for what no address space holds.
  %beyond = icmp ugt i64 %size, {MOST}
  br i1 %beyond, label %nothing, label %look
nothing:
  ret ptr null
look:
  %capacity = call i64 @capacity(i64 %size)
  %kept = call ptr @take(ptr %r, i64 %capacity)
  %found = icmp ne ptr %kept, null
  br i1 %found, label %reuse, label %new
reuse:
  ret ptr %kept
new:
  %q = call ptr @fresh(ptr %r, i64 %capacity)
  ret ptr %q
}}

define ptr @flambeau_calloc(ptr %r, i64 %count, i64 %each) {{
entry:
  %product = call {{i64, i1}} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue {{i64, i1}} %product, 0
  %over = extractvalue {{i64, i1}} %product, 1
  %large = icmp uge i64 %size, {LARGE}
  %either = or i1 %large, %over
  br i1 %either, label %check, label %usual
check:
  br i1 %over, label %no, label %ours
no:
  ret ptr null
usual:
{_load_pointer("context", CONTEXT)}{_load_pointer("calloc", CALLOC)}
  %p = tail call ptr %calloc(ptr %context, i64 %count, i64 %each)
  ret ptr %p
ours:
  %q = call ptr @flambeau_malloc(ptr %r, i64 %size)
  %none = icmp eq ptr %q, null
  br i1 %none, label %out, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %q, i8 0, i64 %size, i1 false)
  br label %out
out:
  ret ptr %q
}}
declare {{i64, i1}} @llvm.umul.with.overflow.i64(i64, i64)

; A block of `capacity` bytes: kept if it is really that long and the limit allows it, if need be in place of all that
; was kept before; else given back.
define internal void @put(ptr %r, ptr %p, i64 %capacity) {{
entry:
{_load_number("allocated", ALLOCATED)}
  %less = sub i64 %allocated, %capacity
  store i64 %less, ptr %allocated.at
{_load_number("freed", FREED)}
  %freed1 = add i64 %freed, 1
  store i64 %freed1, ptr %freed.at
{_load_number("cached", CACHED)}{_load_number("limit", LIMIT)}{_load_number("peak", PEAK)}
  %more = add i64 %cached, %capacity
  ; Never more than was in use at once, so that many different sizes do not pile up.
  %worth = call i64 @llvm.smax.i64(i64 %peak, i64 {SPARE})
  %within = icmp sle i64 %more, %worth
  %below = icmp sle i64 %more, %limit
  %room = and i1 %within, %below
  %usable = call i64 @malloc_usable_size(ptr %p)
  %long = icmp uge i64 %usable, %capacity
  %keep = and i1 %room, %long
  br i1 %keep, label %push, label %crowded
crowded:
  ; A program whose sizes are all in use has room for them: what is kept instead of this block is of sizes of the past.
  %alone = icmp sle i64 %capacity, %worth
  %fits = and i1 %alone, %below
  %evict = and i1 %fits, %long
  br i1 %evict, label %drop, label %release
drop:
  call void @flambeau_trim(ptr %r)
  br label %push
push:
  %kept = phi i64 [%more, %entry], [%capacity, %drop]
  store i64 %kept, ptr %cached.at
  %list = call ptr @list(ptr %r, i64 %capacity)
  %head = load ptr, ptr %list
  store ptr %head, ptr %p
  store ptr %p, ptr %list
  ret void
release:
{_load_number("reserved", RESERVED)}
  %now = sub i64 %reserved, %capacity
  store i64 %now, ptr %reserved.at
  call void @free(ptr %p)
  ret void
}}

define void @flambeau_free(ptr %r, ptr %p, i64 %size) {{
entry:
  %none = icmp eq ptr %p, null
  br i1 %none, label %out, label %some
some:
  %large = icmp uge i64 %size, {LARGE}
  br i1 %large, label %ours, label %usual
usual:
{_load_pointer("context", CONTEXT)}{_load_pointer("free", FREE)}
  tail call void %free(ptr %context, ptr %p, i64 %size)
  ret void
ours:
  %capacity = call i64 @capacity(i64 %size)
  call void @put(ptr %r, ptr %p, i64 %capacity)
  ret void
out:
  ret void
}}

; numpy does not say how long the block was. Its real length is at least that of its size class and less than
; the next one's, which tells the class.
define ptr @flambeau_realloc(ptr %r, ptr %p, i64 %size) {{
entry:
  %none = icmp eq ptr %p, null
  br i1 %none, label %new, label %old
new:
  %n = call ptr @flambeau_malloc(ptr %r, i64 %size)
  ret ptr %n
old:
  %usable = call i64 @malloc_usable_size(ptr %p)
  %was = icmp uge i64 %usable, {LARGE}
  %is = icmp uge i64 %size, {LARGE}
  %any = or i1 %was, %is
  br i1 %any, label %move, label %usual
usual:
{_load_pointer("context", CONTEXT)}{_load_pointer("realloc", REALLOC)}
  %m = call ptr %realloc(ptr %context, ptr %p, i64 %size)
  ret ptr %m
move:
  %q = call ptr @flambeau_malloc(ptr %r, i64 %size)
  %failed = icmp eq ptr %q, null
  br i1 %failed, label %out, label %copy
copy:
  %fewer = icmp ult i64 %usable, %size
  %count = select i1 %fewer, i64 %usable, i64 %size
  call void @llvm.memcpy.p0.p0.i64(ptr %q, ptr %p, i64 %count, i1 false)
  br i1 %was, label %back, label %small
back:
  %shift = call i64 @shift(i64 %usable)
  %units = lshr i64 %usable, %shift
  %capacity = shl i64 %units, %shift
  call void @put(ptr %r, ptr %p, i64 %capacity)
  ret ptr %q
small:
  call void @free(ptr %p)
  ret ptr %q
out:
  ret ptr null
}}

define void @flambeau_trim(ptr %r) {{
entry:
  br label %bin
bin:
  %k = phi i64 [{BINS}, %entry], [%next, %done]
  %list = getelementptr i64, ptr %r, i64 %k
  br label %block
block:
  %head = load ptr, ptr %list
  %empty = icmp eq ptr %head, null
  br i1 %empty, label %done, label %drop
drop:
  %after = load ptr, ptr %head
  store ptr %after, ptr %list
  call void @free(ptr %head)
  br label %block
done:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, {BINS + CLASSES}
  br i1 %more, label %bin, label %out
out:
{_load_number("cached", CACHED)}{_load_number("reserved", RESERVED)}
  %now = sub i64 %reserved, %cached
  store i64 %now, ptr %reserved.at
  store i64 0, ptr %cached.at
  ret void
}}
"""
