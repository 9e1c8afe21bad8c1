"""Copying a panel of an operand into the order in which a tile reads it.

    void pack(ptr source, i64 across, i64 along, i64 width, i64 depth, ptr target, i64 vectors)

A panel is `width` rows of A (or columns of B), `across` bytes apart, by `depth` places along k, `along` bytes apart. Its copy
holds for each step along k the lanes of all rows, `vectors` registers of them; elements are converted to the type they are
multiplied in. Lanes beyond `width` hold anything: they only meet results that are not written.

Three ways, by what is contiguous: across (vectors are copied), along k (squares of vectors are transposed in registers), neither
(one element after the other). Several whole panels that are contiguous across are packed together,

    void pack_rows(ptr source, i64 along, i64 panels, i64 depth, ptr target, i64 panel_bytes)

so that long runs of memory are read; so are panels of A (`pack_a`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext

from flambeau_kernels.cpu.gemm.text import METADATA, Function, compiled
from flambeau_kernels.cpu.gemm.tiles import Kind
from flambeau_kernels.cpu.gemm.values import declarations, load_masked, mask, vector, widen

LINE = 64                                              # bytes of a cache line
AHEAD = 512                                            # bytes along k that are asked for before they are transposed
ROWS_AHEAD = 8                                         # steps along k that are asked for before they are copied


@functools.cache
def address(kind: Kind) -> int:
    """Address of `pack` for operands of this kind."""
    return compiled("pack", kind, lambda: declarations(kind) + pack(kind).text() + METADATA)


def pack(kind: Kind) -> Function:
    f = Function("void @pack(ptr %source, i64 %across, i64 %along, i64 %width, i64 %depth, ptr %target, i64 %vectors)")
    across = f.compare("eq", "%across", kind.size)
    row_bytes = f.mul("%vectors", kind.lanes * kind.lane_size)
    with f.when(across):
        _copy(f, kind, row_bytes)
        f.do("ret void")
        f.label(f.fresh("unreached"))
    done = f.variable("i64")                          # steps along k that are packed
    f.store("i64", 0, done)
    with f.when(f.compare("eq", "%along", kind.size)):
        _transpose(f, kind, row_bytes, done)
    _one_by_one(f, kind, row_bytes, f.load("i64", done))
    f.do("ret void")
    return f


def pack_rows(kind: Kind) -> Function:
    """Whole panels of a tile's width, side by side in the source; one after the other, `panel_bytes` apart, in the target."""
    f = Function("internal void @pack_rows(ptr %source, i64 %along, i64 %panels, i64 %depth, ptr %target, i64 %panel_bytes)")
    vectors = kind.machine.vectors

    def row(k: str, two: bool) -> None:
        place = f.at("%source", f.mul(f.mul(k, kind.step), "%along"))
        next_place = f.at(place, "%along") if two else None
        later = _later(f, kind, place)
        with f.loop(0, "%panels") as panel:
            offset = f.mul(panel, kind.width * kind.size)
            _ask_for(f, f.at(later, offset))
            target = f.at(f.at("%target", f.mul(panel, "%panel_bytes")), f.mul(k, vectors * kind.lanes * kind.lane_size))
            for v in range(vectors):
                here = f.add(offset, v * kind.lanes * kind.size)
                second = next_place and f.at(next_place, here)
                _copy_vector(f, kind, None, f.at(place, here), second, f.at(target, v * kind.lanes * kind.lane_size))

    _along(f, kind, row)
    f.do("ret void")
    return f


