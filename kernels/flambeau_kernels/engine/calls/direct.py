"""Formulas called without a plan for each shape: ``formula.direct(*operands)``.

Looking up a plan and allocating the result in Python takes as long as adding fifty thousand numbers. So a formula that
has run on some dtypes gets builtins, which check their operands, cut the work and run the loop in native code:
`direct` returns a new array, `direct_` stores the result in its first operand, and `enter` takes objects that hold arrays
(`hot_calls.of_class`) and returns a new object. Contiguous arrays of one shape may have any size; others may have any strides
and be broadcast (`direct_layout`). All answer None, before having written anything, for other operands.
The caller then takes the fallback. Work is cut, and the tier chosen, as `plan` and `elementwise` do it for such operands.
"""
from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import flambeau_kernels
from flambeau_kernels import hot_calls
from flambeau_kernels.engine.builtins import fastcall, pyabi
from flambeau_kernels.engine.builtins.fastcall import at, field, of_table
from flambeau_kernels.engine.calls import direct_layout, objects
from flambeau_kernels.engine.calls.direct_layout import (
    ALONE,
    ARGUMENTS,
    BOUND,
    COUNT,
    ENTRIES,
    ENTRY,
    EXECUTE,
    FLOAT,
    GRAIN,
    HIGH,
    INTEGER,
    KERNEL,
    KINDS,
    LAYOUT,
    LEAST,
    LOW,
    MIXED,
    MOST_ARGUMENTS,
    MOST_STEADY,
    OUT,
    PACK,
    PARALLEL,
    POOL,
    RELEASE_FROM,
    RESTORE,
    RING,
    SAVE,
    SHARED_FROM,
    STEADY,
    STRIDED,
    STRIDES,
    TABLE,
)
from flambeau_kernels.engine.launching import elementwise, journal, native, pack, plan
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool
from flambeau_kernels.engine.runtime.never_freed import never_freed
from flambeau_kernels.formula import Formula, refuse
from flambeau_kernels.scalar.symbols import Unsupported
from flambeau_kernels.takeover import BUILTINS, Waiting

MOST_ENTRIES, MOST_KEYS = 16, 256                     # combinations of dtypes a formula answers for, and may ask about
_EXACT = 1 << 53                                      # integers up to here are doubles


class _Entries:
    """A formula's builtins' head and entries, by what they are for."""

    __slots__ = ("by_kinds", "entries", "head")

    def __init__(self) -> None:
        self.head = np.zeros(ENTRIES + MOST_ENTRIES * ENTRY, np.int64)
        self.entries: dict[tuple[Any, ...], np.ndarray | None] = {}  # views of the head; None: numpy's
        self.by_kinds: dict[tuple[Any, ...], np.ndarray] = {}        # the same, by kinds of operands alone
        slots = dict(native.process_addresses())
        self.head[TABLE] = pyabi.table().ctypes.data
        for slot, name in ((POOL, native.POOL), (PARALLEL, native.PARALLEL), (SAVE, native.SAVE),
                           (RESTORE, native.RESTORE), (RING, native.RING)):
            self.head[slot] = slots[name]
        self.head[EXECUTE] = native.execute_address()
        self.head[ALONE] = pool.alone()


_learned: weakref.WeakKeyDictionary[Formula, _Entries] = weakref.WeakKeyDictionary()


