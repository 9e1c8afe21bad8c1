"""Convolutions by tiles, whose products are whole matrix products: fewer of them than there are taps.

Winograd 1980, "Arithmetic Complexity of Computations"; Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural
Networks". Along an axis a `Form` gives a tile of results as ``A ((G g) * (B d))`` of elements d and taps g, and along both axes
at once each matrix is applied to rows and columns. Over channels the products at each place are a matrix product: with
the channels last (`channels_last.py`), transforms run along channels, as well for images of 4 x 4 as for large ones, and all
places are one batched `matmul`. The gradient of the weight is ``G' sum(B d * A' e)`` over tiles of the same form.

At stride 2 the elements of even and of odd number are two convolutions of their own, and so are the results of
the transposed map; two taps by two results take 3 products, F(2, 2), instead of 4. All forms add, and halve at most, so
errors are a few times those of plain sums. In three dimensions the slices of the kernel are shifts along the first axis.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.engine.language import (
    broadcast,
    flags,
    kernel,
    lane_sum,
    lanes,
    load,
    local,
    store,
    unroll,
    vector,
    widened,
)

from ..products.matmul import matmul
from ..shapes.move import contiguous
from ..shapes.order import place_of_row
from ..squares import transpose
from .channels_last import Frame
from .walk import Ints

# Elements a chunk transforms, and bytes of transformed arrays at a time.
CHUNK, BLOCK_BYTES = 1 << 14, 6 << 20
# Tiles for which transformed weights, which are larger, pay; and the positions of an image up to which `winograd.py` is slower.
LEAST, MOST_POSITIONS = 24, 600
# Products with an element that is moved, of a step of 2, from which there are enough to spare.
LEAST_PRODUCTS = 64
TILES, PER_CHUNK, ACROSS, DOWN, ROW, SLICE, IMAGE, SLICES, WIDE, STEP = range(10)
Matrix = tuple[tuple[float, ...], ...]


class Form(NamedTuple):
    """One axis of a tile: `results` of them from elements at ``step * tile``, and the matrices."""

    step: int
    results: int
    b: Matrix
    g: Matrix
    a: Matrix


def turned(m: Matrix) -> Matrix:
    return tuple(zip(*m, strict=True))


# F(2, 3) at step 1.
PLAIN = Form(
    2, 2,
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, -1)),
)  # fmt: skip
# The same, transposed: a convolution with the taps turned round.
PLAIN_BACK = Form(2, 2, PLAIN.b, tuple(row[::-1] for row in PLAIN.g), PLAIN.a)
# Stride 2 with 3 taps, 5 products for 2 results: F(2, 2) of even elements, and one tap for odd ones.
HALVES_3 = Form(
    4, 2,
    ((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, 1, 0, -1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
    ((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    ((1, 1, 0, 1, 0), (0, 1, -1, 0, 1)),
)  # fmt: skip
# Stride 2 with 4 taps, 6 products: F(2, 2) of even and of odd elements.
HALVES_4 = Form(
    4, 2,
    ((1, 0, -1, 0, 0, 0), (0, 0, 1, 0, 0, 0), (0, 0, 1, 0, -1, 0),
     (0, 1, 0, -1, 0, 0), (0, 0, 0, 1, 0, 0), (0, 0, 0, 1, 0, -1)),
    ((1, 0, 0, 0), (1, 0, 1, 0), (0, 0, 1, 0), (0, 1, 0, 0), (0, 1, 0, 1), (0, 0, 0, 1)),
    ((1, 1, 0, 1, 1, 0), (0, 1, -1, 0, 1, -1)),
)  # fmt: skip
# Their transposes: x[2k] = y[k] g0 + y[k-1] g2 and x[2k+1] = y[k] g1 (+ y[k-1] g3), from the first result of even number on.
EVEN_3 = Form(
    2, 4,
    ((1, -1, 0), (0, 1, 0), (0, 1, -1), (0, 1, 0), (0, 0, 1)),
    ((0, 0, 1), (1, 0, 1), (1, 0, 0), (0, 1, 0), (0, 1, 0)),
    ((1, 1, 0, 0, 0), (0, 0, 0, 1, 0), (0, 1, -1, 0, 0), (0, 0, 0, 0, 1)),
)  # fmt: skip
EVEN_4 = Form(
    2, 4,
    ((1, -1, 0), (0, 1, 0), (0, 1, -1)) * 2,
    ((0, 0, 1, 0), (1, 0, 1, 0), (1, 0, 0, 0), (0, 0, 0, 1), (0, 1, 0, 1), (0, 1, 0, 0)),
    ((1, 1, 0, 0, 0, 0), (0, 0, 0, 1, 1, 0), (0, 1, -1, 0, 0, 0), (0, 0, 0, 0, 1, -1)),
)  # fmt: skip
# And from the first one of odd number on.
ODD_3 = Form(
    2, 4,
    ((1, -1, 0), (0, 1, 0), (0, 1, -1), (1, 0, 0), (0, 1, 0)),
    EVEN_3.g,
    ((0, 0, 0, 1, 0), (1, 1, 0, 0, 0), (0, 0, 0, 0, 1), (0, 1, -1, 0, 0)),
)  # fmt: skip
ODD_4 = Form(
    2, 4,
    ((1, -1, 0, 0), (0, 1, 0, 0), (0, 1, -1, 0), (0, 1, -1, 0), (0, 0, 1, 0), (0, 0, 1, -1)),
    EVEN_4.g[3:] + EVEN_4.g[:3],
    ((1, 1, 0, 0, 0, 0), (0, 0, 0, 1, 1, 0), (0, 1, -1, 0, 0, 0), (0, 0, 0, 0, 1, -1)),
)  # fmt: skip
FORWARDS = {(3, 1): PLAIN, (3, 2): HALVES_3, (4, 2): HALVES_4}
# By taps and by whether the padding is odd; and the elements before those of the first tile if nothing is padded.
BACKWARDS = {(3, 0): (EVEN_3, 1), (3, 1): (ODD_3, 0), (4, 0): (EVEN_4, 1), (4, 1): (ODD_4, 1)}


def form_of(taps: int, stride: int, padding: int, transposed: bool) -> tuple[Form, int]:
    """The form of an axis, and the elements before the source that its first tile sees."""
    if not transposed:
        return FORWARDS[taps, stride], padding
    if stride == 1:
        return PLAIN_BACK, taps - 1 - padding
    form, low = BACKWARDS[taps, padding % 2]
    return form, low - padding // 2


def begin_of(tile, geometry):
    """Elements before the first one of a tile."""
    row = tile // geometry[ACROSS]
    image, z, y = place_of_row(row, geometry[SLICES], geometry[DOWN])
    x = tile - row * geometry[ACROSS]
    inner = geometry[STEP] * (y * geometry[ROW] + x * geometry[WIDE])
    return image * geometry[IMAGE] + z * geometry[SLICE] + inner


def applied(v, t, TERMS, COLUMNS, COUNT, KIND, LANES):
    """``t = M v`` for rows of COUNT vectors; TERMS has for each row of M what is not zero: ``(row, ((column, number), ...))``."""
    with flags("nsz"):
        for I, SUM in unroll(TERMS):
            for j in unroll(range(COUNT)):
                total = broadcast(KIND(0), LANES)
                for K, NUMBER in unroll(SUM):
                    if NUMBER == 1:
                        total = total + v[K * COUNT + j]
                    elif NUMBER == -1:
                        total = total - v[K * COUNT + j]
                    else:
                        total = total + v[K * COUNT + j] * broadcast(KIND(NUMBER), LANES)
                t[I * COUNT + j] = total


def across(t, i, SUM, COLUMNS, KIND, LANES):
    """One element of ``t M'``: row `i` of `t` times a row of M."""
    with flags("nsz"):
        total = broadcast(KIND(0), LANES)
        for K, NUMBER in unroll(SUM):
            if NUMBER == 1:
                total = total + t[i * COLUMNS + K]
            elif NUMBER == -1:
                total = total - t[i * COLUMNS + K]
            else:
                total = total + t[i * COLUMNS + K] * broadcast(KIND(NUMBER), LANES)
    return total


