"""The keys of ``x[key]``: as tuples of ints, slices, None, Ellipsis and Tensors, and as numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing import scatter

from ... import _state, dtypes
from ..._arrays import MetaArray, ndarray
from ..._errors import ShapeCannotBeKnown
from ..._symbolic import SymInt, fresh
from ..._warn import warn
from ...tensor import Tensor, wrap

INT64, INT32, BOOL = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.bool_)
ALL = slice(None)
INTEGERS = (dtypes.int64, dtypes.int32)
NUMPY_UP_TO = 1024                                         # elements up to which numpy answers soonest


def basic_key(key: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """numpy's form of a `key` of ints, None, Ellipsis and slices that do not go back; None for other keys.

    It holds an Ellipsis, so that numpy answers with an array even where every dimension is selected.
    """
    open_ended = True
    for k in key:
        kind = k.__class__
        if kind is slice:
            if k.step is not None and (k.step.__class__ is not int or k.step <= 0):
                return None
        elif k is Ellipsis and open_ended:
            open_ended = False
        elif kind is not int and k is not None:
            return None
    return (*key, ...) if open_ended else key


def plain_key(key: tuple[Any, ...]) -> tuple[Any, Any, int] | None:
    """`key` as a basic index, None if it is of full slices, and numpy's index of the view that the basic one takes.

    The second has the index vectors and masks. Last where in it the Ellipsis is, -1 for nowhere. None for a key of other
    things, or without index vectors and masks.
    """
    basic: list[Any] = []
    rest: list[Any] = []
    is_all, indexed, dots = True, False, -1
    for k in key:
        kind = k.__class__
        if kind is list:
            k = list_index(k)
            kind = k.__class__
        if kind is Tensor:
            array = k._array
            if array.__class__ is not ndarray:
                return None
            if array.dtype is INT32 and array.ndim:
                array = array.astype(INT64)
            if array.dtype is INT64:
                if array.ndim:
                    indexed = True
                    basic.append(ALL)
                    rest.append(array)
                else:
                    basic.append(array.item())
                    is_all = False
            elif array.dtype is BOOL and array.size and array.ndim:  # numpy lets an empty mask fit anything
                indexed = True
                basic += (ALL,) * array.ndim
                rest.append(array)
            else:
                return None
        elif kind is slice:
            if k.step is not None and (k.step.__class__ is not int or k.step <= 0):
                return None
            is_all = is_all and k == ALL
            basic.append(k)
            rest.append(ALL)
        elif kind is int:
            is_all = False
            basic.append(k)
        elif k is Ellipsis:
            if dots >= 0:
                return None
            dots = len(rest)
            basic.append(k)
            rest.append(k)
        elif k is None:
            is_all = False
            basic.append(k)
            rest.append(ALL)
        else:
            return None
    return (None if is_all else tuple(basic), tuple(rest), dots) if indexed else None


def list_index(values: list[Any]) -> Any:
    """A list of integers, or of truth values, as the index it stands for; None for other lists."""
    kinds = set(map(type, values))
    if kinds != {int} and kinds != {bool}:
        return values
    try:
        return wrap(np.array(values, INT64 if int in kinds else BOOL))
    except OverflowError:
        return values                                 # which `normalize` refuses


def places_of(there: tuple[Any, ...], dots: int, ndim: int) -> list[Any]:
    """One index vector, or None for all, for each of the first dimensions that numpy's index `there` speaks of."""
    made: list[Any] = []
    for k in there:
        if k.__class__ is slice:
            made.append(None)
        elif k is Ellipsis or k.dtype is INT64:
            made.append(k)
        else:
            made.extend(k.nonzero() if k.size < NUMPY_UP_TO else scatter.nonzero(k))
    if dots >= 0:
        at = next(i for i, k in enumerate(made) if k is Ellipsis)
        made[at : at + 1] = [None] * (ndim - len(made) + 1)
    return made


def normalize(key: Any) -> tuple[Any, ...]:
    """`key` as a tuple of ints, slices, None, Ellipsis and Tensors; bools and masks are Tensors of bools."""
    if isinstance(key, list):
        # A list is one index tensor, unless it holds slices, sequences and the like, when it stands for a tuple.
        nested = any(k is None or k is Ellipsis or isinstance(k, (slice, Tensor, list, tuple, ndarray)) for k in key)
        if nested:
            warn(
                "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq], or "
                "x[torch.tensor(seq)] for an index of several dimensions"
            )
        key = tuple(key) if nested else (_index_tensor(key),)
    return tuple(_normal(k) for k in (key if isinstance(key, tuple) else (key,)))


def _normal(k: Any) -> Any:
    if k is None or k is Ellipsis:
        return k
    if isinstance(k, (bool, np.bool_)):
        return wrap(np.array(bool(k)))
    if k.__class__ is SymInt:
        return k
    if isinstance(k, int):
        return _within(int(k))
    if isinstance(k, slice):
        return slice(_bound(k.start), _bound(k.stop), _bound(k.step))
    if isinstance(k, Tensor):
        return int(k._array) if not k.ndim and k.dtype in INTEGERS and type(k._array) is ndarray else k
    if isinstance(k, ndarray):
        return _normal(wrap(k))
    if isinstance(k, (list, tuple, range)):
        return _index_tensor(k)
    if isinstance(k, (str, bytes)):
        raise TypeError(f"a tensor cannot be indexed with {type(k).__name__} {k!r}; use ints, slices, None, ... or tensors")
    if hasattr(k, "__index__"):
        return _within(k.__index__())
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
        f"{type(k).__name__})"
    )


