"""Normal and log-normal numbers from an `MT19937Stream`, the ones PyTorch's CPU draws.

There are two ways, and which one runs decides the numbers. A contiguous array of 16 numbers or more is made
in blocks: 16 uniform numbers become 16 normal ones at once, in the array's own precision. Everything else is
made in pairs, in float64; the second of a pair that is not needed waits in the stream for the next call.
`loops` does both where kernels compile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tier import compiles
from .arithmetic import fma, libm
from .boxmuller import TWO_PI, pairs32, pairs64
from .stream import (
    HALVES,
    AtOnce,
    MT19937Stream,
    bits,
    check_dtype,
    chunks,
    draw_parts,
    fill,
    loops,
    memory,
    numbers_in,
)

__all__ = ["few_normals", "log_normal", "normal", "refill_normals"]

BLOCK = 16
MOST_ALONE = 4096                                           # numbers that one kernel makes alone
CHUNK = 256                                          # blocks made at a time: temporaries stay in cache


def normal(stream: MT19937Stream, out: np.ndarray, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    """Fill floating or complex `out` with normal numbers; the two parts of a complex one share the variance.

    Raises: RuntimeError if `std` is negative or nan.
    """
    count = out.size
    if BLOCK <= count <= MOST_ALONE and out.dtype.char == "f" and std >= 0 and out.flags.c_contiguous and compiles():
        if mean == 0 and std == 1:
            stream.fill_normals(out)
        else:
            stream.fill_normals(out, *single(mean, std))
        return out
    if draw_parts(normal, stream, out, mean, std / math.sqrt(2.0)) is not None:
        return out
    check_dtype("normal_", out.dtype, "fc")
    if not std >= 0:
        raise RuntimeError(f"normal_: std must be at least 0, got std={std}")
    count = numbers_in(out)
    if out.dtype.kind == "c":
        std = std / math.sqrt(2.0)
    if count < BLOCK and out.dtype.char in "fd" and _pairs_by_kernel(stream, out, mean, std):
        return out
    if count >= BLOCK and out.flags.c_contiguous:
        if compiles():
            _fill_blocks(stream, out, mean, std)
            return out
        values = in_blocks(stream, count, out.dtype)
    else:
        values = in_pairs(stream, count, exact=out.dtype in (np.float64, np.complex128))
    return fill(out, moved_and_scaled(values, mean, std))


def refill_normals(stream: MT19937Stream, out: np.ndarray, mean: float, std: float) -> bool:
    """Whether one native call did what `normal` does for a mean and deviation that float32 holds; nothing is drawn otherwise."""
    if not 0 < out.size <= MOST_ALONE or not -1e38 < mean < 1e38 or not 0 <= std < 1e38:
        return False
    if mean == 0 and std == 1:
        return stream.refilled(out)
    numbers = _bells.get((mean, std))
    if numbers is None:
        if len(_bells) >= MOST_KEPT:
            _bells.clear()
        numbers = _bells[mean, std] = bits(*single(mean, std))
    return stream.refilled_around(out, numbers)


refill_standard = MT19937Stream.refilled              # the same for a mean of 0 and a deviation of 1

MOST_KEPT = 256
_bells: dict[tuple[float, float], np.ndarray] = {}


def _fill_blocks(stream: MT19937Stream, out: np.ndarray, mean: float, std: float) -> None:
    """`in_blocks`, moved, scaled and stored by compiled loops."""
    flat: Any = memory(out)
    double = flat.dtype.itemsize == 8
    tail = len(flat) - len(flat) % BLOCK
    half = flat.dtype.char in HALVES
    drawn = tail if half else len(flat)
    # Words that are no numbers yet wait in the memory of `out`, where they fit.
    words = stream.words(np.empty(drawn, np.uint32) if half else flat.view(np.uint32))
    scaling = (mean, std) != (0.0, 1.0)
    if scaling and not double:
        mean, std = single(mean, std)
    _make_blocks(words, flat[:tail], mean, std, scaling)
    if tail < len(flat):
        _make_blocks(stream.random32(2 * BLOCK if double else BLOCK), flat[-BLOCK:], mean, std, scaling)


_PAIRS = {scaled: AtOnce("draw_pairs", int, float, float, np.dtype(np.float64), SCALED=scaled) for scaled in (False, True)}


def few_normals(stream: MT19937Stream, sizes: tuple[Any, ...]) -> np.ndarray | None:
    """A new float32 array of what `normal` fills it with, if its numbers are few enough for pairs; else None, nothing drawn."""
    count = 1
    for n in sizes:
        if n.__class__ is not int or n < 1:
            return None
        count *= n
    if count >= BLOCK:
        return None
    out = np.empty(sizes, np.float32)
    return out if _pairs_by_kernel(stream, out, 0.0, 1.0) else None


def _pairs_by_kernel(stream: MT19937Stream, out: np.ndarray, mean: float, std: float) -> bool:
    """Whether a kernel could make the numbers of `in_pairs` that `out` takes, and did."""
    scaled = mean != 0.0 or std != 1.0
    form = _PAIRS[scaled].form(out)
    if form is None:
        return False
    waits = stream.spare_normal is not None
    count, passed = out.size - waits, stream.passed
    if waits:
        passed[0] = stream.spare_normal
    stream.at_once(form, out, 4 * ((count + 1) // 2), int(waits), float(mean), float(std), passed)
    stream.spare_normal = float(passed[0]) if count % 2 else None
    return True


def single(mean: float, std: float) -> tuple[float, float]:
    """Both in float32; 0 as -0.0: added to a product it changes nothing, not even the sign of a zero."""
    return (0.0, 1.0) if mean == 0 and std == 1 else (float(np.float32(mean)) or -0.0, float(np.float32(std)))


def _make_blocks(words: np.ndarray, flat: np.ndarray, mean: float, std: float, scaling: bool) -> None:
    loops().normal_blocks.run(chunks(len(flat)), words, flat, len(flat) // BLOCK, float(mean), float(std), SCALED=scaling)


def log_normal(stream: MT19937Stream, out: np.ndarray, mean: float = 1.0, std: float = 2.0) -> np.ndarray:
    """Fill floating `out` with numbers whose natural logarithm is normal with `mean` and `std`.

    Raises: RuntimeError unless `std > 0`.
    """
    check_dtype("log_normal_", out.dtype, "f")
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    exact = out.dtype == np.float64
    logs = moved_and_scaled(in_pairs(stream, out.size, exact), mean, std)
    return fill(out, libm(exp_or_inf, logs) if exact else np.exp(logs))


def exp_or_inf(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def moved_and_scaled(values: np.ndarray, mean: float, std: float) -> np.ndarray:
    return values if (mean, std) == (0.0, 1.0) else fma(values, std, mean)


def in_pairs(stream: MT19937Stream, count: int, exact: bool) -> np.ndarray:
    """`count` standard normals in float64, a waiting one first; an odd one out is left waiting.

    `exact` asks for the C library's last bit, which only a float64 result can show.
    """
    values = np.empty(count)
    start = 0
    if count and stream.spare_normal is not None:
        values[0], stream.spare_normal, start = stream.spare_normal, None, 1
    pairs = (count - start + 1) // 2
    if compiles():
        fresh = np.empty(2 * pairs)
        loops().normal_pairs.run(chunks(pairs), stream.random32(4 * pairs), fresh, pairs)
        values[start:] = fresh[: count - start]
        if fresh.size > count - start:
            stream.spare_normal = float(fresh[-1])
        return values
    unit = stream.uniform64(2 * pairs)
    fresh = pairs_exactly(unit) if exact or pairs < CHUNK else pairs_by_numpy(unit)
    values[start:] = fresh[: count - start]
    if fresh.size > count - start:
        stream.spare_normal = float(pairs_exactly(unit[-2:])[1])
    return values


def pairs_exactly(unit: np.ndarray) -> np.ndarray:
    """Each two uniform numbers, an angle and a radius, as two normal ones; the C library's functions."""
    radius = np.sqrt(-2.0 * libm(math.log1p, -unit[1::2]))
    angle = TWO_PI * unit[0::2]
    return interleaved(radius * libm(math.cos, angle), radius * libm(math.sin, angle))