@kernel(in_vectors=True)
def to_places(chunk, source, made, geometry, *, TERMS, ROWS, COLUMNS):
    """``M d M'`` of the COLUMNS x COLUMNS elements of each tile: ``made[place][tile][channel]``."""
    KIND = widened(made)
    LANES = lanes(KIND)
    d, t = local(vector(KIND, LANES), COLUMNS * COLUMNS), local(vector(KIND, LANES), ROWS * COLUMNS)
    wide, row = geometry[WIDE], geometry[ROW]
    step = geometry[TILES] * wide
    first = chunk * geometry[PER_CHUNK]
    for tile in range(first, min(first + geometry[PER_CHUNK], geometry[TILES])):
        line, to = source + begin_of(tile, geometry), made + tile * wide
        for c in range(0, wide, LANES):
            for i in unroll(range(COLUMNS)):
                for j in unroll(range(COLUMNS)):
                    d[i * COLUMNS + j] = load(line, i * row + j * wide + c, LANES)
            applied(d, t, TERMS, ROWS, COLUMNS, KIND, LANES)
            for i in unroll(range(ROWS)):
                for J, SUM in unroll(TERMS):
                    store(to, (i * ROWS + J) * step + c, across(t, i, SUM, COLUMNS, KIND, LANES))


@kernel(in_vectors=True)
def from_places(chunk, source, made, geometry, *, TERMS, ROWS, COLUMNS):
    """``M m M'`` of the COLUMNS x COLUMNS places ``source[place][tile][channel]`` to the ROWS x ROWS results of each tile."""
    KIND = widened(made)
    LANES = lanes(KIND)
    m, t = local(vector(KIND, LANES), COLUMNS * COLUMNS), local(vector(KIND, LANES), ROWS * COLUMNS)
    wide, row = geometry[WIDE], geometry[ROW]
    step = geometry[TILES] * wide
    first = chunk * geometry[PER_CHUNK]
    for tile in range(first, min(first + geometry[PER_CHUNK], geometry[TILES])):
        line, to = source + tile * wide, made + begin_of(tile, geometry)
        for c in range(0, wide, LANES):
            for k in unroll(range(COLUMNS * COLUMNS)):
                m[k] = load(line, k * step + c, LANES)
            applied(m, t, TERMS, ROWS, COLUMNS, KIND, LANES)
            for i in unroll(range(ROWS)):
                for J, SUM in unroll(TERMS):
                    store(to, i * row + J * wide + c, across(t, i, SUM, COLUMNS, KIND, LANES))


