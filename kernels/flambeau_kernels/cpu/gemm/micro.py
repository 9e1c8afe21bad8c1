"""The innermost loop: a tile of the result that stays in registers while it runs over k.

    void tile(i64 steps, ptr a, i64 a_row, i64 a_step, ptr b, i64 b_step, ptr c, i64 c_row, i64 rows, i64 columns,
              i64 flags, ptr part, i64 part_row, ptr bias, i64 bias_m, i64 bias_n, ptr ahead, ptr copy)

`a` has a lane for each row, `a_row` bytes apart, and for each step along k, `a_step` bytes apart; `b` has the tile's columns
side by side for each step, `b_step` bytes apart. Both may be packed panels (`pack.py`) or lie in the operands themselves. Each sum
runs over k in order, by one fused multiply-add per element, whatever the size of the tile and the place in it; so a result does not
depend on the tiles it was cut into. When that is done, `part` (the sums of earlier steps along k) is added, then the bias, what is
below 0 becomes 0 if RECTIFY says so, and the result is written: to `c` in the result's dtype if these were the last steps, else to
`part`. Only the first `rows` and `columns` of a tile are read from `a`, added to or written; all columns of `b` are read.

Tiles that read B `in_place` ask for its rows AHEAD steps before, and at the end for the first ones of `ahead`, where the next tile's
B begins. Where the flags say COPYING, a tile with such a loop also writes what it reads of `b` to `copy`, as a packed panel; where they say
PACKED, one with a loop for that takes A's strides for those of a packed panel, whatever is passed. Tiles with loops of their own ask for
the lines that their sums are added to or written to before they run over k, or where these are more than AT_ONCE in its first steps, a
row in each: stores that wait for memory would hold up the next tile, and as many requests at once would hold up this one.
"""

from __future__ import annotations

from flambeau_kernels.cpu.gemm.text import Function
from flambeau_kernels.cpu.gemm.tiles import Kind
from flambeau_kernels.cpu.gemm.values import load_masked, mask, narrow, splat, store_masked

ADD_PART, ADD_BIAS, LAST, RECTIFY, PACKED, COPYING = 1, 2, 4, 8, 16, 32   # flags
SIGNATURE = ("(i64 %steps, ptr %a, i64 %a_row, i64 %a_step, ptr %b, i64 %b_step, ptr %c, i64 %c_row, i64 %rows, i64 %columns, "
             "i64 %flags, ptr %part, i64 %part_row, ptr %bias, i64 %bias_m, i64 %bias_n, ptr %ahead, ptr %copy)")  # fmt: skip
# Steps along k before which rows of B are asked for: the time of the memory. Lines a page apart leave the second cache soon after.
AHEAD = 32
LINE = 64                                             # bytes of a cache line
AT_ONCE = 8                                           # lines that a core asks for without waiting, beside those of A and B


def name(height: int, vectors: int) -> str:
    return f"tile_{height}x{vectors}"


def tile(kind: Kind, height: int, vectors: int, in_place: bool = False, loops: int = 0, finishes: bool = True) -> Function:
    """The function of a tile of `height` rows.

    Args:
        in_place: that B is no panel, as far as is known.
        loops: for which of the flags there is a loop of its own over k, if for any PACKED, and COPYING perhaps; what follows is the same
            code for all.
        finishes: whether sums of whole tiles stay in registers to the end, as pays in tiles of which a product has many.
    """
    f = Function(f"internal void @{name(height, vectors)}{SIGNATURE}")
    lanes, total = kind.lanes, f"<{kind.lanes} x {kind.sum}>"
    sums = [[f.variable(total) for _ in range(vectors)] for _ in range(height)]
    for row in sums:
        for place in row:
            f.store(total, "zeroinitializer", place)
    _run_over_k_as_asked(f, kind, sums, in_place and vectors > 1, loops)   # a tile of a single vector reads a panel

    # Where results are narrower than sums, sums of all but the last steps stay in registers. Tiles of a single vector are those of the last
    # columns, and low ones those of the last rows, of which there are too few for the code to repay its compilation.
    if finishes and vectors > 1:
        plain = f.compare("eq", f.let(f"and i64 %flags, {0 if kind.sum == kind.written else LAST}"), 0)
        whole = (f.compare("eq", "%rows", height), f.compare("eq", "%columns", vectors * lanes))
        with f.when(f.both(*whole, plain)):
            _finish_in_registers(f, kind, sums)
            f.do("ret void")
            f.label(f.fresh("unreached"))
    held = f.variable(f"[{height * vectors} x {total}]")
    _write(f, kind, sums, held, vectors * lanes * kind.sum_size)
    f.do(f"call void @finish(ptr {held}, i64 {vectors}, ptr %c, i64 %c_row, i64 %rows, i64 %columns, i64 %flags, "
         f"ptr %part, i64 %part_row, ptr %bias, i64 %bias_m, i64 %bias_n)", "ret void")  # fmt: skip
    return f


