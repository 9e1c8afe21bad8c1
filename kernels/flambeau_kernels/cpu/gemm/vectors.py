"""Block functions for the product of a matrix and one or a few vectors, which is as fast as the matrix can be read.

Both have the signature of `driver.py`; B's vectors have the type of the sums and are contiguous along k.

`dots` is for rows that are contiguous along k: every element of the result has sums of its own, one per lane of a register or
two, added up at the end in a fixed order. `combinations` is for a single vector and columns that are contiguous (rows of A one
element apart): it adds up multiples of whole columns, by one fused multiply-add per element in the order of k and in steps of the
same depth as `block.py`, and so has the bits of the general product.
"""

from __future__ import annotations

import functools

import numpy as np

from flambeau_kernels.cpu.gemm import driver
from flambeau_kernels.cpu.gemm.block import depth
from flambeau_kernels.cpu.gemm.text import METADATA, Function, compiled
from flambeau_kernels.cpu.gemm.tiles import Kind
from flambeau_kernels.cpu.gemm.values import (
    declarations,
    load_masked,
    mask,
    narrow,
    splat,
    store_masked,
    widen,
)

TOGETHER = 4                                          # rows, or vectors, that share what is loaded of the others
COLUMNS_AT_ONCE = 8                                   # columns added per pass over the sums
SUMS = 4096                                           # of a pass, which stay in the first cache


@functools.cache
def dots(kind: Kind) -> int:
    """Address of the block function for rows contiguous along k."""
    return compiled(f"dots_{kind.dtype}_{kind.out}", kind, lambda: _module(kind, _dots(kind)))


@functools.cache
def combinations(kind: Kind) -> int:
    """Address of the block function for columns contiguous along m; `prepare` the plan."""
    return compiled(f"combinations_{kind.dtype}_{kind.out}", kind, lambda: _module(kind, _combinations(kind)))


def prepare(plan: np.ndarray, kind: Kind) -> None:
    """Fill in what `combinations` reads."""
    plan[driver.DEPTH] = depth(kind, int(plan[driver.K]))
    plan[driver.PARTIAL] = SUMS * 8
    plan[driver.SCRATCH] = 2 * SUMS * 8
    plan[driver.BLOCK] = combinations(kind)


def _module(kind: Kind, function: Function) -> str:
    return declarations(kind) + function.text() + METADATA


def _lanes(kind: Kind) -> int:
    return kind.machine.vector // kind.sum_size


def _multiply_add(f: Function, kind: Kind, a: str, b: str, c: str) -> str:
    lanes = _lanes(kind)
    total = f"<{lanes} x {kind.sum}>"
    if kind.sum in ("float", "double"):
        bits = 32 if kind.sum == "float" else 64
        return f.let(f"call {total} @llvm.fma.v{lanes}f{bits}({total} {a}, {total} {b}, {total} {c})")
    return f.let(f"add {total} {f.let(f'mul {total} {a}, {b}')}, {c}")


def _plus(kind: Kind) -> str:
    return "fadd" if kind.sum in ("float", "double") else "add"


# -- rows ----------------------------------------------------------------------------------------------------------------


def _dots(kind: Kind) -> Function:
    f = Function(f"void @dots_{kind.dtype}_{kind.out}"
                 "(ptr %plan, ptr %a, ptr %b, ptr %c, ptr %bias, ptr %beside, i64 %m, i64 %n, ptr %scratch)")  # fmt: skip
    for first_row, end_row, rows in _groups(f, "%m"):
        with f.loop(first_row, end_row, rows) as i:
            for first_column, end_column, columns in _groups(f, "%n"):
                with f.loop(first_column, end_column, columns) as j:
                    _square(f, kind, i, j, rows, columns)
    f.do("ret void")
    return f


def _groups(f: Function, count: str) -> tuple[tuple[str | int, str, int], ...]:
    """Where groups of `TOGETHER` begin and end, and the single ones that are left."""
    tail = f.mul(f.div(count, TOGETHER), TOGETHER)
    return (0, tail, TOGETHER), (tail, count, 1)