@kernel(in_vectors=True)
def transform_weights(chunk, weight, made, per_chunk, count, first, second, wide, *, TERMS, ROWS, COLUMNS):
    """``G g G'`` of ``weight[first][second][taps]`` for some of `count` first channels: ``made[place][first][second]``."""
    KIND = widened(made)
    LANES = lanes(KIND)
    TAPS = COLUMNS * COLUMNS
    WHOLE = TAPS // LANES * LANES                     # taps that are moved as squares of as many channels
    g, t, spill = local(vector(KIND, LANES), TAPS), local(vector(KIND, LANES), ROWS * COLUMNS), local(KIND, TAPS * LANES)
    square = local(vector(KIND, LANES), LANES)
    step = first * wide
    for f in range(chunk * per_chunk, min((chunk + 1) * per_chunk, count)):
        for c in range(0, wide, LANES):
            to = made + (f * wide + c)
            here = min(LANES, second - c)
            line = weight + (f * second + c) * TAPS
            if here == LANES:
                for K in unroll(range(0, WHOLE, LANES)):
                    for r in unroll(range(LANES)):
                        square[r] = load(line, r * TAPS + K, LANES)
                    transpose(square, KIND)
                    for r in unroll(range(LANES)):
                        store(spill, (K + r) * LANES, square[r])
                for r in range(LANES):
                    for k in unroll(range(WHOLE, TAPS)):
                        spill[k * LANES + r] = line[r * TAPS + k]
            else:
                for r in range(here):
                    for k in unroll(range(TAPS)):
                        spill[k * LANES + r] = line[r * TAPS + k]
            for k in unroll(range(TAPS)):
                g[k] = load(spill, k * LANES, LANES, here)
            applied(g, t, TERMS, ROWS, COLUMNS, KIND, LANES)
            for i in unroll(range(ROWS)):
                for J, SUM in unroll(TERMS):
                    store(to, (i * ROWS + J) * step, across(t, i, SUM, COLUMNS, KIND, LANES))


