"""Small facts about arrays that numpy does not hand out: addresses, layouts, storages, and arrays of the meta device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from . import dtypes
from ._symbolic import sym_max

ndarray = np.ndarray
made: list[Callable[[MetaArray], None]] = []          # told of each array of the meta device
hidden: list[bool] = []                               # not empty inside of `unseen`


class Shaped:
    """What follows from the `shape` and `dtype` of something that stands where arrays do."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize


class OpenShape(tuple):
    """A shape with symbolic sizes. Equal to a tuple of as many sizes that are equal; sizes are asked only where there are as many.

    A tuple compares elements before lengths, which would take it for granted that the first sizes are equal.
    """

    __slots__ = ()

    def __eq__(self, other: Any) -> Any:
        return isinstance(other, tuple) and len(self) == len(other) and tuple.__eq__(self, other)

    def __ne__(self, other: Any) -> Any:
        return not self == other

    __hash__ = tuple.__hash__


class MetaArray(Shaped):
    """Shape, strides and dtype of an array that has no memory.

    `dtype` equals the numpy dtype but is another object, so fast paths that test ``dtype is float32`` pass meta by.
    """

    __slots__ = ("shape", "strides", "dtype", "offset", "base", "__weakref__")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None, offset: int = 0):
        self.shape = tuple(shape)
        for n in self.shape:
            if n.__class__ is not int:
                self.shape = OpenShape(self.shape)
                break
        self.dtype = _meta_dtype(dtype)
        self.strides = contiguous_strides(self.shape, dtype.itemsize) if strides is None else tuple(strides)
        self.offset = offset  # bytes
        self.base: Any = None
        if made and not hidden and type(self) is MetaArray:
            for listener in made:
                listener(self)


class NoValues(AttributeError, TypeError):
    """Raised where the elements of a wrapper's tensor are asked for, which only its class knows."""


class HeldArray(MetaArray):
    """What a wrapper subclass has for an array: its shape and dtype, and in the place of memory its class and attributes."""

    __slots__ = ("cls", "attributes", "place")

    def __init__(self, shape: Any, dtype: np.dtype, strides: Any, offset: int, cls: type, attributes: dict[str, Any], place: Any) -> None:
        super().__init__(shape, dtype, strides, offset)
        self.cls, self.attributes, self.place = cls, attributes, place

    def __getattr__(self, name: str) -> Any:
        self._refuse(f"{name}: ")

    def _refuse(self, what: Any = "", *_: Any) -> Any:
        about = what if isinstance(what, str) else ""
        raise NoValues(f"{about}a {self.cls.__name__} has no elements of its own, and these are read here; call it with what is wrapped")

    __array__ = __getitem__ = __setitem__ = __iter__ = __len__ = __int__ = __float__ = __index__ = __abs__ = __neg__ = __invert__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __matmul__ = _refuse
    __and__ = __or__ = _refuse


@contextmanager
def unseen() -> Iterator[None]:
    """Inside of it `made` is told of nothing: the arrays only say what others will look like."""
    hidden.append(True)
    try:
        yield
    finally:
        hidden.pop()


_meta_dtypes: dict[np.dtype, np.dtype] = {}


def _meta_dtype(dtype: np.dtype) -> np.dtype:
    made = _meta_dtypes.get(dtype)
    if made is None:
        made = _meta_dtypes[dtype] = np.dtype(dtype, metadata={"device": "meta"})
    return made


def plain_dtype(dtype: np.dtype) -> np.dtype:
    """The ordinary numpy dtype equal to `dtype`."""
    return dtypes.from_numpy_dtype(dtype).numpy


