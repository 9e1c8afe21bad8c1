"""Our own block function for the plans of `driver.py`: packing, and tiles over the packed panels.

For every DEPTH places along k the block's part of B is packed whole, in panels as wide as a tile; it is small enough for the
second cache. Then, panel by panel of rows, A is packed and multiplied with all of B's panels while it lies in the first cache.
The sums of all but the last DEPTH places are kept in the result itself, or beside it where the result is narrower than they are.
"""

from __future__ import annotations

import functools

import numpy as np

from flambeau_kernels.cpu.gemm import driver, micro
from flambeau_kernels.cpu.gemm import pack as packing
from flambeau_kernels.cpu.gemm.text import METADATA, Function
from flambeau_kernels.cpu.gemm.tiles import Kind
from flambeau_kernels.cpu.gemm.values import declarations
from flambeau_kernels.engine import llvm

MOST_DEPTH = 384                                      # so that a panel of A stays in the first cache
SECOND_CACHE = 1 << 19                                # bytes of B that are packed at a time; half of a usual second cache


@functools.cache
def block(kind: Kind) -> int:
    """Address of the block function of `driver.py` for this kind."""
    return llvm.compile_ir(text(kind), kind.name)


def depth(kind: Kind, k: int) -> int:
    """Places along k that are summed up before sums are written; a function of `k` alone, for they decide the bits."""
    pieces = -(-k // (MOST_DEPTH * kind.step))
    return -(-k // pieces // kind.step) * kind.step + (kind.step if pieces > 1 else 0) if k else 1


def most_columns(kind: Kind, k: int) -> int:
    """The widest block whose part of B fits the second cache."""
    steps = -(-depth(kind, k) // kind.step)
    return max(SECOND_CACHE // (steps * kind.lane_size) // kind.width, 1) * kind.width


def prepare(plan: np.ndarray, kind: Kind) -> None:
    """Fill in what the block function reads, for a plan whose grid is set."""
    k, columns, rows = int(plan[driver.K]), int(plan[driver.COLUMNS]), int(plan[driver.ROWS])
    deep = depth(kind, k)
    steps = -(-min(deep, k) // kind.step)
    panels = -(-columns // kind.width) * kind.width
    plan[driver.DEPTH] = deep
    plan[driver.PANEL] = steps * panels * kind.lane_size
    plan[driver.PARTIAL] = plan[driver.PANEL] + steps * kind.packed_rows * kind.lane_size
    beside = kind.written != kind.sum and k > deep
    plan[driver.SCRATCH] = plan[driver.PARTIAL] + (rows * panels * 8 if beside else 0)
    plan[driver.BLOCK] = block(kind)


def text(kind: Kind) -> str:
    """The module of a kind: packing, tiles and the block function."""
    widths = sorted({1, kind.machine.vectors, kind.packed_rows // kind.lanes})
    functions = [packing.pack(kind, vectors) for vectors in widths]
    functions += [micro.tile(kind, h, v) for h in kind.machine.heights for v in sorted({1, kind.machine.vectors})]
    functions.append(_block(kind))
    return declarations(kind) + "".join(f.text() for f in functions) + METADATA


def _block(kind: Kind) -> Function:
    f = Function(f"void @{kind.name}(ptr %plan, ptr %a, ptr %b, ptr %c, ptr %bias, i64 %m, i64 %n, ptr %scratch)")
    k, deep, flags = (f.field("%plan", slot) for slot in (driver.K, driver.DEPTH, driver.FLAGS))
    a_m, a_k, b_k, b_n, c_m = (f.field("%plan", slot) for slot in (driver.A_M, driver.A_K, driver.B_K, driver.B_N, driver.C_M))
    panel = f.at("%scratch", f.field("%plan", driver.PANEL))
    part, part_row = "%c", c_m
    if kind.written != kind.sum:
        part = f.at("%scratch", f.field("%plan", driver.PARTIAL))
        part_row = f.mul(f.field("%plan", driver.COLUMNS), 8)
    with f.loop(0, k, deep) as k0:
        here = f.least(deep, f.sub(k, k0))
        steps = f.div(f.add(here, kind.step - 1), kind.step)
        at_k = f.at("%b", f.mul(k0, b_k))
        with f.loop(0, "%n", kind.width) as j:
            width = f.least(kind.width, f.sub("%n", j))
            target = f.at("%scratch", f.mul(f.mul(j, steps), kind.lane_size))
            narrow = f.compare("sle", width, kind.lanes)
            for vectors, condition in ((1, f.when(narrow)), (kind.machine.vectors, f.unless(narrow))):
                with condition:
                    f.do(f"call void @{packing.name(vectors)}(ptr {f.at(at_k, f.mul(j, b_n))}, i64 {b_n}, i64 {b_k}, "
                         f"i64 {width}, i64 {here}, ptr {target})")  # fmt: skip
        state = _state(f, flags, k0, f.compare("sge", f.add(k0, deep), k))
        with f.loop(0, "%m", kind.machine.rows) as i:
            height = f.least(kind.machine.rows, f.sub("%m", i))
            start = f.at(f.at("%a", f.mul(k0, a_k)), f.mul(i, a_m))
            f.do(f"call void @{packing.name(kind.packed_rows // kind.lanes)}(ptr {start}, i64 {a_m}, i64 {a_k}, "
                 f"i64 {height}, i64 {here}, ptr {panel})")  # fmt: skip
            wide_tile, narrow_tile = (_tile_for(f, kind, height, v) for v in (kind.machine.vectors, 1))
            row, part_start = f.at("%c", f.mul(i, c_m)), f.at(part, f.mul(i, part_row))
            bias_m, bias_n = f.field("%plan", driver.BIAS_M), f.field("%plan", driver.BIAS_N)
            bias = f.at("%bias", f.mul(i, bias_m))
            with f.loop(0, "%n", kind.width) as j:
                width = f.least(kind.width, f.sub("%n", j))
                narrow = f.compare("sle", width, kind.lanes)
                chosen = f.let(f"select i1 {narrow}, ptr {narrow_tile}, ptr {wide_tile}")
                size = f.mul(j, kind.written_size)
                part_size = f.mul(j, kind.sum_size)
                f.do(f"call void {chosen}(i64 {steps}, ptr {panel}, "
                     f"ptr {f.at('%scratch', f.mul(f.mul(j, steps), kind.lane_size))}, ptr {f.at(row, size)}, i64 {c_m}, "
                     f"i64 {height}, i64 {width}, i64 {state}, ptr {f.at(part_start, part_size)}, i64 {part_row}, "
                     f"ptr {f.at(bias, f.mul(j, bias_n))}, i64 {bias_m}, i64 {bias_n})")  # fmt: skip
    f.do("ret void")
    return f


def _state(f: Function, flags: str, k0: str, last: str) -> str:
    """The flags of the tiles of these steps along k."""
    later = f.compare("ne", k0, 0)
    more = f.let(f"or i1 {later}, {f.bit(flags, driver.ACCUMULATE)}")
    bias = f.both(last, f.bit(flags, driver.ADD_BIAS))
    words = ((more, micro.ADD_PART), (bias, micro.ADD_BIAS), (last, micro.LAST))
    chosen = [f.let(f"select i1 {condition}, i64 {word}, i64 0") for condition, word in words]
    return f.add(f.add(chosen[0], chosen[1]), chosen[2])


def _tile_for(f: Function, kind: Kind, height: str, vectors: int) -> str:
    """The address of the tile function for that many rows."""
    heights = kind.machine.heights
    chosen = f"@{micro.name(heights[0], vectors)}"
    for h in heights[1:]:
        fits = f.compare("sle", height, h)
        chosen = f.let(f"select i1 {fits}, ptr @{micro.name(h, vectors)}, ptr {chosen}")
    return chosen