def _within(k: int) -> int:
    """`k`, if it is an int64. Raises: ValueError."""
    if not -(1 << 63) <= k < 1 << 63:
        raise ValueError(f"index {k}: Overflow when unpacking long long, indices are below 2**63")
    return k


def _index_tensor(values: Any) -> Tensor:
    """A list of ints or bools, possibly nested, as the index it stands for; numbers with a fraction lose it."""
    from ..creation.from_values import tensor

    if len(values) == 0:
        return wrap(np.zeros((0,), np.int64))
    made = tensor(values)
    return made.to(dtypes.int64) if made.dtype.category == dtypes.FLOATING else made


def _bound(x: Any) -> Any:
    return int(x) if isinstance(x, Tensor) else x


def is_mask(k: Any) -> bool:
    return isinstance(k, Tensor) and (k.dtype is dtypes.bool or k.dtype is dtypes.uint8)


def tensors_at(k: Tensor, shape: Any, d: int, count: int | None = None) -> list[Tensor]:
    """The index tensors that an index or mask at dimension `d` stands for.

    Args:
        count: how many elements a mask on meta, which has no values, is taken to pick; without it that is an error.
    """
    if not is_mask(k):
        if k.dtype not in INTEGERS:
            raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {k.dtype}")
        return [k]
    if k.dtype is dtypes.uint8:
        warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    if k.ndim and any(x.records for x in _state.local.calls.interpreters):
        _check_fits(k, shape, d)
        return _places_in(k)                          # values of the program that is recorded, as many as the mask has when it runs
    if type(k._array) is MetaArray:
        if count is None and fresh.size is not None:
            count = fresh.size(k.numel())
        if count is not None:
            return [wrap(MetaArray((count,), np.dtype(np.int64))) for _ in range(k.ndim)]
        raise ShapeCannotBeKnown("indexing with a mask on the meta device: the shape of the result depends on its values")
    _check_fits(k, shape, d)
    if not k._array.ndim:
        return [wrap(np.zeros((1,) if k._array else (0,), np.int64))]
    if k._array.__class__ is not ndarray:
        return _places_in(k)
    return [wrap(x) for x in scatter.nonzero(k._array)]


def _check_fits(mask: Tensor, shape: Any, d: int) -> None:
    for i, n in enumerate(mask.shape):
        if shape[d + i] != n:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {i} does not match the shape of the indexed tensor "
                f"{list(shape)} at index {d + i}"
            )


def _places_in(mask: Tensor) -> list[Tensor]:
    """Where `mask` holds, by operations on it: a vector for each dimension."""
    from .._spec import OPS

    return list(OPS["nonzero"].function(mask, as_tuple=True))


def array_key(indices: Any) -> tuple[Any, ...]:
    """numpy's form of one index (array or None) per dimension."""
    return tuple(slice(None) if k is None else k._array if isinstance(k, Tensor) else k for k in indices)


def explain_indices(shape: Any, indices: Any, values: Any = None) -> Exception:
    """What is wrong with indices that numpy refused, where `values` were to be stored at them."""
    for d, k in enumerate(indices):
        if k is not None and not shape[d] and (k._array if isinstance(k, Tensor) else k).size:
            return IndexError(f"index is out of bounds for dimension with size 0: dimension {d} has no elements")
    if values is not None:
        wanted = _indexed_shape(shape, indices)
        if wanted is not None and not _expands_to(values.shape, wanted):
            return RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape {list(wanted)}"
            )
    shapes = []
    for d, k in enumerate(indices):
        if k is None:
            continue
        k = k._array if isinstance(k, Tensor) else k
        n = shape[d]
        bad = k[(k >= n) | (k < -n)].reshape(-1)
        if bad.size:
            return IndexError(f"index {bad[0]} is out of bounds for dimension {d} with size {n}")
        shapes.append(list(k.shape))
    return IndexError(
        f"shape mismatch: indexing tensors could not be broadcast together with shapes {', '.join(map(str, shapes))}"
    )


def _indexed_shape(shape: Any, indices: Any) -> tuple[int, ...] | None:
    """The shape of what `indices` name in an array of `shape`, wherever they point; None if they do not broadcast."""
    places = [k._array if isinstance(k, Tensor) else k for k in indices]
    try:
        # A view of one element has any shape, and is indexed by zeros.
        there = np.broadcast_to(np.zeros(()), tuple(n or 1 for n in shape))
        made = there[tuple(slice(None) if k is None else np.zeros_like(k) for k in places)].shape
    except IndexError:
        return None
    named = [d for d, k in enumerate(places) if k is not None]
    empty = [n for d, n in enumerate(shape) if d not in named]
    if 0 not in empty:
        return made
    # The dimensions that are taken whole, among those that the indices make.
    first = len(made) - len(empty)
    at = named[0] if named and named == list(range(named[0], named[-1] + 1)) else 0
    return (*empty[:at], *(n for n in made[at : at + first]), *empty[at:])


def _expands_to(shape: Any, wanted: Any) -> bool:
    if len(shape) > len(wanted):
        shape = shape[len(shape) - len(wanted) :] if all(n == 1 for n in shape[: len(shape) - len(wanted)]) else None
    return shape is not None and all(m in (1, n) for m, n in zip(reversed(shape), reversed(wanted), strict=False))
