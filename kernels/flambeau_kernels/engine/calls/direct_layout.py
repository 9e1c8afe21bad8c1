"""Operands of any strides, for `direct`: the shape they broadcast to, the result's order, and the plan of the loop.

`lay_out` is in the kernel language and is called by the builtins of `direct`, with the interpreter lock held. It reads
numpy's arrays where `pyabi` says that their fields are and writes an answer (slots below) with a plan as `native.execute`
reads it. It does in a tenth of a microsecond what `plan` does for others: dimensions are ordered as the result has them and
merged, inputs that are not contiguous along the last one are packed (`pack.py`), the work is cut into chunks. Inputs of one value
in all of a row are not packed: each combination of them has a loop of its own, which reads them once a row, up to `MOST_STEADY`.
"""
from __future__ import annotations

import functools

from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.language import int32, int64, kernel, local, pointer, rolled
from flambeau_kernels.engine.launching import call, native, pack

MOST_ARGUMENTS, MOST_DIMS = 4, 8
# Elements; more of them repay a plan, whose loops are made for the strides: 25 us in Python. Where rows are contiguous it is the same loop.
MOST_PACKED, MOST_STRIDED = 1 << 19, 1 << 17
LEAST_PACKED = 128                                             # elements for which packing takes longer than the loop for any strides
FLOAT, INTEGER = 1, 2                                 # kinds of operands that are not the address of a dtype

# Slots of the head of a formula's builtins, their `self`; the entries follow.
(COUNT, TABLE, POOL, PARALLEL, SAVE, RESTORE, RING, LAYOUT, EXECUTE, ALONE, ENTRIES) = range(11)

# Slots of an entry of `direct`: what the result is, the loops for contiguous operands and for any, and what packs
# operands for the former (0: there is none), from how many elements on they may run, how to cut the work; then what
# each argument must be, and the strides of contiguous ones, in pairs as `loops` wants them. Where operands are of
# several dtypes, which one the result has depends on whether they have dimensions: `MIXED` says that those of a call
# must all have some, or none. Numbers are converted to the dtype that is computed in, so they must lie within its
# range: floats within plus and minus `BOUND`, a float64, if they are finite, integers from `LOW` to `HIGH`.
# From `STEADY` on there are pairs: a bit for each operand that is one value in all of a row, and the loop for these; 0 for none.
(ARGUMENTS, OUT, KERNEL, STRIDED, PACK, MIXED, LEAST, SHARED_FROM, GRAIN, RELEASE_FROM, BOUND, LOW, HIGH, STEADY) = range(14)
MOST_STEADY = 2
KINDS = STEADY + 2 * MOST_STEADY
STRIDES = KINDS + MOST_ARGUMENTS
ENTRY = STRIDES + 2 * (MOST_ARGUMENTS + 1)

# Slots of the answer. N is the number of elements, 0 for operands that are refused; STEPS the strides of the result in bytes,
# IN_ROWS whether they are those of C order.
N, NDIM, IN_ROWS, SHAPE = range(4)
STEPS = SHAPE + MOST_DIMS
PLAN = STEPS + MOST_DIMS
ANSWER = PLAN + native.DIMS + MOST_DIMS + (MOST_ARGUMENTS + 1) * (MOST_DIMS + 2)


@functools.cache
def address() -> int:
    """Of ``void lay_out(i64, ptr)``; the second points to the addresses of entry, items, data and answer, `in_place`, and the head."""
    types = {"entry": "int64", "items": "int64", "data": "int64", "answer": "int64", "in_place": int, "head": "int64"}
    return call.address(lay_out, types, {})


# In the kernel language a helper is inlined where it is called, and answers at its end.


def dims_of(item):
    return int64(pointer(item + pyabi.NDIM, int32)[0])


def lengths_of(item):
    return pointer(pointer(item + pyabi.SHAPE, int64)[0], int64)


def strides_of(item):
    return pointer(pointer(item + pyabi.STRIDES, int64)[0], int64)


