"""Small operands of any strides, for `direct`: the shape they broadcast to, the result's order, and the plan of the loop.

`lay_out` is in the kernel language and is called by the builtins of `direct`, with the interpreter lock held. It reads
numpy's arrays where `pyabi` says that their fields are and writes an answer (slots below) with a plan as `native.execute`
reads it, over dimensions as they are: merging them would save less than it costs.
"""
from __future__ import annotations

import functools

from flambeau_kernels.engine import call, native, pyabi
from flambeau_kernels.engine.language import int32, int64, kernel, pointer, rolled

MOST_ARGUMENTS, MOST_DIMS = 4, 8
# Elements; more of them repay a plan, whose loops are made for the strides and shared among threads. Where rows are
# contiguous it is the same loop, in vectors.
MOST_STRIDED, MOST_IN_ROWS = 2048, 32768
FLOAT, INTEGER = 1, 2                                 # kinds of operands that are not the address of a dtype

# Slots of an entry of `direct`: what the result is, the loops for contiguous operands and for any (0: there is none),
# from how many elements on they may run, how to cut the work; then what each argument must be, and the strides of
# contiguous ones, in pairs as `loops` wants them. Where operands are of several dtypes, which one the result has depends
# on whether they have dimensions: `MIXED` says that those of a call must all have some, or none.
# Numbers are converted to the dtype that is computed in, so they must lie within its range: floats within plus and minus
# `BOUND`, a float64, if they are finite, integers from `LOW` to `HIGH`.
(ARGUMENTS, OUT, KERNEL, STRIDED, MIXED, LEAST, SHARED_FROM, GRAIN, RELEASE_FROM, BOUND, LOW, HIGH, KINDS) = range(13)
STRIDES = KINDS + MOST_ARGUMENTS
ENTRY = STRIDES + 2 * (MOST_ARGUMENTS + 1)

# Slots of the answer. N is the number of elements, 0 for operands that are refused; BY_COLUMNS says that the result is a
# matrix whose columns are contiguous.
N, NDIM, BY_COLUMNS, SHAPE = range(4)
PLAN = SHAPE + MOST_DIMS
ANSWER = PLAN + native.DIMS + MOST_DIMS + (MOST_ARGUMENTS + 1) * MOST_DIMS


@functools.cache
def address() -> int:
    """Of ``void lay_out(i64, ptr)``; the second points to the addresses of entry, items, data and answer, and `in_place`."""
    types = {"entry": "int64", "items": "int64", "data": "int64", "answer": "int64", "in_place": int}
    return call.address(lay_out, types, {})


# In the kernel language a helper is inlined where it is called, and answers at its end.


def dims_of(item):
    return int64(pointer(item + pyabi.NDIM, int32)[0])


def lengths_of(item):
    return pointer(pointer(item + pyabi.SHAPE, int64)[0], int64)


def strides_of(item):
    return pointer(pointer(item + pyabi.STRIDES, int64)[0], int64)


