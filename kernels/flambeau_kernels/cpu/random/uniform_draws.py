"""Uniform reals, integers and coin flips from an `MT19937Stream`, the ones PyTorch's CPU draws.

Every function fills `out` in place, any strides, and returns it. Numbers are dealt out in the order of
memory, so a transposed view receives them along its columns. Memory without gaps is filled by compiled loops
(`loops`), the rest by numpy.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..tier import compiles
from .arithmetic import fma
from .stream import (
    HALVES,
    MOST_AT_ONCE,
    AtOnce,
    MT19937Stream,
    bits,
    check_dtype,
    chunks,
    draw_parts,
    fill,
    loops,
    memory,
    memory_order,
    numbers_in,
)

__all__ = ["bernoulli", "coins", "integers", "random_bits", "randint", "refill", "refill_between", "refill_bits", "refill_coins",
           "refill_integers", "uniform", "uniforms"]

WIDE_RANGE = 1 << 28                                 # ranges from here on take two words per integer

# Without bounds an integer type gives its non-negative half, a floating type the integers it holds exactly.
UNBOUNDED = {
    "bool": 1 << 1, "uint8": 1 << 8, "int8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63,
    "float16": (1 << 11) + 1, "bfloat16": (1 << 8) + 1, "float32": (1 << 24) + 1, "float64": (1 << 53) + 1,
}


def uniform(stream: MT19937Stream, out: np.ndarray, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Fill floating or complex `out` with reals in [low, high), the parts of a complex number independently.

    Half types draw in float32 and round; a value that rounds up to `high` becomes `low`.
    Raises: RuntimeError if `low > high`, or if either or their difference is too large for the dtype.
    """
    if out.dtype.char in "fd":
        plain = low == 0 and high == 1
        form = (_UNIT if plain else _UNIFORM).form(out)
        if form is not None:
            stream.at_once(form, out, out.nbytes >> 2, *((0.0, 1.0, 1.0) if plain else _interval(out.dtype, low, high)))
            return out
    if draw_parts(uniform, stream, out, low, high) is not None:
        return out
    check_dtype("uniform_", out.dtype, "fc")
    if (low, high) != (0, 1):
        check_interval(out.dtype, low, high)
    if compiles() and _uniform_compiled(stream, out, low, high):
        return out
    double = out.dtype in (np.float64, np.complex128)
    unit = stream.uniform64(numbers_in(out)) if double else stream.uniform32(numbers_in(out))
    if (low, high) != (0.0, 1.0):
        width = high - low if double else float(np.float32(high) - np.float32(low))
        unit = fma(unit, width, low)
    half = out.dtype.char in HALVES
    if half or (low, high) != (0.0, 1.0):
        kind = out.dtype if half else unit.dtype
        values = unit.astype(kind, copy=False)
        unit = np.where(values == kind.type(high), kind.type(low), values)
    return fill(out, unit)


def uniforms(stream: MT19937Stream, sizes: tuple[Any, ...], like: np.ndarray) -> np.ndarray | None:
    """A new array of numbers in [0, 1), as `like` of float32 or float64; None, with nothing drawn, where `uniform` shall fill one."""
    table = _UNIT.tables.get(like.dtype)
    return None if table is None else stream.made(table, sizes, like, _ZERO_TO_ONE, like.itemsize >> 2)


def integers(stream: MT19937Stream, sizes: tuple[Any, ...], low: int, high: int) -> np.ndarray | None:
    """A new int64 array of integers in [low, high); None, with nothing drawn, where `randint` shall fill one."""
    if not -WIDE_RANGE < low < high < WIDE_RANGE or high - low >= WIDE_RANGE:
        return None
    table = _INTEGERS[False].tables.get(_INT64)
    if table is None:
        return None
    return stream.made(table, sizes, _INTEGERS_OF, _range_of(low, high), 1)


def refill_integers(stream: MT19937Stream, out: np.ndarray, low: int, high: int) -> bool:
    """`refill` for `randint` of integers of one word each that the dtype holds, which is int32, int64, float32 or float64."""
    least = -(1 << 24) if out.dtype.char == "f" else -WIDE_RANGE
    if out.size > MOST_AT_ONCE or not least < low < high < -least or high - low >= WIDE_RANGE or out.dtype.char not in "ilqfd":
        return False
    table = _INTEGERS[False].tables.get(out.dtype)
    return table is not None and stream.redrawn(table, out, _range_of(low, high), 1)