def specialise(formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype, compile: bool = True) -> bool:
    """Let ``formula.direct`` answer for operands of the dtypes of `inputs`, with results as `out` is.

    `compute` and the dtype of `out` must follow from the formula and the dtypes. Operands that it never answers for are
    passed over, and without `compile` those whose loop the cache lacks. Returns: whether there are operands of these kinds for which
    it answers, once it is specialised.
    """
    if not _is_ever_answered(inputs):
        return False
    way = _way(inputs, out)
    if way is None:
        return True
    key = tuple(a.dtype if a.__class__ is np.ndarray else a.__class__ for a in inputs)
    known = _learned.get(formula)
    entry = None if known is None else known.by_kinds.get(key)
    if way.__class__ is int and entry is not None and _steady_slot(entry, way) is None:
        way = PACKED                                  # there are loops for others
    plain = _are_plain((*(a for a in inputs if a.__class__ is np.ndarray), out))
    if known is not None and (key, way) in known.entries:
        if not plain and not known.head[LAYOUT]:
            known.head[LAYOUT] = direct_layout.address()
        return known.entries[key, way] is not None
    if pyabi.problem() is not None or llvm.available() is not None:
        return False
    if not compile and not _is_kept(formula, inputs, out, compute, way, key):
        return True
    if known is None:
        known = _learned[formula] = _Entries()
    if not plain:                                     # which costs twice as much to compile as most formulas
        known.head[LAYOUT] = direct_layout.address()
    if entry is None and (known.head[COUNT] >= MOST_ENTRIES or len(known.entries) >= MOST_KEYS):
        return False
    new = entry is None
    if entry is None:
        entry = known.head[ENTRIES + int(known.head[COUNT]) * ENTRY:][:ENTRY]
        _describe(entry, inputs, out, compute)
    made = _add_loop(entry, formula, inputs, out, compute, way)
    known.entries[key, way] = entry if made else None
    if made and new:
        known.head[COUNT] += 1
        known.by_kinds[key] = entry
    if made and formula.direct is refuse:
        for name in _BUILTINS:
            setattr(formula, name, _made_when_called(formula, name))
        hot_calls.engine_is_in_use()
    return made


# Which loop operands need; where some are one value in all of a row and the others contiguous, an int: a bit for each that is steady.
IN_ROWS, PACKED, STRIDED_WAY = "in rows", "packed", "strided"


def _steady_slot(entry: np.ndarray, steady: int) -> int | None:
    """Where an entry has the loop for operands that are `steady`, or has room for it; None if it has neither."""
    slots = range(STEADY, STEADY + 2 * MOST_STEADY, 2)
    return next((slot for slot in slots if entry[slot] in (0, steady)), None)


def _steady(arrays: list[Any], out: np.ndarray) -> int | None:
    """A bit for each input that is one value in all of a row of `out`, numbers left out; None unless the others are contiguous."""
    row = min((d for d, n in enumerate(out.shape) if n > 1), key=lambda d: abs(out.strides[d]), default=None)
    steady = 0
    for k, a in enumerate(arrays):
        d = None if row is None or a.__class__ is not np.ndarray else row - out.ndim + a.ndim
        if d is None:
            continue
        if d < 0 or a.shape[d] == 1 or not a.strides[d]:
            steady |= 1 << k
        elif a.strides[d] != a.itemsize:
            return None
    return steady or None


def _is_ever_answered(inputs: tuple[Any, ...]) -> bool:
    """Whether builtins answer for any operands of the kinds of `inputs`: their dtypes, which are arrays, and which have dimensions."""
    arrays = [a for a in inputs if a.__class__ is np.ndarray]
    if len(inputs) > MOST_ARGUMENTS or not arrays or any(a.__class__ not in (np.ndarray, float, int) for a in inputs):
        return False
    # Promotion looks at dimensions where dtypes differ.
    return not _is_mixed(arrays) or len({a.ndim > 0 for a in arrays}) == 1


