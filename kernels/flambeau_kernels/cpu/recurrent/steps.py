"""Compiled recurrent steps: the time loop of one layer in one direction, forwards and backwards.

Sequences are cut into groups of a few rows of the batch. A chunk takes one group through all steps, so threads never
wait for each other and the cut follows from the shape alone. At every step the group's states meet the recurrent weights,
which are packed into panels two vectors wide and read once for the group; meanwhile
the gates that are wanted next are asked for. Then gates and new states are made from
the row of products, which is still in the first cache. Backwards, the slopes of the gates of a step meet the same
weights the other way round and become the slopes of the states before it.

Position ``(t, n)``, step and row of the batch, lies in row ``offsets[t] + n * row_step`` of every array over positions,
so sequences lie by step, by batch or packed; ``sizes[t]`` rows take part in step t. Rows of states are `wide` elements
apart, room for whole vectors and so many more that rows do not meet in the same places of a cache.

Gates stand as in the weights: of an LSTM enter, forget, new, leave; of a GRU reset, update, new.

Source: Werbos 1990, "Backpropagation through time", Proc. IEEE 78(10).
"""

from __future__ import annotations

from flambeau_kernels.cpu.lanes import exp_lanes, zero_lanes
from flambeau_kernels.cpu.recurrent import GATES
from flambeau_kernels.engine.language import (
    bitcast,
    broadcast,
    dot_bfloat16,
    float32,
    int32,
    kernel,
    lanes,
    load,
    local,
    multiply_add,
    outlined,
    prefetch,
    rolled,
    shuffle,
    store,
    unroll,
    vector,
    widened,
)
from flambeau_kernels.scalar.coefficients import COEFFICIENTS
from flambeau_kernels.vocabulary import abs, fma, where

__all__ = ["advance", "pack", "retreat"]

LINE = 64                                             # bytes of a line of the cache
# The polynomial of tanh near 0: its highest coefficient, and the others by falling power.
TANH_32, TANH_64 = ((p[-1], p[-2::-1]) for p in (COEFFICIENTS["tanh.float32"], COEFFICIENTS["tanh.float64"]))


# -- vectors -----------------------------------------------------------------------------------------------------------------


def get(p, at, left, KIND, FULL):
    """A vector from `at` on, of which `left` elements exist."""
    return load(p, at, lanes(KIND)) if FULL else load(p, at, lanes(KIND), left)


def put(p, at, value, left, FULL):
    if FULL:
        store(p, at, value)
    else:
        store(p, at, value, left)


def sigmoid_lanes(x, KIND):
    e = exp_lanes(-abs(x), KIND)                      # at most 1: neither branch overflows
    return where(x >= 0.0, 1.0, e) / (e + 1.0)


def tanh_lanes(x, KIND):
    HIGHEST, OTHERS = TANH_32 if KIND is float32 else TANH_64
    a = abs(x)
    z = x * x
    p = broadcast(KIND(HIGHEST), lanes(KIND))
    for C in unroll(OTHERS):
        p = fma(p, z, C)
    near = fma(p * z, x, x)
    b = where(a > 40.0, 40.0, a)                      # beyond which the result is 1, and exp might not be finite
    far = 1.0 - 2.0 / (exp_lanes(b + b, KIND) + 1.0)
    return where(a < 0.6, near, where(x < 0.0, -far, far))


# -- products ----------------------------------------------------------------------------------------------------------------


def stages(count):
    """How a square of vectors is transposed: for halves, quarters and so on which pairs exchange lanes, and which ones."""
    made = []
    step = count // 2
    while step:
        low = tuple(e if not e & step else count + e - step for e in range(count))
        high = tuple(e + step if not e & step else count + e for e in range(count))
        made.append((low, high, tuple((i, i + step) for i in range(count) if not i & step)))
        step //= 2
    return made


STAGES = {count: stages(count) for count in (2, 4, 8, 16)}


def transpose_square(source, row, to, to_row, KIND):
    N = lanes(KIND)
    held = local(vector(KIND, N), N)
    for R in unroll(range(N)):
        held[R] = load(source, R * row, N)
    for LOW, HIGH, PAIRS in unroll(STAGES[N]):
        for I, J in unroll(PAIRS):
            one, other = held[I], held[J]
            held[I] = shuffle(one, other, LOW)
            held[J] = shuffle(one, other, HIGH)
    for R in unroll(range(N)):
        store(to, R * to_row, held[R])


