"""The innermost loop: a tile of the result that stays in registers while it runs over k.

    void tile(i64 steps, ptr a, i64 a_row, i64 a_step, ptr b, i64 b_step, ptr c, i64 c_row, i64 rows, i64 columns,
              i64 flags, ptr part, i64 part_row, ptr bias, i64 bias_m, i64 bias_n)

`a` has a lane for each row, `a_row` bytes apart, and for each step along k, `a_step` bytes apart; `b` has the tile's columns
side by side for each step, `b_step` bytes apart. Both may be packed panels (`pack.py`) or lie in the operands themselves. Each sum
runs over k in order, by one fused multiply-add per element, whatever the size of the tile and the place in it; so a result does not
depend on the tiles it was cut into. When that is done, `part` (the sums of earlier steps along k) is added, then the bias, and the
result is written: to `c` in the result's dtype if these were the last steps, else to `part`. Only the first `rows` and `columns` of a
tile are read from `a`, added to or written; all columns of `b` are read.
"""

from __future__ import annotations

from flambeau_kernels.cpu.gemm.text import Function
from flambeau_kernels.cpu.gemm.tiles import Kind
from flambeau_kernels.cpu.gemm.values import load_masked, mask, narrow, splat, store_masked

ADD_PART, ADD_BIAS, LAST = 1, 2, 4                    # flags
SIGNATURE = ("(i64 %steps, ptr %a, i64 %a_row, i64 %a_step, ptr %b, i64 %b_step, ptr %c, i64 %c_row, i64 %rows, i64 %columns, "
             "i64 %flags, ptr %part, i64 %part_row, ptr %bias, i64 %bias_m, i64 %bias_n)")  # fmt: skip


def name(height: int, vectors: int, packed: bool = False) -> str:
    return f"tile_{height}x{vectors}" + ("_packed" if packed else "")


def tile(kind: Kind, height: int, vectors: int, packed: bool = False) -> Function:
    """The function of a tile of `height` rows; `packed` if A's strides are those of a packed panel, whatever is passed."""
    f = Function(f"internal void @{name(height, vectors, packed)}{SIGNATURE}")
    lanes, total = kind.lanes, f"<{kind.lanes} x {kind.sum}>"
    sums = [[f.variable(total) for _ in range(vectors)] for _ in range(height)]
    for row in sums:
        for place in row:
            f.store(total, "zeroinitializer", place)
    _run_over_k(f, kind, sums, vectors, packed)

    whole = f.both(f.compare("eq", "%rows", height), f.compare("eq", "%columns", vectors * lanes))
    plain = f.both(whole, f.compare("eq", "%flags", LAST))
    if kind.sum == kind.written:
        with f.when(plain):
            for r, row in enumerate(sums):
                for v, place in enumerate(row):
                    target = f.at(f.at("%c", f.mul("%c_row", r)), v * lanes * kind.written_size)
                    f.store(total, f.load(total, place), target, kind.written_size)
            f.do("ret void")
            f.label(f.fresh("unreached"))
    _finish(f, kind, sums, vectors)
    f.do("ret void")
    return f


def _run_over_k(f: Function, kind: Kind, sums: list[list[str]], vectors: int, packed: bool) -> None:
    lanes, size = kind.lanes, kind.lane_size
    lane, total = f"<{lanes} x {kind.lane}>", f"<{lanes} x {kind.sum}>"
    if packed:
        rows, a_step = [f.at("%a", r * size) for r in range(len(sums))], str(kind.packed_rows * size)
    else:
        last = f.sub("%rows", 1)
        rows, a_step = [f.at("%a", f.mul("%a_row", f.least(r, last))) for r in range(len(sums))], "%a_step"
    with f.loop(0, "%steps") as k:
        column, along = f.at("%b", f.mul(k, "%b_step")), f.mul(k, a_step)
        b = [f.load(lane, f.at(column, v * lanes * size), kind.size) for v in range(vectors)]
        for row, places in zip(rows, sums, strict=True):
            a = splat(f, kind.lane, f.load(kind.lane, f.at(row, along), kind.size), lanes)
            for v, place in enumerate(places):
                f.store(total, _multiply_add(f, kind, a, b[v], f.load(total, place)), place)


def _multiply_add(f: Function, kind: Kind, a: str, b: str, c: str) -> str:
    lanes = kind.lanes
    lane, total = f"<{lanes} x {kind.lane}>", f"<{lanes} x {kind.sum}>"
    if kind.pairs:
        halves = f"<{2 * lanes} x bfloat>"
        a, b = (f.let(f"bitcast {lane} {x} to {halves}") for x in (a, b))
        return f.let(f"call {total} @llvm.x86.avx512bf16.dpbf16ps.512({total} {c}, {halves} {a}, {halves} {b})")
    if kind.sum in ("float", "double"):
        bits = 32 if kind.sum == "float" else 64
        return f.let(f"call {total} @llvm.fma.v{lanes}f{bits}({total} {a}, {total} {b}, {total} {c})")
    return f.let(f"add {total} {f.let(f'mul {total} {a}, {b}')}, {c}")


def _finish(f: Function, kind: Kind, sums: list[list[str]], vectors: int) -> None:
    """Everything a tile may need at its end, for any number of rows and columns."""
    lanes = kind.lanes
    total = f"<{lanes} x {kind.sum}>"
    plus = "fadd" if kind.sum in ("float", "double") else "add"
    size = kind.sum_size
    masks = [mask(f, "%columns", lanes, v * lanes) for v in range(vectors)]

    def add(place: str, what: str) -> None:
        f.store(total, f.let(f"{plus} {total} {f.load(total, place)}, {what}"), place)

    with f.when(f.bit("%flags", ADD_PART)):
        for r, row in enumerate(sums):
            with f.when(f.compare("slt", r, "%rows")):
                start = f.at("%part", f.mul("%part_row", r))
                for v, place in enumerate(row):
                    add(place, load_masked(f, kind.sum, lanes, f.at(start, v * lanes * size), masks[v], size))
    with f.when(f.bit("%flags", ADD_BIAS)):
        along = f.compare("ne", "%bias_n", 0)
        with f.when(along):
            for v in range(vectors):
                bias = load_masked(f, kind.sum, lanes, f.at("%bias", v * lanes * size), masks[v], size)
                for row in sums:
                    add(row[v], bias)
        with f.unless(along):
            for r, row in enumerate(sums):
                with f.when(f.compare("slt", r, "%rows")):
                    bias = splat(f, kind.sum, f.load(kind.sum, f.at("%bias", f.mul("%bias_m", r)), size), lanes)
                    for place in row:
                        add(place, bias)
    last = f.bit("%flags", LAST)
    with f.when(last):
        for r, row in enumerate(sums):
            with f.when(f.compare("slt", r, "%rows")):
                start = f.at("%c", f.mul("%c_row", r))
                for v, place in enumerate(row):
                    value = narrow(f, kind, f.load(total, place), lanes)
                    target = f.at(start, v * lanes * kind.written_size)
                    store_masked(f, kind.written, lanes, value, target, masks[v], kind.written_size)
    with f.unless(last):
        for r, row in enumerate(sums):
            with f.when(f.compare("slt", r, "%rows")):
                start = f.at("%part", f.mul("%part_row", r))
                for v, place in enumerate(row):
                    store_masked(f, kind.sum, lanes, f.load(total, place), f.at(start, v * lanes * size), masks[v], size)