@kernel(aliased=True, in_vectors=True)
def lay_out(_, entry, items, data, answer, in_place):
    count = entry[ARGUMENTS]
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
    for d in rolled(range(MOST_DIMS)):
        shape[d] = 1
    if right != 0:
        for k in rolled(range(count)):
            if entry[KINDS + k] > INTEGER:
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

    # Which of its dimensions the result has first in memory is what the first whole operand that tells says.
    by_columns, told = 0, 0
    for k in rolled(range(count)):
        if (entry[KINDS + k] > INTEGER) & (right != 0):  # noqa: SIM102  # numbers are no arrays to be looked into
            if dims_of(items[k]) == ndim:
                lengths, strides = lengths_of(items[k]), strides_of(items[k])
                whole = 1
                for d in rolled(range(ndim)):
                    if lengths[d] != shape[d]:
                        whole = 0
                below = 0                             # the stride of the dimension after this one that has one
                for i in rolled(range(ndim)):
                    d = ndim - 1 - i
                    if (whole != 0) & (lengths[d] > 1) & (strides[d] != 0):
                        if (below != 0) & (strides[d] != below) & (told == 0) & (ndim == 2):
                            told = 1
                            if strides[d] < below:
                                by_columns = 1
                        if (strides[d] < below) & (ndim != 2):
                            right = 0
                        below = strides[d]

    plan = answer + PLAN
    operands = count + 1
    outer = max(ndim - 2, 0)
    n0, n1 = 1, 1
    if ndim > 0:
        n0 = shape[ndim - 1]
    if ndim > 1:
        n1 = shape[ndim - 2]
    plan[native.OPERANDS] = operands
    plan[native.N0], plan[native.N1], plan[native.OUTER] = n0, n1, outer
    plan[native.CHUNKS], plan[native.PACK] = 1, 0
    plan[native.ROWS] = 0
    if total > 0:
        plan[native.ROWS] = total // n0
    dims = plan + native.DIMS
    pairs = dims + outer
    far = pairs + 2 * operands
    for i in rolled(range(outer)):
        dims[i] = shape[ndim - 3 - i]

    for k in rolled(range(count)):
        is_array = entry[KINDS + k] > INTEGER
        low, high = data[k], data[k] + entry[STRIDES + 2 * k]
        same = 1                                      # whether it is just the array that is written
        for i in rolled(range(ndim)):                 # from the last dimension
            step = 0
            if is_array:
                own = dims_of(items[k])
                if i < own:
                    length = lengths_of(items[k])[own - 1 - i]
                    if length != 1:
                        step = strides_of(items[k])[own - 1 - i]
                    if step < 0:
                        right = 0
                    high = high + (length - 1) * step
            if i < 2:
                pairs[2 * k + i] = step
            else:
                far[(i - 2) * operands + k] = step
            if i < 2:
                if pairs[i] != step:
                    same = 0
            else:
                if far[(i - 2) * operands] != step:
                    same = 0
        for i in rolled(range(ndim, 2)):
            pairs[2 * k + i] = 0
        if (in_place != 0) & is_array & (total > 0):
            if k == 0:
                answer[N] = high                      # where what is written ends
                if dims_of(items[k]) != ndim:
                    right = 0
                for d in rolled(range(ndim)):
                    if dims_of(items[k]) == ndim:  # noqa: SIM102  # as many lengths as dimensions
                        if lengths_of(items[k])[d] != shape[d]:
                            right = 0
            else:
                exactly = (low == data[0]) & (same != 0) & (entry[STRIDES + 2 * k] == entry[STRIDES])
                if ((low < answer[N]) & (high > data[0])) & (exactly == False):  # noqa: E712
                    right = 0

    step = entry[STRIDES + 2 * count]                 # of the result
    for i in rolled(range(ndim)):
        own = step
        if in_place != 0:
            own = pairs[0]
            if i == 1:
                own = pairs[1]
            if i > 1:
                own = far[(i - 2) * operands]
            # A dimension that is written over and over, or rows that overlap.
            if (shape[ndim - 1 - i] > 1) & (own < step):
                right = 0
        if (by_columns != 0) & (in_place == 0):
            own = entry[STRIDES + 2 * count]
            if i == 0:
                own = own * shape[0]
        if i < 2:
            pairs[2 * count + i] = own
        else:
            far[(i - 2) * operands + count] = own
        if shape[ndim - 1 - i] > 1:
            step = own * shape[ndim - 1 - i]
    for i in rolled(range(ndim, 2)):
        pairs[2 * count + i] = 0

    in_rows = 1
    for k in rolled(range(operands)):
        if (n0 > 1) & (pairs[2 * k] != entry[STRIDES + 2 * k]):
            in_rows = 0
    most = MOST_IN_ROWS
    plan[native.KERNEL] = entry[KERNEL]
    if (in_rows == 0) | (entry[KERNEL] == 0):
        most = MOST_STRIDED
        plan[native.KERNEL] = entry[STRIDED]
    answer[N] = 0
    if (right != 0) & (total <= most) & (plan[native.KERNEL] != 0):
        answer[N] = total
    answer[NDIM], answer[BY_COLUMNS] = ndim, by_columns