@kernel(aliased=True, in_vectors=True)
def lay_out(_, entry, items, data, answer, in_place, head):
    count = entry[ARGUMENTS]
    operands = count + 1
    shape, plan = answer + SHAPE, answer + PLAN
    ndim, right = broadcast_shape(entry, items, count, shape)
    total = 1
    for d in rolled(range(ndim)):
        total = total * shape[d]

    steps = local(int64, (MOST_ARGUMENTS + 1) * MOST_DIMS)  # of operand k along dimension d, in bytes: slot k * MOST_DIMS + d
    decides = local(int64, MOST_ARGUMENTS)                  # whether an operand has a say in the result's order
    is_full = broadcast_strides(entry, items, count, shape, ndim, right, steps, decides)
    if in_place != 0:
        right = right & is_full                             # the first alone decides on the order
        for k in rolled(range(1, count)):
            decides[k] = 0
    every = local(int64, MOST_DIMS)
    sort_dimensions(count, shape, ndim, steps, decides, every)

    item = entry[STRIDES + 2 * count]
    order = local(int64, MOST_DIMS)                         # of dimensions longer than 1, from the fastest
    longer, in_rows, right = stride_result(count, shape, ndim, steps, every, order, item, in_place, answer, right)
    if (in_place != 0) & (right != 0) & (total > 0):
        right = inputs_are_apart(entry, data, count, shape, ndim, steps, item)

    lengths = local(int64, MOST_DIMS)                       # of the loop's dimensions, from the fastest
    loops = local(int64, (MOST_ARGUMENTS + 1) * MOST_DIMS)  # the steps of operands along them
    made = merge_dimensions(entry, operands, shape, steps, order, longer, lengths, loops)
    packs, steady, others, largest, near, crosses = look_along_rows(entry, count, loops, made)
    if (made > 2) & (near > 1):
        bring_next_to_rows(near, operands, lengths, loops)
    strided = int64(loops[count * MOST_DIMS] != item)
    right, packs = choose_loop(entry, plan, total, packs, steady, others, strided, right)

    rows = write_dimensions(entry, plan, operands, total, lengths, loops, made, packs)
    cut_into_chunks(entry, head, plan, total, rows, lengths, packs, crosses, largest)
    answer[N] = 0
    if right != 0:
        answer[N] = total
    answer[NDIM], answer[IN_ROWS] = ndim, in_rows


def broadcast_shape(entry, items, count, shape):
    """Writes the shape that operands broadcast to. Returns its number of dimensions, and whether there is one."""
    right = 1
    ndim, without = 0, 0                              # arrays without dimensions
    for k in rolled(range(count)):
        if entry[KINDS + k] > INTEGER:
            ndim = max(ndim, dims_of(items[k]))
            if dims_of(items[k]) == 0:
                without = 1
    if ndim > MOST_DIMS:
        right = 0
        ndim = 0
    if (entry[MIXED] != 0) & (without != 0) & (ndim != 0):
        right = 0
    for d in rolled(range(ndim)):
        shape[d] = 1
    for k in rolled(range(count)):
        if (entry[KINDS + k] > INTEGER) & (right != 0):
            own = dims_of(items[k])
            lengths = lengths_of(items[k])
            for i in rolled(range(own)):
                length = lengths[i]
                at = ndim - own + i
                if length != 1:
                    if shape[at] == 1:
                        shape[at] = length
                    if shape[at] != length:
                        right = 0
    return ndim, right


def broadcast_strides(entry, items, count, shape, ndim, right, steps, decides):
    """Writes the inputs' strides along the result's dimensions, and which are arrays. Returns whether the first has the result's shape."""
    is_full = 1
    for k in rolled(range(count)):
        mine = steps + k * MOST_DIMS
        for d in rolled(range(ndim)):
            mine[d] = 0
        decides[k] = 0
        if (entry[KINDS + k] > INTEGER) & (right != 0):
            own = dims_of(items[k])
            lengths, strides = lengths_of(items[k]), strides_of(items[k])
            decides[k] = 1
            if (k == 0) & (own != ndim):
                is_full = 0
            for i in rolled(range(own)):
                at = ndim - own + i
                if lengths[i] == shape[at]:
                    mine[at] = strides[i]
                if (k == 0) & (lengths[i] != shape[at]):
                    is_full = 0
    return is_full


def sort_dimensions(count, shape, ndim, steps, decides, every):
    """Writes dimensions from the fastest to the slowest, as the first operand has them that tells two apart: see `_arrays.permutation`."""
    for i in rolled(range(ndim)):
        every[i] = ndim - 1 - i
        at, before, moving = i, i - 1, 1
        while (before >= 0) & (moving != 0):
            this, that = every[at], every[max(before, 0)]
            decided, larger = 0, 0
            for k in rolled(range(count)):
                if (decides[k] != 0) & (decided == 0):
                    along, beside = steps[k * MOST_DIMS + this], steps[k * MOST_DIMS + that]
                    along, beside = max(along, 0 - along), max(beside, 0 - beside)  # views of numpy's may run backward
                    if (along != 0) & (beside != 0):
                        if (beside > along) | ((beside == along) & (shape[that] > shape[this])):
                            decided, larger = 1, 1
                        if beside < along:
                            decided = 1
            if larger != 0:
                every[max(before, 0)] = this
                every[at] = that
                at = before
            if (decided != 0) & (larger == 0):
                moving = 0
            before -= 1


