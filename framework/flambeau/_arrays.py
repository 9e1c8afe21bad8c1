"""Small facts about arrays that numpy does not hand out: addresses, layouts, storages, and arrays of the meta device."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtypes

ndarray = np.ndarray


class MetaArray:
    """Shape, strides and dtype of an array that has no memory.

    `dtype` equals the numpy dtype but is another object, so fast paths that test ``dtype is float32`` pass meta by.
    """

    __slots__ = ("shape", "strides", "dtype", "offset", "base", "__weakref__")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None, offset: int = 0):
        self.shape = tuple(shape)
        self.dtype = _meta_dtype(dtype)
        self.strides = contiguous_strides(self.shape, dtype.itemsize) if strides is None else tuple(strides)
        self.offset = offset  # bytes
        self.base: Any = None

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
        step *= n or 1
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
    return array.__array_interface__["data"][0] if type(array) is ndarray else _other_address(array)


def _other_address(array: Any) -> int:
    if isinstance(array, ndarray):
        return array.__array_interface__["data"][0]
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
        from .cuda.arrays import whole_memory

        return whole_memory(root)
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
        from .cuda.arrays import over

        return over(buffer, dtype, shape, strides, offset)
    if 0 in shape:
        return np.asarray(_Place(shape, strides, offset, buffer, dtype.itemsize)).view(dtype)
    return np.ndarray(shape, dtype, buffer, offset, strides)


class _Place:
    """A place in memory without elements: numpy makes arrays of it that may begin at the end of a buffer, or beyond."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, buffer: Any, itemsize: int) -> None:
        self.base = buffer
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{itemsize}", "shape": tuple(shape), "strides": tuple(strides),
            "data": (address(buffer) + offset, not buffer.flags.writeable),
        }  # fmt: skip


def empty_like_layout(shape: tuple[int, ...], dtype: np.dtype, arrays: Any) -> Any:
    """An allocated output for an elementwise op: dimensions lie in memory in the order the inputs' do."""
    full = [a for a in arrays if a.shape == shape]
    if not full or all(is_c_contiguous(a) for a in full) or len(shape) < 2:
        return np.empty(shape, dtype)
    return strided_empty(shape, dtype, permutation(shape, full))


def like_strides(shape: tuple[int, ...], step: int, arrays: Any) -> tuple[int, ...]:
    """The byte strides of `empty_like_layout`, nothing allocated."""
    full = [a for a in arrays if a.shape == shape]
    if not full or all(is_c_contiguous(a) for a in full) or len(shape) < 2:
        return contiguous_strides(shape, step)
    return strides_in(shape, step, permutation(shape, full))


def permutation(shape: tuple[int, ...], arrays: Any) -> list[int]:
    """Dimensions from the slowest to the fastest, by the strides of the first array that tells them apart."""
    order: list[int] = []
    for d, n in enumerate(shape):
        at = len(order)
        while n != 1 and at > 0 and _goes_before(d, order[at - 1], arrays):
            at -= 1
        if n != 1:
            order.insert(at, d)
    # Dimensions of size 1 do not matter; each is put around the one that follows it.
    for d in reversed(range(len(shape))):
        if shape[d] == 1:
            order.insert(order.index(d + 1) if d + 1 < len(shape) else len(order), d)
    return order


def _goes_before(d: int, e: int, arrays: Any) -> bool:
    for a in arrays:
        if a.strides[d] != a.strides[e] and a.strides[d] and a.strides[e]:
            return a.strides[d] > a.strides[e]
    return False


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