def _way(inputs: tuple[Any, ...], out: np.ndarray) -> Any:
    """Which loop these operands need; None where no builtin would answer for them."""
    if out.__class__ is not np.ndarray or not out.size:
        return None
    arrays = [a for a in inputs if a.__class__ is np.ndarray]
    if any(not a.dtype.isnative or not a.flags.aligned for a in arrays):
        return None
    all_arrays = (*arrays, out)
    if _are_plain(all_arrays):
        return IN_ROWS
    if out.ndim > direct_layout.MOST_DIMS:
        return None
    if min((abs(step) for n, step in zip(out.shape, out.strides, strict=True) if n > 1), default=out.itemsize) != out.itemsize:
        return STRIDED_WAY if out.size <= direct_layout.MOST_STRIDED else None
    row = next((d for d in range(-1, -out.ndim - 1, -1) if out.shape[d] > 1), None)  # the last dimension that is one
    if row is None or all(a.ndim >= -row and a.shape[row] > 1 and a.strides[row] == a.itemsize for a in all_arrays):
        return IN_ROWS
    if out.size <= direct_layout.LEAST_PACKED:
        return STRIDED_WAY
    steady = _steady(list(inputs), out)
    if steady is not None:
        return steady
    if not all(a.itemsize in pack.KINDS for a in arrays):
        return STRIDED_WAY
    return PACKED if out.size <= direct_layout.MOST_PACKED else None


def _are_plain(all_arrays: tuple[np.ndarray, ...]) -> bool:
    """Whether the arrays, the result last, are of one shape and in C order: nothing is to be laid out."""
    return all(a.shape == all_arrays[-1].shape and a.flags.c_contiguous for a in all_arrays)


def _is_mixed(arrays: list[np.ndarray]) -> bool:
    return any(a.dtype != arrays[0].dtype for a in arrays)


def _describe(entry: np.ndarray, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype) -> None:
    """Write what operands the entry is for, without any loop yet."""
    entry[:] = 0
    entry[ARGUMENTS], entry[OUT] = len(inputs), id(out.dtype)
    entry[MIXED] = _is_mixed([a for a in inputs if a.__class__ is np.ndarray])
    kinds = {float: FLOAT, int: INTEGER}
    entry[KINDS:KINDS + len(inputs)] = [kinds.get(a.__class__) or id(a.dtype) for a in inputs]
    entry[STRIDES:STRIDES + 2 * len(inputs) + 2:2] = _item_strides(inputs, out)
    bound, entry[LOW], entry[HIGH] = _range(compute)
    entry[BOUND:BOUND + 1].view(np.float64)[0] = bound
    _dtypes.update((id(a.dtype), a.dtype) for a in (*inputs, out) if a.__class__ is np.ndarray)


def _range(compute: np.dtype) -> tuple[float, int, int]:
    """The largest finite float, and the integers, that `compute` holds; of the latter no more than doubles tell apart."""
    if compute.kind in "iu":
        info = np.iinfo(compute)
        return np.inf, max(int(info.min), -_EXACT), min(int(info.max), _EXACT)
    if compute.kind == "b":
        return np.inf, -_EXACT, _EXACT
    largest = float(ml_dtypes.finfo(compute).max)
    return largest, -int(min(largest, _EXACT)), int(min(largest, _EXACT))


def _item_strides(inputs: tuple[Any, ...], out: np.ndarray) -> list[int]:
    """Of contiguous operands, in bytes; numbers stay where they are."""
    return [a.itemsize if a.__class__ is np.ndarray else 0 for a in (*inputs, out)]


def _seen_by_loop(inputs: tuple[Any, ...]) -> list[np.ndarray]:
    """`inputs` as arrays of the dtypes in which builtins hand them to loops: every int is an int64, also one beyond, which others take."""
    return [np.zeros((), np.int64) if a.__class__ is int else np.asarray(a) for a in inputs]


def _loop(formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype, way: Any) -> Any:
    """Raises: Unsupported where there is none."""
    steady = way if way.__class__ is int else 0
    moving = "g" if way is STRIDED_WAY else "c"
    access = "".join("s" if a.__class__ is not np.ndarray or steady >> k & 1 else moving for k, a in enumerate((*inputs, out)))
    where = plan.Layout(((out.size, tuple(_item_strides(inputs, out))),), access)
    return elementwise._kernel(formula, where, _seen_by_loop(inputs), [out], compute)


_sought: weakref.WeakKeyDictionary[Formula, set[Any]] = weakref.WeakKeyDictionary()  # what the cache was asked for


