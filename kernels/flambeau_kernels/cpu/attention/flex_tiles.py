"""Compiled attention whose scores are changed by a function, and whose blocks of keys are listed.

As in `tiles.py` a block of queries meets blocks of keys, and only one tile of scores exists at a time, one row per
key. Which keys a block of queries meets is read from lists: of blocks that are seen whole, and of blocks in which a mask
decides. What is done to a tile is a function of the kernel language, made from the program's own by the caller (a constant of
the kernel, `Changes`); it is called with the tile, where it lies, and a table of the tensors that the program's function reads.

Arrays are ``(B, H, L, E)`` with contiguous last dimensions; heads of keys serve `group` heads of queries each.

Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention"; Dong et
al. 2024, "Flex Attention: A Programming Model for Generating Optimized Attention Kernels".
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.cpu.addresses import addresses_of
from flambeau_kernels.cpu.attention import tiles
from flambeau_kernels.cpu.attention.tiles import (
    CHUNK_WORK,
    KEYS,
    QUERIES,
    add_gradients,
    add_values,
    finish_rows,
    load_rows,
    multiply_keys,
    slopes_of_scores,
    turn,
    weigh,
    weights_again,
    write_row,
)
from flambeau_kernels.cpu.lanes import clear, zero_lanes
from flambeau_kernels.engine.language import (
    broadcast,
    int64,
    kernel,
    lanes,
    load,
    local,
    outlined,
    rolled,
    store,
    widened,
)
from flambeau_kernels.vocabulary import where

__all__ = ["Changes", "Lists", "flex", "flex_grad", "spread_bytes", "full"]


class Changes(NamedTuple):
    """What is done to tiles: functions of the kernel language, or None where nothing is.

    ``f(scores, factors, table, b, h, first_row, first_key, rows, keys)`` changes a tile ``scores[key * QUERIES + query]`` in
    place. Those for backward store the derivatives of the changed scores by the given ones in `factors`; the others leave them.
    """

    full: Any = None        # in blocks that are seen whole
    masked: Any = None       # in the others
    full_grad: Any = None
    masked_grad: Any = None
    # ``f(scores, slopes, table, sums, b, h, first_row, first_key, rows, keys)`` adds the gradients at tensors to `sums`, from the
    # scores as they were given and the slopes of the changed ones; None where no such gradient is wanted.
    spread: Any = None


class Lists(NamedTuple):
    """For each block of queries the blocks of keys it meets: int32, ``(B or 1, H or 1, rows)`` and ``(B or 1, H or 1, rows, columns)``."""

    counts: np.ndarray
    indices: np.ndarray
    full_counts: np.ndarray
    full_indices: np.ndarray
    q_block: int
    kv_block: int


def full(rows: int, keys: int) -> Lists:
    """The lists for queries that all meet all keys."""
    none, one = np.zeros((1, 1, 1), np.int32), np.ones((1, 1, 1), np.int32)
    first = np.zeros((1, 1, 1, 1), np.int32)
    return Lists(none, first, one, first, max(1, rows), max(1, keys))


def times_factors(slopes, factors, keys):
    """``slopes *= factors`` for a tile; where the slope is 0 it stays so, whatever the factor."""
    KIND = widened(slopes)
    N = lanes(KIND)
    for k in rolled(range(keys)):
        for j in rolled(range(0, QUERIES, N)):
            at = k * QUERIES + j
            x = load(slopes, at, N)
            store(slopes, at, where(x == 0.0, x, x * load(factors, at, N)))


def copy_tile(scores, to, keys):
    N = lanes(widened(scores))
    for j in rolled(range(0, keys * QUERIES, N)):
        store(to, j, load(scores, j, N))


@kernel(in_vectors=True)
def flex_block(chunk, q, k, v, table, counts, indices, full_counts, full_indices, out, logs,
               per, units, blocks, tiles_of_block, q_block, kv_block, columns, full_columns,
               heads, group, rows, keys, width, out_width,
               q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
               l_batch, l_head, f_batch, f_head, scale, turning, *, WIDTH, COPY, FULL, MASKED, TALL):  # fmt: skip
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
        piece, block = unit % tiles_of_block, unit // tiles_of_block
        head, block_row = block // blocks, block % blocks
        b, h = head // heads, head % heads
        hk = h // group
        first = block_row * q_block + piece * QUERIES
        count = min(QUERIES, min(rows, block_row * q_block + q_block) - first)
        if count > 0:
            turn(turning, q + (b * q_batch + h * q_head + first * q_row), q_row, count, width, factor, qt)
            for j in rolled(range(0, QUERIES, N)):
                store(top, j, broadcast(KIND(-math.inf), N))
                store(total, j, zero_lanes(KIND))
            for j in rolled(range(0, QUERIES * wide, N)):
                store(sums, j, zero_lanes(KIND))
            at = b * l_batch + h * l_head + block_row
            full_at = b * f_batch + h * f_head + block_row
            listed = min(int64(counts[at]), columns)
            fully = min(int64(full_counts[full_at]), full_columns)
            for n in range(listed + fully):
                is_full = n >= listed
                full_place = full_at * full_columns + (n - listed)
                place = int64(full_indices[full_place]) if is_full else int64(indices[at * columns + n])
                begin = place * kv_block if place >= 0 else keys
                end = min(keys, begin + kv_block)
                for key in range(begin, end, KEYS):
                    part = min(KEYS, end - key)
                    k_here = k + (b * k_batch + hk * k_head + key * k_row)
                    v_here = v + (b * v_batch + hk * v_head + key * v_row)
                    multiply_keys(k_here, k_row, part, width, width, copied, qt, scores, COPY, TALL)
                    if is_full:
                        if FULL is not None:
                            outlined(FULL)(scores, shrink, table, b, h, first, key, count, part)
                    else:
                        if MASKED is not None:
                            outlined(MASKED)(scores, shrink, table, b, h, first, key, count, part)
                    outlined(weigh)(scores, part, top, total, shrink)
                    add_values(scores, v_here, v_row, part, count, out_width, wide, shrink, copied, sums, COPY, TALL)
            o_here = out + (b * o_batch + h * o_head + first * o_row)
            finish_rows(sums, top, total, logs + (head * rows + first), o_here, o_row, count, out_width, wide)


@kernel(in_vectors=True)
def flex_block_grad(chunk, grad, q, k, v, table, counts, indices, full_counts, full_indices, out, logs, logs_grad,
                    dq, dk, dv, dk_sum, dv_sum, spread_sums, spread_size, per, units, parts, part_keys,
                    blocks, tiles_of_block, q_block, kv_block, columns, full_columns,
                    heads, group, rows, keys, width, out_width, k_wide, v_wide,
                    g_batch, g_head, g_row, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
                    o_batch, o_head, o_row, dq_part, dq_batch, dq_head, dq_row, dk_batch, dk_head, dk_row,
                    dv_batch, dv_head, dv_row, l_batch, l_head, f_batch, f_head, scale, turning,
                    *, WIDTH, COPY, FULL, MASKED, FACTORS, SPREAD, TALL):  # fmt: skip
    KIND = widened(logs)
    factor, one = KIND(scale), KIND(1)
    qn, qt = local(KIND, QUERIES * WIDTH), local(KIND, WIDTH * QUERIES)
    gn, gt = local(KIND, QUERIES * WIDTH), local(KIND, WIDTH * QUERIES)
    weights, slopes, factors = local(KIND, KEYS * QUERIES), local(KIND, KEYS * QUERIES), local(KIND, KEYS * QUERIES)
    given = local(KIND, KEYS * QUERIES) if SPREAD is not None else 0
    sums = local(KIND, QUERIES * WIDTH)
    level, balance = local(KIND, QUERIES), local(KIND, QUERIES)
    k_copied = local(KIND, KEYS * WIDTH) if COPY else 0
    v_copied = local(KIND, KEYS * WIDTH) if COPY else 0
    key_heads = heads // group
    for unit in range(chunk * per, min(units, chunk * per + per)):
        piece, key_head = unit % parts, unit // parts
        b, hk = key_head // key_heads, key_head % key_heads
        part_begin = piece * part_keys
        part_end = min(keys, part_begin + part_keys)
        # Sums are padded to whole vectors, or else are the gradients themselves.
        k_total = dk_sum + (key_head * keys * k_wide if COPY else b * dk_batch + hk * dk_head)
        v_total = dv_sum + (key_head * keys * v_wide if COPY else b * dv_batch + hk * dv_head)
        k_step, v_step = (k_wide, v_wide) if COPY else (dk_row, dv_row)
        for r in rolled(range(part_begin, part_end)):
            outlined(clear)(k_total + r * k_step, k_wide)
            outlined(clear)(v_total + r * v_step, v_wide)
        for h in range(hk * group, hk * group + group):
            head = b * heads + h
            dq_here = dq + (piece * dq_part + b * dq_batch + h * dq_head)
            for tile in range(blocks * tiles_of_block):
                block_row = tile // tiles_of_block
                first = block_row * q_block + tile % tiles_of_block * QUERIES
                count = min(QUERIES, min(rows, block_row * q_block + q_block) - first)
                if count > 0:
                    q_here = q + (b * q_batch + h * q_head + first * q_row)
                    g_here = grad + (b * g_batch + h * g_head + first * g_row)
                    o_here = out + (b * o_batch + h * o_head + first * o_row)
                    load_rows(q_here, g_here, o_here, logs + (head * rows + first), q_row, g_row, o_row, count, width, out_width,
                              k_wide, v_wide, factor, qn, qt, gn, gt, level, balance, turning)  # fmt: skip
                    outlined(clear)(sums, count * k_wide)
                    for r in rolled(range(count)):
                        # What the sum's logarithm is worth comes in with the weights, too.
                        balance[r] = balance[r] - logs_grad[head * rows + first + r]
                    at = b * l_batch + h * l_head + block_row
                    full_at = b * f_batch + h * f_head + block_row
                    listed = min(int64(counts[at]), columns)
                    fully = min(int64(full_counts[full_at]), full_columns)
                    for n in range(listed + fully):
                        is_full = n >= listed
                        full_place = full_at * full_columns + (n - listed)
                        place = int64(full_indices[full_place]) if is_full else int64(indices[at * columns + n])
                        block_begin = place * kv_block if place >= 0 else keys
                        begin = max(part_begin, block_begin)
                        end = min(part_end, block_begin + kv_block)
                        for key in range(begin, end, KEYS):
                            part = min(KEYS, end - key)
                            k_here = k + (b * k_batch + hk * k_head + key * k_row)
                            v_here = v + (b * v_batch + hk * v_head + key * v_row)
                            multiply_keys(k_here, k_row, part, width, k_wide, k_copied, qt, weights, COPY, TALL)
                            multiply_keys(v_here, v_row, part, out_width, v_wide, v_copied, gt, slopes, COPY, TALL)
                            if SPREAD is not None:
                                outlined(copy_tile)(weights, given, part)
                            if is_full:
                                if FULL is not None:
                                    outlined(FULL)(weights, factors, table, b, h, first, key, count, part)
                            else:
                                if MASKED is not None:
                                    outlined(MASKED)(weights, factors, table, b, h, first, key, count, part)
                            outlined(weights_again)(weights, part, level)
                            outlined(slopes_of_scores)(slopes, weights, part, balance)
                            if SPREAD is not None:
                                outlined(SPREAD)(given, slopes, table, spread_sums + unit * spread_size, b, h, first, key, count, part)
                            if FACTORS:
                                outlined(times_factors)(slopes, factors, part)
                            x, x_step = (k_copied, k_wide) if COPY else (k_here, k_row)
                            add_gradients(weights, slopes, qn, gn, x, x_step, k_total + key * k_step, k_step, v_total + key * v_step,
                                          v_step, sums, part, count, k_wide, v_wide, TALL)  # fmt: skip
                    for r in rolled(range(count)):
                        write_row(sums + r * k_wide, width, factor, dq_here + (first + r) * dq_row)
        if COPY:
            for r in rolled(range(part_begin, part_end)):
                write_row(k_total + r * k_wide, width, one, dk + (b * dk_batch + hk * dk_head + r * dk_row))
                write_row(v_total + r * v_wide, out_width, one, dv + (b * dv_batch + hk * dv_head + r * dv_row))


# -- from arrays -------------------------------------------------------------------------------------------------------------


def _geometry(lists: Lists, rows: int) -> tuple[int, ...]:
    """Blocks, tiles of a block, its queries and keys, and the widths of the lists."""
    blocks = -(-rows // lists.q_block)
    tiles_of_block = -(-min(lists.q_block, rows) // QUERIES)
    return blocks, tiles_of_block, lists.q_block, lists.kv_block, lists.indices.shape[-1], lists.full_indices.shape[-1]


def _steps_of_lists(lists: Lists) -> tuple[int, ...]:
    """From one batch, and from one head, to the next: in the lists of both kinds."""

    def steps(counts: np.ndarray) -> tuple[int, int]:
        batches, heads, rows = counts.shape
        return (0 if batches == 1 else heads * rows), (0 if heads == 1 else rows)

    return *steps(lists.counts), *steps(lists.full_counts)


def _density(lists: Lists, keys: int) -> float:
    """The part of the keys that a query meets, on the average."""
    met = lists.counts.sum(dtype=np.int64) / lists.counts.size + lists.full_counts.sum(dtype=np.int64) / lists.full_counts.size
    return max(1e-3, min(1.0, met * lists.kv_block / keys))


def _table(numbers: np.ndarray, places: list[int], arrays: list[np.ndarray]) -> np.ndarray:
    """`numbers` with the addresses of `arrays` at `places`; the first number is where a function says that an index was wrong."""
    table = numbers.copy()
    if arrays:
        table[places] = addresses_of(arrays)
    return table


def flex(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, lists: Lists, changes: Changes, numbers: np.ndarray, places: list[int],
    arrays: list[np.ndarray], scale: float,
) -> tuple[np.ndarray, np.ndarray, bool]:  # fmt: skip
    """``softmax(changed(scale * q @ k.T)) @ v``, ``(B, H, L, V)``, the logarithms ``(B, H, L, 1)`` of its sums, and whether all
    indices that functions read with were in range.

    Args:
        numbers, places, arrays: the table that functions are given, int64, and where addresses of arrays go in it.
    """
    q, k, v = tiles._rows(q), tiles._rows(k), tiles._rows(v)
    batch, heads, rows, width = q.shape
    keys, out_width = v.shape[2:]
    kind = tiles._kind(q.dtype)
    out, logs = tiles.empty_like(q, out_width), np.empty((batch, heads, rows, 1), kind)
    geometry = _geometry(lists, rows)
    units = batch * heads * geometry[0] * geometry[1]
    work = QUERIES * keys * (width + out_width) * _density(lists, keys)
    per = max(1, int(CHUNK_WORK // max(1, work)))
    constants = tiles._constants(q, v, None)[1]
    del constants["MASK"]
    table = _table(numbers, places, arrays)
    flex_block.run(
        -(-units // per), q, k, v, table, lists.counts, lists.indices, lists.full_counts, lists.full_indices, out, logs, per, units,
        *geometry, heads, heads // k.shape[1], rows, keys, width, out_width, *tiles._steps(q), *tiles._steps(k), *tiles._steps(v),
        *tiles._steps(out), *_steps_of_lists(lists), float(scale), tiles._turning(q.dtype, kind), release=True, FULL=changes.full,
        MASKED=changes.masked, **constants,
    )  # fmt: skip
    return out, logs, not table[0]


def flex_grad(
    grad: np.ndarray, logs_grad: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, lists: Lists, changes: Changes,
    numbers: np.ndarray, places: list[int], arrays: list[np.ndarray], out: np.ndarray, logs: np.ndarray, scale: float, spread: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """The gradients of `flex` at q, k and v, from those at its result and, ``(B, H, L, 1)``, at the logarithms; and the sums that
    `changes.spread` adds to, `spread` of them.
    """
    grad, q, k, v, out = tiles._rows(grad), tiles._rows(q), tiles._rows(k), tiles._rows(v), tiles._rows(out)
    batch, heads, rows, width = q.shape
    key_heads, keys, out_width = v.shape[1:]
    step, constants = tiles._constants(q, v, None)
    del constants["MASK"]
    k_wide, v_wide = -(-width // step) * step, -(-out_width // step) * step
    part_keys, parts = tiles._parts(batch * key_heads, keys)
    dk, dv = tiles.empty_like(k, width), tiles.empty_like(v, out_width)
    dk_sum, dv_sum = dk, dv
    if constants["COPY"]:
        dk_sum = np.empty((batch, key_heads, keys, k_wide), logs.dtype)
        dv_sum = np.empty((batch, key_heads, keys, v_wide), logs.dtype)
    dq = tiles.empty_like(q, width)[None] if parts == 1 else np.empty((parts, *q.shape), logs.dtype)
    units = batch * key_heads * parts
    work = (heads // key_heads) * rows * min(part_keys, keys) * (3 * width + 2 * out_width) * _density(lists, keys)
    per = max(1, int(CHUNK_WORK // max(1, work)))
    spread_sums = np.zeros((units, max(1, spread)), logs.dtype)  # each unit of work has its own, and they are added in order
    flex_block_grad.run(
        -(-units // per), grad, q, k, v, _table(numbers, places, arrays), lists.counts, lists.indices, lists.full_counts,
        lists.full_indices, out, logs, logs_grad, dq, dk, dv, dk_sum, dv_sum, spread_sums, max(1, spread),
        per, units, parts, part_keys, *_geometry(lists, rows),
        heads, heads // key_heads, rows, keys, width, out_width, k_wide, v_wide, *tiles._steps(grad), *tiles._steps(q),
        *tiles._steps(k), *tiles._steps(v), *tiles._steps(out), *tiles._steps(dq, 4), *tiles._steps(dk), *tiles._steps(dv),
        *_steps_of_lists(lists), float(scale), tiles._turning(logs.dtype, logs.dtype), release=True, FULL=changes.full_grad,
        MASKED=changes.masked_grad, FACTORS=changes.full is not None, SPREAD=changes.spread, **constants,
    )  # fmt: skip
    total = np.add.reduce(spread_sums, axis=0)
    if parts == 1:
        return dq[0], dk, dv, total
    return np.add.reduce(dq, axis=0).astype(q.dtype, copy=False), dk, dv, total


def spread_bytes(q: np.ndarray, k: np.ndarray, spread: int) -> int:
    """Memory that `flex_grad` takes for `spread` sums."""
    heads = k.shape[0] * k.shape[1]
    return heads * tiles._parts(heads, k.shape[2])[1] * spread * tiles._kind(q.dtype).itemsize
