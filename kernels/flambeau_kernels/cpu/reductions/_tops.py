"""The largest or smallest of a run of neighbours, nan if there is one, in kernels of rows.

The instruction that takes the larger of two floats drops nans, and LLVM's own `maximum` needs five instructions to keep
them. Here nans are looked for beside: a product with zero, added up, is nan as soon as one element is (or is infinite, which
costs a second look). Vectors may overlap at the end of the run, as an extreme does not mind what it has seen before.
"""

from __future__ import annotations

from flambeau_kernels.engine.language import broadcast, lanes, load, local, shuffle, store, unroll
from flambeau_kernels.vocabulary import abs, fma, maximum, minimum, where

__all__ = ["extreme_of"]

WAYS = 4
# For vectors of each length, which lanes to compare with which so that the extreme ends up in all of them.
FOLDS = {n: [tuple(i ^ step for i in range(n)) for step in (1, 2, 4, 8) if step < n] for n in (2, 4, 8, 16)}


def picked(a, b, LARGEST):
    """The more extreme of two vectors; of a nan and a number, either."""
    if LARGEST:
        both = where(a > b, a, b)
    else:
        both = where(a < b, a, b)
    return both


def one_by_one(p, size, KIND, START, LARGEST, SIZES):
    top = KIND(START)
    for i in range(size):
        value = KIND(p[i])
        if SIZES:
            value = abs(value)
        if LARGEST:
            top = maximum(top, value)
        else:
            top = minimum(top, value)
    return top


def vector_of(p, i, SIZES, LANES):
    value = load(p, i, LANES)
    if SIZES:
        value = abs(value)
    return value


def extreme_of(p, size, KIND, START, LARGEST, SIZES):
    """The extreme of ``p[0], ..., p[size - 1]``, or with `SIZES` of their magnitudes; `START` of none."""
    if KIND.family == "f":
        top = extreme_float(p, size, KIND, START, LARGEST, SIZES, lanes(KIND))
    else:
        top = one_by_one(p, size, KIND, START, LARGEST, SIZES)
    return top


def extreme_float(p, size, KIND, START, LARGEST, SIZES, LANES):
    top = KIND(START)
    odd = KIND(0)
    if size >= LANES:
        tops = local(KIND, LANES)
        zero = broadcast(KIND(0), LANES)
        best, odds = vector_of(p, 0, SIZES, LANES), zero
        i = 0
        if size >= WAYS * LANES:
            b, d, e = best, best, best
            odd_b, odd_d, odd_e = zero, zero, zero
            while i + WAYS * LANES <= size:
                v, w = vector_of(p, i, SIZES, LANES), vector_of(p, i + LANES, SIZES, LANES)
                x, y = vector_of(p, i + 2 * LANES, SIZES, LANES), vector_of(p, i + 3 * LANES, SIZES, LANES)
                best, b, d, e = picked(v, best, LARGEST), picked(w, b, LARGEST), picked(x, d, LARGEST), picked(y, e, LARGEST)
                odds, odd_b, odd_d, odd_e = fma(v, zero, odds), fma(w, zero, odd_b), fma(x, zero, odd_d), fma(y, zero, odd_e)
                i += WAYS * LANES
            best = picked(picked(best, b, LARGEST), picked(d, e, LARGEST), LARGEST)
            odds = (odds + odd_b) + (odd_d + odd_e)
        while i < size:
            v = vector_of(p, min(i, size - LANES), SIZES, LANES)
            best = picked(v, best, LARGEST)
            odds = fma(v, zero, odds)
            i += LANES
        for ORDER in unroll(FOLDS[LANES]):
            best = picked(shuffle(best, best, ORDER), best, LARGEST)
            odds = odds + shuffle(odds, odds, ORDER)
        store(tops, 0, best)
        top = tops[0]
        store(tops, 0, odds)
        odd = tops[0]
    # Few elements, or a nan or infinity among them.
    if size < LANES or odd != odd:
        top = one_by_one(p, size, KIND, START, LARGEST, SIZES)
    return top
