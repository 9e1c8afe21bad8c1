"""From Python arrays to a kernel call: the driver that walks outer dimensions, and the callable made for a plan.

A plan is an int64 table, read by native code (slots below). `runner(table)` is a Python callable that takes
the arrays, picks up their data pointers and runs the plan. Normally it is a builtin whose body is generated
here and which reads the pointer at its offset in numpy's array struct (60 ns); a self-test verifies the
offset, and where it fails (another interpreter) the pointers are asked for in Python.
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np

from flambeau_kernels.engine.launching import journal
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.engine.runtime.never_freed import never_freed

# Slots of a plan. Rows are all dimensions but the innermost, merged to n1 (fastest) times the outer ones.
(KERNEL, OPERANDS, N0, N1, OUTER, ROWS, COLUMN_GRAIN, ROW_GRAIN, COLUMN_CHUNKS, CHUNKS, RELEASE,
 POOL, PARALLEL, NONE, INCREF, SAVE, RESTORE, RING, PACK, DIMS) = range(20)
# From DIMS on: the outer dimensions, (inner, outer) strides per operand, and a row of strides per outer
# dimension. Where PACK has the address of `pack`, there follow the bytes of an element of each operand that
# it is to pack, 0 for others; a block is then no more than fits a tile of TILE_BYTES.

TILE_BYTES = 1 << 14
TYPE_OFFSET = 8                                       # of the class in every object
DATA_OFFSET = 16                                      # of the data pointer in numpy's PyArrayObject


def new_table(size: int) -> np.ndarray:
    """A plan of `size` slots with the addresses every plan needs filled in."""
    table = np.zeros(size, np.int64)
    for slot, address in process_addresses():
        table[slot] = address
    return table


def runner(table: np.ndarray) -> Callable[..., None]:
    """A callable that runs the plan on arrays given in the plan's order. The caller guarantees they fit it.
    """
    if not struct_matches():
        return functools.partial(_run_by_ctypes, table)
    return new_builtin()(ctypes.addressof(_method()), table, None)


@functools.cache
def struct_matches() -> bool:
    """Whether numpy's arrays keep their data pointer where the generated code looks for it."""
    if not _cpython():
        return False
    samples = [np.empty(3), np.zeros((2, 5), np.int8)[:, 1:], np.array(1.5)]
    return all(ctypes.c_void_p.from_address(id(a) + DATA_OFFSET).value == a.ctypes.data for a in samples)


def _cpython() -> bool:
    import sys

    with_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return sys.implementation.name == "cpython" and with_gil


@functools.cache
def process_addresses() -> tuple[tuple[int, int], ...]:
    record, parallel = pool.entry()
    python = ctypes.pythonapi
    return ((POOL, record), (PARALLEL, parallel), (NONE, id(None)), (INCREF, address_of(python.Py_IncRef)),
            (SAVE, address_of(python.PyEval_SaveThread)), (RESTORE, address_of(python.PyEval_RestoreThread)),
            (RING, journal.address()))


def address_of(function) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None  # a function of the running interpreter
    return address


@functools.cache
def compiled() -> dict[str, int]:
    """Addresses of this module's functions, by name. Raises: as `llvm.compile_symbols`."""
    return llvm.compile_symbols(_TEXT, ("execute", "run"), llvm.WRITTEN)


class MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


@functools.cache
def _method() -> MethodDef:
    fastcall = 0x80
    return never_freed(MethodDef(b"run_plan", compiled()["run"], fastcall, None))


@functools.cache
def new_builtin():
    new = ctypes.pythonapi.PyCFunction_NewEx
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return prototype(address_of(new))


def _run_by_ctypes(table: np.ndarray, *arrays: np.ndarray) -> None:
    pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    journal.note(table, int(table[CHUNKS]))
    _execute()(table.ctypes.data, pointers)


def execute_address() -> int:
    """Of ``void execute(ptr plan, ptr pointers)``, which runs a plan on operands that lie at `pointers`."""
    return compiled()["execute"]


@functools.cache
def _execute():
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(compiled()["execute"])


def slot(name: str, index: int, llvm_type: str = "i64") -> str:
    return (f"  %{name}.at = getelementptr i64, ptr %plan, i64 {index}\n"
            f"  %{name} = load {llvm_type}, ptr %{name}.at\n")


