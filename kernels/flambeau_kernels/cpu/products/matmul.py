"""Matrix products of arrays, of any strides and over batches.

`matmul(a, b)` chooses, by dtype and shape alone:

==========================  ============================================================================================
small products              numpy, whose call costs least; OpenBLAS computes them on one thread
int8, uint8 and int16       dot products of two or four neighbours (`narrow_products.py`), where the processor has them
vectors of integers         `integer_dots.py`
float32, float64, halves    our own kernels (`gemm/block.py`), cut into blocks that run on the thread pool; halves are summed
and integers                in float32 and rounded once
one row or column           `gemm/vectors.py`, which reads the matrix once; rows of a few elements `short_rows.py`
one column by one row       elementwise
few elements of long sums   the sums in pieces, which are products of a batch, added up in their order
complex                     OpenBLAS block by block on the thread pool (`gemm/blas.py`)
==========================  ============================================================================================

Without a compiler, or with numpy's backend, everything is numpy's. Blocks follow from the shape, and each is computed in one
order on one thread, so results do not depend on the number of threads. With `set_invariant(True)` every product is computed by
the one general kernel, in which an element is summed in an order that depends on the length of the sum only: a row of the result
has the same bits whatever other rows there are. Engines without microkernels have `ordered_products.py` for that.

`matmul_then` is a product and an elementwise formula of its elements, and perhaps of a matrix beside it. Our own kernels send
finished rows through the formula's compiled loop (`engine/launching/loops.py`, the very loop that the formula alone runs) while they are in
the first cache; the kernels themselves stay one for all formulas. `RECTIFIED`, the cheapest, is applied before sums leave the
registers. Everywhere else the formula is a pass of its own.

Loops, outermost first (`gemm/driver.py`, `gemm/block.py`, `gemm/micro.py`): matrices of the batch and blocks of the result, in
chunks that threads take; steps of up to 384 along k, for which B is packed; rows by tile, for which A is packed; columns by tile;
k, one fused multiply-add for each of the up to 14 x 32 sums held in registers.

Code that has native loops of its own can call the block function of a plan directly: see `plan_for`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import flambeau_kernels
import flambeau_kernels.memory
from flambeau_kernels import Formula, engines
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.quiet import quietly
from flambeau_kernels.vocabulary import where

__all__ = ["MULTIPLIED", "RECTIFIED", "dot", "has_microkernels", "matmul", "matmul_then", "plan_for", "prepare_then", "set_invariant",
           "product_by_numpy", "batch_by_numpy", "dot_by_numpy", "spread_rows", "vector_by_numpy"]  # fmt: skip

# Multiplications up to which OpenBLAS stays on one thread, and numpy's call is the cheapest. Products with vectors are shorter.
MOST_PRODUCTS, MOST_THIN_PRODUCTS = flambeau_kernels.hot_calls.MOST_PRODUCTS, flambeau_kernels.hot_calls.MOST_THIN_PRODUCTS
# The same for dtypes that numpy multiplies without BLAS, and for products of a column and a row.
MOST_PRODUCTS_WITHOUT_BLAS = flambeau_kernels.hot_calls.MOST_PRODUCTS_WITHOUT_BLAS
# Multiplications up to which more threads of OpenBLAS gain a third of a product's time at most. They wait for each other by spinning, so
# where anything else runs on the machine they lose tens of it. Where numpy multiplies for want of our own tiles, such products have one.
MOST_PRODUCTS_ON_ONE_THREAD = 1 << 22
# Elements of vectors of integers from which a kernel's loop repays its call: numpy multiplies them one by one.
COMPILED_DOT_FROM = 512
# Multiplications of one of several matrices from which numpy's calls of BLAS cost more than our loop.
MOST_PRODUCTS_OF_MANY = flambeau_kernels.hot_calls.MOST_PRODUCTS_OF_MANY
# Multiplications that are worth a chunk of their own (some 5 microseconds), that the work on one matrix is cut into at most, and
# above which the interpreter lock is released. An item's own cost counts as multiplications too.
CHUNK, MOST_PIECES, LONG, ITEM = 1 << 18, 64, 1 << 21, 1 << 12
# Pieces for each thread that our own kernels cut one matrix into at most: every piece packs operands for itself, a few of them let
# threads that are ahead help the others. An element is summed in the same order in any piece.
PIECES_OF_A_THREAD = 3
# Multiplications that take as long as moving an element from one cache to another; registers hold so many.
MOVE = 4
# Binary logarithm of the side of a cube that is worth cutting, which then has as many pieces as its side is longer.
PIECES_FROM = 5

# The one formula that our own kernels apply to sums in registers.
RECTIFIED = Formula(lambda made: where(made < 0, 0, made), "relu")
# What a product of one column and one row comes to. Sums begin with 0, so none of them is -0.
SINGLE_PRODUCTS = Formula(lambda a, b: a * b + 0, "single_products")
SINGLE_PRODUCTS_AND_BIAS = Formula(lambda a, b, bias: a * b + 0 + bias, "single_products_and_bias")

Run = Callable[..., None]                              # of a, b, out and bias
_plans: dict[Any, Run] = {}
# Rows for which it pays to leave the other operand, contiguous along k, strided; fewer where pairs are multiplied twice as fast, and
# where registers are few: sums of single products then wait for loads, and tiles with panels do not.
MOST_ROWS, MOST_ROWS_OF_PAIRS, MOST_ROWS_OF_FEW_SUMS = 48, 12, 8
FULL_TILE = 16                                         # sums of a tile, in vectors
# Columns (or rows) of the other operand for which it pays to copy a matrix whose rows are whole pages apart. For fewer it is packed as it
# lies, once for each block of them, which takes a third of the time of a copy.
SPREAD_FOR = 512
# Elements of a result up to which long sums are cut: more of them make blocks enough. Fewer pieces gain less than they cost.
MOST_LONG_SUMS, FEWEST_PARTS = 256, 12
# Elements of a row up to which `short_rows.py` takes a product with a vector: longer rows fill registers of their own.
SHORT_ROW = 8
# Bytes of a line of the cache; lines a page apart share few places in it.
LINE, PAGE = 64, 4096
# Bytes of a result from which its memory is worth keeping for the next one.
KEPT_FROM = 1 << 16
_MOST_PLANS = 4096
_invariant = False
_lock = threading.Lock()


def set_invariant(on: bool) -> None:
    """Choose whether an element's bits shall depend on nothing but its own row, column and the length of the sum."""
    global _invariant
    _invariant = bool(on)
    _plans.clear()
    flambeau_kernels.hot_calls.refuse_products(on)


