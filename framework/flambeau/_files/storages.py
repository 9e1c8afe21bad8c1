"""Storages on their way to and from files: the memory that tensors share, its element type and its place."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from flambeau import _arrays, dtypes
from flambeau._files.archive import read_into
from flambeau.autograd.tape import BUFFER
from flambeau.tensor import storage_buffer, wrap

__all__ = [
    "STORAGE_NAMES",
    "ArchiveStorages",
    "LegacyStorages",
    "LoadedStorage",
    "SavedStorage",
    "bytes_of_storage",
    "storage_kind",
]

# The dtypes whose storages have a class of their own in PyTorch; those of the others are "untyped", counted in bytes.
STORAGE_NAMES = {
    dtypes.float64: "DoubleStorage", dtypes.float32: "FloatStorage", dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage", dtypes.int64: "LongStorage", dtypes.int32: "IntStorage",
    dtypes.int16: "ShortStorage", dtypes.int8: "CharStorage", dtypes.uint8: "ByteStorage",
    dtypes.bool: "BoolStorage",
    dtypes.complex64: "ComplexFloatStorage", dtypes.complex128: "ComplexDoubleStorage",
    dtypes.quint8: "QUInt8Storage", dtypes.qint8: "QInt8Storage", dtypes.qint32: "QInt32Storage",
    dtypes.quint4x2: "QUInt4x2Storage", dtypes.quint2x4: "QUInt2x4Storage",
}


def bytes_of_storage(storage: Any) -> Any:
    """The memory of a public storage as a one-dimensional uint8 tensor."""
    from flambeau.storage import TypedStorage, UntypedStorage

    untyped = storage.untyped() if isinstance(storage, TypedStorage) else storage
    if not isinstance(untyped, UntypedStorage):
        raise TypeError(f"load: expected a storage, got {type(storage).__name__}")
    made = wrap(untyped._bytes)
    made._storage = untyped._record
    return made


def storage_kind(tensor: Any) -> Any:
    """The dtype under which the storage of `tensor` is written; None for bytes."""
    dtype = tensor.dtype
    fits = storage_buffer(tensor).nbytes % dtype.itemsize == 0
    return dtype if fits and dtype in STORAGE_NAMES else None


class SavedStorage:
    """One storage to be written.

    Args:
        key: its name in the file.
        buffer: its bytes, as a uint8 array on any device.
        kind: its dtype; None for bytes.
    """

    def __init__(self, key: str, buffer: Any, kind: Any, location: str) -> None:
        self.key, self.buffer, self.kind, self.location = key, buffer, kind, location
        self.nbytes = int(buffer.nbytes)
        self.numel = self.nbytes // (1 if kind is None else kind.itemsize)

    def host_bytes(self) -> Any:
        """The bytes, in host memory."""
        return np.ascontiguousarray(self.buffer if isinstance(self.buffer, np.ndarray) else self.buffer.get())


class _Memory:
    """What the storages of one piece of memory share."""

    __slots__ = ("base", "foreign", "taken")

    def __init__(self, base: Any, foreign: bool) -> None:
        self.base, self.foreign = base, foreign
        self.taken: dict[tuple[str, Any], LoadedStorage] = {}


class LoadedStorage:
    """One storage that was read.

    Args:
        base: the memory as a one-dimensional uint8 tensor, at its place.
        kind: the dtype it was written as; None for bytes.
        foreign: whether its bytes are in the other byte order, which can only be mended once a dtype is known.
    """

    def __init__(self, base: Any, kind: Any, foreign: bool = False) -> None:
        # All tensors made of it share this record, so they know that they share memory.
        base._storage[BUFFER] = base._array
        self.base, self.kind = base, kind
        self._memory = _Memory(base, foreign)

    def seen_as(self, kind: Any) -> LoadedStorage:
        """The same memory as a storage of another dtype."""
        if kind is self.kind:
            return self
        made = object.__new__(LoadedStorage)
        made.base, made.kind, made._memory = self.base, kind, self._memory
        return made

    def public(self) -> Any:
        """The storage as users know it."""
        from flambeau.storage import TypedStorage

        untyped = self.base.untyped_storage()
        return untyped if self.kind is None else TypedStorage._wrap(untyped, self.kind)

    def taken(self, what: str, dtype: Any) -> LoadedStorage:
        """A storage of the conjugates (`what` is 'conj') or negatives ('neg') of all elements, made once.

        It has the size of this storage, whatever the size of the tensors over it, which may repeat elements.
        """
        made = self._memory.taken.get((what, dtype))
        if made is None:
            values = self.tensor(dtype, 0, (self.base.numel() // dtype.itemsize,), (1,))
            result = values.conj().resolve_conj().clone() if what == "conj" else values.neg()
            made = LoadedStorage(bytes_of_storage(result.untyped_storage()), self.kind)
            self._memory.taken[what, dtype] = made
        return made

    def tensor(self, dtype: Any, offset: Any, size: Any, stride: Any) -> Any:
        """A tensor of this memory; of the integers, for a quantized `dtype`.

        Raises: RuntimeError if any of its elements is outside the memory.
        """
        dtype = dtypes.stored_as(dtype)
        size, stride = _extents("size", size), _extents("stride", stride)
        if type(offset) is not int or offset < 0 or len(size) != len(stride):
            raise RuntimeError(f"load: a tensor with offset {offset!r}, size {size} and stride {stride} is malformed")
        item, have = dtype.itemsize, int(self.base._array.nbytes)
        if 0 not in size:
            need = (offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))) * item
            if need > have:
                raise RuntimeError(
                    f"load: a tensor with offset {offset}, size {size} and stride {stride} needs {need} "
                    f"bytes of a "
                    f"storage that has {have}; the file is damaged"
                )
        self._mend(dtype)
        made = wrap(_strided(self.base._array, dtype, size, tuple(step * item for step in stride), offset * item))
        made._storage = self.base._storage
        return made

    def _mend(self, dtype: Any) -> None:
        if self._memory.foreign:
            self._memory.foreign = False
            self.base._array[...] = swap_bytes(self.base._array, dtype)


def _extents(what: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or any(type(n) is not int or not 0 <= n < 2**63 for n in values):
        raise RuntimeError(f"load: a tensor's {what} must be integers that are not negative, got {values!r}")
    return tuple(values)


def _strided(buffer: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    if isinstance(buffer, np.ndarray) or type(buffer) is _arrays.MetaArray:
        like = np.empty(0, dtype.numpy)
        if type(buffer) is _arrays.MetaArray:
            like = _arrays.MetaArray((0,), dtype.numpy)
            like.base = buffer
        try:
            return _arrays.restride(like, shape, strides, offset, buffer)
        except ValueError as error:
            raise RuntimeError(
                f"load: cannot make a tensor of size {shape} and byte strides {strides}: {error}"
            ) from None
    return type(buffer)(shape, dtype.numpy, buffer.data + offset, strides)


def swap_bytes(data: np.ndarray, dtype: Any) -> np.ndarray:
    """The uint8 array `data` with the bytes of every number of `dtype` in reverse."""
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    return data if width == 1 else data.view(f"u{width}").byteswap().view(np.uint8)


class _Storages:
    """Storages by the persistent ids that refer to them, each read once."""

    def __init__(self, placement: Any, swaps: bool) -> None:
        self._placement = placement
        self._swaps = swaps
        self._found: dict[str, LoadedStorage] = {}

    def get(self, kind: Any, key: Any, location: Any, numel: Any) -> LoadedStorage:
        """The storage `key` of `numel` elements of dtype `kind` (None for bytes), saved at `location`.

        Raises: RuntimeError if the file has no such storage of that size.
        """
        if type(key) is not str or type(location) is not str or type(numel) is not int or numel < 0:
            raise RuntimeError(f"load: the reference to storage {key!r} is malformed")
        found = self._found.get(key)
        if found is None:
            nbytes = numel * (1 if kind is None else kind.itemsize)
            found = self._found[key] = self._load(kind, key, location, nbytes)
        return found.seen_as(kind)

    def _load(self, kind: Any, key: str, location: str, nbytes: int) -> LoadedStorage:
        have = self._size(key)
        if have != nbytes:
            raise RuntimeError(
                f"load: storage {key} should have {nbytes} bytes, but the file has {have} bytes for it"
            )
        place = self._placement.place(location)
        if place is not None and place.partition(":")[0] == "meta":
            return LoadedStorage(wrap(_arrays.MetaArray((nbytes,), np.dtype(np.uint8))), kind)
        data = self._read(key)
        if self._swaps and kind is not None:
            data = swap_bytes(data, kind)
        if kind is not None and _arrays.address(data) % kind.itemsize:
            # A mapped record of a file that was not written with aligned records.
            data = data.copy()
        base = self._placement.restore(wrap(data), location)
        return LoadedStorage(base, kind, foreign=self._swaps and kind is None)

    def _size(self, key: str) -> int:
        raise NotImplementedError

    def _read(self, key: str) -> np.ndarray:
        raise NotImplementedError


class ArchiveStorages(_Storages):
    """The storages of a zip archive: the records ``data/0``, ``data/1``, ...

    Args:
        mapping: the file as a mapped uint8 array; None to read it.
        skip_data: leave storages as zeros.
    """

    def __init__(
        self, archive: Any, placement: Any, swaps: bool, mapping: Any = None, skip_data: bool = False,
    ) -> None:
        super().__init__(placement, swaps)
        self._archive, self._mapping, self._skip_data = archive, mapping, skip_data
        self._ahead: dict[str, np.ndarray] | None = None

    def _size(self, key: str) -> int:
        return self._archive.record(f"data/{key}").size

    def _read(self, key: str) -> np.ndarray:
        record = self._archive.record(f"data/{key}")
        if self._skip_data:
            return np.zeros(record.size, np.uint8)
        if self._mapping is not None:
            return self._mapping[record.start : record.start + record.size]
        if self._ahead is None:
            self._ahead = self._read_ahead()
        data = self._ahead.pop(f"data/{key}", None)
        return self._archive.read(f"data/{key}") if data is None else data

    def _read_ahead(self) -> dict[str, np.ndarray]:
        """All storages, read on all threads once the first is asked for; none of a file of few bytes."""
        start = f"{self._archive.folder}/data/"
        found = [record for record in self._archive.records.values() if record.name.startswith(start)]
        if sum(record.size for record in found) < _FROM or not self._archive.reads_on_threads():
            return {}
        return self._archive.read_all([record.name[len(self._archive.folder) + 1 :] for record in found])


class LegacyStorages(_Storages):
    """The storages behind the pickles of the older format: for each key its number of elements, then the elements.

    Args:
        file, base, length: the file, where the saved object starts in it, and the bytes from there to its end.
        start: where the storages start, counted from `base` as all places are.
        keys: the order of the storages.
        references: the persistent ids in the object, which tell the dtype of each key.
    Attributes:
        end: where the storages end.
    Raises: RuntimeError if the keys, the references and the file do not fit together.
    """

    def __init__(
        self, file: Any, base: int, length: int, start: int, keys: Any, references: Iterable[Any], placement: Any, swaps: bool,
    ) -> None:
        super().__init__(placement, swaps)
        self._file, self._base, self._length = file, base, length
        widths = _element_sizes(references)
        self._spans: dict[str, tuple[int, int]] = {}
        self.end = start
        if not isinstance(keys, list):
            raise RuntimeError("load: the list of storages is malformed")
        for key in keys:
            if key not in widths or key in self._spans:
                raise RuntimeError(f"load: storage {key!r} is listed, but used nowhere or twice")
            self._spans[key] = self._span(key, widths[key])

    def _span(self, key: str, width: int) -> tuple[int, int]:
        first = self.end + _COUNT.size
        if first > self._length:
            raise RuntimeError(f"load: the file ends before storage {key}; it was not fully written or copied")
        (numel,) = _COUNT.unpack(self._bytes(self.end, _COUNT.size).tobytes())
        self.end = first + numel * width
        if numel < 0 or self.end > self._length:
            raise RuntimeError(
                f"load: storage {key} should have {numel * width} bytes, but the file has "
                f"{self._length - first} more; it was not fully written or copied"
            )
        return first, self.end

    def _bytes(self, start: int, size: int) -> np.ndarray:
        data = np.empty(size, np.uint8)
        if read_into(self._file, self._base + start, data.data) < size:
            raise RuntimeError("load: the file became shorter while it was read")
        return data

    def _size(self, key: str) -> int:
        if key not in self._spans:
            raise RuntimeError(f"load: the file has no storage {key}")
        first, end = self._spans[key]
        return end - first

    def _read(self, key: str) -> np.ndarray:
        first, end = self._spans[key]
        return self._bytes(first, end - first)


_COUNT = struct.Struct("<q")
_FROM = 2 << 20  # bytes of all storages from which threads read them together


def _element_sizes(references: Iterable[Any]) -> dict[str, int]:
    widths = {f"torch.{name}": dtype.itemsize for dtype, name in STORAGE_NAMES.items()}
    widths["torch.storage.UntypedStorage"] = widths["torch.UntypedStorage"] = 1
    found: dict[str, int] = {}
    for reference in references:
        if not isinstance(reference, tuple) or len(reference) < 5 or type(reference[2]) is not str:
            raise RuntimeError("load: a reference to a storage is malformed")
        name = getattr(reference[1], "name", "")
        if name not in widths:
            raise RuntimeError(f"load: storage {reference[2]} has the unknown type {name!r}")
        found[reference[2]] = widths[name]
    return found