def _square(f: Function, kind: Kind, i: str, j: str, rows: int, columns: int) -> None:
    """The elements of some rows and columns of the result."""
    lanes, size = _lanes(kind), kind.sum_size
    total, stored = f"<{lanes} x {kind.sum}>", f"<{lanes} x {kind.stored}>"
    k, a_m, b_n = (f.field("%plan", slot) for slot in (driver.K, driver.A_M, driver.B_N))
    a = [f.at("%a", f.mul(f.add(i, r), a_m)) for r in range(rows)]
    b = [f.at("%b", f.mul(f.add(j, c), b_n)) for c in range(columns)]
    # Enough sums that an addition need not wait for the one before.
    registers = 1 if rows * columns > TOGETHER else 2
    sums = [[[f.variable(total) for _ in range(registers)] for _ in b] for _ in a]
    for place in (place for row in sums for places in row for place in places):
        f.store(total, "zeroinitializer", place)
    full = f.mul(f.div(k, registers * lanes), registers * lanes)
    rest = f.sub(k, full)

    def step(at: str, which: list[str] | None) -> None:
        for v in range(registers):
            here = f.add(at, v * lanes)
            right = [_part(f, total, kind.sum, lanes, f.at(x, f.mul(here, size)), which and which[v], size) for x in b]
            for row, places in zip(a, sums, strict=True):
                value = _part(f, stored, kind.stored, lanes, f.at(row, f.mul(here, kind.size)), which and which[v], kind.size)
                wide = widen(f, kind, value, lanes)
                for x, registers_of in zip(right, places, strict=True):
                    place = registers_of[v]
                    f.store(total, _multiply_add(f, kind, wide, x, f.load(total, place)), place)

    with f.loop(0, full, registers * lanes) as at:
        step(at, None)
    with f.when(f.compare("ne", rest, 0)):
        step(full, [mask(f, rest, lanes, v * lanes) for v in range(registers)])
    for r, row in enumerate(sums):
        for c, places in enumerate(row):
            _write_one(f, kind, f.add(i, r), f.add(j, c), _added_up(f, kind, [f.load(total, place) for place in places]))


def _part(f: Function, tail: str, kind: str, lanes: int, place: str, which: str | list[str] | None, align: int) -> str:
    return load_masked(f, kind, lanes, place, str(which), align) if which else f.load(tail, place, align)


def _added_up(f: Function, kind: Kind, registers: list[str]) -> str:
    """The sum of all lanes: of registers, then of halves of one, down to two lanes."""
    lanes = _lanes(kind)
    value = registers[0]
    for other in registers[1:]:
        value = f.let(f"{_plus(kind)} <{lanes} x {kind.sum}> {value}, {other}")
    while lanes > 1:
        half = lanes // 2
        parts = []
        for start in (0, half):
            order = ", ".join(f"i32 {start + e}" for e in range(half))
            parts.append(f.let(f"shufflevector <{lanes} x {kind.sum}> {value}, <{lanes} x {kind.sum}> poison, <{half} x i32> <{order}>"))
        value = f.let(f"{_plus(kind)} <{half} x {kind.sum}> {parts[0]}, {parts[1]}")
        lanes = half
    return f.let(f"extractelement <1 x {kind.sum}> {value}, i64 0")


def _write_one(f: Function, kind: Kind, i: str, j: str, value: str) -> None:
    target = f.at(f.at("%c", f.mul(i, f.field("%plan", driver.C_M))), f.mul(j, f.field("%plan", driver.C_N)))
    flags, held = f.field("%plan", driver.FLAGS), f.variable(kind.sum)
    f.store(kind.sum, value, held)
    if kind.written == kind.sum:
        with f.when(f.bit(flags, driver.ACCUMULATE)):
            old = f.load(kind.sum, target, kind.written_size)
            f.store(kind.sum, f.let(f"{_plus(kind)} {kind.sum} {f.load(kind.sum, held)}, {old}"), held)
    with f.when(f.bit(flags, driver.ADD_BIAS)):
        offset = f.add(f.mul(i, f.field("%plan", driver.BIAS_M)), f.mul(j, f.field("%plan", driver.BIAS_N)))
        bias = f.load(kind.sum, f.at("%bias", offset))
        f.store(kind.sum, f.let(f"{_plus(kind)} {kind.sum} {f.load(kind.sum, held)}, {bias}"), held)
    f.store(kind.written, narrow(f, kind, f.load(kind.sum, held), 1), target, kind.written_size)


# -- columns ---------------------------------------------------------------------------------------------------------------