def _is_kept(formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype, way: Any, key: Any) -> bool:
    """Whether the cache has the loop; it is asked once."""
    asked = _sought.setdefault(formula, set())
    if (key, way) in asked:
        return False
    asked.add((key, way))
    try:
        return elementwise.is_kept(_loop(formula, inputs, out, compute, way))
    except Unsupported:
        return False


def _add_loop(entry: np.ndarray, formula: Formula, inputs: tuple[Any, ...], out: np.ndarray, compute: np.dtype,
              way: Any) -> bool:
    arrays = _seen_by_loop(inputs)
    try:
        kernel = _loop(formula, inputs, out, compute, way)
        address = elementwise.compiled(kernel)
    except (Unsupported, RuntimeError):               # which the fallback explains
        return False
    if way.__class__ is int:
        slot = _steady_slot(entry, way)
        assert slot is not None                       # else it were another way
        entry[slot : slot + 2] = way, address
    else:
        entry[STRIDED if way is STRIDED_WAY else KERNEL] = address
    if way is PACKED:
        entry[PACK] = pack.address(tuple(sorted({a.itemsize for a in inputs if a.__class__ is np.ndarray})))
    # Where all tiers agree this is the quickest one for any size.
    same = flambeau_kernels.has_one_answer(formula, compute)
    entry[LEAST] = 1 if same else flambeau_kernels.smallest_compiled(formula, compute)
    ns = plan.nanoseconds(kernel.cost, sum(a.itemsize for a in (*arrays, out)))
    entry[SHARED_FROM], entry[GRAIN] = plan.shared_from(ns), plan.chunk_elements(ns)
    entry[RELEASE_FROM] = int(plan.RELEASE_NS / ns)
    names = ", ".join(a.dtype.name for a in (*arrays, out))
    journal.name(entry, lambda: f"loop {formula.name} computing in {compute.name}: {names}")
    return True


_dtypes: dict[int, np.dtype] = {}                     # whose addresses are in entries, which hold no references


def forget() -> None:
    """Let every formula answer None again; for another choice of backend."""
    for formula, known in list(_learned.items()):
        formula.direct = formula.direct_ = formula.enter = refuse
        formula.enter_ = formula.enter_unrecorded_ = formula.enter_untracked_ = refuse
        formula.direct_before = formula.enter_before = refuse
        known.head[COUNT] = 0
    _learned.clear()
    _sought.clear()


flambeau_kernels.plans_kept_elsewhere.append(forget)


# Where results go: to a new array, to the first operand, or to an array that is given before the operands.
NEW, FIRST, BEFORE = "", "_", "_before"


class _Builtin(NamedTuple):
    """What an attribute of a formula is: a builtin of arrays, or of objects around the one called `inner`; where either stores, and then
    what those of objects look at (`objects.entering_in_place`).
    """

    inner: str | None
    to: str
    free: int = objects.RECORDED


_BUILTINS = {
    "direct": _Builtin(None, NEW), "enter": _Builtin("direct", NEW),
    "direct_": _Builtin(None, FIRST), "enter_": _Builtin("direct_", FIRST),
    "enter_unrecorded_": _Builtin("direct_", FIRST, objects.UNRECORDED), "enter_untracked_": _Builtin("direct_", FIRST, objects.UNTRACKED),
    "direct_before": _Builtin(None, BEFORE), "enter_before": _Builtin("direct_before", BEFORE),
}  # fmt: skip


def _made_when_called(formula: Formula, name: str) -> Callable[..., Any]:
    """Stands for a builtin, whose code is compiled for the first program that calls one: as much of it as most formulas take."""
    of = weakref.ref(formula)                         # which holds this function
    is_spare = _BUILTINS[name].to == BEFORE           # others do the same, and copy the result

    def first(*operands: Any) -> Any:
        formula = of()
        return None if formula is None or is_spare and not _spare_repays() else builtin(formula, name)(*operands)

    return first


