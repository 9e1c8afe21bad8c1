"""One layer of a recurrent network in one direction, over whole sequences, and its gradients.

What the inputs bring to the gates of all steps is one product; the steps follow each other in compiled code
(`steps.py`), one call for the whole sequence; the gradients at the weights are products over all steps again.
Half types are computed in float32 and rounded at the end, but for bfloat16 on processors that multiply pairs of it: there the states
that meet the weights are rounded in each step. `fits` says which sequences are taken; the others, and everything
where nothing is compiled, are composed of single operations by the caller.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import tier
from ..products.matmul import matmul, spread_rows
from ..reductions.softmax import narrow, widen
from ..register_tiles import tile

__all__ = ["fits", "run", "run_grad"]

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
# Rows of the batch that one thread takes through all steps: as many as weights are read for at once.
MOST_ROWS, FEWEST_ROWS = 16, 2
# Rows of a tile, of two vectors of sums each, that keep units busy; fewer take as long.
BUSY_ROWS = 4
# Multiplications of states by weights, of which two threads take half: about 20 microseconds; and rows that one thread takes else.
SHARED_FROM, ALONE_ROWS = 1 << 17, 8

ndarray = np.ndarray


class Places(NamedTuple):
    """Where the positions of sequences lie; see `steps.py`."""

    offsets: ndarray
    sizes: ndarray
    row_step: int
    batch: int


def fits(x: Any, *others: Any) -> bool:
    """Whether `run` takes input, states, weights and biases (None where there are none)."""
    return x.__class__ is ndarray and all(a is None or a.__class__ is ndarray for a in others) and fits_looks(x, *others)


def fits_looks(x: Any, *others: Any) -> bool:
    """Whether `run` would take arrays that have the sizes and dtypes of these."""
    if not x.size or x.dtype.char not in "fde" and x.dtype.name != "bfloat16":
        return False
    dtype = x.dtype
    for a in others:
        if a is not None and (a.dtype is not dtype or not a.size):
            return False
    return tier.compiles()


def run(
    x: ndarray, h0: ndarray, c0: Any, w_ih: ndarray, w_hh: ndarray, b_ih: Any, b_hh: Any, batch_sizes: Sequence[int] | None,
    mode: str, backwards: bool, keep: bool,
) -> tuple[tuple[ndarray, ...], Any]:  # fmt: skip
    """Outputs and last states of a layer in one direction.

    Args:
        x: ``(T, N, I)``, or packed ``(P, I)`` with `batch_sizes`, which do not grow.
        h0, c0: ``(N, H)``; `c0` of an LSTM only, else None.
        w_ih, w_hh, b_ih, b_hh: ``(G H, I), (G H, H), (G H), (G H)``, biases or None.
        mode: a key of `GATES`.
        backwards: from the last step to the first.
        keep: whether to keep what `run_grad` needs.
    Returns: ``(out, h)`` or, of an LSTM, ``(out, h, c)``, with `out` shaped like `x` with H features; and what is kept.
    """
    from . import steps

    dtype = x.dtype
    rows, places = _lay_out(x, batch_sizes)
    columns, hidden = w_hh.shape
    once = len(places.sizes) == 1                     # for which packing weights costs more than it spares
    pairs = not once and _in_pairs(w_hh)
    given, w_hh = w_hh, w_hh if pairs else widen(w_hh)
    pre = spread_rows((len(rows), columns), np.dtype(np.float32) if pairs else w_hh.dtype)
    matmul(rows, w_ih.T, pre, bias=_input_bias(b_ih, b_hh, mode, hidden))
    wide = _wide(hidden, pre.dtype)
    h, c = (_states(s, wide) for s in (h0, h0 if c0 is None else c0))
    bias = np.zeros(wide, pre.dtype)
    if mode == "GRU" and b_hh is not None:
        bias[:hidden] = b_hh[2 * hidden :]
    # What only leaves the steps, or meets weights again, is rounded there.
    out = np.empty((len(rows), hidden), dtype if pairs else pre.dtype)
    before = np.empty(out.shape, pre.dtype if mode == "GRU" else out.dtype) if keep else out
    second = np.empty(out.shape, pre.dtype) if keep and not mode.startswith("RNN") else out
    width = _panel_width(pre.dtype)
    group, long = _group(places.batch, len(rows) * w_hh.size)
    made_row = -(-columns // width) * width + width // 2
    scratch = np.empty((places.batch, made_row), pre.dtype)
    if once:
        matmul(h[:, :hidden], w_hh.T, scratch[:, :columns])
    panels = w_hh if once else _pair_panels(given, True) if pairs else _panels(w_hh, columns, hidden, True)
    steps.advance.run(
        -(-places.batch // group), pre, panels, h, narrow(h, dtype) if pairs else h, c, bias, out, before, second, scratch,
        places.offsets, places.sizes, group, *_order(places, backwards), places.row_step, hidden, columns, _pitch(pre), wide, made_row,
        int(once), release=long, MODE=mode, KEEP=bool(keep), FULL=hidden % (width // 2) == 0, HEIGHTS=_heights(group), PAIRS=pairs,
    )  # fmt: skip
    states = (h,) if c0 is None else (h, c)
    ends = tuple(np.array(s[:, :hidden], dtype) for s in states)
    return (_as_given(narrow(out, dtype), x), *ends), (pre, before, second) if keep else None


def run_grad(
    grads: Sequence[ndarray], x: ndarray, w_ih: ndarray, w_hh: ndarray, batch_sizes: Sequence[int] | None, mode: str,
    backwards: bool, kept: Any, needs: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of `run` at x, h0, w_ih, w_hh, c0 (None but for an LSTM), b_ih, b_hh.

    Args:
        grads: at `out`, h and, of an LSTM, c; None for zeros.
        kept: what `run` kept.
        needs: whether those at x, w_ih, w_hh, b_ih and b_hh are wanted; the others cost nothing.
    """
    from . import steps

    dtype = x.dtype
    needs_x, needs_w_ih, needs_w_hh, needs_b_ih, needs_b_hh = needs
    gates, before, second = kept
    rows, places = _lay_out(x, batch_sizes)
    columns, hidden = w_hh.shape
    once = len(places.sizes) == 1
    pairs = not once and _in_pairs(w_hh)
    w_hh = w_hh if pairs else widen(w_hh)
    if grads[0] is None:
        grad = np.zeros((len(rows), hidden), gates.dtype)
    else:
        grad = _lay_out(grads[0], batch_sizes, _lies_by_batch(x, batch_sizes))[0]
        grad = grad if pairs else widen(grad)
    wide, width = _wide(hidden, gates.dtype), _panel_width(gates.dtype)
    dh, dc = (np.zeros((places.batch, wide), gates.dtype) if g is None else _states(g, wide) for g in (grads[1], grads[-1]))
    # Slopes lie as the gates do.
    pitch = _pitch(gates)
    dx = np.empty((len(rows), pitch), dtype if pairs else gates.dtype)[:, :columns]
    dmade = np.empty((len(rows), pitch), dx.dtype)[:, :columns] if mode == "GRU" else dx
    group, long = _group(places.batch, len(rows) * w_hh.size)
    slopes_row = columns + width
    scratch = np.empty((places.batch, slopes_row), dtype if pairs else gates.dtype)
    panels = w_hh if once else _pair_panels(w_hh, False) if pairs else _panels(w_hh, hidden, columns, False)
    steps.retreat.run(
        -(-places.batch // group), gates, before, second, grad, panels, dh, dc, dx, dmade, scratch, places.offsets,
        places.sizes, group, *_order(places, backwards), places.row_step, hidden, columns, pitch, wide, slopes_row, int(once),
        release=long, MODE=mode, FULL=hidden % (width // 2) == 0, HEIGHTS=_heights(group), PAIRS=pairs,
    )  # fmt: skip
    if once:
        matmul(dmade, w_hh, dh[:, :hidden], accumulate=mode == "GRU")
    b_ih = _column_sums(dx) if needs_b_ih or needs_b_hh and dmade is dx else None
    b_hh = None if not needs_b_hh else np.array(b_ih) if dmade is dx else _column_sums(dmade)
    # Slopes in bfloat16 cannot leave its range, and machines multiply it faster; those in float16 might.
    if dtype.name == "bfloat16":
        alike = dmade is dx
        dx, before = narrow(dx, dtype), narrow(before, dtype)
        dmade = dx if alike else narrow(dmade, dtype)
    else:
        rows, w_ih = widen(rows), widen(w_ih)
    found = (
        _as_given(matmul(dx, w_ih), x) if needs_x else None,
        np.array(dh[:, :hidden]),
        matmul(dx.T, rows) if needs_w_ih else None,
        matmul(dmade.T, before) if needs_w_hh else None,
        np.array(dc[:, :hidden]) if mode == "LSTM" else None,
        b_ih if needs_b_ih else None,
        b_hh,
    )
    return tuple(None if a is None else narrow(a, dtype) for a in found)


def _input_bias(b_ih: Any, b_hh: Any, mode: str, hidden: int) -> Any:
    """What is added to the inputs' part of every gate: of a GRU, whose reset comes between, without that of `new`."""
    if b_hh is None or b_ih is None and mode != "GRU":
        return b_ih if b_hh is None else b_hh
    bias = widen(b_hh).copy() if b_ih is None else widen(b_ih) + widen(b_hh)
    if mode == "GRU":
        bias[2 * hidden :] = 0 if b_ih is None else b_ih[2 * hidden :]
    return bias


# -- where positions lie -----------------------------------------------------------------------------------------------------


def _lies_by_batch(x: ndarray, batch_sizes: Any) -> bool:
    """Whether ``(T, N, I)`` lies in memory as ``(N, T, I)``."""
    return batch_sizes is None and not x.flags.c_contiguous and x.swapaxes(0, 1).flags.c_contiguous


def _lay_out(x: ndarray, batch_sizes: Sequence[int] | None, by_batch: bool | None = None) -> tuple[ndarray, Places]:
    """Positions as rows ``(P, I)``, without a copy if `x` lies by step, by batch or packed; and where each is."""
    if batch_sizes is not None:
        return np.ascontiguousarray(x), _packed_places(tuple(batch_sizes))
    if by_batch is None:
        by_batch = _lies_by_batch(x, None)
    places = _places(x.shape[0], x.shape[1], by_batch)
    return np.ascontiguousarray(x.swapaxes(0, 1) if by_batch else x).reshape(-1, x.shape[2]), places


@functools.lru_cache(256)
def _places(steps: int, batch: int, by_batch: bool) -> Places:
    sizes = np.full(steps, batch, np.int64)
    offsets = np.arange(steps, dtype=np.int64) * (1 if by_batch else batch)
    return Places(offsets, sizes, steps if by_batch else 1, batch)


@functools.lru_cache(256)
def _packed_places(batch_sizes: tuple[int, ...]) -> Places:
    sizes = np.array(batch_sizes, np.int64)
    return Places(np.cumsum(sizes) - sizes, sizes, 1, batch_sizes[0])


def _as_given(rows: ndarray, x: ndarray) -> ndarray:
    """Rows of positions, shaped as `x` and lying in memory as it does."""
    if x.ndim == 2:
        return rows
    steps, batch = x.shape[:2]
    return rows.reshape(batch, steps, -1).swapaxes(0, 1) if _lies_by_batch(x, None) else rows.reshape(steps, batch, -1)


def _order(places: Places, backwards: bool) -> tuple[int, int, int]:
    """The number of steps, the first one, and from one to the next."""
    steps = len(places.sizes)
    return (steps, steps - 1, -1) if backwards else (steps, 0, 1)


# -- what the steps are given ------------------------------------------------------------------------------------------------


def _group(batch: int, products: int) -> tuple[int, bool]:
    """Rows of a chunk, and whether other threads are worth waking.

    Threads take as many groups each, of as few rows as lets them; a state's bits do not depend on the group. What takes less time than
    waking a thread is left to one.
    """
    from ...engine.runtime import pool

    if products < SHARED_FROM and batch <= ALONE_ROWS:
        return batch, False
    threads = max(pool.get_num_threads(), 2)
    groups = -(-batch // (MOST_ROWS * threads)) * threads
    return max(-(-batch // groups), FEWEST_ROWS), True


def _heights(rows: int) -> tuple[int, ...]:
    """Rows of the register tiles of the steps' products of so many rows, falling to 1, with which they take least time."""
    tallest = tile("recurrent")[0]
    lower = tuple(h for h in (8, 4, 2, 1) if h < tallest)
    return min(((tallest, *lower), lower), key=lambda heights: _time(rows, heights))


def _time(rows: int, heights: tuple[int, ...]) -> int:
    """What tiles of these heights, the tallest first, take for so many rows."""
    total = 0
    for height in heights:
        count, rows = divmod(rows, height)
        total += count * max(height, BUSY_ROWS)
    return total


@functools.cache
def _panel_width(kind: np.dtype) -> int:
    """Elements of two vectors."""
    from ...engine.machine_code import llvm

    return 2 * llvm.machine().register_bits // 8 // kind.itemsize


def _wide(hidden: int, kind: np.dtype) -> int:
    """From one row of states to the next."""
    width = _panel_width(kind)
    return -(-hidden // width) * width + width // 2


def _pitch(gates: ndarray) -> int:
    """From the gates of one position to those of the next, in elements."""
    return gates.strides[0] // gates.itemsize


def _states(given: ndarray, wide: int) -> ndarray:
    given = widen(given)
    made = np.zeros((len(given), wide), given.dtype)
    made[:, : given.shape[1]] = given
    return made


def _panels(weights: ndarray, columns: int, depth: int, turned: bool) -> ndarray:
    """``weights (depth, columns)``, or `turned` ``(columns, depth)``, in panels of two vectors."""
    from . import steps

    width = _panel_width(weights.dtype)
    count = -(-columns // width)
    panels = np.empty((count, depth, width), weights.dtype)
    row, column = (s // weights.itemsize for s in weights.strides)
    steps.pack.run(count, weights, panels, columns, depth, *((row, column) if turned else (column, row)), WIDE=width)
    return panels


def _in_pairs(weights: ndarray) -> bool:
    """Whether states meet these recurrent weights as bfloat16, two at a time: where the processor multiplies pairs."""
    from ..gemm import tiles

    machine = tiles.machine()
    return weights.dtype.name == "bfloat16" and weights.shape[1] % 2 == 0 and machine is not None and machine.pairs


def _pair_panels(weights: ndarray, turned: bool) -> ndarray:
    """`_panels` of ``(G H, H)`` in bfloat16: int32, each of which holds two weights that follow each other along the sum."""
    columns, hidden = weights.shape
    if turned:
        return _panels(np.ascontiguousarray(weights).view(np.int32), columns, hidden // 2, True)
    two = np.ascontiguousarray(weights.reshape(columns // 2, 2, hidden).swapaxes(1, 2))
    return _panels(two.view(np.int32)[..., 0], hidden, columns // 2, False)


def _column_sums(a: ndarray) -> ndarray:
    return matmul(np.ones((1, len(a)), a.dtype), a)[0]