def pairs_by_numpy(unit: np.ndarray) -> np.ndarray:
    """`pairs_exactly` with numpy's vectorised functions, some of which differ in the last bit."""
    radius = np.sqrt(-2.0 * np.log1p(-unit[1::2]))
    angle = TWO_PI * unit[0::2]
    return interleaved(radius * np.cos(angle), radius * np.sin(angle))


def interleaved(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack((first, second), axis=1).reshape(-1)


def in_blocks(stream: MT19937Stream, count: int, dtype: np.dtype) -> np.ndarray:
    """`count` >= 16 standard normals, float64 for double `dtype`, else float32.

    A count that is not a multiple of 16 makes its last 16 numbers anew, from 16 further uniform ones. The
    uniform numbers left over before have been drawn all the same, except for half types.
    """
    double = dtype in (np.float64, np.complex128)
    draw = stream.uniform64 if double else stream.uniform32
    make = pairs64 if double else pairs32
    tail = count - count % BLOCK
    values = np.empty(count, dtype=np.float64 if double else np.float32)
    make_blocks(make, draw(tail if dtype.char in HALVES else count)[:tail], values[:tail])
    if tail < count:
        make_blocks(make, draw(BLOCK), values[-BLOCK:])
    return values


def make_blocks(make: Callable, unit: np.ndarray, values: np.ndarray) -> None:
    """16 uniform numbers become 16 normal ones: the first 8 give radii, the last 8 angles."""
    unit, values = unit.reshape(-1, 2, 8), values.reshape(-1, 2, 8)
    for start in range(0, len(unit), CHUNK):
        chunk = slice(start, start + CHUNK)
        first, second = make(unit[chunk, 0].ravel(), unit[chunk, 1].ravel())
        values[chunk, 0], values[chunk, 1] = first.reshape(-1, 8), second.reshape(-1, 8)
