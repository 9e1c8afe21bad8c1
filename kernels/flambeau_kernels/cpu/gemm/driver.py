"""Products over a batch, cut into blocks of the result that run on the thread pool.

A plan is a table of 64-bit words made once for a set of shapes, strides and dtypes. The result of every matrix of
the batch is cut into a grid of blocks; consecutive blocks form a chunk, the unit threads take. The grid follows from
the shape alone, and a block is computed by one thread in one order, so the bits of a result do not depend on how
many threads there are or which of them was faster.

What computes a block is a native function in the plan, ours (`block.py`) or BLAS (`blas.py`):

    void block(ptr plan, ptr a, ptr b, ptr c, ptr bias, ptr beside, i64 m, i64 n, ptr scratch)

It computes ``m`` rows and ``n`` columns from the addresses of their first operands, over the whole inner dimension,
needs no interpreter lock, and may use SCRATCH bytes of memory. Other native code can call it in the same way, with
a plan of its own made by `new_plan`.

A plan may name an elementwise loop (`engine/launching/loops.py`) that results are sent through while they are in the cache: see
`set_then`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau_kernels.cpu.gemm.text import METADATA, Function
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engine.runtime import pool

# Slots of a plan. Strides are in bytes: of A along m and k, of B along k and n, of C along m (it is contiguous along
# n), of the bias along m and n.
(M, N, K, A_M, A_K, B_K, B_N, C_M, C_N, BIAS_M, BIAS_N,
 ROWS, COLUMNS, GRID_M, GRID_N, ITEMS, GROUP, CHUNKS, DEPTH, FLAGS, SCRATCH, DIRECT, PANEL, PARTIAL, BLOCK, ROUTINE,
 PACK, RELEASE, POOL, PARALLEL, NONE, INCREF, SAVE, RESTORE, THEN, DIMS, TOGETHER,
 THEN_STRIDES) = range(38)  # fmt: skip
BATCH = THEN_STRIDES + 6
# From BATCH on, for each batch dimension, innermost first: its length and the strides of A, B and C.

ACCUMULATE, ADD_BIAS, RECTIFY = 1, 2, 4               # flags; RECTIFY: what is below 0 becomes 0


def new_plan(sizes: Sequence[int], strides: Sequence[int], batch: Sequence[Sequence[int]] = ()) -> np.ndarray:
    """A plan with sizes (m, n, k), the strides from A_M to C_N and batch dimensions (length, and strides of A, B, C).

    The caller adds what says how: the grid, the block function and what it reads.
    """
    plan = np.zeros(BATCH + 4 * len(batch), np.int64)
    plan[M:A_M], plan[A_M:BIAS_M], plan[DIMS] = sizes, strides, len(batch)
    for slot, address in _addresses():
        plan[slot] = address
    for d, dim in enumerate(batch):
        plan[BATCH + 4 * d : BATCH + 4 * d + 4] = dim
    return plan


def set_grid(plan: np.ndarray, rows: int, columns: int, group: int) -> None:
    """Cut results into blocks of `rows` by `columns`, `group` of them to a chunk."""
    m, n = int(plan[M]), int(plan[N])
    down, across = -(-m // rows), -(-n // columns)
    count = 1
    for d in range(int(plan[DIMS])):
        count *= int(plan[BATCH + 4 * d])
    items = down * across * count
    plan[ROWS], plan[COLUMNS], plan[GRID_M], plan[GRID_N] = rows, columns, down, across
    plan[ITEMS], plan[GROUP], plan[CHUNKS] = items, group, -(-items // group)


def set_then(plan: np.ndarray, loop: int, beside_row: int, size: int) -> None:
    """Have `block.py` send finished rows of C, contiguous along n, through a loop: ``c = f(c)`` or ``c = f(c, beside)``.

    Args:
        loop: address of a kernel of `engine/launching/loops.py` whose operands are contiguous along rows.
        beside_row: bytes between rows of `beside`; those of C for a loop without it, which is given C itself.
        size: bytes of an element of either.
    """
    down = int(plan[C_M])
    plan[THEN] = loop
    plan[THEN_STRIDES:BATCH] = size, down, size, beside_row, size, down


@functools.cache
def runner() -> Callable[..., None]:
    """A callable ``run(plan, a, b, c, bias, beside)`` of arrays; the last two are any where the plan reads none."""
    if pyabi.problem() is not None:
        return _run_by_ctypes
    return pyabi.new_builtins({"run_product": _code()["run"]}, None)["run_product"]


def _run_by_ctypes(plan: np.ndarray, *arrays: np.ndarray) -> None:
    execute(plan, [a.ctypes.data for a in arrays])


def execute(plan: np.ndarray, addresses: Sequence[int]) -> None:
    """Run the plan on the data at five addresses: a, b, c, bias and beside. The interpreter lock is released."""
    _execute()(plan.ctypes.data, (ctypes.c_void_p * 5)(*addresses))


@functools.cache
def _execute() -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_code()["execute"])


@functools.cache
def _addresses() -> tuple[tuple[int, int], ...]:
    record, parallel = pool.entry()
    python = ctypes.pythonapi
    return ((POOL, record), (PARALLEL, parallel), (NONE, id(None)), (INCREF, pyabi.address_of(python.Py_IncRef)),
            (SAVE, pyabi.address_of(python.PyEval_SaveThread)),
            (RESTORE, pyabi.address_of(python.PyEval_RestoreThread)))  # fmt: skip


@functools.cache
def _code() -> dict[str, int]:
    return llvm.compile_symbols(_text(), ("run", "execute"), llvm.WRITTEN)


def _text() -> str:
    declarations = "declare i64 @llvm.smin.i64(i64, i64)\ndeclare ptr @malloc(i64)\ndeclare void @free(ptr)\n"
    return declarations + "".join(write().text() for write in (_item, _chunk, _execution, _builtin)) + METADATA


def _item() -> Function:
    """Block number `item` of all blocks of the batch."""
    f = Function("internal void @item(ptr %plan, ptr %pointers, i64 %item, ptr %scratch)")
    across, down = f.field("%plan", GRID_N), f.field("%plan", GRID_M)
    rows, columns = f.field("%plan", ROWS), f.field("%plan", COLUMNS)
    column = f.mul(f.rem("%item", across), columns)
    upper = f.div("%item", across)
    row = f.mul(f.rem(upper, down), rows)
    offsets = [f.variable("i64") for _ in range(4)]
    starts = (f.mul(row, f.field("%plan", A_M)), f.mul(column, f.field("%plan", B_N)),
              f.add(f.mul(row, f.field("%plan", C_M)), f.mul(column, f.field("%plan", C_N))),
              f.add(f.mul(row, f.field("%plan", BIAS_M)), f.mul(column, f.field("%plan", BIAS_N))))  # fmt: skip
    for start, offset in zip(starts, offsets, strict=True):
        f.store("i64", start, offset)
    rest = f.variable("i64")
    f.store("i64", f.div(upper, down), rest)
    with f.loop(0, f.field("%plan", DIMS)) as d:
        dim = f.at("%plan", f.add(f.mul(d, 4), BATCH), "i64")
        length, left = f.field(dim, 0), f.load("i64", rest)
        index = f.rem(left, length)
        f.store("i64", f.div(left, length), rest)
        for operand, offset in enumerate(offsets[:3]):
            f.store("i64", f.add(f.load("i64", offset), f.mul(index, f.field(dim, 1 + operand))), offset)
    a, b, c, bias = (f.at(f.field("%pointers", i, "ptr"), f.load("i64", offset)) for i, offset in enumerate(offsets))
    m = f.least(rows, f.sub(f.field("%plan", M), row))
    n = f.least(columns, f.sub(f.field("%plan", N), column))
    right, down = f.field("%plan", THEN_STRIDES + 2), f.field("%plan", THEN_STRIDES + 3)
    # In a batch, the matrices of `beside` lie as those of C do.
    far = f.sub(f.load("i64", offsets[2]), starts[2])
    beside = f.at(f.field("%pointers", 4, "ptr"), f.add(far, f.add(f.mul(row, down), f.mul(column, right))))
    block = f.field("%plan", BLOCK, "ptr")
    f.do(f"call void {block}(ptr %plan, ptr {a}, ptr {b}, ptr {c}, ptr {bias}, ptr {beside}, i64 {m}, i64 {n}, ptr %scratch)",
         "ret void")  # fmt: skip
    return f


def _chunk() -> Function:
    """Chunk number `i` of the work {plan, pointers}."""
    f = Function("internal void @chunk(i64 %i, ptr %work)")
    plan, pointers = f.field("%work", 0, "ptr"), f.field("%work", 1, "ptr")
    group = f.field(plan, GROUP)
    low = f.mul("%i", group)
    high = f.least(f.add(low, group), f.field(plan, ITEMS))
    scratch = f.let(f"call ptr @malloc(i64 {f.add(f.field(plan, SCRATCH), 64)})")
    behind = f.let(f"and i64 {f.add(f.let(f'ptrtoint ptr {scratch} to i64'), 63)}, -64")
    aligned = f.let(f"inttoptr i64 {behind} to ptr")
    with f.loop(low, high) as item:
        f.do(f"call void @item(ptr {plan}, ptr {pointers}, i64 {item}, ptr {aligned})")
    f.do(f"call void @free(ptr {scratch})", "ret void")
    return f


def _execution() -> Function:
    f = Function("void @execute(ptr %plan, ptr %pointers)")
    work = f.variable("[2 x ptr]")
    f.store("ptr", "%plan", work)
    f.store("ptr", "%pointers", f.at(work, 1, "ptr"))
    chunks, parallel, pool_ = (f.field("%plan", CHUNKS), f.field("%plan", PARALLEL, "ptr"), f.field("%plan", POOL, "ptr"))
    several = f.compare("sgt", chunks, 1)
    with f.when(several):
        f.let(f"call i64 {parallel}(ptr {pool_}, ptr @chunk, ptr {work}, i64 {chunks})")
    with f.unless(several):
        f.do(f"call void @chunk(i64 0, ptr {work})")
    f.do("ret void")
    return f


def _builtin() -> Function:
    """The Python builtin: its arguments are the numpy array that holds the plan and five arrays."""
    f = Function("ptr @run(ptr %self, ptr %args, i64 %nargs)")
    plan = f.load("ptr", f.at(f.field("%args", 0, "ptr"), pyabi.DATA))
    pointers = f.variable("[5 x ptr]")
    for i in range(5):
        array = f.field("%args", 1 + i, "ptr")
        f.store("ptr", f.load("ptr", f.at(array, pyabi.DATA)), f.at(pointers, i, "ptr"))
    long = f.compare("ne", f.field(plan, RELEASE), 0)
    with f.when(long):
        state = f.let(f"call ptr {f.field(plan, SAVE, 'ptr')}()")
        f.do(f"call void @execute(ptr {plan}, ptr {pointers})",
             f"call void {f.field(plan, RESTORE, 'ptr')}(ptr {state})")  # fmt: skip
    with f.unless(long):
        f.do(f"call void @execute(ptr {plan}, ptr {pointers})")
    none = f.field(plan, NONE, "ptr")
    f.do(f"call void {f.field(plan, INCREF, 'ptr')}(ptr {none})", f"ret ptr {none}")
    return f