def builtin(formula: Formula, name: str) -> Callable[..., Any]:
    """The attribute `name` of `formula`, for those who take a builtin apart: made now if it has not been called."""
    known = getattr(formula, name)
    if known is refuse or known.__class__ is not FunctionType:
        return known
    inner, to, free = _BUILTINS[name]
    if inner is None:
        made = _new_builtin(_learned[formula].head, to)
    elif to:
        made = objects.entering_in_place(builtin(formula, inner), free)
    else:
        made = objects.entering(builtin(formula, inner))
    setattr(formula, name, made)
    return made


def _new_builtin(head: np.ndarray, to: str) -> Any:
    return native.new_builtin()(ctypes.addressof(_method(to)), head, None)


unpaid = Waiting(BUILTINS)
_unpaid_spare = Waiting(BUILTINS)
_COPY = 4.0                                           # what it costs to copy a result of ten thousand elements, in calls on few of them


def repays() -> bool:
    """As `flambeau_kernels.calls_repay`: whether the builtins' code is there or in the cache, or may be compiled.

    That of those who store in their first operand does not count: few are called, and not for what others are.
    """
    return NEW in _methods or _is_in_cache(NEW) or bool(unpaid.paid_for())


def _spare_repays() -> bool:
    return BEFORE in _methods or _is_in_cache(BEFORE) or bool(_unpaid_spare.paid_for(_COPY))


@functools.cache
def _is_in_cache(to: str) -> bool:
    parts = _text(to), objects.text(to != NEW)
    return llvm.available() is not None or all(llvm.is_cached(part, llvm.PLAIN) for part in parts)


_methods: dict[str, Any] = {}                         # what builtins are made of, by where they store


def _method(to: str) -> Any:
    if to not in _methods:
        name, fastcall = f"direct{to}", 0x80
        code = llvm.compile_ir(_text(to), f"flambeau_{name}", llvm.PLAIN)
        _methods[to] = never_freed(native.MethodDef(name.encode(), code, fastcall, None))
    return _methods[to]


def _text(to: str) -> str:
    helpers = [fastcall._none(), fastcall._fits(), fastcall._same_shape(), fastcall._count(), fastcall._no_overlap(),
               fastcall._new_array()]
    mark = '!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}\n'
    return "\n".join([*helpers, _RUN, _builtin(f"flambeau_direct{to}", to), mark])


_RUN = f"""
declare i64 @llvm.smin.i64(i64, i64)
declare double @llvm.fabs.f64(double)

; Chunk number i of the work {{entry, pointers, elements, elements of a chunk, of which the first has less, chunks}}.
define internal void @chunk(i64 %i, ptr %work) {{
entry:
{at("e", "%work", 0, "ptr")}{at("pointers", "%work", 1, "ptr")}{at("n", "%work", 2)}{at("grain", "%work", 3)}
{at("arguments", "%e", ARGUMENTS)}{at("kernel", "%e", KERNEL, "ptr")}
  %strides = getelementptr i64, ptr %e, i64 {STRIDES}
  %here = alloca ptr, i64 {MOST_ARGUMENTS + 1}
{at("less", "%work", 4)}{at("chunks", "%work", 5)}
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
{at("shared", "%e", SHARED_FROM)}{at("usual", "%e", GRAIN)}{at("release", "%e", RELEASE_FROM)}
{at("jring", "%head", RING, "ptr")}
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
{at("arguments", "%e", ARGUMENTS)}
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
{at("pool", "%head", POOL, "ptr")}{at("parallel", "%head", PARALLEL, "ptr")}
{at("save", "%head", SAVE, "ptr")}{at("restore", "%head", RESTORE, "ptr")}
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


def _finish(to: str) -> str:
    """Lines that give ``%made``, of the shape of ``%whole``."""
    if to:
        # Another shape is the caller's to refuse, or to give to what is stored in.
        alike = "  %a0.alike = call i1 @same_shape(ptr %whole, ptr %a0)\n" if to == BEFORE else "  %a0.alike = or i1 true, %a0.fits\n"
        return f"""
  %a0 = load ptr, ptr %args.given
  %a0.fits = call i1 @fits(ptr %table, ptr %a0, ptr %out, i32 {pyabi.C_CONTIGUOUS | pyabi.WRITEABLE})
  br i1 %a0.fits, label %shapes, label %next
