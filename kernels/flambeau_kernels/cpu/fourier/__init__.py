"""Discrete Fourier transforms of lengths whose prime factors are at most `LARGEST_PRIME`, and of other long lines, compiled.

`planned` checks a transform once for a shape; what it returns allocates and runs kernels of `lines.py`, one for each
dimension. Only sums of elements along a line enter a value: it does not depend on threads or neighbours.

Sources: Van Loan 1992, "Computational Frameworks for the Fast Fourier Transform"; Bluestein 1970, "A Linear Filtering Approach to the
Computation of Discrete Fourier Transform", IEEE Trans. Audio Electroacoust. 18(4).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from math import pi, prod
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels.engine.language import float32, float64
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.engines import kept

from ..shapes.move import in_rows
from ..tier import compiles
from . import lines as fourier_lines
from .lines import COMPLEX, FROM_REAL, TO_REAL
from .passes import LARGEST_PRIME, ROOTS, addresses

__all__ = ["COMPLEX", "FROM_REAL", "TO_REAL", "planned"]

Run = Callable[[np.ndarray], np.ndarray]
PIECE = 1 << 14                                       # elements of a chunk, about 20 microseconds
COLUMNS = {"f": 32, "d": 16}                          # that are transformed together
# Bytes behind each plane of columns. The planes of lengths that are powers of two would else lie in the same places of the first cache,
# which has eight or twelve for a pass of radix eight that reads sixteen rows: three times as long for 512 by 512.
SPREAD = 256
LONG = 128                                            # from which a line alone fills vectors
MOST_CHUNKS = 32                                      # each has memory of its own
# Longer lines leave the second-level cache in every pass, so they are taken apart.
MOST = {"f": 1 << 18, "d": 1 << 17}
LONGEST = 1 << 22                                     # whose turns are kept: 32 MB
# Values from which two transforms of twice the length take less time than scipy's one, and up to which.
CHIRP_FROM = 500
MOST_CHIRPED = {"f": 1 << 20, "d": 1 << 15}
CHIRPED_TOGETHER = {"f": 1 << 18, "d": 1 << 17}       # elements of the convolutions of some lines
_COMPLEX = {"f": np.dtype(np.complex64), "d": np.dtype(np.complex128)}


@kept(1024)
def planned(kind: int, shape: tuple[int, ...], char: str, dims: tuple[int, ...], scale: float, inverse: bool, n: int = 0) -> Run | None:
    """What computes transforms over `dims` of contiguous arrays of `shape`, with exponent sign + if `inverse`, times `scale`.

    Args:
        kind: `COMPLEX`; `FROM_REAL`, with the first ``n // 2 + 1`` values along the last of `dims`; or `TO_REAL`, the inverse
            of that, where `n` is the length of the result.
        char: "f" for numbers of 32 bits, "d" for 64.
    Returns: None for what no kernel computes.
    """
    if not compiles() or char not in _COMPLEX or not dims or not prod(shape):
        return None
    steps: list[Run] = []
    dims = tuple([d % len(shape) for d in dims])
    shape, last = tuple(shape), dims[-1]
    # Half spectra are along the last of the dimensions: made first, and undone in the end.
    order = [*dims[:-1], last] if kind == TO_REAL else [last, *reversed(dims[:-1])]
    for k, d in enumerate(order):
        factor = float(scale) if k == len(order) - 1 else 1.0
        of = kind if d == last else COMPLEX
        length = n if of == TO_REAL else shape[d]
        step = _step(of, shape, char, d, factor, bool(inverse), length)
        if step is None:
            return None
        steps.append(step)
        shape = (*shape[:d], length // 2 + 1 if of == FROM_REAL else length, *shape[d + 1 :])
    if len(steps) == 1:
        return steps[0]

    def run(a: np.ndarray) -> np.ndarray:
        for step in steps:
            a = step(a)
        return a

    return run


@kept(512)
def _step(kind: int, shape: tuple[int, ...], char: str, d: int, scale: float, inverse: bool, n: int) -> Run | None:
    """The same for one dimension, whose real or complex values are `n`."""
    inner, outer = prod(shape[d + 1 :]), prod(shape[:d])
    if inner == 1 and d + 1 < len(shape):
        return _before_ones(kind, shape, char, d, scale, inverse, n)
    if kind != COMPLEX and inner > 1:
        return None
    if inner == 1 and n in ROOTS:
        return _tiny(kind, (*shape[:d], n), char, scale, inverse)
    if kind != COMPLEX and n % 2:
        return _of_odd_real_lines(kind, shape, char, d, scale, inverse, n)
    m = n if kind == COMPLEX else n // 2
    if not _is_smooth(m):
        convolved = kind == COMPLEX and inner == 1 and CHIRP_FROM <= n <= MOST_CHIRPED[char]
        return _by_chirp(shape, char, d, scale, inverse) if convolved else None
    made_shape = (*shape[:d], m + 1 if kind == FROM_REAL else n, *shape[d + 1 :])
    made_dtype = np.dtype(char) if kind == TO_REAL else _COMPLEX[char]
    if m > MOST[char]:
        return _very_long(kind, shape, char, d, scale, inverse, n) if inner == 1 and char == "f" and _matrix_sides(m) else None
    plan = _columns if inner > 1 else _plan_of_short_lines if m < LONG else _plan_of_long_lines
    form, chunks, numbers, *arrays = plan(kind, char, m, outer, inner, scale, inverse or kind == TO_REAL)
    real, release = np.dtype(char), prod(made_shape) > 2048

    def run(a: np.ndarray) -> np.ndarray:
        made = np.empty(made_shape, made_dtype)
        form(chunks, release, a, made, np.empty(chunks * numbers, real), *arrays)
        return made

    def run_on_stack(a: np.ndarray) -> np.ndarray:
        made = np.empty(made_shape, made_dtype)
        form(chunks, release, a, made, made, *arrays)
        return made

    return run_on_stack if numbers <= fourier_lines.ON_STACK else run


def _before_ones(kind: int, shape: tuple[int, ...], char: str, d: int, scale: float, inverse: bool, n: int) -> Run | None:
    """Transforms along a dimension behind which all have one element: those of the same lines without these."""
    step, ones = _step(kind, shape[: d + 1], char, d, scale, inverse, n), (1,) * (len(shape) - d - 1)
    if step is None:
        return None

    def run(a: np.ndarray) -> np.ndarray:
        made = step(a.reshape(a.shape[: d + 1]))
        return made.reshape(*made.shape, *ones)

    return run


def _tiny(kind: int, shape: tuple[int, ...], char: str, scale: float, inverse: bool) -> Run:
    """Transforms of lines of a few values, an odd number, real or complex, which `shape` ends in."""
    *outer, n = shape
    lines, factor, real = prod(outer), np.array([float(scale)]), np.dtype(char)
    made_shape = (*outer, n // 2 + 1 if kind == FROM_REAL else n)
    made_dtype = real if kind == TO_REAL else _COMPLEX[char]
    chunks, per = _chunks_of_groups(lines, 4 * n)
    release = lines * n > 2048
    constants = {"KIND_OF": kind, "R": n, "INVERSE": inverse}
    form = fourier_lines.tiny_lines.form((real, real, factor.dtype, int, int), constants)

    def run(a: np.ndarray) -> np.ndarray:
        made = np.empty(made_shape, made_dtype)
        form(chunks, release, a, made, factor, per, lines)
        return made

    return run


def _of_odd_real_lines(kind: int, shape: tuple[int, ...], char: str, d: int, scale: float, inverse: bool, n: int) -> Run | None:
    """Transforms of an odd number of real values, which make no half line: those of complex ones."""
    dtype, half = _COMPLEX[char], n // 2 + 1
    of_complex = _step(COMPLEX, (*shape[:d], n), char, d, scale, inverse or kind == TO_REAL, n)
    if of_complex is None:
        return None

    def from_real(a: np.ndarray) -> np.ndarray:
        made = np.ascontiguousarray(of_complex(a.astype(dtype))[..., :half])
        made[..., 0].imag = 0                         # also where a value is infinite
        return made

    def to_real(a: np.ndarray) -> np.ndarray:
        lines = np.empty((*a.shape[:-1], n), dtype)
        lines[..., :half] = a
        lines[..., 0].imag = 0                        # whatever is given
        np.conjugate(a[..., :0:-1], out=lines[..., half:])
        return np.ascontiguousarray(np.real(of_complex(lines)))

    return from_real if kind == FROM_REAL else to_real


def _lanes(char: str) -> int:
    return llvm.machine().register_bits // (32 if char == "f" else 64)


def _rounded_up(n: int, lanes: int) -> int:
    return -(-n // lanes) * lanes


def _form(kernel: Any, char: str, **constants: Any) -> Any:
    real, integer = np.dtype(char), np.dtype(np.int64)
    return kernel.form((real, real, real, real, integer, integer, integer), constants)


def _passes(char: str, radices: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Radices and where the code of their passes is, as kernels of lines take them."""
    return np.array(radices, np.int64), addresses(radices, np.dtype(char))