@kernel(in_vectors=True)
def pack(chunk, weights, panels, columns, depth, column_step, depth_step, *, WIDE):
    """Panel `chunk` of a right operand: for each place along the sum WIDE columns side by side, zeros beyond the last."""
    KIND = widened(panels)
    N = lanes(KIND)
    first = chunk * WIDE
    here = min(columns - first, WIDE)
    to = panels + first * depth
    source = weights + first * column_step
    done = 0
    if column_step == 1:
        done = depth
        for k in rolled(range(depth)):
            for H in unroll((0, N)):
                store(to, k * WIDE + H, load(source, k * depth_step + H, N, here - H))
    elif depth_step == 1 and here == WIDE:
        done = depth // N * N
        for k in rolled(range(0, done, N)):
            for H in unroll((0, N)):
                outlined(transpose_square)(source + (H * column_step + k), column_step, to + (k * WIDE + H), WIDE, KIND)
    for k in rolled(range(done, depth)):
        for c in rolled(range(here)):
            to[k * WIDE + c] = source[c * column_step + k * depth_step]
        for c in rolled(range(here, WIDE)):
            to[k * WIDE + c] = KIND(0)


def product(a, a_row, panels, c, c_row, rows, columns, depth, add, gates, gates_row, HEIGHTS, PAIRS, PER_COLUMN):
    """``C = A @ B`` of a few rows, or added to C if `add`; B in `panels`, and `columns` of C for whole ones.

    Args:
        gates, gates_row: what is asked for meanwhile, as many rows with PER_COLUMN elements for each column of C: gates that are wanted
            next, whose rows lie too far apart for the processor to foresee them.
        HEIGHTS: rows of the register tiles there are, falling to 1.
        PAIRS: whether A and B are int32 that hold two bfloat16 each, which follow each other along the sum.
    """
    KIND = widened(c)
    WIDE = 2 * lanes(KIND)
    for j in rolled(range(0, columns, WIDE)):
        panel = panels + j * depth
        for r in rolled(range(rows)):
            for PLACE in unroll(range(0, PER_COLUMN * WIDE, LINE // (KIND.bits // 8))):
                prefetch(gates + (r * gates_row + j * PER_COLUMN + PLACE))
        i = 0
        for TALL in unroll(HEIGHTS):
            while i + TALL <= rows:
                tile(a + i * a_row, a_row, panel, c + (i * c_row + j), c_row, depth, add, KIND, TALL, PAIRS)
                i += TALL


def joined(x, y, total, PAIRS):
    return dot_bfloat16(x, y, total) if PAIRS else multiply_add(x, y, total)


def tile(a, a_row, panel, c, c_row, depth, add, KIND, TALL, PAIRS):
    N = lanes(KIND)
    sums = local(vector(KIND, N), 2 * TALL)
    for R in unroll(range(2 * TALL)):
        sums[R] = zero_lanes(KIND)
    if add:
        for R in unroll(range(TALL)):
            for W in unroll(range(2)):
                sums[2 * R + W] = load(c, R * c_row + W * N, N)
    left, right = a, panel
    for _k in rolled(range(depth)):
        first, second = load(right, 0, N), load(right, N, N)
        for R in unroll(range(TALL)):
            x = broadcast(left[R * a_row], N)
            sums[2 * R] = joined(x, first, sums[2 * R], PAIRS)
            sums[2 * R + 1] = joined(x, second, sums[2 * R + 1], PAIRS)
        left += 1
        right += 2 * N
    for R in unroll(range(TALL)):
        for W in unroll(range(2)):
            store(c, R * c_row + W * N, sums[2 * R + W])


# -- one step forwards -------------------------------------------------------------------------------------------------------


def lstm_step(x, x_row, made, made_row, h, low, c, wide, bias, out, before, second, row, rows, hidden, KEEP, FULL, PAIRS):
    KIND = widened(out)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        gates, products, at = x + r * x_row, made + r * made_row, r * row
        # The states have a loop of their own: through two tanh after each other the processor cannot see far ahead.
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            f_at, g_at, o_at = j + hidden, j + 2 * hidden, j + 3 * hidden
            enter = sigmoid_lanes(get(gates, j, left, KIND, FULL) + load(products, j, N), KIND)
            forget = sigmoid_lanes(get(gates, f_at, left, KIND, FULL) + load(products, f_at, N), KIND)
            new = tanh_lanes(get(gates, g_at, left, KIND, FULL) + load(products, g_at, N), KIND)
            leave = sigmoid_lanes(get(gates, o_at, left, KIND, FULL) + load(products, o_at, N), KIND)
            old = load(c, r * wide + j, N)
            if KEEP:
                put(second, at + j, old, left, FULL)
                put(gates, j, enter, left, FULL)
                put(gates, f_at, forget, left, FULL)
                put(gates, g_at, new, left, FULL)
                put(gates, o_at, leave, left, FULL)
            store(c, r * wide + j, fma(forget, old, enter * new))
            store(products, j, leave)
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            state = load(products, j, N) * tanh_lanes(load(c, r * wide + j, N), KIND)
            if KEEP:
                put(before, at + j, load(h, r * wide + j, N), left, FULL)
            store(h, r * wide + j, state)
            if PAIRS:
                store(low, r * wide + j, state)
            put(out, at + j, state, left, FULL)


def gru_step(x, x_row, made, made_row, h, low, c, wide, bias, out, before, second, row, rows, hidden, KEEP, FULL, PAIRS):
    KIND = widened(out)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        gates, products, at = x + r * x_row, made + r * made_row, r * row
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            z_at, n_at = j + hidden, j + 2 * hidden
            reset = sigmoid_lanes(get(gates, j, left, KIND, FULL) + load(products, j, N), KIND)
            update = sigmoid_lanes(get(gates, z_at, left, KIND, FULL) + load(products, z_at, N), KIND)
            inner = load(products, n_at, N) + load(bias, j, N)
            new = tanh_lanes(fma(reset, inner, get(gates, n_at, left, KIND, FULL)), KIND)
            old = load(h, r * wide + j, N)
            state = fma(update, old - new, new)
            if KEEP:
                put(before, at + j, old, left, FULL)
                put(second, at + j, inner, left, FULL)
                put(gates, j, reset, left, FULL)
                put(gates, z_at, update, left, FULL)
                put(gates, n_at, new, left, FULL)
            store(h, r * wide + j, state)
            if PAIRS:
                store(low, r * wide + j, state)
            put(out, at + j, state, left, FULL)


def plain_step(x, x_row, made, made_row, h, low, c, wide, bias, out, before, second, row, rows, hidden, RELU, KEEP, FULL, PAIRS):
    KIND = widened(out)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            total = get(x, r * x_row + j, left, KIND, FULL) + load(made, r * made_row + j, N)
            state = where(total < 0.0, 0.0, total) if RELU else tanh_lanes(total, KIND)
            if KEEP:
                put(before, r * row + j, load(h, r * wide + j, N), left, FULL)
                put(x, r * x_row + j, state, left, FULL)
            store(h, r * wide + j, state)
            if PAIRS:
                store(low, r * wide + j, state)
            put(out, r * row + j, state, left, FULL)


@kernel(in_vectors=True)
def advance(chunk, x, panels, h, low, c, bias, out, before, second, scratch, offsets, sizes, group, steps, first, step, row_step,
            hidden, columns, pitch, wide, made_row, once, *, MODE, KEEP, FULL, HEIGHTS, PAIRS):  # fmt: skip
    """Take a group of rows through all steps.

    Args:
        x: by position, what the inputs bring to the gates; with KEEP the gates take its place.
        h, c: the states, from the first to the last.
        low: with PAIRS the states h in bfloat16, which meet the weights; else anything.
        bias: of a GRU, what is added to the recurrent part of `new`.
        out: by position, the new h. With KEEP also `before`, the h before it, and `second`: of an LSTM the c before it, of
            a GRU the recurrent part of `new`.
        scratch: a row of `made_row` for each row of the batch; if there is only `once` a step, its products are there.
        first, step: number of the first step, and from one to the next, 1 or -1.
        pitch: from the gates of one position to those of the next, and so for the gradients at them.
    """
    begin = chunk * group
    made = scratch + begin * made_row
    h_here, c_here, low_here = h + begin * wide, c + begin * wide, low + begin * wide
    N = lanes(widened(out))
    padded = (columns + 2 * N - 1) // (2 * N) * (2 * N)
    row = row_step * hidden
    for s in range(steps):
        t = first + s * step
        rows = min(sizes[t] - begin, group)
        if rows > 0:
            place = offsets[t] + begin * row_step
            x_here, x_row, at = x + place * pitch, row_step * pitch, place * hidden
            if once == 0:
                if PAIRS:
                    outlined(product)(bitcast(low_here, int32), wide // 2, panels, made, made_row, rows, padded, hidden // 2, False,
                                   x_here, x_row, HEIGHTS, True, 1)  # fmt: skip
                else:
                    outlined(product)(h_here, wide, panels, made, made_row, rows, padded, hidden, False, x_here, x_row, HEIGHTS, False, 1)
            if MODE == "LSTM":
                outlined(lstm_step)(x_here, x_row, made, made_row, h_here, low_here, c_here, wide, bias, out + at, before + at, second + at,
                                 row, rows, hidden, KEEP, FULL, PAIRS)  # fmt: skip
            elif MODE == "GRU":
                outlined(gru_step)(x_here, x_row, made, made_row, h_here, low_here, c_here, wide, bias, out + at, before + at, second + at,
                                row, rows, hidden, KEEP, FULL, PAIRS)  # fmt: skip
            else:
                outlined(plain_step)(x_here, x_row, made, made_row, h_here, low_here, c_here, wide, bias, out + at, before + at,
                                     second + at, row, rows, hidden, MODE == "RNN_RELU", KEEP, FULL, PAIRS)  # fmt: skip


# -- one step backwards ------------------------------------------------------------------------------------------------------


def lstm_slopes(gates, before, second, grad, dh, dc, wide, dx, dmade, slopes, slopes_row, x_row, row, rows, hidden, FULL):
    KIND = widened(grad)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        gate, to, copy, at, state = gates + r * x_row, dx + r * x_row, slopes + r * slopes_row, r * row, r * wide
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            f_at, g_at, o_at = j + hidden, j + 2 * hidden, j + 3 * hidden
            enter, forget = get(gate, j, left, KIND, FULL), get(gate, f_at, left, KIND, FULL)
            new, leave = get(gate, g_at, left, KIND, FULL), get(gate, o_at, left, KIND, FULL)
            old = get(second, at + j, left, KIND, FULL)
            bent = tanh_lanes(fma(forget, old, enter * new), KIND)
            d = load(dh, state + j, N) + get(grad, at + j, left, KIND, FULL)
            dcell = fma(d * leave, 1.0 - bent * bent, load(dc, state + j, N))
            store(dc, state + j, dcell * forget)
            d_enter = dcell * new * (enter * (1.0 - enter))
            d_forget = dcell * old * (forget * (1.0 - forget))
            d_new = dcell * enter * (1.0 - new * new)
            d_leave = d * bent * (leave * (1.0 - leave))
            put(to, j, d_enter, left, FULL)
            put(to, f_at, d_forget, left, FULL)
            put(to, g_at, d_new, left, FULL)
            put(to, o_at, d_leave, left, FULL)
            put(copy, j, d_enter, left, FULL)
            put(copy, f_at, d_forget, left, FULL)
            put(copy, g_at, d_new, left, FULL)
            put(copy, o_at, d_leave, left, FULL)


def gru_slopes(gates, before, second, grad, dh, dc, wide, dx, dmade, slopes, slopes_row, x_row, row, rows, hidden, FULL):
    KIND = widened(grad)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        gate, to, through = gates + r * x_row, dx + r * x_row, dmade + r * x_row
        copy, at, state = slopes + r * slopes_row, r * row, r * wide
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            z_at, n_at = j + hidden, j + 2 * hidden
            reset, update = get(gate, j, left, KIND, FULL), get(gate, z_at, left, KIND, FULL)
            new = get(gate, n_at, left, KIND, FULL)
            old, inner = get(before, at + j, left, KIND, FULL), get(second, at + j, left, KIND, FULL)
            d = load(dh, state + j, N) + get(grad, at + j, left, KIND, FULL)
            store(dh, state + j, d * update)
            d_update = d * (old - new) * (update * (1.0 - update))
            d_new = d * (1.0 - update) * (1.0 - new * new)
            d_reset = d_new * inner * (reset * (1.0 - reset))
            d_inner = d_new * reset
            put(to, j, d_reset, left, FULL)
            put(to, z_at, d_update, left, FULL)
            put(to, n_at, d_new, left, FULL)
            put(through, j, d_reset, left, FULL)
            put(through, z_at, d_update, left, FULL)
            put(through, n_at, d_inner, left, FULL)
            put(copy, j, d_reset, left, FULL)
            put(copy, z_at, d_update, left, FULL)
            put(copy, n_at, d_inner, left, FULL)


def plain_slopes(gates, grad, dh, wide, dx, slopes, slopes_row, x_row, row, rows, hidden, RELU, FULL):
    KIND = widened(grad)
    N = lanes(KIND)
    for r in rolled(range(rows)):
        for j in rolled(range(0, hidden, N)):
            left = hidden - j
            state = get(gates, r * x_row + j, left, KIND, FULL)
            d = load(dh, r * wide + j, N) + get(grad, r * row + j, left, KIND, FULL)
            slope = where(state <= 0.0, 0.0, d) if RELU else d * (1.0 - state * state)
            put(dx, r * x_row + j, slope, left, FULL)
            put(slopes, r * slopes_row + j, slope, left, FULL)


@kernel(in_vectors=True)
def retreat(chunk, gates, before, second, grad, panels, dh, dc, dx, dmade, scratch, offsets, sizes, group, steps, first, step,
            row_step, hidden, columns, pitch, wide, slopes_row, once, *, MODE, FULL, HEIGHTS, PAIRS):  # fmt: skip
    """Take a group of rows back through all steps, from the last to the first.

    Args:
        gates, before, second: what `advance` kept.
        grad: by position, the gradient at h.
        dh, dc: the gradients at the states, from the last to the first.
        dx: by position, the gradient at what the inputs brought to the gates; of a GRU, `dmade` at what the states brought.
        scratch: a row of `slopes_row` for each row of the batch, in bfloat16 with PAIRS.
        once: whether there is one step only, whose product with the weights is left to the caller.
        The rest is as for `advance`.
    """
    begin = chunk * group
    slopes = scratch + begin * slopes_row
    dh_here, dc_here = dh + begin * wide, dc + begin * wide
    N = lanes(widened(grad))
    padded = (hidden + 2 * N - 1) // (2 * N) * (2 * N)
    row, x_row = row_step * hidden, row_step * pitch
    for s in range(steps):
        t = first + (steps - 1 - s) * step
        rows = min(sizes[t] - begin, group)
        if rows > 0:
            place = offsets[t] + begin * row_step
            x_at, at = place * pitch, place * hidden
            if MODE == "LSTM":
                outlined(lstm_slopes)(gates + x_at, before + at, second + at, grad + at, dh_here, dc_here, wide, dx + x_at,
                                   dmade + x_at, slopes, slopes_row, x_row, row, rows, hidden, FULL)  # fmt: skip
            elif MODE == "GRU":
                outlined(gru_slopes)(gates + x_at, before + at, second + at, grad + at, dh_here, dc_here, wide, dx + x_at,
                                  dmade + x_at, slopes, slopes_row, x_row, row, rows, hidden, FULL)  # fmt: skip
            else:
                outlined(plain_slopes)(gates + x_at, grad + at, dh_here, wide, dx + x_at, slopes, slopes_row, x_row, row, rows,
                                    hidden, MODE == "RNN_RELU", FULL)  # fmt: skip
            if once == 0:                             # what a GRU's state hands on directly is there already
                soon = gates + (offsets[first + max(0, steps - 2 - s) * step] + begin * row_step) * pitch
                if PAIRS:
                    outlined(product)(bitcast(slopes, int32), slopes_row // 2, panels, dh_here, wide, rows, padded, columns // 2,
                                   MODE == "GRU", soon, x_row, HEIGHTS, True, GATES[MODE])  # fmt: skip
                else:
                    outlined(product)(slopes, slopes_row, panels, dh_here, wide, rows, padded, columns, MODE == "GRU", soon, x_row,
                                   HEIGHTS, False, GATES[MODE])  # fmt: skip
