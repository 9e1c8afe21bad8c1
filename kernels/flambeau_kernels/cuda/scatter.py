"""Writing to places that an index names, in the order of the index: repeated places give the same bits in every run.

A thread has one line across the scattered dimension for itself and goes along it, so nothing is added by atomics. That is slow
where there are few lines; it is right everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels.engine.launching import loops as engine_loops
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.scalar.words import READING

from . import functions
from .launch import Kernel, cast, copy, refuse_to_compile
from .loops import load, store
from .program import Program, phase

__all__ = ["along"]

THREADS = 64
_COMBINE = {
    "last": lambda have, new: new, "sum": lambda have, new: have + new, "prod": lambda have, new: have * new,
    "amax": READING["maximum"], "amin": READING["minimum"],
}  # fmt: skip
_kernels: dict[Any, Kernel] = {}


def along(target: Any, index: Any, source: Any, how: str) -> Any:
    """`target` ``(before, n, after)`` with `source` ``(before, m, after)`` combined into the places that `index` names.

    `how` is 'last' (written), 'sum', 'prod', 'amax' or 'amin'. Places may count from the end; those outside are left out.
    Halves are combined in float32. Returns a new row-major array. Raises: Unsupported for dtypes without a kernel.
    """
    refuse_to_compile(f"scatter ({how})")
    dtype = target.dtype
    if how == "last":
        wide = np.dtype(f"u{dtype.itemsize}") if dtype.itemsize <= 8 else dtype
        made = _fresh(target.view(wide) if wide != dtype else target, wide)
        source = source if source.dtype == dtype else cast(source, dtype)
        source = source.view(wide) if wide != dtype else source
    else:
        wide = flambeau_kernels._WIDE.get(dtype) or dtype
        made, source = _fresh(target, wide), cast(source, wide)
    before, n, after = target.shape
    m = index.shape[1]
    index = cast(index, np.dtype(np.int64))
    index = index if index.flags.c_contiguous else _fresh(index, index.dtype)
    source = source if source.flags.c_contiguous else _fresh(source, source.dtype)
    key = (wide.name, how)
    kernel = _kernels.get(key) or _kernels.setdefault(key, Kernel.of(_program(wide.name, how)))
    lines = before * after
    if lines and m and n:
        kernel(-(-lines // THREADS), [made.data.ptr, index.data.ptr, source.data.ptr, lines, n, m, after])
    return made.view(dtype) if how == "last" and wide != dtype else cast(made, dtype)


def _fresh(a: Any, dtype: np.dtype) -> Any:
    made = a.__class__(a.shape, dtype)
    copy(made, a)
    return made


def _program(dtype: str, how: str) -> Program:
    operand = Operand(dtype, "g")
    slots = (("ptr", "p"), ("ptr", "at"), ("ptr", "source"), *(("i64", name) for name in ("lines", "n", "m", "after")))
    block = engine_loops.new_block(dtype, careful=True)
    have = engine_loops.widen(block, 0, operand, dtype)
    new = engine_loops.widen(block, 1, operand, dtype)
    values = engine_loops.narrow(_COMBINE[how](have, new), operand)
    lines, lacking = functions.complete(block.lines)
    body = [
        "  %c = zext i32 %ctaid to i64", "  %b = zext i32 %ntid to i64", "  %t = zext i32 %tid to i64",
        "  %first = mul i64 %c, %b", "  %line = add i64 %first, %t", "  %there = icmp ult i64 %line, %lines",
        "  br i1 %there, label %begin, label %done", "begin:",
        "  %outer = udiv i64 %line, %after", "  %inner = urem i64 %line, %after",
        "  %mine = mul i64 %outer, %n", "  %its = mul i64 %outer, %m", "  br label %loop", "loop:",
        "  %j = phi i64 [0, %begin], [%j.next, %next]",
        "  %row = add i64 %its, %j", "  %far = mul i64 %row, %after", "  %place = add i64 %far, %inner",
        "  %pat = getelementptr i64, ptr %at, i64 %place", "  %k0 = load i64, ptr %pat",
        "  %low = icmp slt i64 %k0, 0", "  %back = add i64 %k0, %n", "  %k = select i1 %low, i64 %back, i64 %k0",
        "  %inside = icmp ult i64 %k, %n", "  br i1 %inside, label %write, label %next", "write:",
        "  %to0 = add i64 %mine, %k", "  %to1 = mul i64 %to0, %after", "  %to = add i64 %to1, %inner",
        f"  %a0 = getelementptr {operand.element}, ptr %p, i64 %to", *load(operand, "%a0", ("%x0", "%y0")),
        f"  %a1 = getelementptr {operand.element}, ptr %source, i64 %place", *load(operand, "%a1", ("%x1", "%y1")),
        *lines, f"  %z0 = getelementptr {operand.element}, ptr %p, i64 %to", *store(operand, "%z0", values), "  br label %next", "next:",
        "  %j.next = add i64 %j, 1", "  %more = icmp ult i64 %j.next, %m", "  br i1 %more, label %loop, label %done",
        "done:", "  ret void",
    ]  # fmt: skip
    return Program(f"scatter_{how}_{dtype}", slots, frozenset(block.needs), phase("all", slots, body), (("all", 0),),
                   frozenset(lacking), threads=THREADS)  # fmt: skip
