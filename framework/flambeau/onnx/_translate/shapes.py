"""Operators that arrange the same elements in another way."""

from __future__ import annotations

import builtins
import itertools
from typing import Any

import numpy as np

import flambeau as fb

from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates

__all__: list[str] = []

_END = (1 << 63) - 1  # the end of a slice that goes on to the last element


@translates("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten._reshape_copy.default",
            "aten.view_copy.default")  # fmt: skip
def view(g: Graph, input: Value, size: list[Any]) -> Value:
    return g.reshape(input, size)


@translates("aten.view_as.default", "aten.reshape_as.default")
def view_as(g: Graph, input: Value, other: Value) -> Value:
    return g.op("Reshape", input, g.shape_of(other))


@translates("aten.flatten.using_ints")
def flatten(g: Graph, input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if not input.ndim:
        return g.reshape(input, [1])
    start, end = start_dim % input.ndim, end_dim % input.ndim
    before, after = (list(range(start)), list(range(end + 1, input.ndim)))
    return g.reshape(input, [*(g.size(input, d) for d in before), -1, *(g.size(input, d) for d in after)])


@translates("aten.unflatten.int")
def unflatten(g: Graph, input: Value, dim: int, sizes: list[Any]) -> Value:
    dim %= input.ndim
    return g.reshape(input, [*(g.size(input, d) for d in range(dim)), *sizes, *(g.size(input, d) for d in range(dim + 1, input.ndim))])


@translates("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default")
def transpose(g: Graph, input: Value, dim0: int, dim1: int) -> Value:
    if not input.ndim:
        return g.op("Identity", input)
    perm = list(range(input.ndim))
    perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return g.transpose(input, perm)


@translates("aten.t.default")
def t(g: Graph, input: Value) -> Value:
    return transpose(g, input, 0, 1) if input.ndim == 2 else g.op("Identity", input)


@translates("aten.numpy_T.default", "aten.mT.default")
def matrix_transpose(g: Graph, input: Value) -> Value:
    return transpose(g, input, -1, -2)


@translates("aten.permute.default")
def permute(g: Graph, input: Value, dims: list[int]) -> Value:
    return g.transpose(input, [d % input.ndim for d in dims])


@translates("aten.movedim.intlist", "aten.movedim.int")
def movedim(g: Graph, input: Value, source: Any, destination: Any) -> Value:
    n = input.ndim
    froms, tos = ([d % n for d in (x if isinstance(x, (list, tuple)) else [x])] for x in (source, destination))
    rest = iter(d for d in range(n) if d not in froms)
    return g.transpose(input, [froms[tos.index(d)] if d in tos else next(rest) for d in range(n)])


@translates("aten.unsqueeze.default")
def unsqueeze(g: Graph, input: Value, dim: int) -> Value:
    return g.unsqueeze(input, dim)


@translates("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(g: Graph, input: Value, dim: Any = None) -> Value:
    assert input.shape is not None
    dims = range(input.ndim) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    found = sorted({d % max(input.ndim, 1) for d in dims if input.ndim and isinstance(input.shape[d], int) and input.shape[d] == 1})
    return g.op("Squeeze", input, found) if found else g.op("Identity", input)


@translates("aten.expand.default")
def expand(g: Graph, input: Value, size: list[Any], *, implicit: bool = False) -> Value:
    return g.expand(input, g.sizes([1 if isinstance(n, int) and n == -1 else n for n in size]))


@translates("aten.expand_as.default")
def expand_as(g: Graph, input: Value, other: Value) -> Value:
    return g.expand(input, g.shape_of(other))


@translates("aten.broadcast_to.default")
def broadcast_to(g: Graph, input: Value, size: list[Any]) -> Value:
    return expand(g, input, size)


@translates("aten.repeat.default", "aten.tile.default")
def repeat(g: Graph, input: Value, repeats: list[Any]) -> Value:
    more = len(repeats) - input.ndim
    x = g.unsqueeze(input, *range(more)) if more > 0 else input
    return g.op("Tile", x, g.sizes([*[1] * builtins.max(-more, 0), *repeats]))


@translates("aten.repeat_interleave.self_int")
def repeat_interleave(g: Graph, input: Value, repeats: Any, dim: int | None = None, *, output_size: Any = None) -> Value:
    if dim is None:
        x, dim, sizes = g.reshape(input, [-1]), 0, [-1]
    else:
        dim %= input.ndim
        x, sizes = input, [g.size(input, d) for d in range(input.ndim)]
        sizes[dim] = -1
    count = len(sizes)
    longer = g.op("Tile", g.unsqueeze(x, dim + 1), g.sizes([*[1] * (dim + 1), repeats, *[1] * (count - dim - 1)]))
    return g.reshape(longer, sizes)


@translates("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(g: Graph, tensors: list[Value], dim: int = 0) -> Value:
    dtype = g.out.dtype
    kept = [x for x in tensors if x.shape != (0,)] or tensors  # one without elements counts for nothing, whatever the others' sizes
    return g.op("Concat", *(g.cast(x, dtype) for x in kept), axis=dim)


@translates("aten.stack.default")
def stack(g: Graph, tensors: list[Value], dim: int = 0) -> Value:
    dtype = g.out.dtype
    return g.op("Concat", *(g.unsqueeze(g.cast(x, dtype), dim) for x in tensors), axis=dim)


@translates("aten.slice.Tensor")
def slice(g: Graph, input: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    start = 0 if start is None else start
    end = _END if end is None else end
    if isinstance(start, int) and start == 0 and isinstance(end, int) and end == _END and step == 1:
        return g.op("Identity", input)
    return g.op("Slice", input, g.sizes([start]), g.sizes([end]), [dim], g.sizes([step]))


@translates("aten.narrow.default")
def narrow(g: Graph, input: Value, dim: int, start: Any, length: Any) -> Value:
    if isinstance(start, int) and isinstance(length, int):
        start = start + input_size(input, dim) if start < 0 else start
        return slice(g, input, dim, start, start + length)
    return slice(g, input, dim, start, g.op("Add", g.like(start, fb.int64), g.like(length, fb.int64)))


def input_size(x: Value, dim: int) -> int:
    """The size of `x` along `dim`. Raises: OnnxExporterError where it is open."""
    n = x.shape[dim] if x.shape is not None else None
    if not isinstance(n, int):
        raise OnnxExporterError(f"dimension {dim} of {x.name} must have a size that is not open")
    return n


@translates("aten.select.int")
def select(g: Graph, input: Value, dim: int, index: Any) -> Value:
    if isinstance(index, int):
        index = g.const(index, fb.int64)
    return g.op("Gather", input, g.cast(index, fb.int64), axis=dim)


@translates("aten.unbind.int")
def unbind(g: Graph, input: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(select(g, input, dim, i) for i in range(input_size(input, dim)))


@translates("aten.split_with_sizes.default")
def split_with_sizes(g: Graph, input: Value, split_sizes: list[Any], dim: int = 0) -> Any:
    made = g.op("Split", input, g.sizes(split_sizes), outputs=len(split_sizes), axis=dim)
    return made if isinstance(made[0], Value) else (made,)


@translates("aten.split.Tensor", "aten.split.default", "aten.unsafe_split.Tensor")
def split(g: Graph, input: Value, split_size: Any, dim: int = 0) -> Any:
    if isinstance(split_size, (list, tuple)) and not isinstance(split_size, Value):
        return split_with_sizes(g, input, list(split_size), dim)
    size = g.size(input, dim)
    if not isinstance(size, int) or not isinstance(split_size, int):
        return _cut_by(g, input, split_size, dim)
    return split_with_sizes(g, input, [builtins.min(split_size, size - at) for at in range(0, size, split_size)] or [0], dim)


@translates("aten.chunk.default", "aten.unsafe_chunk.default")
def chunk(g: Graph, input: Value, chunks: int, dim: int = 0) -> Any:
    size = g.size(input, dim)
    if isinstance(size, int):
        return split(g, input, builtins.max(-(-size // chunks), 1), dim)
    return _cut_by(g, input, g.op("Div", g.op("Add", size, g.const(chunks - 1, fb.int64)), g.const(chunks, fb.int64)), dim)


@translates("aten.tensor_split.sections")
def tensor_split(g: Graph, input: Value, sections: int, dim: int = 0) -> Any:
    size = g.size(input, dim)
    if isinstance(size, int):
        return split_with_sizes(g, input, [size // sections + (i < size % sections) for i in range(sections)], dim)
    count = g.const(sections, fb.int64)
    least, longer = g.op("Div", size, count), g.op("Mod", size, count)
    bounds = [g.op("Add", _times(g, least, i), g.op("Min", longer, g.const(i, fb.int64))) for i in range(sections + 1)]
    return _cut(g, input, bounds, dim)


def _cut_by(g: Graph, input: Value, length: Any, dim: int) -> tuple[Value, ...]:
    """The parts of `input`, of an open size along `dim`, of which each but the last has the `length`."""
    return _cut(g, input, [_times(g, length, i) for i in range(len(g.out) + 1)], dim)


def _times(g: Graph, n: Any, times: int) -> Any:
    return n * times if isinstance(n, int) else g.op("Mul", n, g.const(times, fb.int64))


def _cut(g: Graph, input: Value, bounds: list[Any], dim: int) -> tuple[Value, ...]:
    """The parts of `input`, of an open size along `dim`, between neighbouring `bounds`; how many there are is as in the example."""
    return tuple(slice(g, input, dim, start, end) for start, end in itertools.pairwise(bounds))


@translates("aten.tensor_split.indices")
def tensor_split_at(g: Graph, input: Value, indices: list[int], dim: int = 0) -> Any:
    return tuple(slice(g, input, dim, start, end) for start, end in zip([0, *indices], [*indices, None], strict=True))


@translates("aten.flip.default")
def flip(g: Graph, input: Value, dims: list[int]) -> Value:
    count = len(dims)
    return g.op("Slice", input, [-1] * count, [-_END] * count, list(dims), [-1] * count) if count else g.op("Identity", input)


@translates("aten.fliplr.default")
def fliplr(g: Graph, input: Value) -> Value:
    return flip(g, input, [1])


@translates("aten.flipud.default")
def flipud(g: Graph, input: Value) -> Value:
    return flip(g, input, [0])


@translates("aten.roll.default")
def roll(g: Graph, input: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts, dims = (x if isinstance(x, (list, tuple)) else [x] for x in (shifts, dims))
    x = input if len(dims) else g.reshape(input, [-1])
    for shift, dim in zip(shifts, dims or [0], strict=True):
        n = input.shape[dim] if len(dims) and input.shape is not None else None
        if isinstance(n, int):
            shift = shift % n if n else 0
        if shift:
            x = g.op("Concat", slice(g, x, dim, -shift), slice(g, x, dim, 0, -shift), axis=dim)
    return x if len(dims) else g.op("Reshape", x, g.shape_of(input))


@translates("aten.diagonal.default")
def diagonal(g: Graph, input: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b = dim1 % input.ndim, dim2 % input.ndim
    rows, columns = input_size(input, a), input_size(input, b)
    x = g.transpose(input, [*(d for d in range(input.ndim) if d not in (a, b)), a, b])
    first, start = builtins.max(-offset, 0), builtins.max(offset, 0)
    count = builtins.max(builtins.min(rows - first, columns - start), 0)
    places = (np.arange(count) + first) * columns + np.arange(count) + start
    lead = [g.size(x, d) for d in range(input.ndim - 2)]
    return g.op("Gather", g.reshape(x, [*lead, rows * columns]), places.astype(np.int64), axis=-1)


def _triangle(g: Graph, input: Value, diagonal: int, upper: int) -> Value:
    x = g.cast(input, fb.int64) if input.dtype is fb.bool else input
    return g.cast(g.op("Trilu", x, g.const(diagonal, fb.int64), upper=upper), input.dtype)


@translates("aten.tril.default")
def tril(g: Graph, input: Value, diagonal: int = 0) -> Value:
    return _triangle(g, input, diagonal, 0)


@translates("aten.triu.default")
def triu(g: Graph, input: Value, diagonal: int = 0) -> Value:
    return _triangle(g, input, diagonal, 1)


@translates("aten.pixel_shuffle.default")
def pixel_shuffle(g: Graph, input: Value, upscale_factor: int) -> Value:
    if input.ndim == 3:
        return g.op("Squeeze", g.op("DepthToSpace", g.unsqueeze(input, 0), blocksize=upscale_factor, mode="CRD"), [0])
    return g.op("DepthToSpace", input, blocksize=upscale_factor, mode="CRD")


@translates("aten.pixel_unshuffle.default")
def pixel_unshuffle(g: Graph, input: Value, downscale_factor: int) -> Value:
    n, r = input.ndim, downscale_factor
    lead = [g.size(input, d) for d in range(n - 3)]
    channels, height, width = (input_size(input, d) for d in (-3, -2, -1))
    parts = g.reshape(input, [*lead, channels, height // r, r, width // r, r])
    k = n - 3
    moved = g.op("Transpose", parts, perm=[*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return g.reshape(moved, [*lead, channels * r * r, height // r, width // r])


@translates("aten.channel_shuffle.default")
def channel_shuffle(g: Graph, input: Value, groups: int) -> Value:
    sizes = [g.size(input, d) for d in range(input.ndim)]
    channels = input_size(input, 1)
    parts = g.reshape(input, [sizes[0], groups, channels // groups, *sizes[2:]])
    return g.reshape(g.op("Transpose", parts, perm=[0, 2, 1, *range(3, input.ndim + 1)]), [sizes[0], channels, *sizes[2:]])


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded(g: Graph, x: Value, pad: list[Any], mode: str, value: Any = None) -> Value:
    """`x` with elements added, `pad` as PyTorch says it: pairs from the last dimension on. Negative ones take elements away."""
    ndim = x.ndim
    for i in range(len(pad) // 2):                    # what is taken away is a slice
        first, last = (-n if isinstance(n, int) and n < 0 else 0 for n in (pad[2 * i], pad[2 * i + 1]))
        if first or last:
            d = ndim - 1 - i
            x = slice(g, x, d, first, -last if last else None)._replace(shape=(None,) * ndim)
    pad = [builtins.max(n, 0) if isinstance(n, int) else n for n in pad]
    before, after = [0] * ndim, [0] * ndim
    for i in range(len(pad) // 2):
        before[ndim - 1 - i], after[ndim - 1 - i] = pad[2 * i], pad[2 * i + 1]
    if mode == "circular":
        for d in range(ndim):
            if before[d] or after[d]:
                parts = [slice(g, x, d, -before[d])] if before[d] else []    # of the dimensions before, what has been added as well
                parts += [x, *([slice(g, x, d, 0, after[d])] if after[d] else [])]
                x = g.op("Concat", *parts, axis=d, shape=x.shape)
        return x
    fill = g.like(0 if value is None else value, x.dtype) if mode == "constant" else None
    if x.dtype is fb.bool:
        whole = g.op("Pad", g.cast(x, fb.int32), g.sizes(before + after), g.cast(fill, fb.int32) if fill else None, mode=_MODES[mode])
        return g.cast(whole, fb.bool)
    return g.op("Pad", x, g.sizes(before + after), fill, mode=_MODES[mode])


@translates("aten.pad.default")
def pad(g: Graph, input: Value, pad: list[Any], mode: str = "constant", value: Any = None) -> Value:
    return padded(g, input, pad, mode, value)


@translates("aten.constant_pad_nd.default")
def constant_pad(g: Graph, input: Value, pad: list[Any], value: Any = 0) -> Value:
    return padded(g, input, pad, "constant", value)


@translates("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(g: Graph, input: Value, padding: list[Any]) -> Value:
    return padded(g, input, padding, "reflect")


@translates("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad(g: Graph, input: Value, padding: list[Any]) -> Value:
    return padded(g, input, padding, "replicate")


@translates("aten._pad_circular.default")
def circular_pad(g: Graph, input: Value, pad: list[Any]) -> Value:
    return padded(g, input, pad, "circular")


@translates("aten.unfold.default")
def unfold(g: Graph, input: Value, dimension: int, size: int, step: int) -> Value:
    dim = dimension % builtins.max(input.ndim, 1)
    starts = np.arange(0, input_size(input, dim) - size + 1, step)
    taken = g.op("Gather", input, (starts[:, None] + np.arange(size)).astype(np.int64), axis=dim)
    return g.op("Transpose", taken, perm=[*(d for d in range(input.ndim + 1) if d != dim + 1), dim + 1])