def refill_bits(stream: MT19937Stream, out: np.ndarray) -> bool:
    """`refill` for `random_bits`."""
    count = _UNBOUNDED.get(out.dtype)
    if count is None or out.size > MOST_AT_ONCE:
        return False
    wide = out.itemsize == 8
    table = _INTEGERS[wide].tables.get(out.dtype)
    return table is not None and stream.redrawn(table, out, _range_of(0, _as_signed(count)), 1 + wide)


def _as_signed(count: int) -> int:
    """The int64 with the bits of `count`, which kernels that take two words read as the unsigned number."""
    return count - (1 << 64) if count >> 63 else count


def _range_of(low: int, high: int) -> np.ndarray:
    """The words that `draw_integers` gets."""
    numbers = _ranges.get((low, high))
    if numbers is None:
        if len(_ranges) >= MOST_KEPT:
            _ranges.clear()
        numbers = _ranges[low, high] = bits(low, high - low)
    return numbers


def refill(stream: MT19937Stream, out: np.ndarray) -> bool:
    """Whether one native call did what `uniform` does; nothing is drawn otherwise."""
    table = _UNIT.tables.get(out.dtype)
    return table is not None and stream.redrawn(table, out, _ZERO_TO_ONE, out.itemsize >> 2)


def refill_between(stream: MT19937Stream, out: np.ndarray, low: float, high: float) -> bool:
    """`refill` for `uniform` of bounds that float32 holds."""
    if low == 0 and high == 1:
        return refill(stream, out)
    if out.size > MOST_AT_ONCE:
        return False
    table = _UNIFORM.tables.get(out.dtype)
    if table is None or not -1e38 < low <= high < 1e38 or out.dtype.char not in "fd":
        return False
    numbers = _intervals.get((out.dtype, low, high))
    if numbers is None:
        if len(_intervals) >= MOST_KEPT:
            _intervals.clear()
        numbers = _intervals[out.dtype, low, high] = bits(*_interval(out.dtype, low, high))
    return stream.redrawn(table, out, numbers, out.itemsize >> 2)


def refill_coins(stream: MT19937Stream, out: np.ndarray, p: float) -> bool:
    """`refill` for `bernoulli` of one chance."""
    table = _COINS.tables.get(out.dtype)
    return table is not None and 0 <= p <= 1 and stream.redrawn(table, out, _odds_of(p), 2)


def coins(stream: MT19937Stream, sizes: tuple[Any, ...], like: np.ndarray, p: float) -> np.ndarray | None:
    """A new array as `like` of what `bernoulli` fills it with; None, with nothing drawn, where that shall fill one."""
    table = _COINS.tables.get(like.dtype)
    if table is None or not 0 <= p <= 1:
        return None
    return stream.made(table, sizes, like, _odds_of(p), 2)


def _odds_of(p: float) -> np.ndarray:
    """The words that `draw_coins` gets."""
    numbers = _odds.get(p)
    if numbers is None:
        if len(_odds) >= MOST_KEPT:
            _odds.clear()
        numbers = _odds[p] = bits(float(p), 0.0, 0.0)
    return numbers


_odds: dict[float, np.ndarray] = {}
MOST_KEPT = 256
_ranges: dict[tuple[int, int], np.ndarray] = {}
_intervals: dict[tuple[np.dtype, float, float], np.ndarray] = {}
_ZERO_TO_ONE = bits(0.0, 1.0, 1.0)
_INT64 = np.dtype(np.int64)
_INTEGERS_OF = np.empty(0, _INT64)
_UNIT = AtOnce("draw_uniforms", float, float, float, PLAIN=True)
_UNIFORM = AtOnce("draw_uniforms", float, float, float, PLAIN=False)
_INTEGERS = {two: AtOnce("draw_integers", int, int, TWO=two) for two in (False, True)}
_COINS = AtOnce("draw_coins", float)
_COINS_EACH = {d: AtOnce("draw_coins_each", d, _INT64) for d in (np.dtype(np.float32), np.dtype(np.float64))}


def words_for(stream: MT19937Stream, flat: np.ndarray, each: int) -> np.ndarray:
    """`each` words for every number of `flat`; in its own memory, where they fit."""
    own = flat.dtype.kind == "f" and flat.dtype.itemsize == 4 * each
    return stream.words(flat.view(np.uint32) if own else np.empty(each * len(flat), np.uint32))


def _uniform_compiled(stream: MT19937Stream, out: np.ndarray, low: float, high: float) -> bool:
    """Whether `out` could be filled without numpy, and is."""
    flat = memory(out)                               # a vector even of an empty array: its length is what kernels are told
    if flat is None:
        return False
    double = flat.dtype.itemsize == 8
    plain = low == 0 and high == 1 and flat.dtype.char not in HALVES
    low, width, last = _interval(flat.dtype, low, high)
    form = (_UNIT if plain else _UNIFORM).form(flat)
    if form is not None:
        stream.at_once(form, flat, flat.size * (1 + double), low, width, last)
        return True
    words = words_for(stream, flat, 2 if double else 1)
    loops().uniform.run(chunks(len(flat)), words, flat, len(flat), low, width, last, PLAIN=plain)
    return True