def _finish_in_registers(f: Function, kind: Kind, sums: list[list[str]]) -> None:
    """What `finish` does, for whole rows and columns whose sums are written as they are, to `part`."""
    total, size = f"<{kind.lanes} x {kind.sum}>", kind.sum_size
    with f.when(f.bit("%flags", ADD_PART)):
        start = "%part"
        for row in sums:
            for v, place in enumerate(row):
                _add(f, kind, place, f.load(total, f.at(start, v * kind.lanes * size), size))
            start = f.at(start, "%part_row")
    with f.when(f.bit("%flags", ADD_BIAS)):
        along = f.compare("ne", "%bias_n", 0)
        with f.when(along):
            columns = [f.load(total, f.at("%bias", v * kind.lanes * size), size) for v in range(len(sums[0]))]
            for row in sums:
                for place, column in zip(row, columns, strict=True):
                    _add(f, kind, place, column)
        with f.unless(along):
            of_row = "%bias"
            for row in sums:
                value = splat(f, kind.sum, f.load(kind.sum, of_row, size), kind.lanes)
                for place in row:
                    _add(f, kind, place, value)
                of_row = f.at(of_row, "%bias_m")
    if kind.sum in ("float", "double"):
        with f.when(f.bit("%flags", RECTIFY)):
            for row in sums:
                for place in row:
                    _rectify(f, kind, place)
    _write(f, kind, sums, "%part", "%part_row")


def _add(f: Function, kind: Kind, place: str, value: str) -> None:
    total, plus = f"<{kind.lanes} x {kind.sum}>", "fadd" if kind.sum in ("float", "double") else "add"
    f.store(total, f.let(f"{plus} {total} {f.load(total, place)}, {value}"), place)


def _rectify(f: Function, kind: Kind, place: str, least: str = "zeroinitializer") -> None:
    """What is below `least`, 0 if it is not given, becomes that."""
    total = f"<{kind.lanes} x {kind.sum}>"
    value = f.load(total, place)
    below = f.let(f"fcmp olt {total} {value}, {least}")
    f.store(total, f.let(f"select <{kind.lanes} x i1> {below}, {total} {least}, {total} {value}"), place)


def _write(f: Function, kind: Kind, sums: list[list[str]], to: str, row_bytes: str | int) -> None:
    """Whole rows of sums."""
    total, start = f"<{kind.lanes} x {kind.sum}>", to
    for row in sums:
        for v, place in enumerate(row):
            f.store(total, f.load(total, place), f.at(start, v * kind.lanes * kind.sum_size), kind.sum_size)
        start = f.at(start, row_bytes)


def _run_over_k_as_asked(f: Function, kind: Kind, sums: list[list[str]], asks: bool, loops: int) -> None:
    """One loop over k for each of `loops` that the flags may say, and the one without."""
    if not loops:
        _run_over_k(f, kind, sums, False, asks, False)
        return
    lines = len(sums) * len(_lines(kind, len(sums[0])))
    if lines <= AT_ONCE:
        part = "%part"
        for row in sums:
            _ask_for_row(f, kind, part, len(row))
            part = f.at(part, "%part_row")
    copying, packed = (f.bit("%flags", flag & loops) for flag in (COPYING, PACKED))
    if loops & COPYING:
        with f.when(copying):
            _run_over_k(f, kind, sums, False, True, True)
    with f.when(f.both(packed, f.let(f"xor i1 {copying}, true"))):   # A may be packed for a tile that copies too
        _run_over_k(f, kind, sums, True, False, False, lines > AT_ONCE)
    with f.unless(f.let(f"or i1 {copying}, {packed}")):
        _run_over_k(f, kind, sums, False, asks, False, lines > AT_ONCE)


def _lines(kind: Kind, vectors: int) -> range:
    """Where lines of a row of sums begin, in bytes."""
    return range(0, vectors * kind.lanes * kind.sum_size, LINE)


def _ask_for_row(f: Function, kind: Kind, part: str, vectors: int) -> None:
    for offset in _lines(kind, vectors):
        f.do(f"call void @llvm.prefetch.p0(ptr {f.at(part, offset)}, i32 1, i32 3, i32 1)")