def contiguous_strides(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Row-major strides; a dimension of size 0 counts as 1, so strides are never 0."""
    strides = []
    for n in reversed(shape):
        strides.append(step)
        step *= (n or 1) if n.__class__ is int else sym_max(n, 1)
    return tuple(reversed(strides))


def is_c_contiguous(array: Any) -> bool:
    if type(array) is ndarray:
        return array.flags.c_contiguous
    return strides_follow(array.shape, array.strides, array.itemsize, range(array.ndim - 1, -1, -1))


def strides_follow(shape: Any, strides: Any, step: int, order: Any) -> bool:
    """Whether memory is dense when dimensions are visited in `order`, the fastest first."""
    if 0 in shape:
        return True
    for d in order:
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def extent(shape: Any, strides: Any, step: int) -> int:
    """Bytes from the first element to the end of the last; 0 when there is none."""
    return 0 if 0 in shape else step + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def is_dense(array: Any) -> bool:
    """Whether the elements fill one block of memory without gaps or overlap, in some order of dimensions."""
    order = sorted(range(array.ndim), key=lambda d: (array.strides[d], array.shape[d]))
    return strides_follow(array.shape, array.strides, array.itemsize, order)


def address(array: Any) -> int:
    return hot_calls.address(array) if type(array) is ndarray else _other_address(array)


def _other_address(array: Any) -> int:
    if isinstance(array, ndarray):
        return hot_calls.numpy_address(array)
    if isinstance(array, MetaArray):
        return 0
    return array.data.ptr  # cupy


def root_of(array: Any) -> Any:
    """The array that owns the memory `array` looks at."""
    if type(array) is MetaArray:
        return array.base or array
    base = array.base
    while base is not None:
        if isinstance(base, ndarray):
            array = base
        elif type(base) is not _Place and type(base).__name__ != "DummyArray":  # what numpy's as_strided puts between arrays
            break
        base = base.base
    return array


def bytes_of(root: Any) -> Any:
    """The memory of `root` as a one-dimensional uint8 array."""
    if type(root) is MetaArray:
        return root
    if type(root) is not ndarray and not isinstance(root, ndarray):
        from ._cuda.arrays import memory_of

        return memory_of(root)
    if root.ndim == 1 and root.dtype == np.uint8 and root.strides == (1,):
        return root
    if root.size == 0:
        return np.ndarray((0,), np.uint8, buffer=None if not root.nbytes else root)
    if root.flags.c_contiguous:
        return root.reshape(-1).view(np.uint8)
    low, high = np.lib.array_utils.byte_bounds(root)
    order = sorted(range(root.ndim), key=lambda d: -root.strides[d])
    flat = root.transpose(order)
    if flat.flags.c_contiguous:
        return flat.reshape(-1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(root[(slice(0, 1),) * root.ndim].reshape(1).view(np.uint8), (high - low,), (1,))


def restride(array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, buffer: Any) -> Any:
    """An array over `buffer` (uint8) with byte `strides` from byte `offset`. Raises: ValueError outside the buffer."""
    dtype = array.dtype
    if type(array) is MetaArray:
        made = MetaArray(shape, plain_dtype(dtype), strides, offset)
        made.base = array.base or array
        return made
    if type(array) is not ndarray and not isinstance(array, ndarray):
        from ._cuda.arrays import over

        return over(buffer, dtype, shape, strides, offset)
    if 0 in shape:
        try:
            return np.asarray(_Place(shape, strides, offset, buffer, dtype.itemsize)).view(dtype)
        except (ValueError, OverflowError):           # numpy has no room for the sizes, whether there is an element or not
            raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}: no array can be that large") from None
    return np.ndarray(shape, dtype, buffer, offset, strides)


class _Place:
    """A place in memory without elements: numpy makes arrays of it that may begin at the end of a buffer, or beyond."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, buffer: Any, itemsize: int) -> None:
        self.base = buffer
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{itemsize}", "shape": tuple(shape), "strides": tuple(strides),
            "data": (address(buffer) + offset, not buffer.flags.writeable),
        }  # fmt: skip


def restrided(a: Any, shape: Any, strides: Any, skip: int = 0) -> Any:
    """A view of `a` with byte `strides`, starting `skip` bytes after its first element."""
    if a.__class__ is ndarray:
        made = hot_calls.restrided(a, shape, strides, skip)
        return _restrided_by_numpy(a, tuple(shape), tuple(strides), skip) if made is None else made
    if isinstance(a, MetaArray):
        made = MetaArray(tuple(shape), plain_dtype(a.dtype), tuple(strides), a.offset + skip)
        made.base = a.base or a
        return made
    if not isinstance(a, ndarray):
        from ._cuda import arrays

        return arrays.restride(a, shape, strides, skip)
    return _restrided_by_numpy(a, tuple(shape), tuple(strides), skip)


