"""Our own block function for the plans of `driver.py`: packing, and tiles over the packed panels.

For every DEPTH places along k the block's part of B is packed whole, in panels as wide as a tile; it is small enough for the
second cache. Where its rows are contiguous and are not converted, the first tiles of rows pack it while they multiply. Then, panel
by panel of rows, A is packed and multiplied with all of B's panels while it lies in the first cache.
An operand whose strides suit tiles is not packed but read where it lies.
Rows that are finished go through the plan's elementwise loop, if there is one, while they are in the first cache.
The sums of all but the last DEPTH places are kept in the result itself, or beside it where the result is narrower than they are.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from flambeau_kernels.cpu.gemm import driver, micro
from flambeau_kernels.cpu.gemm import pack as packing
from flambeau_kernels.cpu.gemm.text import METADATA, Function, compiled, is_kept
from flambeau_kernels.cpu.gemm.tiles import Kind
from flambeau_kernels.cpu.gemm.values import declarations
from flambeau_kernels.engine.machine_code.cache_sizes import caches
from flambeau_kernels.takeover import PRODUCTS, Waiting

# Places along k that are summed before sums are written: so few that a panel of A stays in the first cache, and whole vectors.
MOST_DEPTH, DEPTH_UNIT = 384, 16
MOST_PAIRS = 512                                      # the same of pairs, which are read where they lie
PAGE = 4096                                           # lines a page apart share as many places of a first cache as it has ways
LINE = 64                                             # bytes of a cache line
WIDE = 8                                              # tiles side by side from which packing A costs less than it spares
# Rows of a tile that hide the search for B's next row, and rows of A that else repay packing B.
ROWS_PER_PAGE, PACKED_FOR = 8, 24
# Bytes of a step along k that panels of A are packed from together: so many that the memory, which the next step finds on another page,
# is read as fast as it can be, and so few that the panels leave room for B in the second cache.
TOGETHER = 448
READ_ONCE = 4                                         # rows for which packing B costs more than it spares
# What a product of few rows loses without its own module, in usual calls (5 us): by multiplications, and where few sums wait for the
# memory by bytes of B. As measured: 1.5 us of 655,000 multiplications in a cache, 30 us of a megabyte that is in none.
MULTIPLICATIONS_LOST, BYTES_LOST, WAITING_ROWS = 1 / (1 << 21), 1 / 170_000, 8
# Flags of DIRECT: operands that are not packed, and that the first tile of rows packs B while it multiplies.
A_DIRECT, B_DIRECT, B_COPIED = 1, 2, 4


@functools.cache
def block(kind: Kind, few_rows: bool) -> int:
    """Address of the block function of `driver.py` for this kind, for products of few rows or for all others."""
    return compiled(_name(kind, few_rows), (kind, few_rows), lambda: text(kind, few_rows))


def _name(kind: Kind, few_rows: bool) -> str:
    return kind.name + ("_few" if few_rows else "")


def has_few(plan: np.ndarray, kind: Kind) -> bool:
    """Whether no tile has another below it: then B is read once, in place, and longer runs of it where the rows leave registers.

    Products of few rows have a module of their own, because either takes a tenth of a second to compile. The module of all others gives
    the same bits, and as soon where B lies in the second cache; so it computes them until its own repays (`take_over`).
    """
    return kind.copies and int(plan[driver.M]) <= kind.machine.rows


def take_over(plan: np.ndarray, kind: Kind) -> bool:
    """Count a product of few rows without its own module; whether the plan has that from now on."""
    m, n, k = (int(plan[slot]) for slot in (driver.M, driver.N, driver.K))
    size = n * k * kind.size
    waits = m <= WAITING_ROWS and size > caches().second
    cost = m * n * k * MULTIPLICATIONS_LOST + (size * BYTES_LOST if waits else 0)
    if not _waiting(kind).paid_for(cost):
        return False
    plan[driver.BLOCK] = block(kind, True)
    return True


@functools.cache
def _waiting(kind: Kind) -> Waiting:
    return Waiting(PRODUCTS)


def depth(kind: Kind, k: int) -> int:
    """Places along k that are summed up before sums are written; a function of `k` alone, for they decide the bits."""
    pieces = -(-k // (MOST_PAIRS * kind.step if kind.pairs else MOST_DEPTH))
    unit = DEPTH_UNIT * kind.step
    return -(-k // (pieces * unit)) * unit if pieces > 1 else max(k, 1)


def most_columns(kind: Kind, k: int) -> int:
    """The widest block whose part of B fits half of the second cache."""
    steps = -(-depth(kind, k) // kind.step)
    return max(caches().second // 2 // (steps * kind.lane_size) // kind.width, 1) * kind.width


def prepare(plan: np.ndarray, kind: Kind, at_once: bool = True) -> bool:
    """Fill in what the block function reads, for a plan whose grid is set.

    Returns: whether the plan is to `take_over` the module of few rows later, since it is not compiled yet and need not be `at_once`.
    """
    k, columns, rows = int(plan[driver.K]), int(plan[driver.COLUMNS]), int(plan[driver.ROWS])
    deep = depth(kind, k)
    steps = -(-min(deep, k) // kind.step)
    plan[driver.DEPTH], plan[driver.DIRECT] = deep, direct(plan, kind)
    # What is read in place needs a panel for the columns that do not fill a tile, and one that nothing reads.
    panels = 2 * kind.width if plan[driver.DIRECT] & B_DIRECT else -(-columns // kind.width) * kind.width
    plan[driver.PANEL] = steps * panels * kind.lane_size
    # Rows of A that lie side by side are packed for several tiles, so that lines of memory are read once and whole.
    together = tiles_together(kind) if plan[driver.A_M] == kind.size and not plan[driver.DIRECT] & A_DIRECT else 1
    plan[driver.TOGETHER] = together
    plan[driver.PARTIAL] = plan[driver.PANEL] + together * (steps * kind.packed_rows * kind.lane_size + LINE)
    beside = kind.written != kind.sum and k > deep
    plan[driver.SCRATCH] = plan[driver.PARTIAL] + (rows * columns * 8 if beside else 0)
    few_rows = has_few(plan, kind)
    later = few_rows and not at_once and not _waiting(kind).paid_for(0) and not is_kept(_name(kind, True), (kind, True))
    plan[driver.BLOCK] = block(kind, few_rows and not later)
    if plan[driver.DIRECT] != A_DIRECT | B_DIRECT or plan[driver.N] % kind.width:
        plan[driver.PACK] = packing.address(kind)
    return later


def tiles_together(kind: Kind) -> int:
    """Tiles whose rows of A are packed together: as many as fill whole lines."""
    row = kind.machine.rows * kind.lane_size
    lines = LINE // math.gcd(LINE, row)
    return lines * max(TOGETHER // (lines * row), 1)


def direct(plan: np.ndarray, kind: Kind) -> int:
    """Which operands tiles read where they lie. A function of strides and sizes; the bits are the same either way.

    Packing converts elements, puts the columns of a tile side by side, and moves apart what the cache would put into the same few
    places: lines whose addresses differ by multiples of a page.
    """
    n, k, a_m, a_k, b_n = (int(plan[slot]) for slot in (driver.N, driver.K, driver.A_M, driver.A_K, driver.B_N))
    in_pages = paged(plan, kind)
    if kind.pairs:                                    # pairs along k may be read as they lie, if there is no half a pair
        return A_DIRECT if a_k == kind.size and k % 2 == 0 and not in_pages[0] else 0
    if kind.stored != kind.lane:
        return 0
    # Of each line along m a tile of few rows uses a part; as many lines as it is deep fill the first cache, where they are wanted again
    # for the next columns.
    lines_fit = 2 * kind.machine.rows * kind.size > LINE or n < WIDE * kind.width
    a_direct = (a_m == kind.size and lines_fit or a_k == kind.size) and not in_pages[0]
    if copies(plan, kind):
        return (A_DIRECT if a_direct else 0) | B_COPIED
    m = int(plan[driver.M])
    b_direct = b_n == kind.size and (m <= kind.machine.rows or not in_pages[1] and not repays_packing(plan, kind))
    return (A_DIRECT if a_direct else 0) | (B_DIRECT if b_direct else 0)


def copies(plan: np.ndarray, kind: Kind) -> bool:
    """Whether the first tile of rows copies what it reads of B for those below it, which costs next to nothing: it multiplies meanwhile."""
    return kind.copies and int(plan[driver.B_N]) == kind.size and not has_few(plan, kind)


def repays_packing(plan: np.ndarray, kind: Kind) -> bool:
    """Whether reading B's rows where they lie takes a tile of few rows longer than packing them does.

    It multiplies a row of B with one element of each of its own rows, which takes less time than to find the next row's page and line.
    """
    return kind.machine.rows < ROWS_PER_PAGE and int(plan[driver.M]) >= PACKED_FOR


def paged(plan: np.ndarray, kind: Kind) -> tuple[bool, bool]:
    """Whether A, and B, have lines whole pages apart, more of them than a cache keeps while a tile needs them."""
    m, k, a_m, a_k, b_k = (int(plan[slot]) for slot in (driver.M, driver.K, driver.A_M, driver.A_K, driver.B_K))
    deep = min(depth(kind, k), k)
    fit = m <= READ_ONCE or deep <= caches().second // PAGE   # lines a page apart that the second cache holds
    ways = caches().ways
    return a_m % PAGE == 0 and m > ways or a_k % PAGE == 0 and deep > ways, b_k % PAGE == 0 and not fit


def text(kind: Kind, few_rows: bool) -> str:
    """The module of a kind: packing, tiles and the block function."""
    functions = [packing.pack_rows(kind), packing.pack_a(kind), micro.finish(kind)]
    shapes = [(h, vectors) for vectors in (1, kind.machine.vectors) for h in kind.machine.heights(vectors)]
    shapes += kind.machine.wide() if few_rows else ()
    full = (kind.machine.rows, kind.machine.vectors)
    loops = 0 if few_rows else micro.PACKED | micro.COPYING if kind.copies else micro.PACKED
    functions += [micro.tile(kind, *shape, in_place=few_rows, loops=loops if shape == full else 0, finishes=few_rows or shape == full)
                  for shape in dict.fromkeys(shapes)]  # fmt: skip
    functions.append(_block(kind, few_rows))
    return declarations(kind) + "".join(f.text() for f in functions) + METADATA


def _block(kind: Kind, few_rows: bool) -> Function:
    f = Function(f"void @{_name(kind, few_rows)}(ptr %plan, ptr %a, ptr %b, ptr %c, ptr %bias, ptr %beside, i64 %m, i64 %n, ptr %scratch)")
    k, deep, flags = (f.field("%plan", slot) for slot in (driver.K, driver.DEPTH, driver.FLAGS))
    a_m, a_k, b_k, b_n, c_m = (f.field("%plan", slot) for slot in (driver.A_M, driver.A_K, driver.B_K, driver.B_N, driver.C_M))
    direct = f.field("%plan", driver.DIRECT)
    a_direct, b_direct, b_copied = f.bit(direct, A_DIRECT), f.bit(direct, B_DIRECT), f.bit(direct, B_COPIED)
    a_packed = f.let(f"xor i1 {a_direct}, true")
    not_packed = f.let(f"or i1 {b_direct}, {b_copied}")
    then, operands = f.field("%plan", driver.THEN, "ptr"), f.variable("[3 x ptr]")
    panel, pack = f.at("%scratch", f.field("%plan", driver.PANEL)), f.field("%plan", driver.PACK, "ptr")
    part, part_row = "%c", c_m
    if kind.written != kind.sum:
        part = f.at("%scratch", f.field("%plan", driver.PARTIAL))
        part_row = f.mul(f.field("%plan", driver.COLUMNS), 8)
    a_row = f.let(f"select i1 {a_direct}, i64 {a_m}, i64 {kind.lane_size}")
    at_once = f.field("%plan", driver.TOGETHER)
    a_step = f.let(f"select i1 {a_direct}, i64 {f.mul(a_k, kind.step)}, i64 {kind.packed_rows * kind.lane_size}")
    with f.loop(0, k, deep) as k0:
        here = f.least(deep, f.sub(k, k0))
        steps = f.div(f.add(here, kind.step - 1), kind.step)
        # Panels that are written side by side lie a line more than whole pages apart, so that the cache keeps all of them.
        a_panel = f.add(f.mul(steps, kind.packed_rows * kind.lane_size), LINE)
        at_k = f.at("%b", f.mul(k0, b_k))
        together = f.both(f.compare("eq", b_n, kind.size), f.let(f"xor i1 {not_packed}, true"))
        with f.when(together):
            panel_bytes = f.mul(steps, kind.width * kind.lane_size)
            f.do(f"call void @pack_rows(ptr {at_k}, i64 {b_k}, i64 {f.div('%n', kind.width)}, i64 {here}, ptr %scratch, "
                 f"i64 {panel_bytes})")  # fmt: skip
        packed_already = f.let(f"or i1 {together}, {not_packed}")
        with f.loop(0, "%n", kind.width) as j:
            columns = _Columns(f, kind, at_k, j, b_k, b_n, steps, b_direct, b_direct)
            with f.unless(f.both(packed_already, columns.is_full)):
                vectors = f.let(f"select i1 {columns.narrow}, i64 1, i64 {kind.machine.vectors}")
                f.do(f"call void {pack}(ptr {columns.source}, i64 {b_n}, i64 {b_k}, i64 {columns.width}, i64 {here}, "
                     f"ptr {columns.packed}, i64 {vectors})")  # fmt: skip
        last = f.compare("sge", f.add(k0, deep), k)
        state, follows = _state(f, flags, k0, last), f.both(last, f.let(f"icmp ne ptr {then}, null"))
        with f.loop(0, "%m", kind.machine.rows) as i:
            height = f.least(kind.machine.rows, f.sub("%m", i))
            start = f.at(f.at("%a", f.mul(k0, a_k)), f.mul(i, a_m))
            among = f.rem(f.div(i, kind.machine.rows), at_once)
            with f.when(f.both(a_packed, f.compare("eq", among, 0))):
                rows = f.least(f.mul(at_once, kind.machine.rows), f.sub("%m", i))
                f.do(f"call void @pack_a(ptr {start}, i64 {a_m}, i64 {a_k}, i64 {rows}, i64 {here}, ptr {panel}, "
                     f"i64 {a_panel}, ptr {pack})")  # fmt: skip
            a = f.let(f"select i1 {a_direct}, ptr {start}, ptr {f.at(panel, f.mul(among, a_panel))}")
            from_b = f.let(f"or i1 {b_direct}, {f.both(b_copied, f.compare('eq', i, 0))}")
            wide_tile, narrow_tile = (_tile_for(f, kind, height, v) for v in (kind.machine.vectors, 1))
            how = state if few_rows else f.add(_chosen(f, (a_packed, micro.PACKED), (from_b, micro.COPYING)), state)
            row, part_start = f.at("%c", f.mul(i, c_m)), f.at(part, f.mul(i, part_row))
            bias_m, bias_n = f.field("%plan", driver.BIAS_M), f.field("%plan", driver.BIAS_N)
            bias = f.at("%bias", f.mul(i, bias_m))
            first = f.variable("i64")                 # column behind those of wide tiles
            f.store("i64", 0, first)
            for rows, vectors in kind.machine.wide() if few_rows else ():
                with f.when(f.both(b_direct, f.compare("sle", "%m", rows))):
                    width = kind.lanes * vectors
                    whole = f.mul(f.div("%n", width), width)
                    low = f.load("i64", first)
                    with f.loop(low, whole, width) as j:
                        source, behind = f.at(at_k, f.mul(j, kind.size)), f.add(j, width)
                        below, beside = f.at(at_k, f.mul(deep, b_k)), f.at(source, width * kind.size)
                        ahead = f.let(f"select i1 {f.compare('sge', behind, whole)}, ptr {below}, ptr {beside}")
                        f.do(f"call void @{micro.name(rows, vectors)}(i64 {steps}, ptr {a}, i64 {a_row}, i64 {a_step}, ptr {source}, "
                             f"i64 {b_k}, ptr {f.at(row, f.mul(j, kind.written_size))}, i64 {c_m}, i64 {height}, i64 {width}, "
                             f"i64 {state}, ptr {f.at(part_start, f.mul(j, kind.sum_size))}, i64 {part_row}, "
                             f"ptr {f.at(bias, f.mul(j, bias_n))}, i64 {bias_m}, i64 {bias_n}, ptr {ahead}, ptr null)")  # fmt: skip
                    f.store("i64", whole, first)
            with f.loop(f.load("i64", first), "%n", kind.width) as j:
                columns = _Columns(f, kind, at_k, j, b_k, b_n, steps, b_direct, from_b)
                tile = f.let(f"select i1 {columns.narrow}, ptr {narrow_tile}, ptr {wide_tile}")
                f.do(f"call void {tile}(i64 {steps}, ptr {a}, i64 {a_row}, i64 {a_step}, ptr {columns.place()}, "
                     f"i64 {columns.step()}, ptr {f.at(row, f.mul(j, kind.written_size))}, i64 {c_m}, i64 {height}, "
                     f"i64 {columns.width}, i64 {how}, ptr {f.at(part_start, f.mul(j, kind.sum_size))}, i64 {part_row}, "
                     f"ptr {f.at(bias, f.mul(j, bias_n))}, i64 {bias_m}, i64 {bias_n}, ptr {columns.ahead(at_k, deep)}, "
                     f"ptr {columns.copy()})")  # fmt: skip
            with f.when(follows):
                beside = f.at("%beside", f.mul(i, f.field("%plan", driver.THEN_STRIDES + 3)))
                for argument, place in enumerate((row, beside, row)):       # those of the loop, then its result
                    f.store("ptr", place, f.at(operands, argument, "ptr"))
                f.do(f"call void {then}(ptr {operands}, i64 %n, i64 {height}, ptr {f.at('%plan', driver.THEN_STRIDES, 'i64')})")
    f.do("ret void")
    return f


class _Columns:
    """The columns of a tile: how many, where they lie in B, and where they are packed unless they are read there."""

    def __init__(self, f: Function, kind: Kind, at_k: str, j: str, b_k: str, b_n: str, steps: str, b_direct: str,
                 from_b: str) -> None:
        self._f, self._kind, self._b_k, self._steps = f, kind, b_k, steps
        self._next, self._b_direct = f.add(j, kind.width), b_direct
        self.width = f.least(kind.width, f.sub("%n", j))
        self.narrow = f.compare("sle", self.width, kind.lanes)
        # The rest of a row that does not fill a tile cannot be read without reading beyond it.
        self.is_full = f.compare("eq", self.width, kind.width)
        self.direct = f.both(from_b, self.is_full)
        self.source = f.at(at_k, f.mul(j, b_n))
        before = f.let(f"select i1 {b_direct}, i64 0, i64 {j}")
        self.packed = f.at("%scratch", f.mul(f.mul(before, steps), kind.lane_size))

    def place(self) -> str:
        return self._f.let(f"select i1 {self.direct}, ptr {self.source}, ptr {self.packed}")

    def step(self) -> str:
        f, kind = self._f, self._kind
        wide, narrow = kind.width * kind.lane_size, kind.lanes * kind.lane_size
        packed = f.let(f"select i1 {self.narrow}, i64 {narrow}, i64 {wide}")
        return f.let(f"select i1 {self.direct}, i64 {self._b_k}, i64 {packed}")

    def ahead(self, at_k: str, deep: str) -> str:
        """Where B of the next tile begins: beside this one, or at the first column of the next steps along k."""
        f, kind = self._f, self._kind
        beside = f.at(self.source, kind.width * kind.size)
        is_last = f.compare("sge", self._next, "%n")
        in_b = f.let(f"select i1 {is_last}, ptr {f.at(at_k, f.mul(deep, self._b_k))}, ptr {beside}")
        behind = f.at(self.packed, f.mul(self._steps, kind.width * kind.lane_size))
        return f.let(f"select i1 {self.direct}, ptr {in_b}, ptr {behind}")

    def copy(self) -> str:
        """Where a tile may write the rows of B that it reads: as they are packed, or aside where no other tile needs them."""
        aside = self._f.at("%scratch", self._f.mul(self._steps, self._kind.width * self._kind.lane_size))
        return self._f.let(f"select i1 {self._b_direct}, ptr {aside}, ptr {self.packed}")


def _state(f: Function, flags: str, k0: str, last: str) -> str:
    """The flags of the tiles of these steps along k."""
    later = f.compare("ne", k0, 0)
    more = f.let(f"or i1 {later}, {f.bit(flags, driver.ACCUMULATE)}")
    bias = f.both(last, f.bit(flags, driver.ADD_BIAS))
    rectify = f.both(last, f.bit(flags, driver.RECTIFY))
    words = ((more, micro.ADD_PART), (bias, micro.ADD_BIAS), (last, micro.LAST), (rectify, micro.RECTIFY))
    return _chosen(f, *words)


def _chosen(f: Function, *words: tuple[str, int]) -> str:
    """The sum of the numbers whose conditions hold."""
    chosen = [f.let(f"select i1 {condition}, i64 {word}, i64 0") for condition, word in words]
    return functools.reduce(f.add, chosen)


def _tile_for(f: Function, kind: Kind, height: str, vectors: int) -> str:
    """The address of the tile function for that many rows."""
    heights = kind.machine.heights(vectors)
    chosen = f"@{micro.name(heights[0], vectors)}"
    for h in heights[1:]:
        fits = f.compare("sle", height, h)
        chosen = f.let(f"select i1 {fits}, ptr @{micro.name(h, vectors)}, ptr {chosen}")
    return chosen
