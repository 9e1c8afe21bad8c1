"""Copies into another order of dimensions, compiled: for orders whose runs are too short for the loops of `move`.

What lies together in the copy is one group of dimensions, what lies together in the source another, where both are long enough for squares
of vectors; these are transposed. Else a loop goes along a long dimension, element by element. All other dimensions are counted along.
Elements are moved as unsigned integers of their size, whatever their dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.engine.language import int64, kernel, lanes, load, local, repeated, rolled, store, unroll, widened
from flambeau_kernels.engine.launching.pack import interleaved

from ..tier import compiles
from .pad_rows import copy_run

__all__ = ["copied", "planned", "takes"]

CHUNK = 1 << 14                                       # elements of a chunk, about
SIDE = 4                                              # of a square of vectors; of small elements 8, where there are as many
SHORT = 8                                             # elements of an inner loop, below which a longer one is looked for
ENOUGH, MOST_GROUPED = 8, 1 << 10                    # elements of a group, whose places are listed
LONG = 1 << 10                                        # elements of a tile, from which `move` is as fast
PAGE, LINES = 1 << 11, 1 << 7                         # bytes between lines that push each other out of the cache, and how many of them do
MOST_OUTER = 8                                        # dimensions that are counted along
_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
# Slots of the geometry: dimensions that are counted along, steps along them, those of a chunk; then of the two inner dimensions, and of
# each of the others, its size and its strides in the source and in the copy. Of groups there are only sizes.
OUTER, STEPS, PER_CHUNK, INNER, MIDDLE, OTHERS = 0, 1, 2, 3, 6, 9


class Dim(NamedTuple):
    """A dimension: its size and its strides in the source and in the copy, in elements."""

    size: int
    step: int
    to_step: int


def begin(at, first, source, out, geometry):
    """Where step number `first` of the dimensions outside begins, in the source and in the copy; `at` is told its place along each."""
    last = geometry[OUTER] - 1
    here, to, rest = source, out, first
    for k in rolled(range(last + 1)):
        other = geometry + OTHERS + 3 * (last - k)
        left = rest // other[0]
        at[last - k] = rest - left * other[0]
        here, to = here + (rest - left * other[0]) * other[1], to + (rest - left * other[0]) * other[2]
        rest = left
    return here, to


def go_on(at, here, to, geometry):
    """Where the next step begins."""
    d = geometry[OUTER] - 1
    while d >= 0:
        other = geometry + OTHERS + 3 * d
        here, to = here + other[1], to + other[2]
        at[d] = at[d] + 1
        if at[d] == other[0]:
            here, to = here - other[0] * other[1], to - other[0] * other[2]
            at[d] = 0
            d = d - 1
        else:
            d = -1
    return here, to


@kernel
def copy_lines(chunk, source, out, geometry, *, RUNS):
    """Two loops inside the steps: `RUNS` says that elements of the inner one are neighbours in the source and in the copy."""
    LANES = lanes(widened(out))
    inner, by, to_by = geometry[INNER], geometry[INNER + 1], geometry[INNER + 2]
    middle, down, to_down = geometry[MIDDLE], geometry[MIDDLE + 1], geometry[MIDDLE + 2]
    first = chunk * geometry[PER_CHUNK]
    at = local(int64, MOST_OUTER)
    here, to = begin(at, first, source, out, geometry)
    for _ in rolled(range(first, min(first + geometry[PER_CHUNK], geometry[STEPS]))):
        for j in rolled(range(middle)):
            a, b = here + j * down, to + j * to_down
            if RUNS:
                copy_run(b, a, inner, LANES)
            else:
                for i in repeated(range(inner), 4):
                    b[i * to_by] = a[i * by]
        here, to = go_on(at, here, to, geometry)


@kernel
def copy_squares(chunk, source, out, places, to_places, geometry, *, SIDE):
    """A group that lies together in the copy, whose elements are at `places` of the source, and one that lies together in the source."""
    inner, middle = geometry[INNER], geometry[MIDDLE]
    across, down = inner - inner % SIDE, middle - middle % SIDE
    first = chunk * geometry[PER_CHUNK]
    at = local(int64, MOST_OUTER)
    here, to = begin(at, first, source, out, geometry)
    for _ in rolled(range(first, min(first + geometry[PER_CHUNK], geometry[STEPS]))):
        for i in rolled(range(0, across, SIDE)):
            for j in rolled(range(0, down, SIDE)):
                rows = ()
                for u in unroll(range(SIDE)):
                    rows = rows + (load(here + places[i + u], j, SIDE),)  # noqa: RUF005  # the kernel language has no stars
                for _ in unroll(range(SIDE.bit_length() - 1)):
                    rows = interleaved(rows, SIDE)
                for u in unroll(range(SIDE)):
                    store(to + to_places[j + u], i, rows[u])
        # What has no squares.
        for i in rolled(range(across, inner)):
            for j in rolled(range(down)):
                (to + to_places[j])[i] = (here + places[i])[j]
        for j in rolled(range(down, middle)):
            for i in rolled(range(inner)):
                (to + to_places[j])[i] = (here + places[i])[j]
        here, to = go_on(at, here, to, geometry)


def takes(a: Any) -> bool:
    """Whether `planned` copies views of `a`, by the size of its elements."""
    return a.__class__ is np.ndarray and a.itemsize in _UNSIGNED and a.size > 0 and compiles()


def planned(view: np.ndarray) -> Callable[[Any, Any], None]:
    """``run(a, out)``: the elements of `view` of an array like `a`, from whose first element it starts, to `out`, in C order."""
    return _planned(tuple(_merged(view.shape, view.strides, view.itemsize)), _UNSIGNED[view.itemsize])


def copied(a: np.ndarray) -> Any:
    """A copy of `a` in C order, or None where the loops of `move` are as fast."""
    run = _where_faster(a.shape, a.strides, a.itemsize) if takes(a) else None
    if run is None:
        return None
    out = np.empty(a.shape, a.dtype)
    run(a, out)
    return out


@engines.kept(1024)
def _where_faster(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Any:
    """The plan of a copy whose last two dimensions are neither long runs nor tiles of long lines."""
    dims = _merged(shape, strides, itemsize)
    if len(dims) < 3:
        return None
    (rows, down, _), (columns, along, _) = dims[-2:]
    if along <= 1 or min(d.step for d in dims) < 1 or down == 1 and min(rows, columns) >= SHORT and rows * columns >= LONG:
        return None
    if along * itemsize % PAGE == 0 and rows * columns >= LINES:
        return None
    return _planned(tuple(dims), _UNSIGNED[itemsize])


def _planned(dims: tuple[Dim, ...], bits: np.dtype) -> Callable[[Any, Any], None]:
    in_copy, in_source = dims[::-1], sorted(dims, key=lambda d: d.step)
    together = _group(in_copy, "to_step", [], SIDE)
    beside = _group(in_source, "step", together, ENOUGH)
    together = _group(in_copy, "to_step", beside, ENOUGH)
    inner, middle = prod(d.size for d in together), prod(d.size for d in beside)
    if min(inner, middle) >= SIDE:
        # Lines of the source that lie together are read one after the other.
        others = sorted((d for d in dims if d not in together and d not in beside), key=lambda d: -d.step)
        side = 8 if min(inner, middle) >= 8 and bits.itemsize <= 2 else SIDE
        tables = _places(together, 1), _places(beside, 2)
        chunks, geometry = _geometry(Dim(inner, 0, 0), Dim(middle, 0, 0), others)
        form = _squares(bits, side)
        return lambda a, out: form(chunks, False, a, out, *tables, geometry)
    along, around, *others = _longest_first(dims)
    chunks, geometry = _geometry(along, around, others)
    form = _lines(bits, along.step == along.to_step == 1)
    return lambda a, out: form(chunks, False, a, out, geometry)


def _geometry(along: Dim, around: Dim, others: list[Dim]) -> tuple[int, np.ndarray]:
    """Chunks, and the geometry of a kernel."""
    steps = prod(d.size for d in others)
    per_chunk = max(1, CHUNK // (along.size * around.size))
    rest = (n for d in others for n in d)
    return -(-steps // per_chunk), np.array([len(others), steps, per_chunk, *along, *around, *rest], np.int64)


def _merged(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> list[Dim]:
    """The dimensions of a view, neighbours as one where elements follow each other in the source as in the copy."""
    made: list[Dim] = []
    for d, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        step, to = stride // itemsize, prod(shape[d + 1 :])
        if size == 1:
            continue
        if made and made[-1].step == size * step:
            made[-1] = Dim(made[-1].size * size, step, to)
        else:
            made.append(Dim(size, step, to))
    return made


def _group(dims: Iterable[Dim], step: str, others: list[Dim], enough: int) -> list[Dim]:
    """The first of `dims`, until they have `enough` elements: as long as these lie together by the strides `step`."""
    made: list[Dim] = []
    for d in dims:
        size = prod(m.size for m in made)
        if d in others or getattr(d, step) != size or size >= enough or size * d.size > MOST_GROUPED:
            break
        made.append(d)
    return made


def _places(group: list[Dim], of: int) -> np.ndarray:
    """Where the elements of a group are in the source (1) or in the copy (2), the first dimension being the fastest."""
    places = np.zeros(1, np.int64)
    for d in group:
        places = (np.arange(d.size)[:, None] * d[of] + places).reshape(-1)
    return np.ascontiguousarray(places)


def _longest_first(dims: Iterable[Dim]) -> list[Dim]:
    """The dimension that the innermost loop goes along, that of the loop around it, and the others as they come."""
    left, chosen = list(dims), []
    for _ in range(2):
        # That of the copy's neighbours, or that of the source's, if they are long enough.
        near = [d for d in (*left[-1:], *sorted(left, key=lambda d: d.step)[:1]) if d.size >= SHORT]
        best = near[0] if near else max(left, key=lambda d: d.size, default=Dim(1, 0, 0))
        chosen.append(best)
        if best in left:
            left.remove(best)
    return [*chosen, *left]


@engines.kept(16)
def _lines(bits: np.dtype, runs: bool) -> Any:
    return copy_lines.form((bits, bits, np.dtype(np.int64)), {"RUNS": runs})


@engines.kept(16)
def _squares(bits: np.dtype, side: int) -> Any:
    return copy_squares.form((bits, bits, *[np.dtype(np.int64)] * 3), {"SIDE": side})
