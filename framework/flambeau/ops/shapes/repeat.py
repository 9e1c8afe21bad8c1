"""Repeating, tiling, flipping, rolling and turning."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu.shapes import move
from flambeau_kernels.cpu.shapes.reversal import reversed_rows

from ... import _arrays
from ..._symbolic import SymInt, as_size
from ...tensor import Tensor, wrap_dim
from .._batching import along, run, shifted
from .._spec import (
    CHANNELS,
    FUNCTION,
    METHOD,
    composite,
    int_list,
    need_int,
    need_sizes,
    primitive,
    wrap_dims,
)
from .reshape import _contiguous_format


@composite(surface=METHOD, variadic="repeats", samples="x(2, 3), (2, 1); x(3), (2, 2)", elements="moved", deferrable=True)
def repeat(self, repeats):
    """`self` tiled: copied `repeats` times along each dimension, new ones in front. For views see `expand`.

    >>> fb.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    if isinstance(repeats, SymInt):
        repeats = (repeats,)
    if not isinstance(repeats, (tuple, list)):
        raise TypeError(f"repeat(): argument 'repeats' must be tuple of ints, not {type(repeats).__name__}")
    counts = [as_size(r) for r in repeats]
    if len(counts) < self.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: "
            f"got {len(counts)} for {self.ndim}"
        )
    if any(r < 0 for r in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension in repeat{tuple(counts)}")
    shape = (1,) * (len(counts) - self.ndim) + tuple(self.shape)
    x = self.reshape([n for s in shape for n in (1, s)]).expand([n for r, s in zip(counts, shape, strict=True) for n in (r, s)])
    made = x.clone(memory_format=_contiguous_format()).view([r * s for r, s in zip(counts, shape, strict=True)])
    if made.__class__ is Tensor:
        made._view_of = None  # of a copy that nobody else sees
    return made


repeat.result_shown_as("RepeatBackward0")


@repeat.plan
def _repeated(a, repeats):
    if not isinstance(repeats, (tuple, list)):
        return None
    counts, shape = tuple(repeats), a.shape
    extra = len(counts) - len(shape)
    if extra < 0 or not a.size:
        return None
    wide, narrow, merged_sizes = [], [], []
    for i, r in enumerate(counts):
        if r.__class__ is not int or r <= 0:
            return None
        n = shape[i - extra] if i >= extra else 1
        wide += (r, n)
        narrow += (1, n)
        merged_sizes.append(r * n)
    made = np.empty(merged_sizes, a.dtype)
    shaped, piece = made.reshape(wide), a.reshape(narrow)
    if made.size < move.FROM or not move.into(shaped, piece):
        shaped[...] = piece
    return made


@composite(surface=FUNCTION | METHOD, variadic="dims", samples="x(2, 3), (2,); x(3), (2, 2)", elements="moved")
def tile(input: Tensor, dims):
    """`input` repeated `dims` times along each dimension; missing leading dimensions count 1.

    >>> fb.tile(fb.tensor([[1], [2]]), (2,))
    tensor([[1, 1],
            [2, 2]])
    """
    counts = need_sizes("tile", "dims", dims)
    return input.repeat((1,) * (input.ndim - len(counts)) + counts)


@tile.forwards
def _tile_by_repeat(input, dims):
    if not isinstance(dims, (tuple, list)):
        return None
    counts = tuple(dims)
    return repeat.answer(input, (1,) * (input._array.ndim - len(counts)) + counts)


@primitive(
    surface=FUNCTION | METHOD, variadic="dims", samples="x(2, 3), (0,); x(2, 3), (0, 1)", batch_rule=along, cuda="moves.flip",
    elements="moved",
    deferrable=True,
)
def flip(input, dims):
    """`input` reversed along `dims`, in new memory; numpy would give a view, which has no negative strides here."""


flip.in_pieces(along="dims")


@flip.kernel
def _flip(a, dims):
    dims = int_list(dims)
    axes = wrap_dims("flip", dims, a.ndim) if dims else ()
    made = _arrays.empty_like_layout(a.shape, a.dtype, [a])
    kernels.store(made, np.flip(a, axes) if axes else a)
    return made


_ALL, _BACKWARD = slice(None), slice(None, None, -1)


@flip.shape
def _flip_shape(input, dims):
    wrap_dims("flip", int_list(dims), input.ndim)
    return input.shape, input.dtype, _arrays.like_strides(input.shape, input._array.itemsize, [input._array])


@flip.plan
def _flip_planned(a, dims):
    if not a.ndim or not a.flags.c_contiguous or not isinstance(dims, (tuple, list)):
        return None
    keys = [_ALL] * a.ndim
    for d in dims:
        if d.__class__ is not int or keys[d] is _BACKWARD:
            return None
        keys[d] = _BACKWARD
    if keys[-1] is _BACKWARD and keys.count(_BACKWARD) == 1:
        made = reversed_rows(a)
        if made is not None:
            return made
    return move.in_rows(a[tuple(keys)])


@flip.vjp_on_arrays
def _flip_vjp_on_arrays(grad, dims):
    return (_flip(grad, dims),)


@flip.vjp
def _flip_vjp(grad, dims):
    return (grad.flip(dims),)


@composite(surface=FUNCTION | METHOD, samples="x(2, 3)", elements="moved")
def fliplr(input):
    """`input` reversed along its second dimension."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


@composite(surface=FUNCTION | METHOD, samples="x(2, 3)", elements="moved")
def flipud(input):
    """`input` reversed along its first dimension."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


@composite(surface=FUNCTION | METHOD, samples="x(2, 3); x(2, 3), 2, (1, 0)", elements="moved")
def rot90(input, k=1, dims=(0, 1)):
    """`input` turned by 90 degrees `k` times, from the first of `dims` towards the second.

    >>> fb.rot90(fb.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    k = need_int("rot90", "k", k)
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


rot90.result_shown_as("Rot90Backward0")


def _check_roll(input, shifts, dims):
    dims = None if dims is None else tuple(int_list(dims))
    if not dims:
        return input.contiguous(), shifts, dims       # as a vector it is row-major
    moves, axes = _moves(input.ndim, shifts, dims)
    extents = [input.shape[d] for d in axes or ()]
    if any([n and move % n == 0 for move, n in zip(moves, extents, strict=True)]):  # noqa: C419  # of a list, in half the time
        return input.contiguous(), shifts, dims       # so is what stays where it is along one of them
    return input, shifts, dims


@primitive(
    surface=FUNCTION | METHOD, check=_check_roll, memory=CHANNELS,
    samples="x(2, 3), 1; x(2, 3), (1, -1), (0, 1)",
    cuda="moves.roll",
    elements="moved",
    deferrable=True,
)
def roll(input, shifts, dims=None):
    """`input` with its elements moved by `shifts` along `dims`, coming back in at the other end.

    Without `dims` it is rolled as if it were a vector.

    >>> fb.roll(fb.tensor([1, 2, 3]), 1)
    tensor([3, 1, 2])
    """


roll.shown_as(
    "RollBackward0", shifts=lambda saved: _as_tuple(saved["shifts"]), dims=lambda saved: _as_tuple(saved["dims"])
)
roll.in_pieces(along="dims")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, (int, SymInt)) else tuple(value)


def _moves(ndim: int, shifts: Any, dims: Any) -> tuple[Any, tuple[int, ...] | None]:
    """How far, and along which dimensions, None for all as one."""
    if getattr(shifts, "ndim", 0):
        raise TypeError(f"roll(): argument 'shifts' (position 2) must be tuple of ints, not Tensor of shape {tuple(shifts.shape)}")
    if isinstance(shifts, (list, tuple)):
        moves = tuple(need_int("roll", "shifts", n) for n in shifts)
    elif isinstance(shifts, (int, np.integer, np.ndarray, Tensor, SymInt)):
        moves = (need_int("roll", "shifts", shifts),)
    else:
        raise TypeError(f"roll(): argument 'shifts' (position 2) must be tuple of ints, not {type(shifts).__name__}")
    if not moves:
        raise RuntimeError("roll: `shifts` required; give one for each of dims, got none")
    axes = None if dims is None else tuple(int_list(dims)) or None
    if axes is None:
        if len(moves) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:0")
        return moves[0], None
    if len(moves) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    if not ndim:
        raise IndexError(f"Dimension specified as {axes[0]} but tensor has no dimensions")
    return moves, tuple(wrap_dim(d, ndim) for d in axes)


@roll.kernel
def _roll(a, shifts, dims):
    return np.asarray(np.roll(a, *_moves(a.ndim, shifts, dims)), order="C")


@roll.shape
def _roll_shape(input, shifts, dims):
    _moves(input.ndim, shifts, dims)
    return input.shape, input.dtype


@roll.batch
def _roll_batch(level: Any, op: Any, args: Any) -> Any:
    x, shifts, dims = args
    if dims is None or (isinstance(dims, (list, tuple)) and not dims) or x.ndim == 0:
        return NotImplemented
    return level.wrap(run(op, level.front(x), shifts, shifted(x, dims)))


def _joined(pieces, dim):
    """Two pieces of an array one after the other along `dim`."""
    first, second = pieces
    if first.size + second.size < kernels.UFUNC_COMPILED_FROM:
        return np.concatenate(pieces, dim)
    shape = list(first.shape)
    at, shape[dim] = shape[dim], shape[dim] + second.shape[dim]
    made = np.empty(shape, first.dtype)
    before = (_ALL,) * dim
    kernels.store(made[(*before, slice(at))], first)
    kernels.store(made[(*before, slice(at, None))], second)
    return made


def _rolled(a, shifts, dims):
    """`a` rolled along several dimensions, each of them once: in pieces that stay together. None for other arguments."""
    if len(shifts) != len(dims) or not 0 < len(dims) <= _MOST_ROLLED or len({d % a.ndim for d in dims}) < len(dims):
        return None
    pairs = [((), ())]                                # where pieces come from, and where they go
    keys = [((_ALL, _ALL),)] * a.ndim
    for d, shift in zip(dims, shifts, strict=True):
        n = a.shape[d]
        at = shift % n
        keys[d] = ((slice(0, n - at), slice(at, n)), (slice(n - at, n), slice(0, at))) if at else keys[d]
    for choices in keys:
        pairs = [((*source, of), (*target, to)) for source, target in pairs for of, to in choices]
    made = np.empty(a.shape, a.dtype)
    for source, target in pairs:
        to, piece = made[target], a[source]
        if not move.into(to, piece):
            to[...] = piece
    return made


_MOST_ROLLED = 3


@roll.plan
def _roll_planned(a, shifts, dims):
    if shifts.__class__ is tuple and dims.__class__ is tuple and a.size and a.ndim:
        # Where it stays in place along one of them, channels that are last do not stay last: see `_check_roll`.
        moved = a.flags.c_contiguous or all(shift % a.shape[d] for shift, d in zip(shifts, dims, strict=False))
        return _rolled(a, shifts, dims) if moved else None
    if shifts.__class__ is not int or not a.size or not a.flags.c_contiguous:
        return None
    if dims is None:
        flat = a.ravel()
        at = -shifts % flat.size
        return _joined([flat[at:], flat[:at]], 0).reshape(a.shape)
    if dims.__class__ is not int or not -a.ndim <= dims < a.ndim:
        return None
    at = -shifts % a.shape[dims]
    if dims == 0 or dims == -a.ndim:
        return _joined([a[at:], a[:at]], 0)
    before = (_ALL,) * (dims % a.ndim)
    return _joined([a[(*before, slice(at, None))], a[(*before, slice(None, at))]], dims % a.ndim)


def _back(shifts):
    return tuple(-s for s in shifts) if isinstance(shifts, (tuple, list)) else -shifts


@roll.vjp_on_arrays(memory=CHANNELS)
def _roll_vjp_on_arrays(grad, shifts, dims):
    return _roll(grad, _back(shifts), dims)


@roll.vjp
def _roll_vjp(grad, shifts, dims):
    return (grad.roll(_back(shifts), dims),)