def _chunks_of_groups(groups: int, elements: int) -> tuple[int, int]:
    """Chunks, and groups of `elements` in each."""
    per = max(1, PIECE // elements, -(-groups // MOST_CHUNKS))
    return -(-groups // per), per


def _integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _columns(kind: int, char: str, n: int, outer: int, inner: int, scale: float, inverse: bool) -> Any:
    width = min(_rounded_up(inner, _lanes(char)), COLUMNS[char])
    plane = n * width + SPREAD // np.dtype(char).itemsize
    groups = outer * -(-inner // width)
    chunks, per = _chunks_of_groups(groups, n * width)
    radices = _radices(n)
    plan = _integers(n, groups, per, inverse, len(radices), inner, width, plane)
    table = np.concatenate([[scale], _turns_of_passes(n, radices)]).astype(char)
    return _form(fourier_lines.columns, char), chunks, 4 * plane, table, *_passes(char, radices), plan


def _plan_of_short_lines(kind: int, char: str, n: int, outer: int, inner: int, scale: float, inverse: bool) -> Any:
    lanes = _lanes(char)
    plane = (n + 1 + lanes) * lanes
    groups = -(-outer // lanes)
    chunks, per = _chunks_of_groups(groups, n * lanes)
    radices = _radices(n)
    parts = [[scale / 2 if kind == FROM_REAL else scale], _turns_of_passes(n, radices), _turns_of_halves(n)]
    plan = _integers(n, groups, per, inverse, len(radices), outer, plane, 1 + len(parts[1]))
    table = np.concatenate(parts).astype(char)
    return _form(fourier_lines.short_lines, char, KIND_OF=kind), chunks, 4 * plane, table, *_passes(char, radices), plan


def _plan_of_long_lines(kind: int, char: str, n: int, outer: int, inner: int, scale: float, inverse: bool) -> Any:
    lanes = _lanes(char)
    n1, n2 = _sides(n, lanes)
    r1, r2 = _rounded_up(n1, lanes), _rounded_up(n2, lanes)
    plane = r1 * r2 + lanes
    chunks, per = _chunks_of_groups(outer, n)
    first, second = _radices(n1), _radices(n2)
    between = np.zeros((2, r1, r2))
    angles = np.outer(np.arange(n1), np.arange(n2)) % n * (-2 * pi / n)
    between[0, :n1, :n2], between[1, :n1, :n2] = np.cos(angles), np.sin(angles)
    parts = [
        [scale / 2 if kind == FROM_REAL else scale], _turns_of_passes(n1, first), between.ravel(), _turns_of_passes(n2, second),
        _turns_of_halves(n) if kind != COMPLEX else [], np.zeros(lanes),
    ]  # fmt: skip
    at = np.cumsum([len(p) for p in parts])
    plan = _integers(n, outer, per, inverse, len(first) + len(second), n1, n2, len(first), plane, at[1], at[2], at[3])
    table = np.concatenate(parts).astype(char)
    form = _form(fourier_lines.long_lines, char, KIND_OF=kind)
    return form, chunks, 4 * plane + 2 * lanes, table, *_passes(char, first + second), plan


# -- lengths with large primes ---------------------------------------------------------------------------------------------------


def _by_chirp(shape: tuple[int, ...], char: str, d: int, scale: float, inverse: bool) -> Run | None:
    """Transforms of complex lines as a convolution, whose length has kernels: ``2 j k = j^2 + k^2 - (k - j)^2`` in the exponent."""
    n, outer, dtype = shape[d], prod(shape[:d]), _COMPLEX[char]
    m = _convolved(n)
    # All passes over some lines while they lie in a second-level cache.
    group = min(outer, max(1, CHIRPED_TOGETHER[char] // m))
    steps = {k: [_step(COMPLEX, (k, m), char, 1, 1.0, i, m) for i in (False, True)] for k in {group, outer % group} if k}
    if any(step is None for both in steps.values() for step in both):
        return None

    def run(a: np.ndarray) -> np.ndarray:
        turns, spectrum = _chirp(n, m, char, inverse)
        a, made = a.reshape(outer, n), np.empty((outer, n), dtype)
        for first in range(0, outer, group):
            given, results = a[first : first + group], made[first : first + group]
            there, back = steps[len(given)]
            lines = np.empty((len(given), m), dtype)
            lines[:, n:] = 0
            flambeau_kernels.launch(_TURNED, (given, turns), (lines[:, :n],), dtype)
            lines = there(lines)
            flambeau_kernels.launch(_TURNED, (lines, spectrum), (lines,), dtype)
            flambeau_kernels.launch(_SCALED, (back(lines)[:, :n], turns, dtype.type(scale)), (results,), dtype)
        return made.reshape(shape)

    return run


_TURNED = flambeau_kernels.Formula(lambda x, turns: x * turns, "turned")
_SCALED = flambeau_kernels.Formula(lambda x, turns, scale: x * turns * scale, "turned_and_scaled")


@functools.lru_cache(256)
def _convolved(n: int) -> int:
    """The least length of a convolution of lines of `n` values that powers of two and few other factors make."""
    least = 2 * n - 1
    return min(odd << max(3, (-(-least // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15))


@functools.lru_cache(4)
def _chirp(n: int, m: int, char: str, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """What values are turned by before and behind the convolution, and the spectrum that it multiplies with, over its length."""
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)  # of angles that are exact before they are rounded
    turns = np.exp((1j if inverse else -1j) * pi / n * squares)
    filtered = np.zeros(m, np.complex128)
    filtered[:n] = turns.conj()
    filtered[m - n + 1 :] = turns[:0:-1].conj()
    step = _step(COMPLEX, (1, m), "d", 1, 1 / m, False, m)
    spectrum = np.fft.fft(filtered) / m if step is None else step(filtered[None])[0]
    return turns.astype(_COMPLEX[char]), spectrum.astype(_COMPLEX[char])


# -- tables --------------------------------------------------------------------------------------------------------------------


@functools.lru_cache(1024)
def _radices(n: int) -> tuple[int, ...]:
    """The radix of each pass, for a product of primes up to `LARGEST_PRIME`."""
    twos, left = 0, n
    while left % 2 == 0:
        twos, left = twos + 1, left // 2
    eights = _eights(twos, llvm.machine().registers)
    rest = twos - 3 * eights
    found = [8] * eights + [4] * (rest // 2) + [2] * (rest % 2)
    for radix in _ODD_PRIMES:
        while left % radix == 0:
            found.append(radix)
            left //= radix
    return tuple(found)


def _eights(twos: int, registers: int) -> int:
    """Passes of radix eight of ``2**twos`` values: as many as leave whole fours, but one at most in 16 registers, which they overflow."""
    if registers < 32:
        return twos % 2 if twos > 1 else 0
    return twos // 3 - (twos % 3 == 1 and twos > 1)


_ODD_PRIMES = [p for p in range(LARGEST_PRIME, 2, -1) if all(p % k for k in range(2, p))]


def _is_smooth(n: int) -> bool:
    return n > 0 and prod(_radices(n)) == n


def _turns_of_passes(n: int, radices: tuple[int, ...]) -> np.ndarray:
    """For each pass, the cosines and then the sines that it turns its results by."""
    rows, left = [np.empty(0)], n
    for radix in radices:
        angles = np.outer(np.arange(1, radix), np.arange(left // radix)) * (-2 * pi / left)
        rows += [np.cos(angles).ravel(), np.sin(angles).ravel()]
        if radix > 8:
            roots = np.arange(radix) * (2 * pi / radix)
            rows += [np.cos(roots), np.sin(roots)]
        left //= radix
    return np.concatenate(rows)


def _turns_of_halves(m: int) -> np.ndarray:
    """Cosines and sines of half a circle, clockwise, by which the odd values of a line of 2m are turned."""
    angles = np.arange(m + 1) * (-pi / m)
    sines = np.sin(angles)
    sines[[0, m]] = 0
    return np.concatenate([np.cos(angles), sines])


@functools.lru_cache(1024)
def _sides(n: int, lanes: int) -> tuple[int, int]:
    """Height and width of a matrix of `n` elements: as little padding and as few passes as can be."""

    def work(n1: int) -> tuple[float, int]:
        n2 = n // n1
        passes = sum(max(1.0, r / 8) for side in (n1, n2) for r in _radices(side))
        return _rounded_up(n1, lanes) * _rounded_up(n2, lanes) * (passes + 2.0), abs(n1 - n2)

    n1 = min((h for h in range(1, n + 1) if n % h == 0), key=work)
    return n1, n // n1


# -- lines beyond the caches -----------------------------------------------------------------------------------------------------


@functools.lru_cache(128)
def _matrix_sides(n: int) -> tuple[int, int] | None:
    """Height and width of a matrix of `n` elements, as nearly alike as can be; None for none that are short enough."""
    if n > LONGEST:
        return None
    near = [h for h in range(4, math.isqrt(n) + 1) if n % h == 0]
    return (near[-1], n // near[-1]) if near and n // near[-1] <= MOST["f"] else None


@functools.lru_cache(2)
def _turns_between(height: int, width: int, inverse: bool) -> np.ndarray:
    """What the values of a very long line are multiplied by between the transforms of columns and of rows."""
    n = height * width
    angles = (np.outer(np.arange(height), np.arange(width)) % n) * ((2 if inverse else -2) * pi / n)
    return np.exp(1j * angles).astype(np.complex64)


def _very_long(kind: int, shape: tuple[int, ...], char: str, d: int, scale: float, inverse: bool, n: int) -> Run | None:
    """Transforms of very long lines, each taken as a matrix by rows: of its columns, turned, of its rows, and then by columns."""
    if kind == TO_REAL:
        return None
    m = n if kind == COMPLEX else n // 2
    height, width = _matrix_sides(m) or (1, m)
    of_columns = _step(COMPLEX, (prod(shape[:d]), height, width), char, 1, 1.0, inverse, height)
    of_rows = _step(COMPLEX, (prod(shape[:d]), height, width), char, 2, scale, inverse, width)
    if of_columns is None or of_rows is None:
        return None

    def run(a: np.ndarray) -> np.ndarray:
        made = of_columns(a)
        made *= _turns_between(height, width, inverse)
        return in_rows(of_rows(made).swapaxes(1, 2)).reshape(*shape[:d], m)

    if kind == COMPLEX:
        return run
    per = max(1, PIECE // m)
    rows = prod(shape[:-1])
    turns = _turns_of_halves(m).astype(char)
    form = fourier_lines.unpacked.form((np.dtype(char),) * 3 + (int,) * 3, {"REAL": float32 if char == "f" else float64})

    def real(a: np.ndarray) -> np.ndarray:
        z, made = run(a), np.empty((*shape[:-1], m + 1), _COMPLEX[char])
        form(-(-rows // per), True, z, made, turns, rows, per, m)
        return made

    return real