@kernel(in_vectors=True)
def finish_weights(chunk, sums, weight, finite, per_chunk, outputs, inputs, wide, taps, offset, *, TERMS, ROWS, COLUMNS):
    """``G' m G`` for some output channels: ROWS x ROWS taps from `offset` on for each input channel, whose weights are `taps`."""
    KIND = widened(weight)
    LANES = lanes(KIND)
    m, t = local(vector(KIND, LANES), COLUMNS * COLUMNS), local(vector(KIND, LANES), ROWS * COLUMNS)
    spill, square = local(KIND, ROWS * ROWS * LANES), local(vector(KIND, LANES), LANES)
    WHOLE = ROWS * ROWS // LANES * LANES
    bad = broadcast(KIND(0), LANES)
    step = outputs * wide
    for o in range(chunk * per_chunk, min((chunk + 1) * per_chunk, outputs)):
        for c in range(0, inputs, LANES):
            for k in unroll(range(COLUMNS * COLUMNS)):
                m[k] = load(sums, k * step + o * wide + c, LANES)
            applied(m, t, TERMS, ROWS, COLUMNS, KIND, LANES)
            for i in unroll(range(ROWS)):
                for J, SUM in unroll(TERMS):
                    v = across(t, i, SUM, COLUMNS, KIND, LANES)
                    bad = bad + (v - v)
                    store(spill, (i * ROWS + J) * LANES, v)
            to = weight + ((o * inputs + c) * taps + offset)
            here = min(LANES, inputs - c)
            if here == LANES:
                for K in unroll(range(0, WHOLE, LANES)):
                    for r in unroll(range(LANES)):
                        square[r] = load(spill, (K + r) * LANES, LANES)
                    transpose(square, KIND)
                    for r in unroll(range(LANES)):
                        store(to, r * taps + K, square[r])
                for r in range(LANES):
                    for k in unroll(range(WHOLE, ROWS * ROWS)):
                        to[r * taps + k] = spill[k * LANES + r]
            else:
                for r in range(here):
                    for k in unroll(range(ROWS * ROWS)):
                        to[r * taps + k] = spill[k * LANES + r]
    finite[chunk] = lane_sum(bad) == 0


def constants(m: Matrix) -> dict[str, Any]:
    """A matrix as the kernels take it."""
    terms = tuple((i, tuple((k, x) for k, x in enumerate(row) if x)) for i, row in enumerate(m))
    return {"TERMS": terms, "ROWS": len(m), "COLUMNS": len(m[0])}