shapes:
{alike}  br i1 %a0.alike, label %overlaps, label %refuse
overlaps:
  %out.slot = mul i64 %arguments, {2 if to == BEFORE else 0}
  %stride0.slot = add i64 %out.slot, {STRIDES}
  %stride0.at = getelementptr i64, ptr %e, i64 %stride0.slot
  %stride0 = load i64, ptr %stride0.at
  %bytes0 = mul i64 %n, %stride0
  br label %other
other:
  %o = phi i64 [0, %overlaps], [%onext, %beside]
  %o.kind.at = getelementptr i64, ptr %kinds, i64 %o
  %o.kind = load i64, ptr %o.kind.at
  %o.array = icmp ugt i64 %o.kind, {INTEGER}
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
  %made = load ptr, ptr %args.given
{of_table("incref")}
  call void %incref(ptr %made)
"""
    return f"""
{field("ndim", "%whole", pyabi.NDIM, "i32")}{field("shape", "%whole", pyabi.SHAPE, "ptr")}
  %made = call ptr @new_array(ptr %table, ptr %out, i32 %ndim, ptr %shape)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %go
error:
  ret ptr null
go:
"""


def _builtin(name: str, to: str) -> str:
    """The builtin that tries the entries in turn: those whose arguments these are, from their least size on."""
    return f"""
define ptr @{name}(ptr %self, ptr %args.given, i64 %nargs.given) {{
entry:
  %args = getelementptr ptr, ptr %args.given, i64 {int(to == BEFORE)}
  %nargs = sub i64 %nargs.given, {int(to == BEFORE)}
{field("head", "%self", pyabi.DATA, "ptr")}{at("table", "%head", TABLE, "ptr")}{at("count", "%head", COUNT)}
{of_table("ndarray")}{of_table("float")}{of_table("int")}{of_table("int_value")}
  %entries = getelementptr i64, ptr %head, i64 {ENTRIES}
  %pointers = alloca ptr, i64 {MOST_ARGUMENTS + 1}
  %numbers = alloca i64, i64 {MOST_ARGUMENTS}
  %overflow = alloca i32
  %question = alloca i64, i64 6
  %answer = alloca i64, i64 {direct_layout.ANSWER}
  br label %try
try:
  %j = phi i64 [0, %entry], [%jnext, %next]
  %any = icmp slt i64 %j, %count
  br i1 %any, label %look, label %refuse
{_TAKE_ARGUMENTS}all:
{at("least", "%e", LEAST)}{at("kernel", "%e", KERNEL)}
  %has.kernel = icmp ne i64 %kernel, 0
  %in.one = and i1 %plain, %has.kernel
  br i1 %in.one, label %one.row, label %rows
{_answer_in_one_row(to)}{_answer_in_rows(to)}refuse:
  %none = call ptr @none(ptr %table)
  ret ptr %none
}}
"""


# Lines that go on to the next entry unless its kinds are those of the arguments, whose addresses go to ``%pointers``. ``%whole`` is the
# first array, ``%plain`` whether all are contiguous and of its shape.
_TAKE_ARGUMENTS = f"""\
look:
  %j.away = mul i64 %j, {ENTRY}
  %e = getelementptr i64, ptr %entries, i64 %j.away
{at("arguments", "%e", ARGUMENTS)}{at("out", "%e", OUT, "ptr")}
  %kinds = getelementptr i64, ptr %e, i64 {KINDS}
  %as.many = icmp eq i64 %arguments, %nargs
  br i1 %as.many, label %argument, label %next
