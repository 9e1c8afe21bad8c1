"""Repeating, tiling, flipping, rolling and turning."""

from __future__ import annotations

from operator import index as as_index

import numpy as np

from ..tensor import wrap_dim
from ._spec import (
    FUNCTION,
    METHOD,
    composite,
    primitive,
    wrap_dims,
)
from .shape import _contiguous_format


@composite(surface=METHOD, spread="repeats")
def repeat(self, repeats):
    """`self` tiled: copied `repeats` times along each dimension, new ones in front. For views see `expand`.

    >>> fb.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    counts = [as_index(r) for r in repeats]
    if len(counts) < self.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
            f"got {len(counts)} for {self.ndim}"
        )
    if any(r < 0 for r in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension in repeat{tuple(counts)}")
    shape = (1,) * (len(counts) - self.ndim) + tuple(self.shape)
    x = self.reshape([n for s in shape for n in (1, s)]).expand([n for r, s in zip(counts, shape, strict=True) for n in (r, s)])
    return x.clone(memory_format=_contiguous_format()).view([r * s for r, s in zip(counts, shape, strict=True)])


@composite(surface=FUNCTION | METHOD, spread="dims")
def tile(input, dims):
    """`input` repeated `dims` times along each dimension; missing leading dimensions count 1.

    >>> fb.tile(fb.tensor([[1], [2]]), (2,))
    tensor([[1, 1],
            [2, 2]])
    """
    counts = tuple(dims)
    return input.repeat((1,) * (input.ndim - len(counts)) + counts)


@primitive(surface=FUNCTION | METHOD, spread="dims")
def flip(input, dims):
    """`input` reversed along `dims`, in new memory; numpy would give a view, which has no negative strides here."""


@flip.kernel
def _flip(a, dims):
    axes = wrap_dims("flip", list(dims), a.ndim) if len(dims) else ()
    return np.ascontiguousarray(np.flip(a, axes)) if axes else a.copy()


@flip.vjp
def _flip_vjp(grad, dims):
    return (grad.flip(dims),)


@composite(surface=FUNCTION | METHOD)
def fliplr(input):
    """`input` reversed along its second dimension."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


@composite(surface=FUNCTION | METHOD)
def flipud(input):
    """`input` reversed along its first dimension."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


@composite(surface=FUNCTION | METHOD)
def rot90(input, k=1, dims=(0, 1)):
    """`input` turned by 90 degrees `k` times, from the first of `dims` towards the second.

    >>> fb.rot90(fb.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = wrap_dim(dims[0], input.ndim), wrap_dim(dims[1], input.ndim)
    if a == b:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    turns = k % 4
    if turns == 1:
        return input.flip(b).transpose(a, b)
    if turns == 2:
        return input.flip((a, b))
    return input.flip(a).transpose(a, b) if turns == 3 else input.clone(memory_format=_contiguous_format())


@primitive(surface=FUNCTION | METHOD)
def roll(input, shifts, dims=None):
    """`input` with its elements moved by `shifts` along `dims`, coming back in at the other end.

    Without `dims` it is rolled as if it were a vector.

    >>> fb.roll(fb.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """


@roll.kernel
def _roll(a, shifts, dims):
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if not moves:
        raise RuntimeError("roll: `shifts` required; give one for each of dims, got none")
    axes = None if dims is None or dims == () else (dims,) if isinstance(dims, int) else tuple(dims)
    if axes is None:
        if len(moves) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:0")
        return np.roll(a, moves[0])
    if len(moves) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    return np.roll(a, moves, tuple(wrap_dim(d, a.ndim) for d in axes))


@roll.vjp
def _roll_vjp(grad, shifts, dims):
    back = -shifts if isinstance(shifts, int) else tuple(-s for s in shifts)
    return (grad.roll(back, dims),)