def _restrided_by_numpy(a: ndarray, shape: tuple[int, ...], strides: tuple[int, ...], skip: int) -> ndarray:
    if a.flags.c_contiguous and a.size:
        return ndarray(shape, a.dtype, a, skip, strides)
    if skip and a.size:
        flat = np.lib.stride_tricks.as_strided(a, (skip // a.itemsize + 1,), (a.itemsize,))
        a = flat[-1:]
    return np.lib.stride_tricks.as_strided(a, shape, strides)


def as_meta(a: MetaArray, shape: Any, dtype: Any, strides: Any, skip: int = 0) -> MetaArray:
    """The memory of `a` from `skip` bytes on, as elements of another numpy dtype."""
    made = MetaArray(shape, dtype, strides, a.offset + skip)
    made.base = a.base or a
    return made


def empty_like_layout(shape: tuple[int, ...], dtype: np.dtype, arrays: Any) -> Any:
    """An allocated output for an elementwise op: dimensions lie in memory in the order the inputs' do."""
    if len(shape) < 2 or all(_says_rows(a, shape) for a in arrays):
        return np.empty(shape, dtype)
    return strided_empty(shape, dtype, permutation(shape, arrays))


def like_strides(shape: tuple[int, ...], step: int, arrays: Any) -> tuple[int, ...]:
    """The byte strides of `empty_like_layout`, nothing allocated."""
    if len(shape) < 2 or all(_says_rows(a, shape) for a in arrays):
        return contiguous_strides(shape, step)
    return strides_in(shape, step, permutation(shape, arrays))


def _says_rows(a: Any, shape: tuple[int, ...]) -> bool:
    """Whether `a` leaves a result of `shape` in row-major order; of others the strides of dimensions of size 1 count too."""
    return a.ndim < 2 or a.ndim == len(shape) and a.shape == shape and is_c_contiguous(a)


def permutation(shape: tuple[int, ...], arrays: Any) -> list[int]:
    """Dimensions from the slowest to the fastest, by the strides, however they are signed, of the first array that tells them apart.

    Each dimension changes places with those before it that have larger strides, up to one that has a smaller one; those that
    nothing tells apart from it stay where they are. `lay_out` of `engine/calls/direct_layout.py` does the same.
    """
    ndim = len(shape)
    strides = [_broadcast_strides(a, shape) for a in arrays]
    order = list(range(ndim - 1, -1, -1))             # from the fastest
    for i in range(1, ndim):
        at = i
        for before in range(i - 1, -1, -1):
            which = _slower(order[before], order[at], shape, strides)
            if which < 0:
                break
            if which:
                order[before], order[at] = order[at], order[before]
                at = before
    return order[::-1]


def _broadcast_strides(a: Any, shape: tuple[int, ...]) -> list[int]:
    new = len(shape) - a.ndim
    return [0] * new + [abs(s) if m == n else 0 for s, m, n in zip(a.strides, a.shape, shape[new:], strict=True)]


def _slower(d: int, e: int, shape: tuple[int, ...], strides: list[list[int]]) -> int:
    """1 if the steps along `d` are the larger ones, -1 if those along `e` are, 0 where nothing tells."""
    for s in strides:
        if s[d] and s[e]:
            if s[d] != s[e]:
                return 1 if s[d] > s[e] else -1
            if shape[d] > shape[e]:
                return 1
    return 0


def strided_empty(shape: tuple[int, ...], dtype: np.dtype, order: list[int]) -> Any:
    """An uninitialised array whose memory order is `order`, the slowest dimension first."""
    base = np.empty([shape[d] for d in order], dtype)
    inverse = [0] * len(order)
    for at, d in enumerate(order):
        inverse[d] = at
    return base.transpose(inverse)


def strides_in(shape: tuple[int, ...], step: int, order: list[int] | None) -> tuple[int, ...]:
    """The byte strides of `strided_empty`, nothing allocated; of row-major memory where `order` is None."""
    if order is None:
        return contiguous_strides(shape, step)
    found = contiguous_strides(tuple(shape[d] for d in order), step)
    strides = [0] * len(order)
    for d, n in zip(order, found, strict=True):
        strides[d] = n
    return tuple(strides)