@functools.lru_cache(256)
def _interval(dtype: np.dtype, low: float, high: float) -> tuple[float, float, float]:
    """The lowest number, the width, and the end as an array of `dtype` would hold it, to compare with what was stored.

    Raises: RuntimeError for an interval that does not fit.
    """
    check_interval(dtype, low, high)
    if dtype.itemsize == 8:
        return float(low), float(high - low), float(dtype.type(high))
    return float(np.float32(low)), float(np.float32(np.float32(high) - np.float32(low))), float(dtype.type(high))


def check_interval(dtype: np.dtype, low: float, high: float) -> None:
    limit = largest(dtype)
    for name, bound in (("from", low), ("to", high)):
        if not -limit <= bound <= limit:
            raise RuntimeError(f"uniform_: {name}={bound} does not fit {dtype.name}, which ends at {limit:g}")
    if low > high:
        raise RuntimeError(f"uniform_: from={low} is above to={high}; the interval is [from, to)")
    if high - low > limit:
        raise RuntimeError(f"uniform_: to - from = {high} - {low} exceeds the {dtype.name} limit {limit:g}")


def largest(dtype: np.dtype) -> float:
    """The largest finite number of a floating or complex dtype."""
    found = _LARGEST.get(dtype)
    if found is None:
        found = _LARGEST[dtype] = (2 - 2.0**-7) * 2.0**127 if dtype.name == "bfloat16" else float(np.finfo(dtype).max)
    return found


_LARGEST: dict[np.dtype, float] = {}


def randint(stream: MT19937Stream, out: np.ndarray, low: int, high: int) -> np.ndarray:
    """Fill `out` with integers in [low, high): a word's remainder modulo the range, as PyTorch takes it.

    Ends that a floating `out` has no numbers for are moved inwards, to the next it has.
    Raises: RuntimeError if the range is empty, or one of its ends does not fit `out`.
    """
    check_dtype("random_", out.dtype, "fiub")
    digits = _DIGITS.get(out.dtype.name)
    if digits is not None and (high - 1 >= 1 << digits or -low >= 1 << digits):
        for name, bound in (("from", low), ("to - 1", high - 1)):
            if abs(bound) > largest(out.dtype):
                raise RuntimeError(f"random_: {name} is out of bounds for {out.dtype.name}, as it is {bound}")
        low, high = _held(out.dtype, digits, low, high)
    if low >= high:
        raise RuntimeError(f"random_: from={low} must be less than to={high}; the interval is [from, to)")
    check_integers(out.dtype, low, high - 1)
    return fill_integers(stream, out, low, high - low, two_words=high - low >= WIDE_RANGE)


# Binary digits of floating dtypes.
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _held(dtype: np.dtype, digits: int, low: int, high: int) -> tuple[int, int]:
    """`low` and `high`, moved to numbers that the dtype holds where it rounds the integer inside of them past them.

    Raises: RuntimeError if nothing is left between them.
    """
    first, end = low, high
    after, before = int(dtype.type(low + 1)), int(dtype.type(high - 1))
    if after < low:
        first = after + (1 << (abs(low + 1).bit_length() - digits))
    if before >= high:
        end = before - (1 << (abs(high - 1).bit_length() - digits))
    if first >= end:
        raise RuntimeError(f"random_: from={low} as {dtype.name} must be less than to={high} as {dtype.name}; they are {first} and {end}")
    return first, end


def check_integers(dtype: np.dtype, low: int, last: int) -> None:
    if dtype.kind not in "iub":
        return
    bounds = _BOUNDS.get(dtype)
    if bounds is None:
        bounds = _BOUNDS[dtype] = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    least, most = bounds
    for name, bound in (("from", low), ("to - 1", last)):
        if not least <= bound <= most:
            raise RuntimeError(f"random_: {name}={bound} does not fit {dtype.name}: [{least}, {most}]")


_BOUNDS: dict[np.dtype, tuple[int, int]] = {}


def random_bits(stream: MT19937Stream, out: np.ndarray) -> np.ndarray:
    """Fill `out` with integers as wide as its dtype allows: `Tensor.random_()` without bounds.

    Raises: NotImplementedError for complex numbers and for uint16, uint32 and uint64, as in PyTorch.
    """
    count = _UNBOUNDED.get(out.dtype)
    if count is None:
        if out.dtype.name not in UNBOUNDED:
            raise NotImplementedError(f"random_: {out.dtype.name} needs bounds; give from and to")
        count = _UNBOUNDED[out.dtype] = UNBOUNDED[out.dtype.name]
    return fill_integers(stream, out, 0, count, two_words=out.dtype.itemsize == 8)