def pack_a(kind: Kind) -> Function:
    """Panels of A, one for each tile of `rows`, `panel_bytes` apart; a single one by `one`, which is `pack`."""
    f = Function("internal void @pack_a(ptr %source, i64 %across, i64 %along, i64 %rows, i64 %depth, ptr %target, "
                 "i64 %panel_bytes, ptr %one)")  # fmt: skip
    height, vectors = kind.machine.rows, kind.packed_rows // kind.lanes
    with f.when(f.compare("sle", "%rows", height)):
        f.do(f"call void %one(ptr %source, i64 %across, i64 %along, i64 %rows, i64 %depth, ptr %target, i64 {vectors})", "ret void")
        f.label(f.fresh("unreached"))
    # Whole vectors may read rows of the next panel; they are not written, and there is none behind the last.
    fit = f.let(f"call i64 @llvm.smax.i64(i64 {f.sub('%rows', kind.packed_rows)}, i64 {-height})")
    whole = f.div(f.add(fit, height), height)
    panels = f.div(f.add("%rows", height - 1), height)

    def row(k: str, two: bool) -> None:
        place = f.at("%source", f.mul(f.mul(k, kind.step), "%along"))
        next_place = f.at(place, "%along") if two else None
        start = f.at("%target", f.mul(k, kind.packed_rows * kind.lane_size))

        later = _later(f, kind, place)

        def panel(p: str, masked: bool) -> None:
            offset, target = f.mul(p, height * kind.size), f.at(start, f.mul(p, "%panel_bytes"))
            _ask_for(f, f.at(later, offset))
            left = f.sub("%rows", f.mul(p, height)) if masked else ""
            for v in range(vectors):
                here = f.add(offset, v * kind.lanes * kind.size)
                which = mask(f, left, kind.lanes, v * kind.lanes) if masked else None
                second = next_place and f.at(next_place, here)
                _copy_vector(f, kind, which, f.at(place, here), second, f.at(target, v * kind.lanes * kind.lane_size))

        with f.loop(0, whole) as p:
            panel(p, False)
        with f.loop(whole, panels) as p:
            panel(p, True)

    _along(f, kind, row)
    f.do("ret void")
    return f


def _later(f: Function, kind: Kind, place: str) -> str:
    """Where a few steps along k from `place` lie: rows of several lines, one on a page or few, which the hardware does not foresee."""
    return f.at(place, f.mul("%along", ROWS_AHEAD * kind.step))


def _ask_for(f: Function, place: str) -> None:
    f.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")


def _along(f: Function, kind: Kind, row: Callable[[str, bool], None]) -> None:
    """Write `row(k, two)` for each step along k, of pairs with a last one that may have one place only."""
    steps = f.div("%depth", kind.step)
    with f.loop(0, steps) as k:
        row(k, kind.pairs)
    if kind.pairs:
        with f.when(f.compare("ne", f.rem("%depth", 2), 0)):
            row(steps, False)


# -- contiguous across: vectors --------------------------------------------------------------------------------------


def _copy(f: Function, kind: Kind, row_bytes: str) -> None:
    def row(k: str, two: bool) -> None:
        place = f.at("%source", f.mul(f.mul(k, kind.step), "%along"))
        next_place = f.at(place, "%along") if two else None
        target = f.at("%target", f.mul(k, row_bytes))
        with f.loop(0, "%vectors") as v:
            first = f.mul(v, kind.lanes)
            offset = f.mul(first, kind.size)
            which = mask(f, f.sub("%width", first), kind.lanes, 0)
            second = next_place and f.at(next_place, offset)
            _copy_vector(f, kind, which, f.at(place, offset), second, f.at(target, f.mul(first, kind.lane_size)))

    _along(f, kind, row)


def _copy_vector(f: Function, kind: Kind, which: str | None, place: str, next_place: str | None, target: str) -> None:
    """One step along k; of pairs, with the next place along k or, at the end of an odd number of them, with zeros."""
    first = _load_row(f, kind, place, which)
    if kind.pairs:
        second = _load_row(f, kind, next_place, which) if next_place else "zeroinitializer"
        value = _interleave(f, first, second, kind.lanes)
    else:
        value = widen(f, kind, first, kind.lanes)
    f.store(vector(kind.lanes, kind.lane), value, target, kind.lane_size)


def _load_row(f: Function, kind: Kind, place: str, which: str | None) -> str:
    if which:
        return load_masked(f, kind.stored, kind.lanes, place, which, kind.size)
    return f.load(vector(kind.lanes, kind.stored), place, kind.size)


def _interleave(f: Function, first: str, second: str, lanes: int) -> str:
    order = ", ".join(f"i32 {i + part * lanes}" for i in range(lanes) for part in (0, 1))
    both = f.let(f"shufflevector <{lanes} x i16> {first}, <{lanes} x i16> {second}, <{2 * lanes} x i32> <{order}>")
    return f.let(f"bitcast <{2 * lanes} x i16> {both} to <{lanes} x i32>")


