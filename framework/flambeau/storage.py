"""Storages: the memory that tensors and their views share."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, devices, dtypes
from ._arrays import MetaArray
from .autograd import tape
from .dtypes import dtype
from .tensor import Tensor, bump, channels_last_order, storage_buffer, wrap


class UntypedStorage:
    """A block of bytes. Tensors over it see each other's writes."""

    __slots__ = ("_record", "__weakref__")

    def __init__(self, size: int = 0) -> None:
        self._record: list[Any] = [0, 0, np.zeros(int(size), np.uint8), None]

    @staticmethod
    def _of(tensor: Tensor) -> UntypedStorage:
        made = object.__new__(UntypedStorage)
        storage_buffer(tensor)
        made._record = tensor._v
        return made

    @property
    def _bytes(self) -> Any:
        return self._record[tape.BUFFER]

    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._bytes.nbytes)

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return _arrays.address(self._bytes) if self._bytes.size else 0

    @property
    def device(self) -> devices.device:
        return devices.META if type(self._bytes) is MetaArray else devices.CPU

    @property
    def is_cuda(self) -> bool:
        return False

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            made = object.__new__(UntypedStorage)
            made._record = [0, 0, self._bytes[at], None]
            return made
        return int(self._bytes[at])

    def __setitem__(self, at: Any, value: Any) -> None:
        self._bytes[at] = value
        self._record[tape.COUNT] += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr() and self.nbytes() == other.nbytes()

    def __hash__(self) -> int:
        return id(self._record)

    def __repr__(self) -> str:
        return f"{''.join(f' {b}{chr(10)}' for b in self._bytes[:1000])}[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"

    @property
    def _cdata(self) -> int:
        return id(self._record)

    def tolist(self) -> list[int]:
        return self._bytes.tolist()

    def fill_(self, value: int) -> UntypedStorage:
        self._bytes.fill(value)
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        self._bytes[:] = source._bytes
        return self

    def clone(self) -> UntypedStorage:
        """A copy of the bytes."""
        made = object.__new__(UntypedStorage)
        made._record = [0, 0, self._bytes.copy(), None]
        return made

    def cpu(self) -> UntypedStorage:
        return self

    def untyped(self) -> UntypedStorage:
        return self

    def resize_(self, size: int) -> UntypedStorage:
        """Change the number of bytes; tensors made before keep the old memory."""
        fresh = np.zeros(int(size), np.uint8)
        kept = min(len(self._bytes), int(size))
        fresh[:kept] = self._bytes[:kept]
        self._record[tape.BUFFER] = fresh
        return self

    def is_shared(self) -> bool:
        return False

    def is_pinned(self, device: Any = None) -> bool:
        return False


class TypedStorage:
    """A storage seen as elements of one dtype."""

    def __init__(self, untyped: UntypedStorage, dtype: dtype) -> None:
        self._untyped, self.dtype = untyped, dtype

    @staticmethod
    def _of(tensor: Tensor) -> TypedStorage:
        return TypedStorage(UntypedStorage._of(tensor), tensor.dtype)

    def _elements(self) -> Any:
        raw = self._untyped._bytes
        return raw[: len(raw) // self.dtype.itemsize * self.dtype.itemsize].view(self.dtype.numpy)

    def untyped(self) -> UntypedStorage:
        return self._untyped

    def size(self) -> int:
        """Number of elements."""
        return self._untyped.nbytes() // self.dtype.itemsize

    __len__ = size

    def nbytes(self) -> int:
        return self._untyped.nbytes()

    def data_ptr(self) -> int:
        return self._untyped.data_ptr()

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def device(self) -> devices.device:
        return self._untyped.device

    def tolist(self) -> list[Any]:
        return wrap(self._elements()).tolist()

    def __getitem__(self, at: Any) -> Any:
        return wrap(self._elements())[at].tolist()

    def __setitem__(self, at: Any, value: Any) -> None:
        wrap(self._elements())[at] = value

    def __iter__(self) -> Any:
        return iter(self.tolist())


def set_storage(tensor: Tensor, source: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """Make `tensor` look at `source`. Raises: RuntimeError outside the storage or for another dtype."""
    if source is None:
        source = UntypedStorage(0)
        size = (0,)
    if isinstance(source, Tensor):
        if source.dtype is not tensor.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {tensor.dtype}")
        if size is None:
            tensor._a, tensor._v, tensor._b = source._a, source._v, None
            return tensor
        source = UntypedStorage._of(source)
    if isinstance(source, TypedStorage):
        source = source.untyped()
    if not isinstance(source, UntypedStorage):
        raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    step = tensor._a.itemsize
    shape = (source.nbytes() // step - storage_offset,) if size is None else tuple(size)
    strides = tuple(s * step for s in stride) if stride is not None else _arrays.contiguous_strides(shape, step)
    last = storage_offset * step + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + step
    if 0 not in shape and (last > source.nbytes() or storage_offset < 0):
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {[s // step for s in strides]}, storage offset {storage_offset}, and itemsize "
            f"{step} requiring a storage size of {last} are out of bounds for storage of size {source.nbytes()}"
        )
    tensor._a = _arrays.restride(tensor._a, shape, strides, storage_offset * step, source._bytes)
    tensor._v, tensor._b = source._record, None
    return tensor


def resize(tensor: Tensor, sizes: Any, memory_format: Any = None) -> Tensor:
    """`Tensor.resize_`: elements keep their place in the storage, which grows when it must."""
    shape = tuple(int(n) for n in sizes)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: sizes must not be negative, got {list(shape)}")
    if tensor._n is not None:
        raise RuntimeError("cannot resize variables that require grad")
    a, step = tensor._a, tensor._a.itemsize
    if a.shape == shape:
        return tensor
    strides = _arrays.contiguous_strides(shape, step)
    if memory_format is not None and (order := None if memory_format.name in ("contiguous_format", "preserve_format") else channels_last_order(memory_format, len(shape))):  # fmt: skip
        made, at = [0] * len(shape), step
        for d in order:
            made[d], at = at, at * shape[d]
        strides = tuple(made)
    if type(a) is MetaArray:
        tensor._a = MetaArray(shape, _arrays.plain_dtype(a.dtype), strides)
        return tensor
    offset = tensor.storage_offset() * step
    need = offset + step * int(np.prod(shape, dtype=np.int64))
    buffer = storage_buffer(tensor)
    if 0 not in shape and need > len(buffer):
        grown = np.empty(need, np.uint8)
        grown[: len(buffer)] = buffer
        tensor._v[tape.BUFFER] = buffer = grown
    tensor._a = _arrays.restride(a, shape, strides, offset, buffer)
    bump(tensor)
    return tensor


def to_shared_memory(tensor: Tensor) -> Tensor:
    """Move the storage to anonymous shared memory, which forked processes keep seeing."""
    import mmap

    if tensor.is_shared() or not tensor._a.size:
        tensor.__dict__["_shared"] = True
        return tensor
    buffer = storage_buffer(tensor)
    block = np.frombuffer(mmap.mmap(-1, len(buffer)), np.uint8)
    block[:] = buffer
    offset = tensor.storage_offset() * tensor._a.itemsize
    tensor._a = _arrays.restride(tensor._a, tensor._a.shape, tensor._a.strides, offset, block)
    tensor._v[tape.BUFFER] = block
    tensor.__dict__["_shared"] = True
    return tensor


_NAMES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
STORAGE_DTYPES = {f"{name}Storage": getattr(dtypes, d) for name, d in _NAMES.items()}
