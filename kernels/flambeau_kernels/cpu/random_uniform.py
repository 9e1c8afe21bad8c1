"""Uniform reals, integers and coin flips from an `MT19937Stream`, the ones PyTorch's CPU draws.

Every function fills `out` in place, any strides, and returns it. Numbers are dealt out in the order of
memory, so a transposed view receives them along its columns. Memory without gaps is filled by compiled loops
(`random_loops`), the rest by numpy.
"""

from __future__ import annotations

import numpy as np

from .random_arithmetic import fma
from .random_stream import (
    HALVES,
    MT19937Stream,
    check_dtype,
    chunks,
    fill,
    loops,
    memory,
    memory_order,
    numbers_in,
)
from .tier import compiles

__all__ = ["bernoulli", "random_bits", "randint", "uniform"]

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


def words_for(stream: MT19937Stream, flat: np.ndarray, each: int) -> np.ndarray:
    """`each` words for every number of `flat`; in its own memory, where they fit."""
    own = flat.dtype.kind == "f" and flat.dtype.itemsize == 4 * each
    return stream.words(flat.view(np.uint32) if own else np.empty(each * len(flat), np.uint32))


def _uniform_compiled(stream: MT19937Stream, out: np.ndarray, low: float, high: float) -> bool:
    """Whether `out` could be filled without numpy, and is."""
    flat = memory(out)
    if flat is None:
        return False
    double = flat.dtype.itemsize == 8
    words = words_for(stream, flat, 2 if double else 1)
    plain = low == 0 and high == 1 and flat.dtype.char not in HALVES
    width = high - low if double else float(np.float32(np.float32(high) - np.float32(low)))
    if not double:
        low = float(np.float32(low))
    # As `out` would hold them, to compare with what was stored.
    last = float(flat.dtype.type(high))
    loops().uniform.run(chunks(len(flat)), words, flat, len(flat), float(low), float(width), last, PLAIN=plain)
    return True


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
    if dtype.name == "bfloat16":
        return (2 - 2.0**-7) * 2.0**127
    return float(np.finfo(dtype).max)


def randint(stream: MT19937Stream, out: np.ndarray, low: int, high: int) -> np.ndarray:
    """Fill `out` with integers in [low, high): a word's remainder modulo the range, as PyTorch takes it.

    Raises: RuntimeError if the range is empty or one of its ends does not fit an integer `out`.
    """
    check_dtype("random_", out.dtype, "fiub")
    if low >= high:
        raise RuntimeError(f"random_: from={low} must be less than to={high}; the interval is [from, to)")
    check_integers(out.dtype, low, high - 1)
    return fill_integers(stream, out, low, high - low, two_words=high - low >= WIDE_RANGE)


def check_integers(dtype: np.dtype, low: int, last: int) -> None:
    if dtype.kind not in "iub":
        return
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for name, bound in (("from", low), ("to - 1", last)):
        if not least <= bound <= most:
            raise RuntimeError(f"random_: {name}={bound} does not fit {dtype.name}: [{least}, {most}]")


def random_bits(stream: MT19937Stream, out: np.ndarray) -> np.ndarray:
    """Fill `out` with integers as wide as its dtype allows: `Tensor.random_()` without bounds.

    Raises: NotImplementedError for complex numbers and for uint16, uint32 and uint64, as in PyTorch.
    """
    if out.dtype.name not in UNBOUNDED:
        raise NotImplementedError(f"random_: {out.dtype.name} needs bounds; give from and to")
    return fill_integers(stream, out, 0, UNBOUNDED[out.dtype.name], two_words=out.dtype.itemsize == 8)


def fill_integers(
    stream: MT19937Stream, out: np.ndarray, low: int, count: int, two_words: bool
) -> np.ndarray:
    """`low` plus a word modulo `count`; for the whole of int64 the word itself."""
    if compiles() and out.dtype.kind in "iuf" and count < 1 << 63 and _integers_compiled(stream, out, low, count, two_words):
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
    flat = memory(out)
    if flat is None or not -(1 << 63) <= low < 1 << 63:
        return False
    words = stream.random32(len(flat) * (1 + two_words))
    loops().integers.run(chunks(len(flat)), words, flat, len(flat), int(low), int(count), TWO=two_words)
    return True


def bernoulli(stream: MT19937Stream, out: np.ndarray, p: float | np.ndarray = 0.5) -> np.ndarray:
    """Fill `out` with 1 where a uniform number falls below `p`, and 0 elsewhere.

    Args:
        p: one probability for all, compared in float64; or an array that broadcasts to `out`, where every
            dtype but float64 is compared with 24-bit float32 numbers. So the two draw differently, as in
            PyTorch.
    Raises: RuntimeError if a probability lies outside [0, 1] or is nan.
    """
    check_dtype("bernoulli_", out.dtype, "fiub")
    if isinstance(p, np.ndarray):
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
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_: p must lie in [0, 1], got p={p}")
    flat = memory(out) if compiles() else None
    if flat is None:
        return fill(out, stream.uniform64(out.size) < p)
    loops().coins.run(chunks(len(flat)), stream.random32(2 * len(flat)), flat, len(flat), float(p))
    return out


def check_probabilities(p: np.ndarray) -> None:
    if p.size and not (p.min() >= 0 and p.max() <= 1):          # false for nan too
        inside = (p >= 0) & (p <= 1)
        raise RuntimeError(f"bernoulli: every p must lie in [0, 1], got {p[~inside].flat[0]}")