def matmul(a: Any, b: Any, out: Any = None, *, bias: Any = None, accumulate: bool = False) -> Any:
    """``a @ b + bias``: ``(*, m, k) @ (*, k, n) -> (*, m, n)``, leading dimensions broadcast.

    Args:
        a, b: arrays of one dtype and of two or more dimensions, with any strides.
        out: where the result goes, not overlapping the others; a new array of the dtype of `a` by default. Half operands may be
            written to a float32 `out`, without being rounded.
        bias: ``(n,)`` or ``(1, n)``, added to every row, or ``(m, 1)``, added to every column.
        accumulate: add to what `out` holds.
    """
    if out is None:
        out = np.empty(_result_shape(a.shape, b.shape), a.dtype)
    if not out.size:
        return out                                    # of any number of matrices, which nothing is to loop over
    key = (a.dtype, a.shape, a.strides, b.shape, b.strides, out.dtype, out.strides, accumulate,
           None if bias is None else bias.shape, flambeau_kernels._backend)  # fmt: skip
    run = _plans.get(key)
    if run is None:
        run = _choose(a, b, out, bias, accumulate)
        with _lock:
            if len(_plans) >= _MOST_PLANS:
                _plans.clear()
            _plans[key] = run
    run(a, b, out, bias)
    return out


def matmul_in(table: Any, a: Any, b: Any, bias: Any = None) -> Any:
    """`matmul` as an entry of a table of launches (`engine/calls/launch_table.py`); None where it is not one launch of our own kernels."""
    out = np.empty(_result_shape(a.shape, b.shape), a.dtype)
    launch = getattr(_choose(a, b, out, bias, False, at_once=True), "launch", None)
    if launch is None:
        return None
    plan, turned, sums = launch
    if bias is not None and (bias.dtype != sums or not bias.flags.c_contiguous):
        return None
    from ..gemm import driver

    out = table.new(out.shape, a.dtype)
    first, second = (b, a) if turned else (a, b)
    table.run(driver.runner(), table.constant(plan), first, second, out, out if bias is None else bias, out)
    return out


FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_WIDENED = flambeau_kernels.conversion(FLOAT32)
_ROUNDED = {d: flambeau_kernels.conversion(d) for d in map(np.dtype, (np.float16, ml_dtypes.bfloat16))}
_BY_BLAS, _INTEGERS, _HALVES = frozenset("fdFD"), frozenset("bBhHiIlLqQ"), frozenset("eE")
MULTIPLIED = _BY_BLAS | _INTEGERS | _HALVES            # characters of the dtypes that products are of


def product_by_numpy(a: Any, b: Any) -> Any:
    """``a @ b`` of vectors and matrices of one dtype that fit, where one call of numpy costs least; None for others.

    It is the call that `matmul` and `dot` would come to.
    """
    d, shape, other = a.dtype, a.shape, b.shape
    kind, inner = d.char, shape[-1]
    if _invariant or inner != other[0] or b.dtype is not d or len(shape) > 2:
        return None
    if len(other) == 1:
        work, most = a.size, MOST_THIN_PRODUCTS
    elif len(other) == 2:
        columns = other[1]
        work, most = a.size * columns, MOST_THIN_PRODUCTS if columns == 1 or len(shape) == 1 or shape[0] == 1 else MOST_PRODUCTS
    else:
        return None
    if kind in _BY_BLAS and inner > 1:
        if work > most:
            return None
        made = a.dot(b)
    elif work > MOST_PRODUCTS_WITHOUT_BLAS:
        return None
    elif kind in _HALVES:
        return _product_of_halves(a, b)
    elif kind in _INTEGERS or kind in _BY_BLAS:
        made = a.dot(b)
    else:
        return None
    return made if made.__class__ is np.ndarray else np.asarray(made, d)


