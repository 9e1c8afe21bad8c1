"""Reductions: each result is made by a group of threads, in an order that its shape alone decides.

A `Fold` says what is kept of the elements seen so far (its state: one or several numbers), how an element becomes a state, how
two states become one, and what results a state gives. A block of threads holds some groups. Threads of a group take every
so-many-th element, then combine their states pairwise in shared memory, with a barrier between the steps. Where there are few
results of many elements each, these are cut into pieces first, whose states a second launch combines. Nothing is added by
atomics, so the bits of a result are the same in every run.

The pattern is 'rows' where the innermost dimension is reduced (neighbouring threads work on one result) and 'columns' where it
is kept (neighbouring threads work on neighbouring results); either way neighbouring threads read neighbouring memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels.engine.launching import loops as engine_loops
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.scalar.complexes import PARTS, ComplexSymbol
from flambeau_kernels.scalar.symbols import BOOL, I64, INT, KINDS, Block, Kind, Symbol, Unsupported, select
from flambeau_kernels.scalar.words import READING

from . import functions
from .launch import Kernel, refuse_to_compile, width
from .loops import indices, load, places, store
from .program import Program, phase

__all__ = ["Cut", "Fold", "argument_fold", "cut", "extreme_fold", "fold", "reduce", "reduction_fold", "variance_fold"]

THREADS = 256
# Threads that keep a large device busy, and elements that are worth a thread.
BUSY = 1 << 16
WORTH = 16
MOST_PIECES = 1024

State = tuple[Symbol, ...]


@dataclass(frozen=True)
class Fold:
    """A reduction. All functions are of symbols; `key` tells folds apart.

    Attributes: `kinds` of the numbers of a state; `empty`, the state of no elements; ``term(x, at)``, the state of element `x`
    at place `at` among the reduced ones; ``combine(a, b)``; ``finish(state, count)``, the results.
    """

    key: Any
    kinds: tuple[Kind, ...]
    empty: tuple[Any, ...]
    term: Callable[[Any, Symbol], State]
    combine: Callable[[State, State], State]
    finish: Callable[[State, Symbol], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Cut:
    """How the work is shared: the pattern, threads of a group, pieces of a result, and elements of a piece."""

    pattern: str
    lanes: int
    pieces: int
    per_piece: int


def cut(results: int, length: int, pattern: str) -> Cut:
    """The cut for so many results of `length` elements each."""
    most = 256 if pattern == "rows" else 32
    lanes = 1
    while lanes < most and lanes * 4 < length and (pattern == "rows" or results * lanes < BUSY):
        lanes *= 2
    pieces = max(1, min(-(-length // (lanes * WORTH)), BUSY // max(1, results * lanes), MOST_PIECES))
    return Cut(pattern, lanes, pieces, -(-length // pieces))


# -- what is folded ------------------------------------------------------------------------------------------------------


def reduction_fold(how: Any, compute: np.dtype) -> Fold:
    """The fold of a `cpu.reduce.Reduction` in `compute`."""
    wide = flambeau_kernels._WIDE.get(compute, compute).name
    term = (lambda x: x) if how._term is None else how._term.bind(READING)
    block = Block(PARTS.get(wide) or KINDS[wide])
    sample = engine_loops.as_symbol(block, term(engine_loops.widen(block, 0, Operand(wide, "g"), wide)))
    is_complex = isinstance(sample, ComplexSymbol)
    # Truth values are counted, not combined, where they are added up.
    kind = I64 if sample.kind is BOOL and how.combine in ("add", "mul") else sample.kind
    combine = _COMBINE[how.combine]

    def state_of(state: State) -> Any:
        return ComplexSymbol(*state) if is_complex else state[0]

    def parts(x: Any) -> State:
        return (x.re, x.im) if isinstance(x, ComplexSymbol) else (x.to(kind),)

    def finish(state: State, count: Symbol) -> tuple[Any, ...]:
        total = state_of(state)
        if how._finish is None:
            return (total,)
        n = count.to(state[0].kind)
        return (how._finish.bind(READING)(total, _Count(n.block, n.name, n.kind)),)

    start = _empty(how.combine, kind)
    return Fold(
        ("reduction", how.name, how.combine, how._term and how._term.key, how._finish and how._finish.key, wide),
        (kind, kind) if is_complex else (kind,), (start, 0.0) if is_complex else (start,),
        lambda x, at: parts(term(x)), lambda a, b: parts(combine(state_of(a), state_of(b))), finish,
    )  # fmt: skip


class _Count(Symbol):
    """The number of reduced elements, which is not 0 where a kernel runs."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return True


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": READING["maximum"], "min": READING["minimum"],
    "and": lambda a, b: a.to(BOOL) & b.to(BOOL), "or": lambda a, b: a.to(BOOL) | b.to(BOOL),
}  # fmt: skip


