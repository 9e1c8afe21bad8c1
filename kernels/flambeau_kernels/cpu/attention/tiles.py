"""Compiled attention: a block of queries meets blocks of keys, and only one tile of scores exists at a time.

Scores of a tile are kept transposed, one row per key, so that queries lie along the vectors: the softmax over keys is
then plain arithmetic between vectors, keys and values are read as they lie in memory (one number at a time, against
vectors of queries), and no product needs a transposed copy of them. Forward, a chunk is a block of queries of one
head, with the running maximum and sum of each. Backward, a chunk is one head of keys (or a part of its keys, where
heads are few) and walks over all queries that see it; the weights come again from the logarithm of their sum.

Arrays are ``(B, H, L, E)`` with contiguous last dimensions; heads of keys serve `group` heads of queries each.

Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau_kernels.cpu.lanes import clear, exp_lanes, multiply, zero_lanes
from flambeau_kernels.cpu.register_tiles import tile
from flambeau_kernels.cpu.squares import transpose
from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    float64,
    int64,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    outlined,
    rolled,
    run,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.engines import kept
from flambeau_kernels.vocabulary import fma, log, where

__all__ = ["attend", "attend_grad", "fits"]

# Queries and keys of a tile. A tile of scores (8 KiB), and the keys and values of a block, stay in a first-level cache.
QUERIES = 32
KEYS = 64
# The widest heads; local buffers have one of these widths.
WIDTHS = (64, 128, 256)
# Fewer queries than this leave most of a vector idle, which matters where there is more to do than this many multiplications, those of
# idle lanes among them: the numpy tier takes 100 microseconds for its calls, in which a core does as many.
FEWEST_QUERIES = 8
IDLE_WORK = 4_000_000
# Multiplications of a chunk: 20 microseconds of one core, at 50 a nanosecond.
CHUNK_WORK = 1_000_000
# Parts of the keys of a head, so that a single head still occupies several threads.
PARTS_WITHOUT_HEADS = 8


# -- blocks ------------------------------------------------------------------------------------------------------------------


def transpose_block(x, row, rows, columns, scale, to):
    """``to[c * QUERIES + r] = scale * x[r, c]``, zeros for rows that are missing."""
    KIND = widened(to)
    N = lanes(KIND)
    for r in rolled(range(0, QUERIES, N)):
        for c in rolled(range(0, columns, N)):
            if r + N <= rows and c + N <= columns:
                v = local(vector(KIND, N), N)
                for L in unroll(range(N)):
                    v[L] = load(x, (r + L) * row + c, N) * scale
                transpose(v, KIND)
                for L in unroll(range(N)):
                    store(to, (c + L) * QUERIES + r, v[L])
            else:
                there = min(max(rows, r), r + N)
                for i in rolled(range(c, min(columns, c + N))):
                    for j in rolled(range(r, there)):
                        to[i * QUERIES + j] = x[j * row + i] * scale
                    for j in rolled(range(there, r + N)):
                        to[i * QUERIES + j] = KIND(0)


@kernel(in_vectors=True)
def turned(chunk, x, to, row, rows, columns, scale):
    """`transpose_block`, which is much code: compiled once for all kernels below."""
    transpose_block(x, row, rows, columns, widened(to)(scale), to)


def turn(turning, x, row, rows, columns, scale, to):
    """Run `turned`, whose address is `turning`."""
    given = local(int64, 6)
    given[0], given[1], given[2], given[3], given[4] = int64(x), int64(to), row, rows, columns
    given[5] = bitcast(float64(scale), int64)
    run(turning, 0, given)


@kept()
def _turning(stored: np.dtype, kind: np.dtype) -> int:
    """Where the code of `turned` is, for blocks that lie in memory as `stored`."""
    return turned.address((stored, kind, int, int, int, float), {})


def copy_block(x, row, rows, columns, wide, scale, to):
    """``to[r * wide + c] = scale * x[r, c]``, with zeros beyond the last column; `wide` is whole vectors."""
    KIND = widened(to)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        for c in rolled(range(0, wide, N)):
            store(to, r * wide + c, load(x, r * row + c, N, columns - c) * scale)


def write_row(x, columns, scale, to):
    """``to[c] = scale * x[c]``."""
    N = lanes(widened(x))
    for c in rolled(range(0, columns, N)):
        left = columns - c
        if left >= N:
            store(to, c, load(x, c, N) * scale)
        else:
            store(to, c, load(x, c, N, left) * scale, left)


def mask_scores(scores, mask, mask_row, mask_key, rows, keys, first_row, first_key, causal, MASK):
    """Apply a mask, given from the first of `rows` and `keys` on, to a tile of scores ``(key, query)``."""
    KIND = widened(scores)
    if MASK:
        for r in rolled(range(rows)):
            for k in rolled(range(keys)):
                m = mask[r * mask_row + k * mask_key]
                s = scores[k * QUERIES + r]
                scores[k * QUERIES + r] = where(m, s, KIND(-math.inf)) if MASK == "bool" else s + KIND(m)
    if causal:
        # Key first_key + k is hidden from queries before it.
        for k in rolled(range(max(0, first_row - first_key + 1), keys)):
            for r in rolled(range(min(rows, first_key + k - first_row))):
                scores[k * QUERIES + r] = KIND(-math.inf)


# -- forward -----------------------------------------------------------------------------------------------------------------


def weigh(scores, keys, top, total, shrink):
    """Scores become weights relative to the running maximum `top`; `total` follows, `shrink` is what it took."""
    KIND = widened(scores)
    N = lanes(KIND)
    for j in rolled(range(0, QUERIES, N)):
        before = load(top, j, N)
        highest = before
        for k in rolled(range(keys)):
            s = load(scores, k * QUERIES + j, N)
            highest = where(s > highest, s, highest)  # a nan is skipped here and found by exp below
        base = where(highest == -math.inf, 0.0, highest)
        less = exp_lanes(before - base, KIND)
        added = zero_lanes(KIND)
        for k in rolled(range(keys)):
            p = exp_lanes(load(scores, k * QUERIES + j, N) - base, KIND)
            store(scores, k * QUERIES + j, p)
            added = added + p
        store(top, j, highest)
        store(shrink, j, less)
        store(total, j, load(total, j, N) * less + added)


def multiply_keys(x, step, part, width, wide, copied, qt, scores, COPY, TALL):
    """``scores = x @ qt`` for the `part` rows of `x`, which are copied and padded to `wide` first where `COPY`."""
    if COPY:
        outlined(copy_block)(x, step, part, width, wide, widened(scores)(1), copied)
        outlined(multiply)(copied, wide, 1, qt, QUERIES, scores, QUERIES, part, QUERIES, width, False, TALL)
    else:
        outlined(multiply)(x, step, 1, qt, QUERIES, scores, QUERIES, part, QUERIES, width, False, TALL)


def add_values(weights, x, step, part, count, width, wide, shrink, copied, sums, COPY, TALL):
    """``sums = sums * shrink + weights.T @ x`` for the `part` rows of `x`."""
    N = lanes(widened(sums))
    for r in rolled(range(count)):
        less = broadcast(shrink[r], N)
        for j in rolled(range(0, wide, N)):
            store(sums, r * wide + j, load(sums, r * wide + j, N) * less)
    if COPY:
        outlined(copy_block)(x, step, part, width, wide, widened(sums)(1), copied)
        outlined(multiply)(weights, 1, QUERIES, copied, wide, sums, wide, count, wide, part, True, TALL)
    else:
        outlined(multiply)(weights, 1, QUERIES, x, step, sums, wide, count, wide, part, True, TALL)


def finish_rows(sums, top, total, logs, out, step, count, width, wide):
    """Rows of the result, and the logarithm of the sum of each."""
    KIND = widened(logs)
    one = KIND(1)
    for r in rolled(range(count)):
        blind = total[r] == 0
        inverse = one / where(blind, one, total[r])
        base = where(top[r] == -math.inf, KIND(0), top[r])
        # Where nothing was seen the logarithm is inf, so that the gradient's weights exp(score - inf) are 0.
        logs[r] = where(blind, KIND(math.inf), base + log(total[r]))
        write_row(sums + r * wide, width, inverse, out + r * step)


@kernel(in_vectors=True)
def attend_block(chunk, q, k, v, mask, out, logs, per, units, blocks, heads, group, rows, keys, width, out_width,
                 q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
                 m_batch, m_head, m_row, m_key, scale, causal, turning, *, WIDTH, COPY, MASK, TALL):  # fmt: skip
    KIND = widened(logs)
    N = lanes(KIND)
    factor = KIND(scale)
    wide = (out_width + 2 * N - 1) // (2 * N) * (2 * N)
    qt = local(KIND, WIDTH * QUERIES)
    scores = local(KIND, KEYS * QUERIES)
    sums = local(KIND, QUERIES * WIDTH)
    top, total, shrink = local(KIND, QUERIES), local(KIND, QUERIES), local(KIND, QUERIES)
    copied = local(KIND, KEYS * WIDTH) if COPY else 0
    for unit in range(chunk * per, min(units, chunk * per + per)):
        head = unit // blocks
        first = (blocks - 1 - unit % blocks) * QUERIES  # the later, the more keys a causal block sees
        count = min(QUERIES, rows - first)
        b, h = head // heads, head % heads
        hk = h // group
        turn(turning, q + (b * q_batch + h * q_head + first * q_row), q_row, count, width, factor, qt)
        for j in rolled(range(0, QUERIES, N)):
            store(top, j, broadcast(KIND(-math.inf), N))
            store(total, j, zero_lanes(KIND))
        for j in range(0, QUERIES * wide, N):
            store(sums, j, zero_lanes(KIND))
        seen = min(keys, first + count) if causal else keys
        for key in range(0, seen, KEYS):
            part = min(KEYS, seen - key)
            k_here = k + (b * k_batch + hk * k_head + key * k_row)
            v_here = v + (b * v_batch + hk * v_head + key * v_row)
            multiply_keys(k_here, k_row, part, width, width, copied, qt, scores, COPY, TALL)
            m_here = mask + (b * m_batch + h * m_head + first * m_row + key * m_key)
            outlined(mask_scores)(scores, m_here, m_row, m_key, count, part, first, key, causal, MASK)
            outlined(weigh)(scores, part, top, total, shrink)
            add_values(scores, v_here, v_row, part, count, out_width, wide, shrink, copied, sums, COPY, TALL)
        o_here = out + (b * o_batch + h * o_head + first * o_row)
        finish_rows(sums, top, total, logs + (head * rows + first), o_here, o_row, count, out_width, wide)


# -- backward ----------------------------------------------------------------------------------------------------------------


def weights_again(scores, keys, logs):
    """Scores become weights: exp of them less the logarithm of their sum."""
    KIND = widened(scores)
    N = lanes(KIND)
    for j in rolled(range(0, QUERIES, N)):
        base = load(logs, j, N)
        for k in rolled(range(keys)):
            store(scores, k * QUERIES + j, exp_lanes(load(scores, k * QUERIES + j, N) - base, KIND))


def slopes_of_scores(slopes, weights, keys, balance):
    """``slopes = weights * (slopes - balance)``."""
    KIND = widened(weights)
    N = lanes(KIND)
    for j in rolled(range(0, QUERIES, N)):
        level = load(balance, j, N)
        for k in rolled(range(keys)):
            at = k * QUERIES + j
            store(slopes, at, load(weights, at, N) * (load(slopes, at, N) - level))


def load_rows(q, g, out, logs, q_row, g_row, o_row, count, width, out_width, k_wide, v_wide, factor, qn, qt, gn, gt, level, balance,
              turning):  # fmt: skip
    """A block of queries and its gradients, as they lie and transposed; the logarithms of their sums, and products with the result."""
    KIND = widened(logs)
    N = lanes(KIND)
    one = KIND(1)
    outlined(copy_block)(q, q_row, count, width, k_wide, factor, qn)
    outlined(copy_block)(g, g_row, count, out_width, v_wide, one, gn)
    turn(turning, qn, k_wide, count, width, one, qt)
    turn(turning, gn, v_wide, count, out_width, one, gt)
    outlined(clear)(level, QUERIES)
    for r in rolled(range(count)):
        level[r] = logs[r]
        products = zero_lanes(KIND)
        for j in rolled(range(0, v_wide, N)):
            o = load(out, r * o_row + j, N, out_width - j)
            products = fma(load(gn, r * v_wide + j, N), o, products)
        balance[r] = lane_sum(products)


def add_gradients(weights, slopes, qn, gn, x, x_step, k_total, k_step, v_total, v_step, sums, part, count, k_wide, v_wide, TALL):
    """The part of a tile in the gradients at its keys, values and, in `sums`, queries; `x` are the keys."""
    outlined(multiply)(weights, QUERIES, 1, gn, v_wide, v_total, v_step, part, v_wide, count, True, TALL)
    outlined(multiply)(slopes, QUERIES, 1, qn, k_wide, k_total, k_step, part, k_wide, count, True, TALL)
    outlined(multiply)(slopes, 1, QUERIES, x, x_step, sums, k_wide, count, k_wide, part, True, TALL)


@kernel(in_vectors=True)
def attend_block_grad(chunk, grad, q, k, v, mask, out, logs, dq, dk, dv, dk_sum, dv_sum, per, units, parts, part_keys,
                      heads, group, rows, keys, width, out_width, k_wide, v_wide,
                      g_batch, g_head, g_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
                      o_batch, o_head, o_row, dq_part, dq_batch, dq_head, dq_row, dk_batch, dk_head, dk_row,
                      dv_batch, dv_head, dv_row, m_batch, m_head, m_row, m_key, scale, causal, turning,
                      *, WIDTH, COPY, MASK, TALL):  # fmt: skip
    KIND = widened(logs)
    factor, one = KIND(scale), KIND(1)
    qn, qt = local(KIND, QUERIES * WIDTH), local(KIND, WIDTH * QUERIES)
    gn, gt = local(KIND, QUERIES * WIDTH), local(KIND, WIDTH * QUERIES)
    weights, slopes = local(KIND, KEYS * QUERIES), local(KIND, KEYS * QUERIES)
    sums = local(KIND, QUERIES * WIDTH)
    level, balance = local(KIND, QUERIES), local(KIND, QUERIES)
    k_copied = local(KIND, KEYS * WIDTH) if COPY else 0
    v_copied = local(KIND, KEYS * WIDTH) if COPY else 0
    key_heads = heads // group
    for unit in range(chunk * per, min(units, chunk * per + per)):
        piece, key_head = unit % parts, unit // parts
        b, hk = key_head // key_heads, key_head % key_heads
        begin = piece * part_keys
        end = min(keys, begin + part_keys)
        # Sums are padded to whole vectors, or else are the gradients themselves.
        k_total = dk_sum + (key_head * keys * k_wide if COPY else b * dk_batch + hk * dk_head)
        v_total = dv_sum + (key_head * keys * v_wide if COPY else b * dv_batch + hk * dv_head)
        k_step, v_step = (k_wide, v_wide) if COPY else (dk_row, dv_row)
        for r in rolled(range(begin, end)):
            outlined(clear)(k_total + r * k_step, k_wide)
            outlined(clear)(v_total + r * v_step, v_wide)
        for h in range(hk * group, hk * group + group):
            head = b * heads + h
            # Queries before the first of these keys do not see them; blocks begin at multiples of QUERIES.
            start = begin // QUERIES * QUERIES if causal else 0
            dq_here = dq + (piece * dq_part + b * dq_batch + h * dq_head)
            for r in rolled(range(min(start, rows))):
                for j in rolled(range(width)):
                    dq_here[r * dq_row + j] = KIND(0)
            for first in range(start, rows, QUERIES):
                count = min(QUERIES, rows - first)
                q_here = q + (b * q_batch + h * q_head + first * q_row)
                g_here = grad + (b * g_batch + h * g_head + first * g_row)
                o_here = out + (b * o_batch + h * o_head + first * o_row)
                load_rows(q_here, g_here, o_here, logs + (head * rows + first), q_row, g_row, o_row, count, width, out_width,
                          k_wide, v_wide, factor, qn, qt, gn, gt, level, balance, turning)  # fmt: skip
                outlined(clear)(sums, count * k_wide)
                seen = min(end, first + count) if causal else end
                for key in range(begin, seen, KEYS):
                    part = min(KEYS, seen - key)
                    k_here = k + (b * k_batch + hk * k_head + key * k_row)
                    v_here = v + (b * v_batch + hk * v_head + key * v_row)
                    multiply_keys(k_here, k_row, part, width, k_wide, k_copied, qt, weights, COPY, TALL)
                    multiply_keys(v_here, v_row, part, out_width, v_wide, v_copied, gt, slopes, COPY, TALL)
                    m_here = mask + (b * m_batch + h * m_head + first * m_row + key * m_key)
                    outlined(mask_scores)(weights, m_here, m_row, m_key, count, part, first, key, causal, MASK)
                    outlined(weights_again)(weights, part, level)
                    outlined(slopes_of_scores)(slopes, weights, part, balance)
                    x, x_step = (k_copied, k_wide) if COPY else (k_here, k_row)
                    add_gradients(weights, slopes, qn, gn, x, x_step, k_total + key * k_step, k_step, v_total + key * v_step,
                                  v_step, sums, part, count, k_wide, v_wide, TALL)  # fmt: skip
                for r in range(count):
                    outlined(write_row)(sums + r * k_wide, width, factor, dq_here + (first + r) * dq_row)
        if COPY:
            for r in range(begin, end):
                outlined(write_row)(k_total + r * k_wide, width, one, dk + (b * dk_batch + hk * dk_head + r * dk_row))
                outlined(write_row)(v_total + r * v_wide, out_width, one, dv + (b * dv_batch + hk * dv_head + r * dv_row))


# -- from arrays -------------------------------------------------------------------------------------------------------------


def fits(q: np.ndarray, v: np.ndarray) -> bool:
    """Whether the compiled kernels take ``q (B, H, L, E)`` and ``v (B, G, S, V)``."""
    return (
        v.size > 0
        and (q.shape[2] >= FEWEST_QUERIES or q.shape[0] * q.shape[1] * QUERIES * v.shape[2] * (q.shape[3] + v.shape[3]) <= IDLE_WORK)
        and 0 < q.shape[3] <= WIDTHS[-1]
        and v.shape[3] <= WIDTHS[-1]
        and q.size > 0
        and q.dtype.name in ("float32", "float64", "float16", "bfloat16")
    )


def _rows(a: np.ndarray) -> np.ndarray:
    return a if a.strides[-1] == a.itemsize or a.shape[-1] == 1 else np.ascontiguousarray(a)


def in_rows(*arrays: np.ndarray) -> bool:
    """Whether the kernels take arrays of this layout as they are."""
    return all(_rows(a) is a for a in arrays)


def _steps(a: np.ndarray, dims: int = 3) -> list[int]:
    """Strides in elements, 0 where a dimension has a single entry."""
    return [0 if n == 1 else s // a.itemsize for n, s in zip(a.shape[:dims], a.strides[:dims], strict=True)]


def _mask_steps(mask: np.ndarray | None) -> list[int]:
    return [0, 0, 0, 0] if mask is None else _steps(mask, 4)


def empty_like(a: np.ndarray, width: int) -> np.ndarray:
    """An array of the shape and order of ``a (B, H, L, E)``, with `width` for E."""
    b, h, n, _ = a.shape
    if a.strides[1] < a.strides[2]:
        return np.empty((b, n, h, width), a.dtype).swapaxes(1, 2)
    return np.empty((b, h, n, width), a.dtype)


def _kind(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def _constants(q: np.ndarray, v: np.ndarray, mask: Any) -> tuple[int, dict[str, Any]]:
    """How many elements a row of a product is a multiple of, and the constants of the kernels."""
    kind = _kind(q.dtype)
    step = 2 * _register_bytes() // kind.itemsize
    constants = {
        "WIDTH": next(w for w in WIDTHS if w >= max(q.shape[3], v.shape[3])),
        # Keys and values are copied block by block where they must be widened or padded to whole vectors.
        "COPY": kind != q.dtype or q.shape[3] % step != 0 or v.shape[3] % step != 0,
        "MASK": "" if mask is None else "bool" if mask.dtype == bool else "added",
        "TALL": tile("attention")[0],
    }
    return step, constants


@functools.cache
def _register_bytes() -> int:
    from flambeau_kernels.engine.machine_code import llvm

    return llvm.machine().register_bits // 8


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """``softmax(scale * q @ k.T + mask) @ v``, ``(B, H, L, V)``, and the logarithms ``(B, H, L, 1)`` of its sums.

    Args:
        mask: None, or bool or floating of shape ``(B or 1, H or 1, L or 1, S or 1)``.
    """
    q, k, v = _rows(q), _rows(k), _rows(v)
    return planned(q, k, v, mask, scale, causal)(q, k, v, mask)


def planned(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float, causal: bool
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """``run(q, k, v, mask)``, as `attend` for arrays with the shapes, strides and dtypes of these, whose rows are contiguous."""
    batch, heads, rows, width = q.shape
    keys, out_width = v.shape[2:]
    sample, kind = empty_like(q, out_width), _kind(q.dtype)
    blocks = -(-rows // QUERIES)
    units = batch * heads * blocks
    work = QUERIES * keys * (width + out_width) // (2 if causal else 1)
    per = max(1, CHUNK_WORK // work)
    chunks = -(-units // per)
    numbers = (
        per, units, blocks, heads, heads // k.shape[1], rows, keys, width, out_width, *_steps(q), *_steps(k), *_steps(v),
        *_steps(sample), *_mask_steps(mask), float(scale), int(causal), _turning(q.dtype, kind),
    )  # fmt: skip
    types = (q.dtype, k.dtype, v.dtype, kind if mask is None else mask.dtype, q.dtype, kind, *map(type, numbers))
    form = attend_block.form(types, _constants(q, v, mask)[1])
    shape, dtype = (batch, heads, rows, 1), q.dtype
    plain_shape = sample.shape if sample.flags.c_contiguous else None

    def run(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        out = empty_like(q, out_width) if plain_shape is None else np.empty(plain_shape, dtype)
        logs = np.empty(shape, kind)
        form(chunks, True, q, k, v, logs if mask is None else mask, out, logs, *numbers)
        return out, logs

    return run


def attend_grad(
    grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, out: np.ndarray, logs: np.ndarray,
    scale: float, causal: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The gradients of `attend` at q, k and v."""
    grad, q, k, v, out = _rows(grad), _rows(q), _rows(k), _rows(v), _rows(out)
    batch, heads, rows, width = q.shape
    key_heads, keys, out_width = v.shape[1:]
    step, constants = _constants(q, v, mask)
    k_wide, v_wide = -(-width // step) * step, -(-out_width // step) * step
    part_keys, parts = _parts(batch * key_heads, keys)
    dk, dv = empty_like(k, width), empty_like(v, out_width)
    dk_sum, dv_sum = dk, dv
    if constants["COPY"]:
        dk_sum = np.empty((batch, key_heads, keys, k_wide), logs.dtype)
        dv_sum = np.empty((batch, key_heads, keys, v_wide), logs.dtype)
    dq = empty_like(q, width)[None] if parts == 1 else np.empty((parts, *q.shape), logs.dtype)
    units = batch * key_heads * parts
    work = (heads // key_heads) * rows * min(part_keys, keys) * (3 * width + 2 * out_width) // (2 if causal else 1)
    per = max(1, CHUNK_WORK // max(1, work))
    attend_block_grad.run(
        -(-units // per), grad, q, k, v, logs if mask is None else mask, out, logs, dq, dk, dv, dk_sum, dv_sum, per, units,
        parts, part_keys, heads, heads // key_heads, rows, keys, width, out_width, k_wide, v_wide,
        *_steps(grad), *_steps(q), *_steps(k), *_steps(v), *_steps(out), *_steps(dq, 4), *_steps(dk), *_steps(dv),
        *_mask_steps(mask), float(scale), int(causal), _turning(logs.dtype, logs.dtype), release=True, **constants,
    )  # fmt: skip
    if parts == 1:
        return dq[0], dk, dv
    return np.add.reduce(dq, axis=0).astype(q.dtype, copy=False), dk, dv


def _parts(heads: int, keys: int) -> tuple[int, int]:
    """Keys of a part, and how many parts the keys of each of `heads` are cut into."""
    wanted = -(-PARTS_WITHOUT_HEADS // heads)
    part = max(KEYS, -(-keys // (wanted * KEYS)) * KEYS)
    return part, -(-keys // part)