def stride_result(count, shape, ndim, steps, every, order, item, in_place, answer, right):
    """Writes the result's strides. Returns how many dimensions are longer than 1, whether it is in C order, and whether it may be written:
    one written in place has no rows that overlap."""
    result = steps + count * MOST_DIMS
    step = item                                       # along a dimension, if there are no gaps
    in_rows = 1
    longer = 0
    for i in rolled(range(ndim)):
        d = every[i]
        if d != ndim - 1 - i:
            in_rows = 0
        result[d] = step
        if shape[d] != 1:
            order[longer] = d
            longer += 1
            if in_place != 0:
                result[d] = steps[d]
                if steps[d] < step:                   # written over and over, or rows that overlap
                    right = 0
            step = result[d] * shape[d]
        answer[STEPS + d] = result[d]
    return longer, in_rows, right


def inputs_are_apart(entry, data, count, shape, ndim, steps, item):
    """Whether no input shares memory with the first operand, which is written, but one that is just the same."""
    apart = 1
    end = data[0] + item
    for d in rolled(range(ndim)):
        end += (shape[d] - 1) * steps[d]
    for k in rolled(range(1, count)):
        if entry[KINDS + k] > INTEGER:
            low, high = data[k], data[k] + entry[STRIDES + 2 * k]
            same = int64((low == data[0]) & (entry[STRIDES + 2 * k] == item))
            for d in rolled(range(ndim)):
                span = (shape[d] - 1) * steps[k * MOST_DIMS + d]
                low, high = low + min(span, 0), high + max(span, 0)
                if (shape[d] != 1) & (steps[k * MOST_DIMS + d] != steps[d]):
                    same = 0
            if (low < end) & (high > data[0]) & (same == 0):
                apart = 0
    return apart


def merge_dimensions(entry, operands, shape, steps, order, longer, lengths, loops):
    """Writes the loop's dimensions: those that are one in all operands are merged. Returns how many they are."""
    made = 0
    for i in rolled(range(longer)):
        d = order[i]
        last = max(made - 1, 0)
        joins = int64(made > 0)
        for k in rolled(range(operands)):
            if made > 0:  # noqa: SIM102  # before, there is nothing to compare with
                if steps[k * MOST_DIMS + d] != loops[k * MOST_DIMS + last] * lengths[last]:
                    joins = 0
        if joins != 0:
            lengths[last] = lengths[last] * shape[d]
        else:
            lengths[made] = shape[d]
            for k in rolled(range(operands)):
                loops[k * MOST_DIMS + made] = steps[k * MOST_DIMS + d]
            made += 1
    if made == 0:
        lengths[0] = 1
        for k in rolled(range(operands)):
            loops[k * MOST_DIMS] = entry[STRIDES + 2 * k]
        made = 1
    return made


def look_along_rows(entry, count, loops, made):
    """How inputs lie along the loop's rows.

    Returns: whether any is not contiguous; a bit for each that is one value in all of a row; whether any others are not contiguous,
    the largest item of these and those; the dimension that comes next to the fastest, and whether an input is faster along it.
    """
    packs, crosses, largest = 0, 0, 1
    steady, others = 0, 0
    near = 1
    for k in rolled(range(count)):
        along, usual = loops[k * MOST_DIMS], entry[STRIDES + 2 * k]
        if along != usual:
            packs = 1
            largest = max(largest, usual)
            if along == 0:
                steady = steady | (1 << k)
            else:
                others = 1
            if (along != 0) & (crosses == 0):
                for i in rolled(range(1, made)):
                    here, best = abs(loops[k * MOST_DIMS + i]), abs(loops[k * MOST_DIMS + near])
                    if (here != 0) & ((best == 0) | (here < best)):
                        near = i
                if made > 1:  # noqa: SIM102
                    if (loops[k * MOST_DIMS + near] != 0) & (abs(loops[k * MOST_DIMS + near]) < abs(along)):
                        crosses = 1
    return packs, steady, others, largest, near, crosses


def bring_next_to_rows(near, operands, lengths, loops):
    """Exchanges the loop's dimensions 1 and `near`."""
    for k in rolled(range(operands)):
        moved = loops[k * MOST_DIMS + near]
        loops[k * MOST_DIMS + near] = loops[k * MOST_DIMS + 1]
        loops[k * MOST_DIMS + 1] = moved
    length = lengths[near]
    lengths[near] = lengths[1]
    lengths[1] = length