argument:
  %k = phi i64 [0, %look], [%knext, %taken]
  %whole.before = phi ptr [null, %look], [%whole, %taken]
  %plain.before = phi i1 [true, %look], [%plain, %taken]
  %kind.at = getelementptr i64, ptr %kinds, i64 %k
  %kind = load i64, ptr %kind.at
  %item.at = getelementptr ptr, ptr %args, i64 %k
  %item = load ptr, ptr %item.at
  %slot = getelementptr ptr, ptr %pointers, i64 %k
  %number = getelementptr i64, ptr %numbers, i64 %k
{field("type", "%item", pyabi.TYPE, "ptr")}
  switch i64 %kind, label %array [i64 {FLOAT}, label %floating  i64 {INTEGER}, label %integer]
floating:
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %float.value, label %next
float.value:
{field("double", "%item", pyabi.FLOAT_VALUE, "double")}{at("bound", "%e", BOUND, "double")}
  %size = call double @llvm.fabs.f64(double %double)
  %beyond.it = fcmp ogt double %size, %bound
  %finite = fcmp olt double %size, 0x7FF0000000000000
  %outside = and i1 %beyond.it, %finite
  store double %double, ptr %number
  store ptr %number, ptr %slot
  br i1 %outside, label %refuse, label %taken
integer:
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %int.value, label %next
int.value:
  %value = call i64 %int_value(ptr %item, ptr %overflow)
  %beyond = load i32, ptr %overflow
{at("low", "%e", LOW)}{at("high", "%e", HIGH)}
  %above = icmp sge i64 %value, %low
  %below = icmp sle i64 %value, %high
  %within = and i1 %above, %below
  %exact = icmp eq i32 %beyond, 0
  %usable = and i1 %within, %exact
  store i64 %value, ptr %number
  store ptr %number, ptr %slot
  br i1 %usable, label %taken, label %refuse
array:
  %wanted = inttoptr i64 %kind to ptr
  %fits = call i1 @fits(ptr %table, ptr %item, ptr %wanted, i32 {pyabi.ALIGNED})
  br i1 %fits, label %shaped, label %next
shaped:
{field("data", "%item", pyabi.DATA, "ptr")}
  store ptr %data, ptr %slot
{field("flags", "%item", pyabi.FLAGS, "i32")}
  %by.rows = and i32 %flags, {pyabi.C_CONTIGUOUS}
  %contiguous = icmp ne i32 %by.rows, 0
  %plain.too = and i1 %plain.before, %contiguous
  %first = icmp eq ptr %whole.before, null
  br i1 %first, label %taken, label %again
again:
  %alike = call i1 @same_shape(ptr %whole.before, ptr %item)
  %plain.still = and i1 %plain.too, %alike
  br label %taken
taken:
  %whole = phi ptr [%whole.before, %float.value], [%whole.before, %int.value], [%item, %shaped], [%whole.before, %again]
  %plain = phi i1 [%plain.before, %float.value], [%plain.before, %int.value], [%plain.too, %shaped], [%plain.still, %again]
  %knext = add i64 %k, 1
  %more = icmp slt i64 %knext, %nargs
  br i1 %more, label %argument, label %all, !llvm.loop !0
next:
  %jnext = add i64 %j, 1
  br label %try, !llvm.loop !0
"""


def _answer_in_one_row(to: str) -> str:
    """Lines that answer for contiguous operands of one shape."""
    return f"""\
one.row:
  %n = call i64 @count(ptr %whole)
  %enough = icmp sge i64 %n, %least
  br i1 %enough, label %finish, label %refuse
finish:
{_finish(to)}
  %last = getelementptr ptr, ptr %pointers, i64 %nargs
  %made.data.at = getelementptr i8, ptr %made, i64 {pyabi.DATA}
  %made.data = load ptr, ptr %made.data.at
  store ptr %made.data, ptr %last
  call void @run(ptr %head, ptr %e, ptr %pointers, i64 %n)
  ret ptr %made