def _run_over_k(f: Function, kind: Kind, sums: list[list[str]], packed: bool, asks: bool, copying: bool,
                asks_for_sums: bool = False) -> None:  # fmt: skip
    lanes, size, vectors = kind.lanes, kind.lane_size, len(sums[0])
    lane, total = f"<{lanes} x {kind.lane}>", f"<{lanes} x {kind.sum}>"
    if packed:
        rows, a_step = [f.at("%a", r * size) for r in range(len(sums))], str(kind.packed_rows * size)
    else:
        last = f.sub("%rows", 1)
        rows, a_step = [f.at("%a", f.mul("%a_row", f.least(r, last))) for r in range(len(sums))], "%a_step"
    within = f.sub("%steps", AHEAD)
    here, there = f.at("%b", f.mul("%b_step", AHEAD)), f.at("%ahead", f.mul("%b_step", f.sub(0, within)))
    with f.loop(0, "%steps") as k:
        down, along = f.mul(k, "%b_step"), f.mul(k, a_step)
        column = f.at("%b", down)
        b = [f.load(lane, f.at(column, v * lanes * size), kind.size) for v in range(vectors)]
        if asks_for_sums:
            _ask_for_row(f, kind, f.at("%part", f.mul("%part_row", f.least(k, len(sums) - 1))), vectors)
        if asks:
            later = f.at(f.let(f"select i1 {f.compare('slt', k, within)}, ptr {here}, ptr {there}"), down)
            for offset in (*range(0, vectors * lanes * size, LINE), vectors * lanes * size - 1):   # rows may begin inside a line
                f.do(f"call void @llvm.prefetch.p0(ptr {f.at(later, offset)}, i32 0, i32 2, i32 1)")
        if copying:
            target = f.at("%copy", f.mul(k, vectors * lanes * size))
            for v, value in enumerate(b):
                f.store(lane, value, f.at(target, v * lanes * size), size)
        for row, places in zip(rows, sums, strict=True):
            a = splat(f, kind.lane, f.load(kind.lane, f.at(row, along), kind.size), lanes)
            if kind.sum in ("float", "double"):
                for v, place in enumerate(places):
                    f.store(total, _multiply_add(f, kind, a, b[v], f.load(total, place)), place)
                continue
            # Instructions run in the order of the text: no sum waits for the product before it.
            products = [f.let(f"mul {total} {a}, {column}") for column in b]
            for product, place in zip(products, places, strict=True):
                f.store(total, f.let(f"add {total} {product}, {f.load(total, place)}"), place)


def _multiply_add(f: Function, kind: Kind, a: str, b: str, c: str) -> str:
    lanes = kind.lanes
    lane, total = f"<{lanes} x {kind.lane}>", f"<{lanes} x {kind.sum}>"
    if kind.pairs:
        halves = f"<{2 * lanes} x bfloat>"
        a, b = (f.let(f"bitcast {lane} {x} to {halves}") for x in (a, b))
        return f.let(f"call {total} @llvm.x86.avx512bf16.dpbf16ps.512({total} {c}, {halves} {a}, {halves} {b})")
    bits = 32 if kind.sum == "float" else 64
    return f.let(f"call {total} @llvm.fma.v{lanes}f{bits}({total} {a}, {total} {b}, {total} {c})")


def finish(kind: Kind) -> Function:
    """Everything a tile may need at its end, for any number of rows and columns of sums in memory, `vectors` of them in a row."""
    f = Function("internal void @finish(ptr %sums, i64 %vectors, ptr %c, i64 %c_row, i64 %rows, i64 %columns, i64 %flags, "
                 "ptr %part, i64 %part_row, ptr %bias, i64 %bias_m, i64 %bias_n) noinline")  # fmt: skip
    lanes, size = kind.lanes, kind.sum_size
    total = f"<{lanes} x {kind.sum}>"
    add_part, add_bias, last = (f.bit("%flags", flag) for flag in (ADD_PART, ADD_BIAS, LAST))
    along, floating = f.compare("ne", "%bias_n", 0), kind.sum in ("float", "double")
    least = ""
    if floating:                                      # nothing is below -inf
        infinity = "0xFFF0000000000000"
        bound = f.let(f"select i1 {f.bit('%flags', RECTIFY)}, {kind.sum} 0.0, {kind.sum} {infinity}")
        least = splat(f, kind.sum, bound, lanes)
    value = f.variable(total)
    with f.loop(0, "%vectors") as v:
        column = f.mul(v, lanes)
        which, offset = mask(f, f.sub("%columns", column), lanes, 0), f.mul(column, size)
        sums, part, bias = f.at("%sums", offset), f.at("%part", offset), f.at("%bias", offset)
        target, sums_row = f.at("%c", f.mul(column, kind.written_size)), f.mul("%vectors", lanes * size)
        either = f.let(f"select i1 {last}, ptr {target}, ptr {part}")
        either_row = f.let(f"select i1 {last}, i64 %c_row, i64 %part_row")
        with f.loop(0, "%rows") as r:
            part_row = f.at(part, f.mul("%part_row", r))
            f.store(total, f.load(total, f.at(sums, f.mul(r, sums_row)), size), value)
            with f.when(add_part):
                _add(f, kind, value, load_masked(f, kind.sum, lanes, part_row, which, size))
            with f.when(add_bias):
                with f.when(along):
                    _add(f, kind, value, load_masked(f, kind.sum, lanes, bias, which, size))
                with f.unless(along):
                    _add(f, kind, value, splat(f, kind.sum, f.load(kind.sum, f.at("%bias", f.mul("%bias_m", r)), size), lanes))
            if floating:
                _rectify(f, kind, value, least)
            if kind.written == kind.sum:
                store_masked(f, kind.sum, lanes, f.load(total, value), f.at(either, f.mul(either_row, r)), which, size)
            else:
                with f.when(last):
                    made = narrow(f, kind, f.load(total, value), lanes)
                    store_masked(f, kind.written, lanes, made, f.at(target, f.mul("%c_row", r)), which, kind.written_size)
                with f.unless(last):
                    store_masked(f, kind.sum, lanes, f.load(total, value), part_row, which, size)
    f.do("ret void")
    return f
