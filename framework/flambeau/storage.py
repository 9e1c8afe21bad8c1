"""Storages: the memory that tensors and their views share."""

from __future__ import annotations

import functools
import gc
import math
import operator
import sys
import weakref
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.creation.fill import fill_unset

from . import _arrays, _shared_memory, _state, devices, dtypes
from ._arrays import MetaArray, ndarray
from ._inference import refuse_write
from .autograd import tape
from .autograd.making import new_node
from .autograd.tape import Node
from .dtypes import dtype
from .tensor import Tensor, bump, channels_last_order, storage_buffer, wrap

__all__ = ["TypedStorage", "UntypedStorage"]

_builtin_type = type  # which the classes below have a method of the name of


def storage_of(tensor: Tensor) -> UntypedStorage:
    """The bytes behind `tensor`. Programs that save tensors ask for them again and again."""
    record = tensor._storage
    if record[_BUFFER].__class__ is not ndarray:
        storage_buffer(tensor)
    made = _new(UntypedStorage)
    made._record = record
    made._maker = _ref(tensor)
    return made


_new, _ref, _BUFFER = object.__new__, weakref.ref, tape.BUFFER


class UntypedStorage:
    """A block of bytes. Tensors over it see each other's writes.

    Args:
        data: a number of bytes, or a sequence of their values.
    """

    __slots__ = ("_record", "_maker", "__weakref__")
    is_cuda = is_hpu = is_sparse = is_sparse_csr = False

    def __init__(self, data: Any = 0, *, device: Any = None) -> None:
        is_meta = device is not None and devices.device(device).type == "meta"
        if not isinstance(data, (int, np.integer)):
            values = _bytes_of_sequence(data)
        elif is_meta:
            values = MetaArray((_size_of(data),), np.dtype(np.uint8))
        else:
            values = _zeros("UntypedStorage", _size_of(data))
        if is_meta:
            values = MetaArray(values.shape, values.dtype)
        self._record: list[Any] = [0, 0, values, None]
        self._maker: Any = None

    @staticmethod
    def _over(values: Any) -> UntypedStorage:
        """A storage over `values`, a uint8 array."""
        made = object.__new__(UntypedStorage)
        made._record, made._maker = [0, 0, values, None], None
        return made

    @property
    def _bytes(self) -> Any:
        return self._record[tape.BUFFER]

    @property
    def _is_meta(self) -> bool:
        return type(self._bytes) is MetaArray

    def _host_bytes(self) -> Any:
        if self._is_meta:
            raise NotImplementedError("Not available for 'meta' device type")
        return self._bytes

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", *, count: int = -1, offset: int = 0, dtype: Any = None) -> UntypedStorage:
        """A copy of the bytes of `buffer`, swapped when `byte_order` ('native', 'little', 'big') is not this machine's."""
        if byte_order not in ("native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        if dtype is not None and count < 0 and (memoryview(buffer).nbytes - offset) % dtype.itemsize:
            raise ValueError(f"buffer size ({memoryview(buffer).nbytes - offset}) must be a multiple of element size ({dtype.itemsize})")
        values = np.frombuffer(buffer, np.uint8, count if count < 0 or dtype is None else count * dtype.itemsize, offset).copy()
        made = cls._over(values)
        if byte_order not in ("native", sys.byteorder) and dtype is not None:
            made.byteswap(dtype)
        return made

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` bytes of a file, mapped; writes go to the file if `shared`, which then grows to that size."""
        return cls._over(map_file(filename, shared, nbytes))

    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._record[_BUFFER].nbytes)

    size = __len__ = nbytes

    def element_size(self) -> int:
        """Bytes per element: 1."""
        return 1

    def data_ptr(self) -> int:
        """Address of the first byte."""
        a = self._record[tape.BUFFER]
        return (hot_calls.address(a) if a.__class__ is ndarray else _arrays.address(a)) if a.size else 0

    def _read_as(self, d: dtype | None) -> Tensor:
        """A tensor over all whole elements of `d`; of int64 if None."""
        return _over_record(self, d or dtypes.int64)

    @property
    def device(self) -> devices.device:
        """Where the memory is."""
        return wrap(self._bytes).device

    def get_device(self) -> int | None:
        """Index of the CUDA device; None elsewhere."""
        return self.device.index

    @property
    def filename(self) -> str | None:
        """The file the memory is mapped from; None for memory of its own."""
        return None

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return UntypedStorage._over(self._host_bytes()[_plain_slice(at)])
        return int(self._host_bytes()[_index(self, at)])

    def __setitem__(self, at: Any, value: Any) -> None:
        at = _plain_slice(at) if isinstance(at, slice) else _index(self, at)
        if not self._is_meta:
            self._bytes[at] = _byte(value)
        self._record[tape.COUNT] += 1

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UntypedStorage)
            and self.data_ptr() == other.data_ptr()
            and self.nbytes() == other.nbytes()
        )

    def __hash__(self) -> int:
        return id(self._record)

    def __repr__(self) -> str:
        shown = "...\n" if self._is_meta else "".join(f" {b}\n" for b in self._bytes[:1000])
        return f"{shown}[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        # The key that tensors use, so that a tensor and its storage stay together.
        key = ("flambeau storage", id(self._bytes))
        if key not in memo:
            values = _copied(self._bytes)
            memo[key] = (values, [0, 0, values, None], self._bytes)
        made = object.__new__(UntypedStorage)
        made._record, made._maker = memo[key][1], None
        return made

    def __reduce__(self) -> Any:
        return _untyped_from_bytes, (self._bytes.tobytes(),)

    @property
    def _cdata(self) -> int:
        return id(self._record)

    def tolist(self) -> list[int]:
        """The values of the bytes."""
        return self._host_bytes().tolist()

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte to `value`."""
        value = _byte(value)
        if not self._is_meta:
            self._bytes.fill(value)
        self._record[tape.COUNT] += 1
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Take over the bytes of `source`. Raises: RuntimeError for another size; NotImplementedError from the meta device."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes")
        if not self._is_meta:
            if source._is_meta:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            self._bytes[:] = source._bytes
        self._record[tape.COUNT] += 1
        return self

    def byteswap(self, dtype: dtype) -> None:
        """Reverse the bytes of each element, in place; of each part, for complex ones."""
        step = dtype.to_real().itemsize
        pieces = self._host_bytes().reshape(-1, step)
        pieces[...] = pieces[:, ::-1].copy()

    def clone(self) -> UntypedStorage:
        """A copy of the bytes."""
        return UntypedStorage._over(_copied(self._bytes))

    def new(self) -> UntypedStorage:
        """An empty storage."""
        return UntypedStorage(0)

    def cpu(self) -> UntypedStorage:
        """This storage if it is in host memory, else a copy there. Raises: NotImplementedError from the meta device."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """A copy on a CUDA device, the current one by default."""
        return self.to(device="cuda" if device is None else devices.device(device))

    def hpu(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """Raises: AssertionError: there is no such device."""
        raise AssertionError("HPU device module is not loaded")

    def mps(self) -> UntypedStorage:
        """Raises: RuntimeError: there is no such device."""
        raise RuntimeError("UntypedStorage.mps: Storage device not recognized: mps")

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """This storage if it is on `device`, else a copy there."""
        here = wrap(self._bytes)
        there = here.to(devices.device(device))
        return self if there is here else UntypedStorage._over(there._array)

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """A copy in page-locked memory. Raises: RuntimeError without a device that needs it."""
        return UntypedStorage._over(wrap(self._bytes).pin_memory()._array)

    def untyped(self) -> UntypedStorage:
        """This storage."""
        return self

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the storage class."""
        if dtype is not None:
            raise NotImplementedError("UntypedStorage.type: bytes have no element type; use a tensor of that dtype")
        return "torch.storage.UntypedStorage"

    def resizable(self) -> bool:
        """Whether `resize_` works: everywhere but in shared memory."""
        return self._is_meta or _shared_memory.block_of(self._bytes) is None

    def resize_(self, size: int) -> UntypedStorage:
        """Change the number of bytes, keeping what fits; the tensor this storage was asked of and views of it follow."""
        if size < 0:
            raise RuntimeError(f"UntypedStorage.resize_: size must not be negative, got {size}")
        old = self._bytes
        if type(old) is MetaArray:
            self._record[tape.BUFFER] = MetaArray((int(size),), np.dtype(np.uint8))
            return self
        if int(size) != len(old) and _shared_memory.block_of(old) is not None:
            raise RuntimeError(
                f"UntypedStorage.resize_: storages in shared memory keep their size, which is {len(old)} bytes; got {size}. "
                f"Work on a clone()"
            )
        tensors = self._tensors()
        if any(_end_in(t._array, old) > size for t in tensors):
            # They keep the memory that they have elements in, and find their place again when the storage is large enough.
            block = _arrays.bytes_of(_arrays.root_of(old))
            begin = _arrays.address(old) - _arrays.address(block)
            self._record[tape.BUFFER] = block[begin : begin + int(size)]
            return self
        fresh = _zeros("UntypedStorage.resize_", int(size))
        kept = min(len(old), int(size))
        fresh[:kept] = old[:kept]
        self._record[tape.BUFFER] = fresh
        for tensor in tensors:
            move_array(tensor, old, fresh)
        return self

    def _tensors(self) -> list[Tensor]:
        """The tensors over this storage that are known: the one it was asked of, its base, and their views."""
        first = None if self._maker is None else self._maker()
        known = [
            first,
            None if first is None else first._base,
            *(ref() for ref in self._record[tape.VIEWS] or ()),
        ]
        return list({id(t): t for t in known if t is not None and t._storage is self._record}.values())

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes to memory that other processes can map; the tensors over them follow. Shared bytes stay as they are.

        Raises: RuntimeError for bytes that are not in host memory, or where there is no room.
        """
        old = self._bytes
        if self._is_meta:
            raise RuntimeError("share_memory_: only available on CPU, and this storage is on the meta device")
        if type(old) is not ndarray or self.is_shared():
            return self
        block = _shared_memory.allocate(len(old))
        block[:] = old
        self._record[tape.BUFFER] = block
        for tensor in self._all_tensors():
            move_array(tensor, old, block)
        return self

    def _all_tensors(self) -> list[Tensor]:
        """Every tensor over this storage, also those that nothing here keeps account of."""
        known = self._tensors()
        # Beside the tensors, the record is held by this storage, and by the call that counts.
        if sys.getrefcount(self._record) > len(known) + 2:
            holders = (holder for holder in gc.get_referrers(self._record) if isinstance(holder, Tensor))
            known = list({id(t): t for t in (*known, *holders)}.values())
        return known

    def is_shared(self) -> bool:
        """Whether other processes may see the memory: after `share_memory_`, and always on a GPU."""
        return not self._is_meta and (type(self._bytes) is not ndarray or _shared_memory.block_of(self._bytes) is not None)

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """`size` bytes of memory that other processes can map."""
        return cls(size, device=device).share_memory_()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is page-locked; without a GPU it never is."""
        return False


def _zeros(name: str, size: int) -> Any:
    """`size` bytes of 0. Raises: RuntimeError where there is no memory for them."""
    try:
        return np.zeros(size, np.uint8)
    except (MemoryError, ValueError):
        raise RuntimeError(f"{name}: can't allocate memory: you tried to allocate {size} bytes") from None


def _size_of(count: Any) -> int:
    if count < 0:
        raise RuntimeError(f"torch.UntypedStorage(): the size must not be negative, got {count}")
    if count >= 1 << 63:
        raise ValueError(f"torch.UntypedStorage(): Overflow when unpacking long long: the size is {count}")
    return int(count)


def _bytes_of_sequence(data: Any) -> ndarray:
    if not hasattr(data, "__len__"):
        raise RuntimeError(f"torch.UntypedStorage(): Expected a sequence type, but got {type(data).__name__}")
    try:
        return np.array([_byte(value) for value in data], np.uint8)
    except TypeError:
        wrong = next(value for value in data if not isinstance(value, (int, np.integer)))
        raise RuntimeError(
            f"torch.UntypedStorage(): tried to construct a storage from a sequence ({type(data).__name__}), but one of the items was "
            f"of type {type(wrong).__name__} instead of int"
        ) from None


def _byte(value: Any) -> int:
    """The byte that `value` is stored as: its lowest eight bits. Raises: TypeError unless it is an integer."""
    return operator.index(value) & 255


def _copied(values: Any) -> Any:
    return MetaArray((values.nbytes,), np.dtype(np.uint8)) if type(values) is MetaArray else values.copy()


def _index(storage: Any, at: Any) -> int:
    """The place that `at` means. Raises: RuntimeError for no integer; IndexError outside the storage."""
    if not isinstance(at, (int, np.integer)) or isinstance(at, bool):
        raise RuntimeError(f"can't index a {type(storage)} with {type(at)}")
    n = storage.size()
    if not -n <= at < n:
        raise IndexError(f"index {at} out of range for storage of size {n}")
    return int(at) % n


def _plain_slice(at: slice) -> slice:
    if at.step not in (None, 1):
        raise RuntimeError(f"Trying to slice with a step of {at.step}, but only a step of 1 is supported")
    return at


def _untyped_from_bytes(values: bytes) -> UntypedStorage:
    return UntypedStorage._over(np.frombuffer(bytearray(values), np.uint8))


def _load_from_bytes(b: bytes) -> Any:
    """What PyTorch's pickles of storages call: the storage in a file of `torch.save`, read as data."""
    from .serialization import read_storage

    return read_storage(b)


def _converter(d: dtype) -> Any:
    def convert(self: Any) -> TypedStorage:
        return TypedStorage._of(wrap(self._elements() if isinstance(self, TypedStorage) else self._bytes).to(d, copy=True))

    convert.__name__ = d.name
    convert.__doc__ = f"A copy with its elements converted to {d.name}."
    return convert


class TypedStorage:
    """A storage seen as elements of one dtype; deprecated in PyTorch.

    Args:
        args: a number of elements, a sequence of their values, or an UntypedStorage.
        wrap_storage: an UntypedStorage, by name.
        dtype: their type, float32 by default; ``FloatStorage`` and the like have their own.
    """

    dtype: dtype
    is_sparse = is_cuda = is_hpu = False

    def __init__(
        self,
        *args: Any,
        wrap_storage: Any = None,
        dtype: Any = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        if wrap_storage is not None:
            if args or dtype is None:
                raise RuntimeError("TypedStorage(wrap_storage=storage) takes dtype, and nothing else by place")
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}")
        if len(args) > 1:
            raise RuntimeError(f"Too many positional arguments: TypedStorage takes a size or a sequence, got {len(args)} values")
        self.dtype = dtype or dtypes.get_default_dtype()
        self._untyped = _untyped_for(args[0] if args else 0, self.dtype, device) if wrap_storage is None else wrap_storage

    @staticmethod
    def _wrap(untyped: UntypedStorage, dtype: dtype) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=dtype)

    @staticmethod
    def _of(tensor: Tensor) -> TypedStorage:
        return TypedStorage._wrap(storage_of(tensor), tensor.dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, **kwargs: Any) -> TypedStorage:
        """A copy of the bytes of an object, see `UntypedStorage.from_buffer`."""
        d = dtype or getattr(cls, "dtype", None) or dtypes.get_default_dtype()
        return TypedStorage._wrap(UntypedStorage.from_buffer(*args, dtype=d, **kwargs), d)

    _from_buffer = from_buffer                        # PyTorch's name, which packages call

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """`size` elements of a file, see `UntypedStorage.from_file`."""
        d = getattr(cls, "dtype", None) or dtypes.get_default_dtype()
        return TypedStorage._wrap(UntypedStorage.from_file(filename, shared, size * d.itemsize), d)

    @classmethod
    def _new_shared(cls, size: int) -> TypedStorage:
        """`size` elements of memory that other processes can map."""
        d = getattr(cls, "dtype", None) or dtypes.get_default_dtype()
        return TypedStorage._wrap(UntypedStorage._new_shared(size * d.itemsize), d)

    @property
    def _untyped_storage(self) -> UntypedStorage:
        """`untyped`, as programs of PyTorch's insides read it."""
        return self._untyped

    def _elements(self) -> Any:
        raw, kind = self._untyped._bytes, dtypes.stored_as(self.dtype).numpy
        if self._untyped._is_meta:
            return MetaArray((self.size(),), kind)
        return raw[: len(raw) // kind.itemsize * kind.itemsize].view(kind)

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped

    def _read_as(self, d: dtype | None) -> Tensor:
        """A tensor over all elements. Raises: RuntimeError for another dtype than theirs."""
        if d is not None and d is not self.dtype:
            raise RuntimeError(
                f"Expected a Storage of type {d.name} or an UntypedStorage, but got {self.dtype.name}; convert the tensor of it"
            )
        return _over_record(self._untyped, self.dtype)

    def size(self) -> int:
        """Number of elements."""
        return self._untyped.nbytes() // self.dtype.itemsize

    __len__ = size

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._untyped.nbytes()

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._untyped.data_ptr()

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def device(self) -> devices.device:
        """Where the memory is."""
        return self._untyped.device

    @property
    def filename(self) -> str | None:
        """The file that is mapped, or None."""
        return self._untyped.filename

    def get_device(self) -> int | None:
        """Index of the CUDA device; None elsewhere."""
        return self._untyped.get_device()

    @property
    def _cdata(self) -> int:
        return self._untyped._cdata

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        self._untyped._host_bytes()
        return wrap(self._elements()).tolist()

    def __getitem__(self, at: Any) -> Any:
        self._untyped._host_bytes()
        if isinstance(at, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__; use a tensor over the storage")
        return wrap(self._elements())[_index(self, at)].item()

    def __setitem__(self, at: Any, value: Any) -> None:
        wrap(self._elements())[_plain_slice(at) if isinstance(at, slice) else _index(self, at)] = value
        self._untyped._record[tape.COUNT] += 1

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.dtype is other.dtype and self._untyped == other._untyped

    def __hash__(self) -> int:
        return hash((self.dtype, self._untyped))

    def __repr__(self) -> str:
        shown = "...\n" if self._untyped._is_meta else "".join(f" {x}\n" for x in wrap(self._elements()[:1000]).tolist())
        return f"{shown}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage._wrap(self._untyped.__deepcopy__(memo), self.dtype)

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __reduce__(self) -> Any:
        reduced = None if _state.reducer is None else _state.reducer(self)
        if reduced is not None:
            return reduced
        return TypedStorage._wrap, (self._untyped, self.dtype)

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element to `value`. Raises: TypeError unless it is a number."""
        if not isinstance(value, (int, float, complex, np.number, np.bool_)):
            raise TypeError(f"can't assign a {type(value).__name__} to elements of {self.dtype}")
        wrap(self._elements()).fill_(value)
        self._untyped._record[tape.COUNT] += 1
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Take over the bytes of `source`, of the same size; elements of another dtype are not converted."""
        self._untyped.copy_(source._untyped if isinstance(source, TypedStorage) else source)
        return self

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage._wrap(self._untyped.clone(), self.dtype)

    def cpu(self) -> TypedStorage:
        """This storage, in host memory."""
        return TypedStorage._wrap(self._untyped.cpu(), self.dtype)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """A copy on a CUDA device, the current one by default."""
        return TypedStorage._wrap(self._untyped.cuda(device), self.dtype)

    def hpu(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """Raises: AssertionError: there is no such device."""
        return TypedStorage._wrap(self._untyped.hpu(device), self.dtype)

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """This storage on `device`."""
        return TypedStorage._wrap(self._untyped.to(device=device), self.dtype)

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """A copy in page-locked memory. Raises: RuntimeError without a device that needs it."""
        return TypedStorage._wrap(self._untyped.pin_memory(device), self.dtype)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the storage class, or a copy converted to `dtype`."""
        if dtype is None:
            return f"torch.{storage_class(self.dtype).__name__}"
        if isinstance(dtype, dtypes.dtype):
            return _converter(dtype)(self)
        name = dtype.__name__ if isinstance(dtype, _builtin_type) else str(dtype).rpartition(".")[2]
        if name not in STORAGE_DTYPES:
            raise ValueError(f"TypedStorage.type: {name!r} is no class of storages; there are {', '.join(STORAGE_DTYPES)}")
        return _converter(STORAGE_DTYPES[name])(self)

    def pickle_storage_type(self) -> str:
        """The name that pickles know storages of this dtype by."""
        return storage_class(self.dtype).__name__

    def resizable(self) -> bool:
        """See `UntypedStorage.resizable`."""
        return self._untyped.resizable()

    def resize_(self, size: int) -> TypedStorage:
        """Change the number of elements."""
        self._untyped.resize_(size * self.dtype.itemsize)
        return self

    def share_memory_(self) -> TypedStorage:
        """See `UntypedStorage.share_memory_`."""
        self._untyped.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether other processes may see the memory."""
        return self._untyped.is_shared()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is page-locked; without a GPU it never is."""
        return False


_NAMES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "QUInt8": "quint8", "QInt8": "qint8", "QInt32": "qint32", "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4",
}  # fmt: skip
STORAGE_DTYPES = {f"{name}Storage": getattr(dtypes, d) for name, d in _NAMES.items()}
_CONVERSIONS = {
    "double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "complex_float": "complex64",
    "complex_double": "complex128", "float8_e4m3fn": "float8_e4m3fn", "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2": "float8_e5m2", "float8_e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
for _method, _name in _CONVERSIONS.items():
    setattr(TypedStorage, _method, _converter(getattr(dtypes, _name)))
    setattr(UntypedStorage, _method, _converter(getattr(dtypes, _name)))

class _ClassOfDtype(type):
    """Classes that stand for storages of one dtype in memory of one kind of device: what they make is a TypedStorage."""

    dtype: dtype
    kind = "cpu"

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is TypedStorage and instance.dtype is cls.dtype and instance.device.type == cls.kind

    def __call__(cls, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None, _internal: bool = False) -> Any:
        message = f"{cls.__name__} received an invalid combination of arguments: it takes a size, a sequence, or wrap_storage alone"
        if len(args) > 1 or dtype is not None or device is not None or (wrap_storage is not None and args):
            raise RuntimeError(message)
        if wrap_storage is not None and not isinstance(wrap_storage, UntypedStorage):
            raise TypeError(f"{message}, an UntypedStorage; got {type(wrap_storage).__name__}")
        if wrap_storage is not None or cls.kind == "cpu":
            return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype)
        from ._cuda.device import require

        require(f"cuda.{cls.__name__}")
        data = args[0] if args else 0
        if isinstance(data, (int, np.integer)):
            from .ops.creation.from_values import tensor

            return tensor(0, dtype=cls.dtype, device=cls.kind).expand(int(data)).contiguous()._typed_storage()
        return TypedStorage(data, dtype=cls.dtype, device=cls.kind)


_CLASSES = {
    name: _ClassOfDtype(name, (TypedStorage,), {"dtype": d, "__module__": "torch", "__doc__": f"A `TypedStorage` of {d.name}."})
    for name, d in STORAGE_DTYPES.items()
}


class _CudaClassOfDtype(_ClassOfDtype):
    """Those of CUDA's memory."""

    kind = "cuda"


@functools.cache
def cuda_storage_class(name: str) -> Any:
    """``flambeau.cuda.FloatStorage`` and the like, by name; None where there is none of this name."""
    # Those of quantized tensors are on the CPU alone.
    d = _CLASSES[name].dtype if name in _CLASSES and not name.startswith("Q") else None
    doc = "A `TypedStorage` in memory of the current CUDA device. Raises: RuntimeError when made without one."
    return d and _CudaClassOfDtype(name, (TypedStorage,), {"dtype": d, "__module__": "torch.cuda", "__doc__": doc})


def _untyped_for(data: Any, d: dtype, device: Any) -> UntypedStorage:
    """The bytes of a new storage of `d`: so many elements, or those of a sequence."""
    if isinstance(data, (int, np.integer)):
        return UntypedStorage(int(data) * d.itemsize, device=device)
    if isinstance(data, (Tensor, TypedStorage, UntypedStorage)) or not hasattr(data, "__len__"):
        raise TypeError(f"TypedStorage takes a size, a sequence of numbers or wrap_storage=, got a {type(data).__name__}")
    from .ops.creation.from_values import tensor

    return storage_of(tensor(data if isinstance(data, str) else list(data), dtype=dtypes.stored_as(d), device=device))


def storage_class(d: dtype) -> Any:
    """The class of storages of `d`: ``FloatStorage`` for float32; TypedStorage where PyTorch has no name for it."""
    return next((cls for cls in _CLASSES.values() if cls.dtype is d), TypedStorage)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return _CLASSES[name]
    if name == "__path__":                            # which every ``from .storage import`` asks for
        raise AttributeError("flambeau.storage is not a package", name=name)
    from . import _missing

    raise _missing.attribute_error(__name__, name)


# -- tensors over storages -----------------------------------------------------------------------------------------------


def _over_record(storage: UntypedStorage, d: dtype) -> Tensor:
    plain, memory = d.numpy, storage._host_bytes()
    made = wrap(memory[: memory.size // plain.itemsize * plain.itemsize].view(plain))
    made._storage = storage._record
    return made


def _end_in(a: Any, buffer: Any) -> int:
    """Where the last element of the array `a` ends in `buffer`, in bytes; 0 without elements."""
    return _arrays.address(a) - _arrays.address(buffer) + _arrays.extent(a.shape, a.strides, a.itemsize) if a.size else 0


def move_array(tensor: Tensor, old: Any, fresh: Any) -> None:
    """Let `tensor` look at the same place of `fresh` as it did of `old`; it keeps the old memory if that is outside."""
    a = tensor._array
    offset = _arrays.address(a) - _arrays.address(old) if a.size or len(old) else 0
    if not a.size or offset + _arrays.extent(a.shape, a.strides, a.itemsize) <= len(fresh):
        tensor._array = _arrays.restride(a, a.shape, a.strides, offset, fresh)


def map_file(filename: Any, shared: bool, nbytes: int | None = None) -> Any:
    """`nbytes` bytes of a file, or all, as a uint8 array; changes reach the file only if `shared`, and it is made as large as needed."""
    import mmap
    import os

    # numpy's memmap takes twice as long, for it finds out much about the file that nobody asks for.
    with open(filename, ("r+b" if os.path.exists(filename) else "w+b") if shared else "rb", buffering=0) as file:
        have = os.fstat(file.fileno()).st_size
        if nbytes is None:
            nbytes = have
        if have < nbytes:
            if not shared:
                raise RuntimeError(f"file {filename!r} has {have} bytes, but {nbytes} are to be mapped; give shared=True to let it grow")
            file.truncate(nbytes)
        if not nbytes:
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY), np.uint8)


def set_storage(tensor: Tensor, source: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """Make `tensor` look at `source`, which grows when it is too small. Raises: RuntimeError for another dtype or device."""
    if _state.MARKED:
        refuse_write(tensor)
    histories = (tensor._node, source._node if isinstance(source, Tensor) else None)
    recorded = _state.grad_enabled() and histories != (None, None)
    if recorded:
        from .ops._spec import check_moved

        check_moved("set", tensor)
    base = tensor._base
    if source is None:
        if size is not None or stride is not None:
            raise TypeError("set_(): size and stride are of a source; give one, or nothing for a tensor without elements")
        source = UntypedStorage(0)
        size = (0,)
    elif size is None and (stride is not None or storage_offset.__class__ is not int or storage_offset):
        raise TypeError(f"set_(): storage_offset {storage_offset} and stride {stride} are of a size, which is not given")
    if isinstance(source, Tensor):
        if source.dtype is not tensor.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {tensor.dtype}")
        if source.device != tensor.device:
            raise RuntimeError(f"Could not set a tensor on {source.device} to a tensor on {tensor.device}")
        if size is None:
            _look_at(tensor, source._array, storage_buffer(source))
            if recorded:
                _lose_history(tensor, base, histories)
            return tensor
        source = storage_of(source)
    if isinstance(source, TypedStorage):
        if source.dtype is not tensor.dtype:
            raise RuntimeError(f"Expected a Storage of type {tensor.dtype} or an UntypedStorage, but got type {source.dtype}")
        source = source.untyped()
    if not isinstance(source, UntypedStorage):
        raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    step = tensor._array.itemsize
    if not isinstance(storage_offset, (int, np.integer)) or isinstance(storage_offset, bool):
        raise TypeError(f"set_(): argument 'storage_offset' must be int, not {type(storage_offset).__name__}")
    if storage_offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {storage_offset}")
    shape = (source.nbytes() // step - storage_offset,) if size is None else tuple(size)
    if storage_offset * step >= 1 << 63 or math.prod(shape) >= 1 << 63:
        raise RuntimeError(f"set_: Storage size calculation overflowed with sizes={list(shape)} at storage offset {storage_offset}")
    if size is not None and min(shape, default=0) < 0:
        raise RuntimeError(f"set_: sizes must not be negative, got {list(shape)}")
    given = () if stride is None else tuple(stride)
    if given and len(given) != len(shape):
        raise RuntimeError(f"set_: unequal size length ({len(shape)}) and stride length ({len(given)})")
    if min(given, default=0) < 0:
        raise RuntimeError(f"set_: strides must not be negative, got {list(given)} for sizes={list(shape)}")
    strides = tuple(s * step for s in given) if given else _arrays.contiguous_strides(shape, step)
    need = storage_offset * step + _arrays.extent(shape, strides, step)
    if 0 not in shape and need > source.nbytes():
        source.resize_(need)
    _look_at(tensor, _arrays.restride(tensor._array, shape, strides, storage_offset * step, source._bytes), source._bytes)
    if recorded:
        _lose_history(tensor, base, histories)
    return tensor


def _look_at(tensor: Tensor, array: Any, memory: Any) -> None:
    """Let `tensor` have `array`, a part of `memory`. How often it was written goes on to be counted for it."""
    bump(tensor)
    count, stamp = tensor._storage[tape.COUNT], tensor._storage[tape.STAMP]
    tensor._array, tensor._storage, tensor._view_of = array, [count, stamp, memory, None], None


class _Underivable(Node):
    """What `set_` leaves of the history of a tensor and of its base."""

    __slots__ = ()
    title = "NotImplemented"

    def vjp(self, grad: Any) -> Any:
        raise RuntimeError("derivative for set_ is not implemented: after it the tensor has other memory; use copy_() instead")


def _lose_history(tensor: Tensor, base: Tensor | None, parents: tuple[Any, ...]) -> None:
    for written in (base, tensor):
        if written is not None:
            written._node = new_node(_Underivable, parents)


def _ordered_strides(shape: tuple[int, ...], step: int, order: Any) -> tuple[int, ...]:
    """Byte strides of a dense tensor whose dimensions lie in `order`, the fastest first; row-major without one."""
    if order is None:
        return _arrays.contiguous_strides(shape, step)
    made = [0] * len(shape)
    for d in order:
        made[d], step = step, step * shape[d]
    return tuple(made)


def resize(tensor: Tensor, sizes: Any, memory_format: Any = None) -> Tensor:
    """`Tensor.resize_`: elements keep their place in the storage, which grows when it must."""
    if give_shape(tensor, sizes, memory_format) and not tensor._lacks_values:
        bump(tensor)
    return tensor


def give_shape(tensor: Tensor, sizes: Any, memory_format: Any = None) -> bool:
    """`resize`, which does not count as a write: whoever is about to write counts once. Returns whether the shape was another."""
    if _state.MARKED:
        refuse_write(tensor)
    if memory_format is not None and not isinstance(memory_format, devices.memory_format):
        raise TypeError(f"resize_(): argument 'memory_format' must be torch.memory_format, not {type(memory_format).__name__}")
    try:
        shape = tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise TypeError(f"resize_(): argument 'size' must be tuple of ints, but got {sizes!r}") from None
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: sizes must not be negative, got {list(shape)}")
    if tensor._node is not None:
        raise RuntimeError("cannot resize variables that require grad")
    a, step = tensor._array, tensor._array.itemsize
    if a.shape == shape:
        return False
    strides = _arrays.contiguous_strides(shape, step)
    if memory_format is not None and memory_format.name.startswith("channels_last"):
        strides = _ordered_strides(shape, step, channels_last_order(memory_format, len(shape)))
    if type(a) is MetaArray:
        tensor._array = MetaArray(shape, _arrays.plain_dtype(a.dtype), strides)
        return True
    offset = tensor.storage_offset() * step
    need = offset + step * math.prod(shape)
    if need >= 1 << 63:
        raise RuntimeError(f"resize_: numel: integer multiplication overflow: no tensor can have the shape {list(shape)}")
    buffer = storage_buffer(tensor)
    if 0 not in shape and need > len(buffer):
        old = len(buffer) // step
        buffer = storage_of(tensor).resize_(need)._bytes
        if _state.FILL_EMPTY:
            fill_unset(buffer[: need // step * step].view(a.dtype)[old:])
    tensor._array = _arrays.restride(a, shape, strides, offset, buffer)
    return True