def _empty(combine: str, kind: Kind) -> Any:
    """What changes nothing when it is combined with a number of `kind`."""
    if combine in ("add", "or"):
        return False if kind is BOOL else 0
    if combine in ("mul", "and"):
        return True if kind is BOOL else 1
    if kind is BOOL:
        return combine == "min"
    if kind.family == "f":
        return float("inf") if combine == "min" else -float("inf")
    low = -(1 << kind.bits - 1) if kind.family == "i" else 0
    return low if combine == "max" else low + (1 << kind.bits) - 1


def extreme_fold(largest: bool, compute: np.dtype) -> Fold:
    """The largest or smallest element and where it is: nan before all others, the first of equals."""
    kind = KINDS[flambeau_kernels._WIDE.get(compute, compute).name]

    def combine(a: State, b: State) -> State:
        x, y = a[0], b[0]
        if kind is BOOL:
            x, y = x.to(INT[8]), y.to(INT[8])
        better = x > y if largest else x < y
        alike = x == y
        if kind.family == "f":
            better = better | ((x != x) & (y == y))
            better = better & ~((y != y) & (x == x))
            alike = alike | ((x != x) & (y != y))
        first = better | (alike & (a[1] < b[1]))
        return select(first, a[0], b[0]), select(first, a[1], b[1])

    empty = _empty("max" if largest else "min", kind)
    return Fold(("extreme", largest, kind), (kind, I64), (empty, (1 << 63) - 1), lambda x, at: (x, at), combine, lambda s, n: s)


def argument_fold(largest: bool, compute: np.dtype) -> Fold:
    """Where the largest or smallest element is."""
    fold = extreme_fold(largest, compute)
    return Fold(("argument", *fold.key), fold.kinds, fold.empty, fold.term, fold.combine, lambda s, n: (s[1],))


def variance_fold(compute: np.dtype, correction: float) -> Fold:
    """Squared deviations from the mean over ``count - correction`` (Chan, Golub and LeVeque 1983, The American Statistician 37)."""
    kind = KINDS[flambeau_kernels._WIDE.get(compute, compute).name]

    def combine(a: State, b: State) -> State:
        n = a[0] + b[0]
        share = b[0] / select(n == 0, 1.0, n)
        deviation = b[1] - a[1]
        return n, a[1] + deviation * share, a[2] + b[2] + deviation * deviation * a[0] * share

    def finish(state: State, count: Symbol) -> tuple[Any, ...]:
        free = count.to(kind) - float(correction)
        return (state[2] / select(free > 0, free, 0.0),)

    return Fold(
        ("variance", kind, float(correction)), (kind,) * 3, (0.0,) * 3, lambda x, at: (x.const(1.0), x, x.const(0.0)), combine, finish
    )


# -- running -------------------------------------------------------------------------------------------------------------


def reduce(how: Any, a: Any, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype) -> Any:
    """`how`, a `cpu.reduce.Reduction`, over `axes` of the device array `a`; otherwise as `cpu.reduce.reduce`.

    Raises: NotImplementedError for what kernels cannot express.
    """
    if flambeau_kernels.backend() == "numpy":
        return _by_expressions(how, a, axes, keepdim, accumulate, result)
    try:
        made = reduction_fold(how, accumulate)
    except Unsupported as unsupported:
        raise NotImplementedError(f"{how.name}: no kernel for CUDA: no code for {unsupported}") from None
    if a.size == 0:
        from flambeau_kernels.cpu.reductions.reduce import reduce_by_numpy

        nothing = reduce_by_numpy(how, np.empty(a.shape, a.dtype), axes, keepdim, accumulate, result)
        made_empty = a.__class__(nothing.shape, result)
        if nothing.size:
            made_empty[...] = nothing.reshape(-1)[0]
        return made_empty
    return fold(made, a, axes, keepdim, accumulate, (result,))[0]


_EXPRESSIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "and": "all", "or": "any"}


def _by_expressions(how: Any, a: Any, axes: tuple[int, ...], keepdim: bool, accumulate: np.dtype, result: np.dtype) -> Any:
    x = how.mapped(a.astype(flambeau_kernels._WIDE.get(accumulate) or accumulate))
    x = getattr(x, _EXPRESSIONS[how.combine])(axis=axes, keepdims=keepdim) if axes else x
    count = a.size // x.size if x.size else 0
    return how.finished(x, count).astype(result)


def fold(how: Fold, a: Any, axes: tuple[int, ...], keepdim: bool, compute: np.dtype, results: tuple[np.dtype, ...]) -> list[Any]:
    """The results of `how` over `axes` of `a`, which is not empty there, as new row-major arrays of the dtypes `results`."""
    refuse_to_compile(str(how.key[0]))
    kept = _merged(a, [d for d in range(a.ndim) if d not in axes])
    reduced = _merged(a, list(axes))
    shape = tuple(1 if d in axes else n for d, n in enumerate(a.shape) if keepdim or d not in axes)
    outs = [a.__class__(shape, d) for d in results]
    count = outs[0].size
    if not count:
        return outs
    length = a.size // count
    pattern = "columns" if kept and min(abs(s) for _, s in kept) < min(abs(s) for _, s in reduced) else "rows"
    shared = cut(count, length, pattern)
    wide = width([(n, (s,)) for n, s in (*kept, *reduced)])
    compute_name = flambeau_kernels._WIDE.get(compute, compute).name
    operands = tuple(Operand(d.name, "g") for d in results)
    first = Operand(a.dtype.name, "g")
    numbers = [*(n for n, _ in kept[1:]), *(s for _, s in kept), *(n for n, _ in reduced[1:]), *(s for _, s in reduced)]
    if shared.pieces == 1:
        kernel = _kernel(how, (first,), operands, compute_name, shared, (len(kept), len(reduced)), wide, True, True)
        _run(kernel, shared, count, length, length, [a], outs, numbers)
        return outs
    states = [a.__class__((count * shared.pieces,), _stored(kind)) for kind in how.kinds]
    partial = tuple(Operand(s.dtype.name, "g") for s in states)
    kernel = _kernel(how, (first,), partial, compute_name, shared, (len(kept), len(reduced)), wide, True, False)
    _run(kernel, shared, count, length, length, [a], states, numbers)
    last = Cut("rows", cut(count, shared.pieces, "rows").lanes, 1, shared.pieces)
    kernel = _kernel(how, partial, operands, compute_name, last, (1, 1), wide, False, True)
    _run(kernel, last, count, shared.pieces, length, states, outs, [shared.pieces, 1])
    return outs


def _merged(a: Any, axes: list[int]) -> list[tuple[int, int]]:
    """Lengths and strides of dimensions `axes`, in order, neighbours joined where they can be walked as one."""
    merged: list[tuple[int, int]] = []
    for d in axes:
        n, stride = a.shape[d], a.strides[d]
        if n == 1:
            continue
        if merged and merged[-1][1] == n * stride:
            merged[-1] = (merged[-1][0] * n, stride)
        else:
            merged.append((n, stride))
    return merged or [(1, a.itemsize)]


def _stored(kind: Kind) -> np.dtype:
    return np.dtype(np.bool_ if kind is BOOL else kind.name)