def choose_loop(entry, plan, total, packs, steady, others, strided, right):
    """Writes which of the entry's loops runs. Returns whether one does, and whether inputs are packed for it."""
    plan[native.KERNEL] = entry[KERNEL]
    one_value, room = 0, 0                            # the loop for the inputs that are steady, and whether there may come to be one
    if (steady != 0) & (others == 0) & (strided == 0):
        for i in rolled(range(MOST_STEADY)):
            if entry[STEADY + 2 * i] == steady:
                one_value = entry[STEADY + 2 * i + 1]
            if entry[STEADY + 2 * i] == 0:
                room = 1
    if one_value != 0:
        plan[native.KERNEL] = one_value
        packs = 0
    elif (room != 0) & (total > LEAST_PACKED):
        right = 0
    elif (strided != 0) | (entry[KERNEL] == 0) | ((packs != 0) & (total <= LEAST_PACKED) & (entry[STRIDED] != 0)):
        plan[native.KERNEL] = entry[STRIDED]
        packs, strided = 0, 1
    if (plan[native.KERNEL] == 0) | ((packs != 0) & (entry[PACK] == 0)):
        right = 0
    if ((strided != 0) & (total > MOST_STRIDED)) | ((packs != 0) & (total > MOST_PACKED)):
        right = 0
    return right, packs


def write_dimensions(entry, plan, operands, total, lengths, loops, made, packs):
    """Writes the loop's dimensions, each operand's steps along them and the item it is packed to, or 0. Returns the number of rows."""
    outer = max(made - 2, 0)
    dims = plan + native.DIMS
    pairs = dims + outer
    far = pairs + 2 * operands
    packed = far + outer * operands
    for i in rolled(range(outer)):
        dims[i] = lengths[2 + i]
    for k in rolled(range(operands)):
        mine = loops + k * MOST_DIMS
        pairs[2 * k], pairs[2 * k + 1] = mine[0], 0
        if made > 1:
            pairs[2 * k + 1] = mine[1]
        for i in rolled(range(outer)):
            far[i * operands + k] = mine[2 + i]
        packed[k] = 0
        if (packs != 0) & (mine[0] != entry[STRIDES + 2 * k]):
            packed[k] = entry[STRIDES + 2 * k]
    rows = 0
    if total > 0:
        rows = total // lengths[0]
    plan[native.OPERANDS], plan[native.OUTER] = operands, outer
    plan[native.N0], plan[native.N1], plan[native.ROWS] = lengths[0], 1, rows
    if made > 1:
        plan[native.N1] = lengths[1]
    return rows


def cut_into_chunks(entry, head, plan, total, rows, lengths, packs, crosses, largest):
    """Writes how many columns and rows a chunk has, who shares the chunks, and whether other threads of Python run meanwhile."""
    plan[native.POOL], plan[native.PARALLEL] = head[ALONE], head[PARALLEL]
    plan[native.PACK], plan[native.RELEASE] = 0, 0
    if total > entry[RELEASE_FROM]:
        plan[native.RELEASE] = 1
    n0 = lengths[0]
    across, down = n0, max(rows, 1)                   # columns and rows of a chunk
    shared = entry[SHARED_FROM]
    if packs != 0:                                    # each chunk is a tile
        shared = shared // 2
        plan[native.PACK] = entry[PACK]
        tile = pack.TILE_BYTES // largest
        if crosses != 0:
            tile = min(tile, max(pack.SIDE, tile // max(lengths[1], 1)))  # wider where rows are few; none if empty
        across = max(min(n0, tile), 1)
        down = max(pack.TILE_BYTES // largest // across, 1)
    elif (total >= shared) & (total > entry[GRAIN]):
        pieces = (total + entry[GRAIN] - 1) // entry[GRAIN]
        pieces = pieces + pieces % 2
        if rows >= pieces:
            down = (rows + pieces - 1) // pieces
        else:
            parts = (pieces + down - 1) // down
            across = ((n0 + parts - 1) // parts + 63) // 64 * 64
            down = 1
    if total >= shared:
        plan[native.POOL] = head[POOL]
    plan[native.ROW_GRAIN], plan[native.COLUMN_GRAIN] = down, across
    plan[native.COLUMN_CHUNKS] = (n0 + across - 1) // max(across, 1)
    plan[native.CHUNKS] = plan[native.COLUMN_CHUNKS] * ((rows + down - 1) // down)
