"""Correlations by gathered products (`product.py`): what is decided once for arrays of one shape and layout, and the call.

A small convolution takes a few microseconds, so everything that follows from shapes is worked out when a shape is first
met: the tables of the walk, chunks and geometries of the kernels, and their compiled forms.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.engine.machine_code import llvm

from ..register_tiles import tile
from ..shapes.order import is_last
from . import planes, product
from .channels_last import lane_count, stages
from .walk import Ints, Walk, walk

# Bytes of planes laid out at a time: so much of a cache that several cores share.
BLOCK_BYTES = 3 << 20
_INT64 = np.dtype(np.int64)
_HALF_BITS = np.dtype(np.uint16)


class Source:
    """The planes of an array, some images at a time.

    Attributes:
        blocks: the first image and the one past the last of each block.
        step: images of a block.
        pairs, kind: whether elements are multiplied in pairs, and what they are laid out as: then the bits of bfloat16.
    """

    def __init__(self, x: Any, tables: Walk, step: int = 0) -> None:
        n, c = x.shape[:2]
        self.pairs = in_pairs(x.dtype)
        if self.pairs:
            x = x.view(_HALF_BITS)
        self.tables, self.kind = tables, x.dtype if self.pairs else wide_kind(x.dtype)
        in_place = tables.in_place and x.dtype == self.kind and x.flags.c_contiguous
        least = n if in_place else max(1, BLOCK_BYTES // (c * tables.plane * self.kind.itemsize))
        self.step = step or min(n, least)
        self.blocks = tuple((i, min(i + self.step, n)) for i in range(0, n, self.step))
        self.shape = c, tables.plane
        self.laying = None if in_place else [planes.prepare(x[i:j], tables.axes, tables.plane, self.kind) for i, j in self.blocks]

    def planes(self, x: Any, number: int) -> Any:
        """Those of one block."""
        if self.pairs:
            x = x.view(_HALF_BITS)
        if len(self.blocks) > 1:
            first, last = self.blocks[number]
            x = x[first:last]
        if self.laying is None:
            return x
        made = np.empty((len(x), *self.shape), self.kind)
        chunks, geometry, lay_out = self.laying[number]
        lay_out(chunks, False, x, made, geometry)
        return made


class Direct:
    """`convolve` or, `transposed`, `convolve_input` of arrays like `x` and `w`, to results of extents `made`.

    Channels of the results lie last in memory where those of `x` do.
    """

    def __init__(self, x: Any, w: Any, made: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int,
                 transposed: bool) -> None:  # fmt: skip
        n, c = x.shape[:2]
        taps = prod(w.shape[2:])
        outputs = w.shape[1] if transposed else w.shape[0] // groups
        output, channel = (taps, w.shape[1] * taps) if transposed else (w.shape[1] * taps, taps)
        group = (c // groups) * w.shape[1] * taps if transposed else outputs * w.shape[1] * taps
        tables = walk(transposed, x.shape[2:], made, w.shape[2:], stride, padding, dilation, c // groups, channel)
        self.kind = wide_kind(x.dtype)
        self.shape, self.dtype, self.last = (n, groups * outputs, *made), x.dtype, is_last(x)
        rows, vectors = tile("convolutions")
        tiles = -(-outputs // rows)
        self.constants = np.zeros((groups, tiles * rows), self.kind)
        self.is_even = tiles * rows == outputs
        pairs = in_pairs(x.dtype) and in_pairs(w.dtype)
        step = 2 if pairs else 1
        per_pass = [groups * tiles * -(-len(p.source) // step) * rows for p in tables.passes]
        starts = [0, *accumulate(per_pass)]
        self.weights = starts[-1]
        at = [0, *accumulate(len(p.weight) for p in tables.passes)]
        table = [number for p, k, start in zip(tables.passes, at, starts, strict=False) for number in (len(p.weight), k, start)]
        places = np.concatenate([p.weight for p in tables.passes])
        self.weight_last = is_last(w)
        if self.weight_last:                          # read where it lies: elements of the kernel are as far apart as input channels were
            elements = np.divmod(places, channel)
            output, channel = (1, channel) if transposed else (output, 1)
            places = np.where(places < 0, -1, elements[0] * channel + elements[1] * w.shape[1])
        self.packing = groups * tiles * len(tables.passes), places, np.array([outputs, group, output, tiles, groups * tiles, *table])
        self.source = Source(x, tables)
        self.bits = _HALF_BITS if pairs else w.dtype
        self.lane = np.dtype(np.int32) if pairs else self.kind
        self.pack = product.pack_weights.form((self.bits, self.lane, _INT64, _INT64), {"ROWS": rows, "PAIRS": pairs})
        side = min(product.SQUARE, lane_count(self.kind)) if self.last else 0
        self.correlate = product.correlate.form(
            (self.source.kind, self.lane, self.kind, x.dtype, _INT64, _INT64),
            {"ROWS": rows, "VECTORS": vectors, "HALF": "" if self.kind == x.dtype else x.dtype.name, "PAIRS": pairs, "SIDE": side,
             "STAGES": stages(side) if side else ()},
        )
        self.passes = tuple(
            tuple(self._prepared(one, start, tables, last - first, c, groups) for one, start in
                  zip(tables.passes, starts, strict=False))
            for first, last in self.source.blocks
        )  # fmt: skip

    def _prepared(self, one: Any, start: int, tables: Walk, images: int, c: int, groups: int) -> tuple[int, np.ndarray, np.ndarray]:
        counts = self.shape[2:]
        steps = [prod(counts[i + 1:]) for i in range(len(counts))]
        channel = prod(counts)
        if self.last:
            steps, channel = [s * self.shape[1] for s in steps], 1
        first = sum(f * s for f, s in zip(one.first, steps, strict=True))
        out = self.shape[1] * prod(counts), channel, tuple(s * k for s, k in zip(steps, one.steps, strict=True))
        layout = source_layout(tables, one.counts, c, groups, out)
        chunks, geometry = product.prepare(one, layout, images, groups, self.shape[1] // groups, self.kind, self.source.pairs, start,
                                          first)  # fmt: skip
        return chunks, one.source, geometry

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        if not (self.weight_last or w.flags.c_contiguous):
            w = np.ascontiguousarray(w)
        packed = np.empty(self.weights, self.lane)
        chunks, places, table = self.packing
        self.pack(chunks, False, w.view(self.bits), packed, places, table)
        if self.last:
            out = np.empty((self.shape[0], *self.shape[2:], self.shape[1]), self.dtype)
            out = out.transpose(0, out.ndim - 1, *range(1, out.ndim - 1))
        else:
            out = np.empty(self.shape, self.dtype)
        constants = self.constants if bias is None else self._filled(bias)
        for number, passes in enumerate(self.passes):
            source = self.source.planes(x, number)
            part = out if len(self.passes) == 1 else out[self.source.blocks[number][0]:]
            for chunks, places, geometry in passes:
                self.correlate(chunks, False, source, packed, constants, part, places, geometry)
        return out

    def _filled(self, bias: Any) -> np.ndarray:
        """The bias with the output channels of each group filled up to whole tiles."""
        if self.is_even and bias.dtype == self.kind and bias.flags.c_contiguous:
            return bias
        made = np.zeros(self.constants.shape, self.kind)
        groups = len(made)
        if groups == 1:
            made[0, :self.shape[1]] = bias
        else:
            made[:, :self.shape[1] // groups] = bias.reshape(groups, -1)
        return made


def in_pairs(dtype: np.dtype) -> bool:
    """Whether the processor multiplies pairs of elements and adds both products to a float32."""
    return dtype.name == "bfloat16" and llvm.machine().register_bits == 512 and "+avx512bf16" in llvm.machine().features.split(",")


def wide_kind(dtype: np.dtype) -> np.dtype:
    """What elements are computed in."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def source_layout(tables: Walk, counts: Ints, c: int, groups: int, out: tuple[int, int, Ints]) -> product.Layout:
    """Where the planes of a walk and its results lie.

    Args:
        counts: results along each axis.
        out: elements from an image, a channel, and along each axis from one result to the next.
    """
    extents = [a.extent for a in tables.axes]
    steps = tuple(prod(extents[i + 1:]) for i in range(len(extents)))
    return product.Layout(counts, c * tables.plane, c // groups * tables.plane, steps, *out)