def per_chunk_of(elements: int) -> int:
    """Things of so many elements in a chunk."""
    return max(1, CHUNK // elements)


class Grid:
    """Tiles ``(images, slices, down, across)`` over a frame of `extents`, their sides `step` apart."""

    def __init__(self, frame: Frame, tiles: Ints, extents: Ints, step: int, places: int) -> None:
        slices, down, across_ = tiles[1:]
        per_chunk = per_chunk_of(places * frame.wide)
        self.count = prod(tiles)
        self.chunks = -(-self.count // per_chunk)
        row = extents[-1] * frame.wide
        self.geometry = np.array([self.count, per_chunk, across_, down, row, extents[-2] * row, frame.size, slices, frame.wide, step])


class Tiles:
    """`convolve` or, `transposed`, `convolve_input` of images like `x` with weights like `w`."""

    def __init__(self, x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, transposed: bool) -> None:
        n = len(x)
        taps, outputs = w.shape[-1], w.shape[1] if transposed else w.shape[0]
        self.form, low = form_of(taps, stride[0], padding[0], transposed)
        self.transposed, self.dtype, self.shape = transposed, x.dtype, (n, outputs, *made)
        step, results = self.form.step, self.form.results
        span = len(self.form.b[0])
        down, across_ = (-(-size // results) for size in made)
        framed = step * (down - 1) + span, step * (across_ - 1) + span
        self.source = Frame(x.shape, framed, (low, low), x.dtype)
        extents = results * down, results * across_
        self.target = Frame(self.shape, extents, (0, 0), x.dtype)
        count = len(self.form.a[0]) ** 2
        tile_bytes = count * (self.source.wide + self.target.wide) * x.dtype.itemsize
        images = min(n, max(1, BLOCK_BYTES // (tile_bytes * down * across_)))
        self.blocks = []
        for first in range(0, n, images):
            tiles = min(images, n - first), 1, down, across_
            self.blocks.append((first, first + tiles[0], Grid(self.source, tiles, framed, step, count),
                                Grid(self.target, tiles, extents, results, count)))  # fmt: skip
        self.sides = (self.source.wide, self.target.wide) if transposed else (self.target.wide, self.source.wide)
        self.places = count
        self.matrices = tuple(map(constants, (self.form.g, self.form.b, self.form.a)))

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        """None where not all of the result is finite."""
        x, w = contiguous(x), contiguous(w)
        first, second = self.sides
        factors = np.empty((self.places, first, second), self.dtype)
        count = len(w)
        per_chunk = per_chunk_of(self.places * second)
        transform_weights.run(-(-count // per_chunk), w, factors, per_chunk, count, first, w.shape[1], second, **self.matrices[0])
        factors[:, count:] = 0
        right = factors if self.transposed else factors.transpose(0, 2, 1)
        filled = np.zeros(self.target.wide, self.dtype)
        if bias is not None:
            filled[:len(bias)] = bias
        out = np.empty(self.shape, self.dtype)
        for start, stop, source, target in self.blocks:
            elements = np.empty((self.places, source.count, self.source.wide), self.dtype)
            to_places.run(source.chunks, self.source.laid_out(x[start:stop]), elements, source.geometry, **self.matrices[1])
            sums = matmul(elements, right)
            made = np.empty((stop - start, self.target.size), self.dtype)
            from_places.run(target.chunks, sums, made, target.geometry, **self.matrices[2])
            if not self.target.taken_back(made, out[start:stop], filled):
                return None
        return out


class Gradient:
    """`convolve_weight` of arrays like `x` and `y`, a group of 1; of three axes the first has step 1."""

    def __init__(self, x: Any, y: Any, kernel: Ints, stride: Ints, padding: Ints) -> None:
        n, c = x.shape[:2]
        made = y.shape[2:]
        self.form = FORWARDS[kernel[-1], stride[-1]]
        self.kernel, self.dtype, self.shape = kernel, x.dtype, (y.shape[1], c, *kernel)
        deep = kernel[0] if len(kernel) == 3 else 1
        self.deep, self.slices = deep, (made[0] if len(kernel) == 3 else 1)
        down, across_ = (-(-size // self.form.results) for size in made[-2:])
        planes = self.slices + deep - 1
        front = (planes,) if len(kernel) == 3 else ()
        step, span, results = self.form.step, len(self.form.b[0]), self.form.results
        sides = ((*front, step * (down - 1) + span, step * (across_ - 1) + span),
                 (*(self.slices,) * len(front), results * down, results * across_))  # fmt: skip
        self.frames = (Frame(x.shape, sides[0], padding, x.dtype), Frame(y.shape, sides[1], (0,) * len(made), x.dtype))
        self.places = len(self.form.b) ** 2
        tile_bytes = self.places * sum(f.wide for f in self.frames) * x.dtype.itemsize
        images = min(n, max(1, BLOCK_BYTES // (tile_bytes * planes * down * across_)))
        self.blocks = []
        for first in range(0, n, images):
            some = min(images, n - first)
            grids = [Grid(frame, (some, count, down, across_), extents, dilation, self.places) for frame, count, extents, dilation in
                     zip(self.frames, (planes, self.slices), sides, (step, results), strict=True)]  # fmt: skip
            self.blocks.append((first, first + some, grids))
        self.area = down * across_
        self.matrices = constants(self.form.b), constants(turned(self.form.a))
        self.last = constants(turned(self.form.g))

    def __call__(self, x: Any, y: Any) -> Any:
        """None where not all of the result is finite."""
        x, y = contiguous(x), contiguous(y)
        outputs, inputs = self.shape[:2]
        sums = np.empty((self.deep, self.places, outputs, self.frames[0].wide), self.dtype)
        for first, last, grids in self.blocks:
            sides = []
            for a, frame, grid, matrix in zip((x, y), self.frames, grids, self.matrices, strict=True):
                made = np.empty((self.places, grid.count, frame.wide), self.dtype)
                to_places.run(grid.chunks, frame.laid_out(a[first:last]), made, grid.geometry, **matrix)
                sides.append(made)
            self._add(sides[0], sides[1][:, :, :outputs], sums, last - first, first > 0)
        weight = np.empty(self.shape, self.dtype)
        per_chunk = per_chunk_of(self.places * inputs)
        finite = np.empty(-(-outputs // per_chunk), np.bool_)
        taps = prod(self.kernel)
        each = taps // self.deep
        for k in range(self.deep):
            finish_weights.run(len(finite), sums[k], weight, finite, per_chunk, outputs, inputs, self.frames[0].wide, taps, each * k,
                               **self.last)  # fmt: skip
            if not finite.all():
                return None
        return weight

    def _add(self, d: np.ndarray, e: np.ndarray, sums: np.ndarray, images: int, more: bool) -> None:
        e = e.transpose(0, 2, 1)
        if self.deep == 1:
            matmul(e, d, out=sums[0], accumulate=more)
            return
        planes = (self.slices + self.deep - 1) * self.area
        count = self.slices * self.area
        for k in range(self.deep):
            for i in range(images):
                start = i * planes + k * self.area
                matmul(e[:, :, i * count:(i + 1) * count], d[:, start:start + count], out=sums[k], accumulate=more or i > 0)


def _fits(dtype: np.dtype, kernel: Ints, stride: Ints, dilation: Ints, groups: int) -> bool:
    """Whether there is a form for this convolution."""
    square = len(kernel) in (2, 3) and kernel[-1] == kernel[-2] and stride[-1] == stride[-2] and max(dilation) == 1
    flat = len(kernel) == 2 or stride[0] == 1
    return groups == 1 and dtype.char in "fd" and square and flat and (kernel[-1], stride[-1]) in FORWARDS


def pays(x: Any, made: Ints, outputs: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int,
         transposed: bool) -> bool:  # fmt: skip
    """Whether `Tiles` takes a convolution: measured."""
    if not _fits(x.dtype, kernel, stride, dilation, groups) or len(kernel) != 2 or padding[0] != padding[1]:
        return False
    c = x.shape[1]
    if stride[0] == 2 and not transposed and (kernel[0] == 3 or c * outputs < LEAST_PRODUCTS * (c + outputs)):
        return False                                  # the products it spares cost less than moving all elements three times
    form, low = form_of(kernel[0], stride[0], padding[0], transposed)
    tiles = len(x) * prod(-(-size // form.results) for size in made)
    small = stride[0] > 1 or prod(made) <= MOST_POSITIONS
    return low >= 0 and small and x.shape[1] >= 16 and outputs >= 16 and tiles >= LEAST


def pays_for_weight(x: Any, made: Ints, outputs: int, kernel: Ints, stride: Ints, dilation: Ints, groups: int) -> bool:
    """Whether `Gradient` takes a gradient of the weight: measured."""
    if not _fits(x.dtype, kernel, stride, dilation, groups):
        return False
    tiles = len(x) * prod(made[:-2]) * -(-made[-2] // 2) * -(-made[-1] // 2)
    return x.shape[1] >= 16 and outputs >= 16 and tiles >= LEAST
