"""Which loops an elementwise launch needs: dimensions ordered and merged, and the work cut into chunks.

Everything here is a pure function of shapes, strides, item sizes and the kernel's cost, so the cutting, and
with it every result, is independent of the number of threads.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flambeau_kernels.engine.launching import native, pack
from flambeau_kernels.engine.runtime import pool

# Estimated nanoseconds, for one core with 256-bit vectors: per unit of `Kernel.cost` and per byte moved.
NS_PER_COST = 0.015
NS_PER_BYTE = 0.02
# A chunk is at least this long, so that handing it over (1 us) is a small part.
CHUNK_NS = 6_000.0
# Other Python threads may run during a launch longer than this; giving up and taking the GIL costs about 0.1 us.
RELEASE_NS = 50_000.0

LINE = 64                                             # bytes of a cache line

Dimension = tuple[int, tuple[int, ...]]               # length, and the stride of each operand in bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """Merged dimensions, outermost first, and each operand's access along the last one."""

    dims: tuple[Dimension, ...]
    access: str
    packed: tuple[int, ...] = ()                      # of each operand, the bytes of an element if it is packed, else 0

    @property
    def rows(self) -> int:
        count = 1
        for length, _ in self.dims[:-1]:
            count *= length
        return count

    @property
    def columns(self) -> int:
        return self.dims[-1][0]


def layout(shape: tuple[int, ...], inputs: list[np.ndarray], outs: list[np.ndarray]) -> Layout:
    """How to walk `outs` (all of `shape`, no zero in it) with `inputs` broadcast against them."""
    arrays = [*inputs, *outs]
    strides = [_broadcast_strides(a, len(shape)) for a in arrays]
    first_out = len(inputs)
    dims = [(n, tuple(s[axis] for s in strides)) for axis, n in enumerate(shape) if n != 1]
    # Outputs decide the order: writing memory in order matters most.
    dims.sort(key=lambda dim: [-abs(s) for s in (*dim[1][first_out:], *dim[1][:first_out])])
    merged: list[Dimension] = []
    for n, steps in dims:
        if merged and all(outer == inner * n for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * n, steps)
        else:
            merged.append((n, steps))
    if not merged:
        merged = [(1, tuple(a.itemsize for a in arrays))]
    inner = merged[-1][1]
    access = "".join(_access(step, a, k < first_out)
                     for k, (step, a) in enumerate(zip(inner, arrays, strict=True)))
    return Layout(tuple(merged), access)


def packing(where: Layout, inputs: list[np.ndarray]) -> Layout:
    """`where` with transposed inputs packed: those of which each column of a row lies on another cache line.

    The dimension along which the first of them is dense comes next to the last, so that its lines are used up in a tile.
    """
    if len(where.dims) < 2:
        return where
    *outer, last = where.dims
    items = [a.itemsize if a.itemsize in pack.KINDS else 0 for a in inputs]
    for k, item in enumerate(items):
        if not item or abs(last[1][k]) < LINE:
            continue
        near = min(range(len(outer)), key=lambda d: abs(outer[d][1][k]) or LINE)
        if 0 < abs(outer[near][1][k]) < LINE:
            outer.append(outer.pop(near))
            break
    else:
        return where
    nearest = outer[-1][1]
    items += [0] * (len(nearest) - len(items))        # of results, which decided the order
    packed = tuple(item if abs(step) >= LINE > abs(after) > 0 else 0
                   for item, step, after in zip(items, last[1], nearest, strict=True))
    access = "".join("c" if item else a for item, a in zip(packed, where.access, strict=True))
    return Layout((*outer, last), access, packed)


def _broadcast_strides(array: np.ndarray, ndim: int) -> tuple[int, ...]:
    own = tuple(0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True))
    return (0,) * (ndim - array.ndim) + own


def _access(stride: int, array: np.ndarray, is_input: bool) -> str:
    item = array.itemsize
    if stride == item:
        return "c"
    if is_input and stride == 0:
        return "s"
    return "d" if is_input and stride == 2 * item and item <= 4 and array.dtype.kind != "c" else "g"


def table(where: Layout, kernel_address: int, cost: int, bytes_per_element: int) -> np.ndarray:
    """The plan that native code reads, for `where` and the kernel at `kernel_address`."""
    operands = len(where.access)
    one_row = (1, (0,) * operands)
    dims = where.dims if len(where.dims) > 1 else (one_row, *where.dims)
    *outer, (n1, next_strides), (n0, inner_strides) = dims
    plan = native.new_table(native.DIMS + len(outer) * (1 + operands) + 3 * operands)
    ns = nanoseconds(cost, bytes_per_element)
    small = where.rows * n0 < shared_from(ns)
    if where.packed:
        plan[native.PACK] = pack.address(tuple(sorted({*where.packed} - {0})))
        tile = pack.TILE_BYTES // max(where.packed)
        column_grain = min(n0, max(pack.SIDE, tile // n1))  # wider where rows are few
        row_grain = min(tile // column_grain, where.rows)
    else:
        row_grain, column_grain = (where.rows, n0) if small else grains(where.rows, n0, ns)
    across = -(-n0 // column_grain)
    plan[native.KERNEL], plan[native.OPERANDS] = kernel_address, operands
    plan[native.N0], plan[native.N1], plan[native.OUTER] = n0, n1, len(outer)
    plan[native.ROWS], plan[native.ROW_GRAIN], plan[native.COLUMN_GRAIN] = where.rows, row_grain, column_grain
    plan[native.COLUMN_CHUNKS] = across
    plan[native.CHUNKS] = across * -(-where.rows // row_grain)
    if small:
        plan[native.POOL] = pool.alone()
    plan[native.RELEASE] = where.rows * n0 * ns > RELEASE_NS
    # The driver takes the lowest of the outer dimensions first.
    outer.reverse()
    pairs = [s for both in zip(inner_strides, next_strides, strict=True) for s in both]
    plan[native.DIMS:] = [*(n for n, _ in outer), *pairs, *(s for _, steps in outer for s in steps),
                           *(where.packed or (0,) * operands)]
    return plan


def nanoseconds(cost: int, bytes_per_element: int) -> float:
    """Of one core, for an element."""
    return cost * NS_PER_COST + bytes_per_element * NS_PER_BYTE


def shared_from(ns_per_element: float) -> int:
    """Elements from which work is cut into chunks."""
    return math.ceil(2 * CHUNK_NS / ns_per_element)


def chunk_elements(ns_per_element: float) -> int:
    """Elements of a chunk that is worth handing to another thread, roughly."""
    return max(1024, int(CHUNK_NS / ns_per_element) // 1024 * 1024)


def grains(rows: int, columns: int, ns_per_element: float) -> tuple[int, int]:
    """Rows and columns of a chunk worth handing to another thread."""
    elements = chunk_elements(ns_per_element)
    if columns < elements:
        return _even(rows, max(1, elements // columns), 1), columns
    return 1, _even(columns, elements, LINE)


def _even(length: int, grain: int, unit: int) -> int:
    """A grain of about `grain`, in whole units, that cuts `length` into an even number of pieces of one size.

    Two threads, or four, then end together where there are only a few pieces.
    """
    pieces = -(-length // grain)
    if pieces < 2:
        return min(length, grain)
    pieces += pieces % 2
    each = -(-length // pieces)
    return min(length, -(-each // unit) * unit)
