"""Joining tensors, and taking them apart."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu.shapes.order import is_ordered_last

from ... import _state, dtypes
from ..._arrays import MetaArray, ndarray
from ..._subclass import overridable_function
from ..._symbolic import SymInt, sym_min
from ...tensor import Tensor, wrap_dim
from .._batching import run, shifted
from .._makers import refusing
from .._spec import (
    CHANNELS_OF_ALL,
    FUNCTION,
    METHOD,
    NEVER,
    OUT,
    check_room,
    composite,
    describe,
    need_int,
    need_sizes,
    primitive,
    view,
)
from .._spec.names import keep, takes_out, unify
from .slices import _select, select, slice_dim, sliced

GRAD = _state.GRAD
_state.share(globals(), "GRAD")                               # keeps it as it is there
_new, _next_seq, _local = object.__new__, _state.next_seq, _state.local
_LARGE, _SEVERAL = 1 << 15, 1 << 9  # elements of an array from which joining a few, and many, of them repays a plan
_LARGE_IMAGES = 1 << 12  # the same of images with channels last, whose rows numpy copies one by one
_MOST_BYTES = 1 << 18  # of a stack, below which numpy is as quick


def _check_cat(tensors: Any, dim: Any) -> Any:
    from .._promote import result_type

    if isinstance(tensors, Tensor):
        raise TypeError("cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    tensors = list(tensors)
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"cat(): expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
    wanted = result_type([x if x.ndim else x.reshape(1) for x in tensors])
    shapes = [x for x in tensors if x._array.shape != (0,)]
    for i, x in enumerate(tensors):
        if x.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    if shapes:
        first = shapes[0]._array.shape
        d = wrap_dim(dim, len(first))
        for i, x in enumerate(shapes):
            s = x._array.shape
            if len(s) != len(first):
                raise RuntimeError(
                    f"cat: Tensors must have same number of dimensions: got {len(first)} and {len(s)}\n{describe(tensors=tensors)}"
                )
            if s[:d] + s[d + 1 :] != first[:d] + first[d + 1 :]:
                k = next(k for k in range(len(s)) if k != d and s[k] != first[k])
                raise RuntimeError(
                    f"cat: Sizes of tensors must match except in dimension {d}. Expected size {first[k]} but got size {s[k]} for "
                    f"tensor number {i} in the list.\n{describe(tensors=tensors)}"
                )
    else:
        d = wrap_dim(dim, 1)
    return [x if x.dtype is wanted else x.to(wanted) for x in tensors], d


@primitive(
    surface=FUNCTION | OUT, aliases=("concat", "concatenate"), check=_check_cat, autocast="widest", overlap=NEVER, memory=CHANNELS_OF_ALL,
    samples="(x(2, 3), x(1, 3)); (x(2, 3), x(2, 1)), 1",
    cast_error=TypeError,
    cuda="moves.cat",
    elements="moved",
    names=unify,
    deferrable=True,
)
def cat(tensors, dim=0):
    """The `tensors` one after another along `dim`; other dimensions must agree.

    One-dimensional empty tensors are skipped, as in PyTorch. Different dtypes are promoted.
    Raises: ValueError for an empty list; RuntimeError for shapes that differ.

    >>> fb.cat([fb.zeros(1, 2), fb.ones(2, 2)])
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """


@cat.in_pieces
def _cat_pieces(asked):
    shape = max((tuple(x.shape) for x in asked.operands), key=len)
    at = asked["dim"] % max(len(shape), 1)
    # An empty vector takes part wherever it is put.
    there = {i for i, x in enumerate(asked.operands) if x.ndim == len(shape)}
    parts = [asked.way(dict.fromkeys(range(len(asked.operands)), "sum"), "sum")]
    return parts + [asked.way(dict.fromkeys(there, d), d) for d in range(len(shape)) if d != at]


@cat.plan(lists=True, wraps="dim", builtin="hot_calls.cat(a_tensors, dim)")
def _joined_arrays(arrays, dim):
    """Arrays whose floating dtype is what numpy makes of them as well."""
    if dim.__class__ is not int or set(map(type, arrays)) != {ndarray}:
        return None
    joined = [a for a in arrays if a.shape != (0,)] or arrays
    if len(joined) < len(arrays) and len({a.dtype for a in arrays}) > 1:
        return None                                   # empty vectors count for the dtype
    arrays = joined
    d = arrays[0].dtype
    if any([a.dtype is not d for a in arrays]):       # noqa: C419
        # Numpy makes another of integers with float32, or of int16 with float16.
        d = _common_dtype(tuple(dict.fromkeys([a.dtype for a in arrays])))
        arrays = [a if a.dtype is d else kernels.recast(a, d) for a in arrays]
    first = arrays[0]
    made = _joined_at_once(arrays, dim) if first.size >= _LARGE and first.flags.c_contiguous else None
    if made is not None:
        return made
    if first.ndim > 3 and not first.flags.c_contiguous and is_ordered_last(first):
        # Channels are last, and those of the result if they are in all.
        return _joined_images(arrays, dim) if first.size >= _LARGE_IMAGES and all(map(is_ordered_last, arrays)) else None
    made = _concatenate(arrays, dim)
    if not made.flags.c_contiguous:                   # in the order of the arguments' memory, where it should be row-major
        made = np.ascontiguousarray(made)
    return made


@functools.cache
def _common_dtype(of: tuple[Any, ...]) -> Any:
    """The dtype that arrays of several dtypes are joined in."""
    return functools.reduce(dtypes.promote_types, map(dtypes.from_numpy_dtype, of)).numpy


@cat.batch
def _cat_batch(level: Any, op: Any, args: Any) -> Any:
    tensors, dim = args
    if any(x.ndim != tensors[0].ndim or x.ndim == 0 for x in tensors):
        return NotImplemented
    return level.wrap(run(op, [level.full(x) for x in tensors], shifted(tensors[0], dim)))


# Without asking each argument whether it overrides numpy's functions, which an ndarray does not.
_concatenate = getattr(np.concatenate, "_implementation", np.concatenate)


cat.shown_as(hides="tensors_shape")


@cat.kernel
def _cat(arrays, dim):
    kept = [a for a in arrays if a.shape != (0,)]
    if len(kept) < 1:
        return np.empty((0,), arrays[0].dtype)
    return _joined(kept, dim)


def _joined(arrays: Any, dim: int) -> Any:
    """The arrays one after another: in row-major order, unless all are images or volumes with channels last."""
    if not all(map(is_ordered_last, arrays)):
        made = _joined_at_once(arrays, dim) if arrays[0].size >= _LARGE else None
        if made is not None:
            return made
    elif arrays[0].size >= _LARGE_IMAGES:
        made = _joined_images(arrays, dim)
        if made is not None:
            return made
    return np.concatenate(arrays, dim)                # in the order of their memory; `cat.memory` has the last word


def _joined_images(arrays: Any, dim: int) -> Any:
    """`_joined_at_once` of images or volumes with channels last, which those of the result are too."""
    ndim = arrays[0].ndim
    if not -ndim <= dim < ndim:
        return None
    last, first = (0, *range(2, ndim), 1), (0, ndim - 1, *range(1, ndim - 1))
    made = _joined_at_once([a.transpose(last) for a in arrays], last.index(dim % ndim))
    return None if made is None else made.transpose(first)


def _joined_at_once(arrays: Any, dim: int) -> Any:
    """Large arrays of one dtype in row-major order, one after another along `dim`; None for others."""
    first = arrays[0]
    shape, d, ndim, total = first.shape, first.dtype, first.ndim, 0
    if first.__class__ is not ndarray or not -ndim <= dim < ndim:
        return None
    dim %= ndim
    before, after = shape[:dim], shape[dim + 1 :]
    outer, runs = math.prod(before), []
    for a in arrays:
        s = a.shape
        if a.dtype is not d or len(s) != ndim or s[:dim] != before or s[dim + 1 :] != after:
            return None
        total += s[dim]
        runs.append(a.nbytes // outer)
    return _run_together(arrays, (*before, total, *after), tuple(runs), outer)


def _run_together(*args: Any) -> Any:
    from flambeau_kernels.cpu.shapes.join import join

    return join(*args)


@cat.shape
def _cat_shape(tensors, dim):
    kept = [x for x in tensors if tuple(x.shape) != (0,)] or tensors[:1]
    shape = list(kept[0].shape)
    shape[dim] = sum(x.shape[dim] for x in kept)
    return shape, tensors[0].dtype


@cat.vjp
def _cat_vjp(grad, tensors_shape, dim):
    made, at = [], 0
    for shape in tensors_shape:
        if shape == (0,):
            made.append(grad.new_zeros(0))
        else:
            made.append(grad.narrow(dim, at, shape[dim]))
            at += shape[dim]
    return (made,)


@cat.vjp_on_arrays
def _cat_vjp_on_arrays(grad, tensors_shape, dim):
    made, at = [], 0
    for shape in tensors_shape:
        if shape == (0,):
            made.append(np.empty(0, grad.dtype))
        else:
            made.append(sliced(grad, dim, at, at + shape[dim], 1))
            at += shape[dim]
    return (made,)


def _check_list(name: str, tensors: Any) -> None:
    """Raise TypeError unless `tensors` is a sequence of Tensors, RuntimeError where it has none."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList; give at least one tensor")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): expected Tensor as element {i} in argument 'tensors', but got {type(x).__name__}")