# -- contiguous along k: squares -------------------------------------------------------------------------------------


def _transpose(f: Function, kind: Kind, row_bytes: str, done: str) -> None:
    lanes, size = kind.lanes, kind.step * kind.size
    squares = f.mul(f.div("%depth", lanes * kind.step), lanes)
    last, below, bytes_along = f.sub("%width", 1), f.mul("%width", "%across"), f.mul("%depth", kind.size)
    of_a_line = max(LINE // (lanes * size), 1) * lanes
    with f.loop(0, squares, of_a_line) as line:
        end = f.least(f.add(line, of_a_line), squares)
        # Behind the end of a row, what the next panel begins with.
        later = f.add(f.mul(line, size), AHEAD)
        over = f.sub(later, bytes_along)
        later = f.let(f"select i1 {f.compare('slt', over, 0)}, i64 {later}, i64 {f.add(below, over)}")
        with f.loop(0, "%vectors") as v:
            first = f.mul(v, lanes)
            starts = [f.at("%source", f.mul(f.least(f.add(first, r), last), "%across")) for r in range(lanes)]
            for start in starts:                      # the hardware foresees few streams at once, and none across pages
                _ask_for(f, f.at(start, later))
            # All squares of a line at once: lines of rows whole pages apart do not stay in the first cache until the next vector is done.
            with f.loop(line, end, lanes) if of_a_line > lanes else nullcontext(line) as k:
                offset = f.mul(k, size)
                rows = [_load_along(f, kind, f.at(start, offset)) for start in starts]
                place = f.at(f.at("%target", f.mul(k, row_bytes)), f.mul(first, kind.lane_size))
                for column in _transposed(f, rows, vector(lanes, kind.lane), lanes):
                    f.store(vector(lanes, kind.lane), column, place, kind.lane_size)
                    place = f.at(place, row_bytes)
    f.store("i64", squares, done)


def _load_along(f: Function, kind: Kind, place: str) -> str:
    if kind.pairs:                                    # neighbours along k are pairs as they lie
        return f.load(vector(kind.lanes, "i32"), place, kind.size)
    return widen(f, kind, f.load(vector(kind.lanes, kind.stored), place, kind.size), kind.lanes)


def _transposed(f: Function, rows: list[str], kind: str, lanes: int) -> list[str]:
    """The columns of a square, by exchanging halves, quarters, and so on down to single elements."""
    half = lanes // 2
    while half:
        made = list(rows)
        for i in range(lanes):
            if not i & half:
                j = i + half
                low = [e if not e & half else lanes + e - half for e in range(lanes)]
                high = [e + half if not e & half else lanes + e for e in range(lanes)]
                made[i], made[j] = (_shuffle(f, rows[i], rows[j], kind, order) for order in (low, high))
        rows, half = made, half // 2
    return rows


def _shuffle(f: Function, a: str, b: str, kind: str, order: list[int]) -> str:
    numbers = ", ".join(f"i32 {i}" for i in order)
    return f.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> <{numbers}>")


# -- neither ----------------------------------------------------------------------------------------------------------


def _one_by_one(f: Function, kind: Kind, row_bytes: str, done: str) -> None:
    steps = f.div(f.add("%depth", kind.step - 1), kind.step)
    with f.loop(done, steps) as k:
        place = f.at("%source", f.mul(f.mul(k, kind.step), "%along"))
        target = f.at("%target", f.mul(k, row_bytes))
        paired = f.compare("slt", f.add(f.mul(k, 2), 1), "%depth")
        with f.loop(0, "%width") as lane:
            element = f.at(place, f.mul(lane, "%across"))
            value = f.load(kind.stored, element, kind.size)
            if kind.pairs:
                word = f.variable("i32")
                f.store("i32", f.let(f"zext i16 {value} to i32"), word)
                with f.when(paired):
                    second = f.let(f"zext i16 {f.load('i16', f.at(element, '%along'), 2)} to i32")
                    high = f.let(f"shl i32 {second}, 16")
                    f.store("i32", f.let(f"or i32 {f.load('i32', word)}, {high}"), word)
                value = f.load("i32", word)
            else:
                value = widen(f, kind, value, 1)
            f.store(kind.lane, value, f.at(target, f.mul(lane, kind.lane_size)), kind.lane_size)