def _combinations(kind: Kind) -> Function:
    """The rows of the block, `SUMS` at a time: sums of the steps along k, in `scratch`, and of the steps before, behind them."""
    f = Function(f"void @combinations_{kind.dtype}_{kind.out}"
                 "(ptr %plan, ptr %a, ptr %b, ptr %c, ptr %bias, ptr %beside, i64 %m, i64 %n, ptr %scratch)")  # fmt: skip
    lanes, size = _lanes(kind), kind.sum_size
    k, deep, a_k = (f.field("%plan", slot) for slot in (driver.K, driver.DEPTH, driver.A_K))
    before = f.at("%scratch", f.field("%plan", driver.PARTIAL))
    with f.loop(0, "%m", SUMS) as i:
        count = f.least(SUMS, f.sub("%m", i))
        start = f.at("%a", f.mul(i, kind.size))
        with f.loop(0, k, deep) as k0:
            end = f.least(f.add(k0, deep), k)
            tail = f.add(k0, f.mul(f.div(f.sub(end, k0), COLUMNS_AT_ONCE), COLUMNS_AT_ONCE))
            half = f.add(tail, f.mul(f.div(f.sub(end, tail), COLUMNS_AT_ONCE // 2), COLUMNS_AT_ONCE // 2))
            _clear(f, kind, count)
            for low, high, together in ((k0, tail, COLUMNS_AT_ONCE), (tail, half, COLUMNS_AT_ONCE // 2), (half, end, 1)):
                with f.loop(low, high, together) as here:
                    columns = [f.at(start, f.mul(f.add(here, c), a_k)) for c in range(together)]
                    x = [splat(f, kind.sum, f.load(kind.sum, f.at("%b", f.mul(f.add(here, c), size)), size), lanes)
                         for c in range(together)]  # fmt: skip
                    _add_columns(f, kind, columns, x, count)
            later = f.compare("ne", k0, 0)
            with f.loop(0, count, lanes) as r:
                total = f"<{lanes} x {kind.sum}>"
                place = f.at(before, f.mul(r, size))
                value = f.load(total, f.at("%scratch", f.mul(r, size)), size)
                both = f.let(f"{_plus(kind)} {total} {value}, {f.load(total, place, size)}")
                f.store(total, f.let(f"select i1 {later}, {total} {both}, {total} {value}"), place, size)
        alone = f.both(f.compare("eq", f.let(f"and i64 {f.field('%plan', driver.FLAGS)}, {driver.ACCUMULATE | driver.ADD_BIAS}"), 0),
                       f.compare("eq", f.field("%plan", driver.C_M), kind.written_size))  # fmt: skip
        with f.when(alone):
            _write_all(f, kind, f.at("%c", f.mul(i, kind.written_size)), before, count)
        with f.unless(alone), f.loop(0, count) as r:
            _write_one(f, kind, f.add(i, r), "0", f.load(kind.sum, f.at(before, f.mul(r, size))))
    f.do("ret void")
    return f


def _write_all(f: Function, kind: Kind, c: str, sums: str, count: str) -> None:
    """`count` sums, to where they lie one behind the other."""
    lanes = _lanes(kind)
    total, written = f"<{lanes} x {kind.sum}>", f"<{lanes} x {kind.written}>"
    full = f.mul(f.div(count, lanes), lanes)
    with f.loop(0, full, lanes) as r:
        value = f.load(total, f.at(sums, f.mul(r, kind.sum_size)), kind.sum_size)
        f.store(written, narrow(f, kind, value, lanes), f.at(c, f.mul(r, kind.written_size)), kind.written_size)
    with f.loop(full, count) as r:
        value = f.load(kind.sum, f.at(sums, f.mul(r, kind.sum_size)))
        f.store(kind.written, narrow(f, kind, value, 1), f.at(c, f.mul(r, kind.written_size)), kind.written_size)


def _clear(f: Function, kind: Kind, count: str) -> None:
    lanes = _lanes(kind)
    with f.loop(0, count, lanes) as r:
        f.store(f"<{lanes} x {kind.sum}>", "zeroinitializer", f.at("%scratch", f.mul(r, kind.sum_size)), kind.sum_size)


def _add_columns(f: Function, kind: Kind, columns: list[str], x: list[str], count: str) -> None:
    lanes, size = _lanes(kind), kind.sum_size
    total, stored = f"<{lanes} x {kind.sum}>", f"<{lanes} x {kind.stored}>"
    full = f.mul(f.div(count, lanes), lanes)
    with f.loop(0, full, lanes) as r:
        place = f.at("%scratch", f.mul(r, size))
        value = f.load(total, place, size)
        for column, factor in zip(columns, x, strict=True):
            element = widen(f, kind, f.load(stored, f.at(column, f.mul(r, kind.size)), kind.size), lanes)
            value = _multiply_add(f, kind, element, factor, value)
        f.store(total, value, place, size)
    rest = f.sub(count, full)
    with f.when(f.compare("ne", rest, 0)):
        which = mask(f, rest, lanes, 0)
        place = f.at("%scratch", f.mul(full, size))
        value = f.load(total, place, size)
        for column, factor in zip(columns, x, strict=True):
            loaded = load_masked(f, kind.stored, lanes, f.at(column, f.mul(full, kind.size)), which, kind.size)
            value = _multiply_add(f, kind, widen(f, kind, loaded, lanes), factor, value)
        store_masked(f, kind.sum, lanes, value, place, which, size)