"""


def _answer_in_rows(to: str) -> str:
    """Lines that answer for operands that are laid out first, see `direct_layout`, which knows no array beside them and their result."""
    if to == BEFORE:
        return "rows:\n  br label %refuse\n"
    return f"""\
rows:
{at("layout", "%head", LAYOUT, "ptr")}{at("execute", "%head", EXECUTE, "ptr")}
  %rows.known = icmp ne ptr %layout, null
  br i1 %rows.known, label %rows.ask, label %refuse
rows.ask:
  store ptr %e, ptr %question
{"".join(_put("question", slot, value) for slot, value in ((1, "ptr %args"), (2, "ptr %pointers"), (3, "ptr %answer"),
                                                         (4, f"i64 {int(to == FIRST)}"), (5, "ptr %head")))}
  call void %layout(i64 0, ptr %question)
  %rows.n = load i64, ptr %answer
  %rows.right = icmp sge i64 %rows.n, %least
  br i1 %rows.right, label %rows.make, label %refuse
rows.make:
{_make_strided(to)}
  %rows.last = getelementptr ptr, ptr %pointers, i64 %nargs
{field("rows.data", "%rows.made", pyabi.DATA, "ptr")}
  store ptr %rows.data, ptr %rows.last
  %plan = getelementptr i64, ptr %answer, i64 {direct_layout.PLAN}
{at("jring", "%head", RING, "ptr")}{at("rows.chunks", "%plan", native.CHUNKS)}{journal.ir("j", "%e", "%rows.chunks")}
{at("rows.release", "%plan", native.RELEASE)}
  %rows.long = icmp ne i64 %rows.release, 0
  br i1 %rows.long, label %rows.free, label %rows.held
rows.free:
{at("save", "%head", SAVE, "ptr")}{at("restore", "%head", RESTORE, "ptr")}
  %state = call ptr %save()
  call void %execute(ptr %plan, ptr %pointers)
  call void %restore(ptr %state)
  br label %rows.done
rows.held:
  call void %execute(ptr %plan, ptr %pointers)
  br label %rows.done
rows.done:
  ret ptr %rows.made
"""


def _put(base: str, slot: int, value: str) -> str:
    return f"  %{base}.{slot} = getelementptr i64, ptr %{base}, i64 {slot}\n  store {value}, ptr %{base}.{slot}\n"


def _make_strided(to: str) -> str:
    """Lines that give ``%rows.made``, whose shape and order are in the answer."""
    if to == FIRST:
        return f"""
  %rows.made = load ptr, ptr %args
  %rows.fits = call i1 @fits(ptr %table, ptr %rows.made, ptr %out, i32 {pyabi.WRITEABLE})
  br i1 %rows.fits, label %rows.go, label %refuse
rows.go:
{of_table("incref").replace("%incref", "%rows.incref")}
  call void %rows.incref(ptr %rows.made)
"""
    return f"""
{at("rows.ndim", "%answer", direct_layout.NDIM)}{at("rows.order", "%answer", direct_layout.IN_ROWS)}
  %rows.shape = getelementptr i64, ptr %answer, i64 {direct_layout.SHAPE}
  %rows.steps = getelementptr i64, ptr %answer, i64 {direct_layout.STEPS}
  %rows.ndim32 = trunc i64 %rows.ndim to i32
  %rows.usual = icmp ne i64 %rows.order, 0
  %rows.strides = select i1 %rows.usual, ptr null, ptr %rows.steps
{of_table("new_array")}{of_table("incref")}
  call void %incref(ptr %out)
  %rows.made = call ptr %new_array(ptr %ndarray, ptr %out, i32 %rows.ndim32, ptr %rows.shape, ptr %rows.strides,
                                   ptr null, i32 0, ptr null)
  %rows.failed = icmp eq ptr %rows.made, null
  br i1 %rows.failed, label %rows.error, label %rows.go
rows.error:
  ret ptr null
rows.go:
"""
