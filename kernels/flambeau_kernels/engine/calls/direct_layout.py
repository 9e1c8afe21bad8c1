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
    shape = answer + SHAPE
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
    total = 1
    for d in rolled(range(ndim)):
        total = total * shape[d]

    steps = local(int64, (MOST_ARGUMENTS + 1) * MOST_DIMS)  # of operand k along dimension d, in bytes: slot k * MOST_DIMS + d
    counts = local(int64, MOST_ARGUMENTS)                   # operands that have a say in the result's order
    is_full = 1                                               # whether the first one has the result's shape
    for k in rolled(range(count)):
        mine = steps + k * MOST_DIMS
        for d in rolled(range(ndim)):
            mine[d] = 0
        counts[k] = 0
        if (entry[KINDS + k] > INTEGER) & (right != 0):
            own = dims_of(items[k])
            lengths, strides = lengths_of(items[k]), strides_of(items[k])
            counts[k] = 1
            if (k == 0) & (own != ndim):
                is_full = 0
            for i in rolled(range(own)):
                at = ndim - own + i
                if lengths[i] == shape[at]:
                    mine[at] = strides[i]
                if (k == 0) & (lengths[i] != shape[at]):
                    is_full = 0
    if in_place != 0:
        right = right & is_full                         # the first alone decides on the order
        for k in rolled(range(1, count)):
            counts[k] = 0

    # Dimensions from the fastest to the slowest, as the first operand has them that tells two apart: see `_arrays.permutation`.
    every = local(int64, MOST_DIMS)
    for i in rolled(range(ndim)):
        every[i] = ndim - 1 - i
        at, before, moving = i, i - 1, 1
        while (before >= 0) & (moving != 0):
            this, that = every[at], every[max(before, 0)]
            told, larger = 0, 0
            for k in rolled(range(count)):
                if (counts[k] != 0) & (told == 0):
                    along, beside = steps[k * MOST_DIMS + this], steps[k * MOST_DIMS + that]
                    along, beside = max(along, 0 - along), max(beside, 0 - beside)  # views of numpy's may run backward
                    if (along != 0) & (beside != 0):
                        if (beside > along) | ((beside == along) & (shape[that] > shape[this])):
                            told, larger = 1, 1
                        if beside < along:
                            told = 1
            if larger != 0:
                every[max(before, 0)] = this
                every[at] = that
                at = before
            if (told != 0) & (larger == 0):
                moving = 0
            before -= 1

    item = entry[STRIDES + 2 * count]
    result = steps + count * MOST_DIMS
    step = item                                       # of the result along a dimension, if it has no gaps
    in_rows = 1
    order = local(int64, MOST_DIMS)                   # of dimensions longer than 1, from the fastest
    real = 0
    for i in rolled(range(ndim)):
        d = every[i]
        if d != ndim - 1 - i:
            in_rows = 0
        result[d] = step
        if shape[d] != 1:
            order[real] = d
            real += 1
            if in_place != 0:
                result[d] = steps[d]
                if steps[d] < step:                   # written over and over, or rows that overlap
                    right = 0
            step = result[d] * shape[d]
        answer[STEPS + d] = result[d]

    if (in_place != 0) & (right != 0) & (total > 0):
        end = data[0] + item
        for d in rolled(range(ndim)):
            end += (shape[d] - 1) * steps[d]
        for k in rolled(range(1, count)):
            if entry[KINDS + k] > INTEGER:
                low, high = data[k], data[k] + entry[STRIDES + 2 * k]
                same = int64((low == data[0]) & (entry[STRIDES + 2 * k] == item))  # whether it is just what is written
                for d in rolled(range(ndim)):
                    span = (shape[d] - 1) * steps[k * MOST_DIMS + d]
                    low, high = low + min(span, 0), high + max(span, 0)
                    if (shape[d] != 1) & (steps[k * MOST_DIMS + d] != steps[d]):
                        same = 0
                if (low < end) & (high > data[0]) & (same == 0):
                    right = 0

    # The loop's dimensions, from the fastest; those that are one in all operands are merged. Steps in place of the old ones.
    longs = local(int64, MOST_DIMS)
    loops = local(int64, (MOST_ARGUMENTS + 1) * MOST_DIMS)
    made = 0
    for i in rolled(range(real)):
        d = order[i]
        last = max(made - 1, 0)
        joins = int64(made > 0)
        for k in rolled(range(operands)):
            if made > 0:  # noqa: SIM102  # before, there is nothing to compare with
                if steps[k * MOST_DIMS + d] != loops[k * MOST_DIMS + last] * longs[last]:
                    joins = 0
        if joins != 0:
            longs[last] = longs[last] * shape[d]
        else:
            longs[made] = shape[d]
            for k in rolled(range(operands)):
                loops[k * MOST_DIMS + made] = steps[k * MOST_DIMS + d]
            made += 1
    if made == 0:
        longs[0] = 1
        for k in rolled(range(operands)):
            loops[k * MOST_DIMS] = entry[STRIDES + 2 * k]
        made = 1

    plan = answer + PLAN
    n0 = longs[0]
    packs, crosses, largest = 0, 0, 1
    steady, others = 0, 0                             # inputs that are one value in all of a row, and those of any steps
    near = 1                                          # the dimension that comes next to the fastest
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
    if (made > 2) & (near > 1):
        for k in rolled(range(operands)):
            moved = loops[k * MOST_DIMS + near]
            loops[k * MOST_DIMS + near] = loops[k * MOST_DIMS + 1]
            loops[k * MOST_DIMS + 1] = moved
        length = longs[near]
        longs[near] = longs[1]
        longs[1] = length
    plan[native.KERNEL] = entry[KERNEL]
    strided = int64(loops[count * MOST_DIMS] != item)
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

    outer = max(made - 2, 0)
    dims = plan + native.DIMS
    pairs = dims + outer
    far = pairs + 2 * operands
    packed = far + outer * operands
    for i in rolled(range(outer)):
        dims[i] = longs[2 + i]
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
        rows = total // n0
    plan[native.OPERANDS], plan[native.OUTER] = operands, outer
    plan[native.N0], plan[native.N1], plan[native.ROWS] = n0, 1, rows
    if made > 1:
        plan[native.N1] = longs[1]
    plan[native.POOL], plan[native.PARALLEL] = head[ALONE], head[PARALLEL]
    plan[native.PACK], plan[native.RELEASE] = 0, 0
    if total > entry[RELEASE_FROM]:
        plan[native.RELEASE] = 1
    across, down = n0, max(rows, 1)                   # columns and rows of a chunk
    shared = entry[SHARED_FROM]
    if packs != 0:                                    # each chunk is a tile
        shared = shared // 2
        plan[native.PACK] = entry[PACK]
        tile = pack.TILE_BYTES // largest
        if crosses != 0:
            tile = min(tile, max(pack.SIDE, tile // longs[1]))  # wider where rows are few
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
    answer[N] = 0
    if right != 0:
        answer[N] = total
    answer[NDIM], answer[IN_ROWS] = ndim, in_rows