def _product_of_halves(a: Any, b: Any) -> Any:
    """The product in float32, rounded once."""
    made, d = _product_in_float32(a, b), a.dtype
    rounded = _ROUNDED[d].direct(made)
    return flambeau_kernels.recast(made, d) if rounded is None else rounded


def wide_product(a: Any, b: Any) -> Any:
    """``a @ b`` of matrices of halves that fit, in float32, where one call of numpy costs least; None for others."""
    if _invariant or a.ndim != 2 or b.ndim != 2 or a.dtype not in _ROUNDED or a.size * b.shape[1] > MOST_PRODUCTS_WITHOUT_BLAS:
        return None
    return _product_in_float32(a, b)


def _product_in_float32(a: Any, b: Any) -> Any:
    wide = _WIDENED.direct(a)
    if wide is None:
        wide = flambeau_kernels.recast(a, FLOAT32)
    also = _WIDENED.direct(b)
    if also is None:
        also = flambeau_kernels.recast(b, FLOAT32)
    made = flambeau_kernels.hot_calls.matmul(wide, also)
    if made is None:
        made = np.asarray(wide.dot(also), FLOAT32)
    return made


def vector_by_numpy(a: Any, v: Any) -> Any:
    """`product_by_numpy` for a matrix and a vector."""
    d = a.dtype
    if a.ndim != 2 or v.ndim != 1:
        return None
    if (d is FLOAT32 or d is FLOAT64) and v.dtype is d and a.size <= MOST_THIN_PRODUCTS and not _invariant:
        return a.dot(v)                                # ValueError if they do not fit
    return product_by_numpy(a, v)


def dot_by_numpy(a: Any, b: Any) -> Any:
    """`product_by_numpy` for two vectors."""
    d = a.dtype
    if a.ndim != 1 or b.ndim != 1:
        return None
    if (d is FLOAT32 or d is FLOAT64) and b.dtype is d and a.size <= MOST_THIN_PRODUCTS:
        return np.asarray(a.dot(b))
    if a.size >= COMPILED_DOT_FROM and b.dtype is d and b.size == a.size and d.char in _INTEGERS:
        return dot(a, b)
    return product_by_numpy(a, b)


def batch_by_numpy(a: Any, b: Any) -> Any:
    """``a @ b`` of two batches of small matrices, or a vector and one, by numpy's one call; None for others, and empty ones."""
    made = flambeau_kernels.hot_calls.bmm(a, b)
    if made is not None:
        return made
    columns = b.shape[-1]
    if _invariant or b.dtype is not a.dtype or not a.size or not b.size or a.dtype.char not in "fd":
        return None
    rows = a.shape[-2] if a.ndim > 1 else 1
    if rows * a.shape[-1] * columns >= MOST_PRODUCTS_OF_MANY or max(a.size * columns, b.size * rows) > MOST_THIN_PRODUCTS:
        return None
    if a.ndim > 3:
        x, y = _one_batch(a, b)
        made = np.matmul(x, y, order="C")
        if x is a:
            return made if made.shape[:-2] == a.shape[:-2] else None
        return made.reshape(*a.shape[:-1], columns)
    return np.matmul(a, b, order="C")                  # ValueError if they do not fit


def _one_batch(a: Any, b: Any) -> tuple[Any, Any]:
    """Batches of several equal dimensions with one instead, copied where strides forbid it: sums of one order, whatever the strides are."""
    if a.shape[:-2] != b.shape[:-2]:
        return a, b
    count = math.prod(a.shape[:-2])
    return a.reshape(count, *a.shape[-2:]), b.reshape(count, *b.shape[-2:])


def matmul_then(a: Any, b: Any, then: Formula, *, bias: Any = None, beside: Any = None, spread: bool = False) -> Any:
    """``then(a @ b + bias)`` or ``then(a @ b + bias, beside)`` of matrices, or batches of as many, elementwise, in a new array.

    The bits are those of the product followed by the formula, but blocks of the product go through the formula as soon as they
    are finished, while they are in the cache.

    Args:
        then: computes in the dtype of `a`; halves are rounded before it, as between two operations.
        beside: an array of the shape and dtype of the result.
        spread: leave gaps between rows that would lie whole pages apart, which a product that reads them would have to copy.
    """
    shape = _result_shape(a.shape, b.shape)
    out = spread_rows(shape, a.dtype) if spread else np.empty(shape, a.dtype)
    key = (then, a.dtype, a.shape, a.strides, b.dtype, b.shape, b.strides, out.strides, None if bias is None else bias.shape,
           None if beside is None else (beside.dtype, beside.shape, beside.strides), flambeau_kernels._backend)  # fmt: skip
    run = _plans.get(key)
    if run is None:
        run = _choose_then(a, b, out, bias, then, beside)
        with _lock:
            if len(_plans) >= _MOST_PLANS:
                _plans.clear()
            _plans[key] = run
    run(a, b, out, bias, beside)
    return out