def _check_same_shapes(name: str, tensors: Any) -> None:
    _check_list(name, tensors)
    for i, x in enumerate(tensors):
        if x.shape != tensors[0].shape:
            raise RuntimeError(
                f"{name} expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )


@composite(
    surface=FUNCTION | OUT, overlap=NEVER, autocast=("widest", None), samples="(x(2, 3), x(2, 3)); (x(2, 3), x(2, 3)), -1",
    cast_error=TypeError,
    elements="moved",
    deferrable=True,
)
def stack(tensors, dim=0):
    """The `tensors`, all of one shape, along a new dimension `dim`. Raises: RuntimeError for shapes that differ.

    >>> fb.stack([fb.zeros(2), fb.ones(2)], dim=1)
    tensor([[0., 1.],
            [0., 1.]])
    """
    _check_same_shapes("stack", tensors)
    ndim = tensors[0].ndim
    d = wrap_dim(dim, ndim + 1)
    if d < ndim and all([is_ordered_last(x._array) for x in tensors]):  # noqa: C419  # sooner than a generator
        # Each keeps its channels last, and the new dimension lies around the one before which it is put.
        order = [0, *range(2, ndim), 1]
        at = order.index(d)
        made = cat([x.permute(order).unsqueeze(at) for x in tensors], at)
        order = [e + (e >= d) for e in order]
        order.insert(at, d)
        return made.permute([order.index(e) for e in range(ndim + 1)])
    return cat([x.unsqueeze(d) for x in tensors], d)


stack.result_shown_as("StackBackward0")


@stack.plan(lists=True, builtin="hot_calls.stack(a_tensors, dim)")
def _stacked(arrays, dim):
    """Arrays of one shape and dtype, joined without a view of each."""
    if set(map(type, arrays)) != {ndarray}:
        return None
    first = arrays[0]
    shape, d = first.shape, first.dtype
    for a in arrays:
        if a.shape != shape or a.dtype is not d:
            return None
    if len(shape) in (4, 5) and not first.flags.c_contiguous:
        return None                                   # channels may be last
    if dim.__class__ is not int or d.isbuiltin != 1:
        return None
    n, ndim = len(arrays), len(shape)
    if not -1 - ndim <= dim <= ndim:
        return None
    if not ndim:
        return np.array(arrays, d)
    dim %= ndim + 1
    if first.nbytes * n >= _MOST_BYTES and first.size >= _SEVERAL:
        outer = math.prod(shape[:dim])
        made = _run_together(arrays, (*shape[:dim], n, *shape[dim:]), (first.nbytes // outer,) * n, outer)
        if made is not None:
            return made
    if dim == 0:
        return _rows_joined(arrays, n, shape, d)
    made = np.empty((*shape[:dim], n, *shape[dim:]), d)
    _concatenate([a.reshape(*shape[:dim], 1, *shape[dim:]) for a in arrays], dim, made)
    return made


def _rows_joined(arrays: Any, n: int, shape: tuple[int, ...], d: np.dtype) -> Any:
    """The arrays one below another along a new first dimension."""
    made = np.empty((n, *shape), d)
    _concatenate(arrays, 0, made.reshape(n * shape[0], *shape[1:]))
    return made


@composite(surface=FUNCTION | OUT, aliases=("row_stack",), overlap=NEVER, samples="(x(3), x(2, 3))", cast_error=TypeError, elements="moved")
def vstack(tensors):
    """The `tensors` one below another; vectors count as rows.

    >>> fb.vstack([fb.zeros(2), fb.ones(2, 2)])
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """
    _check_list("vstack", tensors)
    return cat([x.reshape(1, -1) if x.ndim < 2 else x for x in tensors], 0)


@vstack.forwards
def _matrices_below(tensors):
    return _joined_matrices(tensors, 0)


def _joined_matrices(tensors: Any, dim: int) -> Any:
    """What has two dimensions or more, one after another along `dim`; None for everything else."""
    if tensors.__class__ is not list and tensors.__class__ is not tuple:
        return None
    for x in tensors:
        if not isinstance(x, Tensor) or x._array.ndim < 2:
            return None
    return cat.answer(tensors, dim)


@composite(surface=FUNCTION | OUT, overlap=NEVER, samples="(x(3), x(2)); (x(2, 3), x(2, 1))", cast_error=TypeError, elements="moved")
def hstack(tensors):
    """The `tensors` one beside another: along dimension 1, of vectors along 0.

    >>> fb.hstack([fb.zeros(2, 1), fb.ones(2, 2)])
    tensor([[0., 1., 1.],
            [0., 1., 1.]])
    """
    _check_list("hstack", tensors)
    pieces = [x.reshape(1) if x.ndim == 0 else x for x in tensors]
    return cat(pieces, 0 if pieces[0].ndim == 1 else 1)


@hstack.forwards
def _one_beside_another(tensors):
    if (tensors.__class__ is not list and tensors.__class__ is not tuple) or not tensors or not isinstance(tensors[0], Tensor):
        return None
    ndim = tensors[0]._array.ndim
    return cat.answer(tensors, 0 if ndim == 1 else 1) if ndim else None


@composite(surface=FUNCTION | OUT, overlap=NEVER, samples="(x(3), x(3)); (x(2, 3), x(2, 3))", cast_error=TypeError, elements="moved")
def dstack(tensors):
    """The `tensors` one behind another, along the third dimension."""
    _check_list("dstack", tensors)
    return cat([_at_least(x, 3) for x in tensors], 2)


@composite(surface=FUNCTION | OUT, overlap=NEVER, samples="(x(3), x(3, 2))", cast_error=TypeError, elements="moved")
def column_stack(tensors):
    """The `tensors` as columns; matrices contribute all of theirs.

    >>> fb.column_stack([fb.zeros(2), fb.ones(2)])
    tensor([[0., 1.],
            [0., 1.]])
    """
    _check_list("column_stack", tensors)
    return cat([x.reshape(-1, 1) if x.ndim < 2 else x for x in tensors], 1)


@column_stack.forwards
def _matrices_beside(tensors):
    return _joined_matrices(tensors, 1)


def _at_least(x: Tensor, ndim: int) -> Tensor:
    if x.ndim >= ndim:
        return x
    if ndim == 1 or x.ndim == 0:
        return x.reshape((1,) * ndim)
    if ndim == 2:
        return x.unsqueeze(0)
    return x.unsqueeze(0).unsqueeze(-1) if x.ndim == 1 else x.unsqueeze(-1)


def _each_at_least(tensors: Any, ndim: int) -> Any:
    if len(tensors) == 1:
        tensors = tensors[0]
    return _at_least(tensors, ndim) if isinstance(tensors, Tensor) else tuple(_at_least(x, ndim) for x in tensors)


def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least one dimension."""
    return _each_at_least(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least two dimensions."""
    return _each_at_least(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least three dimensions."""
    return _each_at_least(tensors, 3)


@view(surface=0, several=True, operator="split_with_sizes(input, sizes, dim)", samples="of split", public_name="split_with_sizes")
def split_sizes(input, sizes, dim):
    """`input` cut into pieces of `sizes` along `dim`."""


split_sizes.shown_as("SplitBackward0", hides="sizes", split_size=lambda saved: saved["sizes"][0])


@split_sizes.kernel
def _split(a, sizes, dim):
    made, at = [], 0
    if dim == 0 and a.__class__ is ndarray:
        for n in sizes:
            made.append(a[at : at + n])
            at += n
        return made
    for n in sizes:
        made.append(sliced(a, dim, at, at + n, 1))
        at += n
    return made


split_sizes.cuts("dim", into="sizes")


@split_sizes.piece
def _piece_of_split(index, ndim, sizes, dim):
    global _last_split
    last, ends = _last_split
    if last is not sizes:                             # the pieces of one split share the tuple
        ends = (0, *accumulate(sizes))
        _last_split = sizes, ends
    return slice_dim, (dim, ends[index], ends[index + 1], 1)


@split_sizes.batch
def _split_sizes_batch(level: Any, op: Any, args: Any) -> Any:
    x, sizes, dim = args
    return level.wrap(run(op, level.front(x), sizes, shifted(x, dim)))


_last_split: Any = (), (0,)
split_sizes.vjp(lambda grad: grad)  # each piece has its own history


@view(surface=0, several=True, operator="split(input, size, dim)", samples="x(5, 2), 2, 0", public_name="split")
def split_into_size(input, size, dim):
    """`input` cut along `dim` into pieces of `size`, the last of what is left: `split` where sizes are symbols.

    A graph of it cuts other inputs into pieces of that size too, in whatever number.
    """


@split_into_size.kernel
def _split_by_size(a, size, dim):
    return _split(a, _sizes_of_pieces(a.shape[dim], size), dim)


def _sizes_of_pieces(n: Any, size: Any) -> tuple[Any, ...]:
    before = int(-(-n // size)) - 1 if n else 0
    return (*(size,) * before, n - size * before)


@split_into_size.piece
def _piece_of_size(index, ndim, size, dim):
    return slice_dim, (dim, index * size, (index + 1) * size, 1)


@split_into_size.batch
def _split_into_size_batch(level: Any, op: Any, args: Any) -> Any:
    x, size, dim = args
    return level.wrap(run(op, level.front(x), size, shifted(x, dim)))


split_into_size.vjp(lambda grad: grad)  # each piece has its own history


@composite(
    surface=FUNCTION | METHOD, numpy_names=False, named_too={"split_size_or_sections": ("split_size",)},
    samples="x(5, 2), 2; x(2, 5), (1, 4), 1", elements="moved",
    names=keep,
)
def split(tensor, split_size_or_sections: int | Sequence[int], dim=0):
    """Views of `tensor` cut along `dim`, as a tuple.

    Args:
        split_size_or_sections: the size of each piece (the last may be smaller), or a list of sizes that add up to
            the dimension.

    >>> fb.split(fb.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, tensor.ndim)
    n = tensor.shape[d]
    sizes = split_size_or_sections
    if isinstance(sizes, (tuple, list)):
        sizes = need_sizes("split", "split_size", sizes)
    else:
        sizes = need_int("split", "split_size", sizes)
    if isinstance(sizes, (int, SymInt)):
        if sizes < 0 or (sizes == 0 and n):
            raise RuntimeError(f"split expects split_size be {'non-negative' if sizes else 'positive'}, but got split_size={sizes}")
        if isinstance(sizes, SymInt) or isinstance(n, SymInt):
            return split_into_size.function(tensor, sizes, d)
        sizes = _sizes_of_pieces(n, sizes)
    elif sum(sizes) != n or any(s < 0 for s in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {d}), "
            f"but got split_sizes={list(sizes)}"
        )
    return split_sizes.function(tensor, tuple(sizes), d)


@split.forwards
def _split_pieces(tensor, split_size_or_sections, dim):
    a, size = tensor._array, split_size_or_sections
    if a.__class__ is not ndarray or dim.__class__ is not int:
        return None
    d = dim if dim >= 0 else dim + a.ndim
    if not 0 <= d < a.ndim:
        return None
    n = a.shape[d]
    if size.__class__ is int:
        if not 0 < size < 1 << 63 or not n:
            return None
        sizes = (size,) * (n // size) if not n % size else (*(size,) * (n // size), n % size)
    elif size.__class__ is list or size.__class__ is tuple:
        sizes = tuple(size)
        if not sizes or set(map(type, sizes)) != {int} or min(sizes) < 0 or sum(sizes) != n:
            return None
    else:
        return None
    return split_sizes.cut_up(tensor, (sizes, d))


@composite(surface=FUNCTION | METHOD, samples="x(5, 2), (2, 3); x(2, 5), (1, 4), 1", elements="moved")
def split_with_sizes(input, split_sizes: Sequence[int], dim=0):
    """Views of `input` cut along `dim` into pieces of the sizes `split_sizes`, which add up to the dimension."""
    return split(input, split_sizes, dim)


@composite(surface=FUNCTION | METHOD, samples="x(5, 2), 3; x(2, 5), 2, 1", elements="moved", names=keep)
def chunk(input, chunks: int, dim=0):
    """Views of `input` cut along `dim` into at most `chunks` pieces of equal size, the last possibly smaller.

    There may be fewer: 5 elements in 4 chunks give 2 + 2 + 1. `tensor_split` gives as many as asked for.
    """
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = need_int("chunk", "chunks", chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if chunks >= 1 << 63:
        raise ValueError(f"chunk(): Overflow when unpacking long long: 'chunks' is 2**63 or more: {chunks}")
    n = input.shape[dim]
    size = (n + chunks - 1) // chunks
    return split(input, [0] * chunks, dim) if size == 0 else split(input, size, dim)


@chunk.forwards
def _split_into(input, chunks, dim):
    usual = chunks.__class__ is int and 0 < chunks < 1 << 63
    return split.answer(input, -(-input._array.shape[dim] // chunks), dim) if usual else None


_OF_PIECES = {"indices_or_sections": ("indices", "sections")}


@composite(
    surface=FUNCTION | METHOD, named_too={"indices_or_sections": ("indices", "sections", "tensor_indices_or_sections")},
    samples="x(5, 2), 3; x(2, 5), (1, 3), 1", elements="moved",
)
def tensor_split(input, indices_or_sections, dim=0):
    """Views of `input` cut along `dim`, as a tuple.

    Args:
        indices_or_sections: a number of sections of nearly equal size, or the indices at which to cut.

    >>> fb.tensor_split(fb.arange(5), (1, 3))
    (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = wrap_dim(dim, input.ndim)
    n = input.shape[d]
    at = indices_or_sections
    if isinstance(at, Tensor):
        if at.dtype is not dtypes.int64:
            raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got {at.dtype}")
        if at.ndim > 1:
            raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to have at most one dimension, got {at.ndim}")
        at = at.tolist()
    if isinstance(at, (int, np.integer)):
        at = int(at)
        if at <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {at}")
        check_room("tensor_split", (at,), _BYTES_OF_A_VIEW)
        least, extra = n // at, n % at
        bounds = [i * least + sym_min(i, extra) for i in range(1, at)]
    else:
        at = [need_int("tensor_split", "indices", i) for i in at]
        bounds = [min(max(i + n if i < 0 else i, 0), n) for i in at]
    pieces, before = [], 0
    for b in [*bounds, n]:
        pieces.append(slice_dim.function(input, d, before, max(b, before), 1))
        before = b
    return tuple(pieces)


_BYTES_OF_A_VIEW = 1000
_MOST_AT_ONCE = 1 << 16


@tensor_split.forwards
def _even_pieces(input, indices_or_sections, dim):
    a, at = input._array, indices_or_sections
    if a.__class__ is not ndarray or dim.__class__ is not int or at.__class__ is not int or not 0 < at <= _MOST_AT_ONCE:
        return None
    d = dim if dim >= 0 else dim + a.ndim
    if not 0 <= d < a.ndim:
        return None
    least, extra = divmod(a.shape[d], at)
    sizes = (least + 1,) * extra + (least,) * (at - extra)
    ends = (0, *accumulate(sizes))
    # Pieces that are slices each: unlike those of `split` they may be written with history.
    slices = [(d, i, j, 1) for i, j in itertools.pairwise(ends)]
    made = slice_dim.of_all_parts(input, d, sizes, slices)
    return tuple([slice_dim.of(input, sliced(a, *of), of) for of in slices]) if made is None else made


def _split_at(name: str, smallest: int, dim: int, samples: str) -> Any:
    def cut(input: Any, indices_or_sections: int | Sequence[int]) -> Any:
        if input.ndim < smallest:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {smallest} dimension{'s' if smallest > 1 else ''}, "
                f"but got a tensor with {input.ndim} dimensions!"
            )
        d = min(dim, input.ndim - 1)
        if isinstance(indices_or_sections, int) and (
            indices_or_sections <= 0 or input.shape[d] % indices_or_sections
        ):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {d}, but the size of the dimension {input.shape[d]} is not "
                f"divisible by the split_size {indices_or_sections}!"
            )
        return tensor_split(input, indices_or_sections, d)

    cut.__name__ = name
    cut.__doc__ = f"`tensor_split` along the dimension numpy's {name} uses."
    op = composite(surface=FUNCTION | METHOD, named_too=_OF_PIECES, samples=samples, elements="moved")(cut)

    @op.forwards
    def into_equal(input: Any, indices_or_sections: Any) -> Any:
        a, n = input._array, indices_or_sections
        if a.__class__ is not ndarray or n.__class__ is not int or n <= 0 or a.ndim < smallest:
            return None
        d = min(dim, a.ndim - 1)
        return None if a.shape[d] % n else tensor_split.answer(input, n, d)

    return op


hsplit = _split_at("hsplit", 1, 1, "x(4, 6), 3; x(6), (2, 3)")
vsplit = _split_at("vsplit", 2, 0, "x(4, 6), 2")
dsplit = _split_at("dsplit", 3, 2, "x(2, 3, 4), 2")


@view(surface=FUNCTION | METHOD, several=True, samples="x(3, 2); x(2, 3), 1", elements="moved", names=takes_out)
def unbind(input, dim=0):
    """The slices of `input` along `dim`, which they lack, as a tuple of views."""


unbind.shown_as(hides="input_shape")


@unbind.kernel
def _unbind(a, dim):
    if a.__class__ is ndarray and a.ndim > 1 and dim.__class__ is int and dim == 0:
        return list(a)
    if a.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    d = wrap_dim(dim, a.ndim)
    if type(a) is not MetaArray:
        moved = a if d == 0 else a.swapaxes(d, 0) if a.ndim < 3 else np.moveaxis(a, d, 0)
        if a.ndim > 1 and a.__class__ is ndarray:
            return list(moved)
        return [moved[i, ...] for i in range(a.shape[d])]
    return tuple(_select(a, d, i) for i in range(a.shape[d]))


unbind.cuts("dim")


@unbind.piece
def _piece_of_unbind(index, ndim, dim):
    return select, (wrap_dim(dim, ndim), index)


unbind.vjp(lambda grad: grad)  # each piece has its own history


@unbind.batch
def _unbind_batch(level: Any, op: Any, args: Any) -> Any:
    x, dim = args
    return level.wrap(run(op, level.front(x), shifted(x, dim)))


FUNCTIONS = {fn.__name__: overridable_function(refusing(fn)) for fn in (atleast_1d, atleast_2d, atleast_3d)}