def _run(
    kernel: Kernel, shared: Cut, count: int, length: int, length_of_all: int, sources: list[Any], outs: list[Any], numbers: list[int],
) -> None:
    groups = THREADS // shared.lanes
    facts = [count * shared.pieces, count, shared.pieces, shared.per_piece, length, length_of_all]
    kernel(-(-count * shared.pieces // groups), [*(x.data.ptr for x in (*sources, *outs)), *facts, *numbers])


_kernels: dict[Any, Kernel] = {}


def _kernel(how: Fold, sources: tuple[Operand, ...], outs: tuple[Operand, ...], compute: str, shared: Cut, dims: tuple[int, int],
            wide: bool, reads: bool, finishes: bool) -> Kernel:  # fmt: skip
    """The kernel of one stage: of elements if it `reads` them, else of states; giving results if it `finishes`, else states."""
    key = (how.key, sources, outs, compute, shared.pattern, shared.lanes, shared.pieces > 1, dims, wide, reads, finishes)
    found = _kernels.get(key)
    if found is None:
        writer = _Writer(how, sources, outs, compute, shared.pattern, shared.lanes, dims, wide, reads, finishes)
        found = _kernels[key] = Kernel.of(writer.program())
    return found


# -- writing the kernel --------------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    how: Fold
    sources: tuple[Operand, ...]
    outs: tuple[Operand, ...]
    compute: str
    pattern: str
    lanes: int
    dims: tuple[int, int]
    wide: bool
    reads: bool
    finishes: bool

    def __post_init__(self) -> None:
        self.needs: set[str] = set()
        self.lacking: set[str] = set()
        self.index = "i64" if self.wide else "i32"
        kept, reduced = self.dims
        self.slots = (
            *(("ptr", f"p{k}") for k in range(len(self.sources))), *(("ptr", f"q{k}") for k in range(len(self.outs))),
            *(("i64", name) for name in ("total", "results", "pieces", "per", "length", "whole")),
            *(("i64", f"l{d}") for d in range(1, kept)), *(("i64", f"s{d}") for d in range(kept)),
            *(("i64", f"m{d}") for d in range(1, reduced)), *(("i64", f"t{d}") for d in range(reduced)),
        )  # fmt: skip
        self.states = [Operand(_stored(kind).name, "g") for kind in self.how.kinds]

    def program(self) -> Program:
        spans = []
        half = self.lanes // 2
        while half:
            spans.append(("combine", half))
            half //= 2
        texts = [phase("gather", self.slots, self._gather()), phase("give", self.slots, self._give())]
        if spans:
            texts.append(phase("combine", self.slots, self._combine()))
        name = re.sub(r"\W", "_", f"{self.how.key[0]}_{self.how.key[1]}_{self.compute}_{self.pattern}")
        size = sum(np.dtype(s.dtype).itemsize for s in self.states)
        return Program(name, self.slots, frozenset(self.needs), "\n".join(texts), (("gather", 0), *spans, ("give", 0)),
                       frozenset(self.lacking), size * THREADS, THREADS)  # fmt: skip

    def _traced(self, prefix: str, function: Callable[[Block], tuple[Any, ...]], outs: list[Operand]) -> tuple[list[str], list[list[str]]]:
        """IR of `function` with names of its own, and the names of its results in the form `outs` store."""
        block = engine_loops.new_block(self.compute, careful=True)
        results = [engine_loops.narrow(engine_loops.as_symbol(block, r), o) for r, o in zip(function(block), outs, strict=True)]
        lines, lacking = functions.complete(block.lines)
        self.needs |= block.needs
        self.lacking |= set(lacking)
        lines = [re.sub(r"%v(\d+)\b", rf"%{prefix}\1", line) for line in lines]
        return lines, [[re.sub(r"%v(\d+)\b", rf"%{prefix}\1", name) for name in names] for names in results]

    def _state(self, block: Block, names: list[str]) -> State:
        """The state whose numbers, as stored, are called `names`."""
        made = []
        for raw, kind in zip(names, self.how.kinds, strict=True):
            made.append(block.emit(BOOL, f"icmp ne i8 {raw}, 0") if kind is BOOL else Symbol(block, raw, kind))
        return tuple(made)

    def _names(self, prefix: str) -> list[str]:
        return [f"%{prefix}{k}" for k in range(len(self.states))]

    def _combined(self, have: str, new: list[str]) -> tuple[list[str], list[list[str]]]:
        return self._traced("sum", lambda b: self.how.combine(self._state(b, self._names(have)), self._state(b, new)), self.states)

    def _place(self) -> list[str]:
        """Which group a thread is in, and its lane there."""
        groups = THREADS // self.lanes
        if self.pattern == "rows":
            lines = [f"  %lane = urem i32 %tid, {self.lanes}", f"  %group = udiv i32 %tid, {self.lanes}"]
        else:
            lines = [f"  %group = urem i32 %tid, {groups}", f"  %lane = udiv i32 %tid, {groups}"]
        widen = "zext i32 {} to i64" if self.wide else "add i32 {}, 0"
        return [*lines, f"  %o0 = mul i32 %ctaid, {groups}", "  %o1 = add i32 %o0, %group", f"  %o = {widen.format('%o1')}",
                f"  %from = {widen.format('%lane')}", *indices(self.slots, self.wide)]  # fmt: skip

    def _shared(self, at: str, prefix: str) -> list[tuple[str, Operand]]:
        """Addresses (a line each and the name) of the state of thread `at` in shared memory."""
        lines = []
        offset = 0
        for k, operand in enumerate(self.states):
            lines += [(f"  %{prefix}b{k} = getelementptr i8, ptr %shared, i32 {offset}\n"
                       f"  %{prefix}{k} = getelementptr {operand.llvm}, ptr %{prefix}b{k}, i32 {at}", operand)]  # fmt: skip
            offset += np.dtype(operand.dtype).itemsize * THREADS
        return lines

    def _load_state(self, at: str, names: str, prefix: str) -> list[str]:
        lines = []
        for k, (text, operand) in enumerate(self._shared(at, prefix)):
            lines += [text, f"  %{names}{k} = load {operand.llvm}, ptr %{prefix}{k}"]
        return lines

    def _store_state(self, at: str, values: list[list[str]], prefix: str) -> list[str]:
        lines = []
        for k, (text, operand) in enumerate(self._shared(at, prefix)):
            lines += [text, f"  store {operand.llvm} {values[k][0]}, ptr %{prefix}{k}"]
        return lines

    def _empty(self) -> list[str]:
        block = Block(self.how.kinds[0])
        names = []
        for value, kind, operand in zip(self.how.empty, self.how.kinds, self.states, strict=True):
            name = block.constant(value, kind).name
            names.append({"true": "1", "false": "0"}.get(name, name) if operand.dtype == "bool" else name)
        return names

    def _gather(self) -> list[str]:
        """Each thread's own elements."""
        index = self.index
        kept, reduced = self.dims
        rows = self.pattern == "rows"
        lines = [*self._place()]
        by = "%pieces.i" if rows else "%results.i"
        lines += [f"  %quotient = udiv {index} %o, {by}", f"  %remainder = urem {index} %o, {by}"]
        result, piece = ("%quotient", "%remainder") if rows else ("%remainder", "%quotient")
        lines += [*places(result, "l", kept, index, "d")]
        offset = "0"
        for d in range(kept):
            lines += [f"  %km{d} = mul {index} %d{d}, %s{d}.i", f"  %ko{d} = add {index} %km{d}, {offset}"]
            offset = f"%ko{d}"
        lines += [f"  %begin = mul {index} {piece}, %per.i", f"  %full = add {index} %begin, %per.i",
                  f"  %short = icmp ult {index} %full, %length.i", f"  %end = select i1 %short, {index} %full, {index} %length.i",
                  f"  %start = add {index} %begin, %from",
                  f"  %there = icmp ult {index} %o, %total.i", f"  %some = icmp ult {index} %start, %end",
                  "  %works = and i1 %there, %some", "  br i1 %works, label %loop, label %done", "loop:",
                  f"  %e = phi {index} [%start, %entry], [%e.next, %loop]"]  # fmt: skip
        empty = self._empty()
        phis = []
        for k, operand in enumerate(self.states):
            phis.append(f"  %have{k} = phi {operand.llvm} [{empty[k]}, %entry], [@@{k}, %loop]")
        lines += phis
        lines += places("%e", "m", reduced, index, "e")
        inner = offset
        for d in range(reduced):
            lines += [f"  %rm{d} = mul {index} %e{d}, %t{d}.i", f"  %ro{d} = add {index} %rm{d}, {inner}"]
            inner = f"%ro{d}"
        far = inner
        if not self.wide:
            lines.append(f"  %far = sext i32 {inner} to i64")
            far = "%far"
        if self.reads:
            source = self.sources[0]
            lines += [f"  %a0 = getelementptr i8, ptr %p0, i64 {far}", *load(source, "%a0", ("%x0", "%y0"))]
            lines.append("  %at = zext i32 %e to i64" if not self.wide else "  %at = add i64 %e, 0")

            def term(block: Block) -> tuple[Any, ...]:
                return self.how.term(engine_loops.widen(block, 0, source, self.compute), Symbol(block, "%at", I64))

            more, values = self._traced("term", term, self.states)
            lines += more
            fresh = [v[0] for v in values]
        else:
            for k, operand in enumerate(self.states):
                lines += [f"  %a{k} = getelementptr {operand.llvm}, ptr %p{k}, i64 {far}", *load(operand, f"%a{k}", (f"%x{k}", ""))]
            fresh = [f"%x{k}" for k in range(len(self.states))]
        more, values = self._combined("have", fresh)
        lines = [re.sub(r"@@(\d+)", lambda m: values[int(m[1])][0], line) for line in (*lines, *more)]
        lines += [f"  %e.next = add {index} %e, {self.lanes}", f"  %again = icmp ult {index} %e.next, %end",
                  "  br i1 %again, label %loop, label %done", "done:"]  # fmt: skip
        for k, operand in enumerate(self.states):
            lines.append(f"  %got{k} = phi {operand.llvm} [{empty[k]}, %entry], [{values[k][0]}, %loop]")
        return [*lines, *self._store_state("%tid", [[f"%got{k}"] for k in range(len(self.states))], "to"), "  ret void"]

    def _combine(self) -> list[str]:
        """One step: the first `span` lanes take in the states of the next `span`."""
        step = 1 if self.pattern == "rows" else THREADS // self.lanes
        lines = [*self._place(), "  %works = icmp ult i32 %lane, %span", "  br i1 %works, label %work, label %done", "work:",
                 f"  %away = mul i32 %span, {step}", "  %other = add i32 %tid, %away"]  # fmt: skip
        lines += [*self._load_state("%tid", "have", "own"), *self._load_state("%other", "new", "its")]
        more, values = self._combined("have", self._names("new"))
        return [*lines, *more, *self._store_state("%tid", values, "to"), "  br label %done", "done:", "  ret void"]

    def _give(self) -> list[str]:
        """The first lane of a group stores the results, or the state of a piece."""
        index = self.index
        lines = [*self._place(), "  %first = icmp eq i32 %lane, 0", f"  %there = icmp ult {index} %o, %total.i",
                 "  %works = and i1 %first, %there", "  br i1 %works, label %work, label %done", "work:",
                 *self._load_state("%tid", "have", "own")]  # fmt: skip
        if self.finishes:


            def finish(block: Block) -> tuple[Any, ...]:
                return self.how.finish(self._state(block, self._names("have")), Symbol(block, "%whole", I64))

            more, values = self._traced("end", finish, list(self.outs))
        else:
            more, values = [], [[f"%have{k}"] for k in range(len(self.states))]
        lines += more
        at = "%o"
        if self.pattern == "columns" and not self.finishes:  # pieces of one result are neighbours for the next stage
            lines += [f"  %piece = udiv {index} %o, %results.i", f"  %result = urem {index} %o, %results.i",
                      f"  %before = mul {index} %result, %pieces.i", f"  %to.at = add {index} %before, %piece"]  # fmt: skip
            at = "%to.at"
        lines.append(f"  %where = {f'zext i32 {at} to i64' if not self.wide else f'add i64 {at}, 0'}")
        for k, (operand, names) in enumerate(zip(self.outs, values, strict=True)):
            lines += [f"  %z{k} = getelementptr {operand.element}, ptr %q{k}, i64 %where", *store(operand, f"%z{k}", names)]
        return [*lines, "  br label %done", "done:", "  ret void"]