_TEXT = f"""
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Rows [rlo, rhi) and columns [clo, chi) of the plan.
define internal void @block(ptr %plan, ptr %pointers, i64 %rlo, i64 %rhi, i64 %clo, i64 %chi) {{
entry:
{slot("kernel", KERNEL, "ptr")}{slot("operands", OPERANDS)}{slot("n1", N1)}{slot("outer", OUTER)}
  %dims = getelementptr i64, ptr %plan, i64 {DIMS}
  %strides = getelementptr i64, ptr %dims, i64 %outer
  %pairs = mul i64 %operands, 2
  %far = getelementptr i64, ptr %strides, i64 %pairs
  %here = alloca ptr, i64 %operands
  %n0 = sub i64 %chi, %clo
{slot("pack", PACK, "ptr")}
  %packs = icmp ne ptr %pack, null
  %bytes = mul i64 %operands, {TILE_BYTES}
  %room = select i1 %packs, i64 %bytes, i64 0
  %tiles = alloca i8, i64 %room, align 64
  %own = alloca i64, i64 %pairs
  %size = alloca [2 x i64]
  %rows.at = getelementptr i64, ptr %size, i64 1
  %question = alloca [5 x ptr]
  store ptr %plan, ptr %question
  %q1 = getelementptr ptr, ptr %question, i64 1
  store ptr %here, ptr %q1
  %q2 = getelementptr ptr, ptr %question, i64 2
  store ptr %own, ptr %q2
  %q3 = getelementptr ptr, ptr %question, i64 3
  store ptr %tiles, ptr %q3
  %q4 = getelementptr ptr, ptr %question, i64 4
  store ptr %size, ptr %q4
  br label %rows
rows:
  %r = phi i64 [%rlo, %entry], [%rnext, %ran]
  %q = udiv i64 %r, %n1
  %i1 = urem i64 %r, %n1
  %tail = sub i64 %n1, %i1
  %rest = sub i64 %rhi, %r
  %count = call i64 @llvm.smin.i64(i64 %tail, i64 %rest)
  br label %operand
operand:
  %k = phi i64 [0, %rows], [%knext, %place]
  %k2 = mul i64 %k, 2
  %inner.at = getelementptr i64, ptr %strides, i64 %k2
  %inner = load i64, ptr %inner.at
  %next.at = getelementptr i64, ptr %inner.at, i64 1
  %nextstride = load i64, ptr %next.at
  %along = mul i64 %clo, %inner
  %down = mul i64 %i1, %nextstride
  %start = add i64 %along, %down
  br label %dim
dim:
  %d = phi i64 [0, %operand], [%dnext, %further]
  %index = phi i64 [%q, %operand], [%index2, %further]
  %offset = phi i64 [%start, %operand], [%offset2, %further]
  %left = icmp slt i64 %d, %outer
  br i1 %left, label %further, label %place
further:
  %n.at = getelementptr i64, ptr %dims, i64 %d
  %n = load i64, ptr %n.at
  %index2 = udiv i64 %index, %n
  %id = urem i64 %index, %n
  %dk = mul i64 %d, %operands
  %dkk = add i64 %dk, %k
  %s.at = getelementptr i64, ptr %far, i64 %dkk
  %s = load i64, ptr %s.at
  %move = mul i64 %id, %s
  %offset2 = add i64 %offset, %move
  %dnext = add i64 %d, 1
  br label %dim
place:
  %p.at = getelementptr ptr, ptr %pointers, i64 %k
  %p = load ptr, ptr %p.at
  %moved = getelementptr i8, ptr %p, i64 %offset
  %h.at = getelementptr ptr, ptr %here, i64 %k
  store ptr %moved, ptr %h.at
  %knext = add i64 %k, 1
  %others = icmp slt i64 %knext, %operands
  br i1 %others, label %operand, label %call
call:
  br i1 %packs, label %packing, label %plain
plain:
  call void %kernel(ptr %here, i64 %n0, i64 %count, ptr %strides)
  br label %ran
packing:
  store i64 %n0, ptr %size
  store i64 %count, ptr %rows.at
  %pairs.bytes = mul i64 %pairs, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %strides, i64 %pairs.bytes, i1 false)
  call void %pack(i64 0, ptr %question)
  %packed.n0 = load i64, ptr %size
  %packed.n1 = load i64, ptr %rows.at
  call void %kernel(ptr %here, i64 %packed.n0, i64 %packed.n1, ptr %own)
  br label %ran
ran:
  %rnext = add i64 %r, %count
  %more = icmp slt i64 %rnext, %rhi
  br i1 %more, label %rows, label %done
done:
  ret void
}}

; Chunk number i of the work {{plan, pointers}}.
define internal void @chunk(i64 %i, ptr %work) {{
  %plan = load ptr, ptr %work
  %pointers.at = getelementptr ptr, ptr %work, i64 1
  %pointers = load ptr, ptr %pointers.at
{slot("n0", N0)}{slot("rows", ROWS)}{slot("cgrain", COLUMN_GRAIN)}{slot("rgrain", ROW_GRAIN)}
{slot("across", COLUMN_CHUNKS)}
  %cr = udiv i64 %i, %across
  %cc = urem i64 %i, %across
  %rlo = mul i64 %cr, %rgrain
  %rend = add i64 %rlo, %rgrain
  %rhi = call i64 @llvm.smin.i64(i64 %rend, i64 %rows)
  %clo = mul i64 %cc, %cgrain
  %cend = add i64 %clo, %cgrain
  %chi = call i64 @llvm.smin.i64(i64 %cend, i64 %n0)
  call void @block(ptr %plan, ptr %pointers, i64 %rlo, i64 %rhi, i64 %clo, i64 %chi)
  ret void
}}

define void @execute(ptr %plan, ptr %pointers) {{
entry:
{slot("chunks", CHUNKS)}
  %split = icmp sgt i64 %chunks, 1
  br i1 %split, label %several, label %one
several:
  %work = alloca ptr, i64 2
  store ptr %plan, ptr %work
  %second = getelementptr ptr, ptr %work, i64 1
  store ptr %pointers, ptr %second
{slot("pool", POOL, "ptr")}{slot("parallel", PARALLEL, "ptr")}
  %ran = call i64 %parallel(ptr %pool, ptr @chunk, ptr %work, i64 %chunks)
  ret void
one:
{slot("rows", ROWS)}{slot("n0", N0)}
  call void @block(ptr %plan, ptr %pointers, i64 0, i64 %rows, i64 0, i64 %n0)
  ret void
}}

; The builtin: `self` is the numpy array that holds the plan, the arguments are the arrays.
define ptr @run(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %plan.at = getelementptr i8, ptr %self, i64 {DATA_OFFSET}
  %plan = load ptr, ptr %plan.at
{slot("operands", OPERANDS)}
  %pointers = alloca ptr, i64 %operands
  br label %collect
collect:
  %k = phi i64 [0, %entry], [%knext, %collect]
  %a.at = getelementptr ptr, ptr %args, i64 %k
  %a = load ptr, ptr %a.at
  %data.at = getelementptr i8, ptr %a, i64 {DATA_OFFSET}
  %data = load ptr, ptr %data.at
  %p.at = getelementptr ptr, ptr %pointers, i64 %k
  store ptr %data, ptr %p.at
  %knext = add i64 %k, 1
  %more = icmp slt i64 %knext, %operands
  br i1 %more, label %collect, label %ready
ready:
{slot("jring", RING, "ptr")}{slot("chunks", CHUNKS)}{journal.ir("j", "%plan", "%chunks")}
{slot("release", RELEASE)}
  %long = icmp ne i64 %release, 0
  br i1 %long, label %free, label %held
free:
{slot("save", SAVE, "ptr")}{slot("restore", RESTORE, "ptr")}
  %state = call ptr %save()
  call void @execute(ptr %plan, ptr %pointers)
  call void %restore(ptr %state)
  br label %done
held:
  call void @execute(ptr %plan, ptr %pointers)
  br label %done
done:
{slot("none", NONE, "ptr")}{slot("incref", INCREF, "ptr")}
  call void %incref(ptr %none)
  ret ptr %none
}}
"""