def spread_rows(shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array whose rows have a gap behind them if they would lie whole pages apart: products that read it need no copy of it."""
    gap = LINE // dtype.itemsize if shape[-1] * dtype.itemsize % PAGE == 0 else 0
    return np.empty((*shape[:-1], shape[-1] + gap), dtype)[..., : shape[-1]]


def prepare_then(then: Formula, dtype: np.dtype, has_beside: bool) -> None:
    """Compile what `matmul_then` sends results through."""
    from flambeau_kernels.engine.launching import elementwise

    elementwise.row_loop(then, (dtype.name,) * (1 + has_beside), dtype.name, dtype)


def dot(a: Any, b: Any) -> Any:
    """The sum of products of two vectors, 0-d; halves are summed in float32."""
    if a.size >= COMPILED_DOT_FROM and a.dtype.char in _INTEGERS and compiles():
        from . import integer_dots

        return integer_dots.dot(a, b)
    if _parts_of_sums(1, 1, a.size) > 1 and a.dtype.kind != "c" and _plain(a) and _plain(b) and has_microkernels():
        return matmul(a[None], b[:, None]).reshape(())
    wide = _wide(a.dtype)
    if wide is not None:
        return np.asarray(dot(a.astype(wide), b.astype(wide))).astype(a.dtype)
    if a.size <= MOST_THIN_PRODUCTS or not engines.chosen().multiplies:
        return np.asarray(np.dot(a, b))
    from ..gemm.blas import single_threaded

    with single_threaded():
        return np.asarray(np.dot(a, b))


def _result_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a[-1] != b[-2]:
        raise ValueError(f"matmul: a has {a[-1]} columns, b has {b[-2]} rows; they must be equal: {a} @ {b}")
    if a[:-2] == b[:-2] or len(b) == 2:
        return (*a[:-1], b[-1])
    return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])


# -- choosing --------------------------------------------------------------------------------------------------------------


def has_microkernels() -> bool:
    """Whether products run on our own microkernels: the engine has them, and the processor the instructions that they are made of."""
    if not engines.chosen().multiplies:
        return False
    from ..gemm import tiles

    return tiles.machine() is not None


def _choose(a: Any, b: Any, out: Any, bias: Any, accumulate: bool, then: _Then | None = None, at_once: bool = False) -> Run:
    """How products like this one are computed, and with them what `then` says if it can be; `at_once` by the kernel for many such."""
    if out.nbytes >= KEPT_FROM:
        flambeau_kernels.memory.keep_freed()
    m, k = a.shape[-2:]
    n = b.shape[-1]
    count = out.size // (m * n) if m * n else 0
    general = _by_numpy(accumulate)
    if _invariant and out.size and k and not has_microkernels() and compiles():
        return _by_numpy(accumulate, _ordered)
    if not engines.chosen().multiplies and min(m, n) > 1 and MOST_PRODUCTS < m * n * k <= MOST_PRODUCTS_ON_ONE_THREAD:
        return _on_one_thread(general) if a.dtype.kind in "fcV" else general
    if not out.size or not k or not engines.chosen().multiplies or not all(map(_plain, (a, b, out))) or a.dtype != b.dtype:
        return general
    if not out.flags.writeable:
        raise ValueError("matmul: out is read-only")
    real, vector = a.dtype.kind == "f" and a.dtype.itemsize > 2, m == 1 or n == 1
    if _invariant and a.dtype.kind == "c":
        return _by_parts(accumulate)
    by_blas = (real or a.dtype.kind == "c") and k > 1
    least = (MOST_THIN_PRODUCTS if vector else MOST_PRODUCTS) if by_blas else MOST_PRODUCTS_WITHOUT_BLAS
    if count > 1 and m * n * k >= MOST_PRODUCTS_OF_MANY:
        least = min(least, MOST_THIN_PRODUCTS)
    if not _invariant and m * n * k * count <= least and out.dtype == a.dtype:
        return general
    if a.dtype.kind == "c":
        return _by_blas(a, b, out, bias, accumulate) or general
    if k == 1 and not accumulate:
        return _by_elements
    if a.ndim == b.ndim == 2 and not accumulate and vector and not _invariant and has_microkernels():
        rows = b.T if m == 1 else a
        if k <= SHORT_ROW and rows.strides[1] == rows.itemsize and rows.strides[0] >= k * rows.itemsize:
            return _by_short_rows
    if (a.dtype.itemsize == 1 or a.dtype == np.int16) and a.ndim == b.ndim == 2 and bias is None and not accumulate:
        from . import narrow_products

        if narrow_products.pays(m, n, k, a.dtype.itemsize):
            return _of_narrow_integers
    if count == 1 and a.ndim == b.ndim == 2 and has_microkernels():
        parts = _parts_of_sums(m, n, k)
        if parts > 1:
            return _in_parts(parts, accumulate)
    try:
        own = _by_own(a, b, out, bias, accumulate, then, at_once)
    except engines.Refused:
        own = None
    return own or _by_blas(a, b, out, bias, accumulate) or general


def _choose_then(a: Any, b: Any, out: Any, bias: Any, then: Formula, beside: Any) -> Callable[..., None]:
    """As `_choose`, for `matmul_then`."""
    later = _Then(then, beside)
    run = _choose(a, b, out, bias, False, later)
    if later.attached:
        return run
    alone = beside is None

    def multiply_all(a: Any, b: Any, out: Any, bias: Any, beside: Any) -> None:
        run(a, b, out, bias)
        flambeau_kernels.launch(then, (out,) if alone else (out, beside), (out,), out.dtype)

    return multiply_all


class _Then:
    """What is to be done to a product's elements, and whether its plan does it."""

    def __init__(self, formula: Formula, beside: Any) -> None:
        self.formula, self.beside, self.attached = formula, beside, False

    def attach(self, plan: Any, out: Any, written_as_summed: bool) -> None:
        """Have the plan do it, if there is code for it and whole arrays of that size are left to that code too."""
        from flambeau_kernels.engine.launching import elementwise

        from ..gemm import driver

        beside = out if self.beside is None else self.beside
        rows = beside.shape == out.shape and beside.dtype == out.dtype and beside.strides[-1] == out.itemsize
        if not rows or not _plain(beside) or out.size < flambeau_kernels.COMPILED_FROM:
            return
        # The matrices of a batch are found in both by the same strides.
        if out.ndim > 2 and beside.strides != out.strides:
            return
        # Halves are rounded first: what vanishes then keeps its sign.
        if self.formula is RECTIFIED and written_as_summed and out.dtype.kind == "f":
            plan[driver.FLAGS] |= driver.RECTIFY
            self.attached = True
            return
        inputs = (out.dtype.name,) * (1 if self.beside is None else 2)
        loop = elementwise.row_loop(self.formula, inputs, out.dtype.name, out.dtype)
        if loop is not None:
            driver.set_then(plan, loop, beside.strides[-2], out.itemsize)
            self.attached = True


def _plain(x: Any) -> bool:
    """Whether native code can read this array by its strides."""
    return type(x) is np.ndarray and x.dtype.isnative and bool(x.flags.aligned)


def _wide(dtype: Any) -> Any:
    """What numpy multiplies instead of a dtype; None for the dtype itself."""
    if dtype.char in "fdFD" and dtype.isbuiltin == 1:   # without asking for names, which numpy makes anew each time
        return None
    if dtype.name == "complex32":
        return np.complex64
    return np.float32 if dtype.kind == "V" or dtype.kind == "f" and dtype.itemsize <= 2 or dtype.isbuiltin != 1 else None


def _by_numpy(accumulate: bool, multiply: Callable[..., Any] = np.matmul) -> Run:
    """By `multiply`, of what `_wide` says."""

    def run(a: Any, b: Any, out: Any, bias: Any) -> None:
        wide = _wide(a.dtype)
        if a.ndim > 3 and a.shape[:-2] == b.shape[:-2] and out.flags.c_contiguous:
            a, b = _one_batch(a, b)
            out = out.reshape(len(a), *out.shape[-2:])
        if wide is None and not accumulate and out.dtype == a.dtype and multiply is np.matmul:
            np.matmul(a, b, out=out)
            if bias is not None:
                np.add(out, bias, out=out)
            return
        made = multiply(a, b) if wide is None else multiply(a.astype(wide), b.astype(wide))
        if accumulate:
            made = made + out.astype(made.dtype)
        out[...] = made if bias is None else made + bias.astype(made.dtype)

    return run


def _ordered(a: Any, b: Any) -> Any:
    """`a @ b` in one order of sums; integers have the same bits in any."""
    if a.dtype.kind == "c":
        return _ordered(a.real, b.real) - _ordered(a.imag, b.imag) + 1j * (_ordered(a.real, b.imag) + _ordered(a.imag, b.real))
    if a.dtype.kind != "f":
        return np.matmul(a, b)
    from . import ordered_products

    return ordered_products.product(a, b)


def _by_parts(accumulate: bool) -> Run:
    """Complex products from real ones."""

    def run(a: Any, b: Any, out: Any, bias: Any) -> None:
        real = matmul(a.real, b.real) - matmul(a.imag, b.imag)
        made = real + 1j * (matmul(a.real, b.imag) + matmul(a.imag, b.real))
        if accumulate:
            made = made + out
        out[...] = made if bias is None else made + bias

    return run


def _of_narrow_integers(a: Any, b: Any, out: Any, bias: Any) -> None:
    """Of int16, or bytes, whose last eight bits do not depend on whether they are read with a sign."""
    from . import narrow_products

    if a.itemsize == 1:
        a, b = a.view(np.uint8), b.view(np.int8)
    np.copyto(out, narrow_products.product(a, b), casting="unsafe")


def _by_elements(a: Any, b: Any, out: Any, bias: Any) -> None:
    """Of matrices of one column and one row."""
    formula, operands = (SINGLE_PRODUCTS, (a, b)) if bias is None else (SINGLE_PRODUCTS_AND_BIAS, (a, b, bias))
    flambeau_kernels.launch(formula, operands, (out,), _sums_of(a.dtype))


def _by_short_rows(a: Any, b: Any, out: Any, bias: Any) -> None:
    """Of one column, or one row, and a matrix that is contiguous along the few elements of each sum."""
    from . import short_rows  # which loads the compiler: programs of products alone need none

    if out.shape[0] == 1:
        a, b, out = b.T, a.T, out.T
    made = out if bias is None else np.empty(out.shape, _sums_of(out.dtype))
    short_rows.product(a, _contiguous(b[:, 0], _sums_of(a.dtype)), made[:, 0])
    if bias is not None:
        _copy(made + bias.reshape(-1, 1), out)


@quietly
def _copy(sums: Any, out: Any) -> None:
    """`sums` rounded to `out`, to infinity where they are too large for it."""
    out[...] = sums


def _contiguous(x: Any, dtype: Any) -> Any:
    """`x` in C order and of another dtype."""
    return np.ascontiguousarray(x) if x.dtype is dtype else flambeau_kernels.recast(np.ascontiguousarray(x), dtype)


def _sums_of(dtype: Any) -> Any:
    """The dtype that sums of products have."""
    return FLOAT32 if dtype.kind in "fV" and dtype.itemsize < 4 else dtype


def _parts_of_sums(m: int, n: int, k: int) -> int:
    """How many products of a batch one of few elements is computed as, so that threads share its sums."""
    if _invariant or m * n > MOST_LONG_SUMS:
        return 1
    length = CHUNK // (m * n + MOVE * (m + n))
    parts = min(k // length, MOST_PIECES)
    return parts if parts >= FEWEST_PARTS else 1


def _in_parts(parts: int, accumulate: bool) -> Run:
    """The sum of `parts` products of columns of `a` and rows of `b`, and of what is left of them."""

    def run(a: Any, b: Any, out: Any, bias: Any) -> None:
        (m, k), n = a.shape, b.shape[1]
        length, rest = divmod(k, parts)
        whole = k - rest
        made = np.empty((parts + (rest > 0), m, n), _sums_of(a.dtype))
        matmul(a[:, :whole].reshape(m, parts, length).swapaxes(0, 1), b[:whole].reshape(parts, length, n), made[:parts])
        if rest:
            matmul(a[:, whole:], b[whole:], made[parts])
        total = np.add.reduce(made, 0, made.dtype)
        if accumulate:
            total += out
        if bias is not None:
            total += bias
        _copy(total, out)

    return run


def _on_one_thread(general: Run) -> Run:
    """`general` while OpenBLAS uses one thread, where numpy has that library."""
    from ..gemm.blas import one_thread

    if one_thread is None:
        return general
    guard = one_thread

    def run(a: Any, b: Any, out: Any, bias: Any) -> None:
        with guard:
            general(a, b, out, bias)

    return run


def _by_blas(a: Any, b: Any, out: Any, bias: Any, accumulate: bool) -> Run | None:
    from ..gemm import blas, driver

    guard = blas.one_thread
    if guard is None:
        return None
    address = blas.routine(a.dtype.name)
    if not address or 1 in (a.shape[-2], b.shape[-1]) or not all(map(blas.readable, (a, b, out.swapaxes(-1, -2)))) \
            or out.strides[-1] != out.itemsize:  # fmt: skip
        return _on_one_thread(_by_numpy(accumulate))
    plan, _ = plan_for(a, b, out)
    plan[driver.BLOCK], plan[driver.ROUTINE] = blas.block(a.dtype.name), address
    plan[driver.FLAGS] = driver.ACCUMULATE if accumulate else 0
    m, n, k = (int(plan[slot]) for slot in (driver.M, driver.N, driver.K))
    rows, columns, group = _grid(m, n, k, out.size // (m * n), 8, 8, 512, (True, True))
    driver.set_grid(plan, rows, columns, group)
    start = driver.runner()

    def run(a: Any, b: Any, out: Any, bias: Any) -> None:
        with guard:
            start(plan, a, b, out, out, out)
        if bias is not None:
            np.add(out, bias, out=out)

    return run


def _by_own(a: Any, b: Any, out: Any, bias: Any, accumulate: bool, then: _Then | None, at_once: bool) -> Run | None:
    from flambeau_kernels.engine.runtime import pool

    from ..gemm import block, driver, spread, tiles, vectors

    kind = tiles.kind(a.dtype.name, out.dtype.name)
    if kind is None:
        return None
    way, turned = _way(a, b, kind)
    sums = np.dtype(f"{'f' if kind.sum in ('float', 'double') else 'i'}{kind.sum_size}")
    copies: list[Any] = [None, None]
    few_rows_later = False
    if way is None:
        # A bias of columns has an element for each row of a matrix.
        joins = bias is None or bias.ndim == 1 or bias.shape[0] == 1
        plan, turned = plan_for(a, b, out, joins=joins)
        if plan is not None and out.ndim == 2:
            for i, in_pages in enumerate(block.paged(plan, kind)[:: -1 if turned else 1]):
                x, reads = (b, out.shape[0]) if i else (a, out.shape[1])
                packed = i != turned and bool(block.direct(plan, kind) & (block.B_COPIED | block.B_DIRECT))  # or read once
                if in_pages and not packed and reads >= SPREAD_FOR and x.nbytes <= spread.MOST and x.itemsize in x.strides:
                    copies[i] = spread.spread(x)
                    a, b = (a, copies[i](b)) if i else (copies[i](a), b)
            plan, turned = plan_for(a, b, out)
    else:                                             # the vectors are made contiguous and converted once, for they are read often
        x = np.empty((a if turned else b).shape, sums)
        plan, _ = plan_for(x, b, out, True) if turned else plan_for(a, x, out, False)
    if plan is None or accumulate and kind.written != kind.sum:
        return _through_copy(accumulate)
    plan[driver.FLAGS] = (driver.ACCUMULATE if accumulate else 0) | (0 if bias is None else driver.ADD_BIAS)
    if bias is not None:
        rows, columns = out.shape[-2:]
        along_rows = bias.ndim == 1 or bias.shape[1] == columns and not (columns == 1 and bias.shape[0] == rows)
        plan[driver.BIAS_N if along_rows != turned else driver.BIAS_M] = kind.sum_size
    m, n, k = (int(plan[slot]) for slot in (driver.M, driver.N, driver.K))
    count = out.size // (m * n)
    if way is None:
        direct = block.direct(plan, kind)
        packed = (not direct & block.A_DIRECT, not direct & (block.B_DIRECT | block.B_COPIED))
        pool.when_threads_change(_plans.clear)
        pieces = min(MOST_PIECES, PIECES_OF_A_THREAD * pool.get_num_threads())
        driver.set_grid(plan, *_grid(m, n, k, count, kind.machine.rows, kind.width, block.most_columns(kind, k), packed, pieces,
                                    pool.get_num_threads()))
        few_rows_later = block.prepare(plan, kind, at_once)
        if then is not None and not turned:
            then.attach(plan, out, kind.sum == kind.written)
    else:
        rows = min(m, max(CHUNK // (2 * k * n), vectors.TOGETHER if way == "dots" else 1024))
        driver.set_grid(plan, rows, n, max(CHUNK // (2 * rows * n * k + ITEM), 1))
        if way == "dots":
            plan[driver.BLOCK] = vectors.dots(kind)
        else:
            vectors.prepare(plan, kind)
    plan[driver.RELEASE] = m * n * k * count >= LONG
    run = _own_run(plan, turned, sums, None if way is None else sums, copies)
    return _counted(run, lambda: block.take_over(plan, kind)) if few_rows_later else run


def _counted(run: Run, taken_over: Callable[[], bool]) -> Run:
    """`run`, and before each call of it `taken_over()` until that is true."""
    counts = True

    def run_and_count(*operands: Any) -> None:
        nonlocal counts
        if counts:
            counts = not taken_over()
        run(*operands)

    return run_and_count


def _way(a: Any, b: Any, kind: Any) -> tuple[str | None, bool]:
    """How a product with one or a few vectors is computed, 'dots' or 'combinations' of `gemm/vectors.py`, or None in the general
    way; and whether the vectors are the rows of `a` rather than the columns of `b`.
    """
    m, k, n, size = *a.shape[-2:], b.shape[-1], kind.size
    few_sums = kind.machine.rows * kind.machine.vectors < FULL_TILE
    most_rows = MOST_ROWS_OF_PAIRS if kind.pairs else MOST_ROWS_OF_FEW_SUMS if few_sums else MOST_ROWS
    if not _invariant and m == n == 1 and size in (a.strides[-1], b.strides[-2]):
        return "dots", a.strides[-1] != size
    if not _invariant and b.strides[-2] == size and n >= 16 and (m == 1 or m <= most_rows and k >= 256):
        return "dots", True
    if not _invariant and a.strides[-1] == size and m > 1 and n == 1:
        return "dots", False
    if m == 1 and n >= 16 and b.strides[-1] == size:
        return "combinations", True
    if n == 1 and m >= 16 and a.strides[-2] == size:
        return "combinations", False
    return None, False


def _own_run(plan: Any, turned: bool, sums: np.dtype, vector: np.dtype | None, copies: list[Any]) -> Run:
    """The call of a plan; a `vector` on the right is made contiguous and converted once, for it is read over and over."""
    from ..gemm import driver

    start = driver.runner()

    copy_a, copy_b = copies

    def run(a: Any, b: Any, out: Any, bias: Any, beside: Any = None) -> None:
        if copy_a is not None:
            a = copy_a(a)
        if copy_b is not None:
            b = copy_b(b)
        if turned:
            a, b = b, a
        if vector is not None:
            b = _contiguous(b, vector)
        bias = out if bias is None else np.ascontiguousarray(bias, sums)
        start(plan, a, b, out, bias, out if beside is None else beside)

    if copy_a is None and copy_b is None and vector is None:
        run.__dict__["launch"] = (plan, turned, sums)
    return run


def _through_copy(accumulate: bool) -> Run:
    """For results with strides of their own, or narrower than the sums they are added to."""

    def run(a: Any, b: Any, out: Any, bias: Any) -> None:
        if not accumulate:
            out[...] = matmul(a, b, np.empty(out.shape, out.dtype), bias=bias)
        elif out.dtype.kind in "iu":                   # which wrap around, before or after
            out += matmul(a, b, bias=bias)
        else:
            start = out.astype(_wide(out.dtype) or out.dtype, order="C")
            out[...] = matmul(a, b, start, bias=bias, accumulate=True)

    return run


# -- plans -----------------------------------------------------------------------------------------------------------------


def plan_for(a: Any, b: Any, out: Any, turned: bool | None = None, *, joins: bool = False) -> tuple[Any, bool]:
    """A plan (see `gemm/driver.py`) with the sizes, strides and batch of ``out = a @ b``, without grid or block function.

    Args:
        joins: whether matrices that meet the same `b`, and lie one below the other as their results do, are planned as one of more rows:
            tiles reach from one into the next, and `b` is packed once. A bias must be the same for all rows.

    Returns: the plan, None if `out` is contiguous along neither of its last dimensions; and whether the transposed product
    ``out.mT = b.mT @ a.mT`` is planned, so that A is `b` and B is `a`. By default that is so where `out` is contiguous along its
    columns; if it is asked for, the block function has to write with the strides C_M and C_N.
    """
    from ..gemm import driver

    m, n, size = out.shape[-2], out.shape[-1], out.itemsize
    any_strides = turned is not None
    turned = bool(n > 1 and out.strides[-1] != size and (m == 1 or out.strides[-2] == size)) if turned is None else turned
    a_m, a_k, b_k, b_n, c_m, c_n = (*a.strides[-2:], *b.strides[-2:], *out.strides[-2:])
    sizes, strides = (m, n, a.shape[-1]), (a_m, a_k, b_k, b_n, c_m, c_n)
    if turned:
        sizes, strides = (n, m, a.shape[-1]), (b_n, b_k, a_k, a_m, c_n, c_m)
    if sizes[1] > 1 and strides[-1] != size and not any_strides:
        return None, turned
    batch = []
    for d in range(3, out.ndim + 1):
        length = out.shape[-d]
        steps = [x.strides[-d] if x.ndim >= d and x.shape[-d] > 1 else 0 for x in ((b, a) if turned else (a, b))]
        if length > 1:
            batch.append((length, *steps, out.strides[-d]))
    while joins and not turned and m > 1 and batch and batch[0][1:] == (m * a_m, 0, m * c_m):
        m *= batch.pop(0)[0]
    if not turned:
        sizes = (m, *sizes[1:])
    return driver.new_plan(sizes, strides, batch), turned


def _grid(m: int, n: int, k: int, count: int, rows: int, width: int, most_columns: int, packed: tuple[bool, bool],
          most_pieces: int = MOST_PIECES, threads: int = 1) -> tuple[int, int, int]:
    """Rows and columns of a block, and blocks of a chunk; tiles are `rows` by `width`.

    Of the grids with enough blocks the one is taken that lets the busiest of `threads` multiply and move least. B is read again for every
    row of the grid, A for every column; an operand that is `packed` is read, written, and read again.
    """
    pieces = min(max(_parts(most_pieces, count), 1), 1 << max(round(math.log2(max(m * n * k, 1)) / 3 - PIECES_FROM), 0))
    least_across = _parts(n, most_columns)
    best = None
    for wanted in range(1, min(pieces, _parts(m, rows)) + 1):
        tall = _parts(_parts(m, wanted), rows) * rows
        down, before = _parts(m, tall), 0
        # With more blocks than asked for, all threads may have as much to do.
        fewest = max(_parts(pieces, wanted), least_across)
        for across in range(fewest, fewest + (fewest if threads > 1 else 1)):
            wide = min(_parts(_parts(n, across), width) * width, most_columns)
            if wide == before:
                continue
            across, before = _parts(n, wide), wide
            packing = down * n * packed[1] + across * m * packed[0]
            moved = 2 * packing + down * n + across * m
            cost = (down * across < pieces, threads * _longest(m, n, count, tall, wide, threads) + MOVE * moved)
            if best is None or cost < best[0]:
                best = (cost, tall, wide, down * across)
    assert best is not None  # there is at least one row of blocks
    _, tall, wide, blocks = best
    group = max(CHUNK // (m * n * k // blocks + ITEM), 1)
    return tall, wide, group


def _longest(m: int, n: int, count: int, tall: int, wide: int, threads: int) -> int:
    """Elements of the results that the first of `threads` begins with, each of which has as many blocks; no other has more of them."""
    down, across = _parts(m, tall), _parts(n, wide)
    matrices, blocks = divmod(_parts(down * across * count, threads), down * across)
    full, rest = divmod(blocks, across)
    return matrices * m * n + full * tall * n + min(tall, m - full * tall) * rest * wide


def _parts(length: int, size: int) -> int:
    """How many parts of at most `size` a length has."""
    return -(-length // size)