_UNBOUNDED: dict[np.dtype, int] = {}


def fill_integers(
    stream: MT19937Stream, out: np.ndarray, low: int, count: int, two_words: bool
) -> np.ndarray:
    """`low` plus a word modulo `count`; for the whole of int64 the word itself."""
    if compiles() and out.dtype.kind in "iuf" and count < 1 << (63 + two_words) and _integers_compiled(stream, out, low, count, two_words):
        return out
    words = stream.random64(out.size) if two_words else stream.random32(out.size)
    if count == 1 << 64:
        return fill(out, words.view(np.int64))
    words = words % words.dtype.type(count)
    if out.dtype.kind == "u":
        return fill(out, words.astype(np.uint64) + np.uint64(low))
    # The sum wraps around: the low 64 bits of word and bound are all that count.
    integers = (words.astype(np.uint64) + np.uint64(low % (1 << 64))).view(np.int64)
    return fill(out, integers)


def _integers_compiled(stream: MT19937Stream, out: np.ndarray, low: int, count: int, two_words: bool) -> bool:
    if not -(1 << 63) <= low < 1 << 63:
        return False
    form = _INTEGERS[two_words].form(out)
    if form is not None:
        stream.at_once(form, out, out.size * (1 + two_words), int(low), _as_signed(int(count)))
        return True
    flat = memory(out)
    if flat is None:
        return False
    words = stream.random32(len(flat) * (1 + two_words))
    loops().integers.run(chunks(len(flat)), words, flat, len(flat), int(low), _as_signed(int(count)), TWO=two_words)
    return True


def bernoulli(stream: MT19937Stream, out: np.ndarray, p: float | np.ndarray = 0.5, one: float = 1.0) -> np.ndarray:
    """Fill `out` with 1 where a uniform number falls below `p`, and 0 elsewhere.

    Args:
        p: one probability for all, compared in float64; or an array that broadcasts to `out`, where every dtype but
            float64 is compared with 24-bit float32 numbers. So the two draw differently, as in PyTorch.
        one: what is stored in place of 1, where there is one probability and `out` is of floats.
    Raises: RuntimeError if a probability lies outside [0, 1] or is nan.
    """
    if isinstance(p, np.ndarray):
        if p.dtype is not out.dtype or p.dtype.kind == "c":
            check_dtype("bernoulli_", out.dtype, "fiub")
        if p.shape == out.shape and p.dtype.char in "fd" and p.flags.c_contiguous:
            form = _COINS_EACH[p.dtype].form(out)
            if form is not None:
                wrong = np.zeros(1, _INT64)
                if stream.at_once(form, out, out.size * (p.itemsize // 4), p, wrong, wrong=wrong):
                    return out
        check_probabilities(p)
        if compiles() and p.dtype.kind == "f" and p.shape == out.shape and p.flags.c_contiguous and out.flags.c_contiguous:
            words = stream.random32(out.size * (1 + (p.dtype.itemsize == 8)))
            loops().coins_each.run(chunks(out.size), words, p, out, out.size)
            return out
        unit = stream.uniform64(out.size) if p.dtype == np.float64 else stream.uniform32(out.size)
        order = memory_order(out)
        target, p = out.transpose(order), np.broadcast_to(p, out.shape).transpose(order)
        target[...] = unit.reshape(target.shape) < p.astype(unit.dtype, copy=False)
        return out
    check_dtype("bernoulli_", out.dtype, "fiub")
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_: p must lie in [0, 1], got p={p}")
    form = _COINS.form(out)
    if form is not None:
        stream.at_once(form, out, 2 * out.size, float(p))
        return out if one == 1 else np.multiply(out, one, out=out)
    flat = memory(out) if compiles() else None
    if flat is None:
        heads = stream.uniform64(out.size) < p
        return fill(out, heads if one == 1 else np.where(heads, out.dtype.type(one), out.dtype.type(0)))
    loops().coins.run(chunks(len(flat)), stream.random32(2 * len(flat)), flat, len(flat), float(p), float(one))
    return out


def check_probabilities(p: np.ndarray) -> None:
    if p.size and not (p.min() >= 0 and p.max() <= 1):          # false for nan too
        inside = (p >= 0) & (p <= 1)
        raise RuntimeError(f"bernoulli: Expected p_in >= 0 && p_in <= 1 to be true for every element of p, got {p[~inside].flat[0]}")
